//! Checks for unsupported features and of the watched namespaces (docs/design/bundles.md#unsupported-bundles,
//! docs/design/bundles.md#install-modes).

use std::collections::BTreeSet;

use crate::bundle::BundleContent;
use crate::certificates::Certificates;
use crate::csv::InstallMode;
use crate::deployment_config::DeploymentConfig;
use crate::error::{RenderError, UNSUPPORTED};
use crate::options::RenderOptions;

const NO_API_SERVICES: &str = "apiServiceDefintions are not supported";
const NO_CERTIFICATES: &str = "apiServiceDefinitions are not supported without a certificate provider";
const NO_WEBHOOKS: &str = "webhookDefinitions are not supported";
const NOT_ALL_NAMESPACES: &str = "bundle does not support AllNamespaces install mode";
const NO_USABLE_MODE: &str =
    "bundle must support at least one of [AllNamespaces SingleNamespace OwnNamespace] install modes";

/// Feature gates of operator-controller, and settings, with which a refused bundle can be installed.
const REMEDIES: [(&str, &str); 5] = [
    (NO_API_SERVICES, "enable feature gate OwnedAPIServices of operator-controller"),
    (
        NO_CERTIFICATES,
        "enable feature gate WebhookProviderBuiltin of operator-controller, or another WebhookProvider",
    ),
    (
        NO_WEBHOOKS,
        "enable feature gate WebhookProviderBuiltin of operator-controller, or another WebhookProvider",
    ),
    (
        NOT_ALL_NAMESPACES,
        "enable feature gate SingleOwnNamespaceInstallSupport of operator-controller and set \
         spec.config.inline.watchNamespace, or gate MultiWatchNamespaces and watchNamespaces, as far as the bundle supports \
         them: `olm config explain` lists its install modes",
    ),
    (
        NO_USABLE_MODE,
        "enable feature gate MultiWatchNamespaces of operator-controller and set spec.config.inline.watchNamespaces",
    ),
];

/// Feature gate and setting for a bundle of which this message says that it is unsupported.
pub fn unsupported_remedy(message: &str) -> Option<&'static str> {
    let (_, refusal) = message.split_once(UNSUPPORTED)?;
    REMEDIES.iter().find(|(reason, _)| refusal.starts_with(reason)).map(|(_, remedy)| *remedy)
}

/// Refuses bundles that need unsupported features.
pub(crate) fn check_supported(
    bundle: &BundleContent,
    options: &RenderOptions<'_>,
) -> Result<(), RenderError> {
    let refused = |reason: &str| Err(RenderError::Unsupported(reason.to_string()));
    if bundle.has_api_services() {
        if !options.owned_api_services {
            return refused(NO_API_SERVICES);
        }
        if options.certificates == Certificates::None {
            return refused(NO_CERTIFICATES);
        }
    }
    if bundle.has_webhooks() && options.certificates == Certificates::None {
        return refused(NO_WEBHOOKS);
    }
    if options.takes_several_namespaces(bundle) {
        return Ok(());
    }
    let modes = bundle.install_modes();
    if !options.single_own_namespace && !modes.contains(&InstallMode::AllNamespaces) {
        return refused(NOT_ALL_NAMESPACES);
    }
    let usable = [InstallMode::AllNamespaces, InstallMode::SingleNamespace, InstallMode::OwnNamespace];
    if !usable.iter().any(|mode| modes.contains(mode)) {
        return refused(NO_USABLE_MODE);
    }
    Ok(())
}

/// Watched namespaces of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Targets {
    /// All namespaces of the cluster.
    All,
    /// These namespaces. Empty if a required selection is missing.
    Namespaces(Vec<String>),
}

impl Targets {
    /// Namespaces of the configuration, or the default of the bundle.
    pub(crate) fn choose(modes: &BTreeSet<InstallMode>, watched: Option<Vec<String>>) -> Self {
        match watched {
            Some(namespaces) => Self::Namespaces(namespaces),
            None if modes.contains(&InstallMode::AllNamespaces) => Self::All,
            None => Self::Namespaces(Vec::new()),
        }
    }

