//! `olm config`.

use super::fixture::{Ran, compare, olm, olm_with};

#[test]
fn config_output_matches_golden_files() {
    for (name, args) in [
        ("config-help.txt", &["config", "explain", "--help"][..]),
        ("config-explain.txt", &["config", "explain", "./new"]),
        ("config-explain-field.txt", &["config", "explain", "./new", "deploymentConfig.resources"]),
        ("config-explain-list.txt", &["config", "explain", "./new", "deploymentConfig.env.valueFrom"]),
        ("config-example.yaml", &["config", "example", "./new"]),
    ] {
        let Ran { code, stdout, stderr } = olm(args);
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
        compare(name, &stdout);
    }
}

#[test]
fn example_is_accepted_by_render() {
    let example = olm(&["config", "example", "./new"]).stdout;
    let uncommented: String =
        example.lines().skip(1).map(|line| format!("{}\n", line.trim_start_matches("# "))).collect();
    for config in [example, uncommented] {
        let gates = "--feature-gates=MultiWatchNamespaces=true";
        let ran = olm_with(&["render", "./new", "-n", "pipe-system", "--config", "-", gates], &config);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{config}");
    }
}

#[test]
fn unknown_field_names_its_siblings() {
    let Ran { code, stderr, .. } = olm(&["config", "explain", "./new", "deploymentConfig.resource"]);
    assert_eq!(code, 4, "{stderr}");
    assert!(stderr.contains("unknown field \"deploymentConfig.resource\"; allowed here: "), "{stderr}");
    assert!(stderr.ends_with("; did you mean resources?\n"), "{stderr}");
}

// docs/design/cli.md#configuration-hints
#[test]
fn refused_configuration_gets_hints() {
    let config = r#"{"watchNamespce": "a", "nodeSelector": {}, "deploymentConfig": {"env": [{"nam": "A"}]}}"#;
    let Ran { code, stderr, .. } =
        olm_with(&["render", "./new", "-n", "pipe-system", "--config", "-"], config);
    assert_eq!(code, 3, "{stderr}");
    for line in [
        "  - unknown field \"nodeSelector\"",
        "hint: \"watchNamespce\": did you mean watchNamespace?",
        "hint: \"nam\" in deploymentConfig.env.0: did you mean name?",
        "hint: nodeSelector belongs in deploymentConfig",
    ] {
        assert!(stderr.lines().any(|one| one == line), "no {line:?} in {stderr}");
    }
}
