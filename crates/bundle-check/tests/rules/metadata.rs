//! Rules on `metadata/annotations.yaml` and properties.

use super::fixture::{ANNOTATIONS, Files, compare};

const FILE: &str = "metadata/annotations.yaml";
const PROPERTIES: &str = "metadata/properties.yaml";

// Case seeds-s0-6: the six documented annotations are accepted.
#[test]
fn valid_bundle_has_no_findings() {
    assert_eq!(Files::good().findings(), Vec::<String>::new());
    let quoted =
        ANNOTATIONS.replace(": registry+v1", ": \"registry+v1\"").replace(": stable", ": \"stable\"");
    assert_eq!(Files::good().with(FILE, &quoted).findings(), Vec::<String>::new());
}

#[test]
fn annotation_rules_report_missing_and_invalid_values() {
    let good = Files::good;
    compare(&[
        // Case seeds-s0-6: missing channels annotation.
        (
            good().annotations("  operators.operatorframework.io.bundle.channels.v1: beta,stable\n", ""),
            &["error: metadata/annotations.yaml:1: annotations: the annotation \
               operators.operatorframework.io.bundle.channels.v1 is missing [ANN-1]"],
        ),
        // Case bundles-9
        (
            good().with(FILE, "annotations: {}\n"),
            &[
                "error: metadata/annotations.yaml:1: annotations: the annotation \
                 operators.operatorframework.io.bundle.channels.v1 is missing [ANN-1]",
                "error: metadata/annotations.yaml:1: annotations: the annotation \
                 operators.operatorframework.io.bundle.manifests.v1 is missing [ANN-1]",
                "error: metadata/annotations.yaml:1: annotations: the annotation \
                 operators.operatorframework.io.bundle.mediatype.v1 is missing [ANN-1]",
                "error: metadata/annotations.yaml:1: annotations: the annotation \
                 operators.operatorframework.io.bundle.metadata.v1 is missing [ANN-1]",
                "error: metadata/annotations.yaml:1: annotations: the annotation \
                 operators.operatorframework.io.bundle.package.v1 is missing [ANN-1]",
            ],
        ),
        (
            good()
                .annotations("beta,stable", "1.10")
                .annotations("default.v1: stable", "default.v1: \"1.10\""),
            &[
                "error: metadata/annotations.yaml:6: annotations[\"operators.operatorframework.io.bundle.channels.v1\"]: must be a string: quote it (unquoted 1.10 is the number 1.1) [ANN-1]",
            ],
        ),
        (
            good().annotations("registry+v1", "helm+v1"),
            &[
                "error: metadata/annotations.yaml:2: annotations[\"operators.operatorframework.io.bundle.mediatype.v1\"]: \
               expected registry+v1, got \"helm+v1\" [ANN-2]",
            ],
        ),
        (
            good().annotations("default.v1: stable", "default.v1: ''"),
            &["error: metadata/annotations.yaml:7: \
               annotations[\"operators.operatorframework.io.bundle.channel.default.v1\"]: must not be empty; omit it instead [ANN-3]"],
        ),
    ]);
}

#[test]
fn annotation_rules_report_unknown_channels_paths_and_names() {
    let good = Files::good;
    compare(&[
        (good().annotations("  operators.operatorframework.io.bundle.channel.default.v1: stable\n", ""), &[]),
        (
            good().annotations("default.v1: stable", "default.v1: fast"),
            &["note: metadata/annotations.yaml:7: \
               annotations[\"operators.operatorframework.io.bundle.channel.default.v1\"]: \"fast\" is not one of the channels \
               beta, stable [ANN-4]"],
        ),
        (
            good().annotations(": manifests/", ": deploy/"),
            &["note: metadata/annotations.yaml:3: \
               annotations[\"operators.operatorframework.io.bundle.manifests.v1\"]: \"deploy/\" is ignored, manifests/ is \
               read: set manifests/ [ANN-5]"],
        ),
        (
            good().annotations(": lamp", ": Lamp_1"),
            &[
                "error: metadata/annotations.yaml:5: annotations[\"operators.operatorframework.io.bundle.package.v1\"]: \
               \"Lamp_1\" is not a DNS-1123 subdomain: lower case letters, digits, '-' and '.', at most 253, each part beginning \
               and ending with a letter or digit [ANN-6]",
            ],
        ),
    ]);
}

