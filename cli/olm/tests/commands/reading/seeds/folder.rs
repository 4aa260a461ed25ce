//! Folder in which the commands of an example run: a valid bundle and small catalogs.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::Place;
use crate::fixture::{Ran, bundle_files, olm_in, tests};

/// Writes a file, and its folders.
pub(super) fn write(folder: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Objects of a package with bundles `PREFIX.vVERSION`, each of which replaces the one before it. All have these
/// properties, besides their version.
pub(super) fn package(names: [&str; 3], versions: &[&str], properties: &[Value]) -> Vec<Value> {
    let [package, prefix, channel] = names;
    let bundle = |version: &str| format!("{prefix}.v{version}");
    let entry = |(at, version): (usize, &&str)| match at.checked_sub(1) {
        Some(before) => json!({ "name": bundle(version), "replaces": bundle(versions[before]) }),
        None => json!({ "name": bundle(version) }),
    };
    let entries: Vec<Value> = versions.iter().enumerate().map(entry).collect();
    let mut objects = vec![
        json!({ "schema": "olm.package", "name": package, "defaultChannel": channel }),
        json!({ "schema": "olm.channel", "package": package, "name": channel, "entries": entries }),
    ];
    for version in versions {
        let own = json!({ "type": "olm.package", "value": { "packageName": package, "version": version } });
        let properties: Vec<&Value> = [&own].into_iter().chain(properties).collect();
        objects.push(json!({ "schema": "olm.bundle", "package": package, "name": bundle(version),
            "image": format!("registry.example/{package}:v{version}"), "properties": properties }));
    }
    objects
}

/// Writes each object of a package to a file `catalog/PACKAGE/NAME.json`.
pub(super) fn write_package(folder: &Path, objects: &[Value]) {
    let name = |object: &Value| object["name"].as_str().unwrap().to_owned();
    for object in objects {
        let path = format!("catalog/{}/{}.json", name(&objects[0]), name(object));
        write(folder, &path, object.to_string());
    }
}

/// Provided API.
pub(super) fn api(group: &str, version: &str, kind: &str) -> Value {
    json!({ "type": "olm.gvk", "value": { "group": group, "version": version, "kind": kind } })
}

/// New folder for the commands of an example.
pub(super) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in bundle_files(&tests("commands/bundle_validate/data/good")) {
        write(folder.path(), &format!("bundle/{path}"), content);
    }
    let blue = [
        json!({ "type": "certified", "value": true }),
        json!({ "type": "stable", "value": true }),
        api("blues.example.com", "v1", "Blue"),
        api("blues.example.com", "v1beta1", "Blue"),
        api("greens.example.com", "v1", "Green"),
    ];
    let etcd = [api("etcd.database.coreos.com", "v1beta2", "EtcdCluster")];
    let versions = ["1.10.9", "1.11.1", "1.12.4", "1.13.0", "1.14.0", "1.16.0"];
    for objects in [
        package(["example", "example", "latest"], &versions, &[]),
        package(["my-operator", "my-operator", "alpha"], &["1.68.0", "1.72.0"], &[]),
        package(["steps", "example", "stable"], &["2.0.0", "3.0.0"], &[]),
        package(["lamp", "etcdoperator", "stable"], &["0.9.0", "0.9.1"], &[]),
        package(["prometheus", "prometheus", "stable"], &["0.28.0"], &[]),
        package(["etcd", "etcd", "stable"], &["3.2.0"], &etcd),
        package(["blue", "blue", "stable"], &["0.9.0", "1.1.0"], &blue),
        package(["red", "red", "stable"], &["1.0.0"], &[]),
    ] {
        write_package(folder.path(), &objects);
    }
    folder
}

/// Puts the text of an example in its place.
pub(super) fn put(folder: &Path, place: Place, text: &str) {
    let path = match place {
        Place::File(path) => return write(folder, path, text),
        Place::Fields(path) => path,
    };
    let parsed = |text: &[u8]| olm_yaml::from_slice(text).unwrap();
    let mut object = parsed(&fs::read(folder.join(path)).unwrap());
    merge(&mut object, &parsed(text.as_bytes()));
    if object["kind"] == "ClusterServiceVersion" {
        let name = object["metadata"]["name"].as_str().unwrap();
        let version = name.split_once(".v").unwrap().1.to_owned();
        object["spec"]["version"] = json!(version);
    }
    write(folder, path, object.to_string());
}

/// Adds the fields of `more`. Lists are joined, and null is nothing.
fn merge(object: &mut Value, more: &Value) {
    match (object, more) {
        (Value::Object(object), Value::Object(more)) => {
            for (name, value) in more {
                merge(object.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(list), Value::Array(more)) => list.extend(more.iter().cloned()),
        (_, Value::Null) => {}
        (object, more) => *object = more.clone(),
    }
}

/// Exit code, and both outputs.
pub(super) fn run(folder: &Path, args: &[&str]) -> (i32, String) {
    let Ran { code, stdout, stderr } = Ran::from(olm_in(folder, args).output().unwrap());
    (code, stdout + &stderr)
}

/// Runs a command line, and compares its exit code and a part of its output. An empty text stands for no output.
pub(super) fn check(folder: &Path, line: &str, code: i32, expected: &str, what: &str) {
    let args: Vec<&str> = line.split_whitespace().collect();
    let (found, output) = run(folder, &args);
    let is_expected = if expected.is_empty() { output.is_empty() } else { output.contains(expected) };
    assert!(found == code && is_expected, "{what}: {line}: {found}, expected {code} {expected:?}:\n{output}");
}
