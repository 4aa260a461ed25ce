//! Renders the bundle for every supported install mode, as operator-controller does, and runs the install checks on
//! the result.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::text;
use olm_bundle::{
    BundleContent, Certificates, InstallMode, RenderError, RenderOptions, SYSTEM_NAMESPACE, ValidationFault,
    Validator, install_checks, render, validate,
};
use olm_finding::Rule;
use olm_version::quote;
use serde_json::{Value, json};

use crate::content::{Content, Object, pointer};
use crate::manifests::removal;
use crate::report::{Findings, Location};
use crate::rule;

/// Stands for the namespace of the installation.
const INSTALL_NAMESPACE: &str = "install-namespace";
/// Stands for another watched namespace.
const WATCHED_NAMESPACE: &str = "watched-namespace";

/// Dotted path of a list, and JSON pointer to the name of its items.
type NamedList = (&'static str, &'static str);
const DEPLOYMENTS: NamedList = ("spec.install.spec.deployments", "/name");
const WEBHOOKS: NamedList = ("spec.webhookdefinitions", "/generateName");
const API_SERVICES: NamedList = ("spec.apiservicedefinitions.owned", "/name");

/// Renders the bundle in every supported install mode.
pub(crate) fn check(bundle: &BundleContent, content: &Content<'_>, findings: &mut Findings) {
    let Some(csv) = content.csv() else { return };
    for fault in validate(bundle) {
        // A missing package name is reported at the annotation.
        if fault.validator != Validator::Package {
            let (rule, list) = rule_of(fault.validator);
            findings.add_at(rule, fault.text.clone(), || location_of(&fault, list, csv, content));
        }
    }
    // With several ClusterServiceVersions, rendering errors may refer to any of them.
    if findings.has(&rule::CSV_1) {
        return;
    }
    let tried = bundle.install_modes();
    let mut results: BTreeMap<(bool, String), Vec<&'static str>> = BTreeMap::new();
    for mode in &tried {
        match attempt(bundle, *mode) {
            Ok(texts) => {
                for text in texts {
                    results.entry((false, text)).or_default().push(mode.name());
                }
            }
            // Reported above as faults, or by V1-4.
            Err(RenderError::Invalid(_) | RenderError::Unsupported(_)) => {}
            Err(error) => results.entry((true, error.to_string())).or_default().push(mode.name()),
        }
    }
    for ((is_refusal, text), modes) in results {
        let object = object_of(&text, content);
        // KUBE-1 reports a removed API version in more detail.
        if findings.has(&rule::KUBE_1) && object.is_some_and(|object| removal(object).is_some()) {
            continue;
        }
        // CRD-6 reports the conversion of a manifest in more detail.
        if findings.has(&rule::CRD_6) && text.contains("spec.conversion.webhook") {
            continue;
        }
        let rule = if is_refusal { &rule::RENDER_1 } else { &rule::RENDER_2 };
        let only = match modes.len() < tried.len() {
            true => format!(" (install mode {})", modes.join(", ")),
            false => String::new(),
        };
        findings.add_at(rule, format!("{text}{only}"), || {
            let location = object.map_or_else(|| part_of(&text, csv), Object::location);
            // The text already names the object.
            Location { object: None, ..location }
        });
    }
}

/// Results of the install checks for the bundle in this mode.
fn attempt(bundle: &BundleContent, mode: InstallMode) -> Result<BTreeSet<String>, RenderError> {
    let config = match mode {
        InstallMode::OwnNamespace => json!({"watchNamespace": INSTALL_NAMESPACE}),
        InstallMode::SingleNamespace => json!({"watchNamespace": WATCHED_NAMESPACE}),
        InstallMode::MultiNamespace => json!({"watchNamespaces": [WATCHED_NAMESPACE]}),
        InstallMode::AllNamespaces => json!({}),
    };
    let options = RenderOptions {
        install_namespace: INSTALL_NAMESPACE,
        config: Some(&config),
        certificates: Certificates::Builtin,
        single_own_namespace: true,
        multi_watch_namespaces: mode == InstallMode::MultiNamespace,
        deployment_config: true,
        owned_api_services: true,
        ..RenderOptions::default()
    };
    let objects: Vec<Value> = render(bundle, &options)?;
    Ok(install_checks(bundle, &objects, INSTALL_NAMESPACE, SYSTEM_NAMESPACE).into_iter().collect())
}

