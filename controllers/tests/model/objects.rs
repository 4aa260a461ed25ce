//! Expected state of the objects of an active revision. Pure.

use serde_json::{Value, json};

use crate::admission::injected;
use crate::settled::{Judge, OWNER_NAME, REVISION};
use crate::snapshot::{
    Revision, annotation, condition, controller, controllers, difference, is_deleting, is_keeper, label,
    owners, text,
};
use crate::universe::Key;
use crate::verdict::env;

/// State of an object of a revision.
pub(crate) enum ObjectState {
    Ready,
    /// Ready, and of a newer revision.
    Moved,
    NotReady,
    Collision,
    Awaited,
    Wrong(String),
}

impl Judge<'_> {
    pub(crate) fn object_state(&self, revision: &Revision, desired: &Value) -> ObjectState {
        let Some(actual) = self.snapshot.objects.get(&Key::of(desired)) else {
            return ObjectState::Wrong("is missing".to_owned());
        };
        let readiness = || if self.is_ready(actual) { ObjectState::Ready } else { ObjectState::NotReady };
        let is_siblings = self
            .snapshot
            .active()
            .any(|sibling| Some(sibling.uid()) == controller(actual) && sibling.uid() != revision.uid());
        let is_crd = text(actual, "/kind") == "CustomResourceDefinition";
        if is_crd && is_deleting(actual) && !is_siblings {
            return ObjectState::Awaited;
        }
        let mut siblings = self.snapshot.active();
        match controller(actual) {
            Some(uid) if uid == revision.uid() => {
                if is_deleting(actual) {
                    return readiness();
                }
                match self.wrong(revision, desired, actual) {
                    Some(wrong) => ObjectState::Wrong(wrong),
                    None => readiness(),
                }
            }
            Some(uid) => match siblings.find(|sibling| sibling.uid() == uid) {
                Some(sibling) if sibling.number() > revision.number() => match readiness() {
                    ObjectState::Ready => ObjectState::Moved,
                    other => other,
                },
                Some(sibling) => ObjectState::Wrong(format!("still belongs to {}", sibling.name())),
                None => ObjectState::Collision,
            },
            None if self.is_abandoned(actual) => ObjectState::Wrong("no owner controls it".to_owned()),
            None => ObjectState::Collision,
        }
    }

    /// Reports whether an object without controller carries the extension's metadata, so that it may be adopted.
    fn is_abandoned(&self, actual: &Value) -> bool {
        let is_living =
            |owner: &Value| self.snapshot.active().any(|sibling| sibling.uid() == text(owner, "/uid"));
        annotation(actual, REVISION).is_some()
            && label(actual, OWNER_NAME) == Some(&self.intent.name)
            && !is_deleting(actual)
            && owners(actual).iter().all(|owner| is_living(owner) || is_keeper(owner))
    }

    fn is_ready(&self, object: &Value) -> bool {
        let is_true = |type_| condition(object, type_).is_some_and(|condition| condition.status == "True");
        match text(object, "/kind") {
            "Deployment" => {
                let (generation, status) = (&object["metadata"]["generation"], &object["status"]);
                status["observedGeneration"] == *generation
                    && !status["replicas"].is_null()
                    && status["updatedReplicas"] == status["replicas"]
                    && is_true("Available")
            }
            "CustomResourceDefinition" => is_true("Established"),
            _ => true,
        }
    }

    fn wrong(&self, revision: &Revision, desired: &Value, actual: &Value) -> Option<String> {
        if text(actual, "/kind") == "Deployment" && self.is_ready(actual) != self.intent.healthy {
            return Some("its status is not what the test makes of it yet".to_owned());
        }
        let number = revision.number().to_string();
        let marks = [
            (label(actual, "app.kubernetes.io/managed-by"), "olm.operatorframework.io"),
            (label(actual, "olm.operatorframework.io/owner-kind"), "ClusterExtension"),
            (label(actual, OWNER_NAME), self.intent.name.as_str()),
            (annotation(actual, REVISION), number.as_str()),
        ];
        if let Some((has, wants)) = marks.iter().find(|(has, wants)| *has != Some(*wants)) {
            return Some(format!("carries {has:?} instead of {wants:?}"));
        }
        if controllers(actual).count() != 1 {
            return Some("has two controllers".to_owned());
        }
        let uid = text(actual, "/metadata/uid");
        if text(actual, "/kind") == "Deployment"
            && env(desired) != env(actual)
            && !self.intent.disowned.contains(uid)
        {
            return Some(format!("has variable {:?} instead of {:?}", env(actual), env(desired)));
        }
        if text(actual, "/kind") == "Deployment"
            && let Some(lacks) = difference(&injected(), actual, "")
        {
            return Some(format!("lacks an injected field: {lacks}"));
        }
        match self.intent.scaled.get(uid) {
            Some(replicas) => {
                let mut scaled = desired.clone();
                scaled["spec"]["replicas"] = json!(replicas);
                difference(&scaled, actual, "")
            }
            None => difference(desired, actual, ""),
        }
    }

    /// Checks that fields of other writers are kept.
    pub(crate) fn added(&mut self) {
        for (key, object) in self.snapshot.objects.iter().filter(|(_, object)| !is_deleting(object)) {
            let added = self.intent.added.get(text(object, "/metadata/uid"));
            if let Some(difference) = added.and_then(|added| difference(added, object, "")) {
                self.faults.push(format!("{key} lost a field of another writer: {difference}"));
            }
        }
    }
}
