//! Typed objects of a catalog and the faults of each single object (docs/design/catalogd.md#property-types,
//! docs/design/catalogd.md#typed-model, docs/design/catalogd.md#validation).

use std::fmt::Display;

use olm_version::{Release, Version, quote};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::names::image_problem;
use crate::{
    Channel, Deprecation, Meta, Origin, PROPERTY_BUNDLE_OBJECT, Package, SCHEMA_BUNDLE, SCHEMA_CHANNEL,
    SCHEMA_DEPRECATIONS, SCHEMA_PACKAGE,
    json::{self, Member, item_fields, text_field},
    shape::{self, Structure, decode_base64},
};

/// Most characters of an object shown in a message.
const SHOWN: usize = 4096;

/// Object with its origin.
#[derive(Debug)]
pub(super) struct Located<T> {
    pub(super) object: T,
    pub(super) origin: Origin,
}

/// Fields of an `olm.bundle` that later checks need.
#[derive(Debug, Default)]
pub(super) struct Bundle {
    pub(super) name: String,
    pub(super) package: String,
    pub(super) has_image: bool,
    /// `true` if properties contain the manifests of the bundle.
    pub(super) has_objects: bool,
    /// `None` if missing or invalid.
    pub(super) version: Option<Version>,
    /// Empty for none.
    pub(super) release: Release,
    /// Faults of the bundle itself, in the order of upstream's checks.
    pub(super) faults: Vec<String>,
}

/// Objects of the known schemas, in catalog order.
#[derive(Debug, Default)]
pub(super) struct Documents {
    pub(super) packages: Vec<Located<Package>>,
    pub(super) channels: Vec<Located<Channel>>,
    pub(super) bundles: Vec<Located<Bundle>>,
    pub(super) deprecations: Vec<Located<Deprecation>>,
    /// `true` if an object could not be parsed, so that the absence of others cannot be reported.
    pub(super) incomplete: bool,
}

impl Documents {
    /// Adds an object.
    ///
    /// # Errors
    /// The fault for which upstream's loader rejects the object.
    pub(super) fn add(&mut self, meta: &Meta) -> Result<(), String> {
        fn located<T: DeserializeOwned>(
            meta: &Meta,
            what: &str,
            structure: &Structure,
        ) -> Result<Located<T>, String> {
            let object = serde_json::from_str(checked(meta, what, structure)?.get())
                .map_err(|problem| format!("parse {what}: {problem}"))?;
            Ok(Located { object, origin: meta.origin.clone() })
        }
        let added = match meta.schema.as_str() {
            SCHEMA_PACKAGE => located(meta, "package", &shape::PACKAGE).map(|p| self.packages.push(p)),
            SCHEMA_CHANNEL => located(meta, "channel", &shape::CHANNEL).map(|c| self.channels.push(c)),
            SCHEMA_DEPRECATIONS => {
                located(meta, "deprecation", &shape::DEPRECATIONS).map(|d| self.deprecations.push(d))
            }
            SCHEMA_BUNDLE => match checked(meta, "bundle", &shape::BUNDLE) {
                Ok(text) => return self.add_bundle(meta, text),
                Err(problem) => Err(problem),
            },
            "" => {
                let text = olm_yaml::json::lossy(&meta.blob);
                let cut = text.char_indices().nth(SHOWN).map(|(at, _)| at);
                let shown = cut.map_or_else(|| text.to_string(), |at| format!("{}…", &text[..at]));
                Err(format!("object '{shown}' is missing root schema field"))
            }
            _ => Ok(()),
        };
        // An empty document is not an object.
        self.incomplete |= added.is_err() && !meta.blob.is_empty();
        added
    }

    fn add_bundle(&mut self, meta: &Meta, text: &RawValue) -> Result<(), String> {
        let members = json::members(text).unwrap_or_default();
        let properties: Vec<Property<'_>> = item_fields(&members, "properties").map(Property::read).collect();
        let mut bundle = Bundle {
            name: text_field(&members, "name"),
            package: text_field(&members, "package"),
            has_image: !text_field(&members, "image").is_empty(),
            ..Bundle::default()
        };
        bundle.check_package(&properties);
        bundle.check_images(&members);
        bundle.check_version(&properties);
        let objects = check_objects(&properties).map_err(|problem| {
            let (package, name) = (quote(&bundle.package), quote(&bundle.name));
            format!("read bundle objects: package {package}, bundle {name}: {problem}")
        });
        bundle.has_objects = objects.as_ref().map_or(true, |count| *count > 0);
        self.bundles.push(Located { object: bundle, origin: meta.origin.clone() });
        objects.map(drop)
    }
}

