//! Entry of a bundle in the channel that it is promoted to (docs/design/cli.md#promotion). Pure.

use std::collections::BTreeSet;

use olm_cli_core::error::CliError;
use olm_cli_core::names::listed;
use olm_fbc::{Channel, ChannelEntry};
use olm_resolve::Offer;
use olm_version::{VersionRelease, quote};

use crate::classic_chain;
use crate::package::CatalogPackage;

/// Requested entry. Fields that are not set follow from the catalog.
#[derive(Debug, Clone, Default)]
pub(super) struct Request {
    pub(super) channel: String,
    /// Channel whose entry of the bundle is copied.
    pub(super) from: Option<String>,
    pub(super) replaces: Option<String>,
    /// Skipped bundles. `+` before a name adds it.
    pub(super) skips: Vec<String>,
    pub(super) skip_range: Option<String>,
    /// Create the channel if it does not exist.
    pub(super) create: bool,
}

/// Planned change of a channel.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    /// `true` if the channel exists.
    pub(super) has_channel: bool,
    /// Entry of the bundle before, if the channel lists it.
    pub(super) before: Option<ChannelEntry>,
    pub(super) entry: ChannelEntry,
    /// Higher entry that skips the bundle from now on.
    pub(super) skipped_by: Option<String>,
}

/// Plans the entry of the bundle with the name or version `requested`.
///
/// # Errors
/// The bundle or a channel does not exist, or the entry does not follow from the catalog.
pub(super) fn plan(package: &CatalogPackage, requested: &str, request: &Request) -> Result<Plan, CliError> {
    let bundle = package.bundle_named(requested)?.to_owned();
    let channel = package.content.channels.iter().find(|channel| channel.name == request.channel);
    let Some(channel) = channel else {
        if !request.create {
            let missing = package.channel(&request.channel).err().map(|error| error.to_string());
            let missing = missing.unwrap_or_default();
            return Err(CliError::no_candidate(format!("{missing}; create it with --create")));
        }
        let entry = overridden(package, source(package, &bundle, request)?, request)?;
        return Ok(Plan { has_channel: false, before: None, entry, skipped_by: None });
    };
    let before = channel.entries.iter().find(|entry| entry.name == bundle).cloned();
    if let (Some(_), Some(from)) = (&before, &request.from) {
        let channel = quote(&channel.name);
        return Err(CliError::usage(format!(
            "channel {channel} lists bundle {bundle} already: --from {from} would change nothing; give its edges with \
             --replaces, --skips and --skip-range"
        )));
    }
    let (entry, skipped_by) = match &before {
        Some(entry) => (entry.clone(), None),
        None => placed(package, channel, source(package, &bundle, request)?, request)?,
    };
    Ok(Plan { has_channel: true, before, entry: overridden(package, entry, request)?, skipped_by })
}

/// Entry of the bundle in the channel that it is copied from. Without edges if no other channel lists it.
fn source(package: &CatalogPackage, bundle: &str, request: &Request) -> Result<ChannelEntry, CliError> {
    let own = |channel: &Channel| channel.entries.iter().find(|entry| entry.name == bundle).cloned();
    if let Some(from) = &request.from {
        let entry = own(package.channel(from)?);
        let missing =
            || CliError::no_candidate(format!("channel {} has no bundle {}", quote(from), quote(bundle)));
        return entry.ok_or_else(missing);
    }
    let others = package.content.channels.iter().filter(|channel| channel.name != request.channel);
    let mut found: Vec<(&str, ChannelEntry)> =
        others.filter_map(|channel| Some((channel.name.as_str(), own(channel)?))).collect();
    let names = found.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let Some((_, first)) = found.pop() else {
        return Ok(ChannelEntry { name: bundle.to_owned(), ..ChannelEntry::default() });
    };
    if found.iter().any(|(_, entry)| *entry != first) {
        return Err(CliError::usage(format!(
            "bundle {bundle} has different upgrade edges in the channels {names}: choose one with --from"
        )));
    }
    Ok(first)
}

