//! Reads the state that decides on the next step of a return to classic OLM.

use std::collections::BTreeSet;

use kube::ResourceExt;
use olm_api::conditions::reasons;
use olm_api::names::OBJECT_DATA_SECRET_TYPE;
use olm_api::{ClusterObjectSet, annotations, labels};
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::{ObjectAccess, ObjectId};
use olm_cli_lifecycle::status::observe::{revisions, stored};
use olm_revision::content::objects;
use olm_revision::record::recorded;
use serde_json::{Value, json};

use super::super::apply::csv_id;
use super::super::apply::observe::{classic, observe as observe_migration};
use super::super::backup::{self, Backup};
use super::super::detach::{FINALIZER, is_of_classic};
use super::restoration::{has_installed, is_restored, is_same_content, owning, released};
use super::state::Observed;

/// Kind of the revisions.
const REVISION: (&str, &str) = ("olm.operatorframework.io/v1", "ClusterObjectSet");

/// Objects of the backup that the rollback restores: not those of classic OLM, which restores its own.
pub(super) fn restorable(backup: &Backup) -> impl Iterator<Item = &Value> {
    backup.objects.iter().filter(|object| !is_of_classic(object))
}

/// Name of the extension.
pub(super) fn extension(backup: &Backup) -> &str {
    backup.plan.extension["metadata"]["name"].as_str().unwrap_or_default()
}

/// Observes the package.
///
/// # Errors
/// The API server does not answer, or denies access.
pub(super) async fn observe(access: &ObjectAccess<'_>, backup: &Backup) -> Result<Observed, CliError> {
    let plan = &backup.plan;
    let (migration, _) = observe_migration(access, plan, Some(backup)).await?;
    let name = extension(backup);
    let found = access.get(&ObjectId { uid: String::new(), ..ObjectId::of(&plan.extension) }).await?;
    let sets = revisions(access.cluster(), name, access.session()).await?;
    let revision = |set: &olm_api::ClusterObjectSet| ObjectId {
        api_version: REVISION.0.to_owned(),
        kind: REVISION.1.to_owned(),
        namespace: String::new(),
        name: set.name_any(),
        uid: set.uid().unwrap_or_default(),
    };
    let unpaused = sets.iter().filter(|set| set.is_active() && !is_paused(&json!(set.annotations())));
    let deleting_sets = sets.iter().filter(|set| set.metadata.deletion_timestamp.is_some());
    let is_deleting = found.as_ref().is_some_and(|found| !found["metadata"]["deletionTimestamp"].is_null());
    let mut deleting: Vec<String> = deleting_sets.map(|set| revision(set).to_string()).collect();
    deleting.extend(found.as_ref().filter(|_| is_deleting).map(|found| ObjectId::of(found).to_string()));
    // After an interrupted rollback, the installation may be unable to continue.
    let is_complete = backup::is_complete(access, plan).await?;
    let is_returned = backup::is_returned(access, plan).await?;
    let mut observed = Observed {
        is_returned,
        extension: found.as_ref().filter(|_| !is_deleting).map(ObjectId::of),
        version: found
            .as_ref()
            .and_then(|found| found.pointer("/status/install/bundle/version")?.as_str().map(str::to_owned)),
        is_paused: found.as_ref().is_some_and(|found| is_paused(&found["metadata"]["annotations"])),
        rollout: found.as_ref().filter(|_| is_complete).and_then(rollout),
        unpaused: unpaused.map(|set| set.name_any()).collect(),
        revisions: sets.iter().map(revision).collect(),
        deleting,
        content: content(access, name).await?,
        missing: Vec::new(),
        changed: Vec::new(),
        created: created(access, backup, &sets).await?,
        unowned: Vec::new(),
        certificates: certificates(access, backup).await?,
        has_finalizer: false,
        has_subscription_status: false,
        migration,
    };
    compare(access, backup, &mut observed).await?;
    Ok(observed)
}

