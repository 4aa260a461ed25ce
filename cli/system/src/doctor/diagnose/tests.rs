//! Findings of healthy and faulty clusters.

use std::collections::BTreeSet;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use olm_cli_migrate::ClassicPackage;
use olm_serving::issue::{new_ca, new_leaf};
use serde_json::{Value, json};

use super::diagnose;
use crate::doctor::observed::{Certificate, Log, Observed, PullSecret};

const NAMESPACE: &str = "olmv1-system";

pub(super) fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn own(name: &str, rest: Value) -> Value {
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

fn owned_by(extension: &str) -> Value {
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

fn first<'a>(observed: &'a mut Observed, kind: &str) -> &'a mut Value {
    &mut observed.objects.get_mut(kind).unwrap()[0]
}

/// Rules, with causes, and objects of the findings.
fn found(observed: &Observed) -> Vec<String> {
    let line = |finding: super::Finding| {
        let cause = finding.place.cause.map(|cause| format!(" {}", cause.id)).unwrap_or_default();
        format!("{}{cause}: {}", finding.rule.id, finding.place.object)
    };
    diagnose(observed, now()).into_iter().map(line).collect()
}

/// Findings after a change of the healthy cluster.
fn after(change: impl FnOnce(&mut Observed)) -> Vec<String> {
    let mut observed = healthy();
    change(&mut observed);
    found(&observed)
}

#[test]
fn healthy_cluster_has_no_findings() {
    assert_eq!(found(&healthy()), [""; 0]);
}

#[test]
fn every_log_line_of_a_stopped_server_has_its_cause() {
    for (line, cause) in [
        ("Error: unrecognized feature gate: X", "LOG-1"),
        ("tls-cert and tls-key flags must be used together", "LOG-2"),
        ("metrics-bind-address requires tls-cert and tls-key flags to be set", "LOG-3"),
        ("value of global-pull-secret should be of the format <namespace>/<name>", "LOG-4"),
        ("invalid argument: unknown TLS version: \"1.2\"", "LOG-5"),
        ("Secret catalogd-service-cert holds no serving certificate yet: operator-controller", "LOG-6"),
        ("leader election lost", "LOG-7"),
        ("Deployment old/catalogd is an older installation for the same cluster: x", "LOG-8"),
        ("anything else", ""),
    ] {
        let found = after(|observed| {
            let pod = first(observed, "Pod");
            pod["status"]["containerStatuses"][0]["state"] = json!({"terminated": {"reason": "Error"}});
            let text = format!("{line}\n\n");
            observed.logs.push(Log {
                pod: "catalogd-controller-manager-1".to_owned(),
                text,
                ..Log::default()
            });
        });
        let cause = if cause.is_empty() { String::new() } else { format!(" {cause}") };
        assert_eq!(
            found,
            [format!("SERVER-1{cause}: Pod olmv1-system/catalogd-controller-manager-1")],
            "{line}"
        );
    }
}

#[test]
fn every_cause_of_a_failed_bundle_is_recognized() {
    for (why, cause) in [
        ("failed calling webhook \"a\": dial tcp: connection refused", " CAUSE-9"),
        ("dial tcp: lookup r.example: no such host", " CAUSE-1"),
        ("tls: certificate signed by unknown authority", " CAUSE-2"),
        ("denied: requested access", " CAUSE-3"),
        ("manifest unknown", " CAUSE-4"),
        ("no namespace matches watchNamespaceSelector a=b", " CAUSE-5"),
        ("unsupported bundle: no AllNamespaces", " CAUSE-6"),
        ("clusterroles \"a\" is forbidden: no", " CAUSE-7"),
        ("admission webhook \"a\" denied the request: no", " CAUSE-8"),
        ("sha256:e403f401 is odd", ""),
    ] {
        let message = format!("error for resolved bundle \"demo.v1\" with version \"1.0.0\": {why}");
        let found = after(|observed| progress(observed, "ClusterExtension", "True", "Retrying", &message));
        assert_eq!(found, [format!("INSTALL-1{cause}: ClusterExtension demo")], "{why}");
    }
}

