//! The real binary under a signature policy that changes.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod fixture;

use fixture::{Catalogd, Fixture, STANDALONE, condition, image, message, reason, resolved};
use olm_api::ClusterCatalog;
use olm_image::registry::Fault;
use olm_image::signing::{Signer, signature_tag, signatures};
use serde_json::{Value, json};

const SIGNATURE: &str = "SignatureVerified";
const LINES: &str = "{\"schema\":\"a\"}\n";

/// Starts catalogd with the policy of this test in its environment.
fn launch(fixture: &Fixture) -> Catalogd {
    let policy = format!("CONTAINERS_POLICY_JSON={}", fixture.file("policy.json").display());
    let settings = format!("XDG_CONFIG_HOME={}", fixture.file("config").display());
    let program = ["/usr/bin/env", &policy, &settings, env!("CARGO_BIN_EXE_catalogd")];
    Catalogd::launch(fixture, "first", &program, &STANDALONE)
}

fn write_policy(fixture: &Fixture, requirement: &Value) {
    let staging = fixture.file("policy.new");
    std::fs::write(&staging, json!({"default": [requirement]}).to_string()).unwrap();
    std::fs::rename(staging, fixture.file("policy.json")).unwrap();
}

/// Requires signatures of a key that has signed nothing.
fn signed(fixture: &Fixture) -> Value {
    let key = fixture.file("key.pub");
    std::fs::write(&key, rcgen::KeyPair::generate().unwrap().public_key_pem()).unwrap();
    json!({"type": "sigstoreSigned", "keyPath": key})
}

fn is_served(catalog: &ClusterCatalog) -> bool {
    reason(catalog, "Serving") == "Available" && reason(catalog, "Progressing") == "Succeeded"
}

async fn until_withdrawn(fixture: &Fixture, catalogd: &Catalogd, generation: i64) {
    let none = "source catalog content: error copying image: Source image rejected: \
                A signature was required, but no signature exists";
    let refused = fixture.until("cat", |catalog| reason(catalog, "Serving") == "Unavailable").await;
    for (type_, status, reason) in [("Serving", "False", "Unavailable"), ("Progressing", "True", "Retrying")]
    {
        let expect =
            json!({"status": status, "reason": reason, "message": none, "observedGeneration": generation});
        assert_eq!(condition(&refused, type_), Some(expect));
    }
    assert_eq!(reason(&refused, SIGNATURE), "Rejected");
    let status = refused.status.unwrap();
    assert!(status.resolved_source.is_none() && status.urls.is_none() && status.last_unpacked.is_none());
    assert_eq!(catalogd.get(fixture, "cat/api/v1/all").await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn tightened_policy_stops_serving_catalog_and_relaxed_policy_resumes() {
    let fixture = Fixture::start().await;
    let attachments = fixture.file("config/containers/registries.d");
    std::fs::create_dir_all(&attachments).unwrap();
    std::fs::write(attachments.join("a.yaml"), "default-docker: {use-sigstore-attachments: true}").unwrap();
    let (anything, signed) = (json!({"type": "insecureAcceptAnything"}), signed(&fixture));
    write_policy(&fixture, &anything);
    let digest = fixture.registry.add_image("a/cat", "v1", &image("schema: a"));
    fixture.create("cat", "a/cat:v1", json!({})).await;
    let catalogd = launch(&fixture);
    let served = fixture.until("cat", is_served).await;
    assert_eq!(condition(&served, SIGNATURE), None);

    // Without an answer of the signature store the content is neither accepted nor rejected.
    fixture.registry.add_fault(".sig", usize::MAX, Fault::Status(500, Vec::new(), String::new()));
    write_policy(&fixture, &signed);
    let failing = fixture.until("cat", |catalog| reason(catalog, "Progressing") == "Retrying").await;
    assert!(message(&failing, "Progressing").contains("reading signatures sha256-"), "{failing:?}");
    assert_eq!(reason(&failing, "Serving"), "Available");
    assert_eq!(reason(&failing, SIGNATURE), "VerificationFailed");
    assert!(resolved(&failing).ends_with(&digest));
    assert_eq!(catalogd.get(&fixture, "cat/api/v1/all").await, (200, LINES.to_owned()));

    fixture.registry.clear_faults();
    until_withdrawn(&fixture, &catalogd, 1).await;
    assert!(!fixture.cache("first").join("catalogs/cat").exists());

    write_policy(&fixture, &anything);
    let served = fixture.until("cat", is_served).await;
    assert_eq!(condition(&served, SIGNATURE), None);
    assert_eq!(catalogd.get(&fixture, "cat/api/v1/all").await, (200, LINES.to_owned()));

    // Rejected content is not reported as served when the next image cannot be pulled.
    let of = |tag: &str| {
        let image = format!("{}/a/cat:{tag}", fixture.registry.host());
        json!({"spec": {"source": {"image": {"ref": image}}}})
    };
    fixture.patch("cat", of("absent")).await;
    let failing = fixture.until("cat", |catalog| reason(catalog, "Progressing") == "Retrying").await;
    assert_eq!(reason(&failing, "Serving"), "Available");
    write_policy(&fixture, &signed);
    until_withdrawn(&fixture, &catalogd, 2).await;
    write_policy(&fixture, &anything);
    fixture.patch("cat", of("v1")).await;
    fixture.until("cat", is_served).await;

    // The policy changed while catalogd was down, and the content is from a version that recorded no verification.
    catalogd.kill().await;
    std::fs::remove_file(fixture.cache("first").join("catalogs/cat/verified")).unwrap();
    write_policy(&fixture, &signed);
    let catalogd = launch(&fixture);
    until_withdrawn(&fixture, &catalogd, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_catalog_has_condition_while_policy_demands_signature() {
    let fixture = Fixture::start().await;
    let attachments = fixture.file("config/containers/registries.d");
    std::fs::create_dir_all(&attachments).unwrap();
    std::fs::write(attachments.join("a.yaml"), "default-docker: {use-sigstore-attachments: true}").unwrap();
    let signer = Signer::new().unwrap();
    std::fs::write(fixture.file("key.pub"), signer.pem()).unwrap();
    write_policy(&fixture, &json!({"type": "sigstoreSigned", "keyPath": fixture.file("key.pub")}));
    let digest = fixture.registry.add_image("a/cat", "v1", &image("schema: a"));
    let name = format!("{}/a/cat", fixture.registry.host());
    let signed = signer.sign(&format!("{name}:v1"), &digest).unwrap();
    fixture.registry.add_image("a/cat", &signature_tag(&digest), &signatures(&[signed]));
    fixture.create("cat", "a/cat:v1", json!({})).await;
    let _catalogd = launch(&fixture);
    let served = fixture.until("cat", is_served).await;
    let expected = json!({
        "status": "True", "reason": "Verified", "observedGeneration": 1,
        "message": format!("image {name}@{digest} is signed as the signature policy requires"),
    });
    assert_eq!(condition(&served, SIGNATURE), Some(expected));
    write_policy(&fixture, &json!({"type": "insecureAcceptAnything"}));
    fixture.until("cat", |catalog| condition(catalog, SIGNATURE).is_none()).await;
}
