//! Reads and writes of objects of any kind. Each call has a deadline, and writes have preconditions. In a dry run, the
//! API server validates the writes without storing them.

use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::Scope;
use olm_revision::cluster::Reason;
use olm_revision::kube_cluster::KubeCluster;
use olm_runtime::cluster::{list_all, present, within_deadline};
use serde_json::Value;

use super::plan::model::ObjectId;
use crate::change::{self, FIELD_MANAGER};
use crate::error::CliError;
use crate::session::Session;
use crate::source::Cluster;

/// Page size of list calls.
const PAGE: u32 = 200;

/// Effect of a deletion on the objects that are owned by the deleted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dependents {
    /// The garbage collector deletes them.
    Delete,
    /// The garbage collector removes their owner reference.
    Orphan,
}

/// Client for the objects of a cluster.
pub(super) struct ObjectAccess<'a> {
    cluster: &'a Cluster,
    session: &'a Session,
    kinds: KubeCluster,
    /// Set if no write is stored.
    pub(super) dry_run: bool,
}

/// Reference to a kind of classic OLM or Kubernetes.
pub(super) fn gvk(api_version: &str, kind: &str) -> GroupVersionKind {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    GroupVersionKind::gvk(group, version, kind)
}

impl<'a> ObjectAccess<'a> {
    pub(super) fn new(cluster: &'a Cluster, session: &'a Session, dry_run: bool) -> Self {
        Self { cluster, session, kinds: KubeCluster::new(cluster.client().clone()), dry_run }
    }

    pub(super) fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    pub(super) fn session(&self) -> &'a Session {
        self.session
    }

    /// Resource of a kind with its scope. `None` if the cluster does not serve the kind.
    async fn resource(&self, gvk: &GroupVersionKind) -> Result<Option<(ApiResource, Scope)>, CliError> {
        match self.session.interruptible(self.kinds.discover(gvk)).await? {
            Ok(found) => Ok(Some(found)),
            Err(error) if matches!(error.reason, Reason::UnknownKind | Reason::NotFound) => Ok(None),
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
    pub(super) async fn get(&self, id: &ObjectId) -> Result<Option<Value>, CliError> {
        let Some(api) = self.api(id).await? else { return Ok(None) };
        let found = self.cluster.call(&id.to_string(), api.get_opt(&id.name), self.session).await?;
        found.map(|found| complete(found, &id.api_version, &id.kind)).transpose()
    }

    /// Objects of a kind in `namespace`, or in all namespaces if it is empty. None if the cluster has no such kind.
    ///
    /// # Errors
    /// The API server does not answer, or denies access.
    pub(super) async fn list(
        &self,
        (api_version, kind): (&str, &str),
        namespace: &str,
        labels: Option<&str>,
    ) -> Result<Vec<Value>, CliError> {
        let client = self.cluster.client().clone();
        let Some((resource, scope)) = self.resource(&gvk(api_version, kind)).await? else {
            return Ok(Vec::new());
        };
        let api: Api<DynamicObject> = match scope {
            Scope::Namespaced if !namespace.is_empty() => Api::namespaced_with(client, namespace, &resource),
            _ => Api::all_with(client, &resource),
        };
        let mut page = ListParams::default().limit(PAGE);
        page.label_selector = labels.map(str::to_owned);
        let list = async |page: ListParams| within_deadline(api.list(&page)).await;
        let all = async { Ok(present(list_all(page, list).await)?.unwrap_or_default()) };
        let found = self.session.interruptible(all).await?;
        let found = found.map_err(|error: kube::Error| {
            let cause = olm_runtime::cluster::describe(&error);
            CliError::operational(format!("cannot list {}: {cause}", resource.plural))
        })?;
        found.into_iter().map(|object| complete(object, api_version, kind)).collect()
    }

    /// Creates `object` and returns it. An object that exists with all its fields is returned as it is.
    ///
    /// # Errors
    /// An object of this name has another content, or the API server refuses the object or does not answer.
    pub(super) async fn create(&self, object: &Value) -> Result<Value, CliError> {
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
        let (created, has_existed) = change::call(&format!("create {id}"), create, self.session).await?;
        let created = complete(created, &id.api_version, &id.kind)?;
        if !has_existed || contains(&created, object) {
            return Ok(created);
        }
        Err(CliError::operational(format!(
            "create {id}: it exists with another content; delete or rename it, and run the command again"
        )))
    }

    /// Applies a merge patch to the object with the UID of `id`. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// The object has another UID, or the resourceVersion in the patch is stale, or the API server refuses the patch or
    /// does not answer.
    pub(super) async fn merge(&self, id: &ObjectId, patch: &Value) -> Result<Option<Value>, CliError> {
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
    pub(super) async fn set_status(&self, id: &ObjectId, status: &Value) -> Result<(), CliError> {
        let api = self.writer(id).await?;
        let patch = serde_json::json!({ "metadata": { "uid": id.uid }, "status": status });
        let parameters = self.patch_params();
        let set = async { present(api.patch_status(&id.name, &parameters, &Patch::Merge(&patch)).await) };
        change::call(&format!("set the status of {id}"), set, self.session).await.map(drop)
    }

    /// Deletes the object with the UID of `id`, if `version` is set only in this resourceVersion. Returns `false` if the
    /// object has another UID or resourceVersion. An object that does not exist is deleted.
    ///
    /// # Errors
    /// The API server refuses it or does not answer.
    pub(super) async fn delete(
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

/// Reports whether `object` has all values of `part`. Fields that the API server adds have no effect.
pub(super) fn contains(object: &Value, part: &Value) -> bool {
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
    use serde_json::json;

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
