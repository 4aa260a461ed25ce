//! The platform controller against a real API server, which resembles OpenShift if OpenShift's CRDs are applied.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod fixture;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use olm_api::cluster_upgrade_status::PlatformType;
use olm_api::conditions::Status;
use olm_platform::{ClusterOperatorCondition, ClusterOperatorMode};
use olm_servers::RunningController;
use operator_controller::platform::PlatformSettings;
use serde_json::{Value, json};

use fixture::{Fixture, evaluate, eventually, settings, until_passes};

const BLOCKED: &str =
    "Found ClusterExtensions that require upgrades prior to upgrading cluster to version 4.19: ";

fn openshift_limit(value: &str) -> String {
    format!("[{{\"type\":\"olm.maxOpenShiftVersion\",\"value\":{value}}}]")
}

fn kubernetes_limit(value: &str) -> String {
    format!("[{{\"type\":\"ext.olm.operatorframework.io/maxKubernetesVersion\",\"value\":{value}}}]")
}

fn own(message: &str) -> String {
    let message = message.replace('\n', "\nInstalledOLMOperatorsUpgradeable: ");
    format!(
        "False/InstalledOLMOperators_IncompatibleOperatorsInstalled: InstalledOLMOperatorsUpgradeable: {message}"
    )
}

const WELL: &str = "True/AsExpected: All is well";

// Cases operations-a34, operations-a35, operations-a36, operations-a39, operations-a40, operations-a41,
// operations-a42, operations-a43, operations-a49, operations-a50, operations-e34, seeds-s2-7
#[tokio::test(flavor = "multi_thread")]
async fn own_cluster_operator_follows_verdict() {
    let fixture = Fixture::openshift().await;
    fixture.make_cluster_version("4.18.3").await;
    let controller = fixture.controller(settings());
    // Case operations-a35
    fixture.until_upgradeable(WELL).await;
    fixture.install("plum", 1, &openshift_limit("\"4.19\"")).await;
    // Cases operations-a34, operations-a36
    fixture.install("kiwi", 1, &openshift_limit("\"4.18\"")).await;
    let kiwi = "bundle \"kiwi.v1\" for ClusterExtension \"kiwi\"";
    blocked_upgrade_is_reported(&fixture, kiwi).await;
    let note =
        "BlocksClusterUpgrade: Bundle \"kiwi.v1\" supports at most 4.18; the next cluster version is 4.19";
    eventually(note, async || fixture.events("kiwi").await.contains(&note.to_owned()).then_some(())).await;

    fixture.install("apple", 1, &openshift_limit("4.18")).await;
    let both = format!("{BLOCKED}bundle \"apple.v1\" for ClusterExtension \"apple\",{kiwi}.");
    fixture.until_upgradeable(&own(&both)).await;
    // Case operations-a40
    fixture.install("bad", 1, &openshift_limit("\"4.18.0\"")).await;
    let error = "error(s) with cluster extension bad: error in bundle bad.v1: error converting to semver for version \
                 \"4.18.0\": invalid version format";
    let additionally =
        " Additionally the following errors were encountered while getting extension metadata: ";
    fixture.until_upgradeable(&own(&format!("{both}\n{additionally}{error}"))).await;
    // Case operations-a42
    fixture.uninstall("apple-1").await;
    fixture.until_upgradeable(&own(&format!("{BLOCKED}{kiwi}.\n{additionally}{error}"))).await;
    unchanged_verdict_is_not_written(&fixture, &controller).await;
    let controller = restart_writes_nothing(&fixture, controller).await;

    // Cases operations-a43, operations-e34
    let before = fixture.cluster_operators().get("olm").await.unwrap();
    fixture.cluster_operators().delete("olm", &DeleteParams::default()).await.unwrap();
    let after = fixture.until_upgradeable(&own(&format!("{BLOCKED}{kiwi}.\n{additionally}{error}"))).await;
    assert_ne!(before.uid(), after.uid());
    fixture.statuses().delete("cluster", &DeleteParams::default()).await.unwrap();
    let text = format!("False/IncompatibleOperatorsInstalled: {BLOCKED}{kiwi}.\n{additionally}{error}");
    fixture.until_status(&text).await;

    // Case operations-a41: the old bundle blocks until its revision is archived
    let since = transition(&fixture).await;
    fixture.install("kiwi", 2, &openshift_limit("\"4.20\"")).await;
    evaluate(&controller, &fixture.cluster_versions(), "version").await;
    assert_eq!(transition(&fixture).await, since);
    fixture.archive("kiwi-1").await;
    // Case operations-a39
    let failed = format!("InstalledOLMOperatorsUpgradeable: {error}");
    fixture
        .until_upgradeable(&format!("False/InstalledOLMOperators_FailureGettingExtensionMetadata: {failed}"))
        .await;
    assert_eq!(transition(&fixture).await, since);
    fixture.uninstall("bad-1").await;
    fixture.until_upgradeable(WELL).await;
    fixture.until_status(WELL).await;
    repeated_block_is_reported_again(&fixture, note).await;
    metrics_show_compatible_cluster(&controller.metrics.prometheus_text());
    controller.stop().await;
}

