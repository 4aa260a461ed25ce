//! Selection of namespaces by label on a real API server. It runs no controller that completes the deletion of a
//! namespace.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use olm_api::annotations;
use olm_api::conditions::types;
use serde_json::json;

use super::fixture::{Fixture, Release, version};

impl Fixture {
    async fn create_namespace(&self, name: &str, team: &str) {
        let namespaces: Api<Namespace> = Api::all(self.plane.client());
        let namespace = json!({"metadata": {"name": name, "labels": {"team": team}}});
        let namespace = serde_json::from_value(namespace).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }

    /// Waits for the revision and returns its list of namespaces.
    async fn list_of(&self, revision: &str) -> String {
        let set = self.revision(revision).await;
        self.succeed(revision).await;
        set.annotations()[annotations::EXT_TARGET_NAMESPACES].clone()
    }

    async fn until_targets(&self, names: &[&str]) {
        let is_so = |extension: &olm_api::ClusterExtension| {
            (extension.status.as_ref()?.target_namespaces == names).then_some(())
        };
        self.until(&format!("targets {names:?}"), "demo", is_so).await;
    }
}

// docs/design/namespaces.md#selector, docs/design/namespaces.md#changed-lists
#[tokio::test(flavor = "multi_thread")]
async fn revision_lists_the_selected_namespaces() {
    let mut fixture = Fixture::start().await;
    fixture.publish("main", &[Release { operator: true, ..version("1.0.0", "a") }]).await;
    let selector = json!({"matchLabels": {"team": "a"}});
    let config = json!({"configType": "Inline", "inline": {"watchNamespaceSelector": selector}});
    fixture.create("demo", &json!({}), &json!({ "config": config })).await;
    let text = "True/Retrying error for resolved bundle \"demo.v1.0.0\" with version \"1.0.0\": no namespace matches \
                watchNamespaceSelector team=a";
    fixture.until_condition("demo", types::PROGRESSING, text).await;
    assert_eq!(fixture.revisions().await, [""; 0]);

    fixture.create_namespace("y", "b").await;
    fixture.create_namespace("x", "a").await;
    assert_eq!(fixture.list_of("demo-1").await, "x");
    fixture.until_targets(&["x"]).await;

    // The changed list is due later. An edited selector brings it at once, another edit does not.
    fixture.create_namespace("z", "a").await;
    fixture.until_reconciled("after-z").await;
    assert_eq!(fixture.revisions().await, ["demo-1"]);
    fixture.edit("demo", &json!({"spec": {"progressDeadlineMinutes": 20}})).await;
    fixture.until_reconciled("after-edit").await;
    assert_eq!(fixture.revisions().await, ["demo-1"]);
    let inline = json!({"watchNamespaceSelector": {"matchLabels": {"team": "b"}}});
    fixture.edit("demo", &json!({"spec": {"config": {"inline": inline}}})).await;
    assert_eq!(fixture.list_of("demo-2").await, "y");
    fixture.until_targets(&["y"]).await;

    // A namespace that is being deleted remains, also after a restart.
    let namespaces: Api<Namespace> = Api::all(fixture.plane.client());
    namespaces.delete("y", &DeleteParams::default()).await.unwrap();
    fixture.until_reconciled("after-deletion").await;
    fixture.stop_controller().await;
    fixture.start_controller();
    fixture.until_reconciled("after-restart").await;
    assert_eq!(fixture.list_of("demo-2").await, "y");
    assert_eq!(fixture.revisions().await, ["demo-1", "demo-2"]);
    fixture.edit("demo", &json!({"spec": {"config": null}})).await;
    fixture.revision("demo-3").await;
    fixture.until_targets(&[""]).await;
    assert!(!fixture.revision("demo-3").await.annotations().contains_key(annotations::EXT_TARGET_NAMESPACES));
}
