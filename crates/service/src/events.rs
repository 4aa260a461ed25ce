//! Kubernetes Events of the two servers (docs/design/additions.md#events): said from anywhere,
//! published by one task.
//!
//! Saying never waits and never fails: a reconcile is no slower with Events than without, and a cluster whose RBAC
//! forbids them works as well. An Event says what changed, so the same note about the same object under the same
//! reason is published once per process, until another note comes or the caller says that it is over
//! ([`Events::over`]). Nothing here decides what is worth an Event.

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
/// Ends a note that was cut.
const ELLIPSIS: &str = "…";
/// Events that wait to be published. One that finds the queue full is dropped, and may be said again.
const QUEUE: usize = 512;
/// Of so many objects last spoken of, at least, the notes are remembered; of twice as many at most.
const REMEMBERED: usize = 4096;
/// Longest wait for one answer of the API server.
const DEADLINE: Duration = Duration::from_secs(10);

/// Publishes Events; a handle that is cheap to clone. What is queued when the last handle goes is still published.
///
/// Needs `create` on `events.events.k8s.io`. Events about cluster-scoped objects are in the namespace `default`.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<(ObjectReference, Event)>,
    said: Arc<Mutex<Said>>,
}

impl Events {
    /// Starts the task that publishes; must be called inside a Tokio runtime.
    pub fn new(client: Client, component: Component) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        // The reporting instance is the host name, in a cluster that of the pod.
        tokio::spawn(publish_all(client, component.name().into(), waiting));
        Self { queue, said: Arc::default() }
    }

    /// Says that something happened as it should. `reason` is a name of docs/design/additions.md#events; `note` is for
    /// people, and is cut at 1024 bytes.
    pub fn normal(&self, object: ObjectReference, reason: &'static str, note: String) {
        self.say(EventType::Normal, object, reason, note);
    }

    /// Says that something happened that is worth a look; otherwise as [`Events::normal`].
    pub fn warning(&self, object: ObjectReference, reason: &'static str, note: String) {
        self.say(EventType::Warning, object, reason, note);
    }

    /// What was last said about the object under this reason holds no longer: the same note is news when it comes again.
    pub fn over(&self, object: &ObjectReference, reason: &'static str) {
        let mut said = self.said.lock();
        said.forget(id(object), reason);
    }

    fn say(&self, type_: EventType, object: ObjectReference, reason: &'static str, note: String) {
        let mut said = self.said.lock();
        let digest = said.digest(&note);
        let last = said.last(id(&object), reason);
        if *last == Some(digest) {
            return;
        }
        let Ok(place) = self.queue.try_reserve() else {
            tracing::debug!(object = object.name, reason, "event dropped: too many are waiting");
            return;
        };
        *last = Some(digest);
        let (action, reason) = (reason.to_owned(), reason.to_owned());
        place.send((object, Event { type_, action, reason, note: Some(cut(note)), secondary: None }));
    }
}

/// What an object is remembered by.
fn id(object: &ObjectReference) -> &str {
    object.uid.as_deref().or(object.name.as_deref()).unwrap_or_default()
}

/// Publishes what comes out of the queue, one after the other, until every [`Events`] is gone.
async fn publish_all(
    client: Client,
    reporter: Reporter,
    mut waiting: mpsc::Receiver<(ObjectReference, Event)>,
) {
    while let Some((object, event)) = waiting.recv().await {
        // A recorder that has published under this reason within minutes would count its old note once more.
        let recorder = Recorder::new(client.clone(), reporter.clone());
        if let Err(error) = within(DEADLINE, recorder.publish(&event, &object)).await {
            let (name, reason, error) = (object.name, event.reason, describe(&error));
            tracing::debug!(object = name, reason, error, "event not published");
        }
    }
}

/// The note without hidden characters, if need be shortened to what the API server accepts.
fn cut(note: String) -> String {
    let mut note = visible(&note).into_owned();
    if note.len() > NOTE_BYTES {
        note.truncate(note.floor_char_boundary(NOTE_BYTES - ELLIPSIS.len()));
        note.push_str(ELLIPSIS);
    }
    note
}

