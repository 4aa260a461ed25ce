//! `olm resolve`: rejected inputs and failed resolutions, with their hints.

use std::process::{Command, Stdio};

use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::cluster::{Cluster, catalog};
use super::fixture::{Ran, command, olm};

/// Runs `olm resolve`, which must print nothing on standard output. Returns exit code and standard error.
fn failed(args: &[&str]) -> (i32, String) {
    let ran = olm(&[&["resolve"], args].concat());
    assert_eq!(ran.stdout, "", "{args:?}");
    (ran.code, ran.stderr)
}

#[test]
fn failed_resolution_prints_the_controllers_message_and_hints() {
    compare_failures(&[
        // Case resolution-14
        (
            &["pipe", "--catalog", "catalog", "--channel", "nope"],
            4,
            "error: no bundles found for package \"pipe\" in channels [nope]\n\
             hint: there is no channel \"nope\"; channels: fast, slow (default)\n",
        ),
        // Case resolution-16
        (
            &["lamp", "--catalog", "catalog", "--version", "4.0.0"],
            4,
            "error: no bundles found for package \"lamp\" matching version \"4.0.0\"\n\
             hint: without the version lamp.v1.0.0 (1.0.0) would be chosen\n\
             hint: versions: 1.0.0\n",
        ),
        // Case resolution-31
        (
            &["example", "--catalog", "skipped", "--installed", "1.0.0", "--version", "3.0.0"],
            4,
            "error: error upgrading from currently installed version \"1.0.0\": no bundles found for package \"example\" \
             matching version \"3.0.0\"\n\
             hint: no upgrade edge leads there directly; upgrade in steps: example.v2.0.0, then example.v3.0.0\n\
             hint: without the version example.v2.0.0 (2.0.0) would be chosen\n\
             hint: with --policy SelfCertified (upgradeConstraintPolicy), at your own risk, example.v3.0.0 (3.0.0) would be \
             chosen\n\
             hint: versions: 3.0.0, 2.0.0, 1.0.0\n",
        ),
        // Case resolution-21
        (
            &["demo", "--catalog", "twins/alpha", "--catalog", "twins/beta"],
            4,
            "error: found bundles for package \"demo\" in multiple catalogs with the same priority [twins/alpha twins/beta]\n\
             hint: priorities: twins/alpha 0, twins/beta 0; prefer a catalog with --priority twins/alpha=1 (operator-controller: spec.priority of its ClusterCatalog), or select a catalog in the extension: olm.operatorframework.io/metadata.name in spec.source.catalog.selector.matchLabels\n",
        ),
        (
            &["pip", "--catalog", "catalog"],
            4,
            "error: no bundles found for package \"pip\"\nhint: catalog has no package \"pip\"; similar names: pipe\n",
        ),
        // Cases additions-a21, seeds-s0-6
        (
            &["app", "--catalog", "deps"],
            4,
            "error: validating bundle \"app.v2.0.0\": bundle \"app.v2.0.0\" has a dependency declared via property \
             \"olm.package.required\" which is currently not supported\n\
             hint: --with-dependencies also plans the dependencies; --dependency-mode Report or Check evaluates dependencies instead of \
             rejecting them, as does annotation ext.olm.operatorframework.io/dependency-mode\n\
             hint: app.v1.0.0 has no dependencies: --version 1.0.0\n",
        ),
    ]);
}

