//! Objects that classic OLM makes for a bundle: those of the renderer, with the names, owners and labels of classic OLM.

use std::collections::BTreeMap;

use kube::api::{Api, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::Scope;
use olm_bundle::{BUILTIN_CA_ANNOTATION, BundleContent, Certificates, RenderOptions};
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::object::gvk;
use serde_json::{Value, json};

const CLASSIC: &str = "operators.coreos.com";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// CRDs of classic OLM without schemas.
pub(super) fn crds() -> Vec<Value> {
    let kinds = [
        ("v1alpha1", "Subscription", "subscriptions", "Namespaced"),
        ("v1alpha1", "ClusterServiceVersion", "clusterserviceversions", "Namespaced"),
        ("v1alpha1", "InstallPlan", "installplans", "Namespaced"),
        ("v1alpha1", "CatalogSource", "catalogsources", "Namespaced"),
        ("v1", "OperatorGroup", "operatorgroups", "Namespaced"),
        ("v1", "Operator", "operators", "Cluster"),
        ("v2", "OperatorCondition", "operatorconditions", "Namespaced"),
    ];
    let crd = |(version, kind, plural, scope): (&str, &str, &str, &str)| {
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{CLASSIC}")},
            "spec": {"group": CLASSIC, "scope": scope,
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": version, "served": true, "storage": true, "schema": schema}]}})
    };
    kinds.into_iter().map(crd).collect()
}

/// Installation by classic OLM.
pub(super) struct Installation<'a> {
    pub(super) files: &'a BTreeMap<String, Vec<u8>>,
    pub(super) namespace: &'a str,
    /// Namespaces that the OperatorGroup names.
    pub(super) targets: &'a [&'a str],
    /// Fields of the Subscription in addition to the usual ones.
    pub(super) subscription: Value,
    /// Configuration of the renderer for the same result.
    pub(super) config: Value,
    /// Name of the CatalogSource, whose image is `r.example/<name>:v1`.
    pub(super) source: &'a str,
}

/// Identities that objects of one installation need.
struct Context {
    csv: Value,
    namespace: String,
    name: String,
    package: String,
    uid: String,
}

/// Creates all objects of the installation.
pub(super) async fn install(client: &kube::Client, installation: &Installation<'_>) {
    let bundle = BundleContent::load(installation.files).unwrap();
    let (namespace, package) = (installation.namespace, bundle.package_name());
    for name in ["olm", namespace].iter().chain(installation.targets) {
        add(client, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
    }
    let csv = csv(installation.files);
    let mut context = Context {
        csv,
        namespace: namespace.to_owned(),
        name: bundle.name().to_owned(),
        package: package.to_owned(),
        uid: String::new(),
    };
    let made = add(client, context.installed_csv()).await.unwrap();
    context.uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
    for object in context.classic_objects(installation) {
        add(client, object).await;
    }
    let options = RenderOptions {
        install_namespace: namespace,
        config: Some(&installation.config),
        certificates: Certificates::Builtin,
        single_own_namespace: true,
        deployment_config: true,
        multi_watch_namespaces: true,
        owned_api_services: true,
        selected_namespaces: None,
        operator_condition: false,
        aggregate_api_roles: true,
    };
    let rendered = olm_bundle::distinct(olm_bundle::render(&bundle, &options).unwrap());
    let (crds, others): (Vec<_>, Vec<_>) =
        rendered.into_iter().partition(|object| object["kind"] == "CustomResourceDefinition");
    let crds: Vec<Value> = crds.into_iter().map(without_injection).collect();
    olm_control_plane::apply_crds(client, &crds).await.unwrap();
    let cluster = KubeCluster::new(client.clone());
    for object in others {
        let Ok((_, scope)) = cluster.discover(&gvk(&object)).await else { continue };
        let is_webhook = object["kind"] == "Deployment" && has_certificate(&object);
        let service = format!("{}-service", object["metadata"]["name"].as_str().unwrap_or_default());
        add(client, context.as_classic(object, scope == Scope::Namespaced)).await;
        if is_webhook {
            for object in context.certificate_objects(&service) {
                add(client, object).await;
            }
        }
    }
}

/// Creates an object as classic OLM does. `None` if it exists.
async fn add(client: &kube::Client, object: Value) -> Option<Value> {
    let gvk: GroupVersionKind = gvk(&object);
    let (resource, scope) = KubeCluster::new(client.clone()).discover(&gvk).await.unwrap();
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) if scope == Scope::Namespaced => {
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
        _ => Api::all_with(client.clone(), &resource),
    };
    let parameters = PostParams { field_manager: Some("olm".to_owned()), ..PostParams::default() };
    match api.create(&parameters, &serde_json::from_value(object.clone()).unwrap()).await {
        Ok(created) => Some(serde_json::to_value(created).unwrap()),
        Err(kube::Error::Api(status)) if status.code == 409 => None,
        Err(error) => panic!("{object}: {error}"),
    }
}

