//! Streams of documents: concatenated JSON values, YAML documents between `---` lines, or the former followed by
//! the latter. One document at a time is in memory (docs/design/catalogd.md#documents-of-a-file).

use std::io::{self, BufRead as _, Read};

use olm_version::excerpt;

use crate::{DecodeError, Limits, RepeatedKey, first_to_json, json, repeated_keys, tree::Decimals};

/// Bytes at the start of a stream that are inspected to distinguish JSON from YAML.
const GUESS_BYTES: usize = 4096;
const READ_BYTES: usize = 64 << 10;

/// Error that ends a stream.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The reader failed.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// A document is invalid.
    #[error("{message}")]
    Document {
        /// Start of the document.
        position: Position,
        /// Line of the stream at which the fault was found, from 1, if known.
        at: Option<usize>,
        /// The fault.
        message: String,
    },
}

/// Position of a document in its stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Number of the document, from 1, including empty ones.
    pub document: usize,
    /// First line of the document, from 1.
    pub line: usize,
}

/// Notation of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// The text is that of the stream, not yet validated.
    Json,
    /// The text was converted from YAML.
    Yaml,
}

enum Mode {
    /// Nothing read yet.
    Start,
    /// JSON values, with the number of valid ones so far.
    Json(usize),
    Yaml,
}

/// Reader of concatenated documents.
///
/// A stream that begins with `{` is read as JSON until a value is invalid: after at most one valid value the rest
/// is read as YAML from there, after two the error is final. Any other stream is YAML, split at lines that begin
/// with `---`. Only the first value of each part is read.
pub struct Stream<R> {
    reader: R,
    limits: Limits,
    mode: Mode,
    buffer: Vec<u8>,
    /// Consumed bytes of the buffer.
    used: usize,
    /// Bytes and lines of the stream before `used`.
    offset: usize,
    lines: usize,
    ended: bool,
    /// Position of the current or last document.
    position: Position,
    unread: Option<usize>,
    /// Of the last document. `None` if they are not looked for.
    repeated: Option<Vec<RepeatedKey>>,
}

impl<R: Read> Stream<R> {
    /// Creates a stream of documents.
    pub fn new(reader: R, limits: Limits) -> Self {
        let (mode, buffer) = (Mode::Start, Vec::new());
        let position = Position::default();
        Self {
            reader,
            limits,
            mode,
            buffer,
            used: 0,
            offset: 0,
            lines: 0,
            ended: false,
            position,
            unread: None,
            repeated: None,
        }
    }

    /// Makes the stream look for repeated keys.
    #[must_use]
    pub fn with_repeated_keys(mut self) -> Self {
        self.repeated = Some(Vec::new());
        self
    }

    /// Repeated keys of the last document returned by [`Self::next`], if the stream looks for them.
    pub fn repeated_keys(&self) -> &[RepeatedKey] {
        self.repeated.as_deref().unwrap_or_default()
    }

    /// Position of the last document returned by [`Self::next`].
    pub fn position(&self) -> Position {
        self.position
    }

    /// Line, from 1, of skipped content between the last document returned by [`Self::next`] and the next `---`:
    /// only the first value of a YAML document is read.
    pub fn unread(&self) -> Option<usize> {
        self.unread
    }

