//! `olm migrate apply`: makes ClusterExtensions of packages of classic OLM, without a restart
//! (docs/design/migration.md#apply).
//!
//! [`mod@observe`] reads the state of a package, [`state`], which is pure, chooses the next step, and [`act`] takes it.
//! [`jobs`] chooses the packages with their plans.

pub(crate) mod act;
#[cfg(test)]
pub(crate) mod fixture;
mod install_plans;
mod jobs;
pub(crate) mod observe;
pub(crate) mod state;

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use olm_cli_core::change::{self as changes, Completion, DryRun};
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::object_access::ObjectAccess;
use olm_cli_core::output::FormatArgs;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use serde::Serialize;

pub(crate) use self::act::{change, csv_id, detached, fresh, recreate};
use self::jobs::Job;
use self::observe::{Live, observe};
use self::state::{Observed, Step, decide};
use super::backup::{self, Backup};
use super::backup_file;
use super::dependents;
use super::plan::model::PackagePlan;
use super::pods::{self, RestartedPod};
use super::report::{MigrationReport, PackageResult};
use super::shell_word;

/// Number of times that a run takes the same kind of step, at most.
const MAX_REPETITIONS: usize = 10;

/// Part of the API server's answer if an admission webhook prevents a dry run.
const NO_DRY_RUN: &str = "does not support dry run";

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Migrate packages of classic OLM to ClusterExtensions, without a restart

For each package: backs up the objects in Secrets of the namespace of operator-controller, deletes the Subscription and the \
ClusterServiceVersion so that all their objects stay, removes the owner references and labels of classic OLM, creates \
the ClusterExtension, which adopts exactly the objects of the plan, removes what only classic OLM needs, and opens the \
version pin. Pods of the operator and of its operands are compared before and after: a restart that the plan does not \
announce is an error.

The plan is computed first, and again right before each further package. The API server validates all writes of a \
package in a dry run before the first one. With --plan, it must equal the one that \
`olm migrate plan --to DIR` wrote. The command can be interrupted at any time, and continues when it is run again. The \
operator runs all the time. `olm migrate rollback` returns to classic OLM.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed, timed out, or a pod restarted   2 wrong usage
  3 the state of the package, or the plan, does not permit it
  4 there is no such package, or a package is refused

Examples:
  {olm} migrate apply lamp --dry-run=server        # the steps, checked by the API server
  {olm} migrate apply lamp
  {olm} migrate apply --plan ./migration --yes     # exactly the reviewed plans
  {olm} migrate apply --all --yes -o json | jq '.packages[] | {package, restarts}'")]
pub struct ApplyArgs {
    /// Packages to migrate, as PACKAGE or NAMESPACE/PACKAGE
    #[arg(value_name = "NAME", required_unless_present_any = ["all", "plan"], conflicts_with = "all")]
    names: Vec<String>,
    /// Migrate all packages that can be migrated, dependents first
    #[arg(long)]
    all: bool,
    /// Folder of `olm migrate plan --to`: migrate its packages, or the named ones, if the plans have not changed
    #[arg(long, value_name = "DIR", conflicts_with = "all")]
    plan: Option<PathBuf>,
    /// Keep the installed version after the migration, too, instead of following the channel
    #[arg(long, conflicts_with = "plan")]
    keep_pinned: bool,
    /// Also write the backups to files of this folder, from which kubectl can create them again
    #[arg(long, value_name = "DIR")]
    backup: Option<PathBuf>,
    /// Accept what the plan does about this finding; may be given several times
    #[arg(long, value_name = "RULE", value_parser = super::plan::ACCEPTABLE, value_delimiter = ',')]
    accept: Vec<String>,
    /// Migrate without asking
    #[arg(short, long)]
    yes: bool,
    /// Only print the steps: from the state of the cluster (client), or also validated by the API server (server)
    #[arg(long, value_enum, value_name = "WHERE")]
    dry_run: Option<DryRun>,
    /// Longest wait for each step, such as 90s, 10m or 1h
    #[arg(long, value_name = "TIME", value_parser = changes::time, default_value = "10m")]
    timeout: Duration,
    /// Catalog that must have the installed bundles: a directory, an image, or cluster/NAME; default: all of the
    /// cluster, and the images of CatalogSources; may be given several times
    #[arg(long = "catalog", value_name = "SOURCE")]
    catalogs: Vec<String>,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    access: Access,
}

