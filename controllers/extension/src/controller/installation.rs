//! Result of an attempt to make the target the newest revision. Pure.

use olm_api::ClusterObjectSet;
use olm_controller_core::install_error::{InstallError, InstallErrorClass};

use super::decide::RevisionInputs;
use super::group::Together;
use super::held::HeldPlan;
use super::revisions::Revision;
use crate::bundles::SignatureVerdict;
use crate::preflight::CrdVerdict;

/// Bundle to install.
pub(super) struct Target<'a> {
    /// Inputs of its revision.
    pub inputs: RevisionInputs,
    /// Catalog that it was chosen from, if one was asked.
    pub catalog: Option<&'a str>,
    /// Members of the upgrade group that move in the same step.
    pub together: &'a Together,
}

/// Result of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Installation {
    pub result: InstallResult,
    /// Verdict of the CRD check. `Safe` if the check did not run.
    pub crds: CrdVerdict,
    /// Verdict of the signature policy about the image, if it was judged.
    pub verdict: Option<SignatureVerdict>,
    /// `true` if the result may change without an event.
    pub requeue: bool,
    /// `true` if writing the Secrets of a revision failed midway. The next attempt reuses those that exist.
    pub unfinished: bool,
    /// Reason for which a failed newest revision was not rolled back.
    pub not_restored: Option<String>,
}

/// What an attempt did.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum InstallResult {
    /// The newest revision remains.
    Unchanged,
    /// A revision was created.
    Created(Box<CreatedRevision>),
    /// The target has the content that was rolled back. The newest revision remains.
    RolledBack,
    /// The plan waits.
    Held(Box<HeldPlan>),
    /// The revision waits for another member of the upgrade group, for this reason.
    AwaitsGroup(String),
    /// No revision was created.
    Failed(InstallError),
}

/// New revision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CreatedRevision {
    pub set: ClusterObjectSet,
    /// Newest revision before this one.
    pub before: Option<Revision>,
    /// Warnings of its bundle.
    pub warnings: Vec<String>,
    /// Report of the replaced operator that an annotation overrode.
    pub overridden: Option<String>,
    /// Objects that it adopts.
    pub adopted: Vec<String>,
}

/// Result of a rollback.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Restoration {
    /// A revision with the content of an earlier one was created.
    Created(Box<CreatedRevision>),
    /// Nothing was restored, for the reason `why`, a suffix of the `Progressing` message. `requeue` and `unfinished` are
    /// those of [`Installation`].
    NotRestored { why: String, requeue: bool, unfinished: bool },
}

/// Part of an attempt. `Err` has the result of an attempt that ends there.
pub(super) type Attempt<T> = Result<T, Box<Installation>>;

impl From<InstallError> for Box<Installation> {
    fn from(failure: InstallError) -> Self {
        Self::new(Installation::failed(failure))
    }
}

impl CreatedRevision {
    pub(super) fn new(set: ClusterObjectSet, before: Option<Revision>) -> Self {
        Self { set, before, warnings: Vec::new(), overridden: None, adopted: Vec::new() }
    }
}

impl Installation {
    pub(super) fn new(result: InstallResult, crds: CrdVerdict) -> Self {
        Self { result, crds, verdict: None, requeue: false, unfinished: false, not_restored: None }
    }

    pub(super) fn unchanged(crds: CrdVerdict) -> Self {
        Self::new(InstallResult::Unchanged, crds)
    }

    pub(super) fn failed(failure: InstallError) -> Self {
        let verdict = (failure.class == InstallErrorClass::Rejected).then(|| Err(failure.clone()));
        Self { verdict, ..Self::new(InstallResult::Failed(failure), CrdVerdict::Safe) }
    }

    /// Failure that may end without an event.
    pub(super) fn failed_for_now(failure: InstallError) -> Box<Self> {
        Box::new(Self { requeue: true, ..Self::failed(failure) })
    }

    /// The attempt with a rollback that was due. A created revision replaces the result.
    pub(super) fn with(self, restoration: Restoration) -> Self {
        match restoration {
            Restoration::Created(made) => Self::new(InstallResult::Created(made), CrdVerdict::Safe),
            Restoration::NotRestored { why, requeue, unfinished } => {
                Self { not_restored: Some(why), requeue, unfinished: self.unfinished || unfinished, ..self }
            }
        }
    }

    /// `Ok` if the bundle is active or waits, else the cause.
    pub(super) fn applied(&self) -> Result<(), InstallError> {
        match &self.result {
            InstallResult::Failed(failure) => Err(failure.clone()),
            _ => Ok(()),
        }
    }

    /// Reports whether a plan or an upgrade group holds the revision.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.result, InstallResult::Held(_) | InstallResult::AwaitsGroup(_))
    }

    /// Reports whether the target did not become the newest revision.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_held() || matches!(self.result, InstallResult::Failed(_))
    }

    /// New revision, if one was created.
    pub(super) fn created(&self) -> Option<&CreatedRevision> {
        match &self.result {
            InstallResult::Created(made) => Some(made),
            _ => None,
        }
    }
}
