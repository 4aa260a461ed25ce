//! Files and documents (spec 04 §§2–3).

use serde_json::json;

use crate::fixture::Fixture;

#[test]
fn missing_parts_are_named() {
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
fn annotations_have_to_be_annotations() {
    let error = |text: &str| Fixture::new("").file("metadata/annotations.yaml", text).load_error();
    assert_eq!(
        error("- a"),
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type \
         registry.AnnotationsFile"
    );
    assert_eq!(
        error("annotations: {operators.operatorframework.io.bundle.package.v1: 1}"),
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal number into Go struct field \
         Annotations.annotations.operators.operatorframework.io.bundle.package.v1 of type string"
    );
    assert!(error("a: [").starts_with("error converting YAML to JSON: yaml: line 1: "));
}

#[test]
fn subdirectories_are_refused() {
    // spec 04 acceptance 1
    assert_eq!(
        Fixture::new("").file("manifests/sub/deep/a.yaml", "").load_error(),
        "subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: found \
         \"manifests/sub\""
    );
    Fixture::new("").file("tests/scorecard/config.yaml", "::").load().unwrap();
}

#[test]
fn the_last_cluster_service_version_counts() {
    // spec 04 acceptance 2, as the reference (architecture ruling 12); both files are known
    let second = "{kind: ClusterServiceVersion, metadata: {name: op.v2}}";
    let bundle = Fixture::new("").file("manifests/d.yaml", second).load().unwrap();
    assert_eq!(bundle.name(), "op.v2");
    assert_eq!(bundle.csv_files(), ["manifests/csv.yaml", "manifests/d.yaml"]);
}

#[test]
fn lists_are_taken_apart() {
    // spec 04 acceptance 3
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
fn scalars_follow_the_old_dialect() {
    // spec 04 acceptance 4, 5
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
    let definition = "
kind: CustomResourceDefinition
metadata: {name: d}
spec: {versions: [{name: v1, schema: {openAPIV3Schema: {properties: {n: {type: string}, 'on': {type: string}}}}}]}
";
    let definitions =
        Fixture::new("").file("manifests/crd.yaml", definition).rendered("CustomResourceDefinition");
    let properties = &definitions[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    assert_eq!(properties, &json!({"false": {"type": "string"}, "on": {"type": "string"}}));
}

#[test]
fn wrong_types_name_the_file_and_know_the_field() {
    // spec 04 acceptance 8
    let bundle = Fixture::new(
        "install: {spec: {deployments: [{name: d, spec: {template: {spec: {containers: [{name: c, env: [{name: A, value: 1}]}]}}}}]}}",
    );
    let error = bundle.load().unwrap_err();
    assert_eq!(
        error.to_string(),
        "error parsing objects in \"manifests/csv.yaml\": cannot convert int64 to string"
    );
    let olm_bundle::LoadError::Manifest { field, .. } = error else { panic!("{error:?}") };
    assert_eq!(field, "spec.install.spec.deployments.0.spec.template.spec.containers.0.env.0.value");
}

#[test]
fn versions_are_read_tolerantly() {
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
fn documents_that_are_no_objects_are_refused() {
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
fn the_bundle_tells_what_others_need() {
    // spec 04 acceptance 10
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
fn deep_nesting_is_survived() {
    let definition = |depth: usize| {
        let (open, close) = ("{\"properties\":{\"p\":".repeat(depth), "}}".repeat(depth));
        let schema = format!("{open}{{}}{close}");
        format!(
            "{{\"kind\":\"CustomResourceDefinition\",\"metadata\":{{\"name\":\"d\"}},\"spec\":{{\"versions\":[{{\"name\":\"v\",\
             \"schema\":{{\"openAPIV3Schema\":{schema}}}}}]}}}}"
        )
    };
    let bundle = |depth| Fixture::new("").file("manifests/crd.yaml", &definition(depth));
    assert_eq!(bundle(200).rendered("CustomResourceDefinition").len(), 1);
    assert!(bundle(100_000).load().is_err());
}
