//! The extension controller: from a ClusterExtension to the revision that installs its bundle, and back to a status
//! (spec 05 §3).
//!
//! Observe the revisions ([`revisions`]) → choose a bundle ([`wanted`]) → pull and render it → make it the newest
//! revision ([`apply`]) → one status write ([`status`]).

mod apply;
mod revisions;
mod status;
mod wanted;

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::runtime::{Controller, Predicate, WatchStreamExt, controller, predicates, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use olm_api::cluster_extension::CatalogFilter;
use olm_api::conditions::{self, reasons, types};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, finalizers, labels};
use olm_bundle::{Bundle, RenderOptions};
use olm_revision::generate::{BundleIdentity, Draft, Extension};
use olm_service::cluster::{announce_listed, describe, within_deadline};
use olm_service::metrics::Metrics;
use olm_service::reconcile::{Failure as Attempt, Reconciles};
use olm_service::status::write_status;
use serde_json::{Value, json};
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

use crate::bundles::{Bundles, Files};
use crate::catalogs::Catalogs;
use crate::failure::{Class, Failure};
use crate::gates::Features;
use apply::{Applied, Revisions, invalid};
use revisions::RevisionStates;
use status::Outcome;
use wanted::{Market, Refusal, Wanted, choose};

const NAME: &str = "controller-operator-clusterextension-controller";
/// Most of a reconcile is waiting for registries and the API server; one that waits long must not hold up others.
const CONCURRENCY: u16 = 32;
const FINALIZERS: [&str; 2] = [finalizers::CLEANUP_UNPACK_CACHE, finalizers::CLEANUP_CONTENTMANAGER_CACHE];

/// What the controller works with.
pub(crate) struct Parts {
    /// The cluster.
    pub client: Client,
    /// Namespace of revision Secrets.
    pub system_namespace: String,
    /// Feature gates.
    pub features: Features,
    /// Catalog content.
    pub catalogs: Arc<Catalogs>,
    /// All ClusterCatalogs.
    pub catalog_store: Store<ClusterCatalog>,
    /// Bundle content.
    pub bundles: Bundles,
}

struct Context {
    parts: Parts,
    extensions: Api<ClusterExtension>,
    sets: Store<ClusterObjectSet>,
    sets_listed: CancellationToken,
    revisions: Revisions,
    settled: Mutex<HashMap<String, Settled>>,
    /// Generation of each extension that was last turned into a revision, or had been when we first saw it.
    honoured: Mutex<HashMap<String, Option<i64>>>,
}

/// Inputs that were found to be what the newest revision was made from.
#[derive(Clone, Debug, PartialEq)]
struct Settled {
    inputs: Inputs,
    newest: (Option<String>, Option<i64>),
}

/// All that a revision is made from.
#[derive(Clone, Debug, PartialEq)]
struct Inputs {
    uid: Option<String>,
    namespace: String,
    config: Option<Value>,
    deadline: Option<i32>,
    bundle: BundleIdentity,
}

