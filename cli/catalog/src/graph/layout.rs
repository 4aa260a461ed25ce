//! Positions for the drawing of an upgrade graph (docs/design/cli.md#drawings-of-upgrade-graphs).
//!
//! Versions have an order, which fixes the layers of the graph: one row for each bundle, the highest version on top.
//! Only columns remain to be chosen. A chain of `replaces` is a lane. The edges of `skips` and `skipRange`, of which
//! there are up to n², are bundled into rails that show exactly the same edges.

use std::collections::{BTreeMap, BTreeSet};

/// Field of a channel entry that makes an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    Replaces,
    Skips,
    SkipRange,
}

/// Edge between two rows. The top row is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Link {
    pub(super) rule: Rule,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Positions of all parts.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Layout {
    /// Lane of the bundle in each row. Lane 0 is next to the names.
    pub(super) nodes: Vec<usize>,
    pub(super) wires: Vec<Wire>,
    pub(super) lanes: usize,
    pub(super) rails: Vec<Rail>,
    /// Columns of rails.
    pub(super) columns: usize,
}

/// Edge of `replaces`, drawn on a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wire {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) lane: usize,
}

/// Bundled edges of one rule: each source leads to every target above it, or to the only target below it. Some of these
/// upgrades may come from another rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rail {
    pub(super) rule: Rule,
    /// Rows, topmost first.
    pub(super) sources: Vec<usize>,
    /// Rows, topmost first.
    pub(super) targets: Vec<usize>,
    /// Column 0 is next to the lanes.
    pub(super) column: usize,
}

/// Rows that a lane or column holds, both included.
type Span = (usize, usize);

/// Computes the positions of `rows` bundles.
pub(super) fn layout(rows: usize, links: &[Link]) -> Layout {
    let replaces: BTreeSet<(usize, usize)> =
        links.iter().filter(|link| link.rule == Rule::Replaces).map(|link| (link.from, link.to)).collect();
    let mut layout = Layout::default();
    Lanes::new(rows, &replaces).place(&replaces, &mut layout);
    layout.rails = rails(links);
    let spans: Vec<Span> = layout.rails.iter().map(Rail::span).collect();
    let (columns, count) = pack(&spans);
    for (rail, column) in layout.rails.iter_mut().zip(columns) {
        rail.column = column;
    }
    layout.columns = count;
    layout
}

/// Rows of each chain of `replaces`, and of each edge between chains that needs a lane of its own.
struct Lanes {
    spans: Vec<Span>,
    /// Span of the chain of each row.
    chains: Vec<usize>,
}

impl Lanes {
    /// A chain continues with the nearest successor, if its nearest predecessor is the bundle itself.
    fn new(rows: usize, replaces: &BTreeSet<(usize, usize)>) -> Self {
        let upward = || replaces.iter().filter(|(from, to)| to < from);
        let mut successors: BTreeMap<usize, usize> = BTreeMap::new();
        let mut predecessors: BTreeMap<usize, usize> = BTreeMap::new();
        for &(from, to) in upward() {
            let successor = successors.entry(from).or_insert(to);
            *successor = to.max(*successor);
            let predecessor = predecessors.entry(to).or_insert(from);
            *predecessor = from.min(*predecessor);
        }
        let mut lanes = Self { spans: Vec::new(), chains: vec![0; rows] };
        for row in (0..rows).rev() {
            let previous = predecessors.get(&row).filter(|from| successors.get(from) == Some(&row));
            let chain = previous.map_or(lanes.spans.len(), |from| lanes.chains[*from]);
            match lanes.spans.get_mut(chain) {
                Some(span) => span.0 = row,
                None => lanes.spans.push((row, row)),
            }
            lanes.chains[row] = chain;
        }
        lanes
    }

