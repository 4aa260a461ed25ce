//! Reads the state that decides on the next step of a return to classic OLM. The comparison of objects is pure.

use kube::ResourceExt;
use olm_api::names::OBJECT_DATA_SECRET_TYPE;
use olm_api::{annotations, labels};
use serde_json::{Value, json};

use super::super::access::ObjectAccess;
use super::super::apply::observe::{classic, observe as observe_migration};
use super::super::apply::{csv_id, detached};
use super::super::backup::Backup;
use super::super::detach::{FINALIZER, from_classic, from_extension, is_of_classic};
use super::super::plan::model::ObjectId;
use super::state::Observed;
use super::trust::without;
use crate::error::CliError;
use crate::status::observe::{is_active, revisions};

/// Kind of the revisions.
const REVISION: (&str, &str) = ("olm.operatorframework.io/v1", "ClusterObjectSet");

/// Label of all objects that classic OLM reads.
const MANAGED: &str = "olm.managed";

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
    let is_paused = |annotations: &Value| annotations[annotations::EXT_PAUSED] == "true";
    let revision = |set: &olm_api::ClusterObjectSet| ObjectId {
        api_version: REVISION.0.to_owned(),
        kind: REVISION.1.to_owned(),
        namespace: String::new(),
        name: set.name_any(),
        uid: set.uid().unwrap_or_default(),
    };
    let unpaused = sets.iter().filter(|set| {
        let paused = set.annotations().get(annotations::EXT_PAUSED);
        is_active(set)
            && set.metadata.deletion_timestamp.is_none()
            && paused.is_none_or(|value| value != "true")
    });
    let deleting_sets = sets.iter().filter(|set| set.metadata.deletion_timestamp.is_some());
    let is_deleting = found.as_ref().is_some_and(|found| !found["metadata"]["deletionTimestamp"].is_null());
    let mut deleting: Vec<String> = deleting_sets.map(|set| revision(set).to_string()).collect();
    deleting.extend(found.as_ref().filter(|_| is_deleting).map(|found| ObjectId::of(found).to_string()));
    let mut observed = Observed {
        extension: found.as_ref().filter(|_| !is_deleting).map(ObjectId::of),
        version: found
            .as_ref()
            .and_then(|found| found.pointer("/status/install/bundle/version")?.as_str().map(str::to_owned)),
        is_paused: found.as_ref().is_some_and(|found| is_paused(&found["metadata"]["annotations"])),
        unpaused: unpaused.map(|set| set.name_any()).collect(),
        revisions: sets.iter().map(revision).collect(),
        deleting,
        content: content(access, name).await?,
        missing: Vec::new(),
        changed: Vec::new(),
        created: created(access, backup).await?,
        unowned: Vec::new(),
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
        subscription.is_some_and(|found| found.pointer("/status/installedCSV").is_some());
    for saved in restorable(backup) {
        let id = ObjectId::of(saved);
        match access.get(&id).await? {
            None => observed.missing.push(id),
            Some(live) => {
                if is_changed(saved, &live, extension(backup)) {
                    observed.changed.push(ObjectId::of(&live));
                }
                if owning(saved, &live, csv.as_ref()).is_some() {
                    observed.unowned.push(ObjectId::of(&live));
                }
            }
        }
    }
    Ok(())
}

/// Secrets with the content of the extension's revisions.
async fn content(access: &ObjectAccess<'_>, extension: &str) -> Result<Vec<ObjectId>, CliError> {
    let selector = format!("{}={extension}", labels::OWNER_NAME);
    let secrets = access.list(("v1", "Secret"), access.cluster().namespace(), Some(&selector)).await?;
    let content = secrets.iter().filter(|secret| secret["type"] == OBJECT_DATA_SECRET_TYPE);
    Ok(content.map(ObjectId::of).collect())
}

/// Objects that exist and that only the migration created: those of the first revision, and access for users.
async fn created(access: &ObjectAccess<'_>, backup: &Backup) -> Result<Vec<ObjectId>, CliError> {
    let plan = &backup.plan;
    let grants: Vec<ObjectId> = plan.grants.iter().map(ObjectId::of).collect();
    let mut created = Vec::new();
    for id in plan.created.iter().chain(&grants) {
        if backup.object(&id.kind, &id.namespace, &id.name).is_some() {
            continue;
        }
        let found = access.get(&ObjectId { uid: String::new(), ..id.clone() }).await?;
        let found = found.filter(|found| found["metadata"]["deletionTimestamp"].is_null());
        created.extend(found.as_ref().map(ObjectId::of));
    }
    Ok(created)
}

/// Reports whether the live object belongs to the extension, or has not the content of the backup.
fn is_changed(saved: &Value, live: &Value, extension: &str) -> bool {
    let desired = content_of(saved, live);
    let is_part = |field: &str| !["metadata", "status"].contains(&field);
    let fields = desired.as_object().into_iter().flatten();
    let annotations = saved["metadata"]["annotations"].as_object().into_iter().flatten();
    let managed = |object: &Value| object["metadata"]["labels"].get(MANAGED).cloned();
    from_extension(live, extension).is_some()
        || managed(saved).is_some_and(|saved| managed(live) != Some(saved))
        || fields
            .filter(|(field, _)| is_part(field))
            .any(|(field, value)| live.get(field).is_none_or(|live| without(live) != without(value)))
        || annotations.into_iter().any(|(key, value)| live["metadata"]["annotations"].get(key) != Some(value))
}

/// The saved object with the number of replicas that runs.
fn content_of(saved: &Value, live: &Value) -> Value {
    let mut desired = saved.clone();
    if desired["kind"] == "Deployment" && live["spec"]["replicas"].is_number() {
        desired["spec"]["replicas"] = live["spec"]["replicas"].clone();
    }
    desired
}

