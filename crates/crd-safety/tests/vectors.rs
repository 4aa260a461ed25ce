//! Runs the vector file `crd_safety.yaml` (format: README-apply.md beside it).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::PathBuf;

use olm_crd_safety::{CrdFinding, check, error_text};
use serde_json::Value;

#[test]
fn crd_safety_vectors_match() {
    let directory = std::env::var_os("OLM_VECTORS_DIR").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors")),
        PathBuf::from,
    );
    let path = directory.join("crd_safety.yaml");
    if std::env::var_os("OLM_VECTORS_DIR").is_some() && !path.exists() {
        return say("crd_safety.yaml: 0 passed, 0 failed"); // other vector sets may lack this file
    }
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = olm_yaml::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let cases = file["cases"].as_array().unwrap();
    let failed = |case: &Value| {
        let fault = fault(case)?;
        Some(format!("  {}: {fault}", case["name"]))
    };
    let failures: Vec<_> = cases.iter().filter_map(failed).collect();
    say(&format!("crd_safety.yaml: {} passed, {} failed", cases.len() - failures.len(), failures.len()));
    assert!(failures.is_empty(), "crd_safety.yaml, failing rows:\n{}", failures.join("\n"));
}

/// Difference between expected and actual findings, if any.
fn fault(case: &Value) -> Option<String> {
    let live = (!case["old"].is_null()).then_some(&case["old"]);
    let findings = match check(live, &case["new"]) {
        Ok(findings) => findings,
        Err(error) => return Some(error.to_string()),
    };
    let name = case["new"]["metadata"]["name"].as_str().unwrap();
    let lines: Vec<_> = findings.iter().map(ToString::to_string).collect();
    let whole = format!("validating upgrade for CRD \"{name}\": {}", lines.join("\n"));
    if error_text(name, &findings) != whole {
        return Some(format!("the error is {}", error_text(name, &findings)));
    }
    let mut got = findings.iter().peekable();
    for expected in case["expect"].as_array().into_iter().flatten() {
        if got.next_if(|finding| is(finding, expected)).is_none() && expected["may_omit"] != true {
            return Some(format!("want {expected}, got {:?}", got.peek()));
        }
    }
    got.next().map(|finding| format!("unexpected {finding:?}"))
}

fn is(finding: &CrdFinding, expected: &Value) -> bool {
    let line = finding.to_string();
    finding.section.as_str() == expected["section"]
        && finding.version.as_deref() == expected["version"].as_str()
        && finding.property.as_deref() == expected["property"].as_str()
        && finding.check == expected["check"]
        && match expected["prefix"].as_str() {
            Some(prefix) => line.starts_with(prefix),
            None => line == expected["line"],
        }
}

/// Prints past the output capture of the test runner.
fn say(line: &str) {
    use std::io::Write;
    // A closed standard output is ignored.
    let _ = writeln!(std::io::stdout(), "{line}");
}
