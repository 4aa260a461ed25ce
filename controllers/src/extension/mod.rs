//! The extension controller: from a ClusterExtension to the revision that installs its bundle, and back to a status
//! (spec 05 §3).
//!
//! Observe the revisions ([`revisions`]) → ask catalogs and cluster ([`market`]) → choose a bundle ([`wanted`]) under the
//! rules in force ([`olm_extension`]) → have it rendered and look at what it endangers ([`install`]) → make it the newest
//! revision ([`apply`]) → one status write ([`attempted`], [`status`], [`findings`]) → Events ([`notices`]). [`removal`] is
//! the way out.

mod apply;
mod attempted;
mod findings;
mod install;
mod market;
mod notices;
mod removal;
mod revisions;
mod status;
mod wanted;

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt};
use jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::{Controller, Predicate, WatchStreamExt, controller, predicates, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use olm_api::cluster_extension::CatalogFilter;
use olm_api::conditions::{self, types};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterExtensionStatus, ClusterObjectSet, labels};
use olm_extension::{ExtensionRules, Settings};
use olm_resolve::DependencyMode;
use olm_service::cluster::{announce_listed, describe};
use olm_service::events::Events;
use olm_service::metrics::Metrics;
use olm_service::reconcile::{Failure as Attempt, Reconciles};
use olm_service::status::write_status;
use tokio::time::Instant;
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

use crate::bundles::Bundles;
use crate::catalogs::Catalogs;
use crate::certificates::WebhookCertificates;
use crate::dependencies::Dependencies;
use crate::failure::{Class, Failure};
use crate::gates::Features;
use crate::preflight::Preflight;
use apply::Revisions;
use attempted::Attempted;
use install::Settled;
use notices::Notice;
use removal::FINALIZERS;
use revisions::RevisionStates;
use status::Outcome;
use wanted::Refusal;

const NAME: &str = "controller-operator-clusterextension-controller";
/// Most of a reconcile is waiting for registries and the API server; one that waits long must not hold up others.
const CONCURRENCY: u16 = 32;
/// What depends on the rest of the cluster is looked at again after this time, though no watch told of a change.
const LOOK_AGAIN: Duration = Duration::from_secs(20);
/// How long an extension awaits the content of a catalog before it says so.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the controller works with.
pub(crate) struct Parts {
    /// The cluster.
    pub client: Client,
    /// Namespace of revision Secrets.
    pub system_namespace: String,
    /// Feature gates.
    pub features: Features,
    /// Flag `--dependency-mode`.
    pub dependency_mode: DependencyMode,
    /// Where Events go.
    pub events: Events,
    /// Catalog content.
    pub catalogs: Arc<Catalogs>,
    /// All ClusterCatalogs.
    pub catalog_store: Store<ClusterCatalog>,
    /// Bundle content.
    pub bundles: Bundles,
    /// Certificates of webhooks, where we issue them.
    pub certificates: WebhookCertificates,
}

struct Context {
    parts: Parts,
    settings: Settings,
    extensions: Api<ClusterExtension>,
    extensions_in_store: Store<ClusterExtension>,
    dependencies: Arc<Dependencies>,
    sets: Store<ClusterObjectSet>,
    sets_listed: CancellationToken,
    revisions: Revisions,
    preflight: Preflight,
    settled: Mutex<HashMap<String, Settled>>,
    /// Generation of each extension that was last turned into a revision, or had been when we first saw it.
    honoured: Mutex<HashMap<String, Option<i64>>>,
    /// Since when each extension has been waiting for the content of a catalog.
    waiting: Mutex<HashMap<String, Instant>>,
}

