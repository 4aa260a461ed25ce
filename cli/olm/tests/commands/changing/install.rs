//! `olm install` until it creates the ClusterExtension.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::fixture::{Fixture, compare};

#[tokio::test(flavor = "multi_thread")]
async fn install_creates_the_extension_once_and_never_overwrites_it() {
    let fixture = Fixture::start(&[]).await;
    nothing_is_written_by_a_dry_run(&fixture).await;
    suggested_namespace_is_shown_and_created_with_its_labels(&fixture).await;
    invalid_install_is_rejected_before_any_write(&fixture).await;
    install_prints_choice_and_creates_extension(&fixture).await;
    existing_extension_is_unchanged(&fixture).await;
    controller_gates_decide_about_the_bundle(&fixture).await;
}

// docs/design/operations.md#hardened-rights
#[tokio::test(flavor = "multi_thread")]
async fn install_grants_its_namespace_to_a_hardened_operator_controller() {
    let fixture = Fixture::start(&[]).await;
    let roles: Api<ClusterRole> = Api::all(fixture.client());
    let role = json!({"metadata": {"name": "operator-controller-content-namespaced"}, "rules": []});
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    let line = ["install", "lamp", "-n", "lamp", "--create-namespace", "--version", "x"];
    let dry = fixture.olm(&[&line[..], &["--dry-run=client", "-o", "name"]].concat()).await;
    let binding = "rolebinding.rbac.authorization.k8s.io/operator-controller-content";
    let lines = format!("namespace/lamp\n{binding}\nclusterextension.olm.operatorframework.io/lamp\n");
    assert_eq!((dry.code, dry.stdout), (0, lines), "{}", dry.stderr);
    let ran = fixture.olm(&line).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains(&format!("{binding} created\n")), "{ran:?}");
    let bindings: Api<RoleBinding> = Api::namespaced(fixture.client(), "lamp");
    let found = bindings.get("operator-controller-content").await.unwrap();
    assert_eq!(found.role_ref.name, "operator-controller-content-namespaced");
    let subject = &found.subjects.unwrap()[0];
    let account = (subject.namespace.as_deref(), subject.name.as_str());
    assert_eq!(account, (Some("olmv1-system"), "operator-controller-controller-manager"));
    // A second extension in the same namespace.
    let again = fixture.olm(&["install", "far", "-n", "lamp"]).await;
    assert!(again.code == 0 && !again.stdout.contains(binding), "{again:?}");
}

