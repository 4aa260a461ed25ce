//! Completion of a change to an extension, judged by its conditions and its revisions
//! (docs/design/apply.md#mirrored-conditions, docs/design/apply.md#extension-conditions). Pure.
//!
//! The controller mirrors conditions of revisions onto the extension, including those of a revision that the change
//! replaces. So the extension alone does not show whether a rollout or failure belongs to the new revision.

use kube::ResourceExt;
use olm_api::conditions::{reasons, types};
use olm_api::{ClusterExtension, ClusterObjectSet, Condition, annotations};

use olm_cli_core::change::Completion;
use olm_request::{HeldMessage, RolledBackContent};

use super::ExpectedState;
use crate::status::health::is_paused;

/// The extension, or why no change of it can complete.
fn existing<'e>(
    target: &ExpectedState,
    extension: Option<&'e ClusterExtension>,
) -> Result<&'e ClusterExtension, String> {
    let name = &target.name;
    let extension = extension.ok_or_else(|| format!("{name} has been deleted"))?;
    if target.uid.is_some() && extension.uid() != target.uid {
        return Err(format!("{name} has been deleted, and another ClusterExtension now has this name"));
    }
    if extension.metadata.deletion_timestamp.is_some() {
        return Err(format!("{name} is being deleted"));
    }
    if is_paused(extension) {
        let key = annotations::EXT_PAUSED;
        return Err(format!(
            "{name} is paused: operator-controller applies nothing while annotation {key} is set"
        ));
    }
    match held(target, extension) {
        Some(cause) => Err(format!("{name} is held: {cause}")),
        None => Ok(extension),
    }
}

/// Reason for which operator-controller does not take the expected bundle at present.
pub(crate) fn cannot_complete(target: &ExpectedState, extension: &ClusterExtension) -> Option<String> {
    existing(target, Some(extension)).err()
}

/// Message of the condition that holds the expected bundle (docs/design/approvals.md#approval). `None` if the plan has
/// been approved since.
fn held<'e>(target: &ExpectedState, extension: &'e ClusterExtension) -> Option<&'e str> {
    let condition = extension.condition(types::UPGRADE_AVAILABLE)?;
    let held = [
        reasons::APPROVAL_REQUIRED,
        reasons::OUTSIDE_WINDOW,
        reasons::OPERATOR_NOT_UPGRADEABLE,
        reasons::ROLLED_BACK,
    ];
    let is_held = held.contains(&condition.reason.as_str());
    let is_expected = |bundle: &String| condition.message.contains(&format!("bundle {bundle} "));
    let mut approved =
        extension.annotations().get(annotations::EXT_APPROVED).into_iter().chain(&target.approved);
    let is_approved = condition.reason == reasons::APPROVAL_REQUIRED
        && HeldMessage::parse(&condition.message)
            .is_some_and(|held| approved.any(|digest| digest == held.digest));
    (is_held && target.bundle.as_ref().is_some_and(is_expected) && !is_approved).then_some(&condition.message)
}