/// `source` with the edges that keep `channel` valid, and the entry that must skip it.
fn placed(
    package: &CatalogPackage,
    channel: &Channel,
    source: ChannelEntry,
    request: &Request,
) -> Result<(ChannelEntry, Option<String>), CliError> {
    let heads = classic_chain::heads(channel);
    let [head] = heads.as_slice() else {
        let (name, heads) = (quote(&channel.name), listed(&heads));
        return Err(CliError::operational(format!("channel {name} must have one head; its heads: {heads}")));
    };
    let own = version(package, &source.name);
    let (mut replaces, mut skipped_by) = ((*head).to_owned(), None);
    if let (Some(own), Some(top)) = (&own, version(package, head))
        && *own < top
    {
        let mut versions: Vec<_> = channel
            .entries
            .iter()
            .filter_map(|entry| Some((version(package, &entry.name)?, entry)))
            .collect();
        versions.sort_by(|(a, _), (b, _)| a.cmp(b));
        let at = versions.partition_point(|(version, _)| version < own);
        replaces = at.checked_sub(1).map(|lower| versions[lower].1.name.clone()).unwrap_or_default();
        // Upgrades lead on from no skipped entry in classic OLM, and such a version may be broken.
        let skipped: BTreeSet<&String> = channel.entries.iter().flat_map(|entry| &entry.skips).collect();
        let mut higher = versions[at..].iter().map(|(_, entry)| *entry);
        let next = higher.find(|entry| !skipped.contains(&entry.name));
        skipped_by = next.filter(|next| !next.skips.contains(&source.name)).map(|next| next.name.clone());
    }
    let chain = chain(channel, head);
    let skips = source.skips.into_iter().filter(|name| !chain.contains(name.as_str())).collect();
    let replaces = if request.replaces.is_none() { replaces } else { String::new() };
    Ok((ChannelEntry { replaces, skips, ..source }, skipped_by))
}

/// Names on the chain of `replaces` from the head. Skipping one of them would strand those behind it.
fn chain<'a>(channel: &'a Channel, head: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next = Some(head);
    while let Some(name) = next.filter(|name| reached.insert(*name)) {
        next = channel.entries.iter().find(|entry| entry.name == name).map(|entry| entry.replaces.as_str());
    }
    reached
}

/// `entry` with the edges that the user gave.
fn overridden(
    package: &CatalogPackage,
    mut entry: ChannelEntry,
    request: &Request,
) -> Result<ChannelEntry, CliError> {
    if let Some(replaces) = &request.replaces {
        entry.replaces = edge(package, replaces)?;
    }
    if request.skips.iter().any(|name| !name.starts_with('+')) {
        entry.skips.clear();
    }
    for name in &request.skips {
        let name = edge(package, name.strip_prefix('+').unwrap_or(name))?;
        if !name.is_empty() && !entry.skips.contains(&name) {
            entry.skips.push(name);
        }
    }
    if let Some(range) = &request.skip_range {
        entry.skip_range.clone_from(range);
    }
    Ok(entry)
}

/// Name of the bundle that an edge leads from: a name, which need not exist, or a version of the package.
fn edge(package: &CatalogPackage, text: &str) -> Result<String, CliError> {
    let version = text.strip_prefix('v').unwrap_or(text);
    if package.bundle(text).is_none() && VersionRelease::parse(version, None).is_ok() {
        return package.bundle_named(text).map(str::to_owned);
    }
    Ok(text.to_owned())
}

fn version(package: &CatalogPackage, bundle: &str) -> Option<VersionRelease> {
    package.offer(bundle).and_then(|offer: &Offer| offer.version().ok().cloned())
}

#[cfg(test)]
mod tests {
    use olm_resolve::Indexing;
    use serde_json::json;

    use super::*;

