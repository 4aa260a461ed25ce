//! Drawing of an upgrade graph as SVG (docs/design/cli.md#drawings-of-upgrade-graphs). [`super::layout`] has the
//! positions.

use std::collections::{BTreeMap, BTreeSet};

use olm_cli_core::output::{printable, xml};

use super::hint::hint;
use super::layout::{Layout, Link, Rail, Rule, Wire, layout};
use super::model::{Graph, Node, Path};

/// Height of a row in pixels, like all lengths here.
const ROW: usize = 26;
/// Distance of the columns of rails, and of lanes.
const RAIL: usize = 16;
const LANE: usize = 18;
/// Width of the column with the upgrade path.
const PATH: usize = 34;
const MARGIN: usize = 12;
/// Height of the legend.
const LEGEND: usize = 40;
/// Estimated width of a character.
const CHARACTER: usize = 8;
/// Longest shown label, in characters.
const LABEL: usize = 120;

/// Rules of the drawing. Each color is a custom property, which [`COLORS`] or the page of the console sets.
pub const RULES: &str = include_str!("graph.css");

/// Colors of a file that no page sets, by the theme of the viewer.
const COLORS: &str = "\
.upgrade-graph { background: var(--graph-back);
  --graph-back: #fff; --graph-text: #1f2328; --graph-muted: #656d76; --graph-line: #6e7781; --graph-node: #0969da;
  --graph-warn: #9a6700; --graph-path: #1a7f37 }
@media (prefers-color-scheme: dark) { .upgrade-graph {
  --graph-back: #0d1117; --graph-text: #e6edf3; --graph-muted: #8d96a0; --graph-line: #8b949e; --graph-node: #4493f8;
  --graph-warn: #d29922; --graph-path: #3fb950 } }
";

/// How the drawing is used.
#[derive(Default)]
pub struct View<'a> {
    /// Address for each bundle. Without it, the drawing is a file of its own, with its style.
    pub link: Option<&'a dyn Fn(&Node) -> String>,
    /// Name of the selected bundle.
    pub selected: Option<&'a str>,
    /// Size in percent, if it is not 100.
    pub zoom: Option<usize>,
}

/// Draws the graph.
pub fn svg(graph: &Graph, view: &View<'_>) -> String {
    Drawing::new(graph).svg(view)
}

struct Drawing<'a> {
    graph: &'a Graph,
    /// Nodes by row.
    rows: Vec<&'a Node>,
    numbers: BTreeMap<&'a str, usize>,
    layout: Layout,
    path: Option<&'a Path>,
    /// Left end of the lanes and of the names.
    lanes: usize,
    names: usize,
}

impl<'a> Drawing<'a> {
    fn new(graph: &'a Graph) -> Self {
        let rows: Vec<&Node> = graph.nodes.iter().rev().collect();
        let numbers: BTreeMap<&str, usize> =
            rows.iter().enumerate().map(|(row, node)| (node.bundle.as_str(), row)).collect();
        let mut links = BTreeSet::new();
        for edge in &graph.edges {
            let (Some(&from), Some(&to)) = (numbers.get(edge.from.as_str()), numbers.get(edge.to.as_str()))
            else {
                continue;
            };
            links.extend(edge.by.iter().map(|by| Link { rule: rule(by.rule), from, to }));
        }
        let layout = layout(rows.len(), &links.into_iter().collect::<Vec<_>>());
        let path = graph.path.as_ref().filter(|path| !path.steps.is_empty());
        let lanes = MARGIN + layout.columns * RAIL;
        let names = lanes + layout.lanes * LANE + if path.is_some() { PATH } else { 0 } + MARGIN;
        Self { graph, rows, numbers, layout, path, lanes, names }
    }

