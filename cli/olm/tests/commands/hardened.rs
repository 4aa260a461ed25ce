//! Upgrade of an installation of v0.1.0 with `hardened.yaml`, whose operator-controller writes Secrets and workloads in
//! all namespaces, with real servers and extensions.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use olm_control_plane::{HOUSEKEEPING, eventually};
use olm_servers::{Bundle, Catalog, NAMESPACE, Programs, Server, ServerFixture, Workloads, extension};
use serde_json::{Value, json};

use crate::fixture::{Ran, olm_in, tests};

const ACCOUNT: &str = "operator-controller-controller-manager";
/// Packages, each in a namespace of its name.
const PACKAGES: [&str; 3] = ["lamp", "stove", "tide"];

struct Installation {
    servers: ServerFixture,
    _workloads: Workloads,
    _running: [Server; 2],
}

/// Bundle with a ClusterRole for its own API. That of `stove` reads all Secrets, too, and `tide` has a token Secret and a
/// ClusterRole that writes webhooks, which v0.1.0 permitted.
fn bundle(package: &str, version: &str) -> Bundle {
    let bundle = Bundle::sample(package, version);
    if package == "tide" {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": "tide-token", "annotations": {"kubernetes.io/service-account.name": "tide"}}});
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "tide-webhooks", "labels": {"version": version}}, "rules": [webhooks()]});
        return bundle.manifest("token.yaml", secret).manifest("webhooks.yaml", role);
    }
    if package != "stove" {
        return bundle;
    }
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "stove-reader"}, "rules": [rule]});
    bundle.manifest("reader.yaml", role)
}

/// Rule that changes webhook configurations.
fn webhooks() -> Value {
    json!({"apiGroups": ["admissionregistration.k8s.io"], "resources": ["validatingwebhookconfigurations"],
        "verbs": ["get", "patch"]})
}

