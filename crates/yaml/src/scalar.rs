//! Resolution of YAML 1.1 scalars: tags, the words for booleans and nulls, number notations.
//!
//! Rules: docs/design/catalogd.md#yaml-scalars, docs/design/bundles.md#yaml-dialect. Independent of documents.

use std::borrow::Cow;

use base64::{
    Engine as _, alphabet,
    engine::general_purpose::{GeneralPurpose, PAD},
};
use olm_version::excerpt;

/// Resolved scalar.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    Int(i64),
    /// Above the range of `i64`.
    Uint(u64),
    Float(f64),
    /// Text. For `!!binary` the decoded bytes, made valid UTF-8.
    Text(Cow<'a, str>),
}

impl Scalar<'_> {
    fn tag(&self) -> ScalarTag {
        match self {
            Self::Null => ScalarTag::Null,
            Self::Bool(_) => ScalarTag::Bool,
            Self::Int(_) | Self::Uint(_) => ScalarTag::Int,
            Self::Float(_) => ScalarTag::Float,
            Self::Text(_) => ScalarTag::Str,
        }
    }
}

/// Tag of a scalar, as far as it affects the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarTag {
    /// No tag: plain scalars are resolved, quoted ones are text.
    None,
    Str,
    Bool,
    Int,
    Float,
    Null,
    Timestamp,
    Binary,
    /// Any other tag: the value is text.
    Other,
}

impl ScalarTag {
    /// Tag for the name in the `tag:yaml.org,2002:` namespace, such as `int`.
    pub(crate) fn from_core_name(name: &str) -> Self {
        match name {
            "str" => Self::Str,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "float" => Self::Float,
            "null" => Self::Null,
            "timestamp" => Self::Timestamp,
            "binary" => Self::Binary,
            _ => Self::Other,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::None | Self::Str | Self::Other => "!!str",
            Self::Bool => "!!bool",
            Self::Int => "!!int",
            Self::Float => "!!float",
            Self::Null => "!!null",
            Self::Timestamp => "!!timestamp",
            Self::Binary => "!!binary",
        }
    }
}

/// Resolves a scalar. `plain` is `true` for text without quotes and outside of a block.
///
/// # Errors
/// The value does not match an explicit tag.
pub(crate) fn resolve(text: Cow<'_, str>, tag: ScalarTag, plain: bool) -> Result<Scalar<'_>, String> {
    match tag {
        ScalarTag::None if !plain => return Ok(Scalar::Text(text)),
        ScalarTag::Str | ScalarTag::Other => return Ok(Scalar::Text(text)),
        ScalarTag::Binary => return binary(&text).map(|text| Scalar::Text(text.into())),
        _ => {}
    }
    if tag == ScalarTag::Timestamp && is_timestamp(&text) {
        return Ok(Scalar::Text(text));
    }
    match (tag, implicit(&text)) {
        (ScalarTag::None, value) => Ok(value.unwrap_or(Scalar::Text(text))),
        (ScalarTag::Float, Some(Scalar::Int(n))) => Ok(Scalar::Float(n as f64)),
        (explicit, Some(value)) if explicit == value.tag() => Ok(value),
        (explicit, value) => {
            let found = value.map_or(ScalarTag::Str, |value| value.tag());
            Err(format!("cannot decode {} `{}` as a {}", found.name(), excerpt(&text), explicit.name()))
        }
    }
}

/// Value of untagged plain text. `None` stands for the text itself.
fn implicit(text: &str) -> Option<Scalar<'static>> {
    word(text).or_else(|| match text.as_bytes().first()? {
        b'.' => fraction(text).map(Scalar::Float),
        b'+' | b'-' | b'0'..=b'9' => number(text),
        _ => None,
    })
}

fn word(text: &str) -> Option<Scalar<'static>> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Scalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Scalar::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
        _ => return None,
    })
}

/// Number that starts with a digit or a sign. Underscores are allowed anywhere.
fn number(text: &str) -> Option<Scalar<'static>> {
    let plain: Cow<'_, str> =
        if text.contains('_') { Cow::Owned(text.replace('_', "")) } else { Cow::Borrowed(text) };
    integer(&plain).or_else(|| finite_float(&plain).map(Scalar::Float))
}

/// Number that starts with the decimal point. Underscores are allowed between digits.
fn fraction(text: &str) -> Option<f64> {
    let digit_at = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    if text.match_indices('_').all(|(at, _)| digit_at(at - 1) && digit_at(at + 1)) {
        finite_float(&text.replace('_', ""))
    } else {
        None
    }
}

/// Decimal, `0x`, `0o`, `0b` and old octal (`017`). A sign is allowed, but not for values above `i64::MAX`.
fn integer(text: &str) -> Option<Scalar<'static>> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("+", &text[1..]),
        _ => ("", text),
    };
    let bytes = digits.as_bytes();
    let (radix, digits) = match bytes {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.bytes().next()?.is_ascii_hexdigit() {
        return None; // a second sign
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    match (sign, i64::try_from(magnitude)) {
        ("-", _) if magnitude == i64::MIN.unsigned_abs() => Some(Scalar::Int(i64::MIN)),
        ("-", Ok(n)) => Some(Scalar::Int(-n)),
        (_, Ok(n)) => Some(Scalar::Int(n)),
        ("", Err(_)) => Some(Scalar::Uint(magnitude)),
        _ => None,
    }
}

/// Decimal float that does not overflow: `[-+]? (\.d+ | d+(\.d*)?) ([eE][-+]?d+)?`.
fn finite_float(text: &str) -> Option<f64> {
    let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let whole = digits(rest);
    rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix('.') {
        let count = digits(fraction);
        if whole + count == 0 {
            return None;
        }
        rest = &fraction[count..];
    } else if whole == 0 {
        return None;
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if exponent.is_empty() || digits(exponent) != exponent.len() {
            return None;
        }
    } else if !rest.is_empty() {
        return None;
    }
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// `true` for a date `2001-1-2`, or a date and a time of day. Used only for values tagged `!!timestamp`.
fn is_timestamp(text: &str) -> bool {
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let numeric = |part: Option<&str>, lengths: std::ops::RangeInclusive<usize>, max: u32| {
        part.is_some_and(|p| {
            lengths.contains(&p.len())
                && p.bytes().all(|b| b.is_ascii_digit())
                && p.parse().is_ok_and(|n: u32| n <= max)
        })
    };
    let date = numeric(parts.next(), 4..=4, 9999)
        && numeric(parts.next(), 1..=2, 12)
        && numeric(parts.next(), 1..=2, 31)
        && parts.next().is_none();
    let Some(time) = time else { return date };
    let zoned = !text.contains(' ');
    let clock = match time.find(['Z', '+', '-']) {
        Some(at) if zoned => &time[..at],
        None if !zoned => time,
        _ => return false,
    };
    let mut parts = clock.split(':');
    let hours = numeric(parts.next(), 1..=2, 23);
    let minutes = numeric(parts.next(), 1..=2, 59);
    let seconds = parts.next().and_then(|s| s.split('.').next());
    date && hours && minutes && numeric(seconds, 1..=2, 59) && parts.next().is_none()
}

/// Decodes padded standard base64. Line breaks are allowed anywhere, and the bytes need not be text.
fn binary(text: &str) -> Result<String, String> {
    const LENIENT: GeneralPurpose =
        GeneralPurpose::new(&alphabet::STANDARD, PAD.with_decode_allow_trailing_bits(true));
    let packed: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let bytes =
        LENIENT.decode(packed).map_err(|_| "!!binary value contains invalid base64 data".to_owned())?;
    Ok(crate::json::lossy(&bytes).into_owned())
}
