//! Triggers of a pass: metadata-only watches on the inputs of the certificates, and the due time of the next step.

use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{FutureExt, Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{ListParams, PartialObjectMeta};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{Event, watch_object};
use kube::runtime::{Controller, WatchStreamExt, reflector};
use kube::{Api, Resource, ResourceExt};
use olm_api::{ClusterExtension, finalizers, labels};
use olm_bundle::BUILTIN_CA_ANNOTATION;
use olm_runtime::cluster::{announce_listed, describe, within_deadline};
use olm_runtime::listing::{self, OurMeta, in_turn};
use olm_runtime::metrics::Metrics;
use olm_runtime::reconcile::{RESYNC, ReconcileError, Reconciles};
use olm_runtime::watches::watch;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tokio_stream::wrappers::BroadcastStream;
use tokio_util::sync::CancellationToken;

use super::secrets::Owner;
use super::{FAILED, Provider, WebhookCertificates, duration_until};

const NAME: &str = "controller-operator-webhookcertificates-controller";
const CONCURRENCY: u16 = 4;
/// Maximum retry delay after a failure.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Retry delay of the query for existing certificates.
const LIST_RETRY: Duration = Duration::from_secs(5);

/// Finalizers of an ongoing garbage collection of an extension's dependents.
const COLLECTING: [&str; 2] = [finalizers::FOREGROUND, finalizers::ORPHAN];

/// Metadata of an extension.
type Extension = PartialObjectMeta<ClusterExtension>;

impl WebhookCertificates {
    /// Maintains the certificates until `stop`. Must run only in the leader. If the provider is not `selected`, it
    /// maintains certificates from the time when it was.
    pub async fn run(&self, selected: bool, metrics: Arc<Metrics>, stop: CancellationToken) {
        if !selected && stop.run_until_cancelled(self.0.until_needed()).await.is_none() {
            return;
        }
        let provider = Arc::clone(&self.0);
        // Before the revisions are listed, no extension would seem to need certificates.
        if stop.run_until_cancelled(provider.cache.listed().cancelled()).await.is_none() {
            return;
        }
        let (store, writer) = reflector::store();
        let extensions: Api<Extension> = Api::all(provider.client.clone());
        let (forgetting, known) = (Arc::clone(&provider), Arc::clone(&provider));
        let events = watch(extensions, listing::config())
            .modify(|extension| extension.metadata.managed_fields = None)
            .reflect(writer);
        let listed = CancellationToken::new();
        let stream = announce_listed(events, listed.clone())
            .inspect(move |event| {
                if let Ok(Event::Delete(extension)) = event {
                    forgetting.forget(extension);
                }
            })
            .applied_objects()
            .filter(move |extension| {
                ready(extension.as_ref().map_or(true, |extension| known.is_known(&extension.name_any())))
            });
        let controller = Controller::for_stream(stream, store).reconcile_on(provider.trigger_stream());
        let reconciles = Reconciles::new(NAME, "ClusterExtension", CONCURRENCY, metrics);
        let reconciles = Arc::new(reconciles.with_longest_delay(MAX_RETRY_DELAY));
        reconciles
            .drive(controller, listed, stop, move |extension: Arc<Extension>| {
                let provider = Arc::clone(&provider);
                async move { provider.reconcile(&extension).boxed().await }
            })
            .await;
    }

    /// Stream of extensions to reconcile because a Secret that blocked them has changed, or the watch on it timed
    /// out.
    pub fn unblocked<K: Resource<DynamicType = ()>>(
        &self,
    ) -> impl Stream<Item = ObjectRef<K>> + Send + use<K> {
        BroadcastStream::new(self.0.unblocked.subscribe())
            .filter_map(|name| ready(name.ok().map(|name| ObjectRef::new(&name))))
    }
}

impl Provider {
    /// Returns once there is a certificate to maintain.
    async fn until_needed(&self) {
        let secrets: Api<Secret> = Api::all(self.client.clone());
        let ours = ListParams::default().labels(labels::EXT_WEBHOOK_CERTIFICATE).limit(1);
        let exist = async {
            loop {
                match within_deadline(secrets.list_metadata(&ours)).await {
                    Ok(list) if list.items.is_empty() => return std::future::pending().await,
                    Ok(_) => return,
                    Err(error) => {
                        tracing::warn!(error = describe(&error), "listing of webhook certificates failed");
                        tokio::time::sleep(LIST_RETRY).await;
                    }
                }
            }
        };
        tokio::select! {
            () = self.needed.cancelled() => {}
            () = exist => {}
        }
    }

    /// Requeues the extension when `secret`, which blocks it, differs from the version that was read, or after the
    /// maximum retry delay.
    pub(super) fn wake_on_change(self: &Arc<Self>, owner: &Owner, secret: &Secret) {
        let key = (owner.name.clone(), secret.uid().unwrap_or_default());
        if !self.blocking.lock().insert(key.clone()) {
            return;
        }
        let (name, read) = (secret.name_any(), secret.resource_version());
        let namespace = secret.namespace().unwrap_or_default();
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(self.client.clone(), &namespace);
        let provider = Arc::clone(self);
        tokio::spawn(async move {
            let is_changed = |state: Result<Option<PartialObjectMeta<Secret>>, _>| {
                ready(state.is_ok_and(|state| state.is_none_or(|secret| secret.resource_version() != read)))
            };
            let states = pin!(watch_object(api, &name).default_backoff());
            let changed = states.any(is_changed);
            // A timeout requeues the extension as well, like any failure.
            let _ = timeout(MAX_RETRY_DELAY, changed).await;
            provider.blocking.lock().remove(&key);
            // Fails without a running controller. Then there is nothing to requeue.
            let _ = provider.unblocked.send(key.0);
        });
    }

    /// Stream of extensions to reconcile because one of their objects or revisions changed.
    fn trigger_stream(self: &Arc<Self>) -> impl Stream<Item = ObjectRef<Extension>> + Send + use<> {
        let provider = Arc::clone(self);
        let revisions = self.cache.subscribe().filter_map(move |change| {
            let name = change.set().labels().get(labels::OWNER_NAME).filter(|name| provider.is_known(name));
            ready(name.map(|name| ObjectRef::new(name)))
        });
        stream::select_all([
            revisions.boxed(),
            WebhookCertificates(Arc::clone(self)).unblocked().boxed(),
            self.follow::<Secret>(labels::EXT_WEBHOOK_CERTIFICATE),
            self.follow::<ValidatingWebhookConfiguration>(labels::OWNER_NAME),
            self.follow::<MutatingWebhookConfiguration>(labels::OWNER_NAME),
            self.follow::<CustomResourceDefinition>(labels::OWNER_NAME),
            self.follow_api_services(),
        ])
    }

    /// Stream of the owners of changed APIServices, from the time when the first one needs a CA bundle.
    fn follow_api_services(self: &Arc<Self>) -> BoxStream<'static, ObjectRef<Extension>> {
        let provider = Arc::clone(self);
        let follow = async move {
            provider.has_api_service.cancelled().await;
            provider.follow::<APIService>(labels::OWNER_NAME)
        };
        stream::once(follow).flatten().boxed()
    }

    /// Stream of the owners of changed objects of a kind: known extensions, and those whose object itself shows that
    /// they need certificates.
    fn follow<K>(self: &Arc<Self>, selector: &str) -> BoxStream<'static, ObjectRef<Extension>>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
    {
        let provider = Arc::clone(self);
        let all: Api<OurMeta<K>> = Api::all(self.client.clone());
        in_turn(watch(all, listing::config().labels(selector)))
            .flat_map(move |event| {
                let names = match event {
                    Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => {
                        let is_ours = object.labels().contains_key(labels::EXT_WEBHOOK_CERTIFICATE)
                            || object.annotations().contains_key(BUILTIN_CA_ANNOTATION);
                        let name = object.labels().get(labels::OWNER_NAME).cloned();
                        name.into_iter().filter(|name| is_ours || provider.is_known(name)).collect()
                    }
                    // Deletions during a broken watch cause no event.
                    Ok(Event::InitDone) => provider.known.lock().keys().cloned().collect(),
                    Ok(Event::Init) => Vec::new(),
                    Err(error) => {
                        tracing::warn!(%error, kind = %K::kind(&()), "watch of objects of webhook certificates failed");
                        Vec::new()
                    }
                };
                stream::iter(names).map(|name| ObjectRef::new(&name))
            })
            .boxed()
    }

    fn forget(&self, extension: &Extension) {
        let mut known = self.known.lock();
        let name = extension.name_any();
        if known.get(&name).is_some_and(|known| Some(&known.uid) == extension.metadata.uid.as_ref()) {
            known.remove(&name);
        }
    }

    async fn reconcile(self: &Arc<Self>, extension: &Extension) -> Result<Action, ReconcileError> {
        let owner = Owner::of(extension);
        if is_collected(extension) {
            return Ok(Action::await_change());
        }
        // From here on, changes of this extension trigger a pass.
        self.with_state(&owner, |_| ());
        match self.pass(&owner).await {
            Ok(until) => {
                self.events.resolved(&owner.about, FAILED);
                Ok(if until == Timestamp::MAX {
                    Action::await_change()
                } else {
                    Action::requeue(duration_until(until).min(RESYNC))
                })
            }
            Err(failure) => {
                self.events.warning(owner.about.clone(), FAILED, failure.message.clone());
                Err(ReconcileError::retry(failure))
            }
        }
    }
}

/// Returns `true` if the Secrets of an extension are deleted or orphaned before it. Under any other deletion it keeps
/// its revisions and called webhooks while it has a finalizer.
fn is_collected<K: Resource>(extension: &K) -> bool {
    let is_collecting = |finalizer: &String| COLLECTING.contains(&finalizer.as_str());
    extension.meta().deletion_timestamp.is_some() && extension.finalizers().iter().any(is_collecting)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn certificates_are_maintained_until_garbage_collection() {
        let deleted = Some("2026-01-01T00:00:00Z");
        for (deleted, finalizer, expected) in [
            (None, "foregroundDeletion", false),
            (deleted, "olm.operatorframework.io/cleanup-unpack-cache", false),
            (deleted, "foregroundDeletion", true),
            (deleted, "orphan", true),
        ] {
            let metadata = json!({"name": "demo", "deletionTimestamp": deleted, "finalizers": [finalizer]});
            let secret: Secret = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            assert_eq!(is_collected(&secret), expected, "{deleted:?} {finalizer}");
        }
    }
}
