//! Deletion of an extension on a real API server.

use std::fs;
use std::path::PathBuf;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use olm_api::ClusterObjectSet;
use olm_api::conditions::{self, types};
use olm_control_plane::{HOUSEKEEPING, Options};

use super::super::fixture::{DONE, Fixture, NAMESPACE, installed, line, version};
use super::*;

/// Creates a CRD that this revision owns, and custom resources of it.
async fn in_use(fixture: &Fixture, owner: &ClusterObjectSet, names: &[&str]) -> Api<DynamicObject> {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    fixture.plane.apply_crds(&[crd]).await.unwrap();
    let owned = json!({"metadata": {"labels": {"olm.operatorframework.io/owner-name": "demo"},
        "ownerReferences": [{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "name": owner.name_any(), "uid": owner.uid(), "controller": true}]}});
    let crds: Api<CustomResourceDefinition> = Api::all(fixture.plane.client());
    crds.patch("widgets.example.com", &PatchParams::default(), &Patch::Merge(owned)).await.unwrap();
    let resource = ApiResource {
        group: "example.com".to_owned(),
        version: "v1".to_owned(),
        api_version: "example.com/v1".to_owned(),
        kind: "Widget".to_owned(),
        plural: "widgets".to_owned(),
    };
    let widgets: Api<DynamicObject> = Api::namespaced_with(fixture.plane.client(), NAMESPACE, &resource);
    for &name in names {
        let widget = DynamicObject::new(name, &resource);
        widgets.create(&PostParams::default(), &widget).await.unwrap();
    }
    widgets
}

/// Uninstall policy in the annotation of a revision.
async fn policy(fixture: &Fixture, revision: &str) -> Option<String> {
    let set = fixture.sets.get(revision).await.unwrap();
    set.annotations().get("ext.olm.operatorframework.io/uninstall-policy").cloned()
}

/// Unblocks the removal with the policy `KeepCRDs`, and waits until its cache cannot be removed, so that one finalizer
/// remains (case api-51). Returns the path of the file that is in the way.
async fn obstruct_cache(fixture: &Fixture, mut finalizers: serde_json::Value) -> PathBuf {
    let place = fixture.cache().join("unpack/extensions/demo");
    fs::remove_dir_all(&place).unwrap();
    fs::write(&place, "in the way").unwrap();
    // One write, because each of the changes alone unblocks the removal.
    finalizers["metadata"]["annotations"] =
        json!({"ext.olm.operatorframework.io/uninstall-policy": "KeepCRDs"});
    fixture.edit("demo", &finalizers).await;
    let failed = |extension: &ClusterExtension| {
        let progressing = conditions::find(&extension.status.as_ref()?.conditions, types::PROGRESSING)?;
        let is_reported = line(progressing).starts_with(
            "True/Retrying finalizer \"olm.operatorframework.io/cleanup-unpack-cache\" failed: ",
        );
        (is_reported && extension.finalizers() == [FINALIZERS[0], "example.com/foreign"]).then_some(())
    };
    fixture.until("the failed finalizer", "demo", failed).await;
    place
}

// docs/design/additions.md#uninstall-policy, docs/design/apply.md#recreated-extensions; cases additions-a49,
// additions-a50, api-51
#[tokio::test(flavor = "multi_thread")]
async fn deletion_follows_uninstall_policy() {
    let fixture = Fixture::start().await;
    installed(&fixture, &json!({})).await;
    fixture.annotate("demo", &[("uninstall-policy", Some("Keep"))]).await;
    let note = "InvalidAnnotation annotation ext.olm.operatorframework.io/uninstall-policy counts as BlockIfInUse: \
                unknown value \"Keep\", allowed: Delete, KeepCRDs, BlockIfInUse";
    fixture.until_event("demo", note).await;
    let written =
        fixture.eventually("the policy annotation", async || policy(&fixture, "demo-1").await).await;
    assert_eq!(written, "BlockIfInUse");

    let set = fixture.sets.get("demo-1").await.unwrap();
    let widgets = in_use(&fixture, &set, &["a", "b", "c"]).await;
    let foreign = json!({"metadata": {"finalizers": [FINALIZERS[0], FINALIZERS[1], "example.com/foreign"]}});
    fixture.edit("demo", &foreign).await;
    fixture.extensions.delete("demo", &DeleteParams::foreground()).await.unwrap();
    let text =
        "False/Blocked cannot uninstall: 3 custom resources exist (first: example.com/v1, Kind=Widget ns/a)";
    let held = fixture.until_condition("demo", types::PROGRESSING, text).await;
    assert_eq!(held.finalizers().len(), 4);
    // State after garbage collection.
    let keeper = json!({"apiVersion": "v1", "kind": "Namespace", "name": "kube-system", "uid": "k"});
    let kept = Patch::Merge(json!({"metadata": {"ownerReferences": [keeper]}}));
    let crds: Api<CustomResourceDefinition> = Api::all(fixture.plane.client());
    crds.patch("widgets.example.com", &PatchParams::default(), &kept).await.unwrap();
    widgets.delete("a", &DeleteParams::default()).await.unwrap();
    let text =
        "False/Blocked cannot uninstall: 2 custom resources exist (first: example.com/v1, Kind=Widget ns/b)";
    fixture.until_condition("demo", types::PROGRESSING, text).await;
    let place = obstruct_cache(&fixture, foreign).await;
    assert_eq!(
        policy(&fixture, "demo-1").await.as_deref(),
        Some("KeepCRDs"),
        "the policy is copied before a deletion"
    );
    for name in ["b", "c"] {
        widgets.delete(name, &DeleteParams::default()).await.unwrap();
    }
    fixture.annotate("demo", &[("uninstall-policy", None)]).await;
    fixture
        .eventually("no policy annotation", async || policy(&fixture, "demo-1").await.is_none().then_some(()))
        .await;
    fs::remove_file(&place).unwrap();
    let released =
        |extension: &ClusterExtension| (extension.finalizers() == ["example.com/foreign"]).then_some(());
    fixture.until("only the foreign finalizer", "demo", released).await;
    fixture.edit("demo", &json!({"metadata": {"finalizers": []}})).await;
    fixture
        .eventually("the deletion", async || {
            fixture.extensions.get_opt("demo").await.unwrap().is_none().then_some(())
        })
        .await;
}

