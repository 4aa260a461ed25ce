//! Causes for which pods of Deployments are not ready.

use std::time::Duration;

use kube::ResourceExt;
use olm_revision_controller::Pace;
use serde_json::json;

use super::fixture::{Fixture, PACE, deployment, phase, start};

/// docs/design/apply.md#blocked-pods
pub(super) async fn cause_of_unready_pods_is_reported_until_they_are_ready(fixture: &Fixture) {
    let controller =
        start(fixture.plane.kubeconfig(), None, Pace { unready: Duration::from_secs(1), ..PACE });
    let ns = "blocked";
    fixture.namespace(ns).await;
    fixture
        .create(&json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": ns}}))
        .await;
    let object = deployment(ns, "op");
    let probe = json!([{"selector": {"type": "GroupKind", "groupKind": {"group": "apps", "kind": "Deployment"}},
        "assertions": [{"type": "ConditionEqual", "conditionEqual": {"type": "Available", "status": "True"}}]}]);
    let phases = json!([phase("deploy", &[&object])]);
    let name = fixture.revision(ns, 1, phases, |set| set["spec"]["progressionProbes"] = probe).await;
    fixture.until_exists(&object).await;
    let line = "Object Deployment.apps/v1 blocked/op: .status.condition[\"Available\"] is False";
    let status = |failing: bool| {
        let mut conditions = vec![json!({"type": "Available", "status": "False"})];
        let message = "pods \"op-5d8f-x7x9k\" is forbidden: exceeded quota: none";
        conditions
            .extend(failing.then(|| json!({"type": "ReplicaFailure", "status": "True", "message": message})));
        json!({"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "conditions": conditions}})
    };
    fixture.edit_status(&object, status(true)).await;
    let cause = "its pods are not created: exceeded quota: none; raise the ResourceQuota of namespace blocked, or delete \
                 other objects there";
    let available = format!("False/ProbeFailure {line}; {cause}");
    assert_eq!(fixture.until_condition(&name, "Available", &available).await, available);
    let set = fixture.sets().get(&name).await.unwrap();
    assert_eq!(fixture.event(&set.uid().unwrap()).await, format!("PodsNotReady {line}; {cause}"));

    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "op-1", "namespace": ns, "labels": {"app": "op"}},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "main", "image": "r.example/op:v1"}]}});
    fixture.create(&pod).await;
    let waiting = json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}});
    let container = json!({"name": "main", "image": "r.example/op:v1", "imageID": "", "ready": false,
        "restartCount": 0, "state": waiting});
    fixture.edit_status(&pod, json!({"status": {"containerStatuses": [container]}})).await;
    fixture.edit_status(&object, status(false)).await;
    let cause = "its pods wait for image r.example/op:v1 (container main of pod op-1): not found; check its name, and the \
                 pull secrets and network of the nodes";
    fixture.until_condition(&name, "Available", &format!("False/ProbeFailure {line}; {cause}")).await;
    // Clients compare this text.
    let rolling = "True/RollingOut Revision 1.0.0 is rolling out.";
    assert_eq!(fixture.condition(&name, "Progressing").await.as_deref(), Some(rolling));
    let ready = json!([{"type": "Available", "status": "True"}]);
    fixture.edit_status(&object, json!({"status": {"conditions": ready}})).await;
    fixture.until_succeeded(&name).await;
    controller.stop().await;
}
