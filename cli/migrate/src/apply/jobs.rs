//! Packages to migrate, in order, each with its plan: from its backup if the migration has begun, else computed from the
//! cluster.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;

use olm_cli_core::error::{CliError, Code};
use olm_cli_core::object_access::ObjectAccess;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use serde_json::Value;

use super::super::backup::{self, Backup};
use super::super::plan::model::PackagePlan;
use super::super::plan::{ACCEPTABLE, PlanContext, Refusal, of_package, ordered, refusal, select};
use super::ApplyArgs;
use super::observe::V1ALPHA1;

/// Largest plan file in bytes.
const MAX_FILE: u64 = 64 << 20;
/// Largest number of packages in a folder.
const MAX_PACKAGES: usize = 10_000;

/// Package to migrate.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) plan: PackagePlan,
    /// Complete backup of a migration that has begun.
    pub(super) backup: Option<Backup>,
    /// `true` if the migration is complete.
    pub(super) is_complete: bool,
}

/// Packages to migrate, and those that cannot be.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    pub(super) packages: Vec<Job>,
    pub(super) refused: Vec<Refusal>,
}

/// Reads the packages that the arguments name. Migrations that have begun are first.
///
/// # Errors
/// The cluster or a file cannot be read, a name is unknown, or a plan has changed.
pub(super) async fn read(
    args: &ApplyArgs,
    cluster: &ClusterConnection,
    session: &Session,
) -> Result<Jobs, CliError> {
    let access = ObjectAccess::new(cluster, session, false);
    let written = args.plan.as_deref().map(|folder| written(folder, &args.names)).transpose()?;
    let mut names = match &written {
        Some(plans) => plans.iter().map(|plan| format!("{}/{}", plan.namespace, plan.package)).collect(),
        None => args.names.clone(),
    };
    let mut jobs = Jobs::default();
    let backups = backup::find(&access).await?;
    refuse_ambiguous(&names, &backups, &access).await?;
    for (namespace, package) in backups {
        let id = format!("{namespace}/{package}");
        let is_named = |name: &String| *name == package || *name == id;
        if !args.all && !names.iter().any(is_named) {
            continue;
        }
        names.retain(|name| !is_named(name));
        if let Some(backup) = backup::read(&access, &namespace, &package).await? {
            let is_complete = backup::is_complete(&access, &backup.plan).await?;
            jobs.packages.push(Job { plan: backup.plan.clone(), backup: Some(backup), is_complete });
        }
    }
    if args.all || !names.is_empty() {
        plans(args, &names, cluster, &mut jobs, session).await?;
    }
    for job in &mut jobs.packages {
        let written = written.iter().flatten().find(|plan| plan.id() == job.plan.id());
        if args.keep_pinned || written.is_some_and(PackagePlan::is_pinned) {
            keep_pinned(job)?;
        }
        if let Some(plan) = written {
            compare(plan, job)?;
        }
    }
    Ok(jobs)
}

/// Keeps the version after the migration, too.
///
/// # Errors
/// The migration has begun, and its plan does not.
fn keep_pinned(job: &mut Job) -> Result<(), CliError> {
    let is_open = job.plan.opened["spec"]["source"]["catalog"]["version"].is_null();
    if job.backup.is_none() {
        job.plan.keep_pinned();
    } else if is_open && !job.is_complete {
        let (id, version) = (job.plan.id(), &job.plan.version);
        let name = job.plan.opened["metadata"]["name"].as_str().unwrap_or_default();
        return Err(CliError::findings(format!(
            "the migration of {id} has begun with a plan that does not keep the version: continue with \
             `olm migrate apply {id}`, then pin it with `olm upgrade {name} --version {version}`"
        )));
    }
    Ok(())
}