/// Compares the objects of the backup with the live ones.
async fn compare(
    access: &ObjectAccess<'_>,
    backup: &Backup,
    observed: &mut Observed,
) -> Result<(), CliError> {
    let plan = &backup.plan;
    let csv = access.get(&csv_id(plan)).await?;
    let subscription = access.get(&classic(plan, "Subscription", &plan.subscription)).await?;
    let finalizers = csv.as_ref().and_then(|csv| csv["metadata"]["finalizers"].as_array());
    observed.has_finalizer = finalizers.is_some_and(|all| all.iter().any(|name| name == FINALIZER));
    observed.has_subscription_status =
        subscription.is_some_and(|found| has_installed(&found["status"], &plan.csv));
    let has_extension = observed.has_extension();
    for saved in restorable(backup) {
        let id = ObjectId::of(saved);
        let Some(live) = access.get(&id).await? else {
            if is_restored(plan, saved) {
                observed.missing.push(id);
            }
            continue;
        };
        if released(plan, saved, &live, has_extension) != live {
            observed.changed.push(ObjectId::of(&live));
        }
        if owning(saved, &live, csv.as_ref()).is_some() {
            observed.unowned.push(ObjectId::of(&live));
        }
    }
    observed.unowned.sort_by_key(|id| (!id.namespace.is_empty(), !is_webhook(id)));
    Ok(())
}

/// Reports whether an extension or a revision with these annotations is paused, and has no uninstall policy: `BlockIfInUse`
/// would block the deletion of the extension, and both give CRDs another owner.
fn is_paused(annotations: &Value) -> bool {
    annotations[annotations::EXT_PAUSED] == "true"
        && annotations.get(annotations::EXT_UNINSTALL_POLICY).is_none()
}

/// Reports whether the object is a webhook configuration.
pub(super) fn is_webhook(id: &ObjectId) -> bool {
    id.kind.ends_with("WebhookConfiguration")
}

/// Reason and message of the condition Progressing, unless it succeeded. `None` before the first installation: whatever
/// blocks that does not block the return.
fn rollout(extension: &Value) -> Option<String> {
    extension.pointer("/status/install/bundle/version")?;
    let conditions = extension["status"]["conditions"].as_array()?;
    let progressing = conditions.iter().find(|condition| condition["type"] == "Progressing")?;
    let text = |field: &str| progressing[field].as_str().unwrap_or_default();
    let generation = &extension["metadata"]["generation"];
    // An upgrade that waits for approval leaves the condition as it is.
    let is_waiting = |condition: &Value| {
        condition["reason"] == reasons::APPROVAL_REQUIRED && condition["observedGeneration"] == *generation
    };
    let is_current = progressing["observedGeneration"] == *generation || conditions.iter().any(is_waiting);
    match (text("reason"), is_current) {
        ("Succeeded", true) => None,
        (_, false) => Some("operator-controller has not reconciled its last change".to_owned()),
        (reason, true) => Some(format!("{reason}: {}", text("message"))),
    }
}

/// Secrets with the content of the extension's revisions.
async fn content(access: &ObjectAccess<'_>, extension: &str) -> Result<Vec<ObjectId>, CliError> {
    let selector = format!("{}={extension}", labels::OWNER_NAME);
    let secrets = access.list(("v1", "Secret"), access.cluster().namespace(), Some(&selector)).await?;
    let content = secrets.iter().filter(|secret| secret["type"] == OBJECT_DATA_SECRET_TYPE);
    Ok(content.map(ObjectId::of).collect())
}

/// Secrets with certificates of the extension that are not in the backup.
async fn certificates(access: &ObjectAccess<'_>, backup: &Backup) -> Result<Vec<ObjectId>, CliError> {
    let selector =
        format!("{},{}={}", labels::EXT_WEBHOOK_CERTIFICATE, labels::OWNER_NAME, extension(backup));
    let secrets = access.list(("v1", "Secret"), &backup.plan.namespace, Some(&selector)).await?;
    let ids = secrets.iter().map(ObjectId::of);
    Ok(ids.filter(|id| backup.object(&id.kind, &id.namespace, &id.name).is_none()).collect())
}

