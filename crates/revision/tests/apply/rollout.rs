//! Phases, drift and checks for objects without other owners.

use olm_revision::cluster::{ApiErrorReason, Cluster};
use olm_revision::result::Action;
use serde_json::json;

use crate::fixture::{
    Fixture, actions, config_map, crd, deployment, our_managers, owner_names, phase, until, version,
};

// Cases apply-5, apply-7, apply-38, apply-68
#[tokio::test]
async fn objects_are_created_once_and_unchanged_afterwards() {
    let mut fixture = Fixture::start().await;
    let fixture = &mut fixture;
    let ns = "create";
    fixture.namespace(ns).await;
    let objects = [config_map(ns, "a", json!({"k": "v"})), deployment(ns, "op")];
    let mut revision = fixture
        .revision("create", 1, vec![phase("configuration", &[&objects[0]]), phase("deploy", &[&objects[1]])])
        .await;
    revision.probes = Default::default();
    fixture.calls();
    let result = fixture.complete(&revision).await;
    assert_eq!(actions(&result), [Action::Created, Action::Created]);
    assert_eq!(fixture.calls(), ["create a", "create op"]);
    let live = fixture.get(&objects[1]).await.unwrap();
    assert_eq!(live["metadata"]["labels"]["app.kubernetes.io/managed-by"], "olm.operatorframework.io");
    assert_eq!(live["metadata"]["annotations"]["olm.operatorframework.io/revision"], "1");
    assert_eq!(owner_names(&live), [("create-1".to_owned(), Some(true))]);
    assert_eq!(our_managers(&live), ["Apply"]);

    let result = fixture.complete(&revision).await;
    assert_eq!(actions(&result), [Action::Idle, Action::Idle]);
    assert_eq!(fixture.calls(), [""; 0]);

    fixture.restart();
    let result = fixture.complete(&revision).await;
    assert_eq!(actions(&result), [Action::Idle, Action::Idle]);
    assert_eq!(fixture.calls(), [""; 0]);
    assert_eq!(version(&fixture.get(&objects[1]).await.unwrap()), version(&live));
}

// Cases apply-15, apply-16, apply-17, apply-18, apply-19
#[tokio::test]
async fn drift_is_repaired_and_foreign_fields_are_kept() {
    let fixture = &Fixture::start().await;
    let ns = "drift";
    fixture.namespace(ns).await;
    let op = deployment(ns, "op");
    let mut revision = fixture.revision("drift", 1, vec![phase("deploy", &[&op])]).await;
    revision.probes = Default::default();
    fixture.complete(&revision).await;

    // Foreign fields cause no write.
    fixture
        .edit(
            &op,
            json!({"metadata": {"labels": {"mine": "1"}}, "spec": {"replicas": 3, "template": {
            "metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}}),
        )
        .await;
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Idle]);

    let drifts = [
        (json!({"spec": {"template": {"metadata": {"labels": {"app": "op", "x": "y"}}}}}), Action::Idle),
        (json!({"metadata": {"labels": {"olm.operatorframework.io/owner-name": null}}}), Action::Updated),
        (json!({"metadata": {"annotations": {"olm.operatorframework.io/revision": "9"}}}), Action::Recovered),
    ];
    for (drift, expected) in drifts {
        fixture.edit(&op, drift.clone()).await;
        assert_eq!(actions(&fixture.complete(&revision).await), [expected], "{drift}");
        assert_eq!(actions(&fixture.complete(&revision).await), [Action::Idle], "{drift}");
    }
    let live = fixture.get(&op).await.unwrap();
    assert_eq!(live["metadata"]["labels"]["olm.operatorframework.io/owner-name"], "drift");
    assert_eq!(live["metadata"]["annotations"]["olm.operatorframework.io/revision"], "1");
    assert_eq!(live["metadata"]["labels"]["mine"], "1");
    assert_eq!(live["spec"]["replicas"], 3);
    assert_eq!(
        live["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"],
        "now"
    );

    let mut containers = live["spec"]["template"]["spec"]["containers"].clone();
    containers[0]["image"] = json!("example.test/other");
    fixture.edit(&op, json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Recovered]);
    let live = fixture.get(&op).await.unwrap();
    assert_eq!(live["spec"]["template"]["spec"]["containers"][0]["image"], "example.test/op:v1");
    assert_eq!(our_managers(&live), ["Apply"]);

    // A user reverts a field before the next reconcile: the user owns the field until it is applied again.
    let mut set_image = async |image: &str| {
        containers[0]["image"] = json!(image);
        fixture.edit(&op, json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
    };
    set_image("example.test/other").await;
    set_image("example.test/op:v1").await;
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Recovered]);
    set_image("example.test/other").await;
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Recovered]);

    fixture.delete(&op).await;
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Created]);
}

