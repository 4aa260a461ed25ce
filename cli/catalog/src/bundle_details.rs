//! Details of one bundle in a catalog, beyond its version and edges.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use olm_fbc::{Bundle, PROPERTY_BUNDLE_OBJECT, PROPERTY_CSV_METADATA, Property, RelatedImage};
use serde::Serialize;
use serde_json::Value;

use super::package::CatalogPackage;

/// Bundle as printed by `olm catalog show`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleDetails {
    pub(crate) name: String,
    /// Version as parsed by the resolver. Absent if invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Reference of the bundle image.
    pub image: String,
    /// Channels that have an entry for the bundle.
    pub channels: Vec<String>,
    /// Deprecation messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deprecation: Vec<String>,
    /// Supported install modes.
    pub install_modes: Vec<String>,
    /// Provided APIs as `Kind.version.group`.
    pub provides: Vec<String>,
    /// Dependencies as text.
    pub requires: Vec<String>,
    /// Reason for which v1 refuses to install the bundle, as far as the catalog shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Images that the catalog lists for the bundle.
    pub related_images: Vec<RelatedImage>,
}

impl BundleDetails {
    /// Collects the details of `bundle`, which belongs to `package`.
    pub fn new(package: &CatalogPackage, bundle: &Bundle) -> Self {
        let has_entry =
            |channel: &&olm_fbc::Channel| channel.entries.iter().any(|entry| entry.name == bundle.name);
        let channels = package.content.channels.iter().filter(has_entry).map(|channel| channel.name.clone());
        let dependency = package.offer(&bundle.name).and_then(|offer| offer.dependency());
        Self {
            name: bundle.name.clone(),
            version: package.version(&bundle.name),
            image: bundle.image.clone(),
            channels: channels.collect(),
            deprecation: package.bundle_deprecation(&bundle.name),
            install_modes: csv_facts(bundle).install_modes,
            provides: values(bundle, "olm.gvk").filter_map(|value| api(&value)).collect(),
            requires: bundle.properties.iter().filter_map(requirement).collect(),
            refused: dependency
                .map(|property| format!("OLM v1 refuses bundles with a dependency (property {property})")),
            related_images: bundle.related_images.clone(),
        }
    }
}

/// Fields of a bundle's ClusterServiceVersion, as far as the catalog contains it.
#[derive(Debug, Default)]
pub(crate) struct CsvFacts {
    /// `spec.displayName`.
    pub(crate) display_name: Option<String>,
    /// Supported install modes.
    pub(crate) install_modes: Vec<String>,
    /// `metadata.labels`.
    pub(crate) labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Reads the fields from `olm.csv.metadata`, else from the ClusterServiceVersion among `olm.bundle.object`.
pub(crate) fn csv_facts(bundle: &Bundle) -> CsvFacts {
    let texts = |map: &Value| {
        let map = map.as_object().into_iter().flatten();
        map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    };
    let facts = |fields: &Value, metadata: &Value| CsvFacts {
        display_name: fields["displayName"].as_str().map(str::to_owned),
        install_modes: fields["installModes"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|mode| mode["supported"] == true)
            .filter_map(|mode| mode["type"].as_str().map(str::to_owned))
            .collect(),
        labels: texts(&metadata["labels"]),
        annotations: texts(&metadata["annotations"]),
    };
    if let Some(metadata) = values(bundle, PROPERTY_CSV_METADATA).next() {
        return facts(&metadata, &metadata);
    }
    let csv = bundle_objects(bundle).find(|object| object["kind"] == "ClusterServiceVersion");
    csv.map(|csv| facts(&csv["spec"], &csv["metadata"])).unwrap_or_default()
}

/// Manifests among the properties `olm.bundle.object`. Skips those that cannot be parsed.
pub fn bundle_objects(bundle: &Bundle) -> impl Iterator<Item = Value> + '_ {
    values(bundle, PROPERTY_BUNDLE_OBJECT).filter_map(|value| {
        let data = BASE64_STANDARD.decode(value["data"].as_str()?).ok()?;
        olm_yaml::from_slice(&data).ok()
    })
}

/// Values of all properties of one type. Skips values that cannot be parsed.
pub fn values<'a>(bundle: &'a Bundle, kind: &'a str) -> impl Iterator<Item = Value> + 'a {
    bundle.properties.iter().filter(move |property| property.kind == kind).filter_map(|one| one.parse().ok())
}

/// Formats a provided API, such as `EtcdCluster.v1beta2.etcd.database.coreos.com`.
fn api(value: &Value) -> Option<String> {
    let text = |field: &str| value[field].as_str();
    Some(format!("{}.{}.{}", text("kind")?, text("version")?, text("group").unwrap_or_default()))
}

/// Text of the dependency that `property` declares, if any.
fn requirement(property: &Property) -> Option<String> {
    let value = || property.parse::<Value>().unwrap_or_default();
    match property.kind.as_str() {
        "olm.package.required" => {
            let value = value();
            let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
            Some(format!("package {} {}", text("packageName"), text("versionRange")).trim_end().to_owned())
        }
        "olm.gvk.required" => {
            Some(format!("API {}", api(&value()).unwrap_or_else(|| property.value.get().to_owned())))
        }
        "olm.constraint" => Some(format!("constraint {}", property.value.get())),
        _ => None,
    }
}
