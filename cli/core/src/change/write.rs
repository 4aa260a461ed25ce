//! Writes of extensions and namespaces, real or as a dry run.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use olm_api::ClusterExtension;
use olm_version::quote;
use serde::Serialize;
use serde_json::{Value, json};

use super::{DryRun, FIELD_MANAGER, merge};
use crate::error::CliError;
use crate::session::Session;
use crate::source::ClusterConnection;

/// Deadline for a response of the API server. Admission webhooks may take 30 s.
const DEADLINE: Duration = Duration::from_secs(45);

/// Object, and the result of writing it.
#[derive(Debug, Clone)]
pub struct WrittenObject {
    /// Object as stored, or as it would be stored, without status and server-managed metadata.
    pub object: Value,
    /// What the write did.
    pub done: WriteResult,
    /// Set if nothing was really changed.
    pub(crate) dry_run: Option<DryRun>,
    /// `metadata.generation`, if the API server returned it.
    pub generation: Option<i64>,
    /// `metadata.uid`, if the API server returned it.
    pub uid: Option<String>,
}

/// Result of writing an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteResult {
    /// The object did not exist.
    Created,
    /// Fields of the object changed.
    Changed,
    /// The object already had the desired state.
    Unchanged,
    /// The API server accepted the deletion.
    Deleted,
}

impl WriteResult {
    /// Word for the output, such as `created`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
        }
    }
}

impl WrittenObject {
    /// Result for `object`, which the API server returned or would be sent.
    pub fn new(mut object: Value, done: WriteResult, dry_run: Option<DryRun>) -> Self {
        let generation = object["metadata"]["generation"].as_i64();
        let uid = object["metadata"]["uid"].as_str().map(str::to_owned);
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in ["managedFields", "uid", "resourceVersion", "generation", "creationTimestamp"] {
                metadata.remove(field);
            }
        }
        Self { object, done, dry_run, generation, uid }
    }

    /// `clusterextension.olm.operatorframework.io/NAME`, as kubectl names objects.
    pub fn name(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let group = text(&self.object["apiVersion"]);
        let group = group.rsplit_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
        let kind = text(&self.object["kind"]).to_lowercase();
        format!("{kind}{group}/{}", text(&self.object["metadata"]["name"]))
    }
}

/// `clusterextension.olm.operatorframework.io/NAME created`
impl fmt::Display for WrittenObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let note = match self.dry_run {
            None => "",
            Some(DryRun::Client) => " (dry run)",
            Some(DryRun::Server) => " (server dry run)",
        };
        write!(f, "{} {}{note}", self.name(), self.done.as_str())
    }
}

/// Creates the extension `after` if `before` is `None`, else patches the difference to `before`.
///
/// # Errors
/// The API server refuses the write ([`CliError::findings`]) or does not answer. The extension to be created exists, or
/// the one to be changed was modified since it was read.
pub async fn apply(
    cluster: &ClusterConnection,
    before: Option<&ClusterExtension>,
    after: &ClusterExtension,
    dry_run: Option<DryRun>,
    session: &Session,
) -> Result<WrittenObject, CliError> {
    let api: Api<ClusterExtension> = Api::all(cluster.client().clone());
    let name = after.name_any();
    let what = format!("ClusterExtension {}", quote(&name));
    let Some(before) = before else {
        if dry_run == Some(DryRun::Client) {
            return Ok(WrittenObject::new(value(after)?, WriteResult::Created, dry_run));
        }
        let parameters = post(dry_run);
        let created = call(&format!("create {what}"), api.create(&parameters, after), session).await?;
        return Ok(WrittenObject::new(value(&created)?, WriteResult::Created, dry_run));
    };
    patched(cluster, before, after, dry_run, session).await
}

/// Sets an annotation of the extension. Concurrent changes of other parts stay, such as those that a controller makes at
/// any time.
///
/// # Errors
/// Errors of [`apply`].
pub async fn annotate(
    cluster: &ClusterConnection,
    extension: &ClusterExtension,
    (key, text): (&str, &str),
    dry_run: Option<DryRun>,
    session: &Session,
) -> Result<WrittenObject, CliError> {
    let mut after = extension.clone();
    after.metadata.annotations.get_or_insert_default().insert(key.to_owned(), text.to_owned());
    patched(cluster, extension, &after, dry_run, session).await
}

/// The extension as read.
///
/// # Errors
/// It is not valid JSON.
pub fn unchanged(extension: &ClusterExtension) -> Result<WrittenObject, CliError> {
    Ok(WrittenObject::new(value(extension)?, WriteResult::Unchanged, None))
}

