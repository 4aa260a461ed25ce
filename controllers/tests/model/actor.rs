//! Applies steps to one extension: changes by its user, its catalogs and the machine. [`crate::intruder`] and
//! [`crate::adversary`] contain the changes by third parties, [`crate::rest`] the waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::{DynamicObject, ObjectMeta, TypeMeta};
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::history::{MARK, TestChanges};
use crate::intent::{Catalog, Denied, DesiredSpec, Intent};
use crate::intruder::FOREIGN_OWNER;
use crate::recorder::resource;
use crate::settled::Window;
use crate::snapshot::{Snapshot, controller, label, text};
use crate::steps::{Cascade, Step};
use crate::universe::Key;

/// Poll interval.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(40);

/// One extension and the record of the test's changes to it.
pub(crate) struct Actor {
    pub(crate) fixture: Arc<Fixture>,
    pub(crate) intent: Intent,
    /// Spec of the extension when it is created again.
    draft: DesiredSpec,
    pub(crate) test_changes: TestChanges,
    pub(crate) window: Window,
    /// Number of custom resources that were created.
    pub(crate) instances: usize,
    /// Number of edits by the adversary.
    pub(crate) edits: usize,
    /// Times of recent changes of fields that a revision sets.
    pub(crate) change_times: BTreeMap<Key, Vec<Instant>>,
    /// State at the backup of etcd.
    backup: Option<(Intent, DesiredSpec, TestChanges, Window)>,
}

impl Actor {
    /// Creates everything that an extension of this name needs, except for the extension.
    pub(crate) async fn start(fixture: Arc<Fixture>, name: &str) -> Self {
        fixture.recorder.expect(name);
        fixture.publish(name);
        let intent = Intent::new(name);
        for (letter, catalog) in intent.served_catalogs() {
            fixture.offer(name, letter, &catalog.offered, catalog.priority).await;
        }
        let window = Window::new(&intent);
        let test_changes = TestChanges::default();
        let mut actor = Self {
            fixture,
            intent,
            draft: DesiredSpec::default(),
            test_changes,
            window,
            instances: 0,
            edits: 0,
            change_times: BTreeMap::new(),
            backup: None,
        };
        actor.namespace_back().await;
        actor
    }

