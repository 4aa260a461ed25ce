//! Cache of all ClusterObjectSets, shared by the controllers: one reflector with an index by extension.

use std::collections::{BTreeSet, HashMap};
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use olm_api::{ClusterObjectSet, labels};
use olm_runtime::listing;
use olm_runtime::watches::{self, is_interruption};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::membership::belongs_to;

/// Maximum time that [`RevisionCache::until_contains`] waits for a watch event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// A change of a ClusterObjectSet. Subscribers receive it when the cache already contains this state or a later one.
#[derive(Clone, Debug)]
pub enum RevisionChange {
    /// It was created or changed, or existed at the time of the subscription.
    Applied(Arc<ClusterObjectSet>),
    /// It was deleted. Holds the last known state.
    Deleted(Arc<ClusterObjectSet>),
}

impl RevisionChange {
    /// Returns the ClusterObjectSet of any change.
    pub fn set(&self) -> &Arc<ClusterObjectSet> {
        let (Self::Applied(revision) | Self::Deleted(revision)) = self;
        revision
    }

    /// Returns the ClusterObjectSet, or `None` if it was deleted.
    pub fn applied(self) -> Option<Arc<ClusterObjectSet>> {
        match self {
            Self::Applied(revision) => Some(revision),
            Self::Deleted(_) => None,
        }
    }
}

/// Shared cache, empty until [`Self::follow`] runs. Clones share it.
#[derive(Clone, Debug)]
pub struct RevisionCache(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Store<ClusterObjectSet>,
    /// Taken by [`RevisionCache::follow`].
    writer: Mutex<Option<Writer<ClusterObjectSet>>>,
    listed: CancellationToken,
    synced: watch::Sender<bool>,
    state: Mutex<State>,
    /// Notified after every event.
    events: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Names of the ClusterObjectSets that have ever had the extension's label, by extension. Readers check the
    /// label.
    names: HashMap<String, BTreeSet<String>>,
    subscribers: Vec<mpsc::UnboundedSender<RevisionChange>>,
}

impl Default for RevisionCache {
    fn default() -> Self {
        let (store, writer) = reflector::store();
        Self(Arc::new(Shared {
            store,
            writer: Mutex::new(Some(writer)),
            listed: CancellationToken::new(),
            synced: watch::Sender::new(false),
            state: Mutex::default(),
            events: watch::Sender::new(()),
        }))
    }
}

impl RevisionCache {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Follows the ClusterObjectSets of the cluster until `stop`. Returns at once if another call already does.
    pub async fn follow(&self, client: Client, stop: CancellationToken) {
        let Some(writer) = self.0.writer.lock().take() else { return };
        let events = watches::watch(Api::all(client), listing::config());
        stop.run_until_cancelled(self.process(writer, events)).await;
    }

