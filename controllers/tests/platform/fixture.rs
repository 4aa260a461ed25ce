//! A real API server, the objects on it, and controllers that stop with the test.

use std::sync::Arc;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use olm_api::conditions::find;
use olm_api::{ClusterObjectSet, ClusterUpgradeStatus};
pub(super) use olm_control_plane::eventually;
use olm_control_plane::{ControlPlane, Options};
use olm_controller_core::RevisionCache;
use olm_platform::{ClusterOperatorCondition, ClusterOperatorMode};
use olm_runtime::Component;
use olm_runtime::events::Events;
use olm_servers::RunningController;
use operator_controller::platform::{NAME, PlatformSettings, run};
use serde_json::{Value, json};

const OPENSHIFT_CRDS: &str = include_str!("../../../tests/e2e/data/openshift-crds.yaml");

pub(super) struct Fixture {
    pub(super) plane: Arc<ControlPlane>,
}

/// Returns the number of successful passes.
fn passes(controller: &RunningController) -> u64 {
    let text = controller.metrics.prometheus_text();
    let series = format!("controller_runtime_reconcile_total{{controller=\"{NAME}\",result=\"success\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&series)).map_or(0, |count| count.parse().unwrap())
}

pub(super) async fn until_passes(controller: &RunningController, count: u64) {
    eventually("a pass completes", async || (passes(controller) >= count).then_some(())).await;
}

/// Waits until a pass has evaluated the earlier changes of this object, by changing a label of it. Twice, because one
/// pass may be under way.
pub(super) async fn evaluate(controller: &RunningController, api: &Api<DynamicObject>, name: &str) {
    for _ in 0..2 {
        let before = passes(controller);
        let label = jiff::Timestamp::now().as_nanosecond().to_string();
        let patch = Patch::Merge(json!({"metadata": {"labels": {"changed": label}}}));
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
        until_passes(controller, before + 1).await;
    }
}

pub(super) fn settings() -> PlatformSettings {
    PlatformSettings {
        openshift_map: olm_platform::OpenShiftVersionMap::Off,
        platform: None,
        version: None,
        environment: None,
        mode: ClusterOperatorMode::Auto,
        cluster_operator: "olm".to_owned(),
        system_namespaces: vec!["olmv1-system".to_owned()],
    }
}

impl Fixture {
    pub(super) async fn start() -> Self {
        Self { plane: ControlPlane::reused(Options::default(), &[]).await.unwrap() }
    }

    pub(super) async fn openshift() -> Self {
        let fixture = Self::start().await;
        fixture.plane.apply_crds(&olm_api::crds::crds()).await.unwrap();
        let crds = olm_yaml::all_from_slice(OPENSHIFT_CRDS.as_bytes()).unwrap();
        fixture.plane.apply_crds(&crds).await.unwrap();
        fixture
    }

    pub(super) fn controller(&self, settings: PlatformSettings) -> RunningController {
        let (client, cache) = (self.plane.client(), RevisionCache::new());
        let events = Events::new(client.clone(), Component::OperatorController);
        RunningController::start(|metrics, stop| async move {
            let following = cache.follow(client.clone(), stop.clone());
            let targets = Default::default();
            let running =
                run(client.clone(), cache.clone(), settings, targets, events, metrics, stop.clone());
            tokio::join!(following, running);
        })
    }

    pub(super) fn sets(&self) -> Api<ClusterObjectSet> {
        Api::all(self.plane.client())
    }

    pub(super) fn statuses(&self) -> Api<ClusterUpgradeStatus> {
        Api::all(self.plane.client())
    }

    pub(super) fn objects(&self, group: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
        Api::all_with(self.plane.client(), &resource)
    }

    pub(super) fn cluster_operators(&self) -> Api<DynamicObject> {
        self.objects("config.openshift.io", "ClusterOperator", "clusteroperators")
    }

    pub(super) fn cluster_versions(&self) -> Api<DynamicObject> {
        self.objects("config.openshift.io", "ClusterVersion", "clusterversions")
    }

    pub(super) fn olms(&self) -> Api<DynamicObject> {
        self.objects("operator.openshift.io", "OLM", "olms")
    }

    pub(super) fn feature_gates(&self) -> Api<DynamicObject> {
        self.objects("config.openshift.io", "FeatureGate", "featuregates")
    }

    /// Creates an object with a status.
    pub(super) async fn make(
        &self,
        api: &Api<DynamicObject>,
        kind: &str,
        name: &str,
        spec: Value,
        status: Value,
    ) {
        let group = if kind == "OLM" { "operator.openshift.io/v1" } else { "config.openshift.io/v1" };
        let object = json!({"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec});
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
        self.set_status(api, name, status).await;
    }

    pub(super) async fn set_status(&self, api: &Api<DynamicObject>, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(super) async fn make_cluster_version(&self, version: &str) {
        let status = json!({
            "desired": {"version": version},
            "history": [{"state": "Completed", "version": version}],
        });
        self.make(&self.cluster_versions(), "ClusterVersion", "version", json!({"clusterID": "x"}), status)
            .await;
    }

    /// Creates an active revision of bundle `<extension>.v<number>` with these properties.
    pub(super) async fn install(&self, extension: &str, number: i64, properties: &str) {
        let set: ClusterObjectSet = serde_json::from_value(json!({
            "metadata": {
                "name": format!("{extension}-{number}"),
                "labels": {
                    "olm.operatorframework.io/owner-kind": "ClusterExtension",
                    "olm.operatorframework.io/owner-name": extension,
                },
                "annotations": {
                    "olm.operatorframework.io/bundle-name": format!("{extension}.v{number}"),
                    "olm.operatorframework.io/bundle-version": format!("{number}.0.0"),
                    "olm.properties": properties,
                },
                "ownerReferences": [{
                    "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": extension,
                    "uid": format!("uid-{extension}"),
                }],
            },
            "spec": {"lifecycleState": "Active", "revision": number, "collisionProtection": "Prevent"},
        }))
        .unwrap();
        self.sets().create(&PostParams::default(), &set).await.unwrap();
    }

    pub(super) async fn archive(&self, name: &str) {
        let patch = Patch::Merge(json!({"spec": {"lifecycleState": "Archived"}}));
        self.sets().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(super) async fn uninstall(&self, name: &str) {
        self.sets().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the condition of ClusterUpgradeStatus reads `status/reason: message`, and returns the object.
    pub(super) async fn until_status(&self, expected: &str) -> ClusterUpgradeStatus {
        let mut last = String::new();
        eventually(expected, async || {
            let object = self.statuses().get_opt("cluster").await.unwrap()?;
            let conditions = &object.status.as_ref()?.conditions;
            let condition = find(conditions, "Upgradeable")?;
            let got = format!("{}/{}: {}", condition.status, condition.reason, condition.message);
            if got != last {
                eprintln!("status: {got}");
                last.clone_from(&got);
            }
            (got == expected).then_some(object)
        })
        .await
    }

    /// Waits until the condition of this type reads like this, and returns the object.
    pub(super) async fn until_condition(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        type_: &str,
        expected: &str,
    ) -> DynamicObject {
        eventually(expected, async || {
            let object = api.get_opt(name).await.unwrap()?;
            let condition = ClusterOperatorCondition::stored(&object.data, type_)?;
            let status = condition.status.as_str();
            (format!("{status}/{}: {}", condition.reason, condition.message) == expected).then_some(object)
        })
        .await
    }

    pub(super) async fn until_upgradeable(&self, expected: &str) -> DynamicObject {
        self.until_condition(&self.cluster_operators(), "olm", "Upgradeable", expected).await
    }

    /// Returns `reason: note` of the Events about an object with this name.
    pub(super) async fn events(&self, about: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.plane.client(), "default");
        let events = events.list(&ListParams::default()).await.unwrap();
        let about =
            |event: &Event| event.regarding.as_ref().and_then(|one| one.name.as_deref()) == Some(about);
        let text = |event: Event| {
            format!("{}: {}", event.reason.unwrap_or_default(), event.note.unwrap_or_default())
        };
        events.items.into_iter().filter(about).map(text).collect()
    }
}
