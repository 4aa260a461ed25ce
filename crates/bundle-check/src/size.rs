//! Size of the bundle as OLM v0 installers measure it (docs/design/additions.md#bundle-validation): all files in
//! one ConfigMap, each compressed and base64-encoded.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::findings::Findings;
use crate::place::Place;
use crate::rule;

const LIMIT: usize = 1 << 20;
const WARNING: usize = LIMIT * 85 / 100;

/// Checks the total size of all files.
pub(crate) fn check(files: &BTreeMap<String, Vec<u8>>, findings: &mut Findings) {
    let known =
        files.iter().filter(|(path, _)| path.starts_with("manifests/") || path.starts_with("metadata/"));
    let mut sizes: Vec<(usize, &str)> =
        known.map(|(path, content)| (encoded(content), path.as_str())).collect();
    let total: usize = sizes.iter().map(|(size, _)| size).sum();
    if total <= WARNING {
        return;
    }
    let rule = if total > LIMIT { &rule::SIZE_2 } else { &rule::SIZE_1 };
    sizes.sort_by(|a, b| b.cmp(a));
    let largest = sizes.iter().take(3).map(|(size, path)| format!("{path} ({size})"));
    let largest = largest.collect::<Vec<_>>().join(", ");
    let what =
        format!("the files have {total} bytes compressed, {LIMIT} are allowed; the largest: {largest}");
    findings.add(rule, Place::nowhere(), what);
}

/// Size of `content` in bytes, compressed and base64-encoded.
fn encoded(content: &[u8]) -> usize {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let written = encoder.write_all(content).and_then(|()| encoder.finish());
    written.map_or(content.len(), |bytes| bytes.len()).div_ceil(3) * 4
}
