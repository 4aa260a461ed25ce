//! Tests of bundle conversion: each rule, and real bundles against the catalogs that list them.

use std::path::{Path, PathBuf};

use olm_fbc::MetaReader;

use super::*;

const CSV_FILE: &str = "manifests/csv.yaml";

/// Files of a small bundle. `csv` is inserted into `spec` of its ClusterServiceVersion.
fn files(csv: &str) -> BTreeMap<String, Vec<u8>> {
    let csv = format!(
        "apiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata:\n  name: foo.v1.2.3\n  annotations:\n    \
         olm.skipRange: '>=1.0.0 <1.2.3'\nspec:\n  version: 1.2.3\n  install: {{strategy: deployment, spec: {{deployments: []}}}}\n{csv}"
    );
    let annotations = "annotations:\n  operators.operatorframework.io.bundle.package.v1: foo\n  \
                       operators.operatorframework.io.bundle.channels.v1: 'alpha, beta'\n  \
                       operators.operatorframework.io.bundle.channel.default.v1: alpha\n";
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: foos.x.io}\n\
               spec: {group: x.io, names: {kind: Foo, plural: foos}, scope: Namespaced, versions: [\
               {name: v1, served: true, storage: true}, {name: v1beta1, served: true, storage: false}]}\n";
    BTreeMap::from([
        (CSV_FILE.to_owned(), csv.into()),
        ("manifests/crd.yaml".to_owned(), crd.into()),
        (ANNOTATIONS_FILE.to_owned(), annotations.into()),
    ])
}

/// Values of the properties of type `kind`.
fn values(bundle: &CatalogBundle, kind: &str) -> Vec<Value> {
    let properties = bundle.object["properties"].as_array().unwrap();
    properties.iter().filter(|property| property["type"] == kind).map(|p| p["value"].clone()).collect()
}

fn render(files: &BTreeMap<String, Vec<u8>>) -> CatalogBundle {
    catalog_bundle(files, "r.example/foo:v1").unwrap()
}

#[test]
fn object_has_properties_of_bundle() {
    let bundle = render(&files("  replaces: foo.v1.0.0\n  skips: [foo.v1.1.0]\n  displayName: Foo\n"));
    assert_eq!((bundle.package.as_str(), bundle.name.as_str()), ("foo", "foo.v1.2.3"));
    assert_eq!(bundle.channels, ["alpha", "beta"]);
    let entry = ChannelEntry {
        name: "foo.v1.2.3".to_owned(),
        replaces: "foo.v1.0.0".to_owned(),
        skips: vec!["foo.v1.1.0".to_owned()],
        skip_range: ">=1.0.0 <1.2.3".to_owned(),
    };
    assert_eq!(bundle.entry, entry);
    let expected = json!({
        "schema": "olm.bundle",
        "package": "foo",
        "name": "foo.v1.2.3",
        "image": "r.example/foo:v1",
        "properties": [
            { "type": "olm.gvk", "value": { "group": "x.io", "kind": "Foo", "version": "v1" } },
            { "type": "olm.gvk", "value": { "group": "x.io", "kind": "Foo", "version": "v1beta1" } },
            { "type": "olm.package", "value": { "packageName": "foo", "version": "1.2.3" } },
            { "type": "olm.csv.metadata", "value": {
                "annotations": { "olm.skipRange": ">=1.0.0 <1.2.3" },
                "apiServiceDefinitions": {},
                "crdDescriptions": {},
                "displayName": "Foo",
                "provider": {},
            } },
        ],
        "relatedImages": [{ "name": "", "image": "r.example/foo:v1" }],
    });
    assert_eq!(bundle.object, expected);
}

#[test]
fn object_has_dependencies_and_properties_of_all_files() {
    let mut files =
        files("  customresourcedefinitions:\n    required: [{name: bars.y.io, version: v1, kind: Bar}]\n");
    let dependencies = "dependencies:\n- type: olm.package\n  value: {packageName: etcd, version: '>0.9.0'}\n\
                        - {type: olm.gvk, value: {group: z.io, version: v2, kind: Baz}}\n\
                        - {type: olm.constraint, value: {failureMessage: m}}\n\
                        - {type: olm.label, value: {label: l}}\n";
    files.insert(DEPENDENCIES_FILE.to_owned(), dependencies.into());
    let properties = "properties:\n- {type: vendor.x, value: [1]}\n- {type: olm.gvk, value: {group: p.io, version: v1, kind: P}}\n";
    files.insert(PROPERTIES_FILE.to_owned(), properties.into());
    let bundle = render(&files);
    assert_eq!(
        values(&bundle, "olm.gvk.required"),
        [
            json!({"group": "y.io", "kind": "Bar", "version": "v1"}),
            json!({"group": "z.io", "kind": "Baz", "version": "v2"})
        ]
    );
    assert_eq!(
        values(&bundle, "olm.package.required"),
        [json!({"packageName": "etcd", "versionRange": ">0.9.0"})]
    );
    assert_eq!(values(&bundle, "olm.constraint"), [json!({"failureMessage": "m"})]);
    // As opm does: all but packages and kinds verbatim (docs/design/resolution.md#dependency-properties).
    assert_eq!(values(&bundle, "olm.label"), [json!({"label": "l"})]);
    assert_eq!(values(&bundle, "vendor.x"), [json!([1])]);
    assert_eq!(values(&bundle, "olm.gvk").len(), 3);
}

#[test]
fn package_property_contains_release() {
    let bundle = render(&files("  release: 2\n"));
    assert_eq!(
        values(&bundle, "olm.package"),
        [json!({"packageName": "foo", "version": "1.2.3", "release": "2"})]
    );
    assert_eq!(bundle.shown_version(), "1.2.3-2");
}

