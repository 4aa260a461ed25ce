//! Conditions of annotations and gates: `UpgradeAvailable`, `DependenciesSatisfied`, `Paused` and
//! `SignatureVerified`, and the suffix of the `Progressing` message (docs/design/additions.md#annotations,
//! docs/design/additions.md#held-upgrades, docs/design/additions.md#update-notifications,
//! docs/design/additions.md#dependency-modes,
//! docs/design/additions.md#best-effort-resolution, docs/design/additions.md#pause). Pure.

use olm_api::annotations;
use olm_api::conditions::reasons;
use olm_controller_core::install_error::InstallError;
use olm_request::{CrdCheck, ExtensionRules};
use olm_resolve::{
    AssessedRequirement, ConditionState, DependencyMode, HeldReason, LeftOut, RequirementVerdict,
    ResolveError, Satisfier, Waiting, left_out_text,
};
use olm_revision::generate::BundleIdentity;

use super::revisions::{RevisionStates, is_other};
use crate::bundles::SignatureVerdict;
use crate::preflight::CrdVerdict;

/// Change of a condition that exists only while an annotation or a gate asks for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum ConditionChange {
    /// Not asked for: the condition is removed.
    #[default]
    Inactive,
    /// Not evaluated: the condition remains unchanged.
    Unchanged,
    /// New state of the condition.
    State(ConditionState),
}

/// Findings of annotations and gates about an extension. The default is that of a cluster without them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ConditionChanges {
    /// Condition `UpgradeAvailable`.
    pub upgrade: ConditionChange,
    /// `status.availableVersion`. Only with gate `UpdateNotifications`, and valid if `upgrade` is evaluated.
    pub available_version: Option<String>,
    /// Condition `DependenciesSatisfied`.
    pub dependencies: ConditionChange,
    /// Condition `Paused`.
    pub paused: ConditionChange,
    /// Condition `SignatureVerified`.
    pub signature: ConditionChange,
    /// Skipped catalogs.
    pub left_out: Vec<LeftOut>,
    /// CRD findings that the extension accepts.
    pub accepted: Option<String>,
    /// Message of `Progressing` after a rollback, in place of that of the revision.
    pub restored: Option<String>,
    /// Reason why a failed revision is not rolled back.
    pub not_restored: Option<String>,
}

/// Hints for unsatisfied requirements.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hints {
    /// Bundles in catalogs that would satisfy a requirement.
    pub satisfiers: Vec<Satisfier>,
    /// Names of extensions that request a required package and are not installed (case additions-e19).
    pub not_installed: Vec<String>,
}

impl ConditionChanges {
    /// Findings that keep the conditions of all active rules.
    pub(super) fn unchanged(rules: &ExtensionRules) -> Self {
        let finding =
            |in_force| if in_force { ConditionChange::Unchanged } else { ConditionChange::Inactive };
        Self {
            upgrade: finding(rules.reports_upgrades()),
            dependencies: finding(rules.judges_dependencies()),
            paused: finding(rules.paused),
            ..Self::default()
        }
    }

    /// Adds the verdict of the CRD check about the target bundle.
    pub(super) fn add_crd_verdict(
        &mut self,
        crds: &CrdVerdict,
        next: &BundleIdentity,
        rules: &ExtensionRules,
        states: &RevisionStates,
    ) {
        match crds {
            CrdVerdict::Safe => {}
            CrdVerdict::Accepted(text) => {
                self.accepted = Some(text.clone()).filter(|_| rules.crd_check == Some(CrdCheck::Warn));
            }
            CrdVerdict::Held(why) => {
                let installed = states.installed.as_ref();
                let is_upgrade = installed.is_some_and(|installed| is_other(&installed.bundle, next));
                if is_upgrade && rules.reports_upgrades() {
                    self.available_version = available_version(next, rules, states);
                    self.upgrade = ConditionChange::State(held_by_crd_check(next, why));
                }
            }
        }
    }

    /// Suffix of the `Progressing` message.
    pub(super) fn suffix(&self) -> String {
        let accepted = self.accepted.iter().map(|text| format!("; accepted: {text}"));
        let not_restored = self.not_restored.iter().map(|why| format!("; {why}"));
        left_out_text(&self.left_out) + &accepted.chain(not_restored).collect::<String>()
    }
}

/// Version of a target that waits, for `status.availableVersion`. `None` if it is the installed one.
pub(super) fn available_version(
    target: &BundleIdentity,
    rules: &ExtensionRules,
    states: &RevisionStates,
) -> Option<String> {
    let installed = states.installed.as_ref();
    let is_upgrade = installed.is_some_and(|installed| is_other(&installed.bundle, target));
    (is_upgrade && rules.settings.update_notifications).then(|| target.version.clone())
}

