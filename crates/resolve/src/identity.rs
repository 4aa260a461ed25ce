//! Version and release of a bundle from its properties (docs/design/resolution.md#strict-versions,
//! docs/design/resolution.md#releases).

use olm_fbc::{Bundle, Property};
use olm_version::{VersionRelease, quote};
use olm_yaml::json::Kind;
use serde_json::{Map, Value};

/// Property with the package and version of a bundle.
const PROPERTY_PACKAGE: &str = "olm.package";

/// Version and release from the first `olm.package` property. Further ones are ignored.
///
/// # Errors
/// Text of the parse error, which is shown to users.
pub(crate) fn version(bundle: &Bundle, release_support: bool) -> Result<VersionRelease, String> {
    let property = bundle
        .properties
        .iter()
        .find(|property| property.kind == PROPERTY_PACKAGE)
        .ok_or_else(|| format!("no package property found in bundle {}", quote(&bundle.name)))?;
    let (version, release) =
        version_fields(property).map_err(|fault| format!("error unmarshalling package property: {fault}"))?;
    let release = release.filter(|_| release_support);
    VersionRelease::parse(&version, release.as_deref()).map_err(|fault| fault.to_string())
}

/// `version` and `release` of an `olm.package` property. A missing version is read as empty.
fn version_fields(property: &Property) -> Result<(String, Option<String>), String> {
    let fields: Option<Map<String, Value>> = match property.parse().map_err(|fault| fault.to_string())? {
        Value::Object(fields) => Some(fields),
        Value::Null => None,
        other => return Err(wrong_type(&other, "value of type property.Package")),
    };
    let fields = fields.unwrap_or_default();
    text_field(&fields, "packageName")?;
    let version = text_field(&fields, "version")?.unwrap_or_default();
    Ok((version, text_field(&fields, "release")?))
}

/// Text field with a case-insensitive name. `null` is treated as absent.
fn text_field(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    let any_case = || fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    match fields.get(name).or_else(any_case) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(wrong_type(other, &format!("struct field Package.{name} of type string"))),
    }
}

/// Error text of Go's JSON decoder, which is shown to users.
fn wrong_type(value: &Value, target: &str) -> String {
    format!("json: cannot unmarshal {} into Go {target}", Kind::from(value).name())
}
