//! `olm system uninstall`: deletes the servers, and with `--purge` everything that OLM installed.

use std::time::Duration;

use clap::{Args, ValueEnum};
use olm_api::annotations;
use olm_cli_core::change::{self, Completion, Deadline};
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::{Dependents, ObjectAccess, ObjectId};
use olm_cli_core::output::{Format, FormatArgs, counted};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterArgs;
use olm_cli_lifecycle::install_files::Variant;
use olm_cli_migrate::{Migration, migrations};
use olm_request::UninstallPolicy;
use serde::Serialize;
use serde_json::Value;

use super::apply::line;
use super::manifest::{embedded, is_same, rank};
use super::observe::{self, Installed};
use super::record::is_labeled;

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Uninstall OLM. Lists what is deleted and what stays, then asks

Deletes the ClusterCatalogs, the servers, their permissions, and their namespace with everything in it. The CRDs stay. \
Refused while ClusterExtensions exist, and while a migration from classic OLM is unfinished, because its backup is in the \
namespace.

--purge also deletes the ClusterExtensions with all their objects, which the servers delete in order, and then the CRDs \
of OLM.

A deletion that was interrupted continues when the command runs again.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(
    mut_arg("catalogd_namespace", |namespace| namespace.short('n').visible_alias("namespace")),
    after_help = "Exit codes:
  0 success   1 operation failed or timed out   2 wrong usage
  3 refused, such as while ClusterExtensions exist; nothing has been changed
  4 OLM is not installed

Examples:
  {olm} system uninstall
  {olm} system uninstall --purge --dry-run         # everything that would be deleted
  {olm} system uninstall --purge --yes"
)]
pub struct SystemUninstallArgs {
    /// Also delete all ClusterExtensions with their objects, and the CRDs of OLM
    #[arg(long)]
    purge: bool,
    /// Uninstall without asking
    #[arg(short, long)]
    yes: bool,
    /// Only print what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// Longest wait, such as 90s, 10m or 1h
    #[arg(long, value_name = "TIME", value_parser = change::time, default_value = "10m")]
    timeout: Duration,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// API version of OLM.
const GROUP: &str = "olm.operatorframework.io/v1";
/// Suffix of the names of all CRDs of OLM.
const CRDS: &str = ".olm.operatorframework.io";
/// Kinds with finalizers that the servers remove, in the order of deletion.
const KINDS: [&str; 3] = ["ClusterExtension", "ClusterObjectSet", "ClusterCatalog"];

/// Object to delete.
#[derive(Debug, Serialize)]
pub(super) struct Deleted {
    #[serde(flatten)]
    pub(super) id: ObjectId,
    /// What is deleted with it, for the table. Empty for nothing.
    #[serde(skip)]
    pub(super) note: String,
}

/// Objects to delete, in order.
#[derive(Debug, Default, Serialize)]
pub(super) struct Plan {
    pub(super) namespace: String,
    /// Objects of [`KINDS`], then those of the install file.
    pub(super) objects: Vec<Deleted>,
    /// CRDs that stay.
    pub(super) kept: Vec<ObjectId>,
    /// Migrations with a backup in the namespace.
    pub(super) migrations: Vec<Migration>,
    /// Set if servers can remove finalizers.
    #[serde(skip)]
    pub(super) has_servers: bool,
}

impl Deleted {
    pub(super) fn of(object: &Value) -> Self {
        let id = ObjectId::of(object);
        let policy = object["metadata"]["annotations"][annotations::EXT_UNINSTALL_POLICY].as_str();
        let note = match (id.kind.as_str(), policy) {
            ("ClusterExtension", None | Some("Delete")) => {
                ", with its objects, CRDs and custom resources".to_owned()
            }
            ("ClusterExtension", Some(policy)) => {
                let policy = UninstallPolicy::of(policy).as_str();
                format!(", with its objects; its uninstall policy is {policy}")
            }
            ("Namespace", _) => ", with everything in it".to_owned(),
            _ => String::new(),
        };
        Self { id, note }
    }
}

/// Runs the command.
///
/// # Errors
/// OLM is not installed, extensions exist without `--purge`, the answer is no, or the deletion takes too long.
pub(super) async fn run(args: SystemUninstallArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.cluster.connect().await?;
    let access = ObjectAccess::new(&cluster, session, false);
    if !observe::is_admin(&access).await? {
        return Err(CliError::findings("cluster-admin permissions are required; nothing has been changed"));
    }
    let plan = observe(&access, args.purge).await?;
    if plan.objects.is_empty() {
        return Err(observe::not_installed(cluster.namespace()));
    }
    session.output.result(args.format.output, "SystemUninstall", &plan, Plan::text)?;
    if let Some(why) = plan.refusal(args.purge) {
        return Err(CliError::findings(why));
    }
    if args.dry_run {
        return Ok(());
    }
    session.output.finish()?;
    change::confirm(&plan.question(cluster.server()), args.yes, session).await?;
    delete(&ObjectAccess::new(&cluster, session, false), &plan, args.purge, args.timeout.into()).await?;
    let done = "OLM is uninstalled";
    if args.format.output == Format::Table {
        return session.output.text(&format!("{done}\n"));
    }
    say(done);
    Ok(())
}

async fn observe(access: &ObjectAccess<'_>, purge: bool) -> Result<Plan, CliError> {
    let namespace = access.cluster().namespace();
    let others = observe::others(access).await?;
    if !others.is_empty() {
        let why = format!("OLM is installed in another namespace: {}; use -n", others.join(", "));
        return Err(CliError::no_candidate(why));
    }
    let installed = observe::installed(access).await?;
    let has_servers = !installed.deployments.is_empty();
    let (namespace, migrations) = (namespace.to_owned(), migrations(access).await?);
    let mut plan = Plan { namespace, migrations, has_servers, ..Plan::default() };
    for kind in KINDS {
        plan.objects.extend(access.list((GROUP, kind), "", None).await?.iter().map(Deleted::of));
    }
    for candidate in candidates(&installed, &plan.namespace)? {
        let Some(found) = access.get(&candidate).await? else { continue };
        let id = ObjectId::of(&found);
        if !is_same(&id, &candidate) {
            continue;
        }
        match (id.kind.as_str(), is_labeled(&found)) {
            ("CustomResourceDefinition", _) if !purge => plan.kept.push(id),
            ("CustomResourceDefinition", _) | (_, true) => plan.objects.push(Deleted::of(&found)),
            ("Namespace", false) => {
                let why = format!(
                    "{id} does not have the label app.kubernetes.io/part-of=olm, and would be deleted with everything in it; use \
                     -n for the namespace of the servers"
                );
                return Err(CliError::findings(why));
            }
            // Not an object of an installation.
            (_, false) => {}
        }
    }
    Ok(plan)
}

/// Objects of the recorded install file, or of all install files in this program, in the order of their deletion. Not the
/// record: it is deleted last, with the Namespace, so that an interrupted deletion can continue.
pub(super) fn candidates(installed: &Installed, namespace: &str) -> Result<Vec<ObjectId>, CliError> {
    let recorded = installed.record.as_ref().map_or(&[][..], |record| &record.objects);
    let mut all: Vec<ObjectId> = recorded.iter().filter(|id| may_be_ours(id, namespace)).cloned().collect();
    let variant = installed.record.as_ref().and_then(|record| Variant::by_name(&record.variant));
    for one in Variant::value_variants().iter().filter(|one| variant.is_none_or(|variant| variant == **one)) {
        for id in embedded(*one, namespace)?.ids() {
            if !all.iter().any(|one| is_same(one, &id)) {
                all.push(id);
            }
        }
    }
    all.sort_by_key(|id| std::cmp::Reverse(rank(&id.kind)));
    Ok(all)
}

/// Reports whether a record may name an object. Other objects with their own content are never deleted.
pub(super) fn may_be_ours(id: &ObjectId, namespace: &str) -> bool {
    match id.kind.as_str() {
        "CustomResourceDefinition" => id.name.ends_with(CRDS),
        "Namespace" => id.name == namespace,
        _ => true,
    }
}

impl Plan {
    pub(super) fn text(&self) -> String {
        let deleted = self.objects.iter().map(|one| format!("delete {}{}\n", line(&one.id), one.note));
        let complete = self.migrations.iter().filter(|one| one.is_complete);
        let backups = complete.map(|one| format!("delete backup of the migration of {}\n", one.package));
        let kept = self.kept.iter().map(|id| format!("keep   {}\n", line(id)));
        deleted.chain(backups).chain(kept).collect()
    }

