//! `olm migrate apply`: makes ClusterExtensions of packages of classic OLM, without a restart
//! (docs/design/migration.md#apply).
//!
//! [`observe`] reads the state of a package, [`state`], which is pure, chooses the next step, and [`act`] takes it.
//! [`jobs`] chooses the packages with their plans.

pub(in crate::migrate) mod act;
#[cfg(test)]
pub(in crate::migrate) mod fixture;
mod jobs;
pub(in crate::migrate) mod observe;
pub(in crate::migrate) mod state;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

pub(in crate::migrate) use self::act::{change, csv_id, detached, fresh};
use self::jobs::Job;
use self::observe::{Live, observe};
use self::state::{Observed, Step, decide};
use super::access::ObjectAccess;
use super::backup::{self, Backup};
use super::plan::model::PackagePlan;
use super::pods::{self, RestartedPod};
use super::report::{MigrationReport, PackageResult};
use crate::change::{self as changes, Completion, DryRun};
use crate::error::{CliError, Code};
use crate::output::FormatArgs;
use crate::progress::say;
use crate::session::Session;
use crate::source::Access;

/// Repetitions of a step after which something undoes it.
const MAX_REPETITIONS: usize = 10;

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Make ClusterExtensions of packages of classic OLM, without a restart

For each package: backs up the objects in Secrets of the operator's namespace, deletes the Subscription and the \
ClusterServiceVersion so that all their objects stay, removes the owner references and labels of classic OLM, creates \
the ClusterExtension, which adopts exactly the objects of the plan, removes what only classic OLM needs, and opens the \
version pin. Pods of the operator and of its operands are compared before and after: a restart that the plan does not \
announce is an error.

The plan is computed first. With --plan, it must equal the one that `olm migrate plan --to DIR` wrote. The command can be \
interrupted at any time, and continues when it is run again. The operator runs all the time. `olm migrate rollback` \
returns to classic OLM.";

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
pub(crate) struct ApplyArgs {
    /// Packages to migrate, as PACKAGE or NAMESPACE/PACKAGE
    #[arg(value_name = "NAME", required_unless_present_any = ["all", "plan"], conflicts_with = "all")]
    names: Vec<String>,
    /// Migrate all packages that can be migrated, dependents first
    #[arg(long)]
    all: bool,
    /// Folder of `olm migrate plan --to`: migrate its packages, or the named ones, if the plans have not changed
    #[arg(long, value_name = "DIR", conflicts_with = "all")]
    plan: Option<PathBuf>,
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
    if args.dry_run.is_none() && jobs.packages.iter().any(|job| job.backup.is_none()) {
        changes::confirm(&question(&jobs.packages), args.yes, session).await?;
    }
    let access = ObjectAccess::new(&cluster, session, args.dry_run == Some(DryRun::Server));
    let mut failure = None;
    for job in &jobs.packages {
        let run = Run { access: &access, args: &args, plan: &job.plan };
        match run.package(job).await {
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
            "pods restarted that the plan does not name: {}\nthe operators run; to go back: olm migrate rollback NAME",
            restarted.join("; ")
        ))),
        None if !report.refused.is_empty() => Err(CliError::ExitCode(Code::NoCandidate as u8)),
        None => Ok(()),
    }
}

fn question(jobs: &[Job]) -> String {
    let line = |job: &Job| {
        let PackagePlan { package, namespace, version, restarts, .. } = &job.plan;
        let restarts = match restarts.len() {
            0 => "no restart".to_owned(),
            _ => restarts
                .iter()
                .map(|restart| format!("{} restarts", restart.object))
                .collect::<Vec<_>>()
                .join(", "),
        };
        format!("{namespace}/{package} {version} ({restarts})")
    };
    let lines: Vec<String> = jobs.iter().map(line).collect();
    format!("Migrate {} to ClusterExtensions?", lines.join(", "))
}

/// Migration of one package.
struct Run<'a> {
    access: &'a ObjectAccess<'a>,
    args: &'a ApplyArgs,
    plan: &'a PackagePlan,
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
        let mut last: Option<(Step, usize)> = None;
        loop {
            let remaining = self.remaining(backup.is_some());
            let (observed, live) = self
                .observe(backup.as_ref())
                .await
                .map_err(|error| failed(error, &format!("package {}", self.plan.package), &remaining))?;
            let step = decide(self.plan, &observed);
            if step == Step::Done {
                break;
            }
            if let Step::Refuse(why) = step {
                return Err(CliError::findings(format!("package {}: {why}{remaining}", self.plan.package)));
            }
            let text = step.text(self.plan);
            let repeated = last.as_ref().filter(|(last, _)| *last == step).map_or(0, |(_, count)| count + 1);
            if repeated == 0 {
                say(&format!("{}: {text}", self.plan.package));
                outcome.steps.push(text.clone());
            }
            if repeated == MAX_REPETITIONS {
                let why =
                    format!("package {}: {text}: is undone again and again{remaining}", self.plan.package);
                return Err(CliError::operational(why));
            }
            let taken = match step.awaited() {
                Some(_) => self.wait(&step, backup.as_ref(), &remaining).await,
                None => self.act(&step, backup.as_ref(), (&observed, &live)).await.map_err(|error| {
                    failed(error, &format!("package {}: {text}", self.plan.package), &remaining)
                }),
            };
            taken?;
            if step == Step::BackUp {
                backup = backup::read(self.access, &self.plan.namespace, &self.plan.package).await?;
            }
            last = Some((step, repeated));
        }
        if let Some(backup) = &backup {
            let after = pods::read(self.access, self.plan).await?;
            outcome.pods = backup.pods.len();
            outcome.restarted = pods::restarted(&backup.pods, &after, &pods::announced(self.plan));
        }
        Ok(outcome)
    }

    /// Takes the steps as dry runs, on a state that is not read again.
    async fn rehearse(&self, backup: Option<&Backup>) -> Result<Outcome, CliError> {
        let mut outcome = Outcome::default();
        let (mut observed, live) = self.observe(backup).await?;
        loop {
            let step = decide(self.plan, &observed);
            match &step {
                Step::Done => return Ok(outcome),
                Step::Refuse(why) => {
                    return Err(CliError::findings(format!("package {}: {why}", self.plan.package)));
                }
                _ => outcome.steps.push(step.text(self.plan)),
            }
            if self.access.dry_run {
                self.act(&step, backup, (&observed, &live)).await?;
            }
            observed = observed.after(&step);
        }
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
        let PackagePlan { package, .. } = self.plan;
        match has_backup {
            false => "\nnothing has been changed".to_owned(),
            true => format!(
                "\nthe operator runs; to go on: olm migrate apply {package}; to go back: olm migrate rollback {package}"
            ),
        }
    }
}

/// Reports whether nothing is left to do in the migration of a package.
///
/// # Errors
/// The API server does not answer, or denies access.
pub(in crate::migrate) async fn is_complete(
    access: &ObjectAccess<'_>,
    backup: &Backup,
) -> Result<bool, CliError> {
    let (observed, _) = observe(access, &backup.plan, Some(backup)).await?;
    Ok(decide(&backup.plan, &observed) == Step::Done)
}

/// Error with its step, and how to go on.
pub(in crate::migrate) fn failed(error: CliError, what: &str, remaining: &str) -> CliError {
    match error {
        CliError::Message(code, why) => CliError::Message(code, format!("{what}: {why}{remaining}")),
        other => other,
    }
}
