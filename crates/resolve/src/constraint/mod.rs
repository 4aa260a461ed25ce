//! Requirements of a bundle on other bundles, declared by the properties `olm.package.required`, `olm.gvk.required`
//! and `olm.constraint`, and their evaluation against installed bundles (docs/design/resolution.md#dependencies,
//! docs/design/additions.md#dependencies).
//!
//! ```text
//! property ─ decode ► tree of fields ─ predicate ► Requirement ─ verdict(AvailableProviders) ► Met | Unmet | Invalid
//!                                       └ cel: a rule parsed, checked and evaluated
//! ```
//!
//! A [`Requirement`] is one condition on a single bundle ([`Provider`]): `all[package blue, gvk Green]` needs a
//! bundle that is both (docs/design/additions.md#one-bundle-meets-a-constraint). Values are untrusted input, so
//! parsing, formatting, evaluating and dropping one takes bounded time and a bounded stack whatever its nesting.
//!
//! This module only evaluates. It does not depend on catalogs or clusters, and chooses no bundle.

mod decode;
mod predicate;
mod provider;
mod rule;

use std::fmt;
use std::sync::Arc;

use olm_fbc::Property;
use serde::Serialize;

use predicate::Predicate;
pub use provider::{AvailableProviders, Provider, RequirementVerdict};
pub use rule::ValidationRule;

/// Property that requires a package within a range of versions.
const PACKAGE_REQUIRED: &str = "olm.package.required";
/// Property that requires an API.
const GVK_REQUIRED: &str = "olm.gvk.required";
/// Property that holds a tree of conditions.
const CONSTRAINT: &str = "olm.constraint";

/// Types of properties that declare a dependency (docs/design/resolution.md#dependency-properties).
pub const DEPENDENCY_PROPERTIES: [&str; 3] = [PACKAGE_REQUIRED, GVK_REQUIRED, CONSTRAINT];

/// Maximum size of an `olm.constraint` in bytes of its raw JSON (docs/design/resolution.md#constraint-property).
const CONSTRAINT_LIMIT: usize = 131_072;
/// Size in bytes above which an `olm.constraint` causes a warning: the limit that the product documents.
const CONSTRAINT_LARGE: usize = 65_536;

/// API by group, version and kind, compared as text.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Gvk {
    /// API group. Empty for the core group.
    pub group: String,
    /// Version, such as `v1alpha1`.
    pub version: String,
    /// Kind.
    pub kind: String,
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group: {}, version: {}, kind: {}", self.group, self.version, self.kind)
    }
}

/// Error of an unusable requirement property, with the text of docs/design/resolution.md#constraint-property.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{text}")]
pub struct RequirementFault {
    text: String,
    hint: Option<String>,
}

impl RequirementFault {
    /// Hint with the allowed syntax, for a user who can fix the property. Not part of the exact text.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// Requirement parsed from one property. Cheap to clone.
///
/// Displayed as the predicate of docs/design/additions.md#requirement-texts (`with package: blue and with version in
/// range: >=1.0.0`), or as its fault where it has one.
///
/// ```
/// use olm_fbc::Property;
/// use olm_resolve::{AvailableProviders, Provider, Requirement, RequirementVerdict};
/// use serde_json::value::RawValue;
///
/// let property = |kind: &str, value: &str| -> Result<Property, serde_json::Error> {
///     Ok(Property { kind: kind.to_owned(), value: RawValue::from_string(value.to_owned())? })
/// };
/// let required = property("olm.package.required", r#"{"packageName":"base","versionRange":">=1.0.0"}"#)?;
/// let requirement = Requirement::parse(&required).unwrap();
/// let identity = property("olm.package", r#"{"packageName":"base","version":"1.4.0"}"#)?;
/// let base = Provider::new(Some("my-base".to_owned()), "base.v1.4.0".to_owned(), vec![identity]);
/// let available = AvailableProviders { providers: vec![base], ..AvailableProviders::default() };
/// let met = RequirementVerdict::Met { by: "my-base".to_owned(), external: false };
/// assert_eq!(requirement.verdict(&available), met);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Requirement(Arc<Declared>);

#[derive(Debug)]
struct Declared {
    property_type: &'static str,
    size: usize,
    predicate: Result<Predicate, RequirementFault>,
}

impl Requirement {
    /// Requirements among `properties`, in their order. An invalid one is included, so that it cannot be overlooked.
    pub fn all(properties: &[Property]) -> Vec<Self> {
        properties.iter().filter_map(Self::parse).collect()
    }

