//! Rules of the inline configuration (docs/design/bundles.md#install-modes,
//! docs/design/bundles.md#inline-configuration).

use olm_bundle::{config_schema, config_warnings};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixture::Fixture;

const ALL: &[&str] = &["AllNamespaces"];
const OWN: &[&str] = &["OwnNamespace"];
const SINGLE: &[&str] = &["SingleNamespace"];
const OWN_SINGLE: &[&str] = &["OwnNamespace", "SingleNamespace", "MultiNamespace"];
const ALL_OWN: &[&str] = &["AllNamespaces", "OwnNamespace"];
const ALL_SINGLE: &[&str] = &["AllNamespaces", "SingleNamespace"];
const ALL_OWN_SINGLE: &[&str] = &["AllNamespaces", "OwnNamespace", "SingleNamespace"];

const PREFIX: &str = "invalid ClusterExtension configuration: invalid configuration: ";
const REQUIRED: &str = "required field \"watchNamespace\" is missing";
const OWN_RULE: &str = "must be \"install-ns\" (the namespace where the operator is installed) because this operator \
     only supports OwnNamespace install mode";
const PATTERN: &str = "field \"watchNamespace\" must match pattern \"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$\"";

fn own_format(value: &str) -> String {
    format!(
        "invalid format for field \"watchNamespace\": '{value}' is not valid ownNamespaceInstallMode: invalid value \
         \"{value}\": {OWN_RULE}"
    )
}

/// Error text for a bundle that only supports OwnNamespace (case additions-a37).
fn own_required() -> String {
    format!("{REQUIRED}: {OWN_RULE}")
}

fn single_format() -> String {
    "invalid format for field \"watchNamespace\": 'install-ns' is not valid singleNamespaceInstallMode: invalid value \
     \"install-ns\": must be different from \"install-ns\" (the install namespace) because this operator uses \
     SingleNamespace install mode to watch a different namespace"
        .into()
}

fn several(findings: &[&str]) -> String {
    let lines: String = findings.iter().map(|finding| format!("\n  - {finding}")).collect();
    format!("multiple errors found:{lines}")
}

/// Result of rendering with this configuration, or without any.
fn outcome(modes: &[&str], config: Option<Value>) -> String {
    let mut bundle = Fixture::with_modes(modes);
    bundle.config = config;
    match bundle.render() {
        Ok(_) => "ok".into(),
        Err(error) => {
            assert!(error.is_invalid_configuration(), "{error}");
            let text = error.to_string();
            text.strip_prefix(PREFIX).unwrap_or(&text).to_string()
        }
    }
}

fn watch(namespace: &str) -> Option<Value> {
    Some(json!({"watchNamespace": namespace}))
}

