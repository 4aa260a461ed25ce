//! Features of OLM v0 that OLM v1 lacks (docs/design/additions.md#lint-rules,
//! docs/design/bundles.md#author-checks).

use olm_bundle::pointer::{list, text};
use olm_version::quote;
use serde_json::Value;

use crate::content::{Content, Object};
use crate::findings::Findings;
use crate::rule;

const CONDITION_GROUP: &str = "operators.coreos.com";
const CONDITION_RESOURCE: &str = "operatorconditions";
const CONDITION_VARIABLE: &str = "OPERATOR_CONDITION_NAME";
const USABLE_MODES: [&str; 3] = ["AllNamespaces", "OwnNamespace", "SingleNamespace"];

/// Checks the ClusterServiceVersion.
pub(crate) fn check(content: &Content, findings: &mut Findings) {
    let Some(csv) = content.service_version() else { return };
    let supported: Vec<&str> = csv
        .list("/spec/installModes")
        .iter()
        .filter(|mode| mode.get("supported") == Some(&Value::Bool(true)))
        .map(|mode| text(mode, "/type"))
        .collect();
    if supported.contains(&"MultiNamespace") && !USABLE_MODES.iter().any(|mode| supported.contains(mode)) {
        let what = "only MultiNamespace is supported: one of AllNamespaces, SingleNamespace and OwnNamespace has to be";
        findings.add(&rule::V1_2, csv.at("spec.installModes"), what);
    }
    for (index, service) in csv.list("/spec/apiservicedefinitions/owned").iter().enumerate() {
        let what = format!(
            "the APIService of {} ({}) cannot be installed: serve the kind by a CustomResourceDefinition",
            quote(text(service, "/kind")),
            text(service, "/group")
        );
        findings.add(&rule::V1_4, csv.at(&format!("spec.apiservicedefinitions.owned.{index}")), what);
    }
    if !csv.list("/spec/nativeAPIs").is_empty() {
        let what = "nobody checks that the cluster serves these APIs: without them the operator is installed all the same";
        findings.add(&rule::V1_6, csv.at("spec.nativeAPIs"), what);
    }
    operator_conditions(csv, findings);
}

/// Reports permissions on OperatorConditions once, and each container with the variable that names one.
fn operator_conditions(csv: &Object, findings: &mut Findings) {
    let advice = "no OperatorCondition is made for it: let the operator run without one";
    if let Some(field) = rights(csv) {
        findings.add(
            &rule::V1_3,
            csv.at(&field),
            format!("the operator asks for rights on operatorconditions, but {advice}"),
        );
    }
    for (index, deployment) in csv.list("/spec/install/spec/deployments").iter().enumerate() {
        for (container_index, container) in
            list(deployment, "/spec/template/spec/containers").iter().enumerate()
        {
            if list(container, "/env").iter().any(|entry| text(entry, "/name") == CONDITION_VARIABLE) {
                let field = format!(
                    "spec.install.spec.deployments.{index}.spec.template.spec.containers.{container_index}.env"
                );
                findings.add(
                    &rule::V1_3,
                    csv.at(&field),
                    format!("the operator reads {CONDITION_VARIABLE}, but {advice}"),
                );
            }
        }
    }
}

/// Path of the first rule that grants access to OperatorConditions by name.
fn rights(csv: &Object) -> Option<String> {
    for list_name in ["permissions", "clusterPermissions"] {
        for (index, permission) in csv.list(&format!("/spec/install/spec/{list_name}")).iter().enumerate() {
            for (rule_index, rule) in list(permission, "/rules").iter().enumerate() {
                let names = |key: &str, wanted: &str| {
                    list(rule, key)
                        .iter()
                        .filter_map(Value::as_str)
                        .any(|name| name.split('/').next() == Some(wanted))
                };
                if names("/apiGroups", CONDITION_GROUP) && names("/resources", CONDITION_RESOURCE) {
                    return Some(format!("spec.install.spec.{list_name}.{index}.rules.{rule_index}"));
                }
            }
        }
    }
    None
}
