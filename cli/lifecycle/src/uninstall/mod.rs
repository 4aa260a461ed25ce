//! `olm uninstall`: deletes a ClusterExtension after showing the objects that are deleted with it
//! (docs/design/additions.md#uninstall-policy).
//!
//! [`plan`] computes the plan. The controller deletes the objects, according to the extension's uninstall policy.

mod dependents;
mod plan;

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Preconditions};
use olm_api::conditions::types;
use olm_api::{ClusterExtension, ClusterObjectSet, annotations};
use olm_cli_core::change::{self, ChangeArgs, ChangeFormat, Completion, DryRun, WriteResult, WrittenObject};
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::output::{Format, counted, qualified};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{ClusterArgs, ClusterConnection};
use olm_request::UninstallPolicy;
use olm_revision::cluster::{Cluster as _, Instances};
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::object::ObjectKey;
use olm_revision::teardown::DENIED;
use olm_version::quote;
use serde_json::Value;

use self::dependents::dependents;
use self::plan::{OwnedCrd, UninstallPlan};
use crate::status::observe;

/// First lines of the command's help.
pub const ABOUT: &str = "Uninstall a ClusterExtension

Deletes all objects that the extension owns, including its CustomResourceDefinitions and all their custom \
resources. The command first prints the plan with the number of custom resources, then asks.

With --keep-crds, the CustomResourceDefinitions and the custom resources are kept: the extension gets the \
annotation ext.olm.operatorframework.io/uninstall-policy: KeepCRDs, and is deleted once operator-controller has \
applied the policy.";

/// Deadline for the controller to apply the policy to the revisions.
const POLICY_LIMIT: Duration = Duration::from_secs(30);

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed or timed out   2 wrong usage
  3 the uninstall policy forbids it   4 there is no such extension

Examples:
  {olm} uninstall my-operator --plan               # objects that would be deleted
  {olm} uninstall my-operator --wait
  {olm} uninstall my-operator --keep-crds --yes
  {olm} uninstall my-operator --plan -o json | jq .customResources")]
pub struct UninstallArgs {
    /// Name of a ClusterExtension
    #[arg(value_name = "NAME")]
    name: String,
    /// Keep CustomResourceDefinitions and custom resources
    #[arg(long)]
    keep_crds: bool,
    /// Only show what would be deleted
    #[arg(long, conflicts_with_all = ["dry_run", "wait", "yes"])]
    plan: bool,
    /// Uninstall without asking
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Runs the command.
///
/// # Errors
/// The extension does not exist, its policy forbids the deletion, the answer is no, or the deletion takes too long.
pub async fn run(args: UninstallArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.cluster.connect().await?;
    let planned = PlannedUninstall::read(&cluster, &args.name, args.keep_crds, session).await?;
    planned.notes.iter().for_each(|note| say(&format!("warning: {note}")));
    let PlannedUninstall { extension, plan, .. } = &planned;
    print_plan(plan, args.change.output, session)?;
    if args.plan {
        return Ok(());
    }
    if let Some(blocked) = plan.blocked() {
        return Err(blocked);
    }
    let dry_run = args.change.dry_run;
    if dry_run.is_none() {
        session.output.finish()?;
        change::confirm(&plan.question(), args.yes, session).await?;
    }
    let written = planned.carry_out(&cluster, args.change.timeout, dry_run, session).await?;
    if matches!(args.change.output, ChangeFormat::Table | ChangeFormat::Name) {
        change::print(args.change.output, "", &[written], &mut session.output)?;
    }
    if !args.change.wait {
        return Ok(());
    }
    session.output.finish()?;
    let message =
        deletion(&cluster, extension, &planned.revisions, plan, args.change.timeout, session).await?;
    change::print_end(args.change.output, &message, session)
}

/// Uninstallation with its effects, which has not begun.
#[derive(Debug)]
pub struct PlannedUninstall {
    /// The extension as read.
    pub extension: ClusterExtension,
    /// CRDs whose custom resources cannot be counted, and other unknown effects, with the reason.
    pub notes: Vec<String>,
    /// What is deleted, and what stays.
    pub plan: UninstallPlan,
    revisions: Vec<ClusterObjectSet>,
    keep_crds: bool,
}

impl PlannedUninstall {
    /// Counts the objects and custom resources that are deleted with the extension `name`. `keep_crds` keeps CRDs and
    /// custom resources, whatever the policy of the extension is.
    ///
    /// # Errors
    /// The extension does not exist, or the cluster cannot be read.
    pub async fn read(
        cluster: &ClusterConnection,
        name: &str,
        keep_crds: bool,
        session: &Session,
    ) -> Result<Self, CliError> {
        let observed = observe::observe(cluster, name, session).await?;
        let mut plan = UninstallPlan::new(&observed, keep_crds);
        let mut notes = Vec::new();
        for crd in &mut plan.crds {
            notes.extend(count(cluster, crd, session).await?);
        }
        match dependents(cluster, &observed.extension, session).await {
            Ok(dependents) => plan.dependents = dependents,
            Err(error @ CliError::Message(Code::Interrupted, _)) => return Err(error),
            Err(error) => notes.push(format!("cannot determine which extensions require {name}: {error}")),
        }
        let revisions = observed.revisions.into_iter().map(|revision| revision.set).collect();
        Ok(Self { extension: observed.extension, notes, revisions, plan: plan.counted(), keep_crds })
    }

