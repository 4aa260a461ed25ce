//! Rules for every file of an installation: names, labels, arguments, pods, monitoring
//! (docs/design/operations.md#variants, docs/design/operations.md#install-files).

// A test fails by panicking, in its helper functions too.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;

use olm_manifests::{
    ADDITIONS, INSTALLATIONS, SERVERS, container, deployment, identity, named, objects, of_kind, strings,
    text,
};
use regex::Regex;
use serde_json::{Value, json};

const FEATURE_SET: &str = "/metadata/annotations/olm.operatorframework.io~1feature-set";

/// Objects of every variant, for any certificate provider. `SYSTEM` is the server's namespace.
const INVENTORY: &[&str] = &[
    "NetworkPolicy SYSTEM/catalogd-controller-manager",
    "NetworkPolicy SYSTEM/operator-controller-controller-manager",
    "PodDisruptionBudget SYSTEM/catalogd-controller-manager",
    "PodDisruptionBudget SYSTEM/operator-controller-controller-manager",
    "ServiceAccount SYSTEM/catalogd-controller-manager",
    "ServiceAccount SYSTEM/operator-controller-controller-manager",
    "CustomResourceDefinition clustercatalogs.olm.operatorframework.io",
    "CustomResourceDefinition clusterextensions.olm.operatorframework.io",
    "CustomResourceDefinition clusterobjectsets.olm.operatorframework.io",
    "CustomResourceDefinition clusterupgradestatuses.ext.olm.operatorframework.io",
    "CustomResourceDefinition extensionplans.ext.olm.operatorframework.io",
    "ClusterRole catalogd-manager-role",
    "ClusterRole catalogd-metrics-reader",
    "ClusterRole catalogd-proxy-role",
    "ClusterRole operator-controller-clusterextension-viewer-role",
    "ClusterRole operator-controller-metrics-reader",
    "ClusterRole operator-controller-proxy-role",
    "ClusterRoleBinding catalogd-manager-rolebinding",
    "ClusterRoleBinding catalogd-proxy-rolebinding",
    "ClusterRoleBinding operator-controller-cluster-admin-rolebinding",
    "ClusterRoleBinding operator-controller-proxy-rolebinding",
    "Role SYSTEM/catalogd-manager-role",
    "Role SYSTEM/catalogd-leader-election-role",
    "Role SYSTEM/operator-controller-manager-role",
    "Role SYSTEM/operator-controller-leader-election-role",
    "RoleBinding SYSTEM/catalogd-manager-rolebinding",
    "RoleBinding SYSTEM/catalogd-leader-election-rolebinding",
    "RoleBinding SYSTEM/catalogd-pull-secrets",
    "RoleBinding SYSTEM/operator-controller-manager-rolebinding",
    "RoleBinding SYSTEM/operator-controller-leader-election-rolebinding",
    "Service SYSTEM/catalogd-service",
    "Service SYSTEM/operator-controller-service",
    "Deployment SYSTEM/catalogd-controller-manager",
    "Deployment SYSTEM/operator-controller-controller-manager",
    "MutatingWebhookConfiguration catalogd-mutating-webhook-configuration",
    "ValidatingAdmissionPolicy clusterextension-serviceaccount-deprecated",
    "ValidatingAdmissionPolicyBinding clusterextension-serviceaccount-deprecated",
    "ValidatingAdmissionPolicy clustercatalog-catalogd-writes",
    "ValidatingAdmissionPolicyBinding clustercatalog-catalogd-writes",
    "ValidatingAdmissionPolicy extensionplan-created-unapproved",
    "ValidatingAdmissionPolicyBinding extensionplan-created-unapproved",
];

/// Objects for cert-manager.
const CERTIFICATES: &[&str] = &[
    "Issuer cert-manager/self-sign-issuer",
    "Certificate cert-manager/olmv1-ca",
    "ClusterIssuer olmv1-ca",
    "Certificate SYSTEM/catalogd-service-cert",
    "Certificate SYSTEM/operator-controller-cert",
];

