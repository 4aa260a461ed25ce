//! Plan of a package, for tests.

use olm_api::annotations;
use olm_cli_core::object_access::ObjectId;
use serde_json::{Value, json};

use super::state::ClassicObject;
use crate::plan::model::{PackagePlan, Reasoned};

/// Object with a UID that consists of its kind and name.
pub(crate) fn id(api_version: &str, kind: &str, namespace: &str, name: &str) -> ObjectId {
    ObjectId {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: format!("{kind}-{name}"),
    }
}

/// Object of classic OLM that is as it should be.
pub(crate) fn classic(id: &ObjectId, phase: &str) -> ClassicObject {
    ClassicObject {
        id: id.clone(),
        phase: phase.to_owned(),
        is_deleting: false,
        is_held: false,
        has_conversion: false,
        is_paused: false,
        finalizers: Vec::new(),
    }
}

/// ClusterExtension `lamp`.
fn extension(annotations: Value, version: Option<&str>) -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": "lamp", "annotations": annotations},
        "spec": {"namespace": "ns", "source": {"sourceType": "Catalog",
            "catalog": {"packageName": "lamp", "version": version}}},
    })
}

/// Plan of the package `lamp` in the namespace `ns`.
pub(crate) fn plan() -> PackagePlan {
    PackagePlan {
        package: "lamp".to_owned(),
        namespace: "ns".to_owned(),
        subscription: "lamp".to_owned(),
        csv: "lamp.v1.0.0".to_owned(),
        version: "1.0.0".to_owned(),
        channel: "stable".to_owned(),
        catalogs: Vec::new(),
        extension: extension(json!({ annotations::EXT_ADOPT: "sha256:00" }), Some("1.0.0")),
        opened: extension(json!({}), None),
        grants: Vec::new(),
        adopted: vec![id("apps/v1", "Deployment", "ns", "lamp"), id("v1", "ServiceAccount", "ns", "lamp")],
        created: Vec::new(),
        removed: vec![Reasoned {
            object: id("rbac.authorization.k8s.io/v1", "ClusterRole", "", "lamp.v1.0.0-abc"),
            reason: "made by classic OLM".to_owned(),
        }],
        left: Vec::new(),
        restarts: Vec::new(),
        differences: Vec::new(),
        accepted: Vec::new(),
        after: Vec::new(),
        notes: Vec::new(),
    }
}
