//! Hostile bundles: loading and rendering terminate quickly, with objects or with an error that names the file.
//! Without the limits these tests would take minutes or gigabytes.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fmt::Write;

use olm_bundle::{BundleContent, BundleLoadError, Certificates, RenderOptions, render};
use serde_json::{Value, json};

const ANNOTATIONS: &str = "annotations: {operators.operatorframework.io.bundle.package.v1: op}";

type Files = BTreeMap<String, Vec<u8>>;

/// Bundle with a ClusterServiceVersion of this spec, and further manifests.
fn bundle(mut spec: Value, manifests: &[(&str, String)]) -> Files {
    spec["installModes"] = json!([
        {"type": "AllNamespaces", "supported": true},
        {"type": "MultiNamespace", "supported": true},
    ]);
    let csv = json!({"kind": "ClusterServiceVersion", "metadata": {"name": "op.v1"}, "spec": spec});
    let mut files = Files::from([
        ("metadata/annotations.yaml".to_owned(), ANNOTATIONS.into()),
        ("manifests/csv.yaml".to_owned(), csv.to_string().into_bytes()),
    ]);
    files.extend(manifests.iter().map(|(path, text)| ((*path).to_owned(), text.clone().into_bytes())));
    files
}

/// Bundle with an empty spec, and these manifests.
fn empty(manifests: &[(&str, String)]) -> Files {
    bundle(json!({}), manifests)
}

fn config_map(number: usize) -> String {
    format!("{{kind: ConfigMap, apiVersion: v1, metadata: {{name: c{number}}}}}")
}

fn load(files: &Files) -> Result<BundleContent, String> {
    BundleContent::load(files).map_err(|error| error.to_string())
}

fn load_error(files: &Files) -> String {
    load(files).unwrap_err()
}

fn rendered(files: &Files, config: Option<&Value>) -> Result<Vec<Value>, String> {
    let options = RenderOptions {
        install_namespace: "ns",
        config,
        certificates: Certificates::CertManager,
        single_own_namespace: true,
        deployment_config: true,
        multi_watch_namespaces: true,
        owned_api_services: true,
        selected_namespaces: None,
        operator_condition: false,
        aggregate_api_roles: true,
    };
    render(&load(files)?, &options).map_err(|error| error.to_string())
}

fn too_large(file: &str, limit: usize, what: &str) -> String {
    format!("bundle is too large at {file:?}: at most {limit} {what} are allowed")
}

#[test]
fn files_are_limited_in_number_and_size() {
    let many: Vec<(String, String)> =
        (0..100_000).map(|n| (format!("manifests/c{n:06}.yaml"), String::new())).collect();
    let many: Vec<(&str, String)> = many.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    assert_eq!(
        load_error(&empty(&many)),
        too_large("manifests/c005000.yaml", 5_000, "files in a bundle"),
        "c005000 is the 5001st file by name, since annotations.yaml sorts last"
    );
    let within = empty(&many[..4_998]);
    assert_eq!(rendered(&within, None), Ok(vec![]));

    let comment = |bytes: usize| format!("#{}", "x".repeat(bytes - 1));
    for (file, bytes) in [("manifests/a.yaml", 16 << 20), ("metadata/properties.yaml", 1 << 20)] {
        assert!(load(&empty(&[(file, comment(bytes))])).is_ok(), "{file}");
        let error = load_error(&empty(&[(file, comment(bytes + 1))]));
        assert_eq!(error, too_large(file, bytes, "bytes in this file"));
    }
    let large = ["a", "b", "c", "d"].map(|name| (format!("manifests/{name}.yaml"), comment(15 << 20)));
    let large = large.each_ref().map(|(path, text)| (path.as_str(), text.clone()));
    let error = load_error(&empty(&large));
    assert_eq!(error, too_large("manifests/d.yaml", 48 << 20, "bytes in all files of a bundle"));
    // Files that are not read are not counted.
    assert!(load(&empty(&[("docs/film.mp4", comment(60 << 20))])).is_ok());
}

