//! Kubernetes Events of the two servers (docs/design/additions.md#events): queued by any task, published by one.
//!
//! Queuing never waits and never fails: Events do not slow reconciles down, and a cluster whose RBAC denies them
//! works as well. The same note with the same object and reason is published once per process, until the note
//! changes or the caller ends it ([`Events::resolved`]). The callers decide which changes are worth an Event.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use olm_api::text::visible;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::Component;
use crate::cluster::{describe, within};

/// Longest note that the API server accepts, in bytes.
const NOTE_BYTES: usize = 1024;
/// Suffix of a truncated note.
const ELLIPSIS: &str = "…";
/// Queue length. An Event that finds the queue full is dropped, and may be queued again.
const QUEUE: usize = 512;
/// The notes of at least this many recent objects are remembered, and of at most twice as many.
const REMEMBERED: usize = 4096;
/// Deadline of publishing one Event.
const DEADLINE: Duration = Duration::from_secs(10);

/// Publisher of Events. Cheap to clone. Events that are queued when the last clone is dropped are still published.
///
/// Needs `create` on `events.events.k8s.io`. Events about cluster-scoped objects are in the namespace `default`.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<(ObjectReference, Event)>,
    history: Arc<Mutex<NoteHistory>>,
}

impl Events {
    /// Starts the publishing task. Must be called inside a Tokio runtime.
    pub fn new(client: Client, component: Component) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        // The reporting instance is the host name, which is the pod name in a cluster.
        tokio::spawn(publish_all(client, component.name().into(), waiting));
        Self { queue, history: Arc::default() }
    }

    /// Queues an Event of type Normal. `reason` is a name of docs/design/additions.md#events. `note` is truncated
    /// to 1024 bytes.
    pub fn normal(&self, object: ObjectReference, reason: &'static str, note: String) {
        self.enqueue(EventType::Normal, object, reason, note);
    }

    /// Queues an Event of type Warning, otherwise like [`Events::normal`].
    pub fn warning(&self, object: ObjectReference, reason: &'static str, note: String) {
        self.enqueue(EventType::Warning, object, reason, note);
    }

    /// Ends the last note about the object with this reason, so that the same note is published when it occurs
    /// again.
    pub fn resolved(&self, object: &ObjectReference, reason: &'static str) {
        self.history.lock().forget(id(object), reason);
    }

    /// Queues an Event, unless its note is the last one about the object with this reason.
    fn enqueue(&self, type_: EventType, object: ObjectReference, reason: &'static str, note: String) {
        let mut history = self.history.lock();
        let digest = history.digest(&note);
        let last = history.last(id(&object), reason);
        if *last == Some(digest) {
            return;
        }
        let Ok(place) = self.queue.try_reserve() else {
            tracing::debug!(object = object.name, reason, "dropped event: queue is full");
            return;
        };
        *last = Some(digest);
        let (action, reason) = (reason.to_owned(), reason.to_owned());
        place.send((object, Event { type_, action, reason, note: Some(truncated(note)), secondary: None }));
    }
}

/// Key under which the notes of an object are remembered.
fn id(object: &ObjectReference) -> &str {
    object.uid.as_deref().or(object.name.as_deref()).unwrap_or_default()
}

/// Publishes queued Events one after the other, until all [`Events`] are dropped.
async fn publish_all(
    client: Client,
    reporter: Reporter,
    mut waiting: mpsc::Receiver<(ObjectReference, Event)>,
) {
    while let Some((object, event)) = waiting.recv().await {
        // A new recorder each time: one that has published with this reason within minutes would count its old note
        // once more.
        let recorder = Recorder::new(client.clone(), reporter.clone());
        if let Err(error) = within(DEADLINE, recorder.publish(&event, &object)).await {
            let (name, reason, error) = (object.name, event.reason, describe(&error));
            tracing::debug!(object = name, reason, error, "failed to publish event");
        }
    }
}

/// The note with control characters escaped, truncated to the limit of the API server.
fn truncated(note: String) -> String {
    let mut note = visible(&note).into_owned();
    if note.len() > NOTE_BYTES {
        note.truncate(note.floor_char_boundary(NOTE_BYTES - ELLIPSIS.len()));
        note.push_str(ELLIPSIS);
    }
    note
}

/// Digest of the last note by reason, for one object.
type LastNotes = HashMap<&'static str, Option<u64>>;

/// Last notes by UID of the object, or by name without UID. Objects with new Events are in `recent`. When it is
/// full, it replaces `older`, whose content is dropped.
#[derive(Debug, Default)]
struct NoteHistory {
    recent: HashMap<String, LastNotes>,
    older: HashMap<String, LastNotes>,
    hasher: RandomState,
}

