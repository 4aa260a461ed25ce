//! `olm doctor`: finds faults of an installation and names their remedies (docs/design/cli.md#support-data).
//!
//! [`mod@observe`] reads the cluster, [`mod@diagnose`], which is pure, derives the findings by the rules of [`rule`].
//! [`redact`] removes secrets before anything is stored, and [`archive`] writes the support data.

mod archive;
mod diagnose;
mod fields;
mod observe;
mod observed;
mod redact;
mod rule;
mod secrets;
mod system;

use std::path::PathBuf;

use clap::Args;
use olm_api::conditions::types;
use olm_cli_core::error::CliError;
use olm_cli_core::output::{Fields, FormatArgs, Table, counted, printable};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterArgs, ClusterConnection, ImageArgs};
use olm_finding::Level;
use olm_runtime::component::VERSION;
use serde::Serialize;

use self::diagnose::{Finding, Place, SERVERS, diagnose, server_pods, server_versions};
pub(crate) use self::diagnose::{Skew, server_version, skew, stopped};
pub(crate) use self::observe::webhook_failure;
use self::observed::{Observed, list, text};
use self::rule::{DoctorRule, RULES};
pub(crate) use self::system::{SystemHealth, system_health};

/// First lines of the command's help.
pub const ABOUT: &str = "Find faults of an installation and their remedies

Reads the objects of OLM: ClusterCatalogs, ClusterExtensions and their revisions, the pods, logs and readiness checks \
of the servers, their certificates and pull Secrets (their values are not printed), CA bundles of webhooks, Leases, \
Services, NetworkPolicies, other installations, and packages of classic OLM. Each finding has a rule, a level, the \
object, what was found, a remedy, and the section of the documentation. --rules lists all rules.

Changes nothing: the admission webhook is called by a dry run. Objects that you may not read are named on standard \
error, and the rest is checked.

--bundle writes an archive for a support request: findings, objects and logs. It removes data of Secrets and \
ConfigMaps, environment variables, fields with secret names, tokens, Authorization headers, private keys, and \
passwords in URLs. Names of objects, hosts and images remain. A secret in another form is not recognized: review the \
archive before you send it.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 no errors, at most warnings   1 operation failed   2 wrong usage
  3 there are errors

Examples:
  {olm} doctor
  {olm} doctor --bundle support.tar.gz           # for a support request
  {olm} doctor -o json | jq -r '.findings[] | select(.level == \"error\") | .remedy'
  {olm} doctor --rules")]
pub struct DoctorArgs {
    /// Write findings, objects and logs without known secrets to this new file (tar.gz)
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Print the rules with their meaning and remedy
    #[arg(long, conflicts_with = "bundle")]
    rules: bool,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Finding for readers of a page.
#[derive(Debug)]
pub struct Advice {
    /// `error`, `warning` or `note`.
    pub level: &'static str,
    /// Kind, namespace and name.
    pub object: String,
    /// What is wrong: the requirement, and the cause if it is known.
    pub problem: String,
    /// What was found.
    pub message: String,
    /// Next step.
    pub remedy: &'static str,
    /// Section of the documentation.
    pub documentation: String,
}

/// Findings of an installation, errors first, and what could not be read. Without `dry_runs`, nothing is checked by the
/// dry run of a write.
///
/// # Errors
/// The API server does not answer.
pub async fn findings(
    cluster: &ClusterConnection,
    access: &Access,
    dry_runs: bool,
    session: &Session,
) -> Result<(Vec<Advice>, Vec<String>), CliError> {
    let observed = observe::observe(cluster, access, dry_runs, session).await?;
    let advice = |finding: Finding| {
        let Place { object, cause, remedy, documentation } = finding.place;
        let cause = cause.map(|cause| format!(". {}", cause.text)).unwrap_or_default();
        let problem = format!("{}{cause}", finding.rule.text);
        let (level, message) = (finding.level.name(), finding.message);
        Advice { level, object, problem, message, remedy, documentation }
    };
    let found = diagnose(&observed, observed.time).into_iter().map(advice).collect();
    Ok((found, observed.unreadable))
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
struct Report {
    versions: Vec<Version>,
    namespace: String,
    servers: Vec<ServerState>,
    catalogs: Counts,
    extensions: Counts,
    /// Errors first.
    findings: Vec<Finding>,
    /// What could not be read, so that findings may be missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
}

/// Version of a component.
#[derive(Debug, Serialize)]
struct Version {
    name: &'static str,
    version: String,
}

/// Pods of a server, and the holder of its Lease.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ServerState {
    name: &'static str,
    pods: usize,
    ready_pods: usize,
    leader: String,
}

/// Number of objects, and of those that are served or installed.
#[derive(Debug, Serialize)]
struct Counts {
    total: usize,
    healthy: usize,
}

/// Rules as JSON or YAML.
#[derive(Debug, Serialize)]
struct Rules {
    rules: &'static [&'static DoctorRule],
}

