//! The shapes of the objects that have one: which fields of which types, in which order they are written
//! (spec 02 §A5, §A6), and what is said of a value of another type.

use std::{borrow::Cow, str::FromStr};

use base64::{
    alphabet,
    engine::{DecodePaddingMode, Engine as _, GeneralPurpose, GeneralPurposeConfig},
};
use serde_json::value::RawValue;

use crate::{json, meta::fold};

/// What a value may be; `null` is always allowed and leaves the value unset.
#[derive(Debug)]
pub(crate) enum Shape {
    Text,
    Truth,
    Int,
    Int32,
    /// Text that is base64, or a list of numbers.
    Bytes,
    /// Anything.
    Any,
    /// An object whose values are text.
    Texts,
    /// A list.
    List(&'static Self),
    /// A list of objects.
    Objects(&'static Structure),
    Object(&'static Structure),
    /// An object that may be absent.
    Optional(&'static Structure),
}

/// An object with known fields.
#[derive(Debug)]
pub(crate) struct Structure {
    /// Name of the type in the reference's messages.
    pub(crate) name: &'static str,
    /// In the order in which they are written.
    pub(crate) fields: &'static [Field],
}

/// A field of a [`Structure`].
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    /// Whether it is written when it is empty.
    pub(crate) always: bool,
}

const fn always(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, always: true }
}

const fn if_any(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, always: false }
}

const TEXT_LIST: Shape = Shape::List(&Shape::Text);

const PROPERTIES: Shape = Shape::Objects(&Structure {
    name: "property.Property",
    fields: &[always("type", Shape::Text), always("value", Shape::Any)],
});

/// `olm.package`.
pub(crate) const PACKAGE: Structure = Structure {
    name: "declcfg.Package",
    fields: &[
        always("schema", Shape::Text),
        always("name", Shape::Text),
        always("defaultChannel", Shape::Text),
        if_any(
            "icon",
            Shape::Optional(&Structure {
                name: "declcfg.Icon",
                fields: &[always("base64data", Shape::Bytes), always("mediatype", Shape::Text)],
            }),
        ),
        if_any("description", Shape::Text),
        if_any("properties", PROPERTIES),
    ],
};

/// `olm.channel`.
pub(crate) const CHANNEL: Structure = Structure {
    name: "declcfg.Channel",
    fields: &[
        always("schema", Shape::Text),
        always("name", Shape::Text),
        always("package", Shape::Text),
        always(
            "entries",
            Shape::Objects(&Structure {
                name: "declcfg.ChannelEntry",
                fields: &[
                    always("name", Shape::Text),
                    if_any("replaces", Shape::Text),
                    if_any("skips", TEXT_LIST),
                    if_any("skipRange", Shape::Text),
                ],
            }),
        ),
        if_any("properties", PROPERTIES),
    ],
};

/// `olm.bundle`.
pub(crate) const BUNDLE: Structure = Structure {
    name: "declcfg.Bundle",
    fields: &[
        always("schema", Shape::Text),
        if_any("name", Shape::Text),
        if_any("package", Shape::Text),
        always("image", Shape::Text),
        if_any("properties", PROPERTIES),
        if_any(
            "relatedImages",
            Shape::Objects(&Structure {
                name: "declcfg.RelatedImage",
                fields: &[always("name", Shape::Text), always("image", Shape::Text)],
            }),
        ),
    ],
};

/// `olm.deprecations`.
pub(crate) const DEPRECATIONS: Structure = Structure {
    name: "declcfg.Deprecation",
    fields: &[
        always("schema", Shape::Text),
        always("package", Shape::Text),
        always(
            "entries",
            Shape::Objects(&Structure {
                name: "declcfg.DeprecationEntry",
                fields: &[
                    always(
                        "reference",
                        Shape::Object(&Structure {
                            name: "declcfg.PackageScopedReference",
                            fields: &[always("schema", Shape::Text), if_any("name", Shape::Text)],
                        }),
                    ),
                    always("message", Shape::Text),
                ],
            }),
        ),
    ],
};

/// The structure of a known schema.
pub(crate) fn of_schema(schema: &str) -> Option<&'static Structure> {
    match schema {
        crate::SCHEMA_PACKAGE => Some(&PACKAGE),
        crate::SCHEMA_CHANNEL => Some(&CHANNEL),
        crate::SCHEMA_BUNDLE => Some(&BUNDLE),
        crate::SCHEMA_DEPRECATIONS => Some(&DEPRECATIONS),
        _ => None,
    }
}

const GVK_FIELDS: &[Field] =
    &[always("group", Shape::Text), always("kind", Shape::Text), always("version", Shape::Text)];

