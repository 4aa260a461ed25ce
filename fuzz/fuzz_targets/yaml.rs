//! Fuzzes YAML: any bytes yield a value or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let limits =
        olm_yaml::Limits { document_bytes: 1 << 20, expanded_bytes: 1 << 20, depth: 200, nodes: 1 << 18 };
    let _ = olm_yaml::to_json(input, &limits);
    let _ = olm_yaml::from_slice(input);
    let _ = olm_yaml::all_from_slice(input);
});
