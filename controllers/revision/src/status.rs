//! The next status of a revision, computed from the outcome of a pass (docs/design/apply.md#revision-conditions,
//! docs/design/apply.md#progress-deadline, docs/design/api.md#clusterobjectset-conditions). Pure.

use jiff::Timestamp;
use olm_api::ClusterObjectSetStatus;
use olm_api::conditions::{self, Status, reasons, types};

use olm_runtime::message::sanitize;

/// Outcome of one pass over a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RevisionOutcome {
    /// The content has changed or is mutable. Nothing is done until a user fixes that.
    Blocked(String),
    /// The pass failed.
    Retrying(String),
    /// Objects are missing or fail their probes. One line for each phase whose first failing object is known.
    RollingOut(Option<String>),
    /// All objects exist and pass their probes.
    Complete,
    /// As [`Self::Complete`], but for the objects that these lines report.
    CompleteExcept(String),
    /// Being archived: some objects still exist.
    Archiving,
    /// Archived: nothing of the revision is left.
    Archived,
}

const REMOVING: &str = "removing revision resources that are not owned by another revision";

/// Computes the next status. `version` is the bundle version, for messages. `exceeded` holds the minutes of a
/// progress deadline that has passed. The observed phases are retained.
pub(crate) fn next(
    old: &ClusterObjectSetStatus,
    generation: Option<i64>,
    version: &str,
    outcome: &RevisionOutcome,
    exceeded: Option<i32>,
    now: Timestamp,
) -> ClusterObjectSetStatus {
    let mut status = old.clone();
    let mut set = |type_: &str, value: Status, reason: &str, message: &str| {
        conditions::set(&mut status.conditions, type_, value, reason, message, generation, now);
    };
    let (value, reason, message) = progressing(version, outcome, exceeded);
    set(types::PROGRESSING, value, reason, &message);
    let had_available = conditions::find(&old.conditions, types::AVAILABLE).is_some();
    match outcome {
        RevisionOutcome::RollingOut(Some(lines)) => {
            set(types::AVAILABLE, Status::False, reasons::PROBE_FAILURE, lines)
        }
        RevisionOutcome::RollingOut(None) => {
            set(types::AVAILABLE, Status::False, reasons::ROLLING_OUT, &rolling_out(version))
        }
        RevisionOutcome::Complete | RevisionOutcome::CompleteExcept(_) => {
            let mut available = "Objects are available and pass all probes.".to_owned();
            if let RevisionOutcome::CompleteExcept(lines) = outcome {
                available = conditions::truncate(&format!("{available}\n{lines}"));
            }
            set(types::AVAILABLE, Status::True, reasons::PROBES_SUCCEEDED, &available);
            set(types::SUCCEEDED, Status::True, reasons::SUCCEEDED, "Revision succeeded rolling out.");
        }
        RevisionOutcome::Retrying(message) if had_available => {
            set(types::AVAILABLE, Status::Unknown, reasons::RECONCILING, &sanitize(message))
        }
        RevisionOutcome::Archiving if had_available => {
            set(types::AVAILABLE, Status::Unknown, reasons::RECONCILING, REMOVING)
        }
        RevisionOutcome::Archived => {
            set(types::AVAILABLE, Status::Unknown, reasons::ARCHIVED, "revision is archived")
        }
        RevisionOutcome::Blocked(_) | RevisionOutcome::Retrying(_) | RevisionOutcome::Archiving => {}
    }
    status
}

/// Returns `true` if only messages of conditions differ.
pub(crate) fn differs_in_messages_only(old: &ClusterObjectSetStatus, next: &ClusterObjectSetStatus) -> bool {
    let without_messages = |status: &ClusterObjectSetStatus| {
        let mut status = status.clone();
        status.conditions.iter_mut().for_each(|condition| condition.message.clear());
        status
    };
    old != next && without_messages(old) == without_messages(next)
}

/// Status, reason and message of the condition `Progressing`.
fn progressing(
    version: &str,
    outcome: &RevisionOutcome,
    exceeded: Option<i32>,
) -> (Status, &'static str, String) {
    let (reason, message) = match outcome {
        RevisionOutcome::Blocked(message) => return (Status::False, reasons::BLOCKED, message.clone()),
        RevisionOutcome::Complete | RevisionOutcome::CompleteExcept(_) => {
            return (Status::True, reasons::SUCCEEDED, format!("Revision {version} has rolled out."));
        }
        RevisionOutcome::Archiving => return (Status::True, reasons::RETRYING, REMOVING.to_owned()),
        RevisionOutcome::Archived => {
            return (Status::False, reasons::ARCHIVED, "revision is archived".to_owned());
        }
        RevisionOutcome::Retrying(message) => (reasons::RETRYING, sanitize(message)),
        RevisionOutcome::RollingOut(_) => (reasons::ROLLING_OUT, rolling_out(version)),
    };
    match exceeded {
        None => (Status::True, reason, message),
        Some(minutes) => {
            let message =
                format!("Revision has not rolled out for {minutes} minute(s). Last status: {message}");
            (Status::False, reasons::PROGRESS_DEADLINE_EXCEEDED, message)
        }
    }
}

