//! Steps of a migration: one function per step. Each call can be repeated.

use std::collections::BTreeSet;
use std::time::Duration;

use olm_api::annotations;
use olm_cli_core::change::DryRun;
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::{Dependents, ObjectAccess, ObjectId};
use olm_cli_lifecycle::hardened;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::backup::{self, Backup};
use super::super::detach::{CLEANUP, FINALIZER, PAUSED, from_classic, from_csv};
use super::super::plan::model::PackagePlan;
use super::super::pods;
use super::observe::{Live, V1ALPHA1, classic, kept_webhooks, opening, resuming, saved};
use super::state::{Observed, Step};

/// Attempts of a write that conflicts with writes of classic OLM.
const ATTEMPTS: usize = 20;
/// Pause between them.
const PAUSE: Duration = Duration::from_millis(50);
/// Time until classic OLM has surely seen a change of the ClusterServiceVersion.
const WATCH_DELAY: Duration = Duration::from_secs(1);
/// Longest time until operator-controller has seen a change of an annotation.
const REACTION: Duration = Duration::from_secs(30);
/// Time in which the garbage collector deletes an OperatorCondition whose owner does not exist.
const BURST: Duration = Duration::from_secs(3);
/// Part of [`BURST`] before the finalizer of the ClusterServiceVersion is removed.
const BURST_LEAD: Duration = Duration::from_millis(50);

/// Takes a step that changes the cluster. `live` are the objects of the plan.
///
/// # Errors
/// A call fails. The step can be repeated.
pub(crate) async fn take(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
    backup: Option<&Backup>,
    step: &Step,
    (observed, live): (&Observed, &Live),
) -> Result<(), CliError> {
    match step {
        Step::CreateCatalogs(objects) | Step::CreateGrants(objects) => create(access, objects).await,
        Step::BackUp => back_up(access, plan, live).await,
        Step::PauseSubscription(id) => pause(access, id).await,
        Step::DeleteSubscription(id) => delete_subscription(access, id).await,
        Step::ClearInstallPlans(plans) => clear(access, &plan.namespace, plans).await,
        Step::HoldCsv(id) => hold(access, id).await,
        Step::KeepConversion(id) => keep_conversion(access, id).await,
        Step::Detach(objects) => detach(access, plan, objects).await,
        Step::ReleaseCsv(id) => release(access, plan, backup, id).await,
        Step::Restore(objects) => restore(access, backup, objects).await,
        Step::CreateExtension => create_extension(access, plan, &observed.digest).await,
        Step::Resume(id) => access.merge(id, &resuming(plan)).await.map(drop),
        Step::Remove(objects) => {
            for id in objects {
                delete(access, id, Dependents::Delete).await?;
            }
            Ok(())
        }
        Step::Open => open(access, plan).await,
        Step::DropBackup(_) => {
            resume_subscription(access, plan, backup).await?;
            backup::delete(access, &plan.namespace, &plan.package).await
        }
        Step::Refuse(_)
        | Step::AwaitCatalogs(_)
        | Step::AwaitSubscriptionDeletion(_)
        | Step::AwaitCsvDeletion(_)
        | Step::AwaitInstallation(_)
        | Step::AwaitWebhooks(_)
        | Step::Done => Ok(()),
    }
}

async fn create(access: &ObjectAccess<'_>, objects: &[Value]) -> Result<(), CliError> {
    for object in objects {
        access.create(object).await?;
    }
    Ok(())
}

async fn back_up(access: &ObjectAccess<'_>, plan: &PackagePlan, live: &Live) -> Result<(), CliError> {
    let objects = saved(access, plan, live).await?;
    let mut pods = pods::read(access, plan).await?;
    pods.retain(|pod| !pod.has_ended);
    backup::write(access, &Backup { plan: plan.clone(), objects, pods }).await
}

async fn delete(access: &ObjectAccess<'_>, id: &ObjectId, dependents: Dependents) -> Result<(), CliError> {
    if access.delete(id, None, dependents).await? {
        return Ok(());
    }
    let why = "was replaced by another object of this name: run the command again";
    Err(CliError::operational(format!("{id} {why}")))
}

/// Stops upgrades by a Subscription, and waits until classic OLM has seen it: an upgrade that has begun becomes visible.
async fn pause(access: &ObjectAccess<'_>, id: &ObjectId) -> Result<(), CliError> {
    access.merge(id, &json!({ "spec": { "source": PAUSED } })).await?;
    wait(access, WATCH_DELAY).await
}

