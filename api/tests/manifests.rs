//! Compares `manifests/crds` and `manifests/operator-conditions.yaml` with the output of the generator.

// Tests and their helpers fail by panicking.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn files(directory: &Path) -> BTreeMap<String, String> {
    fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
        .collect()
}

#[test]
fn checked_in_crds_match_the_generator() {
    let generated = tempfile::tempdir().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_generate-crds")).arg(generated.path()).status().unwrap();
    assert!(status.success());

    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests");
    let single = |directory: &Path| fs::read_to_string(directory.join("operator-conditions.yaml")).unwrap();
    let is_current = single(&manifests) == single(generated.path());
    assert!(is_current, "manifests/operator-conditions.yaml is stale; run hack/generate");
    let checked_in = files(&manifests.join("crds"));
    let generated = files(&generated.path().join("crds"));
    assert_eq!(checked_in.keys().collect::<Vec<_>>(), generated.keys().collect::<Vec<_>>());
    for (name, content) in generated {
        assert!(checked_in[&name] == content, "manifests/crds/{name} is stale; run hack/generate");
    }
}

/// Paths of the fields without description. The API server describes `metadata` of the object itself.
fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if field["description"].as_str().unwrap_or_default().is_empty() && path != ".metadata" {
            found.push(path.clone());
        }
        undescribed(field, &path, found);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            undescribed(&schema[inner], &format!("{path}[]"), found);
        }
    }
}

#[test]
fn kubectl_explain_has_a_text_for_every_field() {
    let mut count = 0;
    for crd in olm_api::crds::crds().into_iter().chain([olm_api::crds::operator_condition()]) {
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let schema = &version["schema"]["openAPIV3Schema"];
            let mut found = Vec::new();
            undescribed(schema, "", &mut found);
            let name = &crd["metadata"]["name"];
            assert!(found.is_empty(), "{name}: no description of {found:?}");
            assert!(!schema["description"].as_str().unwrap_or_default().is_empty(), "{name}");
            count += 1;
        }
    }
    assert!(count >= 6, "{count} schemas");
}