    fn svg(&self, view: &View<'_>) -> String {
        let labels: Vec<Label> = self.rows.iter().map(|node| Label::new(self.graph, node)).collect();
        let longest = labels.iter().map(Label::width).max().unwrap_or_default();
        let legend = self.legend();
        let width = (self.names + longest + MARGIN).max(legend.1);
        let height = LEGEND + self.rows.len() * ROW + MARGIN;
        let zoom = view.zoom.unwrap_or(100);
        let title = xml(&printable(&format!("Upgrade graph of {}", self.graph.package)));
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"upgrade-graph\" viewBox=\"0 0 {width} {height}\" \
             width=\"{}\" height=\"{}\" role=\"group\" aria-label=\"{title}\">\n",
            width * zoom / 100,
            height * zoom / 100,
        );
        if view.link.is_none() {
            text += &format!("<title>{title}</title>\n<style>\n{COLORS}{RULES}</style>\n");
        }
        text += &legend.0;
        self.layout.rails.iter().for_each(|rail| text += &self.rail(rail));
        self.layout.wires.iter().for_each(|wire| text += &self.wire(*wire));
        text += &self.path();
        for (row, label) in labels.iter().enumerate() {
            text += &self.row(row, label, width, view);
        }
        text + "</svg>\n"
    }

    /// Horizontal center of a lane.
    fn lane(&self, lane: usize) -> usize {
        self.lanes + (self.layout.lanes - lane) * LANE - LANE / 2
    }

    fn column(&self, column: usize) -> usize {
        MARGIN + (self.layout.columns - column) * RAIL - RAIL / 2
    }

    fn wire(&self, wire: Wire) -> String {
        let (from, to) = (y(wire.from), y(wire.to));
        let (x1, x, x2) = (
            self.lane(self.layout.nodes[wire.from]),
            self.lane(wire.lane),
            self.lane(self.layout.nodes[wire.to]),
        );
        // A curve of one row leads to another lane. Downgrades run downward.
        let turn = |y: usize, other: usize| if y < other { y + ROW / 2 } else { y.saturating_sub(ROW / 2) };
        let (leave, arrive) = (turn(from, to), turn(to, from));
        let mut d = format!("M{x1} {from}");
        if x1 != x {
            d += &format!("Q{x} {from} {x} {leave}");
        }
        if x2 == x {
            d += &format!("V{to}");
        } else {
            d += &format!("V{arrive}Q{x} {to} {x2} {to}");
        }
        format!(
            "<path class=\"wire\" d=\"{d}\"/>\n{}",
            if to > from { arrow_down(x2, to) } else { String::new() }
        )
    }

    fn rail(&self, rail: &Rail) -> String {
        let x = self.column(rail.column);
        let (top, bottom) = rail.span();
        let class = name(rail.rule);
        let mut text = format!("<path class=\"rail {class}\" d=\"M{x} {}V{}\"/>\n", y(top), y(bottom));
        for target in &rail.targets {
            let (end, y) = (self.lane(self.layout.nodes[*target]), y(*target));
            text += &format!(
                "<path class=\"rail {class}\" d=\"M{x} {y}H{end}\"/><path class=\"arrow\" d=\"M{} {}l7 4l-7 4z\"/>\n",
                end - 15,
                y - 4
            );
        }
        // A source that is also a target has both signs.
        for source in &rail.sources {
            text += &match rail.rule {
                Rule::SkipRange => {
                    format!("<circle class=\"tick\" cx=\"{x}\" cy=\"{}\" r=\"2.5\"/>\n", y(*source))
                }
                _ => format!("<path class=\"rail\" d=\"M{} {}h8\"/>\n", x - 4, y(*source)),
            };
        }
        text
    }

    /// Column of the upgrade path.
    fn path(&self) -> String {
        let Some(path) = self.path else { return String::new() };
        let x = self.names - MARGIN - PATH / 2;
        let mut text = String::new();
        let mut from = self.numbers.get(path.from.as_str());
        let at = |bundle: &str| self.numbers.get(bundle).map(|row| y(*row));
        for step in &path.steps {
            let to = self.numbers.get(step.bundle.as_str());
            if let (Some(from), Some(to)) = (from, to) {
                let rule = step.by.iter().map(|by| rule(by.rule)).min().map(name).unwrap_or_default();
                text += &format!("<path class=\"path {rule}\" d=\"M{x} {}V{}\"/>\n", y(*from), y(*to));
            }
            from = to;
        }
        if let Some(y) = at(&path.from) {
            text += &format!("<path class=\"step\" d=\"M{} {}h12v12h-12z\"/>\n", x - 6, y - 6);
        }
        for (number, step) in path.steps.iter().enumerate() {
            if let Some(y) = at(&step.bundle) {
                text += &format!(
                    "<circle class=\"step\" cx=\"{x}\" cy=\"{y}\" r=\"9\"/><text class=\"number\" x=\"{x}\" y=\"{}\">{}</text>\n",
                    y + 4,
                    number + 1
                );
            }
        }
        text
    }

    /// Bundle with its label. The whole row reacts to the pointer.
    fn row(&self, row: usize, label: &Label, width: usize, view: &View<'_>) -> String {
        let node = self.rows[row];
        let decided = self.graph.decision.as_ref().and_then(|decision| decision.reasons.get(&node.bundle));
        let mut class = "row".to_owned();
        for (is_set, name) in [
            (node.deprecated, " deprecated"),
            (decided.is_some_and(|reason| !reason.is_candidate()) && !label.is_on_path, " out"),
            (view.selected == Some(node.bundle.as_str()), " selected"),
        ] {
            class += if is_set { name } else { "" };
        }
        let (open, close) = match view.link {
            Some(link) => (format!("<a class=\"{class}\" href=\"{}\"", xml(&link(node))), "a"),
            None => (format!("<g class=\"{class}\""), "g"),
        };
        let current = if view.selected == Some(node.bundle.as_str()) { " aria-current=\"true\"" } else { "" };
        format!(
            "{open}{current}><title>{}</title><rect class=\"hit\" x=\"1\" y=\"{}\" width=\"{}\" height=\"{ROW}\"/>{}\
             <text x=\"{}\" y=\"{}\"><tspan class=\"version\">{}</tspan> <tspan class=\"note\">{}</tspan></text></{close}>\n",
            xml(&hint(self.graph, node)),
            y(row) - ROW / 2,
            width - 2,
            glyph(node, self.is_installed(node), self.lane(self.layout.nodes[row]), y(row)),
            self.names,
            y(row) + 5,
            xml(&label.version),
            xml(&label.notes),
        )
    }

    fn is_installed(&self, node: &Node) -> bool {
        self.graph.path.as_ref().is_some_and(|path| path.from == node.bundle)
    }

    /// Meaning of the lines and signs that the graph has, and its width.
    fn legend(&self) -> (String, usize) {
        let y = MARGIN + 8;
        let has_rail = |rule| self.layout.rails.iter().any(|rail| rail.rule == rule);
        let lines = [
            (!self.layout.wires.is_empty(), "wire", "replaces"),
            (has_rail(Rule::Skips), "rail skips", "skips"),
            (has_rail(Rule::SkipRange), "rail skipRange", "skipRange"),
            (self.path.is_some(), "path", "upgrade path"),
        ];
        let any = |is: &dyn Fn(&Node) -> bool| self.rows.iter().any(|node| is(node));
        let plain = Node::default();
        let signs = [
            (any(&|node| self.is_installed(node)), plain.clone(), true, "installed"),
            (
                any(&|node| !node.head_of.is_empty()),
                Node { head_of: vec![String::new()], ..plain.clone() },
                false,
                "head",
            ),
            (any(&|node| node.deprecated), Node { deprecated: true, ..plain.clone() }, false, "deprecated"),
            (any(&|node| node.skipped), Node { skipped: true, ..plain.clone() }, false, "skipped"),
            (
                any(&|node| node.unreachable),
                Node { unreachable: true, ..plain.clone() },
                false,
                "unreachable",
            ),
        ];
        let mut text = String::new();
        let mut x = MARGIN;
        let mut add = |sign: &dyn Fn(usize) -> String, width: usize, name: &str| {
            text += &format!(
                "{}<text class=\"note\" x=\"{}\" y=\"{}\">{name}</text>\n",
                sign(x),
                x + width + 6,
                y + 5
            );
            x += width + 20 + name.len() * CHARACTER;
        };
        for (_, class, name) in lines.iter().filter(|line| line.0) {
            add(&|x| format!("<path class=\"{class}\" d=\"M{x} {y}h26\"/>"), 26, name);
        }
        for (_, node, is_installed, name) in signs.iter().filter(|sign| sign.0) {
            add(&|x| glyph(node, *is_installed, x + 8, y), 16, name);
        }
        (text, x)
    }
}

