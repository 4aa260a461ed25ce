//! Installations that the reference made with Helm.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use olm_api::conditions::types;
use olm_api::{ClusterExtension, ClusterObjectSet};
use serde_json::{Value, json};

use super::fixture::{ENGINE, Fixture, Release, eventually, managers, objects, owners};
use crate::adoption::AdoptionState;

/// Piece size that no release of these tests reaches.
const WHOLE: usize = 1 << 20;
const SUCCEEDED: &str = "True/Succeeded: Revision succeeded - migrated from Helm release";

fn made(number: u64, bundle: &str, revision: &str) -> AdoptionState {
    AdoptionState::Pending(Some(format!(
        "Helm release {number} (bundle {bundle}) adopted as revision {revision}"
    )))
}

fn rolled_out(version: &str) -> String {
    format!("True/Succeeded: Revision {version} has rolled out.")
}

/// Fields that must not change, or pods would restart or objects be recreated. Without the generation: that of a
/// Deployment also counts its annotations.
fn identity(object: &Value) -> Value {
    json!({"uid": object["metadata"]["uid"], "spec": object["spec"], "rules": object["rules"], "data": object["data"]})
}

// Cases apply-60, apply-62, api-52
#[tokio::test(flavor = "multi_thread")]
async fn helm_installation_is_adopted_without_restart() {
    let fixture = Fixture::start().await;
    let extension = fixture.extension("demo", json!({})).await;
    let (installed, before) = helm_installation_with_manual_changes(&fixture, &extension).await;
    let deployment = &installed[2];
    let adoption = fixture.adoption();
    assert_eq!(adoption.migrate(&extension, &[]).await, Ok(made(1, "demo.v1.0.0", "demo-1")));
    let set = fixture.until("demo-1", types::SUCCEEDED, SUCCEEDED).await;
    assert_eq!(
        adoption.migrate(&extension, &[]).await,
        Ok(AdoptionState::Pending(None)),
        "revision 1 exists"
    );
    check_revision_1(&set, &extension.uid().unwrap());
    let known = fixture.revisions("demo").await;
    assert_eq!(
        adoption.migrate(&extension, &known).await,
        Ok(AdoptionState::Pending(None)),
        "revision 1 owns no object yet"
    );

    let running = fixture.run_revisions();
    eventually("the Deployment is adopted", async || {
        (owners(&fixture.live(deployment).await) == ["demo-1*"]).then_some(())
    })
    .await;
    fixture.make_available(deployment).await;
    fixture.until("demo-1", types::PROGRESSING, &rolled_out("1.0.0")).await;
    for (object, before) in installed.iter().zip(&before) {
        check_adopted(&fixture.live(object).await, before);
    }
    let known = fixture.revisions("demo").await;
    assert_eq!(adoption.migrate(&extension, &known).await, Ok(AdoptionState::Complete));

    adopted_bundle_gets_one_more_revision(&fixture, &extension, &installed).await;
    for (object, before) in installed.iter().zip(&before) {
        let now = fixture.live(object).await;
        assert_eq!((identity(&now), owners(&now)), (identity(before), vec!["demo-2*".to_owned()]));
        assert_eq!(now["metadata"]["annotations"]["meta.helm.sh/release-name"], "demo");
    }
    field_of_the_adopted_bundle_is_removed_by_an_upgrade(&fixture, &extension, deployment).await;
    let now = fixture.live(deployment).await;
    assert_eq!(
        (&now["metadata"]["uid"], &now["spec"]["replicas"]),
        (&before[2]["metadata"]["uid"], &json!(3))
    );
    running.stop().await;
}

/// Objects of a release: as in the release, and live after changes by another field manager, which must remain.
async fn helm_installation_with_manual_changes(
    fixture: &Fixture,
    extension: &ClusterExtension,
) -> (Vec<Value>, Vec<Value>) {
    let installed = objects("demo", &["A", "B"]);
    let deployment = &installed[2];
    fixture.install_with_helm(extension, &installed).await;
    fixture
        .store_release(
            extension,
            &Release { number: 1, status: "deployed", version: "1.0.0", objects: &installed, piece: WHOLE },
        )
        .await;
    fixture.make_available(deployment).await;
    let scaled = json!({"spec": {"replicas": 3}, "metadata": {"annotations": {"team": "a"}}});
    fixture.edit(deployment, scaled, "kubectl").await;
    fixture.make_available(deployment).await;
    let mut before = Vec::new();
    for object in &installed {
        before.push(fixture.live(object).await);
    }
    (installed, before)
}

