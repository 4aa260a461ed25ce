//! Loader: parses the files of a bundle image (docs/design/bundles.md#image-layout,
//! docs/design/bundles.md#merged-properties).
//!
//! Error texts are those of the reference. The loader checks the form of the files. Rendering decides whether the
//! bundle can be installed.

use std::collections::{BTreeMap, BTreeSet};

use olm_version::excerpt;
use olm_yaml::{Stream, StreamError};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::bundle::BundleContent;
use crate::csv::{Csv, Deployment};
use crate::error::BundleLoadError;
use crate::go_json;
use crate::limits::{self, ManifestError, ManifestUsage};
use crate::properties::{self, PROPERTIES_ANNOTATION};
use crate::typed::{ConvertError, Type, convert, decode_fault, shortest};

const ANNOTATIONS_FILE: &str = "metadata/annotations.yaml";
const PROPERTIES_FILE: &str = "metadata/properties.yaml";
const MANIFESTS: &str = "manifests/";
/// Annotations that the reference reads, sorted by name.
const ANNOTATIONS: [&str; 3] = [
    "operators.operatorframework.io.bundle.channel.default.v1",
    "operators.operatorframework.io.bundle.channels.v1",
    PACKAGE_ANNOTATION,
];
const PACKAGE_ANNOTATION: &str = "operators.operatorframework.io.bundle.package.v1";

impl BundleContent {
    /// Loads a bundle from the files of an unpacked image, by slash-separated path relative to its root
    /// (`metadata/annotations.yaml`, `manifests/csv.yaml`, …). Files elsewhere are ignored
    /// (docs/design/bundles.md#image-layout).
    ///
    /// # Errors
    /// The files are not a registry+v1 bundle. See [`BundleLoadError`].
    pub fn load(files: &BTreeMap<String, Vec<u8>>) -> Result<Self, BundleLoadError> {
        limits::check(files)?;
        let package_name = package_name(files.get(ANNOTATIONS_FILE).ok_or(BundleLoadError::NoAnnotations)?)?;
        let mut manifests = Manifests::default();
        let mut in_manifests = files
            .range(MANIFESTS.to_string()..)
            .take_while(|(path, _)| path.starts_with(MANIFESTS))
            .peekable();
        if in_manifests.peek().is_none() {
            return Err(BundleLoadError::NoManifests);
        }
        for (path, content) in in_manifests {
            if let Some((directory, _)) = path[MANIFESTS.len()..].split_once('/') {
                return Err(BundleLoadError::Subdirectory(format!("{MANIFESTS}{directory}")));
            }
            manifests.read(path, content)?;
        }
        let mut csv = manifests.csv.ok_or(BundleLoadError::NoClusterServiceVersion)?;
        let annotations = &mut csv.metadata.annotations;
        let property_file = files.get(PROPERTIES_FILE).map(Vec::as_slice);
        let authored = annotations.get(PROPERTIES_ANNOTATION).map(String::as_str);
        if let Some(text) = properties::merge(authored, property_file)? {
            annotations.insert(PROPERTIES_ANNOTATION.to_string(), text);
        }
        let bundle = BundleContent {
            package_name,
            max_openshift_version: property_file.and_then(properties::max_openshift_version),
            csv,
            csv_files: manifests.csv_files,
            crds: manifests.crds,
            others: manifests.others,
        };
        check_parts(&bundle)?;
        Ok(bundle)
    }
}

/// Checks the number of parts of the ClusterServiceVersion that yield objects.
///
/// # Errors
/// [`BundleLoadError::TooLarge`].
fn check_parts(bundle: &BundleContent) -> Result<(), BundleLoadError> {
    let spec = &bundle.csv.spec;
    let strategy = &spec.install.spec;
    let containers: usize = bundle.csv.deployments().iter().map(Deployment::containers).sum();
    let parts = bundle.csv.deployments().len()
        + containers
        + strategy.permissions.len()
        + strategy.cluster_permissions.len()
        + spec.webhooks.len();
    if parts <= limits::OBJECTS {
        return Ok(());
    }
    let file = bundle.csv_files.last().map(String::as_str).unwrap_or_default();
    Err(limits::exceeded(file, limits::OBJECTS, "deployments, containers, permissions and webhooks"))
}

