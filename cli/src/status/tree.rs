//! State of an extension as a tree: extension, revisions, phases, objects.
//!
//! Pure. Readiness and ownership of objects come from the functions that operator-controller calls.

use kube::ResourceExt;
use olm_api::conditions::{self, reasons, types};
use olm_api::{ClusterExtension, ClusterObjectSet, Condition, annotations, labels, names};
use olm_revision::blocked_pods::Cause;
use olm_revision::immutable::remedies;
use olm_revision::object::ObjectKey;
use olm_revision::plan::{Owner, Plan, plan};
use olm_revision::probes::{ProbeStatus, Probes};
use serde::Serialize;
use serde_json::Value;

use super::health::{Health, Hold, is_paused};
use super::observe::{Live, Observed, ObservedObject, ObservedPhase, ObservedRevision, owner};
use crate::output::qualified;

/// Extension as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExtensionState {
    pub(crate) name: String,
    pub(crate) health: Health,
    /// `true` if the conditions have the current generation.
    pub(crate) up_to_date: bool,
    pub(crate) namespace: String,
    pub(crate) package: String,
    /// `spec.source.catalog.version`. Empty for any version.
    pub(crate) requested_version: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) channels: Vec<String>,
    pub(crate) upgrade_constraint_policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) installed: Option<BundleState>,
    /// Newer version that the extension does not move to, by `status.availableVersion`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) available_version: Option<String>,
    pub(crate) paused: bool,
    /// Revision that adopted the installation from the reference's Helm applier, as long as it exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) adopted_from_helm: Option<String>,
    /// Holds on upgrades, or on all changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) holds: Vec<Hold>,
    /// Last report of corrected drift: fields, their other managers, and numbers of corrections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drift: Option<String>,
    /// Remedies for objects with immutable fields that block the rollout.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) remedies: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<String>,
    pub(crate) conditions: Vec<Condition>,
    /// Newest first.
    pub(crate) revisions: Vec<RevisionState>,
}

/// Bundle name and version.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct BundleState {
    pub(crate) name: String,
    pub(crate) version: String,
}

/// Revision as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RevisionState {
    pub(crate) name: String,
    pub(crate) revision: i64,
    pub(crate) stage: Stage,
    /// `true` if the revision has rolled out once.
    pub(crate) succeeded: bool,
    pub(crate) bundle: String,
    pub(crate) version: String,
    pub(crate) image: String,
    pub(crate) adopted_from_helm: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<String>,
    /// Error in the revision's conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Reason for which its objects cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unreadable: Option<String>,
    pub(crate) conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) phases: Vec<PhaseState>,
}

/// Rollout stage of a revision (docs/design/apply.md#revision-conditions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Stage {
    New,
    RollingOut,
    Retrying,
    Blocked,
    DeadlineExceeded,
    Succeeded,
    Archiving,
    Archived,
    Deleting,
}

/// Phase as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PhaseState {
    pub(crate) name: String,
    pub(crate) progress: Progress,
    /// Number of settled objects.
    pub(crate) ready: usize,
    pub(crate) objects: Vec<ObjectState>,
}

/// Progress of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Progress {
    /// All objects are settled.
    Complete,
    /// First phase with unsettled objects.
    Current,
    /// An earlier phase is not complete.
    Waiting,
}

/// Object as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectState {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) state: ObjectStatus,
    /// Reasons for the state. Empty for a settled object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) messages: Vec<String>,
    /// Controller owner, as `Kind name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<String>,
    /// Cause for which its pods are not ready. Part of the messages.
    #[serde(skip)]
    cause: Option<Cause>,
}

/// State of an object with respect to a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum ObjectStatus {
    /// The revision controls it, and its probes succeed.
    Ready,
    /// The revision controls it, and a probe fails.
    NotReady,
    /// A newer revision controls it.
    HandedOver,
    /// It exists, and the revision may adopt it but has not.
    NotTaken,
    /// It exists, and has another owner.
    Collision,
    Deleting,
    Missing,
    /// The API server does not serve its kind.
    NotServed,
    /// The caller may not read it, or the API server did not answer.
    Unknown,
}

impl ObjectStatus {
    /// Reports whether the object needs no further change.
    pub(crate) fn is_settled(self) -> bool {
        matches!(self, Self::Ready | Self::HandedOver)
    }

    /// State in words.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotReady => "not ready",
            Self::HandedOver => "handed over",
            Self::NotTaken => "not adopted yet",
            Self::Collision => "collision",
            Self::Deleting => "being deleted",
            Self::Missing => "missing",
            Self::NotServed => "kind not served",
            Self::Unknown => "cannot be read",
        }
    }
}

