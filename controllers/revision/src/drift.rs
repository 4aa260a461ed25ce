//! Reports drift that was corrected on a revision that had rolled out (docs/design/additions.md#events).

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, ResourceExt};
use olm_api::conditions::types;
use olm_api::{ClusterObjectSet, labels};
use olm_controller_core::metrics::RevisionMetrics;
use olm_revision::contention::Contention;
use olm_revision::result::{Action, ObjectResult, RevisionResult};
use olm_runtime::events::Events;
use parking_lot::Mutex;
use tokio::time::Instant;

const REASON: &str = "DriftCorrected";
/// Minimum time between two Events about one extension: another writer may contend for a field.
const PAUSE: Duration = Duration::from_secs(60);

/// Publisher of Events about corrected drift.
pub(super) struct DriftReporter {
    events: Events,
    revision_metrics: RevisionMetrics,
    /// Time of the last Event by UID of the extension.
    published: Mutex<HashMap<String, Instant>>,
}

impl DriftReporter {
    /// Creates a publisher without history.
    pub(super) fn new(events: Events, revision_metrics: RevisionMetrics) -> Self {
        Self { events, revision_metrics, published: Mutex::default() }
    }

    /// Reports the objects that a pass has corrected. `set` is the revision from before the pass.
    pub(super) fn report(&self, set: &ClusterObjectSet, result: &RevisionResult) {
        if !set.is_true(types::SUCCEEDED) {
            return;
        }
        let (Some(note), Some(extension)) = (note(&set.name_any(), result), extension_of(set)) else {
            return;
        };
        let name = extension.name.as_deref().unwrap_or_default();
        for object in written(result) {
            self.revision_metrics.corrected(name, &object.key.gvk, object.contention.as_ref());
        }
        let uid = extension.uid.clone().unwrap_or_default();
        let mut published = self.published.lock();
        published.retain(|_, at| at.elapsed() < PAUSE);
        if published.contains_key(&uid) && !written(result).any(is_first_delay) {
            return;
        }
        published.insert(uid, Instant::now());
        // Ends the deduplication, so that an equal Event is published again.
        self.events.resolved(&extension, REASON);
        self.events.normal(extension, REASON, note);
    }
}

/// Returns the text of the Event, or `None` if nothing was corrected.
fn note(revision: &str, result: &RevisionResult) -> Option<String> {
    let object = |object: &ObjectResult| {
        let mut text = object.key.kind_first();
        if let Some(contention) = &object.contention {
            if !contention.fields.is_empty() {
                text += &format!(" ({})", contention.summary());
            }
            if !contention.delay.is_zero() {
                text += &format!(", next correction after {} s", contention.delay.as_secs());
            }
        }
        text
    };
    let written: Vec<String> = written(result).map(object).collect();
    (!written.is_empty()).then(|| format!("revision {revision} corrected: {}", written.join(", ")))
}

/// Returns `true` for a correction after which further ones of the object are delayed for the first time.
fn is_first_delay(object: &ObjectResult) -> bool {
    object.contention.as_ref().is_some_and(Contention::begins)
}

/// Returns the objects that a pass has written.
fn written(result: &RevisionResult) -> impl Iterator<Item = &ObjectResult> {
    let is_written = |action| matches!(action, Action::Created | Action::Updated | Action::Recovered);
    result.objects().filter(move |object| is_written(object.action))
}

/// Returns a reference to the extension of the revision, or to the revision if it has none.
pub(super) fn subject_of(set: &ClusterObjectSet) -> ObjectReference {
    extension_of(set).unwrap_or_else(|| ObjectReference { uid: set.uid(), ..set.object_ref(&()) })
}

/// Returns a reference to the extension that controls the revision.
pub(super) fn extension_of(set: &ClusterObjectSet) -> Option<ObjectReference> {
    let owner = set.controller().filter(|owner| owner.kind == labels::OWNER_KIND_EXTENSION)?;
    Some(ObjectReference {
        api_version: Some(owner.api_version.clone()),
        kind: Some(owner.kind.clone()),
        name: Some(owner.name.clone()),
        uid: Some(owner.uid.clone()),
        ..ObjectReference::default()
    })
}
