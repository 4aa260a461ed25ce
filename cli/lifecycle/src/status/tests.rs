//! Tests of the state tree and of its text output.

use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_cli_core::output::{Format, result};
use olm_revision::blocked_pods::of_pods;
use olm_revision::content::ContentPhase;
use olm_revision::probes::default_probes;
use serde_json::{Value, json};

use super::health::Health;
use super::objects::{ObjectStatus, PhaseProgress};
use super::observe::{Live, Observed, ObservedObject, ObservedRevision, PhaseStatus};
use super::text;
use super::tree::{ExtensionState, blocker, futile};

const THEN: &str = "2026-01-01T00:00:00Z";

fn now() -> k8s_openapi::jiff::Timestamp {
    "2026-01-01T00:05:00Z".parse().unwrap()
}

/// Conditions from texts such as `Type=Status/Reason message`.
fn conditions(texts: &[&str]) -> Value {
    let condition = |text: &&str| {
        let (head, message) = text.split_once(' ').unwrap();
        let (type_, head) = head.split_once('=').unwrap();
        let (status, reason) = head.split_once('/').unwrap();
        json!({"type": type_, "status": status, "reason": reason, "message": message,
            "observedGeneration": 2, "lastTransitionTime": THEN})
    };
    texts.iter().map(condition).collect()
}

fn extension(annotations: Value, status: Value) -> ClusterExtension {
    serde_json::from_value(json!({
        "metadata": {"name": "pipe", "generation": 2, "creationTimestamp": THEN, "annotations": annotations},
        "spec": {"namespace": "pipe-system", "source": {"sourceType": "Catalog",
            "catalog": {"packageName": "pipe", "version": "1.x", "channels": ["fast"]}}},
        "status": status,
    }))
    .unwrap()
}

fn set(number: i64, version: &str, state: &str, texts: &[&str]) -> ClusterObjectSet {
    let mut set: ClusterObjectSet = serde_json::from_value(json!({
        "metadata": {"name": format!("pipe-{number}"), "uid": format!("uid-{number}"), "creationTimestamp": THEN,
            "labels": {"olm.operatorframework.io/owner-kind": "ClusterExtension",
                "olm.operatorframework.io/owner-name": "pipe"},
            "annotations": {"olm.operatorframework.io/bundle-name": format!("pipe.v{version}"),
                "olm.operatorframework.io/bundle-version": version,
                "olm.operatorframework.io/bundle-reference": format!("r.example/pipe:{version}")}},
        "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "Prevent"},
        "status": {"conditions": conditions(texts)},
    }))
    .unwrap();
    set.spec.as_mut().unwrap().progression_probes = default_probes();
    set
}

fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "pipe-system"}})
}

/// Live object that revision `number` controls.
fn of_revision(object: &Value, number: i64) -> Live {
    let mut live = object.clone();
    live["metadata"]["annotations"] = json!({"olm.operatorframework.io/revision": number.to_string()});
    live["metadata"]["ownerReferences"] = json!([{"apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterObjectSet", "name": format!("pipe-{number}"), "uid": format!("uid-{number}"),
        "controller": true}]);
    Live::Found(live)
}

fn phase(name: &str, objects: Vec<(Value, Live)>) -> PhaseStatus {
    let contents = ContentPhase::inline(name, objects.iter().map(|(object, _)| object.clone()).collect());
    let objects = contents.objects.into_iter().zip(objects);
    let objects = objects.map(|(content, (_, live))| ObservedObject { content, live, cause: None });
    PhaseStatus { name: name.to_owned(), objects: objects.collect() }
}

fn with(live: Live, change: impl FnOnce(&mut Value)) -> Live {
    match live {
        Live::Found(mut object) => {
            change(&mut object);
            Live::Found(object)
        }
        other => other,
    }
}

fn installed(status: &[&str], revisions: usize) -> Value {
    let active: Vec<Value> = (0..revisions).map(|number| json!({"name": format!("pipe-{number}")})).collect();
    json!({"conditions": conditions(status), "activeRevisions": active,
        "install": {"bundle": {"name": "pipe.v1.0.0", "version": "1.0.0"}}})
}

