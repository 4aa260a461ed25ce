//! Reads what runs: the objects of a bundle that exist, with the effect of an apply, and the objects that classic OLM
//! made for a ClusterServiceVersion. Only reads and dry runs.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PartialObjectMeta};
use kube::core::GroupVersionKind;
use kube::discovery::Scope;
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use olm_plan::fields::applied;
use olm_plan::objects::{self, ChangeKind, ObjectChange, ObjectName};
use olm_revision::cluster::{ApiErrorReason, Cluster as _};
use olm_revision::fields;
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::object::{ObjectKey, gvk};
use olm_revision::ordering::ordered_like;
use olm_runtime::cluster::list_all;
use serde_json::{Value, json};

use super::disposition::{COPIED_FROM, OWNER, Owner, delegation, is_token_of};
use crate::objects::CLASSIC;

/// Concurrent calls.
const CONCURRENT_CALLS: usize = 8;
/// Page size of list calls.
const PAGE: u32 = 200;
/// Kinds of objects that classic OLM makes: group, version, kind.
const KINDS: [(&str, &str, &str); 13] = [
    ("", "v1", "ConfigMap"),
    ("", "v1", "Secret"),
    ("", "v1", "Service"),
    ("", "v1", "ServiceAccount"),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"),
    ("apiregistration.k8s.io", "v1", "APIService"),
    ("apps", "v1", "Deployment"),
    (CLASSIC, "v2", "OperatorCondition"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "v1", "Role"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
];

/// State of the cluster.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// Objects of the bundle that exist.
    pub(super) live: BTreeMap<ObjectName, Value>,
    /// Changes to them by an apply.
    pub(super) changes: Vec<ObjectChange>,
    /// Metadata of the objects that classic OLM made.
    pub(super) owned: Vec<Value>,
}

/// Reader of a cluster.
pub(super) struct Observer<'a> {
    cluster: &'a ClusterConnection,
    session: &'a Session,
    objects: KubeCluster,
}

impl<'a> Observer<'a> {
    pub(super) fn new(cluster: &'a ClusterConnection, session: &'a Session) -> Self {
        Self { cluster, session, objects: KubeCluster::new(cluster.client().clone()) }
    }

    /// Observes the objects `rendered`, as the first revision applies them, and the other objects of `owner`.
    ///
    /// # Errors
    /// The API server does not answer, or denies access.
    pub(super) async fn observe(
        &self,
        rendered: &[Value],
        owner: &Owner<'_>,
        package: &str,
    ) -> Result<Observed, CliError> {
        let mut observed = Observed::default();
        let compared: Vec<_> = rendered.iter().map(|object| self.compare(object)).collect();
        let compared = stream::iter(compared).buffered(CONCURRENT_CALLS).collect::<Vec<_>>();
        for found in self.session.interruptible(compared).await? {
            let Some((name, live, change)) = found? else { continue };
            observed.live.insert(name, live);
            observed.changes.extend(change);
        }
        objects::sort(&mut observed.changes);
        observed.owned = self.owned(rendered, owner, package).await?;
        Ok(observed)
    }

    /// Reports whether the object exists.
    ///
    /// # Errors
    /// The API server does not answer, or denies access.
    pub(super) async fn find(&self, key: &ObjectKey) -> Result<Option<Value>, CliError> {
        match self.session.interruptible(self.objects.get(key)).await? {
            Ok(found) => Ok(found),
            Err(error) if error.reason == ApiErrorReason::UnknownKind => Ok(None),
            Err(error) => Err(CliError::operational(format!("cannot read {key}: {error}"))),
        }
    }

    /// Live object and its change by an apply. `None` if it does not exist.
    async fn compare(
        &self,
        object: &Value,
    ) -> Result<Option<(ObjectName, Value, Option<ObjectChange>)>, CliError> {
        let Some(live) = self.find(&ObjectKey::of(object)).await? else { return Ok(None) };
        let name = ObjectName::of(object);
        let change = match self.objects.apply(&ordered_like(&fields::applied(object), &live), true).await {
            Ok(outcome) => objects::changed(&name, &live, &outcome),
            Err(error) => {
                let change = objects::changed(&name, &live, &applied(&live, &Value::Null, object));
                let mut change = change.unwrap_or_else(|| objects::whole(ChangeKind::Changed, name.clone()));
                change.notes.push(format!("dry run on the API server: {error}"));
                Some(change)
            }
        };
        Ok(Some((name, live, change)))
    }

