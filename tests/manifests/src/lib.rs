//! Objects of the files in `manifests/`, for tests.

// A test fails by panicking, in its helper functions too.
#![allow(clippy::panic)]

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Files with a complete installation.
pub const INSTALLATIONS: [&str; 5] =
    ["install.yaml", "hardened.yaml", "install-cert-manager.yaml", "experimental.yaml", "openshift.yaml"];

/// Files applied in addition to an installation.
pub const ADDITIONS: [&str; 8] = [
    "console.yaml",
    "default-catalogs.yaml",
    "hardened-api-services.yaml",
    "hardened-escalate.yaml",
    "hardened-impersonation.yaml",
    "monitoring.yaml",
    "monitoring-cert-manager.yaml",
    "operator-conditions.yaml",
];

/// Names of the servers.
pub const SERVERS: [&str; 2] = ["catalogd", "operator-controller"];

/// Path of a file of `manifests/`.
pub fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests").join(file)
}

/// Objects of a file of `manifests/`, in file order.
///
/// # Panics
/// The file is not valid YAML.
pub fn objects(file: &str) -> Vec<Value> {
    objects_at(&path(file))
}

/// Objects of a YAML file, in file order.
///
/// # Panics
/// The file is not valid YAML.
pub fn objects_at(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    documents.into_iter().filter(|object| !object.is_null()).collect()
}

/// Objects of this kind.
pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// Text at a JSON pointer. Empty if absent.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// `Kind namespace/name` or `Kind name`.
pub fn identity(object: &Value) -> String {
    let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
    match text(object, "/metadata/namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// Object of this kind and name.
///
/// # Panics
/// There is no such object.
pub fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    of_kind(objects, kind)
        .into_iter()
        .find(|object| text(object, "/metadata/name") == name)
        .unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// Deployment of a server.
///
/// # Panics
/// There is no such Deployment.
pub fn deployment<'a>(objects: &'a [Value], server: &str) -> &'a Value {
    named(objects, "Deployment", &format!("{server}-controller-manager"))
}

/// Only container of a Deployment.
pub fn container(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]
}

/// Strings of an array.
pub fn strings(array: &Value) -> Vec<&str> {
    array.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
