//! Waits until the state equals the model's prediction, and checks the changes on the way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::actor::{Actor, POLL_INTERVAL};
use crate::history::History;
use crate::settled::{Window, faults};
use crate::snapshot::{Revision, Snapshot, condition, controller, difference, is_deleting, owners, text};
use crate::universe::{DEFINED, Key};
use crate::verdict::{env, is_spec_applied};

/// Time limit for settling. Failing objects are retried with exponential backoff.
const PATIENCE: Duration = Duration::from_secs(150);
/// Time limit for settling if corrections may be delayed (docs/design/apply.md#contention).
const PATIENCE_FOR_DELAYS: Duration = Duration::from_secs(8 * 60);
/// Time limit for the API server to remove the custom resources of a CRD, which it retries with exponential backoff
/// under load.
const CLEANUP: Duration = Duration::from_secs(1200);
/// Duration without changes and without calls of operator-controller after which everything has settled. Longer than
/// a call takes.
const QUIET: Duration = Duration::from_millis(250);

impl Actor {
    /// Writes the status of Deployments as kubelet and kube-controller-manager do.
    async fn run_pods(&mut self, snapshot: &Snapshot) {
        for (key, deployment) in snapshot.objects.iter().filter(|(key, _)| key.kind == "Deployment") {
            let ready = i64::from(self.intent.healthy);
            let available = if self.intent.healthy { "True" } else { "False" };
            let status = json!({
                "observedGeneration": deployment["metadata"]["generation"], "replicas": 1, "updatedReplicas": 1,
                "readyReplicas": ready, "availableReplicas": ready,
                // The API server drops an empty message, so that the status would always differ.
                "conditions": [{"type": "Available", "status": available, "reason": "Model", "message": "made up"}]});
            if difference(&status, &deployment["status"], "").is_none()
                || (ready == 0 && is_shown(&status, &deployment["status"]))
            {
                continue;
            }
            let patch = Patch::Merge(json!({ "status": status }));
            let answer = self.api(key).patch_status(&key.name, &PatchParams::default(), &patch).await;
            answer.iter().for_each(|answer| self.wrote(&answer.metadata));
        }
    }

    /// Forgets custom resources whose CRD is deleted.
    fn forget_lost_instances(&mut self, snapshot: &Snapshot) {
        let crds: Vec<&str> = snapshot
            .objects
            .iter()
            .filter(|(key, object)| key.kind == "CustomResourceDefinition" && !is_deleting(object))
            .map(|(_, object)| text(object, "/metadata/uid"))
            .collect();
        let instances = &self.test_changes.instances;
        self.intent
            .instances
            .retain(|uid, _| instances.get(uid).is_some_and(|one| crds.contains(&one.crd.as_str())));
    }

