//! Round trip of real bundles: manifests that `olm render` prints give the same objects as the bundle.
//! `OLM_FIELD_DATA` names the folder that contains them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::bundle;
use crate::fixture::{Ran, olm_in};

fn render(root: &Path, case: &Value, notation: &str) -> Ran {
    let config = tempfile::NamedTempFile::new().unwrap();
    fs::write(config.path(), case["config"].to_string()).unwrap();
    let text = |field: &str| case[field].as_str().unwrap();
    let args = [
        "render",
        root.to_str().unwrap(),
        "--namespace",
        text("installNamespace"),
        "--config",
        config.path().to_str().unwrap(),
        "--cert-provider",
        text("certProvider"),
        "--feature-gates",
        "SingleOwnNamespaceInstallSupport=true",
        "-o",
        notation,
    ];
    olm_in(Path::new("."), &args).output().unwrap().into()
}

fn objects(ran: &Ran) -> Vec<Value> {
    let mut objects: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    objects.sort_by_cached_key(Value::to_string);
    objects
}

/// Compares the objects before and after the round trip.
fn round_trip(root: &Path) -> Result<(), String> {
    let read = |path: PathBuf| olm_yaml::from_slice(&fs::read(path).unwrap()).unwrap();
    let case: Value = read(root.join("case.json"));
    let annotations = read(root.join("metadata/annotations.yaml"));
    let package = annotations["annotations"]["operators.operatorframework.io.bundle.package.v1"].clone();
    let modes = case["features"].as_array().unwrap().iter().find_map(|one| one.as_str()?.strip_prefix("im:"));
    let before = render(root, &case, "json");
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "generate",
        package.as_str().unwrap(),
        "--version",
        case["version"].as_str().unwrap(),
        "--install-modes",
        modes.unwrap(),
        "--from",
        "-",
        "--to",
        "bundle",
    ];
    let ran = bundle(folder.path(), &args, &render(root, &case, "yaml").stdout);
    if ran.code != 0 {
        return Err(ran.stderr);
    }
    let after = render(&folder.path().join("bundle"), &case, "json");
    if after.code != 0 {
        return Err(after.stderr);
    }
    let (before, after) = (objects(&before), objects(&after));
    let name = |object: &&Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
    let lost = before.iter().filter(|one| !after.contains(one)).map(|one| format!("-{}", name(&one)));
    let gained = after.iter().filter(|one| !before.contains(one)).map(|one| format!("+{}", name(&one)));
    let differences: Vec<String> = lost.chain(gained).collect();
    if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
}

/// Bundles whose result differs, with a part of the difference and its reason.
const DIFFERENT: [(&str, &str); 7] = [
    // Ships an object without apiVersion.
    ("cluster-aas-operator", "apiVersion is missing"),
    // Ships custom resources, which become examples.
    ("ecr-secret-operator", "-\"Secret\" \"ecr-secret\""),
    // CRDs have an annotation of cert-manager, but no conversion webhook.
    ("layer7-operator", "-\"CustomResourceDefinition\" \"gateways.security.brcmlabs.com\""),
    ("rsct-operator", "-\"CustomResourceDefinition\" \"rscts.rsct.ibm.com\""),
    (
        "service-binding-operator",
        "-\"CustomResourceDefinition\" \"servicebindings.binding.operators.coreos.com\"",
    ),
    // Ships a Service with the name of the one that OLM creates.
    (
        "opentelemetry-operator",
        "Service install-ns/opentelemetry-operator-webhook-service: standard input has another",
    ),
    // Ships the ServiceAccounts of its Deployments, with labels, and binds those of another namespace.
    ("universal-crossplane", "-\"ServiceAccount\" \"crossplane\""),
];

#[test]
fn rendered_field_bundles_yield_the_same_objects() {
    let Some(root) = olm_require::field_data() else { return };
    let mut equal = 0;
    for entry in fs::read_dir(root.join("bundles")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        match (round_trip(&path), DIFFERENT.iter().find(|(different, _)| *different == name)) {
            (Ok(()), None) => equal += 1,
            (Err(difference), Some((_, expected))) => {
                assert!(difference.contains(expected), "{name}: {difference}");
            }
            (result, expected) => panic!("{name}: {result:?}, expected {expected:?}"),
        }
    }
    let _ = writeln!(std::io::stdout(), "olm bundle generate of field bundles: {equal} passed");
}
