//! Compares the rendered vector bundles with the output of the reference (docs/design/bundles.md#test-vectors).

#![allow(clippy::unwrap_used, clippy::panic)]

mod cases;

use std::fs;
use std::path::{Path, PathBuf};

use cases::Case;

#[test]
fn vector_bundles_render_as_the_reference() {
    // Case bundles-58
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors");
    let root = std::env::var_os("OLM_VECTORS_DIR").map_or_else(|| PathBuf::from(default), PathBuf::from);
    if std::env::var_os("OLM_VECTORS_DIR").is_some() && !root.join("bundles").exists() {
        return cases::say("bundles: 0 passed, 0 failed"); // other vector sets may lack this folder
    }
    cases::check_all("bundles", &cases::folders(&root.join("bundles")), check);
}

fn check(folder: &Path) -> Result<(), String> {
    let rendered = Case::read(&folder.join("case.yaml")).render(&folder.join("bundle"))?;
    let expected = fs::read(folder.join("expected.yaml")).map_err(|error| error.to_string())?;
    let expected = olm_yaml::all_from_slice(&expected).map_err(|error| error.to_string())?;
    cases::same(&rendered, &expected)
}
