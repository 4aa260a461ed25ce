//! Outcome of a reconcile, from the choice and the installation. Pure.

use std::time::Duration;

use olm_api::conditions::messages::RESOLVED_BUNDLE;
use olm_api::{ClusterExtensionStatus, ClusterObjectSet};
use olm_controller_core::install_error::InstallError;
use olm_request::ExtensionRules;
use olm_revision::generate::BundleIdentity;

use super::choice::{Choice, ResolutionFailure};
use super::delays::{REQUEUE_DELAY, VERIFY_DELAY};
use super::events::{self, ExtensionEvent};
use super::findings::{self, ConditionChange, ConditionChanges, available_version};
use super::installation::{CreatedRevision, InstallResult, Installation, Restoration};
use super::observed::ObservedExtension;
use super::revisions::Revision;
use super::rollback;
use super::rollout_events;
use super::status::{Applied, AttemptResult, DeprecationData};
use crate::preflight::CrdVerdict;

pub(super) struct ReconcileOutcome {
    pub attempt: AttemptResult,
    /// Events to publish.
    pub events: Vec<ExtensionEvent>,
    /// Event reasons that are resolved.
    pub resolved: Vec<&'static str>,
    /// New revision, if one was created.
    pub made: Option<ClusterObjectSet>,
    /// Requeue delay without a change.
    pub requeue: Option<Duration>,
    /// `true` if writing the Secrets of the newest revision failed midway.
    pub unfinished: bool,
    /// `true` if a plan waits, so that the spec is not applied yet.
    pub is_held: bool,
}

impl ReconcileOutcome {
    /// Outcome of a chosen bundle.
    pub(super) fn chosen(
        choice: Choice,
        installation: Installation,
        observed: &ObservedExtension<'_>,
    ) -> Self {
        let ObservedExtension { rules, states, .. } = observed;
        let (old, unfinished) = (observed.status(), installation.unfinished);
        let held = match &installation.result {
            InstallResult::Held(held) => Some(held.report(observed, &choice)),
            InstallResult::AwaitsGroup(cause) => {
                Some(Ok(findings::held_by_group(&choice.described(), cause)))
            }
            _ => None,
        };
        // Before the first installation, there is no older spec that the status describes.
        let is_held = matches!(held, Some(Ok(_)));
        let Choice { target, catalog, deprecation, mut findings, mut events, together: _, requeue } = choice;
        findings.signature = findings::signature(&target.image, installation.verdict.as_ref());
        findings.add_crd_verdict(&installation.crds, &target, rules, states);
        let all_answered =
            matches!(deprecation, DeprecationData::Catalog(..)) && findings.left_out.is_empty();
        let resolved = resolved(events.is_empty(), installation.crds == CrdVerdict::Safe, all_answered);
        events.extend(events::of_left_out(old, &findings));
        events.extend(installation.events());
        let applied = match (held, &installation.result) {
            (Some(Err(message)), _) => Applied::Held(message),
            (Some(Ok(state)), _) => {
                findings.upgrade = ConditionChange::State(state);
                findings.available_version = available_version(&target, rules, states);
                Applied::Active
            }
            (None, InstallResult::Pulling(message)) => Applied::Pulling(message.clone()),
            (None, InstallResult::Failed(failure)) => {
                let context =
                    format!("{RESOLVED_BUNDLE} {:?} with version {:?}", target.name, target.version);
                Applied::Failed(failure.clone().context(context))
            }
            (None, _) => Applied::Active,
        };
        if let Applied::Failed(failure) = &applied {
            events.extend(events::of_unsupported(old, &failure.message));
        }
        add_rollback(&mut findings, &installation, observed, &target, catalog.is_some());
        let requeue = requeue_delay(&installation, requeue, applied == Applied::Active);
        let made = match installation.result {
            InstallResult::Created(made) => Some(announced(*made, observed, &mut events)),
            _ => None,
        };
        Self {
            attempt: AttemptResult {
                applied,
                deprecation,
                findings,
                upgrade_generation: observed.extension.metadata.generation.filter(|_| is_held),
            },
            events,
            resolved,
            made,
            requeue,
            unfinished,
            is_held,
        }
    }

