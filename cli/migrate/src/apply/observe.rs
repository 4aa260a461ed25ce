//! Reads the state that decides on the next step of a migration. The interpretation of each object is pure.

use std::collections::{BTreeSet, HashMap};

use olm_api::{annotations, finalizers};
use olm_cli_core::change::merge_patch;
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::{ObjectAccess, ObjectId, contains};
use olm_plan::objects::ObjectName;
use olm_plan::{AdoptedObject, adoption_digest};
use olm_revision::plan::controller;
use serde_json::Value;

use super::super::backup::{self, Backup};
use super::super::dependents;
use super::super::detach::{CLEANUP, FINALIZER, PAUSED, component, from_csv};
use super::super::objects::{CLASSIC, COPIED_FROM, InstallPlan, package};
use super::super::plan::model::PackagePlan;
use super::super::rollback::is_recreated;
use super::install_plans::{running, waiting};
use super::state::{CatalogState, ClassicObject, ExtensionState, Observed};

/// Version of Subscriptions, ClusterServiceVersions and InstallPlans.
pub(crate) const V1ALPHA1: &str = "operators.coreos.com/v1alpha1";

/// Identity of an object of classic OLM in the namespace of the package.
pub(crate) fn classic(plan: &PackagePlan, kind: &str, name: &str) -> ObjectId {
    ObjectId {
        api_version: V1ALPHA1.to_owned(),
        kind: kind.to_owned(),
        namespace: plan.namespace.clone(),
        name: name.to_owned(),
        uid: String::new(),
    }
}

/// Objects that are detached from classic OLM, in the order of the detachment. Of classic OLM itself, these are only the
/// OperatorCondition and InstallPlans.
pub(crate) fn detachable(plan: &PackagePlan) -> Vec<&ObjectId> {
    let left = plan.left.iter().map(|left| &left.object);
    let removed = plan.removed.iter().map(|removed| &removed.object);
    let is_condition = |id: &ObjectId| id.kind == "OperatorCondition";
    let is_own =
        |id: &ObjectId| id.api_version.starts_with(CLASSIC) && !is_condition(id) && id.kind != "InstallPlan";
    let mut all: Vec<&ObjectId> =
        plan.adopted.iter().chain(left).chain(removed).filter(|id| !is_own(id)).collect();
    all.sort_by_key(|id| (is_condition(id), !id.namespace.is_empty()));
    all
}

/// Objects of the plan that exist, by their identity in the plan.
pub(crate) type Live = HashMap<ObjectId, Value>;