/// Runs the controller until `stop`. Catalog content must have been listed once.
pub(crate) async fn run(parts: Parts, metrics: Arc<Metrics>, stop: CancellationToken) {
    let client = parts.client.clone();
    let extensions: Api<ClusterExtension> = Api::all(client.clone());
    let (sets, sets_writer) = reflector::store();
    let listed = Arc::clone(&parts.catalogs);
    let sets_listed = CancellationToken::new();
    let revisions = watcher(Api::<ClusterObjectSet>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .reflect(sets_writer);
    let revisions = announce_listed(revisions, sets_listed.clone())
        .inspect(move |event| {
            // A revision that vanished while the watch was broken is in no event.
            if matches!(event, Ok(watcher::Event::InitDone)) {
                listed.announce();
            }
        })
        .touched_objects();
    let (store, writer) = reflector::store();
    // Our own status writes are no reason to look again.
    let relevant = predicates::generation.combine(predicates::finalizers).combine(predicates::annotations);
    let stream = watcher(extensions.clone(), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .applied_objects()
        .predicate_filter(relevant, Default::default());
    let catalogs = WatchStream::from_changes(parts.catalogs.changes()).map(drop);
    let revisions_of = Revisions::new(client, &parts.system_namespace);
    let context = Arc::new(Context {
        parts,
        extensions,
        sets,
        sets_listed,
        revisions: revisions_of,
        settled: Mutex::default(),
        honoured: Mutex::default(),
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
        let states = revisions::states(&self.revisions_in_store(&name));
        let changed = self.is_changed(extension);
        let (outcome, result) = self.pass(extension, &states, changed).await;
        let Some(outcome) = outcome else { return Ok(Action::await_change()) };
        self.write(extension, &states, &outcome).await?;
        if let Outcome::Applied { .. } = outcome {
            let mut honoured = self.honoured.lock().unwrap_or_else(PoisonError::into_inner);
            honoured.insert(name, extension.metadata.generation);
        }
        match result {
            Ok(()) => Ok(Action::await_change()),
            Err(Failure { class: Class::Retry, message }) => Err(Attempt::retry(message)),
            Err(failure) => Err(Attempt::terminal(failure)),
        }
    }

    /// Whether the extension was edited since a revision was last made or kept for it.
    fn is_changed(&self, extension: &ClusterExtension) -> bool {
        let status = extension.status.as_ref();
        let seen = status.and_then(|status| conditions::find(&status.conditions, types::PROGRESSING));
        let seen = seen.map_or(extension.metadata.generation, |seen| seen.observed_generation);
        let mut honoured = self.honoured.lock().unwrap_or_else(PoisonError::into_inner);
        *honoured.entry(extension.name_any()).or_insert(seen) != extension.metadata.generation
    }

    async fn write(
        &self,
        extension: &ClusterExtension,
        states: &RevisionStates,
        outcome: &Outcome,
    ) -> Result<(), Attempt> {
        let old = extension.status.clone().unwrap_or_default();
        let next = status::next(&old, extension.metadata.generation, states, outcome, Timestamp::now());
        let written = write_status(&self.extensions, extension, &next).await;
        written
            .map(drop)
            .map_err(|error| Attempt::retry(format!("error updating status: {}", describe(&error))))
    }

    fn revisions_in_store(&self, extension: &str) -> Vec<Arc<ClusterObjectSet>> {
        let is_of = |set: &Arc<ClusterObjectSet>| {
            set.labels().get(labels::OWNER_NAME).is_some_and(|owner| owner == extension)
        };
        self.sets.state().into_iter().filter(is_of).collect()
    }

    /// Chooses and applies. The outcome, if there is any, goes into the status; the result says whether to try again.
    async fn pass(
        &self,
        extension: &ClusterExtension,
        states: &RevisionStates,
        changed: bool,
    ) -> (Option<Outcome>, Result<(), Failure>) {
        let chosen = match catalog_filter(extension) {
            Ok(filter) => self.choose(filter, states, changed),
            Err(failure) => Err(Refusal { failure, awaits_content: false }),
        };
        let wanted = match chosen {
            Ok(wanted) => wanted,
            // Content that is on its way is no news for an extension that has said all that there is to say.
            Err(refusal) if refusal.awaits_content && !changed && extension.status.is_some() => {
                return (None, Ok(()));
            }
            Err(Refusal { failure, .. }) => {
                let outcome =
                    Outcome::NotResolved { failure: failure.clone(), deprecation: status::Knowledge::None };
                return (Some(outcome), Err(failure));
            }
        };
        let deprecation = wanted.deprecation.clone();
        match self.install(extension, &wanted, states, changed).await {
            Ok(created) => (Some(Outcome::Applied { created, deprecation }), Ok(())),
            Err(failure) => {
                let bundle = &wanted.bundle;
                let context =
                    format!("error for resolved bundle {:?} with version {:?}", bundle.name, bundle.version);
                let failure = failure.context(context);
                (Some(Outcome::NotApplied { failure: failure.clone(), deprecation }), Err(failure))
            }
        }
    }

    fn choose(
        &self,
        filter: &CatalogFilter,
        states: &RevisionStates,
        changed: bool,
    ) -> Result<Wanted, Refusal> {
        let catalogs = self.parts.catalog_store.state();
        let market = Market {
            catalogs: &catalogs,
            // The first look into a package reads the disk.
            package: |catalog: &ClusterCatalog, package: &str| {
                tokio::task::block_in_place(|| self.parts.catalogs.package(catalog, package))
            },
            release_support: self.parts.features.releases,
        };
        choose(filter, states, changed, &market)
    }

    /// Makes the wanted bundle the newest revision; says whether a revision was made.
    async fn install(
        &self,
        extension: &ClusterExtension,
        wanted: &Wanted,
        states: &RevisionStates,
        changed: bool,
    ) -> Result<bool, Failure> {
        let name = extension.name_any();
        check_name(&name)?;
        let inputs = inputs(extension, wanted);
        if self.is_settled(&name, &inputs) {
            return Ok(false);
        }
        let files = match self.parts.bundles.files(&name, &wanted.image).boxed().await {
            Ok(files) => files,
            Err(failure) => return self.without_content(&name, &inputs, wanted, states, changed, failure),
        };
        let features = self.parts.features;
        let owned = inputs.clone();
        let owner = Extension {
            name: name.clone(),
            uid: extension.uid().unwrap_or_default(),
            progress_deadline_minutes: inputs.deadline,
        };
        let draft = tokio::task::spawn_blocking(move || draft(owner, &files, owned, features)).await;
        let draft = draft.map_err(Failure::retry)??;
        if let Some(warning) = &draft.warning {
            tracing::warn!(extension = name, "{warning}");
        }
        let Applied { created, newest } = self.revisions.apply(&name, &draft).boxed().await?;
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).insert(name, Settled { inputs, newest });
        Ok(created)
    }

    /// The bundle cannot be had. Where it is the installed one, the revision goes on by itself, unless it was to be
    /// made anew from other settings (spec 05 §§3.5, 18.5).
    fn without_content(
        &self,
        name: &str,
        inputs: &Inputs,
        wanted: &Wanted,
        states: &RevisionStates,
        changed: bool,
        failure: Failure,
    ) -> Result<bool, Failure> {
        let is_installed = states.installed.as_ref().is_some_and(|installed| {
            installed.bundle.name == wanted.bundle.name && installed.bundle.version == wanted.bundle.version
        });
        let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        let is_edited = settled.map_or(changed, |settled| settled.inputs != *inputs);
        if is_installed && !is_edited {
            tracing::warn!(extension = name, error = failure.message, "bundle content is not available");
            return Ok(false);
        }
        Err(failure)
    }

    /// Whether the newest revision is known to be made from these inputs, and is doing well.
    fn is_settled(&self, name: &str, inputs: &Inputs) -> bool {
        let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        let Some(settled) = settled.filter(|settled| settled.inputs == *inputs) else {
            return false;
        };
        let all = self.revisions_in_store(name);
        let Some(newest) = all.iter().max_by_key(|set| revisions::number(set)) else {
            return false;
        };
        let progressing = newest
            .status
            .as_ref()
            .and_then(|status| conditions::find(&status.conditions, types::PROGRESSING))
            .map(|condition| condition.reason.as_str());
        let is_well = matches!(progressing, None | Some(reasons::ROLLING_OUT | reasons::SUCCEEDED));
        is_well && settled.newest == (newest.uid(), newest.metadata.generation)
    }

    /// The extension goes: forget what is kept for it. Its revisions follow by garbage collection, which takes their
    /// objects along in order.
    async fn finalize(&self, extension: &ClusterExtension) -> Result<Action, Attempt> {
        let name = extension.name_any();
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
        self.honoured.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
        let rest: Vec<String> = extension
            .finalizers()
            .iter()
            .filter(|name| !FINALIZERS.contains(&name.as_str()))
            .cloned()
            .collect();
        if rest.len() == extension.finalizers().len() {
            return Ok(Action::await_change());
        }
        if let Err(error) = tokio::task::block_in_place(|| self.parts.bundles.remove(&name)) {
            let failure =
                Failure::retry(format!("finalizer {:?} failed: {error}", finalizers::CLEANUP_UNPACK_CACHE));
            let states = revisions::states(&self.revisions_in_store(&name));
            self.write(extension, &states, &Outcome::FinalizerFailed(failure.clone())).await?;
            return Err(Attempt::retry(failure));
        }
        self.set_finalizers(extension, &rest).await?;
        Ok(Action::await_change())
    }

    async fn set_finalizers(&self, extension: &ClusterExtension, all: &[String]) -> Result<(), Attempt> {
        let metadata = json!({"finalizers": all, "resourceVersion": extension.metadata.resource_version});
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        match within_deadline(self.extensions.patch(&extension.name_any(), &PatchParams::default(), &patch))
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(Attempt::retry(format!("error updating finalizers: {}", describe(&error)))),
        }
    }
}

fn catalog_filter(extension: &ClusterExtension) -> Result<&CatalogFilter, Failure> {
    extension
        .spec
        .as_ref()
        .and_then(|spec| spec.source.catalog.as_ref())
        .ok_or_else(|| Failure::blocked("spec.source.catalog: Required value: says which package to install"))
}

fn inputs(extension: &ClusterExtension, wanted: &Wanted) -> Inputs {
    let spec = extension.spec.as_ref();
    let config = spec.and_then(|spec| spec.config.as_ref()).and_then(|config| config.inline.clone());
    Inputs {
        uid: extension.uid(),
        namespace: spec.map(|spec| spec.namespace.clone()).unwrap_or_default(),
        config: config.map(Value::Object),
        deadline: spec.and_then(|spec| spec.progress_deadline_minutes),
        bundle: BundleIdentity {
            name: wanted.bundle.name.clone(),
            package: wanted.package.clone(),
            version: wanted.bundle.version.clone(),
            release: wanted.bundle.release.clone(),
            image: wanted.image.clone(),
            properties: None,
        },
    }
}

/// The names of an extension's revisions are label values.
fn check_name(name: &str) -> Result<(), Failure> {
    const LONGEST: usize = 61;
    if name.len() <= LONGEST {
        return Ok(());
    }
    Err(Failure::blocked(format!(
        "metadata.name is too long: {} characters, at most {LONGEST} are allowed because revisions are named after it",
        name.len()
    )))
}

/// Renders the bundle and prepares its revision. Takes CPU time.
fn draft(owner: Extension, files: &Files, inputs: Inputs, features: Features) -> Result<Draft, Failure> {
    let bundle = Bundle::load(files).map_err(Failure::retry)?;
    let options = RenderOptions {
        install_namespace: &inputs.namespace,
        config: inputs.config.as_ref(),
        certificates: features.certificates,
        single_own_namespace: features.single_own_namespace,
        deployment_config: features.deployment_config,
    };
    let objects = olm_bundle::render(&bundle, &options).map_err(|error| {
        let invalid = error.is_invalid_configuration();
        let failure = Failure::retry(error);
        if invalid { Failure { class: Class::InvalidConfiguration, ..failure } } else { failure }
    })?;
    let identity = BundleIdentity { properties: bundle.properties().map(str::to_owned), ..inputs.bundle };
    Draft::new(owner, &identity, objects).map_err(invalid)
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