/// The structure of the value of a typed property.
pub(crate) fn of_property(kind: &str) -> Option<&'static Structure> {
    const PACKAGE: Structure = Structure {
        name: "property.Package",
        fields: &[
            always("packageName", Shape::Text),
            always("version", Shape::Text),
            if_any("release", Shape::Text),
        ],
    };
    const PACKAGE_REQUIRED: Structure = Structure {
        name: "property.PackageRequired",
        fields: &[always("packageName", Shape::Text), always("versionRange", Shape::Text)],
    };
    const CHANNEL: Structure = Structure {
        name: "property.Channel",
        fields: &[always("channelName", Shape::Text), always("priority", Shape::Int)],
    };
    const OBJECT: Structure =
        Structure { name: "property.BundleObject", fields: &[always("data", Shape::Bytes)] };
    match kind {
        "olm.package" => Some(&PACKAGE),
        "olm.package.required" => Some(&PACKAGE_REQUIRED),
        "olm.gvk" => Some(&Structure { name: "property.GVK", fields: GVK_FIELDS }),
        "olm.gvk.required" => Some(&Structure { name: "property.GVKRequired", fields: GVK_FIELDS }),
        "olm.bundle.object" => Some(&OBJECT),
        "olm.csv.metadata" => Some(&CSV_METADATA),
        "olm.channel" => Some(&CHANNEL),
        _ => None,
    }
}

const LINK: Structure = Structure {
    name: "v1alpha1.AppLink",
    fields: &[if_any("name", Shape::Text), if_any("url", Shape::Text)],
};

const RESOURCES: Shape = Shape::Objects(&Structure {
    name: "v1alpha1.APIResourceReference",
    fields: &[always("name", Shape::Text), always("kind", Shape::Text), always("version", Shape::Text)],
});

const DESCRIPTOR_FIELDS: &[Field] = &[
    always("path", Shape::Text),
    if_any("displayName", Shape::Text),
    if_any("description", Shape::Text),
    if_any("x-descriptors", TEXT_LIST),
    if_any("value", Shape::Any),
];
const STATUS_DESCRIPTORS: Shape =
    Shape::Objects(&Structure { name: "v1alpha1.StatusDescriptor", fields: DESCRIPTOR_FIELDS });
const SPEC_DESCRIPTORS: Shape =
    Shape::Objects(&Structure { name: "v1alpha1.SpecDescriptor", fields: DESCRIPTOR_FIELDS });
const ACTION_DESCRIPTORS: Shape =
    Shape::Objects(&Structure { name: "v1alpha1.ActionDescriptor", fields: DESCRIPTOR_FIELDS });

const API_SERVICES: Shape = Shape::Objects(&Structure {
    name: "v1alpha1.APIServiceDescription",
    fields: &[
        always("name", Shape::Text),
        always("group", Shape::Text),
        always("version", Shape::Text),
        always("kind", Shape::Text),
        if_any("deploymentName", Shape::Text),
        if_any("containerPort", Shape::Int32),
        if_any("displayName", Shape::Text),
        if_any("description", Shape::Text),
        if_any("resources", RESOURCES),
        if_any("statusDescriptors", STATUS_DESCRIPTORS),
        if_any("specDescriptors", SPEC_DESCRIPTORS),
        if_any("actionDescriptors", ACTION_DESCRIPTORS),
    ],
});

const CRDS: Shape = Shape::Objects(&Structure {
    name: "v1alpha1.CRDDescription",
    fields: &[
        always("name", Shape::Text),
        always("version", Shape::Text),
        always("kind", Shape::Text),
        if_any("displayName", Shape::Text),
        if_any("description", Shape::Text),
        if_any("resources", RESOURCES),
        if_any("statusDescriptors", STATUS_DESCRIPTORS),
        if_any("specDescriptors", SPEC_DESCRIPTORS),
        if_any("actionDescriptors", ACTION_DESCRIPTORS),
    ],
});

const CSV_METADATA: Structure = Structure {
    name: "property.CSVMetadata",
    fields: &[
        if_any("annotations", Shape::Texts),
        if_any(
            "apiServiceDefinitions",
            Shape::Object(&Structure {
                name: "v1alpha1.APIServiceDefinitions",
                fields: &[if_any("owned", API_SERVICES), if_any("required", API_SERVICES)],
            }),
        ),
        if_any(
            "crdDescriptions",
            Shape::Object(&Structure {
                name: "v1alpha1.CustomResourceDefinitions",
                fields: &[if_any("owned", CRDS), if_any("required", CRDS)],
            }),
        ),
        if_any("description", Shape::Text),
        if_any("displayName", Shape::Text),
        if_any(
            "installModes",
            Shape::Objects(&Structure {
                name: "v1alpha1.InstallMode",
                fields: &[always("type", Shape::Text), always("supported", Shape::Truth)],
            }),
        ),
        if_any("keywords", TEXT_LIST),
        if_any("labels", Shape::Texts),
        if_any("links", Shape::Objects(&LINK)),
        if_any(
            "maintainers",
            Shape::Objects(&Structure {
                name: "v1alpha1.Maintainer",
                fields: &[if_any("name", Shape::Text), if_any("email", Shape::Text)],
            }),
        ),
        if_any("maturity", Shape::Text),
        if_any("minKubeVersion", Shape::Text),
        if_any("nativeAPIs", Shape::Objects(&Structure { name: "v1.GroupVersionKind", fields: GVK_FIELDS })),
        if_any("provider", Shape::Object(&LINK)),
    ],
};

