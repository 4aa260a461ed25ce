//! Detection of the platform and its next version (docs/design/operations.md#platform-detection).

use std::str::FromStr;

use olm_api::cluster_upgrade_status::{PlatformStatus, PlatformType, VersionSource};

use crate::property::PlatformConstraint;
use crate::version::MinorVersion;

/// Mapping of OpenShift versions on any other Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpenShiftVersionMap {
    /// OpenShift versions are ignored.
    #[default]
    Off,
    /// An OpenShift version 4.y maps to its Kubernetes version, 1.(y+13).
    K8sOffset,
}

impl FromStr for OpenShiftVersionMap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "k8s-offset" => Ok(Self::K8sOffset),
            _ => Err(format!("unknown value {text:?}, allowed: off, k8s-offset")),
        }
    }
}

/// Observed and configured facts about the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Platform type set by the administrator.
    pub named: Option<PlatformType>,
    /// `true` if ClusterVersions and ClusterOperators are served.
    pub openshift_apis: bool,
    /// Version set by the administrator.
    pub flag: Option<MinorVersion>,
    /// Version of the ClusterVersion object, see [`crate::cluster_version`].
    pub cluster_version: Option<MinorVersion>,
    /// OpenShift version in the environment of the process.
    pub environment: Option<MinorVersion>,
    /// Version of the API server.
    pub kubernetes: Option<MinorVersion>,
    /// Mapping of OpenShift versions on other platforms.
    pub openshift_map: OpenShiftVersionMap,
}

/// Platform that is evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Platform type.
    pub type_: PlatformType,
    /// Version that runs or is being rolled out, and its source.
    pub current: Option<(MinorVersion, VersionSource)>,
    /// Next version of the platform.
    pub next: Option<MinorVersion>,
    /// Next version of Kubernetes.
    pub next_kubernetes: Option<MinorVersion>,
    /// Mapping of OpenShift versions on other platforms.
    pub openshift_map: OpenShiftVersionMap,
}

impl Platform {
    /// Derives the platform from the facts.
    pub fn of(facts: &Facts) -> Self {
        let detected = if facts.openshift_apis { PlatformType::OpenShift } else { PlatformType::Kubernetes };
        let type_ = facts.named.clone().unwrap_or(detected);
        let is_openshift = type_ == PlatformType::OpenShift;
        let sources = [
            (facts.flag, VersionSource::Flag),
            (facts.cluster_version.filter(|_| is_openshift), VersionSource::ClusterVersion),
            (facts.environment.filter(|_| is_openshift), VersionSource::Environment),
            (facts.kubernetes.filter(|_| !is_openshift), VersionSource::Discovery),
        ];
        let current = sources.into_iter().find_map(|(version, source)| Some((version?, source)));
        let version = current.as_ref().map(|(version, _)| *version);
        let (next, next_kubernetes) = if is_openshift {
            (version.map(MinorVersion::next_openshift), facts.kubernetes.map(MinorVersion::next_kubernetes))
        } else {
            (version.map(MinorVersion::next_kubernetes), version.map(MinorVersion::next_kubernetes))
        };
        Self { type_, current, next, next_kubernetes, openshift_map: facts.openshift_map }
    }

    /// Returns the platform with other target versions than the next ones. Kubernetes has only one target,
    /// `kubernetes`.
    #[must_use]
    pub fn towards(self, openshift: Option<MinorVersion>, kubernetes: Option<MinorVersion>) -> Self {
        let own = if self.type_ == PlatformType::OpenShift { openshift } else { kubernetes };
        Self { next: own.or(self.next), next_kubernetes: kubernetes.or(self.next_kubernetes), ..self }
    }

    /// Returns the next version of the platform that `constraint` refers to, or `None` if it is not known.
    pub fn next_of(&self, constraint: PlatformConstraint) -> Option<MinorVersion> {
        match constraint {
            PlatformConstraint::OpenShift => self.next,
            PlatformConstraint::Kubernetes => self.next_kubernetes,
        }
    }

    /// Returns `true` if the constraint applies to this platform.
    pub(crate) fn evaluates(&self, constraint: PlatformConstraint) -> bool {
        constraint == PlatformConstraint::Kubernetes
            || self.type_ == PlatformType::OpenShift
            || self.openshift_map == OpenShiftVersionMap::K8sOffset
    }