/// ClusterRoles and bindings that the reference's install script deletes.
const FORBIDDEN: [&str; 3] = [
    "ClusterRoleBinding operator-controller-manager-rolebinding",
    "ClusterRoleBinding operator-controller-manager-admin-rolebinding",
    "ClusterRole operator-controller-manager-role",
];

/// Identities with the namespaces of both servers replaced by `SYSTEM`.
fn identities(all: &[Value]) -> BTreeSet<String> {
    let namespaces = ["openshift-catalogd", "openshift-operator-controller", "olmv1-system"];
    let system = |identity: String| {
        namespaces.iter().fold(identity, |identity, name| identity.replace(&format!(" {name}/"), " SYSTEM/"))
    };
    all.iter().map(|object| system(identity(object))).collect()
}

// docs/design/operations.md#names-and-labels
#[test]
fn names_match_the_reference() {
    for file in INSTALLATIONS {
        let all = objects(file);
        let found = identities(&all);
        let deny = match file {
            "openshift.yaml" => {
                &["catalogd-default-deny-all-traffic", "operator-controller-default-deny-all-traffic"][..]
            }
            _ => &["default-deny-all-traffic"],
        };
        for name in deny {
            assert!(found.contains(&format!("NetworkPolicy SYSTEM/{name}")), "{file} has no {name}");
        }
        let wants_certificates = ["install-cert-manager.yaml", "experimental.yaml"].contains(&file);
        let expected = INVENTORY.iter().chain(CERTIFICATES.iter().filter(|_| wants_certificates));
        for name in expected {
            assert!(found.contains(*name), "{file} has no {name}");
        }
        for name in FORBIDDEN {
            assert!(!found.contains(name), "{file} has {name}");
        }
        if file != "openshift.yaml" {
            assert_eq!(all.len(), found.len(), "{file} has an object twice");
            named(&all, "Namespace", "olmv1-system");
        }
    }
    // The default install file contains no other objects, so that users see the same objects as with the reference.
    let known: BTreeSet<String> = INVENTORY.iter().map(|name| (*name).to_owned()).collect();
    let more: Vec<String> = identities(&objects("install.yaml")).difference(&known).cloned().collect();
    assert_eq!(more, ["Namespace olmv1-system", "NetworkPolicy SYSTEM/default-deny-all-traffic"]);
}

// docs/design/operations.md#variants, docs/design/operations.md#names-and-labels
#[test]
fn objects_have_labels_and_feature_set() {
    for file in INSTALLATIONS.into_iter().chain(ADDITIONS) {
        let expected = if file == "experimental.yaml" { "experimental" } else { "standard" };
        for object in objects(file) {
            let name = identity(&object);
            if object["kind"] == "CustomResourceDefinition" {
                assert_eq!(
                    text(&object, "/metadata/annotations/olm.operatorframework.io~1generator"),
                    "experimental",
                    "{name}"
                );
                assert!(object["metadata"].get("labels").is_none(), "{file}: {name}");
                continue;
            }
            if object["kind"] == "ClusterCatalog" {
                continue;
            }
            assert_eq!(text(&object, FEATURE_SET), expected, "{file}: {name}");
            assert_eq!(text(&object, "/metadata/labels/app.kubernetes.io~1part-of"), "olm", "{file}: {name}");
            let of = text(&object, "/metadata/labels/app.kubernetes.io~1name");
            assert!(
                ["olmv1", "catalogd", "operator-controller", "olm-console"].contains(&of),
                "{file}: {name}: {of}"
            );
            if object["kind"] == "Deployment" {
                assert_eq!(text(&object["spec"]["template"], FEATURE_SET), expected, "{file}: {name}");
            }
        }
    }
}

