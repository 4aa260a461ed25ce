//! Rules on `metadata/dependencies.yaml` and constraints.

use super::fixture::Files;

const FILE: &str = "metadata/dependencies.yaml";

fn with(text: &str) -> Files {
    Files::good().with(FILE, text)
}

/// Findings without V1-1, which every dependency causes.
fn findings(files: &Files) -> Vec<String> {
    files.findings().into_iter().filter(|finding| !finding.ends_with("[V1-1]")).collect()
}

// Case seeds-s0-6: the sample of the documentation, with the exact text of mode Reject.
#[test]
fn documented_dependencies_yield_warnings_only() {
    let sample = "\
dependencies:
  - type: olm.package
    value:
      packageName: prometheus
      version: \">0.27.0\"
  - type: olm.gvk
    value:
      group: etcd.database.coreos.com
      kind: EtcdCluster
      version: v1beta2
";
    let refused = "with --dependency-mode=Reject, the default, the bundle cannot be installed: bundle \"lamp.v1.2.0\" has a \
                   dependency declared via property";
    assert_eq!(
        with(sample).findings(),
        [
            "warning: metadata/dependencies.yaml:1: dependencies: a package and an API are two dependencies, which two bundles may satisfy: if one bundle must satisfy both, write one olm.constraint with all [DEP-3]"
                .to_string(),
            format!(
                "warning: metadata/dependencies.yaml:2: dependencies[0]: {refused} \"olm.package.required\" which is currently \
                 not supported [V1-1]"
            ),
            format!(
                "warning: metadata/dependencies.yaml:6: dependencies[1]: {refused} \"olm.gvk.required\" which is currently not \
                 supported [V1-1]"
            ),
        ]
    );
}

#[test]
fn incomplete_dependencies_are_errors() {
    let rows: [(&str, &[&str]); 8] = [
        ("dependencies: []\n", &[]),
        ("dependencies:\n- type: olm.label\n  value: {label: x}\n", &[]),
        (
            "dependencies:\n- type: olm.label\n  value: {}\n",
            &[
                "error: metadata/dependencies.yaml:3: dependencies[0].value.label: olm.label needs the string field label [DEP-6]",
            ],
        ),
        (
            "dependencies:\n- type: olm.gvk\n  value:\n    kind: K\n    version: ''\n",
            &[
                "error: metadata/dependencies.yaml:3: dependencies[0].value.group: olm.gvk needs the string field group [DEP-6]",
                "error: metadata/dependencies.yaml:5: dependencies[0].value.version: olm.gvk needs the string field version [DEP-6]",
            ],
        ),
        (
            "dependencies:\n- type: olm.package\n  value: {packageName: a, version: '~1.2'}\n",
            &["error: metadata/dependencies.yaml:3: dependencies[0].value: RANGE [DEP-6]"],
        ),
        (
            "dependencies:\n- type: olm.crd\n  value: {}\n",
            &[
                "error: metadata/dependencies.yaml:2: dependencies[0].type: unknown type \"olm.crd\"; allowed: olm.package, \
               olm.gvk, olm.label and olm.constraint [DEP-5]",
            ],
        ),
        (
            "deps: []\n",
            &[
                "warning: metadata/dependencies.yaml:1: the file is ignored, because the field dependencies is missing \
               [FILE-5]",
            ],
        ),
        ("dependencies: [\n", &["error: metadata/dependencies.yaml:1: SYNTAX [DEP-5]"]),
    ];
    for (text, expected) in rows {
        let found = findings(&with(text));
        // The version and YAML parsers have tests for their error texts.
        let short = found.iter().map(|line| {
            match (line.find("olm.package.required"), line.find("error converting")) {
                (Some(at), _) => format!("{}RANGE [DEP-6]", &line[..at].replace("parse ", "")),
                (_, Some(at)) => format!("{}SYNTAX [DEP-5]", &line[..at]),
                _ => line.clone(),
            }
        });
        assert_eq!(short.collect::<Vec<_>>(), expected, "{text}");
    }
}

fn constraint(value: &str) -> String {
    format!("dependencies:\n- type: olm.constraint\n  value: {value}\n")
}

// Case seeds-s1-2
#[test]
fn documented_constraints_have_no_findings() {
    for value in [
        "{failureMessage: m, cel: {rule: 'properties.exists(p, p.type == \"certified\")'}}",
        "{failureMessage: m, cel: {rule: 'properties.exists(p, p.type == \"certified\") && properties.exists(p, p.type == \
         \"stable\")'}}",
        "{failureMessage: m, any: {constraints: [{gvk: {group: g, version: v1, kind: A}}, {gvk: {group: g, version: v1beta1, \
         kind: A}}, {gvk: {group: g, version: v1alpha1, kind: A}}]}}",
        "{package: {packageName: blue, versionRange: '> 1.0.0 !1.2.1'}}",
        "{all: {constraints: [{package: {packageName: blue, versionRange: '>=1.0.0'}}, {not: {constraints: [{gvk: {group: g, \
         version: v1, kind: A}}]}}]}}",
    ] {
        assert_eq!(findings(&with(&constraint(value))), Vec::<String>::new(), "{value}");
    }
}

