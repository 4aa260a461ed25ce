//! Events about the life of an extension: rollouts that start, succeed or stall, and pauses
//! (docs/design/additions.md#events, docs/design/additions.md#pause). Pure. All but the start are derived from the
//! status, so a restart repeats none.

use olm_api::ClusterExtensionStatus;
use olm_api::cluster_extension::BundleMetadata;
use olm_api::conditions::{self, Status, types};

use super::events::ExtensionEvent;
use super::revisions::Revision;

/// A revision was created, and nothing is installed yet.
pub(super) const INSTALL_STARTED: &str = "InstallStarted";
/// A revision was created that restores the installed one.
pub(super) const ROLLED_BACK: &str = "RolledBack";
/// A revision was created that succeeds the installed one.
pub(super) const UPGRADE_STARTED: &str = "UpgradeStarted";
pub(super) const ROLLOUT_SUCCEEDED: &str = "RolloutSucceeded";
/// The rollout cannot continue without a change by a user.
pub(super) const ROLLOUT_STALLED: &str = "RolloutStalled";
/// The same version of the same bundle has other content than before.
pub(super) const BUNDLE_CONTENT_CHANGED: &str = "BundleContentChanged";
/// An installation made with Helm was adopted.
pub(super) const ADOPTED: &str = "Adopted";
pub(super) const PAUSED: &str = "Paused";
pub(super) const RESUMED: &str = "Resumed";

/// Events of a created revision. `newest` was the newest before. `edited` is `true` if the extension changed since
/// that one was created.
pub(super) fn started(
    made: &Revision,
    installed: Option<&Revision>,
    newest: Option<&Revision>,
    edited: bool,
) -> Vec<ExtensionEvent> {
    let name = &made.name;
    if let (Some(refusal), Some(newest)) = (&made.refusal, newest) {
        let (restored, failed) = (describe(&made.bundle), describe(&newest.bundle));
        let note = format!(
            "revision {name} restores {restored} in place of {failed}, because revision {} exceeded its progress deadline",
            refusal.revision
        );
        return vec![ExtensionEvent::warning(ROLLED_BACK, note)];
    }
    let (reason, note) = match installed {
        None => (INSTALL_STARTED, format!("revision {name} installs {}", describe(&made.bundle))),
        Some(installed) if installed.bundle == made.bundle && installed.namespaces != made.namespaces => (
            UPGRADE_STARTED,
            format!("revision {name} changes the watched namespaces of {}", describe(&made.bundle)),
        ),
        Some(installed) if installed.bundle == made.bundle => {
            (UPGRADE_STARTED, format!("revision {name} applies changes of {}", describe(&made.bundle)))
        }
        Some(installed) => {
            let (new, old) = (describe(&made.bundle), describe(&installed.bundle));
            (UPGRADE_STARTED, format!("revision {name} installs {new} in place of {old}"))
        }
    };
    let mut events = vec![ExtensionEvent::normal(reason, note)];
    let same = newest.filter(|newest| newest.bundle == made.bundle && newest.namespaces == made.namespaces);
    if let Some(newest) = same.filter(|newest| !edited && newest.is_active) {
        let of = match newest.image == made.image {
            true => String::new(),
            false => format!(" from image {}", newest.image),
        };
        let note = format!(
            "{} from image {} differs from the content of revision {}{of}, although the extension is unchanged",
            describe(&made.bundle),
            made.image,
            newest.name
        );
        events.push(ExtensionEvent::warning(BUNDLE_CONTENT_CHANGED, note));
    }
    events
}

/// Events of the transition from one status to the next.
pub(super) fn reached(
    old: Option<&ClusterExtensionStatus>,
    next: &ClusterExtensionStatus,
) -> Vec<ExtensionEvent> {
    let succeeded = installed(Some(next)).filter(|now| installed(old) != Some(*now));
    let succeeded = succeeded.zip(next.install.as_ref()).map(|(revision, install)| {
        let note = format!("{} is installed by revision {revision}", describe(&install.bundle));
        ExtensionEvent::normal(ROLLOUT_SUCCEEDED, note)
    });
    let stall = |status: Option<&ClusterExtensionStatus>| {
        let progressing = conditions::find(&status?.conditions, types::PROGRESSING)?;
        let stalled = (progressing.reason.clone(), progressing.message.clone());
        (progressing.status == Status::False.as_str()).then_some(stalled)
    };
    let stalled = stall(Some(next)).filter(|now| stall(old).as_ref() != Some(now));
    let stalled = stalled
        .map(|(reason, message)| ExtensionEvent::warning(ROLLOUT_STALLED, format!("{reason}: {message}")));
    let paused = match (is_paused(old), is_paused(Some(next))) {
        (false, true) => Some(ExtensionEvent::normal(PAUSED, "nothing is applied or upgraded".to_owned())),
        (true, false) => Some(ExtensionEvent::normal(RESUMED, "changes are applied again".to_owned())),
        _ => None,
    };
    [succeeded, stalled, paused].into_iter().flatten().collect()
}

