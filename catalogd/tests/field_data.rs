//! Real catalogs in the content store: every line is an object, queries return the matching lines, and a new
//! process loads the same index.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;

use catalogd::content::{Snapshot, Store, read_range};
use olm_fbc::MetaSelector;
use serde_json::Value;

const IMAGE: &str = "r.example/a/b@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn real_catalogs_answer_all_queries_and_reload() {
    let Some(data) = olm_require::field_data() else { return };
    let cache = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(data.join("catalogs")).unwrap() {
        let folder = entry.unwrap().path();
        let store = Store::open(cache.path()).unwrap();
        let name = folder.file_name().unwrap().to_str().unwrap();
        let snapshot = store.replace(name, &folder, IMAGE.to_owned()).unwrap();
        check(&snapshot, &folder);
        drop(store);
        let again = Store::open(cache.path()).unwrap().get(name).unwrap();
        assert_eq!(again.index, snapshot.index);
    }
}

/// Checks that every line is returned by exactly the queries that match its fields, in order.
fn check(snapshot: &Snapshot, folder: &Path) {
    let all = text(snapshot, &MetaSelector::default());
    assert_eq!(all.len() as u64, snapshot.data.length);
    let lines: Vec<(&str, MetaSelector)> =
        all.split_inclusive('\n').map(|line| (line, fields(line))).collect();
    let packages = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(lines.iter().filter(|(_, fields)| fields.schema == "olm.package").count(), packages);
    let mut queries = BTreeSet::new();
    for (_, MetaSelector { schema, package, name }) in &lines {
        for mask in 1..8 {
            let part = |bit: u8, text: &String| if mask & bit == 0 { String::new() } else { text.clone() };
            queries.insert([part(1, schema), part(2, package), part(4, name)]);
        }
    }
    for [schema, package, name] in queries {
        let selector = MetaSelector { schema, package, name };
        let found = lines.iter().filter(|(_, fields)| {
            !fields.schema.is_empty() && selector.matches(&fields.schema, &fields.package, &fields.name)
        });
        let expect: String = found.map(|(line, _)| *line).collect();
        let expect = if selector.selects_all() { all.clone() } else { expect };
        assert!(text(snapshot, &selector) == expect, "{selector:?}");
    }
}

fn fields(line: &str) -> MetaSelector {
    let object: Value = serde_json::from_str(line).unwrap();
    let field = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    MetaSelector { schema: field("schema"), package: field("package"), name: field("name") }
}

fn text(snapshot: &Snapshot, selector: &MetaSelector) -> String {
    let mut bytes = Vec::new();
    for range in snapshot.index.ranges(selector) {
        let from = bytes.len();
        bytes.resize(from + usize::try_from(range.end - range.start).unwrap(), 0);
        read_range(&snapshot.data.file, range, &mut bytes[from..]).unwrap();
    }
    String::from_utf8(bytes).unwrap()
}
