//! Copies settings of an extension to its revisions for the revision controller: the annotations `paused`,
//! `uninstall-policy` and `replace-immutable` (docs/design/additions.md#uninstall-policy, docs/design/additions.md#pause,
//! docs/design/apply.md#immutable-fields), and the service account
//! (docs/design/additions.md#service-account-impersonation).

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use olm_api::{ClusterObjectSet, annotations, finalizers};
use olm_controller_core::install_error::InstallError;
use olm_controller_core::membership::is_of_former;
use olm_request::ExtensionRules;
use olm_runtime::cluster::within_deadline;
use serde_json::{Map, Value, json};

/// Copied annotations.
pub(super) const MIRRORED: [&str; 3] =
    [annotations::EXT_PAUSED, annotations::EXT_UNINSTALL_POLICY, annotations::EXT_REPLACE_IMMUTABLE];

/// Copies the rules to the revisions, and the service account to revisions that are being removed. `uid` is that of
/// the extension. Returns `false` if a revision changed since it was read.
///
/// # Errors
/// The API server rejects a patch.
pub(super) async fn mirror(
    api: &Api<ClusterObjectSet>,
    revisions: impl Iterator<Item = &ClusterObjectSet>,
    rules: &ExtensionRules,
    uid: Option<&str>,
    account: Option<&str>,
) -> Result<bool, InstallError> {
    for revision in revisions {
        let Some(patch) = patch(revision, rules, uid, account) else { continue };
        let name = revision.name_any();
        match within_deadline(api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(kube::Error::Api(status)) if status.is_conflict() => return Ok(false),
            Err(error) => {
                let context = format!("passing annotations on to revision {name:?}");
                return Err(InstallError::api(&error).context(context));
            }
        }
    }
    Ok(true)
}

