//! Errors of resolving and pulling. They state whether a retry can succeed.

use crate::ReferenceError;

/// Failed resolve or pull. The text is a condition message of docs/design/images.md#pull-errors without its first
/// part, which names the caller (`source catalog content: `).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{stage}{prefix}{cause}", prefix = if *terminal { "terminal error: " } else { "" })]
pub struct PullError {
    pub(crate) terminal: bool,
    /// `true` if the content of the image is invalid.
    pub(crate) of_the_content: bool,
    /// `true` if the signature policy definitely rejects the image.
    pub(crate) rejected: bool,
    /// `true` if the signature policy did not accept the image: it rejects it, or cannot be checked.
    pub(crate) unverified: bool,
    /// Key of the limit that the image exceeds, if that is the fault.
    pub(crate) limit: Option<&'static str>,
    /// Failed step, ending in a colon and a space. May be empty.
    pub(crate) stage: &'static str,
    pub(crate) cause: String,
}

impl PullError {
    /// `true` if the same input fails in the same way until it is changed. Otherwise a retry may succeed: network,
    /// registry, disk, or a tag that can move.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// `true` if the content of the image is invalid. The same digest always fails in the same way. A tag that
    /// named it may name another digest later.
    pub fn is_of_the_content(&self) -> bool {
        self.of_the_content
    }

    /// `true` if the signature policy definitely rejects the image: policy and signatures were readable.
    pub fn is_rejected(&self) -> bool {
        self.rejected
    }

    /// `true` if the signature policy rejects the image, or if policy or signatures are unreadable.
    pub fn is_unverified(&self) -> bool {
        self.unverified
    }

    /// Text without the words `terminal error: `, which ClusterExtensions do not show
    /// (docs/design/api.md#condition-updates).
    pub fn unmarked(&self) -> String {
        format!("{}{}", self.stage, self.cause)
    }

    /// The tag could not be resolved.
    pub(crate) fn resolving(cause: impl ToString) -> Self {
        Self::retry("error creating image source: ", cause)
    }

    /// The registry did not deliver the image.
    pub(crate) fn copying(cause: impl ToString) -> Self {
        Self::retry("error copying image: ", cause)
    }

    /// A local failure, for instance of the disk.
    pub(crate) fn applying(cause: impl ToString) -> Self {
        Self::retry("error applying image: ", cause)
    }

    /// Invalid content. Terminal if the user pinned its digest.
    pub(crate) fn content(pinned: bool, cause: impl ToString) -> Self {
        Self { terminal: pinned, of_the_content: true, ..Self::applying(cause) }
    }

    fn retry(stage: &'static str, cause: impl ToString) -> Self {
        let cause = cause.to_string();
        Self {
            terminal: false,
            of_the_content: false,
            rejected: false,
            unverified: false,
            limit: None,
            stage,
            cause,
        }
    }
}

impl From<ReferenceError> for PullError {
    fn from(error: ReferenceError) -> Self {
        Self { terminal: true, ..Self::retry("", error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_error_prefix_precedes_cause() {
        for (error, shown, unmarked) in [
            (
                PullError::content(true, "c"),
                "error applying image: terminal error: c",
                "error applying image: c",
            ),
            (PullError::content(false, "c"), "error applying image: c", "error applying image: c"),
            (PullError::copying("c"), "error copying image: c", "error copying image: c"),
            (
                ReferenceError::Bare("r".to_owned()).into(),
                "terminal error: error creating reference: Docker reference r is not for an unknown digest case; tag or digest is needed",
                "error creating reference: Docker reference r is not for an unknown digest case; tag or digest is needed",
            ),
        ] {
            assert_eq!((error.to_string(), error.unmarked()), (shown.to_owned(), unmarked.to_owned()));
        }
    }
}
