//! Findings about ClusterExtensions, their revisions, ClusterCatalogs and the platform.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use olm_api::ClusterExtension;
use olm_api::conditions::{reasons, types};
use olm_cli_core::output::counted;
use olm_cli_lifecycle::status::health::Hold;
use olm_request::{ExtensionRules, InvalidAnnotation, Settings};
use olm_revision::blocked_pods::MARK;
use serde_json::Value;

use super::{Finding, PATIENCE, caused, condition, condition_with, finding, is_older};
use crate::doctor::observed::{Observed, list, name, owner, text, title};
use crate::doctor::rule::{self, CAUSES, DoctorRule, OF_CATALOGS, OF_DELETIONS, OF_EXTENSIONS, recognize};

const EXTENSION: &str = "ClusterExtension";
const CATALOG: &str = "ClusterCatalog";
const REVISION: &str = "ClusterObjectSet";
/// Reasons of `Progressing` without progress.
const FAILING: [&str; 3] = [reasons::RETRYING, reasons::BLOCKED, reasons::INVALID_CONFIGURATION];
/// Time that a deletion and a rollout may take.
const DELETION: SignedDuration = SignedDuration::from_mins(2);
const ROLLOUT: SignedDuration = SignedDuration::from_mins(10);

pub(super) fn findings(observed: &Observed, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    for extension in observed.list(EXTENSION) {
        for fault in invalid_annotations(extension) {
            findings.push(finding(&rule::ANNOTATION, title(EXTENSION, extension), fault.to_string()));
        }
        if text(extension, "/metadata/deletionTimestamp").is_empty() {
            of_extension(extension, observed, now, &mut findings);
        } else {
            let object = title(EXTENSION, extension);
            of_deletion(&object, extension, &revisions_of(name(extension), observed), now, &mut findings);
        }
    }
    for revision in without_extension(observed) {
        of_deletion(&title(REVISION, revision), revision, &[], now, &mut findings);
    }
    for catalog in observed.list(CATALOG) {
        of_catalog(catalog, observed, now, &mut findings);
    }
    for status in observed.list("ClusterUpgradeStatus") {
        if let Some(found) = condition_with(status, types::UPGRADEABLE, "False") {
            let message = text(found, "/message");
            findings.push(finding(&rule::NOT_UPGRADEABLE, title("ClusterUpgradeStatus", status), message));
        }
    }
    findings
}

fn invalid_annotations(extension: &Value) -> Vec<InvalidAnnotation> {
    let all = extension["metadata"]["annotations"].as_object().into_iter().flatten();
    let all = all.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    ExtensionRules::of(Some(&all), Settings::default()).invalid
}

fn of_extension(extension: &Value, observed: &Observed, now: Timestamp, findings: &mut Vec<Finding>) {
    let object = title(EXTENSION, extension);
    let holds = serde_json::from_value::<ClusterExtension>(extension.clone());
    let holds = holds.map(|extension| Hold::all(&extension)).unwrap_or_default();
    let held_first = |message: &str| holds.iter().any(|hold| hold.message == message);
    match condition(extension, types::PROGRESSING) {
        None if is_older(extension, "/metadata/creationTimestamp", PATIENCE, now) => {
            findings.push(finding(&rule::NOT_RECONCILED, &object, "condition Progressing is missing"));
        }
        Some(progress) if FAILING.contains(&text(progress, "/reason")) => {
            let message = text(progress, "/message");
            if !held_first(message) {
                findings.push(failure(&object, message, observed));
            }
        }
        Some(progress) => of_rollout(extension, progress, observed, now, findings),
        None => {}
    }
    for hold in &holds {
        findings.push(finding(&rule::HELD, &object, format!("{}: {}", hold.by, hold.message)));
    }
    if let Some(found) = condition_with(extension, types::DEPRECATED, "True") {
        findings.push(finding(&rule::DEPRECATED, &object, text(found, "/message")));
    }
    if let Some(found) = condition_with(extension, types::DEPENDENCIES_SATISFIED, "False") {
        findings.push(finding(&rule::UNSATISFIED, &object, text(found, "/message")));
    }
    let bundle = text(extension, "/status/install/bundle/name");
    let is_gone = |offered: &std::collections::BTreeSet<String>| !offered.contains(bundle);
    if !bundle.is_empty() && observed.offered.as_ref().is_some_and(is_gone) {
        let message = format!("bundle {bundle} is in no catalog that is served");
        findings.push(finding(&rule::GONE, &object, message));
    }
    let is_correction = |event: &&Value| {
        text(event, "/reason") == "DriftCorrected"
            && text(event, "/involvedObject/kind") == EXTENSION
            && text(event, "/involvedObject/name") == name(extension)
    };
    let corrections: Vec<&Value> = observed.list("Event").iter().filter(is_correction).collect();
    if let Some(last) = corrections.last() {
        let count = counted(corrections.len(), "Event");
        let message = format!("{count} DriftCorrected, the last: {}", text(last, "/message"));
        findings.push(finding(&rule::DRIFT, &object, message));
    }
}

/// Finding for the message of a failed step.
fn failure(object: &str, message: &str, observed: &Observed) -> Finding {
    let found = recognize(OF_EXTENSIONS, message).unwrap_or(&rule::OTHER_FAILURE);
    let has_causes = [rule::RESOLVED_BUNDLE.id, rule::OTHER_FAILURE.id].contains(&found.id);
    let cause = has_causes.then(|| recognize(CAUSES, message)).flatten();
    caused(found, cause, object, with_registries(message, cause, observed))
}