    /// Reads the next document and passes it to `decode` as JSON text. `None` at the end.
    ///
    /// `decode` determines whether the document is valid. It is called again for the same part of the stream when
    /// rejected JSON is read again as YAML. After an error the stream must not be used again.
    pub fn next<T>(
        &mut self,
        mut decode: impl FnMut(&[u8], Notation) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, StreamError> {
        if let Some(repeated) = &mut self.repeated {
            repeated.clear();
        }
        if matches!(self.mode, Mode::Start) {
            self.mode = if self.begins_as_json()? { Mode::Json(0) } else { Mode::Yaml };
        }
        self.position = Position { document: self.position.document + 1, line: self.line() };
        let Mode::Json(good) = self.mode else {
            return self.next_yaml(&mut decode);
        };
        let Some(length) = self.json_length()? else {
            return Ok(None);
        };
        let blank = self.buffer[self.used..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        self.position.line = self.line() + newlines(&self.buffer[self.used..self.used + blank]);
        let refused = match decode(&self.buffer[self.used..self.used + length], Notation::Json) {
            Ok(value) => {
                let json = &self.buffer[self.used..self.used + length];
                self.repeated = self.repeated.take().map(|_| find_repeated(json, json, self.lines));
                self.mode = Mode::Json(good + 1);
                self.consume(length);
                return Ok(Some(value));
            }
            Err(refused) => refused,
        };
        let position = self.position;
        let read = refused.offset.map(|read| &self.buffer[self.used..][..read.min(length)]);
        let at = read.map(|read| self.line() + newlines(read));
        if good > 1 {
            return Err(StreamError::Document { position, at, message: refused.message });
        }
        let offset = self.offset;
        self.mode = Mode::Yaml;
        self.skip_line_end()?;
        self.next_yaml(&mut decode).map_err(|error| match error {
            StreamError::Document { .. } => {
                // Upstream does not treat an early end of the text as a syntax error.
                let message = match refused.offset.filter(|_| refused.message != "unexpected EOF") {
                    Some(at) => format!("json: offset {}: {}", offset + at, refused.message),
                    None => refused.message,
                };
                StreamError::Document { position, at, message }
            }
            read => read,
        })
    }

    fn line(&self) -> usize {
        self.lines + 1
    }

    fn begins_as_json(&mut self) -> Result<bool, StreamError> {
        while self.buffer.len() < GUESS_BYTES && self.fill()? {}
        let start = &self.buffer[..self.buffer.len().min(GUESS_BYTES)];
        let text = start.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        Ok(text.trim_start().starts_with('{'))
    }

    /// Reads more into the buffer. `false` at the end of the stream.
    fn fill(&mut self) -> Result<bool, StreamError> {
        if self.ended {
            return Ok(false);
        }
        if self.used > 0 {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        let filled = self.buffer.len();
        self.buffer.resize(filled + READ_BYTES, 0);
        let count = loop {
            match self.reader.read(&mut self.buffer[filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.buffer.truncate(filled + *count.as_ref().unwrap_or(&0));
        self.ended = count? == 0;
        Ok(!self.ended)
    }

    fn consume(&mut self, length: usize) {
        self.lines += newlines(&self.buffer[self.used..self.used + length]);
        self.used += length;
        self.offset += length;
    }

    /// Skips Unicode white space up to and including one line feed.
    fn skip_line_end(&mut self) -> Result<(), StreamError> {
        loop {
            while self.buffer.len() - self.used < char::MAX_LEN_UTF8 && self.fill()? {}
            let rest = &self.buffer[self.used..];
            let mut chunks = rest[..rest.len().min(char::MAX_LEN_UTF8)].utf8_chunks();
            let first = chunks.next().and_then(|chunk| chunk.valid().chars().next());
            let Some(blank) = first.filter(|character| character.is_whitespace()) else { return Ok(()) };
            self.consume(blank.len_utf8());
            if blank == '\n' {
                return Ok(());
            }
        }
    }

    fn too_large(&self) -> StreamError {
        let message = format!("document is larger than {} bytes", self.limits.document_bytes);
        StreamError::Document { position: self.position, at: None, message }
    }

    /// Length of the next JSON value with the white space before it, judged by brackets and quotes. The whole rest
    /// if it does not end. `None` if only white space is left.
    fn json_length(&mut self) -> Result<Option<usize>, StreamError> {
        let (mut boundary, mut nodes) = (Boundary::default(), 0);
        let mut seen = 0;
        loop {
            let end = boundary.scan(&self.buffer[self.used + seen..], &mut nodes);
            if nodes > self.limits.nodes {
                let message = format!("document has more than {} values", self.limits.nodes);
                return Err(StreamError::Document { position: self.position, at: None, message });
            }
            if let Some(end) = end {
                return Ok(Some(seen + end));
            }
            seen = self.buffer.len() - self.used;
            if seen > self.limits.document_bytes {
                return Err(self.too_large());
            }
            if !self.fill()? {
                return Ok((!matches!(boundary, Boundary::Before)).then_some(seen));
            }
        }
    }

    fn next_yaml<T>(
        &mut self,
        decode: &mut impl FnMut(&[u8], Notation) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, StreamError> {
        self.position.line = self.line();
        let Some((first, document)) = self.yaml_document()? else {
            return Ok(None);
        };
        let position = self.position;
        let (json, unread) = first_to_json(&document, &self.limits, Decimals::Resolved).map_err(|error| {
            // Faults at the end of the text are located after the last line.
            let at = error.line().map(|line| first + line.min(newlines(&document).max(1)) - 1);
            StreamError::Document { position, at, message: error.to_string() }
        })?;
        self.repeated = self.repeated.take().map(|_| find_repeated(&json, &document, first - 1));
        drop(document);
        self.unread = unread.map(|line| first + line - 1);
        decode(&json, Notation::Yaml).map(Some).map_err(|error| {
            let message = format!("error unmarshaling JSON: while decoding JSON: {}", error.message);
            StreamError::Document { position, at: None, message }
        })
    }

    /// Number of the first line, and the lines up to the next separator, each with a final line feed. A separator
    /// at the start belongs to the document, so that the next one ends it even if there is nothing between them.
    fn yaml_document(&mut self) -> Result<Option<(usize, Vec<u8>)>, StreamError> {
        let first = self.line();
        let mut document = Vec::new();
        while let Some(length) = self.line_length()? {
            let line = &self.buffer[self.used..self.used + length];
            if let Some(rest) = line.strip_prefix(b"---") {
                let rest = String::from_utf8_lossy(rest);
                let rest = rest.trim();
                if !rest.is_empty() && !rest.starts_with('#') {
                    let message = format!("invalid Yaml document separator: {}", excerpt(rest));
                    let at = Some(self.line());
                    return Err(StreamError::Document { position: self.position, at, message });
                }
                self.consume(length);
                if !document.is_empty() {
                    return Ok(Some((first, document)));
                }
                document.extend_from_slice(b"---\n");
                self.position.line = self.line();
                continue;
            }
            let content = line.strip_suffix(b"\n").map_or(line, |l| l.strip_suffix(b"\r").unwrap_or(l));
            document.extend_from_slice(content);
            document.push(b'\n');
            self.consume(length);
            if document.len() > self.limits.document_bytes {
                return Err(self.too_large());
            }
        }
        Ok((!document.is_empty()).then_some((first, document)))
    }

    /// Length of the next line with its line feed. `None` at the end of the stream.
    fn line_length(&mut self) -> Result<Option<usize>, StreamError> {
        let mut seen = 0;
        loop {
            let mut rest = &self.buffer[self.used + seen..];
            seen += rest.skip_until(b'\n')?;
            if seen > 0 && self.buffer[self.used + seen - 1] == b'\n' {
                return Ok(Some(seen));
            }
            if seen > self.limits.document_bytes {
                return Err(self.too_large());
            }
            if !self.fill()? {
                return Ok((seen > 0).then_some(seen));
            }
        }
    }
}

/// Repeated keys of a document that was converted to `json`, with `before` lines before it.
fn find_repeated(json: &[u8], document: &[u8], before: usize) -> Vec<RepeatedKey> {
    if json::has_repeated_keys(json) { repeated_keys::of_document(document, before) } else { Vec::new() }
}

fn newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|b| **b == b'\n').count()
}

/// Finds the end of a JSON value without validating it.
#[derive(Default)]
enum Boundary {
    /// In the white space before it.
    #[default]
    Before,
    /// In a number or word.
    Word,
    /// Inside this many brackets.
    Inside(usize),
    /// In a string inside this many brackets. `true` after a backslash.
    Quoted(usize, bool),
}

impl Boundary {
    /// Counts in `nodes` the characters that separate or enclose values.
    fn scan(&mut self, bytes: &[u8], nodes: &mut usize) -> Option<usize> {
        for (at, &byte) in bytes.iter().enumerate() {
            *self = match (&*self, byte) {
                (Self::Before, b' ' | b'\t' | b'\r' | b'\n') => Self::Before,
                (Self::Before, b'"') => Self::Quoted(0, false),
                (Self::Before, b'{' | b'[') => Self::Inside(1),
                (Self::Before, b'}' | b']' | b',' | b':') => return Some(at + 1),
                (Self::Before, _) => Self::Word,
                (
                    Self::Word,
                    b' ' | b'\t' | b'\r' | b'\n' | b'{' | b'}' | b'[' | b']' | b',' | b':' | b'"',
                ) => {
                    return Some(at);
                }
                (Self::Word, _) => Self::Word,
                (Self::Inside(depth), b'"') => Self::Quoted(*depth, false),
                (Self::Inside(depth), b'{' | b'[') => {
                    *nodes += 1;
                    Self::Inside(depth + 1)
                }
                (Self::Inside(1), b'}' | b']') => return Some(at + 1),
                (Self::Inside(depth), b'}' | b']') => Self::Inside(depth - 1),
                (Self::Inside(_), _) => {
                    *nodes += usize::from(matches!(byte, b',' | b':'));
                    continue;
                }
                (Self::Quoted(depth, true), _) => Self::Quoted(*depth, false),
                (Self::Quoted(depth, false), b'\\') => Self::Quoted(*depth, true),
                (Self::Quoted(0, false), b'"') => return Some(at + 1),
                (Self::Quoted(depth, false), b'"') => Self::Inside(*depth),
                (Self::Quoted(..), _) => continue,
            };
        }
        None
    }
}
