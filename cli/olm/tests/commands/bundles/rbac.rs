//! `olm rbac required`, and the help of the other subcommands.

use serde_json::Value;

use super::fixture::{Ran, compare, olm};

#[test]
fn rbac_output_matches_golden_files() {
    let account = ["--service-account", "installer", "--role-name", "pipes"];
    for (name, args) in [
        ("rbac-help.txt", &["rbac", "required", "--help"][..]),
        ("rbac-grant-help.txt", &["rbac", "grant", "--help"]),
        ("rbac-who-help.txt", &["rbac", "who", "--help"]),
        (
            "rbac-api-roles.txt",
            &["rbac", "required", "old", "-n", "pipe-system", "-o", "table", "--aggregate-api-roles"],
        ),
        ("rbac.yaml", &["rbac", "required", "old", "-n", "pipe-system"]),
        ("rbac.txt", &["rbac", "required", "old", "-n", "pipe-system", "-o", "table"]),
        ("rbac-escalate.txt", &["rbac", "required", "old", "-n", "pipe-system", "-o", "table", "--escalate"]),
        (
            "rbac-operator-controller.yaml",
            &["rbac", "required", "old", "-n", "pipe-system", "--operator-controller"],
        ),
        (
            "rbac-account.yaml",
            &[&["rbac", "required", "new", "-n", "pipe-system", "--config", "single.yaml"][..], &account]
                .concat(),
        ),
    ] {
        let Ran { code, stdout, stderr } = olm(args);
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
        compare(name, &stdout);
    }
}

#[test]
fn json_and_yaml_contain_the_same_objects() {
    let args = |notation| ["rbac", "required", "old", "-n", "pipe-system", "-o", notation];
    let list: Value = serde_json::from_str(&olm(&args("json")).stdout).unwrap();
    assert_eq!((&list["apiVersion"], &list["kind"]), (&"v1".into(), &"List".into()));
    let documents = olm_yaml::all_from_slice(olm(&args("yaml")).stdout.as_bytes()).unwrap();
    assert_eq!(list["items"], Value::Array(documents));
}

#[test]
fn extension_file_sets_namespace_config_service_account_and_role_name() {
    let text = std::fs::read_to_string(super::fixture::data().join("extension.yaml")).unwrap();
    let text = text.replace("  config:\n", "  serviceAccount: {name: keeper}\n  config:\n");
    let ran = super::fixture::olm_with(&["rbac", "required", "new", "-f", "-"], &text);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let documents = olm_yaml::all_from_slice(ran.stdout.as_bytes()).unwrap();
    let names: Vec<String> = documents
        .iter()
        .map(|one| format!("{} {}", one["kind"].as_str().unwrap(), one["metadata"]["name"].as_str().unwrap()))
        .collect();
    assert_eq!(
        names,
        [
            "ServiceAccount keeper",
            "ClusterRole pipe-installer",
            "ClusterRoleBinding pipe-installer",
            "Role pipe-installer",
            "RoleBinding pipe-installer",
        ]
    );
}

#[test]
fn package_name_is_resolved_from_catalogs() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = "registry.invalid/pipe:v1";
    let catalog = format!(
        "{{schema: olm.package, name: pipe}}\n---\n{{schema: olm.channel, package: pipe, name: a, entries: [{{name: pipe.v1.0.0}}]}}\n\
         ---\n{{schema: olm.bundle, package: pipe, name: pipe.v1.0.0, image: '{bundle}', properties: [{{type: olm.package, \
         value: {{packageName: pipe, version: 1.0.0}}}}]}}\n"
    );
    std::fs::write(folder.path().join("catalog.yaml"), catalog).unwrap();
    let catalog = folder.path().to_str().unwrap();
    let ran = olm(&["rbac", "required", "pipe", "-n", "pipe-system", "--catalog", catalog]);
    // The bundle is chosen. The registry does not exist.
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(
        ran.stderr.starts_with(&format!("pipe.v1.0.0 of catalog {catalog}: {bundle}\n")),
        "{}",
        ran.stderr
    );
    let ran = olm(&["rbac", "required", "lamp", "-n", "pipe-system", "--catalog", catalog]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("no bundles found for package \"lamp\""), "{}", ran.stderr);
}

#[test]
fn invalid_input_fails_with_advice() {
    for (args, code, expected) in [
        (&["rbac", "required"][..], 2, "  <NAME|BUNDLE>\n"),
        (&["rbac", "required", "old"], 2, "specify the namespace of the operator with --namespace"),
        (
            &["rbac", "required", "pipe", "-f", "extension.yaml"],
            2,
            "\"pipe\" is a package, but the ClusterExtension has a package, too",
        ),
        (
            &["rbac", "required", "pipe", "-n", "ns", "--version", "1.11 OR 1.13"],
            2,
            "invalid version expression",
        ),
        (
            &["rbac", "required", "old", "-n", "ns", "--config", "single.yaml"],
            3,
            "unknown field \"watchNamespace\"",
        ),
    ] {
        let ran = olm(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
    }
}
