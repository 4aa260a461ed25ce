//! Upgrades of the extensions that block the platform (docs/design/operations.md#upgrade-targets).

use std::collections::BTreeSet;

use olm_api::ClusterExtension;
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use olm_platform::{Platform, UpgradeTarget};
use olm_request::request;
use olm_resolve::{Hop, Reach, Request};
use serde::Serialize;

use super::catalogs::{Catalogs, Reading};
use super::choice::rules_of;
use super::dependency_inputs::DependencyInputs;
use super::query::Query;

/// Upgrades of an extension to the highest version that does not block the platform.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlatformUpgrade {
    pub(crate) extension: String,
    /// Upgrades in their order. Empty if no bundle that upgrades lead to supports the version.
    pub(crate) steps: Vec<UpgradeStep>,
    /// `true` if the version range admits all steps.
    pub(crate) within_range: bool,
    /// `true` if operator-controller makes the upgrades by itself.
    pub(crate) automatic: bool,
}

/// One upgrade.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpgradeStep {
    pub(crate) bundle: String,
    pub(crate) version: String,
    pub(crate) catalog: String,
    pub(crate) image: String,
}

impl PlatformUpgrade {
    /// Version after the last step.
    pub(crate) fn version(&self) -> Option<&str> {
        self.steps.last().map(|step| step.version.as_str())
    }

    /// What to do, as a sentence.
    pub(crate) fn advice(&self) -> String {
        match self.version() {
            None => "No upgrade of the catalogs supports the next version: wait for one, or uninstall the extension."
                .to_owned(),
            Some(version) if self.automatic => {
                format!("operator-controller upgrades it to {version} by itself, which supports the next version.")
            }
            Some(version) if self.within_range => format!("Upgrade it to {version}, which supports the next version."),
            Some(version) => format!(
                "Upgrade it to {version}, which supports the next version. The version range of the extension does not admit it."
            ),
        }
    }

