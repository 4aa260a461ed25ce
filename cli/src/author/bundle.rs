//! Conversion of a bundle to its `olm.bundle` catalog object (docs/design/catalogd.md#schemas). The values equal
//! those of `opm render` with the metadata of the ClusterServiceVersion in place of the manifests.
//!
//! Pure: takes files, returns the object. Rejects what the cluster would fail to load.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::text;
use olm_version::VersionRelease;
use serde::Deserialize;
use serde_json::{Value, json};

use super::csv::{Csv, RelatedImage};

const CHANNELS: &str = "operators.operatorframework.io.bundle.channels.v1";
const DEFAULT_CHANNEL: &str = "operators.operatorframework.io.bundle.channel.default.v1";
const SKIP_RANGE: &str = "olm.skipRange";
const PROPERTIES: &str = "olm.properties";
const ANNOTATIONS_FILE: &str = "metadata/annotations.yaml";
const DEPENDENCIES_FILE: &str = "metadata/dependencies.yaml";
const PROPERTIES_FILE: &str = "metadata/properties.yaml";

/// Bundle as described in a catalog.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CatalogBundle {
    pub(crate) package: String,
    pub(crate) name: String,
    /// Version as written in the ClusterServiceVersion.
    pub(crate) version: String,
    /// Release. Empty if there is none.
    pub(crate) release: String,
    /// Channels of the bundle's annotations, in their order.
    pub(crate) channels: Vec<String>,
    /// Default channel of the bundle's annotations.
    pub(crate) default_channel: Option<String>,
    /// Upgrade edges of the ClusterServiceVersion.
    pub(crate) edges: Edges,
    pub(crate) object: Value,
}

/// Upgrade edges that lead to a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Edges {
    /// `spec.replaces`. May be empty.
    pub(crate) replaces: String,
    /// `spec.skips`.
    pub(crate) skips: Vec<String>,
    /// The annotation `olm.skipRange`. May be empty.
    pub(crate) skip_range: String,
}

/// Reason for which the files are no valid catalog bundle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BundleError(String);

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

impl From<olm_bundle::LoadError> for BundleError {
    fn from(error: olm_bundle::LoadError) -> Self {
        Self(error.to_string())
    }
}

/// Group, version and kind of an API that an operator provides or requires.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Gvk {
    group: String,
    version: String,
    kind: String,
}

impl Gvk {
    fn value(&self) -> Value {
        json!({ "group": self.group, "kind": self.kind, "version": self.version })
    }

