//! Why an attempt did not work, classified where it arises (docs/design/apply.md#failure-classes).

use std::fmt;

use olm_service::cluster::describe;
use olm_service::message::sanitize;

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It is tried again with growing delays.
    Retry,
    /// Only a change of the extension, its revisions or the catalogs can help.
    Blocked,
    /// Only a change of `spec.config` can help.
    InvalidConfiguration,
    /// The signature policy refuses the image; retried as the policy and signatures may change.
    Rejected,
    /// Nothing is wrong: an image is being pulled.
    Pulling,
}

/// A failed attempt: its class and the text for the condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Whether trying again can help.
    pub class: Class,
    /// Text for people, without the noise that would make it differ from one attempt to the next.
    pub message: String,
}

impl Failure {
    /// A failure that may pass.
    pub(crate) fn retry(message: impl fmt::Display) -> Self {
        Self { class: Class::Retry, message: sanitize(&message.to_string()) }
    }

    /// An API call that failed.
    pub(crate) fn api(error: &kube::Error) -> Self {
        Self::retry(describe(error))
    }

    /// A failure that stays until somebody changes something.
    pub(crate) fn blocked(message: impl fmt::Display) -> Self {
        Self { class: Class::Blocked, ..Self::retry(message) }
    }

    /// A refusal by the signature policy.
    pub(crate) fn rejected(message: impl fmt::Display) -> Self {
        Self { class: Class::Rejected, ..Self::retry(message) }
    }

    /// The same failure with `context: ` before its text.
    pub(crate) fn context(self, context: impl fmt::Display) -> Self {
        Self { message: format!("{context}: {}", self.message), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_keeps_the_class() {
        let failure = Failure::blocked("no").context("error for resolved bundle");
        assert_eq!(failure.class, Class::Blocked);
        assert_eq!(failure.to_string(), "error for resolved bundle: no");
    }
}
