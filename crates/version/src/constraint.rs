//! The constraint language of `spec.source.catalog.version` (docs/design/resolution.md#version-constraints).
//!
//! ```text
//! constraint = group *( "||" group )              ; any group
//! group      = comparator *( sep comparator )     ; every comparator; sep is white space, a comma or both
//! comparator = [op] version
//! version    = ["v"] part [ "." part [ "." part ] ] [ "-" idents ] [ "+" idents ]
//! ```
//!
//! The parser first rewrites each hyphen range `A - B` as text to `>= A, <= B `. Constraints decide which bundle is
//! installed, so the parser also accepts what the reference's library accepts by accident.

mod grammar;

use std::fmt;

use grammar::{OPS, Operand, is_wildcard, rewrite_hyphen_ranges, split_group};

use crate::pointer::{Pointer, span};
use crate::quote::quote;
use crate::version::{Version, has_leading_zero, is_digits};

const MAX_CONSTRAINT_BYTES: usize = 512;
const MAX_GROUPS: usize = 32;
const MAX_OPERAND_BYTES: usize = 256;

/// A parsed version constraint: alternatives of comparators that must all hold.
///
/// ```
/// use olm_version::{Constraint, Version};
///
/// let constraint = Constraint::parse(">=1.2, <2 || 3.x")?;
/// assert!(constraint.matches(&Version::parse("1.9.0")?));
/// assert!(constraint.matches(&Version::parse("3.7.1")?));
/// // A pre-release is not matched unless the constraint names one.
/// assert!(!constraint.matches(&Version::parse("2.0.0-rc.1")?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    groups: Vec<Group>,
}

/// Parse error of a constraint. The texts are part of the API (docs/design/resolution.md#constraint-grammar).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// The whole text exceeds 512 bytes.
    #[error("constraint string is too long (max {MAX_CONSTRAINT_BYTES} bytes)")]
    TooLong,
    /// More than 32 alternatives.
    #[error("too many constraint groups (max {MAX_GROUPS})")]
    TooManyGroups,
    /// A group that breaks the grammar, as it reads after the rewriting of hyphen ranges.
    #[error("improper constraint: {}", quote(.0))]
    Improper(String),
    /// A group of the right form with an operand that is not a version.
    #[error("constraint parser error")]
    Parser,
}

impl Constraint {
    /// Parses a constraint.
    ///
    /// # Errors
    /// The first violated rule, group by group from the left.
    pub fn parse(text: &str) -> Result<Self, ConstraintError> {
        Self::read(text).map_err(|(error, _)| error)
    }

    /// First fault that [`Constraint::parse`] finds. `None` if `text` is a constraint.
    pub fn fault_in(text: &str) -> Option<Pointer> {
        Self::read(text).err().map(|(_, pointer)| pointer)
    }

    fn read(text: &str) -> Result<Self, (ConstraintError, Pointer)> {
        if text.len() > MAX_CONSTRAINT_BYTES {
            let kept = text.floor_char_boundary(MAX_CONSTRAINT_BYTES);
            return Err((ConstraintError::TooLong, Pointer::new(kept..text.len(), "at most 512 bytes")));
        }
        let rewritten = rewrite_hyphen_ranges(text);
        let groups: Vec<_> = rewritten.text().split("||").collect();
        if let Some(surplus) = groups.get(MAX_GROUPS) {
            let start = rewritten.origin(span(rewritten.text(), surplus).start);
            let pointer = Pointer::new(start..text.len(), "at most 32 alternatives");
            return Err((ConstraintError::TooManyGroups, pointer));
        }
        let groups = groups.into_iter().map(|group| {
            let start = span(rewritten.text(), group).start;
            Group::read(group).map_err(|(error, pointer)| {
                let pointer = pointer.moved(start);
                (error, Pointer { at: rewritten.span(&pointer.at), ..pointer })
            })
        });
        Ok(Self { groups: groups.collect::<Result<_, _>>()? })
    }

    /// `true` if `version` satisfies at least one group.
    ///
    /// A pre-release satisfies only groups with at least one operand that is a pre-release.
    pub fn matches(&self, version: &Version) -> bool {
        self.groups.iter().any(|group| group.matches(version))
    }
}

/// Formats the canonical form, equivalent and short. The validation rule of the ClusterExtension CRD accepts it up to
/// 64 characters (docs/design/api.md#version-expression). `x` stands for any version. The form has no hyphen ranges,
/// leading zeros, `v` or build metadata.
impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, group) in self.groups.iter().enumerate() {
            let separator = if index > 0 { " || " } else { "" };
            let comparators: Vec<_> = group.comparators.iter().map(Comparator::to_string).collect();
            write!(f, "{separator}{}", comparators.join(", "))?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    comparators: Vec<Comparator>,
}

impl Group {
    /// Checks the form of the whole group before the value of any operand.
    fn read(text: &str) -> Result<Self, (ConstraintError, Pointer)> {
        let terms =
            split_group(text).map_err(|pointer| (ConstraintError::Improper(text.to_owned()), pointer))?;
        let comparator = |(op, operand): &(Op, Operand<'_>)| {
            let start = span(text, operand.text).start;
            Comparator::new(*op, operand).map_err(|pointer| (ConstraintError::Parser, pointer.moved(start)))
        };
        Ok(Self { comparators: terms.iter().map(comparator).collect::<Result<_, _>>()? })
    }

