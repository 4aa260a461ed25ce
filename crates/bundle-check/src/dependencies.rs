//! Dependencies: `metadata/dependencies.yaml`, required APIs of the ClusterServiceVersion, and properties that
//! state a requirement (docs/design/resolution.md#dependencies, docs/design/additions.md#dependency-sources,
//! docs/design/additions.md#constraint-grammar, docs/design/cli.md#lint-rules).

use std::collections::BTreeSet;

use olm_bundle::pointer::text;
use olm_fbc::Property;
use olm_resolve::{DEPENDENCY_PROPERTIES, Gvk, Requirement};
use olm_version::{Range, Version, quote};
use serde_json::{Value, json};

use crate::content::{Content, Object};
use crate::manifests::group_of;
use crate::metadata::{Entry, listed};
use crate::report::{Findings, Location};
use crate::rule;

pub(crate) const DEPENDENCIES_FILE: &str = "metadata/dependencies.yaml";

/// Conditions of an `olm.constraint`, in order of precedence.
const CONDITIONS: [&str; 6] = ["gvk", "package", "all", "any", "not", "cel"];

/// Checks all dependencies of the bundle.
pub(crate) fn dependencies(content: &Content<'_>, findings: &mut Findings) {
    let dependencies = listed(content.files, DEPENDENCIES_FILE, "dependencies", &rule::DEP_5, findings);
    let mut declared: Vec<(&'static str, Location)> = Vec::new();
    for dependency in &dependencies {
        let kind = file_dependency(dependency, findings);
        declared.extend(kind.map(|kind| (kind, dependency.location.clone())));
    }
    for property in content.properties.iter().filter(|property| !property.value.is_null()) {
        let kind = DEPENDENCY_PROPERTIES.into_iter().find(|kind| *kind == property.kind);
        if let Some(kind) = kind {
            requirement(property, kind, &property.value, findings);
            declared.push((kind, property.location.clone()));
        }
    }
    let kinds: Vec<&str> = dependencies.iter().map(|dependency| dependency.kind.as_str()).collect();
    if kinds.contains(&"olm.package") && kinds.contains(&"olm.gvk") {
        let message = "a package and an API are two dependencies, which two bundles may satisfy: if one bundle must satisfy both, \
                    write one olm.constraint with all";
        findings.add(&rule::DEP_3, Location::document(DEPENDENCIES_FILE).at("dependencies"), message);
    }
    if let Some(csv) = content.csv() {
        declared.extend(required_apis(csv, &dependencies, findings));
        unsupported(csv, &declared, findings);
    }
}

/// Checks a dependency of the file. Returns the type of the property that catalogs derive from it.
fn file_dependency(dependency: &Entry, findings: &mut Findings) -> Option<&'static str> {
    let value = |field: &str| text(&dependency.value, &format!("/{field}"));
    let mut missing = |fields: &[&str]| {
        let mut is_missing = false;
        for field in fields.iter().filter(|field| value(field).is_empty()) {
            let location = dependency.at("value").at(field);
            findings.add(
                &rule::DEP_6,
                location,
                format!("{} needs the string field {field}", dependency.kind),
            );
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
            let message = format!("unknown type {}; allowed: {allowed}", quote(other));
            findings.add(&rule::DEP_5, dependency.at("type"), message);
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
        let message = "the olm.constraint has more than 65536 bytes, the limit that the product documents";
        findings.add(&rule::DEP_7, entry.at("value"), message);
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
            let message =
                format!("only {first} is evaluated, {rest} is ignored: combine conditions with all");
            findings.add(&rule::DEP_8, entry.at(&path), message);
        }
        if given.first() == Some(&"not") && !inside_all {
            let message = "`not` without `all` requires any other bundle: put it into an all, together with the required condition";
            findings.add(&rule::DEP_4, entry.at(&format!("{path}.not")), message);
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
    let Some(highest) = majors.last() else { return };
    let mut tried =
        majors.iter().flat_map(|major| [major.saturating_sub(1), *major, major.saturating_add(1)]);
    if !tried.any(reaches_next) {
        let next = highest.saturating_add(1);
        let message = format!(
            "the range {} ends before {next}.0.0: it excludes later updates of the package",
            quote(range)
        );
        findings.add(&rule::DEP_2, dependency.at("value.version"), message);
    }
}

/// Major versions named in a range.
fn majors(range: &str) -> BTreeSet<u64> {
    let tokens = range.split(|c: char| c.is_whitespace() || "<>=!|".contains(c));
    tokens.filter_map(|token| token.split('.').next()?.parse().ok()).collect()
}

/// Checks the required APIs of the ClusterServiceVersion. Catalogs derive a dependency from each.
fn required_apis(
    csv: &Object,
    dependencies: &[Entry],
    findings: &mut Findings,
) -> Vec<(&'static str, Location)> {
    let stated: BTreeSet<Gvk> = dependencies
        .iter()
        .filter(|dependency| dependency.kind == "olm.gvk")
        .map(|dependency| gvk(&dependency.value, text(&dependency.value, "/group")))
        .collect();
    let mut declared = Vec::new();
    for list in ["customresourcedefinitions", "apiservicedefinitions"] {
        for (location, api) in csv.items(&format!("spec.{list}.required")) {
            declared.push(("olm.gvk.required", location.clone()));
            let group = match list {
                "customresourcedefinitions" => group_of(text(api, "/name")),
                _ => text(api, "/group"),
            };
            let api = gvk(api, group);
            if !dependencies.is_empty() && !stated.contains(&api) {
                let message = format!("{DEPENDENCIES_FILE} has no olm.gvk dependency on {api}");
                findings.add(&rule::DEP_1, location, message);
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
fn unsupported(csv: &Object, declared: &[(&'static str, Location)], findings: &mut Findings) {
    for kind in DEPENDENCY_PROPERTIES {
        let Some((_, location)) = declared.iter().find(|(declared, _)| *declared == kind) else { continue };
        let message = format!(
            "with --dependency-mode=Reject, the default, the bundle cannot be installed: bundle {} has a dependency declared via \
             property {} which is currently not supported",
            quote(csv.name()),
            quote(kind)
        );
        findings.add(&rule::V1_1, location.clone(), message);
    }
}
