//! The revisions as the watch shows them, by the extension that they say they are of (spec 05 §2). An extension asks for
//! its own ones several times a pass; it must not have to look at those of all others.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use olm_api::{ClusterObjectSet, labels};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{lock, revisions};

/// How long a write of ours may take to show in the watch before we go on without it.
const PATIENCE: Duration = Duration::from_secs(2);

/// All revisions that the watch has shown.
pub(super) struct KnownRevisions {
    store: Store<ClusterObjectSet>,
    /// By extension: names of ClusterObjectSets that were labelled as its own at some time.
    names: Mutex<HashMap<String, BTreeSet<String>>>,
    events: watch::Sender<()>,
}

impl KnownRevisions {
    /// Revisions in this store; [`Self::notice`] has to see every event after the store has.
    pub(super) fn new(store: Store<ClusterObjectSet>) -> Self {
        Self { store, names: Mutex::default(), events: watch::Sender::new(()) }
    }

    /// Takes note of an event.
    pub(super) fn notice(&self, event: &Event<ClusterObjectSet>) {
        let mut names = lock(&self.names);
        match event {
            Event::Init => {}
            Event::InitApply(set) | Event::Apply(set) => {
                if let Some(extension) = labelled(set) {
                    names.entry(extension.to_owned()).or_default().insert(set.name_any());
                }
            }
            Event::Delete(set) => {
                if let Some(names) = labelled(set).and_then(|extension| names.get_mut(extension)) {
                    names.remove(&set.name_any());
                }
            }
            // What vanished unseen, or under another label.
            Event::InitDone => names.retain(|_, names| {
                names.retain(|name| self.store.get(&ObjectRef::new(name)).is_some());
                !names.is_empty()
            }),
        }
        drop(names);
        self.events.send_replace(());
    }

    /// The revisions of an extension, in no order. Those that another controller owns are none of them (spec 05 §18.24).
    pub(super) fn of(&self, extension: &str) -> Vec<Arc<ClusterObjectSet>> {
        let names = lock(&self.names);
        let found = names.get(extension).into_iter().flatten();
        found
            .filter_map(|name| self.store.get(&ObjectRef::new(name)))
            .filter(|set| labelled(set) == Some(extension) && revisions::is_of(set, extension))
            .collect()
    }

    /// Waits a moment until the watch shows this revision, or a later state of it.
    pub(super) async fn shows(&self, set: &ClusterObjectSet) {
        let mut events = self.events.subscribe();
        let (name, wanted) = (ObjectRef::new(&set.name_any()), (set.uid(), set.metadata.generation));
        let shown = async {
            loop {
                events.borrow_and_update();
                let found = self.store.get(&name);
                if found.is_some_and(|set| set.uid() == wanted.0 && set.metadata.generation >= wanted.1) {
                    return;
                }
                if events.changed().await.is_err() {
                    return;
                }
            }
        };
        // A watch that is broken for longer shows it later.
        let _ = timeout(PATIENCE, shown).await;
    }
}

fn labelled(set: &ClusterObjectSet) -> Option<&str> {
    set.labels().get(labels::OWNER_NAME).map(String::as_str)
}
