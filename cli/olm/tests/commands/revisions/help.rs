use super::fixture::{compare, olm};

#[test]
fn help_matches_golden_files() {
    for command in ["status", "history", "rollback"] {
        let ran = olm(&[command, "--help"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
        compare(&format!("{command}-help.txt"), &ran.stdout);
    }
}

#[test]
fn wrong_usage_exits_2() {
    for args in [
        &["history"][..],
        &["rollback"],
        &["rollback", "pipe", "--wait", "--dry-run=client"],
        &["status", "pipe", "-o", "xml"],
    ] {
        assert_eq!(olm(args).code, 2, "{args:?}");
    }
}
