//! Content of a revision: its phases with every object resolved, whatever its storage
//! (docs/design/apply.md#content-and-digests).
//!
//! Pure. The caller reads the Secrets that [`secrets`] names and passes them to [`resolve`].

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use olm_api::ClusterObjectSetSpec;
use olm_api::cluster_object_set::{CollisionProtection, ObservedPhase, PhaseObject};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::canonical::{Numbers, canonical_json};
use crate::digest::phase_digest;
use crate::packing::unpack;

/// Namespace and name of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Phase with its objects to apply.
#[derive(Clone, Debug, PartialEq)]
pub struct ContentPhase {
    /// Name.
    pub name: String,
    /// Objects in the order of application.
    pub objects: Vec<ContentObject>,
}

/// Object of a phase.
#[derive(Clone, Debug, PartialEq)]
pub struct ContentObject {
    /// Object as stored.
    pub object: Value,
    /// Number conversion for the digest.
    pub numbers: Numbers,
    /// Collision protection for an existing object: that of the object, else of the phase, else of the revision.
    pub collision_protection: CollisionProtection,
}

impl ContentPhase {
    /// Creates a phase with inline objects and collision protection Prevent.
    pub fn inline(name: &str, objects: Vec<Value>) -> Self {
        let object = |object| ContentObject {
            object,
            numbers: Numbers::Exact,
            collision_protection: CollisionProtection::Prevent,
        };
        Self { name: name.to_owned(), objects: objects.into_iter().map(object).collect() }
    }
}

/// Error of the resolution of content.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ContentError {
    /// Referenced Secrets, named here, are mutable. Blocks the revision.
    #[error(
        "the following secrets are not immutable (referenced secrets must have immutable set to true): {0}"
    )]
    Mutable(String),
    /// An object is missing or malformed.
    #[error("{0}")]
    Unresolvable(String),
}

/// Secrets that `spec` references. A reference without namespace means `system_namespace`.
pub fn secrets(spec: &ClusterObjectSetSpec, system_namespace: &str) -> BTreeSet<SecretKey> {
    let objects = spec.phases.iter().flat_map(|phase| &phase.objects);
    objects.filter_map(|object| Some(stored(object, system_namespace)?.0)).collect()
}

fn stored<'a>(object: &'a PhaseObject, system_namespace: &str) -> Option<(SecretKey, &'a str)> {
    let reference = object.ref_.as_ref().filter(|_| object.object.is_none())?;
    let namespace = match reference.namespace.as_str() {
        "" => system_namespace,
        namespace => namespace,
    };
    let key = SecretKey { namespace: namespace.to_owned(), name: reference.name.clone() };
    Some((key, &reference.key))
}

/// Resolves every object of `spec` from immutable Secrets. `found` holds the existing ones of [`secrets`].
pub fn resolve(
    spec: &ClusterObjectSetSpec,
    system_namespace: &str,
    found: &BTreeMap<SecretKey, Secret>,
) -> Result<Vec<ContentPhase>, ContentError> {
    let is_mutable = |key: &SecretKey| found.get(key).is_some_and(|secret| secret.immutable != Some(true));
    let mutable = secrets(spec, system_namespace).into_iter().filter(is_mutable);
    let mutable: Vec<String> = mutable.map(|key| key.to_string()).collect();
    if !mutable.is_empty() {
        return Err(ContentError::Mutable(mutable.join(", ")));
    }
    resolve_as_is(spec, system_namespace, found).map_err(ContentError::Unresolvable)
}

/// Like [`resolve`], from Secrets that can be mutable. This is sufficient for removals, which only touch objects that
/// the revision controls.
pub fn resolve_as_is(
    spec: &ClusterObjectSetSpec,
    system_namespace: &str,
    found: &BTreeMap<SecretKey, Secret>,
) -> Result<Vec<ContentPhase>, String> {
    let mut phases = Vec::with_capacity(spec.phases.len());
    for phase in &spec.phases {
        let mut objects = Vec::with_capacity(phase.objects.len());
        for object in &phase.objects {
            let protection = [&object.collision_protection, &phase.collision_protection];
            let protection = protection.into_iter().flatten().next().unwrap_or(&spec.collision_protection);
            let (value, numbers) = match (&object.object, stored(object, system_namespace)) {
                (Some(inline), _) => (Value::Object(inline.clone()), Numbers::Exact),
                (None, Some((secret, key))) => {
                    let object = read(found, &secret, key)
                        .map_err(|problem| format!("resolving ref in phase \"{}\": {problem}", phase.name))?;
                    (object, Numbers::Float)
                }
                (None, None) => {
                    return Err(format!("object in phase \"{}\" has neither object nor ref", phase.name));
                }
            };
            objects.push(ContentObject { object: value, numbers, collision_protection: protection.clone() });
        }
        phases.push(ContentPhase { name: phase.name.clone(), objects });
    }
    Ok(phases)
}

fn read(found: &BTreeMap<SecretKey, Secret>, secret: &SecretKey, key: &str) -> Result<Value, String> {
    let Some(content) = found.get(secret) else {
        return Err(format!("getting Secret {secret}: Secret \"{}\" not found", secret.name));
    };
    match content.data.as_ref().and_then(|data| data.get(key)) {
        Some(bytes) => unpack(&bytes.0, &secret.to_string(), key),
        None => Err(format!("key {key:?} not found in Secret {secret}")),
    }
}

