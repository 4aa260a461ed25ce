//! ClusterExtensions and their conditions.

use kube::runtime::wait::Condition as Wait;
use olm_api::{ClusterExtension, Condition, conditions};
use serde_json::{Value, json};

/// Builds an extension of the package in the namespace. `catalog` is merged into `spec.source.catalog`.
pub fn extension(name: &str, namespace: &str, package: &str, catalog: Value) -> ClusterExtension {
    let mut filter = json!({"packageName": package});
    if let (Some(filter), Some(more)) = (filter.as_object_mut(), catalog.as_object()) {
        filter.extend(more.clone());
    }
    let object = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": name},
        "spec": {"namespace": namespace, "source": {"sourceType": "Catalog", "catalog": filter}},
    });
    serde_json::from_value(object)
        .unwrap_or_else(|error| unreachable!("the literal above is an extension: {error}"))
}

/// Formats the condition as `Status/Reason: message`, or `-` if it is absent.
pub fn describe(extension: &ClusterExtension, type_: &str) -> String {
    let shown = |c: &Condition| format!("{}/{}: {}", c.status, c.reason, c.message);
    extension
        .status
        .as_ref()
        .and_then(|status| conditions::find(&status.conditions, type_))
        .map_or_else(|| "-".to_owned(), shown)
}

/// Holds once the condition, formatted by [`describe`], begins with `expect` and has the latest generation.
pub fn condition(type_: &'static str, expect: impl Into<String>) -> impl Wait<ClusterExtension> {
    let expect = expect.into();
    move |extension: Option<&ClusterExtension>| {
        extension.is_some_and(|extension| {
            let current = extension
                .status
                .as_ref()
                .and_then(|status| conditions::find(&status.conditions, type_))
                .is_some_and(|c| c.observed_generation == extension.metadata.generation);
            current && describe(extension, type_).starts_with(&expect)
        })
    }
}

/// Holds once this version is installed and no change is in progress.
pub fn is_installed(version: &str) -> impl Wait<ClusterExtension> + use<> {
    let version = version.to_owned();
    move |extension: Option<&ClusterExtension>| {
        extension.is_some_and(|extension| {
            let Some(status) = &extension.status else {
                return false;
            };
            let installed = status.install.as_ref().is_some_and(|install| install.bundle.version == version);
            let settled = |type_: &str| {
                conditions::find(&status.conditions, type_).is_some_and(|c| {
                    c.status == "True"
                        && c.reason == "Succeeded"
                        && c.observed_generation == extension.metadata.generation
                })
            };
            installed && settled("Installed") && settled("Progressing") && status.active_revisions.len() == 1
        })
    }
}