    async fn process(
        &self,
        mut writer: Writer<ClusterObjectSet>,
        events: impl Stream<Item = watcher::Result<Event<ClusterObjectSet>>>,
    ) {
        let mut events = pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.apply(&mut writer, event),
                Err(error) => {
                    if is_interruption(&error) {
                        self.0.synced.send_replace(false);
                    }
                    tracing::warn!(%error, "watch of ClusterObjectSets failed");
                }
            }
        }
    }

    fn apply(&self, writer: &mut Writer<ClusterObjectSet>, mut event: Event<ClusterObjectSet>) {
        if let Event::Apply(revision) | Event::InitApply(revision) | Event::Delete(revision) = &mut event {
            revision.metadata.managed_fields = None;
        }
        let Shared { store, listed, synced, state, events, .. } = &*self.0;
        let is_listed = matches!(event, Event::InitDone);
        // Locked across the store write, so that a new subscriber gets either the old state and these changes, or the
        // new state.
        let mut state = state.lock();
        let before = if is_listed { store.state() } else { Vec::new() };
        writer.apply_watcher_event(&event);
        let changes = match event {
            Event::Init | Event::InitApply(_) => return,
            Event::Apply(revision) => vec![RevisionChange::Applied(Arc::new(revision))],
            Event::Delete(revision) => vec![RevisionChange::Deleted(Arc::new(revision))],
            Event::InitDone => relisted(before, store),
        };
        changes.iter().for_each(|change| state.note(change));
        state.subscribers.retain(|to| !to.is_closed());
        for to in &state.subscribers {
            changes.iter().for_each(|change| drop(to.send(change.clone())));
        }
        listed.cancel();
        if is_listed {
            synced.send_replace(true);
        }
        events.send_replace(());
    }

    /// Applies an event in place of [`Self::follow`], for tests. Does nothing once that runs.
    pub fn inject(&self, event: Event<ClusterObjectSet>) {
        if let Some(writer) = &mut *self.0.writer.lock() {
            self.apply(writer, event);
        }
    }

    /// Stream of all changes from now on, preceded by one for each existing ClusterObjectSet.
    pub fn subscribe(&self) -> impl Stream<Item = RevisionChange> + Send + use<> {
        let (to, changes) = mpsc::unbounded_channel();
        let mut state = self.0.state.lock();
        for revision in self.all() {
            let _ = to.send(RevisionChange::Applied(revision));
        }
        state.subscribers.push(to);
        UnboundedReceiverStream::new(changes)
    }

    /// Stream of the changes of `project(set)`, with the name of the ClusterObjectSet. `None` once that is deleted.
    pub fn project<T: Clone + PartialEq>(
        &self,
        project: impl Fn(&ClusterObjectSet) -> Option<T>,
    ) -> impl Stream<Item = (String, Option<T>)> {
        let mut known = HashMap::new();
        let changes = self.subscribe().map(move |change| {
            let name = change.set().name_any();
            let next = change.applied().and_then(|revision| project(&revision));
            let before = match &next {
                Some(next) => known.insert(name.clone(), next.clone()),
                None => known.remove(&name),
            };
            (before != next).then_some((name, next))
        });
        changes.filter_map(ready)
    }

    /// Returns the store of the cache, for the controller of ClusterObjectSets.
    pub fn store(&self) -> Store<ClusterObjectSet> {
        self.0.store.clone()
    }

    /// Cancelled once every ClusterObjectSet that existed at the start is in the cache.
    pub fn listed(&self) -> &CancellationToken {
        &self.0.listed
    }

    /// `true` while the cache follows the cluster, `false` from a failure of the watch until the next list.
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.0.synced.subscribe()
    }

    /// Returns all ClusterObjectSets in no particular order.
    pub fn all(&self) -> Vec<Arc<ClusterObjectSet>> {
        self.0.store.state()
    }

    /// Revisions of an extension, unordered. An owner of the same name and another kind has none.
    pub fn of_extension(&self, extension: &str) -> Vec<Arc<ClusterObjectSet>> {
        let mut revisions = self.labeled(extension);
        revisions.retain(|revision| belongs_to(revision, extension));
        revisions
    }

    /// Returns the ClusterObjectSets with the label of this extension, sorted by name.
    pub fn labeled(&self, extension: &str) -> Vec<Arc<ClusterObjectSet>> {
        let state = self.0.state.lock();
        let found = state.names.get(extension).into_iter().flatten();
        found
            .filter_map(|name| self.0.store.get(&ObjectRef::new(name)))
            .filter(|revision| extension_label(revision) == Some(extension))
            .collect()
    }

    /// Waits until the cache contains this state of a ClusterObjectSet or a later one, but not longer than
    /// [`EVENT_TIMEOUT`].
    pub async fn until_contains(&self, revision: &ClusterObjectSet) {
        let mut events = self.0.events.subscribe();
        let (name, written) =
            (ObjectRef::new(&revision.name_any()), (revision.uid(), revision.metadata.generation));
        let shown = async {
            loop {
                events.borrow_and_update();
                let found = self.0.store.get(&name);
                if found.is_some_and(|revision| {
                    revision.uid() == written.0 && revision.metadata.generation >= written.1
                }) || events.changed().await.is_err()
                {
                    return;
                }
            }
        };
        // A broken watch delivers it later.
        let _ = timeout(EVENT_TIMEOUT, shown).await;
    }
}

impl State {
    fn note(&mut self, change: &RevisionChange) {
        let revision = change.set();
        let Some(extension) = extension_label(revision) else { return };
        match change {
            RevisionChange::Applied(_) => {
                self.names.entry(extension.to_owned()).or_default().insert(revision.name_any());
            }
            RevisionChange::Deleted(_) => {
                if let Some(names) = self.names.get_mut(extension) {
                    names.remove(&revision.name_any());
                    if names.is_empty() {
                        self.names.remove(extension);
                    }
                }
            }
        }
    }
}

/// Returns the changes between the state `before` a list and the state after it.
fn relisted(before: Vec<Arc<ClusterObjectSet>>, store: &Store<ClusterObjectSet>) -> Vec<RevisionChange> {
    let is_gone = |revision: &Arc<ClusterObjectSet>| {
        store.get(&ObjectRef::new(&revision.name_any())).is_none_or(|now| now.uid() != revision.uid())
    };
    let deleted = before.into_iter().filter(is_gone).map(RevisionChange::Deleted);
    deleted.chain(store.state().into_iter().map(RevisionChange::Applied)).collect()
}

