//! `olm render`.

use std::collections::BTreeMap;

use olm_image::Image;
use olm_image::registry::Registry;
use serde_json::Value;

use super::fixture::{Ran, command, compare, files, olm, olm_with};

#[test]
fn render_output_matches_golden_files() {
    for (name, args) in [
        ("render-help.txt", &["render", "--help"][..]),
        ("render.yaml", &["render", "old", "--namespace", "pipe-system"]),
        ("render.json", &["render", "new", "-n", "pipe-system", "--config", "single.yaml", "-o", "json"]),
        ("render-extension.yaml", &["render", "new", "-f", "extension.yaml"]),
    ] {
        let Ran { code, stdout, stderr } = olm(args);
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
        compare(name, &stdout);
    }
}

#[test]
fn json_and_yaml_contain_the_same_objects_in_the_same_order() {
    let args = |notation| ["render", "old", "-n", "ns", "-o", notation];
    let array: Value = serde_json::from_str(&olm(&args("json")).stdout).unwrap();
    let documents = olm_yaml::all_from_slice(olm(&args("yaml")).stdout.as_bytes()).unwrap();
    assert_eq!(array, Value::Array(documents));
}

#[test]
fn names_of_olm_are_reserved_in_the_namespace_of_the_installation() {
    let folder = tempfile::tempdir().unwrap();
    let reserved = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: olm-registry-ca}\n";
    let more = [("manifests/reserved.yaml".to_owned(), reserved.as_bytes().to_vec())];
    for (path, content) in files("old").into_iter().chain(more) {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let bundle = folder.path().to_str().unwrap();
    for (install, system, is_reserved) in [
        ("my-olm", "my-olm", true),
        ("olmv1-system", "my-olm", false),
        ("olmv1-system", "olmv1-system", true),
    ] {
        let ran = olm(&["render", bundle, "-n", install, "--catalogd-namespace", system]);
        let found = ran.stderr.contains("ConfigMap \"olm-registry-ca\" belongs to OLM itself");
        assert_eq!((ran.code, found), (0, is_reserved), "{install} {system}: {}", ran.stderr);
    }
}

// docs/design/additions.md#api-roles
#[test]
fn annotation_and_flag_render_the_same_api_roles() {
    let text = std::fs::read_to_string(super::fixture::data().join("extension.yaml")).unwrap();
    let key = "ext.olm.operatorframework.io/aggregate-api-roles";
    let annotated =
        text.replacen("metadata:\n", &format!("metadata:\n  annotations: {{{key}: 'true'}}\n"), 1);
    let plain = olm_with(&["render", "new", "-f", "-"], &text);
    let flag = olm_with(&["render", "new", "-f", "-", "--aggregate-api-roles"], &text);
    let annotation = olm_with(&["render", "new", "-f", "-"], &annotated);
    assert_eq!((annotation.code, annotation.stderr.as_str()), (0, ""));
    assert_eq!(annotation.stdout, flag.stdout);
    assert_eq!(annotation.stdout.matches("aggregate-to-").count(), 4);
    assert!(!plain.stdout.contains("aggregate-to-"), "{}", plain.stdout);
}

