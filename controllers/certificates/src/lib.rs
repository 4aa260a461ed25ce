//! The built-in provider of webhook certificates: a CA and a serving certificate for each Service that serves
//! webhooks of a bundle, in Secrets in its namespace, renewed without a failed call
//! (docs/design/additions.md#built-in-webhook-certificates, docs/design/bundles.md#webhook-certificates).
//!
//! ```text
//! contents of active revisions ─────── needs ► Services and objects ─┐
//! the two Secrets of a Service ─ secrets ► facts ─ plan ► next step ─┴► Secrets written, CA bundles injected
//! ```
//!
//! [`needs`], [`plan`], [`secrets`] and [`injection`] decide. This module reads, writes and waits. The extension owns
//! the Secrets, so garbage collection deletes them with it. Deleting the Secret of a CA creates a new CA, and the old
//! one stays trusted for the overlap. If its key is compromised, delete both Secrets. If another provider is selected
//! and no extension still needs this one, nothing is watched.

mod creation;
mod injection;
mod needs;
mod objects;
mod plan;
mod secrets;
mod triggers;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_bundle::{Injection, InjectionKind, Serving};
use olm_controller_core::RevisionCache;
use olm_controller_core::content::content_secrets;
use olm_controller_core::install_error::{InstallError, api_request};
use olm_revision::content::resolve_as_is;
use olm_revision::contention::Contentions;
use olm_runtime::events::Events;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

pub use creation::CertifiedCluster;
use needs::{Needs, RequiredCertificates, ca_secret};
pub use objects::resource;
use objects::{Injected, write};
pub use plan::Times;
use plan::{Cause, Step, next};
use secrets::{Owner, ServiceSecrets, expiry};

/// Reason of Events about renewed certificates.
const RENEWED: &str = "WebhookCertificatesRenewed";
/// Reason of Events about certificates that cannot be maintained.
const FAILED: &str = "WebhookCertificatesFailed";
/// Maximum number of steps in one pass over a Service. Concurrent writers of the same Secrets use some of them up.
const MAX_STEPS: usize = 12;

/// Capacity of the channel of unblocked extensions.
const MAX_UNBLOCKED: usize = 64;

/// Issues and renews the certificates. Cheap to clone.
#[derive(Clone)]
pub struct WebhookCertificates(Arc<Provider>);

struct Provider {
    client: Client,
    cache: RevisionCache,
    system_namespace: String,
    events: Events,
    times: Times,
    /// Cancelled when the first extension needs the provider.
    needed: CancellationToken,
    /// Cancelled when the first APIService needs a CA bundle. Until then, none is watched: the account may lack the
    /// right.
    has_api_service: CancellationToken,
    /// State by name of the extension, for those that need certificates or did.
    known: Mutex<HashMap<String, ExtensionState>>,
    /// Watched Secrets that block an extension: name of the extension, UID of the Secret.
    blocking: Mutex<BTreeSet<(String, String)>>,
    /// Changes of CA bundles by other clients.
    contentions: Contentions,
    /// Sends the name of an extension when the watch on a Secret that blocks it ends.
    unblocked: broadcast::Sender<String>,
}

/// Cached state of an extension. Everything except `expected` can be derived again.
#[derive(Default)]
struct ExtensionState {
    uid: String,
    /// Needs of the next revision, before it exists.
    expected: Vec<Injection>,
    /// Generation and needs of each revision, by its UID.
    read: HashMap<String, (Option<i64>, Arc<Needs>)>,
    carried: HashMap<Serving, InjectedBundle>,
}

/// Summary of the state of an extension.
#[derive(Clone, Debug)]
pub struct KnownExtension {
    /// Number of revisions whose content was read.
    pub revisions: usize,
    /// CA bundles that all objects carry, PEM, one for each Service.
    pub bundles: Vec<Vec<u8>>,
}

/// A bundle that all objects carry.
#[derive(Clone)]
struct InjectedBundle {
    bundle: Vec<u8>,
    since: Instant,
}

/// Result of all steps that could be taken for a Service.
struct MaintainedSecrets {
    bundle: Vec<u8>,
    /// Time of the next step.
    until: Timestamp,
}