    /// Names of the namespaces. Empty for all namespaces.
    pub(crate) fn joined(&self, separator: &str) -> String {
        match self {
            Self::All => String::new(),
            Self::Namespaces(names) => names.join(separator),
        }
    }
}

/// Inputs of generated objects besides the bundle.
#[derive(Clone, Copy)]
pub(crate) struct RenderContext<'a> {
    pub(crate) install_namespace: &'a str,
    pub(crate) targets: &'a Targets,
    pub(crate) certificates: Certificates,
    pub(crate) deployment_config: Option<&'a DeploymentConfig>,
    pub(crate) operator_condition: bool,
}

/// Checks the watched namespaces against the install modes (docs/design/bundles.md#target-check).
pub(crate) fn check_targets(
    targets: &Targets,
    modes: &BTreeSet<InstallMode>,
    options: &RenderOptions<'_>,
) -> Result<(), RenderError> {
    let supports = |mode| modes.contains(&mode);
    let supported = format!("supported install modes {}", InstallMode::list(modes));
    let problem = match targets {
        Targets::All if supports(InstallMode::AllNamespaces) => return Ok(()),
        Targets::All => format!("{supported} do not support targeting all namespaces"),
        Targets::Namespaces(names) => match names.as_slice() {
            [] if supports(InstallMode::MultiNamespace) => {
                "at least one target namespace must be specified".to_string()
            }
            [] => "exactly one target namespace must be specified".to_string(),
            [own] if own == options.install_namespace => {
                if supports(InstallMode::OwnNamespace) {
                    return Ok(());
                }
                format!("{supported} do not support targeting own namespace")
            }
            [_] if supports(InstallMode::SingleNamespace) => return Ok(()),
            // A list of one namespace is allowed, too.
            [_, ..] if options.multi_watch_namespaces && supports(InstallMode::MultiNamespace) => {
                return Ok(());
            }
            [_, _, ..] if supports(InstallMode::MultiNamespace) => return Ok(()),
            names => format!("{supported} do not support target namespaces [{}]", names.join(" ")),
        },
    };
    let shown = targets.joined(" ");
    Err(RenderError::Targets(format!("invalid target namespaces [{shown}]: {problem}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use InstallMode::{AllNamespaces, MultiNamespace, OwnNamespace, SingleNamespace};

    fn checked(targets: &[&str], modes: &[InstallMode]) -> String {
        let targets = match targets {
            [""] => Targets::All,
            names => Targets::Namespaces(names.iter().map(ToString::to_string).collect()),
        };
        let modes = modes.iter().copied().collect();
        let options =
            RenderOptions { install_namespace: "ns", single_own_namespace: true, ..Default::default() };
        check_targets(&targets, &modes, &options).map_or_else(|error| error.to_string(), |()| "ok".into())
    }

    #[test]
    fn target_namespaces_must_match_install_modes() {
        let prefix = "invalid option(s): invalid target namespaces";
        let rows: [(&[&str], &[InstallMode], String); 9] = [
            (&[""], &[AllNamespaces], "ok".into()),
            (&["ns"], &[OwnNamespace], "ok".into()),
            (&["zz"], &[SingleNamespace], "ok".into()),
            (
                &[""],
                &[SingleNamespace, OwnNamespace],
                format!(
                    "{prefix} []: supported install modes [OwnNamespace SingleNamespace] do not support targeting all namespaces"
                ),
            ),
            (
                &["ns"],
                &[SingleNamespace],
                format!(
                    "{prefix} [ns]: supported install modes [SingleNamespace] do not support targeting own namespace"
                ),
            ),
            (
                &["zz"],
                &[OwnNamespace],
                format!(
                    "{prefix} [zz]: supported install modes [OwnNamespace] do not support target namespaces [zz]"
                ),
            ),
            (
                &["a", "b"],
                &[SingleNamespace],
                format!(
                    "{prefix} [a b]: supported install modes [SingleNamespace] do not support target namespaces [a b]"
                ),
            ),
            (&[], &[OwnNamespace], format!("{prefix} []: exactly one target namespace must be specified")),
            (&[], &[MultiNamespace], format!("{prefix} []: at least one target namespace must be specified")),
        ];
        for (targets, modes, expected) in rows {
            assert_eq!(checked(targets, modes), expected);
        }
    }
}
