//! ExtensionPlans on a real API server (docs/design/approvals.md#plan-objects).

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use olm_api::ExtensionPlan;
use olm_api::conditions::types;
use olm_api::extension_plan::PlanPhase;
use serde_json::json;

use super::fixture::{Fixture, Release, installed, version};

/// Fixture with the gate, and version 1.0.0 installed with these annotations. Any version is an upgrade.
async fn with_gate(annotations: &[(&str, Option<&str>)]) -> Fixture {
    let mut fixture = Fixture::start().await;
    fixture.stop_controller().await;
    fixture.extension_plans = true;
    fixture.start_controller();
    installed(&fixture, &json!({"upgradeConstraintPolicy": "SelfCertified"})).await;
    fixture.annotate("demo", annotations).await;
    fixture
}

fn api(fixture: &Fixture) -> Api<ExtensionPlan> {
    Api::all(fixture.plane.client())
}

async fn all(fixture: &Fixture) -> Vec<ExtensionPlan> {
    let mut all = api(fixture).list(&ListParams::default()).await.unwrap().items;
    all.sort_by_key(|plan| plan.metadata.creation_timestamp.as_ref().map(|created| created.0));
    all
}

/// Waits for a plan of this version in this phase.
async fn plan(fixture: &Fixture, version: &str, phase: PlanPhase) -> ExtensionPlan {
    let is_so = |plan: &ExtensionPlan| plan.spec.plan.bundle.version == version && plan.phase() == phase;
    let what = format!("plan of {version} {phase}");
    fixture.eventually(&what, async || all(fixture).await.into_iter().find(is_so)).await
}

