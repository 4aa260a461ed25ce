//! Watch on the metadata of the Secrets that hold revision content. A lost Secret requeues its extension
//! (docs/design/apply.md#repair-of-content-secrets). A Secret without an owner, left by a crash before its revision
//! was written, or restored from a backup before its revision, is deleted once it is superseded, or gets its owner back
//! if a revision refers to it.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, Preconditions};
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};
use olm_api::limits::LIST_PAGE;
use olm_api::{ClusterObjectSet, labels, names};
use olm_controller_core::install_error::{InstallError, api_request};
use olm_revision::content::secrets;
use olm_revision::generate::secret_owner;
use olm_runtime::cluster::{list_all, within_deadline};
use olm_runtime::listing;
use olm_runtime::watches::watch;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

/// Minimum age of a Secret without an owner to be abandoned. A younger one may belong to a revision being created.
pub(super) const ABANDONED: Duration = Duration::from_secs(10);
/// Time for which a Secret that no revision supersedes is kept without an owner: a backup may be restored meanwhile.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Cache of the Secrets of all revisions.
pub(super) struct RefSecrets {
    api: Api<PartialObjectMeta<Secret>>,
    revisions: Api<ClusterObjectSet>,
    namespace: String,
    abandoned: Duration,
    /// Keyed by Secret name.
    known: Mutex<HashMap<String, ObservedSecret>>,
}

/// Cached metadata of a Secret.
#[derive(Clone, Debug)]
struct ObservedSecret {
    extension: String,
    revision: String,
    uid: Option<String>,
    version: Option<String>,
    /// Time since which it has no owner.
    unowned: Option<Instant>,
    /// `true` if the extension was requeued for it.
    is_announced: bool,
}

/// Next step for a Secret without an owner.
#[derive(Debug, PartialEq)]
enum Fate {
    /// Its revision refers to it.
    Owned(OwnerReference),
    /// A revision of its number or a higher one does not refer to it.
    Superseded,
    /// Its revision may be created yet.
    Kept,
}

impl ObservedSecret {
    /// Reports whether it has been without an owner for this time.
    fn is_unowned_for(&self, time: Duration) -> bool {
        self.unowned.is_some_and(|since| since.elapsed() >= time)
    }

    /// Next step for the Secret `name`, from the revisions of its extension. Pure.
    fn fate<S: Borrow<ClusterObjectSet>>(&self, name: &str, revisions: &[S], namespace: &str) -> Fate {
        let refers = |revision: &&ClusterObjectSet| {
            let mut keys = revision.spec.iter().flat_map(|spec| secrets(spec, namespace));
            keys.any(|key| key.namespace == namespace && key.name == name)
        };
        let mut all = revisions.iter().map(<S as Borrow<ClusterObjectSet>>::borrow);
        if let Some(revision) = all.clone().find(refers) {
            let owner = secret_owner(revision).filter(|owner| owner.name == self.revision);
            return owner.map_or(Fate::Kept, Fate::Owned);
        }
        let number = names::revision_number(&self.extension, &self.revision);
        match number.is_some_and(|number| all.any(|revision| revision.number() >= number)) {
            true => Fate::Superseded,
            false => Fate::Kept,
        }
    }
}