impl WebhookCertificates {
    /// Creates the provider. Content references without a namespace resolve to `system_namespace`.
    pub fn new(
        client: Client,
        cache: RevisionCache,
        system_namespace: &str,
        events: Events,
        times: Times,
    ) -> Self {
        Self(Arc::new(Provider {
            client,
            cache,
            system_namespace: system_namespace.to_owned(),
            events,
            times,
            needed: CancellationToken::new(),
            has_api_service: CancellationToken::new(),
            known: Mutex::default(),
            blocking: Mutex::default(),
            contentions: Contentions::default(),
            unblocked: broadcast::Sender::new(MAX_UNBLOCKED),
        }))
    }

    /// Ensures that the Secrets for these injections exist. Must be called with the injections of a revision, even if
    /// there are none, before the revision is applied: its pods mount the Secrets. Certificates of older revisions
    /// are retained while these are active.
    ///
    /// # Errors
    /// A Secret of this name is not ours, or the API server rejects a request.
    pub async fn ensure(
        &self,
        extension: &ClusterExtension,
        injections: &[Injection],
    ) -> Result<(), InstallError> {
        let owner = Owner::of(extension);
        let provider = &self.0;
        if injections.is_empty() && !provider.is_known(&owner.name) {
            return Ok(());
        }
        provider.with_state(&owner, |known| known.expected = injections.to_vec());
        provider.notice_api_services(injections);
        let (revisions, _) = provider.revisions(&owner).await;
        let required =
            RequiredCertificates::new(&revisions.iter().map(AsRef::as_ref).collect::<Vec<_>>(), injections);
        for serving in injections.iter().map(|injection| &injection.serving).collect::<BTreeSet<_>>() {
            provider.maintain(&owner, serving, required.is_issued_by_others(serving)).await?;
        }
        if !injections.is_empty() {
            provider.needed.cancel();
        }
        // A CRD without conversion cannot be applied while we own a part of its conversion.
        let converted = revisions.iter().flat_map(|needs| &needs.injections);
        for injection in converted.filter(|one| one.kind == InjectionKind::Crd) {
            if !injections.iter().any(|other| (other.kind, &other.name) == (injection.kind, &injection.name))
            {
                provider.release(&owner, injection).await?;
            }
        }
        Ok(())
    }

    /// What is remembered of an extension. `None` if it needs no certificates.
    pub fn known(&self, extension: &str) -> Option<KnownExtension> {
        let known = self.0.known.lock();
        let state = known.get(extension)?;
        let bundles = state.carried.values().map(|carried| carried.bundle.clone()).collect();
        Some(KnownExtension { revisions: state.read.len(), bundles })
    }
}

impl Provider {
    fn is_known(&self, extension: &str) -> bool {
        self.known.lock().contains_key(extension)
    }

    fn notice_api_services(&self, injections: &[Injection]) {
        if injections.iter().any(|injection| injection.kind == InjectionKind::ApiService) {
            self.has_api_service.cancel();
        }
    }

    /// Reads or changes the state of an extension. State of an earlier extension of the same name is discarded.
    fn with_state<T>(&self, owner: &Owner, change: impl FnOnce(&mut ExtensionState) -> T) -> T {
        let mut all = self.known.lock();
        let known = all.entry(owner.name.clone()).or_default();
        if known.uid != owner.uid {
            *known = ExtensionState { uid: owner.uid.clone(), ..ExtensionState::default() };
        }
        change(known)
    }

