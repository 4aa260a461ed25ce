//! Bundles with aggregated APIs (docs/design/bundles.md#aggregated-apis).

use olm_bundle::rights::Rights;
use olm_bundle::{Certificates, InjectionKind, SYSTEM_NAMESPACE, injections, install_checks};
use serde_json::{Value, json};

use crate::fixture::{Fixture, NAMESPACE};

const SERVED: &str = "
install: {spec: {deployments: [
  {name: sky.v1, spec: {selector: {matchLabels: {a: b}}, template: {spec: {serviceAccountName: server, containers: [{name: a}]}}}},
  {name: plain, spec: {selector: {matchLabels: {a: c}}, template: {spec: {containers: [{name: a}]}}}}]}}
apiservicedefinitions: {owned: [
  {name: stars, group: sky.example.com, version: v1, kind: Star, deploymentName: sky.v1, containerPort: 5443},
  {name: moons, group: sky.example.com, version: v1, kind: Moon, deploymentName: sky.v1, containerPort: 5443},
  {name: stars, group: sky.example.com, version: v2, kind: Star, deploymentName: sky.v1}]}
";

fn bundle(spec: &str) -> Fixture {
    let mut bundle = Fixture::new(spec);
    bundle.owned_api_services = true;
    bundle
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap()
}

fn names(objects: &[Value], kind: &str) -> Vec<String> {
    let of_kind = objects.iter().filter(|object| object["kind"] == kind);
    of_kind.map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn owned_api_services_need_gate_and_certificate_provider() {
    let mut refused = bundle(SERVED);
    refused.owned_api_services = false;
    assert_eq!(refused.render_error(), "unsupported bundle: apiServiceDefintions are not supported");
    let mut refused = bundle(SERVED);
    refused.certificates = Certificates::None;
    assert_eq!(
        refused.render_error(),
        "unsupported bundle: apiServiceDefinitions are not supported without a certificate provider"
    );
}

#[test]
fn one_api_service_is_rendered_for_each_group_and_version() {
    let objects = bundle(SERVED).render().unwrap();
    assert_eq!(names(&objects, "APIService"), ["v1.sky.example.com", "v2.sky.example.com"]);
    let expected = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {
            "name": "v1.sky.example.com",
            "annotations": {"cert-manager.io/inject-ca-from": format!("{NAMESPACE}/sky-v1-service-cert")},
        },
        "spec": {
            "group": "sky.example.com", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 15,
            "service": {"namespace": NAMESPACE, "name": "sky-v1-service", "port": 5443},
        },
    });
    assert_eq!(named(&objects, "APIService", "v1.sky.example.com"), &expected);
    let second = named(&objects, "APIService", "v2.sky.example.com");
    assert_eq!(second["spec"]["service"]["port"], 443);
    let service = named(&objects, "Service", "sky-v1-service");
    assert_eq!(
        service["spec"],
        json!({
            "selector": {"a": "b"},
            "ports": [
                {"name": "443", "port": 443, "targetPort": 443},
                {"name": "5443", "port": 5443, "targetPort": 5443},
            ],
        })
    );
    assert_eq!(names(&objects, "Service").len(), 1);
    let pod = |name: &str| named(&objects, "Deployment", name)["spec"]["template"]["spec"].clone();
    let mounts = pod("sky.v1")["containers"][0]["volumeMounts"].to_string();
    assert!(mounts.contains("\"/apiserver.local.config/certificates\""), "{mounts}");
    assert_eq!(pod("plain").get("volumes"), None);
}

#[test]
fn account_of_server_gets_delegated_authentication_and_authorization() {
    let objects = bundle(SERVED).render().unwrap();
    let subjects = json!([{"kind": "ServiceAccount", "name": "server", "namespace": NAMESPACE}]);
    let reader = named(&objects, "RoleBinding", &format!("sky-v1-service.{NAMESPACE}-auth-reader"));
    assert_eq!(reader["metadata"]["namespace"], "kube-system");
    assert_eq!(reader["roleRef"]["name"], "extension-apiserver-authentication-reader");
    let delegator =
        named(&objects, "ClusterRoleBinding", &format!("sky-v1-service.{NAMESPACE}-auth-delegator"));
    assert_eq!(delegator["roleRef"]["name"], "system:auth-delegator");
    assert_eq!((&reader["subjects"], &delegator["subjects"]), (&subjects, &subjects));
    let elsewhere = {
        let mut bundle = bundle(SERVED);
        bundle.install_namespace = "elsewhere".to_owned();
        bundle.render().unwrap()
    };
    for kind in ["RoleBinding", "ClusterRoleBinding"] {
        assert_ne!(names(&objects, kind), names(&elsewhere, kind));
    }
    let rights = serde_json::to_value(Rights::of(&objects).exact().values().collect::<Vec<_>>()).unwrap();
    for right in ["system:auth-delegator", "extension-apiserver-authentication-reader", "apiservices"] {
        assert!(rights.to_string().contains(&format!("\"{right}\"")), "{right}: {rights}");
    }
}