// Case seeds-s1-3
#[test]
fn invalid_constraints_are_reported_with_the_fix() {
    // Unknown field beside the value.
    let text = "dependencies:\n- type: olm.constraint\n  value: {package: {packageName: a, versionRange: '>1.0.0'}}\n  not: {}\n";
    assert_eq!(
        findings(&with(text)),
        [
            "error: metadata/dependencies.yaml:4: dependencies[0].not: unknown field \"not\": write it below value [DEP-5]"
        ]
    );
    let rows: [(&str, &[&str]); 6] = [
        (
            "{package: {name: blue, versionRange: '>=1.0.0'}}",
            &[
                "error: metadata/dependencies.yaml:3: dependencies[0].value: parse olm.constraint: json: unknown field \"name\": \
               use packageName in place of name [DEP-6]",
            ],
        ),
        (
            "{}",
            &[
                "error: metadata/dependencies.yaml:3: dependencies[0].value: convert olm.constraint to resolver predicate: \
                  constraint is empty: one of gvk, package, all, any, not, cel is needed [DEP-6]",
            ],
        ),
        (
            "{gvk: {group: g, version: v, kind: K}, package: {packageName: a, versionRange: '>1.0.0'}}",
            &[
                "error: metadata/dependencies.yaml:3: dependencies[0].value: only gvk is evaluated, package is ignored: combine \
               conditions with all [DEP-8]",
            ],
        ),
        (
            "{not: {constraints: [{gvk: {group: g, version: v, kind: K}}]}}",
            &[
                "warning: metadata/dependencies.yaml:3: dependencies[0].value.not: `not` without `all` requires any other bundle: \
               put it into an all, together with the required condition [DEP-4]",
            ],
        ),
        (
            "{any: {constraints: [{not: {constraints: [{gvk: {group: g, version: v, kind: K}}]}}]}}",
            &[
                "warning: metadata/dependencies.yaml:3: dependencies[0].value.any.constraints[0].not: `not` without `all` requires any other bundle: put it into an all, together with the required condition [DEP-4]",
            ],
        ),
        (
            "{cel: {rule: '1 + 1'}}",
            &["error: metadata/dependencies.yaml:3: dependencies[0].value: convert olm.constraint to \
                                      resolver predicate: cel expressions must have type Bool [DEP-6]"],
        ),
    ];
    for (value, expected) in rows {
        assert_eq!(findings(&with(&constraint(value))), expected, "{value}");
    }
}

// Case seeds-s1-3: 131072 and 131073 bytes.
#[test]
fn constraints_above_size_limits_warn_and_fail() {
    // Only the message varies in size.
    let sized = |bytes: usize| {
        let value = serde_json::json!({
            "failureMessage": "", "gvk": {"group": "g", "version": "v", "kind": "K"}
        });
        let message = "m".repeat(bytes - value.to_string().len());
        constraint(&format!("{{failureMessage: {message}, gvk: {{group: g, version: v, kind: K}}}}"))
    };
    let large = "note: metadata/dependencies.yaml:3: dependencies[0].value: the olm.constraint has more than 65536 bytes, the \
                 limit that the product documents [DEP-7]";
    let refused = "error: metadata/dependencies.yaml:3: dependencies[0].value: olm.constraint value is greater than max \
                   constraint size 131072 bytes [DEP-6]";
    for (bytes, expected) in
        [(65_536, &[][..]), (65_537, &[large]), (131_072, &[large]), (131_073, &[refused])]
    {
        assert_eq!(findings(&with(&sized(bytes))), expected, "{bytes}");
    }
}

#[test]
fn range_that_ends_before_next_major_warns() {
    for (range, is_tight) in [
        (">0.27.0", false),
        (">=1.0.0 <2.0.0", false),
        (">=1.0.0 <2.0.0-0", false),
        (">=1.2.0 <=2.0.0", false),
        ("1.x", false),
        (">=1.2.0", false),
        ("!1.2.0", false),
        (">=1.2.0 <1.3.0", true),
        (">=1.2.0 <=1.9.5", true),
        ("1.2.3", true),
        ("1.2.x", true),
        (">=1.2.0 <2.1.0", false),
        (">=2.0.0 <2.1.0 || >=1.0.0 <1.4.0", true),
        ("<0.5.0", true),
        ("<1.0.0", false),
    ] {
        let text =
            format!("dependencies:\n- type: olm.package\n  value: {{packageName: a, version: '{range}'}}\n");
        let found = findings(&with(&text));
        assert_eq!(found.iter().any(|line| line.ends_with("[DEP-2]")), is_tight, "{range}: {found:?}");
        assert_eq!(found.len(), usize::from(is_tight), "{range}: {found:?}");
    }
}

#[test]
fn required_apis_of_csv_are_reported_as_dependencies() {
    let required = "customresourcedefinitions:\n    required:\n    - {name: wires.light.example.com, version: v1, kind: Wire}\n";
    let files = Files::good().csv("customresourcedefinitions:\n", required);
    let refused = "warning: manifests/csv.yaml:21: ClusterServiceVersion lamp.v1.2.0: \
                   spec.customresourcedefinitions.required[0]: with --dependency-mode=Reject, the default, the bundle cannot \
                   be installed: bundle \"lamp.v1.2.0\" has a dependency declared via property \"olm.gvk.required\" which is currently \
                   not supported [V1-1]";
    assert_eq!(files.findings(), [refused]);
    let gvk = |kind: &str| {
        format!(
            "dependencies:\n- type: olm.gvk\n  value: {{group: light.example.com, version: v1, kind: {kind}}}\n"
        )
    };
    assert_eq!(findings(&files.clone().with(FILE, &gvk("Wire"))), Vec::<String>::new());
    assert_eq!(
        findings(&files.with(FILE, &gvk("Other"))),
        [
            "note: manifests/csv.yaml:21: ClusterServiceVersion lamp.v1.2.0: spec.customresourcedefinitions.required[0]: \
          metadata/dependencies.yaml has no olm.gvk dependency on group: light.example.com, version: v1, kind: Wire [DEP-1]"
        ]
    );
}