#[test]
fn watch_namespace_outcomes_match_install_modes() {
    // docs/design/bundles.md#configuration-errors, cases bundles-25, bundles-26, bundles-27, bundles-28,
    // bundles-34, additions-a37
    let unset = || Some(json!({"watchNamespace": null}));
    let long = "A".repeat(70);
    let too_long = "field \"watchNamespace\" must have maximum length of 63 (len=70)";
    let too_short = "field \"watchNamespace\" must have minimum length of 1 (len=0)";
    let rows: Vec<(&[&str], Option<Value>, String)> = vec![
        (ALL, None, "ok".into()),
        (ALL, Some(json!({})), "ok".into()),
        (ALL, Some(json!(null)), "invalid type: got null, want object".into()),
        (ALL, Some(json!(true)), "invalid type: got boolean, want object".into()),
        (ALL, watch("x"), "unknown field \"watchNamespace\"".into()),
        (OWN, None, own_required()),
        (SINGLE, Some(json!({})), REQUIRED.into()),
        (OWN_SINGLE, unset(), REQUIRED.into()),
        (OWN, unset(), own_required()),
        (
            OWN,
            Some(json!({"watchNamespace": 5})),
            "invalid type for field \"watchNamespace\": got number, want string".into(),
        ),
        (OWN, watch("install-ns"), "ok".into()),
        (OWN, watch("other"), own_format("other")),
        (OWN, watch(""), own_format("")),
        (SINGLE, watch("other"), "ok".into()),
        (SINGLE, watch("install-ns"), single_format()),
        (SINGLE, watch("invalid-namespace-"), PATTERN.into()),
        (SINGLE, watch(""), several(&[too_short, PATTERN])),
        (SINGLE, watch(&long), several(&[too_long, PATTERN])),
        (SINGLE, watch(&"a".repeat(63)), "ok".into()),
        (SINGLE, watch(&"a".repeat(64)), too_long.replace("70", "64")),
        (OWN_SINGLE, watch("any"), "ok".into()),
        (OWN, Some(json!({"foo": 1})), several(&[&own_required(), "unknown field \"foo\""])),
        (ALL_OWN, watch("other"), own_format("other")),
        (ALL_OWN, watch("install-ns"), "ok".into()),
        (ALL_SINGLE, watch(""), several(&[too_short, PATTERN])),
        (ALL_SINGLE, watch("install-ns"), single_format()),
        (ALL_OWN_SINGLE, watch("install-ns"), "ok".into()),
        (ALL_OWN_SINGLE, watch("other"), "ok".into()),
        (
            ALL_OWN,
            Some(json!({"watchNamespace": 5})),
            "invalid type for field \"watchNamespace\": got number, want string".into(),
        ),
    ];
    for (modes, config, expected) in rows {
        assert_eq!(outcome(modes, config.clone()), expected, "{modes:?} {config:?}");
    }
}

#[test]
fn deployment_config_is_validated_by_schema() {
    // docs/design/bundles.md#configuration-errors, docs/design/bundles.md#author-checks; cases bundles-32, bundles-33
    let rows = [
        (json!({"deploymentConfig": {}}), "ok".into()),
        (
            json!({"deploymentConfig": {"env": "x"}}),
            "invalid type for field \"deploymentConfig.env\": got string, want array".into(),
        ),
        (json!({"deploymentConfig": {"selector": {}}}), "unknown field \"selector\"".into()),
        (
            json!({"deploymentConfig": {"nodeSelector": {"kubernetes.io/os": 1}}}),
            "invalid type for field \"deploymentConfig.nodeSelector.kubernetes.io~1os\": got number, want string".into(),
        ),
        (
            json!({"deploymentConfig": {"env": [{"value": 5}]}}),
            several(&[
                "required field \"deploymentConfig.env.0.name\" is missing",
                "invalid type for field \"deploymentConfig.env.0.value\": got number, want string",
            ]),
        ),
        (
            json!({"deploymentConfig": {"tolerations": [{"key": 1, "effect": 2}]}}),
            several(&[
                "invalid type for field \"deploymentConfig.tolerations.0.effect\": got number, want string",
                "invalid type for field \"deploymentConfig.tolerations.0.key\": got number, want string",
            ]),
        ),
        (
            json!({"deploymentConfig": {"resources": {"limits": {"cpu": true}}}}),
            "invalid type for field \"deploymentConfig.resources.limits.cpu\": got boolean, want string or number".into(),
        ),
        (json!({"deploymentConfig": {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}}), "ok".into()),
        (json!({"deploymentConfig": {"tolerations": [{"operator": "Bogus"}]}}), "ok".into()),
        (json!({"deploymentConfig": {"env": [{"name": "A", "bogus": 1}]}}), "ok".into()),
        (json!({"b": 1, "a": 2}), several(&["unknown field \"a\"", "unknown field \"b\""])),
        (
            json!({"z": 1, "deploymentConfig": {"selector": {}, "volumes": [{}]}}),
            several(&[
                "required field \"deploymentConfig.volumes.0.name\" is missing",
                "unknown field \"selector\"",
                "unknown field \"z\"",
            ]),
        ),
    ];
    for (config, expected) in rows {
        assert_eq!(outcome(ALL, Some(config.clone())), expected, "{config}");
    }
}

#[test]
fn findings_above_100_are_counted() {
    let config: Value = (0..150).map(|number| (format!("f{number:03}"), json!(1))).collect();
    let text = outcome(ALL, Some(config));
    assert_eq!(text.lines().count(), 102);
    assert!(text.ends_with("unknown field \"f099\"\n  - and 50 more"), "{text}");
}

