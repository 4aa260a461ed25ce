//! Smaller catalogs: every selection of a valid catalog is refused, or is valid again with the edges of the original.

#![allow(clippy::unwrap_used)]

mod files;

use std::collections::{BTreeMap, BTreeSet};

use files::Files;
use olm_fbc::{
    ChannelEntry, Form, Meta, MetaReader, PackageContent, PackageSubset, SmallerCatalog, Subset, SubsetError,
    subset, validate_folder, write,
};
use olm_version::Range;
use proptest::prelude::*;
use serde_json::{Value, json};

fn metas(objects: &[Value]) -> Vec<Meta> {
    objects.iter().map(|object| Meta::from_json(object.to_string().as_bytes()).unwrap()).collect()
}

fn problems(metas: &[Meta]) -> Option<String> {
    let mut text = Vec::new();
    write(metas.to_vec(), Form::Json, &mut text).unwrap();
    let files = Files::from([("catalog.json", std::str::from_utf8(&text).unwrap())]);
    validate_folder(&files, &olm_fbc::LoadLimits::default(), false).reference_message
}

fn content(package: &str, metas: &[Meta]) -> PackageContent {
    PackageContent::from_metas(package, metas.iter().map(|meta| meta.blob.as_slice())).unwrap()
}

fn of_package(package: &str, ranges: &[&str], channels: &[&str], heads: bool) -> Subset {
    let ranges = ranges.iter().map(|text| ((*text).to_owned(), Range::parse(text).unwrap())).collect();
    let channels = channels.iter().map(|name| (*name).to_owned()).collect();
    let packages = BTreeMap::from([(package.to_owned(), PackageSubset { ranges, channels, heads })]);
    Subset { packages, default_channels: BTreeMap::new() }
}

/// [`subset`], where a missing default channel is replaced by the first remaining one.
fn reduced(metas: &[Meta], mut selection: Subset) -> Result<SmallerCatalog, SubsetError> {
    match subset(metas.to_vec(), &selection) {
        Err(SubsetError::DefaultChannel { package, remaining, .. }) => {
            selection.default_channels.insert(package, remaining[0].clone());
            subset(metas.to_vec(), &selection)
        }
        result => result,
    }
}

/// Number of an entry, of the one that it replaces, and of those that it skips.
type Entry = (u8, Option<u8>, Vec<u8>);

/// Package `p` with these versions `1.<n>.0`, and channels with entries `n`, its replaced one, and its skipped ones.
fn catalog(channels: &[(&str, Vec<Entry>)]) -> Vec<Meta> {
    let name = |n: &u8| format!("p.v1.{n}.0");
    let mut objects = vec![json!({ "schema": "olm.package", "name": "p", "defaultChannel": channels[0].0 })];
    let mut versions = BTreeSet::new();
    for (channel, entries) in channels {
        versions.extend(entries.iter().map(|(n, ..)| *n));
        let entries: Vec<_> = entries
            .iter()
            .map(|(n, replaces, skips)| {
                let mut entry = json!({ "name": name(n) });
                if let Some(replaces) = replaces {
                    entry["replaces"] = json!(name(replaces));
                }
                if !skips.is_empty() {
                    entry["skips"] = skips.iter().map(name).collect();
                }
                entry
            })
            .collect();
        objects.push(
            json!({ "schema": "olm.channel", "package": "p", "name": channel, "entries": entries, "x-own": 1.0 }),
        );
    }
    for n in versions {
        let property =
            json!({ "type": "olm.package", "value": { "packageName": "p", "version": format!("1.{n}.0") } });
        objects.push(json!({
            "schema": "olm.bundle", "package": "p", "name": name(&n), "image": format!("r.example/p:{n}"),
            "properties": [property],
        }));
    }
    metas(&objects)
}

fn chain(numbers: &[u8]) -> Vec<Entry> {
    let replaced = [None].into_iter().chain(numbers.iter().copied().map(Some));
    numbers.iter().copied().zip(replaced).map(|(n, replaces)| (n, replaces, Vec::new())).collect()
}

