//! Tables of the YAML dialect, limits, and properties of arbitrary input.

#![allow(clippy::unwrap_used)]

use olm_yaml::{DecodeError, Limits, Stream, StreamError, all_from_slice, from_slice, json, to_json};
use proptest::prelude::*;
use serde_json::json;

/// Canonical JSON of a document, or the error without its common prefix.
fn read(yaml: &str) -> String {
    match to_json(yaml.as_bytes(), &Limits::default()) {
        Ok(text) => String::from_utf8(json::canonicalize(&text).unwrap().text).unwrap(),
        Err(error) => error.to_string().replace("error converting YAML to JSON: ", ""),
    }
}

// docs/design/catalogd.md#yaml-scalars, docs/design/bundles.md#yaml-dialect; case catalogd-11
#[test]
fn scalars_resolve_by_yaml_1_1_rules() {
    let cases = [
        ("[y, Yes, ON, True]", "[true,true,true,true]"),
        ("[n, No, OFF, false]", "[false,false,false,false]"),
        ("[tRue, yEs, nULL]", r#"["tRue","yEs","nULL"]"#),
        ("[~, null, Null, NULL, ]", "[null,null,null,null]"),
        ("[0644, 0o644, 089, 0x1F, 0b101, 1_000, +7, -0]", "[420,420,89,31,5,1000,7,0]"),
        ("[1e3, 1.0, 1.50, .5, 5., -.5, 1_0.5, .2_5]", "[1000,1,1.5,0.5,5,-0.5,10.5,0.25]"),
        (
            "[2020-01-01, 2020-01-01T00:00:00Z, 12:30:45]",
            r#"["2020-01-01","2020-01-01T00:00:00Z","12:30:45"]"#,
        ),
        ("[1e400, =, 0x, 0xg, 1e, e3, ., ._5, .1_]", r#"["1e400","=","0x","0xg","1e","e3",".","._5",".1_"]"#),
        (
            "[9223372036854775808, 123456789012345678901234567890]",
            "[9223372036854776000,1.2345678901234568e+29]",
        ),
        ("[++1, -+1, 0x-1, +18446744073709551615]", r#"["++1","-+1","0x-1",18446744073709552000]"#),
        ("[!!str 5, !!int '7', !!float 1, !!null x]", "yaml: cannot decode !!str `x` as a !!null"),
        ("[!!str yes, !!float 1, !!binary aGk=, !own 5, ! 5]", r#"["yes",1,"hi","5","5"]"#),
        ("!!int 1.5", "yaml: cannot decode !!float `1.5` as a !!int"),
        ("!!binary '*'", "yaml: !!binary value contains invalid base64 data"),
        ("!!binary //4=", "\"\u{FFFD}\u{FFFD}\""),
        ("!!timestamp 2001-1-2", r#""2001-1-2""#),
        ("!!timestamp 2001-1-2T3:04:05.6Z", r#""2001-1-2T3:04:05.6Z""#),
        ("!!timestamp 2001-13-2", "yaml: cannot decode !!str `2001-13-2` as a !!timestamp"),
        (".inf", "json: unsupported value: +Inf"),
        ("-.Inf", "json: unsupported value: -Inf"),
        (".NaN", "json: unsupported value: NaN"),
        ("-0.0", "-0"),
    ];
    check(&cases);
}

#[test]
fn keys_merges_and_anchors_resolve_like_upstream() {
    let cases = [
        (
            "{n: 1, y: 2, 010: 3, 1.5: 4, 2001-01-01: 5}",
            r#"{"1.5":4,"2001-01-01":5,"8":3,"false":1,"true":2}"#,
        ),
        ("{1e5: a, 1e6: b, 0.0001: c, 0.00001: d}", r#"{"0.0001":"c","100000":"a","1e+06":"b","1e-05":"d"}"#),
        ("{.inf: a, -.inf: b, .nan: c, -0.0: d}", r#"{"-.inf":"b","-0":"d",".inf":"a",".nan":"c"}"#),
        ("{a: 1, b: 2, a: 3}", r#"{"a":3,"b":2}"#),
        ("~: x", "unsupported map key of type: null"),
        ("18446744073709551615: x", "unsupported map key of type: uint64"),
        ("? [a]\n: b", "yaml: invalid map key: a list or mapping"),
        ("a: &x {k: 1}\nb: {k: 2, <<: *x}\nc: {<<: *x, k: 2}", r#"{"a":{"k":1},"b":{"k":1},"c":{"k":2}}"#),
        ("a: &x {k: 1}\nb: {<<: [{k: 2, l: 3}, *x]}", r#"{"a":{"k":1},"b":{"k":2,"l":3}}"#),
        ("'<<': {a: 1}", r#"{"<<":{"a":1}}"#),
        ("<<: 1", "yaml: map merge requires map or sequence of maps as the value"),
        ("a: *b", "yaml: unknown anchor 'b' referenced"),
        ("a: &a [*a]", "yaml: anchor 'a' value contains itself"),
        ("- &a x\n- &a z\n- *a", r#"["x","z","z"]"#),
        ("&a a: 1\n*a : 2", r#"{"a":2}"#),
    ];
    check(&cases);
}

#[test]
fn block_and_flow_layout_is_parsed() {
    let cases = [
        ("", "null"),
        ("# nothing\n", "null"),
        ("a: 1\n---\nb: 2", r#"{"a":1}"#),
        ("{a: 1}\n{b: 2}", r#"{"a":1}"#),
        ("%YAML 1.1\n---\na", r#""a""#),
        ("%YAML 1.2\n---\na", "yaml: found incompatible YAML document"),
        ("%TAG !t! tag:yaml.org,2002:\n---\n!t!str 1", r#""1""#),
        ("a: \"x\ny\"", r#"{"a":"x y"}"#), // continued at the margin
        ("[-, -a, a:b, a#b]", r#"["-","-a","a:b","a#b"]"#),
        ("a:\n- 1\n- b: 2\n  c: 3", r#"{"a":[1,{"b":2,"c":3}]}"#),
        ("- - a\n  - b\n-", r#"[["a","b"],null]"#),
        ("[a: 1, ? b, {c, d: }]", r#"[{"a":1},{"b":null},{"c":null,"d":null}]"#),
        ("a: |+\n  x\n\nb: >-\n  y\n  z\n\n   w\n", r#"{"a":"x\n\n","b":"y z\n\n w"}"#),
        ("a: |2\n   x\nb: >1-\n  y", r#"{"a":" x\n","b":" y"}"#),
        ("a\u{2028}b", "\"a\\u2028b\""),
        ("a: 1\u{85}b: 2\rc: 3\u{2029}d: 4", r#"{"a":1,"b":2,"c":3,"d":4}"#),
        ("\"\\x41\\u00e9\\U0001F600\\N\\_\\\n  z\"", "\"Aé😀\u{85}\u{A0}z\""),
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("a: [1", "yaml: line 1: did not find expected ',' or ']'"),
        ("\ta: 1", "yaml: found character that cannot start any token"),
        ("a: @b", "yaml: found character that cannot start any token"),
        ("a: 'b", "yaml: found unexpected end of stream"),
        ("a: 1\n b: 2", "yaml: line 2: mapping values are not allowed in this context"),
        ("a: \u{7f}", "yaml: control characters are not allowed"),
    ];
    check(&cases);
}

fn check(cases: &[(&str, &str)]) {
    for (yaml, expected) in cases {
        assert_eq!(read(yaml), *expected, "{yaml:?}");
    }
}

#[test]
fn utf8_and_utf16_are_decoded() {
    let read = |bytes: &[u8]| from_slice(bytes).map_err(|error| error.to_string());
    assert_eq!(read(b"\xEF\xBB\xBFa: 1"), Ok(json!({"a": 1})));
    assert_eq!(read(b"\xFE\xFF\0a\0:\0 \x001"), Ok(json!({"a": 1})));
    assert_eq!(read(b"\xFF\xFEa\0:\0 \x001\0"), Ok(json!({"a": 1})));
    let failures: [(&[u8], &str); 4] = [
        (b"\xFF\xFEa", "incomplete UTF-16 character"),
        (b"a: \xFF", "invalid leading UTF-8 octet"),
        (b"a: \xC3(", "invalid trailing UTF-8 octet"),
        (b"a: \xC3", "incomplete UTF-8 octet sequence"),
    ];
    for (bytes, problem) in failures {
        assert_eq!(read(bytes), Err(format!("error converting YAML to JSON: yaml: {problem}")));
    }
}

#[test]
fn numbers_are_integers_or_doubles() {
    let value = from_slice(b"[0644, 1.0, 1e3, 1.5, 9223372036854775807, 9223372036854775808]").unwrap();
    assert_eq!(value, json!([420, 1, 1000, 1.5, i64::MAX, 9_223_372_036_854_775_808.0]));
}

#[test]
fn stream_splits_documents() {
    let values = |text: &str| all_from_slice(text.as_bytes()).map_err(|error| error.to_string());
    assert_eq!(
        values("---\n# none\n---\na: 1\n--- # b\n~\n---\nb: y\n"),
        Ok(vec![json!({"a": 1}), json!({"b": true})])
    );
    assert_eq!(values("{\"y\":1} {\"n\":2}\n"), Ok(vec![json!({"y": 1}), json!({"n": 2})]));
    assert_eq!(values("{\"y\":1}\n---\ny: 2\n"), Ok(vec![json!({"y": 1}), json!({"true": 2})]));
    assert_eq!(values("a: 1\n--- x\n"), Err("invalid Yaml document separator: x".to_owned()));
    assert_eq!(values(""), Ok(vec![]));
    assert_eq!(
        values("{}{}{\"a\":tru}"),
        Err("invalid character '}' in literal true (expecting 'e')".to_owned())
    );
    let deep = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    assert!(values(&deep(499)).is_ok());
    assert!(values(&deep(1_000_000)).unwrap_err().contains("exceeded max depth of 500"));
    assert_eq!(values("{\"a\":\"\\\\[[\"}"), Ok(vec![json!({"a": "\\[["})]));
}

#[test]
fn stream_error_names_document_and_line() {
    let place = |text: &str| match all_from_slice(text.as_bytes()) {
        Err(StreamError::Document { position, at, .. }) => (position.document, position.line, at),
        other => unreachable!("{other:?}"),
    };
    assert_eq!(place("a: 1\n---\n\nb: [\n"), (2, 3, Some(4)));
    assert_eq!(place("---\n\na: 1\nb: 'x\n--- # c\n"), (1, 2, Some(4)));
    // The second of two separators ends a document without content.
    assert_eq!(place("---\n---\na: 1\nb: 'x\n--- # c\n"), (2, 3, Some(4)));
    assert_eq!(place("a: 1\n--- x\n"), (1, 1, Some(2)));
    assert_eq!(place("a: .nan\n"), (1, 1, None));
    assert_eq!(place("{}\n{}\n\n{,}\n"), (3, 4, Some(4)));
}

#[test]
fn json_stream_continues_after_unicode_white_space() {
    let object = |text: &[u8], _| {
        let value = json::canonicalize(text)?;
        let is_object = value.kind == json::Kind::Object;
        let other = || DecodeError { message: "no object".to_owned(), offset: None };
        is_object.then(|| String::from_utf8(value.text).unwrap()).ok_or_else(other)
    };
    let objects = |text: &str| {
        let mut stream = Stream::new(text.as_bytes(), Limits::default());
        let all: Result<Vec<_>, _> = std::iter::from_fn(|| stream.next(object).transpose()).collect();
        all.map_err(|error| error.to_string())
    };
    for blank in ["\u{a0}", "\u{a0}\u{3000} ", "\u{85}", "\u{2028}", "\u{b}", "\u{2003}\r\n", " \u{a0}\n"] {
        let text = format!("{{\"a\":1}}{blank}{{\"b\":2}}\n---\n{{\"c\":3}}");
        let all = [r#"{"a":1}"#, r#"{"b":2}"#, r#"{"c":3}"#].map(str::to_owned);
        assert_eq!(objects(&text), Ok(all.to_vec()), "{text:?}");
    }
    for (text, error) in [
        (
            "{\"a\":1}\n\u{a0}{\"b\":2}",
            "json: offset 9: invalid character 'Â' looking for beginning of value",
        ),
        (
            "{\"a\":1}\u{180e}{\"b\":2}",
            "json: offset 8: invalid character 'á' looking for beginning of value",
        ),
        ("{}\n{}\u{a0}{\"b\":3}", "invalid character 'Â' looking for beginning of value"),
    ] {
        assert_eq!(objects(text), Err(error.to_owned()), "{text:?}");
    }
}

#[test]
fn stream_reports_line_of_skipped_content() {
    let unread = |text: &str| {
        let mut stream = Stream::new(text.as_bytes(), Limits::default());
        let mut unread = Vec::new();
        while stream.next(|_, _| Ok(())).unwrap().is_some() {
            unread.push(stream.unread());
        }
        unread
    };
    assert_eq!(unread("a: 1\n---\n# x\n{}\n# y\n"), [None, None]);
    assert_eq!(unread("# x\n{}\n{}\n---\n{}\n"), [Some(3), None]);
    assert_eq!(unread("a: 1\n...\n---\nb: 1\n...\nc: 1\n"), [None, Some(6)]);
    assert_eq!(unread("{}\n{}\n"), [None, None]);
}

#[test]
fn document_over_a_limit_is_rejected() {
    let limited = |yaml: &str, limits: Limits| to_json(yaml.as_bytes(), &limits).map_err(|e| e.to_string());
    let small = Limits { document_bytes: 10, ..Limits::default() };
    assert!(limited("a: 1234567", small).is_ok());
    assert!(limited("a: 12345678", small).unwrap_err().contains("larger than 10 bytes"));
    let repeated = format!("a: &a {}\nb: [{}]", "x".repeat(1000), "*a,".repeat(50));
    assert!(limited(&repeated, Limits::default()).is_ok());
    let tight = Limits { expanded_bytes: 10_000, ..Limits::default() };
    assert!(limited(&repeated, tight).unwrap_err().contains("larger than 10000 bytes"));
    let few = Limits { nodes: 8, ..Limits::default() };
    assert!(limited("a: [b, c]\nd: e", few).is_ok());
    for many in ["a: [b, c, d]\ne: f", "- &a [b]\n- *a\n- *a"] {
        assert!(limited(many, few).is_err(), "{many}");
    }
    let full = "error converting YAML to JSON: document has more than 8 values";
    assert_eq!(limited("[1, 2, 3, 4, 5, 6, 7, 8]", few), Err(full.to_owned()));
    let streamed = |json: &str| {
        let mut stream = Stream::new(json.as_bytes(), few);
        stream.next(|json, _| Ok(json.len())).map_err(|error| error.to_string())
    };
    assert_eq!(streamed(r#"{"a": [1, 2, 3], "b": {}}"#), Ok(Some(25)));
    assert_eq!(streamed(r#"{"a": ["[,:,:,{", 2, 3, 4], "b": {}}"#), Ok(Some(36)));
    let refused = streamed(r#"{"a": [1, 2, 3, 4, 5], "b": {}}"#);
    assert_eq!(refused, Err("document has more than 8 values".to_owned()));
    let deep = format!("{}{}", "[".repeat(9999), "]".repeat(9999));
    assert!(limited(&deep, Limits::default()).is_ok());
    assert!(from_slice(deep.as_bytes()).unwrap_err().to_string().contains("exceeded max depth of 500"));
    assert!(limited(&format!("[{deep}"), Limits::default()).is_err());
    let deeper = format!("[[{deep}]]");
    assert!(limited(&deeper, Limits::default()).unwrap_err().contains("exceeded max depth of 10000"));
}

#[test]
fn alias_bomb_is_rejected() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (last, next) in "abcdefgh".chars().zip("bcdefghi".chars()) {
        bomb.push_str(&format!("{next}: &{next} [{}]\n", format!("*{last}, ").repeat(9)));
    }
    assert_eq!(read(&bomb), "yaml: document contains excessive aliasing");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_convert_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = to_json(&bytes, &Limits::default());
        let _ = json::canonicalize(&bytes);
        let _ = all_from_slice(&bytes);
    }

    #[test]
    fn yaml_like_text_converts_without_panic(text in r#"[-?:,\[\]{}#&*!|>'"%@` \t\n\ray01.\\~<_\u2028\u0085é]{0,60}"#) {
        let _ = to_json(text.as_bytes(), &Limits::default());
        let _ = all_from_slice(text.as_bytes());
    }

    #[test]
    fn converted_yaml_is_valid_json(text in r#"[-?:,\[\]{}#&*! '"\nay01.]{0,40}"#) {
        if let Ok(converted) = to_json(text.as_bytes(), &Limits::default()) {
            prop_assert!(json::canonicalize(&converted).is_ok());
        }
    }

    #[test]
    fn canonical_json_is_a_fixed_point(text in r#"[\[\]{}:,"0-9.eE+ \\un<é\u2028-]{0,30}|\{("[ab\\n!"]{0,3}":[0-9]{1,3},){0,4}"z":\[\]\}"#) {
        if let Ok(first) = json::canonicalize(text.as_bytes()) {
            let again = json::canonicalize(&first.text).unwrap();
            prop_assert_eq!(first, again);
        }
    }

    /// Property: the documents are independent of the reader's chunk size.
    #[test]
    fn documents_do_not_depend_on_chunk_size(text in r#"([{}\[\]":, a1'\n#-]|---\n|\{"a":1\}|\r\n){0,40}"#, step in 1usize..5) {
        struct Chunks<'a>(&'a [u8], usize);
        impl std::io::Read for Chunks<'_> {
            fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
                let n = self.1.min(self.0.len()).min(out.len());
                out[..n].copy_from_slice(&self.0[..n]);
                self.0 = &self.0[n..];
                Ok(n)
            }
        }
        fn documents(reader: impl std::io::Read) -> (Vec<Vec<u8>>, Option<String>) {
            let mut stream = Stream::new(reader, Limits::default());
            let mut found = Vec::new();
            loop {
                match stream.next(|text, _| json::canonicalize(text)) {
                    Ok(Some(document)) => found.push(document.text),
                    Ok(None) => return (found, None),
                    Err(error) => return (found, Some(error.to_string())),
                }
            }
        }
        prop_assert_eq!(documents(Chunks(text.as_bytes(), step)), documents(text.as_bytes()));
    }
}

#[test]
fn written_decimals_become_strings() {
    let text = "[4.20, 5.0, 1e3, -.5, 4.2_0, 4, 0x10, .inf, '4.20', !!float 4.20, {4.20: a}, &x 4.20, *x]";
    let expected = json!([
        "4.20", "5.0", "1e3", "-.5", "4.2_0", 4, 16, ".inf", "4.20", 4.2, {"4.20": "a"}, "4.20", "4.20"
    ]);
    assert_eq!(olm_yaml::from_slice_with_written_decimals(text.as_bytes()).unwrap(), expected);
}
