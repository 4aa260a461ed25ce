//! Checks bundles from `OLM_FIELD_DATA`, a folder of published bundles. The reference installs each of them, so
//! every finding of level error needs a known reason.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use olm_bundle_check::{Level, check};

/// Expected errors of installable bundles: bundle, rule and reason.
const EXPLAINED: [(&str, &str, &str); 3] = [
    ("cluster-aas-operator", "RENDER-2", "two ClusterRoles have no apiVersion"),
    ("opentelemetry-operator", "RENDER-2", "the Service of its webhooks is shipped, too, with other content"),
    ("universal-crossplane", "OBJ-2", "accounts of its deployments are shipped, too"),
];

#[test]
fn field_bundles_have_no_unexplained_errors() {
    let Some(root) = olm_require::field_data() else { return };
    let mut folders: Vec<PathBuf> =
        fs::read_dir(root.join("bundles")).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    assert!(!folders.is_empty());
    let mut unexplained = Vec::new();
    for folder in &folders {
        let report = check(&files_of(folder), None);
        assert!(report.identity.is_some(), "{}", folder.display());
        let name = folder.file_name().unwrap().to_string_lossy();
        let is_explained =
            |rule: &str| EXPLAINED.iter().any(|(bundle, known, _)| (*bundle, *known) == (&*name, rule));
        let errors = report.of(Level::Error).filter(|finding| !is_explained(finding.rule.id));
        unexplained.extend(errors.map(|finding| format!("{name}: {finding}")));
    }
    say(&format!("field bundles: {} checked", folders.len()));
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
}

fn files_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for part in ["manifests", "metadata"] {
        for entry in fs::read_dir(folder.join(part)).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{part}/{}", path.file_name().unwrap().to_string_lossy());
            files.insert(name, fs::read(&path).unwrap());
        }
    }
    files
}

/// Prints past the output capture of the test runner.
fn say(line: &str) {
    // A closed standard output is ignored.
    let _ = writeln!(std::io::stdout(), "{line}");
}