/// Digest of the last note of each reason about one object.
type LastNotes = HashMap<&'static str, Option<u64>>;

/// What was said last, by UID of the object, or its name where no UID is given. Objects that are spoken of stay among
/// the recent; when those are too many they become the older, and what was the older is forgotten.
#[derive(Debug, Default)]
struct Said {
    recent: HashMap<String, LastNotes>,
    older: HashMap<String, LastNotes>,
    hasher: RandomState,
}

impl Said {
    fn digest(&self, note: &str) -> u64 {
        self.hasher.hash_one(note)
    }

    /// Digest of the last note about this object under this reason.
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

    /// Whether this would be published; then it is remembered.
    fn is_news(said: &mut Said, uid: &str, reason: &'static str, note: &str) -> bool {
        let digest = said.digest(note);
        said.last(uid, reason).replace(digest) != Some(digest)
    }

    #[test]
    fn a_note_is_news_until_it_is_said() {
        let mut said = Said::default();
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
            assert_eq!(is_news(&mut said, uid, reason, note), expected, "{uid} {reason} {note}");
        }
    }

    #[test]
    fn what_is_over_is_news_again() {
        let mut said = Said::default();
        assert!(is_news(&mut said, "u1", "BlocksClusterUpgrade", "a"));
        assert!(is_news(&mut said, "u1", "Resolved", "a"));
        said.forget("u1", "BlocksClusterUpgrade");
        said.forget("nobody", "BlocksClusterUpgrade");
        assert!(said.recent.len() == 1 && is_news(&mut said, "u1", "BlocksClusterUpgrade", "a"));
        assert!(!is_news(&mut said, "u1", "Resolved", "a"));
        said.older = std::mem::take(&mut said.recent);
        said.forget("u1", "BlocksClusterUpgrade");
        assert!(is_news(&mut said, "u1", "BlocksClusterUpgrade", "a"));
    }

    #[test]
    fn memory_is_bounded_and_keeps_what_is_spoken_of() {
        let mut said = Said::default();
        assert!(is_news(&mut said, "spoken of", "Resolved", "a"));
        assert!(is_news(&mut said, "silent", "Resolved", "a"));
        for number in 0..5 * REMEMBERED {
            assert!(is_news(&mut said, &number.to_string(), "Resolved", "a"));
            assert!(!is_news(&mut said, "spoken of", "Resolved", "a"));
            assert!(said.recent.len() + said.older.len() <= 2 * REMEMBERED);
        }
        assert!(is_news(&mut said, "silent", "Resolved", "a"));
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        for (note, expected) in [
            ("short".to_owned(), "short".to_owned()),
            ("a\u{1b}[2J\u{202e}b".to_owned(), "a\\u{1b}[2J\\u{202e}b".to_owned()),
            ("a".repeat(1024), "a".repeat(1024)),
            ("a".repeat(1025), format!("{}…", "a".repeat(1021))),
            ("é".repeat(600), format!("{}…", "é".repeat(510))),
            (format!("a{}", "€".repeat(400)), format!("a{}…", "€".repeat(340))),
        ] {
            let note = cut(note);
            assert!(note.len() <= NOTE_BYTES);
            assert_eq!(note, expected);
        }
    }

    #[tokio::test]
    async fn a_full_queue_blocks_nobody_and_what_it_drops_may_be_said_again() {
        let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, Infallible>>()
        });
        let events = Events::new(Client::new(silent, "default"), Component::Catalogd);
        let object = |uid: &str| ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() };
        // The publishing task has no turn between these.
        for number in 0..QUEUE + 10 {
            events.normal(object(&number.to_string()), "CatalogUpdated", "a".into());
        }
        assert_eq!(events.queue.capacity(), 0);
        let mut said = events.said.lock();
        let digest = said.digest("a");
        assert_eq!(*said.last(&(QUEUE - 1).to_string(), "CatalogUpdated"), Some(digest));
        assert_eq!(*said.last(&QUEUE.to_string(), "CatalogUpdated"), None);
    }
}
