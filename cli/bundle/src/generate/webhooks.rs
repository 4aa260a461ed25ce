//! Webhooks and aggregated APIs of the input as definitions of a ClusterServiceVersion
//! (docs/design/cli.md#webhooks-of-a-generated-bundle).

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::{list, text};
use serde_json::{Map, Value, json};

use super::objects::{Input, Object, may_share, remove_annotations};
use super::summary::Report;

/// Port of a Service reference that names none.
const DEFAULT_PORT: i64 = 443;
/// Fields that a definition has in common with a webhook.
const COPIED: [&str; 8] = [
    "admissionReviewVersions",
    "failurePolicy",
    "matchPolicy",
    "objectSelector",
    "reinvocationPolicy",
    "rules",
    "sideEffects",
    "timeoutSeconds",
];
/// Annotations with which cert-manager injects CA bundles.
const INJECTION: &str = "cert-manager.io/inject-";

/// Definitions in the ClusterServiceVersion, and the use of Deployments and Services.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// `webhookdefinitions`
    pub(super) webhooks: Vec<Value>,
    /// `apiservicedefinitions.owned`, without kinds.
    pub(super) api_services: Vec<Value>,
    /// Names of the Deployments that serve webhooks.
    pub(super) webhook_servers: BTreeSet<String>,
    /// Names of the Deployments that serve aggregated APIs.
    pub(super) api_servers: BTreeSet<String>,
    /// Used ports by position of the Service in the input.
    ports: BTreeMap<usize, BTreeSet<i64>>,
}

/// Deployment behind a reference to a Service.
struct Target<'a> {
    deployment: &'a Object,
    service: usize,
    /// Port as written.
    port: Option<i64>,
    used_port: i64,
    target_port: Option<Value>,
}

/// Finds the webhooks and aggregated APIs of the input.
pub(super) fn find(input: &Input, report: &mut Report) -> Served {
    let mut served = Served::default();
    for configuration in &input.webhooks {
        for webhook in list(&configuration.value, "/webhooks") {
            match admission(configuration, webhook, input, report) {
                Ok((definition, target)) => served.add_webhook(definition, &target),
                Err(problem) => {
                    let (origin, label) = (&configuration.origin, configuration.label());
                    report.problem(format!("{origin}: {label}: {}: {problem}", text(webhook, "/name")));
                }
            }
        }
    }
    conversions(input, &mut served, report);
    for service in &input.api_services {
        if let Err(problem) = aggregated(service, input, &mut served, report) {
            report.problem(format!("{}: {}: {problem}", service.origin, service.label()));
        }
    }
    let order = |one: &Value| (text(one, "/type").to_owned(), text(one, "/generateName").to_owned());
    served.webhooks.sort_by_key(order);
    served
}

impl Served {
    fn add_webhook(&mut self, definition: Value, target: &Target<'_>) {
        self.webhooks.push(definition);
        self.webhook_servers.insert(target.deployment.name().to_owned());
        self.ports.entry(target.service).or_default().insert(target.used_port);
    }

    /// Services that remain: those with a port that no webhook and no APIService uses.
    pub(super) fn remaining_services(&self, input: &Input, report: &mut Report) -> Vec<Object> {
        let mut remaining = Vec::new();
        for (position, service) in input.services.iter().enumerate() {
            let used = self.ports.get(&position);
            let is_used = |port: &Value| {
                used.is_some_and(|used| port["port"].as_i64().is_some_and(|port| used.contains(&port)))
            };
            if used.is_some() && list(&service.value, "/spec/ports").iter().all(is_used) {
                report.skip(service, "OLM creates the Services of webhooks and APIServices");
            } else {
                remaining.push(service.clone());
            }
        }
        remaining
    }
}

