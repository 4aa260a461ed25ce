//! Dependencies and state of the controller, and the acting parts that its reconciles use.

use std::sync::Arc;

use kube::runtime::reflector::Store;
use kube::{Api, Client};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_controller_core::RevisionCache;
use olm_controller_core::UpgradeTargets;
use olm_controller_core::metrics::ExtensionMetrics;
use olm_runtime::events::Events;
use olm_runtime::status::Writes;
use olm_serving::probes::Readiness;
use olm_webhook_certificates::WebhookCertificates;
use tokio_util::sync::CancellationToken;

use super::group::UpgradeGroups;
use super::install::Installer;
use super::memory::Memories;
use super::plan_keeper::PlanKeeper;
use super::ref_secrets::{ABANDONED, RefSecrets};
use super::removal::Remover;
use super::reporter::Reporter;
use super::resolver::Resolver;
use super::restoration::Restorer;
use crate::adoption::Adoption;
use crate::bundles::Bundles;
use crate::catalogs::Catalogs;
use crate::dependencies::Dependencies;
use crate::features::Features;
use crate::namespaces::Namespaces;
use crate::operator_conditions::OperatorConditions;
use crate::preflight::Preflight;
use crate::revision_writer::RevisionWriter;

/// Dependencies of the controller.
pub struct Parts {
    /// Client of the API server.
    pub client: Client,
    /// Namespace of the Secrets that hold revision content.
    pub system_namespace: String,
    /// Effect of the feature gates.
    pub features: Features,
    /// Publisher of Events.
    pub events: Events,
    /// Content of the catalogs.
    pub catalogs: Arc<Catalogs>,
    /// Cache of all ClusterObjectSets.
    pub cache: RevisionCache,
    /// ClusterCatalogs.
    pub catalog_store: Store<ClusterCatalog>,
    /// Pulled bundles.
    pub bundles: Bundles,
    /// Webhook certificates that the built-in issuer maintains.
    pub certificates: WebhookCertificates,
    /// Possible upgrades, for the verdict on the platform.
    pub upgrade_targets: Arc<UpgradeTargets>,
    /// OperatorConditions, with gate `OperatorConditionCompat`.
    pub operator_conditions: Option<Arc<OperatorConditions>>,
    /// Namespaces of the cluster, with gate `MultiWatchNamespaces`.
    pub namespaces: Option<Arc<Namespaces>>,
    /// Readiness to report [`INFORMERS`](super::INFORMERS) to.
    pub readiness: Readiness,
}

/// Shared state of all reconciles. [`Memories`] holds little per extension, and no content.
pub(super) struct ExtensionController {
    pub(super) parts: Parts,
    pub(super) extensions: Api<ClusterExtension>,
    pub(super) extensions_in_store: Store<ClusterExtension>,
    pub(super) extensions_listed: CancellationToken,
    pub(super) dependencies: Arc<Dependencies>,
    pub(super) revisions: Api<ClusterObjectSet>,
    pub(super) writer: RevisionWriter,
    pub(super) ref_secrets: RefSecrets,
    pub(super) adoption: Adoption,
    pub(super) preflight: Preflight,
    pub(super) metrics: Arc<ExtensionMetrics>,
    pub(super) plans: PlanKeeper,
    pub(super) memories: Memories,
    pub(super) writes: Writes,
}

impl ExtensionController {
    pub(super) fn new(parts: Parts, extensions_in_store: Store<ClusterExtension>) -> Self {
        let (client, namespace) = (parts.client.clone(), &parts.system_namespace);
        Self {
            extensions: Api::all(client.clone()),
            metrics: Arc::new(ExtensionMetrics::new(extensions_in_store.clone(), parts.cache.clone())),
            extensions_in_store,
            extensions_listed: CancellationToken::new(),
            dependencies: Arc::new(Dependencies::new(client.clone(), parts.cache.clone())),
            revisions: Api::all(client.clone()),
            writer: RevisionWriter::new(client.clone(), namespace),
            ref_secrets: RefSecrets::new(&client, namespace, ABANDONED),
            adoption: Adoption::new(client.clone(), namespace),
            plans: PlanKeeper::new(
                &client,
                parts.features.extension_plans,
                parts.operator_conditions.clone(),
            ),
            preflight: Preflight::new(client),
            memories: Memories::default(),
            writes: Writes::default(),
            parts,
        }
    }

    pub(super) fn reporter(&self) -> Reporter<'_> {
        Reporter {
            extensions: &self.extensions,
            writes: &self.writes,
            events: &self.parts.events,
            cache: &self.parts.cache,
            memories: &self.memories,
            features: self.parts.features,
        }
    }

    pub(super) fn resolver(&self) -> Resolver<'_> {
        Resolver {
            catalogs: &self.parts.catalogs,
            catalog_store: &self.parts.catalog_store,
            extensions: &self.extensions_in_store,
            cache: &self.parts.cache,
            dependencies: &self.dependencies,
            upgrade_targets: &self.parts.upgrade_targets,
            metrics: &self.metrics,
            memories: &self.memories,
            features: self.parts.features,
        }
    }

    pub(super) fn installer(&self) -> Installer<'_> {
        let Parts { client, system_namespace, features, bundles, certificates, cache, catalogs, .. } =
            &self.parts;
        let (memories, features) = (&self.memories, *features);
        Installer {
            client,
            system_namespace,
            features,
            extensions: &self.extensions,
            bundles,
            preflight: &self.preflight,
            certificates,
            writer: &self.writer,
            cache,
            plans: &self.plans,
            groups: UpgradeGroups { catalogs, extensions: &self.extensions_in_store, memories, features },
            memories,
        }
    }

    pub(super) fn restorer(&self) -> Restorer<'_> {
        Restorer {
            client: &self.parts.client,
            writer: &self.writer,
            preflight: &self.preflight,
            conditions: self.parts.operator_conditions.as_deref(),
            memories: &self.memories,
        }
    }

    pub(super) fn remover(&self) -> Remover<'_> {
        Remover {
            client: &self.parts.client,
            extensions: &self.extensions,
            extensions_in_store: &self.extensions_in_store,
            revisions: &self.revisions,
            writer: &self.writer,
            cache: &self.parts.cache,
            catalogs: &self.parts.catalogs,
            bundles: &self.parts.bundles,
            dependencies: &self.dependencies,
            preflight: &self.preflight,
            memories: &self.memories,
            reporter: self.reporter(),
        }
    }
}
