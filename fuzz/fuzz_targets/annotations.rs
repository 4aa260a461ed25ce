//! Fuzzes `metadata/annotations.yaml`: any bytes yield a bundle or an error of that file.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use olm_bundle::{BundleContent, BundleLoadError};

const CSV: &[u8] = b"{kind: ClusterServiceVersion, metadata: {name: a.v1}, spec: {}}";

fuzz_target!(|input: &[u8]| {
    let files = BTreeMap::from([
        ("metadata/annotations.yaml".to_owned(), input.to_vec()),
        ("manifests/csv.yaml".to_owned(), CSV.to_vec()),
    ]);
    match BundleContent::load(&files) {
        Ok(bundle) => assert_eq!(bundle.name(), "a.v1"),
        Err(error) => {
            assert!(matches!(error, BundleLoadError::Annotations(_) | BundleLoadError::TooLarge { .. }), "{error}");
        }
    }
});
