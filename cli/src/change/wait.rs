//! Waiting until the cluster has made a change. What is seen is judged elsewhere; here it is read and told.

use std::io::{self, IsTerminal};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::arrival::{Arrival, judge};
use crate::failure::{Code, Failure};
use crate::progress::{Step, say};
use crate::session::Session;
use crate::source::Cluster;
use crate::status::{observe, tree};

/// From one look to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// From one look at all objects to the next.
const CLOSER: Duration = Duration::from_secs(5);

/// What a changed extension becomes.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Name of the ClusterExtension.
    pub(crate) name: String,
    /// Its UID, where it is known.
    pub(crate) uid: Option<String>,
    /// Its generation after the change.
    pub(crate) generation: i64,
    /// Name of the bundle that was chosen.
    pub(crate) bundle: Option<String>,
    /// Name of the bundle that was installed before.
    pub(crate) before: Option<String>,
}

/// Waits until the extension is as `target` says; gives what people should know then.
///
/// # Errors
/// It will not be so, it is not so after `limit`, or a signal came. The change stays in each case, and the text says so.
pub(crate) async fn wait_for(
    cluster: &Cluster,
    target: &Target,
    limit: Duration,
    session: &Session,
) -> Result<String, Failure> {
    let name = &target.name;
    let mut obstacle = None;
    let mut closer = Instant::now() + CLOSER;
    let look = async || {
        let extension = cluster.find_extension(name, session).await?;
        let revisions = observe::revisions(cluster, name, session).await?;
        if Instant::now() >= closer && extension.is_some() {
            obstacle = tree::obstacle(&observe::observe(cluster, name, session).await?);
            closer = Instant::now() + CLOSER;
        }
        Ok(judge(target, extension.as_ref(), &revisions, obstacle.as_deref()))
    };
    let stays =
        format!("the change stays, and operator-controller goes on with it; `olm status {name}` tells more");
    until(name, &stays, limit, look, session).await
}

/// Asks `look` again and again until it says that something has arrived; gives its words. `what` is waited for, and `stays`
/// is what people must know if that ends early.
///
/// # Errors
/// `look` says that it failed, cannot look at first, or never says either within `limit`; a signal came.
pub(crate) async fn until(
    what: &str,
    stays: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Arrival, Failure>,
    session: &Session,
) -> Result<String, Failure> {
    let begin = Instant::now();
    let mut teller = Teller { what, step: session.progress.step(what), last: None };
    loop {
        let next = Instant::now() + INTERVAL;
        match look().await {
            Ok(Arrival::Arrived(words)) => return Ok(words),
            Ok(Arrival::Failed(why)) => return Err(Failure::operational(format!("{why}\n{stays}"))),
            Ok(Arrival::Underway(words)) => teller.tell(words),
            Err(Failure::Told(Code::Interrupted, _)) => return Err(interrupted(stays)),
            // An API server that restarts is waited for, one that never answered is not.
            Err(failure) if teller.last.is_none() => return Err(failure),
            Err(failure) => teller.tell(failure.to_string()),
        }
        if begin.elapsed() >= limit {
            let last = teller.last.unwrap_or_default();
            let limit = shown(limit);
            return Err(Failure::operational(format!(
                "gave up waiting for {what} after {limit}: {last}\n{stays}"
            )));
        }
        let pause = async {
            sleep_until(next.min(begin + limit)).await;
            Ok::<_, Failure>(())
        };
        session.unless_interrupted(pause).await.map_err(|_| interrupted(stays))?;
    }
}

fn interrupted(stays: &str) -> Failure {
    Failure::Told(Code::Interrupted, format!("interrupted while waiting; {stays}"))
}

/// `90s`, `10m`, `1h30m`
fn shown(time: Duration) -> String {
    let seconds = time.as_secs();
    let parts = [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let text: String = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if text.is_empty() { format!("{}ms", time.as_millis()) } else { text }
}

/// Tells how something goes on: in place on a terminal, elsewhere a line for each news.
struct Teller<'a> {
    what: &'a str,
    step: Step,
    last: Option<String>,
}

impl Teller<'_> {
    fn tell(&mut self, words: String) {
        // One line, however long the cluster's messages are.
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
    fn times_are_shown_as_they_are_given() {
        for (seconds, expected) in [(90, "1m30s"), (600, "10m"), (3600, "1h"), (45, "45s")] {
            assert_eq!(shown(Duration::from_secs(seconds)), expected);
        }
        assert_eq!(shown(Duration::from_millis(5)), "5ms");
    }

    #[tokio::test]
    async fn what_ends_early_says_what_stays() {
        let session = Session::start();
        let limit = Duration::from_millis(10);
        let underway = async || Ok(Arrival::Underway("rolling\nout".to_owned()));
        let late = until("pipe", "it goes on", limit, underway, &session).await.unwrap_err();
        assert_eq!(late.to_string(), "gave up waiting for pipe after 10ms: rolling out\nit goes on");
        let failed = async || Ok(Arrival::Failed("Blocked".to_owned()));
        let failed = until("pipe", "it goes on", limit, failed, &session).await.unwrap_err();
        assert_eq!((failed.exit_code(), failed.to_string().as_str()), (1, "Blocked\nit goes on"));
        let unread = async || Err(Failure::operational("no API server"));
        let unread = until("pipe", "it goes on", limit, unread, &session).await.unwrap_err();
        assert_eq!(unread.to_string(), "no API server");
        let gone = async || Err(Failure::interrupted());
        let gone = until("pipe", "it goes on", limit, gone, &session).await.unwrap_err();
        assert_eq!(
            (gone.exit_code(), gone.to_string().as_str()),
            (130, "interrupted while waiting; it goes on")
        );
    }
}
