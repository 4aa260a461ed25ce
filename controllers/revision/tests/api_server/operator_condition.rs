//! OperatorConditions as objects of revisions (docs/design/approvals.md#operator-conditions).

use kube::Api;
use kube::api::PostParams;
use olm_api::OperatorCondition;
use olm_request::{mirrored, upgrade_blocker};
use serde_json::{Value, json};

use super::fixture::{Fixture, eventually, phase, unmodified};

pub(super) async fn reports_of_the_operator_are_neither_owned_nor_reverted(fixture: &Fixture) {
    let ns = "reporting";
    fixture.namespace(ns).await;
    fixture.plane.apply_crds(&[olm_api::crds::operator_condition()]).await.unwrap();
    let object = json!({"apiVersion": "operators.coreos.com/v2", "kind": "OperatorCondition",
        "metadata": {"name": "demo.v1.0.0", "namespace": ns},
        "spec": {"serviceAccounts": ["demo"], "deployments": ["manager"]}});
    let name = fixture.revision(ns, 1, json!([phase("deploy", &[&object])]), unmodified).await;
    fixture.until_succeeded(&name).await;

    // The operator replaces the object, as operator-lib does.
    let api: Api<OperatorCondition> = Api::namespaced(fixture.client(), ns);
    let mut found = api.get("demo.v1.0.0").await.unwrap();
    let report = json!({"type": "Upgradeable", "status": "False", "reason": "Migrating", "message": "moving data",
        "lastTransitionTime": "2026-11-24T10:00:00Z"});
    let spec = found.spec.as_mut().unwrap();
    spec.conditions = vec![serde_json::from_value(report.clone()).unwrap()];
    spec.overrides = spec.conditions.clone();
    let operator = PostParams { field_manager: Some("operator".to_owned()), ..PostParams::default() };
    api.replace("demo.v1.0.0", &operator, &found).await.unwrap();

    fixture.edit(&object, json!({"spec": {"deployments": ["other"]}})).await;
    eventually("drift is corrected", async || {
        (fixture.get(&object).await.unwrap()["spec"]["deployments"] == json!(["manager"])).then_some(())
    })
    .await;
    let live = fixture.get(&object).await.unwrap();
    assert_eq!((&live["spec"]["conditions"][0], &live["spec"]["overrides"][0]), (&report, &report));
    let managers = live["metadata"]["managedFields"].as_array().unwrap();
    let owned = |manager: &str| -> Vec<String> {
        let entries = managers.iter().filter(|entry| entry["manager"] == manager);
        let fields = entries.filter_map(|entry| entry["fieldsV1"]["f:spec"].as_object()).flatten();
        fields.map(|(field, _): (&String, &Value)| field.clone()).collect()
    };
    assert_eq!(owned("olm.operatorframework.io"), ["f:deployments", "f:serviceAccounts"]);
    assert_eq!(owned("operator"), ["f:conditions", "f:overrides"]);
}

// Operators report in the spec, or through version v1 in the status.
pub(super) async fn reports_of_version_v1_decide_like_those_of_v2(fixture: &Fixture) {
    let ns = "reporting-in-v1";
    fixture.namespace(ns).await;
    fixture.plane.apply_crds(&[olm_api::crds::operator_condition()]).await.unwrap();
    let api: Api<OperatorCondition> = Api::namespaced(fixture.client(), ns);
    let unseen = r#"the operatorcondition status "Upgradeable"="False" is outdated"#;
    let refused = "the operator is not upgradeable: moving data";
    let report = json!({"type": "Upgradeable", "status": "False", "reason": "Migrating", "message": "moving data",
        "lastTransitionTime": "2020-08-24T23:15:55Z"});
    for (version, part, expected) in
        [("v1", "spec", unseen), ("v2", "spec", unseen), ("v1", "status", refused), ("v2", "status", refused)]
    {
        let name = format!("{part}-{version}");
        let object = json!({"apiVersion": format!("operators.coreos.com/{version}"), "kind": "OperatorCondition",
            "metadata": {"name": name, "namespace": ns}, "spec": {}});
        fixture.create(&object).await;
        match part {
            "spec" => fixture.edit(&object, json!({"spec": {"conditions": [report]}})).await,
            _ => fixture.edit_status(&object, json!({"status": {"conditions": [report]}})).await,
        }
        let mut found = api.get(&name).await.unwrap();
        assert_eq!(upgrade_blocker(&found).as_deref(), Some(expected), "{name}");
        found.status = Some(mirrored(&found));
        assert_eq!(upgrade_blocker(&found).as_deref(), Some(refused), "{name}");
    }
}
