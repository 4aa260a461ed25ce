//! Tests of the CRDs on a real API server: accepted and rejected objects, error messages and defaults.

// Tests and their helpers fail by panicking.
#![allow(clippy::unwrap_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod examples;

use http::{Method, Request};
use kube::Client;
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, ClusterUpgradeStatus, crds};
use olm_control_plane::ControlPlane;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// Control plane of all tests of this program, whose objects have different names.
static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

/// Sends raw JSON, so that no client type changes an object.
struct Server(Client);

impl Server {
    async fn start() -> Self {
        let plane = PLANE.get_or_init(async || {
            let plane = ControlPlane::start().await.unwrap();
            plane.apply_crds(&crds::crds()).await.unwrap();
            plane
        });
        // The client of the control plane stops with the runtime of the first test.
        Self(plane.await.client_of("tester", &["system:masters"]).await.unwrap())
    }

    /// Creates the objects of `valid.yaml`, whose names get this prefix.
    async fn create_valid(&self, prefix: &str) -> Vec<Value> {
        let mut objects = examples::documents("valid.yaml");
        for object in &mut objects {
            object["metadata"]["name"] =
                json!(prefixed(prefix, object["metadata"]["name"].as_str().unwrap()));
            self.create(object).await.unwrap_or_else(|message| panic!("{message}: {object}"));
        }
        objects
    }

    /// Returns the response, or the message of a 422 rejection. Panics on any other error.
    async fn send(&self, request: http::request::Builder, body: &Value) -> Result<Value, String> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        match self.0.request(request.body(body).unwrap()).await {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) if status.code == 422 => Err(status.message.clone()),
            Err(error) => panic!("neither accepted nor rejected: {error}"),
        }
    }

    async fn create(&self, object: &Value) -> Result<Value, String> {
        self.post(object, "fieldValidation=Strict").await
    }

    async fn dry_run(&self, object: &Value) -> Result<Value, String> {
        self.post(object, "fieldValidation=Strict&dryRun=All").await
    }

    async fn post(&self, object: &Value, query: &str) -> Result<Value, String> {
        let uri = format!("{}?{query}", collection(object["kind"].as_str().unwrap()));
        let request = Request::builder().method(Method::POST).uri(uri);
        self.send(request.header("content-type", "application/json"), object).await
    }

    async fn get(&self, kind: &str, name: &str) -> Value {
        let request = Request::get(format!("{}/{name}", collection(kind)));
        self.send(request, &Value::Null).await.unwrap()
    }

    async fn patch(&self, kind: &str, name: &str, subresource: &str, patch: &Value) -> Result<Value, String> {
        let request =
            Request::patch(format!("{}/{name}{subresource}?fieldValidation=Strict", collection(kind)));
        self.send(request.header("content-type", "application/merge-patch+json"), patch).await
    }
}

fn prefixed(prefix: &str, name: &str) -> String {
    format!("{prefix}-{name}")
}

fn collection(kind: &str) -> &'static str {
    match kind {
        "ClusterCatalog" => "/apis/olm.operatorframework.io/v1/clustercatalogs",
        "ClusterExtension" => "/apis/olm.operatorframework.io/v1/clusterextensions",
        "ClusterObjectSet" => "/apis/olm.operatorframework.io/v1/clusterobjectsets",
        "ClusterUpgradeStatus" => "/apis/ext.olm.operatorframework.io/v1alpha1/clusterupgradestatuses",
        "ExtensionPlan" => "/apis/ext.olm.operatorframework.io/v1alpha1/extensionplans",
        "CustomResourceDefinition" => "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "Secret" => "/api/v1/namespaces/default/secrets",
        other => panic!("unexpected kind {other}"),
    }
}

/// Text of Kubernetes 1.30 for the text `fragment` of newer versions.
fn in_oldest(fragment: &str) -> String {
    match fragment
        .strip_prefix("Too long: may not be more than ")
        .and_then(|rest| rest.strip_suffix(" bytes"))
    {
        Some(limit) => format!("Too long: may not be longer than {limit}"),
        None => fragment.replace("Duplicate value: {", "Duplicate value: map[string]interface {}{"),
    }
}

fn assert_rejected(result: Result<Value, String>, fragment: &str, object: &Value) {
    match result {
        Ok(_) => panic!("accepted, expected `{fragment}`: {object}"),
        Err(message) => {
            let is_expected = message.contains(fragment) || message.contains(&in_oldest(fragment));
            assert!(is_expected, "expected `{fragment}`, got `{message}`: {object}")
        }
    }
}

