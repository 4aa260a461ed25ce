//! Triggers of a pass: changed revisions, and changed single objects of other APIs
//! (docs/design/operations.md#triggers).
//!
//! Only metadata of the single objects is watched: an event is a reason to reconcile, never the content of a
//! decision.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{FutureExt, StreamExt};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use olm_controller_core::{RevisionCache, UpgradeTargets};
use olm_platform::ConstrainedRevision;
use olm_runtime::listing;
use olm_runtime::watches::watch;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::unconstrained;
use tokio_util::task::AbortOnDropHandle;

/// Notification of the controller. Notifications before a pass are merged.
#[derive(Debug, Default)]
pub(crate) struct Trigger {
    notify: Notify,
    kinds_changed: AtomicBool,
}

impl Trigger {
    /// Requests a pass.
    pub(crate) fn trigger(&self) {
        self.notify.notify_one();
    }

    /// Requests a pass because a CRD was added or removed. Discovery may not show that yet.
    fn trigger_for_kinds(&self) {
        self.kinds_changed.store(true, Ordering::Relaxed);
        self.trigger();
    }

    /// Waits for a request.
    pub(crate) async fn triggered(&self) {
        self.notify.notified().await;
    }

    /// Requests a pass after each change of the possible upgrades. Never returns.
    pub(crate) async fn follow(&self, targets: &UpgradeTargets) {
        loop {
            targets.changed().await;
            self.trigger();
        }
    }

    /// Returns `true` if kinds changed since the last call.
    pub(crate) fn take_kinds_changed(&self) -> bool {
        self.kinds_changed.swap(false, Ordering::Relaxed)
    }
}

/// Active revisions by name, reduced to the inputs of the verdict.
#[derive(Debug, Default)]
pub(crate) struct ActiveRevisions {
    /// `None` until the first list is complete.
    known: Mutex<Option<BTreeMap<String, Arc<ConstrainedRevision>>>>,
}

impl ActiveRevisions {
    /// Returns all active revisions, or `None` before the first list.
    pub(crate) fn all(&self) -> Option<Vec<Arc<ConstrainedRevision>>> {
        let known = self.known.lock();
        known.as_ref().map(|known| known.values().cloned().collect())
    }

    /// Follows the ClusterObjectSets. Never returns. While the watch is broken, the known revisions are retained.
    pub(crate) async fn follow(&self, cache: &RevisionCache, trigger: &Trigger) {
        let mut changes = pin!(cache.project(|revision| ConstrainedRevision::of(revision).map(Arc::new)));
        cache.listed().cancelled().await;
        let mut listed = BTreeMap::new();
        while let Some(Some(change)) = unconstrained(changes.next()).now_or_never() {
            put(&mut listed, change);
        }
        *self.known.lock() = Some(listed);
        trigger.trigger();
        while let Some(change) = changes.next().await {
            put(self.known.lock().get_or_insert_default(), change);
            trigger.trigger();
        }
    }
}

fn put(
    known: &mut BTreeMap<String, Arc<ConstrainedRevision>>,
    (name, revision): (String, Option<Arc<ConstrainedRevision>>),
) {
    match revision {
        Some(revision) => drop(known.insert(name, revision)),
        None => drop(known.remove(&name)),
    }
}

/// A watched object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WatchedObject {
    /// Kind of the object.
    pub resource: ApiResource,
    /// Name of the object.
    pub name: String,
}

/// Running watches on single objects.
pub(crate) struct ObjectWatches {
    client: Client,
    trigger: Arc<Trigger>,
    running: HashMap<WatchedObject, AbortOnDropHandle<()>>,
}

impl ObjectWatches {
    /// Starts watches on the CRDs with these names.
    pub(crate) fn new(client: Client, trigger: Arc<Trigger>, crds: &[&str]) -> Self {
        let mut watches = Self { client, trigger, running: HashMap::new() };
        for name in crds {
            let resource = ApiResource::erase::<
                k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
            >(&());
            watches.start(WatchedObject { resource, name: (*name).to_owned() }, Trigger::trigger_for_kinds);
        }
        watches
    }

    /// Watches these objects, whose kinds must be served, and ends all other watches except those on CRDs.
    pub(crate) fn watch(&mut self, targets: &[WatchedObject]) {
        self.running.retain(|target, watch| {
            let stays = target.resource.kind == "CustomResourceDefinition" || targets.contains(target);
            stays && !watch.is_finished()
        });
        for target in targets {
            if !self.running.contains_key(target) {
                self.start(target.clone(), Trigger::trigger);
            }
        }
    }

    fn start(&mut self, target: WatchedObject, trigger: fn(&Trigger)) {
        let task =
            tokio::spawn(follow(self.client.clone(), target.clone(), Arc::clone(&self.trigger), trigger));
        self.running.insert(target, AbortOnDropHandle::new(task));
    }
}

async fn follow(client: Client, target: WatchedObject, waker: Arc<Trigger>, trigger: fn(&Trigger)) {
    let WatchedObject { resource, name } = target;
    let api = Api::<PartialObjectMeta<DynamicObject>>::all_with(client, &resource);
    let config = listing::config().fields(&format!("metadata.name={name}"));
    let mut events = pin!(watch(api, config));
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init | Event::InitApply(_)) => {}
            Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => trigger(&waker),
            Err(error) => {
                tracing::warn!(%error, kind = resource.kind, name, "watch of platform objects failed")
            }
        }
    }
}
