//! Resolver request of an extension and the ClusterCatalogs that it queries (docs/design/resolution.md#fetch-errors,
//! docs/design/resolution.md#served-catalogs, docs/design/apply.md#choice-of-the-bundle).

use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::cluster_extension::{BundleMetadata, CatalogFilter, UpgradeConstraintPolicy};
use olm_api::conditions::types;
use olm_api::{ClusterCatalog, LabelSelector};
use olm_resolve::{
    AvailableProviders, CatalogError, CatalogSelector, ClusterFacts, Dependent, Expression, GroupStep,
    Installed, Request, Rules, SelectorError, UpgradePolicy,
};

use super::rules::ExtensionRules;

/// State of the cluster that the rules of an extension depend on. The default is empty, for rules that ignore it.
#[derive(Debug, Default)]
pub struct ClusterState {
    /// Providers that can meet requirements. `None` unless dependencies are judged.
    pub providers: Option<AvailableProviders>,
    /// Other extensions with requirements on this one.
    pub dependents: Vec<Dependent>,
    /// Step of the upgrade group, if the extension has one.
    pub group: Option<GroupStep>,
    /// Facts for cluster constraints of bundles. `None` unless these are evaluated.
    pub cluster: Option<ClusterFacts>,
}

/// Builds the resolver request for this `spec.source.catalog` and this installed bundle.
pub fn request<'a>(
    filter: &'a CatalogFilter,
    installed: Option<&'a BundleMetadata>,
    rules: &'a ExtensionRules,
    state: &'a ClusterState,
) -> Request<'a> {
    let settings = &rules.settings;
    Request {
        package: &filter.package_name,
        channels: &filter.channels,
        version: filter.version.as_deref(),
        policy: policy(filter),
        installed: installed.map(|bundle| Installed {
            name: &bundle.name,
            version: &bundle.version,
            release: bundle.release.as_deref(),
        }),
        rules: Rules {
            dependencies: settings.dependencies,
            ignored_requirements: &rules.ignored_requirements,
            providers: state.providers.as_ref(),
            dependents: if rules.ignore_dependents { &[] } else { &state.dependents },
            group: state.group.as_ref(),
            upgrade_scope: rules.upgrade_scope,
            exclude_skipped: rules.exclude_skipped,
            cluster: state.cluster.as_ref(),
            best_effort: settings.best_effort,
        },
    }
}

/// Upgrade policy of the extension. An unknown policy means the default one.
pub fn policy(filter: &CatalogFilter) -> UpgradePolicy {
    match filter.upgrade_constraint_policy {
        Some(UpgradeConstraintPolicy::SelfCertified) => UpgradePolicy::SelfCertified,
        _ => UpgradePolicy::CatalogProvided,
    }
}

/// Label selector of the extension's catalogs. Without one, all catalogs are selected.
///
/// # Errors
/// An operator, key or value is not allowed.
pub fn selector(selector: Option<&LabelSelector>) -> Result<CatalogSelector, SelectorError> {
    let Some(selector) = selector else {
        return Ok(CatalogSelector::default());
    };
    let expressions = selector.match_expressions.iter().flatten().map(|expression| Expression {
        key: &expression.key,
        operator: &expression.operator,
        values: expression.values.as_deref().unwrap_or_default(),
    });
    CatalogSelector::new(selector.match_labels.iter().flatten(), expressions)
}

/// `true` unless `availabilityMode` is `Unavailable`. A disabled catalog counts as selected, but is not queried.
pub fn is_available(catalog: &ClusterCatalog) -> bool {
    catalog.spec.availability_mode != Some(AvailabilityMode::Unavailable)
}

/// Priority of the catalog. Higher is preferred.
pub fn priority(catalog: &ClusterCatalog) -> i32 {
    catalog.spec.priority.unwrap_or(0)
}

