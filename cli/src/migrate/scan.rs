//! `olm migrate scan`: reports which packages of classic OLM can become ClusterExtensions.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::classify::{PackageReport, classify};
use super::objects::Objects;
use super::read;
use super::rule::{Class, RULES, Rule};
use crate::error::{CliError, Code};
use crate::output::{FormatArgs, Table, counted};
use crate::progress::say;
use crate::session::Session;
use crate::source::Access;

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Report which packages of classic OLM can become ClusterExtensions

Reads the Subscriptions, ClusterServiceVersions, InstallPlans, OperatorGroups, CatalogSources and OperatorConditions \
of the cluster, and the bundles of its ClusterCatalogs. Changes nothing. Each package is ready, ready with settings \
that its ClusterExtension gets, needs a decision, or is not possible yet. --rules explains the findings.

--from reads a dump instead: a file with objects, or a folder such as a must-gather. Make one with
`kubectl get subscriptions,clusterserviceversions,installplans,operatorgroups,catalogsources,operatorconditions -A -o yaml`.
--catalog then names the catalogs that must have the installed bundles.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 every package is ready   1 operation failed   2 wrong usage
  4 a package needs a decision, or cannot be migrated yet

Examples:
  {olm} migrate scan
  {olm} migrate scan -n operators
  {olm} migrate scan --from ./must-gather --catalog quay.io/operatorhubio/catalog:latest
  {olm} migrate scan -o json | jq '.packages[] | select(.class == \"NotPossible\")'
  {olm} migrate scan --rules")]
pub(crate) struct ScanArgs {
    /// Only the packages of this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Read the objects from this file or folder; may be given several times
    #[arg(long, value_name = "PATH")]
    from: Vec<PathBuf>,
    /// Catalog that must have the installed bundles: a directory, an image, or cluster/NAME; default: all of the
    /// cluster; may be given several times
    #[arg(long = "catalog", value_name = "SOURCE")]
    catalogs: Vec<String>,
    /// Print the rules with their meaning and the next step
    #[arg(long, conflicts_with_all = ["namespace", "from", "catalogs"])]
    rules: bool,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    access: Access,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
struct MigrationScan {
    packages: Vec<PackageReport>,
    summary: Vec<ClassCount>,
    /// Kinds and catalogs that could not be read, so that findings may be missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
}

/// Number of packages of a class.
#[derive(Debug, Serialize)]
struct ClassCount {
    class: Class,
    packages: usize,
}

/// Rules as JSON or YAML.
#[derive(Debug, Serialize)]
struct MigrationRules {
    rules: &'static [&'static Rule],
}

/// Runs the command.
///
/// # Errors
/// The objects cannot be read, or a package is not ready.
pub(super) async fn run(args: ScanArgs, session: &mut Session) -> Result<(), CliError> {
    if args.rules {
        let rules = MigrationRules { rules: RULES };
        return session.output.result(args.format.output, "MigrationRules", &rules, rules_text);
    }
    let objects = objects(&args, session).await?;
    let mut packages = classify(&objects);
    packages.retain(|report| args.namespace.as_ref().is_none_or(|namespace| *namespace == report.namespace));
    let count = |class| packages.iter().filter(|report| report.class == class).count();
    let summary = Class::ALL.map(|class| ClassCount { class, packages: count(class) }).into();
    let scan = MigrationScan { packages, summary, unreadable: objects.unreadable };
    scan.unreadable.iter().for_each(|what| say(&format!("warning: not read: {what}")));
    session.output.result(args.format.output, "MigrationScan", &scan, text)?;
    let is_ready = |report: &PackageReport| report.class <= Class::ReadyWithSetting;
    if scan.packages.iter().all(is_ready) { Ok(()) } else { Err(CliError::ExitCode(Code::NoCandidate as u8)) }
}

/// Reads everything that is judged.
async fn objects(args: &ScanArgs, session: &Session) -> Result<Objects, CliError> {
    let mut objects = Objects::default();
    if args.from.is_empty() {
        let cluster = args.access.cluster.connect().await?;
        objects = read::from_cluster(&cluster, session).await?;
    }
    for path in &args.from {
        read::from_dump(path, &mut objects, session)?;
    }
    let wanted = objects.installed();
    if !args.catalogs.is_empty() {
        objects.offered = Some(read::offered(&args.catalogs, &wanted, &args.access, session).await?);
    } else if args.from.is_empty() && !objects.catalogs.is_empty() {
        let names: Vec<String> = objects.catalogs.keys().cloned().collect();
        let unreadable = &mut objects.unreadable;
        objects.offered =
            Some(read::offered_by_cluster(&names, &wanted, &args.access, unreadable, session).await?);
    } else {
        say("note: no catalog was read, so that the installed bundles are not looked up; see --catalog");
    }
    Ok(objects)
}

fn text(scan: &MigrationScan) -> String {
    if scan.packages.is_empty() {
        return "No package of classic OLM was found.\n".to_owned();
    }
    let mut table =
        Table::new(&["PACKAGE", "NAMESPACE", "VERSION", "CHANNEL", "MIGRATION", "RULE", "FINDING"]);
    for report in &scan.packages {
        let package = if report.package.is_empty() { &report.csv } else { &report.package };
        let common = [package, &report.namespace, &report.version, &report.channel];
        let cells = common.map(String::as_str).map(|cell| if cell.is_empty() { "-" } else { cell });
        let class = report.class.name();
        if report.findings.is_empty() {
            table.row(cells.into_iter().chain([class, "-", "-"]));
        }
        for finding in &report.findings {
            table.row(cells.into_iter().chain([class, finding.rule.id, &finding.message]));
        }
    }
    let counts = scan.summary.iter().filter(|count| count.packages > 0);
    let counts: Vec<String> =
        counts.map(|count| format!("{} {}", count.packages, count.class.name())).collect();
    format!("{}\n{}: {}\n", table.text(), counted(scan.packages.len(), "package"), counts.join("; "))
}

fn rules_text(rules: &MigrationRules) -> String {
    let mut text = String::new();
    for class in Class::ALL {
        for rule in rules.rules.iter().filter(|rule| rule.class == class) {
            text += &format!("{} ({})\n  {}.\n  {}.\n", rule.id, class.name(), rule.meaning, rule.advice);
        }
    }
    text
}
