//! Faults around revisions: missing rights, kinds that are not served, servers that fail.

use std::time::Duration;

use olm_servers::{Fault, Proxy, Rule};
use serde_json::json;

use super::fixture::{Fixture, PACE, config_map, crd, custom_resource, eventually, phase, start, unmodified};
use super::removal::{secret, stored};

// The right to list and watch is missing.
pub(super) async fn denied_watch_is_reported(fixture: &Fixture) {
    let ns = "refused";
    fixture.namespace(ns).await;
    let role = |verbs: &[&str]| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "limited"}, "rules": [
                {"apiGroups": ["olm.operatorframework.io"], "resources": ["*"], "verbs": ["*"]},
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]},
                {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]})
    };
    let few = ["get", "create", "patch", "delete"];
    fixture.create(&role(&few)).await;
    fixture
        .create(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "limited"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "limited"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "limited"}]}))
        .await;
    let controller = fixture.controller_as(Some("limited"));
    let map = config_map(ns, "a", json!({}));
    let name = fixture
        .revision(ns, 1, json!([phase("a", &[&map])]), |set| {
            set["metadata"]["ownerReferences"] = json!([{"apiVersion": "olm.operatorframework.io/v1",
                "kind": "ClusterExtension", "name": ns, "uid": "uid-of-refused", "controller": true}]);
        })
        .await;
    let text = fixture.until_condition(&name, "Progressing", "True/Retrying ").await;
    assert_eq!(
        text,
        "True/Retrying establish watch: configmaps is forbidden: User \"limited\" cannot list resource \"configmaps\" \
         in API group \"\" at the cluster scope"
    );
    // Case operations-e41
    let text = fixture.event("uid-of-refused").await;
    assert!(
        text.starts_with("PermissionMissing configmaps is forbidden: User \"limited\" cannot list"),
        "{text}"
    );
    fixture.edit(&role(&few), role(&["*"])).await;
    fixture.until_succeeded(&name).await;
    fixture.delete(&map).await;
    fixture.until_exists(&map).await;
    // Kinds that may not be watched do not prevent a removal of their objects.
    let lost = config_map(ns, "lost", json!({}));
    let name = fixture.revision("unseen", 1, stored(fixture, ns, &[&lost]).await, unmodified).await;
    fixture.until_succeeded(&name).await;
    fixture.delete(&secret(ns)).await;
    fixture.patch(&name, json!({"spec": {"lifecycleState": "Archived"}})).await;
    fixture.until_condition(&name, "Progressing", "False/Archived ").await;
    assert_eq!(fixture.get(&lost).await, None);
    controller.stop().await;
}

pub(super) async fn deleted_and_recreated_kind_is_watched_again(fixture: &Fixture) {
    let ns = "recreated";
    fixture.namespace(ns).await;
    let (crd, widget) = (crd("widgets", "Widget"), custom_resource("Widget", ns, "w"));
    fixture.create(&crd).await;
    eventually("the CRD is established", async || {
        let live = fixture.get(&crd).await?;
        live["status"]["conditions"]
            .to_string()
            .contains("the initial names have been accepted")
            .then_some(())
    })
    .await;
    let name = fixture.revision(ns, 1, json!([phase("a", &[&widget])]), unmodified).await;
    fixture.until_succeeded(&name).await;
    fixture.delete(&crd).await;
    fixture.until_condition(&name, "Progressing", "True/Retrying phase 0 validation error: ").await;
    fixture.until_object_deleted(&crd).await;
    fixture.create(&crd).await;
    fixture.until_succeeded(&name).await;
    // The recreated kind is watched.
    fixture.delete(&widget).await;
    fixture.until_exists(&widget).await;
}

pub(super) async fn version_no_longer_served_is_reported(fixture: &Fixture) {
    let ns = "versions";
    fixture.namespace(ns).await;
    let mut crd = crd("dials", "Dial");
    let mut old = crd["spec"]["versions"][0].clone();
    (old["name"], old["storage"]) = (json!("v1alpha1"), json!(false));
    crd["spec"]["versions"].as_array_mut().unwrap().push(old);
    fixture.create(&crd).await;
    let mut dial = custom_resource("Dial", ns, "d");
    dial["apiVersion"] = json!("acme.example/v1alpha1");
    let name = fixture.revision(ns, 1, json!([phase("a", &[&dial])]), unmodified).await;
    fixture.until_succeeded(&name).await;
    crd["spec"]["versions"][1]["served"] = json!(false);
    fixture.edit(&crd, json!({"spec": {"versions": crd["spec"]["versions"]}})).await;
    // The API server can refuse requests before discovery omits the version.
    let unknown = "no matches for kind \"Dial\" in version \"acme.example/v1alpha1\"";
    eventually(unknown, async || {
        let text = fixture.condition(&name, "Progressing").await?;
        (text.starts_with("True/Retrying ") && text.ends_with(unknown)).then_some(())
    })
    .await;
    crd["spec"]["versions"][1]["served"] = json!(true);
    fixture.edit(&crd, json!({"spec": {"versions": crd["spec"]["versions"]}})).await;
    fixture.until_succeeded(&name).await;
}

