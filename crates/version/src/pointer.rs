//! Where a text is faulty, and what would be right there.

use std::borrow::Cow;
use std::ops::Range;

/// The first fault of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    /// The bytes at fault in the text as it was given; empty where something is missing.
    pub at: Range<usize>,
    /// What is expected there, as the object of "expected …".
    pub expected: Cow<'static, str>,
}

impl Pointer {
    pub(crate) fn new(at: Range<usize>, expected: impl Into<Cow<'static, str>>) -> Self {
        Self { at, expected: expected.into() }
    }

    pub(crate) fn moved(self, by: usize) -> Self {
        Self { at: self.at.start + by..self.at.end + by, ..self }
    }

    /// Two lines for a terminal: `text`, and below it carets under the fault with what is expected.
    ///
    /// What is not printable is shown as Go quotes it, so that the lines stay two; carets are placed by character.
    pub fn draw(&self, text: &str) -> String {
        let cut = |at: usize| text.floor_char_boundary(at);
        let (start, end) = (cut(self.at.start), cut(self.at.end.max(self.at.start)));
        let shown = |part: &str| {
            let quoted = crate::quote(part);
            // Quotes and backslashes need no escape here: nothing encloses the text.
            let inner = quoted.get(1..quoted.len() - 1).unwrap_or_default();
            inner.replace("\\\"", "\"").replace("\\\\", "\\")
        };
        let (before, faulty, after) = (shown(&text[..start]), shown(&text[start..end]), shown(&text[end..]));
        let indent = " ".repeat(before.chars().count());
        let carets = "^".repeat(faulty.chars().count().max(1));
        format!("{before}{faulty}{after}\n{indent}{carets} expected {}", self.expected)
    }
}

/// An error with its place, before the place is left out of what `parse` returns.
#[derive(Debug)]
pub(crate) struct Fault<E> {
    pub(crate) error: E,
    pub(crate) pointer: Box<Pointer>,
}

impl<E> Fault<E> {
    pub(crate) fn new(error: E, at: Range<usize>, expected: impl Into<Cow<'static, str>>) -> Self {
        Self::at(error, Pointer::new(at, expected))
    }

    pub(crate) fn at(error: E, pointer: Pointer) -> Self {
        Self { error, pointer: Box::new(pointer) }
    }

    /// The same fault in a text that starts `by` bytes earlier.
    pub(crate) fn moved(mut self, by: usize) -> Self {
        self.pointer.at = self.pointer.at.start + by..self.pointer.at.end + by;
        self
    }

    /// The same fault in the text from which `rewritten` was made.
    pub(crate) fn before(mut self, rewritten: &Rewritten) -> Self {
        self.pointer.at = rewritten.place(&self.pointer.at);
        self
    }
}

/// Where `part`, a slice of `text`, lies in it.
pub(crate) fn place(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr().saturating_sub(text.as_ptr().addr());
    start..start + part.len()
}

/// The first character of `text` from `from` that `accepts` refuses, or nothing at the end.
pub(crate) fn first_refused(text: &str, accepts: fn(char) -> bool) -> Range<usize> {
    text.char_indices()
        .find(|(_, c)| !accepts(*c))
        .map_or(text.len()..text.len(), |(at, c)| at..at + c.len_utf8())
}

/// A text that was made from another one, with the origin of each byte.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rewritten {
    text: String,
    /// For each byte the byte of the original that it stands for.
    origins: Vec<usize>,
}

impl Rewritten {
    pub(crate) fn unchanged(text: &str) -> Self {
        Self { text: text.to_owned(), origins: (0..text.len()).collect() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Appends what the original does not have; it counts as the byte `at`.
    pub(crate) fn push_new(&mut self, piece: &str, at: usize) {
        self.text.push_str(piece);
        self.origins.extend(std::iter::repeat_n(at, piece.len()));
    }

    /// Appends a piece of another rewriting.
    pub(crate) fn push_from(&mut self, other: &Self, range: Range<usize>) {
        self.text.push_str(&other.text[range.clone()]);
        self.origins.extend_from_slice(&other.origins[range]);
    }

    /// The byte of the original that the byte `at` stands for.
    pub(crate) fn origin(&self, at: usize) -> usize {
        self.origins.get(at).copied().unwrap_or_else(|| self.origins.last().map_or(0, |last| last + 1))
    }

    /// The place in the original of a range of the rewritten text.
    pub(crate) fn place(&self, range: &Range<usize>) -> Range<usize> {
        let start = self.origin(range.start);
        let end = if range.is_empty() { start } else { self.origin(range.end - 1) + 1 };
        start..end.max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::Pointer;

    #[test]
    fn carets_stand_under_the_fault() {
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
