//! API calls of a pass: none without a change reported by a watch (docs/design/apply.md#fast-path), and only reads
//! and dry runs while paused.

use super::*;
use crate::teardown::{NewOwner, TeardownOptions};
use kube::core::ObjectMeta;
use std::time::Duration;

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "ns"}})
}

fn tell(
    engine: &Engine<Fake>,
    key: &ObjectKey,
    object: &Value,
    tell: impl Fn(&ObservedVersions, &ObjectMeta),
) {
    let [namespace, name] = [&key.namespace, &key.name].map(|text| Some(text.clone()));
    let [uid, resource_version] = ["uid", "resourceVersion"]
        .map(|member| Some(text(object, &format!("/metadata/{member}")).to_owned()));
    let observed = ObjectMeta { namespace, name, uid, resource_version, ..ObjectMeta::default() };
    tell(&engine.observed_versions(), &observed);
}

/// Reports the list of existing objects, like the watches.
fn list(engine: &Engine<Fake>) {
    let objects = engine.cluster.0.lock().objects.clone();
    for gvk in [ObjectKey::of(&config_map("")).gvk, ObjectKey::of(&deployment("")).gvk] {
        engine.observed_versions().begin_list(&gvk);
        for (key, object) in objects.iter().filter(|(key, _)| key.gvk == gvk) {
            tell(engine, key, object, |observed_versions, observed_version| {
                observed_versions.record_listed(&gvk, observed_version);
            });
        }
        engine.observed_versions().complete_list(&gvk);
    }
}

/// Changes an object as another client, and reports the watch event.
fn change(engine: &Engine<Fake>, object: &Value, pointer: &str, value: Value) {
    let mut live = engine.cluster.0.lock().objects[&ObjectKey::of(object)].clone();
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    live.pointer_mut(parent).unwrap()[member] = value;
    let live = engine.cluster.store(&live);
    let key = ObjectKey::of(object);
    tell(engine, &key, &live, |observed_versions, observed_version| {
        observed_versions.record(&key.gvk, observed_version)
    });
}

fn calls(engine: &Engine<Fake>) -> Vec<String> {
    std::mem::take(&mut engine.cluster.0.lock().calls)
}

async fn fast_path(engine: &Engine<Fake>, revision: &Revision) -> Option<RevisionResult> {
    engine.fast_path(&revision.owner, &revision.siblings, &revision.probes).await
}

async fn applied(phases: &[(&str, &[&str])]) -> (Engine<Fake>, Revision) {
    let engine = Engine::new(Fake::default());
    let revision = revision(phases);
    assert!(engine.reconcile(&revision).await.is_complete());
    list(&engine);
    calls(&engine);
    (engine, revision)
}

#[tokio::test]
async fn unchanged_objects_cost_no_call() {
    let (engine, revision) = applied(&[("a", &["x", "y"]), ("b", &["z"])]).await;
    let first = engine.reconcile(&revision).await;
    assert!(first.is_complete());
    assert_eq!(fast_path(&engine, &revision).await, Some(first));
    assert_eq!(calls(&engine), [""; 0]);
}

#[tokio::test]
async fn changed_object_costs_one_read() {
    let (engine, mut revision) = applied(&[("a", &["x"])]).await;
    revision.phases.push(ContentPhase::inline("b", vec![deployment("op")]));
    assert!(!engine.reconcile(&revision).await.is_complete());
    list(&engine);
    calls(&engine);
    let waiting = fast_path(&engine, &revision).await.unwrap();
    let line =
        "Object Deployment.apps/v1 ns/op: missing .status.conditions and \"status.updatedReplicas\" missing";
    assert!(line.starts_with(&waiting.probe_failures().unwrap()), "{waiting:?}");
    assert_eq!(calls(&engine), [""; 0]);

    let ready = json!({"replicas": 1, "updatedReplicas": 1,
        "conditions": [{"type": "Available", "status": "True"}]});
    change(&engine, &deployment("op"), "/status", ready);
    assert!(fast_path(&engine, &revision).await.unwrap().is_complete());
    assert_eq!(calls(&engine), ["get op"]);
    assert!(fast_path(&engine, &revision).await.unwrap().is_complete());
    assert_eq!(calls(&engine), [""; 0]);
}

