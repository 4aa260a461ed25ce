//! Reads and writes of objects of any kind. Each call has a deadline, and writes have preconditions. In a dry run, the
//! API server validates the writes without storing them.

use std::fmt;

use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams, PostParams,
    Preconditions,
};
use kube::core::{ApiResource, GroupVersionKind, ObjectMeta};
use kube::discovery::Scope;
use olm_revision::cluster::ApiErrorReason;
use olm_revision::kube_cluster::KubeCluster;
use olm_runtime::cluster::{list_all, present, within_deadline};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::change::{self, FIELD_MANAGER};
use crate::error::CliError;
use crate::output::qualified;
use crate::session::Session;
use crate::source::ClusterConnection;

/// Page size of list calls.
const PAGE: u32 = 200;
/// Page size of list calls for metadata.
const METADATA_PAGE: u32 = 500;

/// Identity of an object in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectId {
    /// Group and version, such as `apps/v1`; `v1` for the core group.
    pub api_version: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
    /// Empty for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Empty for an object that does not exist.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

impl ObjectId {
    /// Identity without UID.
    pub fn new((api_version, kind): (&str, &str), namespace: &str, name: &str) -> Self {
        let [api_version, kind, namespace, name] = [api_version, kind, namespace, name].map(str::to_owned);
        Self { api_version, kind, namespace, name, uid: String::new() }
    }

    /// Identity of `object`. Missing fields are empty.
    pub fn of(object: &Value) -> Self {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
        }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, qualified(&self.namespace, &self.name))
    }
}

/// Effect of a deletion on the objects that are owned by the deleted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependents {
    /// The garbage collector deletes them.
    Delete,
    /// The garbage collector removes their owner reference.
    Orphan,
}

/// Client for the objects of a cluster.
pub struct ObjectAccess<'a> {
    cluster: &'a ClusterConnection,
    session: &'a Session,
    kinds: KubeCluster,
    /// Set if no write is stored.
    pub dry_run: bool,
}

/// Reference to a kind of classic OLM or Kubernetes.
fn gvk(api_version: &str, kind: &str) -> GroupVersionKind {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    GroupVersionKind::gvk(group, version, kind)
}

impl<'a> ObjectAccess<'a> {
    /// Access for one command. In a dry run, the API server validates writes and stores none.
    pub fn new(cluster: &'a ClusterConnection, session: &'a Session, dry_run: bool) -> Self {
        Self { cluster, session, kinds: KubeCluster::new(cluster.client().clone()), dry_run }
    }