/// Runs the command.
///
/// # Errors
/// A package cannot be migrated, a step fails, or a pod restarted.
pub(super) async fn run(args: ApplyArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.access.cluster.connect().await?;
    let mut report = MigrationReport::new(args.dry_run.is_some());
    let jobs = jobs::read(&args, &cluster, session).await?;
    let open: Vec<&Job> = jobs.packages.iter().filter(|job| !job.is_complete).collect();
    if let Some(folder) = &args.backup {
        backup_file::check(folder, open.iter().filter(|job| job.backup.is_none()).map(|job| &job.plan))?;
    }
    if args.dry_run.is_none() && !open.is_empty() {
        changes::confirm(&question(&open), args.yes, session).await?;
    }
    let access = ObjectAccess::new(&cluster, session, args.dry_run == Some(DryRun::Server));
    let mut failure = None;
    for (index, job) in jobs.packages.iter().enumerate() {
        let migrated = jobs.packages.get(..index).unwrap_or_default();
        let result = match jobs::current(&args, job, migrated, &access).await {
            Ok(plan) => Run { access: &access, args: &args, plan: &plan }.package(job).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(result) => report.packages.push(result),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    report.refused = jobs.refused;
    let restarted = report.restarted();
    session.output.result(args.format.output, "MigrationReport", &report, MigrationReport::text)?;
    match failure {
        Some(failure) => Err(failure),
        None if !restarted.is_empty() => Err(CliError::operational(format!(
            "pods restarted that the plan does not name: {}\nthe operators run; to go back: {}",
            restarted.join("; "),
            report.rollbacks().join("; ")
        ))),
        None if !report.refused.is_empty() => Err(CliError::ExitCode(Code::NoCandidate as u8)),
        None => Ok(()),
    }
}

fn question(jobs: &[&Job]) -> String {
    let line = |job: &&Job| {
        let PackagePlan { package, namespace, version, restarts, .. } = &job.plan;
        let restarts = match restarts.len() {
            0 => "no restart".to_owned(),
            _ => restarts
                .iter()
                .map(|restart| format!("{} restarts", restart.object))
                .collect::<Vec<_>>()
                .join(", "),
        };
        let resumed = if job.backup.is_some() { "; continues with the plan of its backup" } else { "" };
        format!("{namespace}/{package} {version} ({restarts}{resumed})")
    };
    let lines: Vec<String> = jobs.iter().map(line).collect();
    format!("Migrate {} to ClusterExtensions?", lines.join(", "))
}

const UNCHANGED: &str = "nothing has been changed";

/// Migration of one package.
struct Run<'a> {
    access: &'a ObjectAccess<'a>,
    args: &'a ApplyArgs,
    plan: &'a PackagePlan,
}

/// Steps that a run has taken, by kind.
pub(crate) type StepCounts<S> = HashMap<Discriminant<S>, usize>;

/// Counts a step.
///
/// # Errors
/// The run has taken [`MAX_REPETITIONS`] steps of this kind: another client reverts them.
pub(crate) fn count_step<S>(
    counts: &mut StepCounts<S>,
    step: &S,
    what: &str,
    remaining: &str,
) -> Result<(), CliError> {
    let count = counts.entry(discriminant(step)).or_default();
    if *count == MAX_REPETITIONS {
        let why = format!("{what}: reverted {count} times by another client{remaining}");
        return Err(CliError::operational(why));
    }
    *count += 1;
    Ok(())
}

/// Steps of a dry run or a run, with the pods that restarted.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    steps: Vec<String>,
    restarted: Vec<RestartedPod>,
    pods: usize,
}

