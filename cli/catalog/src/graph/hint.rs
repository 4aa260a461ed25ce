//! Description of one bundle of an upgrade graph: its properties, edges, and the reason of the resolver.

use std::collections::BTreeMap;

use olm_cli_core::output::{counted, printable};

use super::model::{Edge, Graph, Node};

/// Most names in a line.
const NAMED: usize = 4;
/// Longest line, in characters.
const LINE: usize = 400;

/// Lines that describe a bundle.
pub fn hint(graph: &Graph, node: &Node) -> String {
    let mut lines = vec![node.bundle.clone()];
    let path = graph.path.as_ref();
    // The reasons are about the next upgrade. A later step is passed over there, and chosen on the path.
    let is_later = path.is_some_and(|path| path.steps.iter().skip(1).any(|step| step.bundle == node.bundle));
    let reasons = graph.decision.as_ref().filter(|_| !is_later).map(|decision| &decision.reasons);
    if let Some(reason) = reasons.and_then(|reasons| reasons.get(&node.bundle)) {
        lines.push(format!("Resolver: {}", reason.text));
    }
    lines.extend(path.and_then(|path| path.mark(&node.bundle)).map(|mark| format!("Path: {mark}")));
    if !node.head_of.is_empty() {
        lines.push(format!("Head of: {}", node.head_of.join(", ")));
    }
    lines.push(format!("Channels: {}", olm_cli_core::names::listed(&node.channels)));
    for (is_set, text) in [
        (node.deprecated, "Deprecated by the catalog"),
        (node.skipped, "Skipped by another entry"),
        (node.unreachable, "Unreachable: no upgrade leads to it"),
    ] {
        lines.extend(is_set.then(|| text.to_owned()));
    }
    lines.extend(node.refused.as_ref().map(|property| format!("Refused for property {property}")));
    lines.extend(node.next.as_ref().map(|next| format!("Next upgrade: {next}")));
    lines.extend(edges(
        "Follows",
        graph.edges.iter().filter(|edge| edge.to == node.bundle).map(|edge| (&edge.from, edge)),
    ));
    lines.extend(edges(
        "Leads to",
        graph.edges.iter().filter(|edge| edge.from == node.bundle).map(|edge| (&edge.to, edge)),
    ));
    if !node.follows_absent.is_empty() {
        lines.push(format!("Also follows, not in this catalog: {}", named(&node.follows_absent)));
    }
    lines.iter().map(|line| cut(&printable(line))).collect::<Vec<_>>().join("\n")
}

/// One line for each rule, such as `Follows by replaces: a.v1`.
fn edges<'a>(verb: &str, edges: impl Iterator<Item = (&'a String, &'a Edge)>) -> Vec<String> {
    let mut by_rule: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (other, edge) in edges {
        for by in &edge.by {
            let names = by_rule.entry(by.rule).or_default();
            if names.last() != Some(&other.as_str()) {
                names.push(other);
            }
        }
    }
    by_rule.iter().map(|(rule, names)| format!("{verb} by {rule}: {}", named(names))).collect()
}

/// The first names, and the number of all.
fn named<S: std::borrow::Borrow<str>>(names: &[S]) -> String {
    let first = names.iter().take(NAMED).map(|name| name.borrow()).collect::<Vec<_>>().join(", ");
    if names.len() > NAMED { format!("{first}, … ({})", counted(names.len(), "bundle")) } else { first }
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(LINE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
