use k8s_openapi::api::authorization::v1::ResourceRule;
use serde_json::json;

use super::super::text::text;
use super::*;

const GROUP: &str = "example.com";

fn api(kind: &str, scope: &str) -> ApiKind {
    ApiKind {
        kind: kind.to_owned(),
        group: GROUP.to_owned(),
        resource: format!("{}s", kind.to_lowercase()),
        versions: vec!["v1".to_owned()],
        scope: scope.to_owned(),
    }
}

fn owned(owner: &str, kind: &str, scope: &str) -> OwnedKind {
    OwnedKind { owner: owner.to_owned(), api: api(kind, scope) }
}

fn rule(resource: &str, verbs: &[&str]) -> ResourceRule {
    ResourceRule {
        api_groups: Some(vec![GROUP.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: None,
        verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
    }
}

fn extension(name: &str, config: Value, status: Value) -> Extension {
    let object = json!({
        "spec": {"namespace": name, "source": {"catalog": {"packageName": format!("{name}-operator")}},
            "config": {"inline": config}},
        "status": status,
    });
    Extension::read(name.to_owned(), &object)
}

fn installed() -> Value {
    json!({"install": {"bundle": {"version": "1.0.0"}}})
}

fn facts() -> Facts {
    Facts { namespace: "my-team".to_owned(), lists_api_services: true, ..Facts::default() }
}

#[test]
fn watched_namespaces_come_from_status_then_deployment_then_configuration() {
    let reported = |targets: Value| {
        let mut status = installed();
        status["targetNamespaces"] = targets;
        status
    };
    let (all, mine, other) = (Some(vec![""]), Some(vec!["my-team"]), Some(vec!["other"]));
    let (status, annotation, config) = (
        "status.targetNamespaces",
        "annotation olm.targetNamespaces of the Deployment",
        "spec.config.inline",
    );
    // Annotation of the Deployment: "-" for none.
    for (config_value, status_value, deployment, expected) in [
        (json!(null), installed(), None, (Watched::NoOperator, None, None)),
        (json!(null), installed(), Some("-"), (Watched::Yes, all.clone(), Some(config))),
        (json!({"watchNamespace": "my-team"}), installed(), None, (Watched::Yes, mine.clone(), Some(config))),
        (json!({"watchNamespace": "other"}), installed(), None, (Watched::No, other.clone(), Some(config))),
        (json!({"watchNamespace": null}), installed(), Some("-"), (Watched::Yes, all.clone(), Some(config))),
        (
            json!({"watchNamespaces": ["other", "my-team"]}),
            installed(),
            None,
            (Watched::Yes, Some(vec!["other", "my-team"]), Some(config)),
        ),
        (
            json!({"watchNamespaceSelector": {"matchLabels": {"a": "b"}}}),
            installed(),
            Some("-"),
            (Watched::Unknown, None, None),
        ),
        (
            json!({"watchNamespace": "my-team"}),
            installed(),
            Some("other"),
            (Watched::No, other.clone(), Some(annotation)),
        ),
        (
            json!({"watchNamespace": "my-team"}),
            reported(json!(["other"])),
            Some("my-team"),
            (Watched::No, other, Some(status)),
        ),
        (json!(null), reported(json!([""])), Some("my-team"), (Watched::Yes, all, Some(status))),
        (json!(null), json!(null), None, (Watched::NotInstalled, None, None)),
    ] {
        let mut facts = facts();
        facts.extensions = Some(vec![extension("lamp", config_value.clone(), status_value.clone())]);
        let targets = |one: &str| (one != "-").then(|| vec![one.to_owned()]);
        let deployment = deployment.map(|one| ("lamp".to_owned(), targets(one)));
        facts.deployments = Deployments { targets: deployment.into_iter().collect(), extent: Extent::All };
        let watch = &join(&facts).operators[0].watch;
        let found = watch.target_namespaces.as_ref();
        let found = found.map(|all| all.iter().map(String::as_str).collect());
        assert_eq!((watch.watched, found, watch.source), expected, "{config_value} {status_value}");
    }
}

#[test]
fn cluster_administrator_gets_operators_with_apis_and_permissions() {
    let mut facts = facts();
    facts.extensions = Some(vec![
        extension("lamp", json!(null), installed()),
        extension("pipe", json!({"watchNamespace": "other"}), installed()),
        extension("new", json!(null), json!(null)),
    ]);
    facts.owned = vec![
        owned("lamp", "Lamp", "Namespaced"),
        owned("lamp", "Bulb", "Namespaced"),
        owned("lamp", "Grid", "Cluster"),
    ];
    facts.deployments = Deployments { targets: [("lamp".to_owned(), None)].into(), extent: Extent::All };
    facts.rules = Rules(vec![rule("lamps", &["*"]), rule("grids", &["*"])]);
    let view = ["get", "list", "watch"].map(str::to_owned);
    let confirmed = Allowed { verbs: view.into(), ..Allowed::default() };
    facts.cluster_scoped = [((GROUP.to_owned(), "grids".to_owned()), confirmed)].into();
    let joined = join(&facts);
    assert_eq!(joined.missing, []);
    let expected = "\
OPERATOR   VERSION   WATCHED   KIND   GROUP         VERSIONS   SCOPE        YOU MAY
lamp       1.0.0     yes       Bulb   example.com   v1         Namespaced   none
lamp       1.0.0     -         Grid   example.com   v1         Cluster      view
lamp       1.0.0     yes       Lamp   example.com   v1         Namespaced   admin
new        -         -         -      -             -          -            -
pipe       1.0.0     no        -      -             -          -            -

For more permissions, ask a cluster administrator, who can run, for example for Bulb:
  olm rbac grant lamp --to user:NAME --role edit -n my-team --api bulbs.example.com
";
    assert_eq!(text(&joined), expected);
}

#[test]
fn user_without_cluster_permissions_gets_discovery_and_the_missing_ones() {
    let mut facts = facts();
    facts.owned = vec![owned("lamp", "Lamp", "Namespaced")];
    facts.discovered =
        Some(vec![api("Valve", "Namespaced"), api("Lamp", "Namespaced"), api("Grid", "Cluster")]);
    facts.rules = Rules(vec![rule("*", &["get", "list", "watch"])]);
    facts.incomplete = Some("webhook authorizer does not support user rule resolution".to_owned());
    let joined = join(&facts);
    let missing: Vec<_> = joined.missing.iter().map(|missing| missing.permission).collect();
    assert_eq!(missing, [LIST_EXTENSIONS, LIST_CRDS, LIST_DEPLOYMENTS]);
    let expected = "\
OPERATOR   VERSION   WATCHED   KIND    GROUP         VERSIONS   SCOPE        YOU MAY
lamp       -         unknown   Lamp    example.com   v1         Namespaced   view
unknown    -         -         Grid    example.com   v1         Cluster      none
unknown    -         unknown   Valve   example.com   v1         Namespaced   view

You may have more permissions than shown: webhook authorizer does not support user rule resolution. \
Check with kubectl auth can-i --list -n my-team.

You lack permissions that a cluster administrator can grant:
  list clusterextensions.olm.operatorframework.io: installed operators, their versions and the namespaces that they watch \
may be missing
  list customresourcedefinitions.apiextensions.k8s.io: the operator of an API may be unknown, and the list may contain \
APIs without an operator
  list deployments.apps: whether the namespace is watched is unknown for lamp

For more permissions, ask a cluster administrator, who can run, for example for Lamp:
  olm rbac grant lamp --to user:NAME --role edit -n my-team --api lamps.example.com
";
    assert_eq!(text(&joined), expected);
    // The Deployment in the namespace answers.
    facts.deployments = Deployments {
        targets: [("lamp".to_owned(), Some(vec!["my-team".to_owned()]))].into(),
        extent: Extent::Namespace,
    };
    let joined = join(&facts);
    assert_eq!(joined.operators[0].watch.watched, Watched::Yes);
    let missing: Vec<_> = joined.missing.iter().map(|missing| missing.permission).collect();
    assert_eq!(missing, [LIST_EXTENSIONS, LIST_CRDS]);
}

#[test]
fn empty_cluster_prints_that_it_has_no_operators() {
    let mut facts = facts();
    facts.extensions = Some(Vec::new());
    assert_eq!(text(&join(&facts)), "The cluster has no operators of OLM v1.\n");
}

#[test]
fn deployments_with_labels_of_an_unknown_extension_are_ignored_if_extensions_are_known() {
    let mut facts = facts();
    facts.deployments.targets = [("forged".to_owned(), Some(vec![String::new()]))].into();
    assert_eq!(join(&facts).operators.len(), 1);
    facts.extensions = Some(vec![extension("lamp", json!(null), installed())]);
    let names: Vec<_> = join(&facts).operators.into_iter().map(|operator| operator.name).collect();
    assert_eq!(names, ["lamp"]);
}

#[test]
fn request_names_the_first_api_below_edit_with_its_scope() {
    let all = ["create", "delete", "get", "list", "patch", "update", "watch"];
    let mut facts = facts();
    for (owned_kinds, discovered, expected) in [
        (vec![owned("lamp", "Lamp", "Namespaced")], None, ""),
        (
            vec![owned("lamp", "Grid", "Cluster")],
            None,
            "lamp --to user:NAME --role edit --all-namespaces --api grids",
        ),
        (
            vec![],
            Some(vec![api("Valve", "Namespaced")]),
            "OPERATOR --to user:NAME --role edit -n my-team --api valves",
        ),
    ] {
        (facts.owned, facts.discovered) = (owned_kinds, discovered);
        facts.rules = Rules(vec![rule("lamps", &all), rule("valves", &["get", "list", "watch"])]);
        let text = text(&join(&facts));
        let command = text.split_once("olm rbac grant ").map(|(_, command)| command).unwrap_or_default();
        let expected = if expected.is_empty() { String::new() } else { format!("{expected}.example.com\n") };
        assert_eq!(command, expected);
    }
}
