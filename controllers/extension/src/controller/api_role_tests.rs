//! Annotation `aggregate-api-roles` on a real API server (docs/design/additions.md#api-roles).

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::ListParams;
use olm_api::conditions::types;
use olm_revision::content::{SecretKey, resolve_as_is};
use serde_json::{Value, json};

use super::fixture::{Fixture, Release};

/// Version with these CRDs of group `example.com`.
fn release(version: &'static str, plurals: &[&str]) -> Release {
    let crd = |plural: &&str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": plural},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    };
    Release { version, manifests: plurals.iter().map(crd).collect(), image: None, operator: false }
}

/// Phase, owner label and name of every ClusterRole of a revision.
async fn roles(fixture: &Fixture, revision: &str) -> Vec<String> {
    let set = fixture.revision(revision).await;
    let of = format!("{}={revision}", olm_api::labels::REVISION_NAME);
    let secrets = fixture.secrets.list(&ListParams::default().labels(&of)).await.unwrap();
    let key = |secret: &Secret| SecretKey { namespace: secret.namespace().unwrap(), name: secret.name_any() };
    let namespace = secrets.items.first().and_then(ResourceExt::namespace).unwrap_or_default();
    let found = secrets.items.iter().map(|secret| (key(secret), secret.clone())).collect();
    let phases = resolve_as_is(set.spec.as_ref().unwrap(), &namespace, &found).unwrap();
    let line = |phase: &str, object: &Value| {
        let owner = &object["metadata"]["labels"][olm_api::labels::OWNER_NAME];
        format!("{phase} {} {}", owner.as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
    };
    let of_phase = |phase: &olm_revision::content::ContentPhase| -> Vec<String> {
        let roles = phase.objects.iter().filter(|object| object.object["kind"] == "ClusterRole");
        roles.map(|object| line(&phase.name, &object.object)).collect()
    };
    phases.iter().flat_map(of_phase).collect()
}

fn expected(plurals: &[&str]) -> Vec<String> {
    let four = ["admin", "crdview", "edit", "view"];
    let of = |plural: &&str| four.map(|role| format!("roles demo {plural}.example.com-v1-{role}"));
    plurals.iter().flat_map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn annotation_adds_and_removes_roles_with_new_revisions() {
    let mut fixture = Fixture::start().await;
    fixture.publish("main", &[release("1.0.0", &["lamps"])]).await;
    fixture.create("demo", &json!({}), &json!({})).await;
    fixture.succeed("demo-1").await;
    assert_eq!(roles(&fixture, "demo-1").await, [""; 0]);

    fixture.annotate("demo", &[("aggregate-api-roles", Some("true"))]).await;
    fixture.succeed("demo-2").await;
    assert_eq!(roles(&fixture, "demo-2").await, expected(&["lamps"]));

    // At rest no revision is created, not even by a new process.
    fixture.stop_controller().await;
    fixture.start_controller();
    fixture.until_reconciled("other").await;
    assert_eq!(fixture.revisions().await, ["demo-1", "demo-2"]);

    fixture.publish("main", &[release("1.0.0", &["lamps"]), release("1.1.0", &["lamps", "shades"])]).await;
    fixture.succeed("demo-3").await;
    assert_eq!(roles(&fixture, "demo-3").await, expected(&["lamps", "shades"]));

    // An invalid value has no effect, as if the annotation did not exist.
    fixture.annotate("demo", &[("aggregate-api-roles", Some("yes"))]).await;
    fixture.succeed("demo-4").await;
    assert_eq!(roles(&fixture, "demo-4").await, [""; 0]);
    let event = "InvalidAnnotation annotation ext.olm.operatorframework.io/aggregate-api-roles has no effect: unknown \
                 value \"yes\", allowed: true, false";
    fixture.until_event("demo", event).await;
}

// docs/design/approvals.md#approval
#[tokio::test(flavor = "multi_thread")]
async fn access_to_another_kind_is_a_permission_increase_and_another_version_is_not() {
    let fixture = Fixture::start().await;
    fixture.publish("main", &[release("1.0.0", &["lamps"])]).await;
    fixture.create("demo", &json!({}), &json!({})).await;
    fixture.succeed("demo-1").await;
    fixture.annotate("demo", &[("aggregate-api-roles", Some("true"))]).await;
    fixture.succeed("demo-2").await;
    fixture.annotate("demo", &[("approve-permission-increase", Some("true"))]).await;

    let mut versions = release("1.1.0", &["lamps"]);
    let list = versions.manifests[0].pointer_mut("/spec/versions").unwrap().as_array_mut().unwrap();
    let mut second = list[0].clone();
    (second["name"], second["storage"]) = (json!("v2"), json!(false));
    list.push(second);
    let others = versions.manifests.clone();
    fixture.publish("main", &[release("1.0.0", &["lamps"]), versions]).await;
    fixture.succeed("demo-3").await;
    assert_eq!(roles(&fixture, "demo-3").await.len(), 8);

    let versions = Release { manifests: others, ..release("1.1.0", &[]) };
    let all = [release("1.0.0", &["lamps"]), versions, release("1.2.0", &["lamps", "shades"])];
    fixture.publish("main", &all).await;
    let held = |extension: &olm_api::ClusterExtension| {
        let conditions = &extension.status.as_ref()?.conditions;
        let found = olm_api::conditions::find(conditions, types::UPGRADE_AVAILABLE)?;
        let is_held =
            found.reason == "ApprovalRequired" && found.message.contains("permissions gained by 3 subjects");
        is_held.then_some(())
    };
    fixture.until("1.2.0 is held", "demo", held).await;
    assert_eq!(fixture.revisions().await, ["demo-1", "demo-2", "demo-3"]);
}
