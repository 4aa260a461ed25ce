//! Validation of JSON text and conversion to canonical form in one pass.
//!
//! Text is written in input order. Objects with unsorted keys are recorded, and sorted by one final copy. Memory is
//! thus a small multiple of the input, and nesting cannot exhaust the stack.

use std::{borrow::Cow, ops::Range};

use serde_json::Value;

use crate::DecodeError;

use super::{
    lossy,
    scan::{Draft, scan},
};

/// JSON text in canonical form: compact, keys sorted by bytes at every level, the last of equal keys kept, numbers
/// converted through a double, one spelling of strings (docs/design/catalogd.md#canonical-line).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canonical {
    /// Text without a final newline.
    pub text: Vec<u8>,
    /// Kind of the value.
    pub kind: Kind,
    /// Members of the outermost object, sorted by key.
    pub members: Vec<JsonMember>,
}

/// Kind of a JSON value, named as in the messages of Go's decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// A list.
    Array,
    /// An object.
    Object,
}

impl Kind {
    /// `array`, `object`, `string`, …
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    /// Kind of the value at the start of the JSON text, which must not start with white space. `Null` for an empty
    /// text.
    pub fn of(json: &[u8]) -> Self {
        match json.first() {
            Some(b'{') => Self::Object,
            Some(b'[') => Self::Array,
            Some(b'"') => Self::String,
            Some(b't' | b'f') => Self::Bool,
            Some(b'n') | None => Self::Null,
            Some(_) => Self::Number,
        }
    }
}

impl From<&Value> for Kind {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Bool,
            Value::Number(_) => Self::Number,
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        }
    }
}

/// Member of the outermost object, as byte ranges of the canonical text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonMember {
    /// Key with its quotes.
    pub key: Range<usize>,
    /// Value.
    pub value: Range<usize>,
}

impl Canonical {
    /// Key of a member.
    pub fn key(&self, member: &JsonMember) -> Cow<'_, str> {
        unquote(&self.text[member.key.clone()])
    }

    /// Value of a member if it is a string.
    pub fn string(&self, member: &JsonMember) -> Option<Cow<'_, str>> {
        let text = &self.text[member.value.clone()];
        text.starts_with(b"\"").then(|| unquote(text))
    }
}

/// Validates one JSON value, with white space around it, and returns its canonical form.
///
/// ```
/// let canonical = olm_yaml::json::canonicalize(br#"{"b": 1.0, "a": "\u00e9"}"#)?;
/// assert_eq!(canonical.text, r#"{"a":"é","b":1}"#.as_bytes());
/// # Ok::<(), olm_yaml::DecodeError>(())
/// ```
pub fn canonicalize(json: &[u8]) -> Result<Canonical, DecodeError> {
    scan(json).map(Draft::finish)
}

impl Draft {
    /// Copies the text, sorting the members of every recorded object.
    fn finish(mut self) -> Canonical {
        let kind = Kind::of(&self.out);
        let outermost = if kind == Kind::Object { self.reordered.pop() } else { None };
        self.reordered.sort_unstable_by_key(|object| object.range.start);
        let Some(outermost) = outermost else {
            let mut text = Vec::with_capacity(self.out.len() + 1);
            self.copy(0..self.out.len(), &mut text);
            return Canonical { text, kind, members: Vec::new() };
        };
        let mut text = Vec::with_capacity(self.out.len() + 1);
        let mut members = Vec::with_capacity(outermost.members.len());
        text.push(b'{');
        for (index, member) in outermost.members.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            let start = text.len();
            let key = start..start + (member.key_end - member.start);
            self.copy(member.start..member.end, &mut text);
            members.push(JsonMember { value: key.end + 1..text.len(), key });
        }
        text.push(b'}');
        Canonical { text, kind, members }
    }

    fn copy(&self, range: Range<usize>, text: &mut Vec<u8>) {
        enum Piece {
            Text(Range<usize>),
            Byte(u8),
        }
        let mut pieces = vec![Piece::Text(range)];
        while let Some(piece) = pieces.pop() {
            let range = match piece {
                Piece::Byte(byte) => {
                    text.push(byte);
                    continue;
                }
                Piece::Text(range) => range,
            };
            let next = self.reordered.partition_point(|object| object.range.start < range.start);
            match self.reordered.get(next) {
                Some(object) if object.range.start < range.end => {
                    text.extend_from_slice(&self.out[range.start..object.range.start]);
                    text.push(b'{');
                    pieces.push(Piece::Text(object.range.end..range.end));
                    pieces.push(Piece::Byte(b'}'));
                    for (index, member) in object.members.iter().enumerate().rev() {
                        pieces.push(Piece::Text(member.start..member.end));
                        if index > 0 {
                            pieces.push(Piece::Byte(b','));
                        }
                    }
                }
                _ => text.extend_from_slice(&self.out[range]),
            }
        }
    }
}

/// Content of a string in canonical spelling.
pub(super) fn unquote(quoted: &[u8]) -> Cow<'_, str> {
    let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    if !inner.contains(&b'\\') {
        return lossy(inner);
    }
    Cow::Owned(serde_json::from_slice(quoted).unwrap_or_default())
}