#[test]
fn range_keeps_a_part_of_each_channel_with_its_edges() {
    let metas = catalog(&[("stable", chain(&[1, 2, 3])), ("old", chain(&[1]))]);
    let smaller = subset(metas, &of_package("p", &[">=1.2.0"], &[], false)).unwrap();
    let kept = content("p", &smaller.metas);
    assert_eq!(kept.channels.len(), 1);
    let first = &kept.channels[0].entries[0];
    assert_eq!((first.name.as_str(), first.replaces.as_str()), ("p.v1.2.0", "p.v1.1.0"));
    assert_eq!(smaller.packages[0].dropped_channels, ["old"]);
    assert_eq!(smaller.packages[0].dropped_bundles, ["p.v1.1.0"]);
    let channel = smaller.metas.iter().find(|meta| meta.schema == "olm.channel").unwrap();
    assert!(std::str::from_utf8(&channel.blob).unwrap().contains("\"x-own\":1"), "{channel:?}");
    assert_eq!(problems(&smaller.metas), None);
}

#[test]
fn deprecations_of_dropped_objects_are_dropped() {
    let mut metas = catalog(&[("stable", chain(&[1, 2, 3])), ("old", chain(&[1]))]);
    let entry =
        |schema: &str, name: &str| json!({ "reference": { "schema": schema, "name": name }, "message": "m" });
    let entries = [
        entry("olm.bundle", "p.v1.1.0"),
        entry("olm.bundle", "p.v1.2.0"),
        entry("olm.channel", "old"),
        json!({ "reference": { "schema": "olm.package" }, "message": "m" }),
    ];
    metas.push(
        self::metas(&[json!({ "schema": "olm.deprecations", "package": "p", "entries": entries })]).remove(0),
    );
    metas.push(self::metas(&[json!({ "schema": "vendor.x", "package": "p", "n": 1 })]).remove(0));
    metas.extend(self::metas(&[json!({ "schema": "olm.package", "name": "other" })]));
    metas.extend(self::metas(&[json!({ "schema": "vendor.y" })]));
    let smaller = subset(metas, &of_package("p", &[">=1.2.0"], &[], false)).unwrap();
    let kept = content("p", &smaller.metas);
    let names: Vec<_> =
        kept.deprecations[0].entries.iter().map(|entry| entry.reference.name.as_str()).collect();
    assert_eq!(names, ["p.v1.2.0", ""]);
    assert_eq!(smaller.dropped, ["other"]);
    let schemas: BTreeSet<_> = smaller.metas.iter().map(|meta| meta.schema.as_str()).collect();
    assert!(schemas.contains("vendor.x") && schemas.contains("vendor.y"), "{schemas:?}");
    assert_eq!(problems(&smaller.metas), None);
}

#[test]
fn absent_or_invalid_part_is_refused_with_those_that_exist() {
    let metas = catalog(&[("stable", chain(&[1, 2, 3])), ("old", chain(&[1]))]);
    let of = |ranges: &[&str], channels: &[&str]| {
        subset(metas.clone(), &of_package("p", ranges, channels, false)).unwrap_err().to_string()
    };
    let versions = "their versions: 1.1.0 to 1.3.0";
    assert_eq!(
        of(&["2.x"], &[]),
        format!("package \"p\": no selected channel has a version in 2.x; {versions}")
    );
    assert_eq!(of(&[], &["fast"]), "package \"p\": no channel \"fast\"; its channels: old, stable");
    let error = "package \"p\": the default channel \"stable\" is dropped; choose one of the remaining: old";
    assert_eq!(of(&[], &["old"]), error);
    let error = subset(metas.clone(), &of_package("q", &[], &[], false)).unwrap_err().to_string();
    assert_eq!(error, "no package \"q\"");
    let mut selection = of_package("p", &[], &["old"], false);
    selection.default_channels.insert("p".to_owned(), "old".to_owned());
    let smaller = subset(metas, &selection).unwrap();
    assert_eq!(content("p", &smaller.metas).packages[0].default_channel, "old");
    assert_eq!(problems(&smaller.metas), None);
}

