//! Invariants that must hold at every moment, checked on all changes in the order of their resource versions. Pure.
//!
//! One etcd numbers the changes of all kinds, so that the order of watch events does not matter.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::intent::UninstallPolicy;
use crate::snapshot::{
    annotation, condition, controller, controllers, difference, is_deleting, is_keeper, label, owners, text,
};
use crate::universe::{Key, VERSIONS};

/// Key of the label and the annotation that the test adds to objects of the product.
pub(crate) const MARK: &str = "model.test/mark";
/// Maximum age of the state on which the choice of a new revision is based. Calls can be slow.
const UNSEEN: SignedDuration = SignedDuration::from_secs(5);
/// Maximum age of a custom resource that the product may have missed.
const JUST_MADE: SignedDuration = SignedDuration::from_secs(2);
/// Maximum time since the deletion of a revision on which the choice of a new one is based. An extension that is
/// recreated at once adopts the newest revision of the previous one if possible
/// (docs/design/apply.md#recreated-extensions).
const GOING: SignedDuration = SignedDuration::from_secs(60);
/// Number of revisions that are retained when a new one is created.
const RETAINED: usize = 5;
const REVISION: &str = "olm.operatorframework.io/revision";
const PAUSED: &str = "ext.olm.operatorframework.io/paused";

#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Resource version.
    pub(crate) version: u64,
    pub(crate) is_deletion: bool,
    /// Current state, or the last one before a deletion.
    pub(crate) object: Arc<Value>,
}

/// Changes by the test, which are not faults of the product.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestChanges {
    /// Resource versions of its writes.
    pub(crate) writes: HashSet<u64>,
    /// UIDs of objects that it deleted.
    pub(crate) deleted: HashSet<String>,
    /// UIDs of foreign objects, with their original content.
    pub(crate) foreign: BTreeMap<String, Value>,
    /// Custom resources by UID.
    pub(crate) instances: BTreeMap<String, Instance>,
}

#[derive(Clone, Debug)]
pub(crate) struct Instance {
    /// UID of its CRD.
    pub(crate) crd: String,
    /// Resource version of its creation.
    pub(crate) since: u64,
    /// Time of its creation.
    pub(crate) made: Option<Timestamp>,
    /// `true` if the test has deleted it, or is about to.
    pub(crate) is_over: bool,
}

/// History of one ClusterObjectSet.
#[derive(Clone, Debug, Default)]
struct Life {
    /// States by resource version. `None` after deletion.
    states: BTreeMap<u64, Option<Arc<Value>>>,
    /// Objects that it lists, once they are known.
    lists: Option<BTreeSet<Key>>,
}

impl Life {
    fn born(&self) -> u64 {
        self.states.keys().next().copied().unwrap_or(u64::MAX)
    }

    /// `true` if it exists and is not being deleted.
    fn stays(&self) -> bool {
        let last = self.states.values().last().and_then(Option::as_ref);
        last.is_some_and(|object| !is_deleting(object))
    }

    /// State just before this resource version.
    fn before(&self, version: u64) -> Option<&Arc<Value>> {
        self.states.range(..version).next_back()?.1.as_ref()
    }

    fn was_active_before(&self, version: u64) -> bool {
        self.before(version).is_some_and(|object| is_active(object))
    }

    /// Resource version at which it was archived, marked for deletion, or deleted.
    fn retired(&self) -> Option<u64> {
        let retired = |state: &Option<Arc<Value>>| !state.as_ref().is_some_and(|object| is_active(object));
        self.states.iter().find(|(_, state)| retired(state)).map(|(version, _)| *version)
    }

    fn last_seen(&self, version: u64) -> Option<&Arc<Value>> {
        self.states.range(..version).rev().find_map(|(_, state)| state.as_ref())
    }
}

fn is_active(object: &Value) -> bool {
    text(object, "/spec/lifecycleState") == "Active" && !is_deleting(object)
}

fn is_archived(object: &Value) -> bool {
    text(object, "/spec/lifecycleState") == "Archived"
}

