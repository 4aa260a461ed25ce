//! Builder of registry+v1 bundles and their images.

use std::collections::BTreeMap;

use anyhow::Result;
use olm_image::Image;
use serde_json::{Value, json};

/// Bundle for all namespaces. Its objects are named after the package, so that packages do not collide.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Name of the package.
    pub package: String,
    /// Version of the bundle.
    pub version: String,
    deployments: Vec<Value>,
    permissions: Vec<Value>,
    owned: Vec<Value>,
    manifests: BTreeMap<String, Value>,
}

impl Bundle {
    /// Creates a bundle without objects.
    #[must_use]
    pub fn new(package: &str, version: &str) -> Self {
        Self {
            package: package.to_owned(),
            version: version.to_owned(),
            deployments: Vec::new(),
            permissions: Vec::new(),
            owned: Vec::new(),
            manifests: BTreeMap::new(),
        }
    }

    /// Creates a bundle with a CRD `Widget`, a ConfigMap, a Service, a Deployment, and a ServiceAccount with its
    /// ClusterRole and binding. ConfigMap and Deployment contain the version.
    #[must_use]
    pub fn sample(package: &str, version: &str) -> Self {
        Self::new(package, version)
            .crd("Widget", &["size"])
            .config_map(&format!("{package}-settings"), &[("version", version)])
            .service(package)
            .deployment(package, &format!("registry.example/{package}:{version}"))
    }

    /// Name of the bundle.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}.v{}", self.package, self.version)
    }

    /// API group of the bundle's CRDs.
    #[must_use]
    pub fn group(&self) -> String {
        format!("{}.servers.example", self.package)
    }

    /// Adds a namespaced CRD of [`Bundle::group`], version `v1`, whose `spec` has these text fields. The plural is
    /// the kind in lower case with an `s`.
    #[must_use]
    pub fn crd(mut self, kind: &str, fields: &[&str]) -> Self {
        let group = self.group();
        let singular = kind.to_lowercase();
        let name = format!("{singular}s.{group}");
        let fields: BTreeMap<&str, Value> =
            fields.iter().map(|field| (*field, json!({"type": "string"}))).collect();
        let spec = json!({"type": "object", "properties": fields});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        self.owned.push(json!({"name": name, "kind": kind, "version": "v1"}));
        self.manifest(&format!("{singular}.crd.yaml"), json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": format!("{singular}s"),
                    "singular": singular},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            },
        }))
    }

    /// Adds a ConfigMap.
    #[must_use]
    pub fn config_map(self, name: &str, data: &[(&str, &str)]) -> Self {
        let data: BTreeMap<&str, &str> = data.iter().copied().collect();
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        self.manifest(&format!("{name}.configmap.yaml"), object)
    }

    /// Adds a Service on port 443.
    #[must_use]
    pub fn service(self, name: &str) -> Self {
        let spec = json!({"selector": {"app": name}, "ports": [{"name": "https", "port": 443}]});
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
        self.manifest(&format!("{name}.service.yaml"), object)
    }

    /// Adds a Deployment with one replica and a ServiceAccount of the same name, which may read the bundle's custom
    /// resources.
    #[must_use]
    pub fn deployment(mut self, name: &str, image: &str) -> Self {
        let rule =
            json!({"apiGroups": [self.group()], "resources": ["*"], "verbs": ["get", "list", "watch"]});
        self.permissions.push(json!({"serviceAccountName": name, "rules": [rule]}));
        let container = json!({"name": "operator", "image": image});
        self.deployments.push(json!({"name": name, "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"serviceAccountName": name, "containers": [container]},
            },
        }}));
        self
    }

    /// Adds any other object as a file with this name.
    #[must_use]
    pub fn manifest(mut self, file: &str, object: Value) -> Self {
        self.manifests.insert(file.to_owned(), object);
        self
    }

    /// Files of the bundle, by path.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let annotation = |name: &str| format!("operators.operatorframework.io.bundle.{name}.v1");
        let annotations = json!({"annotations": {
            annotation("mediatype"): "registry+v1",
            annotation("manifests"): "manifests/",
            annotation("metadata"): "metadata/",
            annotation("package"): self.package,
            annotation("channels"): "stable",
        }});
        // JSON is valid YAML.
        let mut files = BTreeMap::from([
            ("metadata/annotations.yaml".to_owned(), annotations.to_string().into_bytes()),
            ("manifests/operator.clusterserviceversion.yaml".to_owned(), self.csv().to_string().into_bytes()),
        ]);
        files.extend(self.manifests.iter().map(|(file, object)| {
            let text = object.to_string().into_bytes();
            (format!("manifests/{file}"), text)
        }));
        files
    }

    /// Builds the image of the bundle.
    ///
    /// # Errors
    /// The name of a manifest's file leaves the folder.
    pub fn image(&self) -> Result<Image> {
        Ok(Image::bundle(&self.files())?)
    }

    fn csv(&self) -> Value {
        let modes: Vec<Value> = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"]
            .map(|mode| json!({"type": mode, "supported": mode == "AllNamespaces"}))
            .to_vec();
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": self.name()},
            "spec": {
                "displayName": self.package, "version": self.version, "installModes": modes,
                "customresourcedefinitions": {"owned": self.owned},
                "install": {"strategy": "deployment", "spec": {
                    "deployments": self.deployments, "clusterPermissions": self.permissions}},
            },
        })
    }
}
