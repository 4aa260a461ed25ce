//! Platform constraints in the properties of a bundle (docs/design/operations.md#properties-annotation,
//! docs/design/operations.md#version-values). The texts of errors are part of the API.

use std::collections::BTreeMap;

use olm_version::{Version, VersionError, quote};
use olm_yaml::json;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::version::MinorVersion;

/// Property that declares the highest supported version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlatformConstraint {
    /// `olm.maxOpenShiftVersion`.
    OpenShift,
    /// `ext.olm.operatorframework.io/maxKubernetesVersion`.
    Kubernetes,
}

impl PlatformConstraint {
    const ALL: [Self; 2] = [Self::OpenShift, Self::Kubernetes];

    /// Returns the type of the property.
    pub fn property(self) -> &'static str {
        match self {
            Self::OpenShift => "olm.maxOpenShiftVersion",
            Self::Kubernetes => "ext.olm.operatorframework.io/maxKubernetesVersion",
        }
    }

    /// Returns the property as the error about a wrong type spells it.
    fn misspelt(self) -> &'static str {
        match self {
            Self::OpenShift => "olm.maxOpenshiftVersion",
            Self::Kubernetes => self.property(),
        }
    }
}

/// One constraint of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Property of the constraint.
    pub constraint: PlatformConstraint,
    /// Value as written, without the quotes of a string.
    pub written: String,
    /// Highest supported version, or one text per error.
    pub value: Result<MinorVersion, Vec<String>>,
}

/// Error in the value of a constraint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// A number in another notation.
    #[error("invalid semver format {}: expected <major>.<minor>", quote(.0))]
    Number(String),
    /// A string with a leading `v`, or without exactly one point.
    #[error("invalid version format")]
    Format,
    /// A part that is not a number.
    #[error(transparent)]
    Part(#[from] VersionError),
    /// Neither a number nor a string.
    #[error("invalid type {kind} for {property}: {raw}")]
    Type {
        /// Type name that the Go decoder reports.
        kind: &'static str,
        /// Property type.
        property: &'static str,
        /// Raw value.
        raw: String,
    },
    /// The value is absent.
    #[error("unexpected end of JSON input")]
    Missing,
}

/// Parses a property's value, which is raw JSON text.
fn value(constraint: PlatformConstraint, raw: Option<&str>) -> Result<MinorVersion, ValueError> {
    let raw = raw.ok_or(ValueError::Missing)?;
    let wrong = |kind| ValueError::Type { kind, property: constraint.misspelt(), raw: raw.to_owned() };
    match serde_json::from_str(raw) {
        Ok(Value::String(text)) if text.starts_with('v') || text.matches('.').count() != 1 => {
            Err(ValueError::Format)
        }
        Ok(Value::String(text)) => short(&text),
        Ok(Value::Null) => Err(wrong("<nil>")),
        Ok(Value::Bool(_)) => Err(wrong("bool")),
        Ok(Value::Array(_)) => Err(wrong("[]interface {}")),
        Ok(Value::Object(_)) => Err(wrong("map[string]interface {}")),
        // A number that exceeds a double is still a number.
        Ok(Value::Number(_)) | Err(_) if is_decimal(raw) => short(raw),
        Ok(Value::Number(_)) | Err(_) => Err(ValueError::Number(raw.to_owned())),
    }
}

/// Returns `true` if a number is written as a version: two numbers without leading zeros, the first at least 1
/// (`^([1-9][0-9]*)\.(0|[1-9][0-9]*)$`).
fn is_decimal(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('.').is_some_and(|(major, minor)| {
        digits(major) && digits(minor) && !major.starts_with('0') && (minor == "0" || !minor.starts_with('0'))
    })
}

fn short(text: &str) -> Result<MinorVersion, ValueError> {
    let version = Version::parse_tolerant(text)?;
    Ok(MinorVersion::new(version.major(), version.minor()))
}

/// Reads the constraints in the text of annotation `olm.properties`, in a fixed order, each at most once.
/// `source_text` is the OpenShift constraint as the catalog source spells it. It wins over the annotation's spelling
/// if it is a version (docs/design/additions.md#maximum-openshift-version).
///
/// # Errors
/// The text is not a list of properties. The error describes the first defect.
pub(crate) fn declarations(text: &str, source_text: Option<&str>) -> Result<Vec<Declaration>, String> {
    Ok(declared(&properties(text)?, source_text))
}

/// Reads the constraints among properties of a catalog entry, given as type and raw value.
pub(crate) fn of_entry<'a>(properties: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Declaration> {
    let owned = |(kind, raw): (&str, &str)| (kind.to_owned(), Some(raw.to_owned()));
    declared(&properties.into_iter().map(owned).collect::<Vec<_>>(), None)
}

