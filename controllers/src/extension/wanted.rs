//! Which bundle an extension shall have (spec 05 §3.4, spec 03 §2). Pure, but for the first look into a package.

use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::cluster_extension::{BundleMetadata, CatalogFilter, UpgradeConstraintPolicy};
use olm_api::{ClusterCatalog, LabelSelector};
use olm_resolve::{
    Catalog, CatalogError, CatalogSelector, Expression, Installed, PackageIndex, Request, ResolveError,
    Resolved, SelectorError, Target, UpgradePolicy, resolve, target,
};
use olm_version::{Constraint, VersionRelease};
use std::sync::Arc;

use super::revisions::{Revision, RevisionStates};
use super::status::Knowledge;
use crate::failure::Failure;

/// The bundle that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    /// Name, version and release as `status.install.bundle` shows them.
    pub bundle: BundleMetadata,
    /// Package of the bundle.
    pub package: String,
    /// Image of the bundle.
    pub image: String,
    /// What is known of deprecation.
    pub deprecation: Knowledge,
}

impl Wanted {
    fn revision(revision: &Revision, deprecation: Knowledge) -> Self {
        Self {
            bundle: revision.bundle.clone(),
            package: revision.package.clone(),
            image: revision.image.clone(),
            deprecation,
        }
    }

    fn resolved(resolved: &Resolved, filter: &CatalogFilter, release_support: bool) -> Self {
        let (version, release) = resolved.version.shown(release_support);
        Self {
            bundle: BundleMetadata { name: resolved.bundle.clone(), version, release },
            package: filter.package_name.clone(),
            image: resolved.image.clone(),
            deprecation: Knowledge::Catalog(resolved.deprecations().clone(), filter.channels.clone()),
        }
    }
}

/// Why nothing could be chosen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    /// The resolver's text.
    pub(crate) failure: Failure,
    /// Some catalog's content is not here yet; there will be another look when it is.
    pub(crate) awaits_content: bool,
}

/// What a choice depends on besides the extension.
pub(crate) struct Market<'a, F> {
    /// All ClusterCatalogs.
    pub catalogs: &'a [Arc<ClusterCatalog>],
    /// The content of a package in a catalog.
    pub package: F,
    /// Gate `BundleReleaseSupport`.
    pub release_support: bool,
}

/// Chooses the bundle.
///
/// A revision that is rolling out stays the target while its version is within the wanted range, unless the
/// extension has `changed` since it was last looked at (spec 05 §18.1). Where no catalog matches any more, the
/// installed bundle stays the target if the wanted range admits its version (spec 05 §18.16).
///
/// # Errors
/// The resolver's text, with what is known of deprecation.
pub(crate) fn choose<F>(
    filter: &CatalogFilter,
    states: &RevisionStates,
    changed: bool,
    market: &Market<'_, F>,
) -> Result<Wanted, Refusal>
where
    F: Fn(&ClusterCatalog, &str) -> Result<Option<Arc<PackageIndex>>, CatalogError>,
{
    if let Some(rolling) = states.rolling_out.last()
        && !changed
        && admits(filter, &rolling.bundle)
    {
        return Ok(Wanted::revision(rolling, Knowledge::Unchanged));
    }
    let installed = states.installed.as_ref();
    let request = Request {
        package: &filter.package_name,
        channels: &filter.channels,
        version: filter.version.as_deref(),
        policy: match filter.upgrade_constraint_policy {
            Some(UpgradeConstraintPolicy::SelfCertified) => UpgradePolicy::SelfCertified,
            _ => UpgradePolicy::CatalogProvided,
        },
        installed: installed.map(|revision| Installed {
            name: &revision.bundle.name,
            version: &revision.bundle.version,
            release: revision.bundle.release.as_deref(),
        }),
    };
    let (resolution, catalog_exists) = match selector(filter.selector.as_ref()) {
        Err(fault) => (Err(ResolveError::Selector(fault)), true),
        Ok(selector) => {
            let unlabelled = std::collections::BTreeMap::new();
            let matching: Vec<&ClusterCatalog> = market
                .catalogs
                .iter()
                .map(|catalog| &**catalog)
                .filter(|catalog| selector.matches(catalog.metadata.labels.as_ref().unwrap_or(&unlabelled)))
                .collect();
            let asked: Vec<Catalog> = matching
                .iter()
                .filter(|catalog| catalog.spec.availability_mode != Some(AvailabilityMode::Unavailable))
                .map(|catalog| Catalog {
                    name: catalog.metadata.name.clone().unwrap_or_default(),
                    priority: catalog.spec.priority.unwrap_or(0),
                    package: (market.package)(catalog, &filter.package_name),
                })
                .collect();
            (resolve(&request, &asked), !matching.is_empty())
        }
    };
    // Without catalogs nothing new can be chosen: what is under way, or else installed, stays.
    let kept = states
        .rolling_out
        .last()
        .or(installed)
        .filter(|kept| !catalog_exists && admits(filter, &kept.bundle));
    match target(&request, resolution, catalog_exists) {
        Target::Bundle(resolved) => Ok(Wanted::resolved(&resolved, filter, market.release_support)),
        Target::Retry(error) | Target::Installed(error) => match kept {
            Some(kept) => Ok(Wanted::revision(kept, Knowledge::None)),
            None => {
                let awaits_content =
                    matches!(error, ResolveError::Catalog { fault: CatalogError::NotCached(_), .. });
                Err(Refusal { failure: Failure::retry(error), awaits_content })
            }
        },
    }
}

