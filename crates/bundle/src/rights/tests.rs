use std::fs;
use std::io::Write;

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::json;

use super::*;

fn objects() -> Vec<Value> {
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "op", "namespace": "ns"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "ns"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns"}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "op", "namespace": "ns"}}),
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "p", "namespace": "ns"}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n", "namespace": "ns"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r", "namespace": "ns"},
            "rules": [rule(&[""], &["pods", "pods/log"], &["get"]), rule(&[""], &["pods"], &["list", "get"])]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "r", "namespace": "ns"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "auth", "namespace": "kube-system"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "extension-apiserver-authentication-reader"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "c"},
            "rules": [rule(&[""], &["pods"], &["*"]), json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]})]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "c"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "c"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "delegator"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"}}),
    ]
}

/// Formats rules as `NAMESPACE: GROUPS RESOURCES [NAMES] VERBS`.
fn lines(rights: &Scoped) -> Vec<String> {
    let joined = |set: &BTreeSet<String>| set.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    let line = |scope: &Option<String>, rule: &RbacRule| {
        let names = joined(&rule.resource_names);
        let names = if names.is_empty() { names } else { format!(" [{names}]") };
        let what = if rule.resources.is_empty() {
            joined(&rule.non_resource_urls)
        } else {
            format!("{:?} {}", joined(&rule.api_groups), joined(&rule.resources))
        };
        format!("{}: {what}{names} {}", scope.as_deref().unwrap_or("*"), joined(&rule.verbs))
    };
    rights.iter().flat_map(|(scope, rules)| rules.iter().map(move |rule| line(scope, rule))).collect()
}

const OBJECTS: [&str; 19] = [
    "*: \"olm.operatorframework.io\" clusterobjectsets/finalizers update",
    "*: \"rbac.authorization.k8s.io\" clusterrolebindings [c,delegator] delete,get,patch",
    "*: \"rbac.authorization.k8s.io\" clusterrolebindings,clusterroles create",
    "*: \"rbac.authorization.k8s.io\" clusterroles [c] delete,get,patch",
    "*: \"rbac.authorization.k8s.io\" clusterroles [system:auth-delegator] bind",
    "*: \"scheduling.k8s.io\" priorityclasses create",
    "*: \"scheduling.k8s.io\" priorityclasses [p] delete,get,patch",
    "kube-system: \"rbac.authorization.k8s.io\" rolebindings create",
    "kube-system: \"rbac.authorization.k8s.io\" rolebindings [auth] delete,get,patch",
    "kube-system: \"rbac.authorization.k8s.io\" roles [extension-apiserver-authentication-reader] bind",
    "ns: \"\" configmaps [a,b] delete,get,patch",
    "ns: \"\" configmaps,serviceaccounts create",
    "ns: \"\" serviceaccounts [op] delete,get,patch",
    "ns: \"apps\" deployments create",
    "ns: \"apps\" deployments [op] delete,get,patch",
    "ns: \"networking.k8s.io\" networkpolicies create",
    "ns: \"networking.k8s.io\" networkpolicies [n] delete,get,patch",
    "ns: \"rbac.authorization.k8s.io\" rolebindings [r] delete,get,patch",
    "ns: \"rbac.authorization.k8s.io\" rolebindings,roles create",
];

/// Sorted, with [`OBJECTS`] and a line that would exceed the line length there.
fn with(more: &[&str]) -> Vec<String> {
    let last = "ns: \"rbac.authorization.k8s.io\" roles [r] delete,get,patch";
    let mut all: Vec<String> =
        OBJECTS.iter().chain([&last]).chain(more).map(|&line| line.to_owned()).collect();
    all.sort();
    all
}

fn sorted(rights: &Scoped) -> Vec<String> {
    let mut all = lines(rights);
    all.sort();
    all
}

#[test]
fn account_needs_object_access_and_granted_permissions() {
    let rights = Rights::of(&objects());
    assert_eq!(sorted(&rights.objects), with(&[]));
    // Rules of the Role in `ns` that the ClusterRole does not include.
    assert_eq!(
        sorted(&rights.exact()),
        with(&["*: \"\" pods *", "*: /metrics get", "ns: \"\" pods,pods/log get"])
    );
    assert_eq!(
        sorted(&rights.escalating()),
        with(&[
            "*: \"rbac.authorization.k8s.io\" clusterroles escalate",
            "*: \"rbac.authorization.k8s.io\" clusterroles [c] bind",
            "ns: \"rbac.authorization.k8s.io\" roles escalate",
            "ns: \"rbac.authorization.k8s.io\" roles [r] bind",
        ])
    );
}

#[test]
fn aggregated_role_requires_all_permissions() {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "all"},
        "aggregationRule": {"clusterRoleSelectors": []}});
    let rights = Rights::of(&[role]);
    assert_eq!(sorted(&rights.granted), ["*: \"*\" * *", "*: * *"]);
    // These rules include all others.
    assert_eq!(sorted(&rights.exact()), ["*: \"*\" * *", "*: * *"]);
}

