//! Result of an attempt to make the target the newest revision. Pure.

use kube::ResourceExt;
use olm_api::{ClusterObjectSet, annotations};
use olm_controller_core::install_error::{InstallError, InstallErrorClass};

use super::choice::Together;
use super::events::{self, ExtensionEvent};
use super::held::HeldPlan;
use super::revisions::{Revision, RevisionInputs};
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
    /// The image of the bundle is being pulled, as this message says.
    Pulling(String),
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
    pub(super) fn new(revision: ClusterObjectSet, before: Option<Revision>) -> Self {
        Self { set: revision, before, warnings: Vec::new(), overridden: None, adopted: Vec::new() }
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
        let is_rejected = failure.class == InstallErrorClass::Rejected;
        let verdict = is_rejected.then(|| SignatureVerdict::Rejected(failure.clone()));
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

    /// Reports whether a plan or an upgrade group holds the revision.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.result, InstallResult::Held(_) | InstallResult::AwaitsGroup(_))
    }

    /// Reports whether the target did not become the newest revision.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_held() || matches!(self.result, InstallResult::Pulling(_) | InstallResult::Failed(_))
    }

    /// New revision, if one was created.
    pub(super) fn created(&self) -> Option<&CreatedRevision> {
        match &self.result {
            InstallResult::Created(made) => Some(made),
            _ => None,
        }
    }

    /// Events about the attempt.
    pub(super) fn events(&self) -> Vec<ExtensionEvent> {
        let crds = match &self.crds {
            CrdVerdict::Safe => None,
            CrdVerdict::Accepted(text) => Some(format!("accepted: {text}")),
            CrdVerdict::Held(text) => Some(text.clone()),
        };
        let crds = crds.map(|note| ExtensionEvent::warning(events::CRD_CHECK_FAILED, note));
        let mut all: Vec<ExtensionEvent> = crds.into_iter().collect();
        let Some(CreatedRevision { set: revision, warnings, overridden, adopted, .. }) = self.created()
        else {
            return all;
        };
        if !warnings.is_empty() {
            all.push(ExtensionEvent::warning(events::APPLIED_WITH_WARNINGS, warnings.join("; ")));
        }
        if let Some(blocker) = overridden {
            let key = annotations::EXT_IGNORE_OPERATOR_CONDITION;
            let note = format!("{blocker}; replaced because of annotation {key}");
            all.push(ExtensionEvent::warning(events::OVERRIDE_USED, note));
        }
        if !adopted.is_empty() {
            let note = format!("revision {} adopts {}", revision.name_any(), adopted.join(", "));
            all.push(ExtensionEvent::normal(events::ADOPTING, note));
        }
        all
    }
}
