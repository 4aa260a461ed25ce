//! Static checks of a revision before any request to the cluster (docs/design/apply.md#static-validation).
//!
//! Pure. The text is the reference's error, with all findings in the order of phases and objects.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::content::ContentPhase;
use crate::fields::ambiguous_variable;
use crate::object::{ObjectKey, text};

/// Error in the phases of a revision with all findings, as one line. `None` if they are valid.
pub fn validate(revision: &str, number: i64, phases: &[ContentPhase]) -> Option<String> {
    let duplicates = duplicates(phases);
    let mut findings = Vec::new();
    for phase in phases {
        let mut parts: Vec<String> = phase_name_problem(&phase.name).into_iter().collect();
        let mut reported = BTreeSet::new();
        for content in &phase.objects {
            let key = ObjectKey::of(&content.object);
            let mut problems = object_problems(&content.object);
            problems.extend(ambiguous_variable(&content.object));
            let shown = key.to_string();
            if let Some(phases) = duplicates.get(&key.unversioned())
                && reported.insert(shown.clone())
            {
                let names: Vec<&str> = phases.iter().copied().collect();
                problems.push(format!("duplicate object found in phases: {}", names.join(", ")));
            }
            if !problems.is_empty() {
                parts.push(format!("{shown}: {}", problems.join(", ")));
            }
        }
        if !parts.is_empty() {
            findings.push(phase_error(&phase.name, &parts));
        }
    }
    (!findings.is_empty()).then(|| format!("revision \"{revision}\" ({number}): {}", findings.join(", ")))
}

/// Formats `phase "<name>": <finding>, <finding>`.
pub(crate) fn phase_error(name: &str, findings: &[String]) -> String {
    format!("phase \"{name}\": {}", findings.join(", "))
}

/// Objects that occur more than once, in any API version, with their phases.
fn duplicates(phases: &[ContentPhase]) -> HashMap<ObjectKey, BTreeSet<&str>> {
    let mut found: HashMap<ObjectKey, (usize, BTreeSet<&str>)> = HashMap::new();
    for phase in phases {
        for content in &phase.objects {
            let (count, names) = found.entry(ObjectKey::of(&content.object).unversioned()).or_default();
            *count += 1;
            names.insert(&phase.name);
        }
    }
    found.into_iter().filter(|(_, (count, _))| *count > 1).map(|(key, (_, names))| (key, names)).collect()
}

/// Checks that a phase name is a DNS-1035 label. The API also admits a leading digit.
fn phase_name_problem(name: &str) -> Option<String> {
    let mut problems = Vec::new();
    if name.len() > 63 {
        problems.push("must be no more than 63 characters");
    }
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || name.ends_with('-') || !name.chars().all(inner)
    {
        problems.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
             alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
             regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        );
    }
    (!problems.is_empty()).then(|| format!("phase name invalid: {}", problems.join(", ")))
}

/// Missing required members and forbidden cluster-set members of an object.
fn object_problems(object: &Value) -> Vec<String> {
    let key = ObjectKey::of(object);
    let mut problems = Vec::new();
    for (value, field) in [(&key.gvk.version, "apiVersion"), (&key.gvk.kind, "kind")] {
        if value.is_empty() {
            problems.push(format!("{field}: Required value: must not be empty"));
        }
    }
    let metadata = |field: &str| object.pointer(&format!("/metadata/{field}"));
    let is_text = |field: &str| !text(object, &format!("/metadata/{field}")).is_empty();
    let is_list = |field: &str| metadata(field).and_then(Value::as_array).is_some_and(|l| !l.is_empty());
    for (is_set, field) in [
        (is_text("uid"), "uid"),
        (metadata("generation").and_then(Value::as_i64).is_some_and(|g| g > 0), "generation"),
        (is_text("generateName"), "generateName"),
        (is_list("finalizers"), "finalizers"),
        (is_list("ownerReferences"), "ownerReferences"),
        (is_text("resourceVersion"), "resourceVersion"),
    ] {
        if is_set {
            problems.push(format!("metadata.{field}: Forbidden: must be empty"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn phase(name: &str, objects: Vec<Value>) -> ContentPhase {
        ContentPhase::inline(name, objects)
    }

    fn config_map(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns1"}})
    }

    #[test]
    fn valid_revision_passes() {
        let phases = [phase("a", vec![config_map("x")]), phase("b-2", vec![config_map("y")])];
        assert_eq!(validate("r-1", 1, &phases), None);
    }

    // Case apply-45
    #[test]
    fn phase_name_with_leading_digit_is_invalid() {
        assert_eq!(
            validate("r-1", 1, &[phase("1abc", vec![])]).unwrap(),
            "revision \"r-1\" (1): phase \"1abc\": phase name invalid: a DNS-1035 label must consist of lower case \
             alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric \
             character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
        );
    }

    // Case apply-46
    #[test]
    fn duplicate_object_lists_its_phases() {
        let phases = [phase("b", vec![config_map("x")]), phase("a", vec![config_map("x")])];
        assert_eq!(
            validate("r-1", 1, &phases).unwrap(),
            "revision \"r-1\" (1): \
             phase \"b\": /v1, Kind=ConfigMap ns1/x: duplicate object found in phases: a, b, \
             phase \"a\": /v1, Kind=ConfigMap ns1/x: duplicate object found in phases: a, b"
        );
        let twice = [phase("a", vec![config_map("x"), config_map("x")])];
        assert_eq!(
            validate("r-1", 1, &twice).unwrap(),
            "revision \"r-1\" (1): phase \"a\": /v1, Kind=ConfigMap ns1/x: duplicate object found in phases: a"
        );
    }

    #[test]
    fn object_in_two_api_versions_is_a_duplicate() {
        let scaler = |version: &str| {
            json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": "x", "namespace": "ns1"}})
        };
        assert_eq!(
            validate("r-1", 1, &[phase("a", vec![scaler("v1")]), phase("b", vec![scaler("v2")])]).unwrap(),
            "revision \"r-1\" (1): \
             phase \"a\": autoscaling/v1, Kind=HorizontalPodAutoscaler ns1/x: duplicate object found in phases: a, b, \
             phase \"b\": autoscaling/v2, Kind=HorizontalPodAutoscaler ns1/x: duplicate object found in phases: a, b"
        );
        let mut other = scaler("v2");
        other["apiVersion"] = json!("other.example/v2");
        assert_eq!(validate("r-1", 1, &[phase("a", vec![scaler("v1"), other])]), None);
    }

    // Case apply-47
    #[test]
    fn cluster_set_fields_are_forbidden() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "x", "namespace": "ns1", "uid": "u", "generation": 1, "generateName": "g",
            "finalizers": ["f"], "ownerReferences": [{}], "resourceVersion": "1"}});
        let fields =
            ["uid", "generation", "generateName", "finalizers", "ownerReferences", "resourceVersion"];
        let expected: Vec<_> =
            fields.iter().map(|f| format!("metadata.{f}: Forbidden: must be empty")).collect();
        assert_eq!(
            validate("r-1", 1, &[phase("a", vec![object])]).unwrap(),
            format!("revision \"r-1\" (1): phase \"a\": /v1, Kind=ConfigMap ns1/x: {}", expected.join(", "))
        );
        assert_eq!(
            validate("r-1", 1, &[phase("a", vec![json!({})])]).unwrap(),
            "revision \"r-1\" (1): phase \"a\": /, Kind= /: apiVersion: Required value: must not be empty, \
             kind: Required value: must not be empty"
        );
    }
}