/// Reports whether the revision is active, or was active when it was deleted after `gone`.
fn was_active(object: &Value, gone: Option<Timestamp>) -> bool {
    let deleted = text(object, "/metadata/deletionTimestamp").parse::<Timestamp>().ok();
    let is_recent = deleted.zip(gone).is_some_and(|(deleted, gone)| gone <= deleted);
    text(object, "/spec/lifecycleState") == "Active" && (is_recent || !is_deleting(object))
}

/// Reports whether the revision had succeeded at that time, or has succeeded if `by` is `None`.
fn has_succeeded(object: &Value, by: Option<Timestamp>) -> bool {
    condition(object, "Succeeded").is_some_and(|condition| {
        condition.status == "True" && by.is_none_or(|by| condition.since.is_some_and(|since| since <= by))
    })
}

fn number(object: &Value) -> i64 {
    object.pointer("/spec/revision").and_then(Value::as_i64).unwrap_or_default()
}

/// All changes of one extension.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    lives: HashMap<String, Life>,
    /// States of the ClusterExtension by resource version.
    extension: BTreeMap<u64, Arc<Value>>,
    /// Resource versions at which a deletion of the namespace began.
    namespace_went: Vec<u64>,
    /// Last state of every other object.
    last: HashMap<Key, Arc<Value>>,
    /// Changes that have not been checked.
    pending: Vec<Event>,
    /// Last resource version before everything had settled.
    rested: u64,
    /// Last resource version before the previous time that everything had settled.
    rested_before: u64,
}

impl History {
    /// Records a change.
    pub(crate) fn record(&mut self, event: Event) {
        let Event { version, is_deletion, object } = &event;
        match text(object, "/kind") {
            "ClusterObjectSet" => {
                let life = self.lives.entry(text(object, "/metadata/uid").to_owned()).or_default();
                life.states.insert(*version, (!is_deletion).then(|| Arc::clone(object)));
            }
            "ClusterExtension" => drop(self.extension.insert(*version, Arc::clone(object))),
            "Namespace" if *is_deletion || is_deleting(object) => self.namespace_went.push(*version),
            _ => {}
        }
        self.pending.push(event);
    }

    /// Records the objects that a revision lists.
    pub(crate) fn learn(&mut self, uid: &str, lists: BTreeSet<Key>) {
        if let Some(life) = self.lives.get_mut(uid) {
            life.lists = Some(lists);
        }
    }

    /// Checks the pending changes and returns the faults. `justified` reports whether a version may follow an
    /// installed one.
    pub(crate) fn judge(
        &mut self,
        test_changes: &TestChanges,
        justified: impl Fn(Option<usize>, usize) -> bool,
    ) -> Vec<String> {
        let mut events = std::mem::take(&mut self.pending);
        events.sort_by_key(|event| event.version);
        let (mut faults, mut rested) = (Vec::new(), self.rested);
        for event in events {
            let key = Key::of(&event.object);
            let before = self.last.get(&key).cloned();
            if !event.is_deletion && before.as_deref() == Some(&*event.object) {
                // Listed again, perhaps after a restore of etcd.
                continue;
            }
            let fault = match key.kind.as_str() {
                "ClusterObjectSet" => self.revision(&event, before.as_deref(), &justified),
                "ClusterExtension" | "Namespace" => None,
                _ => self.object(&event, before.as_deref(), test_changes),
            };
            faults.extend(fault.map(|fault| format!("at {}: {key}: {fault}", event.version)));
            if event.is_deletion {
                self.last.remove(&key);
            } else {
                self.last.insert(key, event.object);
            }
            rested = rested.max(event.version);
        }
        (self.rested, self.rested_before) = (rested, self.rested);
        faults
    }

    /// Number of existing revisions that were to be deleted when the newest one was created
    /// (docs/design/apply.md#numbering-and-history).
    pub(crate) fn outdated(&self) -> usize {
        let existing = self.lives.values().filter(|life| life.stays());
        let born = existing.map(Life::born).max().unwrap_or_default();
        let lives = self.lives.values().filter_map(|life| Some((life, life.before(born)?)));
        let mut former: Vec<(&Life, &Arc<Value>)> = lives.collect();
        former.sort_by_key(|(_, state)| number(state));
        let older = former.iter().rev().skip(RETAINED);
        older.filter(|(life, state)| is_archived(state) && life.stays()).count()
    }

