//! Inputs that the commands reject: exit code, error text, and no changed file.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;

use olm_image::registry::{Access, Fault};
use olm_image::{Image, Runtime};

use super::fixture::{Fixture, files};

const INDEX: &str = "---\ndefaultChannel: stable\nname: lamp\nschema: olm.package\n";

/// Runs a command that must fail with `code`, print exactly `expected` on standard error, and change no file.
async fn refused(fixture: &Fixture, line: &str, code: i32, expected: &str) {
    let before = files(&fixture.path(""));
    let ran = fixture.olm(line).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (code, expected), "olm catalog {line}");
    assert_eq!(ran.stdout, "", "olm catalog {line}");
    assert!(files(&fixture.path("")) == before, "olm catalog {line} changed something");
}

#[tokio::test]
async fn init_rejects_invalid_input() {
    let fixture = Fixture::open().await;
    fixture.write("catalog/lamp/index.yaml", INDEX);
    fixture.write("other/all.yaml", INDEX);
    fixture.write("text.txt", "no image");
    let name = "error: package name \"Lamp\": expected at most 63 lower-case letters, digits and `-`, with a letter or digit at both ends\n";
    refused(&fixture, "init Lamp", 2, name).await;
    refused(
        &fixture,
        "init lamp --to catalog",
        1,
        "error: package lamp is already in HOME/catalog/lamp/index.yaml\n",
    )
    .await;
    refused(&fixture, "init lamp --to other", 1, "error: package lamp is already in HOME/other/all.yaml\n")
        .await;
    let icon = "error: icon text.txt: expected an image: SVG, PNG, JPEG, GIF or WebP\n";
    refused(&fixture, "init lamp --icon text.txt", 1, icon).await;
    let missing = "error: cannot read nowhere.md: No such file or directory (os error 2)\n";
    refused(&fixture, "init lamp --description nowhere.md", 1, missing).await;
}

#[tokio::test]
async fn add_rejects_invalid_bundles_and_catalogs() {
    let fixture = Fixture::open().await;
    fixture.write("catalog/lamp/index.yaml", INDEX);
    fixture.write("empty/index.yaml", "schema: vendor.x\n");
    fixture.write_bundle("a", 0);
    fixture.write_bundle("copy", 0);
    let csv = fixture.read("copy/manifests/csv.yaml").replace("displayName: Lamp", "displayName: Light");
    fixture.write("copy/manifests/csv.yaml", &csv);
    fixture.write_bundle("b", 1);
    let image = "--image r.example/lamp:v{{.Version}}";
    refused(
        &fixture,
        "add catalog a",
        2,
        "error: a bundle is a directory: specify the reference of its image with --image REF\n",
    )
    .await;
    refused(
        &fixture,
        &format!("add empty a {image}"),
        1,
        "error: bundle lamp.v1.0.0: package lamp is not in the catalog; create it with `catalog init lamp --to DIR`\n",
    )
    .await;
    // The second bundle fails, so the first is not added either.
    refused(
        &fixture,
        &format!("add catalog a copy {image}"),
        1,
        "error: bundle lamp.v1.0.0 is already in HOME/catalog/lamp/index.yaml with other content: remove it there first, or give \
         the bundle another version\n",
    )
    .await;
    refused(
        &fixture,
        &format!("add catalog a cas {image}"),
        1,
        "error: cas: expected a bundle directory, which has the directories manifests and metadata\n",
    )
    .await;
    fixture.works(&format!("add catalog a {image}")).await;
    refused(
        &fixture,
        "add catalog b a --image r.example/other:v{{.Version}}",
        1,
        "error: bundle lamp.v1.0.0 is already in HOME/catalog/lamp/index.yaml with image r.example/lamp:v1.0.0: remove it there \
         first, or give the bundle another version\n",
    )
    .await;
    fixture.write(
        "b/metadata/annotations.yaml",
        "annotations: {operators.operatorframework.io.bundle.package.v1: lamp}",
    );
    refused(
        &fixture,
        &format!("add catalog b {image}"),
        1,
        "error: bundle lamp.v1.1.0: its annotations have no channel; specify one with --channel\n",
    )
    .await;
}

