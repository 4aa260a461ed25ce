//! `olm catalog remove`, and `deprecate` of a range.

use serde_json::Value;

use super::fixture::Fixture;

const FILE: &str = "catalog/lamp/index.yaml";

/// Catalog with 1.0.0 to 1.3.0 in channel stable, of which 1.3.0 is also in fast, and with a second package.
async fn fixture() -> Fixture {
    let fixture = Fixture::open().await;
    fixture.works("init lamp -c stable -o yaml --to catalog").await;
    for minor in 0..4 {
        fixture.write_bundle(&format!("b{minor}"), minor);
    }
    let image = "--image r.example/lamp:v{{.Version}}";
    fixture.works(&format!("add catalog b0 b1 b2 b3 {image} --channel stable")).await;
    fixture.works("promote catalog lamp 1.3.0 --channel fast --create").await;
    let other = "# Stays.\nschema: olm.package\nname: other\ndefaultChannel: a\n---\nschema: olm.channel\npackage: other\n\
                 name: a\nentries: [{name: other.v1}]\n---\nschema: olm.bundle\npackage: other\nname: other.v1\nimage: r.example/o:v1\n\
                 properties: [{type: olm.package, value: {packageName: other, version: 1.0.0}}]\n";
    fixture.write("catalog/other/index.yaml", other);
    fixture
}

#[tokio::test]
async fn removed_bundle_leaves_edges_for_its_installations() {
    let fixture = fixture().await;
    fixture.works("deprecate catalog lamp --version 1.1.0 --message old").await;
    let printed = fixture.works("remove catalog lamp 1.1.0").await;
    assert_eq!(
        printed,
        "lamp.v1.1.0 removed\nchannel stable: lamp.v1.2.0\n  replaces: lamp.v1.0.0\n  skips: lamp.v1.1.0\n\
         changed: lamp/deprecations.yaml, lamp/index.yaml\n"
    );
    let text = fixture.read(FILE);
    assert!(
        text.contains("- name: lamp.v1.2.0\n  replaces: lamp.v1.0.0\n  skips:\n  - lamp.v1.1.0\n"),
        "{text}"
    );
    assert!(
        !text.contains("name: lamp.v1.1.0\n") && !fixture.path("catalog/lamp/deprecations.yaml").exists()
    );
    assert_eq!(fixture.works("validate catalog").await, "");
    assert_eq!(
        fixture.works("verify catalog --no-images").await,
        "catalog: 2 packages, 4 bundles, 0 images: no findings\n"
    );

    // The head of one channel stays in the other.
    let printed = fixture.works("remove catalog lamp 1.3.0 --channel stable -o json").await;
    let removal: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(removal["bundles"], serde_json::json!([]));
    assert_eq!(
        removal["heads"],
        serde_json::json!([{"channel": "stable", "head": "lamp.v1.2.0", "before": "lamp.v1.3.0",
            "stranded": ["lamp.v1.3.0"]}])
    );
    // The only entry of a channel takes the channel with it.
    let printed = fixture.works("remove catalog lamp lamp.v1.3.0").await;
    assert_eq!(printed, "lamp.v1.3.0 removed\nchannel fast removed\nchanged: lamp/index.yaml\n");
    assert_eq!(fixture.works("validate catalog").await, "");
    assert!(fixture.read("catalog/other/index.yaml").starts_with("# Stays.\n"));
}

#[tokio::test]
async fn removed_bundles_without_an_upgrade_are_named() {
    let fixture = fixture().await;
    let printed = fixture.works("remove catalog lamp 1.2.0 1.3.0 --channel stable").await;
    let expected = "channel stable: its head is now lamp.v1.1.0; extensions with lamp.v1.2.0 or lamp.v1.3.0 keep it \
                    until a higher version follows\n";
    assert!(printed.contains(expected), "{printed}");
}

