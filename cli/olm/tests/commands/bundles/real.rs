//! Rendering of real bundles, compared with the output of the reference. `OLM_FIELD_DATA` and `OLM_VECTORS_DIR` name
//! the folders that contain them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::fixture::olm;

fn folders(path: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<_> = path.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    folders
}

/// Renders the bundle at `root` with the inputs of its case.
fn rendered(root: &Path, case: &Path) -> Vec<Value> {
    let case = olm_yaml::from_slice(&fs::read(case).unwrap()).unwrap();
    let config = tempfile::NamedTempFile::new().unwrap();
    fs::write(config.path(), case["config"].to_string()).unwrap();
    let gate = |field: &str, name: &str| format!("{name}={}", case[field].as_bool().unwrap_or(true));
    let gates = [
        gate("singleOwnNamespace", "SingleOwnNamespaceInstallSupport"),
        gate("deploymentConfig", "DeploymentConfig"),
    ];
    let text = |field: &str| case[field].as_str().unwrap();
    let ran = olm(&[
        "render",
        root.to_str().unwrap(),
        "--namespace",
        text("installNamespace"),
        "--config",
        config.path().to_str().unwrap(),
        "--cert-provider",
        text("certProvider"),
        "--feature-gates",
        &gates.join(","),
        "-o",
        "json",
    ]);
    assert_eq!(ran.code, 0, "{}: {}", root.display(), ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

fn sorted(mut objects: Vec<Value>) -> Vec<Value> {
    let text = |object: &Value, pointer: &str| {
        object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    objects.sort_by_key(|object| {
        ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"].map(|pointer| text(object, pointer))
    });
    objects
}

#[test]
fn field_bundles_render_as_the_reference() {
    let Some(root) = olm_require::field_data() else { return };
    let folders = folders(&root.join("bundles"));
    for folder in &folders {
        let expected = olm_yaml::all_from_slice(&fs::read(folder.join("expected.jsonl")).unwrap()).unwrap();
        let rendered = rendered(folder, &folder.join("case.json"));
        assert!(sorted(rendered) == sorted(expected), "{}", folder.display());
    }
    let _ = writeln!(std::io::stdout(), "olm render of field bundles: {} passed", folders.len());
}

#[test]
fn vector_bundles_render_as_the_reference() {
    let named = std::env::var_os("OLM_VECTORS_DIR").map(PathBuf::from);
    let root = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors"));
    let folders = folders(&root.join("bundles"));
    assert!(!folders.is_empty());
    for folder in &folders {
        let mut expected =
            olm_yaml::all_from_slice(&fs::read(folder.join("expected.yaml")).unwrap()).unwrap();
        expected.retain(|object| !object.is_null());
        assert!(
            rendered(&folder.join("bundle"), &folder.join("case.yaml")) == expected,
            "{}",
            folder.display()
        );
    }
}