/// Judges the extension, `None` if it does not exist, and its revisions in any order. `blocker` is the object that
/// blocks the newest revision, if known. Otherwise the conditions of the revision are used.
pub(super) fn judge(
    target: &ExpectedState,
    extension: Option<&ClusterExtension>,
    revisions: &[ClusterObjectSet],
    blocker: Option<&str>,
) -> Completion {
    let name = &target.name;
    let extension = match existing(target, extension) {
        Ok(extension) => extension,
        Err(cause) => return Completion::Failed(cause),
    };
    let conditions = extension.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let fresh: Vec<&Condition> = conditions
        .iter()
        .filter(|condition| condition.observed_generation.is_some_and(|seen| seen >= target.generation))
        .collect();
    let find = |type_: &str| fresh.iter().find(|condition| condition.type_ == type_).copied();
    if fresh.is_empty() {
        return Completion::InProgress("operator-controller has not reconciled it yet".to_owned());
    }
    let mut active: Vec<&ClusterObjectSet> =
        revisions.iter().filter(|revision| revision.is_active()).collect();
    active.sort_by_key(|revision| revision.number());
    let newest = active.last().copied();
    let progressing = find(types::PROGRESSING);
    let installed = find(types::INSTALLED).filter(|condition| condition.status == "True");
    let install = extension.status.as_ref().and_then(|status| status.install.as_ref());
    if let (Some(_), Some(install), Some(progressing)) = (installed, install, progressing)
        && (progressing.status == "True" && progressing.reason == reasons::SUCCEEDED)
        && newest.is_none_or(|revision| {
            bundle(revision) == Some(&install.bundle.name) && has_image(target, revision)
        })
    {
        let (bundle, version) = (&install.bundle.name, &install.bundle.version);
        let message = format!("{name} is installed: {bundle}, version {version}");
        return match &target.bundle {
            Some(expected) if expected == bundle => Completion::Complete(message),
            Some(expected) if target.before.as_ref() == Some(bundle) => {
                Completion::InProgress(format!("{bundle} is still installed, waiting for {expected}"))
            }
            Some(expected) => {
                Completion::Complete(format!("{message}; the bundle chosen before the change was {expected}"))
            }
            None => Completion::Complete(message),
        };
    }
    match progressing {
        Some(progressing)
            if progressing.status == "False" && !is_from_other_bundle(target, progressing, revisions) =>
        {
            Completion::Failed(format!("{name}: {}: {}", progressing.reason, progressing.message))
        }
        progressing => Completion::InProgress(in_progress(target, progressing, newest, blocker)),
    }
}

/// Name of the revision's bundle.
fn bundle(revision: &ClusterObjectSet) -> Option<&String> {
    revision.annotations().get(annotations::BUNDLE_NAME)
}

/// Reports whether the revision has the expected image.
fn has_image(target: &ExpectedState, revision: &ClusterObjectSet) -> bool {
    target.image.is_none()
        || revision.annotations().get(annotations::BUNDLE_REFERENCE) == target.image.as_ref()
}

/// Reports whether the revision has the expected bundle.
fn is_expected(target: &ExpectedState, revision: &ClusterObjectSet) -> bool {
    bundle(revision) == target.bundle.as_ref() && has_image(target, revision)
}

/// Reports whether the condition is mirrored from a revision with another bundle than the expected one.
fn is_from_other_bundle(
    target: &ExpectedState,
    progressing: &Condition,
    revisions: &[ClusterObjectSet],
) -> bool {
    let mirrored = |revision: &&ClusterObjectSet| {
        revision.condition(types::PROGRESSING).is_some_and(|own| {
            (&own.status, &own.reason, &own.message)
                == (&progressing.status, &progressing.reason, &progressing.message)
        })
    };
    let mut sources = revisions.iter().filter(mirrored).peekable();
    let is_mirrored = sources.peek().is_some() && sources.all(|revision| !is_expected(target, revision));
    // The message names the rollback of another bundle, until something else is applied.
    let newest =
        revisions.iter().filter(|revision| revision.is_active()).max_by_key(|revision| revision.number());
    let is_rollback = newest
        .and_then(RolledBackContent::of)
        .is_some_and(|refusal| Some(&refusal.bundle) != target.bundle.as_ref());
    target.bundle.is_some() && (is_mirrored || is_rollback)
}

