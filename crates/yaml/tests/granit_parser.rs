//! Documents of the dialect that `granit-parser` and `serde-saphyr` read differently, which is the reason for our own
//! reader (docs/design/decisions/001-yaml-dialect.md). If one of these tests fails with a newer release, use that
//! release instead of the part of this crate that it makes superfluous.
#![allow(clippy::unwrap_used, reason = "a failed step of a test ends it")]

use granit_parser::{Event, Parser};
use serde_json::{Value, json};

/// Scalars of a document in order, keys and values alike.
fn scalars(text: &str) -> Result<Vec<String>, String> {
    let mut scalars = Vec::new();
    for event in Parser::new_from_str(text) {
        if let Event::Scalar(text, ..) = event.map_err(|error| error.to_string())?.0 {
            scalars.push(text.into_owned());
        }
    }
    Ok(scalars)
}

#[test]
fn granit_parser_differs_in_syntax() {
    for (text, expected) in [
        ("[-]", &["-"][..]),
        ("[a, -, b]", &["a", "-", "b"]),
        // Quoted text that continues at the margin.
        ("a: \"x\ny\"", &["a", "x y"]),
        // Line breaks of YAML 1.1.
        ("a: 1\u{85}b: 2", &["a", "1", "b", "2"]),
        ("a: 1\u{2029}b: 2", &["a", "1", "b", "2"]),
    ] {
        olm_yaml::from_slice(text.as_bytes()).unwrap();
        let expected = expected.iter().map(ToString::to_string).collect();
        assert_ne!(scalars(text), Ok(expected), "{text:?} is read like the dialect");
    }
    assert_eq!(scalars("a: [b, -c]"), Ok(["a", "b", "-c"].map(str::to_owned).to_vec()));
}

#[test]
fn serde_saphyr_differs_in_scalars() {
    for (text, expected) in [
        ("{yes: a}", json!({"true": "a"})),
        ("{0x1: a}", json!({"1": "a"})),
        ("[1e400]", json!(["1e400"])),
        ("[yEs]", json!(["yEs"])),
    ] {
        assert_eq!(olm_yaml::from_slice(text.as_bytes()).unwrap(), expected);
        let options = serde_saphyr::options! { strict_booleans: false, legacy_octal_numbers: true };
        let read = serde_saphyr::from_str_with_options::<Value>(text, options).ok();
        assert_ne!(read, Some(expected), "{text:?} is read like the dialect");
    }
}
