//! Satisfiability of a set of demands, decided by `resolvo`.
//!
//! Packages are resolvo's names: at most one bundle of each is chosen. A kind that several packages provide is a name
//! too, with one solvable for each of these packages, which their bundles require. So at most one package provides
//! it.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::time::Instant;

use resolvo::{
    Candidates, Condition, ConditionId, ConditionalRequirement, DenseIndex, Dependencies, DependencyProvider,
    HintDependenciesAvailable, Interner, KnownDependencies, NameId, Problem, Requirement, SolvableId, Solver,
    SolverCache, StringId, UnsolvableOrCancelled, VersionSetId, VersionSetUnionId,
};

use crate::conflict::SolveError;
use crate::universe::{Id, Universe};

/// Conditions that must hold together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Demanded<'a> {
    /// Bundles that are already chosen.
    pub(crate) fixed: &'a [Id],
    /// `true` if the requirements of the chosen bundles must be met.
    pub(crate) fixed_require: bool,
    /// Lists from each of which one bundle must be chosen.
    pub(crate) one_of: Vec<&'a [Id]>,
}

/// Interface to resolvo.
pub(crate) struct Satisfier<'u, 'q> {
    universe: &'u Universe<'q>,
    deadline: Instant,
    /// Bundles that are excluded unless they are fixed.
    unsatisfiable: BTreeSet<Id>,
    /// Largest visited package: number of bundles and name.
    largest: RefCell<(usize, String)>,
}

impl<'u, 'q> Satisfier<'u, 'q> {
    pub(crate) fn new(universe: &'u Universe<'q>, deadline: Instant, unsatisfiable: BTreeSet<Id>) -> Self {
        Self { universe, deadline, unsatisfiable, largest: RefCell::default() }
    }

    /// Finds a set of bundles that meets all demands and their requirements, or `None` if there is none.
    ///
    /// # Errors
    /// The deadline has passed.
    pub(crate) fn find(&self, demanded: &Demanded<'_>) -> Result<Option<BTreeSet<Id>>, SolveError> {
        if Instant::now() >= self.deadline {
            return Err(self.out_of_time());
        }
        let is_open = |id: &Id| demanded.fixed.contains(id) || !self.unsatisfiable.contains(id);
        if !demanded.one_of.iter().all(|list| list.iter().any(is_open)) {
            return Ok(None);
        }
        let input = Clauses::new(self, demanded);
        let fixed: Vec<_> = demanded.fixed.iter().map(std::slice::from_ref).collect();
        let lists = fixed.iter().copied().chain(demanded.one_of.iter().copied());
        let requirements = lists.map(|list| input.one_of(list)).collect();
        let mut solver = Solver::new(input);
        match solver.solve(Problem::new().requirements(requirements)) {
            Ok(solvables) => {
                let bundles = self.universe.bundles.len();
                Ok(Some(solvables.into_iter().map(index).filter(|id| *id < bundles).collect()))
            }
            Err(UnsolvableOrCancelled::Unsolvable(_)) => Ok(None),
            Err(UnsolvableOrCancelled::Cancelled(_)) => Err(self.out_of_time()),
        }
    }

    /// Error with the largest visited package, or the largest of all if none was visited.
    fn out_of_time(&self) -> SolveError {
        let (mut bundles, mut package) = self.largest.borrow().clone();
        if bundles == 0 {
            for (name, all) in &self.universe.packages {
                if all.len() > bundles {
                    (bundles, package) = (all.len(), (*name).to_owned());
                }
            }
        }
        SolveError::TimeBudget { package, bundles }
    }

    fn looked_at(&self, package: &str, bundles: usize) {
        let mut largest = self.largest.borrow_mut();
        if bundles > largest.0 || (bundles == largest.0 && *package < *largest.1) {
            *largest = (bundles, package.to_owned());
        }
    }
}

/// Demands as resolvo clauses. Names are packages, then contested kinds. Solvables are bundles, then pairs of a
/// contested kind and a package.
struct Clauses<'a, 'u, 'q> {
    satisfier: &'a Satisfier<'u, 'q>,
    /// Bundles whose requirements are ignored.
    relaxed: BTreeSet<Id>,
    fixed: BTreeSet<Id>,
    packages: Vec<&'u str>,
    names: HashMap<&'u str, usize>,
    /// Kind and package of each solvable after the bundles.
    provisions: RefCell<Vec<(usize, usize)>>,
    provision_ids: RefCell<BTreeMap<(usize, usize), SolvableId>>,
    sets: RefCell<Vec<(NameId, Vec<SolvableId>)>>,
    unions: RefCell<Vec<Vec<VersionSetId>>>,
    ticks: Cell<u32>,
}

