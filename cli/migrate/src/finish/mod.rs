//! `olm migrate finish`: removes classic OLM from a cluster that has nothing left to migrate
//! (docs/design/migration.md#finish).
//!
//! [`mod@observe`] reads classic OLM, and [`mod@removal`], which is pure, chooses what is removed.

mod observe;
mod removal;

use std::time::Duration;

use clap::Args;
use olm_cli_core::change::{self as changes, Completion, DryRun};
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::{Dependents, ObjectAccess, ObjectId};
use olm_cli_core::output::FormatArgs;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterArgs;
use serde_json::json;

use self::observe::{installed, pods, read};
use self::removal::{Removal, refusal, removal};
use super::apply::change;
use super::backup;
use super::detach::release_from_classic;
use super::plan::model::named;

/// Longest wait for the end of pods, and for the deletion of CustomResourceDefinitions.
const LIMIT: Duration = Duration::from_secs(300);
/// Next step after an interruption.
const REMAINING: &str = "to go on, run the command again";

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Remove classic OLM from the cluster

Refuses while a Subscription or ClusterServiceVersion exists. Lists what will be removed, then asks: the Deployments of \
classic OLM, its API and RBAC, OperatorGroups, CatalogSources and, last, its CustomResourceDefinitions. Objects that \
classic OLM owns lose this owner before, so that no workload is deleted. The backups of the migrations are deleted: \
`olm migrate rollback` is not possible afterwards. On OpenShift, the cluster version operator manages classic OLM.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage   3 classic OLM is still in use, or managed by the platform

Examples:
  {olm} migrate finish --dry-run=client            # only list what would be removed
  {olm} migrate finish")]
pub struct FinishArgs {
    /// Remove without asking
    #[arg(short, long)]
    yes: bool,
    /// Only list what would be removed (client), or also let the API server validate it (server)
    #[arg(long, value_enum, value_name = "WHERE")]
    dry_run: Option<DryRun>,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Runs the command.
///
/// # Errors
/// Classic OLM is in use, the answer is no, or an object cannot be removed.
pub(super) async fn run(args: FinishArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.cluster.connect().await?;
    let (removal, backups) = {
        let access = ObjectAccess::new(&cluster, session, false);
        let backups = backup::find(&access).await?;
        (chosen(&access, &backups).await?, backups)
    };
    session.output.result(args.format.output, "MigrationRemoval", &removal, Removal::text)?;
    if args.dry_run == Some(DryRun::Client) || (removal.count() == 0 && backups.is_empty()) {
        return Ok(());
    }
    if args.dry_run.is_none() {
        session.output.finish()?;
        let count = olm_cli_core::output::counted(removal.count(), "object");
        let migrations = olm_cli_core::output::counted(backups.len(), "migration");
        let question = format!("Delete {count} of classic OLM and the backups of {migrations}?");
        changes::confirm(&question, args.yes, session).await?;
    }
    let access = ObjectAccess::new(&cluster, session, args.dry_run.is_some());
    // The state may have changed before the answer.
    let backups = backup::find(&access).await?;
    let removal = chosen(&access, &backups).await?;
    remove(&access, &removal, &backups).await
}

/// Objects to remove now.
///
/// # Errors
/// Classic OLM is in use or cannot be recognized, or the API server does not answer.
async fn chosen(access: &ObjectAccess<'_>, backups: &[(String, String)]) -> Result<Removal, CliError> {
    let found = read(access, backups).await?;
    match refusal(&found) {
        Some(why) => Err(CliError::findings(why)),
        None => Ok(removal(&found)),
    }
}

fn step(text: &str, objects: &[ObjectId]) {
    if !objects.is_empty() {
        say(&format!("{text} {}", named(objects)));
    }
}

/// Removes classic OLM in the order of `removal`, then the backups. Can be repeated.
async fn remove(
    access: &ObjectAccess<'_>,
    removal: &Removal,
    backups: &[(String, String)],
) -> Result<(), CliError> {
    stop(access, removal).await?;
    let stopped = match access.dry_run {
        true => None,
        // Until it stopped, classic OLM could set owners.
        false => Some(chosen(access, backups).await?),
    };
    let removal = stopped.as_ref().unwrap_or(removal);
    step("releasing from classic OLM:", &removal.released);
    for id in &removal.released {
        change(access, id, release_from_classic).await?;
    }
    step("deleting", &removal.objects);
    for id in &removal.objects {
        access.delete(id, None, Dependents::Delete).await?;
        if id.kind == "ClusterServiceVersion" {
            // Nothing removes the finalizer any more.
            access.merge(id, &json!({ "metadata": { "finalizers": null } })).await?;
        }
    }
    if !access.dry_run
        && let Some(why) = refusal(&installed(access).await?)
    {
        return Err(CliError::findings(format!("the CustomResourceDefinitions stay: {why}")));
    }
    delete_crds(access, &removal.crds).await?;
    for (namespace, package) in backups {
        backup::delete(access, namespace, package).await?;
    }
    Ok(())
}

/// Deletes the Deployments of classic OLM, and waits until none of their pods exists.
async fn stop(access: &ObjectAccess<'_>, removal: &Removal) -> Result<(), CliError> {
    step("deleting the Deployments:", &removal.deployments);
    for id in &removal.deployments {
        access.delete(id, None, Dependents::Delete).await?;
    }
    if access.dry_run || removal.home.is_empty() {
        return Ok(());
    }
    let poll = async || Ok(remaining(&pods(access, &removal.home).await?));
    changes::until("the end of classic OLM's pods", REMAINING, LIMIT, poll, access.session()).await.map(drop)
}

/// Deletes the CustomResourceDefinitions, and waits until none exists.
async fn delete_crds(access: &ObjectAccess<'_>, crds: &[ObjectId]) -> Result<(), CliError> {
    step("deleting the CustomResourceDefinitions:", crds);
    for id in crds {
        access.delete(id, None, Dependents::Delete).await?;
    }
    if access.dry_run {
        return Ok(());
    }
    let poll = async || {
        let mut left = Vec::new();
        for id in crds {
            let found = access.get(id).await?;
            left.extend(found.as_ref().map(ObjectId::of).filter(|found| found.uid == id.uid));
        }
        Ok(remaining(&left))
    };
    let what = "the deletion of the CustomResourceDefinitions";
    changes::until(what, REMAINING, LIMIT, poll, access.session()).await.map(drop)
}

/// State of a wait until no object is left.
fn remaining(objects: &[ObjectId]) -> Completion {
    match objects {
        [] => Completion::Complete(String::new()),
        [first, ..] => Completion::InProgress(format!("{first} exists")),
    }
}