#[tokio::test]
async fn add_rejects_invalid_references() {
    let fixture = Fixture::open().await;
    fixture.write("catalog/lamp/index.yaml", INDEX);
    fixture.write_bundle("b", 1);
    let ran = fixture.olm(&format!("add catalog {} --ca-dir cas", fixture.reference("team/none:v1"))).await;
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.starts_with("error: image REGISTRY/team/none:v1: "), "{}", ran.stderr);
    refused(
        &fixture,
        "add catalog b --channel c --image r.example/{{.Nam}}:v1",
        2,
        "error: --image: error parsing image reference \"r.example/{{.Nam}}:v1\": invalid reference format: repository name \
         must be lowercase; the placeholders are {{.Package}}, \
         {{.Name}} and {{.Version}}\n",
    )
    .await;
    let ran = fixture.olm("add catalog ./nowhere").await;
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.starts_with(
            "error: BUNDLE \"./nowhere\" is neither an existing directory nor an image reference"
        ),
        "{}",
        ran.stderr
    );
}

#[tokio::test]
async fn add_rejects_an_empty_channel_name() {
    let fixture = Fixture::open().await;
    fixture.write("catalog/lamp/index.yaml", INDEX);
    fixture.write_bundle("bundle", 0);
    let ran =
        fixture.run(&["add", "catalog", "bundle", "--image", "r.example/lamp:v1", "--channel", ""]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert_eq!(fixture.read("catalog/lamp/index.yaml"), INDEX);
}

#[tokio::test]
async fn build_rejects_invalid_input() {
    let fixture = Fixture::open().await;
    fixture.write("catalog/lamp/index.yaml", INDEX);
    fixture.write("good/x.yaml", "schema: vendor.x\n");
    fixture.write("taken/file", "mine");
    fixture.write("nothing/.indexignore", "*\n");
    refused(
        &fixture,
        "build catalog --to catalog.oci",
        3,
        "error: lamp/index.yaml:2: document 1: invalid package \"lamp\": invalid channel \"stable\": channel must contain at least one bundle\n\
         catalog: 1 error, no image was built\n",
    )
    .await;
    refused(
        &fixture,
        "build good --to taken",
        1,
        "error: taken: the folder is neither empty nor an OCI image layout; nothing was written\n",
    )
    .await;
    refused(&fixture, "build nothing", 1, "error: nothing: the directory has no catalog content\n").await;
    refused(&fixture, "build good/x.yaml", 1, "error: good/x.yaml: not a directory\n").await;
    fixture.works("build good --to good.oci").await;
    let layout = "error: \"good.oci\" is an OCI image layout: use the catalog directory that it was built from, or the image that `catalog push` pushed\n";
    refused(&fixture, "validate good.oci", 2, layout).await;
    refused(&fixture, "ls good.oci", 2, layout).await;
    refused(
        &fixture,
        "build good --tag catalog:v1",
        2,
        "error: reference \"catalog:v1\": expected one such as registry.example.com/team/catalog:v1: error parsing image \
         reference \"catalog:v1\": repository name must be canonical\n",
    )
    .await;
    fixture.write("list.yaml", "name: c\nrepo: r.example/team/catalog\ntag: v1\nreferences: []\n");
    refused(&fixture, "build --file list.yaml", 1, "error: list.yaml: references must not be empty\n").await;
    fixture.write(
        "list.yaml",
        "name: c\nrepo: r.example/c\ntag: v1\nreferences: [{name: a, image: r.example/a:v1}]\n",
    );
    refused(
        &fixture,
        "build --file list.yaml good",
        1,
        "error: good: the directory is not empty; nothing was changed\n",
    )
    .await;
}

#[tokio::test]
async fn build_rejects_images_that_are_neither_catalog_nor_bundle() {
    let fixture = Fixture::open().await;
    let label = |key: &str| BTreeMap::from([(key.to_owned(), "x".to_owned())]);
    for (labels, expected) in [
        (BTreeMap::new(), "image type could not be determined: image has no labels"),
        (label("vendor"), "image type could not be determined, found labels vendor=x"),
        (
            label("operators.operatorframework.io.index.database.v1"),
            "sqlite-based index images are no longer supported, migrate to a file-based catalog",
        ),
    ] {
        let image = Image::new(Vec::new(), &labels, &Runtime::default()).unwrap();
        fixture.registry.add_image("team/other", "v1", &image);
        let reference = fixture.reference("team/other:v1");
        fixture.write(
            "list.yaml",
            &format!(
                "name: c\nrepo: r.example/c\ntag: v1\nreferences: [{{name: a, image: '{reference}'}}]\n"
            ),
        );
        let expected = format!("error: render \"REGISTRY/team/other:v1\": {expected}\n");
        refused(&fixture, "build --file list.yaml all --ca-dir cas", 1, &expected).await;
    }
}

#[tokio::test]
async fn build_rejects_content_that_catalogd_would_not_load() {
    let fixture = Fixture::open().await;
    fixture.write("secret.yaml", "schema: vendor.secret\n");
    for (text, expected) in [
        ("- a list\n", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ("schema: a\nSchema: b\n", "duplicate keys for key \"schema\": [Schema schema]"),
        ("schema: 1\n", "expected value for key \"schema\" to be a string"),
        ("schema: a\nn: .nan\n", "json: unsupported value: NaN"),
        ("schema: [\n", "yaml: line "),
        ("# only JSON lines are\n--- not a separator\n", "invalid Yaml document separator: not a separator"),
    ] {
        fixture.write("catalog/index.yaml", text);
        let ran = fixture.olm("build catalog --to catalog.oci").await;
        assert_eq!(ran.code, 3, "{text:?}");
        assert!(ran.stderr.contains(expected), "{text:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: index.yaml:"), "{text:?}: {}", ran.stderr);
        assert!(!fixture.path("catalog.oci").exists(), "{text:?}");
    }
    std::fs::remove_file(fixture.path("catalog/index.yaml")).unwrap();
    symlink("../secret.yaml", fixture.path("catalog/link.yaml")).unwrap();
    let ran = fixture.olm("build catalog --to catalog.oci").await;
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.contains("the link points outside of the catalog directory"), "{}", ran.stderr);
    std::fs::remove_file(fixture.path("catalog/link.yaml")).unwrap();
    fixture.write(&format!("catalog/{}x.yaml", "deep/".repeat(64)), "schema: vendor.x\n");
    let ran = fixture.olm("build catalog --to catalog.oci").await;
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("more than the limit of 64 on a cluster"), "{}", ran.stderr);
}

