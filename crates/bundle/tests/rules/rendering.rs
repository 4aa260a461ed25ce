//! Rules for generated objects (docs/design/bundles.md#generated-objects, docs/design/bundles.md#normal-form).

use olm_bundle::Certificates;
use serde_json::{Value, json};

use crate::fixture::Fixture;

const PERMISSIONS: &str = "
installModes:
- {type: AllNamespaces, supported: true}
- {type: SingleNamespace, supported: true}
install:
  spec:
    permissions:
    - {serviceAccountName: zed, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}
    - {serviceAccountName: '', rules: [{apiGroups: [''], resources: [events], verbs: [create]}]}
    clusterPermissions:
    - {serviceAccountName: abe, rules: [{nonResourceURLs: [/metrics], verbs: [get]}]}
    deployments:
    - {name: d, spec: {template: {spec: {serviceAccountName: only-here}}}}
";

fn names(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect()
}

#[test]
fn permissions_become_cluster_roles_for_all_namespaces() {
    // Cases bundles-37, bundles-39, bundles-40
    let bundle = Fixture::new(PERMISSIONS);
    assert_eq!(names(&bundle.rendered("ServiceAccount")), ["abe", "zed"]);
    assert!(bundle.rendered("Role").is_empty() && bundle.rendered("RoleBinding").is_empty());
    let roles = bundle.rendered("ClusterRole");
    let namespaces =
        json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]});
    assert_eq!(roles[0]["rules"], json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]));
    assert_eq!(roles[1]["rules"][1], namespaces);
    assert_eq!(roles[2]["rules"][1], namespaces);
    let bindings = bundle.rendered("ClusterRoleBinding");
    let subject = json!([{"kind": "ServiceAccount", "name": "default", "namespace": "install-ns"}]);
    assert_eq!(bindings[2]["subjects"], subject);
    assert_eq!(bindings[2]["metadata"]["name"], roles[2]["metadata"]["name"]);
}

#[test]
fn roles_are_created_in_the_watched_namespace() {
    // Cases bundles-36, bundles-38
    let shipped = "{kind: Role, apiVersion: rbac.authorization.k8s.io/v1, metadata: {name: shipped}}";
    let all = Fixture::new(PERMISSIONS);
    let one = all.clone().file("manifests/role.yaml", shipped).config(json!({"watchNamespace": "watched"}));
    let roles = one.rendered("Role");
    let places: Vec<&Value> = roles.iter().map(|role| &role["metadata"]["namespace"]).collect();
    assert_eq!(places, ["watched", "watched", "install-ns"]);
    assert_eq!(one.rendered("RoleBinding")[0]["subjects"][0]["namespace"], "install-ns");
    assert_eq!(one.rendered("ClusterRole").len(), 1);
    assert_ne!(roles[0]["metadata"]["name"], all.rendered("ClusterRole")[1]["metadata"]["name"]);
}

#[test]
fn absent_and_empty_rules_are_distinguished() {
    let spec = "
install: {spec: {deployments: [], clusterPermissions: [{serviceAccountName: a}, {serviceAccountName: a, rules: []}]}}
";
    let roles = Fixture::new(spec).rendered("ClusterRole");
    assert_eq!(roles[0]["rules"], json!(null));
    assert_eq!(roles[1]["rules"], json!([]));
}

#[test]
fn pod_template_has_csv_annotations_and_target_namespaces() {
    // Cases bundles-10, bundles-41, bundles-42, bundles-43, bundles-44
    let spec = "
install:
  spec:
    deployments:
    - name: d
      label: {tier: t}
      spec:
        revisionHistoryLimit: 7
        template:
          metadata: {name: kept, annotations: {both: template, olm.targetNamespaces: authored}}
          spec: {containers: [{name: c}]}
";
    let properties = r#"[ {"type":"a"} ]"#;
    let bundle = Fixture::new(spec).csv(|csv| {
        csv["metadata"]["annotations"] = json!({"both": "csv", "only": "csv", "olm.properties": properties});
    });
    let expected = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "install-ns", "labels": {"tier": "t"}},
        "spec": {
            "revisionHistoryLimit": 1,
            "selector": null,
            "strategy": {},
            "template": {
                "metadata": {"name": "kept", "annotations": {
                    "both": "template", "only": "csv", "olm.properties": properties,
                    "olm.targetNamespaces": "", "olm.operatorNamespace": "install-ns",
                }},
                "spec": {"containers": [{"name": "c", "resources": {}}]},
            },
        },
    });
    assert_eq!(bundle.rendered("Deployment"), [expected]);
}

