//! Namespace that a bundle suggests for its operator (docs/reference/bundle-files.md#suggested-namespaces). Pure.

use std::collections::BTreeMap;

use kube::core::ObjectMeta;
use olm_cli_core::names::is_label;
use olm_fbc::Bundle;
use olm_version::quote;
use serde_json::Value;

use super::bundle_details::csv_facts;

/// Annotation of the ClusterServiceVersion with a Namespace as JSON.
const TEMPLATE: &str = "operatorframework.io/suggested-namespace-template";
/// Annotation of the ClusterServiceVersion with a name.
const NAME: &str = "operatorframework.io/suggested-namespace";

/// Suggested namespace.
#[derive(Debug, Clone)]
pub struct SuggestedNamespace {
    /// Name, with labels and annotations of the template.
    pub metadata: ObjectMeta,
    /// `true` if the bundle names it, `false` if its name is derived from that of the package.
    pub is_of_bundle: bool,
}

impl SuggestedNamespace {
    /// The namespace of the template, else of the name, else `<package>-system`.
    ///
    /// # Errors
    /// The name belongs to Kubernetes, or is not valid. The message tells which.
    pub fn of(package: &str, bundle: Option<&Bundle>) -> Result<Self, String> {
        let annotations = bundle.map(|bundle| csv_facts(bundle).annotations).unwrap_or_default();
        let is_valid = |found: &ObjectMeta| found.name.as_deref().is_some_and(is_label);
        let template = annotations.get(TEMPLATE).and_then(|text| from_template(text)).filter(is_valid);
        let named = || annotations.get(NAME).map(|name| of_name(name.trim())).filter(is_valid);
        let of_bundle = template.or_else(named);
        let is_of_bundle = of_bundle.is_some();
        let metadata = of_bundle.unwrap_or_else(|| of_name(&format!("{package}-system")));
        let name = metadata.name.as_deref().unwrap_or_default();
        let fault = match name {
            _ if !is_label(name) => "is not a valid name",
            _ if is_reserved(name) => "belongs to Kubernetes",
            _ => return Ok(Self { metadata, is_of_bundle }),
        };
        let source = if is_of_bundle { "suggested by the bundle" } else { "named after the package" };
        Err(format!("namespace {}, {source}, {fault}", quote(name)))
    }
}

fn of_name(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// Name, labels and annotations of a Namespace as JSON, without keys of OLM, which a bundle must not set. `None` if it has
/// no name.
fn from_template(text: &str) -> Option<ObjectMeta> {
    let template: Value = serde_json::from_str(text).ok()?;
    let texts = |field: &str| -> Option<BTreeMap<String, String>> {
        let map = template["metadata"][field].as_object()?.iter();
        let map = map.filter(|(key, _)| !key.contains("olm.operatorframework.io/"));
        Some(map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect())
    };
    let name = template["metadata"]["name"].as_str()?.to_owned();
    Some(ObjectMeta {
        name: Some(name),
        labels: texts("labels"),
        annotations: texts("annotations"),
        ..ObjectMeta::default()
    })
}

/// A bundle must not choose these by itself: other programs trust what runs there.
fn is_reserved(name: &str) -> bool {
    name == "default" || name.starts_with("kube-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn suggested(annotations: Value) -> Result<(String, Value, bool), String> {
        let properties = json!([{"type": "olm.csv.metadata", "value": {"annotations": annotations}}]);
        let bundle = json!({"schema": "olm.bundle", "package": "lamp", "name": "lamp.v1", "image": "r/lamp", "properties": properties});
        let bundle: Bundle = serde_json::from_value(bundle).unwrap();
        let found = SuggestedNamespace::of("lamp", Some(&bundle))?;
        let ObjectMeta { name, labels, annotations, .. } = found.metadata;
        Ok((name.unwrap(), json!([labels, annotations]), found.is_of_bundle))
    }

    #[test]
    fn template_precedes_name_which_precedes_package() {
        let none = json!([null, null]);
        let template = |metadata: Value| json!({"kind": "Namespace", "metadata": metadata}).to_string();
        let privileged = json!({"pod-security.kubernetes.io/enforce": "privileged"});
        let whole = template(
            json!({"name": "lights", "labels": privileged, "annotations": {"openshift.io/node-selector": ""}}),
        );
        let both = suggested(json!({TEMPLATE: whole, NAME: "other"}));
        let parts = json!([privileged, {"openshift.io/node-selector": ""}]);
        assert_eq!(both, Ok(("lights".to_owned(), parts, true)));
        for (annotations, name, is_of_bundle) in [
            (json!({NAME: "lights"}), "lights", true),
            (json!({TEMPLATE: "no JSON", NAME: "lights"}), "lights", true),
            (json!({TEMPLATE: template(json!({})), NAME: "lights"}), "lights", true),
            (json!({TEMPLATE: template(json!({"name": "Not A Name"})), NAME: "lights"}), "lights", true),
            (json!({NAME: "Not A Name"}), "lamp-system", false),
            (json!({}), "lamp-system", false),
        ] {
            assert_eq!(
                suggested(annotations.clone()),
                Ok((name.to_owned(), none.clone(), is_of_bundle)),
                "{annotations}"
            );
        }
        for name in ["kube-system", "default"] {
            let refused = suggested(json!({NAME: name})).unwrap_err();
            assert_eq!(
                refused,
                format!("namespace {name:?}, suggested by the bundle, belongs to Kubernetes")
            );
        }
        let of_package = |package: &str| SuggestedNamespace::of(package, None).unwrap_err();
        let invalid = "namespace \"lamp.io-system\", named after the package, is not a valid name";
        assert_eq!(of_package("lamp.io"), invalid);
        let reserved = "namespace \"kube-green-system\", named after the package, belongs to Kubernetes";
        assert_eq!(of_package("kube-green"), reserved);
    }
}
