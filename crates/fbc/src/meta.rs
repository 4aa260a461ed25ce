//! Object of a catalog: its selector fields and its stored line (docs/design/catalogd.md#documents-of-a-file,
//! docs/design/catalogd.md#canonical-line).

use std::{io::Read, path::Path, sync::Arc};

use olm_yaml::{
    DecodeError, Limits, Notation, RepeatedKey, Stream, StreamError,
    json::{Canonical, JsonMember, Kind, canonicalize},
};

use olm_version::{aggregate, excerpt, quote};
use serde_json::value::RawValue;

use crate::{Origin, SCHEMA_PACKAGE, json};

/// Object of a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Schema. May be empty.
    pub schema: String,
    /// Package that the object belongs to, or empty.
    pub package: String,
    /// Name. May be empty.
    pub name: String,
    /// Canonical JSON of the object with a final line feed. Empty for an empty YAML document, which stores nothing.
    pub blob: Vec<u8>,
    /// Position in its file. A generated object has no file, and document and line 0.
    pub origin: Origin,
    /// Line of the file with skipped content after the object, before the next `---`: only the first value of a
    /// YAML document is read (docs/design/catalogd.md#documents-of-a-file).
    pub unread: Option<usize>,
    /// Repeated keys of the object, if the reader looks for them. The last of equal keys is in [`Meta::blob`].
    pub repeated_keys: Vec<RepeatedKey>,
}

impl Meta {
    /// Parses an object from JSON text.
    ///
    /// # Errors
    /// The text is not an object, has keys that differ only in case, or a selector field that is not a string.
    pub fn from_json(json: &[u8]) -> Result<Self, MetaError> {
        decode(json, Notation::Json).map_err(|error| MetaError::Document {
            position: olm_yaml::Position::default(),
            at: None,
            message: error.message,
        })
    }

    /// Name of the package that the object is part of, or that it defines. May be empty.
    pub fn owner(&self) -> &str {
        if self.schema == SCHEMA_PACKAGE { &self.name } else { &self.package }
    }

    /// Object whose field `name` is `value`, as JSON text. Its other fields and its position are unchanged.
    ///
    /// # Errors
    /// The result is not a valid object.
    pub(crate) fn with_field(&self, name: &str, value: &str) -> Result<Self, String> {
        let object: &RawValue = serde_json::from_slice(&self.blob).map_err(|error| error.to_string())?;
        let mut text = format!("{{\"{name}\":{value}");
        for (key, value) in json::members(object).unwrap_or_default() {
            if fold(&key) != fold(name) {
                let mut quoted = Vec::new();
                olm_yaml::json::write_string(&key, &mut quoted);
                text.push_str(&format!(",{}:{}", olm_yaml::json::lossy(&quoted), value.get()));
            }
        }
        text.push('}');
        let changed = Self::from_json(text.as_bytes()).map_err(|error| error.to_string())?;
        Ok(Self {
            origin: self.origin.clone(),
            unread: self.unread,
            repeated_keys: self.repeated_keys.clone(),
            ..changed
        })
    }
}

/// Failure to read a file as catalog content.
pub type MetaError = StreamError;

/// Iterator over the metas of one file.
///
/// ```
/// use olm_fbc::{DocumentLimits, MetaReader};
///
/// let file = "name: demo\nschema: olm.package\n---\nschema: olm.channel\npackage: demo\n";
/// let metas: Vec<_> = MetaReader::new(file.as_bytes(), DocumentLimits::default()).collect::<Result<_, _>>()?;
/// assert_eq!(metas[0].blob, b"{\"name\":\"demo\",\"schema\":\"olm.package\"}\n");
/// assert_eq!(metas[1].origin.line, 4);
/// # Ok::<(), olm_fbc::MetaError>(())
/// ```
pub struct MetaReader<R> {
    stream: Stream<R>,
    file: Arc<Path>,
}

impl<R: Read> MetaReader<R> {
    /// Starts reading a file.
    pub fn new(file: R, limits: Limits) -> Self {
        Self::named(Path::new(""), file, limits)
    }

