//! JSON as encoded by Go, for texts that are hashed or stored in annotations.

use std::io::{self, Write};

use olm_yaml::json::{Kind, write_number};
use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Map, Number, Serializer, Value};

/// Compact JSON with sorted keys. `<`, `>` and `&` are escaped.
pub(crate) fn text(value: &Value) -> String {
    let mut bytes = Vec::new();
    let written = value.serialize(&mut Serializer::with_formatter(&mut bytes, GoFormatter));
    debug_assert!(written.is_ok(), "writing to memory does not fail");
    String::from_utf8(bytes).unwrap_or_default()
}

/// Removes white space between the tokens of valid JSON and escapes as [`text`] does. Key order and the spelling of
/// numbers are kept.
pub(crate) fn compact(json: &str) -> String {
    let mut compacted = String::with_capacity(json.len());
    let (mut quoted, mut escaped) = (false, false);
    for c in json.chars() {
        if !quoted && c.is_ascii_whitespace() {
            continue;
        }
        quoted ^= c == '"' && !escaped;
        escaped = quoted && c == '\\' && !escaped;
        match escape(c) {
            Some(escape) => compacted.push_str(escape),
            None => compacted.push(c),
        }
    }
    compacted
}

/// Number as encoded by Go: floats have an exponent only if very small or large.
pub(crate) fn number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => double(float),
        _ => number.to_string(),
    }
}

fn double(float: f64) -> String {
    let mut bytes = Vec::new();
    write_number(float, &mut bytes);
    String::from_utf8(bytes).unwrap_or_default()
}

fn escape(c: char) -> Option<&'static str> {
    Some(match c {
        '<' => "\\u003c",
        '>' => "\\u003e",
        '&' => "\\u0026",
        '\u{2028}' => "\\u2028",
        '\u{2029}' => "\\u2029",
        _ => return None,
    })
}

/// Kind of a JSON value, as in error messages of Go's decoder.
pub(crate) fn kind(value: &Value) -> &'static str {
    Kind::from(value).name()
}

/// Error of Go's decoder about a value of another type than the `target`.
pub(crate) fn mismatch(value: &Value, target: &str) -> String {
    format!("json: cannot unmarshal {} into Go {target}", kind(value))
}

/// Member that Go's decoder assigns to the field `name`: case-insensitive, and the last one wins.
pub(crate) fn field<'a>(entries: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let members = entries.iter().filter(|(key, value)| key.eq_ignore_ascii_case(name) && !value.is_null());
    members.map(|(_, value)| value).next_back()
}

/// Text of a YAML scalar in a string field. Empty for null, lists and mappings.
pub(crate) fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => with_exponent(float),
            None => number.to_string(),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
    }
}

/// Shortest digits, with an exponent of at least two digits below 1e-4 and from 1e6 up.
fn with_exponent(float: f64) -> String {
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
        }
        _ => float.to_string(),
    }
}

struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| escape(*c).is_some()) {
            writer.write_all(&rest.as_bytes()[..at])?;
            writer.write_all(escape(c).unwrap_or_default().as_bytes())?;
            rest = &rest[at + c.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }

    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(double(value).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strings_and_numbers_are_encoded_as_in_go() {
        let value = json!({
            "b": "<a> & \u{2028}\u{7}\u{8}\t\"\\é", "a": [1e-7, 1e21, 0.5, -0.0, 1e16, 10, 1.5e-6],
        });
        let expected = r#"{"a":[1e-7,1e+21,0.5,-0,10000000000000000,10,0.0000015],"b":"\u003ca\u003e \u0026 \u2028\u0007\b\t\"\\é"}"#;
        assert_eq!(text(&value), expected);
    }

    #[test]
    fn compact_json_keeps_key_order_and_numbers() {
        let json = "{ \"b\" : [ 1.50 , \"x \\\" < \\\\\" ] ,\n\t\"a\":null }";
        assert_eq!(compact(json), r#"{"b":[1.50,"x \" \u003c \\"],"a":null}"#);
    }
}
