//! Shortcomings of `oci-client` with a hostile or busy registry, which are the reason for our own transport. Each
//! is inside its request path, where a caller cannot fix it. If one of these tests fails with a newer release, use
//! that release instead.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step of a test ends it")]

use std::collections::BTreeMap;

use oci_distribution::client::{Certificate, CertificateEncoding, ClientConfig};
use oci_distribution::secrets::RegistryAuth;
use oci_distribution::{Client, Reference};
use olm_image::Image;
use olm_image::registry::{Access, Fault, Registry};

async fn registry() -> (Registry, Client, Reference) {
    let registry = Registry::start().await.unwrap();
    let files = BTreeMap::from([("a".to_owned(), b"b".to_vec())]);
    registry.add_image("a/cat", "v1", &Image::catalog(&files).unwrap());
    let ca = Certificate { encoding: CertificateEncoding::Pem, data: registry.ca_pem().into() };
    let config = ClientConfig { extra_root_certificates: vec![ca], ..ClientConfig::default() };
    let reference = format!("{}/a/cat:v1", registry.host()).parse().unwrap();
    (registry, Client::try_from(config).unwrap(), reference)
}

async fn manifest_error(client: &Client, reference: &Reference) -> String {
    client.pull_manifest(reference, &RegistryAuth::Anonymous).await.unwrap_err().to_string()
}

#[tokio::test]
async fn oci_client_reads_manifest_of_any_size() {
    let (registry, client, reference) = registry().await;
    let manifest =
        format!(r#"{{"schemaVersion":2,"manifests":[],"annotations":{{"x":"{}"}}}}"#, "x".repeat(32 << 20));
    registry.add_manifest("a/cat", "v1", "application/vnd.oci.image.index.v1+json", manifest.into());
    client.pull_manifest(&reference, &RegistryAuth::Anonymous).await.unwrap();
}

#[tokio::test]
async fn oci_client_keeps_error_text_of_any_size() {
    let (registry, client, reference) = registry().await;
    registry.add_fault("/manifests/", 1, Fault::Status(500, Vec::new(), "x".repeat(32 << 20)));
    assert!(manifest_error(&client, &reference).await.len() > 32 << 20);
}

#[tokio::test]
async fn oci_client_drops_retry_after() {
    let (registry, client, reference) = registry().await;
    registry.add_fault(
        "/manifests/",
        1,
        Fault::Status(429, vec![("retry-after", "4711".to_owned())], "busy".to_owned()),
    );
    assert!(!manifest_error(&client, &reference).await.contains("4711"));
}

#[tokio::test]
async fn oci_client_drops_text_of_401() {
    let (registry, client, reference) = registry().await;
    registry.set_access(Access::Basic("u".to_owned(), "p".to_owned()));
    let text = manifest_error(&client, &reference).await;
    assert!(!text.contains("authentication required"), "{text}");
}
