//! Rules on the ClusterServiceVersion.

use super::fixture::{CSV, Files, compare};

const CSV_PLACE: &str = "ClusterServiceVersion lamp.v1.2.0: ";

/// Findings without their common prefix.
fn findings(files: &Files) -> Vec<String> {
    files
        .findings()
        .iter()
        .map(|line| line.replace("manifests/csv.yaml:", "").replace(CSV_PLACE, ""))
        .collect()
}

fn rows(rows: &[(Files, &[&str])]) {
    for (number, (files, expected)) in rows.iter().enumerate() {
        assert_eq!(findings(files), *expected, "row {number}");
    }
}

#[test]
fn csv_name_and_replaces_must_be_short_subdomains() {
    let good = Files::good;
    let long = format!("lamp.v1.2.0-{}", "x".repeat(60));
    compare(&[
        (
            good().csv("name: lamp.v1.2.0", "name: Lamp.v1.2.0"),
            &[
                "error: manifests/csv.yaml:4: ClusterServiceVersion Lamp.v1.2.0: metadata.name: \"Lamp.v1.2.0\" is not a name: \
               lower case letters, digits, '-' and '.', at most 63 characters, beginning and ending with a letter or digit \
               [CSV-2]",
            ],
        ),
        (
            good().csv("  version: 1.2.0\n", &format!("  version: 1.2.0\n  replaces: {long}\n")),
            &[&format!(
                "error: manifests/csv.yaml:10: ClusterServiceVersion lamp.v1.2.0: spec.replaces: \"{long}\" has 72 characters, \
                 at most 63 are allowed [CSV-2]"
            )],
        ),
    ]);
}

// Case bundles-2
#[test]
fn csv_must_be_unique_and_of_known_api_version() {
    let files = Files::good().with("manifests/a.yaml", &CSV.replace("lamp.v1.2.0", "lamp.v1.1.0"));
    let what = "one of 2 ClusterServiceVersions, in manifests/a.yaml, manifests/csv.yaml: keep one [CSV-1]";
    assert_eq!(
        files.findings(),
        [
            format!("error: manifests/a.yaml:1: ClusterServiceVersion lamp.v1.1.0: {what}"),
            format!("error: manifests/csv.yaml:1: ClusterServiceVersion lamp.v1.2.0: {what}"),
        ]
    );
    assert_eq!(
        Files::good().without("manifests/csv.yaml").findings(),
        ["error: manifests/: no manifest is a ClusterServiceVersion [CSV-1]"]
    );
    assert_eq!(
        findings(&Files::good().csv("operators.coreos.com/v1alpha1", "operators.coreos.com/v1")),
        [
            "warning: 1: apiVersion: expected operators.coreos.com/v1alpha1, got \"operators.coreos.com/v1\" [CSV-15]"
        ]
    );
    assert_eq!(
        findings(&Files::good().csv("apiVersion: operators.coreos.com/v1alpha1\n", "")),
        ["error: 1: apiVersion: the field must be set and not empty [CSV-11]"]
    );
}

#[test]
fn csv_version_rules_report_invalid_versions() {
    let good = Files::good;
    rows(&[
        (
            good().csv("version: 1.2.0\n", "version: 1.2\n"),
            &[
                "error: 9: spec.version: json: cannot unmarshal number into Go value of type string: the value is 1.2; quote a string [FILE-2]",
            ],
        ),
        (
            good().csv("version: 1.2.0\n", "version: v1.2.0\n"),
            &[
                "error: 9: spec.version: \"v1.2.0\": expected a version such as 1.2.3: Invalid character(s) found in major number \
               \"v1\" [CSV-3]",
            ],
        ),
        (
            good().csv("  version: 1.2.0\n", ""),
            &["error: 7: spec.version: the version is missing; expected one such as 1.2.3 [CSV-3]"],
        ),
        (
            good().csv("  minKubeVersion: 1.30.0\n", ""),
            &["note: 7: spec.minKubeVersion: the minimum Kubernetes version is missing; expected a version \
               such as 1.26.0 [CSV-6]"],
        ),
        (
            good().csv("minKubeVersion: 1.30.0", "minKubeVersion: '1.30'"),
            &[
                "error: 10: spec.minKubeVersion: \"1.30\": expected a version such as 1.26.0: No Major.Minor.Patch elements found \
               [CSV-7]",
            ],
        ),
        (
            good().csv("  version: 1.2.0\n", "  version: 1.2.0\n  release: 3\n"),
            &[
                "error: 4: metadata.name: with a release, metadata.name must be \"lamp-v1.2.0-3\", not \"lamp.v1.2.0\" [CSV-10]",
            ],
        ),
        (
            good()
                .csv("  version: 1.2.0\n", "  version: 1.2.0\n  release: '3'\n")
                .csv("name: lamp.v1.2.0", "name: lamp-v1.2.0-3")
                .csv("annotations:\n", "annotations:\n    olm.substitutesFor: lamp.v1.1.0\n"),
            &[
                "error: 6: ClusterServiceVersion lamp-v1.2.0-3: metadata.annotations[\"olm.substitutesFor\"]: not allowed together with spec.release: remove one of the two [CSV-10]",
            ],
        ),
    ]);
}