fn declared(properties: &[(String, Option<String>)], source_text: Option<&str>) -> Vec<Declaration> {
    let declared = PlatformConstraint::ALL.into_iter().filter_map(|constraint| {
        let mut values = properties.iter().filter(|(kind, _)| kind == constraint.property());
        let first = values.next()?.1.as_deref();
        let first = match constraint {
            PlatformConstraint::OpenShift => source_text.filter(|text| is_decimal(text)).or(first),
            PlatformConstraint::Kubernetes => first,
        };
        let mut errors = Vec::new();
        let read = value(constraint, first).inspect_err(|error| {
            let raw = first.unwrap_or_default();
            errors.push(format!("error converting to semver for version {raw}: {error}"));
        });
        if values.next().is_some() {
            errors.push(format!("more than one {} found in bundle", constraint.property()));
        }
        let written = first.unwrap_or_default();
        let written = serde_json::from_str(written).unwrap_or_else(|_| written.to_owned());
        let value = read.ok().filter(|_| errors.is_empty()).ok_or(errors);
        Some(Declaration { constraint, written, value })
    });
    declared.collect()
}

/// Returns the type and raw value of each property.
fn properties(text: &str) -> Result<Vec<(String, Option<String>)>, String> {
    json::canonicalize(text.as_bytes()).map_err(|error| match error.message.as_str() {
        "unexpected EOF" => "unexpected end of JSON input".to_owned(),
        message => message.to_owned(),
    })?;
    let elements: Option<Vec<&RawValue>> =
        serde_json::from_str(text).map_err(|_| "expected a JSON array".to_owned())?;
    let elements = elements.unwrap_or_default().into_iter().enumerate();
    let wrong = |index| format!("expected an object with a text \"type\" as element {index}");
    elements.map(|(index, element)| property(element).ok_or_else(|| wrong(index))).collect()
}

