//! Install checks of rendered objects (docs/design/bundles.md#author-checks).

use olm_bundle::{SYSTEM_NAMESPACE, install_checks};
use serde_json::{Value, json};

use crate::fixture::{Fixture, NAMESPACE};

const WEBHOOK: &str = "
install: {spec: {deployments: [{name: d, spec: {selector: {matchLabels: {a: b}}}}]}}
webhookdefinitions: []
";

fn found_in(bundle: &Fixture, install_namespace: &str) -> Vec<String> {
    let mut bundle = bundle.clone();
    bundle.install_namespace = install_namespace.into();
    let objects = bundle.render().unwrap();
    let found = install_checks(&bundle.load().unwrap(), &objects, install_namespace, SYSTEM_NAMESPACE);
    for text in &found {
        assert!(!text.contains('\n'), "{text}");
    }
    found
}

pub(crate) fn found(bundle: &Fixture) -> Vec<String> {
    found_in(bundle, NAMESPACE)
}

pub(crate) fn manifest(object: &Value) -> Fixture {
    Fixture::new("").file("manifests/a.yaml", &object.to_string())
}

/// Valid validating webhook of deployment `d`, with these fields changed.
fn webhook(changes: Value) -> Value {
    let mut webhook = json!({
        "type": "ValidatingAdmissionWebhook",
        "generateName": "check.widgets.example.com",
        "deploymentName": "d",
        "containerPort": 443,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    });
    let changes = changes.as_object().unwrap().clone();
    webhook.as_object_mut().unwrap().extend(changes);
    webhook
}

pub(crate) fn webhooks(changes: &[Value]) -> Fixture {
    let webhooks: Vec<Value> = changes.iter().cloned().map(webhook).collect();
    Fixture::new(WEBHOOK).csv(|csv| csv["spec"]["webhookdefinitions"] = json!(webhooks))
}

fn crd(group: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {"group": group, "names": {"plural": "widgets"}},
    })
}

#[test]
fn valid_bundle_passes_install_checks() {
    let reference = "{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: s}}";
    let sound =
        webhooks(&[json!({"webhookPath": "/a/b-c/"}), json!({"generateName": "b.c.d", "targetPort": 443})])
            .file("manifests/service.yaml", reference)
            .file("manifests/crd.yaml", &crd("example.com").to_string());
    assert_eq!(found(&sound), [""; 0]);
}

#[test]
fn second_cluster_service_version_fails_install_check() {
    // Case bundles-2
    let second = "{kind: ClusterServiceVersion, metadata: {name: op.v2}, spec: {installModes: [{type: AllNamespaces, \
                  supported: true}]}}";
    let bundle = Fixture::new("").file("manifests/d.yaml", second);
    assert_eq!(
        found(&bundle),
        [
            "bundle has 2 ClusterServiceVersions, in \"manifests/csv.yaml\", \"manifests/d.yaml\": exactly one is \
             allowed"
        ]
    );
}

#[test]
fn unserved_api_versions_fail_install_check() {
    let rows = [
        (
            "apiextensions.k8s.io/v1beta1",
            "CustomResourceDefinition",
            "is \"apiextensions.k8s.io/v1beta1\", it must be apiextensions.k8s.io/v1",
        ),
        (
            "example.com/v1",
            "CustomResourceDefinition",
            "is \"example.com/v1\", it must be apiextensions.k8s.io/v1",
        ),
        ("v1", "Role", "is \"v1\", it must be rbac.authorization.k8s.io/v1"),
        ("policy/v1beta1", "PodDisruptionBudget", "is \"policy/v1beta1\", it must be policy/v1"),
        ("v1", "PrometheusRule", "\"v1\" has no such kind"),
        ("", "ConfigMap", "is missing"),
    ];
    for (version, kind, text) in rows {
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": {}});
        assert_eq!(found(&manifest(&object)), [format!("{kind} \"x\": apiVersion {text}")]);
    }
    assert_eq!(
        found(&manifest(
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}})
        )),
        ["a ConfigMap has no metadata.name: every object of a bundle needs one"]
    );
}

