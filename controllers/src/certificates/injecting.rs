//! The CA bundle in the objects that tell the API server of webhooks. Pure: patches are made here and sent elsewhere.
//!
//! We own nothing but `caBundle`. The engine applies its objects without that field, so what we set stays; but an
//! object whose webhook goes away would keep a lone `caBundle`, which the API server refuses. Before that our fields
//! are handed to the engine, whose next apply drops them together with its own.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use olm_api::labels;
use olm_api::names::{REVISION_ENGINE_MANAGER, WEBHOOK_CERTIFICATES_MANAGER};
use olm_bundle::{BUILTIN_CA_ANNOTATION, Injection, InjectionKind};
use olm_revision::managed_fields::union;
use serde_json::{Value, json};

/// The server-side apply that puts `bundle` into an object as it is now; `None` where there is nothing to do. An object
/// that is not marked for it, such as somebody else's of the same name, is left alone.
pub(super) fn injected(live: &Value, injection: &Injection, extension: &str, bundle: &[u8]) -> Option<Value> {
    let (metadata, serving) = (&live["metadata"], &injection.serving);
    let mark = format!("{}/{}", serving.namespace, serving.secret);
    if metadata["labels"][labels::OWNER_NAME] != extension
        || metadata["annotations"][BUILTIN_CA_ANNOTATION] != mark
    {
        return None;
    }
    let calls = |client: &Value| {
        client["service"]["namespace"] == serving.namespace && client["service"]["name"] == serving.service
    };
    let carries = |client: &Value| {
        let text = client["caBundle"].as_str().unwrap_or_default();
        STANDARD.decode(text).is_ok_and(|carried| carried == bundle)
    };
    let client = json!({"caBundle": STANDARD.encode(bundle)});
    let mut patch = json!({
        "kind": injection.kind.as_str(),
        // With the UID an apply never creates what is just being deleted.
        "metadata": {"name": injection.name, "uid": metadata["uid"]},
    });
    match injection.kind {
        InjectionKind::Definition => {
            let conversion = &live["spec"]["conversion"];
            let converting = &conversion["webhook"]["clientConfig"];
            if conversion["strategy"] != "Webhook" || !calls(converting) || carries(converting) {
                return None;
            }
            patch["apiVersion"] = json!("apiextensions.k8s.io/v1");
            patch["spec"] = json!({"conversion": {"webhook": {"clientConfig": client}}});
        }
        InjectionKind::Validating | InjectionKind::Mutating => {
            let webhooks = live["webhooks"].as_array().into_iter().flatten();
            let ours: Vec<&Value> = webhooks.filter(|webhook| calls(&webhook["clientConfig"])).collect();
            if ours.iter().all(|webhook| carries(&webhook["clientConfig"])) {
                return None;
            }
            let entry = |webhook: &&Value| json!({"name": webhook["name"], "clientConfig": client});
            patch["apiVersion"] = json!("admissionregistration.k8s.io/v1");
            patch["webhooks"] = ours.iter().map(entry).collect();
        }
    }
    Some(patch)
}

/// The merge patch that makes the engine owner of what we own on `live`; `None` where that is nothing.
pub(super) fn handed_over(live: &Value) -> Option<Value> {
    let metadata = &live["metadata"];
    let mut entries = metadata["managedFields"].as_array()?.clone();
    let applied_by =
        |entry: &Value, manager: &str| entry["manager"] == manager && entry["operation"] == "Apply";
    let ours = entries.iter().position(|entry| applied_by(entry, WEBHOOK_CERTIFICATES_MANAGER))?;
    let ours = entries.remove(ours);
    let is_engine = |entry: &&mut Value| {
        applied_by(entry, REVISION_ENGINE_MANAGER)
            && entry["subresource"].is_null()
            && entry["apiVersion"] == ours["apiVersion"]
    };
    // Without an engine that has applied it, the object is not ours to mend.
    let engine = entries.iter_mut().find(is_engine)?;
    union(&mut engine["fieldsV1"], &ours["fieldsV1"]);
    Some(json!({"metadata": {"resourceVersion": metadata["resourceVersion"], "managedFields": entries}}))
}

#[cfg(test)]
mod tests {
    use olm_bundle::Serving;

    use super::*;

    fn injection(kind: InjectionKind) -> Injection {
        let serving = Serving {
            namespace: "ns".to_owned(),
            service: "d-service".to_owned(),
            secret: "d-service-cert".to_owned(),
        };
        Injection { kind, name: "x".to_owned(), serving }
    }