impl Bundle {
    fn check_package(&mut self, properties: &[Property<'_>]) {
        if let Err(problem) = parse_properties(properties) {
            self.faults.push(format!("parse properties for bundle {}: {problem}", quote(&self.name)));
            return;
        }
        let mut packages = properties.iter().filter(|property| property.kind == "olm.package");
        let count = packages.clone().count();
        let (Some(property), 1) = (packages.next(), count) else {
            let (package, name) = (quote(&self.package), quote(&self.name));
            self.faults.push(format!(
                "package {package} bundle {name} must have exactly 1 \"olm.package\" property, found {count}"
            ));
            return;
        };
        let named = text_field(&property.members(), "packageName");
        if named != self.package {
            self.faults.push(format!(
                "package {} does not match \"olm.package\" property {}",
                quote(&self.package),
                quote(&named)
            ));
        }
    }

    fn check_images(&mut self, members: &[Member<'_>]) {
        let (package, name) = (quote(&self.package), quote(&self.name));
        let mut check = |place: &str, image: &str| {
            if let Some(problem) = image_problem(image).filter(|_| !image.is_empty()) {
                let image = quote(image);
                self.faults.push(format!(
                    "package {package} bundle {name} {place}: invalid image pull spec {image}: {problem}"
                ));
            }
        };
        check("image", &text_field(members, "image"));
        for (index, related) in item_fields(members, "relatedImages").enumerate() {
            let related = json::members(related).unwrap_or_default();
            check(&format!("relatedImages[{index}].image"), &text_field(&related, "image"));
        }
    }

    /// Parses version and release if there is exactly one `olm.package` property.
    fn check_version(&mut self, properties: &[Property<'_>]) {
        let mut packages = properties.iter().filter(|property| property.kind == "olm.package");
        let (Some(property), None) = (packages.next(), packages.next()) else { return };
        if property.parse().is_err() {
            return;
        }
        let members = property.members();
        let (version, release) = (text_field(&members, "version"), text_field(&members, "release"));
        let name = quote(&self.name);
        match Version::parse(&version) {
            Ok(version) => self.version = Some(version),
            Err(problem) => self.version_fault(&name, "version", &version, problem),
        }
        match Release::parse(&release) {
            Ok(release) => self.release = release,
            Err(problem) => {
                self.version = None;
                self.version_fault(&name, "release version", &release, problem);
            }
        }
    }

    fn version_fault(&mut self, name: &str, what: &str, text: &str, problem: impl Display) {
        self.faults.push(format!("error parsing bundle {name} {what} {}: {problem}", quote(text)));
    }
}

/// Property as written.
struct Property<'a> {
    kind: String,
    /// `null` if written so, `None` if absent.
    value: Option<&'a RawValue>,
}

impl<'a> Property<'a> {
    fn read(property: &'a RawValue) -> Self {
        let members = json::members(property).unwrap_or_default();
        Self { kind: text_field(&members, "type"), value: json::present(&members, "value") }
    }

    /// Checks the shape of the value.
    fn parse(&self) -> Result<(), String> {
        let value = self.value.ok_or("unexpected end of JSON input")?;
        shape::of_property(&self.kind).map_or(Ok(()), |structure| structure.check(value, false))
    }

    fn members(&self) -> Vec<Member<'a>> {
        self.value.and_then(json::members).unwrap_or_default()
    }
}

/// Checks the shape of every property.
fn parse_properties(properties: &[Property<'_>]) -> Result<(), String> {
    properties.iter().enumerate().try_for_each(|(index, property)| {
        property.parse().map_err(|problem| {
            format!("parse property[{index}] of type {}: {problem}", quote(&property.kind))
        })
    })
}

/// Checks the manifests in the properties and counts them.
fn check_objects(properties: &[Property<'_>]) -> Result<usize, String> {
    let mut count = 0;
    for (index, property) in properties.iter().enumerate() {
        if property.kind != PROPERTY_BUNDLE_OBJECT {
            continue;
        }
        property
            .parse()
            .map_err(|problem| format!("parse property at index {index} as bundle object: {problem}"))?;
        let data = json::field(&property.members(), "data").map(decode_base64).transpose();
        let data = data.ok().flatten().unwrap_or_default();
        count += 1;
        // Content that starts like JSON is not converted.
        if data.utf8_chunks().next().is_some_and(|chunk| chunk.valid().trim_start().starts_with('{')) {
            continue;
        }
        olm_yaml::to_json(&data, &olm_yaml::Limits::default()).map_err(|problem| {
            let problem = problem.to_string();
            let problem = problem.strip_prefix("error converting YAML to JSON: ").unwrap_or(&problem);
            format!("convert bundle object property at index {index} to JSON: {problem}")
        })?;
    }
    Ok(count)
}

/// Object of a meta with fields of the right types.
fn checked<'a>(meta: &'a Meta, what: &str, structure: &Structure) -> Result<&'a RawValue, String> {
    let refused = |problem: String| format!("parse {what}: {problem}");
    let text = raw(meta).map_err(|problem| refused(problem.to_string()))?;
    structure.check(text, false).map_err(refused)?;
    Ok(text)
}

/// Line of a meta as JSON.
pub(super) fn raw(meta: &Meta) -> Result<&RawValue, serde_json::Error> {
    serde_json::from_slice(&meta.blob)
}