    /// Reason for which nothing may be deleted.
    pub(super) fn refusal(&self, purge: bool) -> Option<String> {
        let has = |kinds: &[&str]| self.objects.iter().any(|one| kinds.contains(&one.id.kind.as_str()));
        if let Some(why) = unfinished(&self.migrations) {
            return Some(why);
        }
        let why = if has(&KINDS[..2]) && !purge {
            "uninstall the extensions first, or delete them and all their objects with --purge"
        } else if has(&KINDS) && !self.has_servers {
            "no installed server can remove their finalizers; run olm system install first"
        } else {
            return None;
        };
        Some(why.to_owned())
    }

    fn question(&self, server: &str) -> String {
        let extensions = self.objects.iter().filter(|one| one.id.kind == KINDS[0]).count();
        let all = if extensions == 0 {
            String::new()
        } else {
            format!(" and {}", counted(extensions, "extension"))
        };
        format!("Uninstall OLM{all} from the cluster at {server}?")
    }
}

/// Reason for which the backups may not be deleted, if a migration is unfinished.
fn unfinished(migrations: &[Migration]) -> Option<String> {
    let unfinished = migrations.iter().filter(|one| !one.is_complete);
    let names: Vec<&str> = unfinished.map(|one| one.package.as_str()).collect();
    let first = names.first()?;
    Some(format!(
        "the only backup of an unfinished migration would be deleted: {}; finish the migration first: olm migrate \
         apply {first}, or olm migrate rollback {first}",
        names.join(", ")
    ))
}

/// Deletes everything, and waits for each kind: the servers remove the finalizers of their own objects.
async fn delete(
    access: &ObjectAccess<'_>,
    plan: &Plan,
    purge: bool,
    deadline: Deadline,
) -> Result<(), CliError> {
    if let Some(why) = unfinished(&migrations(access).await?) {
        return Err(CliError::findings(why));
    }
    for kind in KINDS {
        // Objects may have been created since the plan.
        let poll = async || {
            let found = access.list((GROUP, kind), "", None).await?;
            if let Some(new) = found.first().filter(|_| !purge && kind != KINDS[2]) {
                let why =
                    format!("{} was created in the meantime; nothing has been changed", ObjectId::of(new));
                return Err(CliError::findings(why));
            }
            for object in found.iter().filter(|one| one["metadata"]["deletionTimestamp"].is_null()) {
                access.delete(&ObjectId::of(object), None, Dependents::Delete).await?;
            }
            Ok(remaining(found.first()))
        };
        wait(poll, deadline, access.session()).await?;
    }
    let is_of_servers = |id: &&ObjectId| !KINDS.contains(&id.kind.as_str());
    let ids: Vec<&ObjectId> = plan.objects.iter().map(|one| &one.id).filter(is_of_servers).collect();
    for id in &ids {
        access.delete(id, None, Dependents::Delete).await?;
    }
    let poll = async || {
        for id in &ids {
            // An object of the same name that was created since is another one.
            let found = access.get(id).await?.filter(|found| found["metadata"]["uid"] == id.uid);
            if found.is_some() {
                return Ok(remaining(found.as_ref()));
            }
        }
        Ok(remaining(None))
    };
    wait(poll, deadline, access.session()).await
}

async fn wait(
    poll: impl AsyncFnMut() -> Result<Completion, CliError>,
    deadline: Deadline,
    session: &Session,
) -> Result<(), CliError> {
    let next = "the deletion continues; run the command again, or see docs/troubleshooting.md#deletion-hangs";
    change::until("the deletion", next, deadline, poll, session).await.map(drop)
}

/// Progress while an object remains, with its condition `Progressing` or the condition of a Namespace, if any.
fn remaining(object: Option<&Value>) -> Completion {
    let Some(object) = object else { return Completion::Complete(String::new()) };
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let types = ["Progressing", "NamespaceContentRemaining", "NamespaceFinalizersRemaining"];
    let mut found = conditions.filter(|one| types.iter().any(|type_| one["type"] == *type_));
    let cause = found.find_map(|one| one["message"].as_str());
    let cause = cause.map(|message| format!(": {message}")).unwrap_or_default();
    Completion::InProgress(format!("{} is being deleted{cause}", ObjectId::of(object)))
}