/// Gates of catalogd and of operator-controller in each install file, in order.
fn expected_gates() -> [(&'static str, Vec<String>, Vec<String>); 5] {
    let metas = "APIV1MetasHandler";
    let off = |names: &[&str]| names.iter().map(|name| format!("{name}=false")).collect::<Vec<_>>();
    let usual = ["BundleReleaseSupport", "DeploymentConfig", "SingleOwnNamespaceInstallSupport"];
    let builtin = [
        ["BoxcutterRuntime", "WebhookProviderBuiltin", "UpdateNotifications"]
            .map(|name| format!("{name}=true"))
            .to_vec(),
        off(&usual),
        off(&["WebhookProviderCertManager", "WebhookProviderOpenshiftServiceCA"]),
        vec!["StatusSummary=true".to_owned()],
    ]
    .concat();
    let of_catalogd =
        [format!("{metas}=true"), "GraphQLCatalogQueries=false".to_owned(), "StatusSummary=true".to_owned()];
    let certificates = |on: &str, other: &str| {
        [vec!["BoxcutterRuntime=true".to_owned(), format!("{on}=true")], off(&usual), off(&[other])].concat()
    };
    let all_on = ["BoxcutterRuntime", usual[0], usual[1], usual[2], "WebhookProviderCertManager"];
    let experimental = all_on
        .iter()
        .map(|name| format!("{name}=true"))
        .chain(off(&["WebhookProviderOpenshiftServiceCA"]))
        .collect::<Vec<_>>();
    let (cert_manager, openshift) = ("WebhookProviderCertManager", "WebhookProviderOpenshiftServiceCA");
    [
        ("install.yaml", of_catalogd.to_vec(), builtin.clone()),
        ("hardened.yaml", of_catalogd.to_vec(), builtin),
        ("install-cert-manager.yaml", off(&[metas]), certificates(cert_manager, openshift)),
        (
            "experimental.yaml",
            vec![format!("{metas}=true"), "GraphQLCatalogQueries=true".to_owned()],
            experimental,
        ),
        ("openshift.yaml", off(&[metas]), certificates(openshift, cert_manager)),
    ]
}

/// Args of a server before and after its gates.
fn other_args(file: &str, server: &str) -> [Vec<String>; 2] {
    let catalogd_namespace = if file == "openshift.yaml" { "openshift-catalogd" } else { "olmv1-system" };
    let address = format!("--external-address=catalogd-service.{catalogd_namespace}.svc");
    let head: Vec<&str> = match server {
        "catalogd" => vec!["--leader-elect", "--metrics-bind-address=:7443", &address],
        _ => vec!["--health-probe-bind-address=:8081", "--metrics-bind-address=:8443", "--leader-elect"],
    };
    let pair = ["--tls-cert=/var/certs/tls.crt", "--tls-key=/var/certs/tls.key"];
    let cas = (server == "operator-controller").then_some("--catalogd-cas-dir=/var/ca-certs");
    let tail: Vec<&str> = match file {
        "install.yaml" | "hardened.yaml" => {
            vec!["--cert-management=builtin", "--pull-cas-dir=/var/pull-cas"]
        }
        "openshift.yaml" => pair
            .into_iter()
            .chain(cas)
            .chain(["--v=${LOG_VERBOSITY}", "--global-pull-secret=openshift-config/pull-secret"])
            .collect(),
        _ => pair.into_iter().chain(cas).chain(["--pull-cas-dir=/var/ca-certs"]).collect(),
    };
    let of_catalogd = (file == "openshift.yaml").then_some("--catalogd-namespace=openshift-catalogd");
    let tail = [tail, of_catalogd.filter(|_| cas.is_some()).into_iter().collect()].concat();
    [head, tail].map(|args| args.into_iter().map(str::to_owned).collect())
}

// docs/design/operations.md#arguments; case operations-a3
#[test]
fn args_have_the_order_of_the_reference_with_one_arg_per_gate() {
    let gate = Regex::new("^--feature-gates=([[:alnum:]]+)=(true|false)$").unwrap();
    for (file, of_catalogd, of_operator_controller) in expected_gates() {
        let all = objects(file);
        for (server, expected) in SERVERS.into_iter().zip([of_catalogd, of_operator_controller]) {
            let args = strings(&container(deployment(&all, server))["args"]);
            let found: Vec<String> = args
                .iter()
                .filter(|arg| arg.starts_with("--feature-gates"))
                .map(|arg| {
                    let parts = gate.captures(arg).unwrap_or_else(|| panic!("{file}: {arg}"));
                    format!("{}={}", &parts[1], &parts[2])
                })
                .collect();
            assert_eq!(found, expected, "{file}: {server}");
            assert!(args.iter().all(|arg| arg.starts_with("--")), "{file}: one arg per option: {args:?}");
            assert!(
                !args.iter().any(|arg| arg.starts_with("--tls-profile") || arg.starts_with("--tls-custom"))
            );

            let [head, tail] = other_args(file, server);
            let gates =
                args.iter().filter(|arg| arg.starts_with("--feature-gates")).map(|arg| (*arg).to_owned());
            let others: Vec<&str> =
                args.iter().filter(|arg| !arg.starts_with("--leader-elect-")).copied().collect();
            assert_eq!(others, [head, gates.collect(), tail].concat(), "{file}: {server}");
            // A new leader takes over within 35 s,
            // docs/design/architecture.md#gates-and-certificates-per-install-file.
            let timing: Vec<&str> =
                args.iter().filter(|arg| arg.starts_with("--leader-elect-")).copied().collect();
            assert_eq!(
                timing,
                [
                    "--leader-elect-lease-duration=30s",
                    "--leader-elect-renew-deadline=24s",
                    "--leader-elect-retry-period=3s"
                ]
            );
        }
    }
}

// docs/design/operations.md#pods
#[test]
fn deployments_match_the_reference() {
    for file in INSTALLATIONS {
        let all = objects(file);
        let replicas = if ["experimental.yaml", "openshift.yaml"].contains(&file) { 2 } else { 1 };
        for server in SERVERS {
            let found = deployment(&all, server);
            let control_plane = format!("{server}-controller-manager");
            assert_eq!(found["spec"]["replicas"], replicas, "{file}");
            assert_eq!(found["spec"]["selector"], json!({"matchLabels": {"control-plane": control_plane}}));
            assert_eq!(
                found["spec"]["template"]["metadata"]["labels"],
                json!({"control-plane": control_plane, "app.kubernetes.io/name": server,
                    "app.kubernetes.io/part-of": "olm"})
            );
            assert_eq!(
                found["spec"]["strategy"],
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
            );
            let container = container(found);
            assert_eq!(container["name"], "manager");
            let command = if server == "catalogd" { "./catalogd" } else { "/operator-controller" };
            assert_eq!(container["command"], json!([command]));
            assert_eq!(container["image"], format!("olm.example/{server}:devel"));
            // No CPU limit: throttled probes would restart a server.
            let [cpu, memory] = if server == "catalogd" { ["100m", "200Mi"] } else { ["10m", "64Mi"] };
            assert_eq!(
                container["resources"],
                json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": "512Mi"}}),
                "{file}: {server}"
            );
            for (probe, at) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
                assert_eq!(container[probe]["httpGet"], json!({"path": at, "port": 8081}));
            }
            assert_eq!(
                container["securityContext"],
                json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]}})
            );
            let pod = &found["spec"]["template"]["spec"];
            assert_eq!(
                pod["securityContext"]["runAsUser"], 65532,
                "{file}: runAsUser must be a number for runAsNonRoot"
            );
            assert_eq!(pod["serviceAccountName"], control_plane);
            // Every mount has its volume, and every volume a mount.
            let names = |list: &Value| -> BTreeSet<String> {
                list.as_array().unwrap().iter().map(|item| text(item, "/name").to_owned()).collect()
            };
            assert_eq!(names(&pod["volumes"]), names(&container["volumeMounts"]), "{file}: {server}");
            // One pod at a time may be evicted, even a single replica.
            let budget = named(&all, "PodDisruptionBudget", &control_plane);
            assert_eq!(
                budget["spec"],
                json!({"maxUnavailable": 1, "minAvailable": null, "unhealthyPodEvictionPolicy": "AlwaysAllow",
                    "selector": {"matchLabels": {"control-plane": control_plane}}})
            );
        }
    }
}

