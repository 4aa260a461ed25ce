//! Reads classic OLM and what it owns. Of most kinds only the metadata: contents of Secrets are not needed.

use olm_api::labels;
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::{ObjectAccess, ObjectId};
use serde_json::Value;

use super::super::backup;
use super::super::dependents::classic_dependents;
use super::super::detach::has_records;
use super::removal::{DEPLOYMENTS, Found};

/// Kinds of classic OLM, in the order of their deletion after the Subscriptions.
const CLASSIC_KINDS: [(&str, &str); 7] = [
    ("operators.coreos.com/v1alpha1", "InstallPlan"),
    CSV,
    ("operators.coreos.com/v1alpha1", "CatalogSource"),
    ("operators.coreos.com/v1", "OperatorGroup"),
    ("operators.coreos.com/v2", "OperatorCondition"),
    ("operators.coreos.com/v1", "Operator"),
    ("operators.coreos.com/v1", "OLMConfig"),
];
const SUBSCRIPTION: (&str, &str) = ("operators.coreos.com/v1alpha1", "Subscription");
const CSV: (&str, &str) = ("operators.coreos.com/v1alpha1", "ClusterServiceVersion");
/// Kinds of the parts of classic OLM, and of objects with its labels.
const PART_KINDS: [(&str, &str); 4] = [
    ("v1", "ServiceAccount"),
    ("v1", "Namespace"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("apiregistration.k8s.io/v1", "APIService"),
];
/// Kinds of which the role is needed, too.
const BINDINGS: [(&str, &str); 2] =
    [("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"), ("rbac.authorization.k8s.io/v1", "RoleBinding")];
const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
const SECRET: (&str, &str) = ("v1", "Secret");
const CRD: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");

/// Reads classic OLM and what it owns.
///
/// # Errors
/// The API server does not answer, or denies access.
pub(super) async fn read(access: &ObjectAccess<'_>, backups: &[(String, String)]) -> Result<Found, CliError> {
    // The spec of a Subscription has the package.
    let mut found = Found { classic: access.list(SUBSCRIPTION, "", None).await?, ..Found::default() };
    for kind in CLASSIC_KINDS {
        found.classic.extend(access.metadata(kind, "", None).await?);
    }
    // Bindings are deleted first: without their roles, another run could not tell to what they belong.
    for kind in BINDINGS {
        found.others.extend(access.list(kind, "", None).await?);
    }
    for kind in PART_KINDS {
        found.others.extend(access.metadata(kind, "", None).await?);
    }
    let listed = [&PART_KINDS[..], &BINDINGS, &[DEPLOYMENT, CRD]].concat();
    let is_listed = |object: &Value| listed.iter().any(|(_, kind)| object["kind"] == *kind);
    let dependents = classic_dependents(access, "").await?;
    // Objects of such a kind would be deleted with their owner.
    if let Some(kind) = dependents.unlisted.into_iter().next() {
        return Err(CliError::operational(kind.why));
    }
    let certificates = access.metadata(SECRET, "", Some(labels::EXT_WEBHOOK_CERTIFICATE)).await?;
    found.others.extend(certificates.into_iter().filter(has_records));
    found.others.extend(dependents.objects.into_iter().filter(|object| !is_listed(object)));
    found.deployments = access.list(DEPLOYMENT, "", None).await?;
    found.crds = access.metadata(CRD, "", None).await?;
    found.is_openshift =
        !access.metadata(("config.openshift.io/v1", "ClusterVersion"), "", None).await?.is_empty();
    for (namespace, package) in backups {
        if let Some(read) = backup::read(access, namespace, package).await?
            && !backup::is_complete(access, &read.plan).await?
        {
            found.incomplete.push(format!("{namespace}/{package}"));
        }
    }
    Ok(found)
}

/// Reads only what shows that classic OLM is in use.
///
/// # Errors
/// The API server does not answer, or denies access.
pub(super) async fn installed(access: &ObjectAccess<'_>) -> Result<Found, CliError> {
    let mut classic = access.list(SUBSCRIPTION, "", None).await?;
    classic.extend(access.metadata(CSV, "", None).await?);
    Ok(Found { classic, ..Found::default() })
}

/// Pods of classic OLM's Deployments in their namespace.
///
/// # Errors
/// The API server does not answer, or denies access.
pub(super) async fn pods(access: &ObjectAccess<'_>, home: &str) -> Result<Vec<ObjectId>, CliError> {
    let selector = format!("app in ({})", DEPLOYMENTS.join(","));
    let pods = access.metadata(("v1", "Pod"), home, Some(&selector)).await?;
    Ok(pods.iter().map(ObjectId::of).collect())
}
