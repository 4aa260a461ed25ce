//! Random small worlds: plans are validated, conflicts are checked by brute force.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use olm_resolve::{
    Catalog, DependencyMode, Gvk, Installed, Provider, Request, Requirement, Rules, UpgradePolicy, resolve,
};
use olm_solve::{ChangePlan, SolveError};
use proptest::prelude::*;

use crate::fixture::Fixture;

/// Bundle that can be part of a solution.
#[derive(Debug, Clone)]
struct Choice {
    package: String,
    bundle: String,
    catalog: Option<String>,
    provider: Provider,
    requirements: Vec<Requirement>,
    /// Rank among the bundles of its package: deprecated, priority, catalog, version.
    place: (bool, Reverse<i32>, String, Reverse<String>),
}

const PACKAGES: [&str; 4] = ["a", "b", "c", "d"];

/// Rest of a line after package and version: channel entries, kinds and requirements.
fn traits() -> impl Strategy<Value = String> {
    let entry = prop_oneof![
        Just("@s".to_owned()),
        Just("@s>1.0.0".to_owned()),
        Just("@t>1.0.0".to_owned()),
        Just("@t~<2.0.0".to_owned()),
    ];
    let provided =
        prop_oneof![4 => Just(String::new()), 1 => Just(" +K".to_owned()), 1 => Just(" +L".to_owned())];
    let required = prop_oneof![
        5 => Just(String::new()),
        2 => ("[abcd]", "(1.x|2.x|>=2.0.0|<2.0.0|3.x)").prop_map(|(p, r)| format!(" pkg:{p}:{r}")),
        1 => "[KL]".prop_map(|kind| format!(" gvk:{kind}")),
    ];
    let deprecated = prop_oneof![6 => Just(""), 1 => Just(" deprecated")];
    (entry, provided, required.clone(), required, deprecated).prop_map(
        |(entry, provided, one, two, deprecated)| format!("{entry}{provided}{one}{two}{deprecated}"),
    )
}

fn catalog() -> impl Strategy<Value = Vec<String>> {
    prop::collection::btree_map("[abcd] [123]\\.0\\.0", traits(), 0..6).prop_map(
        |bundles: BTreeMap<String, String>| {
            bundles.into_iter().map(|(id, rest)| format!("{id} {rest}")).collect()
        },
    )
}

fn fixture() -> impl Strategy<Value = Fixture> {
    let installed = prop::collection::btree_map("[abcd]", (1..3u32, traits()), 0..3);
    let requested = prop::collection::btree_set("[abcd]", 0..3);
    (catalog(), catalog(), 0..2i32, installed, requested, any::<bool>()).prop_map(
        |(first, second, priority, installed, requested, served)| {
            let mut fixture = Fixture::default()
                .catalog("one", 0, &first.iter().map(String::as_str).collect::<Vec<_>>())
                .catalog("two", priority, &second.iter().map(String::as_str).collect::<Vec<_>>());
            for (package, (version, traits)) in installed {
                fixture = fixture.installed(&format!("{package} {version}.0.0 {traits}"));
            }
            for package in requested {
                fixture = fixture.wants(&package);
            }
            if served { fixture.serves("L") } else { fixture }
        },
    )
}

/// Acceptable bundles of each package. `None` among them means that the package can be absent.
fn choices(fixture: &Fixture) -> BTreeMap<String, Vec<Option<Choice>>> {
    let mut choices: BTreeMap<String, Vec<Option<Choice>>> = BTreeMap::new();
    for package in PACKAGES {
        let installed = fixture.installed.iter().find(|installed| installed.constraints.package == package);
        let requested = fixture.requested.iter().any(|constraints| constraints.package == package);
        let mut list = Vec::new();
        if installed.is_none() && !requested {
            list.push(None);
        }
        if let Some(installed) = installed {
            list.push(Some(Choice {
                package: package.to_owned(),
                bundle: installed.bundle.clone(),
                catalog: None,
                provider: installed.provider.clone(),
                requirements: installed.requirements.clone(),
                place: Default::default(),
            }));
        }
        for catalog in &fixture.catalogs {
            let Some(index) = catalog.packages.get(package) else { continue };
            for offer in index.offers() {
                let version = offer.version().unwrap().version().to_string();
                let request = Request {
                    package,
                    channels: &[],
                    version: Some(&version),
                    policy: UpgradePolicy::CatalogProvided,
                    installed: installed.map(|i| Installed {
                        name: &i.bundle,
                        version: &i.version,
                        release: None,
                    }),
                    rules: Rules { dependencies: DependencyMode::Report, ..Rules::default() },
                };
                let answer = Catalog { name: "x".to_owned(), priority: 0, package: Ok(Some(index.clone())) };
                let same = installed.is_some_and(|installed| installed.bundle == offer.name());
                if !same && resolve(&request, &[answer]).is_ok() {
                    list.push(Some(Choice {
                        package: package.to_owned(),
                        bundle: offer.name().to_owned(),
                        catalog: Some(catalog.name.clone()),
                        provider: Provider::new(None, offer.name().to_owned(), offer.properties().to_vec()),
                        requirements: offer.requirements().to_vec(),
                        place: (
                            offer.deprecated(),
                            Reverse(catalog.priority),
                            catalog.name.clone(),
                            Reverse(version.clone()),
                        ),
                    }));
                }
            }
        }
        choices.insert(package.to_owned(), list);
    }
    choices
}

fn external(fixture: &Fixture) -> BTreeSet<Gvk> {
    let owned: BTreeSet<_> = fixture.installed.iter().flat_map(|i| i.provider.gvks().cloned()).collect();
    fixture.served.difference(&owned).cloned().collect()
}

