//! Typed content of one package, as the resolver needs it (docs/design/catalogd.md#schemas,
//! docs/design/catalogd.md#typed-model, docs/design/resolution.md#package-content,
//! docs/design/resolution.md#fetch-errors).
//!
//! Parsing is as lenient as upstream: field names are case-insensitive, unknown and missing fields are accepted,
//! and objects are not checked against each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use olm_version::excerpt;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_DEPRECATIONS, SCHEMA_PACKAGE};

/// Content of one package. Empty if the catalog does not have the package.
///
/// ```
/// use olm_fbc::PackageContent;
///
/// let line = br#"{"schema":"olm.channel","package":"demo","name":"stable","entries":[{"name":"demo.v1.0.0"}]}"#;
/// let content = PackageContent::from_metas("demo", [line.as_slice()])?;
/// assert_eq!(content.channels[0].entries[0].name, "demo.v1.0.0");
/// # Ok::<(), olm_fbc::ModelError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PackageContent {
    /// `olm.package` objects, normally one.
    pub packages: Vec<Package>,
    /// `olm.channel` objects.
    pub channels: Vec<Channel>,
    /// `olm.bundle` objects.
    pub bundles: Vec<Bundle>,
    /// `olm.deprecations` objects, at most one.
    pub deprecations: Vec<Deprecation>,
    /// Number of objects with other schemas.
    pub others: usize,
}

/// `olm.package` object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Package {
    /// Name of the package.
    pub name: String,
    /// Name of the default channel. May be empty.
    pub default_channel: String,
    /// Description for users.
    pub description: String,
    /// Properties of the package.
    pub properties: Vec<Property>,
}

/// `olm.channel` object: the update edges between bundles.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Channel {
    /// Name of the channel.
    pub name: String,
    /// Package of the channel.
    pub package: String,
    /// Bundles of the channel with their incoming edges.
    pub entries: Vec<ChannelEntry>,
    /// Properties of the channel.
    pub properties: Vec<Property>,
}

/// Bundle in a channel. Serialized as in a catalog, without empty fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelEntry {
    /// Name of the bundle.
    pub name: String,
    /// Name of the bundle that this one replaces, or empty. It need not exist.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub replaces: String,
    /// Names of bundles that this one may replace and that upgrades may skip.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skips: Vec<String>,
    /// Range of versions that this one may replace, in the blang dialect (docs/design/resolution.md#versions), or
    /// empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub skip_range: String,
}

impl ChannelEntry {
    /// Names of the bundles that this one replaces or skips.
    pub fn followed(&self) -> impl Iterator<Item = &str> {
        let replaces = Some(&self.replaces).filter(|name| !name.is_empty());
        replaces.into_iter().chain(&self.skips).map(String::as_str)
    }
}

/// Names of the entries that no other entry replaces or skips, sorted. A valid channel has one.
pub fn heads<'a>(entries: impl IntoIterator<Item = &'a ChannelEntry> + Clone) -> Vec<&'a str> {
    let followed: BTreeSet<&str> = entries.clone().into_iter().flat_map(ChannelEntry::followed).collect();
    let names: BTreeSet<&str> = entries.into_iter().map(|entry| entry.name.as_str()).collect();
    names.difference(&followed).copied().collect()
}

/// `olm.bundle` object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bundle {
    /// Name of the bundle.
    pub name: String,
    /// Package of the bundle.
    pub package: String,
    /// Image reference of the bundle.
    pub image: String,
    /// Properties of the bundle, including its version.
    pub properties: Vec<Property>,
    /// Images that the bundle uses.
    pub related_images: Vec<RelatedImage>,
}

/// Image used by a bundle.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RelatedImage {
    /// Role of the image. May be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Image reference.
    pub image: String,
}

/// Property of a bundle, channel or package.
#[derive(Debug, Clone, Serialize)]
pub struct Property {
    /// Type of the property, such as `olm.gvk`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Value as JSON text. `null` if absent.
    pub value: Box<RawValue>,
}

