//! Versions of objects that watches last observed. An object that did not change since it was verified need not be
//! read again (docs/design/apply.md#fast-path).
//!
//! Pure. The controllers feed it from their metadata watches, the engine calls [`ObservedVersions::is_current`]. It
//! can lag behind the cluster. Then an event follows and triggers another check.

use std::collections::HashMap;

use kube::core::{GroupVersionKind, ObjectMeta};
use parking_lot::Mutex;
use serde_json::Value;

use crate::object::{ObjectKey, resource_version, uid};

/// Version of one object at its verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    uid: String,
    version: u64,
    /// [`ObservedVersions::list`] at that time.
    list: Option<u64>,
}

impl Stamp {
    /// `true` if this UID and resource version are those of the stamp.
    pub fn is(&self, uid: &str, resource_version: &str) -> bool {
        self.uid == uid && resource_version.parse() == Ok(self.version)
    }
}

/// Observed versions of the objects of all watched kinds.
#[derive(Debug, Default)]
pub struct ObservedVersions(Mutex<Kinds>);

#[derive(Debug, Default)]
struct Kinds {
    lists: u64,
    views: HashMap<GroupVersionKind, View>,
}

/// Observed versions of one watch.
#[derive(Debug, Default)]
struct View {
    /// Number of its last list, unique in the process, and 0 before the first one. Changes between two lists can lack
    /// an event.
    list: u64,
    /// `true` from a failure of the watch until the next list.
    is_interrupted: bool,
    /// Highest resource version that the watch has observed.
    reached: u64,
    objects: HashMap<ObjectName, State>,
    /// Objects of a list in progress.
    listing: HashMap<ObjectName, State>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ObjectName {
    namespace: Box<str>,
    name: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    uid: Box<str>,
    version: u64,
}

impl ObjectName {
    fn of(object: &ObjectMeta) -> Self {
        let text = |part: &Option<String>| part.as_deref().unwrap_or_default().into();
        Self { namespace: text(&object.namespace), name: text(&object.name) }
    }
}

impl State {
    fn of(object: &ObjectMeta) -> Self {
        // Without numeric versions, objects are always read, see `ObservedVersions::stamp`.
        let version = object.resource_version.as_ref().and_then(|version| version.parse().ok());
        Self { uid: object.uid.as_deref().unwrap_or_default().into(), version: version.unwrap_or(u64::MAX) }
    }
}

impl View {
    /// `true` if its last list and the events since then have all objects.
    fn is_complete(&self) -> bool {
        self.list > 0 && !self.is_interrupted
    }
}

impl ObservedVersions {
    /// Records that a watch starts a new list of its kind.
    pub fn begin_list(&self, gvk: &GroupVersionKind) {
        let mut kinds = self.0.lock();
        kinds.views.entry(gvk.clone()).or_default().listing = HashMap::new();
    }

    /// Records an object of that list. Returns `true` if it is new or changed.
    pub fn record_listed(&self, gvk: &GroupVersionKind, object: &ObjectMeta) -> bool {
        let mut kinds = self.0.lock();
        let Some(view) = kinds.views.get_mut(gvk) else { return true };
        let (name, state) = (ObjectName::of(object), State::of(object));
        let is_changed = view.objects.get(&name) != Some(&state);
        view.listing.insert(name, state);
        is_changed
    }

    /// Records the end of the list. Returns `true` if an object of the previous list is missing, or if the watch failed
    /// before: an object can have been created and deleted since.
    pub fn complete_list(&self, gvk: &GroupVersionKind) -> bool {
        let mut kinds = self.0.lock();
        kinds.lists += 1;
        let list = kinds.lists;
        let Some(view) = kinds.views.get_mut(gvk) else { return true };
        view.list = list;
        let now = std::mem::take(&mut view.listing);
        // A restored cluster has lower versions than the previous list.
        view.reached = now.values().map(|state| state.version).max().unwrap_or_default();
        let before = std::mem::replace(&mut view.objects, now);
        let was_interrupted = std::mem::take(&mut view.is_interrupted);
        was_interrupted || before.keys().any(|name| !view.objects.contains_key(name))
    }

