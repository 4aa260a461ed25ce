//! Changes by third parties to the objects of an extension: deletions, lost metadata, foreign objects.
//! [`crate::adversary`] contains the edits of fields.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::actor::{Actor, POLL_INTERVAL, deletion};
use crate::recorder::resource;
use crate::snapshot::{Revision, annotation, controller, is_deleting, text};
use crate::steps::{Cascade, Foreign, Stripped, Which};
use crate::universe::{Key, VERSIONS, crd, objects};

/// Finalizer that blocks the deletion of an object.
const HOLD: &str = "model.test/hold";
/// Controller of foreign objects that have one.
pub(crate) const FOREIGN_OWNER: &str = "foreign-owner";

impl Actor {
    pub(crate) async fn remove(&mut self, place: usize) {
        if let Some((key, object)) = self.at(place) {
            self.delete(&key, &object).await;
        }
    }

    pub(crate) async fn strip(&mut self, place: usize, what: Stripped) {
        let Some((key, object)) = self.at(place) else { return };
        let labels = json!({
            "app.kubernetes.io/managed-by": null, "olm.operatorframework.io/owner-kind": null,
            "olm.operatorframework.io/owner-name": null});
        let annotations = json!({
            "olm.operatorframework.io/revision": null, "olm.operatorframework.io/bundle-version": null});
        let metadata = match what {
            Stripped::Labels => json!({"labels": labels}),
            Stripped::Annotations => json!({"annotations": annotations}),
            Stripped::Owners => json!({"ownerReferences": null}),
            Stripped::Everything => {
                json!({"labels": labels, "annotations": annotations, "ownerReferences": null})
            }
            Stripped::ManagedFields => json!({"managedFields": [{}]}),
        };
        let uid = text(&object, "/metadata/uid").to_owned();
        if what == Stripped::ManagedFields {
            self.intent.scaled.remove(&uid);
            self.intent.disowned.insert(uid);
        } else {
            self.intent.stripped.insert(uid);
        }
        self.struck(&key);
        self.merge_into(&object, json!({"metadata": metadata})).await;
    }

