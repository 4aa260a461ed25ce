//! Rules of `watchNamespaceSelector` (docs/design/namespaces.md#selector).

use serde_json::{Value, json};

use crate::fixture::Fixture;

const MULTI: &[&str] = &["MultiNamespace"];
const OWN_MULTI: &[&str] = &["MultiNamespace", "OwnNamespace"];
const PREFIX: &str = "invalid ClusterExtension configuration: invalid configuration: ";

/// Install modes, selected namespaces and the outcome.
type Row<'a> = (&'a [&'a str], Option<&'a [&'a str]>, String);

/// Result of rendering with this configuration and these selected namespaces.
fn outcome(modes: &[&str], config: Value, selected: Option<&[&str]>) -> String {
    let mut bundle = Fixture::with_modes(modes).config(config);
    bundle.single_own_namespace = false;
    bundle.multi_watch_namespaces = true;
    bundle.selected_namespaces = selected.map(|names| names.iter().map(ToString::to_string).collect());
    match bundle.render() {
        Ok(_) => "ok".into(),
        Err(error) => {
            let text = error.to_string();
            assert_eq!(error.is_invalid_configuration(), text.starts_with(PREFIX), "{text}");
            text.strip_prefix(PREFIX).unwrap_or(&text).to_string()
        }
    }
}

fn labeled() -> Value {
    json!({"watchNamespaceSelector": {"matchLabels": {"team": "a"}}})
}

#[test]
fn selected_namespaces_must_suit_the_bundle() {
    let many: Vec<String> = (0..201).map(|number| format!("n{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let field = "field \"watchNamespaceSelector\"";
    let rows: [Row<'_>; 9] = [
        (MULTI, Some(&["b", "a"]), "ok".into()),
        (MULTI, Some(&["a"]), "ok".into()),
        (MULTI, Some(&many[..200]), "ok".into()),
        (MULTI, Some(&many), format!("{field} selects 201 namespaces, at most 200 are allowed")),
        (OWN_MULTI, Some(&["install-ns"]), "ok".into()),
        (
            MULTI,
            Some(&["a", "install-ns"]),
            format!(
                "{field} selects \"install-ns\" (the install namespace): this operator does not support OwnNamespace \
                 install mode"
            ),
        ),
        (MULTI, Some(&[]), "no namespace matches watchNamespaceSelector team=a".into()),
        (MULTI, None, format!("{field} needs a cluster: list the namespaces in \"watchNamespaces\" instead")),
        (&["AllNamespaces", "OwnNamespace"], Some(&["a"]), "unknown field \"watchNamespaceSelector\"".into()),
    ];
    for (modes, selected, expected) in rows {
        assert_eq!(outcome(modes, labeled(), selected), expected, "{modes:?} {selected:?}");
    }
}

fn assert_outcome(selector: &Value, expected: &str) {
    let config = json!({"watchNamespaceSelector": selector});
    assert_eq!(outcome(MULTI, config.clone(), Some(&["a"])), expected, "{config}");
}

#[test]
fn invalid_selector_is_refused_with_path() {
    let value = "\"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$\"";
    let rows = [
        (json!({"matchLabels": {"team": "a", "x.example/y": ""}}), "ok".to_owned()),
        (json!({}), "field \"watchNamespaceSelector\" must have at least 1 entry".into()),
        (
            json!({"matchLabels": {}}),
            "field \"watchNamespaceSelector.matchLabels\" must have at least 1 entry".into(),
        ),
        (
            json!({"matchExpressions": []}),
            "field \"watchNamespaceSelector.matchExpressions\" must have at least 1 item (len=0)".into(),
        ),
        (
            json!("team=a"),
            "invalid type for field \"watchNamespaceSelector\": got string, want object".into(),
        ),
        (
            json!({"matchLabel": {"team": "a"}}),
            "unknown field \"watchNamespaceSelector.matchLabel\", allowed: matchExpressions, matchLabels"
                .into(),
        ),
        (
            json!({"matchLabels": {"a b": "x"}}),
            "key \"a b\" of field \"watchNamespaceSelector.matchLabels\" is not a valid label key".into(),
        ),
        (
            json!({"matchLabels": {"team": "a b"}}),
            format!("field \"watchNamespaceSelector.matchLabels.team\" must match pattern {value}"),
        ),
        (
            json!({"matchLabels": {"team": 1}}),
            "invalid type for field \"watchNamespaceSelector.matchLabels.team\": got number, want string"
                .into(),
        ),
    ];
    for (selector, expected) in rows {
        assert_outcome(&selector, &expected);
    }
}

#[test]
fn invalid_expression_is_refused_with_path_and_allowed_values() {
    let path = "watchNamespaceSelector.matchExpressions.0";
    let rows = [
        (json!({"key": "team", "operator": "In", "values": ["a", "b"]}), "ok".to_owned()),
        (json!({"key": "team", "operator": "Exists", "values": []}), "ok".into()),
        (
            json!({"key": "team", "operator": "in", "values": ["a"]}),
            format!("field \"{path}.operator\" must be one of In, NotIn, Exists, DoesNotExist"),
        ),
        (json!({"key": "team", "operator": "NotIn"}), format!("required field \"{path}.values\" is missing")),
        (
            json!({"key": "team", "operator": "In", "values": []}),
            format!("field \"{path}.values\" must have at least 1 item (len=0)"),
        ),
        (
            json!({"key": "team", "operator": "Exists", "values": ["a"]}),
            format!("field \"{path}.values\" must have at most 0 items (len=1)"),
        ),
        (json!({"key": "team"}), format!("required field \"{path}.operator\" is missing")),
        (
            json!({"key": "team", "operator": "Exists", "value": "a"}),
            format!("unknown field \"{path}.value\", allowed: key, operator, values"),
        ),
    ];
    for (expression, expected) in rows {
        assert_outcome(&json!({"matchExpressions": [expression]}), &expected);
    }
}

#[test]
fn second_selection_of_namespaces_is_refused() {
    let mut both = labeled();
    both["watchNamespaces"] = json!(["a"]);
    let text = "fields \"watchNamespaces\" and \"watchNamespaceSelector\" are mutually exclusive";
    assert_eq!(outcome(OWN_MULTI, both.clone(), Some(&["a"])), text);
    both["watchNamespace"] = json!("install-ns");
    let text = "fields \"watchNamespace\", \"watchNamespaces\" and \"watchNamespaceSelector\" are mutually exclusive";
    assert_eq!(outcome(OWN_MULTI, both, Some(&["a"])), text);
}

#[test]
fn unmatched_selector_is_named_as_kubectl_writes_it() {
    let selector = json!({"matchLabels": {"team": "a"}, "matchExpressions": [
        {"key": "tier", "operator": "In", "values": ["x", "y"]}, {"key": "env", "operator": "NotIn", "values": ["z"]},
        {"key": "open", "operator": "Exists"}, {"key": "closed", "operator": "DoesNotExist"}]});
    let text = "no namespace matches watchNamespaceSelector team=a,tier in (x,y),env notin (z),open,!closed";
    assert_eq!(outcome(MULTI, json!({"watchNamespaceSelector": selector}), Some(&[])), text);
}

#[test]
fn each_selected_namespace_gets_roles() {
    let spec = "
installModes: [{type: MultiNamespace, supported: true}]
install: {spec: {permissions: [{serviceAccountName: a, rules: []}], deployments: [{name: d}]}}
";
    let mut bundle = Fixture::new(spec).config(labeled());
    bundle.multi_watch_namespaces = true;
    bundle.selected_namespaces = Some(vec!["b".into(), "a".into()]);
    let named = |names: &[&str]| {
        let mut bundle = Fixture::new(spec).config(json!({ "watchNamespaces": names }));
        bundle.multi_watch_namespaces = true;
        bundle.render()
    };
    assert_eq!(bundle.render(), named(&["a", "b"]));
}