    fn place(mut self, replaces: &BTreeSet<(usize, usize)>, layout: &mut Layout) {
        let chains = self.spans.clone();
        let mut wires = Vec::new();
        for &(from, to) in replaces {
            // A line over another bundle of the chain would read as an edge to that bundle.
            let is_next = |chain| to < from && !self.chains[to + 1..from].contains(&chain);
            let span = match (self.chains[from], self.chains[to]) {
                (one, same) if one == same && is_next(one) => one,
                (_, upper) if to < from && chains[upper].1 == to => upper,
                (lower, _) if to < from && chains[lower].0 == from => lower,
                _ => {
                    self.spans.push((from.min(to), from.max(to)));
                    self.spans.len() - 1
                }
            };
            let (top, bottom) = self.spans[span];
            self.spans[span] = (top.min(to.min(from)), bottom.max(from.max(to)));
            wires.push((from, to, span));
        }
        let (lanes, count) = pack(&self.spans);
        layout.nodes = self.chains.iter().map(|chain| lanes[*chain]).collect();
        layout.wires = wires.iter().map(|&(from, to, span)| Wire { from, to, lane: lanes[span] }).collect();
        layout.lanes = count;
    }
}

/// Rails of `skips` and `skipRange`.
fn rails(links: &[Link]) -> Vec<Rail> {
    let all: BTreeSet<(usize, usize)> = links.iter().map(|link| (link.from, link.to)).collect();
    let mut sources: BTreeMap<(Rule, bool, usize), BTreeSet<usize>> = BTreeMap::new();
    for link in links.iter().filter(|link| link.rule != Rule::Replaces) {
        sources.entry((link.rule, link.from < link.to, link.to)).or_default().insert(link.from);
    }
    let mut rails: Vec<Rail> = Vec::new();
    // A rail of downgrades has one target, so that only rails from here on can be shared.
    let mut shared = 0;
    let mut kind = None;
    for ((rule, is_downgrade, target), sources) in sources {
        if kind.replace((rule, is_downgrade)) != Some((rule, is_downgrade)) {
            shared = rails.len();
        }
        // The keys are sorted, so that the targets come from top to bottom. Ranges often end below the replaced bundle.
        let fits = |rail: &&mut Rail| {
            let below = &rail.sources[rail.sources.partition_point(|source| *source <= target)..];
            let shared = below.iter().filter(|source| sources.contains(source)).count();
            !is_downgrade
                && shared == sources.len()
                && below.iter().all(|source| all.contains(&(*source, target)))
        };
        match rails[shared..].iter_mut().find(fits) {
            Some(rail) => rail.targets.push(target),
            None => {
                let sources = sources.into_iter().collect();
                rails.push(Rail { rule, sources, targets: vec![target], column: 0 });
            }
        }
    }
    rails
}

impl Rail {
    pub(super) fn span(&self) -> Span {
        let rows = || self.sources.iter().chain(&self.targets).copied();
        (rows().min().unwrap_or_default(), rows().max().unwrap_or_default())
    }
}

