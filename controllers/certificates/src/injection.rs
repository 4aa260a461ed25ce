//! The CA bundle in webhook configurations, CRDs and APIServices. Pure: patches are computed here and sent elsewhere.
//!
//! We own only `caBundle`. The engine applies its objects without that field, so our value is retained. But an object
//! whose webhook is removed would keep a lone `caBundle`, which the API server rejects. Before that, ownership of our
//! fields is transferred to the engine, whose next apply drops them together with its own.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use olm_api::labels;
use olm_api::names::WEBHOOK_CERTIFICATES_MANAGER;
use olm_bundle::{BUILTIN_CA_ANNOTATION, Injection, InjectionKind};
use olm_revision::fields::conflicts;
use serde_json::{Value, json};

/// Returns the server-side apply that sets `bundle` on the live object, or `None` if there is nothing to do. An
/// object without our annotation, such as a foreign one of the same name, is skipped.
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
        // With the UID, an apply cannot create an object that is just being deleted.
        "metadata": {"name": injection.name, "uid": metadata["uid"]},
    });
    match injection.kind {
        InjectionKind::Crd => {
            let conversion = &live["spec"]["conversion"];
            let converting = &conversion["webhook"]["clientConfig"];
            if conversion["strategy"] != "Webhook" || !calls(converting) || carries(converting) {
                return None;
            }
            patch["apiVersion"] = json!("apiextensions.k8s.io/v1");
            patch["spec"] = json!({"conversion": {"webhook": {"clientConfig": client}}});
        }
        InjectionKind::ApiService => {
            if !calls(&live["spec"]) || carries(&live["spec"]) {
                return None;
            }
            patch["apiVersion"] = json!("apiregistration.k8s.io/v1");
            patch["spec"] = client;
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

/// Bundles of `patch` that other clients have changed on the live object, by field manager.
pub(super) fn changed(live: &Value, patch: &Value) -> BTreeMap<String, Vec<String>> {
    let mut changed = conflicts(patch, live);
    changed.remove(WEBHOOK_CERTIFICATES_MANAGER);
    if changed.is_empty() {
        changed.insert(String::new(), vec![".caBundle".to_owned()]);
    }
    changed
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

    fn crd() -> Value {
        let conversion = json!({"strategy": "Webhook", "webhook": {"clientConfig": client("d-service")}});
        json!({"metadata": metadata(), "spec": {"conversion": conversion}})
    }

    const BUNDLE: &[u8] = b"bundle";

    #[test]
    fn bundle_is_applied_alone_and_only_if_it_differs() {
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

        let mut live = crd();
        let expected = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "x", "uid": "u"},
            "spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": encoded}}}},
        });
        assert_eq!(apply(&live, InjectionKind::Crd), Some(expected));
        live["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = json!(encoded);
        assert_eq!(apply(&live, InjectionKind::Crd), None);

        let mut live = json!({"metadata": metadata(), "spec": client("d-service")});
        let expected = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "x", "uid": "u"}, "spec": {"caBundle": encoded},
        });
        assert_eq!(apply(&live, InjectionKind::ApiService), Some(expected));
        live["spec"]["caBundle"] = json!(encoded);
        assert_eq!(apply(&live, InjectionKind::ApiService), None);
        live["spec"] = client("e-service");
        assert_eq!(apply(&live, InjectionKind::ApiService), None);
    }

    #[test]
    fn object_without_matching_annotation_is_skipped() {
        let rows: [(&str, Value); 5] = [
            ("/metadata/labels", json!({labels::OWNER_NAME: "another"})),
            ("/metadata/labels", json!(null)),
            ("/metadata/annotations", json!({"cert-manager.io/inject-ca-from": "ns/d-service-cert"})),
            ("/spec/conversion/strategy", json!("None")),
            ("/spec/conversion/webhook/clientConfig", client("e-service")),
        ];
        for (path, value) in rows {
            let mut live = crd();
            *live.pointer_mut(path).unwrap() = value;
            let patch = injected(&live, &injection(InjectionKind::Crd), "demo", BUNDLE);
            assert_eq!(patch, None, "{path}");
        }
        let mut live = configuration();
        live["webhooks"] = json!(null);
        assert_eq!(injected(&live, &injection(InjectionKind::Mutating), "demo", BUNDLE), None);
    }
}
