//! OperatorConditions of the extensions (docs/design/approvals.md#operator-conditions): mirrors the reports of operators
//! to their status, and requeues the extensions. Exists only with gate `OperatorConditionCompat`. While the CRD is not
//! served, only the CRD is watched.
//!
//! Only metadata is watched: an event is a reason to read. Labels prove nothing, because every user of a namespace may set
//! them: an object counts only in the namespace of its extension, and with a revision of it as controller.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join;
use futures::{FutureExt, StreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ObjectMeta, PartialObjectMeta};
use kube::runtime::controller::Action;
use kube::runtime::watcher::Event;
use kube::runtime::{Controller, WatchStreamExt, reflector};
use kube::{Api, Client, ResourceExt};
use olm_api::operator_condition::CRD_NAME;
use olm_api::{ClusterExtension, ClusterObjectSet, OperatorCondition, labels, names};
use olm_controller_core::UpgradeTargets;
use olm_controller_core::install_error::{InstallError, api_request};
use olm_controller_core::membership::belongs_to;
use olm_request::{mirrored, upgrade_blocker, upgrade_report};
use olm_runtime::cluster::{announce_listed, describe, present, within_deadline};
use olm_runtime::listing::{self, OurMeta, in_turn};
use olm_runtime::metrics::Metrics;
use olm_runtime::reconcile::{ReconcileError, Reconciles};
use olm_runtime::status::write_status;
use olm_runtime::watches::watch;
use tokio::sync::watch::Sender;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::features::Features;

const NAME: &str = "controller-operator-operatorcondition-controller";
const CONCURRENCY: u16 = 4;
/// Limit of the retry backoff.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// Time that a reconcile waits for the first read of the CRD.
const FIRST_READ: Duration = Duration::from_secs(10);
/// Retry delay of a failed read of the CRD.
const READ_RETRY: Duration = Duration::from_secs(5);

type Metadata = OurMeta<OperatorCondition>;

/// OperatorConditions of the extensions.
pub struct OperatorConditions {
    client: Client,
    /// `true` if the API server serves OperatorConditions. `None` before the CRD was read.
    served: Sender<Option<bool>>,
    /// Receives the reports of operators.
    targets: Arc<UpgradeTargets>,
}

impl OperatorConditions {
    pub(crate) fn new(client: Client, targets: Arc<UpgradeTargets>) -> Self {
        Self { client, served: Sender::new(None), targets }
    }

    /// `None` without the gate.
    pub fn of_gate(features: Features, client: &Client, targets: &Arc<UpgradeTargets>) -> Option<Arc<Self>> {
        let is_on = features.settings.operator_conditions;
        is_on.then(|| Arc::new(Self::new(client.clone(), Arc::clone(targets))))
    }

    /// Reports whether the API server serves OperatorConditions. Waits for the first read of the CRD.
    ///
    /// # Errors
    /// The CRD has not been read.
    pub(crate) async fn is_served(&self) -> Result<bool, InstallError> {
        let mut served = self.served.subscribe();
        let read = timeout(FIRST_READ, served.wait_for(Option::is_some)).await;
        let unread =
            || InstallError::retry(format!("CustomResourceDefinition {CRD_NAME} has not been read yet"));
        read.ok().and_then(Result::ok).and_then(|served| *served).ok_or_else(unread)
    }

