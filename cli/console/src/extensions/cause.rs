//! Reason for which an extension does not work: one sentence, the last line of the log, and the remedy. Pure.

use maud::{Markup, html};
use olm_api::conditions::{self, types};
use olm_cli_lifecycle::status::activity::Log;
use olm_cli_lifecycle::status::health::Health;
use olm_cli_lifecycle::status::tree::ExtensionState;

use super::cut;

/// What the top of the page says about a failing extension.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cause {
    sentence: String,
    /// Container and its last line.
    log: Option<(String, String)>,
    remedies: Vec<String>,
}

impl Cause {
    /// `None` while nothing fails.
    pub(super) fn new(state: &ExtensionState, logs: &[Log]) -> Option<Self> {
        let mut remedies = state.remedies.clone();
        if let Some((cause, _)) = state.blocked_pods() {
            // The remedy is the last part of the sentence.
            let (sentence, remedy) = cause.rsplit_once("; ").unwrap_or((&cause, ""));
            let failing = || logs.iter().filter(|log| log.state.is_some());
            let log = failing().filter(|log| cause.contains(&log.pod)).find_map(last_line);
            let log = log.or_else(|| failing().find_map(last_line));
            remedies.extend(Some(in_words(remedy)).filter(|text| !text.is_empty()));
            return Some(Self { sentence: sentence.to_owned(), log, remedies });
        }
        let fails = matches!(
            state.health,
            Health::Degraded | Health::Retrying | Health::Stalled | Health::Misconfigured | Health::Blocked
        );
        if !fails || state.is_held() {
            return None;
        }
        let type_ = if state.health == Health::Degraded { types::AVAILABLE } else { types::PROGRESSING };
        let condition = conditions::find(&state.conditions, type_)?;
        let log = logs.iter().filter(|log| log.state.is_some()).find_map(last_line);
        Some(Self { sentence: condition.message.clone(), log, remedies })
    }

    pub(super) fn markup(&self) -> Markup {
        html! {
            section.cause aria-label="Cause" {
                h2 { "What is wrong" }
                p.sentence { (cut(&self.sentence)) }
                @if let Some((place, line)) = &self.log {
                    p.soft { "Last line of the log of " (place) ":" }
                    pre { (cut(line)) }
                }
                @for remedy in &self.remedies { p { strong { "What to do. " } (remedy) } }
            }
        }
    }
}

/// Remedy as a sentence.
fn in_words(remedy: &str) -> String {
    match remedy.strip_prefix("its log: ") {
        Some(command) => format!("Read the whole log: {command}"),
        None => {
            let mut all = remedy.chars();
            let first: String = all.next().into_iter().flat_map(char::to_uppercase).collect();
            first + all.as_str()
        }
    }
}

/// Container, and the last line of its log that is not empty.
fn last_line(log: &Log) -> Option<(String, String)> {
    let line = log.text.as_ref().ok()?.lines().rev().find(|line| !line.trim().is_empty())?;
    let run = if log.previous { ", before its restart" } else { "" };
    Some((format!("{}/{}{run}", log.pod, log.container), line.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use olm_api::ClusterExtension;
    use serde_json::json;

    use super::*;

    fn state(reason: &str, status: &str, message: &str) -> ExtensionState {
        let condition = json!({"type": "Progressing", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let object = json!({"metadata": {"name": "a"}, "status": {"conditions": [condition]}});
        ExtensionState::alone(&serde_json::from_value::<ClusterExtension>(object).unwrap(), &[])
    }

    #[test]
    fn failing_extension_has_its_message_and_the_last_line_of_the_log() {
        let log = Log {
            namespace: "ns".to_owned(),
            pod: "p".to_owned(),
            container: "c".to_owned(),
            previous: true,
            state: Some("Error".to_owned()),
            text: Ok("one\npanic: two\n\n".to_owned()),
        };
        let cause = Cause::new(&state("Retrying", "True", "cannot pull"), &[log]).unwrap();
        assert_eq!(cause.sentence, "cannot pull");
        assert_eq!(cause.log, Some(("p/c, before its restart".to_owned(), "panic: two".to_owned())));
    }

    #[test]
    fn rollout_and_approval_are_no_failure() {
        assert_eq!(Cause::new(&state("RollingOut", "True", "x"), &[]), None);
        let waits = "installation of bundle a.v1 version 1 requires approval; plan sha256:a: x";
        assert_eq!(Cause::new(&state("Blocked", "False", waits), &[]), None);
    }

    #[test]
    fn remedy_is_a_sentence() {
        assert_eq!(in_words("add nodes"), "Add nodes");
        assert_eq!(in_words("its log: kubectl logs a"), "Read the whole log: kubectl logs a");
    }
}
