//! Extensions under a changing signature policy, with bundles in a real registry.

use std::fs;
use std::path::PathBuf;

use olm_api::conditions::types::{INSTALLED, PROGRESSING, SIGNATURE_VERIFIED};
use olm_image::Image;
use olm_image::registry::{Fault, Registry};
use olm_image::signing::{Signer, signature_tag, signatures};
use serde_json::{Value, json};

use super::fixture::{DONE, Fixture, Release, version};
use crate::bundles::fixture;

const NONE: &str = "A signature was required, but no signature exists";

/// Fixture with a bundle registry and a signing key.
struct Site {
    fixture: Fixture,
    registry: Registry,
    signer: Signer,
    folder: PathBuf,
}

impl Site {
    async fn start() -> Self {
        let (mut fixture, registry) = (Fixture::start().await, Registry::start().await.unwrap());
        let (signer, folder) = (Signer::new().unwrap(), fixture.cache().join("unpack"));
        fixture.stop_controller().await;
        for name in ["cas", "registries.d"] {
            fs::create_dir(folder.join(name)).unwrap();
        }
        registry.write_ca(&folder.join("cas")).unwrap();
        let attachments = "default-docker: {use-sigstore-attachments: true}";
        fs::write(folder.join("registries.d/a.yaml"), attachments).unwrap();
        fs::write(folder.join("key.pub"), signer.pem()).unwrap();
        fixture.start_controller();
        Self { fixture, registry, signer, folder }
    }

    /// Requires signatures of all images.
    fn tighten(&self) {
        let requirement = json!({"type": "sigstoreSigned", "keyPath": self.folder.join("key.pub"),
            "signedIdentity": {"type": "matchRepository"}});
        fs::write(self.folder.join("policy.json"), json!({"default": [requirement]}).to_string()).unwrap();
        self.fixture.context().parts.catalogs.requeue_extensions();
    }

    fn relax(&self) {
        fs::remove_file(self.folder.join("policy.json")).unwrap();
        self.fixture.context().parts.catalogs.requeue_extensions();
    }

    fn name(&self, repository: &str) -> String {
        format!("{}/{repository}", self.registry.host())
    }

    /// Pushes an image to this repository. Returns the version, its image reference and its digest.
    fn push(&self, repository: &str, number: &'static str) -> (Release, String, String) {
        let files = fixture::files("1.0.0", &version("1.0.0", "a").manifests);
        let digest = self.registry.add_image(repository, "v1", &Image::bundle(&files).unwrap());
        let image = format!("{}@{digest}", self.name(repository));
        (Release { image: Some(image.clone()), ..version(number, "a") }, image, digest)
    }

    /// Attaches a signature to the image in `repository`, with `named` as the signed identity.
    fn sign(&self, repository: &str, digest: &str, named: &str) {
        let signed = self.signer.sign(&self.name(named), digest).unwrap();
        self.registry.add_image(repository, &signature_tag(digest), &signatures(&[signed]));
        self.fixture.context().parts.catalogs.requeue_extensions();
    }

    async fn expect_rejected(&self, name: &str, image: &str, reason: &str) {
        let text = format!(
            "False/Rejected image {image}: error copying image: Source image rejected: {reason}; no revision is \
             created from it"
        );
        self.fixture.until_condition(name, SIGNATURE_VERIFIED, &text).await;
    }
}

fn exactly(version: &str) -> Value {
    json!({"version": version})
}

#[tokio::test(flavor = "multi_thread")]
async fn tightened_policy_rejects_new_revisions_and_keeps_active_one() {
    let site = Site::start().await;
    let Site { fixture, registry, .. } = &site;
    let (release, image, digest) = site.push("demo", "1.0.0");
    fixture.publish("main", &[release]).await;
    fixture.create("demo", &exactly("1.0.0"), &json!({})).await;
    fixture.succeed("demo-1").await;
    fixture.until_condition("demo", PROGRESSING, DONE).await;
    assert_eq!(fixture.condition("demo", SIGNATURE_VERIFIED).await, None);

    // There is no verdict without an answer of the signature store.
    registry.add_fault(".sig", usize::MAX, Fault::Status(500, Vec::new(), String::new()));
    site.tighten();
    let is_unknown = |text: &String| text.starts_with("Unknown/VerificationFailed ");
    let unknown = async || fixture.condition("demo", SIGNATURE_VERIFIED).await.filter(is_unknown);
    fixture.eventually("an unknown verdict", unknown).await;
    registry.clear_faults();
    fixture.context().parts.catalogs.requeue_extensions();
    site.expect_rejected("demo", &image, NONE).await;

    // Cached content is rejected as well.
    fixture.create("other", &exactly("1.0.0"), &json!({})).await;
    site.expect_rejected("other", &image, NONE).await;
    let refused = format!(
        "True/Retrying error for resolved bundle \"demo.v1.0.0\" with version \"1.0.0\": \
         error copying image: Source image rejected: {NONE}"
    );
    fixture.until_condition("other", PROGRESSING, &refused).await;
    fixture.until_condition("other", INSTALLED, "False/Failed No bundle installed").await;
    assert_eq!(fixture.condition("demo", PROGRESSING).await.unwrap(), DONE);
    let installed = format!("True/Succeeded Installed bundle {image} successfully");
    assert_eq!(fixture.condition("demo", INSTALLED).await.unwrap(), installed);
    assert_eq!(fixture.revisions().await, ["demo-1"]);
    assert!(!fixture.sets.get("demo-1").await.unwrap().is_archived());

    site.sign("demo", &digest, "demo");
    fixture.revision("other-1").await;
    let verified = format!("True/Verified image {image} is signed as the signature policy requires");
    for name in ["demo", "other"] {
        fixture.until_condition(name, SIGNATURE_VERIFIED, &verified).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn same_digest_in_other_repository_needs_its_own_signature() {
    let site = Site::start().await;
    let Site { fixture, .. } = &site;
    site.tighten();
    let (first, image, digest) = site.push("demo", "1.0.0");
    site.sign("demo", &digest, "demo");
    fixture.publish("main", &[first]).await;
    fixture.create("demo", &json!({}), &json!({})).await;
    fixture.succeed("demo-1").await;
    let verified = format!("True/Verified image {image} is signed as the signature policy requires");
    fixture.until_condition("demo", SIGNATURE_VERIFIED, &verified).await;

    let (copy, copied, same) = site.push("copy", "1.1.0");
    assert_eq!(same, digest);
    let (first, ..) = site.push("demo", "1.0.0");
    fixture.publish("main", &[first, copy]).await;
    site.expect_rejected("demo", &copied, NONE).await;
    site.sign("copy", &digest, "demo");
    let reason = format!("Signature for identity {:?} is not accepted", site.name("demo"));
    site.expect_rejected("demo", &copied, &reason).await;
    assert_eq!(fixture.revisions().await, ["demo-1"]);

    site.relax();
    fixture.revision("demo-2").await;
    let without = async || fixture.condition("demo", SIGNATURE_VERIFIED).await.is_none().then_some(());
    fixture.eventually("no condition without a policy", without).await;
}