// docs/design/operations.md#architectures
#[test]
fn deployments_have_affinity_for_exactly_the_architectures_of_images() {
    let table = std::fs::read_to_string(olm_manifests::path("../hack/architectures")).unwrap();
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    let built: Vec<&str> = rows.filter_map(|row| row.split_whitespace().next()).collect();
    let terms = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/\
                 nodeSelectorTerms";
    let architectures = json!({"key": "kubernetes.io/arch", "operator": "In", "values": built});
    let linux = json!({"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]});
    let expected = json!([{ "matchExpressions": [architectures, linux] }]);
    for file in INSTALLATIONS.into_iter().chain(["console.yaml"]) {
        let all = objects(file);
        let deployments = of_kind(&all, "Deployment");
        assert!(!deployments.is_empty(), "{file}");
        for deployment in deployments {
            assert_eq!(deployment.pointer(terms), Some(&expected), "{file}: {}", identity(deployment));
        }
    }
}

// docs/design/operations.md#admission-policies
#[test]
fn deprecation_message_matches_the_reference() {
    for file in INSTALLATIONS {
        let all = objects(file);
        let policy = named(&all, "ValidatingAdmissionPolicy", "clusterextension-serviceaccount-deprecated");
        assert_eq!(
            policy["spec"]["validations"][0]["message"],
            "spec.serviceAccount is deprecated, ignored, and will be removed in a future release. The \
             operator-controller's cluster-admin service account is used for all cluster interactions."
        );
    }
}

#[test]
fn default_catalog_matches_the_reference() {
    assert_eq!(
        objects("default-catalogs.yaml"),
        [json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": "operatorhubio"},
            "spec": {"source": {"type": "Image", "image":
                {"ref": "quay.io/operatorhubio/catalog:latest", "pollIntervalMinutes": 10}}}})]
    );
}

