//! Complete outputs, compared with the files of `tests/golden`. `OLM_GOLDEN_WRITE=1` rewrites them. Review the
//! result.

use std::process::Command;

use super::fixture::{Ran, olm};
use crate::fixture::{compare, tests};

/// Names of the golden files, each with the arguments that produce it.
const CASES: &[(&str, &[&str])] = &[
    ("help.txt", &["--help"]),
    ("catalog-help.txt", &["catalog", "--help"]),
    ("system-install-help.txt", &["system", "install", "--help"]),
    ("system-upgrade-help.txt", &["system", "upgrade", "--help"]),
    ("system-status-help.txt", &["system", "status", "--help"]),
    ("system-uninstall-help.txt", &["system", "uninstall", "--help"]),
    ("ls-help.txt", &["catalog", "ls", "--help"]),
    ("show-help.txt", &["catalog", "show", "--help"]),
    ("graph-help.txt", &["catalog", "graph", "--help"]),
    ("render-help.txt", &["catalog", "render", "--help"]),
    ("validate-help.txt", &["validate", "--help"]),
    ("ls.txt", &["catalog", "ls", "catalog"]),
    ("ls.json", &["catalog", "ls", "catalog", "-o", "json"]),
    ("ls.yaml", &["catalog", "ls", "catalog", "-o", "yaml"]),
    ("show.txt", &["catalog", "show", "catalog", "pipe"]),
    ("show-version.txt", &["catalog", "show", "catalog", "pipe@1.3.0"]),
    ("show-bundle.json", &["catalog", "show", "catalog", "lamp/lamp.v1.0.0", "-o", "json"]),
    ("show.yaml", &["catalog", "show", "catalog", "pipe", "--output", "yaml"]),
    ("bundles.txt", &["catalog", "bundles", "catalog", "pipe"]),
    ("bundles-slow.txt", &["catalog", "bundles", "catalog", "pipe", "--channel", "slow"]),
    ("bundles.json", &["catalog", "bundles", "catalog", "pipe", "-o", "json"]),
    ("channels.txt", &["catalog", "channels", "catalog", "pipe"]),
    ("channels.yaml", &["catalog", "channels", "catalog", "pipe", "-o", "yaml"]),
    ("graph.txt", &["catalog", "graph", "catalog", "pipe"]),
    ("graph-slow.txt", &["catalog", "graph", "catalog", "pipe", "--channel", "slow"]),
    ("graph-classic.txt", &["catalog", "graph", "catalog", "pipe", "--semantics", "classic"]),
    ("graph.mmd", &["catalog", "graph", "catalog", "pipe", "--format", "mermaid"]),
    ("graph.svg", &["catalog", "graph", "catalog", "pipe", "--format", "svg"]),
    ("graph-from.svg", &["catalog", "graph", "skipped", "example", "--from", "1.0.0", "--format", "svg"]),
    ("graph.json", &["catalog", "graph", "catalog", "pipe", "--format", "json"]),
    ("graph.yaml", &["catalog", "graph", "catalog", "pipe", "-o", "yaml"]),
    ("graph-odd.txt", &["catalog", "graph", "odd", "odd"]),
    ("graph-odd-classic.txt", &["catalog", "graph", "odd", "odd", "--semantics", "classic"]),
    // Case additions-a14
    ("graph-skipped.txt", &["catalog", "graph", "skipped", "example"]),
    ("graph-skipped-classic.txt", &["catalog", "graph", "skipped", "example", "--semantics", "classic"]),
    // Case seeds-s0-1
    (
        "graph-minimum.txt",
        &["catalog", "graph", "catalog", "pipe", "--channel", "fast", "--minimum-edge", "1.2.0"],
    ),
    ("graph-from.txt", &["catalog", "graph", "skipped", "example", "--from", "example.v1.0.0"]),
    ("graph-from.mmd", &["catalog", "graph", "skipped", "example", "--from", "1.0.0", "--format", "mermaid"]),
    ("graph-from.json", &["catalog", "graph", "skipped", "example", "--from", "1.0.0", "-o", "json"]),
    ("graph-from-refused.txt", &["catalog", "graph", "catalog", "pipe", "--from", "pipe.v1.1.0"]),
    ("catalog-diff-help.txt", &["catalog", "diff", "--help"]),
    ("catalog-diff.txt", &["catalog", "diff", "skipped", "skipped-next"]),
    ("catalog-diff.json", &["catalog", "diff", "skipped", "skipped-next", "-o", "json"]),
    (
        "catalog-diff.yaml",
        &["catalog", "diff", "skipped", "skipped-next", "--package", "example", "-o", "yaml"],
    ),
    ("catalog-diff-same.txt", &["catalog", "diff", "catalog", "catalog", "--exit-code"]),
    ("catalog-verify-help.txt", &["catalog", "verify", "--help"]),
    ("catalog-verify.txt", &["catalog", "verify", "catalog", "--no-images"]),
    ("catalog-verify.json", &["catalog", "verify", "catalog", "--no-images", "-o", "json"]),
    ("catalog-prune-help.txt", &["catalog", "prune", "--help"]),
    ("catalog-mirror-help.txt", &["catalog", "mirror", "--help"]),
    ("resolve-help.txt", &["resolve", "--help"]),
    ("cluster-check-help.txt", &["cluster-check", "--help"]),
    ("crd-check-help.txt", &["crd-check", "--help"]),
    ("crd-check.txt", &["crd-check", "crds/old.yaml", "crds/safe.yaml"]),
    ("crd-check.json", &["crd-check", "crds/old.yaml", "crds/safe.yaml", "-o", "json"]),
    ("resolve.txt", &["resolve", "pipe", "--catalog", "catalog", "--channel", "default"]),
    (
        "resolve-upgrade.txt",
        &["resolve", "pipe", "--catalog", "catalog", "--installed", "pipe.v1.0.0", "--explain"],
    ),
    (
        "resolve-upgrade.json",
        &["resolve", "pipe", "--catalog", "catalog", "--installed", "1.0.0", "--explain", "-o", "json"],
    ),
    (
        "resolve-upgrade.yaml",
        &["resolve", "pipe", "--catalog", "catalog", "--installed", "pipe.v1.0.0@1.0.0", "-o", "yaml"],
    ),
    ("resolve-stay.txt", &["resolve", "lamp", "--catalog", "catalog", "--installed", "1.0.0"]),
    (
        "resolve-downgrade.txt",
        &[
            "resolve",
            "pipe",
            "--catalog",
            "catalog",
            "--installed",
            "1.2.0",
            "--version",
            "1.0.x",
            "--policy",
            "SelfCertified",
        ],
    ),
    // docs/design/additions.md#skipped-versions
    ("resolve-skipped.txt", &["resolve", "example", "--catalog", "skipped", "--installed", "1.0.0"]),
    (
        "resolve-priority.txt",
        &[
            "resolve",
            "demo",
            "--catalog",
            "twins/alpha",
            "--catalog",
            "twins/beta",
            "--priority",
            "twins/beta=5",
            "--explain",
        ],
    ),
    (
        "resolve-report.txt",
        &["resolve", "app", "--catalog", "deps", "--dependency-mode", "Report", "--with", "base@1.4.0"],
    ),
    (
        "resolve-held.txt",
        &[
            "resolve",
            "app",
            "--catalog",
            "deps",
            "--dependency-mode",
            "Check",
            "--installed",
            "1.0.0",
            "--explain",
        ],
    ),
    // docs/design/additions.md#upgrade-scope
    (
        "resolve-scope.txt",
        &["resolve", "app", "--catalog", "deps", "--upgrade-scope", "minor", "--installed", "1.0.0"],
    ),
    ("solve.txt", &["resolve", "app", "--catalog", "deps", "--solve"]),
    ("solve.json", &["resolve", "app", "--catalog", "deps", "--with-dependencies", "-o", "json"]),
    ("solve.yaml", &["resolve", "app", "--catalog", "deps", "--solve", "-o", "yaml"]),
    (
        "solve-manifests.yaml",
        &["resolve", "app", "--catalog", "deps", "--solve", "--manifests", "--namespace", "apps"],
    ),
    // Case additions-a32
    (
        "solve-group.txt",
        &["resolve", "ping", "--catalog", "deps", "--installed", "1.0.0", "--with", "pong@1.0.0", "--solve"],
    ),
    // docs/design/catalogd.md#writing-catalogs
    ("render.json", &["catalog", "render", "catalog"]),
    ("render.yaml", &["catalog", "render", "catalog", "-o", "yaml"]),
    ("validate.txt", &["validate", "catalog"]),
    ("validate-strict.json", &["catalog", "validate", "catalog", "--strict", "-o", "json"]),
];