#[tokio::test]
async fn atomic_lists_are_ours_and_keyed_lists_shared() {
    let fixture = &Fixture::start().await;
    let ns = "lists";
    fixture.namespace(ns).await;
    let op = deployment(ns, "op");
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "r", "namespace": ns}, "rules": rules});
    let mut revision = fixture.revision("lists", 1, vec![phase("deploy", &[&op, &role])]).await;
    revision.probes = Default::default();
    fixture.complete(&revision).await;
    let mut containers = fixture.get(&op).await.unwrap()["spec"]["template"]["spec"]["containers"].clone();
    containers[0]["env"] = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]);
    fixture.edit(&op, json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
    let more = json!([rules[0], {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    fixture.edit(&role, json!({"rules": more})).await;
    let result = fixture.complete(&revision).await;
    assert_eq!(actions(&result), [Action::Idle, Action::Recovered]);
    let live = fixture.get(&op).await.unwrap();
    assert_eq!(live["spec"]["template"]["spec"]["containers"][0]["env"][1]["name"], "B");
    assert_eq!(fixture.get(&role).await.unwrap()["rules"], rules);
}

// Cases apply-30, apply-48
#[tokio::test]
async fn rejected_object_blocks_its_phase() {
    let fixture = &Fixture::start().await;
    let ns = "late";
    let map = config_map(ns, "a", json!({}));
    let revision = fixture.revision("late", 1, vec![phase("configuration", &[&map])]).await;
    let expected = "phase 0 validation error: phase \"configuration\": \
                    /v1, Kind=ConfigMap late/a: namespaces \"late\" not found";
    assert_eq!(fixture.reconcile(&revision).await.blocker().unwrap(), expected);
    fixture.namespace(ns).await;
    fixture.complete(&revision).await;

    let good = config_map(ns, "good", json!({}));
    let mut bad = config_map(ns, "BAD", json!({}));
    let unknown = json!({"apiVersion": "acme.example/v1", "kind": "Nothing", "metadata": {"name": "n", "namespace": ns}});
    bad["metadata"]["namespace"] = json!(ns);
    let revision = fixture.revision("bad", 1, vec![phase("a", &[&good, &bad, &unknown])]).await;
    let first = fixture.reconcile(&revision).await;
    let message = first.blocker().unwrap();
    let head = "phase 0 validation error: phase \"a\": /v1, Kind=ConfigMap late/BAD: ConfigMap \"BAD\" is invalid: metadata.name: ";
    assert!(message.starts_with(head), "{message}");
    let tail = ", acme.example/v1, Kind=Nothing late/n: no matches for kind \"Nothing\" in version \"acme.example/v1\"";
    assert!(message.ends_with(tail), "{message}");
    assert_eq!(fixture.get(&good).await, None);
    assert_eq!(fixture.reconcile(&revision).await, first);

    let undeclared = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "u", "namespace": ns}, "nope": 1});
    let revision = fixture.revision("undeclared", 1, vec![phase("a", &[&undeclared])]).await;
    let message = fixture.reconcile(&revision).await.blocker().unwrap();
    assert!(message.contains("failed to create typed patch object"), "{message}");
}

// Case apply-64
#[tokio::test]
async fn custom_resource_follows_its_crd() {
    let fixture = &Fixture::start().await;
    let ns = "custom";
    fixture.namespace(ns).await;
    let crd = crd("widgets", "Widget");
    let widget = json!({"apiVersion": "acme.example/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": ns}});
    let revision =
        fixture.revision("custom", 1, vec![phase("crds", &[&crd]), phase("deploy", &[&widget])]).await;
    // The CRD is established a moment after its creation. Until then its phase is incomplete.
    let result = until(async || Some(fixture.reconcile(&revision).await).filter(|r| r.is_complete())).await;
    let watched: Vec<&str> = result.watch.iter().map(|gvk| gvk.kind.as_str()).collect();
    assert_eq!(watched, ["CustomResourceDefinition", "Widget"]);
    assert!(fixture.get(&widget).await.is_some());
}