/// Observes the package. `backup` is its complete backup, if any.
///
/// # Errors
/// The API server does not answer, or denies access.
pub(crate) async fn observe(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
    backup: Option<&Backup>,
) -> Result<(Observed, Live), CliError> {
    let live = live(access, plan, backup.is_none()).await?;
    let subscription = access.get(&classic(plan, "Subscription", &plan.subscription)).await?;
    let csv = access.get(&classic(plan, "ClusterServiceVersion", &plan.csv)).await?;
    let extension = access.get(&ObjectId { uid: String::new(), ..ObjectId::of(&plan.extension) }).await?;
    // Without extension, a lost backup does not matter: a rollback can still end.
    let recorded = match backup {
        Some(_) if extension.is_some() => backup::recorded_extension(access, plan).await?,
        _ => None,
    };
    let extension = extension_state(plan, recorded.as_deref(), extension.as_ref(), &live);
    let mut grants = Vec::new();
    for grant in &plan.grants {
        if !access.get(&ObjectId::of(grant)).await?.is_some_and(|found| contains(&found, grant)) {
            grants.push(grant.clone());
        }
    }
    let csvs = access.list((V1ALPHA1, "ClusterServiceVersion"), &plan.namespace, None).await?;
    let plans = access.list((V1ALPHA1, "InstallPlan"), &plan.namespace, None).await?;
    let open_dependents = match &subscription {
        Some(_) => open_dependents(access, plan).await?,
        None => Vec::new(),
    };
    let saved = backup.into_iter().flat_map(|backup| [backup.subscription(), backup.csv()]).flatten();
    let known: Vec<String> = saved.map(|object| ObjectId::of(object).uid).collect();
    let saved_subscription = backup.and_then(Backup::subscription);
    let waiting = waiting(plan, [subscription.as_ref(), saved_subscription], &plans);
    let is_attached = |id: &&ObjectId| {
        (csv.is_none() || id.kind != "OperatorCondition")
            && live.get(id).is_some_and(|object| from_csv(object, plan).is_some())
    };
    let mut attached: Vec<ObjectId> = detachable(plan).into_iter().filter(is_attached).cloned().collect();
    let csv_state = csv.as_ref().map(classic_object);
    if let Some(held) = csv_state.as_ref().filter(|csv| csv.is_held && attached.is_empty()) {
        attached = unlisted(access, plan, &held.id).await?;
    }
    let observed = Observed {
        has_backup: backup.is_some(),
        home: access.cluster().namespace().to_owned(),
        catalogs: catalogs(access, plan).await?,
        subscription: subscription.as_ref().map(classic_object),
        running: running(subscription.as_ref(), &plans),
        upgrade: upgrade(plan, (subscription.as_ref(), &known), csv.as_ref(), (&csvs, &waiting)),
        waiting: waiting.iter().map(|plan| ObjectId::of(plan)).collect(),
        csv: csv_state,
        known,
        dependents: open_dependents,
        attached,
        lost: lost(plan, backup, &live, &extension, recorded.is_some()),
        grants,
        unready_webhooks: unready_webhooks(access, plan).await?,
        leftovers: leftovers(plan, backup, &live),
        extension,
        digest: digest(plan, &live),
    };
    Ok((observed, live))
}

/// Reads the objects of the plan that exist, `with_created` also those that it creates.
async fn live(access: &ObjectAccess<'_>, plan: &PackagePlan, with_created: bool) -> Result<Live, CliError> {
    let mut live = Live::new();
    let left = plan.left.iter().map(|left| &left.object);
    let removed = plan.removed.iter().map(|removed| &removed.object);
    let created = plan.created.iter().filter(|_| with_created);
    for id in plan.adopted.iter().chain(left).chain(removed).chain(created) {
        if let Some(object) = access.get(id).await? {
            live.insert(id.clone(), object);
        }
    }
    Ok(live)
}

/// Objects of any kind that the held ClusterServiceVersion or one of its copies owns, such as those that were created after
/// its deletion began. The garbage collector would delete them.
async fn unlisted(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
    csv: &ObjectId,
) -> Result<Vec<ObjectId>, CliError> {
    let removed = plan.removed.iter().map(|removed| &removed.object);
    let copies = removed.filter(|id| id.kind == csv.kind);
    let owners: Vec<&str> = copies.chain([csv]).map(|id| id.uid.as_str()).collect();
    let found = dependents::of_plan(access, plan, false).await?;
    let is_owned = |object: &&Value| is_owned_by(object, &owners) && from_csv(object, plan).is_some();
    Ok(found.iter().filter(is_owned).map(ObjectId::of).collect())
}

pub(super) fn is_owned_by(object: &Value, uids: &[&str]) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| owner["uid"].as_str().is_some_and(|uid| uids.contains(&uid)))
}

/// State of an object of classic OLM.
pub(crate) fn classic_object(object: &Value) -> ClassicObject {
    ClassicObject {
        id: ObjectId::of(object),
        phase: object["status"]["phase"].as_str().unwrap_or_default().to_owned(),
        is_deleting: !object["metadata"]["deletionTimestamp"].is_null(),
        is_held: !object["metadata"]["deletionTimestamp"].is_null() && is_held(object),
        has_conversion: kept_webhooks(object).is_some(),
        is_paused: object["kind"] == "Subscription" && object["spec"]["source"] == PAUSED,
        finalizers: awaited_finalizers(object),
    }
}

