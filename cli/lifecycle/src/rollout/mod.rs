//! Waiting for operator-controller to roll out a change of an extension. Polls and reports.
//!
//! [`completion`], which is pure, judges whether the change is complete.

mod completion;
mod plan_progress;

use std::time::Duration;

use olm_api::annotations;
use olm_cli_core::change::{self, ChangeArgs, Completion, Deadline, WrittenObject};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use tokio::time::Instant;

pub(crate) use self::completion::cannot_complete;
use self::completion::judge;
pub(crate) use self::plan_progress::PlanProgress;
use crate::status::{observe, tree};

/// Interval between two reads of all objects of the extension.
const OBJECTS_INTERVAL: Duration = Duration::from_secs(5);

/// Expected state of a changed extension.
#[derive(Debug, Clone)]
pub struct ExpectedState {
    /// Name of the extension.
    pub name: String,
    /// UID, if known.
    pub uid: Option<String>,
    /// Generation after the change.
    pub generation: i64,
    /// Name of the chosen bundle.
    pub bundle: Option<String>,
    /// Image of the chosen bundle, if another image of the same bundle may be installed.
    pub image: Option<String>,
    /// Name of the bundle that was installed before.
    pub before: Option<String>,
    /// Digest of the plan that is approved.
    pub approved: Option<String>,
    /// `true` if the wait ends once pods fail in a way that waiting does not change, or a CRD is refused.
    pub ends_early: bool,
}

impl ExpectedState {
    /// State that the extension `written` reaches with the chosen bundle.
    pub fn new(written: &WrittenObject, bundle: Option<String>, before: Option<String>) -> Self {
        let approved = &written.object["metadata"]["annotations"][annotations::EXT_APPROVED];
        Self {
            approved: approved.as_str().map(str::to_owned),
            name: written.object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            uid: written.uid.clone(),
            generation: written.generation.unwrap_or_default(),
            bundle,
            image: None,
            before,
            ends_early: false,
        }
    }
}

/// Waits until the extension reaches the state `target`. Returns a message for the user.
///
/// # Errors
/// The extension cannot reach the state, does not reach it within `limit`, or a signal arrived. The change remains
/// written in each case, and the message says so.
pub(crate) async fn wait_for(
    cluster: &ClusterConnection,
    target: &ExpectedState,
    limit: Duration,
    session: &Session,
) -> Result<String, CliError> {
    let name = &target.name;
    let remaining = format!(
        "the change is written, and operator-controller continues to apply it; run `olm status {name}` for details"
    );
    wait_or(cluster, target, &remaining, limit, session).await
}

/// Does the same as [`wait_for`], with `remaining` at the end of errors.
///
/// # Errors
/// Errors of [`wait_for`].
pub async fn wait_or(
    cluster: &ClusterConnection,
    target: &ExpectedState,
    remaining: &str,
    deadline: impl Into<Deadline>,
    session: &Session,
) -> Result<String, CliError> {
    let name = &target.name;
    let mut blocker = None;
    let mut next_objects = Instant::now() + OBJECTS_INTERVAL;
    let poll = async || {
        let extension = cluster.find_extension(name, session).await?;
        let revisions = observe::revisions(cluster, name, session).await?;
        if Instant::now() >= next_objects && extension.is_some() {
            let observed = observe::observe(cluster, name, session).await?;
            if let Some(why) = tree::futile(&observed).filter(|_| target.ends_early) {
                return Ok(Completion::Failed(format!("{name}: {why}")));
            }
            blocker = tree::blocker(&observed);
            next_objects = Instant::now() + OBJECTS_INTERVAL;
        }
        Ok(judge(target, extension.as_ref(), &revisions, blocker.as_deref()))
    };
    change::until(name, remaining, deadline, poll, session).await
}

/// Names of the bundles of a change, if they are known.
#[derive(Debug, Default)]
pub(crate) struct ChangedBundle {
    /// Bundle that was chosen.
    pub(crate) chosen: Option<String>,
    /// Bundle that was installed before.
    pub(crate) installed: Option<String>,
}

/// Prints the written objects like [`change::print`]. With `--wait`, also waits for the last one, an extension, and
/// prints the result.
///
/// # Errors
/// Errors of [`change::print`] and [`wait_for`].
pub(crate) async fn print_and_wait(
    cluster: &ClusterConnection,
    args: &ChangeArgs,
    summary: &str,
    written: &[WrittenObject],
    bundle: ChangedBundle,
    session: &mut Session,
) -> Result<(), CliError> {
    change::print(args.output, summary, written, &mut session.output)?;
    match written.last() {
        Some(extension) => wait(cluster, args, extension, bundle, session).await,
        None => Ok(()),
    }
}

/// With `--wait`, waits for the extension and prints the result.
///
/// # Errors
/// Errors of [`wait_for`].
pub(crate) async fn wait(
    cluster: &ClusterConnection,
    args: &ChangeArgs,
    extension: &WrittenObject,
    bundle: ChangedBundle,
    session: &mut Session,
) -> Result<(), CliError> {
    if !args.wait {
        return Ok(());
    }
    // Show the result of the write before waiting.
    session.output.finish()?;
    let target = ExpectedState::new(extension, bundle.chosen, bundle.installed);
    let words = wait_for(cluster, &target, args.timeout, session).await?;
    change::print_end(args.output, &words, session)
}