#[test]
fn errors_quote_the_start_of_long_texts_only() {
    let long = "n".repeat(100_000);
    let csv = |annotations: Value, spec: Value| {
        let metadata = json!({"name": "op.v1", "annotations": annotations});
        json!({"kind": "ClusterServiceVersion", "metadata": metadata, "spec": spec}).to_string()
    };
    let [folder, file] = [format!("manifests/{long}/a"), format!("manifests/{long}")];
    for (path, text) in [
        (folder.as_str(), String::new()),
        (&file, "[".to_owned()),
        (&file, "[]".to_owned()),
        (&file, "#".repeat((16 << 20) + 1)),
        ("manifests/csv.yaml", csv(json!({}), json!({ "version": long }))),
        (
            "manifests/csv.yaml",
            csv(json!({ "olm.properties": format!("[1{}]", "0".repeat(100_000)) }), json!({})),
        ),
    ] {
        let error = load_error(&empty(&[(path, text)]));
        assert!((256..1000).contains(&error.len()), "{} bytes: {}", error.len(), &error[..50]);
    }
}

#[test]
fn nesting_depth_is_limited_in_every_notation() {
    let block_list = |depth: usize| format!("{}x", "- ".repeat(depth));
    let block_map = |depth: usize| {
        let mut text = String::new();
        for level in 0..depth {
            let _ = writeln!(text, "{}a:", " ".repeat(level));
        }
        text
    };
    let lists = |depth: usize| {
        let mut text = "{\"kind\":\"ConfigMap\"}".to_owned();
        for _ in 0..depth {
            text = format!("{{\"kind\":\"ListList\",\"items\":[{text}]}}");
        }
        text
    };
    // Each alias is one level deeper than the previous anchor.
    let mut anchors = "a0: &a0 x\n".to_owned();
    for level in 1..1_000 {
        let _ = writeln!(anchors, "a{level}: &a{level} [*a{}]", level - 1);
    }
    for (name, text) in [
        ("flow lists", "[".repeat(1_000_000)),
        ("closed flow lists", format!("{}{}", "[".repeat(600), "]".repeat(600))),
        ("flow mappings", "{a: ".repeat(100_000)),
        ("block lists", block_list(100_000)),
        ("block mappings", block_map(2_000)),
        ("JSON", format!("{}1{}", "{\"a\":".repeat(600), "}".repeat(600))),
        ("JSON without end", "{\"a\":".repeat(1_000_000)),
        ("lists of lists", lists(300)),
        ("aliases", anchors),
    ] {
        for file in ["manifests/a.yaml", "metadata/annotations.yaml", "metadata/properties.yaml"] {
            let error = load_error(&empty(&[(file, text[..text.len().min(1 << 20)].to_owned())]));
            let expected = if name == "aliases" { "excessive aliasing" } else { "exceeded max depth of 500" };
            assert!(error.contains(expected), "{name} in {file}: {error}");
        }
    }
    // Below the depth limit, nested lists are refused by kind.
    assert!(load_error(&empty(&[("manifests/a.yaml", lists(200))])).contains("is not a list"));
    assert_eq!(rendered(&empty(&[("manifests/a.yaml", lists(0))]), None).unwrap().len(), 1);
}

#[test]
fn nested_properties_annotation_does_not_exhaust_the_stack() {
    let mut files = bundle(json!({}), &[]);
    for depth in [400, 100_000] {
        let property = format!("[{{\"type\":\"t\",\"value\":{}{}}}]", "[".repeat(depth), "]".repeat(depth));
        let csv = json!({
            "kind": "ClusterServiceVersion",
            "metadata": {"name": "op.v1", "annotations": {"olm.properties": property}},
            "spec": {"installModes": [{"type": "AllNamespaces", "supported": true}]},
        });
        files.insert("manifests/csv.yaml".into(), csv.to_string().into_bytes());
        files.insert("metadata/properties.yaml".into(), b"properties: []".to_vec());
        // Either result is allowed. Neither may exhaust the stack.
        let _ = rendered(&files, None);
    }
}

#[test]
fn alias_expansion_is_limited() {
    // Each document expands to a tenth of the limit.
    let document =
        format!("kind: ConfigMap\na: &a {}\nb: [{}]\n---\n", "x".repeat(7_000), "*a,".repeat(1_000));
    let text = document.repeat(20);
    assert!(text.len() < 1 << 20);
    assert_eq!(
        load_error(&empty(&[("manifests/a.yaml", text)])),
        too_large("manifests/a.yaml", 64 << 20, "bytes in all manifests, aliases followed")
    );
    // The limit also applies to the sum of several files.
    let files: Vec<String> = (0..20).map(|n| format!("manifests/a{n:02}.yaml")).collect();
    let files: Vec<(&str, String)> = files.iter().map(|file| (file.as_str(), document.clone())).collect();
    assert!(load_error(&empty(&files)).starts_with("bundle is too large at \"manifests/a09.yaml\""));

    let mut laughs = "kind: ConfigMap\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let _ = writeln!(laughs, "a{level}: &a{level} [{}]", format!("*a{},", level - 1).repeat(10));
    }
    let error = load_error(&empty(&[("manifests/a.yaml", laughs)]));
    assert!(error.starts_with("error parsing objects in \"manifests/a.yaml\": "), "{error}");
    assert!(error.contains("excessive aliasing") || error.contains("more than 1500000 values"), "{error}");
}