async fn patch(fixture: &Fixture, plan: &ExtensionPlan, patch: serde_json::Value) -> Result<(), kube::Error> {
    let name = plan.name_any();
    api(fixture).patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

async fn approve(fixture: &Fixture, plan: &ExtensionPlan) {
    patch(fixture, plan, json!({"spec": {"approved": true}})).await.unwrap();
}

fn versions(count: usize) -> Vec<Release> {
    const ALL: [&str; 9] = ["1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0", "1.5.0", "1.6.0", "1.7.0", "1.8.0"];
    ALL[..count].iter().map(|&number| version(number, if number == "1.0.0" { "a" } else { number })).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_plan_object_installs_its_upgrade() {
    let mut fixture = with_gate(&[("approval", Some("ManualUpgrades"))]).await;
    fixture.publish("main", &versions(2)).await;
    let waiting = plan(&fixture, "1.1.0", PlanPhase::Pending).await;
    let extension = fixture.extensions.get("demo").await.unwrap();
    assert!(waiting.belongs_to(extension.metadata.uid.as_deref()));
    let content = &waiting.spec.plan;
    assert_eq!(waiting.name_any(), olm_api::names::plan_name("demo", 2, &content.digest));
    assert_eq!((content.bundle.catalog.as_deref(), content.objects.len()), (Some("main"), 1));
    assert!(content.bundle.image.ends_with(&content.bundle.image_digest) && !content.truncated);
    let expected = format!("; plan {}: {}; ", content.digest, content.summary);
    let is_reported = async || {
        fixture.condition("demo", types::UPGRADE_AVAILABLE).await.filter(|text| text.contains(&expected))
    };
    fixture.eventually(&expected, is_reported).await;
    let refused = patch(&fixture, &waiting, json!({"spec": {"plan": {"summary": "nothing"}}})).await;
    assert!(refused.unwrap_err().to_string().contains("plan is immutable"));

    // At rest nothing is written, not even by a new process.
    let versions_of = async |fixture: &Fixture| {
        let plans = all(fixture).await.iter().map(ResourceExt::resource_version).collect::<Vec<_>>();
        (plans, fixture.extensions.get("demo").await.unwrap().resource_version())
    };
    let before = versions_of(&fixture).await;
    fixture.stop_controller().await;
    fixture.start_controller();
    fixture.until_reconciled("other").await;
    fixture.context().parts.catalogs.requeue_extensions();
    fixture.until_reconciled("another").await;
    assert_eq!(versions_of(&fixture).await, before);

    // A deleted plan is written again.
    api(&fixture).delete(&waiting.name_any(), &DeleteParams::default()).await.unwrap();
    let again = plan(&fixture, "1.1.0", PlanPhase::Pending).await;
    assert_ne!(again.uid(), waiting.uid());
    assert_eq!(again.spec, waiting.spec);

    assert_eq!(fixture.revisions().await, ["demo-1"]);
    approve(&fixture, &again).await;
    fixture.revision("demo-2").await;
    let applied = plan(&fixture, "1.1.0", PlanPhase::Applied).await;
    assert_eq!(applied.uid(), again.uid());
    fixture.succeed("demo-2").await;
    let up_to_date = "False/UpToDate no newer version is held back";
    fixture.until_condition("demo", types::UPGRADE_AVAILABLE, up_to_date).await;

    // The approval covers its plan only.
    fixture.publish("main", &versions(3)).await;
    plan(&fixture, "1.2.0", PlanPhase::Pending).await;
    plan(&fixture, "1.1.0", PlanPhase::Applied).await;
    assert_eq!(fixture.revisions().await, ["demo-1", "demo-2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn superseded_plan_approves_nothing_and_five_are_kept() {
    let fixture =
        with_gate(&[("approval", Some("ManualUpgrades")), ("upgrade-window", Some("0 0 29 2 * 1m"))]).await;
    fixture.publish("main", &versions(2)).await;
    let first = plan(&fixture, "1.1.0", PlanPhase::Pending).await;
    // An approved plan waits for its window.
    approve(&fixture, &first).await;
    plan(&fixture, "1.1.0", PlanPhase::Approved).await;
    patch(&fixture, &first, json!({"spec": {"approved": false}})).await.unwrap();
    plan(&fixture, "1.1.0", PlanPhase::Pending).await;
    approve(&fixture, &first).await;
    plan(&fixture, "1.1.0", PlanPhase::Approved).await;
    // Annotation approved has the same effect.
    fixture.publish("main", &versions(3)).await;
    let second = plan(&fixture, "1.2.0", PlanPhase::Pending).await;
    plan(&fixture, "1.1.0", PlanPhase::Superseded).await;
    fixture.annotate("demo", &[("approved", Some(&second.spec.plan.digest))]).await;
    plan(&fixture, "1.2.0", PlanPhase::Approved).await;

    for count in 4..=7 {
        fixture.publish("main", &versions(count)).await;
        plan(&fixture, versions(count)[count - 1].version, PlanPhase::Pending).await;
    }
    let five = async || Some(all(&fixture).await).filter(|all| all.len() == 5);
    let kept = fixture.eventually("five plans", five).await;
    let waiting: Vec<&str> = kept
        .iter()
        .filter(|plan| plan.is_waiting())
        .map(|plan| plan.spec.plan.bundle.version.as_str())
        .collect();
    assert_eq!(waiting, ["1.6.0"]);
    assert_eq!(fixture.revisions().await, ["demo-1"]);

    // Without rules the upgrade is installed, from the plan that waited.
    fixture.annotate("demo", &[("approval", None), ("upgrade-window", None)]).await;
    fixture.revision("demo-2").await;
    plan(&fixture, "1.6.0", PlanPhase::Applied).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_a_withdrawn_upgrade_is_superseded() {
    let mut fixture = with_gate(&[("approval", Some("ManualUpgrades"))]).await;
    fixture.publish("main", &versions(2)).await;
    let waiting = plan(&fixture, "1.1.0", PlanPhase::Pending).await;
    fixture.publish("main", &versions(1)).await;
    plan(&fixture, "1.1.0", PlanPhase::Superseded).await;
    // The same plan waits again, with its object.
    fixture.publish("main", &versions(2)).await;
    let again = plan(&fixture, "1.1.0", PlanPhase::Pending).await;
    assert_eq!(again.uid(), waiting.uid());

    // An object that another user created in its place approves nothing.
    fixture.stop_controller().await;
    let mut forged = waiting.clone();
    forged.metadata = olm_api::ObjectMeta { name: waiting.metadata.name.clone(), ..Default::default() };
    forged.spec.approved = true;
    api(&fixture).delete(&waiting.name_any(), &DeleteParams::default()).await.unwrap();
    api(&fixture).create(&Default::default(), &forged).await.unwrap();
    fixture.start_controller();
    let replaced = async || all(&fixture).await.into_iter().find(|plan| !plan.spec.approved);
    let replaced = fixture.eventually("a plan with its owner", replaced).await;
    assert!(replaced.spec.plan == waiting.spec.plan && !replaced.owner_references().is_empty());
    assert_eq!(fixture.revisions().await, ["demo-1"]);

    // Without the gate nothing is written, and objects approve nothing.
    fixture.stop_controller().await;
    api(&fixture).delete(&replaced.name_any(), &DeleteParams::default()).await.unwrap();
    fixture.extension_plans = false;
    fixture.start_controller();
    fixture.until_reconciled("other").await;
    fixture.context().parts.catalogs.requeue_extensions();
    fixture.until_reconciled("another").await;
    assert_eq!(all(&fixture).await, []);
}
