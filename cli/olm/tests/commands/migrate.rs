//! `olm migrate scan` with dumps of clusters, and `olm migrate plan` with an API server.

mod classic;
mod planning;

use std::fmt::Write;
use std::path::Path;

use crate::fixture::{Ran, olm_in, tests};

fn scan(folder: &Path, args: &[&str]) -> Ran {
    olm_in(folder, &[&["migrate", "scan"], args].concat()).output().unwrap().into()
}

#[test]
fn reports_of_a_dump_match_golden_files() {
    for (name, args, code) in [
        ("scan.txt", &["--from", "classic-cluster"][..], 4),
        ("scan.json", &["--from", "classic-cluster", "-n", "team", "-o", "json"], 4),
        ("scan-file.yaml", &["--from", "classic-cluster/catalogs.yaml", "-o", "yaml"], 0),
        ("scan-rules.txt", &["--rules"], 0),
        ("scan-help.txt", &["--help"], 0),
    ] {
        let ran = scan(&tests("data"), args);
        assert_eq!(ran.code, code, "{}", ran.stderr);
        let note =
            "note: no catalog was read, so that the installed bundles are not looked up; see --catalog\n";
        assert!(ran.stderr.is_empty() || ran.stderr == note, "{}", ran.stderr);
        crate::fixture::compare("commands/migrate", name, &ran.stdout);
    }
}

#[test]
fn unreadable_files_of_a_folder_are_skipped_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("dump/logs")).unwrap();
    std::fs::write(folder.path().join("dump/broken.yaml"), "a: [").unwrap();
    std::fs::write(folder.path().join("dump/logs/pod.log"), "a: [").unwrap();
    let ran = scan(folder.path(), &["--from", "dump"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "No package of classic OLM was found.\n"));
    assert!(ran.stderr.starts_with("warning: dump/broken.yaml is skipped: "), "{}", ran.stderr);
    let ran = scan(folder.path(), &["--from", "dump/broken.yaml"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.starts_with("error: dump/broken.yaml: "), "{}", ran.stderr);
}

#[test]
fn dump_with_500_subscriptions_is_classified() {
    let folder = tempfile::tempdir().unwrap();
    let description = "All about this operator.\\n".repeat(800);
    let mut text = String::new();
    for n in 0..500 {
        let metadata = |name: &str| format!("metadata:\n  name: {name}\n  namespace: ns-{n}\n");
        let _ = write!(
            text,
            "---\napiVersion: operators.coreos.com/v1\nkind: OperatorGroup\n{}spec: {{}}\n\
             ---\napiVersion: operators.coreos.com/v1alpha1\nkind: Subscription\n{}\
             spec: {{name: p{n}, channel: stable, source: hub, sourceNamespace: olm}}\n\
             status: {{installedCSV: p{n}.v1.0.0, currentCSV: p{n}.v1.0.0}}\n\
             ---\napiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\n{}\
             spec:\n  version: 1.0.0\n  description: \"{description}\"\n  installModes: [{{type: AllNamespaces, supported: true}}]\n\
             status: {{phase: Succeeded}}\n",
            metadata("group"),
            metadata("sub"),
            metadata(&format!("p{n}.v1.0.0")),
        );
    }
    text += "---\napiVersion: operators.coreos.com/v1alpha1\nkind: CatalogSource\nmetadata: {name: hub, namespace: olm}\n\
             spec: {image: r.example/hub:v1}\n";
    std::fs::write(folder.path().join("dump.yaml"), text).unwrap();
    let ran = scan(folder.path(), &["--from", "dump.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("\n500 packages: 500 ready, with a setting\n"), "{}", ran.stdout);
}
