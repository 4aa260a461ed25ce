//! Canonical JSON, byte for byte as Go's encoder writes it (docs/design/apply.md#existing-revisions): sorted keys, no
//! spaces, HTML-safe escapes.
//!
//! Digests and Secret keys are hashes of this text. A single different byte blocks every revision that the reference
//! created. This module only encodes.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Serializer, Value};

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
    let mut bytes = Vec::new();
    let written = value.serialize(&mut Serializer::with_formatter(&mut bytes, GoFormatter(numbers)));
    debug_assert!(written.is_ok(), "writing to memory does not fail");
    String::from_utf8(bytes).unwrap_or_default()
}

/// Compact JSON with the numbers and escapes of Go. A JSON map of `serde_json` is sorted.
struct GoFormatter(Numbers);

impl Formatter for GoFormatter {
    fn write_i64<W: ?Sized + Write>(&mut self, writer: &mut W, value: i64) -> io::Result<()> {
        match self.0 {
            Numbers::Exact => write!(writer, "{value}"),
            Numbers::Float => self.write_f64(writer, value as f64),
        }
    }

    fn write_u64<W: ?Sized + Write>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        match i64::try_from(value) {
            Ok(value) => self.write_i64(writer, value),
            Err(_) => self.write_f64(writer, value as f64),
        }
    }

    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        if size == 0.0 || (1e-6..1e21).contains(&size) {
            return write!(writer, "{value}");
        }
        let text = format!("{value:e}");
        let text = if text.contains("e-") { text } else { text.replace('e', "e+") };
        writer.write_all(text.as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        for c in fragment.chars() {
            match c {
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => write!(writer, "\\u{:04x}", u32::from(c))?,
                _ => writer.write_all(c.encode_utf8(&mut [0; 4]).as_bytes())?,
            }
        }
        Ok(())
    }
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