#[test]
fn rule_inclusion_respects_wildcards_and_names() {
    let rule = |value: Value| RbacRule::of(&value);
    let pods = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
    for (wide, narrow, expected) in [
        (pods.clone(), pods.clone(), true),
        (json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}), pods.clone(), true),
        (
            json!({"apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"], "verbs": ["get"]}),
            pods.clone(),
            false,
        ),
        (
            pods.clone(),
            json!({"apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"], "verbs": ["get"]}),
            true,
        ),
        (pods.clone(), json!({"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}), false),
        (
            json!({"apiGroups": [""], "resources": ["*/log"], "verbs": ["get"]}),
            json!({"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}),
            true,
        ),
        (pods.clone(), json!({"apiGroups": ["apps"], "resources": ["pods"], "verbs": ["get"]}), false),
        (pods.clone(), json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}), false),
        (json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}), pods.clone(), false),
        (
            json!({"nonResourceURLs": ["/m*"], "verbs": ["get"]}),
            json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}),
            true,
        ),
        (
            json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}),
            json!({"nonResourceURLs": ["/m*"], "verbs": ["get"]}),
            false,
        ),
    ] {
        assert_eq!(rule(wide.clone()).includes(&rule(narrow.clone())), expected, "{wide} {narrow}");
    }
}

#[test]
fn null_in_a_rule_is_an_empty_text() {
    let nulls = RbacRule::of(&json!({"apiGroups": [null], "resources": ["secrets"], "verbs": ["get"]}));
    assert_eq!(nulls, RbacRule::of(&json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]})));
    assert_eq!(RbacRule::of(&Value::Null), RbacRule::default());
}

#[test]
fn rule_expands_to_the_product_of_its_lists() {
    let rule = RbacRule::of(
        &json!({"apiGroups": ["", "apps"], "resources": ["a", "b/c"], "resourceNames": ["x", "y"],
        "verbs": ["get", "list"]}),
    );
    let rights: BTreeSet<Right> = rule.rights().collect();
    assert_eq!(rights.len(), 16);
    let one = Right::Resource {
        group: "apps".into(),
        resource: "b/c".into(),
        name: Some("y".into()),
        verb: "list".into(),
    };
    assert!(rights.contains(&one));
    let url = RbacRule::of(&json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}));
    assert_eq!(
        url.rights().collect::<Vec<_>>(),
        [Right::Url { path: "/metrics".into(), verb: "get".into() }]
    );
}

#[test]
fn plural_matches_resources_of_bundle_kinds() {
    for (kind, resource) in [
        ("NetworkPolicy", "networkpolicies"),
        ("PriorityClass", "priorityclasses"),
        ("ConsoleQuickStart", "consolequickstarts"),
        ("CustomResourceDefinition", "customresourcedefinitions"),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        ("", "s"),
    ] {
        assert_eq!(plural(kind), resource);
    }
}

// The rules for the bundles in `OLM_FIELD_DATA` are valid PolicyRules, and cover each object.
#[test]
fn rights_of_field_bundles_are_valid_and_complete() {
    let Some(root) = olm_require::field_data() else { return };
    let mut count = 0;
    for folder in root.join("bundles").read_dir().unwrap() {
        let folder = folder.unwrap().path();
        let Ok(text) = fs::read_to_string(folder.join("expected.jsonl")) else { continue };
        let objects: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let rights = Rights::of(&objects);
        for all in [rights.exact(), rights.escalating()] {
            let rules: Vec<(&Option<String>, &RbacRule)> =
                all.iter().flat_map(|(scope, rules)| rules.iter().map(move |rule| (scope, rule))).collect();
            for (scope, rule) in &rules {
                let typed: PolicyRule = serde_json::from_value(serde_json::to_value(rule).unwrap()).unwrap();
                assert!(!typed.verbs.is_empty(), "{}: {rule:?}", folder.display());
                assert!(
                    scope.is_none() || rule.non_resource_urls.is_empty(),
                    "{}: {rule:?}",
                    folder.display()
                );
            }
            for object in &objects {
                let (kind, namespace, name) = identity(object);
                let group = text_of_group(object);
                let required = RbacRule::on(group, plural(kind), &KEEP).named(name);
                let scope = scope(kind, namespace);
                let holds = |(at, rule): &(&Option<String>, &RbacRule)| {
                    (at.is_none() || **at == scope) && rule.includes(&required)
                };
                assert!(rules.iter().any(holds), "{}: {required:?}", folder.display());
            }
        }
        count += 1;
    }
    assert!(count > 0);
    let _ = writeln!(std::io::stdout(), "rights of field bundles: {count} passed");
}

fn text_of_group(object: &Value) -> &str {
    text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group)
}
