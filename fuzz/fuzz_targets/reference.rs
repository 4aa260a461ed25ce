//! Fuzzes image references: any text yields a reference, which prints as written, or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_oci::Reference;

fuzz_target!(|input: &str| {
    if let Ok(reference) = input.parse::<Reference>() {
        assert!(!reference.host().is_empty() && !reference.path().is_empty());
        assert_eq!(reference.to_string(), input);
    }
});
