//! Status of an extension during the adoption of its Helm release.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use olm_api::conditions::{self, types};
use serde_json::json;

use super::fixture::{Fixture, version};
use crate::adoption::tests::Release;

/// `Installed` condition of `demo` as the reference wrote it.
const INSTALLED: &str = "True/Succeeded Installed bundle r.example/demo:v1.0.0 successfully";

/// Records every status value of the `Installed` condition of `demo`.
fn follow_installed(fixture: &Fixture) -> Arc<Mutex<BTreeSet<String>>> {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let (noted, api) = (Arc::clone(&seen), fixture.extensions.clone());
    tokio::spawn(async move {
        let config = watcher::Config::default().fields("metadata.name=demo");
        let mut changes = Box::pin(watcher(api, config).default_backoff().applied_objects());
        while let Some(change) = changes.next().await {
            let Ok(extension) = change else { continue };
            let all = extension.status.map(|status| status.conditions).unwrap_or_default();
            let installed = conditions::find(&all, types::INSTALLED);
            noted
                .lock()
                .unwrap()
                .insert(installed.map(|condition| condition.status.clone()).unwrap_or_default());
        }
    });
    seen
}

// docs/design/apply.md#migration-to-revision-1; case api-52
#[tokio::test(flavor = "multi_thread")]
async fn adopted_helm_release_remains_installed() {
    let mut fixture = Fixture::start().await;
    let first = version("1.0.0", "a");
    fixture.publish("main", std::slice::from_ref(&first)).await;
    fixture.stop_controller().await;
    let spec = json!({"serviceAccount": {"name": "installer"}});
    let extension = fixture.create("demo", &json!({}), &spec).await;
    let left = json!({"status": {
        "install": {"bundle": {"name": "demo.v1.0.0", "version": "1.0.0"}},
        "conditions": [{"type": "Installed", "status": "True", "reason": "Succeeded", "observedGeneration": 1,
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                        "message": "Installed bundle r.example/demo:v1.0.0 successfully"}]}});
    fixture.extensions.patch_status("demo", &PatchParams::default(), &Patch::Merge(left)).await.unwrap();
    let objects = [json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"says": "a"},
                          "metadata": {"name": "settings", "namespace": "ns1"}})];
    let release = Release { number: 3, status: "deployed", version: "1.0.0", objects: &objects, piece: 300 };
    release.store(&fixture.plane.client(), &extension).await;
    let lost = "sh.helm.release.v1.demo.v3-1";
    let piece = fixture.secrets.get(lost).await.unwrap();
    fixture.secrets.delete(lost, &Default::default()).await.unwrap();
    let seen = follow_installed(&fixture);

    fixture.start_controller();
    let text = format!(
        "True/Retrying migrating storage: failed to get chunk 2 secret {lost:?}: secrets {lost:?} not found"
    );
    fixture.until_condition("demo", types::PROGRESSING, &text).await;
    assert_eq!(fixture.condition("demo", types::INSTALLED).await.as_deref(), Some(INSTALLED));
    assert_eq!(fixture.revisions().await, [""; 0]);

    let mut again = Secret { data: piece.data, ..Secret::default() };
    again.metadata.owner_references = piece.metadata.owner_references;
    again.metadata.name = Some(lost.to_owned());
    fixture.secrets.create(&PostParams::default(), &again).await.unwrap();
    fixture.annotate("demo", &[("again", Some("now"))]).await;
    let set = fixture.revision("demo-1").await;
    assert_eq!(set.metadata.labels.unwrap()["olm.operatorframework.io/migrated-from-helm"], "true");
    fixture
        .until_event("demo", "Adopted Helm release 3 (bundle demo.v1.0.0) adopted as revision demo-1")
        .await;
    fixture.until_reconciled("other").await;
    assert_eq!(fixture.revisions().await, ["demo-1"], "no successor before the adopted revision succeeds");

    fixture.succeed("demo-1").await;
    fixture.succeed("demo-2").await;
    fixture.archive("demo-1").await;
    fixture.publish("main", &[first, version("1.1.0", "b")]).await;
    fixture.succeed("demo-3").await;
    fixture
        .until_condition("demo", types::PROGRESSING, "True/Succeeded Revision 1.1.0 has rolled out.")
        .await;
    assert_eq!(*seen.lock().unwrap(), BTreeSet::from(["True".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn unowned_helm_release_blocks_install_until_annotated() {
    let mut fixture = Fixture::start().await;
    fixture.publish("main", &[version("1.0.0", "a")]).await;
    fixture.stop_controller().await;
    let extension = fixture.create("demo", &json!({}), &json!({})).await;
    let release = Release { number: 1, status: "deployed", version: "1.0.0", objects: &[], piece: 300 };
    release.store(&fixture.plane.client(), &extension).await;
    let index = "sh.helm.release.v1.demo.v1";
    let disown = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    fixture.secrets.patch(index, &PatchParams::default(), &disown).await.unwrap();

    fixture.start_controller();
    let text = format!(
        "True/Retrying migrating storage: Helm release {index} is not adopted: the ClusterExtension does not own its \
         Secret; if the release belongs to this extension, as after a restore, set annotation \
         ext.olm.operatorframework.io/adopt-release=<name of the Secret>; otherwise delete the Secret"
    );
    fixture.until_condition("demo", types::PROGRESSING, &text).await;
    assert_eq!(fixture.revisions().await, [""; 0]);
    fixture.annotate("demo", &[("adopt-release", Some(index))]).await;
    fixture.revision("demo-1").await;
}
