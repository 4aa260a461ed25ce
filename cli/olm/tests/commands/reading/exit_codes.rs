//! Exit codes and messages of runs that fail (docs/design/cli.md#exit-codes-and-output), at least one for each
//! command.

use std::io::Read;
use std::process::Stdio;

use super::fixture::{command, olm};
use crate::fixture::{Ran, olm_in};

const SUBSCRIPTION: &str = "Subscription is an object of classic OLM: in v1 it is a ClusterExtension \
                            (olm.operatorframework.io/v1) with spec.namespace, and in spec.source.catalog packageName \
                            (here: pipe), channels (here: [fast]) and version. Upgrades stay within version: an exact one \
                            replaces startingCSV with installPlanApproval: Manual\n";

#[test]
fn failed_validation_has_its_exit_code_and_advice() {
    let subscription_file =
        format!("error: \"classic/subscription.yaml\" is not a directory\n{SUBSCRIPTION}");
    let no_schema = format!(
        "error: classic/subscription.yaml:1: document 1: object \
         '{{\"apiVersion\":\"operators.coreos.com/v1alpha1\",\"kind\":\"Subscription\",\"metadata\":{{\"name\":\"pipe\",\
         \"namespace\":\"operators\"}},\"spec\":{{\"channel\":\"fast\",\"name\":\"pipe\",\"source\":\
         \"community-operators\",\"sourceNamespace\":\"olm\"}}}} ' is missing root schema field [CATALOG-1]\nhint: {SUBSCRIPTION}\
         classic: 1 error\n"
    );
    for (args, stdout) in [
        (
            &["validate", "broken"][..],
            "error: broken/catalog.yaml:30: document 5: unknown package \"bar\" for channel \"b\" [CATALOG-1]\n\
             error: broken/catalog.yaml:22: document 4: error parsing bundle \"foo.v2\" version \"v2\": No Major.Minor.Patch elements found [CATALOG-1]\n\
             error: broken/catalog.yaml:35: document 6: cannot deprecate channel \"q\" for package \"foo\": channel not found [CATALOG-1]\n\
             error: broken/catalog.yaml:5: document 2: invalid package \"foo\": invalid channel \"a\": multiple channel heads found in graph: foo.v1, foo.v2 [CATALOG-1]\n\
             error: broken/catalog.yaml:1: document 1: invalid package \"foo\": invalid channel \"missing\": channel must contain at least one bundle [CATALOG-1]\n\
             broken: 5 errors\n",
        ),
        // Case seeds-s0-1: the range is not quoted
        (
            &["catalog", "validate", "unreadable"],
            "error: unreadable/catalog.yaml:9: document 2: error converting YAML to JSON: yaml: line 6: did not find expected comment or line break [CATALOG-1]\n\
              hint: catalog.yaml:9: quote it: skipRange: \">=1.0.0 <2.0.0\"\n\
             unreadable: 1 error\n",
        ),
        // Case seeds-s1-5
        (&["validate", "classic"], &no_schema),
    ] {
        let ran = olm(args);
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (3, stdout, ""), "{args:?}");
    }
    let cases: &[(&[&str], i32, &str)] = &[
        (&["validate", "classic/subscription.yaml"], 2, &subscription_file),
        (
            &["validate", "nowhere"],
            2,
            "error: SOURCE \"nowhere\" is not an existing directory, an image reference such as registry.example.com/team/catalog:v1, cluster, or cluster/NAME: error parsing image reference \
             \"nowhere\": repository name must be canonical\n",
        ),
        (
            &["validate", "cluster"],
            2,
            "error: validate checks a directory or an image, not the catalogs of a cluster\n",
        ),
    ];
    assert_failures(cases);
}

/// Runs each command line, which must fail with this exit code and standard error, without output.
fn assert_failures(cases: &[(&[&str], i32, &str)]) {
    for (args, code, stderr) in cases {
        let ran = olm(args);
        assert_eq!((ran.code, ran.stderr.as_str(), ran.stdout.as_str()), (*code, *stderr, ""), "{args:?}");
    }
}

#[test]
fn folder_with_the_name_cluster_is_not_taken_for_the_cluster() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("cluster/hub")).unwrap();
    for source in ["cluster", "cluster/hub"] {
        let ls = ["catalog", "ls", source, "--kubeconfig", "/nonexistent/config"];
        let ran = Ran::from(olm_in(folder.path(), &ls).output().unwrap());
        assert!(ran.stderr.starts_with("error: no access to a cluster: "), "{}", ran.stderr);
    }
    let ran = Ran::from(olm_in(folder.path(), &["catalog", "ls", "./cluster"]).output().unwrap());
    assert!(!ran.stderr.contains("no access to a cluster"), "{}", ran.stderr);
}

