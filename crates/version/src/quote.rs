//! Quoting of user text for messages.

use std::borrow::Cow;
use std::fmt::Write;

/// Maximum number of characters of foreign text in a message.
const EXCERPT: usize = 256;

/// First 256 characters of `text`, for messages. Names in catalogs and bundles have any length.
pub fn excerpt(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

/// One message for several, worded like an aggregate error of the API machinery. `None` without any.
pub fn aggregate(messages: &[String]) -> Option<String> {
    match messages {
        [] => None,
        [only] => Some(only.clone()),
        all => Some(format!("[{}]", all.join(", "))),
    }
}

/// `true` for characters that alter the display of others: control characters except line feed and tab, text
/// direction marks, line and paragraph separators, and byte order marks.
pub fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}' => true,
        c => c.is_control(),
    }
}

/// Quotes `text` like Go's `%q`, as exact messages require: double quotes, Go's short escapes, `\x07`, `\u00a0` and
/// `\U000e0001` for characters that are not printable, and printable Unicode as is.
///
/// ```
/// assert_eq!(olm_version::quote("a\"b\n"), r#""a\"b\n""#);
/// ```
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match short_escape(c) {
            Some(escape) => out.push_str(escape),
            None if is_printable(c) => out.push(c),
            None => push_code_point(&mut out, c),
        }
    }
    out.push('"');
    out
}

fn short_escape(c: char) -> Option<&'static str> {
    Some(match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\x07' => "\\a",
        '\x08' => "\\b",
        '\t' => "\\t",
        '\n' => "\\n",
        '\x0b' => "\\v",
        '\x0c' => "\\f",
        '\r' => "\\r",
        _ => return None,
    })
}

fn push_code_point(out: &mut String, c: char) {
    let code = u32::from(c);
    // Writing to a String cannot fail.
    let _ = match code {
        0..0x80 => write!(out, "\\x{code:02x}"),
        0x80..0x1_0000 => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

/// `true` for letters, marks, numbers, punctuation, symbols and the ASCII blank.
///
/// The standard library exposes this set only through `escape_debug`. The leading letter prevents escapes of
/// combining marks, which it applies at the start of a text.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    let mut buffer = [b'a'; 5];
    let length = c.encode_utf8(&mut buffer[1..]).len();
    std::str::from_utf8(&buffer[..=length]).is_ok_and(|text| text.escape_debug().nth(1) == Some(c))
}

#[cfg(test)]
mod tests {
    use super::{EXCERPT, excerpt, quote};

    #[test]
    fn excerpt_ends_after_256_characters() {
        let whole = "é".repeat(EXCERPT);
        assert_eq!(excerpt(&whole), whole);
        assert_eq!(excerpt(&format!("{whole}é")), format!("{whole}..."));
    }

    #[test]
    fn quote_escapes_like_go() {
        for (text, expected) in [
            ("", r#""""#),
            ("plain text", r#""plain text""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("\n\t\x0b\x0c\r\x07\x08", r#""\n\t\v\f\r\a\b""#),
            ("\0\x1b\x7f", r#""\x00\x1b\x7f""#),
            ("\u{a0}\u{85}\u{200b}\u{feff}", r#""\u00a0\u0085\u200b\ufeff""#),
            ("é ü 日本 e\u{301} 🎉", "\"é ü 日本 e\u{301} 🎉\""),
            ("\u{301}", "\"\u{301}\""),
            ("\u{e0001}\u{10ffff}", r#""\U000e0001\U0010ffff""#),
            ("it's", r#""it's""#),
        ] {
            assert_eq!(quote(text), expected);
        }
    }
}
