//! From the files of a bundle image to its parts (docs/design/bundles.md#image-layout,
//! docs/design/bundles.md#merged-properties).
//!
//! Texts of errors are those of the reference. Only shape is judged here; whether the content makes an
//! installable bundle is decided when rendering.

use std::collections::{BTreeMap, BTreeSet};

use olm_version::excerpt;
use olm_yaml::StreamError;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::bundle::{Bundle, Definition};
use crate::csv::Csv;
use crate::go_json;
use crate::limits::{self, Spent, Unread};
use crate::properties::{self, PROPERTIES_ANNOTATION};
use crate::typed::{ConvertError, Type, convert, decode_fault, shortest};

const ANNOTATIONS_FILE: &str = "metadata/annotations.yaml";
const PROPERTIES_FILE: &str = "metadata/properties.yaml";
const MANIFESTS: &str = "manifests/";
/// Annotations that the reference reads, in the order of their names.
const ANNOTATIONS: [&str; 3] = [
    "operators.operatorframework.io.bundle.channel.default.v1",
    "operators.operatorframework.io.bundle.channels.v1",
    PACKAGE_ANNOTATION,
];
const PACKAGE_ANNOTATION: &str = "operators.operatorframework.io.bundle.package.v1";

/// Why the files are not a registry+v1 bundle. The content of an image never changes: trying again helps only
/// with another image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// `metadata/annotations.yaml` is missing.
    #[error("open metadata/annotations.yaml: no such file or directory")]
    NoAnnotations,
    /// `metadata/annotations.yaml` cannot be read.
    #[error("{0}")]
    Annotations(String),
    /// There is no file below `manifests/`.
    #[error("stat manifests: no such file or directory")]
    NoManifests,
    /// A directory inside `manifests/`; the path of that directory.
    #[error(
        "subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: \
         found \"{}\"",
        excerpt(.0)
    )]
    Subdirectory(String),
    /// A manifest cannot be read.
    #[error("error parsing objects in \"{}\": {detail}", excerpt(file))]
    Manifest {
        /// Path of the file.
        file: String,
        /// What is wrong.
        detail: String,
        /// Dotted path of the field at fault; empty where no single field is.
        field: String,
    },
    /// No manifest is a ClusterServiceVersion.
    #[error("no ClusterServiceVersion found in \"manifests\"")]
    NoClusterServiceVersion,
    /// The `olm.properties` annotation of the ClusterServiceVersion cannot be read.
    #[error("failed to unmarshal csv.metadata.annotations['olm.properties']: {0}")]
    PropertiesAnnotation(String),
    /// `metadata/properties.yaml` cannot be read.
    #[error("failed to unmarshal metadata/properties.yaml: {0}")]
    PropertiesFile(String),
    /// The bundle is larger than any that means well.
    #[error("bundle is too large at {:?}: at most {limit} {what} are allowed", excerpt(file))]
    TooLarge {
        /// The file with which the limit is exceeded.
        file: String,
        /// How many are allowed.
        limit: usize,
        /// Of what.
        what: &'static str,
    },
}

/// Reads the files of an unpacked bundle image by slash-separated path relative to its root.
pub(crate) fn load(files: &BTreeMap<String, Vec<u8>>) -> Result<Bundle, LoadError> {
    limits::check(files)?;
    let package_name = package_name(files.get(ANNOTATIONS_FILE).ok_or(LoadError::NoAnnotations)?)?;
    let mut manifests = Manifests::default();
    let mut seen_any = false;
    for (path, content) in files.range(MANIFESTS.to_string()..) {
        let Some(name) = path.strip_prefix(MANIFESTS) else {
            break;
        };
        if let Some((directory, _)) = name.split_once('/') {
            return Err(LoadError::Subdirectory(format!("{MANIFESTS}{directory}")));
        }
        seen_any = true;
        manifests.read(path, content)?;
    }
    if !seen_any {
        return Err(LoadError::NoManifests);
    }
    let mut csv = manifests.csv.ok_or(LoadError::NoClusterServiceVersion)?;
    let annotations = &mut csv.metadata.annotations;
    let properties = properties::merge(
        annotations.get(PROPERTIES_ANNOTATION).map(String::as_str),
        files.get(PROPERTIES_FILE).map(Vec::as_slice),
    )?;
    if let Some(text) = properties {
        annotations.insert(PROPERTIES_ANNOTATION.to_string(), text);
    }
    let bundle = Bundle {
        package_name,
        max_openshift_version: files
            .get(PROPERTIES_FILE)
            .and_then(|file| properties::max_openshift_version(file)),
        csv,
        csv_files: manifests.csv_files,
        definitions: manifests.definitions,
        others: manifests.others,
    };
    limits::check_parts(&bundle)?;
    Ok(bundle)
}

