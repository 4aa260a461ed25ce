//! Objects of a bundle as written by the author, each with its position.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::{list, text};
use olm_bundle::{LoadError, Spent};
use olm_yaml::{DecodeError, Stream, StreamError, json};
use serde_json::Value;

use crate::findings::Findings;
use crate::place::{Place, Start};
use crate::rule;

/// Folder of the manifests.
pub(crate) const MANIFESTS: &str = "manifests/";

/// All objects of the manifests in reading order, with lists expanded.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) objects: Vec<Object>,
    /// Files that cannot be read completely.
    pub(crate) unreadable: BTreeSet<String>,
}

/// Object with its position in the bundle.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) value: Value,
    place: Place,
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

    /// Position of the object.
    pub(crate) fn place(&self) -> Place {
        self.place.clone()
    }

    /// Position of the field with this dotted path.
    pub(crate) fn at(&self, dotted: &str) -> Place {
        self.place().at(dotted)
    }

    /// Position of an annotation.
    pub(crate) fn at_annotation(&self, key: &str) -> Place {
        self.at("metadata.annotations").key(key)
    }
}

impl Content {
    /// Reads every manifest. An unreadable manifest is a finding.
    ///
    /// # Errors
    /// [`LoadError::TooLarge`].
    pub(crate) fn read(
        files: &BTreeMap<String, Vec<u8>>,
        findings: &mut Findings,
    ) -> Result<Self, LoadError> {
        let mut content = Self::default();
        let mut spent = Spent::default();
        for (file, text) in files.range(MANIFESTS.to_string()..) {
            let Some(name) = file.strip_prefix(MANIFESTS) else { break };
            if !name.contains('/') {
                content.read_file(file, text, &mut spent, findings)?;
            }
        }
        Ok(content)
    }

    /// The last ClusterServiceVersion, which is the one that the renderer uses.
    pub(crate) fn service_version(&self) -> Option<&Object> {
        self.of_kind("ClusterServiceVersion").last()
    }

    pub(crate) fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = &Object> {
        self.objects.iter().filter(move |object| object.kind() == kind)
    }

    pub(crate) fn definitions(&self) -> impl Iterator<Item = &Object> {
        self.of_kind("CustomResourceDefinition")
    }

    fn read_file(
        &mut self,
        file: &str,
        text: &[u8],
        spent: &mut Spent,
        findings: &mut Findings,
    ) -> Result<(), LoadError> {
        let mut stream = Stream::new(text, Spent::manifest_limits());
        loop {
            let mut refused = None;
            let next = stream.next(|json, _| {
                if let Err(error) = spent.document(file, json) {
                    let message = error.to_string();
                    refused.get_or_insert(error);
                    return Err(DecodeError { message, offset: None });
                }
                Ok(json::to_value(json)?)
            });
            if let Some(error) = refused {
                return Err(error);
            }
            match next {
                Ok(None) => return Ok(()),
                Ok(Some(value)) => {
                    if let Some(line) = stream.unread() {
                        let what = "what begins here is skipped: a document ends with its first value; part documents with \
                                    `---`";
                        findings.add(&rule::FILE_3, Place::line(file, Some(line)), what);
                    }
                    let start = Start::Document(stream.position().line);
                    if !value.is_null() {
                        self.document(value, Place { start, ..Place::file(file) }, spent)?;
                    }
                }
                Err(error) => {
                    let line = match &error {
                        StreamError::Document { position, at, .. } => at.or(Some(position.line)),
                        StreamError::Read(_) => None,
                    };
                    findings.add(&rule::FILE_2, Place::line(file, line), error.to_string());
                    self.unreadable.insert(file.to_string());
                    return Ok(());
                }
            }
        }
    }

    /// Adds an object, or the items of a list. Items without a type take it from the list. Nested lists are not
    /// expanded.
    fn document(&mut self, mut value: Value, place: Place, spent: &mut Spent) -> Result<(), LoadError> {
        spent.object(&place.file)?;
        let items = match value.get_mut("items") {
            Some(Value::Array(items)) => std::mem::take(items),
            Some(Value::Null) => Vec::new(),
            _ => {
                self.add(value, place);
                return Ok(());
            }
        };
        let kind = text(&value, "/kind");
        let kind = kind.strip_suffix("List").unwrap_or(kind);
        for (index, mut item) in items.into_iter().enumerate() {
            spent.object(&place.file)?;
            if text(&item, "/kind").is_empty()
                && text(&item, "/apiVersion").is_empty()
                && let Value::Object(entries) = &mut item
            {
                entries.insert("kind".into(), Value::from(kind));
                entries.insert("apiVersion".into(), Value::from(text(&value, "/apiVersion")));
            }
            let mut place = place.clone().at("items").key(&index.to_string());
            place.skipped = place.path.len();
            self.add(item, place);
        }
        Ok(())
    }

    fn add(&mut self, value: Value, place: Place) {
        let mut object = Object { value, place };
        object.place.object = match (object.kind(), object.name()) {
            ("", _) => None,
            (kind, "") => Some(kind.to_string()),
            (kind, name) => Some(format!("{kind} {name}")),
        };
        self.objects.push(object);
    }
}
