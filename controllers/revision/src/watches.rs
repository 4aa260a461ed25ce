//! Watches on managed objects: one for each kind, shared by all revisions that need it
//! (docs/design/apply.md#watches).
//!
//! Only metadata is watched, and only of objects with our owner-name label: an event is a reason to reconcile, never
//! the content of a decision. Observed versions are recorded for the engine, which skips reading unchanged objects.
//! Removing the label makes the object leave the watch, which is an event too.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use olm_api::text::with_causes;
use olm_api::{ClusterObjectSet, annotations, labels, names};
use olm_revision::cluster::{ApiErrorReason, ClusterError};
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::observed_versions::ObservedVersions;
use olm_runtime::cluster::describe;
use olm_runtime::listing::{self, OurMeta, in_turn};
use olm_runtime::watches::{self, is_interruption, status_code};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

/// Maximum time that a pass waits until the kinds it needs are listed.
const LIST_DEADLINE: Duration = Duration::from_secs(10);
/// Maximum interval between attempts of a denied watch. A watch without a denial for this long is established.
const DENIED_RETRY: Duration = Duration::from_secs(60);

type Changed = mpsc::UnboundedSender<ObjectRef<ClusterObjectSet>>;
type Users = Arc<Mutex<HashSet<String>>>;

pub(crate) struct Watches {
    client: Client,
    discovery: KubeCluster,
    observed_versions: Arc<ObservedVersions>,
    changed: Changed,
    running: Mutex<HashMap<GroupVersionKind, RunningWatch>>,
}

struct RunningWatch {
    task: AbortOnDropHandle<()>,
    /// Names of the revisions that need the watch.
    users: Users,
    state: watch::Receiver<WatchState>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum WatchState {
    Starting,
    /// The initial list is complete and changes are followed.
    Listed,
    /// The API server denies or fails the watch.
    Failed(ClusterError),
}

impl Watches {
    /// Creates the registry without watches. Revisions whose objects change are sent to the receiver.
    pub(crate) fn new(
        client: Client,
        discovery: KubeCluster,
        observed_versions: Arc<ObservedVersions>,
    ) -> (Self, mpsc::UnboundedReceiver<ObjectRef<ClusterObjectSet>>) {
        let (changed, receiver) = mpsc::unbounded_channel();
        (Self { client, discovery, observed_versions, changed, running: Mutex::default() }, receiver)
    }

    /// Watches these kinds for the revision. With `all`, releases its other kinds. Kinds that are not served yet are
    /// skipped: the revision requests them again when it reaches them.
    ///
    /// # Errors
    /// A kind cannot be watched.
    pub(crate) async fn watch(
        &self,
        revision: &str,
        kinds: &[GroupVersionKind],
        all: bool,
    ) -> Result<(), ClusterError> {
        let mut states = Vec::with_capacity(kinds.len());
        for kind in kinds {
            if let Some(state) = join_running(&self.running.lock(), revision, kind) {
                states.push((kind, state));
                continue;
            }
            match self.discovery.discover(kind).await {
                Ok((resource, _)) => states.push((kind, self.start(revision, kind, resource))),
                Err(error) if error.reason == ApiErrorReason::UnknownKind => {}
                Err(error) => return Err(error),
            }
        }
        if all {
            self.release_kinds(revision, |kind| kinds.contains(kind));
        }
        let deadline = Instant::now() + LIST_DEADLINE;
        for (kind, mut state) in states {
            match timeout_at(deadline, state.wait_for(|state| *state != WatchState::Starting)).await {
                Ok(Ok(state)) => match &*state {
                    WatchState::Failed(error) => return Err(error.clone()),
                    WatchState::Starting | WatchState::Listed => {}
                },
                // The kind is no longer served.
                Ok(Err(_)) => {}
                Err(_) => {
                    let GroupVersionKind { group, version, kind } = kind;
                    let limit = LIST_DEADLINE.as_secs();
                    let message = format!("{group}/{version}, Kind={kind}: not listed within {limit} s");
                    return Err(ClusterError::new(ApiErrorReason::Unanswered, message));
                }
            }
        }
        Ok(())
    }

