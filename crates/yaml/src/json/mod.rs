//! JSON text as Go's encoder writes it, and its parser.
//!
//! Object keys are sorted by bytes, numbers and escapes have one spelling (docs/design/catalogd.md#canonical-line),
//! so that equal content has equal bytes.

mod canonical;
mod number;
mod repeated_keys;
mod scan;

pub use canonical::{Canonical, JsonMember, Kind, canonicalize};
pub use repeated_keys::has_repeated_keys;

pub(crate) use number::Decimal;

use std::borrow::Cow;

use serde::Deserialize as _;
use serde_json::Value;

use crate::DecodeError;

/// Writes a finite double: the shortest digits that parse to the same value, plain between 1e-6 and 1e21, otherwise
/// with an exponent such as `1e+21` or `1e-7`. Minus zero is preserved.
pub fn write_number(value: f64, out: &mut Vec<u8>) {
    let decimal = Decimal::from(value);
    let plain = (-6..21).contains(&decimal.exponent());
    let text = if plain { decimal.plain() } else { decimal.scientific(1) };
    out.extend_from_slice(text.as_bytes());
}

/// Writes a string with its quotes. Escapes only required characters, U+2028 and U+2029, but not `<`, `>` and `&`.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut copied = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let width = match byte {
            b'"' | b'\\' | 0..0x20 => 1,
            0xE2 if matches!(&bytes[at + 1..], [0x80, 0xA8 | 0xA9, ..]) => 3,
            _ => continue,
        };
        out.extend_from_slice(&bytes[copied..at]);
        write_escape(&text[at..at + width], out);
        copied = at + width;
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
}

fn write_escape(character: &str, out: &mut Vec<u8>) {
    match character.as_bytes() {
        [b'\n'] => out.extend_from_slice(b"\\n"),
        [b'\r'] => out.extend_from_slice(b"\\r"),
        [b'\t'] => out.extend_from_slice(b"\\t"),
        [8] => out.extend_from_slice(b"\\b"),
        [12] => out.extend_from_slice(b"\\f"),
        [byte @ (b'"' | b'\\')] => out.extend_from_slice(&[b'\\', *byte]),
        [byte] => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        [.., last] => out.extend_from_slice(if *last == 0xA8 { b"\\u2028" } else { b"\\u2029" }),
        [] => {}
    }
}

/// Text from bytes. Every byte that is not part of valid UTF-8 becomes one U+FFFD.
pub fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(std::iter::repeat_n('\u{FFFD}', chunk.invalid().len()));
    }
    Cow::Owned(text)
}

/// Deepest nesting of lists and objects in a value, which is walked and dropped recursively.
pub const VALUE_DEPTH: usize = 500;

/// Parses JSON text as a value. The last of equal keys wins. A number is a 64-bit integer if it is spelled as one
/// and fits, otherwise a double. Bytes that are not UTF-8 become U+FFFD.
///
/// # Errors
/// Text that is not one JSON value, or is nested deeper than 500.
pub fn to_value(json: &[u8]) -> Result<Value, DecodeError> {
    if nesting(json) > VALUE_DEPTH {
        return Err(DecodeError { message: format!("exceeded max depth of {VALUE_DEPTH}"), offset: None });
    }
    let text = lossy(json);
    let mut reader = serde_json::Deserializer::from_str(&text);
    reader.disable_recursion_limit();
    let read = Value::deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    let mut value = read.map_err(|error| match canonicalize(json) {
        Err(fault) => fault,
        Ok(_) => DecodeError { message: error.to_string(), offset: None },
    })?;
    widen(&mut value);
    Ok(value)
}

/// Deepest nesting of brackets, if the text is JSON.
pub fn nesting(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in outside_strings(json) {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Bytes of JSON text outside of strings, including opening quotes.
pub fn outside_strings(json: &[u8]) -> impl Iterator<Item = u8> {
    let mut bytes = json.iter().copied();
    std::iter::from_fn(move || {
        let byte = bytes.next()?;
        if byte == b'"' {
            while let Some(inner) = bytes.next() {
                match inner {
                    b'"' => break,
                    b'\\' => _ = bytes.next(),
                    _ => {}
                }
            }
        }
        Some(byte)
    })
}

/// Converts integers above `i64::MAX` to doubles.
fn widen(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let (None, Some(double)) = (number.as_i64(), number.as_u64().map(|n| n as f64))
                && let Some(double) = serde_json::Number::from_f64(double)
            {
                *number = double;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(widen),
        Value::Object(members) => members.values_mut().for_each(widen),
        _ => {}
    }
}
