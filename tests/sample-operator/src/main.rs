//! The sample operator: answers every `Greeting` in its status.
//!
//! Arguments: `serve` answers greetings; `idle` only runs, for packages whose API nobody uses; `ready` tells by its
//! exit code whether the running operator is ready, for the readiness probe of an image without a shell.
//! Environment: `OPERATOR_VERSION`, the version to report.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use futures::StreamExt as _;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::{Controller, controller::Action, watcher},
};
use sample_operator::{Greeting, answer};
use tokio::signal::unix::{SignalKind, signal};

/// What every reconcile needs.
struct Context {
    client: Client,
    version: String,
}

async fn reconcile(greeting: Arc<Greeting>, context: Arc<Context>) -> Result<Action, kube::Error> {
    let status = answer(&greeting.spec, &context.version);
    if greeting.status.as_ref() != Some(&status) {
        let namespace = greeting.namespace().unwrap_or_default();
        let api: Api<Greeting> = Api::namespaced(context.client.clone(), &namespace);
        let patch = serde_json::json!({ "status": status });
        api.patch_status(&greeting.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        tracing::info!(greeting = greeting.name_any(), namespace, "greeted");
    }
    Ok(Action::await_change())
}

fn retry(_: Arc<Greeting>, error: &kube::Error, _: Arc<Context>) -> Action {
    tracing::warn!(%error, "greeting failed, trying again");
    Action::requeue(Duration::from_secs(5))
}

/// Exists once the operator is ready.
const READY: &str = "/tmp/ready";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("serve") => serve().await,
        Some("idle") => {
            std::fs::write(READY, "ready\n").with_context(|| format!("writing {READY}"))?;
            let mut end = signal(SignalKind::terminate()).context("waiting for SIGTERM")?;
            end.recv().await;
            Ok(())
        }
        Some("ready") => std::fs::metadata(READY).map(drop).with_context(|| format!("not ready: {READY}")),
        other => anyhow::bail!("the argument must be serve, idle or ready, not {other:?}"),
    }
}

async fn serve() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider was already installed"))?;
    let version = std::env::var("OPERATOR_VERSION").context("OPERATOR_VERSION must name the version")?;
    let client = Client::try_default().await.context("connecting to the API server")?;
    let greetings: Api<Greeting> = Api::all(client.clone());
    greetings.list(&kube::api::ListParams::default()).await.context("listing greetings")?;
    std::fs::write(READY, "ready\n").with_context(|| format!("writing {READY}"))?;
    tracing::info!(version, "serving greetings");
    Controller::new(greetings, watcher::Config::default())
        .shutdown_on_signal()
        .run(reconcile, retry, Arc::new(Context { client, version }))
        .for_each(|_| futures::future::ready(()))
        .await;
    Ok(())
}
