//! Observation of an extension: itself, its revisions, and the objects of the active ones. Reads only.
//!
//! Objects that the caller may not read are marked as unreadable. The rest is read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use olm_api::finalizers::TEARDOWN;
use olm_api::{ClusterExtension, ClusterObjectSet, labels};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use olm_revision::blocked_pods::Cause;
use olm_revision::cluster::{ApiErrorReason, Cluster as _};
use olm_revision::content::{ContentObject, ContentPhase, SecretKey, resolve_as_is, secrets};
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::object::ObjectKey;
use olm_revision::plan::Owner;
use olm_revision::probes::{Probes, default_probes};
use olm_version::quote;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

/// Concurrent reads.
const CONCURRENT_READS: usize = 8;
/// Deadline for all objects of an extension together. Objects that are not read by then are marked as unreadable.
const TIME_FOR_OBJECTS: Duration = Duration::from_secs(60);
/// Highest number of unready Deployments whose pods are read.
const DEPLOYMENTS: usize = 4;
/// Longest label value, in bytes.
const LONGEST_LABEL: usize = 63;
/// Highest number of names that are listed if the requested one does not exist.
const NAMED: usize = 10;

/// Observed extension.
#[derive(Debug)]
pub struct Observed {
    /// The extension as read.
    pub extension: ClusterExtension,
    /// Revisions, oldest first.
    pub revisions: Vec<ObservedRevision>,
    /// Text of the last Event about corrected drift.
    pub(crate) drift: Option<String>,
}

/// Observed revision.
#[derive(Debug)]
pub struct ObservedRevision {
    /// The revision as read.
    pub set: ClusterObjectSet,
    /// Phases in order, none if its removal has ended. The error is the reason for which they cannot be read.
    pub content: Result<Vec<PhaseStatus>, String>,
}

/// Phase of a revision.
#[derive(Debug)]
pub struct PhaseStatus {
    pub(crate) name: String,
    /// Objects in the order of application.
    pub objects: Vec<ObservedObject>,
}

/// Object of a revision.
#[derive(Debug)]
pub struct ObservedObject {
    /// Desired object of the revision.
    pub content: ContentObject,
    /// Live object.
    pub live: Live,
    /// Cause for which the pods of an unready Deployment are not ready.
    pub(crate) cause: Option<Cause>,
}

/// State of a live object.
#[derive(Clone, Debug, PartialEq)]
pub enum Live {
    /// The object as the API server has it.
    Found(Value),
    /// No object has the name.
    Missing,
    /// The API server does not serve the kind.
    NotServed,
    /// Reason for which the object cannot be read.
    Unreadable(String),
}

/// Reads the extension `name` with its revisions and objects.
///
/// # Errors
/// The extension does not exist, or it or its revisions cannot be read. Unreadable objects are not an error.
pub async fn observe(
    cluster: &ClusterConnection,
    name: &str,
    session: &Session,
) -> Result<Observed, CliError> {
    let extension = extension(cluster, name, session).await?;
    let revisions = revisions(cluster, name, session).await?;
    let _step = session.progress.step(format!("reading the objects of {name}"));
    session.interruptible(below(cluster, extension, revisions)).await
}

/// The extension `name`.
///
/// # Errors
/// It does not exist, in which case the message lists the existing ones, or it cannot be read.
pub async fn extension(
    cluster: &ClusterConnection,
    name: &str,
    session: &Session,
) -> Result<ClusterExtension, CliError> {
    if let Some(found) = cluster.find_extension(name, session).await? {
        return Ok(found);
    }
    let mut names: Vec<String> =
        cluster.extensions(session).await?.iter().map(ResourceExt::name_any).collect();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let names = match (names.is_empty(), more) {
        (true, _) => "the cluster has no ClusterExtensions".to_owned(),
        (false, 0) => format!("existing: {}", names.join(", ")),
        (false, more) => format!("existing: {} and {more} more", names.join(", ")),
    };
    Err(CliError::no_candidate(format!("there is no ClusterExtension {}; {names}", quote(name))))
}

/// The extension `name`, which is not being deleted.
///
/// # Errors
/// It does not exist, is being deleted, or cannot be read.
pub async fn changeable_extension(
    cluster: &ClusterConnection,
    name: &str,
    session: &Session,
) -> Result<ClusterExtension, CliError> {
    let found = extension(cluster, name, session).await?;
    if found.metadata.deletion_timestamp.is_some() {
        return Err(CliError::findings(format!("ClusterExtension {} is being deleted", quote(name))));
    }
    Ok(found)
}

/// Revisions of the extension `name`, oldest first.
///
/// # Errors
/// The API server does not return them.
pub async fn revisions(
    cluster: &ClusterConnection,
    name: &str,
    session: &Session,
) -> Result<Vec<ClusterObjectSet>, CliError> {
    if name.len() > LONGEST_LABEL {
        // No owner label can have this value.
        return Ok(Vec::new());
    }
    let api: Api<ClusterObjectSet> = Api::all(cluster.client().clone());
    let of_name = ListParams::default().labels(&format!("{}={name}", labels::OWNER_NAME));
    let what = format!("the revisions (ClusterObjectSets) of {}", quote(name));
    let mut revisions = cluster.call(&what, api.list(&of_name), session).await?.items;
    revisions.retain(|revision| olm_request::owner(revision) == Some(name));
    revisions.sort_by_key(|revision| (revision.number(), revision.name_any()));
    Ok(revisions)
}

/// The revision as owner of its objects.
pub(crate) fn owner(revision: &ClusterObjectSet) -> Owner {
    Owner {
        name: revision.name_any(),
        uid: revision.uid().unwrap_or_default(),
        number: revision.number(),
        extension: olm_request::owner(revision).unwrap_or_default().to_owned(),
    }
}

