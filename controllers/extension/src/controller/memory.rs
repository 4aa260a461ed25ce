//! State of each extension that the controller keeps between reconciles. All of it can be recomputed.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use kube::ResourceExt;
use olm_api::{ClusterObjectSet, annotations};
use olm_controller_core::ages::Ages;
use olm_oci::CanonicalRef;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::mirroring::MIRRORED;
use super::plans::PlanId;
use super::revisions::RevisionInputs;
use crate::preflight::CrdVerdict;

#[derive(Debug, Default)]
pub(super) struct ExtensionMemory {
    /// Newest revision and its inputs.
    pub newest: Option<RevisionRecord>,
    /// Generation that was last applied, or that counted as applied when the process first observed the extension.
    pub applied_generation: Option<Option<i64>>,
    /// First time when the selected namespaces differed from the list of the newest revision.
    pub list_differs_since: Option<Instant>,
    /// Ages of revisions since their creation, for the pace of changed lists.
    pub revision_ages: Ages,
    /// Target namespaces of the newest revision. Empty if it has no Deployment.
    pub targets: Option<Vec<String>>,
    /// Start of the wait for catalog content.
    pub waiting_since: Option<Instant>,
    /// Name of the bundle that the last reconcile would have installed if the upgrade group were ready.
    pub ready: Option<String>,
    /// `true` if a reconcile found every Secret of every active revision, and none was lost since.
    pub content_verified: bool,
}

/// Newest revision with the inputs that it was made from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RevisionRecord {
    pub inputs: RevisionInputs,
    pub newest: RevisionFingerprint,
    pub crds: CrdVerdict,
    pub image: Option<CanonicalRef>,
    pub plan: PlanId,
}

/// Identity of the newest revision: every part that the extension controller decides about.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RevisionFingerprint {
    uid: Option<String>,
    generation: Option<i64>,
    /// Hash of labels, annotations and owners.
    metadata: u64,
}

impl RevisionFingerprint {
    pub(super) fn of(revision: &ClusterObjectSet) -> Self {
        let is_decided = |key: &str| key != annotations::EXT_OBJECTS && !MIRRORED.contains(&key);
        let annotations: Vec<_> = revision.annotations().iter().filter(|(key, _)| is_decided(key)).collect();
        let mut hasher = DefaultHasher::new();
        // Owner references can only be printed.
        format!("{:?}", (revision.labels(), annotations, revision.owner_references())).hash(&mut hasher);
        Self { uid: revision.uid(), generation: revision.metadata.generation, metadata: hasher.finish() }
    }
}

/// Memory of all extensions, by name.
#[derive(Debug, Default)]
pub(super) struct Memories(Mutex<HashMap<String, ExtensionMemory>>);

impl Memories {
    pub(super) fn with<T>(&self, extension: &str, change: impl FnOnce(&mut ExtensionMemory) -> T) -> T {
        let mut all = self.0.lock();
        change(all.entry(extension.to_owned()).or_default())
    }

    /// Marks the content of an extension as unverified.
    pub(super) fn content_lost(&self, extension: &str) {
        let mut all = self.0.lock();
        if let Some(memory) = all.get_mut(extension) {
            memory.content_verified = false;
        }
    }

    pub(super) fn forget(&self, extension: &str) {
        self.0.lock().remove(extension);
    }
}