    /// Cluster of the objects.
    pub fn cluster(&self) -> &'a ClusterConnection {
        self.cluster
    }

    /// Run of the program, whose interruption ends each call.
    pub fn session(&self) -> &'a Session {
        self.session
    }

    /// Resource of a kind with its scope. `None` if the cluster does not serve the kind.
    async fn resource(&self, gvk: &GroupVersionKind) -> Result<Option<(ApiResource, Scope)>, CliError> {
        match self.session.interruptible(self.kinds.discover(gvk)).await? {
            Ok(found) => Ok(Some(found)),
            Err(error) if matches!(error.reason, ApiErrorReason::UnknownKind | ApiErrorReason::NotFound) => {
                Ok(None)
            }
            Err(error) => Err(CliError::operational(format!("cannot look up kind {}: {error}", gvk.kind))),
        }
    }

    async fn api(&self, id: &ObjectId) -> Result<Option<Api<DynamicObject>>, CliError> {
        let client = self.cluster.client().clone();
        let found = self.resource(&gvk(&id.api_version, &id.kind)).await?;
        Ok(found.map(|(resource, scope)| match scope {
            Scope::Cluster => Api::all_with(client, &resource),
            Scope::Namespaced => Api::namespaced_with(client, &id.namespace, &resource),
        }))
    }

    /// API for a write.
    ///
    /// # Errors
    /// The cluster does not serve the kind.
    async fn writer(&self, id: &ObjectId) -> Result<Api<DynamicObject>, CliError> {
        let missing = || CliError::operational(format!("cannot write {id}: the cluster has no such kind"));
        self.api(id).await?.ok_or_else(missing)
    }

    /// Object of this kind, namespace and name, with any UID. `None` if it does not exist.
    ///
    /// # Errors
    /// The API server does not answer, or denies access.
    pub async fn get(&self, id: &ObjectId) -> Result<Option<Value>, CliError> {
        let Some(api) = self.api(id).await? else { return Ok(None) };
        let found = self.cluster.call(&id.to_string(), api.get_opt(&id.name), self.session).await?;
        found.map(|found| complete(found, &id.api_version, &id.kind)).transpose()
    }

    /// Objects of a kind in `namespace`, or in all namespaces if it is empty. None if the cluster has no such kind.
    ///
    /// # Errors
    /// The API server does not answer, or denies access.
    pub async fn list(
        &self,
        (api_version, kind): (&str, &str),
        namespace: &str,
        labels: Option<&str>,
    ) -> Result<Vec<Value>, CliError> {
        let Some((resource, scope)) = self.resource(&gvk(api_version, kind)).await? else {
            return Ok(Vec::new());
        };
        let api = self.lister(&resource, &scope, namespace);
        let mut page = ListParams::default().limit(PAGE);
        page.label_selector = labels.map(str::to_owned);
        let list = async |page: ListParams| within_deadline(api.list(&page)).await;
        let found = self.items(&resource, list_all(page, list)).await?;
        found.into_iter().map(|object| complete(object, api_version, kind)).collect()
    }

    /// Items of all pages. Empty if the kind was deleted since its discovery.
    async fn items<T>(
        &self,
        resource: &ApiResource,
        list: impl Future<Output = Result<Vec<T>, kube::Error>>,
    ) -> Result<Vec<T>, CliError> {
        let found = self.session.interruptible(async { present(list.await) }).await?;
        Ok(found.map_err(|error| unlisted(resource, &error))?.unwrap_or_default())
    }

    /// Objects of a kind in `namespace`, or everywhere if it is empty or the kind is cluster-scoped.
    pub fn lister(&self, resource: &ApiResource, scope: &Scope, namespace: &str) -> Api<DynamicObject> {
        let client = self.cluster.client().clone();
        match scope {
            Scope::Namespaced if !namespace.is_empty() => Api::namespaced_with(client, namespace, resource),
            _ => Api::all_with(client, resource),
        }
    }

    /// The objects of a kind as [`Self::list`] finds them, only with apiVersion, kind and metadata.
    ///
    /// # Errors
    /// The API server does not answer, or denies access.
    pub async fn metadata(
        &self,
        (api_version, kind): (&str, &str),
        namespace: &str,
        labels: Option<&str>,
    ) -> Result<Vec<Value>, CliError> {
        let Some((resource, scope)) = self.resource(&gvk(api_version, kind)).await? else {
            return Ok(Vec::new());
        };
        let parameters = ListParams { label_selector: labels.map(str::to_owned), ..ListParams::default() };
        self.list_metadata(&resource, self.lister(&resource, &scope, namespace), parameters, |_| true).await
    }

    /// Metadata of the objects that `keep` selects, from all pages.
    ///
    /// # Errors
    /// The API server does not answer, or denies access.
    pub async fn list_metadata(
        &self,
        resource: &ApiResource,
        api: Api<DynamicObject>,
        parameters: ListParams,
        keep: fn(&ObjectMeta) -> bool,
    ) -> Result<Vec<Value>, CliError> {
        let api = &api;
        let page = |page: ListParams| async move {
            let mut found = within_deadline(api.list_metadata(&page)).await?;
            found.items.retain(|object| keep(&object.metadata));
            Ok(found)
        };
        let value = |found: PartialObjectMeta<DynamicObject>| {
            let (api_version, kind) = (&resource.api_version, &resource.kind);
            let metadata = serde_json::to_value(found.metadata)?;
            Ok(json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata }))
        };
        let found = self.items(resource, list_all(parameters.limit(METADATA_PAGE), page)).await?;
        found.into_iter().map(value).collect()
    }

    /// Creates `object` and returns it. An object that exists with all its fields is returned as it is.
    ///
    /// # Errors
    /// An object of this name has another content, or the API server refuses the object or does not answer.
    pub async fn create(&self, object: &Value) -> Result<Value, CliError> {
        let (created, has_existed) = self.create_or_get(object).await?;
        if !has_existed || contains(&created, object) {
            return Ok(created);
        }
        let id = ObjectId::of(object);
        Err(CliError::operational(format!(
            "create {id}: it already exists with different content; delete or rename it, and run the command again"
        )))
    }

    /// Creates `object` and returns it.
    ///
    /// # Errors
    /// An object of this name exists, or the API server refuses the object or does not answer.
    pub async fn create_new(&self, object: &Value) -> Result<Value, CliError> {
        match self.create_or_get(object).await? {
            (created, false) => Ok(created),
            (_, true) => Err(CliError::findings(format!("{} exists already", ObjectId::of(object)))),
        }
    }

    /// The created object, or the one that exists, and whether it existed.
    async fn create_or_get(&self, object: &Value) -> Result<(Value, bool), CliError> {
        let id = ObjectId::of(object);
        let api = self.writer(&id).await?;
        let parsed: DynamicObject = serde_json::from_value(object.clone())?;
        let parameters = PostParams { dry_run: self.dry_run, field_manager: Some(FIELD_MANAGER.to_owned()) };
        let create = async {
            match api.create(&parameters, &parsed).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    api.get(&id.name).await.map(|found| (found, true))
                }
                answer => answer.map(|created| (created, false)),
            }
        };
        let (found, has_existed) = change::call(&format!("create {id}"), create, self.session).await?;
        Ok((complete(found, &id.api_version, &id.kind)?, has_existed))
    }

    /// Reports whether the cluster serves a kind.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn serves(&self, api_version: &str, kind: &str) -> Result<bool, CliError> {
        Ok(self.resource(&gvk(api_version, kind)).await?.is_some())
    }

    /// Applies `object` server-side as `manager`, and forces ownership of its fields. Returns the stored object.
    ///
    /// # Errors
    /// The cluster has no such kind, or the API server refuses the object or does not answer.
    pub async fn apply(&self, object: &Value, manager: &str) -> Result<Value, CliError> {
        let id = ObjectId::of(object);
        let api = self.writer(&id).await?;
        let parameters = PatchParams { dry_run: self.dry_run, ..PatchParams::apply(manager).force() };
        let patch = Patch::Apply(object);
        let apply = api.patch(&id.name, &parameters, &patch);
        let applied = change::call(&format!("apply {id}"), apply, self.session).await?;
        complete(applied, &id.api_version, &id.kind)
    }

    /// Applies a merge patch to the object with the UID of `id`. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// The object has another UID, or the resourceVersion in the patch is stale, or the API server refuses the patch or
    /// does not answer.
    pub async fn merge(&self, id: &ObjectId, patch: &Value) -> Result<Option<Value>, CliError> {
        let Some(api) = self.api(id).await? else { return Ok(None) };
        let mut patch = patch.clone();
        if !id.uid.is_empty() {
            patch["metadata"]["uid"] = Value::from(id.uid.as_str());
        }
        let parameters = self.patch_params();
        let merge = async { present(api.patch(&id.name, &parameters, &Patch::Merge(&patch)).await) };
        let merged = change::call(&format!("change {id}"), merge, self.session).await?;
        merged.map(|merged| complete(merged, &id.api_version, &id.kind)).transpose()
    }

    /// Replaces the status. Kinds without the subresource are skipped.
    ///
    /// # Errors
    /// The API server refuses it or does not answer.
    pub async fn set_status(&self, id: &ObjectId, status: &Value) -> Result<(), CliError> {
        let api = self.writer(id).await?;
        let patch = json!({ "metadata": { "uid": id.uid }, "status": status });
        let parameters = self.patch_params();
        let set = async { present(api.patch_status(&id.name, &parameters, &Patch::Merge(&patch)).await) };
        change::call(&format!("set the status of {id}"), set, self.session).await.map(drop)
    }

    /// Deletes the object with the UID of `id`, if `version` is set only in this resourceVersion. Returns `false` if the
    /// object has another UID or resourceVersion. An object that does not exist is deleted.
    ///
    /// # Errors
    /// The API server refuses it or does not answer.
    pub async fn delete(
        &self,
        id: &ObjectId,
        version: Option<&str>,
        dependents: Dependents,
    ) -> Result<bool, CliError> {
        let Some(api) = self.api(id).await? else { return Ok(true) };
        let parameters = match dependents {
            Dependents::Delete => DeleteParams::background(),
            Dependents::Orphan => DeleteParams::orphan(),
        };
        let uid = Some(id.uid.clone()).filter(|uid| !uid.is_empty());
        let preconditions = Preconditions { uid, resource_version: version.map(str::to_owned) };
        let parameters =
            DeleteParams { dry_run: self.dry_run, preconditions: Some(preconditions), ..parameters };
        let delete = async {
            match api.delete(&id.name, &parameters).await {
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
                answer => present(answer).map(|_| true),
            }
        };
        change::call(&format!("delete {id}"), delete, self.session).await
    }

    fn patch_params(&self) -> PatchParams {
        PatchParams {
            dry_run: self.dry_run,
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        }
    }
}

