//! Extensions that require the one to uninstall (docs/design/additions.md#dependents).

use std::collections::BTreeMap;

use kube::ResourceExt;
use olm_api::ClusterExtension;
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use olm_request::{ExtensionBundle, ExtensionRules, Settings, newest, owner, providers, unmet};

/// Requirements of other extensions for which operator-controller delays the deletion, each as a sentence.
///
/// # Errors
/// The cluster cannot be read.
pub(super) async fn dependents(
    cluster: &ClusterConnection,
    extension: &ClusterExtension,
    session: &Session,
) -> Result<Vec<String>, CliError> {
    let dependencies = ControllerArgs::read(cluster, session).await?.dependency_mode.unwrap_or_default();
    let settings = Settings { dependencies, ..Settings::default() };
    let rules = |of: &ClusterExtension| ExtensionRules::of(of.metadata.annotations.as_ref(), settings);
    let name = extension.name_any();
    let all = cluster.extensions(session).await?;
    let is_protected = |other: &&ClusterExtension| other.name_any() != name && rules(other).protect(other);
    let protected = all.iter().filter(is_protected).map(|other| (other.name_any(), rules(other)));
    let protected: BTreeMap<String, ExtensionRules> = protected.collect();
    if protected.is_empty() || rules(extension).ignore_dependents {
        return Ok(Vec::new());
    }
    let (sets, served) = (cluster.object_sets(session).await?, cluster.kinds(session).await?);
    let installed: Vec<ExtensionBundle> =
        newest(&sets).into_values().map(|set| ExtensionBundle::read(set).0).collect();
    let protects = |other: &str, type_: &str| protected.get(other).is_some_and(|rules| rules.counts(type_));
    let owners = sets.iter().filter_map(owner).collect();
    let (available, dependents) = providers(installed.iter(), &owners, &served, &name, protects);
    Ok(unmet(&available, &dependents))
}
