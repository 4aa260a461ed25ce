//! Checks that need no registry: upgrade paths (docs/design/cli.md#ways-forward) and properties. Pure.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle_check::range_fault;
use olm_finding::Rule;
use olm_resolve::{Gvk, Offer, Provider, UpgradeOrigin};
use olm_version::{Range, quote};

use super::finding::{Finding, MINOR_GAP, PROPERTIES, SKIP_RANGE, STRANDED, UNSERVED, of_bundle};
use crate::package::CatalogPackage;

/// Checks one package. `versions` is `true` to report invalid versions, which `validate` reports, too.
pub(super) fn check(package: &CatalogPackage, versions: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for offer in package.index.offers() {
        let mut add = |rule: &'static Rule, message: String| {
            findings.push(of_bundle(rule, &package.name, offer.name(), message));
        };
        if let (true, Err(fault)) = (versions, offer.version()) {
            add(&PROPERTIES, fault.to_owned());
        }
        for requirement in offer.requirements() {
            if let Some(fault) = requirement.fault() {
                let hint = fault.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
                add(&PROPERTIES, format!("{}: {fault}{hint}", requirement.property_type()));
            }
        }
        if let Some((rule, message)) = dead_end(package, offer) {
            add(rule, message);
        }
    }
    findings.extend(skip_ranges(package));
    findings.extend(unserved(package));
    findings
}

/// Reports versions of APIs that a bundle lacks, and a bundle that upgrades to it provides: each at the lowest such bundle.
fn unserved(package: &CatalogPackage) -> Vec<Finding> {
    let bundles = package.content.bundles.iter();
    let provided: BTreeMap<&str, Provider> = bundles
        .map(|bundle| {
            (bundle.name.as_str(), Provider::new(None, bundle.name.clone(), bundle.properties.clone()))
        })
        .collect();
    let mut offers: Vec<_> =
        package.index.offers().filter_map(|offer| Some((offer.version().ok()?, offer))).collect();
    offers.sort_by_key(|(version, _)| *version);
    let apis: Vec<BTreeSet<&Gvk>> = offers
        .iter()
        .map(|(_, offer)| provided.get(offer.name()).into_iter().flat_map(Provider::gvks).collect())
        .collect();
    let mut known: BTreeSet<&Gvk> = BTreeSet::new();
    let mut findings = Vec::new();
    for (index, (_, offer)) in offers.iter().enumerate() {
        for (place, (version, lower)) in offers[..index].iter().enumerate().rev() {
            let lost = apis[place].difference(&apis[index]).filter(|api| !known.contains(*api));
            let lost: BTreeSet<&Gvk> = lost.copied().collect();
            let origin = UpgradeOrigin { name: lower.name(), version: (*version).clone() };
            if lost.is_empty() || offer.edges_from(&origin, &[]).next().is_none() {
                continue;
            }
            let message =
                format!("the upgrade from {} no longer serves {}", quote(lower.name()), named(&lost));
            findings.push(of_bundle(&UNSERVED, &package.name, offer.name(), message));
            known.extend(lost);
        }
    }
    findings
}

/// APIs such as `Lamp.example.com v1beta1`.
fn named(apis: &BTreeSet<&Gvk>) -> String {
    let mut by_kind: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for api in apis {
        by_kind.entry((&api.group, &api.kind)).or_default().push(&api.version);
    }
    let texts =
        by_kind.iter().map(|((group, kind), versions)| format!("{kind}.{group} {}", versions.join(", ")));
    texts.collect::<Vec<_>>().join("; ")
}

/// Reports ranges with higher versions than that of their bundle, and without lower ones.
fn skip_ranges(package: &CatalogPackage) -> Vec<Finding> {
    let mut found: BTreeMap<(&str, &str), (Vec<&str>, String)> = BTreeMap::new();
    for channel in &package.content.channels {
        for entry in channel.entries.iter().filter(|entry| !entry.skip_range.is_empty()) {
            // `validate` reports an invalid range.
            let version = package.offer(&entry.name).and_then(|offer| offer.version().ok());
            if let (Ok(range), Some(version)) = (Range::parse(&entry.skip_range), version)
                && let Some(fault) = range_fault(&range, version.version())
            {
                let place =
                    found.entry((&entry.name, &entry.skip_range)).or_insert_with(|| (Vec::new(), fault));
                place.0.push(&channel.name);
            }
        }
    }
    let finding = |((bundle, range), (channels, fault)): ((&str, &str), (Vec<&str>, String))| {
        let message = format!("skipRange {} of channel {}: {fault}", quote(range), channels.join(", "));
        of_bundle(&SKIP_RANGE, &package.name, bundle, message)
    };
    found.into_iter().map(finding).collect()
}