    /// Parses a property. `None` if its type declares no requirement.
    pub fn parse(property: &Property) -> Option<Self> {
        let property_type = DEPENDENCY_PROPERTIES.into_iter().find(|known| *known == property.kind)?;
        let value = property.value.get();
        let predicate = if property_type == CONSTRAINT && value.len() > CONSTRAINT_LIMIT {
            let text =
                format!("olm.constraint value is greater than max constraint size {CONSTRAINT_LIMIT} bytes");
            Err(RequirementFault { text, hint: None })
        } else {
            decode::decode(property_type, value).and_then(|tree| Predicate::new(property_type, tree))
        };
        Some(Self(Arc::new(Declared { property_type, size: value.len(), predicate })))
    }

    /// Type of the property: `olm.package.required`, `olm.gvk.required` or `olm.constraint`.
    pub fn property_type(&self) -> &str {
        self.0.property_type
    }

    /// Error that makes the requirement unusable. No bundle meets an invalid requirement.
    pub fn fault(&self) -> Option<&RequirementFault> {
        self.0.predicate.as_ref().err()
    }

    /// `failureMessage` from the author, if any.
    pub fn failure_message(&self) -> Option<&str> {
        self.0.predicate.as_ref().ok()?.failure_message()
    }

    /// `true` for an `olm.constraint` beyond the documented 65536 bytes. It is accepted with a warning.
    pub fn is_large(&self) -> bool {
        self.0.property_type == CONSTRAINT && self.0.size > CONSTRAINT_LARGE
    }

    /// Packages in the evaluated conditions of the requirement, including repetitions.
    pub fn mentioned_packages(&self) -> impl Iterator<Item = &str> {
        self.0.predicate.as_ref().into_iter().flat_map(Predicate::packages)
    }

    /// APIs in the evaluated conditions of the requirement, including repetitions.
    pub fn mentioned_gvks(&self) -> impl Iterator<Item = &Gvk> {
        self.0.predicate.as_ref().into_iter().flat_map(Predicate::gvks)
    }

    /// `true` if this single bundle meets the requirement (docs/design/resolution.md#constraint-property).
    pub fn is_met_by(&self, provider: &Provider) -> bool {
        self.0.predicate.as_ref().is_ok_and(|predicate| predicate.holds(predicate.values(provider)))
    }

    /// Errors of the requirement's rules for a bundle, each with the text of the rule. Such a rule evaluates to
    /// false.
    pub fn rule_failures<'a>(&'a self, provider: &'a Provider) -> impl Iterator<Item = (&'a str, String)> {
        let predicate = self.0.predicate.as_ref().into_iter();
        predicate.flat_map(move |predicate| predicate.rule_failures(provider))
    }

    /// Verdict on the requirement for these installed bundles and served APIs.
    ///
    /// Of several bundles that meet it, the verdict names the one of the extension first by name. An API that no
    /// bundle provides is considered last, and only if the requirement names it
    /// (docs/design/additions.md#dependency-modes).
    pub fn verdict(&self, providers: &AvailableProviders) -> RequirementVerdict {
        match &self.0.predicate {
            Ok(predicate) => providers.verdict(predicate),
            Err(fault) => RequirementVerdict::Invalid(fault.clone()),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.predicate {
            Ok(predicate) => predicate.fmt(f),
            Err(fault) => fault.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