async fn nothing_is_written_by_a_dry_run(fixture: &Fixture) {
    // docs/design/cli.md#default-channel: `default` is the package's default channel.
    let line = ["install", "lamp", "-n", "lamp", "--create-namespace", "--channel", "default"];
    let ran = fixture.olm(&[&line[..], &["--dry-run=client", "-o", "yaml"]].concat()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    compare("install-dry-run.yaml", &ran.stdout);
    // docs/design/additions.md#skipped-versions
    let line = ["install", "shade", "-n", "pipe-system", "--version", "1.1.0", "--dry-run=server"];
    let ran = fixture.olm(&line).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    compare("install-skipped.txt", &ran.stdout);
    let line =
        ["install", "shade", "-n", "pipe-system", "--version", "1.0.0", "--dry-run=client", "-o", "name"];
    let ran = fixture.olm(&line).await;
    assert_eq!(ran.stdout, "clusterextension.olm.operatorframework.io/shade\n");
    assert_eq!(ran.stderr, "warning: bundle shade.v1.0.0 is deprecated: shade.v1.0.0 lets light through\n");
    assert_eq!(fixture.extensions().list(&Default::default()).await.unwrap().items.len(), 0);
    let namespaces: Api<Namespace> = Api::all(fixture.client());
    assert!(namespaces.get_opt("lamp").await.unwrap().is_none());
}

async fn suggested_namespace_is_shown_and_created_with_its_labels(fixture: &Fixture) {
    let shown = fixture.olm(&["install", "tube", "--dry-run=client"]).await;
    assert_eq!(shown.code, 0, "{shown:?}");
    assert_eq!(shown.stderr, "namespace tube-system, named after the package\n", "{shown:?}");
    let note = "pumps, suggested by the bundle, with label pod-security.kubernetes.io/enforce=baseline";
    let refused = format!("error: namespace {note}: to create it so, add --create-namespace\n");
    for more in [&[][..], &["--with-dependencies", "--yes"], &["--dry-run=client"]] {
        let ran = fixture.olm(&[&["install", "base"], more].concat()).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (3, refused.as_str()), "{more:?}");
    }
    let line = ["install", "base", "--create-namespace"];
    let planned = fixture.olm(&[&line[..], &["--with-dependencies", "--dry-run=client"]].concat()).await;
    assert!(planned.stdout.contains(&format!("{note}\n")), "{planned:?}");
    let ran = fixture.olm(&line).await;
    assert_eq!((ran.code, ran.stderr), (0, format!("namespace {note}\n")));
    let namespaces: Api<Namespace> = Api::all(fixture.client());
    let labels = namespaces.get("pumps").await.unwrap().metadata.labels.unwrap();
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "baseline");
    assert_eq!(fixture.extension("base").await.spec.unwrap().namespace, "pumps");
    let again = fixture.olm(&["install", "base"]).await;
    assert_eq!(again.stdout, "clusterextension.olm.operatorframework.io/base unchanged\n", "{again:?}");
    // The namespace remains, and is that of this package.
    fixture.extensions().delete("base", &Default::default()).await.unwrap();
    for more in [&[][..], &["--with-dependencies", "--yes"]] {
        let ran = fixture.olm(&[&["install", "base", "--dry-run=client"], more].concat()).await;
        assert_eq!(ran.code, 0, "{more:?}: {ran:?}");
    }
    fixture.create_namespace("tube-system").await;
    let refused = fixture.olm(&["install", "tube"]).await;
    let expected = "error: namespace tube-system, named after the package, exists: to install into it, add `--namespace \
                    tube-system`\n";
    assert_eq!((refused.code, refused.stderr.as_str()), (3, expected));
}

/// Compares exit code and start of the error of `olm install` with these arguments.
async fn expect_rejected(fixture: &Fixture, rows: &[(&[&str], i32, &str)]) {
    for (args, code, error) in rows {
        let ran = fixture.olm(&[&["install"], *args].concat()).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (*code, ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with(error), "{args:?}: {}", ran.stderr);
    }
}

async fn unresolvable_install_is_rejected(fixture: &Fixture) {
    let rows: &[(&[&str], i32, &str)] = &[
        (
            &["lam", "-n", "pipe-system"],
            4,
            "error: no bundles found for package \"lam\"\nhint: hub has no package \"lam\"; similar names: lamp\n",
        ),
        (
            &["lamp", "-n", "pipe-system", "--version", "9.0.0"],
            4,
            "error: no bundles found for package \"lamp\" matching version \"9.0.0\"\n",
        ),
        (
            &["lamp", "-n", "pipe-system", "--catalog", "nope"],
            4,
            "error: there is no ClusterCatalog \"nope\"; catalogs: hub\n",
        ),
        (
            &["lamp", "-n", "lamp"],
            3,
            "error: namespace \"lamp\" does not exist: create it, or use --create-namespace\n",
        ),
        (
            &["lamp", "-n", "Pipe"],
            3,
            "error: spec.namespace: \"Pipe\": namespace must be a valid DNS1123 label\n",
        ),
        (
            &["lamp", "-n", "pipe-system", "--version", "1.11 OR 1.13"],
            2,
            "error: spec.source.catalog.version: ",
        ),
    ];
    expect_rejected(fixture, rows).await;
}

async fn invalid_install_is_rejected_before_any_write(fixture: &Fixture) {
    unresolvable_install_is_rejected(fixture).await;
    let config = fixture.path("config.yaml");
    std::fs::write(&config, "deploymentConfig: {nodeSelector: {disk: ssd}}\n").unwrap();
    let config = config.to_str().unwrap();
    let rows: &[(&[&str], i32, &str)] = &[
        // Case additions-a21
        (
            &["app", "-n", "pipe-system"],
            4,
            "error: validating bundle \"app.v2.0.0\": bundle \"app.v2.0.0\" has a dependency declared via property \
             \"olm.package.required\" which is currently not supported\nhint: --with-dependencies also plans the dependencies",
        ),
        // The feature gate is disabled.
        (
            &["lamp", "-n", "pipe-system", "--config", config],
            3,
            "error: REGISTRY/lamp:2.0.0: invalid ClusterExtension configuration: ",
        ),
        (&["own", "-n", "pipe-system"], 3, "error: REGISTRY/own:1.0.0: "),
    ];
    expect_rejected(fixture, rows).await;
    assert_eq!(fixture.extensions().list(&Default::default()).await.unwrap().items.len(), 0);
}

