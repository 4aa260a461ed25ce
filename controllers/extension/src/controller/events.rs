//! Events as values (docs/design/additions.md#events). Pure. The caller publishes them.

use olm_api::ClusterExtensionStatus;
use olm_api::conditions::{self, Status, types};
use olm_resolve::{Explanation, Fate, LeftOut};

use super::findings::ConditionChanges;

pub(super) const RESOLVED: &str = "Resolved";
pub(super) const RESOLUTION_FAILED: &str = "ResolutionFailed";
/// The installed bundle, its package or one of its channels is deprecated.
pub(super) const DEPRECATED: &str = "Deprecated";
/// A requirement of the bundle is unsatisfied.
pub(super) const DEPENDENCY_UNSATISFIED: &str = "DependencyUnsatisfied";
/// The bundle needs a feature gate or setting, which the note names.
pub(super) const UNSUPPORTED_BUNDLE: &str = "UnsupportedBundle";
/// A catalog does not answer and is skipped.
pub(super) const CATALOG_UNAVAILABLE: &str = "CatalogUnavailable";
/// An annotation has an invalid value.
pub(super) const INVALID_ANNOTATION: &str = "InvalidAnnotation";
/// An annotation overrode a rule.
pub(super) const OVERRIDE_USED: &str = "OverrideUsed";

/// CRDs of the bundle may endanger existing objects.
pub(super) const CRD_CHECK_FAILED: &str = "CRDCheckFailed";
/// A revision was created with warnings.
pub(super) const APPLIED_WITH_WARNINGS: &str = "AppliedWithWarnings";

/// A revision was created that adopts existing objects.
pub(super) const ADOPTING: &str = "Adopting";

/// Maximum number of passed-over bundles in a note.
const NAMED: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtensionEvent {
    /// `true` for Events of type `Warning`.
    pub warning: bool,
    pub reason: &'static str,
    pub note: String,
}

impl ExtensionEvent {
    /// Event of type `Normal`.
    pub(super) fn normal(reason: &'static str, note: String) -> Self {
        Self { warning: false, reason, note }
    }

    /// Event of type `Warning`.
    pub(super) fn warning(reason: &'static str, note: String) -> Self {
        Self { warning: true, reason, note }
    }
}

/// Events of the transition from one status to the next.
pub(super) fn of_change(
    old: Option<&ClusterExtensionStatus>,
    next: &ClusterExtensionStatus,
) -> Vec<ExtensionEvent> {
    let deprecated = news(old, next, types::DEPRECATED, |status| status == Status::True.as_str());
    let unsatisfied =
        news(old, next, types::DEPENDENCIES_SATISFIED, |status| status != Status::True.as_str());
    [(DEPRECATED, deprecated), (DEPENDENCY_UNSATISFIED, unsatisfied)]
        .into_iter()
        .filter_map(|(reason, message)| Some(ExtensionEvent::warning(reason, message?)))
        .collect()
}

/// Message of the next condition of a type if `is_worth` accepts its status and the old condition differs.
fn news(
    old: Option<&ClusterExtensionStatus>,
    next: &ClusterExtensionStatus,
    type_: &str,
    is_worth: fn(&str) -> bool,
) -> Option<String> {
    let condition = conditions::find(&next.conditions, type_).filter(|next| is_worth(&next.status))?;
    let before = old.and_then(|old| conditions::find(&old.conditions, type_));
    let is_told = before.is_some_and(|old| is_worth(&old.status) && old.message == condition.message);
    (!is_told).then(|| condition.message.clone())
}

/// Reasons of [`of_change`] that the status refutes. `Unknown` refutes nothing.
pub(super) fn resolved(status: &ClusterExtensionStatus) -> Vec<&'static str> {
    let is = |type_, value: Status| {
        conditions::find(&status.conditions, type_).map(|condition| condition.status == value.as_str())
    };
    let deprecated = (is(types::DEPRECATED, Status::False) == Some(true)).then_some(DEPRECATED);
    // Without a rule the condition is absent, and the next rule publishes everything again.
    let satisfied = is(types::DEPENDENCIES_SATISFIED, Status::True) != Some(false);
    deprecated.into_iter().chain(satisfied.then_some(DEPENDENCY_UNSATISFIED)).collect()
}

/// Event of a refusal, unless the old status has the same message.
pub(super) fn of_refusal(
    old: Option<&ClusterExtensionStatus>,
    message: &str,
    findings: &ConditionChanges,
) -> Option<ExtensionEvent> {
    let note = format!("{message}{}", findings.suffix());
    (progress(old) != Some(&note)).then(|| ExtensionEvent::warning(RESOLUTION_FAILED, note))
}

