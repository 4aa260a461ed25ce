//! Tags of a mirror that earlier runs of `olm catalog mirror` wrote.

use std::collections::BTreeMap;

use bytes::Bytes;
use olm_image::Image;
use serde_json::{Value, json};

use super::mirror::{Source, image};

// Names in the mirror have no host: a catalog can name an image whose copy has the tag of another catalog or image.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tag_of_another_source_is_not_moved() {
    let source = Source::new().await;
    let target = source.target("target").await;
    let to = format!("--to {}/m", target.host());
    let (code, _, stderr) = source.mirror(&to).await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    let catalog = ("m/team/lamp-catalog".to_owned(), "v1".to_owned());
    let before = target.manifests()[&catalog].clone();

    // Another catalog in another registry, with a related image that has the name of the first catalog.
    let hostile = Source::new().await;
    hostile.fixture.write("cas/target.crt", target.ca_pem());
    let planted = image("planted");
    let registry = &hostile.fixture.registry;
    registry.add_image("team/lamp-catalog", "v1", &planted);
    registry.add_image(
        "team/other-catalog",
        "v1",
        &catalog_image(&format!("{}/team/lamp-catalog:v1", hostile.host())),
    );
    let mirror = async |more: &str| {
        let line = format!("mirror {}/team/other-catalog:v1 {to} --ca-dir cas {more}", hostile.host());
        hostile.fixture.olm(&line).await
    };
    let digest = |bytes: &Bytes| olm_pack::digest_of(bytes);
    let expected = format!(
        "REGISTRY/team/lamp-catalog:v1: tag v1 of the mirror is {}, the source has {}: the tag may belong to another \
         catalog or registry; choose another path with --to, or move the tag with --overwrite-tags\n",
        digest(&before),
        digest(&planted.manifest)
    );
    // A refused copy is not recorded as one of the same source.
    for _ in 0..2 {
        let ran = mirror("").await;
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
        assert!(target.manifests()[&catalog] == before, "the tag has moved");
    }

    let ran = mirror("--overwrite-tags").await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(target.manifests()[&catalog] == planted.manifest, "the tag has not moved");
    // The run is recorded, so that an image that moves at the source moves in the mirror.
    registry.add_image("team/lamp-catalog", "v1", &image("moved"));
    let ran = mirror("").await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(target.manifests()[&catalog] == image("moved").manifest, "the tag has not moved");
}

/// Catalog of a package whose only bundle is `image`.
fn catalog_image(image: &str) -> Image {
    let version = json!({ "packageName": "other", "version": "1.0.0" });
    let objects = [
        json!({ "schema": "olm.package", "name": "other", "defaultChannel": "stable" }),
        json!({ "schema": "olm.channel", "package": "other", "name": "stable", "entries": [{ "name": "other.v1.0.0" }] }),
        json!({ "schema": "olm.bundle", "package": "other", "name": "other.v1.0.0", "image": image,
            "properties": [{ "type": "olm.package", "value": version }] }),
    ];
    let text: String = objects.iter().map(Value::to_string).collect();
    Image::catalog(&BTreeMap::from([("other/catalog.json".to_owned(), text.into_bytes())])).unwrap()
}