async fn install_prints_choice_and_creates_extension(fixture: &Fixture) {
    // docs/design/cli.md#default-channel: the chosen bundle is outside of the default channel.
    let ran = fixture.olm(&["install", "lamp", "-n", "lamp", "--create-namespace", "--version", "x"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    compare("install.txt", &ran.stdout);
    let made = fixture.extension("lamp").await;
    let managers = made.metadata.managed_fields.unwrap();
    assert_eq!(managers[0].manager.as_deref(), Some("olm-cli"));
    let namespaces: Api<Namespace> = Api::all(fixture.client());
    assert!(namespaces.get_opt("lamp").await.unwrap().is_some());
    // The cluster may be able to pull a bundle that the CLI cannot pull.
    let ran = fixture.olm(&["install", "far", "-n", "pipe-system"]).await;
    assert_eq!(ran.code, 0);
    let warning = "warning: cannot predict the changes of the bundle: image REGISTRY/far:1.0.0: ";
    assert!(ran.stderr.starts_with(warning), "{}", ran.stderr);
}

async fn existing_extension_is_unchanged(fixture: &Fixture) {
    let ran = fixture.olm(&["install", "lamp", "-n", "lamp", "--version", "x"]).await;
    let unchanged = "clusterextension.olm.operatorframework.io/lamp unchanged\n";
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, unchanged, ""));
    for (args, said) in [
        (
            &["lamp", "-n", "lamp", "--version", "1.x"][..],
            "error: ClusterExtension \"lamp\" exists with other settings and is not changed:\n  \
             spec.source.catalog.version: \"x\" on the cluster, \"1.x\" requested\nchange it with `olm upgrade lamp` or kubectl\n",
        ),
        (
            &["shade", "-n", "lamp", "--name", "lamp"],
            "error: ClusterExtension \"lamp\" exists with package \"lamp\" and is not changed: use --name to install \
             package \"shade\" under another name\n",
        ),
        (
            &["lamp", "-n", "lamp", "--name", "second"],
            "error: package \"lamp\" is already requested by ClusterExtension \"lamp\", which has installed nothing yet: `olm \
             status lamp` shows why; change it, or uninstall it first\n",
        ),
    ] {
        let before = fixture.extension("lamp").await;
        let ran = fixture.olm(&[&["install"], args].concat()).await;
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (3, "", said));
        assert_eq!(fixture.extension("lamp").await, before);
    }
}

async fn controller_gates_decide_about_the_bundle(fixture: &Fixture) {
    fixture.set_controller(&["--feature-gates=SingleOwnNamespaceInstallSupport=true,Unknown=true"]).await;
    let ran = fixture.olm(&["install", "own", "-n", "pipe-system"]).await;
    assert_eq!(ran.code, 3);
    // Case additions-a37
    assert!(ran.stderr.contains("watchNamespace"), "{}", ran.stderr);
    let line =
        ["install", "own", "-n", "pipe-system", "--watch-namespace", "pipe-system", "--dry-run=server"];
    let ran = fixture.olm(&[&line[..], &["-o", "json"]].concat()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let extension: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(extension["spec"]["config"]["inline"]["watchNamespace"], "pipe-system");
    // Case additions-a22
    fixture.set_controller(&["--dependency-mode=Report"]).await;
    let ran = fixture.olm(&["install", "app", "-n", "pipe-system", "--dry-run=client"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.contains("  Requires:         "), "{}", ran.stdout);
}

#[test]
fn help_matches_golden_files() {
    for command in ["install", "upgrade", "plan", "approve", "uninstall"] {
        let ran = crate::fixture::olm_in(std::path::Path::new("."), &[command, "--help"]).output().unwrap();
        compare(&format!("{command}-help.txt"), &String::from_utf8(ran.stdout).unwrap());
    }
}