/// Fault of the upgrades from a bundle that is not the highest of its channels.
fn dead_end(package: &CatalogPackage, offer: &Offer) -> Option<(&'static Rule, String)> {
    let origin = UpgradeOrigin { name: offer.name(), version: offer.version().ok()?.clone() };
    let higher: Vec<_> = package
        .index
        .offers()
        .filter(|other| other.version().is_ok_and(|version| *version > origin.version))
        .collect();
    let may_follow =
        |other: &Offer, channels: &[String]| other.edges_from(&origin, channels).next().is_some();
    let channels: BTreeSet<&str> = offer.channels().collect();
    let mut continued = Vec::new();
    for &channel in &channels {
        let in_channel: Vec<_> =
            higher.iter().filter(|other| other.channels().any(|name| name == channel)).collect();
        let minor = |offer: &Offer| {
            offer.version().ok().map(|version| (version.version().major(), version.version().minor()))
        };
        let only = [channel.to_owned()];
        if in_channel.is_empty() || in_channel.iter().any(|other| may_follow(other, &only)) {
            continue;
        }
        let is_last = in_channel.iter().all(|other| minor(other) != minor(offer));
        if is_last {
            let own = minor(offer).map(|(major, minor)| format!("{major}.{minor}")).unwrap_or_default();
            let message = format!(
                "the last version {own} of channel {channel} has no upgrade there, although the channel continues"
            );
            return Some((&MINOR_GAP.rule, message));
        }
        continued.push(channel);
    }
    let is_stranded = !continued.is_empty() && !higher.iter().any(|other| may_follow(other, &[]));
    is_stranded.then(|| {
        let channels = continued.join(", ");
        (
            &STRANDED.rule,
            format!("no upgrade leads from this bundle to a higher version of channel {channels}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use olm_resolve::Indexing;
    use serde_json::json;

    use super::*;

    /// Findings of a package with these channels, each `name: entry, entry`. An entry is `version<replaced!skipped`.
    fn findings(channels: &[&str]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut versions = BTreeSet::new();
        for channel in channels {
            let (name, entries) = channel.split_once(": ").unwrap();
            let named = |version: &str| format!("p.v{version}");
            let entries = entries.split(", ").map(|text| {
                let mut parts = text.split('!');
                let (version, replaces) = parts.next().map(|t| t.split_once('<').unwrap_or((t, ""))).unwrap();
                versions.insert(version);
                json!({ "name": named(version), "replaces": named(replaces), "skips": parts.map(named).collect::<Vec<_>>() })
            });
            let entries: Vec<_> = entries.collect();
            lines.push(json!({ "schema": "olm.channel", "package": "p", "name": name, "entries": entries }));
        }
        for version in versions {
            lines.push(bundle(version, &[]));
        }
        checked(&lines, false)
    }

    fn bundle(version: &str, more: &[serde_json::Value]) -> serde_json::Value {
        let own = json!({ "type": "olm.package", "value": { "packageName": "p", "version": version } });
        let properties: Vec<_> = [own].iter().chain(more).cloned().collect();
        json!({ "schema": "olm.bundle", "package": "p", "name": format!("p.v{version}"), "properties": properties })
    }

    fn checked(lines: &[serde_json::Value], versions: bool) -> Vec<String> {
        let lines: Vec<_> = lines.iter().map(|line| line.to_string().into_bytes()).collect();
        let indexing = Indexing { properties: true, ..Indexing::default() };
        let package = CatalogPackage::new("c", "p", &lines, indexing).unwrap();
        let shown =
            |finding: Finding| format!("{} {} {}", finding.rule.id, finding.place.bundle, finding.message);
        check(&package, versions).into_iter().map(shown).collect()
    }

    #[test]
    fn bundle_without_upgrade_within_its_channel_is_found() {
        const GAP: &str = "has no upgrade there, although the channel continues";
        let gap = |bundle: &str, minor: &str, channel: &str| {
            format!("GRAPH-5 {bundle} the last version {minor} of channel {channel} {GAP}")
        };
        let stranded = |bundle: &str, channels: &str| {
            format!(
                "GRAPH-3 {bundle} no upgrade leads from this bundle to a higher version of channel {channels}"
            )
        };
        let cases: [(&[&str], Vec<String>); 8] = [
            (&["c: 1.0.0, 1.1.0<1.0.0, 2.0.0<1.1.0"], vec![]),
            // A channel that ends is not a dead end.
            (&["c: 1.0.0, 1.0.1<1.0.0", "d: 1.1.0"], vec![]),
            // 1.0.1 was released after 1.1.0, which does not follow it.
            (&["c: 1.0.0, 1.0.1<1.0.0, 1.1.0<1.0.0"], vec![gap("p.v1.0.1", "1.0", "c")]),
            (&["c: 1.0.0, 1.0.1<1.0.0, 1.1.0<1.0.0!1.0.1"], vec![]),
            // An upgrade in another channel does not help an extension that selects this one.
            (&["c: 1.0.0, 1.1.0", "d: 1.0.0, 1.1.0<1.0.0"], vec![gap("p.v1.0.0", "1.0", "c")]),
            // Not the last patch of its minor version.
            (&["c: 1.0.0, 1.0.1, 1.1.0<1.0.1"], vec![stranded("p.v1.0.0", "c")]),
            (&["c: 1.0.0, 1.0.1", "d: 1.0.0, 1.0.1"], vec![stranded("p.v1.0.0", "c, d")]),
            // A downgrade is not an upgrade.
            (&["c: 1.0.0!1.1.0, 1.1.0, 1.2.0<1.0.0"], vec![gap("p.v1.1.0", "1.1", "c")]),
        ];
        for (channels, expected) in cases {
            assert_eq!(findings(channels), expected, "{channels:?}");
        }
    }

    #[test]
    fn skip_range_without_lower_or_with_higher_versions_is_found() {
        let found = |range: &str| {
            let entry = json!({ "name": "p.v1.1.0", "skipRange": range });
            let channel = |name: &str| json!({ "schema": "olm.channel", "package": "p", "name": name, "entries": [entry] });
            checked(&[channel("a"), channel("b"), bundle("1.1.0", &[])], false)
        };
        for range in ["", ">=1.0.0 <1.1.0", "<=1.1.0", "what"] {
            assert_eq!(found(range), Vec::<String>::new(), "{range}");
        }
        let higher = found(">=1.0.0 <2.0.0");
        assert!(higher[0].starts_with("GRAPH-6 p.v1.1.0 skipRange \">=1.0.0 <2.0.0\" of channel a, b: the range has higher versions than 1.1.0"), "{higher:?}");
        assert_eq!(higher.len(), 1);
        for range in [">=1.1.0 <1.1.0", ">=1.1.0 <=1.1.0"] {
            let empty = found(range);
            assert!(
                empty[0].ends_with("the range has no version lower than 1.1.0, so that it has no effect"),
                "{empty:?}"
            );
        }
    }

    #[test]
    fn version_that_a_successor_no_longer_serves_is_found() {
        let gvk = |kind: &str, version: &str| json!({ "type": "olm.gvk", "value": {"group": "example.com", "kind": kind, "version": version} });
        let channel = json!({ "schema": "olm.channel", "package": "p", "name": "c", "entries": [
            { "name": "p.v1.0.0" }, { "name": "p.v1.1.0", "replaces": "p.v1.0.0" }, { "name": "p.v1.2.0", "skipRange": "<1.2.0" }] });
        let found = checked(
            &[
                channel,
                bundle("1.0.0", &[gvk("Lamp", "v1beta1"), gvk("Lamp", "v1"), gvk("Bulb", "v1")]),
                bundle(
                    "1.1.0",
                    &[gvk("Lamp", "v1beta1"), gvk("Lamp", "v1"), gvk("Bulb", "v1"), gvk("Fan", "v1")],
                ),
                bundle("1.2.0", &[gvk("Lamp", "v1"), gvk("Fan", "v1")]),
            ],
            false,
        );
        let expected = "GRAPH-7 p.v1.2.0 the upgrade from \"p.v1.1.0\" no longer serves Bulb.example.com v1; Lamp.example.com v1beta1";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn unreadable_requirement_or_version_is_found() {
        let required = |value| json!({ "type": "olm.package.required", "value": value });
        let good = required(json!({ "packageName": "base", "versionRange": ">=1.0.0" }));
        assert_eq!(checked(&[bundle("1.0.0", &[good])], true), Vec::<String>::new());
        let bad = required(json!({ "packageName": "base", "versionRange": "what" }));
        let found = checked(&[bundle("1.0.0", &[bad])], true);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("CATALOG-2 p.v1.0.0 olm.package.required: "), "{found:?}");
        let named = json!({ "type": "olm.constraint", "value": { "package": { "name": "blue" } } });
        let found = checked(&[bundle("1.0.0", &[named])], true);
        assert!(found[0].ends_with("unknown field \"name\" (use packageName in place of name)"), "{found:?}");
        // `validate` reports the version of a folder.
        assert_eq!(checked(&[bundle("one", &[])], false), Vec::<String>::new());
        assert!(checked(&[bundle("one", &[])], true)[0].starts_with("CATALOG-2 p.vone "));
    }
}
