//! Content of a bundle as written by the author, each object with its location, and the errors of loading it.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::{list, text};
use olm_bundle::{BundleContent, BundleLoadError, ManifestError, ManifestUsage, PROPERTIES_ANNOTATION};
use olm_yaml::{Stream, StreamError};
use serde_json::Value;

use crate::files::{Documents, repeated_keys};
use crate::metadata::{self, ANNOTATIONS_FILE, Entry, PROPERTIES_FILE};
use crate::report::{Findings, Location, Start};
use crate::{KubernetesMinor, rule};

/// Folder of the manifests.
pub(crate) const MANIFESTS: &str = "manifests/";

/// Files of a bundle by slash-separated path.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Input of the checks.
#[derive(Debug)]
pub(crate) struct Content<'a> {
    pub(crate) files: &'a Files,
    /// Target version.
    pub(crate) kubernetes: Option<KubernetesMinor>,
    /// Objects of all manifests in reading order, with lists expanded.
    pub(crate) objects: Vec<Object>,
    /// Well-formed properties of the metadata and of the ClusterServiceVersion.
    pub(crate) properties: Vec<Entry>,
    /// Files that cannot be read completely.
    unreadable: BTreeSet<String>,
}

/// Object with its location in the bundle.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) value: Value,
    location: Location,
}

impl Object {
    /// `kind`, empty if absent.
    pub(crate) fn kind(&self) -> &str {
        text(&self.value, "/kind")
    }

    /// `apiVersion`, empty if absent.
    pub(crate) fn api_version(&self) -> &str {
        text(&self.value, "/apiVersion")
    }

    /// `metadata.name`, empty if absent.
    pub(crate) fn name(&self) -> &str {
        text(&self.value, "/metadata/name")
    }

    /// String at a JSON pointer, empty if absent.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        text(&self.value, pointer)
    }

    /// String at a JSON pointer, empty if absent or null. `None` for another type, which prevents loading the
    /// object.
    pub(crate) fn text_or_nothing(&self, pointer: &str) -> Option<&str> {
        match self.value.pointer(pointer) {
            None | Some(Value::Null) => Some(""),
            Some(value) => value.as_str(),
        }
    }

    /// List at a JSON pointer, empty if absent.
    pub(crate) fn list(&self, pointer: &str) -> &[Value] {
        list(&self.value, pointer)
    }

    /// Value of an annotation.
    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.value.pointer("/metadata/annotations")?.get(key)?.as_str()
    }

    /// Location of the object.
    pub(crate) fn location(&self) -> Location {
        self.location.clone()
    }

    /// Location of the field with this dotted path.
    pub(crate) fn at(&self, dotted: &str) -> Location {
        self.location().at(dotted)
    }

    /// Items of the list with this dotted path, each with its location.
    pub(crate) fn items(&self, dotted: &str) -> impl Iterator<Item = (Location, &Value)> {
        let location = self.at(dotted);
        let items = self.list(&pointer(dotted)).iter().enumerate();
        items.map(move |(index, item)| (location.clone().key(&index.to_string()), item))
    }

    /// Location of an annotation.
    pub(crate) fn at_annotation(&self, key: &str) -> Location {
        self.at("metadata.annotations").key(key)
    }
}

/// JSON pointer of a dotted path.
pub(crate) fn pointer(dotted: &str) -> String {
    format!("/{}", dotted.replace('.', "/"))
}

impl<'a> Content<'a> {
    /// Reads every manifest. An unreadable manifest is a finding.
    ///
    /// # Errors
    /// [`BundleLoadError::TooLarge`].
    pub(crate) fn read(
        files: &'a Files,
        kubernetes: Option<KubernetesMinor>,
        findings: &mut Findings,
    ) -> Result<Self, BundleLoadError> {
        let (objects, properties, unreadable) = Default::default();
        let mut content = Self { files, kubernetes, objects, properties, unreadable };
        let mut usage = ManifestUsage::default();
        for (file, text) in files.range(MANIFESTS.to_string()..) {
            let Some(name) = file.strip_prefix(MANIFESTS) else { break };
            if !name.contains('/') {
                content.read_file(file, text, &mut usage, findings)?;
            }
        }
        content.properties = metadata::read_properties(&content, findings);
        Ok(content)
    }

    /// The last ClusterServiceVersion, which is the one that the renderer uses.
    pub(crate) fn csv(&self) -> Option<&Object> {
        self.of_kind("ClusterServiceVersion").last()
    }

