//! `olm migrate rollback`: returns a migrated package to classic OLM, without a restart
//! (docs/design/migration.md#rollback).
//!
//! [`choice`] chooses the packages, [`mod@observe`] reads the state, and [`state`], which is pure, chooses the next step.

mod choice;
mod observe;
mod restoration;
mod state;
mod trust;

use std::time::Duration;

use clap::Args;
use olm_api::annotations;
use olm_cli_core::change::{self as changes, Completion, merge_patch};
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::{Dependents, ObjectAccess, ObjectId};
use olm_cli_core::output::FormatArgs;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterArgs;
use serde_json::{Value, json};

use self::choice::{Failures, chosen, present};
use self::observe::{is_webhook, observe, restorable};
pub(super) use self::restoration::is_recreated;
use self::restoration::{has_installed, installed, owning, paused, released, unowned};
use self::state::{Step, decide};
use super::apply::act::{recreate_missing, resume_subscription};
use super::apply::observe::{classic, is_open};
use super::apply::{StepCounts, act, change, count_step, csv_id, failed, fresh, recreate};
use super::backup::{self, Backup};
use super::plan::model::PackagePlan;
use super::pods::{announced, read as read_pods, restarted};
use super::report::{MigrationReport, PackageResult};

/// Time until classic OLM has surely seen the restored objects.
const CACHE_DELAY: Duration = Duration::from_secs(1);

/// Time in which classic OLM sees the ClusterServiceVersion and begins to install it again.
const REACTION: Duration = Duration::from_secs(2);
/// CustomResourceDefinitions that a return needs.
const NEEDED: [&str; 2] =
    ["clusterserviceversions.operators.coreos.com", "subscriptions.operators.coreos.com"];

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Return migrated packages to classic OLM, without a restart

Deletes the ClusterExtension and its revisions without their objects, and creates the Subscription and the \
ClusterServiceVersion from the backup that `olm migrate apply` wrote. Last, the Subscription follows its channel again. Objects that the migration removed or replaced are restored. \
Other changes since the backup stay. Classic OLM must still be installed. The command can be interrupted, and continues when \
it is run again. In the end, once classic OLM has installed the ClusterServiceVersion, the backup is deleted.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed, timed out, or a pod restarted   2 wrong usage
  3 the state of the package does not permit it   4 there is no backup of the package

Examples:
  {olm} migrate rollback lamp
  {olm} migrate rollback operators/lamp --yes -o json
  {olm} migrate rollback --all")]
