//! Catalog templates: short descriptions that are expanded to packages, channels and bundles
//! (docs/design/cli.md#catalog-templates).
//!
//! Expansion is pure: the template lists the images, the caller renders them and passes in their content.

mod basic;
mod convert;
mod semver;
mod substitutes;

use std::collections::{BTreeMap, BTreeSet};

use olm_version::quote;
use serde_json::value::RawValue;

pub use basic::BasicTemplate;
pub use convert::{TemplateKind, convert};
pub use semver::{SemverBundle, SemverTemplate};
pub use substitutes::SubstitutesTemplate;

use crate::{
    Meta,
    json::{self, Member},
    shape::Structure,
};

/// Failure to parse or expand a template. The texts match upstream where upstream has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template cannot be parsed.
    #[error("render: unable to read file: {0}")]
    Read(String),
    /// The template names no bundle.
    #[error("render: no bundles specified or no bundles could be rendered")]
    NoBundles,
    /// The bundles do not fit the template.
    #[error("render: unable to post-process bundle info: {0}")]
    Bundles(String),
    /// Fault of a basic template.
    #[error("{0}")]
    Basic(String),
    /// Fault of a substitutes template.
    #[error("render: {0}")]
    Substitutes(String),
    /// The type of the template is unknown.
    #[error("{0}")]
    Schema(String),
    /// A catalog cannot be converted to a template.
    #[error("{0}")]
    Convert(String),
}

/// Schemas of all types of templates.
const SCHEMAS: [&str; 3] = [semver::SCHEMA, basic::SCHEMA, substitutes::SCHEMA];

/// Template of any type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Template {
    /// `olm.semver`.
    Semver(SemverTemplate),
    /// `olm.template.basic`.
    Basic(BasicTemplate),
    /// `olm.template.substitutes`.
    Substitutes(SubstitutesTemplate),
}

impl Template {
    /// Parses a template from YAML or JSON. Its field `schema` selects the type.
    ///
    /// # Errors
    /// The text is not a template.
    pub fn parse(text: &[u8]) -> Result<Self, TemplateError> {
        let refused = |problem: String| TemplateError::Schema(format!("decoding template input: {problem}"));
        let json = olm_yaml::to_json(text, &olm_yaml::Limits::default())
            .map_err(|problem| refused(problem.to_string()))?;
        let value: &RawValue =
            serde_json::from_slice(&json).map_err(|problem| refused(problem.to_string()))?;
        let schema = json::text_field(&json::members(value).unwrap_or_default(), "schema");
        match schema.as_str() {
            semver::SCHEMA => SemverTemplate::parse(text).map(Self::Semver),
            basic::SCHEMA => BasicTemplate::parse(text).map(Self::Basic),
            substitutes::SCHEMA => SubstitutesTemplate::parse(text).map(Self::Substitutes),
            "" => {
                let problem = "template input missing required 'schema' field";
                Err(TemplateError::Schema(format!("{problem}: expected {}", SCHEMAS.join(", "))))
            }
            other => {
                // Upstream's text, without the characters that would change the terminal.
                let other = olm_version::excerpt(other);
                let problem = format!("unknown template schema: {}", quote(&other).trim_matches('"'));
                Err(TemplateError::Schema(format!("{problem}: expected {}", SCHEMAS.join(", "))))
            }
        }
    }

    /// Images of the template, sorted and unique.
    pub fn images(&self) -> BTreeSet<&str> {
        match self {
            Self::Semver(template) => template.images(),
            Self::Basic(template) => template.images(),
            Self::Substitutes(template) => template.images(),
        }
    }
}

/// Parses the text of a template with this structure and schema to JSON.
fn document(text: &[u8], structure: &Structure, schema: &str) -> Result<Box<RawValue>, String> {
    let decoded = |problem: String| format!("decoding template schema: {problem}");
    let json = olm_yaml::to_json(text, &olm_yaml::Limits::default())
        .map_err(|problem| decoded(problem.to_string()))?;
    let value: Box<RawValue> =
        serde_json::from_slice(&json).map_err(|problem| decoded(problem.to_string()))?;
    structure.check(&value, false).map_err(unmarshalling)?;
    let found = json::text_field(&json::members(&value).unwrap_or_default(), "schema");
    if found != schema {
        let (found, schema) = (quote(&found), quote(schema));
        return Err(format!("template has unknown schema ({found}), should be {schema}"));
    }
    Ok(value)
}

/// Objects in the field `entries` of a template.
fn entries(members: &[Member<'_>]) -> Result<Vec<Meta>, String> {
    let entries = json::item_fields(members, "entries");
    entries
        .map(|entry| {
            Meta::from_json(entry.get().as_bytes()).map_err(|problem| unmarshalling(problem.to_string()))
        })
        .collect()
}

fn unmarshalling(problem: String) -> String {
    format!("unmarshalling template: {problem}")
}

/// Object of the bundle in `image`.
fn rendered<'a>(image: &str, bundles: &'a BTreeMap<String, Meta>) -> Result<&'a Meta, String> {
    let missing =
        || format!("supplied bundle image name {} not found in rendered bundle images", quote(image));
    bundles.get(image).ok_or_else(missing)
}
