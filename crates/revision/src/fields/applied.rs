//! Form in which a revision applies an object of its content (docs/design/apply.md#owners-of-fields).
//!
//! Pure. The recorded content and its digests keep the form of the bundle. Server-side apply needs another one where
//! the API server moves a field, refuses what it accepts by POST, or another controller owns the field.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use crate::object::{gvk, is_built_in, is_crd, map_mut, text};

/// Pod specs of the built-in workload kinds, and of a Pod.
pub(super) const POD_SPECS: [&str; 3] =
    ["/spec/template/spec", "/spec/jobTemplate/spec/template/spec", "/spec"];
/// Port of a webhook whose definition has none, as in classic OLM.
const WEBHOOK_PORT: u16 = 443;

/// The object as it is applied: `stringData` of a Secret as `data`, no `rules` in an aggregated ClusterRole, the last of
/// several variables of one name, a port for each webhook, no CA bundles that another controller injects, and the types of
/// a NetworkPolicy.
pub fn applied(content: &Value) -> Value {
    let mut object = content.clone();
    let gvk = gvk(&object);
    if is_injected(content) {
        drop_bundles(&mut object);
    }
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Secret") => encode_string_data(&mut object),
        _ if is_aggregated(&object) => {
            object.as_object_mut().map(|role| role.remove("rules"));
        }
        ("admissionregistration.k8s.io", _) => {
            let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
            webhooks.into_iter().flatten().for_each(set_port);
        }
        ("networking.k8s.io", "NetworkPolicy") => set_policy_types(&mut object),
        _ if is_crd(&gvk) => object.pointer_mut("/spec/conversion/webhook").into_iter().for_each(set_port),
        _ => {}
    }
    if is_built_in(&gvk) {
        for container in containers_mut(&mut object) {
            keep_last_variables(container);
        }
    }
    object
}

/// `true` for a ClusterRole whose rules the controller of Kubernetes fills.
pub(crate) fn is_aggregated(object: &Value) -> bool {
    let gvk = gvk(object);
    gvk.group == "rbac.authorization.k8s.io"
        && gvk.kind == "ClusterRole"
        && object.get("aggregationRule").is_some_and(|rule| !rule.is_null())
}

/// `true` if the object requests the injection of CA bundles.
pub(super) fn is_injected(object: &Value) -> bool {
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
    annotations.is_some_and(|annotations| annotations.keys().any(|key| key.contains("/inject-ca")))
}

/// Removes the placeholders of injected CA bundles: of webhooks, a conversion webhook and an APIService. The API server
/// accepts an invalid one of a CRD only until a valid one is injected.
fn drop_bundles(object: &mut Value) {
    let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten();
    webhooks.filter_map(|webhook| webhook.get_mut("clientConfig")).for_each(drop_bundle);
    for path in ["/spec", "/spec/conversion/webhook/clientConfig"] {
        object.pointer_mut(path).into_iter().for_each(drop_bundle);
    }
}

fn drop_bundle(client: &mut Value) {
    client.as_object_mut().map(|client| client.remove("caBundle"));
}

/// Moves `stringData` into `data`, as the API server does. It rejects other values than strings.
fn encode_string_data(secret: &mut Value) {
    let Some(Value::Object(texts)) = secret.get("stringData") else { return };
    let encode = |(key, value): (&String, &Value)| -> Option<(String, Value)> {
        Some((key.clone(), BASE64_STANDARD.encode(value.as_str()?).into()))
    };
    let encoded: Option<Map<_, _>> = texts.iter().map(encode).collect();
    if let Some(encoded) = encoded
        && let Some(data) = map_mut(secret, &["data"])
    {
        data.extend(encoded);
        secret.as_object_mut().map(|secret| secret.remove("stringData"));
    }
}

fn set_port(webhook: &mut Value) {
    if let Some(port) = webhook.pointer_mut("/clientConfig/service/port").filter(|port| **port == 0) {
        *port = WEBHOOK_PORT.into();
    }
}