    /// Starts reading the file at `path`, which becomes the origin of the metas.
    pub fn named(path: &Path, file: R, limits: Limits) -> Self {
        Self { stream: Stream::new(file, limits), file: Arc::from(path) }
    }

    /// Makes the reader look for repeated keys.
    #[must_use]
    pub fn with_repeated_keys(mut self) -> Self {
        self.stream = self.stream.with_repeated_keys();
        self
    }
}

impl<R: Read> Iterator for MetaReader<R> {
    type Item = Result<Meta, MetaError>;

    /// Next meta. After an error the reader must not be used again.
    fn next(&mut self) -> Option<Self::Item> {
        let meta = self.stream.next(decode).transpose()?;
        let origin = Origin::new(Arc::clone(&self.file), self.stream.position());
        let unread = self.stream.unread();
        let repeated_keys = self.stream.repeated_keys().to_vec();
        Some(meta.map(|meta| Meta { origin, unread, repeated_keys, ..meta }))
    }
}

fn decode(json: &[u8], notation: Notation) -> Result<Meta, DecodeError> {
    let refuse = |message: String| DecodeError { message, offset: None };
    let mut object = canonicalize(json)?;
    match object.kind {
        Kind::Object => {}
        Kind::Null if notation == Notation::Yaml => object.text.clear(),
        Kind::Null => {}
        kind => {
            let kind = kind.name();
            return Err(refuse(format!(
                "json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
            )));
        }
    }
    let keys = folded_keys(&object).map_err(refuse)?;
    let field = |name: &str| field(&object, &keys, name).map_err(refuse);
    let (schema, package, name) = (field("schema")?, field("package")?, field("name")?);
    let mut blob = object.text;
    if !blob.is_empty() {
        blob.push(b'\n');
    }
    blob.shrink_to_fit();
    Ok(Meta {
        schema,
        package,
        name,
        blob,
        origin: Origin::default(),
        unread: None,
        repeated_keys: Vec::new(),
    })
}

/// Members of the object, sorted by folded key.
///
/// # Errors
/// Keys that fold to the same text, including unknown keys.
fn folded_keys(object: &Canonical) -> Result<Vec<(String, &JsonMember)>, String> {
    let mut keys: Vec<(String, &JsonMember)> =
        object.members.iter().map(|member| (fold(&object.key(member)), member)).collect();
    keys.sort_by(|a, b| a.0.cmp(&b.0)); // stable: members of one key remain sorted by their spelling
    let problems: Vec<String> = keys
        .chunk_by(|a, b| a.0 == b.0)
        .filter(|same| same.len() > 1)
        .map(|same| {
            let spellings: Vec<_> =
                same.iter().map(|(_, member)| excerpt(&object.key(member)).into_owned()).collect();
            format!("duplicate keys for key {}: [{}]", quote(&excerpt(&same[0].0)), spellings.join(" "))
        })
        .collect();
    aggregate(&problems).map_or(Ok(keys), Err)
}

fn field(object: &Canonical, keys: &[(String, &JsonMember)], name: &str) -> Result<String, String> {
    let Ok(index) = keys.binary_search_by(|(key, _)| key.as_str().cmp(name)) else {
        return Ok(String::new());
    };
    let member = keys[index].1;
    object.string(member).map(|text| text.into_owned()).ok_or_else(|| {
        let value = String::from_utf8_lossy(&object.text[member.value.clone()]);
        let mut shown: String = value.chars().take(100).collect();
        if shown.len() < value.len() {
            shown.push('…');
        }
        format!("expected value for key {} to be a string, got {shown}", quote(&object.key(member)))
    })
}

/// Unicode case folding. Keys are equal if their folded texts are.
pub(crate) fn fold(key: &str) -> String {
    if key.is_ascii() {
        return key.to_ascii_lowercase();
    }
    // Lower case first normalizes letters that no lower-case mapping produces. Upper case then unifies letters that
    // share one.
    let folded = key.chars().flat_map(|c| {
        let dotless = (c == 'ı').then_some(c);
        let upper = (c != 'ı').then(|| c.to_lowercase().flat_map(char::to_uppercase));
        dotless.into_iter().chain(upper.into_iter().flatten().flat_map(char::to_lowercase))
    });
    folded.collect()
}
