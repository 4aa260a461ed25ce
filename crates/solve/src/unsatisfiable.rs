//! Bundles that no plan can contain, because a requirement of theirs cannot be met by any bundle. Excluding them
//! first avoids most of the backtracking.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use crate::universe::{Id, Universe};

/// Hopeless bundles among those reachable from the demands. Empty if the deadline passes meanwhile.
pub(crate) fn unsatisfiable(universe: &Universe<'_>, deadline: Instant) -> BTreeSet<Id> {
    let Some(reached) = reached(universe, deadline) else { return BTreeSet::new() };
    // For each need: the bundles that have it, and the number of its remaining candidates.
    let mut users: HashMap<usize, Vec<Id>> = HashMap::new();
    for id in &reached {
        for need in open_needs(universe, *id) {
            users.entry(need).or_default().push(*id);
        }
    }
    let mut left: HashMap<usize, usize> = HashMap::new();
    let mut meets: HashMap<Id, Vec<usize>> = HashMap::new();
    for need in users.keys() {
        left.insert(*need, universe.eligible(*need).len());
        for id in universe.eligible(*need) {
            meets.entry(*id).or_default().push(*need);
        }
    }
    let mut unsatisfiable = BTreeSet::new();
    let mut exhausted: Vec<usize> =
        left.iter().filter(|(_, candidates)| **candidates == 0).map(|(need, _)| *need).collect();
    while let Some(need) = exhausted.pop() {
        for id in users.get(&need).into_iter().flatten() {
            if !unsatisfiable.insert(*id) {
                continue;
            }
            for other in meets.get(id).into_iter().flatten() {
                if let Some(candidates) = left.get_mut(other) {
                    *candidates -= 1;
                    if *candidates == 0 {
                        exhausted.push(*other);
                    }
                }
            }
        }
    }
    unsatisfiable
}

/// Bundles reachable from the demands. This evaluates most requirements and takes the most time, so it checks the
/// deadline.
fn reached(universe: &Universe<'_>, deadline: Instant) -> Option<BTreeSet<Id>> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<Id> =
        universe.demands.iter().flat_map(|demand| demand.candidates.iter().copied()).collect();
    while let Some(id) = open.pop() {
        if Instant::now() >= deadline {
            return None;
        }
        if reached.insert(id) {
            open.extend(open_needs(universe, id).flat_map(|need| universe.eligible(need).iter().copied()));
        }
    }
    Some(reached)
}

/// Requirements of a bundle that the cluster does not meet.
fn open_needs(universe: &Universe<'_>, id: Id) -> impl Iterator<Item = usize> {
    let needs: BTreeSet<usize> = universe.bundles[id].needs.iter().copied().collect();
    needs.into_iter().filter(|need| universe.needs[*need].external.is_none())
}
