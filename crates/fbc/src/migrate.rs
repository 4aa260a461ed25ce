//! Migrations of catalog objects to newer notations of the same content (docs/design/cli.md#catalog-migrations).

use std::{fmt, str::FromStr};

use olm_version::quote;
use serde_json::{Value, json, value::RawValue};

use crate::{
    Meta, PROPERTY_BUNDLE_OBJECT, PROPERTY_CSV_METADATA, SCHEMA_BUNDLE,
    json::{self, item_fields, text_field},
    shape::decode_base64,
};

/// Last migration to run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MigrationLevel {
    /// No migration.
    #[default]
    None,
    /// Bundles have the metadata of their ClusterServiceVersion, `olm.csv.metadata`, in place of their manifests,
    /// `olm.bundle.object`.
    BundleObjectToCsvMetadata,
}

impl MigrationLevel {
    /// All levels, in the order of the migrations.
    pub const ALL: [Self; 2] = [Self::None, Self::BundleObjectToCsvMetadata];

    /// Name of the level.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BundleObjectToCsvMetadata => "bundle-object-to-csv-metadata",
        }
    }
}

impl fmt::Display for MigrationLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MigrationLevel {
    type Err = String;

    /// Parses a name. `all` is the last level.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::BundleObjectToCsvMetadata);
        }
        Self::ALL.into_iter().find(|level| level.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("unknown migration level {}; the levels are {names}, all", quote(text))
        })
    }
}

/// Runs the migrations up to `level` on an object. `metadata` builds the value of `olm.csv.metadata` from a
/// ClusterServiceVersion.
///
/// # Errors
/// Errors of `metadata`, with the bundle.
pub fn migrate(
    meta: Meta,
    level: MigrationLevel,
    metadata: impl FnOnce(Value) -> Result<Value, String>,
) -> Result<Meta, String> {
    if level < MigrationLevel::BundleObjectToCsvMetadata || meta.schema != SCHEMA_BUNDLE {
        return Ok(meta);
    }
    let failed = |problem: &dyn fmt::Display| {
        format!("migrate bundle {} of package {}: {problem}", quote(&meta.name), quote(&meta.package))
    };
    let value: &RawValue = serde_json::from_slice(&meta.blob).map_err(|problem| failed(&problem))?;
    let members = json::members(value).unwrap_or_default();
    let is_of = |property: &&RawValue, kind: &str| {
        text_field(&json::members(property).unwrap_or_default(), "type") == kind
    };
    if text_field(&members, "image").is_empty()
        || item_fields(&members, "properties").any(|property| is_of(&property, PROPERTY_CSV_METADATA))
    {
        return Ok(meta);
    }
    let Some(csv) = bundled_csv(&meta) else { return Ok(meta) };
    let metadata =
        json!({ "type": PROPERTY_CSV_METADATA, "value": metadata(csv).map_err(|why| failed(&why))? });
    let kept =
        item_fields(&members, "properties").filter(|property| !is_of(property, PROPERTY_BUNDLE_OBJECT));
    let properties: Vec<String> =
        kept.map(|property| property.get().to_owned()).chain([metadata.to_string()]).collect();
    meta.with_field("properties", &format!("[{}]", properties.join(","))).map_err(|problem| failed(&problem))
}

/// ClusterServiceVersion among the manifests in the properties of a bundle.
pub(crate) fn bundled_csv(bundle: &Meta) -> Option<Value> {
    let value: &RawValue = serde_json::from_slice(&bundle.blob).ok()?;
    let manifest = |property: &RawValue| {
        let members = json::members(property)?;
        let value = json::field(&members, "value")
            .filter(|_| text_field(&members, "type") == PROPERTY_BUNDLE_OBJECT)?;
        let data = decode_base64(json::field(&json::members(value)?, "data")?).ok()?;
        olm_yaml::from_slice(&data).ok()
    };
    item_fields(&json::members(value)?, "properties")
        .filter_map(manifest)
        .find(|manifest| manifest["kind"] == "ClusterServiceVersion")
}