    fn matches(&self, version: &Version) -> bool {
        let admits_pre = version.pre.is_empty() || self.comparators.iter().any(|c| !c.bound.pre.is_empty());
        admits_pre && self.comparators.iter().all(|c| c.matches(version))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Tilde,
    Caret,
}

/// Significant numbers of an operand: those before the first wildcard or missing part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Precision {
    Any,
    Major,
    Minor,
    Full,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Comparator {
    op: Op,
    precision: Precision,
    /// Operand with 0 for insignificant parts and without build metadata. The pre-release is kept.
    bound: Version,
}

impl Comparator {
    /// Evaluates an operand. The pointer of a fault is relative to the operand's text.
    fn new(op: Op, operand: &Operand<'_>) -> Result<Self, Pointer> {
        let counted: Vec<&str> =
            operand.parts.iter().map_while(|part| part.filter(|p| !is_wildcard(p))).collect();
        let precision = match counted.len() {
            0 => Precision::Any,
            1 => Precision::Major,
            2 => Precision::Minor,
            _ => Precision::Full,
        };
        if measured_length(operand, &counted) > MAX_OPERAND_BYTES {
            return Err(Pointer::new(0..operand.text.len(), "a version of at most 256 bytes"));
        }
        let pre = operand.pre.unwrap_or_default();
        let bad_pre = |identifier: &&str| is_digits(identifier) && has_leading_zero(identifier);
        if let Some(bad) = pre.split('.').find(bad_pre) {
            let surplus = bad.len() - bad.trim_start_matches('0').len().max(1);
            let pointer = Pointer::new(0..surplus, "a number without leading zeros");
            return Err(pointer.moved(span(operand.text, bad).start));
        }
        let number = |index: usize| {
            let Some(part) = counted.get(index) else { return Ok(0) };
            let refuse = |expected| Err(Pointer::new(span(operand.text, part), expected));
            if !is_digits(part) {
                return refuse("a number, or one of x X * alone");
            }
            part.parse().or_else(|_| refuse("a number up to 18446744073709551615"))
        };
        let (major, minor, patch) = (number(0)?, number(1)?, number(2)?);
        let bound = Version { major, minor, patch, pre: pre.to_owned(), build: String::new() };
        Ok(Self { op, precision, bound })
    }

    /// Matches by the table of docs/design/resolution.md#constraint-matching. The group checks pre-release admission.
    fn matches(&self, v: &Version) -> bool {
        let k = &self.bound;
        let same_minor = v.major == k.major && v.minor == k.minor;
        match self.op {
            Op::Equal if self.precision == Precision::Full => v == k,
            Op::Equal | Op::Tilde => self.within_tilde(v),
            Op::NotEqual => match self.precision {
                Precision::Full | Precision::Any => v != k,
                Precision::Major => v.major != k.major,
                // `!=1.2-beta` rejects every 1.2.z-beta and nothing else.
                Precision::Minor => !same_minor || v.pre != k.pre,
            },
            Op::Greater => match self.precision {
                Precision::Full | Precision::Any => v > k,
                Precision::Major => v.major > k.major,
                Precision::Minor => (v.major, v.minor) > (k.major, k.minor),
            },
            Op::GreaterOrEqual => v >= k,
            Op::Less => v < k,
            Op::LessOrEqual => match self.precision {
                Precision::Full => v <= k,
                Precision::Major => v.major <= k.major,
                // Includes `*`, for which `<=` matches only 0.0.z.
                Precision::Minor | Precision::Any => (v.major, v.minor) <= (k.major, k.minor),
            },
            Op::Caret => v >= k && self.within_caret(v),
        }
    }

    fn within_tilde(&self, v: &Version) -> bool {
        let k = &self.bound;
        // `~0.0.0` has no upper bound.
        let unbounded = self.precision == Precision::Full && (k.major, k.minor, k.patch) == (0, 0, 0);
        v >= k
            && (unbounded
                || match self.precision {
                    Precision::Any => true,
                    Precision::Major => v.major == k.major,
                    Precision::Minor | Precision::Full => v.major == k.major && v.minor == k.minor,
                })
    }

    /// Checks the upper bound: the leftmost number that is not 0 must not change. `^*` is treated as `^0.0.0`.
    fn within_caret(&self, v: &Version) -> bool {
        let k = &self.bound;
        if k.major > 0 || self.precision == Precision::Major {
            v.major == k.major
        } else if k.minor > 0 || self.precision == Precision::Minor {
            v.major == 0 && v.minor == k.minor
        } else {
            (v.major, v.minor, v.patch) == (0, 0, k.patch)
        }
    }
}

impl fmt::Display for Comparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Version { major, minor, patch, pre, .. } = &self.bound;
        let op = OPS.iter().rfind(|(_, op)| *op == self.op).map_or("", |(text, _)| *text);
        match self.precision {
            Precision::Any => write!(f, "{op}x")?,
            Precision::Major => write!(f, "{op}{major}")?,
            Precision::Minor => write!(f, "{op}{major}.{minor}")?,
            Precision::Full => write!(f, "{op}{major}.{minor}.{patch}")?,
        }
        if pre.is_empty() { Ok(()) } else { write!(f, "-{pre}") }
    }
}

/// Length to which the limit applies: a complete operand as written, any other one with zeros for insignificant parts
/// and without build metadata.
fn measured_length(operand: &Operand<'_>, counted: &[&str]) -> usize {
    if counted.len() == operand.parts.len() {
        return operand.text.len();
    }
    let digits = counted.iter().map(|part| part.len()).sum::<usize>() + operand.parts.len() - counted.len();
    digits + 2 + operand.pre.map_or(0, |pre| pre.len() + 1)
}

#[cfg(test)]
mod tests;