fn csv(files: &BTreeMap<String, Vec<u8>>) -> Value {
    let objects = files.values().filter_map(|content| olm_yaml::from_slice(content).ok());
    objects.into_iter().find(|object| object["kind"] == "ClusterServiceVersion").unwrap()
}

fn has_certificate(deployment: &Value) -> bool {
    deployment["spec"]["template"]["spec"]["volumes"]
        .as_array()
        .is_some_and(|volumes| volumes.iter().any(|volume| volume["name"] == "webhook-cert"))
}

fn without_injection(mut object: Value) -> Value {
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove(BUILTIN_CA_ANNOTATION);
    }
    object
}

fn set(object: &mut Value, field: &str, entries: &Value) {
    if object[field].is_null() {
        object[field] = json!({});
    }
    object[field].as_object_mut().unwrap().extend(entries.as_object().unwrap().clone());
}

impl Context {
    fn owner_labels(&self) -> Value {
        json!({"olm.managed": "true", "olm.owner": self.name, "olm.owner.kind": "ClusterServiceVersion",
            "olm.owner.namespace": self.namespace})
    }

    fn reference(&self) -> Value {
        json!([{"apiVersion": format!("{CLASSIC}/v1alpha1"), "kind": "ClusterServiceVersion", "name": self.name,
            "uid": self.uid, "controller": false, "blockOwnerDeletion": false}])
    }

    fn object(&self, api_version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": self.namespace}})
    }

    fn installed_csv(&self) -> Value {
        let mut csv = self.object(&format!("{CLASSIC}/v1alpha1"), "ClusterServiceVersion", &self.name);
        csv["metadata"]["annotations"] = json!({"olm.operatorGroup": "group"});
        csv["spec"] = self.csv["spec"].clone();
        csv["status"] = json!({"phase": "Succeeded", "reason": "InstallSucceeded"});
        csv
    }

    /// Objects of classic kinds, and those for the OperatorCondition.
    fn classic_objects(&self, installation: &Installation<'_>) -> Vec<Value> {
        let v1alpha1 = format!("{CLASSIC}/v1alpha1");
        let mut source = self.object(&v1alpha1, "CatalogSource", installation.source);
        source["metadata"]["namespace"] = json!("olm");
        source["spec"] = json!({"sourceType": "grpc", "image": format!("r.example/{}:v1", installation.source),
            "updateStrategy": {"registryPoll": {"interval": "10m30s"}}});
        let mut group = self.object(&format!("{CLASSIC}/v1"), "OperatorGroup", "group");
        group["spec"] = json!({});
        if !installation.targets.is_empty() {
            group["spec"]["targetNamespaces"] = json!(installation.targets);
        }
        let mut subscription = self.object(&v1alpha1, "Subscription", &self.package);
        subscription["spec"] = json!({"name": self.package, "channel": "stable", "source": installation.source,
            "sourceNamespace": "olm"});
        set(&mut subscription, "spec", &installation.subscription);
        subscription["status"] =
            json!({"installedCSV": self.name, "currentCSV": self.name, "state": "AtLatestKnown"});
        let mut plan = self.object(&v1alpha1, "InstallPlan", &format!("install-{}", self.package));
        plan["spec"] = json!({"clusterServiceVersionNames": [self.name]});
        plan["status"] = json!({"phase": "Complete"});
        let mut condition = self.object(&format!("{CLASSIC}/v2"), "OperatorCondition", &self.name);
        condition["metadata"]["ownerReferences"] = self.reference();
        condition["metadata"]["ownerReferences"][0]["controller"] = json!(true);
        let mut role = self.object(RBAC, "Role", &self.name);
        role["metadata"]["ownerReferences"] = json!([{"apiVersion": format!("{CLASSIC}/v2"),
            "kind": "OperatorCondition", "name": self.name, "uid": "0-0", "controller": true}]);
        let operator = json!({"apiVersion": format!("{CLASSIC}/v1"), "kind": "Operator",
            "metadata": {"name": format!("{}.{}", self.package, self.namespace)}});
        let mut objects = vec![source, group, subscription, plan, condition, role, operator];
        let others = installation.targets.iter().filter(|target| **target != self.namespace);
        objects.extend(others.flat_map(|target| self.copies(target)));
        objects
    }

