//! Servers under test: their pods, processes and Leases, and changes of their Deployments.

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::{Cluster, PATIENCE, eventually};

/// Namespace of the servers.
pub const SYSTEM: &str = "olmv1-system";

/// Server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// catalogd.
    Catalogd,
    /// operator-controller.
    OperatorController,
}

impl Server {
    /// Name of the server.
    pub fn name(self) -> &'static str {
        match self {
            Self::Catalogd => "catalogd",
            Self::OperatorController => "operator-controller",
        }
    }

    /// Name of its Deployment and ServiceAccount, and value of its label `control-plane`.
    pub fn deployment(self) -> String {
        format!("{}-controller-manager", self.name())
    }

    /// Port of its metrics endpoint.
    pub fn metrics_port(self) -> u16 {
        match self {
            Self::Catalogd => 7443,
            Self::OperatorController => 8443,
        }
    }

    /// Name of its Lease.
    pub fn lease(self) -> &'static str {
        match self {
            Self::Catalogd => "catalogd-operator-lock",
            Self::OperatorController => "9c4404e7.operatorframework.io",
        }
    }
}

/// Pods of the server that are ready and not being deleted, by name.
pub async fn ready_pods(cluster: &Cluster, server: Server) -> Result<Vec<Pod>> {
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        pod.metadata.deletion_timestamp.is_none()
            && conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
    };
    let mut pods: Vec<Pod> = cluster.pods_of(server.name()).await?.into_iter().filter(is_ready).collect();
    pods.sort_by_key(|pod| pod.name_any());
    Ok(pods)
}

/// Spec of the server's Lease.
pub async fn lease(cluster: &Cluster, server: Server) -> Result<LeaseSpec> {
    let leases: Api<Lease> = cluster.within(SYSTEM);
    leases.get(server.lease()).await?.spec.context("the Lease has no spec")
}

/// Name of the pod that holds the server's Lease. Empty without a holder.
pub async fn leader(cluster: &Cluster, server: Server) -> Result<String> {
    let holder = lease(cluster, server).await?.holder_identity.unwrap_or_default();
    Ok(holder.split('_').next().unwrap_or_default().to_owned())
}

/// Waits until a pod other than `than` leads. Returns its name.
pub async fn wait_other_leader(cluster: &Cluster, server: Server, than: &str) -> Result<String> {
    eventually(&format!("a pod other than {than} leads"), PATIENCE, async || {
        let leader = leader(cluster, server).await?;
        ensure!(!leader.is_empty() && leader != than, "{leader:?} leads");
        Ok(leader)
    })
    .await
}

/// Waits until all pods of the server are from the current Deployment, and ready.
pub async fn wait_rolled_out(cluster: &Cluster, server: Server) -> Result<()> {
    let deployments: Api<Deployment> = cluster.within(SYSTEM);
    let since = Instant::now();
    eventually(&format!("{} is rolled out", server.name()), PATIENCE, async || {
        let found = deployments.get(&server.deployment()).await?;
        let desired = found.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let status = found.status.unwrap_or_default();
        ensure!(
            status.observed_generation == found.metadata.generation
                && status.updated_replicas == Some(desired)
                && status.available_replicas == Some(desired)
                && status.replicas == Some(desired),
            "after {} s: {status:?}",
            since.elapsed().as_secs()
        );
        // The Deployment's status includes pods that are being deleted.
        let (all, ready) = (cluster.pods_of(server.name()).await?, ready_pods(cluster, server).await?);
        let are_desired = [all.len(), ready.len()].map(|count| i32::try_from(count).ok() == Some(desired));
        ensure!(are_desired == [true; 2], "{} pods, {} ready", all.len(), ready.len());
        Ok(())
    })
    .await
}

/// Restarts the server's Deployment and waits for the new pods.
pub async fn restart(cluster: &Cluster, server: Server) -> Result<()> {
    cluster.within::<Deployment>(SYSTEM).restart(&server.deployment()).await?;
    wait_rolled_out(cluster, server).await
}

/// Previous configuration of a server that a test has changed.
#[must_use = "the server is not put back by itself"]
pub struct Before {
    server: Server,
    spec: Value,
}

impl Before {
    /// Changes the Deployment's `spec` by a strategic merge patch and waits for the pods.
    pub async fn change(cluster: &Cluster, server: Server, spec: Value) -> Result<Self> {
        let deployments: Api<Deployment> = cluster.within(SYSTEM);
        let found = deployments.get(&server.deployment()).await?;
        let before = Self { server, spec: serde_json::to_value(found.spec)? };
        let patch = Patch::Strategic(json!({ "spec": spec }));
        deployments.patch(&server.deployment(), &PatchParams::default(), &patch).await?;
        wait_rolled_out(cluster, server).await?;
        Ok(before)
    }

    /// Changes the environment of the container.
    pub async fn with_environment(
        cluster: &Cluster,
        server: Server,
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let variables: Vec<Value> =
            environment.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let container = json!({"name": "manager", "env": variables});
        Self::change(cluster, server, json!({"template": {"spec": {"containers": [container]}}})).await
    }

    /// Adds arguments to the container.
    pub async fn with_args(cluster: &Cluster, server: Server, more: &[&str]) -> Result<Self> {
        let deployments: Api<Deployment> = cluster.within(SYSTEM);
        let found = serde_json::to_value(deployments.get(&server.deployment()).await?)?;
        let mut args = found.pointer("/spec/template/spec/containers/0/args").cloned().unwrap_or_default();
        let Some(all) = args.as_array_mut() else {
            bail!("{} has no args", server.name());
        };
        all.extend(more.iter().map(|arg| json!(arg)));
        let container = json!({"name": "manager", "args": args});
        Self::change(cluster, server, json!({"template": {"spec": {"containers": [container]}}})).await
    }

    /// Runs `check`, and restores the previous configuration regardless of its result.
    pub async fn during(self, cluster: &Cluster, check: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
        let checked = check().await;
        let put_back = self.restore(cluster).await;
        checked.and(put_back)
    }

    /// Restores the previous configuration and waits for the pods.
    pub async fn restore(self, cluster: &Cluster) -> Result<()> {
        let deployments: Api<Deployment> = cluster.within(SYSTEM);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(
            json!([{"op": "replace", "path": "/spec", "value": self.spec}]),
        )?);
        deployments.patch(&self.server.deployment(), &PatchParams::default(), &patch).await?;
        wait_rolled_out(cluster, self.server).await
    }
}

/// Processes of the pod on this machine: those with its UID in their environment.
pub fn processes_of(pod: &Pod) -> Result<Vec<u32>> {
    let marker = format!("POD_UID={}", pod.uid().unwrap_or_default());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The process may have exited.
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes()) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Sends a signal such as `-KILL` to the pod's server. Returns `false` if its node is not this machine.
pub fn signal(pod: &Pod, signal: &str) -> Result<bool> {
    let Some(pid) = processes_of(pod)?.first().copied() else {
        return Ok(false);
    };
    Ok(std::process::Command::new("kill").args([signal, &pid.to_string()]).status()?.success())
}
