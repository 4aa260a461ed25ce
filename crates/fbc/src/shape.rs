//! Shapes of the known objects: fields, their types, and the order in which they are written
//! (docs/design/catalogd.md#schemas, docs/design/catalogd.md#property-types), with the error for a value of another
//! type.

use std::{borrow::Cow, str::FromStr};

use base64::{
    alphabet,
    engine::{DecodePaddingMode, Engine as _, GeneralPurpose, GeneralPurposeConfig},
};
use olm_yaml::json::Kind;
use serde_json::value::RawValue;

use crate::{PROPERTY_BUNDLE_OBJECT, PROPERTY_CSV_METADATA, json, meta::fold};
use Shape::{Any, Bytes, Int, Int32, List, Object, Objects, Optional, Text, Texts, Truth};

/// Allowed type of a value. `null` is always allowed and leaves the value unset.
#[derive(Debug)]
pub(crate) enum Shape {
    Text,
    Truth,
    Int,
    Int32,
    /// Base64 text, or a list of numbers.
    Bytes,
    Any,
    /// Object with string values.
    Texts,
    List(&'static Self),
    /// List of objects.
    Objects(&'static Structure),
    Object(&'static Structure),
    /// Object that may be absent.
    Optional(&'static Structure),
}

/// Object with known fields.
#[derive(Debug)]
pub(crate) struct Structure {
    /// Name of the type in upstream messages.
    pub(crate) name: &'static str,
    /// Fields in the order in which they are written.
    pub(crate) fields: &'static [Fields],
}

/// Fields of the same shape.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(crate) names: &'static [&'static str],
    pub(crate) shape: Shape,
    /// `true` if the fields are written even when empty. Irrelevant below properties, whose values are not rewritten.
    pub(crate) always: bool,
}

pub(crate) const fn structure(name: &'static str, fields: &'static [Fields]) -> Structure {
    Structure { name, fields }
}

pub(crate) const fn always(names: &'static [&'static str], shape: Shape) -> Fields {
    Fields { names, shape, always: true }
}

pub(crate) const fn if_any(names: &'static [&'static str], shape: Shape) -> Fields {
    Fields { names, shape, always: false }
}

const TEXT_LIST: Shape = List(&Text);

const PROPERTIES: Shape =
    Objects(&structure("property.Property", &[always(&["type"], Text), always(&["value"], Any)]));

const ICON: Structure =
    structure("declcfg.Icon", &[always(&["base64data"], Bytes), always(&["mediatype"], Text)]);

/// `olm.package`.
pub(crate) const PACKAGE: Structure = structure(
    "declcfg.Package",
    &[
        always(&["schema", "name", "defaultChannel"], Text),
        if_any(&["icon"], Optional(&ICON)),
        if_any(&["description"], Text),
        if_any(&["properties"], PROPERTIES),
    ],
);

const CHANNEL_ENTRY: Structure = structure(
    "declcfg.ChannelEntry",
    &[
        always(&["name"], Text),
        if_any(&["replaces"], Text),
        if_any(&["skips"], TEXT_LIST),
        if_any(&["skipRange"], Text),
    ],
);

/// `olm.channel`.
pub(crate) const CHANNEL: Structure = structure(
    "declcfg.Channel",
    &[
        always(&["schema", "name", "package"], Text),
        always(&["entries"], Objects(&CHANNEL_ENTRY)),
        if_any(&["properties"], PROPERTIES),
    ],
);

const RELATED_IMAGE: Structure = structure("declcfg.RelatedImage", &[always(&["name", "image"], Text)]);

/// `olm.bundle`.
pub(crate) const BUNDLE: Structure = structure(
    "declcfg.Bundle",
    &[
        always(&["schema"], Text),
        if_any(&["name", "package"], Text),
        always(&["image"], Text),
        if_any(&["properties"], PROPERTIES),
        if_any(&["relatedImages"], Objects(&RELATED_IMAGE)),
    ],
);

const REFERENCE: Structure =
    structure("declcfg.PackageScopedReference", &[always(&["schema"], Text), if_any(&["name"], Text)]);

const DEPRECATION_ENTRY: Structure = structure(
    "declcfg.DeprecationEntry",
    &[always(&["reference"], Object(&REFERENCE)), always(&["message"], Text)],
);

/// `olm.deprecations`.
pub(crate) const DEPRECATIONS: Structure = structure(
    "declcfg.Deprecation",
    &[always(&["schema", "package"], Text), always(&["entries"], Objects(&DEPRECATION_ENTRY))],
);

/// Structure of a known schema.
pub(crate) fn of_schema(schema: &str) -> Option<&'static Structure> {
    match schema {
        crate::SCHEMA_PACKAGE => Some(&PACKAGE),
        crate::SCHEMA_CHANNEL => Some(&CHANNEL),
        crate::SCHEMA_BUNDLE => Some(&BUNDLE),
        crate::SCHEMA_DEPRECATIONS => Some(&DEPRECATIONS),
        _ => None,
    }
}

