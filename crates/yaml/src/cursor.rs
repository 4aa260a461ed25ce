//! Position in the text of a document, with line and column.

/// Position in characters. Index, line and column count from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) index: usize,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// Forward reader of text with the line breaks `\n`, U+2028 and U+2029 (see `source`).
pub(crate) struct Cursor<'a> {
    text: &'a str,
    /// Byte offset of the cursor.
    pub(crate) at: usize,
    pub(crate) mark: Mark,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, mark: Mark::default() }
    }

    /// Byte at the offset `ahead` from the cursor, or 0 after the end. The text itself contains no 0.
    pub(crate) fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    pub(crate) fn at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    fn width(&self) -> usize {
        match self.peek(0) {
            0..0x80 => 1,
            0x80..0xE0 => 2,
            0xE0..0xF0 => 3,
            _ => 4,
        }
    }

    /// Advances by one character.
    pub(crate) fn skip(&mut self) {
        self.at = (self.at + self.width()).min(self.text.len());
        self.mark.index += 1;
        self.mark.column += 1;
    }

    /// Advances while `accepts` is true, and returns the text passed. `accepts` must select only ASCII.
    pub(crate) fn skip_while(&mut self, accepts: impl Fn(u8) -> bool) -> &'a str {
        let rest = &self.text.as_bytes()[self.at..];
        let length = rest.iter().position(|b| !accepts(*b)).unwrap_or(rest.len());
        let passed = &self.text[self.at..self.at + length];
        self.at += length;
        self.mark.index += length;
        self.mark.column += length;
        passed
    }

    /// Advances to the end of the line, before the break, and returns the text passed.
    pub(crate) fn skip_line(&mut self) -> &'a str {
        let from = self.at;
        while !self.at_end() && !self.is_break(0) {
            self.skip();
            self.skip_while(|b| matches!(b, b' '..=b'~' | b'\t'));
        }
        &self.text[from..self.at]
    }

    /// Advances past the line break, and returns it.
    pub(crate) fn skip_break(&mut self) -> &'a str {
        let from = self.at;
        self.skip();
        self.mark.line += 1;
        self.mark.column = 0;
        &self.text[from..self.at]
    }

    /// Text between two earlier values of [`Self::at`].
    pub(crate) fn between(&self, from: usize, to: usize) -> &'a str {
        &self.text[from..to]
    }

    pub(crate) fn is_blank(&self, ahead: usize) -> bool {
        matches!(self.peek(ahead), b' ' | b'\t')
    }

    pub(crate) fn is_break(&self, ahead: usize) -> bool {
        match self.peek(ahead) {
            b'\n' => true,
            0xE2 => self.peek(ahead + 1) == 0x80 && matches!(self.peek(ahead + 2), 0xA8 | 0xA9),
            _ => false,
        }
    }

    /// `true` for a blank, a line break or the end of the text.
    pub(crate) fn is_space(&self, ahead: usize) -> bool {
        self.is_blank(ahead) || self.is_break(ahead) || self.at + ahead >= self.text.len()
    }

    /// `true` at the start of a line with `---` or `...` as a separate word.
    pub(crate) fn is_indicator(&self, of: u8) -> bool {
        self.mark.column == 0 && (0..3).all(|ahead| self.peek(ahead) == of) && self.is_space(3)
    }

    /// `true` at the start of a line that ends the document.
    pub(crate) fn is_document_end(&self) -> bool {
        self.is_indicator(b'-') || self.is_indicator(b'.')
    }
}
