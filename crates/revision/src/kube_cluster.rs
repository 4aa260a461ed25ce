//! Cluster access through a kube client.
//!
//! Objects are plain JSON. Discovery results are cached and refreshed when a kind is unknown, so that new kinds are
//! found. Every call has a deadline. Reads and writes of objects can impersonate another user, whose permissions the
//! API server then checks.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, Request, Resource, Status, response::reason};
use kube::discovery::{Scope, pinned_kind};
use kube::{Client, Error};
use olm_api::limits::LIST_PAGE;
use olm_api::names::REVISION_ENGINE_MANAGER;
use olm_api::text::with_causes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::blocked_pods::{Cause, of_deployment, of_pods, selector};
use crate::cluster::{Answer, ApiErrorReason, Cluster, ClusterError, Instances};
use crate::immutable::is_violated;
use crate::object::{ObjectKey, is_built_in, text};
use crate::plan::is_deleting;

/// Request header with the impersonated user.
const IMPERSONATE: HeaderName = HeaderName::from_static("impersonate-user");
/// Deadline of one call. Above that of the API server, 34 s, within which admission webhooks may hang for 30 s.
const DEADLINE: Duration = Duration::from_secs(40);

/// Resource version that no object has. An apply with it creates an object, and conflicts with an existing one.
const NO_RESOURCE_VERSION: &str = "9223372036854775807";
/// Maximum number of pods that are read to find the cause for which they are not ready.
const PODS: u32 = 20;

/// [`Cluster`] behind a client. Clones share the discovery cache.
#[derive(Clone)]
pub struct KubeCluster {
    client: Client,
    kinds: Arc<Mutex<HashMap<GroupVersionKind, (ApiResource, Scope)>>>,
    user: Option<HeaderValue>,
}

impl KubeCluster {
    /// Creates a cluster with an empty discovery cache.
    pub fn new(client: Client) -> Self {
        Self { client, kinds: Arc::default(), user: None }
    }

    /// Copy of this cluster that impersonates `user` in reads, writes and deletions of objects. Discovery and counts
    /// of objects of a kind are not impersonated.
    pub fn acting_as(&self, user: HeaderValue) -> Self {
        Self { user: Some(user), ..self.clone() }
    }

    /// Resource and scope of a kind. Fails with [`ApiErrorReason::UnknownKind`] if the API server does not serve the kind.
    pub async fn discover(&self, gvk: &GroupVersionKind) -> Answer<(ApiResource, Scope)> {
        let known = self.kinds.lock().get(gvk).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let (resource, capabilities) = match deadline(pinned_kind(&self.client, gvk)).await {
            Ok(found) => found,
            Err(Some(Error::Discovery(_))) => return Err(unknown_kind(gvk)),
            Err(Some(Error::Api(status))) if status.code == 404 => return Err(unknown_kind(gvk)),
            Err(failure) => return Err(classify(failure)),
        };
        let found = (resource, capabilities.scope);
        self.kinds.lock().insert(gvk.clone(), found.clone());
        Ok(found)
    }

    /// Drops the cached discovery result of a kind, which can be removed or served differently.
    pub fn forget(&self, gvk: &GroupVersionKind) {
        self.kinds.lock().remove(gvk);
    }

    /// Metadata of an object. `None` if it does not exist, or if the API server does not serve its kind.
    ///
    /// # Errors
    /// The API server did not answer, or denies the read.
    pub async fn metadata(&self, key: &ObjectKey) -> Answer<Option<Value>> {
        let request = match self.request(key).await {
            Err(error) if error.reason == ApiErrorReason::UnknownKind => return Ok(None),
            request => request?.get_metadata(&key.name, &GetParams::default()),
        };
        existing(self.send(&key.gvk, request).await)
    }

