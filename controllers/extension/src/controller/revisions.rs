//! State of an extension in its revisions (docs/design/apply.md#reconcile-steps). Pure.

use std::sync::Arc;

use jiff::Timestamp;
use olm_api::cluster_extension::{BundleMetadata, RevisionStatus};
use olm_api::conditions::{self, PULLING, reasons, types};
use olm_api::{ClusterExtension, ClusterObjectSet, Condition, annotations};
use olm_controller_core::membership::is_of_former;
use olm_request::RolledBackContent;
use olm_revision::generate::{BundleIdentity, selected_namespaces};
use serde_json::Value;

/// Values of a ClusterObjectSet that the extension controller needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Revision {
    pub name: String,
    /// `spec.revision`.
    pub number: i64,
    /// Bundle in its annotations.
    pub bundle: BundleMetadata,
    pub package: String,
    pub image: String,
    /// Recorded properties of the catalog entry.
    pub catalog_properties: Option<String>,
    /// Namespaces that the extension selected by label.
    pub namespaces: Option<Vec<String>>,
    /// Creation time.
    pub created: Timestamp,
    /// `true` unless archived.
    pub is_active: bool,
    /// Content that was rolled back, if the revision restores its predecessor.
    pub refusal: Option<RolledBackContent>,
    pub conditions: Vec<Condition>,
}

impl Revision {
    pub(crate) fn of(revision: &ClusterObjectSet) -> Self {
        let annotation = |key: &str| revision.annotation(key).map(str::to_owned);
        Self {
            name: revision.metadata.name.clone().unwrap_or_default(),
            number: revision.number(),
            bundle: revision.bundle(),
            package: annotation(annotations::PACKAGE_NAME).unwrap_or_default(),
            image: annotation(annotations::BUNDLE_REFERENCE).unwrap_or_default(),
            catalog_properties: annotation(annotations::EXT_CATALOG_PROPERTIES),
            namespaces: selected_namespaces(revision),
            created: revision
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            is_active: !revision.is_archived(),
            refusal: RolledBackContent::of(revision),
            conditions: revision.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default(),
        }
    }

    /// Condition of this type.
    pub(crate) fn condition(&self, type_: &str) -> Option<&Condition> {
        conditions::find(&self.conditions, type_)
    }
}

/// Inputs of a revision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RevisionInputs {
    pub uid: Option<String>,
    /// `<namespace>/<name>` of the service account that applies the objects.
    pub account: Option<String>,
    pub namespace: String,
    pub config: Option<Value>,
    pub deadline: Option<i32>,
    /// `true` if the bundle is rendered with an OperatorCondition.
    pub operator_condition: bool,
    /// `true` if the bundle is rendered with roles for the users of its APIs.
    pub aggregate_api_roles: bool,
    /// Namespaces that the extension selects by label.
    pub namespaces: Option<Vec<String>>,
    pub bundle: BundleIdentity,
}

impl RevisionInputs {
    /// Namespaces in `watchNamespaces` of the configuration.
    pub(super) fn watched(&self) -> Vec<&str> {
        let listed = self.config.as_ref().and_then(|config| config.get("watchNamespaces"));
        listed.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

/// Active revisions of an extension.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RevisionStates {
    /// Highest revision that has rolled out.
    pub installed: Option<Revision>,
    /// Higher revisions that have not rolled out, ascending.
    pub rolling_out: Vec<Revision>,
    /// `true` if a user archived or deleted the newest revision.
    pub is_newest_removed: bool,
}

impl RevisionStates {
    /// Active revision with the highest number.
    pub(crate) fn newest_active(&self) -> Option<&Revision> {
        self.rolling_out.last().or(self.installed.as_ref())
    }

    /// Generation of the spec that a revision was last made or kept for, according to the status of the extension.
    /// `None` if it is unknown.
    pub(crate) fn applied_generation(&self, extension: &ClusterExtension) -> Option<i64> {
        let reported = extension.status.as_ref().map_or(&[][..], |status| &status.active_revisions);
        match extension.condition(types::PROGRESSING) {
            Some(shown) => {
                shown.observed_generation.filter(|_| self.is_copied_from_revision(shown, reported))
            }
            // Without an edit, the rollout of a former extension is adopted.
            None if self.newest_active().is_some() => Some(1),
            None => extension.metadata.generation,
        }
    }

