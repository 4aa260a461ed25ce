//! JSON as a YAML document that YAML 1.1 and 1.2 parsers read identically.

use olm_version::is_hidden;
use olm_yaml::json::write_string;
use serde_json::value::RawValue;

use crate::json;

/// Nesting depth from which collections are written as JSON, which is valid YAML.
const MAX_DEPTH: usize = 64;
/// Longest key written on its line. Parsers accept at most 1024 characters.
const MAX_KEY: usize = 1000;

/// Writes JSON text as a document with sorted keys, after a line `---`.
///
/// # Errors
/// Text that is not JSON.
pub(crate) fn document(text: &str) -> Result<String, serde_json::Error> {
    let sorted = olm_yaml::json::canonicalize(text.as_bytes()).map_err(serde::de::Error::custom)?;
    let value: &RawValue = serde_json::from_slice(&sorted.text)?;
    let mut out = "---\n".to_owned();
    if !block(value, 0, 0, false, &mut out) {
        inline(value, 0, &mut out);
        out.push('\n');
    }
    Ok(out)
}

/// Appends a non-empty collection with an item or member on each line. Returns `false` for any other value, which
/// belongs on the line of its key. `started` states that the first line is already indented.
fn block(value: &RawValue, indent: usize, depth: usize, mut started: bool, out: &mut String) -> bool {
    if depth >= MAX_DEPTH {
        return false;
    }
    let mut margin = |out: &mut String| {
        out.extend(std::iter::repeat_n(' ', if started { 0 } else { indent }));
        started = false;
    };
    if let Some(members) = json::members(value).filter(|members| !members.is_empty()) {
        for (key, value) in members {
            margin(out);
            let key = scalar(&key);
            let (before, between) =
                if key.len() > MAX_KEY { ("? ", format!("\n{:indent$}:", "")) } else { ("", ":".to_owned()) };
            out.push_str(&format!("{before}{key}{between}"));
            let at = out.len();
            out.push('\n');
            // Lists below a key have no further indent.
            let inner = if value.get().starts_with('[') { indent } else { indent + 2 };
            if !block(value, inner, depth + 1, false, out) {
                out.truncate(at);
                out.push(' ');
                inline(value, indent + 2, out);
                out.push('\n');
            }
        }
        return true;
    }
    if let Some(items) = json::items(value).filter(|items| !items.is_empty()) {
        for value in items {
            margin(out);
            out.push_str("- ");
            if !block(value, indent + 2, depth + 1, true, out) {
                inline(value, indent + 2, out);
                out.push('\n');
            }
        }
        return true;
    }
    false
}

/// Appends a value that starts on the line of its key, without a final line feed.
fn inline(value: &RawValue, indent: usize, out: &mut String) {
    let Some(text) = json::text(value) else {
        // Without a point, minus zero would be parsed as the integer.
        return out.push_str(&if value.get() == "-0" { "-0.0".to_owned() } else { printable(value.get()) });
    };
    if !is_literal(&text) {
        return out.push_str(&scalar(&text));
    }
    let (body, chomping) = match text.strip_suffix('\n') {
        None => (text.as_str(), "|-"),
        Some(body) if body.ends_with('\n') => (body, "|+"),
        Some(body) => (body, "|"),
    };
    out.push_str(chomping);
    for line in body.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            out.extend(std::iter::repeat_n(' ', indent));
            out.push_str(line);
        }
    }
}

/// `true` if a text is written line by line after `|`.
fn is_literal(text: &str) -> bool {
    text.contains('\n')
        && !text.starts_with([' ', '\t', '\n'])
        && text.lines().all(|line| line.is_empty() || !line.trim_end_matches([' ', '\t']).is_empty())
        && !text.contains(must_be_escaped)
}

/// Text on one line, quoted unless it is unambiguous.
fn scalar(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let mut quoted = Vec::new();
    write_string(text, &mut quoted);
    printable(&olm_yaml::json::lossy(&quoted))
}

fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 11] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"];
    let inside = |c: char| {
        c.is_ascii_alphanumeric()
            || matches!(c, ' ' | '_' | '-' | '.' | '/' | '@' | '+' | ':' | '(' | ')' | ',' | '=' | '$')
    };
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/') || is_version(text);
    begins
        && text.chars().all(inside)
        && !text.contains(": ")
        && !text.ends_with([' ', ':'])
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

/// `true` for three numbers separated by points, and an optional suffix: not a number, date or time in any dialect.
fn is_version(text: &str) -> bool {
    let mut parts = text.splitn(3, '.');
    let mut number =
        || parts.next().is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    number() && number() && parts.next().is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// `true` for characters that YAML forbids or treats as a line break, and those that change how a terminal shows
/// others.
fn must_be_escaped(c: char) -> bool {
    is_hidden(c) || matches!(c, '\u{FFFE}' | '\u{FFFF}')
}

/// Escapes characters in JSON text that are unsafe in YAML or on a terminal.
pub(crate) fn printable(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if must_be_escaped(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}