/// Assigns each span the first column that is free there, and returns the number of columns. In this order, from top to
/// bottom, it is the smallest possible number.
fn pack(spans: &[Span]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|index| spans[*index]);
    let mut columns = vec![0; spans.len()];
    let mut ends: Vec<usize> = Vec::new();
    for index in order {
        let (top, bottom) = spans[index];
        let free = ends.iter().position(|end| *end < top).unwrap_or(ends.len());
        match ends.get_mut(free) {
            Some(end) => *end = bottom,
            None => ends.push(bottom),
        }
        columns[index] = free;
    }
    (columns, ends.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(rule: Rule, edges: &[(usize, usize)]) -> Vec<Link> {
        edges.iter().map(|&(from, to)| Link { rule, from, to }).collect()
    }

    #[test]
    fn chains_after_each_other_share_a_lane() {
        let layout = layout(5, &links(Rule::Replaces, &[(1, 0), (4, 3), (3, 2)]));
        assert_eq!((layout.nodes, layout.lanes), (vec![0; 5], 1));
    }

    #[test]
    fn interleaved_chains_have_lanes_of_their_own() {
        let layout = layout(4, &links(Rule::Replaces, &[(2, 0), (3, 1)]));
        assert_eq!((layout.nodes, layout.lanes), (vec![0, 1, 0, 1], 2));
        let lanes: Vec<_> = layout.wires.iter().map(|wire| (wire.from, wire.to, wire.lane)).collect();
        assert_eq!(lanes, [(2, 0, 0), (3, 1, 1)]);
    }

    #[test]
    fn branch_and_merge_use_the_lane_of_the_chain_that_begins_or_ends() {
        // 3 leads to 2 and 0, and both 1 and 2 to 0.
        let layout = layout(4, &links(Rule::Replaces, &[(3, 2), (3, 0), (2, 0), (1, 0)]));
        assert_eq!(layout.nodes, [0, 0, 1, 1]);
        let lane =
            |from, to| layout.wires.iter().find(|wire| (wire.from, wire.to) == (from, to)).unwrap().lane;
        assert_eq!((lane(1, 0), lane(3, 2), lane(2, 0)), (0, 1, 1));
        assert!(lane(3, 0) > 1, "an edge between inner bundles needs a lane");
    }

    #[test]
    fn edge_over_a_bundle_of_its_chain_has_a_lane_of_its_own() {
        let layout = layout(3, &links(Rule::Replaces, &[(2, 1), (1, 0), (2, 0)]));
        let lane =
            |from, to| layout.wires.iter().find(|wire| (wire.from, wire.to) == (from, to)).unwrap().lane;
        assert_eq!(layout.nodes, [lane(1, 0); 3]);
        assert_ne!(lane(2, 0), lane(2, 1));
    }

    #[test]
    fn graph_replaces_edge_never_crosses_another_bundle() {
        let mut state = 5_usize;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let rows = 3 + random(7);
            let edge = |_| (random(rows), random(rows));
            let edges: Vec<_> = (0..9).map(edge).filter(|(from, to)| from != to).collect();
            let layout = layout(rows, &links(Rule::Replaces, &edges));
            for wire in &layout.wires {
                let between = wire.from.min(wire.to) + 1..wire.from.max(wire.to);
                assert!(!layout.nodes[between].contains(&wire.lane), "{wire:?} {edges:?}");
            }
        }
    }

    #[test]
    fn skip_range_over_all_lower_versions_is_drawn_as_one_rail() {
        let edges: Vec<_> = (0..150).flat_map(|to| (to + 1..150).map(move |from| (from, to))).collect();
        let layout = layout(150, &links(Rule::SkipRange, &edges));
        assert_eq!((layout.rails.len(), layout.columns), (1, 1));
        assert_eq!((layout.rails[0].targets.len(), layout.rails[0].sources.len()), (149, 149));
    }

    // What the reader sees must be the edges, neither more nor fewer.
    #[test]
    fn rails_show_exactly_the_allowed_upgrades() {
        let mut state = 7_usize;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let rows = 2 + random(7);
            let rule = |number| if number == 0 { Rule::Skips } else { Rule::SkipRange };
            let edge = |_| Link { rule: rule(random(2)), from: random(rows), to: random(rows) };
            let links: BTreeSet<Link> = (0..20).map(edge).filter(|link| link.from != link.to).collect();
            let layout = layout(rows, &links.iter().copied().collect::<Vec<_>>());
            let mut shown = BTreeSet::new();
            for rail in &layout.rails {
                let is_downgrade = rail.sources[0] < rail.targets[0];
                let pairs =
                    rail.sources.iter().flat_map(|&from| rail.targets.iter().map(move |&to| (from, to)));
                let pairs = pairs.filter(|(from, to)| from != to && (from < to) == is_downgrade);
                shown.extend(pairs.map(|(from, to)| Link { rule: rail.rule, from, to }));
            }
            assert!(shown.is_superset(&links));
            let pairs = |links: &BTreeSet<Link>| -> BTreeSet<_> {
                links.iter().map(|link| (link.from, link.to)).collect()
            };
            assert_eq!(pairs(&shown), pairs(&links));
            for (index, rail) in layout.rails.iter().enumerate() {
                let overlaps = |other: &&Rail| {
                    let (a, b) = (rail.span(), other.span());
                    rail.column == other.column && a.0 <= b.1 && b.0 <= a.1
                };
                assert_eq!(layout.rails[index + 1..].iter().find(overlaps), None);
            }
        }
    }
}
