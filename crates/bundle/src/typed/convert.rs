//! Checks, prunes and normalizes a value according to its type.

use olm_version::Version;
use serde_json::{Map, Number, Value};

use super::decode;
use super::types::{Field, Presence, Type, field_of, types};
use crate::{go_json, go_time, quantity};

/// Value of the wrong type. The message is that of the reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ConvertError {
    message: String,
    /// Field names and list indexes, innermost first.
    path: Vec<String>,
}

impl ConvertError {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), path: Vec::new() }
    }

    /// Replaces the type of a string in the message by its Go name.
    fn named(mut self, go_name: Option<&str>) -> Self {
        if let Some(go_name) = go_name.filter(|_| self.message == INTEGER_AS_STRING) {
            self.message = format!("cannot convert int64 to {go_name}");
        }
        self
    }

    fn inside(mut self, segment: impl Into<String>) -> Self {
        self.path.push(segment.into());
        self
    }

    /// Dotted path of the field, including list indexes: `spec.versions.0.name`.
    pub(crate) fn field(&self) -> String {
        self.path.iter().rev().map(String::as_str).collect::<Vec<_>>().join(".")
    }
}

const INTEGER_AS_STRING: &str = "cannot convert int64 to string";

/// Returns the normal form of `value` as a `kind`. Idempotent.
///
/// # Errors
/// A known field has a value of the wrong type.
pub(crate) fn convert(value: Value, kind: &Type) -> Result<Value, ConvertError> {
    read(value, kind, false)
}

/// [`convert`]. `decoded` is `true` inside a schema union, which is checked as a whole.
fn read(value: Value, kind: &Type, decoded: bool) -> Result<Value, ConvertError> {
    if value.is_null() {
        return zero(kind);
    }
    let refused = |message: String| Err(ConvertError::new(message));
    match (kind, value) {
        (Type::Json, value) => Ok(value),
        (Type::String, value) => string(value),
        (Type::Bool, value @ Value::Bool(_)) => Ok(value),
        (Type::Bool, other) => Err(mismatch(&other, "bool")),
        (Type::Int32, value) => integer(value, "int32"),
        (Type::Int64, value) => integer(value, "int64"),
        (Type::Number, Value::Number(number)) => Ok(Value::Number(shortest(number))),
        (Type::Number, other) => Err(mismatch(&other, "float64")),
        (Type::Quantity, value) => quantity_text(&value),
        (Type::IntOrString, value) => int_or_string(value),
        (Type::Time, Value::String(text)) => go_time::normal(&text).map(Value::from).or_else(refused),
        (Type::Version, Value::String(text)) => match Version::parse_tolerant(&text) {
            Ok(_) => Ok(Value::String(text)),
            Err(error) => refused(error.to_string()),
        },
        (Type::Time | Type::Version, other) => refused(go_json::mismatch(&other, "value of type string")),
        (Type::SchemaOrBool | Type::SchemaOrList | Type::SchemaOrStrings, value) => {
            union(value, kind, decoded)
        }
        (Type::List(element), Value::Array(items)) => list(items, element, decoded),
        (Type::List(_), other) => refused(format!("cannot restore slice from {}", go_kind(&other))),
        (Type::Map(element), Value::Object(entries)) => map(entries, element, decoded),
        (Type::Map(_), other) => refused(format!("cannot restore map from {}", go_kind(&other))),
        (Type::Struct(name), Value::Object(entries)) => fields(entries, types().fields(name), decoded),
        (Type::Struct(_), other) => refused(format!("cannot restore struct from: {}", go_kind(&other))),
    }
}

/// Converts a union of a schema and another type. As in the reference, errors are those of Go's JSON decoder, and a
/// value of neither type becomes null.
fn union(value: Value, kind: &Type, decoded: bool) -> Result<Value, ConvertError> {
    let fault = if decoded { None } else { decode::union_fault(&value, kind) };
    let schema = Type::Struct("JSONSchemaProps");
    let element = if *kind == Type::SchemaOrStrings { &Type::String } else { &schema };
    let converted = match value {
        Value::Bool(_) if *kind == Type::SchemaOrBool => Ok(value),
        Value::Object(_) => read(value, &schema, true),
        Value::Array(items) if *kind != Type::SchemaOrBool && !items.is_empty() => list(items, element, true),
        _ => Ok(Value::Null),
    };
    match fault {
        Some(message) => {
            Err(ConvertError { message, path: converted.err().map(|error| error.path).unwrap_or_default() })
        }
        None => converted,
    }
}

