//! Configuration of the cluster's operator-controller that affects its choices, so that a command predicts what that
//! controller will do.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::Api;
use olm_bundle::Certificates;
use olm_resolve::{DependencyMode, UpgradeScope};

use crate::error::{CliError, Code};
use crate::progress::say;
use crate::session::Session;
use crate::source::ClusterConnection;

/// Name of the Deployment in every install file (docs/design/operations.md#names-and-labels).
pub const DEPLOYMENT: &str = "operator-controller-controller-manager";
/// Gates that the controller has off by default. The CLI assumes them on if it cannot read the controller's
/// arguments.
const OFF: &str = "SingleOwnNamespaceInstallSupport=false,DeploymentConfig=false";

/// Arguments of the controller.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ControllerArgs {
    /// Values of `--feature-gates`.
    pub gates: Vec<String>,
    /// Value of `--dependency-mode`.
    pub dependency_mode: Option<DependencyMode>,
    /// Value of `--upgrade-scope`.
    pub upgrade_scope: Option<UpgradeScope>,
}

impl ControllerArgs {
    /// Reads the controller's arguments from its Deployment. If it cannot be read, prints a warning and assumes the
    /// most permissive gates.
    ///
    /// # Errors
    /// A signal arrived.
    pub async fn read(cluster: &ClusterConnection, session: &Session) -> Result<Self, CliError> {
        let namespace = cluster.namespace();
        let api: Api<Deployment> = Api::namespaced(cluster.client().clone(), namespace);
        let what = format!("Deployment {namespace}/{DEPLOYMENT}");
        let why = match cluster.call(&what, api.get_opt(DEPLOYMENT), session).await {
            Ok(Some(deployment)) => return Ok(Self::of_arguments(&arguments(deployment))),
            Ok(None) => format!("there is no {what}"),
            Err(failure @ CliError::Message(Code::Interrupted, _)) => return Err(failure),
            Err(failure) => failure.to_string(),
        };
        say(&format!(
            "warning: cannot read the flags of operator-controller: {why}; assuming its most permissive feature gates"
        ));
        Ok(Self::default())
    }

    /// Provider of webhook certificates: the first one with an enabled feature gate (docs/design/bundles.md#certificate-providers).
    pub fn certificates(&self) -> Certificates {
        if self.gates.is_empty() {
            return Certificates::Builtin;
        }
        let is_on = |gate: &str, default: bool| self.gate(gate).unwrap_or(default);
        if is_on("WebhookProviderCertManager", true) {
            Certificates::CertManager
        } else if is_on("WebhookProviderOpenshiftServiceCA", true) {
            Certificates::OpenshiftServiceCa
        } else if is_on("WebhookProviderBuiltin", false) {
            Certificates::Builtin
        } else {
            Certificates::None
        }
    }

    /// Reports whether a gate that is off by default is on. `true` if the arguments could not be read.
    pub fn is_on(&self, gate: &str) -> bool {
        self.gates.is_empty() || self.gate(gate) == Some(true)
    }

    /// Value of a gate in the arguments.
    fn gate(&self, gate: &str) -> Option<bool> {
        let mut pairs =
            self.gates.iter().flat_map(|gates| gates.split(',')).filter_map(|pair| pair.split_once('='));
        pairs.rfind(|(name, _)| name.trim() == gate).map(|(_, value)| value.trim() == "true")
    }

    fn of_arguments(arguments: &[String]) -> Self {
        let mut gates = vec![OFF.to_owned()];
        gates.extend(values(arguments, "--feature-gates").map(str::to_owned));
        let mode = values(arguments, "--dependency-mode").last();
        let scope = values(arguments, "--upgrade-scope").last();
        Self {
            gates,
            dependency_mode: mode.and_then(|mode| mode.parse().ok()),
            upgrade_scope: scope.and_then(|scope| scope.parse().ok()),
        }
    }
}

fn arguments(deployment: Deployment) -> Vec<String> {
    let spec = deployment.spec.and_then(|spec| spec.template.spec);
    let containers = spec.map(|spec| spec.containers).unwrap_or_default().into_iter();
    containers.flat_map(|one| [one.command, one.args]).flatten().flatten().collect()
}

/// Values of a flag, written as `--flag=value` or as `--flag value`.
fn values<'a>(arguments: &'a [String], flag: &'a str) -> impl Iterator<Item = &'a str> {
    let value = move |(index, argument): (usize, &'a String)| match argument.strip_prefix(flag)? {
        "" => arguments.get(index + 1).map(String::as_str),
        rest => rest.strip_prefix('='),
    };
    arguments.iter().enumerate().filter_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_arguments_are_parsed_in_both_flag_forms() {
        let of = |arguments: &[&str]| {
            ControllerArgs::of_arguments(&arguments.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
        };
        let controller = of(&[
            "--feature-gates=A=true,B=false",
            "--v=2",
            "--feature-gates",
            "C=true",
            "--dependency-mode=Check",
            "--upgrade-scope",
            "minor",
        ]);
        assert_eq!(controller.gates, [OFF, "A=true,B=false", "C=true"]);
        assert_eq!(controller.dependency_mode, Some(DependencyMode::Check));
        assert_eq!(controller.upgrade_scope, Some(UpgradeScope::Minor));
        assert_eq!(of(&["--dependency-mode=nonsense", "--feature-gates-file=x"]).gates, [OFF]);
        assert_eq!(of(&["--dependency-mode=nonsense"]).dependency_mode, None);
    }

    #[test]
    fn first_enabled_certificate_provider_is_used() {
        let [cert_manager, openshift, builtin] =
            ["CertManager", "OpenshiftServiceCA", "Builtin"].map(|name| format!("WebhookProvider{name}"));
        for (gates, expected) in [
            (String::new(), Certificates::CertManager),
            (format!("{builtin}=true"), Certificates::CertManager),
            (format!("{cert_manager}=false"), Certificates::OpenshiftServiceCa),
            (format!("{cert_manager}=false,{openshift}=false"), Certificates::None),
            (format!("{cert_manager}=false, {openshift}=false,{builtin}=true"), Certificates::Builtin),
        ] {
            let controller = ControllerArgs::of_arguments(&[format!("--feature-gates={gates}")]);
            assert_eq!(controller.certificates(), expected, "{gates}");
        }
        assert_eq!(ControllerArgs::default().certificates(), Certificates::Builtin);
    }
}