    /// Applies one step. Skips it if the current state does not permit it.
    pub(crate) async fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Settle => return self.settle().await,
            Step::Create => self.create().await,
            Step::Delete(cascade) => self.delete_extension(*cascade).await,
            Step::Version(version) => self.edit(|spec| spec.version.clone_from(version)).await,
            Step::Channels(channels) => self.edit(|spec| spec.channels.clone_from(channels)).await,
            Step::Policy(policy) => self.edit(|spec| spec.policy = *policy).await,
            Step::Config(config) => self.edit(|spec| spec.config = config.clone()).await,
            Step::Deadline(minutes) => self.edit(|spec| spec.deadline = *minutes).await,
            Step::Unchecked(unchecked) => self.edit(|spec| spec.unchecked = *unchecked).await,
            Step::Paused(paused) => self.edit(|spec| spec.paused = *paused).await,
            Step::Uninstall(policy) => self.edit(|spec| spec.uninstall = *policy).await,
            Step::Offer(letter, offered) => {
                self.catalog(*letter, |catalog| catalog.offered.clone_from(offered)).await
            }
            Step::Priority(letter, priority) => {
                self.catalog(*letter, |catalog| catalog.priority = *priority).await
            }
            Step::CatalogGone(letter) => self.catalog(*letter, |catalog| catalog.exists = false).await,
            Step::CatalogBack(letter) => self.catalog(*letter, |catalog| catalog.exists = true).await,
            Step::Remove(place) => self.remove(*place).await,
            Step::Spoil(place, request) => self.spoil(*place, *request).await,
            Step::Revert(place, times) => self.revert(*place, *times).await?,
            Step::Add(place, request) => self.add(*place, *request).await,
            Step::Scale(scaler, replicas) => self.scale(*scaler, *replicas).await,
            Step::Mark(place) => {
                self.patch_at(
                    *place,
                    json!({"metadata": {"labels": {MARK: "kept"}, "annotations": {MARK: "kept"}}}),
                )
                .await
            }
            Step::Strip(place, what) => self.strip(*place, *what).await,
            Step::Hold(place) => self.hold(*place).await,
            Step::Release => self.release().await,
            Step::Foreign(place, how) => self.foreign_anywhere(*place, *how).await,
            Step::Replace(place, how) => self.replace(*place, *how).await,
            Step::Clear => self.clear().await,
            Step::LoseSecret(which) => self.lose_secret(*which).await,
            Step::Archive(which) => self.archive(*which).await,
            Step::RemoveRevision(which, cascade) => self.remove_revision(*which, *cascade).await,
            Step::Instance => self.instance().await,
            Step::NoInstances => self.no_instances().await,
            Step::NamespaceGone => self.namespace_gone().await,
            Step::NamespaceBack => self.namespace_back().await,
            Step::Healthy(healthy) => self.intent.healthy = *healthy,
            Step::Restart => self.fixture.restart().await,
            Step::Clock(seconds) => self.fixture.step_clock(*seconds).await,
            Step::Trouble(trouble) => self.fixture.trouble(&self.intent.name, *trouble),
            Step::Calm => self.fixture.calm(&self.intent.name),
            Step::Deny(denied) => self.deny(Some(*denied)).await,
            Step::Allow => self.deny(None).await,
            Step::BackUp => self.back_up().await,
            Step::Restore => self.restore().await,
        }
        self.window.passes(&self.intent);
        Ok(())
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.fixture.recorder.snapshot(&self.intent.name)
    }

    pub(crate) fn api(&self, key: &Key) -> Api<DynamicObject> {
        let resource = resource(&key.kind);
        if key.namespace.is_empty() {
            Api::all_with(self.fixture.client(), &resource)
        } else {
            Api::namespaced_with(self.fixture.client(), &key.namespace, &resource)
        }
    }

    fn extension_key(&self) -> Key {
        Key::new("ClusterExtension", "", &self.intent.name)
    }

    /// Objects controlled by a revision, or labeled as belonging to the extension.
    pub(crate) fn ours(&self) -> Vec<(Key, Arc<Value>)> {
        let name = self.intent.name.as_str();
        let is_ours = |object: &Value| {
            label(object, "olm.operatorframework.io/owner-name") == Some(name) || controller(object).is_some()
        };
        let is_foreign = |object: &Value| self.intent.foreign.contains_key(text(object, "/metadata/uid"));
        let objects = self.snapshot().objects.into_iter();
        objects.filter(|(_, object)| is_ours(object) && !is_foreign(object)).collect()
    }

    pub(crate) fn at(&self, place: usize) -> Option<(Key, Arc<Value>)> {
        let mut ours = self.ours();
        if ours.is_empty() { None } else { Some(ours.swap_remove(place % ours.len())) }
    }

    /// Records that the test caused the write with this response.
    pub(crate) fn wrote(&mut self, answer: &ObjectMeta) {
        if let Some(version) = answer.resource_version.as_deref().and_then(|text| text.parse().ok()) {
            self.test_changes.writes.insert(version);
        }
    }

    pub(crate) async fn merge(&mut self, key: &Key, patch: Value) -> bool {
        let answer = self.api(key).patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        answer.as_ref().ok().inspect(|answer| self.wrote(&answer.metadata));
        answer.is_ok()
    }

    /// Patches only this object: the UID protects an object that has replaced it.
    pub(crate) async fn merge_into(&mut self, object: &Value, mut patch: Value) {
        patch["metadata"]["uid"] = object["metadata"]["uid"].clone();
        self.merge(&Key::of(object), patch).await;
    }

    async fn patch_at(&mut self, place: usize, patch: Value) {
        if let Some((_, object)) = self.at(place) {
            self.merge_into(&object, patch).await;
        }
    }

    async fn create(&mut self) {
        if self.intent.desired_spec.is_some() {
            return;
        }
        let (name, desired_spec) = (self.intent.name.clone(), self.draft.clone());
        let mut annotations = desired_spec.annotations();
        annotations.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let object = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": name, "annotations": annotations}, "spec": desired_spec.spec(&name),
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        // Creation fails while a previous extension is being deleted.
        if self.api(&self.extension_key()).create(&PostParams::default(), &object).await.is_ok() {
            self.intent.desired_spec = Some(desired_spec);
            // A rollout that a previous extension began remains the target.
            self.window.edited |= self.snapshot().active().next().is_none();
        }
    }

    async fn delete_extension(&mut self, cascade: Cascade) {
        let Some(desired_spec) = self.intent.desired_spec.take() else { return };
        // In foreground deletion, garbage collection may remove the last owner of an object while the product removes
        // another one: the second owner of a CRD, or a revision that is archived.
        let lost_policy = desired_spec.uninstall.is_none()
            && self.window.desired_specs.iter().any(|one| one.uninstall.is_some());
        let is_upgrading = self.window.edited || self.window.catalog_states.len() > 1;
        self.draft = desired_spec;
        self.intent.orphaned |=
            cascade == Cascade::Orphan || cascade == Cascade::Foreground && (lost_policy || is_upgrading);
        let deleted = self.api(&self.extension_key()).delete(&self.intent.name, &deletion(cascade)).await;
        deleted.unwrap();
    }

    async fn edit(&mut self, change: impl FnOnce(&mut DesiredSpec)) {
        let Some(before) = self.intent.desired_spec.clone() else { return change(&mut self.draft) };
        let mut desired_spec = before.clone();
        change(&mut desired_spec);
        let (name, key) = (self.intent.name.clone(), self.extension_key());
        let patch = json!([{"op": "replace", "path": "/spec", "value": desired_spec.spec(&name)}]);
        let patch: Patch<Value> = Patch::Json(serde_json::from_value(patch).unwrap());
        self.api(&key).patch(&name, &PatchParams::default(), &patch).await.unwrap();
        self.merge(&key, json!({"metadata": {"annotations": desired_spec.annotations()}})).await;
        self.window.edited |= before.spec(&name) != desired_spec.spec(&name);
        self.intent.desired_spec = Some(desired_spec);
    }

    async fn catalog(&mut self, letter: char, change: impl FnOnce(&mut Catalog)) {
        let catalog = self.intent.catalogs.get_mut(&letter).unwrap();
        change(catalog);
        let catalog = catalog.clone();
        if catalog.exists {
            self.fixture.offer(&self.intent.name, letter, &catalog.offered, catalog.priority).await;
        } else {
            self.fixture.withdraw(&self.intent.name, letter).await;
        }
    }

    /// Deletes only this object, by UID.
    pub(crate) async fn delete(&mut self, key: &Key, object: &Value) {
        let uid = text(object, "/metadata/uid").to_owned();
        self.test_changes.deleted.insert(uid.clone());
        self.struck(key);
        let exactly = Preconditions { uid: Some(uid), resource_version: None };
        let params = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
        // The object may be deleted already.
        let _ = self.api(key).delete(&key.name, &params).await;
    }

    /// Sets the requests that the API server denies operator-controller.
    async fn deny(&mut self, denied: Option<Denied>) {
        if self.intent.denied != denied {
            self.intent.denied = denied;
            self.fixture.deny(&self.intent.name, denied).await;
        }
    }

    async fn back_up(&mut self) {
        let Self { intent, draft, test_changes, window, .. } = &*self;
        self.backup = Some((intent.clone(), draft.clone(), test_changes.clone(), window.clone()));
        self.fixture.back_up().await;
    }

    /// Restores etcd and the record of the test. What was not in etcd stays: images and the state of pods.
    async fn restore(&mut self) {
        let Some(backup) = self.backup.clone() else { return };
        self.fixture.restore().await;
        (self.intent, self.draft, self.test_changes, self.window) = backup;
        self.window.restored = true;
        let (name, catalogs) = (self.intent.name.clone(), self.intent.catalogs.clone());
        for (letter, catalog) in catalogs {
            match catalog.exists {
                true => self.fixture.offer(&name, letter, &catalog.offered, catalog.priority).await,
                false => self.fixture.withdraw(&name, letter).await,
            }
        }
        self.fixture.until_denied(&name, self.intent.denied).await;
        // The product creates again what the backup lacks.
        self.ours().iter().for_each(|(key, _)| self.struck(key));
    }

    async fn namespace_gone(&mut self) {
        if !std::mem::take(&mut self.intent.namespace) {
            return;
        }
        self.instances_are_over();
        let is_lost = |(key, _): &(Key, _)| !key.namespace.is_empty();
        self.ours().into_iter().filter(is_lost).for_each(|(key, _)| self.struck(&key));
        self.intent.foreign.retain(|_, object| text(object, "/metadata/namespace").is_empty());
        let name = self.intent.name.clone();
        let key = Key::new("Namespace", "", &name);
        // The namespace may be deleted already.
        let _ = self.api(&key).delete(&name, &DeleteParams::default()).await;
    }

    async fn namespace_back(&mut self) {
        if self.intent.namespace
            && self.snapshot().objects.contains_key(&Key::new("Namespace", "", &self.intent.name))
        {
            return;
        }
        let (name, key) = (self.intent.name.clone(), Key::new("Namespace", "", &self.intent.name));
        let namespace = DynamicObject::new(&name, &resource("Namespace"));
        // A namespace that is being deleted must disappear first.
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.api(&key).create(&PostParams::default(), &namespace).await.is_err() {
            if Instant::now() > deadline || !self.intent.held.is_empty() {
                return;
            }
            self.clean_up().await;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        self.intent.namespace = true;
        let owner = Key::new("ConfigMap", &name, FOREIGN_OWNER);
        let object = DynamicObject {
            types: Some(TypeMeta { api_version: "v1".to_owned(), kind: "ConfigMap".to_owned() }),
            ..DynamicObject::new(FOREIGN_OWNER, &resource("ConfigMap"))
        };
        // The API server's cache may still contain the deleted namespace.
        loop {
            match self.api(&owner).create(&PostParams::default(), &object).await {
                Ok(created) => return self.wrote(&created.metadata),
                Err(error) if Instant::now() > deadline => panic!("{owner}: {error}"),
                Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }
}

/// Delete options of a cascade.
pub(crate) fn deletion(cascade: Cascade) -> DeleteParams {
    let policy = match cascade {
        Cascade::Background => PropagationPolicy::Background,
        Cascade::Foreground => PropagationPolicy::Foreground,
        Cascade::Orphan => PropagationPolicy::Orphan,
    };
    DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() }
}
