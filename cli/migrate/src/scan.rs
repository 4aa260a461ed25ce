//! `olm migrate scan`: reports which packages of classic OLM can become ClusterExtensions.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use futures::{StreamExt, stream};
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::output::{FormatArgs, Table, counted};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use serde::Serialize;
use tokio::time::timeout;

use super::classify::{PackageReport, classify};
use super::gates::MissingGates;
use super::objects::Objects;
use super::plan::{PlanContext, ProposedCatalog, of_package, proposed};
use super::rule::{Class, RESTART, RULES, Rule};
use super::{providers, read};

/// Bundles that are pulled and rendered at a time.
const CONCURRENT_BUNDLES: usize = 4;
/// Deadline for one bundle.
const BUNDLE_DEADLINE: Duration = Duration::from_secs(60);

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Report which packages of classic OLM can become ClusterExtensions

Reads the Subscriptions, ClusterServiceVersions, InstallPlans, OperatorGroups, CatalogSources and OperatorConditions \
of the cluster, and the bundles of its ClusterCatalogs. Changes nothing. Each package is ready, ready with settings \
that its ClusterExtension gets, needs a decision, or is not possible yet. --rules explains the findings. Without -n, the \
report has the commands that create a ClusterCatalog for each CatalogSource. `olm migrate apply` creates the ClusterCatalogs \
that its packages need.

--render also looks for the installed bundles in the images of CatalogSources that are not ClusterCatalogs, pulls and \
renders them, and compares them with what runs, by dry runs: a changed pod template means one rolling restart of the \
operator (NOTE-2).

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
  {olm} migrate scan -n operators --render
  {olm} migrate scan --from ./must-gather --catalog quay.io/operatorhubio/catalog:latest
  {olm} migrate scan -o json | jq '.packages[] | select(.class == \"NotPossible\")'
  {olm} migrate scan -o json | jq '.catalogs[].created // empty' | kubectl create -f -
  {olm} migrate scan --rules")]
pub struct ScanArgs {
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
    /// Also render the installed bundles, to find pod templates that change (NOTE-2)
    #[arg(long, conflicts_with = "from")]
    render: bool,
    /// Print the rules with their meaning and the next step
    #[arg(long, conflicts_with_all = ["namespace", "from", "catalogs", "render"])]
    rules: bool,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    access: Access,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MigrationScan {
    packages: Vec<PackageReport>,
    /// Migrations that have begun or ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    migrations: Vec<ScannedMigration>,
    summary: Vec<ClassCount>,
    /// What becomes of the CatalogSources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    catalogs: Vec<ProposedCatalog>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_gates: Option<MissingGates>,
    /// Kinds and catalogs that could not be read, so that findings may be missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
}

/// Migration that has begun or ended.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScannedMigration {
    /// `namespace/package`, or the object with marks of another tool.
    package: String,
    state: &'static str,
    /// Commands that continue or return.
    next: Vec<String>,
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
    let (mut packages, objects) = packages(&args, session).await?;
    let missing_gates = missing_gates(&args, &mut packages, &objects, session).await?;
    let migrations = migrations(&objects, args.namespace.as_deref());
    let catalogs = if args.namespace.is_none() { proposed(&objects)? } else { Vec::new() };
    let count = |class| packages.iter().filter(|report| report.class == class).count();
    let summary = Class::ALL.map(|class| ClassCount { class, packages: count(class) }).into();
    let unreadable = objects.unreadable;
    let scan = MigrationScan { packages, migrations, summary, catalogs, missing_gates, unreadable };
    scan.unreadable.iter().for_each(|what| say(&format!("warning: not read: {what}")));
    session.output.result(args.format.output, "MigrationScan", &scan, text)?;
    let is_ready = |report: &PackageReport| report.class <= Class::ReadyWithSetting;
    if scan.packages.iter().all(is_ready) { Ok(()) } else { Err(CliError::ExitCode(Code::NoCandidate as u8)) }
}

/// Gates of the cluster's operator-controller that the packages need, and that are off. `None` for a dump. Packages without
/// provider of certificates get a finding.
async fn missing_gates(
    args: &ScanArgs,
    packages: &mut [PackageReport],
    objects: &Objects,
    session: &Session,
) -> Result<Option<MissingGates>, CliError> {
    if !args.from.is_empty() || packages.is_empty() {
        return Ok(None);
    }
    let cluster = args.access.cluster.connect().await?;
    let controller = ControllerArgs::read(&cluster, session).await?;
    if !args.render {
        let missing = providers::missing(&cluster, &controller, session).await?;
        providers::judge(packages, objects, missing.as_deref());
    }
    Ok(MissingGates::of(packages, &controller, cluster.namespace()))
}