/// Gives a paused Subscription the specification of the backup.
///
/// # Errors
/// A call fails, or the backup has no Subscription.
pub(crate) async fn resume_subscription(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
    backup: Option<&Backup>,
) -> Result<(), CliError> {
    let id = classic(plan, "Subscription", &plan.subscription);
    let Some(saved) = backup.and_then(Backup::subscription) else { return Ok(()) };
    change(access, &id, |found| {
        let mut patch = json!({ "spec": { "source": saved["spec"]["source"] } });
        patch["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
        (found["spec"]["source"] == PAUSED).then_some(patch)
    })
    .await
}

/// Deletes the Subscription once classic OLM has surely seen that the ClusterServiceVersion is being deleted. The objects
/// that it owns stay: some are not in the plan, such as other Subscriptions.
async fn delete_subscription(access: &ObjectAccess<'_>, id: &ObjectId) -> Result<(), CliError> {
    wait(access, WATCH_DELAY).await?;
    delete(access, id, Dependents::Orphan).await
}

async fn wait(access: &ObjectAccess<'_>, time: Duration) -> Result<(), CliError> {
    match access.dry_run {
        true => Ok(()),
        false => access.session().interruptible(tokio::time::sleep(time)).await,
    }
}

/// Deletes unapproved InstallPlans. Before, other Subscriptions of such a plan become as they were before it:
/// classic OLM makes a new plan for these only.
async fn clear(access: &ObjectAccess<'_>, namespace: &str, plans: &[ObjectId]) -> Result<(), CliError> {
    for subscription in access.list((V1ALPHA1, "Subscription"), namespace, None).await? {
        let plan = subscription.pointer("/status/installPlanRef/uid").and_then(Value::as_str);
        if plan.is_some_and(|uid| plans.iter().any(|plan| plan.uid == uid)) {
            let installed = &subscription["status"]["installedCSV"];
            let status = json!({ "currentCSV": installed, "installPlanRef": null, "installplan": null,
                "state": if installed.is_string() { "AtLatestKnown" } else { "" } });
            access.set_status(&ObjectId::of(&subscription), &status).await?;
        }
    }
    for plan in plans {
        delete(access, plan, Dependents::Delete).await?;
    }
    Ok(())
}

/// Replaces the finalizer of classic OLM by that of the migration, and deletes the ClusterServiceVersion in exactly this
/// state: with its own finalizer, classic OLM would delete webhook configurations and ClusterRoles. The garbage collector
/// removes the owner references to it, also from objects of kinds that the plan does not list.
async fn hold(access: &ObjectAccess<'_>, csv: &ObjectId) -> Result<(), CliError> {
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            access.session().interruptible(tokio::time::sleep(PAUSE)).await?;
        }
        let Some(found) = access.get(csv).await? else { return Ok(()) };
        if !csv.uid.is_empty() && found["metadata"]["uid"] != csv.uid.as_str() {
            let why = "was replaced by another object of this name: run the command again";
            return Err(CliError::operational(format!("{csv} {why}")));
        }
        if !found["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let held = match access.merge(csv, &finalizers(&found, Some(FINALIZER), CLEANUP)).await {
            Ok(Some(held)) => held,
            Ok(None) => return Ok(()),
            Err(_) if has_changed(access, csv, &found).await? => continue,
            Err(error) => return Err(error),
        };
        let version = held["metadata"]["resourceVersion"].as_str().filter(|_| !access.dry_run);
        if access.delete(csv, version, Dependents::Orphan).await? {
            return Ok(());
        }
    }
    Err(CliError::operational(format!("{csv} was changed by another client in each of {ATTEMPTS} deletions")))
}

/// Patch that adds and removes a finalizer. All others stay.
fn finalizers(object: &Value, added: Option<&str>, removed: &str) -> Value {
    let existing =
        object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut kept: Vec<&str> = existing.filter(|name| *name != removed && Some(*name) != added).collect();
    kept.extend(added);
    json!({ "metadata": { "finalizers": kept, "resourceVersion": object["metadata"]["resourceVersion"] } })
}

async fn keep_conversion(access: &ObjectAccess<'_>, csv: &ObjectId) -> Result<(), CliError> {
    let Some(found) = access.get(csv).await? else { return Ok(()) };
    let Some(kept) = kept_webhooks(&found) else { return Ok(()) };
    access.merge(csv, &json!({ "spec": { "webhookdefinitions": kept } })).await.map(drop)
}

async fn detach(access: &ObjectAccess<'_>, plan: &PackagePlan, objects: &[ObjectId]) -> Result<(), CliError> {
    for id in objects {
        change(access, id, |object| from_csv(object, plan)).await?;
    }
    Ok(())
}

