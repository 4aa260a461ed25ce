//! Deployments of a bundle (docs/design/bundles.md#deployments).

use serde_json::{Map, Value, json};

use crate::bundle::BundleContent;
use crate::certificates::{self, Certificates};
use crate::csv::Deployment;
use crate::deployment_config;
use crate::install_modes::RenderContext;
use crate::operator_condition;

const TARGETS_ANNOTATION: &str = "olm.targetNamespaces";
const OPERATOR_ANNOTATION: &str = "olm.operatorNamespace";
/// Rollbacks use ClusterObjectSets, not old ReplicaSets.
const REVISION_HISTORY_LIMIT: i32 = 1;

pub(crate) fn deployments(bundle: &BundleContent, context: RenderContext<'_>) -> Vec<Value> {
    bundle.csv.deployments().iter().map(|deployment| rendered(bundle, deployment, context)).collect()
}

fn rendered(bundle: &BundleContent, deployment: &Deployment, context: RenderContext<'_>) -> Value {
    let mut metadata = json!({"name": deployment.name, "namespace": context.install_namespace});
    if !deployment.label.is_empty() {
        metadata["labels"] = json!(deployment.label);
    }
    let mut spec = deployment.spec.clone();
    spec["revisionHistoryLimit"] = json!(REVISION_HISTORY_LIMIT);
    let template = &mut spec["template"];
    template["metadata"]["annotations"] = template_annotations(bundle, &template["metadata"], context);
    if context.certificates != Certificates::None && bundle.csv.is_serving(&deployment.name) {
        certificates::mount(&mut template["spec"], &context.serving(&deployment.name));
    }
    let mut object = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": spec,
    });
    if let Some(config) = context.deployment_config {
        deployment_config::apply(config, &mut object);
    }
    if context.operator_condition {
        operator_condition::add_variable(&bundle.csv, &mut object);
    }
    object
}

/// Merged annotations, in ascending precedence: ClusterServiceVersion, pod template, target and operator
/// namespaces.
fn template_annotations(bundle: &BundleContent, metadata: &Value, context: RenderContext<'_>) -> Value {
    let mut annotations: Map<String, Value> =
        bundle.annotations().iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    if let Some(authored) = metadata.get("annotations").and_then(Value::as_object) {
        annotations.extend(authored.clone());
    }
    annotations.insert(TARGETS_ANNOTATION.into(), json!(context.targets.joined(",")));
    annotations.insert(OPERATOR_ANNOTATION.into(), json!(context.install_namespace));
    Value::Object(annotations)
}