impl<'a, 'u, 'q> Clauses<'a, 'u, 'q> {
    fn new(satisfier: &'a Satisfier<'u, 'q>, demanded: &Demanded<'_>) -> Self {
        let packages: Vec<&'u str> = satisfier.universe.packages.keys().copied().collect();
        let names = packages.iter().enumerate().map(|(number, name)| (*name, number)).collect();
        let relaxed =
            if demanded.fixed_require { BTreeSet::new() } else { demanded.fixed.iter().copied().collect() };
        let this = Self {
            satisfier,
            relaxed,
            fixed: demanded.fixed.iter().copied().collect(),
            packages,
            names,
            provisions: RefCell::default(),
            provision_ids: RefCell::default(),
            sets: RefCell::default(),
            unions: RefCell::default(),
            ticks: Cell::new(0),
        };
        this.number_provisions();
        this
    }

    fn universe(&self) -> &'u Universe<'q> {
        self.satisfier.universe
    }

    /// `true` if a bundle can be chosen.
    fn is_open(&self, id: Id) -> bool {
        self.fixed.contains(&id)
            || (self.universe().bundles[id].excluded.is_none() && !self.satisfier.unsatisfiable.contains(&id))
    }

    fn number_provisions(&self) {
        for (id, bundle) in self.universe().bundles.iter().enumerate() {
            for kind in self.contested_kinds(id) {
                let Some(package) = self.names.get(bundle.package) else { continue };
                let mut ids = self.provision_ids.borrow_mut();
                let mut provisions = self.provisions.borrow_mut();
                ids.entry((kind, *package)).or_insert_with(|| {
                    provisions.push((kind, *package));
                    solvable(self.universe().bundles.len() + provisions.len() - 1)
                });
            }
        }
    }

    fn contested_kinds(&self, bundle: Id) -> impl Iterator<Item = usize> {
        let universe = self.universe();
        universe.bundles[bundle].provider.gvks().filter_map(|gvk| universe.contested.get(gvk).copied())
    }

    fn name_of(&self, solvable: SolvableId) -> NameId {
        let id = index(solvable);
        let universe = self.universe();
        match universe.bundles.get(id) {
            Some(bundle) => name(self.names.get(bundle.package).copied().unwrap_or_default()),
            None => {
                let provisions = self.provisions.borrow();
                let kind = provisions.get(id - universe.bundles.len()).map_or(0, |(kind, _)| *kind);
                name(self.packages.len() + kind)
            }
        }
    }

    fn set(&self, name: NameId, members: Vec<SolvableId>) -> VersionSetId {
        let mut sets = self.sets.borrow_mut();
        sets.push((name, members));
        VersionSetId::from_index(sets.len() - 1)
    }

    /// Requirement of one bundle of a non-empty list.
    fn one_of(&self, list: &[Id]) -> ConditionalRequirement {
        let mut by_name: Vec<(NameId, Vec<SolvableId>)> = Vec::new();
        for id in list {
            let name = self.name_of(solvable(*id));
            match by_name.iter_mut().find(|(known, _)| *known == name) {
                Some((_, members)) => members.push(solvable(*id)),
                None => by_name.push((name, vec![solvable(*id)])),
            }
        }
        let sets: Vec<_> = by_name.into_iter().map(|(name, members)| self.set(name, members)).collect();
        let requirement = match sets[..] {
            [single] => Requirement::Single(single),
            _ => {
                let mut unions = self.unions.borrow_mut();
                unions.push(sets);
                Requirement::Union(VersionSetUnionId::from_index(unions.len() - 1))
            }
        };
        requirement.into()
    }

    /// Requirements of a bundle. `None` if one of them cannot be met by any bundle.
    fn requirements(&self, bundle: Id) -> Option<Vec<ConditionalRequirement>> {
        let universe = self.universe();
        let mut requirements = Vec::new();
        for need in &universe.bundles[bundle].needs {
            let met = universe.needs[*need].external.is_some() || universe.eligible(*need).contains(&bundle);
            if met || self.relaxed.contains(&bundle) {
                continue;
            }
            let candidates = universe.eligible(*need);
            if !candidates.iter().any(|id| self.is_open(*id)) {
                return None;
            }
            requirements.push(self.one_of(candidates));
        }
        let package = self.names.get(universe.bundles[bundle].package)?;
        for kind in self.contested_kinds(bundle) {
            let provision = *self.provision_ids.borrow().get(&(kind, *package))?;
            requirements.push(self.set(name(self.packages.len() + kind), vec![provision]).into());
        }
        Some(requirements)
    }
}