impl Property {
    /// Deserializes the value.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.value.get())
    }
}

impl PartialEq for Property {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.value.get() == other.value.get()
    }
}

impl Default for Property {
    fn default() -> Self {
        Self { kind: String::new(), value: RawValue::NULL.to_owned() }
    }
}

/// `olm.deprecations` object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Deprecation {
    /// Package that the deprecations apply to.
    pub package: String,
    /// Deprecated objects.
    pub entries: Vec<DeprecationEntry>,
}

/// Deprecated package, channel or bundle.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeprecationEntry {
    /// Deprecated object.
    pub reference: DeprecationReference,
    /// Reason and advice for users.
    pub message: String,
}

/// Reference to an object of a package.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeprecationReference {
    /// Schema of the object.
    pub schema: String,
    /// Name of the object. Empty for the package itself.
    pub name: String,
}

/// Failure to use the content of a package.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// An object of a known schema does not have the right shape.
    #[error("parse {what} {:?}: {}", excerpt(name), excerpt(&cause.to_string()))]
    Parse {
        /// `package`, `channel`, `bundle` or `deprecation`.
        what: &'static str,
        /// Name of the object, or of its package if it has none.
        name: String,
        /// The fault.
        cause: serde_json::Error,
    },
    /// A line that is not an object with string fields `schema`, `package` and `name`.
    #[error("{}", excerpt(&.0.to_string()))]
    Meta(serde_json::Error),
    /// An object without schema.
    #[error("object {:?} is missing root schema field", excerpt(.0))]
    NoSchema(String),
    /// The package has too many entries, skipped names, properties and images.
    #[error("there are more than {PARTS} entries, skipped names, properties and images")]
    Parts,
}

/// Maximum number of entries, skipped names, properties and images of a package, which take up to 40 times as much memory
/// as text. The largest packages of the field have less than a hundredth.
const PARTS: usize = 1_000_000;

/// Identifying fields of an object.
#[derive(Default)]
struct Head {
    schema: String,
    package: String,
    name: String,
}

impl PackageContent {
    /// Parses the objects of `package` from the lines of a catalog. Objects of other packages are skipped.
    ///
    /// Of several objects with the same schema and name the last one wins, likewise the last `olm.deprecations`
    /// (docs/design/resolution.md#package-content). The lists are sorted by name.
    ///
    /// # Errors
    /// The first object of the package that does not have the shape of its schema.
    pub fn from_metas<'a>(
        package: &str,
        lines: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, ModelError> {
        let mut latest: BTreeMap<(String, String), &[u8]> = BTreeMap::new();
        for line in lines.into_iter().filter(|line| !line.trim_ascii().is_empty()) {
            let head: Head = serde_json::from_slice(line).map_err(ModelError::Meta)?;
            let owner = if head.schema == SCHEMA_PACKAGE { &head.name } else { &head.package };
            if owner != package {
                continue;
            }
            if head.schema.is_empty() {
                return Err(ModelError::NoSchema(head.name));
            }
            latest.insert((head.schema, head.name), line);
        }
        let (mut content, mut parts) = (Self::default(), 0);
        for ((schema, name), line) in latest {
            parts += content.add(&schema, if name.is_empty() { package } else { &name }, line)?;
            if parts > PARTS {
                return Err(ModelError::Parts);
            }
        }
        Ok(content)
    }

