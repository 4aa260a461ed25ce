//! Reads classic OLM and what it owns. Of most kinds only the metadata: contents of Secrets are not needed.

use kube::api::{Api, DynamicObject, ListParams, PartialObjectMeta};
use olm_revision::cluster::Reason;
use olm_revision::kube_cluster::KubeCluster;
use olm_runtime::cluster::list_all;
use serde_json::{Value, json};

use super::super::access::{ObjectAccess, gvk};
use super::super::backup;
use super::super::plan::model::ObjectId;
use super::removal::{DEPLOYMENTS, Found};
use crate::error::CliError;

/// Page size of list calls.
const PAGE: u32 = 500;
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
/// Kinds of which classic OLM owns objects.
const OWNED_KINDS: [(&str, &str); 15] = [
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "Pod"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("policy/v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("apiregistration.k8s.io/v1", "APIService"),
];

/// Lists metadata of objects.
struct Lists<'a> {
    access: &'a ObjectAccess<'a>,
    kinds: KubeCluster,
}

impl<'a> Lists<'a> {
    fn new(access: &'a ObjectAccess<'a>) -> Self {
        Self { access, kinds: KubeCluster::new(access.cluster().client().clone()) }
    }

    /// Objects of a kind with apiVersion, kind and metadata. None if the cluster has no such kind.
    async fn metadata(
        &self,
        (api_version, kind): (&str, &str),
        namespace: &str,
        labels: Option<&str>,
    ) -> Result<Vec<Value>, CliError> {
        let (cluster, session) = (self.access.cluster(), self.access.session());
        let resource = match session.interruptible(self.kinds.discover(&gvk(api_version, kind))).await? {
            Ok((resource, _)) => resource,
            Err(error) if matches!(error.reason, Reason::UnknownKind | Reason::NotFound) => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(CliError::operational(format!("cannot look up kind {kind}: {error}"))),
        };
        let client = cluster.client().clone();
        let api: Api<DynamicObject> = match namespace {
            "" => Api::all_with(client, &resource),
            _ => Api::namespaced_with(client, namespace, &resource),
        };
        let mut parameters = ListParams::default().limit(PAGE);
        parameters.label_selector = labels.map(str::to_owned);
        let (api, plural) = (&api, &resource.plural);
        let page =
            |page: ListParams| async move { cluster.call(plural, api.list_metadata(&page), session).await };
        let found = list_all(parameters, page).await?;
        let value = |found: PartialObjectMeta<DynamicObject>| {
            let metadata = serde_json::to_value(found.metadata)?;
            Ok(json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata }))
        };
        found.into_iter().map(value).collect()
    }
}

/// Reads classic OLM and what it owns.
///
/// # Errors
/// The API server does not answer, or denies access.
pub(super) async fn read(access: &ObjectAccess<'_>, backups: &[(String, String)]) -> Result<Found, CliError> {
    let lists = Lists::new(access);
    // The spec of a Subscription has the package.
    let mut found = Found { classic: access.list(SUBSCRIPTION, "", None).await?, ..Found::default() };
    for kind in CLASSIC_KINDS {
        found.classic.extend(lists.metadata(kind, "", None).await?);
    }
    for kind in OWNED_KINDS {
        found.others.extend(lists.metadata(kind, "", None).await?);
    }
    found.deployments = access.list(("apps/v1", "Deployment"), "", None).await?;
    let crd = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    found.definitions = lists.metadata(crd, "", None).await?;
    found.is_openshift =
        !lists.metadata(("config.openshift.io/v1", "ClusterVersion"), "", None).await?.is_empty();
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
    classic.extend(Lists::new(access).metadata(CSV, "", None).await?);
    Ok(Found { classic, ..Found::default() })
}

/// Pods of classic OLM's Deployments in their namespace.
///
/// # Errors
/// The API server does not answer, or denies access.
pub(super) async fn pods(access: &ObjectAccess<'_>, home: &str) -> Result<Vec<ObjectId>, CliError> {
    let selector = format!("app in ({})", DEPLOYMENTS.join(","));
    let pods = Lists::new(access).metadata(("v1", "Pod"), home, Some(&selector)).await?;
    Ok(pods.iter().map(ObjectId::of).collect())
}
