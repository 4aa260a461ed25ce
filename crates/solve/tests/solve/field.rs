//! Catalogs from the field, and large ones.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use olm_fbc::PackageContent;
use olm_resolve::{Indexing, PackageIndex};
use olm_solve::{SolveError, SolverInput, SourceCatalog, solve};

use crate::fixture::{Fixture, constraints};

/// Longer than the time budget of `olm resolve --solve` (5 s), so that a busy machine fails no test.
const BUDGET: Duration = Duration::from_secs(120);

#[test]
fn every_field_package_has_a_plan_or_a_conflict() {
    let Some(data) = olm_require::field_data() else { return };
    let catalogs =
        [SourceCatalog { name: "field".to_owned(), priority: 0, packages: packages(&data.join("catalogs")) }];
    let (mut planned, mut steps, mut refused, mut longest) = (0, 0, 0, Duration::ZERO);
    for package in catalogs[0].packages.keys() {
        let start = Instant::now();
        let input = SolverInput {
            requested: vec![constraints(package)],
            installed: Vec::new(),
            catalogs: &catalogs,
            served: Default::default(),
            deadline: start + BUDGET,
        };
        match solve(&input) {
            Ok(plan) => {
                planned += 1;
                steps += plan.steps.len();
            }
            Err(SolveError::Conflict(conflict)) => {
                refused += 1;
                assert!(conflict.to_string().starts_with("no plan exists\n"), "{conflict}");
            }
            Err(error) => panic!("{package}: {error}"),
        }
        longest = longest.max(start.elapsed());
    }
    say(&format!("{planned} plans with {steps} steps, {refused} conflicts, longest {longest:?}"));
    assert!(planned > 0);
}

/// Fifty packages of twenty versions. Each requires the next package at its own version or higher. The last package
/// lacks the highest versions.
#[test]
fn long_dependency_chain_is_solved() {
    let mut lines = Vec::new();
    for package in 0..50 {
        for version in 1..=20 {
            if package < 49 {
                lines.push(format!("p{package:02} {version}.0.0 @s pkg:p{:02}:>={version}.0.0", package + 1));
            } else if version <= 15 {
                lines.push(format!("p{package:02} {version}.0.0 @s"));
            }
        }
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let fixture = Fixture::default().catalog("main", 0, &lines).wants("p00");
    let start = Instant::now();
    let plan = solve(&SolverInput { deadline: start + BUDGET, ..fixture.input() }).unwrap();
    say(&format!("a chain of 50 packages: {:?}", start.elapsed()));
    assert_eq!(plan.steps.len(), 50);
    assert_eq!(plan.steps[49].changes[0].to.bundle, "p00.v15.0.0");
}

/// Only trial and error decides this: each package can be provided in many ways that exclude each other.
#[test]
fn search_ends_with_an_error_at_the_deadline() {
    let mut lines = Vec::new();
    for pigeon in 0..24 {
        for hole in 0..23 {
            lines.push(format!("pigeon{pigeon} {}.0.0 @s +Hole{hole}", hole + 1));
        }
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let mut fixture = Fixture::default().catalog("main", 0, &lines);
    for pigeon in 0..24 {
        fixture = fixture.wants(&format!("pigeon{pigeon}"));
    }
    let start = Instant::now();
    let deadline = start + Duration::from_secs(1);
    let error = solve(&SolverInput { deadline, ..fixture.input() }).unwrap_err().to_string();
    assert_eq!(
        error,
        "resolution exceeded time budget; the largest package involved is pigeon0 with 23 bundles"
    );
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
}

fn packages(folder: &Path) -> BTreeMap<String, Arc<PackageIndex>> {
    let mut objects = Vec::new();
    read_objects(folder, &mut objects);
    let mut lines: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for object in &objects {
        let owner = if object["schema"] == "olm.package" { &object["name"] } else { &object["package"] };
        lines.entry(owner.as_str().unwrap().to_owned()).or_default().push(object.to_string().into_bytes());
    }
    let index = |(name, lines): (String, Vec<Vec<u8>>)| {
        let content = PackageContent::from_metas(&name, lines.iter().map(Vec::as_slice)).unwrap();
        let indexing = Indexing { properties: true, ..Indexing::default() };
        (name, Arc::new(PackageIndex::new(&content, indexing)))
    };
    lines.into_iter().map(index).collect()
}

fn read_objects(folder: &Path, objects: &mut Vec<serde_json::Value>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_objects(&path, objects);
        } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "json") {
            let text = std::fs::read(&path).unwrap();
            objects.extend(olm_yaml::all_from_slice(&text).unwrap());
        }
    }
}

/// Prints to standard output, past the capture of the test runner.
fn say(line: &str) {
    // Ignore a closed standard output.
    let _ = writeln!(std::io::stdout(), "{line}");
}
