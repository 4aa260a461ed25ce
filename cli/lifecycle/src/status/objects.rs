//! Objects of a revision: their state, and the progress of their phases.
//!
//! Pure. Readiness and ownership of objects come from the functions that operator-controller calls.

use kube::ResourceExt;
use olm_api::{ClusterObjectSet, names};
use olm_cli_core::output::qualified;
use olm_revision::blocked_pods::Cause;
use olm_revision::object::ObjectKey;
use olm_revision::plan::{ObjectPlan, Owner, plan};
use olm_revision::probes::{ProbeStatus, Probes};
use serde::Serialize;
use serde_json::Value;

use super::observe::{Live, ObservedObject, PhaseStatus, owner};

/// Phase as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseState {
    /// Name of the phase.
    pub name: String,
    /// Progress of its objects.
    pub progress: PhaseProgress,
    /// Number of settled objects.
    pub(crate) ready: usize,
    /// Objects in the order of application.
    pub objects: Vec<ObjectState>,
}

/// Progress of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PhaseProgress {
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
pub struct ObjectState {
    pub(crate) api_version: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
    /// Namespace. Empty for a cluster-scoped object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// State with respect to the revision.
    pub state: ObjectStatus,
    /// Reasons for the state. Empty for a settled object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
    /// Controller owner, as `Kind name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<String>,
    /// Cause for which its pods are not ready. Part of the messages.
    #[serde(skip)]
    pub(super) cause: Option<Cause>,
}

/// State of an object with respect to a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ObjectStatus {
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
    /// It is being deleted.
    Deleting,
    /// It does not exist.
    Missing,
    /// The API server does not serve its kind.
    NotServed,
    /// The caller may not read it, or the API server did not answer.
    Unknown,
}

impl ObjectStatus {
    /// Reports whether the object needs no further change.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Ready | Self::HandedOver)
    }

    /// State in words.
    pub fn as_str(self) -> &'static str {
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

/// Inputs to judge objects on behalf of a revision.
pub(super) struct ObjectJudge<'a> {
    owner: Owner,
    siblings: Vec<String>,
    probes: Probes,
    /// All revisions of the extension.
    all: &'a [&'a ClusterObjectSet],
}

impl<'a> ObjectJudge<'a> {
    pub(super) fn new(revision: &ClusterObjectSet, all: &'a [&'a ClusterObjectSet]) -> Result<Self, String> {
        let owner = owner(revision);
        let specs = revision.spec.as_ref().map(|spec| spec.progression_probes.as_slice()).unwrap_or_default();
        let probes = Probes::new(specs).map_err(|error| error.to_string())?;
        let active = all.iter().filter(|other| other.is_active()).filter_map(|other| other.uid());
        Ok(Self { siblings: active.filter(|uid| *uid != owner.uid).collect(), owner, probes, all })
    }

    pub(super) fn phases(&self, phases: &[PhaseStatus]) -> Vec<PhaseState> {
        let mut is_reached = true;
        let phase = |phase: &PhaseStatus| {
            let objects: Vec<ObjectState> = phase.objects.iter().map(|object| self.object(object)).collect();
            let ready = objects.iter().filter(|object| object.state.is_settled()).count();
            let complete = ready == objects.len();
            let progress = match (complete, is_reached) {
                (true, true) => PhaseProgress::Complete,
                (false, true) => PhaseProgress::Current,
                (_, false) => PhaseProgress::Waiting,
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
            ObjectPlan::Leave => (ObjectStatus::HandedOver, vec![owner()]),
            ObjectPlan::AwaitDeletion => (ObjectStatus::Deleting, vec!["it is being deleted".to_owned()]),
            ObjectPlan::Collide => (ObjectStatus::Collision, vec![owner()]),
            ObjectPlan::Adopt => (ObjectStatus::NotTaken, vec![owner()]),
            ObjectPlan::Create => (ObjectStatus::Missing, Vec::new()),
            ObjectPlan::Repair | ObjectPlan::Keep | ObjectPlan::Replace => {
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
        match self.all.iter().find(|revision| revision.metadata.uid.as_deref() == Some(text("uid"))) {
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