    /// Reason for which the operator of `extension` with this OperatorCondition must not be replaced.
    ///
    /// # Errors
    /// The OperatorCondition or its controller cannot be read.
    pub(crate) async fn blocker(
        &self,
        extension: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<String>, InstallError> {
        let api: Api<OperatorCondition> = Api::namespaced(self.client.clone(), namespace);
        let what = format!("OperatorCondition {namespace}/{name}");
        let found = async { present(api.get(name).await) };
        let found = api_request(found, format!("reading {what}")).await?;
        let why = found.as_ref().and_then(upgrade_blocker).map(|why| format!("{what}: {why}"));
        let (Some(found), Some(why)) = (found, why) else { return Ok(None) };
        let controlled = self.is_controlled(&found.metadata, extension);
        let is_controlled = api_request(controlled, format!("reading the controller of {what}")).await?;
        Ok(is_controlled.then_some(why))
    }

    /// Follows the CRD and the OperatorConditions of extensions until dropped. Calls `on_change` when the CRD appears
    /// or disappears, and `requeue` with the extension of a changed OperatorCondition.
    pub(crate) async fn follow(
        self: &Arc<Self>,
        metrics: Arc<Metrics>,
        on_change: impl Fn(),
        requeue: impl Fn(&str) + Clone + Send + Sync + 'static,
    ) {
        join(self.follow_crd(on_change), self.follow_objects(metrics, requeue)).await;
    }

    async fn follow_crd(&self, on_change: impl Fn()) {
        let api = Api::<PartialObjectMeta<CustomResourceDefinition>>::all(self.client.clone());
        let only = listing::config().fields(&format!("metadata.name={CRD_NAME}"));
        let mut events = pin!(watch(api, only));
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init | Event::InitApply(_)) => continue,
                Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => {}
                Err(error) => {
                    tracing::warn!(%error, name = CRD_NAME, "watch of CustomResourceDefinition failed");
                    continue;
                }
            }
            let served = Some(self.read_crd().await);
            let before = self.served.send_replace(served);
            if before.is_some() && before != served {
                on_change();
            }
        }
    }

    /// Reads the CRD until that succeeds.
    async fn read_crd(&self) -> bool {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        loop {
            match within_deadline(api.get_opt(CRD_NAME)).await {
                Ok(crd) => return crd.as_ref().is_some_and(serves),
                Err(error) => {
                    let error = describe(&error);
                    tracing::warn!(error, name = CRD_NAME, "failed to read CustomResourceDefinition");
                    sleep(READ_RETRY).await;
                }
            }
        }
    }

    async fn follow_objects(
        self: &Arc<Self>,
        metrics: Arc<Metrics>,
        requeue: impl Fn(&str) + Clone + Send + Sync + 'static,
    ) {
        let reconciles = Reconciles::new(NAME, "OperatorCondition", CONCURRENCY, metrics);
        let reconciles = Arc::new(reconciles.with_longest_delay(LONGEST_RETRY));
        let mut served = self.served.subscribe();
        while served.wait_for(|served| *served == Some(true)).await.is_ok() {
            let ended = async {
                let _ = served.wait_for(|served| *served != Some(true)).await;
            };
            tokio::select! {
                () = ended => {}
                () = self.reconcile_objects(Arc::clone(&reconciles), requeue.clone()) => {}
            }
            self.targets.forget_conditions();
        }
    }

    async fn reconcile_objects(
        self: &Arc<Self>,
        reconciles: Arc<Reconciles>,
        requeue: impl Fn(&str) + Clone + Send + Sync + 'static,
    ) {
        let (store, writer) = reflector::store();
        let ours = format!("{}={}", labels::OWNER_KIND, labels::OWNER_KIND_EXTENSION);
        let ours = listing::config().labels(&ours);
        let events = in_turn(watch(Api::<Metadata>::all(self.client.clone()), ours))
            .modify(|object| reduce(&mut object.metadata))
            .reflect(writer);
        let listed = CancellationToken::new();
        let (forgetting, conditions) = (Arc::clone(self), Arc::clone(self));
        let stream = announce_listed(events, listed.clone())
            .inspect(move |event| {
                if let Ok(Event::Delete(object)) = event {
                    forgetting.targets.record_condition(extension(object), bundle(object), None);
                }
            })
            .applied_objects();
        let controller = Controller::for_stream(stream, store);
        reconciles
            .drive(controller, listed, CancellationToken::new(), move |object: Arc<Metadata>| {
                let (conditions, requeue) = (Arc::clone(&conditions), requeue.clone());
                async move {
                    if conditions.reconcile(&object).boxed().await? {
                        requeue(extension(&object));
                    }
                    Ok(Action::await_change())
                }
            })
            .await;
    }

    /// Mirrors the reports of the operator to the status, and records them. Returns `false` for an object that belongs to
    /// no extension.
    async fn reconcile(&self, object: &Metadata) -> Result<bool, ReconcileError> {
        if !self.is_report(object).await.map_err(|error| ReconcileError::retry(describe(&error)))? {
            self.targets.record_condition(extension(object), bundle(object), None);
            return Ok(false);
        }
        let namespace = object.namespace().unwrap_or_default();
        let api: Api<OperatorCondition> = Api::namespaced(self.client.clone(), &namespace);
        let found = present(within_deadline(api.get(&object.name_any())).await);
        let found = found.map_err(|error| ReconcileError::retry(describe(&error)))?;
        let report = found.as_ref().and_then(upgrade_report);
        self.targets.record_condition(extension(object), bundle(object), report);
        let Some(found) = found else { return Ok(true) };
        let written = write_status(&api, &found, &mirrored(&found)).await;
        written.map(|_| true).map_err(|error| ReconcileError::write("error updating status", &error))
    }

    /// Reports whether the object is in the namespace of the extension that its labels name, and a revision of that
    /// extension controls it.
    async fn is_report(&self, object: &Metadata) -> Result<bool, kube::Error> {
        let extensions: Api<ClusterExtension> = Api::all(self.client.clone());
        let named = within_deadline(extensions.get_opt(extension(object))).await?;
        let is_there =
            named.and_then(|named| named.spec).is_some_and(|spec| Some(spec.namespace) == object.namespace());
        Ok(is_there && self.is_controlled(&object.metadata, extension(object)).await?)
    }

    /// Reports whether a revision of `extension` controls the object.
    async fn is_controlled(&self, object: &ObjectMeta, extension: &str) -> Result<bool, kube::Error> {
        let mut owners = object.owner_references.iter().flatten();
        let Some(owner) = owners.find(|owner| owner.controller == Some(true)) else { return Ok(false) };
        let revisions: Api<ClusterObjectSet> = Api::all(self.client.clone());
        let revision = within_deadline(revisions.get_opt(&owner.name)).await?;
        Ok(revision.is_some_and(|revision| {
            let label = revision.labels().get(labels::OWNER_NAME).map(String::as_str);
            revision.uid().as_ref() == Some(&owner.uid)
                && label == Some(extension)
                && belongs_to(&revision, extension)
        }))
    }
}

