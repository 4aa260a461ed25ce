//! Steps that bring the ExtensionPlans of an extension in line with its current plan. Pure.

use std::cmp::Reverse;
use std::sync::Arc;

use kube::ResourceExt;
use olm_api::extension_plan::{PlanPhase, PlannedRevision};
use olm_api::{ClusterExtension, ExtensionPlan, names};

/// Largest number of ExtensionPlans of one extension.
const KEPT: usize = 5;

/// Identity of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct PlanId {
    /// Number of the revision that is created from it.
    pub revision: i64,
    /// Digest.
    pub digest: String,
}

/// Plan that an extension waits for, or that its newest revision was created from.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct CurrentPlan {
    pub id: PlanId,
    pub phase: PlanPhase,
    /// Content of its ExtensionPlan, if that has to be created.
    pub missing: Option<Box<PlannedRevision>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Delete { name: String, uid: Option<String> },
    SetPhase { name: String, uid: Option<String>, phase: PlanPhase },
    Create(Box<PlannedRevision>),
}

impl PlanId {
    /// Name of the ExtensionPlan.
    pub(super) fn name(&self, extension: &str) -> String {
        names::plan_name(extension, self.revision, &self.digest)
    }

    /// Reports whether this object is the ExtensionPlan of the extension. Its name, its owner and its content must
    /// agree: another user may have created an object with one of them.
    pub(super) fn is_of(&self, plan: &ExtensionPlan, extension: &ClusterExtension) -> bool {
        let (name, content) = (extension.name_any(), &plan.spec.plan);
        plan.name_any() == self.name(&name)
            && plan.belongs_to(extension.metadata.uid.as_deref())
            && plan.metadata.deletion_timestamp.is_none()
            && (&content.extension, content.revision, &content.digest) == (&name, self.revision, &self.digest)
    }
}

/// Steps for the extension. `stored` are the ExtensionPlans that it owns, and the one with the name of its current plan.
pub(super) fn steps(
    extension: &ClusterExtension,
    stored: &[Arc<ExtensionPlan>],
    current: &CurrentPlan,
) -> Vec<Step> {
    let name = current.id.name(&extension.name_any());
    let is_current = |plan: &ExtensionPlan| current.id.is_of(plan, extension);
    let delete = |plan: &ExtensionPlan| Step::Delete { name: plan.name_any(), uid: plan.uid() };
    let takes_name = |plan: &ExtensionPlan| plan.name_any() == name && !is_current(plan);
    let remaining = stored.iter().filter(|plan| plan.metadata.deletion_timestamp.is_none());
    let (foreign, mut own): (Vec<_>, Vec<_>) = remaining.partition(|plan| takes_name(plan));
    let missing = current.missing.clone().filter(|_| !own.iter().any(|plan| is_current(plan)));
    let mut steps = Vec::new();
    steps.extend(foreign.into_iter().filter(|_| missing.is_some()).map(|plan| delete(plan)));
    own.sort_by_key(|plan| {
        let created = plan.metadata.creation_timestamp.as_ref().map(|created| created.0);
        Reverse((is_current(plan), plan.spec.plan.revision, created, plan.name_any()))
    });
    for (at, plan) in own.into_iter().enumerate() {
        let phase = match plan.phase() {
            _ if is_current(plan) => current.phase.clone(),
            PlanPhase::Applied => PlanPhase::Applied,
            _ => PlanPhase::Superseded,
        };
        if at >= KEPT - usize::from(missing.is_some()) {
            steps.push(delete(plan));
        } else if plan.status.as_ref().and_then(|status| status.phase.as_ref()) != Some(&phase) {
            steps.push(Step::SetPhase { name: plan.name_any(), uid: plan.uid(), phase });
        }
    }
    steps.extend(missing.map(Step::Create));
    steps
}

#[cfg(test)]
mod tests {
    use olm_api::ExtensionPlanSpec;
    use olm_api::extension_plan::ExtensionPlanStatus;
    use olm_revision::generate::extension_owner;

    use super::*;

    fn extension() -> ClusterExtension {
        serde_json::from_value(serde_json::json!({"metadata": {"name": "demo", "uid": "u"}})).unwrap()
    }

    fn digest(digit: &str) -> String {
        format!("sha256:{}", digit.repeat(64))
    }