impl NoteHistory {
    fn digest(&self, note: &str) -> u64 {
        self.hasher.hash_one(note)
    }

    /// Digest of the last note about this object with this reason.
    fn last(&mut self, uid: &str, reason: &'static str) -> &mut Option<u64> {
        if self.recent.len() >= REMEMBERED && !self.recent.contains_key(uid) {
            self.older = std::mem::take(&mut self.recent);
        }
        let older = self.older.remove(uid);
        let notes = self.recent.entry(uid.to_owned()).or_insert_with(|| older.unwrap_or_default());
        notes.entry(reason).or_default()
    }

    fn forget(&mut self, uid: &str, reason: &'static str) {
        for notes in [&mut self.recent, &mut self.older] {
            if let Some(notes) = notes.get_mut(uid) {
                notes.remove(reason);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// `true` if the note would be published. Remembers it.
    fn is_new(history: &mut NoteHistory, uid: &str, reason: &'static str, note: &str) -> bool {
        let digest = history.digest(note);
        history.last(uid, reason).replace(digest) != Some(digest)
    }

    #[test]
    fn same_note_is_published_once() {
        let mut history = NoteHistory::default();
        let rows = [
            ("u1", "Resolved", "a", true),
            ("u1", "Resolved", "a", false),
            ("u2", "Resolved", "a", true),
            ("u1", "Deprecated", "a", true),
            ("u1", "Resolved", "b", true),
            ("u1", "Resolved", "a", true),
            ("u1", "Resolved", "a", false),
        ];
        for (uid, reason, note, expected) in rows {
            assert_eq!(is_new(&mut history, uid, reason, note), expected, "{uid} {reason} {note}");
        }
    }

    #[test]
    fn ended_note_is_published_again() {
        let mut history = NoteHistory::default();
        assert!(is_new(&mut history, "u1", "BlocksClusterUpgrade", "a"));
        assert!(is_new(&mut history, "u1", "Resolved", "a"));
        history.forget("u1", "BlocksClusterUpgrade");
        history.forget("unknown", "BlocksClusterUpgrade");
        assert!(history.recent.len() == 1 && is_new(&mut history, "u1", "BlocksClusterUpgrade", "a"));
        assert!(!is_new(&mut history, "u1", "Resolved", "a"));
        history.older = std::mem::take(&mut history.recent);
        history.forget("u1", "BlocksClusterUpgrade");
        assert!(is_new(&mut history, "u1", "BlocksClusterUpgrade", "a"));
    }

    #[test]
    fn note_memory_is_bounded_and_keeps_active_objects() {
        let mut history = NoteHistory::default();
        assert!(is_new(&mut history, "active", "Resolved", "a"));
        assert!(is_new(&mut history, "silent", "Resolved", "a"));
        for number in 0..5 * REMEMBERED {
            assert!(is_new(&mut history, &number.to_string(), "Resolved", "a"));
            assert!(!is_new(&mut history, "active", "Resolved", "a"));
            assert!(history.recent.len() + history.older.len() <= 2 * REMEMBERED);
        }
        assert!(is_new(&mut history, "silent", "Resolved", "a"));
    }

    #[test]
    fn long_note_is_truncated_at_character_boundary() {
        for (note, expected) in [
            ("short".to_owned(), "short".to_owned()),
            ("a\u{1b}[2J\u{202e}b".to_owned(), "a\\u{1b}[2J\\u{202e}b".to_owned()),
            ("a".repeat(1024), "a".repeat(1024)),
            ("a".repeat(1025), format!("{}…", "a".repeat(1021))),
            ("é".repeat(600), format!("{}…", "é".repeat(510))),
            (format!("a{}", "€".repeat(400)), format!("a{}…", "€".repeat(340))),
        ] {
            let note = truncated(note);
            assert!(note.len() <= NOTE_BYTES);
            assert_eq!(note, expected);
        }
    }

    #[tokio::test]
    async fn full_queue_drops_events_without_blocking_or_remembering() {
        let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, Infallible>>()
        });
        let events = Events::new(Client::new(silent, "default"), Component::Catalogd);
        let object = |uid: &str| ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() };
        // The publishing task does not run between these calls.
        for number in 0..QUEUE + 10 {
            events.normal(object(&number.to_string()), "CatalogUpdated", "a".into());
        }
        assert_eq!(events.queue.capacity(), 0);
        let mut history = events.history.lock();
        let digest = history.digest("a");
        assert_eq!(*history.last(&(QUEUE - 1).to_string(), "CatalogUpdated"), Some(digest));
        assert_eq!(*history.last(&QUEUE.to_string(), "CatalogUpdated"), None);
    }
}
