//! A second writer: edits of fields that the revision sets, and of others, in all ways in which clients write, and
//! replicas of autoscalers.

use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::actor::{Actor, POLL_INTERVAL};
use crate::recorder::resource;
use crate::snapshot::{controller, difference, is_deleting, overlay, text};
use crate::steps::{Request, Scaler};
use crate::universe::{CONTAINER, Key};

/// Number of attempts after conflicts.
const ATTEMPTS: usize = 20;
/// Time in which a correction is expected, unless it is delayed.
const CORRECTED: Duration = Duration::from_secs(3);
/// Corrections of one field against one manager after which further ones are delayed, and the delay of the first
/// (docs/design/apply.md#contention).
const UNDELAYED: usize = 5;
const FIRST_DELAY: Duration = Duration::from_secs(10);
/// Period in which corrections are counted.
const PERIOD: Duration = Duration::from_secs(10 * 60);

impl Actor {
    /// Name of a field manager that no other edit has, so that contention never delays the correction of two edits.
    fn manager(&mut self) -> String {
        self.edits += 1;
        format!("adversary-{}", self.edits)
    }

    /// Records a change of a field that the revision sets, or a deletion of an object.
    pub(crate) fn struck(&mut self, key: &Key) {
        let times = self.change_times.entry(key.clone()).or_default();
        times.retain(|at| at.elapsed() < PERIOD);
        times.push(Instant::now());
    }

    /// Reports whether the product may delay corrections: fields that were removed count for one manager, and deletions,
    /// too.
    pub(crate) fn may_be_delayed(&self) -> bool {
        self.change_times
            .values()
            .any(|times| times.iter().filter(|at| at.elapsed() < PERIOD).count() >= UNDELAYED)
    }

    pub(crate) async fn spoil(&mut self, place: usize, request: Request) {
        let Some((key, object)) = self.at(place) else { return };
        let manager = self.manager();
        self.write_as(&key, &object, &spoiled(&key), request, &manager).await;
    }

    /// Spoils an object after each of its corrections.
    ///
    /// # Errors
    /// Corrections are not delayed.
    pub(crate) async fn revert(&mut self, place: usize, times: usize) -> Result<(), String> {
        let Some((key, object)) = self.at(place) else { return Ok(()) };
        let (manager, spoiled) = (self.manager(), spoiled(&key));
        let (started, restarts) = (Instant::now(), self.fixture.restarts());
        let is_spoiled = |object: &Value| difference(&spoiled, object, "").is_none();
        for corrected in 0..times {
            self.write_as(&key, &object, &spoiled, Request::Patch, &manager).await;
            let written = Instant::now();
            let is_corrected = |live: &Value| {
                text(live, "/metadata/uid") == text(&object, "/metadata/uid") && !is_spoiled(live)
            };
            // The snapshot may lack the edit.
            tokio::time::sleep(2 * POLL_INTERVAL).await;
            loop {
                let live = self.snapshot().objects.get(&key).cloned();
                let Some(live) = live.filter(|live| controller(live) == controller(&object)) else {
                    return Ok(());
                };
                if is_corrected(&live) {
                    break;
                }
                if written.elapsed() > CORRECTED {
                    return Ok(());
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            let is_same_process = self.fixture.restarts() == restarts;
            if corrected > UNDELAYED && is_same_process && started.elapsed() < FIRST_DELAY {
                return Err(format!("{key} was corrected {corrected} times within {:?}", started.elapsed()));
            }
        }
        Ok(())
    }

    pub(crate) async fn add(&mut self, place: usize, request: Request) {
        let Some((key, object)) = self.at(place) else { return };
        if is_deleting(&object) {
            return;
        }
        let (manager, fields) = (self.manager(), self.added(&key));
        if self.write_as(&key, &object, &fields, request, &manager).await {
            let uid = text(&object, "/metadata/uid").to_owned();
            overlay(self.intent.added.entry(uid).or_insert_with(|| json!({})), &fields);
        }
    }

    /// Fields that no bundle sets.
    fn added(&self, key: &Key) -> Value {
        let name = &self.intent.name;
        let mut fields = match key.kind.as_str() {
            "ConfigMap" => json!({"data": {"added": "kept"}}),
            "Service" => json!({"spec": {"sessionAffinity": "ClientIP"}}),
            "ServiceAccount" => json!({"imagePullSecrets": [{"name": "added"}]}),
            "PriorityClass" => json!({"description": "added"}),
            "Deployment" => json!({"spec": {"progressDeadlineSeconds": 700, "template": {
                "metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}},
                "spec": {"containers": [{"name": "added", "image": "added"}]}}}}),
            // Bundles set a conversion for Gadgets. That of Widgets is set as by a running operator.
            "CustomResourceDefinition" if key.name.starts_with("widgets.") => {
                json!({"spec": {"conversion": self.fixture.conversion(name)}})
            }
            _ => json!({}),
        };
        fields["metadata"] = json!({"labels": {"model.test/added": "kept"}});
        fields
    }

    pub(crate) async fn scale(&mut self, scaler: Scaler, replicas: i64) {
        let Some((key, _)) = self.ours().into_iter().find(|(key, _)| key.kind == "Deployment") else {
            return;
        };
        let api = self.api(&key);
        let manager = match scaler {
            Scaler::Kubectl => format!("kubectl-{}", self.manager()),
            Scaler::Autoscaler | Scaler::Editor => self.manager(),
        };
        let params = PatchParams { field_manager: Some(manager), ..PatchParams::default() };
        for _ in 0..ATTEMPTS {
            let Ok(Some(live)) = api.get_opt(&key.name).await else { return };
            // An equal value would leave the field to its owner.
            if live.data["spec"]["replicas"] == replicas {
                return;
            }
            let version = &live.metadata.resource_version;
            let patch = Patch::Merge(
                json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}),
            );
            let written = match scaler {
                Scaler::Editor => api.patch(&key.name, &params, &patch).await.map(|object| object.metadata),
                _ => api.patch_scale(&key.name, &params, &patch).await.map(|scale| scale.metadata),
            };
            let Ok(written) = written else { continue };
            self.wrote(&written);
            let uid = live.metadata.uid.unwrap_or_default();
            match scaler {
                // The API server records no owner of 0 replicas of a Scale.
                Scaler::Autoscaler if replicas > 0 => drop(self.intent.scaled.insert(uid, replicas)),
                _ => drop(self.intent.scaled.remove(&uid)),
            }
            self.struck(&key);
            return;
        }
    }

