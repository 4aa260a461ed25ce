//! Files that cannot be loaded: every one is reported.

use super::fixture::{Files, compare};

#[test]
fn layout_errors_are_reported() {
    let good = Files::good;
    compare(&[
        (
            good().without("metadata/annotations.yaml"),
            &[
                "error: metadata/annotations.yaml: the file is missing; it declares the package and its channels [FILE-1]",
            ],
        ),
        // Case bundles-1
        (
            good().with("manifests/sub/a.yaml", "").with("manifests/.git/", ""),
            &[
                "error: manifests/.git: a directory inside of manifests/ is not allowed: move its files to manifests/ or remove it \
                 [FILE-1]",
                "error: manifests/sub: a directory inside of manifests/ is not allowed: move its files to manifests/ or remove it [FILE-1]",
            ],
        ),
        (
            good().without("manifests/csv.yaml").without("manifests/lamps.crd.yaml"),
            &["error: manifests/: there are no manifests [FILE-1]"],
        ),
        (
            good().with(
                "manifests/c.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n...\nkind: Secret\n",
            ),
            &[
                "warning: manifests/c.yaml:5: the rest of the document is ignored: a document has one value; separate documents \
               with `---` [FILE-3]",
            ],
        ),
    ]);
}

// docs/design/bundles.md#typed-conversion, docs/design/bundles.md#target-check; cases bundles-4, bundles-8
#[test]
fn all_unreadable_files_are_reported_at_once() {
    let files = Files::good()
        .with("metadata/annotations.yaml", "annotations: [")
        .with("metadata/properties.yaml", "properties: 5")
        .with("manifests/a.yaml", "apiVersion: v1\nkind: ConfigMap\n\tx: y\n")
        .with(
            "manifests/b.yaml",
            "a: b\n---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: y\n---\nkind: ConfigMap\n",
        )
        .with("manifests/README.md", "# Read me\nprose\n")
        .csv(
            "- name: manager\n",
            "- name: manager\n                env:\n                - name: A\n                  value: 1\n",
        )
        .crd("served: true", "served: yea");
    assert_eq!(
        files.findings(),
        [
            "error: manifests/README.md:2: unable to decode \"manifests/README.md\": json: cannot unmarshal string into Go \
             value of type unstructured.detector [FILE-2]",
            "error: manifests/a.yaml:3: error converting YAML to JSON: yaml: line 3: found a tab character that violates \
             indentation [FILE-2]",
            "error: manifests/b.yaml:1: unable to decode \"manifests/b.yaml\": Object 'Kind' is missing in '{\"a\":\"b\"}' \
             [FILE-2]",
            "error: manifests/b.yaml:3: Secret: unable to decode \"manifests/b.yaml\": json: cannot unmarshal bool into Go \
             struct field ObjectMeta.metadata.name of type string [FILE-2]",
            "warning: manifests/b.yaml:3: opm and classic OLM read only the first document of a file, which is not this one: move \
             this object to a file of its own [FILE-8]",
            "error: manifests/csv.yaml:43: ClusterServiceVersion lamp.v1.2.0: \
             spec.install.spec.deployments[0].spec.template.spec.containers[0].env[0].value: cannot convert int64 to string: the \
             value is 1; quote a string [FILE-2]",
            "error: manifests/lamps.crd.yaml:11: CustomResourceDefinition lamps.light.example.com: spec.versions[0].served: \
             unrecognized type: bool [FILE-2]",
            "error: metadata/annotations.yaml:1: error converting YAML to JSON: yaml: line 1: did not find expected node \
             content [FILE-2]",
            "error: metadata/properties.yaml:1: properties: expected a list of objects with type and value [PROP-1]",
        ]
    );
}

#[test]
fn lists_are_expanded_one_level() {
    let list = |items: &str| {
        let items = format!("apiVersion: v1\nkind: ServiceAccountList\nitems:\n{items}");
        Files::good().with("manifests/list.yaml", &items).findings()
    };
    assert_eq!(list("- {metadata: {name: a}}\n- {kind: \"\", metadata: {name: b}}\n"), Vec::<String>::new());
    assert_eq!(
        list("- {metadata: {name: a}}\n- {metadata: {name: lamp}}\n"),
        [
            "error: manifests/list.yaml:5: ServiceAccount lamp: metadata.name: a deployment of the ClusterServiceVersion uses service account \"lamp\", which is generated from its permissions: remove this manifest or rename one of the two [OBJ-2]",
        ]
    );
    assert_eq!(
        list("- {items: []}\n"),
        [
            "error: manifests/list.yaml: *unstructured.Unstructured is not a list: no Items field in this object [FILE-2]"
        ]
    );
}