impl ExtensionState {
    /// Builds the tree.
    pub(crate) fn new(observed: &Observed) -> Self {
        let Observed { extension, revisions, drift } = observed;
        let sets: Vec<&ClusterObjectSet> = revisions.iter().map(|revision| &revision.set).collect();
        let state = |revision| RevisionState::new(revision, &sets);
        let revisions = revisions.iter().rev().map(state).collect();
        Self { revisions, drift: drift.clone(), ..Self::alone(extension, &sets) }
    }

    /// State of the extension without its revisions, which only decide whether an adoption from Helm is shown.
    pub(crate) fn alone(extension: &ClusterExtension, sets: &[&ClusterObjectSet]) -> Self {
        let spec = extension.spec.as_ref();
        let catalog = spec.and_then(|spec| spec.source.catalog.as_ref());
        let status = extension.status.as_ref();
        let conditions = status.map(|status| status.conditions.clone()).unwrap_or_default();
        let generation = extension.metadata.generation;
        let is_current = |condition: &Condition| condition.observed_generation >= generation;
        let policy = catalog.and_then(|catalog| catalog.upgrade_constraint_policy.as_ref());
        let migrated = sets.iter().find(|set| is_migrated(set));
        let progressing = conditions::find(&conditions, types::PROGRESSING);
        Self {
            name: extension.metadata.name.clone().unwrap_or_default(),
            health: Health::of(extension),
            up_to_date: progressing.is_some_and(is_current),
            namespace: spec.map(|spec| spec.namespace.clone()).unwrap_or_default(),
            package: catalog.map(|catalog| catalog.package_name.clone()).unwrap_or_default(),
            requested_version: catalog.and_then(|catalog| catalog.version.clone()).unwrap_or_default(),
            channels: catalog.map(|catalog| catalog.channels.clone()).unwrap_or_default(),
            upgrade_constraint_policy: policy.map_or("CatalogProvided", |policy| policy.as_str()).to_owned(),
            installed: installed(extension),
            available_version: status.and_then(|status| status.available_version.clone()),
            paused: is_paused(extension),
            adopted_from_helm: migrated.and_then(|set| set.metadata.name.clone()),
            holds: Hold::all(extension),
            drift: None,
            remedies: progressing.map(|condition| remedies(&condition.message)).unwrap_or_default(),
            created: created(&extension.metadata),
            conditions,
            revisions: Vec::new(),
        }
    }

    /// Sentence about the first Deployment whose pods are not ready for a known reason, and whether waiting is futile.
    pub(crate) fn blocked_pods(&self) -> Option<(String, bool)> {
        self.revisions.iter().find_map(RevisionState::blocked_pods)
    }
}

/// Newest active revision, with its state.
fn newest(observed: &Observed) -> Option<(&ClusterObjectSet, RevisionState)> {
    let sets: Vec<&ClusterObjectSet> = observed.revisions.iter().map(|revision| &revision.set).collect();
    let newest = observed.revisions.iter().rev().find(|revision| revision.set.is_active())?;
    Some((&newest.set, RevisionState::new(newest, &sets)))
}

/// Installed bundle according to the status.
pub(crate) fn installed(extension: &ClusterExtension) -> Option<BundleState> {
    let bundle = &extension.status.as_ref()?.install.as_ref()?.bundle;
    Some(BundleState { name: bundle.name.clone(), version: bundle.version.clone() })
}

/// First unsettled object of the newest active revision, with the reason.
pub(crate) fn blocker(observed: &Observed) -> Option<String> {
    newest(observed)?.1.blocker()
}

/// Failure of the newest active revision that lasts until its content changes: of its pods, or a refused CRD.
pub(crate) fn futile(observed: &Observed) -> Option<String> {
    let (set, state) = newest(observed)?;
    if let Some((why, true)) = state.blocked_pods() {
        return Some(why);
    }
    let message = &set.condition(types::PROGRESSING)?.message;
    let (_, refused) = message.split_once("CustomResourceDefinition.apiextensions.k8s.io ")?;
    refused.contains(" is invalid: ").then(|| message.clone())
}

/// Reports whether the revision adopted an installation from the reference's Helm applier
/// (docs/design/apply.md#migration-to-revision-1).
pub(crate) fn is_migrated(set: &ClusterObjectSet) -> bool {
    let label = set.metadata.labels.as_ref().and_then(|all| all.get(labels::MIGRATED_FROM_HELM));
    label.is_some_and(|value| value == "true")
}

