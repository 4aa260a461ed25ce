//! Output of the certificate providers for webhooks (docs/design/bundles.md#webhook-certificates).

use olm_bundle::{Certificates, Injection, InjectionKind, Serving, injections, issued_by_others};
use serde_json::{Value, json};

use crate::fixture::{Fixture, NAMESPACE};

const SERVED: &str = "
customresourcedefinitions: {owned: [{name: widgets.example.com, version: v1, kind: Widget}]}
install: {spec: {deployments: [
  {name: hooks.v1, spec: {selector: {matchLabels: {a: b}}, template: {spec: {
    initContainers: [{name: i}],
    containers: [{name: a, volumeMounts: [{name: own, mountPath: /tmp/k8s-webhook-server/serving-certs}]}, {name: b}],
    volumes: [{name: own, emptyDir: {}}]}}}},
  {name: plain, spec: {selector: {matchLabels: {a: c}}, template: {spec: {containers: [{name: a}]}}}}]}}
webhookdefinitions:
- {type: ValidatingAdmissionWebhook, generateName: v.example.com, deploymentName: hooks.v1, containerPort: 443}
- {type: MutatingAdmissionWebhook, generateName: m.example.com, deploymentName: hooks.v1, containerPort: 443}
- {type: ConversionWebhook, generateName: c.example.com, deploymentName: hooks.v1, containerPort: 443, conversionCRDs: [widgets.example.com]}
";

const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions: [{name: v1, served: true, storage: true}]
";

fn rendered(certificates: Certificates) -> Vec<Value> {
    let mut bundle = Fixture::new(SERVED).file("manifests/crd.yaml", CRD);
    bundle.certificates = certificates;
    bundle.render().unwrap()
}

/// Objects without the annotations of any provider, and without the objects of cert-manager.
fn unmarked(mut objects: Vec<Value>) -> Vec<Value> {
    objects.retain(|object| object["apiVersion"] != "cert-manager.io/v1");
    for object in &mut objects {
        if let Some(metadata) = object["metadata"].as_object_mut()
            && let Some(Value::Object(mut annotations)) = metadata.remove("annotations")
        {
            annotations.retain(|key, _| !key.contains("inject-ca") && !key.contains("serving-cert"));
            if !annotations.is_empty() {
                metadata.insert("annotations".to_owned(), annotations.into());
            }
        }
    }
    objects
}

#[test]
fn certificate_providers_add_annotations_and_own_objects_only() {
    // Case bundles-50, and the built-in provider
    let builtin = rendered(Certificates::Builtin);
    let expected = unmarked(builtin.clone());
    for other in [Certificates::CertManager, Certificates::OpenshiftServiceCa] {
        assert_eq!(unmarked(rendered(other)), expected, "{other:?}");
    }
    let marked: Vec<(&str, &Value)> = builtin
        .iter()
        .filter_map(|object| {
            let mark = &object["metadata"]["annotations"]["ext.olm.operatorframework.io/inject-ca-from"];
            Some((object["kind"].as_str()?, mark)).filter(|_| !mark.is_null())
        })
        .collect();
    let mark = json!(format!("{NAMESPACE}/hooks-v1-service-cert"));
    let kinds =
        ["CustomResourceDefinition", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];
    let mut found: Vec<&str> = marked.iter().map(|(kind, _)| *kind).collect();
    found.sort_unstable();
    let mut expected = kinds.to_vec();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert!(marked.iter().all(|(_, found)| **found == mark));
}

#[test]
fn all_providers_mount_certificates_into_webhook_deployments() {
    // Cases bundles-47, bundles-48, and the built-in provider
    for provider in [Certificates::Builtin, Certificates::CertManager, Certificates::OpenshiftServiceCa] {
        let objects = rendered(provider);
        let pod = |name: &str| {
            let is = |object: &&Value| object["kind"] == "Deployment" && object["metadata"]["name"] == name;
            objects.iter().find(is).unwrap().pointer("/spec/template/spec").unwrap().clone()
        };
        let volume = |name: &str, certificate: &str, key: &str| {
            let items = json!([{"key": "tls.crt", "path": certificate}, {"key": "tls.key", "path": key}]);
            json!({"name": name, "secret": {"secretName": "hooks-v1-service-cert", "items": items}})
        };
        let mounts = json!([
            {"name": "webhook-cert", "mountPath": "/tmp/k8s-webhook-server/serving-certs"},
            {"name": "apiservice-cert", "mountPath": "/apiserver.local.config/certificates"},
        ]);
        let hooks = pod("hooks.v1");
        assert_eq!(
            hooks["volumes"],
            json!([
                volume("webhook-cert", "tls.crt", "tls.key"),
                volume("apiservice-cert", "apiserver.crt", "apiserver.key"),
            ]),
            "{provider:?}"
        );
        for container in hooks["containers"].as_array().unwrap() {
            assert_eq!(container["volumeMounts"], mounts, "{provider:?}");
        }
        assert_eq!(hooks["initContainers"][0].get("volumeMounts"), None);
        let plain = pod("plain");
        assert_eq!(plain.get("volumes"), None, "{provider:?}");
        assert_eq!(plain["containers"][0].get("volumeMounts"), None, "{provider:?}");
    }
}

#[test]
fn injections_are_read_from_rendered_objects() {
    let serving = Serving {
        namespace: NAMESPACE.to_owned(),
        service: "hooks-v1-service".to_owned(),
        secret: "hooks-v1-service-cert".to_owned(),
    };
    let rows = [
        (InjectionKind::Validating, "v.example.com"),
        (InjectionKind::Mutating, "m.example.com"),
        (InjectionKind::Crd, "widgets.example.com"),
    ];
    let injection = |(kind, name): (InjectionKind, &str)| Injection {
        kind,
        name: name.to_owned(),
        serving: serving.clone(),
    };
    let objects = rendered(Certificates::Builtin);
    let objects: Vec<&Value> = objects.iter().collect();
    assert_eq!(injections(&objects), rows.map(injection));
    assert!(issued_by_others(&objects).is_empty());
    for other in [Certificates::CertManager, Certificates::OpenshiftServiceCa] {
        let objects = rendered(other);
        let objects: Vec<&Value> = objects.iter().collect();
        assert!(injections(&objects).is_empty(), "{other:?}");
        let issued = [(NAMESPACE.to_owned(), "hooks-v1-service-cert".to_owned())];
        assert_eq!(issued_by_others(&objects), issued.into(), "{other:?}");
    }
}