#[test]
fn denied_registry_names_registries_of_pull_secrets() {
    let mut observed = healthy();
    let registries = Ok(vec!["other.example.com".to_owned()]);
    observed.pull_secrets.push(PullSecret { name: "a/b".to_owned(), registries });
    progress(&mut observed, "ClusterCatalog", "True", "Retrying", "source catalog content: unauthorized");
    let findings = diagnose(&observed, now());
    let message = "source catalog content: unauthorized (registries of the pull Secrets: other.example.com)";
    assert_eq!(findings[0].message, message);
    observed.pull_secrets[0].registries = Err("it does not exist".to_owned());
    assert!(found(&observed).contains(&"SECRET-1: Secret a/b".to_owned()));
}

#[test]
fn every_cause_of_a_hanging_deletion_is_recognized() {
    for (message, rule) in [
        ("cannot uninstall: 2 custom resources exist (first: a)", "DELETE-2"),
        ("waiting for 1 a (first: b): finalizer c", "DELETE-3"),
        ("revision a is removed, but custom resources are left: b", "DELETE-4"),
        ("waiting for the deletion of CustomResourceDefinition a", "DELETE-5"),
        ("uninstall waits: installed extension b requires a", "DELETE-6"),
        ("removing revision resources that are not owned by another revision", "DELETE-7"),
        ("objects of revision demo-1 are unknown: lost", "DELETE-8"),
        ("something", "DELETE-1"),
    ] {
        let found = after(|observed| {
            progress(observed, "ClusterObjectSet", "True", "Retrying", message);
            let extension = first(observed, "ClusterExtension");
            extension["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:00:00Z");
        });
        assert_eq!(found, [format!("{rule}: ClusterExtension demo")], "{message}");
    }
    // Without a known cause, a deletion has two minutes.
    let young = after(|observed| {
        first(observed, "ClusterExtension")["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:00Z");
    });
    assert_eq!(young, [""; 0]);
}

#[test]
fn missing_servers_pods_and_restarts_are_found() {
    let gone = after(|observed| {
        ["Deployment", "Pod"].iter().for_each(|kind| drop(observed.objects.remove(*kind)));
    });
    assert_eq!(
        gone,
        [
            "SERVER-1: Deployment olmv1-system/catalogd-controller-manager",
            "SERVER-1: Deployment olmv1-system/operator-controller-controller-manager"
        ]
    );
    let unreadable = after(|observed| {
        ["Deployment", "Pod"].iter().for_each(|kind| drop(observed.objects.remove(*kind)));
        observed.unreadable = vec!["deployments in namespace olmv1-system: forbidden".to_owned()];
    });
    assert_eq!(unreadable, [""; 0]);
    let no_pods = after(|observed| drop(observed.objects.remove("Pod")));
    assert_eq!(no_pods.len(), 2);
    let restarted = after(|observed| {
        let status = &mut first(observed, "Pod")["status"]["containerStatuses"][0];
        status["restartCount"] = json!(2);
        status["lastState"] = json!({"terminated": {"reason": "OOMKilled"}});
    });
    assert_eq!(restarted, ["SERVER-3: Pod olmv1-system/catalogd-controller-manager-1"]);
}

#[test]
fn lease_without_active_holder_is_found() {
    let lease = "LEASE-1: Lease olmv1-system/catalogd-operator-lock";
    for change in [json!({"renewTime": "2026-01-01T11:57:59.000000Z"}), json!({"holderIdentity": ""})] {
        let found = after(|observed| {
            let spec = &mut first(observed, "Lease")["spec"];
            change.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
        });
        assert_eq!(found, [lease]);
    }
    assert_eq!(after(|observed| drop(observed.objects.get_mut("Lease").unwrap().remove(0))), [lease]);
    let late = after(|observed| {
        first(observed, "Lease")["spec"]["renewTime"] = json!("2026-01-01T11:58:30.000000Z");
    });
    assert_eq!(late, [""; 0], "three times its duration");
}