#[test]
fn config_from_standard_input_accepts_json_and_yaml() {
    let args = ["render", "new", "-n", "pipe-system", "--config", "-", "-o", "json"];
    let json = olm_with(&args, r#"{"watchNamespace": "pipes"}"#);
    assert_eq!((json.code, json.stderr.as_str()), (0, ""));
    assert_eq!(json.stdout, olm_with(&args, "watchNamespace: pipes\n").stdout);
    assert!(json.stdout.contains(r#""namespace": "pipes""#));
    let none = olm_with(&args, "");
    assert_eq!(none.stdout, olm(&["render", "new", "-n", "pipe-system", "-o", "json"]).stdout);
}

#[test]
fn invalid_input_fails_with_advice() {
    let long = "-n=pipe-system";
    for (args, code, expected) in [
        (&["render", "old"][..], 2, "specify the namespace of the operator with --namespace"),
        (&["render"], 2, "<BUNDLE|--file <FILE>>"),
        (&["render", "old", long, "--catalog", "cluster"], 2, "cannot be used with"),
        (&["render", "old", long, "--config", "several.yaml"], 2, "expected one document, found 2"),
        (
            &["render", "nowhere/at/all:::", long],
            2,
            "is neither an existing directory nor an image reference such as",
        ),
        (
            &["render", ".", long],
            1,
            ".: expected a bundle directory, which has the directories manifests and metadata",
        ),
        (&["render", "single.yaml", long], 2, "\"single.yaml\" is not a directory"),
        (&["render", "old", long, "--config", "nothing.yaml"], 1, "cannot read \"nothing.yaml\""),
        (&["render", "old", long, "--config", "extension.yaml"], 2, "use -f for the whole object"),
        (
            &["render", "old", long, "--feature-gates", "Other=true"],
            2,
            "feature gates: BestEffortResolution, BoxcutterRuntime",
        ),
        (
            &["render", "old", long, "--cert-provider", "vault"],
            2,
            "builtin, cert-manager, openshift-service-ca, none",
        ),
        (&["render", "old", "-n", "ns", "-f", "extension.yaml"], 2, "cannot be used with"),
        (
            &["render", "old", long, "--config", "single.yaml"],
            3,
            "error: old: invalid ClusterExtension configuration: invalid configuration: unknown field \"watchNamespace\"",
        ),
    ] {
        let ran = olm(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn invalid_namespace_warns_and_is_rendered() {
    let ran = olm(&["render", "old", "-n", "My_NS"]);
    assert_eq!(ran.code, 0);
    assert!(ran.stderr.starts_with("warning: old: namespace \"My_NS\" is invalid: "), "{}", ran.stderr);
    assert!(ran.stdout.contains("namespace: My_NS\n"), "{}", ran.stdout);
}

#[test]
fn feature_gates_default_to_those_of_the_reference() {
    let config = "deploymentConfig: {nodeSelector: {disk: ssd}}\n";
    let args = ["render", "new", "-n", "pipe-system", "--config", "-"];
    assert!(olm_with(&args, config).stdout.contains("disk: ssd"));
    let off = [&args[..], &["--feature-gates=DeploymentConfig=false,BoxcutterRuntime=true"]].concat();
    let refused = olm_with(&off, config);
    assert_eq!(refused.code, 3);
    assert!(refused.stderr.contains("unknown field \"deploymentConfig\""), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_image_is_pulled_and_resolved_from_catalogs() {
    let registry = Registry::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    registry.write_ca(folder.path()).unwrap();
    registry.add_image("team/bundle", "v1", &Image::bundle(&files("old")).unwrap());
    let image = format!("{}/team/bundle:v1", registry.host());
    let catalog = format!(
        "{{schema: olm.package, name: pipe}}\n---\n{{schema: olm.channel, package: pipe, name: a, entries: [{{name: pipe.v1.0.0}}]}}\n\
         ---\n{{schema: olm.bundle, package: pipe, name: pipe.v1.0.0, image: '{image}', properties: [{{type: olm.package, \
         value: {{packageName: pipe, version: 1.0.0}}}}]}}\n"
    );
    let catalogs = folder.path().join("catalog");
    std::fs::create_dir(&catalogs).unwrap();
    std::fs::write(catalogs.join("catalog.yaml"), &catalog).unwrap();
    let content = BTreeMap::from([("catalog.yaml".to_owned(), catalog.into_bytes())]);
    registry.add_image("team/catalog", "v1", &Image::catalog(&content).unwrap());

    let run = async |args: &[&str]| {
        let mut command = command(args);
        command.arg("--ca-dir").arg(folder.path());
        tokio::task::spawn_blocking(move || Ran::from(command.output().unwrap())).await.unwrap()
    };
    let pulled = run(&["render", &image, "-n", "pipe-system"]).await;
    assert_eq!((pulled.code, pulled.stderr.as_str()), (0, ""));
    assert_eq!(pulled.stdout, olm(&["render", "old", "-n", "pipe-system"]).stdout);

    let chosen = run(&["render", "-f", "extension.yaml", "--catalog", catalogs.to_str().unwrap()]).await;
    assert_eq!(chosen.code, 0, "{}", chosen.stderr);
    assert!(
        chosen.stderr.contains(&format!("pipe.v1.0.0 of catalog {}: {image}", catalogs.display())),
        "{}",
        chosen.stderr
    );
    assert_eq!(chosen.stdout, olm(&["render", "old", "-f", "extension.yaml"]).stdout);

    let other = run(&["render", &format!("{}/team/catalog:v1", registry.host()), "-n", "ns"]).await;
    assert_eq!(other.code, 1);
    assert!(
        other.stderr.contains("the image is a catalog, not a bundle; use `catalog render`"),
        "{}",
        other.stderr
    );
}
