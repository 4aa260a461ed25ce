//! `olm migrate finish`: removes classic OLM from a cluster that has nothing left to migrate
//! (docs/design/migration.md#finish).
//!
//! [`removal`], which is pure, chooses what is removed.

mod removal;

use clap::Args;
use serde_json::json;

use self::removal::{Found, Removal, refusal, removal};
use super::access::{Dependents, ObjectAccess};
use super::apply::{change, is_complete};
use super::backup;
use super::detach::release_from_classic;
use super::plan::model::ObjectId;
use crate::change::{self as changes, DryRun};
use crate::error::CliError;
use crate::output::FormatArgs;
use crate::progress::say;
use crate::session::Session;
use crate::source::ClusterArgs;

/// Kinds of classic OLM, in the order of their deletion.
const CLASSIC_KINDS: [(&str, &str); 8] = [
    ("operators.coreos.com/v1alpha1", "Subscription"),
    ("operators.coreos.com/v1alpha1", "InstallPlan"),
    ("operators.coreos.com/v1alpha1", "ClusterServiceVersion"),
    ("operators.coreos.com/v1alpha1", "CatalogSource"),
    ("operators.coreos.com/v1", "OperatorGroup"),
    ("operators.coreos.com/v2", "OperatorCondition"),
    ("operators.coreos.com/v1", "Operator"),
    ("operators.coreos.com/v1", "OLMConfig"),
];
/// Kinds of which classic OLM owns objects.
const OWNED_KINDS: [(&str, &str); 15] = [
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "Pod"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("policy/v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("apiregistration.k8s.io/v1", "APIService"),
];

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
pub(crate) struct FinishArgs {
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
        let found = read(&access, &backups).await?;
        if let Some(why) = refusal(&found) {
            return Err(CliError::findings(why));
        }
        (removal(&found), backups)
    };
    session.output.result(args.format.output, "MigrationRemoval", &removal, Removal::text)?;
    if args.dry_run == Some(DryRun::Client) || (removal.count() == 0 && backups.is_empty()) {
        return Ok(());
    }
    if args.dry_run.is_none() {
        session.output.finish()?;
        let count = crate::output::counted(removal.count(), "object");
        let question =
            format!("Delete {count} of classic OLM and the backups of {} migrations?", backups.len());
        changes::confirm(&question, args.yes, session).await?;
    }
    let access = ObjectAccess::new(&cluster, session, args.dry_run.is_some());
    remove(&access, &removal, &backups).await
}

/// Reads classic OLM and what it owns.
async fn read(access: &ObjectAccess<'_>, backups: &[(String, String)]) -> Result<Found, CliError> {
    let mut found = Found::default();
    for kind in CLASSIC_KINDS {
        found.classic.extend(access.list(kind, "", None).await?);
    }
    for kind in OWNED_KINDS {
        found.others.extend(access.list(kind, "", None).await?);
    }
    found.deployments = access.list(("apps/v1", "Deployment"), "", None).await?;
    let crd = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    found.definitions = access.list(crd, "", None).await?;
    found.is_openshift =
        !access.list(("config.openshift.io/v1", "ClusterVersion"), "", None).await?.is_empty();
    for (namespace, package) in backups {
        if let Some(backup) = backup::read(access, namespace, package).await?
            && !is_complete(access, &backup).await?
        {
            found.incomplete.push(format!("{namespace}/{package}"));
        }
    }
    Ok(found)
}

/// Removes classic OLM in the order of `removal`, then the backups. Can be repeated.
async fn remove(
    access: &ObjectAccess<'_>,
    removal: &Removal,
    backups: &[(String, String)],
) -> Result<(), CliError> {
    let step = |text: &str, objects: &[ObjectId]| {
        if !objects.is_empty() {
            say(&format!("{text} {}", crate::output::counted(objects.len(), "object")));
        }
    };
    step("deleting the Deployments:", &removal.deployments);
    for id in &removal.deployments {
        access.delete(id, None, Dependents::Delete).await?;
    }
    step("removing owners:", &removal.released);
    for id in &removal.released {
        change(access, id, release_from_classic).await?;
    }
    step("deleting", &removal.objects);
    for id in &removal.objects {
        if id.kind == "ClusterServiceVersion" {
            // Nothing removes the finalizer any more.
            access.merge(id, &json!({ "metadata": { "finalizers": null } })).await?;
        }
        access.delete(id, None, Dependents::Delete).await?;
    }
    step("deleting the CustomResourceDefinitions:", &removal.definitions);
    for id in &removal.definitions {
        access.delete(id, None, Dependents::Delete).await?;
    }
    for (namespace, package) in backups {
        backup::delete(access, namespace, package).await?;
    }
    Ok(())
}
