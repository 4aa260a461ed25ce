//! Install checks of objects that would intercept OLM, or extend its rights (docs/design/bundles.md#install-checks).

use olm_bundle::{SYSTEM_NAMESPACE, install_checks};
use serde_json::{Value, json};

use crate::fixture::{Fixture, NAMESPACE};
use crate::install_checks::{found, manifest, webhooks};

#[test]
fn webhook_on_extension_plans_fails_install_check() {
    let rule = |groups: &[&str]| json!({"rules": [{"apiGroups": groups, "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}]});
    let refused = |group: &str| {
        format!(
            "ValidatingWebhookConfiguration \"check.widgets.example.com\": a rule has API group {group}: webhooks of a \
             bundle may not intercept OLM"
        )
    };
    let mut second = rule(&["apps", "ext.olm.operatorframework.io"]);
    second["generateName"] = json!("second.widgets.example.com");
    let of_plans = webhooks(&[rule(&["example.com"]), second]);
    let texts = found(&of_plans);
    assert!(texts.len() == 1 && texts[0].contains("API group ext.olm.operatorframework.io"), "{texts:?}");
    assert_eq!(
        found(&webhooks(&[rule(&["ext.olm.operatorframework.io"])])),
        [refused("ext.olm.operatorframework.io")]
    );
    assert_eq!(found(&webhooks(&[rule(&["", "apps", "x.ext.olm.operatorframework.io"])])), [""; 0]);

    // A gate serves OperatorConditions. It adds one to the objects of the bundle.
    let classic = webhooks(&[rule(&["operators.coreos.com"])]);
    assert_eq!(found(&classic), [""; 0]);
    let mut objects: Vec<Value> = classic.render().unwrap();
    let metadata = json!({"name": "op.v1", "namespace": NAMESPACE});
    objects.push(
        json!({"apiVersion": "operators.coreos.com/v2", "kind": "OperatorCondition", "metadata": metadata}),
    );
    let found = install_checks(&classic.load().unwrap(), &objects, NAMESPACE, SYSTEM_NAMESPACE);
    assert_eq!(found, [refused("operators.coreos.com")]);
}

#[test]
fn role_aggregated_to_operator_controller_fails_install_check() {
    let role = |label: &str, value: &str| {
        manifest(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "more", "labels": {label: value}}, "rules": []}))
    };
    let ours = "ext.olm.operatorframework.io/aggregate-to-operator-controller";
    for value in ["true", "false"] {
        let refused = found(&role(ours, value));
        let expected = format!(
            "ClusterRole \"more\": label {ours} would give its rules to operator-controller: only an administrator may \
             do that, outside of a bundle"
        );
        assert_eq!(refused, [expected]);
    }
    assert_eq!(found(&role("rbac.authorization.k8s.io/aggregate-to-admin", "true")), [""; 0]);
}

#[test]
fn names_of_the_installation_are_reserved_in_its_namespace() {
    let map =
        manifest(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "olm-registry-ca"}}));
    let (bundle, objects) = (map.load().unwrap(), map.render().unwrap());
    let of = |install: &str, system: &str| install_checks(&bundle, &objects, install, system);
    let refused = "ConfigMap \"olm-registry-ca\" belongs to OLM itself: choose another name";
    for (install, system, expected) in [
        ("olmv1-system", SYSTEM_NAMESPACE, vec![refused]),
        ("openshift-operator-controller", "openshift-operator-controller", vec![refused]),
        ("openshift-catalogd", "openshift-operator-controller", vec![refused]),
        ("olmv1-system", "other", vec![]),
        (NAMESPACE, SYSTEM_NAMESPACE, vec![]),
    ] {
        assert_eq!(of(install, system), expected, "{install} {system}");
    }
}

#[test]
fn service_accounts_of_olm_fail_install_check() {
    let accounts = ["catalogd-controller-manager", "operator-controller-controller-manager"];
    let refused = |fixture: &Fixture, install: &str, system: &str| {
        let mut fixture = fixture.clone();
        fixture.install_namespace = install.to_owned();
        install_checks(&fixture.load().unwrap(), &fixture.render().unwrap(), install, system)
    };
    for account in accounts {
        let pods = Fixture::new(
            &json!({"install": {"spec": {"deployments": [{"name": "d", "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"serviceAccountName": account}}}}]}}})
            .to_string(),
        );
        let token = manifest(
            &json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": "t", "annotations": {"kubernetes.io/service-account.name": account}}}),
        );
        // The kind alone decides whether a bundle may ship an object.
        let service = manifest(
            &json!({"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"template": {"spec": {"serviceAccount": account}}}}),
        );
        let of_pods = "its pods use service account";
        for (fixture, title, what) in [
            (&pods, "Deployment \"d\"", of_pods),
            (&service, "Service \"s\"", of_pods),
            (&token, "Secret \"t\"", "it gets a token of service account"),
        ] {
            let expected = format!("{title}: {what} {account:?}, which belongs to OLM itself");
            assert_eq!(refused(fixture, SYSTEM_NAMESPACE, SYSTEM_NAMESPACE), std::slice::from_ref(&expected));
            assert_eq!(refused(fixture, "other-system", "other-system"), [expected]);
            assert_eq!(refused(fixture, NAMESPACE, SYSTEM_NAMESPACE), [""; 0]);
            assert_eq!(refused(fixture, SYSTEM_NAMESPACE, "other-system"), [""; 0]);
        }
    }
}

#[test]
fn binding_to_a_service_account_of_olm_fails_install_check() {
    let subject = |kind: &str, namespace: Option<&str>, name: &str| json!({"kind": kind, "namespace": namespace, "name": name});
    let user = "system:serviceaccount:olmv1-system:operator-controller-controller-manager";
    for (version, fields, expected) in [
        (
            "rbac.authorization.k8s.io/v1",
            json!({"subjects": [subject("ServiceAccount", Some(SYSTEM_NAMESPACE), "operator-controller-controller-manager")]}),
            Some(user),
        ),
        ("rbac.authorization.k8s.io/v1", json!({"subjects": [subject("User", None, user)]}), Some(user)),
        ("authorization.openshift.io/v1", json!({"userNames": [user]}), Some(user)),
        (
            "rbac.authorization.k8s.io/v1",
            json!({"subjects": [subject("Group", None, "system:serviceaccounts:olmv1-system")]}),
            Some("system:serviceaccounts:olmv1-system"),
        ),
        (
            "rbac.authorization.k8s.io/v1",
            json!({"subjects": [
                subject("Group", None, "system:serviceaccounts"),
                subject("ServiceAccount", Some("other"), "operator-controller-controller-manager"),
                subject("ServiceAccount", Some(SYSTEM_NAMESPACE), "default"),
            ]}),
            None,
        ),
    ] {
        for kind in ["RoleBinding", "ClusterRoleBinding"] {
            let mut binding = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "b"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}});
            binding.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let expected = expected.map(|name| {
                format!("{kind} \"b\": it grants permissions to {name:?}, which belongs to OLM itself")
            });
            assert_eq!(found(&manifest(&binding)), Vec::from_iter(expected));
        }
    }
}
