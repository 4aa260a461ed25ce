//! Conversion of custom resources between versions (docs/design/bundles.md#converted-crds). Conversions that the
//! ClusterServiceVersion defines are checked where they are rendered: they replace those of the manifests.

use std::collections::BTreeSet;

use olm_bundle::pointer::{list, text};
use olm_bundle::subdomain_faults;
use olm_version::names::is_dns_label;
use olm_version::quote;
use serde_json::Value;

use crate::content::{Content, Object};
use crate::manifests::CRD_API_VERSION;
use crate::report::Findings;
use crate::rule;

const WEBHOOK: &str = "spec.conversion.webhook";

/// Reports conversions that the API server refuses, and webhooks that OLM does not connect.
pub(crate) fn conversions(content: &Content<'_>, findings: &mut Findings) {
    let converted = converted(content);
    for crd in content.crds().filter(|crd| crd.api_version() == CRD_API_VERSION) {
        let Some(conversion) = crd.value.pointer("/spec/conversion").filter(|value| !value.is_null()) else {
            continue;
        };
        if converted.contains(crd.name()) {
            continue;
        }
        let faults = faults(conversion);
        for (field, fault) in &faults {
            findings.add(&rule::CRD_6, crd.at(field), fault.as_str());
        }
        if faults.is_empty() && crd.text("/spec/conversion/strategy") == "Webhook" {
            foreign_service(crd, findings);
        }
    }
}

/// Names of the CRDs whose conversion the ClusterServiceVersion defines.
fn converted<'a>(content: &'a Content<'_>) -> BTreeSet<&'a str> {
    let webhooks = content.csv().map_or(&[][..], |csv| csv.list("/spec/webhookdefinitions")).iter();
    let conversions = webhooks.filter(|webhook| text(webhook, "/type") == "ConversionWebhook");
    conversions.flat_map(|webhook| list(webhook, "/conversionCRDs")).filter_map(Value::as_str).collect()
}

/// Reports the definition of a conversion webhook without CRDs.
pub(crate) fn without_crds(csv: &Object, findings: &mut Findings) {
    for (location, webhook) in csv.items("spec.webhookdefinitions") {
        if text(webhook, "/type") == "ConversionWebhook" && list(webhook, "/conversionCRDs").is_empty() {
            let message = "the webhook converts nothing: list the names of its CustomResourceDefinitions";
            findings.add(&rule::WEBHOOK_5, location.at("conversionCRDs"), message);
        }
    }
}

fn foreign_service(crd: &Object, findings: &mut Findings) {
    let service = format!("{WEBHOOK}.clientConfig.service");
    let (namespace, name) = (
        crd.text("/spec/conversion/webhook/clientConfig/service/namespace"),
        crd.text("/spec/conversion/webhook/clientConfig/service/name"),
    );
    if name.is_empty() {
        return;
    }
    let message = format!(
        "every request for {} needs Service {} of namespace {}, which OLM does not create, and for which it sets no \
         caBundle: list the CustomResourceDefinition in conversionCRDs of a ConversionWebhook of the \
         ClusterServiceVersion, or remove spec.conversion",
        crd.text("/spec/names/plural"),
        quote(name),
        quote(namespace)
    );
    findings.add(&rule::CRD_7, crd.at(&service), message);
}

/// Fields of `spec.conversion` that the API server refuses, each with the reason.
fn faults(conversion: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut add = |field: &str, fault: String| found.push((format!("spec.conversion{field}"), fault));
    let strategy = text(conversion, "/strategy");
    let webhook = conversion.get("webhook").filter(|webhook| !webhook.is_null());
    match (strategy, webhook) {
        ("None", None) => {}
        ("None", Some(webhook)) => {
            let is_set = ["clientConfig", "conversionReviewVersions"].iter().any(|field| {
                webhook.get(field).is_some_and(|value| !value.is_null() && *value != Value::Array(Vec::new()))
            });
            if is_set {
                add(
                    ".webhook",
                    "not allowed with strategy None: remove it, or set strategy: Webhook".to_owned(),
                );
            }
        }
        ("Webhook", None) => {
            let why = "strategy Webhook needs webhook with clientConfig and conversionReviewVersions: list the \
                       CustomResourceDefinition in conversionCRDs of a ConversionWebhook of the ClusterServiceVersion, \
                       or remove spec.conversion";
            add("", why.to_owned());
        }
        ("Webhook", Some(webhook)) => {
            client_faults(webhook, &mut add);
            version_faults(webhook, &mut add);
        }
        _ => add(".strategy", format!("{}; allowed: None and Webhook", quote(strategy))),
    }
    found
}

fn client_faults(webhook: &Value, add: &mut impl FnMut(&str, String)) {
    const FIELD: &str = ".webhook.clientConfig";
    let Some(client) = webhook.get("clientConfig").filter(|client| !client.is_null()) else {
        return add(FIELD, "strategy Webhook needs clientConfig with url or service".to_owned());
    };
    let is_set = |field: &str| client.get(field).is_some_and(|value| !value.is_null());
    match (is_set("url"), is_set("service")) {
        (true, true) | (false, false) => {
            add(FIELD, "exactly one of url and service has to be set".to_owned());
        }
        (true, false) => {
            let url = text(client, "/url");
            let host = url.strip_prefix("https://").map(|rest| rest.split('/').next().unwrap_or_default());
            if host.is_none_or(|host| host.is_empty() || host.contains('@')) || url.contains(['?', '#']) {
                let form = "expected https://host:port/path without user, query and fragment";
                add(".webhook.clientConfig.url", format!("{}: {form}", quote(url)));
            }
        }
        (false, true) => service_faults(&client["service"], add),
    }
}

fn service_faults(service: &Value, add: &mut impl FnMut(&str, String)) {
    let field = |name: &str| format!(".webhook.clientConfig.service.{name}");
    for name in ["name", "namespace"] {
        if text(service, &format!("/{name}")).is_empty() {
            add(&field(name), "the field must be set and not empty".to_owned());
        }
    }
    let port = service.get("port").filter(|port| !port.is_null());
    if let Some(port) = port.filter(|port| !port.as_i64().is_some_and(|port| (1..=65535).contains(&port))) {
        add(&field("port"), format!("{port}; allowed: 1 to 65535, or omit it for 443"));
    }
    let path = text(service, "/path");
    let is_path = |path: &str| {
        let parts = path.strip_prefix('/')?;
        let parts = parts.strip_suffix('/').unwrap_or(parts);
        parts.split('/').all(|part| subdomain_faults(part).is_empty()).then_some(())
    };
    if !path.is_empty() && path != "/" && is_path(path).is_none() {
        let form = "begins with / and each part has only lower case letters, digits, '-' and '.'";
        add(&field("path"), format!("{}: a path {form}", quote(path)));
    }
}

fn version_faults(webhook: &Value, add: &mut impl FnMut(&str, String)) {
    const FIELD: &str = ".webhook.conversionReviewVersions";
    let versions: Vec<&str> =
        list(webhook, "/conversionReviewVersions").iter().filter_map(Value::as_str).collect();
    if !versions.iter().any(|version| ["v1", "v1beta1"].contains(version)) {
        add(FIELD, "must contain v1 or v1beta1".to_owned());
    }
    for (index, version) in versions.iter().enumerate() {
        if versions[..index].contains(version) {
            add(&format!("{FIELD}.{index}"), format!("{} is listed twice", quote(version)));
        } else if !is_dns_label(version) || version.starts_with(|c: char| c.is_ascii_digit()) {
            add(&format!("{FIELD}.{index}"), format!("{} is not a version such as v1", quote(version)));
        }
    }
}