#[test]
fn providers_inject_into_api_services() {
    let rendered = |certificates: Certificates| {
        let mut bundle = bundle(SERVED);
        bundle.certificates = certificates;
        bundle.render().unwrap()
    };
    let objects = rendered(Certificates::Builtin);
    let found = injections(&objects.iter().collect::<Vec<_>>());
    let found: Vec<_> =
        found.iter().map(|one| (one.kind, one.name.as_str(), one.serving.secret.as_str())).collect();
    let secret = "sky-v1-service-cert";
    assert_eq!(
        found,
        [
            (InjectionKind::ApiService, "v1.sky.example.com", secret),
            (InjectionKind::ApiService, "v2.sky.example.com", secret),
        ]
    );
    let objects = rendered(Certificates::OpenshiftServiceCa);
    let annotations = &named(&objects, "APIService", "v1.sky.example.com")["metadata"]["annotations"];
    assert_eq!(annotations, &json!({"service.beta.openshift.io/inject-cabundle": "true"}));
    assert!(names(&rendered(Certificates::CertManager), "Certificate").contains(&secret.to_owned()));
}

#[test]
fn webhooks_and_aggregated_apis_of_a_deployment_share_its_service() {
    let objects = bundle(SERVED)
        .csv(|csv| {
            csv["spec"]["webhookdefinitions"] = json!([{
                "type": "ValidatingAdmissionWebhook", "generateName": "v.example.com", "deploymentName": "sky.v1",
                "containerPort": 8443, "targetPort": 9443, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            }]);
        })
        .render()
        .unwrap();
    assert_eq!(names(&objects, "Service"), ["sky-v1-service"]);
    let ports = &named(&objects, "Service", "sky-v1-service")["spec"]["ports"];
    let ports: Vec<_> =
        ports.as_array().unwrap().iter().map(|port| (&port["port"], &port["targetPort"])).collect();
    assert_eq!(json!(ports), json!([[443, 443], [5443, 5443], [8443, 9443]]));
}

#[test]
fn invalid_api_services_are_reported_together() {
    let refused = bundle(SERVED).csv(|csv| {
        csv["spec"]["apiservicedefinitions"]["owned"] = json!([
            {"name": "a", "group": "sky.example.com", "version": "v1", "kind": "A", "deploymentName": "sky.v1"},
            {"name": "b", "group": "sky.example.com", "version": "v1", "kind": "B", "deploymentName": "plain"},
            {"name": "c", "group": "apps", "version": "v1", "kind": "C", "deploymentName": "plain"},
            {"name": "d", "group": "d.example.com", "version": "V_1", "kind": "D", "deploymentName": "plain"},
            {"name": "e", "group": "e.example.com", "version": "v1", "kind": "E", "deploymentName": "gone"},
        ]);
    });
    assert_eq!(
        refused.render_error().lines().collect::<Vec<_>>(),
        [
            "APIService 'V_1.d.example.com' has invalid version \"V_1\": expected a DNS label such as v1",
            "APIService 'v1.apps' has invalid group \"apps\": expected a domain with at least one dot",
            "APIService 'v1.e.example.com' references non-existent deployment 'gone'",
            "APIService 'v1.sky.example.com' has several servers [plain:443,sky.v1:443]",
        ]
    );
}

#[test]
fn groups_served_by_others_fail_install_checks() {
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "suns.sky.example.com"},
        "spec": {"group": "sky.example.com", "names": {"plural": "suns"},
            "versions": [{"name": "v1", "served": true}, {"name": "v2", "served": false}]},
    });
    let owned = |group: &str| json!({"name": "a", "group": group, "version": "v1", "kind": "A", "deploymentName": "plain"});
    let checked = bundle(SERVED).file("manifests/crd.yaml", &crd.to_string()).csv(|csv| {
        let all = csv["spec"]["apiservicedefinitions"]["owned"].as_array_mut().unwrap();
        all.extend(["storage.k8s.io", "metrics.k8s.io", "olm.operatorframework.io"].map(owned));
    });
    let objects = checked.render().unwrap();
    assert_eq!(
        install_checks(&checked.load().unwrap(), &objects, NAMESPACE, SYSTEM_NAMESPACE),
        [
            "APIService \"v1.olm.operatorframework.io\" belongs to OLM itself: choose another name",
            "APIService \"v1.sky.example.com\": CustomResourceDefinition \"suns.sky.example.com\" serves the same group \
             and version: serve the kinds by one of them, or in different versions",
            "APIService \"v1.storage.k8s.io\" belongs to the cluster: choose another name",
        ]
    );
}