    pub(crate) fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = &Object> {
        self.objects.iter().filter(move |object| object.kind() == kind)
    }

    pub(crate) fn crds(&self) -> impl Iterator<Item = &Object> {
        self.of_kind("CustomResourceDefinition")
    }

    fn read_file(
        &mut self,
        file: &str,
        text: &[u8],
        usage: &mut ManifestUsage,
        findings: &mut Findings,
    ) -> Result<(), BundleLoadError> {
        let mut stream = Stream::new(text, ManifestUsage::manifest_limits()).with_repeated_keys();
        let mut documents = Documents::default();
        loop {
            match usage.next_document(file, &mut stream) {
                Ok(None) => return Ok(()),
                Ok(Some(value)) => {
                    if let Some(line) = stream.unread() {
                        let message = "the rest of the document is ignored: a document has one value; separate documents \
                                       with `---`";
                        findings.add(&rule::FILE_3, Location::line(file, Some(line)), message);
                    }
                    repeated_keys(file, stream.repeated_keys(), findings);
                    documents.add(file, &value, stream.position(), findings);
                    let start = Start::Document(stream.position().line);
                    if !value.is_null() {
                        self.document(value, Location { start, ..Location::file(file) }, usage)?;
                    }
                }
                Err(ManifestError::TooLarge(error)) => return Err(error),
                Err(ManifestError::Invalid(error)) => {
                    let line = match &error {
                        StreamError::Document { position, at, .. } => at.or(Some(position.line)),
                        StreamError::Read(_) => None,
                    };
                    findings.add(&rule::FILE_2, Location::line(file, line), error.to_string());
                    self.unreadable.insert(file.to_string());
                    return Ok(());
                }
            }
        }
    }

    /// Adds an object, or the items of a list. Items without a type take it from the list. Nested lists are not
    /// expanded.
    fn document(
        &mut self,
        mut value: Value,
        location: Location,
        usage: &mut ManifestUsage,
    ) -> Result<(), BundleLoadError> {
        usage.object(&location.file)?;
        let items = match value.get_mut("items") {
            Some(Value::Array(items)) => std::mem::take(items),
            Some(Value::Null) => Vec::new(),
            _ => {
                self.add(value, location);
                return Ok(());
            }
        };
        let kind = text(&value, "/kind");
        let kind = kind.strip_suffix("List").unwrap_or(kind);
        for (index, mut item) in items.into_iter().enumerate() {
            usage.object(&location.file)?;
            if text(&item, "/kind").is_empty()
                && text(&item, "/apiVersion").is_empty()
                && let Value::Object(entries) = &mut item
            {
                entries.insert("kind".into(), Value::from(kind));
                entries.insert("apiVersion".into(), Value::from(text(&value, "/apiVersion")));
            }
            let mut location = location.clone().at("items").key(&index.to_string());
            location.skipped = location.path.len();
            self.add(item, location);
        }
        Ok(())
    }

    fn add(&mut self, value: Value, location: Location) {
        let mut object = Object { value, location };
        object.location.object = match (object.kind(), object.name()) {
            ("", _) => None,
            (kind, "") => Some(kind.to_string()),
            (kind, name) => Some(format!("{kind} {name}")),
        };
        self.objects.push(object);
    }
}

/// Replaces unreadable metadata, so that the manifests can be loaded.
const SUBSTITUTE: &[u8] = b"annotations: {operators.operatorframework.io.bundle.package.v1: unnamed}";

/// Returns the bundle as operator-controller loads it, if its manifests can be loaded. Every loading error is reported
/// instead of the first. Broken metadata is replaced.
pub(crate) fn load(
    mut loaded: Result<BundleContent, BundleLoadError>,
    content: &Content<'_>,
    findings: &mut Findings,
) -> Option<BundleContent> {
    let mut repaired = None;
    loop {
        let error = match loaded {
            Ok(bundle) => return Some(bundle),
            Err(error) => error,
        };
        let files = repaired.get_or_insert_with(|| content.files.clone());
        repair(error, files, content, findings)?;
        loaded = BundleContent::load(files);
    }
}

