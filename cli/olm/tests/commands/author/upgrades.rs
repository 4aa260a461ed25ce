//! `olm catalog verify --upgrades`, with folders and with a registry.

use olm_image::Image;
use serde_json::Value;

use super::fixture::{Fixture, bundle};

/// Catalog `catalog` of bundles 1.0.0 to 1.2.0, from the folders b0 to b2. The CRD of 1.2.0 has another schema.
async fn fixture() -> Fixture {
    let fixture = Fixture::open().await;
    fixture.works("init lamp -c stable -o yaml --to catalog").await;
    for minor in 0..3 {
        let folder = format!("operators/lamp/b{minor}");
        fixture.write_bundle(&folder, minor);
        // `bundle push` demands them.
        let annotations = format!("{folder}/metadata/annotations.yaml");
        let folders = ["manifests", "metadata"];
        let line = |name| format!("  operators.operatorframework.io.bundle.{name}.v1: {name}/\n");
        fixture.write(&annotations, &(fixture.read(&annotations) + &folders.map(line).concat()));
    }
    let crd = fixture.read("operators/lamp/b2/manifests/crd.yaml");
    let crd = crd.replace("{type: object}", "{type: object, required: [spec]}");
    fixture.write("operators/lamp/b2/manifests/crd.yaml", &crd);
    let folders = "operators/lamp/b0 operators/lamp/b1 operators/lamp/b2";
    fixture
        .works(&format!("add catalog {folders} --image r.example/lamp:v{{{{.Version}}}} --channel stable"))
        .await;
    fixture
}

#[tokio::test]
async fn upgrades_are_checked_with_the_folders_of_their_bundles() {
    let fixture = fixture().await;
    let ran = fixture.olm("verify catalog --upgrades --bundles operators").await;
    let table = "PACKAGE   FROM          TO            UPGRADE   FINDINGS\n\
                 lamp      lamp.v1.1.0   lamp.v1.2.0   held      UPGRADE-2\n\n\
                 catalog: 1 package, 1 upgrade: 1 held or refused\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (3, table), "{}", ran.stderr);
    let ran = fixture.olm("verify catalog --upgrades --bundles operators --all-edges --details").await;
    let detail = "lamp.v1.1.0 -> lamp.v1.2.0\n  error: CustomResourceDefinition lamps.x.example: v1: ^: required: new required \
                  fields: [spec] [UPGRADE-2]\n    holds the upgrade unless annotation crd-check is Warn, or Live and all custom \
                  resources are valid\n";
    assert!(
        ran.stdout.contains(detail) && ran.stdout.contains("2 upgrades: 1 held or refused"),
        "{}",
        ran.stdout
    );
    let ran = fixture.olm("verify catalog --upgrades --bundles operators --from 1.0.0 --all-edges").await;
    let possible = "lamp      lamp.v1.0.0   lamp.v1.1.0   possible   -\n\ncatalog: 1 package, 1 upgrade: 0 held or refused\n";
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.ends_with(possible), "{:?}", ran.stdout);
    let ran = fixture.olm("verify catalog --upgrades --bundles operators --ignore UPGRADE-2").await;
    assert_eq!(ran.code, 0, "{}", ran.stdout);
}

