//! Upgrade edges of a channel from the versions of its bundles, as `opm index add --mode` makes them
//! (docs/design/cli.md#edges-by-version).

use olm_version::VersionRelease;

/// Rule for the edges of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionEdges {
    /// Each bundle replaces the one of the next lower version.
    Chain,
    /// Each bundle replaces the highest patch of the next lower minor version, and skips the lower patches of its own.
    SkipPatches,
}

/// Bundle with its predecessors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionedEntry<'a> {
    /// Name of the bundle.
    pub name: &'a str,
    /// Name of the replaced bundle. Empty for none.
    pub replaces: &'a str,
    /// Names of skipped bundles, lowest version first.
    pub skips: Vec<&'a str>,
}

impl VersionEdges {
    /// Entries of a channel with these bundles, lowest version first. Versions are distinct.
    pub fn entries<'a>(self, mut bundles: Vec<(VersionRelease, &'a str)>) -> Vec<VersionedEntry<'a>> {
        bundles.sort();
        let minor = |version: &VersionRelease| (version.version().major(), version.version().minor());
        let mut entries: Vec<VersionedEntry<'a>> = Vec::new();
        // Bundle that the current minor version replaces, and the start of that minor version.
        let (mut base, mut start) = ("", 0);
        for (index, (version, name)) in bundles.iter().enumerate() {
            let previous = index.checked_sub(1).map(|index| &bundles[index]);
            let is_next = self == Self::Chain
                || previous.is_some_and(|(previous, _)| minor(previous) != minor(version));
            if is_next {
                (base, start) = (previous.map_or("", |(_, name)| name), index);
            }
            let skips = bundles[start..index].iter().map(|(_, name)| *name).collect();
            entries.push(VersionedEntry { name, replaces: base, skips });
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::ChannelEntry;
    use crate::validate::graph;

    fn entries(mode: VersionEdges, versions: &[&str]) -> Vec<String> {
        let bundles =
            versions.iter().map(|text| (VersionRelease::parse(text, None).unwrap(), *text)).collect();
        let entries = mode.entries(bundles);
        let edges: Vec<ChannelEntry> = entries
            .iter()
            .map(|entry| ChannelEntry {
                name: entry.name.to_owned(),
                replaces: entry.replaces.to_owned(),
                skips: entry.skips.iter().map(ToString::to_string).collect(),
                skip_range: String::new(),
            })
            .collect();
        let by_name: BTreeMap<&str, &ChannelEntry> =
            edges.iter().map(|entry| (entry.name.as_str(), entry)).collect();
        assert_eq!(graph::problem(&by_name), None, "{versions:?}");
        entries
            .iter()
            .map(|entry| format!("{}<{}!{}", entry.name, entry.replaces, entry.skips.join("!")))
            .collect()
    }

    #[test]
    fn chain_replaces_the_next_lower_version() {
        assert_eq!(
            entries(VersionEdges::Chain, &["1.10.0", "1.2.0", "2.0.0-rc.1", "1.2.1"]),
            ["1.2.0<!", "1.2.1<1.2.0!", "1.10.0<1.2.1!", "2.0.0-rc.1<1.10.0!"]
        );
        assert_eq!(entries(VersionEdges::Chain, &["1.0.0"]), ["1.0.0<!"]);
    }

    #[test]
    fn patches_of_one_minor_version_are_skipped() {
        assert_eq!(
            entries(VersionEdges::SkipPatches, &["1.0.0", "1.0.1", "1.0.2", "1.1.0", "1.1.1", "2.0.0"]),
            [
                "1.0.0<!",
                "1.0.1<!1.0.0",
                "1.0.2<!1.0.0!1.0.1",
                "1.1.0<1.0.2!",
                "1.1.1<1.0.2!1.1.0",
                "2.0.0<1.1.1!"
            ]
        );
    }
}