/// Sets the types of a policy without any as the API server does. It derives them once, and never again when the rules
/// change.
fn set_policy_types(policy: &mut Value) {
    let Some(Value::Object(spec)) = policy.get_mut("spec") else { return };
    let has = |field: &str| spec.get(field).is_some_and(|list| list != &json!([]) && !list.is_null());
    if !has("policyTypes") {
        let types = if has("egress") { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        spec.insert("policyTypes".to_owned(), types);
    }
}

fn containers_mut(object: &mut Value) -> Vec<&mut Value> {
    let Some(path) = POD_SPECS.into_iter().find(|path| object.pointer(path).is_some()) else {
        return Vec::new();
    };
    let pod = object.pointer_mut(path).and_then(Value::as_object_mut).into_iter().flatten();
    let lists = pod.filter(|(field, _)| matches!(field.as_str(), "containers" | "initContainers"));
    lists.filter_map(|(_, list)| list.as_array_mut()).flatten().collect()
}

/// Keeps the last of several variables of one name, as the kubelet does, unless that would change another variable.
fn keep_last_variables(container: &mut Value) {
    let Some(Value::Array(env)) = container.get_mut("env") else { return };
    if used_between(env).is_some() {
        return;
    }
    let names: Vec<String> = env.iter().map(|variable| text(variable, "/name").to_owned()).collect();
    let mut index = 0;
    env.retain(|_| {
        index += 1;
        !names[index..].contains(&names[index - 1])
    });
}

/// Name of a variable that occurs again, and of the variable between the two that refers to it.
fn used_between(env: &[Value]) -> Option<(&str, &str)> {
    env.iter().enumerate().find_map(|(first, variable)| {
        let name = text(variable, "/name");
        let last = env.iter().rposition(|other| text(other, "/name") == name)?;
        let user = env.get(first + 1..=last)?.iter().find(|other| refers_to(text(other, "/value"), name))?;
        Some((name, text(user, "/name")))
    })
}

/// `true` if the value contains `$(NAME)`, where `$$` is an escaped `$`.
fn refers_to(value: &str, name: &str) -> bool {
    value.replace("$$", "").contains(&format!("$({name})"))
}

/// Reason for which variables of the object cannot be applied.
pub(crate) fn ambiguous_variable(content: &Value) -> Option<String> {
    let mut object = content.clone();
    containers_mut(&mut object).into_iter().find_map(|container| {
        let (name, user) = used_between(container.get("env")?.as_array()?)?;
        Some(format!(
            "container {:?} sets variable {name} twice, and {user} after the first uses $({name}): rename one of the two",
            text(container, "/name")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(env: Value) -> Value {
        json!({"name": "m", "env": env})
    }

    fn workloads(container: &Value) -> [Value; 3] {
        let pod = json!({"containers": [container], "initContainers": [container]});
        [
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": pod}}}),
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": pod}}}}}),
            json!({"apiVersion": "v1", "kind": "Pod", "spec": pod}),
        ]
    }

    // Issue: a POST accepts duplicate variables, an apply rejects them.
    #[test]
    fn last_variable_of_a_name_is_applied() {
        let variable = |name: &str, value: &str| json!({"name": name, "value": value});
        for (env, kept) in [
            (json!([variable("A", "1"), variable("B", "2"), variable("A", "3")]), Some(vec![1, 2])),
            (json!([variable("A", "1"), variable("A", "2"), variable("A", "3")]), Some(vec![2])),
            (json!([variable("A", "1"), variable("A", "2"), variable("B", "$(A)")]), Some(vec![1, 2])),
            (json!([variable("A", "1"), variable("B", "$$(A)"), variable("A", "3")]), Some(vec![1, 2])),
            (json!([variable("A", "1"), variable("B", "x$(A)"), variable("A", "3")]), None),
            (json!([variable("A", "1"), variable("B", "$$$(A)"), variable("A", "3")]), None),
            (json!([variable("PATH", "1"), variable("PATH", "$(PATH):/x")]), None),
            (json!([variable("A", "1"), {"name": "B", "valueFrom": {}}]), Some(vec![0, 1])),
        ] {
            let before = env.as_array().unwrap();
            let after = match &kept {
                Some(kept) => kept.iter().map(|index| before[*index].clone()).collect(),
                None => env.clone(),
            };
            for (object, expected) in
                workloads(&container(env.clone())).iter().zip(workloads(&container(after)))
            {
                assert_eq!(applied(object), expected, "{env}");
                assert_eq!(ambiguous_variable(object).is_some(), kept.is_none(), "{env}");
            }
        }
        let env = json!([variable("A", "1"), variable("B", "$(A)"), variable("A", "2")]);
        assert_eq!(
            ambiguous_variable(&workloads(&container(env))[0]).unwrap(),
            "container \"m\" sets variable A twice, and B after the first uses $(A): rename one of the two"
        );
    }

    #[test]
    fn string_data_is_applied_as_data() {
        let secret = |content: Value| {
            let mut secret = json!({"apiVersion": "v1", "kind": "Secret"});
            secret.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
            secret
        };
        for (content, expected) in [
            (json!({"stringData": {"a": "info"}}), json!({"data": {"a": "aW5mbw=="}})),
            (
                json!({"data": {"a": "eA==", "b": "eQ=="}, "stringData": {"a": "info"}}),
                json!({"data": {"a": "aW5mbw==", "b": "eQ=="}}),
            ),
            (json!({"data": null, "stringData": {"a": ""}}), json!({"data": {"a": ""}})),
            (json!({"stringData": {"a": 1}}), json!({"stringData": {"a": 1}})),
            (json!({"stringData": null}), json!({"stringData": null})),
        ] {
            assert_eq!(applied(&secret(content)), secret(expected));
        }
        let other = json!({"apiVersion": "acme.example/v1", "kind": "Secret", "stringData": {"a": "info"}});
        assert_eq!(applied(&other), other);
    }

    #[test]
    fn rules_of_an_aggregated_role_are_not_applied() {
        let role = |aggregation: Value| {
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [],
                "aggregationRule": aggregation})
        };
        assert_eq!(applied(&role(json!({}))).get("rules"), None);
        assert_eq!(applied(&role(json!(null)))["rules"], json!([]));
    }

    #[test]
    fn policy_without_types_is_applied_with_those_of_its_rules() {
        let policy = |spec: Value| json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": spec});
        for (spec, expected) in [
            (json!({}), json!({"policyTypes": ["Ingress"]})),
            (json!({"policyTypes": [], "egress": []}), json!({"policyTypes": ["Ingress"], "egress": []})),
            (json!({"egress": [{}]}), json!({"policyTypes": ["Ingress", "Egress"], "egress": [{}]})),
            (json!({"policyTypes": ["Egress"]}), json!({"policyTypes": ["Egress"]})),
            (json!({"policyTypes": "Egress"}), json!({"policyTypes": "Egress"})),
        ] {
            assert_eq!(applied(&policy(spec)), policy(expected));
        }
    }

    // The API server refuses to return from a valid bundle to the placeholder `Cg==` of a conversion webhook.
    #[test]
    fn placeholder_of_an_injected_bundle_is_not_applied() {
        let bundle = json!({"caBundle": "Cg==", "path": "/"});
        let object = |annotation: &str, client: &Value| {
            json!({"kind": "K", "metadata": {"annotations": {annotation: "ns/c"}}, "webhooks": [{"clientConfig": client}],
                "spec": {"conversion": {"webhook": {"clientConfig": client}}, "caBundle": client.get("caBundle")}})
        };
        let mut expected = object("cert-manager.io/inject-ca-from", &json!({"path": "/"}));
        expected["spec"].as_object_mut().unwrap().remove("caBundle");
        assert_eq!(applied(&object("cert-manager.io/inject-ca-from", &bundle)), expected);
        let own = object("example.com/other", &bundle);
        assert_eq!(applied(&own), own);
    }

    // docs/design/bundles.md#webhook-services
    #[test]
    fn webhook_without_port_is_applied_with_443() {
        let client = |port: u16| json!({"clientConfig": {"service": {"name": "s", "port": port}}});
        let hooks = |port| {
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                "webhooks": [client(port), {"clientConfig": {"url": "https://a"}}, client(8443)]})
        };
        assert_eq!(applied(&hooks(0)), hooks(443));
        let crd = |port| {
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "spec": {"conversion": {"webhook": client(port)}}})
        };
        assert_eq!(applied(&crd(0)), crd(443));
        assert_eq!(applied(&crd(8443)), crd(8443));
    }
}