#[test]
fn shipped_objects_are_copied_in_normal_form() {
    // Cases bundles-45, bundles-46
    let object = "
kind: ConfigMap
apiVersion: v1
metadata: {name: c, namespace: x, creationTimestamp: null, finalizers: [f]}
data: {a: '{{ .Values.a }}'}
status: {gone: true}
";
    let expected = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "install-ns", "finalizers": ["f"]},
        "data": {"a": "{{ .Values.a }}"},
    });
    assert_eq!(Fixture::new("").file("manifests/a.yaml", object).render().unwrap(), [expected]);
    let whole = r#"{"kind":"ConfigMap","metadata":{"name":"c"},"data":{"n":1.0,"m":1.5}}"#;
    let objects = Fixture::new("").file("manifests/a.json", whole).render().unwrap();
    assert_eq!(objects[0]["data"], json!({"n": 1, "m": 1.5}));
}

const WEBHOOKS: &str = "
customresourcedefinitions: {owned: [{name: a.x}]}
install:
  spec:
    deployments:
    - {name: plain, spec: {template: {spec: {containers: [{name: c}]}}}}
    - {name: serving.d, spec: {selector: {matchLabels: {app: s}}, template: {spec: {containers: [{name: c}]}}}}
webhookdefinitions:
- {type: ValidatingAdmissionWebhook, generateName: v.x.y, deploymentName: serving.d, containerPort: 8443, targetPort: 9443}
- {type: MutatingAdmissionWebhook, generateName: m.x.y, deploymentName: serving.d, containerPort: 443, targetPort: web,
   reinvocationPolicy: Never, sideEffects: None, admissionReviewVersions: [v1]}
- {type: MutatingAdmissionWebhook, generateName: n.x.y, deploymentName: serving.d, containerPort: 443, targetPort: web}
- {type: ConversionWebhook, generateName: c.x.y, deploymentName: serving.d, conversionCRDs: [a.x],
   admissionReviewVersions: [v1]}
";

fn serving() -> Fixture {
    let crds = "
kind: CustomResourceDefinition
apiVersion: apiextensions.k8s.io/v1
metadata: {name: a.x, annotations: {cert-manager.io/inject-ca-from: authored}}
spec: {conversion: {strategy: None}}
---
kind: CustomResourceDefinition
apiVersion: apiextensions.k8s.io/v1
metadata: {name: b.x, annotations: {cert-manager.io/inject-ca-from: authored}}
spec: {conversion: {strategy: None}}
";
    Fixture::new(WEBHOOKS).file("manifests/crds.yaml", crds)
}

#[test]
fn only_webhook_deployments_mount_certificates() {
    // Case bundles-48
    let deployments = serving().rendered("Deployment");
    let pod = |index: usize| &deployments[index]["spec"]["template"]["spec"];
    assert_eq!(pod(0), &json!({"containers": [{"name": "c", "resources": {}}]}));
    assert_eq!(pod(1)["volumes"].as_array().unwrap().len(), 2);
    assert_eq!(pod(1)["containers"][0]["volumeMounts"].as_array().unwrap().len(), 2);
}

#[test]
fn services_have_distinct_sorted_ports() {
    // Cases bundles-49, bundles-53: port 443 of the Service is that of the reference.
    let services = serving().rendered("Service");
    assert_eq!(names(&services), ["serving-d-service"]);
    let expected = json!({
        "selector": {"app": "s"},
        "ports": [
            {"name": "443", "port": 443, "targetPort": "web"},
            {"name": "443", "port": 443, "targetPort": 443},
            {"name": "8443", "port": 8443, "targetPort": 9443},
        ],
    });
    assert_eq!(services[0]["spec"], expected);
}

