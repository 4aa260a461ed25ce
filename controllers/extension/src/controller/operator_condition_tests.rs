//! Gate `OperatorConditionCompat` on a real API server (docs/design/approvals.md#operator-conditions).

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use olm_api::conditions::{self, types};
use olm_api::operator_condition::CRD_NAME;
use olm_api::{ClusterExtension, ClusterObjectSet, OperatorCondition, annotations};
use serde_json::{Value, json};

use super::fixture::{DONE, Fixture, NAMESPACE, Release, line, version};
use crate::operator_conditions::OperatorConditions;

const UP_TO_DATE: &str = "False/UpToDate no newer version is held back";

fn operator(number: &'static str) -> Release {
    Release { operator: true, ..version(number, number) }
}

fn condition(status: &str, message: &str) -> Value {
    json!({"type": "Upgradeable", "status": status, "reason": "Reported", "message": message,
        "lastTransitionTime": "2026-11-24T10:00:00Z"})
}

impl Fixture {
    fn conditions(&self) -> Api<OperatorCondition> {
        Api::namespaced(self.plane.client(), NAMESPACE)
    }

    async fn define(&self) {
        self.plane.apply_crds(&[olm_api::crds::operator_condition()]).await.unwrap();
    }

    /// Creates an OperatorCondition as the revision controller does, with the revision of its bundle as controller.
    async fn apply_condition(&self, name: &str) {
        let sets = self.sets.list(&ListParams::default()).await.unwrap().items;
        let is_of = |set: &&ClusterObjectSet| {
            set.annotations().get(annotations::BUNDLE_NAME).is_some_and(|bundle| bundle == name)
        };
        let owner = sets.iter().find(is_of).and_then(|set| set.controller_owner_ref(&()));
        self.create_condition(NAMESPACE, name, owner).await;
    }

