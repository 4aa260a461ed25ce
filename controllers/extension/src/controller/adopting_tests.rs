//! Adoption of existing objects on a real API server (docs/design/migration.md#adoption).

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use olm_api::conditions::types;
use olm_api::{ClusterObjectSet, annotations};
use olm_control_plane::{HOUSEKEEPING, Options};
use olm_controller_core::install_error::InstallErrorClass;
use olm_plan::objects::ObjectName;
use olm_plan::{AdoptedObject, adoption_digest};
use olm_request::ExtensionRules;
use olm_revision::generate::{BundleIdentity, Draft, Extension};
use serde_json::{Value, json};

use super::decide::tests::observed;
use super::fixture::{DONE, Fixture, NAMESPACE, Release, SYSTEM};
use crate::fixture::run_revisions;

/// Version with the ConfigMaps `kept` and `new`.
fn version(version: &'static str, says: &str) -> Release {
    let map = |name: &str| map(name, &json!({"data": {"says": says}}));
    Release { version, manifests: vec![map("kept"), map("new")], image: None, operator: false }
}

/// ConfigMap with more fields.
fn map(name: &str, more: &Value) -> Value {
    let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    json_patch(&mut map, more);
    map
}

fn json_patch(object: &mut Value, more: &Value) {
    for (key, value) in more.as_object().unwrap() {
        match object.get_mut(key).filter(|old| old.is_object()) {
            Some(old) => json_patch(old, value),
            None => object[key] = value.clone(),
        }
    }
}

fn maps(fixture: &Fixture) -> Api<ConfigMap> {
    Api::namespaced(fixture.plane.client(), NAMESPACE)
}

/// Creates a ConfigMap as classic OLM would.
async fn create_map(fixture: &Fixture, name: &str, more: &Value) -> ConfigMap {
    let mut object = map(name, &json!({"metadata": {"labels": {"olm.owner": "demo.v1.0.0"}}}));
    json_patch(&mut object, more);
    let object = serde_json::from_value(object).unwrap();
    maps(fixture).create(&PostParams::default(), &object).await.unwrap()
}

/// Digest of these ConfigMaps.
fn digest(maps: &[&ConfigMap]) -> String {
    let object = |map: &&ConfigMap| AdoptedObject {
        object: ObjectName {
            group: String::new(),
            kind: "ConfigMap".to_owned(),
            namespace: map.namespace().unwrap(),
            name: map.name_any(),
        },
        uid: map.uid().unwrap(),
    };
    adoption_digest(&maps.iter().map(object).collect::<Vec<_>>())
}

/// Creates the extension `demo` with this digest.
async fn create_extension(fixture: &Fixture, digest: &str) {
    let extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": "demo", "annotations": {annotations::EXT_ADOPT: digest}},
        "spec": {"namespace": NAMESPACE, "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}}});
    let extension = serde_json::from_value(extension).unwrap();
    fixture.extensions.create(&PostParams::default(), &extension).await.unwrap();
}

/// Collision protection of each object of a revision.
fn protections(set: &ClusterObjectSet) -> Vec<Option<String>> {
    let objects = set.spec.iter().flat_map(|spec| &spec.phases).flat_map(|phase| &phase.objects);
    objects.map(|object| object.collision_protection.as_ref().map(|one| one.as_str().to_owned())).collect()
}

fn controller(map: &ConfigMap) -> Option<&str> {
    let mut owners = map.owner_references().iter();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.name.as_str())
}

