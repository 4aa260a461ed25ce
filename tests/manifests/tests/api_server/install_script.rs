//! `manifests/install.sh` on a real API server. No pods run: the tests write the status of Deployments.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use olm_control_plane::{HOUSEKEEPING, Options};
use olm_manifests::{container, identity, named, of_kind, path, strings, text};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Server;

/// The script with the kubectl of the test, which is `kubectl` in its PATH.
pub(super) struct Script {
    programs: TempDir,
    kubeconfig: String,
}

/// Result of a run.
#[derive(Debug)]
pub(super) struct Run {
    code: i32,
    pub(super) printed: String,
    pub(super) said: String,
}

impl Run {
    /// Fails unless the exit code is 0. Returns standard output.
    #[track_caller]
    pub(super) fn succeeded(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.printed
    }

    /// Fails unless the exit code is 1. Returns standard error.
    #[track_caller]
    pub(super) fn failed(self) -> String {
        assert_eq!(self.code, 1, "{self:?}");
        self.said
    }
}

impl Script {
    pub(super) fn of(server: &Server) -> Self {
        let script = Self {
            programs: tempfile::tempdir().unwrap(),
            kubeconfig: server.plane.kubeconfig().to_str().unwrap().to_owned(),
        };
        script.write_kubectl(server, r#"kubectl "$@""#);
        script
    }

    /// Script whose kubectl is this shell script. `kubectl` in the text is the real one.
    fn with_kubectl(server: &Server, text: &str) -> Self {
        let script = Self::of(server);
        script.write_kubectl(server, text);
        script
    }

    fn write_kubectl(&self, server: &Server, text: &str) {
        let file = self.programs.path().join("kubectl");
        let kubectl = server.plane.kubectl().unwrap();
        let line: Vec<_> = [kubectl.get_program()].into_iter().chain(kubectl.get_args()).collect();
        let real = format!("kubectl() {{ {} \"$@\"; }}", line.join(OsStr::new(" ")).display());
        std::fs::write(&file, format!("#!/usr/bin/env bash\n{real}\n{text}\n")).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    }

    pub(super) fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Run {
        let mut command = Command::new("bash");
        command.arg(path("install.sh")).args(arguments);
        let programs = format!("{}:{}", self.programs.path().display(), std::env::var("PATH").unwrap());
        command.env("PATH", programs).env("KUBECONFIG", &self.kubeconfig);
        command.env("INSTALL_DEFAULT_CATALOGS", "false").envs(environment.iter().copied());
        let output = command.output().unwrap();
        let string = |bytes| String::from_utf8(bytes).unwrap();
        Run {
            code: output.status.code().unwrap(),
            printed: string(output.stdout),
            said: string(output.stderr),
        }
    }

    /// Objects that the script would apply.
    fn dry_run(&self, arguments: &[&str]) -> (String, Vec<Value>) {
        let printed = self.run(&[&["--dry-run"], arguments].concat(), &[]).succeeded();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&printed).unwrap();
        (printed, objects.into_iter().filter(|object| !object.is_null()).collect())
    }
}

/// Sets the status of the Deployments to rolled out.
fn finish_rollouts(server: &Server, namespace: &str) {
    let status = json!({"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1,
        "readyReplicas": 1, "availableReplicas": 1}});
    for name in ["catalogd-controller-manager", "operator-controller-controller-manager"] {
        let patch = ["patch", "deployment", name, "--subresource", "status", "--type", "merge", "-p"];
        server
            .kubectl(&[&["--namespace", namespace], &patch[..], &[status.to_string().as_str()]].concat(), "");
    }
}

fn exists(server: &Server, kind: &str, name: &str) -> bool {
    !server.kubectl(&["get", kind, name, "--ignore-not-found", "--output", "name"], "").is_empty()
}

// docs/design/operations.md#install-script
#[test]
fn wrong_usage_fails_with_its_reason() {
    let programs = tempfile::tempdir().unwrap();
    let missing = programs.path().join("missing").to_str().unwrap().to_owned();
    let script = Script { programs, kubeconfig: missing.clone() };
    let unreadable = format!("Error: cannot read {missing}");
    assert!(script.run(&["-h"], &[]).succeeded().starts_with("usage: install.sh [-n NAMESPACE]"));
    for (arguments, environment, said) in [
        (&["--bogus"][..], &[][..], "Unknown option --bogus"),
        (&["olm"], &[], "Unknown option olm"),
        (&["-n"], &[], "Error: -n needs a value"),
        (&["--variant", "openshift"], &[], "Error: unknown variant openshift; use install, hardened,"),
        (&["-n", "kube-system"], &[], "Error: namespace kube-system is not allowed:"),
        (&["-n", "a/b"], &[], "Error: invalid namespace name: a/b"),
        (&["--purge"], &[], "Error: --purge requires --uninstall"),
        (&[], &[("MANIFEST", "")], "Error: Missing required MANIFEST variable"),
        (&[], &[("MANIFEST", &missing)], &unreadable),
    ] {
        let message = script.run(arguments, environment).failed();
        assert!(message.starts_with(said), "{arguments:?}: {message}");
    }
}

