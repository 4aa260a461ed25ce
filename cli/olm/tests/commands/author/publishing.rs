//! Authoring workflow from an empty folder to an image that a cluster can pull.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use olm_image::registry::Access;
use olm_oci::{Config, ImageLimits, Puller};

use super::fixture::{Fixture, files};

const BUNDLE_NAME: &str = "r.example/team/lamp-bundle:v{{.Version}}";

/// Creates package lamp in `catalog` and adds the versions 1.0.0 and 1.1.0 from folders.
async fn begin(fixture: &Fixture) {
    fixture.write("README.md", "Lights *up*.\n");
    fixture.write("lamp.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>");
    let path = fixture
        .works("init lamp --default-channel stable --description README.md --icon lamp.svg --to catalog")
        .await;
    assert_eq!(path, "catalog/lamp/index.yaml\n");
    fixture.write_bundle("bundles/a", 0);
    fixture.write_bundle("bundles/b", 1);
    let added = fixture.works(&format!("add catalog bundles/a bundles/b --image {BUNDLE_NAME}")).await;
    let expected = "lamp/index.yaml: lamp.v1.0.0 added to channel stable\nlamp/index.yaml: lamp.v1.1.0 added to channel stable\n";
    assert_eq!(added, expected);
}

#[tokio::test]
async fn help_explains_each_command_with_examples() {
    let fixture = Fixture::open().await;
    for (command, taught) in [
        ("init", "Add bundles with `catalog add`."),
        ("add", "Nothing is written unless everything can be added, and"),
        ("template render", "schema: olm.semver"),
        ("template convert", "In a basic template, bundles contain only their image."),
        ("migrate", "The file of a package is DIR/PACKAGE/catalog.json"),
        ("generate dockerfile", "Writes DIR.Dockerfile, next to the directory, unless it exists."),
        ("build", "  references:\n  - name: my-operator\n"),
        ("push", "spec.source.image.ref of a ClusterCatalog"),
    ] {
        let help = fixture.works(&format!("{command} --help")).await;
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&help).contains(&words(taught)), "{help}");
        assert!(help.contains(&format!("Examples:\n  olm catalog {command} ")), "{help}");
    }
}

#[tokio::test]
async fn init_writes_the_same_package_as_opm() {
    let fixture = Fixture::open().await;
    let object =
        "{\n    \"schema\": \"olm.package\",\n    \"name\": \"lamp\",\n    \"defaultChannel\": \"\"\n}\n";
    assert_eq!(fixture.works("init lamp").await, object);
    let document = "---\ndefaultChannel: stable\nname: lamp\nschema: olm.package\n";
    assert_eq!(fixture.works("init lamp -c stable -o yaml").await, document);
    assert_eq!(fixture.works("init lamp -c stable -o json --to catalog").await, "catalog/lamp/index.json\n");
    fixture.write_bundle("a", 0);
    fixture.works(&format!("add catalog a --image {BUNDLE_NAME}")).await;
    fixture.works("validate catalog").await;
    let text = fixture.read("catalog/lamp/index.json");
    assert!(text.starts_with("{\n    \"schema\": \"olm.package\",\n"), "{text}");
    assert!(text.contains("}\n{\n    \"schema\": \"olm.channel\",\n"), "{text}");
}

#[tokio::test]
async fn catalog_is_built_pushed_and_pulled_unchanged() {
    let fixture = Fixture::open().await;
    begin(&fixture).await;
    let image = fixture.publish_bundle(2);
    fixture.works(&format!("add catalog {image} --channel stable --channel fast --ca-dir cas")).await;
    let text = fixture.read("catalog/lamp/index.yaml").replace(&fixture.registry.host(), "REGISTRY");
    assert_eq!(text, include_str!("lamp.yaml"));
    assert_eq!(fixture.works("validate catalog").await, "");

    let tag = fixture.reference("team/catalog:v1");
    let digest = fixture.works(&format!("build catalog --to catalog.oci --tag {tag}")).await;
    let digest = digest.trim();
    let pushed = fixture.works(&format!("push catalog.oci {tag} --ca-dir cas")).await;
    assert_eq!(pushed, format!("REGISTRY/team/catalog@{digest}\n"));

    let by_digest = fixture.reference(&format!("team/catalog@{digest}"));
    let listed = fixture.works(&format!("ls {by_digest} --ca-dir cas")).await;
    assert!(listed.contains("lamp"), "{listed}");
    let published = fixture.works(&format!("render {by_digest} --ca-dir cas")).await;
    assert_eq!(published, fixture.works("render catalog").await);

    // The pulled content equals the written catalog.
    let mut config = Config::new(ImageLimits::CATALOG);
    config.cas_dir = Some(fixture.path("cas"));
    let puller = Puller::new(config);
    let canonical = puller.resolve(&tag.parse().unwrap()).await.unwrap();
    assert_eq!(canonical.digest().as_str(), digest);
    let target = fixture.path("pulled");
    let (folder, _) = puller.pull_folder(&canonical, olm_oci::catalog_folder, &target).await.unwrap();
    assert_eq!(files(&folder.path), files(&fixture.path("catalog")));
    olm_oci::remove_folder(&target).unwrap();
}

