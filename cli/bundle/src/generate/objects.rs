//! Objects of the input, by their use in a bundle.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::is_supported_kind;
use olm_bundle::pointer::{list, text};
use olm_cli_core::output::qualified;
use serde_json::Value;

use super::summary::{Report, Skipped};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Metadata that the API server writes.
const SERVER_METADATA: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];

/// Object of the input.
#[derive(Debug, Clone)]
pub(super) struct Object {
    /// File or command that it was read from.
    pub(super) origin: String,
    /// Member of a folder with samples, which are never installed.
    pub(super) is_sample: bool,
    pub(super) value: Value,
}

impl Object {
    pub(super) fn kind(&self) -> &str {
        text(&self.value, "/kind")
    }

    pub(super) fn name(&self) -> &str {
        text(&self.value, "/metadata/name")
    }

    pub(super) fn namespace(&self) -> &str {
        text(&self.value, "/metadata/namespace")
    }

    fn api_version(&self) -> &str {
        text(&self.value, "/apiVersion")
    }

    /// API group. Empty for core objects.
    pub(super) fn group(&self) -> &str {
        self.api_version().rsplit_once('/').map_or("", |(group, _)| group)
    }

    pub(super) fn version(&self) -> &str {
        self.api_version().rsplit('/').next().unwrap_or_default()
    }

    /// Group and kind.
    fn api(&self) -> (String, String) {
        (self.group().to_owned(), self.kind().to_owned())
    }

    /// `Kind namespace/name`
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.kind(), qualified(self.namespace(), self.name()))
    }

    /// Group, kind, name, namespace and version.
    fn identity(&self) -> [String; 5] {
        [self.group(), self.kind(), self.name(), self.namespace(), self.version()].map(str::to_owned)
    }

    /// Removes what the API server adds to an object.
    fn clean(&mut self) {
        let Some(fields) = self.value.as_object_mut() else { return };
        fields.remove("status");
        let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        metadata.retain(|key, _| !SERVER_METADATA.contains(&key.as_str()));
        remove_annotations(&mut self.value, |key| key == LAST_APPLIED);
    }
}

/// Removes annotations by key, and an empty map of annotations.
pub(super) fn remove_annotations(object: &mut Value, is_removed: impl Fn(&str) -> bool) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.retain(|key, _| !is_removed(key));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

/// Reports whether two namespaces may be the same. Manifests often lack one.
pub(super) fn may_share(a: &str, b: &str) -> bool {
    a.is_empty() || b.is_empty() || a == b
}

/// Objects of the input by use, sorted by name within each list.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// ClusterServiceVersion with hand-written fields.
    pub(super) base: Option<Object>,
    pub(super) deployments: Vec<Object>,
    pub(super) accounts: Vec<Object>,
    /// Roles and ClusterRoles.
    pub(super) roles: Vec<Object>,
    /// RoleBindings and ClusterRoleBindings.
    pub(super) bindings: Vec<Object>,
    pub(super) services: Vec<Object>,
    pub(super) webhooks: Vec<Object>,
    pub(super) crds: Vec<Object>,
    pub(super) api_services: Vec<Object>,
    pub(super) certificates: Vec<Object>,
    /// Custom resources of the owned APIs.
    pub(super) examples: Vec<Object>,
    /// Other objects that a bundle may contain.
    pub(super) shipped: Vec<Object>,
}

impl Input {
    /// Sorts the objects by use. Kinds in `skipped_kinds` are left out.
    pub(super) fn new(objects: Vec<Object>, skipped_kinds: &[String], report: &mut Report) -> Self {
        let apis = defined_apis(&objects);
        let mut objects = distinct(objects, &apis, report);
        objects.iter_mut().for_each(Object::clean);
        objects.sort_by_cached_key(|object| (object.name().to_owned(), object.identity()));
        let mut input = Self::default();
        for object in objects {
            if skipped_kinds.iter().any(|kind| kind == object.kind()) {
                report.skip(&object, "--skip-kind");
            } else if apis.contains(&object.api()) {
                input.examples.push(object);
            } else if object.is_sample {
                report.skip(&object, "sample of an API that no CRD of the input defines");
            } else {
                input.add(object, report);
            }
        }
        input
    }

    fn add(&mut self, object: Object, report: &mut Report) {
        let list = match (object.group(), object.kind()) {
            ("apps", "Deployment") => &mut self.deployments,
            ("", "ServiceAccount") => &mut self.accounts,
            ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => &mut self.roles,
            ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &mut self.bindings,
            ("", "Service") => &mut self.services,
            (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
            ) => &mut self.webhooks,
            ("apiextensions.k8s.io", "CustomResourceDefinition") => &mut self.crds,
            ("apiregistration.k8s.io", "APIService") => &mut self.api_services,
            ("cert-manager.io", "Certificate") => &mut self.certificates,
            ("cert-manager.io", _) => {
                return report.skip(&object, "OLM issues the certificates of webhooks");
            }
            ("", "Namespace") => {
                return report.skip(&object, "the namespace is chosen at installation");
            }
            ("scorecard.operatorframework.io", _) => {
                return report.skip(&object, "configuration of tests, which belongs in tests/scorecard");
            }
            ("operators.coreos.com", "ClusterServiceVersion") => {
                if let Some(other) = &self.base {
                    report.problem(format!(
                        "{}: {}: {} has another ClusterServiceVersion; pass only one",
                        object.origin,
                        object.label(),
                        other.origin
                    ));
                }
                self.base = Some(object);
                return;
            }
            (_, kind) if is_supported_kind(kind) => &mut self.shipped,
            (_, kind) => {
                return report.problem(format!(
                    "{}: {}: a bundle cannot contain objects of this kind; let the operator create it, or leave \
                     it out with --skip-kind {kind}; `bundle validate --rules` lists the kinds",
                    object.origin,
                    object.label()
                ));
            }
        };
        list.push(object);
    }
}

