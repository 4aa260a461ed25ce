//! What the holder of a stolen token of each server can do with each install file, as the table in
//! `docs/tasks/rights.md` says.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use olm_control_plane::{ControlPlane, Options, pause};
use serde_json::{Value, json};

use crate::fixture::{apply, documents};

const FILES: [&[&str]; 8] = [
    &["install.yaml"],
    &["install-cert-manager.yaml"],
    &["experimental.yaml"],
    &["openshift.yaml"],
    &["hardened.yaml"],
    &["hardened.yaml", "hardened-api-services.yaml"],
    &["hardened.yaml", "hardened-escalate.yaml"],
    &["hardened.yaml", "hardened-impersonation.yaml"],
];
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const TOKEN: &str = "kubernetes.io/service-account-token";
const CRD: &str = "lamps.others.example";
const WEBHOOK: &str = "catalogd-mutating-webhook-configuration";

/// Request with a stolen token. Nothing is stored.
enum Attempt {
    List(Value),
    Create(Value),
    Patch(Value, Value),
    Delete(Value),
    /// Each of these: a verb, the group and the resource, and the namespace.
    Review(&'static [[&'static str; 4]]),
}

/// Resources with which a token gets other credentials or runs commands.
const CREDENTIALS: &[[&str; 4]] = &[
    ["create", "", "serviceaccounts/token", "apps"],
    ["create", "", "serviceaccounts/token", "kube-system"],
    ["create", "", "pods", "apps"],
    ["create", "", "pods/exec", "apps"],
    ["get", "", "pods/exec", "apps"],
    ["create", "", "pods/attach", "apps"],
    ["patch", "", "pods/ephemeralcontainers", "apps"],
    ["get", "", "nodes/proxy", ""],
    ["create", "", "nodes/proxy", ""],
    ["create", "certificates.k8s.io", "certificatesigningrequests", ""],
    ["update", "certificates.k8s.io", "certificatesigningrequests/approval", ""],
    ["approve", "certificates.k8s.io", "signers", ""],
];
/// Resources that limit other users or itself.
const LIMITS: &[[&str; 4]] = &[
    ["create", "", "namespaces", ""],
    ["patch", "", "namespaces", "apps"],
    ["patch", "", "namespaces", ""],
    ["delete", "admissionregistration.k8s.io", "validatingadmissionpolicies", ""],
    ["patch", "admissionregistration.k8s.io", "validatingadmissionpolicies", ""],
    ["delete", "admissionregistration.k8s.io", "validatingadmissionpolicybindings", ""],
    ["patch", "admissionregistration.k8s.io", "validatingadmissionpolicybindings", ""],
];

fn object(api_version: &str, kind: &str, namespace: &str, name: &str, more: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

fn workload(kind: &str, namespace: &str) -> Value {
    let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a",
        "securityContext": {"privileged": true}}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": pod});
    object("apps/v1", kind, namespace, "stolen", json!({"spec": spec}))
}

fn secret(namespace: &str, kind: &str) -> Value {
    let mut secret = object("v1", "Secret", namespace, "stolen", json!({"type": kind}));
    secret["metadata"]["annotations"] = json!({"kubernetes.io/service-account.name": "a"});
    secret
}

fn webhooks(group: &str, resource: &str) -> Value {
    let rule =
        json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["*"], "resources": [resource]});
    let owner = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": "a", "uid": "u"});
    let webhooks = json!([{"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [rule], "clientConfig": {"service": {"name": "a", "namespace": "apps"}}}]);
    let mut webhooks =
        object(ADMISSION, "MutatingWebhookConfiguration", "", "stolen", json!({"webhooks": webhooks}));
    webhooks["metadata"]["ownerReferences"] = json!([owner]);
    webhooks
}

/// CRD of another owner.
fn crd() -> Value {
    let versions = json!([{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}}}]);
    let names = json!({"kind": "Lamp", "plural": "lamps"});
    let spec = json!({"group": "others.example", "scope": "Cluster", "names": names, "versions": versions});
    object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", CRD, json!({"spec": spec}))
}

/// Attempts, by their text in the table. `system` is the namespace of operator-controller.
fn attempts(system: &str) -> Vec<(&'static str, Attempt)> {
    let catalog = object("olm.operatorframework.io/v1", "ClusterCatalog", "", "hub", json!({}));
    let image = json!({"spec": {"source": {"image": {"ref": "example.com/other:latest"}}}});
    let mut attempts = in_namespaces(system);
    attempts.extend(on_webhooks());
    attempts.extend(in_the_cluster());
    attempts.push(("change what a ClusterCatalog contains", Attempt::Patch(catalog, image)));
    attempts
}