/// Waits for the ClusterOperator and the ClusterUpgradeStatus that extension kiwi blocks.
async fn blocked_upgrade_is_reported(fixture: &Fixture, kiwi: &str) {
    let object = fixture.until_upgradeable(&own(&format!("{BLOCKED}{kiwi}."))).await;
    assert_eq!(object.data["status"]["versions"][0], json!({"name": "operator", "version": "4.18.3"}));
    assert_eq!(object.data["status"]["conditions"].as_array().unwrap().len(), 4);
    let status = fixture
        .until_status(&format!("False/IncompatibleOperatorsInstalled: {BLOCKED}{kiwi}."))
        .await
        .status
        .unwrap();
    assert_eq!(status.blocking_extensions, Some(1));
    let shown = status.platform.unwrap();
    assert_eq!((shown.type_.as_str(), shown.next_version.as_deref()), ("OpenShift", Some("4.19")));
    let results: Vec<_> =
        status.extensions.iter().map(|row| (row.name.as_str(), row.result.as_str())).collect();
    assert_eq!(results, [("kiwi", "Blocking"), ("plum", "Compatible")]);
}

fn metrics_show_compatible_cluster(metrics: &str) {
    for line in [
        "operator_controller_cluster_upgradeable{status=\"True\"} 1",
        "operator_controller_cluster_upgradeable{status=\"False\"} 0",
        "operator_controller_cluster_operator_writes_total{result=\"success\"}",
        "operator_controller_upgrade_status_eval_seconds_count",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert!(!metrics.contains("operator_controller_extension_platform_incompatible{"), "{metrics}");
}

/// Waits for the Event, then reinstalls the blocking bundle and removes it again.
async fn repeated_block_is_reported_again(fixture: &Fixture, note: &str) {
    let unblocked = "ClusterUpgradeUnblocked: ";
    eventually(unblocked, async || {
        fixture.events("kiwi").await.iter().any(|event| event.starts_with(unblocked)).then_some(())
    })
    .await;
    fixture.uninstall("kiwi-1").await;
    fixture.install("kiwi", 1, &openshift_limit("\"4.18\"")).await;
    let twice = async |note: &str| {
        eventually(note, async || {
            let said = fixture.events("kiwi").await;
            (said.iter().filter(|event| event.starts_with(note)).count() == 2).then_some(())
        })
        .await;
    };
    twice(note).await;
    fixture.uninstall("kiwi-1").await;
    twice("ClusterUpgradeUnblocked: ").await;
    fixture.until_upgradeable(WELL).await;
}

async fn transition(fixture: &Fixture) -> Value {
    let object = fixture.cluster_operators().get("olm").await.unwrap();
    let conditions = object.data["status"]["conditions"].as_array().unwrap().clone();
    conditions.into_iter().find(|one| one["type"] == "Upgradeable").unwrap()["lastTransitionTime"].clone()
}

async fn versions(fixture: &Fixture) -> [Option<String>; 2] {
    let operator = fixture.cluster_operators().get("olm").await.unwrap().resource_version();
    [operator, fixture.statuses().get("cluster").await.unwrap().resource_version()]
}

// Case operations-a50
async fn unchanged_verdict_is_not_written(fixture: &Fixture, controller: &RunningController) {
    evaluate(controller, &fixture.cluster_versions(), "version").await;
    let before = versions(fixture).await;
    evaluate(controller, &fixture.cluster_versions(), "version").await;
    assert_eq!(versions(fixture).await, before);
}

// Case operations-a49: a restart sends no write.
async fn restart_writes_nothing(fixture: &Fixture, controller: RunningController) -> RunningController {
    controller.stop().await;
    let before = versions(fixture).await;
    let controller = fixture.controller(settings());
    until_passes(&controller, 2).await;
    assert_eq!(versions(fixture).await, before);
    controller
}

// Cases operations-a47, operations-e32
#[tokio::test(flavor = "multi_thread")]
async fn openshift_without_version_reports_unknown_until_it_is_known() {
    let fixture = Fixture::openshift().await;
    fixture.install("kiwi", 1, &openshift_limit("\"4.18\"")).await;
    let controller = fixture.controller(PlatformSettings { mode: ClusterOperatorMode::Own, ..settings() });
    let text = "Cannot determine the cluster version; 1 installed extension declares a maximum version: kiwi";
    let status =
        fixture.until_status(&format!("Unknown/PlatformVersionUnknown: {text}")).await.status.unwrap();
    assert_eq!(status.extensions[0].result.as_str(), "Unknown");
    let checking =
        "False/InstalledOLMOperators_ErrorCheckingOperatorCompatibility: InstalledOLMOperatorsUpgradeable: ";
    fixture.until_upgradeable(&format!("{checking}{text}")).await;
    // The version becomes known.
    fixture.make_cluster_version("4.17.9").await;
    fixture.until_upgradeable(WELL).await;
    let desired = json!({"desired": {"version": "4.18.0"}});
    fixture.set_status(&fixture.cluster_versions(), "version", desired).await;
    let blocked = format!("{BLOCKED}bundle \"kiwi.v1\" for ClusterExtension \"kiwi\".");
    fixture.until_upgradeable(&own(&blocked)).await;
    contended_cluster_operator_is_yielded(&fixture, &controller, &own(&blocked)).await;
    controller.stop().await;
}

// Case operations-e35
async fn contended_cluster_operator_is_yielded(
    fixture: &Fixture,
    controller: &RunningController,
    ours: &str,
) {
    let theirs = |number: i32| {
        let condition = ClusterOperatorCondition {
            status: Status::True,
            reason: "Theirs".to_owned(),
            message: number.to_string(),
        };
        condition.to_value("Upgradeable", None, Timestamp::now())
    };
    for number in 0..5 {
        let object = fixture.until_upgradeable(ours).await;
        let mut conditions = object.data["status"]["conditions"].as_array().unwrap().clone();
        conditions.retain(|one| one["type"] != "Upgradeable");
        conditions.push(theirs(number));
        fixture.set_status(&fixture.cluster_operators(), "olm", json!({ "conditions": conditions })).await;
    }
    let contended = "operator_controller_cluster_operator_writes_total{result=\"contended\"}";
    eventually("contention is counted", async || {
        controller.metrics.prometheus_text().contains(contended).then_some(())
    })
    .await;
    fixture.until_upgradeable("True/Theirs: 4").await;
    // The whole object is skipped, not only the condition.
    fixture.set_status(&fixture.cluster_operators(), "olm", json!({"versions": null})).await;
    evaluate(controller, &fixture.cluster_versions(), "version").await;
    let object = fixture.until_upgradeable("True/Theirs: 4").await;
    assert!(object.data["status"].get("versions").is_none());
    let event = "ClusterOperatorContended: ";
    eventually(event, async || {
        fixture.events("olm").await.iter().any(|one| one.starts_with(event)).then_some(())
    })
    .await;
}

// docs/design/operations.md#outlets; case operations-a44
#[tokio::test(flavor = "multi_thread")]
async fn verdict_is_contributed_to_olm_object_until_its_operator_takes_over() {
    let fixture = Fixture::openshift().await;
    fixture.make_cluster_version("4.18.3").await;
    let (olms, gates) = (fixture.olms(), fixture.feature_gates());
    let theirs = json!([{
        "type": "InstalledOLMOperatorsUpgradeable", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    fixture
        .make(&olms, "OLM", "cluster", json!({"managementState": "Managed"}), json!({"conditions": theirs}))
        .await;
    let none = json!({"featureGates": [{"version": "4.18.3", "enabled": [{"name": "Other"}]}]});
    fixture.make(&gates, "FeatureGate", "cluster", json!({}), none).await;
    fixture.make(&fixture.cluster_operators(), "ClusterOperator", "olm", json!({}), json!({})).await;
    let untouched = fixture.cluster_operators().get("olm").await.unwrap().resource_version();
    fixture.install("kiwi", 1, &openshift_limit("\"4.18\"")).await;

    let controller = fixture.controller(settings());
    let text = format!("{BLOCKED}bundle \"kiwi.v1\" for ClusterExtension \"kiwi\".");
    let blocked = format!("False/IncompatibleOperatorsInstalled: {text}");
    let object = fixture.until_condition(&olms, "cluster", "ClusterExtensionsUpgradeable", &blocked).await;
    assert_eq!(object.data["status"]["conditions"][0], theirs[0]);
    let managers = object.metadata.managed_fields.unwrap();
    let manager = "olm.operatorframework.io/cluster-upgrade-status";
    assert!(managers.iter().any(|one| one.manager.as_deref() == Some(manager)));

    // An unchanged verdict is not written again.
    let before = olms.get("cluster").await.unwrap().resource_version();
    evaluate(&controller, &gates, "cluster").await;
    assert_eq!(olms.get("cluster").await.unwrap().resource_version(), before);

    // The gate makes the OLM operator evaluate revisions. Until it has, only our condition blocks an update.
    let on =
        json!({"featureGates": [{"version": "4.18.3", "enabled": [{"name": "NewOLMBoxCutterRuntime"}]}]});
    fixture.set_status(&gates, "cluster", on).await;
    evaluate(&controller, &gates, "cluster").await;
    let object = olms.get("cluster").await.unwrap();
    assert_eq!(object.resource_version(), before);
    // The OLM operator has evaluated, so our condition must no longer block.
    let mut conditions = object.data["status"]["conditions"].clone();
    conditions[0]["status"] = json!("False");
    fixture.set_status(&olms, "cluster", json!({ "conditions": conditions })).await;
    let retracted = "True/NotContributed: ";
    fixture.until_condition(&olms, "cluster", "ClusterExtensionsUpgradeable", retracted).await;

    let unmanaged = Patch::Merge(json!({"spec": {"managementState": "Unmanaged"}}));
    olms.patch("cluster", &PatchParams::default(), &unmanaged).await.unwrap();
    let event = "ClusterOperatorNotWritten: OLM \"cluster\" has managementState Unmanaged: its operator decides about \
                 the ClusterOperator";
    eventually(event, async || fixture.events("cluster").await.contains(&event.to_owned()).then_some(()))
        .await;
    assert_eq!(fixture.cluster_operators().get("olm").await.unwrap().resource_version(), untouched);
    fixture.until_status(&blocked).await;
    controller.stop().await;
}

// docs/design/additions.md#ignored-constraints; cases operations-a45, operations-a46, operations-a48, operations-e39
#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_ignores_openshift_constraints_unless_configured() {
    let fixture = Fixture::start().await;
    let is_ours = |crd: &Value| crd["spec"]["group"] == "ext.olm.operatorframework.io";
    let (ext, standard): (Vec<Value>, Vec<Value>) = olm_api::crds::crds().into_iter().partition(is_ours);
    fixture.plane.apply_crds(&standard).await.unwrap();
    fixture.install("kiwi", 1, &openshift_limit("\"4.18\"")).await;
    let controller = fixture.controller(settings());
    // Case operations-e39: only metrics are written.
    until_passes(&controller, 1).await;
    let upgradeable = "operator_controller_cluster_upgradeable{status=\"True\"} 1";
    assert!(controller.metrics.prometheus_text().contains(upgradeable));
    assert!(!controller.metrics.prometheus_text().contains("result=\"error\"} 1"));

    // Case operations-a45
    fixture.plane.apply_crds(&ext).await.unwrap();
    let ignored = "True/AsExpected: All is well; olm.maxOpenShiftVersion was not evaluated because the platform is not \
                   OpenShift: bundle \"kiwi.v1\" for ClusterExtension \"kiwi\"";
    let status = fixture.until_status(ignored).await.status.unwrap();
    assert_eq!(status.extensions[0].result.as_str(), "NotApplicable");
    assert_eq!(status.blocking_extensions, Some(0));
    let current = status.platform.unwrap().current_version.unwrap();

    // Case operations-a48
    fixture.install("plum", 1, &kubernetes_limit(&current)).await;
    let minor: u32 = current.strip_prefix("1.").unwrap().parse().unwrap();
    let next = minor + 1;
    let blocked = format!(
        "False/IncompatibleOperatorsInstalled: Found ClusterExtensions that require upgrades prior to upgrading \
         cluster to version 1.{next}: bundle \"plum.v1\" for ClusterExtension \"plum\"."
    );
    fixture.until_status(&blocked).await;
    let incompatible = "operator_controller_extension_platform_incompatible{extension=\"plum\",bundle=\"plum.v1\",\
                        constraint=\"ext.olm.operatorframework.io/maxKubernetesVersion\"} 1";
    assert!(controller.metrics.prometheus_text().contains(incompatible));
    controller.stop().await;
    fixture.uninstall("plum-1").await;

    // Case operations-a46
    let platform = Some(PlatformType::OpenShift);
    let version = "4.18".parse().ok();
    let controller = fixture.controller(PlatformSettings { platform, version, ..settings() });
    let blocked = "bundle \"kiwi.v1\" for ClusterExtension \"kiwi\".";
    let status =
        fixture.until_status(&format!("False/IncompatibleOperatorsInstalled: {BLOCKED}{blocked}")).await;
    let platform = status.status.unwrap().platform.unwrap();
    assert_eq!(platform.source.unwrap().as_str(), "Flag");
    acknowledged_bundle_does_not_block_until_it_changes(&fixture).await;
    controller.stop().await;
}

// docs/design/operations.md#acknowledgements; cases operations-a46, operations-e38
async fn acknowledged_bundle_does_not_block_until_it_changes(fixture: &Fixture) {
    let acknowledge = async |version: &str| {
        let one = json!({"extension": "kiwi", "bundle": "kiwi.v1", "platformVersion": version, "comment": "tested"});
        let patch = Patch::Merge(json!({"spec": {"acknowledgements": [one]}}));
        fixture.statuses().patch("cluster", &PatchParams::default(), &patch).await.unwrap();
    };
    acknowledge("4.19").await;
    let status = fixture.until_status("True/AsExpected: All is well").await.status.unwrap();
    assert_eq!((status.extensions[0].result.as_str(), status.blocking_extensions), ("Acknowledged", Some(0)));
    let message = "supports at most 4.18, the next version is 4.19";
    assert_eq!(status.extensions[0].message.as_deref(), Some(message));
    // The new bundle needs its own acknowledgement.
    fixture.install("kiwi", 2, &openshift_limit("\"4.18\"")).await;
    let blocked = "bundle \"kiwi.v2\" for ClusterExtension \"kiwi\".";
    fixture.until_status(&format!("False/IncompatibleOperatorsInstalled: {BLOCKED}{blocked}")).await;
    fixture.uninstall("kiwi-2").await;
    fixture.until_status("True/AsExpected: All is well").await;
    acknowledge("4.20").await;
    let blocked = "bundle \"kiwi.v1\" for ClusterExtension \"kiwi\".";
    fixture.until_status(&format!("False/IncompatibleOperatorsInstalled: {BLOCKED}{blocked}")).await;
}
