//! Assignment of the objects of a bundle to the phases of its revision (docs/design/apply.md#object-preparation,
//! docs/design/apply.md#phases).
//!
//! Pure. Digests and Secret keys depend on the result, so every rule here is visible on the wire.

use kube::core::GroupVersionKind;
use olm_api::limits::MAX_OBJECTS_PER_PHASE;
use olm_api::{annotations, labels};
use serde_json::Value;

use crate::content::ContentPhase;
use crate::object::{self, ObjectKey, map_mut};

/// Phases in rollout order with their kinds as `group/kind`. The core group is empty. Kinds without a row belong to
/// [`DEPLOY`].
const PHASES: [(&str, &[&str]); 13] = [
    ("namespaces", &["/Namespace"]),
    (
        "policies",
        &["networking.k8s.io/NetworkPolicy", "policy/PodDisruptionBudget", "scheduling.k8s.io/PriorityClass"],
    ),
    ("identity", &["/ServiceAccount"]),
    ("configuration", &["/Secret", "/ConfigMap"]),
    ("storage", &["/PersistentVolume", "/PersistentVolumeClaim", "storage.k8s.io/StorageClass"]),
    ("crds", &["apiextensions.k8s.io/CustomResourceDefinition"]),
    ("roles", &["rbac.authorization.k8s.io/ClusterRole", "rbac.authorization.k8s.io/Role"]),
    ("bindings", &["rbac.authorization.k8s.io/ClusterRoleBinding", "rbac.authorization.k8s.io/RoleBinding"]),
    ("infrastructure", &["/Service", "cert-manager.io/Issuer", "cert-manager.io/Certificate"]),
    (DEPLOY, &["apps/Deployment"]),
    ("scaling", &["autoscaling.k8s.io/VerticalPodAutoscaler"]),
    (
        PUBLISH,
        &[
            "monitoring.coreos.com/PrometheusRule",
            "monitoring.coreos.com/ServiceMonitor",
            "monitoring.coreos.com/PodMonitor",
            "networking.k8s.io/Ingress",
            "route.openshift.io/Route",
            "console.openshift.io/ConsoleYAMLSample",
            "console.openshift.io/ConsoleQuickStart",
            "console.openshift.io/ConsoleCLIDownload",
            "console.openshift.io/ConsoleLink",
            "console.openshift.io/ConsolePlugin",
        ],
    ),
    (
        "admission",
        &[
            "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
            "admissionregistration.k8s.io/MutatingWebhookConfiguration",
        ],
    ),
];

/// Phase of all other kinds.
const DEPLOY: &str = "deploy";
/// Phase of objects that announce what the Deployments serve.
const PUBLISH: &str = "publish";

/// Labels and annotations for every object of a bundle.
#[derive(Clone, Copy, Debug)]
pub struct OwnerMetadata<'a> {
    /// Name of the ClusterExtension.
    pub extension: &'a str,
    /// Package name. Not written if empty.
    pub package: &'a str,
    /// Bundle version. Not written if empty. It makes the content of two versions with equal manifests differ.
    pub version: &'a str,
    /// Bundle release. `Some("")` is written too. Only objects migrated from a Helm release carry it
    /// (docs/design/apply.md#migration-to-revision-1).
    pub release: Option<&'a str>,
}

/// Prepares the rendered objects and assigns them to phases. Objects with equal sort keys keep their order. A phase
/// with more than [`MAX_OBJECTS_PER_PHASE`] objects is continued as `<name>-2`, `<name>-3` …
/// (docs/design/apply.md#writing-a-revision).
pub fn phases(objects: Vec<Value>, metadata: OwnerMetadata<'_>) -> Vec<ContentPhase> {
    let prepared = objects.into_iter().map(|object| {
        let object = with_metadata(object, metadata);
        (ObjectKey::of(&object), object)
    });
    let mut sorted: Vec<(ObjectKey, Value)> = prepared.collect();
    sorted.sort_by(|(a, _), (b, _)| sort_key(a).cmp(&sort_key(b)));
    let mut by_phase: Vec<Vec<Value>> = vec![Vec::new(); PHASES.len()];
    for (key, object) in sorted {
        let index = if is_aggregated(&object) { index_of(PUBLISH) } else { phase_index(&key.gvk) };
        by_phase[index].push(object);
    }
    PHASES.iter().zip(by_phase).flat_map(|((name, _), objects)| split(name, objects)).collect()
}

/// Adds owner labels and bundle annotations, and removes fields that a cluster would set
/// (docs/design/apply.md#object-preparation).
fn with_metadata(mut object: Value, metadata: OwnerMetadata<'_>) -> Value {
    object::set_label(&mut object, labels::OWNER_KIND, labels::OWNER_KIND_EXTENSION);
    object::set_label(&mut object, labels::OWNER_NAME, metadata.extension);
    if let Some(map) = map_mut(&mut object, &["metadata", "annotations"]) {
        map.remove(annotations::LAST_APPLIED);
        for (key, value) in
            [(annotations::BUNDLE_VERSION, metadata.version), (annotations::PACKAGE_NAME, metadata.package)]
        {
            if !value.is_empty() {
                map.insert(key.to_owned(), value.into());
            }
        }
        if let Some(release) = metadata.release {
            map.insert(annotations::BUNDLE_RELEASE.to_owned(), release.into());
        }
    }
    if let Some(metadata) = map_mut(&mut object, &["metadata"]) {
        metadata.retain(|key, value| match key.as_str() {
            "name" | "namespace" | "labels" => true,
            "annotations" => value.as_object().is_none_or(|map| !map.is_empty()),
            _ => false,
        });
    }
    if let Some(root) = object.as_object_mut() {
        root.remove("status");
    }
    object
}