#[test]
fn missing_package_or_version_has_its_exit_code_and_advice() {
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["catalog", "ls", "unreadable"],
            1,
            "error: unreadable: catalog.yaml:9: document 2: error converting YAML to JSON: yaml: line 6: did not find \
             expected comment or line break\nrun `validate` for all errors of the catalog\n",
        ),
        (
            &["catalog", "ls", "r.example/a:v1", "--ca-dir", "none"],
            2,
            "error: --ca-dir none: no such directory\n",
        ),
        (
            &["catalog", "show", "catalog", "nope"],
            4,
            "error: catalog has no package \"nope\"; its packages: lamp, pipe\n",
        ),
        (
            &["catalog", "show", "catalog", "pipe@9.9.9"],
            4,
            "error: package \"pipe\" has no version \"9.9.9\"; it has: 2.0.0, 1.2.0, 1.1.0, 1.0.0, 1.3.0\n",
        ),
        (
            &["catalog", "show", "catalog", "lamp/lamp.v2"],
            4,
            "error: package \"lamp\" has no bundle \"lamp.v2\"; it has: lamp.v1.0.0\n",
        ),
        (
            &["catalog", "show", "catalog", "pipe@1.x"],
            2,
            "error: pipe@1.x: expected one version such as 1.2.3: No Major.Minor.Patch elements found\n",
        ),
    ];
    assert_failures(cases);
}

#[test]
fn missing_channel_or_cluster_has_its_exit_code_and_advice() {
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["catalog", "bundles", "catalog", "pipe", "--channel", "nope"],
            4,
            "error: package \"pipe\" has no channel \"nope\"; its channels: fast, slow\n",
        ),
        (
            &["catalog", "channels", "catalog", "pip"],
            4,
            "error: catalog has no package \"pip\"; similar names: pipe\n",
        ),
        (
            &["catalog", "graph", "catalog", "pipe", "--channel", "nope"],
            4,
            "error: package \"pipe\" has no channel \"nope\"; its channels: fast, slow\n",
        ),
        (
            &["catalog", "graph", "catalog", "pipe", "--from", "pipe.v1"],
            4,
            "error: package \"pipe\" has no bundle \"pipe.v1\"; similar names: pipe.v1.0.0, pipe.v1.1.0, pipe.v1.2.0, \
             pipe.v1.3.0\n`resolve --installed NAME@VERSION` resolves the upgrade of a bundle that is no longer in a catalog\n",
        ),
        (
            &["catalog", "render", "unreadable"],
            1,
            "error: unreadable: catalog.yaml:9: document 2: error converting YAML to JSON: yaml: line 6: did not find \
             expected comment or line break\nrun `validate` for all errors of the catalog\n",
        ),
        (
            &["catalog", "ls", "--kubeconfig", "/nonexistent/config"],
            1,
            "error: no access to a cluster: failed to read kubeconfig from '\"/nonexistent/config\"': No such file or \
             directory (os error 2)\nspecify a kubeconfig file with --kubeconfig or $KUBECONFIG\n",
        ),
    ];
    assert_failures(cases);
}

#[test]
fn catalog_diff_has_its_exit_codes() {
    let changed = olm(&["catalog", "diff", "skipped", "skipped-next", "--exit-code"]);
    assert_eq!((changed.code, changed.stderr.as_str()), (5, ""));
    assert_eq!(changed.stdout, olm(&["catalog", "diff", "skipped", "skipped-next"]).stdout);
    // A package of one catalog can be compared.
    let lamp = olm(&["catalog", "diff", "skipped", "skipped-next", "--package", "lamp", "--exit-code"]);
    assert_eq!(lamp.code, 5, "{}", lamp.stderr);
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["catalog", "diff", "skipped", "skipped-next", "--package", "nope"],
            4,
            "error: skipped has no package \"nope\"; its packages: example\n",
        ),
        (
            &["catalog", "diff", "cluster", "skipped"],
            2,
            "error: cluster is all catalogs of the cluster: choose one, such as cluster/NAME\n",
        ),
    ];
    assert_failures(cases);
}

