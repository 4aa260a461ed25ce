//! Holds the plan of a new revision as the rules of its extension, its ExtensionPlan and the replaced operator demand.

use std::sync::Arc;

use jiff::Timestamp;
use kube::{Client, ResourceExt};
use olm_api::ClusterExtension;
use olm_api::extension_plan::PlanPhase;
use olm_controller_core::install_error::InstallError;
use olm_request::ApprovalRules;

use super::delays::REQUEUE_DELAY;
use super::held::{HeldPlan, ProposedPlan};
use super::observed::ObservedExtension;
use super::plans::{CurrentPlan, PlanId, Plans};
use crate::operator_conditions::OperatorConditions;

/// Plans that wait.
pub(super) struct PlanKeeper {
    /// ExtensionPlans, with gate `ExtensionPlans`.
    objects: Option<Plans>,
    /// OperatorConditions, with gate `OperatorConditionCompat`.
    conditions: Option<Arc<OperatorConditions>>,
}

impl PlanKeeper {
    /// `has_objects` is `true` with gate `ExtensionPlans`.
    pub(super) fn new(
        client: &Client,
        has_objects: bool,
        conditions: Option<Arc<OperatorConditions>>,
    ) -> Self {
        Self { objects: has_objects.then(|| Plans::new(client.clone())), conditions }
    }

    /// Follows the ExtensionPlans, if the gate is on.
    pub(super) async fn follow(&self, changed: impl Fn(&str), listed: impl Fn()) {
        if let Some(plans) = &self.objects {
            plans.follow(changed, listed).await;
        }
    }

    /// Reports whether the ExtensionPlan of this plan has to be created.
    pub(super) fn lacks(&self, extension: &ClusterExtension, id: &PlanId) -> bool {
        self.objects.as_ref().is_some_and(|plans| plans.cached(extension, id).is_none())
    }

    /// The plan as held by the rules of the observed extension. Its ExtensionPlan is written first, so that it exists
    /// when the status reports the plan.
    ///
    /// # Errors
    /// The OperatorCondition of the operator that the plan replaces cannot be read.
    pub(super) async fn hold(
        &self,
        observed: &ObservedExtension<'_>,
        plan: &mut ProposedPlan,
    ) -> Result<Option<HeldPlan>, InstallError> {
        self.read_blocker(&observed.name, plan).await?;
        let (extension, rules) = (observed.extension, &observed.rules.approval);
        let Some(plans) = &self.objects else { return Ok(plan.held(rules, Timestamp::now())) };
        let cached = plans.cached(extension, &plan.id());
        let is_approved = cached.is_some_and(|cached| cached.spec.approved);
        let rules = if is_approved { &rules.approving(&plan.change.digest) } else { rules };
        let held = plan.held(rules, Timestamp::now());
        let is_approved = rules.approved.as_ref() == Some(&plan.change.digest);
        let current = CurrentPlan {
            id: plan.id(),
            phase: if is_approved { PlanPhase::Approved } else { PlanPhase::Pending },
            missing: plan.content.clone().filter(|_| held.is_some()),
        };
        let failed = plans.record(extension, &current).await.inspect_err(|error| {
            tracing::warn!(extension = observed.name, %error, "failed to write ExtensionPlans");
        });
        Ok(held.map(|held| if failed.is_err() { held.retried_after(REQUEUE_DELAY) } else { held }))
    }

    /// The plan as held by these current rules of the `live` extension and by its current ExtensionPlan.
    pub(super) async fn hold_live(
        &self,
        live: &ClusterExtension,
        rules: &ApprovalRules,
        plan: &mut ProposedPlan,
    ) -> Result<Option<HeldPlan>, InstallError> {
        self.read_blocker(&live.name_any(), plan).await?;
        let held = plan.held(rules, Timestamp::now());
        match &self.objects {
            Some(plans) if held.is_some() && plans.approves(live, &plan.id()).await? => {
                Ok(plan.held(&rules.approving(&plan.change.digest), Timestamp::now()))
            }
            _ => Ok(held),
        }
    }

    /// Marks the plan `newest`, of the newest revision, as applied and others as superseded. Returns `false` if this must be
    /// repeated.
    pub(super) async fn settle(&self, observed: &ObservedExtension<'_>, newest: Option<PlanId>) -> bool {
        let (Some(plans), Some(id)) = (&self.objects, newest) else { return true };
        let current = CurrentPlan { id, phase: PlanPhase::Applied, missing: None };
        let settled = plans.record(observed.extension, &current).await;
        settled
            .inspect_err(|error| {
                tracing::warn!(extension = observed.name, %error, "failed to write ExtensionPlans");
            })
            .is_ok()
    }

    /// Reads the report of the operator that the plan replaces.
    async fn read_blocker(&self, extension: &str, plan: &mut ProposedPlan) -> Result<(), InstallError> {
        plan.change.blocker = match (&self.conditions, &plan.operator_condition) {
            (Some(conditions), Some((namespace, name))) if plan.change.is_upgrade() => {
                conditions.blocker(extension, namespace, name).await?
            }
            _ => None,
        };
        Ok(())
    }
}