/// Finalizers that neither Kubernetes nor the migration sets. The finalizer of classic OLM is among them: classic OLM may
/// not run.
fn awaited_finalizers(object: &Value) -> Vec<String> {
    let all = object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let known = [FINALIZER, finalizers::ORPHAN, "foregroundDeletion"];
    all.filter(|name| !known.contains(name)).map(str::to_owned).collect()
}

/// Reports whether an object has the finalizer of the migration, and neither that of classic OLM nor that of the garbage
/// collector, which first removes all owner references to it.
fn is_held(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    let has = |name: &str| finalizers.is_some_and(|all| all.iter().any(|finalizer| finalizer == name));
    has(FINALIZER) && !has(CLEANUP) && !has(finalizers::ORPHAN)
}

/// Sign of an upgrade by classic OLM. While the Subscription exists, it must have installed the ClusterServiceVersion of
/// the plan, and nothing else, except for an upgrade in one of the `waiting` InstallPlans. One of a rollback that did not
/// end, which has none of the UIDs `known`, may have no status yet. `csvs` are those of the namespace.
fn upgrade(
    plan: &PackagePlan,
    (subscription, known): (Option<&Value>, &[String]),
    csv: Option<&Value>,
    (csvs, waiting): (&[Value], &[&Value]),
) -> Option<String> {
    let expected = plan.csv.as_str();
    if let Some(next) = csvs.iter().find(|csv| csv["spec"]["replaces"] == expected) {
        return Some(format!("{} replaces {expected}", ObjectId::of(next)));
    }
    // An upgrade over several or skipped versions replaces another one.
    if let Some(other) = csvs.iter().find(|csv| csv["metadata"]["name"] != expected && is_of(csv, plan)) {
        return Some(format!("{} is another version of {}", ObjectId::of(other), plan.package));
    }
    let subscription = subscription.filter(|found| found["metadata"]["deletionTimestamp"].is_null())?;
    let is_known = known.is_empty() || known.contains(&ObjectId::of(subscription).uid);
    if !is_known && subscription["spec"]["source"] == PAUSED {
        return None;
    }
    for field in ["installedCSV", "currentCSV"] {
        let found = subscription["status"][field].as_str().unwrap_or_default();
        let has_found = |plan: &&Value| InstallPlan::of(plan).csvs.iter().any(|csv| csv == found);
        let is_waiting = field == "currentCSV" && waiting.iter().any(has_found);
        if found != expected && !is_waiting {
            let id = ObjectId::of(subscription);
            return Some(format!("{id}: status.{field} is {found:?}, expected {expected}"));
        }
    }
    let is_deleting = |csv: &Value| !csv["metadata"]["deletionTimestamp"].is_null();
    // A migration that has begun deletes the ClusterServiceVersion first.
    if csv.map_or(!known.is_empty(), is_deleting) {
        return None;
    }
    let phase = csv.and_then(|csv| csv["status"]["phase"].as_str()).unwrap_or("missing");
    (phase != "Succeeded").then(|| {
        let namespace = &plan.namespace;
        format!("ClusterServiceVersion {namespace}/{expected}: phase {phase}, expected Succeeded")
    })
}

/// Reports whether a ClusterServiceVersion of the namespace is of the package, and not a copy.
fn is_of(csv: &Value, plan: &PackagePlan) -> bool {
    let labels = &csv["metadata"]["labels"];
    labels.get(COPIED_FROM).is_none()
        && (package(csv) == plan.package || labels.get(component(plan)).is_some())
}

/// Webhook definitions of a ClusterServiceVersion without those of conversions. `None` if it has no conversion.
pub(crate) fn kept_webhooks(csv: &Value) -> Option<Vec<&Value>> {
    let all = csv["spec"]["webhookdefinitions"].as_array()?;
    let kept: Vec<&Value> = all.iter().filter(|webhook| webhook["type"] != "ConversionWebhook").collect();
    (kept.len() < all.len()).then_some(kept)
}