#[derive(Deserialize)]
struct Invalid {
    expect: String,
    object: Value,
}

// Case api-6
#[tokio::test]
async fn invalid_objects_are_rejected() {
    let server = Server::start().await;
    for Invalid { expect, object } in examples::document::<Vec<Invalid>>("invalid.yaml") {
        assert_rejected(server.create(&object).await, &expect, &object);
    }
}

// Case api-5, without the warning of the installed admission policy
#[tokio::test]
async fn valid_objects_are_accepted() {
    let server = Server::start().await;
    server.create_valid("accepted").await;
}

// Cases api-3, api-4
#[tokio::test]
async fn defaults_are_filled_in() {
    let server = Server::start().await;
    server.create_valid("defaulted").await;
    let extension = server.get("ClusterExtension", "defaulted-lantern").await;
    let expected = json!({
        "namespace": "lantern-system",
        "source": {
            "sourceType": "Catalog",
            "catalog": {"packageName": "lantern-operator", "upgradeConstraintPolicy": "CatalogProvided"},
        },
    });
    assert_eq!(extension["spec"], expected);

    let catalog = server.get("ClusterCatalog", "defaulted-harbor-pinned").await;
    assert_eq!(catalog["spec"]["priority"], json!(0));
    assert_eq!(catalog["spec"]["availabilityMode"], json!("Available"));
    assert_eq!(
        server.get("ClusterCatalog", "defaulted-harbor-off").await["spec"]["availabilityMode"],
        json!("Unavailable")
    );
}

// Case api-58
#[tokio::test]
async fn stored_objects_survive_a_round_trip() {
    fn round_trip<K: DeserializeOwned + Serialize>(stored: &Value) -> Value {
        serde_json::to_value(serde_json::from_value::<K>(stored.clone()).unwrap()).unwrap()
    }
    let server = Server::start().await;
    for object in server.create_valid("stored").await {
        let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let stored = server.get(kind, name).await;
        let written = match kind {
            "ClusterCatalog" => round_trip::<ClusterCatalog>(&stored),
            "ClusterExtension" => round_trip::<ClusterExtension>(&stored),
            "ClusterObjectSet" => round_trip::<ClusterObjectSet>(&stored),
            _ => continue,
        };
        assert_eq!(written, stored);
    }
}

// Case api-2
#[tokio::test]
async fn columns_are_printed() {
    let server = Server::start().await;
    let tables: [(&str, &[&str]); 5] = [
        ("ClusterCatalog", &["Name", "LastUnpacked", "Serving", "Age", "Ready"]),
        (
            "ClusterExtension",
            &[
                "Name",
                "Installed Bundle",
                "Version",
                "Installed",
                "Progressing",
                "Age",
                "Available Version",
                "Package",
                "Ready",
            ],
        ),
        ("ClusterObjectSet", &["Name", "Available", "Progressing", "Age", "Ready"]),
        ("ClusterUpgradeStatus", &["Name", "Upgradeable", "Reason", "Current", "Next", "Blocking", "Age"]),
        ("ExtensionPlan", &["Name", "Extension", "Version", "Phase", "Age", "Digest"]),
    ];
    for (kind, expected) in tables {
        let request =
            Request::get(collection(kind)).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
        let table = server.send(request, &Value::Null).await.unwrap();
        let columns: Vec<&str> = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|column| column["name"].as_str())
            .collect();
        assert_eq!(columns, expected, "{kind}");
        let is_hidden = |column: &&Value| column["name"] == "Ready" && column["priority"] != 1;
        assert!(!table["columnDefinitions"].as_array().unwrap().iter().any(|column| is_hidden(&column)));
    }
}

#[derive(Deserialize)]
struct Update {
    kind: String,
    name: String,
    subresource: Option<String>,
    patch: Value,
    expect: Option<String>,
}

// Case api-7
#[tokio::test]
async fn updates_are_checked() {
    let server = Server::start().await;
    server.create_valid("updated").await;
    for update in examples::document::<Vec<Update>>("updates.yaml") {
        let name = prefixed("updated", &update.name);
        let subresource = update.subresource.map(|name| format!("/{name}")).unwrap_or_default();
        let result = server.patch(&update.kind, &name, &subresource, &update.patch).await;
        match update.expect {
            Some(fragment) => assert_rejected(result, &fragment, &update.patch),
            None => {
                drop(result.unwrap_or_else(|message| panic!("{message}: {} {}", update.name, update.patch)))
            }
        }
    }
}

