//! Explanation of a conflict: a minimal set of goals that cannot be reached together, and a tree with the reason for
//! the rejection of each candidate.

use std::cell::Cell;

use crate::conflict::{Conflict, Dropped, Goal, RejectionReason, SolveError, Unmet};
use crate::satisfy::{Demanded, Satisfier};
use crate::search::is_met;
use crate::universe::{Demand, Id, Universe};

/// Maximum number of explained goals of a tree. The rest is cut.
const MOST_EXPLAINED: usize = 100;

/// Maximum number of candidates of one goal that are listed although they were never eligible.
const MOST_INELIGIBLE: usize = 20;

/// Explains why the demands cannot all be met.
///
/// # Errors
/// The deadline has passed.
pub(crate) fn explain(
    universe: &Universe<'_>,
    satisfier: &Satisfier<'_, '_>,
) -> Result<Conflict, SolveError> {
    let explainer = Explainer { universe, satisfier, left: Cell::new(MOST_EXPLAINED) };
    let goals = universe.demands.iter().map(|demand| explainer.demand(demand)).collect();
    let goals = explainer.fewest(&[], goals)?;
    let labels = goals.iter().map(|goal| goal.label.clone()).collect();
    Ok(Conflict { goals: labels, unmet: explainer.unmet(&[], goals)? })
}

/// Goal with the bundles that reach it.
#[derive(Debug, Clone)]
struct OpenGoal {
    label: Goal,
    /// Candidates, best first.
    candidates: Vec<Id>,
    /// Bundles that resemble candidates but are not eligible.
    ineligible: Vec<(Id, RejectionReason)>,
}

struct Explainer<'a, 'u, 'q> {
    universe: &'u Universe<'q>,
    satisfier: &'a Satisfier<'u, 'q>,
    /// Number of goals that can still be explained.
    left: Cell<usize>,
}

impl Explainer<'_, '_, '_> {
    fn demand(&self, demand: &Demand<'_>) -> OpenGoal {
        let constraints = demand.constraints;
        let label = match demand.installed {
            Some(installed) if !demand.requested => {
                Goal::Installed { extension: installed.extension.clone(), bundle: installed.bundle.clone() }
            }
            _ => Goal::Requested {
                package: constraints.package.clone(),
                version: constraints.version.clone().filter(|version| !version.is_empty()),
                channels: constraints.channels.clone(),
            },
        };
        let all = self.universe.packages.get(constraints.package.as_str()).map_or(&[][..], Vec::as_slice);
        OpenGoal { label, candidates: demand.candidates.clone(), ineligible: self.ineligible(all) }
    }

    fn need(&self, need: usize, bundle: Id) -> OpenGoal {
        let requirement = &self.universe.needs[need].requirement;
        let label = Goal::Requirement {
            bundle: self.universe.bundles[bundle].name.to_owned(),
            requires: requirement.to_string(),
            message: requirement.failure_message().map(str::to_owned),
        };
        let meeting = self.universe.met_by(need);
        let mut ineligible = self.ineligible(meeting);
        for package in requirement.mentioned_packages() {
            let others = self.universe.packages.get(package).map_or(&[][..], Vec::as_slice);
            let others = others.iter().filter(|id| !meeting.contains(id));
            ineligible.extend(others.map(|id| (*id, RejectionReason::Unsuitable)));
        }
        OpenGoal { label, candidates: self.universe.candidates(need, bundle), ineligible }
    }

    /// Bundles of a list that cannot be chosen at all.
    fn ineligible(&self, bundles: &[Id]) -> Vec<(Id, RejectionReason)> {
        let rule = |id: &Id| {
            Some((*id, RejectionReason::NotAdmitted { rule: self.universe.bundles[*id].excluded.clone()? }))
        };
        bundles.iter().filter_map(rule).collect()
    }

    /// `true` if the goals can be reached together with bundles whose own requirements are among the goals, or are
    /// ignored.
    fn reachable(&self, context: &[Id], goals: &[OpenGoal]) -> Result<bool, SolveError> {
        let one_of = goals.iter().map(|goal| goal.candidates.as_slice()).collect();
        Ok(self.satisfier.find(&Demanded { fixed: context, fixed_require: false, one_of })?.is_some())
    }

    /// Removes goals, the last first, as long as the rest cannot be reached.
    fn fewest(&self, context: &[Id], mut goals: Vec<OpenGoal>) -> Result<Vec<OpenGoal>, SolveError> {
        for position in (0..goals.len()).rev() {
            let left_out = goals.remove(position);
            if self.reachable(context, &goals)? {
                goals.insert(position, left_out);
            }
        }
        Ok(goals)
    }

    /// Explains the goal with the fewest candidates. None of them is compatible with the other goals.
    fn unmet(&self, context: &[Id], mut goals: Vec<OpenGoal>) -> Result<Unmet, SolveError> {
        let fewest =
            (0..goals.len()).min_by_key(|position| goals[*position].candidates.len()).unwrap_or_default();
        let goal = goals.remove(fewest);
        let mut candidates = Vec::new();
        for id in &goal.candidates {
            candidates.push(self.dropped(*id, self.reason(context, &goals, *id)?));
        }
        for (id, reason) in goal.ineligible.into_iter().take(MOST_INELIGIBLE) {
            candidates.push(self.dropped(id, reason));
        }
        Ok(Unmet { goal: goal.label, candidates })
    }

    fn reason(
        &self,
        context: &[Id],
        goals: &[OpenGoal],
        candidate: Id,
    ) -> Result<RejectionReason, SolveError> {
        let universe = self.universe;
        let bundle = &universe.bundles[candidate];
        for other in context {
            let name = || universe.bundles[*other].name.to_owned();
            if universe.bundles[*other].package == bundle.package {
                return Ok(RejectionReason::SamePackage { bundle: name() });
            }
            if let Some(gvk) = universe.clash(candidate, *other) {
                return Ok(RejectionReason::SameKind { provides: gvk.to_string(), bundle: name() });
            }
        }
        let needs = bundle.needs.iter();
        if let Some(fault) = needs.clone().find_map(|need| universe.needs[*need].requirement.fault()) {
            return Ok(RejectionReason::Invalid { fault: fault.to_string() });
        }
        let Some(left) = self.left.get().checked_sub(1) else { return Ok(RejectionReason::Cut) };
        self.left.set(left);
        let mut context = context.to_vec();
        context.push(candidate);
        let met = |need: &&usize| is_met(universe, **need, &context);
        let mut aims: Vec<OpenGoal> =
            needs.filter(|need| !met(need)).map(|need| self.need(*need, candidate)).collect();
        aims.extend(goals.iter().filter(|goal| !goal.candidates.contains(&candidate)).cloned());
        let aims = self.fewest(&context, aims)?;
        Ok(RejectionReason::Leaves { unmet: Box::new(self.unmet(&context, aims)?) })
    }

    fn dropped(&self, id: Id, reason: RejectionReason) -> Dropped {
        let bundle = &self.universe.bundles[id];
        Dropped {
            bundle: bundle.name.to_owned(),
            version: bundle.version.clone(),
            catalog: bundle.catalog().map(|catalog| catalog.name.clone()),
            reason,
        }
    }
}