#[test]
fn null_fields_are_unset() {
    // docs/design/bundles.md#author-checks
    let rows = [
        (json!({"deploymentConfig": null}), "ok".into()),
        (json!({"deploymentConfig": {"nodeSelector": null, "env": null, "affinity": null}}), "ok".into()),
        (json!({"deploymentConfig": {"env": [{"name": "A", "value": null}]}}), "ok".into()),
        (json!({"deploymentConfig": {"selector": null}}), "unknown field \"selector\"".into()),
        (
            json!({"deploymentConfig": {"env": [{"name": null}]}}),
            "required field \"deploymentConfig.env.0.name\" is missing".into(),
        ),
        (
            json!({"deploymentConfig": {"env": [null], "nodeSelector": {"a": null}}}),
            several(&[
                "required field \"deploymentConfig.env.0\" is missing",
                "required field \"deploymentConfig.nodeSelector.a\" is missing",
            ]),
        ),
    ];
    for (config, expected) in rows {
        assert_eq!(outcome(ALL, Some(config.clone())), expected, "{config}");
    }
    let deployment = |config: Value| {
        let spec =
            "install: {spec: {deployments: [{name: d, spec: {template: {spec: {nodeSelector: {a: b}}}}}]}}";
        Fixture::new(spec).config(json!({"deploymentConfig": config})).rendered("Deployment")
    };
    assert_eq!(deployment(json!({"nodeSelector": null})), deployment(json!(null)));
    assert_ne!(deployment(json!({"nodeSelector": {}})), deployment(json!(null)));
}

#[test]
fn invalid_quantity_in_deployment_config_is_an_error() {
    // Case bundles-31
    let config = json!({"deploymentConfig": {"resources": {"limits": {"cpu": "x"}}}});
    assert_eq!(
        outcome(ALL, Some(config)),
        "invalid deploymentConfig: failed to unmarshal deploymentConfig: quantities must match the regular \
         expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
}

#[test]
fn disabled_gates_reject_their_fields() {
    // Case bundles-30
    let mut bundle = Fixture::with_modes(ALL).config(json!({"deploymentConfig": {}}));
    bundle.deployment_config = false;
    assert_eq!(bundle.render_error(), format!("{PREFIX}unknown field \"deploymentConfig\""));
    let mut bundle = Fixture::with_modes(ALL_OWN).config(json!({"watchNamespace": "other"}));
    bundle.single_own_namespace = false;
    assert_eq!(bundle.render_error(), format!("{PREFIX}{}", own_format("other")));
    bundle.config = Some(json!({"watchNamespace": "install-ns"}));
    assert!(bundle.render().is_ok());
}

#[test]
fn unset_watch_namespace_selects_bundle_default() {
    // Case bundles-29
    let spec = "
installModes: [{type: AllNamespaces, supported: true}, {type: OwnNamespace, supported: true}]
install: {spec: {deployments: [{name: d}]}}
";
    let targets = |config: Option<Value>| {
        let mut bundle = Fixture::new(spec);
        bundle.config = config;
        bundle.rendered("Deployment")[0]["spec"]["template"]["metadata"]["annotations"]["olm.targetNamespaces"].clone()
    };
    assert_eq!(targets(None), "");
    assert_eq!(targets(Some(json!({"watchNamespace": null}))), "");
    assert_eq!(targets(watch("install-ns")), "install-ns");
}

#[test]
fn empty_install_namespace_is_checked_after_configuration() {
    // docs/design/bundles.md#target-check: the formats then accept any value.
    let mut bundle = Fixture::with_modes(OWN).config(json!({"watchNamespace": "zz"}));
    bundle.install_namespace = String::new();
    let error = bundle.render().unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid option(s): invalid target namespaces [zz]: supported install modes [OwnNamespace] do not support \
         target namespaces [zz]"
    );
    assert!(!error.is_invalid_configuration());
}

