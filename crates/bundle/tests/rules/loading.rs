//! Loading of files and documents (docs/design/bundles.md#image-layout, docs/design/bundles.md#loading).

use serde_json::json;

use crate::fixture::Fixture;

#[test]
fn missing_files_are_named_in_the_error() {
    let bundle = Fixture::new("");
    assert_eq!(
        bundle.clone().without("metadata/annotations.yaml").load_error(),
        "open metadata/annotations.yaml: no such file or directory"
    );
    let no_csv = bundle.without("manifests/csv.yaml");
    assert_eq!(no_csv.load_error(), "stat manifests: no such file or directory");
    assert_eq!(
        no_csv.file("manifests/empty.yaml", "# nothing\n").load_error(),
        "no ClusterServiceVersion found in \"manifests\""
    );
}

#[test]
fn annotations_of_wrong_type_are_errors() {
    let error = |text: &str| Fixture::new("").file("metadata/annotations.yaml", text).load_error();
    assert_eq!(
        error("- a"),
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type \
         registry.AnnotationsFile"
    );
    assert_eq!(
        error("annotations: {operators.operatorframework.io.bundle.channels.v1: [a]}"),
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go struct field \
         Annotations.annotations.operators.operatorframework.io.bundle.channels.v1 of type string"
    );
    assert!(error("a: [").starts_with("error converting YAML to JSON: yaml: line 1: "));
}

#[test]
fn package_name_accepts_any_scalar() {
    let rows = [
        ("1", "1"),
        ("1.50", "1.5"),
        ("1000000.5", "1.0000005e+06"),
        ("yes", "true"),
        ("null", ""),
        ("op", "op"),
    ];
    for (written, name) in rows {
        let file = format!("Annotations: {{operators.operatorframework.io.bundle.package.v1: {written}}}");
        let bundle = Fixture::new("").file("metadata/annotations.yaml", &file).load().unwrap();
        assert_eq!(bundle.package_name(), name, "{written}");
    }
}

#[test]
fn subdirectories_of_manifests_are_refused() {
    // Case bundles-1
    assert_eq!(
        Fixture::new("").file("manifests/sub/deep/a.yaml", "").load_error(),
        "subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: found \
         \"manifests/sub\""
    );
    Fixture::new("").file("tests/scorecard/config.yaml", "::").load().unwrap();
}

#[test]
fn last_cluster_service_version_is_used() {
    // Case bundles-2, docs/design/architecture.md#rendering-is-never-stricter-than-the-reference. Both files are
    // recorded.
    let second = "{kind: ClusterServiceVersion, metadata: {name: op.v2}}";
    let bundle = Fixture::new("").file("manifests/d.yaml", second).load().unwrap();
    assert_eq!(bundle.name(), "op.v2");
    assert_eq!(bundle.csv_files(), ["manifests/csv.yaml", "manifests/d.yaml"]);
}

#[test]
fn lists_are_expanded_to_their_items() {
    // Case bundles-3
    let list = "
kind: List
apiVersion: v1
items:
- {kind: ConfigMap, apiVersion: v1, metadata: {name: c}}
- {kind: Service, apiVersion: v1, metadata: {name: s}}
---
# nothing
---
kind: SecretList
apiVersion: v1
items: [{metadata: {name: x}}]
";
    let objects = Fixture::new("").file("manifests/a.yaml", list).render().unwrap();
    let kinds: Vec<_> = objects.iter().map(|object| (&object["kind"], &object["apiVersion"])).collect();
    let (version, kind) = (json!("v1"), |kind: &str| json!(kind));
    assert_eq!(
        kinds,
        [(&kind("ConfigMap"), &version), (&kind("Service"), &version), (&kind("Secret"), &version)]
    );
}

