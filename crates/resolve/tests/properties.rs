//! Properties of the resolver for arbitrary small packages and all rules.

#![allow(clippy::unwrap_used, reason = "a test")]

mod fixture;

use std::collections::BTreeSet;
use std::sync::Arc;

use olm_fbc::{
    Bundle, Channel, ChannelEntry, Deprecation, DeprecationEntry, DeprecationReference, PackageContent,
    Property,
};
use olm_resolve::{
    AvailableProviders, Catalog, CatalogError, ClusterFacts, DependencyMode, Dependent, Indexing, Installed,
    PackageIndex, Provider, Request, Requirement, ResolveError, Resolved, Rules, UpgradePolicy, UpgradeScope,
    resolve,
};
use olm_version::VersionRelease;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json, value::to_raw_value};

const VERSIONS: [&str; 6] = ["0.9.0", "1.0.0-rc.1", "1.0.0", "1.0.0+1", "1.1.0", "2.0.0"];
const RANGES: [&str; 5] = ["", ">=1.0.0 <2.0.0", "<1.0.0", "1.x", "no range"];
const CHANNELS: [&str; 2] = ["a", "b"];
const CONSTRAINTS: [&str; 4] = ["*", "<2", ">=1.0.0-0", "1.0.0"];

fn name(version: usize) -> String {
    format!("p.v{}", VERSIONS[version])
}

fn version(bundle: &str) -> VersionRelease {
    VersionRelease::parse(bundle.strip_prefix("p.v").unwrap(), None).unwrap()
}

fn property(kind: &str, value: &Value) -> Property {
    Property { kind: kind.to_owned(), value: to_raw_value(value).unwrap() }
}

fn requires_base() -> Property {
    property("olm.package.required", &json!({"packageName": "base", "versionRange": ">=1.0.0"}))
}

fn widget(kind: &str) -> Property {
    property(kind, &json!({"group": "g", "version": "v1", "kind": "Widget"}))
}

