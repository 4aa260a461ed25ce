//! `olm uninstall` of an extension whose objects exist, with the API server's garbage collector.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use olm_control_plane::{HOUSEKEEPING, eventually};
use serde_json::{Value, json};

use super::fixture::{Fixture, compare, ended};

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_lists_objects_asks_and_deletes() {
    let fixture = Fixture::start(HOUSEKEEPING).await;
    fixture.install_pipe().await;
    make_pipes(&fixture).await;
    plan_counts_objects(&fixture).await;
    uninstall_requires_confirmation(&fixture).await;
    policy_of_the_extension_applies(&fixture).await;
    uninstall_waits_until_revisions_keep_crds(&fixture).await;
    uninstall_waits_for_the_deletion(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_fails_when_custom_resources_keep_finalizers() {
    let fixture = Fixture::start(HOUSEKEEPING).await;
    fixture.install_pipe().await;
    make_pipes(&fixture).await;
    let held = json!({"metadata": {"finalizers": ["example.com/cleanup"]}});
    pipes(&fixture).patch("b", &PatchParams::default(), &Patch::Merge(&held)).await.unwrap();
    let ran = fixture.olm(&["uninstall", "pipe", "--yes", "--wait"]).await;
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let said = "error: pipe is uninstalled, but custom resources with finalizers remain, and the operator that would remove the finalizers is deleted:\n\
                1 pipes.example.com (first: pipe-system/b): finalizer example.com/cleanup; to remove them: \
                kubectl patch pipes.example.com b -n pipe-system --type merge -p '{\"metadata\":{\"finalizers\":null}}'\n";
    assert!(ran.stderr.ends_with(said), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_plan_has_crds_of_archived_revisions_and_dependents() {
    let fixture = Fixture::start(HOUSEKEEPING).await;
    let pipe = fixture.install_pipe().await;
    make_pipes(&fixture).await;
    // The new revision has no CRD, so that the old one stays blocked by the custom resources.
    let succeeded = ["Succeeded", "True", "Succeeded", "Revision succeeded rolling out."];
    fixture.add_revision(&pipe, 2, "pipe.v1.4.0", &[succeeded]).await;
    let archived = json!({"metadata": {"finalizers": ["olm.operatorframework.io/teardown"]},
        "spec": {"lifecycleState": "Archived"}});
    fixture.sets().patch("pipe-1", &PatchParams::default(), &Patch::Merge(&archived)).await.unwrap();
    let listed = "Deletes CRDs:       pipes.example.com: 3 custom resources, first example.com/v1, Kind=Pipe pipe-system/a\n";
    let ran = fixture.olm(&["uninstall", "pipe", "--dry-run=client"]).await;
    assert!(ran.code == 0 && ran.stdout.contains(listed), "{}{}", ran.stdout, ran.stderr);

    fixture.set_controller(&["--dependency-mode=Check"]).await;
    let source = json!({"sourceType": "Catalog", "catalog": {"packageName": "tap"}});
    let tap = json!({"metadata": {"name": "tap"}, "spec": {"namespace": "pipe-system", "source": source}});
    let tap = serde_json::from_value(tap).unwrap();
    let tap = fixture.extensions().create(&PostParams::default(), &tap).await.unwrap();
    fixture.add_revision(&tap, 1, "tap.v1.0.0", &[succeeded]).await;
    let required =
        r#"[{"type":"olm.package.required","value":{"packageName":"pipe","versionRange":">=1.0.0"}}]"#;
    let required = json!({"metadata": {"annotations": {"olm.properties": required}}});
    fixture.sets().patch("tap-1", &PatchParams::default(), &Patch::Merge(&required)).await.unwrap();
    let ran = fixture.olm(&["uninstall", "pipe", "--plan"]).await;
    compare("uninstall-dependents.txt", &ran.stdout);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
}

fn pipes(fixture: &Fixture) -> Api<DynamicObject> {
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Pipe"), "pipes");
    Api::namespaced_with(fixture.client(), "pipe-system", &resource)
}

async fn make_pipes(fixture: &Fixture) {
    let api = pipes(fixture);
    for name in ["a", "b", "c"] {
        let object =
            json!({"apiVersion": "example.com/v1", "kind": "Pipe", "metadata": {"name": name}, "spec": {}});
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        eventually("pipes are served", async || api.create(&PostParams::default(), &object).await.ok()).await;
    }
}

async fn plan_counts_objects(fixture: &Fixture) {
    let ran = fixture.olm(&["uninstall", "pipe", "--plan"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    compare("uninstall-plan.txt", &ran.stdout);
    let ran = fixture.olm(&["uninstall", "pipe", "--plan", "--keep-crds", "-o", "json"]).await;
    compare("uninstall-plan.json", &ran.stdout);
    let ran = fixture.olm(&["uninstall", "pipe", "--dry-run=server", "-o", "name"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "clusterextension.olm.operatorframework.io/pipe\n"));
    assert!(fixture.extension("pipe").await.metadata.deletion_timestamp.is_none());
}

async fn uninstall_requires_confirmation(fixture: &Fixture) {
    let ran = fixture.olm(&["uninstall", "pipe"]).await;
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.starts_with("error: Uninstall pipe and permanently delete "), "{}", ran.stderr);
    assert!(
        ran.stderr.ends_with("Standard input or standard error is not a terminal; confirm with --yes\n"),
        "{}",
        ran.stderr
    );
    let ran = fixture.olm(&["uninstall", "nope", "--yes"]).await;
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (4, "error: there is no ClusterExtension \"nope\"; existing: pipe\n")
    );
    assert!(fixture.extension("pipe").await.metadata.deletion_timestamp.is_none());
}

async fn set_policy(fixture: &Fixture, policy: Option<&str>) {
    let patch =
        json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/uninstall-policy": policy}}});
    fixture.extensions().patch("pipe", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

// Case additions-a49
async fn policy_of_the_extension_applies(fixture: &Fixture) {
    set_policy(fixture, Some("BlockIfInUse")).await;
    let ran = fixture.olm(&["uninstall", "pipe", "--yes"]).await;
    assert_eq!(ran.code, 3);
    let said = "error: cannot uninstall: 3 custom resources exist (first: example.com/v1, Kind=Pipe pipe-system/a), and the \
                uninstall policy of \"pipe\" is BlockIfInUse\n";
    assert!(ran.stderr.starts_with(said), "{}", ran.stderr);
    set_policy(fixture, None).await;
}

// Case additions-a50
async fn uninstall_waits_until_revisions_keep_crds(fixture: &Fixture) {
    let ran = fixture.olm(&["uninstall", "pipe", "--keep-crds", "--yes", "--timeout", "1s"]).await;
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let said = "revision pipe-1 does not have the policy KeepCRDs yet\nnothing has been deleted; ClusterExtension \"pipe\" still has annotation ext.olm.operatorframework.io/uninstall-policy\n";
    assert!(ran.stderr.ends_with(said), "{}", ran.stderr);
    let extension = serde_json::to_value(fixture.extension("pipe").await).unwrap();
    assert_eq!(
        extension["metadata"]["annotations"]["ext.olm.operatorframework.io/uninstall-policy"],
        "KeepCRDs"
    );
    assert_eq!(extension["metadata"]["deletionTimestamp"], Value::Null);
    // The command continues once the controller has written the policy to the revision.
    let patch = json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/uninstall-policy": "KeepCRDs"},
        "finalizers": ["olm.operatorframework.io/test"]}});
    fixture.sets().patch("pipe-1", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let ran = fixture.olm(&["uninstall", "pipe", "--keep-crds", "--dry-run=server"]).await;
    assert!(
        ran.stdout.ends_with("clusterextension.olm.operatorframework.io/pipe deleted (server dry run)\n"),
        "{}",
        ran.stdout
    );
}

async fn uninstall_waits_for_the_deletion(fixture: &Fixture) {
    // The controller's finalizer is still present.
    let finalizers = json!({"metadata": {"finalizers": ["olm.operatorframework.io/test"]}});
    fixture.extensions().patch("pipe", &PatchParams::default(), &Patch::Merge(&finalizers)).await.unwrap();
    let child = fixture.begin(&["uninstall", "pipe", "--keep-crds", "--yes", "--wait"]);
    let api = fixture.extensions();
    eventually("the deletion", async || api.get("pipe").await.unwrap().metadata.deletion_timestamp).await;
    let none = json!({"metadata": {"finalizers": null}});
    api.patch("pipe", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    let sets = fixture.sets();
    eventually("the revision's deletion", async || {
        sets.get("pipe-1").await.unwrap().metadata.deletion_timestamp
    })
    .await;
    sets.patch("pipe-1", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    let ran = ended(child).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.ends_with("clusterextension.olm.operatorframework.io/pipe deleted\npipe is uninstalled\n"),
        "{}",
        ran.stdout
    );
}