/// Digest of each phase, for `status.observedPhases`.
pub fn digests(phases: &[ContentPhase]) -> Vec<ObservedPhase> {
    let digest = |phase: &ContentPhase| ObservedPhase {
        name: phase.name.clone(),
        digest: phase_digest(&phase.name, phase.objects.iter().map(|o| (&o.object, o.numbers))),
    };
    phases.iter().map(digest).collect()
}

/// `true` if two contents are equivalent (docs/design/apply.md#existing-revisions): equal phases, names and objects,
/// where a null field or empty map equals an absent one and numbers compare by value. Content packed by another
/// program differs only in these points.
pub fn same_content(a: &[ContentPhase], b: &[ContentPhase]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            a.name == b.name
                && a.objects.len() == b.objects.len()
                && a.objects.iter().zip(&b.objects).all(|(a, b)| meaning(&a.object) == meaning(&b.object))
        })
}

/// Objects of all phases, in order.
pub fn objects(phases: &[ContentPhase]) -> impl Iterator<Item = &Value> {
    phases.iter().flat_map(|phase| &phase.objects).map(|content| &content.object)
}

/// Digest of a content, `sha256:…`. Equal for equivalent contents ([`same_content`]), also before and after they are
/// stored in Secrets.
pub fn content_digest(phases: &[ContentPhase]) -> String {
    let phase = |phase: &ContentPhase| {
        let objects: Vec<Value> = phase.objects.iter().map(|content| pruned(&content.object)).collect();
        json!({"name": phase.name, "objects": objects})
    };
    let content = canonical_json(&phases.iter().map(phase).collect(), Numbers::Float);
    format!("sha256:{}", hex::encode(Sha256::digest(content)))
}

fn meaning(object: &Value) -> String {
    canonical_json(&pruned(object), Numbers::Exact)
}

fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| (key.clone(), pruned(value)));
            let is_empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
            Value::Object(entries.filter(|(_, value)| !value.is_null() && !is_empty(value)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(pruned).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn spec(phases: Value) -> ClusterObjectSetSpec {
        serde_json::from_value(json!({"lifecycleState": "Active", "revision": 1,
            "collisionProtection": "Prevent", "phases": phases}))
        .unwrap()
    }

    fn secret(namespace: &str, immutable: bool) -> BTreeMap<SecretKey, Secret> {
        let data = BTreeMap::from([("k".to_owned(), ByteString(b"{\"kind\":\"K\"}".to_vec()))]);
        let key = SecretKey { namespace: namespace.to_owned(), name: "s".to_owned() };
        let secret = Secret { immutable: Some(immutable), data: Some(data), ..Secret::default() };
        BTreeMap::from([(key, secret)])
    }

    fn reference(key: &str) -> Value {
        json!([{"name": "p", "objects": [{"ref": {"name": "s", "key": key}}]}])
    }

    // docs/design/apply.md#content-and-digests
    #[test]
    fn reference_without_namespace_uses_the_system_namespace() {
        let phases = resolve(&spec(reference("k")), "system", &secret("system", true)).unwrap();
        assert_eq!(phases[0].objects[0].object, json!({"kind": "K"}));
    }

    // Cases apply-39, apply-41
    #[test]
    fn unresolvable_content_returns_reference_errors() {
        let found = secret("system", true);
        for (phases, found, message) in [
            (
                reference("k"),
                &secret("system", false),
                "the following secrets are not immutable (referenced secrets must have immutable set to true): system/s",
            ),
            (
                reference("k"),
                &secret("other", true),
                "resolving ref in phase \"p\": getting Secret system/s: Secret \"s\" not found",
            ),
            (reference("x"), &found, "resolving ref in phase \"p\": key \"x\" not found in Secret system/s"),
            (
                json!([{"name": "p", "objects": [{}]}]),
                &found,
                "object in phase \"p\" has neither object nor ref",
            ),
        ] {
            assert_eq!(resolve(&spec(phases), "system", found).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn content_digest_is_equal_for_equivalent_contents() {
        let digest =
            |phase: &str, object: Value| content_digest(&[ContentPhase::inline(phase, vec![object])]);
        let one = digest("deploy", json!({"kind": "K", "spec": {"a": 1, "b": null, "c": {}}}));
        // A fixed value: refusals must outlive an upgrade of the server.
        assert_eq!(one, "sha256:80e23df3f3a68a47cd4ff4a749334e33416f4c26d7edd0fb07409ff5a8fd3001");
        assert_eq!(digest("deploy", json!({"spec": {"a": 1.0}, "kind": "K"})), one);
        assert_ne!(digest("rbac", json!({"kind": "K", "spec": {"a": 1}})), one);
        assert_ne!(digest("deploy", json!({"kind": "K", "spec": {"a": 2}})), one);
        assert_ne!(content_digest(&[]), one);
    }

    // Case apply-29
    #[test]
    fn narrowest_collision_protection_wins() {
        let phases = json!([
            {"name": "a", "collisionProtection": "IfNoController", "objects": [
                {"object": {}, "collisionProtection": "None"}, {"object": {}}]},
            {"name": "b", "objects": [{"object": {}}]}]);
        let phases = resolve(&spec(phases), "system", &BTreeMap::new()).unwrap();
        let protections: Vec<_> =
            phases.iter().flat_map(|p| &p.objects).map(|o| o.collision_protection.as_str()).collect();
        assert_eq!(protections, ["None", "IfNoController", "Prevent"]);
    }
}