/// Event of a bundle that cannot be installed without a feature gate, unless the old status has the same message.
pub(super) fn of_unsupported(old: Option<&ClusterExtensionStatus>, message: &str) -> Option<ExtensionEvent> {
    let remedy = olm_bundle::unsupported_remedy(message)?;
    let is_told = progress(old).is_some_and(|before| before.starts_with(message));
    (!is_told).then(|| ExtensionEvent::warning(UNSUPPORTED_BUNDLE, format!("{message}; {remedy}")))
}

/// Event of the skipped catalogs, unless the old status names them.
pub(super) fn of_left_out(
    old: Option<&ClusterExtensionStatus>,
    findings: &ConditionChanges,
) -> Option<ExtensionEvent> {
    let left_out = &findings.left_out;
    let is_told = progress(old).is_some_and(|before| before.ends_with(&findings.suffix()));
    let note = |left_out: &LeftOut| format!("catalog {} is skipped: {}", left_out.catalog, left_out.fault);
    (!left_out.is_empty() && !is_told).then(|| {
        let notes: Vec<String> = left_out.iter().map(note).collect();
        ExtensionEvent::warning(CATALOG_UNAVAILABLE, notes.join("; "))
    })
}

fn progress(status: Option<&ClusterExtensionStatus>) -> Option<&str> {
    conditions::find(&status?.conditions, types::PROGRESSING).map(|condition| condition.message.as_str())
}

/// Note about the chosen bundle, its upgrade edges and the passed-over bundles.
pub(super) fn resolution(explanation: &Explanation) -> String {
    let Some(chosen) = &explanation.chosen else {
        return explanation.error.clone().unwrap_or_default();
    };
    let mut note =
        format!("chose bundle {} version {} from catalog {}", chosen.bundle, chosen.version, chosen.catalog);
    if let Some(installed) = &explanation.installed {
        let edges = chosen.edges.iter();
        let edges: Vec<String> =
            edges.map(|edge| format!("{} in channel {}", edge.rule.as_str(), edge.channel)).collect();
        let by =
            if edges.is_empty() { "without an edge".to_owned() } else { format!("by {}", edges.join(", ")) };
        note += &format!(", which follows {installed} {by}");
    }
    if let Some(channel) = &chosen.missed_default_channel {
        note += &format!(", outside of the default channel {channel}");
    }
    let passed = passed_over(explanation);
    let named: Vec<&str> = passed.iter().take(NAMED).map(String::as_str).collect();
    if !named.is_empty() {
        note += &format!("; passed over: {}", named.join("; "));
    }
    if passed.len() > NAMED {
        note += &format!("; and {} more", passed.len() - NAMED);
    }
    note
}

/// Passed-over bundles: those of a higher version in the same catalog, and the best of the other catalogs.
fn passed_over(explanation: &Explanation) -> Vec<String> {
    let mut passed = Vec::new();
    for catalog in &explanation.catalogs {
        let chosen = catalog.bundles.iter().position(|bundle| bundle.fate == Fate::Chosen);
        let is_rival = |fate: &Fate| matches!(fate, Fate::Deprecated | Fate::Priority | Fate::Tie);
        let rivals = catalog.bundles.iter().filter(|bundle| is_rival(&bundle.fate));
        let better = catalog.bundles.iter().take(chosen.unwrap_or_default());
        let reported = if chosen.is_some() { better.collect::<Vec<_>>() } else { rivals.collect() };
        passed.extend(reported.into_iter().map(|bundle| format!("{} ({})", bundle.bundle, bundle.why)));
    }
    passed
}