fn check_adopted(now: &Value, before: &Value) {
    assert_eq!(identity(now), identity(before));
    assert_eq!(owners(now), ["demo-1*"], "the revision replaces the extension as owner");
    assert!(!managers(now).contains(&"operator-controller Update".to_owned()), "{:?}", managers(now));
    assert!(managers(now).contains(&format!("{ENGINE} Apply")));
    assert_eq!(now["metadata"]["labels"]["app.kubernetes.io/managed-by"], ENGINE);
    assert_eq!(now["metadata"]["annotations"]["olm.operatorframework.io/revision"], "1");
    assert_eq!(now["metadata"]["annotations"]["meta.helm.sh/release-name"], "demo");
    assert_eq!(now["metadata"]["annotations"]["team"], before["metadata"]["annotations"]["team"]);
}

/// Installs the adopted bundle as revision 2, with the same content.
async fn adopted_bundle_gets_one_more_revision(
    fixture: &Fixture,
    extension: &ClusterExtension,
    installed: &[Value],
) {
    let deployment = &installed[2];
    assert!(fixture.upgrade(extension, "1.0.0", installed).await);
    eventually("revision 2 applies the Deployment", async || {
        let live = fixture.live(deployment).await;
        (live["metadata"]["annotations"]["olm.operatorframework.io/revision"] == "2").then_some(())
    })
    .await;
    fixture.make_available(deployment).await;
    fixture.until("demo-2", types::PROGRESSING, &rolled_out("1.0.0")).await;
    fixture.until("demo-1", types::PROGRESSING, "False/Archived: revision is archived").await;
    assert!(!fixture.upgrade(extension, "1.0.0", installed).await, "no further revision");
}

async fn field_of_the_adopted_bundle_is_removed_by_an_upgrade(
    fixture: &Fixture,
    extension: &ClusterExtension,
    deployment: &Value,
) {
    let next = objects("demo", &["A"]);
    assert!(fixture.upgrade(extension, "1.0.1", &next).await);
    let variables = "/spec/template/spec/containers/0/env";
    eventually("variable B is removed", async || {
        let live = fixture.live(deployment).await;
        (live.pointer(variables) == Some(&json!([{"name": "A", "value": "x"}]))).then_some(())
    })
    .await;
    fixture.make_available(deployment).await;
    fixture.until("demo-3", types::PROGRESSING, &rolled_out("1.0.1")).await;
}

fn check_revision_1(set: &ClusterObjectSet, extension_uid: &str) {
    let value = serde_json::to_value(set).unwrap();
    assert_eq!(
        value["metadata"]["labels"],
        json!({"olm.operatorframework.io/owner-kind": "ClusterExtension",
               "olm.operatorframework.io/owner-name": "demo",
               "olm.operatorframework.io/migrated-from-helm": "true"})
    );
    assert_eq!(
        value["metadata"]["annotations"],
        json!({"olm.operatorframework.io/bundle-name": "demo.v1.0.0",
               "olm.operatorframework.io/bundle-version": "1.0.0",
               "olm.operatorframework.io/package-name": "demo",
               "olm.operatorframework.io/bundle-reference": "r.example/demo:v1.0.0",
               "olm.properties": "[]"})
    );
    assert_eq!(
        value["metadata"]["ownerReferences"],
        json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": "demo",
                "uid": extension_uid, "controller": true, "blockOwnerDeletion": true}])
    );
    let spec = &value["spec"];
    assert_eq!((&spec["revision"], &spec["collisionProtection"]), (&json!(1), &json!("None")));
    let phases = spec["phases"].as_array().unwrap();
    let names: Vec<&Value> = phases.iter().map(|phase| &phase["name"]).collect();
    assert_eq!(names, ["configuration", "roles", "deploy"]);
    assert_eq!(
        phases[0]["objects"],
        json!([{"object": {
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "<v>"},
            "metadata": {"name": "demo", "namespace": "ns1",
                "labels": {"olm.operatorframework.io/owner-kind": "ClusterExtension",
                           "olm.operatorframework.io/owner-name": "demo"},
                "annotations": {"olm.operatorframework.io/bundle-version": "1.0.0",
                                "olm.operatorframework.io/package-name": "demo"}}}}])
    );
}

