//! `olm diff` of two bundles.

use serde_json::{Value, json};

use super::fixture::{Ran, compare, olm, olm_with};

#[test]
fn diff_output_matches_golden_files() {
    for (name, args) in [
        ("diff-help.txt", &["diff", "--help"][..]),
        ("diff.txt", &["diff", "old", "new", "--namespace", "pipe-system"]),
        ("diff.json", &["diff", "old", "new", "-n", "pipe-system", "-o", "json"]),
        (
            "diff-config.txt",
            &[
                "diff",
                "new",
                "new",
                "-n",
                "pipe-system",
                "--config",
                "single.yaml",
                "--old-config",
                "empty.yaml",
            ],
        ),
        ("diff-same.txt", &["diff", "old", "old", "-f", "extension.yaml", "--exit-code"]),
    ] {
        let Ran { code, stdout, stderr } = olm(args);
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
        compare(name, &stdout);
    }
}

#[test]
fn diff_never_prints_secret_values() {
    for notation in ["table", "json", "yaml"] {
        let ran = olm(&["diff", "old", "new", "-n", "ns", "-o", notation]);
        assert!(ran.stdout.contains("data.password"), "{}", ran.stdout);
        assert!(
            !ran.stdout.contains("old-password") && !ran.stdout.contains("new-password"),
            "{}",
            ran.stdout
        );
    }
}

#[test]
fn exit_code_reports_changes_with_exit_code_flag() {
    for (new, code) in [("new", 5), ("old", 0)] {
        let ran = olm(&["diff", "old", new, "-n", "ns", "--exit-code", "-o", "json"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (code, ""), "{new}");
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(answer["empty"], json!(code == 0));
    }
}

#[test]
fn invalid_input_fails_with_advice() {
    for (args, code, expected) in [
        (&["diff"][..], 2, "specify OLD and NEW, or a ClusterExtension with --extension or -f"),
        (&["diff", "new"], 2, "specify OLD and NEW, or a ClusterExtension with --extension or -f"),
        (&["diff", "old", "new"], 2, "specify the namespace of the operator with --namespace"),
        (
            &["diff", "old", "new", "-f", "-", "--config", "-"],
            2,
            "only one of the files can be standard input",
        ),
        (&["diff", "old", "new", "more"], 2, "unexpected value"),
        (&["diff", "old", "new", "-n", "ns", "--catalog", "cluster"], 2, "cannot be used with"),
        (&["diff", "new", "--extension", "pipe", "-n", "ns"], 2, "cannot be used with"),
        (
            &["diff", "new", "-f", "extension.yaml", "--old-config", "single.yaml"],
            2,
            "--old-config is for two bundles",
        ),
        (&["diff", "new", "-f", "extension.yaml"], 1, "specify a kubeconfig file with --kubeconfig"),
        (
            &["diff", "old", "new", "-n", "ns", "--config", "single.yaml"],
            3,
            "error: old: invalid ClusterExtension configuration",
        ),
    ] {
        let ran = olm(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
    }
    let ran = olm_with(
        &["diff", "new", "new", "-n", "ns", "--config", "-", "--old-config", "empty.yaml"],
        "watchNamespace: a",
    );
    assert!(ran.stdout.contains("inline.watchNamespace: added \"a\""), "{}{}", ran.stdout, ran.stderr);
}
