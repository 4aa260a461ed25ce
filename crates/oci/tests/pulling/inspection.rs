//! Inspection of images: existence and architectures, without layers.

use std::collections::BTreeSet;

use olm_image::registry::Fault;
use olm_oci::{CATALOG_LABEL, Digest, ImageLabels, InspectError, Inspected};

use super::fixture::{Fixture, catalog};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

async fn inspect(fixture: &Fixture, rest: &str) -> Result<Inspected, InspectError> {
    fixture.puller.inspect(&fixture.reference(rest)).await
}

#[tokio::test]
async fn single_image_has_the_architecture_of_its_configuration() {
    let fixture = Fixture::new().await;
    let digest = fixture.registry.add_image("a/cat", "v1", &catalog());
    let expected = Inspected {
        single: Some(digest.parse().unwrap()),
        is_index: false,
        architectures: BTreeSet::from(["amd64".to_owned()]),
        labels: ImageLabels::from([(CATALOG_LABEL.to_owned(), "/configs".to_owned())]),
        ..Inspected::default()
    };
    assert_eq!(inspect(&fixture, "a/cat:v1").await.unwrap(), expected);
    assert_eq!(inspect(&fixture, &format!("a/cat@{digest}")).await.unwrap(), expected);
    let requests = fixture.registry.take_requests();
    let blobs = requests.iter().filter(|request| request.contains("/blobs/")).count();
    assert_eq!(blobs, 2, "only the configuration is read: {requests:?}");
}

#[tokio::test]
async fn index_has_the_architectures_of_its_platforms() {
    let fixture = Fixture::new().await;
    let [first, second, note] = ["1", "2", "3"].map(|digit| format!("sha256:{}", digit.repeat(64)));
    let entry = |digest: &str, architecture: &str| {
        format!(
            r#"{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"{digest}","size":1,"platform":{{"os":"linux","architecture":"{architecture}"}}}}"#
        )
    };
    let entries = [entry(&note, "unknown"), entry(&first, "arm64"), entry(&second, "s390x")].join(",");
    let index = format!(r#"{{"schemaVersion":2,"mediaType":"{INDEX}","manifests":[{entries}]}}"#);
    fixture.registry.add_manifest("a/cat", "v1", INDEX, index.into());
    let found = inspect(&fixture, "a/cat:v1").await.unwrap();
    let architectures = BTreeSet::from(["arm64".to_owned(), "s390x".to_owned()]);
    let [first, second] = [first, second].map(|digest| digest.parse::<Digest>().unwrap());
    let children = vec![("arm64".to_owned(), first.clone()), ("s390x".to_owned(), second)];
    let (missing_blobs, labels) = (Vec::new(), ImageLabels::new());
    assert_eq!(
        found,
        Inspected { single: Some(first), is_index: true, architectures, children, missing_blobs, labels }
    );
}

#[tokio::test]
async fn blobs_that_the_registry_lacks_are_named() {
    let fixture = Fixture::new().await;
    let digest = fixture.registry.add_image("a/cat", "v1", &catalog());
    let reference = fixture.reference(&format!("a/cat@{digest}"));
    let manifest = fixture.registry.manifest("a/cat", &digest).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let [config, layer] = [&manifest["config"], &manifest["layers"][0]]
        .map(|blob| blob["digest"].as_str().unwrap().parse::<Digest>().unwrap());
    assert_eq!(fixture.puller.inspect_layers(&reference).await.unwrap().missing_blobs, []);
    let lost = |digest: &Digest| {
        let request = format!("/v2/a/cat/blobs/{digest}");
        fixture.registry.add_fault(&request, usize::MAX, Fault::Status(404, vec![], String::new()));
    };
    lost(&layer);
    assert_eq!(fixture.puller.inspect(&reference).await.unwrap().missing_blobs, []);
    assert_eq!(
        fixture.puller.inspect_layers(&reference).await.unwrap().missing_blobs,
        std::slice::from_ref(&layer)
    );
    lost(&config);
    let found = fixture.puller.inspect(&reference).await.unwrap();
    assert_eq!((found.missing_blobs, found.architectures), (vec![config.clone()], BTreeSet::new()));
    assert_eq!(fixture.puller.inspect_layers(&reference).await.unwrap().missing_blobs, [config, layer]);
}

#[tokio::test]
async fn only_an_unknown_image_is_missing() {
    let fixture = Fixture::new().await;
    let digest = fixture.registry.add_image("a/cat", "v1", &catalog());
    let zero = format!("a/cat@sha256:{}", "0".repeat(64));
    for (rest, is_missing, text) in [
        ("a/cat:v2", true, "manifest unknown"),
        (zero.as_str(), true, "manifest unknown"),
        ("a/other:v1", true, "unknown"),
    ] {
        let error = inspect(&fixture, rest).await.unwrap_err();
        assert_eq!(error.is_missing, is_missing, "{rest}");
        assert!(error.to_string().contains(text), "{error}");
    }
    let request = format!("GET /v2/a/cat/manifests/{digest}");
    fixture.registry.add_fault(&request, 1, Fault::Corrupt);
    let error = inspect(&fixture, &format!("a/cat@{digest}")).await.unwrap_err();
    assert!(!error.is_missing, "{error}");
    assert!(error.to_string().contains("Manifest does not match provided manifest digest"), "{error}");
}