fn solvable(id: usize) -> SolvableId {
    SolvableId::from_index(id)
}

fn name(number: usize) -> NameId {
    NameId::from_index(number)
}

fn index(solvable: SolvableId) -> usize {
    solvable.to_index()
}

impl Interner for Clauses<'_, '_, '_> {
    type NameId = NameId;
    type SolvableId = SolvableId;

    fn display_solvable(&self, solvable: SolvableId) -> impl Display + '_ {
        self.universe().bundles.get(index(solvable)).map_or("provision", |bundle| bundle.name)
    }

    fn display_name(&self, name: NameId) -> impl Display + '_ {
        self.packages.get(name.to_index()).copied().unwrap_or("kind")
    }

    fn display_version_set(&self, _: VersionSetId) -> impl Display + '_ {
        ""
    }

    fn display_string(&self, _: StringId) -> impl Display + '_ {
        "a requirement that nothing meets"
    }

    fn version_set_name(&self, set: VersionSetId) -> NameId {
        self.sets.borrow().get(set.to_index()).map_or_else(|| name(0), |(name, _)| *name)
    }

    fn solvable_name(&self, solvable: SolvableId) -> NameId {
        self.name_of(solvable)
    }

    fn version_sets_in_union(&self, union: VersionSetUnionId) -> impl Iterator<Item = VersionSetId> {
        self.unions.borrow().get(union.to_index()).cloned().unwrap_or_default().into_iter()
    }

    fn resolve_condition(&self, condition: ConditionId) -> Condition {
        // No requirement here has a condition, so resolvo never calls this.
        Condition::Requirement(VersionSetId(condition.as_u32()))
    }
}

impl DependencyProvider for Clauses<'_, '_, '_> {
    async fn filter_candidates(
        &self,
        candidates: &[SolvableId],
        set: VersionSetId,
        inverse: bool,
    ) -> Vec<SolvableId> {
        let sets = self.sets.borrow();
        let members: &[SolvableId] = sets.get(set.to_index()).map_or(&[], |(_, members)| members);
        candidates.iter().copied().filter(|candidate| members.contains(candidate) != inverse).collect()
    }

    async fn get_candidates(&self, name: NameId) -> Option<Candidates> {
        let number = name.to_index();
        let universe = self.universe();
        let candidates: Vec<SolvableId> = match self.packages.get(number) {
            Some(package) => {
                let all = universe.packages.get(package)?;
                self.satisfier.looked_at(package, all.len());
                all.iter()
                    .filter(|id| universe.bundles[**id].excluded.is_none())
                    .map(|id| solvable(*id))
                    .collect()
            }
            None => {
                let kind = number - self.packages.len();
                let ids = self.provision_ids.borrow();
                ids.range((kind, 0)..(kind + 1, 0)).map(|(_, id)| *id).collect()
            }
        };
        let hint_dependencies_available = HintDependenciesAvailable::None;
        Some(Candidates { candidates, hint_dependencies_available, ..Candidates::default() })
    }

    async fn sort_candidates(&self, _: &SolverCache<Self>, solvables: &mut [SolvableId]) {
        // Order of insertion: installed, then by preference of the catalogs. The search refines it.
        solvables.sort_by_key(|solvable| index(*solvable));
    }

    async fn get_dependencies(&self, solvable: SolvableId) -> Dependencies {
        let id = index(solvable);
        if id >= self.universe().bundles.len() {
            return Dependencies::Known(KnownDependencies::default());
        }
        match self.requirements(id) {
            Some(requirements) => {
                Dependencies::Known(KnownDependencies { requirements, constrains: Vec::new() })
            }
            None => Dependencies::Unknown(StringId(0)),
        }
    }

    fn should_cancel_with_value(&self) -> Option<Box<dyn Any>> {
        // Reads the clock only every 64 calls: resolvo calls this very often.
        let ticks = self.ticks.get().wrapping_add(1);
        self.ticks.set(ticks);
        let late = ticks.is_multiple_of(64) && Instant::now() >= self.satisfier.deadline;
        late.then(|| Box::new(()) as Box<dyn Any>)
    }
}