fn blocked(found: &str) -> String {
    format!(
        "False/Blocked error for resolved bundle \"demo.v1.0.0\" with version \"1.0.0\": the existing objects without \
         a controller do not match annotation ext.olm.operatorframework.io/adopt: found {found}; run `olm migrate \
         plan` again, and set the digest of its list, or remove the annotation to adopt nothing"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn listed_objects_are_adopted_upgraded_and_deleted_with_extension() {
    let fixture = Fixture::start_with(Options { controllers: HOUSEKEEPING }).await;
    let revisions = run_revisions(fixture.plane.client(), SYSTEM);
    fixture.publish("main", &[version("1.0.0", "a")]).await;
    let kept = create_map(&fixture, "kept", &json!({"data": {"says": "a", "more": "x"}})).await;
    create_extension(&fixture, &digest(&[&kept])).await;
    fixture.until_condition("demo", types::PROGRESSING, DONE).await;
    fixture.until_event("demo", "Adopting revision demo-1 adopts ConfigMap ns/kept").await;
    let first = fixture.revision("demo-1").await;
    assert_eq!(protections(&first), [Some("IfNoController".to_owned()), None]);
    assert_eq!(first.annotations()[annotations::EXT_ADOPT], digest(&[&kept]));
    let adopted = maps(&fixture).get("kept").await.unwrap();
    assert_eq!((adopted.uid(), controller(&adopted)), (kept.uid(), Some("demo-1")));
    assert_eq!((&adopted.data, &adopted.labels()["olm.owner"]), (&kept.data, &kept.labels()["olm.owner"]));

    // Neither a change nor the removal of the annotation has an effect.
    let other = digest(&[]);
    for value in [Some(other.as_str()), None, Some(digest(&[&kept]).as_str())] {
        fixture.annotate("demo", &[("adopt", value)]).await;
    }
    fixture.until_reconciled("other").await;
    assert_eq!(fixture.revisions().await, ["demo-1"]);
    assert_eq!(fixture.revision("demo-1").await.metadata.generation, first.metadata.generation);
    assert_eq!(fixture.revision("demo-1").await.annotations(), first.annotations());

    // An upgrade adopts nothing, with the annotation or without it.
    for (number, version_, says) in [(2, "1.1.0", "b"), (3, "1.2.0", "c")] {
        let all = [version("1.0.0", "a"), version("1.1.0", "b"), version("1.2.0", "c")];
        fixture.publish("main", &all[..number]).await;
        let done = format!("True/Succeeded Revision {version_} has rolled out.");
        fixture.until_condition("demo", types::PROGRESSING, &done).await;
        let name = format!("demo-{number}");
        let upgraded = fixture.revision(&name).await;
        assert_eq!(protections(&upgraded), [None, None]);
        assert_eq!(upgraded.annotations()[annotations::EXT_ADOPT], digest(&[&kept]));
        let map = maps(&fixture).get("kept").await.unwrap();
        assert_eq!((map.uid(), controller(&map)), (kept.uid(), Some(name.as_str())));
        assert_eq!(map.data.unwrap()["says"], says);
        fixture.annotate("demo", &[("adopt", None)]).await;
    }
    fixture.extensions.delete("demo", &DeleteParams::default()).await.unwrap();
    let left = async || {
        let params = ListParams::default().labels("olm.operatorframework.io/owner-name=demo");
        maps(&fixture).list(&params).await.unwrap().items.is_empty().then_some(())
    };
    fixture.eventually("adopted objects are deleted", left).await;
    revisions.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_objects_than_the_listed_ones_block_the_revision() {
    let fixture = Fixture::start().await;
    fixture.publish("main", &[version("1.0.0", "a")]).await;
    let kept = create_map(&fixture, "kept", &json!({})).await;
    create_extension(&fixture, &digest(&[])).await;
    fixture.until_condition("demo", types::PROGRESSING, &blocked("ConfigMap ns/kept")).await;
    fixture.annotate("demo", &[("adopt", Some("all"))]).await;
    let invalid = "InvalidAnnotation annotation ext.olm.operatorframework.io/adopt holds upgrades: unknown value \
                   \"all\", allowed: the digest of the objects to adopt, sha256: and 64 hexadecimal digits";
    fixture.until_event("demo", invalid).await;

    // An object appeared after the list was made, and another one was replaced.
    let new = create_map(&fixture, "new", &json!({})).await;
    fixture.annotate("demo", &[("adopt", Some(&digest(&[&kept])))]).await;
    let both = blocked("ConfigMap ns/kept, ConfigMap ns/new");
    fixture.until_condition("demo", types::PROGRESSING, &both).await;
    maps(&fixture).delete("kept", &DeleteParams::default()).await.unwrap();
    let again = create_map(&fixture, "kept", &json!({})).await;
    fixture.annotate("demo", &[("adopt", Some(&digest(&[&kept, &new])))]).await;
    fixture.until_reconciled("other").await;
    fixture.until_condition("demo", types::PROGRESSING, &both).await;
    maps(&fixture).delete("new", &DeleteParams::default()).await.unwrap();
    maps(&fixture).delete("kept", &DeleteParams::default()).await.unwrap();
    fixture.annotate("demo", &[("adopt", Some(&digest(&[&again])))]).await;
    fixture.until_condition("demo", types::PROGRESSING, &blocked("none")).await;
    assert_eq!(fixture.revisions().await, [""; 0]);

    // An object with a controller is not part of the list, and collides.
    let holder = create_map(&fixture, "holder", &json!({})).await;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "holder", "uid": holder.uid(),
        "controller": true}]);
    create_map(&fixture, "new", &json!({"metadata": {"ownerReferences": owner}})).await;
    let kept = create_map(&fixture, "kept", &json!({})).await;
    fixture.annotate("demo", &[("adopt", Some(&digest(&[&kept])))]).await;
    let set = fixture.revision("demo-1").await;
    assert_eq!(protections(&set), [Some("IfNoController".to_owned()), None]);
    let revisions = run_revisions(fixture.plane.client(), SYSTEM);
    let collides = async || {
        let set = fixture.revision("demo-1").await;
        set.condition(types::PROGRESSING)?.message.contains("Object ConfigMap.v1 ns/new\n").then_some(())
    };
    fixture.eventually("the collision is reported", collides).await;
    assert_eq!(controller(&maps(&fixture).get("new").await.unwrap()), Some("holder"));
    revisions.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_read_as_the_service_account_of_the_extension() {
    let fixture = Fixture::start().await;
    let accounts: Api<ServiceAccount> = Api::namespaced(fixture.plane.client(), NAMESPACE);
    let account = serde_json::from_value(json!({"metadata": {"name": "installer"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let extension = fixture.create("demo", &json!({}), &json!({})).await;
    let rules = ExtensionRules { adopt: Some(digest(&[])), ..ExtensionRules::default() };
    let observed = observed(&extension, rules, &[]);
    let (context, bundle) = (fixture.context(), BundleIdentity::default());
    let draft = || {
        let owner =
            Extension { name: "demo".to_owned(), uid: String::new(), progress_deadline_minutes: None };
        let map = map("kept", &json!({"metadata": {"namespace": NAMESPACE}}));
        Draft::new(owner, &bundle, vec![map]).unwrap()
    };
    let plan = context.writer.plan("demo", &draft(), None).await.unwrap();
    let mut inputs = observed.inputs(&bundle);
    assert!(context.installer().adopting(&observed, &inputs, draft(), &plan).await.is_ok());
    for (account, class, text) in [
        ("ns/installer", InstallErrorClass::Retry, "User \"system:serviceaccount:ns:installer\" cannot get"),
        (
            "olmv1-system/operator-controller",
            InstallErrorClass::Blocked,
            "must be <namespace>/<name> of a service account",
        ),
    ] {
        inputs.account = Some(account.to_owned());
        let failure = context.installer().adopting(&observed, &inputs, draft(), &plan).await.unwrap_err();
        assert!(failure.class == class && failure.message.contains(text), "{failure:?}");
    }
}
