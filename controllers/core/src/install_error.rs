//! Failures of an attempt, classified at their origin (docs/design/apply.md#failure-classes).

use std::fmt;

use olm_runtime::cluster::{describe, within_deadline};
use olm_runtime::message::sanitize;

/// Class that decides whether and when to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallErrorClass {
    /// Retried with backoff.
    Retry,
    /// Retried only after a change of the extension, its revisions or the catalogs.
    Blocked,
    /// Retried only after a change of `spec.config`.
    InvalidConfiguration,
    /// The signature policy rejects the image. Retried, since the policy and signatures may change.
    Rejected,
}

/// A failed attempt: its class and the text for the condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InstallError {
    /// Class of the failure.
    pub class: InstallErrorClass,
    /// Message without parts that differ between attempts.
    pub message: String,
}

impl InstallError {
    /// Creates a failure of this class.
    pub fn new(class: InstallErrorClass, message: impl fmt::Display) -> Self {
        Self { class, message: sanitize(&message.to_string()) }
    }

    /// Creates a failure that may be transient.
    pub fn retry(message: impl fmt::Display) -> Self {
        Self::new(InstallErrorClass::Retry, message)
    }

    /// Creates a failure from a failed API request.
    pub fn api(error: &kube::Error) -> Self {
        Self::retry(describe(error))
    }

    /// Creates a failure that lasts until an input changes.
    pub fn blocked(message: impl fmt::Display) -> Self {
        Self::new(InstallErrorClass::Blocked, message)
    }

    /// Returns the same failure with `context: ` before its message.
    pub fn context(self, context: impl fmt::Display) -> Self {
        Self { message: format!("{context}: {}", self.message), ..self }
    }
}

/// Sends an API request and waits for its answer, at most until its deadline. `context` precedes the message of its
/// error.
pub async fn api_request<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
    context: impl fmt::Display,
) -> Result<T, InstallError> {
    within_deadline(request).await.map_err(|error| InstallError::api(&error).context(context))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_does_not_change_class() {
        let failure = InstallError::blocked("no").context("error for resolved bundle");
        assert_eq!(failure.class, InstallErrorClass::Blocked);
        assert_eq!(failure.to_string(), "error for resolved bundle: no");
    }
}
