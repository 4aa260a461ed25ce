//! What watches last said about objects, so that an object which nobody has touched since it was verified need not be
//! read again (docs/design/apply.md#fast-path).
//!
//! Pure. The controllers feed it from their metadata watches; the engine asks [`Sightings::vouches`]. It may lag behind
//! the cluster: then an event follows, which is a reason to look again.

use std::collections::HashMap;

use kube::core::GroupVersionKind;
use parking_lot::Mutex;
use serde_json::Value;

use crate::object::{ObjectKey, resource_version, uid};

/// One state of one object: that in which it was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    uid: String,
    version: u64,
    /// Which list of the watch was in force then; `None` where the kind was not watched yet.
    list: Option<u64>,
}

impl Stamp {
    /// Whether an object with this UID and resource version is in that state.
    pub fn is(&self, uid: &str, resource_version: &str) -> bool {
        self.uid == uid && resource_version.parse() == Ok(self.version)
    }
}

/// The objects of all watched kinds, as last seen.
#[derive(Debug, Default)]
pub struct Sightings(Mutex<Kinds>);

#[derive(Debug, Default)]
struct Kinds {
    lists: u64,
    views: HashMap<GroupVersionKind, View>,
}

/// What one watch says.
#[derive(Debug)]
struct View {
    /// Number of its last list, unique in the process: what happened between two lists may be in no event.
    list: u64,
    /// The highest resource version that the watch has told.
    reached: u64,
    objects: HashMap<Place, State>,
    /// Collected by a list that is under way.
    listing: HashMap<Place, State>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    namespace: Box<str>,
    name: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    uid: Box<str>,
    version: u64,
}