    /// Checks that a new revision differs from the previous one and has a permitted version.
    fn revision(
        &self,
        event: &Event,
        before: Option<&Value>,
        justified: &impl Fn(Option<usize>, usize) -> bool,
    ) -> Option<String> {
        if before.is_some() || event.is_deletion {
            return None;
        }
        let object = &event.object;
        let others = || self.lives.values().filter_map(|life| life.before(event.version));
        let former = others().max_by_key(|other| number(other));
        if let Some(former) = former
            && number(former) >= number(object)
        {
            return Some(format!("comes after number {}", number(former)));
        }
        if let Some(former) = former.filter(|former| is_active(former) && phases(former) == phases(object)) {
            return Some(format!("has the content of number {}", number(former)));
        }
        // The product may not have seen a recent success, and may have seen a revision that was deleted recently.
        let made = text(object, "/metadata/creationTimestamp").parse::<Timestamp>().ok();
        let succeeded = |seen: Option<Timestamp>, gone: Option<Timestamp>| {
            let last =
                |life: &'_ Life| life.last_seen(event.version).filter(|state| is_deleting(state)).cloned();
            let states = self
                .lives
                .values()
                .filter_map(|life| life.before(event.version).cloned().or_else(|| last(life)));
            let mut all: Vec<_> =
                states.filter(|state| was_active(state, gone) && has_succeeded(state, seen)).collect();
            all.sort_by_key(|state| number(state));
            all
        };
        let installed = |seen| succeeded(seen, None).last().and_then(|newest| version(newest));
        let mut views = vec![installed(None), installed(made.map(|made| made - UNSEEN))];
        // The product may not have seen that a revision was archived since everything settled.
        let archived = self.lives.values().filter_map(|life| {
            let state = life.before(self.rested + 1).filter(|state| is_active(state))?;
            let is_archived = life.before(event.version).is_some_and(|now| !is_active(now));
            (is_archived && has_succeeded(state, None)).then(|| version(state))
        });
        views.extend(archived);
        // Several revisions may have been deleted, some of them with a previous extension.
        let going = succeeded(None, made.map(|made| made - GOING));
        views.extend(going.iter().filter(|state| is_deleting(state)).map(|state| version(state)));
        let chosen = version(object)?;
        let is_same = former.and_then(|former| version(former)) == Some(chosen);
        let is_justified = is_same || views.iter().any(|installed| justified(*installed, chosen));
        let installed = installed(None);
        (!is_justified).then(|| {
            let installed = installed.map(|version| VERSIONS[version].text);
            format!("{} must not follow {installed:?}", VERSIONS[chosen].text)
        })
    }

    fn object(&self, event: &Event, before: Option<&Value>, test_changes: &TestChanges) -> Option<String> {
        let Event { version, is_deletion, object } = event;
        if controllers(object).count() > 1 {
            return Some("has two controllers".to_owned());
        }
        let uid = text(object, "/metadata/uid");
        // An object blocked by a finalizer may have a different owner when it is deleted.
        let goes_already = before.is_some_and(|one| text(one, "/metadata/uid") == uid && is_deleting(one));
        if !goes_already && (*is_deletion || is_deleting(object)) {
            let is_excused =
                test_changes.deleted.contains(uid) || self.is_namespace_deleted(object, *version);
            return if is_excused { None } else { self.deletion(event, test_changes) };
        }
        if *is_deletion || test_changes.writes.contains(version) {
            return None;
        }
        if let Some(created) = test_changes.foreign.get(uid) {
            return self.foreign(object, created);
        }
        let before = before.filter(|before| text(before, "/metadata/uid") == uid)?;
        if self.is_paused(before, *version) && !is_deleting(object) {
            // Only the status may change, which other components write.
            let outside = |object: &Value| {
                let mut object = object.clone();
                let root = object.as_object_mut()?;
                root.remove("status");
                let metadata = root.get_mut("metadata")?.as_object_mut()?;
                metadata.remove("resourceVersion");
                metadata.remove("managedFields");
                Some(object)
            };
            let is_collected = controller(before) != controller(object) || owners(before) != owners(object);
            if outside(before) != outside(object) && !is_collected {
                return Some("was changed while its revision is paused".to_owned());
            }
        }
        if label(before, MARK) != label(object, MARK) || annotation(before, MARK) != annotation(object, MARK)
        {
            return Some("lost what the user put on it".to_owned());
        }
        self.ownership(before, object, *version)
    }

