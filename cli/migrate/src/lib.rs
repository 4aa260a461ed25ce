//! `olm migrate`: from classic OLM to ClusterExtensions (docs/design/migration.md).
//!
//! [`objects`] are the objects of classic OLM in the fields that a migration needs, and [`classify`], which is pure,
//! judges each package. [`read`] gets the objects from a cluster or a dump. [`plan`] computes what a migration does.
//! [`apply`] and [`rollback`] observe a package, choose the next step and take it, until nothing is left to do. They share
//! [`backup`], [`dependents`], [`detach`] and [`pods`]. [`finish`] removes classic OLM.

mod apply;
mod backup;
mod backup_file;
mod classify;
mod dependents;
mod detach;
mod finish;
mod gates;
mod group_role;
mod objects;
pub(crate) mod plan;
mod pods;
mod providers;
mod read;
mod report;
mod rollback;
mod rule;
mod scan;

use std::collections::BTreeSet;

use clap::Subcommand;
use olm_cli_core::error::CliError;
use olm_cli_core::output::qualified;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection};

pub use self::backup::{Migration, migrations};

/// Subcommands of `olm migrate`.
#[derive(Debug, Subcommand)]
pub enum MigrateCommand {
    /// Report which packages of classic OLM can become ClusterExtensions
    #[command(long_about = scan::ABOUT)]
    Scan(scan::ScanArgs),
    /// Plan how packages of classic OLM become ClusterExtensions
    #[command(long_about = plan::ABOUT)]
    Plan(plan::MigratePlanArgs),
    /// Migrate packages of classic OLM to ClusterExtensions, without a restart
    #[command(long_about = apply::ABOUT)]
    Apply(Box<apply::ApplyArgs>),
    /// Return migrated packages to classic OLM, without a restart
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
pub async fn run(command: MigrateCommand, session: &mut Session) -> Result<(), CliError> {
    match command {
        MigrateCommand::Scan(args) => scan::run(args, session).await,
        MigrateCommand::Plan(args) => plan::run(args, session).await,
        MigrateCommand::Apply(args) => apply::run(*args, session).await,
        MigrateCommand::Rollback(args) => rollback::run(args, session).await,
        MigrateCommand::Finish(args) => finish::run(args, session).await,
    }
}

/// Package of classic OLM.
#[derive(Debug, Clone)]
pub struct ClassicPackage {
    /// `namespace/package`, or the name of a ClusterServiceVersion without Subscription.
    pub name: String,
    /// Message if a ClusterExtension installs the same package.
    pub twin: Option<String>,
}

/// Packages of classic OLM on a cluster. Kinds that the user may not list are added to `unreadable`.
///
/// # Errors
/// The API server does not answer, or denies access to the Subscriptions.
pub async fn classic_packages(
    cluster: &ClusterConnection,
    unreadable: &mut Vec<String>,
    session: &Session,
) -> Result<Vec<ClassicPackage>, CliError> {
    if !read::has_packages(cluster, session).await? {
        return Ok(Vec::new());
    }
    let objects = read::from_cluster(cluster, session).await?;
    let package = |report: classify::PackageReport| {
        let name = if report.package.is_empty() { &report.csv } else { &report.package };
        let twin = report.findings.iter().find(|finding| finding.rule == rule::EXTENSION);
        ClassicPackage {
            name: qualified(&report.namespace, name),
            twin: twin.map(|finding| finding.message.clone()),
        }
    };
    let packages = classify::classify(&objects).into_iter().map(package).collect();
    unreadable.extend(objects.unreadable);
    Ok(packages)
}

/// Those of `names` that are bundles of the ClusterCatalogs. A catalog that cannot be read is added to `unreadable`.
///
/// # Errors
/// The command is interrupted.
pub async fn bundles_of_catalogs(
    catalogs: &[String],
    names: &BTreeSet<String>,
    access: &Access,
    unreadable: &mut Vec<String>,
    session: &Session,
) -> Result<BTreeSet<String>, CliError> {
    let offered = read::offered_by_cluster(catalogs, names, access, unreadable, session).await?;
    Ok(offered.into_keys().collect())
}

/// Word of a shell command, quoted if necessary.
fn shell_word(text: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./:@%+=,".contains(char);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_special_characters_are_quoted() {
        for (text, expected) in [
            ("r.example/hub:v1", "r.example/hub:v1"),
            ("", "''"),
            ("a b;c|d", "'a b;c|d'"),
            ("a'$(b)", r"'a'\''$(b)'"),
        ] {
            assert_eq!(shell_word(text), expected);
        }
    }
}