// A rejecting webhook behaves the same: the dry run reports it.
pub(super) async fn rejecting_admission_policy_is_reported_per_object(fixture: &Fixture) {
    let ns = "denied";
    fixture.namespace(ns).await;
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "denied"}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["configmaps"]}]},
            "validations": [{"expression": "object.metadata.namespace != 'denied'", "message": "not here"}]}});
    fixture.create(&policy).await;
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "denied"},
        "spec": {"policyName": "denied", "validationActions": ["Deny"]}});
    fixture.create(&binding).await;
    // The policy takes effect with a delay.
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::namespaced(fixture.client(), ns);
    let probe = serde_json::from_value(config_map(ns, "probe", json!({}))).unwrap();
    let dry = kube::api::PostParams { dry_run: true, ..Default::default() };
    eventually("the policy is active", async || maps.create(&dry, &probe).await.err().map(drop)).await;

    let [one, two] = ["one", "two"].map(|name| config_map(ns, name, json!({})));
    let name = fixture.revision(ns, 1, json!([phase("a", &[&one, &two])]), unmodified).await;
    let text = fixture.until_condition(&name, "Progressing", "True/Retrying ").await;
    let head = "True/Retrying phase 0 validation error: phase \"a\": /v1, Kind=ConfigMap denied/one: configmaps \"one\" is \
                forbidden: ";
    assert!(text.starts_with(head) && text.contains("denied/two: ") && text.contains("not here"), "{text}");
    assert_eq!(fixture.get(&one).await, None);
    fixture.delete(&binding).await;
    fixture.until_succeeded(&name).await;
}

pub(super) async fn unreachable_webhook_is_reported(fixture: &Fixture) {
    let ns = "unanswered";
    fixture.namespace(ns).await;
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": ns}, "webhooks": [{"name": "hook.acme.example", "admissionReviewVersions": ["v1"],
            "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 1,
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"]}]}]});
    fixture.create(&hook).await;
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::namespaced(fixture.client(), ns);
    let probe = serde_json::from_value(config_map(ns, "probe", json!({}))).unwrap();
    let dry = kube::api::PostParams { dry_run: true, ..Default::default() };
    eventually("the webhook is active", async || maps.create(&dry, &probe).await.err().map(drop)).await;
    let name =
        fixture.revision(ns, 1, json!([phase("a", &[&config_map(ns, "a", json!({}))])]), unmodified).await;
    let text = fixture.until_condition(&name, "Progressing", "True/Retrying ").await;
    let head = "True/Retrying reconciling object: validating: Internal error occurred: failed calling webhook \
                \"hook.acme.example\": ";
    assert!(text.starts_with(head), "{text}");
    fixture.delete(&hook).await;
    fixture.until_succeeded(&name).await;
}

pub(super) async fn api_server_restart_resumes_watches(fixture: &Fixture) {
    let ns = "restart";
    fixture.namespace(ns).await;
    let map = config_map(ns, "a", json!({"k": "v"}));
    let name = fixture.revision(ns, 1, json!([phase("a", &[&map])]), unmodified).await;
    fixture.until_succeeded(&name).await;
    fixture.plane.kill_apiserver();
    fixture.plane.start_apiserver().await.unwrap();
    fixture.edit(&map, json!({"data": {"k": "foreign"}})).await;
    eventually("the drift is corrected", async || {
        fixture.get(&map).await.filter(|map| map["data"]["k"] == "v").map(drop)
    })
    .await;
    fixture.until_succeeded(&name).await;
}

// docs/design/architecture.md#no-global-lock-no-global-failure
pub(super) async fn hanging_requests_delay_no_other_revision(fixture: &Fixture) {
    let proxy = Proxy::start(fixture.plane.kubeconfig()).await.unwrap();
    let controller = start(proxy.kubeconfig(), None, PACE);
    let hangs = Rule::new(Fault::Hang, |call| call.path.contains("/namespaces/hanging-"));
    let hangs = proxy.add(hangs);
    let install = async |ns: String| {
        fixture.namespace(&ns).await;
        // More objects than the engine reads at once.
        let maps: Vec<_> = (0..20).map(|n| config_map(&ns, &format!("m-{n:02}"), json!({}))).collect();
        fixture.revision(&ns, 1, json!([phase("a", &maps.iter().collect::<Vec<_>>())]), unmodified).await
    };
    let mut hanging = Vec::new();
    for number in 0..9 {
        hanging.push(install(format!("hanging-{number}")).await);
    }
    proxy.wait_for_hits(hangs, 9 * 8, Duration::from_secs(20)).await.unwrap();
    let free = install("free".to_owned()).await;
    fixture.until_succeeded(&free).await;
    assert_eq!(proxy.hits(hangs), 9 * 8, "the requests still hang");
    proxy.remove(hangs);
    for name in &hanging {
        fixture.until_succeeded(name).await;
    }
    controller.stop().await;
}

/// A controller that is stopped before its first list ends, also if the API server does not answer.
pub(super) async fn controller_stops_before_first_list(fixture: &Fixture) {
    start(fixture.plane.kubeconfig(), None, PACE).stop().await;
    let proxy = Proxy::start(fixture.plane.kubeconfig()).await.unwrap();
    let hangs = proxy.add(Rule::new(Fault::Hang, |_| true));
    let controller = start(proxy.kubeconfig(), None, PACE);
    proxy.wait_for_hits(hangs, 1, Duration::from_secs(20)).await.unwrap();
    controller.stop().await;
}