#[tokio::test]
async fn push_rejects_invalid_input() {
    let fixture = Fixture::open().await;
    fixture.write("good/x.yaml", "schema: vendor.x\n");
    fixture.write("bad/lamp.yaml", INDEX);
    fixture.works("build good --to good.oci").await;
    let digest = fixture.reference(&format!("team/catalog@sha256:{}", "0".repeat(64)));
    let ran = fixture.olm(&format!("push good.oci {digest}")).await;
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.ends_with("expected a tag; the digest follows from the content\n"), "{}", ran.stderr);

    let to = fixture.reference("team/catalog:v1");
    let ran = fixture.olm(&format!("push bad {to} --ca-dir cas")).await;
    assert_eq!(ran.code, 3);
    assert!(fixture.registry.take_requests().is_empty(), "an invalid catalog is not pushed");

    let unknown_ca = fixture.olm(&format!("push good.oci {to}")).await;
    assert_eq!(unknown_ca.code, 1);
    assert!(unknown_ca.stderr.starts_with("error: push REGISTRY/team/catalog:v1: "), "{}", unknown_ca.stderr);
    fixture.registry.set_access(Access::Basic("user".to_owned(), "secret".to_owned()));
    let no_login = fixture.olm(&format!("push good.oci {to} --ca-dir cas")).await;
    assert_eq!(no_login.code, 1);
    assert!(no_login.stderr.starts_with("error: push REGISTRY/team/catalog:v1: "), "{}", no_login.stderr);
    fixture.registry.set_access(Access::Open);
    fixture.registry.add_fault("PUT ", 100, Fault::Status(507, Vec::new(), "disk full".to_owned()));
    let full = fixture.olm(&format!("push good.oci {to} --ca-dir cas")).await;
    assert_eq!(full.code, 1);
    assert!(full.stderr.contains("507"), "{}", full.stderr);

    let layer = files(&fixture.path("good.oci")).into_keys().find(|path| path.starts_with("blobs/")).unwrap();
    fixture.write(&format!("good.oci/{layer}"), "changed");
    let damaged = fixture.olm(&format!("push good.oci {to} --ca-dir cas")).await;
    assert_eq!(damaged.code, 1);
    assert!(damaged.stderr.contains("the content has digest sha256:d67e2e94"), "{}", damaged.stderr);
}