#[tokio::test]
async fn creation_never_changes_an_existing_object() {
    let fixture = &Fixture::start().await;
    let ns = "existing";
    fixture.namespace(ns).await;
    let crd = crd("relics", "Relic");
    let relic = json!({"apiVersion": "acme.example/v1", "kind": "Relic",
        "metadata": {"name": "r", "namespace": ns, "labels": {"c": "d"}}});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": ns},
        "rules": []});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": ns},
        "spec": {"ports": [{"port": 80}]}});
    for mut object in [config_map(ns, "a", json!({})), deployment(ns, "op"), service, role, crd, relic] {
        // The kind of a new CRD is served a moment after its creation.
        let created = until(async || fixture.engine.cluster().create(&object).await.ok()).await;
        let is_custom = object["kind"] == "Relic";
        let (operation, reason) = if is_custom {
            ("Update", ApiErrorReason::AlreadyExists)
        } else {
            ("Apply", ApiErrorReason::Conflict)
        };
        assert_eq!(our_managers(&created), [operation], "{object}");
        object["metadata"]["labels"] = json!({"a": "b"});
        let error = fixture.engine.cluster().create(&object).await.unwrap_err();
        assert_eq!(error.reason, reason, "{error}");
        assert_eq!(fixture.get(&object).await.unwrap()["metadata"]["labels"]["a"], json!(null));
    }
    fixture.calls();
}

// Case apply-36
#[tokio::test]
async fn failing_probes_hold_the_next_phase() {
    let fixture = &Fixture::start().await;
    let ns = "probes";
    fixture.namespace(ns).await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "test-pvc", "namespace": ns},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    let map = config_map(ns, "later", json!({}));
    let revision =
        fixture.revision("probes", 1, vec![phase("pvc", &[&claim]), phase("configuration", &[&map])]).await;
    let result = fixture.reconcile(&revision).await;
    assert!(!result.is_complete() && result.is_in_transition());
    assert_eq!(result.blocker(), None);
    assert_eq!(
        result.probe_failures().unwrap(),
        "Object PersistentVolumeClaim.v1 probes/test-pvc: \
         value at key \"status.phase\" != \"Bound\"; expected: \"Bound\" got: \"Pending\""
    );
    assert_eq!(fixture.get(&map).await, None);
}

// docs/design/apply.md#namespaces: a namespace that is being deleted, and an exhausted quota.
#[tokio::test]
async fn terminating_namespace_and_quota_block_the_phase() {
    let fixture = &Fixture::start().await;
    let ns = "dying";
    fixture.namespace(ns).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}});
    // No namespace controller runs here that would complete the deletion.
    fixture.delete(&namespace).await;
    let map = config_map(ns, "a", json!({}));
    let revision = fixture.revision("dying", 1, vec![phase("configuration", &[&map])]).await;
    let message = fixture.reconcile(&revision).await.blocker().unwrap();
    assert_eq!(
        message,
        "phase 0 validation error: phase \"configuration\": /v1, Kind=ConfigMap dying/a: configmaps \"a\" is \
         forbidden: unable to create new content in namespace dying because it is being terminated"
    );

    let ns = "full";
    fixture.namespace(ns).await;
    let limit = json!({"count/configmaps": "0"});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": ns},
        "spec": {"hard": limit}});
    fixture.create(&quota).await;
    fixture.edit_status(&quota, json!({"status": {"hard": limit, "used": limit}})).await;
    let map = config_map(ns, "a", json!({}));
    let revision = fixture.revision("full", 1, vec![phase("configuration", &[&map])]).await;
    // The quota controller of the API server has a delay.
    let message =
        until(async || fixture.reconcile(&revision).await.blocker().filter(|m| m.contains("quota"))).await;
    assert_eq!(
        message,
        "phase 0 validation error: phase \"configuration\": /v1, Kind=ConfigMap full/a: configmaps \"a\" is \
         forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=0, limited: \
         count/configmaps=0"
    );
    assert_eq!(fixture.get(&map).await, None);
    fixture.delete(&quota).await;
    until(async || fixture.reconcile(&revision).await.is_complete().then_some(())).await;
}

#[tokio::test]
async fn taken_names_of_a_crd_are_explained() {
    let fixture = &Fixture::start().await;
    let [mut old, mut new] = [crd("olders", "Older"), crd("newers", "Newer")];
    for one in [&mut old, &mut new] {
        one["spec"]["names"]["shortNames"] = json!(["taken"]);
    }
    fixture.create(&old).await;
    until(async || {
        let live = fixture.get(&old).await?;
        live["status"]["conditions"]
            .as_array()?
            .iter()
            .any(|one| one["type"] == "NamesAccepted")
            .then_some(())
    })
    .await;
    let revision = fixture.revision("taken-names", 1, vec![phase("crds", &[&new])]).await;
    let line = until(async || {
        let line = fixture.reconcile(&revision).await.probe_failures()?;
        line.contains("names are not accepted").then_some(line)
    })
    .await;
    assert!(
        line.contains("\"taken\" is already in use: change the names of the other CRD of group acme.example"),
        "{line}"
    );
}