/// Whether the wanted range admits the bundle's version; no range admits every version.
fn admits(filter: &CatalogFilter, bundle: &BundleMetadata) -> bool {
    let Some(range) = filter.version.as_deref().filter(|range| !range.is_empty()) else {
        return true;
    };
    let version = VersionRelease::parse(&bundle.version, bundle.release.as_deref());
    match (Constraint::parse(range), version) {
        (Ok(constraint), Ok(version)) => constraint.matches(version.version()),
        _ => false,
    }
}

fn selector(selector: Option<&LabelSelector>) -> Result<CatalogSelector, SelectorError> {
    let Some(selector) = selector else {
        return Ok(CatalogSelector::default());
    };
    let none = Vec::new();
    let expressions =
        selector.match_expressions.as_ref().unwrap_or(&none).iter().map(|expression| Expression {
            key: &expression.key,
            operator: &expression.operator,
            values: expression.values.as_deref().unwrap_or_default(),
        });
    CatalogSelector::new(selector.match_labels.iter().flatten(), expressions)
}

#[cfg(test)]
mod tests {
    use olm_fbc::PackageContent;
    use serde_json::json;

    use super::super::revisions::{states, tests::set};
    use super::*;

    fn filter(more: serde_json::Value) -> CatalogFilter {
        let mut filter = json!({"packageName": "demo"});
        filter.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(filter).unwrap()
    }

    /// A catalog with the bundles `demo.v1.0.0` to `demo.v3.0.0`, each replacing the one before.
    fn index() -> Arc<PackageIndex> {
        let mut lines = vec![json!({"schema": "olm.package", "name": "demo"})];
        let entry =
            |n: i32| json!({"name": format!("demo.v{n}.0.0"), "replaces": format!("demo.v{}.0.0", n - 1)});
        lines.push(json!({"schema": "olm.channel", "package": "demo", "name": "stable",
            "entries": [entry(1), entry(2), entry(3)]}));
        for n in 1..=3 {
            let version = json!({"packageName": "demo", "version": format!("{n}.0.0")});
            lines.push(json!({"schema": "olm.bundle", "package": "demo", "name": format!("demo.v{n}.0.0"),
                "image": format!("r.example/demo:v{n}"), "properties": [{"type": "olm.package", "value": version}]}));
        }
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let content = PackageContent::from_metas("demo", lines.iter().map(|line| line.as_bytes())).unwrap();
        Arc::new(PackageIndex::new(&content, false))
    }

    fn catalogs(names: &[&str]) -> Vec<Arc<ClusterCatalog>> {
        let catalog = |name: &&str| {
            let catalog = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
                "metadata": {"name": name}, "spec": {"source": {"type": "Image", "image": {"ref": "r.example/c:1"}}}});
            Arc::new(serde_json::from_value(catalog).unwrap())
        };
        names.iter().map(catalog).collect()
    }

    fn version(
        more: serde_json::Value,
        sets: &[Arc<olm_api::ClusterObjectSet>],
        changed: bool,
        names: &[&str],
    ) -> Result<String, String> {
        let all = catalogs(names);
        let package = |_: &ClusterCatalog, _: &str| Ok(Some(index()));
        let market = Market { catalogs: &all, package, release_support: false };
        let wanted = choose(&filter(more), &states(sets), changed, &market);
        wanted.map(|wanted| wanted.bundle.version).map_err(|refusal| refusal.failure.message)
    }

    #[test]
    fn the_resolver_decides() {
        assert_eq!(version(json!({}), &[], false, &["main"]).unwrap(), "3.0.0");
        assert_eq!(version(json!({}), &[set(1, "Active", true)], false, &["main"]).unwrap(), "2.0.0");
        let error = version(json!({"version": "9.0.0"}), &[], false, &["main"]).unwrap_err();
        assert_eq!(error, "no bundles found for package \"demo\" matching version \"9.0.0\"");
        let error = version(json!({}), &[], false, &["a", "b"]).unwrap_err();
        assert!(error.ends_with("in multiple catalogs with the same priority [a b]"), "{error}");
        let selector = json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Bad"}]}});
        let error = version(selector, &[], false, &["main"]).unwrap_err();
        assert_eq!(
            error,
            "desired catalog selector is invalid: \"Bad\" is not a valid label selector operator"
        );
    }

    // spec 05 acceptance 13, §18.1
    #[test]
    fn a_rollout_goes_on_while_it_is_wanted() {
        let rolling = [set(1, "Active", true), set(2, "Active", false)];
        assert_eq!(version(json!({}), &rolling, false, &[]).unwrap(), "2.0.0");
        assert_eq!(version(json!({"version": ">=2"}), &rolling, false, &[]).unwrap(), "2.0.0");
        assert_eq!(version(json!({"version": "1.0.0"}), &rolling, false, &["main"]).unwrap(), "1.0.0");
        let three = json!({"version": "3.0.0", "upgradeConstraintPolicy": "SelfCertified"});
        assert_eq!(version(three, &rolling, false, &["main"]).unwrap(), "3.0.0");
        assert_eq!(version(json!({}), &rolling, true, &["main"]).unwrap(), "2.0.0");
        // An edit while there are no catalogs must not send it back.
        assert_eq!(version(json!({}), &rolling, true, &[]).unwrap(), "2.0.0");
    }

    // spec 05 acceptance 20, 22, 23; spec 03 acceptance 47, 48
    #[test]
    fn without_catalogs_the_installed_bundle_stays() {
        let installed = [set(1, "Active", true)];
        for wanted in [json!({}), json!({"version": "1.0.0"}), json!({"version": "1.x"})] {
            assert_eq!(version(wanted, &installed, false, &[]).unwrap(), "1.0.0");
        }
        let error = version(json!({"version": "2.0.0"}), &installed, false, &[]).unwrap_err();
        assert!(error.starts_with("error upgrading from currently installed version \"1.0.0\": "), "{error}");
        assert!(version(json!({}), &[], false, &[]).is_err());
    }
}