/// Upgrade that is blocked by a Deployment.
fn upgrading() -> Observed {
    let rolling = "Progressing=True/RollingOut Revision 1.1.0 is rolling out.";
    let failing = "Available=False/ProbeFailure Object Deployment.apps/v1 pipe-system/manager: \
                   missing .status.conditions";
    let (account, deployment) =
        (object("v1", "ServiceAccount", "pipe"), object("apps/v1", "Deployment", "manager"));
    let (map, monitor) =
        (object("v1", "ConfigMap", "settings"), object("monitoring.coreos.com/v1", "ServiceMonitor", "m"));
    let new = vec![
        phase("identity", vec![(account.clone(), of_revision(&account, 2))]),
        phase("deploy", vec![(deployment.clone(), of_revision(&deployment, 2))]),
        phase("publish", vec![(monitor, Live::NotServed), (map.clone(), of_revision(&map, 1))]),
    ];
    let old = vec![phase(
        "deploy",
        vec![(deployment.clone(), of_revision(&deployment, 2)), (map.clone(), of_revision(&map, 1))],
    )];
    let done = ["Progressing=True/Succeeded Revision 1.0.0 has rolled out.", "Succeeded=True/Succeeded done"];
    Observed {
        drift: None,
        extension: extension(
            json!({}),
            installed(
                &["Installed=True/Succeeded Installed bundle r.example/pipe:1.0.0 successfully", rolling],
                2,
            ),
        ),
        revisions: vec![
            ObservedRevision { set: set(1, "1.0.0", "Active", &done), content: Ok(old) },
            ObservedRevision { set: set(2, "1.1.0", "Active", &[rolling, failing]), content: Ok(new) },
        ],
    }
}

#[test]
fn stuck_upgrade_shows_blocking_object() {
    let observed = upgrading();
    let state = ExtensionState::new(&observed);
    let expected = "\
Name:               pipe
Health:             Upgrading
Package:            pipe
Namespace:          pipe-system
Installed:          pipe.v1.0.0, version 1.0.0
Requested:          version 1.x of channel fast

Conditions
  Installed True (Succeeded) for 5m
    Installed bundle r.example/pipe:1.0.0 successfully
  Progressing True (RollingOut) for 5m
    Revision 1.1.0 is rolling out.

pipe-2  pipe.v1.1.0  rolling out, created 5m ago
│ ! Object Deployment.apps/v1 pipe-system/manager: missing .status.conditions
├─ identity  1 ready
│  └─ ServiceAccount pipe-system/pipe ready
├─ deploy  0 of 1 ready
│  └─ Deployment pipe-system/manager not ready: missing .status.conditions
└─ publish  waiting for the previous phase, 0 of 2 ready
   ├─ ServiceMonitor pipe-system/m kind not served: the cluster does not serve ServiceMonitor of monitoring.coreos.com/v1
   └─ ConfigMap pipe-system/settings not adopted yet: owner is revision pipe-1

pipe-1  pipe.v1.0.0  rolled out, created 5m ago
└─ deploy  2 ready
   ├─ Deployment pipe-system/manager handed over: owner is revision pipe-2
   └─ ConfigMap pipe-system/settings ready
";
    assert_eq!(text::tree(&state, now(), false), expected);
    let wide = text::tree(&state, now(), true);
    assert!(wide.contains("│ image: r.example/pipe:1.1.0\n"), "{wide}");
    assert!(
        wide.contains("ConfigMap pipe-system/settings ready  [v1, controlled by revision pipe-1]\n"),
        "{wide}"
    );
    assert_eq!(
        blocker(&observed).as_deref(),
        Some("phase deploy: Deployment pipe-system/manager not ready: missing .status.conditions")
    );
    let progress: Vec<_> = state.revisions[0].phases.iter().map(|phase| phase.progress).collect();
    assert_eq!(progress, [PhaseProgress::Complete, PhaseProgress::Current, PhaseProgress::Waiting]);
}

