//! Upgrade edges of a channel: one head, no cycle, no stranded bundle (docs/design/catalogd.md#validation, "Graph
//! algorithms").

use std::collections::{BTreeMap, BTreeSet};

/// Edges of an entry that this check uses. `skipRange` is not one of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edges<'a> {
    /// Empty for none.
    pub(super) replaces: &'a str,
    pub(super) skips: &'a [String],
}

/// Fault in the edges of a non-empty channel, if any.
pub(super) fn problem(entries: &BTreeMap<&str, Edges<'_>>) -> Option<String> {
    let skipped: BTreeSet<&str> = entries.values().flat_map(|e| e.skips).map(String::as_str).collect();
    let replaced = || entries.values().map(|edges| edges.replaces).filter(|name| !name.is_empty());
    let followed: BTreeSet<&str> = replaced().chain(skipped.iter().copied()).collect();
    let heads: Vec<&str> = entries.keys().copied().filter(|name| !followed.contains(name)).collect();
    let head = match heads.as_slice() {
        [] => return Some("no channel head found in graph".to_owned()),
        [head] => *head,
        many => return Some(format!("multiple channel heads found in graph: {}", many.join(", "))),
    };
    let mut chain = vec![head];
    let mut reached = BTreeSet::from([head]);
    // An entry that replaces nothing leads to an entry with an empty name: the empty name is a name here.
    while let Some(edges) = chain.last().and_then(|name| entries.get(name)) {
        if skipped.contains(edges.replaces) {
            break;
        }
        if !reached.insert(edges.replaces) {
            let from = chain.iter().position(|name| *name == edges.replaces).unwrap_or_default();
            let cycle = [&chain[from..], &[edges.replaces]].concat().join(" -> ");
            return Some(format!("detected cycle in replaces chain of upgrade graph: {cycle}"));
        }
        chain.push(edges.replaces);
    }
    let stranded = entries.keys().copied().filter(|name| !reached.contains(name) && !skipped.contains(name));
    let stranded: Vec<&str> = stranded.collect();
    (!stranded.is_empty())
        .then(|| format!("channel contains one or more stranded bundles: {}", stranded.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Cases catalogd-14, catalogd-15, catalogd-16
    #[test]
    fn channel_graph_faults_are_reported() {
        type Entry = (&'static str, &'static str, &'static [&'static str]);
        let cases: &[(&[Entry], Option<&str>)] = &[
            (&[("a", "", &[])], None),
            (&[("b1", "", &[]), ("b2", "", &[])], Some("multiple channel heads found in graph: b1, b2")),
            (&[("b1", "b2", &[]), ("b2", "b1", &[])], Some("no channel head found in graph")),
            (&[("a", "a", &[])], Some("no channel head found in graph")),
            (
                &[("h", "m", &[]), ("m", "t", &[]), ("t", "m", &[])],
                Some("detected cycle in replaces chain of upgrade graph: m -> t -> m"),
            ),
            (
                &[("x", "y", &["y"]), ("y", "z", &[]), ("z", "", &[])],
                Some("channel contains one or more stranded bundles: z"),
            ),
            (&[("b", "a", &[]), ("a", "gone", &[])], None),
            (&[("c", "a", &["b"]), ("b", "a", &[]), ("a", "", &[])], None),
            (&[("", "", &[])], Some("detected cycle in replaces chain of upgrade graph:  -> ")),
            (&[("a", "", &[""])], None),
        ];
        for (entries, expected) in cases {
            let skips: Vec<Vec<String>> =
                entries.iter().map(|e| e.2.iter().map(|s| (*s).to_owned()).collect()).collect();
            let edges =
                entries.iter().zip(&skips).map(|(e, skips)| (e.0, Edges { replaces: e.1, skips })).collect();
            assert_eq!(problem(&edges).as_deref(), *expected, "{entries:?}");
        }
    }
}