/// Definition of an admission webhook.
fn admission<'a>(
    configuration: &Object,
    webhook: &Value,
    input: &'a Input,
    report: &mut Report,
) -> Result<(Value, Target<'a>), String> {
    let Some(service) = webhook.pointer("/clientConfig/service").filter(|service| !service.is_null()) else {
        return Err(
            "clientConfig.service is missing; a bundle supports only webhooks that its own Deployments \
                    serve"
                .to_owned(),
        );
    };
    let target = target(service, input)?;
    for field in ["namespaceSelector", "matchConditions"] {
        let value = &webhook[field];
        let is_set = value.as_object().is_some_and(|map| !map.is_empty())
            || value.as_array().is_some_and(|list| !list.is_empty());
        if is_set {
            let (label, name) = (configuration.label(), text(webhook, "/name"));
            report
                .note(format!("{label}: {name}: a bundle has no {field}: the webhook is called without it"));
        }
    }
    let kind = match configuration.kind() {
        "MutatingWebhookConfiguration" => "MutatingAdmissionWebhook",
        _ => "ValidatingAdmissionWebhook",
    };
    let mut definition = definition(kind, text(webhook, "/name"), service, &target);
    for field in COPIED {
        if let Some(value) = webhook.get(field).filter(|value| !value.is_null()) {
            definition.insert(field.to_owned(), value.clone());
        }
    }
    Ok((Value::Object(definition), target))
}

/// Fields that all definitions have.
fn definition(kind: &str, name: &str, service: &Value, target: &Target<'_>) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |key: &str, value: Value| {
        if !value.is_null() {
            fields.insert(key.to_owned(), value);
        }
    };
    set("type", json!(kind));
    set("generateName", json!(name));
    set("deploymentName", json!(target.deployment.name()));
    // A port of 0 is that of a definition without one.
    set(
        "containerPort",
        json!(target.port.map_or(Some(DEFAULT_PORT), |port| Some(port).filter(|port| *port > 0))),
    );
    set("targetPort", json!(target.target_port));
    set("webhookPath", service["path"].clone());
    fields
}

/// Deployment that a reference to a Service leads to.
fn target<'a>(reference: &Value, input: &'a Input) -> Result<Target<'a>, String> {
    let (name, namespace) = (text(reference, "/name"), text(reference, "/namespace"));
    let is_named = |service: &Object| service.name() == name && may_share(service.namespace(), namespace);
    let found = input.services.iter().enumerate().find(|(_, service)| is_named(service));
    let Some((position, service)) = found else {
        return Err(format!("Service {name} is not in the input; add its manifest with --from"));
    };
    let selector = service.value.pointer("/spec/selector").and_then(Value::as_object);
    let selector = selector.filter(|selector| !selector.is_empty());
    let selector = selector.ok_or_else(|| format!("Service {name} has no spec.selector"))?;
    let is_selected = |deployment: &&Object| {
        let labels = deployment.value.pointer("/spec/template/metadata/labels");
        let has = |(key, value): (&String, &Value)| labels.and_then(|labels| labels.get(key)) == Some(value);
        may_share(deployment.namespace(), service.namespace()) && selector.iter().all(has)
    };
    let mut deployments = input.deployments.iter().filter(is_selected);
    let deployment = match (deployments.next(), deployments.next()) {
        (Some(deployment), None) => deployment,
        (None, _) => {
            return Err(format!(
                "no Deployment of the input has pods with the labels of spec.selector of Service {name}"
            ));
        }
        (Some(first), Some(second)) => {
            return Err(format!(
                "Service {name} selects the pods of Deployments {} and {}; a webhook has one",
                first.name(),
                second.name()
            ));
        }
    };
    let port = reference["port"].as_i64();
    let used_port = port.filter(|port| *port > 0).unwrap_or(DEFAULT_PORT);
    let ports = list(&service.value, "/spec/ports");
    let entry = ports.iter().find(|entry| entry["port"].as_i64() == Some(used_port));
    let entry = entry.ok_or_else(|| format!("Service {name} has no port {used_port}"))?;
    let target_port = entry.get("targetPort").filter(|port| !port.is_null()).cloned();
    Ok(Target { deployment, service: position, port, used_port, target_port })
}

