//! Conversion of chosen bundles to a plan: changes, reasons, order.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{Change, ChangePlan, ChangeReason, ChangeStep, Chosen, Met, Previous};
use crate::search::is_met;
use crate::universe::{Bundle, Id, Source, Universe};

/// Plan for `chosen`, which is in the order of choice.
pub(crate) fn plan(universe: &Universe<'_>, chosen: &[Id]) -> ChangePlan {
    let transition = Transition::new(universe, chosen);
    let kept = universe
        .demands
        .iter()
        .filter(|demand| {
            demand.requested && !transition.changed.contains_key(demand.constraints.package.as_str())
        })
        .map(|demand| demand.constraints.package.clone())
        .collect();
    ChangePlan { steps: transition.steps(), kept, requirements: transition.requirements() }
}

/// Transition from the installed to the chosen bundles.
struct Transition<'a, 'q> {
    universe: &'a Universe<'q>,
    chosen: &'a [Id],
    /// New bundles by package.
    changed: BTreeMap<&'q str, Id>,
    /// Installed bundles by package, including those to be replaced.
    installed: BTreeMap<&'q str, Id>,
    /// Installed bundles that are kept.
    staying: Vec<Id>,
}

impl<'a, 'q> Transition<'a, 'q> {
    fn new(universe: &'a Universe<'q>, chosen: &'a [Id]) -> Self {
        let by_package =
            |ids: Vec<Id>| ids.into_iter().map(|id| (universe.bundles[id].package, id)).collect();
        let stays = |id: &Id| universe.bundles[*id].is_installed();
        let all = 0..universe.bundles.len();
        Self {
            universe,
            chosen,
            changed: by_package(chosen.iter().copied().filter(|id| !stays(id)).collect()),
            installed: by_package(all.filter(stays).collect()),
            staying: chosen.iter().copied().filter(stays).collect(),
        }
    }

    /// Groups of changes that depend on each other, each after its dependencies.
    fn steps(&self) -> Vec<ChangeStep> {
        let before: BTreeMap<&str, BTreeSet<&str>> =
            self.changed.iter().map(|(package, id)| (*package, self.before(*id))).collect();
        let reach: BTreeMap<&str, BTreeSet<&str>> =
            before.keys().map(|package| (*package, reachable(package, &before))).collect();
        let mut groups: Vec<Vec<&str>> = Vec::new();
        for package in before.keys() {
            let mutual = |other: &str| reach[package].contains(other) && reach[other].contains(package);
            match groups.iter_mut().find(|group| mutual(group[0])) {
                Some(group) => group.push(package),
                None => groups.push(vec![package]),
            }
        }
        let mut steps = Vec::new();
        while !groups.is_empty() {
            let is_ready = |group: &Vec<&str>| {
                let waits_for =
                    |package: &&str| reach[group[0]].contains(package) && !group.contains(package);
                !groups.iter().flatten().any(waits_for)
            };
            // Groups do not wait for each other in a cycle, or they would be one group.
            let ready = groups.iter().position(is_ready).unwrap_or(0);
            let mut packages = groups.remove(ready);
            packages.sort_by_key(|package| {
                (self.universe.bundles[self.changed[package]].provider.gvks().next().is_none(), *package)
            });
            steps.push(ChangeStep {
                changes: packages.into_iter().map(|package| self.change(self.changed[package])).collect(),
            });
        }
        steps
    }