#[test]
fn outputs_match_golden_files() {
    for (name, args) in CASES {
        let Ran { code, stdout, stderr } = olm(args);
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
        compare("golden", name, &stdout);
    }
}

// The documents show the drawings of the command (docs/authors/channels.md).
#[test]
fn pictures_of_the_documents_are_drawn_by_the_command() {
    for name in ["chain", "skip", "skip-range", "patches"] {
        let catalog = format!("graphs/{name}");
        let drawn = olm(&["catalog", "graph", &catalog, "my-operator", "--format", "svg"]).stdout;
        compare("../../../docs/authors/images", &format!("{name}.svg"), &drawn);
    }
}

/// A file that no case writes would never be compared.
#[test]
fn every_golden_file_has_a_case() {
    let folder = tests("golden");
    let mut found: Vec<_> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.retain(|name| {
        !CASES.iter().any(|(known, _)| known == name)
            && !name.starts_with("author-")
            && name != "kubectl-help.txt"
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn kubectl_plugin_name_appears_in_usage_and_examples() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-olm");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_olm"), &plugin).unwrap();
    let run = |args: &[&str]| Ran::from(Command::new(&plugin).args(args).env_clear().output().unwrap());
    let help = run(&["catalog", "channels", "--help"]);
    assert_eq!(help.code, 0);
    compare("golden", "kubectl-help.txt", &help.stdout);
    let wrong = run(&["catalog", "show"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("Usage: kubectl olm catalog show"), "{}", wrong.stderr);
}

// docs/design/catalogd.md#writing-catalogs: the output is deterministic, and renders to itself.
#[test]
fn rendered_catalog_renders_to_itself() {
    for notation in ["json", "yaml"] {
        let rendered = olm(&["catalog", "render", "catalog", "-o", notation]).stdout;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("catalog"), &rendered).unwrap();
        let again = olm(&["catalog", "render", folder.path().to_str().unwrap(), "-o", notation]);
        assert_eq!(again.stdout, rendered);
        let json = olm(&["catalog", "render", folder.path().to_str().unwrap()]).stdout;
        assert_eq!(json, olm(&["catalog", "render", "catalog"]).stdout, "{notation}");
    }
}
