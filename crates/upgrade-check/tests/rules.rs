//! Each rule with an upgrade that breaks it, and one that does not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use olm_bundle::BundleContent;
use olm_upgrade_check::{UpgradeFinding, UpgradeHold, check_bundles, check_objects, holds, rules};
use serde_json::{Value, json};

/// CRD with these versions, each `name`, and whether it is served and stored, with the schema of a field `size`.
fn crd(versions: &[(&str, bool, bool, Value)]) -> Value {
    let version = |(name, served, storage, size): &(&str, bool, bool, Value)| {
        let spec = json!({"type": "object", "properties": {"size": size}});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        json!({"name": name, "served": served, "storage": storage, "schema": schema})
    };
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "lamps.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced", "versions": versions}})
}

fn with_size(size: Value) -> Value {
    crd(&[("v1", true, true, size)])
}

fn integer() -> Value {
    json!({"type": "integer"})
}

fn converted(mut crd: Value) -> Value {
    crd["spec"]["conversion"] = json!({"strategy": "Webhook"});
    crd
}

fn object(api_version: &str, kind: &str, content: Value) -> Value {
    let mut object =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "lamp", "namespace": "ns"}});
    object.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
    object
}

fn deployment(spec: Value) -> Value {
    object("apps/v1", "Deployment", json!({"spec": spec}))
}

/// Role of a ServiceAccount with this rule.
fn rights(group: &str, resource: &str, verb: &str) -> Vec<Value> {
    let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
    let group = "rbac.authorization.k8s.io";
    let role = json!({"apiGroup": group, "kind": "ClusterRole", "name": "lamp"});
    let subjects = json!([{"kind": "ServiceAccount", "name": "lamp", "namespace": "ns"}]);
    vec![
        object(&format!("{group}/v1"), "ClusterRole", json!({"rules": [rule]})),
        object(&format!("{group}/v1"), "ClusterRoleBinding", json!({"roleRef": role, "subjects": subjects})),
    ]
}

fn shown(finding: &UpgradeFinding) -> String {
    format!("{} {:?} {}{}", finding.rule.id, finding.place.hold, finding.place, finding.message)
}

fn found(old: &[Value], new: &[Value]) -> Vec<String> {
    check_objects(old, new).iter().map(shown).collect()
}

fn bundle(modes: &[&str], more: Value, properties: Value) -> BundleContent {
    let modes: Vec<Value> = modes.iter().map(|mode| json!({"type": mode, "supported": true})).collect();
    let mut csv = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": "lamp.v1.0.0", "annotations": {"olm.properties": properties.to_string()}},
        "spec": {"version": "1.0.0", "installModes": modes}});
    csv["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let annotations = json!({"annotations": {"operators.operatorframework.io.bundle.package.v1": "lamp"}});
    let files = [("manifests/csv.yaml", csv), ("metadata/annotations.yaml", annotations)];
    let files: BTreeMap<String, Vec<u8>> = files
        .into_iter()
        .map(|(path, content)| (path.to_owned(), content.to_string().into_bytes()))
        .collect();
    BundleContent::load(&files).unwrap()
}

fn maximum(version: &str) -> Value {
    json!([{"type": "olm.maxOpenShiftVersion", "value": version}])
}

#[test]
fn changes_of_crds_are_graded_by_who_notices_them() {
    let name = "CustomResourceDefinition lamps.example.com";
    let old = with_size(integer());
    let unchanged = [with_size(integer()), with_size(json!({"type": "integer", "description": "Watts"}))];
    for new in unchanged {
        assert_eq!(found(std::slice::from_ref(&old), &[new]), [""; 0]);
    }
    for (new, expected) in [
        (
            with_size(json!({"type": "string"})),
            format!(
                "UPGRADE-2 UnlessLive {name}: v1: ^.spec.size: type: type changed : \"integer\" -> \"string\""
            ),
        ),
        (
            with_size(json!({"type": "integer", "default": 4})),
            format!(
                "UPGRADE-5 UnlessWarn {name}: v1: ^.spec.size: default: default added when there was none previously : \"4\""
            ),
        ),
        (
            with_size(json!({"type": "integer", "title": "Watts", "format": "watts"})),
            format!("UPGRADE-10 UnlessWarn {name}: v1: ^.spec.size: unhandled: "),
        ),
        (
            crd(&[("v2", true, true, integer())]),
            format!("UPGRADE-3 Always {name}: storedVersionRemoval: stored versions removed : [v1]"),
        ),
    ] {
        let found = found(std::slice::from_ref(&old), std::slice::from_ref(&new));
        assert!(found.iter().any(|one| one.starts_with(&expected)), "{expected}: {found:?}");
    }
}

