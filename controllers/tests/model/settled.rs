//! Invariants that must hold once everything has settled: the model's prediction from the requests and the remaining
//! objects, compared with the actual state. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::intent::{Catalog, DesiredSpec, Intent, UninstallPolicy};
use crate::objects::ObjectState;
use crate::resolving::resolve;
use crate::snapshot::{
    Condition, Namespace, Phase, Revision, Snapshot, annotation, condition, controller, controllers,
    difference, is_deleting, label, owners, text,
};
use crate::universe::{Key, VERSIONS};

pub(crate) const OWNER_NAME: &str = "olm.operatorframework.io/owner-name";
pub(crate) const REVISION: &str = "olm.operatorframework.io/revision";
const PAUSED: &str = "ext.olm.operatorframework.io/paused";
const UNINSTALL: &str = "ext.olm.operatorframework.io/uninstall-policy";
const TEARDOWN: &str = "olm.operatorframework.io/teardown";

/// Changes since everything last settled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    /// `true` if the extension's spec was changed, so that it is resolved again during a rollout.
    pub(crate) edited: bool,
    /// `true` if etcd was restored, so that the product may count the spec as changed.
    pub(crate) restored: bool,
    /// Installed version at the beginning. If an older rollout succeeds after an edit, the edit's choice remains.
    pub(crate) installed: Option<usize>,
    /// Intermediate states of the catalogs.
    pub(crate) catalog_states: Vec<BTreeMap<char, Catalog>>,
    /// Intermediate specs of the extension.
    pub(crate) desired_specs: Vec<DesiredSpec>,
}

impl Window {
    /// Starts an empty window.
    pub(crate) fn new(intent: &Intent) -> Self {
        let mut window = Self::default();
        window.passes(intent);
        window
    }

    /// Records the current state.
    pub(crate) fn passes(&mut self, intent: &Intent) {
        self.catalog_states.push(intent.catalogs.clone());
        self.desired_specs.extend(intent.desired_spec.clone());
    }

    /// Reports whether a recorded desired spec, with a recorded state of the catalogs, leads from `installed` to `version`.
    pub(crate) fn justifies(&self, intent: &Intent, installed: Option<usize>, version: usize) -> bool {
        self.catalog_states.iter().any(|served_catalogs| {
            let then = Intent { catalogs: served_catalogs.clone(), ..intent.clone() };
            let leads = |desired_spec: &DesiredSpec| resolve(&then, desired_spec, installed) == Ok(version);
            let stays = then.served_catalogs().is_empty() && installed == Some(version);
            stays || self.desired_specs.iter().any(leads)
        })
    }
}

/// Expected progress of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Complete,
    Rolling,
    /// Complete, but it never succeeded, and a newer revision has objects of it.
    Overtaken,
    /// A foreign object blocks this phase.
    Collision(usize),
    /// A CRD of the same name is being deleted.
    Awaiting,
    /// The API server would reject this phase.
    Refused(usize),
    /// A Secret with its content is missing.
    Unreadable,
    /// The API server denies a write.
    Denied,
    Paused,
}

/// All differences from the prediction. Empty if there are none.
pub(crate) fn faults(intent: &Intent, window: &Window, snapshot: &Snapshot) -> Vec<String> {
    let mut judge = Judge { intent, window, snapshot, faults: Vec::new() };
    judge.all();
    judge.faults
}

/// Compares the whole state, and collects the differences.
pub(crate) struct Judge<'a> {
    pub(crate) intent: &'a Intent,
    pub(crate) window: &'a Window,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) faults: Vec<String>,
}

