//! Fuzzes the checks of `olm bundle validate`: any files yield the same report each time.
//!
//! The input consists of files, each after a line `== PATH`. Text before the first such line is the
//! ClusterServiceVersion.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use olm_bundle_check::check;

fuzz_target!(|input: &str| {
    let mut files = BTreeMap::from([(
        "metadata/annotations.yaml".to_owned(),
        b"annotations: {operators.operatorframework.io.bundle.package.v1: demo}".to_vec(),
    )]);
    for (number, part) in input.split("\n== ").enumerate() {
        let (path, content) = match number {
            0 => ("manifests/csv.yaml", part),
            _ => part.split_once('\n').unwrap_or((part, "")),
        };
        files.insert(path.to_owned(), content.as_bytes().to_vec());
    }
    let report = check(&files, None);
    assert_eq!(report, check(&files, None));
});