    /// Cause for which pods of a Deployment are not ready, in its status or in at most `PODS` of its pods. `None` also
    /// without the right to list them.
    pub async fn blocked_pods(&self, deployment: &Value) -> Option<Cause> {
        if let Some(cause) = of_deployment(deployment) {
            return Some(cause);
        }
        let page = ListParams::default().labels(&selector(deployment)?).limit(PODS);
        let url = Pod::url_path(&(), Some(text(deployment, "/metadata/namespace")));
        let request = Request::new(url).list(&page);
        let pods: Answer<Value> = self.send(&GroupVersionKind::gvk("", "v1", "Pod"), request).await;
        of_pods(pods.ok()?["items"].as_array()?, Timestamp::now())
    }

    async fn request(&self, key: &ObjectKey) -> Answer<Request> {
        let (resource, scope) = self.discover(&key.gvk).await?;
        let namespace = match scope {
            Scope::Cluster => None,
            Scope::Namespaced if key.namespace.is_empty() => {
                let message = format!("metadata.namespace: Required value: {} is namespaced", key.gvk.kind);
                return Err(ClusterError::new(ApiErrorReason::Rejected, message));
            }
            Scope::Namespaced => Some(key.namespace.as_str()),
        };
        Ok(Request::new(DynamicObject::url_path(&resource, namespace)))
    }

    /// Sends a request for an object.
    async fn send<T: DeserializeOwned>(
        &self,
        gvk: &GroupVersionKind,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Answer<T> {
        let mut request =
            request.map_err(|error| ClusterError::new(ApiErrorReason::Rejected, error.to_string()))?;
        request.headers_mut().extend(self.user.clone().map(|user| (IMPERSONATE, user)));
        let answer = deadline(self.client.request::<T>(request)).await;
        if answer.as_ref().is_err_and(is_unknown_path) {
            self.forget(gvk);
        }
        answer.map_err(classify)
    }
}

impl Cluster for KubeCluster {
    async fn get(&self, key: &ObjectKey) -> Answer<Option<Value>> {
        let request = self.request(key).await?.get(&key.name, &GetParams::default());
        existing(self.send(&key.gvk, request).await)
    }

    async fn create(&self, object: &Value) -> Answer<Value> {
        let key = ObjectKey::of(object);
        if is_built_in(&key.gvk) {
            let mut object = object.clone();
            object["metadata"]["resourceVersion"] = NO_RESOURCE_VERSION.into();
            return self.apply(&object, false).await;
        }
        let params =
            PostParams { field_manager: Some(REVISION_ENGINE_MANAGER.to_owned()), ..PostParams::default() };
        let request = self.request(&key).await?.create(&params, object.to_string().into_bytes());
        self.send(&key.gvk, request).await
    }

    async fn apply(&self, object: &Value, dry_run: bool) -> Answer<Value> {
        let key = ObjectKey::of(object);
        let params = PatchParams { dry_run, ..PatchParams::apply(REVISION_ENGINE_MANAGER).force() };
        let request = self.request(&key).await?.patch(&key.name, &params, &Patch::Apply(object));
        self.send(&key.gvk, request).await
    }

    async fn merge(&self, key: &ObjectKey, patch: &Value) -> Answer<Value> {
        let params =
            PatchParams { field_manager: Some(REVISION_ENGINE_MANAGER.to_owned()), ..PatchParams::default() };
        let request = self.request(key).await?.patch(&key.name, &params, &Patch::Merge(patch));
        self.send(&key.gvk, request).await
    }