#[test]
fn invalid_names_fail_install_check() {
    let account = "install: {spec: {permissions: [{serviceAccountName: My_Account, rules: []}]}}";
    let texts = found(&Fixture::new(account));
    assert_eq!(texts.len(), 1);
    assert!(
        texts[0]
            .starts_with("ServiceAccount \"My_Account\": metadata.name: a lowercase RFC 1123 subdomain must"),
        "{texts:?}"
    );
    let named = |version: &str, kind: &str, name: &str| {
        found(&manifest(&json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}})))
    };
    assert_eq!(
        named("rbac.authorization.k8s.io/v1", "ClusterRole", "a/b"),
        ["ClusterRole \"a/b\": metadata.name must not be . or .. or contain / or %"]
    );
    assert_eq!(named("rbac.authorization.k8s.io/v1", "ClusterRole", "A_b:c"), [""; 0]);
    assert_eq!(
        named("v1", "Service", "a.b"),
        [
            "Service \"a.b\": metadata.name may only have lower case letters, digits and '-', the latter not at its ends"
        ]
    );
    let mut misnamed = crd("example.com");
    misnamed["metadata"]["name"] = json!("other.example.com");
    assert_eq!(
        found(&manifest(&misnamed)),
        ["CustomResourceDefinition \"other.example.com\": metadata.name must be \"widgets.example.com\", \
          spec.names.plural and spec.group"]
    );
}

/// Deployments with these names, each with a webhook and a selector of its own.
fn serving(names: &[&str]) -> Fixture {
    let deployments: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "spec": {"selector": {"matchLabels": {"app": name}}}}))
        .collect();
    let webhooks: Vec<Value> = (0..names.len())
        .map(|index| {
            webhook(json!({"deploymentName": names[index], "generateName": format!("w{index}.x.y")}))
        })
        .collect();
    Fixture::new("").csv(|csv| {
        csv["spec"]["install"] = json!({"spec": {"deployments": deployments}});
        csv["spec"]["webhookdefinitions"] = json!(webhooks);
    })
}

#[test]
fn truncated_service_names_too_long_or_equal_fail_install_check() {
    // docs/design/bundles.md#author-checks
    let name = "w".repeat(56);
    let mut bundle = serving(&[&name]);
    bundle.install_namespace = "n".into();
    bundle.certificates = olm_bundle::Certificates::OpenshiftServiceCa;
    assert_eq!(
        found(&bundle),
        [format!(
            "Service \"{name}-service\": metadata.name has 64 characters, at most 63 are allowed: shorten the name of \
             deployment \"{name}\""
        )]
    );
    let (short, long) = ("w".repeat(55), "w".repeat(57));
    let mut bundle = serving(&[&short, &long]);
    bundle.certificates = olm_bundle::Certificates::OpenshiftServiceCa;
    assert_eq!(
        found(&bundle),
        [format!(
            "Service \"{short}-service\" is needed for the webhooks of deployment \"{short}\" and for those of \
             \"{long}\": their names are truncated to the same text: shorten one of them"
        )]
    );
}

#[test]
fn certificate_common_name_above_64_bytes_fails_install_check() {
    let name = "d".repeat(45);
    assert_eq!(found(&serving(&[&name])), [""; 0]);
    let name = "d".repeat(46);
    assert_eq!(
        found(&serving(&[&name])),
        [format!(
            "Certificate \"{name}-service-cert\": spec.commonName \"{name}-service.install-ns\" has 65 characters, at \
             most 64 are allowed: choose a shorter install namespace or another certificate provider"
        )]
    );
}

#[test]
fn invalid_webhook_fields_fail_install_check() {
    // docs/design/bundles.md#author-checks; case bundles-53: rendered as in the reference, reported before apply.
    let of = "ValidatingWebhookConfiguration \"check.widgets.example.com\": webhooks.0";
    let rows = [
        // It is applied with port 443 (docs/design/apply.md#owners-of-fields).
        (json!({"containerPort": 0}), vec![]),
        (
            json!({"containerPort": -1}),
            vec![format!(
                "{of}.clientConfig.service.port is -1, allowed: 1 to 65535: set containerPort of the webhook \
                 definition"
            )],
        ),
        (
            json!({"sideEffects": null, "admissionReviewVersions": ["v2"]}),
            vec![
                format!("{of}.admissionReviewVersions has neither v1 nor v1beta1"),
                format!("{of}.sideEffects is missing, allowed: None and NoneOnDryRun"),
            ],
        ),
        (
            json!({"failurePolicy": "fail", "sideEffects": "Some", "timeoutSeconds": 60}),
            vec![
                format!("{of}.failurePolicy is \"fail\", allowed: Fail and Ignore"),
                format!("{of}.sideEffects is \"Some\", allowed: None and NoneOnDryRun"),
                format!("{of}.timeoutSeconds is 60, allowed: 1 to 30"),
            ],
        ),
        (
            json!({"webhookPath": "check"}),
            vec![format!(
                "{of}.clientConfig.service.path is \"check\", it must start with / and each part may have only lower \
                 case letters, digits, '-' and '.': change webhookPath of the webhook definition"
            )],
        ),
        (
            json!({"generateName": "nodots"}),
            vec![
                "ValidatingWebhookConfiguration \"nodots\": webhooks.0.name needs at least three parts with dots between \
                 them, as in check.widgets.example.com: change generateName of the webhook definition"
                    .into(),
            ],
        ),
    ];
    for (changes, expected) in rows {
        assert_eq!(found(&webhooks(std::slice::from_ref(&changes))), expected, "{changes}");
    }
}

