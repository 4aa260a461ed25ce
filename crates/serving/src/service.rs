//! Life cycle of a server: startup, body, shutdown (docs/design/operations.md#shutdown).

use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use kube::{Api, Client, Config};
use olm_runtime::component::{Component, version_text};
use olm_runtime::events::Events;
use olm_runtime::gates::FeatureGates;
use olm_runtime::leadership::Leadership;
use olm_runtime::lease::{Election, Timing};
use olm_runtime::metrics::Metrics;
use olm_runtime::pull_secrets::{PullSecrets, own_account};
use olm_runtime::{cluster, installations, pod};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::builtin::BuiltinCertificates;
use crate::certificate::PemPair;
use crate::flags::{MetricsAuth, ServiceFlags};
use crate::https::{HttpServer, RustlsConfig};
use crate::metrics_access::{self, MetricsAccess};
use crate::probes::{self, Readiness};
use crate::serving_certificate::{CertificateSource, ServingCertificate};
use crate::tls_profile::TlsProfile;
use crate::{client_authority, logs, traces};

/// Log record of a server that no longer leads.
pub const LEADERSHIP_LOST: &str = "leader election lost";
/// Readiness check that succeeds once the body has registered its own checks.
const STARTUP_CHECK: &str = "startup";
/// Maximum wait for running reconciles after SIGTERM before the Lease is released anyway.
const BODY_GRACE: Duration = Duration::from_secs(20);

/// An error that ends the server with exit code 1.
pub type Fatal = Box<dyn std::error::Error + Send + Sync>;

/// Shared resources of a running server. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    /// The server.
    pub component: Component,
    /// The flags of both servers.
    pub flags: Arc<ServiceFlags>,
    /// The feature gates.
    pub gates: Arc<FeatureGates>,
    /// The system namespace.
    pub namespace: String,
    /// Client of the API server.
    pub client: Client,
    /// Metrics, to which a server adds its own.
    pub metrics: Arc<Metrics>,
    /// Readiness checks, to which a server adds its own.
    pub readiness: Readiness,
    /// Versions, suites and curves of `--tls-profile`.
    pub tls_profile: TlsProfile,
    /// Cancelled on SIGTERM or SIGINT: start no new work and end running work.
    pub shutdown: CancellationToken,
    /// The built-in certificates, if this server issues them.
    pub builtin: Option<Arc<BuiltinCertificates>>,
    certificate: Option<Arc<ServingCertificate>>,
    lease_client: Client,
    /// Client of reviews for the metrics endpoint, separate so that a flood of them does not delay other calls.
    review_client: Client,
    servers: Arc<Mutex<Vec<HttpServer>>>,
    /// Cancelled when the Lease may be released.
    body_ended: CancellationToken,
    /// The task that renews the Lease while it is held, then releases it.
    renewal: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// A server that leads.
pub struct Leader {
    /// The server, with a client that is [fenced](Leadership::fence), and a `shutdown` that is cancelled when the Lease
    /// is lost, too.
    pub service: Service,
    /// The leadership.
    pub leadership: Leadership,
}

/// Runs a server until SIGTERM: starts logs, probes, certificate and metrics, runs `body`, then releases the Lease
/// and drains connections. `body` returns soon after [`Service::shutdown`] is cancelled, or with an error that ends
/// the process.
pub fn run<B, F>(component: Component, flags: ServiceFlags, gates: FeatureGates, body: B) -> ExitCode
where
    B: FnOnce(Service) -> F,
    F: Future<Output = Result<(), Fatal>>,
{
    logs::start(component, &flags);
    raise_open_file_limit();
    restrict_process();
    // Fails if a provider is installed already, as in tests with several servers per process.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "failed to start async runtime");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(async {
        let service = Service::start(component, flags, gates).await?;
        let result = service.run_body(body(service.clone())).await;
        service.finish().await;
        result
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    let code = match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "{} failed", component.name());
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    };
    traces::flush();
    code
}

/// Raises the limit of open files to its maximum: some systems start processes with 1024 files, as many as there
/// may be connections.
fn raise_open_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "failed to raise the limit of open files");
    }
}

/// Protects keys and credentials: new files are private, and core dumps are disabled.
fn restrict_process() {
    umask(Mode::RWXG | Mode::RWXO);
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        tracing::warn!(%error, "failed to disable core dumps");
    }
}

