//! Loading of catalog folders and files, and the content of a package.

#![allow(clippy::unwrap_used)]

mod files;

use files::Files;
use olm_fbc::{LoadError, LoadLimits, Meta, MetaReader, PackageContent, load};
use proptest::prelude::*;
use serde_json::json;

fn lines<const N: usize>(files: &[(&str, &str); N]) -> Result<String, String> {
    let mut text = Vec::new();
    let folder = Files::from(*files);
    let loaded = load::<LoadError>(&folder, &LoadLimits::default(), &mut |meta| {
        text.extend(meta.blob);
        Ok(())
    });
    loaded.map(|()| String::from_utf8(text).unwrap()).map_err(|error| error.to_string())
}

#[test]
fn folder_is_loaded_in_walk_order_without_ignored_files() {
    // Case catalogd-1
    let walk = [("a.txt", "schema: 2"), ("b.yaml", "schema: '4'"), ("B/x", "schema: b"), ("b/z.yaml", "{}")];
    let order = [("a.txt", "s: 2"), ("b.yaml", "s: 4"), ("B/x", "s: 1"), ("b/z.yaml", "s: 3")];
    assert_eq!(lines(&order).unwrap(), "{\"s\":1}\n{\"s\":2}\n{\"s\":3}\n{\"s\":4}\n");
    // The first invalid file determines the error.
    let expected = "a.txt:1: document 1: error unmarshaling JSON: while decoding JSON: \
                    expected value for key \"schema\" to be a string, got 2";
    assert_eq!(lines(&walk).unwrap_err(), expected);
    // Case catalogd-2
    let readme = ("README.md", "# Title\n\nsome text\n");
    let expected = "README.md:1: document 1: error unmarshaling JSON: while decoding JSON: \
                    json: cannot unmarshal string into Go value of type map[string]interface {}";
    assert_eq!(lines(&[readme, ("z", "schema: z")]).unwrap_err(), expected);
    let ignored = [readme, ("z", "schema: z"), (".indexignore", "README.md")];
    assert_eq!(lines(&ignored).unwrap(), "{\"schema\":\"z\"}\n");
    // Case catalogd-12
    assert_eq!(lines(&[("a", "s: 1"), ("b/c", "gone")]).unwrap_err(), "open b/c: no such file or directory");
    assert_eq!(lines(&[]).unwrap(), "");
}

#[test]
fn folder_over_entry_limit_is_rejected() {
    let folder = Files::from([("a", ""), ("b/c", "")]);
    let limits = LoadLimits { entries: 2, ..LoadLimits::default() };
    let loaded = load::<LoadError>(&folder, &limits, &mut |_| Ok(()));
    assert_eq!(loaded.unwrap_err().to_string(), "folder holds more than 2 files and directories");
}

/// Error of loading a catalog with one file.
fn refusal(file: &str) -> String {
    lines(&[("catalog.yaml", file)]).unwrap_err()
}

#[test]
fn load_error_names_file_line_and_document() {
    let typed = "error unmarshaling JSON: while decoding JSON: ";
    let cases = [
        // The line of the fault, if the parser reports it.
        ("a: 1\n---\n# x\nb: 1\nc: [\n", "5: document 2: error converting YAML to JSON: yaml: line "),
        ("a: 1\n--- foo\n", "2: document 1: invalid Yaml document separator: foo"),
        ("{\"a\":1}\n{\"a\":2}\n\n{\n  \"b\": 1\n  x\n}", "6: document 3: invalid character 'x'"),
        // Otherwise the first line of the document.
        ("a: 1\n---\nb: 1\nschema: 7\n", &format!("3: document 2: {typed}expected value for key")),
        ("a: 1\n---\n\n--- # only a comment\nb: 1\nB: 2\n", &format!("5: document 3: {typed}duplicate keys")),
        ("{\"a\":1}{\"a\":2}\n\n{\"schema\":1}", "3: document 3: expected value for key"),
        // JSON followed by YAML that is invalid as either: the position at which it stops being JSON.
        ("{\"a\":1}\n---\n[1]\n", "2: document 2: json: offset 10: "),
    ];
    for (file, expected) in cases {
        let found = refusal(file);
        assert!(found.starts_with(&format!("catalog.yaml:{expected}")), "{file:?}: {found}");
    }
    let long = "a".repeat(64 << 10);
    let ignore = lines(&[("d/.indexignore", &long)]).unwrap_err();
    assert_eq!(ignore, "d/.indexignore: a line is longer than 65536 bytes");
}