#[test]
fn evicted_and_starting_pods_are_no_faults() {
    let plant = |created: &str, status: Value| {
        after(|observed| {
            let pod = json!({"metadata": {"labels": {"control-plane": "catalogd-controller-manager"},
                "creationTimestamp": created}, "status": status});
            observed.add("Pod", own("catalogd-controller-manager-2", pod));
        })
    };
    let down = ["SERVER-1: Pod olmv1-system/catalogd-controller-manager-2"];
    let (old, young) = ("2026-01-01T11:50:00Z", "2026-01-01T11:59:00Z");
    let waiting = |reason: &str| {
        json!({"phase": "Pending", "containerStatuses": [{"name": "manager", "restartCount": 0,
            "state": {"waiting": {"reason": reason}}}]})
    };
    assert_eq!(plant(old, json!({"phase": "Failed", "reason": "Evicted"})), [""; 0]);
    assert_eq!(plant(young, waiting("ContainerCreating")), [""; 0]);
    assert_eq!(plant(old, waiting("PodInitializing")), down);
    assert_eq!(plant(young, waiting("ImagePullBackOff")), down);
    let ended = after(|observed| first(observed, "Pod")["status"] = json!({"phase": "Failed"}));
    assert_eq!(ended, ["SERVER-1: Pod olmv1-system/catalogd-controller-manager-1"]);
}

#[test]
fn log_of_a_pod_is_that_of_its_server() {
    let mut observed = healthy();
    for container in ["sidecar", "manager"] {
        let (pod, text) = ("a".to_owned(), container.to_owned());
        observed.logs.push(Log { pod, container: container.to_owned(), text, ..Log::default() });
    }
    assert_eq!(observed.log("a", false), "manager");
}

#[test]
fn webhook_of_another_component_is_not_that_of_catalogd() {
    let why = "failed calling webhook \"policy.example.com\": connection refused";
    let found = after(|observed| observed.webhook_failure = Some(why.to_owned()));
    assert_eq!(found, ["CAUSE-9: ClusterCatalogs"]);
}

#[test]
fn endpoints_and_network_policies_are_checked() {
    let unready = after(|observed| {
        first(observed, "EndpointSlice")["endpoints"][0]["conditions"]["ready"] = json!(false);
    });
    assert_eq!(unready, ["NETWORK-1: Service olmv1-system/catalogd-service"]);
    let pod = "NETWORK-2: Pod olmv1-system/catalogd-controller-manager-1";
    let closed = after(|observed| {
        first(observed, "NetworkPolicy")["spec"]["ingress"] =
            json!([{"ports": [{"port": 8000, "endPort": 8500}]}]);
    });
    assert_eq!(closed, [pod]);
    for (operator, values, expected) in [
        ("In", json!(["catalogd-controller-manager"]), &[""; 0][..]),
        ("NotIn", json!(["catalogd-controller-manager"]), &[pod, pod]),
        ("Exists", json!([]), &[]),
        ("DoesNotExist", json!([]), &[pod, pod]),
    ] {
        let found = after(|observed| {
            let expression = json!({"key": "control-plane", "operator": operator, "values": values});
            first(observed, "NetworkPolicy")["spec"]["podSelector"] =
                json!({"matchExpressions": [expression]});
        });
        assert_eq!(found, expected, "{operator}");
    }
    let isolated = after(|observed| drop(observed.objects.get_mut("NetworkPolicy").unwrap().remove(0)));
    assert_eq!(isolated, [pod, pod]);
}

/// Cluster with a serving certificate of `service` that is issued at `issued`, and the PEM of its CA.
fn with_certificate(issued: Timestamp, secret: &str, service: &str, owner: &str) -> (Observed, Vec<u8>) {
    let mut observed = healthy();
    let ca = new_ca("test", issued).unwrap();
    let leaf = new_leaf(&ca, "test", &[format!("{service}.{NAMESPACE}.svc")], issued).unwrap();
    observed.certificates.push(Certificate {
        namespace: NAMESPACE.to_owned(),
        secret: secret.to_owned(),
        owner: owner.to_owned(),
        chain: leaf.certificate,
    });
    (observed, ca.certificate)
}