    /// Writes these fields of the object, unless another one has replaced it.
    async fn write_as(
        &mut self,
        key: &Key,
        object: &Value,
        fields: &Value,
        request: Request,
        manager: &str,
    ) -> bool {
        let (api, manager) = (self.api(key), Some(manager.to_owned()));
        let params = PatchParams { field_manager: manager.clone(), ..PatchParams::default() };
        let mut patch = fields.clone();
        patch["metadata"]["uid"] = object["metadata"]["uid"].clone();
        let written = match request {
            // Retains other items of a list of named ones.
            Request::Patch => api.patch(&key.name, &params, &Patch::Strategic(patch)).await,
            Request::Apply => {
                patch["apiVersion"] = resource(&key.kind).api_version.into();
                patch["kind"] = key.kind.as_str().into();
                patch["metadata"]["name"] = key.name.as_str().into();
                api.patch(&key.name, &params.force(), &Patch::Apply(patch)).await
            }
            Request::Update => {
                let Ok(Some(live)) = api.get_opt(&key.name).await else { return false };
                let mut live = serde_json::to_value(live).unwrap();
                overlay(&mut live, &patch);
                let live: DynamicObject = serde_json::from_value(live).unwrap();
                let params = PostParams { field_manager: manager, ..PostParams::default() };
                api.replace(&key.name, &params, &live).await
            }
        };
        let Ok(written) = written else { return false };
        self.wrote(&written.metadata);
        self.struck(key);
        true
    }
}

/// Other values of fields that the revision sets.
fn spoiled(key: &Key) -> Value {
    match key.kind.as_str() {
        "ConfigMap" => json!({"data": {"version": "spoiled"}}),
        "Service" => json!({"spec": {"selector": {"app": "spoiled"}}}),
        "Role" | "ClusterRole" => json!({"rules": []}),
        "Deployment" => json!({"spec": {"template": {"spec": {"containers": [
            {"name": CONTAINER, "image": "spoiled"}]}}}}),
        _ => json!({"metadata": {
            "annotations": {"olm.operatorframework.io/revision": "99"},
            "labels": {"app.kubernetes.io/managed-by": "spoiled"}}}),
    }
}