    /// Reports whether the revision that controls the object has been paused since the settled state before the last
    /// one. The product sees the annotation slightly later than the test.
    fn is_paused(&self, object: &Value, version: u64) -> bool {
        let Some(life) = controller(object).and_then(|uid| self.lives.get(uid)) else { return false };
        let is_paused = |state: &Arc<Value>| annotation(state, PAUSED) == Some("true") && is_active(state);
        life.before(self.rested_before).is_some_and(is_paused)
            && life
                .states
                .range(self.rested_before.min(version)..version)
                .all(|(_, state)| state.as_ref().is_some_and(is_paused))
    }

    fn is_namespace_deleted(&self, object: &Value, version: u64) -> bool {
        !text(object, "/metadata/namespace").is_empty()
            && self.namespace_went.iter().any(|went| *went <= version)
            && self
                .last
                .get(&Key::new("Namespace", "", text(object, "/metadata/namespace")))
                .is_none_or(|n| is_deleting(n))
    }

    /// Checks that a foreign object is unchanged.
    fn foreign(&self, object: &Value, created: &Value) -> Option<String> {
        let ours = |member: &str| {
            let has = object.pointer(&format!("/metadata/{member}")).and_then(Value::as_object);
            let had = created.pointer(&format!("/metadata/{member}")).and_then(Value::as_object);
            has.into_iter().flatten().map(|(key, _)| key.clone()).find(|key| {
                key.contains("olm.operatorframework.io") && !had.is_some_and(|had| had.contains_key(key))
            })
        };
        if let Some(key) = ours("labels").or_else(|| ours("annotations")) {
            return Some(format!("is foreign and got {key}"));
        }
        if owners(object) != owners(created) {
            return Some("is foreign and got another owner".to_owned());
        }
        difference(created, object, "").map(|difference| format!("is foreign, and {difference}"))
    }

    /// Checks that control passes only to higher revision numbers, and ends only with the controlling revision.
    fn ownership(&self, before: &Value, object: &Value, version: u64) -> Option<String> {
        let had = controller(before).and_then(|uid| Some((uid, self.lives.get(uid)?)));
        let (uid, life) = had?;
        if controller(object) == Some(uid) {
            return None;
        }
        let was_active = life.was_active_before(version);
        match controller(object) {
            None if was_active => Some("lost its owner".to_owned()),
            None => None,
            Some(next) => {
                let number_of = |life: &Life| life.last_seen(version).map_or(0, |object| number(object));
                let next = self.lives.get(next);
                let goes_down = next.is_none_or(|next| number_of(next) <= number_of(life));
                // Without the revision annotation the age of an object is unknown.
                let is_marked = annotation(before, REVISION) == Some(&number_of(life).to_string());
                (was_active && goes_down && is_marked)
                    .then(|| "went over to a revision that is not newer".to_owned())
            }
        }
    }

    /// Checks that only objects of a revision that is archived or being deleted are deleted, and only if no other
    /// revision that is not about to be archived lists them.
    fn deletion(&self, event: &Event, test_changes: &TestChanges) -> Option<String> {
        let Event { version, object, .. } = event;
        let (key, uid) = (Key::of(object), text(object, "/metadata/uid"));
        if test_changes.foreign.contains_key(uid) {
            return Some("is foreign and was deleted".to_owned());
        }
        // Garbage collection chooses the order of the revisions.
        let is_collected = self.is_extension_deleted_in_foreground(*version);
        let is_kept = owners(object).iter().any(is_keeper);
        if is_collected && key.kind != "CustomResourceDefinition" {
            return None;
        }
        let Some(life) = controller(object).and_then(|uid| self.lives.get(uid)) else {
            let is_ours = annotation(object, REVISION).is_some() && !is_kept;
            return is_ours.then(|| "had no owner and was deleted".to_owned());
        };
        let retired = life.retired().filter(|retired| retired <= version);
        let wants = |other: &&Life| {
            other.was_active_before(*version)
                && (std::ptr::eq(*other, life) || !self.is_superseded(other, *version))
                && other.lists.as_ref().is_some_and(|lists| lists.contains(&key))
                && retired.is_none_or(|retired| other.born() < retired)
        };
        if let Some(other) = self.lives.values().find(wants).filter(|_| !is_collected || is_kept) {
            let name = other.last_seen(*version).map_or("", |object| text(object, "/metadata/name"));
            return Some(format!("was deleted though {name} lists it"));
        }
        if key.kind == "CustomResourceDefinition" {
            self.crd(object, life, *version, test_changes)
        } else {
            None
        }
    }