impl Judge<'_> {
    fn all(&mut self) {
        let namespace = self.snapshot.namespace(&self.intent.name);
        if self.intent.namespace != (namespace == Namespace::There) {
            if namespace == Namespace::Terminating && !self.intent.held.is_empty() {
                // While the namespace is being deleted, no prediction is possible.
                return;
            }
            self.faults.push(format!("the namespace is {namespace:?}"));
            return;
        }
        if self.snapshot.revisions.iter().any(Revision::is_deleting) {
            if self.intent.held.is_empty() && !self.keeps_instances() && !self.a_removal_is_denied() {
                self.faults.push("a revision is still being deleted".to_owned());
            }
            return;
        }
        self.foreign();
        self.added();
        let active: Vec<&Revision> = self.snapshot.active().collect();
        let progress: Vec<Progress> = active.iter().map(|revision| self.revision(revision)).collect();
        if let Some((newest, below)) = progress.split_last()
            && *newest == Progress::Complete
            && !below.is_empty()
        {
            self.faults.push("the newest revision is complete, and others are active".to_owned());
        }
        for revision in self.snapshot.revisions.iter().filter(|revision| revision.is_archived()) {
            self.archived(revision);
        }
        self.extension();
        self.leftovers();
    }

    /// Reports whether a revision that is being deleted reports Blocked because of custom resources.
    fn keeps_instances(&self) -> bool {
        let says_so = |revision: &Revision| {
            condition(&revision.object, "Progressing").is_some_and(|condition| condition.reason == "Blocked")
        };
        let mut leaving = self.snapshot.revisions.iter().filter(|revision| revision.is_deleting());
        !self.intent.instances.is_empty() && leaving.any(says_so)
    }

    fn foreign(&mut self) {
        for (uid, created) in &self.intent.foreign {
            let found = self.snapshot.objects.values().find(|object| text(object, "/metadata/uid") == uid);
            match found {
                None => self.faults.push(format!("foreign {} is gone", Key::of(created))),
                Some(found) => {
                    if let Some(difference) = difference(created, found, "") {
                        self.faults.push(format!("foreign {}: {difference}", Key::of(created)));
                    }
                }
            }
        }
    }

    /// Compares an active revision's objects and conditions with the expected ones.
    fn revision(&mut self, revision: &Revision) -> Progress {
        let (progress, wrong) = self.denied(revision).unwrap_or_else(|| self.progress(revision));
        let name = revision.name().to_owned();
        self.faults.extend(wrong.into_iter().map(|wrong| format!("{name}: {wrong}")));
        let version = revision.version().map_or("", |version| VERSIONS[version].text);
        let (status, reason, begins) = match progress {
            Progress::Complete => ("True", "Succeeded", format!("Revision {version} has rolled out.")),
            Progress::Rolling | Progress::Overtaken => {
                ("True", "RollingOut", format!("Revision {version} is rolling out."))
            }
            Progress::Collision(phase) => {
                ("True", "Retrying", format!("revision object collisions in phase {phase}\n"))
            }
            Progress::Awaiting => ("True", "Retrying", "waiting for the deletion of ".to_owned()),
            Progress::Refused(phase) => ("True", "Retrying", format!("phase {phase} validation error: ")),
            Progress::Unreadable => ("True", "Retrying", "resolving ref in phase ".to_owned()),
            Progress::Denied | Progress::Paused => return progress,
        };
        self.expect_condition(&name, &revision.object, "Progressing", (status, reason, &begins));
        match progress {
            Progress::Complete => {
                let available = ("True", "ProbesSucceeded", "Objects are available and pass all probes.");
                self.expect_condition(&name, &revision.object, "Available", available);
                let succeeded = ("True", "Succeeded", "Revision succeeded");
                self.expect_condition(&name, &revision.object, "Succeeded", succeeded);
            }
            Progress::Rolling => {
                self.expect_condition(&name, &revision.object, "Available", ("False", "ProbeFailure", ""))
            }
            Progress::Overtaken => {
                self.expect_condition(&name, &revision.object, "Available", ("False", "RollingOut", ""))
            }
            _ => {}
        }
        progress
    }

    pub(crate) fn progress(&self, revision: &Revision) -> (Progress, Vec<String>) {
        if annotation(&revision.object, PAUSED) == Some("true") {
            return (Progress::Paused, Vec::new());
        }
        match &revision.content {
            Some(phases) => self.progress_of(revision, phases),
            None => (Progress::Unreadable, Vec::new()),
        }
    }

    /// Progress of these phases of a revision.
    pub(crate) fn progress_of(&self, revision: &Revision, phases: &[Phase]) -> (Progress, Vec<String>) {
        let (mut wrong, mut is_overtaken) = (Vec::new(), false);
        let is_refused = !self.intent.namespace;
        for (index, (_, objects)) in phases.iter().enumerate() {
            // Objects blocked by a finalizer still exist in a namespace that is being deleted.
            let is_lacking =
                |key: Key| !key.namespace.is_empty() && !self.snapshot.objects.contains_key(&key);
            if is_refused && objects.iter().any(|object| is_lacking(Key::of(object))) {
                return (Progress::Refused(index), wrong);
            }
            let (mut ready, mut free, mut awaited) = (true, true, false);
            for object in objects {
                match self.object_state(revision, object) {
                    ObjectState::Ready => {}
                    ObjectState::Moved => is_overtaken = !revision.has_succeeded(),
                    ObjectState::NotReady => ready = false,
                    ObjectState::Collision => free = false,
                    ObjectState::Awaited => awaited = true,
                    ObjectState::Wrong(text) => wrong.push(format!("{}: {text}", Key::of(object))),
                }
            }
            if !free {
                return (Progress::Collision(index), wrong);
            }
            if awaited {
                return (Progress::Awaiting, wrong);
            }
            if !ready {
                return (Progress::Rolling, wrong);
            }
        }
        (if is_overtaken { Progress::Overtaken } else { Progress::Complete }, wrong)
    }

    fn archived(&mut self, revision: &Revision) {
        let name = revision.name().to_owned();
        let is_left = |object: &Value| controller(object) == Some(revision.uid());
        let left: Vec<&Key> =
            self.snapshot.objects.iter().filter(|(_, object)| is_left(object)).map(|(key, _)| key).collect();
        let has_finalizer = revision
            .object
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|all| all.iter().any(|finalizer| finalizer == TEARDOWN));
        if self.removal_is_denied(revision) {
            return;
        }
        if left.is_empty() {
            let archived = ("False", "Archived", "revision is archived");
            self.expect_condition(&name, &revision.object, "Progressing", archived);
            if has_finalizer {
                self.faults.push(format!("{name} is archived and keeps its finalizer"));
            }
            return;
        }
        let hangs = left.iter().any(|key| is_deleting(&self.snapshot.objects[*key]));
        let in_use = left.iter().any(|key| self.is_in_use(key));
        if in_use && !hangs {
            self.expect_condition(&name, &revision.object, "Progressing", ("False", "Blocked", ""));
        } else if !hangs {
            self.faults.push(format!("{name} is archived and still controls {}", left[0]));
        }
    }

    /// Reports whether the CRD has custom resources.
    fn is_in_use(&self, key: &Key) -> bool {
        let plural = key.name.split('.').next().unwrap_or_default();
        key.kind == "CustomResourceDefinition" && self.intent.instances.values().any(|of| of == plural)
    }

    fn extension(&mut self) {
        match (&self.intent.desired_spec, &self.snapshot.extension) {
            (None, None) => {}
            (None, Some(extension)) => {
                let blocks = annotation(extension, UNINSTALL) == Some("BlockIfInUse");
                if blocks && !self.intent.instances.is_empty() {
                    let blocked = ("False", "Blocked", "cannot uninstall: ");
                    self.expect_condition("extension", &extension.clone(), "Progressing", blocked);
                } else {
                    self.faults.push("the extension is deleted and still there".to_owned());
                }
            }
            (Some(_), None) => self.faults.push("the extension is gone".to_owned()),
            (Some(desired_spec), Some(extension)) => {
                let (desired_spec, extension) = (desired_spec.clone(), extension.clone());
                self.living(&desired_spec, &extension);
            }
        }
    }

    /// Checks an extension that is not being deleted.
    fn living(&mut self, desired_spec: &DesiredSpec, extension: &Value) {
        let snapshot = self.snapshot;
        let uninstall = desired_spec.uninstall.and_then(|policy| serde_json::to_value(policy).ok());
        for revision in snapshot.active() {
            let carries = (annotation(&revision.object, PAUSED), annotation(&revision.object, UNINSTALL));
            let wants = (desired_spec.paused.then_some("true"), uninstall.as_ref().and_then(Value::as_str));
            if carries != wants {
                self.faults.push(format!("{} carries {carries:?}, not {wants:?}", revision.name()));
            }
        }
        for revision in &snapshot.revisions {
            if controller(&revision.object) != extension.pointer("/metadata/uid").and_then(Value::as_str) {
                self.faults.push(format!("{} does not belong to the extension", revision.name()));
            }
        }
        if desired_spec.paused {
            return;
        }
        let installed = snapshot.installed();
        let generation = extension["metadata"]["generation"].as_i64().unwrap_or_default();
        for type_ in ["Progressing", "Installed"] {
            let observed = condition(extension, type_).map(|condition| condition.generation);
            if observed != Some(generation) {
                self.faults.push(format!("{type_} is of generation {observed:?}, not {generation}"));
            }
        }
        match installed {
            Some(installed) => {
                self.expect_condition(
                    "extension",
                    extension,
                    "Installed",
                    ("True", "Succeeded", "Installed bundle "),
                );
                let version = installed.version().map_or("", |version| VERSIONS[version].text);
                let shown = text(extension, "/status/install/bundle/version");
                if shown != version {
                    self.faults.push(format!("status.install shows {shown}, not {version}"));
                }
            }
            None => self.expect_condition(
                "extension",
                extension,
                "Installed",
                ("False", "", "No bundle installed"),
            ),
        }
        let wrong = self.progress_faults(desired_spec, extension, installed);
        self.faults.extend(wrong);
    }

    fn leftovers(&mut self) {
        let snapshot = self.snapshot;
        let exists = |uid: &str| snapshot.revisions.iter().any(|revision| revision.uid() == uid);
        // Garbage collection of objects without owner takes time. It is awaited only if the extension is deleted.
        let is_awaited = self.intent.desired_spec.is_none();
        let newest = snapshot.newest().map_or(0, Revision::number);
        // A Secret of a later revision is kept for a day: a backup may be restored.
        let is_kept = |secret: &Value| {
            let revision = label(secret, "olm.operatorframework.io/revision-name").unwrap_or_default();
            let number = revision.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
            owners(secret).is_empty() && number.is_some_and(|number: i64| number > newest)
        };
        for secret in snapshot.secrets.iter().filter(|secret| !is_kept(secret)) {
            let owner = controller(secret);
            if owner.is_none_or(|owner| is_awaited && !exists(owner)) {
                let (name, owners) = (text(secret, "/metadata/name"), owners(secret));
                self.faults.push(format!("Secret {name} is of no revision: {owners:?}"));
            }
        }
        for (key, object) in &snapshot.objects {
            let uid = text(object, "/metadata/uid");
            let owner = controllers(object).find(|owner| owner["kind"] == "ClusterObjectSet");
            if let Some(owner) = owner {
                let owner = text(owner, "/uid");
                let revision = snapshot.revisions.iter().find(|revision| revision.uid() == owner);
                match revision {
                    None if !is_awaited || self.intent.held.contains(uid) => {}
                    None => self.faults.push(format!("{key} is controlled by a revision that is gone")),
                    Some(one) if one.is_active() && one.content.is_some() && !one.lists(key) => {
                        self.faults
                            .push(format!("{key} is controlled by {}, which does not list it", one.name()));
                    }
                    Some(_) => {}
                }
            } else if annotation(object, REVISION).is_some()
                && snapshot.revisions.is_empty()
                && !is_deleting(object)
                && !self.intent.orphaned
                && !self.intent.stripped.contains(uid)
                && !self.intent.foreign.contains_key(uid)
            {
                self.faults.push(format!("{key} was left behind"));
            }
        }
        if self.intent.desired_spec.is_none() && snapshot.extension.is_none() && !self.intent.orphaned {
            for revision in &snapshot.revisions {
                self.faults.push(format!("{} was left behind", revision.name()));
            }
        }
    }

    /// Checks that the condition has this status, this reason (unless empty), and a message with this prefix.
    fn expect_condition(&mut self, whose: &str, object: &Value, type_: &str, expected: (&str, &str, &str)) {
        let (status, reason, begins) = expected;
        let has = condition(object, type_);
        let fits = |has: &Condition| {
            has.status == status
                && (reason.is_empty() || has.reason == reason)
                && has.message.starts_with(begins)
        };
        if !has.as_ref().is_some_and(fits) {
            self.faults.push(format!("{whose}: {type_} is {has:?}, not {status}/{reason} {begins:?}"));
        }
    }
}

/// Uninstall policy in the annotations of an object.
pub(crate) fn uninstall_policy(object: &Value) -> Option<UninstallPolicy> {
    serde_json::from_value(annotation(object, UNINSTALL)?.into()).ok()
}

#[cfg(test)]
#[path = "settled_tests.rs"]
mod tests;