    async fn create_condition(
        &self,
        namespace: &str,
        name: &str,
        owner: Option<OwnerReference>,
    ) -> OperatorCondition {
        let api: Api<OperatorCondition> = Api::namespaced(self.plane.client(), namespace);
        let labels = json!({"olm.operatorframework.io/owner-kind": "ClusterExtension",
            "olm.operatorframework.io/owner-name": "demo"});
        let owners: Vec<OwnerReference> = owner.into_iter().collect();
        let object = json!({"metadata": {"name": name, "labels": labels, "ownerReferences": owners}});
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    /// Changes the spec of an OperatorCondition, and waits until its reports are mirrored.
    async fn report(&self, name: &str, spec: &Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.conditions().patch(name, &PatchParams::default(), &patch).await.unwrap();
        self.eventually("the report is mirrored", async || {
            let object = self.conditions().get(name).await.unwrap();
            let generation = object.metadata.generation;
            let reports = object.spec.unwrap().conditions;
            let observed = object.status.unwrap_or_default().conditions;
            let same = |(report, seen): (&olm_api::Condition, &olm_api::Condition)| {
                line(report) == line(seen) && seen.observed_generation == generation
            };
            (reports.len() == observed.len() && reports.iter().zip(&observed).all(same)).then_some(())
        })
        .await;
    }

    /// Waits until the upgrade to this version is held, with this ending of the message.
    async fn until_held(&self, number: &str, ending: &str) {
        let begin =
            format!("bundle demo.v{number} version {number} from catalog main is available; plan sha256:");
        let anyway = "; to upgrade anyway, set an override there or annotation \
                      ext.olm.operatorframework.io/ignore-operator-condition to \"true\"";
        let ending = format!("; OperatorCondition ns/{ending}{anyway}");
        let is_held = |extension: &ClusterExtension| {
            let found = conditions::find(&extension.status.as_ref()?.conditions, types::UPGRADE_AVAILABLE)?;
            let is_held = found.status == "True"
                && found.reason == "OperatorNotUpgradeable"
                && found.message.starts_with(&begin)
                && found.message.ends_with(&ending);
            is_held.then_some(())
        };
        self.until(&ending, "demo", is_held).await;
    }
}

async fn with_gate(define: bool) -> Fixture {
    let mut fixture = Fixture::start().await;
    fixture.stop_controller().await;
    if define {
        fixture.define().await;
    }
    fixture.settings.operator_conditions = true;
    fixture.start_controller();
    fixture.publish("main", &[operator("1.0.0")]).await;
    fixture.create("demo", &json!({}), &json!({})).await;
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_holds_upgrades_until_it_or_an_administrator_allows_them() {
    let mut fixture = with_gate(true).await;
    fixture.succeed("demo-1").await;
    fixture.until_condition("demo", types::UPGRADE_AVAILABLE, UP_TO_DATE).await;
    fixture.apply_condition("demo.v1.0.0").await;
    fixture.report("demo.v1.0.0", &json!({"conditions": [condition("False", "moving data")]})).await;
    fixture.publish("main", &[operator("1.0.0"), operator("1.1.0")]).await;
    fixture.until_held("1.1.0", "demo.v1.0.0: the operator is not upgradeable: moving data").await;
    assert_eq!(fixture.condition("demo", types::PROGRESSING).await.unwrap(), DONE);

    // At rest nothing is written, not even by a new process.
    let versions = async |fixture: &Fixture| {
        let condition = fixture.conditions().get("demo.v1.0.0").await.unwrap();
        let extension = fixture.extensions.get("demo").await.unwrap();
        (extension.resource_version(), condition.resource_version())
    };
    let before = versions(&fixture).await;
    fixture.stop_controller().await;
    fixture.start_controller();
    fixture.until_reconciled("other").await;
    fixture.context().parts.catalogs.requeue_extensions();
    fixture.until_reconciled("another").await;
    assert_eq!(versions(&fixture).await, before);
    assert_eq!(fixture.revisions().await, ["demo-1"]);

    // A changed report is noticed, an override precedes it.
    fixture.report("demo.v1.0.0", &json!({"conditions": [condition("False", "nearly done")]})).await;
    fixture.until_held("1.1.0", "demo.v1.0.0: the operator is not upgradeable: nearly done").await;
    let overridden = |status: &str| json!({"overrides": [condition(status, "closed for the holidays")]});
    fixture.report("demo.v1.0.0", &overridden("False")).await;
    fixture
        .until_held("1.1.0", "demo.v1.0.0: the operator is not upgradeable: closed for the holidays")
        .await;
    fixture.report("demo.v1.0.0", &overridden("True")).await;
    fixture.succeed("demo-2").await;
    fixture.until_condition("demo", types::UPGRADE_AVAILABLE, UP_TO_DATE).await;

    // The new operator has a condition of its own. Configuration is not held.
    fixture.apply_condition("demo.v1.1.0").await;
    fixture.report("demo.v1.1.0", &json!({"conditions": [condition("False", "moving again")]})).await;
    let labels = json!({"deploymentConfig": {"nodeSelector": {"disk": "ssd"}}});
    let config = json!({"spec": {"config": {"configType": "Inline", "inline": labels}}});
    fixture.edit("demo", &config).await;
    fixture.succeed("demo-3").await;
    fixture.publish("main", &[operator("1.0.0"), operator("1.1.0"), operator("1.2.0")]).await;
    let blocker = "demo.v1.1.0: the operator is not upgradeable: moving again";
    fixture.until_held("1.2.0", blocker).await;
    fixture.annotate("demo", &[("ignore-operator-condition", Some("true"))]).await;
    fixture.succeed("demo-4").await;
    let note = "replaced because of annotation ext.olm.operatorframework.io/ignore-operator-condition";
    fixture.until_event("demo", &format!("OverrideUsed OperatorCondition ns/{blocker}; {note}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outdated_operator_condition_blocks_and_missing_one_allows() {
    let mut fixture = with_gate(false).await;
    fixture.revision("demo-1").await;
    fixture.stop_controller().await;
    let conditions = OperatorConditions::new(fixture.plane.client(), Arc::default());
    let blocker = async |extension| conditions.blocker(extension, NAMESPACE, "demo.v1.0.0").await;
    assert_eq!(blocker("demo").await, Ok(None), "without the CRD");
    fixture.define().await;
    assert_eq!(blocker("demo").await, Ok(None));
    fixture.apply_condition("demo.v1.0.0").await;
    assert_eq!(blocker("demo").await, Ok(None));
    let (api, params) = (fixture.conditions(), PatchParams::default());
    let report = Patch::Merge(json!({"spec": {"conditions": [condition("True", "")]}}));
    let object = api.patch("demo.v1.0.0", &params, &report).await.unwrap();
    let mut seen = condition("True", "");
    seen["observedGeneration"] = json!(object.metadata.generation.unwrap() - 1);
    let status = Patch::Merge(json!({"status": {"conditions": [seen]}}));
    api.patch_status("demo.v1.0.0", &params, &status).await.unwrap();
    let outdated =
        r#"OperatorCondition ns/demo.v1.0.0: the operatorcondition status "Upgradeable"="True" is outdated"#;
    assert_eq!(blocker("demo").await, Ok(Some(outdated.to_owned())));
    assert_eq!(blocker("other").await, Ok(None), "a revision of another extension controls it");
    let disowned = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    api.patch("demo.v1.0.0", &params, &disowned).await.unwrap();
    assert_eq!(blocker("demo").await, Ok(None), "no revision controls it");
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_condition_is_rendered_while_its_crd_is_served() {
    let fixture = with_gate(false).await;
    fixture.succeed("demo-1").await;
    fixture.until_condition("demo", types::PROGRESSING, DONE).await;
    fixture.define().await;
    fixture.succeed("demo-2").await;
    let objects = |name: &'static str| {
        let fixture = &fixture;
        async move {
            let secrets = fixture.content(name).await;
            let mut text = String::new();
            for secret in secrets {
                let data = fixture.secrets.get(&secret).await.unwrap().data.unwrap_or_default();
                text.extend(data.values().map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()));
            }
            text
        }
    };
    assert!(!objects("demo-1").await.contains("OperatorCondition"));
    let text = objects("demo-2").await;
    assert!(text.contains("OperatorCondition") && text.contains("OPERATOR_CONDITION_NAME"), "{text}");
    // The watch has started.
    fixture.apply_condition("demo.v1.0.0").await;
    fixture.report("demo.v1.0.0", &json!({"conditions": [condition("True", "")]})).await;

    let crds: Api<CustomResourceDefinition> = Api::all(fixture.plane.client());
    crds.delete(CRD_NAME, &DeleteParams::default()).await.unwrap();
    fixture.revision("demo-3").await;
    assert!(!objects("demo-3").await.contains("OperatorCondition"));
}

// docs/design/approvals.md#operator-conditions
#[tokio::test(flavor = "multi_thread")]
async fn operator_condition_of_other_namespace_or_controller_is_no_report() {
    let fixture = with_gate(true).await;
    fixture.succeed("demo-1").await;
    let revision = fixture.revision("demo-1").await.controller_owner_ref(&());
    let namespaces: Api<Namespace> = Api::all(fixture.plane.client());
    let tenant = serde_json::from_value(json!({"metadata": {"name": "tenant"}})).unwrap();
    namespaces.create(&PostParams::default(), &tenant).await.unwrap();
    let other = OwnerReference { uid: "other".to_owned(), ..revision.clone().unwrap() };
    let name = "demo.v1.0.0";
    let unowned = fixture.create_condition("tenant", name, None).await;
    let foreign = fixture.create_condition("tenant", "copied", revision.clone()).await;
    let spoofed = fixture.create_condition(NAMESPACE, "spoofed", Some(other)).await;
    let spec = json!({"spec": {"conditions": [condition("False", "as I want it")]}});
    for object in [unowned, foreign, spoofed] {
        let api: Api<OperatorCondition> =
            Api::namespaced(fixture.plane.client(), &object.namespace().unwrap());
        api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(spec.clone())).await.unwrap();
    }
    // The real one is the last event.
    fixture.apply_condition(name).await;
    fixture.report(name, &json!({"conditions": [condition("True", "fine")]})).await;
    let reports = fixture.context().parts.upgrade_targets.conditions();
    let reports: Vec<_> =
        reports.iter().map(|((_, bundle), (_, report))| (bundle.as_str(), report.message.as_str())).collect();
    assert_eq!(reports, [(name, "fine")]);
    let api: Api<OperatorCondition> = Api::namespaced(fixture.plane.client(), "tenant");
    assert!(api.get(name).await.unwrap().status.is_none_or(|status| status.conditions.is_empty()));
    // Its deletion does not remove the report.
    api.delete(name, &DeleteParams::default()).await.unwrap();
    fixture.report(name, &json!({"conditions": [condition("True", "still fine")]})).await;
    assert_eq!(fixture.context().parts.upgrade_targets.conditions().len(), 1);
}