/// Revision of `demo` without objects.
fn revision(name: &str, state: &str, owners: &serde_json::Value) -> ClusterObjectSet {
    serde_json::from_value(json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
        "metadata": {"name": name, "ownerReferences": owners,
            "labels": {"olm.operatorframework.io/owner-name": "demo"}},
        "spec": {"lifecycleState": state, "revision": 1, "collisionProtection": "Prevent"},
    }))
    .unwrap()
}

/// Waits until the garbage collector knows our CRDs. It started before they were created, and would orphan nothing
/// until then.
async fn collected(fixture: &Fixture) {
    let owner = json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": "nobody",
        "uid": "00000000-0000-0000-0000-000000000000"}]);
    let set = revision("nobody-1", "Archived", &owner);
    fixture.sets.create(&PostParams::default(), &set).await.unwrap();
    fixture
        .eventually("the garbage collector", async || {
            fixture.sets.get_opt("nobody-1").await.unwrap().is_none().then_some(())
        })
        .await;
}

// docs/design/apply.md#recreated-extensions; cases apply-58, apply-59
#[tokio::test(flavor = "multi_thread")]
async fn revisions_are_garbage_collected_or_adopted() {
    let fixture = Fixture::start_with(Options { controllers: HOUSEKEEPING }).await;
    installed(&fixture, &json!({})).await;
    collected(&fixture).await;
    // An old revision, which the controller no longer decides about.
    let old = revision("demo-0", "Archived", &json!(null));
    fixture.sets.create(&PostParams::default(), &old).await.unwrap();
    let before = fixture.sets.get("demo-1").await.unwrap();
    fixture.extensions.delete("demo", &DeleteParams::orphan()).await.unwrap();
    fixture
        .eventually("the deletion", async || {
            fixture.extensions.get_opt("demo").await.unwrap().is_none().then_some(())
        })
        .await;
    assert!(fixture.sets.get("demo-1").await.unwrap().owner_references().is_empty());
    // Adoption needs no choice of a bundle.
    let again = fixture.create("demo", &json!({"version": "9.9.9"}), &json!({})).await;
    for name in ["demo-0", "demo-1"] {
        let is_owned = async || {
            let set = fixture.sets.get(name).await.unwrap();
            set.owner_references().iter().any(|owner| Some(&owner.uid) == again.uid().as_ref()).then_some(())
        };
        fixture.eventually("the owner", is_owned).await;
    }
    fixture.edit("demo", &json!({"spec": {"source": {"catalog": {"version": null}}}})).await;
    fixture.until_condition("demo", types::PROGRESSING, DONE).await;
    let after = fixture.sets.get("demo-1").await.unwrap();
    assert_eq!(after.uid(), before.uid());
    assert_eq!(after.owner_references()[0].uid, again.uid().unwrap());
    assert_eq!(fixture.revisions().await, ["demo-0", "demo-1"]);

    fixture.extensions.delete("demo", &DeleteParams::default()).await.unwrap();
    fixture.eventually("no revisions", async || (fixture.revisions().await.is_empty()).then_some(())).await;
    fixture
        .eventually("no Secrets", async || (fixture.content("demo-1").await.is_empty()).then_some(()))
        .await;
    assert!(fixture.extensions.get_opt("demo").await.unwrap().is_none());
}

