//! Formats of the result: table, JSON and YAML documents, SARIF for code scanning, JUnit for test reports.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::ValueEnum;
use olm_cli_core::error::CliError;
use olm_cli_core::output::{Format, Output, Table, counted, json as json_text, xml};
use serde::Serialize;
use serde_json::{Value, json};

use super::finding::{Finding, Place, rules};

/// Output format of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum VerifyFormat {
    /// Human-readable
    Table,
    /// Machine-readable
    Json,
    /// Machine-readable
    Yaml,
    /// Static analysis results (SARIF 2.1.0), for code scanning
    Sarif,
    /// Test report, one test case for each bundle
    Junit,
}

/// Result of the command.
#[derive(Debug, Serialize)]
pub(super) struct Verification {
    /// Catalog as given.
    pub(super) catalog: String,
    pub(super) passed: bool,
    /// Number of checked packages, bundles and images.
    pub(super) packages: usize,
    pub(super) bundles: usize,
    pub(super) images: usize,
    /// Images that passed in an earlier run, according to the state file.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) resumed: usize,
    pub(super) findings: Vec<Finding>,
    /// Bundle names by package, for the test report.
    #[serde(skip)]
    pub(super) names: BTreeMap<String, Vec<String>>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Prints the result.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn print(
    verification: &Verification,
    format: VerifyFormat,
    output: &mut Output,
) -> Result<(), CliError> {
    let format = match format {
        VerifyFormat::Table => Format::Table,
        VerifyFormat::Json => Format::Json,
        VerifyFormat::Yaml => Format::Yaml,
        VerifyFormat::Sarif => return output.text(&json_text(&sarif(verification))?),
        VerifyFormat::Junit => return output.text(&junit(verification)),
    };
    output.result(format, "CatalogVerification", verification, table)
}

/// Message with the image, and the position if it is the only information on the place.
fn message(finding: &Finding) -> String {
    let Place { package, image, origin, .. } = &finding.place;
    match origin {
        _ if !image.is_empty() => format!("{image}: {}", finding.message),
        Some(origin) if package.is_empty() => format!("{origin}: {}", finding.message),
        _ => finding.message.clone(),
    }
}

fn table(verification: &Verification) -> String {
    let mut text = String::new();
    if !verification.findings.is_empty() {
        let mut table = Table::new(&["RULE", "PACKAGE", "BUNDLE", "FINDING"]);
        for finding in &verification.findings {
            table.row([finding.rule.id, &finding.place.package, &finding.place.bundle, &message(finding)]);
        }
        text = table.text() + "\n";
    }
    let Verification { catalog, packages, bundles, images, resumed, findings, .. } = verification;
    let resumed = if *resumed > 0 { format!(" ({resumed} passed in an earlier run)") } else { String::new() };
    let images = counted(*images, "image") + &resumed;
    let checked = [counted(*packages, "package"), counted(*bundles, "bundle"), images].join(", ");
    let found =
        if findings.is_empty() { "no findings".to_owned() } else { counted(findings.len(), "finding") };
    text + &format!("{catalog}: {checked}: {found}\n")
}

/// Static analysis results. Positions are relative to the root of the catalog.
fn sarif(verification: &Verification) -> Value {
    let rule = |rule: &olm_finding::Rule| json!({ "id": rule.id, "shortDescription": { "text": rule.text } });
    let result = |finding: &Finding| {
        let mut location = json!({});
        let file = finding.place.origin.as_ref().filter(|origin| !origin.file.as_os_str().is_empty());
        if let Some(origin) = file {
            location["physicalLocation"] = json!({
                "artifactLocation": { "uri": origin.file.to_string_lossy() },
                "region": { "startLine": origin.line.max(1) },
            });
        }
        let name = [finding.place.package.as_str(), &finding.place.bundle].join("/");
        let name = name.trim_matches('/');
        if !name.is_empty() {
            location["logicalLocations"] = json!([{ "fullyQualifiedName": name }]);
        }
        json!({
            "ruleId": finding.rule.id,
            "level": "error",
            "message": { "text": message(finding) },
            "locations": [location],
        })
    };
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "olm catalog verify",
                "version": olm_runtime::component::VERSION,
                "rules": rules().map(rule).collect::<Vec<_>>(),
            }},
            "results": verification.findings.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}

/// Test report: a suite for each package, a case for each bundle, and a suite for faults of no bundle.
fn junit(verification: &Verification) -> String {
    let mut by_case: BTreeMap<(&str, &str), Vec<&Finding>> = BTreeMap::new();
    for (package, bundles) in &verification.names {
        by_case.extend(bundles.iter().map(|bundle| ((package.as_str(), bundle.as_str()), Vec::new())));
    }
    by_case.entry(("", "")).or_default();
    for finding in &verification.findings {
        by_case.entry((&finding.place.package, &finding.place.bundle)).or_default().push(finding);
    }
    let mut suites: BTreeMap<&str, (usize, usize, String)> = BTreeMap::new();
    for ((package, bundle), findings) in by_case {
        let (cases, failures, text) = suites.entry(package).or_default();
        *cases += 1;
        *failures += usize::from(!findings.is_empty());
        let name = if bundle.is_empty() { "structure" } else { bundle };
        // Writing to a String does not fail.
        let _ = writeln!(text, "    <testcase classname=\"{}\" name=\"{}\">", xml(package), xml(name));
        if let Some(first) = findings.first() {
            let lines: Vec<_> =
                findings.iter().map(|one| format!("{}: {}", one.rule.id, message(one))).collect();
            let kind = first.rule.id;
            let body = xml(&lines.join("\n"));
            let shown = xml(&lines[0]);
            let _ = writeln!(text, "      <failure type=\"{kind}\" message=\"{shown}\">{body}</failure>");
        }
        text.push_str("    </testcase>\n");
    }
    let mut report = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for (package, (cases, failures, text)) in suites {
        let name = if package.is_empty() { &verification.catalog } else { package };
        let _ = writeln!(
            report,
            "  <testsuite name=\"{}\" tests=\"{cases}\" failures=\"{failures}\">\n{text}  </testsuite>",
            xml(name)
        );
    }
    report + "</testsuites>\n"
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
