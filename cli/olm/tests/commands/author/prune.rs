//! `olm catalog prune` on directories.

use super::fixture::Fixture;

/// Catalog directory with the packages lamp (versions 1.0.0 to 1.2.0 in stable, 1.2.0 in fast) and pipe.
pub(super) fn write_catalog(fixture: &Fixture, image: impl Fn(&str) -> String) {
    let mut text = String::from("---\nschema: olm.package\nname: lamp\ndefaultChannel: stable\n");
    text.push_str("---\nschema: olm.channel\npackage: lamp\nname: stable\nentries:\n- name: lamp.v1.0.0\n");
    text.push_str(
        "- {name: lamp.v1.1.0, replaces: lamp.v1.0.0}\n- {name: lamp.v1.2.0, replaces: lamp.v1.1.0}\n",
    );
    text.push_str("---\nschema: olm.channel\npackage: lamp\nname: fast\nentries:\n- name: lamp.v1.2.0\n");
    text.push_str("---\nschema: olm.deprecations\npackage: lamp\nentries:\n- message: old\n");
    text.push_str("  reference: {schema: olm.bundle, name: lamp.v1.0.0}\n");
    for minor in 0..3 {
        text.push_str(&bundle("lamp", minor, &image(&format!("lamp-{minor}"))));
    }
    fixture.write("catalog/lamp/catalog.yaml", &text);
    let mut text = String::from("---\nschema: olm.package\nname: pipe\ndefaultChannel: stable\n");
    text.push_str("---\nschema: olm.channel\npackage: pipe\nname: stable\nentries:\n- name: pipe.v1.0.0\n");
    text.push_str(&bundle("pipe", 0, &image("pipe-0")));
    fixture.write("catalog/pipe/catalog.yaml", &text);
}

fn bundle(package: &str, minor: u32, image: &str) -> String {
    format!(
        "---\nschema: olm.bundle\npackage: {package}\nname: {package}.v1.{minor}.0\nimage: {image}\nproperties:\n- type: olm.package\n  \
         value: {{packageName: {package}, version: 1.{minor}.0}}\n"
    )
}

#[tokio::test]
async fn pruned_catalog_is_valid_and_lists_what_was_dropped() {
    let fixture = Fixture::open().await;
    write_catalog(&fixture, |name| format!("r.example/team/{name}:v1"));
    let printed = fixture.works("prune catalog --package lamp@>=1.1.0 --to small").await;
    let expected =
        "lamp: kept 2 bundles in 2 channels\n  dropped bundles: lamp.v1.0.0\ndropped 1 package: pipe\n";
    assert_eq!(printed, expected);
    assert_eq!(fixture.works("validate small").await, "");
    assert!(fixture.works("ls small").await.contains("lamp"));
    let text = fixture.read("small/lamp/index.yaml");
    assert!(text.contains("replaces: lamp.v1.0.0") && !text.contains("olm.deprecations"), "{text}");
    let diff = fixture.works("diff catalog small").await;
    assert!(diff.contains("pipe") && diff.contains("lamp.v1.0.0"), "{diff}");
    let printed = fixture.works("prune catalog --channel lamp/stable --heads --to heads -o json").await;
    let pruned: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(pruned["packages"][0]["bundles"], serde_json::json!(["lamp.v1.2.0"]));
    assert_eq!(pruned["packages"][0]["droppedChannels"], serde_json::json!(["fast"]));
    assert_eq!(fixture.works("validate heads").await, "");
}

