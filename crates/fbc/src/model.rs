//! The content of one package, typed as the resolver needs it (docs/design/catalogd.md#schemas,
//! docs/design/catalogd.md#typed-model, docs/design/resolution.md#package-content,
//! docs/design/resolution.md#fetch-errors).
//!
//! Reading is lenient as in the reference: field names match whatever their case, unknown fields and missing fields are
//! no error, nothing is checked against anything else.

use std::{collections::BTreeMap, fmt};

use olm_version::excerpt;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_DEPRECATIONS, SCHEMA_PACKAGE};

/// All that a catalog says about one package. Empty when the catalog does not have the package.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PackageContent {
    /// The `olm.package` object, normally one.
    pub packages: Vec<Package>,
    /// The `olm.channel` objects.
    pub channels: Vec<Channel>,
    /// The `olm.bundle` objects.
    pub bundles: Vec<Bundle>,
    /// The `olm.deprecations` objects, at most one.
    pub deprecations: Vec<Deprecation>,
    /// How many objects of other schemas there are.
    pub others: usize,
}

/// An `olm.package` object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Package {
    /// Name of the package.
    pub name: String,
    /// Name of the channel that is meant when none is asked for; may be empty.
    pub default_channel: String,
    /// What the package is, for people.
    pub description: String,
    /// Further statements.
    pub properties: Vec<Property>,
}

/// An `olm.channel` object: the update edges between bundles.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Channel {
    /// Name of the channel.
    pub name: String,
    /// The package it belongs to.
    pub package: String,
    /// The bundles of the channel with the edges that lead to them.
    pub entries: Vec<ChannelEntry>,
    /// Further statements.
    pub properties: Vec<Property>,
}

/// A bundle in a channel.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChannelEntry {
    /// Name of the bundle.
    pub name: String,
    /// Name of the bundle that this one follows; empty for none. It need not exist.
    pub replaces: String,
    /// Names of bundles that this one may follow and that need not be installed on the way.
    pub skips: Vec<String>,
    /// Range of versions that this one may follow, in the blang dialect (docs/design/resolution.md#versions); empty for
    /// none.
    pub skip_range: String,
}

/// An `olm.bundle` object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bundle {
    /// Name of the bundle.
    pub name: String,
    /// The package it belongs to.
    pub package: String,
    /// Image reference of the bundle.
    pub image: String,
    /// Statements about the bundle, among them its version.
    pub properties: Vec<Property>,
    /// Images that the bundle uses.
    pub related_images: Vec<RelatedImage>,
}

/// An image used by a bundle.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RelatedImage {
    /// Role of the image; may be empty.
    pub name: String,
    /// Image reference.
    pub image: String,
}

/// A statement about a bundle, channel or package.
#[derive(Debug, Clone)]
pub struct Property {
    /// Kind of statement, such as `olm.gvk`.
    pub kind: String,
    /// The statement as JSON text; `null` when absent.
    pub value: Box<RawValue>,
}

impl Property {
    /// Reads the value as a type.
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

/// An `olm.deprecations` object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Deprecation {
    /// The package it speaks of.
    pub package: String,
    /// What is deprecated.
    pub entries: Vec<DeprecationEntry>,
}

/// A deprecated package, channel or bundle.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeprecationEntry {
    /// What is deprecated.
    pub reference: Reference,
    /// Why, and what to do, for people.
    pub message: String,
}

/// Names an object of a package.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reference {
    /// Schema of the object.
    pub schema: String,
    /// Its name; empty for the package itself.
    pub name: String,
}

/// Why the content of a package cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// An object of a known schema does not have the right shape.
    #[error("parse {what} {:?}: {}", excerpt(name), excerpt(&cause.to_string()))]
    Parse {
        /// `package`, `channel`, `bundle` or `deprecation`.
        what: &'static str,
        /// Name of the object; that of its package where it has none.
        name: String,
        /// What is wrong.
        cause: serde_json::Error,
    },
    /// A line that is no object with string fields `schema`, `package` and `name`.
    #[error("{}", excerpt(&.0.to_string()))]
    Meta(serde_json::Error),
    /// An object without schema.
    #[error("object {:?} is missing root schema field", excerpt(.0))]
    NoSchema(String),
}

/// The fields that say what an object is.
#[derive(Default)]
struct Head {
    schema: String,
    package: String,
    name: String,
}

impl PackageContent {
    /// Reads the objects of `package` from the lines of a catalog; objects of other packages are left out.
    ///
    /// Of several objects with the same schema and name the last one counts, as does the last `olm.deprecations`
    /// (docs/design/resolution.md#package-content). Channels, bundles and so on are sorted by name.
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
        let mut content = Self::default();
        for ((schema, name), line) in latest {
            content.add(&schema, if name.is_empty() { package } else { &name }, line)?;
        }
        Ok(content)
    }

    fn add(&mut self, schema: &str, name: &str, line: &[u8]) -> Result<(), ModelError> {
        fn read<T: DeserializeOwned>(what: &'static str, name: &str, line: &[u8]) -> Result<T, ModelError> {
            serde_json::from_slice(line).map_err(|cause| ModelError::Parse {
                what,
                name: name.to_owned(),
                cause,
            })
        }
        match schema {
            SCHEMA_PACKAGE => self.packages.push(read("package", name, line)?),
            SCHEMA_CHANNEL => self.channels.push(read("channel", name, line)?),
            SCHEMA_BUNDLE => self.bundles.push(read("bundle", name, line)?),
            SCHEMA_DEPRECATIONS => self.deprecations.push(read("deprecation", name, line)?),
            _ => self.others += 1,
        }
        Ok(())
    }

    /// Whether the catalog has nothing about the package; an `olm.package` object is not required.
    pub fn is_empty(&self) -> bool {
        self.packages.is_empty()
            && self.channels.is_empty()
            && self.bundles.is_empty()
            && self.deprecations.is_empty()
            && self.others == 0
    }
}

/// An object whose fields are found whatever the case of their names.
trait Fields: Default {
    /// Reads the value of `field` if the object has such a field; says whether it has.
    fn read<'de, A: MapAccess<'de>>(&mut self, field: &str, map: &mut A) -> Result<bool, A::Error>;
}

/// Deserializes [`Fields`]; `null` is an object without fields.
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

/// A value that `null` leaves unset.
fn value<'de, T: Deserialize<'de> + Default, A: MapAccess<'de>>(
    map: &mut A,
    field: &mut T,
) -> Result<bool, A::Error> {
    if let Some(value) = map.next_value::<Option<T>>()? {
        *field = value;
    }
    Ok(true)
}

/// A list of texts; `null` in it is an empty one.
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
fields!(Reference { "schema" => value(schema), "name" => value(name) });