    /// Copies of the ClusterServiceVersion and of a Role in a watched namespace.
    fn copies(&self, target: &str) -> [Value; 2] {
        let mut csv = self.object(&format!("{CLASSIC}/v1alpha1"), "ClusterServiceVersion", &self.name);
        csv["metadata"]["namespace"] = json!(target);
        csv["metadata"]["labels"] = json!({"olm.copiedFrom": self.namespace});
        let mut role = self.object(RBAC, "Role", &format!("{}-permissions", self.name));
        role["metadata"]["namespace"] = json!(target);
        role["metadata"]["labels"] = self.owner_labels();
        let copied = json!({"olm.owner.namespace": target, "olm.copiedFrom": self.namespace});
        set(&mut role["metadata"], "labels", &copied);
        [csv, role]
    }

    /// Object of the renderer as classic OLM makes it.
    fn as_classic(&self, object: Value, is_namespaced: bool) -> Value {
        let mut object = without_injection(object);
        let kind = object["kind"].as_str().unwrap().to_owned();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        if object["metadata"]["labels"].as_object().is_some_and(|labels| {
            labels.keys().any(|key| key.starts_with("rbac.authorization.k8s.io/aggregate-to-"))
        }) {
            return object;
        }
        // The renderer cuts the name of the ClusterServiceVersion.
        let is_generated = name.starts_with(self.name.get(..12).unwrap_or(&self.name)) && name.len() >= 60;
        if object["apiVersion"] == RBAC && is_generated {
            object["metadata"]["name"] = json!(format!("{name}-classic"));
            if let Some(role) = object["roleRef"]["name"].as_str().map(|role| format!("{role}-classic")) {
                object["roleRef"]["name"] = json!(role);
            }
        }
        if kind.ends_with("WebhookConfiguration") {
            object["metadata"]["name"] = json!(format!("{name}-x7f2p"));
            // The Service does not answer.
            for webhook in object["webhooks"].as_array_mut().unwrap() {
                webhook["namespaceSelector"] = json!({"matchLabels": {"no": "namespace"}});
                webhook["objectSelector"] = webhook["namespaceSelector"].clone();
            }
        }
        if is_namespaced {
            object["metadata"]["ownerReferences"] = self.reference();
        }
        if !is_namespaced || ["Deployment", "Role", "RoleBinding"].contains(&kind.as_str()) {
            set(&mut object["metadata"], "labels", &self.owner_labels());
        }
        if kind == "Deployment" {
            self.add_to_template(&mut object["spec"]["template"]);
        }
        object
    }

    /// Adds what classic OLM adds to a pod template.
    fn add_to_template(&self, template: &mut Value) {
        let annotations = json!({"olm.operatorGroup": "group", "olm.operatorNamespace": self.namespace,
            "operatorframework.io/properties": "{\"properties\":[]}"});
        set(&mut template["metadata"], "annotations", &annotations);
        let last_is_first = |owner: &mut Value, field: &str, key: &str, last: &str| {
            if let Some(list) = owner[field].as_array_mut() {
                list.sort_by_key(|item| item[key] == last);
            }
        };
        last_is_first(&mut template["spec"], "volumes", "name", "webhook-cert");
        for container in template["spec"]["containers"].as_array_mut().unwrap() {
            last_is_first(container, "volumeMounts", "name", "webhook-cert");
            if container["env"].is_null() {
                container["env"] = json!([]);
            }
            let variable = json!({"name": "OPERATOR_CONDITION_NAME", "value": self.name});
            container["env"].as_array_mut().unwrap().push(variable);
        }
    }

    /// Secret and permissions for a serving certificate.
    fn certificate_objects(&self, service: &str) -> Vec<Value> {
        let name = format!("{service}-cert");
        let binding = |kind: &str, metadata: Value, role_kind: &str, role: &str| {
            json!({"apiVersion": RBAC, "kind": kind, "metadata": metadata, "subjects": [],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role}})
        };
        let metadata =
            json!({"name": name, "namespace": self.namespace, "ownerReferences": self.reference()});
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata,
            "stringData": {"tls.crt": "x", "tls.key": "x", "olmCAKey": "x"}});
        secret["metadata"]["annotations"] = json!({"olmcahash": "0"});
        let reader = json!({"name": format!("{service}-auth-reader"), "namespace": "kube-system"});
        let delegator =
            json!({"name": format!("{service}-system:auth-delegator"), "labels": self.owner_labels()});
        vec![
            secret,
            json!({"apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": []}),
            binding("RoleBinding", metadata.clone(), "Role", &name),
            binding("RoleBinding", reader, "Role", "extension-apiserver-authentication-reader"),
            binding("ClusterRoleBinding", delegator, "ClusterRole", "system:auth-delegator"),
        ]
    }
}