impl Service {
    async fn start(component: Component, flags: ServiceFlags, gates: FeatureGates) -> Result<Self, Fatal> {
        // First, because process 1 of a container ignores signals without a handler.
        let shutdown = CancellationToken::new();
        watch_signals(shutdown.clone())?;
        flags.check(component)?;
        log_start(component, &flags, &gates);
        let tls_profile = flags.tls_profile()?;
        tls_profile.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let (versions, suites, curves) = tls_profile.names();
        tracing::info!(versions, suites, curves, "TLS profile is active");
        let readiness = Readiness::default();
        readiness.not_ready(STARTUP_CHECK, "the server is starting");
        let mut metrics = Metrics::new();
        metrics.classic_names = flags.classic_metric_names;
        let metrics = Arc::new(metrics);
        let mut servers = Vec::new();
        if let Some(address) = flags.probe_address()? {
            let router = probes::router(readiness.clone(), metrics.workers.clone());
            servers.push(HttpServer::start(address, None, router)?);
        }
        let config: Config = cluster::config(flags.kubeconfig().as_deref()).await?;
        let client = cluster::client(&config, &metrics)?;
        let namespace = pod::system_namespace(&flags.system_namespace);
        let issues = component == Component::OperatorController && flags.is_builtin();
        let builtin = issues
            .then(|| Arc::new(BuiltinCertificates::new(client.clone(), &namespace, component, &namespace)));
        let service = Self {
            component,
            gates: Arc::new(gates),
            client,
            readiness,
            shutdown,
            certificate: None,
            builtin,
            tls_profile,
            lease_client: cluster::client_without_retry(&config, &metrics)?,
            review_client: cluster::client_without_retry(&config, &metrics)?,
            servers: Arc::new(Mutex::new(servers)),
            body_ended: CancellationToken::new(),
            renewal: Arc::default(),
            namespace,
            metrics,
            flags: Arc::new(flags),
        };
        service.with_certificate().await?.with_metrics().await
    }

    /// Loads the serving certificate. Invalid files are fatal, Secrets are retried until they exist.
    async fn with_certificate(mut self) -> Result<Self, Fatal> {
        let source = match &self.builtin {
            Some(builtin) => CertificateSource::Builtin(Arc::clone(builtin)),
            None if self.flags.is_builtin() => CertificateSource::Secret {
                secrets: Box::new(Api::namespaced(self.client.clone(), &self.namespace)),
                name: self.component.serving_secret(),
            },
            None if self.flags.has_certificate() => CertificateSource::Files {
                certificate: self.flags.tls_cert.as_str().into(),
                key: self.flags.tls_key.as_str().into(),
            },
            None => return Ok(self),
        };
        let certificate =
            Arc::new(ServingCertificate::new(source, self.tls_profile.clone(), Arc::clone(&self.metrics)));
        self.readiness.not_ready("certificates", "serving certificate not yet loaded");
        let pair = self.first_pair(&certificate).await?;
        self.readiness.ready("certificates");
        tokio::spawn(Arc::clone(&certificate).follow(pair, self.shutdown.clone()));
        self.certificate = Some(certificate);
        Ok(self)
    }