/// Reports of the packages, and the objects that were read.
async fn packages(args: &ScanArgs, session: &Session) -> Result<(Vec<PackageReport>, Objects), CliError> {
    let objects = objects(args, session).await?;
    let is_wanted = |report: &PackageReport| {
        args.namespace.as_ref().is_none_or(|namespace| *namespace == report.namespace)
    };
    if !args.render {
        let mut packages = classify(&objects);
        packages.retain(is_wanted);
        return Ok((packages, objects));
    }
    let cluster = args.access.cluster.connect().await?;
    let mut context = PlanContext::of_objects(&cluster, &args.access, objects, session).await?;
    context.reports.retain(is_wanted);
    let (found, failed) = restarts(&context, session).await?;
    let (mut packages, mut objects) = (context.reports, context.objects);
    for (index, message) in found {
        packages[index].add(RESTART, message);
    }
    objects.unreadable.extend(failed);
    Ok((packages, objects))
}

/// Migrations that have begun or ended, in `namespace` or everywhere.
fn migrations(objects: &Objects, namespace: Option<&str>) -> Vec<ScannedMigration> {
    let ours = objects.migrations.iter().filter(|((found, _), _)| namespace.is_none_or(|name| name == found));
    let ours = ours.map(|((namespace, package), is_complete)| {
        let id = format!("{namespace}/{package}");
        let back = format!("olm migrate rollback {id}");
        match is_complete {
            true => ScannedMigration { package: id, state: "migrated", next: vec![back] },
            false => {
                let next = vec![format!("olm migrate apply {id}"), back];
                ScannedMigration { package: id, state: "interrupted", next }
            }
        }
    });
    let foreign = objects.foreign.keys().filter(|_| namespace.is_none()).map(|object| ScannedMigration {
        package: object.clone(),
        state: "changed by operator-framework/library-olm",
        next: Vec::new(),
    });
    ours.chain(foreign).collect()
}

/// Restarts, with the indexes of their packages, and bundles that could not be rendered.
async fn restarts(
    context: &PlanContext<'_>,
    session: &Session,
) -> Result<(Vec<(usize, String)>, Vec<String>), CliError> {
    let is_possible = |(_, report): &(usize, &PackageReport)| report.class < Class::NotPossible;
    let calls: Vec<_> = context
        .reports
        .iter()
        .enumerate()
        .filter(is_possible)
        .map(|(index, report)| async move {
            (index, report, timeout(BUNDLE_DEADLINE, of_package(context, report)).await)
        })
        .collect();
    let total = calls.len();
    let step = session.progress.step("rendering the installed bundles");
    let mut plans = stream::iter(calls).buffer_unordered(CONCURRENT_BUNDLES);
    let (mut restarts, mut failed, mut done) = (Vec::new(), Vec::new(), 0);
    while let Some((index, report, plan)) = plans.next().await {
        done += 1;
        step.update(format!("rendering the installed bundles: {done} of {total}"));
        match plan {
            Ok(Ok(plan)) => restarts.extend(plan.restarts.iter().map(|restart| {
                let (deployment, fields) = (&restart.object, restart.fields.join(", "));
                (index, format!("one rolling restart of {deployment}: {} ({fields})", restart.reason))
            })),
            Ok(Err(error @ CliError::Message(Code::Interrupted, _))) => return Err(error),
            Ok(Err(error)) => failed.push(format!("bundle of {}: {error}", report.id())),
            Err(_) => failed.push(format!(
                "bundle of {}: no result in {} s",
                report.id(),
                BUNDLE_DEADLINE.as_secs()
            )),
        }
    }
    restarts.sort();
    failed.sort();
    Ok((restarts, failed))
}

/// Reads everything that is judged.
async fn objects(args: &ScanArgs, session: &Session) -> Result<Objects, CliError> {
    let mut objects = Objects::default();
    if args.from.is_empty() {
        let cluster = args.access.cluster.connect().await?;
        objects = read::from_cluster(&cluster, session).await?;
        read::migrations(&cluster, &mut objects, session).await?;
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
    let mut migrations = String::new();
    if !scan.migrations.is_empty() {
        let mut table = Table::new(&["MIGRATION", "STATE", "NEXT"]);
        for ScannedMigration { package, state, next } in &scan.migrations {
            let next = if next.is_empty() { "-".to_owned() } else { next.join(", or ") };
            table.row([package.as_str(), state, next.as_str()]);
        }
        migrations = format!("\n{}", table.text());
    }
    let catalogs = catalogs_text(&scan.catalogs);
    if scan.packages.is_empty() {
        return format!("No package of classic OLM was found.\n{catalogs}{migrations}");
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
    let total = counted(scan.packages.len(), "package");
    let gates = scan.missing_gates.as_ref().map(MissingGates::text).unwrap_or_default();
    format!("{}\n{total}: {}\n{gates}{catalogs}{migrations}", table.text(), counts.join("; "))
}

fn catalogs_text(catalogs: &[ProposedCatalog]) -> String {
    if catalogs.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["CATALOGSOURCE", "CLUSTERCATALOG", "STATE", "NOTES"]);
    for ProposedCatalog { source, name, state, notes, .. } in catalogs {
        let name = if name.is_empty() { "-" } else { name };
        if notes.is_empty() {
            table.row([source, name, state, "-"]);
        }
        notes.iter().for_each(|note| table.row([source.as_str(), name, state, note]));
    }
    format!("\n{}", table.text())
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