    /// Outcome of a failure before the choice of a bundle.
    pub(super) fn stopped(failure: InstallError, rules: &ExtensionRules) -> Self {
        let findings =
            ConditionChanges { signature: ConditionChange::Unchanged, ..ConditionChanges::unchanged(rules) };
        let deprecation = DeprecationData::Unchanged;
        let attempt = AttemptResult {
            applied: Applied::Failed(failure),
            deprecation,
            findings,
            upgrade_generation: None,
        };
        let (events, resolved) = (Vec::new(), Vec::new());
        Self { attempt, events, resolved, made: None, requeue: None, unfinished: false, is_held: false }
    }

    /// Outcome without a bundle.
    pub(super) fn unresolved(refusal: ResolutionFailure, old: Option<&ClusterExtensionStatus>) -> Self {
        let ResolutionFailure { failure, awaits_content: _, deprecation, findings, requeue } = refusal;
        let findings = ConditionChanges { signature: ConditionChange::Unchanged, ..findings };
        let reported =
            [events::of_refusal(old, &failure.message, &findings), events::of_left_out(old, &findings)];
        let events = reported.into_iter().flatten().collect();
        let attempt = AttemptResult {
            applied: Applied::Failed(failure),
            deprecation,
            findings,
            upgrade_generation: None,
        };
        let resolved = vec![events::RESOLVED, events::OVERRIDE_USED];
        let requeue = requeue.then_some(REQUEUE_DELAY);
        Self { attempt, events, resolved, made: None, requeue, unfinished: false, is_held: false }
    }

    /// Outcome with the rollback of the newest revision.
    pub(super) fn with_rollback(
        mut self,
        restoration: Restoration,
        observed: &ObservedExtension<'_>,
    ) -> Self {
        match restoration {
            Restoration::Created(made) => self.made = Some(announced(*made, observed, &mut self.events)),
            Restoration::NotRestored { why, requeue, unfinished } => {
                self.attempt.findings.not_restored = Some(why);
                self.requeue = self.requeue.or_else(|| requeue.then_some(REQUEUE_DELAY));
                self.unfinished |= unfinished;
            }
        }
        self
    }
}

/// Reasons of Events that are over.
fn resolved(is_chosen: bool, is_safe: bool, all_answered: bool) -> Vec<&'static str> {
    let mut resolved = vec![events::RESOLUTION_FAILED];
    if is_chosen {
        resolved.extend([events::RESOLVED, events::OVERRIDE_USED]);
    }
    resolved.extend(is_safe.then_some(events::CRD_CHECK_FAILED));
    resolved.extend(all_answered.then_some(events::CATALOG_UNAVAILABLE));
    resolved
}

/// Adds the Events of a new revision.
fn announced(
    CreatedRevision { set: revision, before, .. }: CreatedRevision,
    observed: &ObservedExtension<'_>,
    events: &mut Vec<ExtensionEvent>,
) -> ClusterObjectSet {
    let (made, installed) = (Revision::of(&revision), observed.states.installed.as_ref());
    events.extend(rollout_events::started(&made, installed, before.as_ref(), observed.edited));
    revision
}

/// Adds what a rollback means for the target, which may be chosen from a catalog.
fn add_rollback(
    findings: &mut ConditionChanges,
    installation: &Installation,
    observed: &ObservedExtension<'_>,
    target: &BundleIdentity,
    is_from_catalog: bool,
) {
    let ObservedExtension { rules, states, .. } = observed;
    if installation.result == InstallResult::RolledBack {
        findings.upgrade = ConditionChange::State(rollback::rolled_back(target));
        findings.available_version = available_version(target, rules, states);
    }
    findings.not_restored.clone_from(&installation.not_restored);
    let made = installation.created().map(|made| Revision::of(&made.set));
    // A bundle that was chosen from a catalog, and is active, is what the spec asks for.
    let is_desired = is_from_catalog && observed.is_newest(target);
    let newest = made.as_ref().or_else(|| states.newest_active().filter(|_| !is_desired));
    findings.restored = newest.and_then(|newest| rollback::restored(newest, rules));
}