// Case operations-a29
#[tokio::test(flavor = "multi_thread")]
async fn namespace_option_replaces_every_reference_to_the_namespace() {
    let server = Server::start().await;
    let script = Script::of(&server);
    for variant in ["install", "hardened", "install-cert-manager", "experimental"] {
        let (printed, all) = script.dry_run(&["-n", "other", "--variant", variant]);
        assert!(!printed.contains("olmv1-system"), "{variant}");
        assert_eq!(all.len(), olm_manifests::objects(&format!("{variant}.yaml")).len(), "{variant}");
        named(&all, "Namespace", "other");
        for object in &all {
            let namespace = text(object, "/metadata/namespace");
            let of_cert_manager = text(object, "/apiVersion").starts_with("cert-manager.io/");
            assert!(
                ["", "other"].contains(&namespace) || (of_cert_manager && namespace == "cert-manager"),
                "{variant}: {}",
                identity(object)
            );
        }
        for kind in ["ClusterRoleBinding", "RoleBinding"] {
            for binding in of_kind(&all, kind) {
                for subject in binding["subjects"].as_array().unwrap() {
                    assert_eq!(subject["namespace"], "other", "{variant}: {}", identity(binding));
                }
            }
        }
        let webhook = named(&all, "MutatingWebhookConfiguration", "catalogd-mutating-webhook-configuration");
        assert_eq!(webhook["webhooks"][0]["clientConfig"]["service"]["namespace"], "other", "{variant}");
        let catalogd = named(&all, "Deployment", "catalogd-controller-manager");
        let address = "--external-address=catalogd-service.other.svc";
        assert!(strings(&container(catalogd)["args"]).contains(&address), "{variant}");
        for policy in of_kind(&all, "NetworkPolicy") {
            // Rules for the own namespace must not contain its name.
            assert!(!policy["spec"].to_string().contains("kubernetes.io/metadata.name"), "{variant}");
        }
        let certificates: Vec<String> = of_kind(&all, "Certificate")
            .into_iter()
            .flat_map(|certificate| strings(&certificate["spec"]["dnsNames"]))
            .map(str::to_owned)
            .collect();
        let names = [
            "localhost",
            "catalogd-service.other.svc",
            "catalogd-service.other.svc.cluster.local",
            "operator-controller-service.other.svc",
            "operator-controller-service.other.svc.cluster.local",
        ];
        let expected = if ["install", "hardened"].contains(&variant) { &[][..] } else { &names };
        assert_eq!(certificates, expected, "{variant}");
    }
    let (_, all) = script.dry_run(&[]);
    assert_eq!(all, olm_manifests::objects("install.yaml"));
    let catalogs = script.run(&["--dry-run"], &[("INSTALL_DEFAULT_CATALOGS", "true")]).succeeded();
    assert!(catalogs.contains("name: operatorhubio"));
    assert!(!exists(&server, "namespace", "other"), "the dry run created the namespace");
}

