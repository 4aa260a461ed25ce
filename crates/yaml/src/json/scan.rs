//! Validation of JSON text, rewritten in input order.

use std::{cmp::Ordering, ops::Range};

use olm_version::excerpt;

use super::{canonical::unquote, lossy, write_escape, write_number};
use crate::DecodeError;

/// Nesting accepted by Go's decoder.
const MAX_DEPTH: usize = 10_000;

/// Offsets of a written member: start and end of its key, end of its value.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub(super) start: usize,
    pub(super) key_end: usize,
    pub(super) end: usize,
}

/// Object whose members must be sorted.
pub(super) struct Reordered {
    pub(super) range: Range<usize>,
    pub(super) members: Vec<Written>,
}

/// Validated text in canonical spelling, but in input order.
pub(super) struct Draft {
    pub(super) out: Vec<u8>,
    /// Unsorted objects in the order of their ends. Always includes the outermost object with all its members.
    pub(super) reordered: Vec<Reordered>,
}

/// Parses one JSON value with white space around it.
pub(super) fn scan(json: &[u8]) -> Result<Draft, DecodeError> {
    let mut scan = Scan {
        json,
        at: 0,
        out: Vec::with_capacity(json.len()),
        open: Vec::new(),
        members: Vec::new(),
        reordered: Vec::new(),
    };
    scan.value()?;
    scan.white_space();
    match json.get(scan.at) {
        None => Ok(Draft { out: scan.out, reordered: scan.reordered }),
        Some(&byte) => {
            scan.at += 1;
            Err(scan.unexpected(byte, "after top-level value"))
        }
    }
}

enum Open {
    Array,
    /// Start of the object in the text, and index of its first member in `Scan::members`.
    Object(usize, usize),
}

struct Scan<'a> {
    json: &'a [u8],
    at: usize,
    out: Vec<u8>,
    open: Vec<Open>,
    /// Members of all open objects.
    members: Vec<Written>,
    reordered: Vec<Reordered>,
}