// docs/design/apply.md#blocked-pods
#[test]
fn cause_of_unready_pods_is_shown_first() {
    let mut observed = upgrading();
    let mut plant = |state: Value| {
        let pod = json!({"metadata": {"name": "p", "namespace": "pipe-system"}, "status": {"containerStatuses": [
            {"name": "manager", "image": "r.example/pipe", "ready": false, "state": {"waiting": state}}]}});
        let phases = observed.revisions[1].content.as_mut().unwrap();
        phases[1].objects[0].cause = of_pods(&[pod], now());
        let tree = text::tree(&ExtensionState::new(&observed), now(), false);
        (tree, futile(&observed))
    };
    let (tree, why) = plant(json!({"reason": "CrashLoopBackOff"}));
    let cause = "its pods crash (container manager of pod p); its log: kubectl -n pipe-system logs p -c manager \
                 --previous";
    let first = format!("Cause:              Deployment pipe-system/manager: {cause}\n");
    assert!(tree.contains(&first), "{tree}");
    let object = format!("Deployment pipe-system/manager not ready: missing .status.conditions; {cause}\n");
    assert!(tree.contains(&object), "{tree}");
    assert_eq!(why, None, "it may have crashed by accident");
    let (_, why) = plant(json!({"reason": "InvalidImageName"}));
    let expected = "Deployment pipe-system/manager: its pods wait for image r.example/pipe ";
    assert!(why.as_ref().is_some_and(|why| why.starts_with(expected)), "{why:?}");

    let refused =
        "phase 0 validation error: CustomResourceDefinition.apiextensions.k8s.io \"a\" is invalid: x";
    observed = upgrading();
    let conditions = conditions(&[&format!("Progressing=True/Retrying {refused}")]);
    observed.revisions[1].set.status.as_mut().unwrap().conditions =
        serde_json::from_value(conditions).unwrap();
    assert_eq!(futile(&observed).as_deref(), Some(refused));
}

#[test]
fn object_state_follows_from_owner_and_probes() {
    let map = object("v1", "ConfigMap", "settings");
    let ours = || of_revision(&map, 1);
    let foreign =
        |reference: Value| with(ours(), |live| live["metadata"]["ownerReferences"] = json!([reference]));
    compare_states(vec![
        (ours(), ObjectStatus::Ready, "ConfigMap pipe-system/settings ready"),
        (Live::Missing, ObjectStatus::Missing, "ConfigMap pipe-system/settings missing"),
        (
            Live::Unreadable("configmaps is forbidden".to_owned()),
            ObjectStatus::Unknown,
            "ConfigMap pipe-system/settings cannot be read: configmaps is forbidden",
        ),
        (
            with(ours(), |live| live["status"] = json!({"observedGeneration": 7})),
            ObjectStatus::NotReady,
            "ConfigMap pipe-system/settings not ready: .status outdated",
        ),
        (
            with(ours(), |live| live["metadata"]["deletionTimestamp"] = json!(THEN)),
            ObjectStatus::Deleting,
            "ConfigMap pipe-system/settings being deleted",
        ),
        (
            foreign(
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d", "controller": true}),
            ),
            ObjectStatus::Collision,
            "ConfigMap pipe-system/settings collision: owner is Deployment d",
        ),
        (
            foreign(
                json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": "valve-1",
                "uid": "v", "controller": true}),
            ),
            ObjectStatus::Collision,
            "ConfigMap pipe-system/settings collision: owner is revision valve-1 of another extension",
        ),
        (
            Live::Found(map.clone()),
            ObjectStatus::Collision,
            "ConfigMap pipe-system/settings collision: no owner",
        ),
        (
            with(ours(), |live| {
                live["metadata"]["annotations"]["olm.operatorframework.io/revision"] = json!("x")
            }),
            ObjectStatus::Ready,
            "ConfigMap pipe-system/settings ready",
        ),
    ]);
}

/// Compares the state and the line of a ConfigMap for its live states.
fn compare_states(rows: Vec<(Live, ObjectStatus, &str)>) {
    let map = object("v1", "ConfigMap", "settings");
    for (live, word, line) in rows {
        let phases = vec![phase("configuration", vec![(map.clone(), live)])];
        let observed = Observed {
            drift: None,
            extension: extension(json!({}), json!({})),
            revisions: vec![ObservedRevision { set: set(1, "1.0.0", "Active", &[]), content: Ok(phases) }],
        };
        let state = ExtensionState::new(&observed);
        let object = &state.revisions[0].phases[0].objects[0];
        assert_eq!((object.state, object.to_string().as_str()), (word, line));
    }
}

