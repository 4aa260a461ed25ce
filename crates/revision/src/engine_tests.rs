//! Order, stop rules and error texts of the engine. Behavior of the API server is tested against a real one in
//! `tests/apply`.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::*;
use crate::cluster::{ApiErrorReason, ClusterError, Instances};
use crate::object::text;
use crate::probes::default_probes;
use crate::result::Action;

#[cfg(test)]
#[path = "engine_call_tests.rs"]
mod calls;

/// In-memory cluster: objects by key, and failures by `<verb> <name>`, each returned once.
#[derive(Default)]
struct Fake(Mutex<State>);

#[derive(Default)]
struct State {
    objects: HashMap<ObjectKey, Value>,
    failures: Vec<(&'static str, ApiErrorReason)>,
    calls: Vec<String>,
    version: u64,
}

impl Fake {
    fn failing(failures: &[(&'static str, ApiErrorReason)]) -> Self {
        Self(Mutex::new(State { failures: failures.to_vec(), ..State::default() }))
    }

    fn call(&self, verb: &str, name: &str) -> Result<(), ClusterError> {
        let mut state = self.0.lock();
        let call = format!("{verb} {name}");
        let failure = state.failures.iter().position(|(failing, _)| *failing == call);
        state.calls.push(call);
        match failure.map(|index| state.failures.remove(index)) {
            Some((call, reason)) => Err(ClusterError::new(reason, format!("no {call}"))),
            None => Ok(()),
        }
    }

    fn store(&self, object: &Value) -> Value {
        let mut state = self.0.lock();
        state.version += 1;
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        object["metadata"]["uid"] = format!("uid of {}", text(&object, "/metadata/name")).into();
        state.objects.insert(ObjectKey::of(&object), object.clone());
        object
    }
}

impl Cluster for Fake {
    async fn get(&self, key: &ObjectKey) -> Result<Option<Value>, ClusterError> {
        self.call("get", &key.name)?;
        Ok(self.0.lock().objects.get(key).cloned())
    }

    async fn create(&self, object: &Value) -> Result<Value, ClusterError> {
        self.call("create", text(object, "/metadata/name"))?;
        Ok(self.store(object))
    }

    async fn apply(&self, object: &Value, dry_run: bool) -> Result<Value, ClusterError> {
        self.call(if dry_run { "dry-run" } else { "apply" }, text(object, "/metadata/name"))?;
        Ok(if dry_run { object.clone() } else { self.store(object) })
    }

    async fn merge(&self, key: &ObjectKey, _: &Value) -> Result<Value, ClusterError> {
        self.call("merge", &key.name)?;
        let object = self.0.lock().objects[key].clone();
        Ok(self.store(&object))
    }

    async fn delete(&self, key: &ObjectKey, _: &str, _: &str) -> Result<bool, ClusterError> {
        self.call("delete", &key.name)?;
        Ok(self.0.lock().objects.remove(key).is_some())
    }

    async fn instances(&self, _: &GroupVersionKind) -> Result<Option<Instances>, ClusterError> {
        Ok(None)
    }

    async fn is_autoscaled(&self, _: &ObjectKey) -> bool {
        false
    }
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"}})
}

fn revision(phases: &[(&str, &[&str])]) -> Revision {
    let phase = |(name, objects): &(&str, &[&str])| {
        ContentPhase::inline(name, objects.iter().map(|name| config_map(name)).collect())
    };
    Revision {
        owner: Owner { name: "r-1".to_owned(), uid: "u".to_owned(), number: 1, extension: "r".to_owned() },
        siblings: Vec::new(),
        is_migrated: false,
        phases: phases.iter().map(phase).collect(),
        probes: Probes::new(&default_probes()).unwrap(),
        selected_namespaces: Default::default(),
        watched_namespaces: Default::default(),
        creation_delay: Default::default(),
        replaces_immutable: false,
    }
}

async fn run(
    failures: &[(&'static str, ApiErrorReason)],
    phases: &[(&str, &[&str])],
) -> (Engine<Fake>, RevisionResult, Vec<String>) {
    let engine = Engine::new(Fake::failing(failures));
    let result = engine.reconcile(&revision(phases)).await;
    let writes = writes(&engine);
    (engine, result, writes)
}

fn writes(engine: &Engine<Fake>) -> Vec<String> {
    let calls = std::mem::take(&mut engine.cluster.0.lock().calls);
    calls.into_iter().filter(|call| !call.starts_with("get ") && !call.starts_with("dry-run ")).collect()
}

#[tokio::test]
async fn phases_apply_in_order_and_are_idle_afterwards() {
    let phases: &[(&str, &[&str])] = &[("a", &["x", "y"]), ("b", &["z"])];
    let (engine, result, calls) = run(&[], phases).await;
    assert!(result.is_complete() && !result.is_in_transition(), "{result:?}");
    assert_eq!(calls, ["create x", "create y", "create z"]);
    assert!(engine.reconcile(&revision(phases)).await.is_complete());
    assert_eq!(writes(&engine), [""; 0]);
}

#[tokio::test]
async fn revision_without_phases_is_complete() {
    let (_, result, calls) = run(&[], &[]).await;
    assert!(result.is_complete() && !result.is_in_transition());
    assert_eq!(calls, [""; 0]);
}

#[tokio::test]
async fn invalid_revision_makes_no_calls() {
    let (_, result, calls) = run(&[], &[("a", &["x"]), ("1b", &[])]).await;
    assert!(
        result
            .blocker()
            .unwrap()
            .starts_with("revision validation error: revision \"r-1\" (1): phase \"1b\": ")
    );
    assert!(!result.is_complete() && result.watch.is_empty());
    assert_eq!(calls, [""; 0]);
}

#[tokio::test]
async fn write_errors_are_collected_and_end_the_rollout() {
    let failures = [("create x", ApiErrorReason::Unavailable), ("create z", ApiErrorReason::Rejected)];
    let (_, result, calls) = run(&failures, &[("a", &["x", "y", "z"]), ("b", &["later"])]).await;
    assert_eq!(calls, ["create x", "create y", "create z"]);
    assert_eq!(
        result.failure.unwrap().to_string(),
        "reconciling object: reconciling /v1, Kind=ConfigMap ns/x: creating resource: no create x\n\
         reconciling /v1, Kind=ConfigMap ns/z: creating resource: no create z"
    );
}

#[tokio::test]
async fn overloaded_or_silent_server_ends_the_phase() {
    for reason in [ApiErrorReason::TooManyRequests, ApiErrorReason::Unanswered] {
        let (_, result, calls) = run(&[("create x", reason)], &[("a", &["x", "y"])]).await;
        assert_eq!(calls, ["create x"]);
        assert!(result.failure.is_some() && !result.is_complete());
        let (_, result, calls) = run(&[("get x", reason)], &[("a", &["x", "y"])]).await;
        assert_eq!(calls, [""; 0]);
        assert_eq!(
            result.failure.unwrap().to_string(),
            "reconciling object: reconciling /v1, Kind=ConfigMap ns/x: getting object: no get x"
        );
    }
}

#[tokio::test]
async fn dry_run_rejections_block_the_phase_before_any_write() {
    let failures = [("dry-run y", ApiErrorReason::Rejected), ("dry-run z", ApiErrorReason::NotFound)];
    let (_, result, calls) = run(&failures, &[("a", &["x", "y", "z"])]).await;
    assert_eq!(calls, [""; 0]);
    assert_eq!(
        result.blocker().unwrap(),
        "phase 0 validation error: phase \"a\": /v1, Kind=ConfigMap ns/y: no dry-run y, \
         /v1, Kind=ConfigMap ns/z: no dry-run z"
    );
}

#[tokio::test]
async fn failed_dry_run_blocks_all_writes() {
    let (_, result, calls) = run(&[("dry-run y", ApiErrorReason::Unavailable)], &[("a", &["x", "y"])]).await;
    assert_eq!(calls, [""; 0]);
    assert_eq!(result.failure.unwrap().to_string(), "reconciling object: validating: no dry-run y");
}

// docs/design/apply.md#writing-a-revision: a webhook without support for dry runs.
#[tokio::test]
async fn object_without_dry_run_support_is_written() {
    let (_, result, calls) = run(&[("dry-run x", ApiErrorReason::NoDryRun)], &[("a", &["x"])]).await;
    assert_eq!(calls, ["create x"]);
    assert!(result.is_complete());
}

#[tokio::test]
async fn conflict_is_retried_up_to_the_limit() {
    let (_, result, calls) = run(&[("create x", ApiErrorReason::AlreadyExists)], &[("a", &["x"])]).await;
    assert_eq!(calls, ["create x", "create x"]);
    assert!(result.is_complete());
    let (_, result, calls) = run(&[("create x", ApiErrorReason::Conflict); 3], &[("a", &["x"])]).await;
    assert_eq!(calls, ["create x"; 3]);
    assert_eq!(
        result.failure.unwrap().to_string(),
        "reconciling object: reconciling /v1, Kind=ConfigMap ns/x: creating resource: no create x"
    );
}
