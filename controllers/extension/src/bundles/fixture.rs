//! Bundles without a pull, and a registry that hangs, for tests.

use std::net::SocketAddr;
use std::path::Path;

use olm_control_plane::PATIENCE;
use olm_oci::policy::PolicySource;
use olm_oci::{Config, ImageLimits};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use super::*;

/// Returns the files of bundle `demo.v<version>` with these manifests and a ClusterServiceVersion for all namespaces.
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

/// Returns the same files, with a deployment in the ClusterServiceVersion.
pub(crate) fn with_operator(mut files: BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    let csv = files.get_mut("manifests/csv.yaml").unwrap();
    let mut object: Value = serde_json::from_slice(csv).unwrap();
    let labels = json!({"app": "operator"});
    let container = json!({"name": "manager", "image": "r.example/operator"});
    let spec = json!({"selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}});
    object["spec"]["install"] = json!({"strategy": "deployment",
        "spec": {"deployments": [{"name": "operator", "spec": spec}]}});
    *csv = object.to_string().into_bytes();
    files
}

/// Returns the digest of an image with these files.
pub(crate) fn digest(files: &Files) -> String {
    use sha2::{Digest, Sha256};
    format!("sha256:{}", hex::encode(Sha256::digest(serde_json::to_vec(files).unwrap())))
}

/// Returns a reference to the image with these files, on a registry that does not exist.
pub(crate) fn image(files: &Files) -> String {
    format!("registry.invalid/demo@{}", digest(files))
}

/// Opens bundles below this directory, under the signature policy there. The CAs in its folder `cas` are trusted.
pub(crate) fn open(directory: &Path) -> Bundles {
    let policy = PolicySource::new(None, vec![directory.to_owned()], false);
    let cas_dir = Some(directory.join("cas")).filter(|folder| folder.exists());
    let puller = Puller::new(Config { policy, cas_dir, ..Config::new(ImageLimits::BUNDLE) });
    Bundles::open(directory, puller, &CancellationToken::new()).unwrap()
}

/// A registry that accepts connections and never answers.
pub(crate) struct HangingRegistry {
    address: SocketAddr,
    /// Number of open connections.
    pub(crate) connections: watch::Receiver<usize>,
}

impl HangingRegistry {
    pub(crate) async fn start() -> Self {
        // A second installation fails, and the first one works as well.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (count, connections) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                count.send_modify(|count| *count += 1);
                let count = count.clone();
                tokio::spawn(async move {
                    while connection.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
                    count.send_modify(|count| *count -= 1);
                });
            }
        });
        Self { address, connections }
    }

    /// Returns an image reference by digest.
    pub(crate) fn image(&self, repository: &str) -> String {
        format!("{}/{repository}@sha256:{}", self.address, "0".repeat(64))
    }

    /// Returns an image reference by tag.
    pub(crate) fn tagged(&self, repository: &str) -> String {
        format!("{}/{repository}:v1", self.address)
    }

    /// Waits until there are this many connections.
    pub(crate) async fn until_connections(&self, expected: usize) {
        let mut connections = self.connections.clone();
        let reached = timeout(PATIENCE, connections.wait_for(|count| *count == expected)).await;
        reached.unwrap_or_else(|_| panic!("there are not {expected} connections")).unwrap();
    }
}

impl Bundles {
    /// Stores the files as if they had been pulled.
    pub(crate) fn store_pulled(&self, files: &Files) {
        self.images.write(&digest(files), files).unwrap();
    }
}
