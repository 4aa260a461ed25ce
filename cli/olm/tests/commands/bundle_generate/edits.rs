//! Repeated runs on a bundle that its author has edited.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{MANIFESTS, bundle, generate};

const CSV: &str = "bundle/manifests/lamp.clusterserviceversion.yaml";
const ANNOTATIONS: &str = "bundle/metadata/annotations.yaml";

fn read(folder: &Path, path: &str) -> Value {
    olm_yaml::from_slice(&fs::read(folder.join(path)).unwrap()).unwrap()
}

fn edit(folder: &Path, path: &str, change: impl FnOnce(&mut Value)) {
    let mut value = read(folder, path);
    change(&mut value);
    fs::write(folder.join(path), value.to_string()).unwrap();
}

/// Folder with a generated bundle.
fn generated() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let ran = generate(folder.path(), &[], MANIFESTS);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    folder
}

/// Edits fields as an author does.
fn edit_by_hand(root: &Path) {
    edit(root, CSV, |csv| {
        csv["metadata"]["annotations"] =
            json!({"capabilities": "Full Lifecycle", "mine": "yes", "olm.skipRange": "<0.1.0"});
        let spec = &mut csv["spec"];
        spec["description"] = json!("Switches lights.");
        spec["icon"] = json!([{"base64data": "eA==", "mediatype": "image/png"}]);
        spec["installModes"][0]["supported"] = json!(true);
        spec["unknown"] = json!({"a": [1]});
        spec["replaces"] = json!("lamp.v0.0.9");
        spec["skips"] = json!(["lamp.v0.0.8", "lamp.v0.0.7"]);
        spec["customresourcedefinitions"]["owned"][0]["specDescriptors"] = json!([{"path": "watts"}]);
        spec["customresourcedefinitions"]["required"] =
            json!([{"name": "bulbs.b.io", "kind": "Bulb", "version": "v1"}]);
        spec["relatedImages"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "bulb", "image": "quay.io/example/bulb:v9"}));
        spec["install"]["spec"]["deployments"] = json!([{"name": "lamp", "spec": {"template": {"spec": {
            "containers": [{"name": "manager", "image": "quay.io/example/lamp:v1"}]}}}}]);
    });
    edit(root, ANNOTATIONS, |file| file["annotations"]["mine"] = json!("kept"));
    fs::write(root.join("bundle/metadata/dependencies.yaml"), "dependencies: []\n# mine\n").unwrap();
}

#[test]
fn hand_written_fields_survive_and_derived_fields_follow_the_input() {
    let folder = generated();
    let root = folder.path();
    edit_by_hand(root);
    let args =
        ["--version", "0.2.0", "--set-image", "quay.io/example/lamp=quay.io/example/lamp:v2", "-o", "json"];
    let fixed = ["generate", "lamp", "--from", "-", "--to", "bundle"];
    let ran = bundle(root, &[&fixed[..], &args].concat(), MANIFESTS);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    let notes = [
        ("spec.replaces is still lamp.v0.0.9", "--replaces"),
        ("spec.skips is still lamp.v0.0.8, lamp.v0.0.7", "--skips"),
        ("annotation olm.skipRange is still <0.1.0", "--skip-range"),
    ];
    let notes = notes.map(|(fact, option)| {
        format!("{fact}, from version 0.1.0; set it with {option}, or remove it with {option} ''")
    });
    assert_eq!(summary["notes"], json!(notes));
    let csv = read(root, CSV);
    assert_eq!(csv["metadata"]["name"], "lamp.v0.2.0");
    let annotations = json!({"capabilities": "Full Lifecycle", "mine": "yes", "olm.skipRange": "<0.1.0"});
    assert_eq!(csv["metadata"]["annotations"], annotations);
    let spec = &csv["spec"];
    assert_eq!((&spec["description"], &spec["version"]), (&json!("Switches lights."), &json!("0.2.0")));
    assert_eq!((&spec["unknown"], &spec["replaces"]), (&json!({"a": [1]}), &json!("lamp.v0.0.9")));
    assert_eq!(spec["installModes"][0], json!({"type": "OwnNamespace", "supported": true}));
    let owned = json!({
        "name": "lamps.light.example.com", "version": "v1", "kind": "Lamp", "displayName": "Lamp",
        "description": "Switches a light.", "specDescriptors": [{"path": "watts"}],
    });
    assert_eq!(spec["customresourcedefinitions"]["owned"], json!([owned]));
    assert_eq!(spec["customresourcedefinitions"]["required"][0]["kind"], "Bulb");
    let images = json!([
        {"name": "lamp-manager", "image": "quay.io/example/lamp:v2"},
        {"name": "bulb", "image": "quay.io/example/bulb:v9"},
    ]);
    assert_eq!(spec["relatedImages"], images);
    assert_eq!(read(root, ANNOTATIONS)["annotations"]["mine"], "kept");
    let dependencies = fs::read_to_string(root.join("bundle/metadata/dependencies.yaml")).unwrap();
    assert_eq!(dependencies, "dependencies: []\n# mine\n");
}