const GVK_FIELDS: &[Fields] = &[if_any(&["group", "kind", "version"], Text)];

/// Structure of the value of a known property type.
pub(crate) fn of_property(kind: &str) -> Option<&'static Structure> {
    const PACKAGE: Structure =
        structure("property.Package", &[if_any(&["packageName", "version", "release"], Text)]);
    const PACKAGE_REQUIRED: Structure =
        structure("property.PackageRequired", &[if_any(&["packageName", "versionRange"], Text)]);
    const CHANNEL: Structure =
        structure("property.Channel", &[if_any(&["channelName"], Text), if_any(&["priority"], Int)]);
    const GVK: Structure = structure("property.GVK", GVK_FIELDS);
    const GVK_REQUIRED: Structure = structure("property.GVKRequired", GVK_FIELDS);
    const OBJECT: Structure = structure("property.BundleObject", &[if_any(&["data"], Bytes)]);
    match kind {
        "olm.package" => Some(&PACKAGE),
        "olm.package.required" => Some(&PACKAGE_REQUIRED),
        "olm.gvk" => Some(&GVK),
        "olm.gvk.required" => Some(&GVK_REQUIRED),
        PROPERTY_BUNDLE_OBJECT => Some(&OBJECT),
        PROPERTY_CSV_METADATA => Some(&CSV_METADATA),
        "olm.channel" => Some(&CHANNEL),
        _ => None,
    }
}

const LINK: Structure = structure("v1alpha1.AppLink", &[if_any(&["name", "url"], Text)]);

const RESOURCES: Shape =
    Objects(&structure("v1alpha1.APIResourceReference", &[if_any(&["name", "kind", "version"], Text)]));

const DESCRIPTOR_FIELDS: &[Fields] = &[
    if_any(&["path", "displayName", "description"], Text),
    if_any(&["x-descriptors"], TEXT_LIST),
    if_any(&["value"], Any),
];
const STATUS_DESCRIPTORS: Shape = Objects(&structure("v1alpha1.StatusDescriptor", DESCRIPTOR_FIELDS));
const SPEC_DESCRIPTORS: Shape = Objects(&structure("v1alpha1.SpecDescriptor", DESCRIPTOR_FIELDS));
const ACTION_DESCRIPTORS: Shape = Objects(&structure("v1alpha1.ActionDescriptor", DESCRIPTOR_FIELDS));

const API_SERVICES: Shape = Objects(&structure(
    "v1alpha1.APIServiceDescription",
    &[
        if_any(&["name", "group", "version", "kind", "deploymentName", "displayName", "description"], Text),
        if_any(&["containerPort"], Int32),
        if_any(&["resources"], RESOURCES),
        if_any(&["statusDescriptors"], STATUS_DESCRIPTORS),
        if_any(&["specDescriptors"], SPEC_DESCRIPTORS),
        if_any(&["actionDescriptors"], ACTION_DESCRIPTORS),
    ],
));
const API_SERVICE_DEFINITIONS: Structure =
    structure("v1alpha1.APIServiceDefinitions", &[if_any(&["owned", "required"], API_SERVICES)]);

