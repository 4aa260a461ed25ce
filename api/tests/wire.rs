//! Tests that the types serialize what they deserialized.

// Tests and their helpers fail by panicking.
#![allow(clippy::unwrap_used, clippy::panic)]

mod examples;

use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, ClusterUpgradeStatus, ExtensionPlan};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn round_trip<K: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let typed: K = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{object}: {error}"));
    serde_json::to_value(typed).unwrap()
}

fn round_trip_by_kind(object: &Value) -> Option<Value> {
    match object["kind"].as_str()? {
        "ClusterCatalog" => Some(round_trip::<ClusterCatalog>(object)),
        "ClusterExtension" => Some(round_trip::<ClusterExtension>(object)),
        "ClusterObjectSet" => Some(round_trip::<ClusterObjectSet>(object)),
        "ClusterUpgradeStatus" => Some(round_trip::<ClusterUpgradeStatus>(object)),
        "ExtensionPlan" => Some(round_trip::<ExtensionPlan>(object)),
        _ => None,
    }
}

// Case api-58
#[test]
fn examples_round_trip_unchanged() {
    let mut objects = examples::documents("valid.yaml");
    objects.extend(examples::documents("upgrade-status.yaml"));
    objects.extend(examples::documents("extension-plan.yaml"));
    let mut count = 0;
    for object in &objects {
        if let Some(written) = round_trip_by_kind(object) {
            assert_eq!(&written, object);
            count += 1;
        }
    }
    assert_eq!(count, 14);
}

fn extension(spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterExtension",
        "metadata": {"name": "lantern", "annotations": {"example.org/unknown": "kept"}},
        "spec": spec,
        "status": status,
    })
}

// Case api-58
#[test]
fn statuses_round_trip_unchanged() {
    let condition = json!({
        "type": "Progressing",
        "status": "True",
        "reason": "RollingOut",
        "message": "",
        "observedGeneration": 2,
        "lastTransitionTime": "2024-05-06T07:08:09Z",
    });
    let spec = json!({
        "namespace": "lantern-system",
        "source": {"sourceType": "Catalog", "catalog": {"packageName": "lantern-operator", "selector": {}}},
        "config": {"configType": "Inline", "inline": {"ratio": 0.1, "big": 18_446_744_073_709_551_615_u64, "off": null}},
    });
    let object = extension(
        spec,
        json!({
            "conditions": [condition],
            "install": {"bundle": {"name": "lantern.v1", "version": "1.0.0", "release": ""}},
            "activeRevisions": [{"name": "lantern-1"}, {"name": "lantern-2", "conditions": [condition]}],
        }),
    );
    assert_eq!(round_trip::<ClusterExtension>(&object), object);

    let catalog = json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterCatalog",
        "metadata": {"name": "harbor"},
        "spec": {
            "availabilityMode": "Available",
            "priority": 0,
            "source": {"type": "Image", "image": {"ref": "registry.example.org/harbor/catalog:v3"}},
        },
        "status": {
            "conditions": [condition],
            "resolvedSource": {"type": "Image", "image": {"ref": "registry.example.org/harbor/catalog@sha256:00"}},
            "urls": {"base": "https://catalogd-service.olmv1-system.svc/catalogs/harbor"},
            "lastUnpacked": "2024-05-06T07:08:09Z",
        },
    });
    assert_eq!(round_trip::<ClusterCatalog>(&catalog), catalog);
}

#[test]
fn unknown_enum_values_are_kept() {
    let spec = json!({
        "namespace": "lantern-system",
        "source": {
            "sourceType": "Bundle",
            "catalog": {"packageName": "p", "upgradeConstraintPolicy": "Sometimes"},
        },
        "install": {"preflight": {"crdUpgradeSafety": {"enforcement": "Warn"}}},
    });
    let object = extension(spec, json!({}));
    assert_eq!(round_trip::<ClusterExtension>(&object), object);
}

// Case api-53
#[test]
fn objects_without_spec_are_deserialized() {
    for kind in ["ClusterExtension", "ClusterObjectSet"] {
        let object = json!({
            "apiVersion": "olm.operatorframework.io/v1",
            "kind": kind,
            "metadata": {"name": "bare"},
        });
        assert_eq!(round_trip_by_kind(&object).as_ref(), Some(&object));
    }
}

#[test]
fn empty_values_are_omitted() {
    let object = json!({
        "metadata": {"name": "lantern"},
        "spec": {
            "namespace": "n",
            "source": {"sourceType": "Catalog", "catalog": {"packageName": "p", "channels": []}},
        },
        "status": {"conditions": [], "activeRevisions": []},
    });
    let written = round_trip::<ClusterExtension>(&object);
    let source = json!({"sourceType": "Catalog", "catalog": {"packageName": "p"}});
    assert_eq!(written["spec"], json!({"namespace": "n", "source": source}));
    assert_eq!(written["status"], json!({}));
}
