//! Functions of rules, dispatched by the types of their arguments.

use std::rc::Rc;
use std::str::FromStr;

use cel::common::ast::operators;
use olm_version::Version;
use regex::RegexBuilder;

use super::evaluate::{Fault, Machine, Meter, Outcome};
use super::value::{Value, shown, to_int, to_uint};

/// Maximum size of a compiled pattern in bytes. Repetitions expand short patterns, and a search can take a step for
/// each state and byte.
const PATTERN_LIMIT: usize = 1 << 17;

/// Calls a function. The target of a method is its first argument.
pub(super) fn apply<'a>(name: &str, values: &[Value<'a>], machine: &mut Machine<'a, '_>) -> Outcome<'a> {
    let meter = &mut *machine.meter;
    let value = match (name, values) {
        (operators::LOGICAL_NOT, [Value::Bool(value)]) => Some(Value::Bool(!value)),
        (operators::EQUALS, [a, b]) => Some(Value::Bool(a.equals(b, meter)?)),
        (operators::NOT_EQUALS, [a, b]) => Some(Value::Bool(!a.equals(b, meter)?)),
        (operators::LESS, [a, b]) => a.compare(b, meter)?.map(|order| Value::Bool(order.is_lt())),
        (operators::LESS_EQUALS, [a, b]) => a.compare(b, meter)?.map(|order| Value::Bool(order.is_le())),
        (operators::GREATER, [a, b]) => a.compare(b, meter)?.map(|order| Value::Bool(order.is_gt())),
        (operators::GREATER_EQUALS, [a, b]) => a.compare(b, meter)?.map(|order| Value::Bool(order.is_ge())),
        (operators::INDEX, [container, key]) => {
            let found = container.get(key, meter)?;
            Some(found.ok_or_else(|| Fault::error("no such key or index"))?)
        }
        (operators::IN, [member, container]) => is_in(member, container, meter)?.map(Value::Bool),
        (
            operators::NEGATE
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO,
            values,
        ) => return arithmetic(name, values),
        ("size", [value]) => {
            if let Value::Text(text) = value {
                meter.spend_bytes(text.as_str().len())?;
            }
            value.size().map(|size| Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
        }
        ("contains" | "startsWith" | "endsWith", [Value::Text(text), Value::Text(part)]) => {
            let (text, part) = (text.as_str(), part.as_str());
            meter.spend_bytes(text.len() + part.len())?;
            Some(Value::Bool(match name {
                "contains" => text.contains(part),
                "startsWith" => text.starts_with(part),
                _ => text.ends_with(part),
            }))
        }
        ("matches", [Value::Text(text), Value::Text(pattern)]) => {
            return matches(text.as_str(), pattern.as_str(), machine);
        }
        ("type", [value]) => Some(Value::Type(value.type_name())),
        ("dyn", [value]) => Some(value.clone()),
        ("int" | "uint" | "double" | "string" | "bytes" | "bool", [value]) => convert(name, value, meter)?,
        ("semver_compare", [a, b]) => Some(Value::Int(semver_compare(a, b, meter)?)),
        _ => None,
    };
    value.ok_or_else(|| Fault::misfit(name, &values.iter().collect::<Vec<_>>()))
}

/// Evaluates `+`. Consumes the left side, so that an unshared list grows in place.
pub(super) fn add<'a>(left: Value<'a>, right: &Value<'a>, meter: &mut Meter) -> Outcome<'a> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => a.checked_add(*b).map(Value::Int).ok_or_else(overflow),
        (Value::Uint(a), Value::Uint(b)) => a.checked_add(*b).map(Value::Uint).ok_or_else(overflow),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::Text(a), Value::Text(b)) => {
            meter.spend_bytes(64 + a.as_str().len() + b.as_str().len())?;
            Ok(Value::made([a.as_str(), b.as_str()].concat()))
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            meter.spend_bytes(64 + a.len() + b.len())?;
            Ok(Value::Bytes([&*a, &**b].concat().into()))
        }
        (mut left, right) => {
            let Some(added) = right.elements().filter(|_| is_list(right)) else {
                return Err(Fault::misfit(operators::ADD, &[&left, right]));
            };
            meter.spend(right.size().unwrap_or_default())?;
            if let Value::List(list) = &mut left {
                if Rc::strong_count(list) > 1 {
                    meter.spend(list.len())?;
                }
                Rc::make_mut(list).extend(added);
                return Ok(left);
            }
            if !is_list(&left) {
                return Err(Fault::misfit(operators::ADD, &[&left, right]));
            }
            meter.spend(left.size().unwrap_or_default())?;
            let all: Vec<_> = left.elements().into_iter().flatten().chain(added).collect();
            Ok(Value::List(all.into()))
        }
    }
}

fn is_list(value: &Value<'_>) -> bool {
    matches!(value, Value::Array(_) | Value::List(_))
}

fn overflow() -> Fault {
    Fault::error("integer overflow")
}