/// Error of a list call, with the next step. A server of an aggregated API that is down answers with 503.
fn unlisted(resource: &ApiResource, error: &kube::Error) -> CliError {
    let ApiResource { group, version, plural, .. } = resource;
    let name = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
    let next = match error {
        kube::Error::Api(status) if status.code == 503 && !group.is_empty() => {
            format!("repair the server of APIService {version}.{group}, or delete the APIService")
        }
        kube::Error::Api(status) if status.code == 403 => format!("get permission to list {plural}"),
        _ => "correct the cause".to_owned(),
    };
    let cause = olm_runtime::cluster::describe(error);
    CliError::operational(format!("cannot list {name}: {cause}; {next}, and run the command again"))
}

/// Reports whether `object` has all values of `part`. Fields that the API server adds have no effect.
pub fn contains(object: &Value, part: &Value) -> bool {
    match (object, part) {
        (_, Value::Object(fields)) => {
            fields.iter().all(|(key, value)| contains(object.get(key).unwrap_or(&Value::Null), value))
        }
        (Value::Array(items), Value::Array(parts)) => {
            items.len() == parts.len() && items.iter().zip(parts).all(|(item, part)| contains(item, part))
        }
        (Value::Null, Value::Array(parts)) => parts.is_empty(),
        _ => object == part,
    }
}

