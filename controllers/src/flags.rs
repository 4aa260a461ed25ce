//! Flags of operator-controller.

use std::path::PathBuf;

use clap::Parser;
use olm_oci::policy::PolicySource;
use olm_oci::{Config, ImageLimits};
use olm_resolve::{DependencyMode, UpgradeScope};
use olm_runtime::Component;
use olm_serving::command_line::ServerCommand;
use olm_serving::flags::ServiceFlags;

use crate::platform::PlatformFlags;

/// Heading in `--help`.
const CONTENT: &str = "Catalogs and bundles";

/// Installs and upgrades extensions from catalogs.
#[derive(Parser, Clone, Debug)]
#[command(name = "operator-controller", subcommand_negates_reqs = true)]
pub struct Flags {
    /// Directory with CA certificates that verify catalogd, in place of those of the system
    #[arg(long, default_value = "", value_name = "DIR", help_heading = CONTENT)]
    pub(crate) catalogd_cas_dir: String,
    /// Hosts of catalogd in `status.urls`, comma-separated, HOST:PORT for a single port; http://HOST for development
    /// without TLS; default: catalogd-service.NAMESPACE.svc, also with .cluster.local, in the namespace of catalogd
    #[arg(long, default_value = "", value_name = "HOSTS", help_heading = CONTENT)]
    pub(crate) catalogd_hosts: String,
    /// Namespace of catalogd, for its serving certificate and Role; default: the system namespace
    #[arg(long, default_value = "", value_name = "NAMESPACE", help_heading = CONTENT)]
    pub(crate) catalogd_namespace: String,
    /// Directory for cached catalog and bundle content, reused after a restart
    #[arg(long, default_value = "/var/cache/operator-controller", value_name = "DIR", help_heading = CONTENT)]
    pub(crate) cache_path: PathBuf,
    /// Handling of bundles with dependencies: Reject, Report or Check
    #[arg(long, default_value = "Reject", value_name = "MODE", help_heading = CONTENT)]
    pub(crate) dependency_mode: DependencyMode,
    /// Largest version step of one upgrade, for extensions without annotation upgrade-scope: patch, minor or major
    #[arg(long, default_value = "major", value_name = "SCOPE", help_heading = CONTENT)]
    pub(crate) upgrade_scope: UpgradeScope,
    /// Flags of the platform controller
    #[command(flatten)]
    pub(crate) platform: PlatformFlags,
    /// Flags of both servers
    #[command(flatten)]
    pub service: ServiceFlags,
    /// Commands
    #[command(subcommand)]
    pub command: Option<ServerCommand>,
}

impl Flags {
    /// Checks conditions that involve several flags.
    ///
    /// # Errors
    /// Returns the message of the first violated condition.
    pub fn check(&self) -> Result<(), String> {
        self.service.check(Component::OperatorController)?;
        self.pulling().map(drop)
    }

    /// Returns the namespace of catalogd.
    pub(crate) fn catalogd_namespace<'a>(&'a self, system_namespace: &'a str) -> &'a str {
        if self.catalogd_namespace.is_empty() { system_namespace } else { &self.catalogd_namespace }
    }

    /// Returns the configuration of image pulls, without credentials.
    pub(crate) fn pulling(&self) -> Result<Config, String> {
        let mut config = Config {
            cas_dir: self.service.pull_cas_dir(),
            policy: PolicySource::from_env(self.service.require_signature_policy),
            ..Config::new(ImageLimits::BUNDLE)
        };
        config.apply_flags(&self.service.image_limits, &self.service.registry_deny_cidrs)?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upgrade_scope_flag_has_the_values_of_the_annotation() {
        let parse = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
            olm_serving::command_line::parse::<Flags>(&arguments)
        };
        assert_eq!(parse(&[]).unwrap().upgrade_scope, UpgradeScope::Major);
        assert_eq!(parse(&["--upgrade-scope=minor"]).unwrap().upgrade_scope, UpgradeScope::Minor);
        let error = parse(&["--upgrade-scope=Minor"]).err().unwrap();
        assert!(error.ends_with("unknown value \"Minor\", allowed: patch, minor, major"), "{error}");
    }

    #[test]
    fn dependency_mode_flag_error_lists_allowed_values() {
        let parse = |argument: &str| olm_serving::command_line::parse::<Flags>(&[argument.to_owned()]);
        assert!(parse("--dependency-mode=Check").is_ok());
        assert_eq!(
            parse("--dependency-mode=Solve").err().unwrap(),
            "invalid argument \"Solve\" for \"--dependency-mode\" flag: unknown value \"Solve\", allowed: Reject, \
             Report, Check"
        );
    }
}
