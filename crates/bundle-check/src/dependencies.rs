//! Dependencies: `metadata/dependencies.yaml`, required APIs of the ClusterServiceVersion, and properties that
//! state a requirement (docs/design/resolution.md#dependencies, docs/design/additions.md#dependency-sources,
//! docs/design/additions.md#constraint-grammar, docs/design/additions.md#lint-rules).

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::text;
use olm_fbc::Property;
use olm_resolve::{DEPENDENCY_PROPERTIES, Gvk, Requirement};
use olm_version::{Range, Version, quote};
use serde_json::{Value, json};

use crate::content::{Content, Object};
use crate::findings::Findings;
use crate::place::Place;
use crate::properties::{Entry, listed};
use crate::rule;

const DEPENDENCIES_FILE: &str = "metadata/dependencies.yaml";

/// Conditions of an `olm.constraint`, in order of precedence.
const CONDITIONS: [&str; 6] = ["gvk", "package", "all", "any", "not", "cel"];

/// Checks all dependencies of the bundle. `properties` are its well-formed properties.
pub(crate) fn check(
    files: &BTreeMap<String, Vec<u8>>,
    content: &Content,
    properties: &[Entry],
    findings: &mut Findings,
) {
    let dependencies = listed(files, DEPENDENCIES_FILE, "dependencies", &rule::DEP_5, findings);
    let mut declared: Vec<(&'static str, Place)> = Vec::new();
    for dependency in &dependencies {
        declared.extend(of_file(dependency, findings).map(|kind| (kind, dependency.place.clone())));
    }
    for property in properties.iter().filter(|property| !property.value.is_null()) {
        let kind = DEPENDENCY_PROPERTIES.into_iter().find(|kind| *kind == property.kind);
        if let Some(kind) = kind {
            requirement(property, kind, &property.value, findings);
            declared.push((kind, property.place.clone()));
        }
    }
    let kinds: Vec<&str> = dependencies.iter().map(|dependency| dependency.kind.as_str()).collect();
    if kinds.contains(&"olm.package") && kinds.contains(&"olm.gvk") {
        let what = "a package and an API are two dependencies, which two bundles may meet: where one bundle has to meet both, \
                    write one olm.constraint with all";
        findings.add(&rule::DEP_3, Place::document(DEPENDENCIES_FILE).at("dependencies"), what);
    }
    if let Some(csv) = content.service_version() {
        declared.extend(required(csv, &dependencies, findings));
        refused(csv, &declared, findings);
    }
}

/// Checks a dependency of the file. Returns the type of the property that catalogs derive from it.
fn of_file(dependency: &Entry, findings: &mut Findings) -> Option<&'static str> {
    let value = |field: &str| text(&dependency.value, &format!("/{field}"));
    let mut missing = |fields: &[&str]| {
        let mut is_missing = false;
        for field in fields.iter().filter(|field| value(field).is_empty()) {
            let place = dependency.at("value").at(field);
            findings.add(&rule::DEP_6, place, format!("{} needs the text {field}", dependency.kind));
            is_missing = true;
        }
        is_missing
    };
    match dependency.kind.as_str() {
        "olm.package" => {
            if !missing(&["packageName", "version"]) {
                let range = value("version");
                let property = json!({"packageName": value("packageName"), "versionRange": range});
                if requirement(dependency, "olm.package.required", &property, findings) {
                    tight_range(dependency, range, findings);
                }
            }
            Some("olm.package.required")
        }
        "olm.gvk" => {
            missing(&["group", "version", "kind"]);
            Some("olm.gvk.required")
        }
        "olm.label" => {
            missing(&["label"]);
            None
        }
        "olm.constraint" => {
            requirement(dependency, "olm.constraint", &dependency.value, findings);
            Some("olm.constraint")
        }
        other => {
            let allowed = "olm.package, olm.gvk, olm.label and olm.constraint";
            let what = format!("unknown type {}: allowed are {allowed}", quote(other));
            findings.add(&rule::DEP_5, dependency.at("type"), what);
            None
        }
    }
}

/// Checks the requirement that a property of this type and value states, with the parser of the resolver. `false`
/// if it is unusable.
fn requirement(entry: &Entry, kind: &str, value: &Value, findings: &mut Findings) -> bool {
    let Ok(raw) = serde_json::value::to_raw_value(value) else { return false };
    let Some(requirement) = Requirement::parse(&Property { kind: kind.to_string(), value: raw }) else {
        return false;
    };
    if let Some(fault) = requirement.fault() {
        let hint = fault.hint().map(|hint| format!(": {hint}")).unwrap_or_default();
        findings.add(&rule::DEP_6, entry.at("value"), format!("{fault}{hint}"));
        return false;
    }
    if requirement.is_large() {
        let what = "the olm.constraint has more than 65536 bytes, the limit that the product documents";
        findings.add(&rule::DEP_7, entry.at("value"), what);
    }
    if kind == "olm.constraint" {
        conditions(entry, value, findings);
    }
    true
}

