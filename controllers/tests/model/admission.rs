//! Admission policies of the adversary: one that denies operator-controller requests, and one that injects fields.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use olm_servers::{ADMINISTRATORS, PROCESS_USER, ServerFixture};
use serde_json::{Value, json};

use crate::intent::Denied;
use crate::snapshot::difference;
use crate::universe::CONTAINER;

/// Message of a denial.
pub(crate) const DENIAL: &str = "denied by the model";
/// Name of the policies, and of the namespace with a ConfigMap for each extension whose requests are denied.
const NAME: &str = "model-denials";
const INJECTOR: &str = "model-injector";
/// Time limit for a policy to take effect.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Policies of the adversary.
pub(crate) struct Admission {
    maps: Api<ConfigMap>,
    /// The same ConfigMaps for a client with the user of operator-controller.
    maps_of_process: Api<ConfigMap>,
}

impl Admission {
    /// Creates the policies. They deny nothing yet.
    pub(crate) async fn start(servers: &ServerFixture) -> Self {
        servers.create_namespace(NAME).await.unwrap();
        for object in [denials(), injector()].into_iter().flatten() {
            create(servers.client(), &object).await;
        }
        until_injected(servers).await;
        let of_process = servers.plane.client_of(PROCESS_USER, &[ADMINISTRATORS]).await.unwrap();
        Self {
            maps: Api::namespaced(servers.client(), NAME),
            maps_of_process: Api::namespaced(of_process, NAME),
        }
    }

    /// Sets the requests about objects of an extension that are denied, and waits until it takes effect.
    pub(crate) async fn deny(&self, extension: &str, denied: Option<Denied>) {
        let operations = match denied {
            None => "",
            Some(Denied::Writes) => "CREATE,UPDATE",
            Some(Denied::Deletions) => "DELETE",
        };
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": extension},
            "data": {"operations": operations}});
        let params = PatchParams::apply("model").force();
        self.maps.patch(extension, &params, &Patch::Apply(map)).await.unwrap();
        self.until_denied(extension, denied).await;
    }

    /// Waits until exactly these requests are denied.
    pub(crate) async fn until_denied(&self, extension: &str, denied: Option<Denied>) {
        let deadline = Instant::now() + PATIENCE;
        let update = PatchParams { dry_run: true, ..PatchParams::default() };
        let patch = Patch::Merge(json!({"metadata": {"labels": {"probe": "yes"}}}));
        let delete = DeleteParams { dry_run: true, ..DeleteParams::default() };
        if self.maps.get_opt(extension).await.unwrap().is_none() {
            return;
        }
        // The ConfigMap itself has the name of the extension, so that the policy applies to it.
        while self.maps_of_process.patch(extension, &update, &patch).await.is_err()
            != (denied == Some(Denied::Writes))
            || self.maps_of_process.delete(extension, &delete).await.is_err()
                != (denied == Some(Denied::Deletions))
        {
            assert!(Instant::now() < deadline, "{extension}: {denied:?} takes no effect");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Waits until a Deployment of an extension gets the injected fields.
async fn until_injected(servers: &ServerFixture) {
    let namespace = format!("{}-injector", crate::PREFIX);
    servers.create_namespace(&namespace).await.unwrap();
    let labels = json!({"app": "a"});
    let deployment = json!({"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": labels}, "template": {
        "metadata": {"labels": labels}, "spec": {"containers": [{"name": CONTAINER, "image": "a"}]}}}});
    let deployment: Deployment = serde_json::from_value(deployment).unwrap();
    let (api, deadline) = (Api::namespaced(servers.client(), &namespace), Instant::now() + PATIENCE);
    let trial = PostParams { dry_run: true, ..PostParams::default() };
    loop {
        let created = api.create(&trial, &deployment).await.unwrap();
        let Some(lacks) = difference(&injected(), &serde_json::to_value(created).unwrap(), "") else {
            return;
        };
        assert!(Instant::now() < deadline, "nothing is injected: {lacks}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn create(client: Client, object: &Value) {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", object["kind"].as_str().unwrap());
    let plural = match kind.kind.strip_suffix("Policy") {
        Some(policy) => format!("{policy}Policies").to_lowercase(),
        None => format!("{}s", kind.kind).to_lowercase(),
    };
    let api: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk_with_plural(&kind, &plural));
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Policy that denies operator-controller the operations in the ConfigMap of the extension, on objects in its namespace
/// or with its name in theirs.
fn denials() -> [Value; 2] {
    let groups = ["", "apps", "rbac.authorization.k8s.io", "scheduling.k8s.io", "apiextensions.k8s.io"];
    let resources = [
        "configmaps",
        "services",
        "serviceaccounts",
        "deployments",
        "roles",
        "rolebindings",
        "clusterroles",
        "clusterrolebindings",
        "priorityclasses",
        "customresourcedefinitions",
    ];
    let is_of_process = format!("request.userInfo.username == '{PROCESS_USER}'");
    let is_of_other = "!request.name.contains(params.metadata.name) && \
                       !(has(request.namespace) && request.namespace == params.metadata.name)";
    let is_allowed = format!("{is_of_other} || !params.data.operations.contains(request.operation)");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME}, "spec": {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": [{"apiGroups": groups, "apiVersions": ["*"],
                "operations": ["CREATE", "UPDATE", "DELETE"], "resources": resources}]},
            "matchConditions": [{"name": "process", "expression": is_of_process}],
            "validations": [{"expression": is_allowed, "message": DENIAL}]}});
    let parameters = json!({"namespace": NAME, "selector": {}, "parameterNotFoundAction": "Allow"});
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {"policyName": NAME, "paramRef": parameters, "validationActions": ["Deny"]}});
    [policy, binding]
}

/// Fields of a Deployment that the policy injects.
pub(crate) fn injected() -> Value {
    json!({"spec": {"template": {"metadata": {"annotations": {"model.test/injected": "yes"}},
        "spec": {"containers": [{"name": CONTAINER, "env": [{"name": "INJECTED", "value": "yes"}]}]}}}})
}

/// Policy that injects an annotation and a variable into each Deployment of an extension.
fn injector() -> [Value; 2] {
    let is_ours = format!(
        "request.namespace.startsWith('{}') && \
         object.spec.template.spec.containers.exists(container, container.name == '{CONTAINER}')",
        crate::PREFIX
    );
    let template = "Object.spec.template";
    let injected = format!(
        "Object{{spec: Object.spec{{template: {template}{{\
            metadata: {template}.metadata{{annotations: {{'model.test/injected': 'yes'}}}}, \
            spec: {template}.spec{{containers: [{template}.spec.containers{{name: '{CONTAINER}', \
                env: [{template}.spec.containers.env{{name: 'INJECTED', value: 'yes'}}]}}]}}}}}}}}"
    );
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": INJECTOR}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"], "resources": ["deployments"]}]},
            "matchConditions": [{"name": "model", "expression": is_ours}],
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": injected}}]}});
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": INJECTOR}, "spec": {"policyName": INJECTOR}});
    [policy, binding]
}