#[test]
fn invalid_input_of_resolution_is_rejected() {
    compare_failures(&[
        // docs/design/cli.md#version-expressions; case seeds-s2-6
        (
            &["pipe", "--catalog", "catalog", "--version", "1.11 OR 1.13"],
            2,
            "error: spec.source.catalog.version: Invalid value: \"1.11 OR 1.13\": invalid version expression\n  1.11 \
             OR 1.13\n       ^^ expected || between alternatives\nwrite \"1.11 || 1.13\", if that is what you mean\n",
        ),
        (
            &["pipe", "--catalog", "catalog", "--installed", "pipe.v1.4"],
            4,
            "error: no catalog has a bundle \"pipe.v1.4\" of package \"pipe\"; the catalogs have: pipe.v2.0.0, pipe.v1.2.0, \
             pipe.v1.1.0, pipe.v1.0.0, pipe.v1.3.0\nspecify a bundle that is no longer in a catalog as NAME@VERSION\n",
        ),
        (
            &["pipe", "--catalog", "catalog", "--priority", "other=1"],
            2,
            "error: --priority: there is no catalog \"other\"; catalogs: catalog\n",
        ),
        (
            &["pipe", "--catalog", "catalog", "--catalog", "catalog"],
            2,
            "error: catalog \"catalog\" is given more than once\n",
        ),
    ]);
}

/// Compares exit code and error output of `olm resolve` with these arguments.
fn compare_failures(cases: &[(&[&str], i32, &str)]) {
    for (args, code, stderr) in cases {
        assert_eq!(failed(args), (*code, (*stderr).to_owned()), "{args:?}");
    }
}