/// Reports a loading error. `None` if `files` cannot be changed so that another attempt may succeed.
fn repair(
    error: BundleLoadError,
    files: &mut Files,
    content: &Content<'_>,
    findings: &mut Findings,
) -> Option<()> {
    match error {
        BundleLoadError::NoAnnotations => {
            let message = "the file is missing; it declares the package and its channels";
            findings.add(&rule::FILE_1, Location::file(ANNOTATIONS_FILE), message);
            files.insert(ANNOTATIONS_FILE.to_string(), SUBSTITUTE.to_vec());
            return Some(());
        }
        BundleLoadError::Annotations(text) => {
            if !findings.has_file(ANNOTATIONS_FILE) {
                findings.add(&rule::FILE_2, Location::document(ANNOTATIONS_FILE), text);
            }
            let known = files.insert(ANNOTATIONS_FILE.to_string(), SUBSTITUTE.to_vec());
            return (known.as_deref() != Some(SUBSTITUTE)).then_some(());
        }
        BundleLoadError::Subdirectory(_) => return remove_directories(files, findings).then_some(()),
        BundleLoadError::PropertiesFile(text) => {
            if !findings.has_file(PROPERTIES_FILE) {
                findings.add(&rule::PROP_1, Location::document(PROPERTIES_FILE), text);
            }
            return files.remove(PROPERTIES_FILE).map(drop);
        }
        BundleLoadError::NoManifests => {
            findings.add(&rule::FILE_1, Location::file(MANIFESTS), "there are no manifests");
        }
        BundleLoadError::NoClusterServiceVersion => {
            findings.add(&rule::CSV_1, Location::file(MANIFESTS), "no manifest is a ClusterServiceVersion");
        }
        BundleLoadError::PropertiesAnnotation(text) => {
            if let Some(csv) = content.csv().filter(|_| !findings.has(&rule::PROP_3)) {
                findings.add(&rule::PROP_3, csv.at_annotation(PROPERTIES_ANNOTATION), text);
            }
        }
        BundleLoadError::Manifest { file, detail, .. } => {
            unloadable_manifests(files, content, findings);
            if !findings.has_file(&file) {
                findings.add(&rule::FILE_2, Location::file(&file), detail);
            }
        }
        BundleLoadError::TooLarge { .. } => {
            findings.add(&rule::FILE_4, Location::bundle(), error.to_string())
        }
    }
    None
}

/// Reports and removes every directory inside of the manifests. `false` if there is none.
fn remove_directories(files: &mut Files, findings: &mut Findings) -> bool {
    let directory = |path: &String| {
        let (directory, _) = path.strip_prefix(MANIFESTS)?.split_once('/')?;
        Some(format!("{MANIFESTS}{directory}"))
    };
    let directories: BTreeSet<String> = files.keys().filter_map(directory).collect();
    files.retain(|path, _| directory(path).is_none());
    for directory in &directories {
        let message =
            "a directory inside of manifests/ is not allowed: move its files to manifests/ or remove it";
        findings.add(&rule::FILE_1, Location::file(directory), message);
    }
    !directories.is_empty()
}

/// Reports each object that cannot be loaded.
fn unloadable_manifests(files: &Files, content: &Content<'_>, findings: &mut Findings) {
    let mut refused = BTreeSet::new();
    for object in &content.objects {
        // The dotted path of the invalid field is empty if unknown.
        let loaded = load_alone(&object.location.file, object.value.to_string().into_bytes());
        let Err(BundleLoadError::Manifest { mut detail, field, .. }) = loaded else { continue };
        refused.insert(&object.location.file);
        let value = object.value.pointer(&pointer(&field));
        if let Some(value @ (Value::Bool(_) | Value::Number(_))) = value {
            detail = format!("{detail}: the value is {value}; quote a string");
        }
        let location = if field.is_empty() { object.location() } else { object.at(&field) };
        findings.add(&rule::FILE_2, location, detail);
    }
    // Errors that occur only in the file as a whole.
    for (file, text) in files {
        if !file.starts_with(MANIFESTS) || refused.contains(file) || content.unreadable.contains(file) {
            continue;
        }
        if let Err(BundleLoadError::Manifest { detail, .. }) = load_alone(file, text.clone()) {
            findings.add(&rule::FILE_2, Location::file(file), detail);
        }
    }
}

fn load_alone(file: &str, text: Vec<u8>) -> Result<BundleContent, BundleLoadError> {
    BundleContent::load(&BTreeMap::from([
        (ANNOTATIONS_FILE.to_string(), SUBSTITUTE.to_vec()),
        (file.to_string(), text),
    ]))
}
