//! Values of rules.

use std::cmp::Ordering;
use std::rc::Rc;

use serde_json::Value as Json;

use super::evaluate::{Fault, Meter};

/// Value of a rule. Cheap to clone. Objects and lists of properties are borrowed.
#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Text<'a>),
    Bytes(Rc<[u8]>),
    /// Name of a type, one of [`super::check::TYPE_NAMES`].
    Type(&'static str),
    /// Array of a property.
    Array(&'a [Json]),
    /// Object of a property.
    Object(&'a serde_json::Map<String, Json>),
    List(Rc<Vec<Value<'a>>>),
    Map(Rc<Vec<(Value<'a>, Value<'a>)>>),
}

/// Text borrowed from the rule or a property, or created by the evaluation.
#[derive(Debug, Clone)]
pub(super) enum Text<'a> {
    Borrowed(&'a str),
    Made(Rc<str>),
}

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Made(text) => text,
        }
    }
}

impl<'a> Value<'a> {
    /// Value of JSON. All numbers are doubles.
    pub(super) fn of(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            Json::String(text) => Self::Text(Text::Borrowed(text)),
            Json::Array(items) => Self::Array(items),
            Json::Object(fields) => Self::Object(fields),
        }
    }

    pub(super) fn made(text: String) -> Self {
        Self::Text(Text::Made(text.into()))
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Type(_) => "type",
            Self::Array(_) | Self::List(_) => "list",
            Self::Object(_) | Self::Map(_) => "map",
        }
    }

    /// Elements of a loop: those of a list, or the keys of a map.
    pub(super) fn elements(&self) -> Option<Box<dyn Iterator<Item = Value<'a>> + '_>> {
        Some(match self {
            Self::Array(items) => Box::new(items.iter().map(Value::of)),
            Self::List(items) => Box::new(items.iter().cloned()),
            Self::Object(fields) => Box::new(fields.keys().map(|key| Value::Text(Text::Borrowed(key)))),
            Self::Map(entries) => Box::new(entries.iter().map(|(key, _)| key.clone())),
            _ => return None,
        })
    }

    /// Number of code points, bytes, elements or entries.
    pub(super) fn size(&self) -> Option<usize> {
        Some(match self {
            Self::Text(text) => text.as_str().chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Array(items) => items.len(),
            Self::List(items) => items.len(),
            Self::Object(fields) => fields.len(),
            Self::Map(entries) => entries.len(),
            _ => return None,
        })
    }

    /// Element of a list by index, or entry of a map by key. `None` if it does not exist, an error if `key` has an
    /// invalid type.
    pub(super) fn get(&self, key: &Self, meter: &mut Meter) -> Result<Option<Self>, Fault> {
        let misfit = || Fault::misfit("_[_]", &[self, key]);
        match self {
            Self::Array(items) => Ok(items.get(key.index().ok_or_else(misfit)?).map(Value::of)),
            Self::List(items) => Ok(items.get(key.index().ok_or_else(misfit)?).cloned()),
            Self::Object(fields) => match key {
                Self::Text(name) => Ok(fields.get(name.as_str()).map(Value::of)),
                key if key.is_key() => Ok(None),
                _ => Err(misfit()),
            },
            Self::Map(entries) if key.is_key() => {
                for (known, value) in entries.iter() {
                    if known.equals(key, meter)? {
                        return Ok(Some(value.clone()));
                    }
                }
                Ok(None)
            }
            _ => Err(misfit()),
        }
    }

    /// Position in a list. A negative number becomes a position beyond any list.
    fn index(&self) -> Option<usize> {
        let whole = match self {
            Self::Int(number) => *number,
            Self::Uint(number) => i64::try_from(*number).unwrap_or(i64::MAX),
            Self::Double(number) => to_int(*number).filter(|_| number.fract() == 0.0)?,
            _ => return None,
        };
        Some(usize::try_from(whole).unwrap_or(usize::MAX))
    }

    /// `true` for valid keys of a map.
    pub(super) fn is_key(&self) -> bool {
        matches!(self, Self::Bool(_) | Self::Int(_) | Self::Uint(_) | Self::Double(_) | Self::Text(_))
    }

    /// Equality. Numbers compare by value whatever their types. Other values of different types differ.
    pub(super) fn equals(&self, other: &Self, meter: &mut Meter) -> Result<bool, Fault> {
        meter.spend(1)?;
        match (self, other) {
            (Self::Null, Self::Null) => Ok(true),
            (Self::Type(a), Self::Type(b)) => Ok(a == b),
            (Self::Object(_) | Self::Map(_), Self::Object(_) | Self::Map(_)) => {
                if self.size() != other.size() {
                    return Ok(false);
                }
                for key in self.elements().into_iter().flatten() {
                    let (Some(a), Some(b)) = (self.get(&key, meter)?, other.get(&key, meter)?) else {
                        return Ok(false);
                    };
                    if !a.equals(&b, meter)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Self::Array(_) | Self::List(_), Self::Array(_) | Self::List(_)) => {
                if self.size() != other.size() {
                    return Ok(false);
                }
                let others = other.elements().into_iter().flatten();
                for (a, b) in self.elements().into_iter().flatten().zip(others) {
                    if !a.equals(&b, meter)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(self.compare(other, meter)? == Some(Ordering::Equal)),
        }
    }

    /// Order of two numbers, booleans, texts or bytes. `None` if they are not comparable.
    pub(super) fn compare(&self, other: &Self, meter: &mut Meter) -> Result<Option<Ordering>, Fault> {
        Ok(match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) => {
                meter.spend_bytes(a.as_str().len().min(b.as_str().len()))?;
                Some(a.as_str().cmp(b.as_str()))
            }
            (Self::Bytes(a), Self::Bytes(b)) => {
                meter.spend_bytes(a.len().min(b.len()))?;
                Some(a.cmp(b))
            }
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Uint(a), Self::Uint(b)) => Some(a.cmp(b)),
            (Self::Int(a), Self::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Uint(a), Self::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (a, b) => match (a.as_double(), b.as_double()) {
                (Some(a), Some(b)) => a.partial_cmp(&b),
                _ => None,
            },
        })
    }

    /// Number as a double. The reference compares mixed numbers as doubles, too.
    pub(super) fn as_double(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Uint(number) => Some(*number as f64),
            Self::Double(number) => Some(*number),
            _ => None,
        }
    }
}

/// Integer part of a number, unless it is outside of the range of `int`.
pub(super) fn to_int(number: f64) -> Option<i64> {
    (number > i64::MIN as f64 && number < i64::MAX as f64).then_some(number as i64)
}

/// Integer part of a number, unless it is outside of the range of `uint`.
pub(super) fn to_uint(number: f64) -> Option<u64> {
    (number >= 0.0 && number < u64::MAX as f64).then_some(number as u64)
}

/// Formats a number like Go: the shortest digits that parse back, with an exponent below 0.0001 and from 1000000 on.
pub(super) fn shown(number: f64) -> String {
    let digits = format!("{number:e}");
    let Some((mantissa, exponent)) = digits.split_once('e') else {
        return digits;
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return number.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}