    /// Reports whether this `Progressing` condition of an extension is copied from a revision. If not, it describes
    /// an attempt that made no revision. `reported` is `status.activeRevisions` of the extension: the conditions of
    /// the revisions may have changed since.
    fn is_copied_from_revision(&self, progressing: &Condition, reported: &[RevisionStatus]) -> bool {
        let Condition { status, reason, message, .. } = progressing;
        // Only revisions have these reasons.
        let of_revisions = [reasons::SUCCEEDED, reasons::ROLLING_OUT, reasons::PROGRESS_DEADLINE_EXCEEDED];
        let now = self.installed.iter().chain(&self.rolling_out).map(|revision| &revision.conditions);
        let all = now.chain(reported.iter().map(|revision| &revision.conditions));
        let mut copied = all.filter_map(|conditions| conditions::find(conditions, types::PROGRESSING));
        of_revisions.contains(&reason.as_str()) && !message.starts_with(PULLING)
            || copied.any(|one| {
                (&one.status, &one.reason) == (status, reason) && message.starts_with(&one.message)
            })
    }
}

/// Reports whether the target has another name or version than the bundle.
pub(super) fn is_other(bundle: &BundleMetadata, target: &BundleIdentity) -> bool {
    (&bundle.name, &bundle.version) != (&target.name, &target.version)
}

/// Derives the states of an extension from all revisions with its name, in any order. Those that are deleted with a
/// former extension are not installed.
pub(crate) fn states_of(extension: &ClusterExtension, revisions: &[Arc<ClusterObjectSet>]) -> RevisionStates {
    let uid = extension.metadata.uid.as_deref();
    let ours: Vec<_> = revisions.iter().filter(|revision| !is_of_former(revision, uid)).cloned().collect();
    states(&ours)
}

/// Derives the states from all revisions of one extension, in any order.
pub(super) fn states(revisions: &[Arc<ClusterObjectSet>]) -> RevisionStates {
    let mut active: Vec<&Arc<ClusterObjectSet>> =
        revisions.iter().filter(|revision| !revision.is_archived()).collect();
    active.sort_by_key(|revision| revision.number());
    let newest = revisions.iter().max_by_key(|revision| revision.number());
    let is_newest_removed = newest.is_some_and(|newest| !newest.is_active());
    let mut states = RevisionStates { is_newest_removed, ..RevisionStates::default() };
    for revision in active.into_iter().map(|revision| Revision::of(revision)) {
        if conditions::is_true(&revision.conditions, types::SUCCEEDED) {
            states.installed = Some(revision);
            // Earlier revisions are superseded, though they may not be archived yet.
            states.rolling_out.clear();
        } else {
            states.rolling_out.push(revision);
        }
    }
    states
}

#[cfg(test)]
pub(super) mod tests {
    use olm_api::conditions::Status;
    use serde_json::json;

    use super::*;