    async fn delete(&self, key: &ObjectKey, uid: &str, resource_version: &str) -> Answer<bool> {
        // By default, a deleted Job would retain its pods.
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: Some(resource_version.to_owned()),
        });
        let request = self.request(key).await?.delete(&key.name, &params);
        // The answer is a Status, or the object: one that is being deleted if finalizers block its deletion, else for some
        // kinds such as Services the one that was deleted.
        self.send(&key.gvk, request).await.map(|answer: Value| !is_deleting(&answer))
    }

    async fn instances(&self, gvk: &GroupVersionKind) -> Answer<Option<Instances>> {
        let (resource, _) = match self.discover(gvk).await {
            Err(error) if error.reason == ApiErrorReason::UnknownKind => return Ok(None),
            found => found?,
        };
        let request = Request::new(DynamicObject::url_path(&resource, None));
        let unimpersonated = Self { user: None, ..self.clone() };
        let page = request.list_metadata(&ListParams::default().limit(LIST_PAGE));
        let Page { metadata, items } = unimpersonated.send(gvk, page).await?;
        let items = items.unwrap_or_default();
        let count = items.len() as u64 + metadata.remaining_item_count.unwrap_or_default();
        let (mut first, mut finalizers) = (None, BTreeSet::new());
        for Item { metadata } in items {
            first.get_or_insert_with(|| ObjectKey {
                gvk: gvk.clone(),
                namespace: metadata.namespace,
                name: metadata.name,
            });
            finalizers.extend(metadata.finalizers);
        }
        Ok(first.map(|first| Instances { count, first, finalizers }))
    }

    async fn is_autoscaled(&self, key: &ObjectKey) -> bool {
        let page = ListParams::default().limit(LIST_PAGE);
        let url = HorizontalPodAutoscaler::url_path(&(), Some(&key.namespace));
        let gvk = GroupVersionKind::gvk("autoscaling", "v2", "HorizontalPodAutoscaler");
        let unimpersonated = Self { user: None, ..self.clone() };
        let found: Answer<Value> = unimpersonated.send(&gvk, Request::new(url).list(&page)).await;
        let scalers = found.as_ref().ok().and_then(|found| found["items"].as_array());
        scalers.into_iter().flatten().any(|scaler| {
            let target = &scaler["spec"]["scaleTargetRef"];
            target["kind"] == key.gvk.kind.as_str() && target["name"] == key.name.as_str()
        })
    }
}

/// Page of a list, without what is not used: its objects can have large labels.
#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    remaining_item_count: Option<u64>,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMeta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ItemMeta {
    namespace: String,
    name: String,
    finalizers: Vec<String>,
}

/// The object that was read. `None` if it does not exist.
fn existing(answer: Answer<Value>) -> Answer<Option<Value>> {
    match answer {
        Err(error) if error.reason == ApiErrorReason::NotFound => Ok(None),
        answer => answer.map(Some),
    }
}

/// `true` if the API path is not served any more. For a missing object, the details contain its name.
fn is_unknown_path(error: &Option<Error>) -> bool {
    let Some(Error::Api(status)) = error else { return false };
    status.code == 404 && status.details.as_ref().is_none_or(|details| details.name.is_empty())
}

/// Runs `call` with the deadline.
///
/// # Errors
/// The call failed, or timed out: `None`.
async fn deadline<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, Option<Error>> {
    tokio::time::timeout(DEADLINE, call).await.map_err(|_| None)?.map_err(Some)
}

fn unknown_kind(gvk: &GroupVersionKind) -> ClusterError {
    let message = format!("no matches for kind \"{}\" in version \"{}\"", gvk.kind, gvk.api_version());
    ClusterError::new(ApiErrorReason::UnknownKind, message)
}

/// Converts a failure to an error with its class.
fn classify(error: Option<Error>) -> ClusterError {
    match error {
        Some(Error::Api(status)) => ClusterError {
            reason: reason_of(&status),
            message: status.message.clone(),
            fields: rejected_fields(&status),
        },
        Some(error) => ClusterError::new(ApiErrorReason::Unavailable, with_causes(&error)),
        None => {
            let limit = DEADLINE.as_secs();
            let message = format!("the API server did not answer within {limit} seconds");
            ClusterError::new(ApiErrorReason::Unanswered, message)
        }
    }
}

/// Reasons that are a verdict on the object itself (docs/design/apply.md#dry-run).
const REJECTIONS: [&str; 8] = [
    reason::UNAUTHORIZED,
    reason::FORBIDDEN,
    reason::INVALID,
    reason::BAD_REQUEST,
    reason::METHOD_NOT_ALLOWED,
    reason::REQUEST_ENTITY_TOO_LARGE,
    reason::UNSUPPORTED_MEDIA_TYPE,
    reason::NOT_ACCEPTABLE,
];

