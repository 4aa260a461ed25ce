//! Reports drift that was corrected on a revision that had rolled out (docs/design/additions.md#events).

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use olm_api::conditions::types;
use olm_api::{ClusterObjectSet, labels};
use olm_revision::object::ObjectKey;
use olm_revision::result::{Action, RevisionResult};
use olm_runtime::events::Events;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::metrics::revisions::RevisionMetrics;

const REASON: &str = "DriftCorrected";
/// Minimum time between two Events about one extension: another writer may contend for a field.
const PAUSE: Duration = Duration::from_secs(60);

/// Publisher of Events about corrected drift.
pub(super) struct DriftReporter {
    events: Events,
    measures: RevisionMetrics,
    /// Time of the last Event by UID of the extension.
    published: Mutex<HashMap<String, Instant>>,
}

impl DriftReporter {
    /// Creates a publisher without history.
    pub(super) fn new(events: Events, measures: RevisionMetrics) -> Self {
        Self { events, measures, published: Mutex::default() }
    }

    /// Reports the objects that a pass has corrected. `set` is the revision from before the pass.
    pub(super) fn report(&self, set: &ClusterObjectSet, result: &RevisionResult) {
        if !set.is_true(types::SUCCEEDED) {
            return;
        }
        let (Some(note), Some(extension)) = (note(&set.name_any(), result), extension_of(set)) else {
            return;
        };
        for key in written(result) {
            self.measures.corrected(extension.name.as_deref().unwrap_or_default(), &key.gvk);
        }
        let uid = extension.uid.clone().unwrap_or_default();
        let mut published = self.published.lock();
        published.retain(|_, at| at.elapsed() < PAUSE);
        if published.contains_key(&uid) {
            return;
        }
        published.insert(uid, Instant::now());
        // Ends the deduplication, so that an equal Event is published again.
        self.events.over(&extension, REASON);
        self.events.normal(extension, REASON, note);
    }
}

/// Returns the text of the Event, or `None` if nothing was corrected.
fn note(revision: &str, result: &RevisionResult) -> Option<String> {
    let written: Vec<String> = written(result).map(ObjectKey::kind_first).collect();
    (!written.is_empty()).then(|| format!("revision {revision} corrected: {}", written.join(", ")))
}

/// Returns the objects that a pass has written.
fn written(result: &RevisionResult) -> impl Iterator<Item = &ObjectKey> {
    let is_written = |action| matches!(action, Action::Created | Action::Updated | Action::Recovered);
    let objects = result.phases.iter().flat_map(|phase| &phase.objects);
    objects.filter(move |object| is_written(object.action)).map(|object| &object.key)
}

/// Returns a reference to the extension that controls the revision.
pub(super) fn extension_of(set: &ClusterObjectSet) -> Option<ObjectReference> {
    let is_extension = |owner: &&OwnerReference| {
        owner.controller == Some(true) && owner.kind == labels::OWNER_KIND_EXTENSION
    };
    let owner = set.owner_references().iter().find(is_extension)?;
    Some(ObjectReference {
        api_version: Some(owner.api_version.clone()),
        kind: Some(owner.kind.clone()),
        name: Some(owner.name.clone()),
        uid: Some(owner.uid.clone()),
        ..ObjectReference::default()
    })
}