pub struct MigrateRollbackArgs {
    /// Packages to return, as PACKAGE or NAMESPACE/PACKAGE
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    names: Vec<String>,
    /// Return all packages with a backup, those that others require first
    #[arg(long)]
    all: bool,
    /// Roll back without asking
    #[arg(short, long)]
    yes: bool,
    /// Longest wait for each step, such as 90s, 10m or 1h
    #[arg(long, value_name = "TIME", value_parser = changes::time, default_value = "10m")]
    timeout: Duration,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Runs the command.
///
/// # Errors
/// There is no backup, a step fails, or a pod restarted.
pub(super) async fn run(args: MigrateRollbackArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.cluster.connect().await?;
    let access = ObjectAccess::new(&cluster, session, false);
    let mut failures = Failures::default();
    let backups = chosen(&access, &args, &mut failures).await?;
    check(&access).await?;
    let names: Vec<String> =
        backups.iter().map(|(backup, _)| format!("{} {}", backup.plan.id(), backup.plan.version)).collect();
    let question = format!("Return {} to classic OLM?", names.join(", "));
    if !backups.is_empty() {
        changes::confirm(&question, args.yes, session).await?;
    }
    let mut report = MigrationReport::new(false);
    for (backup, providers) in &backups {
        let PackagePlan { namespace, package, .. } = &backup.plan;
        let result = match failures.among(providers) {
            Some(provider) => Err(CliError::operational(format!(
                "{namespace}/{package}: not tried, because it requires {provider}, which has not returned"
            ))),
            None => returned(&access, namespace, package, args.timeout).await,
        };
        match result {
            Ok(result) => report.packages.push(result),
            Err(error) => failures.add(namespace, package, &error),
        }
        if failures.is_interrupted() {
            break;
        }
    }
    let failure = failures.error();
    report.failed = failures.all;
    session.output.result(args.format.output, "MigrationReport", &report, MigrationReport::text)?;
    match failure {
        Some(failure) => Err(failure),
        None if !report.restarted().is_empty() => {
            Err(CliError::operational(format!("pods restarted: {}", report.restarted().join("; "))))
        }
        None => Ok(()),
    }
}

/// Returns a package with its present backup: others may have changed it since the question.
async fn returned(
    access: &ObjectAccess<'_>,
    namespace: &str,
    package: &str,
    timeout: Duration,
) -> Result<PackageResult, CliError> {
    let backup = present(access, namespace, package).await?;
    Rollback { access, backup: &backup, timeout }.package().await
}

/// Checks that classic OLM is installed.
///
/// # Errors
/// The cluster does not serve its kinds.
async fn check(access: &ObjectAccess<'_>) -> Result<(), CliError> {
    for name in NEEDED {
        let id = ObjectId {
            api_version: "apiextensions.k8s.io/v1".to_owned(),
            kind: "CustomResourceDefinition".to_owned(),
            name: name.to_owned(),
            ..ObjectId::default()
        };
        let found = access.get(&id).await?.filter(|found| found["metadata"]["deletionTimestamp"].is_null());
        if found.is_none() {
            return Err(CliError::findings(format!(
                "{id} does not exist: install classic OLM, then run the command again"
            )));
        }
    }
    let operators = access.list(("apps/v1", "Deployment"), "", Some("app=olm-operator")).await?;
    let is_ready =
        |found: &Value| found["status"]["readyReplicas"].as_u64().is_some_and(|replicas| replicas > 0);
    if !operators.iter().any(is_ready) {
        say(
            "warning: no Deployment olm-operator is ready: without classic OLM, nothing manages the package afterwards",
        );
    }
    Ok(())
}

/// Return of one package to classic OLM.
struct Rollback<'a> {
    access: &'a ObjectAccess<'a>,
    backup: &'a Backup,
    timeout: Duration,
}