/// Reasons of [`reached`] that are resolved.
pub(super) fn resolved(status: &ClusterExtensionStatus) -> Vec<&'static str> {
    let progressing = conditions::find(&status.conditions, types::PROGRESSING);
    let is_stalled = progressing.is_some_and(|condition| condition.status == Status::False.as_str());
    let pause = if is_paused(Some(status)) { RESUMED } else { PAUSED };
    (!is_stalled).then_some(ROLLOUT_STALLED).into_iter().chain([pause]).collect()
}

/// Name of the installed revision: the entry without conditions.
fn installed(status: Option<&ClusterExtensionStatus>) -> Option<&str> {
    let status = status.filter(|status| conditions::is_true(&status.conditions, types::INSTALLED))?;
    let mut entries = status.active_revisions.iter();
    entries.find(|entry| entry.conditions.is_empty()).map(|entry| entry.name.as_str())
}

fn is_paused(status: Option<&ClusterExtensionStatus>) -> bool {
    status.is_some_and(|status| conditions::is_true(&status.conditions, types::PAUSED))
}

fn describe(bundle: &BundleMetadata) -> String {
    let BundleMetadata { name, version, .. } = bundle;
    format!("bundle {name} version {version}")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use olm_api::cluster_extension::{InstallStatus, RevisionStatus};
    use olm_api::conditions::reasons;
    use olm_request::RolledBackContent;

    use super::super::revisions::tests::set;
    use super::*;

    fn revision(number: i64, state: &str) -> Revision {
        Revision::of(&set(number, state, true))
    }

    // docs/design/additions.md#events
    #[test]
    fn created_revision_is_published_as_started() {
        let (first, second) = (revision(1, "Active"), revision(2, "Active"));
        let install = "revision demo-1 installs bundle demo.v1.0.0 version 1.0.0".to_owned();
        assert_eq!(started(&first, None, None, false), [ExtensionEvent::normal(INSTALL_STARTED, install)]);
        let upgrade = "revision demo-2 installs bundle demo.v2.0.0 version 2.0.0 in place of bundle demo.v1.0.0 \
                       version 1.0.0";
        let upgrade = ExtensionEvent::normal(UPGRADE_STARTED, upgrade.to_owned());
        assert_eq!(started(&second, Some(&first), Some(&first), false), [upgrade]);
        let again = Revision { name: "demo-2".to_owned(), ..first.clone() };
        let changes = "revision demo-2 applies changes of bundle demo.v1.0.0 version 1.0.0".to_owned();
        let changes = ExtensionEvent::normal(UPGRADE_STARTED, changes);
        assert_eq!(started(&again, Some(&first), Some(&first), true), std::slice::from_ref(&changes));
        let archived = revision(1, "Archived");
        assert_eq!(started(&again, Some(&first), Some(&archived), false), std::slice::from_ref(&changes));
        let changed = "bundle demo.v1.0.0 version 1.0.0 from image r.example/demo:v1 differs from the content of \
                       revision demo-1, although the extension is unchanged";
        let changed = ExtensionEvent::warning(BUNDLE_CONTENT_CHANGED, changed.to_owned());
        let both = started(&again, Some(&first), Some(&first), false);
        assert_eq!(both, [changes.clone(), changed]);
        let republished = Revision { image: "r.example/demo@sha256:2".to_owned(), ..again };
        let changed = "bundle demo.v1.0.0 version 1.0.0 from image r.example/demo@sha256:2 differs from the content of \
                       revision demo-1 from image r.example/demo:v1, although the extension is unchanged";
        let changed = ExtensionEvent::warning(BUNDLE_CONTENT_CHANGED, changed.to_owned());
        assert_eq!(started(&republished, Some(&first), Some(&first), false), [changes.clone(), changed]);
        assert_eq!(started(&republished, Some(&first), Some(&first), true), [changes]);
    }

    /// Status with this installed revision, this `Progressing` condition, and these revisions rolling out.
    fn status(
        installed: Option<&str>,
        progressing: (Status, &str),
        rolling: &[&str],
    ) -> ClusterExtensionStatus {
        let mut status = ClusterExtensionStatus::default();
        let mut set = |type_: &str, value: Status, reason: &str| {
            let now = Timestamp::UNIX_EPOCH;
            conditions::set(&mut status.conditions, type_, value, reason, "m", None, now);
        };
        set(types::INSTALLED, installed.is_some().into(), "R");
        set(types::PROGRESSING, progressing.0, progressing.1);
        let conditions = status.conditions.clone();
        if let Some(name) = installed {
            let bundle =
                BundleMetadata { name: "demo.v1".to_owned(), version: "1.0.0".to_owned(), release: None };
            status.install = Some(InstallStatus { bundle });
            status.active_revisions.push(RevisionStatus { name: name.to_owned(), conditions: Vec::new() });
        }
        for &name in rolling {
            let conditions = conditions.clone();
            status.active_revisions.push(RevisionStatus { name: name.to_owned(), conditions });
        }
        status
    }

    fn describe(old: Option<&ClusterExtensionStatus>, next: &ClusterExtensionStatus) -> Vec<String> {
        reached(old, next).into_iter().map(|notice| format!("{} {}", notice.reason, notice.note)).collect()
    }

    // docs/design/approvals.md#automatic-rollback
    #[test]
    fn restored_revision_is_published_as_rollback() {
        let (first, failed) = (revision(1, "Active"), revision(2, "Active"));
        let refusal =
            Some(RolledBackContent { revision: "demo-2".to_owned(), ..RolledBackContent::default() });
        let restored = Revision { name: "demo-3".to_owned(), refusal, ..first.clone() };
        let note = "revision demo-3 restores bundle demo.v1.0.0 version 1.0.0 in place of bundle demo.v2.0.0 version 2.0.0, \
                    because revision demo-2 exceeded its progress deadline";
        let expected = ExtensionEvent::warning(ROLLED_BACK, note.to_owned());
        assert_eq!(started(&restored, Some(&first), Some(&failed), false), [expected]);
    }

    // docs/design/additions.md#events: only on transitions, not again after a restart
    #[test]
    fn rollout_transition_is_published_once() {
        let rolling = (Status::True, reasons::ROLLING_OUT);
        let done = (Status::True, reasons::SUCCEEDED);
        let late = (Status::False, reasons::PROGRESS_DEADLINE_EXCEEDED);
        let first = status(None, rolling, &["demo-1"]);
        let installed = status(Some("demo-1"), done, &[]);
        let upgrading = status(Some("demo-1"), rolling, &["demo-2"]);
        let stuck = status(Some("demo-1"), late, &["demo-2"]);
        let upgraded = status(Some("demo-2"), done, &[]);
        let by = |name: &str| {
            vec![format!("RolloutSucceeded bundle demo.v1 version 1.0.0 is installed by revision {name}")]
        };
        let stalled = vec!["RolloutStalled ProgressDeadlineExceeded: m".to_owned()];
        let rows = [
            (None, &first, vec![]),
            (Some(&first), &installed, by("demo-1")),
            (Some(&installed), &installed, vec![]),
            // Repair of drift.
            (Some(&installed), &status(Some("demo-1"), rolling, &[]), vec![]),
            (Some(&status(Some("demo-1"), rolling, &[])), &installed, vec![]),
            (Some(&installed), &upgrading, vec![]),
            (Some(&upgrading), &stuck, stalled.clone()),
            (Some(&stuck), &stuck, vec![]),
            (Some(&stuck), &upgraded, by("demo-2")),
            (Some(&upgrading), &upgraded, by("demo-2")),
            (None, &status(None, late, &["demo-1"]), stalled),
        ];
        for (old, next, expected) in rows {
            assert_eq!(describe(old, next), expected, "{old:?} {next:?}");
        }
        assert_eq!(resolved(&stuck), [PAUSED]);
        assert_eq!(resolved(&installed), [ROLLOUT_STALLED, PAUSED]);
    }

    // docs/design/additions.md#pause
    #[test]
    fn pause_and_resume_are_published_once() {
        let plain = status(Some("demo-1"), (Status::True, "R"), &[]);
        let mut paused = plain.clone();
        let now = Timestamp::UNIX_EPOCH;
        conditions::set(&mut paused.conditions, types::PAUSED, Status::True, "Paused", "", None, now);
        assert_eq!(describe(Some(&plain), &paused), ["Paused nothing is applied or upgraded"]);
        assert_eq!(describe(Some(&paused), &paused), [""; 0]);
        assert_eq!(describe(Some(&paused), &plain), ["Resumed changes are applied again"]);
        assert_eq!(resolved(&paused), [ROLLOUT_STALLED, RESUMED]);
    }
}
