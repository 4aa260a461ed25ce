//! `olm catalog verify --upgrades`: checks the upgrades of a catalog with the content of their bundles
//! (docs/design/cli.md#checks-of-upgrades).
//!
//! ```text
//! catalog ─ edges ► upgrades ─ bundles ► both bundles ─ compare ► findings ─ output ► report
//! ```

mod bundles;
mod compare;
mod edges;
mod output;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use olm_bundle::BundleContent;
use olm_cli_core::error::CliError;
use olm_cli_core::names::listed;
use olm_cli_core::report::{ReportArgs, RuleList};
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use olm_finding::Level;
use olm_upgrade_check::{UpgradeFinding, UpgradeHold, never_installed, unreadable};
use serde::Serialize;

use self::bundles::Bundles;
use self::compare::ComparedUpgrade;
pub use self::compare::compare as compare_bundles;
use self::edges::{Edge, Wanted};
use crate::package::CatalogPackage;
use crate::whole::WholeCatalog;

/// Flags of the checks of upgrades.
#[derive(Debug, Args)]
pub(super) struct UpgradeArgs {
    /// Check the upgrades instead: render both bundles in each install mode, and compare what they install
    #[arg(long, conflicts_with_all = ["related_images", "content", "layers", "architectures", "state", "keys", "policy", "no_images"])]
    pub(super) upgrades: bool,
    /// Also check upgrades to other bundles than the newest of each channel
    #[arg(long, requires = "upgrades")]
    all_edges: bool,
    /// Only check upgrades from this version
    #[arg(long, value_name = "VERSION", requires = "upgrades")]
    from: Option<String>,
    /// Directory with the bundles, at any depth, instead of their images; may be given several times
    #[arg(long, value_name = "DIR", requires = "upgrades")]
    bundles: Vec<PathBuf>,
    /// Print each finding, and not only their number
    #[arg(long, requires = "upgrades")]
    details: bool,
}

/// Result of the command.
#[derive(Debug, Serialize)]
struct UpgradeVerification {
    /// Catalog as given.
    catalog: String,
    passed: bool,
    /// Number of checked packages.
    packages: usize,
    upgrades: Vec<CheckedEdge>,
    #[serde(skip)]
    details: bool,
}

/// Upgrade with its findings.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckedEdge {
    package: String,
    from: String,
    to: String,
    channels: Vec<String>,
    /// Reasons for which operator-controller holds the upgrade.
    holds: BTreeSet<UpgradeHold>,
    /// Install modes in which it is refused, if not in all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused_modes: Vec<&'static str>,
    findings: Vec<UpgradeFinding>,
    /// File and line of the bundle in the catalog.
    #[serde(skip)]
    place: (Option<String>, Option<usize>),
}

/// Runs the checks, and prints their result.
///
/// # Errors
/// The catalog cannot be read, operator-controller holds an upgrade, or there is an error among the findings.
pub(super) async fn run(
    source: String,
    packages: &[String],
    args: UpgradeArgs,
    report: &ReportArgs,
    access: &Access,
    session: &mut Session,
) -> Result<(), CliError> {
    let rules = olm_upgrade_check::rules();
    if report.rules {
        return report.print_rules("UpgradeRules", &RuleList::new(rules), RuleList::text, session);
    }
    report.check(rules)?;
    let catalog = WholeCatalog::read(&source, packages, access, session).await?;
    WholeCatalog::require(&[(&source, &catalog)], packages)?;
    let mut bundles = Bundles::open(&args.bundles, &access.images, session)?;
    let from = args.from.map(|from| from.trim_start_matches('v').to_owned());
    let wanted = Wanted { all: args.all_edges, from };
    let mut upgrades = Vec::new();
    // The minimum is `None` if a package has the version.
    if let Some(versions) =
        catalog.packages.values().map(|package| wanted.missing_origin(package)).min().flatten()
    {
        let from = wanted.from.as_deref().unwrap_or_default();
        let versions = listed(&versions);
        return Err(CliError::no_candidate(format!(
            "--from {from}: no package has this version; versions: {versions}"
        )));
    }
    for package in catalog.packages.values() {
        let checked = check(package, &wanted, &mut bundles, report, session).await?;
        upgrades.extend(checked);
    }
    for checked in &mut upgrades {
        checked.place = output::place(&source, catalog.bundle_origin(&checked.package, &checked.to))?;
    }
    let is_error = |finding: &UpgradeFinding| finding.level == Level::Error;
    let is_bad = |checked: &CheckedEdge| !checked.holds.is_empty() || checked.findings.iter().any(is_error);
    let verification = UpgradeVerification {
        passed: !upgrades.iter().any(is_bad),
        catalog: source,
        packages: catalog.packages.len(),
        upgrades,
        details: args.details,
    };
    report.print("UpgradeVerification", &verification, output::table, output::report, session)?;
    if verification.passed { Ok(()) } else { Err(CliError::Findings) }
}

/// Checks the upgrades of a package. A bundle is read once for all upgrades to it, and once for each upgrade from it.
async fn check(
    package: &CatalogPackage,
    wanted: &Wanted,
    bundles: &mut Bundles<'_>,
    report: &ReportArgs,
    session: &Session,
) -> Result<Vec<CheckedEdge>, CliError> {
    let mut checked = Vec::new();
    let mut target: Option<(String, Result<Arc<BundleContent>, String>)> = None;
    let edges = wanted.edges(package);
    for (number, edge) in edges.iter().enumerate() {
        let _step =
            session.progress.step(format!("{}: upgrade {} of {}", package.name, number + 1, edges.len()));
        session.check()?;
        let new = match &target {
            Some((name, new)) if *name == edge.to => new.clone(),
            _ => {
                let new = bundles.read(package, &edge.to, session).await?;
                target = Some((edge.to.clone(), new.clone()));
                new
            }
        };
        let old = bundles.read(package, &edge.from, session).await?;
        let ignores = |finding: &UpgradeFinding| report.ignores(finding.rule);
        let compared = match (old, new) {
            (Ok(old), Ok(new)) => compare::compare(&old, &new, ignores)
                .unwrap_or_else(|why| only(never_installed(why), ignores)),
            (Err(why), _) | (_, Err(why)) => only(unreadable(why), ignores),
        };
        checked.push(CheckedEdge::new(&package.name, edge, compared));
    }
    Ok(checked)
}

/// Result with this finding only.
fn only(finding: UpgradeFinding, ignores: impl Fn(&UpgradeFinding) -> bool) -> ComparedUpgrade {
    let findings = if ignores(&finding) { Vec::new() } else { vec![finding] };
    ComparedUpgrade { findings, ..ComparedUpgrade::default() }
}

impl CheckedEdge {
    fn new(package: &str, edge: &Edge, compared: ComparedUpgrade) -> Self {
        let ComparedUpgrade { findings, holds, refused_modes } = compared;
        Self {
            package: package.to_owned(),
            from: edge.from.clone(),
            to: edge.to.clone(),
            channels: edge.channels.clone(),
            holds,
            refused_modes,
            findings,
            place: (None, None),
        }
    }
}
