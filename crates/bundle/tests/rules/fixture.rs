//! Bundles built from short YAML.

use std::collections::BTreeMap;

use olm_bundle::{BundleContent, BundleLoadError, Certificates, RenderError, RenderOptions, render};
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "install-ns";

const ANNOTATIONS: &str = "annotations: {operators.operatorframework.io.bundle.package.v1: op}";

/// Files of a bundle and its render options. Defaults: all namespaces, cert-manager, all gates but
/// `MultiWatchNamespaces` and `OwnedAPIServices`.
#[derive(Clone)]
pub(crate) struct Fixture {
    files: BTreeMap<String, Vec<u8>>,
    pub(crate) config: Option<Value>,
    pub(crate) certificates: Certificates,
    pub(crate) single_own_namespace: bool,
    pub(crate) deployment_config: bool,
    pub(crate) multi_watch_namespaces: bool,
    pub(crate) owned_api_services: bool,
    pub(crate) selected_namespaces: Option<Vec<String>>,
    pub(crate) install_namespace: String,
}

impl Fixture {
    /// Bundle whose ClusterServiceVersion `op.v1` has this spec in YAML. Without `installModes` it supports all
    /// namespaces.
    pub(crate) fn new(spec: &str) -> Self {
        let mut spec = olm_yaml::from_slice(spec.as_bytes()).unwrap();
        if spec.is_null() {
            spec = json!({});
        }
        if spec.get("installModes").is_none() {
            spec["installModes"] = json!([{"type": "AllNamespaces", "supported": true}]);
        }
        let csv = json!({"kind": "ClusterServiceVersion", "metadata": {"name": "op.v1"}, "spec": spec});
        Self {
            files: BTreeMap::new(),
            config: None,
            certificates: Certificates::CertManager,
            single_own_namespace: true,
            deployment_config: true,
            multi_watch_namespaces: false,
            owned_api_services: false,
            selected_namespaces: None,
            install_namespace: NAMESPACE.into(),
        }
        .file("metadata/annotations.yaml", ANNOTATIONS)
        .file("manifests/csv.yaml", &csv.to_string())
    }

    /// Bundle with an empty spec except for these install modes.
    pub(crate) fn with_modes(modes: &[&str]) -> Self {
        let entries: Vec<Value> = modes.iter().map(|mode| json!({"type": mode, "supported": true})).collect();
        Self::new(&json!({"installModes": entries}).to_string())
    }

    pub(crate) fn file(mut self, path: &str, content: &str) -> Self {
        self.files.insert(path.into(), content.as_bytes().to_vec());
        self
    }

    pub(crate) fn without(mut self, path: &str) -> Self {
        self.files.remove(path);
        self
    }

    /// Modifies the ClusterServiceVersion.
    pub(crate) fn csv(self, change: impl FnOnce(&mut Value)) -> Self {
        let mut csv = serde_json::from_slice(&self.files["manifests/csv.yaml"]).unwrap();
        change(&mut csv);
        self.file("manifests/csv.yaml", &csv.to_string())
    }

    pub(crate) fn config(mut self, config: Value) -> Self {
        self.config = Some(config);
        self
    }

    pub(crate) fn load(&self) -> Result<BundleContent, BundleLoadError> {
        BundleContent::load(&self.files)
    }

    pub(crate) fn render(&self) -> Result<Vec<Value>, RenderError> {
        let options = RenderOptions {
            install_namespace: &self.install_namespace,
            config: self.config.as_ref(),
            certificates: self.certificates,
            single_own_namespace: self.single_own_namespace,
            deployment_config: self.deployment_config,
            multi_watch_namespaces: self.multi_watch_namespaces,
            owned_api_services: self.owned_api_services,
            selected_namespaces: self.selected_namespaces.as_deref(),
            operator_condition: false,
            aggregate_api_roles: false,
        };
        render(&self.load().unwrap(), &options)
    }

    /// Rendered objects of one kind.
    pub(crate) fn rendered(&self, kind: &str) -> Vec<Value> {
        let objects = self.render().unwrap();
        objects.into_iter().filter(|object| object["kind"] == kind).collect()
    }

    pub(crate) fn load_error(&self) -> String {
        self.load().unwrap_err().to_string()
    }

    pub(crate) fn render_error(&self) -> String {
        self.render().unwrap_err().to_string()
    }
}