impl Shape {
    /// Name of the type in the reference's messages.
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
    /// The field that a key names, whatever its case.
    pub(crate) fn field(&self, key: &str) -> Option<&Field> {
        let exact = self.fields.iter().find(|field| field.name == key);
        exact.or_else(|| {
            let key = fold(key);
            self.fields.iter().find(|field| fold(field.name) == key)
        })
    }

    /// Checks the types of a value; in `strict` form also that every field is known and stands there once.
    ///
    /// # Errors
    /// The first problem, in the words of the reference's JSON decoder.
    pub(crate) fn check(&self, value: &RawValue, strict: bool) -> Result<(), String> {
        Check { strict, structure: "", path: Vec::new() }.object(value, self)
    }
}

struct Check {
    strict: bool,
    /// The structure that the last field of the path belongs to.
    structure: &'static str,
    path: Vec<&'static str>,
}

impl Check {
    fn value(&mut self, value: &RawValue, shape: &Shape) -> Result<(), String> {
        let kind = Kind::of(value);
        if kind == Kind::Null {
            return Ok(());
        }
        match shape {
            Shape::Any => Ok(()),
            Shape::Text if kind == Kind::Text => Ok(()),
            Shape::Truth if kind == Kind::Truth => Ok(()),
            Shape::Bytes if kind == Kind::Text => decode_base64(value).map(drop),
            Shape::Bytes if kind == Kind::List => {
                let items = json::items(value).unwrap_or_default();
                items.iter().try_for_each(|value| self.number::<u8>(value, "uint8"))
            }
            Shape::Int => self.number::<i64>(value, "int"),
            Shape::Int32 => self.number::<i32>(value, "int32"),
            Shape::Texts if kind == Kind::Object => {
                let members = json::members(value).unwrap_or_default();
                members.iter().try_for_each(|(_, value)| self.value(value, &Shape::Text))
            }
            Shape::List(item) if kind == Kind::List => {
                let items = json::items(value).unwrap_or_default();
                items.iter().try_for_each(|value| self.value(value, item))
            }
            Shape::Objects(item) if kind == Kind::List => {
                let items = json::items(value).unwrap_or_default();
                items.iter().try_for_each(|value| self.object(value, item))
            }
            Shape::Object(structure) | Shape::Optional(structure) => self.object(value, structure),
            other => Err(self.refused(kind.name(), &other.type_name())),
        }
    }

    fn number<T: FromStr>(&self, value: &RawValue, wanted: &str) -> Result<(), String> {
        match Kind::of(value) {
            Kind::Null => Ok(()),
            Kind::Number if value.get().parse::<T>().is_ok() => Ok(()),
            Kind::Number => Err(self.refused(&format!("number {}", value.get()), wanted)),
            kind => Err(self.refused(kind.name(), wanted)),
        }
    }

    fn object(&mut self, value: &RawValue, structure: &Structure) -> Result<(), String> {
        let Some(members) = json::members(value) else {
            return match Kind::of(value) {
                Kind::Null => Ok(()),
                kind => Err(self.refused(kind.name(), structure.name)),
            };
        };
        let outer = self.structure;
        for (index, (key, value)) in members.iter().enumerate() {
            if self.strict && members[..index].iter().any(|(other, _)| other == key) {
                return Err(format!("key {} already set in map", olm_version::quote(key)));
            }
            let Some(field) = structure.field(key) else {
                if self.strict {
                    return Err(format!("json: unknown field {}", olm_version::quote(key)));
                }
                continue;
            };
            self.structure = structure.name.rsplit('.').next().unwrap_or_default();
            self.path.push(field.name);
            self.value(value, &field.shape)?;
            self.path.pop();
        }
        self.structure = outer;
        Ok(())
    }

    fn refused(&self, kind: &str, wanted: &str) -> String {
        if self.path.is_empty() {
            return format!("json: cannot unmarshal {kind} into Go value of type {wanted}");
        }
        let path = self.path.join(".");
        format!(
            "json: cannot unmarshal {kind} into Go struct field {}.{path} of type {wanted}",
            self.structure
        )
    }
}

/// Kind of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Null,
    Truth,
    Number,
    Text,
    List,
    Object,
}

impl Kind {
    fn of(value: &RawValue) -> Self {
        match value.get().as_bytes().first() {
            Some(b'{') => Self::Object,
            Some(b'[') => Self::List,
            Some(b'"') => Self::Text,
            Some(b't' | b'f') => Self::Truth,
            Some(b'n') | None => Self::Null,
            Some(_) => Self::Number,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Truth => "bool",
            Self::Number => "number",
            Self::Text => "string",
            Self::List => "array",
            Self::Object => "object",
        }
    }
}

/// The bytes of a string of standard base64 with padding, in which line ends are skipped, or of a list of numbers.
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

/// Where text that is no base64 is wrong, as the reference counts: where a group of four that has no end begins, the
/// byte that must not stand there otherwise.
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