#[test]
fn tree_shows_holds_adoption_and_unreadable_revision() {
    let held = "UpgradeAvailable=True/OutsideScope bundle pipe.v2.0.0 is held back";
    let healthy =
        ["Installed=True/Succeeded ok", "Progressing=True/Succeeded ok", "Available=True/ProbesSucceeded ok"];
    let hidden = ["Deprecated=False/NotDeprecated no", "Ready=True/ProbesSucceeded ok"];
    let deprecation = ["PackageDeprecated=True/Deprecated old"];
    let mut extension = extension(
        json!({"ext.olm.operatorframework.io/paused": "true"}),
        installed(&[&healthy[..], &[held], &hidden, &deprecation].concat(), 1),
    );
    extension.metadata.generation = Some(3);
    extension.status.as_mut().unwrap().available_version = Some("2.0.0".to_owned());
    let mut migrated = set(1, "0.9.0", "Archived", &["Progressing=False/Archived revision is archived"]);
    let labels = migrated.metadata.labels.as_mut().unwrap();
    labels.insert("olm.operatorframework.io/migrated-from-helm".to_owned(), "true".to_owned());
    let unreadable = Err("Secret olmv1-system/pipe-2-x cannot be read: forbidden".to_owned());
    let observed = Observed {
        drift: Some("revision pipe-1 corrected: ConfigMap.v1 pipe-system/settings (.data.k, changed 3 times by \"k\")".to_owned()),
        extension,
        revisions: vec![
            ObservedRevision { set: migrated, content: Ok(Vec::new()) },
            ObservedRevision {
                set: set(2, "1.0.0", "Active", &["Progressing=True/Retrying first\n\nsecond"]),
                content: unreadable,
            },
        ],
    };
    let state = ExtensionState::new(&observed);
    assert_eq!(text::tree(&state, now(), false), HELD_TREE);
    let wide = text::tree(&state, now(), true);
    for shown in ["  Deprecated False (NotDeprecated) for 5m\n", "  Ready True (ProbesSucceeded) for 5m\n"] {
        assert!(wide.contains(shown), "{wide}");
    }
    let table = "\
NAME   PACKAGE   INSTALLED     VERSION   AVAILABLE   HELD-BY               HEALTH    AGE
pipe   pipe      pipe.v1.0.0   1.0.0     2.0.0       Paused,OutsideScope   Healthy   5m
";
    assert_eq!(text::list(&[state], now(), false), table);
    assert_eq!(text::list(&[], now(), false), "The cluster has no ClusterExtensions.\n");
}

const HELD_TREE: &str = "\
Name:               pipe
Health:             Healthy (not reconciled since the last change of the extension)
Package:            pipe
Namespace:          pipe-system
Installed:          pipe.v1.0.0, version 1.0.0
Requested:          version 1.x of channel fast
Available:          version 2.0.0
Adopted:            from the upstream Helm applier, by pipe-1; the Helm applier cannot manage it again
Held by:            Paused: nothing is applied or upgraded; to resume: kubectl annotate clusterextension pipe \
ext.olm.operatorframework.io/paused-
Held by:            OutsideScope: bundle pipe.v2.0.0 is held back
Drift:              revision pipe-1 corrected: ConfigMap.v1 pipe-system/settings (.data.k, changed 3 times by \"k\")

Conditions
  Installed True (Succeeded) for 5m
    ok
  Progressing True (Succeeded) for 5m
    ok
  Available True (ProbesSucceeded) for 5m
    ok
  PackageDeprecated True (Deprecated) for 5m
    old
  UpgradeAvailable True (OutsideScope) for 5m
    bundle pipe.v2.0.0 is held back

pipe-2  pipe.v1.0.0  retrying, created 5m ago
│ ! first
│ ! second
│ ! cannot read its objects: Secret olmv1-system/pipe-2-x cannot be read: forbidden

pipe-1  pipe.v0.9.0  archived, created 5m ago, adopted from Helm
";

#[test]
fn ready_objects_of_large_phase_are_counted_and_others_listed() {
    let maps = (10..40).map(|number| object("v1", "ConfigMap", &format!("m{number}")));
    let live = |map: &Value| match map["metadata"]["name"] == "m30" {
        true => Live::Missing,
        false => of_revision(map, 1),
    };
    let maps: Vec<_> = maps.map(|map| (map.clone(), live(&map))).collect();
    let observed = Observed {
        drift: None,
        extension: extension(json!({}), json!({})),
        revisions: vec![ObservedRevision {
            set: set(1, "1.0.0", "Active", &[]),
            content: Ok(vec![phase("configuration", maps)]),
        }],
    };
    let state = ExtensionState::new(&observed);
    let table = text::tree(&state, now(), false);
    let end = "   ├─ ConfigMap pipe-system/m30 missing\n   └─ and 19 more that are ready, see -o wide\n";
    assert!(table.ends_with(end), "{table}");
    assert!(table.contains("└─ configuration  29 of 30 ready\n"), "{table}");
    assert_eq!(text::tree(&state, now(), true).matches("ConfigMap").count(), 30);
}

#[test]
fn json_has_same_state_as_text() {
    let state = ExtensionState::new(&upgrading());
    let printed = result(Format::Json, "ExtensionStatus", &state, |_| String::new()).unwrap();
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed["kind"], "ExtensionStatus");
    assert_eq!(printed["health"], "Upgrading");
    assert_eq!(printed["installed"], json!({"name": "pipe.v1.0.0", "version": "1.0.0"}));
    let revision = &printed["revisions"][0];
    assert_eq!((&revision["stage"], &revision["revision"]), (&json!("RollingOut"), &json!(2)));
    assert_eq!(
        revision["phases"][1],
        json!({"name": "deploy", "progress": "Current", "ready": 0, "objects": [{
            "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "pipe-system", "name": "manager",
            "state": "NotReady", "messages": ["missing .status.conditions"], "controller": "revision pipe-2"}]})
    );
}