#[test]
fn errors_quote_only_the_start_of_long_texts() {
    let long = "n".repeat(100_000);
    for file in [
        format!("a: *{long}"),
        format!("a: &{long} [*{long}]"),
        format!("a: !!int {long}"),
        format!("--- {long}"),
        format!("{{\"{long}k\": 1, \"{long}K\": 2}}"),
        format!("{{\"schema\": [\"{long}\"]}}"),
    ] {
        let error = refusal(&file);
        assert!(
            (50..2000).contains(&error.len()),
            "{} bytes for {}: {}",
            error.len(),
            &file[..20],
            &error[..200]
        );
    }
    let error = lines(&[(&format!("{long}.yaml"), "[")]).unwrap_err();
    assert!(error.len() < 1000, "{error}");
    for line in [
        json!({"package": "p", "name": long}),
        json!({"package": "p", "schema": "olm.channel", "name": long, "entries": 1}),
        json!({"package": "p", "schema": "olm.channel", "name": "a", "entries": long}),
        json!(long),
    ] {
        let error = PackageContent::from_metas("p", [line.to_string().as_bytes()]).unwrap_err().to_string();
        assert!((256..1000).contains(&error.len()), "{} bytes: {}", error.len(), &error[..50]);
    }
}

#[test]
fn unquoted_range_and_unindented_message_are_located() {
    // Case seeds-s0-1: the range must be quoted.
    let channel = |range: &str| {
        format!(
            "---\nschema: olm.package\nname: p\n---\nschema: olm.channel\nentries:\n- name: a\n  skipRange: {range}\n"
        )
    };
    assert!(lines(&[("catalog.yaml", &channel("'>=1.0.0 <3.0.0'"))]).is_ok());
    let found = refusal(&channel(">=1.0.0 <3.0.0"));
    assert!(
        found.starts_with("catalog.yaml:8: document 2: error converting YAML to JSON: yaml: "),
        "{found}"
    );
    // Case seeds-s0-2: the text of a message must be indented.
    let deprecations = |margin: &str| {
        format!(
            "schema: olm.deprecations\nentries:\n- message: |\n{margin}Use another.\n  reference: {{schema: olm.package}}\n"
        )
    };
    assert!(lines(&[("catalog.yaml", &deprecations("    "))]).is_ok());
    let found = refusal(&deprecations(""));
    assert!(
        found.starts_with("catalog.yaml:4: document 1: ")
            || found.starts_with("catalog.yaml:5: document 1: "),
        "{found}"
    );
}

#[test]
fn metas_record_their_origin() {
    let mut found = Vec::new();
    let file = "\n\nschema: a\n---\n---\n# x\nschema: b\n";
    let json = "\n {\"schema\":\"c\"}\n\n{\"schema\":\"d\",\n\"x\":1} {\"schema\":\"e\"}";
    let folder = Files::from([("d/x.yaml", file), ("y.json", json)]);
    load::<LoadError>(&folder, &LoadLimits::default(), &mut |meta| {
        found.push(format!("{} {}", meta.schema, meta.origin));
        Ok(())
    })
    .unwrap();
    let expected = [
        "a d/x.yaml:1: document 1",
        "b d/x.yaml:6: document 2",
        "c y.json:2: document 1",
        "d y.json:4: document 2",
        "e y.json:5: document 3",
    ];
    assert_eq!(found, expected);
    let mut reader = MetaReader::new(&b"schema: a"[..], olm_yaml::Limits::default());
    assert_eq!(reader.next().unwrap().unwrap().origin.to_string(), "line 1: document 1");
}

