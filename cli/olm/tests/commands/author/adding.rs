//! `olm catalog add` with upgrade edges that are missing, wrong, or made from the versions.

use super::fixture::Fixture;

const IMAGE: &str = "r.example/team/lamp-bundle:v{{.Version}}";
const FILE: &str = "catalog/lamp/index.yaml";

/// Catalog with 1.0.0 in channel stable, and the bundle 1.1.0 with these lines in place of its `replaces`.
async fn fixture(edges: &str) -> Fixture {
    let fixture = Fixture::open().await;
    fixture.works("init lamp -c stable -o yaml --to catalog").await;
    fixture.write_bundle("a", 0);
    fixture.works(&format!("add catalog a --image {IMAGE} --channel stable")).await;
    with_edges(&fixture, "b", 1, edges);
    fixture
}

/// Writes the bundle `1.<minor>.0` with these lines in place of its `replaces`.
fn with_edges(fixture: &Fixture, name: &str, minor: u32, edges: &str) {
    fixture.write_bundle(name, minor);
    let csv = std::fs::read_dir(fixture.path(name).join("manifests")).unwrap();
    let csv =
        csv.map(|entry| entry.unwrap().path()).find(|path| path.to_str().unwrap().contains("csv")).unwrap();
    let text = std::fs::read_to_string(&csv).unwrap();
    let before =
        minor.checked_sub(1).map(|before| format!("  replaces: lamp.v1.{before}.0\n")).unwrap_or_default();
    assert!(text.contains(&before), "{text}");
    let text = text.replace(&before, "").replacen("  version:", &format!("{edges}  version:"), 1);
    std::fs::write(&csv, text).unwrap();
}

