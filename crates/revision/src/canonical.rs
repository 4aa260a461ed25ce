//! Canonical JSON, byte for byte as Go's encoder writes it (docs/design/apply.md#existing-revisions): sorted keys, no
//! spaces, HTML-safe escapes.
//!
//! Digests and Secret keys are hashes of this text. A single different byte blocks every revision that the reference
//! created. This module only encodes.

use std::fmt::Write;

use serde_json::{Number, Value};

/// Number conversion before encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Integers that fit 64 signed bits stay exact, everything else is a 64-bit float: for content inline in the
    /// ClusterObjectSet.
    Exact,
    /// Every number is a 64-bit float: for content from a Secret.
    Float,
}

/// Canonical text of `value`. Numbers beyond the range of a 64-bit float cannot occur: the JSON parser rejects them.
pub fn canonical_json(value: &Value, numbers: Numbers) -> String {
    let mut out = String::new();
    write_value(&mut out, value, numbers);
    out
}

fn write_value(out: &mut String, value: &Value, numbers: Numbers) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number, numbers),
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(out, item, numbers);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| key.as_bytes());
            out.push('{');
            for (index, (key, item)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_text(out, key);
                out.push(':');
                write_value(out, item, numbers);
            }
            out.push('}');
        }
    }
}

fn write_number(out: &mut String, number: &Number, numbers: Numbers) {
    match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) if numbers == Numbers::Exact => out.push_str(&integer.to_string()),
        (_, Some(float)) => write_float(out, float),
        _ => out.push_str(&number.to_string()),
    }
}

fn write_float(out: &mut String, float: f64) {
    let size = float.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{float:e}");
        match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                out.push_str(digits);
                out.push_str("e+");
                out.push_str(exponent);
            }
            _ => out.push_str(&text),
        }
    } else {
        out.push_str(&float.to_string());
    }
}

pub(crate) fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(json: &str, numbers: Numbers) -> String {
        canonical_json(&serde_json::from_str(json).unwrap(), numbers)
    }

    #[test]
    fn numbers_are_written_like_go() {
        for (json, exact, float) in [
            ("1", "1", "1"),
            ("1.0", "1", "1"),
            ("9007199254740993", "9007199254740993", "9007199254740992"),
            ("18446744073709551615", "18446744073709552000", "18446744073709552000"),
            ("1e20", "100000000000000000000", "100000000000000000000"),
            ("1e21", "1e+21", "1e+21"),
            ("-1.5e300", "-1.5e+300", "-1.5e+300"),
            ("0.000001", "0.000001", "0.000001"),
            ("0.0000001", "1e-7", "1e-7"),
            ("0", "0", "0"),
        ] {
            assert_eq!(text(json, Numbers::Exact), exact, "{json}");
            assert_eq!(text(json, Numbers::Float), float, "{json}");
        }
    }

    // Case apply-44
    #[test]
    fn html_characters_are_escaped() {
        assert_eq!(
            text(r#"{"b":"<&>","a":"\u2028\u001f\u007f/"}"#, Numbers::Exact),
            "{\"a\":\"\\u2028\\u001f\u{7f}/\",\"b\":\"\\u003c\\u0026\\u003e\"}"
        );
    }

    proptest! {
        #[test]
        fn canonical_json_parses_back_to_the_same_value(text in any::<String>(), integer in any::<i64>(), float in -1e300..1e300f64) {
            let value = serde_json::json!({"t": text, "i": integer, "f": [float, null, true]});
            let again: Value = serde_json::from_str(&canonical_json(&value, Numbers::Exact)).unwrap();
            prop_assert_eq!(&again["t"], &value["t"]);
            prop_assert_eq!(&again["i"], &value["i"]);
            prop_assert_eq!(again["f"][0].as_f64(), value["f"][0].as_f64());
        }
    }
}
