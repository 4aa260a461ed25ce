//! Search for the first plan in the order of preference.
//!
//! The search fixes one bundle after the other: first the demanded packages in their order, then the requirements of
//! the fixed bundles in the order of their properties. Each step takes the best candidate with which everything can
//! still be met. So the result depends only on the preferences, not on the solver's internal order.

use std::collections::{BTreeSet, VecDeque};

use crate::conflict::SolveError;
use crate::explain::explain;
use crate::input::SolverInput;
use crate::plan::ChangePlan;
use crate::satisfy::{Demanded, Satisfier};
use crate::steps::plan;
use crate::universe::{Id, Universe};
use crate::unsatisfiable::unsatisfiable;

/// Finds the plan that is first in the order of preference.
///
/// Requested packages, in the order of their names, get the best possible bundle. Then installed extensions keep their
/// bundles where possible. Then each requirement, in the order of the bundles and their properties, gets the best
/// bundle (docs/design/additions.md#order-of-preference): one that is installed, else one that is not deprecated, of
/// the same catalog, of a catalog of higher priority, of the default channel, nearer to the head of its channel.
/// Unneeded bundles are not installed.
///
/// # Errors
/// See [`SolveError`]. [`SolveError::Conflict`] explains why no plan exists.
pub fn solve(input: &SolverInput<'_>) -> Result<ChangePlan, SolveError> {
    let universe = Universe::new(input)?;
    let unsatisfiable = unsatisfiable(&universe, input.deadline);
    let satisfier = Satisfier::new(&universe, input.deadline, unsatisfiable.clone());
    match Search::start(&universe, &satisfier, &unsatisfiable)? {
        Some(search) => Ok(plan(&universe, &search.run()?)),
        None => {
            // An explanation examines bundles without their requirements, so none is unsatisfiable there.
            let satisfier = Satisfier::new(&universe, input.deadline, BTreeSet::new());
            Err(SolveError::Conflict(Box::new(explain(&universe, &satisfier)?)))
        }
    }
}

struct Search<'a, 'u, 'q> {
    universe: &'u Universe<'q>,
    satisfier: &'a Satisfier<'u, 'q>,
    unsatisfiable: &'a BTreeSet<Id>,
    /// Chosen bundles in the order of choice.
    fixed: Vec<Id>,
    /// A solution that contains all fixed bundles.
    known: BTreeSet<Id>,
}

impl<'a, 'u, 'q> Search<'a, 'u, 'q> {
    /// Returns `None` if there is no solution.
    fn start(
        universe: &'u Universe<'q>,
        satisfier: &'a Satisfier<'u, 'q>,
        unsatisfiable: &'a BTreeSet<Id>,
    ) -> Result<Option<Self>, SolveError> {
        let known = satisfier.find(&demanded(universe, &[]))?;
        Ok(known.map(|known| Self { universe, satisfier, unsatisfiable, fixed: Vec::new(), known }))
    }

    fn run(mut self) -> Result<Vec<Id>, SolveError> {
        for demand in &self.universe.demands {
            self.fix_first(&demand.candidates)?;
        }
        let demands = self.fixed.len();
        let mut queue: VecDeque<Id> = self.fixed.iter().copied().collect();
        while let Some(requirer) = queue.pop_front() {
            for need in &self.universe.bundles[requirer].needs {
                if is_met(self.universe, *need, self.fixed.iter()) {
                    continue;
                }
                let chosen = self.fix_first(&self.universe.candidates(*need, requirer))?;
                queue.extend(chosen);
            }
        }
        Ok(without_needless(self.universe, self.fixed, demands))
    }

    /// Fixes the first candidate with which a solution exists.
    fn fix_first(&mut self, candidates: &[Id]) -> Result<Option<Id>, SolveError> {
        for candidate in candidates {
            if !self.known.contains(candidate) {
                if self.unsatisfiable.contains(candidate) || self.contradicts(*candidate) {
                    continue;
                }
                let mut trial = self.fixed.clone();
                trial.push(*candidate);
                match self.satisfier.find(&demanded(self.universe, &trial))? {
                    Some(solution) => self.known = solution,
                    None => continue,
                }
            }
            self.fixed.push(*candidate);
            return Ok(Some(*candidate));
        }
        // Unreachable: some candidate is part of the known solution.
        Ok(None)
    }

    /// `true` if a fixed bundle alone excludes a candidate.
    fn contradicts(&self, candidate: Id) -> bool {
        let package = self.universe.bundles[candidate].package;
        let rules_out = |id: &Id| {
            self.universe.bundles[*id].package == package || self.universe.clash(*id, candidate).is_some()
        };
        self.fixed.iter().any(rules_out)
    }
}

/// Demands on a solution, in addition to the fixed bundles.
fn demanded<'a>(universe: &'a Universe<'_>, fixed: &'a [Id]) -> Demanded<'a> {
    let one_of = universe.demands.iter().map(|demand| demand.candidates.as_slice()).collect();
    Demanded { fixed, fixed_require: true, one_of }
}

/// `true` if the cluster or one of these bundles meets a need.
pub(crate) fn is_met<'i>(
    universe: &Universe<'_>,
    need: usize,
    bundles: impl IntoIterator<Item = &'i Id>,
) -> bool {
    let meeting = universe.met_by(need);
    universe.needs[need].external.is_some() || bundles.into_iter().any(|id| meeting.contains(id))
}

/// Removes bundles that became unneeded because a later choice meets the same requirement. The first `demands`
/// bundles are kept.
fn without_needless(universe: &Universe<'_>, mut chosen: Vec<Id>, demands: usize) -> Vec<Id> {
    let is_sound =
        |id: &Id, set: &[Id]| universe.bundles[*id].needs.iter().all(|need| is_met(universe, *need, set));
    for candidate in chosen[demands..].iter().rev().copied().collect::<Vec<_>>() {
        let mut rest: Vec<Id> = chosen.iter().copied().filter(|id| *id != candidate).collect();
        // Bundles that depend only on the candidate are removed with it.
        while let Some(position) = rest.iter().position(|id| !is_sound(id, &rest)) {
            if position < demands {
                rest.clear();
            } else {
                rest.remove(position);
            }
        }
        if rest.len() >= demands && !rest.is_empty() {
            chosen = rest;
        }
    }
    chosen
}