/// Adds a definition for the CRDs of each conversion webhook.
fn conversions(input: &Input, served: &mut Served, report: &mut Report) {
    let mut groups: BTreeMap<String, (Map<String, Value>, Vec<String>)> = BTreeMap::new();
    for crd in &input.crds {
        if text(&crd.value, "/spec/conversion/strategy") != "Webhook" {
            continue;
        }
        let webhook = &crd.value["spec"]["conversion"]["webhook"];
        let service = &webhook["clientConfig"]["service"];
        if !service.is_object() {
            report.problem(format!(
                "{}: {}: spec.conversion has strategy Webhook without webhook.clientConfig.service; a bundle supports only \
                 webhooks that its own Deployments serve",
                crd.origin,
                crd.label()
            ));
            continue;
        }
        let target = match target(service, input) {
            Ok(target) => target,
            Err(problem) => {
                report.problem(format!("{}: {}: {problem}", crd.origin, crd.label()));
                continue;
            }
        };
        let mut fields = definition("ConversionWebhook", "", service, &target);
        fields.insert("admissionReviewVersions".into(), webhook["conversionReviewVersions"].clone());
        fields.insert("sideEffects".into(), json!("None"));
        served.webhook_servers.insert(target.deployment.name().to_owned());
        served.ports.entry(target.service).or_default().insert(target.used_port);
        let group = groups.entry(json!(fields).to_string()).or_insert((fields, Vec::new()));
        group.1.push(crd.name().to_owned());
    }
    for (mut fields, crds) in groups.into_values() {
        // Unique, because a CRD has one conversion webhook.
        fields.insert("generateName".into(), json!(format!("c{}", crds[0])));
        fields.insert("conversionCRDs".into(), json!(crds));
        served.webhooks.push(Value::Object(fields));
    }
}

/// Adds the entry of an APIService.
fn aggregated(
    service: &Object,
    input: &Input,
    served: &mut Served,
    report: &mut Report,
) -> Result<(), String> {
    let spec = &service.value["spec"];
    let Some(reference) = spec.get("service").filter(|service| !service.is_null()) else {
        report.skip(service, "the API server itself serves it");
        return Ok(());
    };
    let target = target(reference, input)?;
    // The Service that OLM creates has the same port and target port.
    let port = match &target.target_port {
        Some(Value::String(name)) => container_port(target.deployment, name).ok_or_else(|| {
            format!("no container of Deployment {} has a port {name}", target.deployment.name())
        })?,
        Some(port) => port.as_i64().unwrap_or(target.used_port),
        None => target.used_port,
    };
    served.api_servers.insert(target.deployment.name().to_owned());
    served.ports.entry(target.service).or_default().insert(target.used_port);
    served.api_services.push(json!({
        "group": spec["group"],
        "version": spec["version"],
        "deploymentName": target.deployment.name(),
        "containerPort": port,
    }));
    Ok(())
}

/// Number of a named port.
fn container_port(deployment: &Object, name: &str) -> Option<i64> {
    let containers = list(&deployment.value, "/spec/template/spec/containers").iter();
    let mut ports = containers.flat_map(|container| list(container, "/ports"));
    ports.find(|port| port["name"] == *name)?["containerPort"].as_i64()
}

/// CRD as it is in a bundle: without the conversion webhook, which OLM sets, and the annotations of cert-manager.
pub(super) fn without_conversion(crd: &Object) -> Object {
    let mut crd = crd.clone();
    remove_annotations(&mut crd.value, |key| key.starts_with(INJECTION));
    if text(&crd.value, "/spec/conversion/strategy") == "Webhook"
        && let Some(spec) = crd.value["spec"].as_object_mut()
    {
        spec.remove("conversion");
    }
    crd
}