/// Removes what is not used: any user of a namespace may create many objects with large metadata.
fn reduce(metadata: &mut ObjectMeta) {
    metadata.annotations = None;
    metadata.labels.iter_mut().for_each(|labels| labels.retain(|key, _| key == labels::OWNER_NAME));
    metadata
        .owner_references
        .iter_mut()
        .for_each(|owners| owners.retain(|owner| owner.controller == Some(true)));
}

/// Name of the extension that the OperatorCondition belongs to.
fn extension(object: &Metadata) -> &str {
    object.labels().get(labels::OWNER_NAME).map(String::as_str).unwrap_or_default()
}

/// Name, which is that of the bundle, and UID.
fn bundle(object: &Metadata) -> (&str, &str) {
    let metadata = &object.metadata;
    (metadata.name.as_deref().unwrap_or_default(), metadata.uid.as_deref().unwrap_or_default())
}

/// Reports whether the API server serves version v2 of this CRD.
fn serves(crd: &CustomResourceDefinition) -> bool {
    let status = crd.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_established = conditions.iter().any(|one| one.type_ == "Established" && one.status == "True");
    let versions = &crd.spec.versions;
    let has_version = versions.iter().any(|one| one.name == names::OPERATOR_CONDITION_VERSION && one.served);
    is_established && has_version && crd.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn established_crd_with_version_v2_is_served() {
        let of = |version: &str, served: bool, established: &str, deleted: bool| {
            let time = deleted.then_some("2026-11-24T10:00:00Z");
            let condition = json!({"type": "Established", "status": established});
            let names = json!({"kind": "OperatorCondition", "plural": "operatorconditions"});
            serves(
                &serde_json::from_value(json!({
                    "metadata": {"name": CRD_NAME, "deletionTimestamp": time},
                    "spec": {"group": "operators.coreos.com", "scope": "Namespaced", "names": names,
                        "versions": [{"name": version, "served": served, "storage": true}]},
                    "status": {"conditions": [condition]},
                }))
                .unwrap(),
            )
        };
        assert!(of("v2", true, "True", false));
        assert!(!of("v1", true, "True", false));
        assert!(!of("v2", false, "True", false));
        assert!(!of("v2", true, "False", false));
        assert!(!of("v2", true, "True", true));
    }
}