    /// Metadata of the objects that classic OLM made for `owner`, except for its InstallPlans.
    async fn owned(
        &self,
        rendered: &[Value],
        owner: &Owner<'_>,
        package: &str,
    ) -> Result<Vec<Value>, CliError> {
        let mut kinds: BTreeSet<(String, String, String)> = rendered
            .iter()
            .map(gvk)
            .map(|gvk| (gvk.group, gvk.version, gvk.kind))
            .filter(|(_, _, kind)| kind != "CustomResourceDefinition")
            .collect();
        kinds.extend(
            KINDS.map(|(group, version, kind)| (group.to_owned(), version.to_owned(), kind.to_owned())),
        );
        let lists: Vec<_> = kinds
            .iter()
            .map(|(group, version, kind)| {
                self.owned_of_kind(GroupVersionKind::gvk(group, version, kind), owner)
            })
            .collect();
        let mut found = Vec::new();
        for list in stream::iter(lists).buffered(CONCURRENT_CALLS).collect::<Vec<_>>().await {
            found.extend(
                list?.into_iter().filter(|object| owner.owns(object) || is_token_of(object, rendered)),
            );
        }
        found.extend(self.copies(owner).await?);
        for (reader, delegator) in found.iter().filter_map(delegation).collect::<Vec<_>>() {
            let rbac = |kind: &str| GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind);
            let keys =
                [(rbac("RoleBinding"), "kube-system", reader), (rbac("ClusterRoleBinding"), "", delegator)];
            for (gvk, namespace, name) in keys {
                found.extend(self.find(&ObjectKey { gvk, namespace: namespace.to_owned(), name }).await?);
            }
        }
        let operator = ObjectKey {
            gvk: GroupVersionKind::gvk(CLASSIC, "v1", "Operator"),
            namespace: String::new(),
            name: format!("{package}.{}", owner.namespace),
        };
        found.extend(self.find(&operator).await?);
        Ok(found)
    }

    /// Metadata of the objects of a kind that have the owner label, or are in the namespace of `owner`.
    async fn owned_of_kind(&self, gvk: GroupVersionKind, owner: &Owner<'_>) -> Result<Vec<Value>, CliError> {
        let (resource, scope) = match self.session.interruptible(self.objects.discover(&gvk)).await? {
            Ok(found) => found,
            Err(error) if error.reason == ApiErrorReason::UnknownKind => return Ok(Vec::new()),
            Err(error) => {
                return Err(CliError::operational(format!("cannot discover {}: {error}", gvk.kind)));
            }
        };
        let client = self.cluster.client().clone();
        let labeled = ListParams::default().labels(&format!("{OWNER}={}", owner.name));
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let mut found = self.list(&all, labeled, &gvk, &resource).await?;
        if scope == Scope::Namespaced {
            let here = Api::namespaced_with(client, owner.namespace, &resource);
            found.extend(self.list(&here, ListParams::default(), &gvk, &resource).await?);
        }
        Ok(found)
    }

    async fn copies(&self, owner: &Owner<'_>) -> Result<Vec<Value>, CliError> {
        let gvk = GroupVersionKind::gvk(CLASSIC, "v1alpha1", "ClusterServiceVersion");
        let resource = ApiResource::from_gvk_with_plural(&gvk, "clusterserviceversions");
        let api = Api::all_with(self.cluster.client().clone(), &resource);
        let labeled = ListParams::default().labels(&format!("{COPIED_FROM}={}", owner.namespace));
        let mut found = self.list(&api, labeled, &gvk, &resource).await?;
        found.retain(|copy| owner.is_copied_to(copy));
        Ok(found)
    }

    /// Metadata of listed objects.
    async fn list(
        &self,
        api: &Api<DynamicObject>,
        parameters: ListParams,
        gvk: &GroupVersionKind,
        resource: &ApiResource,
    ) -> Result<Vec<Value>, CliError> {
        let page = |page: ListParams| async move {
            self.cluster.call(&resource.plural, api.list_metadata(&page), self.session).await
        };
        let found = list_all(parameters.limit(PAGE), page).await?;
        let value = |found: PartialObjectMeta<DynamicObject>| {
            let mut metadata = serde_json::to_value(found.metadata)?;
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.remove("managedFields");
            }
            Ok(json!({"apiVersion": gvk.api_version(), "kind": gvk.kind, "metadata": metadata}))
        };
        found.into_iter().map(value).collect()
    }
}
