//! Rules for every file of an installation: traffic, the admission webhook, RBAC
//! (docs/design/operations.md#ports-and-network-policies, docs/design/operations.md#hardened-rights).

// A test fails by panicking, in its helper functions too.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;

use olm_manifests::{
    INSTALLATIONS, SERVERS, container, deployment, identity, named, objects, of_kind, strings, text,
};
use serde_json::{Value, json};

/// TCP ports in the ingress rules of a NetworkPolicy, from any source.
fn let_in(policy: &Value) -> BTreeSet<u64> {
    let rules = policy["spec"]["ingress"].as_array().cloned().unwrap_or_default();
    let ports = rules.iter().flat_map(|rule| rule["ports"].as_array().cloned().unwrap_or_default());
    ports
        .map(|port| {
            assert_eq!(port["protocol"], "TCP");
            port["port"].as_u64().unwrap()
        })
        .collect()
}

// docs/design/operations.md#ports-and-network-policies; case operations-a2
#[test]
fn network_policies_permit_exactly_the_ports_of_services_and_containers() {
    for file in INSTALLATIONS {
        let all = objects(file);
        let policies = of_kind(&all, "NetworkPolicy");
        let (deny, allow): (Vec<&Value>, Vec<&Value>) =
            policies.into_iter().partition(|policy| policy["spec"]["podSelector"] == json!({}));
        let namespaces: BTreeSet<&str> =
            of_kind(&all, "Deployment").into_iter().map(|found| text(found, "/metadata/namespace")).collect();
        let denied: BTreeSet<&str> = deny.iter().map(|policy| text(policy, "/metadata/namespace")).collect();
        assert_eq!(denied, namespaces, "{file}: default deny policy per namespace");
        for policy in &deny {
            assert_eq!(policy["spec"], json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}));
        }
        assert_eq!(allow.len(), SERVERS.len(), "{file}: one policy for each server");

        for server in SERVERS {
            let control_plane = format!("{server}-controller-manager");
            let policy = named(&all, "NetworkPolicy", &control_plane);
            assert_eq!(
                policy["spec"]["podSelector"],
                json!({"matchLabels": {"control-plane": control_plane}}),
                "{file}"
            );
            assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
            assert!(!policy["spec"]["egress"].as_array().unwrap().is_empty(), "{file}");
            let expected =
                BTreeSet::from_iter(if server == "catalogd" { vec![7443, 8443, 9443] } else { vec![8443] });
            assert_eq!(let_in(policy), expected, "{file}: {server}");

            let container = container(deployment(&all, server));
            let listens: BTreeSet<u64> = container["ports"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|port| port["name"] != "probes")
                .map(|port| port["containerPort"].as_u64().unwrap())
                .collect();
            assert_eq!(listens, expected, "{file}: {server}: ports of the container");
            let service = named(&all, "Service", &format!("{server}-service"));
            assert_eq!(service["spec"]["selector"], json!({"app.kubernetes.io/name": server}));
            let ports = service["spec"]["ports"].as_array().unwrap();
            let targets: BTreeSet<u64> =
                ports.iter().map(|port| port["targetPort"].as_u64().unwrap()).collect();
            assert_eq!(targets, expected, "{file}: {server}: ports of the Service");
            // Port-forwarding to a Service uses the port number of the pod.
            let metrics = ports.iter().find(|port| port["name"] == "metrics").unwrap();
            assert_eq!(metrics["port"], metrics["targetPort"]);
        }
    }
}

// docs/design/catalogd.md#name-label-webhook: the webhook uses a port of the Service.
#[test]
fn admission_webhook_calls_a_port_of_the_service() {
    for file in INSTALLATIONS {
        let all = objects(file);
        let configuration =
            named(&all, "MutatingWebhookConfiguration", "catalogd-mutating-webhook-configuration");
        let webhook = &configuration["webhooks"][0];
        let called = &webhook["clientConfig"]["service"];
        let service = named(&all, "Service", text(called, "/name"));
        assert_eq!(called["namespace"], service["metadata"]["namespace"], "{file}");
        assert!(
            service["spec"]["ports"].as_array().unwrap().iter().any(|port| port["port"] == called["port"])
        );
        assert_eq!(called["path"], "/mutate-olm-operatorframework-io-v1-clustercatalog");
        assert_eq!((&webhook["failurePolicy"], &webhook["timeoutSeconds"]), (&json!("Fail"), &json!(10)));
    }
}

fn grants(role: &Value, verb: &str) -> bool {
    let rules = role["rules"].as_array().cloned().unwrap_or_default();
    rules.iter().any(|rule| strings(&rule["verbs"]).iter().any(|found| [verb, "*"].contains(found)))
}

// docs/design/operations.md#default-rights, docs/design/operations.md#hardened-rights
#[test]
fn hardened_variant_grants_no_cluster_wide_escalation() {
    let all = objects("hardened.yaml");
    let admin = named(&all, "ClusterRoleBinding", "operator-controller-cluster-admin-rolebinding");
    assert_eq!(admin["subjects"], json!([]), "subjects of the cluster-admin binding");
    for role in of_kind(&all, "ClusterRole").into_iter().chain(of_kind(&all, "Role")) {
        for verb in ["*", "escalate", "bind", "impersonate"] {
            let name = identity(role);
            assert!(!grants(role, verb), "{name} grants {verb}");
        }
    }
    for binding in of_kind(&all, "ClusterRoleBinding") {
        let named_here = of_kind(&all, "ClusterRole")
            .iter()
            .any(|role| role["metadata"]["name"] == binding["roleRef"]["name"]);
        assert!(named_here || binding == admin, "{}", identity(binding));
    }
    // Ingress has a source except for the webhook port. Egress is limited to the ports of DNS and HTTPS.
    for server in SERVERS {
        let policy = named(&all, "NetworkPolicy", &format!("{server}-controller-manager"));
        for rule in policy["spec"]["ingress"].as_array().unwrap() {
            assert!(rule.get("from").is_some() || rule["ports"][0]["port"] == 9443, "{rule}");
        }
        for rule in policy["spec"]["egress"].as_array().unwrap() {
            let ports: Vec<u64> =
                rule["ports"].as_array().unwrap().iter().map(|port| port["port"].as_u64().unwrap()).collect();
            assert!(ports.iter().all(|port| [53, 443, 6443, 8443].contains(port)), "{rule}");
        }
    }
    namespaced_kinds_are_only_written_by_role_bindings(&all);
    let role = &objects("hardened-escalate.yaml")[0];
    let label = "/metadata/labels/ext.olm.operatorframework.io~1aggregate-to-operator-controller";
    assert_eq!(text(role, label), "true");
    assert!(grants(role, "escalate") && grants(role, "bind"));
}