    /// Returns the highest supported version of this platform, where `highest` is the value of the constraint. `None`
    /// if the value does not map to this platform.
    pub(crate) fn limit(
        &self,
        constraint: PlatformConstraint,
        highest: MinorVersion,
    ) -> Option<MinorVersion> {
        if constraint == PlatformConstraint::Kubernetes || self.type_ == PlatformType::OpenShift {
            return Some(highest);
        }
        highest.kubernetes_of_openshift()
    }
}

impl From<&Platform> for PlatformStatus {
    fn from(platform: &Platform) -> Self {
        Self {
            type_: platform.type_.clone(),
            current_version: platform.current.as_ref().map(|(version, _)| version.to_string()),
            next_version: platform.next.map(|version| version.to_string()),
            source: platform.current.as_ref().map(|(_, source)| source.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Option<MinorVersion> {
        (!text.is_empty()).then(|| text.parse().unwrap())
    }

    // docs/design/operations.md#platform-detection platform
    #[test]
    fn platform_type_and_version_follow_precedence_of_sources() {
        let openshift = Some(PlatformType::OpenShift);
        let kubernetes = Some(PlatformType::Kubernetes);
        let facts = |named: &Option<PlatformType>, openshift_apis, versions: [&str; 4]| {
            let [flag, cluster_version, environment, kubernetes] = versions.map(version);
            let (named, openshift_map) = (named.clone(), OpenShiftVersionMap::Off);
            Facts { named, openshift_apis, flag, cluster_version, environment, kubernetes, openshift_map }
        };
        // named type, APIs, [flag, ClusterVersion, environment, API server]; current, next, next of Kubernetes
        let rows = [
            (&None, true, ["", "4.18", "4.17", "1.31"], "OpenShift 4.18 ClusterVersion", "4.19", "1.32"),
            (&None, true, ["4.17", "4.18", "", "1.31"], "OpenShift 4.17 Flag", "4.18", "1.32"),
            (&None, true, ["", "", "4.17", "1.31"], "OpenShift 4.17 Environment", "4.18", "1.32"),
            (&None, true, ["", "", "", "1.31"], "OpenShift", "", "1.32"),
            (&None, true, ["4.23", "", "", ""], "OpenShift 4.23 Flag", "5.1", ""),
            (&None, false, ["", "4.18", "4.17", "1.36"], "Kubernetes 1.36 Discovery", "1.37", "1.37"),
            (&None, false, ["1.30", "", "", "1.36"], "Kubernetes 1.30 Flag", "1.31", "1.31"),
            (&None, false, ["", "", "", ""], "Kubernetes", "", ""),
            (&openshift, false, ["4.18", "", "", "1.36"], "OpenShift 4.18 Flag", "4.19", "1.37"),
            (&kubernetes, true, ["", "4.18", "", "1.31"], "Kubernetes 1.31 Discovery", "1.32", "1.32"),
        ];
        for (named, apis, versions, current, next, next_kubernetes) in rows {
            let got = Platform::of(&facts(named, apis, versions));
            let shown = match &got.current {
                Some((version, source)) => format!("{} {version} {source}", got.type_),
                None => got.type_.to_string(),
            };
            assert_eq!(shown, current);
            assert_eq!(
                (got.next, got.next_kubernetes),
                (version(next), version(next_kubernetes)),
                "{current}"
            );
        }
    }
    #[test]
    fn explicit_targets_replace_next_versions() {
        let openshift = Facts {
            openshift_apis: true,
            flag: version("4.18"),
            kubernetes: version("1.31"),
            ..Facts::default()
        };
        let kubernetes = Facts { kubernetes: version("1.36"), ..Facts::default() };
        let rows = [
            (&openshift, "", "", "4.19", "1.32"),
            (&openshift, "4.21", "", "4.21", "1.32"),
            (&openshift, "", "1.35", "4.19", "1.35"),
            (&openshift, "4.21", "1.34", "4.21", "1.34"),
            (&kubernetes, "", "1.38", "1.38", "1.38"),
            (&kubernetes, "4.21", "", "1.37", "1.37"),
        ];
        for (facts, platform, kube, next, next_kubernetes) in rows {
            let got = Platform::of(facts).towards(version(platform), version(kube));
            assert_eq!((got.next, got.next_kubernetes), (version(next), version(next_kubernetes)));
        }
    }
}
