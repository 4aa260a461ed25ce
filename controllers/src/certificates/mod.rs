//! The built-in provider of webhook certificates: a CA and a serving certificate for each Service that serves
//! webhooks of a bundle, in Secrets in its namespace, renewed without a failed call
//! (docs/design/additions.md#built-in-webhook-certificates, docs/design/bundles.md#webhook-certificates).
//!
//! ```text
//! contents of active revisions ─────── needs ► Services and objects ─┐
//! the two Secrets of a Service ─ secrets ► facts ─ plan ► next step ─┴► Secrets written, CA bundles injected
//! ```
//!
//! [`needs`], [`plan`], [`secrets`] and [`injecting`] decide. This module reads, writes and waits. The extension owns
//! the Secrets, so garbage collection deletes them with it. Deleting the Secret of a CA creates a new CA, and the old
//! one stays trusted for the overlap. If its key is compromised, delete both Secrets. If another provider is selected
//! and no extension needs this one anymore, nothing is watched.

mod injecting;
mod needs;
mod plan;
mod secrets;
#[cfg(test)]
mod tests;
mod watching;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::names::WEBHOOK_CERTIFICATES_MANAGER;
use olm_api::{ClusterExtension, ClusterObjectSet, labels};
use olm_bundle::{Injection, InjectionKind, Serving};
use olm_revision::content::{resolve_as_is, secrets as content_secrets};
use olm_revision::generate::number_of;
use olm_runtime::cluster::within_deadline;
use olm_runtime::events::Events;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::revision_cache::RevisionCache;
use needs::{Needs, Wanted, ca_secret};
pub(crate) use plan::Times;
use plan::{Cause, Step, next};
use secrets::{Found, Owner, expiry};

/// Reason of Events about renewed certificates.
const RENEWED: &str = "WebhookCertificatesRenewed";
/// Reason of Events about certificates that cannot be maintained.
const FAILED: &str = "WebhookCertificatesFailed";
/// Maximum number of steps in one pass over a Service. Concurrent writers of the same Secrets use some of them up.
const MOST_STEPS: usize = 12;

/// Capacity of the channel of unblocked extensions.
const MOST_UNBLOCKED: usize = 64;

/// Issues and renews the certificates. Cheap to clone.
#[derive(Clone)]
pub(crate) struct WebhookCertificates(Arc<Provider>);

struct Provider {
    client: Client,
    cache: RevisionCache,
    system_namespace: String,
    events: Events,
    times: Times,
    /// Cancelled when the first extension needs the provider.
    needed: CancellationToken,
    /// State by name of the extension, for those that need certificates or did.
    known: Mutex<HashMap<String, Known>>,
    /// Watched Secrets that block an extension: name of the extension, UID of the Secret.
    blocking: Mutex<BTreeSet<(String, String)>>,
    /// Sends the name of an extension when the watch on a Secret that blocks it ends.
    unblocked: broadcast::Sender<String>,
}

/// Cached state of an extension. Everything except `expected` can be derived again.
#[derive(Default)]
struct Known {
    uid: String,
    /// Needs of the next revision, before it exists.
    expected: Vec<Injection>,
    /// Generation and needs of each revision, by its UID.
    read: HashMap<String, (Option<i64>, Arc<Needs>)>,
    carried: HashMap<Serving, Carried>,
}

/// A bundle that all objects carry.
#[derive(Clone)]
struct Carried {
    bundle: Vec<u8>,
    since: Instant,
}

/// Objects that call a Service.
#[derive(Clone, Copy)]
struct Targets<'a> {
    known: &'a [Injection],
    /// `true` if `known` is complete. Otherwise objects may lack the bundle, and no new CA may sign yet.
    are_all: bool,
}

/// Result of all steps that could be taken for a Service.
struct Kept {
    bundle: Vec<u8>,
    /// Time of the next step.
    until: Timestamp,
}

