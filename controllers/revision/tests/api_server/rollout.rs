//! Rollouts of revisions: causes that delay them, and their end.

use std::future::ready;
use std::io::Write;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt;
use kube::ResourceExt;
use kube::api::{WatchEvent, WatchParams};
use olm_api::ClusterObjectSet;
use olm_api::conditions::find;
use serde_json::{Value, json};

use super::fixture::{
    Fixture, SYSTEM, config_map, crd, custom_resource, eventually, field_value, phase, unmodified,
};

/// Returns the last transition time of the condition and the creation time of the revision, in seconds.
async fn times(fixture: &Fixture, name: &str, type_: &str) -> (i64, i64) {
    let set = fixture.sets().get(name).await.unwrap();
    let created = set.metadata.creation_timestamp.as_ref().unwrap().0.as_second();
    let status = set.status.unwrap();
    (find(&status.conditions, type_).unwrap().last_transition_time.0.as_second(), created)
}

// Cases apply-31, apply-41: `failure_with_deadline_is_retried_no_later` shows that no backoff delays it.
pub(super) async fn progress_deadline_is_reported_while_passes_fail(fixture: &Fixture) {
    let phases =
        json!([{"name": "p", "objects": [{"ref": {"name": "s", "namespace": "default", "key": "k"}}]}]);
    let name =
        fixture.revision("late", 1, phases, |set| set["spec"]["progressDeadlineMinutes"] = json!(1)).await;
    let message = "resolving ref in phase \"p\": getting Secret default/s: Secret \"s\" not found";
    let text = fixture.until_condition(&name, "Progressing", "True/Retrying ").await;
    assert_eq!(text, format!("True/Retrying {message}"));
    let late = fixture.until_condition(&name, "Progressing", "False/").await;
    assert_eq!(
        late,
        format!(
            "False/ProgressDeadlineExceeded Revision has not rolled out for 1 minute(s). Last status: {message}"
        )
    );
    assert_eq!(fixture.condition(&name, "Stalled").await.unwrap(), late.replacen("False", "True", 1));
    let (changed, created) = times(fixture, &name, "Progressing").await;
    assert!(changed - created >= 10, "{changed} {created}");
    // Case apply-34: once archived, it controls nothing.
    fixture.patch(&name, json!({"spec": {"lifecycleState": "Archived"}})).await;
    fixture
        .secret("default", "s", true, &[("k", config_map("default", "k", json!({})).to_string().into())])
        .await;
    fixture.until_condition(&name, "Progressing", "False/Archived revision is archived").await;
}

// Cases apply-31, apply-32, apply-33, api-25, api-26
pub(super) async fn success_after_deadline_clears_it(fixture: &Fixture) {
    let ns = "slow";
    fixture.namespace(ns).await;
    let map = config_map(ns, "a", json!({"k": "v"}));
    let name = fixture
        .revision(ns, 1, json!([phase("a", &[&map])]), |set| {
            set["spec"]["progressDeadlineMinutes"] = json!(1);
            set["spec"]["progressionProbes"] = json!([field_value("", "ConfigMap", "data.ready", "yes")]);
        })
        .await;
    let rolling = "Revision 1.0.0 is rolling out.";
    assert_eq!(
        fixture.until_condition(&name, "Progressing", "True/").await,
        format!("True/RollingOut {rolling}")
    );
    let late = fixture.until_condition(&name, "Progressing", "False/").await;
    let expected =
        "False/ProgressDeadlineExceeded Revision has not rolled out for 1 minute(s). Last status: ";
    assert_eq!(late, format!("{expected}{rolling}"));
    let (changed, created) = times(fixture, &name, "Progressing").await;
    assert!(changed - created >= 10, "{changed} {created}");
    let available = fixture.condition(&name, "Available").await.unwrap();
    assert_eq!(available, "False/ProbeFailure Object ConfigMap.v1 slow/a: missing key: \"data.ready\"");
    fixture.edit(&map, json!({"data": {"ready": "yes"}})).await;
    fixture.until_succeeded(&name).await;
    assert_eq!(
        fixture.condition(&name, "Succeeded").await.unwrap(),
        "True/Succeeded Revision succeeded rolling out."
    );
    // A revision that has succeeded has no deadline.
    fixture.edit(&map, json!({"data": {"ready": null}})).await;
    fixture.until_condition(&name, "Available", "False/ProbeFailure ").await;
    assert_eq!(fixture.condition(&name, "Progressing").await.unwrap(), format!("True/RollingOut {rolling}"));
    assert!(fixture.condition(&name, "Succeeded").await.unwrap().starts_with("True/"));
}