// docs/design/operations.md#install-script; case operations-a27(4, 5, 6)
#[tokio::test(flavor = "multi_thread")]
async fn install_script_is_idempotent_and_rejects_a_second_installation() {
    let server = Server::start().await;
    let script = Script::of(&server);
    let role = ["create", "clusterrole", "operator-controller-manager-role", "--verb=*", "--resource=pods"];
    server.kubectl(&role, "");
    // No kubelet starts the pods.
    let said = script.run(&["-n", "other"], &[("SERVER_WAIT_TIMEOUT", "1s")]).failed();
    assert!(said.contains("Error: not ready in time; docs/troubleshooting.md"), "{said}");
    assert!(said.contains("No resources found in other namespace"), "the pods: {said}");
    assert!(
        !exists(&server, "clusterrole", "operator-controller-manager-role"),
        "role of an older installation"
    );

    finish_rollouts(&server, "other");
    let (_, all) = script.dry_run(&["-n", "other"]);
    let versions = async || {
        let mut versions = Vec::new();
        for object in &all {
            versions.push(server.get(object).await["metadata"].clone());
        }
        versions
    };
    let before = versions().await;
    for _ in 0..2 {
        let printed = script.run(&["-n", "other"], &[]).succeeded();
        assert!(
            printed.contains("deployment.apps/catalogd-controller-manager serverside-applied"),
            "{printed}"
        );
        for name in ["catalogd", "operator-controller"] {
            let done = format!("deployment \"{name}-controller-manager\" successfully rolled out");
            assert!(printed.contains(&done), "{printed}");
        }
    }
    assert_eq!(versions().await, before, "the second run changed objects");
    for metadata in before {
        let managers: Vec<&str> = metadata["managedFields"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| text(entry, "/manager"))
            .collect();
        assert!(managers.contains(&"olmv1-install"), "{}: {managers:?}", metadata["name"]);
    }

    // The script waits for the catalogs of the file.
    let kubectl = r#"case "$*" in */mine.yaml*) echo "$*" ;; *) kubectl "$@" ;; esac"#;
    let catalogs = [("INSTALL_DEFAULT_CATALOGS", "true"), ("DEFAULT_CATALOG", "/catalogs/mine.yaml")];
    let printed = Script::with_kubectl(&server, kubectl).run(&["-n", "other"], &catalogs).succeeded();
    assert!(
        printed.ends_with("wait -f /catalogs/mine.yaml --for condition=Serving --timeout 60s\n"),
        "{printed}"
    );

    // An installation in another namespace is rejected.
    let said = script.run(&[], &[]).failed();
    let others = "other/catalogd-controller-manager other/operator-controller-controller-manager";
    assert_eq!(said, format!("Error: OLM is installed in another namespace: {others}\n"));
}

// docs/design/operations.md#install-script: objects applied by any version of kubectl apply are adopted.
#[tokio::test(flavor = "multi_thread")]
async fn installation_of_the_reference_is_adopted() {
    let server = Server::start().await;
    let script = Script::of(&server);
    server.apply(&path("crds"), &[]);
    server.apply(&super::data("reference-installation.yaml"), &[]);
    script.run(&[], &[("SERVER_WAIT_TIMEOUT", "1s")]).failed();
    for deployment in of_kind(&olm_manifests::objects("install.yaml"), "Deployment") {
        let stored = server.get(deployment).await;
        for at in ["/spec/template/spec/volumes", "/spec/template/spec/containers/0/volumeMounts"] {
            let names = |object: &Value| -> Vec<String> {
                object
                    .pointer(at)
                    .unwrap()
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|item| text(item, "/name").to_owned())
                    .collect()
            };
            assert_eq!(names(&stored), names(deployment), "{}", identity(deployment));
        }
    }
}

// docs/design/operations.md#install-script
#[tokio::test(flavor = "multi_thread")]
async fn preconditions_are_checked_before_any_change() {
    let server = Server::start().await;
    let old = r#"if [ "$*" = "get --raw /version" ]; then echo '{"major": "1", "minor": "29+"}'; else kubectl "$@"; fi"#;
    for (kubectl, said) in [
        ("kubectl --as somebody \"$@\"", "cluster-admin permissions are required"),
        (old, "Kubernetes 1.30 or newer is required; this cluster runs 1.29"),
    ] {
        let message = Script::with_kubectl(&server, kubectl).run(&[], &[]).failed();
        assert_eq!(message, format!("Error: {said}\n"));
    }
    let script = Script::of(&server);
    let message = script.run(&["--variant", "experimental"], &[]).failed();
    assert_eq!(
        message,
        "Error: Missing CERT_MGR_MANIFEST variable: cert-manager is not installed; set it to a file or URL\n"
    );
    assert!(!exists(&server, "namespace", "olmv1-system"));

    server.apply(&path("crds"), &[]);
    let of_helm =
        ["annotate", "crd", "clustercatalogs.olm.operatorframework.io", "meta.helm.sh/release-name=olmv1"];
    server.kubectl(&of_helm, "");
    let message = script.run(&[], &[]).failed();
    assert_eq!(
        message,
        "Error: the CRDs of OLM are managed by olmv1, which would revert changes; upgrade OLM with olmv1 instead\n"
    );
}

