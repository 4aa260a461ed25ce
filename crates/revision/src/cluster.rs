//! Cluster access of the engine.
//!
//! The trait allows tests of order and stop rules without an API server. The real implementation is
//! [`crate::kube_cluster::KubeCluster`]. Every call ends within a deadline of the implementation.

use std::collections::BTreeSet;

use kube::core::GroupVersionKind;
use serde_json::Value;

use crate::object::ObjectKey;

/// Answer to a call.
pub type Answer<T> = Result<T, ClusterError>;

/// Access to objects of any kind. Reads are always live: an answer from a cache would cause write conflicts.
pub trait Cluster: Send + Sync {
    /// Reads the object. `None` if it does not exist.
    fn get(&self, key: &ObjectKey) -> impl Future<Output = Answer<Option<Value>>> + Send;

    /// Creates the object and never changes an existing one. Returns the stored object.
    fn create(&self, object: &Value) -> impl Future<Output = Answer<Value>> + Send;

    /// Server-side applies the object with our field manager and force. Returns the stored object, or with `dry_run`
    /// the one that would be stored.
    fn apply(&self, object: &Value, dry_run: bool) -> impl Future<Output = Answer<Value>> + Send;

    /// Applies a JSON merge patch. Returns the stored object.
    fn merge(&self, key: &ObjectKey, patch: &Value) -> impl Future<Output = Answer<Value>> + Send;

    /// Deletes exactly the object with this UID and resource version. Returns `true` if it is deleted, `false` if
    /// finalizers block the deletion.
    fn delete(
        &self,
        key: &ObjectKey,
        uid: &str,
        resource_version: &str,
    ) -> impl Future<Output = Answer<bool>> + Send;

    /// Summary of the objects of the kind in all namespaces. `None` if there are none.
    fn instances(&self, gvk: &GroupVersionKind) -> impl Future<Output = Answer<Option<Instances>>> + Send;

    /// `true` if a HorizontalPodAutoscaler scales the object. `false` also if that cannot be read.
    fn is_autoscaled(&self, key: &ObjectKey) -> impl Future<Output = bool> + Send;
}

/// Summary of the objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instances {
    /// Number of objects, at least 1.
    pub count: u64,
    /// Key of one of them.
    pub first: ObjectKey,
    /// Finalizers of the first page.
    pub finalizers: BTreeSet<String>,
}

impl Instances {
    /// Formats `<count> <CRD> (first: <namespace>/<name>): finalizer <name>, <name>`.
    pub fn summary(&self, crd: &str) -> String {
        let ObjectKey { namespace, name, .. } = &self.first;
        let slash = if namespace.is_empty() { "" } else { "/" };
        let mut text = format!("{} {crd} (first: {namespace}{slash}{name})", self.count);
        if !self.finalizers.is_empty() {
            let names: Vec<&str> = self.finalizers.iter().map(String::as_str).collect();
            text.push_str(&format!(": finalizer {}", names.join(", ")));
        }
        text
    }
}

/// Failed or rejected call. The message is for users, and equal for equal causes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ClusterError {
    /// Error class, which decides the reaction.
    pub reason: ApiErrorReason,
    /// Error text of the API server or of this crate.
    pub message: String,
    /// Paths of the fields that the API server rejects, such as `spec.ports[0].name`.
    pub fields: Vec<String>,
}

impl ClusterError {
    /// Creates an error that names no fields.
    pub fn new(reason: ApiErrorReason, message: String) -> Self {
        Self { reason, message, fields: Vec::new() }
    }

    /// `true` if the API server rejects the content of an object. Missing permissions are not a rejection.
    pub(crate) fn is_rejection(&self) -> bool {
        matches!(self.reason, ApiErrorReason::Rejected | ApiErrorReason::Immutable)
    }

    /// `true` if the namespace of a new object is being deleted or does not exist.
    pub(crate) fn is_namespace_gone(&self) -> bool {
        match self.reason {
            ApiErrorReason::NamespaceTerminating => true,
            ApiErrorReason::NotFound => self.message.starts_with("namespaces \""),
            _ => false,
        }
    }
}

/// Classes of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiErrorReason {
    /// The API server does not serve the kind.
    UnknownKind,
    /// The object, or something that it depends on, does not exist.
    NotFound,
    /// An object of the same name exists.
    AlreadyExists,
    /// The namespace of a new object is being deleted.
    NamespaceTerminating,
    /// 409 Conflict: stale resourceVersion.
    Conflict,
    /// 429: the API server limits requests.
    TooManyRequests,
    /// The API server rejects the object.
    Rejected,
    /// The API server rejects the change of a field that cannot change.
    Immutable,
    /// The user or service account lacks a permission.
    NotPermitted,
    /// A webhook does not support dry runs, so the object was not checked.
    NoDryRun,
    /// Timeout without an answer.
    Unanswered,
    /// Any other error that can be transient: network or server errors.
    Unavailable,
}

impl ApiErrorReason {
    /// `true` if the answer to a dry run is a verdict on the object, not a failed request
    /// (docs/design/apply.md#dry-run).
    pub(crate) fn is_verdict(self) -> bool {
        matches!(
            self,
            Self::UnknownKind
                | Self::NotFound
                | Self::NamespaceTerminating
                | Self::AlreadyExists
                | Self::Conflict
                | Self::Rejected
                | Self::Immutable
                | Self::NotPermitted
        )
    }
}