// Cases seeds-s2-1, additions-a60
#[test]
fn extension_file_is_resolved_as_by_the_controller() {
    let ran = olm(&["resolve", "-f", "extensions/pipe.yaml", "--catalog", "catalog", "--installed", "1.0.0"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("Extension:          pipe\n"), "{}", ran.stdout);
    let warnings: Vec<_> = ran.stderr.lines().collect();
    assert!(
        warnings[0]
            .starts_with("warning: extensions/pipe.yaml:15: Validation failed for ValidatingAdmissionPolicy"),
        "{warnings:?}"
    );
    assert_eq!(
        warnings[1..],
        [
            "warning: pipe: annotation ext.olm.operatorframework.io/exclude-skipped counts as true: unknown value \
             \"yes\", allowed: true, false"
        ]
    );
}

// Cases seeds-s2-4, seeds-s2-6
#[test]
fn extension_that_the_api_server_would_reject_fails_with_a_fix() {
    assert_eq!(
        failed(&["-f", "extensions/wrong.yaml", "--catalog", "catalog"]),
        (
            3,
            "error: extensions/wrong.yaml:6: spec.namespace: \"<installed_namespace>\": namespace must be a valid DNS1123 label\n  \
             replace <installed_namespace> with a value\n\
             error: extensions/wrong.yaml:7: spec.upgradeConstraintPolicy: unknown field \"upgradeConstraintPolicy\"; \
             allowed here: config, install, namespace, progressDeadlineMinutes, serviceAccount, source\n  \
             upgradeConstraintPolicy belongs in spec.source.catalog\n\
             error: extensions/wrong.yaml:9: spec.source.sourceType: \"catalog\" is not allowed; allowed: Catalog\n  \
             write sourceType: Catalog\n\
             error: extensions/wrong.yaml:12: spec.source.catalog.channels: expected a list, found \"latest\"\n  \
             write a list: channels: [latest]\n\
             error: extensions/wrong.yaml:13: spec.source.catalog.version: expected a string, found the number 1.14\n  \
             quote it: version: \"1.14\"\n\
             error: extensions/wrong.yaml:25: spec.source.catalog.version: Invalid value: \"1.11.x || *\": invalid version \
             expression\n    1.11.x || *\n              ^ expected x as wildcard: the API server rejects * here\n  \
             write \"1.11.x || x\", which means the same\n\
             error: extensions/wrong.yaml:26: spec.source.catalog.selfCertified: unknown field \"selfCertified\"; \
             allowed here: channels, packageName, selector, upgradeConstraintPolicy, version\n  write, in \
             spec.source.catalog, upgradeConstraintPolicy: SelfCertified\n"
                .to_owned()
        )
    );
    let (code, stderr) = failed(&["-f", "extensions/unquoted.yaml", "--catalog", "catalog"]);
    assert_eq!(code, 3);
    assert!(
        stderr.starts_with("error: extensions/unquoted.yaml:11: error converting YAML to JSON: "),
        "{stderr}"
    );
    assert!(stderr.ends_with("\n  quote it: version: \">=1.16\"\n"), "{stderr}");
    let (code, stderr) = failed(&["-f", "classic/subscription.yaml", "--catalog", "catalog"]);
    assert_eq!(code, 3);
    assert!(stderr.contains("Subscription is an object of classic OLM"), "{stderr}");
}

// Case additions-a33
#[test]
fn unsatisfiable_dependencies_are_printed_as_a_tree() {
    let ran = olm(&["resolve", "lost", "--catalog", "deps", "--solve"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""));
    assert!(ran.stderr.contains("lost.v1.0.0") && ran.stderr.contains(">=3.0.0"), "{}", ran.stderr);
    let ran = olm(&["resolve", "lost", "--catalog", "deps", "--solve", "-o", "json"]);
    assert_eq!(ran.code, 4);
    let plan: Value = serde_json::from_str(&ran.stdout).unwrap();
    let candidates = plan["conflict"]["unmet"]["candidates"].as_array().unwrap();
    assert_eq!(candidates[0]["bundle"], "lost.v1.0.0", "{plan}");
    assert!(candidates[0]["reason"].is_object(), "{plan}");
}

#[test]
fn plan_respects_upgrade_policy_and_scope() {
    let solve = |flags: &[&str]| olm(&[&["resolve", "app", "--catalog", "deps", "--solve"], flags].concat());
    // docs/design/additions.md#upgrade-scope
    let ran = solve(&["--installed", "1.0.0", "--upgrade-scope", "minor"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "app already has its best bundle\n"), "{}", ran.stderr);
    let ran = solve(&["--policy", "SelfCertified", "--manifests"]);
    let policies = ran.stdout.matches("upgradeConstraintPolicy: SelfCertified").count();
    assert_eq!((ran.code, policies), (0, 1), "{}", ran.stdout);
    let ran = solve(&["--manifests", "-o", "json"]);
    let expected = "error: --manifests prints YAML for kubectl apply; omit -o json\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (2, expected));
    let ran = olm(&["resolve", "ap", "--catalog", "deps", "--solve"]);
    let expected = "error: no plan exists\n  package ap is requested: no catalog offers a candidate\n\
                hint: deps has no package \"ap\"; similar names: app\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (4, expected));
}

/// `kubectl apply` removes fields that an earlier manifest had and this one lacks.
#[test]
fn plan_manifests_retain_other_fields_of_the_extension() {
    let mut extension =
        extension("my-app", &json!({ "ext.olm.operatorframework.io/upgrade-scope": "major" }), "", "");
    extension["spec"]["source"]["catalog"]["packageName"] = json!("app");
    extension["spec"]["progressDeadlineMinutes"] = json!(30);
    extension["spec"]["config"] = json!({ "configType": "Inline", "inline": { "watchNamespace": "here" } });
    extension["metadata"]["labels"] = json!({ "team": "apps" });
    extension.as_object_mut().unwrap().remove("status");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), extension.to_string()).unwrap();
    let path = file.path().to_str().unwrap();
    let ran = olm(&["resolve", "-f", path, "--catalog", "deps", "--solve", "--manifests"]);
    let (_, manifest) = ran.stdout.rsplit_once("---\n").unwrap();
    let expected = "metadata:
  name: my-app
  labels:
    team: apps
  annotations:
    ext.olm.operatorframework.io/dependency-mode: Check
    ext.olm.operatorframework.io/upgrade-scope: major
spec:
  namespace: ns
";
    assert!(manifest.contains(expected), "{manifest}");
    assert!(
        manifest.contains("progressDeadlineMinutes: 30") && manifest.contains("watchNamespace: here"),
        "{manifest}"
    );
    assert!(manifest.contains("version: \"2.0.0\""), "{manifest}");
}

