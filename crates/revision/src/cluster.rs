//! What the engine needs of a cluster.
//!
//! The trait exists so that order and stop rules can be tested without an API server; the real one is
//! [`crate::kube_cluster::KubeCluster`]. Every call ends within a deadline of the implementation.

use std::collections::BTreeSet;

use kube::core::GroupVersionKind;
use serde_json::Value;

use crate::object::ObjectKey;

/// Access to objects of any kind, always live: an answer from a cache would make writes conflict.
pub trait Cluster: Send + Sync {
    /// The object, `None` if it does not exist.
    fn get(&self, key: &ObjectKey) -> impl Future<Output = Result<Option<Value>, ClusterError>> + Send;

    /// Creates the object with a plain POST, never touching one that exists; answers what was stored.
    fn create(&self, object: &Value) -> impl Future<Output = Result<Value, ClusterError>> + Send;

    /// Forced server-side apply with our field manager; answers what is, or with `dry_run` would be,
    /// stored.
    fn apply(
        &self,
        object: &Value,
        dry_run: bool,
    ) -> impl Future<Output = Result<Value, ClusterError>> + Send;

    /// JSON merge patch; answers what was stored.
    fn merge(
        &self,
        key: &ObjectKey,
        patch: &Value,
    ) -> impl Future<Output = Result<Value, ClusterError>> + Send;

    /// Deletes exactly the object with this UID and resource version: `true` if it is gone, `false` if finalizers hold it.
    fn delete(
        &self,
        key: &ObjectKey,
        uid: &str,
        resource_version: &str,
    ) -> impl Future<Output = Result<bool, ClusterError>> + Send;

    /// The objects of the kind in all namespaces; `None` if there are none.
    fn instances(
        &self,
        gvk: &GroupVersionKind,
    ) -> impl Future<Output = Result<Option<Instances>, ClusterError>> + Send;
}

/// Objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instances {
    /// How many exist, at least 1.
    pub count: u64,
    /// One of them.
    pub first: ObjectKey,
    /// Finalizers of the first page.
    pub finalizers: BTreeSet<String>,
}

impl Instances {
    /// `<count> <definition> (first: <namespace>/<name>): finalizer <name>, <name>`.
    pub fn summary(&self, definition: &str) -> String {
        let ObjectKey { namespace, name, .. } = &self.first;
        let slash = if namespace.is_empty() { "" } else { "/" };
        let mut text = format!("{} {definition} (first: {namespace}{slash}{name})", self.count);
        if !self.finalizers.is_empty() {
            let names: Vec<&str> = self.finalizers.iter().map(String::as_str).collect();
            text.push_str(&format!(": finalizer {}", names.join(", ")));
        }
        text
    }
}

/// A refused or failed call. The message is for users and the same for the same cause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ClusterError {
    /// What to do about it.
    pub reason: Reason,
    /// The API server's text, or ours.
    pub message: String,
}

/// Classes of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The API server does not serve the kind.
    UnknownKind,
    /// The object, or something that it needs, does not exist.
    NotFound,
    /// An object of that name exists.
    AlreadyExists,
    /// Somebody else was faster.
    Conflict,
    /// The server wants fewer requests.
    TooManyRequests,
    /// The server will not have this object as it is.
    Rejected,
    /// Whoever asks lacks a right.
    NotPermitted,
    /// A webhook in the way cannot do dry runs, so nothing is known about the object.
    NoDryRun,
    /// There was no answer in time.
    Unanswered,
    /// Everything else that may be gone next time: network, server errors.
    Unavailable,
}

impl Reason {
    /// Whether the answer to a dry run is a verdict on the object, not a failure to get one
    /// (docs/design/apply.md#dry-run).
    pub(crate) fn is_verdict(self) -> bool {
        matches!(
            self,
            Self::UnknownKind
                | Self::NotFound
                | Self::AlreadyExists
                | Self::Conflict
                | Self::Rejected
                | Self::NotPermitted
        )
    }
}
