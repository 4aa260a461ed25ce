//! Scanner of scalars: line folding, escapes, block indentation.

use std::borrow::Cow;

use crate::{
    Error,
    scan::{Placed, Scanner, Token},
};

/// White space between two parts of a multi-line scalar.
#[derive(Default)]
struct Gap<'a> {
    /// First line break, and those after it.
    first: &'a str,
    further: String,
    broken: bool,
}

impl Gap<'_> {
    /// Appends the folded line breaks: a space for one line feed, otherwise all but the first. Other line breaks
    /// are kept unchanged.
    fn fold(&mut self, out: &mut String) {
        if self.first != "\n" {
            out.extend([self.first, &self.further]);
        } else if self.further.is_empty() {
            out.push(' ');
        } else {
            out.push_str(&self.further);
        }
        *self = Self::default();
    }
}

/// Text of a scalar: the already modified part, and the rest as in the document.
fn joined<'a>(mut folded: String, rest: &'a str) -> Cow<'a, str> {
    if folded.is_empty() {
        return rest.into();
    }
    folded.push_str(rest);
    folded.into()
}

impl<'a> Scanner<'a> {
    /// Scans white space into `gap`. In a plain scalar a tab must not indent a line.
    fn gap(&mut self, gap: &mut Gap<'a>, plain: bool) -> Result<(), Error> {
        loop {
            if self.cursor.is_break(0) {
                let line_break = self.cursor.skip_break();
                if gap.broken {
                    gap.further.push_str(line_break);
                } else {
                    gap.first = line_break;
                }
                gap.broken = true;
            } else if !self.cursor.is_blank(0) {
                return Ok(());
            } else {
                let margin = self.indent + 1;
                let tab = self.cursor.peek(0) == b'\t';
                if gap.broken && plain && tab && (self.cursor.mark.column as isize) < margin {
                    return self.fail("found a tab character that violates indentation");
                }
                self.cursor.skip();
            }
        }
    }