    /// Releases all watches of the revision.
    pub(crate) fn release(&self, revision: &str) {
        self.release_kinds(revision, |_| false);
    }

    /// Returns the watched kinds.
    #[cfg(test)]
    pub(crate) fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<String> = self.running.lock().keys().map(|gvk| gvk.kind.clone()).collect();
        kinds.sort();
        kinds
    }

    fn start(
        &self,
        revision: &str,
        kind: &GroupVersionKind,
        resource: ApiResource,
    ) -> watch::Receiver<WatchState> {
        let mut running = self.running.lock();
        // Another revision may have started it in the meantime.
        if let Some(state) = join_running(&running, revision, kind) {
            return state;
        }
        let (sender, state) = watch::channel(WatchState::Starting);
        let users: Users = Arc::new(Mutex::new(HashSet::from([revision.to_owned()])));
        let watch = Watch {
            api: Api::all_with(self.client.clone(), &resource),
            kind: kind.clone(),
            discovery: self.discovery.clone(),
            observed_versions: Arc::clone(&self.observed_versions),
            changed: self.changed.clone(),
            users: Arc::clone(&users),
            state: sender,
        };
        let task = AbortOnDropHandle::new(tokio::spawn(watch.run()));
        running.insert(kind.clone(), RunningWatch { task, users, state: state.clone() });
        state
    }

    /// Releases the kinds for which `is_needed` is false, and ends watches without users.
    fn release_kinds(&self, revision: &str, is_needed: impl Fn(&GroupVersionKind) -> bool) {
        self.running.lock().retain(|kind, watch| {
            let mut users = watch.users.lock();
            if !is_needed(kind) {
                users.remove(revision);
            }
            if users.is_empty() {
                self.observed_versions.forget(kind);
            }
            !users.is_empty()
        });
    }
}

/// Adds the revision to the users of the kind's watch, if one is running.
fn join_running(
    running: &HashMap<GroupVersionKind, RunningWatch>,
    revision: &str,
    kind: &GroupVersionKind,
) -> Option<watch::Receiver<WatchState>> {
    let watch = running.get(kind).filter(|watch| !watch.task.is_finished())?;
    watch.users.lock().insert(revision.to_owned());
    Some(watch.state.clone())
}

/// Returns the state of a failed watch. Only a 403 means a missing right.
fn failed(code: u16, message: String) -> WatchState {
    let reason = if code == 403 { ApiErrorReason::NotPermitted } else { ApiErrorReason::Unavailable };
    WatchState::Failed(ClusterError::new(reason, message))
}

struct Watch {
    api: Api<OurMeta<DynamicObject>>,
    kind: GroupVersionKind,
    discovery: KubeCluster,
    observed_versions: Arc<ObservedVersions>,
    changed: Changed,
    users: Users,
    state: watch::Sender<WatchState>,
}

impl Watch {
    async fn run(self) {
        self.follow().await;
        self.observed_versions.forget(&self.kind);
        self.discovery.forget(&self.kind);
        self.requeue_users();
    }

    /// Follows the objects until the kind is no longer served.
    async fn follow(&self) {
        let ours = listing::config().labels(labels::OWNER_NAME);
        let mut events = pin!(in_turn(watches::watch(self.api.clone(), ours)));
        let mut was_listed = false;
        loop {
            let is_refused = was_listed && matches!(&*self.state.borrow(), WatchState::Failed(_));
            let limit = if is_refused { DENIED_RETRY } else { Duration::MAX };
            let Ok(event) = timeout(limit, events.next()).await else {
                self.set_state(WatchState::Listed);
                continue;
            };
            match event {
                None => return,
                Some(Ok(event)) => {
                    was_listed |= matches!(event, Event::InitDone);
                    self.handle(&event);
                }
                Some(Err(error)) => {
                    self.handle_error(&error);
                    if status_code(&error) == 404 {
                        return;
                    }
                }
            }
        }
    }

