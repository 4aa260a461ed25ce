//! Compares the rendered bundles of `OLM_FIELD_DATA`, a folder of published bundles, with the output of the
//! reference.

#![allow(clippy::unwrap_used, clippy::panic)]

mod cases;

use std::fs;
use std::path::Path;

use cases::Case;
use olm_bundle::{BundleContent, SYSTEM_NAMESPACE, install_checks};
use serde_json::Value;

#[test]
fn field_bundles_render_as_the_reference() {
    let Some(root) = olm_require::field_data() else { return };
    cases::check_all("field bundles", &cases::folders(&root.join("bundles")), check);
}

fn check(folder: &Path) -> Result<(), String> {
    let mut rendered = Case::read(&folder.join("case.json")).render(folder)?;
    let expected = fs::read(folder.join("expected.jsonl")).map_err(|error| error.to_string())?;
    let mut expected = olm_yaml::all_from_slice(&expected).map_err(|error| error.to_string())?;
    rendered.sort_by_key(identity);
    expected.sort_by_key(identity);
    cases::same(&rendered, &expected)
}

fn identity(object: &Value) -> [String; 4] {
    let text =
        |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_string();
    [text("/apiVersion"), text("/kind"), text("/metadata/namespace"), text("/metadata/name")]
}

/// Bundles of the folder that every API server rejects, with the beginning of the first failed check.
const REFUSED: [(&str, &str); 3] = [
    ("cluster-aas-operator", "ClusterRole \"claas-argocd-cluster-role\": apiVersion is missing"),
    (
        "opentelemetry-operator",
        "Service \"opentelemetry-operator-webhook-service\" occurs 2 times with different",
    ),
    (
        "project-onboarding-operator",
        "Certificate \"project-onboarding-operator-controller-manager-service-cert\": spec.",
    ),
];

#[test]
fn install_checks_fail_for_known_field_bundles_only() {
    let Some(root) = olm_require::field_data() else { return };
    let check = |folder: &Path| {
        let case = Case::read(&folder.join("case.json"));
        let bundle = BundleContent::load(&cases::files_below(folder)).map_err(|error| error.to_string())?;
        let found = install_checks(&bundle, &case.render(folder)?, &case.install_namespace, SYSTEM_NAMESPACE);
        let expected = REFUSED.iter().find(|(name, _)| folder.ends_with(name)).map(|(_, text)| *text);
        match (found.as_slice(), expected) {
            ([], None) => Ok(()),
            ([first, ..], Some(text)) if first.starts_with(text) => Ok(()),
            _ => Err(format!("{found:?}, expected {expected:?}")),
        }
    };
    cases::check_all("install checks of field bundles", &cases::folders(&root.join("bundles")), check);
}