/// The process catches SIGINT before it has read standard input.
#[test]
fn interrupt_while_reading_standard_input_exits_130() {
    let mut command = command(&["resolve", "-f", "-", "--catalog", "catalog"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take();
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & 0b10 != 0
    };
    while !caught() {
        std::thread::yield_now();
    }
    let kill = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(kill.success());
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (130, "error: interrupted\n"));
    drop(stdin);
}

// docs/design/cli.md#default-channel
#[test]
fn choice_outside_of_the_default_channel_is_shown() {
    let args = ["resolve", "pipe", "--catalog", "catalog", "--version", "1.2.0"];
    let ran = olm(&args);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("pipe.v1.2.0 is not in the default channel slow"), "{}", ran.stdout);
    let ran = olm(&["resolve", "pipe", "--catalog", "catalog", "--channel", "default", "-o", "json"]);
    let list: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(list["items"][0]["chosen"]["bundle"], "pipe.v1.1.0");
}

/// Content of the catalog in `tests/data/deps`, as JSON lines of catalogd.
fn lines(_: &str) -> Response {
    let rendered = olm(&["catalog", "render", "deps"]).stdout;
    let mut lines = String::new();
    for object in serde_json::Deserializer::from_str(&rendered).into_iter::<Value>() {
        lines += &format!("{}\n", object.unwrap());
    }
    lines.into_response()
}

fn extension(name: &str, annotations: &Value, bundle: &str, version: &str) -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "namespace": "ns", "source": { "sourceType": "Catalog", "catalog": { "packageName": name } } },
        "status": { "install": { "bundle": { "name": bundle, "version": version } } },
    })
}

fn revision(name: &str, bundle: &str, version: &str) -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
        "metadata": {
            "name": format!("{name}-1"),
            "labels": {
                "olm.operatorframework.io/owner-kind": "ClusterExtension",
                "olm.operatorframework.io/owner-name": name,
            },
            "annotations": {
                "olm.operatorframework.io/bundle-name": bundle,
                "olm.operatorframework.io/package-name": name,
                "olm.operatorframework.io/bundle-version": version,
            },
        },
        "spec": { "revision": 1, "lifecycleState": "Active", "collisionProtection": "Prevent", "phases": [] },
        "status": { "conditions": [{ "type": "Succeeded", "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z" }] },
    })
}

/// CRD of `Bucket`, applied by the extension `owner`.
fn crd(owner: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "buckets.store.example.com", "labels": {
            "olm.operatorframework.io/owner-kind": "ClusterExtension",
            "olm.operatorframework.io/owner-name": owner,
        } },
        "spec": { "group": "store.example.com", "names": { "kind": "Bucket" },
            "versions": [{ "name": "v1", "served": true }] },
    })
}

/// Adds the property `certified` to the bundle properties of a revision.
fn certified(mut revision: Value) -> Value {
    revision["metadata"]["annotations"]["olm.properties"] =
        json!("[{\"type\":\"certified\",\"value\":true}]");
    revision
}

