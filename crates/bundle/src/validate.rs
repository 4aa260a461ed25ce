//! Bundle validators (docs/design/bundles.md#bundle-validators). All of them run. Faults are in the order of that
//! table.

use std::collections::{BTreeMap, BTreeSet};

use olm_version::names::is_dns_label;
use olm_version::quote;
use serde_json::Value;

use crate::api_services;
use crate::bundle::{BundleContent, name_of};
use crate::csv::{InstallMode, Webhook};
use crate::kinds::is_supported_kind;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const SUBDOMAIN_LENGTH: &str = "must be no more than 253 characters";

/// Maximum size of the texts of faults.
const FAULTS_BYTES: usize = 1 << 20;

/// Validator of a [`ValidationFault`], by its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Validator {
    /// Deployments of the install strategy (rows 1 and 2).
    Deployment,
    /// CustomResourceDefinitions, shipped and owned (rows 3 and 4).
    Crd,
    /// Package name (row 5).
    Package,
    /// Conversion webhooks and install modes (row 6).
    ConversionModes,
    /// Webhook definitions (rows 7 to 11).
    Webhook,
    /// Rules of admission webhooks (row 12).
    WebhookRule,
    /// Kinds of shipped objects (row 13).
    Kind,
    /// Owned APIServices (rows 14 to 16).
    ApiService,
}

/// Finding of a validator of docs/design/bundles.md#bundle-validators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationFault {
    /// Validator that found it.
    pub validator: Validator,
    /// Name of the invalid deployment, CRD, webhook or object.
    pub subject: String,
    /// Message of [`render`](crate::render()).
    pub text: String,
}

impl ValidationFault {
    pub(crate) fn new(validator: Validator, subject: &str, text: String) -> Self {
        Self { validator, subject: subject.to_string(), text }
    }
}

/// Faults that prevent rendering, in the order in which [`render`](crate::render()) reports them. Empty for a valid
/// bundle.
pub fn validate(bundle: &BundleContent) -> Vec<ValidationFault> {
    let webhooks = &bundle.csv.spec.webhooks;
    let no_package = bundle.package_name.is_empty().then(|| "package name is empty".to_string());
    let admission = webhooks.iter().filter(|webhook| !webhook.is_conversion());
    let unsupported = bundle.others.iter().filter_map(|object| {
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        let name = name_of(object);
        (!is_supported_kind(kind)).then(|| {
            let text = format!("unsupported resource {} with kind {}", quote(name), quote(kind));
            ValidationFault::new(Validator::Kind, name, text)
        })
    });
    bounded(
        deployments(bundle)
            .into_iter()
            .chain(crds(bundle))
            .chain(no_package.map(|text| ValidationFault::new(Validator::Package, "", text)))
            .chain(conversion_modes(webhooks, &bundle.install_modes()))
            .chain(webhook_deployments(bundle))
            .chain(webhook_names(webhooks))
            .chain(conversions(bundle))
            .chain(admission.flat_map(forbidden_rules))
            .chain(unsupported)
            .chain(api_services::faults(bundle)),
    )
}

fn deployments(bundle: &BundleContent) -> Vec<ValidationFault> {
    let names = bundle.csv.deployments().iter().map(|deployment| deployment.name.as_str());
    let what = "cluster service version contains duplicate strategy deployment spec";
    let duplicate = repeated(names.clone()).map(|name| (name, format!("{what} '{name}'")));
    let what = "invalid cluster service version strategy deployment name";
    let invalid = names.collect::<BTreeSet<_>>().into_iter().filter_map(|name| {
        let reasons = subdomain_faults(name).join(", ");
        (!reasons.is_empty()).then(|| (name, format!("{what} '{name}': {reasons}")))
    });
    let fault = |(name, text)| ValidationFault::new(Validator::Deployment, name, text);
    duplicate.chain(invalid).map(fault).collect()
}

