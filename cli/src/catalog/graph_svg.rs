//! Drawing of an upgrade graph as SVG: bundles in one column, the highest version on top, and edges as arcs beside it.
//!
//! Versions have an order, so that an arc diagram shows each edge without a search for positions: its height is the
//! number of versions that it passes.

use std::collections::BTreeMap;

use super::graph::{Edge, Graph, Node};
use super::graph_text::{reasons, title};
use crate::output::{printable, xml};

/// Height of a row in pixels, like all lengths here.
const ROW: usize = 30;
/// Distance of the first row from the upper border.
const TOP: usize = 30;
/// Width of an arc for each row that it spans, and the largest width.
const ARC: (usize, usize) = (14, 220);
/// Radius of a bundle's dot.
const DOT: usize = 6;
/// Estimated width of a character.
const CHARACTER: usize = 8;

/// Colors and lines. The colors follow the theme of the page or viewer.
const STYLE: &str = "\
svg { background: #fff; color: #1f2328; font: 14px sans-serif }
text { fill: currentColor }
.version { font-weight: bold }
.note { fill: #656d76 }
.dot { fill: #0969da; stroke: none }
.head { stroke: currentColor; stroke-width: 3 }
.deprecated { fill: #bf8700 }
.unreachable { fill: #fff; stroke: #656d76; stroke-width: 2; stroke-dasharray: 2 2 }
.edge { fill: none; stroke: #8c959f; stroke-width: 1 }
.skips { stroke-dasharray: 6 3 }
.skipRange { stroke-dasharray: 1 3 }
.chosen { stroke: #0969da; stroke-width: 2.5 }
.path { stroke: #1a7f37; stroke-width: 4 }
.arrow { fill: #8c959f; fill: context-stroke }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; color: #e6edf3 }
  .note { fill: #8d96a0 }
  .unreachable { fill: #0d1117 }
  .chosen { stroke: #4493f8 }
  .dot { fill: #4493f8 }
  .deprecated { fill: #d29922 }
  .path { stroke: #3fb950 }
}
";

/// Draws the graph.
pub(super) fn svg(graph: &Graph) -> String {
    let rows: BTreeMap<&str, usize> =
        graph.nodes.iter().rev().enumerate().map(|(row, node)| (node.bundle.as_str(), row)).collect();
    let mut edges: Vec<DrawnEdge> =
        graph.edges.iter().filter_map(|edge| DrawnEdge::new(graph, edge, &rows)).collect();
    // The chosen upgrades are drawn last, on top of the others.
    edges.sort_by_key(|edge| (edge.is_path, edge.is_chosen));
    let x = edges.iter().map(DrawnEdge::bulge).max().unwrap_or_default() + 20;
    let words: Vec<(&Node, String)> = graph.nodes.iter().rev().map(|node| (node, notes(node))).collect();
    let longest =
        words.iter().map(|(node, notes)| title(node).chars().count() + notes.chars().count() + 2).max();
    let width = (x + 30 + longest.unwrap_or_default() * CHARACTER).max(LEGEND_WIDTH);
    let height = TOP + (graph.nodes.len() + 1) * ROW;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n\
         <marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"12\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path class=\"arrow\" d=\"M0 0L8 4L0 8z\"/></marker>\n",
        xml(&printable(&format!("Upgrade graph of {}", graph.package)))
    );
    for edge in &edges {
        text += &edge.svg(x);
    }
    for (row, (node, notes)) in words.iter().enumerate() {
        text += &row_svg(graph, node, notes, x, y(row));
    }
    text += &legend(height - 12);
    text + "</svg>\n"
}

/// Vertical center of a row.
fn y(row: usize) -> usize {
    TOP + row * ROW
}

/// Edge between two rows.
struct DrawnEdge<'a> {
    edge: &'a Edge,
    from: usize,
    to: usize,
    is_chosen: bool,
    is_path: bool,
}

impl<'a> DrawnEdge<'a> {
    fn new(graph: &Graph, edge: &'a Edge, rows: &BTreeMap<&str, usize>) -> Option<Self> {
        let (from, to) = (*rows.get(edge.from.as_str())?, *rows.get(edge.to.as_str())?);
        let node = graph.nodes.iter().rev().nth(from)?;
        let is_path = graph.path.as_ref().is_some_and(|path| path.has(&edge.from, &edge.to));
        Some(Self { edge, from, to, is_chosen: node.next.as_ref() == Some(&edge.to), is_path })
    }

    /// Distance of the arc from the column. Neighbors are joined by a straight line.
    fn bulge(&self) -> usize {
        match self.from.abs_diff(self.to) {
            1 => 0,
            span => (span * ARC.0).min(ARC.1),
        }
    }

    fn svg(&self, x: usize) -> String {
        let (from, to) = (y(self.from), y(self.to));
        // A Bézier curve reaches three quarters of the distance of its control points.
        let control = x - (self.bulge() * 4 / 3).min(x);
        let mut class = format!("edge {}", rule(self.edge));
        for (is_set, name) in [(self.is_chosen, " chosen"), (self.is_path, " path")] {
            class += if is_set { name } else { "" };
        }
        let hint = format!("{} to {}: {}", self.edge.from, self.edge.to, reasons(self.edge));
        format!(
            "<path class=\"{class}\" marker-end=\"url(#arrow)\" d=\"M{x} {from}C{control} {from} {control} {to} {x} {to}\">\
             <title>{}</title></path>\n",
            xml(&printable(&hint))
        )
    }
}

/// Strongest rule of an edge.
fn rule(edge: &Edge) -> &'static str {
    let rules = ["replaces", "skips", "skipRange"];
    let found = rules.into_iter().find(|rule| edge.by.iter().any(|by| by.rule == *rule));
    found.unwrap_or_default()
}

/// Channels and properties of a bundle.
fn notes(node: &Node) -> String {
    let mut notes =
        vec![if node.channels.is_empty() { "no channel".to_owned() } else { node.channels.join(", ") }];
    if !node.head_of.is_empty() {
        notes.push(format!("head of {}", node.head_of.join(", ")));
    }
    let properties =
        [(node.deprecated, "deprecated"), (node.skipped, "skipped"), (node.unreachable, "unreachable")];
    notes.extend(properties.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| (*name).to_owned()));
    notes.extend(node.refused.as_ref().map(|property| format!("refused for {property}")));
    notes.join(" · ")
}

/// Dot and text of a bundle.
fn row_svg(graph: &Graph, node: &Node, notes: &str, x: usize, y: usize) -> String {
    let mut class = "dot".to_owned();
    for (is_set, name) in [
        (!node.head_of.is_empty(), " head"),
        (node.deprecated, " deprecated"),
        (node.unreachable, " unreachable"),
    ] {
        class += if is_set { name } else { "" };
    }
    let mark = graph.path.as_ref().and_then(|path| path.mark(&node.bundle));
    let mark = mark.map(|mark| format!("{mark} · ")).unwrap_or_default();
    format!(
        "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{DOT}\"/>\n\
         <text x=\"{}\" y=\"{}\"><tspan class=\"version\">{}</tspan> {} <tspan class=\"note\">{}</tspan></text>\n",
        x + 16,
        y + 5,
        xml(&printable(node.version.as_deref().unwrap_or("?"))),
        xml(&printable(&node.bundle)),
        xml(&printable(&format!("{mark}{notes}"))),
    )
}

/// Width of the legend.
const LEGEND_WIDTH: usize = 500;

/// Meaning of the lines.
fn legend(y: usize) -> String {
    let entries = [
        ("replaces chosen", "chosen upgrade"),
        ("replaces", "replaces"),
        ("skips", "skips"),
        ("skipRange", "skipRange"),
    ];
    let mut text = String::new();
    let mut x = 10;
    for (class, name) in entries {
        text += &format!(
            "<path class=\"edge {class}\" d=\"M{x} {}h24\"/><text class=\"note\" x=\"{}\" y=\"{y}\">{name}</text>\n",
            y - 4,
            x + 30
        );
        x += 50 + name.len() * CHARACTER;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arc_width_grows_with_span_up_to_a_limit() {
        let edge = Edge { from: String::new(), to: String::new(), by: Vec::new(), downgrade: false };
        let bulge = |from, to| DrawnEdge { edge: &edge, from, to, is_chosen: false, is_path: false }.bulge();
        assert_eq!([bulge(1, 0), bulge(0, 1), bulge(2, 0), bulge(149, 0)], [0, 0, 2 * ARC.0, ARC.1]);
    }

    #[test]
    fn strongest_rule_decides_the_line() {
        let by = |rule| super::super::graph::EdgeRuleUse { channel: "stable".to_owned(), rule };
        let edge = |rules: &[&'static str]| Edge {
            from: String::new(),
            to: String::new(),
            by: rules.iter().copied().map(by).collect(),
            downgrade: false,
        };
        assert_eq!(rule(&edge(&["skipRange", "replaces"])), "replaces");
        assert_eq!(rule(&edge(&["skipRange", "skips"])), "skips");
    }
}