fn property(element: &RawValue) -> Option<(String, Option<String>)> {
    // The last of equal keys wins. Keys are case-insensitive, as in the reference, which would block.
    let members: Option<BTreeMap<String, &RawValue>> = serde_json::from_str(element.get()).ok()?;
    let members = members.unwrap_or_default();
    let member = |name: &str| members.iter().rfind(|(key, _)| key.eq_ignore_ascii_case(name));
    let kind: Option<String> = match member("type") {
        Some((_, raw)) => serde_json::from_str(raw.get()).ok()?,
        None => None,
    };
    Some((kind.unwrap_or_default(), member("value").map(|(_, raw)| raw.get().to_owned())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(raw: Option<&str>) -> Result<String, String> {
        value(PlatformConstraint::OpenShift, raw).map(|v| v.to_string()).map_err(|error| error.to_string())
    }

    // docs/design/operations.md#version-values first table
    #[test]
    fn property_value_parses_like_the_reference() {
        let format = |raw: &str| Err(format!("invalid semver format \"{raw}\": expected <major>.<minor>"));
        let error = |text: &str| Err(text.to_owned());
        let version = |text: &str| Ok(text.to_owned());
        let huge = "99999999999999999999";
        let out_of_range = format!("strconv.ParseUint: parsing \"{huge}\": value out of range");
        let rows = [
            ("\"4.18\"", version("4.18")),
            ("4.18", version("4.18")),
            ("\" 4.18 \"", version("4.18")),
            ("\"04.018\"", version("4.18")),
            ("\" v4.18\"", version("4.18")),
            ("4.20", version("4.20")),
            ("\"4.20\"", version("4.20")),
            ("4.2", version("4.2")),
            ("5.0", version("5.0")),
            ("\"0.5\"", version("0.5")),
            ("4", format("4")),
            ("5.00", format("5.00")),
            ("4.18e1", format("4.18e1")),
            ("-4.18", format("-4.18")),
            ("0.5", format("0.5")),
            ("\"\"", error("invalid version format")),
            ("\"4\"", error("invalid version format")),
            ("\"v4.18\"", error("invalid version format")),
            ("\"4.18.0\"", error("invalid version format")),
            ("\"<cluster_version>\"", error("invalid version format")),
            ("\"4.18-rc1\"", error("Short version cannot contain PreRelease/Build meta data")),
            ("\"4.18+b\"", error("Short version cannot contain PreRelease/Build meta data")),
            ("\"4.x\"", error("Invalid character(s) found in minor number \"x\"")),
            ("\"x.y\"", error("Invalid character(s) found in major number \"x\"")),
            ("\"4.\"", error("strconv.ParseUint: parsing \"\": invalid syntax")),
            ("\".18\"", error("strconv.ParseUint: parsing \"\": invalid syntax")),
            (&format!("\"4.{huge}\""), error(&out_of_range)),
            (&format!("4.{huge}"), error(&out_of_range)),
            ("1e999", format("1e999")),
            ("null", error("invalid type <nil> for olm.maxOpenshiftVersion: null")),
            ("true", error("invalid type bool for olm.maxOpenshiftVersion: true")),
            (
                "{\"a\":1}",
                error("invalid type map[string]interface {} for olm.maxOpenshiftVersion: {\"a\":1}"),
            ),
            ("[4.18]", error("invalid type []interface {} for olm.maxOpenshiftVersion: [4.18]")),
        ];
        for (raw, expected) in rows {
            assert_eq!(read(Some(raw)), expected, "{raw}");
        }
        assert_eq!(read(None), error("unexpected end of JSON input"));
    }

    // docs/design/operations.md#version-values; case operations-e26: malformed numbers invalidate the annotation
    #[test]
    fn malformed_properties_annotation_is_an_error() {
        let row = |value: &str| format!("[{{\"type\":\"olm.maxOpenShiftVersion\",\"value\":{value}}}]");
        let rows = [
            ("", "unexpected end of JSON input"),
            ("abcd", "invalid character 'a' looking for beginning of value"),
            ("{}", "expected a JSON array"),
            ("\"x\"", "expected a JSON array"),
            ("[1]", "expected an object with a text \"type\" as element 0"),
            ("[null,{\"type\":1}]", "expected an object with a text \"type\" as element 1"),
            (&row("4.18.0"), "invalid character '.' after object key:value pair"),
            (&row("04.18"), "invalid character '4' after object key:value pair"),
        ];
        for (text, expected) in rows {
            assert_eq!(declarations(text, None), Err(expected.to_owned()), "{text}");
        }
        for text in ["null", "[]", "[null]", "[{}]", "[{\"type\":\"olm.gvk\",\"value\":{\"kind\":\"K\"}}]"] {
            assert_eq!(declarations(text, None), Ok(Vec::new()), "{text}");
        }
    }

    #[test]
    fn constraint_is_read_at_most_once() {
        let properties = |values: &[&str]| {
            let property =
                |value: &&str| format!("{{\"type\":\"olm.maxOpenShiftVersion\",\"value\":{value}}}");
            format!("[{}]", values.iter().map(property).collect::<Vec<_>>().join(","))
        };
        let openshift = |written: &str, value| {
            let written = written.to_owned();
            Ok(vec![Declaration { constraint: PlatformConstraint::OpenShift, written, value }])
        };
        let more = "more than one olm.maxOpenShiftVersion found in bundle".to_owned();
        // Case operations-e27
        let twice = declarations(&properties(&["\"4.18\"", "\"4.18\""]), None);
        assert_eq!(twice, openshift("4.18", Err(vec![more.clone()])));
        let bad =
            "error converting to semver for version 4: invalid semver format \"4\": expected <major>.<minor>";
        let both_wrong = declarations(&properties(&["4", "4.18"]), None);
        assert_eq!(both_wrong, openshift("4", Err(vec![bad.to_owned(), more])));
        // Case operations-a39
        let text = "error converting to semver for version \"4.18.0\": invalid version format";
        let patch = declarations(&properties(&["\"4.18.0\""]), None);
        assert_eq!(patch, openshift("4.18.0", Err(vec![text.to_owned()])));
        // docs/design/additions.md#maximum-openshift-version; case operations-a37: the source's text is preferred
        let source = declarations(&properties(&["4.2"]), Some("4.20"));
        assert_eq!(source, openshift("4.20", Ok(MinorVersion::new(4, 20))));
        assert_eq!(declarations("[]", Some("4.20")), Ok(Vec::new()));
        // Other spellings of the source text are ignored: the reference would not accept them either.
        for text in ["04.20", "5.00", "4.2e0", "", "x"] {
            let got = declarations(&properties(&["4.2"]), Some(text));
            assert_eq!(got, openshift("4.2", Ok(MinorVersion::new(4, 2))), "{text}");
        }

        let text = "[{\"type\":\"ext.olm.operatorframework.io/maxKubernetesVersion\"},\
                     {\"type\":\"olm.maxOpenShiftVersion\",\"value\":4.18}]";
        let declared = declarations(text, None).unwrap();
        assert_eq!(declared[0].constraint, PlatformConstraint::OpenShift);
        let missing = "error converting to semver for version : unexpected end of JSON input";
        assert_eq!(declared[1].value, Err(vec![missing.to_owned()]));
        let upper = "[{\"TYPE\":\"olm.maxOpenShiftVersion\",\"Value\":4.18}]";
        assert_eq!(declarations(upper, None), openshift("4.18", Ok(MinorVersion::new(4, 18))));
        let null = value(PlatformConstraint::Kubernetes, Some("null")).unwrap_err().to_string();
        assert_eq!(null, "invalid type <nil> for ext.olm.operatorframework.io/maxKubernetesVersion: null");
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in ".*", source in proptest::option::of(".*")) {
            let _ = declarations(&text, source.as_deref());
        }

        #[test]
        fn version_reads_the_same_as_string_and_as_number(major in 1..u64::MAX, minor: u64) {
            let written = format!("{major}.{minor}");
            prop_assert_eq!(read(Some(&written)), Ok(written.clone()));
            prop_assert_eq!(read(Some(&format!("\"{written}\""))), Ok(written));
        }
    }
}