fn crds(bundle: &BundleContent) -> Vec<ValidationFault> {
    let names = || bundle.crds.iter().map(name_of);
    let what = "bundle contains duplicate custom resource definition";
    let duplicate = repeated(names()).map(|name| (name, format!("{what} '{name}'")));
    let present: BTreeSet<&str> = names().collect();
    let owned = owned(bundle);
    let what = "cluster service definition references owned custom resource definition";
    let missing =
        owned.difference(&present).map(|name| (*name, format!("{what} '{name}' not found in bundle")));
    let fault = |(name, text)| ValidationFault::new(Validator::Crd, name, text);
    duplicate.chain(missing).map(fault).collect()
}

fn owned(bundle: &BundleContent) -> BTreeSet<&str> {
    bundle.csv.spec.crds.owned.iter().map(|owned| owned.name.as_str()).collect()
}

fn conversion_modes(webhooks: &[Webhook], modes: &BTreeSet<InstallMode>) -> Vec<ValidationFault> {
    if modes.iter().eq([&InstallMode::AllNamespaces]) {
        return Vec::new();
    }
    let conversions = webhooks.iter().filter(|webhook| webhook.is_conversion());
    let fault = |webhook: &Webhook| {
        let text = format!(
            "bundle contains conversion webhook {} and supports install modes {} - conversion webhooks are only \
             supported for bundles that only support AllNamespaces install mode",
            quote(&webhook.generate_name),
            InstallMode::list(modes)
        );
        ValidationFault::new(Validator::ConversionModes, &webhook.generate_name, text)
    };
    conversions.map(fault).collect()
}

fn webhook_deployments(bundle: &BundleContent) -> Vec<ValidationFault> {
    let present: BTreeSet<&str> = bundle.csv.deployments().iter().map(|d| d.name.as_str()).collect();
    let webhooks = bundle.csv.spec.webhooks.iter();
    let mut missing: Vec<(&str, &str, &str)> = webhooks
        .map(|Webhook { deployment_name, kind, generate_name, .. }| {
            (deployment_name.as_str(), kind.as_str(), generate_name.as_str())
        })
        .filter(|(deployment, ..)| !present.contains(deployment))
        .collect();
    missing.sort_unstable();
    let fault = |(deployment, kind, name)| {
        let what = "references non-existent deployment";
        let text = format!("webhook of type '{kind}' with name '{name}' {what} '{deployment}'");
        ValidationFault::new(Validator::Webhook, name, text)
    };
    missing.into_iter().map(fault).collect()
}

fn webhook_names(webhooks: &[Webhook]) -> Vec<ValidationFault> {
    let names = webhooks.iter().map(|webhook| (webhook.kind.as_str(), webhook.generate_name.as_str()));
    let duplicate = repeated(names.clone())
        .map(|(kind, name)| (name, format!("duplicate webhook '{name}' of type '{kind}'")));
    let invalid = names.collect::<BTreeSet<_>>().into_iter().filter_map(|(kind, name)| {
        let reasons = subdomain_faults(name).join(",");
        let text = format!("webhook of type '{kind}' has invalid name '{name}': {reasons}");
        (!reasons.is_empty()).then_some((name, text))
    });
    let fault = |(name, text)| ValidationFault::new(Validator::Webhook, name, text);
    duplicate.chain(invalid).map(fault).collect()
}

fn conversions(bundle: &BundleContent) -> impl Iterator<Item = ValidationFault> {
    let mut webhooks: Vec<&Webhook> =
        bundle.csv.spec.webhooks.iter().filter(|webhook| webhook.is_conversion()).collect();
    webhooks.sort_by_key(|webhook| webhook.generate_name.as_str());
    let owned = owned(bundle);
    let mut by_crd: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut not_owned: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for webhook in webhooks {
        let name = webhook.generate_name.as_str();
        for crd in &webhook.conversion_crds {
            by_crd.entry(crd).or_default().push(name);
        }
        let crds = webhook.conversion_crds.iter().map(String::as_str);
        not_owned.entry(name).or_default().extend(crds.filter(|crd| !owned.contains(crd)));
    }
    let fault = |name: &str, text| ValidationFault::new(Validator::Webhook, name, text);
    let shared = by_crd.into_iter().filter_map(move |(crd, names)| {
        let [first, _, ..] = names.as_slice() else { return None };
        let names = joined(&names);
        let what = "reference same custom resource definition";
        Some(fault(first, format!("conversion webhooks [{names}] {what} '{crd}'")))
    });
    let not_owned = not_owned.into_iter().flat_map(move |(name, mut crds)| {
        crds.sort_unstable();
        crds.into_iter().map(move |crd| {
            let what = "references custom resource definition";
            fault(name, format!("conversion webhook '{name}' {what} '{crd}' not owned bundle"))
        })
    });
    shared.chain(not_owned)
}

