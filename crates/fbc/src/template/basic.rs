//! `olm.template.basic`: a catalog in which every bundle is given only by its image
//! (docs/design/cli.md#catalog-templates).

use std::collections::{BTreeMap, BTreeSet};

use olm_version::quote;
use serde_json::value::RawValue;

use super::TemplateError;
use crate::{
    Meta, SCHEMA_BUNDLE, json,
    shape::{self, Shape, Structure, always, structure},
};

const SCHEMA: &str = "olm.template.basic";

const TEMPLATE: Structure = structure(
    "basic.BasicTemplateData",
    &[always(&["schema"], Shape::Text), always(&["entries"], Shape::List(&Shape::Any))],
);

/// Parsed template.
///
/// ```
/// use olm_fbc::template::BasicTemplate;
///
/// let text = "schema: olm.template.basic\nentries:\n- schema: olm.bundle\n  image: registry.example/demo:v1\n";
/// let template = BasicTemplate::parse(text.as_bytes())?;
/// assert!(template.images().contains("registry.example/demo:v1"));
/// # Ok::<(), olm_fbc::template::TemplateError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BasicTemplate {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    /// Object that is copied unchanged.
    Object(Meta),
    /// Image of a bundle.
    Image(String),
}

impl BasicTemplate {
    /// Parses a template from YAML or JSON.
    ///
    /// # Errors
    /// The text is not such a template, or a bundle has other fields than schema and image.
    pub fn parse(text: &[u8]) -> Result<Self, TemplateError> {
        let refused = |problem: String| TemplateError::Basic(format!("decoding template schema: {problem}"));
        let json = olm_yaml::to_json(text, &olm_yaml::Limits::default())
            .map_err(|problem| refused(problem.to_string()))?;
        let value: &RawValue =
            serde_json::from_slice(&json).map_err(|problem| refused(problem.to_string()))?;
        TEMPLATE.check(value, false).map_err(not_read)?;
        let members = json::members(value).unwrap_or_default();
        let schema = json::text_field(&members, "schema");
        if schema != SCHEMA {
            let (schema, known) = (quote(&schema), quote(SCHEMA));
            return Err(TemplateError::Basic(format!(
                "template has unknown schema ({schema}), should be {known}"
            )));
        }
        let entries = json::item_fields(&members, "entries").map(Entry::read).collect::<Result<_, _>>()?;
        Ok(Self { entries })
    }

    /// Images of the template, sorted and unique.
    pub fn images(&self) -> BTreeSet<&str> {
        let images = self.entries.iter().filter_map(|entry| match entry {
            Entry::Image(image) => Some(image.as_str()),
            Entry::Object(_) => None,
        });
        images.collect()
    }

    /// Expands the template to a catalog. `bundles` holds the `olm.bundle` object of each image of the template.
    ///
    /// # Errors
    /// An image is missing in `bundles`.
    pub fn expand(&self, bundles: &BTreeMap<String, Meta>) -> Result<Vec<Meta>, TemplateError> {
        let expanded = self.entries.iter().map(|entry| match entry {
            Entry::Object(meta) => Ok(meta.clone()),
            Entry::Image(image) => bundles.get(image).cloned().ok_or_else(|| {
                let image = quote(image);
                TemplateError::Basic(format!(
                    "supplied bundle image name {image} not found in rendered bundle images"
                ))
            }),
        });
        expanded.collect()
    }
}

impl Entry {
    fn read(value: &RawValue) -> Result<Self, TemplateError> {
        let meta =
            Meta::from_json(value.get().as_bytes()).map_err(|problem| not_read(problem.to_string()))?;
        if meta.schema.is_empty() {
            let text = value.get();
            return Err(TemplateError::Basic(format!("object '{text}' is missing root schema field")));
        }
        if meta.schema != SCHEMA_BUNDLE {
            return Ok(Self::Object(meta));
        }
        shape::BUNDLE.check(value, false).map_err(not_read)?;
        let members = json::members(value).unwrap_or_default();
        let has =
            |name| json::field(&members, name).is_some_and(|value| !matches!(value.get(), "\"\"" | "[]"));
        if !has("image") || has("package") || has("properties") || has("relatedImages") {
            let problem = "unexpected fields present in basic template bundle".to_owned();
            return Err(TemplateError::Basic(problem));
        }
        Ok(Self::Image(json::text_field(&members, "image")))
    }
}

fn not_read(problem: String) -> TemplateError {
    TemplateError::Basic(format!("unmarshalling template: {problem}"))
}
