//! Upgrade edges of a channel: one head, no cycle, no stranded bundle (docs/design/catalogd.md#validation, "Graph
//! algorithms").

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{ChannelEntry, heads};

/// Fault in the edges of a non-empty channel, if any. `skipRange` is not an edge here.
pub(crate) fn problem(entries: &BTreeMap<&str, &ChannelEntry>) -> Option<String> {
    let skipped: BTreeSet<&str> = entries.values().flat_map(|e| &e.skips).map(String::as_str).collect();
    let head = match heads(entries.values().copied()).as_slice() {
        [] => return Some("no channel head found in graph".to_owned()),
        [head] => *head,
        many => return Some(format!("multiple channel heads found in graph: {}", many.join(", "))),
    };
    let mut chain = vec![head];
    let mut reached = BTreeSet::from([head]);
    // An entry that replaces nothing leads to an entry with an empty name: the empty name is a name here.
    while let Some(entry) = chain.last().and_then(|name| entries.get(name)) {
        let replaces = entry.replaces.as_str();
        if skipped.contains(replaces) {
            break;
        }
        if !reached.insert(replaces) {
            let from = chain.iter().position(|name| *name == replaces).unwrap_or_default();
            let cycle = [&chain[from..], &[replaces]].concat().join(" -> ");
            return Some(format!("detected cycle in replaces chain of upgrade graph: {cycle}"));
        }
        chain.push(replaces);
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
            let entries = entries.iter().map(|(name, replaces, skips)| ChannelEntry {
                name: (*name).to_owned(),
                replaces: (*replaces).to_owned(),
                skips: skips.iter().map(|skip| (*skip).to_owned()).collect(),
                skip_range: String::new(),
            });
            let entries: Vec<_> = entries.collect();
            let edges = entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
            assert_eq!(problem(&edges).as_deref(), *expected, "{entries:?}");
        }
    }
}
