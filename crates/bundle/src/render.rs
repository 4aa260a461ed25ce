//! Renders a bundle with the options of a ClusterExtension to plain objects
//! (docs/design/bundles.md#rendering-steps).
//!
//! Pure: the same input yields the same objects in the same order. Labels, tracking annotations and phases are
//! added to the revision later.

use serde_json::Value;

use crate::bundle::Bundle;
use crate::certificates::Certificates;
use crate::config::Configuration;
use crate::csv::{InstallMode, Webhook};
use crate::deployment_config::DeploymentConfig;
use crate::support::{self, Targets};
use crate::{deployments, limits, objects, rbac, validate, webhooks};

/// Inputs of rendering besides the bundle.
#[derive(Debug, Clone, Copy)]
pub struct RenderOptions<'a> {
    /// `spec.namespace` of the ClusterExtension.
    pub install_namespace: &'a str,
    /// `spec.config.inline` of the ClusterExtension, if set.
    pub config: Option<&'a Value>,
    /// Issuer of the certificates for webhooks.
    pub certificates: Certificates,
    /// Feature gate `SingleOwnNamespaceInstallSupport`: accepts bundles without AllNamespaces.
    pub single_own_namespace: bool,
    /// Feature gate `DeploymentConfig`: accepts `deploymentConfig` in the configuration.
    pub deployment_config: bool,
    /// Feature gate `MultiWatchNamespaces`: accepts the list `watchNamespaces` in the configuration if the bundle
    /// supports MultiNamespace (docs/design/additions.md#several-namespaces).
    pub multi_watch_namespaces: bool,
}

impl RenderOptions<'_> {
    /// Reports whether `watchNamespaces` is allowed for this bundle.
    pub(crate) fn takes_several_namespaces(&self, bundle: &Bundle) -> bool {
        self.multi_watch_namespaces && bundle.install_modes().contains(&InstallMode::MultiNamespace)
    }
}

/// Rendering error. Its text is shown to users.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The bundle needs an unsupported feature.
    #[error("unsupported bundle: {0}")]
    Unsupported(String),
    /// The configuration is invalid for the bundle.
    #[error("invalid ClusterExtension configuration: {0}")]
    Configuration(String),
    /// `deploymentConfig` matches the schema, but has an invalid value.
    #[error("invalid deploymentConfig: failed to unmarshal deploymentConfig: {0}")]
    DeploymentConfig(String),
    /// Faults reported by the validators.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
    /// The watched namespaces do not match the install modes.
    #[error("invalid option(s): {0}")]
    Targets(String),
    /// An object cannot be generated.
    #[error("{0}")]
    Generate(String),
}

impl RenderError {
    /// Reports whether only a change of the configuration in the ClusterExtension can fix the error. Then
    /// Progressing is False with reason `InvalidConfiguration`. Other errors are retried with reason `Retrying`.
    pub fn is_invalid_configuration(&self) -> bool {
        matches!(self, Self::Configuration(_) | Self::DeploymentConfig(_))
    }
}

/// Renders a bundle to its objects in normal form, in the order of docs/design/bundles.md#object-order.
///
/// # Errors
/// The first step that fails. See [`RenderError`].
pub fn render(bundle: &Bundle, options: &RenderOptions<'_>) -> Result<Vec<Value>, RenderError> {
    support::check(bundle, options)?;
    let modes = bundle.install_modes();
    let Configuration { watched, deployments } = Configuration::read(bundle, options)?;
    let targets = Targets::choose(&modes, watched);
    let faults = validate::faults(bundle);
    if !faults.is_empty() {
        return Err(RenderError::Invalid(faults.into_iter().map(|fault| fault.text).collect()));
    }
    support::check_targets(&targets, &modes, options)?;
    generate(bundle, options, &targets, deployments.as_ref())
}

fn generate(
    bundle: &Bundle,
    options: &RenderOptions<'_>,
    targets: &Targets,
    config: Option<&DeploymentConfig>,
) -> Result<Vec<Value>, RenderError> {
    limits::check_rendered(bundle, options, targets)?;
    let RenderOptions { install_namespace, certificates, .. } = *options;
    let webhook_surroundings = webhooks::Surroundings { install_namespace, targets, certificates };
    let deployment_surroundings =
        deployments::Surroundings { install_namespace, targets, certificates, config };
    let mut rendered = rbac::service_accounts(&bundle.csv, install_namespace);
    rendered.extend(rbac::roles(&bundle.csv, targets, install_namespace));
    rendered.extend(rbac::cluster_roles(&bundle.csv, targets, install_namespace));
    rendered.extend(webhooks::definitions(bundle, webhook_surroundings)?);
    rendered.extend(bundle.others.iter().map(|object| objects::placed(object, install_namespace)));
    rendered.extend(deployments::deployments(bundle, deployment_surroundings));
    rendered.extend(webhooks::configurations(bundle, Webhook::VALIDATING, webhook_surroundings));
    rendered.extend(webhooks::configurations(bundle, Webhook::MUTATING, webhook_surroundings));
    rendered.extend(webhooks::services(bundle, webhook_surroundings));
    rendered.extend(webhooks::certificate_objects(bundle, webhook_surroundings));
    Ok(rendered)
}