    fn id(revision: i64, digit: &str) -> PlanId {
        PlanId { revision, digest: digest(digit) }
    }

    fn content(id: &PlanId) -> PlannedRevision {
        let PlanId { revision, digest } = id.clone();
        PlannedRevision { extension: "demo".to_owned(), revision, digest, ..PlannedRevision::default() }
    }

    fn stored(id: &PlanId, phase: Option<PlanPhase>) -> ExtensionPlan {
        let spec = ExtensionPlanSpec { approved: false, plan: content(id) };
        let mut plan = ExtensionPlan::new(&id.name("demo"), spec);
        plan.metadata.owner_references = Some(vec![extension_owner("demo", "u")]);
        plan.status = Some(ExtensionPlanStatus { phase });
        plan
    }

    /// Steps as text.
    fn step_texts(all: Vec<ExtensionPlan>, id: &PlanId, phase: PlanPhase, is_missing: bool) -> Vec<String> {
        let missing = is_missing.then(|| Box::new(content(id)));
        let current = CurrentPlan { id: id.clone(), phase, missing };
        let all: Vec<_> = all.into_iter().map(Arc::new).collect();
        let short = |name: &str| name.trim_start_matches("demo-")[..3].to_owned();
        let text = |step: Step| match step {
            Step::Delete { name, .. } => format!("delete {}", short(&name)),
            Step::SetPhase { name, phase, .. } => format!("{} {phase}", short(&name)),
            Step::Create(plan) => format!("create {}", plan.revision),
        };
        steps(&extension(), &all, &current).into_iter().map(text).collect()
    }

    // docs/design/approvals.md#plan-objects
    #[test]
    fn waiting_plan_is_written_once_and_supersedes_others() {
        use PlanPhase::{Applied, Approved, Pending, Superseded};
        let (first, second, other) = (id(1, "a"), id(2, "b"), id(2, "c"));
        assert_eq!(step_texts(vec![], &second, Pending, true), ["create 2"]);
        assert_eq!(step_texts(vec![stored(&second, None)], &second, Pending, true), ["2-b Pending"]);
        let rest = || vec![stored(&first, Some(Applied)), stored(&second, Some(Pending))];
        assert_eq!(step_texts(rest(), &second, Pending, false), [""; 0]);
        assert_eq!(step_texts(rest(), &second, Approved, false), ["2-b Approved"]);
        assert_eq!(step_texts(rest(), &second, Applied, false), ["2-b Applied"]);
        assert_eq!(step_texts(rest(), &other, Pending, true), ["2-b Superseded", "create 2"]);
        // No plan waits, and the newest revision has no ExtensionPlan.
        assert_eq!(step_texts(rest(), &id(1, "a"), Applied, false), ["2-b Superseded"]);
        let over = vec![stored(&second, Some(Superseded))];
        assert_eq!(step_texts(over, &second, Pending, false), ["2-b Pending"]);
    }

    #[test]
    fn five_plans_are_kept() {
        use PlanPhase::{Pending, Superseded};
        let all = || (1..=5).map(|number| stored(&id(number, "a"), Some(Superseded))).collect::<Vec<_>>();
        assert_eq!(step_texts(all(), &id(6, "b"), Pending, true), ["delete 1-a", "create 6"]);
        assert_eq!(step_texts(all(), &id(6, "b"), Pending, false), [""; 0]);
        // The current one is kept, whatever the numbers of the others.
        let many = all().into_iter().chain([stored(&id(0, "c"), Some(Pending))]).collect();
        assert_eq!(step_texts(many, &id(0, "c"), Pending, false), ["delete 1-a"]);
    }

    #[test]
    fn object_of_another_owner_or_content_is_replaced() {
        let id = id(2, "b");
        let pending = || stored(&id, Some(PlanPhase::Pending));
        let mut former = pending();
        former.metadata.owner_references = Some(vec![extension_owner("demo", "former")]);
        let mut forged = pending();
        forged.spec.plan.digest = format!("{}0", &digest("b")[..70]);
        let mut named = pending();
        named.spec.plan.extension = "other".to_owned();
        for plan in [former, forged, named] {
            assert!(!id.is_of(&plan, &extension()));
            assert_eq!(step_texts(vec![plan], &id, PlanPhase::Pending, true), ["delete 2-b", "create 2"]);
        }
        assert!(id.is_of(&pending(), &extension()));
    }
}