const CRDS: Shape = Objects(&structure(
    "v1alpha1.CRDDescription",
    &[
        if_any(&["name", "version", "kind", "displayName", "description"], Text),
        if_any(&["resources"], RESOURCES),
        if_any(&["statusDescriptors"], STATUS_DESCRIPTORS),
        if_any(&["specDescriptors"], SPEC_DESCRIPTORS),
        if_any(&["actionDescriptors"], ACTION_DESCRIPTORS),
    ],
));
const CRD_DEFINITIONS: Structure =
    structure("v1alpha1.CustomResourceDefinitions", &[if_any(&["owned", "required"], CRDS)]);

const INSTALL_MODE: Structure =
    structure("v1alpha1.InstallMode", &[if_any(&["type"], Text), if_any(&["supported"], Truth)]);
const MAINTAINER: Structure = structure("v1alpha1.Maintainer", &[if_any(&["name", "email"], Text)]);
const NATIVE_API: Structure = structure("v1.GroupVersionKind", GVK_FIELDS);

const CSV_METADATA: Structure = structure(
    "property.CSVMetadata",
    &[
        if_any(&["annotations", "labels"], Texts),
        if_any(&["apiServiceDefinitions"], Object(&API_SERVICE_DEFINITIONS)),
        if_any(&["crdDescriptions"], Object(&CRD_DEFINITIONS)),
        if_any(&["description", "displayName", "maturity", "minKubeVersion"], Text),
        if_any(&["installModes"], Objects(&INSTALL_MODE)),
        if_any(&["keywords"], TEXT_LIST),
        if_any(&["links"], Objects(&LINK)),
        if_any(&["maintainers"], Objects(&MAINTAINER)),
        if_any(&["nativeAPIs"], Objects(&NATIVE_API)),
        if_any(&["provider"], Object(&LINK)),
    ],
);

impl Shape {
    /// Name of the type in upstream messages.
    fn type_name(&self) -> Cow<'static, str> {
        match self {
            Self::Text => "string".into(),
            Self::Truth => "bool".into(),
            Self::Int => "int".into(),
            Self::Int32 => "int32".into(),
            Self::Bytes => "[]uint8".into(),
            Self::Any => "*declcfg.Meta".into(),
            Self::Texts => "map[string]string".into(),
            Self::List(item) => format!("[]{}", item.type_name()).into(),
            Self::Objects(item) => format!("[]{}", item.name).into(),
            Self::Object(structure) | Self::Optional(structure) => structure.name.into(),
        }
    }
}

impl Structure {
    /// Name and shape of the field with this key. Case-insensitive, but an exact match is preferred.
    pub(crate) fn field(&self, key: &str) -> Option<(&'static str, &'static Shape)> {
        let named = |fields: &'static Fields| fields.names.iter().map(|name| (*name, &fields.shape));
        let mut all = self.fields.iter().flat_map(named);
        all.clone().find(|(name, _)| *name == key).or_else(|| {
            let key = fold(key);
            all.find(|(name, _)| fold(name) == key)
        })
    }

    /// Checks the types of a value. In `strict` form also rejects unknown and duplicate fields.
    ///
    /// # Errors
    /// The first fault, in the words of Go's JSON decoder.
    pub(crate) fn check(&self, value: &RawValue, strict: bool) -> Result<(), String> {
        Check { strict, structure: "", path: Vec::new() }.object(value, self)
    }
}

struct Check {
    strict: bool,
    /// Structure that contains the last field of the path.
    structure: &'static str,
    path: Vec<&'static str>,
}

