//! Why a pass of the engine broke off, in the words of the reference (docs/design/apply.md#engine).
//!
//! Pure. One line for each object, in the order of the phase.

use crate::cluster::{ClusterError, Reason};
use crate::object::ObjectKey;

/// A revision that could not be applied as far as possible; the same attempt may succeed later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A check could not be made.
    #[error("reconciling object: validating: {0}")]
    Validating(ClusterError),
    /// Objects could not be read or written; one line each.
    #[error("reconciling object: {}", lines(.0))]
    Objects(Vec<ObjectError>),
    /// Removing objects failed.
    #[error("teardown phase: teardown {0}")]
    Teardown(ObjectError),
}

impl EngineError {
    /// What the API server says about rights that are missing.
    pub(crate) fn denials(&self) -> impl Iterator<Item = &str> {
        let objects = match self {
            Self::Validating(_) => &[],
            Self::Objects(errors) => errors.as_slice(),
            Self::Teardown(error) => std::slice::from_ref(error),
        };
        let denials = objects.iter().filter(|error| error.is(Reason::NotPermitted));
        denials.map(|error| error.cause.message.as_str())
    }
}

fn lines(errors: &[ObjectError]) -> String {
    errors.iter().map(|error| format!("reconciling {error}")).collect::<Vec<_>>().join("\n")
}

/// A failed step on one object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {step}{cause}")]
pub struct ObjectError {
    /// The object.
    pub key: ObjectKey,
    /// What was tried, such as `creating resource: `.
    pub step: &'static str,
    /// Why it failed.
    pub cause: ClusterError,
}

impl ObjectError {
    pub(crate) fn new(key: &ObjectKey, step: &'static str, cause: ClusterError) -> Self {
        Self { key: key.clone(), step, cause }
    }

    /// Whether it is of no use to go on with the phase: the server wants fewer requests, or does not answer, which would
    /// take as long for every other object.
    pub(crate) fn ends_phase(&self) -> bool {
        self.is(Reason::TooManyRequests) || self.is(Reason::Unanswered)
    }

    pub(crate) fn is(&self, reason: Reason) -> bool {
        self.cause.reason == reason
    }
}
