//! Rendering of an upgrade graph as text or as a Mermaid flowchart.

use std::collections::BTreeMap;

use olm_cli_core::names::listed;
use olm_cli_core::output::{counted, printable};

use super::model::{Edge, EdgeRuleUse, Graph, Node, Path, Semantics};

/// One paragraph per bundle, with the edges that start from it.
pub(super) fn text(graph: &Graph) -> String {
    let semantics = match graph.semantics {
        Semantics::V1 => "OLM v1",
        Semantics::Classic => "classic OLM",
    };
    let channel = graph.channel.as_ref().map(|name| format!(", channel {name}")).unwrap_or_default();
    let mut text = format!(
        "Package {} in {}{channel}: {}, {} under the rules of {semantics}.\n\
         => is the chosen upgrade, -> another allowed upgrade.\n",
        graph.package,
        graph.catalog,
        counted(graph.nodes.len(), "bundle"),
        counted(graph.edges.len(), "edge"),
    );
    for note in &graph.notes {
        text += &format!("Note: {note}\n");
    }
    let nodes: BTreeMap<_, _> = graph.nodes.iter().map(|node| (node.bundle.as_str(), node)).collect();
    if let Some(path) = &graph.path {
        text += &path_text(path, &nodes);
    }
    let mut edges: BTreeMap<&str, Vec<&Edge>> = BTreeMap::new();
    for edge in &graph.edges {
        edges.entry(&edge.from).or_default().push(edge);
    }
    for node in &graph.nodes {
        let mark = graph.path.as_ref().and_then(|path| path.mark(&node.bundle));
        text += &format!("\n{}\n", node_line(node, mark.as_deref()));
        let edges = edges.get(node.bundle.as_str()).map_or(&[][..], Vec::as_slice);
        if edges.is_empty() {
            text += "  no upgrade\n";
        }
        for edge in edges {
            let arrow = if node.next.as_ref() == Some(&edge.to) { "=>" } else { "->" };
            let target = nodes.get(edge.to.as_str()).map(|node| title(node)).unwrap_or_default();
            text += &format!("  {arrow} {target}   {}\n", reasons(edge));
        }
    }
    printable(&text)
}

/// Version and name.
pub(super) fn title(node: &Node) -> String {
    format!("{} {}", node.version.as_deref().unwrap_or("?"), node.bundle)
}

/// Upgrade path of the installed bundle.
fn path_text(path: &Path, nodes: &BTreeMap<&str, &Node>) -> String {
    let titles = |bundles: &mut dyn Iterator<Item = &String>| -> Vec<String> {
        bundles.filter_map(|bundle| nodes.get(bundle.as_str())).map(|node| title(node)).collect()
    };
    let successors = listed(&titles(&mut path.successors.iter()));
    let from = titles(&mut std::iter::once(&path.from)).concat();
    let mut text = format!("\nInstalled: {from}\n  Direct successors: {successors}\n");
    text += &match titles(&mut path.steps.iter().map(|step| &step.bundle)).join(" => ") {
        steps if steps.is_empty() => "  No upgrade.\n".to_owned(),
        steps => format!("  Upgrade path: {from} => {steps}\n"),
    };
    if let Some(stopped) = &path.stopped {
        text += &format!("  Path ends: {stopped}\n");
    }
    text
}

fn node_line(node: &Node, mark: Option<&str>) -> String {
    let channels = if node.channels.is_empty() { "no channel".to_owned() } else { node.channels.join(", ") };
    let mut line = format!("{} ({channels})", title(node));
    if let Some(mark) = mark {
        line += &format!(" [{mark}]");
    }
    if !node.head_of.is_empty() {
        line += &format!(" [head of {}]", node.head_of.join(", "));
    }
    if node.deprecated {
        line += " [deprecated]";
    }
    if node.skipped {
        line += " [skipped]";
    }
    if node.unreachable {
        line += " [unreachable]";
    }
    if let Some(property) = &node.refused {
        line += &format!(" [refused for {property}]");
    }
    if !node.follows_absent.is_empty() {
        line += &format!("\n  also upgrades from, not in this catalog: {}", node.follows_absent.join(", "));
    }
    line
}