/// Objects that exist and are not in the backup: those that a revision of the extension controls, and access for users as
/// the migration created it. CustomResourceDefinitions stay, because custom resources would be deleted with them.
async fn created(
    access: &ObjectAccess<'_>,
    backup: &Backup,
    sets: &[ClusterObjectSet],
) -> Result<Vec<ObjectId>, CliError> {
    let plan = &backup.plan;
    let mut rendered: BTreeSet<ObjectId> = plan.created.iter().cloned().collect();
    for set in sets.iter().filter(|set| set.is_active()) {
        let phases = match recorded(set) {
            Some(phases) => Ok(phases),
            None => access.session().interruptible(stored(access.cluster(), set)).await?,
        };
        let unreadable = |why: String| {
            CliError::operational(format!(
                "cannot read the objects of ClusterObjectSet {}: {why}",
                set.name_any()
            ))
        };
        rendered.extend(objects(&phases.map_err(unreadable)?).map(ObjectId::of));
    }
    let revisions: Vec<String> = sets.iter().filter_map(ResourceExt::uid).collect();
    let grants = plan.grants.iter().map(|grant| (ObjectId::of(grant), Some(grant)));
    let rendered = rendered.into_iter().filter(|id| id.kind != "CustomResourceDefinition");
    let mut created = Vec::new();
    for (id, grant) in rendered.map(|id| (id, None)).chain(grants) {
        if backup.object(&id.kind, &id.namespace, &id.name).is_some() {
            continue;
        }
        let found = access.get(&ObjectId { uid: String::new(), ..id }).await?;
        let is_ours = |found: &Value| match grant {
            Some(grant) => is_same_content(grant, found),
            None => is_controlled(found, &revisions),
        };
        let found = found.filter(|found| found["metadata"]["deletionTimestamp"].is_null() && is_ours(found));
        created.extend(found.as_ref().map(ObjectId::of));
    }
    created.sort();
    created.dedup();
    Ok(created)
}

/// Reports whether one of the revisions with these UIDs controls the object.
fn is_controlled(object: &Value, revisions: &[String]) -> bool {
    let mut owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|owner| owner["controller"] == true && revisions.iter().any(|uid| owner["uid"] == **uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_with_uninstall_policy_does_not_count_as_paused() {
        let policy = |value: Option<&str>| {
            let mut annotations = json!({annotations::EXT_PAUSED: "true"});
            if let Some(value) = value {
                annotations[annotations::EXT_UNINSTALL_POLICY] = json!(value);
            }
            is_paused(&annotations)
        };
        assert!(policy(None));
        assert!(!policy(Some("BlockIfInUse")) && !policy(Some("KeepCRDs")));
        assert!(!is_paused(&json!({})) && !is_paused(&Value::Null));
    }

    #[test]
    fn only_objects_of_the_revisions_are_created_by_the_migration() {
        let object = |uid: &str, controller: bool| json!({"metadata": {"ownerReferences": [{"kind": "ClusterObjectSet", "uid": uid, "controller": controller}]}});
        let revisions = ["r1".to_owned(), "r2".to_owned()];
        assert!(is_controlled(&object("r2", true), &revisions));
        assert!(!is_controlled(&object("r2", false), &revisions));
        assert!(!is_controlled(&object("other", true), &revisions));
        assert!(!is_controlled(&json!({"metadata": {}}), &revisions));
    }

    #[test]
    fn rollout_is_detected_only_for_extension_with_installed_bundle() {
        let extension = |reason: &str, generation: i64, installed: bool| {
            let condition =
                json!({"type": "Progressing", "reason": reason, "message": "m", "observedGeneration": 1});
            let mut extension =
                json!({"metadata": {"generation": generation}, "status": {"conditions": [condition]}});
            if installed {
                extension["status"]["install"] = json!({"bundle": {"version": "1.0.0"}});
            }
            rollout(&extension)
        };
        assert_eq!(extension("Succeeded", 1, true), None);
        assert_eq!(extension("Blocked", 1, false), None);
        assert_eq!(extension("RollingOut", 1, true).unwrap(), "RollingOut: m");
        assert!(extension("Succeeded", 2, true).unwrap().starts_with("operator-controller"));
        let conditions = json!([{"type": "Progressing", "reason": "Succeeded", "observedGeneration": 1},
            {"type": "UpgradeAvailable", "reason": "ApprovalRequired", "observedGeneration": 2}]);
        let waiting = json!({"metadata": {"generation": 2}, "status":
            {"install": {"bundle": {"version": "1.0.0"}}, "conditions": conditions}});
        assert_eq!(rollout(&waiting), None);
    }
}