impl Run<'_> {
    async fn package(&self, job: &Job) -> Result<PackageResult, CliError> {
        let plan = self.plan;
        let outcome = match self.args.dry_run {
            _ if job.is_complete => {
                let id = plan.id();
                say(&format!(
                    "{id}: is migrated already; to return it to classic OLM: olm migrate rollback {id}"
                ));
                self.write_file().await.map(|()| Outcome::default())
            }
            Some(_) => self.rehearse(job.backup.as_ref()).await,
            None => self.migrate(job.backup.clone()).await,
        };
        let Outcome { steps, restarted, pods } = outcome?;
        Ok(PackageResult {
            package: plan.package.clone(),
            namespace: plan.namespace.clone(),
            version: plan.version.clone(),
            steps,
            pods,
            restarts: restarted,
        })
    }

    /// Takes the steps until nothing is left to do.
    async fn migrate(&self, mut backup: Option<Backup>) -> Result<Outcome, CliError> {
        let mut outcome = Outcome::default();
        match backup {
            Some(_) => self.check_kinds().await?,
            None => self.check_writes().await?,
        }
        if backup.is_some() {
            let package = format!("package {}", self.plan.package);
            self.write_file().await.map_err(|error| failed(error, &package, &self.remaining(true)))?;
        }
        let mut counts = StepCounts::new();
        loop {
            let remaining = self.remaining(backup.is_some());
            let package = format!("package {}", self.plan.package);
            let observed = self.observe(backup.as_ref()).await;
            let (observed, live) = observed.map_err(|error| failed(error, &package, &remaining))?;
            let step = decide(self.plan, &observed);
            match &step {
                Step::Done => break,
                Step::Refuse(why) => {
                    let ways = if backup.is_some() { self.ways() } else { UNCHANGED.to_owned() };
                    return Err(CliError::findings(format!("{package}: {why}\n{ways}")));
                }
                _ => {}
            }
            let text = step.text(self.plan);
            let what = format!("{package}: {text}");
            count_step(&mut counts, &step, &what, &remaining)?;
            if outcome.steps.last() != Some(&text) {
                say(&format!("{}: {text}", self.plan.package));
                outcome.steps.push(text);
            }
            let taken = match step.awaited() {
                Some(_) => self.wait(&step, backup.as_ref(), &remaining).await,
                None => {
                    let taken = self.act(&step, backup.as_ref(), (&observed, &live)).await;
                    taken.map_err(|error| failed(error, &what, &remaining))
                }
            };
            taken?;
            match &step {
                Step::BackUp => {
                    backup = backup::read(self.access, &self.plan.namespace, &self.plan.package).await?;
                }
                Step::DropBackup(why) => {
                    self.args.backup.iter().try_for_each(|folder| backup_file::remove(folder, self.plan))?;
                    return Err(dropped(&package, why));
                }
                _ => {}
            }
            // The creation removes the UID of a former extension.
            if matches!(step, Step::BackUp | Step::CreateExtension) {
                self.write_file().await.map_err(|error| failed(error, &what, &remaining))?;
            }
        }
        if let Some(backup) = &backup {
            self.complete(backup, &mut outcome).await?;
        }
        Ok(outcome)
    }

    /// Compares the pods if this run changed anything, and records the end of the migration.
    async fn complete(&self, backup: &Backup, outcome: &mut Outcome) -> Result<(), CliError> {
        if !outcome.steps.is_empty() {
            let after = pods::read(self.access, self.plan).await?;
            outcome.pods = backup.pods.len();
            outcome.restarted = pods::restarted(&backup.pods, &after, &pods::announced(self.plan));
        }
        backup::set_complete(self.access, self.plan, true).await
    }

    /// Writes the backup to a file, if there is a folder for it.
    async fn write_file(&self) -> Result<(), CliError> {
        match &self.args.backup {
            Some(folder) if self.args.dry_run.is_none() && !self.access.dry_run => {
                backup_file::write(self.access, self.plan, folder).await
            }
            _ => Ok(()),
        }
    }

    /// Takes the steps as dry runs, on a state that is not read again.
    async fn rehearse(&self, backup: Option<&Backup>) -> Result<Outcome, CliError> {
        let mut outcome = Outcome::default();
        self.check_kinds().await?;
        let (mut observed, live) = self.observe(backup).await?;
        loop {
            let step = decide(self.plan, &observed);
            match &step {
                Step::Done => return Ok(outcome),
                Step::Refuse(why) => {
                    return Err(CliError::findings(format!("package {}: {why}", self.plan.package)));
                }
                Step::DropBackup(why) => {
                    return Err(dropped(&format!("package {}", self.plan.package), why));
                }
                _ => outcome.steps.push(step.text(self.plan)),
            }
            if self.access.dry_run {
                let what = format!("package {}: {}", self.plan.package, step.text(self.plan));
                let checked = self.act(&step, backup, (&observed, &live)).await;
                checked.map_err(|error| failed(error, &what, ""))?;
            }
            observed = observed.after(&step);
        }
    }

    /// Lets the API server validate all writes of a migration before the first one, with the rights of the user.
    async fn check_writes(&self) -> Result<(), CliError> {
        let access = ObjectAccess::new(self.access.cluster(), self.access.session(), true);
        match (Run { access: &access, ..*self }).rehearse(None).await {
            Err(CliError::Message(_, why)) if why.contains(NO_DRY_RUN) => {
                say(&format!("warning: the writes are not checked before the first one: {why}"));
                Ok(())
            }
            Err(CliError::Message(code, why)) => {
                Err(CliError::Message(code, format!("{why}\nnothing has been changed")))
            }
            checked => checked.map(drop),
        }
    }

    /// Names the kinds that cannot be listed, before the first write.
    async fn check_kinds(&self) -> Result<(), CliError> {
        let checked = dependents::of_plan(self.access, self.plan, true).await;
        checked.map(drop).map_err(|error| failed(error, &format!("package {}", self.plan.package), ""))
    }

    async fn observe(&self, backup: Option<&Backup>) -> Result<(Observed, Live), CliError> {
        observe(self.access, self.plan, backup).await
    }

    async fn act(
        &self,
        step: &Step,
        backup: Option<&Backup>,
        state: (&Observed, &Live),
    ) -> Result<(), CliError> {
        // The file has the UID before the digest, which identifies the extension without it, is removed.
        if *step == Step::Open {
            act::record_extension(self.access, self.plan).await?;
            self.write_file().await?;
        }
        act::take(self.access, self.plan, backup, step, state).await
    }

    /// Waits until another step is next.
    async fn wait(&self, step: &Step, backup: Option<&Backup>, remaining: &str) -> Result<(), CliError> {
        let poll = async || {
            let (observed, _) = self.observe(backup).await?;
            let next = decide(self.plan, &observed);
            let is_same = std::mem::discriminant(&next) == std::mem::discriminant(step);
            Ok(match next.awaited().filter(|_| is_same) {
                Some(state) => Completion::InProgress(state.to_owned()),
                None => Completion::Complete(String::new()),
            })
        };
        let (limit, session) = (self.args.timeout, self.access.session());
        changes::until(&self.plan.package, remaining.trim_start(), limit, poll, session).await.map(drop)
    }

    /// State after a failure, and how to go on or back.
    fn remaining(&self, has_backup: bool) -> String {
        match has_backup {
            false => format!("\n{UNCHANGED}"),
            true => format!("\nthe operator runs; {}", self.ways()),
        }
    }

    /// Commands that go on or back.
    fn ways(&self) -> String {
        let id = self.plan.id();
        let folder = self.args.backup.as_ref().map(|folder| shell_word(&folder.to_string_lossy()));
        let backup = folder.map(|folder| format!(" --backup {folder}")).unwrap_or_default();
        format!("to go on: olm migrate apply {id}{backup}; to go back: olm migrate rollback {id}")
    }
}

/// Error of a migration whose plan became obsolete before it changed anything.
fn dropped(package: &str, why: &str) -> CliError {
    CliError::findings(format!(
        "{package}: {why}\nnothing has been changed; the backup is obsolete: run `olm migrate plan` again"
    ))
}

/// Error with its step, and how to go on.
pub(crate) fn failed(error: CliError, what: &str, remaining: &str) -> CliError {
    match error {
        CliError::Message(code, why) => CliError::Message(code, format!("{what}: {why}{remaining}")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternating_steps_end_after_the_limit_of_each_kind() {
        let mut counts = StepCounts::new();
        let mut add = |step: &Step| count_step(&mut counts, step, "package lamp: open", "\nto go on");
        for _ in 0..MAX_REPETITIONS {
            assert!(add(&Step::Open).is_ok());
            assert!(add(&Step::Restore(Vec::new())).is_ok());
        }
        let error = add(&Step::Open).unwrap_err().to_string();
        assert!(
            error.contains("package lamp: open: reverted 10 times by another client\nto go on"),
            "{error}"
        );
        assert!(add(&Step::CreateExtension).is_ok());
    }
}