    fn handle(&self, event: &Event<OurMeta<DynamicObject>>) {
        match event {
            Event::Init => self.observed_versions.begin_list(&self.kind),
            Event::InitApply(object) => {
                if self.observed_versions.record_listed(&self.kind, &object.metadata) {
                    self.requeue_owners(object);
                }
            }
            Event::InitDone => {
                // Deletions during a broken watch cause no event.
                if self.observed_versions.complete_list(&self.kind) {
                    self.requeue_users();
                }
                self.set_state(WatchState::Listed);
            }
            Event::Apply(object) => {
                self.observed_versions.record(&self.kind, &object.metadata);
                self.requeue_owners(object);
            }
            Event::Delete(object) => {
                self.observed_versions.remove(&self.kind, &object.metadata);
                self.requeue_owners(object);
            }
        }
    }

    /// Handles an error. Transient errors are ignored once the objects have been listed.
    fn handle_error(&self, error: &watcher::Error) {
        if is_interruption(error) {
            self.observed_versions.interrupt(&self.kind);
        }
        let (code, text) = match error {
            watcher::Error::InitialListFailed(failure)
            | watcher::Error::WatchStartFailed(failure)
            | watcher::Error::WatchFailed(failure) => (status_code(error), describe(failure)),
            watcher::Error::WatchError(status) => (status.code, status.message.clone()),
            watcher::Error::NoResourceVersion => (0, with_causes(error)),
        };
        let GroupVersionKind { group, version, kind } = &self.kind;
        tracing::warn!(group, version, kind, code, error = text, "watch of managed objects failed");
        match code {
            // The kind is no longer served: its waiters see the end of the watch.
            404 => {}
            401 | 403 | 405 => self.set_state(failed(code, text)),
            _ if *self.state.borrow() != WatchState::Listed => self.set_state(failed(code, text)),
            _ => {}
        }
    }

    /// Changes the state, which releases waiting passes. Other users are requeued if the state differs.
    fn set_state(&self, state: WatchState) {
        let before = self.state.send_replace(state.clone());
        if before != state && before != WatchState::Starting {
            self.requeue_users();
        }
    }

    fn requeue_users(&self) {
        let users: Vec<String> = self.users.lock().iter().cloned().collect();
        self.requeue(users);
    }

    fn requeue_owners(&self, object: &OurMeta<DynamicObject>) {
        let revisions = owning_revisions(object, &self.users.lock());
        self.requeue(revisions);
    }

    fn requeue(&self, revisions: Vec<String>) {
        for revision in revisions {
            // The receiver lives as long as the process.
            let _ = self.changed.send(ObjectRef::new(&revision));
        }
    }
}

/// Returns the revisions to reconcile: the owners of the object, as controller or not, and the revision in its
/// annotation, in case the owner reference was removed. If that is not a user of the watch either, those of the extension
/// in the label are added.
fn owning_revisions(object: &OurMeta<DynamicObject>, users: &HashSet<String>) -> Vec<String> {
    let group = format!("{}/", names::GROUP);
    let mut owners = object.owner_references().to_vec();
    owners.retain(|owner| owner.kind == "ClusterObjectSet" && owner.api_version.starts_with(&group));
    let mut names: Vec<String> = owners.into_iter().map(|owner| owner.name).collect();
    let has_owner = !names.is_empty();
    let extension = object.labels().get(labels::OWNER_NAME).filter(|name| !name.is_empty());
    let Some(extension) = extension else { return names };
    let number = object.annotations().get(annotations::REVISION).and_then(|number| number.parse().ok());
    let applied_by = number.map(|number| names::revision_name(extension, number));
    names.extend(applied_by.filter(|name| !names.contains(name)));
    if !has_owner && !names.iter().any(|name| users.contains(name)) {
        let is_of_extension = |name: &&String| names::revision_number(extension, name).is_some();
        names.extend(users.iter().filter(is_of_extension).cloned());
    }
    names
}

#[cfg(test)]
#[path = "watches_tests.rs"]
mod tests;