/// Change to the files of a bundle, and the expected error.
type Case = (fn(&mut BTreeMap<String, Vec<u8>>), &'static str);

fn replace(files: &mut BTreeMap<String, Vec<u8>>, file: &str, from: &str, to: &str) {
    let text = String::from_utf8(files[file].clone()).unwrap();
    assert!(text.contains(from), "{text}");
    files.insert(file.to_owned(), text.replace(from, to).into());
}

fn compare_errors(cases: &[Case]) {
    for (change, expected) in cases {
        let mut files = files("");
        change(&mut files);
        assert_eq!(catalog_bundle(&files, "").unwrap_err().to_string(), *expected);
    }
}

#[test]
fn bundle_with_missing_or_extra_files_is_rejected() {
    compare_errors(&[
        (
            |files| drop(files.remove(ANNOTATIONS_FILE)),
            "open metadata/annotations.yaml: no such file or directory",
        ),
        (|files| drop(files.remove(CSV_FILE)), "no ClusterServiceVersion found in \"manifests\""),
        (
            |files| drop(files.insert("manifests/second.yaml".to_owned(), files[CSV_FILE].clone())),
            "a bundle has one ClusterServiceVersion, found several: manifests/csv.yaml, manifests/second.yaml",
        ),
        (
            |files| {
                let csv = String::from_utf8(files[CSV_FILE].clone()).unwrap().replace('\n', "\n  ");
                let list = format!("apiVersion: v1\nkind: List\nitems:\n- {}\n", csv.trim_end());
                drop(files.insert(CSV_FILE.to_owned(), list.into()));
            },
            "manifests/csv.yaml: a ClusterServiceVersion in a List is not supported: move it to a document of its own",
        ),
    ]);
}

#[test]
fn bundle_with_invalid_field_is_rejected_with_file_and_field() {
    compare_errors(&[
        (
            |files| replace(files, ANNOTATIONS_FILE, "package.v1: foo", "package.v1: ''"),
            "metadata/annotations.yaml: annotation operators.operatorframework.io.bundle.package.v1 must be the package name",
        ),
        (
            |files| replace(files, ANNOTATIONS_FILE, "'alpha, beta'", "4.10"),
            "metadata/annotations.yaml: annotation operators.operatorframework.io.bundle.channels.v1 must be a string: quote a value that looks like a number",
        ),
        (
            |files| replace(files, CSV_FILE, "version: 1.2.3", "version: v1.2.3"),
            "manifests/csv.yaml: spec.version \"v1.2.3\": Invalid character(s) found in major number \"v1\"",
        ),
        (
            |files| {
                replace(
                    files,
                    CSV_FILE,
                    "spec:\n",
                    "spec:\n  customresourcedefinitions: {owned: [{name: foos.x.io, version: v2, kind: Foo}]}\n",
                );
            },
            "spec.customresourcedefinitions.owned: no manifest defines foos.x.io (v2 Foo)",
        ),
        (
            |files| {
                drop(files.insert(
                    DEPENDENCIES_FILE.to_owned(),
                    "dependencies: [{type: olm.package, value: {packageName: a}}]".into(),
                ))
            },
            "metadata/dependencies.yaml: olm.package needs the string field value.version",
        ),
        (
            |files| drop(files.insert(DEPENDENCIES_FILE.to_owned(), "dependencies: {a: b}".into())),
            "metadata/dependencies.yaml: dependencies: expected a list of objects with type and value: invalid type: map, expected a sequence",
        ),
    ]);
}

/// Each bundle of the field data that is listed in a catalog there converts to the object of that catalog (case
/// additions-a56).
#[test]
fn field_data_bundles_convert_to_their_catalog_objects() {
    let Some(data) = olm_require::field_data() else { return };
    let bundles = bundles_of(&data);
    let (mut compared, mut wrong) = (0, Vec::new());
    for catalog in folders(&data.join("catalogs")) {
        for bundle in &bundles {
            let Some(expected) = published(&catalog.join(&bundle.package), &bundle.name) else {
                continue;
            };
            compared += 1;
            let files = olm_cli_core::bundle_source::read_bundle_dir(&bundle.folder).unwrap();
            let actual = catalog_bundle(&files, expected["image"].as_str().unwrap()).unwrap().object;
            if actual != expected {
                wrong.push(format!("{}\nours {actual:#}\ntheirs {expected:#}", bundle.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared >= 5, "only {compared} bundles are in a catalog");
    println!("{compared} bundles are as in their catalogs");
}

struct Known {
    folder: PathBuf,
    package: String,
    name: String,
}

fn bundles_of(data: &Path) -> Vec<Known> {
    let known = |folder: PathBuf| {
        let files = olm_cli_core::bundle_source::read_bundle_dir(&folder).unwrap();
        let bundle =
            catalog_bundle(&files, "").unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        Known { folder, package: bundle.package, name: bundle.name }
    };
    folders(&data.join("bundles")).into_iter().map(known).collect()
}

fn folders(parent: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// The `olm.bundle` object of a bundle in the files of its package.
fn published(package: &Path, name: &str) -> Option<Value> {
    for entry in std::fs::read_dir(package).ok()? {
        let file = std::fs::File::open(entry.unwrap().path()).unwrap();
        for meta in MetaReader::new(file, olm_yaml::Limits::default()) {
            let meta = meta.unwrap();
            if meta.schema == olm_fbc::SCHEMA_BUNDLE && meta.name == name {
                return Some(serde_json::from_slice(&meta.blob).unwrap());
            }
        }
    }
    None
}