/// Attempts on namespaced objects.
fn in_namespaces(system: &str) -> Vec<(&'static str, Attempt)> {
    use Attempt::{Create, List};
    let none = || json!({});
    vec![
        ("read all Secrets", List(object("v1", "Secret", "", "", none()))),
        ("create a token Secret in `kube-system`", Create(secret("kube-system", TOKEN))),
        ("create a token Secret in the namespace of an extension", Create(secret("apps", TOKEN))),
        ("create a privileged DaemonSet in `kube-system`", Create(workload("DaemonSet", "kube-system"))),
        (
            "create privileged Deployments in the namespace of an extension",
            Create(workload("Deployment", "apps")),
        ),
        ("create Deployments and Secrets in other namespaces", Create(workload("Deployment", "default"))),
        ("write the content of revisions", Create(secret(system, "olm.operatorframework.io/object-data"))),
        (
            "write other objects in the namespace of OLM",
            Create(object("v1", "ConfigMap", system, "stolen", none())),
        ),
    ]
}

/// Attempts on webhook configurations.
fn on_webhooks() -> Vec<(&'static str, Attempt)> {
    use Attempt::{Create, Patch};
    let scope = json!([{"name": "inject-metadata-name.olm.operatorframework.io", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://example.com"},
        "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]}]);
    let of_catalogd = object(ADMISSION, "MutatingWebhookConfiguration", "", WEBHOOK, json!({}));
    vec![
        ("create a webhook for `*/*`", Create(webhooks("*", "*/*"))),
        ("create a webhook for pods", Create(webhooks("", "pods"))),
        ("create a webhook for the APIs of OLM", Create(webhooks("olm.operatorframework.io", "*"))),
        ("create a webhook for the APIs of operators", Create(webhooks("example.com", "*"))),
        ("redirect the webhook of catalogd", Patch(of_catalogd, json!({"webhooks": scope}))),
    ]
}

/// Attempts on other cluster-scoped objects, and on what has no object.
fn in_the_cluster() -> Vec<(&'static str, Attempt)> {
    use Attempt::{Create, Delete, Patch, Review};
    let none = || json!({});
    let grant = |group: &str, resource: &str, verbs: &[&str]| {
        let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        Create(object(RBAC, "ClusterRole", "", "stolen", json!({"rules": [rule]})))
    };
    let bind = |role: &str| {
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
        Create(object(RBAC, "ClusterRoleBinding", "", "stolen", json!({ "roleRef": role })))
    };
    let role = |name: &str| object(RBAC, "ClusterRole", "", name, none());
    let conversion = json!({"strategy": "Webhook",
        "webhook": {"clientConfig": {"url": "https://example.com"}, "conversionReviewVersions": ["v1"]}});
    let crd = object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", CRD, none());
    let service = json!({"spec": {"group": "example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
        "service": {"name": "a", "namespace": "apps"}}});
    let service = object("apiregistration.k8s.io/v1", "APIService", "", "v1.example.com", service);
    let label = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    vec![
        (
            "change, redirect or delete CRDs of others",
            Patch(crd, json!({"spec": {"conversion": conversion}})),
        ),
        ("delete ClusterRole `view`", Delete(role("view"))),
        ("add the rules of `cluster-admin` to `view`", Patch(role("cluster-admin"), label)),
        ("grant reading of all Secrets", grant("", "secrets", &["get", "list"])),
        ("grant writing of all Secrets", grant("", "secrets", &["create", "patch"])),
        (
            "grant writing of webhooks",
            grant("admissionregistration.k8s.io", "validatingwebhookconfigurations", &["create", "patch"]),
        ),
        ("bind `cluster-admin`", bind("cluster-admin")),
        (
            "bind `operator-controller-content-namespaced` in other namespaces",
            bind("operator-controller-content-namespaced"),
        ),
        ("write APIServices", Create(service)),
        ("impersonate any service account", Review(&[["impersonate", "", "serviceaccounts", ""]])),
        ("create tokens, run commands in pods, reach kubelets or approve certificates", Review(CREDENTIALS)),
        ("change namespaces or admission policies", Review(LIMITS)),
    ]
}

struct Cluster {
    plane: ControlPlane,
    /// Namespaces of operator-controller and catalogd.
    systems: [String; 2],
}

/// A cluster with the rights and policies of these files, and namespace `apps` with an extension.
async fn start(files: &[&str]) -> Cluster {
    let options = Options { controllers: &["clusterrole-aggregation-controller"] };
    let plane = ControlPlane::start_with(options).await.unwrap();
    plane.apply_crds(&olm_api::crds::crds()).await.unwrap();
    plane.apply_crds(&[crd()]).await.unwrap();
    let client = plane.client();
    let image = json!({"spec": {"source": {"type": "Image", "image": {"ref": "example.com/hub:latest"}}}});
    apply(&client, &object("olm.operatorframework.io/v1", "ClusterCatalog", "", "hub", image)).await;
    let all: Vec<Value> = files.iter().flat_map(|file| documents(file)).collect();
    let namespaces = all.iter().filter_map(|one| one["metadata"]["namespace"].as_str());
    for name in namespaces.chain(["apps"]).collect::<BTreeSet<_>>() {
        apply(&client, &object("v1", "Namespace", "", name, json!({}))).await;
    }
    for mut one in all.iter().cloned() {
        let kind = one["kind"].as_str().unwrap().trim_start_matches("Cluster").to_owned();
        if kind == "MutatingWebhookConfiguration" {
            // No catalogd answers.
            one["webhooks"][0]["failurePolicy"] = json!("Ignore");
        }
        let is_policy = kind.starts_with("ValidatingAdmissionPolicy") || kind.ends_with("Configuration");
        let is_applied = ["Role", "RoleBinding", "ServiceAccount", "ConfigMap"].contains(&kind.as_str());
        if is_applied || is_policy {
            apply(&client, &one).await;
        }
    }
    let of = |server: &str| {
        let name = format!("{server}-controller-manager");
        let account =
            all.iter().find(|one| one["kind"] == "ServiceAccount" && one["metadata"]["name"] == *name);
        account.unwrap()["metadata"]["namespace"].as_str().unwrap().to_owned()
    };
    let systems = ["operator-controller", "catalogd"].map(of);
    let account = json!({"kind": "ServiceAccount", "name": "operator-controller-controller-manager", "namespace": systems[0]});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "operator-controller-content-namespaced"});
    let binding = json!({"roleRef": role, "subjects": [account]});
    apply(&client, &object(RBAC, "RoleBinding", "apps", "operator-controller-content", binding)).await;
    Cluster { plane, systems }
}

fn answer(is_permitted: bool) -> &'static str {
    if is_permitted { "yes" } else { "no" }
}