#[test]
fn certificate_providers_annotate_webhook_objects() {
    // Case bundles-50
    let marked = |bundle: &Fixture, kind| bundle.rendered(kind)[0]["metadata"]["annotations"].clone();
    let bundle = serving();
    let injected = json!({"cert-manager.io/inject-ca-from": "install-ns/serving-d-service-cert"});
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "CustomResourceDefinition"]
    {
        assert_eq!(marked(&bundle, kind), injected, "{kind}");
    }
    assert_eq!(marked(&bundle, "Service"), json!(null));
    let kinds: Vec<Value> = bundle.render().unwrap().iter().map(|object| object["kind"].clone()).collect();
    assert_eq!(kinds[kinds.len() - 3..], ["Service", "Issuer", "Certificate"]);
    let mut bundle = serving();
    bundle.certificates = Certificates::OpenshiftServiceCa;
    assert!(bundle.rendered("Issuer").is_empty() && bundle.rendered("Certificate").is_empty());
    let service = json!({"service.beta.openshift.io/serving-cert-secret-name": "serving-d-service-cert"});
    assert_eq!(marked(&bundle, "Service"), service);
    let injected = json!({"service.beta.openshift.io/inject-cabundle": "true"});
    assert_eq!(marked(&bundle, "ValidatingWebhookConfiguration"), injected);
}

#[test]
fn converted_crds_reference_the_conversion_webhook() {
    // Cases bundles-51, bundles-53: the port is that of the reference (docs/design/architecture.md#vectors-win).
    let crds = serving().rendered("CustomResourceDefinition");
    let expected = json!({
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {"service": {
                "namespace": "install-ns", "name": "serving-d-service", "path": "/", "port": 0,
            }},
            "conversionReviewVersions": ["v1"],
        },
    });
    assert_eq!(crds[0]["spec"]["conversion"], expected);
    assert_eq!(crds[1]["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(crds[1]["metadata"]["annotations"], json!({"cert-manager.io/inject-ca-from": "authored"}));
    let old = "
kind: CustomResourceDefinition
metadata: {name: a.x}
spec: {preserveUnknownFields: true}
";
    assert_eq!(
        serving().file("manifests/crds.yaml", old).render_error(),
        "custom resource definition 'a.x' must have .spec.preserveUnknownFields set to false to let API Server call \
         webhook to do the conversion"
    );
}

#[test]
fn webhooks_select_watched_namespaces_only() {
    // Case bundles-52
    let all = serving().rendered("MutatingWebhookConfiguration");
    let expected = json!({
        "name": "m.x.y", "sideEffects": "None", "admissionReviewVersions": ["v1"], "reinvocationPolicy": "Never",
        "clientConfig": {"service": {"namespace": "install-ns", "name": "serving-d-service", "port": 443}},
    });
    assert_eq!(all[0]["webhooks"], json!([expected]));
    assert_eq!(all[1]["webhooks"][0]["sideEffects"], json!(null));
    assert_eq!(all[1]["webhooks"][0]["admissionReviewVersions"], json!(null));
    let modes = json!([{"type": "SingleNamespace", "supported": true}]);
    let single = serving()
        .csv(|csv| {
            csv["spec"]["installModes"] = modes;
            csv["spec"]["webhookdefinitions"].as_array_mut().unwrap().pop();
        })
        .config(json!({"watchNamespace": "w"}))
        .rendered("ValidatingWebhookConfiguration");
    let selector = json!({
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["w"]}],
    });
    assert_eq!(single[0]["webhooks"][0]["namespaceSelector"], selector);
}

#[test]
fn repeated_rendering_yields_equal_bytes() {
    // Case bundles-57
    let bundle = serving().config(json!({"deploymentConfig": {"env": [{"name": "A"}]}}));
    let first = serde_json::to_string(&bundle.render().unwrap()).unwrap();
    for _ in 0..100 {
        assert_eq!(serde_json::to_string(&bundle.render().unwrap()).unwrap(), first);
    }
}