/// The saved object as a new one without owners. Before an installation, classic OLM sees only objects with label
/// `olm.managed`: without its certificate it would make a new one, and restart the pods.
pub(super) fn unowned(saved: &Value) -> Value {
    let mut object = detached(saved);
    if let Some(managed) = saved["metadata"]["labels"].get(MANAGED) {
        object["metadata"]["labels"][MANAGED] = managed.clone();
    }
    object
}

/// The saved object without owners, as a replacement of the live one.
pub(super) fn released(saved: &Value, live: &Value) -> Value {
    let mut object = unowned(&content_of(saved, live));
    for field in ["uid", "resourceVersion"] {
        object["metadata"][field] = live["metadata"][field].clone();
    }
    object
}

/// Patch that restores labels and owner references of classic OLM. `None` if the object has them, or if there is no
/// ClusterServiceVersion. Owner references to other objects of classic OLM are its own matter.
pub(super) fn owning(saved: &Value, live: &Value, csv: Option<&Value>) -> Option<Value> {
    let csv = csv?;
    let removed = from_classic(saved)?;
    let of_classic = removed["metadata"]["labels"].as_object().into_iter().flatten().map(|(key, _)| key);
    let labels =
        of_classic.filter_map(|key| Some((key.clone(), saved["metadata"]["labels"].get(key)?.clone())));
    let labels: serde_json::Map<String, Value> =
        labels.filter(|(key, value)| live["metadata"]["labels"].get(key) != Some(value)).collect();
    let list = |object: &Value| object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let mut owners = list(live);
    let is_csv = |owner: &Value| {
        is_of_classic(owner)
            && owner["kind"] == "ClusterServiceVersion"
            && owner["name"] == csv["metadata"]["name"]
    };
    let has_owner = |owners: &[Value]| owners.iter().any(|owner| owner["uid"] == csv["metadata"]["uid"]);
    let is_same_namespace = saved["metadata"]["namespace"] == csv["metadata"]["namespace"];
    let mut patch = json!({ "metadata": { "resourceVersion": live["metadata"]["resourceVersion"] } });
    let mut is_needed = !labels.is_empty();
    if let Some(owner) =
        list(saved).into_iter().find(is_csv).filter(|_| is_same_namespace && !has_owner(&owners))
    {
        let mut owner = owner;
        owner["uid"] = csv["metadata"]["uid"].clone();
        owners.push(owner);
        patch["metadata"]["ownerReferences"] = json!(owners);
        is_needed = true;
    }
    if !labels.is_empty() {
        patch["metadata"]["labels"] = Value::Object(labels);
    }
    is_needed.then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(uid: &str) -> Value {
        json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": "lamp.v1.0.0", "namespace": "ns", "uid": uid}})
    }

    fn saved() -> Value {
        let owner = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "name": "lamp.v1.0.0", "uid": "old"});
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "lamp", "namespace": "ns", "uid": "u", "resourceVersion": "1",
                "labels": {"olm.owner": "lamp.v1.0.0", "app": "lamp"}, "annotations": {"a": "b"},
                "ownerReferences": [owner]},
            "spec": {"replicas": 1, "template": {"a": 1}}, "status": {"replicas": 1}})
    }

    #[test]
    fn owner_gets_the_uid_of_the_restored_csv() {
        let mut live = saved();
        live["metadata"]["labels"] = json!({"app": "lamp"});
        live["metadata"]["ownerReferences"] = json!([]);
        live["metadata"]["resourceVersion"] = json!("9");
        assert_eq!(owning(&saved(), &live, None), None);
        let patch = owning(&saved(), &live, Some(&csv("new"))).unwrap();
        assert_eq!(patch["metadata"]["labels"], json!({"olm.owner": "lamp.v1.0.0"}));
        assert_eq!(patch["metadata"]["resourceVersion"], "9");
        assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "new");
        live["metadata"]["labels"] = saved()["metadata"]["labels"].clone();
        live["metadata"]["ownerReferences"] = patch["metadata"]["ownerReferences"].clone();
        assert_eq!(owning(&saved(), &live, Some(&csv("new"))), None);
    }

    #[test]
    fn content_owner_and_annotations_are_compared() {
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut live = saved();
            change(&mut live);
            is_changed(&saved(), &live, "lamp")
        };
        assert!(!changed(&|live| live["metadata"]["labels"] = json!({})));
        assert!(!changed(&|live| live["spec"]["replicas"] = json!(3)));
        assert!(changed(&|live| live["spec"]["template"] = json!({})));
        assert!(changed(&|live| live["metadata"]["annotations"] = json!({})));
        let mut managed = saved();
        managed["metadata"]["labels"][MANAGED] = json!("true");
        assert!(is_changed(&managed, &saved(), "lamp") && !is_changed(&managed, &managed, "lamp"));
        assert_eq!(unowned(&managed)["metadata"]["labels"], json!({"app": "lamp", "olm.managed": "true"}));
        let label = |live: &mut Value| {
            live["metadata"]["labels"]["olm.operatorframework.io/owner-name"] = json!("lamp")
        };
        assert!(changed(&label));
        let mut live = saved();
        live["metadata"]["resourceVersion"] = json!("9");
        live["spec"]["replicas"] = json!(3);
        let released = released(&saved(), &live);
        assert_eq!(released["metadata"]["resourceVersion"], "9");
        assert_eq!(released["metadata"]["labels"], json!({"app": "lamp"}));
        assert_eq!(released["spec"]["replicas"], 3);
        assert!(released.get("status").is_none());
    }
}