/// Stored lines of a file, joined by spaces, or the error.
fn stored(file: &str) -> String {
    let metas: Result<Vec<Meta>, _> = MetaReader::new(file.as_bytes(), olm_yaml::Limits::default()).collect();
    match metas {
        Ok(metas) => {
            let text: Vec<u8> = metas.into_iter().flat_map(|meta| meta.blob).collect();
            String::from_utf8(text).unwrap().trim_end().replace('\n', " ")
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn file_documents_are_canonicalized_or_rejected() {
    let yaml = "error unmarshaling JSON: while decoding JSON: ";
    let cases = [
        // Case catalogd-6
        (r#"{"schema":"a"}{"schema":"b"}"#, r#"{"schema":"a"} {"schema":"b"}"#),
        (r#"{"schema":"a",}"#, r#"{"schema":"a"}"#),
        ("{\"schema\":\"a\"}\n---\nschema: b", r#"{"schema":"a"} {"schema":"b"}"#),
        // Case catalogd-7
        (r#"{"schema":"a"}{"schema":"b"}{"schema":"#, "unexpected EOF"),
        // Case catalogd-8
        ("schema: a\n--- foo\nschema: b", "invalid Yaml document separator: foo"),
        // Case catalogd-9
        ("schema: a\nSchema: b", &format!("{yaml}duplicate keys for key \"schema\": [Schema schema]")),
        ("schema: 1", &format!("{yaml}expected value for key \"schema\" to be a string, got 1")),
        // Case catalogd-10
        (r#"{"z":1.0,"b":"<&>","schema":"a"}"#, r#"{"b":"<&>","schema":"a","z":1}"#),
        // Case catalogd-11
        ("schema: a\nx: yes\ny: 1\no: 017", r#"{"o":15,"schema":"a","true":1,"x":true}"#),
        // A single JSON value that is not YAML either: the JSON error with its position in the file.
        ("{\"a\":1}\n}", "json: offset 9: invalid character '}' looking for beginning of value"),
        (r#"{"a":1,"a":2,"A":3}"#, "duplicate keys for key \"a\": [A a]"),
        (
            r#"{"ß":1,"SS":2,"b":3,"B":4}"#,
            "[duplicate keys for key \"b\": [B b], duplicate keys for key \"ss\": [SS ß]]",
        ),
        (r#"{"ı":1,"i":2}"#, r#"{"i":2,"ı":1}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
    ];
    for (file, expected) in cases {
        assert_eq!(stored(file), expected, "{file:?}");
    }
}

#[test]
fn selector_fields_are_extracted_from_metas() {
    let file = br#"{"Schema":"s","PACKAGE":"p\u00e9","name":"n","x":{"name":"y"}} null {}"#;
    let metas: Result<Vec<Meta>, _> = MetaReader::new(&file[..], olm_yaml::Limits::default()).collect();
    let found: Vec<_> =
        metas.unwrap().into_iter().map(|m| (m.schema, m.package, m.name, m.blob.len())).collect();
    let text = |schema: &str, package: &str, name: &str, size| {
        (schema.to_owned(), package.to_owned(), name.to_owned(), size)
    };
    assert_eq!(found, [text("s", "pé", "n", 59), text("", "", "", 5), text("", "", "", 3)]);
    // An empty YAML document stores nothing.
    let metas: Vec<_> = MetaReader::new(&b"# none\n"[..], olm_yaml::Limits::default()).collect();
    assert!(matches!(metas.as_slice(), [Ok(meta)] if meta.blob.is_empty()));
}

#[test]
fn package_content_is_read_leniently_and_last_object_wins() {
    let catalog = [
        r#"{"schema":"olm.package","Name":"foo","DEFAULTCHANNEL":"a","properties":[{"type":"x","value":1}]}"#,
        r#"{"schema":"olm.channel","package":"foo","name":"a","entries":[{"name":"b1","replaces":"b0","skips":["c"],"skipRange":"<1"},{"name":"b2","skips":null}]}"#,
        r#"{"schema":"olm.bundle","package":"foo","name":"b2","image":"i2","relatedImages":[{"image":"r"}]}"#,
        r#"{"schema":"olm.bundle","package":"foo","name":"b1","image":"old"}"#,
        r#"{"schema":"olm.bundle","package":"foo","name":"b1","image":"new","properties":[{"TYPE":"t","Value":{"a":1}},{"type":"u"},{"type":"v","value":null}]}"#,
        r#"{"schema":"olm.bundle","package":"bar","name":"b1","image":7}"#,
        r#"{"schema":"olm.deprecations","package":"foo","entries":[]}"#,
        r#"{"schema":"olm.deprecations","package":"foo","entries":[{"reference":{"schema":"olm.bundle","name":"b1"},"message":"m"}]}"#,
        r#"{"schema":"own","package":"foo","name":"b1"}"#,
        "null",
        "",
    ];
    let lines = || catalog.iter().map(|line| line.as_bytes());
    let content = PackageContent::from_metas("foo", lines()).unwrap();
    assert_eq!(content.packages[0].default_channel, "a");
    assert_eq!(content.packages[0].properties[0].parse::<u32>().unwrap(), 1);
    let entry = &content.channels[0].entries[0];
    assert_eq!((entry.replaces.as_str(), entry.skip_range.as_str()), ("b0", "<1"));
    assert_eq!(
        (entry.skips.as_slice(), content.channels[0].entries[1].skips.len()),
        (&["c".to_owned()][..], 0)
    );
    let images: Vec<_> = content.bundles.iter().map(|bundle| bundle.image.as_str()).collect();
    assert_eq!(images, ["new", "i2"]); // the last of equal names
    assert_eq!(content.bundles[1].related_images[0].image, "r");
    let values: Vec<_> =
        content.bundles[0].properties.iter().map(|p| (p.kind.as_str(), p.value.get())).collect();
    assert_eq!(values, [("t", r#"{"a":1}"#), ("u", "null"), ("v", "null")]);
    assert_eq!(content.deprecations.len(), 1);
    assert_eq!(content.deprecations[0].entries[0].reference.name, "b1");
    assert_eq!(content.others, 1);
    assert!(!content.is_empty());
    assert!(PackageContent::from_metas("nope", lines()).unwrap().is_empty());
    let failure = PackageContent::from_metas("bar", lines()).unwrap_err().to_string();
    assert!(
        failure.starts_with("parse bundle \"b1\": invalid type: integer `7`, expected a string"),
        "{failure}"
    );
    let failure = PackageContent::from_metas("x", [&br#"{"package":"x","name":"n"}"#[..]]).unwrap_err();
    assert_eq!(failure.to_string(), "object \"n\" is missing root schema field");
}

// An entry of a few characters takes a hundred bytes in memory.
#[test]
fn package_with_too_many_parts_is_refused() {
    let entries = |name: &str, entry: &str, count: usize| {
        let entries = format!("{entry},").repeat(count);
        format!(r#"{{"schema":"olm.channel","package":"p","name":"{name}","entries":[{entries}null]}}"#)
    };
    let read =
        |lines: [String; 2]| PackageContent::from_metas("p", lines.each_ref().map(|line| line.as_bytes()));
    assert!(read([entries("a", "{}", 400_000), entries("b", "null", 500_000)]).is_ok());
    let many = [entries("a", "null", 500_000), entries("b", "null", 500_000)];
    let skips = [entries("a", "null", 1), entries("b", r#"{"skips":["","","",""]}"#, 250_000)];
    for lines in [many, skips] {
        let failure = read(lines).unwrap_err().to_string();
        assert_eq!(failure, "there are more than 1000000 entries, skipped names, properties and images");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stored_lines_are_a_fixed_point(file in r#"([a-c]: [0-9\[\]y{}"'-]{0,3}\n|---\n|\{"[a-cA]": ?[0-9."-]{1,4}\}\n?){0,8}"#) {
        let read = |file: &[u8]| -> Option<Vec<Meta>> {
            MetaReader::new(file, olm_yaml::Limits::default()).collect::<Result<_, _>>().ok()
        };
        if let Some(metas) = read(file.as_bytes()) {
            let stored: Vec<Meta> = metas.into_iter().filter(|meta| !meta.blob.is_empty()).collect();
            let text: Vec<u8> = stored.iter().flat_map(|meta| meta.blob.clone()).collect();
            let again: Vec<u8> = read(&text).unwrap().into_iter().flat_map(|meta| meta.blob).collect();
            prop_assert_eq!(again, text);
        }
    }

    #[test]
    fn any_file_parses_without_panic(file in prop::collection::vec(any::<u8>(), 0..100)) {
        let metas: Result<Vec<Meta>, _> = MetaReader::new(file.as_slice(), olm_yaml::Limits::default()).collect();
        let _ = metas;
        let _ = PackageContent::from_metas("", [file.as_slice()]);
    }
}