/// [`outcome`] with the gate `MultiWatchNamespaces` and without `SingleOwnNamespaceInstallSupport`.
fn outcome_of_list(modes: &[&str], config: Option<Value>) -> String {
    let mut bundle = Fixture::with_modes(modes);
    bundle.config = config;
    bundle.single_own_namespace = false;
    bundle.multi_watch_namespaces = true;
    match bundle.render() {
        Ok(_) => "ok".into(),
        Err(error) => {
            let text = error.to_string();
            text.strip_prefix(PREFIX).unwrap_or(&text).to_string()
        }
    }
}

const MULTI: &[&str] = &["MultiNamespace"];
const OWN_MULTI: &[&str] = &["MultiNamespace", "OwnNamespace"];
const ALL_OWN_MULTI: &[&str] = &["AllNamespaces", "MultiNamespace", "OwnNamespace"];

fn list(names: &[&str]) -> Option<Value> {
    Some(json!({"watchNamespaces": names}))
}

/// Distinct names of namespaces.
fn many(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}")).collect()
}

#[test]
fn watch_namespaces_requires_gate_and_multi_namespace_mode() {
    // docs/design/additions.md#several-namespaces
    let unknown = "unknown field \"watchNamespaces\"";
    let many = many(50);
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let rows: [(&[&str], Option<Value>, &str); 11] = [
        (MULTI, list(&["b", "a"]), "ok"),
        (MULTI, list(&["a"]), "ok"),
        (MULTI, list(&many), "ok"),
        (ALL_OWN_MULTI, None, "ok"),
        (ALL_OWN_MULTI, Some(json!({"watchNamespaces": null})), "ok"),
        (ALL_OWN_MULTI, Some(json!({"watchNamespaces": ["a"], "watchNamespace": null})), "ok"),
        (OWN_MULTI, list(&["a", "install-ns"]), "ok"),
        (OWN_MULTI, list(&["install-ns"]), "ok"),
        (OWN_MULTI, watch("install-ns"), "ok"),
        (ALL_OWN, list(&["a"]), unknown),
        (SINGLE, None, "unsupported bundle: bundle does not support AllNamespaces install mode"),
    ];
    for (modes, config, expected) in rows {
        assert_eq!(outcome_of_list(modes, config.clone()), expected, "{modes:?} {config:?}");
    }
    assert_eq!(outcome(ALL_OWN_MULTI, list(&["a"])), unknown);
}

#[test]
fn invalid_watch_namespaces_are_refused() {
    // docs/design/additions.md#several-namespaces
    let many = many(51);
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let rows: Vec<(&[&str], Option<Value>, String)> = vec![
        (
            MULTI,
            None,
            "required field \"watchNamespaces\" is missing: it or \"watchNamespaceSelector\" must be given".into(),
        ),
        (
            OWN_MULTI,
            None,
            "required field \"watchNamespace\" is missing: it, \"watchNamespaces\" or \"watchNamespaceSelector\" must \
             be given"
                .into(),
        ),
        (
            ALL_OWN_MULTI,
            Some(json!({"watchNamespace": "install-ns", "watchNamespaces": ["a"]})),
            "fields \"watchNamespace\" and \"watchNamespaces\" are mutually exclusive".into(),
        ),
        (MULTI, list(&[]), "field \"watchNamespaces\" must have at least 1 item (len=0)".into()),
        (MULTI, list(&many), "field \"watchNamespaces\" must have at most 50 items (len=51)".into()),
        (MULTI, list(&["a", "b", "a"]), "field \"watchNamespaces\" must not name a namespace twice".into()),
        (MULTI, list(&["a", "-"]), PATTERN.replace("watchNamespace", "watchNamespaces.1")),
        (
            MULTI,
            list(&["a", "install-ns"]),
            "invalid format for field \"watchNamespaces.1\": 'install-ns' is not valid multiNamespaceInstallMode: \
             invalid value \"install-ns\": must be different from \"install-ns\" (the install namespace) because this \
             operator does not support OwnNamespace install mode"
                .into(),
        ),
        (
            MULTI,
            Some(json!({"watchNamespaces": "a"})),
            "invalid type for field \"watchNamespaces\": got string, want array".into(),
        ),
    ];
    for (modes, config, expected) in rows {
        assert_eq!(outcome_of_list(modes, config.clone()), expected, "{modes:?} {config:?}");
    }
}