/// Object as JSON with its kind, which the items of a list do not have.
fn complete(object: DynamicObject, api_version: &str, kind: &str) -> Result<Value, CliError> {
    let mut object = serde_json::to_value(object)?;
    object["apiVersion"] = Value::from(api_version);
    object["kind"] = Value::from(kind);
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_list_names_kind_and_next_step() {
        let status = |code: u16| {
            let status = json!({"status": "Failure", "message": "no", "reason": "", "code": code});
            kube::Error::Api(serde_json::from_value(status).unwrap())
        };
        let text = |group: &str, code: u16| {
            let gvk = GroupVersionKind::gvk(group, "v1", "Lamp");
            unlisted(&ApiResource::from_gvk_with_plural(&gvk, "lamps"), &status(code)).to_string()
        };
        for (group, code, next) in [
            ("example.com", 503, "repair the server of APIService v1.example.com, or delete the APIService"),
            ("example.com", 403, "get permission to list lamps"),
            ("example.com", 500, "correct the cause"),
            ("", 503, "correct the cause"),
        ] {
            let name = if group.is_empty() { "lamps" } else { "lamps.example.com" };
            assert_eq!(
                text(group, code),
                format!("cannot list {name}: no; {next}, and run the command again")
            );
        }
    }

    #[test]
    fn defaults_of_the_api_server_are_no_other_content() {
        let desired =
            json!({"metadata": {"name": "a", "labels": {}}, "subjects": [{"name": "ann"}], "rules": []});
        let stored = json!({"metadata": {"name": "a", "uid": "u"},
            "subjects": [{"name": "ann", "apiGroup": "rbac.authorization.k8s.io"}]});
        assert!(contains(&stored, &desired));
        for part in [json!({"subjects": []}), json!({"subjects": [{"name": "eve"}]}), json!({"a": 1})] {
            assert!(!contains(&stored, &part), "{part}");
        }
    }
}
