//! Part of a channel with a valid upgrade graph.

use std::collections::{BTreeMap, BTreeSet};

use olm_version::Version;

use crate::model::{ChannelEntry, heads};
use crate::validate::graph;

/// Entries of a channel, by name.
type Entries<'a> = BTreeMap<&'a str, &'a ChannelEntry>;
type Names<'a> = BTreeSet<&'a str>;

/// Entries to keep: the chosen ones and those that connect them, or only their head. Entries that connect by `skips`
/// are kept only where the graph is not valid without them, since they are often faulty versions.
///
/// # Errors
/// The graph of these entries would not be valid.
pub(super) fn rest<'a>(
    entries: &'a [ChannelEntry],
    chosen: &Names<'a>,
    versions: &BTreeMap<&str, Version>,
    heads_only: bool,
) -> Result<Names<'a>, String> {
    let all: Entries<'a> = entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
    if chosen.is_empty() || (chosen.len() == all.len() && !heads_only) {
        return Ok(chosen.clone());
    }
    if heads_only {
        let newest = heads_among(&all, chosen).into_iter().max_by_key(|name| versions.get(name));
        return newest
            .map(|head| Names::from([head]))
            .ok_or_else(|| "no channel head found in graph".to_owned());
    }
    let mut first = None;
    for with_skips in [false, true] {
        let kept: Names<'a> = chosen | &between(&all, chosen, with_skips);
        let edges = kept.iter().filter_map(|name| Some((*name, *all.get(name)?))).collect();
        match graph::problem(&edges) {
            None => return Ok(kept),
            Some(problem) => first = first.or(Some((problem, kept))),
        }
    }
    let (problem, kept) = first.unwrap_or_default();
    Err(match connection(&all, &kept, versions) {
        Some(name) => format!("{problem}; select {name}, too, which follows all of them, or only heads"),
        None => format!("{problem}; select other versions, or only heads"),
    })
}

/// Entries that an entry replaces, and with `skips` those that it skips.
fn followed(entry: &ChannelEntry, with_skips: bool) -> impl Iterator<Item = &str> {
    let skips = entry.skips.iter().filter(move |_| with_skips);
    [&entry.replaces].into_iter().chain(skips).map(String::as_str)
}

/// Heads among the entries `names`.
fn heads_among<'a>(all: &Entries<'a>, names: &Names<'a>) -> Vec<&'a str> {
    heads(names.iter().filter_map(|name| all.get(name).copied()))
}

/// Entries below a chosen one that are above another.
fn between<'a>(all: &Entries<'a>, chosen: &Names<'a>, with_skips: bool) -> Names<'a> {
    let below = reached(all, chosen.iter().copied(), with_skips);
    let mut above = chosen.clone();
    loop {
        let leads = |entry: &&&'a ChannelEntry| followed(entry, with_skips).any(|name| above.contains(name));
        let more: Names<'a> = all.values().filter(leads).map(|entry| entry.name.as_str()).collect();
        let before = above.len();
        above.extend(more);
        if above.len() == before {
            break;
        }
    }
    below.intersection(&above).copied().collect()
}

/// Entries that edges lead to, including the first ones.
fn reached<'a>(all: &Entries<'a>, from: impl Iterator<Item = &'a str>, with_skips: bool) -> Names<'a> {
    let mut pending: Vec<&str> = from.collect();
    let mut found = Names::new();
    while let Some(name) = pending.pop() {
        if let Some(entry) = all.get(name).filter(|_| !found.contains(name)) {
            found.insert(&entry.name);
            pending.extend(followed(entry, with_skips));
        }
    }
    found
}

/// Lowest dropped entry that follows all heads of `kept`.
fn connection<'a>(
    all: &Entries<'a>,
    kept: &Names<'a>,
    versions: &BTreeMap<&str, Version>,
) -> Option<&'a str> {
    let heads = heads_among(all, kept);
    let follows = |name: &&&str| {
        let reached = reached(all, [**name].into_iter(), true);
        !kept.contains(**name) && heads.iter().all(|head| reached.contains(head))
    };
    all.keys().filter(follows).min_by_key(|name| versions.get(*name)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Channel with entries `version<replaced!skipped!skipped`.
    fn channel(text: &str) -> Vec<ChannelEntry> {
        let entry = |text: &str| {
            let mut parts = text.split('!').map(str::to_owned);
            let edge = parts.next().unwrap_or_default();
            let (name, replaces) = edge.split_once('<').unwrap_or((&edge, ""));
            let (name, replaces) = (name.to_owned(), replaces.to_owned());
            ChannelEntry { name, replaces, skips: parts.collect(), ..ChannelEntry::default() }
        };
        text.split(' ').map(entry).collect()
    }

    fn kept(entries: &str, chosen: &str, heads: bool) -> Result<String, String> {
        let entries = channel(entries);
        let version = |name: &'static str| (name, Version::parse(&format!("{name}.0.0")).unwrap());
        let versions = ["1", "2", "3", "4", "5"].map(version).into();
        let rest = rest(&entries, &chosen.split_whitespace().collect(), &versions, heads)?;
        Ok(rest.into_iter().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn chosen_entries_are_kept_with_those_that_connect_them() {
        let chain = "1 2<1 3<2 4<3";
        for (entries, chosen, heads, expected) in [
            (chain, "", false, ""),
            (chain, "1 2 3 4", false, "1 2 3 4"),
            // The tail refers to a dropped entry.
            (chain, "3 4", false, "3 4"),
            (chain, "1 2", false, "1 2"),
            (chain, "1 4", false, "1 2 3 4"),
            (chain, "2 3", true, "3"),
            (chain, "1 2 3 4", true, "4"),
            // A skipped entry between others is not needed.
            ("1 2<1 3<1!2", "1 3", false, "1 3"),
            ("1 2<1 3<1!2", "2 3", false, "2 3"),
            // Only 2 leads to 1.
            ("1 2!1 3<2", "1 3", false, "1 2 3"),
            ("1 2 3!1!2", "1 2", true, "2"),
        ] {
            assert_eq!(kept(entries, chosen, heads).as_deref(), Ok(expected), "{entries}: {chosen} {heads}");
        }
    }

    #[test]
    fn entries_without_single_head_are_refused_with_the_entry_that_follows_them() {
        let error = "multiple channel heads found in graph: 1, 2; select 3, too, which follows all of them, or only heads";
        assert_eq!(kept("1 2 3!1!2 4<3", "1 2", false).unwrap_err(), error);
        let error = "multiple channel heads found in graph: 1, 2; select other versions, or only heads";
        assert_eq!(kept("1 2 3", "1 2", false).unwrap_err(), error);
    }
}
