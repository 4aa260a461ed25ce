//! Fuzzes catalog streams: any bytes yield metas or an error, and stored lines are a fixed point.

#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_fbc::{MetaReader, PackageContent};

fuzz_target!(|input: &[u8]| {
    let limits =
        olm_yaml::Limits { document_bytes: 1 << 20, expanded_bytes: 1 << 20, depth: 200, nodes: 1 << 18 };
    let mut stored = Vec::new();
    for meta in MetaReader::new(input, limits) {
        let Ok(meta) = meta else { return };
        stored.extend_from_slice(&meta.blob);
    }
    let limits =
        olm_yaml::Limits { document_bytes: 4 << 20, expanded_bytes: 4 << 20, depth: 200, nodes: 1 << 20 };
    let mut again = Vec::new();
    for meta in MetaReader::new(stored.as_slice(), limits) {
        let Ok(meta) = meta else { panic!("a stored line cannot be parsed") };
        again.extend_from_slice(&meta.blob);
    }
    assert_eq!(stored, again);
    let _ = PackageContent::from_metas("a", stored.split(|byte| *byte == b'\n'));
});
