//! Catalogs in which an object, or a key of an object, occurs twice.

use std::fs;
use std::path::Path;

use crate::fixture::{Ran, olm_in};

fn package(image: &str) -> String {
    format!(
        "schema: olm.package\nname: lamp\ndefaultChannel: stable\n---\nschema: olm.channel\npackage: lamp\nname: stable\n\
         entries: [{{name: lamp.v1.0.0}}]\n---\nschema: olm.bundle\npackage: lamp\nname: lamp.v1.0.0\nimage: {image}\n\
         properties: [{{type: olm.package, value: {{packageName: lamp, version: 1.0.0}}}}]\n"
    )
}

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn olm(root: &Path, line: &str) -> Ran {
    olm_in(root, &line.split_whitespace().collect::<Vec<_>>()).output().unwrap().into()
}

#[test]
fn package_that_occurs_twice_is_an_error_of_each_reader() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(root, "all/v1/lamp.yaml", &package("r.example/a:v1"));
    write(root, "all/v2/lamp.yaml", &package("r.example/a:v2"));
    for line in [
        "catalog ls all",
        "catalog show all lamp",
        "catalog bundles all lamp",
        "catalog channels all lamp",
        "catalog graph all lamp",
        "catalog diff all all",
        "catalog prune all --package lamp --to out",
        "catalog migrate all out",
        "resolve lamp --catalog all",
    ] {
        let ran = olm(root, line);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{line}: {}", ran.stderr);
        let expected = "all: package \"lamp\" occurs twice: v1/lamp.yaml:1: document 1 and v2/lamp.yaml:1: document 1; all files below a directory are one catalog";
        assert!(ran.stderr.contains(expected), "{line}: {}", ran.stderr);
    }
    let ran = olm(root, "validate all");
    assert_eq!(ran.code, 3);
    for what in
        ["duplicate package \"lamp\"", "duplicate channel \"stable\"", "duplicate bundle \"lamp.v1.0.0\""]
    {
        let line = ran.stdout.lines().find(|line| line.contains(what)).unwrap_or_default();
        assert!(
            line.contains("v2/lamp.yaml:") && line.contains("; the first one is in v1/lamp.yaml:"),
            "{}",
            ran.stdout
        );
    }
    let ran = olm(root, "catalog verify all --no-images");
    assert!(ran.code == 3 && ran.stdout.contains("CATALOG-1"), "{}", ran.stdout);
    // Rendering chooses nothing.
    let ran = olm(root, "catalog render all");
    assert_eq!(ran.code, 0);
    assert!(ran.stderr.starts_with("warning: all: package \"lamp\" occurs twice: "), "{}", ran.stderr);
    assert_eq!(olm(root, "catalog ls all/v1").code, 0);
}

#[test]
fn repeated_key_is_a_warning_with_both_lines() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(
        root,
        "cat/lamp.yaml",
        &package("r.example/a:v1").replacen(
            "defaultChannel",
            "description: a\ndescription: b\ndefaultChannel",
            1,
        ),
    );
    let warning = "lamp.yaml:4: document 1: the key \"description\" is also on line 3: only the last value is used: \
                   remove one of the two";
    let ran = olm(root, "validate cat");
    let line = format!("warning: cat/{warning} [CATALOG-3]\ncat: 1 warning\n");
    assert_eq!((ran.code, ran.stdout), (0, line));
    assert_eq!(olm(root, "validate cat --strict").code, 3);
    let ran = olm(root, "validate cat -o json");
    assert!(ran.code == 0 && ran.stdout.contains("\"passed\": true"), "{}", ran.stdout);
    let ran = olm(root, "catalog ls cat");
    assert_eq!(
        (ran.code, ran.stderr),
        (0, format!("warning: cat: warning: {warning}\n").replace("warning: cat: warning:", "warning: cat:"))
    );
    // A missing separator loses an object.
    write(root, "lost/lamp.yaml", &package("r.example/a:v1").replacen("---\n", "", 1));
    let ran = olm(root, "validate lost");
    assert_eq!(ran.code, 3);
    assert!(
        ran.stdout.contains(
            "lamp.yaml:4: document 1: the key \"schema\" is also on line 1: separate objects with a line `---`"
        ),
        "{}",
        ran.stdout
    );
}

#[test]
fn bundle_in_place_of_a_catalog_is_named() {
    let data = crate::fixture::tests("commands/bundle_validate/data");
    for line in ["validate good", "catalog validate good", "validate good -o json"] {
        let ran = olm(&data, line);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{line}");
        assert!(
            ran.stderr.contains("good is a bundle, not a catalog: use `bundle validate good`"),
            "{}",
            ran.stderr
        );
    }
}