#[tokio::test]
async fn result_with_new_errors_is_written_only_with_force() {
    const HEADS: &str = "error: lamp/index.yaml:6: document 2: invalid package \"lamp\": invalid channel \"stable\": multiple channel heads found in graph: lamp.v1.0.0, lamp.v1.1.0\n";
    for (edges, expected) in [
        (
            "",
            "hint: lamp.v1.1.0 replaces no bundle: set spec.replaces of its ClusterServiceVersion, or let --mode semver make the edges from the versions\n",
        ),
        (
            "  replaces: v1.0.0\n",
            "warning: spec.replaces of lamp.v1.1.0: \"v1.0.0\" is a version: write the name of the bundle, such as lamp.v1.0.0\n",
        ),
        (
            "  replaces: lamp.v9.0.0\n",
            "warning: spec.replaces of lamp.v1.1.0: \"lamp.v9.0.0\" has a higher version",
        ),
        ("  replaces: lamp.v0.9.0\n", ""),
    ] {
        let fixture = fixture(edges).await;
        let before = fixture.read(FILE);
        let add = format!("add catalog b --image {IMAGE} --channel stable");
        let ran = fixture.olm(&add).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{edges}: {}", ran.stderr);
        assert!(ran.stderr.contains(HEADS) && ran.stderr.contains(expected), "{}", ran.stderr);
        assert!(
            ran.stderr
                .ends_with("catalog: 1 error after the change, no file was changed; --force ignores them\n"),
            "{}",
            ran.stderr
        );
        assert_eq!(fixture.read(FILE), before);
        let ran = fixture.olm(&format!("{add} --force")).await;
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (0, "lamp/index.yaml: lamp.v1.1.0 added to channel stable\n"),
            "{}",
            ran.stderr
        );
        assert!(ran.stderr.contains(&HEADS.replace("error", "warning")), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn valid_edges_of_any_form_are_added() {
    for (edges, channels) in [
        ("  replaces: lamp.v1.0.0\n", "stable"),
        ("  skips: [lamp.v1.0.0]\n", "stable"),
        // The only entry of a channel may replace a bundle of another one.
        ("  replaces: lamp.v1.0.0\n", "fast"),
        ("", "fast"),
    ] {
        let fixture = fixture(edges).await;
        fixture.works(&format!("add catalog b --image {IMAGE} --channel {channels}")).await;
        assert_eq!(fixture.works("validate catalog").await, "", "{edges}");
    }
}

#[tokio::test]
async fn same_bundle_is_added_again_without_change() {
    let fixture = fixture("  replaces: lamp.v1.0.0\n").await;
    let add = format!("add catalog b b --image {IMAGE} --channel stable");
    fixture.works(&add).await;
    let before = fixture.read(FILE);
    assert_eq!(fixture.works(&add).await, "lamp/index.yaml: lamp.v1.1.0 is known\n".repeat(2));
    assert_eq!(fixture.read(FILE), before);
    // The entry keeps the edges that it has.
    with_edges(&fixture, "b", 1, "  skips: [lamp.v1.0.0]\n");
    let ran = fixture.olm(&format!("add catalog b --image {IMAGE} --channel stable")).await;
    let expected = "warning: lamp.v1.1.0: its entry in channel stable keeps its own edges, which differ from those of the bundle; `catalog promote` changes them\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (0, expected));
    assert_eq!(fixture.read(FILE), before);
    let printed = fixture
        .works(&format!("add catalog b --image {IMAGE} --channel stable --channel fast --mode semver"))
        .await;
    assert_eq!(printed, "lamp/index.yaml: lamp.v1.1.0 added to channel fast\n");
    let ran = fixture.olm("add catalog b --image r.example/other:v1 --channel stable").await;
    assert_eq!(ran.code, 1);
    let expected = "bundle lamp.v1.1.0 is already in HOME/catalog/lamp/index.yaml with image r.example/team/lamp-bundle:v1.1.0: remove it there first";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
}

#[tokio::test]
async fn edges_follow_from_versions_on_request() {
    let fixture = Fixture::open().await;
    fixture.works("init lamp -c stable -o yaml --to catalog").await;
    for (name, minor) in [("c", 2), ("a", 0), ("b", 1)] {
        with_edges(&fixture, name, minor, "");
    }
    let added =
        fixture.works(&format!("add catalog c a --mode semver --image {IMAGE} --channel stable")).await;
    assert_eq!(added.lines().count(), 2, "{added}");
    // The bundle between both becomes part of the chain.
    fixture.works(&format!("add catalog b --mode semver --image {IMAGE} --channel stable")).await;
    let text = fixture.read(FILE);
    let entries = "entries:\n- name: lamp.v1.0.0\n- name: lamp.v1.1.0\n  replaces: lamp.v1.0.0\n- name: lamp.v1.2.0\n  replaces: lamp.v1.1.0\n";
    assert!(text.contains(entries), "{text}");
    assert_eq!(fixture.works("validate catalog").await, "");
    assert_eq!(
        fixture.works("verify catalog --no-images").await,
        "catalog: 1 package, 3 bundles, 0 images: no findings\n"
    );
    // Again, with patches: each minor version has one.
    fixture.works(&format!("add catalog b --mode semver-skippatch --image {IMAGE} --channel stable")).await;
    assert_eq!(fixture.read(FILE), text);
}

#[tokio::test]
async fn errors_of_other_packages_do_not_prevent_an_edit() {
    let fixture = fixture("  replaces: lamp.v1.0.0\n").await;
    let broken = "schema: olm.package\nname: broken\ndefaultChannel: a\n---\nschema: olm.channel\npackage: broken\nname: a\nentries: [{name: broken.v1}, {name: broken.v2}]\n";
    fixture.write("catalog/broken/index.yaml", broken);
    assert_eq!(fixture.olm("validate catalog").await.code, 3);
    for line in [
        &format!("add catalog b --image {IMAGE} --channel stable"),
        "promote catalog lamp 1.1.0 --channel fast --create",
        "deprecate catalog lamp --channel fast --message gone",
    ] {
        let ran = fixture.olm(line).await;
        assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("warning: HOME/catalog: the catalog had")
                && ran.stderr.contains("before the change, too"),
            "{}",
            ran.stderr
        );
    }
    let ran = fixture.olm("prune catalog --package lamp --to pruned").await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let ran = fixture.olm("prune catalog --package broken --to other").await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("the selected part has"), "{}", ran.stderr);
}

#[tokio::test]
async fn rendered_bundle_directory_has_its_image_or_its_manifests() {
    let fixture = fixture("").await;
    let printed = fixture.works(&format!("render a --image {IMAGE}")).await;
    assert!(printed.contains("\"image\": \"r.example/team/lamp-bundle:v1.0.0\""), "{printed}");
    let ran = fixture.olm("render a -o yaml").await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stderr.starts_with("warning: a: without --image REF, the object has the manifests"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stdout.contains("type: olm.bundle.object\n") && !ran.stdout.contains("olm.csv.metadata"),
        "{}",
        ran.stdout
    );
    fixture.write("other/index.yaml", &format!("schema: olm.package\nname: lamp\ndefaultChannel: a\n---\nschema: olm.channel\npackage: lamp\nname: a\nentries: [{{name: lamp.v1.0.0}}]\n{}", ran.stdout));
    assert_eq!(fixture.works("validate other").await, "");
    assert_eq!(fixture.olm("render catalog --image r.example/a:v1").await.code, 2);
}
