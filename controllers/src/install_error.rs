//! Failures of an attempt, classified at their origin (docs/design/apply.md#failure-classes).

use std::fmt;

use olm_runtime::cluster::describe;
use olm_runtime::message::sanitize;

/// Class that decides whether and when to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// Retried with backoff.
    Retry,
    /// Retried only after a change of the extension, its revisions or the catalogs.
    Blocked,
    /// Retried only after a change of `spec.config`.
    InvalidConfiguration,
    /// The signature policy rejects the image. Retried, since the policy and signatures may change.
    Rejected,
    /// Not an error: an image is being pulled.
    Pulling,
}

/// A failed attempt: its class and the text for the condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstallError {
    /// Class of the failure.
    pub class: ErrorClass,
    /// Message without parts that differ between attempts.
    pub message: String,
}

impl InstallError {
    /// Creates a failure that may be transient.
    pub(crate) fn retry(message: impl fmt::Display) -> Self {
        Self { class: ErrorClass::Retry, message: sanitize(&message.to_string()) }
    }

    /// Creates a failure from a failed API request.
    pub(crate) fn api(error: &kube::Error) -> Self {
        Self::retry(describe(error))
    }

    /// Creates a failure that lasts until an input changes.
    pub(crate) fn blocked(message: impl fmt::Display) -> Self {
        Self { class: ErrorClass::Blocked, ..Self::retry(message) }
    }

    /// Creates a failure from a rejection by the signature policy.
    pub(crate) fn rejected(message: impl fmt::Display) -> Self {
        Self { class: ErrorClass::Rejected, ..Self::retry(message) }
    }

    /// Returns the same failure with `context: ` before its message.
    pub(crate) fn context(self, context: impl fmt::Display) -> Self {
        Self { message: format!("{context}: {}", self.message), ..self }
    }
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for InstallError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_does_not_change_class() {
        let failure = InstallError::blocked("no").context("error for resolved bundle");
        assert_eq!(failure.class, ErrorClass::Blocked);
        assert_eq!(failure.to_string(), "error for resolved bundle: no");
    }
}