#[test]
fn catalog_verify_has_its_exit_codes() {
    let found = olm(&["catalog", "verify", "broken", "--no-images"]);
    assert_eq!((found.code, found.stderr.as_str()), (3, ""));
    assert!(
        found.stdout.ends_with("broken: 2 packages, 2 bundles, 0 images: 5 findings\n"),
        "{}",
        found.stdout
    );
    let ignored = olm(&["catalog", "verify", "broken", "--no-images", "--ignore", "CATALOG-1"]);
    assert_eq!(ignored.code, 0, "{}", ignored.stdout);
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["catalog", "verify", "catalog", "--no-images", "--package", "nope"],
            4,
            "error: catalog has no package \"nope\"; its packages: lamp, pipe\n",
        ),
        (
            &["catalog", "verify", "catalog", "--ca-dir", "none"],
            2,
            "error: --ca-dir none: no such directory\n",
        ),
    ];
    assert_failures(cases);
    let unknown = olm(&["catalog", "verify", "catalog", "--ignore", "X-1"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("no such rule; similar: CATALOG-1, "), "{}", unknown.stderr);
}

#[test]
fn wrong_usage_prints_usage_and_exits_2() {
    for args in [
        &["catalog", "graph", "catalog"][..],
        &["nonsense"],
        &["validate"],
        &["catalog", "ls", "--what"],
        &["resolve"],
    ] {
        let ran = olm(args);
        assert_eq!(ran.code, 2, "{args:?}");
        assert!(ran.stderr.contains("Usage: olm"), "{}", ran.stderr);
    }
    for args in [&[][..], &["catalog"]] {
        let ran = olm(args);
        assert_eq!(ran.code, 2, "{args:?}");
        assert!(ran.stderr.contains("Examples:"), "{}", ran.stderr);
    }
}

// docs/design/catalogd.md#validation: the output of opm for programs, plus every finding.
#[test]
fn validate_json_contains_verdict_and_every_finding() {
    let ran = olm(&["validate", "broken", "--strict", "-o", "json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (3, ""));
    let result: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(result["passed"], false);
    assert_eq!(result["error"]["message"], "unknown package \"bar\" for channel \"b\"");
    let findings = result["findings"].as_array().unwrap();
    // Case seeds-s0-5
    let warnings: Vec<_> = findings.iter().filter(|finding| finding["severity"] == "warning").collect();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0]["message"], "properties[1].value of type \"vendor.note\" must not be null");
    assert_eq!((&warnings[0]["file"], &warnings[0]["line"]), (&"catalog.yaml".into(), &12.into()));
    assert_eq!(findings.len(), 6);
    let people = olm(&["validate", "broken", "--strict", "-o", "table"]);
    assert_eq!((people.code, people.stderr.as_str()), (3, ""));
    assert_eq!(people.stdout, olm(&["validate", "broken", "--strict"]).stdout);
}

#[test]
fn closed_standard_output_is_not_a_failure() {
    assert_eq!(without_reader(&["catalog", "render", "catalog"]), (Some(0), String::new()));
}

/// Returns exit code and standard error of a run whose standard output is closed.
fn without_reader(args: &[&str]) -> (Option<i32>, String) {
    let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (child.wait().unwrap().code(), stderr)
}

/// The findings exceed the capacity of a pipe.
#[test]
fn closed_standard_output_keeps_the_validation_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let channel = |number| format!("---\nschema: olm.channel\npackage: none\nname: c{number}\n");
    let text: String = (0..1000).map(channel).collect();
    std::fs::write(folder.path().join("channels.yaml"), text).unwrap();
    for format in ["json", "yaml"] {
        let ended = without_reader(&["validate", folder.path().to_str().unwrap(), "-o", format]);
        assert_eq!(ended, (Some(3), String::new()), "{format}");
    }
}

#[test]
fn control_characters_in_catalog_names_are_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        "---\nschema: olm.package\nname: p\n---\nschema: olm.channel\npackage: p\nname: \"\\e[31mred\"\n";
    std::fs::write(folder.path().join("catalog.yaml"), text).unwrap();
    let ran = olm(&["catalog", "bundles", folder.path().to_str().unwrap(), "p", "--channel", "x"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""));
    assert_eq!(ran.stderr, "error: package \"p\" has no channel \"x\"; its channels: \\u{1b}[31mred\n");
}

#[test]
fn write_failure_on_standard_output_exits_1() {
    for args in [&["catalog", "ls", "catalog"][..], &["--help"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(args).stdout(full).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert_eq!(stderr, "error: cannot write to standard output: No space left on device (os error 28)\n");
    }
}