/// Vertical center of a row.
fn y(row: usize) -> usize {
    LEGEND + row * ROW + ROW / 2
}

fn rule(name: &str) -> Rule {
    match name {
        "replaces" => Rule::Replaces,
        "skips" => Rule::Skips,
        _ => Rule::SkipRange,
    }
}

fn name(rule: Rule) -> &'static str {
    match rule {
        Rule::Replaces => "replaces",
        Rule::Skips => "skips",
        Rule::SkipRange => "skipRange",
    }
}

fn arrow_down(x: usize, y: usize) -> String {
    format!("<path class=\"arrow\" d=\"M{} {}l4 7l4 -7z\"/>\n", x - 4, y - 15)
}

/// Sign of a bundle. Each property changes the shape, so that no color is needed.
fn glyph(node: &Node, is_installed: bool, x: usize, y: usize) -> String {
    let (left, top) = (x - 5, y - 5);
    let hollow = node.skipped || node.unreachable || node.deprecated;
    let dashed = if node.unreachable { " dashed" } else { "" };
    let mut text = match (is_installed, hollow) {
        (true, _) => format!("<path class=\"dot\" d=\"M{left} {top}h10v10h-10z\"/>"),
        (false, true) => format!("<circle class=\"hollow{dashed}\" cx=\"{x}\" cy=\"{y}\" r=\"5\"/>"),
        (false, false) => format!("<circle class=\"dot\" cx=\"{x}\" cy=\"{y}\" r=\"5\"/>"),
    };
    if !node.head_of.is_empty() {
        text += &format!("<circle class=\"ring\" cx=\"{x}\" cy=\"{y}\" r=\"8\"/>");
    }
    if node.deprecated {
        text += &format!("<path class=\"cross\" d=\"M{left} {top}l10 10m0 -10l-10 10\"/>");
    }
    text
}