/// Limits the writes that only change messages. Their last one is not lost.
pub(super) async fn progress_of_rollout_is_written_at_intervals(fixture: &Fixture) {
    let ns = "progress";
    fixture.namespace(ns).await;
    let map = config_map(ns, "a", json!({"k": "v"}));
    let name = fixture
        .revision(ns, 1, json!([phase("a", &[&map])]), |set| {
            set["spec"]["progressionProbes"] = json!([field_value("", "ConfigMap", "data.ready", "yes")]);
        })
        .await;
    let missing = "False/ProbeFailure Object ConfigMap.v1 progress/a: missing key: \"data.ready\"";
    fixture.until_condition(&name, "Available", missing).await;
    let set = fixture.sets().get(&name).await.unwrap();
    let only = WatchParams::default().fields(&format!("metadata.name={name}")).disable_bookmarks();
    let writes = fixture.sets().watch(&only, &set.resource_version().unwrap()).await.unwrap();
    let started = Instant::now();
    for value in 1..=30 {
        fixture.edit(&map, json!({"data": {"ready": value.to_string()}})).await;
    }
    let last = "False/ProbeFailure Object ConfigMap.v1 progress/a: value at key \"data.ready\" != \"yes\"; \
                expected: \"yes\" got: \"30\"";
    fixture.until_condition(&name, "Available", last).await;
    fixture.edit(&map, json!({"data": {"ready": "yes"}})).await;
    fixture.until_succeeded(&name).await;
    let rolling = |event: &Result<WatchEvent<ClusterObjectSet>, kube::Error>| {
        let Ok(WatchEvent::Modified(set)) = event else { panic!("{event:?}") };
        ready(!set.is_true("Succeeded"))
    };
    let count = writes.take_while(rolling).count().await as u64;
    let limit = started.elapsed().as_secs() / 5 + 1;
    assert!(count <= limit, "{count} status writes, limit {limit}");
}

// docs/design/apply.md#handover
pub(super) async fn stuck_revision_does_not_succeed_through_its_successor(fixture: &Fixture) {
    let ns = "overtaken";
    fixture.namespace(ns).await;
    let map = |name: &str, ready: &str| config_map(ns, name, json!({"ready": ready}));
    let revision = async |number: i64, phases: Value| {
        let probes = json!([field_value("", "ConfigMap", "data.ready", "yes")]);
        fixture.revision(ns, number, phases, |set| set["spec"]["progressionProbes"] = probes).await
    };
    let first = revision(1, json!([phase("a", &[&map("a", "yes")])])).await;
    fixture.until_succeeded(&first).await;
    let second = revision(2, json!([phase("a", &[&map("a", "no")])])).await;
    fixture.until_condition(&second, "Available", "False/ProbeFailure ").await;
    let last = config_map(ns, "b", json!({"k": "v"}));
    let phases = [phase("a", &[&map("a", "yes")]), phase("b", &[&last])];
    let third = revision(3, json!(phases)).await;
    fixture.until_condition(&third, "Available", "False/ProbeFailure ").await;
    let rolling = "False/RollingOut Revision 1.0.0 is rolling out.";
    assert_eq!(fixture.until_condition(&second, "Available", "False/RollingOut ").await, rolling);
    assert_eq!(fixture.condition(&second, "Succeeded").await, None);
    assert!(!fixture.sets().get(&first).await.unwrap().is_archived(), "the last working revision");
    fixture.edit(&last, json!({"data": {"ready": "yes"}})).await;
    fixture.until_condition(&second, "Progressing", "False/Archived ").await;
    fixture.until_condition(&first, "Progressing", "False/Archived ").await;
    assert_eq!(fixture.condition(&second, "Succeeded").await, None);
}