fn rolling_out(version: &str) -> String {
    format!("Revision {version} is rolling out.")
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_object_set::ObservedPhase;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn lines(status: &ClusterObjectSetStatus) -> Vec<String> {
        status
            .conditions
            .iter()
            .map(|c| format!("{} {}/{} {}", c.type_, c.status, c.reason, c.message))
            .collect()
    }

    fn after(outcomes: &[RevisionOutcome], exceeded: Option<i32>) -> Vec<String> {
        let mut status = ClusterObjectSetStatus::default();
        for outcome in outcomes {
            status = next(&status, Some(2), "1.0.0", outcome, exceeded, NOW);
        }
        lines(&status)
    }

    #[test]
    fn progress_of_rollout_differs_in_messages_only() {
        let rolling = |line: &str| RevisionOutcome::RollingOut(Some(line.to_owned()));
        let empty = ClusterObjectSetStatus::default();
        let first = next(&empty, Some(2), "1.0.0", &rolling("0 of 2"), None, NOW);
        let after = |outcome, exceeded| next(&first, Some(2), "1.0.0", &outcome, exceeded, NOW);
        assert!(differs_in_messages_only(&first, &after(rolling("1 of 2"), None)));
        assert!(!differs_in_messages_only(&empty, &first));
        assert!(!differs_in_messages_only(&first, &after(rolling("0 of 2"), None)), "nothing differs");
        assert!(
            !differs_in_messages_only(&first, &after(rolling("1 of 2"), Some(10))),
            "the deadline has passed"
        );
        assert!(!differs_in_messages_only(&first, &after(RevisionOutcome::Complete, None)));
        let mut observed = after(rolling("1 of 2"), None);
        observed.observed_phases.push(ObservedPhase { name: "deploy".into(), digest: "sha256:1".into() });
        assert!(!differs_in_messages_only(&first, &observed));
    }

    // docs/design/apply.md#revision-conditions
    #[test]
    fn outcome_determines_conditions() {
        let failing = || RevisionOutcome::RollingOut(Some("a\nb".into()));
        let rolling = "Progressing True/RollingOut Revision 1.0.0 is rolling out.";
        let late = "Progressing False/ProgressDeadlineExceeded Revision has not rolled out for 10 minute(s). Last status: ";
        let succeeded = "Succeeded True/Succeeded Revision succeeded rolling out.";
        let archived = [
            "Progressing False/Archived revision is archived",
            "Available Unknown/Archived revision is archived",
        ];
        let removing = "removing revision resources that are not owned by another revision";
        assert_eq!(after(&[failing()], None), [rolling, "Available False/ProbeFailure a\nb"]);
        assert_eq!(
            after(&[RevisionOutcome::RollingOut(None)], None),
            [rolling, "Available False/RollingOut Revision 1.0.0 is rolling out."]
        );
        assert_eq!(after(&[RevisionOutcome::Retrying("x".into())], None), ["Progressing True/Retrying x"]);
        assert_eq!(
            after(&[failing(), RevisionOutcome::Retrying("x".into())], None),
            ["Progressing True/Retrying x", "Available Unknown/Reconciling x"]
        );
        assert_eq!(after(&[RevisionOutcome::Retrying("x".into())], Some(10)), [format!("{late}x")]);
        assert_eq!(
            after(&[failing()], Some(10)),
            [format!("{late}Revision 1.0.0 is rolling out."), "Available False/ProbeFailure a\nb".into()]
        );
        assert_eq!(after(&[RevisionOutcome::Blocked("b".into())], Some(10)), ["Progressing False/Blocked b"]);
        assert_eq!(
            after(&[RevisionOutcome::Complete], Some(10)),
            [
                "Progressing True/Succeeded Revision 1.0.0 has rolled out.",
                "Available True/ProbesSucceeded Objects are available and pass all probes.",
                succeeded
            ]
        );
        assert_eq!(
            after(&[RevisionOutcome::Complete, RevisionOutcome::Archiving], Some(10)),
            [
                format!("Progressing True/Retrying {removing}"),
                format!("Available Unknown/Reconciling {removing}"),
                succeeded.into()
            ]
        );
        assert_eq!(after(&[RevisionOutcome::Archived], None), archived);
        let except = after(&[RevisionOutcome::CompleteExcept("Object a: skipped".into())], None);
        assert_eq!(
            except[1..],
            [
                "Available True/ProbesSucceeded Objects are available and pass all probes.\nObject a: skipped",
                succeeded
            ]
        );
    }

    #[test]
    fn revision_without_bundle_version_has_empty_version_in_message() {
        let status =
            next(&ClusterObjectSetStatus::default(), None, "", &RevisionOutcome::Complete, None, NOW);
        assert_eq!(status.conditions[0].message, "Revision  has rolled out.");
    }
}
