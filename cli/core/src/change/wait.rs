//! Waiting for a change to complete on the cluster. Polls and reports. The callers judge what was read.

use std::io::{self, IsTerminal};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::error::{CliError, Code};
use crate::progress::{Step, say};
use crate::session::Session;

/// Polling interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// Progress of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// Complete. Contains a message for the user.
    Complete(String),
    /// In progress. Contains the current step.
    InProgress(String),
    /// Will not complete without intervention. Contains the reason.
    Failed(String),
}

/// End of a wait, or of several waits one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
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
    /// Reports whether the wait is over.
    pub fn has_passed(self) -> bool {
        self.begin.elapsed() >= self.limit
    }
}

/// Calls `poll` until it returns [`Completion::Complete`], and returns that message. `what` is the awaited state, and
/// `remaining` is appended to the error if the wait ends early.
///
/// # Errors
/// `poll` returns [`Completion::Failed`], fails on its first call, or does not complete before `deadline`, or a signal
/// arrived.
pub async fn until(
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
