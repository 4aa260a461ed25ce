//! `--pin`: images that are given by tag are referred to by digest.

use olm_image::Image;

use super::fixture::{Fixture, bundle};
use crate::fixture::Ran;

const CSV: &str = "bundle/manifests/lamp.clusterserviceversion.yaml";

/// Manifests of an operator with this image, and an operand with the same one.
fn manifests(image: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: lamp}}\nspec:\n  selector: {{matchLabels: {{app: lamp}}}}\n  \
         template:\n    metadata: {{labels: {{app: lamp}}}}\n    spec:\n      containers:\n      - name: manager\n        \
         image: {image}\n        env: [{{name: RELATED_IMAGE_BULB, value: {image}}}]\n"
    )
}

async fn works(fixture: &Fixture, line: &str) -> String {
    let ran = run(fixture, line).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "olm {line}");
    ran.stdout
}

async fn run(fixture: &Fixture, line: &str) -> Ran {
    fixture.of(&line.split_whitespace().collect::<Vec<_>>()).await
}

#[tokio::test]
async fn generated_and_pushed_bundle_has_digests() {
    let fixture = Fixture::open().await;
    let manager = Image::bundle(&bundle(7)).unwrap();
    fixture.registry.add_image("team/manager", "v1", &manager);
    fixture.write("m/operator.yaml", &manifests(&fixture.reference("team/manager:v1")));
    let pinned = fixture.reference(&format!("team/manager@{}", manager.digest()));
    let generate = "bundle generate lamp --version 0.1.0 --from m --to bundle";
    works(&fixture, generate).await;
    let tagged = fixture.read(CSV);
    assert!(tagged.contains("manager:v1") && !tagged.contains(&pinned), "{tagged}");

    // Only the image changes.
    let tag = fixture.reference("team/lamp-bundle:v0.1.0");
    works(&fixture, &format!("bundle push bundle {tag} --pin --ca-dir cas")).await;
    assert_eq!(fixture.read(CSV), tagged);
    works(&fixture, &format!("bundle unpack {tag} unpacked --ca-dir cas")).await;
    let pushed = fixture.read(&CSV.replace("bundle/", "unpacked/"));
    works(&fixture, "bundle build bundle --to bundle.oci").await;
    let refused = run(&fixture, &format!("bundle push bundle.oci {tag} --pin")).await;
    assert_eq!(refused.code, 2, "{}", refused.stderr);

    for _ in 0..2 {
        works(&fixture, &format!("{generate} --pin --ca-dir cas")).await;
        let text = fixture.read(CSV);
        assert_eq!(text.matches(&pinned).count(), 3, "{text}");
        assert!(!text.contains("manager:v1"), "{text}");
        assert_eq!(text, pushed);
    }
    let checked = works(&fixture, "bundle validate bundle").await;
    assert!(!checked.contains("IMG-1"), "{checked}");

    fixture.write("m/operator.yaml", &manifests(&fixture.reference("team/manager:v2")));
    let ran = run(&fixture, &format!("{generate} --pin --ca-dir cas")).await;
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("error: image REGISTRY/team/manager:v2: "), "{}", ran.stderr);
    assert_eq!(fixture.read(CSV), pushed);
}

#[tokio::test]
async fn added_bundle_has_its_digest() {
    let fixture = Fixture::open().await;
    works(&fixture, "catalog init lamp -c stable -o yaml --to catalog").await;
    let tag = fixture.publish_bundle(0);
    let digest = Image::bundle(&bundle(0)).unwrap().digest();
    let pinned = fixture.reference(&format!("team/lamp-bundle@{digest}"));
    works(&fixture, &format!("catalog add catalog {tag} --pin --ca-dir cas")).await;
    let text = fixture.read("catalog/lamp/index.yaml");
    assert!(text.contains(&pinned) && !text.contains(&tag), "{text}");
    // The same from a directory, which is known then.
    fixture.write_bundle("a", 0);
    let image = fixture.reference("team/lamp-bundle:v{{.Version}}");
    let added = works(&fixture, &format!("catalog add catalog a --image {image} --pin --ca-dir cas")).await;
    assert_eq!(added, "lamp/index.yaml: lamp.v1.0.0 is known\n");
    fixture.write_bundle("b", 1);
    let ran = run(&fixture, &format!("catalog add catalog b --image {image} --pin --ca-dir cas")).await;
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("error: image REGISTRY/team/lamp-bundle:v1.1.0: "), "{}", ran.stderr);
}
