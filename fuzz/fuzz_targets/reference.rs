//! Image references and credentials: any text gives a value or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_oci::{Credentials, Reference};

fuzz_target!(|input: &str| {
    if let Ok(reference) = input.parse::<Reference>() {
        assert!(!reference.host().is_empty() && !reference.path().is_empty());
    }
    let _ = Credentials::parse(input.as_bytes());
});