/// Packages of `plan.after` that classic OLM still has, as `namespace/package`.
async fn open_dependents(access: &ObjectAccess<'_>, plan: &PackagePlan) -> Result<Vec<String>, CliError> {
    if plan.after.is_empty() {
        return Ok(Vec::new());
    }
    let subscriptions = access.list((V1ALPHA1, "Subscription"), "", None).await?;
    let id = |subscription: &Value| {
        let text = |pointer: &str| {
            subscription.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        format!("{}/{}", text("/metadata/namespace"), text("/spec/name"))
    };
    let found: BTreeSet<String> = subscriptions.iter().map(id).collect();
    Ok(plan.after.iter().filter(|id| found.contains(*id)).cloned().collect())
}

async fn catalogs(access: &ObjectAccess<'_>, plan: &PackagePlan) -> Result<CatalogState, CliError> {
    let mut state = CatalogState::default();
    for catalog in &plan.catalogs {
        let id = ObjectId::of(catalog);
        match access.get(&id).await? {
            None => state.missing.push(catalog.clone()),
            Some(found) if condition(&found, "Serving")["status"] == "True" => {}
            Some(found) => {
                let message = condition(&found, "Progressing")["message"].as_str().unwrap_or("no status yet");
                state.unserved.push(format!("{}: {message}", id.name));
            }
        }
    }
    Ok(state)
}

fn condition<'o>(object: &'o Value, type_: &str) -> &'o Value {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == type_);
    found.unwrap_or(&Value::Null)
}

/// State of the extension of the plan. `recorded` is the UID of the extension of the migration, known once the pin is
/// opened. Before, the digest identifies it.
fn extension_state(
    plan: &PackagePlan,
    recorded: Option<&str>,
    extension: Option<&Value>,
    live: &Live,
) -> ExtensionState {
    let Some(extension) = extension else { return ExtensionState::Absent };
    let is_same = |pointer: &str| extension.pointer(pointer) == plan.extension.pointer(pointer);
    let metadata = &extension["metadata"];
    let is_ours = match recorded {
        Some(uid) => metadata["uid"] == uid,
        None => metadata["annotations"].get(annotations::EXT_ADOPT).is_some(),
    };
    if !is_ours || !is_same("/spec/source/catalog/packageName") || !is_same("/spec/namespace") {
        return ExtensionState::Foreign;
    }
    if !metadata["deletionTimestamp"].is_null() {
        let message = condition(extension, "Progressing")["message"].as_str().unwrap_or_default();
        return ExtensionState::Installing(format!("the present one is being deleted: {message}"));
    }
    let version = extension.pointer("/status/install/bundle/version").and_then(Value::as_str);
    let is_paused = metadata["annotations"][annotations::EXT_PAUSED] == "true";
    if is_paused && version.is_none_or(|version| version == plan.version) {
        return ExtensionState::Paused(ObjectId::of(extension));
    }
    // Conditions can be older than the release of objects by a rollback. A later version may not have them.
    let is_released = |id: &&ObjectId| live.get(*id).is_some_and(|live| controller(live).is_none());
    let is_planned = version == Some(&plan.version);
    let released = plan.adopted.iter().find(is_released).filter(|_| is_planned);
    if is_open(plan, extension) && released.is_none() {
        return ExtensionState::Opened;
    }
    let generation = &extension["metadata"]["generation"];
    let is_true = |type_: &str| {
        let condition = condition(extension, type_);
        condition["status"] == "True"
            && condition["reason"] == "Succeeded"
            && condition["observedGeneration"] == *generation
    };
    if is_true("Installed") && is_true("Progressing") && is_planned {
        let is_opened = opening(plan).is_none_or(|patch| contains(extension, &patch));
        return match released {
            Some(id) => ExtensionState::Installing(format!("{id} is not adopted yet")),
            None if is_opened => ExtensionState::Opened,
            None => ExtensionState::Pinned,
        };
    }
    let progressing = condition(extension, "Progressing");
    let text = |field: &str| progressing[field].as_str().unwrap_or_default().to_owned();
    let is_current = progressing["observedGeneration"] == *generation;
    match progressing["reason"].as_str() {
        Some("Blocked") if is_current => {
            let digest = extension["metadata"]["annotations"][annotations::EXT_ADOPT].as_str();
            ExtensionState::Blocked {
                digest: digest.unwrap_or_default().to_owned(),
                message: text("message"),
            }
        }
        Some(reason) => ExtensionState::Installing(format!("{reason}: {}", text("message"))),
        None => ExtensionState::Installing("operator-controller has not reconciled it yet".to_owned()),
    }
}

