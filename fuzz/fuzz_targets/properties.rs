//! Fuzzes properties of a bundle: any text of the annotation, with any file beside it, is merged to JSON or yields
//! an error.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use olm_bundle::{BundleContent, BundleLoadError};
use olm_yaml::json::canonicalize;
use serde_json::json;

const ANNOTATIONS: &str = "annotations: {operators.operatorframework.io.bundle.package.v1: demo}";

fuzz_target!(|input: (&str, &[u8])| {
    let (annotation, file) = input;
    let csv = json!({
        "kind": "ClusterServiceVersion",
        "metadata": {"name": "a.v1", "annotations": {"olm.properties": annotation}},
        "spec": {},
    });
    let files = BTreeMap::from([
        ("metadata/annotations.yaml".to_owned(), ANNOTATIONS.into()),
        ("metadata/properties.yaml".to_owned(), file.to_vec()),
        ("manifests/csv.yaml".to_owned(), csv.to_string().into_bytes()),
    ]);
    match BundleContent::load(&files) {
        Ok(bundle) => {
            let merged = bundle.properties().expect("the annotation exists");
            if !file.is_empty() {
                // Unpaired surrogates, which Go accepts, are kept.
                assert!(
                    canonicalize(merged.as_bytes()).is_ok() && merged.starts_with(['[', 'n']),
                    "{merged}"
                );
            }
            let _ = bundle.max_openshift_version();
        }
        Err(error) => assert!(
            matches!(
                error,
                BundleLoadError::PropertiesAnnotation(_)
                    | BundleLoadError::PropertiesFile(_)
                    | BundleLoadError::TooLarge { .. }
            ),
            "{error}"
        ),
    }
});
