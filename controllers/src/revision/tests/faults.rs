//! Faults around revisions: missing rights, kinds that are not served, servers that fail.

use std::time::Duration;

use kube::core::GroupVersionKind;
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::observed_versions::ObservedVersions;
use olm_servers::{Fault, Proxy, Rule};
use serde_json::json;

use super::leaving::{secret, stored};
use super::world::{PACE, Running, World, config_map, crd, custom, eventually, phase, plain};
use crate::revision::watches::Watches;

// The right to list and watch is missing.
pub(super) async fn denied_watch_is_reported(world: &World) {
    let ns = "refused";
    world.namespace(ns).await;
    let role = |verbs: &[&str]| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "limited"}, "rules": [
                {"apiGroups": ["olm.operatorframework.io"], "resources": ["*"], "verbs": ["*"]},
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]},
                {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]})
    };
    let few = ["get", "create", "patch", "delete"];
    world.create(&role(&few)).await;
    world
        .create(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "limited"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "limited"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "limited"}]}))
        .await;
    let controller = world.controller_as(Some("limited"));
    let map = config_map(ns, "a", json!({}));
    let name = world
        .revision(ns, 1, json!([phase("a", &[&map])]), |set| {
            set["metadata"]["ownerReferences"] = json!([{"apiVersion": "olm.operatorframework.io/v1",
                "kind": "ClusterExtension", "name": ns, "uid": "uid-of-refused", "controller": true}]);
        })
        .await;
    let text = world.says(&name, "Progressing", "True/Retrying ").await;
    assert_eq!(
        text,
        "True/Retrying establish watch: configmaps is forbidden: User \"limited\" cannot list resource \"configmaps\" \
         in API group \"\" at the cluster scope"
    );
    // Case operations-e41
    let told = world.event("uid-of-refused").await;
    assert!(
        told.starts_with("PermissionMissing configmaps is forbidden: User \"limited\" cannot list"),
        "{told}"
    );
    world.edit(&role(&few), role(&["*"])).await;
    world.succeeds(&name).await;
    world.delete(&map).await;
    world.exists(&map).await;
    // Kinds that may not be watched do not prevent a removal of their objects.
    let lost = config_map(ns, "lost", json!({}));
    let name = world.revision("unseen", 1, stored(world, ns, &[&lost]).await, plain).await;
    world.succeeds(&name).await;
    world.delete(&secret(ns)).await;
    world.patch(&name, json!({"spec": {"lifecycleState": "Archived"}})).await;
    world.says(&name, "Progressing", "False/Archived ").await;
    assert_eq!(world.get(&lost).await, None);
    controller.stop().await;
}

pub(super) async fn deleted_and_recreated_kind_is_watched_again(world: &World) {
    let ns = "recreated";
    world.namespace(ns).await;
    let (definition, widget) = (crd("widgets", "Widget"), custom("Widget", ns, "w"));
    world.create(&definition).await;
    eventually("the definition is established", async || {
        let live = world.get(&definition).await?;
        live["status"]["conditions"]
            .to_string()
            .contains("the initial names have been accepted")
            .then_some(())
    })
    .await;
    let name = world.revision(ns, 1, json!([phase("a", &[&widget])]), plain).await;
    world.succeeds(&name).await;
    world.delete(&definition).await;
    world.says(&name, "Progressing", "True/Retrying phase 0 validation error: ").await;
    world.vanishes(&definition).await;
    world.create(&definition).await;
    world.succeeds(&name).await;
    // The recreated kind is watched.
    world.delete(&widget).await;
    world.exists(&widget).await;
}