/// `metadata.creationTimestamp`.
pub(crate) fn created(metadata: &olm_api::ObjectMeta) -> Option<String> {
    metadata.creation_timestamp.as_ref().map(|time| time.0.to_string())
}

impl RevisionState {
    /// State of a revision with its objects. `all` are the revisions of its extension.
    fn new(observed: &ObservedRevision, all: &[&ClusterObjectSet]) -> Self {
        let ObservedRevision { set, content } = observed;
        let (phases, unreadable) = match content {
            _ if !set.is_active() => (Vec::new(), None),
            Err(why) => (Vec::new(), Some(why.clone())),
            Ok(phases) => match ObjectJudge::new(set, all) {
                Ok(judge) => (judge.phases(phases), None),
                Err(why) => (Vec::new(), Some(why)),
            },
        };
        Self { phases, unreadable, ..Self::alone(set) }
    }

    /// State of a revision without its objects.
    pub(crate) fn alone(set: &ClusterObjectSet) -> Self {
        let annotation = |key: &str| set.annotation(key).unwrap_or_default().to_owned();
        let conditions = set.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        Self {
            name: set.metadata.name.clone().unwrap_or_default(),
            revision: set.number(),
            stage: Stage::of(set, &conditions),
            succeeded: conditions::is_true(&conditions, types::SUCCEEDED),
            bundle: annotation(annotations::BUNDLE_NAME),
            version: annotation(annotations::BUNDLE_VERSION),
            image: annotation(annotations::BUNDLE_REFERENCE),
            adopted_from_helm: is_migrated(set),
            created: created(&set.metadata),
            error: error(&conditions),
            unreadable: None,
            conditions,
            phases: Vec::new(),
        }
    }

    fn blocked_pods(&self) -> Option<(String, bool)> {
        self.phases.iter().flat_map(|phase| &phase.objects).find_map(|object| {
            let cause = object.cause.as_ref()?;
            let name = qualified(&object.namespace, &object.name);
            Some((format!("{} {name}: {}", object.kind, cause.words()), cause.is_final))
        })
    }

    fn blocker(&self) -> Option<String> {
        let current = self.phases.iter().find(|phase| phase.progress == Progress::Current)?;
        let object = current.objects.iter().find(|object| !object.state.is_settled())?;
        Some(format!("phase {}: {object}", current.name))
    }
}

/// Error in the conditions: the reason for which the rollout fails, else the failing probes.
fn error(conditions: &[Condition]) -> Option<String> {
    let progressing = conditions::find(conditions, types::PROGRESSING).filter(|condition| {
        let harmless = [reasons::SUCCEEDED, reasons::ROLLING_OUT, reasons::ARCHIVED];
        !harmless.contains(&condition.reason.as_str())
    });
    let unavailable = conditions::find(conditions, types::AVAILABLE)
        .filter(|condition| condition.reason == reasons::PROBE_FAILURE);
    let mut messages: Vec<&str> =
        progressing.into_iter().chain(unavailable).map(|condition| condition.message.trim_end()).collect();
    messages.dedup();
    (!messages.is_empty()).then(|| messages.join("\n"))
}

impl Stage {
    fn of(set: &ClusterObjectSet, conditions: &[Condition]) -> Self {
        let progressing = conditions::find(conditions, types::PROGRESSING);
        let reason = progressing.map(|condition| condition.reason.as_str()).unwrap_or_default();
        match reason {
            _ if set.metadata.deletion_timestamp.is_some() => Self::Deleting,
            reasons::ARCHIVED if set.is_archived() => Self::Archived,
            reasons::BLOCKED => Self::Blocked,
            _ if set.is_archived() => Self::Archiving,
            reasons::RETRYING => Self::Retrying,
            reasons::PROGRESS_DEADLINE_EXCEEDED => Self::DeadlineExceeded,
            reasons::SUCCEEDED => Self::Succeeded,
            "" => Self::New,
            _ => Self::RollingOut,
        }
    }
}

/// Inputs to judge objects on behalf of a revision.
struct ObjectJudge<'a> {
    owner: Owner,
    siblings: Vec<String>,
    probes: Probes,
    /// All revisions of the extension.
    all: &'a [&'a ClusterObjectSet],
}