#[tokio::test]
async fn long_messages_are_rejected() {
    let server = Server::start().await;
    let status = |message: String| {
        json!({"status": {"conditions": [{
            "type": "Progressing",
            "status": "True",
            "reason": "Retrying",
            "message": message,
            "lastTransitionTime": "2024-05-06T07:08:09Z",
        }]}})
    };
    // The API server counts characters, although its message says bytes.
    let longest = status("\u{e9}".repeat(32_768));
    server.create_valid("long").await;
    server.patch("ClusterExtension", "long-lantern", "/status", &longest).await.unwrap();
    let longer = status("x".repeat(32_769));
    let result = server.patch("ClusterExtension", "long-lantern", "/status", &longer).await;
    assert_rejected(
        result,
        "Too long: may not be more than 32768 bytes",
        &json!("a message of 32769 characters"),
    );
}

fn extension_of(catalog: Value) -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterExtension",
        "metadata": {"name": "tried"},
        "spec": {"namespace": "n", "source": {"sourceType": "Catalog", "catalog": catalog}},
    })
}

#[derive(Deserialize)]
struct Versions {
    accepted: Vec<String>,
    rejected: Vec<String>,
}

// Case api-8
#[tokio::test]
async fn version_expressions_are_checked() {
    let server = Server::start().await;
    let versions: Versions = examples::document("versions.yaml");
    for version in versions.accepted {
        let object = extension_of(json!({"packageName": "p", "version": version}));
        server.dry_run(&object).await.unwrap_or_else(|message| panic!("{version:?}: {message}"));
    }
    for version in versions.rejected {
        let object = extension_of(json!({"packageName": "p", "version": version}));
        assert_rejected(server.dry_run(&object).await, "invalid version expression", &json!(version));
    }
}

fn catalog(image: Value) -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterCatalog",
        "metadata": {"name": "tried"},
        "spec": {"source": {"type": "Image", "image": image}},
    })
}

fn object_set(spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterObjectSet",
        "metadata": {"name": "tried"},
        "spec": {"lifecycleState": "Archived", "revision": 1, "collisionProtection": "Prevent"},
    });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object
}

// Cases api-9, api-10, and the limits of fields
#[tokio::test]
async fn limits_are_exact() {
    let server = Server::start().await;
    let package = |length: usize| extension_of(json!({"packageName": "a".repeat(length)}));
    let channels = |count: usize| extension_of(json!({"packageName": "p", "channels": vec!["c"; count]}));
    let version = |length: usize| extension_of(json!({"packageName": "p", "version": "1".repeat(length)}));
    let reference = |length: usize| {
        let prefix = "r.example/";
        catalog(json!({"ref": format!("{prefix}{}:v1", "a".repeat(length - prefix.len() - 3))}))
    };
    let tag = |length: usize| catalog(json!({"ref": format!("r.example/a:{}", "t".repeat(length))}));
    let phases = |count: usize| {
        let phases: Vec<Value> = (0..count).map(|i| json!({"name": i.to_string(), "objects": []})).collect();
        object_set(json!({"phases": phases}))
    };
    let objects = |count: usize| {
        let objects = vec![json!({"ref": {"name": "s", "key": "k"}}); count];
        object_set(json!({"phases": [{"name": "p", "objects": objects}]}))
    };
    let probes = |count: usize| {
        let probe = json!({
            "selector": {"type": "GroupKind", "groupKind": {"group": "", "kind": "Pod"}},
            "assertions": [{"type": "ConditionEqual", "conditionEqual": {"type": "Ready", "status": "True"}}],
        });
        object_set(json!({"progressionProbes": vec![probe; count]}))
    };
    let deadline = |minutes: usize| object_set(json!({"progressDeadlineMinutes": minutes}));

    let rows = [
        ("packageName", package(253), package(254), "Too long: may not be more than 253 bytes"),
        ("channels", channels(256), channels(257), "Too many: 257: must have at most 256 items"),
        ("version", version(64), version(65), "Too long: may not be more than 64 bytes"),
        ("ref", reference(1000), reference(1001), "Too long: may not be more than 1000 bytes"),
        ("tag", tag(127), tag(128), "the tag must not be more than 127 characters"),
        ("phases", phases(20), phases(21), "Too many: 21: must have at most 20 items"),
        ("objects", objects(50), objects(51), "Too many: 51: must have at most 50 items"),
        ("probes", probes(20), probes(21), "Too many: 21: must have at most 20 items"),
        ("deadline", deadline(720), deadline(721), "should be less than or equal to 720"),
    ];
    for (name, accepted, rejected, fragment) in rows {
        server.dry_run(&accepted).await.unwrap_or_else(|message| panic!("{name}: {message}"));
        assert_rejected(server.dry_run(&rejected).await, fragment, &json!(name));
    }
    let empty = probes(0);
    assert_rejected(server.dry_run(&empty).await, "should have at least 1 items", &empty);
}