/// Manifest of the object that the text begins with.
fn object_of<'a>(message: &str, content: &'a Content<'_>) -> Option<&'a Object> {
    content
        .objects
        .iter()
        .find(|object| !object.name().is_empty() && is_about(message, object.kind(), object.name()))
}

fn is_about(message: &str, kind: &str, name: &str) -> bool {
    let rest = message.strip_prefix(kind).and_then(|rest| rest.strip_prefix(' '));
    let rest = rest.and_then(|rest| rest.strip_prefix(quote(name).as_str()));
    rest.is_some_and(|rest| rest.starts_with([':', ' ']))
}

/// Part of the ClusterServiceVersion that yields the object that the text begins with.
fn part_of(message: &str, csv: &Object) -> Location {
    let made = [
        ("Deployment", DEPLOYMENTS),
        ("MutatingWebhookConfiguration", WEBHOOKS),
        ("ValidatingWebhookConfiguration", WEBHOOKS),
    ];
    let found = made.into_iter().find_map(|(kind, (field, name))| {
        let parts = csv.list(&pointer(field));
        let position = parts.iter().position(|part| is_about(message, kind, text(part, name)))?;
        Some(csv.at(&format!("{field}.{position}")))
    });
    found.unwrap_or_else(|| Location::file(&csv.location().file))
}

/// Rule of a validator, and the list of the ClusterServiceVersion with its subjects and the pointer to their names.
fn rule_of(validator: Validator) -> (&'static Rule, Option<NamedList>) {
    match validator {
        Validator::Deployment => (&rule::DEPLOY_1, Some(DEPLOYMENTS)),
        Validator::Crd => (&rule::CRD_1, Some(("spec.customresourcedefinitions.owned", "/name"))),
        Validator::Package => (&rule::ANN_1, None),
        Validator::ConversionModes => (&rule::WEBHOOK_1, Some(WEBHOOKS)),
        Validator::Webhook => (&rule::WEBHOOK_2, Some(WEBHOOKS)),
        Validator::WebhookRule => (&rule::V1_5, Some(WEBHOOKS)),
        Validator::Kind => (&rule::OBJ_1, None),
        Validator::ApiService => (&rule::API_1, Some(API_SERVICES)),
    }
}

/// Location of the subject of a fault: its manifest, its entry in `list`, or the ClusterServiceVersion.
fn location_of(
    fault: &ValidationFault,
    list: Option<NamedList>,
    csv: &Object,
    content: &Content<'_>,
) -> Location {
    let is_named = |object: &&Object| object.name() == fault.subject;
    let shipped = match fault.validator {
        Validator::Crd => content.crds().filter(is_named).last(),
        Validator::Kind => {
            let mut named = content.objects.iter().filter(is_named);
            named.find(|object| fault.text.ends_with(&quote(object.kind())))
        }
        _ => None,
    };
    match (shipped, list) {
        (Some(object), _) => object.location(),
        (None, None) => csv.location(),
        (None, Some((list, name))) => {
            let is_subject = |entry: &Value| match fault.validator {
                Validator::ApiService => {
                    format!("{}.{}", text(entry, "/version"), text(entry, "/group")) == fault.subject
                }
                _ => text(entry, name) == fault.subject,
            };
            let position = csv.list(&pointer(list)).iter().position(is_subject);
            csv.at(&position.map_or_else(|| list.to_string(), |position| format!("{list}.{position}")))
        }
    }
}
