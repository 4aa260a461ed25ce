//! Plans that wait for an approval, for an upgrade window, or for the operator (docs/design/approvals.md#approval,
//! docs/design/approvals.md#upgrade-windows, docs/design/approvals.md#operator-conditions). Pure: the time is a
//! parameter.

use std::time::Duration;

use jiff::Timestamp;
use olm_api::conditions::reasons;
use olm_api::extension_plan::PlannedRevision as Content;
use olm_api::{ClusterObjectSet, annotations};
use olm_plan::Target;
use olm_request::{ApprovalRules, DraftChange, HeldChange, HeldMessage, HoldCause, replaced_operator};
use olm_resolve::ConditionState;
use olm_revision::content::{ContentPhase, objects};
use olm_revision::generate::BundleIdentity;
use serde_json::Value;

use super::choice::Choice;
use super::observed::ObservedExtension;
use super::plans::{self, PlanId, PlanSource};

/// Limit of the requeue delay. Timers do not follow steps of the wall clock, nor run while a machine is suspended.
const LONGEST_WAIT: Duration = Duration::from_secs(5 * 60);

/// Plan of a new revision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProposedPlan {
    pub change: DraftChange,
    /// Summary of the changes.
    pub summary: String,
    /// Namespace and name of the OperatorCondition of the operator that the revision replaces.
    pub operator_condition: Option<(String, String)>,
    /// Number of the revision.
    pub revision: i64,
    /// Content of its ExtensionPlan, if that has to be created.
    pub content: Option<Box<Content>>,
}

/// Plan that waits.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HeldPlan {
    pub plan: ProposedPlan,
    pub cause: HoldCause,
    /// Delay until the next opening of a window or the next attempt. An approval triggers a reconcile by itself.
    pub wait: Option<Duration>,
}

/// Revision that is to be created.
#[derive(Clone, Copy)]
pub(super) struct NewRevision<'a> {
    pub extension: &'a str,
    pub number: i64,
    /// All revisions of the extension.
    pub existing: &'a [ClusterObjectSet],
    /// Phases of the newest one, if they can be read.
    pub content: Option<&'a [ContentPhase]>,
    pub target: &'a BundleIdentity,
    pub catalog: Option<&'a str>,
    /// Digest of the bundle's image.
    pub image: &'a str,
    /// Digest of the plan.
    pub digest: &'a str,
    pub phases: &'a [ContentPhase],
    /// Namespace of the operator.
    pub namespace: &'a str,
}

impl ProposedPlan {
    /// Plan of a new revision. `lacks_object` reports whether the ExtensionPlan with this identity has to be created.
    pub(super) fn of(new: &NewRevision<'_>, lacks_object: impl FnOnce(&PlanId) -> bool) -> Self {
        let NewRevision { existing, content, target, catalog, image, digest, phases, .. } = *new;
        let operator_condition =
            replaced_operator(olm_plan::newest_active(existing), content.map(objects), new.namespace);
        let (before, after) = (content.map(copied), copied(phases));
        let planned = Target {
            version: &target.version,
            release: target.release.as_deref(),
            image,
            objects: &after,
            plan: digest,
        };
        let change = olm_plan::change(existing, before.as_deref(), &planned);
        let before = before.filter(|_| !change.is_first).unwrap_or_default();
        let summary = olm_plan::summary(&before, &after);
        let mut plan = Self { change, summary, operator_condition, revision: new.number, content: None };
        if lacks_object(&plan.id()) {
            let (id, summary) = (&plan.id(), &plan.summary);
            let (extension, image_digest, before, after) = (new.extension, image, &before, &after);
            let source = PlanSource { extension, id, target, catalog, image_digest, summary, before, after };
            plan.content = Some(Box::new(plans::content(&source)));
        }
        plan
    }

    /// Identity of its ExtensionPlan.
    pub(super) fn id(&self) -> PlanId {
        PlanId { revision: self.revision, digest: self.change.digest.clone() }
    }

    /// The plan as held, if these rules hold it at the time `now`.
    pub(super) fn held(&self, rules: &ApprovalRules, now: Timestamp) -> Option<HeldPlan> {
        let cause = rules.hold(&self.change, now)?;
        let wait = match cause {
            HoldCause::OutsideWindow { opens: Some(opens) } => {
                let wait = Duration::try_from(opens.duration_since(now)).unwrap_or_default();
                Some(wait.clamp(Duration::from_secs(1), LONGEST_WAIT))
            }
            HoldCause::OutsideWindow { opens: None }
            | HoldCause::ApprovalRequired
            | HoldCause::OperatorNotUpgradeable => None,
        };
        Some(HeldPlan { plan: self.clone(), cause, wait })
    }
}

fn copied(phases: &[ContentPhase]) -> Vec<Value> {
    objects(phases).cloned().collect()
}

impl HeldPlan {
    /// The same plan, reconciled again after `delay` at the latest.
    pub(super) fn retried_after(self, delay: Duration) -> Self {
        Self { wait: Some(self.wait.map_or(delay, |wait| wait.min(delay))), ..self }
    }

    /// State of `UpgradeAvailable`, or the message of a first installation that waits.
    pub(super) fn report(
        &self,
        observed: &ObservedExtension<'_>,
        choice: &Choice,
    ) -> Result<ConditionState, String> {
        let ProposedPlan { change, summary, .. } = &self.plan;
        let held = match self.cause {
            _ if change.is_upgrade() => HeldChange::Upgrade,
            _ if !change.is_first => HeldChange::Revision,
            HoldCause::ApprovalRequired => HeldChange::UnapprovedInstallation,
            HoldCause::OutsideWindow { .. } | HoldCause::OperatorNotUpgradeable => {
                HeldChange::InstallationOutsideWindow
            }
        };
        let next = match self.cause {
            HoldCause::ApprovalRequired => format!(
                "to approve it, run `olm approve {}` or set annotation {} to the digest of the plan",
                observed.name,
                annotations::EXT_APPROVED
            ),
            HoldCause::OutsideWindow { opens: Some(opens) } => {
                format!("the next upgrade window opens at {opens}")
            }
            HoldCause::OutsideWindow { opens: None } => "no upgrade window opens".to_owned(),
            HoldCause::OperatorNotUpgradeable => format!(
                "{}; to upgrade anyway, set an override there or annotation {} to \"true\"",
                change.blocker.as_deref().unwrap_or_default(),
                annotations::EXT_IGNORE_OPERATOR_CONDITION
            ),
        };
        let message = HeldMessage {
            change: held,
            bundle: &choice.described(),
            digest: &change.digest,
            summary_and_next: &format!("{summary}; {next}"),
        }
        .to_string();
        if change.is_first {
            return Err(message);
        }
        let reason = match self.cause {
            HoldCause::ApprovalRequired => reasons::APPROVAL_REQUIRED,
            HoldCause::OutsideWindow { .. } => reasons::OUTSIDE_WINDOW,
            HoldCause::OperatorNotUpgradeable => reasons::OPERATOR_NOT_UPGRADEABLE,
        };
        Ok(ConditionState { status: Some(true), reason, message })
    }
}

#[cfg(test)]
#[path = "held_tests.rs"]
mod tests;
