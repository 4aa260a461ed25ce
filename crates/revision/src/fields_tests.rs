use super::*;

const OURS: &str = REVISION_ENGINE_MANAGER;

fn entry(manager: &str, subresource: Option<&str>, fields: Value) -> Value {
    let operation = if manager == OURS { "Apply" } else { "Update" };
    let mut entry =
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": fields});
    if let Some(subresource) = subresource {
        entry["subresource"] = json!(subresource);
    }
    entry
}

fn object(managed: Value) -> Value {
    json!({"apiVersion": "v1", "metadata": {"managedFields": managed}})
}

/// Our fields after the moves, if these change them.
fn moved(desired: &Value, ours: Value, others: &[Value]) -> Option<Value> {
    let mut managed = vec![entry(OURS, None, ours)];
    managed.extend(others.iter().cloned());
    let moves = Moves { superseded: vec![OURS], claims: Value::Null };
    let fields = moves.managed_fields(desired, &object(managed.into()))?;
    assert_eq!(fields[1..], *others, "entries of others are unchanged");
    Some(fields[0]["fieldsV1"].clone())
}

#[test]
fn replicas_of_an_autoscaler_are_not_applied() {
    let desired = json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "paused": false}});
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    let left = json!({"metadata": {"name": "d"}, "spec": {"paused": false}});
    for (manager, subresource, expected) in [
        ("kube-controller-manager", Some("scale"), &left),
        ("keda", Some("scale"), &left),
        ("kubectl", Some("scale"), &desired),
        ("kubectl-scale", Some("scale"), &desired),
        ("kube-controller-manager", Some("status"), &desired),
        ("k9s", None, &desired),
        (OURS, Some("scale"), &desired),
    ] {
        let live = object(json!([entry(manager, subresource, replicas.clone())]));
        assert_eq!(without_scaled(&desired, &live), *expected, "{manager} {subresource:?}");
    }
    assert_eq!(without_scaled(&desired, &json!({})), desired);
}

#[test]
fn rules_of_an_aggregated_role_lose_our_sole_ownership() {
    let role =
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "aggregationRule": {}});
    let ours = json!({"f:aggregationRule": {}, "f:rules": {}});
    let aggregator = entry("clusterrole-aggregation-controller", None, json!({"f:rules": {}}));
    assert_eq!(moved(&role, ours.clone(), &[]), Some(json!({"f:aggregationRule": {}})));
    assert_eq!(moved(&role, ours.clone(), &[aggregator]), None, "the apply leaves them to the other owner");
    let plain = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []});
    assert_eq!(moved(&plain, ours, &[]), None);
}

#[test]
fn injected_bundles_lose_our_sole_ownership() {
    let desired = |annotation: &str, client: Value| json!({"metadata": {"annotations": {annotation: "ns/s"}}, "webhooks": [{"name": "a", "clientConfig": client}]});
    let fields =
        |client: Value| json!({"f:webhooks": {"k:{\"name\":\"a\"}": {".": {}, "f:clientConfig": client}}});
    let service = json!({"service": {"name": "s"}});
    let both = fields(json!({"f:service": {}, "f:caBundle": {}}));
    let kept = Some(fields(json!({"f:service": {}})));
    for annotation in [
        "ext.olm.operatorframework.io/inject-ca-from",
        "cert-manager.io/inject-ca-from",
        "service.beta.openshift.io/inject-cabundle",
    ] {
        assert_eq!(moved(&desired(annotation, service.clone()), both.clone(), &[]), kept);
    }
    let injected = desired("ext.olm.operatorframework.io/inject-ca-from", service.clone());
    let provider = entry("provider", None, fields(json!({"f:caBundle": {}})));
    assert_eq!(moved(&injected, both.clone(), &[provider]), None, "the provider is an owner");
    let other = entry(
        "provider",
        None,
        json!({"f:webhooks": {"k:{\"name\":\"b\"}": {"f:clientConfig": {"f:caBundle": {}}}}}),
    );
    assert_eq!(moved(&injected, both.clone(), &[other]), kept, "owner of another webhook");
    assert_eq!(moved(&desired("x", service), both.clone(), &[]), None, "no injector");
    let set = desired("cert-manager.io/inject-ca-from", json!({"caBundle": "x"}));
    assert_eq!(moved(&set, both.clone(), &[]), None, "the bundle of the revision");
    let mut removed = injected.clone();
    removed["webhooks"] = json!([]);
    assert_eq!(moved(&removed, both, &[]), None, "removed with its webhook");
    let alone = fields(json!({"f:caBundle": {}}));
    let rest = json!({"f:webhooks": {"k:{\"name\":\"a\"}": {".": {}}}});
    assert_eq!(moved(&injected, alone, &[]), Some(rest));
}

#[test]
fn fields_of_string_data_become_those_of_data() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": {}});
    let ours = json!({"f:stringData": {"f:a": {}, "f:b": {}}, "f:data": {"f:c": {}}});
    assert_eq!(moved(&secret, ours, &[]), Some(json!({"f:data": {"f:a": {}, "f:b": {}, "f:c": {}}})));
    let ours = json!({"f:stringData": {"f:a": {}}});
    assert_eq!(moved(&secret, ours.clone(), &[]), Some(json!({"f:data": {"f:a": {}}})));
    let other = json!({"apiVersion": "acme.example/v1", "kind": "Secret"});
    assert_eq!(moved(&other, ours, &[]), None);
}