    pub(crate) async fn hold(&mut self, place: usize) {
        let Some((key, object)) = self.at(place) else { return };
        if is_deleting(&object) {
            return;
        }
        let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.push(HOLD.into());
        let version = &object["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}});
        if self.merge(&key, patch).await {
            self.intent.held.insert(text(&object, "/metadata/uid").to_owned());
        }
    }

    pub(crate) async fn release(&mut self) {
        for (key, object) in self.snapshot().objects {
            if !self.intent.held.contains(text(&object, "/metadata/uid")) {
                continue;
            }
            // Conflicts are possible: the object may change at any time.
            for _ in 0..20 {
                let Ok(Some(live)) = self.api(&key).get_opt(&key.name).await else { break };
                let mut finalizers = live.metadata.finalizers.clone().unwrap_or_default();
                finalizers.retain(|finalizer| finalizer != HOLD);
                let version = &live.metadata.resource_version;
                let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}});
                if self.merge(&key, patch).await {
                    break;
                }
            }
        }
        self.intent.held.clear();
    }

    pub(crate) async fn foreign_anywhere(&mut self, place: usize, how: Foreign) {
        let name = self.intent.name.clone();
        let mut known: BTreeMap<Key, Value> = BTreeMap::new();
        VERSIONS.iter().for_each(|version| known.extend(objects(&name, version, None)));
        let keys: Vec<Key> = known.into_keys().collect();
        self.make_foreign(&keys[place % keys.len()], how).await;
    }

    pub(crate) async fn replace(&mut self, place: usize, how: Foreign) {
        let ours = self.ours();
        let kinds = ["ConfigMap", "Service", "PriorityClass", "Deployment", "CustomResourceDefinition"];
        let fit: Vec<_> = ours.into_iter().filter(|(key, _)| kinds.contains(&key.kind.as_str())).collect();
        if fit.is_empty() {
            return;
        }
        let (key, object) = &fit[place % fit.len()];
        self.delete(key, object).await;
        self.make_foreign(key, how).await;
    }

    /// Creates a foreign object there, unless one exists.
    pub(crate) async fn make_foreign(&mut self, key: &Key, how: Foreign) {
        let mut object = foreign_object(&self.intent.name, key);
        match how {
            Foreign::Bare => {}
            Foreign::Controlled => {
                let owner = Key::new("ConfigMap", &key.namespace, FOREIGN_OWNER);
                if let Some(owner) = self.snapshot().objects.get(&owner) {
                    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
                        "name": FOREIGN_OWNER, "uid": owner["metadata"]["uid"], "controller": true}]);
                }
            }
            Foreign::Marked => {
                object["metadata"]["labels"] = json!({"olm.operatorframework.io/owner-name": "other"});
                object["metadata"]["annotations"] = json!({"olm.operatorframework.io/revision": "1"});
            }
        }
        let body: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        if let Ok(created) = self.api(key).create(&PostParams::default(), &body).await {
            self.wrote(&created.metadata);
            let uid = created.metadata.uid.unwrap();
            self.test_changes.foreign.insert(uid.clone(), object.clone());
            self.intent.foreign.insert(uid.clone(), object);
            // `clear` deletes only objects in the snapshot.
            let deadline = Instant::now() + Duration::from_secs(10);
            let is_it = |found: &Arc<Value>| text(found, "/metadata/uid") == uid;
            while !self.snapshot().objects.get(key).is_some_and(is_it) && Instant::now() < deadline {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }

    pub(crate) async fn clear(&mut self) {
        let snapshot = self.snapshot();
        let is_controlled = |object: &Value| {
            controller(object)
                .is_some_and(|uid| snapshot.revisions.iter().any(|revision| revision.uid() == uid))
        };
        for (key, object) in &snapshot.objects {
            let uid = text(object, "/metadata/uid");
            let is_loose = self.intent.stripped.contains(uid) && !is_controlled(object);
            let is_left = annotation_of_ours(object) && controller(object).is_none();
            if self.intent.foreign.contains_key(uid)
                || is_loose
                || is_left
                || is_kept(&self.intent.name, key, object)
            {
                self.delete(key, object).await;
            }
        }
        for secret in snapshot.secrets.iter().filter(|secret| controller(secret).is_none()) {
            self.delete(&Key::of(secret), secret).await;
        }
        self.intent.foreign.clear();
        self.intent.stripped.clear();
        // Revisions without an extension remain, and objects that are being orphaned may not be in the snapshot yet.
        let is_leaving = |object: &Arc<Value>| is_deleting(object);
        let lives_on = self.intent.desired_spec.is_some() && !snapshot.extension.iter().any(is_leaving);
        self.intent.orphaned &= !lives_on || snapshot.revisions.iter().any(Revision::is_deleting);
    }

    pub(crate) fn which(&self, which: Which) -> Option<Revision> {
        let mut snapshot = self.snapshot();
        match which {
            Which::Newest => snapshot.revisions.pop(),
            Which::Oldest => snapshot.active().next().cloned(),
        }
    }

    pub(crate) async fn lose_secret(&mut self, which: Which) {
        let Some(revision) = self.which(which) else { return };
        let secret = text(&revision.object, "/spec/phases/0/objects/0/ref/name").to_owned();
        let key = Key::new("Secret", olm_servers::NAMESPACE, &secret);
        // The Secret may be deleted already.
        let _ = self.api(&key).delete(&key.name, &DeleteParams::default()).await;
    }

    pub(crate) async fn archive(&mut self, which: Which) {
        let Some(revision) = self.which(which) else { return };
        self.merge(&Key::of(&revision.object), json!({"spec": {"lifecycleState": "Archived"}})).await;
    }

    pub(crate) async fn remove_revision(&mut self, which: Which, cascade: Cascade) {
        let Some(revision) = self.which(which) else { return };
        let key = Key::of(&revision.object);
        self.intent.orphaned |= cascade == Cascade::Orphan;
        // The revision may be deleted already.
        let _ = self.api(&key).delete(&key.name, &deletion(cascade)).await;
        // `clear` must see the deletion, and the snapshot may be late under load.
        let deadline = Instant::now() + Duration::from_secs(10);
        let exists = |one: &Revision| one.uid() == revision.uid() && !one.is_deleting();
        while self.snapshot().revisions.iter().any(exists) && Instant::now() < deadline {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

fn annotation_of_ours(object: &Value) -> bool {
    annotation(object, "olm.operatorframework.io/revision").is_some()
}

/// Reports whether the object is a CRD or PriorityClass that no revision lists.
fn is_kept(name: &str, key: &Key, object: &Value) -> bool {
    key.namespace.is_empty()
        && key.kind != "Namespace"
        && key.name.contains(name)
        && controller(object).is_none()
}

/// Foreign object of this kind and name.
fn foreign_object(name: &str, key: &Key) -> Value {
    let labels = json!({"foreign": "yes"});
    let content = match key.kind.as_str() {
        "Service" => json!({"spec": {"ports": [{"port": 81}]}}),
        "PriorityClass" => json!({"value": 1}),
        "Deployment" => json!({"spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "other", "image": "other"}]}}}}),
        "CustomResourceDefinition" => {
            let plural = key.name.split('.').next().unwrap_or_default();
            crd(name, plural, 1)
        }
        _ => json!({"data": {"whose": "somebody else's"}}),
    };
    let resource = resource(&key.kind);
    let mut object = json!({"apiVersion": resource.api_version, "kind": key.kind});
    object.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
    object["metadata"] = json!({"name": key.name});
    if !key.namespace.is_empty() {
        object["metadata"]["namespace"] = key.namespace.as_str().into();
    }
    object
}
