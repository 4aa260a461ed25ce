//! Requirements of a bundle: what its properties `olm.package.required`, `olm.gvk.required` and `olm.constraint`
//! ask of other bundles, and whether what is installed meets them (docs/design/resolution.md#dependencies,
//! docs/design/additions.md#dependencies).
//!
//! ```text
//! property ─ decode ► tree of fields ─ predicate ► Requirement ─ verdict(Surroundings) ► Met | Unmet | Invalid
//!                                       └ cel: a rule parsed, checked and evaluated
//! ```
//!
//! A [`Requirement`] is one condition on ONE bundle ([`Provider`]): `all[package blue, gvk Green]` needs a bundle that is
//! both (docs/design/additions.md#one-bundle-meets-a-constraint). Values come from strangers, so parsing, showing,
//! evaluating and dropping one takes bounded time and a bounded stack whatever its nesting.
//!
//! The module decides only. It knows neither catalogs nor clusters, and chooses no bundle.

mod decode;
mod predicate;
mod provider;
mod rule;

use std::fmt;
use std::sync::Arc;

use olm_fbc::Property;
use serde::Serialize;

use predicate::Predicate;
pub use provider::{Provider, Surroundings, Verdict};
pub use rule::RuleFailure;

/// Property that asks for a package within a range of versions.
const PACKAGE_REQUIRED: &str = "olm.package.required";
/// Property that asks for an API.
const GVK_REQUIRED: &str = "olm.gvk.required";
/// Property that holds a tree of conditions.
const CONSTRAINT: &str = "olm.constraint";

/// Types of properties that declare a dependency (docs/design/resolution.md#dependency-properties).
pub const DEPENDENCY_PROPERTIES: [&str; 3] = [PACKAGE_REQUIRED, GVK_REQUIRED, CONSTRAINT];

/// Largest `olm.constraint` in bytes of its raw JSON (docs/design/resolution.md#constraint-property).
const CONSTRAINT_LIMIT: usize = 131_072;
/// Size in bytes above which an `olm.constraint` deserves a warning: the limit that the product documents.
const CONSTRAINT_LARGE: usize = 65_536;

/// An API by its three names, compared as texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Gvk {
    /// API group; empty for the core group.
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

/// Why a property that states a requirement cannot be used. Displayed as the text of
/// docs/design/resolution.md#constraint-property.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{text}")]
pub struct RequirementFault {
    text: String,
    hint: Option<String>,
}

impl RequirementFault {
    /// What is allowed in place of what was found, for a user who may mend it; no part of the exact text.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// One property that states a requirement, parsed once; cheap to clone.
///
/// Displayed as the predicate of docs/design/additions.md#requirement-texts (`with package: blue and with version in
/// range: >=1.0.0`), or as its fault where it has one.
#[derive(Debug, Clone)]
pub struct Requirement(Arc<Declared>);

#[derive(Debug)]
struct Declared {
    property_type: &'static str,
    size: usize,
    predicate: Result<Predicate, RequirementFault>,
}

impl Requirement {
    /// The requirements among `properties`, in their order. A faulty one stays one, so that it cannot be overlooked.
    pub fn all(properties: &[Property]) -> Vec<Self> {
        properties.iter().filter_map(Self::parse).collect()
    }

    /// Reads a property; `None` where its type states no requirement.
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

    /// The type of the property: `olm.package.required`, `olm.gvk.required` or `olm.constraint`.
    pub fn property_type(&self) -> &str {
        self.0.property_type
    }

    /// Why the requirement cannot be used. No bundle meets a faulty requirement.
    pub fn fault(&self) -> Option<&RequirementFault> {
        self.0.predicate.as_ref().err()
    }

    /// The author's `failureMessage`, if any.
    pub fn failure_message(&self) -> Option<&str> {
        self.0.predicate.as_ref().ok()?.failure_message()
    }

    /// True for an `olm.constraint` beyond the 65536 bytes that the product documents: accepted, with a warning.
    pub fn is_large(&self) -> bool {
        self.0.property_type == CONSTRAINT && self.0.size > CONSTRAINT_LARGE
    }

    /// The packages that the requirement names and decides by, each as often as it is named.
    pub fn mentioned_packages(&self) -> impl Iterator<Item = &str> {
        self.0.predicate.as_ref().into_iter().flat_map(Predicate::packages)
    }

    /// The APIs that the requirement names and decides by, each as often as it is named.
    pub fn mentioned_gvks(&self) -> impl Iterator<Item = &Gvk> {
        self.0.predicate.as_ref().into_iter().flat_map(Predicate::gvks)
    }

    /// True if this one bundle meets the requirement (docs/design/resolution.md#constraint-property).
    pub fn is_met_by(&self, provider: &Provider) -> bool {
        self.0.predicate.as_ref().is_ok_and(|predicate| predicate.holds(predicate.values(provider)))
    }

    /// Why rules of the requirement yielded nothing for a bundle, each with its text. Such a rule counts as false.
    pub fn rule_failures<'a>(
        &'a self,
        provider: &'a Provider,
    ) -> impl Iterator<Item = (&'a str, RuleFailure)> {
        let predicate = self.0.predicate.as_ref().into_iter();
        predicate.flat_map(move |predicate| predicate.rule_failures(provider))
    }

    /// What is to be said of the requirement where these bundles are installed and these APIs are served.
    ///
    /// Of several bundles that meet it, the one of the extension first by name is reported; an API that no bundle
    /// provides counts last, and only where the requirement names it (docs/design/additions.md#dependency-modes).
    pub fn verdict(&self, surroundings: &Surroundings) -> Verdict {
        match &self.0.predicate {
            Ok(predicate) => surroundings.verdict(predicate),
            Err(fault) => Verdict::Invalid(fault.clone()),
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