#[test]
fn values_are_limited_in_number() {
    let many = |item: &str, bytes: usize| item.repeat(bytes / item.len());
    let values = |file: &str| too_large(file, 1_500_000, "values in all manifests, aliases followed");
    for item in ["0,", "{},", "{\"a\":0},"] {
        let text = format!("{{\"kind\":\"ConfigMap\",\"a\":[{}0]}}", many(item, 6 << 20));
        // Parsed as JSON first, then as YAML.
        let error = load_error(&empty(&[("manifests/a.yaml", text)]));
        assert!(error.contains("1500000 values"), "{item}: {error}");
    }
    for item in ["- \n", "- a: b\n", "- {}\n", "? a\n"] {
        let error = load_error(&empty(&[("manifests/a.yaml", many(item, 6 << 20))]));
        assert!(error.contains("1500000 values"), "{item}: {error}");
    }
    // Small objects take ten times the memory of other values.
    let text = format!("{{\"kind\":\"ConfigMap\",\"a\":[{}0]}}", "{\"a\":0},".repeat(190_000));
    assert_eq!(load_error(&empty(&[("manifests/a.yaml", text)])), values("manifests/a.yaml"));
    let document = format!("kind: ConfigMap\nb: [{}]\n---\n", "0,".repeat(450_000));
    let files = ["a", "b", "c", "d"].map(|name| format!("manifests/{name}.yaml"));
    let files = files.each_ref().map(|file| (file.as_str(), document.clone()));
    assert_eq!(load_error(&empty(&files)), values("manifests/d.yaml"));
}

#[test]
fn objects_are_limited_in_number() {
    let stream = |count: usize| (0..count).map(|n| format!("---\n{}\n", config_map(n))).collect::<String>();
    let list = |count: usize| {
        let items: Vec<_> = (0..count).map(config_map).collect();
        format!("kind: ConfigMapList\nitems: [{}]", items.join(","))
    };
    let objects = too_large("manifests/z.yaml", 10_000, "objects in a bundle");
    assert_eq!(load_error(&empty(&[("manifests/z.yaml", stream(10_001))])), objects);
    assert_eq!(load_error(&empty(&[("manifests/z.yaml", list(10_001))])), objects);
    assert_eq!(load_error(&empty(&[("manifests/z.yaml", "---\n---\n{}\n---\n".repeat(50_000))])), {
        let detail = "unable to decode \"manifests/z.yaml\": Object 'Kind' is missing in '{}'";
        format!("error parsing objects in \"manifests/z.yaml\": {detail}")
    });
    assert_eq!(rendered(&empty(&[("manifests/z.yaml", list(9_000))]), None).unwrap().len(), 9_000);
    assert_eq!(rendered(&empty(&[("manifests/z.yaml", "---\n".repeat(200_000))]), None), Ok(vec![]));
}

#[test]
fn list_type_copied_to_items_is_limited() {
    let text = |kind: &str, version: &str| {
        format!("kind: {kind}List\napiVersion: {version}\nitems: [{}]", "{},".repeat(9_000))
    };
    for text in [text("X", &"x".repeat(1 << 20)), text(&"X".repeat(1 << 20), "v1")] {
        assert_eq!(
            load_error(&empty(&[("manifests/a.yaml", text)])),
            too_large("manifests/a.yaml", 64 << 20, "bytes in all manifests, aliases followed")
        );
    }
}

/// Deployment with containers.
fn deployment(name: &str, containers: Value) -> Value {
    json!({"name": name, "spec": {"template": {"spec": {"containers": containers}}}})
}

fn strategy(deployments: Vec<Value>) -> Value {
    json!({"install": {"strategy": "deployment", "spec": {"deployments": deployments}}})
}

