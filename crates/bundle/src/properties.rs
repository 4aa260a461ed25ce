//! Annotation `olm.properties` (docs/design/bundles.md#merged-properties): properties of the ClusterServiceVersion,
//! then those of the file.
//!
//! Pod templates and revisions contain the text. It must equal that of the reference byte for byte, including key
//! order and the spelling of numbers.

use std::collections::BTreeMap;

use olm_version::excerpt;
use olm_yaml::json;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::BundleLoadError;
use crate::go_json;

/// Annotation of the ClusterServiceVersion and of the revision with the properties as JSON text.
pub const PROPERTIES_ANNOTATION: &str = "olm.properties";

/// Merged text. `None` if neither source has properties.
///
/// # Errors
/// The annotation or the file is invalid.
pub(crate) fn merge(
    annotation: Option<&str>,
    file: Option<&[u8]>,
) -> Result<Option<String>, BundleLoadError> {
    let mut elements = annotation.map(authored_elements).transpose()?.unwrap_or_default();
    let Some(file) = file.filter(|bytes| !bytes.is_empty()) else {
        return Ok(annotation.map(str::to_string));
    };
    elements.extend(file_elements(file)?);
    if elements.is_empty() {
        return Ok(Some("null".into()));
    }
    Ok(Some(format!("[{}]", elements.join(","))))
}

fn element(kind: &str, value: &str) -> String {
    format!(r#"{{"type":{},"value":{value}}}"#, go_json::text(&Value::from(kind)))
}

fn authored_elements(text: &str) -> Result<Vec<String>, BundleLoadError> {
    let refused = |detail: String| BundleLoadError::PropertiesAnnotation(detail);
    json::canonicalize(text.as_bytes()).map_err(|error| {
        refused(match error.message.as_str() {
            "unexpected EOF" => "unexpected end of JSON input".into(),
            message => message.to_string(),
        })
    })?;
    let wrong = |raw: &RawValue, target: &str| {
        refused(format!("json: cannot unmarshal {} into Go {target}", raw_kind(raw)))
    };
    let unreadable = |error: serde_json::Error| refused(excerpt(&error.to_string()).into_owned());
    let document: &RawValue = serde_json::from_str(text).map_err(unreadable)?;
    let elements: Vec<&RawValue> = match raw_kind(document) {
        "null" => Vec::new(),
        "array" => serde_json::from_str(text).map_err(unreadable)?,
        _ => return Err(wrong(document, "value of type []property.Property")),
    };
    let texts = elements.into_iter().map(|raw| {
        let members: BTreeMap<String, &RawValue> = match raw_kind(raw) {
            "null" => BTreeMap::new(),
            "object" => serde_json::from_str(raw.get()).map_err(unreadable)?,
            _ => return Err(wrong(raw, "value of type property.Property")),
        };
        let member = |name: &str| {
            members.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, raw)| *raw).next_back()
        };
        let kind = match member("type").map(|raw| (raw, raw_kind(raw))) {
            None | Some((_, "null")) => String::new(),
            // Invalid Unicode escapes become the replacement character.
            Some((raw, "string")) => json::to_value(raw.get().as_bytes())
                .ok()
                .and_then(|kind| kind.as_str().map(str::to_owned))
                .unwrap_or_default(),
            Some((raw, _)) => return Err(wrong(raw, "struct field Property.type of type string")),
        };
        Ok(element(&kind, &member("value").map_or_else(|| "null".into(), |raw| go_json::compact(raw.get()))))
    });
    texts.collect()
}

/// Kind of JSON text, as in error messages of Go's decoder.
fn raw_kind(raw: &RawValue) -> &'static str {
    match raw.get().trim_start().as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "bool",
        Some(b'n') => "null",
        _ => "number",
    }
}

fn file_elements(file: &[u8]) -> Result<Vec<String>, BundleLoadError> {
    let refused = |detail: String| BundleLoadError::PropertiesFile(detail);
    let wrong = |what: &Value, target: &str| {
        let mismatch = go_json::mismatch(what, target);
        refused(format!("error unmarshaling JSON: while decoding JSON: {mismatch}"))
    };
    let document = olm_yaml::from_slice(file).map_err(|error| refused(error.to_string()))?;
    let list = match &document {
        Value::Null => return Ok(Vec::new()),
        Value::Object(entries) => go_json::field(entries, "properties").unwrap_or(&Value::Null),
        other => return Err(wrong(other, "value of type source.RegistryV1Properties")),
    };
    let properties = match list {
        Value::Null => return Ok(Vec::new()),
        Value::Array(properties) => properties,
        other => {
            let target = "struct field RegistryV1Properties.properties of type []property.Property";
            return Err(wrong(other, target));
        }
    };
    let texts = properties.iter().map(|property| match property {
        Value::Null => Ok(element("", "null")),
        Value::Object(entries) => {
            let kind = match go_json::field(entries, "type") {
                None => String::new(),
                Some(other @ (Value::Array(_) | Value::Object(_))) => {
                    return Err(wrong(other, "struct field Property.properties.type of type string"));
                }
                Some(kind) => go_json::as_text(kind),
            };
            Ok(element(&kind, &go_json::field(entries, "value").map_or_else(|| "null".into(), go_json::text)))
        }
        other => {
            let target = "struct field RegistryV1Properties.properties of type property.Property";
            Err(wrong(other, target))
        }
    });
    texts.collect()
}

/// Property that may block a cluster update.
const MAX_OPENSHIFT_VERSION: &str = "olm.maxOpenShiftVersion";