#[test]
fn each_watched_namespace_gets_roles() {
    // Case additions-a38
    let spec = "
installModes: [{type: MultiNamespace, supported: true}]
install:
  spec:
    permissions: [{serviceAccountName: a, rules: []}]
    deployments: [{name: d}]
webhookdefinitions: [{type: ValidatingAdmissionWebhook, generateName: v.x.y, deploymentName: d}]
";
    let mut bundle = Fixture::new(spec).config(json!({"watchNamespaces": ["b", "a"]}));
    bundle.multi_watch_namespaces = true;
    for kind in ["Role", "RoleBinding"] {
        let roles = bundle.rendered(kind);
        let places: Vec<&Value> = roles.iter().map(|role| &role["metadata"]["namespace"]).collect();
        assert_eq!(places, ["a", "b"]);
    }
    assert!(bundle.rendered("ClusterRole").is_empty());
    let annotations = &bundle.rendered("Deployment")[0]["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["olm.targetNamespaces"], "a,b");
    let selector = &bundle.rendered("ValidatingWebhookConfiguration")[0]["webhooks"][0]["namespaceSelector"];
    assert_eq!(selector["matchExpressions"][0]["values"], json!(["a", "b"]));
}

/// Generates values similar to a configuration.
fn any_config() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "watchNamespace",
        "watchNamespaces",
        "watchNamespaceSelector",
        "matchLabels",
        "matchExpressions",
        "key",
        "operator",
        "values",
        "deploymentConfig",
        "env",
        "name",
        "value",
        "tolerations",
        "effect",
        "resources",
        "limits",
        "cpu",
        "affinity",
        "nodeAffinity",
        "volumes",
        "volumeMounts",
        "nodeSelector",
        "annotations",
        "valueFrom",
        "a/b",
        "~",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec!["", "install-ns", "x", "1Gi", "1e", "Exists", "\u{2028}'\"\\"])
            .prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|entries| entries
                .into_iter()
                .map(|(key, value)| (key.to_string(), value))
                .collect()),
        ]
    })
}

proptest! {
    /// Any configuration is accepted or rejected deterministically.
    #[test]
    fn configuration_outcome_is_deterministic(config in any_config(), deep in any::<bool>(), modes in 1usize..16) {
        let names = ["AllNamespaces", "MultiNamespace", "OwnNamespace", "SingleNamespace"];
        let modes: Vec<&str> = (0..4).filter(|bit| modes >> bit & 1 == 1).map(|bit| names[bit]).collect();
        let config = if deep { json!({"deploymentConfig": config}) } else { config };
        let mut bundle = Fixture::with_modes(&modes).config(config.clone());
        bundle.multi_watch_namespaces = true;
        let first = bundle.render();
        prop_assert_eq!(&first, &bundle.render());
        let loaded = bundle.load().unwrap();
        prop_assert_eq!(config_warnings(&loaded, &config), config_warnings(&loaded, &config));
        if let Err(error) = first {
            prop_assert!(error.is_invalid_configuration(), "{}", error);
        }
    }
}

#[test]
fn config_schema_lists_required_fields_and_definitions() {
    let shown = |modes, deployment_config| {
        config_schema(&Fixture::with_modes(modes).load().unwrap(), deployment_config, false)
    };
    let schema = shown(OWN_SINGLE, true);
    assert_eq!(schema["required"], json!(["watchNamespace"]));
    let deployment_config = &schema["properties"]["deploymentConfig"];
    assert_eq!(deployment_config["additionalProperties"], json!(false));
    assert_eq!(deployment_config["properties"]["env"]["items"], json!({"$ref": "#/definitions/EnvVar"}));
    assert_eq!(schema["definitions"]["EnvVar"]["required"], json!(["name"]));
    let plain = shown(ALL, false);
    assert_eq!(plain["properties"], json!({}));
    assert!(plain.get("definitions").is_none());
}