#[test]
fn parts_of_the_install_strategy_are_limited_in_number() {
    let parts = |file| too_large(file, 10_000, "deployments, containers, permissions and webhooks");
    let many = |part: Value| vec![part; 10_001];
    let containers = strategy(vec![deployment("d", Value::Array(many(Value::Null)))]);
    let deployments = strategy(many(json!({"name": "d"})));
    let permissions = json!({"install": {"spec": {"permissions": many(json!({"rules": []}))}}});
    let webhooks = json!({"webhookdefinitions": many(json!({"type": "ConversionWebhook"}))});
    for spec in [containers, deployments, permissions, webhooks] {
        assert_eq!(load_error(&bundle(spec, &[])), parts("manifests/csv.yaml"));
    }
}

#[test]
fn repeated_content_of_rendered_objects_is_limited() {
    let refused = "the rendered objects would be too large: annotations in every deployment, configuration in every \
                   container, permissions for every namespace and roles for every API version may have 67108864 bytes";
    // Large annotation in many deployments.
    let mut files =
        bundle(strategy((0..5_000).map(|n| deployment(&format!("d{n}"), json!([]))).collect()), &[]);
    assert_eq!(rendered(&files, None).unwrap().len(), 5_000);
    let mut csv: Value = serde_json::from_slice(&files["manifests/csv.yaml"]).unwrap();
    csv["metadata"]["annotations"] = json!({"alm-examples": "x".repeat(1 << 20)});
    files.insert("manifests/csv.yaml".into(), csv.to_string().into_bytes());
    assert_eq!(rendered(&files, None), Err(refused.to_owned()));

    // Large configuration in many containers.
    let files = bundle(strategy(vec![deployment("d", json!(vec![json!({}); 9_000]))]), &[]);
    let env: Vec<Value> = (0..1_000).map(|n| json!({"name": format!("E{n}"), "value": "x"})).collect();
    let config = json!({"deploymentConfig": {"env": env}});
    assert_eq!(rendered(&files, Some(&config)), Err(refused.to_owned()));

    // Large permissions for many namespaces.
    let rule = json!({"verbs": ["*"], "apiGroups": [""], "resources": ["x".repeat(2 << 20)]});
    let spec = json!({"install": {"spec": {"permissions": [{"serviceAccountName": "a", "rules": [rule]}]}}});
    let names: Vec<String> = (0..40).map(|n| format!("n{n}")).collect();
    let config = json!({"watchNamespaces": names});
    assert_eq!(rendered(&bundle(spec, &[]), Some(&config)), Err(refused.to_owned()));
}

#[test]
fn merging_large_config_into_pod_is_fast() {
    let env = |count: usize| -> Vec<Value> { (0..count).map(|n| json!({"name": format!("E{n}")})).collect() };
    let tolerations =
        |count: usize| -> Vec<Value> { (0..count).map(|n| json!({"key": format!("t{n}")})).collect() };
    let mut deployment = deployment("d", json!([{"name": "c", "env": env(50_000)}]));
    deployment["spec"]["template"]["spec"]["tolerations"] = json!(tolerations(50_000));
    let config = json!({"deploymentConfig": {"env": env(50_001), "tolerations": tolerations(50_001)}});
    let objects = rendered(&bundle(strategy(vec![deployment]), &[]), Some(&config)).unwrap();
    let pod = &objects[0]["spec"]["template"]["spec"];
    assert_eq!(pod["tolerations"].as_array().unwrap().len(), 50_001);
    assert_eq!(pod["containers"][0]["env"].as_array().unwrap().len(), 50_001);
}

#[test]
fn replacing_many_mounts_and_volumes_is_fast() {
    let path = "/tmp/k8s-webhook-server/serving-certs";
    let mounts: Vec<Value> =
        (0..50_000).map(|n| json!({"name": format!("v{n}"), "mountPath": path})).collect();
    let volumes: Vec<Value> = (0..50_000).map(|n| json!({"name": format!("v{}", n + 1)})).collect();
    let mut deployment = deployment("d", json!([{"name": "c", "volumeMounts": mounts}]));
    deployment["spec"]["template"]["spec"]["volumes"] = json!(volumes);
    let mut spec = strategy(vec![deployment]);
    spec["webhookdefinitions"] = json!([{"type": "ValidatingAdmissionWebhook", "generateName": "w.example.com", "deploymentName": "d"}]);
    let objects = rendered(&bundle(spec, &[]), None).unwrap();
    let pod = &objects[0]["spec"]["template"]["spec"];
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&pod["volumes"]), ["v50000", "webhook-cert", "apiservice-cert"]);
    assert_eq!(names(&pod["containers"][0]["volumeMounts"]), ["webhook-cert", "apiservice-cert"]);
}

