//! Vector file `resolver_cases.yaml` (format: docs/design/resolution.md#test-vectors).
//!
//! Every case runs with its catalogs in the order of the file and in reverse. The result must be the same.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod fixture;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use olm_fbc::PackageContent;
use olm_resolve::{
    Catalog, CatalogError, CatalogSelector, ConditionState, DeprecationConditions, Expression, Indexing,
    Installed, PackageIndex, Request, ResolveError, Rules, UpgradePolicy, resolve,
};
use serde_json::{Value, json};

#[test]
fn resolver_cases_match_vectors() {
    let directory = std::env::var_os("OLM_VECTORS_DIR").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors")),
        PathBuf::from,
    );
    let path = directory.join("resolver_cases.yaml");
    if std::env::var_os("OLM_VECTORS_DIR").is_some() && !path.exists() {
        return say("resolver_cases.yaml: 0 passed, 0 failed"); // other sets of vectors may lack files
    }
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = olm_yaml::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let cases = file["cases"].as_array().unwrap();
    let mut failures = Vec::new();
    for case in cases {
        let forward: Vec<_> = list(case, "catalogs").collect();
        let backward: Vec<_> = forward.iter().rev().copied().collect();
        for (order, catalogs) in [("as listed", forward), ("reversed", backward)] {
            let got = run(case, &catalogs);
            if let Some(differences) = differences(&case["expect"], &got) {
                failures.push(format!("  {}, catalogs {order}: {differences}", case["name"]));
                break;
            }
        }
    }
    say(&format!("resolver_cases.yaml: {} passed, {} failed", cases.len() - failures.len(), failures.len()));
    assert!(failures.is_empty(), "resolver_cases.yaml, failing rows:\n{}", failures.join("\n"));
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value[key].as_str()
}

fn texts(value: &Value, key: &str) -> Vec<String> {
    list(value, key).map(|item| item.as_str().unwrap().to_owned()).collect()
}

fn pairs(value: &Value) -> BTreeMap<String, String> {
    let map = value.as_object().into_iter().flatten();
    map.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect()
}

/// Differences between the expectation, of which every member is compared, and the outcome.
fn differences(expected: &Value, got: &Value) -> Option<String> {
    let faults = |expected: &Value, got: &Value| -> Vec<String> {
        let members = expected.as_object().unwrap().iter().filter(|(key, _)| *key != "conditions");
        members
            .filter(|(key, value)| got[key] != **value)
            .map(|(key, value)| format!("{key}: got {}, want {value};", got[key]))
            .collect()
    };
    let mut all = faults(expected, got);
    if expected["conditions"].is_object() {
        all.extend(faults(&expected["conditions"], &got["conditions"]));
    }
    (!all.is_empty()).then(|| all.join(" "))
}

/// Resolves a case like a controller and converts the outcome to the format of the expectation.
fn run(case: &Value, catalogs: &[&Value]) -> Value {
    let spec = &case["spec"];
    let installed = &case["installed"];
    let channels = texts(spec, "channels");
    let request = Request {
        package: text(spec, "packageName").unwrap(),
        channels: &channels,
        version: text(spec, "version"),
        policy: match text(spec, "upgradeConstraintPolicy") {
            Some("SelfCertified") => UpgradePolicy::SelfCertified,
            _ => UpgradePolicy::CatalogProvided,
        },
        installed: installed.is_object().then(|| Installed {
            name: text(installed, "name").unwrap(),
            version: text(installed, "version").unwrap(),
            release: text(installed, "release"),
        }),
        rules: Rules::default(),
    };
    let gate = case["featureGates"]["BundleReleaseSupport"].as_bool().unwrap_or_default();
    let selected = select(&spec["selector"], catalogs);
    let exists = selected.as_ref().map_or(true, |selected| !selected.is_empty());
    let resolution = selected.and_then(|selected| {
        let available = selected.iter().filter(|c| text(c, "availabilityMode") != Some("Unavailable"));
        let catalogs: Vec<_> = available.map(|c| catalog(c, request.package, gate)).collect();
        let result = resolve(&request, &catalogs);
        fixture::check_explanation(&request, &catalogs, &result);
        result
    });
    let data = resolution.as_ref().ok().map(|resolved| resolved.deprecations().clone());
    let conditions = DeprecationConditions::new(data.as_ref(), &channels, text(installed, "name"));

    let mut got = match resolution {
        Ok(resolved) => {
            let (version, release) = resolved.version.shown(gate);
            let mut got = json!({
                "outcome": "resolve",
                "bundle": resolved.bundle,
                "version": version,
                "catalog": resolved.catalog,
            });
            if let Some(release) = release {
                got["release"] = release.into();
            }
            got
        }
        Err(error) if request.keeps_installed(exists) => {
            let mut got = installed.clone();
            got["outcome"] = "fallback".into();
            got["bundle"] = installed["name"].clone();
            got["error"] = error.to_string().into();
            got
        }
        Err(error) => json!({"outcome": "retry", "error": error.to_string()}),
    };
    got["conditions"] = shown_conditions(conditions, installed, &got);
    got
}

