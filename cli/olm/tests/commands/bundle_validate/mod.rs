//! `olm bundle validate` with the real binary, on a good bundle and on one with many faults, in a directory and in a
//! registry.

use std::collections::BTreeMap;
use std::path::PathBuf;

use olm_image::Image;
use olm_image::registry::Registry;
use serde_json::Value;

use crate::fixture::{Ran, bundle_files, olm_in, tests};

fn folder() -> PathBuf {
    tests("commands/bundle_validate")
}

/// Runs `olm bundle validate` in the directory of the bundles with a cleared environment.
fn validate(args: &[&str]) -> Ran {
    let args = [&["bundle", "validate"], args].concat();
    olm_in(&folder().join("data"), &args).output().unwrap().into()
}

fn compare(name: &str, printed: &str) {
    crate::fixture::compare("commands/bundle_validate/golden", name, printed);
}

// Case seeds-s0-6
#[test]
fn valid_bundle_passes_without_output() {
    for args in [&["good"][..], &["good", "--strict"], &["good", "--k8s-version", "v1.31.2"]] {
        let ran = validate(args);
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""), "{args:?}");
    }
    let ran = validate(&["good", "-o", "json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    compare("good.json", &ran.stdout);
}

#[test]
fn several_bundles_have_a_summary_and_reports_for_ci() {
    let args = ["good", "broken", "--ignore", "V1-1", "--ignore", "CSV-8"];
    for (format, name) in [
        ("table", "several.txt"),
        ("sarif", "several.sarif"),
        ("junit", "several.xml"),
        ("github", "several.github.txt"),
        ("json", "several.json"),
    ] {
        let ran = validate(&[&args[..], &["-o", format]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (3, ""), "{format}");
        for ignored in ["V1-1\"", "[V1-1]", "title=V1-1", "[CSV-8]"] {
            assert!(format == "sarif" || !ran.stdout.contains(ignored), "{format}: {ignored}");
        }
        compare(name, &ran.stdout.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    }
    let unknown = validate(&["good", "--ignore", "csv-8"]);
    assert_eq!(unknown.code, 2);
    assert!(
        unknown.stderr.starts_with("error: --ignore csv-8: no such rule; similar: CSV-1, "),
        "{}",
        unknown.stderr
    );
}

#[test]
fn invalid_bundle_reports_all_findings_at_once() {
    let ran = validate(&["broken"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (3, ""));
    compare("broken.txt", &ran.stdout);
    for format in ["json", "yaml"] {
        let ran = validate(&["broken", "-o", format]);
        assert_eq!((ran.code, ran.stderr.as_str()), (3, ""));
        compare(&format!("broken.{format}"), &ran.stdout);
    }
}

#[test]
fn warning_fails_validation_only_with_strict_and_note_never() {
    let bundle = tempfile::tempdir().unwrap();
    let path = bundle.path().to_str().unwrap();
    for (changed, level, message, strict) in [
        (
            ("  minKubeVersion: 1.30.0\n", ""),
            "note",
            "7: ClusterServiceVersion lamp.v1.2.0: spec.minKubeVersion: the minimum Kubernetes version is missing; \
             expected a version such as 1.26.0 [CSV-6]",
            0,
        ),
        (
            ("  displayName: Lamp\n", "  displayName: Lamp\n  colour: red\n"),
            "warning",
            "9: ClusterServiceVersion lamp.v1.2.0: spec.colour: unknown field, dropped when the bundle is installed: \
             check its spelling and its indentation [FIELD-1]",
            3,
        ),
    ] {
        for (name, text) in files("good") {
            let file = bundle.path().join(&name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            let text = String::from_utf8(text).unwrap().replace(changed.0, changed.1);
            std::fs::write(file, text).unwrap();
        }
        let message = format!(
            "{level}: {path}/manifests/lamp.clusterserviceversion.yaml:{message}\n{path}: 1 {level}\n"
        );
        for (args, code) in [(&[path][..], 0), (&[path, "--strict"], strict)] {
            let ran = validate(args);
            assert_eq!((ran.code, ran.stderr.as_str(), ran.stdout.as_str()), (code, "", message.as_str()));
        }
        let passed =
            |args: &[&str]| serde_json::from_str::<Value>(&validate(args).stdout).unwrap()["passed"].clone();
        assert_eq!(passed(&[path, "-o", "json"]), true);
        assert_eq!(passed(&[path, "-o", "json", "--strict"]), strict == 0);
    }
}

#[test]
fn rules_and_help_match_golden_files() {
    for (name, args) in [
        ("help.txt", &["--help"][..]),
        ("rules.txt", &["--rules"]),
        // As with --help, other arguments have no effect.
        ("rules.txt", &["broken", "--rules"]),
        ("rules.json", &["--rules", "-o", "json"]),
    ] {
        let ran = validate(args);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?}");
        compare(name, &ran.stdout);
    }
}

#[test]
fn wrong_usage_fails_with_exit_code_and_message() {
    for (args, code, message) in [
        (&[][..], 2, "required arguments were not provided"),
        (&["good", "--k8s-version", "new"], 2, "\"new\": expected a Kubernetes version such as 1.31"),
        (&["nowhere"], 2, "\"nowhere\" is neither an existing directory nor an image reference"),
        (&["good/manifests"], 1, "which has the directories manifests and metadata"),
        (&["good/manifests/lamps.crd.yaml"], 2, "is not a directory"),
    ] {
        let ran = validate(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{args:?}: {}", ran.stderr);
    }
}

fn files(bundle: &str) -> BTreeMap<String, Vec<u8>> {
    bundle_files(&folder().join("data").join(bundle))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_yields_the_same_findings_as_its_directory() {
    let registry = Registry::start().await.unwrap();
    let cas = tempfile::tempdir().unwrap();
    registry.write_ca(cas.path()).unwrap();
    registry.add_image("team/lamp-bundle", "broken", &Image::bundle(&files("broken")).unwrap());
    let reference = format!("{}/team/lamp-bundle:broken", registry.host());
    let args = [
        reference.clone(),
        "--ca-dir".into(),
        cas.path().to_str().unwrap().into(),
        "-o".into(),
        "json".into(),
    ];
    let ran =
        tokio::task::spawn_blocking(move || validate(&args.each_ref().map(String::as_str))).await.unwrap();
    assert_eq!((ran.code, ran.stderr.as_str()), (3, ""));
    let image: Value = serde_json::from_str(&ran.stdout).unwrap();
    let directory: Value = serde_json::from_str(&validate(&["broken", "-o", "json"]).stdout).unwrap();
    assert_eq!(image["findings"], directory["findings"]);
    assert!(image["digest"].as_str().unwrap().starts_with("sha256:"));
}
