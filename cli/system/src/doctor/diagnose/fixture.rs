//! A healthy cluster, and the findings after a change of it.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::diagnose;
use crate::doctor::observed::Observed;

pub(super) const NAMESPACE: &str = "olmv1-system";

pub(super) fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

pub(super) fn own(name: &str, rest: Value) -> Value {
    let mut object = rest;
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!(NAMESPACE);
    object
}

/// Cluster with one catalog and one extension, in which everything works.
pub(super) fn healthy() -> Observed {
    let mut observed =
        Observed { namespace: NAMESPACE.to_owned(), kubernetes: "v1.36.0".to_owned(), ..Observed::default() };
    let namespace = json!({"metadata": {"name": NAMESPACE, "labels": {"app.kubernetes.io/part-of": "olm"}}});
    observed.add("Namespace", namespace);
    for (server, lease) in
        [("catalogd", "catalogd-operator-lock"), ("operator-controller", "9c4404e7.operatorframework.io")]
    {
        let manager = format!("{server}-controller-manager");
        let labels = json!({"control-plane": manager});
        let container = json!({"image": format!("registry.example.com/{server}:v1.2.3@sha256:ab"), "args": ["--leader-elect"]});
        let deployment = json!({"spec": {"template": {"spec": {"containers": [container], "serviceAccountName": manager}}}});
        observed.add("Deployment", own(&manager, deployment));
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "manager", "restartCount": 0, "state": {"running": {}}}]});
        observed.add(
            "Pod",
            own(&format!("{manager}-1"), json!({"metadata": {"labels": labels}, "status": status})),
        );
        let spec = json!({"holderIdentity": "a", "renewTime": "2026-01-01T11:59:50.000000Z", "leaseDurationSeconds": 30});
        observed.add("Lease", own(lease, json!({"spec": spec})));
        let service = format!("{server}-service");
        observed.add("Service", own(&service, json!({"spec": {"selector": {"a": "b"}}})));
        let slice = json!({"metadata": {"labels": {"kubernetes.io/service-name": service}},
            "endpoints": [{"conditions": {"ready": true}}]});
        observed.add("EndpointSlice", own(&service, slice));
        let spec = json!({"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress", "Egress"], "egress": [{}],
            "ingress": [{"ports": [{"port": 8443}, {"port": 9443}]}]});
        observed.add("NetworkPolicy", own(&manager, json!({"spec": spec})));
    }
    let deny = json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}});
    observed.add("NetworkPolicy", own("default-deny-all-traffic", deny));
    observed.add(
        "ClusterCatalog",
        json!({"metadata": {"name": "hub", "creationTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    set_condition(&mut observed, "ClusterCatalog", "Serving", "True", "Available", "");
    progress(&mut observed, "ClusterCatalog", "True", "Succeeded", "");
    observed.add(
        "ClusterExtension",
        json!({"metadata": {"name": "demo", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"namespace": "demo", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}},
            "status": {"activeRevisions": [{"name": "demo-1"}], "install": {"bundle": {"name": "demo.v1", "version": "1.0.0"}}}}),
    );
    progress(&mut observed, "ClusterExtension", "True", "Succeeded", "");
    set_condition(&mut observed, "ClusterExtension", "Installed", "True", "Succeeded", "");
    observed.add("ClusterObjectSet", json!({"metadata": {"name": "demo-1", "labels": owned_by("demo")}}));
    observed.offered = Some(BTreeSet::from(["demo.v1".to_owned()]));
    observed
}

pub(super) fn owned_by(extension: &str) -> Value {
    json!({"olm.operatorframework.io/owner-kind": "ClusterExtension", "olm.operatorframework.io/owner-name": extension})
}

/// Sets condition `Progressing` of the first object of a kind.
pub(super) fn progress(observed: &mut Observed, kind: &str, status: &str, reason: &str, message: &str) {
    set_condition(observed, kind, "Progressing", status, reason, message);
}

/// Sets a condition of the first object of a kind.
pub(super) fn set_condition(
    observed: &mut Observed,
    kind: &str,
    type_: &str,
    status: &str,
    reason: &str,
    message: &str,
) {
    let object = first(observed, kind);
    let conditions = &mut object["status"]["conditions"];
    let mut all = conditions.as_array().cloned().unwrap_or_default();
    all.retain(|one| one["type"] != type_);
    all.push(json!({"type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T11:58:00Z"}));
    *conditions = json!(all);
}

pub(super) fn first<'a>(observed: &'a mut Observed, kind: &str) -> &'a mut Value {
    &mut observed.objects.get_mut(kind).unwrap()[0]
}

/// Rules, with causes, and objects of the findings.
pub(super) fn found(observed: &Observed) -> Vec<String> {
    let line = |finding: super::Finding| {
        let cause = finding.place.cause.map(|cause| format!(" {}", cause.id)).unwrap_or_default();
        format!("{}{cause}: {}", finding.rule.id, finding.place.object)
    };
    diagnose(observed, now()).into_iter().map(line).collect()
}

/// Findings after a change of the healthy cluster.
pub(super) fn after(change: impl FnOnce(&mut Observed)) -> Vec<String> {
    let mut observed = healthy();
    change(&mut observed);
    found(&observed)
}
