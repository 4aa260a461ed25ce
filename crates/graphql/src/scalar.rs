//! Scalar types of JSON values, and their conversion to GraphQL values (docs/design/catalogd.md#graphql-types).

use async_graphql::Value;
use async_graphql::dynamic::TypeRef;
use serde::{Deserialize, Serialize};

/// Scalar type of a discovered field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scalar {
    String,
    Int,
    Float,
    Boolean,
}

impl Scalar {
    /// Type of a field whose first value is `json`. Null, objects and arrays are strings.
    pub(crate) fn of(json: &str) -> Self {
        match json.as_bytes().first() {
            Some(b't' | b'f') => Self::Boolean,
            Some(b'-' | b'0'..=b'9') if is_integral(json) => Self::Int,
            Some(b'-' | b'0'..=b'9') => Self::Float,
            _ => Self::String,
        }
    }

    /// GraphQL name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::String => TypeRef::STRING,
            Self::Int => TypeRef::INT,
            Self::Float => TypeRef::FLOAT,
            Self::Boolean => TypeRef::BOOLEAN,
        }
    }

    /// Converts `json` to a value of this type. A value of another type is converted if that is meaningful,
    /// otherwise null. Objects and arrays become their JSON text.
    pub(crate) fn value(self, json: &str) -> Value {
        let text = match json.as_bytes().first() {
            Some(b'"') => serde_json::from_str::<String>(json).ok(),
            Some(b'{' | b'[') if self != Self::String => None,
            None | Some(b'n') => None,
            Some(_) => Some(json.to_owned()),
        };
        let Some(text) = text else {
            return Value::Null;
        };
        match self {
            Self::String => Value::String(text),
            Self::Boolean => Value::Boolean(is_true(json, &text)),
            Self::Int => number(&text).and_then(to_int).map_or(Value::Null, Value::from),
            Self::Float => number(&text).map_or(Value::Null, Value::from),
        }
    }
}

/// `true` for a whole number that fits into 64 bits, in any notation.
fn is_integral(json: &str) -> bool {
    json.parse::<f64>().is_ok_and(|number| number.fract() == 0.0 && number.abs() < 2f64.powi(63))
}

fn is_true(json: &str, text: &str) -> bool {
    match json.as_bytes().first() {
        Some(b'"') => !text.is_empty() && text != "false",
        Some(b't' | b'f') => text == "true",
        _ => number(text).is_some_and(|number| number != 0.0),
    }
}

fn number(text: &str) -> Option<f64> {
    match text {
        "true" => Some(1.0),
        "false" => Some(0.0),
        text => text.parse().ok().filter(|number: &f64| number.is_finite()),
    }
}

/// Converts to a GraphQL integer, which has 32 bits. Others become null, as upstream.
fn to_int(number: f64) -> Option<i32> {
    let whole = number.trunc();
    #[allow(clippy::cast_possible_truncation, reason = "the range was checked")]
    (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&whole).then_some(whole as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalar_type_follows_first_value() {
        let rows = [
            (r#""a""#, Scalar::String),
            ("true", Scalar::Boolean),
            ("1", Scalar::Int),
            ("-1.0", Scalar::Int),
            ("1.5", Scalar::Float),
            ("1e+21", Scalar::Float),
            ("9999999999", Scalar::Int),
            ("null", Scalar::String),
            ("{}", Scalar::String),
            ("[]", Scalar::String),
        ];
        for (json, scalar) in rows {
            assert_eq!(Scalar::of(json), scalar, "{json}");
        }
    }

    #[test]
    fn json_values_convert_to_scalar_type() {
        let text = |text: &str| Value::from(text);
        let rows = [
            (Scalar::String, r#""a\n""#, text("a\n")),
            (Scalar::String, r#"{"a":[1]}"#, text(r#"{"a":[1]}"#)),
            (Scalar::String, "[1,2]", text("[1,2]")),
            (Scalar::String, "1.5", text("1.5")),
            (Scalar::String, "true", text("true")),
            (Scalar::String, "null", Value::Null),
            (Scalar::Int, "7", Value::from(7)),
            (Scalar::Int, "2147483647", Value::from(i32::MAX)),
            (Scalar::Int, "2147483648", Value::Null),
            (Scalar::Int, "1.9", Value::from(1)),
            (Scalar::Int, r#""12""#, Value::from(12)),
            (Scalar::Int, r#""x""#, Value::Null),
            (Scalar::Int, r#""inf""#, Value::Null),
            (Scalar::Int, "true", Value::from(1)),
            (Scalar::Int, "[1]", Value::Null),
            (Scalar::Float, "2.5", Value::from(2.5)),
            (Scalar::Float, "false", Value::from(0.0)),
            (Scalar::Float, r#""NaN""#, Value::Null),
            (Scalar::Boolean, "false", Value::from(false)),
            (Scalar::Boolean, r#""no""#, Value::from(true)),
            (Scalar::Boolean, r#""""#, Value::from(false)),
            (Scalar::Boolean, "0", Value::from(false)),
            (Scalar::Boolean, "null", Value::Null),
            (Scalar::Boolean, "{}", Value::Null),
        ];
        for (scalar, json, value) in rows {
            assert_eq!(scalar.value(json), value, "{scalar:?} {json}");
        }
    }
}