// docs/design/bundles.md#merged-properties; cases seeds-s1-1, seeds-s0-5
#[test]
fn property_rules_report_malformed_properties() {
    let with = |text: &str| Files::good().with(PROPERTIES, text);
    compare(&[
        (with("properties:\n- type: olm.kubeversion\n  value: {version: \"1.16.0\"}\n"), &[]),
        (with("properties: []\n"), &[]),
        (with("# nothing\n"), &[]),
        (
            with("properties:\n- property:\n    type: olm.kubeversion\n    value: {version: \"1.16.0\"}\n"),
            &[
                "error: metadata/properties.yaml:2: properties[0].property: unknown field \"property\": write its type and value \
               directly [PROP-1]",
            ],
        ),
        (
            with("- type: a\n"),
            &["error: metadata/properties.yaml:1: expected the field properties with a list [PROP-1]"],
        ),
        (
            with("properties:\n- type: a\n  value: null\n- value: 1\n- x\n"),
            &[
                "warning: metadata/properties.yaml:3: properties[0].value: the property of type \"a\" has no value [PROP-2]",
                "error: metadata/properties.yaml:4: properties[1]: type must be a non-empty string [PROP-1]",
                "error: metadata/properties.yaml:5: properties[2]: expected an object with type and value [PROP-1]",
            ],
        ),
        (
            with("properties:\n- type: olm.gvk\n  value: {group: g, kind: K}\n"),
            &[
                "error: metadata/properties.yaml:3: properties[0].value.version: olm.gvk needs the string field version [PROP-4]",
            ],
        ),
    ]);
}

#[test]
fn place_and_openshift_version_of_properties_are_checked() {
    let with = |text: &str| Files::good().with(PROPERTIES, text);
    compare(&[
        (with("properties:\n- type: olm.maxOpenShiftVersion\n  value: \"4.18\"\n"), &[]),
        (
            with(
                "properties:\n- type: olm.maxOpenShiftVersion\n  value: 4.20\n- type: olm.maxOpenShiftVersion\n  value: \"4\"\n",
            ),
            &[
                "warning: metadata/properties.yaml:3: properties[0].value: quote the version: unquoted 4.20 is the number 4.2 [PROP-5]",
                "warning: metadata/properties.yaml:5: properties[1].value: expected a minor version such as \"4.18\", got \"4\" \
                 [PROP-5]",
                "warning: metadata/properties.yaml:5: properties[1].value: olm.maxOpenShiftVersion is set twice, in this or the other list of properties: keep one [PROP-5]",
            ],
        ),
        (
            Files::good().csv(
                "  annotations:\n",
                "  annotations:\n    olm.properties: '[{\"type\": \"olm.maxOpenShiftVersion\", \"value\": \"4.18\"}]'\n",
            ),
            &[],
        ),
        (
            Files::good().csv(
                "  annotations:\n",
                "  annotations:\n    olm.properties: '[{\"type\": \"color\", \"value\": \"red\"}]'\n",
            ),
            &[
                "note: manifests/csv.yaml:6: ClusterServiceVersion lamp.v1.2.0: metadata.annotations[\"olm.properties\"]: put \
                 the properties into metadata/properties.yaml [PROP-6]",
            ],
        ),
        (
            Files::good().csv("  annotations:\n", "  annotations:\n    olm.properties: '[{]'\n"),
            &[
                "error: manifests/csv.yaml:6: ClusterServiceVersion lamp.v1.2.0: metadata.annotations[\"olm.properties\"]: \
                 expected a JSON list: invalid character ']' looking for beginning of object key string [PROP-3]",
                "note: manifests/csv.yaml:6: ClusterServiceVersion lamp.v1.2.0: metadata.annotations[\"olm.properties\"]: put \
                 the properties into metadata/properties.yaml [PROP-6]",
            ],
        ),
    ]);
}
