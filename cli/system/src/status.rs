//! `olm system status`: versions and health of the servers.

use clap::Args;
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::ObjectAccess;
use olm_cli_core::output::{Fields, FormatArgs};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterArgs;
use olm_runtime::component::VERSION;
use serde::Serialize;

use super::observe;
use crate::doctor::{Skew, SystemHealth, skew, system_health};

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Show versions and health of the servers

Shows Deployments, leaders, certificates and the admission webhook, with the findings of `olm doctor` about them, and \
whether this program supports the version of the servers: it supports one minor version older or newer than its own. \
Extensions and catalogs have no influence; see `olm status`.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(
    mut_arg("catalogd_namespace", |namespace| namespace.short('n').visible_alias("namespace")),
    after_help = "Exit codes:
  0 healthy   1 operation failed   2 wrong usage   3 something does not work
  4 OLM is not installed in this namespace

Examples:
  {olm} system status
  {olm} system status -n my-olm -o json | jq -r .version"
)]
pub struct SystemStatusArgs {
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
struct Report {
    namespace: String,
    /// Version of the servers. Empty if unknown.
    version: String,
    /// Variant of the install file. Empty if unknown.
    variant: String,
    /// Version of this program.
    olm: &'static str,
    skew: Skew,
    #[serde(flatten)]
    health: SystemHealth,
}

/// Runs the command.
///
/// # Errors
/// The cluster cannot be read, OLM is not installed, or something does not work.
pub(super) async fn run(args: SystemStatusArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.cluster.connect().await?;
    let installed = observe::installed(&ObjectAccess::new(&cluster, session, false)).await?;
    if installed.deployments.is_empty() {
        return Err(observe::not_installed(cluster.namespace()));
    }
    let health = system_health(&cluster, session).await?;
    health.unreadable.iter().for_each(|what| say(&format!("warning: not read: {what}")));
    let report = Report {
        namespace: cluster.namespace().to_owned(),
        skew: skew(VERSION, &installed.version),
        version: installed.version,
        variant: installed.record.map(|record| record.variant).unwrap_or_default(),
        olm: VERSION,
        health,
    };
    session.output.result(args.format.output, "SystemStatus", &report, text)?;
    if report.health.has_errors() { Err(CliError::Findings) } else { Ok(()) }
}

fn text(report: &Report) -> String {
    let mut fields = Fields::default();
    let version = if report.version.is_empty() { "unknown" } else { &report.version };
    fields.add(0, "Servers", &format!("{version} {}", report.variant));
    fields.add(0, "olm", &format!("{}, skew: {:?}", report.olm, report.skew));
    fields.add(0, "Kubernetes", &report.health.kubernetes);
    fields.add(0, "Namespace", &report.namespace);
    format!("{}\n{}", fields.text, report.health.text())
}