/// Delay after which the result may differ without an event. `requeue` is `true` if the choice must be repeated soon.
fn requeue_delay(installation: &Installation, requeue: bool, is_applied: bool) -> Option<Duration> {
    // No watch event reports that an image was signed or that its signature store answers.
    let is_unaccepted = installation.verdict.as_ref().is_some_and(|verdict| verdict.accepted().is_err());
    let delay = if installation.requeue || requeue && is_applied {
        Some(REQUEUE_DELAY)
    } else {
        (is_unaccepted && is_applied).then_some(VERIFY_DELAY)
    };
    let opening = match &installation.result {
        InstallResult::Held(held) => held.wait,
        _ => None,
    };
    delay.into_iter().chain(opening).min()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use olm_request::CrdCheck;
    use olm_resolve::{CatalogError, Deprecations, LeftOut};

    use super::super::decide::tests::{extension, observed};
    use super::super::revisions::tests::set;
    use super::*;

    fn choice(events: Vec<ExtensionEvent>, deprecation: DeprecationData, left_out: Vec<LeftOut>) -> Choice {
        let (name, version) = ("demo.v2.0.0".to_owned(), "2.0.0".to_owned());
        let (package, image) = ("demo".to_owned(), "r.example/demo:v2".to_owned());
        Choice {
            target: BundleIdentity { name, version, package, image, ..BundleIdentity::default() },
            catalog: None,
            deprecation,
            findings: ConditionChanges { left_out, ..ConditionChanges::default() },
            events,
            together: Default::default(),
            requeue: true,
        }
    }

    fn plain() -> Choice {
        choice(Vec::new(), DeprecationData::None, Vec::new())
    }

    fn chosen(choice: Choice, installation: Installation, crd_check: Option<CrdCheck>) -> ReconcileOutcome {
        let rules = ExtensionRules { crd_check, ..ExtensionRules::default() };
        ReconcileOutcome::chosen(
            choice,
            installation,
            &observed(&extension(), rules, &[set(1, "Active", true)]),
        )
    }

    fn installation(applied: Result<(), InstallError>, crds: CrdVerdict) -> Installation {
        Installation::new(applied.map_or_else(InstallResult::Failed, |()| InstallResult::Unchanged), crds)
    }

    const NAMED: &str = "error for resolved bundle \"demo.v2.0.0\" with version \"2.0.0\": no";

    // docs/design/additions.md#events: a recurrence is published again
    #[test]
    fn outcome_resets_resolved_event_reasons() {
        use events::{CATALOG_UNAVAILABLE, CRD_CHECK_FAILED, OVERRIDE_USED, RESOLUTION_FAILED, RESOLVED};
        let answered = || DeprecationData::Catalog(Deprecations::default(), Vec::new());
        let resolved = || vec![ExtensionEvent::normal(RESOLVED, "chose".to_owned())];
        let fault = CatalogError::NotServing("x".to_owned());
        let left_out = vec![LeftOut { catalog: "x".to_owned(), fault }];
        let rows = [
            (
                choice(resolved(), answered(), vec![]),
                vec![RESOLUTION_FAILED, CRD_CHECK_FAILED, CATALOG_UNAVAILABLE],
            ),
            (choice(resolved(), answered(), left_out), vec![RESOLUTION_FAILED, CRD_CHECK_FAILED]),
            (
                choice(vec![], answered(), vec![]),
                vec![RESOLUTION_FAILED, RESOLVED, OVERRIDE_USED, CRD_CHECK_FAILED, CATALOG_UNAVAILABLE],
            ),
            // During a rollout no catalog is asked.
            (
                choice(vec![], DeprecationData::Unchanged, vec![]),
                vec![RESOLUTION_FAILED, RESOLVED, OVERRIDE_USED, CRD_CHECK_FAILED],
            ),
        ];
        for (choice, resolved) in rows {
            assert_eq!(chosen(choice, installation(Ok(()), CrdVerdict::Safe), None).resolved, resolved);
        }
        let refusal = *ResolutionFailure::other(InstallError::retry("no"), &ExtensionRules::default());
        assert_eq!(ReconcileOutcome::unresolved(refusal, None).resolved, [RESOLVED, OVERRIDE_USED]);
    }

    #[test]
    fn failed_install_names_bundle_and_retries_with_backoff() {
        let failed = installation(Err(InstallError::retry("no")), CrdVerdict::Safe);
        let outcome = chosen(plain(), failed.clone(), None);
        assert_eq!(outcome.attempt.applied, Applied::Failed(InstallError::retry(NAMED)));
        assert_eq!(outcome.requeue, None);
        assert!(chosen(plain(), Installation { requeue: true, ..failed }, None).requeue.is_some());
        assert!(chosen(plain(), installation(Ok(()), CrdVerdict::Safe), None).requeue.is_some());
    }

    // docs/design/additions.md#annotations, docs/design/additions.md#crd-checks; case additions-a01
    #[test]
    fn crd_findings_that_hold_an_upgrade_are_reported() {
        let held = || installation(Err(InstallError::retry("no")), CrdVerdict::Held("no".to_owned()));
        let notice = [ExtensionEvent::warning(events::CRD_CHECK_FAILED, "no".to_owned())];
        for annotated in [None, Some(CrdCheck::Strict), Some(CrdCheck::Live), Some(CrdCheck::Warn)] {
            let outcome = chosen(plain(), held(), annotated);
            assert_eq!(outcome.attempt.applied, Applied::Failed(InstallError::retry(NAMED)));
            assert_eq!(outcome.events, notice);
            assert!(!outcome.resolved.contains(&events::CRD_CHECK_FAILED));
            let upgrade = outcome.attempt.findings.upgrade;
            if annotated.is_none() {
                assert_eq!(upgrade, ConditionChange::Inactive);
                continue;
            }
            let ConditionChange::State(state) = upgrade else { panic!("{upgrade:?}") };
            assert_eq!((state.status, state.reason), (Some(true), "CRDCheckFailed"));
            let message = "bundle demo.v2.0.0 version 2.0.0 is available and held back: no; to release it, change \
                           annotation ext.olm.operatorframework.io/crd-check (which does not help with a change of a \
                           stored version or of the scope) or set spec.install.preflight.crdUpgradeSafety.enforcement \
                           to None";
            assert_eq!(state.message, message);
        }
        // No upgrade is held if nothing, or the same version, is installed.
        let rules = ExtensionRules { crd_check: Some(CrdCheck::Live), ..ExtensionRules::default() };
        for sets in [vec![], vec![set(2, "Active", true)]] {
            let outcome =
                ReconcileOutcome::chosen(plain(), held(), &observed(&extension(), rules.clone(), &sets));
            assert_eq!(outcome.attempt.findings.upgrade, ConditionChange::Inactive);
        }
    }

    // docs/design/additions.md#crd-checks; case additions-a46
    #[test]
    fn accepted_crd_findings_are_reported() {
        let accepted = || installation(Ok(()), CrdVerdict::Accepted("no".to_owned()));
        let rows = [(CrdCheck::Live, ""), (CrdCheck::Warn, "; accepted: no")];
        for (annotated, suffix) in rows {
            let outcome = chosen(plain(), accepted(), Some(annotated));
            let notice = ExtensionEvent::warning(events::CRD_CHECK_FAILED, "accepted: no".to_owned());
            assert_eq!(outcome.events, [notice], "{annotated:?}");
            assert_eq!(outcome.attempt.findings.suffix(), suffix, "{annotated:?}");
            assert_eq!(outcome.attempt.applied, Applied::Active);
        }
        let set = set(2, "Active", false);
        let made = CreatedRevision {
            warnings: vec!["a".to_owned(), "b".to_owned()],
            ..CreatedRevision::new(Arc::unwrap_or_clone(set), None)
        };
        let made = Installation::new(InstallResult::Created(Box::new(made)), CrdVerdict::Safe);
        let notice = ExtensionEvent::warning(events::APPLIED_WITH_WARNINGS, "a; b".to_owned());
        assert_eq!(chosen(plain(), made, None).events[..1], [notice]);
    }
}