/// No ClusterRole that is bound in the whole cluster writes Secrets, workloads or ServiceAccounts. What takes rights of
/// earlier installations away is applied last.
fn namespaced_kinds_are_only_written_by_role_bindings(all: &[Value]) {
    let namespaced = "operator-controller-content-namespaced";
    let kinds =
        ["secrets", "serviceaccounts", "deployments", "daemonsets", "roles", "rolebindings", "configmaps"];
    for role in of_kind(all, "ClusterRole") {
        let name = text(role, "/metadata/name");
        for rule in role["rules"].as_array().into_iter().flatten() {
            let writes = strings(&rule["verbs"])
                .iter()
                .any(|verb| ["create", "patch", "update", "delete"].contains(verb));
            let resources = strings(&rule["resources"]);
            let of = |kind: &&str| resources.contains(kind);
            assert!(!writes || name == namespaced || !kinds.iter().any(of), "{name}: {rule}");
        }
    }
    let bound = |kind: &str| of_kind(all, kind).into_iter().any(|one| one["roleRef"]["name"] == namespaced);
    assert!(!bound("ClusterRoleBinding") && !bound("RoleBinding"));
    let rbac: Vec<&str> = all
        .iter()
        .filter(|one| {
            one["apiVersion"] == "rbac.authorization.k8s.io/v1"
                && one["kind"] != "Role"
                && one["kind"] != "RoleBinding"
        })
        .map(|one| text(one, "/metadata/name"))
        .filter(|name| name.starts_with("operator-controller"))
        .collect();
    let last = ["operator-controller-content-common", "operator-controller-cluster-admin-rolebinding"];
    assert!(rbac.ends_with(&last), "{rbac:?}");
}

// docs/design/operations.md#multiple-installations: a second installation must be able to find the first one.
#[test]
fn both_servers_can_find_installations_in_other_namespaces() {
    for file in INSTALLATIONS {
        let all = objects(file);
        let bound = |server: &str| -> BTreeSet<&str> {
            of_kind(&all, "ClusterRoleBinding")
                .into_iter()
                .filter(|binding| text(binding, "/subjects/0/name") == format!("{server}-controller-manager"))
                .map(|binding| text(binding, "/roleRef/name"))
                .collect()
        };
        let allows = |role: &str, verb: &str, resource: &str| {
            let role = match role {
                "cluster-admin" => return true,
                // ClusterRole that it aggregates.
                "operator-controller-content-role" => "operator-controller-content-common",
                other => other,
            };
            let found =
                of_kind(&all, "ClusterRole").into_iter().find(|found| text(found, "/metadata/name") == role);
            let rules = found.and_then(|found| found["rules"].as_array().cloned()).unwrap_or_default();
            rules.iter().any(|rule| {
                strings(&rule["resources"]).contains(&resource) && strings(&rule["verbs"]).contains(&verb)
            })
        };
        for server in SERVERS {
            for (verb, resource) in [("list", "deployments"), ("get", "namespaces")] {
                let may = bound(server).iter().any(|role| allows(role, verb, resource));
                assert!(may, "{file}: {server} may not {verb} {resource}");
            }
        }
    }
}

// docs/design/console.md#in-the-cluster
#[test]
fn console_has_no_token_no_rights_and_a_restricted_pod() {
    let all = objects("console.yaml");
    let kinds: Vec<&str> = all.iter().map(|object| text(object, "/kind")).collect();
    assert_eq!(kinds, ["NetworkPolicy", "NetworkPolicy", "Service", "Deployment"]);
    let deployment = named(&all, "Deployment", "olm-console");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod.get("serviceAccountName"), None);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"], json!({"type": "RuntimeDefault"}));
    let container = container(deployment);
    assert_eq!(
        container["securityContext"],
        json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}})
    );
    assert!(strings(&container["args"]).contains(&"--in-cluster"));
    // Of the Secrets of catalogd, only the CA is in the pod.
    let sources = &pod["volumes"][1]["projected"]["sources"];
    for source in sources.as_array().unwrap() {
        assert_eq!(source["secret"]["items"].as_array().unwrap().len(), 1, "{source}");
        assert_eq!(source["secret"]["items"][0]["key"], "ca.crt");
    }
    // The console has a certificate of its own until the Secret exists.
    assert_eq!(pod["volumes"][2]["secret"], json!({"secretName": "olm-console-cert", "optional": true}));
    let service = named(&all, "Service", "olm-console");
    assert_eq!(service["spec"]["selector"], deployment["spec"]["selector"]["matchLabels"]);
    let policy = named(&all, "NetworkPolicy", "olm-console");
    assert_eq!(let_in(policy), BTreeSet::from([8443]));
    assert_eq!(container["ports"][0]["containerPort"], 8443);
}
