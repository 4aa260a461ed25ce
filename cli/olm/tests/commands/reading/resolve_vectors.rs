//! Vector file `resolver_cases.yaml` (format: docs/design/resolution.md#test-vectors), applied to the CLI. Its output
//! for an extension of a cluster must equal what the resolver's own vector test expects of the controller.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use axum::response::IntoResponse;
use serde_json::{Value, json};

use super::cluster::{Cluster, catalog};
use super::fixture::Ran;

/// States of a catalog that exist only in a controller's cache.
const STATES_OF_A_CACHE: [&str; 2] = ["notCached", "fetchFailed"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cli_resolves_resolver_vectors_as_the_controller() {
    let directory = std::env::var_os("OLM_VECTORS_DIR").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors")),
        PathBuf::from,
    );
    let path = directory.join("resolver_cases.yaml");
    let Ok(text) = std::fs::read(&path) else {
        assert!(std::env::var_os("OLM_VECTORS_DIR").is_some(), "{} is missing", path.display());
        return; // A custom vector set may lack files.
    };
    let file = olm_yaml::from_slice(&text).unwrap();
    let (mut passed, mut left_out, mut failures) = (0, 0, Vec::new());
    for case in file["cases"].as_array().unwrap() {
        let state = |one: &Value| one["state"].as_str().unwrap_or_default().to_owned();
        if list(case, "catalogs").any(|one| STATES_OF_A_CACHE.contains(&state(one).as_str())) {
            left_out += 1;
            continue;
        }
        match differences(case, &run(case).await) {
            None => passed += 1,
            Some(differences) => failures.push(format!("  {}: {differences}", case["name"])),
        }
    }
    println!("resolver_cases.yaml: {passed} passed, {} failed, {left_out} left out", failures.len());
    assert!(failures.is_empty(), "failing rows:\n{}", failures.join("\n"));
    assert!(passed > left_out);
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

/// Runs `olm resolve --extension` for a case, in a cluster with its catalogs.
async fn run(case: &Value) -> Ran {
    let mut contents = BTreeMap::new();
    let mut catalogs = Vec::new();
    for described in list(case, "catalogs") {
        let name = described["name"].as_str().unwrap();
        let lines: String = list(described, "fbc").map(|meta| format!("{meta}\n")).collect();
        contents.insert(name.to_owned(), lines);
        let mut object = catalog(name, described["state"] != "notServing");
        object["metadata"]["labels"] =
            described["labels"].as_object().map_or_else(|| json!({}), |labels| json!(labels));
        object["metadata"]["labels"]["olm.operatorframework.io/metadata.name"] = json!(name);
        object["spec"]["priority"] = json!(described["priority"].as_i64().unwrap_or_default());
        if let Some(mode) = described["availabilityMode"].as_str() {
            object["spec"]["availabilityMode"] = json!(mode);
        }
        if described["state"] == "noResolvedSource" {
            object["status"].as_object_mut().unwrap().remove("resolvedSource");
        }
        catalogs.push(object);
    }
    let mut extension = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": { "name": "case" },
        "spec": { "namespace": "ns", "source": { "sourceType": "Catalog", "catalog": case["spec"] } },
    });
    if let Some(installed) = case["installed"].as_object() {
        let mut bundle = json!(installed);
        bundle.as_object_mut().unwrap().remove("image");
        extension["status"] = json!({ "install": { "bundle": bundle } });
    }
    let contents = Arc::new(contents);
    let content = move |name: &str| contents.get(name).cloned().unwrap_or_default().into_response();
    let cluster = Cluster::with_extensions(catalogs, vec![extension], Vec::new(), Vec::new(), content).await;
    let mut args = vec!["resolve", "--extension", "case", "-o", "json"];
    if case["featureGates"]["BundleReleaseSupport"] == true {
        args.extend(["--feature-gates", "BundleReleaseSupport=true"]);
    }
    cluster.olm(&args).await
}

/// Describes the difference between expectation and output. `None` if they are equal.
fn differences(case: &Value, ran: &Ran) -> Option<String> {
    let expected = &case["expect"];
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    let answer = &printed["items"][0];
    let error = ran.stderr.strip_prefix("error: ").unwrap_or_default();
    let same = match expected["outcome"].as_str().unwrap() {
        "resolve" => {
            let fields = ["bundle", "version", "release", "catalog"];
            ran.code == 0 && fields.iter().all(|field| answer["chosen"][field] == expected[field])
        }
        "fallback" => {
            ran.code == 0
                && answer["outcome"] == "Kept"
                && answer["installed"]["bundle"] == expected["bundle"]
                && (expected["error"].is_null() || answer["error"] == expected["error"])
        }
        // An invalid selector is reported without a JSON document.
        _ => ran.code != 0 && error.lines().next() == expected["error"].as_str(),
    };
    (!same).then(|| format!("want {expected}, got code {} {answer} {}", ran.code, ran.stderr))
}
