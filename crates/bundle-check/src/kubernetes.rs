//! Checks against a Kubernetes version: APIs that it no longer serves
//! (docs/design/additions.md#authoring-commands).

use std::fmt;
use std::str::FromStr;

use olm_version::{Version, quote};

use crate::content::{Content, Object};
use crate::findings::Findings;
use crate::rule;

/// Group and version, kinds that a bundle may ship, the Kubernetes minor that removed them, and the replacement,
/// from the deprecated API migration guide of the Kubernetes documentation. CRDs of v1beta1 are reported by the
/// install checks of rendering.
const REMOVED: [(&str, &[&str], u64, &str); 4] = [
    ("extensions/v1beta1", &["NetworkPolicy"], 16, "networking.k8s.io/v1"),
    (
        "rbac.authorization.k8s.io/v1beta1",
        &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
        22,
        "rbac.authorization.k8s.io/v1",
    ),
    ("scheduling.k8s.io/v1beta1", &["PriorityClass"], 22, "scheduling.k8s.io/v1"),
    ("policy/v1beta1", &["PodDisruptionBudget"], 25, "policy/v1"),
];

/// Kubernetes minor version, such as 1.31.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubernetesMinor {
    major: u64,
    minor: u64,
}

/// The text is not a Kubernetes version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: expected a Kubernetes version such as 1.31", quote(.0))]
pub struct KubernetesMinorError(String);

impl FromStr for KubernetesMinor {
    type Err = KubernetesMinorError;

    /// Parses `1.31`, `v1.31` or a full version. The patch level is ignored.
    fn from_str(text: &str) -> Result<Self, KubernetesMinorError> {
        match Version::parse_tolerant(text) {
            Ok(version) if text.contains('.') => Ok(Self { major: version.major(), minor: version.minor() }),
            _ => Err(KubernetesMinorError(text.to_string())),
        }
    }
}

impl fmt::Display for KubernetesMinor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Group and version of an object's API, the Kubernetes minor that removed it, and its replacement. `None` if it is
/// still served.
pub(crate) fn removal(object: &Object) -> Option<(&'static str, KubernetesMinor, &'static str)> {
    let (version, _, minor, successor) = REMOVED
        .iter()
        .find(|(version, kinds, ..)| *version == object.api_version() && kinds.contains(&object.kind()))?;
    Some((version, KubernetesMinor { major: 1, minor: *minor }, successor))
}

/// Checks the API version of every object, and `spec.minKubeVersion`.
pub(crate) fn check(content: &Content, wanted: Option<KubernetesMinor>, findings: &mut Findings) {
    for object in &content.objects {
        if let Some((version, gone, successor)) = removal(object)
            && wanted.is_none_or(|wanted| wanted >= gone)
        {
            let what = format!("Kubernetes {gone} and later do not serve {version}: use {successor}");
            findings.add(&rule::KUBE_1, object.at("apiVersion"), what);
        }
    }
    let (Some(csv), Some(wanted)) = (content.service_version(), wanted) else { return };
    let Ok(needed) = csv.text("/spec/minKubeVersion").parse::<KubernetesMinor>() else { return };
    if needed > wanted {
        let what = format!("the operator needs Kubernetes {needed}, the bundle is to run on {wanted}");
        findings.add(&rule::KUBE_2, csv.at("spec.minKubeVersion"), what);
    }
}
