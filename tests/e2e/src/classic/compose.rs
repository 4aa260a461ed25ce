//! Objects that classic OLM would make for a bundle, in the shape of the recordings.

mod rbac;
mod workload;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::Installation;

pub use workload::with_sample_operator;

const V1ALPHA1: &str = "operators.coreos.com/v1alpha1";
const CSV: &str = "ClusterServiceVersion";
const AT: &str = "2026-11-27T02:05:25Z";

/// Bundle, and how it was installed.
#[derive(Clone, Debug)]
pub struct Origin<'a> {
    /// Files of the bundle by path.
    pub files: &'a BTreeMap<String, Vec<u8>>,
    /// Name of the package and of its Subscription.
    pub package: &'a str,
    /// Channel of the Subscription.
    pub channel: &'a str,
    /// Namespace of the operator, and name of its OperatorGroup.
    pub namespace: &'a str,
    /// Watched namespaces. Empty: all.
    pub targets: &'a [&'a str],
}

/// Composes the objects of an installation. Hashes and generated suffixes of names differ from those of classic OLM, and
/// the InstallPlan has no steps.
///
/// # Errors
/// The bundle has no CSV, or owns an APIService.
pub fn compose(origin: &Origin<'_>) -> Result<Installation> {
    let mut manifests = Vec::new();
    for (path, bytes) in origin.files.iter().filter(|(path, _)| path.starts_with("manifests/")) {
        let object: Value = serde_saphyr::from_slice(bytes)
            .with_context(|| format!("parsing {path} of {}", origin.package))?;
        manifests.push(object);
    }
    let place = manifests.iter().position(|object| object["kind"] == CSV);
    let csv = manifests.remove(place.context("the bundle has no ClusterServiceVersion")?);
    ensure!(list(&csv["spec"]["apiservicedefinitions"]["owned"]).is_empty(), "APIServices are not composed");
    let name = csv["metadata"]["name"].as_str().context("the CSV has no name")?.to_owned();
    let mut composer = Composer { origin, csv, name, uid: new_uid(), objects: Vec::new() };
    composer.complete_csv();
    composer.core();
    composer.copies();
    manifests.into_iter().for_each(|object| composer.manifest(object));
    composer.condition();
    composer.permissions();
    composer.user_roles();
    composer.workloads();
    Ok(Installation { objects: composer.objects })
}

/// Objects composed so far, and what they share.
struct Composer<'a> {
    origin: &'a Origin<'a>,
    csv: Value,
    /// Name of the CSV.
    name: String,
    /// UID of the CSV.
    uid: String,
    objects: Vec<Value>,
}

