//! The bundle validators (spec 04 §7). All of them run; findings keep the order of that table.

use std::collections::{BTreeMap, BTreeSet};

use olm_version::quote;
use serde_json::Value;

use crate::bundle::{Bundle, name_of};
use crate::csv::{InstallMode, Webhook};
use crate::objects::is_supported_kind;
use crate::support::list_of;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const SUBDOMAIN_LENGTH: &str = "must be no more than 253 characters";

/// Returns what makes the bundle unusable; empty when nothing does.
pub(crate) fn findings(bundle: &Bundle) -> Vec<String> {
    let webhooks = &bundle.csv.spec.webhooks;
    let mut findings = deployments(bundle);
    findings.extend(definitions(bundle));
    if bundle.package_name.is_empty() {
        findings.push("package name is empty".into());
    }
    findings.extend(conversion_modes(webhooks, &bundle.install_modes()));
    findings.extend(webhook_deployments(bundle));
    findings.extend(webhook_names(webhooks));
    findings.extend(conversions(bundle));
    findings.extend(webhooks.iter().filter(|webhook| !webhook.is_conversion()).flat_map(forbidden_rules));
    findings.extend(bundle.others.iter().filter_map(|object| {
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        (!is_supported_kind(kind))
            .then(|| format!("unsupported resource {} with kind {}", quote(name_of(object)), quote(kind)))
    }));
    findings
}

fn deployments(bundle: &Bundle) -> Vec<String> {
    let names = bundle.csv.deployments().iter().map(|deployment| deployment.name.as_str());
    let mut findings: Vec<String> = repeated(names.clone())
        .map(|name| format!("cluster service version contains duplicate strategy deployment spec '{name}'"))
        .collect();
    for name in names.collect::<BTreeSet<_>>() {
        let reasons = subdomain_faults(name);
        if !reasons.is_empty() {
            let reasons = reasons.join(", ");
            findings.push(format!(
                "invalid cluster service version strategy deployment name '{name}': {reasons}"
            ));
        }
    }
    findings
}

fn definitions(bundle: &Bundle) -> Vec<String> {
    let names = || bundle.definitions.iter().map(|definition| definition.name.as_str());
    let mut findings: Vec<String> = repeated(names())
        .map(|name| format!("bundle contains duplicate custom resource definition '{name}'"))
        .collect();
    let present: BTreeSet<&str> = names().collect();
    findings.extend(owned(bundle).difference(&present).map(|name| {
        format!("cluster service definition references owned custom resource definition '{name}' not found in bundle")
    }));
    findings
}

fn owned(bundle: &Bundle) -> BTreeSet<&str> {
    bundle.csv.spec.definitions.owned.iter().map(|owned| owned.name.as_str()).collect()
}

fn conversion_modes(webhooks: &[Webhook], modes: &BTreeSet<InstallMode>) -> Vec<String> {
    if modes.iter().eq([&InstallMode::AllNamespaces]) {
        return Vec::new();
    }
    let conversions = webhooks.iter().filter(|webhook| webhook.is_conversion());
    let text = |webhook: &Webhook| {
        format!(
            "bundle contains conversion webhook {} and supports install modes {} - conversion webhooks are only \
             supported for bundles that only support AllNamespaces install mode",
            quote(&webhook.generate_name),
            list_of(modes)
        )
    };
    conversions.map(text).collect()
}

fn webhook_deployments(bundle: &Bundle) -> Vec<String> {
    let present: BTreeSet<&str> = bundle.csv.deployments().iter().map(|d| d.name.as_str()).collect();
    let mut missing: Vec<(&str, &str, &str)> = bundle
        .csv
        .spec
        .webhooks
        .iter()
        .map(|webhook| {
            (webhook.deployment_name.as_str(), webhook.kind.as_str(), webhook.generate_name.as_str())
        })
        .filter(|(deployment, ..)| !present.contains(deployment))
        .collect();
    missing.sort_unstable();
    let text = |(deployment, kind, name)| {
        format!(
            "webhook of type '{kind}' with name '{name}' references non-existent deployment '{deployment}'"
        )
    };
    missing.into_iter().map(text).collect()
}

fn webhook_names(webhooks: &[Webhook]) -> Vec<String> {
    let names = || webhooks.iter().map(|webhook| (webhook.kind.as_str(), webhook.generate_name.as_str()));
    let mut findings: Vec<String> = repeated(names())
        .map(|(kind, name)| format!("duplicate webhook '{name}' of type '{kind}'"))
        .collect();
    for (kind, name) in names().collect::<BTreeSet<_>>() {
        let reasons = subdomain_faults(name);
        if !reasons.is_empty() {
            findings
                .push(format!("webhook of type '{kind}' has invalid name '{name}': {}", reasons.join(",")));
        }
    }
    findings
}

fn conversions(bundle: &Bundle) -> Vec<String> {
    let mut by_definition: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut references: Vec<(&str, &str)> = Vec::new();
    for webhook in bundle.csv.spec.webhooks.iter().filter(|webhook| webhook.is_conversion()) {
        for definition in &webhook.conversion_crds {
            by_definition.entry(definition).or_default().push(&webhook.generate_name);
            references.push((&webhook.generate_name, definition));
        }
    }
    let mut findings = Vec::new();
    for (definition, names) in &mut by_definition {
        names.sort_unstable();
        if names.len() > 1 {
            let names = names.join(",");
            findings.push(format!(
                "conversion webhooks [{names}] reference same custom resource definition '{definition}'"
            ));
        }
    }
    let owned = owned(bundle);
    references.sort_unstable();
    references.retain(|(_, definition)| !owned.contains(definition));
    findings.extend(references.into_iter().map(|(name, definition)| {
        format!("conversion webhook '{name}' references custom resource definition '{definition}' not owned bundle")
    }));
    findings
}

/// Rules that would let the webhook of an operator intercept this system or other admission webhooks.
fn forbidden_rules(webhook: &Webhook) -> Vec<String> {
    let strings = |rule: &Value, key: &str| -> Vec<String> {
        let list = rule.get(key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_string).collect()
    };
    let mut findings = Vec::new();
    let mut forbid = |what: String| {
        let name = quote(&webhook.generate_name);
        findings.push(format!(
            "webhook {name} contains forbidden rule: admission webhook rules cannot reference {what}"
        ));
    };
    for rule in &webhook.rules {
        for group in strings(rule, "apiGroups") {
            match group.as_str() {
                "*" | "olm.operatorframework.io" => forbid(format!("API group {}", quote(&group))),
                "admissionregistration.k8s.io" => {
                    for resource in strings(rule, "resources").iter().filter(|name| is_webhook_resource(name))
                    {
                        forbid(format!("resource {} for API group {}", quote(resource), quote(&group)));
                    }
                }
                _ => {}
            }
        }
    }
    findings
}

fn is_webhook_resource(name: &str) -> bool {
    let name = name.to_lowercase();
    let singular = name.strip_suffix('s').unwrap_or(&name);
    name == "*" || matches!(singular, "mutatingwebhookconfiguration" | "validatingwebhookconfiguration")
}

/// The values that occur more than once, sorted.
fn repeated<T: Ord + Copy>(values: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count > 1).map(|(value, _)| value)
}

/// Why `name` is not an RFC 1123 subdomain, sorted; empty when it is one.
fn subdomain_faults(name: &str) -> Vec<&'static str> {
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let mut faults = Vec::new();
    if !name.split('.').all(label) {
        faults.push(SUBDOMAIN);
    }
    if name.len() > 253 {
        faults.push(SUBDOMAIN_LENGTH);
    }
    faults
}