/// Rules with which the webhook of an operator could intercept OLM or other admission webhooks.
fn forbidden_rules(webhook: &Webhook) -> impl Iterator<Item = ValidationFault> {
    let forbidden = webhook.rules.iter().flat_map(|rule| {
        strings(rule, "apiGroups").flat_map(move |group| {
            let whole = matches!(group, "*" | "olm.operatorframework.io");
            let whole = whole.then(|| format!("API group {}", quote(group)));
            let resources = (group == "admissionregistration.k8s.io").then(|| strings(rule, "resources"));
            let resources = resources.into_iter().flatten().filter(|name| is_webhook_resource(name));
            let resources =
                resources.map(move |name| format!("resource {} for API group {}", quote(name), quote(group)));
            whole.into_iter().chain(resources)
        })
    });
    forbidden.map(|what| {
        let name = quote(&webhook.generate_name);
        let text = format!(
            "webhook {name} contains forbidden rule: admission webhook rules cannot reference {what}"
        );
        ValidationFault::new(Validator::WebhookRule, &webhook.generate_name, text)
    })
}

fn strings<'a>(rule: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    rule.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn is_webhook_resource(name: &str) -> bool {
    let name = name.to_lowercase();
    let singular = name.strip_suffix('s').unwrap_or(&name);
    name == "*" || matches!(singular, "mutatingwebhookconfiguration" | "validatingwebhookconfiguration")
}

/// Values that occur more than once, sorted.
fn repeated<T: Ord + Copy>(values: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count > 1).map(|(value, _)| value)
}

/// Reasons why `name` is not an RFC 1123 subdomain, sorted. Empty if it is one.
pub fn subdomain_faults(name: &str) -> Vec<&'static str> {
    let mut faults = Vec::new();
    if !name.split('.').all(is_dns_label) {
        faults.push(SUBDOMAIN);
    }
    if name.len() > 253 {
        faults.push(SUBDOMAIN_LENGTH);
    }
    faults
}

/// Truncates faults to [`FAULTS_BYTES`]. Lazy, because there may be one fault per pair of names in the bundle.
fn bounded(faults: impl Iterator<Item = ValidationFault>) -> Vec<ValidationFault> {
    let mut bytes = 0;
    let mut kept: Vec<ValidationFault> = Vec::new();
    for fault in faults {
        bytes += fault.text.len();
        if let Some(last) = kept.last()
            && bytes > FAULTS_BYTES
        {
            let text = "and more, which are not listed".to_string();
            kept.push(ValidationFault { validator: last.validator, subject: String::new(), text });
            break;
        }
        kept.push(fault);
    }
    kept
}

/// Joins names with commas, up to [`FAULTS_BYTES`].
fn joined(names: &[&str]) -> String {
    let mut text = String::new();
    for (number, name) in names.iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        if text.len() > FAULTS_BYTES {
            text.push_str("...");
            break;
        }
        text.push_str(name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_list_is_truncated_by_size() {
        let fault = |bytes: usize| {
            let (subject, text) = (String::new(), "x".repeat(bytes));
            ValidationFault { validator: Validator::Webhook, subject, text }
        };
        assert_eq!(bounded([fault(1), fault(2)].into_iter()), [fault(1), fault(2)]);
        let kept = bounded(std::iter::repeat_with(|| fault(1 << 18)));
        assert_eq!((kept.len(), kept[4].text.as_str()), (5, "and more, which are not listed"));
        // A single fault is never truncated.
        assert_eq!(bounded(std::iter::once(fault(2 << 20))).len(), 1);
    }
}