fn reason_of(status: &Status) -> ApiErrorReason {
    match status.reason.as_str() {
        reason::FORBIDDEN if is_terminating(status) => ApiErrorReason::NamespaceTerminating,
        reason::NOT_FOUND => ApiErrorReason::NotFound,
        reason::ALREADY_EXISTS => ApiErrorReason::AlreadyExists,
        reason::CONFLICT => ApiErrorReason::Conflict,
        reason::TOO_MANY_REQUESTS => ApiErrorReason::TooManyRequests,
        // The API server has no own reason for these three.
        reason::FORBIDDEN if is_denial(&status.message) => ApiErrorReason::NotPermitted,
        reason::BAD_REQUEST if status.message.contains("does not support dry run") => {
            ApiErrorReason::NoDryRun
        }
        reason::INVALID if status.details.iter().any(|details| is_violated(&details.causes)) => {
            ApiErrorReason::Immutable
        }
        "" if status.message.contains("failed to create typed patch object") => ApiErrorReason::Rejected,
        other if REJECTIONS.contains(&other) => ApiErrorReason::Rejected,
        // An unknown API path is answered without a reason.
        _ if status.code == 404 => ApiErrorReason::NotFound,
        _ if status.code == 429 => ApiErrorReason::TooManyRequests,
        _ => ApiErrorReason::Unavailable,
    }
}

/// Fields of the object that its validation rejects.
fn rejected_fields(status: &Status) -> Vec<String> {
    let details = status.details.iter().filter(|_| status.reason == reason::INVALID);
    details.flat_map(|details| &details.causes).map(|cause| cause.field.clone()).collect()
}

/// `true` if a new object is refused because its namespace is being deleted.
fn is_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// `true` if a permission is missing. Quotas, policies and webhooks use the same reason Forbidden.
fn is_denial(message: &str) -> bool {
    let is_denied = message.contains(" is forbidden: User \"") && message.contains("\" cannot ");
    is_denied
        || message.contains(" is attempting to grant RBAC permissions not currently held")
        || message.contains(" is forbidden: cannot set blockOwnerDeletion ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_errors_are_classified() {
        let dry_run = "admission webhook \"w\" does not support dry run";
        let typed =
            "failed to create typed patch object (ns/n; v1, Kind=K): .x: field not declared in schema";
        let denied = "configmaps \"x\" is forbidden: User \"u\" cannot create resource \"configmaps\" in API group \"\"";
        let escalates = "roles.rbac.authorization.k8s.io \"x\" is forbidden: user \"u\" (groups=[]) is attempting to grant \
                         RBAC permissions not currently held:\n{...}";
        let blocks = "secrets \"x\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource \
                      you can't set finalizers on: , <nil>";
        let quota =
            "pods \"x\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
        for (reason, code, message, expected) in [
            ("NotFound", 404, "", ApiErrorReason::NotFound),
            ("Failed to parse error data", 404, "404 page not found", ApiErrorReason::NotFound),
            ("AlreadyExists", 409, "", ApiErrorReason::AlreadyExists),
            ("Conflict", 409, "", ApiErrorReason::Conflict),
            ("TooManyRequests", 429, "", ApiErrorReason::TooManyRequests),
            ("", 429, "", ApiErrorReason::TooManyRequests),
            ("Invalid", 422, "", ApiErrorReason::Rejected),
            ("Forbidden", 403, quota, ApiErrorReason::Rejected),
            ("Forbidden", 403, denied, ApiErrorReason::NotPermitted),
            ("Forbidden", 403, escalates, ApiErrorReason::NotPermitted),
            ("Forbidden", 403, blocks, ApiErrorReason::NotPermitted),
            ("BadRequest", 400, "", ApiErrorReason::Rejected),
            ("BadRequest", 400, dry_run, ApiErrorReason::NoDryRun),
            ("", 500, typed, ApiErrorReason::Rejected),
            ("", 500, "", ApiErrorReason::Unavailable),
            ("InternalError", 500, "", ApiErrorReason::Unavailable),
            ("ServiceUnavailable", 503, "", ApiErrorReason::Unavailable),
        ] {
            let status = Status::failure(message, reason).with_code(code);
            assert_eq!(reason_of(&status), expected, "{reason} {code} {message}");
        }
    }
}