/// Checks the conditions of a constraint, outermost first.
fn conditions(entry: &Entry, value: &Value, findings: &mut Findings) {
    let mut open: Vec<(&Value, String, bool)> = vec![(value, "value".to_string(), false)];
    while let Some((constraint, path, inside_all)) = open.pop() {
        let given =
            CONDITIONS.into_iter().filter(|name| constraint.get(name).is_some_and(|value| !value.is_null()));
        let given: Vec<&str> = given.collect();
        if let [first, rest @ ..] = given.as_slice()
            && !rest.is_empty()
        {
            let rest = rest.join(", ");
            let what = format!("only {first} counts, {rest} is ignored: combine conditions with all");
            findings.add(&rule::DEP_8, entry.at(&path), what);
        }
        if given.first() == Some(&"not") && !inside_all {
            let what =
                "`not` without `all` asks for any other bundle: put it into an all, beside what is wanted";
            findings.add(&rule::DEP_4, entry.at(&format!("{path}.not")), what);
        }
        for name in ["all", "any", "not"] {
            let members = constraint.get(name).and_then(|compound| compound.get("constraints"));
            let members = members.and_then(Value::as_array).into_iter().flatten().enumerate();
            open.extend(members.map(|(index, member)| {
                (member, format!("{path}.{name}.constraints.{index}"), name == "all")
            }));
        }
    }
}

/// Warns of a range that ends before the next major version.
fn tight_range(dependency: &Entry, range: &str, findings: &mut Findings) {
    let Ok(parsed) = Range::parse(range) else { return };
    let reaches_next = |major: u64| {
        Version::parse(&format!("{major}.999999.999999")).is_ok_and(|version| parsed.contains(&version))
    };
    let majors = majors(range);
    let Some(highest) = majors.iter().copied().max() else { return };
    let mut tried =
        majors.iter().flat_map(|major| [major.saturating_sub(1), *major, major.saturating_add(1)]);
    if !tried.any(reaches_next) {
        let next = highest.saturating_add(1);
        let what = format!(
            "the range {} ends before {next}.0.0: later updates of the package are kept out",
            quote(range)
        );
        findings.add(&rule::DEP_2, dependency.at("value.version"), what);
    }
}

/// Major versions named in a range.
fn majors(range: &str) -> BTreeSet<u64> {
    let tokens = range.split(|c: char| c.is_whitespace() || "<>=!|".contains(c));
    tokens.filter_map(|token| token.split('.').next()?.parse().ok()).collect()
}

/// Checks the required APIs of the ClusterServiceVersion. Catalogs derive a dependency from each.
fn required(csv: &Object, dependencies: &[Entry], findings: &mut Findings) -> Vec<(&'static str, Place)> {
    let stated: BTreeSet<Gvk> = dependencies
        .iter()
        .filter(|dependency| dependency.kind == "olm.gvk")
        .map(|dependency| gvk(&dependency.value, text(&dependency.value, "/group")))
        .collect();
    let mut declared = Vec::new();
    for list in ["customresourcedefinitions", "apiservicedefinitions"] {
        for (index, api) in csv.list(&format!("/spec/{list}/required")).iter().enumerate() {
            let place = csv.at(&format!("spec.{list}.required.{index}"));
            declared.push(("olm.gvk.required", place.clone()));
            let group = match list {
                "customresourcedefinitions" => {
                    text(api, "/name").split_once('.').map_or("", |(_, group)| group)
                }
                _ => text(api, "/group"),
            };
            let api = gvk(api, group);
            if !dependencies.is_empty() && !stated.contains(&api) {
                let what = format!("{DEPENDENCIES_FILE} has no olm.gvk dependency on {api}");
                findings.add(&rule::DEP_1, place, what);
            }
        }
    }
    declared
}

fn gvk(value: &Value, group: &str) -> Gvk {
    Gvk {
        group: group.to_string(),
        version: text(value, "/version").to_string(),
        kind: text(value, "/kind").to_string(),
    }
}

/// Adds a finding per type of dependency: operator-controller refuses the bundle in mode Reject.
fn refused(csv: &Object, declared: &[(&'static str, Place)], findings: &mut Findings) {
    for kind in DEPENDENCY_PROPERTIES {
        let Some((_, place)) = declared.iter().find(|(declared, _)| *declared == kind) else { continue };
        let what = format!(
            "with --dependency-mode=Reject, the default, nobody can install it: bundle {} has a dependency declared via \
             property {} which is currently not supported",
            quote(csv.name()),
            quote(kind)
        );
        findings.add(&rule::V1_1, place.clone(), what);
    }
}