    /// Deletes the extension. If CRDs are kept, first waits up to `limit` until operator-controller has applied the
    /// policy.
    ///
    /// # Errors
    /// The API server refuses a write, or the policy is not applied in time: then nothing is deleted.
    pub async fn carry_out(
        &self,
        cluster: &ClusterConnection,
        limit: Duration,
        dry_run: Option<DryRun>,
        session: &Session,
    ) -> Result<WrittenObject, CliError> {
        if self.keep_crds {
            keep_crds(cluster, &self.extension, dry_run, session).await?;
        }
        if self.plan.keeps_crds() && dry_run.is_none() {
            policy_applied(cluster, &self.extension, POLICY_LIMIT.min(limit), session).await?;
        }
        delete(cluster, &self.extension, dry_run, session).await
    }
}

fn print_plan(plan: &UninstallPlan, notation: ChangeFormat, session: &mut Session) -> Result<(), CliError> {
    let format = match notation {
        ChangeFormat::Name => {
            say(plan.text().trim_end());
            return Ok(());
        }
        ChangeFormat::Table => Format::Table,
        ChangeFormat::Json => Format::Json,
        ChangeFormat::Yaml => Format::Yaml,
    };
    session.output.result(format, "UninstallPlan", plan, UninstallPlan::text)
}

/// Counts the custom resources of a CRD. Returns the reason for which the user may not list them, if so.
async fn count(
    cluster: &ClusterConnection,
    crd: &mut OwnedCrd,
    session: &Session,
) -> Result<Option<String>, CliError> {
    let Some(gvk) = &crd.gvk else { return Ok(None) };
    let engine = KubeCluster::new(cluster.client().clone());
    match session.interruptible(engine.instances(gvk)).await? {
        Ok(found) => {
            crd.custom_resources = Some(found.as_ref().map_or(0, |found| found.count as usize));
            crd.first = found.map(|Instances { first, .. }| {
                let name = qualified(&first.namespace, &first.name);
                format!("{}, Kind={} {name}", gvk.api_version(), gvk.kind)
            });
        }
        Err(error) => {
            return Ok(Some(format!("the custom resources of {} cannot be counted: {error}", crd.name)));
        }
    }
    Ok(None)
}

/// Sets the annotation that keeps the CRDs.
async fn keep_crds(
    cluster: &ClusterConnection,
    extension: &ClusterExtension,
    dry_run: Option<DryRun>,
    session: &Session,
) -> Result<(), CliError> {
    let mut keeping = extension.clone();
    let policy = UninstallPolicy::KeepCrds.as_str().to_owned();
    keeping.annotations_mut().insert(annotations::EXT_UNINSTALL_POLICY.to_owned(), policy);
    change::apply(cluster, Some(extension), &keeping, dry_run, session).await.map(drop)
}

/// Waits until every active revision has the policy to keep CRDs. A controller that does not know the policy would
/// delete them and their custom resources.
async fn policy_applied(
    cluster: &ClusterConnection,
    extension: &ClusterExtension,
    limit: Duration,
    session: &Session,
) -> Result<(), CliError> {
    let name = extension.name_any();
    let poll = async || {
        let revisions = observe::revisions(cluster, &name, session).await?;
        let without =
            revisions.iter().filter(|revision| revision.is_active()).find(|revision| !keeps(revision));
        Ok(match without {
            Some(revision) => Completion::InProgress(format!(
                "revision {} does not have the policy KeepCRDs yet",
                revision.name_any()
            )),
            None => Completion::Complete(String::new()),
        })
    };
    let remaining = format!(
        "nothing has been deleted; ClusterExtension {} still has annotation {}",
        quote(&name),
        annotations::EXT_UNINSTALL_POLICY
    );
    let what = format!("operator-controller to apply policy KeepCRDs to the revisions of {name}");
    change::until(&what, &remaining, limit, poll, session).await.map(drop)
}

fn keeps(revision: &ClusterObjectSet) -> bool {
    let policy = revision.annotations().get(annotations::EXT_UNINSTALL_POLICY);
    policy.is_some_and(|policy| policy == UninstallPolicy::KeepCrds.as_str())
}

async fn delete(
    cluster: &ClusterConnection,
    extension: &ClusterExtension,
    dry_run: Option<DryRun>,
    session: &Session,
) -> Result<WrittenObject, CliError> {
    let name = extension.name_any();
    let object = serde_json::to_value(extension)?;
    let written = WrittenObject::new(object, WriteResult::Deleted, dry_run);
    if dry_run == Some(DryRun::Client) {
        return Ok(written);
    }
    let api: Api<ClusterExtension> = Api::all(cluster.client().clone());
    // UID precondition: another extension of the same name must not be deleted.
    let parameters = DeleteParams {
        dry_run: dry_run.is_some(),
        preconditions: Some(Preconditions { uid: extension.uid(), resource_version: None }),
        ..DeleteParams::background()
    };
    let what = format!("delete ClusterExtension {}", quote(&name));
    change::call(&what, api.delete(&name, &parameters), session).await?;
    Ok(written)
}

/// Waits until the extension, its revisions and the CRDs of the plan are deleted.
///
/// # Errors
/// Objects remain whose deletion was denied, or custom resources whose finalizers nothing removes.
async fn deletion(
    cluster: &ClusterConnection,
    extension: &ClusterExtension,
    revisions: &[ClusterObjectSet],
    plan: &UninstallPlan,
    limit: Duration,
    session: &Session,
) -> Result<String, CliError> {
    let name = extension.name_any();
    let crds: Vec<&OwnedCrd> = plan.crds.iter().filter(|crd| !crd.kept).collect();
    let mut denied = None;
    let uids: BTreeSet<String> = revisions.iter().filter_map(ResourceExt::uid).collect();
    let mut stuck = Vec::new();
    let poll = async || {
        let found = cluster.find_extension(&name, session).await?;
        let remaining = observe::revisions(cluster, &name, session).await?;
        let remaining: Vec<_> = remaining
            .iter()
            .filter(|revision| revision.uid().is_some_and(|uid| uids.contains(&uid)))
            .collect();
        let found = found.filter(|found| found.uid() == extension.uid());
        let completion = deletion_progress(&name, found.as_ref(), &remaining);
        denied = remaining.iter().find_map(|revision| denials(revision)).or_else(|| denied.take());
        // Garbage collection may be denied the deletion of CRDs, too.
        if !matches!(completion, Completion::Complete(_)) || denied.is_some() {
            return Ok(completion);
        }
        let remaining = remaining_crds(cluster, &crds, &uids, session).await?;
        let now: Vec<String> = remaining.iter().filter_map(|(_, stuck)| stuck.clone()).collect();
        // Stuck only if unchanged since the last poll: the API server may still be deleting.
        let is_stuck = !now.is_empty() && now == stuck;
        stuck = now;
        Ok(match remaining.first() {
            Some((first, _)) if !is_stuck => {
                Completion::InProgress(format!("waiting for deletion of {first}"))
            }
            _ => completion,
        })
    };
    let remaining = format!("the deletion continues; run `olm status {name}` for details");
    let message = change::until(&name, &remaining, limit, poll, session).await?;
    let left = if denied.is_some() { existing(cluster, &plan.keys, session).await? } else { Vec::new() };
    if let Some(denied) = denied.filter(|_| !left.is_empty()) {
        return Err(CliError::operational(format!(
            "{message}, but objects are left, because their deletion is denied: {}\n{denied}",
            left.join(", ")
        )));
    }
    match stuck.is_empty() {
        true => Ok(message),
        false => Err(CliError::operational(format!(
            "{message}, but custom resources with finalizers remain, and the operator that would remove the finalizers is deleted:\n{}",
            stuck.join("\n")
        ))),
    }
}

/// Message of the revision's condition about objects whose deletion is denied.
fn denials(revision: &ClusterObjectSet) -> Option<String> {
    let message = &revision.condition(types::PROGRESSING)?.message;
    message.find(DENIED).map(|at| message[at..].to_owned())
}

/// Those of the objects that exist and are not being deleted.
async fn existing(
    cluster: &ClusterConnection,
    keys: &[ObjectKey],
    session: &Session,
) -> Result<Vec<String>, CliError> {
    let engine = KubeCluster::new(cluster.client().clone());
    let mut found = Vec::new();
    for key in keys {
        // An object that the user may not read is named, too.
        let live = session.interruptible(engine.metadata(key)).await?;
        let is_gone = |live: &Value| !live["metadata"]["deletionTimestamp"].is_null();
        if !live.is_ok_and(|live| live.as_ref().is_none_or(is_gone)) {
            found.push(key.to_string());
        }
    }
    found.sort();
    Ok(found)
}

/// Names of the CRDs that are being deleted, or will be with the last of these owners, each with the custom resources
/// whose finalizers block its deletion.
async fn remaining_crds(
    cluster: &ClusterConnection,
    crds: &[&OwnedCrd],
    owners: &BTreeSet<String>,
    session: &Session,
) -> Result<Vec<(String, Option<String>)>, CliError> {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client().clone());
    let engine = KubeCluster::new(cluster.client().clone());
    let mut remaining = Vec::new();
    for OwnedCrd { name, gvk, .. } in crds {
        let what = format!("CustomResourceDefinition {name}");
        let Some(found) = cluster.call(&what, api.get_metadata_opt(name), session).await? else { continue };
        let is_deleting = found.metadata.deletion_timestamp.is_some();
        if !is_deleting && !found.owner_references().iter().any(|owner| owners.contains(&owner.uid)) {
            continue;
        }
        let mut stuck = None;
        if let Some(gvk) = gvk.as_ref().filter(|_| is_deleting) {
            // If the custom resources cannot be listed, waits without details.
            let found = session.interruptible(engine.instances(gvk)).await?.unwrap_or_default();
            stuck = found
                .filter(|found| !found.finalizers.is_empty())
                .map(|found| finalizer_message(name, &found));
        }
        remaining.push((name.clone(), stuck));
    }
    Ok(remaining)
}