    /// Packages whose changes must not follow that of `bundle`.
    fn before(&self, bundle: Id) -> BTreeSet<&'q str> {
        let universe = self.universe;
        let mut before = BTreeSet::new();
        for need in &universe.bundles[bundle].needs {
            let constant = |package: &str| self.always(*need, package);
            let staying = is_met(universe, *need, self.staying.iter().chain([&bundle]));
            if !staying && !self.changed.keys().any(|package| constant(package)) {
                let mut meeting = self.chosen.iter().filter(|id| universe.met_by(*need).contains(id));
                before.extend(meeting.next().map(|id| universe.bundles[*id].package));
            }
        }
        for (package, old) in &self.installed {
            if self.changed.contains_key(package) && *package != universe.bundles[bundle].package {
                let hands_over = universe.clash(bundle, *old).is_some();
                if hands_over || self.would_break(*old, bundle) {
                    before.insert(*package);
                }
            }
        }
        before
    }

    /// `true` if a package meets a need both before and after its change.
    fn always(&self, need: usize, package: &str) -> bool {
        let meeting = self.universe.met_by(need);
        let meets = |side: &BTreeMap<&str, Id>| side.get(package).is_some_and(|id| meeting.contains(id));
        meets(&self.installed) && meets(&self.changed)
    }

    /// `true` if an installed bundle loses a requirement when `bundle` replaces its package's old bundle.
    fn would_break(&self, old: Id, bundle: Id) -> bool {
        let universe = self.universe;
        let Some(replaced) = self.installed.get(universe.bundles[bundle].package) else { return false };
        universe.bundles[old].needs.iter().any(|need| {
            let lasting = self.staying.iter().chain([&bundle, &old]);
            universe.met_by(*need).contains(replaced) && !is_met(universe, *need, lasting)
        })
    }

    fn change(&self, id: Id) -> Change {
        let bundle = &self.universe.bundles[id];
        let from = self.installed.get(bundle.package).and_then(|old| previous(&self.universe.bundles[*old]));
        Change { package: bundle.package.to_owned(), from, to: chosen(bundle), because: self.because(id) }
    }

    fn because(&self, id: Id) -> ChangeReason {
        let universe = self.universe;
        let package = universe.bundles[id].package;
        if universe.is_requested(package) {
            return ChangeReason::Requested;
        }
        let others = || self.chosen.iter().filter(|other| **other != id);
        let old = self.installed.get(package);
        let meets = |need: &usize| {
            let by_old = old.is_some_and(|old| universe.met_by(*need).contains(old));
            universe.met_by(*need).contains(&id) && !by_old && universe.needs[*need].external.is_none()
        };
        // Prefer a requirement that only this bundle meets: it explains more.
        for alone in [true, false] {
            for other in others() {
                let needs = universe.bundles[*other].needs.iter();
                let mut asked =
                    needs.filter(|need| meets(need) && !(alone && is_met(universe, **need, others())));
                if let Some(need) = asked.next() {
                    return ChangeReason::Required {
                        by: universe.bundles[*other].name.to_owned(),
                        requires: universe.needs[*need].requirement.to_string(),
                    };
                }
            }
        }
        ChangeReason::WouldBreak { what: old.map_or_else(String::new, |old| self.trouble(*old)) }
    }

    /// Reason for which an installed bundle cannot be kept.
    fn trouble(&self, old: Id) -> String {
        let universe = self.universe;
        let bundle = &universe.bundles[old];
        if let Some(need) = bundle.needs.iter().find(|need| !is_met(universe, **need, self.chosen)) {
            return format!("{} requires an operator {}", bundle.name, universe.needs[*need].requirement);
        }
        let clash = self.chosen.iter().find_map(|other| Some((other, universe.clash(old, *other)?)));
        clash.map_or_else(
            || format!("{} conflicts with the plan", bundle.name),
            |(other, gvk)| format!("{} and {} provide {gvk}", bundle.name, universe.bundles[*other].name),
        )
    }

    fn requirements(&self) -> Vec<Met> {
        let universe = self.universe;
        let is_listed = |id: &&Id| {
            let package = universe.bundles[**id].package;
            self.changed.contains_key(package) || universe.is_requested(package)
        };
        let mut requirements = Vec::new();
        for id in self.chosen.iter().filter(is_listed) {
            for need in &universe.bundles[*id].needs {
                let met = self.chosen.iter().find(|other| universe.met_by(*need).contains(other));
                let need = &universe.needs[*need];
                let by = met.map(|other| universe.bundles[*other].name.to_owned());
                requirements.push(Met {
                    bundle: universe.bundles[*id].name.to_owned(),
                    requires: need.requirement.to_string(),
                    external: by.is_none(),
                    by: by.or_else(|| need.external.clone()).unwrap_or_default(),
                });
            }
        }
        requirements
    }
}

/// Packages reachable from a package.
fn reachable<'q>(from: &'q str, edges: &BTreeMap<&'q str, BTreeSet<&'q str>>) -> BTreeSet<&'q str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(package) = open.pop() {
        for next in edges.get(package).into_iter().flatten() {
            if found.insert(*next) {
                open.push(next);
            }
        }
    }
    found
}

fn previous(old: &Bundle<'_>) -> Option<Previous> {
    match old.source {
        Source::Installed(extension) => Some(Previous {
            extension: extension.extension.clone(),
            bundle: extension.bundle.clone(),
            version: extension.version.clone(),
        }),
        Source::Offered { .. } => None,
    }
}

fn chosen(bundle: &Bundle<'_>) -> Chosen {
    let (image, catalog, channel, deprecated) = match &bundle.source {
        Source::Offered { catalog, offer, channel, .. } => {
            (offer.image(), catalog.name.as_str(), *channel, offer.deprecated())
        }
        // Changes contain only bundles from catalogs.
        Source::Installed(_) => ("", "", None, false),
    };
    Chosen {
        bundle: bundle.name.to_owned(),
        version: bundle.version.clone(),
        image: image.to_owned(),
        catalog: catalog.to_owned(),
        channel: channel.map(str::to_owned),
        deprecated,
    }
}