impl<'a> ObjectJudge<'a> {
    fn new(set: &ClusterObjectSet, all: &'a [&'a ClusterObjectSet]) -> Result<Self, String> {
        let owner = owner(set);
        let specs = set.spec.as_ref().map(|spec| spec.progression_probes.as_slice()).unwrap_or_default();
        let probes = Probes::new(specs).map_err(|error| error.to_string())?;
        let active = all.iter().filter(|other| other.is_active()).filter_map(|other| other.uid());
        Ok(Self { siblings: active.filter(|uid| *uid != owner.uid).collect(), owner, probes, all })
    }

    fn phases(&self, phases: &[ObservedPhase]) -> Vec<PhaseState> {
        let mut is_reached = true;
        let phase = |phase: &ObservedPhase| {
            let objects: Vec<ObjectState> = phase.objects.iter().map(|object| self.object(object)).collect();
            let ready = objects.iter().filter(|object| object.state.is_settled()).count();
            let complete = ready == objects.len();
            let progress = match (complete, is_reached) {
                (true, true) => Progress::Complete,
                (false, true) => Progress::Current,
                (_, false) => Progress::Waiting,
            };
            is_reached &= complete;
            PhaseState { name: phase.name.clone(), progress, ready, objects }
        };
        phases.iter().map(phase).collect()
    }

    fn object(&self, observed: &ObservedObject) -> ObjectState {
        let key = ObjectKey::of(&observed.content.object);
        let (state, mut messages, controller) = match &observed.live {
            Live::Missing => (ObjectStatus::Missing, vec!["it does not exist".to_owned()], None),
            Live::NotServed => {
                let kind =
                    format!("the cluster does not serve {} of {}", key.gvk.kind, key.gvk.api_version());
                (ObjectStatus::NotServed, vec![kind], None)
            }
            Live::Unreadable(why) => (ObjectStatus::Unknown, vec![why.clone()], None),
            Live::Found(live) => {
                let (state, messages) = self.found(live, observed);
                (state, messages, controller(live).map(|reference| self.named(reference)))
            }
        };
        let cause = observed.cause.clone().filter(|_| state == ObjectStatus::NotReady);
        messages.extend(cause.as_ref().map(|cause| cause.words().to_owned()));
        ObjectState {
            api_version: key.gvk.api_version(),
            kind: key.gvk.kind,
            namespace: key.namespace,
            name: key.name,
            state,
            messages,
            controller,
            cause,
        }
    }

    fn found(&self, live: &Value, observed: &ObservedObject) -> (ObjectStatus, Vec<String>) {
        let protection = &observed.content.collision_protection;
        let owner = || match controller(live) {
            Some(reference) => format!("owner is {}", self.named(reference)),
            None => "no owner".to_owned(),
        };
        match plan(Some(live), &self.owner, &self.siblings, protection) {
            Plan::Leave => (ObjectStatus::HandedOver, vec![owner()]),
            Plan::AwaitDeletion => (ObjectStatus::Deleting, vec!["it is being deleted".to_owned()]),
            Plan::Collide => (ObjectStatus::Collision, vec![owner()]),
            Plan::Adopt => (ObjectStatus::NotTaken, vec![owner()]),
            Plan::Create => (ObjectStatus::Missing, Vec::new()),
            Plan::Repair | Plan::Keep | Plan::Replace => {
                let result = self.probes.probe(live);
                match result.status {
                    ProbeStatus::True => (ObjectStatus::Ready, Vec::new()),
                    ProbeStatus::False | ProbeStatus::Unknown => (ObjectStatus::NotReady, result.messages),
                }
            }
        }
    }

    /// Owner by kind and name. A revision that is not among those of the extension is marked.
    fn named(&self, reference: &Value) -> String {
        let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
        let (kind, name) = (text("kind"), text("name"));
        let is_revision = kind == "ClusterObjectSet" && text("apiVersion").starts_with(names::GROUP);
        match self.all.iter().find(|set| set.metadata.uid.as_deref() == Some(text("uid"))) {
            _ if !is_revision => format!("{kind} {name}"),
            Some(_) => format!("revision {name}"),
            None => format!("revision {name} of another extension"),
        }
    }
}

fn controller(object: &Value) -> Option<&Value> {
    let references = object.pointer("/metadata/ownerReferences").and_then(Value::as_array)?;
    references.iter().find(|reference| reference.get("controller") == Some(&Value::Bool(true)))
}

impl std::fmt::Display for ObjectState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, qualified(&self.namespace, &self.name))?;
        write!(f, " {}", self.state.as_str())?;
        // States that need no message.
        let is_plain = matches!(self.state, ObjectStatus::Missing | ObjectStatus::Deleting);
        match self.messages.join("; ") {
            messages if is_plain || messages.is_empty() => Ok(()),
            messages => write!(f, ": {messages}"),
        }
    }
}
