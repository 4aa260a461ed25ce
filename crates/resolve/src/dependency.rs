//! Declared dependencies against what is installed (docs/design/additions.md#dependency-modes,
//! docs/design/resolution.md#judged-dependencies).

use std::collections::BTreeSet;
use std::fmt;

use olm_version::{excerpt, quote};

use crate::constraint::{Provider, Requirement, RuleFailure, Surroundings, Verdict};
use crate::package::{Offer, PackageIndex};
use crate::rules::{Dependent, Rules};

/// Most failures of rules that are told of one bundle.
const TOLD_FAILURES: usize = 8;

/// A requirement of a bundle and what is to be said of it.
///
/// Displayed in one line: what is required, who meets it, else the author's `failureMessage`.
#[derive(Debug, Clone)]
pub struct AssessedRequirement {
    /// What is required.
    pub requirement: Requirement,
    /// Whether something installed meets it.
    pub verdict: Verdict,
}

/// A bundle of a catalog that would meet a requirement if it were installed. Displayed as `base@1.4.0 (main)`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Satisfier {
    /// The bundle's package.
    pub package: String,
    /// The bundle's version.
    pub version: String,
    /// The catalog that offers it.
    pub catalog: String,
}

impl AssessedRequirement {
    /// True if something meets it.
    pub fn is_met(&self) -> bool {
        matches!(self.verdict, Verdict::Met { .. })
    }

    /// What the bundle asks for, as the rest of a sentence about it, with all that helps where nothing meets it.
    pub(crate) fn clause(&self) -> String {
        if let Verdict::Invalid(fault) = &self.verdict {
            return format!("has an invalid dependency: {fault}");
        }
        let mut text = format!("requires {}", self.sought());
        if self.verdict == (Verdict::Unmet { wide: true }) {
            text += ", which several installed bundles meet only together";
        }
        text
    }

    /// The requirement, with the author's words where it is not met and does not show them itself.
    fn sought(&self) -> String {
        let text = sought(&self.requirement);
        match self.requirement.failure_message() {
            Some(message) if !self.is_met() && !text.contains(message) => format!("{text} ({message})"),
            _ => text,
        }
    }
}

/// A requirement as the object of a sentence.
fn sought(requirement: &Requirement) -> String {
    format!("an operator {requirement}")
}

impl fmt::Display for AssessedRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::Met { by, external: false } => write!(f, "{}: satisfied by {by}", self.sought()),
            Verdict::Met { external: true, .. } => {
                write!(f, "{}: satisfied by an API that no extension manages (external)", self.sought())
            }
            Verdict::Unmet { wide: false } => write!(f, "{}: not satisfied", self.sought()),
            Verdict::Unmet { wide: true } => {
                write!(f, "{}: not satisfied, several installed bundles meet it only together", self.sought())
            }
            Verdict::Invalid(fault) => write!(f, "invalid dependency: {fault}"),
        }
    }
}

impl fmt::Display for Satisfier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} ({})", self.package, self.version, self.catalog)
    }
}

/// The requirements of a bundle that count, in the order of its properties. The bundle itself is among those that may
/// meet them, after other bundles and before APIs without one.
pub(crate) fn assess(offer: &Offer, rules: &Rules<'_>) -> Vec<AssessedRequirement> {
    if offer.requirements().is_empty() {
        return Vec::new();
    }
    let nothing = Surroundings::default();
    let surroundings = rules.surroundings.unwrap_or(&nothing);
    let itself = as_provider(offer);
    let assessed = |requirement: &Requirement| {
        let verdict = match requirement.verdict(surroundings) {
            met @ Verdict::Met { external: false, .. } => met,
            _ if requirement.is_met_by(&itself) => {
                Verdict::Met { by: offer.name().to_owned(), external: false }
            }
            other => other,
        };
        AssessedRequirement { verdict, requirement: requirement.clone() }
    };
    offer
        .requirements()
        .iter()
        .filter(|requirement| rules.counts(requirement.property_type()))
        .map(assessed)
        .collect()
}

/// What the bundle would offer if it were installed.
fn as_provider(offer: &Offer) -> Provider {
    Provider::new(None, offer.name().to_owned(), offer.properties().to_vec())
}

/// Why rules of these requirements yielded nothing for installed bundles, one line for each, the first few (case
/// additions-e17).
pub(crate) fn rule_failures(requirements: &[AssessedRequirement], rules: &Rules<'_>) -> Vec<String> {
    let providers = rules.surroundings.map_or(&[][..], |surroundings| &surroundings.providers);
    let pairs =
        requirements.iter().flat_map(|assessed| providers.iter().map(move |provider| (assessed, provider)));
    let failures = pairs.flat_map(|(assessed, provider)| {
        let failures = assessed.requirement.rule_failures(provider);
        failures.map(|(rule, failure)| (rule, provider.bundle(), failure))
    });
    let line = |(rule, bundle, failure): (&str, &str, RuleFailure)| {
        format!("rule {} fails on bundle {bundle}: {}", quote(&excerpt(rule)), excerpt(&failure.to_string()))
    };
    failures.take(TOLD_FAILURES).map(line).collect()
}

/// The first installed extension that the bundle would leave without something it requires, in words.
pub(crate) fn broken_dependent(offer: &Offer, rules: &Rules<'_>) -> Option<String> {
    if rules.dependents.is_empty() {
        return None;
    }
    let nothing = Surroundings::default();
    let surroundings = rules.surroundings.unwrap_or(&nothing);
    let provider = as_provider(offer);
    let broken = |requirement: &&Requirement| {
        !requirement.is_met_by(&provider) && !matches!(requirement.verdict(surroundings), Verdict::Met { .. })
    };
    let mut dependents: Vec<&Dependent> = rules.dependents.iter().collect();
    dependents.sort_by(|a, b| a.extension.cmp(&b.extension));
    let (dependent, requirement) = dependents
        .into_iter()
        .find_map(|dependent| Some((dependent, dependent.requirements.iter().find(broken)?)))?;
    Some(format!(
        "installed extension {} (bundle {}) requires {}",
        dependent.extension,
        dependent.bundle,
        sought(requirement)
    ))
}

/// The packages in which something that meets the unmet ones of these requirements may be found.
pub fn missing_packages(requirements: &[AssessedRequirement]) -> BTreeSet<&str> {
    let unmet = requirements.iter().filter(|assessed| !assessed.is_met());
    unmet.flat_map(|assessed| assessed.requirement.mentioned_packages()).collect()
}

/// The best bundle of each of these packages, given with the names of their catalogs, that meets one of the
/// requirements that are unmet. The packages must have been indexed with their properties.
pub fn satisfiers(
    requirements: &[AssessedRequirement],
    packages: &[(&str, &PackageIndex)],
) -> Vec<Satisfier> {
    let unmet: Vec<_> = requirements.iter().filter(|assessed| !assessed.is_met()).collect();
    let satisfier = |(catalog, package): &(&str, &PackageIndex)| {
        package.offers().find_map(|offer| {
            let provider = as_provider(offer);
            unmet.iter().find(|assessed| assessed.requirement.is_met_by(&provider))?;
            Some(Satisfier {
                package: provider.package().unwrap_or_default().to_owned(),
                version: offer.version().ok()?.shown(false).0,
                catalog: (*catalog).to_owned(),
            })
        })
    };
    let found: BTreeSet<_> = packages.iter().filter_map(satisfier).collect();
    found.into_iter().collect()
}
