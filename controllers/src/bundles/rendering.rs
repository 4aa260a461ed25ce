//! From the files of a bundle to its objects. Pure, and the only place in this server where bundles are parsed.

use olm_bundle::{Bundle, RenderOptions};
use olm_oci::CanonicalRef;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Files;
use crate::failure::{Class, Failure};
use crate::gates::Features;

/// What an extension wants of its bundle.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wishes {
    /// Where it is installed.
    pub namespace: String,
    /// `spec.config.inline`.
    pub config: Option<Value>,
    /// Feature gates.
    pub features: Features,
}

/// All that is asked of a bundle after it was rendered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rendered {
    /// The objects in render order.
    pub objects: Vec<Value>,
    /// Value of the annotation `olm.properties`.
    pub properties: Option<String>,
    /// The maximum OpenShift version where the properties spell it in another way.
    pub max_openshift_version: Option<String>,
    /// Why the objects could not be applied, or must not be; empty where they can.
    pub obstacles: Vec<String>,
    /// What the configuration holds to no effect.
    pub warnings: Vec<String>,
    /// The image that was asked for.
    #[serde(skip)]
    pub image: Option<CanonicalRef>,
}

impl Wishes {
    /// What a rendering is kept under: equal for equal content, wishes and program, and for nothing else.
    pub(super) fn key(&self, digest: &str, program: &str) -> String {
        let Features {
            single_own_namespace,
            deployment_config,
            multi_watch_namespaces,
            certificates,
            releases: _,
            best_effort: _,
            cluster_constraints: _,
            impersonation: _,
        } = self.features;
        let gates = [single_own_namespace, deployment_config, multi_watch_namespaces];
        let certificates = format!("{certificates:?}");
        let all = json!([digest, program, self.namespace, self.config, gates, certificates]);
        hex::encode(Sha256::digest(all.to_string()))
    }

    fn options(&self) -> RenderOptions<'_> {
        RenderOptions {
            install_namespace: &self.namespace,
            config: self.config.as_ref(),
            certificates: self.features.certificates,
            single_own_namespace: self.features.single_own_namespace,
            deployment_config: self.features.deployment_config,
            multi_watch_namespaces: self.features.multi_watch_namespaces,
        }
    }
}

/// Parses and renders. Takes CPU time.
pub(super) fn render(files: &Files, wishes: &Wishes) -> Result<Rendered, Failure> {
    let bundle = Bundle::load(files).map_err(Failure::retry)?;
    let objects = olm_bundle::render(&bundle, &wishes.options()).map_err(|error| {
        let invalid = error.is_invalid_configuration();
        let failure = Failure::retry(error);
        if invalid { Failure { class: Class::InvalidConfiguration, ..failure } } else { failure }
    })?;
    let config = wishes.config.as_ref();
    Ok(Rendered {
        obstacles: olm_bundle::obstacles(&bundle, &objects, &wishes.namespace),
        warnings: config.map(|config| olm_bundle::config_warnings(&bundle, config)).unwrap_or_default(),
        properties: bundle.properties().map(str::to_owned),
        max_openshift_version: bundle.max_openshift_version().map(str::to_owned),
        objects,
        image: None,
    })
}
