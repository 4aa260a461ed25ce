//! Resolution over catalogs from the field: every package, with every bundle as the installed one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod fixture;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use olm_fbc::PackageContent;
use olm_resolve::{
    AvailableProviders, Catalog, DependencyMode, Indexing, Installed, PackageIndex, Request, ResolveError,
    Rules, UpgradePolicy, resolve,
};

#[test]
fn field_packages_resolve_without_downgrades() {
    let Some(data) = olm_require::field_data() else { return };
    let packages = packages(&data.join("catalogs"));
    assert!(!packages.is_empty(), "no package found");
    let (mut bundles, mut upgrades) = (0, 0);
    for (name, index) in &packages {
        for offer in index.offers() {
            let version = offer.version().unwrap_or_else(|fault| panic!("{}: {fault}", offer.name()));
            bundles += 1;
            match choose(name, index, offer.name(), &version.shown(false).0) {
                Ok(chosen) => {
                    upgrades += usize::from(chosen > *version);
                    // docs/design/additions.md#downgrades
                    assert!(
                        chosen >= *version || offer.deprecated(),
                        "{} is downgraded to {chosen:?}",
                        offer.name()
                    );
                }
                Err(ResolveError::Dependency { bundle, .. }) => {
                    let refused = index.offers().find(|offer| offer.name() == bundle).unwrap();
                    assert!(refused.dependency().is_some(), "{bundle}");
                }
                Err(error) => panic!("{name}, from {}: {error}", offer.name()),
            }
        }
    }
    say(&format!("{} packages, {bundles} bundles, {upgrades} of them have an upgrade", packages.len()));
}

// docs/design/additions.md#dependency-modes: with nothing else installed, Check chooses only bundles without
// requirements.
#[test]
fn field_packages_are_checked_without_other_extensions() {
    let Some(data) = olm_require::field_data() else { return };
    let (mut chosen, mut lower, mut refused) = (0, 0, 0);
    let nothing = AvailableProviders::default();
    for (name, content) in contents(&data.join("catalogs")) {
        let indexing = Indexing { properties: true, ..Indexing::default() };
        let index = Arc::new(PackageIndex::new(&content, indexing));
        let best = index.offers().next().map(|offer| offer.name().to_owned());
        let catalogs = [Catalog { name: "field".to_owned(), priority: 0, package: Ok(Some(index)) }];
        let rules =
            Rules { dependencies: DependencyMode::Check, providers: Some(&nothing), ..Rules::default() };
        let policy = UpgradePolicy::CatalogProvided;
        let request =
            Request { package: &name, channels: &[], version: None, policy, installed: None, rules };
        let result = resolve(&request, &catalogs);
        fixture::check_explanation(&request, &catalogs, &result);
        match result {
            Ok(resolved) => {
                assert!(resolved.requirements.is_empty(), "{name}: {:?}", resolved.requirements);
                chosen += 1;
                lower += usize::from(Some(resolved.bundle) != best);
            }
            Err(ResolveError::DependenciesNotSatisfied { held, .. }) => {
                assert_eq!(held.len(), content.bundles.len(), "{name}");
                refused += 1;
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
    say(&format!(
        "checked: {chosen} packages have a choice, {lower} of them a lower one, {refused} have none"
    ));
}

#[test]
fn field_package_resolution_time_is_printed() {
    let Some(data) = olm_require::field_data() else { return };
    let packages = packages(&data.join("catalogs"));
    let (name, index) = packages.iter().max_by_key(|(_, index)| index.offers().count()).unwrap();
    let start = std::time::Instant::now();
    let mut answers = 0;
    for offer in index.offers() {
        let _ = choose(name, index, offer.name(), &offer.version().unwrap().shown(false).0);
        answers += 1;
    }
    say(&format!("{name}: {answers} bundles, an answer takes {:?}", start.elapsed() / answers));
}

fn choose(
    package: &str,
    index: &Arc<PackageIndex>,
    name: &str,
    version: &str,
) -> Result<olm_version::VersionRelease, ResolveError> {
    let request = Request {
        package,
        channels: &[],
        version: None,
        policy: UpgradePolicy::CatalogProvided,
        installed: Some(Installed { name, version, release: None }),
        rules: Rules::default(),
    };
    let catalog = Catalog { name: "field".to_owned(), priority: 0, package: Ok(Some(Arc::clone(index))) };
    resolve(&request, &[catalog]).map(|resolved| resolved.version)
}

fn packages(folder: &Path) -> BTreeMap<String, Arc<PackageIndex>> {
    let index = |content: &PackageContent| Arc::new(PackageIndex::new(content, Indexing::default()));
    contents(folder).iter().map(|(name, content)| (name.clone(), index(content))).collect()
}

fn contents(folder: &Path) -> BTreeMap<String, PackageContent> {
    let mut objects = Vec::new();
    read_objects(folder, &mut objects);
    let mut lines: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for object in &objects {
        let owner =
            if object["schema"] == olm_fbc::SCHEMA_PACKAGE { &object["name"] } else { &object["package"] };
        lines.entry(owner.as_str().unwrap().to_owned()).or_default().push(object.to_string().into_bytes());
    }
    let content = |(name, lines): (String, Vec<Vec<u8>>)| {
        let content = PackageContent::from_metas(&name, lines.iter().map(Vec::as_slice)).unwrap();
        (name, content)
    };
    lines.into_iter().map(content).collect()
}

fn read_objects(folder: &Path, objects: &mut Vec<serde_json::Value>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_objects(&path, objects);
        } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "json") {
            let text = std::fs::read(&path).unwrap();
            objects.extend(
                olm_yaml::all_from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display())),
            );
        }
    }
}

/// Prints to standard output, past the capture of the test runner.
fn say(line: &str) {
    use std::io::Write;
    // Ignore a closed standard output.
    let _ = writeln!(std::io::stdout(), "{line}");
}