#[tokio::test]
async fn refused_selection_names_the_reason_and_writes_nothing() {
    let fixture = Fixture::open().await;
    write_catalog(&fixture, |name| format!("r.example/team/{name}:v1"));
    fixture.write("full/notes", "");
    for (line, code, expected) in [
        ("--to small", 2, "select what to keep with --package, --channel or --heads"),
        ("--package lamp --to full", 1, "full: the directory is not empty; nothing was changed"),
        ("--package lam --to small", 4, "catalog has no package \"lam\"; similar names: lamp"),
        ("--channel lamp/slow --to small", 4, "no channel \"slow\"; its channels: fast, stable"),
        (
            "--package lamp@2.x --to small",
            4,
            "no selected channel has a version in 2.x; their versions: 1.0.0 to 1.2.0",
        ),
        (
            "--channel lamp/fast --to small",
            2,
            "the default channel \"stable\" is dropped; choose one of the remaining: fast, such as with --default-channel",
        ),
    ] {
        let ran = fixture.olm(&format!("prune catalog {line}")).await;
        assert_eq!(ran.code, code, "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{line}: {}", ran.stderr);
        assert!(!fixture.path("small").exists(), "{line}");
    }
    // An existing directory may be a mount point.
    std::fs::create_dir(fixture.path("small")).unwrap();
    fixture.works("prune catalog --channel lamp/fast --default-channel lamp=fast --to small").await;
    assert!(fixture.read("small/lamp/index.yaml").contains("defaultChannel: fast"));
    assert_eq!(fixture.works("validate small").await, "");
    let left =
        std::fs::read_dir(fixture.path("")).unwrap().chain(std::fs::read_dir(fixture.path("small")).unwrap());
    let hidden =
        left.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".olm-"));
    assert_eq!(hidden.count(), 0);
}

#[tokio::test]
async fn required_packages_are_kept_with_their_own_requirements() {
    let fixture = Fixture::open().await;
    write_catalog(&fixture, |name| format!("r.example/team/{name}:v1"));
    let add = |package: &str, property: &str| {
        let mut text = format!("---\nschema: olm.package\nname: {package}\ndefaultChannel: stable\n");
        text.push_str(&format!("---\nschema: olm.channel\npackage: {package}\nname: stable\n"));
        text.push_str(&format!("entries:\n- name: {package}.v1.0.0\n"));
        text.push_str(&bundle(package, 0, "r.example/team/x:v1"));
        text.push_str(&format!("- {{type: {property}}}\n"));
        fixture.write(&format!("catalog/{package}/catalog.yaml"), &text);
    };
    let kind = "value: {group: x.example, kind: Valve, version: v1}";
    add("valve", &format!("olm.gvk, {kind}"));
    add("tank", &format!("olm.gvk.required, {kind}"));
    add("tap", "olm.package.required, value: {packageName: tank, versionRange: '>=1.0.0'}");
    for (line, dropped) in [
        ("--package tap --to alone", "dropped 4 packages: lamp, pipe, tank, valve\n"),
        ("--package tap --with-dependencies --to all", "dropped 2 packages: lamp, pipe\n"),
    ] {
        let printed = fixture.works(&format!("prune catalog {line}")).await;
        assert!(printed.ends_with(dropped), "{printed}");
    }
    assert_eq!(fixture.works("validate all").await, "");
    // `--heads` is for the selected packages, not for those that they require.
    let mut text = String::from("---\nschema: olm.package\nname: lake\ndefaultChannel: stable\n");
    text.push_str("---\nschema: olm.channel\npackage: lake\nname: stable\n");
    text.push_str("entries:\n- name: lake.v1.0.0\n");
    text.push_str(&bundle("lake", 0, "r.example/team/x:v1"));
    text.push_str("- {type: olm.package.required, value: {packageName: lamp, versionRange: '1.0.0'}}\n");
    text.push_str("- {type: olm.package.required, value: {packageName: lamp, versionRange: '>=2.0.0'}}\n");
    fixture.write("catalog/lake/catalog.yaml", &text);
    let ran = fixture.olm("prune catalog --package lake --heads --with-dependencies --to heads").await;
    assert!(ran.code == 0 && ran.stdout.contains("lamp: kept 3 bundles"), "{} {}", ran.stdout, ran.stderr);
    let expected = "warning: package \"lake\", bundle \"lake.v1.0.0\": no kept bundle meets: with package: lamp and with version in range: >=2.0.0\n";
    assert_eq!(ran.stderr, expected);
}
