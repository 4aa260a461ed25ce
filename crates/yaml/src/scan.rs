//! Scanner from text to tokens: block structure becomes brackets, keys are recognized by the `:` after them.
//!
//! Implements YAML 1.1 as upstream's YAML library does. A crate for YAML 1.2 is not sufficient: it rejects `[-]`,
//! quoted text that is continued at the margin, and other input in the vectors.

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
};

use crate::{
    Error,
    cursor::{Cursor, Mark},
};

#[derive(Debug, PartialEq)]
pub(crate) enum Token<'a> {
    StreamEnd,
    DocumentStart,
    DocumentEnd,
    /// `%YAML`, with the version as written.
    Version(&'a str),
    /// `%TAG`: handle and prefix.
    TagPrefix(&'a str, &'a str),
    BlockListStart,
    BlockMappingStart,
    BlockEnd,
    FlowListStart,
    FlowListEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(&'a str),
    Anchor(&'a str),
    /// Handle and suffix. The handle is empty for `!<…>` and for a lone `!`, whose suffix is `!`.
    Tag(&'a str, String),
    Scalar {
        text: Cow<'a, str>,
        plain: bool,
    },
}

/// Token and its start.
pub(crate) type Placed<'a> = (Token<'a>, Mark);

/// Deepest accepted nesting, as upstream.
const MAX_DEPTH: usize = 10_000;
/// Most characters between the start of a key and its `:`.
const MAX_KEY_LENGTH: usize = 1024;

/// Possible start of a key without `?` before it.
#[derive(Clone, Copy, Default)]
struct SimpleKey {
    possible: bool,
    /// In block context at the margin only a key can start.
    required: bool,
    /// Number of the possible key token, counted from the start of the stream.
    token: usize,
    mark: Mark,
}

pub(crate) struct Scanner<'a> {
    pub(super) cursor: Cursor<'a>,
    queue: VecDeque<Placed<'a>>,
    /// Number of tokens taken.
    taken: usize,
    /// Column of the current block collection, or -1 outside of any.
    pub(super) indent: isize,
    indents: Vec<isize>,
    pub(super) flow_level: usize,
    pub(super) key_allowed: bool,
    /// Last possible key on each level of flow collections, block context first.
    keys: Vec<SimpleKey>,
    /// Level of the possible key for each token in the queue that may be one.
    key_levels: BTreeMap<usize, usize>,
}

/// Error of the scanner. Upstream names the line unless it is the first.
pub(super) fn problem(mark: Mark, text: &str) -> Error {
    let line = if mark.line == 0 { 0 } else { mark.line + 1 };
    Error::Syntax { line, at: mark.line + 1, problem: text.to_owned() }
}

fn no_token() -> Error {
    Error::Invalid("did not find expected token".to_owned())
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            cursor: Cursor::new(text),
            queue: VecDeque::new(),
            taken: 0,
            indent: -1,
            indents: Vec::new(),
            flow_level: 0,
            key_allowed: true,
            keys: vec![SimpleKey::default()],
            key_levels: BTreeMap::new(),
        }
    }

    /// Next token, without taking it.
    pub(crate) fn peek(&mut self) -> Result<&Placed<'a>, Error> {
        while self.needs_more()? {
            self.scan_token()?;
        }
        self.queue.front().ok_or_else(no_token)
    }

    pub(crate) fn next(&mut self) -> Result<Placed<'a>, Error> {
        self.peek()?;
        self.key_levels.remove(&self.taken);
        self.taken += 1;
        self.queue.pop_front().ok_or_else(no_token)
    }

    /// `true` if the head of the queue may still turn out to be a key.
    fn needs_more(&mut self) -> Result<bool, Error> {
        if self.queue.is_empty() {
            return Ok(true);
        }
        match self.key_levels.get(&self.taken) {
            Some(&level) => self.is_key_possible(level),
            None => Ok(false),
        }
    }

    pub(super) fn fail<T>(&self, text: &str) -> Result<T, Error> {
        Err(problem(self.cursor.mark, text))
    }

    fn push(&mut self, token: Token<'a>, mark: Mark) {
        self.queue.push_back((token, mark));
    }

    /// Takes `width` characters as a token.
    fn push_indicator(&mut self, token: Token<'a>, width: usize) {
        let mark = self.cursor.mark;
        (0..width).for_each(|_| self.cursor.skip());
        self.push(token, mark);
    }

    fn scan_token(&mut self) -> Result<(), Error> {
        self.skip_to_token();
        let column = self.cursor.mark.column as isize;
        self.close_blocks(column);
        if self.cursor.at_end() {
            return self.stream_end();
        }
        let (first, flow) = (self.cursor.peek(0), self.flow_level > 0);
        let alone = self.cursor.is_space(1);
        match first {
            b'%' if column == 0 => {
                self.end_document()?;
                let token = self.directive()?;
                self.queue.push_back(token);
                Ok(())
            }
            b'-' if self.cursor.is_indicator(b'-') => self.document_indicator(Token::DocumentStart),
            b'.' if self.cursor.is_indicator(b'.') => self.document_indicator(Token::DocumentEnd),
            b'[' => self.flow_start(Token::FlowListStart),
            b'{' => self.flow_start(Token::FlowMappingStart),
            b']' => self.flow_end(Token::FlowListEnd),
            b'}' => self.flow_end(Token::FlowMappingEnd),
            b',' => {
                self.forget_key()?;
                self.key_allowed = true;
                self.push_indicator(Token::FlowEntry, 1);
                Ok(())
            }
            b'-' if alone => self.block_entry(),
            b'?' if flow || alone => self.explicit_key(),
            b':' if flow || alone => self.value(),
            b'*' | b'&' => self.content(|scanner| scanner.anchor(first == b'*')),
            b'!' => self.content(Self::tag),
            b'\'' | b'"' => self.content(|scanner| scanner.quoted_scalar(first)),
            b'|' | b'>' if !flow => {
                self.forget_key()?;
                self.key_allowed = true;
                let token = self.block_scalar(first == b'|')?;
                self.queue.push_back(token);
                Ok(())
            }
            b'?' | b'#' | b'|' | b'>' | b'%' | b'@' | b'`' | b'\t' if flow || first != b'?' => {
                self.fail("found character that cannot start any token")
            }
            _ => self.content(Self::plain_scalar),
        }
    }

    /// Scans a token that may be a key, or the start of one.
    fn content(&mut self, read: impl FnOnce(&mut Self) -> Result<Placed<'a>, Error>) -> Result<(), Error> {
        self.note_key()?;
        self.key_allowed = false;
        let token = read(self)?;
        self.queue.push_back(token);
        Ok(())
    }

    /// Skips white space, comments and line breaks. A tab is not indentation: it is allowed only where no key can
    /// start.
    fn skip_to_token(&mut self) {
        loop {
            let tabs = self.flow_level > 0 || !self.key_allowed;
            self.cursor.skip_while(|b| b == b' ' || tabs && b == b'\t');
            if self.cursor.peek(0) == b'#' {
                self.cursor.skip_line();
            }
            if !self.cursor.is_break(0) {
                return;
            }
            self.cursor.skip_break();
            if self.flow_level == 0 {
                self.key_allowed = true;
            }
        }
    }

    /// `true` if the possible key of a level is still valid: its `:` must follow on the same line.
    fn is_key_possible(&mut self, level: usize) -> Result<bool, Error> {
        let Some(key) = self.keys.get_mut(level).filter(|key| key.possible) else {
            return Ok(false);
        };
        let here = self.cursor.mark;
        if key.mark.line == here.line && key.mark.index + MAX_KEY_LENGTH >= here.index {
            return Ok(true);
        }
        key.possible = false;
        if key.required {
            return Err(problem(here, "could not find expected ':'"));
        }
        Ok(false)
    }

    /// Records that a key may start here.
    fn note_key(&mut self) -> Result<(), Error> {
        if !self.key_allowed {
            return Ok(());
        }
        self.forget_key()?;
        let mark = self.cursor.mark;
        let required = self.flow_level == 0 && self.indent == mark.column as isize;
        let token = self.taken + self.queue.len();
        self.key_levels.insert(token, self.keys.len() - 1);
        if let Some(key) = self.keys.last_mut() {
            *key = SimpleKey { possible: true, required, token, mark };
        }
        Ok(())
    }

    /// Discards the possible key of this level.
    fn forget_key(&mut self) -> Result<(), Error> {
        let here = self.cursor.mark;
        let Some(key) = self.keys.last_mut().filter(|key| key.possible) else {
            return Ok(());
        };
        if key.required {
            return Err(problem(here, "could not find expected ':'"));
        }
        key.possible = false;
        self.key_levels.remove(&key.token);
        Ok(())
    }

    /// Opens a block collection at `column` unless one is open there. `token` is the number of its first token.
    fn open_block(
        &mut self,
        column: usize,
        token: Option<usize>,
        kind: Token<'a>,
        mark: Mark,
    ) -> Result<(), Error> {
        if self.flow_level > 0 || self.indent >= column as isize {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column as isize;
        if self.indents.len() > MAX_DEPTH {
            return self.fail(&format!("exceeded max depth of {MAX_DEPTH}"));
        }
        self.insert(token, (kind, mark));
        Ok(())
    }

    /// Opens a block collection at an indicator, outside of flow collections.
    fn start_block(&mut self, kind: Token<'a>, refusal: &str) -> Result<(), Error> {
        let mark = self.cursor.mark;
        if self.flow_level == 0 && !self.key_allowed {
            return self.fail(refusal);
        }
        self.open_block(mark.column, None, kind, mark)
    }

    /// Inserts a token before the one with that number, or at the end if that is already taken or `None`.
    fn insert(&mut self, before: Option<usize>, token: Placed<'a>) {
        let place = before.and_then(|number| number.checked_sub(self.taken));
        self.queue.insert(place.unwrap_or(self.queue.len()).min(self.queue.len()), token);
    }

    /// Closes the block collections that are indented deeper than `column`.
    fn close_blocks(&mut self, column: isize) {
        while self.flow_level == 0 && self.indent > column {
            self.push(Token::BlockEnd, self.cursor.mark);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn stream_end(&mut self) -> Result<(), Error> {
        if self.cursor.mark.column != 0 {
            self.cursor.mark.column = 0;
            self.cursor.mark.line += 1;
        }
        self.end_document()?;
        self.push(Token::StreamEnd, self.cursor.mark);
        Ok(())
    }

    /// Closes all open collections of a document.
    fn end_document(&mut self) -> Result<(), Error> {
        self.close_blocks(-1);
        self.forget_key()?;
        self.key_allowed = false;
        Ok(())
    }

    fn document_indicator(&mut self, token: Token<'a>) -> Result<(), Error> {
        self.end_document()?;
        self.push_indicator(token, 3);
        Ok(())
    }

    fn flow_start(&mut self, token: Token<'a>) -> Result<(), Error> {
        self.note_key()?;
        self.keys.push(SimpleKey { token: self.taken + self.queue.len(), ..SimpleKey::default() });
        self.flow_level += 1;
        if self.flow_level > MAX_DEPTH {
            return self.fail(&format!("exceeded max depth of {MAX_DEPTH}"));
        }
        self.key_allowed = true;
        self.push_indicator(token, 1);
        Ok(())
    }

    fn flow_end(&mut self, token: Token<'a>) -> Result<(), Error> {
        self.forget_key()?;
        if self.flow_level > 0 {
            self.flow_level -= 1;
            // An empty collection has no key of its own. This then removes the entry of the bracket itself, which
            // from now on is not a key.
            if let Some(key) = self.keys.pop() {
                self.key_levels.remove(&key.token);
            }
        }
        self.key_allowed = false;
        self.push_indicator(token, 1);
        Ok(())
    }

    fn block_entry(&mut self) -> Result<(), Error> {
        self.start_block(Token::BlockListStart, "block sequence entries are not allowed in this context")?;
        self.forget_key()?;
        self.key_allowed = true;
        self.push_indicator(Token::BlockEntry, 1);
        Ok(())
    }

    fn explicit_key(&mut self) -> Result<(), Error> {
        self.start_block(Token::BlockMappingStart, "mapping keys are not allowed in this context")?;
        self.forget_key()?;
        self.key_allowed = self.flow_level == 0;
        self.push_indicator(Token::Key, 1);
        Ok(())
    }

    fn value(&mut self) -> Result<(), Error> {
        let level = self.keys.len() - 1;
        if self.is_key_possible(level)? {
            let key = self.keys[level];
            self.insert(Some(key.token), (Token::Key, key.mark));
            self.open_block(key.mark.column, Some(key.token), Token::BlockMappingStart, key.mark)?;
            self.keys[level].possible = false;
            self.key_levels.remove(&key.token);
            self.key_allowed = false;
        } else {
            self.start_block(Token::BlockMappingStart, "mapping values are not allowed in this context")?;
            self.key_allowed = self.flow_level == 0;
        }
        self.push_indicator(Token::Value, 1);
        Ok(())
    }
}
