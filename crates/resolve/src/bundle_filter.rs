//! Decision about a single bundle: acceptable, or rejected by a rule (docs/design/resolution.md#algorithm).

use std::collections::BTreeSet;

use olm_version::{Constraint, VersionRelease};

use crate::dependency::{AssessedRequirement, assess, broken_dependent, clauses};
use crate::error::ResolveError;
use crate::group::GroupStep;
use crate::held::HeldReason;
use crate::package::{Offer, PackageIndex, considered};
use crate::request::{Request, UpgradeOrigin, UpgradePolicy};
use crate::rules::DependencyMode;

/// Filter for the bundles of all catalogs, for one request.
pub(crate) struct BundleFilter<'a> {
    pub(crate) request: &'a Request<'a>,
    constraint: Option<Constraint>,
    /// Installed bundle, if any. Its error matters only for upgrades that must start from it.
    origin: Result<Option<UpgradeOrigin<'a>>, ResolveError>,
}

/// Reason for the rejection of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// It is in none of the requested channels.
    Channel,
    /// Its version is outside of the requested range.
    Version,
    /// Its version cannot be compared with the requested range.
    Unreadable(String),
    /// It is neither a successor of the installed bundle nor the same.
    NoEdge,
    /// A rule beyond the reference holds it back.
    Held(HeldReason),
}

impl<'a> BundleFilter<'a> {
    /// # Errors
    /// The version constraint is invalid.
    pub(crate) fn new(request: &'a Request<'a>) -> Result<Self, ResolveError> {
        let parse = |range: &str| {
            Constraint::parse(range).map_err(|fault| ResolveError::Version { range: range.to_owned(), fault })
        };
        let constraint = request.range().map(parse).transpose()?;
        let origin = request.installed.map(|installed| {
            let explicit_release = installed.release.is_some();
            installed.origin().map_err(|fault| ResolveError::Installed { explicit_release, fault })
        });
        Ok(Self { request, constraint, origin: origin.transpose() })
    }

    /// Checks that upgrades can start from the installed bundle. Call it before `check`.
    ///
    /// # Errors
    /// The policy requires upgrade edges, and the version of the installed bundle is unreadable.
    pub(crate) fn check_origin(&self) -> Result<(), ResolveError> {
        match &self.origin {
            Err(fault) if self.request.policy == UpgradePolicy::CatalogProvided => Err(fault.clone()),
            _ => Ok(()),
        }
    }

    /// Installed bundle, if its version is readable.
    pub(crate) fn origin(&self) -> Option<&UpgradeOrigin<'a>> {
        self.origin.as_ref().ok()?.as_ref()
    }

    /// `true` if the bundle has the installed version and release.
    pub(crate) fn is_installed(&self, offer: &Offer) -> bool {
        self.origin().is_some_and(|origin| offer.version().ok() == Some(&origin.version))
    }

    /// Accepts or rejects a bundle of the package.
    pub(crate) fn check(&self, package: &PackageIndex, offer: &Offer) -> Result<(), Rejection> {
        let request = self.request;
        if !request.channels.is_empty()
            && !offer.channels().any(|channel| considered(channel, request.channels))
        {
            return Err(Rejection::Channel);
        }
        if let Some(constraint) = &self.constraint {
            let version = offer.version().map_err(|fault| Rejection::Unreadable(fault.to_owned()))?;
            if !constraint.matches(version.version()) {
                return Err(Rejection::Version);
            }
        }
        if self.is_installed(offer) {
            return Ok(());
        }
        if request.policy == UpgradePolicy::CatalogProvided
            && let Some(origin) = self.origin()
            && offer.edges_from(origin, request.channels).next().is_none()
        {
            return Err(Rejection::NoEdge);
        }
        self.holding_rule(package, offer).map_or(Ok(()), |reason| Err(Rejection::Held(reason)))
    }

    /// Rule beyond the reference that holds back a bundle other than the installed one.
    fn holding_rule(&self, package: &PackageIndex, offer: &Offer) -> Option<HeldReason> {
        let rules = &self.request.rules;
        if let (Some(scope), Some(origin), Ok(version)) =
            (rules.upgrade_scope, self.origin(), offer.version())
            && !scope.admits(origin.version.version(), version.version())
        {
            return Some(HeldReason::OutsideScope { scope, installed: shown(&origin.version) });
        }
        if rules.exclude_skipped {
            let channels = self.excluded_in(package, offer);
            if !channels.is_empty() {
                return Some(HeldReason::Skipped { channels });
            }
        }
        let cluster = rules.cluster.zip(offer.demands()).and_then(|(facts, demands)| demands.unmet(facts));
        if let Some(text) = cluster {
            return Some(HeldReason::Cluster(text));
        }
        if rules.dependencies != DependencyMode::Check {
            return None;
        }
        let unmet = self.unmet(offer);
        if !unmet.is_empty() {
            return Some(HeldReason::Dependencies(clauses(&unmet) + &self.held_group()));
        }
        broken_dependent(offer, rules).map(|text| HeldReason::Dependent(text + &self.held_group()))
    }

    /// Suffix that names the member which holds the upgrade group.
    fn held_group(&self) -> String {
        match self.request.rules.group {
            Some(GroupStep::Held { member, cause }) => {
                format!("; the upgrade group is held by its member {member}: {cause}")
            }
            _ => String::new(),
        }
    }

    /// Considered channels that skip the bundle or pass over its version, sorted.
    fn excluded_in(&self, package: &PackageIndex, offer: &Offer) -> Vec<String> {
        let passed_over = package.passed_over_in(offer);
        let passed_over = passed_over.filter(|channel| considered(channel, self.request.channels));
        let all: BTreeSet<String> =
            self.skipped_in(offer).into_iter().chain(passed_over.map(str::to_owned)).collect();
        all.into_iter().collect()
    }

    /// Considered channels that skip the bundle.
    pub(crate) fn skipped_in(&self, offer: &Offer) -> Vec<String> {
        let channels = offer.skipped_in().filter(|channel| considered(channel, self.request.channels));
        channels.map(str::to_owned).collect()
    }

    /// Unmet requirements of a bundle, without ignored ones.
    pub(crate) fn unmet(&self, offer: &Offer) -> Vec<AssessedRequirement> {
        let mut assessed = assess(offer, &self.request.rules);
        assessed.retain(|assessed| !assessed.is_met());
        assessed
    }
}

/// Version with its release as one text, which parses back with any feature gates.
pub(crate) fn shown(version: &VersionRelease) -> String {
    version.shown(false).0
}