/// Patches the difference between two states of an extension.
async fn patched(
    cluster: &ClusterConnection,
    before: &ClusterExtension,
    after: &ClusterExtension,
    dry_run: Option<DryRun>,
    session: &Session,
) -> Result<WrittenObject, CliError> {
    let api: Api<ClusterExtension> = Api::all(cluster.client().clone());
    let name = after.name_any();
    let Some(mut patch) = merge::patch(&changeable(before)?, &changeable(after)?) else {
        return Ok(WrittenObject::new(value(before)?, WriteResult::Unchanged, dry_run));
    };
    if dry_run == Some(DryRun::Client) {
        return Ok(WrittenObject::new(value(after)?, WriteResult::Changed, dry_run));
    }
    // UID precondition: another extension of the same name must not be changed.
    patch["metadata"]["uid"] = json!(before.uid());
    let parameters = PatchParams {
        dry_run: dry_run.is_some(),
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(&patch);
    let changed = api.patch(&name, &parameters, &patch);
    let changed = call(&format!("change ClusterExtension {}", quote(&name)), changed, session).await?;
    Ok(WrittenObject::new(value(&changed)?, WriteResult::Changed, dry_run))
}

/// Creates the extension as a dry run on the API server.
///
/// # Errors
/// The API server would refuse it, or does not answer.
pub async fn dry_create(
    cluster: &ClusterConnection,
    extension: &ClusterExtension,
    session: &Session,
) -> Result<(), CliError> {
    apply(cluster, None, extension, Some(DryRun::Server), session).await.map(drop)
}

/// Creates the namespace with name, labels and annotations of `metadata`. Returns `None` if it exists.
///
/// # Errors
/// The API server refuses it or does not answer.
pub async fn create_namespace(
    cluster: &ClusterConnection,
    metadata: &ObjectMeta,
    dry_run: Option<DryRun>,
    session: &Session,
) -> Result<Option<WrittenObject>, CliError> {
    let api: Api<Namespace> = Api::all(cluster.client().clone());
    let name = metadata.name.as_deref().unwrap_or_default();
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
    let written = || WrittenObject::new(namespace.clone(), WriteResult::Created, dry_run);
    let what = format!("namespace {}", quote(name));
    if cluster.call(&what, api.get_metadata_opt(name), session).await?.is_some() {
        return Ok(None);
    }
    if dry_run != Some(DryRun::Client) {
        let object = Namespace { metadata: metadata.clone(), ..Namespace::default() };
        let parameters = post(dry_run);
        let create = async {
            match api.create(&parameters, &object).await {
                // 409: the namespace was created concurrently.
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
                answer => answer.map(Some),
            }
        };
        if call(&format!("create {what}"), create, session).await?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(written()))
}

fn post(dry_run: Option<DryRun>) -> PostParams {
    PostParams { dry_run: dry_run.is_some(), field_manager: Some(FIELD_MANAGER.to_owned()) }
}

fn value(extension: &ClusterExtension) -> Result<Value, CliError> {
    Ok(serde_json::to_value(extension)?)
}

/// Part of an extension that a user writes.
fn changeable(extension: &ClusterExtension) -> Result<Value, CliError> {
    let whole = value(extension)?;
    let metadata = &whole["metadata"];
    let map = |field: &str| metadata.get(field).cloned().unwrap_or_else(|| json!({}));
    Ok(json!({
        "metadata": { "annotations": map("annotations"), "labels": map("labels") },
        "spec": whole.get("spec").cloned().unwrap_or_else(|| json!({})),
    }))
}

/// Write call with a deadline. A signal does not cancel it, because the result must be known.
///
/// # Errors
/// The API server refuses it or does not answer in time.
pub async fn call<T>(
    what: &str,
    call: impl Future<Output = Result<T, kube::Error>>,
    session: &Session,
) -> Result<T, CliError> {
    session.check()?;
    let answer = olm_runtime::cluster::within(DEADLINE, call).await;
    answer.map_err(|error| refused(what, &error))
}

/// Failure of `what`, such as `create namespace "a"`.
fn refused(what: &str, error: &kube::Error) -> CliError {
    let cause = olm_runtime::cluster::describe(error);
    let code = match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    };
    match code {
        400 | 422 => CliError::findings(format!("cannot {what}: rejected by the API server: {cause}")),
        409 => CliError::operational(format!(
            "cannot {what}: {cause}\nthe object was modified after it was read; check it and try again"
        )),
        _ => CliError::operational(format!("cannot {what}: {cause}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_object_is_named_as_kubectl_does() {
        let object = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": "pipe", "uid": "u", "generation": 3, "resourceVersion": "7"}, "status": {}});
        let written = WrittenObject::new(object, WriteResult::Changed, Some(DryRun::Server));
        let expected = "clusterextension.olm.operatorframework.io/pipe changed (server dry run)";
        assert_eq!(written.to_string(), expected);
        assert_eq!((written.generation, written.uid.as_deref()), (Some(3), Some("u")));
        let left = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": "pipe"}});
        assert_eq!(written.object, left);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
        assert_eq!(
            WrittenObject::new(namespace, WriteResult::Created, None).to_string(),
            "namespace/a created"
        );
    }
}
