//! Logs of the pods of an extension's Deployments. [`lines`] is pure.

mod lines;

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ListParams, LogParams};
use kube::core::Selector;
use olm_api::labels;
use olm_cli_core::error::CliError;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use self::lines::{LogLine, LogPrinter, LogSource, sources, waiting};
use super::objects::Run;

/// Interval of looking for new pods.
const INTERVAL: Duration = Duration::from_secs(2);
/// Pause before a stream that ended is opened again.
const REOPEN: Duration = Duration::from_secs(1);
/// Deadline for the start of a stream. An idle one ends by the read timeout of the client, and is opened again.
const DEADLINE: Duration = Duration::from_secs(30);
/// Longest printed line, in bytes.
const MAX_LINE: usize = 64 << 10;
/// Lines in the channel to the printer.
const QUEUE: usize = 256;
/// Last lines of a container after a failed installation.
const LAST_LINES: i64 = 20;
/// Bytes of these lines.
const LAST_BYTES: i64 = 64 << 10;

/// Prints the logs of all pods to standard output, until the extension is deleted or the command is interrupted.
///
/// # Errors
/// Standard output cannot be written, or the command is interrupted.
pub(super) async fn follow(run: &Run, session: &mut Session) -> Result<(), CliError> {
    let (sender, mut receiver) = mpsc::channel::<(LogSource, String)>(QUEUE);
    let mut followed = BTreeSet::new();
    let mut tasks = JoinSet::new();
    let mut printer = LogPrinter::default();
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let next = async {
            tokio::select! {
                line = receiver.recv() => line,
                _ = ticks.tick() => None,
            }
        };
        if let Some((source, text)) = session.interruptible(next).await? {
            session.output.text(&printer.line(&source, &text))?;
            // Lines appear at once, but a burst is one write.
            if receiver.is_empty() {
                session.output.finish()?;
            }
            continue;
        }
        while let Some(ended) = tasks.try_join_next() {
            if let Ok(source) = ended {
                followed.remove(&source);
            }
        }
        if is_deleted(run, session).await? {
            say(&format!("ClusterExtension {} has been deleted", run.names.package));
            return Ok(());
        }
        for source in pods(run, session).await?.iter().flat_map(sources) {
            if followed.insert(source.clone()) {
                let pods = Api::namespaced(run.cluster.client().clone(), &run.namespace);
                tasks.spawn(copy(pods, source, sender.clone()));
            }
        }
    }
}

/// Reports whether the extension is deleted. `false` if the API server does not answer.
async fn is_deleted(run: &Run, session: &Session) -> Result<bool, CliError> {
    let found = run.cluster.find_extension(&run.names.package, session).await;
    session.check()?;
    Ok(matches!(found, Ok(None)))
}

/// Pods of the extension's Deployments, by name. None if the API server does not answer.
async fn pods(run: &Run, session: &Session) -> Result<Vec<Pod>, CliError> {
    let client = run.cluster.client();
    let own = ListParams::default().labels(&format!("{}={}", labels::OWNER_NAME, run.names.package));
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &run.namespace);
    let deployments = run.cluster.call("the operator's Deployments", deployments.list(&own), session).await;
    let mut found = Vec::new();
    for deployment in deployments.map(|list| list.items).unwrap_or_default() {
        let selector = deployment.spec.and_then(|spec| Selector::try_from(spec.selector).ok());
        let Some(selector) = selector.filter(|selector| !selector.to_string().is_empty()) else { continue };
        let api: Api<Pod> = Api::namespaced(client.clone(), &run.namespace);
        let own = ListParams::default().labels_from(&selector);
        let list = run.cluster.call("the operator's pods", api.list(&own), session).await;
        found.extend(list.map(|list| list.items).unwrap_or_default());
    }
    session.check()?;
    found.sort_by_key(ResourceExt::name_any);
    Ok(found)
}

/// Copies the log of a container to `sink`, until its pod is deleted. Returns the source.
async fn copy(pods: Api<Pod>, source: LogSource, sink: mpsc::Sender<(LogSource, String)>) -> LogSource {
    let mut last: Option<Timestamp> = None;
    loop {
        let parameters = LogParams {
            container: Some(source.container.clone()),
            follow: true,
            timestamps: true,
            since_time: last,
            ..LogParams::default()
        };
        let stream = pods.log_stream(&source.pod, &parameters);
        if let Ok(Ok(mut stream)) = tokio::time::timeout(DEADLINE, stream).await {
            let before = last;
            while let Ok(Some(line)) = next_line(&mut stream).await {
                let line = LogLine::parse(&line);
                // The API server repeats lines of the former stream: those of its last second.
                if line.time.is_some() && line.time <= before {
                    continue;
                }
                last = line.time.or(last);
                if sink.send((source.clone(), line.text.to_owned())).await.is_err() {
                    return source;
                }
            }
        }
        let pod = olm_runtime::cluster::within_deadline(pods.get_opt(&source.pod)).await;
        if pod.is_ok_and(|pod| pod.is_none_or(|pod| pod.uid().as_ref() != Some(&source.uid))) {
            return source;
        }
        sleep(REOPEN).await;
    }
}

/// Next line without its line feed, cut to [`MAX_LINE`] bytes. `None` at the end.
async fn next_line(stream: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut is_begun = false;
    loop {
        let part = stream.fill_buf().await?;
        if part.is_empty() {
            return Ok(is_begun.then(|| String::from_utf8_lossy(&line).into_owned()));
        }
        is_begun = true;
        let end = part.iter().position(|byte| *byte == b'\n');
        let kept = end.unwrap_or(part.len()).min(MAX_LINE - line.len());
        line.extend_from_slice(&part[..kept]);
        let taken = end.map_or(part.len(), |end| end + 1);
        stream.consume_unpin(taken);
        if end.is_some() {
            return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
        }
    }
}

/// Why containers wait, and the last lines of the logs of all.
///
/// # Errors
/// The command is interrupted.
pub(super) async fn last(run: &Run, session: &Session) -> Result<Vec<String>, CliError> {
    let api: Api<Pod> = Api::namespaced(run.cluster.client().clone(), &run.namespace);
    let mut lines = Vec::new();
    for pod in pods(run, session).await? {
        lines.extend(waiting(&pod));
        for source in sources(&pod) {
            let parameters = |previous| LogParams {
                container: Some(source.container.clone()),
                previous,
                tail_lines: Some(LAST_LINES),
                limit_bytes: Some(LAST_BYTES),
                ..LogParams::default()
            };
            let mut text = String::new();
            // A container that waits for its restart has only the log of its previous run.
            for previous in [false, true] {
                let parameters = parameters(previous);
                let call = api.logs(&source.pod, &parameters);
                let log = run.cluster.call("a log", call, session).await;
                session.check()?;
                text = log.unwrap_or_default();
                if !text.trim().is_empty() {
                    break;
                }
            }
            lines.extend(text.lines().map(|line| source.prefix(line)));
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_and_incomplete_lines_are_bounded() {
        let text = format!("a\n\n{}\nend", "x".repeat(MAX_LINE + 10));
        let mut stream = futures::io::BufReader::with_capacity(7, futures::io::Cursor::new(text));
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut stream).await.unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["a", "", &"x".repeat(MAX_LINE), "end"]);
    }
}
