//! Renders a bundle with the options of a ClusterExtension to plain objects
//! (docs/design/bundles.md#rendering-steps).
//!
//! Pure: the same input yields the same objects in the same order. Labels, tracking annotations and phases are
//! added to the revision later.

use serde_json::Value;

use crate::bundle::BundleContent;
use crate::config::Configuration;
use crate::csv::{Deployment, Webhook};
use crate::error::RenderError;
use crate::install_modes::{RenderContext, Targets, check_supported, check_targets};
use crate::options::RenderOptions;
use crate::{
    api_roles, api_services, deployments, limits, objects, operator_condition, rbac, validate, webhooks,
};

/// Maximum size of repeated content in the rendered objects.
const REPEATED_BYTES: usize = 64 << 20;
/// Size of a Role and a RoleBinding without rules.
const PERMISSION_BYTES: usize = 512;

/// Renders a bundle to its objects in normal form, in the order of docs/design/bundles.md#object-order.
///
/// # Errors
/// The first step that fails. See [`RenderError`].
pub fn render(bundle: &BundleContent, options: &RenderOptions<'_>) -> Result<Vec<Value>, RenderError> {
    check_supported(bundle, options)?;
    let modes = bundle.install_modes();
    let Configuration { watched, deployments: config } = Configuration::read(bundle, options)?;
    let targets = Targets::choose(&modes, watched);
    let faults = validate::validate(bundle);
    if !faults.is_empty() {
        return Err(RenderError::Invalid(faults.into_iter().map(|fault| fault.text).collect()));
    }
    check_targets(&targets, &modes, options)?;
    check_size(bundle, options, &targets)?;
    let RenderOptions { install_namespace, certificates, operator_condition, .. } = *options;
    let context = RenderContext {
        install_namespace,
        targets: &targets,
        certificates,
        deployment_config: config.as_ref(),
        operator_condition,
    };
    let mut rendered = rbac::service_accounts(&bundle.csv, install_namespace);
    rendered.extend(rbac::roles(&bundle.csv, &targets, install_namespace));
    rendered.extend(rbac::cluster_roles(&bundle.csv, &targets, install_namespace));
    if operator_condition {
        rendered.extend(operator_condition::objects(&bundle.csv, install_namespace));
    }
    if options.aggregate_api_roles {
        rendered.extend(api_roles::roles(&bundle.crds, &bundle.csv.spec.api_services.owned));
    }
    rendered.extend(webhooks::crds(bundle, context)?);
    rendered.extend(bundle.others.iter().map(|object| objects::placed(object, install_namespace)));
    rendered.extend(deployments::deployments(bundle, context));
    rendered.extend(webhooks::configurations(bundle, Webhook::VALIDATING, context));
    rendered.extend(webhooks::configurations(bundle, Webhook::MUTATING, context));
    rendered.extend(webhooks::services(bundle, context));
    rendered.extend(webhooks::certificate_objects(bundle, context));
    rendered.extend(api_services::objects(bundle, context));
    Ok(rendered)
}

/// Checks the size of content that rendering repeats: annotations per deployment, configuration per container,
/// permissions per namespace, and names of CRDs per role.
///
/// # Errors
/// [`RenderError::Generate`].
fn check_size(
    bundle: &BundleContent,
    options: &RenderOptions<'_>,
    targets: &Targets,
) -> Result<(), RenderError> {
    let strategy = &bundle.csv.spec.install.spec;
    let deployments = bundle.csv.deployments();
    let annotations: usize = bundle.annotations().iter().map(|(key, value)| key.len() + value.len()).sum();
    let config = options.config.map_or(0, limits::size);
    let containers: usize = deployments.iter().map(Deployment::containers).sum();
    let namespaces = match targets {
        Targets::All => 1,
        Targets::Namespaces(names) => names.len(),
    };
    let permissions = strategy.permissions.iter().flat_map(|permission| permission.rules.iter().flatten());
    let permissions =
        strategy.permissions.len() * PERMISSION_BYTES + permissions.map(limits::size).sum::<usize>();
    let crds = bundle.csv.spec.webhooks.len() + bundle.csv.spec.api_services.owned.len();
    let roles = match options.aggregate_api_roles {
        true => api_roles::size(&bundle.crds, &bundle.csv.spec.api_services.owned),
        false => 0,
    };
    let repeated = [
        deployments.len().saturating_mul(annotations),
        config.saturating_mul(deployments.len() + containers + crds),
        permissions.saturating_mul(namespaces),
        roles,
    ];
    if repeated.into_iter().fold(0, usize::saturating_add) <= REPEATED_BYTES {
        return Ok(());
    }
    Err(RenderError::Generate(format!(
        "the rendered objects would be too large: annotations in every deployment, configuration in every container, \
         permissions for every namespace and roles for every API version may have {REPEATED_BYTES} bytes"
    )))
}