#[test]
fn invalid_conversion_webhook_fails_install_check() {
    let conversion = json!({
        "type": "ConversionWebhook", "conversionCRDs": ["widgets.example.com"], "containerPort": -1,
        "admissionReviewVersions": [],
    });
    let bundle = webhooks(&[conversion])
        .csv(|csv| {
            csv["spec"]["customresourcedefinitions"] = json!({"owned": [{"name": "widgets.example.com"}]})
        })
        .file("manifests/crd.yaml", &crd("example.com").to_string());
    let of = "CustomResourceDefinition \"widgets.example.com\": spec.conversion.webhook";
    assert_eq!(
        found(&bundle),
        [
            format!(
                "{of}.clientConfig.service.port is -1, allowed: 1 to 65535: set containerPort of the webhook \
                 definition"
            ),
            format!("{of}.conversionReviewVersions has neither v1 nor v1beta1"),
        ]
    );
}

#[test]
fn duplicate_service_ports_fail_install_check() {
    // docs/design/bundles.md#author-checks
    let twice = webhooks(&[json!({"targetPort": 1}), json!({"generateName": "b.c.d", "targetPort": 2})]);
    assert_eq!(
        found(&twice),
        [
            "Service \"d-service\": spec.ports has port 443 (TCP) twice: webhooks of one deployment and containerPort \
             need the same targetPort"
        ]
    );
    let mut with_api = webhooks(&[json!({"containerPort": 5443, "targetPort": 9443})]).csv(|csv| {
        csv["spec"]["apiservicedefinitions"] = json!({"owned": [{"name": "skies", "group": "sky.example.com",
            "version": "v1", "kind": "Sky", "deploymentName": "d", "containerPort": 5443}]});
    });
    with_api.owned_api_services = true;
    assert_eq!(
        found(&with_api),
        [
            "Service \"d-service\": spec.ports has port 5443 (TCP) twice: APIService \"v1.sky.example.com\" uses it, \
             so webhooks need targetPort 5443"
        ]
    );
    let service = |ports: Value| {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": ports}});
        found(&manifest(&service))
    };
    assert_eq!(
        service(
            json!([{"port": 53}, {"port": 53, "protocol": "UDP", "name": "a"}, {"port": 70000, "name": "a"}])
        ),
        [
            "Service \"s\": port 70000 of spec.ports is not between 1 and 65535",
            "Service \"s\": spec.ports has the name \"a\" twice",
        ]
    );
}

#[test]
fn same_object_with_different_content_fails_install_check() {
    // docs/design/bundles.md#author-checks
    let permissions = "
install: {spec: {permissions: [{serviceAccountName: a, rules: []}, {serviceAccountName: a, rules: []}]}}
";
    assert_eq!(found(&Fixture::new(permissions)), [""; 0]);
    let shipped = |labels: Value| {
        let metadata = json!({"name": "a", "namespace": "x", "labels": labels});
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}).to_string()
    };
    let bundle = Fixture::new(permissions).file("manifests/a.yaml", &shipped(json!({"l": "1"})));
    assert_eq!(
        found(&bundle),
        [
            "ServiceAccount \"a\" occurs 2 times with different content (metadata.labels), in the manifests and in the \
             objects generated from the ClusterServiceVersion: keep one of them"
        ]
    );
    let bundle = Fixture::new("")
        .file("manifests/a.yaml", &shipped(json!({"l": "1"})))
        .file("manifests/b.yaml", &shipped(json!({"l": "1"})))
        .file("manifests/c.yaml", &shipped(json!({"l": "2"})));
    assert_eq!(
        found(&bundle),
        [
            "ServiceAccount \"a\" occurs 3 times with different content (metadata.labels.l), in the manifests: keep one \
             of them"
        ]
    );
    let role = |namespace: &str, labels: Value| {
        let metadata = json!({"name": "a", "namespace": namespace, "labels": labels});
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata})
            .to_string()
    };
    let bundle = Fixture::new("")
        .file("manifests/a.yaml", &role("x", json!({})))
        .file("manifests/b.yaml", &role("y", json!({})));
    assert_eq!(found(&bundle).len(), 1);
}