    /// Package with these channels, each `name: entry, entry`. An entry is `version<replaced!skipped`.
    fn package(channels: &[&str]) -> CatalogPackage {
        let mut lines = Vec::new();
        let mut versions = BTreeSet::new();
        for channel in channels {
            let (name, entries) = channel.split_once(": ").unwrap();
            let entries = entries.split(", ").map(|text| {
                let mut parts = text.split('!');
                let (version, replaces) = parts.next().map(|t| t.split_once('<').unwrap_or((t, ""))).unwrap();
                versions.insert(version);
                let skips: Vec<_> = parts.map(named).collect();
                let replaces = if replaces.is_empty() { String::new() } else { named(replaces) };
                json!({ "name": named(version), "replaces": replaces, "skips": skips, "skipRange": "" })
            });
            let entries: Vec<_> = entries.collect();
            lines.push(json!({ "schema": "olm.channel", "package": "p", "name": name, "entries": entries }));
        }
        for version in versions {
            let own = json!([{ "type": "olm.package", "value": { "packageName": "p", "version": version } }]);
            lines.push(
                json!({ "schema": "olm.bundle", "package": "p", "name": named(version), "properties": own }),
            );
        }
        let lines: Vec<_> = lines.iter().map(|line| line.to_string().into_bytes()).collect();
        CatalogPackage::new("c", "p", &lines, Indexing::default()).unwrap()
    }

    fn named(version: &str) -> String {
        format!("p.v{version}")
    }

    fn to(channel: &str) -> Request {
        Request { channel: channel.to_owned(), ..Request::default() }
    }

    /// `replaces!skips`, with the bundle that skips it from now on after ` by `.
    fn planned(channels: &[&str], requested: &str, request: &Request) -> Result<String, String> {
        let plan = plan(&package(channels), requested, request).map_err(|error| error.to_string())?;
        let by = plan.skipped_by.map(|name| format!(" by {name}")).unwrap_or_default();
        let edges: Vec<_> = [plan.entry.replaces].into_iter().chain(plan.entry.skips).collect();
        Ok((edges.join("!") + &by).replace("p.v", ""))
    }

    #[test]
    fn new_entry_replaces_head_and_keeps_skips_that_are_not_on_the_chain() {
        let cases: [(&[&str], &str, &str); 8] = [
            (&["fast: 1.1.0<1.0.0, 1.2.0<1.1.0", "stable: 1.0.0"], "1.2.0", "1.0.0"),
            // The chain of the channel leads from 1.1.0. 0.9.0 is in no channel.
            (&["fast: 1.2.0<1.0.0!1.1.0!0.9.0", "stable: 1.1.0<1.0.0, 1.0.0"], "v1.2.0", "1.1.0!0.9.0"),
            (&["fast: 1.2.0<1.1.0!1.0.0", "stable: 1.1.0<1.0.0, 1.0.0"], "p.v1.2.0", "1.1.0"),
            (&["fast: 1.2.0!1.1.0", "stable: 1.0.0"], "1.2.0", "1.0.0!1.1.0"),
            // A patch below the head is inserted, and the next entry leads on from it.
            (&["fast: 1.0.1<1.0.0", "stable: 1.0.0, 1.1.0<1.0.0, 1.2.0<1.1.0"], "1.0.1", "1.0.0 by 1.1.0"),
            (&["fast: 1.0.1<1.0.0", "stable: 1.0.0, 1.1.0<1.0.0!1.0.1"], "1.0.1", "1.0.0"),
            (&["fast: 0.9.0", "stable: 1.0.0, 1.1.0<1.0.0"], "0.9.0", " by 1.0.0"),
            // The next entry is skipped.
            (
                &["fast: 1.0.1<1.0.0", "stable: 1.0.0, 1.1.0<1.0.0, 1.1.1<1.0.0!1.1.0"],
                "1.0.1",
                "1.0.0 by 1.1.1",
            ),
        ];
        for (channels, requested, expected) in cases {
            assert_eq!(planned(channels, requested, &to("stable")).as_deref(), Ok(expected), "{channels:?}");
        }
    }