/// Compares the plan of the folder with that of the cluster or, once the migration has begun, with that of the backup.
///
/// # Errors
/// They differ.
fn compare(written: &PackagePlan, job: &Job) -> Result<(), CliError> {
    let (id, package) = (job.plan.id(), &written.package);
    let changed = match &job.backup {
        _ if job.is_complete => return Ok(()),
        None => changes(written, &job.plan)?,
        Some(_) => changes(&lasting(written), &lasting(&job.plan))?,
    };
    let all = changed.join("; ");
    Err(CliError::findings(match &job.backup {
        _ if changed.is_empty() => return Ok(()),
        None => format!(
            "the plan of {package} has changed since it was written: {all}\nreview it again with `olm migrate plan \
             {package} --to DIR`"
        ),
        Some(_) => format!(
            "the migration of {id} has begun with another plan: {all}\nto continue with that plan: olm migrate apply \
             {id}; to go back, and plan again: olm migrate rollback {id}"
        ),
    }))
}

/// Refuses names without a namespace that fit a backup and another package.
async fn refuse_ambiguous(
    names: &[String],
    backups: &[(String, String)],
    access: &ObjectAccess<'_>,
) -> Result<(), CliError> {
    if !names.iter().any(|name| backups.iter().any(|(_, package)| package == name)) {
        return Ok(());
    }
    let mut known: BTreeSet<(String, String)> = backups.iter().cloned().collect();
    for subscription in access.list((V1ALPHA1, "Subscription"), "", None).await? {
        let text = |pointer: &str| {
            subscription.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        known.insert((text("/metadata/namespace"), text("/spec/name")));
    }
    match names.iter().find_map(|name| ambiguous(name, &known)) {
        Some(why) => Err(CliError::usage(why)),
        None => Ok(()),
    }
}

/// Reason for which `name` does not identify one of the packages, each with its namespace.
fn ambiguous(name: &str, known: &BTreeSet<(String, String)>) -> Option<String> {
    let named = known.iter().filter(|(_, package)| package == name);
    let ids: Vec<String> = named.map(|(namespace, package)| format!("{namespace}/{package}")).collect();
    (ids.len() > 1).then(|| format!("package {name}: name one of {}", ids.join(", ")))
}

/// Plan of `job` right before its migration. Migrations of other packages before it may have changed the cluster, so it
/// is computed again.
///
/// # Errors
/// The plan is another one, or it cannot be computed.
pub(super) async fn current(
    args: &ApplyArgs,
    job: &Job,
    migrated: &[Job],
    access: &ObjectAccess<'_>,
) -> Result<PackagePlan, CliError> {
    if migrated.is_empty() || job.backup.is_some() || args.dry_run.is_some() {
        return Ok(job.plan.clone());
    }
    let session = access.session();
    let context = PlanContext::read(access.cluster(), &args.access, &args.catalogs, session).await?;
    let migrated: Vec<String> = migrated.iter().map(|job| job.plan.id()).collect();
    let id = job.plan.id();
    let refused = |why: String| CliError::findings(format!("package {id}: {why}; it has not been changed"));
    let reports = select(&context.reports, std::slice::from_ref(&id))?;
    let report =
        reports.first().ok_or_else(|| refused("classic OLM does not have it any more".to_owned()))?;
    if let Some(reasons) = refusal(report, &migrated, &accepted(args)) {
        return Err(refused(reasons.join("; ")));
    }
    let mut now = of_package(&context, report).await?;
    if job.plan.is_pinned() {
        now.keep_pinned();
    }
    let changed = changes(&lasting(&job.plan), &lasting(&now))?;
    if changed.is_empty() {
        return Ok(now);
    }
    Err(refused(format!("the plan has changed during this run: {}", changed.join("; "))))
}

/// Rules whose findings the user accepts. With plans of a folder, all that can be: these plans have the accepted rules, and
/// are compared.
fn accepted(args: &ApplyArgs) -> Vec<String> {
    match args.plan {
        Some(_) => ACCEPTABLE.map(str::to_owned).into(),
        None => args.accept.clone(),
    }
}

/// The plan without what migrations of other packages change, and without channels and version of the extension after the
/// migration, which a rollback records. Field `channel` has the channel of the Subscription.
fn lasting(plan: &PackagePlan) -> PackagePlan {
    let mut plan = plan.clone();
    if let Some(catalog) = plan.opened.pointer_mut("/spec/source/catalog").and_then(Value::as_object_mut) {
        catalog.remove("channels");
        catalog.remove("version");
    }
    plan.after.clear();
    plan.catalogs.clear();
    plan.differences.clear();
    plan.notes.clear();
    // Subscriptions of a namespace own the same InstallPlan.
    for list in [&mut plan.left, &mut plan.removed] {
        list.retain(|reasoned| reasoned.object.kind != "InstallPlan");
    }
    plan.removed.retain(|removed| removed.object.kind != "Operator");
    plan
}

/// Computes the plans of the packages `names`, or of all.
async fn plans(
    args: &ApplyArgs,
    names: &[String],
    cluster: &ClusterConnection,
    jobs: &mut Jobs,
    session: &Session,
) -> Result<(), CliError> {
    let context = PlanContext::read(cluster, &args.access, &args.catalogs, session).await?;
    let selected = select(&context.reports, names)?;
    let mut planned: Vec<String> = jobs.packages.iter().map(|job| job.plan.id()).collect();
    let resumed = planned.clone();
    let all = ordered(selected, |report| (report.id(), report.after.as_slice()));
    for report in all.into_iter().filter(|report| !resumed.contains(&report.id())) {
        let _step = session.progress.step(format!("planning {}", report.id()));
        let refuse = |reasons| Refusal {
            package: report.package.clone(),
            namespace: report.namespace.clone(),
            reasons,
        };
        if let Some(reasons) = refusal(report, &planned, &accepted(args)) {
            jobs.refused.push(refuse(reasons));
            continue;
        }
        match of_package(&context, report).await {
            Ok(plan) => {
                planned.push(report.id());
                jobs.packages.push(Job { plan, backup: None, is_complete: false });
            }
            Err(error @ CliError::Message(Code::Interrupted, _)) => return Err(error),
            // One package does not prevent the migration of the others.
            Err(error) => jobs.refused.push(refuse(vec![error.to_string()])),
        }
    }
    Ok(())
}

/// Plans of the folder, only those of `names` if there are any.
fn written(folder: &Path, names: &[String]) -> Result<Vec<PackagePlan>, CliError> {
    let failed = |error: std::io::Error| CliError::at(folder.display(), error);
    let mut plans = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)?.take(MAX_PACKAGES) {
        let path = entry.map_err(failed)?.path().join("plan.yaml");
        if path.is_file() {
            plans.push(parse(&path)?);
        }
    }
    plans.sort_by(|a, b| (&a.namespace, &a.package).cmp(&(&b.namespace, &b.package)));
    if let Some(name) = names.iter().find(|name| !plans.iter().any(|plan| is_named(plan, name))) {
        return Err(CliError::no_candidate(format!("{}: no plan of package {name}", folder.display())));
    }
    if plans.is_empty() {
        let folder = folder.display();
        return Err(CliError::no_candidate(format!(
            "{folder}: no folder in it has a plan.yaml; write it with `olm migrate plan NAME --to {folder}`"
        )));
    }
    let known = plans.iter().map(|plan| (plan.namespace.clone(), plan.package.clone())).collect();
    if let Some(why) = names.iter().find_map(|name| ambiguous(name, &known)) {
        return Err(CliError::usage(why));
    }
    plans.retain(|plan| names.is_empty() || names.iter().any(|name| is_named(plan, name)));
    Ok(plans)
}

