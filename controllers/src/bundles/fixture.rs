//! Bundles as if they had been pulled, for tests.

use std::path::Path;

use olm_oci::{Config, Limits};
use serde_json::{Value, json};

use super::*;

/// The files of bundle `demo.v<version>` with these manifests; a ClusterServiceVersion for all namespaces is among them.
pub(crate) fn files(version: &str, manifests: &[Value]) -> BTreeMap<String, Vec<u8>> {
    let csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": format!("demo.v{version}")},
        "spec": {"version": version, "installModes": [
            {"type": "AllNamespaces", "supported": true}, {"type": "MultiNamespace", "supported": true},
        ]},
    });
    let annotations = json!({"annotations": {"operators.operatorframework.io.bundle.package.v1": "demo"}});
    let mut files = Files::from([
        ("metadata/annotations.yaml".to_owned(), annotations.to_string().into_bytes()),
        ("manifests/csv.yaml".to_owned(), csv.to_string().into_bytes()),
    ]);
    for (number, manifest) in manifests.iter().enumerate() {
        files.insert(format!("manifests/{number}.yaml"), manifest.to_string().into_bytes());
    }
    files
}

/// The digest of an image with these files.
pub(crate) fn digest(files: &Files) -> String {
    use sha2::{Digest, Sha256};
    format!("sha256:{}", hex::encode(Sha256::digest(serde_json::to_vec(files).unwrap())))
}

/// The image with these files, on a registry that nobody serves.
pub(crate) fn image(files: &Files) -> String {
    format!("registry.invalid/demo@{}", digest(files))
}

/// Bundles below this directory.
pub(crate) fn open(directory: &Path) -> Bundles {
    Bundles::open(directory, Puller::new(Config::new(Limits::BUNDLE))).unwrap()
}

impl Bundles {
    /// Keeps the files as if they had been pulled.
    pub(crate) fn keep_pulled(&self, files: &Files) {
        self.images.write(&digest(files), files).unwrap();
    }
}