impl Scan<'_> {
    fn white_space(&mut self) {
        while matches!(self.json.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Consumes the next byte that is not white space.
    fn token(&mut self) -> Result<u8, DecodeError> {
        self.white_space();
        let byte = *self.json.get(self.at).ok_or_else(|| self.end())?;
        self.at += 1;
        Ok(byte)
    }

    fn end(&self) -> DecodeError {
        DecodeError { message: "unexpected EOF".to_owned(), offset: Some(self.json.len()) }
    }

    /// Error about an unexpected `byte`. `at` is its position or the one after it.
    fn unexpected(&self, byte: u8, place: &str) -> DecodeError {
        let shown = match byte {
            b'\'' => r"'\''".to_owned(),
            b'"' => r#"'"'"#.to_owned(),
            b'\\' => r"'\\'".to_owned(),
            b' '..=b'~' => format!("'{}'", char::from(byte)),
            b'\n' => r"'\n'".to_owned(),
            b'\r' => r"'\r'".to_owned(),
            b'\t' => r"'\t'".to_owned(),
            0xA1.. => format!("'{}'", char::from(byte)),
            _ => format!("'\\x{byte:02x}'"),
        };
        DecodeError { message: format!("invalid character {shown} {place}"), offset: Some(self.at) }
    }

    fn value(&mut self) -> Result<(), DecodeError> {
        loop {
            let byte = self.token()?;
            match byte {
                b'{' | b'[' => self.open(byte)?,
                b'"' => self.string()?,
                b'-' | b'0'..=b'9' => self.number()?,
                b't' => self.word("true")?,
                b'f' => self.word("false")?,
                b'n' => self.word("null")?,
                _ => return Err(self.unexpected(byte, "looking for beginning of value")),
            }
            let opened = matches!(byte, b'{' | b'[');
            if !self.next_value(opened)? {
                return Ok(());
            }
        }
    }

    fn open(&mut self, byte: u8) -> Result<(), DecodeError> {
        if self.open.len() == MAX_DEPTH {
            return Err(DecodeError { message: "exceeded max depth".to_owned(), offset: Some(self.at) });
        }
        self.open.push(match byte {
            b'[' => Open::Array,
            _ => Open::Object(self.out.len(), self.members.len()),
        });
        self.out.push(byte);
        Ok(())
    }

    /// Advances to the start of the next value, closing collections that end before it. `false` when none is open.
    /// `first` is `true` if a list or object has just been opened.
    fn next_value(&mut self, mut first: bool) -> Result<bool, DecodeError> {
        while let Some(open) = self.open.last() {
            let object = matches!(open, Open::Object(..));
            let byte = self.token()?;
            match (byte, object) {
                (b']', false) => self.close(byte),
                (b'}', true) => {
                    if !first {
                        self.member_end();
                    }
                    self.close(byte);
                }
                (_, false) if first => {
                    self.at -= 1;
                    return Ok(true);
                }
                (b',', false) => {
                    self.out.push(b',');
                    return Ok(true);
                }
                (_, true) if first => return self.key(byte),
                (b',', true) => {
                    self.member_end();
                    self.out.push(b',');
                    let byte = self.token()?;
                    return self.key(byte);
                }
                (_, true) => return Err(self.unexpected(byte, "after object key:value pair")),
                (_, false) => return Err(self.unexpected(byte, "after array element")),
            }
            first = false;
        }
        Ok(false)
    }

    fn key(&mut self, byte: u8) -> Result<bool, DecodeError> {
        if byte != b'"' {
            return Err(self.unexpected(byte, "looking for beginning of object key string"));
        }
        let start = self.out.len();
        self.string()?;
        self.members.push(Written { start, key_end: self.out.len(), end: 0 });
        let byte = self.token()?;
        if byte != b':' {
            return Err(self.unexpected(byte, "after object key"));
        }
        self.out.push(b':');
        Ok(true)
    }

    fn member_end(&mut self) {
        let end = self.out.len();
        if let Some(member) = self.members.last_mut() {
            member.end = end;
        }
    }

    fn close(&mut self, byte: u8) {
        self.out.push(byte);
        let Some(Open::Object(start, first)) = self.open.pop() else {
            return;
        };
        let range = start..self.out.len();
        let own = &self.members[first..];
        let sorted = own.is_sorted_by(|a, b| self.compare(a, b) == Ordering::Less);
        let outermost = self.open.is_empty();
        if !sorted || outermost {
            let mut members = own.to_vec();
            members.sort_by(|a, b| self.compare(a, b));
            // Equal keys are in input order now: the last one is kept.
            members.reverse();
            members.dedup_by(|a, b| self.compare(a, b) == Ordering::Equal);
            members.reverse();
            self.reordered.push(Reordered { range, members });
        }
        self.members.truncate(first);
    }

    /// Orders two members by the bytes of their keys.
    fn compare(&self, a: &Written, b: &Written) -> Ordering {
        let (a, b) = (&self.out[a.start..a.key_end], &self.out[b.start..b.key_end]);
        if a.contains(&b'\\') || b.contains(&b'\\') {
            unquote(a).as_bytes().cmp(unquote(b).as_bytes())
        } else {
            // Without the closing quote, which would sort above `!`.
            a[..a.len() - 1].cmp(&b[..b.len() - 1])
        }
    }

    fn word(&mut self, word: &str) -> Result<(), DecodeError> {
        for (count, expected) in word.bytes().enumerate().skip(1) {
            let byte = *self.json.get(self.at).ok_or_else(|| self.end())?;
            self.at += 1;
            if byte != expected {
                let place = format!("in literal {word} (expecting '{}')", char::from(word.as_bytes()[count]));
                return Err(self.unexpected(byte, &place));
            }
        }
        self.out.extend_from_slice(word.as_bytes());
        Ok(())
    }

    fn number(&mut self) -> Result<(), DecodeError> {
        let start = self.at - 1;
        let mut at = start + usize::from(self.json[start] == b'-');
        let digits = |at: usize| self.json[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let need_digit = |scan: &Self, at: usize, place: &str| match scan.json.get(at) {
            Some(b'0'..=b'9') => Ok(()),
            Some(byte) => {
                let mut found = scan.unexpected(*byte, place);
                found.offset = Some(at + 1);
                Err(found)
            }
            None => Err(scan.end()),
        };
        need_digit(self, at, "in numeric literal")?;
        at += if self.json[at] == b'0' { 1 } else { digits(at) };
        let integral = at;
        if self.json.get(at) == Some(&b'.') {
            need_digit(self, at + 1, "after decimal point in numeric literal")?;
            at += 1 + digits(at + 1);
        }
        if let Some(b'e' | b'E') = self.json.get(at) {
            at += 1 + usize::from(matches!(self.json.get(at + 1), Some(b'+' | b'-')));
            need_digit(self, at, "in exponent of numeric literal")?;
            at += digits(at);
        }
        let text = &self.json[start..at];
        self.at = at;
        if at == integral && text.len() <= 15 {
            self.out.extend_from_slice(text); // exact as a double, and already in canonical spelling
            return Ok(());
        }
        let value: f64 = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).unwrap_or(f64::INFINITY);
        if !value.is_finite() {
            let text = lossy(text);
            let message =
                format!("json: cannot unmarshal number {} into Go value of type float64", excerpt(&text));
            return Err(DecodeError { message, offset: None });
        }
        write_number(value, &mut self.out);
        Ok(())
    }

    /// Parses the rest of a string after its opening quote.
    fn string(&mut self) -> Result<(), DecodeError> {
        self.out.push(b'"');
        loop {
            let rest = &self.json[self.at..];
            let stop = rest.iter().position(|b| matches!(b, b'"' | b'\\' | 0..0x20 | 0x80..));
            let Some(stop) = stop else { return Err(self.end()) };
            self.out.extend_from_slice(&rest[..stop]);
            self.at += stop;
            match rest[stop] {
                b'"' => {
                    self.at += 1;
                    self.out.push(b'"');
                    return Ok(());
                }
                b'\\' => self.escape()?,
                0x80.. => self.beyond_ascii(),
                byte => {
                    self.at += 1;
                    return Err(self.unexpected(byte, "in string literal"));
                }
            }
        }
    }

    fn beyond_ascii(&mut self) {
        let rest = &self.json[self.at..];
        let length = rest.iter().position(u8::is_ascii).unwrap_or(rest.len());
        for character in lossy(&rest[..length]).chars() {
            self.push(character);
        }
        self.at += length;
    }

    fn push(&mut self, character: char) {
        let mut buffer = [0; 4];
        let text: &str = character.encode_utf8(&mut buffer);
        if matches!(character, '\0'..' ' | '"' | '\\' | '\u{2028}' | '\u{2029}') {
            write_escape(text, &mut self.out);
        } else {
            self.out.extend_from_slice(text.as_bytes());
        }
    }

    fn escape(&mut self) -> Result<(), DecodeError> {
        let byte = *self.json.get(self.at + 1).ok_or_else(|| self.end())?;
        self.at += 2;
        let character = match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(),
            _ => return Err(self.unexpected(byte, "in string escape code")),
        };
        self.push(character);
        Ok(())
    }

    /// Parses the digits after `\u`. A surrogate pair is one character. A lone surrogate becomes U+FFFD.
    fn unicode_escape(&mut self) -> Result<(), DecodeError> {
        let unit = self.hex()?;
        let mut character = char::from_u32(unit);
        if (0xD800..0xDC00).contains(&unit) && self.json[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            let low = self.hex()?;
            if (0xDC00..0xE000).contains(&low) {
                character = char::from_u32(0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00));
            } else {
                self.at = back;
            }
        }
        self.push(character.unwrap_or(char::REPLACEMENT_CHARACTER));
        Ok(())
    }

    fn hex(&mut self) -> Result<u32, DecodeError> {
        let mut unit = 0;
        for _ in 0..4 {
            let byte = *self.json.get(self.at).ok_or_else(|| self.end())?;
            self.at += 1;
            let digit = char::from(byte)
                .to_digit(16)
                .ok_or_else(|| self.unexpected(byte, "in \\u hexadecimal character escape"))?;
            unit = unit << 4 | digit;
        }
        Ok(unit)
    }
}