#[test]
fn list_items_without_kind_or_version_are_errors() {
    let error = |list: &str| {
        let text = format!("{{kind: FooList, apiVersion: v1, items: {list}}}");
        let error = Fixture::new("").file("manifests/a.yaml", &text).load_error();
        error.strip_prefix("error parsing objects in \"manifests/a.yaml\": ").unwrap().to_string()
    };
    let untyped = "unable to get type info from the object \"*unstructured.Unstructured\": Object";
    let no_kind = format!("{untyped} 'Kind' is missing in 'object has no kind field '");
    let no_version = format!("{untyped} 'apiVersion' is missing in 'object has no apiVersion field'");
    assert_eq!(error("[{apiVersion: v1}]"), no_kind);
    assert_eq!(error("[{apiVersion: v1}, {apiVersion: v1}]"), no_kind);
    assert_eq!(error("[{apiVersion: v1}, {kind: Secret}]"), format!("[{no_kind}, {no_version}]"));
    let decode = "unable to decode \"manifests/a.yaml\": json: cannot unmarshal";
    assert_eq!(error("[5]"), format!("{decode} number into Go value of type map[string]interface {{}}"));
    assert_eq!(
        error("x"),
        format!("{decode} string into Go struct field decodeList.items of type []json.RawMessage")
    );
    assert_eq!(
        error("[{kind: List, apiVersion: v1, items: []}]"),
        "*unstructured.Unstructured is not a list: no Items field in this object"
    );
    let list = |items: &str| {
        let text = format!("{{kind: FooList, apiVersion: v1, items: {items}}}");
        Fixture::new("").file("manifests/a.yaml", &text).render()
    };
    assert_eq!(list("null").unwrap(), Vec::<serde_json::Value>::new());
    assert_eq!(list("[null]").unwrap_err().to_string(), "unsupported resource \"\" with kind \"Foo\"");
}

#[test]
fn invalid_metadata_fails_with_go_messages() {
    let error = |object: &str| {
        let text = format!("{{kind: Secret, {object}}}");
        let error = Fixture::new("").file("manifests/a.yaml", &text).load_error();
        let prefix = "error parsing objects in \"manifests/a.yaml\": unable to decode \"manifests/a.yaml\": ";
        error.strip_prefix(prefix).unwrap().to_string()
    };
    let field = "json: cannot unmarshal";
    let rows = [
        (
            "apiVersion: 5",
            format!(
                "{field} number into Go struct field metadataOnlyObject.TypeMeta.apiVersion of type string"
            ),
        ),
        (
            "apiVersion: a/b/c",
            "Object 'Kind' is missing in '{\"apiVersion\":\"a/b/c\",\"kind\":\"Secret\"}'".into(),
        ),
        (
            "metadata: []",
            format!("{field} array into Go struct field metadataOnlyObject.metadata of type v1.ObjectMeta"),
        ),
        (
            "metadata: {uid: 1}",
            format!("{field} number into Go struct field ObjectMeta.metadata.uid of type types.UID"),
        ),
        (
            "metadata: {ownerReferences: x}",
            format!(
                "{field} string into Go struct field ObjectMeta.metadata.ownerReferences of type []v1.OwnerReference"
            ),
        ),
        (
            "metadata: {generation: [a]}",
            format!("{field} array into Go struct field ObjectMeta.metadata.generation of type int64"),
        ),
        (
            "metadata: {labels: {a: 1}}",
            format!("{field} number into Go struct field ObjectMeta.metadata.labels of type string"),
        ),
        (
            "metadata: {creationTimestamp: now}",
            "parsing time \"now\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"now\" as \"2006\"".into(),
        ),
    ];
    for (object, expected) in rows {
        assert_eq!(error(object), expected, "{object}");
    }
}

#[test]
fn invalid_json_error_has_the_offset() {
    let text = "{\"kind\":\"Secret\",\"apiVersion\":\"v1\"}\nkind: Secret\na: [\n";
    assert_eq!(
        Fixture::new("").file("manifests/a.yaml", text).load_error(),
        "error parsing objects in \"manifests/a.yaml\": error parsing manifests/a.yaml: json: offset 37: invalid \
         character 'k' looking for beginning of value"
    );
}