#[test]
fn options_replace_and_remove_upgrade_edges_and_channels() {
    let folder = generated();
    let root = folder.path();
    let set = ["--replaces", "lamp.v0.0.9", "--skips", "lamp.v0.0.8,lamp.v0.0.7", "--skip-range", "<0.1.0"];
    let channels = ["--channels", "fast,stable", "--default-channel", "stable"];
    let ran = generate(
        root,
        &[&set[..], &channels, &["--install-modes", "OwnNamespace,AllNamespaces"]].concat(),
        MANIFESTS,
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let csv = read(root, CSV);
    assert_eq!(csv["spec"]["replaces"], "lamp.v0.0.9");
    assert_eq!(csv["spec"]["skips"], json!(["lamp.v0.0.8", "lamp.v0.0.7"]));
    assert_eq!(csv["metadata"]["annotations"], json!({"olm.skipRange": "<0.1.0"}));
    let supported: Vec<_> = csv["spec"]["installModes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mode| mode["supported"] == true)
        .collect();
    assert_eq!(supported, [true, false, false, true]);
    let ran = generate(root, &["--replaces", "", "--skips", "", "--skip-range", ""], MANIFESTS);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let csv = read(root, CSV);
    assert_eq!(
        [&csv["spec"]["replaces"], &csv["spec"]["skips"], &csv["metadata"]["annotations"]],
        [&Value::Null; 3]
    );
    let annotations = read(root, ANNOTATIONS)["annotations"].clone();
    assert_eq!(annotations["operators.operatorframework.io.bundle.channels.v1"], "fast,stable");
    assert_eq!(annotations["operators.operatorframework.io.bundle.channel.default.v1"], "stable");
}

#[test]
fn files_of_a_hand_made_bundle_are_renamed_or_kept() {
    let folder = generated();
    let root = folder.path();
    let manifests = root.join("bundle/manifests");
    fs::rename(root.join(CSV), manifests.join("csv.yaml")).unwrap();
    fs::rename(manifests.join("light.example.com_lamps.yaml"), manifests.join("crd.yaml")).unwrap();
    let extra = "{apiVersion: v1, kind: ConfigMap, metadata: {name: extra}}\n";
    fs::write(manifests.join("extra.yaml"), extra).unwrap();
    let ran = generate(root, &["-o", "json"], MANIFESTS);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    let changes: Vec<String> = summary["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| format!("{} {}", file["path"].as_str().unwrap(), file["change"].as_str().unwrap()))
        .collect();
    let expected = [
        "manifests/crd.yaml removed",
        "manifests/csv.yaml removed",
        "manifests/extra.yaml kept",
        "manifests/lamp.clusterserviceversion.yaml created",
        "manifests/light.example.com_lamps.yaml created",
        "metadata/annotations.yaml unchanged",
    ];
    assert_eq!(changes, expected);
    assert!(!manifests.join("csv.yaml").exists() && !manifests.join("crd.yaml").exists());
    assert_eq!(fs::read_to_string(manifests.join("extra.yaml")).unwrap(), extra);
}

#[test]
fn manifests_without_objects_and_subfolders_are_kept() {
    let folder = generated();
    let root = folder.path();
    let manifests = root.join("bundle/manifests");
    for (name, text) in [(".gitkeep", ""), ("later.yaml", "# kind: ConfigMap\n")] {
        fs::write(manifests.join(name), text).unwrap();
    }
    fs::create_dir(manifests.join("sub")).unwrap();
    fs::write(manifests.join("sub/a.yaml"), "a: b\n").unwrap();
    let ran = generate(root, &["-o", "json"], MANIFESTS);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("manifests/sub: a directory"), "{}", ran.stderr);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    let files = summary["files"].as_array().unwrap();
    let kept: Vec<_> =
        files.iter().filter(|file| file["change"] == "kept").map(|file| &file["path"]).collect();
    assert_eq!(kept, ["manifests/.gitkeep", "manifests/later.yaml"]);
    for name in [".gitkeep", "later.yaml", "sub/a.yaml"] {
        assert!(manifests.join(name).exists(), "{name}");
    }
}

#[test]
fn file_with_replaced_and_other_objects_is_refused_before_writing() {
    let extra = "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: extra}}\n";
    for name in ["lamp.clusterserviceversion.yaml", "csv.yaml"] {
        let folder = generated();
        let root = folder.path();
        let file = root.join("bundle/manifests").join(name);
        fs::rename(root.join(CSV), &file).unwrap();
        let text = fs::read_to_string(&file).unwrap() + extra;
        fs::write(&file, &text).unwrap();
        let ran = generate(root, &["--channels", "other"], MANIFESTS);
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{}", ran.stderr);
        let expected = format!("manifests/{name}: the bundle gets objects of this file from the input");
        assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
        assert!(ran.stderr.contains("the input lacks ConfigMap extra: move it"), "{}", ran.stderr);
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert!(
            !fs::read_to_string(root.join("bundle").join("metadata/annotations.yaml"))
                .unwrap()
                .contains("other")
        );
    }
}

#[test]
fn csv_of_the_input_is_the_base() {
    let folder = generated();
    let root = folder.path();
    edit(root, CSV, |csv| {
        csv["spec"]["description"] = json!("old");
        csv["spec"]["keywords"] = json!(["light"]);
    });
    let base = "---\n{apiVersion: operators.coreos.com/v1alpha1, kind: ClusterServiceVersion, metadata: {name: lamp.v0.0.0}, \
                spec: {description: new, keywords: [], version: 0.0.0, install: {spec: {deployments: null}, strategy: ''}}}\n";
    let ran = generate(root, &[], &format!("{MANIFESTS}{base}"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let spec = read(root, CSV)["spec"].clone();
    assert_eq!((&spec["description"], &spec["keywords"]), (&json!("new"), &json!(["light"])));
    assert_eq!(spec["install"]["spec"]["deployments"][0]["name"], "lamp");
}