/// Text beside a bundle.
struct Label {
    version: String,
    notes: String,
    is_on_path: bool,
}

impl Label {
    fn new(graph: &Graph, node: &Node) -> Self {
        let version = node.version.as_deref().unwrap_or("?");
        let mark = graph.path.as_ref().and_then(|path| path.mark(&node.bundle));
        let is_on_path = mark.is_some();
        let mut notes: Vec<String> = mark.into_iter().collect();
        if !node.bundle.ends_with(version) {
            notes.push(node.bundle.clone());
        }
        notes.push(if node.channels.is_empty() { "no channel".to_owned() } else { node.channels.join(", ") });
        if !node.head_of.is_empty() {
            notes.push(format!("head of {}", node.head_of.join(", ")));
        }
        let properties =
            [(node.deprecated, "deprecated"), (node.skipped, "skipped"), (node.unreachable, "unreachable")];
        notes.extend(properties.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| (*name).to_owned()));
        notes.extend(node.refused.as_ref().map(|property| format!("refused for {property}")));
        Self { version: short(version), notes: short(&notes.join(" · ")), is_on_path }
    }

    fn width(&self) -> usize {
        (self.version.chars().count() + self.notes.chars().count() + 2) * CHARACTER
    }
}

/// Text of a limited length. The hint has all of it.
fn short(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(LABEL) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::model::{Edge, EdgeRuleUse, Semantics};

    const RULE_NAMES: [&str; 3] = ["replaces", "skips", "skipRange"];

    fn graph(rows: usize, edges: &BTreeSet<(usize, usize, usize)>) -> Graph {
        let name = |row: usize| format!("n{row}");
        let node = |row| Node { bundle: name(row), ..Node::default() };
        let edge = |&(from, to, rule): &(usize, usize, usize)| Edge {
            from: name(from),
            to: name(to),
            by: vec![EdgeRuleUse { channel: "c".to_owned(), rule: RULE_NAMES[rule] }],
            downgrade: from < to,
        };
        Graph {
            catalog: String::new(),
            package: "p".to_owned(),
            semantics: Semantics::V1,
            channel: None,
            nodes: (0..rows).rev().map(node).collect(),
            edges: edges.iter().map(edge).collect(),
            notes: Vec::new(),
            path: None,
            decision: None,
        }
    }

    fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
        let value = tag.split_once(&format!(" {name}=\"")).and_then(|(_, rest)| rest.split_once('"'));
        value.map_or("", |(value, _)| value)
    }

    fn numbers(text: &str) -> Vec<usize> {
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
    }

    /// Edges between rows that a reader of the drawing sees.
    fn drawn(svg: &str) -> BTreeSet<(usize, usize)> {
        let row = |y: usize| (y - LEGEND) / ROW;
        let mut edges = BTreeSet::new();
        let (mut rails, mut sources, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        for tag in svg.split('<').filter(|tag| !tag.contains("h26")) {
            let (class, path) = (attribute(tag, "class"), attribute(tag, "d"));
            match (class, numbers(path).as_slice()) {
                ("wire", [_, from, .., to]) => edges.extend([(row(*from), row(*to))]),
                ("tick", _) => {
                    sources.push((numbers(attribute(tag, "cx"))[0], row(numbers(attribute(tag, "cy"))[0])));
                }
                ("rail", [x, y, _]) => sources.push((x + 4, row(*y))),
                (_, [x, top, bottom]) if class.starts_with("rail ") && path.contains('V') => {
                    rails.push((*x, row(*top), row(*bottom)));
                }
                (_, [x, y, _]) if class.starts_with("rail ") => targets.push((*x, row(*y))),
                _ => {}
            }
        }
        for (x, top, bottom) in rails {
            let on_rail = |signs: &[(usize, usize)]| -> Vec<usize> {
                let rows = signs.iter().filter(|(column, row)| *column == x && (top..=bottom).contains(row));
                rows.map(|(_, row)| *row).collect()
            };
            let (sources, targets) = (on_rail(&sources), on_rail(&targets));
            // Upgrades end at the top, downgrades at the bottom.
            let is_upgrade = targets.contains(&top);
            let pairs = sources.iter().flat_map(|from| targets.iter().map(|to| (*from, *to)));
            edges.extend(pairs.filter(|(from, to)| from != to && (from > to) == is_upgrade));
        }
        edges
    }

    #[test]
    fn source_that_is_also_a_target_has_a_tick() {
        let edges = BTreeSet::from([(2, 1, 2), (2, 0, 2), (1, 0, 2)]);
        let svg = svg(&graph(3, &edges), &View::default());
        assert_eq!(svg.matches("class=\"tick\"").count(), 2, "{svg}");
        assert_eq!(drawn(&svg), BTreeSet::from([(2, 1), (2, 0), (1, 0)]), "{svg}");
    }

    #[test]
    fn drawing_shows_exactly_the_edges_of_the_graph() {
        let mut state = 11_usize;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let rows = 2 + random(7);
            let edge = |_| (random(rows), random(rows), random(3));
            let edges: BTreeSet<_> = (0..14).map(edge).filter(|(from, to, _)| from != to).collect();
            let svg = svg(&graph(rows, &edges), &View::default());
            let pairs: BTreeSet<_> = edges.iter().map(|&(from, to, _)| (from, to)).collect();
            assert_eq!(drawn(&svg), pairs, "{edges:?}\n{svg}");
        }
    }

    #[test]
    fn long_label_is_cut_at_a_character() {
        let text = "é".repeat(LABEL + 1);
        assert_eq!(short(&text), format!("{}…", "é".repeat(LABEL)));
        assert_eq!(short("1.0.0"), "1.0.0");
    }

    // Shapes tell the properties apart without color (docs/design/cli.md#drawings-of-upgrade-graphs).
    #[test]
    fn each_property_of_a_bundle_has_a_shape() {
        let plain = Node::default();
        let shapes = [
            glyph(&plain, false, 10, 10),
            glyph(&plain, true, 10, 10),
            glyph(&Node { head_of: vec!["stable".to_owned()], ..plain.clone() }, false, 10, 10),
            glyph(&Node { deprecated: true, ..plain.clone() }, false, 10, 10),
            glyph(&Node { skipped: true, ..plain.clone() }, false, 10, 10),
            glyph(&Node { unreachable: true, ..plain }, false, 10, 10),
        ];
        assert_eq!(BTreeSet::from(shapes).len(), 6);
    }
}