#[test]
fn claims_are_added_to_our_fields() {
    let claims = json!({"f:spec": {"f:b": {}}});
    let moves = Moves { superseded: Vec::new(), claims: claims.clone() };
    let desired = json!({"apiVersion": "apps/v1"});
    let live = object(json!([entry(OURS, None, json!({"f:spec": {"f:a": {}}}))]));
    let fields = moves.managed_fields(&desired, &live).unwrap();
    assert_eq!(fields[0]["fieldsV1"], json!({"f:spec": {"f:a": {}, "f:b": {}}}));
    let user = entry("user", None, json!({"f:spec": {}}));
    let fields = moves.managed_fields(&desired, &object(json!([user]))).unwrap();
    assert_eq!(fields[0], user);
    assert_eq!(
        fields[1],
        json!({"manager": OURS, "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": claims})
    );
}

#[test]
fn transferred_fields_are_merged_into_ours() {
    let kubectl = entry("kubectl", None, json!({"f:metadata": {}}));
    let ours = entry(OURS, None, json!({"f:spec": {"f:a": {}}}));
    let theirs = entry("provider", None, json!({"f:spec": {"f:b": {}}}));
    let patch = |managed: Value| json!({"metadata": {"resourceVersion": "7", "managedFields": managed}});
    let both = entry(OURS, None, json!({"f:spec": {"f:a": {}, "f:b": {}}}));
    let live = patch(json!([kubectl, theirs, ours]));
    assert_eq!(transfer_patch(&live, "provider"), Some(patch(json!([kubectl, both]))));
    assert_eq!(transfer_patch(&patch(json!([kubectl, ours])), "provider"), None, "no fields of the provider");
    assert_eq!(transfer_patch(&patch(json!([kubectl, theirs])), "provider"), None, "not applied by us");
    assert_eq!(transfer_patch(&json!({}), "provider"), None);
}

#[test]
fn conversion_becomes_ours_if_a_revision_set_it_and_an_apply_would_leave_a_part() {
    let conversion = |client: Value| json!({"f:spec": {"f:conversion": {"f:strategy": {}, "f:webhook": {"f:clientConfig": client}}}});
    let whole = conversion(json!({"f:caBundle": {}, "f:service": {"f:name": {}, "f:port": {}}}));
    let all = entry(OURS, None, whole.clone());
    let ours = entry(OURS, None, conversion(json!({"f:service": {"f:name": {}, "f:port": {}}})));
    let bundle = json!({"f:spec": {"f:conversion": {"f:webhook": {"f:clientConfig": {"f:caBundle": {}}}}}});
    let injector = entry("cert-manager-cainjector", None, bundle);
    let operator = entry("operator", None, whole.clone());
    let desired = |conversion: Value| json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {"conversion": conversion}});
    let moved = |desired: &Value, managed: Value| {
        let client = json!({"caBundle": "eA==", "service": {"name": "s", "port": 443}});
        let mut live = object(managed);
        live["kind"] = json!("CustomResourceDefinition");
        live["apiVersion"] = json!("apiextensions.k8s.io/v1");
        live["spec"] = json!({"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": client}}});
        let moves = Moves { superseded: vec![OURS], claims: Value::Null };
        moves.managed_fields(desired, &live).map(Value::from)
    };
    let plain = desired(json!(null));
    assert_eq!(moved(&plain, json!([ours, injector])), Some(json!([all])));
    assert_eq!(moved(&plain, json!([ours])), Some(json!([all])), "an unowned field");
    assert_eq!(moved(&plain, json!([all])), None, "an apply removes it");
    let labels = entry(OURS, None, json!({"f:metadata": {}}));
    for managed in [json!([operator]), json!([labels, operator]), json!([])] {
        assert_eq!(moved(&plain, managed.clone()), None, "no revision set it: {managed}");
    }
    let listed = moved(&desired(json!({"strategy": "None"})), json!([operator])).unwrap();
    assert_eq!((&listed[0]["manager"], &listed[0]["fieldsV1"]), (&json!(OURS), &whole));
    assert_eq!(moved(&desired(json!({"strategy": "Webhook"})), json!([ours, injector])), None);
}

// An image that leaves tag `latest` must not be pulled at each start of a pod.
#[test]
fn derived_pull_policy_is_claimed_with_another_image_only() {
    let pod = |container: Value| json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    let fields = |policy: Value| {
        let set =
            json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"m\"}": policy}}}}});
        entry("other", None, set)["fieldsV1"].clone()
    };
    let (ours, claimed) =
        (fields(json!({"f:image": {}})), fields(json!({"f:image": {}, "f:imagePullPolicy": {}})));
    let live = pod(json!({"name": "m", "image": "a:latest", "imagePullPolicy": "Always"}));
    for (container, others, expected) in [
        (json!({"name": "m", "image": "a:v1"}), json!({}), &claimed),
        (json!({"name": "m", "image": "a:v1"}), fields(json!({"f:imagePullPolicy": {}})), &ours),
        (json!({"name": "m", "image": "a:latest"}), json!({}), &ours),
        (json!({"name": "m", "image": "b"}), json!({}), &ours),
        (json!({"name": "m", "image": "a:v1", "imagePullPolicy": "Always"}), json!({}), &ours),
        (json!({"name": "other", "image": "a:v1"}), json!({}), &ours),
    ] {
        let mut fields = ours.clone();
        claim_pull_policies(&pod(container.clone()), &live, &mut fields, &[&others]);
        assert_eq!(fields, *expected, "{container}, {others}");
    }
    let digest = format!("a@sha256:{}", "0".repeat(64));
    for (image, policy) in [
        ("a", "Always"),
        ("r.example:5000/a", "Always"),
        ("r.example:5000/a:latest", "Always"),
        ("a:v1", "IfNotPresent"),
        (digest.as_str(), "IfNotPresent"),
        ("a:latest@sha256:0", "Always"),
    ] {
        assert_eq!(default_pull_policy(image), policy, "{image}");
    }
}
