//! Waiting for a change to complete on the cluster. Polls and reports. The callers judge what was read.

use std::io::{self, IsTerminal};
use std::time::Duration;

use olm_api::annotations;
use tokio::time::{Instant, sleep_until};

use super::completion::{Completion, judge};
use super::write::WrittenObject;
use crate::error::{CliError, Code};
use crate::progress::{Step, say};
use crate::session::Session;
use crate::source::Cluster;
use crate::status::{observe, tree};

/// Polling interval of the extension.
const INTERVAL: Duration = Duration::from_secs(1);
/// Polling interval of all its objects.
const OBJECTS_INTERVAL: Duration = Duration::from_secs(5);

/// End of a wait, or of several waits one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    begin: Instant,
    limit: Duration,
}

impl From<Duration> for Deadline {
    /// Deadline that begins now.
    fn from(limit: Duration) -> Self {
        Self { begin: Instant::now(), limit }
    }
}

impl Deadline {
    pub(crate) fn has_passed(self) -> bool {
        self.begin.elapsed() >= self.limit
    }
}

/// Expected state of a changed extension.
#[derive(Debug, Clone)]
pub(crate) struct ExpectedState {
    pub(crate) name: String,
    /// UID, if known.
    pub(crate) uid: Option<String>,
    /// Generation after the change.
    pub(crate) generation: i64,
    /// Name of the chosen bundle.
    pub(crate) bundle: Option<String>,
    /// Image of the chosen bundle, if another image of the same bundle may be installed.
    pub(crate) image: Option<String>,
    /// Name of the bundle that was installed before.
    pub(crate) before: Option<String>,
    /// Digest of the plan that is approved.
    pub(crate) approved: Option<String>,
    /// `true` if the wait ends once pods fail in a way that waiting does not change, or a CRD is refused.
    pub(crate) ends_early: bool,
}

impl ExpectedState {
    /// State that the extension `written` reaches with the chosen bundle.
    pub(crate) fn new(written: &WrittenObject, bundle: Option<String>, before: Option<String>) -> Self {
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
    cluster: &Cluster,
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
pub(crate) async fn wait_or(
    cluster: &Cluster,
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
    until(name, remaining, deadline, poll, session).await
}

/// Calls `poll` until it returns [`Completion::Complete`], and returns that message. `what` is the awaited state, and
/// `remaining` is appended to the error if the wait ends early.
///
/// # Errors
/// `poll` returns [`Completion::Failed`], fails on its first call, or does not complete before `deadline`, or a signal
/// arrived.
pub(crate) async fn until(
    what: &str,
    remaining: &str,
    deadline: impl Into<Deadline>,
    mut poll: impl AsyncFnMut() -> Result<Completion, CliError>,
    session: &Session,
) -> Result<String, CliError> {
    let Deadline { begin, limit } = deadline.into();
    let mut reporter = ProgressReporter { what, step: session.progress.step(what), last: None };
    loop {
        let next = Instant::now() + INTERVAL;
        match poll().await {
            Ok(Completion::Complete(words)) => return Ok(words),
            Ok(Completion::Failed(why)) => return Err(CliError::operational(format!("{why}\n{remaining}"))),
            Ok(Completion::InProgress(words)) => reporter.report(words),
            Err(CliError::Message(Code::Interrupted, _)) => return Err(interrupted(remaining)),
            // An API server that answered before may be restarting. One that never answered ends the wait.
            Err(failure) if reporter.last.is_none() => return Err(failure),
            Err(failure) => reporter.report(failure.to_string()),
        }
        if begin.elapsed() >= limit {
            let last = reporter.last.unwrap_or_default();
            let limit = shown(limit);
            return Err(CliError::operational(format!(
                "timed out after {limit} waiting for {what}: {last}\n{remaining}"
            )));
        }
        let pause = sleep_until(next.min(begin + limit));
        session.interruptible(pause).await.map_err(|_| interrupted(remaining))?;
    }
}

fn interrupted(remaining: &str) -> CliError {
    CliError::Message(Code::Interrupted, format!("interrupted while waiting; {remaining}"))
}

/// `90s`, `10m`, `1h30m`
fn shown(time: Duration) -> String {
    let seconds = time.as_secs();
    let parts = [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let text: String = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if text.is_empty() { format!("{}ms", time.as_millis()) } else { text }
}

/// Progress output: in place on a terminal, else one line per change.
struct ProgressReporter<'a> {
    what: &'a str,
    step: Step,
    last: Option<String>,
}

impl ProgressReporter<'_> {
    fn report(&mut self, words: String) {
        // Condensed to one line, because messages of the cluster may have several.
        let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
        if self.last.as_ref() == Some(&line) {
            return;
        }
        self.step.update(format!("{}: {line}", self.what));
        if !io::stderr().is_terminal() {
            say(&format!("{}: {line}", self.what));
        }
        self.last = Some(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_flag_notation() {
        for (seconds, expected) in [(90, "1m30s"), (600, "10m"), (3600, "1h"), (45, "45s")] {
            assert_eq!(shown(Duration::from_secs(seconds)), expected);
        }
        assert_eq!(shown(Duration::from_millis(5)), "5ms");
    }

    #[tokio::test]
    async fn failed_wait_reports_reason_and_remaining_state() {
        let session = Session::start();
        let limit = Duration::from_millis(10);
        let in_progress = async || Ok(Completion::InProgress("rolling\nout".to_owned()));
        let late = until("pipe", "it continues", limit, in_progress, &session).await.unwrap_err();
        assert_eq!(late.to_string(), "timed out after 10ms waiting for pipe: rolling out\nit continues");
        let passed = Deadline { begin: Instant::now() - limit, limit };
        let late = until("pipe", "it continues", passed, in_progress, &session).await.unwrap_err();
        assert_eq!(late.to_string(), "timed out after 10ms waiting for pipe: rolling out\nit continues");
        let failed = async || Ok(Completion::Failed("Blocked".to_owned()));
        let failed = until("pipe", "it continues", limit, failed, &session).await.unwrap_err();
        assert_eq!((failed.exit_code(), failed.to_string().as_str()), (1, "Blocked\nit continues"));
        let unread = async || Err(CliError::operational("no API server"));
        let unread = until("pipe", "it continues", limit, unread, &session).await.unwrap_err();
        assert_eq!(unread.to_string(), "no API server");
        let signal = async || Err(CliError::interrupted());
        let interrupted = until("pipe", "it continues", limit, signal, &session).await.unwrap_err();
        assert_eq!(
            (interrupted.exit_code(), interrupted.to_string().as_str()),
            (130, "interrupted while waiting; it continues")
        );
    }
}