/// `replaces (stable, fast), skipRange (beta)`
pub(super) fn reasons(edge: &Edge) -> String {
    let mut by_rule: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for EdgeRuleUse { channel, rule } in &edge.by {
        by_rule.entry(rule).or_default().push(channel);
    }
    let reasons = by_rule.iter().map(|(rule, channels)| format!("{rule} ({})", channels.join(", ")));
    let mut text = reasons.collect::<Vec<_>>().join(", ");
    if edge.downgrade {
        text += " [downgrade]";
    }
    text
}

/// Name, style and members of a class of nodes.
type Class = (&'static str, &'static str, fn(&Node) -> bool);

/// Flowchart from low to high versions. The chosen upgrade of each bundle is the thick arrow. Several graphs are drawn
/// in one box each.
pub(super) fn mermaid(graphs: &[Graph]) -> String {
    let mut text = "flowchart LR\n".to_owned();
    if let [graph] = graphs {
        return text + &chart(graph, "b");
    }
    for (number, graph) in graphs.iter().enumerate() {
        text += &format!("  subgraph p{number}[\"{}\"]\n", label(&graph.package));
        text += &chart(graph, &format!("p{number}b"));
        text += "  end\n";
    }
    text
}

/// Nodes and edges of a flowchart. The ids of the nodes begin with `b`.
fn chart(graph: &Graph, b: &str) -> String {
    let mut text = String::new();
    for note in &graph.notes {
        text += &format!("  %% {}\n", printable(note).replace('\n', " "));
    }
    let numbers: BTreeMap<_, _> =
        graph.nodes.iter().enumerate().map(|(number, node)| (node.bundle.as_str(), number)).collect();
    for (number, node) in graph.nodes.iter().enumerate() {
        let version = node.version.as_deref().unwrap_or("?");
        text += &format!("  {b}{number}[\"{}<br/>{}\"]\n", label(version), label(&node.bundle));
    }
    let mut path_edges = Vec::new();
    for (number, edge) in graph.edges.iter().enumerate() {
        let (Some(from), Some(to)) = (numbers.get(edge.from.as_str()), numbers.get(edge.to.as_str())) else {
            continue;
        };
        if graph.path.as_ref().is_some_and(|path| path.has(&edge.from, &edge.to)) {
            path_edges.push(number.to_string());
        }
        let chosen = graph.nodes[*from].next.as_ref() == Some(&edge.to);
        let arrow = if chosen { "==>" } else { "-->" };
        text += &format!("  {b}{from} {arrow}|\"{}\"| {b}{to}\n", label(&reasons(edge)));
    }
    let classes: [Class; 3] = [
        ("head", "stroke-width:4px", |node| !node.head_of.is_empty()),
        ("deprecated", "fill:#f5c07a,color:#000", |node| node.deprecated),
        ("unreachable", "stroke-dasharray:5 5", |node| node.unreachable),
    ];
    for (class, style, is_member) in classes {
        let members = graph.nodes.iter().enumerate().filter(|(_, node)| is_member(node));
        let members: Vec<_> = members.map(|(number, _)| format!("{b}{number}")).collect();
        if !members.is_empty() {
            text += &format!("  classDef {class} {style}\n  class {} {class}\n", members.join(","));
        }
    }
    if let Some(path) = &graph.path {
        let marked = graph.nodes.iter().enumerate().filter(|(_, node)| path.mark(&node.bundle).is_some());
        let marked: Vec<_> = marked.map(|(number, _)| format!("{b}{number}")).collect();
        text += &format!("  classDef path fill:#9fd3a8,color:#000\n  class {} path\n", marked.join(","));
    }
    if !path_edges.is_empty() {
        text += &format!("  linkStyle {} stroke:#2e7d32,stroke-width:4px\n", path_edges.join(","));
    }
    text
}

/// Escapes text for use inside the quotes of a Mermaid label.
fn label(text: &str) -> String {
    let mut label = String::new();
    for character in printable(text).chars() {
        match character {
            '"' => label += "#quot;",
            '#' => label += "#35;",
            '<' => label += "#lt;",
            '>' => label += "#gt;",
            '\n' | '\t' => label.push(' '),
            other => label.push(other),
        }
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mermaid_label_escapes_quotes_and_markup() {
        assert_eq!(
            label("a\"] --> b[\"<script>#\n"),
            "a#quot;] --> b[#quot;#lt;script#gt;#35; ".replace("-->", "--#gt;")
        );
    }
}