/// Merges the notices of each reason, because an Event shows only the last note of a reason.
pub(super) fn merged(all: Vec<ExtensionEvent>) -> Vec<ExtensionEvent> {
    let mut merged: Vec<ExtensionEvent> = Vec::new();
    for notice in all {
        match merged.iter_mut().find(|other| other.reason == notice.reason) {
            Some(other) => {
                other.note = format!("{}; {}", other.note, notice.note);
                other.warning |= notice.warning;
            }
            None => merged.push(notice),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use olm_resolve::CatalogError;

    use super::*;

    fn status(type_: &str, status: Status, message: &str) -> ClusterExtensionStatus {
        let mut all = ClusterExtensionStatus::default();
        conditions::set(&mut all.conditions, type_, status, "R", message, None, Timestamp::UNIX_EPOCH);
        all
    }

    // docs/design/additions.md#events: only on transitions
    #[test]
    fn unsupported_bundle_is_announced_once_with_its_remedy() {
        let message = "error for resolved bundle: unsupported bundle: bundle does not support AllNamespaces install mode";
        let event = of_unsupported(None, message).unwrap();
        assert!(event.warning && event.reason == UNSUPPORTED_BUNDLE);
        assert!(event.note.starts_with(message) && event.note.contains("SingleOwnNamespaceInstallSupport"));
        assert_eq!(of_unsupported(None, "no bundles found"), None);
        assert_eq!(of_unsupported(Some(&status(types::PROGRESSING, Status::True, message)), message), None);
    }

    #[test]
    fn condition_transition_is_published_once() {
        let rows = [
            (types::DEPRECATED, Status::True, Some(DEPRECATED)),
            (types::DEPRECATED, Status::False, None),
            (types::DEPRECATED, Status::Unknown, None),
            (types::PACKAGE_DEPRECATED, Status::True, None),
            (types::DEPENDENCIES_SATISFIED, Status::False, Some(DEPENDENCY_UNSATISFIED)),
            (types::DEPENDENCIES_SATISFIED, Status::Unknown, Some(DEPENDENCY_UNSATISFIED)),
            (types::DEPENDENCIES_SATISFIED, Status::True, None),
        ];
        for (type_, value, reason) in rows {
            let next = status(type_, value, "m");
            let told: Vec<ExtensionEvent> =
                reason.map(|reason| ExtensionEvent::warning(reason, "m".into())).into_iter().collect();
            assert_eq!(of_change(None, &next), told, "{type_} {value:?}");
            assert_eq!(of_change(Some(&next), &next), [], "{type_} {value:?}");
            let before = status(type_, value, "another");
            assert_eq!(of_change(Some(&before), &next), told, "{type_} {value:?}");
        }
    }

    // docs/design/additions.md#events: a recurrence is published again
    #[test]
    fn event_reason_is_reset_once_its_condition_is_resolved() {
        let unsatisfied = DEPENDENCY_UNSATISFIED;
        let rows = [
            (types::DEPRECATED, Status::True, vec![unsatisfied]),
            (types::DEPRECATED, Status::False, vec![DEPRECATED, unsatisfied]),
            (types::DEPRECATED, Status::Unknown, vec![unsatisfied]),
            (types::DEPENDENCIES_SATISFIED, Status::True, vec![unsatisfied]),
            (types::DEPENDENCIES_SATISFIED, Status::False, vec![]),
            (types::DEPENDENCIES_SATISFIED, Status::Unknown, vec![]),
        ];
        for (type_, value, expected) in rows {
            assert_eq!(resolved(&status(type_, value, "m")), expected, "{type_} {value:?}");
        }
    }

    #[test]
    fn resolution_failed_event_is_skipped_if_status_has_its_message() {
        let fault = CatalogError::NotServing("x".to_owned());
        let left_out = vec![LeftOut { catalog: "x".to_owned(), fault }];
        let findings = ConditionChanges { left_out, ..ConditionChanges::default() };
        let note = "no; skipped unavailable catalogs: [x]";
        let before = status(types::PROGRESSING, Status::True, note);
        assert_eq!(of_refusal(Some(&before), "no", &findings), None);
        assert_eq!(of_left_out(Some(&before), &findings), None);
        let told = Some(ExtensionEvent::warning(RESOLUTION_FAILED, note.to_owned()));
        let other = status(types::PROGRESSING, Status::True, "no");
        assert_eq!(of_refusal(Some(&other), "no", &findings), told);
        assert_eq!(of_refusal(None, "no", &findings), told);
        assert_eq!(of_refusal(Some(&other), "no", &ConditionChanges::default()), None);
        let unavailable = "catalog x is skipped: catalog \"x\" is not being served".to_owned();
        let unavailable = Some(ExtensionEvent::warning(CATALOG_UNAVAILABLE, unavailable));
        assert_eq!(of_left_out(Some(&other), &findings), unavailable);
        assert_eq!(of_left_out(None, &ConditionChanges::default()), None);
    }

    #[test]
    fn events_with_same_reason_are_merged() {
        let all = vec![
            ExtensionEvent::normal(RESOLVED, "a".to_owned()),
            ExtensionEvent::warning(OVERRIDE_USED, "b".to_owned()),
            ExtensionEvent::warning(RESOLVED, "c".to_owned()),
        ];
        let merged = merged(all);
        assert_eq!(
            merged,
            [
                ExtensionEvent::warning(RESOLVED, "a; c".to_owned()),
                ExtensionEvent::warning(OVERRIDE_USED, "b".to_owned())
            ]
        );
    }
}