/// Adds the finalizer of the revision controller, which does not run here, and deletes the revision.
async fn remove(fixture: &Fixture, revision: &str) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": [olm_api::finalizers::TEARDOWN]}}));
    fixture.sets.patch(revision, &PatchParams::default(), &patch).await.unwrap();
    fixture.sets.delete(revision, &DeleteParams::default()).await.unwrap();
}

// docs/design/apply.md#recreated-extensions: a removal keeps the policy of the extension that was deleted
#[tokio::test(flavor = "multi_thread")]
async fn recreated_extension_is_installed_beside_the_removal_of_the_former_one() {
    let fixture = Fixture::start().await;
    installed(&fixture, &json!({})).await;
    fixture.annotate("demo", &[("uninstall-policy", Some("KeepCRDs"))]).await;
    fixture.eventually("the policy annotation", async || policy(&fixture, "demo-1").await).await;
    fixture.extensions.delete("demo", &DeleteParams::default()).await.unwrap();
    let is_gone = async || fixture.extensions.get_opt("demo").await.unwrap().is_none().then_some(());
    fixture.eventually("the deletion", is_gone).await;
    remove(&fixture, "demo-1").await;

    fixture.create("demo", &json!({}), &json!({})).await;
    let second = fixture.revision("demo-2").await;
    let installed = fixture.condition("demo", types::INSTALLED).await;
    assert!(installed.is_none_or(|text| text.starts_with("False/")), "the former revision is not installed");
    assert_eq!(second.annotations()[annotations::BUNDLE_VERSION], "1.0.0");
    assert_eq!(policy(&fixture, "demo-1").await.as_deref(), Some("KeepCRDs"));
    fixture.succeed("demo-2").await;
    fixture.until_condition("demo", types::PROGRESSING, DONE).await;
    assert_eq!(policy(&fixture, "demo-1").await.as_deref(), Some("KeepCRDs"));
}

// docs/design/additions.md#uninstall-policy: the first pass over a revision obeys the policy.
#[tokio::test(flavor = "multi_thread")]
async fn new_revision_is_created_with_the_annotations_that_its_first_pass_obeys() {
    let fixture = Fixture::start().await;
    let annotations =
        json!({annotations::EXT_UNINSTALL_POLICY: "KeepCRDs", annotations::EXT_REPLACE_IMMUTABLE: "Allow"});
    fixture.create_annotated("demo", &annotations, &json!({}), &json!({})).await;
    fixture.publish("main", &[version("1.0.0", "a")]).await;
    let set = fixture.revision("demo-1").await;
    let applied = set
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .find(|entry| entry.operation.as_deref() == Some("Apply"));
    let fields = serde_json::to_value(&applied.unwrap().fields_v1).unwrap();
    for key in [annotations::EXT_UNINSTALL_POLICY, annotations::EXT_REPLACE_IMMUTABLE] {
        assert!(fields["f:metadata"]["f:annotations"].get(format!("f:{key}")).is_some(), "{fields}");
    }
}

// docs/design/apply.md#keep-patch-or-create
#[tokio::test(flavor = "multi_thread")]
async fn deleted_revision_is_recreated_with_next_number() {
    let fixture = Fixture::start().await;
    installed(&fixture, &json!({})).await;
    remove(&fixture, "demo-1").await;
    let second = fixture.revision("demo-2").await;
    assert_eq!(second.annotations()[annotations::BUNDLE_VERSION], "1.0.0");
    assert!(fixture.condition("demo", types::INSTALLED).await.unwrap().starts_with("True/Succeeded"));
}

// docs/design/additions.md#uninstall-policy
#[tokio::test(flavor = "multi_thread")]
async fn policy_is_copied_while_a_foreign_finalizer_keeps_the_extension() {
    let fixture = Fixture::start().await;
    installed(&fixture, &json!({})).await;
    let foreign = json!({"metadata": {"finalizers": [FINALIZERS[0], FINALIZERS[1], "example.com/foreign"]}});
    fixture.edit("demo", &foreign).await;
    fixture.extensions.delete("demo", &DeleteParams::default()).await.unwrap();
    let is_kept =
        |extension: &ClusterExtension| (extension.finalizers() == ["example.com/foreign"]).then_some(());
    fixture.until("only the foreign finalizer", "demo", is_kept).await;
    fixture.annotate("demo", &[("uninstall-policy", Some("KeepCRDs"))]).await;
    let policy = fixture.eventually("the policy annotation", async || policy(&fixture, "demo-1").await).await;
    assert_eq!(policy, "KeepCRDs");
}