/// Properties of a bundle beyond its version: requires `base`, provides `Widget`, demands a new cluster.
fn bundle() -> impl Strategy<Value = (bool, bool, bool)> {
    (prop::bool::weighted(0.3), prop::bool::weighted(0.6), prop::bool::weighted(0.3))
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
    let traits = vec(bundle(), VERSIONS.len());
    (versions(), versions(), vec(vec(entry(), 0..5), CHANNELS.len()), traits).prop_map(
        |(offered, deprecated, channels, traits)| {
            let bundle = |version: usize| {
                let (requires, provides, demands) = traits[version];
                let value = json!({"packageName": "p", "version": VERSIONS[version]});
                let mut properties = vec![property("olm.package", &value)];
                properties.extend(requires.then(requires_base));
                properties.extend(provides.then(|| widget("olm.gvk")));
                properties.extend(
                    demands.then(|| property("olm.csv.metadata", &json!({"minKubeVersion": "2.0.0"}))),
                );
                Bundle { name: name(version), properties, ..Bundle::default() }
            };
            let channel = |(name, entries): (&&str, Vec<ChannelEntry>)| Channel {
                name: (*name).to_owned(),
                entries,
                ..Channel::default()
            };
            let deprecation = |version| DeprecationEntry {
                reference: DeprecationReference { schema: "olm.bundle".to_owned(), name: name(version) },
                message: String::new(),
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

/// Every rule beyond the reference, on or off.
#[derive(Debug, Clone)]
struct Settings {
    mode: DependencyMode,
    scope: Option<UpgradeScope>,
    exclude_skipped: bool,
    cluster: bool,
    best_effort: bool,
    base_installed: bool,
    widget_needed: bool,
}

fn settings() -> impl Strategy<Value = Settings> {
    let mode =
        prop::sample::select(vec![DependencyMode::Reject, DependencyMode::Report, DependencyMode::Check]);
    let scope = prop::option::of(prop::sample::select(vec![UpgradeScope::Patch, UpgradeScope::Minor]));
    (mode, scope, any::<[bool; 5]>()).prop_map(
        |(mode, scope, [exclude_skipped, cluster, best_effort, base_installed, widget_needed])| Settings {
            mode,
            scope,
            exclude_skipped,
            cluster,
            best_effort,
            base_installed,
            widget_needed,
        },
    )
}

impl Settings {
    fn reference() -> Self {
        Self {
            mode: DependencyMode::Reject,
            scope: None,
            exclude_skipped: false,
            cluster: false,
            best_effort: false,
            base_installed: false,
            widget_needed: false,
        }
    }
}

/// Request for package `p`.
#[derive(Debug, Clone, Default)]
struct Ask<'a> {
    installed: Option<&'a str>,
    channels: Vec<String>,
    constraint: Option<&'a str>,
    self_certified: bool,
}

fn ask() -> impl Strategy<Value = Ask<'static>> {
    let installed = prop::option::of(prop::sample::select(&VERSIONS[..]));
    let channel = prop::option::of(prop::sample::select(&CHANNELS[..]));
    let constraint = prop::option::of(prop::sample::select(&CONSTRAINTS[..]));
    (installed, channel, constraint, any::<bool>()).prop_map(
        |(installed, channel, constraint, self_certified)| Ask {
            installed,
            channels: channel.into_iter().map(str::to_owned).collect(),
            constraint,
            self_certified,
        },
    )
}

/// Resolves the request and checks the explanation.
fn answer(catalogs: &[Catalog], ask: &Ask<'_>, settings: &Settings) -> Result<Resolved, ResolveError> {
    let base = property("olm.package", &json!({"packageName": "base", "version": "1.0.0"}));
    let base = settings
        .base_installed
        .then(|| Provider::new(Some("base".to_owned()), "base.v1".to_owned(), vec![base]));
    let available = AvailableProviders { providers: base.into_iter().collect(), served: BTreeSet::new() };
    let dependents: Vec<_> = settings
        .widget_needed
        .then(|| Dependent {
            extension: "user".to_owned(),
            bundle: "user.v1".to_owned(),
            requirements: Requirement::all(&[widget("olm.gvk.required")]),
        })
        .into_iter()
        .collect();
    let facts = ClusterFacts::new("v1.30.0", BTreeSet::new());
    let bundle = ask.installed.map(|version| format!("p.v{version}"));
    let request = Request {
        package: "p",
        channels: &ask.channels,
        version: ask.constraint,
        policy: if ask.self_certified {
            UpgradePolicy::SelfCertified
        } else {
            UpgradePolicy::CatalogProvided
        },
        installed: bundle.as_deref().zip(ask.installed).map(|(name, version)| Installed {
            name,
            version,
            release: None,
        }),
        rules: Rules {
            dependencies: settings.mode,
            ignored_requirements: &[],
            providers: Some(&available),
            dependents: &dependents,
            group: None,
            upgrade_scope: settings.scope,
            exclude_skipped: settings.exclude_skipped,
            cluster: settings.cluster.then_some(&facts),
            best_effort: settings.best_effort,
        },
    };
    let result = resolve(&request, catalogs);
    fixture::check_explanation(&request, catalogs, &result);
    result
}

fn catalog(name: &str, priority: i32, content: &PackageContent) -> Catalog {
    let indexing = Indexing { properties: true, ..Indexing::default() };
    Catalog {
        name: name.to_owned(),
        priority,
        package: Ok(Some(Arc::new(PackageIndex::new(content, indexing)))),
    }
}

/// Three catalogs, of which the last can be unavailable.
fn catalogs(contents: &[PackageContent; 3], priorities: [i32; 3], down: bool) -> Vec<Catalog> {
    let mut all: Vec<_> = ["c0", "c1", "c2"]
        .iter()
        .zip(contents)
        .zip(priorities)
        .map(|((name, content), priority)| catalog(name, priority, content))
        .collect();
    if down {
        all[2].package = Err(CatalogError::NotServing("c2".to_owned()));
    }
    all
}

fn short(result: Result<Resolved, ResolveError>) -> Result<(String, String), String> {
    result.map(|resolved| (resolved.catalog, resolved.bundle)).map_err(|error| error.to_string())
}

/// Bundles of a package that channels, version and edges of a request admit, by docs/design/resolution.md#algorithm.
fn admitted<'a>(content: &'a PackageContent, ask: &Ask<'_>) -> Vec<&'a str> {
    let entries = |bundle: &str| {
        let bundle = bundle.to_owned();
        let channels =
            content.channels.iter().filter(|c| ask.channels.is_empty() || ask.channels.contains(&c.name));
        channels.flat_map(|channel| &channel.entries).filter(move |entry| entry.name == bundle)
    };
    let in_channel = |bundle: &&str| ask.channels.is_empty() || entries(bundle).next().is_some();
    let constraint = ask.constraint.map(|text| olm_version::Constraint::parse(text).unwrap());
    let in_range = |bundle: &&str| constraint.as_ref().is_none_or(|c| c.matches(version(bundle).version()));
    let follows = |bundle: &&str| {
        let Some(installed) = ask.installed.filter(|_| !ask.self_certified) else { return true };
        let from = format!("p.v{installed}");
        let edge = |entry: &ChannelEntry| {
            let range = olm_version::Range::parse(&entry.skip_range);
            entry.replaces == from
                || entry.skips.contains(&from)
                || range.is_ok_and(|range| range.contains(version(&from).version()))
        };
        version(bundle) == version(&from) || entries(bundle).any(edge)
    };
    let names = content.bundles.iter().map(|bundle| bundle.name.as_str());
    names.filter(in_channel).filter(in_range).filter(follows).collect()
}

fn is_deprecated(content: &PackageContent, bundle: &str) -> bool {
    content.deprecations[0].entries.iter().any(|entry| entry.reference.name == bundle)
}

/// Catalog and bundle that the reference chooses, `None` if it chooses nothing, by
/// docs/design/resolution.md#algorithm.
fn reference(
    contents: &[PackageContent; 3],
    priorities: [i32; 3],
    ask: &Ask<'_>,
) -> Option<(String, String)> {
    let mut candidates = Vec::new();
    for (index, content) in contents.iter().enumerate() {
        let best = admitted(content, ask)
            .into_iter()
            .max_by_key(|bundle| (!is_deprecated(content, bundle), version(bundle), (*bundle).to_owned()));
        candidates
            .extend(best.map(|bundle| (!is_deprecated(content, bundle), priorities[index], index, bundle)));
    }
    candidates.sort();
    let (good, priority, index, bundle) = candidates.pop()?;
    let tie = candidates.iter().any(|(other, p, ..)| (*other, *p) == (good, priority));
    let declares = contents[index].bundles.iter().find(|b| b.name == bundle).unwrap().properties.iter();
    let refused = declares.clone().any(|property| property.kind == "olm.package.required");
    (!tie && !refused).then(|| (format!("c{index}"), bundle.to_owned()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn default_rules_choose_like_the_reference(
        contents in [package(), package(), package()], priorities in [-1..2, -1..2, -1..2_i32], ask in ask(),
    ) {
        let got = answer(&catalogs(&contents, priorities, false), &ask, &Settings::reference());
        prop_assert_eq!(short(got).ok(), reference(&contents, priorities, &ask));
    }

    // docs/design/additions.md#downgrades
    #[test]
    fn offered_and_not_deprecated_bundle_is_never_downgraded(
        content in package(), installed in prop::sample::select(&VERSIONS[..]), settings in settings(),
    ) {
        let kept = format!("p.v{installed}");
        let offered = content.bundles.iter().any(|bundle| bundle.name == kept);
        if offered && !is_deprecated(&content, &kept) {
            let ask = Ask { installed: Some(installed), ..Ask::default() };
            match answer(&[catalog("c", 0, &content)], &ask, &settings) {
                Ok(chosen) => prop_assert!(chosen.version >= version(&kept), "{} to {}", kept, chosen.bundle),
                // Only the reference's rejection of dependencies can prevent that the bundle is kept.
                Err(ResolveError::Dependency { bundle, .. }) => {
                    prop_assert!(settings.mode == DependencyMode::Reject);
                    prop_assert!(version(&bundle) >= version(&kept));
                }
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
    }

    // docs/design/resolution.md#successors, with every rule.
    #[test]
    fn rules_choose_only_bundles_that_the_reference_admits(content in package(), ask in ask(), settings in settings()) {
        let Ok(chosen) = answer(&[catalog("c", 0, &content)], &ask, &settings) else { return Ok(()) };
        let admitted = admitted(&content, &ask);
        prop_assert!(admitted.contains(&chosen.bundle.as_str()), "{:?} of {:?}", chosen.bundle, admitted);
        // Held bundles are better than the chosen one, admitted, and not the installed version.
        for held in &chosen.held {
            prop_assert!(admitted.contains(&held.bundle.as_str()));
            let better = |bundle: &str| (!is_deprecated(&content, bundle), version(bundle));
            prop_assert!(better(&held.bundle) >= better(&chosen.bundle));
            let is_installed = ask.installed.is_some_and(|installed| version(&format!("p.v{installed}")) == version(&held.bundle));
            prop_assert!(!is_installed);
        }
    }

    #[test]
    fn order_of_catalogs_and_documents_does_not_change_the_choice(
        contents in [package(), package(), package()], priorities in [-1..2, -1..2, -1..2_i32],
        ask in ask(), settings in settings(), down in any::<bool>(),
    ) {
        let forward = answer(&catalogs(&contents, priorities, down), &ask, &settings);
        let mut turned = contents.clone();
        for content in &mut turned {
            content.bundles.reverse();
            content.channels.reverse();
            content.channels.iter_mut().for_each(|channel| channel.entries.reverse());
        }
        let mut backward = catalogs(&turned, priorities, down);
        backward.reverse();
        prop_assert_eq!(short(forward), short(answer(&backward, &ask, &settings)));
    }

    // docs/design/additions.md#best-effort-resolution
    #[test]
    fn best_effort_never_chooses_a_catalog_of_lower_priority(
        contents in [package(), package(), package()], priorities in [-1..2, -1..2, -1..2_i32], ask in ask(),
    ) {
        let settings = Settings { best_effort: true, ..Settings::reference() };
        let catalogs = catalogs(&contents, priorities, true);
        if let Ok(chosen) = answer(&catalogs, &ask, &settings) {
            let priority = catalogs.iter().find(|catalog| catalog.name == chosen.catalog).unwrap().priority;
            prop_assert!(priority >= priorities[2]);
            let names: Vec<_> = chosen.left_out.iter().map(|left_out| left_out.catalog.as_str()).collect();
            prop_assert_eq!(names, ["c2"]);
        }
    }
}
