//! operator-controller: installs and upgrades extensions from catalogs.
//!
//! ```text
//! ClusterExtension ─ extension ► choose, pull, render ► ClusterObjectSet ─ revision ► objects on the cluster
//!                        ▲ catalogs: content fetched from catalogd
//! ```

mod adoption;
mod bundles;
mod catalogd;
mod catalogs;
mod certificates;
mod dependencies;
mod extension;
mod failure;
mod gates;
mod metrics;
mod platform;
mod preflight;
mod revision;
mod revision_cache;
#[cfg(test)]
mod running;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use olm_oci::policy::PolicySource;
use olm_oci::{Config, Limits, Proxies, Puller, RegistrySettings};
use olm_resolve::DependencyMode;
use olm_runtime::Component;
use olm_runtime::events::Events;
use olm_runtime::gates::FeatureGates;
use olm_serving::Service;
use olm_serving::ca_pool::{CaPool, CaSources};
use olm_serving::command_line::{ServerCommand, from_command_line, refuse};
use olm_serving::flags::ServiceFlags;
use olm_serving::service::Fatal;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use bundles::Bundles;
use catalogd::ForCatalogd;
use catalogs::Catalogs;
use certificates::{Times, WebhookCertificates};
use gates::Features;
use revision_cache::RevisionCache;

/// Heading in `--help`.
const CONTENT: &str = "Catalogs and bundles";

/// Installs and upgrades extensions from catalogs.
#[derive(Parser, Clone, Debug)]
#[command(name = "operator-controller", subcommand_negates_reqs = true)]
struct Flags {
    /// Directory with CA files for catalogd, trusted in addition to the system's
    #[arg(long, default_value = "", value_name = "DIR", help_heading = CONTENT)]
    catalogd_cas_dir: String,
    /// Namespace of catalogd, whose certificate and Role are kept there; default: the system namespace
    #[arg(long, default_value = "", value_name = "NAMESPACE", help_heading = CONTENT)]
    catalogd_namespace: String,
    /// Directory of catalog and bundle content; it is kept over restarts
    #[arg(long, default_value = "/var/cache/operator-controller", value_name = "DIR", help_heading = CONTENT)]
    cache_path: PathBuf,
    /// What becomes of bundles with dependencies: Reject, Report or Check
    #[arg(long, default_value = "Reject", value_name = "MODE", help_heading = CONTENT)]
    dependency_mode: DependencyMode,
    /// Flags of the platform controller
    #[command(flatten)]
    platform: platform::PlatformFlags,
    /// Flags of both servers
    #[command(flatten)]
    service: ServiceFlags,
    /// Commands
    #[command(subcommand)]
    command: Option<ServerCommand>,
}

impl Flags {
    /// Checks conditions that involve several flags.
    fn check(&self) -> Result<(), String> {
        self.service.check(Component::OperatorController)?;
        self.pulling().map(drop)
    }

    /// Returns the configuration of image pulls, without credentials.
    fn pulling(&self) -> Result<Config, String> {
        let mut config = Config {
            cas_dir: self.service.pull_cas_dir(),
            policy: PolicySource::from_env(self.service.require_signature_policy),
            ..Config::new(Limits::BUNDLE)
        };
        config.apply_flags(&self.service.image_limits, &self.service.registry_deny_cidrs)?;
        Ok(config)
    }
}

fn main() -> ExitCode {
    let flags: Flags = match from_command_line(&gates::KNOWN) {
        Ok(flags) => flags,
        Err(code) => return code,
    };
    if let Some(command) = flags.command {
        return command.run::<Flags>(Component::OperatorController);
    }
    // Logging starts first, so that the checks of flags can log.
    olm_serving::logs::start(&flags.service);
    let gates = FeatureGates::parse(&gates::KNOWN, &flags.service.feature_gates);
    match gates.and_then(|gates| flags.check().map(|()| gates)) {
        Ok(gates) => {
            olm_serving::run(Component::OperatorController, flags.service.clone(), gates, |service| {
                run(service, flags)
            })
        }
        Err(error) => refuse::<Flags>(&error),
    }
}