// Cases apply-26, api-47
pub(super) async fn collision_is_retried_until_object_is_deleted(fixture: &Fixture) {
    let ns = "taken";
    fixture.namespace(ns).await;
    let map = config_map(ns, "a", json!({"k": "theirs"}));
    fixture.create(&map).await;
    let ours = config_map(ns, "a", json!({"k": "ours"}));
    let name = fixture.revision(ns, 1, json!([phase("a", &[&ours])]), unmodified).await;
    let text = fixture.until_condition(&name, "Progressing", "True/Retrying ").await;
    let head = "True/Retrying revision object collisions in phase 0\nObject ConfigMap.v1 taken/a\n";
    assert!(text.starts_with(head) && text.ends_with("\nConflicting Owner: nil\n"), "{text}");
    fixture.delete(&map).await;
    fixture.until_succeeded(&name).await;
    assert_eq!(fixture.get(&map).await.unwrap()["data"]["k"], "ours");
}

// Cases apply-27, apply-28, apply-29
pub(super) async fn collision_protection_of_object_overrides_revision(fixture: &Fixture) {
    let ns = "protection";
    fixture.namespace(ns).await;
    let map = config_map(ns, "a", json!({"k": "ours"}));
    let holder = fixture.create(&config_map(ns, "holder", json!({}))).await;
    let mut theirs = config_map(ns, "a", json!({"k": "theirs"}));
    theirs["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "holder",
        "uid": holder["metadata"]["uid"], "controller": true}]);
    fixture.create(&theirs).await;
    let phases = json!([{"name": "a", "objects": [{"object": map, "collisionProtection": "None"}]}]);
    let name = fixture.revision(ns, 1, phases, unmodified).await;
    fixture.until_succeeded(&name).await;
    let live = fixture.get(&map).await.unwrap();
    let owners: Vec<_> = live["metadata"]["ownerReferences"].as_array().unwrap().iter().collect();
    let shown: Vec<_> = owners.iter().map(|o| (o["name"].as_str().unwrap(), &o["controller"])).collect();
    assert_eq!(shown, [("holder", &json!(false)), ("protection-1", &json!(true))]);
    assert_eq!(live["data"]["k"], "ours");
}