fn is_named(plan: &PackagePlan, name: &str) -> bool {
    plan.package == name || format!("{}/{}", plan.namespace, plan.package) == name
}

fn parse(path: &Path) -> Result<PackagePlan, CliError> {
    let failed = |error: &dyn std::fmt::Display| CliError::at(path.display(), error);
    let mut text = Vec::new();
    let file = fs::File::open(path).map_err(|error| failed(&error))?;
    file.take(MAX_FILE + 1).read_to_end(&mut text).map_err(|error| failed(&error))?;
    if text.len() as u64 > MAX_FILE {
        return Err(failed(&format!("larger than {} MiB", MAX_FILE >> 20)));
    }
    let plan: Value = olm_yaml::from_slice(&text).map_err(|error| failed(&error))?;
    serde_json::from_value(plan).map_err(|error| failed(&error))
}

/// Fields in which two plans differ, with the objects that one of them has not.
fn changes(written: &PackagePlan, now: &PackagePlan) -> Result<Vec<String>, CliError> {
    let (written, now) = (serde_json::to_value(written)?, serde_json::to_value(now)?);
    let fields = now.as_object().into_iter().flatten();
    let mut changes = Vec::new();
    for (field, value) in fields.filter(|(field, value)| written.get(*field) != Some(*value)) {
        let lines =
            |value: &Value| -> Vec<String> { value.as_array().into_iter().flatten().map(name).collect() };
        let (before, after) = (lines(&written[field]), lines(value));
        let gone = before.iter().filter(|line| !after.contains(line)).map(|line| format!("-{line}"));
        let new = after.iter().filter(|line| !before.contains(line)).map(|line| format!("+{line}"));
        let items: Vec<String> = gone.chain(new).collect();
        changes.push(match (value, items.is_empty()) {
            (Value::String(now), _) => {
                format!("{field} was {}, is {now}", written[field].as_str().unwrap_or_default())
            }
            (_, true) => field.clone(),
            (_, false) => format!("{field} {}", items.join(" ")),
        });
    }
    changes.sort();
    Ok(changes)
}

