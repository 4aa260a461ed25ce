//! `olm upgrade` of an extension whose objects exist.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::fixture::{Fixture, compare};

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_prints_changes_and_rejects_breaking_ones() {
    let fixture = Fixture::start(&[]).await;
    fixture.install_pipe().await;
    upgrade_without_flags_shows_the_automatic_upgrade(&fixture).await;
    breaking_crd_upgrade_is_rejected(&fixture).await;
    dry_run_prints_changes(&fixture).await;
    only_what_flags_say_is_changed(&fixture).await;
    invalid_arguments_are_rejected(&fixture).await;
    timeout_names_the_blocking_object(&fixture).await;
}

async fn catalog(fixture: &Fixture) -> Value {
    let extension = fixture.extensions().get("pipe").await.unwrap();
    serde_json::to_value(extension).unwrap()["spec"]["source"]["catalog"].clone()
}

async fn upgrade_without_flags_shows_the_automatic_upgrade(fixture: &Fixture) {
    let ran = fixture.olm(&["upgrade", "pipe"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    compare("upgrade-stay.txt", &ran.stdout);
}

// Case apply-49
async fn breaking_crd_upgrade_is_rejected(fixture: &Fixture) {
    let before = catalog(fixture).await;
    let ran = fixture.olm(&["upgrade", "pipe", "--latest"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""));
    assert!(
        ran.stderr.contains(
            "error: the controller would refuse the upgrade:\n  CustomResourceDefinition pipes.example.com: "
        ),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr
            .contains("`kubectl annotate clusterextension pipe ext.olm.operatorframework.io/crd-check=Live`"),
        "{}",
        ran.stderr
    );
    assert_eq!(catalog(fixture).await, before);
    let live = json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/crd-check": "Live"}}});
    fixture.extensions().patch("pipe", &PatchParams::default(), &Patch::Merge(&live)).await.unwrap();
}

async fn dry_run_prints_changes(fixture: &Fixture) {
    let before = catalog(fixture).await;
    let ran = fixture.olm(&["upgrade", "pipe", "--version", "1.1.x", "--dry-run=server"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    compare("upgrade.txt", &ran.stdout);
    assert_eq!(catalog(fixture).await, before);
}

async fn only_what_flags_say_is_changed(fixture: &Fixture) {
    let ran =
        fixture.olm(&["upgrade", "pipe", "--version", "1.1.x", "--channel", "default", "-o", "yaml"]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let expected = json!({"packageName": "pipe", "version": "1.1.x", "channels": ["stable"], "upgradeConstraintPolicy": "CatalogProvided"});
    assert_eq!(catalog(fixture).await, expected);
    let extension = fixture.extensions().get("pipe").await.unwrap();
    let managers = extension.metadata.managed_fields.unwrap_or_default();
    assert!(managers.iter().any(|entry| entry.manager.as_deref() == Some("olm-cli")), "{managers:?}");
    let again = fixture.olm(&["upgrade", "pipe", "--version", "1.1.x", "-o", "name"]).await;
    assert_eq!((again.code, again.stdout.as_str()), (0, "clusterextension.olm.operatorframework.io/pipe\n"));
    let ran = fixture.olm(&["upgrade", "pipe", "--latest", "--force"]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("upgradeConstraintPolicy is SelfCertified"), "{}", ran.stdout);
    let expected =
        json!({"packageName": "pipe", "channels": ["stable"], "upgradeConstraintPolicy": "SelfCertified"});
    assert_eq!(catalog(fixture).await, expected);
}

async fn invalid_arguments_are_rejected(fixture: &Fixture) {
    for (args, code, said) in [
        (&["nope"][..], 4, "error: there is no ClusterExtension \"nope\"; existing: pipe\n"),
        (
            &["pipe", "--version", "9.9.9"],
            4,
            "error: error upgrading from currently installed version \"1.0.0\": no bundles found for package",
        ),
        (&["pipe", "--version", "1 OR 2"], 2, "error: spec.source.catalog.version: "),
    ] {
        let ran = fixture.olm(&[&["upgrade"], args].concat()).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{args:?}");
        assert!(ran.stderr.starts_with(said), "{}", ran.stderr);
    }
}

/// The Deployment has no status, because no controller runs it here.
async fn timeout_names_the_blocking_object(fixture: &Fixture) {
    let extension = fixture.extensions().get("pipe").await.unwrap();
    let rolling = ["Progressing", "True", "RollingOut", "Revision 1.0.0 is rolling out."];
    fixture.add_revision(&extension, 1, "pipe.v1.0.0", &[rolling]).await;
    fixture.say(&extension, None, &[["Installed", "False", "Absent", "No bundle installed"], rolling]).await;
    let ran = fixture.olm(&["upgrade", "pipe", "--wait", "--timeout", "8s"]).await;
    assert_eq!(ran.code, 1);
    let said = "error: timed out after 8s waiting for pipe: revision pipe-1: Revision 1.0.0 is rolling out. phase deploy: Deployment \
                pipe-system/pipe-manager";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
}