// Case apply-36
pub(super) async fn failing_probe_delays_next_phase(fixture: &Fixture) {
    let ns = "held";
    fixture.namespace(ns).await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "test-pvc", "namespace": ns, "labels": {"app": "x", "same": "x"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    let map = config_map(ns, "later", json!({}));
    let equal = json!({"selector": {"type": "Label", "label": {"matchExpressions": [
            {"key": "app", "operator": "In", "values": ["x"]}]}},
        "assertions": [{"type": "FieldsEqual", "fieldsEqual": {
            "fieldA": "metadata.labels.app", "fieldB": "metadata.labels.same"}}]});
    let bound = field_value("", "PersistentVolumeClaim", "status.phase", "Bound");
    let name = fixture
        .revision(ns, 1, json!([phase("pvc", &[&claim]), phase("configuration", &[&map])]), |set| {
            set["spec"]["progressionProbes"] = json!([bound, equal]);
        })
        .await;
    let text = fixture.until_condition(&name, "Available", "False/").await;
    assert_eq!(
        text,
        "False/ProbeFailure Object PersistentVolumeClaim.v1 held/test-pvc: \
         value at key \"status.phase\" != \"Bound\"; expected: \"Bound\" got: \"Pending\""
    );
    assert_eq!(fixture.get(&map).await, None);
    fixture.edit_status(&claim, json!({"status": {"phase": "Bound"}})).await;
    fixture.until_succeeded(&name).await;
    assert!(fixture.get(&map).await.is_some());
}

// Case apply-37
pub(super) async fn pod_must_be_ready_before_next_phase(fixture: &Fixture) {
    let ns = "pods";
    fixture.namespace(ns).await;
    fixture
        .create(&json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": ns}}))
        .await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": ns, "labels": {"app": "x", "same": "x"}},
        "spec": {"automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "example.test/p:v1"}]}});
    let map = config_map(ns, "later", json!({}));
    let name = fixture
        .revision(ns, 1, json!([phase("pod", &[&pod]), phase("configuration", &[&map])]), |set| {
            let selector = json!({"type": "Label", "label": {"matchExpressions": [
                {"key": "app", "operator": "In", "values": ["x", "y"]}]}});
            let ready =
                json!({"type": "ConditionEqual", "conditionEqual": {"type": "Ready", "status": "True"}});
            let equal = json!({"type": "FieldsEqual", "fieldsEqual": {
                "fieldA": "metadata.labels.app", "fieldB": "metadata.labels.same"}});
            set["spec"]["progressionProbes"] = json!([{"selector": selector, "assertions": [ready, equal]}]);
        })
        .await;
    let failing = async |text: &str| {
        fixture
            .until_condition(&name, "Available", &format!("False/ProbeFailure Object Pod.v1 pods/p: {text}"))
            .await
    };
    failing("missing .status.condition").await;
    let ready = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    fixture.edit_status(&pod, ready("False")).await;
    failing(".status.condition[\"Ready\"] is False").await;
    assert_eq!(fixture.get(&map).await, None);
    fixture.edit_status(&pod, ready("True")).await;
    fixture.until_succeeded(&name).await;
    assert!(fixture.get(&map).await.is_some());
}

// Case api-30
pub(super) async fn long_condition_message_is_truncated(fixture: &Fixture) {
    let ns = "wordy";
    fixture.namespace(ns).await;
    let maps: Vec<Value> =
        (0..50).map(|n| config_map(ns, &format!("{n:0>3}{}", "X".repeat(250)), json!({}))).collect();
    let name =
        fixture.revision(ns, 1, json!([phase("a", &maps.iter().collect::<Vec<_>>())]), unmodified).await;
    fixture.until_condition(&name, "Progressing", "True/Retrying phase 0 validation error: ").await;
    let status = fixture.sets().get(&name).await.unwrap().status.unwrap();
    let message = &find(&status.conditions, "Progressing").unwrap().message;
    assert_eq!(message.len(), 32_768);
    assert!(message.ends_with("... [message truncated]"), "{message}");
}

// Cases apply-38, api-48
pub(super) async fn revision_without_probes_and_labels_rolls_out(fixture: &Fixture) {
    let ns = "bare";
    fixture.namespace(ns).await;
    let map = config_map(ns, "a", json!({}));
    let name = fixture
        .revision(ns, 1, json!([phase("a", &[&map])]), |set| {
            set["metadata"].as_object_mut().unwrap().remove("labels");
            set["metadata"].as_object_mut().unwrap().remove("annotations");
        })
        .await;
    assert_eq!(
        fixture.until_condition(&name, "Progressing", "True/Succeeded ").await,
        "True/Succeeded Revision  has rolled out."
    );
    let live = fixture.get(&map).await.unwrap();
    assert_eq!(live["metadata"]["labels"]["olm.operatorframework.io/owner-name"], "");
    fixture.delete(&map).await;
    fixture.until_exists(&map).await;
}

// Cases apply-45, apply-46, apply-47, apply-48
pub(super) async fn invalid_objects_are_reported_without_repeated_writes(fixture: &Fixture) {
    let ns = "mistakes";
    fixture.namespace(ns).await;
    let (mut one, mut two) = (config_map(ns, "ONE", json!({})), config_map(ns, "TWO", json!({})));
    let name = fixture.revision(ns, 1, json!([phase("a", &[&one, &two])]), unmodified).await;
    let text =
        fixture.until_condition(&name, "Progressing", "True/Retrying phase 0 validation error: ").await;
    assert!(text.contains("mistakes/ONE: ") && text.contains("mistakes/TWO: "), "{text}");
    let written = fixture.sets().get(&name).await.unwrap().metadata.resource_version;

    let digit = fixture.revision(ns, 2, json!([phase("1abc", &[])]), unmodified).await;
    let text = fixture.until_condition(&digit, "Progressing", "True/Retrying ").await;
    let head = "True/Retrying revision validation error: revision \"mistakes-2\" (2): phase \"1abc\": phase name \
                invalid: a DNS-1035 label must consist";
    assert!(text.starts_with(head), "{text}");
    one["metadata"]["name"] = json!("one");
    let twice = fixture.revision(ns, 3, json!([phase("b", &[&one]), phase("a", &[&one])]), unmodified).await;
    let text = fixture.until_condition(&twice, "Progressing", "True/Retrying ").await;
    assert!(text.contains("duplicate object found in phases: a, b"), "{text}");
    two["metadata"] = json!({"name": "two", "namespace": ns, "finalizers": ["acme.example/f"]});
    let claimed = fixture.revision(ns, 4, json!([phase("a", &[&two])]), unmodified).await;
    let text = fixture.until_condition(&claimed, "Progressing", "True/Retrying ").await;
    assert!(text.contains("metadata.finalizers: Forbidden: must be empty"), "{text}");

    // The revision is retried every ten seconds and its status is not written again. The other cases last that long.
    let created = times(fixture, &name, "Progressing").await.1;
    eventually("two more passes", async || {
        let now = jiff::Timestamp::now().as_second();
        (now - created > 22).then_some(())
    })
    .await;
    assert_eq!(fixture.sets().get(&name).await.unwrap().metadata.resource_version, written);
}

// Case apply-64
pub(super) async fn unserved_kind_is_retried_until_its_crd_exists(fixture: &Fixture) {
    let ns = "unserved";
    fixture.namespace(ns).await;
    let (map, widget) = (config_map(ns, "a", json!({})), custom_resource("Late", ns, "w"));
    let name =
        fixture.revision(ns, 1, json!([phase("a", &[&map]), phase("b", &[&widget])]), unmodified).await;
    let text = fixture.until_condition(&name, "Progressing", "True/Retrying ").await;
    assert_eq!(
        text,
        "True/Retrying phase 1 validation error: phase \"b\": acme.example/v1, Kind=Late unserved/w: \
         no matches for kind \"Late\" in version \"acme.example/v1\""
    );
    assert!(fixture.get(&map).await.is_some());
    fixture.create(&crd("lates", "Late")).await;
    fixture.until_succeeded(&name).await;
    fixture.delete(&widget).await;
    fixture.until_exists(&widget).await;
    // A CRD and its custom resource in one revision.
    let phases =
        json!([phase("crds", &[&crd("boths", "Both")]), phase("b", &[&custom_resource("Both", ns, "w")])]);
    let name = fixture
        .revision("both", 1, phases, |set| {
            set["spec"]["progressionProbes"] = json!([{"selector": {"type": "GroupKind", "groupKind": {
                    "group": "apiextensions.k8s.io", "kind": "CustomResourceDefinition"}},
                "assertions": [{"type": "ConditionEqual", "conditionEqual": {
                    "type": "Established", "status": "True"}}]}]);
        })
        .await;
    fixture.until_succeeded(&name).await;
}

// docs/design/apply.md#pause
pub(super) async fn paused_revision_reports_and_corrects_nothing(fixture: &Fixture) {
    let ns = "paused";
    fixture.namespace(ns).await;
    let pause = |paused: Option<&str>| json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/paused": paused}}});
    let map = config_map(ns, "a", json!({"k": "v"}));
    let name = fixture
        .revision(ns, 1, json!([phase("a", &[&map])]), |set| {
            set["metadata"]["annotations"] = pause(Some("true"))["metadata"]["annotations"].clone();
        })
        .await;
    assert_eq!(
        fixture.until_condition(&name, "Available", "False/").await,
        "False/ProbeFailure Object ConfigMap.v1 paused/a: not applied while paused"
    );
    assert_eq!(
        fixture.condition(&name, "Progressing").await.unwrap(),
        "True/RollingOut Revision  is rolling out."
    );
    assert_eq!(fixture.get(&map).await, None);
    fixture.patch(&name, pause(None)).await;
    fixture.until_succeeded(&name).await;
    fixture.patch(&name, pause(Some("true"))).await;
    // Drift is still corrected until the controller has seen the annotation.
    eventually("drift is not corrected", async || {
        fixture.edit(&map, json!({"data": {"k": "foreign"}})).await;
        fixture.condition(&name, "Available").await.filter(|text| text.starts_with("False/ProbeFailure "))
    })
    .await;
    assert_eq!(fixture.get(&map).await.unwrap()["data"]["k"], "foreign");
    fixture.patch(&name, pause(None)).await;
    fixture.until_succeeded(&name).await;
    assert_eq!(fixture.get(&map).await.unwrap()["data"]["k"], "v");
}

// docs/design/additions.md#events
pub(super) async fn corrected_drift_publishes_event(fixture: &Fixture) {
    let ns = "drifting";
    fixture.namespace(ns).await;
    let map = config_map(ns, "a", json!({"k": "v"}));
    let name = fixture
        .revision(ns, 1, json!([phase("a", &[&map])]), |set| {
            set["metadata"]["ownerReferences"] = json!([{"apiVersion": "olm.operatorframework.io/v1",
                "kind": "ClusterExtension", "name": ns, "uid": "uid-of-drifting", "controller": true}]);
        })
        .await;
    fixture.until_succeeded(&name).await;
    fixture.edit(&map, json!({"data": {"k": "foreign"}})).await;
    assert_eq!(
        fixture.event("uid-of-drifting").await,
        "DriftCorrected revision drifting-1 corrected: ConfigMap.v1 drifting/a (.data.k, changed by \"unknown\")"
    );
}

fn zipped(object: &Value) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(object.to_string().as_bytes()).unwrap();
    encoder.finish().unwrap()
}

// Cases apply-41, apply-42, apply-44, api-43
pub(super) async fn content_is_resolved_from_secrets(fixture: &Fixture) {
    let ns = "stored";
    fixture.namespace(ns).await;
    let refers = |key: &str| json!([{"name": "p", "objects": [{"ref": {"name": "stored", "key": key}}]}]);
    let name = fixture.revision(ns, 1, refers("html"), unmodified).await;
    let missing = "True/Retrying resolving ref in phase \"p\": getting Secret olmv1-system/stored: ";
    fixture.until_condition(&name, "Progressing", missing).await;
    // A reference without a namespace refers to the system namespace (docs/design/apply.md#content-and-digests).
    let html = config_map(ns, "html", json!({"k": "<a href='x'>&</a>"}));
    let mut large = config_map(ns, "large", json!({}));
    large["metadata"]["annotations"] = json!({"text": "x".repeat(200_000)});
    let huge = config_map(ns, "huge", json!({"k": "x".repeat(11 << 20)}));
    let data = [("html", html.to_string().into_bytes()), ("large", zipped(&large)), ("huge", zipped(&huge))];
    fixture.secret(SYSTEM, "stored", true, &data).await;
    fixture.until_succeeded(&name).await;
    let set = fixture.sets().get(&name).await.unwrap();
    let digest = set.status.unwrap().observed_phases[0].digest.clone();
    let phase = olm_revision::digest::phase_digest("p", [(&html, olm_revision::canonical::Numbers::Float)]);
    assert_eq!(digest, phase);

    let name = fixture.revision(ns, 2, refers("large"), unmodified).await;
    fixture.until_succeeded(&name).await;
    assert!(fixture.get(&large).await.is_some());
    let name = fixture.revision(ns, 3, refers("huge"), unmodified).await;
    let text = fixture.until_condition(&name, "Progressing", "True/Retrying ").await;
    assert_eq!(
        text,
        "True/Retrying resolving ref in phase \"p\": decompressed data for key \"huge\" in Secret \
         olmv1-system/stored exceeds maximum size (10485760 bytes)"
    );
    let name = fixture.revision(ns, 4, refers("none"), unmodified).await;
    let text = fixture.until_condition(&name, "Progressing", "True/Retrying ").await;
    let expected =
        "True/Retrying resolving ref in phase \"p\": key \"none\" not found in Secret olmv1-system/stored";
    assert_eq!(text, expected);
}

// Cases apply-39, apply-40, api-42, api-44
pub(super) async fn mutable_or_changed_secret_blocks_revision(fixture: &Fixture) {
    let ns = "replaced";
    fixture.namespace(ns).await;
    let content = |value: &str| config_map(ns, "a", json!({ "k": value })).to_string().into_bytes();
    fixture.secret(ns, "s", false, &[("k", content("1"))]).await;
    let phases =
        json!([{"name": "resources", "objects": [{"ref": {"name": "s", "namespace": ns, "key": "k"}}]}]);
    let name = fixture.revision(ns, 1, phases, unmodified).await;
    assert_eq!(
        fixture.until_condition(&name, "Progressing", "False/").await,
        "False/Blocked the following secrets are not immutable (referenced secrets must have immutable set to true): \
         replaced/s"
    );
    fixture.secret(ns, "s", true, &[("k", content("1"))]).await;
    fixture.until_succeeded(&name).await;
    fixture.secret(ns, "s", true, &[("k", content("2"))]).await;
    // The Secret is not watched: it does not carry our label.
    fixture.patch(&name, json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    let text = fixture.until_condition(&name, "Progressing", "False/Blocked ").await;
    let head = "False/Blocked resolved content of 1 phase(s) has changed: phase \"resources\" (expected digest sha256:";
    assert!(text.starts_with(head), "{text}");
    fixture.secret(ns, "s", true, &[("k", content("1"))]).await;
    fixture.until_succeeded(&name).await;
}
