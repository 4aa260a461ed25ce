//! Examples of an API: `alm-examples` of the installed bundle, as catalogs contain them.

use olm_api::ClusterExtension;
use olm_api::labels::METADATA_NAME;
use olm_cli_catalog::bundle_details::values;
use olm_cli_catalog::package::CatalogPackage;
use olm_cli_core::output;
use olm_cli_lifecycle::status::tree::installed;
use olm_fbc::{Bundle, PROPERTY_CSV_METADATA};
use serde_json::{Value, json};

use super::Api;
use crate::app::Console;
use crate::visitor::Visitor;

/// Limits of the examples of one API, and of their size in bytes.
const EXAMPLES: usize = 20;
const LARGEST: usize = 64 << 10;

/// Names and YAML of the examples for the API, from the catalog that the extension selects, else from the first one
/// with its bundle. A single example without content if the bundle has none.
pub(super) async fn examples(
    console: &Console,
    visitor: &Visitor,
    api: &Api,
    extension: &ClusterExtension,
) -> Vec<(String, String)> {
    let filter = extension.spec.as_ref().and_then(|spec| spec.source.catalog.as_ref());
    let package = filter.map(|filter| filter.package_name.clone()).unwrap_or_default();
    let bundle = installed(extension).map(|bundle| bundle.name).unwrap_or_default();
    let selected =
        filter.and_then(|filter| filter.selector.as_ref()?.match_labels.as_ref()?.get(METADATA_NAME));
    // Without a catalog, only the skeleton remains.
    let mut catalogs = console.library.catalogs(console, visitor).await.unwrap_or_default();
    catalogs.sort_by_key(|catalog| Some(&catalog.name) != selected);
    let (group, kind) = (api.gvk.group.clone(), api.gvk.kind.clone());
    let read = move || {
        let contents = catalogs.into_iter().filter_map(|catalog| catalog.content.ok());
        let mut packages = contents.filter_map(|content| content.package(&package).ok());
        let of = |package: CatalogPackage| Some(of_bundle(package.bundle(&bundle)?, &group, &kind));
        Ok(packages.find_map(of).unwrap_or_default())
    };
    let mut found = console.render(read).await.unwrap_or_default();
    if found.is_empty() {
        found.push(skeleton(&api.version(), &api.gvk.kind));
    }
    found.into_iter().filter_map(|object| shown(&object)).take(EXAMPLES).collect()
}

/// Examples of a kind, in any of its versions.
fn of_bundle(bundle: &Bundle, group: &str, kind: &str) -> Vec<Value> {
    let metadata = values(bundle, PROPERTY_CSV_METADATA).next().unwrap_or_default();
    let text = metadata["annotations"]["alm-examples"].as_str().unwrap_or_default();
    let all: Value = serde_json::from_str(text).unwrap_or_default();
    let is_kind = |object: &&Value| {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        object["kind"] == kind && version.split_once('/').is_some_and(|(of, _)| of == group)
    };
    all.as_array().into_iter().flatten().filter(is_kind).cloned().collect()
}

fn skeleton(version: &str, kind: &str) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": "example"}, "spec": {}})
}

fn shown(object: &Value) -> Option<(String, String)> {
    let name = object["metadata"]["name"].as_str().unwrap_or("example").to_owned();
    let text = output::yaml(object).ok().filter(|text| text.len() <= LARGEST)?;
    Some((name, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_the_kind_are_found() {
        let examples = json!([
            {"apiVersion": "a.io/v1beta1", "kind": "Lamp", "metadata": {"name": "one"}},
            {"apiVersion": "b.io/v1", "kind": "Lamp"},
            {"apiVersion": "a.io/v1", "kind": "Shade"},
            7,
        ]);
        let of = |text: &str| -> usize {
            let bundle = json!({"schema": "olm.bundle", "package": "p", "name": "p.v1", "image": "i", "properties": [
                {"type": "olm.csv.metadata", "value": {"annotations": {"alm-examples": text}}}]});
            of_bundle(&serde_json::from_value(bundle).unwrap(), "a.io", "Lamp").len()
        };
        assert_eq!((of(&examples.to_string()), of("{"), of("")), (1, 0, 0));
        assert!(shown(&skeleton("a.io/v1", "Lamp")).unwrap().1.contains("kind: Lamp"));
    }
}