#[test]
fn reserved_names_fail_install_check() {
    let named = |version: &str, kind: &str, name: &str, namespace: &str| {
        found_in(
            &manifest(&json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}})),
            namespace,
        )
    };
    let rbac = "rbac.authorization.k8s.io/v1";
    let rows = [
        (rbac, "ClusterRole", "cluster-admin", NAMESPACE, "the cluster"),
        (rbac, "ClusterRoleBinding", "cluster-admin", NAMESPACE, "the cluster"),
        (rbac, "ClusterRole", "view", NAMESPACE, "the cluster"),
        (rbac, "ClusterRole", "catalogd-manager-role", NAMESPACE, "OLM itself"),
        (rbac, "Role", "catalogd-manager-role", "olmv1-system", "OLM itself"),
        ("v1", "ServiceAccount", "operator-controller-controller-manager", "olmv1-system", "OLM itself"),
        ("v1", "ServiceAccount", "default", NAMESPACE, "the cluster"),
        ("v1", "ConfigMap", "kube-root-ca.crt", NAMESPACE, "the cluster"),
        ("v1", "Service", "kubernetes", "default", "the cluster"),
        ("scheduling.k8s.io/v1", "PriorityClass", "system-mine", NAMESPACE, "the cluster"),
    ];
    for (version, kind, name, namespace, owner) in rows {
        assert_eq!(
            named(version, kind, name, namespace),
            [format!("{kind} \"{name}\" belongs to {owner}: choose another name")]
        );
    }
    for (version, kind, name) in [
        (rbac, "Role", "view"),
        (rbac, "Role", "catalogd-manager-role"),
        (rbac, "ClusterRole", "viewer"),
        (rbac, "ClusterRole", "system:mine"),
        (rbac, "ClusterRoleBinding", "view"),
        ("v1", "Service", "kubernetes"),
    ] {
        assert_eq!(named(version, kind, name, NAMESPACE), [""; 0], "{name}");
    }
}

#[test]
fn unapproved_crd_in_kubernetes_group_fails_install_check() {
    let of = |group: &str, approval: Option<&str>| {
        let mut crd = crd(group);
        if let Some(approval) = approval {
            crd["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": approval});
        }
        found(&manifest(&crd))
    };
    let unapproved = |group: &str| {
        format!(
            "CustomResourceDefinition \"widgets.{group}\": group \"{group}\" belongs to Kubernetes: annotation \
             api-approved.kubernetes.io must be the URL of the approval or start with \"unapproved\""
        )
    };
    for group in ["k8s.io", "x.k8s.io", "x.kubernetes.io"] {
        assert_eq!(of(group, None), [unapproved(group)]);
        assert_eq!(of(group, Some("yes")), [unapproved(group)]);
        assert_eq!(of(group, Some("https:///path")), [unapproved(group)]);
        assert_eq!(of(group, Some("https://example.com/pull/1")), [""; 0]);
        assert_eq!(of(group, Some("unapproved, for tests")), [""; 0]);
    }
    assert_eq!(of("cluster.x-k8s.io", None), [""; 0]);
    // Other names in the groups of OLM are allowed.
    for group in ["olm.operatorframework.io", "ext.olm.operatorframework.io"] {
        assert_eq!(of(group, None), [""; 0]);
    }
}

#[test]
fn objects_of_install_manifest_are_reserved() {
    let files =
        ["install", "hardened", "hardened-api-services", "hardened-escalate", "hardened-impersonation"];
    let path = |file| format!("{}/../../manifests/{file}.yaml", env!("CARGO_MANIFEST_DIR"));
    let read = |file| olm_yaml::all_from_slice(&std::fs::read(path(file)).unwrap()).unwrap();
    let mut count = 0;
    for object in files.into_iter().flat_map(read) {
        // Other kinds are refused by kind, and Deployments come from the ClusterServiceVersion.
        if matches!(
            object["kind"].as_str(),
            Some(
                "NetworkPolicy"
                    | "PodDisruptionBudget"
                    | "Service"
                    | "ServiceAccount"
                    | "Role"
                    | "RoleBinding"
                    | "ClusterRole"
                    | "ClusterRoleBinding"
                    | "CustomResourceDefinition"
            )
        ) {
            count += 1;
            let found = found_in(&manifest(&object), "olmv1-system");
            assert!(found.iter().any(|text| text.contains("belongs to OLM itself")), "{object}: {found:?}");
        }
    }
    assert!(count > 20);
}

#[test]
fn failed_install_checks_above_100_are_counted() {
    for (count, last) in
        [(1_000, "900 more of this kind are not listed"), (101, "1 more of this kind is not listed")]
    {
        let objects: String = (0..count)
            .map(|number| {
                format!("---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: n_{number:04}}}}}\n")
            })
            .collect();
        let found = found(&Fixture::new("").file("manifests/a.yaml", &objects));
        assert_eq!((found.len(), found[100].as_str()), (101, last));
    }
}