    /// Reports whether a newer active revision had rolled out before this resource version.
    fn is_superseded(&self, life: &Life, version: u64) -> bool {
        let is_over = |object: &Value| is_active(object) && has_succeeded(object, None);
        let newer =
            self.lives.values().filter_map(|life| life.before(version)).filter(|object| is_over(object));
        newer.map(|object| number(object)).max() > life.before(version).map(|object| number(object))
    }

    fn is_extension_deleted_in_foreground(&self, version: u64) -> bool {
        let state = self.extension.range(..=version).next_back().map(|(_, state)| state);
        let mut finalizers =
            state.into_iter().flat_map(|state| state["metadata"]["finalizers"].as_array()).flatten();
        state.is_some_and(|state| is_deleting(state)) && finalizers.any(|one| one == "foregroundDeletion")
    }

    /// Checks that CRDs in use are deleted only by an uninstallation whose policy does not retain them.
    fn crd(&self, object: &Value, life: &Life, version: u64, test_changes: &TestChanges) -> Option<String> {
        let uid = text(object, "/metadata/uid");
        let asked = text(object, "/metadata/deletionTimestamp").parse::<Timestamp>().ok();
        let was_there = |one: &Instance| {
            let ages = asked.zip(one.made);
            one.since < version && ages.is_none_or(|(asked, made)| made + JUST_MADE <= asked)
        };
        let mut instances = test_changes.instances.values();
        let is_in_use = instances.any(|one| one.crd == uid && was_there(one) && !one.is_over);
        let state = life.last_seen(version)?;
        let mut finalizers = state["metadata"]["finalizers"].as_array().into_iter().flatten();
        if finalizers.any(|finalizer| finalizer == "foregroundDeletion")
            && !owners(object).iter().any(is_keeper)
            && self.has_new_policy(version)
        {
            // The garbage collector waits for no finalizer, and the second owner follows a new policy after a pass.
            return None;
        }
        let is_leaving = is_deleting(state) || life.before(version).is_none();
        let fault = |policy| match policy {
            // An archived revision deletes unused CRDs until the product sees the deletion of the revision.
            Some(UninstallPolicy::KeepCrds) if is_leaving && (is_in_use || !is_archived(state)) => {
                Some("was to be kept and was deleted")
            }
            Some(UninstallPolicy::BlockIfInUse) if is_in_use => Some("was deleted while in use"),
            Some(UninstallPolicy::Delete) => None,
            _ => (is_in_use && !is_leaving).then_some("was deleted by an upgrade while in use"),
        };
        let faults: Vec<_> = self.policies(state, life, version).into_iter().map(fault).collect();
        let is_fault = faults.iter().all(Option::is_some);
        faults.into_iter().flatten().next().filter(|_| is_fault).map(str::to_owned)
    }
}

/// Names of the phases, with the content keys of their objects.
fn phases(revision: &Value) -> Vec<(String, Vec<String>)> {
    let phases = revision["spec"]["phases"].as_array().into_iter().flatten();
    let keys = |phase: &Value| -> Vec<String> {
        let objects = phase["objects"].as_array().into_iter().flatten();
        objects.map(|object| text(object, "/ref/key").to_owned()).collect()
    };
    phases.map(|phase| (text(phase, "/name").to_owned(), keys(phase))).collect()
}

/// Index of the revision's version.
fn version(revision: &Value) -> Option<usize> {
    let text = annotation(revision, "olm.operatorframework.io/bundle-version")?;
    VERSIONS.iter().position(|version| version.text == text)
}

mod policies;

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