    /// Runs one pass over an extension. Returns the time of the next one.
    async fn pass(self: &Arc<Self>, owner: &Owner) -> Result<Timestamp, InstallError> {
        // Must precede `revisions`: Secrets that exist now were expected before they were created.
        let existing = self.existing(owner).await?;
        let (revisions, unread) = self.revisions(owner).await;
        let newest_first: Vec<&Needs> = revisions.iter().map(AsRef::as_ref).collect();
        let required = self.with_state(owner, |known| {
            let required = RequiredCertificates::new(&newest_first, &known.expected);
            known.carried.retain(|serving, _| required.servings.contains_key(serving));
            required
        });
        let mut until = Timestamp::MAX;
        let mut failures: Vec<InstallError> = unread.into_iter().collect();
        let all_read = failures.is_empty();
        for (serving, targets) in &required.servings {
            let issued_by_others = required.is_issued_by_others(serving);
            match self.maintain_service(owner, serving, targets, all_read, issued_by_others).await {
                Ok(next) => until = until.min(next),
                Err(failure) => failures.push(failure),
            }
        }
        for injection in &required.released {
            failures.extend(self.release(owner, injection).await.err());
        }
        if all_read {
            for secret in &existing {
                failures.extend(self.remove_unneeded(secret, &required).await.err());
            }
            if required == RequiredCertificates::default() && existing.is_empty() {
                let mut known = self.known.lock();
                if known.get(&owner.name).is_some_and(|known| known.expected.is_empty()) {
                    known.remove(&owner.name);
                }
            }
        }
        match failures.len() {
            0 => Ok(until),
            _ => Err(InstallError::retry(
                failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            )),
        }
    }

    /// Returns the needs of the active revisions, newest first, and the error of an unreadable one.
    async fn revisions(&self, owner: &Owner) -> (Vec<Arc<Needs>>, Option<InstallError>) {
        let mut revisions = self.cache.labeled(&owner.name);
        revisions.retain(|revision| is_active_revision_of(revision, owner));
        revisions.sort_by_key(|revision| std::cmp::Reverse(revision.number()));
        let mut read = self.with_state(owner, |known| std::mem::take(&mut known.read));
        let (mut needs, mut unread) = (Vec::new(), None);
        let mut now_read = HashMap::new();
        for revision in revisions {
            let (uid, generation) = (revision.uid().unwrap_or_default(), revision.metadata.generation);
            let known = read.remove(&uid).filter(|(seen, _)| *seen == generation);
            let found = match known {
                Some((_, needs)) => Ok(needs),
                None => self.read(&revision).await.map(Arc::new),
            };
            match found {
                Ok(found) => {
                    self.notice_api_services(&found.injections);
                    now_read.insert(uid, (generation, Arc::clone(&found)));
                    needs.push(found);
                }
                Err(failure) => {
                    unread = Some(failure.context(format!("content of revision {}", revision.name_any())))
                }
            }
        }
        self.with_state(owner, |known| known.read.extend(now_read));
        (needs, unread)
    }

    async fn read(&self, revision: &ClusterObjectSet) -> Result<Needs, InstallError> {
        let Some(spec) = &revision.spec else { return Ok(Needs::default()) };
        let found = content_secrets(&self.client, Some(spec), &self.system_namespace).await?;
        tokio::task::block_in_place(|| {
            let phases = resolve_as_is(spec, &self.system_namespace, &found).map_err(InstallError::retry)?;
            Ok(Needs::of(&phases))
        })
    }

    /// Maintains the Secrets of one Service and the bundle in `targets`, the objects that call it. Unless these
    /// `are_all`, objects may lack the bundle, and no new CA may sign yet.
    async fn maintain_service(
        self: &Arc<Self>,
        owner: &Owner,
        serving: &Serving,
        targets: &[Injection],
        are_all: bool,
        issued_by_others: bool,
    ) -> Result<Timestamp, InstallError> {
        let MaintainedSecrets { bundle, until } = self.maintain(owner, serving, issued_by_others).await?;
        let is_carried =
            |known: &mut ExtensionState| known.carried.get(serving).is_some_and(|one| one.bundle == bundle);
        let was_carried = self.with_state(owner, is_carried);
        let (mut is_written, mut injected) = (false, Timestamp::MAX);
        for target in targets {
            match self.inject(owner, target, &bundle, was_carried).await? {
                Injected::Unchanged => {}
                Injected::Written => is_written = true,
                Injected::Delayed(delay) => injected = injected.min(after(delay)),
            }
        }
        if !are_all || was_carried && !is_written {
            return Ok(until.min(injected));
        }
        let carried = InjectedBundle { bundle, since: Instant::now() };
        self.with_state(owner, |known| known.carried.insert(serving.clone(), carried));
        let MaintainedSecrets { until, .. } = self.maintain(owner, serving, issued_by_others).await?;
        Ok(until.min(injected))
    }

