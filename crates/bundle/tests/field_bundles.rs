//! Renders real bundles and compares with what the reference renders. `OLM_FIELD_DATA` names the folder that
//! holds them.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::Case;

#[test]
fn field_bundles() {
    let Some(root) = std::env::var_os("OLM_FIELD_DATA") else {
        support::say("field bundles: SKIPPED, OLM_FIELD_DATA is not set");
        return;
    };
    support::check_all("field bundles", &support::folders(&PathBuf::from(root).join("bundles")), check);
}

fn check(folder: &Path) -> Result<(), String> {
    let mut rendered = Case::read(&folder.join("case.json")).render(folder)?;
    let expected = fs::read(folder.join("expected.jsonl")).map_err(|error| error.to_string())?;
    let mut expected = olm_yaml::all_from_slice(&expected).map_err(|error| error.to_string())?;
    rendered.sort_by_key(identity);
    expected.sort_by_key(identity);
    support::same(&rendered, &expected)
}

fn identity(object: &Value) -> [String; 4] {
    let text =
        |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_string();
    [text("/apiVersion"), text("/kind"), text("/metadata/namespace"), text("/metadata/name")]
}