impl Composer<'_> {
    /// Adds what classic OLM writes into the CSV of the bundle.
    fn complete_csv(&mut self) {
        let Origin { package, namespace, targets, .. } = *self.origin;
        let mut properties = vec![json!({"type": "olm.package",
            "value": {"packageName": package, "version": self.csv["spec"]["version"]}})];
        for api in list(&self.csv["spec"]["customresourcedefinitions"]["owned"]) {
            properties.push(json!({"type": "olm.gvk",
                "value": {"group": group(api), "kind": api["kind"], "version": api["version"]}}));
        }
        let metadata = &mut self.csv["metadata"];
        metadata["namespace"] = json!(namespace);
        metadata["uid"] = json!(self.uid);
        metadata["finalizers"] = json!(["operators.coreos.com/csv-cleanup"]);
        for (key, value) in [
            ("olm.operatorGroup", namespace.to_owned()),
            ("olm.operatorNamespace", namespace.to_owned()),
            ("olm.targetNamespaces", targets.join(",")),
            ("operatorframework.io/properties", json!({"properties": properties}).to_string()),
        ] {
            metadata["annotations"][key] = json!(value);
        }
        self.csv["status"] = json!({"phase": "Succeeded", "reason": "InstallSucceeded",
            "message": "install strategy completed with no errors", "lastTransitionTime": AT, "lastUpdateTime": AT});
        self.csv["metadata"]["labels"] = self.labels(true, None);
    }

    /// Namespaces, and the kinds that a user sees.
    fn core(&mut self) {
        let Origin { package, channel, namespace, targets, .. } = *self.origin;
        let group_uid = new_uid();
        let mut namespaces = vec![namespace];
        namespaces.extend(targets.iter().filter(|target| **target != namespace));
        for name in namespaces {
            let mut object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            if targets.contains(&name) {
                object["metadata"]["labels"] = json!({(format!("olm.operatorgroup.uid/{group_uid}")): ""});
            }
            self.add("administrator", object);
        }
        self.add("catalog", json!({"apiVersion": V1ALPHA1, "kind": "CatalogSource",
            "metadata": {"name": "samples", "namespace": "olm"},
            "spec": {"sourceType": "grpc", "address": "samples.olm:50051", "displayName": "Samples", "publisher": "OLM"},
            "status": {"connectionState": {"address": "samples.olm:50051", "lastConnect": AT, "lastObservedState": "READY"}}}));
        let apis: Vec<String> = list(&self.csv["spec"]["customresourcedefinitions"]["owned"])
            .iter()
            .map(|api| format!("{}.{}.{}", text(&api["kind"]), text(&api["version"]), group(api)))
            .collect();
        let mut spec = json!({"upgradeStrategy": "Default"});
        if !targets.is_empty() {
            spec["targetNamespaces"] = json!(targets);
        }
        let watched = if targets.is_empty() { json!([""]) } else { json!(targets) };
        self.add(
            "administrator",
            json!({"apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
            "metadata": {"name": namespace, "namespace": namespace, "uid": group_uid,
                "annotations": {"olm.providedAPIs": apis.join(",")}},
            "spec": spec, "status": {"lastUpdated": AT, "namespaces": watched}}),
        );
        let (component, plan, subscription) = (self.component(), new_uid(), new_uid());
        let plan_name = format!("install-{}", &plan[..5]);
        let reference = json!({"apiVersion": V1ALPHA1, "kind": "InstallPlan", "name": plan_name, "namespace": namespace,
            "uid": plan});
        self.add("administrator", json!({"apiVersion": V1ALPHA1, "kind": "Subscription",
            "metadata": {"name": package, "namespace": namespace, "uid": subscription, "labels": {component.clone(): ""}},
            "spec": {"channel": channel, "name": package, "source": "samples", "sourceNamespace": "olm"},
            "status": {"currentCSV": self.name, "installedCSV": self.name, "state": "AtLatestKnown", "lastUpdated": AT,
                "installPlanGeneration": 1, "installPlanRef": reference}}));
        let owner = owner(V1ALPHA1, "Subscription", package, &subscription, false);
        self.add("catalog", json!({"apiVersion": V1ALPHA1, "kind": "InstallPlan",
            "metadata": {"name": plan_name, "generateName": "install-", "namespace": namespace, "uid": plan,
                "labels": {component.clone(): ""}, "ownerReferences": [owner]},
            "spec": {"approval": "Automatic", "approved": true, "generation": 1, "clusterServiceVersionNames": [self.name]},
            "status": {"phase": "Complete", "catalogSources": ["samples"], "plan": []}}));
        self.add("catalog", self.csv.clone());
        self.add(
            "olm",
            json!({"apiVersion": "operators.coreos.com/v1", "kind": "Operator",
            "metadata": {"name": format!("{package}.{namespace}")}, "spec": {},
            "status": {"components": {"labelSelector": {"matchExpressions":
                [{"key": component, "operator": "Exists"}]}}}}),
        );
    }

    /// Copied CSVs. Of all namespaces only `default` has one.
    fn copies(&mut self) {
        for target in self.tenants(&["default"]) {
            let mut copy = self.csv.clone();
            copy["metadata"]["namespace"] = json!(target);
            copy["metadata"]["uid"] = json!(new_uid());
            copy["metadata"]["labels"] =
                json!({"olm.managed": "true", "olm.copiedFrom": self.origin.namespace});
            copy["status"]["reason"] = json!("Copied");
            for (map, key) in [("metadata", "finalizers"), ("/metadata/annotations", "olm.targetNamespaces")]
            {
                let map = if map.starts_with('/') { copy.pointer_mut(map) } else { copy.get_mut(map) };
                map.and_then(Value::as_object_mut).map(|map| map.remove(key));
            }
            self.add("olm", copy);
        }
    }

    /// Target namespaces other than that of the operator. `all` stands for all namespaces.
    fn tenants<'b>(&'b self, all: &[&'b str]) -> Vec<String> {
        let targets = if self.origin.targets.is_empty() { all } else { self.origin.targets };
        targets
            .iter()
            .filter(|target| **target != self.origin.namespace)
            .map(|&target| target.to_owned())
            .collect()
    }

    /// Object of the bundle that classic OLM applies as it is.
    fn manifest(&mut self, mut object: Value) {
        let kind = text(&object["kind"]).to_owned();
        if kind == "CustomResourceDefinition" {
            object["metadata"]["annotations"]["operatorframework.io/installed-alongside-0123456789abcdef"] =
                json!(format!("{}/{}", self.origin.namespace, self.name));
            self.convert(&mut object);
        } else if CLUSTER_SCOPED.contains(&kind.as_str()) {
            object["metadata"]["labels"] = self.labels(false, Some(self.origin.namespace));
        } else {
            object["metadata"]["namespace"] = json!(self.origin.namespace);
            object["metadata"]["ownerReferences"] = json!([self.owner()]);
        }
        let is_component = COMPONENTS.contains(&kind.as_str());
        if let (Some(all), Value::Object(more)) =
            (object["metadata"]["labels"].as_object().cloned(), self.labels(is_component, None))
        {
            object["metadata"]["labels"] = Value::Object(all.into_iter().chain(more).collect());
        } else {
            object["metadata"]["labels"] = self.labels(is_component, None);
        }
        self.add("catalog", object);
    }

    /// The OperatorCondition, and the rights of the operator on it.
    fn condition(&mut self) {
        let namespace = self.origin.namespace;
        let install = &self.csv["spec"]["install"]["spec"];
        let names = |key: &str, field: &str| -> Vec<Value> {
            list(&install[key]).iter().map(|entry| entry[field].clone()).collect()
        };
        let mut accounts = names("clusterPermissions", "serviceAccountName");
        accounts.extend(names("permissions", "serviceAccountName"));
        if accounts.is_empty() {
            accounts.push(json!("default"));
        }
        let (uid, deployments) = (new_uid(), names("deployments", "name"));
        let owned = owner(V1ALPHA1, CSV, &self.name, &self.uid, true);
        self.add("olm", json!({"apiVersion": "operators.coreos.com/v2", "kind": "OperatorCondition",
            "metadata": {"name": self.name, "namespace": namespace, "uid": uid, "labels": {self.component(): ""},
                "ownerReferences": [owned]},
            "spec": {"deployments": deployments, "serviceAccounts": accounts}}));
        let metadata = json!({"name": self.name, "namespace": namespace, "labels": {"olm.managed": "true"},
            "ownerReferences": [owner("operators.coreos.com/v2", "OperatorCondition", &self.name, &uid, true)]});
        self.add("olm", json!({"apiVersion": rbac::V1, "kind": "Role", "metadata": metadata, "rules": [
            {"apiGroups": ["operators.coreos.com"], "resources": ["operatorconditions"], "resourceNames": [self.name],
                "verbs": ["get", "update", "patch"]}]}));
        let subjects: Vec<Value> =
            accounts.iter().map(|name| json!({"kind": "ServiceAccount", "name": name})).collect();
        self.add(
            "olm",
            json!({"apiVersion": rbac::V1, "kind": "RoleBinding", "metadata": metadata, "subjects": subjects,
            "roleRef": {"apiGroup": rbac::GROUP, "kind": "Role", "name": self.name}}),
        );
    }

    fn component(&self) -> String {
        let Origin { package, namespace, .. } = self.origin;
        let name: String = format!("{package}.{namespace}").chars().take(63).collect();
        format!("operators.coreos.com/{}", name.trim_end_matches(['.', '_', '-']))
    }

    /// Labels of an object: whether it is a component, and the namespace of the owner that labels name, if any.
    fn labels(&self, is_component: bool, owner_namespace: Option<&str>) -> Value {
        let mut labels = json!({"olm.managed": "true"});
        if is_component {
            labels[self.component()] = json!("");
        }
        if let Some(namespace) = owner_namespace {
            labels["olm.owner"] = json!(self.name);
            labels["olm.owner.kind"] = json!(CSV);
            labels["olm.owner.namespace"] = json!(namespace);
        }
        labels
    }

    fn owner(&self) -> Value {
        owner(V1ALPHA1, CSV, &self.name, &self.uid, false)
    }

    /// Adds an object with the manager of its fields. It gets a UID unless it has one.
    fn add(&mut self, manager: &str, mut object: Value) {
        let metadata = &mut object["metadata"];
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(new_uid());
        }
        metadata["managedFields"] = json!([{"manager": manager, "operation": "Update"}]);
        self.objects.push(object);
    }
}

/// Cluster-scoped kinds of bundles, other than CRDs.
const CLUSTER_SCOPED: [&str; 5] =
    ["ClusterRole", "ClusterRoleBinding", "PriorityClass", "ConsoleYAMLSample", "ConsoleQuickStart"];
/// Kinds of bundles whose objects have the label of the Operator.
const COMPONENTS: [&str; 9] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "CustomResourceDefinition",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
];

fn owner(version: &str, kind: &str, name: &str, uid: &str, is_controller: bool) -> Value {
    json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": is_controller,
        "blockOwnerDeletion": false})
}

fn new_uid() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Stands for the hashes that classic OLM computes.
fn hash(value: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// API group of an owned CRD.
fn group(api: &Value) -> &str {
    text(&api["name"]).split_once('.').map_or("", |(_, group)| group)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
