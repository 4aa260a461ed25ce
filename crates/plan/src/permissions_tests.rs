use serde_json::json;

use super::*;

/// ClusterRole with these rules, and its binding to service account `ns/sa` in the cluster or in a namespace.
fn role(rules: &Value, namespace: Option<&str>) -> Vec<Value> {
    let subjects = json!([{"kind": "ServiceAccount", "namespace": "ns", "name": "sa"}]);
    let role_ref = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": "r"});
    let version = "rbac.authorization.k8s.io/v1";
    let binding = match namespace {
        None => json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": "b"}}),
        Some(namespace) => {
            json!({"apiVersion": version, "kind": "RoleBinding", "metadata": {"name": "b", "namespace": namespace}})
        }
    };
    let mut binding = binding;
    binding["subjects"] = subjects;
    binding["roleRef"] = role_ref;
    vec![
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": rules}),
        binding,
    ]
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

fn shown(old: &[Value], new: &[Value]) -> Vec<String> {
    let mut shown = Vec::new();
    for change in changes(old, new).unwrap() {
        let subject = format!("{} {}/{}", change.subject.kind, change.subject.namespace, change.subject.name);
        for (sign, permissions) in [('+', change.gained), ('-', change.lost)] {
            for one in permissions {
                let place = one.namespace.unwrap_or_else(|| "*".to_owned());
                let what = one.role.unwrap_or_else(|| {
                    let parts = [one.resources, one.resource_names, one.urls].concat().join(",");
                    format!("{}/{parts}: {}", one.api_group.unwrap_or_default(), one.verbs.join(","))
                });
                shown.push(format!("{sign} {subject} in {place}: {what}"));
            }
        }
    }
    shown
}

#[test]
fn gained_and_lost_verbs_are_listed_per_resource() {
    let old = role(&json!([rule("", "pods", &["get", "list"]), rule("apps", "deployments", &["get"])]), None);
    let new = role(&json!([rule("", "pods", &["get", "delete"]), rule("", "secrets", &["delete"])]), None);
    assert_eq!(
        shown(&old, &new),
        [
            "+ ServiceAccount ns/sa in *: /pods,secrets: delete",
            "- ServiceAccount ns/sa in *: /pods: list",
            "- ServiceAccount ns/sa in *: apps/deployments: get",
        ]
    );
    assert_eq!(shown(&old, &old), [""; 0]);
}

#[test]
fn permission_covered_by_wildcard_is_neither_gained_nor_lost() {
    let all = rule("*", "*", &["*"]);
    for (old, new, expected) in [
        (
            all.clone(),
            rule("apps", "deployments/scale", &["get"]),
            vec!["- ServiceAccount ns/sa in *: */*: *"],
        ),
        (rule("apps", "deployments", &["get"]), all.clone(), vec!["+ ServiceAccount ns/sa in *: */*: *"]),
        (
            rule("apps", "*/scale", &["get"]),
            rule("apps", "*", &["get"]),
            vec!["+ ServiceAccount ns/sa in *: apps/*: get"],
        ),
        (
            rule("apps", "*/scale", &["get"]),
            rule("apps", "x/scale", &["get"]),
            vec!["- ServiceAccount ns/sa in *: apps/*/scale: get"],
        ),
        (rule("", "pods", &["*"]), rule("", "pods", &["get", "*"]), vec![]),
        (
            rule("", "secrets", &["get"]),
            json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"], "verbs": ["get", "update"]}),
            vec![
                "+ ServiceAccount ns/sa in *: /secrets,a: update",
                "- ServiceAccount ns/sa in *: /secrets: get",
            ],
        ),
        (
            json!({"nonResourceURLs": ["/healthz/*"], "verbs": ["get"]}),
            json!({"nonResourceURLs": ["/healthz/live", "/metrics"], "verbs": ["get"]}),
            vec![
                "+ ServiceAccount ns/sa in *: //metrics: get",
                "- ServiceAccount ns/sa in *: //healthz/*: get",
            ],
        ),
        (
            json!({"nonResourceURLs": ["/metrics*", "*"], "verbs": ["get"]}),
            json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}),
            vec!["- ServiceAccount ns/sa in *: /*: get"],
        ),
        (
            json!({"nonResourceURLs": ["/metrics*"], "verbs": ["*"]}),
            json!({"nonResourceURLs": ["/metrics", "/metrics*"], "verbs": ["get", "*"]}),
            vec![],
        ),
    ] {
        let (old, new) = (role(&json!([old]), None), role(&json!([new]), None));
        assert_eq!(shown(&old, &new), expected);
    }
}

