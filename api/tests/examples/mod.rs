//! Example objects in this folder, parsed as JSON.

use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs;
use std::path::Path;

fn text(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All documents of a YAML file.
pub(crate) fn documents(file: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The single document of a YAML file.
#[allow(dead_code)] // Not every test binary uses it.
pub(crate) fn document<T: DeserializeOwned>(file: &str) -> T {
    serde_saphyr::from_str(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}