    /// Records a watch event of a new or changed object.
    pub fn record(&self, gvk: &GroupVersionKind, object: &ObjectMeta) {
        if let Some(view) = self.0.lock().views.get_mut(gvk) {
            let state = State::of(object);
            view.reached = view.reached.max(state.version);
            view.objects.insert(ObjectName::of(object), state);
        }
    }

    /// Records a watch event of an object that was deleted, or is no longer selected by the watch.
    pub fn remove(&self, gvk: &GroupVersionKind, object: &ObjectMeta) {
        if let Some(view) = self.0.lock().views.get_mut(gvk) {
            view.reached = view.reached.max(State::of(object).version);
            view.objects.remove(&ObjectName::of(object));
        }
    }

    /// Records that a watch failed. Until it lists anew, no version of the kind is current: the cluster may have been
    /// restored.
    pub fn interrupt(&self, gvk: &GroupVersionKind) {
        if let Some(view) = self.0.lock().views.get_mut(gvk) {
            view.is_interrupted = true;
        }
    }

    /// Records the end of a watch and drops all versions of the kind.
    pub fn forget(&self, gvk: &GroupVersionKind) {
        self.0.lock().views.remove(gvk);
    }

    /// Number of the last list of the kind. `None` without one, and from a failure of the watch until the next list.
    pub(crate) fn list(&self, gvk: &GroupVersionKind) -> Option<u64> {
        self.0.lock().views.get(gvk).filter(|view| view.is_complete()).map(|view| view.list)
    }

    /// Stamp of a live object. `None` if its version is not a number: such an object is always read again.
    pub fn stamp(&self, gvk: &GroupVersionKind, object: &Value) -> Option<Stamp> {
        self.stamp_of(gvk, uid(object), resource_version(object))
    }

    /// Like [`Self::stamp`], from the object's UID and resource version.
    pub fn stamp_of(&self, gvk: &GroupVersionKind, uid: &str, resource_version: &str) -> Option<Stamp> {
        let version = resource_version.parse().ok()?;
        Some(Stamp { uid: uid.to_owned(), version, list: self.list(gvk) })
    }