    /// Waits until the state equals the model's prediction, and checks the changes on the way.
    pub(crate) async fn settle(&mut self) -> Result<(), String> {
        let name = self.intent.name.clone();
        let started = Instant::now();
        let mut deadline = started + if self.may_be_delayed() { PATIENCE_FOR_DELAYS } else { PATIENCE };
        // A rollout does not wait for catalogs, and a later edit would be judged by their previous content.
        self.fixture.until_served(&name).await?;
        let proxy = &Arc::clone(&self.fixture).servers.proxy;
        let mut silent = (proxy.count(), Instant::now());
        let mut restarts = self.fixture.restarts();
        loop {
            let snapshot = self.snapshot();
            self.run_pods(&snapshot).await;
            let is_dying = |(key, object): (&Key, &Arc<Value>)| {
                is_deleting(object) && ["CustomResourceDefinition", "Namespace"].contains(&key.kind.as_str())
            };
            if snapshot.objects.iter().any(is_dying) {
                self.clean_up().await;
            }
            self.forget_lost_instances(&snapshot);
            let faults = faults(&self.intent, &self.window, &snapshot);
            let is_silent = silent.1.elapsed() >= QUIET && self.fixture.recorder.quiet(&name) >= QUIET;
            if !faults.is_empty()
                || is_silent && proxy.calls(silent.0).iter().any(|call| call.mentions(&name))
            {
                silent = (proxy.count(), Instant::now());
            } else if is_silent {
                break;
            }
            // A new process measures the time anew for which a missing object is left to a newer revision.
            let is_new = std::mem::replace(&mut restarts, self.fixture.restarts()) != restarts;
            if is_new || snapshot.objects.values().any(|object| is_cleaned_up(object)) {
                deadline = deadline.max((Instant::now() + PATIENCE).min(started + CLEANUP));
            }
            if Instant::now() > deadline {
                let quiet = self.fixture.recorder.quiet(&name);
                return Err(format!("does not come to rest (quiet for {quiet:?}):\n{}", faults.join("\n")));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        self.judge()?;
        self.check_instances().await?;
        let snapshot = self.snapshot();
        let is_spec_applied = is_spec_applied(&self.intent, &self.window, &snapshot);
        let edited = self.window.edited && !is_spec_applied;
        let restored = self.window.restored && !is_spec_applied;
        let now = snapshot.installed().and_then(Revision::version);
        let installed = if edited { self.window.installed } else { now };
        self.window = Window { edited, restored, installed, ..Window::new(&self.intent) };
        self.forget_disowned(&snapshot);
        Ok(())
    }

    /// Forgets that managedFields were removed from objects whose revision has owned its fields again.
    fn forget_disowned(&mut self, snapshot: &Snapshot) {
        if self.intent.denied.is_some()
            || self.intent.desired_spec.as_ref().is_none_or(|desired_spec| desired_spec.paused)
        {
            return;
        }
        for (key, object) in &snapshot.objects {
            // A revision that adopted the object before could not drop a field.
            let is_owned = |revision: &Revision| {
                let mut objects = revision.objects();
                controller(object) == Some(revision.uid())
                    && is_complete(revision)
                    && objects.any(|listed| Key::of(listed) == *key && env(listed) == env(object))
            };
            if snapshot.active().any(is_owned) {
                self.intent.disowned.remove(text(object, "/metadata/uid"));
            }
        }
    }

    fn judge(&self) -> Result<(), String> {
        let justified = |installed, version| self.window.justifies(&self.intent, installed, version);
        let judge =
            |history: &mut History| (history.judge(&self.test_changes, justified), history.outdated());
        let (mut faults, outdated) = self.fixture.recorder.history(&self.intent.name, judge);
        // A conflict can retain one.
        if outdated > 1 {
            faults.push(format!("there are {outdated} outdated revisions"));
        }
        if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
    }

    /// Checks that custom resources exist while their CRD is the same object.
    async fn check_instances(&mut self) -> Result<(), String> {
        let mut lost = Ok(());
        // The snapshot may lack the deletion of a CRD.
        for _ in 0..50 {
            let snapshot = self.snapshot();
            self.forget_lost_instances(&snapshot);
            lost = self.find_instances().await;
            if lost.is_ok() {
                break;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        lost
    }

    async fn find_instances(&self) -> Result<(), String> {
        for plural in DEFINED {
            let expected: Vec<&String> =
                self.intent.instances.iter().filter(|(_, of)| *of == plural).map(|(uid, _)| uid).collect();
            if expected.is_empty() {
                continue;
            }
            let list = self.instances_of(plural).list(&ListParams::default()).await;
            let list = list.map_err(|error| format!("{plural} cannot be listed: {error}"))?;
            let found: Vec<&str> = list.iter().filter_map(|one| one.metadata.uid.as_deref()).collect();
            if let Some(lost) = expected.iter().find(|uid| !found.contains(&uid.as_str())) {
                return Err(format!("custom resource {lost} of {plural} is gone"));
            }
        }
        Ok(())
    }

    /// Describes the state for a failure report.
    pub(crate) async fn describe(&self) -> String {
        let snapshot = self.snapshot();
        let mut lines = vec![format!("asked for: {:?}", self.intent)];
        lines.extend(snapshot.extension.iter().map(|extension| format!("extension {}", brief(extension))));
        for Revision { object, content } in &snapshot.revisions {
            let known = if content.is_some() { "" } else { ", content missing" };
            lines.push(format!(
                "revision {}{known}: {}",
                text(object, "/spec/lifecycleState"),
                brief(object)
            ));
        }
        lines.extend(snapshot.objects.iter().map(|(key, object)| format!("{key}: {}", brief(object))));
        lines.extend(self.fixture.diagnostics(&self.intent.name).await);
        lines.push(format!("log of operator-controller:\n{}", self.fixture.log(&self.intent.name, 40).await));
        lines.join("\n")
    }
}

/// Shortens an object to identity, owners and conditions.
fn brief(object: &Value) -> String {
    let mut metadata = object["metadata"].clone();
    for (member, removed) in
        [("labels", "olm.operatorframework.io/owner-kind"), ("annotations", "olm.properties")]
    {
        metadata[member].as_object_mut().map(|members| members.remove(removed));
    }
    let owners: Vec<String> = owners(object)
        .iter()
        .map(|owner| {
            format!("{}{}", text(owner, "/name"), if owner["controller"] == true { "*" } else { "" })
        })
        .collect();
    let conditions: Vec<String> = ["Progressing", "Available", "Installed", "Succeeded"]
        .iter()
        .filter_map(|type_| Some((type_, condition(object, type_)?)))
        .map(|(type_, one)| {
            format!("{type_}={}/{} @{} {:.300}", one.status, one.reason, one.generation, one.message)
        })
        .collect();
    let of = |member: &str| &object["metadata"][member];
    format!(
        "{} uid {} generation {} version {} owners [{}] deletion {} finalizers {} labels {} annotations {} {}",
        of("name"),
        of("uid"),
        of("generation"),
        of("resourceVersion"),
        owners.join(" "),
        of("deletionTimestamp"),
        of("finalizers"),
        metadata["labels"],
        metadata["annotations"],
        conditions.join("; "),
    )
}

fn is_complete(revision: &Revision) -> bool {
    condition(&revision.object, "Progressing").is_some_and(|condition| condition.reason == "Succeeded")
}

/// Reports whether only the API server's finalizer blocks a CRD that is being deleted.
fn is_cleaned_up(object: &Value) -> bool {
    is_deleting(object)
        && object["metadata"]["finalizers"] == json!(["customresourcecleanup.apiextensions.k8s.io"])
}

/// Compares status without the fields that are absent when no replica is ready.
fn is_shown(expected: &Value, status: &Value) -> bool {
    let without = |status: &Value| {
        let mut status = status.clone();
        if let Some(members) = status.as_object_mut() {
            members.retain(|key, value| {
                !(key.ends_with("eadyReplicas") || key.starts_with("available")) || *value != 0
            });
        }
        status
    };
    difference(&without(expected), &without(status), "").is_none()
        && status["readyReplicas"].as_i64().unwrap_or_default() == 0
}
