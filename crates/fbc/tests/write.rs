//! Written catalogs: their bytes, and their round trip.

#![allow(clippy::unwrap_used)]

use olm_fbc::{Form, Meta, MetaReader, write};
use olm_yaml::Limits;
use proptest::prelude::*;

fn metas(text: &str) -> Vec<Meta> {
    MetaReader::new(text.as_bytes(), Limits::default()).collect::<Result<_, _>>().unwrap()
}

fn written(text: &str, form: Form) -> String {
    let mut out = Vec::new();
    write(metas(text), form, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

const CATALOG: &str = r#"
{"schema":"root","name":"last","list":[],"map":{},"deep":[[1,[]],{"a":null}]}
{"schema":"z","package":"foo"}
{"schema":"olm.deprecations","package":"foo","entries":[{"message":"m","reference":{"schema":"olm.package"}}]}
{"schema":"a","package":"foo"}
{"schema":"olm.bundle","package":"foo","name":"b2","properties":[{"value":{"version":"1.0.0","packageName":"foo"},"type":"olm.package"}],"relatedImages":[]}
{"schema":"olm.bundle","package":"foo","name":"b1","image":"i","extra":true,"relatedImages":[{"image":"r"}]}
{"schema":"olm.channel","package":"foo","name":"c","entries":[{"skips":["x"],"name":"b1","replaces":"","skipRange":"<1 \u2028&"}]}
{"schema":"olm.package","name":"foo","icon":{"base64data":"AAAA"},"description":"","properties":[]}
{"schema":"olm.package","name":"bar","defaultChannel":"d"}
"#;

const CATALOG_AS_JSON: &str = r#"{
    "schema": "olm.package",
    "name": "bar",
    "defaultChannel": "d"
}
{
    "schema": "olm.package",
    "name": "foo",
    "defaultChannel": "",
    "icon": {
        "base64data": "AAAA",
        "mediatype": ""
    }
}
{
    "schema": "olm.channel",
    "name": "c",
    "package": "foo",
    "entries": [
        {
            "name": "b1",
            "skips": [
                "x"
            ],
            "skipRange": "<1 \u2028&"
        }
    ]
}
{
    "schema": "olm.bundle",
    "name": "b1",
    "package": "foo",
    "image": "i",
    "relatedImages": [
        {
            "name": "",
            "image": "r"
        }
    ],
    "extra": true
}
{
    "schema": "olm.bundle",
    "name": "b2",
    "package": "foo",
    "image": "",
    "properties": [
        {
            "type": "olm.package",
            "value": {
                "packageName": "foo",
                "version": "1.0.0"
            }
        }
    ]
}
{
    "package": "foo",
    "schema": "a"
}
{
    "package": "foo",
    "schema": "z"
}
{
    "schema": "olm.deprecations",
    "package": "foo",
    "entries": [
        {
            "reference": {
                "schema": "olm.package"
            },
            "message": "m"
        }
    ]
}
{
    "deep": [
        [
            1,
            []
        ],
        {
            "a": null
        }
    ],
    "list": [],
    "map": {},
    "name": "last",
    "schema": "root"
}
"#;

#[test]
fn json_follows_schema_field_order() {
    assert_eq!(written(CATALOG, Form::Json), CATALOG_AS_JSON);
}

#[test]
fn yaml_sorts_keys_and_quotes_ambiguous_texts() {
    let object = r#"{"schema":"s","a":"1.0.0","b":"1.0","c":"yes","d":"two\nlines\n","e":["x",["y"],{"k":"v","l":[]}],
        "f":{},"g":1e300,"h":"a: b","i":" x","j":"\u0085","n":null,"on":"12:30:45","p":"a\n\nb","q":"quay.io/a/b@sha256:00"}"#;
    let expected = r#"---
a: 1.0.0
b: "1.0"
c: "yes"
d: |
  two
  lines
e:
- x
- - "y"
- k: v
  l: []
f: {}
g: 1e+300
h: "a: b"
i: " x"
j: "\u0085"
"n": null
"on": "12:30:45"
p: |-
  a

  b
q: quay.io/a/b@sha256:00
schema: s
"#;
    assert_eq!(written(object, Form::Yaml), expected);
    let package = written(r#"{"schema":"olm.channel","name":"a","package":"p"}"#, Form::Yaml);
    assert_eq!(package, "---\nentries: null\nname: a\npackage: p\nschema: olm.channel\n");
}

#[test]
fn deep_nesting_and_long_keys_round_trip() {
    let deep = format!(r#"{{"schema":"s","x":{}"\u0085"{}}}"#, "[".repeat(500), "]".repeat(500));
    let long = format!(r#"{{"schema":"s","{}":[1],"{}":{{"a":1}}}}"#, "k".repeat(2000), "l".repeat(2000));
    for object in [deep, long] {
        let before = metas(&object).remove(0).blob;
        for form in [Form::Json, Form::Yaml] {
            assert!(metas(&written(&object, form)).remove(0).blob == before, "{form:?} {object:.40}");
        }
    }
}

/// Texts that YAML parsers often misread.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{0,4}",
        "[-+.0-9:_exobT Z]{0,8}",
        "[ \t\n#:a\\-|>]{0,8}",
        "(yes|No|~|null|y|=|<<|---|\\.\\.\\.|0o7|1e3|[0-9]\\.[0-9]\\.[0-9])\n?",
        "[\\PC\u{0}-\u{1f}\u{7f}-\u{a0}\u{2028}\u{2029}\u{feff}]{0,6}",
    ]
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i32>().prop_map(Into::into),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(Into::into),
        Just(serde_json::Value::from(-0.0)),
        text().prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map(text(), inner, 0..4)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn written_catalog_round_trips(values in prop::collection::vec((text(), value()), 1..4)) {
        let objects = values.into_iter().map(|(key, value)| {
            let object = serde_json::json!({"schema": "s", format!("-{key}"): value});
            Meta::from_json(object.to_string().as_bytes()).unwrap()
        });
        let objects: Vec<Meta> = objects.collect();
        let before: Vec<u8> = objects.iter().flat_map(|meta| meta.blob.clone()).collect();
        for form in [Form::Json, Form::Yaml] {
            let mut out = Vec::new();
            write(objects.clone(), form, &mut out).unwrap();
            let again = metas(std::str::from_utf8(&out).unwrap());
            let again: Vec<u8> = again.into_iter().flat_map(|meta| meta.blob).collect();
            prop_assert!(again == before, "{}\n{}", String::from_utf8_lossy(&out), String::from_utf8_lossy(&again));
        }
    }
}