impl Check {
    fn value(&mut self, value: &RawValue, shape: &Shape) -> Result<(), String> {
        let kind = Kind::of(value.get().as_bytes());
        if kind == Kind::Null {
            return Ok(());
        }
        match shape {
            Shape::Any => Ok(()),
            Shape::Text if kind == Kind::String => Ok(()),
            Shape::Truth if kind == Kind::Bool => Ok(()),
            Shape::Bytes if kind == Kind::String => decode_base64(value).map(drop),
            Shape::Bytes if kind == Kind::Array => {
                let items = json::items(value).unwrap_or_default();
                items.iter().try_for_each(|value| self.number::<u8>(value, "uint8"))
            }
            Shape::Int => self.number::<i64>(value, "int"),
            Shape::Int32 => self.number::<i32>(value, "int32"),
            Shape::Texts if kind == Kind::Object => {
                let members = json::members(value).unwrap_or_default();
                members.iter().try_for_each(|(_, value)| self.value(value, &Shape::Text))
            }
            Shape::List(item) if kind == Kind::Array => {
                let items = json::items(value).unwrap_or_default();
                items.iter().try_for_each(|value| self.value(value, item))
            }
            Shape::Objects(item) if kind == Kind::Array => {
                let items = json::items(value).unwrap_or_default();
                items.iter().try_for_each(|value| self.object(value, item))
            }
            Shape::Object(structure) | Shape::Optional(structure) => self.object(value, structure),
            other => Err(self.refused(kind.name(), &other.type_name())),
        }
    }

    fn number<T: FromStr>(&self, value: &RawValue, expected: &str) -> Result<(), String> {
        match Kind::of(value.get().as_bytes()) {
            Kind::Null => Ok(()),
            Kind::Number if value.get().parse::<T>().is_ok() => Ok(()),
            Kind::Number => Err(self.refused(&format!("number {}", value.get()), expected)),
            kind => Err(self.refused(kind.name(), expected)),
        }
    }

    fn object(&mut self, value: &RawValue, structure: &Structure) -> Result<(), String> {
        let Some(members) = json::members(value) else {
            return match Kind::of(value.get().as_bytes()) {
                Kind::Null => Ok(()),
                kind => Err(self.refused(kind.name(), structure.name)),
            };
        };
        let outer = self.structure;
        for (index, (key, value)) in members.iter().enumerate() {
            if self.strict && members[..index].iter().any(|(other, _)| other == key) {
                return Err(format!("key {} already set in map", olm_version::quote(key)));
            }
            let Some((name, shape)) = structure.field(key) else {
                if self.strict {
                    return Err(format!("json: unknown field {}", olm_version::quote(key)));
                }
                continue;
            };
            self.structure = structure.name.rsplit('.').next().unwrap_or_default();
            self.path.push(name);
            self.value(value, shape)?;
            self.path.pop();
        }
        self.structure = outer;
        Ok(())
    }

    fn refused(&self, kind: &str, expected: &str) -> String {
        if self.path.is_empty() {
            return format!("json: cannot unmarshal {kind} into Go value of type {expected}");
        }
        let path = self.path.join(".");
        format!(
            "json: cannot unmarshal {kind} into Go struct field {}.{path} of type {expected}",
            self.structure
        )
    }
}

/// Decodes standard base64 with padding, ignoring line ends, or a list of numbers.
pub(crate) fn decode_base64(value: &RawValue) -> Result<Vec<u8>, String> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    let Some(text) = json::text(value) else {
        let numbers: Vec<Option<u8>> = serde_json::from_str(value.get()).unwrap_or_default();
        return Ok(numbers.into_iter().map(Option::unwrap_or_default).collect());
    };
    let compact: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let refused = |_| format!("illegal base64 data at input byte {}", base64_fault(text.as_bytes()));
    LENIENT.decode(&compact).map_err(refused)
}

/// Offset of the fault in invalid base64, counted as in Go: the start of an incomplete group of four, otherwise the
/// unexpected byte.
fn base64_fault(text: &[u8]) -> usize {
    let mut bytes = text.iter().enumerate().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n'));
    let mut group = 0;
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => group = (group + 1) % 4,
            b'=' if group == 3 => return bytes.next().map_or(text.len(), |(at, _)| at),
            b'=' if group == 2 => {
                return match bytes.next() {
                    Some((_, b'=')) => bytes.next().map_or(text.len(), |(at, _)| at),
                    other => other.map_or(text.len(), |(at, _)| at - 1),
                };
            }
            _ => return at,
        }
    }
    text.len() - group
}
