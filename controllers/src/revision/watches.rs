//! Watches on what revisions manage: one for each kind, shared by all revisions that need it (spec 05 §11).
//!
//! Only metadata is watched, and only of objects with our owner-name label: an event is a reason to look, never the
//! content of a decision. A stripped label makes the object leave the watch, which is an event too.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};

use futures::StreamExt;
use kube::api::PartialObjectMeta;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, ResourceExt};
use olm_api::{ClusterObjectSet, annotations, labels, names};
use olm_revision::cluster::ClusterError;
use olm_revision::kube_cluster::KubeCluster;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// The running watches.
pub(crate) struct Watches {
    client: Client,
    discovery: KubeCluster,
    changed: mpsc::UnboundedSender<ObjectRef<ClusterObjectSet>>,
    running: Mutex<HashMap<GroupVersionKind, Running>>,
}

struct Running {
    task: AbortHandle,
    users: HashSet<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watches {
    /// No watches yet. Revisions whose objects change are sent to the receiver.
    pub(crate) fn new(
        client: Client,
        discovery: KubeCluster,
    ) -> (Self, mpsc::UnboundedReceiver<ObjectRef<ClusterObjectSet>>) {
        let (changed, receiver) = mpsc::unbounded_channel();
        (Self { client, discovery, changed, running: Mutex::default() }, receiver)
    }

    /// Watches these kinds for the revision, and no others where they are `all` that it has. Kinds that the cluster does
    /// not know yet are passed over; the revision will be back when it reaches them.
    pub(crate) async fn watch(
        &self,
        revision: &str,
        kinds: &[GroupVersionKind],
        all: bool,
    ) -> Result<(), ClusterError> {
        for kind in kinds {
            if self.join(revision, kind) {
                continue;
            }
            let resource = match self.discovery.discover(kind).await {
                Ok((resource, _)) => resource,
                Err(error) if error.reason == olm_revision::cluster::Reason::UnknownKind => continue,
                Err(error) => return Err(error),
            };
            let task = tokio::spawn(follow(self.client.clone(), resource, self.changed.clone()));
            let users = HashSet::from([revision.to_owned()]);
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            // Two revisions may have started the same watch; the later one replaces the earlier.
            let before = running.insert(kind.clone(), Running { task: task.abort_handle(), users });
            if let (Some(before), Some(now)) = (before, running.get_mut(kind)) {
                now.users.extend(before.users.iter().cloned());
            }
        }
        if all {
            self.leave(revision, |kind| kinds.contains(kind));
        }
        Ok(())
    }

    /// Releases everything that the revision watches.
    pub(crate) fn release(&self, revision: &str) {
        self.leave(revision, |_| false);
    }

    fn join(&self, revision: &str, kind: &GroupVersionKind) -> bool {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let watch = running.get_mut(kind).filter(|watch| !watch.task.is_finished());
        watch.map(|watch| watch.users.insert(revision.to_owned())).is_some()
    }

    fn leave(&self, revision: &str, stays: impl Fn(&GroupVersionKind) -> bool) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|kind, watch| {
            if !stays(kind) {
                watch.users.remove(revision);
            }
            !watch.users.is_empty()
        });
    }
}

async fn follow(
    client: Client,
    resource: ApiResource,
    changed: mpsc::UnboundedSender<ObjectRef<ClusterObjectSet>>,
) {
    let api = Api::<PartialObjectMeta<DynamicObject>>::all_with(client, &resource);
    let ours = watcher::Config::default().labels(labels::OWNER_NAME);
    let kind = format!("{}/{}", resource.api_version, resource.kind);
    // Revisions whose objects were seen. What vanished while the watch was broken is in no event.
    let mut seen = HashSet::new();
    let mut events = pin!(watch(api, ours).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => {
                for revision in concerned(&object) {
                    // The receiver lives as long as the process.
                    let _ = changed.send(ObjectRef::new(&revision));
                    seen.insert(revision);
                }
            }
            Ok(Event::Init) => {}
            Ok(Event::InitDone) => {
                for revision in &seen {
                    let _ = changed.send(ObjectRef::new(revision));
                }
            }
            Err(error) => tracing::warn!(%error, kind, "watching managed objects"),
        }
    }
}

/// The revisions that have to look: those that own the object, as controller or not, and the one that says it applied
/// it, in case its reference was taken off.
fn concerned(object: &PartialObjectMeta<DynamicObject>) -> Vec<String> {
    let mut names: Vec<String> = owners(object).collect();
    let extension = object.labels().get(labels::OWNER_NAME).filter(|name| !name.is_empty());
    let number = object.annotations().get(annotations::REVISION).and_then(|number| number.parse().ok());
    if let (Some(extension), Some(number)) = (extension, number) {
        let applied_by = names::revision_name(extension, number);
        if !names.contains(&applied_by) {
            names.push(applied_by);
        }
    }
    names
}

/// Names of the revisions that own the object, as controller or not.
fn owners(object: &PartialObjectMeta<DynamicObject>) -> impl Iterator<Item = String> {
    let group = format!("{}/", names::GROUP);
    object.metadata.owner_references.iter().flatten().filter_map(move |owner| {
        let ours = owner.kind == "ClusterObjectSet" && owner.api_version.starts_with(&group);
        ours.then(|| owner.name.clone())
    })
}
