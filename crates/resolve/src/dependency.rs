//! Evaluation of declared dependencies against installed bundles (docs/design/additions.md#dependency-modes,
//! docs/design/resolution.md#judged-dependencies).

use std::collections::BTreeSet;
use std::fmt;

use olm_version::{excerpt, quote};

use crate::constraint::{AvailableProviders, Provider, Requirement, RequirementVerdict};
use crate::package::{Offer, PackageIndex};
use crate::rules::{Dependent, Rules};

/// Maximum number of reported rule errors of one bundle.
const TOLD_FAILURES: usize = 8;

/// Requirement of a bundle with its verdict.
///
/// Displayed in one line: the requirement and its provider, or the author's `failureMessage`.
#[derive(Debug, Clone)]
pub struct AssessedRequirement {
    /// The requirement.
    pub requirement: Requirement,
    /// Verdict for the installed bundles.
    pub verdict: RequirementVerdict,
}

/// Bundle of a catalog that would meet a requirement if installed. Displayed as `base@1.4.0 (main)`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Satisfier {
    /// Package of the bundle.
    pub package: String,
    /// Version of the bundle.
    pub version: String,
    /// Catalog of the bundle.
    pub catalog: String,
}

impl AssessedRequirement {
    /// `true` if a provider meets it.
    pub fn is_met(&self) -> bool {
        matches!(self.verdict, RequirementVerdict::Met { .. })
    }

    /// Clause about the requirement, for use after the name of the bundle.
    fn clause(&self) -> String {
        if let RequirementVerdict::Invalid(fault) = &self.verdict {
            return format!("has an invalid dependency: {fault}");
        }
        let mut text = format!("requires {}", self.sought());
        if self.verdict == (RequirementVerdict::Unmet { wide: true }) {
            text += ", which several installed bundles meet only together";
        }
        text
    }

    /// Text of the requirement. Appends the author's message to an unmet one unless the text contains it.
    fn sought(&self) -> String {
        let text = format!("an operator {}", self.requirement);
        match self.requirement.failure_message() {
            Some(message) if !self.is_met() && !text.contains(message) => format!("{text} ({message})"),
            _ => text,
        }
    }
}

/// Unmet requirements, as the rest of a sentence about the bundle.
pub(crate) fn clauses(unmet: &[AssessedRequirement]) -> String {
    unmet.iter().map(AssessedRequirement::clause).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for AssessedRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            RequirementVerdict::Met { by, external: false } => {
                write!(f, "{}: satisfied by {by}", self.sought())
            }
            RequirementVerdict::Met { external: true, .. } => {
                write!(f, "{}: satisfied by an API that no extension manages (external)", self.sought())
            }
            RequirementVerdict::Unmet { wide: false } => write!(f, "{}: not satisfied", self.sought()),
            RequirementVerdict::Unmet { wide: true } => {
                write!(f, "{}: not satisfied, several installed bundles meet it only together", self.sought())
            }
            RequirementVerdict::Invalid(fault) => write!(f, "invalid dependency: {fault}"),
        }
    }
}

impl fmt::Display for Satisfier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} ({})", self.package, self.version, self.catalog)
    }
}

/// Evaluates the requirements of a bundle that are not ignored, in the order of its properties. The bundle itself can
/// meet them, after other bundles and before APIs without one.
pub(crate) fn assess(offer: &Offer, rules: &Rules<'_>) -> Vec<AssessedRequirement> {
    if offer.requirements().is_empty() {
        return Vec::new();
    }
    let none = AvailableProviders::default();
    let providers = rules.providers_for(offer).unwrap_or(&none);
    let itself = as_provider(offer);
    let assessed = |requirement: &Requirement| {
        let verdict = match requirement.verdict(providers) {
            met @ RequirementVerdict::Met { external: false, .. } => met,
            _ if requirement.is_met_by(&itself) => {
                RequirementVerdict::Met { by: offer.name().to_owned(), external: false }
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

/// Provider that the bundle would be if installed.
pub(crate) fn as_provider(offer: &Offer) -> Provider {
    Provider::new(None, offer.name().to_owned(), offer.properties().to_vec())
}

/// Errors of rules of these requirements for installed bundles, one line each, the first eight (case additions-e17).
pub(crate) fn rule_failures(requirements: &[AssessedRequirement], rules: &Rules<'_>) -> Vec<String> {
    let providers = rules.providers.map_or(&[][..], |available| &available.providers);
    let pairs =
        requirements.iter().flat_map(|assessed| providers.iter().map(move |provider| (assessed, provider)));
    let failures = pairs.flat_map(|(assessed, provider)| {
        let failures = assessed.requirement.rule_failures(provider);
        failures.map(|(rule, failure)| (rule, provider.bundle(), failure))
    });
    let line = |(rule, bundle, failure): (&str, &str, String)| {
        format!("rule {} fails on bundle {bundle}: {}", quote(&excerpt(rule)), excerpt(&failure))
    };
    failures.take(TOLD_FAILURES).map(line).collect()
}

/// Text about the first installed extension whose requirement the bundle would break.
pub(crate) fn broken_dependent(offer: &Offer, rules: &Rules<'_>) -> Option<String> {
    let dependents = rules.dependents_for(offer);
    if dependents.is_empty() {
        return None;
    }
    let none = AvailableProviders::default();
    let providers = rules.providers_for(offer).unwrap_or(&none);
    let provider = as_provider(offer);
    broken(dependents, |requirement| {
        requirement.is_met_by(&provider)
            || matches!(requirement.verdict(providers), RequirementVerdict::Met { .. })
    })
}

/// Text about the first dependent with a requirement that is not met.
pub(crate) fn broken(dependents: &[Dependent], is_met: impl Fn(&Requirement) -> bool) -> Option<String> {
    let mut dependents: Vec<&Dependent> = dependents.iter().collect();
    dependents.sort_by(|a, b| a.extension.cmp(&b.extension));
    let unmet = |dependent: &'_ Dependent| dependent.requirements.iter().position(|one| !is_met(one));
    let (dependent, position) =
        dependents.into_iter().find_map(|dependent| Some((dependent, unmet(dependent)?)))?;
    let requirement = &dependent.requirements[position];
    Some(format!(
        "installed extension {} (bundle {}) requires an operator {requirement}",
        dependent.extension, dependent.bundle
    ))
}

/// Packages that the unmet ones of these requirements name.
pub fn missing_packages(requirements: &[AssessedRequirement]) -> BTreeSet<&str> {
    let unmet = requirements.iter().filter(|assessed| !assessed.is_met());
    unmet.flat_map(|assessed| assessed.requirement.mentioned_packages()).collect()
}

/// Best bundle of each of these packages that meets an unmet requirement. Packages are given with the names of their
/// catalogs and must have been indexed with their properties.
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