#[test]
fn versions_that_vanish_or_must_be_converted_are_found() {
    let name = "CustomResourceDefinition lamps.example.com";
    let both = crd(&[("v1", true, true, integer()), ("v2", true, false, integer())]);
    let unserved = crd(&[("v1", true, true, integer()), ("v2", false, false, integer())]);
    let vanished = format!("UPGRADE-6 No {name}: v2 is no longer served: clients that use it fail");
    assert_eq!(found(std::slice::from_ref(&both), &[unserved]), [vanished]);
    let moved = crd(&[("v1", true, false, integer()), ("v2", true, true, integer())]);
    assert_eq!(found(std::slice::from_ref(&both), std::slice::from_ref(&moved)), [""; 0]);
    let conversion = format!(
        "UPGRADE-11 No {name}: the storage version changes from v1 to v2, and a webhook of the operator converts"
    );
    assert_eq!(found(&[both], &[converted(moved)]), [conversion]);
}

#[test]
fn fields_that_never_change_and_contradicting_defaults_are_found() {
    let selector = |app: &str| deployment(json!({"selector": {"matchLabels": {"app": app}}}));
    let secret = |kind: Value| object("v1", "Secret", json!({"type": kind}));
    let map = |value: &str| object("v1", "ConfigMap", json!({"immutable": true, "data": {"key": value}}));
    let service = |kind: &str, address: &str| {
        object("v1", "Service", json!({"spec": {"type": kind, "clusterIP": address}}))
    };
    let class = |policy: Value| {
        object("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 1, "preemptionPolicy": policy}))
    };
    let strategy = |kind: &str| deployment(json!({"strategy": {"type": kind}}));
    let refused = "cannot be changed: the API server refuses it";
    let replaced = "cannot be changed: the object must be deleted and created again";
    for (old, new, expected) in [
        (selector("a"), selector("b"), format!("UPGRADE-4 UnlessReplaced Deployment ns/lamp: spec.selector {replaced}")),
        (selector("a"), selector("a"), String::new()),
        (
            secret(json!("Opaque")),
            secret(json!("kubernetes.io/tls")),
            format!("UPGRADE-4 Always Secret ns/lamp: type {refused}"),
        ),
        // The API server sets it.
        (object("v1", "Secret", json!({})), secret(json!("Opaque")), String::new()),
        (class(json!("PreemptLowerPriority")), object("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 1})), String::new()),
        (
            class(json!("PreemptLowerPriority")),
            class(json!("Never")),
            format!("UPGRADE-4 UnlessReplaced PriorityClass ns/lamp: preemptionPolicy {replaced}"),
        ),
        (map("a"), map("b"), format!("UPGRADE-4 Always ConfigMap ns/lamp: data.key {refused}")),
        (
            service("ClusterIP", "10.0.0.1"),
            service("ClusterIP", "None"),
            format!("UPGRADE-4 UnlessReplaced Service ns/lamp: spec.clusterIP {replaced}"),
        ),
        (
            service("NodePort", "10.0.0.1"),
            service("NodePort", "10.0.0.2"),
            format!("UPGRADE-4 Always Service ns/lamp: spec.clusterIP {replaced}"),
        ),
        (
            deployment(json!({})),
            strategy("Recreate"),
            "UPGRADE-12 No Deployment ns/lamp: strategy Recreate allows no spec.strategy.rollingUpdate, which the API \
             server has set"
                .to_owned(),
        ),
        (deployment(json!({})), strategy("RollingUpdate"), String::new()),
    ] {
        let mut found = found(std::slice::from_ref(&old), std::slice::from_ref(&new));
        found.retain(|one| !one.starts_with("UPGRADE-8"));
        assert_eq!(found.join("\n"), expected, "{old} {new}");
    }
}

#[test]
fn deleted_objects_with_data_are_found() {
    let deleted = |kind: &str| found(&[object("v1", kind, json!({}))], &[]);
    let message = "the new bundle does not have it: it is deleted with the old revision";
    assert_eq!(deleted("ConfigMap"), [format!("UPGRADE-7 No ConfigMap ns/lamp: {message}")]);
    assert_eq!(deleted("Service"), [""; 0]);
    let named = |name: &str| {
        let mut map = object("v1", "ConfigMap", json!({"data": {"key": "a"}}));
        map["metadata"]["name"] = json!(name);
        map
    };
    assert_eq!(found(&[named("lamp-1a")], &[named("lamp-2b")]), [""; 0], "renamed");
    let crd = found(&[with_size(integer())], &[]);
    assert_eq!(
        crd,
        [format!(
            "UPGRADE-7 No CustomResourceDefinition lamps.example.com: {message} unless custom resources exist"
        )]
    );
}

#[test]
fn gained_permissions_are_found_dangerous_ones_apart() {
    let old = rights("apps", "deployments", "get");
    let gains = "ServiceAccount ns/lamp: gains";
    assert_eq!(
        found(&old, &rights("apps", "deployments", "list")),
        [format!("UPGRADE-13 No {gains} list on deployments.apps cluster-wide")]
    );
    assert_eq!(
        found(&old, &rights("", "secrets", "get")),
        [format!("UPGRADE-8 No {gains} get on secrets cluster-wide")]
    );
    assert_eq!(found(&old, &old), [""; 0]);
}

#[test]
fn platforms_that_are_lost_are_found() {
    let compared = |old: &BundleContent, new: &BundleContent| -> Vec<String> {
        check_bundles(old, new).iter().map(shown).collect()
    };
    let limited = |version: &str| bundle(&["AllNamespaces"], json!({}), maximum(version));
    let all = bundle(&["AllNamespaces"], json!({}), json!([]));
    let limit = "UPGRADE-9 No olm.maxOpenShiftVersion is now 4.9: it blocks upgrades of the cluster above it";
    assert_eq!(compared(&limited("4.18"), &limited("4.9")), [limit]);
    assert_eq!(compared(&all, &limited("4.9")), [limit]);
    assert_eq!(compared(&limited("4.9"), &limited("4.18")), [""; 0]);
    let kubernetes =
        |version: &str| bundle(&["AllNamespaces"], json!({"minKubeVersion": version}), json!([]));
    assert_eq!(
        compared(&kubernetes("1.9.0"), &kubernetes("1.26.0")),
        ["UPGRADE-9 No minKubeVersion is now 1.26.0"]
    );
    assert_eq!(compared(&kubernetes("1.26.0"), &kubernetes("1.9.0")), [""; 0]);
}

#[test]
fn holds_are_listed_without_repetitions() {
    let old = [with_size(integer()), deployment(json!({"selector": {"a": "b"}}))];
    let new = [with_size(json!({"type": "string"})), deployment(json!({"selector": {"a": "c"}}))];
    let expected = [UpgradeHold::UnlessReplaced, UpgradeHold::UnlessLive];
    assert_eq!(holds(&check_objects(&old, &new)), expected.into());
    assert!(holds(&[]).is_empty());
    assert_eq!(rules().count(), 15);
}

#[test]
fn crds_that_no_cluster_serves_or_that_are_renamed_are_found() {
    let name = "CustomResourceDefinition lamps.example.com";
    let beta = |crd: &Value| {
        let mut crd = crd.clone();
        crd["apiVersion"] = json!("apiextensions.k8s.io/v1beta1");
        crd
    };
    let crd = with_size(integer());
    assert_eq!(found(&[beta(&crd)], std::slice::from_ref(&crd)), [""; 0]);
    let unserved = "apiextensions.k8s.io/v1beta1 is not served since Kubernetes 1.22";
    assert_eq!(
        found(std::slice::from_ref(&crd), &[beta(&crd)]),
        [format!("UPGRADE-1 Always {name}: {unserved}")]
    );
    let named = |kind: &str| {
        let mut crd = crd.clone();
        crd["spec"]["names"] = json!({"kind": kind, "plural": "lamps"});
        crd
    };
    let renamed = "spec.names.kind cannot be changed: the API server does not accept the new name";
    assert_eq!(found(&[named("Lamp")], &[named("Light")]), [format!("UPGRADE-4 Always {name}: {renamed}")]);
}

#[test]
fn change_of_a_version_that_is_not_listed_is_not_judged_by_existing_objects() {
    let old = crd(&[("v1", true, true, integer()), ("v1alpha1", true, false, integer())]);
    let text = json!({"type": "string"});
    let new = crd(&[("v1", true, true, integer()), ("v1alpha1", false, false, text)]);
    let found = check_objects(&[old], &[new]);
    assert!(found.iter().all(|one| one.place.hold != UpgradeHold::UnlessLive), "{found:?}");
    assert!(found.iter().any(|one| one.place.hold == UpgradeHold::UnlessWarn), "{found:?}");
}

#[test]
fn roles_that_nothing_binds_and_webhooks_are_no_dangerous_permissions() {
    let role = rights("", "secrets", "get").remove(0);
    assert_eq!(found(&[deployment(json!({}))], &[deployment(json!({})), role]), [""; 0]);
    let webhook = json!({"webhooks": [{"name": "a.example.com", "rules": [
        {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}]}]});
    let webhook = object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", webhook);
    let found = found(&[deployment(json!({}))], &[deployment(json!({})), webhook]);
    assert!(found.len() == 1 && found[0].starts_with("UPGRADE-13"), "{found:?}");
}