/// State of `UpgradeAvailable`. `waiting` is the newer version that the extension does not move to.
pub(super) fn upgrade(waiting: Option<&Waiting>) -> ConditionState {
    let Some(Waiting { bundle, version, catalog, pre_release, deprecated, range, rule, last }) = waiting
    else {
        let message = "no newer version is held back".to_owned();
        return ConditionState { status: Some(false), reason: reasons::UP_TO_DATE, message };
    };
    let outside = range.as_ref().map(|range| {
        let release = format!("change spec.source.catalog.version so that it admits {version}");
        (reasons::OUTSIDE_VERSION_RANGE, format!("outside of version range {range:?}"), release)
    });
    let held = rule.as_ref().map(|rule| {
        let (reason, release) = release(rule);
        (reason, rule.to_string(), release)
    });
    // The reason of a rule takes precedence: without the range it would remain.
    let reason = held.as_ref().or(outside.as_ref()).map_or(reasons::UP_TO_DATE, |(reason, ..)| *reason);
    let causes = || outside.iter().chain(&held);
    let why = joined(&causes().map(|(_, why, _)| why).collect::<Vec<_>>(), ", and ");
    let release = joined(&causes().map(|(.., release)| release).collect::<Vec<_>>(), ", and ");
    let mark = if *pre_release { " (pre-release)" } else { "" };
    let deprecated = if *deprecated { " (deprecated)" } else { "" };
    let last = last.as_ref().map_or_else(String::new, |last| format!("; further upgrades lead to {last}"));
    let message = format!(
        "bundle {bundle} version {version}{mark}{deprecated} from catalog {catalog} is available and held back: {why}; \
         to release it, {release}{last}"
    );
    ConditionState { status: Some(true), reason, message }
}

/// State of `UpgradeAvailable` if the newer version cannot be determined.
pub(super) fn unknown_upgrade(error: &ResolveError) -> ConditionState {
    ConditionState { status: None, reason: reasons::FAILED, message: error.to_string() }
}

/// State of `UpgradeAvailable` if no catalog has the package.
pub(super) fn package_missing(package: &str) -> ConditionState {
    let message = format!("no catalog has package {package:?}");
    ConditionState { status: None, reason: reasons::PACKAGE_NOT_FOUND, message }
}

/// Condition reason of a rule, and the change that releases a bundle held by it.
fn release(rule: &HeldReason) -> (&'static str, String) {
    match rule {
        HeldReason::OutsideScope { .. } => {
            (reasons::OUTSIDE_SCOPE, format!("widen or remove annotation {}", annotations::EXT_UPGRADE_SCOPE))
        }
        HeldReason::Skipped { .. } => {
            (reasons::SKIPPED, format!("remove annotation {}", annotations::EXT_EXCLUDE_SKIPPED))
        }
        HeldReason::Dependencies(_) => (
            reasons::DEPENDENCY_CONFLICT,
            format!(
                "install the required packages, or list the property type in annotation {}",
                annotations::EXT_IGNORE_DEPENDENCIES
            ),
        ),
        HeldReason::Refused { .. } => (
            reasons::DEPENDENCY_CONFLICT,
            format!("set annotation {} to Report or Check", annotations::EXT_DEPENDENCY_MODE),
        ),
        HeldReason::Dependent(_) => (
            reasons::DEPENDENCY_CONFLICT,
            format!("set annotation {} to \"true\"", annotations::EXT_IGNORE_DEPENDENTS),
        ),
        HeldReason::Cluster(_) => (
            reasons::CLUSTER_CONSTRAINT,
            "change the cluster, or disable feature gate ClusterConstraints".to_owned(),
        ),
    }
}

/// State of `UpgradeAvailable` for a version that the CRD check holds back. `why` is the text of the check.
pub(super) fn held_by_crd_check(bundle: &BundleIdentity, why: &str) -> ConditionState {
    let BundleIdentity { name, version, .. } = bundle;
    let message = format!(
        "bundle {name} version {version} is available and held back: {why}; to release it, change annotation {} (which \
         does not help with a change of a stored version or of the scope) or set \
         spec.install.preflight.crdUpgradeSafety.enforcement to None",
        annotations::EXT_CRD_CHECK
    );
    ConditionState { status: Some(true), reason: reasons::CRD_CHECK_FAILED, message }
}