    /// `true` if the object still has this version, or changed so recently that the event is still to come.
    ///
    /// Only for objects that the watch selects: others have no events. Resource versions are compared as numbers.
    /// They grow between two lists, and a version above the highest observed one was read or written a moment ago. They
    /// go back with a new list if the cluster is restored, so that a higher stamp from before the list is not believed.
    pub fn is_current(&self, key: &ObjectKey, stamp: &Stamp) -> bool {
        let kinds = self.0.lock();
        let Some(view) = kinds.views.get(&key.gvk).filter(|view| view.is_complete()) else { return false };
        let name = ObjectName { namespace: key.namespace.as_str().into(), name: key.name.as_str().into() };
        match view.objects.get(&name) {
            Some(seen) => {
                let is_ahead = seen.version < stamp.version && stamp.list == Some(view.list);
                *seen.uid == *stamp.uid && (seen.version == stamp.version || is_ahead)
            }
            None => stamp.list == Some(view.list) && view.reached < stamp.version,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind() -> GroupVersionKind {
        GroupVersionKind::gvk("", "v1", "ConfigMap")
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey { gvk: kind(), namespace: "ns".to_owned(), name: name.to_owned() }
    }

    fn at(name: &str, uid: &str, resource_version: &str) -> ObjectMeta {
        let [namespace, name, uid, resource_version] =
            ["ns", name, uid, resource_version].map(|text| Some(text.to_owned()));
        ObjectMeta { namespace, name, uid, resource_version, ..ObjectMeta::default() }
    }

    fn listed(objects: &[ObjectMeta]) -> ObservedVersions {
        let observed_versions = ObservedVersions::default();
        list(&observed_versions, objects);
        observed_versions
    }

    fn list(observed_versions: &ObservedVersions, objects: &[ObjectMeta]) -> bool {
        observed_versions.begin_list(&kind());
        for object in objects {
            observed_versions.record_listed(&kind(), object);
        }
        observed_versions.complete_list(&kind())
    }

    fn stamp(observed_versions: &ObservedVersions, uid: &str, version: &str) -> Stamp {
        observed_versions.stamp_of(&kind(), uid, version).unwrap()
    }

    #[test]
    fn only_verified_version_is_current() {
        let observed_versions = listed(&[at("a", "u", "7")]);
        for (uid, version, expected) in
            [("u", "7", true), ("u", "6", false), ("u", "8", true), ("v", "7", false)]
        {
            assert_eq!(
                observed_versions.is_current(&key("a"), &stamp(&observed_versions, uid, version)),
                expected,
                "{uid} {version}"
            );
        }
        let known = stamp(&observed_versions, "u", "7");
        observed_versions.record(&kind(), &at("a", "u", "9"));
        assert!(!observed_versions.is_current(&key("a"), &known));
        observed_versions.remove(&kind(), &at("a", "u", "10"));
        assert!(!observed_versions.is_current(&key("a"), &known));
    }

    #[test]
    fn version_from_before_a_restore_is_not_current() {
        let observed_versions = listed(&[at("a", "u", "9"), at("b", "v", "3")]);
        let [a, b] = [("u", "9"), ("v", "3")].map(|(uid, version)| stamp(&observed_versions, uid, version));
        list(&observed_versions, &[at("a", "u", "4"), at("b", "v", "3")]);
        assert!(!observed_versions.is_current(&key("a"), &a), "older content");
        assert!(observed_versions.is_current(&key("b"), &b), "older than the backup");
        observed_versions.record(&kind(), &at("a", "u", "8"));
        assert!(!observed_versions.is_current(&key("a"), &a), "a change after the restore");
        let created = stamp(&observed_versions, "w", "9");
        assert!(observed_versions.is_current(&key("c"), &created), "ahead of the watch");
    }

    #[test]
    fn recent_write_is_ahead_of_the_watch() {
        let observed_versions = listed(&[at("other", "o", "5")]);
        let written = stamp(&observed_versions, "u", "8");
        assert!(observed_versions.is_current(&key("a"), &written));
        // The watch is past that version and has not seen the object.
        observed_versions.record(&kind(), &at("other", "o", "9"));
        assert!(!observed_versions.is_current(&key("a"), &written));
    }

    #[test]
    fn relist_without_the_object_invalidates_its_stamp() {
        let observed_versions = listed(&[at("b", "b", "3")]);
        let written = stamp(&observed_versions, "u", "8");
        assert!(list(&observed_versions, &[]));
        assert!(!observed_versions.is_current(&key("a"), &written));
        assert!(!list(&observed_versions, &[at("a", "u", "8")]));
        assert!(observed_versions.is_current(&key("a"), &written));
    }

    #[test]
    fn incomplete_list_makes_no_version_current() {
        let observed_versions = ObservedVersions::default();
        let before = stamp(&observed_versions, "u", "8");
        assert!(!observed_versions.is_current(&key("a"), &before));
        observed_versions.begin_list(&kind());
        assert!(observed_versions.record_listed(&kind(), &at("a", "u", "8")));
        assert!(!observed_versions.is_current(&key("a"), &before));
        observed_versions.complete_list(&kind());
        assert!(observed_versions.is_current(&key("a"), &before));
        observed_versions.interrupt(&kind());
        assert!(!observed_versions.is_current(&key("a"), &before));
        assert!(list(&observed_versions, &[at("a", "u", "8")]), "changes may lack an event");
        assert!(observed_versions.is_current(&key("a"), &before));
        assert!(!list(&observed_versions, &[at("a", "u", "8")]));
        observed_versions.forget(&kind());
        assert!(!observed_versions.is_current(&key("a"), &before));
        assert_eq!(observed_versions.stamp_of(&kind(), "u", "x"), None);
    }
}
