//! Rules and findings of the checks of `olm`: bundles, catalogs, CRDs, installations
//! (docs/design/cli.md#rules-and-findings).
//!
//! [`rules!`] declares a rule with its level, texts and check in one place. A [`Finding`] is a violation of a [`Rule`] at
//! a place, whose type is that of the command. Pure.

use std::fmt;
use std::ops::Deref;

use serde::{Serialize, Serializer};

/// Severity. Sorts from the most severe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Something does not work.
    Error,
    /// Something works otherwise than intended, or not everywhere.
    Warning,
    /// Nothing breaks.
    Note,
}

impl Level {
    /// Returns `error`, `warning` or `note`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// Rule with a stable ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Stable ID, such as `CSV-3`.
    pub id: &'static str,
    /// Severity of its findings.
    pub level: Level,
    /// Requirement, or the state that was found.
    pub text: &'static str,
    /// Reason, and the next step.
    pub remedy: &'static str,
}

/// Rule, and how its violations are found.
#[derive(Debug, Serialize)]
pub struct Declared<C> {
    /// The rule.
    #[serde(flatten)]
    pub rule: Rule,
    /// Function, texts or options of the check.
    #[serde(flatten)]
    pub check: C,
}

impl<C> Deref for Declared<C> {
    type Target = Rule;

    fn deref(&self) -> &Rule {
        &self.rule
    }
}

/// Declares rules as statics, and the list of all:
///
/// ```
/// olm_finding::rules! {
///     /// All rules.
///     pub RULES: fn(&str) -> bool;
///     NAME "NAME-1" Error (str::is_empty) "a name is set" "Names are keys."
/// }
/// assert!((NAME.check)("") && NAME.level == olm_finding::Level::Error && RULES.len() == 1);
/// ```
#[macro_export]
macro_rules! rules {
    ($(#[$doc:meta])* $visibility:vis $list:ident: $check:ty;
     $($name:ident $id:literal $level:ident ($($how:tt)*) $text:literal $remedy:literal)+) => {
        $($visibility static $name: $crate::Declared<$check> = $crate::Declared {
            rule: $crate::Rule { id: $id, level: $crate::Level::$level, text: $text, remedy: $remedy },
            check: $($how)*,
        };)+
        $(#[$doc])*
        $visibility static $list: &[&$crate::Declared<$check>] = &[$(&$name),+];
    };
}

/// Violation of a rule. Printed on one line: place, message, rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding<P> {
    /// The violated rule, serialized as its ID.
    #[serde(serialize_with = "by_id")]
    pub rule: &'static Rule,
    /// Severity.
    pub level: Level,
    /// File, object or image.
    #[serde(flatten)]
    pub place: P,
    /// The problem, and the allowed values or the next step.
    pub message: String,
}

impl<P> Finding<P> {
    /// Finding with the level of its rule.
    pub fn new(rule: &'static Rule, place: P, message: impl Into<String>) -> Self {
        Self { rule, level: rule.level, place, message: message.into() }
    }
}

impl<P: fmt::Display> fmt::Display for Finding<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} [{}]", self.place, self.message, self.rule.id)
    }
}

/// Serializes a rule as its ID.
///
/// # Errors
/// Those of the serializer.
pub fn by_id<S: Serializer>(rule: &&'static Rule, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(rule.id)
}
