//! Channels without removed bundles (docs/design/cli.md#removal). Pure.

use std::collections::{BTreeMap, BTreeSet};

use olm_cli_core::error::CliError;
use olm_fbc::{ChannelEntry, PackageContent};
use olm_version::quote;

use crate::package::CatalogPackage;

/// What remains of a package.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Names of removed bundles.
    pub(super) bundles: BTreeSet<String>,
    /// Remaining entries of the channels that change. `None` for a removed channel.
    pub(super) channels: BTreeMap<String, Option<Vec<ChannelEntry>>>,
}

impl Plan {
    /// Plans the removal of bundles, by name or version, from `channel` or all channels. Without bundles, the channel is
    /// removed. Bundles that no channel lists any more are removed from the catalog.
    ///
    /// # Errors
    /// A bundle or the channel does not exist, or no channel would remain.
    pub(super) fn of(
        package: &CatalogPackage,
        requested: &[String],
        channel: Option<&str>,
    ) -> Result<Self, CliError> {
        let named = requested.iter().map(|one| package.bundle_named(one).map(str::to_owned));
        let named = named.collect::<Result<BTreeSet<String>, _>>()?;
        let only = channel.map(|name| package.channel(name)).transpose()?;
        let PackageContent { channels, bundles, .. } = &package.content;
        let mut plan = Self::default();
        for channel in channels.iter().filter(|one| only.is_none_or(|only| only.name == one.name)) {
            let listed: BTreeSet<&String> = channel.entries.iter().map(|entry| &entry.name).collect();
            if let (Some(_), Some(missing)) = (only, named.iter().find(|name| !listed.contains(name))) {
                let (channel, missing) = (quote(&channel.name), quote(missing));
                return Err(CliError::no_candidate(format!("channel {channel} has no bundle {missing}")));
            }
            if named.iter().any(|name| listed.contains(name)) || named.is_empty() {
                let left = if named.is_empty() { Vec::new() } else { without(&channel.entries, &named) };
                plan.channels.insert(channel.name.clone(), Some(left).filter(|left| !left.is_empty()));
            }
        }
        let left = channels.iter().filter_map(|channel| match plan.channels.get(&channel.name) {
            None => Some(&channel.entries),
            Some(left) => left.as_ref(),
        });
        let left: Vec<&Vec<ChannelEntry>> = left.collect();
        if left.is_empty() {
            return Err(CliError::usage(format!(
                "package {} would have no channel: remove the package, without BUNDLE and --channel",
                quote(&package.name)
            )));
        }
        let is_listed = |name: &String| left.iter().any(|left| left.iter().any(|entry| entry.name == *name));
        let before = |name: &String| plan.channels.keys().any(|key| lists(&package.content, key, name));
        let lost = |name: &&String| !is_listed(name) && (named.contains(*name) || before(name));
        plan.bundles = bundles.iter().map(|bundle| &bundle.name).filter(lost).cloned().collect();
        Ok(plan)
    }
}

fn lists(content: &PackageContent, channel: &str, bundle: &str) -> bool {
    let channels = content.channels.iter().filter(|one| one.name == channel);
    channels.flat_map(|channel| &channel.entries).any(|entry| entry.name == bundle)
}

/// Entries without the removed ones. An entry that replaced a removed one replaces and skips what leads on from there, so
/// that installations of the removed bundle and of its predecessors still have an upgrade.
fn without(entries: &[ChannelEntry], removed: &BTreeSet<String>) -> Vec<ChannelEntry> {
    let gone: BTreeMap<&str, &ChannelEntry> = entries
        .iter()
        .filter(|entry| removed.contains(&entry.name))
        .map(|entry| (entry.name.as_str(), entry))
        .collect();
    let kept = entries.iter().filter(|entry| !removed.contains(&entry.name));
    kept.map(|entry| mended(entry.clone(), &gone)).collect()
}