/// The package name of `metadata/annotations.yaml`; empty when it names none.
fn package_name(file: &[u8]) -> Result<String, LoadError> {
    let refused = |what: &Value, target: &str| {
        let kind = go_json::kind(what);
        LoadError::Annotations(format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {kind} into Go {target}"
        ))
    };
    let document = olm_yaml::from_slice(file).map_err(|error| LoadError::Annotations(error.to_string()))?;
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
            return Err(refused(
                value,
                &format!("struct field Annotations.annotations.{name} of type string"),
            ));
        }
    }
    Ok(go_json::field(annotations, PACKAGE_ANNOTATION).map(go_json::as_text).unwrap_or_default())
}

/// What is wrong inside one manifest file.
struct Fault {
    detail: String,
    field: String,
}

impl Fault {
    fn new(detail: String) -> Self {
        Self { detail, field: String::new() }
    }

    fn of_file(self, file: &str) -> LoadError {
        LoadError::Manifest { file: file.to_string(), detail: self.detail, field: self.field }
    }
}

impl From<ConvertError> for Fault {
    fn from(error: ConvertError) -> Self {
        Self { detail: excerpt(&error.to_string()).into_owned(), field: error.field() }
    }
}

/// The objects of all files, in order of file name, then of document.
#[derive(Default)]
struct Manifests {
    csv: Option<Csv>,
    csv_files: Vec<String>,
    definitions: Vec<Definition>,
    others: Vec<Value>,
    spent: Spent,
}

impl Manifests {
    fn read(&mut self, path: &str, content: &[u8]) -> Result<(), LoadError> {
        let wrong =
            |cause: String| Fault::new(format!("error parsing {}: {cause}", excerpt(path))).of_file(path);
        let documents = self.spent.documents(path, content).map_err(|unread| match unread {
            Unread::Wrong(StreamError::Document { message, .. }) => wrong(message),
            Unread::Wrong(StreamError::Read(error)) => wrong(error.to_string()),
            Unread::Limit(error) => error,
        })?;
        for document in documents {
            self.document(path, document)?;
        }
        Ok(())
    }

    fn document(&mut self, path: &str, document: Value) -> Result<(), LoadError> {
        self.spent.object(path)?;
        let undecodable = |detail: String| {
            Fault::new(format!("unable to decode \"{}\": {detail}", excerpt(path))).of_file(path)
        };
        let Value::Object(mut object) = document else {
            let kind = go_json::kind(&document);
            return Err(undecodable(format!(
                "json: cannot unmarshal {kind} into Go value of type unstructured.detector"
            )));
        };
        let untyped = kind_of(&object).is_empty().then(|| {
            format!("Object 'Kind' is missing in '{}'", go_json::text(&Value::Object(object.clone())))
        });
        // The type of a list may be large, and each item may take it.
        let type_bytes: usize =
            ["kind", "apiVersion"].iter().filter_map(|key| object.get(*key)).map(limits::size).sum();
        let count = object.get("items").and_then(Value::as_array).map_or(0, Vec::len);
        self.spent.text(path, type_bytes.saturating_mul(count))?;
        let items = object.remove("items").map(|items| list_items(items, &object)).transpose();
        let items = items.map_err(undecodable)?;
        if let Some(fault) = untyped.or_else(|| metadata_fault(&object)) {
            return Err(undecodable(fault));
        }
        match items {
            None => self.object(path, object).map_err(|fault| fault.of_file(path)),
            Some(items) => self.items(path, items),
        }
    }

