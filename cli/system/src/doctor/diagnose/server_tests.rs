//! Faults of the servers: pods, logs, leases, network.

use serde_json::{Value, json};

use super::fixture::{after, first, found, healthy, own};
use crate::doctor::observed::Log;

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
