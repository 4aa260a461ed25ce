//! Plans that wait for an approval, for an upgrade window, or for the operator (docs/design/additions.md#approval,
//! docs/design/additions.md#upgrade-windows, docs/design/additions.md#operator-conditions). Pure: the time is a
//! parameter.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use olm_api::conditions::{INSTALLATION, reasons};
use olm_api::{ClusterObjectSet, annotations};
use olm_plan::Target;
use olm_request::{ApprovalRules, HoldCause, PlannedChange, operator_condition};
use olm_resolve::ConditionState;
use olm_revision::content::ContentPhase;
use olm_revision::generate::BundleIdentity;
use serde_json::Value;

use super::choice::Choice;
use super::decide::Observed;
use crate::install_error::{ErrorClass, InstallError};

/// Limit of the requeue delay. A timer cannot run for years.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Plan of a new revision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub change: PlannedChange,
    /// Summary of the changes.
    pub summary: String,
    /// Namespace and name of the OperatorCondition of the operator that the revision replaces.
    pub operator_condition: Option<(String, String)>,
}

/// Plan that waits.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HeldPlan {
    pub plan: Plan,
    pub cause: HoldCause,
    /// Delay until the next opening of a window. An approval triggers a reconcile by itself.
    pub wait: Option<Duration>,
}

impl Plan {
    /// Plan of a revision with these phases, as the successor of all `existing` revisions. `content` are the phases of
    /// the newest one, if they can be read. `image` is the digest of the bundle's image, and `digest` that of the plan.
    pub(super) fn of(
        existing: &[ClusterObjectSet],
        content: Option<&[ContentPhase]>,
        target: &BundleIdentity,
        (image, digest): (&str, &str),
        phases: &[ContentPhase],
    ) -> Self {
        let (before, after) = (content.map(objects), objects(phases));
        let target = Target {
            version: &target.version,
            release: target.release.as_deref(),
            image,
            objects: &after,
            plan: digest,
        };
        let change = olm_plan::change(existing, before.as_deref(), &target);
        let before = before.filter(|_| !change.is_first).unwrap_or_default();
        Self { change, summary: olm_plan::summary(&before, &after), operator_condition: None }
    }

    /// The plan as replacing the operator of the newest revision, which runs in `namespace`. Without its content, the
    /// OperatorCondition is named after its bundle.
    pub(super) fn replacing_operator(
        self,
        newest: Option<&ClusterObjectSet>,
        content: Option<&[ContentPhase]>,
        namespace: &str,
    ) -> Self {
        let operator_condition = match content {
            Some(content) => operator_condition(contents(content)),
            None => newest.and_then(|newest| {
                let bundle = newest.annotations().get(annotations::BUNDLE_NAME)?;
                Some((namespace.to_owned(), bundle.clone()))
            }),
        };
        Self { operator_condition, ..self }
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

fn objects(phases: &[ContentPhase]) -> Vec<Value> {
    contents(phases).cloned().collect()
}

fn contents(phases: &[ContentPhase]) -> impl Iterator<Item = &Value> {
    phases.iter().flat_map(|phase| &phase.objects).map(|content| &content.object)
}

impl HeldPlan {
    /// State of `UpgradeAvailable` while something is installed, or the reason why nothing is.
    pub(super) fn report(
        &self,
        observed: &Observed<'_>,
        choice: &Choice,
    ) -> Result<ConditionState, InstallError> {
        let Plan { change, summary, .. } = &self.plan;
        let BundleIdentity { name, version, .. } = &choice.target;
        let catalog =
            choice.catalog.as_ref().map(|catalog| format!(" from catalog {catalog}")).unwrap_or_default();
        let bundle = format!("bundle {name} version {version}{catalog}");
        let what = match self.cause {
            _ if change.changes_bundle && !change.is_first => format!("{bundle} is available"),
            _ if !change.is_first => format!("a changed revision of {bundle} is available"),
            HoldCause::ApprovalRequired => format!("{INSTALLATION}{bundle} requires approval"),
            HoldCause::OutsideWindow { .. } | HoldCause::OperatorNotUpgradeable => {
                format!("{INSTALLATION}{bundle} waits for its upgrade window")
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
        let message = format!("{what}; plan {}: {summary}; {next}", change.digest);
        if change.is_first {
            return Err(InstallError::new(ErrorClass::Held, message));
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
