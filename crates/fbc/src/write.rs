//! Writer of catalogs as one stream (docs/design/catalogd.md#writing-catalogs).
//!
//! JSON output has the same bytes as opm's: known schemas in the order of their fields without the empty ones, all
//! other objects and values unchanged, indented by four spaces. Unknown fields of a known schema are kept at the
//! end, while opm drops them. YAML output has sorted keys. Its quoting differs from opm's, but reads back as the
//! same values.

use std::io::{self, Write};

use olm_version::quote;
use serde_json::value::RawValue;

use crate::{
    Meta, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_DEPRECATIONS, SCHEMA_PACKAGE,
    json::{self, Member},
    shape::{self, Shape, Structure},
    write_yaml,
};

/// Output format of a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Concatenated objects, indented by four spaces.
    Json,
    /// Documents, each after a line `---`.
    Yaml,
}

/// Failure to write a catalog.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The line of an object is not JSON.
    #[error("object {} of schema {}: {cause}", quote(name), quote(schema))]
    Object {
        /// Schema of the object.
        schema: String,
        /// Name of the object.
        name: String,
        /// The fault.
        cause: serde_json::Error,
    },
    /// Failure of the output.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes a catalog as one stream: packages sorted by name, in each its package, its channels and bundles by name,
/// other objects by schema, its deprecations. Objects without package come last. Empty documents are omitted.
///
/// # Errors
/// Failure of the output, or an object that is not JSON.
///
/// ```
/// use olm_fbc::{Form, Meta, write};
///
/// let package = Meta::from_json(br#"{"schema":"olm.package","name":"demo"}"#)?;
/// let channel = Meta::from_json(br#"{"schema":"olm.channel","package":"demo","name":"stable"}"#)?;
/// let mut yaml = Vec::new();
/// write(vec![channel, package], Form::Yaml, &mut yaml)?;
/// let yaml = String::from_utf8(yaml)?;
/// assert!(yaml.find("olm.package") < yaml.find("olm.channel"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write(metas: Vec<Meta>, form: Form, out: &mut impl Write) -> Result<(), WriteError> {
    sorted(metas).iter().try_for_each(|meta| write_meta(meta, form, out))
}

fn sorted(mut metas: Vec<Meta>) -> Vec<Meta> {
    metas.retain(|meta| !meta.blob.is_empty());
    metas.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
    metas
}

/// Sort key of an object. Objects with equal keys keep their order.
fn sort_key(meta: &Meta) -> (bool, &str, u8, &str) {
    let owner = meta.owner();
    let (rank, key) = match meta.schema.as_str() {
        SCHEMA_PACKAGE => (0, ""),
        SCHEMA_CHANNEL => (1, meta.name.as_str()),
        SCHEMA_BUNDLE => (2, meta.name.as_str()),
        SCHEMA_DEPRECATIONS => (4, ""),
        _ if owner.is_empty() => (3, ""),
        other => (3, other),
    };
    (owner.is_empty(), owner, rank, key)
}

fn write_meta(meta: &Meta, form: Form, out: &mut impl Write) -> Result<(), WriteError> {
    let refused = |cause| WriteError::Object { schema: meta.schema.clone(), name: meta.name.clone(), cause };
    let value: &RawValue = serde_json::from_slice(&meta.blob).map_err(refused)?;
    let mut text = String::new();
    match shape::of_schema(&meta.schema) {
        Some(structure) => write_value(Some(value), &Shape::Object(structure), &mut text),
        None => text.push_str(value.get()),
    }
    match form {
        Form::Json => out.write_all(write_yaml::printable(&indented(&text)).as_bytes())?,
        Form::Yaml => out.write_all(write_yaml::document(&text).map_err(refused)?.as_bytes())?,
    }
    Ok(())
}

/// Appends an object: known fields in schema order, then the unknown ones in their own.
fn in_order(members: &[Member<'_>], structure: &Structure, out: &mut String) {
    out.push('{');
    let mut separator = "";
    let fields =
        structure.fields.iter().flat_map(|fields| fields.names.iter().map(move |name| (name, fields)));
    for (name, fields) in fields {
        let value = json::field(members, name);
        let empty = value.is_none_or(|value| matches!(value.get(), "\"\"" | "[]"));
        if empty && !fields.always {
            continue;
        }
        out.push_str(&format!("{separator}\"{name}\":"));
        separator = ",";
        write_value(value, &fields.shape, out);
    }
    for (key, value) in members.iter().filter(|(key, _)| structure.field(key).is_none()) {
        let mut quoted = Vec::new();
        olm_yaml::json::write_string(key, &mut quoted);
        out.push_str(&format!("{separator}{}:{}", olm_yaml::json::lossy(&quoted), value.get()));
        separator = ",";
    }
    out.push('}');
}

/// Appends a value, or the empty value of its type if absent.
fn write_value(value: Option<&RawValue>, shape: &Shape, out: &mut String) {
    match (value, shape) {
        (Some(value), Shape::Object(structure) | Shape::Optional(structure)) => match json::members(value) {
            Some(members) => in_order(&members, structure, out),
            None => out.push_str(value.get()),
        },
        (Some(value), Shape::List(item)) => write_list(value, item, out),
        (Some(value), Shape::Objects(item)) => write_list(value, &Shape::Object(item), out),
        (Some(value), _) => out.push_str(value.get()),
        (None, Shape::Text) => out.push_str("\"\""),
        (None, Shape::Truth) => out.push_str("false"),
        (None, Shape::Int | Shape::Int32) => out.push('0'),
        (None, Shape::Object(structure)) => in_order(&[], structure, out),
        (None, _) => out.push_str("null"),
    }
}

fn write_list(list: &RawValue, item: &Shape, out: &mut String) {
    let Some(items) = json::items(list) else { return out.push_str(list.get()) };
    out.push('[');
    for (index, value) in items.into_iter().enumerate() {
        out.push_str(if index > 0 { "," } else { "" });
        write_value(Some(value).filter(|value| value.get() != "null"), item, out);
    }
    out.push(']');
}

/// JSON text with every member and item on its own line, and a final line feed.
pub(crate) fn indented(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut depth = 0_usize;
    let (mut quoted, mut escaped, mut opened) = (false, false, false);
    for c in text.chars() {
        if quoted {
            out.push(c);
            quoted = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            continue;
        }
        let closes = matches!(c, '}' | ']');
        if c.is_ascii_whitespace() {
            continue;
        }
        if closes {
            depth = depth.saturating_sub(1);
        }
        if opened != closes {
            new_line(depth, &mut out);
        }
        opened = matches!(c, '{' | '[');
        match c {
            ',' => {
                out.push(c);
                new_line(depth, &mut out);
            }
            ':' => out.push_str(": "),
            _ => out.push(c),
        }
        depth += usize::from(opened);
        quoted = c == '"';
    }
    out.push('\n');
    out
}

fn new_line(depth: usize, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n("    ", depth));
}
