//! Renders the bundle for every supported install mode, as operator-controller does, and runs the install checks on
//! the result.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::text;
use olm_bundle::{
    Bundle, Certificates, InstallMode, RenderError, RenderOptions, ValidationFault, Validator,
    install_checks, render, validate,
};
use olm_version::quote;
use serde_json::{Value, json};

use crate::content::{Content, Object, pointer};
use crate::manifests::removal;
use crate::report::{Findings, Location};
use crate::rule::{self, Rule};

/// Stands for the namespace of the installation.
const INSTALL_NAMESPACE: &str = "install-namespace";
/// Stands for another watched namespace.
const WATCHED_NAMESPACE: &str = "watched-namespace";

/// Renders the bundle in every supported install mode except MultiNamespace.
pub(crate) fn check(bundle: &Bundle, content: &Content<'_>, findings: &mut Findings) {
    let Some(csv) = content.csv() else { return };
    for fault in validate(bundle) {
        // A missing package name is reported at the annotation.
        if fault.validator != Validator::Package {
            findings
                .add_at(rule_of(fault.validator), fault.text.clone(), || location_of(&fault, csv, content));
        }
    }
    // With several ClusterServiceVersions, rendering errors may refer to any of them.
    if findings.has(&rule::CSV_1) {
        return;
    }
    let modes = bundle.install_modes();
    let tried: Vec<InstallMode> =
        modes.into_iter().filter(|mode| *mode != InstallMode::MultiNamespace).collect();
    let mut results: BTreeMap<(bool, String), Vec<&'static str>> = BTreeMap::new();
    for mode in &tried {
        match attempt(bundle, *mode) {
            Ok(texts) => {
                for text in texts {
                    results.entry((false, text)).or_default().push(mode.name());
                }
            }
            // Reported above as faults, or by V1-2 and V1-4.
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
fn attempt(bundle: &Bundle, mode: InstallMode) -> Result<BTreeSet<String>, RenderError> {
    let config = match mode {
        InstallMode::OwnNamespace => json!({"watchNamespace": INSTALL_NAMESPACE}),
        InstallMode::SingleNamespace => json!({"watchNamespace": WATCHED_NAMESPACE}),
        InstallMode::AllNamespaces | InstallMode::MultiNamespace => json!({}),
    };
    let options = RenderOptions {
        install_namespace: INSTALL_NAMESPACE,
        config: Some(&config),
        certificates: Certificates::Builtin,
        single_own_namespace: true,
        deployment_config: true,
        ..RenderOptions::default()
    };
    let objects: Vec<Value> = render(bundle, &options)?;
    Ok(install_checks(bundle, &objects, INSTALL_NAMESPACE).into_iter().collect())
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
    let webhooks = ("spec.webhookdefinitions", "/generateName");
    let made = [
        ("Deployment", ("spec.install.spec.deployments", "/name")),
        ("MutatingWebhookConfiguration", webhooks),
        ("ValidatingWebhookConfiguration", webhooks),
    ];
    let found = made.into_iter().find_map(|(kind, (field, name))| {
        let parts = csv.list(&pointer(field));
        let position = parts.iter().position(|part| is_about(message, kind, text(part, name)))?;
        Some(csv.at(&format!("{field}.{position}")))
    });
    found.unwrap_or_else(|| Location::file(&csv.location().file))
}

fn rule_of(validator: Validator) -> &'static Rule {
    match validator {
        Validator::Deployment => &rule::DEPLOY_1,
        Validator::Definition => &rule::CRD_1,
        Validator::Package => &rule::ANN_1,
        Validator::ConversionModes => &rule::WEBHOOK_1,
        Validator::Webhook => &rule::WEBHOOK_2,
        Validator::WebhookRule => &rule::V1_5,
        Validator::Kind => &rule::OBJ_1,
    }
}

/// Location of the subject of a fault.
fn location_of(fault: &ValidationFault, csv: &Object, content: &Content<'_>) -> Location {
    let entry = |list: &str, name: &str| {
        let entries = csv.list(&pointer(list));
        let position = entries.iter().position(|entry| text(entry, name) == fault.subject);
        csv.at(&position.map_or_else(|| list.to_string(), |position| format!("{list}.{position}")))
    };
    match fault.validator {
        Validator::Deployment => entry("spec.install.spec.deployments", "/name"),
        Validator::Definition => {
            let shipped =
                content.definitions().filter(|definition| definition.name() == fault.subject).last();
            let owned = || entry("spec.customresourcedefinitions.owned", "/name");
            shipped.map_or_else(owned, Object::location)
        }
        Validator::Package => csv.location(),
        Validator::ConversionModes | Validator::Webhook | Validator::WebhookRule => {
            entry("spec.webhookdefinitions", "/generateName")
        }
        Validator::Kind => {
            let named = |object: &&Object| {
                object.name() == fault.subject && fault.text.ends_with(&quote(object.kind()))
            };
            content.objects.iter().find(named).map_or_else(|| csv.location(), Object::location)
        }
    }
}
