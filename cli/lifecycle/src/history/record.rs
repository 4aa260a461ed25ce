//! History record of a revision. Pure.

use olm_api::ClusterObjectSet;
use olm_api::conditions::{reasons, types};
use serde::Serialize;

use crate::status::tree::{RevisionState, RolloutStage};

/// Digest characters that suffice to tell images apart.
const SHORT_DIGEST: usize = 12;

/// Revision as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Number of the revision, from 1.
    pub revision: i64,
    pub(crate) name: String,
    /// Name of the bundle.
    pub bundle: String,
    /// Version of the bundle.
    pub version: String,
    /// Reference of the bundle image.
    pub(crate) image: String,
    /// Digest of the image, if the reference contains one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
    /// `Installed`, `Superseded`, `Abandoned`, or the name of its stage.
    pub result: String,
    /// `true` if the revision has rolled out once.
    pub(crate) succeeded: bool,
    pub(crate) adopted_from_helm: bool,
    /// Time of creation, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Time at which it was archived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived: Option<String>,
    /// Whether a rollback can return to it.
    pub rollback: Rollback,
}

/// Eligibility of the revision as default target of `olm rollback`.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    pub(crate) possible: bool,
    /// Reason for which a rollback does not choose it. Absent for a possible target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<&'static str>,
}

impl Record {
    /// Short form of the image: its truncated digest, else the part after the last `/`.
    pub(super) fn short_image(&self) -> String {
        match self.digest.as_deref().and_then(|digest| digest.split_once(':')) {
            Some((algorithm, hex)) => {
                format!("{algorithm}:{}", hex.chars().take(SHORT_DIGEST).collect::<String>())
            }
            None => self.image.rsplit('/').next().unwrap_or_default().to_owned(),
        }
    }
}

/// Records, newest first, of the revisions of an extension, given oldest first.
pub fn records(revisions: &[ClusterObjectSet]) -> Vec<Record> {
    let states: Vec<RevisionState> = revisions.iter().map(RevisionState::alone).collect();
    let newest =
        revisions.iter().rposition(ClusterObjectSet::is_active).or_else(|| revisions.len().checked_sub(1));
    let installed =
        revisions.iter().zip(&states).rposition(|(revision, state)| revision.is_active() && state.succeeded);
    let aim = newest
        .and_then(|newest| states.get(newest))
        .map(|state| (state.bundle.clone(), state.version.clone()));
    let record = |(index, (revision, state)): (usize, (&ClusterObjectSet, RevisionState))| {
        let result = outcome(&state, installed == Some(index));
        let same = aim
            .as_ref()
            .is_some_and(|(bundle, version)| (bundle, version) == (&state.bundle, &state.version));
        let why_not = match () {
            () if newest == Some(index) => Some("newest revision"),
            () if state.version.is_empty() => Some("no version recorded"),
            () if !state.succeeded => Some("never rolled out"),
            () if same => Some("same bundle as the newest revision, only the configuration differs"),
            () => None,
        };
        Record {
            revision: state.revision,
            digest: state.image.split_once('@').map(|(_, digest)| digest.to_owned()),
            result,
            succeeded: state.succeeded,
            adopted_from_helm: state.adopted_from_helm,
            archived: archived(revision),
            rollback: Rollback { possible: why_not.is_none(), why_not },
            name: state.name,
            bundle: state.bundle,
            version: state.version,
            image: state.image,
            created: state.created,
        }
    };
    let mut records: Vec<Record> = revisions.iter().zip(states).enumerate().map(record).collect();
    records.reverse();
    records
}

fn outcome(state: &RevisionState, is_installed: bool) -> String {
    let is_in_progress = matches!(
        state.stage,
        RolloutStage::Deleting | RolloutStage::Archiving | RolloutStage::Blocked | RolloutStage::Retrying
    );
    match state.stage {
        RolloutStage::Archived if !state.succeeded => "Abandoned".to_owned(),
        RolloutStage::Archived => "Superseded".to_owned(),
        _ if is_installed && !is_in_progress => "Installed".to_owned(),
        RolloutStage::Succeeded => "Superseded".to_owned(),
        stage => format!("{stage:?}"),
    }
}

fn archived(revision: &ClusterObjectSet) -> Option<String> {
    let progressing = revision.condition(types::PROGRESSING)?;
    let is_archived = progressing.reason == reasons::ARCHIVED;
    is_archived.then(|| progressing.last_transition_time.0.to_string())
}