impl Attempt {
    /// `yes` if the API server permits it, else `no`, or `some` for a part.
    async fn succeeds(&self, client: &Client) -> &'static str {
        let api = |object: &Value| -> Api<DynamicObject> {
            let typed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
            let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(typed.types.unwrap()).unwrap());
            match typed.metadata.namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            }
        };
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        let parsed = |object: &Value| serde_json::from_value::<DynamicObject>(object.clone()).unwrap();
        let done = match self {
            Self::List(object) => api(object).list(&ListParams::default()).await.map(drop),
            Self::Create(object) => {
                let params = PostParams { dry_run: true, ..PostParams::default() };
                api(object).create(&params, &parsed(object)).await.map(drop)
            }
            Self::Patch(object, patch) => {
                let params = PatchParams { dry_run: true, ..PatchParams::default() };
                api(object).patch(&name(object), &params, &Patch::Merge(patch)).await.map(drop)
            }
            Self::Delete(object) => {
                let params = DeleteParams { dry_run: true, ..DeleteParams::default() };
                api(object).delete(&name(object), &params).await.map(drop)
            }
            Self::Review(all) => {
                let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
                let mut allowed = Vec::new();
                for [verb, group, path, namespace] in *all {
                    let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
                    let attributes = json!({"verb": verb, "group": group, "resource": resource,
                        "subresource": subresource, "namespace": namespace});
                    let review = serde_json::from_value(json!({"spec": {"resourceAttributes": attributes}}));
                    let review = reviews.create(&PostParams::default(), &review.unwrap()).await.unwrap();
                    allowed.push(review.status.unwrap().allowed);
                }
                let is_clear = allowed.iter().all(|one| *one == allowed[0]);
                return if is_clear { answer(allowed[0]) } else { "some" };
            }
        };
        match done {
            Ok(()) => answer(true),
            Err(kube::Error::Api(status)) if [403, 422].contains(&status.code) => answer(false),
            Err(error) => panic!("{error}"),
        }
    }
}

impl Cluster {
    /// `yes` or `no` for each attempt of a server.
    async fn measured(&self, server: usize) -> Vec<&'static str> {
        let name = ["operator-controller", "catalogd"][server];
        let user = format!("system:serviceaccount:{}:{name}-controller-manager", self.systems[server]);
        let client = self.plane.client_of(&user, &[]).await.unwrap();
        let mut column = Vec::new();
        for (_, attempt) in attempts(&self.systems[server]) {
            column.push(attempt.succeeds(&client).await);
        }
        column
    }
}

/// Rows of the table in the document, without its first line.
fn table() -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tasks/rights.md");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with("| a stolen token can")).skip(2);
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    lines.take_while(|line| line.starts_with('|')).map(cells).collect()
}

// docs/design/operations.md#hardened-rights
#[tokio::test(flavor = "multi_thread")]
async fn stolen_tokens_can_do_what_the_table_says() {
    let table = table();
    let texts: Vec<&str> = table.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(texts, attempts("").iter().map(|(text, _)| *text).collect::<Vec<_>>());
    for (position, files) in FILES.into_iter().enumerate() {
        let cluster = start(files).await;
        // Files with `cluster-admin` share the first column, and all files that of catalogd.
        for (server, column) in [(0, 1 + position.saturating_sub(3)), (1, 6)] {
            let expected: Vec<&str> = table.iter().map(|row| row[column].as_str()).collect();
            let mut found = Vec::new();
            let start = std::time::Instant::now();
            // Rights and policies become active with a delay.
            while found != expected && start.elapsed() < std::time::Duration::from_secs(20) {
                pause(start).await;
                found = cluster.measured(server).await;
            }
            let rows = texts.iter().zip(found.iter().zip(&expected));
            let wrong: Vec<_> = rows.filter(|(_, (found, expected))| found != expected).collect();
            assert!(wrong.is_empty(), "{files:?}, server {server}: found, expected: {wrong:#?}");
        }
    }
}