/// Package name of `metadata/annotations.yaml`, empty if absent.
fn package_name(file: &[u8]) -> Result<String, BundleLoadError> {
    let refused = |what: &Value, target: &str| {
        let mismatch = go_json::mismatch(what, target);
        BundleLoadError::Annotations(format!("error unmarshaling JSON: while decoding JSON: {mismatch}"))
    };
    let document =
        olm_yaml::from_slice(file).map_err(|error| BundleLoadError::Annotations(error.to_string()))?;
    let annotations = match &document {
        Value::Null => &Value::Null,
        Value::Object(entries) => go_json::field(entries, "annotations").unwrap_or(&Value::Null),
        other => return Err(refused(other, "value of type registry.AnnotationsFile")),
    };
    let annotations = match annotations {
        Value::Null => return Ok(String::new()),
        Value::Object(entries) => entries,
        other => {
            let target = "struct field AnnotationsFile.annotations of type registry.Annotations";
            return Err(refused(other, target));
        }
    };
    for name in ANNOTATIONS {
        let value = go_json::field(annotations, name).unwrap_or(&Value::Null);
        if matches!(value, Value::Array(_) | Value::Object(_)) {
            let target = format!("struct field Annotations.annotations.{name} of type string");
            return Err(refused(value, &target));
        }
    }
    Ok(go_json::field(annotations, PACKAGE_ANNOTATION).map(go_json::as_text).unwrap_or_default())
}

/// Error in one object of a manifest.
struct ObjectError {
    detail: String,
    field: String,
}

impl ObjectError {
    fn new(detail: String) -> Self {
        Self { detail, field: String::new() }
    }

    fn of_file(self, file: &str) -> BundleLoadError {
        BundleLoadError::Manifest { file: file.to_string(), detail: self.detail, field: self.field }
    }
}

impl From<ConvertError> for ObjectError {
    fn from(error: ConvertError) -> Self {
        Self { detail: excerpt(&error.to_string()).into_owned(), field: error.field() }
    }
}

/// Objects of all files, by file name, then by document.
#[derive(Default)]
struct Manifests {
    csv: Option<Csv>,
    csv_files: Vec<String>,
    crds: Vec<Value>,
    others: Vec<Value>,
    usage: ManifestUsage,
}

impl Manifests {
    fn read(&mut self, path: &str, content: &[u8]) -> Result<(), BundleLoadError> {
        let wrong = |cause: String| {
            ObjectError::new(format!("error parsing {}: {cause}", excerpt(path))).of_file(path)
        };
        let refused = |error| match error {
            ManifestError::Invalid(StreamError::Document { message, .. }) => wrong(message),
            ManifestError::Invalid(StreamError::Read(error)) => wrong(error.to_string()),
            ManifestError::TooLarge(error) => error,
        };
        let mut stream = Stream::new(content, ManifestUsage::manifest_limits());
        let mut documents = Vec::new();
        while let Some(document) = self.usage.next_document(path, &mut stream).map_err(refused)? {
            documents.push(document);
        }
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            self.document(path, document)?;
        }
        Ok(())
    }

    fn document(&mut self, path: &str, document: Value) -> Result<(), BundleLoadError> {
        self.usage.object(path)?;
        let undecodable = |detail: String| {
            ObjectError::new(format!("unable to decode \"{}\": {detail}", excerpt(path))).of_file(path)
        };
        let Value::Object(mut object) = document else {
            return Err(undecodable(go_json::mismatch(&document, "value of type unstructured.detector")));
        };
        let untyped = kind_of(&object).is_empty().then(|| {
            format!("Object 'Kind' is missing in '{}'", go_json::text(&Value::Object(object.clone())))
        });
        // Each item may copy the type of the list, which may be large.
        let type_bytes: usize =
            ["kind", "apiVersion"].iter().filter_map(|key| object.get(*key)).map(limits::size).sum();
        let count = object.get("items").and_then(Value::as_array).map_or(0, Vec::len);
        self.usage.text(path, type_bytes.saturating_mul(count))?;
        let items = object.remove("items").map(|items| list_items(items, &object)).transpose();
        let items = items.map_err(undecodable)?;
        if let Some(fault) = untyped.or_else(|| metadata_fault(&object)) {
            return Err(undecodable(fault));
        }
        match items {
            None => self.object(path, object).map_err(|error| error.of_file(path)),
            Some(items) => self.items(path, items),
        }
    }

    /// Reads the items of a list and collects all errors. Nested lists are refused.
    fn items(&mut self, path: &str, items: Vec<Map<String, Value>>) -> Result<(), BundleLoadError> {
        if items.iter().any(|item| item.get("items").is_some_and(Value::is_array)) {
            let detail = "*unstructured.Unstructured is not a list: no Items field in this object";
            return Err(ObjectError::new(detail.into()).of_file(path));
        }
        let mut errors: Vec<ObjectError> = Vec::new();
        for item in items {
            self.usage.object(path)?;
            let missing = match (kind_of(&item), text(&item, "apiVersion")) {
                ("", _) => "Object 'Kind' is missing in 'object has no kind field '",
                (_, "" | "/") => "Object 'apiVersion' is missing in 'object has no apiVersion field'",
                _ => {
                    errors.extend(self.object(path, item).err());
                    continue;
                }
            };
            let of = "unable to get type info from the object \"*unstructured.Unstructured\"";
            errors.push(ObjectError::new(format!("{of}: {missing}")));
        }
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.swap_remove(0).of_file(path)),
            _ => {
                let mut seen = BTreeSet::new();
                let texts = errors.iter().map(|error| error.detail.as_str());
                let texts: Vec<&str> = texts.filter(|text| seen.insert(*text)).collect();
                let list = texts.join(", ");
                let detail = if texts.len() == 1 { list } else { format!("[{list}]") };
                Err(ObjectError::new(detail).of_file(path))
            }
        }
    }

    /// Stores an object according to its kind. As in the reference, group and version are ignored.
    fn object(&mut self, path: &str, object: Map<String, Value>) -> Result<(), ObjectError> {
        match kind_of(&object) {
            "ClusterServiceVersion" => {
                let value = convert(Value::Object(object), &Type::Struct("ClusterServiceVersion"))?;
                let csv = Csv::deserialize(value)
                    .map_err(|error| ObjectError::new(excerpt(&error.to_string()).into_owned()))?;
                self.csv = Some(csv);
                self.csv_files.push(path.to_string());
            }
            "CustomResourceDefinition" => {
                let mut value = convert(Value::Object(object), &Type::Struct("CustomResourceDefinition"))?;
                drop_server_fields(&mut value);
                self.crds.push(value);
            }
            _ => {
                let mut value = Value::Object(object);
                shorten_numbers(&mut value);
                drop_server_fields(&mut value);
                self.others.push(value);
            }
        }
        Ok(())
    }
}