// Case apply-61
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_release_is_reported_and_creates_no_revision() {
    let fixture = Fixture::start().await;
    let adoption = fixture.adoption();
    let none = fixture.extension("none", json!({})).await;
    assert_eq!(adoption.migrate(&none, &[]).await, Ok(AdoptionState::Complete));
    fixture
        .store_release(
            &none,
            &Release {
                number: 1,
                status: "failed",
                version: "1.0.0",
                objects: &objects("none", &[]),
                piece: WHOLE,
            },
        )
        .await;
    assert_eq!(adoption.migrate(&none, &[]).await, Ok(AdoptionState::Complete), "no release was deployed");

    let extension = fixture.extension("demo", json!({})).await;
    let installed = objects("demo", &["A"]);
    fixture
        .store_release(
            &extension,
            &Release { number: 1, status: "deployed", version: "1.0.0", objects: &installed, piece: 200 },
        )
        .await;
    fixture
        .store_release(
            &extension,
            &Release { number: 2, status: "failed", version: "1.1.0", objects: &installed, piece: WHOLE },
        )
        .await;
    let name = "sh.helm.release.v1.demo.v1-2";
    let piece = fixture.secrets().get(name).await.unwrap();
    fixture.secrets().delete(name, &Default::default()).await.unwrap();
    let failure = adoption.migrate(&extension, &[]).await.unwrap_err();
    let expected =
        format!("migrating storage: failed to get chunk 3 secret {name:?}: secrets {name:?} not found");
    assert_eq!(failure.message, expected);
    assert_eq!(fixture.revisions("demo").await.len(), 0);

    let mut again = Secret { data: piece.data, ..Secret::default() };
    again.metadata.owner_references = piece.metadata.owner_references;
    again.metadata.name = Some(name.to_owned());
    fixture.secrets().create(&PostParams::default(), &again).await.unwrap();
    assert_eq!(adoption.migrate(&extension, &[]).await, Ok(made(1, "demo.v1.0.0", "demo-1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn unowned_release_is_adopted_only_if_an_administrator_names_it() {
    let fixture = Fixture::start().await;
    let adoption = fixture.adoption();
    let index = "sh.helm.release.v1.demo.v1";
    let extension = fixture.extension("demo", json!({})).await;
    let installed = objects("demo", &["A"]);
    let release =
        Release { number: 1, status: "deployed", version: "1.0.0", objects: &installed, piece: 200 };
    fixture.store_release(&extension, &release).await;
    let disown = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    let piece = format!("{index}-1");
    fixture.secrets().patch(&piece, &PatchParams::default(), &disown).await.unwrap();
    let failure = adoption.migrate(&extension, &[]).await.unwrap_err();
    assert!(failure.message.contains("is not owned by index secret"), "{}", failure.message);
    fixture.secrets().patch(index, &PatchParams::default(), &disown).await.unwrap();
    let note = adoption.migrate(&extension, &[]).await.unwrap_err().message;
    assert!(note.contains(index) && note.contains("ext.olm.operatorframework.io/adopt-release="), "{note}");
    assert_eq!(fixture.revisions("demo").await.len(), 0);

    let named = Patch::Merge(
        json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/adopt-release": index}}}),
    );
    let extensions: Api<ClusterExtension> = Api::all(fixture.client());
    let extension = extensions.patch("demo", &PatchParams::default(), &named).await.unwrap();
    assert_eq!(adoption.migrate(&extension, &[]).await, Ok(made(1, "demo.v1.0.0", "demo-1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_adoption_is_completed() {
    let fixture = Fixture::start().await;
    let adoption = fixture.adoption();
    let extension = fixture.extension("demo", json!({})).await;
    fixture
        .store_release(
            &extension,
            &Release {
                number: 1,
                status: "deployed",
                version: "1.0.0",
                objects: &objects("demo", &[]),
                piece: WHOLE,
            },
        )
        .await;
    assert_eq!(adoption.migrate(&extension, &[]).await, Ok(made(1, "demo.v1.0.0", "demo-1")));
    let unmarked = Patch::Merge(json!({"status": {"conditions": []}}));
    fixture.sets().patch_status("demo-1", &PatchParams::default(), &unmarked).await.unwrap();
    let known = fixture.revisions("demo").await;
    assert_eq!(adoption.migrate(&extension, &known).await, Ok(AdoptionState::Pending(None)));
    fixture.until("demo-1", types::SUCCEEDED, SUCCEEDED).await;

    // A first revision that was not adopted is never set to succeeded here.
    let own = fixture.extension("own", json!({})).await;
    fixture
        .store_release(
            &own,
            &Release {
                number: 1,
                status: "deployed",
                version: "1.0.0",
                objects: &objects("own", &[]),
                piece: WHOLE,
            },
        )
        .await;
    assert!(fixture.upgrade(&own, "1.0.0", &objects("own", &[])).await);
    let known = fixture.revisions("own").await;
    assert_eq!(adoption.migrate(&own, &known).await, Ok(AdoptionState::Complete));
    assert_eq!(fixture.sets().get("own-1").await.unwrap().status, None);
}

/// Creates a ClusterObjectSet with the label of a revision of `demo`, controlled by another extension.
async fn stranger(fixture: &Fixture, name: &str) {
    let set = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
        "metadata": {"name": name, "labels": {"olm.operatorframework.io/owner-name": "demo"},
            "ownerReferences": [{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
                "name": "other", "uid": "uid-of-other", "controller": true}]},
        "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"}});
    let set = serde_json::from_value(set).unwrap();
    fixture.sets().create(&PostParams::default(), &set).await.unwrap();
}

// docs/design/apply.md#revision-membership
#[tokio::test(flavor = "multi_thread")]
async fn revisions_of_other_owners_do_not_delay_adoption() {
    let fixture = Fixture::start().await;
    let adoption = fixture.adoption();
    let extension = fixture.extension("demo", json!({})).await;
    let installed = objects("demo", &["A"]);
    let release =
        Release { number: 1, status: "deployed", version: "1.0.0", objects: &installed, piece: WHOLE };
    fixture.store_release(&extension, &release).await;
    stranger(&fixture, "stranger").await;
    stranger(&fixture, "demo-1").await;
    assert_eq!(
        adoption.migrate(&extension, &[]).await.unwrap_err().message,
        "migrating storage: creating new Revision: ClusterObjectSet \"demo-1\" already exists and does not belong to \
         this extension: it is controlled by ClusterExtension \"other\""
    );
    fixture.sets().delete("demo-1", &Default::default()).await.unwrap();
    eventually("deletion", async || fixture.sets().get_opt("demo-1").await.unwrap().is_none().then_some(()))
        .await;
    assert_eq!(adoption.migrate(&extension, &[]).await, Ok(made(1, "demo.v1.0.0", "demo-1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn release_larger_than_one_object_is_adopted() {
    let fixture = Fixture::start().await;
    let adoption = fixture.adoption();
    for (name, count) in [("small", 48), ("large", 150)] {
        let extension = fixture.extension(name, json!({"ext.olm.operatorframework.io/paused": "true"})).await;
        // 10 KiB each, in small fields.
        let data: Value = (0..200).map(|n| (format!("key-{n}"), Value::from("x".repeat(40)))).collect();
        let object = |n: u32| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
                   "metadata": {"name": format!("{name}-{n}"), "namespace": "ns1"}})
        };
        let installed: Vec<Value> = (0..count).map(object).collect();
        fixture
            .store_release(
                &extension,
                &Release {
                    number: 7,
                    status: "deployed",
                    version: "1.0.0",
                    objects: &installed,
                    piece: 1016 * 1024,
                },
            )
            .await;
        let bundle = format!("{name}.v1.0.0");
        let revision = format!("{name}-1");
        assert_eq!(adoption.migrate(&extension, &[]).await, Ok(made(7, &bundle, &revision)));
        let set = fixture.sets().get(&revision).await.unwrap();
        assert_eq!(
            set.annotations()["ext.olm.operatorframework.io/paused"],
            "true",
            "the annotation is set at creation"
        );
        let of = kube::api::ListParams::default()
            .labels(&format!("olm.operatorframework.io/revision-name={revision}"));
        let secrets: Api<Secret> = fixture.secrets();
        let secrets = secrets.list(&of).await.unwrap().items;
        assert_eq!(secrets.is_empty(), name == "small");
        assert!(secrets.iter().all(|secret| secret.owner_references()[0].name == revision));
    }
}
