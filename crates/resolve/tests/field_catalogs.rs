//! Resolution over real catalogs: every package, every bundle as the installed one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use olm_fbc::PackageContent;
use olm_resolve::{Catalog, Installed, PackageIndex, Request, ResolveError, UpgradePolicy, resolve};

#[test]
fn real_packages_resolve_and_never_go_down() {
    let Some(data) = std::env::var_os("OLM_FIELD_DATA") else {
        say("SKIPPED real_packages_resolve_and_never_go_down: OLM_FIELD_DATA is unset");
        return;
    };
    let packages = packages(&PathBuf::from(data).join("catalogs"));
    assert!(!packages.is_empty(), "no package found");
    let (mut bundles, mut upgrades) = (0, 0);
    for (name, index) in &packages {
        for offer in index.offers() {
            let version = offer.version().unwrap_or_else(|fault| panic!("{}: {fault}", offer.name()));
            bundles += 1;
            match choose(name, index, offer.name(), &version.shown(false).0) {
                Ok(chosen) => {
                    upgrades += usize::from(chosen > *version);
                    // spec 08 R-1
                    assert!(
                        chosen >= *version || offer.deprecated(),
                        "{} goes down to {chosen:?}",
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
    };
    let catalog = Catalog { name: "field".to_owned(), priority: 0, package: Ok(Some(Arc::clone(index))) };
    resolve(&request, &[catalog]).map(|resolved| resolved.version)
}

fn packages(folder: &Path) -> BTreeMap<String, Arc<PackageIndex>> {
    let mut objects = Vec::new();
    read_objects(folder, &mut objects);
    let names: BTreeSet<_> = objects
        .iter()
        .filter(|object| object["schema"] == olm_fbc::SCHEMA_PACKAGE)
        .map(|object| object["name"].as_str().unwrap().to_owned())
        .collect();
    let lines: Vec<_> = objects.iter().map(|object| object.to_string().into_bytes()).collect();
    let index = |name: &String| {
        let content = PackageContent::from_metas(name, lines.iter().map(Vec::as_slice)).unwrap();
        Arc::new(PackageIndex::new(&content, false))
    };
    names.iter().map(|name| (name.clone(), index(name))).collect()
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

/// Prints past the test runner's capture: the line is for whoever runs the tests.
fn say(line: &str) {
    use std::io::Write;
    // Nothing can be said where standard output is closed.
    let _ = writeln!(std::io::stdout(), "{line}");
}