/// Kind of the object. Empty if absent or if `apiVersion` is malformed.
fn kind_of(object: &Map<String, Value>) -> &str {
    if text(object, "apiVersion").matches('/').count() > 1 { "" } else { text(object, "kind") }
}

/// String in a field. Empty if there is no string.
fn text<'a>(object: &'a Map<String, Value>, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Error in `apiVersion` or `metadata`, for objects of any kind.
fn metadata_fault(object: &Map<String, Value>) -> Option<String> {
    match object.get("apiVersion") {
        None | Some(Value::Null | Value::String(_)) => decode_fault(object, "metadataOnlyObject"),
        Some(other) => {
            let target = "struct field metadataOnlyObject.TypeMeta.apiVersion of type string";
            Some(go_json::mismatch(other, target))
        }
    }
}

/// Objects in `items` of a list. An item with neither kind nor version takes those of the list.
fn list_items(items: Value, list: &Map<String, Value>) -> Result<Vec<Map<String, Value>>, String> {
    let items = match items {
        Value::Null => Vec::new(),
        Value::Array(items) => items,
        other => {
            let target = "struct field decodeList.items of type []json.RawMessage";
            return Err(go_json::mismatch(&other, target));
        }
    };
    let kind = text(list, "kind");
    let kind = kind.strip_suffix("List").unwrap_or(kind);
    let object = |item: Value| {
        let mut item = match item {
            Value::Null => Map::new(),
            Value::Object(item) => item,
            other => return Err(go_json::mismatch(&other, "value of type map[string]interface {}")),
        };
        if text(&item, "kind").is_empty() && text(&item, "apiVersion").is_empty() {
            item.insert("kind".into(), kind.into());
            item.insert("apiVersion".into(), text(list, "apiVersion").into());
        }
        Ok(item)
    };
    items.into_iter().map(object).collect()
}

/// Removes fields that only the API server sets (docs/design/bundles.md#normal-form).
fn drop_server_fields(object: &mut Value) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    object.remove("status");
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("creationTimestamp");
    }
}

fn shorten_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => *number = shortest(number.clone()),
        Value::Array(items) => items.iter_mut().for_each(shorten_numbers),
        Value::Object(entries) => entries.values_mut().for_each(shorten_numbers),
        _ => {}
    }
}
