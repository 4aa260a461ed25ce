use serde_json::{Value, json};

use super::{account, deployment, role, rule, shown};
use crate::permissions::{TooMany, changes};

/// Secret `ns/NAME` that gets a token of the service account.
fn token(name: &str, account: &str) -> Value {
    let annotations = json!({"kubernetes.io/service-account.name": account});
    json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": name, "namespace": "ns", "annotations": annotations}})
}

#[test]
fn first_installation_gains_what_an_existing_service_account_has() {
    let of =
        |account_name: &str| [deployment("d", json!({"serviceAccountName": account_name})), account("own")];
    assert_eq!(shown(&[], &of("other")), ["+ Deployment ns/d in *: ServiceAccount ns/other"]);
    assert_eq!(shown(&[], &of("")), ["+ Deployment ns/d in *: ServiceAccount ns/default"]);
    assert_eq!(shown(&[], &of("own")), [""; 0]);
    assert_eq!(shown(&of("other"), &[]), [""; 0]);
}

#[test]
fn token_secret_and_pods_that_name_it_gain_what_its_service_account_has() {
    let rules = json!([rule("", "pods", &["get"])]);
    let with =
        |more: &[Value]| [role(&rules, None), vec![account("sa"), account("low")], more.to_vec()].concat();
    let low = || json!({"serviceAccountName": "low"});
    let mounting = [
        json!({"volumes": [{"name": "v", "secret": {"secretName": "t"}}]}),
        json!({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "t"}}]}}]}),
        json!({"containers": [{"env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "t", "key": "token"}}}]}]}),
        json!({"initContainers": [{"envFrom": [{"secretRef": {"name": "t"}}]}]}),
    ];
    let before = with(&[deployment("d", low())]);
    for mut pod in mounting {
        pod["serviceAccountName"] = json!("low");
        // Another account, which exists on the cluster.
        assert_eq!(
            shown(&before, &with(&[deployment("d", pod.clone()), token("t", "other")])),
            [
                "+ Deployment ns/d in *: ServiceAccount ns/other",
                "+ Secret ns/t in *: ServiceAccount ns/other"
            ]
        );
        // One of the bundle, whose token Secret existed.
        let shipped = |pod: Value| with(&[deployment("d", pod), token("t", "sa")]);
        assert_eq!(shown(&shipped(low()), &shipped(pod)), ["+ Deployment ns/d in *: /pods: get"]);
    }
    let unmounted = with(&[deployment("d", low()), token("t", "other")]);
    assert_eq!(shown(&before, &unmounted), ["+ Secret ns/t in *: ServiceAccount ns/other"]);
    assert_eq!(shown(&[], &unmounted)[0], "+ Secret ns/t in *: ServiceAccount ns/other");
    assert_eq!(shown(&unmounted, &unmounted), [""; 0]);
    let own = with(&[deployment("d", low()), token("t", "low")]);
    assert_eq!(shown(&before, &own), [""; 0]);
    let mut bootstrap = token("t", "low");
    bootstrap["type"] = json!("bootstrap.kubernetes.io/token");
    assert_eq!(shown(&[], &[bootstrap]), ["+ Secret ns/t in *: authenticates as a bootstrap token"]);
}

#[test]
fn kind_of_unknown_group_has_unknown_rights() {
    let object = |version: &str, kind: &str, content: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "ns"}, "spec": {"a": content}});
    let old = [account("sa")];
    for (version, kind, group) in [
        ("serving.knative.dev/v1", "Service", "serving.knative.dev"),
        ("authorization.openshift.io/v1", "Role", "authorization.openshift.io"),
        ("iam.aws.crossplane.io/v1", "Role", "iam.aws.crossplane.io"),
    ] {
        let of = |content: &str| [account("sa"), object(version, kind, content)];
        let gained = format!("+ {kind}.{group} ns/x in *: unknown rights through {group}/{kind} ns/x");
        assert_eq!(shown(&[], &of("b")), std::slice::from_ref(&gained));
        assert_eq!(shown(&old, &of("b")), std::slice::from_ref(&gained));
        assert_eq!(shown(&of("b"), &of("c"))[0], gained, "other content has other rights");
        assert_eq!(shown(&of("b"), &of("b")), [""; 0]);
    }
    for (version, kind) in
        [("v1", "Service"), ("policy/v1", "PodDisruptionBudget"), ("cert-manager.io/v1", "Issuer")]
    {
        assert_eq!(shown(&old, &[account("sa"), object(version, kind, "b")]), [""; 0]);
    }
    let pods = json!({"containers": [{"securityContext": {"privileged": true}}], "serviceAccountName": "sa"});
    let mut service = deployment("x", pods);
    service["apiVersion"] = json!("serving.knative.dev/v1");
    service["kind"] = json!("Service");
    assert_eq!(
        shown(&old, &[account("sa"), service]),
        [
            "+ Service.serving.knative.dev ns/x in *: privileged containers",
            "+ Service.serving.knative.dev ns/x in *: unknown rights through serving.knative.dev/Service ns/x",
        ]
    );
}

