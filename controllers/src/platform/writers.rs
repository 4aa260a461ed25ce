//! Writes the verdict: to ClusterUpgradeStatus everywhere, and to one of OpenShift's objects
//! (docs/design/operations.md#outlets, docs/design/operations.md#clusterupgradestatus).
//!
//! Every write follows a read of the same object and is skipped if it would change nothing.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use olm_api::conditions::Status;
use olm_api::{ClusterUpgradeStatus, ObjectMeta, names};
use olm_platform::{
    CONTRIBUTED, ClusterOperatorCondition, ClusterOperatorFields, ConditionContention, Outlet, OutletFacts,
    OutletUnavailable, Verdict, WriteDecision, aggregated, completed_version, contributed, merged, outlet,
};
use olm_runtime::cluster::within_deadline;
use olm_runtime::events::Events;
use olm_runtime::status::write_status;
use serde_json::json;

use super::flags::PlatformSettings;
use super::observe::{self, ObservedPlatform, cluster_operators, olms, reference};
use super::reports::VerdictMetrics;

/// Reasons of the Events.
const CONTENDED: &str = "ClusterOperatorContended";
const NOT_WRITTEN: &str = "ClusterOperatorNotWritten";

/// Returns ClusterUpgradeStatus `cluster`, if it exists.
///
/// # Errors
/// The API server rejects the request or does not answer.
pub(crate) async fn find_upgrade_status(
    client: &Client,
) -> Result<Option<ClusterUpgradeStatus>, kube::Error> {
    let api: Api<ClusterUpgradeStatus> = Api::all(client.clone());
    within_deadline(api.get_opt(names::CLUSTER_UPGRADE_STATUS_NAME)).await
}

/// Writes the verdict to ClusterUpgradeStatus `cluster` if that changes it. Creates the object if there is no `stored`
/// one.
///
/// # Errors
/// The API server rejects the request or does not answer.
pub(crate) async fn write_upgrade_status(
    client: &Client,
    stored: Option<ClusterUpgradeStatus>,
    verdict: &Verdict,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let api: Api<ClusterUpgradeStatus> = Api::all(client.clone());
    let stored = match stored {
        Some(stored) => stored,
        None => {
            let name = Some(names::CLUSTER_UPGRADE_STATUS_NAME.to_owned());
            let metadata = ObjectMeta { name, ..ObjectMeta::default() };
            let new = ClusterUpgradeStatus { metadata, spec: None, status: None };
            within_deadline(api.create(&PostParams::default(), &new)).await?
        }
    };
    let next = olm_platform::status(verdict, stored.metadata.generation, stored.status.as_ref(), now);
    write_status(&api, &stored, &next).await.map(drop)
}

/// Writer of OpenShift's objects.
#[derive(Default)]
pub(crate) struct OpenShiftWriter {
    contention: ConditionContention,
    /// Reason why the last verdict was not written.
    reluctance: Option<OutletUnavailable>,
}

/// Inputs of a write.
pub(crate) struct WriteInputs<'a> {
    pub client: &'a Client,
    pub settings: &'a PlatformSettings,
    pub observed: &'a ObservedPlatform,
    pub verdict: &'a Verdict,
    pub events: &'a Events,
    pub metrics: &'a VerdictMetrics,
    pub now: Timestamp,
}

impl OpenShiftWriter {
    /// Writes the verdict to the object that the mode and the cluster select.
    ///
    /// # Errors
    /// The API server rejects the request or does not answer.
    pub(crate) async fn write(&mut self, pass: &WriteInputs<'_>) -> Result<(), kube::Error> {
        let served = &pass.observed.served;
        let (olm, gates) = observe::olm_and_gates(pass.client, served).await?;
        let Some(platform) = &pass.verdict.platform else { return Ok(()) };
        let facts = OutletFacts {
            platform: &platform.type_,
            cluster_operators: served.has(&cluster_operators()),
            olm: olm.as_ref().map(|olm| &olm.data),
            feature_gate: gates.as_ref().map(|gates| &gates.data),
        };
        let (outlet, reluctance) = outlet(pass.settings.mode, &facts);
        if reluctance != self.reluctance
            && let Some(reluctance) = &reluctance
        {
            tracing::info!(reason = %reluctance, "verdict not written to OpenShift's objects");
            if let Some(olm) = &olm {
                let about = reference(&olms(), olm);
                pass.events.resolved(&about, NOT_WRITTEN);
                pass.events.warning(about, NOT_WRITTEN, reluctance.to_string());
            }
        }
        self.reluctance = reluctance;
        match (outlet, &olm) {
            (Outlet::Own, None) => self.write_cluster_operator(pass).await,
            (Outlet::Own, Some(olm)) => {
                // Ordered so that an update is blocked at any time in between.
                self.write_cluster_operator(pass).await?;
                self.retract(pass, olm).await
            }
            (Outlet::Contribute, Some(olm)) => self.contribute(pass, olm).await,
            (Outlet::Off, Some(olm)) => self.retract(pass, olm).await,
            (Outlet::Contribute | Outlet::Off, None) | (Outlet::Wait, _) => Ok(()),
        }
    }