#[test]
fn install_mode_rules_report_duplicates_and_unsupported() {
    let good = Files::good;
    rows(&[
        (
            good().csv("MultiNamespace", "OwnNamespace"),
            &["error: 14: spec.installModes[2]: \"OwnNamespace\" is listed twice [CSV-4]"],
        ),
        (
            good().csv("MultiNamespace", "SomeNamespaces"),
            &[
                "warning: 14: spec.installModes[2]: unknown install mode \"SomeNamespaces\"; allowed: OwnNamespace, \
               SingleNamespace, MultiNamespace, AllNamespaces [CSV-5]",
            ],
        ),
        (
            good()
                .csv("OwnNamespace, supported: true", "OwnNamespace, supported: false")
                .csv("SingleNamespace, supported: true", "SingleNamespace, supported: false")
                .csv("AllNamespaces, supported: true", "AllNamespaces, supported: false"),
            &[
                "error: 11: spec.installModes: no install mode is supported: set supported: true for at least one [CSV-4]",
            ],
        ),
        // docs/design/cli.md#lint-rules V1-2, case bundles-17
        (
            good()
                .csv("OwnNamespace, supported: true", "OwnNamespace, supported: false")
                .csv("SingleNamespace, supported: true", "SingleNamespace, supported: false")
                .csv("AllNamespaces, supported: true", "AllNamespaces, supported: false")
                .csv("MultiNamespace, supported: false", "MultiNamespace, supported: true"),
            &[
                "warning: 11: spec.installModes: only MultiNamespace is supported: an installation needs feature gate \
                 MultiWatchNamespaces of operator-controller, and spec.config.inline.watchNamespaces [V1-2]",
            ],
        ),
    ]);
    let start = CSV.find("  installModes").unwrap();
    let end = CSV.find("  relatedImages").unwrap();
    let none = Files::good().csv(&CSV[start..end], "");
    assert_eq!(
        findings(&none),
        [
            "error: 7: spec.installModes: no install modes: list OwnNamespace, SingleNamespace, MultiNamespace, AllNamespaces with \
          supported: true or false [CSV-4]"
        ]
    );
}

#[test]
fn missing_fields_and_invalid_annotations_are_reported() {
    let good = Files::good;
    rows(&[
        (
            good().csv("  displayName: Lamp\n", ""),
            &["error: 7: spec.displayName: the field must be set and not empty [CSV-11]"],
        ),
        (
            good().csv("strategy: deployment", "strategy: Deployment"),
            &[
                "note: 25: spec.install.strategy: \"Deployment\" is ignored: deployments are installed with any strategy \
               [CSV-12]",
            ],
        ),
        (
            good().csv("annotations:\n", "annotations:\n    a/b/c: x\n    Some.Example/Key_1: z\n"),
            &[
                "error: 6: metadata.annotations[\"a/b/c\"]: the key is not allowed in a pod: it has letters, digits, '-', '_' and \
               '.', at most 63, optionally after a DNS-1123 subdomain and '/' [CSV-16]",
            ],
        ),
        (
            good().csv("annotations:\n", &format!("annotations:\n    a: {}\n", "x".repeat(262_144))),
            &[
                "error: 5: metadata.annotations: the annotations have 262240 bytes, the limit of a pod is 262144: shorten the largest \
               [CSV-16]",
            ],
        ),
        (
            good().csv("annotations:\n", "annotations:\n    olm.skiprange: '<1.2.0'\n"),
            &["error: 6: metadata.annotations[\"olm.skiprange\"]: must be spelled olm.skipRange [CSV-13]"],
        ),
        (
            good().csv("annotations:\n", "annotations:\n    olm.skipRange: '>=1.0.0, <1.2.0'\n"),
            &[
                "error: 6: metadata.annotations[\"olm.skipRange\"]: \">=1.0.0, <1.2.0\": expected a range such as \">=1.0.0 \
               <1.2.0\": Could not parse Range \">=1.0.0,\": Could not parse version \"1.0.0,\" in \">=1.0.0,\": Invalid \
               character(s) found in patch number \"0,\" [CSV-14]",
            ],
        ),
    ]);
}