/// Group and kind of each API that an object of the input defines. The kinds of an APIService are those of samples of
/// its group.
fn defined_apis(objects: &[Object]) -> BTreeSet<(String, String)> {
    let mut apis = BTreeSet::new();
    for object in objects {
        let group = text(&object.value, "/spec/group");
        match object.kind() {
            "CustomResourceDefinition" => {
                apis.insert((group.to_owned(), text(&object.value, "/spec/names/kind").to_owned()));
            }
            "APIService" => {
                let samples = objects.iter().filter(|one| one.group() == group);
                apis.extend(samples.map(|one| (group.to_owned(), one.kind().to_owned())));
            }
            _ => {}
        }
    }
    apis
}

/// Removes repeated objects, and combines their labels. A sample may also be part of the kustomization, which may add a
/// namespace and labels.
/// Examples of one name may show several versions of an API of `apis`.
fn distinct(objects: Vec<Object>, apis: &BTreeSet<(String, String)>, report: &mut Report) -> Vec<Object> {
    let mut known: BTreeMap<[String; 5], Object> = BTreeMap::new();
    for object in objects {
        let [group, kind, name, namespace, mut version] = object.identity();
        if !object.is_sample && !apis.contains(&object.api()) {
            version.clear();
        }
        let is_same = |other: &&Object| {
            let same_version = version.is_empty() || other.version() == version;
            same_version && other.api() == object.api() && other.name() == name
        };
        if object.is_sample
            && let Some(first) = known.values().find(is_same)
        {
            if without_metadata(&first.value) != without_metadata(&object.value) {
                report.skip(&object, "sample with the name of another object");
            }
            continue;
        }
        let identity = [group, kind, name, namespace, version];
        let Some(first) = known.get_mut(&identity) else {
            known.insert(identity, object);
            continue;
        };
        if first.value == object.value {
            continue;
        }
        if without_labels(&first.value) == without_labels(&object.value) {
            let unlike = add_labels(&mut first.value, &object.value);
            let kept = match unlike.is_empty() {
                true => String::new(),
                false => format!("; the first value stays of {}", unlike.join(", ")),
            };
            report.note(format!(
                "{}: the copies in {} and {} differ only in labels, which are combined{kept}",
                object.label(),
                first.origin,
                object.origin
            ));
        } else {
            report.problem(format!(
                "{}: {}: {} has another object of this name; pass only one",
                object.origin,
                object.label(),
                first.origin
            ));
        }
    }
    known.into_values().collect()
}

fn without_labels(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("labels");
    }
    object
}

/// Adds the labels of `other`. Of two values for one label, the own one stays: returns these labels.
fn add_labels(object: &mut Value, other: &Value) -> Vec<String> {
    let mut unlike = Vec::new();
    let Some(added) = other.pointer("/metadata/labels").and_then(Value::as_object) else { return unlike };
    if !object["metadata"]["labels"].is_object() {
        object["metadata"]["labels"] = Value::Object(added.clone());
    } else if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
        for (key, value) in added {
            if labels.entry(key).or_insert_with(|| value.clone()) != value {
                unlike.push(key.clone());
            }
        }
    }
    unlike
}

fn without_metadata(object: &Value) -> Vec<(&String, &Value)> {
    object.as_object().into_iter().flatten().filter(|(field, _)| *field != "metadata").collect()
}

/// Versions that a CRD serves.
pub(super) fn served_versions(crd: &Value) -> impl Iterator<Item = &Value> {
    list(crd, "/spec/versions").iter().filter(|version| version["served"] == true)
}

impl Report {
    /// Records an object that is not part of the bundle.
    pub(super) fn skip(&mut self, object: &Object, reason: &'static str) {
        let (object, origin) = (object.label(), object.origin.clone());
        self.skipped.push(Skipped { object, origin, reason });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_one_name_differ_by_version_and_dropped_samples_are_reported() {
        let object = |text: &str, is_sample| Object {
            origin: "f.yaml".to_owned(),
            is_sample,
            value: olm_yaml::from_slice(text.as_bytes()).unwrap(),
        };
        let crd = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ls.x.io}, \
                   spec: {group: x.io, names: {kind: L}}}";
        let lamp = |version: &str, rest: &str| {
            format!("{{apiVersion: x.io/{version}, kind: L, metadata: {{name: l{rest}}}")
        };
        let [v1, v2] = ["v1", "v2"].map(|version| lamp(version, "") + "}");
        let moved = lamp("v1", ", namespace: s") + "}";
        let other = lamp("v1", "") + ", spec: {a: 1}}";
        for (is_sample, lamps, versions, skipped, problems) in [
            (false, [&v1, &v2], vec!["v1", "v2"], 0, 0),
            (true, [&v2, &v1], vec!["v1", "v2"], 0, 0),
            (true, [&v1, &moved], vec!["v1"], 0, 0),
            (true, [&v1, &other], vec!["v1"], 1, 0),
            (false, [&v1, &other], vec!["v1"], 0, 1),
        ] {
            let mut objects = vec![object(crd, false)];
            objects.extend(lamps.map(|lamp| object(lamp, is_sample)));
            let mut report = Report::default();
            let input = Input::new(objects, &[], &mut report);
            let found: Vec<_> = input.examples.iter().map(Object::version).collect();
            assert_eq!(
                (found, report.skipped.len(), report.problems.len()),
                (versions, skipped, problems),
                "{lamps:?}"
            );
        }
    }
}
