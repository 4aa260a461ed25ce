//! Real catalogs through the content store: every line is an object, queries find what the lines say, and a
//! new process finds all of it again.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use catalogd::content::{Snapshot, Store, read_range};
use olm_fbc::Selector;
use serde_json::Value;

const IMAGE: &str = "r.example/a/b@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn real_catalogs() {
    let Some(data) = std::env::var_os("OLM_FIELD_DATA").map(PathBuf::from) else {
        println!("skipped: OLM_FIELD_DATA is not set");
        return;
    };
    let cache = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(data.join("catalogs")).unwrap() {
        let folder = entry.unwrap().path();
        let store = Store::open(cache.path()).unwrap();
        let name = folder.file_name().unwrap().to_str().unwrap();
        let snapshot = store.replace(name, &folder, IMAGE.to_owned()).unwrap();
        check(&snapshot, &folder);
        drop(store);
        let again = Store::open(cache.path()).unwrap().get(name).unwrap();
        assert_eq!(again.index(), snapshot.index());
    }
}

fn check(snapshot: &Snapshot, folder: &Path) {
    let all = text(snapshot, &Selector::default());
    assert_eq!(all.len() as u64, snapshot.length());
    let objects: Vec<Value> = all.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |schema: &str| objects.iter().filter(|object| object["schema"] == schema).count();
    let packages = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(of("olm.package"), packages);
    for schema in ["olm.package", "olm.channel", "olm.bundle"] {
        let selector = Selector { schema: schema.to_owned(), ..Selector::default() };
        assert_eq!(text(snapshot, &selector).lines().count(), of(schema), "{schema}");
    }
    let package = objects.iter().find_map(|object| object["package"].as_str()).unwrap();
    let selector = Selector { package: package.to_owned(), ..Selector::default() };
    let expect = objects.iter().filter(|object| object["package"] == package).count();
    assert_eq!(text(snapshot, &selector).lines().count(), expect);
}

fn text(snapshot: &Snapshot, selector: &Selector) -> String {
    let mut bytes = Vec::new();
    for range in snapshot.index().ranges(selector) {
        let from = bytes.len();
        bytes.resize(from + usize::try_from(range.end - range.start).unwrap(), 0);
        read_range(snapshot.file(), range, &mut bytes[from..]).unwrap();
    }
    String::from_utf8(bytes).unwrap()
}