#[test]
fn lost_verb_wildcard_lists_kept_verbs() {
    let old = role(&json!([rule("", "pods", &["*"])]), None);
    let new = role(&json!([rule("", "pods", &["list", "get"])]), None);
    let changes = super::changes(&old, &new).unwrap();
    assert_eq!((changes[0].gained.len(), &changes[0].lost[0].verbs[..]), (0, &["*".to_owned()][..]));
    assert_eq!(changes[0].lost[0].kept, ["get", "list"]);
    let back = super::changes(&new, &old).unwrap();
    assert!(back[0].lost.is_empty() && back[0].gained[0].kept.is_empty());
}

#[test]
fn cluster_wide_permission_covers_namespaces() {
    let rules = json!([rule("", "pods", &["get"])]);
    let (everywhere, here) = (role(&rules, None), role(&rules, Some("apps")));
    assert_eq!(shown(&here, &everywhere), ["+ ServiceAccount ns/sa in *: /pods: get"]);
    assert_eq!(shown(&everywhere, &here), ["- ServiceAccount ns/sa in *: /pods: get"]);
    assert_eq!(changes(&everywhere, &here).unwrap()[0].lost[0].kept_in, ["apps"]);
    let both = [everywhere.clone(), here].concat();
    assert_eq!(shown(&everywhere, &both), [""; 0]);
}

#[test]
fn unknown_role_is_named_and_unbound_role_is_ignored() {
    let mut binding = role(&json!([]), Some("apps"));
    let role_alone = binding.remove(0);
    assert_eq!(shown(&[], &[role_alone]), [""; 0]);
    assert_eq!(shown(&[], &binding), ["+ ServiceAccount ns/sa in apps: ClusterRole r"]);
}

#[test]
fn aggregate_to_label_adds_rules_to_target_role() {
    let mut role = role(&json!([rule("x.io", "widgets", &["get"])]), None);
    role.truncate(1);
    role[0]["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true", "rbac.authorization.k8s.io/aggregate-to-edit": "no"});
    assert_eq!(shown(&[], &role), ["+ ClusterRole /view in *: x.io/widgets: get"]);
}

#[test]
fn aggregation_rule_adds_rules_of_selected_roles() {
    let mut objects = role(&json!([]), None);
    objects[0]["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"to-r": "true"}}]});
    objects[0]["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-admin": "true"});
    let mut part = role(&json!([rule("x.io", "widgets", &["get"])]), None).remove(0);
    part["metadata"] = json!({"name": "part", "labels": {"to-r": "true"}});
    let both = [objects.clone(), vec![part]].concat();
    assert_eq!(
        shown(&objects, &both),
        ["+ ClusterRole /admin in *: x.io/widgets: get", "+ ServiceAccount ns/sa in *: x.io/widgets: get"]
    );
}

#[test]
fn role_binding_grants_no_urls() {
    let rules = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    assert_eq!(shown(&[], &role(&rules, Some("apps"))), [""; 0]);
}

#[test]
fn too_many_single_permissions_are_an_error() {
    let many: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let rules = json!([{"apiGroups": many, "resources": many, "verbs": many}]);
    assert_eq!(changes(&[], &role(&rules, None)), Err(TooMany));
}
