//! `olm bundle build`, `push` and `unpack` against a registry.

use std::collections::BTreeMap;
use std::fs;

use olm_image::Image;
use serde_json::{Value, json};

use super::fixture::{Fixture, bundle, files};
use crate::fixture::{Ran, olm_in};

const CSV: &str = "bundle/manifests/csv.yaml";

async fn olm(fixture: &Fixture, line: &str) -> Ran {
    let words: Vec<_> = ["bundle"].into_iter().chain(line.split_whitespace()).collect();
    fixture.of(&words).await
}

/// Runs a command that must succeed. Returns its output. Warnings of the bundle are not of interest.
async fn works(fixture: &Fixture, line: &str) -> String {
    let ran = olm(fixture, line).await;
    assert_eq!(ran.code, 0, "olm bundle {line}: {}", ran.stderr);
    assert!(!ran.stderr.contains("error"), "{}", ran.stderr);
    ran.stdout
}

/// Writes a valid bundle without an operator.
fn write_plain(fixture: &Fixture) {
    fixture.write_bundle("bundle", 0);
    let annotations = "bundle/metadata/annotations.yaml";
    let folders = ["manifests", "metadata"];
    let more = folders.map(|name| format!("  operators.operatorframework.io.bundle.{name}.v1: {name}/\n"));
    fixture.write(annotations, &(fixture.read(annotations) + &more.concat()));
}

/// Writes a valid bundle whose operator has this image and these labels of the ClusterServiceVersion.
fn write_bundle(fixture: &Fixture, image: &str, labels: &str) {
    write_plain(fixture);
    let labels = format!("  name: lamp.v1.0.0\n  labels: {{{labels}}}\n");
    let deployments = format!(
        "deployments:\n      - name: lamp\n        spec: {{selector: {{matchLabels: {{app: lamp}}}}, template: \
         {{metadata: {{labels: {{app: lamp}}}}, spec: {{containers: [{{name: lamp, image: \"{image}\"}}]}}}}}}\n"
    );
    let text = fixture.read(CSV);
    let text = text.replace("  name: lamp.v1.0.0\n", &labels).replace("deployments: []\n", &deployments);
    fixture.write(CSV, &text);
    fixture.write("bundle/tests/scorecard/config.yaml", "kind: Configuration\n");
}

#[tokio::test]
async fn bundle_is_built_pushed_and_unpacked_unchanged() {
    let fixture = Fixture::open().await;
    let operator = Image::bundle(&bundle(7)).unwrap();
    fixture.registry.add_image("team/lamp", "v1", &operator);
    write_bundle(&fixture, &fixture.reference("team/lamp:v1"), "");
    let tag = fixture.reference("team/lamp-bundle:v1.0.0");
    let digest = works(&fixture, "build bundle").await;
    assert_eq!(works(&fixture, &format!("build bundle --to bundle.oci --tag {tag}")).await, digest);
    let built: Value = serde_json::from_str(&works(&fixture, "build bundle -o json").await).unwrap();
    let expected = [
        "manifests/crd.yaml",
        "manifests/csv.yaml",
        "metadata/annotations.yaml",
        "tests/scorecard/config.yaml",
    ];
    assert_eq!((&built["kind"], &built["files"]), (&json!("BuiltBundle"), &json!(expected)));

    let pushed = works(&fixture, &format!("push bundle.oci {tag} --ca-dir cas")).await;
    assert_eq!(pushed, format!("REGISTRY/team/lamp-bundle@{digest}"));
    drop(fixture.registry.take_requests());
    assert_eq!(works(&fixture, &format!("push bundle {tag} --ca-dir cas --no-images")).await, pushed);
    let requests = fixture.registry.take_requests();
    assert!(requests.iter().all(|request| !request.contains("/uploads/")), "{requests:?}");

    for (source, target) in [(tag.as_str(), "one"), ("bundle.oci", "two"), (tag.as_str(), "one")] {
        let printed = works(&fixture, &format!("unpack {source} {target} --ca-dir cas")).await;
        assert_eq!(printed, format!("{target}\n"));
        assert_eq!(files(&fixture.path(target)), files(&fixture.path("bundle")));
    }
    fs::create_dir(fixture.path("empty")).unwrap();
    let mut here = olm_in(&fixture.path("empty"), &["bundle", "unpack", "../bundle.oci", "."]);
    let ran = Ran::from(here.output().unwrap());
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ".\n"), "{}", ran.stderr);
    assert_eq!(files(&fixture.path("empty")), files(&fixture.path("bundle")));
    fixture.write("one/notes", "mine");
    let ran = olm(&fixture, &format!("unpack {tag} one --ca-dir cas")).await;
    let why = "error: one: the directory is not empty, and notes differs from the bundle; nothing was written: choose a new \
               directory\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (1, why));
}

