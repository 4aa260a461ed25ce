//! Checks the CRDs of the bundles in `OLM_FIELD_DATA`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use olm_crd_safety::{check, is_crd};
use serde_json::{Value, json};

#[test]
fn field_crds_are_compatible_with_themselves_only() {
    let Some(root) = olm_require::field_data() else { return };
    let mut count = 0;
    for bundle in root.join("bundles").read_dir().unwrap() {
        let Ok(text) = std::fs::read(bundle.unwrap().path().join("expected.jsonl")) else { continue };
        for crd in olm_yaml::all_from_slice(&text).unwrap().iter().filter(|object| is_crd(object)) {
            assert_eq!(check(Some(crd), crd), Ok(Vec::new()), "{}", crd["metadata"]["name"]);
            let findings = check(Some(crd), &of_texts(crd)).unwrap();
            assert!(
                findings
                    .iter()
                    .any(|finding| finding.property.as_deref() == Some("^") && finding.check == "type")
            );
            count += 1;
        }
    }
    assert!(count > 0, "no CRD in {}", root.display());
    println!("{count} real CRDs");
}

/// Copy of the CRD whose versions have a schema of type string.
fn of_texts(crd: &Value) -> Value {
    let mut other = crd.clone();
    for version in other["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"] = json!({"type": "string"});
    }
    other
}