impl WebhookCertificates {
    /// Creates the provider. Content references without a namespace resolve to `system_namespace`.
    pub(crate) fn new(
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
            known: Mutex::default(),
            blocking: Mutex::default(),
            unblocked: broadcast::Sender::new(MOST_UNBLOCKED),
        }))
    }

    /// Ensures that the Secrets for these injections exist. Must be called with the injections of a revision, even if
    /// there are none, before the revision is applied: its pods mount the Secrets. Certificates of older revisions
    /// are retained while these are active.
    ///
    /// # Errors
    /// A Secret of this name is not ours, or the API server rejects a request.
    pub(crate) async fn ensure(
        &self,
        extension: &ClusterExtension,
        injections: &[Injection],
    ) -> Result<(), Failure> {
        let owner = Owner::of(extension);
        let provider = &self.0;
        if injections.is_empty() && !provider.is_known(&owner.name) {
            return Ok(());
        }
        provider.with_known(&owner, |known| known.expected = injections.to_vec());
        let (revisions, _) = provider.revisions(&owner).await;
        let wanted = Wanted::new(&revisions.iter().map(AsRef::as_ref).collect::<Vec<_>>(), injections);
        for serving in injections.iter().map(|injection| &injection.serving).collect::<BTreeSet<_>>() {
            provider.keep(&owner, serving, wanted.is_issued_by_others(serving)).await?;
        }
        if !injections.is_empty() {
            provider.needed.cancel();
        }
        // A CRD without conversion cannot be applied while we own a part of its conversion.
        let converted = revisions.iter().flat_map(|needs| &needs.injections);
        for injection in converted.filter(|one| one.kind == InjectionKind::Definition) {
            if !injections.iter().any(|other| (other.kind, &other.name) == (injection.kind, &injection.name))
            {
                provider.release(&owner, injection).await?;
            }
        }
        Ok(())
    }
}

impl Provider {
    fn is_known(&self, extension: &str) -> bool {
        self.known.lock().contains_key(extension)
    }

    /// Reads or changes the state of an extension. State of an earlier extension of the same name is discarded.
    fn with_known<T>(&self, owner: &Owner, change: impl FnOnce(&mut Known) -> T) -> T {
        let mut all = self.known.lock();
        let known = all.entry(owner.name.clone()).or_default();
        if known.uid != owner.uid {
            *known = Known { uid: owner.uid.clone(), ..Known::default() };
        }
        change(known)
    }

