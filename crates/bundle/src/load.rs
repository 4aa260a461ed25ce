//! From the files of a bundle image to its parts (spec 04 §§2–4).
//!
//! Texts of errors are those of the reference. Only shape is judged here; whether the content makes an
//! installable bundle is decided when rendering.

use std::collections::BTreeMap;

use olm_yaml::StreamError;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::bundle::{Bundle, Definition};
use crate::csv::Csv;
use crate::go_json;
use crate::properties::{self, PROPERTIES_ANNOTATION};
use crate::typed::{ConvertError, Type, convert, shortest};

const ANNOTATIONS_FILE: &str = "metadata/annotations.yaml";
const PROPERTIES_FILE: &str = "metadata/properties.yaml";
const MANIFESTS: &str = "manifests/";
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
         found \"{0}\""
    )]
    Subdirectory(String),
    /// A manifest cannot be read.
    #[error("error parsing objects in \"{file}\": {detail}")]
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
}

/// Reads the files of an unpacked bundle image by slash-separated path relative to its root.
pub(crate) fn load(files: &BTreeMap<String, Vec<u8>>) -> Result<Bundle, LoadError> {
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
        manifests.read(path, content).map_err(|fault| fault.of_file(path))?;
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
    Ok(Bundle {
        package_name,
        max_openshift_version: files
            .get(PROPERTIES_FILE)
            .and_then(|file| properties::max_openshift_version(file)),
        csv,
        csv_files: manifests.csv_files,
        definitions: manifests.definitions,
        others: manifests.others,
    })
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
        Value::Object(entries) => entries.get("annotations").unwrap_or(&Value::Null),
        other => return Err(refused(other, "value of type registry.AnnotationsFile")),
    };
    let name = match annotations {
        Value::Null => &Value::Null,
        Value::Object(entries) => entries.get(PACKAGE_ANNOTATION).unwrap_or(&Value::Null),
        other => {
            let target = "struct field AnnotationsFile.annotations of type registry.Annotations";
            return Err(refused(other, target));
        }
    };
    match name {
        Value::Null => Ok(String::new()),
        Value::String(name) => Ok(name.clone()),
        other => Err(refused(
            other,
            &format!("struct field Annotations.annotations.{PACKAGE_ANNOTATION} of type string"),
        )),
    }
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
        Self { detail: error.to_string(), field: error.field() }
    }
}

/// The objects of all files, in order of file name, then of document.
#[derive(Default)]
struct Manifests {
    csv: Option<Csv>,
    csv_files: Vec<String>,
    definitions: Vec<Definition>,
    others: Vec<Value>,
}

impl Manifests {
    fn read(&mut self, path: &str, content: &[u8]) -> Result<(), Fault> {
        let documents = olm_yaml::all_from_slice(content).map_err(|error| {
            Fault::new(match error {
                StreamError::Document { message, .. } => format!("error parsing {path}: {message}"),
                StreamError::Read(error) => format!("error parsing {path}: {error}"),
            })
        })?;
        for document in documents {
            self.document(path, document)?;
        }
        Ok(())
    }

    fn document(&mut self, path: &str, document: Value) -> Result<(), Fault> {
        let undecodable = |detail: String| Fault::new(format!("unable to decode \"{path}\": {detail}"));
        let Value::Object(mut object) = document else {
            let kind = go_json::kind(&document);
            return Err(undecodable(format!(
                "json: cannot unmarshal {kind} into Go value of type unstructured.detector"
            )));
        };
        let Some(kind) = object.get("kind").and_then(Value::as_str).filter(|kind| !kind.is_empty()) else {
            let text = go_json::text(&Value::Object(object));
            return Err(undecodable(format!("Object 'Kind' is missing in '{text}'")));
        };
        if let (Some(item_kind), Some(Value::Array(_))) = (kind.strip_suffix("List"), object.get("items")) {
            let item_kind = item_kind.to_string();
            let version = object.remove("apiVersion");
            let Some(Value::Array(items)) = object.remove("items") else {
                return Ok(());
            };
            return items.into_iter().try_for_each(|mut item| {
                adopt_list_type(&mut item, &item_kind, version.as_ref());
                self.document(path, item)
            });
        }
        check_metadata(&object).map_err(undecodable)?;
        let kind = kind.to_string();
        self.object(path, &kind, object)
    }

    /// Sorts an object by its kind alone: group and version do not matter to the reference.
    fn object(&mut self, path: &str, kind: &str, object: Map<String, Value>) -> Result<(), Fault> {
        match kind {
            "ClusterServiceVersion" => {
                let value = convert(Value::Object(object), &Type::Struct("ClusterServiceVersion"))?;
                let csv = Csv::deserialize(value).map_err(|error| Fault::new(error.to_string()))?;
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

/// An item of a list that has neither kind nor version takes those of the list.
fn adopt_list_type(item: &mut Value, kind: &str, version: Option<&Value>) {
    let Some(item) = item.as_object_mut() else { return };
    if item.contains_key("kind") || item.contains_key("apiVersion") {
        return;
    }
    item.insert("kind".into(), json!(kind));
    if let Some(version) = version {
        item.insert("apiVersion".into(), version.clone());
    }
}

/// Metadata has to be metadata in every object, whatever its kind.
fn check_metadata(object: &Map<String, Value>) -> Result<(), String> {
    let wrong = |value: &Value, target: &str| {
        Err(format!("json: cannot unmarshal {} into Go struct field {target}", go_json::kind(value)))
    };
    let metadata = match object.get("metadata") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(metadata)) => metadata,
        Some(other) => return wrong(other, "metadataOnlyObject.metadata of type v1.ObjectMeta"),
    };
    for (key, value) in metadata.iter().filter(|(_, value)| !value.is_null()) {
        let misfit = match (key.as_str(), value) {
            ("name" | "namespace" | "generateName" | "resourceVersion" | "selfLink" | "uid", _) => {
                (!value.is_string()).then_some((value, "string"))
            }
            ("labels" | "annotations", Value::Object(entries)) => {
                let misfit = entries.values().find(|value| !value.is_string() && !value.is_null());
                misfit.map(|value| (value, "string"))
            }
            ("labels" | "annotations", _) => Some((value, "map[string]string")),
            _ => None,
        };
        if let Some((value, target)) = misfit {
            return wrong(value, &format!("ObjectMeta.metadata.{key} of type {target}"));
        }
    }
    Ok(())
}

/// Removes what only the API server writes (spec 04 §14.2).
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
