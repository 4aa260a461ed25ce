//! `olm plan` and `olm approve` of an extension whose objects exist.

use kube::api::{Patch, PatchParams};
use olm_bundle::{Bundle, Certificates, RenderOptions};
use serde_json::{Value, json};

use super::fixture::{Fixture, pipe_bundle};

const APPROVED: &str = "ext.olm.operatorframework.io/approved";

#[tokio::test(flavor = "multi_thread")]
async fn plan_requires_an_approval_until_its_digest_is_approved() {
    let fixture = Fixture::start(&[]).await;
    fixture.install_pipe().await;
    let merge = async |patch: Value| {
        fixture.extensions().patch("pipe", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap()
    };
    merge(json!({"spec": {"source": {"catalog": {"version": "1.1.0"}}}})).await;
    let plan = async || {
        let ran = fixture.olm(&["plan", "pipe", "-o", "json"]).await;
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
        (ran.code, answer)
    };
    let (code, answer) = plan().await;
    assert_eq!((code, answer["state"].as_str()), (0, Some("Automatic")));
    let digest = answer["digest"].as_str().unwrap().to_owned();
    assert_eq!(digest, expected_digest(answer["changes"]["new"]["digest"].as_str().unwrap()));

    let extension = merge(
        json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/approval": "ManualUpgrades"}}}),
    );
    let extension = extension.await;
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
        plan().await,
        (6, {
            let mut answer = answer;
            answer["state"] = json!("ApprovalRequired");
            answer
        })
    );

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
    fixture.say(&extension, None, &[["UpgradeAvailable", "True", "ApprovalRequired", &other]]).await;
    let ran = fixture.olm(&["approve", "pipe"]).await;
    assert!(ran.code == 3 && ran.stderr.contains("operator-controller reports plan "), "{}", ran.stderr);
    assert_eq!(approved().await.get(APPROVED), None);

    let same = format!("bundle pipe.v1.1.0 version 1.1.0 is available; plan {digest}: x; y");
    fixture.say(&extension, None, &[["UpgradeAvailable", "True", "ApprovalRequired", &same]]).await;
    let ran = fixture.olm(&["status", "pipe"]).await;
    assert!(ran.stdout.contains(&format!("ApprovalRequired: {same}")), "{}", ran.stdout);
    let ran = fixture.olm(&["approve", "pipe", "--version", "1.1.0", "--dry-run=server"]).await;
    assert!(ran.code == 0 && ran.stdout.contains("changed (server dry run)"), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(approved().await.get(APPROVED), None);
    let ran = fixture.olm(&["approve", "pipe", "--version", "1.1.0", "--digest", &digest]).await;
    assert!(ran.code == 0 && ran.stdout.contains(&digest), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(approved().await.get(APPROVED), Some(&digest));
    let (code, answer) = plan().await;
    assert_eq!((code, answer["state"].as_str()), (0, Some("Approved")));
    // A changed configuration is another plan.
    fixture.set_controller(&["--feature-gates=DeploymentConfig=true"]).await;
    let inline = json!({"deploymentConfig": {"nodeSelector": {"disk": "ssd"}}});
    merge(json!({"spec": {"config": {"configType": "Inline", "inline": inline}}})).await;
    let (code, answer) = plan().await;
    assert_eq!((code, answer["state"].as_str()), (6, Some("ApprovalRequired")));
}

/// Digest that operator-controller computes, here with another issuer of certificates.
fn expected_digest(image: &str) -> String {
    let bundle = Bundle::load(&pipe_bundle("new")).unwrap();
    let options = RenderOptions {
        install_namespace: "pipe-system",
        certificates: Certificates::CertManager,
        ..RenderOptions::default()
    };
    let objects = olm_bundle::render(&bundle, &options).unwrap();
    olm_plan::digest(&bundle, &options, &objects, image).unwrap()
}
