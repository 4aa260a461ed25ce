//! `olm upgrade --for-platform` and the upgrades that `olm cluster-check` prints. The test plays operator-controller.

use kube::api::{Patch, PatchParams, PostParams};
use olm_api::ClusterExtension;
use serde_json::json;

use super::fixture::{Fixture, ended};

/// Installs a bundle that supports Kubernetes up to 1.40.
async fn install(fixture: &Fixture, package: &str, version: &str) {
    let source = json!({"sourceType": "Catalog", "catalog": {"packageName": package, "version": version}});
    let extension: ClusterExtension = serde_json::from_value(
        json!({"metadata": {"name": package}, "spec": {"namespace": "pipe-system", "source": source}}),
    )
    .unwrap();
    let extension = fixture.extensions().create(&PostParams::default(), &extension).await.unwrap();
    fixture.settle(&extension, 1, &format!("{package}.v{version}")).await;
    let limit = r#"[{"type":"ext.olm.operatorframework.io/maxKubernetesVersion","value":"1.40"}]"#;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"olm.properties": limit}}}));
    fixture.sets().patch(&format!("{package}-1"), &PatchParams::default(), &patch).await.unwrap();
}

fn range(extension: &ClusterExtension) -> Option<String> {
    extension.spec.as_ref()?.source.catalog.as_ref()?.version.clone()
}

// docs/design/operations.md#upgrade-targets
#[tokio::test(flavor = "multi_thread")]
async fn blocking_extensions_are_upgraded_step_by_step() {
    let fixture = Fixture::start(&[]).await;
    install(&fixture, "lamp", "1.0.0").await;
    install(&fixture, "shade", "1.2.0").await;
    let none = fixture.olm(&["upgrade", "--for-platform", "1.40"]).await;
    assert_eq!((none.code, none.stdout.as_str()), (0, ""));
    assert_eq!(none.stderr, "no extension blocks Kubernetes 1.40\n");

    let plan = "\
EXTENSION   UPGRADE TO   STEPS                      WITHIN RANGE
lamp        2.0.0        lamp.v1.1.0, lamp.v2.0.0   no
shade       none         -                          -
";
    let check = fixture.olm(&["cluster-check", "--kube", "1.41"]).await;
    assert_eq!((check.code, check.stderr.as_str()), (4, ""));
    assert!(check.stdout.ends_with(plan), "{}", check.stdout);

    let dry = fixture.olm(&["upgrade", "--for-platform", "1.41", "--dry-run=client"]).await;
    assert_eq!(dry.code, 4, "{}", dry.stderr);
    assert!(dry.stdout.starts_with(plan), "{}", dry.stdout);
    assert!(dry.stdout.contains("lamp.v1.1.0 of catalog hub"), "{}", dry.stdout);
    assert!(
        dry.stderr.contains("no upgrade of shade leads to a bundle that supports Kubernetes 1.41"),
        "{}",
        dry.stderr
    );
    assert_eq!(range(&fixture.extension("lamp").await).as_deref(), Some("1.0.0"));
    let asks = fixture.olm(&["upgrade", "--for-platform", "1.41"]).await;
    assert_eq!(asks.code, 2);
    let unanswered = "Upgrade them? Standard input or standard error is not a terminal; confirm with --yes";
    assert!(asks.stderr.contains(unanswered), "{}", asks.stderr);

    let running = fixture.begin(&["upgrade", "--for-platform", "1.41", "--yes", "-o", "name"]);
    let first = fixture.generation("lamp", 2).await;
    assert_eq!(range(&first).as_deref(), Some("1.1.0"));
    fixture.settle(&first, 2, "lamp.v1.1.0").await;
    let second = fixture.generation("lamp", 3).await;
    assert_eq!(range(&second).as_deref(), Some("2.0.0"));
    // Without --wait, the last step is not awaited.
    let ran = ended(running).await;
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let name = "clusterextension.olm.operatorframework.io/lamp\n";
    assert_eq!(ran.stdout, name.repeat(2));
    assert_eq!(range(&fixture.extension("shade").await).as_deref(), Some("1.2.0"));
}