// A Deployment in another namespace cannot block an installation, and the script uses no existing namespace without
// OLM's label.
#[tokio::test(flavor = "multi_thread")]
async fn namespace_without_the_label_of_olm_is_rejected() {
    let server = Server::start().await;
    let script = Script::of(&server);
    let (name, label) = ("catalogd-controller-manager", "app.kubernetes.io/part-of=olm");
    server.kubectl(&["create", "namespace", "tenant"], "");
    server.kubectl(&["create", "deployment", name, "--image", "r.example/x:v1", "--namespace", "tenant"], "");
    server.kubectl(&["label", "deployment", name, label, "--namespace", "tenant"], "");
    for arguments in [&[][..], &["--dry-run"], &["--uninstall"], &["--uninstall", "--purge", "--dry-run"]] {
        let said = script.run(&[&["-n", "tenant"], arguments].concat(), &[]).failed();
        assert_eq!(
            said,
            "Error: namespace tenant exists without the label app.kubernetes.io/part-of=olm. The network policies of OLM \
             would deny the traffic of its pods, and --uninstall would delete it. Choose another namespace with -n, or \
             label this one: kubectl label namespace tenant app.kubernetes.io/part-of=olm\n",
            "{arguments:?}"
        );
    }
    script.dry_run(&[]);

    server.kubectl(&["label", "namespace", "tenant", label], "");
    script.dry_run(&["-n", "tenant"]);
    let said = script.run(&["--dry-run"], &[]).failed();
    assert_eq!(said, format!("Error: OLM is installed in another namespace: tenant/{name}\n"));
}

/// Objects of cert-manager that the script checks.
fn cert_manager(server: &Server) -> Value {
    let deployment = |name: &str| {
        let container = json!({"name": "manager", "image": "r.example/x:v1"});
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "cert-manager"},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template":
                {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}}})
    };
    let authority = [
        "config",
        "view",
        "--raw",
        "--flatten",
        "-o",
        "jsonpath={.clusters[0].cluster.certificate-authority-data}",
    ];
    let authority = server.kubectl(&authority, "");
    let webhook = |kind: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "cert-manager-webhook"},
            "webhooks": [{"name": "webhook.cert-manager.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"url": "https://127.0.0.1:1/", "caBundle": authority}}]})
    };
    json!({"apiVersion": "v1", "kind": "List", "items": [
        deployment("cert-manager-webhook"), deployment("cert-manager-cainjector"), deployment("cert-manager"),
        webhook("MutatingWebhookConfiguration"), webhook("ValidatingWebhookConfiguration"),
    ]})
}

// docs/design/operations.md#install-script(1, 2)
#[tokio::test(flavor = "multi_thread")]
async fn cert_manager_is_awaited_or_installed_for_variants_that_need_it() {
    let server = Server::start().await;
    let script = Script::of(&server);
    let manifest = script.programs.path().join("cert-manager.json");
    std::fs::write(&manifest, cert_manager(&server).to_string()).unwrap();
    server.kubectl(&["apply", "-f", manifest.to_str().unwrap()], "");
    let available = json!({"status": {"conditions": [{"type": "Available", "status": "True"}]}}).to_string();
    for name in ["cert-manager-webhook", "cert-manager-cainjector", "cert-manager"] {
        let patch =
            ["patch", "deployment", name, "--subresource", "status", "--type", "merge", "-p", &available];
        server.kubectl(&[&["--namespace", "cert-manager"], &patch[..]].concat(), "");
    }
    let arguments = ["--variant", "install-cert-manager"];
    let run = script.run(&arguments, &[("SERVER_WAIT_TIMEOUT", "1s")]);
    for line in [
        "cert-manager is already installed, skipping installation",
        "deployment.apps/cert-manager-webhook condition met",
        "deployment.apps/cert-manager condition met",
        "certificate.cert-manager.io/catalogd-service-cert serverside-applied",
    ] {
        assert!(run.printed.contains(line), "{run:?}");
    }
    // A missing cert-manager is installed first.
    server.kubectl(&["--namespace", "cert-manager", "delete", "deployment", "cert-manager-cainjector"], "");
    let own = ["--variant", "install-cert-manager", "--no-cert-manager"];
    let printed = script.run(&own, &[("SERVER_WAIT_TIMEOUT", "1s")]).printed;
    assert!(!printed.contains("cert-manager-webhook"), "{printed}");
    let kubectl = r#"case "$*" in *wait*) echo "$*" >&2 && exit 1 ;; *) kubectl "$@" ;; esac"#;
    let impatient = Script::with_kubectl(&server, kubectl);
    let run = impatient.run(&arguments, &[("CERT_MGR_MANIFEST", manifest.to_str().unwrap())]);
    assert!(run.printed.contains("deployment.apps/cert-manager-cainjector created"), "{run:?}");
    let waited =
        "-n cert-manager wait deployment/cert-manager-webhook --for condition=Available --timeout 60s\n";
    assert_eq!(run.failed(), waited);
}