/// Message, with the registries for which the servers have credentials if access was denied.
fn with_registries(message: &str, cause: Option<&DoctorRule>, observed: &Observed) -> String {
    if cause.is_none_or(|cause| cause.id != rule::CREDENTIALS.id) || observed.pull_secrets.is_empty() {
        return message.to_owned();
    }
    let secrets = observed.pull_secrets.iter();
    let known: Vec<&str> =
        secrets.flat_map(|one| one.registries.iter().flatten()).map(String::as_str).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!("{message} (registries of the pull Secrets: {known})")
}

/// Rollout of a revision, and the state of the installed one.
fn of_rollout(
    extension: &Value,
    progress: &Value,
    observed: &Observed,
    now: Timestamp,
    findings: &mut Vec<Finding>,
) {
    let object = title(EXTENSION, extension);
    let message = text(progress, "/message");
    match text(progress, "/reason") {
        reasons::PROGRESS_DEADLINE_EXCEEDED => {
            findings.push(finding(&rule::DEADLINE, object, message));
        }
        reasons::ROLLING_OUT => {
            let active: Vec<&str> = list(extension, "/status/activeRevisions").iter().map(name_of).collect();
            let is_active = |revision: &&Value| active.contains(&name(revision));
            let revisions: Vec<&Value> = observed.list(REVISION).iter().filter(is_active).collect();
            let failing = revisions
                .iter()
                .rev()
                .filter_map(|revision| condition_with(revision, types::AVAILABLE, "False"));
            let mut failing = failing.filter(|found| found["reason"] == reasons::PROBE_FAILURE);
            // Its text names a cause that does not end by itself.
            let is_explained = |found: &Value| text(found, "/message").contains(MARK);
            let failing = failing
                .find(|found| is_explained(found) || is_older(found, "/lastTransitionTime", PATIENCE, now));
            // An upgrade keeps the status of Progressing, and so its time.
            let is_new = |revision: &&Value| !is_older(revision, "/metadata/creationTimestamp", ROLLOUT, now);
            if let Some(failing) = failing {
                let message = format!("{message} {}", text(failing, "/message"));
                findings.push(finding(&rule::ROLLOUT, object, message));
            } else if is_older(progress, "/lastTransitionTime", ROLLOUT, now) && !revisions.iter().any(is_new)
            {
                findings.push(finding(&rule::ROLLOUT, object, message));
            }
        }
        _ => {
            if let Some(failing) = condition_with(extension, types::AVAILABLE, "False") {
                findings.push(finding(&rule::PROBE, object, text(failing, "/message")));
            }
        }
    }
}

fn name_of(reference: &Value) -> &str {
    text(reference, "/name")
}

fn revisions_of<'o>(extension: &str, observed: &'o Observed) -> Vec<&'o Value> {
    observed.list(REVISION).iter().filter(|revision| owner(revision) == extension).collect()
}

/// Revisions that are being deleted after their extension.
fn without_extension(observed: &Observed) -> impl Iterator<Item = &Value> {
    let is_deleted = |revision: &&Value| !text(revision, "/metadata/deletionTimestamp").is_empty();
    let has_extension =
        |revision: &&Value| observed.list(EXTENSION).iter().any(|one| name(one) == owner(revision));
    observed.list(REVISION).iter().filter(is_deleted).filter(move |revision| !has_extension(revision))
}

/// Deletion of `deleted`, an extension with its `revisions` or one revision, that takes long or is blocked.
fn of_deletion(
    object: &str,
    deleted: &Value,
    revisions: &[&Value],
    now: Timestamp,
    findings: &mut Vec<Finding>,
) {
    let messages = std::iter::once(deleted).chain(revisions.iter().copied());
    let messages = messages.filter_map(|object| condition(object, types::PROGRESSING));
    let messages: Vec<&str> = messages.map(|found| text(found, "/message")).collect();
    let found = messages.iter().find_map(|message| Some((recognize(OF_DELETIONS, message)?, *message)));
    match found {
        Some((found, message)) => findings.push(finding(found, object, message)),
        None if is_older(deleted, "/metadata/deletionTimestamp", DELETION, now) => {
            let message = messages.first().copied().unwrap_or("no condition has a reason");
            findings.push(finding(&rule::DELETING, object, message));
        }
        None => {}
    }
}

fn of_catalog(catalog: &Value, observed: &Observed, now: Timestamp, findings: &mut Vec<Finding>) {
    let object = title(CATALOG, catalog);
    if is_older(catalog, "/metadata/deletionTimestamp", DELETION, now) {
        findings.push(finding(
            &rule::DELETING,
            object,
            "the finalizer of catalogd remains: catalogd does not reconcile",
        ));
        return;
    }
    match condition(catalog, types::PROGRESSING) {
        None if is_older(catalog, "/metadata/creationTimestamp", PATIENCE, now) => {
            findings.push(finding(&rule::NOT_RECONCILED, object, "condition Progressing is missing"));
        }
        Some(progress) if FAILING.contains(&text(progress, "/reason")) => {
            let message = text(progress, "/message");
            let found = recognize(OF_CATALOGS, message).unwrap_or(&rule::CATALOG_IMAGE);
            let cause = recognize(CAUSES, message).filter(|_| found.id == rule::CATALOG_IMAGE.id);
            findings.push(caused(found, cause, object, with_registries(message, cause, observed)));
        }
        _ => {}
    }
}