// Cases apply-15, apply-16
#[tokio::test]
async fn drift_requires_the_content() {
    let (engine, revision) = applied(&[("a", &["x", "y"])]).await;
    change(&engine, &config_map("x"), "/data", json!({"k": "foreign"}));
    assert_eq!(fast_path(&engine, &revision).await, None);
    assert_eq!(calls(&engine), ["get x"]);
    assert!(engine.reconcile(&revision).await.is_complete());
    assert_eq!(calls(&engine), ["get x", "dry-run x", "apply x"]);

    let key = ObjectKey::of(&config_map("y"));
    let gone = engine.cluster.0.lock().objects.remove(&key).unwrap();
    tell(&engine, &key, &gone, |observed_versions, observed_version| {
        observed_versions.remove(&key.gvk, observed_version)
    });
    assert_eq!(fast_path(&engine, &revision).await, None);
    calls(&engine);
    assert!(engine.reconcile(&revision).await.is_complete());
    // The repair of x is newer than the versions that the watch observed.
    assert_eq!(calls(&engine), ["get y", "dry-run y", "create y"]);
}

#[tokio::test]
async fn failed_read_leaves_the_fast_path() {
    let (engine, revision) = applied(&[("a", &["x"])]).await;
    change(&engine, &config_map("x"), "/status", json!({}));
    engine.cluster.0.lock().failures.push(("get x", ApiErrorReason::Unavailable));
    assert_eq!(fast_path(&engine, &revision).await, None);
    assert!(fast_path(&engine, &revision).await.is_some());
}

#[tokio::test]
async fn next_phase_requires_the_content() {
    let engine = Engine::new(Fake::default());
    let mut revision = revision(&[("a", &[]), ("b", &["x"])]);
    revision.phases[0] = ContentPhase::inline("a", vec![deployment("op")]);
    engine.reconcile(&revision).await;
    list(&engine);
    assert!(!fast_path(&engine, &revision).await.unwrap().is_complete());
    let ready = json!({"conditions": [{"type": "Available", "status": "True"}]});
    change(&engine, &deployment("op"), "/status", ready);
    assert_eq!(fast_path(&engine, &revision).await, None);
    assert!(engine.reconcile(&revision).await.is_complete());
    engine.forget(&revision.owner.uid);
    assert_eq!(fast_path(&engine, &revision).await, None);
}

// An object that a newer revision took over must come back when that revision is deleted.
#[tokio::test]
async fn changed_siblings_leave_the_fast_path() {
    let (engine, mut older) = applied(&[("a", &["x"])]).await;
    let newer = successor(&[("a", &["x"])]);
    older.siblings = vec!["u2".into()];
    assert!(engine.reconcile(&newer).await.is_complete());
    list(&engine);
    let result = engine.reconcile(&older).await;
    assert_eq!(result.phases[0].objects[0].action, Action::Progressed);
    calls(&engine);
    assert_eq!(fast_path(&engine, &older).await, Some(result));
    assert_eq!(calls(&engine), [""; 0]);
    older.siblings.clear();
    assert_eq!(fast_path(&engine, &older).await, None);
    let result = engine.reconcile(&older).await;
    assert_eq!(result.phases[0].objects[0].action, Action::Collision);
}

#[tokio::test]
async fn object_that_a_sibling_changed_or_read_is_not_read_again() {
    let phases: &[(&str, &[&str])] = &[("a", &["x"])];
    let (engine, mut older) = applied(phases).await;
    let newer = successor(phases);
    older.siblings = vec![newer.owner.uid.clone()];
    assert!(engine.reconcile(&newer).await.is_complete());
    list(&engine);
    calls(&engine);
    let result = fast_path(&engine, &older).await.unwrap();
    assert_eq!(result.phases[0].objects[0].action, Action::Progressed);
    assert_eq!(calls(&engine), [""; 0], "adopted by the sibling");

    change(&engine, &config_map("x"), "/status", json!({"k": "v"}));
    assert!(fast_path(&engine, &older).await.is_some());
    assert!(fast_path(&engine, &newer).await.is_some());
    assert_eq!(calls(&engine), ["get x"], "changed by another client");

    engine.teardown(&older, &TeardownOptions::default()).await.unwrap();
    list(&engine);
    assert_eq!(calls(&engine), ["get x", "merge x"]);
    assert!(fast_path(&engine, &newer).await.is_some());
    assert_eq!(calls(&engine), [""; 0], "released by the sibling");
}