// docs/design/apply.md#extension-conditions
#[test]
fn health_follows_from_conditions() {
    let ok = "Installed=True/Succeeded ok";
    for (status, expected) in [
        (json!({}), Health::Pending),
        (json!({"conditions": conditions(&["Installed=False/Failed No bundle installed"])}), Health::Pending),
        (
            json!({"conditions": conditions(&["Installed=False/Absent No bundle installed"]),
                "activeRevisions": [{"name": "pipe-1"}]}),
            Health::Installing,
        ),
        (json!({"conditions": conditions(&["Progressing=True/RollingOut x"])}), Health::Installing),
        (json!({"conditions": conditions(&["Progressing=True/Retrying x"])}), Health::Retrying),
        (installed(&[ok, "Progressing=True/Succeeded x"], 1), Health::Healthy),
        (
            installed(&[ok, "Progressing=True/Succeeded x", "Available=False/ProbeFailure x"], 1),
            Health::Degraded,
        ),
        (
            installed(&[ok, "Progressing=True/RollingOut x", "Available=False/ProbeFailure x"], 1),
            Health::Degraded,
        ),
        (
            installed(&[ok, "Progressing=True/RollingOut x", "Available=True/ProbesSucceeded x"], 1),
            Health::Repairing,
        ),
        (installed(&[ok, "Progressing=True/RollingOut x"], 2), Health::Upgrading),
        (installed(&[ok, "Progressing=False/ProgressDeadlineExceeded x"], 2), Health::Stalled),
        (installed(&[ok, "Progressing=False/InvalidConfiguration x"], 1), Health::Misconfigured),
        (installed(&[ok, "Progressing=False/Blocked x"], 1), Health::Blocked),
    ] {
        let of = extension(json!({}), status);
        assert_eq!(Health::of(&of), expected, "{:?}", of.status);
    }
    let mut going = extension(json!({}), json!({}));
    going.metadata.deletion_timestamp = serde_json::from_value(json!(THEN)).unwrap();
    assert_eq!(Health::of(&going), Health::Deleting);
}

// docs/design/bundles.md#unsupported-bundles
#[test]
fn unsupported_bundle_is_printed_with_gate_and_setting() {
    for (reason, remedy) in [
        ("bundle does not support AllNamespaces install mode", "gate SingleOwnNamespaceInstallSupport"),
        (
            "bundle must support at least one of [AllNamespaces SingleNamespace OwnNamespace] install modes",
            "gate MultiWatchNamespaces",
        ),
        ("apiServiceDefintions are not supported", "gate OwnedAPIServices"),
        ("webhookDefinitions are not supported", "gate WebhookProviderBuiltin"),
    ] {
        let condition =
            format!("Progressing=True/Retrying error for resolved bundle: unsupported bundle: {reason}");
        let extension = extension(json!({}), json!({"conditions": conditions(&[&condition])}));
        let state = ExtensionState::new(&Observed { extension, revisions: Vec::new(), drift: None });
        let text = text::tree(&state, now(), false);
        let line = text.lines().find(|line| line.starts_with("Remedy:")).unwrap();
        assert!(line.contains(remedy), "{text}");
    }
}

// docs/design/apply.md#immutable-fields
#[test]
fn immutable_field_is_printed_with_its_remedy() {
    let verdict = "Progressing=True/Retrying phase 3 validation error: phase \"deploy\": apps/v1, Kind=Deployment ns/op: \
                   Deployment.apps \"op\" is invalid: spec.selector: Invalid value: {}: field is immutable";
    let extension = extension(json!({}), json!({"conditions": conditions(&[verdict])}));
    let state = ExtensionState::new(&Observed { extension, revisions: Vec::new(), drift: None });
    let text = text::tree(&state, now(), false);
    let line = text.lines().find(|line| line.starts_with("Remedy:")).unwrap();
    assert!(line.contains("Deployment ns/op: spec.selector cannot be changed. Delete the object"), "{text}");
}