    fn metadata() -> Value {
        json!({
            "name": "x", "uid": "u", "labels": {labels::OWNER_NAME: "demo"},
            "annotations": {BUILTIN_CA_ANNOTATION: "ns/d-service-cert"},
        })
    }

    fn client(service: &str) -> Value {
        json!({"service": {"namespace": "ns", "name": service, "path": "/x", "port": 443}})
    }

    fn configuration() -> Value {
        let webhooks = json!([
            {"name": "a", "clientConfig": client("d-service"), "sideEffects": "None"},
            {"name": "b", "clientConfig": client("e-service")},
            {"name": "c", "clientConfig": {"url": "https://example.com"}},
        ]);
        json!({"metadata": metadata(), "webhooks": webhooks})
    }

    fn definition() -> Value {
        let conversion = json!({"strategy": "Webhook", "webhook": {"clientConfig": client("d-service")}});
        json!({"metadata": metadata(), "spec": {"conversion": conversion}})
    }

    const BUNDLE: &[u8] = b"bundle";

    #[test]
    fn only_the_bundle_is_applied_and_only_where_it_differs() {
        let apply = |live: &Value, kind| injected(live, &injection(kind), "demo", BUNDLE);
        let encoded = STANDARD.encode(BUNDLE);
        let mut live = configuration();
        let expected = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "x", "uid": "u"},
            "webhooks": [{"name": "a", "clientConfig": {"caBundle": encoded}}],
        });
        assert_eq!(apply(&live, InjectionKind::Validating), Some(expected.clone()));
        live["webhooks"][0]["clientConfig"]["caBundle"] = json!("by hand");
        assert_eq!(apply(&live, InjectionKind::Validating), Some(expected));
        live["webhooks"][0]["clientConfig"]["caBundle"] = json!(encoded);
        assert_eq!(apply(&live, InjectionKind::Validating), None);

        let mut live = definition();
        let expected = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "x", "uid": "u"},
            "spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": encoded}}}},
        });
        assert_eq!(apply(&live, InjectionKind::Definition), Some(expected));
        live["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = json!(encoded);
        assert_eq!(apply(&live, InjectionKind::Definition), None);
    }

    #[test]
    fn what_is_not_marked_for_it_is_left_alone() {
        let rows: [(&str, Value); 5] = [
            ("/metadata/labels", json!({labels::OWNER_NAME: "another"})),
            ("/metadata/labels", json!(null)),
            ("/metadata/annotations", json!({"cert-manager.io/inject-ca-from": "ns/d-service-cert"})),
            ("/spec/conversion/strategy", json!("None")),
            ("/spec/conversion/webhook/clientConfig", client("e-service")),
        ];
        for (path, value) in rows {
            let mut live = definition();
            *live.pointer_mut(path).unwrap() = value;
            let patch = injected(&live, &injection(InjectionKind::Definition), "demo", BUNDLE);
            assert_eq!(patch, None, "{path}");
        }
        let mut live = configuration();
        live["webhooks"] = json!(null);
        assert_eq!(injected(&live, &injection(InjectionKind::Mutating), "demo", BUNDLE), None);
    }

    fn entry(manager: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": "Apply", "apiVersion": "g/v1", "fieldsV1": fields})
    }

    #[test]
    fn our_fields_become_those_of_the_engine() {
        let kubectl = entry("kubectl", json!({"f:metadata": {}}));
        let engine = json!({"f:spec": {"f:conversion": {"f:strategy": {}}}});
        let ours = json!({"f:spec": {"f:conversion": {"f:webhook": {"f:clientConfig": {"f:caBundle": {}}}}}});
        let object =
            |entries: Vec<Value>| json!({"metadata": {"resourceVersion": "7", "managedFields": entries}});
        let (ours, engine) =
            (entry(WEBHOOK_CERTIFICATES_MANAGER, ours), entry(REVISION_ENGINE_MANAGER, engine));
        let united = json!({"f:spec": {"f:conversion": {
            "f:strategy": {}, "f:webhook": {"f:clientConfig": {"f:caBundle": {}}}}}});
        assert_eq!(
            handed_over(&object(vec![kubectl.clone(), ours.clone(), engine.clone()])),
            Some(object(vec![kubectl.clone(), entry(REVISION_ENGINE_MANAGER, united)]))
        );
        assert_eq!(handed_over(&object(vec![kubectl.clone(), engine])), None, "nothing is ours");
        assert_eq!(handed_over(&object(vec![kubectl, ours])), None, "no engine");
        assert_eq!(handed_over(&json!({})), None);
    }
}