    /// Returns the number of [`PARTS`] of the object.
    fn add(&mut self, schema: &str, name: &str, line: &[u8]) -> Result<usize, ModelError> {
        fn read<T: DeserializeOwned>(what: &'static str, name: &str, line: &[u8]) -> Result<T, ModelError> {
            serde_json::from_slice(line).map_err(|cause| ModelError::Parse {
                what,
                name: name.to_owned(),
                cause,
            })
        }
        let mut parts = 0;
        match schema {
            SCHEMA_PACKAGE => self.packages.push(read("package", name, line)?),
            SCHEMA_CHANNEL => {
                let channel: Channel = read("channel", name, line)?;
                parts = channel.entries.iter().map(|entry| 1 + entry.skips.len()).sum::<usize>();
                parts += channel.properties.len();
                self.channels.push(channel);
            }
            SCHEMA_BUNDLE => {
                let bundle: Bundle = read("bundle", name, line)?;
                parts = bundle.properties.len() + bundle.related_images.len();
                self.bundles.push(bundle);
            }
            SCHEMA_DEPRECATIONS => {
                let deprecation: Deprecation = read("deprecation", name, line)?;
                parts = deprecation.entries.len();
                self.deprecations.push(deprecation);
            }
            _ => self.others += 1,
        }
        Ok(parts)
    }

    /// `true` if the catalog has no object of the package. An `olm.package` object is not required.
    pub fn is_empty(&self) -> bool {
        self.packages.is_empty()
            && self.channels.is_empty()
            && self.bundles.is_empty()
            && self.deprecations.is_empty()
            && self.others == 0
    }
}

/// Object with case-insensitive field names.
trait Fields: Default {
    /// Reads the value of `field`. Returns `false` if the object has no such field.
    fn read<'de, A: MapAccess<'de>>(&mut self, field: &str, map: &mut A) -> Result<bool, A::Error>;
}

/// Deserializes [`Fields`]. `null` is an object without fields.
struct FieldsVisitor<T>(T);

impl<'de, T: Fields> Visitor<'de> for FieldsVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(self.0)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<T, A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if !self.0.read(&crate::meta::fold(&key), &mut map)? {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(self.0)
    }
}

/// Reads a value. `null` leaves the field unset.
fn value<'de, T: Deserialize<'de> + Default, A: MapAccess<'de>>(
    map: &mut A,
    field: &mut T,
) -> Result<bool, A::Error> {
    if let Some(value) = map.next_value::<Option<T>>()? {
        *field = value;
    }
    Ok(true)
}

/// Reads a list of strings. A `null` item becomes an empty string.
fn texts<'de, A: MapAccess<'de>>(map: &mut A, field: &mut Vec<String>) -> Result<bool, A::Error> {
    let mut texts: Vec<Option<String>> = Vec::new();
    value(map, &mut texts)?;
    *field = texts.into_iter().map(Option::unwrap_or_default).collect();
    Ok(true)
}

macro_rules! fields {
    ($type:ty { $($name:literal => $read:ident($field:ident)),+ $(,)? }) => {
        impl Fields for $type {
            fn read<'de, A: MapAccess<'de>>(&mut self, field: &str, map: &mut A) -> Result<bool, A::Error> {
                match field {
                    $($name => $read(map, &mut self.$field),)+
                    _ => Ok(false),
                }
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(FieldsVisitor(Self::default()))
            }
        }
    };
}

fields!(Head { "schema" => value(schema), "package" => value(package), "name" => value(name) });
fields!(Package {
    "name" => value(name),
    "defaultchannel" => value(default_channel),
    "description" => value(description),
    "properties" => value(properties),
});
fields!(Channel { "name" => value(name), "package" => value(package), "entries" => value(entries), "properties" => value(properties) });
fields!(ChannelEntry {
    "name" => value(name),
    "replaces" => value(replaces),
    "skips" => texts(skips),
    "skiprange" => value(skip_range),
});
fields!(Bundle {
    "name" => value(name),
    "package" => value(package),
    "image" => value(image),
    "properties" => value(properties),
    "relatedimages" => value(related_images),
});
fields!(Property { "type" => value(kind), "value" => value(value) });
fields!(RelatedImage { "name" => value(name), "image" => value(image) });
fields!(Deprecation { "package" => value(package), "entries" => value(entries) });
fields!(DeprecationEntry { "reference" => value(reference), "message" => value(message) });
fields!(DeprecationReference { "schema" => value(schema), "name" => value(name) });