/// Name of an item of a plan.
fn name(item: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match item {
        Value::String(text) => text.clone(),
        _ if item["metadata"].is_object() => {
            format!("{} {}", text(&item["kind"]), text(&item["metadata"]["name"]))
        }
        _ => {
            let uid = text(&item["uid"]);
            let uid = if uid.is_empty() { uid } else { format!(" ({uid})") };
            format!(
                "{} {}{uid}",
                text(&item["kind"]),
                olm_cli_core::output::qualified(&text(&item["namespace"]), &text(&item["name"]))
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixture::{id, plan};
    use super::*;

    #[test]
    fn changes_of_a_plan_name_fields_and_objects() {
        assert_eq!(changes(&plan(), &plan()).unwrap(), [] as [&str; 0]);
        let mut now = plan();
        now.version = "1.1.0".to_owned();
        now.adopted[0] = id("apps/v1", "Deployment", "ns", "pipe");
        now.opened["spec"]["namespace"] = "other".into();
        assert_eq!(
            changes(&plan(), &now).unwrap(),
            [
                "adopted -Deployment ns/lamp (Deployment-lamp) +Deployment ns/pipe (Deployment-pipe)",
                "opened",
                "version was 1.0.0, is 1.1.0"
            ]
        );
    }

    #[test]
    fn resumed_migration_with_another_plan_is_refused() {
        let backup =
            |plan: &PackagePlan| Some(Backup { plan: plan.clone(), objects: Vec::new(), pods: Vec::new() });
        let job = |backup, is_complete| Job { plan: plan(), backup, is_complete };
        let mut other = plan();
        other.adopted[0].uid = "another".to_owned();
        let begun = job(backup(&plan()), false);
        assert!(compare(&plan(), &begun).is_ok());
        let error = compare(&other, &begun).unwrap_err().to_string();
        assert!(
            error.contains("ns/lamp has begun with another plan: adopted -Deployment ns/lamp (another)"),
            "{error}"
        );
        assert!(
            error.contains(
                "olm migrate apply ns/lamp; to go back, and plan again: olm migrate rollback ns/lamp"
            ),
            "{error}"
        );
        assert!(compare(&other, &job(backup(&plan()), true)).is_ok());
        let error = compare(&other, &job(None, false)).unwrap_err().to_string();
        assert!(error.contains("the plan of lamp has changed since it was written"), "{error}");
        // Right before a migration, the plan is computed again without those of other packages.
        other = plan();
        other.after = vec!["ns/pipe".to_owned()];
        assert!(compare(&other, &begun).is_ok());
        // A rollback that did not end has recorded the channels that an administrator chose.
        let mut changed = plan();
        changed.opened["spec"]["source"]["catalog"]["channels"] = json!(["fast"]);
        assert!(compare(&plan(), &Job { plan: changed, ..begun }).is_ok());
    }

    #[test]
    fn version_is_not_kept_by_a_migration_that_has_begun_without() {
        let job = |plan: PackagePlan, has_begun: bool, is_complete| {
            let backup = Backup { plan: plan.clone(), objects: Vec::new(), pods: Vec::new() };
            Job { plan, backup: Some(backup).filter(|_| has_begun), is_complete }
        };
        let mut new = job(plan(), false, false);
        assert!(keep_pinned(&mut new).is_ok() && new.plan.is_pinned());
        let mut pinned = job(new.plan.clone(), true, false);
        assert!(keep_pinned(&mut pinned).is_ok() && pinned.plan.is_pinned());
        assert!(keep_pinned(&mut job(plan(), true, true)).is_ok());
        let error = keep_pinned(&mut job(plan(), true, false)).unwrap_err().to_string();
        assert!(error.contains("`olm migrate apply ns/lamp`, then pin it with"), "{error}");
        assert!(error.contains("`olm upgrade lamp --version 1.0.0`"), "{error}");
        // A rollback has recorded a range that an administrator set.
        let mut ranged = plan();
        ranged.opened["spec"]["source"]["catalog"]["version"] = json!("1.0.x");
        let mut ranged = job(ranged, true, false);
        assert!(keep_pinned(&mut ranged).is_ok());
        assert!(compare(&new.plan, &ranged).is_ok());
    }

    #[test]
    fn migrations_of_other_packages_do_not_change_a_plan() {
        let mut now = plan();
        now.after = vec!["ns/pipe".to_owned()];
        let object = id("operators.coreos.com/v1", "Operator", "", "lamp.ns");
        now.removed.push(super::super::super::plan::model::Reasoned { object, reason: String::new() });
        assert_eq!(changes(&lasting(&plan()), &lasting(&now)).unwrap(), [] as [&str; 0]);
    }

    #[test]
    fn name_of_packages_in_several_namespaces_is_refused() {
        let ids =
            |all: &[(&str, &str)]| all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let known = ids(&[("a", "lamp"), ("b", "lamp"), ("b", "pipe")]);
        assert_eq!(ambiguous("lamp", &known), Some("package lamp: name one of a/lamp, b/lamp".to_owned()));
        assert_eq!(ambiguous("pipe", &known), None);
        assert_eq!(ambiguous("a/lamp", &known), None);
    }

    #[test]
    fn plans_of_a_folder_are_read_with_their_header() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("lamp")).unwrap();
        let error = written(folder.path(), &[]).unwrap_err().to_string();
        assert!(error.contains("no folder in it has a plan.yaml"), "{error}");
        let text =
            olm_cli_core::output::result(olm_cli_core::output::Format::Yaml, "PackagePlan", &plan(), |_| {
                String::new()
            });
        fs::write(folder.path().join("lamp/plan.yaml"), format!("# a comment\n{}", text.unwrap())).unwrap();
        assert_eq!(written(folder.path(), &[]).unwrap(), [plan()]);
        assert_eq!(written(folder.path(), &["ns/lamp".to_owned()]).unwrap(), [plan()]);
        assert!(written(folder.path(), &["pipe".to_owned()]).is_err());
    }
}