#[test]
fn certificates_expire_and_their_ca_bundles_match() {
    use base64::Engine as _;
    let days = |days: i64| now().checked_sub(SignedDuration::from_hours(24 * days)).unwrap();
    let secret = "catalogd-service-cert";
    for (issued, expected) in [
        (0, &[""; 0][..]),
        (85, &["CERT-2: Secret olmv1-system/catalogd-service-cert"]),
        (100, &["CERT-1: Secret olmv1-system/catalogd-service-cert"]),
    ] {
        assert_eq!(found(&with_certificate(days(issued), secret, "catalogd-service", "").0), expected);
    }
    let ca = found(&with_certificate(days(100), "olmv1-ca", "a", "").0);
    assert_eq!(ca, ["CERT-5: Secret olmv1-system/olmv1-ca"]);
    for (owner, kind) in [("", "MutatingWebhookConfiguration"), ("demo", "ValidatingWebhookConfiguration")] {
        let (mut observed, ca) = with_certificate(days(1), secret, "catalogd-service", owner);
        let labels = if owner.is_empty() { json!({}) } else { owned_by(owner) };
        for (bundle, rule) in
            [(ca, ""), (new_ca("other", days(1)).unwrap().certificate, "CERT-3"), (Vec::new(), "CERT-4")]
        {
            let bundle = base64::prelude::BASE64_STANDARD.encode(bundle);
            let client =
                json!({"service": {"namespace": NAMESPACE, "name": "catalogd-service"}, "caBundle": bundle});
            let webhook = json!({"metadata": {"name": "hook", "labels": labels}, "webhooks": [{"clientConfig": client}]});
            observed.objects.insert(kind.to_owned(), vec![webhook]);
            let expected = if rule.is_empty() { Vec::new() } else { vec![format!("{rule}: {kind} hook")] };
            assert_eq!(found(&observed), expected);
        }
    }
}

#[test]
fn conversion_webhook_without_ca_bundle_is_found() {
    let found = after(|observed| {
        let client = json!({"service": {"namespace": "demo", "name": "demo-service"}});
        observed.add(
            "CustomResourceDefinition",
            json!({"metadata": {"name": "a.example.com", "labels": owned_by("demo")},
            "spec": {"conversion": {"webhook": {"clientConfig": client}}}}),
        );
    });
    assert_eq!(found, ["CERT-4: CustomResourceDefinition a.example.com"]);
}

#[test]
fn other_installations_classic_packages_and_orphans_are_found() {
    let found = after(|observed| {
        for (namespace, labels) in
            [("old-olm", json!({"app.kubernetes.io/part-of": "olm"})), ("tenant", json!({}))]
        {
            observed.add("Namespace", json!({"metadata": {"name": namespace, "labels": labels}}));
            let metadata = json!({"name": "catalogd-controller-manager", "namespace": namespace});
            observed.add("Deployment", json!({"metadata": metadata}));
        }
        let twin = Some("ClusterExtension demo installs the package".to_owned());
        observed.classic.push(ClassicPackage { name: "operators/demo".to_owned(), twin });
        observed.add("ClusterRole", json!({"metadata": {"name": "lost", "labels": owned_by("gone")}}));
    });
    assert_eq!(
        found,
        [
            "CLASSIC-2: Subscription operators/demo",
            "INSTALLATION-1: Namespace old-olm",
            "ORPHAN-1: ClusterExtension gone",
            "CLASSIC-1: Subscriptions",
        ]
    );
}

#[test]
fn denied_deletion_of_revision_without_extension_is_found() {
    let found = after(|observed| {
        let message = "waiting for deletions that are denied: CRDs are kept here";
        let status = json!({"conditions": [{"type": "Progressing", "status": "True", "reason": "Retrying",
            "message": message, "lastTransitionTime": "2026-01-01T11:59:59Z"}]});
        observed.add(
            "ClusterObjectSet",
            json!({"metadata": {"name": "gone-1", "labels": owned_by("gone"),
                "deletionTimestamp": "2026-01-01T11:59:59Z"}, "status": status}),
        );
        observed.add("ClusterRole", json!({"metadata": {"name": "left", "labels": owned_by("gone")}}));
    });
    assert_eq!(found, ["DELETE-9: ClusterObjectSet gone-1"]);
}