/// An object as an event shows it.
#[derive(Clone, Copy, Debug)]
pub struct Sighting<'a> {
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.uid`.
    pub uid: &'a str,
    /// `metadata.resourceVersion`.
    pub resource_version: &'a str,
}

impl Sighting<'_> {
    fn place(&self) -> Place {
        Place { namespace: self.namespace.into(), name: self.name.into() }
    }

    fn state(&self) -> State {
        // Where versions are no numbers, nothing is ever vouched for: see `Sightings::stamp`.
        State { uid: self.uid.into(), version: self.resource_version.parse().unwrap_or(u64::MAX) }
    }
}

impl Sightings {
    /// A watch begins to list its kind anew.
    pub fn begin(&self, gvk: &GroupVersionKind) {
        let mut kinds = self.0.lock();
        let view = kinds.views.entry(gvk.clone()).or_insert_with(|| View {
            list: 0,
            reached: 0,
            objects: HashMap::new(),
            listing: HashMap::new(),
        });
        view.listing = HashMap::new();
    }

    /// An object of that list. Answers whether this is news.
    pub fn list(&self, gvk: &GroupVersionKind, object: &Sighting<'_>) -> bool {
        let mut kinds = self.0.lock();
        let Some(view) = kinds.views.get_mut(gvk) else { return true };
        let (place, state) = (object.place(), object.state());
        let is_news = view.objects.get(&place) != Some(&state);
        view.listing.insert(place, state);
        is_news
    }

    /// The list is complete. Answers whether something has vanished since the one before.
    pub fn complete(&self, gvk: &GroupVersionKind) -> bool {
        let mut kinds = self.0.lock();
        kinds.lists += 1;
        let list = kinds.lists;
        let Some(view) = kinds.views.get_mut(gvk) else { return true };
        view.list = list;
        let now = std::mem::take(&mut view.listing);
        let highest = now.values().map(|state| state.version).max().unwrap_or_default();
        view.reached = view.reached.max(highest);
        let before = std::mem::replace(&mut view.objects, now);
        before.keys().any(|place| !view.objects.contains_key(place))
    }

    /// The watch tells of an object that is new or has changed.
    pub fn saw(&self, gvk: &GroupVersionKind, object: &Sighting<'_>) {
        if let Some(view) = self.0.lock().views.get_mut(gvk) {
            let state = object.state();
            view.reached = view.reached.max(state.version);
            view.objects.insert(object.place(), state);
        }
    }

    /// The watch tells of an object that is gone, or no longer among those that it watches.
    pub fn lost(&self, gvk: &GroupVersionKind, object: &Sighting<'_>) {
        if let Some(view) = self.0.lock().views.get_mut(gvk) {
            view.reached = view.reached.max(object.state().version);
            view.objects.remove(&object.place());
        }
    }

    /// The watch has ended: nothing is known of the kind any more.
    pub fn forget(&self, gvk: &GroupVersionKind) {
        self.0.lock().views.remove(gvk);
    }

    /// The stamp of a live object. `None` where its version is no number: then it can never be vouched for.
    pub fn stamp(&self, gvk: &GroupVersionKind, object: &Value) -> Option<Stamp> {
        self.stamp_of(gvk, uid(object), resource_version(object))
    }

    /// As [`Self::stamp`], from the object's UID and resource version.
    pub fn stamp_of(&self, gvk: &GroupVersionKind, uid: &str, resource_version: &str) -> Option<Stamp> {
        let version = resource_version.parse().ok()?;
        let list = self.0.lock().views.get(gvk).map(|view| view.list);
        Some(Stamp { uid: uid.to_owned(), version, list })
    }

    /// Whether the object is still in this state, or has left it so lately that the event is yet to come.
    ///
    /// Only for objects that the watch selects: of others there is never an event. Resource versions are compared as numbers. They grow, and one that the watch has not reached is ahead of it: such
    /// is what was read or written a moment ago.
    pub fn vouches(&self, key: &ObjectKey, stamp: &Stamp) -> bool {
        let kinds = self.0.lock();
        let Some(view) = kinds.views.get(&key.gvk).filter(|view| view.list > 0) else { return false };
        let place = Place { namespace: key.namespace.as_str().into(), name: key.name.as_str().into() };
        match view.objects.get(&place) {
            Some(seen) => *seen.uid == *stamp.uid && seen.version <= stamp.version,
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

    fn at<'a>(name: &'a str, uid: &'a str, resource_version: &'a str) -> Sighting<'a> {
        Sighting { namespace: "ns", name, uid, resource_version }
    }

    fn listed(objects: &[Sighting<'_>]) -> Sightings {
        let sightings = Sightings::default();
        list(&sightings, objects);
        sightings
    }

    fn list(sightings: &Sightings, objects: &[Sighting<'_>]) -> bool {
        sightings.begin(&kind());
        for object in objects {
            sightings.list(&kind(), object);
        }
        sightings.complete(&kind())
    }

    fn stamp(sightings: &Sightings, uid: &str, version: &str) -> Stamp {
        sightings.stamp_of(&kind(), uid, version).unwrap()
    }

    #[test]
    fn only_the_state_that_was_verified_is_vouched_for() {
        let sightings = listed(&[at("a", "u", "7")]);
        for (uid, version, expected) in
            [("u", "7", true), ("u", "6", false), ("u", "8", true), ("v", "7", false)]
        {
            assert_eq!(
                sightings.vouches(&key("a"), &stamp(&sightings, uid, version)),
                expected,
                "{uid} {version}"
            );
        }
        let known = stamp(&sightings, "u", "7");
        sightings.saw(&kind(), &at("a", "u", "9"));
        assert!(!sightings.vouches(&key("a"), &known));
        sightings.lost(&kind(), &at("a", "u", "10"));
        assert!(!sightings.vouches(&key("a"), &known));
    }

    #[test]
    fn what_was_just_written_is_ahead_of_the_watch() {
        let sightings = listed(&[at("other", "o", "5")]);
        let written = stamp(&sightings, "u", "8");
        assert!(sightings.vouches(&key("a"), &written));
        // The watch has passed it and knows of no such object.
        sightings.saw(&kind(), &at("other", "o", "9"));
        assert!(!sightings.vouches(&key("a"), &written));
    }

    #[test]
    fn what_happened_between_two_lists_is_in_no_event() {
        let sightings = listed(&[at("b", "b", "3")]);
        let written = stamp(&sightings, "u", "8");
        assert!(list(&sightings, &[]));
        assert!(!sightings.vouches(&key("a"), &written));
        assert!(!list(&sightings, &[at("a", "u", "8")]));
        assert!(sightings.vouches(&key("a"), &written));
    }

    #[test]
    fn nothing_is_known_without_a_complete_list() {
        let sightings = Sightings::default();
        let before = stamp(&sightings, "u", "8");
        assert!(!sightings.vouches(&key("a"), &before));
        sightings.begin(&kind());
        assert!(sightings.list(&kind(), &at("a", "u", "8")));
        assert!(!sightings.vouches(&key("a"), &before));
        sightings.complete(&kind());
        assert!(sightings.vouches(&key("a"), &before));
        sightings.begin(&kind());
        assert!(!sightings.list(&kind(), &at("a", "u", "8")));
        sightings.forget(&kind());
        assert!(!sightings.vouches(&key("a"), &before));
        assert_eq!(sightings.stamp_of(&kind(), "u", "x"), None);
    }
}