fn mended(mut entry: ChannelEntry, gone: &BTreeMap<&str, &ChannelEntry>) -> ChannelEntry {
    let mut inherited: Vec<&str> = Vec::new();
    let mut passed = BTreeSet::new();
    // The lowest removed entry is still named: its installations have an upgrade, too.
    while let Some(next) = gone.get(entry.replaces.as_str()).filter(|next| passed.insert(&next.name)) {
        inherited.extend(next.skips.iter().map(String::as_str));
        if entry.skip_range.is_empty() {
            entry.skip_range.clone_from(&next.skip_range);
        }
        if next.replaces.is_empty() {
            break;
        }
        inherited.push(&next.name);
        entry.replaces.clone_from(&next.replaces);
    }
    let own = entry.skips.iter().filter_map(|skip| gone.get(skip.as_str()));
    inherited.extend(own.flat_map(|skipped| &skipped.skips).map(String::as_str));
    let mut seen: BTreeSet<String> = entry.skips.iter().cloned().collect();
    while let Some(name) = inherited.pop() {
        if name != entry.name && seen.insert(name.to_owned()) {
            entry.skips.push(name.to_owned());
            inherited
                .extend(gone.get(name).into_iter().flat_map(|skipped| &skipped.skips).map(String::as_str));
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries `version<replaced!skipped!skipped`.
    fn channel(text: &str) -> Vec<ChannelEntry> {
        let entry = |text: &str| {
            let mut parts = text.split('!').map(str::to_owned);
            let edge = parts.next().unwrap_or_default();
            let (name, replaces) = edge.split_once('<').unwrap_or((&edge, ""));
            let (name, replaces) = (name.to_owned(), replaces.to_owned());
            ChannelEntry { name, replaces, skips: parts.collect(), ..ChannelEntry::default() }
        };
        text.split_whitespace().map(entry).collect()
    }

    fn left(entries: &str, removed: &str) -> String {
        let removed = removed.split_whitespace().map(str::to_owned).collect();
        let shown = |entry: &ChannelEntry| {
            let replaces = if entry.replaces.is_empty() { "" } else { "<" };
            let skips: String = entry.skips.iter().map(|skip| format!("!{skip}")).collect();
            format!("{}{replaces}{}{skips}", entry.name, entry.replaces)
        };
        without(&channel(entries), &removed).iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn range_of_a_removed_entry_is_inherited() {
        let mut entries = channel("1 2<1 3<2");
        entries[1].skip_range = "<2.0.0".to_owned();
        let removed = ["2".to_owned()].into();
        assert_eq!(without(&entries, &removed)[1].skip_range, "<2.0.0");
        entries[2].skip_range = "<3.0.0".to_owned();
        assert_eq!(without(&entries, &removed)[1].skip_range, "<3.0.0");
    }

    #[test]
    fn edges_lead_past_removed_entries() {
        for (entries, removed, expected) in [
            ("1 2<1 3<2", "3", "1 2<1"),
            ("1 2<1 3<2", "2", "1 3<1!2"),
            ("1 2<1 3<2 4<3", "2 3", "1 4<1!2!3"),
            // The lowest entry keeps its edge.
            ("1 2<1 3<2", "1", "2<1 3<2"),
            ("1 2<1 3<2", "1 2", "3<1!2"),
            // Skips are inherited, so that no entry is stranded.
            ("1 2<1 3<1!2 4<3", "3", "1 2<1 4<1!3!2"),
            ("1 2!1 3!2", "2", "1 3!2!1"),
            ("1 2<1 3<1!2 4<1!3!2", "3", "1 2<1 4<1!3!2"),
            ("2<0 3<2", "2", "3<0!2"),
            // Cycles end.
            ("1<2 2<1 3<2", "1 2", "3<2!1!2"),
        ] {
            assert_eq!(left(entries, removed), expected, "{entries} - {removed}");
        }
    }
}
