//! State of an extension as a tree: extension, revisions, phases, objects. Pure.

use olm_api::conditions::{self, reasons, types};
use olm_api::{ClusterExtension, ClusterObjectSet, Condition, annotations, labels};
use olm_bundle::unsupported_remedy;
use olm_cli_core::output::qualified;
use olm_request::HeldMessage;
use olm_revision::immutable::remedies;
use olm_revision::report::adoptions;
use serde::Serialize;

use super::health::{Health, Hold, is_paused};
use super::objects::{ObjectJudge, PhaseProgress, PhaseState};
use super::observe::{Observed, ObservedRevision};

/// Extension as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionState {
    /// Name of the extension.
    pub name: String,
    /// Health, from the conditions.
    pub health: Health,
    /// `true` if the conditions have the current generation.
    pub up_to_date: bool,
    /// `spec.namespace`, which the operator is installed into.
    pub namespace: String,
    /// `spec.source.catalog.packageName`.
    pub package: String,
    /// `spec.source.catalog.version`. Empty for any version.
    pub(crate) requested_version: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) channels: Vec<String>,
    pub(crate) upgrade_constraint_policy: String,
    /// Installed bundle, by `status.install`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<BundleState>,
    /// Newer version that the extension does not move to, by `status.availableVersion`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_version: Option<String>,
    pub(crate) paused: bool,
    /// Revision that adopted the installation from the reference's Helm applier, as long as it exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adopted_from_helm: Option<String>,
    /// Holds on upgrades, or on all changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Hold>,
    /// Last report of corrected drift: fields, their other managers, and numbers of corrections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drift: Option<String>,
    /// Remedies for objects with immutable fields that block the rollout.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<String>,
    /// Time of creation, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
    /// Newest first.
    pub revisions: Vec<RevisionState>,
}

/// Bundle name and version.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BundleState {
    /// Name of the bundle.
    pub name: String,
    /// Version of the bundle.
    pub version: String,
}

/// Revision as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RevisionState {
    /// Name of the ClusterObjectSet.
    pub name: String,
    /// Number of the revision, from 1.
    pub revision: i64,
    /// Stage of the rollout, from the conditions.
    pub stage: RolloutStage,
    /// `true` if the revision has rolled out once.
    pub(crate) succeeded: bool,
    /// Name of the bundle.
    pub bundle: String,
    pub(crate) version: String,
    pub(crate) image: String,
    pub(crate) adopted_from_helm: bool,
    /// Time of creation, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Error in the revision's conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Reason for which its objects cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    pub(crate) conditions: Vec<Condition>,
    /// Phases in the order of the rollout.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseState>,
}

/// Rollout stage of a revision (docs/design/apply.md#revision-conditions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RolloutStage {
    /// It has no condition yet.
    New,
    /// Objects are applied and probed, also while a revision that had succeeded is repaired.
    RollingOut,
    /// A step fails and is tried again.
    Retrying,
    /// It does not continue without an intervention.
    Blocked,
    /// It takes longer than its progress deadline.
    DeadlineExceeded,
    /// All its probes succeed.
    Succeeded,
    /// A newer revision has replaced it, and objects that only this one has are being deleted.
    Archiving,
    /// Its own objects are deleted.
    Archived,
    /// The revision is being deleted.
    Deleting,
}

impl ExtensionState {
    /// Builds the tree.
    pub fn new(observed: &Observed) -> Self {
        let Observed { extension, revisions, drift } = observed;
        let all: Vec<&ClusterObjectSet> = revisions.iter().map(|revision| &revision.set).collect();
        let state = |revision| RevisionState::new(revision, &all);
        let revisions = revisions.iter().rev().map(state).collect();
        Self { revisions, drift: drift.clone(), ..Self::alone(extension, &all) }
    }

    /// State of the extension without its revisions, which only decide whether an adoption from Helm is shown.
    pub fn alone(extension: &ClusterExtension, revisions: &[&ClusterObjectSet]) -> Self {
        let spec = extension.spec.as_ref();
        let catalog = spec.and_then(|spec| spec.source.catalog.as_ref());
        let status = extension.status.as_ref();
        let conditions = status.map(|status| status.conditions.clone()).unwrap_or_default();
        let generation = extension.metadata.generation;
        let is_current = |condition: &Condition| condition.observed_generation >= generation;
        let policy = catalog.and_then(|catalog| catalog.upgrade_constraint_policy.as_ref());
        let migrated = revisions.iter().find(|revision| is_migrated(revision));
        let progressing = conditions::find(&conditions, types::PROGRESSING);
        let name = extension.metadata.name.clone().unwrap_or_default();
        let remedies = progressing.map(|Condition { message, .. }| {
            let gate = unsupported_remedy(message).map(str::to_owned);
            [gate.into_iter().collect(), remedies(message), adoptions(message, &name)].concat()
        });
        Self {
            name,
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
            adopted_from_helm: migrated.and_then(|revision| revision.metadata.name.clone()),
            holds: Hold::all(extension),
            drift: None,
            remedies: remedies.unwrap_or_default(),
            created: created(&extension.metadata),
            conditions,
            revisions: Vec::new(),
        }
    }