async fn run(service: Service, flags: Flags) -> Result<(), Fatal> {
    let (cache, cas_dir) = (&flags.cache_path, &flags.catalogd_cas_dir);
    let features = Features::of(&service.gates);
    let sources = CaSources {
        system: olm_oci::system_authorities,
        directory: (!cas_dir.is_empty()).then(|| PathBuf::from(cas_dir)),
        bundle: service.builtin_certificates().map(|certificates| certificates.ca_bundle()),
    };
    let pool = CaPool::load(sources, service.tls_profile.clone())?;
    let pool = Arc::new(pool.through(Proxies::of_process().chooser())?);
    let metrics = Arc::clone(&service.metrics);
    tokio::spawn(Arc::clone(&pool).follow("catalogd", metrics, service.shutdown.clone()));
    let catalogs = Arc::new(Catalogs::open(cache.join("catalogs"), pool)?);
    let events = Events::new(service.client.clone(), service.component);
    let mut secrets = service.pull_secrets(events.clone())?;
    let pulling = Config { credentials: secrets.source(), ..flags.pulling()? };
    let (policy, settings) = (pulling.policy.clone(), RegistrySettings::of(&pulling));
    let puller = Puller::new(pulling);
    let exceeded = puller.limits_exceeded();
    service.metrics.register_images(move || exceeded.all(), move || policy.exists());
    let bundles = Bundles::open(&cache.join("unpack"), puller, &service.shutdown)?;
    // Until then, pulls that need credentials fail and are retried.
    if let Err(error) = secrets.sync().await {
        tracing::error!(%error, "registry credentials not read");
    }
    let for_catalogd = ForCatalogd::new(&service, &flags.catalogd_namespace);
    if !service.lead().await {
        return Ok(());
    }
    service.readiness.not_ready(extension::INFORMERS, "the caches are not synced");
    let stop = &service.shutdown;
    let woken = Arc::clone(&catalogs);
    tokio::spawn(secrets.follow(move || woken.announce(), stop.clone()));
    let woken = Arc::clone(&catalogs);
    let follow = settings.follow(move || woken.announce());
    tokio::spawn(stop.clone().run_until_cancelled_owned(follow));
    let listed = CancellationToken::new();
    let (catalog_store, following) = catalogs::run(
        service.client.clone(),
        Arc::clone(&catalogs),
        Arc::clone(&service.metrics),
        listed.clone(),
        stop.clone(),
    );
    let cache = RevisionCache::new();
    let certificates = WebhookCertificates::new(
        service.client.clone(),
        cache.clone(),
        &service.namespace,
        events.clone(),
        Times::DEFAULT,
    );
    let parts = extension::Parts {
        client: service.client.clone(),
        system_namespace: service.namespace.clone(),
        features,
        cache: cache.clone(),
        dependency_mode: flags.dependency_mode,
        events: events.clone(),
        catalogs,
        catalog_store,
        bundles,
        certificates: certificates.clone(),
        readiness: service.readiness.clone(),
    };
    let (client, metrics) = (service.client.clone(), Arc::clone(&service.metrics));
    let (of_extensions, stopped) = (Arc::clone(&metrics), stop.clone());
    let extensions = async move {
        // Before the first list, there would seem to be no catalogs.
        if stopped.run_until_cancelled(listed.cancelled()).await.is_some() {
            extension::run(parts, of_extensions, stopped.clone()).await;
        }
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(for_catalogd.lead(stop.clone()));
    tasks.spawn(following);
    tasks.spawn(extensions);
    tasks.spawn(revision::run(
        revision::Pace::default(),
        client.clone(),
        cache.clone(),
        service.namespace.clone(),
        Arc::clone(&metrics),
        stop.clone(),
    ));
    let is_selected = features.certificates == olm_bundle::Certificates::Builtin;
    let (of_certificates, stopped) = (Arc::clone(&metrics), stop.clone());
    tasks.spawn(async move { certificates.run(is_selected, of_certificates, stopped).await });
    if service.gates.enabled(gates::UPGRADE_STATUS) {
        let settings = flags.platform.settings(&service.namespace);
        tasks.spawn(platform::run(client.clone(), cache.clone(), settings, events, metrics, stop.clone()));
    }
    // All other tasks start when it has listed.
    let stopped = stop.clone();
    tasks.spawn(async move { cache.follow(client, stopped).await });
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    Ok(())
}
