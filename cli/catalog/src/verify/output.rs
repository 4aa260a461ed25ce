//! Result of the command: table, documents, and the report for CI.

use std::collections::BTreeMap;
use std::path::PathBuf;

use olm_cli_core::output::{Table, counted};
use olm_cli_core::report::{Case, RunReport, Spot, relative};
use olm_finding::Level;
use serde::Serialize;

use super::finding::{CatalogPlace, Finding, rules};

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
    /// Bundle names by package, for the report.
    #[serde(skip)]
    pub(super) names: BTreeMap<String, Vec<String>>,
    /// Folder of the catalog, if it is one.
    #[serde(skip)]
    pub(super) folder: Option<PathBuf>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Message with the image, and the position if it is the only information on the place.
fn message(finding: &Finding) -> String {
    let CatalogPlace { package, image, origin, .. } = &finding.place;
    match origin {
        _ if !image.is_empty() => format!("{image}: {}", finding.message),
        Some(origin) if package.is_empty() => format!("{origin}: {}", finding.message),
        _ => finding.message.clone(),
    }
}

pub(super) fn table(verification: &Verification) -> String {
    let mut text = String::new();
    if !verification.findings.is_empty() {
        let mut table = Table::new(&["RULE", "PACKAGE", "BUNDLE", "FINDING"]);
        for finding in &verification.findings {
            let warning = if finding.level == Level::Warning { "warning: " } else { "" };
            let message = format!("{warning}{}", message(finding));
            table.row([finding.rule.id, &finding.place.package, &finding.place.bundle, &message]);
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

/// A case for each bundle, and one for faults of no bundle. Files are those of the working directory.
pub(super) fn report(verification: &Verification) -> RunReport {
    let mut by_case: BTreeMap<(&str, &str), Vec<_>> = BTreeMap::new();
    for (package, bundles) in &verification.names {
        by_case.extend(bundles.iter().map(|bundle| ((package.as_str(), bundle.as_str()), Vec::new())));
    }
    by_case.entry(("", "")).or_default();
    for finding in &verification.findings {
        let CatalogPlace { package, bundle, origin, .. } = &finding.place;
        let origin = origin.as_ref().filter(|origin| !origin.file.as_os_str().is_empty());
        let file = origin
            .zip(verification.folder.as_ref())
            .map(|(origin, folder)| relative(&folder.join(&origin.file)));
        let line = file.as_ref().and(origin).map(|origin| origin.line.max(1));
        let name = [package.as_str(), bundle].join("/").trim_matches('/').to_owned();
        let message = match file {
            Some(_) if package.is_empty() => finding.message.clone(),
            _ => message(finding),
        };
        let spot = Spot { file, line, name };
        let found = olm_finding::Finding { rule: finding.rule, level: finding.level, place: spot, message };
        by_case.entry((package.as_str(), bundle.as_str())).or_default().push(found);
    }
    let case = |((package, bundle), findings): ((&str, &str), Vec<_>)| Case {
        suite: if package.is_empty() { verification.catalog.clone() } else { package.to_owned() },
        name: if bundle.is_empty() { "structure".to_owned() } else { bundle.to_owned() },
        findings,
    };
    RunReport {
        tool: "olm catalog verify",
        rules: rules().collect(),
        fails: Some(Level::Error),
        cases: by_case.into_iter().map(case).collect(),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