    /// Bundles of the steps, such as `kiwi.v1.1.0, kiwi.v1.2.0`.
    pub(crate) fn bundles(&self) -> String {
        self.steps.iter().map(|step| step.bundle.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// Requests of extensions of the cluster, with their catalogs and providers.
pub(super) struct Environment {
    pub(super) queries: Vec<Query>,
    pub(super) catalogs: Catalogs,
    pub(super) dependencies: DependencyInputs,
}

impl Environment {
    /// Reads the environment of these extensions. `None` if there are none.
    ///
    /// # Errors
    /// A catalog cannot be read, or a request is invalid.
    pub(super) async fn read(
        controller: &ControllerArgs,
        extensions: &[ClusterExtension],
        access: &Access,
        session: &Session,
    ) -> Result<Option<Self>, CliError> {
        let Some(first) = extensions.first() else { return Ok(None) };
        let rules = rules_of(controller, first)?;
        let queries = extensions.iter().map(|extension| Query::of_extension(extension, &rules));
        let queries: Vec<Query> = queries.collect::<Result<_, _>>()?;
        let judges = queries.iter().any(|query| query.rules.judges_dependencies());
        let reading = Reading {
            access,
            sources: &["cluster".to_owned()],
            priorities: Default::default(),
            packages: queries.iter().map(|query| query.package().to_owned()).collect::<BTreeSet<_>>(),
            others: judges,
            selectors: queries.iter().map(|query| &query.selector).collect(),
            indexing: rules.indexing()?,
        };
        let catalogs = reading.read(session).await?;
        let dependencies = match judges || rules.settings()?.cluster_constraints {
            true => DependencyInputs::of_cluster(&access.cluster.connect().await?, &rules, session).await?,
            false => DependencyInputs::default(),
        };
        Ok(Some(Self { queries, catalogs, dependencies }))
    }
}

/// Upgrades for each of the extensions, from the catalogs of the cluster.
///
/// # Errors
/// A catalog cannot be read, or a request is invalid.
pub(crate) async fn platform_upgrades(
    controller: &ControllerArgs,
    extensions: &[ClusterExtension],
    platform: &Platform,
    access: &Access,
    session: &Session,
) -> Result<Vec<PlatformUpgrade>, CliError> {
    let Some(environment) = Environment::read(controller, extensions, access, session).await? else {
        return Ok(Vec::new());
    };
    let Environment { queries, catalogs, dependencies } = environment;
    let upgrade = |query: &Query| {
        let cluster_state = dependencies.cluster_state(query, &catalogs);
        let request = request(&query.filter, query.installed.as_ref(), &query.rules, &cluster_state);
        let responses = catalogs.responses(query.package(), &query.selector);
        let reach = |request: &Request<'_>| Reach::new(request, &responses).map_err(CliError::no_candidate);
        let (within, beyond) = (reach(&request)?, reach(&Request { version: None, ..request })?);
        Ok(planned(query.name(), &within, &beyond, platform))
    };
    queries.iter().map(upgrade).collect()
}

/// Plan from the bundles that upgrades reach `within` the version range, and `beyond` it.
fn planned(extension: &str, within: &Reach, beyond: &Reach, platform: &Platform) -> PlatformUpgrade {
    let is_compatible =
        |hop: &Hop| UpgradeTarget::new(&hop.version, hop.offer.platform_limits()).is_compatible(platform);
    let inside = within.route(is_compatible);
    let within_range = !inside.is_empty();
    let route = if within_range { inside } else { beyond.route(is_compatible) };
    let step = |hop: &&Hop| UpgradeStep {
        bundle: hop.offer.name().to_owned(),
        version: hop.version.clone(),
        catalog: hop.catalog.clone(),
        image: hop.offer.image().to_owned(),
    };
    PlatformUpgrade {
        extension: extension.to_owned(),
        steps: route.iter().map(step).collect(),
        within_range,
        automatic: within_range && within.best_first().first().is_some_and(|best| is_compatible(best)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use olm_fbc::PackageContent;
    use olm_platform::Facts;
    use olm_resolve::{Catalog, Indexing, Installed, PackageIndex, Rules, UpgradePolicy};
    use serde_json::json;

    use super::*;

    /// Chain of bundles with these versions, each with the highest OpenShift version that it supports.
    fn catalog(limits: &[(&str, &str)]) -> Catalog {
        let entries = limits.iter().enumerate().map(|(index, (version, _))| {
            let before = index.checked_sub(1).map(|before| format!("p.v{}", limits[before].0));
            json!({"name": format!("p.v{version}"), "replaces": before.unwrap_or_default()})
        });
        let channel = json!({"schema": "olm.channel", "package": "p", "name": "stable",
            "entries": entries.collect::<Vec<_>>()});
        let bundles = limits.iter().map(|(version, limit)| {
            let package = json!({"packageName": "p", "version": version});
            json!({"schema": "olm.bundle", "package": "p", "name": format!("p.v{version}"), "image": "i",
                "properties": [{"type": "olm.package", "value": package},
                    {"type": "olm.maxOpenShiftVersion", "value": limit}]})
        });
        let metas: Vec<String> = bundles.chain([channel]).map(|meta| meta.to_string()).collect();
        let content = PackageContent::from_metas("p", metas.iter().map(String::as_bytes)).unwrap();
        let package = Arc::new(PackageIndex::new(&content, Indexing::default()));
        Catalog { name: "hub".to_owned(), priority: 0, package: Ok(Some(package)) }
    }

    #[test]
    fn platform_upgrade_plan_prefers_bundles_within_version_range() {
        let catalogs =
            [catalog(&[("1.0.0", "4.18"), ("1.1.0", "4.18"), ("1.2.0", "4.19"), ("2.0.0", "4.18")])];
        let platform = Platform::of(&Facts {
            openshift_apis: true,
            cluster_version: "4.18".parse().ok(),
            ..Facts::default()
        });
        let plan = |range: Option<&str>, platform: &Platform| {
            let request = Request {
                package: "p",
                channels: &[],
                version: range,
                policy: UpgradePolicy::CatalogProvided,
                installed: Some(Installed { name: "p.v1.0.0", version: "1.0.0", release: None }),
                rules: Rules::default(),
            };
            let reach = |request: &Request<'_>| Reach::new(request, &catalogs).unwrap();
            let plan =
                planned("e", &reach(&request), &reach(&Request { version: None, ..request }), platform);
            (plan.bundles(), plan.within_range, plan.automatic)
        };
        let steps = || "p.v1.1.0, p.v1.2.0".to_owned();
        assert_eq!(plan(Some("1.x"), &platform), (steps(), true, true));
        // operator-controller would go on to 2.0.0, which blocks.
        assert_eq!(plan(None, &platform), (steps(), true, false));
        assert_eq!(plan(Some("1.0.0"), &platform), (steps(), false, false));
        let further = platform.towards("4.20".parse().ok(), None);
        assert_eq!(plan(Some("1.x"), &further), (String::new(), false, false));
    }
}