    /// Revision of the extension `demo`.
    pub(crate) fn set(number: i64, state: &str, succeeded: bool) -> Arc<ClusterObjectSet> {
        let mut set: ClusterObjectSet = serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {"name": format!("demo-{number}"), "annotations": {
                "olm.operatorframework.io/bundle-name": format!("demo.v{number}.0.0"),
                "olm.operatorframework.io/bundle-version": format!("{number}.0.0"),
                "olm.operatorframework.io/package-name": "demo",
                "olm.operatorframework.io/bundle-reference": format!("r.example/demo:v{number}"),
            }},
            "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "Prevent"},
            "status": {},
        }))
        .unwrap();
        if succeeded {
            let conditions = &mut set.status.as_mut().unwrap().conditions;
            conditions::set(
                conditions,
                types::SUCCEEDED,
                Status::True,
                "Succeeded",
                "",
                None,
                jiff::Timestamp::UNIX_EPOCH,
            );
        }
        Arc::new(set)
    }

    #[test]
    fn highest_succeeded_revision_is_installed() {
        let rows = [
            (vec![], None, vec![]),
            (vec![set(1, "Active", false)], None, vec![1]),
            (vec![set(2, "Active", true), set(1, "Active", true)], Some(2), vec![]),
            (
                vec![set(3, "Active", false), set(2, "Active", false), set(1, "Active", true)],
                Some(1),
                vec![2, 3],
            ),
            (vec![set(1, "Archived", true), set(2, "Active", false)], None, vec![2]),
            (vec![set(1, "Active", true), set(2, "Archived", false)], Some(1), vec![]),
            // A stuck revision is not a target after its successor has rolled out.
            (vec![set(1, "Active", true), set(2, "Active", false), set(3, "Active", true)], Some(3), vec![]),
        ];
        for (sets, installed, rolling_out) in rows {
            let states = states(&sets);
            assert_eq!(states.installed.map(|revision| revision.number), installed);
            assert_eq!(
                states.rolling_out.iter().map(|revision| revision.number).collect::<Vec<_>>(),
                rolling_out
            );
        }
    }

    #[test]
    fn progressing_condition_copied_from_revision_is_recognized() {
        let condition = |status: Status, reason: &str, message: &str| {
            let mut all = Vec::new();
            let now = jiff::Timestamp::UNIX_EPOCH;
            conditions::set(&mut all, types::PROGRESSING, status, reason, message, None, now);
            all.remove(0)
        };
        let mut rolling = set(2, "Active", false);
        let collides = condition(Status::True, "Retrying", "collision");
        Arc::make_mut(&mut rolling).status.as_mut().unwrap().conditions.push(collides);
        let states = states(&[set(1, "Active", true), rolling]);
        let reported = [RevisionStatus {
            name: "demo-2".to_owned(),
            conditions: vec![condition(Status::True, "Retrying", "earlier collision")],
        }];
        let rows = [
            (Status::True, "Succeeded", "Revision 1.0.0 has rolled out.", true),
            (Status::True, "RollingOut", "x", true),
            (Status::False, "ProgressDeadlineExceeded", "x", true),
            (Status::True, "RollingOut", "pulling r.example/demo:v2", false),
            (Status::True, "Retrying", "collision", true),
            (Status::True, "Retrying", "collision; skipped unavailable catalogs: [x]", true),
            (Status::True, "Retrying", "earlier collision", true),
            (Status::True, "Retrying", "error for resolved bundle", false),
            (Status::False, "Blocked", "collision", false),
            (Status::False, "InvalidConfiguration", "x", false),
        ];
        for (status, reason, message, expected) in rows {
            assert_eq!(
                states.is_copied_from_revision(&condition(status, reason, message), &reported),
                expected,
                "{reason} {message}"
            );
        }
    }

    #[test]
    fn extension_without_status_is_edited_if_its_spec_was_changed_after_its_creation() {
        let states = states(&[set(1, "Active", false)]);
        let applied = |conditions: serde_json::Value| {
            let extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
                "metadata": {"name": "demo", "generation": 3}, "status": {"conditions": conditions}});
            states.applied_generation(&serde_json::from_value(extension).unwrap())
        };
        let progressing = |reason: &str| {
            json!([{"type": "Progressing", "status": "True", "reason": reason, "message": "x", "observedGeneration": 2,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        assert_eq!(applied(json!([])), Some(1));
        assert_eq!(applied(progressing("RollingOut")), Some(2));
        assert_eq!(applied(progressing("Retrying")), None);
    }

    #[test]
    fn release_is_read_only_from_its_annotation() {
        let mut one = set(1, "Active", true);
        assert_eq!(states(std::slice::from_ref(&one)).installed.unwrap().bundle.release, None);
        let annotations = Arc::make_mut(&mut one).metadata.annotations.as_mut().unwrap();
        annotations.insert("olm.operatorframework.io/bundle-release".into(), String::new());
        assert_eq!(states(&[one]).installed.unwrap().bundle.release.as_deref(), Some(""));
    }
}
