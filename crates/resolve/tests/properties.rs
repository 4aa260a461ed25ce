//! Properties of the resolver over arbitrary small packages.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use olm_fbc::{
    Bundle, Channel, ChannelEntry, Deprecation, DeprecationEntry, PackageContent, Property, Reference,
};
use olm_resolve::{Catalog, Installed, PackageIndex, Request, UpgradePolicy, resolve};
use olm_version::VersionRelease;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::value::to_raw_value;

const VERSIONS: [&str; 6] = ["0.9.0", "1.0.0-rc.1", "1.0.0", "1.0.0+1", "1.1.0", "2.0.0"];
const RANGES: [&str; 5] = ["", ">=1.0.0 <2.0.0", "<1.0.0", "1.x", "no range"];
const CHANNELS: [&str; 2] = ["a", "b"];

fn name(version: usize) -> String {
    format!("p.v{}", VERSIONS[version])
}

fn bundle(version: usize) -> Bundle {
    let value = serde_json::json!({"packageName": "p", "version": VERSIONS[version]});
    let property = Property { kind: "olm.package".to_owned(), value: to_raw_value(&value).unwrap() };
    Bundle { name: name(version), properties: vec![property], ..Bundle::default() }
}

fn deprecation(version: usize) -> DeprecationEntry {
    let reference = Reference { schema: "olm.bundle".to_owned(), name: name(version) };
    DeprecationEntry { reference, message: String::new() }
}

fn entry() -> impl Strategy<Value = ChannelEntry> {
    let version = 0..VERSIONS.len();
    (version.clone(), version.clone(), vec(version, 0..2), 0..RANGES.len()).prop_map(
        |(bundle, replaced, skipped, range)| ChannelEntry {
            name: name(bundle),
            replaces: name(replaced),
            skips: skipped.into_iter().map(name).collect(),
            skip_range: RANGES[range].to_owned(),
        },
    )
}

fn package() -> impl Strategy<Value = PackageContent> {
    let versions = || prop::sample::subsequence((0..VERSIONS.len()).collect::<Vec<_>>(), 0..=VERSIONS.len());
    (versions(), versions(), vec(vec(entry(), 0..5), CHANNELS.len())).prop_map(
        |(offered, deprecated, channels)| {
            let channel = |(name, entries): (&&str, Vec<ChannelEntry>)| Channel {
                name: (*name).to_owned(),
                entries,
                ..Channel::default()
            };
            PackageContent {
                bundles: offered.into_iter().map(bundle).collect(),
                channels: CHANNELS.iter().zip(channels).map(channel).collect(),
                deprecations: vec![Deprecation {
                    entries: deprecated.into_iter().map(deprecation).collect(),
                    ..Deprecation::default()
                }],
                ..PackageContent::default()
            }
        },
    )
}

/// One resolution in short: the chosen bundle or the error.
fn choose(
    catalogs: &[(i32, &PackageContent)],
    installed: Option<&str>,
    channels: &[String],
) -> Result<String, String> {
    let catalogs: Vec<_> = catalogs
        .iter()
        .map(|(priority, content)| Catalog {
            name: format!("c{priority}"),
            priority: *priority,
            package: Ok(Some(Arc::new(PackageIndex::new(content, false)))),
        })
        .collect();
    let bundle = installed.map(|version| format!("p.v{version}"));
    let request = Request {
        package: "p",
        channels,
        version: None,
        policy: UpgradePolicy::CatalogProvided,
        installed: bundle.as_deref().zip(installed).map(|(name, version)| Installed {
            name,
            version,
            release: None,
        }),
    };
    resolve(&request, &catalogs).map(|resolved| resolved.bundle).map_err(|error| error.to_string())
}

fn version(bundle: &str) -> VersionRelease {
    VersionRelease::parse(bundle.strip_prefix("p.v").unwrap(), None).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    // spec 08 R-1
    #[test]
    fn what_is_offered_and_not_deprecated_is_never_left_downwards(
        content in package(), installed in prop::sample::select(&VERSIONS[..]),
    ) {
        let kept = name(VERSIONS.iter().position(|v| *v == installed).unwrap());
        let offered = content.bundles.iter().any(|bundle| bundle.name == kept);
        let deprecated = content.deprecations[0].entries.iter().any(|entry| entry.reference.name == kept);
        if offered && !deprecated {
            let chosen = choose(&[(0, &content)], Some(installed), &[]).unwrap();
            prop_assert!(version(&chosen) >= version(&kept), "{} to {}", kept, chosen);
        }
    }

    // spec 03 §2.3, stated anew: what is chosen has an edge or is the same
    #[test]
    fn every_choice_is_a_successor_or_the_same(
        content in package(), installed in prop::sample::select(&VERSIONS[..]), channel in prop::option::of(0..CHANNELS.len()),
    ) {
        let channels: Vec<_> = channel.map(|index| CHANNELS[index].to_owned()).into_iter().collect();
        let Ok(chosen) = choose(&[(0, &content)], Some(installed), &channels) else { return Ok(()) };
        let from = format!("p.v{installed}");
        let considered = content.channels.iter().filter(|c| channels.is_empty() || channels.contains(&c.name));
        let edge = considered.flat_map(|c| &c.entries).filter(|entry| entry.name == chosen).any(|entry| {
            let range = olm_version::Range::parse(&entry.skip_range);
            entry.replaces == from
                || entry.skips.contains(&from)
                || range.is_ok_and(|range| range.contains(version(&from).version()))
        });
        prop_assert!(edge || version(&chosen) == version(&from), "{} to {}", from, chosen);
    }

    #[test]
    fn the_order_of_catalogs_bundles_and_channels_does_not_matter(a in package(), b in package()) {
        let reversed = |content: &PackageContent| {
            let mut content = content.clone();
            content.bundles.reverse();
            content.channels.reverse();
            content
        };
        let forward = choose(&[(0, &a), (1, &b), (2, &a)], None, &[]);
        prop_assert_eq!(&forward, &choose(&[(2, &reversed(&a)), (1, &reversed(&b)), (0, &reversed(&a))], None, &[]));
    }
}
