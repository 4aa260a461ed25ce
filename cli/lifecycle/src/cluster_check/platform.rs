//! Flags that describe the platform, and the verdict on it.

use clap::{Args, ValueEnum};
use olm_api::cluster_upgrade_status::PlatformType;
use olm_platform::{Facts, MinorVersion, OpenShiftVersionMap, Platform};

/// Flags that describe the platform, as those of operator-controller.
#[derive(Debug, Args)]
pub(crate) struct PlatformArgs {
    /// Platform to check
    #[arg(long, value_enum, default_value = "auto", help_heading = "Platform")]
    platform: PlatformChoice,
    /// Current version of the platform; default: the version that the cluster reports
    #[arg(long, value_name = "MAJOR.MINOR", help_heading = "Platform")]
    platform_version: Option<MinorVersion>,
    /// Interpretation of olm.maxOpenShiftVersion if the platform is not OpenShift: off, or k8s-offset (4.y as
    /// Kubernetes 1.(y+13)); like the flag of operator-controller
    #[arg(long, value_name = "MAP", default_value = "off", help_heading = "Platform")]
    openshift_version_map: OpenShiftVersionMap,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PlatformChoice {
    /// The platform that the cluster runs on
    Auto,
    /// OpenShift
    #[value(name = "openshift")]
    OpenShift,
    /// Any other Kubernetes
    Kubernetes,
}

impl PlatformArgs {
    /// Platform of the cluster with these facts.
    pub(crate) fn platform(&self, facts: Facts) -> Platform {
        let named = match self.platform {
            PlatformChoice::Auto => None,
            PlatformChoice::OpenShift => Some(PlatformType::OpenShift),
            PlatformChoice::Kubernetes => Some(PlatformType::Kubernetes),
        };
        let (flag, openshift_map) = (self.platform_version, self.openshift_version_map);
        Platform::of(&Facts { named, flag, openshift_map, ..facts })
    }
}
