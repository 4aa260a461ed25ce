//! OperatorCondition of an operator, and its permissions on it (docs/design/approvals.md#operator-conditions).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::csv::{Csv, Deployment};
use crate::deployment_config::replace_by_name;
use crate::rbac::GROUP as RBAC;

const GROUP: &str = "operators.coreos.com";
const NAME_VARIABLE: &str = "OPERATOR_CONDITION_NAME";

/// OperatorCondition, named like the ClusterServiceVersion, with the Role and RoleBinding of the operator. Empty if
/// there are no deployments.
///
/// The Role has another name than the one of classic OLM, which creates its own for every OperatorCondition.
pub(crate) fn objects(csv: &Csv, namespace: &str) -> Vec<Value> {
    let names: Vec<&str> = csv.deployments().iter().map(|deployment| deployment.name.as_str()).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let accounts: BTreeSet<&str> = csv.deployments().iter().map(Deployment::account).collect();
    let subject = |name: &&str| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
    let name = &csv.metadata.name;
    let role = json!({"name": format!("{name}-operator-condition"), "namespace": namespace});
    vec![
        json!({
            "apiVersion": format!("{GROUP}/v2"),
            "kind": "OperatorCondition",
            "metadata": {"name": name, "namespace": namespace},
            // The other fields belong to the operator and to administrators.
            "spec": {"serviceAccounts": accounts, "deployments": names},
        }),
        json!({
            "apiVersion": format!("{RBAC}/v1"),
            "kind": "Role",
            "metadata": role,
            "rules": [{
                "apiGroups": [GROUP],
                // Operators of version v1 report in the status.
                "resources": ["operatorconditions", "operatorconditions/status"],
                "resourceNames": [name],
                "verbs": ["get", "update", "patch"],
            }],
        }),
        json!({
            "apiVersion": format!("{RBAC}/v1"),
            "kind": "RoleBinding",
            "metadata": role,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": role["name"]},
            "subjects": accounts.iter().map(subject).collect::<Vec<_>>(),
        }),
    ]
}

/// Sets the name of the OperatorCondition in the environment of every container.
pub(crate) fn add_variable(csv: &Csv, deployment: &mut Value) {
    let variable = [json!({"name": NAME_VARIABLE, "value": csv.metadata.name})];
    let containers = deployment.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        replace_by_name(container, "env", &variable);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{BundleContent, RenderOptions, render};

    fn bundle(deployments: &Value) -> BundleContent {
        let annotations = "annotations: {operators.operatorframework.io.bundle.package.v1: demo}";
        let csv = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": "demo.v1.0.0"},
            "spec": {"installModes": [{"type": "AllNamespaces", "supported": true}],
                "install": {"strategy": "deployment", "spec": {"deployments": deployments}}}});
        let files = BTreeMap::from([
            ("metadata/annotations.yaml".to_owned(), annotations.into()),
            ("manifests/csv.yaml".to_owned(), csv.to_string().into_bytes()),
        ]);
        BundleContent::load(&files).unwrap()
    }

    fn deployment(name: &str, pod: &Value) -> Value {
        json!({"name": name, "spec": {"selector": {"matchLabels": {"a": name}},
            "template": {"metadata": {"labels": {"a": name}}, "spec": pod}}})
    }

    fn rendered(deployments: &Value, config: Option<&Value>, operator_condition: bool) -> Vec<Value> {
        let options = RenderOptions {
            install_namespace: "ns",
            config,
            deployment_config: true,
            operator_condition,
            ..RenderOptions::default()
        };
        render(&bundle(deployments), &options).unwrap()
    }

    // docs/design/approvals.md#operator-conditions
    #[test]
    fn operator_may_change_its_own_condition_only() {
        let container = json!({"name": "m", "image": "i"});
        let deployments = json!([
            deployment("web", &json!({"containers": [container]})),
            deployment("manager", &json!({"serviceAccountName": "demo", "containers": [container]})),
            deployment("worker", &json!({"serviceAccountName": "demo", "containers": [container]})),
        ]);
        let objects = rendered(&deployments, None, true);
        let of = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
        let metadata = json!({"name": "demo.v1.0.0-operator-condition", "namespace": "ns"});
        let condition = json!({"apiVersion": "operators.coreos.com/v2", "kind": "OperatorCondition",
            "metadata": {"name": "demo.v1.0.0", "namespace": "ns"},
            "spec": {"serviceAccounts": ["default", "demo"], "deployments": ["web", "manager", "worker"]}});
        assert_eq!(of("OperatorCondition"), &condition);
        let rules = json!([{"apiGroups": ["operators.coreos.com"], "resources": ["operatorconditions", "operatorconditions/status"],
            "resourceNames": ["demo.v1.0.0"], "verbs": ["get", "update", "patch"]}]);
        assert_eq!((&of("Role")["metadata"], &of("Role")["rules"]), (&metadata, &rules));
        let accounts = ["default", "demo"];
        let subjects =
            accounts.map(|name| json!({"kind": "ServiceAccount", "name": name, "namespace": "ns"}));
        let binding = of("RoleBinding");
        assert_eq!((&binding["metadata"], &binding["subjects"]), (&metadata, &json!(subjects)));
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": metadata["name"]});
        assert_eq!(binding["roleRef"], role);

        let plain = rendered(&deployments, None, false);
        assert_eq!((plain.len(), objects.len()), (3, 6));
        assert!(rendered(&json!([]), None, true).is_empty(), "no operator, no condition");
    }

    #[test]
    fn every_container_gets_the_operator_condition_name() {
        let own = json!([{"name": "A", "value": "a"}, {"name": "OPERATOR_CONDITION_NAME", "value": "x"}]);
        let pod = json!({"containers": [{"name": "m", "image": "i"}, {"name": "n", "image": "i", "env": own}],
            "initContainers": [{"name": "o", "image": "i"}]});
        let config =
            json!({"deploymentConfig": {"env": [{"name": "OPERATOR_CONDITION_NAME", "value": "y"}]}});
        let objects = rendered(&json!([deployment("manager", &pod)]), Some(&config), true);
        let pod = &objects.iter().find(|object| object["kind"] == "Deployment").unwrap()["spec"]["template"]
            ["spec"];
        let variable = json!({"name": "OPERATOR_CONDITION_NAME", "value": "demo.v1.0.0"});
        assert_eq!(pod["containers"][0]["env"], json!([variable]));
        assert_eq!(pod["containers"][1]["env"], json!([{"name": "A", "value": "a"}, variable]));
        assert_eq!(pod["initContainers"][0].get("env"), None);
    }
}
