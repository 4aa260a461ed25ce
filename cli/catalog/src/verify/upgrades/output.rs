//! Result of the checks of upgrades: table, documents, and the report for CI.

use olm_api::text::one_line;
use olm_cli_core::error::CliError;
use olm_cli_core::output::{Table, counted};
use olm_cli_core::report::{Case, RunReport, Spot, relative};
use olm_cli_core::source::Source;
use olm_fbc::Origin;
use olm_finding::{Finding, Level};
use olm_upgrade_check::{UpgradeFinding, UpgradeHold, is_unreadable, rule_counts, rules};

use super::{CheckedEdge, UpgradeVerification};

/// File in the working directory and line of a bundle, if the catalog is a folder.
///
/// # Errors
/// The source is invalid.
pub(super) fn place(
    source: &str,
    origin: Option<&Origin>,
) -> Result<(Option<String>, Option<usize>), CliError> {
    let Source::Directory(root) = Source::parse(source)? else { return Ok((None, None)) };
    let origin = origin.filter(|origin| !origin.file.as_os_str().is_empty());
    Ok(origin
        .map_or((None, None), |origin| (Some(relative(&root.join(&origin.file))), Some(origin.line.max(1)))))
}

pub(super) fn table(verification: &UpgradeVerification) -> String {
    let mut text = String::new();
    let UpgradeVerification { catalog, packages, upgrades, details, .. } = verification;
    if !upgrades.is_empty() {
        let mut table = Table::new(&["PACKAGE", "FROM", "TO", "UPGRADE", "FINDINGS"]);
        upgrades.iter().for_each(|one| {
            table.row([&one.package, &one.from, &one.to, &verdict(one), &rule_counts(&one.findings)])
        });
        text = table.text() + "\n";
    }
    for one in upgrades.iter().filter(|one| *details && !one.findings.is_empty()) {
        text += &format!("{} -> {}\n", one.from, one.to);
        for finding in &one.findings {
            text += &format!("  {}: {}\n", finding.level.name(), one_line(&finding.to_string()));
            if finding.place.hold != UpgradeHold::No {
                text += &format!("    holds the upgrade {}\n", in_words(finding.place.hold));
            }
        }
        text += "\n";
    }
    let held = upgrades.iter().filter(|one| !one.holds.is_empty()).count();
    let packages = counted(*packages, "package");
    text + &format!("{catalog}: {packages}, {}: {held} held or refused\n", counted(upgrades.len(), "upgrade"))
}

/// `possible`, `held` or `refused`, and the modes for which it is otherwise.
fn verdict(one: &CheckedEdge) -> String {
    let verdict = match one.holds.last() {
        None if one.findings.iter().any(is_unreadable) => "not checked",
        None => "possible",
        Some(UpgradeHold::Always) => "refused",
        Some(_) => "held",
    };
    match one.refused_modes.join(", ") {
        modes if modes.is_empty() => verdict.to_owned(),
        modes => format!("{verdict}, refused in {modes}"),
    }
}

fn in_words(hold: UpgradeHold) -> &'static str {
    match hold {
        UpgradeHold::No => "",
        UpgradeHold::UnlessReplaced => "unless annotation replace-immutable is Allow",
        UpgradeHold::UnlessLive => {
            "unless annotation crd-check is Warn, or Live and all custom resources are valid"
        }
        UpgradeHold::UnlessWarn => {
            "unless annotation crd-check is Warn, or Live and no custom resources exist"
        }
        UpgradeHold::Always => "always",
    }
}

/// A case for each upgrade.
pub(super) fn report(verification: &UpgradeVerification) -> RunReport {
    let case = |one: &CheckedEdge| {
        let name = format!("{} -> {}", one.from, one.to);
        let spot = || Spot { file: one.place.0.clone(), line: one.place.1, name: one.to.clone() };
        let finding = |found: &UpgradeFinding| Finding {
            rule: found.rule,
            // What holds an upgrade fails the command, also if nothing breaks.
            level: if found.place.hold == UpgradeHold::No { found.level } else { Level::Error },
            place: spot(),
            message: one_line(&format!("upgrade from {}: {}{}", one.from, found.place, found.message))
                .into_owned(),
        };
        Case { suite: one.package.clone(), name, findings: one.findings.iter().map(finding).collect() }
    };
    RunReport {
        tool: "olm catalog verify",
        rules: rules().collect(),
        fails: Some(Level::Error),
        cases: verification.upgrades.iter().map(case).collect(),
    }
}
