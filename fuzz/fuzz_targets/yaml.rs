//! Fuzzes YAML: any bytes yield valid JSON within the limits, whose canonical form is a fixed point, or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_yaml::json;

fuzz_target!(|input: &[u8]| {
    let limits =
        olm_yaml::Limits { document_bytes: 1 << 20, expanded_bytes: 1 << 20, depth: 200, nodes: 1 << 18 };
    match olm_yaml::to_json(input, &limits) {
        Ok(text) => {
            assert!(input.len() <= limits.document_bytes);
            // The closing brackets follow the last value, where the limit is checked.
            assert!(text.len() <= limits.expanded_bytes + limits.depth, "{} bytes", text.len());
            let canonical = json::canonicalize(&text).expect("converted YAML is JSON");
            assert_eq!(json::canonicalize(&canonical.text).as_ref(), Ok(&canonical));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let _ = olm_yaml::from_slice(input);
    let _ = olm_yaml::all_from_slice(input);
});