#[test]
fn fault_list_is_bounded_for_quadratic_inputs() {
    let rule = json!({
        "apiGroups": vec!["admissionregistration.k8s.io"; 100_000],
        "resources": vec!["*"; 100_000],
    });
    let webhook = |kind: &str, more: (&str, Value)| {
        let mut webhook = json!({"type": kind, "generateName": "x".repeat(1 << 20), "deploymentName": "d"});
        webhook[more.0] = more.1;
        webhook
    };
    let names: Vec<String> = (0..100_000).map(|n| format!("c{n}")).collect();
    let same = vec!["c"; 100_000];
    for webhook in [
        webhook("ValidatingAdmissionWebhook", ("rules", json!([rule]))),
        webhook("ConversionWebhook", ("conversionCRDs", json!(names))),
        webhook("ConversionWebhook", ("conversionCRDs", json!(same))),
    ] {
        let mut spec = strategy(vec![deployment("d", json!([]))]);
        spec["webhookdefinitions"] = json!([webhook]);
        let error = rendered(&bundle(spec, &[]), None).unwrap_err();
        assert!(error.ends_with("\nand more, which are not listed") && error.len() < 8 << 20);
    }
}

#[test]
fn many_objects_of_each_kind_are_rendered() {
    let count = 2_000;
    let deployments = (0..count).map(|n| deployment(&format!("d{n}"), json!([{"name": "c"}]))).collect();
    let mut spec = strategy(deployments);
    let webhook = |n: usize| {
        let kind = ["ConversionWebhook", "MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"][n.min(2)];
        json!({
            "type": kind, "generateName": format!("w{n}.example.com"), "deploymentName": format!("d{n}"),
            "containerPort": n + 1, "conversionCRDs": if n == 0 { json!([]) } else { Value::Null },
        })
    };
    spec["webhookdefinitions"] = (0..count).map(webhook).collect();
    let permission = |n: usize| json!({"serviceAccountName": format!("a{n}"), "rules": [{"verbs": ["get"]}]});
    spec["install"]["spec"]["permissions"] = (0..count).map(permission).collect();
    let crd = |n: usize| {
        format!("{{kind: CustomResourceDefinition, metadata: {{name: c{n}.example.com}}, spec: {{}}}}")
    };
    let crds: Vec<String> = (0..count).map(crd).collect();
    let mut files = bundle(spec, &[("manifests/d.yaml", crds.join("\n---\n"))]);
    let mut csv: Value = serde_json::from_slice(&files["manifests/csv.yaml"]).unwrap();
    csv["spec"]["installModes"] = json!([{"type": "AllNamespaces", "supported": true}]);
    files.insert("manifests/csv.yaml".into(), csv.to_string().into_bytes());
    // ServiceAccounts, roles with bindings, CRDs, Deployments, configurations of all webhooks except conversion,
    // Services, Issuers and Certificates.
    let expected = count * (1 + 2 + 1 + 1 + 1 + 1 + 2) - 1;
    assert_eq!(rendered(&files, None).unwrap().len(), expected);
}

#[test]
fn huge_and_odd_names_load_and_render_without_panic() {
    let long = "x".repeat(8 << 20);
    for name in [long.as_str(), "\u{7}\u{1b}[2J", "../../etc/passwd", "a\nb", "\u{202e}", "", "*"] {
        let mut spec = strategy(vec![deployment(name, json!([{"name": name}]))]);
        spec["webhookdefinitions"] = json!([{"type": name, "generateName": name, "deploymentName": name}]);
        spec["customresourcedefinitions"] = json!({"owned": [{"name": name}]});
        let object = json!({"kind": "ConfigMap", "metadata": {"name": name}});
        let path =
            format!("manifests/{}.yaml", name.chars().take(8).filter(|c| *c != '/').collect::<String>());
        assert!(rendered(&bundle(spec, &[(&path, object.to_string())]), None).is_err());
        let files = empty(&[(&path, object.to_string())]);
        assert_eq!(rendered(&files, None).unwrap().len(), 1);
    }
}

#[test]
fn exceeded_limit_is_error_too_large() {
    let error =
        BundleContent::load(&empty(&[("metadata/properties.yaml", "#".repeat(2 << 20))])).unwrap_err();
    let file = "metadata/properties.yaml".to_owned();
    assert_eq!(error, BundleLoadError::TooLarge { file, limit: 1 << 20, what: "bytes in this file" });
}