#[tokio::test]
async fn template_render_rejects_invalid_input() {
    let fixture = Fixture::open().await;
    let known = "expected olm.semver, olm.template.basic, olm.template.substitutes";
    for (text, expected) in [
        ("schema: olm.template.raw", format!("unknown template schema: olm.template.raw: {known}")),
        ("entries: []", format!("template input missing required 'schema' field: {known}")),
        (
            "schema: olm.template.substitutes\nsubstitutions: [{base: b}]",
            "render: error processing substitution \"b\" -> \"\": substitution name cannot be empty"
                .to_owned(),
        ),
    ] {
        fixture.write("template.yaml", text);
        refused(&fixture, "template render template.yaml", 1, &format!("error: template.yaml: {expected}\n"))
            .await;
    }
    let missing = "error: cannot read \"nowhere.yaml\": No such file or directory (os error 2)\n";
    refused(&fixture, "template render nowhere.yaml", 1, missing).await;
    let image = fixture.publish_bundle(0);
    let semver = format!(
        "schema: olm.semver\ngenerateMajorChannels: true\nstable: {{bundles: [{{image: '{image}'}}]}}\n"
    );
    fixture.write("semver.yaml", &semver);
    fixture.write("catalog/lamp/rendered.yaml", INDEX);
    refused(
        &fixture,
        "template render semver.yaml --ca-dir cas --to catalog",
        1,
        "error: catalog/lamp/rendered.yaml: the file was not generated from a template; it was not changed\n",
    )
    .await;
}

#[tokio::test]
async fn template_convert_rejects_invalid_input() {
    let fixture = Fixture::open().await;
    fixture.write("bundle.json", r#"{"schema":"olm.bundle","package":"lamp","name":"lamp.v1.0.0"}"#);
    fixture.write("broken.yaml", "a: [");
    for (line, code, expected) in [
        (
            "template convert basic bundle.json",
            1,
            "error: bundle.json: bundle \"lamp.v1.0.0\" of package \"lamp\" has no image: a basic template names bundles by \
             image, convert to substitutes instead\n",
        ),
        (
            "template convert basic nowhere/",
            2,
            "error: SOURCE \"nowhere/\" is not an existing directory, an image reference such as \
             registry.example.com/team/catalog:v1, cluster, or cluster/NAME: error parsing image reference \"nowhere/\": \
             invalid reference format\n",
        ),
    ] {
        refused(&fixture, line, code, expected).await;
    }
    let broken = fixture.olm("template convert basic broken.yaml").await;
    assert!(broken.stderr.starts_with("error: broken.yaml: ") && broken.code == 1, "{}", broken.stderr);
    let unknown = fixture.olm("template convert semver bundle.json").await;
    assert!(unknown.stderr.contains("[possible values: basic, substitutes]"), "{}", unknown.stderr);
}

const ALL: &str = "error: cluster is all catalogs of the cluster: choose one, such as cluster/NAME\n";

#[tokio::test]
async fn migrate_rejects_invalid_input() {
    let fixture = Fixture::open().await;
    fixture.write("catalog/lamp/index.yaml", INDEX);
    fixture.write("full/file", "");
    fixture.write_bundle("bundle", 0);
    fixture.write("odd/index.yaml", "schema: x\npackage: ../other\n");
    for (line, code, expected) in [
        ("migrate catalog full", 1, "error: full: the directory is not empty; nothing was changed\n"),
        ("migrate bundle new", 2, "error: \"bundle\" is a bundle; specify a catalog\n"),
        ("migrate cluster new", 2, ALL),
        ("prune cluster --heads --to new", 2, ALL),
        ("template convert basic cluster", 2, ALL),
        (
            "migrate odd new",
            1,
            "error: odd: invalid package name \"../other\": must be a single local path element\n",
        ),
    ] {
        refused(&fixture, line, code, expected).await;
    }
    let level = "unknown migration level \"x\"; the levels are none, bundle-object-to-csv-metadata, all";
    for line in ["migrate catalog new --migrate-level x", "render catalog --migrate-level x"] {
        let ran = fixture.olm(line).await;
        assert!(ran.code == 2 && ran.stderr.contains(level), "{}", ran.stderr);
    }
    assert!(!fixture.path("new").exists());
}

#[tokio::test]
async fn generate_dockerfile_rejects_invalid_input() {
    let fixture = Fixture::open().await;
    fixture.write("catalog/lamp/index.yaml", INDEX);
    fixture.write("catalog.Dockerfile", "FROM mine\n");
    for (line, code, expected) in [
        (
            "generate dockerfile catalog",
            1,
            "error: cannot create catalog.Dockerfile: File exists (os error 17)\n",
        ),
        ("generate dockerfile nowhere", 2, "error: nowhere is not a directory\n"),
        (
            "generate dockerfile .",
            2,
            "error: .: specify a path that ends with a name: the Dockerfile is named after the directory\n",
        ),
        ("generate dockerfile catalog -b scratch", 2, "error: invalid builder image: \"scratch\"\n"),
        ("generate dockerfile catalog -l x", 2, "error: invalid label \"x\": expected KEY=VALUE\n"),
    ] {
        refused(&fixture, line, code, expected).await;
    }
}