/// Resolved image whose content the catalog serves.
///
/// # Errors
/// The catalog serves no content. The texts are those of docs/design/resolution.md#fetch-errors.
pub fn served_image(catalog: &ClusterCatalog) -> Result<&str, CatalogError> {
    let name = || catalog.metadata.name.clone().unwrap_or_default();
    let status = catalog.status.as_ref().filter(|_| catalog.is_true(types::SERVING));
    let status = status.ok_or_else(|| CatalogError::NotServing(name()))?;
    let source = status.resolved_source.as_ref().ok_or_else(|| CatalogError::NoResolvedSource(name()))?;
    Ok(&source.image.ref_)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn filter(more: &Value) -> CatalogFilter {
        let mut filter = json!({"packageName": "demo"});
        filter.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(filter).unwrap()
    }

    fn catalog(more: &Value) -> ClusterCatalog {
        let mut catalog = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": "main"}, "spec": {"source": {"type": "Image", "image": {"ref": "r.example/c:1"}}}});
        for (key, value) in more.as_object().unwrap() {
            match key.as_str() {
                "status" => catalog["status"] = value.clone(),
                _ => catalog["spec"][key] = value.clone(),
            }
        }
        serde_json::from_value(catalog).unwrap()
    }

    #[test]
    fn catalog_filter_becomes_a_request() {
        let (rules, state) = (ExtensionRules::default(), ClusterState::default());
        let plain = filter(&json!({}));
        let asked = request(&plain, None, &rules, &state);
        assert_eq!(
            (asked.package, asked.version, asked.policy),
            ("demo", None, UpgradePolicy::CatalogProvided)
        );
        assert!(asked.channels.is_empty() && asked.installed.is_none() && asked.rules.providers.is_none());
        let full = filter(
            &json!({"version": "1.x", "channels": ["stable"], "upgradeConstraintPolicy": "SelfCertified"}),
        );
        let bundle = BundleMetadata {
            name: "demo.v1".to_owned(),
            version: "1.0.0".to_owned(),
            release: Some("2".to_owned()),
        };
        let asked = request(&full, Some(&bundle), &rules, &state);
        assert_eq!((asked.version, asked.channels), (Some("1.x"), &["stable".to_owned()][..]));
        assert_eq!(asked.policy, UpgradePolicy::SelfCertified);
        let installed = asked.installed.unwrap();
        assert_eq!((installed.name, installed.version, installed.release), ("demo.v1", "1.0.0", Some("2")));
        assert_eq!(
            policy(&filter(&json!({"upgradeConstraintPolicy": "Later"}))),
            UpgradePolicy::CatalogProvided
        );
    }

    #[test]
    fn ignore_dependents_empties_the_dependents() {
        let dependent =
            Dependent { extension: "a".to_owned(), bundle: "a.v1".to_owned(), requirements: Vec::new() };
        let state = ClusterState { dependents: vec![dependent], ..ClusterState::default() };
        let plain = filter(&json!({}));
        for (ignore_dependents, count) in [(false, 1), (true, 0)] {
            let rules = ExtensionRules { ignore_dependents, ..ExtensionRules::default() };
            assert_eq!(request(&plain, None, &rules, &state).rules.dependents.len(), count);
        }
    }

    // Cases resolution-26, resolution-28
    #[test]
    fn catalogs_are_disabled_by_mode_and_ordered_by_priority() {
        for (more, on, number) in [
            (json!({}), true, 0),
            (json!({"availabilityMode": "Available", "priority": -3}), true, -3),
            (json!({"availabilityMode": "Unavailable", "priority": 7}), false, 7),
        ] {
            let catalog = catalog(&more);
            assert_eq!((is_available(&catalog), priority(&catalog)), (on, number), "{more}");
        }
    }

    #[test]
    fn catalog_without_content_returns_an_error() {
        let serving = |status: &str| {
            json!([{"type": "Serving", "status": status, "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        let source = json!({"type": "Image", "image": {"ref": "r.example/c@sha256:1"}});
        let not_serving = Err(CatalogError::NotServing("main".to_owned()));
        for (more, expected) in [
            (json!({}), not_serving.clone()),
            (json!({"status": {"conditions": serving("False"), "resolvedSource": source}}), not_serving),
            (
                json!({"status": {"conditions": serving("True")}}),
                Err(CatalogError::NoResolvedSource("main".to_owned())),
            ),
            (
                json!({"status": {"conditions": serving("True"), "resolvedSource": source}}),
                Ok("r.example/c@sha256:1"),
            ),
        ] {
            assert_eq!(served_image(&catalog(&more)), expected, "{more}");
        }
    }
}
