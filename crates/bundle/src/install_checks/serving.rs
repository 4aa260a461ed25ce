//! Install checks of Services, webhooks and certificates.

use std::collections::BTreeSet;

use olm_version::quote;
use serde_json::Value;

use super::{WebhookDeployments, title};
use crate::bundle::name_of;
use crate::pointer::{list, text};
use crate::validate::subdomain_faults;

/// Maximum length of the name of a Service, which is a DNS label.
const LABEL_BYTES: usize = 63;
/// Maximum length of the common name of a certificate.
const COMMON_NAME_BYTES: usize = 64;
const PORTS: std::ops::RangeInclusive<i64> = 1..=65535;

pub(super) fn service(deployments: &WebhookDeployments<'_>, object: &Value) -> Vec<String> {
    let mut found: Vec<String> = service_name(deployments, object).into_iter().collect();
    let (mut ports, mut names) = (BTreeSet::new(), BTreeSet::new());
    for port in list(object, "/spec/ports") {
        let number = port.get("port").and_then(Value::as_i64);
        if let Some(number) = number.filter(|number| !PORTS.contains(number)) {
            found.push(format!("{}: port {number} of spec.ports is not between 1 and 65535", title(object)));
        }
        let protocol = Some(text(port, "/protocol")).filter(|text| !text.is_empty()).unwrap_or("TCP");
        if let Some(number) = number
            && !ports.insert((number, protocol))
        {
            found.push(format!(
                "{}: spec.ports has port {number} ({protocol}) twice: webhooks of one deployment and containerPort need \
                 the same targetPort",
                title(object)
            ));
            continue;
        }
        let name = text(port, "/name");
        if !name.is_empty() && !names.insert(name) {
            found.push(format!("{}: spec.ports has the name {} twice", title(object), quote(name)));
        }
    }
    found
}

fn service_name(deployments: &WebhookDeployments<'_>, object: &Value) -> Option<String> {
    let name = name_of(object);
    if name.len() > LABEL_BYTES {
        let length = name.len();
        let hint = deployments.behind("Service", name).first().map_or(String::new(), |deployment| {
            format!(": the name of deployment {} has to be shorter", quote(deployment))
        });
        return Some(format!(
            "{}: metadata.name has {length} characters, at most {LABEL_BYTES} are allowed{hint}",
            title(object)
        ));
    }
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = name.bytes().all(is_inner) && !name.starts_with('-') && !name.ends_with('-');
    (!is_label).then(|| {
        format!(
            "{}: metadata.name may only have lower case letters, digits and '-', the latter not at its ends",
            title(object)
        )
    })
}

pub(super) fn certificate(object: &Value) -> Option<String> {
    let name = text(object, "/spec/commonName");
    (name.len() > COMMON_NAME_BYTES).then(|| {
        format!(
            "{}: spec.commonName {} has {} characters, at most {COMMON_NAME_BYTES} are allowed: choose a shorter install \
             namespace or another certificate provider",
            title(object),
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
        let name = text(webhook, "/name");
        if name.split('.').count() < 3 {
            found.push(format!(
                "{}: {field}.name needs at least three parts with dots between them, as in check.widgets.example.com: \
                 change generateName of the webhook definition",
                title(object)
            ));
        }
        if let Some(client) = webhook.get("clientConfig") {
            found.extend(service_reference(object, client, &format!("{field}.clientConfig")));
        }
        found.extend(review_versions(
            object,
            webhook.get("admissionReviewVersions"),
            &format!("{field}.admissionReviewVersions"),
        ));
        found.extend(choices(object, webhook, &field));
        let timeout = webhook.get("timeoutSeconds").and_then(Value::as_i64);
        if let Some(seconds) = timeout.filter(|seconds| !(1..=30).contains(seconds)) {
            found
                .push(format!("{}: {field}.timeoutSeconds is {seconds}, allowed are 1 to 30", title(object)));
        }
    }
    found
}

/// Checks the enumerated fields of a webhook. The first one is required.
fn choices(object: &Value, webhook: &Value, field: &str) -> Vec<String> {
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
        let allowed = allowed.join(" and ");
        found.push(format!("{}: {field}.{name} {problem}, allowed are {allowed}", title(object)));
    }
    found
}

/// Checks the conversion webhook of a CRD.
pub(super) fn conversion(object: &Value) -> Vec<String> {
    const FIELD: &str = "spec.conversion.webhook";
    let Some(webhook) = object.pointer("/spec/conversion/webhook") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if let Some(client) = webhook.get("clientConfig") {
        found.extend(service_reference(object, client, &format!("{FIELD}.clientConfig")));
    }
    let versions = webhook.get("conversionReviewVersions");
    found.extend(review_versions(object, versions, &format!("{FIELD}.conversionReviewVersions")));
    found
}

fn service_reference(object: &Value, client: &Value, field: &str) -> Vec<String> {
    let mut found = Vec::new();
    let port = client.pointer("/service/port").and_then(Value::as_i64);
    if let Some(port) = port.filter(|port| !PORTS.contains(port)) {
        found.push(format!(
            "{}: {field}.service.port is {port}, allowed are 1 to 65535: set containerPort of the webhook definition",
            title(object)
        ));
    }
    let path = text(client, "/service/path");
    if !is_webhook_path(path) {
        found.push(format!(
            "{}: {field}.service.path is {}, it has to start with / and each part may only have lower case letters, \
             digits, '-' and '.': change webhookPath of the webhook definition",
            title(object),
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

fn review_versions(object: &Value, versions: Option<&Value>, field: &str) -> Option<String> {
    let mut versions = versions.and_then(Value::as_array).into_iter().flatten();
    let is_known = versions.any(|version| version == "v1" || version == "v1beta1");
    (!is_known).then(|| format!("{}: {field} has neither v1 nor v1beta1", title(object)))
}