    /// Runs one pass over an extension. Returns the time of the next one.
    async fn pass(self: &Arc<Self>, owner: &Owner) -> Result<Timestamp, Failure> {
        // Must precede `revisions`: Secrets that exist now were expected before they were created.
        let existing = self.existing(owner).await?;
        let (revisions, unread) = self.revisions(owner).await;
        let newest_first: Vec<&Needs> = revisions.iter().map(AsRef::as_ref).collect();
        let wanted = self.with_known(owner, |known| {
            let wanted = Wanted::new(&newest_first, &known.expected);
            known.carried.retain(|serving, _| wanted.servings.contains_key(serving));
            wanted
        });
        let mut until = Timestamp::MAX;
        let mut failures: Vec<Failure> = unread.into_iter().collect();
        let all_read = failures.is_empty();
        for (serving, targets) in &wanted.servings {
            let targets = Targets { known: targets, are_all: all_read };
            match self.serve(owner, serving, targets, wanted.is_issued_by_others(serving)).await {
                Ok(next) => until = until.min(next),
                Err(failure) => failures.push(failure),
            }
        }
        for injection in &wanted.released {
            failures.extend(self.release(owner, injection).await.err());
        }
        if all_read {
            for secret in &existing {
                failures.extend(self.remove_unneeded(secret, &wanted).await.err());
            }
            if wanted == Wanted::default() && existing.is_empty() {
                let mut known = self.known.lock();
                if known.get(&owner.name).is_some_and(|known| known.expected.is_empty()) {
                    known.remove(&owner.name);
                }
            }
        }
        match failures.len() {
            0 => Ok(until),
            _ => Err(Failure::retry(failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))),
        }
    }

    /// Returns the needs of the active revisions, newest first, and the error of an unreadable one.
    async fn revisions(&self, owner: &Owner) -> (Vec<Arc<Needs>>, Option<Failure>) {
        let mut sets = self.cache.labeled(&owner.name);
        sets.retain(|set| is_in_force(set, owner));
        sets.sort_by_key(|set| std::cmp::Reverse(number_of(set)));
        let mut read = self.with_known(owner, |known| std::mem::take(&mut known.read));
        let (mut needs, mut unread) = (Vec::new(), None);
        let mut now_read = HashMap::new();
        for set in sets {
            let (uid, generation) = (set.uid().unwrap_or_default(), set.metadata.generation);
            let known = read.remove(&uid).filter(|(seen, _)| *seen == generation);
            let found = match known {
                Some((_, needs)) => Ok(needs),
                None => self.read(&set).await.map(Arc::new),
            };
            match found {
                Ok(found) => {
                    now_read.insert(uid, (generation, Arc::clone(&found)));
                    needs.push(found);
                }
                Err(failure) => {
                    unread = Some(failure.context(format!("content of revision {}", set.name_any())))
                }
            }
        }
        self.with_known(owner, |known| known.read.extend(now_read));
        (needs, unread)
    }

    async fn read(&self, set: &ClusterObjectSet) -> Result<Needs, Failure> {
        let Some(spec) = &set.spec else { return Ok(Needs::default()) };
        let mut found = BTreeMap::new();
        for key in content_secrets(spec, &self.system_namespace) {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
            let secret = within_deadline(api.get_opt(&key.name)).await;
            let secret = secret.map_err(|e| Failure::api(&e).context(format!("getting Secret {key}")))?;
            found.extend(secret.map(|secret| (key, secret)));
        }
        tokio::task::block_in_place(|| {
            let phases = resolve_as_is(spec, &self.system_namespace, &found).map_err(Failure::retry)?;
            Ok(Needs::of(&phases))
        })
    }

    /// Maintains the Secrets of one Service and the bundle in its objects.
    async fn serve(
        self: &Arc<Self>,
        owner: &Owner,
        serving: &Serving,
        targets: Targets<'_>,
        issued_by_others: bool,
    ) -> Result<Timestamp, Failure> {
        let kept = self.keep(owner, serving, issued_by_others).await?;
        let mut is_news = false;
        for target in targets.known {
            is_news |= self.inject(owner, target, &kept.bundle).await?;
        }
        if !targets.are_all {
            return Ok(kept.until);
        }
        self.with_known(owner, |known| {
            is_news |= known.carried.get(serving).is_none_or(|carried| carried.bundle != kept.bundle);
            if is_news {
                let carried = Carried { bundle: kept.bundle.clone(), since: Instant::now() };
                known.carried.insert(serving.clone(), carried);
            }
        });
        if is_news {
            return Ok(self.keep(owner, serving, issued_by_others).await?.until);
        }
        Ok(kept.until)
    }

    /// Executes steps until the next one is not due yet.
    async fn keep(
        self: &Arc<Self>,
        owner: &Owner,
        serving: &Serving,
        issued_by_others: bool,
    ) -> Result<Kept, Failure> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &serving.namespace);
        let get = async |name: &str| {
            let secret = within_deadline(secrets.get_opt(name)).await;
            secret.map_err(|error| {
                Failure::api(&error).context(format!("getting Secret {}/{name}", serving.namespace))
            })
        };
        for _ in 0..MOST_STEPS {
            let (ca, leaf) = (get(&ca_secret(serving)).await?, get(&serving.secret).await?);
            let found = Found { owner, serving, issued_by_others, ca, leaf };
            if let Err(refusal) = found.check() {
                let read = [&found.ca, &found.leaf].into_iter().flatten();
                read.for_each(|secret| self.wake_on_change(owner, secret));
                return Err(Failure::retry(refusal));
            }
            // Garbage collection deletes the Secrets of a deleted extension, and its operator still uses the mounted
            // ones.
            if (found.ca.is_none() || found.leaf.is_none()) && !self.exists(owner).await? {
                return Err(Failure::retry(format!("ClusterExtension {:?} is gone", owner.name)));
            }
            let now = Timestamp::now();
            let bundle = found.bundle(now);
            let carried_for = self.with_known(owner, |known| {
                let carried = known.carried.get(serving).filter(|carried| carried.bundle == bundle)?;
                Some(carried.since.elapsed())
            });
            let step = next(&found.facts(carried_for, now), &self.times, now);
            if let Step::Wait(until) = step {
                return Ok(Kept { bundle, until });
            }
            let Some(secret) = found.written(step, now).map_err(Failure::retry)? else {
                continue;
            };
            if write(&secrets, &secret).await? {
                self.announce(&found, step, &secret);
            }
        }
        let (namespace, name) = (&serving.namespace, &serving.secret);
        Err(Failure::retry(format!("Secret {namespace}/{name} changes under every write")))
    }

    async fn exists(&self, owner: &Owner) -> Result<bool, Failure> {
        let extensions: Api<ClusterExtension> = Api::all(self.client.clone());
        let found = within_deadline(extensions.get_metadata_opt(&owner.name)).await;
        let found = found.map_err(|error| Failure::api(&error).context("getting ClusterExtension"))?;
        Ok(found.is_some_and(|found| found.metadata.uid.as_ref() == Some(&owner.uid)))
    }

    fn announce(&self, found: &Found<'_>, step: Step, secret: &Secret) {
        let serving = found.serving;
        let service = format!("{}/{}", serving.namespace, serving.service);
        tracing::info!(extension = found.owner.name, service, ?step, "wrote webhook certificates");
        let until = expiry(secret).map_or_else(String::new, |until| format!(", valid until {until}"));
        let note = match step {
            Step::NewAuthority(_) if found.ca.is_none() && found.leaf.is_none() => return,
            Step::NewAuthority(cause) => {
                let cause = match cause {
                    Cause::Missing => "there was none that could be used",
                    Cause::Due => "two thirds of the life of the old one are over",
                    Cause::Asked => "a renewal was asked for",
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

    /// Injects the bundle into an object if it exists and lacks the bundle. Returns `true` if it was written.
    async fn inject(&self, owner: &Owner, injection: &Injection, bundle: &[u8]) -> Result<bool, Failure> {
        let api = self.objects(injection.kind);
        let Some(live) = get_live(&api, injection).await? else { return Ok(false) };
        let Some(patch) = injecting::injected(&live, injection, &owner.name, bundle) else {
            return Ok(false);
        };
        let params = PatchParams::apply(WEBHOOK_CERTIFICATES_MANAGER).force();
        let applied = within_deadline(api.patch(&injection.name, &params, &Patch::Apply(&patch))).await;
        let (kind, name) = (injection.kind.as_str(), &injection.name);
        applied.map_err(|error| Failure::api(&error).context(format!("CA bundle of {kind} {name:?}")))?;
        tracing::info!(extension = owner.name, kind, name, "injected CA bundle");
        Ok(true)
    }

    /// Transfers our fields of an object to the engine.
    async fn release(&self, owner: &Owner, injection: &Injection) -> Result<(), Failure> {
        let api = self.objects(injection.kind);
        let Some(live) = get_live(&api, injection).await? else { return Ok(()) };
        let is_of_extension = live["metadata"]["labels"][labels::OWNER_NAME] == owner.name.as_str();
        let Some(patch) = injecting::handed_over(&live).filter(|_| is_of_extension) else { return Ok(()) };
        let patched =
            within_deadline(api.patch(&injection.name, &PatchParams::default(), &Patch::Merge(&patch))).await;
        let (kind, name) = (injection.kind.as_str(), &injection.name);
        patched.map_err(|error| Failure::api(&error).context(format!("fields of {kind} {name:?}")))?;
        tracing::info!(extension = owner.name, kind, name, "transferred ownership of CA bundle");
        Ok(())
    }

    fn objects(&self, kind: InjectionKind) -> Api<DynamicObject> {
        let resource = match kind {
            InjectionKind::Validating => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
            InjectionKind::Mutating => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            InjectionKind::Definition => ApiResource::erase::<CustomResourceDefinition>(&()),
        };
        Api::all_with(self.client.clone(), &resource)
    }

    /// Returns our Secrets of the extension.
    async fn existing(&self, owner: &Owner) -> Result<Vec<PartialObjectMeta<Secret>>, Failure> {
        let all: Api<Secret> = Api::all(self.client.clone());
        let (ours, name) = (labels::EXT_WEBHOOK_CERTIFICATE, labels::OWNER_NAME);
        let selector = ListParams::default().labels(&format!("{ours},{name}={}", owner.name));
        let list = within_deadline(all.list_metadata(&selector)).await;
        list.map(|list| list.items.into_iter().filter(|secret| owner.may_remove(secret)).collect())
            .map_err(|error| Failure::api(&error).context("listing webhook certificates"))
    }

    /// Removes a Secret that is not needed. A Secret into which another provider issues only loses our metadata.
    async fn remove_unneeded(
        &self,
        secret: &PartialObjectMeta<Secret>,
        wanted: &Wanted,
    ) -> Result<(), Failure> {
        let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
        let key = (namespace.clone(), name.clone());
        if wanted.secrets().contains(&key) {
            return Ok(());
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let version = secret.resource_version();
        let done = if wanted.issued_by_others.contains(&key) {
            let ours = [labels::EXT_WEBHOOK_CERTIFICATE, labels::OWNER_KIND, labels::OWNER_NAME];
            let unmarked: serde_json::Map<_, _> =
                ours.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
            let metadata = json!({"resourceVersion": version, "labels": unmarked, "ownerReferences": null});
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            within_deadline(api.patch(&name, &PatchParams::default(), &patch)).await.map(drop)
        } else {
            let exactly = Preconditions { uid: secret.uid(), resource_version: version };
            let params = DeleteParams::default().preconditions(exactly);
            within_deadline(api.delete(&name, &params)).await.map(drop)
        };
        match done {
            Ok(()) => tracing::info!(namespace, name, "removed unneeded webhook certificate"),
            // Deleted, or changed since. The change triggers another pass.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
            Err(error) => {
                return Err(Failure::api(&error).context(format!("removing Secret {namespace}/{name}")));
            }
        }
        Ok(())
    }
}

/// Returns `true` if the revision is active and does not belong to an earlier extension of the same name.
fn is_in_force(set: &ClusterObjectSet, owner: &Owner) -> bool {
    let controller = set.owner_references().iter().find(|reference| reference.controller == Some(true));
    controller.is_none_or(|reference| reference.uid == owner.uid)
        && set.metadata.deletion_timestamp.is_none()
        && set.spec.as_ref().is_some_and(|spec| spec.lifecycle_state == LifecycleState::Active)
}

/// Reads the live object. `None` if it does not exist.
async fn get_live(api: &Api<DynamicObject>, injection: &Injection) -> Result<Option<Value>, Failure> {
    let live = within_deadline(api.get_opt(&injection.name)).await.map_err(|error| {
        Failure::api(&error).context(format!("getting {} {:?}", injection.kind.as_str(), injection.name))
    })?;
    live.map(serde_json::to_value).transpose().map_err(Failure::retry)
}

/// Creates the Secret, or replaces it with its resourceVersion as precondition. Returns `false` on a conflict (409).
async fn write(secrets: &Api<Secret>, secret: &Secret) -> Result<bool, Failure> {
    let (name, params) = (secret.name_any(), PostParams::default());
    let (verb, written) = match secret.resource_version() {
        None => ("creating", within_deadline(secrets.create(&params, secret)).await),
        Some(_) => ("replacing", within_deadline(secrets.replace(&name, &params, secret)).await),
    };
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => {
            let namespace = secret.namespace().unwrap_or_default();
            Err(Failure::api(&error).context(format!("{verb} Secret {namespace}/{name}")))
        }
    }
}

/// Returns the time until `until`, zero if it has passed.
fn left_until(until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default()
}
