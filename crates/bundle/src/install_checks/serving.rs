//! Install checks of Services, webhooks and certificates. The caller adds the kind and name of the object.

use std::collections::BTreeSet;

use olm_version::names::is_dns_label;
use olm_version::quote;
use serde_json::Value;

use super::ServingDeployments;
use crate::bundle::name_of;
use crate::pointer::{list, text};
use crate::validate::subdomain_faults;

/// Maximum length of the name of a Service, which is a DNS label.
const LABEL_BYTES: usize = 63;
/// Maximum length of the common name of a certificate.
const COMMON_NAME_BYTES: usize = 64;
const PORTS: std::ops::RangeInclusive<i64> = 1..=65535;

pub(super) fn service(deployments: &ServingDeployments<'_>, object: &Value) -> Vec<String> {
    let mut found: Vec<String> = service_name(deployments, name_of(object)).into_iter().collect();
    let (mut ports, mut names) = (BTreeSet::new(), BTreeSet::new());
    for port in list(object, "/spec/ports") {
        let number = port.get("port").and_then(Value::as_i64);
        if let Some(number) = number.filter(|number| !PORTS.contains(number)) {
            found.push(format!("port {number} of spec.ports is not between 1 and 65535"));
        }
        let protocol = Some(text(port, "/protocol")).filter(|text| !text.is_empty()).unwrap_or("TCP");
        if let Some(number) = number
            && !ports.insert((number, protocol))
        {
            let hint = match deployments.api_service(name_of(object), number) {
                Some(name) => {
                    format!("APIService {} uses it, so webhooks need targetPort {number}", quote(&name))
                }
                None => "webhooks of one deployment and containerPort need the same targetPort".to_owned(),
            };
            found.push(format!("spec.ports has port {number} ({protocol}) twice: {hint}"));
            continue;
        }
        let name = text(port, "/name");
        if !name.is_empty() && !names.insert(name) {
            found.push(format!("spec.ports has the name {} twice", quote(name)));
        }
    }
    found
}

fn service_name(deployments: &ServingDeployments<'_>, name: &str) -> Option<String> {
    let length = name.len();
    if length > LABEL_BYTES {
        let hint = deployments.behind("Service", name).first().map_or(String::new(), |deployment| {
            format!(": shorten the name of deployment {}", quote(deployment))
        });
        let limit = format!("at most {LABEL_BYTES} are allowed");
        return Some(format!("metadata.name has {length} characters, {limit}{hint}"));
    }
    let rule = "metadata.name may only have lower case letters, digits and '-', the latter not at its ends";
    (!is_dns_label(name)).then(|| rule.to_string())
}

pub(super) fn certificate(object: &Value) -> Option<String> {
    let name = text(object, "/spec/commonName");
    (name.len() > COMMON_NAME_BYTES).then(|| {
        format!(
            "spec.commonName {} has {} characters, at most {COMMON_NAME_BYTES} are allowed: choose a shorter install namespace \
             or another certificate provider",
            quote(name),
            name.len()
        )
    })
}

/// Checks the webhooks of a configuration object.
pub(super) fn webhooks(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (index, webhook) in list(object, "/webhooks").iter().enumerate() {
        let field = format!("webhooks.{index}");
        if text(webhook, "/name").split('.').count() < 3 {
            found.push(format!(
                "{field}.name needs at least three parts with dots between them, as in check.widgets.example.com: change \
                 generateName of the webhook definition"
            ));
        }
        found.extend(service_reference(webhook, &field));
        found.extend(review_versions(webhook, "admissionReviewVersions", &field));
        found.extend(choices(webhook, &field));
        let timeout = webhook.get("timeoutSeconds").and_then(Value::as_i64);
        if let Some(seconds) = timeout.filter(|seconds| !(1..=30).contains(seconds)) {
            found.push(format!("{field}.timeoutSeconds is {seconds}, allowed: 1 to 30"));
        }
    }
    found
}

/// Checks the enumerated fields of a webhook. The first one is required.
fn choices(webhook: &Value, field: &str) -> Vec<String> {
    const CHOICES: [(&str, &[&str]); 4] = [
        ("sideEffects", &["None", "NoneOnDryRun"]),
        ("failurePolicy", &["Fail", "Ignore"]),
        ("matchPolicy", &["Equivalent", "Exact"]),
        ("reinvocationPolicy", &["IfNeeded", "Never"]),
    ];
    let mut found = Vec::new();
    for (name, allowed) in CHOICES {
        let problem = match webhook.get(name).and_then(Value::as_str) {
            Some(value) if allowed.contains(&value) => continue,
            Some(value) => format!("is {}", quote(value)),
            None if name == "sideEffects" => "is missing".to_string(),
            None => continue,
        };
        found.push(format!("{field}.{name} {problem}, allowed: {}", allowed.join(" and ")));
    }
    found
}

/// Checks the conversion webhook of a CRD.
pub(super) fn conversion(object: &Value) -> Vec<String> {
    const FIELD: &str = "spec.conversion.webhook";
    // The API server accepts an empty webhook with strategy None.
    let is_used = text(object, "/spec/conversion/strategy") == "Webhook";
    let Some(webhook) = object.pointer("/spec/conversion/webhook").filter(|_| is_used) else {
        return Vec::new();
    };
    let mut found = service_reference(webhook, FIELD);
    found.extend(review_versions(webhook, "conversionReviewVersions", FIELD));
    found
}

/// Checks `clientConfig.service` of a webhook.
fn service_reference(webhook: &Value, field: &str) -> Vec<String> {
    let field = format!("{field}.clientConfig.service");
    let mut found = Vec::new();
    let port = webhook.pointer("/clientConfig/service/port").and_then(Value::as_i64);
    // Without containerPort it is 0, and 443 when it is applied.
    if let Some(port) = port.filter(|port| *port != 0 && !PORTS.contains(port)) {
        found.push(format!(
            "{field}.port is {port}, allowed: 1 to 65535: set containerPort of the webhook definition"
        ));
    }
    let path = text(webhook, "/clientConfig/service/path");
    if !is_webhook_path(path) {
        found.push(format!(
            "{field}.path is {}, it must start with / and each part may have only lower case letters, digits, '-' and \
             '.': change webhookPath of the webhook definition",
            quote(path)
        ));
    }
    found
}

/// Reports whether each path segment is an RFC 1123 subdomain.
fn is_webhook_path(path: &str) -> bool {
    if path.is_empty() || path == "/" {
        return true;
    }
    let Some(parts) = path.strip_prefix('/') else {
        return false;
    };
    parts.strip_suffix('/').unwrap_or(parts).split('/').all(|part| subdomain_faults(part).is_empty())
}

fn review_versions(webhook: &Value, name: &str, field: &str) -> Option<String> {
    let versions = webhook.get(name).and_then(Value::as_array);
    let is_known = versions.into_iter().flatten().any(|version| version == "v1" || version == "v1beta1");
    (!is_known).then(|| format!("{field}.{name} has neither v1 nor v1beta1"))
}