#[tokio::test]
async fn findings_of_upgrades_are_documents_and_reports() {
    let fixture = fixture().await;
    let ran = fixture.olm("verify catalog --upgrades --bundles operators -o json").await;
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    let upgrade = &result["upgrades"][0];
    assert_eq!((&upgrade["from"], &upgrade["channels"][0]), (&"lamp.v1.1.0".into(), &"stable".into()));
    assert_eq!(upgrade["findings"][0]["rule"], "UPGRADE-2");
    assert_eq!(
        (&upgrade["holds"][0], &upgrade["findings"][0]["hold"]),
        (&"unlessLive".into(), &"unlessLive".into())
    );
    let ran = fixture.olm("verify catalog --upgrades --bundles operators -o github").await;
    let annotation = "::error file=catalog/lamp/index.yaml,line=";
    assert!(
        ran.stdout.starts_with(annotation) && ran.stdout.contains("upgrade from lamp.v1.1.0"),
        "{}",
        ran.stdout
    );
    let ran = fixture.olm("verify catalog --upgrades --bundles operators -o junit").await;
    assert!(ran.stdout.contains("lamp.v1.1.0 -&gt; lamp.v1.2.0"), "{}", ran.stdout);
    let ran = fixture.olm("verify --upgrades --rules").await;
    assert!(ran.stdout.contains("UPGRADE-13") && ran.code == 0, "{}", ran.stdout);
}

#[tokio::test]
async fn upgrade_whose_bundle_is_missing_is_not_checked() {
    let fixture = fixture().await;
    std::fs::remove_dir_all(fixture.path("operators/lamp/b1")).unwrap();
    let ran = fixture.olm("verify catalog --upgrades --bundles operators").await;
    assert_eq!(ran.code, 3, "{}", ran.stdout);
    assert!(ran.stdout.contains("not checked   UPGRADE-14"), "{}", ran.stdout);
    let ran = fixture.olm("verify catalog --upgrades --bundles operators -o github").await;
    assert!(ran.stdout.contains("no folder of --bundles has bundle lamp.v1.1.0"), "{}", ran.stdout);
    fixture.write_bundle("operators/other/b2", 2);
    let ran = fixture.olm("verify catalog --upgrades --bundles operators").await;
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    assert!(
        ran.stderr.contains("bundle lamp.v1.2.0 is in operators/lamp/b2 and in operators/other/b2"),
        "{}",
        ran.stderr
    );
    let ran = fixture.olm("verify catalog --upgrades --bundles operators --from 9.9.9").await;
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("no package has this version; versions: 1.2.0"), "{}", ran.stderr);

    // Without folders, the images are pulled.
    let reference = |minor: u32| fixture.reference(&format!("team/lamp:v1.{minor}.0"));
    for minor in 0..3 {
        fixture.registry.add_image(
            "team/lamp",
            &format!("v1.{minor}.0"),
            &Image::bundle(&bundle(minor)).unwrap(),
        );
    }
    let text = fixture.read("catalog/lamp/index.yaml");
    let text = (0..3)
        .fold(text, |text, minor| text.replace(&format!("r.example/lamp:v1.{minor}.0"), &reference(minor)));
    fixture.write("catalog/lamp/index.yaml", &text);
    let ran = fixture.olm("verify catalog --upgrades --ca-dir cas").await;
    assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("lamp.v1.1.0   lamp.v1.2.0   possible"), "{}", ran.stdout);
}

#[tokio::test]
async fn bundle_is_pushed_only_if_the_upgrade_from_the_previous_one_has_no_errors() {
    let fixture = fixture().await;
    let push = async |minor: u32, previous: &str| {
        let (source, reference) = (format!("operators/lamp/b{minor}"), fixture.reference("team/lamp:new"));
        let words =
            ["bundle", "push", &source, &reference, "--no-images", "--ca-dir", "cas", "--previous", previous];
        fixture.of(&words).await
    };
    let ran = push(2, "operators/lamp/b1").await;
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{}", ran.stderr);
    let finding = "error: upgrade from lamp.v1.1.0: CustomResourceDefinition lamps.x.example: v1: ^: required: new required \
                   fields: [spec] [UPGRADE-2]\n";
    assert!(ran.stderr.contains(finding) && ran.stderr.contains("nothing was pushed"), "{}", ran.stderr);
    let ran = push(1, "operators/lamp/b0").await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let reference = fixture.reference("team/lamp:new");
    let ran = push(2, &reference).await;
    assert_eq!(ran.code, 3, "the previous bundle is an image: {}", ran.stderr);
}