    #[test]
    fn given_edges_override_those_of_the_source() {
        let channels =
            ["fast: 1.1.0<1.0.0, 1.2.0<1.1.0!0.8.0", "slow: 1.2.0<1.0.0", "stable: 1.0.0, 1.1.0<1.0.0"];
        let with = |change: fn(&mut Request)| {
            let mut request = Request { from: Some("fast".to_owned()), ..to("stable") };
            change(&mut request);
            planned(&channels, "1.2.0", &request)
        };
        assert_eq!(with(|_| {}).as_deref(), Ok("1.1.0!0.8.0"));
        assert_eq!(with(|r| r.from = Some("slow".to_owned())).as_deref(), Ok("1.1.0"));
        assert_eq!(with(|r| r.replaces = Some("1.0.0".to_owned())).as_deref(), Ok("1.0.0!0.8.0"));
        assert_eq!(with(|r| r.replaces = Some(String::new())).as_deref(), Ok("!0.8.0"));
        assert_eq!(with(|r| r.skips = vec!["p.v0.7.0".to_owned()]).as_deref(), Ok("1.1.0!0.7.0"));
        assert_eq!(with(|r| r.skips = vec!["+1.0.0".to_owned()]).as_deref(), Ok("1.1.0!0.8.0!1.0.0"));
        assert_eq!(with(|r| r.skips = vec![String::new()]).as_deref(), Ok("1.1.0"));
        let new = |r: &mut Request| (r.channel, r.create) = ("new".to_owned(), true);
        assert_eq!(with(new).as_deref(), Ok("1.1.0!0.8.0"));
    }

    #[test]
    fn listed_entry_keeps_edges_that_are_not_given() {
        let channels = ["stable: 1.0.0, 1.1.0<1.0.0, 1.2.0<1.0.0!1.1.0"];
        assert_eq!(planned(&channels, "1.1.0", &to("stable")).as_deref(), Ok("1.0.0"));
        let request = Request { skips: vec!["+0.9.0-rc".to_owned()], ..to("stable") };
        assert!(
            planned(&channels, "1.2.0", &request).unwrap_err().contains("no bundle or version \"0.9.0-rc\"")
        );
        let request = Request { skips: vec!["+old".to_owned()], ..to("stable") };
        assert_eq!(planned(&channels, "1.2.0", &request).as_deref(), Ok("1.0.0!1.1.0!old"));
    }

    #[test]
    fn ambiguous_or_missing_source_is_refused() {
        let channels = ["fast: 1.2.0<1.1.0", "slow: 1.2.0<1.0.0", "stable: 1.0.0", "two: 1.0.0, 1.1.0"];
        let fails = |requested: &str, request: Request| planned(&channels, requested, &request).unwrap_err();
        for (error, expected) in [
            (fails("1.2.0", to("stable")), "different upgrade edges in the channels fast, slow: choose one"),
            (
                fails("1.0.0", to("none")),
                "no channel \"none\"; its channels: fast, slow, stable, two; create it",
            ),
            (
                fails("3.0.0", to("stable")),
                "no bundle or version \"3.0.0\"; its versions: 1.2.0, 1.1.0, 1.0.0",
            ),
            (
                fails("1.2.0", Request { from: Some("fast".to_owned()), ..to("two") }),
                "channel \"two\" must have one head; its heads: p.v1.0.0, p.v1.1.0",
            ),
            (
                fails("1.2.0", Request { from: Some("two".to_owned()), ..to("stable") }),
                "channel \"two\" has no bundle \"p.v1.2.0\"",
            ),
            (
                fails("1.2.0", Request { from: Some("slow".to_owned()), ..to("fast") }),
                "channel \"fast\" lists bundle p.v1.2.0 already: --from slow would change nothing",
            ),
        ] {
            assert!(error.contains(expected), "{error}");
        }
    }
}