/// Runs the command.
///
/// # Errors
/// The cluster cannot be read, the archive cannot be written, or there are errors.
pub async fn run(args: DoctorArgs, session: &mut Session) -> Result<(), CliError> {
    if args.rules {
        return session.output.result(args.format.output, "DoctorRules", &Rules { rules: RULES }, rules_text);
    }
    if let Some(path) = &args.bundle {
        archive::check(path)?;
    }
    let cluster = args.cluster.connect().await?;
    let access = Access { images: ImageArgs::default(), cluster: args.cluster.clone() };
    let observed = observe::observe(&cluster, &access, true, session).await?;
    let report = Report::new(&observed);
    report.unreadable.iter().for_each(|what| say(&format!("warning: not read: {what}")));
    session.output.result(args.format.output, "DoctorReport", &report, report_text)?;
    if let Some(path) = &args.bundle {
        archive::write(path, &report, &observed)?;
        say(&format!("wrote {}; review it before you send it", path.display()));
    }
    let has_errors = report.findings.iter().any(|finding| finding.level == Level::Error);
    if has_errors { Err(CliError::Findings) } else { Ok(()) }
}

impl Report {
    fn new(observed: &Observed) -> Self {
        let mut versions = vec![
            Version { name: "olm", version: VERSION.to_owned() },
            Version { name: "kubernetes", version: observed.kubernetes.clone() },
        ];
        let of_server = |(server, version): (olm_runtime::component::Component, String)| Version {
            name: server.name(),
            version,
        };
        versions.extend(server_versions(observed).into_iter().map(of_server));
        let count = |kind: &str, type_: &str| {
            let objects = observed.list(kind);
            let is_healthy = |one: &&serde_json::Value| has(one, type_);
            Counts { total: objects.len(), healthy: objects.iter().filter(is_healthy).count() }
        };
        let server = |server: olm_runtime::component::Component| ServerState {
            name: server.name(),
            pods: server_pods(server, observed).count(),
            ready_pods: server_pods(server, observed).filter(|pod| has(pod, "Ready")).count(),
            leader: observed
                .own("Lease", server.lease_name())
                .map(|lease| text(lease, "/spec/holderIdentity").to_owned())
                .unwrap_or_default(),
        };
        Self {
            versions,
            namespace: observed.namespace.clone(),
            servers: SERVERS.map(server).into(),
            catalogs: count("ClusterCatalog", types::SERVING),
            extensions: count("ClusterExtension", types::INSTALLED),
            findings: diagnose(observed, observed.time),
            unreadable: observed.unreadable.clone(),
        }
    }
}

/// Reports whether a condition is `True`.
fn has(object: &serde_json::Value, type_: &str) -> bool {
    list(object, "/status/conditions").iter().any(|one| one["type"] == type_ && one["status"] == "True")
}

fn report_text(report: &Report) -> String {
    let mut fields = Fields::default();
    let versions = report.versions.iter().map(|one| format!("{} {}", one.name, one.version));
    fields.add(0, "Versions", &versions.collect::<Vec<_>>().join(", "));
    fields.add(0, "Namespace", &report.namespace);
    let counts = |counts: &Counts, what: &str| format!("{}, {} {what}", counts.total, counts.healthy);
    fields.add(0, "Catalogs", &counts(&report.catalogs, "served"));
    fields.add(0, "Extensions", &counts(&report.extensions, "installed"));
    let mut table = Table::new(&["SERVER", "READY", "LEADER"]);
    for server in &report.servers {
        let ready = format!("{}/{}", server.ready_pods, server.pods);
        table.row([server.name, &ready, &server.leader]);
    }
    format!("{}\n{}{}", fields.text, table.text(), findings_text(&report.findings))
}

/// Findings, and their number at the end.
fn findings_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let Place { object, cause, remedy, documentation } = &finding.place;
        let (level, rule) = (finding.level.name(), finding.rule);
        let by = cause.map(|cause| format!(" ({})", cause.id)).unwrap_or_default();
        text += &format!("\n{level} {}{by}: {object}\n  {}.\n", rule.id, rule.text);
        if let Some(cause) = cause {
            text += &format!("  Cause:   {}.\n", cause.text);
        }
        let message = printable(&finding.message).replace('\n', "\n           ");
        text += &format!("  Found:   {message}\n  Remedy:  {remedy}.\n  See:     {documentation}\n");
    }
    let number =
        |level: Level| counted(findings.iter().filter(|one| one.level == level).count(), level.name());
    let numbers = [Level::Error, Level::Warning, Level::Note].map(number);
    text + &format!("\n{}\n", numbers.join(", "))
}

fn rules_text(rules: &Rules) -> String {
    let line = |rule: &&DoctorRule| {
        let (level, documentation) = (rule.level.name(), rule.check.documentation());
        format!("{} ({level})\n  {}.\n  {}.\n  {documentation}\n", rule.id, rule.text, rule.remedy)
    };
    rules.rules.iter().map(line).collect()
}