impl Rollback<'_> {
    /// Returns the package, compares its pods, and deletes the backup.
    async fn package(&self) -> Result<PackageResult, CliError> {
        let Self { access, backup, .. } = self;
        let plan = &backup.plan;
        let steps = self.run().await?;
        let after = read_pods(access, plan).await?;
        let restarts = restarted(&backup.pods, &after, &announced(plan));
        backup::delete(access, &plan.namespace, &plan.package).await?;
        Ok(PackageResult {
            package: plan.package.clone(),
            namespace: plan.namespace.clone(),
            version: plan.version.clone(),
            steps,
            pods: backup.pods.len(),
            restarts,
        })
    }

    /// Takes the steps until nothing is left to do. Returns their texts.
    async fn run(&self) -> Result<Vec<String>, CliError> {
        let plan = &self.backup.plan;
        let remaining = format!(
            "\nthe operator runs; to go on: olm migrate rollback {}; to migrate after all: olm migrate apply {}",
            plan.id(),
            plan.id()
        );
        let mut steps = Vec::new();
        let (mut counts, mut completing) = (StepCounts::new(), StepCounts::new());
        let mut is_settled = false;
        loop {
            let package = format!("package {}", plan.package);
            let observed = observe(self.access, self.backup).await;
            let observed = observed.map_err(|error| failed(error, &package, &remaining))?;
            let step = decide(plan, &observed);
            let text = step.text(plan);
            let what = format!("{package}: {text}");
            match &step {
                Step::Done => return Ok(steps),
                // The restored status is still that before the migration.
                Step::ResumeSubscription if !is_settled => {
                    self.access.session().interruptible(tokio::time::sleep(REACTION)).await?;
                    is_settled = true;
                    continue;
                }
                Step::Refuse(_) => return Err(CliError::findings(what)),
                // A refused rollback changes nothing.
                _ if steps.is_empty() => {
                    let begun = self.begin().await;
                    begun.map_err(|error| failed(error, &what, &remaining))?;
                }
                _ => {}
            }
            is_settled = false;
            match &step {
                Step::Complete(step) => count_step(&mut completing, step, &what, &remaining)?,
                step => count_step(&mut counts, step, &what, &remaining)?,
            }
            if steps.last() != Some(&text) {
                say(&format!("{}: {text}", plan.package));
                steps.push(text);
            }
            let taken = match step.awaited() {
                Some(_) => self.wait(&step, remaining.trim_start()).await,
                None => self.act(&step, &observed).await.map_err(|error| failed(error, &what, &remaining)),
            };
            taken?;
            // From now on, classic OLM may upgrade.
            if step == Step::ResumeSubscription {
                return Ok(steps);
            }
        }
    }

    /// Waits until another step is next.
    async fn wait(&self, step: &Step, remaining: &str) -> Result<(), CliError> {
        let plan = &self.backup.plan;
        let poll = async || {
            let next = decide(plan, &observe(self.access, self.backup).await?);
            let is_same = std::mem::discriminant(&next) == std::mem::discriminant(step);
            Ok(match next.awaited().filter(|_| is_same) {
                Some(state) => Completion::InProgress(state.to_owned()),
                None => Completion::Complete(String::new()),
            })
        };
        changes::until(&plan.package, remaining, self.timeout, poll, self.access.session()).await.map(drop)
    }

    /// Takes a step that changes the cluster. It can be repeated.
    async fn act(&self, step: &Step, observed: &state::Observed) -> Result<(), CliError> {
        let Self { access, backup, .. } = self;
        let plan = &backup.plan;
        match step {
            Step::Complete(step) => {
                let live = super::apply::observe::Live::new();
                act::take(access, plan, Some(backup), step, (&observed.migration, &live)).await
            }
            Step::Pause(extension) => self.pause(extension).await,
            Step::Recreate(objects) => self.recreate(objects, &observed.created).await,
            Step::Release(objects) => self.release(objects, observed.has_extension()).await,
            Step::RemoveCreated(objects) => self.delete(objects, Dependents::Delete).await,
            Step::DeleteExtension(extension) => {
                self.delete(std::slice::from_ref(extension), Dependents::Orphan).await
            }
            Step::DeleteRevisions(revisions, content) => {
                self.delete(revisions, Dependents::Orphan).await?;
                self.delete(content, Dependents::Delete).await
            }
            Step::CreateCsv => {
                access.session().interruptible(tokio::time::sleep(CACHE_DELAY)).await?;
                self.create_csv().await
            }
            Step::ResumeSubscription => {
                backup::set_returned(access, plan, true).await?;
                resume_subscription(access, plan, Some(backup)).await
            }
            Step::SetCsvStatus => self.set_csv_status().await,
            Step::ReleaseFinalizer(csv) => {
                let finalizers =
                    backup.csv().map_or(Value::Null, |csv| csv["metadata"]["finalizers"].clone());
                access.merge(csv, &json!({ "metadata": { "finalizers": finalizers } })).await.map(drop)
            }
            Step::Attach(objects) => self.attach(objects).await,
            Step::RemoveCertificates(secrets) => self.delete(secrets, Dependents::Delete).await,
            Step::CreateSubscription => {
                let id = classic(plan, "Subscription", &plan.subscription);
                let saved = backup.subscription().ok_or_else(|| not_saved(&id))?;
                recreate(access, paused(saved)).await.map(drop)
            }
            Step::SetSubscriptionStatus => {
                let id = classic(plan, "Subscription", &plan.subscription);
                let saved = backup.subscription().ok_or_else(|| not_saved(&id))?;
                let live = access.get(&id).await?.ok_or_else(|| not_saved(&id))?;
                access.set_status(&ObjectId::of(&live), &installed(saved, &plan.csv)).await
            }
            Step::Refuse(_)
            | Step::AwaitPause(_)
            | Step::AwaitDeletion(_)
            | Step::AwaitCsv(_)
            | Step::Done => Ok(()),
        }
    }

    /// Records the begin of the rollback, and before what the extension follows. The pin of a migration that has not ended
    /// is not a choice of an administrator.
    async fn begin(&self) -> Result<(), CliError> {
        let Self { access, backup, .. } = self;
        let plan = &backup.plan;
        let extension = ObjectId { uid: String::new(), ..ObjectId::of(&plan.extension) };
        if let Some(live) = access.get(&extension).await?
            && (is_open(plan, &live) || backup::is_complete(access, plan).await?)
        {
            backup::record_settings(access, plan, &live).await?;
        }
        backup::set_complete(access, plan, false).await
    }

    async fn pause(&self, extension: &ObjectId) -> Result<(), CliError> {
        let patch = json!({ "metadata": { "annotations": {
            (annotations::EXT_PAUSED): "true", (annotations::EXT_UNINSTALL_POLICY): null } } });
        self.access.merge(extension, &patch).await.map(drop)
    }

    fn saved(&self, id: &ObjectId) -> Option<&Value> {
        self.backup.object(&id.kind, &id.namespace, &id.name)
    }

    /// Creates objects of the backup. Webhook configurations also trust the CA that is in use.
    async fn recreate(&self, objects: &[ObjectId], of_extension: &[ObjectId]) -> Result<(), CliError> {
        let mut trusted = trust::Trusted::new();
        for id in of_extension.iter().filter(|id| is_webhook(id)) {
            let live = self.access.get(id).await?;
            live.iter().for_each(|live| trust::collect(live, &mut trusted));
        }
        for saved in objects.iter().filter_map(|id| self.saved(id)) {
            let mut object = unowned(saved);
            trust::extend(&mut object, &trusted);
            let created = recreate_missing(self.access, object).await?;
            let status = &saved["status"];
            if status.is_object() && saved["kind"] != "Deployment" {
                self.access.set_status(&ObjectId::of(&created), status).await?;
            }
        }
        Ok(())
    }

    async fn release(&self, objects: &[ObjectId], has_extension: bool) -> Result<(), CliError> {
        for id in objects {
            let Some(saved) = self.saved(id) else { continue };
            let patch = |live: &Value| {
                let mut patch = merge_patch(live, &released(&self.backup.plan, saved, live, has_extension))?;
                patch["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
                Some(patch)
            };
            change(self.access, id, patch).await?;
        }
        Ok(())
    }

    async fn delete(&self, objects: &[ObjectId], dependents: Dependents) -> Result<(), CliError> {
        for id in objects {
            self.access.delete(id, None, dependents).await?;
        }
        Ok(())
    }

    async fn attach(&self, objects: &[ObjectId]) -> Result<(), CliError> {
        let csv = self.access.get(&csv_id(&self.backup.plan)).await?;
        for id in objects {
            let Some(saved) = self.saved(id) else { continue };
            change(self.access, id, |live| owning(saved, live, csv.as_ref())).await?;
        }
        Ok(())
    }

    /// Creates the ClusterServiceVersion, and sets at once the labels by which classic OLM finds cluster-scoped objects: it
    /// would create webhook configurations again. Before, it would delete objects with these labels. Does nothing if the
    /// Subscription has lost its status: classic OLM writes one that it computed before it was set.
    async fn create_csv(&self) -> Result<(), CliError> {
        let plan = &self.backup.plan;
        let id = csv_id(plan);
        let subscription = self.access.get(&classic(plan, "Subscription", &plan.subscription)).await?;
        if !subscription.is_some_and(|found| has_installed(&found["status"], &plan.csv)) {
            return Ok(());
        }
        let saved = self.backup.csv().ok_or_else(|| not_saved(&id))?;
        let created = recreate(self.access, fresh(saved)).await?;
        let mut labeled: Vec<ObjectId> =
            restorable(self.backup).map(ObjectId::of).filter(|id| id.namespace.is_empty()).collect();
        labeled.sort_by_key(|id| !is_webhook(id));
        self.attach(&labeled).await?;
        self.access.set_status(&ObjectId::of(&created), &saved["status"]).await
    }

    async fn set_csv_status(&self) -> Result<(), CliError> {
        let id = csv_id(&self.backup.plan);
        let saved = self.backup.csv().ok_or_else(|| not_saved(&id))?;
        let live = self.access.get(&id).await?.ok_or_else(|| not_saved(&id))?;
        self.access.set_status(&ObjectId::of(&live), &saved["status"]).await
    }
}

fn not_saved(id: &ObjectId) -> CliError {
    CliError::operational(format!("{id} is not in the backup"))
}
