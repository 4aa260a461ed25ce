//! The one decision about a single bundle: may it be chosen, and if not, by which rule
//! (docs/design/resolution.md#algorithm).

use olm_version::{Constraint, VersionRelease};

use crate::dependency::{AssessedRequirement, assess, broken_dependent};
use crate::error::ResolveError;
use crate::package::{Offer, considered};
use crate::request::{Origin, Request, UpgradePolicy};
use crate::rules::{DependencyMode, UpgradeScope};

/// Judges the bundles of all catalogs for one request.
pub(crate) struct Judge<'a> {
    pub(crate) request: &'a Request<'a>,
    constraint: Option<Constraint>,
    /// The installed bundle, if there is one; the error matters only where upgrades must start from it.
    origin: Result<Option<Origin<'a>>, ResolveError>,
}

/// Why a bundle may not be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// It is in none of the wanted channels.
    Channel,
    /// Its version is outside of the wanted range.
    Version,
    /// Its version cannot be compared with the wanted range.
    Unreadable(String),
    /// It is neither a successor of the installed bundle nor the same.
    NoEdge,
    /// A rule beyond the reference holds it back.
    Held(HeldReason),
}

/// The rule beyond the reference that holds a bundle back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldReason {
    /// The upgrade would go too far.
    OutsideScope {
        /// How far it may go.
        scope: UpgradeScope,
        /// The installed version.
        installed: String,
    },
    /// Channels that count skip the bundle.
    Skipped {
        /// Their names.
        channels: Vec<String>,
    },
    /// What the bundle requires and nothing meets.
    Dependencies(String),
    /// The installed extension that the bundle would break.
    Dependent(String),
    /// What the bundle demands of the cluster and the cluster does not have.
    Cluster(String),
}

impl std::fmt::Display for HeldReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OutsideScope { scope, installed } => {
                write!(f, "outside of the upgrade scope \"{scope}\" of installed {installed}")
            }
            Self::Skipped { channels } => write!(f, "skipped in channels [{}]", channels.join(" ")),
            Self::Dependencies(text) | Self::Dependent(text) | Self::Cluster(text) => f.write_str(text),
        }
    }
}

impl<'a> Judge<'a> {
    /// # Errors
    /// The version constraint is invalid.
    pub(crate) fn new(request: &'a Request<'a>) -> Result<Self, ResolveError> {
        let constraint = request.constraint()?;
        let origin = request.installed.map(|installed| {
            let explicit_release = installed.release.is_some();
            installed.origin().map_err(|fault| ResolveError::Installed { explicit_release, fault })
        });
        Ok(Self { request, constraint, origin: origin.transpose() })
    }

    /// Must hold before a bundle is judged; without a bundle to judge it does not matter.
    ///
    /// # Errors
    /// Upgrades must start from an installed bundle whose version cannot be read.
    pub(crate) fn check_origin(&self) -> Result<(), ResolveError> {
        match &self.origin {
            Err(fault) if self.request.policy == UpgradePolicy::CatalogProvided => Err(fault.clone()),
            _ => Ok(()),
        }
    }

    /// The installed bundle, if its version can be read.
    pub(crate) fn origin(&self) -> Option<&Origin<'a>> {
        self.origin.as_ref().ok()?.as_ref()
    }

    /// Whether the bundle has the installed version and release.
    pub(crate) fn is_installed(&self, offer: &Offer) -> bool {
        self.origin().is_some_and(|origin| offer.version().ok() == Some(&origin.version))
    }

    /// Whether the bundle may be chosen.
    pub(crate) fn judge(&self, offer: &Offer) -> Result<(), Dropped> {
        let request = self.request;
        if !request.channels.is_empty()
            && !offer.channels().any(|channel| considered(channel, request.channels))
        {
            return Err(Dropped::Channel);
        }
        if let Some(constraint) = &self.constraint {
            let version = offer.version().map_err(|fault| Dropped::Unreadable(fault.to_owned()))?;
            if !constraint.matches(version.version()) {
                return Err(Dropped::Version);
            }
        }
        if self.is_installed(offer) {
            return Ok(());
        }
        if request.policy == UpgradePolicy::CatalogProvided
            && let Some(origin) = self.origin()
            && offer.edges_from(origin, request.channels).next().is_none()
        {
            return Err(Dropped::NoEdge);
        }
        self.held_back(offer).map_or(Ok(()), |reason| Err(Dropped::Held(reason)))
    }

    /// The rule beyond the reference that holds back a bundle which is not the installed one.
    fn held_back(&self, offer: &Offer) -> Option<HeldReason> {
        let rules = &self.request.rules;
        if let (Some(scope), Some(origin), Ok(version)) =
            (rules.upgrade_scope, self.origin(), offer.version())
            && !scope.admits(origin.version.version(), version.version())
        {
            return Some(HeldReason::OutsideScope { scope, installed: shown(&origin.version) });
        }
        if rules.exclude_skipped {
            let channels = self.skipped_in(offer);
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
            return Some(HeldReason::Dependencies(clauses(&unmet)));
        }
        broken_dependent(offer, rules).map(HeldReason::Dependent)
    }

    /// The channels that count and skip the bundle.
    pub(crate) fn skipped_in(&self, offer: &Offer) -> Vec<String> {
        let channels = offer.skipped_in().filter(|channel| considered(channel, self.request.channels));
        channels.map(str::to_owned).collect()
    }

    /// The requirements of a bundle that count and that nothing meets.
    pub(crate) fn unmet(&self, offer: &Offer) -> Vec<AssessedRequirement> {
        let mut assessed = assess(offer, &self.request.rules);
        assessed.retain(|assessed| !assessed.is_met());
        assessed
    }
}

/// What a bundle asks for, as the rest of a sentence about it.
pub(crate) fn clauses(unmet: &[AssessedRequirement]) -> String {
    unmet.iter().map(AssessedRequirement::clause).collect::<Vec<_>>().join(", ")
}

/// A version with its release as one text, which reads back whatever the gates say.
pub(crate) fn shown(version: &VersionRelease) -> String {
    version.shown(false).0
}
