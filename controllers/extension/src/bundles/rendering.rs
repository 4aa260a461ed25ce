//! Renders the files of a bundle to objects. Pure, and the only code in this server that parses bundles.

use olm_bundle::{BundleContent, RenderError, RenderOptions};
use olm_controller_core::install_error::{InstallError, InstallErrorClass};
use olm_oci::CanonicalRef;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Files;
use crate::features::Features;

/// Render options of an extension.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RenderRequest {
    /// Install namespace.
    pub namespace: String,
    /// Namespace of OLM.
    pub system_namespace: String,
    /// Value of `spec.config.inline`.
    pub config: Option<Value>,
    /// Feature gates.
    pub features: Features,
    /// `true` to add an OperatorCondition.
    pub operator_condition: bool,
    /// `true` to add roles for the users of the APIs.
    pub aggregate_api_roles: bool,
    /// Namespaces that the extension selects by label.
    pub namespaces: Option<Vec<String>>,
}

/// Rendered bundle with everything that is needed after rendering.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rendered {
    /// Objects in render order.
    pub objects: Vec<Value>,
    /// Value of the annotation `olm.properties`.
    pub properties: Option<String>,
    /// Maximum OpenShift version, if the properties spell it differently.
    pub max_openshift_version: Option<String>,
    /// Failed install checks. Empty if the objects can be applied.
    pub failed_checks: Vec<String>,
    /// Parts of the configuration that have no effect.
    pub warnings: Vec<String>,
    /// Digest of the plan (docs/design/approvals.md#approval).
    pub plan: String,
    /// Requested image.
    #[serde(skip)]
    pub image: Option<CanonicalRef>,
}

impl RenderRequest {
    /// Returns the key of a rendering, a hash of content, options and build.
    pub(super) fn key(&self, digest: &str, build_identity: &str) -> String {
        hex::encode(Sha256::digest(format!(
            "{:?}",
            (digest, build_identity, &self.system_namespace, self.options())
        )))
    }

    fn options(&self) -> RenderOptions<'_> {
        RenderOptions {
            install_namespace: &self.namespace,
            config: self.config.as_ref(),
            certificates: self.features.certificates,
            single_own_namespace: self.features.single_own_namespace,
            deployment_config: self.features.deployment_config,
            multi_watch_namespaces: self.features.multi_watch_namespaces,
            owned_api_services: self.features.owned_api_services,
            selected_namespaces: self.namespaces.as_deref(),
            operator_condition: self.operator_condition,
            aggregate_api_roles: self.aggregate_api_roles,
        }
    }
}

/// Parses and renders a bundle. `digest` is that of its image. CPU-bound.
pub(super) fn render(files: &Files, digest: &str, request: &RenderRequest) -> Result<Rendered, InstallError> {
    let failed = |error: RenderError| {
        let is_invalid = error.is_invalid_configuration();
        let class =
            if is_invalid { InstallErrorClass::InvalidConfiguration } else { InstallErrorClass::Retry };
        InstallError::new(class, error)
    };
    let (bundle, options) = (BundleContent::load(files).map_err(InstallError::retry)?, request.options());
    let objects = olm_bundle::render(&bundle, &options).map_err(failed)?;
    let config = request.config.as_ref();
    Ok(Rendered {
        failed_checks: olm_bundle::install_checks(
            &bundle,
            &objects,
            &request.namespace,
            &request.system_namespace,
        ),
        warnings: config.map(|config| olm_bundle::config_warnings(&bundle, config)).unwrap_or_default(),
        properties: bundle.properties().map(str::to_owned),
        max_openshift_version: bundle.max_openshift_version().map(str::to_owned),
        plan: olm_plan::digest(&bundle, &options, &objects, digest).map_err(failed)?,
        objects,
        image: None,
    })
}