/// Reports whether an extension has neither the digest nor the pin of the migration any more.
pub(crate) fn is_open(plan: &PackagePlan, extension: &Value) -> bool {
    let (found, pinned) =
        (&extension["spec"]["source"]["catalog"], &plan.extension["spec"]["source"]["catalog"]);
    let is_empty = |value: &Value| value.as_array().map_or_else(|| value.is_null(), Vec::is_empty);
    let is_same =
        |field: &str| found[field] == pinned[field] || is_empty(&found[field]) && is_empty(&pinned[field]);
    let is_pinned = ["version", "channels"].into_iter().all(is_same);
    extension["metadata"]["annotations"].get(annotations::EXT_ADOPT).is_none() && !is_pinned
}

/// Digest of the objects to adopt, with their present UIDs.
fn digest(plan: &PackagePlan, live: &Live) -> String {
    let object = |id: &ObjectId| {
        let object = live.get(id)?;
        Some(AdoptedObject { object: ObjectName::of(object), uid: ObjectId::of(object).uid })
    };
    adoption_digest(&plan.adopted.iter().filter_map(object).collect::<Vec<_>>())
}

/// Merge patch that removes the pin and the digest. `None` if the plan keeps both.
pub(crate) fn opening(plan: &PackagePlan) -> Option<Value> {
    let changeable = |extension: &Value| {
        let map = |field: &str| match &extension["metadata"][field] {
            Value::Null => serde_json::json!({}),
            map => map.clone(),
        };
        serde_json::json!({
            "metadata": { "annotations": map("annotations"), "labels": map("labels") },
            "spec": extension["spec"],
        })
    };
    merge_patch(&changeable(&plan.extension), &changeable(&plan.opened))
}

/// Merge patch that pins the version of a paused extension like the first one, and resumes it: an upgrade must not begin
/// while it does not own its objects. Channels that were set meanwhile are removed, too.
pub(crate) fn resuming(plan: &PackagePlan) -> Value {
    let mut pin = merge_patch(&plan.opened["spec"], &plan.extension["spec"]).unwrap_or_default();
    for field in ["version", "channels"] {
        pin["source"]["catalog"][field] = plan.extension["spec"]["source"]["catalog"][field].clone();
    }
    let policy = &plan.opened["metadata"]["annotations"][annotations::EXT_UNINSTALL_POLICY];
    serde_json::json!({
        "metadata": { "annotations": { (annotations::EXT_PAUSED): null, (annotations::EXT_UNINSTALL_POLICY): policy } },
        "spec": pin,
    })
}