    /// Returns `true` if an object must be written now. The parameters are those of [`ConditionContention::decide`].
    fn is_our_turn(
        &mut self,
        pass: &WriteInputs<'_>,
        about: ObjectReference,
        is_desired: bool,
        is_retained: impl Fn(&ClusterOperatorCondition) -> bool,
    ) -> bool {
        let uid = about.uid.as_deref().unwrap_or_default();
        let turn = self.contention.decide(uid, is_desired, is_retained, pass.now);
        if turn == WriteDecision::Yield {
            let kind = about.kind.as_deref().unwrap_or_default();
            let note = format!(
                "Another client keeps overwriting what operator-controller writes to the status of this {kind}. \
                 operator-controller pauses its writes for up to 10 minutes. Find the client in metadata.managedFields"
            );
            pass.events.warning(about, CONTENDED, note);
            pass.metrics.count_write("contended");
        } else if self.contention.is_quiet() {
            pass.events.resolved(&about, CONTENDED);
        }
        turn == WriteDecision::Write
    }

    /// Writes our part of the ClusterOperator's status.
    async fn write_cluster_operator(&mut self, pass: &WriteInputs<'_>) -> Result<(), kube::Error> {
        let Some(desired) = aggregated(pass.verdict) else { return Ok(()) };
        let name = pass.settings.cluster_operator.as_str();
        let resource = cluster_operators();
        let api = Api::<DynamicObject>::all_with(pass.client.clone(), &resource);
        let mut object = match within_deadline(api.get_opt(name)).await? {
            Some(found) => found,
            None => {
                let mut new = DynamicObject::new(name, &resource);
                new.data = json!({"spec": {}});
                let created = within_deadline(api.create(&PostParams::default(), &new)).await;
                counted(pass, created)?
            }
        };
        let completed = pass.observed.cluster_version.as_ref();
        let own = ClusterOperatorFields {
            system_namespaces: &pass.settings.system_namespaces,
            completed_version: completed.and_then(|object| completed_version(&object.data)),
            version: olm_runtime::component::VERSION,
        };
        let next = merged(&object.data, &desired, own, pass.now);
        let is_desired = object.data["status"] == next;
        // The completed version may have been unknown at the last write.
        let before = ClusterOperatorFields { completed_version: None, ..own };
        let is_retained = |written: &ClusterOperatorCondition| {
            object.data["status"] == merged(&object.data, written, before, pass.now)
        };
        if !self.is_our_turn(pass, reference(&resource, &object), is_desired, is_retained) {
            return Ok(());
        }
        object.data["status"] = next;
        object.metadata.managed_fields = None;
        counted(pass, within_deadline(api.replace_status(name, &PostParams::default(), &object)).await)?;
        self.contention.wrote(&uid(&object), &desired);
        Ok(())
    }

    /// Writes our condition to the status of the OLM object.
    async fn contribute(&mut self, pass: &WriteInputs<'_>, olm: &DynamicObject) -> Result<(), kube::Error> {
        let Some(desired) = contributed(pass.verdict) else { return Ok(()) };
        let stored = ClusterOperatorCondition::stored(&olm.data, CONTRIBUTED);
        let is_stored = |asked: &ClusterOperatorCondition| stored.as_ref() == Some(asked);
        if self.is_our_turn(pass, reference(&olms(), olm), is_stored(&desired), is_stored) {
            apply(pass, olm, &desired).await?;
            self.contention.wrote(&uid(olm), &desired);
        }
        Ok(())
    }

    /// Sets the condition from an earlier mode to True. It cannot be removed, because the operator owns it by now,
    /// and must not block updates forever.
    async fn retract(&mut self, pass: &WriteInputs<'_>, olm: &DynamicObject) -> Result<(), kube::Error> {
        let stored = ClusterOperatorCondition::stored(&olm.data, CONTRIBUTED);
        if stored.is_none_or(|stored| stored.status == Status::True) {
            return Ok(());
        }
        let (reason, message) = ("NotContributed".to_owned(), String::new());
        let nothing = ClusterOperatorCondition { status: Status::True, reason, message };
        apply(pass, olm, &nothing).await?;
        self.contention.wrote(&uid(olm), &nothing);
        Ok(())
    }
}

fn uid(object: &DynamicObject) -> String {
    object.uid().unwrap_or_default()
}

async fn apply(
    pass: &WriteInputs<'_>,
    olm: &DynamicObject,
    condition: &ClusterOperatorCondition,
) -> Result<(), kube::Error> {
    let resource = olms();
    let before = olm.data.pointer("/status/conditions").and_then(|conditions| {
        conditions.as_array()?.iter().find(|condition| condition["type"] == CONTRIBUTED)
    });
    let name = olm.metadata.name.as_deref().unwrap_or_default();
    let patch = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "status": {"conditions": [condition.to_value(CONTRIBUTED, before, pass.now)]},
    });
    let params = PatchParams::apply(names::CLUSTER_UPGRADE_STATUS_MANAGER).force();
    let api = Api::<DynamicObject>::all_with(pass.client.clone(), &resource);
    counted(pass, within_deadline(api.patch_status(name, &params, &Patch::Apply(&patch))).await).map(drop)
}

fn counted<T>(pass: &WriteInputs<'_>, answer: Result<T, kube::Error>) -> Result<T, kube::Error> {
    pass.metrics.count_write(match &answer {
        Ok(_) => "success",
        Err(kube::Error::Api(status)) if status.is_conflict() => "conflict",
        Err(_) => "error",
    });
    answer
}