/// Conditions after the step. Those other than deprecation follow from the outcome
/// (docs/design/api.md#clusterextension-conditions).
fn shown_conditions(deprecation: DeprecationConditions, installed: &Value, got: &Value) -> Value {
    let state = |state: ConditionState| {
        let status = match state.status {
            None => "Unknown",
            Some(true) => "True",
            Some(false) => "False",
        };
        json!({"status": status, "reason": state.reason, "message": state.message})
    };
    let mut shown = json!({
        "Deprecated": state(deprecation.any),
        "PackageDeprecated": state(deprecation.package),
        "ChannelDeprecated": state(deprecation.channel),
        "BundleDeprecated": state(deprecation.bundle),
        "Installed": match text(installed, "image") {
            Some(image) => json!({
                "status": "True",
                "reason": "Succeeded",
                "message": format!("Installed bundle {image} successfully"),
            }),
            None => json!({"status": "False", "reason": "Failed", "message": "No bundle installed"}),
        },
    });
    if got["outcome"] == "retry" {
        shown["Progressing"] = json!({"status": "True", "reason": "Retrying", "message": got["error"]});
    }
    shown
}

/// Catalogs that match the selector, whatever their state.
fn select<'a>(selector: &Value, catalogs: &[&'a Value]) -> Result<Vec<&'a Value>, ResolveError> {
    let labels = pairs(&selector["matchLabels"]);
    let values: Vec<_> = list(selector, "matchExpressions").map(|e| texts(e, "values")).collect();
    let expressions = list(selector, "matchExpressions").zip(&values).map(|(e, values)| Expression {
        key: text(e, "key").unwrap(),
        operator: text(e, "operator").unwrap(),
        values,
    });
    let selector = CatalogSelector::new(&labels, expressions)?;
    let matches = |catalog: &&&Value| {
        let mut labels = pairs(&catalog["labels"]);
        labels.insert("olm.operatorframework.io/metadata.name".to_owned(), name(catalog));
        selector.matches(&labels)
    };
    Ok(catalogs.iter().filter(matches).copied().collect())
}

fn name(catalog: &Value) -> String {
    text(catalog, "name").unwrap().to_owned()
}

fn catalog(catalog: &Value, package: &str, gate: bool) -> Catalog {
    let answer = match text(catalog, "state").unwrap_or("serving") {
        "serving" => content(list(catalog, "fbc"), package, gate),
        "notServing" => Err(CatalogError::NotServing(name(catalog))),
        "notCached" => Err(CatalogError::NotCached(name(catalog))),
        "noResolvedSource" => Err(CatalogError::NoResolvedSource(name(catalog))),
        "fetchFailed" => Err(CatalogError::Cache {
            catalog: name(catalog),
            fault: text(catalog, "fetchError").unwrap_or_default().to_owned(),
        }),
        state => panic!("unknown state {state:?} of catalog {}", catalog["name"]),
    };
    let priority = catalog["priority"].as_i64().unwrap_or_default().try_into().unwrap();
    Catalog { name: name(catalog), priority, package: answer }
}

fn content<'a>(
    metas: impl Iterator<Item = &'a Value>,
    package: &str,
    gate: bool,
) -> Result<Option<Arc<PackageIndex>>, CatalogError> {
    let lines: Vec<_> = metas.map(|meta| meta.to_string().into_bytes()).collect();
    let content = PackageContent::from_metas(package, lines.iter().map(Vec::as_slice))
        .map_err(|fault| CatalogError::Package { package: package.to_owned(), fault: fault.to_string() })?;
    Ok((!content.is_empty()).then(|| {
        Arc::new(PackageIndex::new(&content, Indexing { release_support: gate, ..Indexing::default() }))
    }))
}

/// Prints to standard output, past the capture of the test runner.
fn say(line: &str) {
    use std::io::Write;
    // Ignore a closed standard output.
    let _ = writeln!(std::io::stdout(), "{line}");
}
