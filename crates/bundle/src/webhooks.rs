//! Webhook configurations, conversion of CRDs, and their Services (docs/design/bundles.md#converted-crds,
//! docs/design/bundles.md#webhook-configurations, docs/design/bundles.md#webhook-services).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::api_services;
use crate::bundle::{BundleContent, name_of};
use crate::certificates::Serving;
use crate::csv::{Deployment, Webhook};
use crate::error::RenderError;
use crate::install_modes::{RenderContext, Targets};

/// Port of a Service if its definition has none.
const DEFAULT_PORT: i32 = 443;

impl RenderContext<'_> {
    pub(crate) fn serving(&self, deployment: &str) -> Serving {
        Serving::of_deployment(deployment, self.install_namespace)
    }
}

/// CRDs of the bundle, with the conversion webhook that names them. The validators ensure that at most one does.
pub(crate) fn crds(bundle: &BundleContent, context: RenderContext<'_>) -> Result<Vec<Value>, RenderError> {
    bundle.crds.iter().map(|crd| converted(crd, bundle, context)).collect()
}

fn converted(crd: &Value, bundle: &BundleContent, context: RenderContext<'_>) -> Result<Value, RenderError> {
    let name = name_of(crd);
    let mut webhooks = bundle.csv.spec.webhooks.iter().filter(|webhook| webhook.is_conversion());
    let mut object = crd.clone();
    let Some(webhook) = webhooks.find(|webhook| webhook.conversion_crds.iter().any(|listed| listed == name))
    else {
        return Ok(object);
    };
    if object["spec"]["preserveUnknownFields"] == true {
        return Err(RenderError::Generate(format!(
            "custom resource definition '{name}' must have .spec.preserveUnknownFields set to false to let API \
             Server call webhook to do the conversion"
        )));
    }
    let serving = context.serving(&webhook.deployment_name);
    let path = webhook.webhook_path.as_deref().unwrap_or("/");
    object["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {"service": service_reference(&serving, webhook.container_port, Some(path))},
            "conversionReviewVersions": webhook.admission_review_versions,
        },
    });
    annotate(&mut object, context.certificates.ca_injection(&serving));
    Ok(object)
}

/// Port of the Service for the `containerPort` of a definition.
pub(crate) fn service_port(container_port: i32) -> i32 {
    if container_port > 0 { container_port } else { DEFAULT_PORT }
}

fn service_reference(serving: &Serving, port: i32, path: Option<&str>) -> Value {
    let mut reference = json!({"namespace": serving.namespace, "name": serving.service, "port": port});
    if let Some(path) = path {
        reference["path"] = json!(path);
    }
    reference
}

pub(crate) fn annotate(object: &mut Value, annotation: Option<(&'static str, String)>) {
    let Some((key, value)) = annotation else { return };
    let metadata = &mut object["metadata"];
    if !metadata["annotations"].is_object() {
        metadata["annotations"] = json!({});
    }
    metadata["annotations"][key] = json!(value);
}

/// One configuration object per webhook definition of this type.
pub(crate) fn configurations(bundle: &BundleContent, kind: &str, context: RenderContext<'_>) -> Vec<Value> {
    let webhooks = bundle.csv.spec.webhooks.iter().filter(|webhook| webhook.kind == kind);
    webhooks.map(|webhook| configuration(webhook, context)).collect()
}

fn configuration(webhook: &Webhook, context: RenderContext<'_>) -> Value {
    let serving = context.serving(&webhook.deployment_name);
    let mutating = webhook.kind == Webhook::MUTATING;
    let mut object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": if mutating { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" },
        "metadata": {"name": webhook.generate_name, "namespace": context.install_namespace},
        "webhooks": [admission_webhook(webhook, &serving, context.targets, mutating)],
    });
    annotate(&mut object, context.certificates.ca_injection(&serving));
    object
}

fn admission_webhook(webhook: &Webhook, serving: &Serving, targets: &Targets, mutating: bool) -> Value {
    let service = service_reference(serving, webhook.container_port, webhook.webhook_path.as_deref());
    let mut entry = json!({
        "name": webhook.generate_name,
        "clientConfig": {"service": service},
        "sideEffects": webhook.side_effects,
        "admissionReviewVersions": webhook.admission_review_versions,
    });
    if !webhook.rules.is_empty() {
        entry["rules"] = json!(webhook.rules);
    }
    let reinvocation = webhook.reinvocation_policy.as_ref().filter(|_| mutating);
    let optional = [
        ("failurePolicy", webhook.failure_policy.as_ref()),
        ("matchPolicy", webhook.match_policy.as_ref()),
        ("objectSelector", webhook.object_selector.as_ref()),
        ("timeoutSeconds", webhook.timeout_seconds.as_ref()),
        ("reinvocationPolicy", reinvocation),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            entry[key] = value.clone();
        }
    }
    if let Targets::Namespaces(names) = targets {
        let requirement = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": names});
        entry["namespaceSelector"] = json!({"matchExpressions": [requirement]});
    }
    entry
}

/// One Service per deployment with webhooks or aggregated APIs, with their distinct ports.
pub(crate) fn services(bundle: &BundleContent, context: RenderContext<'_>) -> Vec<Value> {
    serving_deployments(bundle).map(|deployment| service(bundle, deployment, context)).collect()
}

/// Objects of the certificate provider for each serving deployment.
pub(crate) fn certificate_objects(bundle: &BundleContent, context: RenderContext<'_>) -> Vec<Value> {
    let objects = |name: &str| context.certificates.objects(&context.serving(name));
    serving_deployments(bundle).flat_map(|deployment| objects(&deployment.name)).collect()
}

fn serving_deployments(bundle: &BundleContent) -> impl Iterator<Item = &Deployment> {
    let csv = &bundle.csv;
    csv.deployments().iter().filter(|deployment| csv.is_serving(&deployment.name))
}

fn service(bundle: &BundleContent, deployment: &Deployment, context: RenderContext<'_>) -> Value {
    let serving = context.serving(&deployment.name);
    let webhooks = bundle.csv.webhooks_of(&deployment.name).map(|webhook| {
        let port = service_port(webhook.container_port);
        (port, webhook.target_port.clone().unwrap_or_else(|| json!(port)))
    });
    let mut spec = json!({"ports": ports(webhooks.chain(api_services::ports(bundle, &deployment.name)))});
    if let Some(labels) = deployment.spec.pointer("/selector/matchLabels") {
        spec["selector"] = labels.clone();
    }
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": serving.service, "namespace": context.install_namespace},
        "spec": spec,
    });
    annotate(&mut object, context.certificates.service_annotation(&serving));
    object
}

/// Distinct ports of a Service, from pairs of port and target port.
fn ports(pairs: impl Iterator<Item = (i32, Value)>) -> Vec<Value> {
    let distinct: BTreeSet<(i32, i64, String)> = pairs
        .map(|(port, target)| {
            // A string sorts by its numeric value, or as 0.
            let rank = target.as_i64().or_else(|| target.as_str()?.parse().ok()).unwrap_or(0);
            (port, rank, target.to_string())
        })
        .collect();
    let port = |(port, _, target): (i32, i64, String)| {
        let target: Value = serde_json::from_str(&target).unwrap_or_default();
        json!({"name": port.to_string(), "port": port, "targetPort": target})
    };
    distinct.into_iter().map(port).collect()
}