// Without ---, kubectl 1.30 parses these as JSON.
const EXTENSION: &str = "---
{apiVersion: olm.operatorframework.io/v1, kind: ClusterExtension, metadata: {name: pipe},
    spec: {namespace: default, source: {sourceType: Catalog, catalog: {packageName: pipe}}}}";
const CATALOG: &str = "---
{apiVersion: olm.operatorframework.io/v1, kind: ClusterCatalog, metadata: {name: hub},
    spec: {source: {type: Image, image: {ref: r.example/hub:v1}}}}";

/// Names of the objects that exist.
fn existing(server: &Server, objects: &[Value]) -> Vec<String> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let names = server.kubectl(&["get", "-f", "-", "--ignore-not-found", "-o", "name"], &list.to_string());
    names.lines().map(str::to_owned).collect()
}

/// First Secret of the backup of a migration.
const BACKUP: &str = "{apiVersion: v1, kind: Secret, metadata: {name: olm-migrate-ns.lamp, namespace: olmv1-system, \
    labels: {ext.olm.operatorframework.io/migration: lamp, ext.olm.operatorframework.io/migration-namespace: ns}, \
    annotations: {ext.olm.operatorframework.io/migration-digest: 'sha256:0'}}}";

// docs/design/operations.md#upgrade-and-removal
#[tokio::test(flavor = "multi_thread")]
async fn uninstall_deletes_what_the_script_installed() {
    let server = Server::start_with(Options { controllers: HOUSEKEEPING }).await;
    let script = Script::of(&server);
    let create = |object: &str| drop(server.kubectl(&["create", "-f", "-"], object));
    server.apply(&path("crds"), &["--server-side"]);
    // Later no catalogd runs to admit it.
    create(CATALOG);
    script.run(&[], &[("SERVER_WAIT_TIMEOUT", "1s")]).failed();
    create(EXTENSION);

    let said = script.run(&["--uninstall"], &[]).failed();
    let extension = "clusterextension.olm.operatorframework.io/pipe";
    assert_eq!(
        said,
        format!(
            "Error: uninstall these first, or delete them and all their objects with --purge: {extension}\n"
        )
    );
    let printed = script.run(&["--uninstall", "--purge", "--dry-run"], &[]).succeeded();
    for name in ["clusterextension.olm.operatorframework.io \"pipe\"", "namespace \"olmv1-system\""] {
        assert!(printed.contains(&format!("{name} deleted (server dry run)")), "{printed}");
    }
    assert!(exists(&server, "clusterextension", "pipe") && exists(&server, "clustercatalog", "hub"));

    server.kubectl(&["delete", "clusterextension", "pipe"], "");
    create(BACKUP);
    for arguments in [&["--uninstall"][..], &["--uninstall", "--purge", "--dry-run"]] {
        let said = script.run(arguments, &[]).failed();
        let why = "Error: the only backup of an unfinished migration would be deleted: ns/lamp; finish the migration \
                   first: ";
        assert!(said.starts_with(why), "{said}");
    }
    let complete = "ext.olm.operatorframework.io/migration-complete=true";
    server.kubectl(&["annotate", "secret", "olm-migrate-ns.lamp", complete, "-n", "olmv1-system"], "");
    let printed = script.run(&["--uninstall"], &[]).succeeded();
    assert!(!printed.contains("customresourcedefinition"), "{printed}");
    let crds: Vec<String> = [
        "clustercatalogs.olm",
        "clusterextensions.olm",
        "clusterobjectsets.olm",
        "clusterupgradestatuses.ext.olm",
        "extensionplans.ext.olm",
    ]
    .map(|name| format!("customresourcedefinition.apiextensions.k8s.io/{name}.operatorframework.io"))
    .into();
    let all = olm_manifests::objects("install.yaml");
    assert_eq!(existing(&server, &all), crds);
    assert!(!exists(&server, "clustercatalog", "hub"));

    create(EXTENSION);
    script.run(&["--uninstall", "--purge"], &[]).succeeded();
    assert_eq!(existing(&server, &all), [""; 0]);
    // The second run has nothing to delete.
    script.run(&["--uninstall", "--purge"], &[]).succeeded();
}