/// Current step: of the newest revision if it is rolling out, else of the extension.
fn in_progress(
    target: &ExpectedState,
    progressing: Option<&Condition>,
    newest: Option<&ClusterObjectSet>,
    blocker: Option<&str>,
) -> String {
    let is_rolling_out =
        |revision: &&ClusterObjectSet| !revision.is_true(types::SUCCEEDED) || is_expected(target, revision);
    let retrying = progressing.filter(|condition| condition.reason == reasons::RETRYING);
    let Some(revision) = newest.filter(is_rolling_out) else {
        return match (retrying, progressing) {
            (Some(retrying), _) => format!("retrying: {}", retrying.message),
            (None, Some(other)) if other.reason != reasons::SUCCEEDED => other.message.clone(),
            _ => "waiting for the new revision".to_owned(),
        };
    };
    let mut text = match revision.condition(types::PROGRESSING) {
        Some(progressing) if progressing.reason == reasons::RETRYING => {
            format!("retrying: {}", progressing.message)
        }
        Some(progressing) => progressing.message.clone(),
        None => "not started yet".to_owned(),
    };
    let failing = revision.condition(types::AVAILABLE).filter(|one| one.reason == reasons::PROBE_FAILURE);
    if let Some(blocker) = blocker.or_else(|| Some(failing?.message.as_str())) {
        text += &format!(" {blocker}");
    }
    format!("revision {}: {text}", revision.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Conditions from texts such as `Type=Status/Reason: message @generation`.
    fn conditions(texts: &[&str]) -> Value {
        let condition = |text: &&str| {
            let (head, rest) = text.split_once(": ").unwrap();
            let (type_, head) = head.split_once('=').unwrap();
            let (status, reason) = head.split_once('/').unwrap();
            let (message, generation) = rest.rsplit_once(" @").unwrap();
            json!({"type": type_, "status": status, "reason": reason, "message": message,
                "observedGeneration": generation.parse::<i64>().unwrap(), "lastTransitionTime": "2026-01-02T03:04:05Z"})
        };
        texts.iter().map(condition).collect()
    }

    fn extension(installed: Option<&str>, texts: &[&str]) -> ClusterExtension {
        let install = installed.map(|name| json!({"bundle": {"name": name, "version": "1.0.0"}}));
        let mut status = json!({"conditions": conditions(texts)});
        if let Some(install) = install {
            status["install"] = install;
        }
        serde_json::from_value(json!({"metadata": {"name": "pipe", "uid": "u"}, "status": status})).unwrap()
    }

    fn revision(number: i64, bundle: &str, state: &str, texts: &[&str]) -> ClusterObjectSet {
        serde_json::from_value(json!({
            "metadata": {"name": format!("pipe-{number}"), "annotations": {annotations::BUNDLE_NAME: bundle}},
            "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "Prevent"},
            "status": {"conditions": conditions(texts)},
        }))
        .unwrap()
    }

    fn target(before: Option<&str>) -> ExpectedState {
        ExpectedState {
            name: "pipe".to_owned(),
            uid: Some("u".to_owned()),
            generation: 2,
            bundle: Some("pipe.v2".to_owned()),
            image: None,
            before: before.map(str::to_owned),
            approved: None,
            ends_early: false,
        }
    }

    fn in_progress_with(text: &str) -> Completion {
        Completion::InProgress(text.to_owned())
    }

    const INSTALLED: &str = "Installed=True/Succeeded: Installed bundle x successfully @2";
    const SUCCEEDED: &str = "Progressing=True/Succeeded: Revision 1.0.0 has rolled out. @2";

    #[test]
    fn same_bundle_completes_when_revision_has_expected_image() {
        let of_image = |number, image: &str, texts: &[&str]| {
            let mut set = revision(number, "pipe.v2", "Active", texts);
            set.annotations_mut().insert(annotations::BUNDLE_REFERENCE.to_owned(), image.to_owned());
            set
        };
        let target = ExpectedState { image: Some("r.example/pipe@new".to_owned()), ..target(None) };
        let extension = extension(Some("pipe.v2"), &[INSTALLED, SUCCEEDED]);
        let old = || of_image(1, "r.example/pipe@old", &["Succeeded=True/Succeeded: done @1"]);
        let judged = |sets: &[ClusterObjectSet]| judge(&target, Some(&extension), sets, None);
        assert_eq!(judged(&[old()]), in_progress_with("waiting for the new revision"));
        let installed = Completion::Complete("pipe is installed: pipe.v2, version 1.0.0".to_owned());
        assert_eq!(judged(&[old(), of_image(2, "r.example/pipe@new", &[])]), installed);
    }

    #[test]
    fn upgrade_completes_when_revision_of_new_bundle_succeeds() {
        let old = || {
            revision(
                1,
                "pipe.v1",
                "Active",
                &["Succeeded=True/Succeeded: done @1", &SUCCEEDED.replace('2', "1")],
            )
        };
        let target = target(Some("pipe.v1"));
        // The controller has not observed the change.
        let stale =
            extension(Some("pipe.v1"), &[&INSTALLED.replace("@2", "@1"), &SUCCEEDED.replace("@2", "@1")]);
        let got = judge(&target, Some(&stale), &[old()], None);
        assert_eq!(got, in_progress_with("operator-controller has not reconciled it yet"));
        // It has observed the change, but the revision does not exist yet.
        let seen = extension(Some("pipe.v1"), &[INSTALLED, SUCCEEDED]);
        let got = judge(&target, Some(&seen), &[old()], None);
        assert_eq!(got, in_progress_with("pipe.v1 is still installed, waiting for pipe.v2"));
        // The revision exists, but the extension still mirrors the old one.
        let new = revision(2, "pipe.v2", "Active", &[]);
        let got = judge(&target, Some(&seen), &[new, old()], None);
        assert_eq!(got, in_progress_with("revision pipe-2: not started yet"));
        let rolling = [
            "Progressing=True/RollingOut: Revision 2.0.0 is rolling out. @1",
            "Available=False/ProbeFailure: Object Deployment.apps/v1 a/b: no replicas @1",
        ];
        let new = revision(2, "pipe.v2", "Active", &rolling);
        let got = judge(&target, Some(&seen), &[old(), new.clone()], None);
        let expected =
            "revision pipe-2: Revision 2.0.0 is rolling out. Object Deployment.apps/v1 a/b: no replicas";
        assert_eq!(got, in_progress_with(expected));
        let got = judge(&target, Some(&seen), &[old(), new], Some("phase deploy: Deployment a/b"));
        let expected = "revision pipe-2: Revision 2.0.0 is rolling out. phase deploy: Deployment a/b";
        assert_eq!(got, in_progress_with(expected));
        let new = revision(2, "pipe.v2", "Active", &[SUCCEEDED]);
        let done = extension(Some("pipe.v2"), &[INSTALLED, SUCCEEDED]);
        let got = judge(&target, Some(&done), &[revision(1, "pipe.v1", "Archived", &[]), new], None);
        assert_eq!(got, Completion::Complete("pipe is installed: pipe.v2, version 1.0.0".to_owned()));
    }

    #[test]
    fn change_completes_if_controller_chose_another_bundle() {
        let newer = extension(Some("pipe.v3"), &[INSTALLED, SUCCEEDED]);
        let got = judge(&target(None), Some(&newer), &[revision(1, "pipe.v3", "Active", &[])], None);
        let expected =
            "pipe is installed: pipe.v3, version 1.0.0; the bundle chosen before the change was pipe.v2";
        assert_eq!(got, Completion::Complete(expected.to_owned()));
    }

    #[test]
    fn failure_of_replaced_revision_does_not_fail_the_change() {
        let late =
            "Progressing=False/ProgressDeadlineExceeded: Revision has not rolled out for 10 minute(s). @2";
        let stuck = revision(1, "pipe.v1", "Active", &[late]);
        let got = judge(&target(None), Some(&extension(None, &[late])), std::slice::from_ref(&stuck), None);
        assert!(matches!(got, Completion::InProgress(_)), "{got:?}");
        let new = revision(2, "pipe.v2", "Active", &[late]);
        let got = judge(&target(None), Some(&extension(None, &[late])), &[stuck, new], None);
        let expected = "pipe: ProgressDeadlineExceeded: Revision has not rolled out for 10 minute(s).";
        assert_eq!(got, Completion::Failed(expected.to_owned()));
        let invalid = "Progressing=False/InvalidConfiguration: invalid ClusterExtension configuration: x @2";
        let got = judge(&target(None), Some(&extension(None, &[invalid])), &[], None);
        let expected = "pipe: InvalidConfiguration: invalid ClusterExtension configuration: x";
        assert_eq!(got, Completion::Failed(expected.to_owned()));
    }

    #[test]
    fn retrying_extension_is_in_progress() {
        let retrying = "Progressing=True/Retrying: no bundles found for package \"pipe\" @2";
        let got = judge(&target(None), Some(&extension(None, &[retrying])), &[], None);
        assert_eq!(got, in_progress_with("retrying: no bundles found for package \"pipe\""));
        let none = "Installed=False/Failed: No bundle installed @2";
        let got = judge(&target(None), Some(&extension(None, &[none])), &[], None);
        assert_eq!(got, in_progress_with("waiting for the new revision"));
    }

    #[test]
    fn held_plan_fails_the_wait_unless_approved_since() {
        let held = "UpgradeAvailable=True/ApprovalRequired: bundle pipe.v2 version 2 is available; plan sha256:a: x @1";
        let mut extension = extension(Some("pipe.v1"), &[held]);
        let got = judge(&target(None), Some(&extension), &[], None);
        let said = "pipe is held: bundle pipe.v2 version 2 is available; plan sha256:a: x";
        assert_eq!(got, Completion::Failed(said.to_owned()));
        let by_object = ExpectedState { approved: Some("sha256:a".to_owned()), ..target(None) };
        let got = judge(&by_object, Some(&extension), &[], None);
        assert!(matches!(got, Completion::InProgress(_)), "{got:?}");
        let approved = (annotations::EXT_APPROVED.to_owned(), "sha256:a".to_owned());
        extension.metadata.annotations = Some([approved].into());
        let got = judge(&target(None), Some(&extension), &[], None);
        assert!(matches!(got, Completion::InProgress(_)), "{got:?}");
    }

    #[test]
    fn rollback_of_another_bundle_does_not_fail_the_wait() {
        let late = "Progressing=False/ProgressDeadlineExceeded: Revision pipe-2 was rolled back @2";
        let extension = extension(Some("pipe.v1"), &[late]);
        let mut restored = revision(3, "pipe.v1", "Active", &["Progressing=True/Succeeded: done @1"]);
        let refused = |bundle: &str| json!({"digest": "sha256:a", "revision": "pipe-2", "bundle": bundle, "version": "1"});
        for (bundle, fails) in [("pipe.v2", true), ("pipe.v1.5", false)] {
            let annotation = (annotations::EXT_REFUSED.to_owned(), refused(bundle).to_string());
            restored.metadata.annotations.get_or_insert_default().extend([annotation]);
            let got =
                judge(&target(Some("pipe.v1")), Some(&extension), std::slice::from_ref(&restored), None);
            assert_eq!(matches!(got, Completion::Failed(_)), fails, "{bundle}: {got:?}");
        }
    }

    #[test]
    fn deleted_or_paused_extension_fails_the_wait() {
        let failed = |extension: Option<&ClusterExtension>| match judge(&target(None), extension, &[], None) {
            Completion::Failed(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(failed(None), "pipe has been deleted");
        let mut other = extension(None, &[]);
        other.metadata.uid = Some("v".to_owned());
        assert_eq!(
            failed(Some(&other)),
            "pipe has been deleted, and another ClusterExtension now has this name"
        );
        let mut paused = extension(None, &[]);
        paused.metadata.annotations = Some([(annotations::EXT_PAUSED.to_owned(), "true".to_owned())].into());
        assert_eq!(
            failed(Some(&paused)),
            "pipe is paused: operator-controller applies nothing while annotation ext.olm.operatorframework.io/paused is set"
        );
    }
}