/// Normal form of an absent value of the type.
fn zero(kind: &Type) -> Result<Value, ConvertError> {
    Ok(match kind {
        Type::String => Value::from(""),
        Type::Bool => Value::from(false),
        Type::Int32 | Type::Int64 | Type::Number | Type::IntOrString => Value::from(0),
        Type::Quantity => Value::from("0"),
        Type::Struct(name) => fields(Map::new(), types().fields(name), false)?,
        Type::Time
        | Type::Json
        | Type::Version
        | Type::SchemaOrBool
        | Type::SchemaOrList
        | Type::SchemaOrStrings
        | Type::List(_)
        | Type::Map(_) => Value::Null,
    })
}

fn list(mut items: Vec<Value>, element: &Type, decoded: bool) -> Result<Value, ConvertError> {
    for (index, item) in items.iter_mut().enumerate() {
        *item = read(item.take(), element, decoded).map_err(|error| error.inside(index.to_string()))?;
    }
    Ok(Value::Array(items))
}

fn map(mut entries: Map<String, Value>, element: &Type, decoded: bool) -> Result<Value, ConvertError> {
    for (key, value) in &mut entries {
        *value = read(value.take(), element, decoded).map_err(|error| error.inside(key.as_str()))?;
    }
    Ok(Value::Object(entries))
}

fn fields(mut entries: Map<String, Value>, known: &[Field], decoded: bool) -> Result<Value, ConvertError> {
    let mut fault: Option<(usize, ConvertError)> = None;
    entries.retain(|key, value| {
        let Some(field) = field_of(known, key).filter(|_| !value.is_null()) else {
            return false;
        };
        match read(value.take(), &field.kind, decoded) {
            Ok(converted) => *value = converted,
            // Of several errors, the reference reports that of the field declared first.
            Err(error) if fault.as_ref().is_none_or(|(position, _)| field.position < *position) => {
                fault = Some((field.position, error.named(field.go_name).inside(field.name)));
            }
            Err(_) => {}
        }
        field.presence != Presence::NonZero || !is_zero(value, &field.kind)
    });
    if let Some((_, error)) = fault {
        return Err(error);
    }
    for field in known {
        let absent = match field.presence {
            Presence::NonZero | Presence::Given => continue,
            Presence::Always | Presence::AlwaysOrNull if entries.contains_key(field.name) => continue,
            Presence::Always => zero(&field.kind)?,
            Presence::AlwaysOrNull => Value::Null,
        };
        entries.insert(field.name.to_string(), absent);
    }
    Ok(Value::Object(entries))
}

/// Reports whether an optional field with this value is omitted. Values behind pointers are never omitted.
fn is_zero(value: &Value, kind: &Type) -> bool {
    match kind {
        Type::String | Type::Version => value.as_str() == Some(""),
        Type::Bool => value == &Value::Bool(false),
        Type::Int32 | Type::Int64 | Type::Number => value.as_f64() == Some(0.0),
        Type::List(_) => value.as_array().is_some_and(Vec::is_empty),
        Type::Map(_) => value.as_object().is_some_and(Map::is_empty),
        Type::Time => value.is_null(),
        _ => false,
    }
}

fn string(value: Value) -> Result<Value, ConvertError> {
    match value {
        Value::String(_) => Ok(value),
        // Go converts integers to strings, and the reference then refuses them. Other kinds are unknown to it.
        Value::Number(number) if number.as_i64().is_some() => Err(ConvertError::new(INTEGER_AS_STRING)),
        _ => Err(ConvertError::new("unrecognized type: string")),
    }
}

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

fn integer(value: Value, kind: &str) -> Result<Value, ConvertError> {
    let Value::Number(number) = &value else {
        return Err(mismatch(&value, kind));
    };
    let whole = match (number.as_i64(), number.as_f64()) {
        (Some(whole), _) => whole,
        // Outside of 64 bits, the reference yields the smallest integer, regardless of the sign.
        (None, Some(float)) if float.trunc() == float && float.abs() >= TWO_TO_63 => i64::MIN,
        #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
        (None, Some(float)) if float.trunc() == float => float as i64,
        _ => return Err(ConvertError::new(format!("cannot convert float64 to {kind}"))),
    };
    if kind == "int32" {
        // The reference wraps, and a revision must equal what it renders.
        #[expect(clippy::cast_possible_truncation, reason = "wraps as the reference does")]
        return Ok(Value::from(whole as i32));
    }
    Ok(Value::from(whole))
}

fn int_or_string(value: Value) -> Result<Value, ConvertError> {
    match &value {
        Value::String(_) => Ok(value),
        Value::Number(number) => match shortest(number.clone()).as_i64().map(i32::try_from) {
            Some(Ok(whole)) => Ok(Value::from(whole)),
            _ => {
                let number = go_json::number(number);
                let message = format!("json: cannot unmarshal number {number} into Go value of type int32");
                Err(ConvertError::new(message))
            }
        },
        other => Err(ConvertError::new(go_json::mismatch(other, "value of type int32"))),
    }
}