#[test]
fn rollouts_conditions_and_holds_of_extensions_are_found() {
    let extension = |change: &dyn Fn(&mut Observed)| after(change);
    let set = |status: &'static str, reason: &'static str, message: &'static str| {
        extension(&move |observed| progress(observed, "ClusterExtension", status, reason, message))
    };
    assert_eq!(set("True", "RollingOut", "Revision 1.0.0 is rolling out."), [""; 0]);
    let probe = extension(&|observed| {
        progress(observed, "ClusterExtension", "True", "RollingOut", "Revision 1.0.0 is rolling out.");
        set_condition(observed, "ClusterObjectSet", "Available", "False", "ProbeFailure", "x");
    });
    assert_eq!(probe, [""; 0], "for two minutes");
    let explained = extension(&|observed| {
        progress(observed, "ClusterExtension", "True", "RollingOut", "Revision 1.0.0 is rolling out.");
        let message = "x; its pods are not created: exceeded quota: none";
        set_condition(observed, "ClusterObjectSet", "Available", "False", "ProbeFailure", message);
    });
    assert_eq!(explained, ["ROLLOUT-1: ClusterExtension demo"]);
    let late = "Revision has not rolled out for 5 minute(s). Last status: x";
    assert_eq!(set("False", "ProgressDeadlineExceeded", late), ["ROLLOUT-2: ClusterExtension demo"]);
    assert_eq!(set("True", "Retrying", "something new"), ["INSTALL-6: ClusterExtension demo"]);
    let waits = "installation of bundle demo.v1 version 1.0.0 requires approval; plan sha256:a: x";
    assert_eq!(set("False", "Blocked", waits), ["UPGRADE-2: ClusterExtension demo"]);
    let silent =
        extension(&|observed| first(observed, "ClusterExtension")["status"]["conditions"] = json!([]));
    assert_eq!(silent, ["INSTALL-7: ClusterExtension demo"]);
    let unsatisfied = extension(&|observed| {
        set_condition(
            observed,
            "ClusterExtension",
            "DependenciesSatisfied",
            "False",
            "Unsatisfied",
            "needs a",
        );
    });
    assert_eq!(unsatisfied, ["RESOLVE-5: ClusterExtension demo"]);
    let gone = extension(&|observed| observed.offered = Some(BTreeSet::new()));
    assert_eq!(gone, ["UPGRADE-4: ClusterExtension demo"]);
    let misspelled = extension(&|observed| {
        let metadata = &mut first(observed, "ClusterExtension")["metadata"];
        metadata["annotations"] = json!({"ext.olm.operatorframework.io/uninstall-policy": "keepcrds"});
    });
    assert_eq!(misspelled, ["ANNOTATION-1: ClusterExtension demo"]);
    let drift = extension(&|observed| {
        observed.add(
            "Event",
            json!({"metadata": {"name": "e"}, "reason": "DriftCorrected", "message": "restored",
            "involvedObject": {"kind": "ClusterExtension", "name": "demo"}}),
        );
    });
    assert_eq!(drift, ["UPGRADE-3: ClusterExtension demo"]);
}

#[test]
fn catalogs_that_catalogd_does_not_reconcile_are_found() {
    let silent = after(|observed| first(observed, "ClusterCatalog")["status"] = json!({}));
    assert_eq!(silent, ["INSTALL-7: ClusterCatalog hub"]);
    let stuck = after(|observed| {
        first(observed, "ClusterCatalog")["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:00:00Z");
    });
    assert_eq!(stuck, ["DELETE-1: ClusterCatalog hub"]);
}

#[test]
fn versions_of_servers_and_signature_policy_are_compared() {
    let image = "/spec/template/spec/containers/0/image";
    let mixed = after(|observed| {
        *first(observed, "Deployment").pointer_mut(image).unwrap() = json!("registry:5000/catalogd:v1.2.2");
    });
    assert_eq!(mixed, ["INSTALLATION-2: Namespace olmv1-system"]);
    let development = after(|observed| {
        *first(observed, "Deployment").pointer_mut(image).unwrap() = json!("registry:5000/catalogd:dev");
    });
    assert_eq!(development, [""; 0]);
    let unsigned = after(|observed| {
        let text =
            "WARN no signature policy found, using insecure policy: every image is accepted\n".to_owned();
        observed.logs.push(Log { pod: "catalogd-controller-manager-1".to_owned(), text, ..Log::default() });
    });
    assert_eq!(unsigned, ["SIGNATURE-1: Deployment olmv1-system/catalogd-controller-manager"]);
}