fn arithmetic<'a>(name: &str, values: &[Value<'a>]) -> Outcome<'a> {
    let by_zero =
        || Fault::error(if name == operators::MODULO { "modulus by zero" } else { "divide by zero" });
    match *values {
        [Value::Int(a)] => a.checked_neg().map(Value::Int).ok_or_else(overflow),
        [Value::Double(a)] => Ok(Value::Double(-a)),
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)]
            if matches!(name, operators::DIVIDE | operators::MODULO) =>
        {
            Err(by_zero())
        }
        [Value::Int(a), Value::Int(b)] => {
            let result = match name {
                operators::SUBSTRACT => a.checked_sub(b),
                operators::MULTIPLY => a.checked_mul(b),
                operators::DIVIDE => a.checked_div(b),
                _ => a.checked_rem(b),
            };
            result.map(Value::Int).ok_or_else(overflow)
        }
        [Value::Uint(a), Value::Uint(b)] => {
            let result = match name {
                operators::SUBSTRACT => a.checked_sub(b),
                operators::MULTIPLY => a.checked_mul(b),
                operators::DIVIDE => a.checked_div(b),
                _ => a.checked_rem(b),
            };
            result.map(Value::Uint).ok_or_else(overflow)
        }
        [Value::Double(a), Value::Double(b)] if name != operators::MODULO => Ok(Value::Double(match name {
            operators::SUBSTRACT => a - b,
            operators::MULTIPLY => a * b,
            _ => a / b,
        })),
        _ => Err(Fault::misfit(name, &values.iter().collect::<Vec<_>>())),
    }
}

fn is_in(member: &Value<'_>, container: &Value<'_>, meter: &mut Meter) -> Result<Option<bool>, Fault> {
    if matches!(container, Value::Object(_) | Value::Map(_)) {
        return container.get(member, meter).map(|found| Some(found.is_some()));
    }
    for element in container.elements().into_iter().flatten() {
        if element.equals(member, meter)? {
            return Ok(Some(true));
        }
    }
    Ok(is_list(container).then_some(false))
}

/// `true` if a pattern matches anywhere in a text. Caches the last pattern, because loops reuse it.
fn matches<'a>(text: &str, pattern: &str, machine: &mut Machine<'a, '_>) -> Outcome<'a> {
    machine.meter.spend(text.len() + pattern.len() / 64)?;
    if machine.pattern.as_ref().is_none_or(|(known, _)| known != pattern) {
        // Spends the steps for a pattern of maximum size.
        machine.meter.spend(10_000 + pattern.len())?;
        let compiled = RegexBuilder::new(pattern).size_limit(PATTERN_LIMIT).build();
        let compiled = compiled.map_err(|_| Fault::error("matches: the pattern is not valid"))?;
        machine.pattern = Some((pattern.to_owned(), compiled));
    }
    let found = machine.pattern.as_ref().is_some_and(|(_, regex)| regex.is_match(text));
    Ok(Value::Bool(found))
}

fn convert<'a>(name: &str, value: &Value<'a>, meter: &mut Meter) -> Result<Option<Value<'a>>, Fault> {
    let out_of_range = || Fault::error("range error");
    if let Value::Text(text) = value {
        meter.spend_bytes(text.as_str().len())?;
    }
    Ok(Some(match (name, value) {
        ("int", Value::Int(_))
        | ("uint", Value::Uint(_))
        | ("double", Value::Double(_))
        | ("string", Value::Text(_))
        | ("bytes", Value::Bytes(_))
        | ("bool", Value::Bool(_)) => value.clone(),
        ("int", Value::Uint(number)) => Value::Int(i64::try_from(*number).map_err(|_| out_of_range())?),
        ("int", Value::Double(number)) => Value::Int(to_int(*number).ok_or_else(out_of_range)?),
        ("int", Value::Text(text)) => Value::Int(read(name, text.as_str())?),
        ("uint", Value::Int(number)) => Value::Uint(u64::try_from(*number).map_err(|_| out_of_range())?),
        ("uint", Value::Double(number)) => Value::Uint(to_uint(*number).ok_or_else(out_of_range)?),
        ("uint", Value::Text(text)) => Value::Uint(read(name, text.as_str())?),
        ("double", Value::Text(text)) => Value::Double(read(name, text.as_str())?),
        ("double", number) => match number.as_double() {
            Some(number) => Value::Double(number),
            None => return Ok(None),
        },
        ("string", Value::Bool(value)) => Value::made(value.to_string()),
        ("string", Value::Int(number)) => Value::made(number.to_string()),
        ("string", Value::Uint(number)) => Value::made(number.to_string()),
        ("string", Value::Double(number)) => Value::made(shown(*number)),
        ("string", Value::Bytes(bytes)) => {
            meter.spend_bytes(bytes.len())?;
            let text = std::str::from_utf8(bytes).map_err(|_| Fault::error("invalid UTF-8 in bytes"))?;
            Value::made(text.to_owned())
        }
        ("bytes", Value::Text(text)) => Value::Bytes(text.as_str().as_bytes().into()),
        ("bool", Value::Text(text)) => match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Value::Bool(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Value::Bool(false),
            _ => return Err(Fault::error("type conversion error: bool")),
        },
        _ => return Ok(None),
    }))
}

fn read<T: FromStr>(name: &str, text: &str) -> Result<T, Fault> {
    text.parse().map_err(|_| Fault::error(format!("type conversion error: {name}")))
}

/// Compares two versions by precedence: -1, 0 or 1. Both are parsed tolerantly from the printed operands
/// (docs/design/resolution.md#versions).
fn semver_compare(a: &Value<'_>, b: &Value<'_>, meter: &mut Meter) -> Result<i64, Fault> {
    let mut read = |value: &Value<'_>| {
        let number;
        let text = match value {
            Value::Text(text) => text.as_str(),
            Value::Int(_) | Value::Uint(_) | Value::Double(_) => {
                number = match value {
                    Value::Int(number) => number.to_string(),
                    Value::Uint(number) => number.to_string(),
                    other => shown(other.as_double().unwrap_or(f64::NAN)),
                };
                &number
            }
            other => {
                return Err(Fault::error(format!("unable to parse {} to semver format", other.type_name())));
            }
        };
        meter.spend_bytes(text.len())?;
        Version::parse_tolerant(text)
            .map_err(|_| Fault::error(format!("unable to parse '{text}' to semver format")))
    };
    Ok(read(a)?.cmp(&read(b)?) as i64)
}