#[tokio::test]
async fn channel_or_package_is_removed_with_its_bundles() {
    let fixture = fixture().await;
    fixture.works("deprecate catalog lamp --channel stable --message old").await;
    let ran = fixture.olm("remove catalog lamp --channel stable").await;
    assert_eq!(ran.code, 2);
    let expected = "channel \"stable\" is the default channel: choose another with --default-channel: fast";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    let printed = fixture.works("remove catalog lamp --channel stable --default-channel fast").await;
    assert_eq!(
        printed,
        "lamp.v1.0.0 removed\nlamp.v1.1.0 removed\nlamp.v1.2.0 removed\nchannel stable removed\n\
         changed: lamp/deprecations.yaml, lamp/index.yaml\n"
    );
    assert_eq!(fixture.works("validate catalog").await, "");
    let printed = fixture.works("remove catalog lamp").await;
    assert_eq!(printed, "package lamp removed, with 1 bundle\nchanged: lamp/index.yaml\n");
    assert!(!fixture.path(FILE).exists());
    assert_eq!(fixture.works("validate catalog").await, "");
}

#[tokio::test]
async fn removal_that_is_impossible_writes_nothing() {
    let fixture = fixture().await;
    let before = fixture.read(FILE);
    for (line, code, expected) in [
        ("lamp 9.0.0", 4, "package \"lamp\" has no bundle or version \"9.0.0\""),
        ("none 1.0.0", 4, "has no package \"none\""),
        ("lamp --channel none", 4, "has no channel \"none\""),
        ("lamp 1.0.0 --channel fast", 4, "channel \"fast\" has no bundle \"lamp.v1.0.0\""),
        ("lamp 1.0.0 1.1.0 1.2.0 1.3.0", 2, "package \"lamp\" would have no channel: remove the package"),
        (
            "lamp 1.0.0 --default-channel none",
            2,
            "--default-channel none: the remaining channels are fast, stable",
        ),
        (
            "lamp --default-channel fast",
            2,
            "--default-channel cannot be used if the whole package is removed",
        ),
    ] {
        let ran = fixture.olm(&format!("remove catalog {line}")).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{line}: {}", ran.stderr);
    }
    assert_eq!(fixture.read(FILE), before);
    // Two heads remain.
    let text =
        before.replace("  replaces: lamp.v1.2.0\n", "  replaces: lamp.v1.2.0\n  skips:\n  - lamp.v1.4.0\n");
    let text = text.replacen("- name: lamp.v1.3.0\n", "- name: lamp.v1.4.0\n- name: lamp.v1.3.0\n", 1);
    let bundle = text.split("---\n").find(|one| one.contains("name: lamp.v1.3.0\npackage")).unwrap();
    let bundle = bundle.replace("1.3.0", "1.4.0");
    fixture.write(FILE, &format!("{text}---\n{bundle}"));
    assert_eq!(fixture.works("validate catalog").await, "");
    let ran = fixture.olm("remove catalog lamp 1.3.0 --channel stable").await;
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("multiple channel heads found in graph: lamp.v1.2.0, lamp.v1.4.0"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.ends_with("no file was changed\n"), "{}", ran.stderr);
}

#[tokio::test]
async fn range_of_versions_is_deprecated_at_once() {
    let fixture = fixture().await;
    let run = |words: &'static [&'static str]| {
        let words = [&["deprecate", "catalog", "lamp", "--range", "<1.2.0"], words].concat();
        let fixture = &fixture;
        async move { fixture.run(&words).await }
    };
    let ran = run(&["--message", "old"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(
        ran.stdout.contains("bundle lamp.v1.0.0") && ran.stdout.contains("bundle lamp.v1.1.0"),
        "{}",
        ran.stdout
    );
    let text = fixture.read("catalog/lamp/deprecations.yaml");
    assert_eq!(text.matches("schema: olm.bundle").count(), 2, "{text}");
    assert_eq!(text.matches("schema: olm.deprecations").count(), 1, "{text}");
    assert_eq!(fixture.works("validate catalog").await, "");
    let ran = run(&["--remove"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(!fixture.path("catalog/lamp/deprecations.yaml").exists());
    for (range, code, expected) in [
        (
            "<1.0.0",
            4,
            "package \"lamp\" has no version in \"<1.0.0\"; its versions: 1.0.0, 1.1.0, 1.2.0, 1.3.0",
        ),
        ("<1.0", 2, "--range \"<1.0\": expected a range such as '>=1.0.0 <1.2.0'"),
    ] {
        let ran = fixture.run(&["deprecate", "catalog", "lamp", "--range", range, "--message", "x"]).await;
        assert_eq!(ran.code, code, "{}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
}
