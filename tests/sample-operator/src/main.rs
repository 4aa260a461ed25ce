//! The sample operator: answers every `Greeting` in its status, or serves the webhooks of greetings, or an aggregated
//! API.
//!
//! Arguments:
//! - `serve`: answer greetings.
//! - `webhooks`: serve the webhooks.
//! - `aggregated`: serve the aggregated API.
//! - `idle`: only run, for packages whose API is unused.
//! - `ready`: exit with 0 if the running operator is ready. Readiness probe of an image without a shell.
//! - `falter`, `recover`: make the running operator not ready, or ready again.
//!
//! `serve` and `webhooks` remove the operator's finalizer from greetings that are deleted.
//!
//! Environment:
//! - `OPERATOR_VERSION`: version to report.
//! - `GREETING_GROUP`: API group of the package.
//! - `TARGET_NAMESPACES`: watched namespaces, comma-separated. Empty: all namespaces.

use std::{env, fs, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum_server::Handle;
use futures::{StreamExt as _, future::join_all};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, ListParams, Patch, PatchParams},
    runtime::{Controller, controller::Action, watcher},
};
use sample_operator::{ANSWERED, CLEANUP, Greeting, aggregated, answer, certificates, greetings, webhooks};
use tokio::signal::unix::{SignalKind, signal};

/// Shared state of the reconciles.
struct Context {
    client: Client,
    resource: ApiResource,
    /// Version to report. `None` if greetings are not answered.
    version: Option<String>,
}

async fn reconcile(greeting: Arc<Greeting>, context: Arc<Context>) -> Result<Action, kube::Error> {
    let namespace = greeting.namespace().unwrap_or_default();
    let api: Api<Greeting> = Api::namespaced_with(context.client.clone(), &namespace, &context.resource);
    if greeting.metadata.deletion_timestamp.is_some() {
        let rest: Vec<&String> = greeting.finalizers().iter().filter(|name| *name != CLEANUP).collect();
        if rest.len() < greeting.finalizers().len() {
            let patch = serde_json::json!({"metadata": {"finalizers": rest}});
            api.patch(&greeting.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
            tracing::info!(greeting = greeting.name_any(), namespace, "cleaned up");
        }
        return Ok(Action::await_change());
    }
    let Some(version) = &context.version else { return Ok(Action::await_change()) };
    let status = answer(&greeting.spec, version);
    if greeting.status.as_ref() != Some(&status) {
        let patch = serde_json::json!({ "status": status });
        api.patch_status(&greeting.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        tracing::info!(greeting = greeting.name_any(), namespace, "greeted");
    }
    Ok(Action::await_change())
}

fn retry(_: Arc<Greeting>, error: &kube::Error, _: Arc<Context>) -> Action {
    tracing::warn!(%error, "greeting failed, retrying");
    Action::requeue(Duration::from_secs(5))
}

/// File that exists while the operator is ready.
const READY: &str = "/tmp/ready";
/// Port of the webhooks.
const PORT: u16 = 9443;
/// Port of the aggregated API.
const API_PORT: u16 = 5443;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider was already installed"))?;
    match env::args().nth(1).as_deref() {
        Some("serve") => serve().await,
        Some("webhooks") => serve_webhooks().await,
        Some("aggregated") => serve_aggregated().await,
        Some("idle") => {
            is_ready()?;
            terminated().await
        }
        Some("ready") => fs::metadata(READY).map(drop).with_context(|| format!("not ready: {READY}")),
        Some("falter") => fs::remove_file(READY).with_context(|| format!("removing {READY}")),
        Some("recover") => is_ready(),
        other => {
            anyhow::bail!(
                "the argument must be serve, webhooks, aggregated, idle, ready, falter or recover, not {other:?}"
            )
        }
    }
}

fn is_ready() -> anyhow::Result<()> {
    fs::write(READY, "ready\n").with_context(|| format!("writing {READY}"))
}

async fn terminated() -> anyhow::Result<()> {
    signal(SignalKind::terminate()).context("waiting for SIGTERM")?.recv().await;
    Ok(())
}

async fn serve_webhooks() -> anyhow::Result<()> {
    let handle = Handle::new();
    let address = ([0, 0, 0, 0], PORT).into();
    let serving =
        certificates::serve(address, certificates::of_webhooks(), None, webhooks::router(), handle.clone());
    let ready = ready(&handle, address);
    let resource = greetings(&variable("GREETING_GROUP")?, ANSWERED);
    let client = Client::try_default().await.context("connecting to the API server")?;
    let cleaning =
        run(Api::all_with(client.clone(), &resource), Context { client, resource, version: None }.into());
    tokio::select! {
        ended = serving => ended,
        ended = ready => ended,
        () = cleaning => Ok(()),
    }
}

async fn serve_aggregated() -> anyhow::Result<()> {
    let group = variable("GREETING_GROUP")?;
    let client = Client::try_default().await.context("connecting to the API server")?;
    let clients = aggregated::front_proxy_authorities(&client).await?;
    let (handle, address) = (Handle::new(), ([0, 0, 0, 0], API_PORT).into());
    let (files, router) = (certificates::of_aggregated_apis(), aggregated::router(client, &group));
    let serving = certificates::serve(address, files, Some(clients), router, handle.clone());
    tokio::select! {
        ended = serving => ended,
        ended = ready(&handle, address) => ended,
    }
}

/// Reports ready once the server listens. Returns when the process is to stop.
async fn ready(handle: &Handle<SocketAddr>, address: SocketAddr) -> anyhow::Result<()> {
    if handle.listening().await.is_some() {
        is_ready()?;
        tracing::info!(%address, "serving");
    }
    terminated().await
}

fn variable(name: &str) -> anyhow::Result<String> {
    env::var(name).with_context(|| format!("{name} must be set"))
}

async fn run(api: Api<Greeting>, context: Arc<Context>) {
    Controller::new_with(api, watcher::Config::default(), context.resource.clone())
        .shutdown_on_signal()
        .run(reconcile, retry, context)
        .for_each(|_| futures::future::ready(()))
        .await;
}

async fn serve() -> anyhow::Result<()> {
    let version = variable("OPERATOR_VERSION")?;
    let resource = greetings(&variable("GREETING_GROUP")?, ANSWERED);
    let targets = env::var("TARGET_NAMESPACES").unwrap_or_default();
    let client = Client::try_default().await.context("connecting to the API server")?;
    let mut apis: Vec<Api<Greeting>> = Vec::new();
    for target in targets.split(',').filter(|target| !target.is_empty()) {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.get(target).await.with_context(|| format!("looking for namespace {target}"))?;
        apis.push(Api::namespaced_with(client.clone(), target, &resource));
    }
    if apis.is_empty() {
        apis.push(Api::all_with(client.clone(), &resource));
    }
    for api in &apis {
        api.list(&ListParams::default()).await.context("listing greetings")?;
    }
    is_ready()?;
    tracing::info!(version, targets, "serving greetings");
    let context = Arc::new(Context { client, resource, version: Some(version) });
    join_all(apis.into_iter().map(|api| run(api, context.clone()))).await;
    Ok(())
}
