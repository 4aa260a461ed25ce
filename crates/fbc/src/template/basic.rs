//! `olm.template.basic`: a catalog in which every bundle is given only by its image
//! (docs/design/cli.md#catalog-templates).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use super::TemplateError;
use crate::{
    Meta, SCHEMA_BUNDLE, json,
    shape::{Shape, Structure, always, structure},
    validate::check_load,
};

pub(super) const SCHEMA: &str = "olm.template.basic";

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
        let read = || {
            let value = super::document(text, &TEMPLATE, SCHEMA)?;
            let metas = super::entries(&json::members(&value).unwrap_or_default())?;
            check_load(&metas)?;
            metas.into_iter().map(Entry::read).collect::<Result<_, String>>()
        };
        read().map(|entries| Self { entries }).map_err(TemplateError::Basic)
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
            Entry::Image(image) => super::rendered(image, bundles).cloned().map_err(TemplateError::Basic),
        });
        expanded.collect()
    }
}

impl Entry {
    fn read(meta: Meta) -> Result<Self, String> {
        if meta.schema != SCHEMA_BUNDLE {
            return Ok(Self::Object(meta));
        }
        let value: &RawValue = serde_json::from_slice(&meta.blob).map_err(|problem| problem.to_string())?;
        let members = json::members(value).unwrap_or_default();
        let has =
            |name| json::field(&members, name).is_some_and(|value| !matches!(value.get(), "\"\"" | "[]"));
        if !has("image") || has("package") || has("properties") || has("relatedImages") {
            return Err("unexpected fields present in basic template bundle".to_owned());
        }
        Ok(Self::Image(json::text_field(&members, "image")))
    }
}
