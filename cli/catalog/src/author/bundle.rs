//! Conversion of a bundle to its `olm.bundle` catalog object (docs/design/catalogd.md#schemas). The values equal
//! those of `opm render` with the metadata of the ClusterServiceVersion in place of the manifests.
//!
//! Pure: takes files, returns the object. Rejects what the cluster would fail to load.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::{list, text};
use olm_cli_core::error::CliError;
use olm_fbc::{ChannelEntry, PROPERTY_CSV_METADATA};
use olm_resolve::{DEPENDENCY_PROPERTIES, Gvk};
use olm_version::VersionRelease;
use serde::Deserialize;
use serde_json::{Value, json};

use super::csv;

const CHANNELS: &str = "operators.operatorframework.io.bundle.channels.v1";
const DEFAULT_CHANNEL: &str = "operators.operatorframework.io.bundle.channel.default.v1";
const SKIP_RANGE: &str = "olm.skipRange";
const PROPERTIES: &str = "olm.properties";
const ANNOTATIONS_FILE: &str = "metadata/annotations.yaml";
const DEPENDENCIES_FILE: &str = "metadata/dependencies.yaml";
const PROPERTIES_FILE: &str = "metadata/properties.yaml";

/// Bundle as described in a catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogBundle {
    /// Name of the package.
    pub package: String,
    /// Name of the bundle, which is that of the ClusterServiceVersion.
    pub name: String,
    /// Version as written in the ClusterServiceVersion.
    pub version: String,
    /// Release. Empty if there is none.
    pub release: String,
    /// Channels of the bundle's annotations, in their order.
    pub channels: Vec<String>,
    /// Entry of the bundle in its channels, with the upgrade edges of the ClusterServiceVersion.
    pub entry: ChannelEntry,
    /// Catalog object with schema `olm.bundle`.
    pub object: Value,
}

