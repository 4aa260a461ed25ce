//! Decoding of bytes to the text for the scanner: encodings, permitted characters, line breaks.
//!
//! YAML 1.1 has more line breaks than a line feed: carriage return and next line (U+0085) are read as a line feed.
//! Line and paragraph separators (U+2028, U+2029) end a line but are kept inside a scalar
//! (docs/design/catalogd.md#yaml-scalars).

use std::borrow::Cow;

use crate::Error;

/// Decodes UTF-8, or UTF-16 with a byte order mark, and checks for characters that YAML forbids.
pub(crate) fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, Error> {
    let invalid = |text: &str| Error::Invalid(text.to_owned());
    let text: Cow<'_, str> = match bytes {
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes)?.into(),
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes)?.into(),
        _ => {
            let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
            std::str::from_utf8(bytes).map_err(|error| invalid(utf8_problem(bytes, &error)))?.into()
        }
    };
    if any(&text, may_be_forbidden) && text.contains(is_forbidden) {
        return Err(invalid("control characters are not allowed"));
    }
    Ok(text)
}

/// `true` if any byte satisfies `asked`. Written so that the compiler vectorizes it.
fn any(text: &str, asked: impl Fn(u8) -> bool) -> bool {
    text.bytes().fold(false, |any, byte| any | asked(byte))
}

/// `true` if a character with this first byte may be forbidden.
fn may_be_forbidden(byte: u8) -> bool {
    matches!(byte, 0..=8 | 0x0B | 0x0C | 0x0E..=0x1F | 0x7F | 0xC2 | 0xEF)
}

fn is_forbidden(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{A0}'..='\u{FFFD}' => false,
        _ => c < '\u{10000}',
    }
}

fn utf8_problem(bytes: &[u8], error: &std::str::Utf8Error) -> &'static str {
    match bytes[error.valid_up_to()] {
        0xC2..=0xF4 if error.error_len().is_none() => "incomplete UTF-8 octet sequence",
        0xC2..=0xF4 => "invalid trailing UTF-8 octet",
        _ => "invalid leading UTF-8 octet",
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, Error> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Error::Invalid("incomplete UTF-16 character".to_owned()));
    }
    char::decode_utf16(pairs.iter().map(|pair| unit(*pair)))
        .collect::<Result<String, _>>()
        .map_err(|_| Error::Invalid("unexpected low surrogate area".to_owned()))
}

/// Replaces the line breaks that are read as a line feed.
pub(crate) fn with_line_feeds(text: &str) -> Cow<'_, str> {
    // The last bytes of carriage return and next line. Few other characters contain them.
    if any(text, |byte| matches!(byte, b'\r' | 0x85)) {
        text.replace("\r\n", "\n").replace(['\r', '\u{85}'], "\n").into()
    } else {
        text.into()
    }
}
