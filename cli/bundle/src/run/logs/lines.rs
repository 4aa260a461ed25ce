//! Containers of pods, and lines of their logs. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

/// Container with a log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogSource {
    pub(super) pod: String,
    /// UID of the pod.
    pub(super) uid: String,
    pub(super) container: String,
}

impl LogSource {
    /// Line with the names of pod and container.
    pub(super) fn prefix(&self, line: &str) -> String {
        format!("[{}/{}] {line}", self.pod, self.container)
    }
}

/// States of all containers of a pod.
fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status
        .flat_map(|status| [&status.init_container_statuses, &status.container_statuses])
        .flatten()
        .flatten()
}

/// Containers of a pod that have started.
pub(super) fn sources(pod: &Pod) -> Vec<LogSource> {
    let has_log = |one: &&ContainerStatus| {
        let state = one.state.as_ref();
        one.restart_count > 0 || state.is_some_and(|one| one.running.is_some() || one.terminated.is_some())
    };
    let source = |one: &ContainerStatus| LogSource {
        pod: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        container: one.name.clone(),
    };
    statuses(pod).filter(has_log).map(source).collect()
}

/// Reasons for which containers of a pod do not run.
pub(super) fn waiting(pod: &Pod) -> Vec<String> {
    let reason = |one: &ContainerStatus| {
        let waiting = one.state.as_ref()?.waiting.as_ref()?;
        let parts = [&waiting.reason, &waiting.message].into_iter().flatten().map(String::as_str);
        let text = parts.collect::<Vec<_>>().join(": ");
        Some(format!("pod {}: container {} waits: {text}", pod.name_any(), one.name))
    };
    statuses(pod).filter_map(reason).collect()
}

/// Line of a log with timestamps.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogLine<'a> {
    /// `None` if the line does not begin with a time.
    pub(super) time: Option<Timestamp>,
    pub(super) text: &'a str,
}

impl<'a> LogLine<'a> {
    pub(super) fn parse(line: &'a str) -> Self {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        match first.parse() {
            Ok(time) => Self { time: Some(time), text: rest },
            Err(_) => Self { time: None, text: line },
        }
    }
}

/// Text without escape sequences of colors, which would be printed as text.
fn uncolored(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit() && c != ';');
        match end.filter(|end| part[*end..].starts_with('m')) {
            Some(end) => plain += &part[end + 1..],
            // Another sequence is printed escaped.
            None => plain.extend(["\u{1b}[", part]),
        }
    }
    plain
}

/// Prints lines with the name of their pod, once there is more than one source.
#[derive(Debug, Default)]
pub(super) struct LogPrinter {
    known: BTreeSet<LogSource>,
}

impl LogPrinter {
    pub(super) fn line(&mut self, source: &LogSource, text: &str) -> String {
        if !self.known.contains(source) {
            self.known.insert(source.clone());
        }
        let text = uncolored(text);
        let line = if self.known.len() > 1 { source.prefix(&text) } else { text };
        format!("{line}\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, init: Value, main: Value) -> Pod {
        let status = |name: &str, state: Value, restarts: i32| {
            json!({"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": restarts,
                "state": state})
        };
        let status = json!({
            "initContainerStatuses": [status("setup", init, 0)],
            "containerStatuses": [status("manager", main, 0)],
        });
        serde_json::from_value(json!({"metadata": {"name": name, "uid": "u"}, "status": status})).unwrap()
    }

    #[test]
    fn started_containers_have_logs_and_others_a_reason() {
        let running = json!({"running": {}});
        let ended = json!({"terminated": {"exitCode": 0}});
        let creating = json!({"waiting": {"reason": "ContainerCreating"}});
        let pulling = json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}});
        let names = |pod: &Pod| sources(pod).into_iter().map(|one| one.container).collect::<Vec<_>>();
        for (init, main, expected, reasons) in [
            (ended.clone(), running.clone(), vec!["setup", "manager"], vec![]),
            (running, creating, vec!["setup"], vec!["pod p: container manager waits: ContainerCreating"]),
            (
                ended,
                pulling,
                vec!["setup"],
                vec!["pod p: container manager waits: ImagePullBackOff: Back-off pulling image"],
            ),
        ] {
            let pod = pod("p", init, main);
            assert_eq!(
                (names(&pod), waiting(&pod)),
                (
                    expected.iter().map(ToString::to_string).collect(),
                    reasons.iter().map(ToString::to_string).collect()
                )
            );
        }
        let mut restarting = pod("p", json!({}), json!({"waiting": {"reason": "CrashLoopBackOff"}}));
        let status = restarting.status.as_mut().unwrap().container_statuses.as_mut().unwrap();
        status[0].restart_count = 1;
        assert_eq!(names(&restarting), ["manager"]);
        assert_eq!(names(&Pod::default()), [""; 0]);
    }

    #[test]
    fn log_line_timestamp_is_parsed_and_stripped() {
        let time: Timestamp = "2026-01-02T03:04:05.123456789Z".parse().unwrap();
        for (line, expected) in [
            ("2026-01-02T03:04:05.123456789Z INFO\tready", (Some(time), "INFO\tready")),
            ("2026-01-02T03:04:05.123456789Z ", (Some(time), "")),
            ("2026-01-02T03:04:05.123456789Z", (Some(time), "")),
            ("failed to open the log", (None, "failed to open the log")),
            ("", (None, "")),
        ] {
            assert_eq!(LogLine::parse(line), LogLine { time: expected.0, text: expected.1 }, "{line}");
        }
    }

    #[test]
    fn only_color_sequences_are_removed() {
        for (text, expected) in [
            ("\u{1b}[2m12:00\u{1b}[0m \u{1b}[1;32m INFO\u{1b}[m ok", "12:00  INFO ok"),
            ("plain [0m", "plain [0m"),
            ("\u{1b}[2Jclear\u{1b}[", "\u{1b}[2Jclear\u{1b}["),
        ] {
            assert_eq!(uncolored(text), expected);
        }
    }

    #[test]
    fn log_prefix_is_printed_once_second_container_logs() {
        let source = |pod: &str| LogSource {
            pod: pod.to_owned(),
            uid: String::new(),
            container: "manager".to_owned(),
        };
        let mut printer = LogPrinter::default();
        assert_eq!(printer.line(&source("a"), "one"), "one\n");
        assert_eq!(printer.line(&source("b"), "two"), "[b/manager] two\n");
        assert_eq!(printer.line(&source("a"), "three"), "[a/manager] three\n");
    }
}