/// Message about custom resources with finalizers, and the command that removes those of the first one.
fn finalizer_message(crd: &str, found: &Instances) -> String {
    let place = if found.first.namespace.is_empty() { "" } else { &format!(" -n {}", found.first.namespace) };
    format!(
        "{}; to remove them: kubectl patch {crd} {}{place} --type merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'",
        found.summary(crd),
        found.first.name
    )
}

/// Progress of a deletion.
fn deletion_progress(
    name: &str,
    extension: Option<&ClusterExtension>,
    revisions: &[&ClusterObjectSet],
) -> Completion {
    // Message of the condition, if it does not report success.
    let cause = |progressing: Option<&olm_api::Condition>| {
        let progressing = progressing.filter(|one| one.reason != "Succeeded");
        progressing.map(|one| format!(": {}", one.message)).unwrap_or_default()
    };
    if let Some(extension) = extension {
        let cause = cause(extension.condition(types::PROGRESSING));
        return Completion::InProgress(format!("being deleted{cause}"));
    }
    match revisions {
        [] => Completion::Complete(format!("{name} is uninstalled")),
        [first, ..] => {
            let cause = cause(first.condition(types::PROGRESSING));
            let (count, revision) = (revisions.len(), first.name_any());
            let count = counted(count, "revision");
            Completion::InProgress(format!("waiting for deletion of {count}, such as {revision}{cause}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn denied_deletions_are_read_from_the_condition() {
        let set = |message: &str| -> ClusterObjectSet {
            let condition = json!({"type": "Progressing", "status": "True", "reason": "Retrying", "message": message,
                "lastTransitionTime": "2026-01-02T03:04:05Z"});
            serde_json::from_value(
                json!({"metadata": {"name": "a-1"}, "status": {"conditions": [condition]}}),
            )
            .unwrap()
        };
        let waits =
            "waiting for 1 a.io (first: b); deletions that are denied: /v1, Kind=ConfigMap ns/c: policy p";
        assert_eq!(
            denials(&set(waits)).as_deref(),
            Some("deletions that are denied: /v1, Kind=ConfigMap ns/c: policy p")
        );
        assert_eq!(denials(&set("waiting for 1 a.io")), None);
    }

    #[test]
    fn deletion_progress_names_blocker() {
        let blocked = json!({"type": "Progressing", "status": "False", "reason": "Blocked",
            "message": "cannot uninstall: 3 custom resources exist", "lastTransitionTime": "2026-01-02T03:04:05Z"});
        let object = json!({"metadata": {"name": "pipe"}, "status": {"conditions": [blocked]}});
        let extension: ClusterExtension = serde_json::from_value(object).unwrap();
        let set: ClusterObjectSet = serde_json::from_value(json!({"metadata": {"name": "pipe-1"}})).unwrap();
        let in_progress = |text: &str| Completion::InProgress(text.to_owned());
        let got = deletion_progress("pipe", Some(&extension), &[&set]);
        assert_eq!(got, in_progress("being deleted: cannot uninstall: 3 custom resources exist"));
        let got = deletion_progress("pipe", None, &[&set]);
        assert_eq!(got, in_progress("waiting for deletion of 1 revision, such as pipe-1"));
        assert_eq!(
            deletion_progress("pipe", None, &[]),
            Completion::Complete("pipe is uninstalled".to_owned())
        );
    }
}
