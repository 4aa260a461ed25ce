//! `olm plan` and `olm approve` of an extension whose objects exist.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use olm_api::{ClusterExtension, ExtensionPlan, OperatorCondition, labels, names};
use olm_bundle::{BundleContent, Certificates, RenderOptions};
use olm_control_plane::eventually;
use olm_revision::generate::{BundleIdentity, Draft, Extension};
use serde_json::{Value, json};

use super::fixture::{Fixture, pipe_bundle};

const APPROVED: &str = "ext.olm.operatorframework.io/approved";

async fn merge(fixture: &Fixture, patch: Value) -> ClusterExtension {
    fixture.extensions().patch("pipe", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap()
}

/// Exit code and output of `olm plan`.
async fn plan(fixture: &Fixture) -> (i32, Value) {
    let ran = fixture.olm(&["plan", "pipe", "-o", "json"]).await;
    let answer: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
    (ran.code, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_requires_an_approval_until_its_digest_is_approved() {
    let fixture = Fixture::start(&[]).await;
    fixture.install_pipe().await;
    merge(&fixture, json!({"spec": {"source": {"catalog": {"version": "1.1.0"}}}})).await;
    let (code, answer) = plan(&fixture).await;
    assert_eq!((code, answer["state"].as_str()), (0, Some("Automatic")));
    let digest = answer["digest"].as_str().unwrap().to_owned();
    assert_eq!(digest, expected_digest(&answer, false));

    let annotations = json!({"ext.olm.operatorframework.io/approval": "ManualUpgrades"});
    let extension = merge(&fixture, json!({"metadata": {"annotations": annotations}})).await;
    let ran = fixture.olm(&["plan", "pipe"]).await;
    assert_eq!(ran.code, 6, "{}", ran.stderr);
    for line in [
        "requires approval; `olm approve pipe` approves it",
        "5 objects created, 3 changed, 5 deleted",
        "\nPermissions: 1 subject changed",
        &digest,
    ] {
        assert!(ran.stdout.contains(line), "{line}: {}", ran.stdout);
    }
    assert_eq!(
        plan(&fixture).await,
        (6, {
            let mut answer = answer;
            answer["state"] = json!("ApprovalRequired");
            answer
        })
    );

    plan_is_approved_by_its_version_and_digest(&fixture, &extension, &digest).await;
    let (code, answer) = plan(&fixture).await;
    assert_eq!((code, answer["state"].as_str()), (0, Some("Approved")));

    restored_and_changed_plans_wait_again(&fixture).await;
}

/// Plans after a rollback of the same content, a request to retry, and a change of the configuration.
async fn restored_and_changed_plans_wait_again(fixture: &Fixture) {
    // The newest revision restores the predecessor of the same content.
    let annotation = |key: &str, value: &str| json!({"metadata": {"annotations": {(format!("ext.olm.operatorframework.io/{key}")): value}}});
    let refused = json!({"digest": content_digest(), "revision": "pipe-0", "bundle": "pipe.v1.1.0", "version": "1.1.0"});
    let refused = Patch::Merge(annotation("refused", &refused.to_string()));
    fixture.sets().patch("pipe-1", &PatchParams::default(), &refused).await.unwrap();
    let mut states = Vec::new();
    for (key, value) in [("on-failure", "Rollback"), ("retry-requested-at", "now")] {
        merge(fixture, annotation(key, value)).await;
        states.push(plan(fixture).await.1["state"].clone());
    }
    assert_eq!(states, ["RolledBack", "Approved"]);

    // A changed configuration is another plan.
    fixture.set_controller(&["--feature-gates=DeploymentConfig=true"]).await;
    let inline = json!({"deploymentConfig": {"nodeSelector": {"disk": "ssd"}}});
    merge(fixture, json!({"spec": {"config": {"configType": "Inline", "inline": inline}}})).await;
    let (code, answer) = plan(fixture).await;
    assert_eq!((code, answer["state"].as_str()), (6, Some("ApprovalRequired")));
}

/// Approves the plan after other versions and digests are refused.
async fn plan_is_approved_by_its_version_and_digest(
    fixture: &Fixture,
    extension: &ClusterExtension,
    digest: &String,
) {
    let approved = async || fixture.extensions().get("pipe").await.unwrap().metadata.annotations.unwrap();
    for (args, said) in [
        (&["--version", "1.2.0"][..], "the plan of pipe installs version 1.1.0, not \"1.2.0\""),
        (&["--digest", "sha256:0"], "the plan of pipe is now sha256:"),
    ] {
        let ran = fixture.olm(&[&["approve", "pipe"], args].concat()).await;
        assert!(ran.code == 3 && ran.stderr.contains(said), "{}", ran.stderr);
    }
    // The controller reports another plan.
    let other =
        format!("bundle pipe.v1.1.0 version 1.1.0 is available; plan sha256:{}: x; y", "0".repeat(64));
    fixture.say(extension, None, &[["UpgradeAvailable", "True", "ApprovalRequired", &other]]).await;
    let ran = fixture.olm(&["approve", "pipe"]).await;
    assert!(ran.code == 3 && ran.stderr.contains("operator-controller reports plan "), "{}", ran.stderr);
    assert_eq!(approved().await.get(APPROVED), None);

    let same = format!("bundle pipe.v1.1.0 version 1.1.0 is available; plan {digest}: x; y");
    fixture.say(extension, None, &[["UpgradeAvailable", "True", "ApprovalRequired", &same]]).await;
    let ran = fixture.olm(&["status", "pipe"]).await;
    assert!(ran.stdout.contains(&format!("ApprovalRequired: {same}")), "{}", ran.stdout);
    let ran = fixture.olm(&["approve", "pipe", "--version", "1.1.0", "--dry-run=server"]).await;
    assert!(ran.code == 0 && ran.stdout.contains("changed (server dry run)"), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(approved().await.get(APPROVED), None);
    let ran = fixture.olm(&["approve", "pipe", "--version", "1.1.0", "--digest", digest]).await;
    assert!(ran.code == 0 && ran.stdout.contains(digest), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(approved().await.get(APPROVED), Some(digest));
}

// docs/design/approvals.md#operator-conditions
#[tokio::test(flavor = "multi_thread")]
async fn plan_waits_for_the_operator_only_with_gate_and_crd() {
    let fixture = Fixture::start(&[]).await;
    let gate = ["--feature-gates=OperatorConditionCompat=true"];
    fixture.set_controller(&gate).await;
    let plan = async || {
        let ran = fixture.olm(&["plan", "pipe", "-o", "json"]).await;
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
        (ran.code, answer["state"].as_str().unwrap().to_owned(), answer)
    };
    let has_digest = |answer: &Value, operator_condition: bool| {
        assert_eq!(answer["digest"].as_str().unwrap(), expected_digest(answer, operator_condition));
    };
    let crd = [olm_api::crds::operator_condition()];
    let source = json!({"spec": {"source": {"catalog": {"version": "1.1.0"}}}});
    olm_control_plane::apply_crds(&fixture.client(), &crd).await.unwrap();
    fixture.install_pipe_with(true).await;
    fixture.extensions().patch("pipe", &PatchParams::default(), &Patch::Merge(&source)).await.unwrap();
    let (code, state, answer) = plan().await;
    assert_eq!((code, state.as_str()), (0, "Automatic"));
    has_digest(&answer, true);

    let api: Api<OperatorCondition> = Api::namespaced(fixture.client(), "pipe-system");
    let report = json!({"type": "Upgradeable", "status": "False", "reason": "Migrating", "message": "moving data",
        "lastTransitionTime": "2026-11-24T10:00:00Z"});
    let report = Patch::Merge(json!({"spec": {"conditions": [report]}}));
    let reported = api.patch("pipe.v1.0.0", &PatchParams::default(), &report).await.unwrap();
    let outdated = r#"OperatorCondition pipe-system/pipe.v1.0.0: the operatorcondition status "Upgradeable"="False" is outdated"#;
    let (code, state, answer) = plan().await;
    assert_eq!((code, state.as_str(), &answer["blocker"]), (0, "OperatorNotUpgradeable", &json!(outdated)));
    has_digest(&answer, true);
    let status = Patch::Merge(json!({"status": olm_request::mirrored(&reported)}));
    api.patch_status("pipe.v1.0.0", &PatchParams::default(), &status).await.unwrap();
    let ran = fixture.olm(&["plan", "pipe"]).await;
    let why =
        "waits; OperatorCondition pipe-system/pipe.v1.0.0: the operator is not upgradeable: moving data\n";
    assert!(ran.code == 0 && ran.stdout.contains(why), "{}{}", ran.stdout, ran.stderr);

    // Any user of the namespace could have created it.
    let owners = reported.metadata.owner_references.clone();
    let owned = |owners: Value| Patch::Merge(json!({"metadata": {"ownerReferences": owners}}));
    api.patch("pipe.v1.0.0", &PatchParams::default(), &owned(Value::Null)).await.unwrap();
    assert_eq!(plan().await.1, "Automatic");
    api.patch("pipe.v1.0.0", &PatchParams::default(), &owned(json!(owners))).await.unwrap();
    assert_eq!(plan().await.1, "OperatorNotUpgradeable");

    fixture.set_controller(&[]).await;
    let (_, state, answer) = plan().await;
    assert_eq!(state, "Automatic");
    has_digest(&answer, false);
    fixture.set_controller(&gate).await;
    let crds: Api<CustomResourceDefinition> = Api::all(fixture.client());
    let name = olm_api::operator_condition::CRD_NAME;
    crds.delete(name, &Default::default()).await.unwrap();
    eventually("the CRD is deleted", async || crds.get_opt(name).await.unwrap().is_none().then_some(()))
        .await;
    let (_, state, answer) = plan().await;
    assert_eq!(state, "Automatic");
    has_digest(&answer, false);
}

/// Digest of the content of the revision that operator-controller creates of version 1.1.0.
fn content_digest() -> String {
    let bundle = BundleContent::load(&pipe_bundle("new")).unwrap();
    let options = RenderOptions { install_namespace: "pipe-system", ..RenderOptions::default() };
    let objects = olm_bundle::distinct(olm_bundle::render(&bundle, &options).unwrap());
    let owner = Extension { name: "pipe".to_owned(), uid: String::new(), progress_deadline_minutes: None };
    let identity = BundleIdentity {
        package: bundle.package_name().to_owned(),
        version: bundle.version().unwrap().to_owned(),
        ..BundleIdentity::default()
    };
    olm_revision::content::content_digest(Draft::new(owner, &identity, objects).unwrap().phases())
}

/// Digest that operator-controller computes for the new bundle of `answer`, here with another issuer of certificates.
fn expected_digest(answer: &Value, operator_condition: bool) -> String {
    let image = answer["changes"]["new"]["digest"].as_str().unwrap();
    let bundle = BundleContent::load(&pipe_bundle("new")).unwrap();
    let options = RenderOptions {
        install_namespace: "pipe-system",
        certificates: Certificates::CertManager,
        operator_condition,
        ..RenderOptions::default()
    };
    let objects = olm_bundle::render(&bundle, &options).unwrap();
    olm_plan::digest(&bundle, &options, &objects, image).unwrap()
}

// docs/design/approvals.md#plan-objects
#[tokio::test(flavor = "multi_thread")]
async fn waiting_plan_object_is_shown_and_approved() {
    let fixture = Fixture::start(&[]).await;
    fixture.install_pipe().await;
    let annotations = json!({"ext.olm.operatorframework.io/approval": "ManualUpgrades"});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"source": {"catalog": {"version": "1.1.0"}}}});
    let extension =
        fixture.extensions().patch("pipe", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let digest = format!("sha256:{}", "a".repeat(64));
    let name = names::plan_name("pipe", 2, &digest);
    let owner = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": "pipe",
        "uid": extension.metadata.uid, "controller": true});
    let object: ExtensionPlan = serde_json::from_value(json!({
        "metadata": {"name": name, "ownerReferences": [owner], "labels": {labels::OWNER_NAME: "pipe"}},
        "spec": {"plan": {"extension": "pipe", "revision": 2, "digest": digest, "summary": "1 object created",
            "bundle": {"name": "pipe.v1.1.0", "version": "1.1.0", "image": "r.example/pipe", "imageDigest": "sha256:0"},
            "objects": [{"change": "Created", "kind": "ConfigMap", "namespace": "ns", "name": "new"}],
            "permissionsGained": ["ServiceAccount ns/pipe: get on secrets cluster-wide"]}}}))
    .unwrap();
    let plans: Api<ExtensionPlan> = Api::all(fixture.client());
    plans.create(&PostParams::default(), &object).await.unwrap();

    let ran = fixture.olm(&["plan", "pipe"]).await;
    assert_eq!(ran.code, 6, "{}", ran.stderr);
    for line in [
        &format!("ExtensionPlan {name}"),
        &digest,
        "1 object created",
        "\n  Created ConfigMap ns/new\n",
        "\n  ServiceAccount ns/pipe: get on secrets cluster-wide\n",
    ] {
        assert!(ran.stdout.contains(line), "{line}: {}", ran.stdout);
    }
    waiting_plan_object_is_approved_by_its_digest(&fixture, &plans, &extension, &digest).await;

    // A plan that no longer waits is not shown.
    let superseded = Patch::Merge(json!({"status": {"phase": "Superseded"}}));
    plans.patch_status(&name, &PatchParams::default(), &superseded).await.unwrap();
    let (code, answer) = plan(&fixture).await;
    assert_eq!((code, &answer["state"], &answer["object"]), (6, &json!("ApprovalRequired"), &Value::Null));
}

/// Approves the plan after dry runs and the refusal of other versions and plans.
async fn waiting_plan_object_is_approved_by_its_digest(
    fixture: &Fixture,
    plans: &Api<ExtensionPlan>,
    extension: &ClusterExtension,
    digest: &str,
) {
    let name = names::plan_name("pipe", 2, digest);
    let ran = fixture.olm(&["approve", "pipe", "--version", "1.2.0"]).await;
    assert!(ran.code == 3 && ran.stderr.contains("installs version 1.1.0"), "{}", ran.stderr);
    let other =
        format!("bundle pipe.v1.1.0 version 1.1.0 is available; plan sha256:{}: x; y", "0".repeat(64));
    fixture.say(extension, None, &[["UpgradeAvailable", "True", "ApprovalRequired", &other]]).await;
    let ran = fixture.olm(&["approve", "pipe"]).await;
    assert!(ran.code == 3 && ran.stderr.contains("operator-controller reports plan "), "{}", ran.stderr);
    let same = format!("bundle pipe.v1.1.0 version 1.1.0 is available; plan {digest}: x; y");
    fixture.say(extension, None, &[["UpgradeAvailable", "True", "ApprovalRequired", &same]]).await;
    let approved = async || plans.get(&name).await.unwrap().spec.approved;
    for (dry_run, note) in
        [(&["--dry-run=client"][..], " (dry run)"), (&["--dry-run=server"], " (server dry run)"), (&[], "")]
    {
        assert!(!approved().await);
        let ran = fixture.olm(&[&["approve", "pipe", "--digest", digest], dry_run].concat()).await;
        let said = format!("\nextensionplan.ext.olm.operatorframework.io/{name} changed{note}\n");
        assert!(ran.code == 0 && ran.stdout.ends_with(&said), "{}{}", ran.stdout, ran.stderr);
    }
    assert!(approved().await);
    let annotations = fixture.extensions().get("pipe").await.unwrap().metadata.annotations.unwrap();
    assert_eq!(annotations.get(APPROVED), None);
    let (code, answer) = plan(fixture).await;
    assert_eq!((code, &answer["state"], &answer["object"]), (0, &json!("Approved"), &json!(name)));
}