/// Value of the first property `olm.maxOpenShiftVersion` as written in the file, if it is a number that [`merge`]
/// spells differently (docs/design/additions.md#maximum-openshift-version).
pub(crate) fn max_openshift_version(file: &[u8]) -> Option<String> {
    let value = |document: &Value| {
        let properties = document.get("properties")?.as_array()?;
        properties.iter().find(|one| one["type"] == MAX_OPENSHIFT_VERSION)?.get("value").cloned()
    };
    let number = value(&olm_yaml::from_slice(file).ok()?).filter(Value::is_number)?;
    let written = value(&olm_yaml::from_slice_with_written_decimals(file).ok()?)?;
    written.as_str().filter(|written| *written != go_json::text(&number)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(annotation: Option<&str>, file: Option<&str>) -> Result<Option<String>, String> {
        merge(annotation, file.map(str::as_bytes)).map_err(|error| error.to_string())
    }

    #[test]
    fn annotation_without_file_is_kept_byte_for_byte() {
        // Case bundles-10
        let annotation = r#"[ {"type": "a", "value": 1.50} ]"#;
        assert_eq!(merged(Some(annotation), None), Ok(Some(annotation.into())));
        assert_eq!(merged(Some(annotation), Some("")), Ok(Some(annotation.into())));
        assert_eq!(merged(None, None), Ok(None));
    }

    #[test]
    fn annotation_and_file_properties_are_merged() {
        // Case bundles-11
        let annotation = r#"[ {"type": "olm.gvk", "value": {"version": "v1", "group": "g", "kind": "K"}} ]"#;
        let expected = r#"[{"type":"olm.gvk","value":{"version":"v1","group":"g","kind":"K"}},{"type":"z","value":{"a":"x\u003cy","b":1}}]"#;
        let file = "properties: [{type: z, value: {b: 1, a: \"x<y\"}, other: dropped}]";
        assert_eq!(merged(Some(annotation), Some(file)), Ok(Some(expected.into())));
    }

    #[test]
    fn file_numbers_are_normalized() {
        // Cases bundles-12, seeds-s0-5: a null value is accepted.
        let file = "properties: [{type: olm.maxOpenShiftVersion, value: 4.20}, {type: none}, {type: empty, value: null}]";
        let expected = r#"[{"type":"olm.maxOpenShiftVersion","value":4.2},{"type":"none","value":null},{"type":"empty","value":null}]"#;
        assert_eq!(merged(None, Some(file)), Ok(Some(expected.into())));
    }

    // docs/design/additions.md#maximum-openshift-version; case operations-a37
    #[test]
    fn max_openshift_version_keeps_file_spelling() {
        let rows = [
            ("4.20", Some("4.20")),
            ("4.20 # the last one", Some("4.20")),
            ("5.0", Some("5.0")),
            ("04.18", Some("04.18")),
            ("4.18", None),
            ("\"4.20\"", None),
            ("4.18.0", None),
            ("5", None),
            ("", None),
        ];
        for (value, expected) in rows {
            let file = format!(
                "properties:\n- type: x\n  value: 1.50\n- type: olm.maxOpenShiftVersion\n  value: {value}\n"
            );
            assert_eq!(max_openshift_version(file.as_bytes()).as_deref(), expected, "{value}");
        }
        for file in
            ["", "properties: []", "- a", "properties: [", "properties: [{type: olm.maxOpenShiftVersion}]"]
        {
            assert_eq!(max_openshift_version(file.as_bytes()), None, "{file}");
        }
    }

    #[test]
    fn file_without_properties_yields_null() {
        // Case bundles-13
        for file in ["# only a comment\n", "properties: []", "properties: null", "other: 1"] {
            assert_eq!(merged(None, Some(file)), Ok(Some("null".into())), "{file}");
        }
        assert_eq!(merged(Some("[]"), Some("properties: []")), Ok(Some("null".into())));
    }

    #[test]
    fn property_members_are_decoded_leniently_as_in_go() {
        let file = "PROPERTIES: [{TYPE: yes, Value: 1}, {type: 1.50}, {type: x, value: {b: [<]}}]";
        let expected = r#"[{"type":"true","value":1},{"type":"1.5","value":null},{"type":"x","value":{"b":["\u003c"]}}]"#;
        assert_eq!(merged(None, Some(file)), Ok(Some(expected.into())));
        let annotation = r#"[{"type":"a","type":"b","value":1,"value":2}, null, {"Type":null}]"#;
        let expected = r#"[{"type":"b","value":2},{"type":"","value":null},{"type":"","value":null},{"type":"","value":null}]"#;
        assert_eq!(merged(Some(annotation), Some("properties: [null]")), Ok(Some(expected.into())));
    }

    #[test]
    fn invalid_sources_fail_with_go_messages() {
        let annotation = |text| merged(Some(text), None).unwrap_err();
        let prefix = "failed to unmarshal csv.metadata.annotations['olm.properties']: ";
        assert_eq!(
            annotation("[x]"),
            format!("{prefix}invalid character 'x' looking for beginning of value")
        );
        assert_eq!(annotation("[{"), format!("{prefix}unexpected end of JSON input"));
        let wrong = |what: &str| format!("{prefix}json: cannot unmarshal {what}");
        assert_eq!(annotation("{}"), wrong("object into Go value of type []property.Property"));
        assert_eq!(annotation("[1]"), wrong("number into Go value of type property.Property"));
        assert_eq!(
            annotation("[{\"type\":true}]"),
            wrong("bool into Go struct field Property.type of type string")
        );
        assert_eq!(
            merged(None, Some("- a")),
            Err("failed to unmarshal metadata/properties.yaml: error unmarshaling JSON: while decoding JSON: \
                 json: cannot unmarshal array into Go value of type source.RegistryV1Properties"
                .into())
        );
        assert!(merged(None, Some("properties: [")).unwrap_err().starts_with(
            "failed to unmarshal metadata/properties.yaml: error converting YAML to JSON: yaml: line 1: "
        ));
    }
}