/// Patches an object with the result of `patch`, again after each conflict.
///
/// # Errors
/// The object has another UID, or a call fails.
pub(crate) async fn change(
    access: &ObjectAccess<'_>,
    id: &ObjectId,
    patch: impl Fn(&Value) -> Option<Value>,
) -> Result<(), CliError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let Some(object) = access.get(id).await? else { return Ok(()) };
        let Some(patch) = patch(&object) else { return Ok(()) };
        match access.merge(&ObjectId::of(&object), &patch).await {
            Ok(_) => return Ok(()),
            // Most failures are conflicts with controllers.
            Err(_) if attempt < ATTEMPTS && has_changed(access, id, &object).await? => {}
            Err(error) => return Err(error),
        }
    }
}

async fn has_changed(access: &ObjectAccess<'_>, id: &ObjectId, object: &Value) -> Result<bool, CliError> {
    let now = access.get(id).await?;
    Ok(now.is_none_or(|now| now["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"]))
}

/// Removes the finalizer of the migration, and repeatedly the owner of the OperatorCondition meanwhile: as long as the
/// ClusterServiceVersion exists, classic OLM puts it back, and soon after the garbage collector deletes the
/// OperatorCondition.
async fn release(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
    backup: Option<&Backup>,
    csv: &ObjectId,
) -> Result<(), CliError> {
    if backup.and_then(Backup::csv).is_some_and(|csv| kept_webhooks(csv).is_some()) {
        wait(access, WATCH_DELAY).await?;
    }
    let left = plan.left.iter().map(|left| &left.object);
    let conditions: Vec<&ObjectId> = left.filter(|id| id.kind == "OperatorCondition").collect();
    let release = async {
        if !conditions.is_empty() && !access.dry_run {
            tokio::time::sleep(BURST_LEAD).await;
        }
        change(access, csv, |csv| {
            let all = csv["metadata"]["finalizers"].as_array();
            let is_held = all.is_some_and(|all| all.iter().any(|name| name == FINALIZER));
            is_held.then(|| finalizers(csv, None, FINALIZER))
        })
        .await
    };
    let disown = async || {
        let end = Instant::now() + BURST;
        while !conditions.is_empty() && !access.dry_run && Instant::now() < end {
            for id in &conditions {
                // A failure is repeated, and an OperatorCondition that is deleted nevertheless is restored.
                let disowned = access.merge(id, &json!({ "metadata": { "ownerReferences": null } })).await;
                if !matches!(disowned, Ok(Some(_))) {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    };
    let (released, (), ()) = tokio::join!(release, disown(), disown());
    released
}

/// Creates objects of the backup without owners, and resets what classic OLM changed.
async fn restore(
    access: &ObjectAccess<'_>,
    backup: Option<&Backup>,
    objects: &[ObjectId],
) -> Result<(), CliError> {
    for id in objects {
        let saved = backup.and_then(|backup| backup.object(&id.kind, &id.namespace, &id.name));
        let Some(saved) = saved else { continue };
        let conversion = json!({ "spec": { "conversion": saved["spec"]["conversion"] } });
        match access.get(id).await? {
            Some(live) => drop(access.merge(&ObjectId::of(&live), &conversion).await?),
            None => drop(recreate_missing(access, detached(saved)).await?),
        }
    }
    Ok(())
}

/// Creates an object as [`recreate`] does, unless another client creates it at the same time: classic OLM and
/// operator-controller make the permissions of an OperatorCondition themselves.
///
/// # Errors
/// A call fails, and the object does not exist.
pub(crate) async fn recreate_missing(access: &ObjectAccess<'_>, object: Value) -> Result<Value, CliError> {
    let id = ObjectId { uid: String::new(), ..ObjectId::of(&object) };
    match recreate(access, object).await {
        Ok(created) => Ok(created),
        Err(error) => access.get(&id).await?.ok_or(error),
    }
}

/// Creates an object without owners that do not exist: the garbage collector would delete it.
pub(crate) async fn recreate(access: &ObjectAccess<'_>, mut object: Value) -> Result<Value, CliError> {
    let namespace = ObjectId::of(&object).namespace;
    if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
        for owner in std::mem::take(owners) {
            let text = |field: &str| owner[field].as_str().unwrap_or_default();
            let id = ObjectId::new((text("apiVersion"), text("kind")), &namespace, text("name"));
            if access.get(&id).await?.is_some_and(|found| found["metadata"]["uid"] == owner["uid"]) {
                owners.push(owner);
            }
        }
    }
    access.create(&object).await
}

/// Object of the backup as a new one, without owners and labels of classic OLM.
pub(crate) fn detached(saved: &Value) -> Value {
    let mut object = fresh(saved);
    let labels = from_classic(&object).and_then(|patch| patch["metadata"]["labels"].as_object().cloned());
    if let Some(own) = object["metadata"]["labels"].as_object_mut() {
        own.retain(|key, _| !labels.as_ref().is_some_and(|labels| labels.contains_key(key)));
    }
    let is_classic = super::super::detach::is_of_classic;
    if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
        owners.retain(|owner| !is_classic(owner));
    }
    object
}

/// Object of the backup without what the API server sets.
pub(crate) fn fresh(saved: &Value) -> Value {
    let mut object = saved.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        let server: BTreeSet<&str> = [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "selfLink",
        ]
        .into();
        metadata.retain(|key, _| !server.contains(key.as_str()));
    }
    object
}