/// Stored content of a revision. The error contains the reason for which it cannot be read.
pub async fn stored(
    cluster: &ClusterConnection,
    revision: &ClusterObjectSet,
) -> Result<Vec<ContentPhase>, String> {
    let Some(spec) = &revision.spec else { return Ok(Vec::new()) };
    let read = |key: SecretKey| async move {
        let api: Api<Secret> = Api::namespaced(cluster.client().clone(), &key.namespace);
        match olm_runtime::cluster::within_deadline(api.get_opt(&key.name)).await {
            Ok(secret) => Ok(secret.map(|secret| (key, secret))),
            Err(error) => {
                let why = olm_runtime::cluster::describe(&error);
                Err(format!("Secret {key}: {why}"))
            }
        }
    };
    let reads = secrets(spec, cluster.namespace()).into_iter().map(read);
    let found: Vec<Option<_>> = stream::iter(reads).buffered(CONCURRENT_READS).try_collect().await?;
    let found: BTreeMap<SecretKey, Secret> = found.into_iter().flatten().collect();
    resolve_as_is(spec, cluster.namespace(), &found)
}

async fn below(
    cluster: &ClusterConnection,
    extension: ClusterExtension,
    revisions: Vec<ClusterObjectSet>,
) -> Observed {
    let mut contents = Vec::new();
    for revision in &revisions {
        // Archived and deleted revisions have objects until their removal ends.
        let has_objects = revision.is_active() || revision.finalizers().iter().any(|one| one == TEARDOWN);
        contents.push(if has_objects { stored(cluster, revision).await } else { Ok(Vec::new()) });
    }
    let held = contents.iter().flatten().flatten().flat_map(|phase| &phase.objects);
    let live = live(cluster, held.map(|held| ObjectKey::of(&held.object))).await;
    let causes = causes(cluster, &live).await;
    let content =
        |phases: Vec<ContentPhase>| phases.into_iter().map(|phase| observed(phase, &live, &causes)).collect();
    let observed = revisions.into_iter().zip(contents);
    let observed =
        observed.map(|(revision, held)| ObservedRevision { set: revision, content: held.map(content) });
    let drift = drift(cluster, &extension.name_any()).await;
    Observed { extension, revisions: observed.collect(), drift }
}

/// Text of the last Event about corrected drift. `None` without any, or if Events cannot be read.
async fn drift(cluster: &ClusterConnection, extension: &str) -> Option<String> {
    let api: Api<Event> = Api::namespaced(cluster.client().clone(), "default");
    let only =
        format!("involvedObject.kind=ClusterExtension,involvedObject.name={extension},reason=DriftCorrected");
    let listed = ListParams::default().fields(&only);
    let events = olm_runtime::cluster::within_deadline(api.list(&listed)).await.ok()?.items;
    events.into_iter().max_by_key(|event| event.metadata.creation_timestamp.clone())?.message
}

/// Causes for which pods of these Deployments are not ready. Without the right to read pods, only those that their
/// Deployments have.
async fn causes(cluster: &ClusterConnection, live: &HashMap<ObjectKey, Live>) -> HashMap<ObjectKey, Cause> {
    let deployments = live.iter().filter_map(|(key, live)| match live {
        Live::Found(object) if key.gvk.kind == "Deployment" && !is_available(object) => Some((key, object)),
        _ => None,
    });
    let (engine, mut causes) = (KubeCluster::new(cluster.client().clone()), HashMap::new());
    for (key, deployment) in deployments.take(DEPLOYMENTS) {
        let cause = engine.blocked_pods(deployment).await;
        causes.extend(cause.map(|cause| (key.clone(), cause)));
    }
    causes
}

fn is_available(deployment: &Value) -> bool {
    Probes::new(&default_probes()).is_ok_and(|probes| probes.probe(deployment).is_ready())
}

fn observed(
    phase: ContentPhase,
    live: &HashMap<ObjectKey, Live>,
    causes: &HashMap<ObjectKey, Cause>,
) -> PhaseStatus {
    let object = |content: ContentObject| {
        let key = ObjectKey::of(&content.object);
        let live = live.get(&key).cloned().unwrap_or(Live::Missing);
        ObservedObject { content, live, cause: causes.get(&key).cloned() }
    };
    PhaseStatus { name: phase.name, objects: phase.objects.into_iter().map(object).collect() }
}

/// Live objects, each read once even if several revisions contain it.
async fn live(
    cluster: &ClusterConnection,
    keys: impl Iterator<Item = ObjectKey>,
) -> HashMap<ObjectKey, Live> {
    let engine = KubeCluster::new(cluster.client().clone());
    let end = Instant::now() + TIME_FOR_OBJECTS;
    let read = |key: ObjectKey| {
        let engine = engine.clone();
        async move {
            let live = match timeout_at(end, engine.get(&key)).await {
                Ok(Ok(Some(object))) => Live::Found(object),
                Ok(Ok(None)) => Live::Missing,
                Ok(Err(error)) if error.reason == ApiErrorReason::UnknownKind => Live::NotServed,
                Ok(Err(error)) => Live::Unreadable(error.message),
                Err(_) => Live::Unreadable(format!(
                    "not read within {} s, the deadline for all objects together",
                    TIME_FOR_OBJECTS.as_secs()
                )),
            };
            (key, live)
        }
    };
    let unique: HashSet<ObjectKey> = keys.collect();
    stream::iter(unique.into_iter().map(read)).buffer_unordered(CONCURRENT_READS).collect().await
}
