//! Change that a plan makes to an extension, as far as approvals depend on it.

use olm_api::{ClusterObjectSet, annotations};
use olm_request::{DraftChange, operator_condition};
use olm_version::VersionRelease;
use serde_json::Value;

use crate::permissions::{self, Permission};

/// Bundle that would become the next revision.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Version.
    pub version: &'a str,
    /// Release, if explicitly known.
    pub release: Option<&'a str>,
    /// Digest of its image.
    pub image: &'a str,
    /// Its objects.
    pub objects: &'a [Value],
    /// Digest of the plan.
    pub plan: &'a str,
}

/// Newest revision, unless it is archived.
pub fn newest_active(revisions: &[ClusterObjectSet]) -> Option<&ClusterObjectSet> {
    revisions.iter().max_by_key(|revision| revision.number()).filter(|revision| !revision.is_archived())
}

/// Change from the newest active one of all `revisions` to `target`. `content` are the objects of the former, if they
/// can be read: else the change counts as an increase of permissions. An image without digest counts as changed.
pub fn change(revisions: &[ClusterObjectSet], content: Option<&[Value]>, target: &Target<'_>) -> DraftChange {
    let digest = target.plan.to_owned();
    let Some(newest) = newest_active(revisions) else {
        return DraftChange { digest, is_first: true, changes_bundle: true, ..DraftChange::default() };
    };
    let has_image = |revision: &ClusterObjectSet| {
        let image = revision.annotation(annotations::BUNDLE_REFERENCE).unwrap_or_default();
        image.rsplit_once('@').is_some_and(|(_, digest)| digest == target.image)
    };
    let had_image =
        revisions.iter().any(|revision| revision.number() < newest.number() && has_image(revision));
    let gained = content.map(|content| permissions::changes(content, target.objects));
    let own = operator_condition(target.objects);
    let is_gain = |gained: &Permission| !own.as_ref().is_some_and(|own| gained.is_about(own));
    DraftChange {
        digest,
        is_first: false,
        changes_bundle: !has_image(newest),
        is_rollback: had_image && is_lower(target, newest),
        // Too many permissions to compare count as gained.
        gains_permissions: !matches!(gained, Some(Ok(all))
            if !all.iter().flat_map(|change| &change.gained).any(is_gain)),
        blocker: None,
    }
}

/// Reports whether the target has a lower version than the revision.
fn is_lower(target: &Target<'_>, revision: &ClusterObjectSet) -> bool {
    let version = revision.annotation(annotations::BUNDLE_VERSION).unwrap_or_default();
    let old = VersionRelease::parse(version, revision.annotation(annotations::BUNDLE_RELEASE));
    let new = VersionRelease::parse(target.version, target.release);
    matches!((new, old), (Ok(new), Ok(old)) if new < old)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn binding(user: &str) -> Value {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": user}],
            "roleRef": {"kind": "ClusterRole", "name": "view"}})
    }

    fn revision(number: i64, state: &str, version: &str, image: &str) -> ClusterObjectSet {
        serde_json::from_value(json!({"metadata": {"name": format!("demo-{number}"), "annotations": {
                annotations::BUNDLE_VERSION: version, annotations::BUNDLE_REFERENCE: image}},
            "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "Prevent"}}))
        .unwrap()
    }

    #[test]
    fn change_compares_digest_version_and_permissions() {
        let objects = [binding("a")];
        let (one, two) = ("r.io/demo@sha256:1", "r.io/demo@sha256:2");
        let only = [revision(2, "Active", "2.0.0", two)];
        let with_earlier = [revision(2, "Active", "2.0.0", two), revision(1, "Archived", "1.0.0", one)];
        let moved = [revision(2, "Active", "2.0.0", "other.io/demo@sha256:2")];
        let tagged = [revision(2, "Active", "2.0.0", "r.io/demo:v2")];
        let archived = [revision(1, "Archived", "1.0.0", one)];
        let of =
            |revisions: &[ClusterObjectSet], version, image, objects: &[Value], content: Option<&[Value]>| {
                let target = Target { version, release: None, image, objects, plan: "p" };
                let change = change(revisions, content, &target);
                assert_eq!(change.digest, "p");
                [change.is_first, change.changes_bundle, change.is_rollback, change.gains_permissions]
            };
        let known = Some(&objects[..]);
        for (revisions, version, image, expected) in [
            (&only[..], "2.0.0", "sha256:2", [false, false, false, false]),
            (&only, "3.0.0", "sha256:3", [false, true, false, false]),
            // The same digest in another repository is the same bundle.
            (&moved, "2.0.0", "sha256:2", [false, false, false, false]),
            (&tagged, "2.0.0", "sha256:2", [false, true, false, false]),
            (&only, "1.0.0", "sha256:1", [false, true, false, false]),
            (&with_earlier, "1.0.0", "sha256:1", [false, true, true, false]),
            (&with_earlier, "3.0.0", "sha256:1", [false, true, false, false]),
            // Nothing is installed if all revisions are archived.
            (&archived, "1.0.0", "sha256:1", [true, true, false, false]),
            (&[], "1.0.0", "sha256:1", [true, true, false, false]),
        ] {
            assert_eq!(of(revisions, version, image, &objects, known), expected, "{version} {image}");
        }
        let more = [binding("a"), binding("b")];
        assert!(of(&only, "2.0.0", "sha256:2", &more[1..], known)[3]);
        assert!(!of(&only, "2.0.0", "sha256:2", &[], known)[3]);
        assert!(of(&only, "2.0.0", "sha256:2", &objects, None)[3]);
    }

    // docs/design/approvals.md#operator-conditions
    #[test]
    fn permission_on_own_operator_condition_is_no_gain() {
        let object = |api_version: &str, kind: &str, name: &str, mut rest: Value| {
            rest["apiVersion"] = json!(api_version);
            rest["kind"] = json!(kind);
            rest["metadata"] = json!({"name": name, "namespace": "ns"});
            rest
        };
        let rbac = "rbac.authorization.k8s.io/v1";
        let of = |condition: &str, permitted: &str, resource: &str| {
            let rule = json!({"apiGroups": ["operators.coreos.com"], "resources": [resource, format!("{resource}/status")],
                "resourceNames": [permitted], "verbs": ["get", "patch", "update"]});
            let binding = json!({"subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "ns"}],
                "roleRef": {"kind": "Role", "name": "r"}});
            [
                object("operators.coreos.com/v2", "OperatorCondition", condition, json!({})),
                object(rbac, "Role", "r", json!({"rules": [rule]})),
                object(rbac, "RoleBinding", "r", binding),
            ]
        };
        let before = of("demo.v1", "demo.v1", "operatorconditions");
        let renamed = permissions::changes(&before, &of("demo.v2", "demo.v2", "operatorconditions"));
        assert_eq!(renamed, Ok(Vec::new()));
        let gains = |after: &[Value]| {
            let target =
                Target { version: "2.0.0", release: None, image: "sha256:2", objects: after, plan: "p" };
            let set = revision(1, "Active", "1.0.0", "r.io/demo@sha256:1");
            change(&[set], Some(&before), &target).gains_permissions
        };
        assert!(!gains(&of("demo.v2", "demo.v2", "operatorconditions")));
        assert!(gains(&of("demo.v2", "other.v2", "operatorconditions")));
        assert!(gains(&of("demo.v2", "demo.v2", "subscriptions")));
    }
}