/// Reports an unmet requirement or a contradiction in a set of bundles.
fn fault(fixture: &Fixture, set: &[&Choice]) -> Option<String> {
    let mut packages = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    for choice in set {
        if !packages.insert(&choice.package) {
            return Some(format!("two bundles of {}", choice.package));
        }
        for gvk in choice.provider.gvks() {
            if !kinds.insert(gvk) {
                return Some(format!("two providers of {gvk}"));
            }
        }
    }
    let external: Vec<_> = external(fixture).into_iter().map(Provider::external).collect();
    for choice in set {
        for requirement in &choice.requirements {
            let mut providers = set.iter().map(|other| &other.provider).chain(&external);
            if !providers.any(|provider| requirement.is_met_by(provider)) {
                return Some(format!("{} lacks {requirement}", choice.bundle));
            }
        }
    }
    None
}

/// All valid sets.
fn solutions<'c>(
    fixture: &Fixture,
    choices: &'c BTreeMap<String, Vec<Option<Choice>>>,
) -> Vec<Vec<&'c Choice>> {
    let mut sets: Vec<Vec<&Choice>> = vec![Vec::new()];
    for list in choices.values() {
        let extend = |set: &Vec<&'c Choice>| {
            let grown = list.iter().map(|choice| set.iter().copied().chain(choice).collect::<Vec<_>>());
            grown.collect::<Vec<_>>()
        };
        sets = sets.iter().flat_map(extend).collect();
    }
    sets.retain(|set| fault(fixture, set).is_none());
    sets
}

/// Installed bundles after the plan.
fn outcome<'c>(
    choices: &'c BTreeMap<String, Vec<Option<Choice>>>,
    fixture: &Fixture,
    plan: &ChangePlan,
) -> Vec<&'c Choice> {
    let mut after: BTreeMap<String, (String, Option<String>)> =
        fixture.installed.iter().map(|i| (i.constraints.package.clone(), (i.bundle.clone(), None))).collect();
    for change in plan.steps.iter().flat_map(|step| &step.changes) {
        after.insert(change.package.clone(), (change.to.bundle.clone(), Some(change.to.catalog.clone())));
    }
    let pick = |(package, (bundle, catalog)): (&String, &(String, Option<String>))| {
        let mut list = choices[package].iter().flatten();
        list.find(|choice| choice.bundle == *bundle && choice.catalog == *catalog)
            .unwrap_or_else(|| panic!("{bundle} of {catalog:?} is not admitted"))
    };
    after.iter().map(pick).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_are_valid_and_conflicts_have_no_solution(fixture in fixture()) {
        let choices = choices(&fixture);
        let solutions = solutions(&fixture, &choices);
        match fixture.solve() {
            Ok(plan) => {
                let outcome = outcome(&choices, &fixture, &plan);
                prop_assert_eq!(fault(&fixture, &outcome), None, "{}", plan);
                // No new bundle is redundant.
                for change in plan.steps.iter().flat_map(|step| &step.changes) {
                    let requested = fixture.requested.iter().any(|constraints| constraints.package == change.package);
                    if change.from.is_none() && !requested {
                        let rest: Vec<_> = outcome.iter().copied().filter(|c| c.package != change.package).collect();
                        prop_assert!(fault(&fixture, &rest).is_some(), "{} is needless in\n{}", change.package, plan);
                    }
                }
                // Each requested package in turn has the best possible bundle. Then each installed extension without a
                // request in turn keeps its bundle where possible.
                let mut possible: Vec<_> = solutions.clone();
                let mut requested: Vec<_> = fixture.requested.iter().map(|constraints| &constraints.package).collect();
                requested.sort();
                for package in requested {
                    let got = outcome.iter().find(|c| c.package == *package).unwrap();
                    if !fixture.installed.iter().any(|i| i.constraints.package == *package) {
                        let better = |c: &&&Choice| c.package == *package && c.place < got.place;
                        let found = possible.iter().find_map(|set| set.iter().find(better));
                        prop_assert!(found.is_none(), "{} in place of {:?}", got.bundle, found);
                    }
                    possible.retain(|set| set.iter().any(|c| c.bundle == got.bundle && c.catalog == got.catalog));
                }
                let mut installed: Vec<_> = fixture.installed.iter().map(|i| &i.constraints.package).collect();
                installed.sort();
                for package in installed {
                    let moved = outcome.iter().any(|c| c.package == *package && c.catalog.is_some());
                    let stays = |set: &&Vec<&Choice>| set.iter().any(|c| c.package == *package && c.catalog.is_none());
                    let asked = fixture.requested.iter().any(|constraints| constraints.package == *package);
                    prop_assert!(asked || !moved || !possible.iter().any(|set| stays(&set)), "{} could stay", package);
                    let got = outcome.iter().find(|c| c.package == *package).unwrap();
                    possible.retain(|set| set.iter().any(|c| c.bundle == got.bundle && c.catalog == got.catalog));
                }
            }
            Err(SolveError::Conflict(conflict)) => {
                prop_assert!(solutions.is_empty(), "{}\nbut {:?}", conflict, solutions.first());
                prop_assert!(!conflict.goals.is_empty());
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn order_of_inputs_does_not_change_the_answer(fixture in fixture()) {
        let answer = |fixture: &Fixture| match fixture.solve() {
            Ok(plan) => serde_json::to_string(&plan).unwrap(),
            Err(error) => error.to_string(),
        };
        let mut turned = fixture.clone();
        turned.catalogs.reverse();
        turned.installed.reverse();
        turned.requested.reverse();
        prop_assert_eq!(answer(&fixture), answer(&turned));
        prop_assert_eq!(answer(&fixture), answer(&fixture));
    }
}