/// Entries of a valid channel: a chain, and entries beside it that a higher one of the chain skips.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let entry = (1..9_u8, any::<bool>(), any::<prop::sample::Index>(), proptest::option::of(1..9_u8));
    prop::collection::vec(entry, 1..9).prop_map(|mut drawn| {
        drawn.sort_by_key(|(n, ..)| *n);
        drawn.dedup_by_key(|(n, ..)| *n);
        let last = drawn[drawn.len() - 1].0;
        let is_on_chain = |n: u8, drawn: bool| drawn || n == last;
        let chained: Vec<u8> =
            drawn.iter().filter(|(n, on, ..)| is_on_chain(*n, *on)).map(|(n, ..)| *n).collect();
        let mut entries = chain(&chained);
        for (n, on, skipper, replaces) in drawn {
            if !is_on_chain(n, on) {
                let above: Vec<u8> = chained.iter().copied().filter(|other| *other > n).collect();
                let skipper = above[skipper.index(above.len())];
                entries.iter_mut().find(|(n, ..)| *n == skipper).unwrap().2.push(n);
                entries.push((n, replaces.filter(|other| *other < n), Vec::new()));
            }
        }
        entries
    })
}

proptest! {
    #[test]
    fn selection_of_generated_catalog_is_refused_or_valid(
        one in entries(), two in entries(), bounds in prop::collection::vec((1..9_u8, 1..9_u8), 0..3),
        only in any::<bool>(), heads in any::<bool>(),
    ) {
        let metas = catalog(&[("a", one), ("b", two)]);
        prop_assert_eq!(problems(&metas), None);
        let ranges: Vec<_> = bounds.iter().map(|(low, high)| format!(">=1.{low}.0 <=1.{high}.0")).collect();
        let ranges: Vec<_> = ranges.iter().map(String::as_str).collect();
        check("p", &metas, of_package("p", &ranges, if only { &["b"] } else { &[] }, heads));
    }
}

/// Checks a selection of a valid catalog. `true` if it is not refused.
fn check(package: &str, metas: &[Meta], selection: Subset) -> bool {
    let shown = format!("{selection:?}");
    let Ok(smaller) = reduced(metas, selection) else { return false };
    assert_eq!(problems(&smaller.metas), None, "{package}: {shown}");
    let entries = |content: PackageContent| -> BTreeMap<(String, String), ChannelEntry> {
        let channels = content.channels.into_iter();
        let named = channels.flat_map(|channel| {
            channel.entries.into_iter().map(move |entry| ((channel.name.clone(), entry.name.clone()), entry))
        });
        named.collect()
    };
    let (before, after) = (entries(content(package, metas)), entries(content(package, &smaller.metas)));
    assert!(after.iter().all(|(key, entry)| before.get(key) == Some(entry)), "{package}: {shown}");
    true
}

#[test]
fn selections_of_community_catalog_are_refused_or_valid() {
    let Some(data) = olm_require::field_data() else { return };
    let (mut valid, mut refused) = (0, 0);
    for folder in std::fs::read_dir(data.join("catalogs/community-v4.20")).unwrap() {
        let file = std::fs::read(folder.unwrap().path().join("catalog.yaml")).unwrap();
        let metas: Vec<Meta> = MetaReader::new(file.as_slice(), olm_fbc::DocumentLimits::default())
            .collect::<Result<_, _>>()
            .unwrap();
        let package = metas.iter().find(|meta| meta.schema == "olm.package").unwrap().name.clone();
        let content = content(&package, &metas);
        let mut versions: Vec<olm_version::Version> = content
            .bundles
            .iter()
            .filter_map(|bundle| {
                let property = bundle.properties.iter().find(|property| property.kind == "olm.package")?;
                let value: Value = property.parse().ok()?;
                olm_version::Version::parse(value["version"].as_str()?).ok()
            })
            .collect();
        versions.sort();
        let (first, middle, last) =
            (&versions[0], &versions[versions.len() / 2], &versions[versions.len() - 1]);
        let channel = content.channels[0].name.as_str();
        for selection in [
            of_package(&package, &[], &[], true),
            of_package(&package, &[&format!(">={middle}")], &[], false),
            of_package(&package, &[&format!("<={middle}")], &[], false),
            of_package(&package, &[&format!("={first}"), &format!("={last}")], &[], false),
            of_package(&package, &[&format!("<={middle}")], &[channel], true),
            of_package(&package, &[], &[channel], false),
        ] {
            if check(&package, &metas, selection) {
                valid += 1;
            } else {
                refused += 1;
            }
        }
    }
    println!("{valid} selections are valid, {refused} refused");
    assert!(valid > refused, "{valid} {refused}");
}
