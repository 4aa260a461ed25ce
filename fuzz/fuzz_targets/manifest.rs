//! Fuzzes image manifests and indexes: any bytes are rejected or yield blobs within the limits, and no input is
//! accepted as both.

#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_oci::ImageLimits;
use olm_oci::fuzzing::{Manifest, manifest};

fuzz_target!(|input: &[u8]| {
    let limits = ImageLimits { layers: 4, blob_bytes: 1000, ..ImageLimits::CATALOG };
    let Some(read) = manifest(input, &limits) else { return };
    let value: serde_json::Value = serde_json::from_slice(input).expect("a manifest is JSON");
    assert!(value["layers"].is_null() || value["manifests"].is_null(), "{value}");
    match read {
        Manifest::Layers(layers) => {
            assert!(layers.len() <= 4 && layers.iter().all(|(_, size)| *size <= 1000), "{layers:?}");
            assert_eq!(Some(layers.len()), value["layers"].as_array().map(Vec::len));
        }
        Manifest::Chosen(digest) => {
            let entries = value["manifests"].as_array().expect("an index has manifests");
            assert!(entries.iter().any(|entry| entry["digest"] == digest.as_str()), "{digest}");
        }
    }
});