// docs/design/api.md#crd-envelope: only a catalog requires a spec.
#[tokio::test]
async fn a_spec_is_optional() {
    let server = Server::start().await;
    for kind in ["ClusterExtension", "ClusterObjectSet"] {
        let object =
            json!({"apiVersion": "olm.operatorframework.io/v1", "kind": kind, "metadata": {"name": "bare"}});
        server.create(&object).await.unwrap();
    }
    let catalog = json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterCatalog",
        "metadata": {"name": "bare"},
    });
    assert_rejected(server.create(&catalog).await, "spec: Required value", &catalog);
}

// docs/design/operations.md#clusterupgradestatus
#[tokio::test]
async fn upgrade_status_is_a_singleton() {
    let server = Server::start().await;
    let object: Value = examples::document("upgrade-status.yaml");
    server.create(&object).await.unwrap();
    let status = json!({"status": object["status"]});
    let stored = server.patch("ClusterUpgradeStatus", "cluster", "/status", &status).await.unwrap();
    assert_eq!(stored["status"], object["status"]);
    let typed: ClusterUpgradeStatus = serde_json::from_value(stored.clone()).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), stored);

    let mut other = object;
    other["metadata"]["name"] = json!("other");
    let fragment = "ClusterUpgradeStatus is a singleton, metadata.name must be 'cluster'";
    assert_rejected(server.create(&other).await, fragment, &other);
}

// docs/design/approvals.md#plan-objects
#[tokio::test]
async fn plan_is_immutable_except_for_its_approval() {
    let server = Server::start().await;
    let object: Value = examples::document("extension-plan.yaml");
    let (kind, name) = ("ExtensionPlan", object["metadata"]["name"].as_str().unwrap());
    server.create(&object).await.unwrap();
    for (patch, fragment) in [
        (json!({"spec": {"plan": {"digest": format!("sha256:{}", "f".repeat(64))}}}), "plan is immutable"),
        (json!({"spec": {"plan": {"truncated": null}}}), "plan is immutable"),
        (json!({"spec": {"plan": {"objects": []}}}), "plan is immutable"),
        (json!({"spec": {"plan": null}}), "spec.plan: Required value"),
        (json!({"spec": null}), "spec: Required value"),
    ] {
        assert_rejected(server.patch(kind, name, "", &patch).await, fragment, &patch);
    }
    let stored = server.patch(kind, name, "", &json!({"spec": {"approved": false}})).await.unwrap();
    assert_eq!(
        (&stored["spec"]["approved"], &stored["spec"]["plan"]),
        (&json!(false), &object["spec"]["plan"])
    );
    // A main write does not change the status, and a status write not the approval.
    assert_eq!(stored["status"], Value::Null);
    let patch = json!({"spec": {"approved": true}, "status": {"phase": "Pending"}});
    let stored = server.patch(kind, name, "/status", &patch).await.unwrap();
    assert_eq!((&stored["spec"]["approved"], &stored["status"]["phase"]), (&json!(false), &json!("Pending")));
    let patch = json!({"status": {"phase": "Lost"}});
    assert_rejected(server.patch(kind, name, "/status", &patch).await, "Unsupported value: \"Lost\"", &patch);
    let mut wrong = object.clone();
    wrong["metadata"]["name"] = json!("wrong");
    wrong["spec"]["plan"]["digest"] = json!("sha256:0");
    assert_rejected(server.create(&wrong).await, "spec.plan.digest", &wrong);
}

// Case api-1. The e2e suite patches the minimum of progressDeadlineMinutes at a fixed path
// (docs/design/api.md#reference-e2e-suite).
#[tokio::test]
async fn crds_have_the_documented_envelope() {
    let server = Server::start().await;
    let crd = server.get("CustomResourceDefinition", "clusterextensions.olm.operatorframework.io").await;
    let versions = crd["spec"]["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 1);
    assert_eq!(versions[0]["name"], json!("v1"));
    assert_eq!(versions[0]["subresources"], json!({"status": {}}));
    let minimum = "/schema/openAPIV3Schema/properties/spec/properties/progressDeadlineMinutes/minimum";
    assert_eq!(versions[0].pointer(minimum), Some(&json!(10)));
    assert_eq!(
        crd["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|c| c["type"] == "NonStructuralSchema")
            .count(),
        0
    );
}