#[tokio::test]
async fn invalid_bundle_is_neither_built_nor_pushed() {
    let fixture = Fixture::open().await;
    write_bundle(&fixture, "r.example/lamp:v1", "");
    let text = fixture.read(CSV).replace("version: 1.0.0", "version: one");
    fixture.write(CSV, &text);
    let tag = fixture.reference("team/lamp-bundle:v1.0.0");
    for line in ["build bundle --to bundle.oci", &format!("push bundle {tag} --ca-dir cas")] {
        let ran = olm(&fixture, line).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains("error: manifests/csv.yaml"), "{}", ran.stderr);
    }
    assert!(!fixture.path("bundle.oci").exists());
    assert_eq!(fixture.registry.take_requests(), Vec::<String>::new());
}

#[tokio::test]
async fn missing_images_and_architectures_refuse_push() {
    let fixture = Fixture::open().await;
    let operator = Image::bundle(&bundle(7)).unwrap();
    fixture.registry.add_image("team/lamp", "v1", &operator);
    let (present, gone) = (fixture.reference("team/lamp:v1"), fixture.reference("team/gone:v1"));
    let tag = fixture.reference("team/lamp-bundle:v1.0.0");
    let (amd, arm) =
        ("operatorframework.io/arch.amd64: supported", "operatorframework.io/arch.arm64: supported");
    let cases = [
        (&gone, amd.to_owned(), "team/gone:v1: the registry does not have the image [IMAGE-1]"),
        (
            &present,
            format!("{amd}, {arm}"),
            "team/lamp:v1: the image has no architecture arm64; it has: amd64 [IMAGE-3]",
        ),
    ];
    for (image, labels, finding) in cases {
        write_bundle(&fixture, image, &labels);
        let ran = olm(&fixture, &format!("push bundle {tag} --ca-dir cas")).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{}", ran.stderr);
        let end = format!(
            "error: image REGISTRY/{finding}\nbundle: 1 image with errors, nothing was pushed; --no-images skips this check\n"
        );
        assert!(ran.stderr.ends_with(&end), "{}", ran.stderr);
    }
    let requests = fixture.registry.take_requests();
    assert!(requests.iter().all(|request| !request.contains("lamp-bundle")), "{requests:?}");

    // A registry that does not answer is no fault of the bundle.
    write_bundle(&fixture, "127.0.0.1:1/team/lamp:v1", "");
    let ran = olm(&fixture, &format!("push bundle {tag} --ca-dir cas")).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: image 127.0.0.1:1/team/lamp:v1: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("[IMAGE-2]"), "{}", ran.stderr);
}

#[tokio::test]
async fn unpack_refuses_what_is_no_bundle() {
    let fixture = Fixture::open().await;
    let catalog = Image::catalog(&BTreeMap::from([("a.yaml".to_owned(), b"schema: x".to_vec())])).unwrap();
    fixture.registry.add_image("team/catalog", "v1", &catalog);
    let reference = fixture.reference("team/catalog:v1");
    for (source, code, expected) in [
        (reference.as_str(), 1, "the image is a catalog, not a bundle"),
        ("./nowhere", 2, "is neither an OCI image layout nor an image reference"),
    ] {
        let ran = olm(&fixture, &format!("unpack {source} target --ca-dir cas")).await;
        assert_eq!(ran.code, code, "{}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
    fixture.write("cat/a.yaml", "schema: vendor.x\n");
    fixture.works("build cat --to cat.oci").await;
    let ran = olm(&fixture, "unpack cat.oci target").await;
    let why = "error: cat.oci: the image is not a bundle: it has no directory manifests\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (1, why));
    assert!(!fixture.path("target").exists());
    // A layout with a changed layer is not read.
    write_plain(&fixture);
    works(&fixture, "build bundle --to bundle.oci").await;
    for entry in fs::read_dir(fixture.path("bundle.oci/blobs/sha256")).unwrap() {
        let path = entry.unwrap().path();
        if fs::read(&path).unwrap().starts_with(&[0x1f, 0x8b]) {
            fs::write(path, "changed").unwrap();
        }
    }
    let ran = olm(&fixture, "unpack bundle.oci target").await;
    assert!(ran.code == 1 && ran.stderr.contains("the content has digest sha256:"), "{}", ran.stderr);
}

#[tokio::test]
async fn archive_of_an_image_is_read_as_its_layout() {
    let fixture = Fixture::open().await;
    write_plain(&fixture);
    works(&fixture, "build bundle --to bundle.oci").await;
    let image = olm_pack::read_layout(&fixture.path("bundle.oci")).unwrap();
    let archive = fs::File::create(fixture.path("bundle.tar")).unwrap();
    olm_pack::write_archive(&image, "r.example/lamp-bundle:v1", archive).unwrap();
    works(&fixture, "unpack bundle.tar target").await;
    assert_eq!(files(&fixture.path("target")), files(&fixture.path("bundle")));
    let tag = fixture.reference("team/lamp-bundle:v1.0.0");
    works(&fixture, &format!("push bundle.tar {tag} --no-images --ca-dir cas")).await;
    works(&fixture, &format!("unpack {tag} other --ca-dir cas")).await;
    assert_eq!(files(&fixture.path("other")), files(&fixture.path("bundle")));
    fixture.write("text.tar", "no archive");
    let ran = olm(&fixture, "unpack text.tar none").await;
    assert_eq!(ran.code, 2, "{}", ran.stderr);
}