    /// Executes steps until the next one is not due yet.
    async fn maintain(
        self: &Arc<Self>,
        owner: &Owner,
        serving: &Serving,
        issued_by_others: bool,
    ) -> Result<MaintainedSecrets, InstallError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &serving.namespace);
        let get = async |name: &str| {
            api_request(secrets.get_opt(name), format!("getting Secret {}/{name}", serving.namespace)).await
        };
        for _ in 0..MAX_STEPS {
            let (ca, leaf) = (get(&ca_secret(serving)).await?, get(&serving.secret).await?);
            let found = ServiceSecrets { owner, serving, issued_by_others, ca, leaf };
            if let Err(conflict) = found.check() {
                let read = [&found.ca, &found.leaf].into_iter().flatten();
                read.for_each(|secret| self.wake_on_change(owner, secret));
                return Err(InstallError::retry(conflict));
            }
            // Garbage collection deletes the Secrets of a deleted extension, and its operator still uses the mounted
            // ones.
            if (found.ca.is_none() || found.leaf.is_none()) && !self.exists(owner).await? {
                return Err(InstallError::retry(format!("ClusterExtension {:?} was deleted", owner.name)));
            }
            let now = Timestamp::now();
            let bundle = found.bundle(now);
            let carried_for = self.with_state(owner, |known| {
                let carried = known.carried.get(serving).filter(|carried| carried.bundle == bundle)?;
                Some(carried.since.elapsed())
            });
            let step = next(&found.facts(carried_for, now), &self.times, now);
            if let Step::Wait(until) = step {
                return Ok(MaintainedSecrets { bundle, until });
            }
            let Some(secret) = found.written(step, now).map_err(InstallError::retry)? else {
                continue;
            };
            if write(&secrets, &secret).await? {
                self.publish_step(&found, step, &secret);
            }
        }
        let (namespace, name) = (&serving.namespace, &serving.secret);
        Err(InstallError::retry(format!("Secret {namespace}/{name} changed before each write")))
    }

    async fn exists(&self, owner: &Owner) -> Result<bool, InstallError> {
        let extensions: Api<ClusterExtension> = Api::all(self.client.clone());
        let found = extensions.get_metadata_opt(&owner.name);
        let found = api_request(found, "getting ClusterExtension").await?;
        Ok(found.is_some_and(|found| found.metadata.uid.as_ref() == Some(&owner.uid)))
    }

    fn publish_step(&self, found: &ServiceSecrets<'_>, step: Step, secret: &Secret) {
        let serving = found.serving;
        let service = format!("{}/{}", serving.namespace, serving.service);
        tracing::info!(extension = found.owner.name, service, ?step, "wrote webhook certificates");
        let until = expiry(secret).map_or_else(String::new, |until| format!(", valid until {until}"));
        let note = match step {
            Step::NewAuthority(_) if found.ca.is_none() && found.leaf.is_none() => return,
            Step::NewAuthority(cause) => {
                let cause = match cause {
                    Cause::Missing => "no usable CA existed",
                    Cause::Due => "two thirds of the validity of the previous CA have passed",
                    Cause::Asked => "a renewal was requested",
                };
                format!("new CA for webhooks of Service {service}{until}: {cause}")
            }
            Step::NewLeaf if found.leaf.is_some() => {
                format!("new serving certificate for webhooks of Service {service}{until}")
            }
            _ => return,
        };
        self.events.normal(found.owner.about.clone(), RENEWED, note);
    }
}

/// Returns `true` if the revision is active and does not belong to an earlier extension of the same name.
fn is_active_revision_of(revision: &ClusterObjectSet, owner: &Owner) -> bool {
    revision.is_active() && revision.controller().is_none_or(|reference| reference.uid == owner.uid)
}

/// Returns the time after this delay.
fn after(delay: Duration) -> Timestamp {
    Timestamp::now().checked_add(delay).unwrap_or(Timestamp::MAX)
}

/// Returns the time until `until`, zero if it has passed.
fn duration_until(until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default()
}