impl RefSecrets {
    /// Watches this namespace. A Secret without an owner for `abandoned` counts as abandoned.
    pub(super) fn new(client: &Client, namespace: &str, abandoned: Duration) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            revisions: Api::all(client.clone()),
            namespace: namespace.to_owned(),
            abandoned,
            known: Mutex::default(),
        }
    }

    /// Follows the Secrets and calls `tell` with the names of the extension and the revision of each lost one. Runs
    /// until dropped.
    pub(super) async fn follow(&self, tell: impl Fn(&str, &str)) {
        let config = listing::config()
            .labels(labels::REVISION_NAME)
            .fields(&format!("type={}", names::OBJECT_DATA_SECRET_TYPE));
        let mut events = pin!(watch(self.api.clone(), config));
        let mut listing = BTreeSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    for ObservedSecret { extension, revision, .. } in self.record(&event, &mut listing) {
                        tell(&extension, &revision);
                    }
                }
                Err(error) => tracing::warn!(%error, "watch of revision Secrets failed"),
            }
        }
    }

    /// Applies a watch event to the cache, and returns the lost Secrets.
    fn record(
        &self,
        event: &Event<PartialObjectMeta<Secret>>,
        listing: &mut BTreeSet<String>,
    ) -> Vec<ObservedSecret> {
        let mut known = self.known.lock();
        match event {
            Event::Init => listing.clear(),
            Event::InitApply(secret) | Event::Apply(secret) => {
                if matches!(event, Event::InitApply(_)) {
                    listing.insert(secret.name_any());
                }
                let label = |key: &str| secret.labels().get(key).cloned().unwrap_or_default();
                let since = known.get(&secret.name_any()).filter(|observed| observed.uid == secret.uid());
                let since = since.and_then(|observed| observed.unowned);
                let observed = ObservedSecret {
                    extension: label(labels::OWNER_NAME),
                    revision: label(labels::REVISION_NAME),
                    uid: secret.uid(),
                    version: secret.resource_version(),
                    unowned: secret.owner_references().is_empty().then(|| since.unwrap_or_else(Instant::now)),
                    is_announced: false,
                };
                known.insert(secret.name_any(), observed);
            }
            Event::Delete(secret) => return known.remove(&secret.name_any()).into_iter().collect(),
            Event::InitDone => {
                let listed = std::mem::take(listing);
                let gone = known.extract_if(|name, _| !listed.contains(name));
                return gone.map(|(_, observed)| observed).collect();
            }
        }
        Vec::new()
    }

    /// Extensions with abandoned Secrets. An existing extension removes them in its own reconcile and is returned
    /// once per Secret. Other extensions are returned until the Secret is gone.
    pub(super) fn abandoned(&self, exists: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let mut known = self.known.lock();
        let abandoned = known
            .values_mut()
            .filter(|observed| observed.is_unowned_for(self.abandoned))
            .filter_map(|observed| {
                let is_known =
                    exists(&observed.extension) && std::mem::replace(&mut observed.is_announced, true);
                (!is_known).then(|| observed.extension.clone())
            });
        abandoned.collect()
    }

    /// Repairs abandoned Secrets: deletes those that are superseded, and restores the owner of those that a revision
    /// refers to. Must not run while a revision of the extension is being created, nor after an attempt that failed
    /// midway. `known` are the revisions of the extension in the cache. They save requests.
    ///
    /// # Errors
    /// The API server did not answer, or rejected a request.
    pub(super) async fn sweep(
        &self,
        extension: &str,
        known: &[Arc<ClusterObjectSet>],
    ) -> Result<(), InstallError> {
        let is_due = |(name, observed): &(&String, &ObservedSecret)| {
            let may_go = || observed.fate(name, known, &self.namespace) != Fate::Kept;
            observed.extension == extension
                && observed.is_unowned_for(self.abandoned)
                && (observed.is_unowned_for(KEPT) || may_go())
        };
        let owned = |(name, observed): (&String, &ObservedSecret)| (name.clone(), observed.clone());
        let abandoned: BTreeMap<_, _> = self.known.lock().iter().filter(is_due).map(owned).collect();
        for (name, observed) in abandoned {
            let repaired = self.repair(&name, &observed).await;
            if let Some(observed) = self.known.lock().get_mut(&name).filter(|_| !matches!(repaired, Ok(true)))
            {
                observed.is_announced = false;
            }
            repaired.map_err(|failure| failure.context(format!("settling ref Secret {name:?}")))?;
        }
        Ok(())
    }

    /// Existing revisions of the Secret's extension, and its own one even without label.
    async fn revisions(&self, observed: &ObservedSecret) -> Result<Vec<ClusterObjectSet>, InstallError> {
        let ours = ListParams::default().labels(&format!("{}={}", labels::OWNER_NAME, observed.extension));
        let list = async |page| api_request(self.revisions.list(&page), "listing revisions").await;
        let mut revisions = list_all(ours.limit(LIST_PAGE), list).await?;
        if !revisions.iter().any(|revision| revision.name_any() == observed.revision) {
            revisions.extend(
                api_request(self.revisions.get_opt(&observed.revision), "getting the revision").await?,
            );
        }
        Ok(revisions)
    }

    /// Restores the owner of the Secret, or deletes it if it is superseded. Returns `false` after a conflict.
    async fn repair(&self, name: &str, observed: &ObservedSecret) -> Result<bool, InstallError> {
        let (extension, revision) = (&observed.extension, &observed.revision);
        let fate = observed.fate(name, &self.revisions(observed).await?, &self.namespace);
        if fate == Fate::Kept && !observed.is_unowned_for(KEPT) {
            return Ok(true);
        }
        let answer = if let Fate::Owned(owner) = fate {
            let metadata =
                json!({"uid": observed.uid, "resourceVersion": observed.version, "ownerReferences": [owner]});
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            within_deadline(self.api.patch(name, &PatchParams::default(), &patch)).await.map(|_| {
                tracing::info!(extension, revision, secret = name, "restored owner reference");
            })
        } else {
            let preconditions =
                Preconditions { uid: observed.uid.clone(), resource_version: observed.version.clone() };
            let params = DeleteParams::default().preconditions(preconditions);
            within_deadline(self.api.delete(name, &params)).await.map(|_| {
                // Its deletion is not a loss.
                self.forget(name, observed.uid.as_deref());
                tracing::info!(extension, secret = name, "deleted unreferenced Secret");
            })
        };
        match answer {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(true),
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
            answer => answer.map(|()| true).map_err(|error| InstallError::api(&error)),
        }
    }

    /// Removes the Secret with this UID from the cache, which may contain a new one of the same name already.
    fn forget(&self, name: &str, uid: Option<&str>) {
        let mut known = self.known.lock();
        if known.get(name).is_some_and(|observed| observed.uid.as_deref() == uid) {
            known.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn secret(name: &str, owners: &Value) -> PartialObjectMeta<Secret> {
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name,
            "labels": {"olm.operatorframework.io/revision-name": "demo-1",
                "olm.operatorframework.io/owner-name": "demo"}, "ownerReferences": owners}}))
        .unwrap()
    }

    fn names(observed: &[ObservedSecret]) -> Vec<&str> {
        observed.iter().map(|observed| observed.extension.as_str()).collect()
    }

    fn secrets(abandoned: Duration) -> RefSecrets {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        RefSecrets::new(&Client::try_from(nowhere).unwrap(), "system", abandoned)
    }

    // docs/design/apply.md#repair-of-content-secrets
    #[tokio::test]
    async fn watch_events_report_lost_and_abandoned_secrets() {
        let mut listing = BTreeSet::new();
        let owned = json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "name": "demo-1", "uid": "u"}]);
        let secrets = secrets(Duration::ZERO);
        let mut see = |event: Event<PartialObjectMeta<Secret>>| secrets.record(&event, &mut listing);
        for event in [
            Event::Init,
            Event::InitApply(secret("a", &owned)),
            Event::InitApply(secret("b", &json!([]))),
            Event::InitDone,
            Event::Apply(secret("c", &json!([]))),
            Event::Apply(secret("c", &owned)),
        ] {
            assert!(see(event).is_empty());
        }
        assert_eq!(secrets.abandoned(|_| true), BTreeSet::from(["demo".to_owned()]));
        assert!(secrets.abandoned(|_| true).is_empty(), "the extension was requeued");
        assert_eq!(secrets.abandoned(|_| false).len(), 1, "a deleted extension is returned each time");
        assert_eq!(names(&see(Event::Delete(secret("b", &json!([]))))), ["demo"]);
        assert!(secrets.abandoned(|_| false).is_empty());
        assert!(see(Event::Delete(secret("unknown", &owned))).is_empty());
        // Secrets that were deleted while the watch was broken.
        assert!(see(Event::Init).is_empty());
        assert!(see(Event::InitApply(secret("c", &owned))).is_empty());
        assert_eq!(names(&see(Event::InitDone)), ["demo"]);
        assert!(listing.is_empty(), "the names of a list are dropped at its end");
    }

    #[tokio::test]
    async fn forgotten_secret_leaves_new_one_of_the_same_name_in_the_cache() {
        let secrets = secrets(Duration::ZERO);
        for uid in ["1", "2"] {
            let mut secret = secret("a", &json!([]));
            secret.metadata.uid = Some(uid.to_owned());
            secrets.record(&Event::Apply(secret), &mut BTreeSet::new());
        }
        secrets.forget("a", Some("1"));
        assert_eq!(secrets.abandoned(|_| false).len(), 1);
        secrets.forget("a", Some("2"));
        assert!(secrets.abandoned(|_| false).is_empty());
    }

    // docs/design/apply.md#repair-of-content-secrets
    #[test]
    fn secret_is_superseded_only_by_revision_of_same_or_higher_number() {
        let set = |number: i64, secret: &str| -> ClusterObjectSet {
            serde_json::from_value(json!({"metadata": {"name": format!("demo-{number}"), "uid": format!("u{number}")},
                "spec": {"lifecycleState": "Active", "revision": number, "collisionProtection": "Prevent", "phases": [
                    {"name": "p", "objects": [{"ref": {"name": secret, "namespace": "system", "key": "k"}}]}]}}))
            .unwrap()
        };
        let observed = |revision: &str| ObservedSecret {
            extension: "demo".to_owned(),
            revision: revision.to_owned(),
            uid: None,
            version: None,
            unowned: Some(Instant::now()),
            is_announced: false,
        };
        let owned = |set: &ClusterObjectSet| Fate::Owned(secret_owner(set).unwrap());
        for (revision, sets, expected) in [
            ("demo-2", vec![], Fate::Kept),
            ("demo-2", vec![set(1, "b")], Fate::Kept),
            ("demo-2", vec![set(1, "b"), set(2, "a")], owned(&set(2, "a"))),
            ("demo-2", vec![set(3, "b"), set(2, "a")], owned(&set(2, "a"))),
            ("demo-2", vec![set(2, "b")], Fate::Superseded),
            ("demo-2", vec![set(3, "b")], Fate::Superseded),
            ("demo-2", vec![set(3, "a")], Fate::Kept),
            ("demo-10", vec![set(9, "b")], Fate::Kept),
            ("demo-x", vec![set(9, "b")], Fate::Kept),
        ] {
            assert_eq!(observed(revision).fate("a", &sets, "system"), expected, "{revision} {sets:?}");
        }
    }

    #[tokio::test]
    async fn new_unowned_secret_is_not_abandoned() {
        let secrets = secrets(ABANDONED);
        let event = Event::Apply(secret("a", &json!([])));
        assert!(secrets.record(&event, &mut BTreeSet::new()).is_empty());
        assert!(secrets.abandoned(|_| false).is_empty());
    }
}