fn sort_key(key: &ObjectKey) -> (&str, &str, &str, &str, &str) {
    (&key.gvk.group, &key.gvk.version, &key.gvk.kind, &key.namespace, &key.name)
}

fn phase_index(gvk: &GroupVersionKind) -> usize {
    let group_kind = format!("{}/{}", gvk.group, gvk.kind);
    PHASES
        .iter()
        .position(|(_, kinds)| kinds.contains(&group_kind.as_str()))
        .unwrap_or_else(|| index_of(DEPLOY))
}

fn index_of(phase: &str) -> usize {
    PHASES.iter().position(|(name, _)| *name == phase).unwrap_or_default()
}

/// `true` for an APIService that a Service serves. It follows its Deployment, and is deleted before it: as long as its
/// server does not answer, discovery of the whole cluster fails partly (docs/design/bundles.md#aggregated-apis).
pub(crate) fn is_aggregated(object: &Value) -> bool {
    let gvk = ObjectKey::of(object).gvk;
    gvk.group == "apiregistration.k8s.io"
        && gvk.kind == "APIService"
        && object.pointer("/spec/service").is_some_and(Value::is_object)
}

fn split(name: &str, objects: Vec<Value>) -> Vec<ContentPhase> {
    let mut parts = Vec::new();
    let mut rest = objects;
    while !rest.is_empty() {
        let tail = rest.split_off(rest.len().min(MAX_OBJECTS_PER_PHASE));
        let number = parts.len() + 1;
        let name = if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
        parts.push(ContentPhase::inline(&name, rest));
        rest = tail;
    }
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const METADATA: OwnerMetadata<'static> =
        OwnerMetadata { extension: "demo", package: "", version: "", release: None };

    // Cases apply-65, api-54
    #[test]
    fn oversized_phase_is_split() {
        let roles = (0..120)
            .map(|n| {
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                       "metadata": {"name": format!("r-{n:03}")}})
            })
            .collect();
        let phases = phases(roles, METADATA);
        let shape: Vec<_> = phases.iter().map(|p| (p.name.as_str(), p.objects.len())).collect();
        assert_eq!(shape, [("roles", 50), ("roles-2", 50), ("roles-3", 20)]);
        assert_eq!(phases[1].objects[0].object["metadata"]["name"], "r-050");
    }

    // Case apply-3
    #[test]
    fn phases_and_objects_are_sorted() {
        let object = |api_version: &str, kind: &str, namespace: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
        let objects = [
            object("apps/v1", "Deployment", "ns", "op"),
            object("v1", "ConfigMap", "ns", "b"),
            object("v1", "Secret", "a", "z"),
            object("v1", "ConfigMap", "a", "z"),
            object("v1", "Namespace", "", "ns"),
            object("v1", "ConfigMap", "ns", "a"),
            object("acme.example/v1", "Widget", "ns", "w"),
            json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.g"},
                "spec": {"service": {"namespace": "ns", "name": "s"}}}),
            // Without a Service, as recorded in the vectors.
            object("apiregistration.k8s.io/v1", "APIService", "", "v2.g"),
        ];
        let phases = phases(objects.to_vec(), METADATA);
        let shown = |phase: &ContentPhase| {
            let keys = phase.objects.iter().map(|content| ObjectKey::of(&content.object).kind_first());
            format!("{}: {}", phase.name, keys.collect::<Vec<_>>().join(", "))
        };
        let expected = [
            "namespaces: Namespace.v1 /ns",
            "configuration: ConfigMap.v1 a/z, ConfigMap.v1 ns/a, ConfigMap.v1 ns/b, Secret.v1 a/z",
            "deploy: Widget.acme.example/v1 ns/w, APIService.apiregistration.k8s.io/v1 /v2.g, Deployment.apps/v1 ns/op",
            "publish: APIService.apiregistration.k8s.io/v1 /v1.g",
        ];
        assert_eq!(phases.iter().map(shown).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn kinds_of_bundles_are_in_the_phase_of_their_table() {
        for kind in &olm_bundle::KINDS {
            let object = json!({"apiVersion": format!("{}/v1", kind.group).trim_start_matches('/'), "kind": kind.kind,
                "metadata": {"name": "a"}, "spec": {"service": {}}});
            let phases = phases(vec![object], METADATA);
            assert_eq!(phases[0].name, kind.phase, "{}/{}", kind.group, kind.kind);
        }
    }

    #[test]
    fn object_without_metadata_gets_owner_labels() {
        let phases = phases(vec![json!({"apiVersion": "v1", "kind": "Pod", "status": {}})], METADATA);
        assert_eq!(phases[0].name, "deploy");
        assert_eq!(
            phases[0].objects[0].object,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {
                "olm.operatorframework.io/owner-kind": "ClusterExtension",
                "olm.operatorframework.io/owner-name": "demo"}}})
        );
    }
}
