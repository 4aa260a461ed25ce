//! Errors of an engine pass, with the texts of the reference (docs/design/apply.md#engine).
//!
//! Pure. One line for each object, in the order of the phase.

use crate::cluster::{ApiErrorReason, ClusterError};
use crate::object::ObjectKey;

/// Error that ended a pass early. A retry can succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A dry run failed without a verdict.
    #[error("reconciling object: validating: {0}")]
    Validating(ClusterError),
    /// Reads or writes of objects failed, one line each.
    #[error("reconciling object: {}", lines(.0))]
    Objects(Vec<ObjectError>),
    /// The removal of an object failed.
    #[error("teardown phase: teardown {0}")]
    Teardown(ObjectError),
}

impl EngineError {
    /// `true` if a dry run of the failed write can fail for the same reason. Conflicts end by themselves.
    pub(crate) fn is_explained_by_dry_run(&self) -> bool {
        let has_other_cause = |error: &ObjectError| error.ends_phase() || error.is_conflict();
        matches!(self, Self::Objects(errors) if !errors.iter().any(has_other_cause))
    }

    /// Messages of the API server about missing permissions.
    pub(crate) fn denials(&self) -> impl Iterator<Item = &str> {
        let objects = match self {
            Self::Validating(_) => &[],
            Self::Objects(errors) => errors.as_slice(),
            Self::Teardown(error) => std::slice::from_ref(error),
        };
        let denials = objects.iter().filter(|error| error.is(ApiErrorReason::NotPermitted));
        denials.map(|error| error.cause.message.as_str())
    }
}

fn lines(errors: &[ObjectError]) -> String {
    errors.iter().map(|error| format!("reconciling {error}")).collect::<Vec<_>>().join("\n")
}

/// Failed step on an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {step}{cause}")]
pub struct ObjectError {
    /// The object.
    pub key: ObjectKey,
    /// Failed step, such as `creating resource: `.
    pub step: &'static str,
    /// Error of the step.
    pub cause: ClusterError,
}

impl ObjectError {
    pub(crate) fn new(key: &ObjectKey, step: &'static str, cause: ClusterError) -> Self {
        Self { key: key.clone(), step, cause }
    }

    /// `true` if the rest of the phase must be skipped: the API server limits requests, or does not answer, which
    /// would delay every other object as long.
    pub(crate) fn ends_phase(&self) -> bool {
        self.is(ApiErrorReason::TooManyRequests) || self.is(ApiErrorReason::Unanswered)
    }

    /// `true` if the object was created or changed after it was read.
    pub(crate) fn is_conflict(&self) -> bool {
        self.is(ApiErrorReason::Conflict) || self.is(ApiErrorReason::AlreadyExists)
    }

    pub(crate) fn is(&self, reason: ApiErrorReason) -> bool {
        self.cause.reason == reason
    }
}