/// Before the backup: objects to adopt that are missing or were replaced, and objects to create that exist already.
/// Afterwards: objects of the backup that are missing, and CRDs without their conversion webhook. Empty once the UID of
/// the extension is recorded: then everything was restored.
fn lost(
    plan: &PackagePlan,
    backup: Option<&Backup>,
    live: &Live,
    extension: &ExtensionState,
    is_recorded: bool,
) -> Vec<ObjectId> {
    let Some(backup) = backup else {
        let is_same =
            |id: &ObjectId| live.get(id).is_some_and(|object| object["metadata"]["uid"] == id.uid.as_str());
        let adopted = plan.adopted.iter().filter(|id| !is_same(id));
        return adopted.chain(plan.created.iter().filter(|id| live.contains_key(id))).cloned().collect();
    };
    let left = plan.left.iter().map(|left| &left.object);
    let left = left.filter(|id| id.kind == "OperatorCondition" || !id.api_version.starts_with(CLASSIC));
    // From its creation on, the extension repairs what it adopts.
    let adopted = plan.adopted.iter().filter(|_| *extension == ExtensionState::Absent);
    let is_lost = |id: &&ObjectId| {
        let Some(saved) = backup.object(&id.kind, &id.namespace, &id.name) else { return false };
        let Some(live) = live.get(*id) else { return true };
        // Classic OLM removes the conversion webhook with the ClusterServiceVersion.
        saved["spec"]["conversion"]["strategy"] == "Webhook"
            && live["spec"]["conversion"]["strategy"] == "None"
    };
    if is_recorded && *extension != ExtensionState::Absent {
        return Vec::new();
    }
    adopted.chain(left).filter(is_lost).cloned().collect()
}

/// Webhook configurations of the extension that do not exist or have no CA.
async fn unready_webhooks(access: &ObjectAccess<'_>, plan: &PackagePlan) -> Result<Vec<String>, CliError> {
    let mut unready = Vec::new();
    for id in plan.created.iter().filter(|id| id.kind.ends_with("WebhookConfiguration")) {
        let found = access.get(id).await?;
        let webhooks = found.as_ref().and_then(|found| found["webhooks"].as_array());
        let has_ca =
            |webhook: &Value| webhook["clientConfig"]["caBundle"].as_str().is_some_and(|ca| !ca.is_empty());
        if !webhooks.is_some_and(|webhooks| webhooks.iter().all(has_ca)) {
            unready.push(id.to_string());
        }
    }
    Ok(unready)
}

/// Objects to remove that exist with the UID of the plan, or as a rollback creates them again. Classic OLM creates the
/// Operator object again while objects have its label: that one has another UID, and stays.
fn leftovers(plan: &PackagePlan, backup: Option<&Backup>, live: &Live) -> Vec<ObjectId> {
    let found = plan.removed.iter().filter_map(|removed| Some((&removed.object, live.get(&removed.object)?)));
    let is_same = |(id, object): &(&ObjectId, &Value)| {
        let saved = backup.and_then(|backup| backup.object(&id.kind, &id.namespace, &id.name));
        let is_ours = object["metadata"]["uid"] == id.uid.as_str()
            || saved.is_some_and(|saved| is_recreated(saved, object));
        is_ours && object["metadata"]["deletionTimestamp"].is_null()
    };
    found.filter(is_same).map(|(_, object)| ObjectId::of(object)).collect()
}

/// Objects for the backup, as they are. Classic OLM makes copies of ClusterServiceVersions itself.
pub(crate) async fn saved(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
    live: &Live,
) -> Result<Vec<Value>, CliError> {
    let mut objects = Vec::new();
    for (kind, name) in [("Subscription", &plan.subscription), ("ClusterServiceVersion", &plan.csv)] {
        let id = classic(plan, kind, name);
        let found = access.get(&id).await?;
        objects.push(found.ok_or_else(|| CliError::operational(format!("{id} does not exist any more")))?);
    }
    let is_copy = |id: &ObjectId| id.kind == "ClusterServiceVersion";
    let mut rest: Vec<(&ObjectId, &Value)> = live.iter().filter(|(id, _)| !is_copy(id)).collect();
    rest.sort_by_key(|(id, _)| *id);
    objects.extend(rest.into_iter().map(|(_, object)| object.clone()));
    objects.iter_mut().for_each(without_unneeded);
    Ok(objects)
}

/// Removes what a backup does not need: field managers, and tokens, which Kubernetes writes again.
fn without_unneeded(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    if object["kind"] == "Secret" && object["type"] == "kubernetes.io/service-account-token" {
        object.as_object_mut().map(|secret| secret.remove("data"));
    }
}

#[cfg(test)]
#[path = "observe_tests.rs"]
mod tests;