    /// Reports whether a change waits for an approval.
    pub fn awaits_approval(&self) -> bool {
        self.holds.iter().any(|hold| hold.by == reasons::APPROVAL_REQUIRED)
    }

    /// Reports whether the rollout is held on purpose, by an approval, a window or the operator. An extension that is
    /// blocked by a fault is not, whatever else holds it.
    pub fn is_held(&self) -> bool {
        let progressing = conditions::find(&self.conditions, types::PROGRESSING);
        self.health == Health::Blocked
            && progressing.is_some_and(|condition| HeldMessage::parse(&condition.message).is_some())
    }

    /// Sentence about the first Deployment whose pods are not ready for a known reason, and whether waiting is futile.
    pub fn blocked_pods(&self) -> Option<(String, bool)> {
        self.revisions.iter().find_map(RevisionState::blocked_pods)
    }
}

/// Newest active revision, with its state.
fn newest(observed: &Observed) -> Option<(&ClusterObjectSet, RevisionState)> {
    let revisions: Vec<&ClusterObjectSet> = observed.revisions.iter().map(|revision| &revision.set).collect();
    let newest = observed.revisions.iter().rev().find(|revision| revision.set.is_active())?;
    Some((&newest.set, RevisionState::new(newest, &revisions)))
}

/// Installed bundle according to the status.
pub fn installed(extension: &ClusterExtension) -> Option<BundleState> {
    let bundle = &extension.status.as_ref()?.install.as_ref()?.bundle;
    Some(BundleState { name: bundle.name.clone(), version: bundle.version.clone() })
}

/// First unsettled object of the newest active revision, with the reason.
pub fn blocker(observed: &Observed) -> Option<String> {
    newest(observed)?.1.blocker()
}

/// Failure of the newest active revision that lasts until its content changes: of its pods, or a refused CRD.
pub(crate) fn futile(observed: &Observed) -> Option<String> {
    let (revision, state) = newest(observed)?;
    if let Some((why, true)) = state.blocked_pods() {
        return Some(why);
    }
    let message = &revision.condition(types::PROGRESSING)?.message;
    let (_, refused) = message.split_once("CustomResourceDefinition.apiextensions.k8s.io ")?;
    refused.contains(" is invalid: ").then(|| message.clone())
}

/// Reports whether the revision adopted an installation from the reference's Helm applier
/// (docs/design/apply.md#migration-to-revision-1).
pub(crate) fn is_migrated(revision: &ClusterObjectSet) -> bool {
    let label = revision.metadata.labels.as_ref().and_then(|all| all.get(labels::MIGRATED_FROM_HELM));
    label.is_some_and(|value| value == "true")
}

/// `metadata.creationTimestamp`.
pub(crate) fn created(metadata: &olm_api::ObjectMeta) -> Option<String> {
    metadata.creation_timestamp.as_ref().map(|time| time.0.to_string())
}

impl RevisionState {
    /// State of a revision with its objects. `all` are the revisions of its extension.
    fn new(observed: &ObservedRevision, all: &[&ClusterObjectSet]) -> Self {
        let ObservedRevision { set: revision, content } = observed;
        let (phases, unreadable) = match content {
            _ if !revision.is_active() => (Vec::new(), None),
            Err(why) => (Vec::new(), Some(why.clone())),
            Ok(phases) => match ObjectJudge::new(revision, all) {
                Ok(judge) => (judge.phases(phases), None),
                Err(why) => (Vec::new(), Some(why)),
            },
        };
        Self { phases, unreadable, ..Self::alone(revision) }
    }

    /// State of a revision without its objects.
    pub(crate) fn alone(revision: &ClusterObjectSet) -> Self {
        let annotation = |key: &str| revision.annotation(key).unwrap_or_default().to_owned();
        let conditions = revision.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        Self {
            name: revision.metadata.name.clone().unwrap_or_default(),
            revision: revision.number(),
            stage: RolloutStage::of(revision, &conditions),
            succeeded: conditions::is_true(&conditions, types::SUCCEEDED),
            bundle: annotation(annotations::BUNDLE_NAME),
            version: annotation(annotations::BUNDLE_VERSION),
            image: annotation(annotations::BUNDLE_REFERENCE),
            adopted_from_helm: is_migrated(revision),
            created: created(&revision.metadata),
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
        let current = self.phases.iter().find(|phase| phase.progress == PhaseProgress::Current)?;
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

impl RolloutStage {
    fn of(revision: &ClusterObjectSet, conditions: &[Condition]) -> Self {
        let progressing = conditions::find(conditions, types::PROGRESSING);
        let reason = progressing.map(|condition| condition.reason.as_str()).unwrap_or_default();
        match reason {
            _ if revision.metadata.deletion_timestamp.is_some() => Self::Deleting,
            reasons::ARCHIVED if revision.is_archived() => Self::Archived,
            reasons::BLOCKED => Self::Blocked,
            _ if revision.is_archived() => Self::Archiving,
            reasons::RETRYING => Self::Retrying,
            reasons::PROGRESS_DEADLINE_EXCEEDED => Self::DeadlineExceeded,
            reasons::SUCCEEDED => Self::Succeeded,
            "" => Self::New,
            _ => Self::RollingOut,
        }
    }
}
