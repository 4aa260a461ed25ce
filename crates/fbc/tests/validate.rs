//! Validation: multiple findings, their origins, strict mode. The vectors cover the single messages.

#![allow(clippy::unwrap_used)]

mod files;

use files::Files;
use olm_fbc::{CatalogFinding, LoadLimits, ValidationReport, validate_folder};
use proptest::prelude::*;
use serde_json::json;

const PACKAGE: &str = r#"{"schema":"olm.package","name":"foo","defaultChannel":"a"}"#;

fn channel(name: &str, entries: &str) -> String {
    format!(r#"{{"schema":"olm.channel","package":"foo","name":"{name}","entries":[{entries}]}}"#)
}

fn bundle(name: &str, version: &str) -> String {
    format!(
        r#"{{"schema":"olm.bundle","package":"foo","name":"{name}","image":"r.example/i","properties":[{{"type":"olm.package","value":{{"packageName":"foo","version":{version}}}}}]}}"#
    )
}

fn report(lines: &[&str], strict: bool) -> ValidationReport {
    let files = Files::from([("catalog.json", lines.join("\n").as_str())]);
    validate_folder(&files, &LoadLimits::default(), strict)
}

fn printed(report: &ValidationReport) -> Vec<String> {
    report.findings.iter().map(CatalogFinding::to_string).collect()
}

/// Message of upstream for a package `foo` with these objects.
fn message(lines: &[&str]) -> String {
    let lines: Vec<&str> = [PACKAGE].iter().chain(lines).copied().collect();
    report(&lines, false).reference_message.unwrap_or_default()
}

#[test]
fn upstream_messages_of_conversion_and_model_are_reported() {
    let b1 = bundle("b1", "\"1.0.0\"");
    let b2 = bundle("b2", "\"2.0.0\"");
    let b3 = bundle("b3", "\"3.0.0\"");
    let tree = |problem: &str| {
        format!(
            "invalid index:\n└── invalid package \"foo\":\n    └── invalid channel \"a\":\n        └── {problem}"
        )
    };
    // Duplicate bundle.
    let one = channel("a", r#"{"name":"b1"}"#);
    assert_eq!(message(&[&one, &b1, &b1]), "package \"foo\" has duplicate bundle \"b1\"");
    // Case catalogd-14
    let heads = channel("a", r#"{"name":"b1"},{"name":"b2"}"#);
    assert_eq!(message(&[&heads, &b1, &b2]), tree("multiple channel heads found in graph: b1, b2"));
    let none = channel("a", r#"{"name":"b1","replaces":"b2"},{"name":"b2","replaces":"b1"}"#);
    assert_eq!(message(&[&none, &b1, &b2]), tree("no channel head found in graph"));
    let cycle = channel(
        "a",
        r#"{"name":"b3","replaces":"b2"},{"name":"b2","replaces":"b1"},{"name":"b1","replaces":"b2"}"#,
    );
    let problem = "detected cycle in replaces chain of upgrade graph: b2 -> b1 -> b2";
    assert_eq!(message(&[&cycle, &b1, &b2, &b3]), tree(problem));
    // Case catalogd-15
    let stranded = channel(
        "a",
        r#"{"name":"b3","replaces":"b2","skips":["b2"]},{"name":"b2","replaces":"b1"},{"name":"b1"}"#,
    );
    let problem = "channel contains one or more stranded bundles: b1";
    assert_eq!(message(&[&stranded, &b1, &b2, &b3]), tree(problem));
    // Case catalogd-16
    let tail = channel("a", r#"{"name":"b1","replaces":"gone"}"#);
    assert_eq!(message(&[&tail, &b1]), "");
    // Deprecations.
    let deprecated = |reference: &str, message: &str| {
        format!(
            r#"{{"schema":"olm.deprecations","package":"foo","entries":[{{"reference":{reference},"message":"{message}"}}]}}"#
        )
    };
    let unknown = deprecated(r#"{"schema":"olm.channel","name":"q"}"#, "m");
    let problem = "cannot deprecate channel \"q\" for package \"foo\": channel not found";
    assert_eq!(message(&[&one, &b1, &unknown]), problem);
    let silent = deprecated(r#"{"schema":"olm.channel","name":"a"}"#, "");
    assert_eq!(message(&[&one, &b1, &silent]), tree("invalid deprecation: message must be set"));
    // Versions and releases.
    let two = channel("a", r#"{"name":"b1"},{"name":"b2","replaces":"b1"}"#);
    let same = message(&[&two, &b1, &bundle("b2", "\"1.0.0\"")]);
    assert!(same.ends_with("duplicate versions found in bundles: [{1.0.0: [b1, b2]}]"), "{same}");
    let builds = [bundle("b1", "\"1.0.0+1\""), bundle("b2", "\"1.0.0+2\"")];
    assert_eq!(message(&[&two, &builds[0], &builds[1]]), "");
    let released = bundle("b1", r#""1.0.0","release":"2""#);
    let problem = message(&[&one, &released]);
    assert!(problem.ends_with("name \"b1\" does not match normalized name \"foo-v1.0.0-2\""), "{problem}");
    let named = channel("a", r#"{"name":"foo-v1.0.0-2"}"#);
    assert_eq!(message(&[&named, &bundle("foo-v1.0.0-2", r#""1.0.0","release":"2""#)]), "");
}

// Cases seeds-s0-3, seeds-s0-4
#[test]
fn deprecation_faults_are_reported() {
    let one = channel("a", r#"{"name":"b1"}"#);
    let b1 = bundle("b1", "\"1.0.0\"");
    let deprecations =
        |entries: &str| format!(r#"{{"schema":"olm.deprecations","package":"foo","entries":[{entries}]}}"#);
    let cases = [
        (
            r#"{"reference":{"schema":"olm.package","name":"foo"},"message":"m"}"#,
            "package name must be empty",
        ),
        (r#"{"reference":{"schema":"olm.bundle"},"message":"m"}"#, "cannot deprecate bundle \"\""),
        (r#"{"reference":{"schema":"olm.channel"},"message":"m"}"#, "cannot deprecate channel \"\""),
        (r#"{"reference":{"schema":"olm.package"},"message":""}"#, "invalid index:"),
    ];
    for (entry, expected) in cases {
        let found = message(&[&one, &b1, &deprecations(entry)]);
        assert!(found.starts_with(expected), "{found}");
    }
    let twice = message(&[&one, &b1, &deprecations(""), &deprecations("")]);
    assert_eq!(twice, "expected a maximum of one deprecation per package: \"foo\"");
    // An unknown schema with its own prefix, and a lowest entry that replaces a missing bundle.
    let own = r#"{"schema":"example.com/x","package":"foo","entries":7}"#;
    assert_eq!(message(&[own, &channel("a", r#"{"name":"b1","replaces":"b0"}"#), &b1]), "");
    assert_eq!(message(&[PACKAGE, &one, &b1]), "duplicate package \"foo\"");
}

// Case additions-a55: every text of catalog validation, all in one catalog, each with file and line.
#[test]
fn all_findings_are_reported_with_file_and_line() {
    let lines = [
        PACKAGE,
        r#"{"schema":"olm.package","defaultChannel":"a"}"#,
        PACKAGE,
        r#"{"schema":"olm.package","name":"x.y","defaultChannel":"zzz"}"#,
        r#"{"schema":"olm.channel","package":"nope","name":"a","entries":[]}"#,
        &channel("", ""),
        &channel("a", r#"{"name":"b1"},{"name":"b1"},{"name":"gone","replaces":"b1"},{"name":"b2"}"#),
        &channel("a", r#"{"name":"b3"}"#),
        r#"{"schema":"olm.bundle","name":"b0"}"#,
        r#"{"schema":"olm.bundle","package":"nope","name":"b0"}"#,
        &bundle("b1", "\"1.0.0\""),
        &bundle("b1", "\"1.0.0\""),
        &bundle("b2", "7"),
        &bundle("b3", "\"v1\""),
        r#"{"schema":"olm.bundle","package":"foo","name":"b4","image":"a b","properties":[{"type":"olm.package","value":{"packageName":"bar","version":"1.0.0"}}]}"#,
        r#"{"schema":"olm.deprecations","package":"foo","entries":[{"reference":{"schema":"s"},"message":""},{"reference":{"schema":"olm.bundle","name":"b1"},"message":""}]}"#,
        r#"{"schema":"olm.deprecations","package":"nope"}"#,
        r#"{"schema":"olm.deprecations"}"#,
    ];
    let report = report(&lines, true);
    assert_eq!(report.reference_message.as_deref(), Some("config contains package with no name"));
    let expected = [
        "2: document 2: config contains package with no name",
        "3: document 3: duplicate package \"foo\"; the first one is in catalog.json:1: document 1",
        "4: document 4: invalid package name \"x.y\": [must not contain dots]",
        "5: document 5: unknown package \"nope\" for channel \"a\"",
        "6: document 6: package \"foo\" contains channel with no name",
        "7: document 7: invalid package \"foo\", channel \"a\": duplicate entry \"b1\"",
        "8: document 8: package \"foo\" has duplicate channel \"a\"; the first one is in catalog.json:7: document 7",
        "9: document 9: package name must be set for bundle \"b0\"",
        "10: document 10: unknown package \"nope\" for bundle \"b0\"",
        "10: document 10: package \"nope\" bundle \"b0\" must have exactly 1 \"olm.package\" property, found 0",
        "12: document 12: package \"foo\" has duplicate bundle \"b1\"; the first one is in catalog.json:11: document 11",
        "13: document 13: parse properties for bundle \"b2\": parse property[0] of type \"olm.package\": json: cannot \
         unmarshal number into Go struct field Package.version of type string",
        "14: document 14: error parsing bundle \"b3\" version \"v1\": No Major.Minor.Patch elements found",
        "15: document 15: package \"foo\" does not match \"olm.package\" property \"bar\"",
        "15: document 15: package \"foo\" bundle \"b4\" image: invalid image pull spec \"a b\": invalid reference format",
        "15: document 15: package \"foo\", bundle \"b4\" not found in any channel entries",
        "7: document 7: no olm.bundle blobs found in package \"foo\" for olm.channel entries [gone]",
        "16: document 16: cannot deprecate object declcfg.PackageScopedReference{Schema:\"s\", Name:\"\"} referenced by \
         entry 0 for package \"foo\": object schema unknown",
        "17: document 17: cannot apply deprecations to an unknown package \"nope\"",
        "18: document 18: package name must be set for deprecation item 2",
        "7: document 7: invalid package \"foo\": invalid channel \"a\": multiple channel heads found in graph: b2, gone",
        "16: document 16: invalid package \"foo\": invalid channel \"a\": invalid bundle \"b1\": invalid deprecation: \
         message must be set",
        "4: document 4: invalid package \"x.y\": invalid channel \"zzz\": channel must contain at least one bundle",
        "6: document 6: field \"name\" must not be empty where it is present",
    ];
    let expected: Vec<String> = expected.iter().map(|line| format!("catalog.json:{line}")).collect();
    assert_eq!(printed(&report), expected);
}

// Case seeds-s0-5 and the contract of all objects.
#[test]
fn strict_mode_adds_warnings() {
    let lines = [
        r#"{"schema":"olm.package","name":"foo","package":"foo","defaultChannel":"a","icon":{"base64data":"YQ=="},"properties":[{"type":"t","value":null},{"value":1}]}"#,
        r#"{"schema":"olm.channel","package":"foo","name":"a","entries":[{"name":"b1","replaces":"","skipRange":">1.0.0 || || <2.0.0"}]}"#,
        &bundle("b1", "\"1.0.0\""),
        r#"{"schema":"olm.bundel","name":"b1"}"#,
        r#"{"schema":"own","package":"","properties":{}}"#,
        r#"{"schema":"own","properties":[7]}"#,
        r#"{"schema":"olm.csv.metadata"}"#,
        r#"{"schema":"olm.deprecations","package":"foo","name":"x","entries":[]}"#,
        r#"{"schema":"own","relatedImages":[{"name":"a"}],"properties":[
            {"type":"olm.gvk","value":{"group":"g","version":"v1"}},
            {"type":"olm.gvk.required","value":{}},
            {"type":"olm.gvk","value":{"group":"example.com","version":"v1.0","kind":"Small Lamp"}},
            {"type":"olm.package.required","value":{"packageName":"p"}},
            {"type":"olm.package.required","value":{"packageName":"p","versionRange":"banana"}},
            {"type":"olm.package.required","value":{"packageName":"p","versionRange":">=1.0.0 <2.0.0"}},
            {"type":"olm.constraint","value":{"failureMessage":"x"}}]}"#,
        &format!(
            r#"{{"schema":"own","properties":[{{"type":"olm.constraint","value":{{"failureMessage":"{}"}}}}]}}"#,
            "x".repeat(65_536)
        ),
    ];
    let strict = report(&lines, true);
    assert!(strict.is_valid(), "{:?}", strict.reference_message);
    let expected = [
        "1: document 1: schema \"olm.package\" has no field \"package\"",
        "1: document 1: properties[0].value of type \"t\" must not be null",
        "1: document 1: properties[1].type must be a non-empty string",
        "1: document 1: icon.mediatype must not be empty",
        "2: document 2: entry \"b1\": field \"replaces\" must not be empty where it is present",
        "2: document 2: entry \"b1\": invalid skipRange \">1.0.0 || || <2.0.0\": Empty element between two '||' in range",
        "4: document 4: schema \"olm.bundel\" is unknown: the prefix \"olm.\" is reserved, allowed: \"olm.package\", \
         \"olm.channel\", \"olm.bundle\", \"olm.deprecations\", \"olm.csv.metadata\"",
        "5: document 5: field \"package\" must not be empty where it is present",
        "5: document 5: field \"properties\" must be a list of objects with type and value",
        "6: document 6: properties[0] must be an object with type and value",
        "8: document 8: schema \"olm.deprecations\" has no field \"name\"",
        "9: document 9: properties[0].value.kind of type \"olm.gvk\" must not be empty",
        "9: document 9: properties[1].value.group of type \"olm.gvk.required\" must not be empty",
        "9: document 9: properties[1].value.version of type \"olm.gvk.required\" must not be empty",
        "9: document 9: properties[1].value.kind of type \"olm.gvk.required\" must not be empty",
        "9: document 9: properties[2].value.version: \"v1.0\" is not a valid name; allowed: lowercase letters, digits and -",
        "9: document 9: properties[2].value.kind: \"Small Lamp\" is not a valid name; allowed: letters, digits and -",
        "9: document 9: properties[3].value.versionRange of type \"olm.package.required\" must not be empty",
        "9: document 9: properties[4].value.versionRange: \"banana\" is no range: Could not get version from string: \"banana\"",
        "9: document 9: relatedImages[0].image must not be empty",
        "17: document 10: properties[0].value of type \"olm.constraint\" has more than 65536 bytes",
    ];
    let expected: Vec<String> = expected.iter().map(|line| format!("catalog.json:{line}")).collect();
    assert_eq!(printed(&strict), expected);
    assert_eq!(strict.warnings().count(), expected.len());
    assert_eq!(report(&lines, false), ValidationReport::default());
    // Only the first value of a YAML document is read.
    let lost = report(&["# comment", r#"{"schema":"own"}"#, r#"{"schema":"own"}"#], true);
    assert!(lost.is_valid());
    assert_eq!(
        printed(&lost),
        ["catalog.json:3: document 1: everything from here to the next --- is skipped"]
    );
}

#[test]
fn unreadable_object_neither_hides_nor_causes_findings() {
    let folder = Files::from([
        ("a.yaml", "schema: olm.package\nname: foo\ndefaultChannel: a\n---\nx: [\n"),
        ("b.yaml", "gone"),
        ("c.json", r#"{"schema":"olm.channel","package":"foo","name":"b","entries":"x"}{"name":"n"}"#),
        // Its channel and the package of its bundle cannot be reported as missing now.
        (
            "d.json",
            &format!("{}{}", bundle("b1", "\"1\""), r#"{"schema":"olm.channel","package":"bar","name":"a"}"#),
        ),
    ]);
    let report = validate_folder(&folder, &LoadLimits::default(), true);
    let message = report.reference_message.clone().unwrap();
    assert!(message.starts_with("error converting YAML to JSON: yaml: "), "{message}");
    let found = printed(&report);
    let expected = [
        "a.yaml:5: document 2: error converting YAML to JSON: yaml: ",
        "open b.yaml: no such file or directory",
        "c.json:1: document 1: parse channel: json: cannot unmarshal string into Go struct field Channel.entries of type \
         []declcfg.ChannelEntry",
        "c.json:1: document 2: object '{\"name\":\"n\"} ' is missing root schema field",
        "d.json:1: document 1: error parsing bundle \"b1\" version \"1\": No Major.Minor.Patch elements found",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn type_faults_are_reported_in_words_of_upstream() {
    let parse = |line: &str| report(&[PACKAGE, line], false).reference_message.unwrap_or_default();
    let property = |property: &str| {
        let line =
            format!(r#"{{"schema":"olm.bundle","package":"foo","name":"b","properties":[{property}]}}"#);
        report(&[PACKAGE, &channel("a", r#"{"name":"b"}"#), &line], false)
            .reference_message
            .unwrap_or_default()
    };
    let field = "json: cannot unmarshal";
    assert_eq!(
        parse(r#"{"schema":"olm.package","name":"x","icon":{"base64data":"A"}}"#),
        "parse package: illegal base64 data at input byte 0"
    );
    assert_eq!(
        parse(r#"{"schema":"olm.bundle","package":"foo","properties":[{"type":1}]}"#),
        format!("parse bundle: {field} number into Go struct field Property.properties.type of type string")
    );
    assert_eq!(
        parse(r#"{"schema":"olm.deprecations","entries":[{"reference":true}]}"#),
        format!(
            "parse deprecation: {field} bool into Go struct field DeprecationEntry.entries.reference of type \
             declcfg.PackageScopedReference"
        )
    );
    for (value, problem) in [
        (r#""type":"olm.gvk","value":[]"#, "array into Go value of type property.GVK"),
        (
            r#""type":"olm.csv.metadata","value":{"labels":{"a":1}}"#,
            "number into Go struct field CSVMetadata.labels of type string",
        ),
        (
            r#""type":"olm.csv.metadata","value":{"installModes":[{"supported":"yes"}]}"#,
            "string into Go struct field InstallMode.installModes.supported of type bool",
        ),
        (
            r#""type":"olm.csv.metadata","value":{"apiServiceDefinitions":{"owned":[{"containerPort":1.5}]}}"#,
            "number 1.5 into Go struct field APIServiceDescription.apiServiceDefinitions.owned.containerPort of type int32",
        ),
    ] {
        let found = property(&format!("{{{value}}}"));
        assert!(found.ends_with(&format!("{field} {problem}")), "{found}");
    }
    // Any value for a type without a shape. `null` is the empty value of the others.
    let package = r#"{"type":"olm.package","value":{"packageName":"foo","version":"1.0.0"}}"#;
    let fine = [
        r#"{"type":"x","value":[1]}"#,
        r#"{"type":"olm.gvk","value":null}"#,
        r#"{"type":"olm.gvk.required","value":{"extra":1}}"#,
    ];
    for fine in fine {
        assert!(property(&format!("{package},{fine}")).contains("bundle image must be set"));
    }
}

/// Object with few possible names and many possible faults.
fn object() -> impl Strategy<Value = serde_json::Value> {
    let name = || prop_oneof![4 => "[ab]", 1 => Just(String::new())];
    let names = || prop::collection::vec(name(), 0..3);
    let entry = (name(), name(), names(), prop_oneof![3 => Just(""), 1 => Just("<1.0.0"), 1 => Just("|| x")]).prop_map(
        |(name, replaces, skips, range)| json!({"name": name, "replaces": replaces, "skips": skips, "skipRange": range}),
    );
    let version = prop_oneof![3 => "[01].0.0", 1 => "[0v][1.]{0,2}"];
    let reference = prop_oneof!["olm.package", "olm.channel", "olm.bundle", "x"];
    let deprecated = (reference, name(), name()).prop_map(
        |(schema, name, message)| json!({"reference": {"schema": schema, "name": name}, "message": message}),
    );
    prop_oneof![
        3 => (name(), name()).prop_map(|(n, c)| json!({"schema": "olm.package", "name": n, "defaultChannel": c})),
        3 => (name(), name(), prop::collection::vec(entry, 0..4))
            .prop_map(|(p, n, e)| json!({"schema": "olm.channel", "package": p, "name": n, "entries": e})),
        6 => (name(), name(), name(), version).prop_map(|(p, n, image, version)| {
            let property = json!({"type": "olm.package", "value": {"packageName": p, "version": version}});
            json!({"schema": "olm.bundle", "package": p, "name": n, "image": image, "properties": [property]})
        }),
        1 => (name(), prop::collection::vec(deprecated, 0..3))
            .prop_map(|(p, e)| json!({"schema": "olm.deprecations", "package": p, "entries": e})),
        1 => Just(json!({"schema": "olm.bundle", "package": "a", "name": "a", "properties": 1})),
        1 => Just(json!({"name": "a"})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn upstream_message_exists_exactly_with_findings(objects in prop::collection::vec(object(), 0..12)) {
        let lines: Vec<String> = objects.iter().map(ToString::to_string).collect();
        let report = report(&lines.iter().map(String::as_str).collect::<Vec<_>>(), false);
        prop_assert_eq!(report.is_valid(), report.findings.is_empty());
        if let (Some(message), Some(first)) = (&report.reference_message, report.findings.first()) {
            let tree = message.strip_prefix("invalid index:\n");
            prop_assert!(tree.is_some_and(|tree| tree.contains(&first.message)) || first.message.starts_with(message.as_str()));
            let shown = tree.map_or(1, |tree| tree.lines().filter(|line| !line.ends_with("\":")).count());
            prop_assert!(shown <= report.findings.len(), "{message}\n{:?}", printed(&report));
        }
    }
}

/// Content that upstream accepts although it looks invalid.
#[test]
fn invalid_looking_catalog_accepted_upstream_is_valid() {
    let channel_of = |skips: &str| channel("a", &format!(r#"{{"name":"b1","skips":{skips}}}"#));
    let with = |kind: &str, value: &str| {
        bundle("b1", "\"1.0.0\"").replace("}}]", &format!(r#"}}}},{{"type":"{kind}","value":{value}}}]"#))
    };
    let b1 = bundle("b1", "\"1.0.0\"");
    let one = channel("a", r#"{"name":"b1"}"#);
    assert!(message(&[&channel_of("[null]"), &b1]).ends_with("── skip[0] is empty"));
    // Bytes as a list of numbers. A bundle object that starts like JSON is not parsed.
    assert_eq!(message(&[&one, &with("olm.bundle.object", r#"{"data":[123,255,null]}"#)]), "");
    assert_eq!(message(&[&one, &with("olm.bundle.object", r#"{"data":"IHs="}"#)]), "");
    assert_eq!(message(&[&one, &with("olm.channel", r#"{"channelName":"a","priority":3}"#)]), "");
    for (kind, value, problem) in [
        ("olm.channel", r#"{"priority":"3"}"#, "string into Go struct field Channel.priority of type int"),
        (
            "olm.channel",
            r#"{"priority":1.5}"#,
            "number 1.5 into Go struct field Channel.priority of type int",
        ),
        (
            "olm.bundle.object",
            r#"{"data":[256]}"#,
            "number 256 into Go struct field BundleObject.data of type uint8",
        ),
    ] {
        let found = message(&[&one, &with(kind, value)]);
        assert!(found.ends_with(&format!(": json: cannot unmarshal {problem}")), "{found}");
    }
}

#[test]
fn base64_fault_offset_matches_go() {
    let rows = [
        ("s", 0),
        ("AA", 0),
        ("AAAAA", 4),
        ("AA=", 3),
        ("AA=A", 2),
        ("AA==A", 4),
        ("AA===", 4),
        ("AAA=AAA", 4),
        ("A=A=", 1),
        ("AA==AA==", 4),
        ("A\\nA\\n", 2),
        ("AA\\n=*", 3),
        ("*", 0),
    ];
    for (data, at) in rows {
        let package = PACKAGE.replace("}", &format!(r#","icon":{{"base64data":"{data}"}}}}"#));
        let found = report(&[&package], false).reference_message.unwrap();
        assert_eq!(found, format!("parse package: illegal base64 data at input byte {at}"), "{data}");
    }
    let good = PACKAGE.replace("}", r#","icon":{"base64data":"\nA\rA=\n=\n"}}"#);
    assert!(!report(&[&good], false).reference_message.unwrap().starts_with("parse"));
}

#[test]
fn separators_delimit_documents() {
    let validity = |text: &str| {
        let files = Files::from([("catalog.yaml", text)]);
        validate_folder(&files, &LoadLimits::default(), false).reference_message.unwrap_or_default()
    };
    assert_eq!(validity("---\nschema: x\n---\nschema: z\n---\n"), "");
    assert_eq!(validity("---\n---\nschema: x\n"), "object '' is missing root schema field");
    assert_eq!(
        validity("---\na: b: c\n"),
        "error converting YAML to JSON: yaml: line 2: mapping values are not allowed in this context"
    );
    assert_eq!(validity("{\"schema\":\"x\""), "unexpected EOF");
    let keys = validity("{\"a\\u0001\":1,\"A\\u0001\":2}");
    assert_eq!(keys, "duplicate keys for key \"a\\x01\": [A\u{1} a\u{1}]");
}
