//! Folders that the documents draw.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::folder::{check, package, write};
use super::texts::{cut, drawn_files, seeds};
use crate::fixture::tests;

/// Content of a file in a folder, which is that of a package if it has objects of a catalog.
fn content(seeds: &Path, folder: &str, name: &str) -> String {
    let good =
        |path: &str| fs::read_to_string(tests("commands/bundle_validate/data/good").join(path)).unwrap();
    let core = |kind: &str| json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "etcd" } });
    let package_name = folder.to_lowercase();
    let joined = |separator: &str| {
        let objects = package([&package_name, &package_name, "stable"], &["0.1.0"], &[]);
        objects.iter().map(Value::to_string).collect::<Vec<_>>().join(separator)
    };
    match name {
        "index.json" => joined("\n"),
        "index.yaml" => joined("\n---\n"),
        "deprecations.yaml" => {
            let entries = json!([{ "reference": { "schema": "olm.package" }, "message": "is old" }]);
            json!({ "schema": "olm.deprecations", "package": package_name, "entries": entries }).to_string()
        }
        ".indexignore" => cut(seeds, "000:206-211"),
        "annotations.yaml" => good("metadata/annotations.yaml"),
        "dependencies.yaml" => cut(seeds, "000:137-146"),
        "etcdcluster.crd.yaml" => good("manifests/lamps.crd.yaml"),
        "secret.yaml" => core("Secret").to_string(),
        "configmap.yaml" => core("ConfigMap").to_string(),
        _ => good("manifests/lamp.clusterserviceversion.yaml"),
    }
}

fn draw(seeds: &Path, folder: &Path, root: &str, at: &str) {
    for path in drawn_files(&cut(seeds, at)) {
        let path = format!("{root}/{path}");
        let names: Vec<&str> = path.split('/').collect();
        write(folder, &path, content(seeds, names[1], names[names.len() - 1]));
    }
}

#[test]
fn drawn_folders_are_catalogs_and_a_bundle() {
    let Some(seeds) = seeds() else { return };
    let folder = tempfile::tempdir().unwrap();
    draw(&seeds, folder.path(), "etcd", "000:33-41");
    draw(&seeds, folder.path(), "catalog", "000:218-228");
    draw(&seeds, folder.path(), "my-catalog", "000:451-454");
    let expect = |line: &str, code, expected| check(folder.path(), line, code, expected, "drawn");
    expect("bundle validate etcd", 0, "write one olm.constraint with all [DEP-3]");
    for catalog in ["catalog", "catalog/packageA", "catalog/packageB", "catalog/packageC", "my-catalog"] {
        expect(&format!("validate {catalog} --strict"), 0, "");
    }
    expect("catalog show catalog packagec", 0, "is old");
    fs::remove_file(folder.path().join("catalog/packageB/.indexignore")).unwrap();
    expect("validate catalog", 3, "a ClusterServiceVersion belongs in the manifests folder of a bundle");
}