/// Runs the controller until `stop`. Catalog content must have been listed once.
pub(crate) async fn run(parts: Parts, metrics: Arc<Metrics>, stop: CancellationToken) {
    let client = parts.client.clone();
    let extensions: Api<ClusterExtension> = Api::all(client.clone());
    let (sets, sets_writer) = reflector::store();
    let sets_listed = CancellationToken::new();
    let dependencies = Arc::new(Dependencies::new(client.clone(), sets.clone()));
    let revisions = follow_revisions(&parts, sets_writer, Arc::clone(&dependencies), sets_listed.clone());
    let (definitions, woken, ended) = (Arc::clone(&dependencies), Arc::clone(&parts.catalogs), stop.clone());
    tokio::spawn(async move {
        ended.run_until_cancelled(definitions.follow_definitions(|| woken.announce())).await
    });
    let (store, writer) = reflector::store();
    // Our own status writes are no reason to look again.
    let relevant = predicates::generation.combine(predicates::finalizers).combine(predicates::annotations);
    let stream = watcher(extensions.clone(), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .applied_objects()
        .predicate_filter(relevant, Default::default());
    let catalogs = WatchStream::from_changes(parts.catalogs.changes()).map(drop);
    let revisions_of = Revisions::new(client.clone(), &parts.system_namespace);
    let context = Arc::new(Context {
        settings: settings(parts.features, parts.dependency_mode),
        parts,
        extensions,
        extensions_in_store: store.clone(),
        dependencies,
        sets,
        sets_listed,
        revisions: revisions_of,
        preflight: Preflight::new(client),
        settled: Mutex::default(),
        honoured: Mutex::default(),
        waiting: Mutex::default(),
    });
    let reconciles = Arc::new(Reconciles::new(NAME, "ClusterExtension", CONCURRENCY, metrics));
    Controller::for_stream(stream, store)
        .with_config(controller::Config::default().concurrency(CONCURRENCY))
        .owns_stream(revisions)
        .reconcile_all_on(catalogs)
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(
            move |extension: Arc<ClusterExtension>, context: Arc<Context>| {
                let reconciles = Arc::clone(&reconciles);
                async move {
                    reconciles
                        .run(&extension.name_any(), context.reconcile(&extension).boxed())
                        .await
                }
            },
            |_, error: &Infallible, _| match *error {},
            context,
        )
        .for_each(|_| ready(()))
        .await;
}

/// The watch on revisions. It keeps their store, and wakes all extensions where others than the owner are concerned.
fn follow_revisions(
    parts: &Parts,
    writer: Writer<ClusterObjectSet>,
    dependencies: Arc<Dependencies>,
    listed: CancellationToken,
) -> impl Stream<Item = Result<ClusterObjectSet, watcher::Error>> + Send + use<> {
    let (vanished, changed) = (Arc::clone(&parts.catalogs), Arc::clone(&parts.catalogs));
    let events = watcher(Api::<ClusterObjectSet>::all(parts.client.clone()), watcher::Config::default())
        .default_backoff()
        .reflect(writer);
    let events = announce_listed(events, listed).inspect(move |event| {
        // A revision that vanished while the watch was broken is in no event.
        if matches!(event, Ok(watcher::Event::InitDone)) {
            vanished.announce();
        }
    });
    dependencies.announce_changes(events, move || changed.announce()).touched_objects()
}

impl Context {
    async fn reconcile(&self, extension: &ClusterExtension) -> Result<Action, Attempt> {
        if extension.metadata.deletion_timestamp.is_some() {
            return self.finalize(extension).await;
        }
        if FINALIZERS.iter().any(|name| !extension.finalizers().iter().any(|has| has == name)) {
            let mut all = extension.finalizers().to_vec();
            all.extend(
                FINALIZERS
                    .iter()
                    .filter(|name| !extension.finalizers().iter().any(|has| has == *name))
                    .map(ToString::to_string),
            );
            self.set_finalizers(extension, &all).await?;
            return Ok(Action::await_change());
        }
        warn_of_service_account(extension);
        // Without its revisions an installed extension would look like a new one.
        self.sets_listed.cancelled().await;
        let name = extension.name_any();
        let rules = self.rules(extension);
        let states = revisions::states(&self.revisions_in_store(&name));
        let changed = self.is_changed(extension);
        let Some(attempted) = self.pass(extension, &rules, &states, changed).await else {
            return Ok(Action::requeue(PATIENCE));
        };
        let Attempted { pass, mut notices, mut over, look_again } = attempted;
        let result = pass.applied.clone();
        notices.extend(
            rules.invalid.iter().map(|fault| Notice::warning(notices::INVALID_ANNOTATION, fault.to_string())),
        );
        over.extend(rules.invalid.is_empty().then_some(notices::INVALID_ANNOTATION));
        let next = self.write(extension, &states, &Outcome::Tried(Box::new(pass))).await?;
        notices.extend(notices::of_change(extension.status.as_ref(), &next));
        over.extend(notices::over(&next));
        self.publish(extension, &over, notices);
        match result {
            Ok(_) => {
                lock(&self.honoured).insert(name, extension.metadata.generation);
                Ok(if look_again { Action::requeue(LOOK_AGAIN) } else { Action::await_change() })
            }
            // No growing delays: what is missing may come any time.
            Err(failure) if look_again => {
                tracing::info!(name, error = failure.message, "looking again soon");
                Ok(Action::requeue(LOOK_AGAIN))
            }
            Err(Failure { class: Class::Retry, message }) => Err(Attempt::retry(message)),
            Err(failure) => Err(Attempt::terminal(failure)),
        }
    }

    /// The rules that the extension is under.
    fn rules(&self, extension: &ClusterExtension) -> ExtensionRules {
        ExtensionRules::of(extension.metadata.annotations.as_ref(), self.settings)
    }

    /// Whether the extension was edited since a revision was last made or kept for it.
    fn is_changed(&self, extension: &ClusterExtension) -> bool {
        let status = extension.status.as_ref();
        let seen = status.and_then(|status| conditions::find(&status.conditions, types::PROGRESSING));
        let seen = seen.map_or(extension.metadata.generation, |seen| seen.observed_generation);
        let mut honoured = lock(&self.honoured);
        *honoured.entry(extension.name_any()).or_insert(seen) != extension.metadata.generation
    }

    /// Writes the status that follows, and returns it.
    async fn write(
        &self,
        extension: &ClusterExtension,
        states: &RevisionStates,
        outcome: &Outcome,
    ) -> Result<ClusterExtensionStatus, Attempt> {
        let old = extension.status.clone().unwrap_or_default();
        let next = status::next(&old, extension.metadata.generation, states, outcome, Timestamp::now());
        let written = write_status(&self.extensions, extension, &next).await;
        written
            .map(|_| next)
            .map_err(|error| Attempt::retry(format!("error updating status: {}", describe(&error))))
    }

    /// Whether an extension awaits the content of a catalog and has not done so for long.
    fn is_patient(&self, extension: &str, awaits_content: bool) -> bool {
        let mut waiting = lock(&self.waiting);
        if !awaits_content {
            waiting.remove(extension);
            return false;
        }
        waiting.entry(extension.to_owned()).or_insert_with(Instant::now).elapsed() < PATIENCE
    }

    /// Publishes Events; those under the reasons that are `over` are news when they come again.
    fn publish(&self, extension: &ClusterExtension, over: &[&'static str], all: Vec<Notice>) {
        let about = extension.object_ref(&());
        over.iter().for_each(|reason| self.parts.events.over(&about, reason));
        for Notice { warning, reason, note } in notices::merged(all) {
            let events = &self.parts.events;
            if warning {
                events.warning(about.clone(), reason, note);
            } else {
                events.normal(about.clone(), reason, note);
            }
        }
    }

    fn revisions_in_store(&self, extension: &str) -> Vec<Arc<ClusterObjectSet>> {
        let is_of = |set: &Arc<ClusterObjectSet>| {
            set.labels().get(labels::OWNER_NAME).is_some_and(|owner| owner == extension)
        };
        self.sets.state().into_iter().filter(is_of).collect()
    }

    /// Chooses and applies; `None` where there is nothing to say.
    async fn pass(
        &self,
        extension: &ClusterExtension,
        rules: &ExtensionRules,
        states: &RevisionStates,
        changed: bool,
    ) -> Option<Attempted> {
        let name = extension.name_any();
        let chosen = match catalog_filter(extension) {
            Ok(filter) => self.choose(&name, filter, rules, states, changed).boxed().await,
            Err(failure) => Err(Refusal::other(failure, rules)),
        };
        let old = extension.status.as_ref();
        match chosen {
            // Content that is on its way is no news for an extension that has said all that there is to say.
            Err(refusal) if refusal.awaits_content && !changed && old.is_some() => None,
            Err(refusal) => Some(Attempted::refused(*refusal, old)),
            Ok(choice) => {
                let wanted = &choice.wanted;
                let installation = self.install(extension, wanted, rules.crd_check, states, changed).await;
                Some(Attempted::chosen(choice, installation, rules, states, old))
            }
        }
    }
}

/// What is behind the lock, whatever became of who held it last.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What gates and flags say about the rules of all extensions.
fn settings(features: Features, dependencies: DependencyMode) -> Settings {
    Settings {
        dependencies,
        best_effort: features.best_effort,
        cluster_constraints: features.cluster_constraints,
        releases: features.releases,
    }
}

fn catalog_filter(extension: &ClusterExtension) -> Result<&CatalogFilter, Failure> {
    extension
        .spec
        .as_ref()
        .and_then(|spec| spec.source.catalog.as_ref())
        .ok_or_else(|| Failure::blocked("spec.source.catalog: Required value: says which package to install"))
}

fn warn_of_service_account(extension: &ClusterExtension) {
    let account = extension.spec.as_ref().and_then(|spec| spec.service_account.as_ref());
    if account.is_some_and(|account| !account.name.is_empty()) {
        tracing::info!(
            name = extension.name_any(),
            "spec.serviceAccount is deprecated, ignored, and will be removed in a future release"
        );
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_flag_names_what_is_allowed() {
        let parse = |argument: &str| olm_service::flags::parse::<crate::Flags>(&[argument.to_owned()]);
        assert!(parse("--dependency-mode=Check").is_ok());
        assert_eq!(
            parse("--dependency-mode=Solve").err().unwrap(),
            "invalid argument \"Solve\" for \"--dependency-mode\" flag: unknown value \"Solve\", allowed are Reject, \
             Report, Check"
        );
    }
}
