//! Position of the first fault in a text, with the expected text.

use std::borrow::Cow;
use std::ops::Range;

/// First fault of a text.
///
/// ```
/// use olm_version::Constraint;
///
/// let fault = Constraint::fault_in("1.2.0-00").unwrap();
/// assert_eq!(fault.at, 6..7);
/// assert_eq!(fault.draw("1.2.0-00"), "1.2.0-00\n      ^ expected a number without leading zeros");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    /// Faulty byte range in the original text. Empty where something is missing.
    pub at: Range<usize>,
    /// Expectation at that position, as the object of "expected …".
    pub expected: Cow<'static, str>,
}

impl Pointer {
    pub(crate) fn new(at: Range<usize>, expected: impl Into<Cow<'static, str>>) -> Self {
        Self { at, expected: expected.into() }
    }

    pub(crate) fn moved(self, by: usize) -> Self {
        Self { at: self.at.start + by..self.at.end + by, ..self }
    }

    /// Formats two lines for a terminal: `text`, and below it carets under the fault with the expectation.
    ///
    /// Characters that are not printable are quoted as in Go, so that there are exactly two lines. Carets are aligned
    /// by character.
    pub fn draw(&self, text: &str) -> String {
        let cut = |at: usize| text.floor_char_boundary(at);
        let (start, end) = (cut(self.at.start), cut(self.at.end.max(self.at.start)));
        let shown = |part: &str| {
            let quoted = crate::quote(part);
            // Nothing encloses the text, so quotes and backslashes need no escape.
            let inner = quoted.get(1..quoted.len() - 1).unwrap_or_default();
            inner.replace("\\\"", "\"").replace("\\\\", "\\")
        };
        let (before, faulty, after) = (shown(&text[..start]), shown(&text[start..end]), shown(&text[end..]));
        let indent = " ".repeat(before.chars().count());
        let carets = "^".repeat(faulty.chars().count().max(1));
        format!("{before}{faulty}{after}\n{indent}{carets} expected {}", self.expected)
    }
}

/// Position of `part`, a slice of `text`, in `text`.
pub(crate) fn span(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr().saturating_sub(text.as_ptr().addr());
    start..start + part.len()
}

/// Text rewritten from an original, with the origin of each byte.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rewritten {
    text: String,
    /// Original byte offset of each byte.
    origins: Vec<usize>,
}

impl Rewritten {
    pub(crate) fn unchanged(text: &str) -> Self {
        Self { text: text.to_owned(), origins: (0..text.len()).collect() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Appends text that the original lacks, with `at` as its origin.
    pub(crate) fn push_new(&mut self, piece: &str, at: usize) {
        self.text.push_str(piece);
        self.origins.extend(std::iter::repeat_n(at, piece.len()));
    }

    /// Appends a piece of another rewritten text.
    pub(crate) fn push_from(&mut self, other: &Self, range: Range<usize>) {
        self.text.push_str(&other.text[range.clone()]);
        self.origins.extend_from_slice(&other.origins[range]);
    }

    /// Original offset of the byte `at`.
    pub(crate) fn origin(&self, at: usize) -> usize {
        self.origins.get(at).copied().unwrap_or_else(|| self.origins.last().map_or(0, |last| last + 1))
    }

    /// Original range of a range of the rewritten text.
    pub(crate) fn span(&self, range: &Range<usize>) -> Range<usize> {
        let start = self.origin(range.start);
        let end = if range.is_empty() { start } else { self.origin(range.end - 1) + 1 };
        start..end.max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::Pointer;

    #[test]
    fn draw_aligns_carets_under_the_fault() {
        for (text, at, drawn) in [
            (">=1 OR 2", 4..6, ">=1 OR 2\n    ^^ expected this"),
            ("1.2.", 4..4, "1.2.\n    ^ expected this"),
            ("é日 ü", 6..8, "é日 ü\n   ^ expected this"),
            ("\t1.\u{a0}2", 3..5, "\\t1.\\u00a02\n    ^^^^^^ expected this"),
            ("a\"\\b", 3..4, "a\"\\b\n   ^ expected this"),
            ("", 0..0, "\n^ expected this"),
            ("é", 1..9, "é\n^ expected this"),
        ] {
            assert_eq!(Pointer::new(at, "this").draw(text), drawn, "{text:?}");
        }
    }
}
