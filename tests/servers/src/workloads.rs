//! Simulates pods: Deployments become available, unless their image is marked as broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

/// Image references that contain this text never become available.
const BROKEN: &str = "broken";

/// Writes the status of every Deployment as a cluster with nodes does. Stopped on drop.
pub struct Workloads {
    task: JoinHandle<()>,
    is_held: Arc<AtomicBool>,
}

impl Workloads {
    /// Starts the simulation. A Deployment whose image contains `broken` remains unavailable.
    #[must_use]
    pub fn start(client: Client) -> Self {
        let is_held = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(follow(client, Arc::clone(&is_held)));
        Self { task, is_held }
    }

    /// Suspends all writes until [`Workloads::release`].
    pub fn hold(&self) {
        self.is_held.store(true, Ordering::Relaxed);
    }

    /// Resumes writes after [`Workloads::hold`]. A Deployment that changed in the meantime is updated only at its
    /// next change.
    pub fn release(&self) {
        self.is_held.store(false, Ordering::Relaxed);
    }
}

impl Drop for Workloads {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(client: Client, is_held: Arc<AtomicBool>) {
    let watch = watcher(Api::<Deployment>::all(client.clone()), watcher::Config::default());
    let changes = watch.default_backoff().applied_objects().into_stream();
    changes
        .for_each(|deployment| {
            let (client, is_held) = (client.clone(), Arc::clone(&is_held));
            async move {
                if let Ok(deployment) = deployment
                    && !is_held.load(Ordering::Relaxed)
                {
                    // A failed write is repeated at the next change of the Deployment or the next list.
                    let _ = report(client, &deployment).await;
                }
            }
        })
        .await;
}

async fn report(client: Client, deployment: &Deployment) -> kube::Result<()> {
    let spec = deployment.spec.as_ref();
    let containers = spec.and_then(|spec| spec.template.spec.as_ref()).map(|pod| pod.containers.as_slice());
    let images = containers.unwrap_or_default().iter().filter_map(|container| container.image.as_deref());
    let works = !images.into_iter().any(|image| image.contains(BROKEN));
    let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    let available = if works { replicas } else { 0 };
    let status = json!({
        "observedGeneration": deployment.metadata.generation,
        "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": available,
        "availableReplicas": available, "unavailableReplicas": replicas - available,
        "conditions": [{"type": "Available", "status": if works { "True" } else { "False" },
            "reason": "Test", "message": ""}],
    });
    let current = deployment.status.as_ref();
    let is_said = current.is_some_and(|status| {
        status.observed_generation == deployment.metadata.generation
            && status.replicas.unwrap_or_default() == replicas
            && status.available_replicas.unwrap_or_default() == available
    });
    if is_said {
        return Ok(());
    }
    let api: Api<Deployment> = Api::namespaced(client, &deployment.namespace().unwrap_or_default());
    let patch = Patch::Merge(json!({ "status": status }));
    api.patch_status(&deployment.name_any(), &PatchParams::default(), &patch).await.map(drop)
}