    /// The items of a list; all faults are told. There are no lists in lists.
    fn items(&mut self, path: &str, items: Vec<Map<String, Value>>) -> Result<(), LoadError> {
        if items.iter().any(|item| item.get("items").is_some_and(Value::is_array)) {
            let detail = "*unstructured.Unstructured is not a list: no Items field in this object";
            return Err(Fault::new(detail.into()).of_file(path));
        }
        let mut faults: Vec<Fault> = Vec::new();
        for item in items {
            self.spent.object(path)?;
            let missing = match (kind_of(&item), item.get("apiVersion").and_then(Value::as_str)) {
                ("", _) => Some("Object 'Kind' is missing in 'object has no kind field '"),
                (_, None | Some("" | "/")) => {
                    Some("Object 'apiVersion' is missing in 'object has no apiVersion field'")
                }
                _ => None,
            };
            let result = match missing {
                Some(missing) => Err(Fault::new(format!(
                    "unable to get type info from the object \"*unstructured.Unstructured\": {missing}"
                ))),
                None => self.object(path, item),
            };
            faults.extend(result.err());
        }
        match faults.len() {
            0 => Ok(()),
            1 => Err(faults.swap_remove(0).of_file(path)),
            _ => {
                let mut seen = BTreeSet::new();
                let texts =
                    faults.iter().map(|fault| fault.detail.as_str()).filter(|text| seen.insert(*text));
                let texts: Vec<&str> = texts.collect();
                let detail = if let [only] = texts.as_slice() {
                    (*only).to_string()
                } else {
                    format!("[{}]", texts.join(", "))
                };
                Err(Fault::new(detail).of_file(path))
            }
        }
    }

    /// Sorts an object by its kind alone: group and version do not matter to the reference.
    fn object(&mut self, path: &str, object: Map<String, Value>) -> Result<(), Fault> {
        match kind_of(&object) {
            "ClusterServiceVersion" => {
                let value = convert(Value::Object(object), &Type::Struct("ClusterServiceVersion"))?;
                let csv = Csv::deserialize(value)
                    .map_err(|error| Fault::new(excerpt(&error.to_string()).into_owned()))?;
                self.csv = Some(csv);
                self.csv_files.push(path.to_string());
            }
            "CustomResourceDefinition" => {
                let mut value = convert(Value::Object(object), &Type::Struct("CustomResourceDefinition"))?;
                drop_server_fields(&mut value);
                self.definitions.push(Definition::new(value));
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

/// The kind, empty when there is none or the version is not one.
fn kind_of(object: &Map<String, Value>) -> &str {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("apiVersion").matches('/').count() > 1 { "" } else { text("kind") }
}

/// Why version and metadata are none, whatever the kind.
fn metadata_fault(object: &Map<String, Value>) -> Option<String> {
    match object.get("apiVersion") {
        None | Some(Value::Null | Value::String(_)) => decode_fault(object, "metadataOnlyObject"),
        Some(other) => Some(format!(
            "json: cannot unmarshal {} into Go struct field metadataOnlyObject.TypeMeta.apiVersion of type string",
            go_json::kind(other)
        )),
    }
}

/// The objects in `items` of a list. One that has neither kind nor version takes those of the list.
fn list_items(items: Value, list: &Map<String, Value>) -> Result<Vec<Map<String, Value>>, String> {
    let items = match items {
        Value::Null => Vec::new(),
        Value::Array(items) => items,
        other => {
            let kind = go_json::kind(&other);
            return Err(format!(
                "json: cannot unmarshal {kind} into Go struct field decodeList.items of type []json.RawMessage"
            ));
        }
    };
    fn text<'a>(object: &'a Map<String, Value>, name: &str) -> &'a str {
        object.get(name).and_then(Value::as_str).unwrap_or_default()
    }
    let kind = text(list, "kind");
    let kind = kind.strip_suffix("List").unwrap_or(kind);
    let object = |item: Value| {
        let mut item = match item {
            Value::Null => Map::new(),
            Value::Object(item) => item,
            other => {
                let kind = go_json::kind(&other);
                return Err(format!(
                    "json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
                ));
            }
        };
        if text(&item, "kind").is_empty() && text(&item, "apiVersion").is_empty() {
            item.insert("kind".into(), kind.into());
            item.insert("apiVersion".into(), text(list, "apiVersion").into());
        }
        Ok(item)
    };
    items.into_iter().map(object).collect()
}

/// Removes what only the API server writes (docs/design/bundles.md#normal-form).
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
