//! `olm migrate`: from classic OLM to ClusterExtensions (docs/design/migration.md).
//!
//! [`objects`] are the objects of classic OLM in the fields that a migration needs, and [`classify`], which is pure,
//! judges each package. [`read`] gets the objects from a cluster or a dump. [`plan`] computes what a migration does.
//! [`apply`] and [`rollback`] observe a package, choose the next step and take it, until nothing is left to do. They share
//! [`access`] to objects, [`backup`], [`detach`] and [`pods`]. [`finish`] removes classic OLM.

mod access;
mod apply;
mod backup;
mod classify;
mod detach;
mod finish;
mod objects;
pub(crate) mod plan;
mod pods;
mod read;
mod report;
mod rollback;
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
    /// Make ClusterExtensions of packages of classic OLM, without a restart
    #[command(long_about = apply::ABOUT)]
    Apply(Box<apply::ApplyArgs>),
    /// Return a migrated package to classic OLM, without a restart
    #[command(long_about = rollback::ABOUT)]
    Rollback(rollback::MigrateRollbackArgs),
    /// Remove classic OLM from the cluster
    #[command(long_about = finish::ABOUT)]
    Finish(finish::FinishArgs),
}

/// Runs a subcommand.
///
/// # Errors
/// Errors of the subcommand.
pub(crate) async fn run(command: MigrateCommand, session: &mut Session) -> Result<(), CliError> {
    match command {
        MigrateCommand::Scan(args) => scan::run(args, session).await,
        MigrateCommand::Plan(args) => plan::run(args, session).await,
        MigrateCommand::Apply(args) => apply::run(*args, session).await,
        MigrateCommand::Rollback(args) => rollback::run(args, session).await,
        MigrateCommand::Finish(args) => finish::run(args, session).await,
    }
}