#[tokio::test]
async fn build_of_unchanged_content_yields_the_same_digest() {
    // Case additions-a58
    let fixture = Fixture::open().await;
    begin(&fixture).await;
    fixture.write("catalog/.indexignore", "notes\n");
    fixture.write("catalog/notes/todo.md", "not a catalog");
    fixture.write("catalog/zeta.yaml", "schema: vendor.x\n");
    let first = fixture.works("build catalog --to one").await;

    for name in ["lamp/index.yaml", "zeta.yaml"] {
        let path = fixture.path("catalog").join(name);
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        File::options().append(true).open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    fixture.write("catalog/notes/more.md", "neither");
    let second = fixture.works("build catalog --to two").await;
    assert_eq!(first, second);
    assert_eq!(files(&fixture.path("one")), files(&fixture.path("two")));
    let built: serde_json::Value =
        serde_json::from_str(&fixture.works("build catalog -o json").await).unwrap();
    assert_eq!(built["digest"], first.trim());
    assert_eq!(built["files"], serde_json::json!([".indexignore", "lamp/index.yaml", "zeta.yaml"]));
    assert_eq!(built["kind"], "BuiltCatalog");
}

#[tokio::test]
async fn catalog_is_built_from_a_list_of_images() {
    // Each reference of the list is rendered into a directory of its own.
    let fixture = Fixture::open().await;
    begin(&fixture).await;
    fixture.registry.set_access(Access::Basic("user".to_owned(), "secret".to_owned()));
    fixture.write(
        "auth.json",
        &format!(r#"{{"auths":{{"{}":{{"auth":"dXNlcjpzZWNyZXQ="}}}}}}"#, fixture.registry.host()),
    );
    let access = "--ca-dir cas --authfile auth.json";
    let part = fixture.reference("team/lamp-catalog:v1");
    let pushed = fixture.works(&format!("push catalog {part} {access}")).await;
    assert!(pushed.starts_with("REGISTRY/team/lamp-catalog@sha256:"), "{pushed}");

    let repo = fixture.reference("team/all");
    fixture.write(
        "catalog.yaml",
        &format!("name: all\nrepo: {repo}\ntag: v1\nreferences:\n- name: lamp\n  image: {part}\n"),
    );
    let digest = fixture.works(&format!("build --file catalog.yaml all --to all.oci {access}")).await;
    assert_eq!(fixture.works("render all").await, fixture.works("render catalog").await);
    assert!(fixture.path("all/lamp/index.yaml").is_file());
    let again = fixture.works(&format!("build --file catalog.yaml {access}")).await;
    assert_eq!(again, digest);
    let pushed = fixture.works(&format!("push all.oci {repo}:v1 {access}")).await;
    assert_eq!(pushed, format!("REGISTRY/team/all@{digest}"));
}

#[tokio::test]
async fn semver_template_generates_channels() {
    let fixture = Fixture::open().await;
    let images: Vec<_> = (0..3).map(|minor| fixture.publish_bundle(minor)).collect();
    let template = |stable: &[String]| {
        let images: String = stable.iter().map(|image| format!("  - image: {image}\n")).collect();
        format!(
            "schema: olm.semver\ngenerateMajorChannels: true\ngenerateMinorChannels: false\nstable:\n  bundles:\n{images}"
        )
    };
    fixture.write("semver.yaml", &template(&images[..2]));
    fixture.write("README.md", "Lights up.");
    fixture.works("init lamp -c stable-v1 -d README.md --to catalog").await;
    let render = "template render semver.yaml --ca-dir cas";
    assert_eq!(fixture.works(&format!("{render} --to catalog")).await, "catalog/lamp/rendered.yaml\n");
    fixture.works("validate catalog").await;

    fixture.write("semver.yaml", &template(&images));
    fixture.works(&format!("{render} --to catalog")).await;
    fixture.works("validate catalog").await;
    let text = fixture.read("catalog/lamp/rendered.yaml");
    let head = "---\n# Made by olm catalog template render from semver.yaml; change that file instead.\n\
                entries:\n- name: lamp.v1.0.0\n- name: lamp.v1.1.0\n  replaces: lamp.v1.0.0\n";
    assert!(text.starts_with(head), "{text}");
    let printed = fixture.works(&format!("{render} -o yaml")).await;
    assert!(
        printed.starts_with("---\ndefaultChannel: stable-v1\nname: lamp\nschema: olm.package\n---\n"),
        "{printed}"
    );
}
