//! Conversion of a catalog to a template (docs/design/cli.md#catalog-templates).

use olm_version::quote;
use serde_json::{json, value::RawValue};

use super::{SCHEMAS, TemplateError, basic, substitutes};
use crate::{Form, Meta, SCHEMA_BUNDLE, json, validate::check_load, write::indented, write_yaml};

/// Type of a template that a catalog can be converted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateKind {
    /// `olm.template.basic`: bundles are only named by image.
    Basic,
    /// `olm.template.substitutes`: the unchanged catalog, without substitutions.
    Substitutes,
}

/// Converts the objects of a catalog to the text of a template, in the same order.
///
/// # Errors
/// An object cannot be loaded or is a template, or a bundle has no image that a basic template could name.
///
/// ```
/// use olm_fbc::{Form, Meta, template::{TemplateKind, convert}};
///
/// let bundle = Meta::from_json(br#"{"schema":"olm.bundle","name":"b","package":"p","image":"i"}"#)?;
/// let text = convert(&[bundle], TemplateKind::Basic, Form::Yaml)?;
/// assert_eq!(text, "---\nentries:\n- image: i\n  schema: olm.bundle\nschema: olm.template.basic\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn convert(metas: &[Meta], kind: TemplateKind, form: Form) -> Result<String, TemplateError> {
    let failed = |problem: serde_json::Error| TemplateError::Convert(problem.to_string());
    check_load(metas).map_err(TemplateError::Convert)?;
    let mut entries = Vec::with_capacity(metas.len());
    for meta in metas {
        if SCHEMAS.contains(&meta.schema.as_str()) {
            return Err(TemplateError::Convert(format!("{} is a template, not a catalog", meta.schema)));
        }
        let value: &RawValue = serde_json::from_slice(&meta.blob).map_err(failed)?;
        let is_reduced = kind == TemplateKind::Basic && meta.schema == SCHEMA_BUNDLE;
        entries.push(if is_reduced { reduced(meta, value)? } else { value.get().to_owned() });
    }
    let entries = entries.join(",");
    let text = match kind {
        TemplateKind::Basic => format!("{{\"schema\":\"{}\",\"entries\":[{entries}]}}", basic::SCHEMA),
        TemplateKind::Substitutes => {
            format!("{{\"schema\":\"{}\",\"entries\":[{entries}],\"substitutions\":[]}}", substitutes::SCHEMA)
        }
    };
    match form {
        Form::Json => Ok(write_yaml::printable(&indented(&text))),
        Form::Yaml => write_yaml::document(&text).map_err(failed),
    }
}

/// Bundle with nothing but its image.
fn reduced(bundle: &Meta, value: &RawValue) -> Result<String, TemplateError> {
    let image = json::text_field(&json::members(value).unwrap_or_default(), "image");
    if image.is_empty() {
        let (name, package) = (quote(&bundle.name), quote(&bundle.package));
        let problem = format!("bundle {name} of package {package} has no image");
        return Err(TemplateError::Convert(format!(
            "{problem}: a basic template names bundles by image, convert to substitutes instead"
        )));
    }
    Ok(format!("{{\"schema\":\"{SCHEMA_BUNDLE}\",\"image\":{}}}", json!(image)))
}