/// Creates the extension with the digest, or sets the digest of the existing one.
async fn create_extension(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
    digest: &str,
) -> Result<(), CliError> {
    let mut extension = plan.extension.clone();
    extension["metadata"]["annotations"][annotations::EXT_ADOPT] = Value::from(digest);
    match access.get(&ObjectId::of(&extension)).await? {
        None => {
            // The recorded UID is that of an extension that a rollback deleted.
            backup::record_extension(access, plan, None).await?;
            backup::set_returned(access, plan, false).await?;
            let parsed = serde_json::from_value(extension.clone())?;
            let dry_run = access.dry_run.then_some(DryRun::Server);
            hardened::grant(access.cluster(), &parsed, dry_run, access.session()).await?;
            access.create(&extension).await.map(drop)
        }
        Some(found) => {
            let patch = json!({ "metadata": { "annotations": { (annotations::EXT_ADOPT): digest } } });
            let id = ObjectId::of(&found);
            let patched = access.merge(&id, &patch).await?.unwrap_or_default();
            // The conditions are those of the former digest: an annotation does not change the generation.
            let end = Instant::now() + REACTION;
            while !access.dry_run && Instant::now() < end {
                if access.get(&id).await?.is_none_or(|now| now["status"] != patched["status"]) {
                    break;
                }
                wait(access, PAUSE).await?;
            }
            Ok(())
        }
    }
}

/// Records the UID of the extension in the backup: once the pin is opened, the digest does not identify it any more.
///
/// # Errors
/// A call fails, or the backup does not exist.
pub(crate) async fn record_extension(access: &ObjectAccess<'_>, plan: &PackagePlan) -> Result<(), CliError> {
    let extension = ObjectId { uid: String::new(), ..ObjectId::of(&plan.extension) };
    let Some(found) = access.get(&extension).await? else { return Ok(()) };
    backup::record_extension(access, plan, Some(&ObjectId::of(&found).uid)).await
}

async fn open(access: &ObjectAccess<'_>, plan: &PackagePlan) -> Result<(), CliError> {
    let Some(patch) = opening(plan) else { return Ok(()) };
    let extension = ObjectId { uid: String::new(), ..ObjectId::of(&plan.extension) };
    access.merge(&extension, &patch).await.map(drop)
}

/// Identity of the ClusterServiceVersion of the plan.
pub(crate) fn csv_id(plan: &PackagePlan) -> ObjectId {
    classic(plan, "ClusterServiceVersion", &plan.csv)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizers_of_other_controllers_are_retained_on_csv() {
        let csv = json!({"metadata": {"resourceVersion": "7", "finalizers": [CLEANUP, "example.com/other"]}});
        let held = finalizers(&csv, Some(FINALIZER), CLEANUP);
        let expected =
            json!({"metadata": {"resourceVersion": "7", "finalizers": ["example.com/other", FINALIZER]}});
        assert_eq!(held, expected);
        let released = finalizers(&held, None, FINALIZER);
        assert_eq!(released["metadata"]["finalizers"], json!(["example.com/other"]));
    }

    #[test]
    fn restored_object_has_no_owner_of_classic_and_no_server_fields() {
        let csv = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "uid": "c"});
        let saved = json!({"kind": "Role", "metadata": {"name": "a", "uid": "u", "resourceVersion": "7",
            "labels": {"olm.owner": "lamp", "app": "a"}, "ownerReferences": [csv]}, "status": {"a": 1}});
        let expected = json!({"kind": "Role",
            "metadata": {"name": "a", "labels": {"app": "a"}, "ownerReferences": []}});
        assert_eq!(detached(&saved), expected);
    }
}
