//! Flags about the platform, combined with the environment.

use clap::ValueEnum;
use olm_api::cluster_upgrade_status::PlatformType;
use olm_platform::{ClusterOperatorMode, MinorVersion, OpenShiftVersionMap};

/// Environment variables that may hold OpenShift's version. The first that parses wins.
const VERSION_VARIABLES: [&str; 2] = ["RELEASE_VERSION", "OPERATOR_IMAGE_VERSION"];
/// Maximum length of an object name.
const MAX_NAME: usize = 253;

/// Heading in `--help`.
const PLATFORM: &str = "Platform upgrades";

/// Flags about the platform whose upgrades are watched.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct PlatformFlags {
    /// Platform of the cluster
    #[arg(long, value_enum, default_value = "auto", help_heading = PLATFORM)]
    platform: PlatformChoice,
    /// Platform version. Default: the detected one
    #[arg(long, default_value = "", value_parser = platform_version, value_name = "MAJOR.MINOR",
          help_heading = PLATFORM)]
    platform_version: NamedVersion,
    /// Meaning of olm.maxOpenShiftVersion on other platforms than OpenShift: off, or k8s-offset (4.y is Kubernetes 1.(y+13))
    #[arg(long, default_value = "off", value_name = "MAP", help_heading = PLATFORM)]
    openshift_version_map: OpenShiftVersionMap,
    /// Object that reports to OpenShift whether the cluster can be upgraded
    #[arg(long, value_enum, default_value = "auto", help_heading = PLATFORM)]
    cluster_operator_mode: ModeChoice,
    /// ClusterOperator whose status reports whether OpenShift can be upgraded, in mode own
    #[arg(long, default_value = "olm", value_parser = object_name, value_name = "NAME", help_heading = PLATFORM)]
    cluster_operator_name: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PlatformChoice {
    /// Detected
    Auto,
    /// OpenShift
    #[value(name = "openshift")]
    OpenShift,
    /// Any other Kubernetes
    Kubernetes,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeChoice {
    /// The OLM object if OpenShift's operator manages one, else the ClusterOperator
    Auto,
    /// The ClusterOperator
    Own,
    /// The OLM object of OpenShift, whose operator publishes the condition
    Contribute,
    /// None
    Off,
}

/// Value of a version flag. `None` for an empty flag.
#[derive(Clone, Copy, Debug)]
struct NamedVersion(Option<MinorVersion>);

fn platform_version(text: &str) -> Result<NamedVersion, String> {
    if text.is_empty() {
        return Ok(NamedVersion(None));
    }
    text.parse().map(|version| NamedVersion(Some(version))).map_err(|error| format!("{error}"))
}

fn object_name(text: &str) -> Result<String, String> {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        label.starts_with(is_alphanumeric)
            && label.ends_with(is_alphanumeric)
            && label.chars().all(|c| is_alphanumeric(c) || c == '-')
    };
    if text.len() <= MAX_NAME && text.split('.').all(is_label) {
        return Ok(text.to_owned());
    }
    Err("expected the name of an object: a-z, 0-9, '-' and '.', a letter or digit at both ends".to_owned())
}

/// Configuration of the controller.
#[derive(Clone, Debug)]
pub struct PlatformSettings {
    /// Platform type set by the administrator.
    pub platform: Option<PlatformType>,
    /// Version set by the administrator.
    pub version: Option<MinorVersion>,
    /// Mapping of OpenShift versions on other platforms.
    pub openshift_map: OpenShiftVersionMap,
    /// OpenShift version from the environment.
    pub environment: Option<MinorVersion>,
    /// Mode in which OpenShift receives the verdict.
    pub mode: ClusterOperatorMode,
    /// Name of the ClusterOperator.
    pub cluster_operator: String,
    /// Namespaces of this installation.
    pub system_namespaces: Vec<String>,
}

impl PlatformFlags {
    /// Returns the flags, completed by the environment of the process.
    pub(crate) fn settings(&self, system_namespaces: Vec<String>) -> PlatformSettings {
        let environment =
            VERSION_VARIABLES.into_iter().find_map(|name| std::env::var(name).ok()?.parse().ok());
        PlatformSettings {
            platform: match self.platform {
                PlatformChoice::Auto => None,
                PlatformChoice::OpenShift => Some(PlatformType::OpenShift),
                PlatformChoice::Kubernetes => Some(PlatformType::Kubernetes),
            },
            version: self.platform_version.0,
            openshift_map: self.openshift_version_map,
            environment,
            mode: match self.cluster_operator_mode {
                ModeChoice::Auto => ClusterOperatorMode::Auto,
                ModeChoice::Own => ClusterOperatorMode::Own,
                ModeChoice::Contribute => ClusterOperatorMode::Contribute,
                ModeChoice::Off => ClusterOperatorMode::Off,
            },
            cluster_operator: self.cluster_operator_name.clone(),
            system_namespaces,
        }
    }
}

#[cfg(test)]
mod tests {
    use olm_serving::command_line::parse;

    use super::*;

    #[derive(clap::Parser, Debug)]
    #[command(name = "operator-controller")]
    struct Flags {
        #[command(flatten)]
        platform: PlatformFlags,
    }

    fn settings(arguments: &[&str]) -> Result<PlatformSettings, String> {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        parse::<Flags>(&arguments).map(|flags| flags.platform.settings(vec!["ns".to_owned()]))
    }

    #[test]
    fn valid_flags_become_settings() {
        let defaults = settings(&["--platform-version="]).unwrap();
        assert_eq!((defaults.platform, defaults.version), (None, None));
        assert_eq!(defaults.openshift_map, OpenShiftVersionMap::Off);
        assert_eq!((defaults.mode, defaults.cluster_operator.as_str()), (ClusterOperatorMode::Auto, "olm"));
        let named = settings(&[
            "--platform=openshift",
            "--platform-version=4.18.3",
            "--openshift-version-map=k8s-offset",
            "--cluster-operator-mode=own",
            "--cluster-operator-name=olm-rs.x",
        ])
        .unwrap();
        assert_eq!(named.platform, Some(PlatformType::OpenShift));
        assert_eq!(named.version, Some(MinorVersion::new(4, 18)));
        assert_eq!(named.openshift_map, OpenShiftVersionMap::K8sOffset);
        assert_eq!((named.mode, named.cluster_operator.as_str()), (ClusterOperatorMode::Own, "olm-rs.x"));
    }

    #[test]
    fn invalid_flag_values_are_rejected() {
        let name = "expected the name of an object: a-z, 0-9, '-' and '.', a letter or digit at both ends";
        let rows = [
            ("--platform", "OKD", "want one of auto openshift kubernetes"),
            ("--platform-version", "4", "expected <major>.<minor>, such as 4.18"),
            ("--platform-version", "latest", "expected <major>.<minor>, such as 4.18"),
            ("--openshift-version-map", "on", "unknown value \"on\", allowed: off, k8s-offset"),
            ("--cluster-operator-mode", "on", "want one of auto own contribute off"),
            ("--cluster-operator-name", "OLM", name),
            ("--cluster-operator-name", "", name),
            ("--cluster-operator-name", "a..b", name),
        ];
        for (flag, value, why) in rows {
            let expected = format!("invalid argument {value:?} for {flag:?} flag: {why}");
            assert_eq!(settings(&[&format!("{flag}={value}")]).unwrap_err(), expected);
        }
    }
}
