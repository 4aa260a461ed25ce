//! Resolution rules beyond the reference: flags that describe the configuration of operator-controller, and
//! annotations of an extension.

use std::collections::BTreeMap;
use std::str::FromStr;

use clap::Args;
use olm_cli_core::error::CliError;
use olm_request::{ExtensionRules, Settings};
use olm_resolve::{DependencyMode, Indexing, UpgradeScope};

/// Flags that describe a controller with non-default configuration.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct RuleArgs {
    /// Treatment of bundles with dependencies: Reject, Report or Check, like the flag of operator-controller and the
    /// annotation of an extension; default: Reject
    #[arg(long, value_name = "MODE", value_parser = DependencyMode::from_str, help_heading = "Rules")]
    dependency_mode: Option<DependencyMode>,
    /// Largest version step of one upgrade: patch, minor or major; like the annotation of an extension
    #[arg(long, value_name = "SCOPE", value_parser = UpgradeScope::from_str, help_heading = "Rules")]
    upgrade_scope: Option<UpgradeScope>,
    /// Never install a version that its channel skips; like the annotation of an extension
    #[arg(long, help_heading = "Rules")]
    exclude_skipped: bool,
    /// Feature gates of operator-controller: BestEffortResolution, BundleReleaseSupport, ClusterConstraints, each with =true or
    /// =false
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',', help_heading = "Rules")]
    feature_gates: Vec<String>,
    /// `--dependency-mode` of the controller. Annotations override it.
    #[arg(skip)]
    controllers_mode: Option<DependencyMode>,
    /// `--upgrade-scope` of the controller. Annotations override it.
    #[arg(skip)]
    controllers_scope: Option<UpgradeScope>,
}

/// Gates of the controller that affect a choice.
const GATES: [&str; 3] = ["BestEffortResolution", "BundleReleaseSupport", "ClusterConstraints"];

impl RuleArgs {
    /// Rules of a controller with these gates, `--dependency-mode` and `--upgrade-scope`. Ignores gates that do not
    /// affect a choice.
    pub(super) fn of_controller(
        gates: impl Iterator<Item = (&'static str, bool)>,
        controllers_mode: Option<DependencyMode>,
        controllers_scope: Option<UpgradeScope>,
    ) -> Self {
        let mattering = gates.filter(|(name, _)| GATES.contains(name));
        Self {
            feature_gates: mattering.map(|(name, on)| format!("{name}={on}")).collect(),
            controllers_mode,
            controllers_scope,
            ..Self::default()
        }
    }

    /// Settings of a controller with these gates.
    ///
    /// # Errors
    /// A gate is unknown, or its value is neither true nor false.
    pub(super) fn settings(&self) -> Result<Settings, CliError> {
        let mut settings = Settings { upgrade_scope: self.controllers_scope, ..Settings::default() };
        settings.dependencies = self.controllers_mode.unwrap_or(settings.dependencies);
        for text in &self.feature_gates {
            let wrong = |what: &str| {
                CliError::usage(format!(
                    "--feature-gates {text}: {what}; allowed: BestEffortResolution, BundleReleaseSupport and \
                     ClusterConstraints, each with =true or =false"
                ))
            };
            let (name, value) = text.split_once('=').unwrap_or((text, "true"));
            let value = value.parse().map_err(|_| wrong("the value is neither true nor false"))?;
            match name {
                "BestEffortResolution" => settings.best_effort = value,
                "BundleReleaseSupport" => settings.releases = value,
                "ClusterConstraints" => settings.cluster_constraints = value,
                _ => return Err(wrong("no such gate affects the choice of a bundle")),
            }
        }
        Ok(settings)
    }

    /// Parts of packages that the index must keep.
    ///
    /// # Errors
    /// Errors of [`Self::settings`].
    pub(super) fn indexing(&self) -> Result<Indexing, CliError> {
        Ok(Indexing { release_support: self.settings()?.releases, properties: true })
    }

    /// Rules of an extension with these annotations. Flags override them.
    ///
    /// # Errors
    /// Errors of [`Self::settings`].
    pub(super) fn rules(
        &self,
        annotations: Option<&BTreeMap<String, String>>,
    ) -> Result<ExtensionRules, CliError> {
        let annotated = ExtensionRules::of(annotations, self.settings()?);
        let dependencies = self.dependency_mode.unwrap_or(annotated.settings.dependencies);
        Ok(ExtensionRules {
            settings: Settings { dependencies, ..annotated.settings },
            upgrade_scope: self.upgrade_scope.or(annotated.upgrade_scope),
            exclude_skipped: self.exclude_skipped || annotated.exclude_skipped,
            ..annotated
        })
    }
}

#[cfg(test)]
mod tests {
    use olm_api::annotations;

    use super::*;

    fn args(mode: Option<DependencyMode>, gates: &[&str]) -> RuleArgs {
        RuleArgs {
            dependency_mode: mode,
            upgrade_scope: None,
            exclude_skipped: false,
            feature_gates: gates.iter().map(|&gate| gate.to_owned()).collect(),
            controllers_mode: None,
            controllers_scope: None,
        }
    }

    #[test]
    fn flag_overrides_annotation() {
        let annotations: BTreeMap<_, _> = [
            (annotations::EXT_DEPENDENCY_MODE, "Report"),
            (annotations::EXT_IGNORE_DEPENDENCIES, "olm.constraint, olm.gvk.required"),
            (annotations::EXT_UPGRADE_SCOPE, "Minor"),
            (annotations::EXT_EXCLUDE_SKIPPED, "true"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let rules = args(None, &[]).rules(Some(&annotations)).unwrap();
        assert_eq!(
            (rules.settings.dependencies, rules.upgrade_scope, rules.exclude_skipped),
            (DependencyMode::Report, Some(UpgradeScope::Patch), true)
        );
        assert_eq!(rules.ignored_requirements, ["olm.constraint", "olm.gvk.required"]);
        let invalid: Vec<String> = rules.invalid.iter().map(ToString::to_string).collect();
        assert_eq!(
            invalid,
            [
                "annotation ext.olm.operatorframework.io/upgrade-scope counts as patch: unknown value \"Minor\", \
                 allowed: patch, minor, major"
            ]
        );
        let rules = args(Some(DependencyMode::Check), &[]).rules(Some(&annotations)).unwrap();
        assert_eq!(rules.settings.dependencies, DependencyMode::Check);
    }

    #[test]
    fn gates_use_flag_syntax_of_controller() {
        let gates = |gates: &[&str]| args(None, gates).settings().map_err(|failure| failure.to_string());
        assert_eq!(
            gates(&["BestEffortResolution", "ClusterConstraints=false", "BundleReleaseSupport=true"]),
            Ok(Settings { best_effort: true, releases: true, ..Settings::default() })
        );
        assert!(
            gates(&["Other=true"])
                .unwrap_err()
                .contains("Other=true: no such gate affects the choice of a bundle")
        );
        assert!(gates(&["BestEffortResolution=on"]).unwrap_err().contains("neither true nor false"));
    }
}