    async fn first_pair(&self, certificate: &ServingCertificate) -> Result<PemPair, Fatal> {
        let mut wait = Duration::from_millis(500);
        loop {
            match certificate.load(None).await {
                Ok(pair) => return Ok(pair),
                Err(error) if !self.flags.is_builtin() => return Err(error.into()),
                Err(error) => tracing::error!(%error, "serving certificate is not yet available"),
            }
            if self.shutdown.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                return Err("stopped before the serving certificate was available".into());
            }
            wait = (wait * 2).min(Duration::from_secs(10));
        }
    }

    async fn with_metrics(self) -> Result<Self, Fatal> {
        let Some(address) = self.flags.metrics_address(self.component)? else {
            tracing::warn!("metrics endpoint is disabled: no certificate, or address 0");
            return Ok(self);
        };
        let access = MetricsAccess::new(self.review_client.clone(), self.flags.metrics_auth);
        let router = metrics_access::router(Arc::clone(&self.metrics), access);
        let certificate = self.serving_certificate()?;
        let tls = RustlsConfig::from_config(certificate.server_config(None)?);
        if self.flags.metrics_auth != MetricsAuth::Token {
            let (client, certificate) = (self.client.clone(), Arc::clone(certificate));
            let stop = self.shutdown.clone();
            tokio::spawn(client_authority::follow(client, certificate, tls.clone(), stop));
        }
        self.serve_with(address, Some(tls), router).await?;
        Ok(self)
    }

    /// Serves `router` until shutdown, with the serving certificate if `tls`.
    ///
    /// # Errors
    /// The address is taken, or no serving certificate is configured for TLS.
    pub async fn serve(&self, address: SocketAddr, tls: bool, router: Router) -> Result<(), Fatal> {
        let tls = match tls {
            true => Some(RustlsConfig::from_config(self.serving_certificate()?.server_config(None)?)),
            false => None,
        };
        self.serve_with(address, tls, router).await
    }

    fn serving_certificate(&self) -> Result<&Arc<ServingCertificate>, Fatal> {
        self.certificate.as_ref().ok_or_else(|| "no serving certificate is configured".into())
    }

    async fn serve_with(
        &self,
        address: SocketAddr,
        tls: Option<RustlsConfig>,
        router: Router,
    ) -> Result<(), Fatal> {
        self.servers.lock().await.push(HttpServer::start(address, tls, router)?);
        Ok(())
    }

    /// Registry credentials: the global pull secret, and those of the process's own ServiceAccount.
    ///
    /// # Errors
    /// The token does not name a service account.
    pub fn pull_secrets(&self, events: Events) -> Result<PullSecrets, Fatal> {
        let (account, global) = (own_account()?, &self.flags.global_pull_secret);
        Ok(PullSecrets::new(self.client.clone(), account, global, events))
    }

    /// Waits until this process leads. Without `--leader-elect` it leads at once, unless there is an older
    /// installation. Returns `None` on shutdown. Call it again after the Lease is lost, once everything that leads has
    /// ended.
    pub async fn lead(&self) -> Option<Leader> {
        let lease = self.component.lease_name();
        self.metrics.set_leading(lease, false);
        if !self.flags.allow_multiple_installations {
            let own = pod::own_namespace(&self.namespace);
            let oldest = installations::wait_until_oldest(&self.client, self.component, &own);
            self.shutdown.run_until_cancelled(oldest).await?;
        }
        let leadership = match self.flags.leader_elect {
            true => self.shutdown.run_until_cancelled(self.elect(lease)).await?,
            false => Leadership::endless(),
        };
        self.metrics.set_leading(lease, true);
        let (client, stop) = (leadership.fence(&self.client), self.shutdown.child_token());
        let (lost, ended) = (leadership.lost.clone(), stop.clone());
        tokio::spawn(async move {
            lost.cancelled().await;
            ended.cancel();
        });
        Some(Leader { service: Self { client, shutdown: stop, ..self.clone() }, leadership })
    }

    /// Waits for the Lease, and starts to renew it.
    async fn elect(&self, lease: &'static str) -> Leadership {
        let timing = Timing {
            lease_duration: self.flags.leader_elect_lease_duration,
            renew_deadline: self.flags.leader_elect_renew_deadline,
            retry_period: self.flags.leader_elect_retry_period,
        };
        let identity = pod::lease_identity();
        let client = self.lease_client.clone();
        let mut election = Election::new(client, &self.namespace, lease, identity, timing);
        let leadership = election.acquire().await;
        let (body_ended, lost) = (self.body_ended.clone(), leadership.lost.clone());
        let renewal = tokio::spawn(async move {
            if body_ended.run_until_cancelled(election.hold()).await.is_some() {
                tracing::error!(lease, "{LEADERSHIP_LOST}");
                return lost.cancel();
            }
            election.release().await;
        });
        *self.renewal.lock().await = Some(renewal);
        leadership
    }

    /// Runs the body. The server becomes ready when the body first awaits. After the stop signal the body has a
    /// limited time to end.
    async fn run_body(&self, body: impl Future<Output = Result<(), Fatal>>) -> Result<(), Fatal> {
        let grace_period = async {
            self.readiness.ready(STARTUP_CHECK);
            self.shutdown.cancelled().await;
            self.readiness.not_ready("shutdown", "the server is stopping");
            tokio::time::sleep(BODY_GRACE).await;
        };
        tokio::select! {
            biased;
            result = body => result,
            () = grace_period => {
                tracing::warn!("work did not end within the grace period, aborting it");
                Ok(())
            }
        }
    }

    /// Releases the lease, then drains connections.
    async fn finish(&self) {
        self.shutdown.cancel();
        self.body_ended.cancel();
        if let Some(renewal) = self.renewal.lock().await.take() {
            if let Err(error) = renewal.await {
                tracing::error!(%error, "lease renewal task failed");
            }
            self.metrics.set_leading(self.component.lease_name(), false);
        }
        let servers: Vec<HttpServer> = std::mem::take(&mut *self.servers.lock().await);
        let grace = self.flags.shutdown_grace;
        futures::future::join_all(servers.into_iter().map(|server| server.drain(grace))).await;
        tracing::info!("stopped");
    }
}

fn log_start(component: Component, flags: &ServiceFlags, gates: &FeatureGates) {
    tracing::info!(version = version_text(), "starting up {}", component.name());
    let heading = match component {
        Component::Catalogd => "catalogd feature gate status",
        Component::OperatorController => "feature gate status",
    };
    for (feature, enabled) in gates.iter() {
        tracing::info!(feature, enabled, "{heading}");
    }
    let ignored = flags.without_effect();
    if !ignored.is_empty() {
        tracing::warn!(flags = ignored.join(", "), "flags accepted without effect");
    }
}

/// Handles SIGTERM and SIGINT: the first one starts a graceful shutdown, the second one ends the process.
fn watch_signals(shutdown: CancellationToken) -> Result<(), Fatal> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        let mut next =
            async || tokio::select! { got = terminate.recv() => got, got = interrupt.recv() => got };
        next().await;
        tracing::info!("stopping");
        shutdown.cancel();
        next().await;
        tracing::error!("received second signal, exiting immediately");
        std::process::exit(1);
    });
    Ok(())
}