// Cases additions-a23, additions-a60
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extension_of_the_cluster_is_resolved_with_installed_dependencies() {
    let mode = json!({ "ext.olm.operatorframework.io/dependency-mode": "Check" });
    let app = || extension("app", &mode, "app.v1.0.0", "1.0.0");
    let app_set = || revision("app", "app.v1.0.0", "1.0.0");
    let catalogs = || vec![catalog("main", true)];
    let cluster = Cluster::with_extensions(catalogs(), vec![app()], vec![app_set()], vec![], lines).await;
    let ran = cluster.olm(&["resolve", "--extension", "app"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.contains("Decision:           keep app.v1.0.0"), "{}", ran.stdout);
    let release = "kubectl annotate clusterextension app --overwrite \
                   ext.olm.operatorframework.io/dependency-mode=Report";
    assert!(ran.stdout.contains(release), "{}", ran.stdout);
    let base = extension("base", &json!({}), "base.v1.4.0", "1.4.0");
    let store = extension("store", &json!({}), "store.v1.0.0", "1.0.0");
    // As in the controller, only the properties on the revision are used. Those that only the catalog lists for
    // `store` are ignored.
    let store_set = || revision("store", "store.v1.0.0", "1.0.0");
    for (store_set, crds, decision) in [
        (store_set(), vec![], "keep app.v1.0.0"),
        (certified(store_set()), vec![crd("store")], "upgrade to app.v2.0.0"),
    ] {
        let extensions = vec![app(), base.clone(), store.clone()];
        let sets = vec![app_set(), revision("base", "base.v1.4.0", "1.4.0"), store_set];
        let cluster = Cluster::with_extensions(catalogs(), extensions, sets, crds, lines).await;
        let ran = cluster.olm(&["resolve", "--extension", "app"]).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
        assert!(ran.stdout.contains(&format!("Decision:           {decision}")), "{}", ran.stdout);
    }
    let ran = cluster.olm(&["resolve", "--extension", "nope"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (4, "error: there is no ClusterExtension \"nope\"\n"));
}

// Cases additions-a24, additions-e18
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_belong_to_the_extension_that_owns_their_crds() {
    let mode = json!({ "ext.olm.operatorframework.io/dependency-mode": "Check" });
    let app = || extension("app", &mode, "app.v1.0.0", "1.0.0");
    for (crds, decision) in [
        (vec![], "keep app.v1.0.0"),
        (vec![crd("base")], "keep app.v1.0.0"),
        (vec![crd("store")], "upgrade to app.v2.0.0"),
    ] {
        let extensions = vec![
            app(),
            extension("base", &json!({}), "base.v1.4.0", "1.4.0"),
            extension("store", &json!({}), "store.v0.9.0", "0.9.0"),
        ];
        // No catalog contains this bundle, and its properties list no kinds.
        let mut store = certified(revision("store", "store.v0.9.0", "0.9.0"));
        store["metadata"]["annotations"]["ext.olm.operatorframework.io/catalog-properties"] = json!("{}");
        let sets =
            vec![revision("app", "app.v1.0.0", "1.0.0"), revision("base", "base.v1.4.0", "1.4.0"), store];
        let catalogs = vec![catalog("main", true)];
        let cluster = Cluster::with_extensions(catalogs, extensions, sets, crds, lines).await;
        let ran = cluster.olm(&["resolve", "--extension", "app"]).await;
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stdout.contains(&format!("Decision:           {decision}")), "{}", ran.stdout);
        let expected = "warning: store-1: annotation ext.olm.operatorframework.io/catalog-properties: not a JSON list of";
        assert!(ran.stderr.starts_with(expected), "{}", ran.stderr);
        assert!(
            ran.stderr.ends_with("; dependencies are checked without these properties\n"),
            "{}",
            ran.stderr
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unserved_catalog_fails_resolution_unless_best_effort_is_enabled() {
    let catalogs = vec![catalog("main", true), catalog("off", false)];
    let cluster = Cluster::start(catalogs, lines).await;
    let ran = cluster.olm(&["resolve", "base"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert_eq!(
        ran.stderr,
        "error: error walking catalogs: error getting package \"base\" from catalog \"off\": catalog \"off\" is not being \
         served\nhint: exclude it with a selector, such as --selector olm.operatorframework.io/metadata.name!=off, disable it with spec.availabilityMode: Unavailable, or enable feature gate BestEffortResolution\n"
    );
    // Case additions-a34
    let ran = cluster.olm(&["resolve", "base", "--feature-gates", "BestEffortResolution=true"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.contains("catalog off is skipped"), "{}", ran.stdout);
}