    /// GVK of a CRD description in the ClusterServiceVersion, whose name is `plural.group`.
    fn of_definition(name: &str, version: &str, kind: &str) -> Result<Self, BundleError> {
        let Some((_, group)) = name.split_once('.') else {
            let what = "expected the name of a CustomResourceDefinition, <plural>.<group>";
            return Err(BundleError(format!("spec.customresourcedefinitions: {what}, got {name:?}")));
        };
        Ok(Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() })
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
/// The files are no registry+v1 bundle, have several ClusterServiceVersions, lack a package name, a valid version or
/// an owned CustomResourceDefinition. The message names file and field.
pub(crate) fn catalog_bundle(
    files: &BTreeMap<String, Vec<u8>>,
    image: &str,
) -> Result<CatalogBundle, BundleError> {
    let bundle = olm_bundle::Bundle::load(files)?;
    let [file] = bundle.csv_files() else {
        let files = bundle.csv_files().join(", ");
        return Err(BundleError(format!("a bundle has one ClusterServiceVersion, found several: {files}")));
    };
    let objects = manifests(files)?;
    let csv = objects.iter().find(|object| kind(object) == "ClusterServiceVersion").cloned();
    let csv = Csv::read(csv.unwrap_or_default()).map_err(|error| BundleError(format!("{file}: {error}")))?;
    let (package, name) = (bundle.package_name().to_owned(), bundle.name().to_owned());
    if package.is_empty() {
        let key = "operators.operatorframework.io.bundle.package.v1";
        return Err(BundleError(format!("{ANNOTATIONS_FILE}: annotation {key} must name the package")));
    }
    if name.is_empty() {
        return Err(BundleError(format!("{file}: metadata.name must name the bundle")));
    }
    let release = csv.release();
    let version = csv.spec.version.clone();
    VersionRelease::parse(&version, Some(release.as_str()).filter(|release| !release.is_empty())).map_err(
        |error| BundleError(format!("{file}: spec.version {}: {error}", olm_version::quote(&version))),
    )?;
    let provided = provided(&csv, &objects)?;
    let mut package_value = json!({ "packageName": package, "version": version });
    if !release.is_empty() {
        package_value["release"] = json!(release);
    }
    let properties = properties(files, &csv, provided, package_value)?;
    let annotations = annotations(files)?;
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
    let edges = Edges {
        replaces: csv.spec.replaces.clone(),
        skips: csv.spec.skips.clone(),
        skip_range: csv.metadata.annotations.get(SKIP_RANGE).cloned().unwrap_or_default(),
    };
    let channels = annotations.get(CHANNELS).map(|list| names(list)).unwrap_or_default();
    let default_channel =
        annotations.get(DEFAULT_CHANNEL).map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    Ok(CatalogBundle { package, name, version, release, channels, default_channel, edges, object })
}

/// Names of a comma-separated list.
fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// All objects of the manifests. List objects are not expanded, because none of the objects used here occurs in one.
fn manifests(files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<Value>, BundleError> {
    let mut objects = Vec::new();
    for (path, content) in files.iter().filter(|(path, _)| path.starts_with("manifests/")) {
        let documents =
            olm_yaml::all_from_slice(content).map_err(|error| BundleError(format!("{path}: {error}")))?;
        objects.extend(documents);
    }
    Ok(objects)
}

fn kind(object: &Value) -> &str {
    text(object, "/kind")
}

/// APIs that the bundle provides: every version of its CustomResourceDefinitions, and its aggregated APIs.
fn provided(csv: &Csv, objects: &[Value]) -> Result<BTreeSet<Gvk>, BundleError> {
    let mut provided = BTreeSet::new();
    for object in objects.iter().filter(|object| kind(object) == "CustomResourceDefinition") {
        let versions = object.pointer("/spec/versions").and_then(Value::as_array);
        let names = versions.into_iter().flatten().map(|version| text(version, "/name"));
        // CRDs before v1 may have a single version outside of the list.
        for version in names.chain([text(object, "/spec/version")]).filter(|version| !version.is_empty()) {
            provided.insert(Gvk {
                group: text(object, "/spec/group").to_owned(),
                version: version.to_owned(),
                kind: text(object, "/spec/names/kind").to_owned(),
            });
        }
    }
    for owned in &csv.spec.definitions.owned {
        let gvk = Gvk::of_definition(&owned.name, &owned.version, &owned.kind)?;
        if !provided.contains(&gvk) {
            return Err(BundleError(format!(
                "spec.customresourcedefinitions.owned: no manifest defines {} ({} {})",
                owned.name, gvk.version, gvk.kind
            )));
        }
    }
    provided.extend(csv.spec.api_services.owned.iter().map(|api| Gvk {
        group: api.group.clone(),
        version: api.version.clone(),
        kind: api.kind.clone(),
    }));
    Ok(provided)
}

/// APIs that the ClusterServiceVersion requires.
fn required(csv: &Csv) -> Result<BTreeSet<Gvk>, BundleError> {
    let definitions = csv.spec.definitions.required.iter();
    let definitions = definitions.map(|api| Gvk::of_definition(&api.name, &api.version, &api.kind));
    let services = csv.spec.api_services.required.iter().map(|api| {
        Ok(Gvk { group: api.group.clone(), version: api.version.clone(), kind: api.kind.clone() })
    });
    definitions.chain(services).collect()
}

/// Properties of the object, sorted by type and value, with the CSV metadata last.
fn properties(
    files: &BTreeMap<String, Vec<u8>>,
    csv: &Csv,
    mut provided: BTreeSet<Gvk>,
    package: Value,
) -> Result<Vec<Value>, BundleError> {
    let mut required = required(csv)?;
    let mut package = package;
    let mut others = BTreeSet::new();
    let mut other = |kind: &str, value: Value| {
        others.insert((kind.to_owned(), value.to_string()));
    };
    for property in listed(files, PROPERTIES_FILE, "properties")? {
        match property.kind.as_str() {
            "olm.gvk" => {
                provided.insert(gvk(PROPERTIES_FILE, &property)?);
            }
            // The package property is built from the annotations.
            "olm.package" => {}
            kind => other(kind, property.value),
        }
    }
    for property in annotated(csv)? {
        match property.kind.as_str() {
            "olm.gvk" => {
                provided.insert(gvk(PROPERTIES, &property)?);
            }
            "olm.package" => package = property.value,
            kind => other(kind, property.value),
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
            kind => other(kind, dependency.value),
        }
    }
    others.insert(("olm.package".to_owned(), package.to_string()));
    others.extend(provided.iter().map(|gvk| ("olm.gvk".to_owned(), gvk.value().to_string())));
    others.extend(required.iter().map(|gvk| ("olm.gvk.required".to_owned(), gvk.value().to_string())));
    let encoding = |error: serde_json::Error| BundleError(format!("encode the bundle: {error}"));
    let mut properties = Vec::new();
    for (kind, value) in others {
        let value: Value = serde_json::from_str(&value).map_err(encoding)?;
        properties.push(json!({ "type": kind, "value": value }));
    }
    let metadata = csv.metadata_property().map_err(encoding)?;
    properties.push(json!({ "type": "olm.csv.metadata", "value": metadata }));
    Ok(properties)
}

/// Elements of the list `key` in a bundle file. Empty if the file is missing.
fn listed(files: &BTreeMap<String, Vec<u8>>, file: &str, key: &str) -> Result<Vec<Property>, BundleError> {
    let Some(content) = files.get(file) else {
        return Ok(Vec::new());
    };
    let mut document =
        olm_yaml::from_slice(content).map_err(|error| BundleError(format!("{file}: {error}")))?;
    let list = document.get_mut(key).map(Value::take).unwrap_or_default();
    Option::<Vec<Property>>::deserialize(list).map(Option::unwrap_or_default).map_err(|error| {
        let expected = "expected a list of objects with type and value";
        BundleError(format!("{file}: {key}: {expected}: {error}"))
    })
}

/// Properties in the annotation of the ClusterServiceVersion.
fn annotated(csv: &Csv) -> Result<Vec<Property>, BundleError> {
    let Some(text) = csv.metadata.annotations.get(PROPERTIES) else {
        return Ok(Vec::new());
    };
    let properties: Option<Vec<Property>> = serde_json::from_str(text)
        .map_err(|error| BundleError(format!("annotation {PROPERTIES}: {error}")))?;
    Ok(properties.unwrap_or_default())
}

fn gvk(place: &str, property: &Property) -> Result<Gvk, BundleError> {
    let field = |name: &str| string(place, property, name);
    Ok(Gvk { group: field("group")?, version: field("version")?, kind: field("kind")? })
}

fn string(place: &str, property: &Property, field: &str) -> Result<String, BundleError> {
    property
        .value
        .get(field)
        .and_then(Value::as_str)
        .map(str::to_owned)
        .ok_or_else(|| BundleError(format!("{place}: {} needs the text field value.{field}", property.kind)))
}

/// String annotations of the bundle's metadata.
fn annotations(files: &BTreeMap<String, Vec<u8>>) -> Result<BTreeMap<String, String>, BundleError> {
    let content = files.get(ANNOTATIONS_FILE).map(Vec::as_slice).unwrap_or_default();
    let document =
        olm_yaml::from_slice(content).map_err(|error| BundleError(format!("{ANNOTATIONS_FILE}: {error}")))?;
    let annotations = document.get("annotations").and_then(Value::as_object);
    let mut texts = BTreeMap::new();
    for (key, value) in annotations.into_iter().flatten() {
        match value {
            Value::String(text) => {
                texts.insert(key.clone(), text.clone());
            }
            // Without quotes, `4.10` would become channel 4.1.
            _ if key == CHANNELS || key == DEFAULT_CHANNEL => {
                let why = format!("annotation {key} must be text, in quotes where it looks like a number");
                return Err(BundleError(format!("{ANNOTATIONS_FILE}: {why}")));
            }
            _ => {}
        }
    }
    Ok(texts)
}

/// Images that the bundle uses: relatedImages, the bundle image, and the images of the operator's containers.
fn related_images(csv: &Csv, image: &str) -> Vec<RelatedImage> {
    let mut related = csv.spec.related_images.clone();
    for image in [image].into_iter().chain(csv.container_images()) {
        if !image.is_empty() && !related.iter().any(|known| known.image == image) {
            related.push(RelatedImage { name: String::new(), image: image.to_owned() });
        }
    }
    related.sort_by(|a, b| a.image.cmp(&b.image));
    related
}

#[cfg(test)]
#[path = "bundle_tests.rs"]
mod tests;