impl CatalogBundle {
    /// Version and release as text.
    pub(crate) fn shown_version(&self) -> String {
        if self.release.is_empty() {
            self.version.clone()
        } else {
            format!("{}-{}", self.version, self.release)
        }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Property {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    value: Value,
}

/// Builds the `olm.bundle` object of the bundle with these files (by path from its root) and the image reference
/// `image`, which need not exist yet.
///
/// # Errors
/// The files are not a registry+v1 bundle, have several ClusterServiceVersions, lack a package name, a valid version or
/// an owned CustomResourceDefinition. The message names file and field.
pub fn catalog_bundle(files: &BTreeMap<String, Vec<u8>>, image: &str) -> Result<CatalogBundle, CliError> {
    let bundle = olm_bundle::BundleContent::load(files)?;
    let [file] = bundle.csv_files() else {
        let files = bundle.csv_files().join(", ");
        return Err(CliError::at("a bundle has one ClusterServiceVersion, found several", files));
    };
    let objects = manifests(files)?;
    let authored = objects.iter().find(|object| kind(object) == "ClusterServiceVersion");
    let in_list = "a ClusterServiceVersion in a List is not supported: move it to a document of its own";
    let authored = authored.ok_or_else(|| CliError::at(file, in_list))?;
    let csv = csv::normal(authored.clone()).map_err(|error| CliError::at(file, error))?;
    let (package, name) = (bundle.package_name().to_owned(), bundle.name().to_owned());
    if package.is_empty() {
        let key = "operators.operatorframework.io.bundle.package.v1";
        return Err(CliError::at(ANNOTATIONS_FILE, format!("annotation {key} must be the package name")));
    }
    if name.is_empty() {
        return Err(CliError::at(file, "metadata.name must be the bundle name"));
    }
    let version = text(&csv, "/spec/version").to_owned();
    let release = release(authored);
    VersionRelease::parse(&version, Some(release.as_str()).filter(|release| !release.is_empty())).map_err(
        |error| CliError::at(file, format!("spec.version {}: {error}", olm_version::quote(&version))),
    )?;
    let provided = provided(&csv, &objects)?;
    let mut package_value = json!({ "packageName": package, "version": version });
    if !release.is_empty() {
        package_value["release"] = json!(release);
    }
    let properties = properties(files, &csv, provided, package_value)?;
    let channels = channels(files)?;
    let mut object = json!({
        "schema": olm_fbc::SCHEMA_BUNDLE,
        "name": name,
        "package": package,
        "image": image,
        "properties": properties,
    });
    let related = related_images(&csv, image);
    if !related.is_empty() {
        object["relatedImages"] = json!(related);
    }
    let skips = list(&csv, "/spec/skips").iter().filter_map(Value::as_str);
    let entry = ChannelEntry {
        name: name.clone(),
        replaces: text(&csv, "/spec/replaces").to_owned(),
        skips: skips.map(str::to_owned).collect(),
        skip_range: csv["metadata"]["annotations"][SKIP_RANGE].as_str().unwrap_or_default().to_owned(),
    };
    Ok(CatalogBundle { package, name, version, release, channels, entry, object })
}

/// `spec.release` of the ClusterServiceVersion as authored, which may be a number. Empty if absent.
fn release(csv: &Value) -> String {
    match &csv["spec"]["release"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// All objects of the manifests. List objects are not expanded.
pub(super) fn manifests(files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<Value>, CliError> {
    let mut objects = Vec::new();
    for (path, content) in files.iter().filter(|(path, _)| path.starts_with("manifests/")) {
        let documents = olm_yaml::all_from_slice(content);
        objects.extend(documents.map_err(|error| CliError::at(path, error))?);
    }
    Ok(objects)
}

fn kind(object: &Value) -> &str {
    text(object, "/kind")
}

/// API of a description in the ClusterServiceVersion.
fn api(group: &str, description: &Value) -> Gvk {
    let field = |pointer| text(description, pointer).to_owned();
    Gvk { group: group.to_owned(), version: field("/version"), kind: field("/kind") }
}

/// API that a CustomResourceDefinition defines, whose name is `plural.group`.
fn defined_api(description: &Value) -> Result<Gvk, CliError> {
    let name = text(description, "/name");
    let Some((_, group)) = name.split_once('.') else {
        let what = "expected the name of a CustomResourceDefinition, <plural>.<group>";
        return Err(CliError::at("spec.customresourcedefinitions", format!("{what}, got {name:?}")));
    };
    Ok(api(group, description))
}

fn aggregated_api(description: &Value) -> Gvk {
    api(text(description, "/group"), description)
}

/// APIs that the bundle provides: every version of its CustomResourceDefinitions, and its aggregated APIs.
fn provided(csv: &Value, objects: &[Value]) -> Result<BTreeSet<Gvk>, CliError> {
    let mut provided = BTreeSet::new();
    for object in objects.iter().filter(|object| kind(object) == "CustomResourceDefinition") {
        let names = list(object, "/spec/versions").iter().map(|version| text(version, "/name"));
        // CRDs before v1 may have a single version outside of the list.
        for version in names.chain([text(object, "/spec/version")]).filter(|version| !version.is_empty()) {
            provided.insert(Gvk {
                group: text(object, "/spec/group").to_owned(),
                version: version.to_owned(),
                kind: text(object, "/spec/names/kind").to_owned(),
            });
        }
    }
    for owned in list(csv, "/spec/customresourcedefinitions/owned") {
        let gvk = defined_api(owned)?;
        if !provided.contains(&gvk) {
            let name = text(owned, "/name");
            return Err(CliError::at(
                "spec.customresourcedefinitions.owned",
                format!("no manifest defines {name} ({} {})", gvk.version, gvk.kind),
            ));
        }
    }
    provided.extend(list(csv, "/spec/apiservicedefinitions/owned").iter().map(aggregated_api));
    Ok(provided)
}

/// APIs that the ClusterServiceVersion requires.
fn required(csv: &Value) -> Result<BTreeSet<Gvk>, CliError> {
    let crds = list(csv, "/spec/customresourcedefinitions/required").iter().map(defined_api);
    let services = list(csv, "/spec/apiservicedefinitions/required").iter().map(aggregated_api);
    crds.chain(services.map(Ok)).collect()
}

/// Properties of the object, sorted by type and value, with the CSV metadata last.
fn properties(
    files: &BTreeMap<String, Vec<u8>>,
    csv: &Value,
    mut provided: BTreeSet<Gvk>,
    mut package: Value,
) -> Result<Vec<Value>, CliError> {
    let mut required = required(csv)?;
    let mut others = BTreeSet::new();
    let mut other = |kind: &str, value: Value| {
        others.insert((kind.to_owned(), value.to_string()));
    };
    let of_file = listed(files, PROPERTIES_FILE, "properties")?.into_iter().map(|one| (PROPERTIES_FILE, one));
    let of_csv = annotated(csv)?.into_iter().map(|one| (PROPERTIES, one));
    for (place, property) in of_file.chain(of_csv) {
        match property.kind.as_str() {
            "olm.gvk" => {
                provided.insert(gvk(place, &property)?);
            }
            // The package property is built from the annotations, unless the ClusterServiceVersion has one.
            "olm.package" if place == PROPERTIES_FILE => {}
            "olm.package" => {
                let field = |name: &str| string(place, &property, name);
                field("packageName")?;
                field("version")?;
                package = property.value;
            }
            kind => other(kind, valued(place, &property)?),
        }
    }
    for dependency in listed(files, DEPENDENCIES_FILE, "dependencies")? {
        match dependency.kind.as_str() {
            "olm.gvk" => {
                required.insert(gvk(DEPENDENCIES_FILE, &dependency)?);
            }
            "olm.package" => {
                let field = |name: &str| string(DEPENDENCIES_FILE, &dependency, name);
                let value =
                    json!({ "packageName": field("packageName")?, "versionRange": field("version")? });
                other("olm.package.required", value);
            }
            kind => other(kind, valued(DEPENDENCIES_FILE, &dependency)?),
        }
    }
    other("olm.package", package);
    provided.iter().for_each(|gvk| other("olm.gvk", json!(gvk)));
    required.iter().for_each(|gvk| other("olm.gvk.required", json!(gvk)));
    let mut properties = Vec::new();
    for (kind, value) in others {
        let value: Value =
            serde_json::from_str(&value).map_err(|error| CliError::at("encode the bundle", error))?;
        properties.push(json!({ "type": kind, "value": value }));
    }
    properties.push(json!({ "type": PROPERTY_CSV_METADATA, "value": csv::metadata_property(csv) }));
    Ok(properties)
}

/// Elements of the list `key` in a bundle file. Empty if the file is missing.
fn listed(files: &BTreeMap<String, Vec<u8>>, file: &str, key: &str) -> Result<Vec<Property>, CliError> {
    let Some(content) = files.get(file) else {
        return Ok(Vec::new());
    };
    let mut document = olm_yaml::from_slice(content).map_err(|error| CliError::at(file, error))?;
    let list = document.get_mut(key).map(Value::take).unwrap_or_default();
    Option::<Vec<Property>>::deserialize(list).map(Option::unwrap_or_default).map_err(|error| {
        CliError::at(file, format!("{key}: expected a list of objects with type and value: {error}"))
    })
}

/// Properties in the annotation of the ClusterServiceVersion.
fn annotated(csv: &Value) -> Result<Vec<Property>, CliError> {
    let Some(text) = csv["metadata"]["annotations"][PROPERTIES].as_str() else {
        return Ok(Vec::new());
    };
    let properties: Option<Vec<Property>> =
        serde_json::from_str(text).map_err(|error| CliError::at("annotation olm.properties", error))?;
    Ok(properties.unwrap_or_default())
}

fn gvk(place: &str, property: &Property) -> Result<Gvk, CliError> {
    let field = |name: &str| string(place, property, name);
    Ok(Gvk { group: field("group")?, version: field("version")?, kind: field("kind")? })
}

/// Value of a property. Those of requirements must not be missing.
fn valued(place: &str, property: &Property) -> Result<Value, CliError> {
    let is_requirement =
        place == DEPENDENCIES_FILE || DEPENDENCY_PROPERTIES.contains(&property.kind.as_str());
    if property.value.is_null() && is_requirement {
        return Err(CliError::at(place, format!("{} needs the field value", property.kind)));
    }
    Ok(property.value.clone())
}

fn string(place: &str, property: &Property, field: &str) -> Result<String, CliError> {
    property
        .value
        .get(field)
        .and_then(Value::as_str)
        .map(str::to_owned)
        .ok_or_else(|| CliError::at(place, format!("{} needs the string field value.{field}", property.kind)))
}

/// Channels in the annotations of the bundle's metadata.
fn channels(files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<String>, CliError> {
    let content = files.get(ANNOTATIONS_FILE).map(Vec::as_slice).unwrap_or_default();
    let document = olm_yaml::from_slice(content).map_err(|error| CliError::at(ANNOTATIONS_FILE, error))?;
    for key in [DEFAULT_CHANNEL, CHANNELS] {
        let value = document.get("annotations").and_then(|annotations| annotations.get(key));
        // Without quotes, `4.10` would become channel 4.1.
        if value.is_some_and(|value| !value.is_string()) {
            let why = format!("annotation {key} must be a string: quote a value that looks like a number");
            return Err(CliError::at(ANNOTATIONS_FILE, why));
        }
    }
    let names = document["annotations"][CHANNELS].as_str().unwrap_or_default().split(',').map(str::trim);
    Ok(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// Images that the bundle uses: relatedImages, the bundle image, and the images of the operator's containers.
fn related_images(csv: &Value, image: &str) -> Vec<Value> {
    let mut related = list(csv, "/spec/relatedImages").to_vec();
    for image in [image].into_iter().chain(csv::container_images(csv)) {
        if !image.is_empty() && !related.iter().any(|known| known["image"] == image) {
            related.push(json!({ "name": "", "image": image }));
        }
    }
    related.sort_by(|a, b| text(a, "/image").cmp(text(b, "/image")));
    related
}

#[cfg(test)]
#[path = "bundle_tests.rs"]
mod tests;
