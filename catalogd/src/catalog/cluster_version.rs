//! Kubernetes version of the cluster, for image templates (docs/design/catalogd.md#image-templates).

use std::time::Duration;

use kube::Client;
use olm_oci::KubernetesVersion;
use olm_runtime::cluster::{describe, within_deadline};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

/// Version that the API server reported last.
pub(super) struct ClusterVersion {
    client: Client,
    /// Age after which the version is read again.
    pub(super) interval: Duration,
    known: watch::Sender<Option<KubernetesVersion>>,
    /// Time of the last answer. Locked while a request runs, so that there is only one.
    read_at: Mutex<Option<Instant>>,
}

impl ClusterVersion {
    /// Sends no request.
    pub(super) fn new(client: Client, interval: Duration) -> Self {
        Self { client, interval, known: watch::Sender::default(), read_at: Mutex::default() }
    }

    /// Version that was read last. `None` before that, and if the API server reports none that can be parsed.
    pub(super) fn known(&self) -> Option<KubernetesVersion> {
        *self.known.borrow()
    }

    /// Receiver that is notified of changes.
    pub(super) fn changes(&self) -> watch::Receiver<Option<KubernetesVersion>> {
        self.known.subscribe()
    }

    /// Reads the version unless it was read within `max_age`. A failure keeps the last one.
    pub(super) async fn read(&self, max_age: Duration) {
        let mut read_at = self.read_at.lock().await;
        if read_at.is_some_and(|at| at.elapsed() < max_age) {
            return;
        }
        let version = match within_deadline(self.client.apiserver_version()).await {
            Ok(server) => {
                let version = KubernetesVersion::of_git_version(&server.git_version);
                if let Err(error) = version {
                    tracing::warn!(%error, "API server reports version {:?}", server.git_version);
                }
                version.ok()
            }
            Err(error) => {
                tracing::warn!(error = describe(&error), "failed to read the version of the cluster");
                return;
            }
        };
        *read_at = Some(Instant::now());
        let is_changed = self.known.send_if_modified(|known| std::mem::replace(known, version) != version);
        if is_changed && let Some(version) = version {
            tracing::info!(%version, "version of the cluster for image templates");
        }
    }
}