/// Patch for a revision. `None` if nothing changes.
///
/// Only active revisions are paused, or replace objects. The policy is also copied to revisions until their teardown ends, because
/// the policy may block it. A new service account is copied only to the latter. The newest revision gets it after
/// the check of its rights. Revisions of a former extension keep its policy.
fn patch(
    revision: &ClusterObjectSet,
    rules: &ExtensionRules,
    uid: Option<&str>,
    account: Option<&str>,
) -> Option<Value> {
    let is_active = !revision.is_archived();
    let is_leaving = revision.finalizers().iter().any(|name| name == finalizers::TEARDOWN);
    let present = |key: &str| revision.annotations().get(key).map(String::as_str);
    let paused = (rules.paused && is_active).then_some("true");
    let policy = match is_of_former(revision, uid) {
        true => present(annotations::EXT_UNINSTALL_POLICY),
        false => rules.uninstall_policy.filter(|_| is_active || is_leaving).map(|policy| policy.as_str()),
    };
    let replaces = (rules.replaces_immutable && is_active).then_some("Allow");
    let has_to_go = !is_active || revision.metadata.deletion_timestamp.is_some();
    let account = if is_leaving && has_to_go { account } else { present(annotations::EXT_SERVICE_ACCOUNT) };
    let mut changes = Map::new();
    let keys = MIRRORED.into_iter().chain([annotations::EXT_SERVICE_ACCOUNT]);
    for (key, desired) in keys.zip([paused, policy, replaces, account]) {
        if present(key) != desired {
            changes.insert(key.to_owned(), desired.map_or(Value::Null, Value::from));
        }
    }
    let (uid, version) = (&revision.metadata.uid, &revision.metadata.resource_version);
    let metadata = || json!({"uid": uid, "resourceVersion": version, "annotations": changes});
    (!changes.is_empty()).then(|| json!({ "metadata": metadata() }))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use olm_request::UninstallPolicy;
    use olm_revision::generate::extension_owner;

    use super::super::revisions::tests::set;
    use super::*;

    const PAUSED: &str = "ext.olm.operatorframework.io/paused";
    const REPLACE: &str = "ext.olm.operatorframework.io/replace-immutable";
    const POLICY: &str = "ext.olm.operatorframework.io/uninstall-policy";

    // docs/design/additions.md#annotations, docs/design/additions.md#uninstall-policy, docs/design/additions.md#pause
    #[test]
    fn mirrored_annotations_follow_the_extension() {
        let rules = |paused, uninstall_policy| ExtensionRules {
            paused,
            uninstall_policy,
            ..ExtensionRules::default()
        };
        let with = |state, annotations: Value, finalizers: &[&str]| {
            let mut set = (*set(1, state, true)).clone();
            set.metadata.annotations = serde_json::from_value(annotations).unwrap();
            set.metadata.finalizers = Some(finalizers.iter().map(|&one| one.to_owned()).collect());
            set
        };
        let patched = |annotations: Value| json!({"metadata": {"uid": null, "resourceVersion": null, "annotations": annotations}});
        let teardown = ["olm.operatorframework.io/teardown"];
        let keep = Some(UninstallPolicy::KeepCrds);
        let replacing = ExtensionRules { replaces_immutable: true, ..ExtensionRules::default() };
        let rows = [
            (with("Active", json!({}), &[]), rules(false, None), None),
            (with("Active", json!({"a": "b"}), &[]), rules(true, None), Some(json!({PAUSED: "true"}))),
            (with("Active", json!({PAUSED: "true"}), &[]), rules(true, None), None),
            (with("Active", json!({PAUSED: "true"}), &[]), rules(false, None), Some(json!({PAUSED: null}))),
            (with("Archived", json!({PAUSED: "true"}), &[]), rules(true, None), Some(json!({PAUSED: null}))),
            (with("Active", json!({}), &[]), rules(false, keep), Some(json!({POLICY: "KeepCRDs"}))),
            (
                with("Active", json!({POLICY: "Delete"}), &[]),
                rules(true, keep),
                Some(json!({PAUSED: "true", POLICY: "KeepCRDs"})),
            ),
            (with("Archived", json!({}), &teardown), rules(true, keep), Some(json!({POLICY: "KeepCRDs"}))),
            (with("Archived", json!({}), &[]), rules(true, keep), None),
            (with("Active", json!({POLICY: "Delete"}), &[]), rules(false, None), Some(json!({POLICY: null}))),
            (with("Active", json!({}), &[]), replacing.clone(), Some(json!({REPLACE: "Allow"}))),
            (with("Archived", json!({REPLACE: "Allow"}), &[]), replacing, Some(json!({REPLACE: null}))),
        ];
        for (set, rules, expected) in rows {
            let expected = expected.map(patched);
            assert_eq!(patch(&set, &rules, None, None), expected, "{:?} {rules:?}", set.metadata);
        }
        // A revision that is deleted with a former extension follows that one's policy.
        let mut former = with("Active", json!({POLICY: "KeepCRDs"}), &teardown);
        former.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        former.metadata.owner_references = Some(vec![extension_owner("demo", "old")]);
        let delete = rules(false, Some(UninstallPolicy::Delete));
        let own = Some(patched(json!({POLICY: "Delete"})));
        for (uid, expected) in [("new", None), ("old", own)] {
            assert_eq!(patch(&former, &delete, Some(uid), None), expected, "{uid}");
        }
        let key = "ext.olm.operatorframework.io/service-account";
        let none = ExtensionRules::default();
        let leaving = with("Archived", json!({key: "ns/a"}), &teardown);
        assert_eq!(patch(&leaving, &none, None, Some("ns/a")), None);
        let mut deleted = with("Active", json!({key: "ns/a"}), &teardown);
        deleted.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        for (account, expected) in [(Some("ns/b"), json!("ns/b")), (None, Value::Null)] {
            let expected = patched(json!({ key: expected }));
            assert_eq!(patch(&leaving, &none, None, account), Some(expected.clone()));
            assert_eq!(patch(&deleted, &none, None, account), Some(expected));
            for (state, finalizers) in [("Archived", &[][..]), ("Active", &teardown)] {
                assert_eq!(patch(&with(state, json!({key: "ns/a"}), finalizers), &none, None, account), None);
            }
        }
    }
}
