//! What a failed pull means for its caller.

use crate::ReferenceError;

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The same input fails in the same way until somebody changes it.
    Terminal,
    /// It may work later: network, registry, disk, or a tag that can move.
    Retry,
}

/// A failed resolve or pull. The text is a condition message of docs/design/images.md#pull-errors without its first
/// part, which names the caller (`source catalog content: `).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{stage}{mark}{cause}", mark = if *class == Class::Terminal { "terminal error: " } else { "" })]
pub struct PullError {
    class: Class,
    /// Whether the image itself is wrong.
    of_the_content: bool,
    /// Whether the signature policy refuses the image for certain.
    rejected: bool,
    /// The limit that the image exceeds.
    limit: Option<&'static str>,
    /// What was being done, ending in a colon and a blank; may be empty.
    stage: &'static str,
    cause: String,
}

impl PullError {
    /// Whether trying again can help.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// Whether the image's own content is wrong: the same digest fails in the same way each time, also where a tag named it
    /// and may name another one later.
    #[must_use]
    pub fn is_of_the_content(&self) -> bool {
        self.of_the_content
    }

    /// Whether the signature policy refuses the image for certain: policy and signatures could be read.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        self.rejected
    }

    /// The same, because the policy refuses the image for certain.
    pub(crate) fn rejected(self) -> Self {
        Self { rejected: true, ..self }
    }

    /// The text without the words `terminal error: `, which ClusterExtensions do not show
    /// (docs/design/api.md#condition-updates).
    #[must_use]
    pub fn unmarked(&self) -> String {
        format!("{}{}", self.stage, self.cause)
    }

    /// The tag could not be resolved.
    pub(crate) fn resolving(cause: impl ToString) -> Self {
        Self::retry("error creating image source: ", cause)
    }

    /// The registry did not give us the image.
    pub(crate) fn copying(cause: impl ToString) -> Self {
        Self::retry("error copying image: ", cause)
    }

    /// Something failed here, for instance the disk.
    pub(crate) fn applying(cause: impl ToString) -> Self {
        Self::retry("error applying image: ", cause)
    }

    /// Something is wrong with the content itself: final where the user pinned its digest.
    pub(crate) fn content(pinned: bool, cause: impl ToString) -> Self {
        let class = if pinned { Class::Terminal } else { Class::Retry };
        Self { class, of_the_content: true, ..Self::applying(cause) }
    }

    /// The same, because the image exceeds this limit.
    pub(crate) fn over(self, limit: Option<&'static str>) -> Self {
        Self { limit, ..self }
    }

    /// Key of the limit that the image exceeds, where that is what is wrong.
    #[must_use]
    pub fn limit(&self) -> Option<&'static str> {
        self.limit
    }

    fn retry(stage: &'static str, cause: impl ToString) -> Self {
        let cause = cause.to_string();
        Self { class: Class::Retry, of_the_content: false, rejected: false, limit: None, stage, cause }
    }
}

impl From<ReferenceError> for PullError {
    fn from(error: ReferenceError) -> Self {
        Self { class: Class::Terminal, ..Self::retry("", error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_terminal_errors_stands_before_the_cause() {
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
