//! Rules on files: repeated keys, misplaced files, several objects in one file.

use super::fixture::{CRD, Files, compare};

const CONFIG: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n";

#[test]
fn repeated_keys_are_reported_in_each_file_at_any_depth() {
    let good = Files::good;
    let annotations = "  operators.operatorframework.io.bundle.package.v1: lamp\n";
    compare(&[
        (
            good().with("manifests/c.yaml", &format!("{CONFIG}{}", CONFIG.replace("name: c", "name: d"))),
            &[
                "warning: manifests/c.yaml:4: apiVersion: the key is also on line 1: separate objects with a line \
                 `---`; otherwise only the last one is read [FILE-6]",
                "warning: manifests/c.yaml:5: kind: the key is also on line 2: separate objects with a line `---`; \
                 otherwise only the last one is read [FILE-6]",
                "warning: manifests/c.yaml:6: metadata: the key is also on line 3: separate objects with a line `---`; \
                 otherwise only the last one is read [FILE-6]",
            ],
        ),
        (
            good().csv("  displayName: Lamp\n", "  displayName: Lamp\n  maturity: alpha\n  maturity: beta\n"),
            &["warning: manifests/csv.yaml:10: spec.maturity: the key is also on line 9: only the last value is used: \
               remove one of the two [FILE-6]"],
        ),
        (
            good().crd("{type: object}", "{type: object, type: object}"),
            &["warning: manifests/lamps.crd.yaml:14: spec.versions[0].schema.openAPIV3Schema.type: the key is also on \
               line 14: only the last value is used: remove one of the two [FILE-6]"],
        ),
        (
            good().annotations(annotations, &annotations.repeat(2)),
            &["warning: metadata/annotations.yaml:6: \
               annotations[\"operators.operatorframework.io.bundle.package.v1\"]: the key is also on line 5: only the \
               last value is used: remove one of the two [FILE-6]"],
        ),
        (
            good().with("metadata/properties.yaml", "properties: []\nproperties:\n- {type: a, type: b, value: 1}\n"),
            &[
                "warning: metadata/properties.yaml:2: properties: the key is also on line 1: only the last value is \
                 used: remove one of the two [FILE-6]",
                "warning: metadata/properties.yaml:3: properties[0].type: the key is also on line 3: only the last \
                 value is used: remove one of the two [FILE-6]",
            ],
        ),
        (
            good().csv("\"metadata\": {\"name\": \"l\"}", "\"metadata\": {\"name\": \"l\", \"name\": \"m\"}"),
            &["warning: manifests/csv.yaml:6: ClusterServiceVersion lamp.v1.2.0: metadata.annotations.alm-examples: the JSON has the key \"0.metadata.name\" in its lines 1 and 1; only the last value is used: remove one of the two [FILE-6]"],
        ),
        (good().with("manifests/c.json", "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"c\"},\n \"data\": {\"a\": \"1\", \"a\": \"2\"}}"),
            &["warning: manifests/c.json:2: data.a: the key is also on line 2: only the last value is used: remove one \
               of the two [FILE-6]"],
        ),
    ]);
}

#[test]
fn files_that_are_not_read_are_reported() {
    let good = Files::good;
    compare(&[
        (
            good()
                .with("metadata/lamps.crd.yaml", CRD)
                .with("metadata/dependencies.yml", "dependencies: []\n"),
            &[
                "warning: metadata/dependencies.yml: dependencies are read only from metadata/dependencies.yaml: move this file there [FILE-7]",
                "warning: metadata/lamps.crd.yaml: objects are read only from manifests/: move this CustomResourceDefinition there, or remove it [FILE-7]",
            ],
        ),
        (
            good()
                .with("metadata/more/", "")
                .with("properties.yaml", "properties: []\n")
                .with("notes.yaml", "a: 1\n"),
            &[
                "warning: metadata/more: directories in metadata/ are ignored: move its files, or remove it [FILE-7]",
                "warning: properties.yaml: properties are read only from metadata/properties.yaml: move this file there [FILE-7]",
            ],
        ),
        (
            good().with("manifests/dependencies.yaml", "dependencies: []\n"),
            &[
                "warning: manifests/dependencies.yaml: dependencies are read only from metadata/dependencies.yaml: move this file there [FILE-7]",
                "error: manifests/dependencies.yaml:1: unable to decode \"manifests/dependencies.yaml\": Object 'Kind' is missing in '{\"dependencies\":[]}' [FILE-2]",
            ],
        ),
    ]);
}

#[test]
fn further_documents_of_a_manifest_are_reported_once_per_file() {
    let good = Files::good;
    let other = |name: &str| CONFIG.replace("name: c", &format!("name: {name}"));
    compare(&[
        (good().with("manifests/c.yaml", &format!("---\n{CONFIG}---\n")), &[]),
        (
            good().with("manifests/c.yaml", &format!("\n---\n{CONFIG}---\n{}", other("d"))),
            &[
                "warning: manifests/c.yaml:3: opm and classic OLM read only the first document of a file, which is empty: remove everything before the first object [FILE-8]",
                "warning: manifests/c.yaml:7: opm and classic OLM read only the first document of a file, which is not this one: move this object to a file of its own [FILE-8]",
            ],
        ),
        (
            good().with("manifests/c.yaml", &format!("{CONFIG}---\n{}---\n{}", other("d"), other("e"))),
            &[
                "warning: manifests/c.yaml:5: opm and classic OLM read only the first document of a file, which is not this one: move this object to a file of its own [FILE-8]",
            ],
        ),
    ]);
}