#[test]
fn privileges_of_pods_are_gained() {
    let plain = json!({"containers": [{"securityContext": {"privileged": false, "capabilities": {"drop": ["ALL"]}}}],
        "volumes": [{"name": "v", "emptyDir": {}}], "hostNetwork": false});
    let old = [deployment("d", plain.clone()), account("default")];
    for (field, value, expected) in [
        ("hostNetwork", json!(true), vec!["pods with hostNetwork"]),
        ("hostPID", json!(true), vec!["pods with hostPID"]),
        ("hostIPC", json!(true), vec!["pods with hostIPC"]),
        ("volumes", json!([{"name": "v", "hostPath": {"path": "/etc"}}]), vec!["pods with hostPath /etc"]),
        ("containers", json!([{"securityContext": {"privileged": true}}]), vec!["privileged containers"]),
        ("initContainers", json!([{"securityContext": {"privileged": true}}]), vec!["privileged containers"]),
        (
            "containers",
            json!([{"securityContext": {"capabilities": {"add": ["SYS_ADMIN", "NET_ADMIN"]}}}]),
            vec!["containers with capability NET_ADMIN", "containers with capability SYS_ADMIN"],
        ),
        (
            "securityContext",
            json!({"windowsOptions": {"hostProcess": true}}),
            vec!["containers with hostProcess"],
        ),
    ] {
        let mut pod = plain.clone();
        pod[field] = value;
        let new = [deployment("d", pod), account("default")];
        let expected: Vec<String> =
            expected.into_iter().map(|privilege| format!("+ Deployment ns/d in *: {privilege}")).collect();
        assert_eq!(shown(&old, &new), expected);
        assert_eq!(shown(&[], &new), expected);
        assert_eq!(shown(&new, &new), [""; 0]);
    }
}

#[test]
fn rules_of_webhooks_are_gained() {
    let webhook = |rules: Value, more: Value| {
        let mut webhook = json!({"name": "a.b.c", "rules": rules});
        webhook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let version = "admissionregistration.k8s.io/v1";
        [
            json!({"apiVersion": version, "kind": "MutatingWebhookConfiguration", "metadata": {"name": "w"}, "webhooks": [webhook]}),
        ]
    };
    let rule = |operations: &[&str]| json!({"apiGroups": ["", "apps"], "apiVersions": ["v1"], "operations": operations, "resources": ["pods", "*/scale"]});
    let resources = "*/scale, pods, *.apps/scale, pods.apps";
    let gained = |what: String| format!("+ MutatingWebhookConfiguration /w in *: intercepts {what}");
    let create = webhook(json!([rule(&["CREATE"])]), json!({"objectSelector": {}}));
    let both = webhook(json!([rule(&["UPDATE", "CREATE"]), rule(&["CREATE"])]), json!({}));
    assert_eq!(shown(&[], &create), [gained(format!("CREATE of {resources}"))]);
    assert_eq!(shown(&create, &both), [gained(format!("CREATE, UPDATE of {resources}"))]);
    assert_eq!(shown(&both, &both), [""; 0]);
    let selecting =
        webhook(json!([rule(&["CREATE"])]), json!({"objectSelector": {"matchLabels": {"a": "b"}}}));
    let narrow = r#" where objectSelector is {"matchLabels":{"a":"b"}}"#;
    assert_eq!(shown(&[], &selecting), [gained(format!("CREATE of {resources}{narrow}"))]);
    assert_eq!(shown(&selecting, &create)[0], gained(format!("CREATE of {resources}")));
}

#[test]
fn many_pods_of_an_account_with_many_permissions_are_an_error() {
    let verbs: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let rules = json!([{"apiGroups": [""], "resources": ["a"], "verbs": verbs}]);
    let pods = |name: &str| {
        let pods = (0..300).map(|n| deployment(&n.to_string(), json!({"serviceAccountName": name})));
        [role(&rules, None), vec![account("sa"), account("low")], pods.collect()].concat()
    };
    assert_eq!(changes(&pods("low"), &pods("sa")), Err(TooMany));
}
