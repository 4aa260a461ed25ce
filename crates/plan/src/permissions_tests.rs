use serde_json::json;

use super::*;

#[path = "privileges_tests.rs"]
mod privileges;

const RBAC: &str = "rbac.authorization.k8s.io";

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

/// Deployment `ns/NAME` whose pods have these fields.
fn deployment(name: &str, pod: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "ns"},
        "spec": {"template": {"spec": pod}}})
}

fn account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "ns"}})
}

fn shown(old: &[Value], new: &[Value]) -> Vec<String> {
    let mut shown = Vec::new();
    for change in changes(old, new).unwrap() {
        let subject = format!("{} {}/{}", change.subject.kind, change.subject.namespace, change.subject.name);
        for (sign, permissions) in [('+', change.gained), ('-', change.lost)] {
            for one in permissions {
                let place = one.namespace.unwrap_or_else(|| "*".to_owned());
                let what = one.role.or(one.privilege).unwrap_or_else(|| {
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
        [
            "+ ClusterRole /admin in *: x.io/widgets: get",
            // Roles outside of the list may select the label, too.
            "+ ClusterRole /that selects to-r in *: x.io/widgets: get",
            "+ ServiceAccount ns/sa in *: x.io/widgets: get"
        ]
    );
}

/// ClusterRole `name` with these rules and labels, aggregated by `selectors` if there are any.
fn cluster_role(name: &str, rules: &Value, labels: Value, selectors: &[Value]) -> Value {
    let version = "rbac.authorization.k8s.io/v1";
    let mut role =
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    role["metadata"]["labels"] = labels;
    if !selectors.is_empty() {
        role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
    }
    role
}

#[test]
fn new_or_wider_selector_of_bound_role_is_gained() {
    let [role, binding] = role(&json!([]), None).try_into().unwrap();
    let of = |selectors: &[Value]| {
        let mut role = role.clone();
        if !selectors.is_empty() {
            role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        }
        vec![role, binding.clone()]
    };
    let label = |value: &str| json!({"matchLabels": {"to-r": value}});
    let to_admin = json!({"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}});
    let both = json!({"matchLabels": {"to-r": "a", "b": "c"}});
    let gained = |what: &str| vec![format!("+ ServiceAccount ns/sa in *: {what}")];
    let admin = "ClusterRoles with labels rbac.authorization.k8s.io/aggregate-to-admin In (true)";
    for (old, new, expected) in [
        (vec![], vec![json!({})], gained("all ClusterRoles")),
        (vec![label("a")], vec![label("a"), to_admin.clone()], gained(admin)),
        (vec![label("a")], vec![label("b")], gained("ClusterRoles with labels to-r In (b)")),
        (vec![both.clone()], vec![label("a")], gained("ClusterRoles with labels to-r In (a)")),
        (vec![label("a")], vec![both.clone(), label("a")], vec![]),
        (vec![label("a")], vec![both], vec![]),
        (vec![json!({})], vec![to_admin], vec![]),
    ] {
        let mut found = shown(&of(&old), &of(&new));
        found.retain(|line| line.starts_with('+'));
        assert_eq!(found, expected, "{old:?} {new:?}");
    }
}

#[test]
fn selector_of_aggregated_or_aggregating_role_is_an_open_grant() {
    let [role, binding] = role(&json!([]), None).try_into().unwrap();
    let labels = json!({"to-r": "true"});
    let top = cluster_role("r", &json!([]), json!({}), &[json!({"matchLabels": {"to-r": "true"}})]);
    let old = [top, cluster_role("middle", &json!([]), labels.clone(), &[]), binding];
    let mut new = old.clone();
    new[1] = cluster_role("middle", &json!([]), labels, &[json!({})]);
    assert_eq!(shown(&old, &new), ["+ ServiceAccount ns/sa in *: all ClusterRoles"]);
    // A ClusterRole that another one aggregates by its labels.
    let label = json!({"rbac.authorization.k8s.io/aggregate-to-cluster-reader": "true"});
    let (old, new) = (role, cluster_role("r", &json!([]), label, &[json!({})]));
    assert_eq!(shown(&[old], &[new])[0], "+ ClusterRole /cluster-reader in *: all ClusterRoles");
}

#[test]
fn rules_of_a_role_that_may_be_bound_outside_are_gained_by_its_subjects() {
    let rules = |verbs: &[&str]| json!([rule("", "secrets", verbs)]);
    let plain = |name: &str, verbs: &[&str]| cluster_role(name, &rules(verbs), json!({}), &[]);
    let (old, new) = (plain("out", &["get"]), plain("out", &["get", "delete"]));
    let gained = "+ ClusterRole /out in *: /secrets: delete";
    assert_eq!(shown(std::slice::from_ref(&old), std::slice::from_ref(&new)), [gained]);
    // Also if it is new: a binding may wait for it.
    assert_eq!(
        shown(&[plain("other", &[])], &[plain("other", &[]), new.clone()])[0],
        "+ ClusterRole /out in *: /secrets: delete,get"
    );
    let mut namespaced = [old.clone(), new.clone()];
    for role in &mut namespaced {
        role["kind"] = json!("Role");
        role["metadata"]["namespace"] = json!("ns");
    }
    let [before, after] = namespaced;
    assert_eq!(shown(&[before], &[after]), ["+ Role ns/out in ns: /secrets: delete"]);
    // The service account has the permission by another role already.
    let bound = |verbs: &[&str]| {
        let mut all = role(&rules(verbs), None);
        let mut admin = role(&json!([rule("*", "*", &["*"])]), None);
        admin[0]["metadata"]["name"] = json!("all");
        admin[1]["roleRef"]["name"] = json!("all");
        all.append(&mut admin);
        all
    };
    assert_eq!(
        shown(&bound(&["get"]), &bound(&["get", "delete"])),
        ["+ ClusterRole /r in *: /secrets: delete"]
    );
    // Names of generated roles differ in each version.
    let mut renamed = role(&rules(&["get"]), None);
    renamed[0]["metadata"]["name"] = json!("r2");
    renamed[1]["roleRef"]["name"] = json!("r2");
    assert_eq!(shown(&role(&rules(&["get"]), None), &renamed), [""; 0]);
}

#[test]
fn each_aggregation_label_is_a_binding() {
    let rules = json!([rule("", "secrets", &["get"])]);
    for (label, role) in [
        ("rbac.authorization.k8s.io/aggregate-to-admin", "admin"),
        ("rbac.authorization.k8s.io/aggregate-to-edit", "edit"),
        ("rbac.authorization.k8s.io/aggregate-to-view", "view"),
        ("rbac.authorization.k8s.io/aggregate-to-cluster-reader", "cluster-reader"),
        ("ext.olm.operatorframework.io/aggregate-to-operator-controller", "operator-controller-content-role"),
    ] {
        let of = |labels: Value| [cluster_role("r", &rules, labels, &[])];
        let expected = format!("+ ClusterRole /{role} in *: /secrets: get");
        assert_eq!(shown(&of(json!({})), &of(json!({label: "true"}))), [expected]);
        assert_eq!(shown(&of(json!({})), &of(json!({label: "false"}))), [""; 0]);
    }
}

#[test]
fn new_label_of_a_role_is_a_binding_if_another_role_may_select_it() {
    let rules = json!([rule("", "secrets", &["get"])]);
    let of = |labels: Value| {
        let mut all = role(&rules, None);
        all[0]["metadata"]["labels"] = labels;
        all
    };
    let label = "example.com/controller";
    let gained = format!("+ ClusterRole /that selects {label} in *: /secrets: get");
    let without = of(json!({}));
    assert_eq!(shown(&without, &of(json!({label: "true"}))), [gained]);
    for (before, after) in [
        (of(json!({label: "true"})), of(json!({label: "true"}))),
        (without.clone(), of(json!({"app.kubernetes.io/version": "1.2.0"}))),
        // Nothing selects by labels of a first installation what it did not before.
        (Vec::new(), of(json!({label: "true"}))),
    ] {
        assert!(!shown(&before, &after).iter().any(|line| line.contains("selects")), "{after:?}");
    }
}

#[test]
fn deployment_gains_what_another_existing_service_account_has() {
    let deployment = |name: &str, account: &str| deployment(name, json!({"serviceAccountName": account}));
    let with = |more: &[Value]| {
        [role(&json!([rule("", "pods", &["get"])]), None), vec![account("sa"), account("low")], more.to_vec()]
            .concat()
    };
    let low = with(&[deployment("d", "low")]);
    let gained = "+ Deployment ns/d in *: /pods: get";
    assert_eq!(shown(&low, &with(&[deployment("d", "sa")])), [gained]);
    assert_eq!(shown(&low, &low), [""; 0]);
    let foreign = |name: &str| format!("+ Deployment ns/d in *: ServiceAccount ns/{name}");
    assert_eq!(shown(&low, &with(&[deployment("d", "other")])), [foreign("other")]);
    assert_eq!(shown(&low, &with(&[deployment("d", "")])), [foreign("default")]);
    assert_eq!(shown(&with(&[deployment("d", "other")]), &with(&[deployment("d", "other")])), [""; 0]);
    // A second Deployment with the account of the first, or with an unused one.
    let second = |account: &str| with(&[deployment("d", "low"), deployment("e", account)]);
    assert_eq!(shown(&low, &second("low")), [""; 0]);
    assert_eq!(shown(&low, &second("sa")), ["+ Deployment ns/e in *: /pods: get"]);
    // What a new account has is listed for that account.
    assert_eq!(shown(&low, &[with(&[deployment("d", "new")]), vec![account("new")]].concat()), [""; 0]);
}

#[test]
fn many_requirements_of_selectors_are_an_error() {
    let selectors: Vec<Value> = (0..2000).map(|n| json!({"matchLabels": {"a": n.to_string()}})).collect();
    let many = [cluster_role("r", &json!([]), json!({}), &selectors)];
    assert_eq!(changes(&many, &[]), Err(TooMany));
}

// crates/revision/tests/apply/nulls.rs shows that the API server reads them so.
#[test]
fn null_in_a_rule_is_an_empty_text() {
    let core = role(&json!([rule("", "secrets", &["get"])]), None);
    let nulls = json!([null, {"apiGroups": [null], "resources": ["secrets"], "verbs": ["get"], "resourceNames": null}]);
    assert_eq!(shown(&[], &role(&nulls, None)), ["+ ServiceAccount ns/sa in *: /secrets: get"]);
    assert_eq!(shown(&core, &role(&nulls, None)), [""; 0]);
    let named =
        json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": [null]}]);
    assert_eq!(shown(&[], &role(&named, None)), ["+ ServiceAccount ns/sa in *: /secrets,: get"]);
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