fn successor(phases: &[(&str, &[&str])]) -> Revision {
    let owner = Owner { name: "r-2".into(), uid: "u2".into(), number: 2, extension: "r".into() };
    Revision { owner, siblings: vec!["u".into()], ..revision(phases) }
}

// docs/design/apply.md#dry-run
#[tokio::test]
async fn object_alone_in_its_phase_is_adopted_without_dry_run() {
    let phases: &[(&str, &[&str])] = &[("a", &["x"]), ("b", &["y", "z"])];
    let (engine, _) = applied(phases).await;
    assert!(engine.reconcile(&successor(phases)).await.is_complete());
    let checks = ["get x", "apply x", "get y", "dry-run y", "get z", "dry-run z", "apply y", "apply z"];
    assert_eq!(calls(&engine), checks);
}

// An apply can create a custom resource while its CRD is being deleted.
#[tokio::test]
async fn custom_resource_alone_in_its_phase_is_created_with_dry_run() {
    let widget = json!({"apiVersion": "acme.example/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "ns"}});
    let phases =
        vec![ContentPhase::inline("a", vec![config_map("x")]), ContentPhase::inline("b", vec![widget])];
    let engine = Engine::new(Fake::default());
    assert!(engine.reconcile(&Revision { phases, ..revision(&[]) }).await.is_complete());
    assert_eq!(calls(&engine), ["get x", "create x", "get w", "dry-run w", "create w"]);
}

#[tokio::test]
async fn migrated_object_is_adopted_with_dry_run() {
    let phases: &[(&str, &[&str])] = &[("a", &["x"])];
    let (engine, _) = applied(phases).await;
    let successor = Revision { is_migrated: true, ..successor(phases) };
    assert!(engine.reconcile(&successor).await.is_complete());
    assert_eq!(calls(&engine), ["get x", "dry-run x", "apply x"]);
}

#[tokio::test]
async fn rejected_adoption_reports_the_verdict_of_the_dry_run() {
    let phases: &[(&str, &[&str])] = &[("a", &["x"])];
    let (engine, _) = applied(phases).await;
    let fail =
        |failures: &[(&'static str, ApiErrorReason)]| engine.cluster.0.lock().failures = failures.to_vec();
    fail(&[("apply x", ApiErrorReason::NotPermitted), ("dry-run x", ApiErrorReason::NotPermitted)]);
    let result = engine.reconcile(&successor(phases)).await;
    let verdict = "phase 0 validation error: phase \"a\": /v1, Kind=ConfigMap ns/x: no dry-run x";
    assert_eq!(result.blocker().as_deref(), Some(verdict));
    assert_eq!(result.phases[0].denials, ["no dry-run x"]);
    assert_eq!(calls(&engine), ["get x", "apply x", "get x", "dry-run x"]);
    fail(&[("dry-run x", ApiErrorReason::Rejected)]);
    assert!(engine.reconcile(&successor(phases)).await.blocker().is_some());
    assert_eq!(calls(&engine), ["get x", "dry-run x"], "a rejected object is only tried by dry run");
    assert!(engine.reconcile(&successor(phases)).await.is_complete());
}

#[tokio::test]
async fn failed_adoption_is_repeated_with_a_dry_run() {
    let phases: &[(&str, &[&str])] = &[("a", &["x"])];
    let (engine, _) = applied(phases).await;
    engine.cluster.0.lock().failures =
        vec![("apply x", ApiErrorReason::Unavailable), ("dry-run x", ApiErrorReason::Unavailable)];
    let failure = engine.reconcile(&successor(phases)).await.failure.unwrap();
    assert_eq!(failure.to_string(), "reconciling object: validating: no dry-run x");
    calls(&engine);
    assert!(engine.reconcile(&successor(phases)).await.is_complete());
    assert_eq!(calls(&engine), ["get x", "dry-run x", "apply x"]);

    let (engine, _) = applied(phases).await;
    engine.cluster.0.lock().failures.push(("apply x", ApiErrorReason::Unanswered));
    let failure = engine.reconcile(&successor(phases)).await.failure.unwrap();
    let step =
        "reconciling object: reconciling /v1, Kind=ConfigMap ns/x: patching (owner change): no apply x";
    assert_eq!(failure.to_string(), step);
    assert_eq!(calls(&engine), ["get x", "apply x"], "the server does not answer");
    assert!(engine.reconcile(&successor(phases)).await.is_complete());
    assert_eq!(calls(&engine), ["get x", "dry-run x", "apply x"]);

    let (engine, _) = applied(phases).await;
    engine.cluster.0.lock().failures = vec![("apply x", ApiErrorReason::Conflict); 3];
    let failure = engine.reconcile(&successor(phases)).await.failure.unwrap();
    assert_eq!(failure.to_string(), step);
    let attempt = ["get x", "apply x"];
    assert_eq!(calls(&engine), [attempt; 3].concat(), "a conflict is not explained by a dry run");
    assert!(engine.reconcile(&successor(phases)).await.is_complete());
    assert_eq!(calls(&engine), ["get x", "dry-run x", "apply x"]);
}

// docs/design/apply.md#pause
#[tokio::test]
async fn paused_revision_is_observed_without_writes() {
    let engine = Engine::new(Fake::default());
    let revision = revision(&[("a", &["x"]), ("b", &["y"])]);
    let result = engine.observe(&revision).await;
    assert!(!result.is_complete() && result.blocker().is_none() && result.failure.is_none());
    assert_eq!(result.phases[0].objects[0].action, Action::Held);
    assert_eq!(result.probe_failures().unwrap(), "Object ConfigMap.v1 ns/x: not applied while paused");
    assert_eq!(calls(&engine), ["get x", "dry-run x"]);
    assert_eq!(fast_path(&engine, &revision).await, None);

    assert!(engine.reconcile(&revision).await.is_complete());
    assert!(engine.observe(&revision).await.is_complete());
    list(&engine);
    change(&engine, &config_map("x"), "/data", json!({"k": "foreign"}));
    calls(&engine);
    let result = engine.observe(&revision).await;
    assert_eq!((result.phases.len(), result.phases[0].objects[0].action), (1, Action::Held));
    assert_eq!(calls(&engine), ["get x", "dry-run x"]);
}

// docs/design/apply.md#collision-protection: ownership is checked before the API server's verdict.
#[tokio::test]
async fn collision_is_reported_before_rejections() {
    let engine = Engine::new(Fake::failing(&[("dry-run y", ApiErrorReason::Rejected)]));
    engine.cluster.store(&config_map("x"));
    let result = engine.reconcile(&revision(&[("a", &["x", "y", "z"])])).await;
    let head = "revision object collisions in phase 0\nObject ConfigMap.v1 ns/x\nAction: \"Collision\"\n";
    assert!(result.blocker().unwrap().starts_with(head), "{result:?}");
    assert!(!result.is_complete());
    // Nothing of the phase is written.
    assert_eq!(calls(&engine), ["get x", "get y", "dry-run y", "get z", "dry-run z"]);
}

// docs/design/apply.md#handover
#[tokio::test]
async fn superseded_revision_leaves_missing_object_to_newer_one_for_some_time() {
    let phases: &[(&str, &[&str])] = &[("a", &["x"])];
    let (engine, older) = applied(phases).await;
    let key = ObjectKey::of(&config_map("x"));
    engine.cluster.0.lock().objects.remove(&key);
    engine.observed_versions().remove(
        &key.gvk,
        &ObjectMeta { name: Some("x".into()), namespace: Some("ns".into()), ..ObjectMeta::default() },
    );
    let mut older = Revision { siblings: vec!["u2".into()], creation_delay: Duration::MAX, ..older };
    for _ in 0..2 {
        let result = engine.reconcile(&older).await;
        assert!(result.has_deferred() && !result.is_complete(), "{result:?}");
        assert_eq!(calls(&engine), ["get x"]);
        assert_eq!(fast_path(&engine, &older).await, None);
        calls(&engine);
    }
    older.creation_delay = Duration::from_nanos(1);
    assert!(engine.reconcile(&older).await.is_complete());
    assert_eq!(calls(&engine), ["get x", "create x"]);
}

fn immutable(engine: &Engine<Fake>, calls: &[&'static str]) {
    engine.cluster.0.lock().failures = calls.iter().map(|call| (*call, ApiErrorReason::Immutable)).collect();
}

// docs/design/apply.md#immutable-fields
#[tokio::test]
async fn immutable_object_is_replaced_after_dry_run_of_its_creation() {
    let of = |number: i64, siblings: &[&str]| {
        let owner =
            Owner { name: format!("r-{number}"), uid: format!("u{number}"), number, extension: "r".into() };
        let phases = vec![ContentPhase::inline("a", vec![deployment("op")])];
        let siblings = siblings.iter().map(|&uid| uid.into()).collect();
        Revision { owner, phases, siblings, probes: Probes::default(), ..revision(&[]) }
    };
    let engine = Engine::new(Fake::default());
    engine.reconcile(&of(1, &[])).await;
    calls(&engine);
    let trial = "dry-run olm-dry-run-of-a-replacement";
    let verdict = ["get op", "apply op", "get op", "dry-run op"];
    immutable(&engine, &["apply op", "dry-run op"]);
    assert!(engine.reconcile(&of(2, &["u1"])).await.blocker().is_some(), "not allowed");
    assert_eq!(calls(&engine), verdict);
    let allowed = Revision { replaces_immutable: true, ..of(3, &["u1"]) };
    immutable(&engine, &["apply op", "dry-run op", trial]);
    let invalid = engine.reconcile(&allowed).await.blocker().unwrap();
    assert!(invalid.ends_with("Kind=Deployment ns/op: no dry-run op"), "{invalid}");
    assert_eq!(calls(&engine), [&verdict[..], &[trial]].concat());
    immutable(&engine, &["dry-run op"]);
    engine.cluster.0.lock().failures.push((trial, ApiErrorReason::NoDryRun));
    assert!(engine.reconcile(&allowed).await.failure.is_some(), "the creation was not checked");
    assert_eq!(calls(&engine), ["get op", "dry-run op", trial]);
    immutable(&engine, &["dry-run op"]);
    assert!(engine.reconcile(&allowed).await.is_complete());
    assert_eq!(calls(&engine), ["get op", "dry-run op", trial, "delete op", "create op"]);
    immutable(&engine, &["dry-run op"]);
    let paused = engine
        .observe(&Revision {
            owner: Owner { number: 4, ..of(4, &[]).owner },
            siblings: vec!["u3".into()],
            ..allowed
        })
        .await;
    assert_eq!(paused.phases[0].objects[0].action, Action::Held);
    assert_eq!(calls(&engine), ["get op", "dry-run op", trial]);
}

// docs/design/apply.md#denied-deletions
#[tokio::test]
async fn denied_handover_is_reported_like_a_denied_deletion() {
    let (engine, older) = applied(&[("a", &["x", "y"])]).await;
    let newer = successor(&[("a", &["x"])]);
    let new_owners = vec![NewOwner::new(newer.owner.clone(), &newer.phases)];
    let options = TeardownOptions { new_owners, ..TeardownOptions::default() };
    let failures = vec![("merge x", ApiErrorReason::Rejected), ("delete y", ApiErrorReason::NotPermitted)];
    engine.cluster.0.lock().failures = failures;
    let result = engine.teardown(&older, &options).await.unwrap();
    let denials = "/v1, Kind=ConfigMap ns/x: no merge x; /v1, Kind=ConfigMap ns/y: no delete y";
    assert_eq!((result.denials().as_str(), result.is_complete()), (denials, false));
    engine.cluster.0.lock().failures = vec![("merge x", ApiErrorReason::Rejected)];
    let handed = engine.hand_over(&older.owner, &options.new_owners).await.unwrap();
    assert!(!handed.is_complete(), "garbage collection would delete it");
    assert!(engine.teardown(&older, &options).await.unwrap().is_complete());
}

// docs/design/apply.md#restored-cluster
#[tokio::test]
async fn removed_object_is_read_again_after_a_list_and_without_a_watch() {
    let (engine, revision) = applied(&[("a", &["x", "y"])]).await;
    let options = TeardownOptions::default();
    let pass = async || {
        engine.cluster.0.lock().failures = vec![("delete y", ApiErrorReason::Conflict)];
        assert!(!engine.teardown(&revision, &options).await.unwrap().is_complete());
        calls(&engine)
    };
    let before = engine.cluster.0.lock().objects.clone();
    assert_eq!(pass().await, ["get x", "delete x", "get y", "delete y"]);
    assert_eq!(pass().await, ["get y", "delete y"]);
    engine.observed_versions().interrupt(&ObjectKey::of(&config_map("")).gvk);
    assert_eq!(pass().await, ["get x", "get y", "delete y"]);
    list(&engine);
    assert_eq!(pass().await, ["get x", "get y", "delete y"]);
    assert_eq!(pass().await, ["get y", "delete y"]);
    engine.cluster.0.lock().objects = before;
    list(&engine);
    assert_eq!(pass().await, ["get x", "delete x", "get y", "delete y"], "restored");
}