pub(super) async fn version_no_longer_served_is_reported(world: &World) {
    let ns = "versions";
    world.namespace(ns).await;
    let mut definition = crd("dials", "Dial");
    let mut old = definition["spec"]["versions"][0].clone();
    (old["name"], old["storage"]) = (json!("v1alpha1"), json!(false));
    definition["spec"]["versions"].as_array_mut().unwrap().push(old);
    world.create(&definition).await;
    let mut dial = custom("Dial", ns, "d");
    dial["apiVersion"] = json!("acme.example/v1alpha1");
    let name = world.revision(ns, 1, json!([phase("a", &[&dial])]), plain).await;
    world.succeeds(&name).await;
    definition["spec"]["versions"][1]["served"] = json!(false);
    world.edit(&definition, json!({"spec": {"versions": definition["spec"]["versions"]}})).await;
    let text = world.says(&name, "Progressing", "True/Retrying ").await;
    assert!(text.ends_with("no matches for kind \"Dial\" in version \"acme.example/v1alpha1\""), "{text}");
    definition["spec"]["versions"][1]["served"] = json!(true);
    world.edit(&definition, json!({"spec": {"versions": definition["spec"]["versions"]}})).await;
    world.succeeds(&name).await;
}

// A rejecting webhook behaves the same: the dry run reports it.
pub(super) async fn rejecting_admission_policy_is_reported_per_object(world: &World) {
    let ns = "denied";
    world.namespace(ns).await;
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "denied"}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["configmaps"]}]},
            "validations": [{"expression": "object.metadata.namespace != 'denied'", "message": "not here"}]}});
    world.create(&policy).await;
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "denied"},
        "spec": {"policyName": "denied", "validationActions": ["Deny"]}});
    world.create(&binding).await;
    // The policy takes effect with a delay.
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::namespaced(world.client(), ns);
    let probe = serde_json::from_value(config_map(ns, "probe", json!({}))).unwrap();
    let dry = kube::api::PostParams { dry_run: true, ..Default::default() };
    eventually("the policy is active", async || maps.create(&dry, &probe).await.err().map(drop)).await;

    let [one, two] = ["one", "two"].map(|name| config_map(ns, name, json!({})));
    let name = world.revision(ns, 1, json!([phase("a", &[&one, &two])]), plain).await;
    let text = world.says(&name, "Progressing", "True/Retrying ").await;
    let head = "True/Retrying phase 0 validation error: phase \"a\": /v1, Kind=ConfigMap denied/one: configmaps \"one\" is \
                forbidden: ";
    assert!(text.starts_with(head) && text.contains("denied/two: ") && text.contains("not here"), "{text}");
    assert_eq!(world.get(&one).await, None);
    world.delete(&binding).await;
    world.succeeds(&name).await;
}

pub(super) async fn unreachable_webhook_is_reported(world: &World) {
    let ns = "unanswered";
    world.namespace(ns).await;
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": ns}, "webhooks": [{"name": "hook.acme.example", "admissionReviewVersions": ["v1"],
            "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 1,
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"]}]}]});
    world.create(&hook).await;
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::namespaced(world.client(), ns);
    let probe = serde_json::from_value(config_map(ns, "probe", json!({}))).unwrap();
    let dry = kube::api::PostParams { dry_run: true, ..Default::default() };
    eventually("the webhook is active", async || maps.create(&dry, &probe).await.err().map(drop)).await;
    let name = world.revision(ns, 1, json!([phase("a", &[&config_map(ns, "a", json!({}))])]), plain).await;
    let text = world.says(&name, "Progressing", "True/Retrying ").await;
    let head = "True/Retrying reconciling object: validating: Internal error occurred: failed calling webhook \
                \"hook.acme.example\": ";
    assert!(text.starts_with(head), "{text}");
    world.delete(&hook).await;
    world.succeeds(&name).await;
}

pub(super) async fn api_server_restart_resumes_watches(world: &World) {
    let ns = "restart";
    world.namespace(ns).await;
    let map = config_map(ns, "a", json!({"k": "v"}));
    let name = world.revision(ns, 1, json!([phase("a", &[&map])]), plain).await;
    world.succeeds(&name).await;
    world.plane.kill_apiserver();
    world.plane.start_apiserver().await.unwrap();
    world.edit(&map, json!({"data": {"k": "foreign"}})).await;
    eventually("the drift is corrected", async || {
        world.get(&map).await.filter(|map| map["data"]["k"] == "v").map(drop)
    })
    .await;
    world.succeeds(&name).await;
}