fn extension_label(revision: &ClusterObjectSet) -> Option<&str> {
    revision.labels().get(labels::OWNER_NAME).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::json;

    use super::*;

    fn set(name: &str, uid: &str, extension: &str) -> ClusterObjectSet {
        let metadata = json!({"name": name, "uid": uid, "labels": {labels::OWNER_NAME: extension}});
        let set = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "metadata": metadata});
        serde_json::from_value(set).unwrap()
    }

    fn list(cache: &RevisionCache, sets: &[ClusterObjectSet]) {
        cache.inject(Event::Init);
        sets.iter().for_each(|set| cache.inject(Event::InitApply(set.clone())));
        cache.inject(Event::InitDone);
    }

    fn names(cache: &RevisionCache, extension: &str) -> Vec<String> {
        cache.labeled(extension).iter().map(|set| set.name_any()).collect()
    }

    /// Returns the received changes as `+name` and `-name`, sorted.
    fn seen(changes: &mut (impl Stream<Item = RevisionChange> + Unpin)) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some(Some(change)) = changes.next().now_or_never() {
            let sign = if matches!(change, RevisionChange::Applied(_)) { '+' } else { '-' };
            seen.push(format!("{sign}{}", change.set().name_any()));
        }
        seen.sort();
        seen
    }

    #[test]
    fn index_follows_labels_and_deletions() {
        let cache = RevisionCache::new();
        list(&cache, &[set("a-2", "2", "a"), set("a-1", "1", "a"), set("b-1", "3", "b")]);
        assert_eq!(names(&cache, "a"), ["a-1", "a-2"]);
        cache.inject(Event::Apply(set("a-1", "1", "b")));
        assert_eq!(
            (names(&cache, "a"), names(&cache, "b")),
            (vec!["a-2".into()], vec!["a-1".into(), "b-1".into()])
        );
        cache.inject(Event::Delete(set("a-2", "2", "a")));
        assert_eq!(names(&cache, "a"), [""; 0]);
    }

    #[test]
    fn subscriber_receives_existing_sets_then_changes() {
        let cache = RevisionCache::new();
        let mut early = cache.subscribe();
        cache.inject(Event::Init);
        cache.inject(Event::InitApply(set("a-1", "1", "a")));
        assert!(seen(&mut early).is_empty() && !cache.listed().is_cancelled());
        cache.inject(Event::InitDone);
        assert!(cache.listed().is_cancelled());
        let mut late = cache.subscribe();
        cache.inject(Event::Apply(set("a-2", "2", "a")));
        for changes in [&mut early, &mut late] {
            assert_eq!(seen(changes), ["+a-1", "+a-2"]);
        }
    }

    // docs/design/apply.md#restored-cluster
    #[tokio::test]
    async fn cache_is_synced_from_a_list_until_the_watch_fails() {
        let cache = RevisionCache::new();
        let writer = cache.0.writer.lock().take().unwrap();
        let (events, received) = mpsc::unbounded_channel();
        let followed = cache.clone();
        tokio::spawn(async move { followed.process(writer, UnboundedReceiverStream::new(received)).await });
        let mut synced = cache.synced();
        assert!(!*synced.borrow());
        events.send(Ok(Event::Init)).unwrap();
        events.send(Ok(Event::InitDone)).unwrap();
        synced.wait_for(|synced| *synced).await.unwrap();
        events.send(Err(watcher::Error::NoResourceVersion)).unwrap();
        synced.wait_for(|synced| !*synced).await.unwrap();
        events.send(Ok(Event::Apply(set("a-1", "1", "a")))).unwrap();
        events.send(Ok(Event::Init)).unwrap();
        cache.until_contains(&set("a-1", "1", "a")).await;
        assert!(!*synced.borrow());
        events.send(Ok(Event::InitDone)).unwrap();
        synced.wait_for(|synced| *synced).await.unwrap();
    }

    #[test]
    fn relist_reports_deleted_and_replaced_sets() {
        let cache = RevisionCache::new();
        list(&cache, &[set("gone", "1", "a"), set("replaced", "2", "a"), set("same", "3", "a")]);
        let mut changes = cache.subscribe();
        seen(&mut changes);
        list(&cache, &[set("replaced", "4", "a"), set("same", "3", "a")]);
        assert_eq!(seen(&mut changes), ["+replaced", "+same", "-gone", "-replaced"]);
        assert_eq!(names(&cache, "a"), ["replaced", "same"]);
    }
}
