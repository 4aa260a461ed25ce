//! `olm migrate plan` with an API server, and objects as classic OLM makes them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::classic::{self, Installation};
use crate::changing::fixture::{Fixture, pipe_bundle, small_bundle};
use crate::fixture::{Ran, bundle_files};

const GATES: &str = "--feature-gates=SingleOwnNamespaceInstallSupport=true,DeploymentConfig=true,\
                     MultiWatchNamespaces=true,WebhookProviderBuiltin=true,WebhookProviderCertManager=false,\
                     WebhookProviderOpenshiftServiceCA=false";

async fn fixture() -> Fixture {
    let fixture = Fixture::start(&[]).await;
    olm_control_plane::apply_crds(&fixture.client(), &classic::crds()).await.unwrap();
    fixture.set_controller(&[GATES]).await;
    fixture
}

fn compare(name: &str, printed: &str) {
    crate::fixture::compare("commands/migrate", name, printed);
}

fn packages(ran: &Ran) -> Vec<Value> {
    let plan: Value = serde_json::from_str(&ran.stdout).unwrap();
    plan["packages"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_plan_lists_action_for_every_object() {
    let fixture = fixture().await;
    let client = fixture.client();
    let files = pipe_bundle("old");
    let pipe = Installation {
        files: &files,
        namespace: "pipe-system",
        targets: &[],
        subscription: json!({}),
        config: json!({}),
        source: "hub",
    };
    classic::install(&client, &pipe).await;
    let ran = fixture.olm(&["migrate", "plan", "pipe"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    compare("plan.txt", &ran.stdout);
    let ran = fixture.olm(&["migrate", "scan", "--render"]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stdout.contains("NOTE-2"), "{}", ran.stdout);

    let own = small_bundle("own", "1.0.0", "OwnNamespace");
    let config = json!({"nodeSelector": {"disk": "ssd"}, "env": [{"name": "A", "value": "b"}]});
    let own = Installation {
        files: &own,
        namespace: "own-system",
        targets: &["own-system"],
        subscription: json!({"config": config, "installPlanApproval": "Manual"}),
        config: json!({"watchNamespace": "own-system", "deploymentConfig": config}),
        source: "own",
    };
    classic::install(&client, &own).await;
    bind_user(&fixture).await;
    let ran = fixture.olm(&["migrate", "plan", "pipe"]).await;
    assert!(ran.code == 4 && ran.stdout.contains("--accept DECISION-6"), "{}", ran.stdout);
    let folder = fixture.path("plans");
    let to = ["--to", folder.to_str().unwrap()];
    let ran = fixture.olm(&[&["migrate", "plan", "--all", "--accept", "DECISION-6"][..], &to].concat()).await;
    // The catalog image is in no registry, but the ClusterCatalog hub has the bundle.
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let mut files = paths(&folder);
    files.retain(|path| !path.ends_with("plan.yaml"));
    let mut text = String::new();
    for path in files {
        let content = std::fs::read_to_string(folder.join(&path)).unwrap();
        text += &format!("=== {}\n{content}", path.display());
    }
    compare("plan-folder.txt", &text);
    let plan = std::fs::read(folder.join("own/plan.yaml")).unwrap();
    let plan: Value = olm_yaml::from_slice(&plan).unwrap();
    assert_eq!((&plan["kind"], &plan["restarts"]), (&json!("PackagePlan"), &json!([])), "{plan}");
    let pinned = &plan["extension"];
    assert_eq!(pinned["spec"]["source"]["catalog"]["version"], "1.0.0");
    let digest = pinned["metadata"]["annotations"]["ext.olm.operatorframework.io/adopt"].as_str().unwrap();
    assert!(digest.starts_with("sha256:"));
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_pod_template_is_one_rolling_restart() {
    let fixture = fixture().await;
    let own = small_bundle("own", "1.0.0", "OwnNamespace");
    let installation = Installation {
        files: &own,
        namespace: "own-system",
        targets: &["own-system"],
        subscription: json!({}),
        // The pods run with what the Subscription does not have.
        config: json!({"watchNamespace": "own-system", "deploymentConfig": {"annotations": {}}}),
        source: "hub",
    };
    classic::install(&fixture.client(), &installation).await;
    let name = "own";
    let api: kube::Api<k8s_openapi::api::apps::v1::Deployment> =
        kube::Api::namespaced(fixture.client(), "own-system");
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "manager", "image": "r.example/patched"}]}}}});
    let patch = kube::api::Patch::Strategic(&image);
    api.patch(name, &kube::api::PatchParams::default(), &patch).await.unwrap();
    let ran = fixture.olm(&["migrate", "plan", "own-system/own", "-o", "json"]).await;
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let restart = packages(&ran)[0]["restarts"][0].clone();
    assert_eq!(restart["fields"], json!(["spec.template.spec.containers[manager].image"]));
    let ran = fixture.olm(&["migrate", "scan", "--render"]).await;
    let expected = "one rolling restart of Deployment own-system/own: the bundle has another pod template";
    assert!(ran.code == 0 && ran.stdout.contains(expected), "{}{}", ran.stdout, ran.stderr);
    let ran = fixture.olm(&["migrate", "plan", "owl"]).await;
    let expected = "error: classic OLM has not installed package \"owl\": did you mean own?\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (4, expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_without_provider_of_certificates_are_a_finding_and_refused() {
    let fixture = fixture().await;
    let own = small_bundle("own", "1.0.0", "OwnNamespace");
    let installation = Installation {
        files: &own,
        namespace: "own-system",
        targets: &["own-system"],
        subscription: json!({}),
        config: json!({"watchNamespace": "own-system"}),
        source: "hub",
    };
    classic::install(&fixture.client(), &installation).await;
    let gvk = GroupVersionKind::gvk("operators.coreos.com", "v1alpha1", "ClusterServiceVersion");
    let csvs: kube::Api<DynamicObject> =
        kube::Api::namespaced_with(fixture.client(), "own-system", &ApiResource::from_gvk(&gvk));
    let webhooks = json!({"spec": {"webhookdefinitions": [{"type": "ValidatingAdmissionWebhook", "generateName": "a"}]}});
    let patch = kube::api::Patch::Merge(&webhooks);
    csvs.patch("own.v1.0.0", &kube::api::PatchParams::default(), &patch).await.unwrap();
    let ran = fixture.olm(&["migrate", "scan"]).await;
    assert!(ran.code == 0 && !ran.stdout.contains("SETTING-8"), "{}{}", ran.stdout, ran.stderr);
    let own = "--feature-gates=SingleOwnNamespaceInstallSupport=true";
    let off = format!("{own},WebhookProviderCertManager=false,WebhookProviderOpenshiftServiceCA=false");
    let command = "--feature-gates=WebhookProviderBuiltin=true,WebhookProviderCertManager=false,";
    for (arguments, why) in [
        (own, "the provider is cert-manager, and cert-manager.io/v1 is not served"),
        (off.as_str(), "the gates of all providers are off"),
    ] {
        fixture.set_controller(&[arguments]).await;
        let finding = format!("no provider of the certificates of 1 webhook: {why}");
        for render in [&[][..], &["--render"]] {
            let ran = fixture.olm(&[&["migrate", "scan"], render].concat()).await;
            let has_all = ["SETTING-8", &finding, command].iter().all(|text| ran.stdout.contains(text));
            assert!(ran.code == 0 && has_all, "{}{}", ran.stdout, ran.stderr);
        }
        let ran = fixture.olm(&["migrate", "plan", "own"]).await;
        assert!(ran.code == 4 && ran.stdout.contains(&finding), "{}{}", ran.stdout, ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_in_watched_namespaces_are_removed() {
    let fixture = fixture().await;
    let files = small_bundle("multi", "1.0.0", "MultiNamespace");
    let image = fixture.add_bundle("multi", "1.0.0", &files);
    let catalog = fixture.path("multi");
    std::fs::create_dir(&catalog).unwrap();
    let requirement =
        json!({"type": "olm.gvk.required", "value": {"group": "a.b", "version": "v1", "kind": "C"}});
    let entry = json!({"schema": "olm.bundle", "package": "multi", "name": "multi.v1.0.0", "image": image,
        "properties": [{"type": "olm.package", "value": {"packageName": "multi", "version": "1.0.0"}}, requirement]});
    std::fs::write(catalog.join("multi.json"), entry.to_string()).unwrap();
    let installation = Installation {
        files: &files,
        namespace: "multi-system",
        targets: &["shop", "stock"],
        subscription: json!({"config": {"selector": {"matchLabels": {"a": "b"}}}}),
        config: json!({"watchNamespaces": ["shop", "stock"]}),
        source: "multi",
    };
    classic::install(&fixture.client(), &installation).await;
    // Without the catalog, the image of the CatalogSource is read, which no registry has.
    let ran = fixture.olm(&["migrate", "scan", "--render"]).await;
    assert!(ran.code == 4 && ran.stdout.contains("STATE-8"), "{}{}", ran.stdout, ran.stderr);
    assert!(!ran.stdout.contains("has no multi.v1.0.0"), "{}", ran.stdout);
    let ran = fixture.olm(&["migrate", "plan", "multi", "--catalog", catalog.to_str().unwrap()]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    compare("plan-multi.txt", &ran.stdout);
}

/// Binds a user to a role of the OperatorGroup of pipe.
async fn bind_user(fixture: &Fixture) {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "ann"}, "subjects": [{"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "olm.og.group.view-bFaRX67ntMDl4gfuwubqBz5sITx1qZyoc8m3aY"}});
    let api: kube::Api<k8s_openapi::api::rbac::v1::RoleBinding> =
        kube::Api::namespaced(fixture.client(), "pipe-system");
    api.create(&kube::api::PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
}

/// Paths of all files below the folder, sorted.
fn paths(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let name = PathBuf::from(path.file_name().unwrap());
        if path.is_dir() {
            found.extend(paths(&path).into_iter().map(|inner| name.join(inner)));
        } else {
            found.push(name);
        }
    }
    found.sort();
    found
}

/// Bundles of the field for all install modes, with and without webhooks, and the namespace that they watch.
const FIELD: [(&str, &str); 10] = [
    ("automotive-dev-operator", "own"),
    ("dynatrace-operator", "all"),
    ("group-sync-operator", "own"),
    ("konveyor-operator", "own"),
    ("loki-operator", "all"),
    ("marin3r", "all"),
    ("opentelemetry-operator", "all"),
    ("service-binding-operator", "all"),
    ("universal-crossplane", "all"),
    ("vault-config-operator", "all"),
];

#[tokio::test(flavor = "multi_thread")]
async fn field_bundles_are_adopted_without_a_restart() {
    let Some(root) = olm_require::field_data() else { return };
    let fixture = fixture().await;
    let catalog = fixture.path("field");
    std::fs::create_dir(&catalog).unwrap();
    for (folder, watched) in FIELD {
        let files = bundle_files(&root.join("bundles").join(folder));
        let bundle = olm_bundle::BundleContent::load(&files).unwrap();
        let (package, version) = (bundle.package_name().to_owned(), bundle.version().unwrap().to_owned());
        let image = fixture.add_bundle(folder, "v1", &files);
        let entry = json!({"schema": "olm.bundle", "package": package, "name": bundle.name(), "image": image,
            "properties": [{"type": "olm.package", "value": {"packageName": package, "version": version}}]});
        std::fs::write(catalog.join(format!("{folder}.json")), entry.to_string()).unwrap();
        let namespace = format!("field-{folder}");
        let (targets, config) = match watched {
            "own" => (vec![namespace.as_str()], json!({"watchNamespace": namespace})),
            _ => (Vec::new(), json!({})),
        };
        let installation = Installation {
            files: &files,
            namespace: &namespace,
            targets: &targets,
            subscription: json!({}),
            config,
            source: "field",
        };
        classic::install(&fixture.client(), &installation).await;
    }
    let catalog = catalog.to_str().unwrap();
    // Some use the API of classic OLM.
    let accept = ["--accept", "DECISION-9"];
    let arguments = [&["migrate", "plan", "--all", "--catalog", catalog, "-o", "json"], &accept[..]].concat();
    let ran = fixture.olm(&arguments).await;
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let plans = packages(&ran);
    assert_eq!(plans.len(), FIELD.len());
    for plan in &plans {
        check(plan);
    }
}

/// Checks the plan of a package whose objects all exist.
fn check(plan: &Value) {
    let package = &plan["package"];
    assert_eq!(plan["restarts"], json!([]), "{package}");
    let kinds = |field: &str| -> BTreeSet<&str> {
        plan[field].as_array().unwrap().iter().map(|object| object["kind"].as_str().unwrap()).collect()
    };
    let created = kinds("created");
    for kind in ["Deployment", "ServiceAccount", "Service", "CustomResourceDefinition", "ConfigMap", "Secret"]
    {
        assert!(!created.contains(kind), "{package}: {}", plan["created"]);
    }
    let is_named = |kind: &str, suffix: &str| {
        let removed = plan["removed"].as_array().unwrap();
        removed.iter().any(|one| one["kind"] == kind && one["name"].as_str().unwrap().ends_with(suffix))
    };
    assert!(is_named("Operator", "") && is_named("InstallPlan", ""), "{package}: {}", plan["removed"]);
    let has_generated = created.contains("ClusterRoleBinding");
    assert_eq!(has_generated, is_named("ClusterRoleBinding", "-classic"), "{package}: {}", plan["removed"]);
    let has_webhooks = created.contains("ValidatingWebhookConfiguration")
        || created.contains("MutatingWebhookConfiguration");
    let is_removed = is_named("ValidatingWebhookConfiguration", "-x7f2p")
        || is_named("MutatingWebhookConfiguration", "-x7f2p");
    assert_eq!(has_webhooks, is_removed, "{package}");
    let left = plan["left"].as_array().unwrap();
    let is_left = |kind: &str| left.iter().any(|one| one["kind"] == kind);
    assert!(is_left("OperatorCondition") && is_left("OperatorGroup"), "{package}: {left:?}");
    assert!(
        !has_webhooks || (is_left("Secret") && is_named("RoleBinding", "-auth-reader")),
        "{package}: {left:?}"
    );
    assert_eq!(plan["catalogs"][0]["spec"]["source"]["image"]["pollIntervalMinutes"], 11, "{package}");
}