    pub(super) fn plain_scalar(&mut self) -> Result<Placed<'a>, Error> {
        let start = self.cursor.mark;
        let (mut folded, mut gap) = (String::new(), Gap::default());
        let (mut from, mut to) = (self.cursor.at, self.cursor.at);
        loop {
            if self.cursor.is_document_end() || self.cursor.peek(0) == b'#' {
                break;
            }
            let here = self.cursor.at;
            while !self.cursor.is_space(0) && !self.ends_plain() {
                self.cursor.skip();
                self.cursor.skip_while(is_ordinary);
            }
            if self.cursor.at > here {
                if gap.broken {
                    folded.push_str(self.cursor.between(from, to));
                    gap.fold(&mut folded);
                    from = here;
                }
                to = self.cursor.at;
            }
            if !self.cursor.is_blank(0) && !self.cursor.is_break(0) {
                break;
            }
            self.gap(&mut gap, true)?;
            if self.flow_level == 0 && (self.cursor.mark.column as isize) <= self.indent {
                break;
            }
        }
        if gap.broken {
            self.key_allowed = true;
        }
        let text = joined(folded, self.cursor.between(from, to));
        Ok((Token::Scalar { text, plain: true }, start))
    }

    /// `true` if the current character ends a plain scalar without white space before it.
    fn ends_plain(&self) -> bool {
        match self.cursor.peek(0) {
            b':' => self.cursor.is_space(1),
            b',' | b'?' | b'[' | b']' | b'{' | b'}' => self.flow_level > 0,
            _ => false,
        }
    }

    pub(super) fn quoted_scalar(&mut self, quote: u8) -> Result<Placed<'a>, Error> {
        let start = self.cursor.mark;
        self.cursor.skip();
        let (mut folded, mut gap) = (String::new(), Gap::default());
        let mut from = self.cursor.at;
        loop {
            if self.cursor.is_document_end() {
                return self.fail("found unexpected document indicator");
            }
            if self.cursor.at_end() {
                return self.fail("found unexpected end of stream");
            }
            while !self.cursor.is_space(0) {
                match self.cursor.peek(0) {
                    b'\'' if quote == b'\'' && self.cursor.peek(1) == b'\'' => {
                        self.cursor.skip();
                        folded.push_str(self.cursor.between(from, self.cursor.at));
                        self.cursor.skip();
                        from = self.cursor.at;
                    }
                    b'\\' if quote == b'"' && self.cursor.is_break(1) => {
                        folded.push_str(self.cursor.between(from, self.cursor.at));
                        self.cursor.skip();
                        self.cursor.skip_break();
                        from = self.cursor.at;
                        // The break is already read: later ones are kept.
                        gap.broken = true;
                        break;
                    }
                    b'\\' if quote == b'"' => {
                        folded.push_str(self.cursor.between(from, self.cursor.at));
                        self.escape(&mut folded)?;
                        from = self.cursor.at;
                    }
                    end if end == quote => break,
                    _ => {
                        self.cursor.skip();
                        self.cursor.skip_while(is_ordinary);
                    }
                }
            }
            if self.cursor.peek(0) == quote {
                break;
            }
            let to = self.cursor.at;
            self.gap(&mut gap, false)?;
            if gap.broken {
                folded.push_str(self.cursor.between(from, to));
                gap.fold(&mut folded);
                from = self.cursor.at;
            }
        }
        let text = joined(folded, self.cursor.between(from, self.cursor.at));
        self.cursor.skip();
        Ok((Token::Scalar { text, plain: false }, start))
    }

    fn escape(&mut self, text: &mut String) -> Result<(), Error> {
        let (character, digits) = match self.cursor.peek(1) {
            b'0' => ('\0', 0),
            b'a' => ('\x07', 0),
            b'b' => ('\x08', 0),
            b't' | b'\t' => ('\t', 0),
            b'n' => ('\n', 0),
            b'v' => ('\x0B', 0),
            b'f' => ('\x0C', 0),
            b'r' => ('\r', 0),
            b'e' => ('\x1B', 0),
            own @ (b' ' | b'"' | b'\'' | b'\\') => (char::from(own), 0),
            b'N' => ('\u{85}', 0),
            b'_' => ('\u{A0}', 0),
            b'L' => ('\u{2028}', 0),
            b'P' => ('\u{2029}', 0),
            b'x' => ('\0', 2),
            b'u' => ('\0', 4),
            b'U' => ('\0', 8),
            _ => {
                return self.fail("found unknown escape character");
            }
        };
        self.cursor.skip();
        self.cursor.skip();
        if digits == 0 {
            text.push(character);
            return Ok(());
        }
        let mut value = 0u32;
        for ahead in 0..digits {
            let Some(digit) = char::from(self.cursor.peek(ahead)).to_digit(16) else {
                return self.fail("did not find expected hexdecimal number");
            };
            value = value << 4 | digit;
        }
        let Some(character) = char::from_u32(value) else {
            return self.fail("found invalid Unicode character escape code");
        };
        (0..digits).for_each(|_| self.cursor.skip());
        text.push(character);
        Ok(())
    }

    pub(super) fn block_scalar(&mut self, literal: bool) -> Result<Placed<'a>, Error> {
        let start = self.cursor.mark;
        self.cursor.skip();
        let (keep, increment) = self.block_header()?;
        let mut indent = increment.map(|increment| increment + self.indent.max(0) as usize);
        let mut breaks = String::new();
        self.block_breaks(&mut indent, &mut breaks)?;
        let (mut text, mut last_break) = (String::new(), "");
        let mut after_blank = false;
        while Some(self.cursor.mark.column) == indent && !self.cursor.at_end() {
            let blank = self.cursor.is_blank(0);
            if !literal && !after_blank && !blank && last_break == "\n" {
                if breaks.is_empty() {
                    text.push(' ');
                }
            } else {
                text.push_str(last_break);
            }
            last_break = "";
            text.push_str(&breaks);
            breaks.clear();
            after_blank = blank;
            text.push_str(self.cursor.skip_line());
            if !self.cursor.at_end() {
                last_break = self.cursor.skip_break();
            }
            self.block_breaks(&mut indent, &mut breaks)?;
        }
        if keep != Keep::None {
            text.push_str(last_break);
        }
        if keep == Keep::All {
            text.push_str(&breaks);
        }
        Ok((Token::Scalar { text: text.into(), plain: false }, start))
    }

    /// Scans the indicators after `|` or `>` and the rest of their line.
    fn block_header(&mut self) -> Result<(Keep, Option<usize>), Error> {
        let (mut keep, mut increment) = (None, None);
        loop {
            match self.cursor.peek(0) {
                sign @ (b'+' | b'-') if keep.is_none() => {
                    keep = Some(if sign == b'+' { Keep::All } else { Keep::None });
                }
                b'0' if increment.is_none() => {
                    return self.fail("found an indentation indicator equal to 0");
                }
                digit @ b'1'..=b'9' if increment.is_none() => increment = Some(usize::from(digit - b'0')),
                _ => break,
            }
            self.cursor.skip();
        }
        self.cursor.skip_while(|b| matches!(b, b' ' | b'\t'));
        if self.cursor.peek(0) == b'#' {
            self.cursor.skip_line();
        }
        if self.cursor.is_break(0) {
            self.cursor.skip_break();
        } else if !self.cursor.at_end() {
            return self.fail("did not find expected comment or line break");
        }
        Ok((keep.unwrap_or(Keep::One), increment))
    }

    /// Skips indentation and empty lines before a line of a block scalar. Without an indicator in the header, the
    /// first line with text determines the indentation.
    fn block_breaks(&mut self, indent: &mut Option<usize>, breaks: &mut String) -> Result<(), Error> {
        let mut deepest = 0;
        loop {
            let inside = |column: usize| indent.is_none_or(|indent| column < indent);
            while inside(self.cursor.mark.column) && self.cursor.peek(0) == b' ' {
                self.cursor.skip();
            }
            deepest = deepest.max(self.cursor.mark.column);
            if inside(self.cursor.mark.column) && self.cursor.peek(0) == b'\t' {
                return self.fail("found a tab character where an indentation space is expected");
            }
            if !self.cursor.is_break(0) {
                break;
            }
            breaks.push_str(self.cursor.skip_break());
        }
        let least = (self.indent + 1).max(1) as usize;
        indent.get_or_insert(deepest.max(least));
        Ok(())
    }
}

/// `true` for characters without a meaning in any scalar, which are skipped together.
fn is_ordinary(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'.' | b'/' | b'_' | b'+' | b'=' | b'(' | b')' | b'@')
}

/// Line breaks to keep at the end of a block scalar.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    None,
    One,
    All,
}
