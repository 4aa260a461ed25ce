//! Vector files of the version languages: `masterminds.json`, `blang_ranges.json`, `version_order.json` (formats:
//! docs/design/resolution.md#test-vectors). Covers case resolution-63.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::PathBuf;

use olm_version::{Constraint, ConstraintError, Range, RangeError, Version, VersionRelease};
use serde_json::{Value, json};

fn rows(file: &str) -> Vec<Value> {
    let directory = std::env::var_os("OLM_VECTORS_DIR").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors")),
        PathBuf::from,
    );
    let path = directory.join(file);
    if std::env::var_os("OLM_VECTORS_DIR").is_some() && !path.exists() {
        return Vec::new(); // other sets of vectors may lack files
    }
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Runs every row of a file, then fails with a list of all failures.
fn run(file: &str, check: impl Fn(&Value) -> Result<(), String>) {
    let rows = rows(file);
    let failures: Vec<_> =
        rows.iter().filter_map(|row| Some(format!("  {row}\n    {}", check(row).err()?))).collect();
    say(&format!("{file}: {} passed, {} failed", rows.len() - failures.len(), failures.len()));
    assert!(failures.is_empty(), "{file}, failing rows:\n{}", failures.join("\n"));
}

fn expect(what: &str, got: &Value, expected: &Value) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("{what}: got {got}, want {expected}")) }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is not a string in {value}"))
}

fn version(row: &Value) -> Version {
    Version::parse(text(row, "version")).unwrap()
}

#[test]
fn masterminds_constraints_match_vectors() {
    run("masterminds.json", |row| match Constraint::parse(text(row, "constraint")) {
        Ok(constraint) if row.get("match").is_some() => {
            expect("match", &json!(constraint.matches(&version(row))), &row["match"])
        }
        Ok(constraint) => Err(format!("accepted as {constraint:?}")),
        Err(error) => {
            let class = match error {
                ConstraintError::Improper(_) => "improper_constraint",
                ConstraintError::Parser => "parser_error",
                ConstraintError::TooLong => "too_long",
                ConstraintError::TooManyGroups => "too_many_groups",
            };
            expect("error", &json!(class), &row["error"])?;
            expect("message", &json!(error.to_string()), &row["message"])
        }
    });
}

#[test]
fn blang_ranges_match_vectors() {
    run("blang_ranges.json", |row| {
        match Range::parse(text(row, "range")) {
            Ok(range) if row.get("match").is_some() => {
                expect("match", &json!(range.contains(&version(row))), &row["match"])
            }
            Ok(range) => Err(format!("accepted as {range:?}")),
            Err(error) => {
                let class = match error {
                    RangeError::LeadingOr => "leading_or",
                    RangeError::EmptyOrTrailingOr => "empty_or_trailing_or",
                    RangeError::NoVersion(_) => "no_version",
                    RangeError::BadComparator { .. } => "bad_comparator",
                    RangeError::BadVersion { .. } => "bad_version",
                    RangeError::EmptyGroup => "empty_group",
                };
                expect("error", &json!(class), &row["error"])?;
                match &error {
                    RangeError::EmptyGroup => Ok(()),
                    // Messages are not binding for other implementations. Ours equal the reference's.
                    _ => expect("message", &json!(error.to_string()), &row["message"]),
                }
            }
        }
    });
}

#[test]
fn version_order_matches_vectors() {
    run("version_order.json", |row| {
        let gate = row["gate"].as_bool().unwrap();
        let parse = |side: &str| {
            let property = &row[side];
            let release = property.get("release").and_then(Value::as_str).filter(|_| gate);
            VersionRelease::parse(text(property, "version"), release)
        };
        let (a, b) = (parse("a"), parse("b"));
        for (side, got) in [("a_parsed", &a), ("b_parsed", &b)] {
            let got = match got {
                Ok(read) => {
                    let (version, release) = read.shown(gate);
                    let mut status = json!({ "version": version });
                    if let Some(release) = release {
                        status["release"] = json!(release);
                    }
                    json!({
                        "version": read.version().to_string(),
                        "release": read.release().map(|release| release.as_str()),
                        "status": status,
                    })
                }
                Err(error) => json!({ "error": error.to_string() }),
            };
            expect(side, &got, &row[side])?;
        }
        // An unreadable version is below all others and equal to itself, like `None` in the order of `Option`.
        let order = a.ok().cmp(&b.ok()) as i8;
        expect("cmp", &json!(order), &row["cmp"])
    });
}

/// Prints to standard output, past the capture of the test runner.
fn say(line: &str) {
    use std::io::Write;
    // Ignore a closed standard output.
    let _ = writeln!(std::io::stdout(), "{line}");
}