/// State of `UpgradeAvailable` for a bundle, as described, that waits for another member of the upgrade group.
pub(super) fn held_by_group(bundle: &str, cause: &str) -> ConditionState {
    let message = format!("{bundle} is available and waits for its upgrade group: {cause}");
    ConditionState { status: Some(true), reason: reasons::UPGRADE_GROUP, message }
}

/// State of `Paused`. `waits` names the pending change.
pub(super) fn paused(waits: Option<String>) -> ConditionState {
    let waits = waits.map_or_else(String::new, |waits| format!("; {waits} waits"));
    let message = format!("annotation {}: nothing is applied or upgraded{waits}", annotations::EXT_PAUSED);
    ConditionState { status: Some(true), reason: reasons::PAUSED, message }
}

/// State of `SignatureVerified` for `image`. The condition does not exist if the policy demands nothing.
pub(super) fn signature(image: &str, verdict: Option<&SignatureVerdict>) -> ConditionChange {
    let unsigned =
        |failure: &InstallError| format!("image {image}: {failure}; no revision is created from it");
    let (status, reason, message) = match verdict {
        None => return ConditionChange::Unchanged,
        Some(SignatureVerdict::NotRequired) => return ConditionChange::Inactive,
        Some(SignatureVerdict::Verified) => (
            Some(true),
            reasons::VERIFIED,
            format!("image {image} is signed as the signature policy requires"),
        ),
        Some(SignatureVerdict::Rejected(failure)) => (Some(false), reasons::REJECTED, unsigned(failure)),
        Some(SignatureVerdict::Unknown(failure)) => (None, reasons::VERIFICATION_FAILED, unsigned(failure)),
    };
    ConditionChange::State(ConditionState { status, reason, message })
}

/// State of `DependenciesSatisfied` for `bundle`.
pub(super) fn dependencies(
    bundle: &str,
    requirements: &[AssessedRequirement],
    mode: DependencyMode,
    hints: &Hints,
) -> ConditionState {
    if requirements.is_empty() {
        let message = format!("bundle {bundle} requires nothing");
        return ConditionState { status: Some(true), reason: reasons::NO_DEPENDENCIES, message };
    }
    let is_invalid = |one: &AssessedRequirement| matches!(one.verdict, RequirementVerdict::Invalid(_));
    let mut unmet = requirements.iter().filter(|one| !one.is_met()).peekable();
    let (status, reason) = if unmet.peek().is_none() {
        (Some(true), reasons::ALL_SATISFIED)
    } else if mode == DependencyMode::Report && unmet.all(is_invalid) {
        // An unreadable requirement may be satisfied or not (case additions-e16).
        (None, reasons::UNSATISFIED)
    } else {
        (Some(false), reasons::UNSATISFIED)
    };
    let candidates = list_suffix("candidates in catalogs", &hints.satisfiers);
    let message = format!(
        "bundle {bundle} requires {}{candidates}{}",
        joined(requirements, "; "),
        not_installed(hints)
    );
    ConditionState { status, reason, message }
}

/// Message suffix with the extensions of required packages that are not installed.
pub(super) fn not_installed(hints: &Hints) -> String {
    list_suffix("found but not installed", &hints.not_installed)
}

/// Message suffix with a list, unless it is empty.
fn list_suffix(label: &str, items: &[impl ToString]) -> String {
    if items.is_empty() { String::new() } else { format!("; {label}: {}", joined(items, ", ")) }
}

fn joined(items: &[impl ToString], separator: &str) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;
    use olm_controller_core::install_error::InstallErrorClass;

    #[test]
    fn signature_condition_exists_only_if_policy_demands_signatures() {
        let condition = |verdict: Option<SignatureVerdict>| match signature("r.io/a:v1", verdict.as_ref()) {
            ConditionChange::State(ConditionState { status, reason, message }) => {
                Some((status, reason, message))
            }
            other => {
                assert_eq!(other == ConditionChange::Unchanged, verdict.is_none());
                None
            }
        };
        let text = |text: &str| text.to_owned();
        let demanded = text("image r.io/a:v1 is signed as the signature policy requires");
        let refused = text("image r.io/a:v1: no; no revision is created from it");
        for (verdict, expected) in [
            (None, None),
            (Some(SignatureVerdict::NotRequired), None),
            (Some(SignatureVerdict::Verified), Some((Some(true), "Verified", demanded))),
            (
                Some(SignatureVerdict::failed(InstallError::new(InstallErrorClass::Rejected, "no"))),
                Some((Some(false), "Rejected", refused.clone())),
            ),
            (
                Some(SignatureVerdict::failed(InstallError::retry("no"))),
                Some((None, "VerificationFailed", refused)),
            ),
        ] {
            assert_eq!(condition(verdict), expected);
        }
    }
}