#[test]
fn scalars_follow_yaml_1_1() {
    // Cases bundles-4, bundles-5
    let csv = |mode: &str| {
        Fixture::new("").file(
            "manifests/csv.yaml",
            &format!(
                "
kind: ClusterServiceVersion
spec:
  installModes: [{{type: AllNamespaces, supported: yes}}]
  install: {{spec: {{deployments: [{{name: d, spec: {{template: {{spec: {{
    volumes: [{{name: v, secret: {{defaultMode: {mode}}}}}]}}}}}}}}]}}}}
"
            ),
        )
    };
    let volume = csv("0644").rendered("Deployment")[0]["spec"]["template"]["spec"]["volumes"][0].clone();
    assert_eq!(volume, json!({"name": "v", "secret": {"defaultMode": 420}}));
    assert_eq!(
        csv("\"0644\"").load_error(),
        "error parsing objects in \"manifests/csv.yaml\": unrecognized type: int32"
    );
    let crd = "
kind: CustomResourceDefinition
metadata: {name: d}
spec: {versions: [{name: v1, schema: {openAPIV3Schema: {properties: {n: {type: string}, 'on': {type: string}}}}}]}
";
    let crds = Fixture::new("").file("manifests/crd.yaml", crd).rendered("CustomResourceDefinition");
    let properties = &crds[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    assert_eq!(properties, &json!({"false": {"type": "string"}, "on": {"type": "string"}}));
}

#[test]
fn type_error_names_the_file_and_holds_the_field() {
    // Case bundles-8
    let bundle = Fixture::new(
        "install: {spec: {deployments: [{name: d, spec: {template: {spec: {containers: [{name: c, env: [{name: A, value: 1}]}]}}}}]}}",
    );
    let error = bundle.load().unwrap_err();
    assert_eq!(
        error.to_string(),
        "error parsing objects in \"manifests/csv.yaml\": cannot convert int64 to string"
    );
    let olm_bundle::BundleLoadError::Manifest { field, .. } = error else { panic!("{error:?}") };
    assert_eq!(field, "spec.install.spec.deployments.0.spec.template.spec.containers.0.env.0.value");
}

#[test]
fn csv_version_is_parsed_tolerantly() {
    for version in ["1.2.3", "v1.2", "1"] {
        let bundle = Fixture::new(&format!("version: \"{version}\"")).load().unwrap();
        assert_eq!(bundle.version(), Some(version));
    }
    assert_eq!(
        Fixture::new("version: 1.2-rc1").load_error(),
        "error parsing objects in \"manifests/csv.yaml\": Short version cannot contain PreRelease/Build meta data"
    );
    assert_eq!(Fixture::new("").load().unwrap().version(), None);
}

#[test]
fn documents_that_are_not_objects_are_errors() {
    let error = |text: &str| Fixture::new("").file("manifests/x.yaml", text).load_error();
    let prefix = "error parsing objects in \"manifests/x.yaml\": unable to decode \"manifests/x.yaml\": ";
    assert_eq!(error("a: b"), format!("{prefix}Object 'Kind' is missing in '{{\"a\":\"b\"}}'"));
    assert_eq!(
        error("Just some prose"),
        format!("{prefix}json: cannot unmarshal string into Go value of type unstructured.detector")
    );
    assert_eq!(
        error("{kind: Secret, metadata: {name: y}}"),
        format!(
            "{prefix}json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.name of type string"
        )
    );
    assert!(
        error("kind: Secret\na: [").starts_with(
            "error parsing objects in \"manifests/x.yaml\": error parsing manifests/x.yaml: error converting YAML to \
             JSON: yaml: line "
        )
    );
}

#[test]
fn bundle_accessors_return_metadata() {
    // Case bundles-10
    let properties = r#"[ {"type": "a",  "value": "<"} ]"#;
    let bundle = Fixture::new("version: 1.0.0")
        .csv(|csv| csv["metadata"]["annotations"] = json!({"olm.properties": properties, "other": "x"}))
        .load()
        .unwrap();
    assert_eq!(bundle.package_name(), "op");
    assert_eq!(bundle.name(), "op.v1");
    assert_eq!(bundle.version(), Some("1.0.0"));
    assert_eq!(bundle.properties(), Some(properties));
    assert_eq!(bundle.annotations()["other"], "x");
    assert!(!bundle.has_webhooks());
    assert_eq!(Fixture::new("").load().unwrap().properties(), None);
}

#[test]
fn deeply_nested_schemas_do_not_overflow_the_stack() {
    let crd = |depth: usize| {
        let (open, close) = ("{\"properties\":{\"p\":".repeat(depth), "}}".repeat(depth));
        let schema = format!("{open}{{}}{close}");
        format!(
            "{{\"kind\":\"CustomResourceDefinition\",\"metadata\":{{\"name\":\"d\"}},\"spec\":{{\"versions\":[{{\"name\":\"v\",\
             \"schema\":{{\"openAPIV3Schema\":{schema}}}}}]}}}}"
        )
    };
    let bundle = |depth| Fixture::new("").file("manifests/crd.yaml", &crd(depth));
    assert_eq!(bundle(200).rendered("CustomResourceDefinition").len(), 1);
    assert!(bundle(100_000).load().is_err());
}