// docs/design/operations.md#metric-names
#[test]
fn monitoring_scrapes_both_servers_and_has_valid_alerts() {
    for (file, certificates) in [
        ("monitoring.yaml", ["catalogd-service-cert", "operator-controller-service-cert"]),
        ("monitoring-cert-manager.yaml", ["catalogd-service-cert-git-version", "operator-controller-cert"]),
    ] {
        let all = objects(file);
        for (server, certificate) in SERVERS.into_iter().zip(certificates) {
            let monitor = named(&all, "ServiceMonitor", &format!("{server}-metrics-monitor"));
            assert_eq!(monitor["spec"]["selector"]["matchLabels"], json!({"app.kubernetes.io/name": server}));
            let endpoint = &monitor["spec"]["endpoints"][0];
            assert_eq!((&endpoint["port"], &endpoint["path"]), (&json!("metrics"), &json!("/metrics")));
            assert_eq!(
                endpoint["tlsConfig"],
                json!({"serverName": format!("{server}-service.olmv1-system.svc"),
                    "ca": {"secret": {"name": certificate, "key": "ca.crt"}}})
            );
        }
        let rules = named(&all, "PrometheusRule", "olmv1-alerts");
        let alerts: Vec<&Value> = rules["spec"]["groups"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|group| group["rules"].as_array().unwrap())
            .collect();
        let mut names = BTreeSet::new();
        for alert in &alerts {
            assert!(names.insert(text(alert, "/alert")), "{alert}");
            let expression = text(alert, "/expr");
            let balanced = |open: char, close: char| {
                expression.matches(open).count() == expression.matches(close).count()
            };
            assert!(balanced('(', ')') && balanced('{', '}') && balanced('[', ']'), "{expression}");
            assert!(!text(alert, "/annotations/summary").is_empty(), "{alert}");
            assert!(["critical", "warning", "info"].contains(&text(alert, "/labels/severity")), "{alert}");
        }
        assert_eq!(alerts.len(), 15);
    }
}