impl Installation {
    async fn start() -> Self {
        let olm = Path::new(env!("CARGO_BIN_EXE_olm"));
        let programs = Programs::beside(olm.with_file_name("operator-controller")).unwrap();
        let servers = ServerFixture::start_without_controllers(programs).await.unwrap();
        let controllers = [HOUSEKEEPING, &["clusterrole-aggregation-controller"]].concat();
        servers.plane.start_controllers(&controllers).unwrap();
        let kubectl = |args: &[&str]| {
            let output = servers.plane.kubectl().unwrap().args(args).output().unwrap();
            assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        kubectl(&["label", "namespace", NAMESPACE, "app.kubernetes.io/part-of=olm"]);
        kubectl(&["apply", "--server-side", "-f", tests("data/hardened-v0.1.0.yaml").to_str().unwrap()]);
        let deployments =
            Self::file(&servers, "v0.1.0", |document| document.contains("\nkind: Deployment\n"));
        kubectl(&["apply", "--server-side", "-f", deployments.to_str().unwrap()]);
        for package in PACKAGES {
            servers.create_namespace(package).await.unwrap();
            // As an administrator has granted them.
            let group = Bundle::new(package, "1.0.0").group();
            let label = json!({"ext.olm.operatorframework.io/aggregate-to-operator-controller": "true"});
            let own = json!({"apiGroups": [group], "resources": ["*"], "verbs": ["get", "list", "watch"]});
            let rules = if package == "tide" { json!([own, webhooks()]) } else { json!([own]) };
            let role = json!({"metadata": {"name": package, "labels": label}, "rules": rules});
            let roles: Api<ClusterRole> = Api::all(servers.client());
            roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
        }
        let workloads = Workloads::start(servers.client());
        let catalogd = servers.start_catalogd().await.unwrap();
        let controller = Self::controller(&servers).await;
        for package in PACKAGES {
            let bundles =
                ["1.0.0", "1.1.0"].map(|version| servers.publish(&bundle(package, version)).unwrap());
            servers.serve(package, &Catalog::default().chain(&bundles)).await.unwrap();
            let object = serde_json::from_value(extension(package, package, package, Some("1.0.0"))).unwrap();
            servers.extensions().create(&PostParams::default(), &object).await.unwrap();
        }
        Self { servers, _workloads: workloads, _running: [catalogd, controller] }
    }

    /// Some objects of `hardened.yaml` with images of a version on loopback.
    fn file(servers: &ServerFixture, version: &str, is_kept: impl Fn(&str) -> bool) -> PathBuf {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/hardened.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        let kept: Vec<&str> = text.split("\n---\n").filter(|document| is_kept(document)).collect();
        let text = kept.join("\n---\n").replace("olm.example/", "127.0.0.1:9/");
        std::fs::create_dir_all(servers.file(version)).unwrap();
        let file = servers.file(version).join("hardened.yaml");
        std::fs::write(&file, text.replace(":devel", &format!(":{version}"))).unwrap();
        file
    }

    /// operator-controller with the rights of its ServiceAccount.
    async fn controller(servers: &ServerFixture) -> Server {
        let text = std::fs::read_to_string(servers.proxy.kubeconfig()).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config["users"][0]["user"]["as"] = json!(format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}"));
        let path = servers.file(ACCOUNT);
        std::fs::write(&path, config.to_string()).unwrap();
        let mut controller =
            servers.launch_controller(&[&format!("--kubeconfig={}", path.display())]).unwrap();
        controller.ready().await.unwrap();
        controller
    }

    async fn olm(&self, args: &[&str]) -> Ran {
        let mut command = olm_in(&self.servers.file(""), args);
        command.arg("--kubeconfig").arg(self.servers.plane.kubeconfig());
        tokio::task::spawn_blocking(move || Ran::from(command.output().unwrap())).await.unwrap()
    }

    /// Changes an object of each extension, and waits until operator-controller has repaired it.
    async fn objects_are_repaired(&self) {
        for package in PACKAGES {
            let api: Api<ConfigMap> = Api::namespaced(self.servers.client(), package);
            let name = format!("{package}-settings");
            let drift = Patch::Merge(json!({"data": {"version": "mine"}}));
            let before = api.get(&name).await.unwrap().data.unwrap();
            api.patch(&name, &PatchParams::default(), &drift).await.unwrap();
            let repaired = async || (api.get(&name).await.ok()?.data? == before).then_some(());
            eventually(&format!("{package} is repaired"), repaired).await;
        }
    }

    async fn bindings(&self) -> Vec<String> {
        let api: Api<RoleBinding> = Api::all(self.servers.client());
        let all = api.list(&ListParams::default()).await.unwrap().items.into_iter();
        let of = all.filter(|one| one.metadata.name.as_deref() == Some("operator-controller-content"));
        of.filter_map(|one| one.metadata.namespace).collect()
    }
}

// docs/design/operations.md#hardened-rights
#[tokio::test(flavor = "multi_thread")]
async fn upgrade_of_hardened_installation_refuses_no_write_of_its_extensions() {
    let installation = Installation::start().await;
    let servers = &installation.servers;
    for package in PACKAGES {
        servers.until_installed(package, "1.0.0").await.unwrap();
    }
    installation.objects_are_repaired().await;
    let before = servers.proxy.forbidden().len();

    let is_kept = |document: &str| !document.contains("\nkind: MutatingWebhookConfiguration\n");
    let file = Installation::file(servers, "v0.2.0", is_kept);
    let args = ["system", "upgrade", "--file", file.to_str().unwrap()];
    let dry = installation.olm(&[&args[..], &["--dry-run"]].concat()).await;
    assert_eq!(dry.code, 0, "{dry:?}");
    let created = "rolebinding.rbac.authorization.k8s.io/operator-controller-content created (dry run)\n";
    assert_eq!(dry.stdout.matches(created).count(), PACKAGES.len(), "{dry:?}");
    assert!(dry.stderr.contains("warning  extensions: stove may need permissions"), "{dry:?}");
    let exceptions = r#"'{"data":{"cluster-roles":"tide-webhooks","token-secrets":"tide/tide-token"}}'"#;
    assert!(dry.stderr.contains("warning  objects: ") && dry.stderr.contains(exceptions), "{dry:?}");
    assert_eq!(installation.bindings().await, [""; 0]);
    let ran = installation.olm(&args).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(installation.bindings().await, PACKAGES);
    let count = |text: &str| ran.stderr.lines().position(|line| line.contains(text)).unwrap();
    assert!(
        count("operator-controller-content created") < count("operator-controller-content-common changed")
    );

    let _restarted = Installation::controller(servers).await;
    installation.objects_are_repaired().await;
    let edit = json!({"spec": {"source": {"catalog": {"version": "1.1.0"}}}});
    for package in ["lamp", "tide"] {
        servers.edit(package, edit.clone()).await.unwrap();
        servers.until_installed(package, "1.1.0").await.unwrap();
    }
    assert_eq!(servers.proxy.forbidden()[before..], [""; 0]);

    the_next_version_of_a_bundle_needs_its_grants(&installation, edit).await;
}

/// Of `stove`, which had rights in the whole cluster by the former file. `olm rbac required` prints what is missing.
async fn the_next_version_of_a_bundle_needs_its_grants(installation: &Installation, edit: Value) {
    let servers = &installation.servers;
    servers.edit("stove", edit).await.unwrap();
    let needs = "Namespace:\"\" APIGroups:[] Resources:[secrets] Verbs:[get,list]";
    let refused = |extension: &olm_api::ClusterExtension| {
        let conditions = extension.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|condition| condition.message.contains(needs))
    };
    servers.until("stove", needs, refused).await.unwrap();
    let folder = servers.file("stove");
    for (path, content) in bundle("stove", "1.1.0").files() {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let args = ["rbac", "required", folder.to_str().unwrap(), "-n", "stove", "--operator-controller"];
    let printed = installation.olm(&args).await;
    assert_eq!(printed.code, 0, "{printed:?}");
    let roles = servers.file("roles.yaml");
    std::fs::write(&roles, printed.stdout).unwrap();
    let mut kubectl = servers.plane.kubectl().unwrap();
    let output =
        kubectl.args(["apply", "--server-side", "--force-conflicts", "-f"]).arg(&roles).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    servers.until_installed("stove", "1.1.0").await.unwrap();
}
