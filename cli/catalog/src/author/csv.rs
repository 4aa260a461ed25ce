//! Parts of a ClusterServiceVersion that a catalog contains, read from its normal form.

use olm_bundle::pointer::{list, text};
use serde_json::Value;

/// Fields of the property `olm.csv.metadata`, and where they come from (docs/design/catalogd.md#property-types). The
/// set is that of the reference.
const METADATA: [(&str, &str); 14] = [
    ("annotations", "/metadata/annotations"),
    ("apiServiceDefinitions", "/spec/apiservicedefinitions"),
    ("crdDescriptions", "/spec/customresourcedefinitions"),
    ("description", "/spec/description"),
    ("displayName", "/spec/displayName"),
    ("installModes", "/spec/installModes"),
    ("keywords", "/spec/keywords"),
    ("labels", "/metadata/labels"),
    ("links", "/spec/links"),
    ("maintainers", "/spec/maintainers"),
    ("maturity", "/spec/maturity"),
    ("minKubeVersion", "/spec/minKubeVersion"),
    ("nativeAPIs", "/spec/nativeAPIs"),
    ("provider", "/spec/provider"),
];

/// Normal form of a ClusterServiceVersion. An explicit `null` equals an absent field.
///
/// # Errors
/// A field has the wrong type.
pub(super) fn normal(mut object: Value) -> Result<Value, String> {
    drop_nulls(&mut object);
    olm_bundle::normal_csv(object)
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Value of the property `olm.csv.metadata` of a ClusterServiceVersion.
///
/// # Errors
/// A field has the wrong type.
pub(crate) fn metadata_of(csv: Value) -> Result<Value, String> {
    normal(csv).map(|csv| metadata_property(&csv))
}

/// Value of the property `olm.csv.metadata`, from the normal form.
pub(super) fn metadata_property(csv: &Value) -> Value {
    let field = |(name, place): (&str, &str)| {
        let value = csv.pointer(place).filter(|value| **value != "")?;
        Some((name.to_owned(), value.clone()))
    };
    Value::Object(METADATA.into_iter().filter_map(field).collect())
}

/// Images of all containers of the operator's deployments, with duplicates.
pub(super) fn container_images(csv: &Value) -> impl Iterator<Item = &str> {
    let is_known = text(csv, "/spec/install/strategy") == "deployment";
    let deployments = if is_known { list(csv, "/spec/install/spec/deployments") } else { &[] };
    let places = ["/spec/template/spec/containers", "/spec/template/spec/initContainers"];
    let containers = move |deployment| places.into_iter().flat_map(move |place| list(deployment, place));
    deployments.iter().flat_map(containers).map(|container| text(container, "/image"))
}