#[test]
fn alm_examples_must_show_each_provided_api() {
    let good = Files::good;
    let start = CSV.find("    alm-examples").unwrap();
    let end = CSV.find("spec:").unwrap();
    let example = &CSV[start..end];
    let place = "metadata.annotations.alm-examples";
    let rows: [(&str, &[&str]); 6] = [
        (
            "",
            &[
                "note: 5: metadata.annotations: the annotation alm-examples is missing: add one object of each provided API \
               [CSV-8]",
            ],
        ),
        ("    olm.examples: '[{\"apiVersion\": \"light.example.com/v1\", \"kind\": \"Lamp\"}]'\n", &[]),
        ("    alm-examples: '{}'\n", &["error: 6: PLACE: expected a JSON list of objects [CSV-9]"]),
        (
            "    alm-examples: '[{]'\n",
            &[
                "error: 6: PLACE: expected a JSON list of objects: invalid character ']' looking for beginning of object key \
               string [CSV-9]",
            ],
        ),
        (
            "    alm-examples: '[]'\n",
            &["note: 6: PLACE: no example of the provided Lamp of light.example.com/v1 [CSV-8]"],
        ),
        (
            "    alm-examples: '[{\"apiVersion\": \"light.example.com/v2\", \"kind\": \"Lamp\"}]'\n",
            &[
                "note: 6: PLACE: no example of the provided Lamp of light.example.com/v1 [CSV-8]",
                "error: 6: PLACE: an example is a Lamp of light.example.com/v2, which the bundle does not provide [CSV-9]",
            ],
        ),
    ];
    for (text, expected) in rows {
        let expected: Vec<String> = expected.iter().map(|line| line.replace("PLACE", place)).collect();
        assert_eq!(findings(&good().csv(example, text)), expected, "{text}");
    }
}

// docs/design/cli.md#lint-rules: V1-3, V1-4; cases bundles-14, bundles-44
#[test]
fn unsupported_olm_v0_features_are_reported() {
    let good = Files::good;
    rows(&[
        (
            good().csv(
                "- {apiGroups: [light.example.com]",
                "- {apiGroups: [operators.coreos.com], resources: [operatorconditions/status], verbs: [get]}\n        - \
                 {apiGroups: [light.example.com]",
            ),
            &["warning: 30: spec.install.spec.clusterPermissions[0].rules[0]: the operator requests permissions on operatorconditions, but OLM v1 creates an OperatorCondition only with gate OperatorConditionCompat: let the operator run without one [V1-3]"],
        ),
        (
            good().csv("- name: manager\n", "- name: manager\n                env: [{name: OPERATOR_CONDITION_NAME}]\n"),
            &["warning: 41: spec.install.spec.deployments[0].spec.template.spec.containers[0].env: the operator reads \
               OPERATOR_CONDITION_NAME, but OLM v1 creates an OperatorCondition only with gate OperatorConditionCompat: let the operator run without one [V1-3]"],
        ),
        (
            good().csv(
                "  customresourcedefinitions:\n",
                "  apiservicedefinitions:\n    owned: [{name: a, group: g.example.com, version: v1, kind: A, deploymentName: gone}]\n  nativeAPIs: \
                 [{group: g, version: v, kind: K}]\n  customresourcedefinitions:\n",
            ),
            &[
                "note: 6: metadata.annotations.alm-examples: no example of the provided A of g.example.com/v1 [CSV-8]",
                "error: 20: spec.apiservicedefinitions.owned[0]: APIService 'v1.g.example.com' references non-existent \
                 deployment 'gone' [API-1]",
                "warning: 20: spec.apiservicedefinitions.owned[0]: the APIService of \"A\" (g.example.com) is installed only \
                 with the feature gate OwnedAPIServices: without it, operator-controller refuses the bundle [V1-4]",
                "warning: 21: spec.nativeAPIs: without the feature gate ClusterConstraints, the operator is installed even if \
                 the cluster does not serve these APIs [V1-6]",
            ],
        ),
    ]);
}

// docs/design/apply.md#owners-of-fields: an apply rejects what a POST accepts.
#[test]
fn repeated_keys_of_pod_templates_are_reported() {
    let container = |fields: &str| {
        let image = "image: quay.io/light/lamp@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n";
        let last = format!("- name: manager\n                {image}");
        Files::good().csv(&last, &format!("{last}                {fields}\n"))
    };
    let at = "spec.install.spec.deployments[0].spec.template.spec.containers[0]";
    for (files, expected) in [
        (
            container(
                "ports: [{containerPort: 1}, {containerPort: 1, protocol: UDP}, {containerPort: 1, protocol: TCP}]",
            ),
            format!(
                "error: 42: {at}.ports[2]: containerPort 1, protocol TCP occurs twice: remove one of the two [DEPLOY-2]"
            ),
        ),
        (
            container("env: [{name: A, value: x}, {name: B, value: $$(A)}, {name: A, value: z}]"),
            format!("warning: 42: {at}.env[2]: variable \"A\" is set twice: remove the first one [DEPLOY-3]"),
        ),
        (
            container("env: [{name: A, value: x}, {name: B, value: $(A)}, {name: A, value: z}]"),
            format!(
                "error: 42: {at}.env[2]: variable \"A\" is set twice, and \"B\" uses the first value [DEPLOY-2]"
            ),
        ),
    ] {
        assert_eq!(findings(&files), [expected]);
    }
    let accounts = "serviceAccountName: lamp\n              containers:";
    let twice = Files::good()
        .csv(accounts, &format!("imagePullSecrets: [{{name: a}}, {{name: a}}]\n              {accounts}"));
    let at = "spec.install.spec.deployments[0].spec.template.spec.imagePullSecrets[1]";
    assert_eq!(
        findings(&twice),
        [format!("error: 38: {at}: name a occurs twice: remove one of the two [DEPLOY-2]")]
    );
}