fn quantity_text(value: &Value) -> Result<Value, ConvertError> {
    let text = match value {
        Value::String(text) => text.trim().to_string(),
        Value::Number(number) => go_json::number(number),
        other => other.to_string(),
    };
    quantity::canonical(&text).map(Value::from).map_err(|error| ConvertError::new(error.to_string()))
}

fn mismatch(value: &Value, kind: &str) -> ConvertError {
    match value {
        Value::Number(number) if kind != "bool" && number.as_i64().is_none() => {
            ConvertError::new(format!("cannot convert float64 to {kind}"))
        }
        _ => ConvertError::new(format!("unrecognized type: {kind}")),
    }
}

/// Converts a float with an integral value to an integer.
pub(crate) fn shortest(number: Number) -> Number {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        #[expect(clippy::cast_possible_truncation, reason = "whole and small enough")]
        Some(float) if !number.is_i64() && float.trunc() == float && float.abs() <= EXACT => {
            Number::from(float as i64)
        }
        _ => number,
    }
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.as_i64().is_some() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde_json::json;

    use super::*;

    fn container(value: Value) -> Result<Value, String> {
        convert(value, &Type::Struct("Container")).map_err(|error| format!("{}: {error}", error.field()))
    }

    #[test]
    fn unknown_fields_and_zero_values_are_dropped() {
        // Cases bundles-6, bundles-7
        let given = json!({
            "name": "c", "imagePullPolcy": "Always", "tty": false, "command": null, "args": [],
            "ports": [{"containerPort": 80.0, "hostPort": 0}],
            "env": [{"name": "E", "value": ""}],
            "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}},
            "securityContext": {"privileged": false, "capabilities": {}, "runAsUser": 0},
            "readinessProbe": {"httpGet": {}, "timeoutSeconds": 0},
        });
        let expected = json!({
            "name": "c", "ports": [{"containerPort": 80}], "env": [{"name": "E"}],
            "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
            "securityContext": {"privileged": false, "capabilities": {}, "runAsUser": 0},
            "readinessProbe": {"httpGet": {"port": 0}},
        });
        assert_eq!(container(given), Ok(expected.clone()));
        assert_eq!(container(expected.clone()), Ok(expected));
        assert_eq!(container(json!({})), Ok(json!({"name": "", "resources": {}})));
    }

    #[test]
    fn required_deployment_fields_are_added() {
        let spec = convert(json!({}), &Type::Struct("DeploymentSpec")).unwrap();
        let expected = json!({
            "selector": null, "strategy": {},
            "template": {"metadata": {}, "spec": {"containers": null}},
        });
        assert_eq!(spec, expected);
    }

    #[test]
    fn wrong_types_fail_with_reference_messages() {
        // docs/design/bundles.md#typed-conversion; cases bundles-4, bundles-8
        let rows = [
            (json!({"env": [{"name": "A", "value": 1}]}), "env.0.value: cannot convert int64 to string"),
            (json!({"env": [{"name": "A", "value": true}]}), "env.0.value: unrecognized type: string"),
            (json!({"ports": [{"containerPort": "80"}]}), "ports.0.containerPort: unrecognized type: int32"),
            (
                json!({"ports": [{"containerPort": 80.5}]}),
                "ports.0.containerPort: cannot convert float64 to int32",
            ),
            (
                json!({"securityContext": {"runAsUser": 1000.5}}),
                "securityContext.runAsUser: cannot convert float64 to int64",
            ),
            (json!({"args": "x"}), "args: cannot restore slice from string"),
            (json!({"resources": 5}), "resources: cannot restore struct from: int64"),
            (json!({"tty": "yes"}), "tty: unrecognized type: bool"),
            (
                json!({"resources": {"limits": {"cpu": "1K"}}}),
                "resources.limits.cpu: unable to parse quantity's suffix",
            ),
            (
                json!({"livenessProbe": {"tcpSocket": {"port": true}}}),
                "livenessProbe.tcpSocket.port: json: cannot unmarshal bool into Go value of type int32",
            ),
        ];
        for (value, message) in rows {
            assert_eq!(container(value.clone()), Err(message.to_string()), "{value}");
        }
    }

    #[test]
    fn numbers_wrap_and_normalize_as_in_go() {
        let port = json!({"ports": [{"containerPort": 99_999_999_999_i64}]});
        assert_eq!(container(port).unwrap()["ports"][0]["containerPort"], json!(1_215_752_191));
        let cpu = |value: Value| container(json!({"resources": {"limits": {"cpu": value}}}));
        let text = |value: Value| cpu(value).unwrap()["resources"]["limits"]["cpu"].clone();
        assert_eq!(text(json!(1000)), json!("1k"));
        assert_eq!(text(json!(1e3)), json!("1k"));
        assert_eq!(text(json!(1e-7)), json!("100e-9"));
        assert_eq!(text(json!(null)), json!("0"));
    }

    #[test]
    fn schemas_keep_pointer_fields_and_drop_zero_values() {
        let schema = json!({
            "type": "object", "description": "", "nullable": false, "required": [], "minimum": 0,
            "default": null, "example": {"b": null}, "additionalProperties": false,
            "items": [{"type": "string", "bogus": 1}], "x-kubernetes-preserve-unknown-fields": false,
            "properties": {"n": null}, "multipleOf": 2.0,
        });
        let expected = json!({
            "type": "object", "minimum": 0, "example": {"b": null}, "additionalProperties": false,
            "items": [{"type": "string"}], "x-kubernetes-preserve-unknown-fields": false,
            "properties": {"n": {}}, "multipleOf": 2,
        });
        assert_eq!(convert(schema, &Type::Struct("JSONSchemaProps")), Ok(expected));
    }

    #[test]
    fn error_names_the_first_declared_field() {
        let faults = json!({"workingDir": 5, "args": "x", "ports": [{"protocol": 1, "hostPort": "a"}]});
        assert_eq!(container(faults), Err("args: cannot restore slice from string".into()));
        let faults = json!({"imagePullPolicy": 5, "tty": "yes"});
        assert_eq!(container(faults), Err("imagePullPolicy: cannot convert int64 to v1.PullPolicy".into()));
        let faults = json!({"securityContext": {"capabilities": {"drop": [1]}}});
        let expected = "securityContext.capabilities.drop.0: cannot convert int64 to v1.Capability";
        assert_eq!(container(faults), Err(expected.into()));
        let huge = json!({"ports": [{"containerPort": 1e19}]});
        assert_eq!(container(huge).unwrap()["ports"][0]["containerPort"], json!(0));
    }

    #[test]
    fn schemas_in_unions_fail_with_decoder_messages() {
        let schema =
            |value| convert(value, &Type::Struct("JSONSchemaProps")).map_err(|error| error.to_string());
        let rows = [
            (
                json!({"items": "x", "dependencies": {"a": 5}}),
                Ok(json!({"items": null, "dependencies": {"a": null}})),
            ),
            (json!({"items": []}), Ok(json!({"items": null}))),
            (
                json!({"items": {"properties": {"p": {"items": {"type": 1}}}}}),
                Err("number into Go struct field JSONSchemaProps.properties.items.type of type string"),
            ),
            (
                json!({"additionalProperties": {"properties": {"p": 5}}}),
                Err("number into Go struct field JSONSchemaProps.properties of type v1.JSONSchemaProps"),
            ),
            (
                json!({"items": {"x-kubernetes-validations": {}}}),
                Err(
                    "object into Go struct field JSONSchemaProps.x-kubernetes-validations of type v1.ValidationRules",
                ),
            ),
            (
                json!({"items": {"maxItems": 1.5}}),
                Err("number 1.5 into Go struct field JSONSchemaProps.maxItems of type int64"),
            ),
        ];
        for (value, expected) in rows {
            let expected = expected.map_err(|text| format!("json: cannot unmarshal {text}"));
            assert_eq!(schema(value.clone()), expected, "{value}");
        }
        let wrong = schema(json!({"properties": {"p": {"additionalProperties": 5}}}));
        assert_eq!(wrong, Err("boolean or JSON schema expected".into()));
    }

    /// Generates values with known field names, so that conversion recurses.
    fn any_value() -> impl Strategy<Value = Value> {
        let names = "template spec metadata annotations containers env name value \
             resources limits volumes emptyDir sizeLimit httpGet port livenessProbe strategy replicas affinity";
        let names: Vec<&str> = names.split(' ').collect();
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-10.0..10.0f64).prop_map(Value::from),
            "[a-z0-9.]{0,4}(Mi|m|e3)?".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map(select(names.clone()), inner, 0..5).prop_map(|entries| {
                    Value::Object(entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn normal_form_is_stable(value in any_value()) {
            for name in ["DeploymentSpec", "PodTemplateSpec", "PodSpec", "Container", "JSONSchemaProps"] {
                let kind = Type::Struct(name);
                if let Ok(once) = convert(value.clone(), &kind) {
                    prop_assert_eq!(convert(once.clone(), &kind), Ok(once));
                }
            }
        }
    }
}
