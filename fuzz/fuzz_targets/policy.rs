//! Fuzzes signature policies: any `policy.json`, `registries.d`, public key and signed payload is parsed or
//! rejected.

#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_oci::fuzzing::{policy, registries_d, signature};

fuzz_target!(|input: &[u8]| {
    for image in ["r.example.com:5000/ns/app:v1", "docker.io/library/app:v1"] {
        let image = image.parse().expect("a valid reference");
        if let Some((requirements, _)) = policy(input, &image, "vendor.io/app:v1") {
            assert!(requirements > 0, "a policy without requirements accepts every image");
        }
        let _ = registries_d(input, &image);
        let _ = signature(input, &image);
    }
});
