//! Inline configuration (spec 04 §§8–9).

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
const PATTERN: &str = "field \"watchNamespace\" must match pattern \"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$\"";

fn own_format(value: &str) -> String {
    format!(
        "invalid format for field \"watchNamespace\": '{value}' is not valid ownNamespaceInstallMode: invalid value \
         \"{value}\": must be \"install-ns\" (the namespace where the operator is installed) because this operator \
         only supports OwnNamespace install mode"
    )
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

/// `None` stands for no configuration at all.
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
fn results_of_the_specification() {
    // spec 04 §9.5, changed by §9.7; acceptance 25, 26, 27, 28, 34
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
        (OWN, None, REQUIRED.into()),
        (SINGLE, Some(json!({})), REQUIRED.into()),
        (OWN_SINGLE, unset(), REQUIRED.into()),
        (OWN, unset(), REQUIRED.into()),
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
        (OWN, Some(json!({"foo": 1})), several(&[REQUIRED, "unknown field \"foo\""])),
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
fn deployment_configuration_is_checked_in_depth() {
    // spec 04 §9.5, §9.7; acceptance 32, 33
    let rows = [
        (json!({"deploymentConfig": {}}), "ok".into()),
        (json!({"deploymentConfig": null}), "required field \"deploymentConfig\" is missing".into()),
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
            json!({"deploymentConfig": {"nodeSelector": null}}),
            "required field \"deploymentConfig.nodeSelector\" is missing".into(),
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
fn values_beyond_the_schema_are_refused_as_well() {
    // spec 04 acceptance 31
    let config = json!({"deploymentConfig": {"resources": {"limits": {"cpu": "x"}}}});
    assert_eq!(
        outcome(ALL, Some(config)),
        "invalid deploymentConfig: failed to unmarshal deploymentConfig: quantities must match the regular \
         expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
}

#[test]
fn gates_hide_what_they_guard() {
    // spec 04 acceptance 30
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
fn unset_means_the_default_of_the_bundle() {
    // spec 04 acceptance 29
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
fn without_install_namespace_the_options_are_checked_last() {
    // spec 04 §16: the formats accept anything then
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

#[test]
fn the_schema_can_be_shown() {
    let schema = olm_bundle::config_schema(&Fixture::with_modes(OWN_SINGLE).load().unwrap(), true);
    assert_eq!(schema["required"], json!(["watchNamespace"]));
    let deployment_config = &schema["properties"]["deploymentConfig"];
    assert_eq!(deployment_config["additionalProperties"], json!(false));
    assert_eq!(deployment_config["properties"]["env"]["items"], json!({"$ref": "#/definitions/EnvVar"}));
    assert_eq!(schema["definitions"]["EnvVar"]["required"], json!(["name"]));
    let plain = olm_bundle::config_schema(&Fixture::with_modes(ALL).load().unwrap(), false);
    assert_eq!(plain["properties"], json!({}));
    assert!(plain.get("definitions").is_none());
}
