//! `olm migrate`: from classic OLM to ClusterExtensions (docs/design/migration.md).
//!
//! [`objects`] are the objects of classic OLM in the fields that a migration needs, and [`classify`], which is pure,
//! judges each package. [`read`] gets the objects from a cluster or a dump. [`plan`] computes what a migration does.

mod classify;
mod group_role;
mod objects;
pub(crate) mod plan;
mod read;
mod rule;
mod scan;

use clap::Subcommand;

use crate::error::CliError;
use crate::session::Session;

/// Subcommands of `olm migrate`.
#[derive(Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Report which packages of classic OLM can become ClusterExtensions
    #[command(long_about = scan::ABOUT)]
    Scan(scan::ScanArgs),
    /// Plan how packages of classic OLM become ClusterExtensions
    #[command(long_about = plan::ABOUT)]
    Plan(plan::PlanArgs),
}

/// Runs a subcommand.
///
/// # Errors
/// Errors of the subcommand.
pub(crate) async fn run(command: MigrateCommand, session: &mut Session) -> Result<(), CliError> {
    match command {
        MigrateCommand::Scan(args) => scan::run(args, session).await,
        MigrateCommand::Plan(args) => plan::run(args, session).await,
    }
}