// docs/design/architecture.md#no-global-lock-no-global-failure
pub(super) async fn hanging_requests_delay_no_other_revision(world: &World) {
    let proxy = Proxy::start(world.plane.kubeconfig()).await.unwrap();
    let controller = Running::start(proxy.kubeconfig(), None, PACE);
    let hangs = Rule::new(Fault::Hang, |call| call.path.contains("/namespaces/hanging-"));
    let hangs = proxy.add(hangs);
    let install = async |ns: String| {
        world.namespace(&ns).await;
        // More objects than the engine reads at once.
        let maps: Vec<_> = (0..20).map(|n| config_map(&ns, &format!("m-{n:02}"), json!({}))).collect();
        world.revision(&ns, 1, json!([phase("a", &maps.iter().collect::<Vec<_>>())]), plain).await
    };
    let mut hanging = Vec::new();
    for number in 0..9 {
        hanging.push(install(format!("hanging-{number}")).await);
    }
    proxy.wait_for_hits(hangs, 9 * 8, Duration::from_secs(20)).await.unwrap();
    let free = install("free".to_owned()).await;
    world.succeeds(&free).await;
    assert_eq!(proxy.hits(hangs), 9 * 8, "the requests still hang");
    proxy.remove(hangs);
    for name in &hanging {
        world.succeeds(name).await;
    }
    controller.stop().await;
}

/// A controller that is stopped before its first list ends, also if the API server does not answer.
pub(super) async fn controller_stops_before_first_list(world: &World) {
    Running::start(world.plane.kubeconfig(), None, PACE).stop().await;
    let proxy = Proxy::start(world.plane.kubeconfig()).await.unwrap();
    let hangs = proxy.add(Rule::new(Fault::Hang, |_| true));
    let controller = Running::start(proxy.kubeconfig(), None, PACE);
    proxy.wait_for_hits(hangs, 1, Duration::from_secs(20)).await.unwrap();
    controller.stop().await;
}

pub(super) async fn watches_end_when_last_revision_releases_them(world: &World) {
    let cluster = KubeCluster::new(world.client());
    let (watches, mut changed) = Watches::new(world.client(), cluster, ObservedVersions::default().into());
    let kind = |group: &str, version: &str, kind: &str| GroupVersionKind::gvk(group, version, kind);
    let kinds = [kind("", "v1", "ConfigMap"), kind("apps", "v1", "Deployment")];
    watches.watch("a-1", &kinds, false).await.unwrap();
    watches.watch("b-1", &kinds[..1], true).await.unwrap();
    assert_eq!(watches.kinds(), ["ConfigMap", "Deployment"]);
    // Kinds that the revision no longer needs.
    watches.watch("a-1", &kinds[..1], true).await.unwrap();
    assert_eq!(watches.kinds(), ["ConfigMap"]);
    watches.release("a-1");
    assert_eq!(watches.kinds(), ["ConfigMap"]);
    watches.release("b-1");
    assert_eq!(watches.kinds(), [""; 0]);
    // A kind that is not served is skipped. The end of a watch requeues the revisions that use it.
    watches.watch("c-1", &[kind("acme.example", "v1", "Nothing")], true).await.unwrap();
    assert_eq!(watches.kinds(), [""; 0]);
    let definition = crd("brief", "Brief");
    world.create(&definition).await;
    let brief = [kind("acme.example", "v1", "Brief")];
    eventually("the kind is served", async || {
        watches.watch("d-1", &brief, true).await.unwrap();
        (watches.kinds() == ["Brief"]).then_some(())
    })
    .await;
    while changed.try_recv().is_ok() {}
    world.delete(&definition).await;
    assert_eq!(changed.recv().await.unwrap().name, "d-1");
}
