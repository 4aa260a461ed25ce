//! The example objects beside this file, read into JSON.

use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs;
use std::path::Path;

fn text(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents of a YAML file.
pub(crate) fn documents(file: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// A YAML file of one document.
#[allow(dead_code)] // Not every test binary reads such a file.
pub(crate) fn document<T: DeserializeOwned>(file: &str) -> T {
    serde_saphyr::from_str(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}
