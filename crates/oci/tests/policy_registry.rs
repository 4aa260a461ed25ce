//! Signature policies against Debian's `docker-registry` on loopback, with signatures made by the tests.
//!
//! The tests fail without that program. `hack/test` installs it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed step of a test ends it")]

extern crate olm_tokio as tokio;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use olm_image::docker_registry::DockerRegistry;
use olm_image::registry::{Fault, Registry};
use olm_image::signing::{Signed, Signer, signature_tag, signatures};
use olm_image::{Image, Push, digest_of, push};
use olm_oci::policy::PolicySource;
use olm_oci::{CanonicalRef, Config, ImageLimits, Proxies, Puller, RegistryPaths};
use serde_json::{Value, json};
use tempfile::TempDir;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const NONE: &str = "A signature was required, but no signature exists";
const FAILED: &str =
    "cryptographic signature verification failed: invalid signature when validating ASN.1 encoded signature";

/// Registry and the configuration files of a puller.
struct Fixture {
    folder: TempDir,
    ca_pem: String,
    registry: DockerRegistry,
}

impl Fixture {
    fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let folder = TempDir::new().unwrap();
        let (registry, ca_pem) = DockerRegistry::start_with_tls(folder.path()).unwrap();
        for name in ["cas", "registries.d"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("cas/ca.crt"), &ca_pem).unwrap();
        Self { folder, ca_pem, registry }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn name(&self, rest: &str) -> String {
        format!("{}/{rest}", self.registry.host())
    }

    async fn push(&self, repository: &str, image: &Image) -> String {
        let options = Push { ca_pem: Some(self.ca_pem.clone().into()), ..Push::default() };
        push(&self.name(repository), image, &options).await.unwrap()
    }

    /// Attaches signed payloads to the manifest `digest` in `repository`.
    async fn attach(&self, repository: &str, digest: &str, signed: &[Signed]) {
        let tag = signature_tag(digest);
        self.push(&format!("{repository}:{tag}"), &signatures(signed)).await;
    }

    fn write_policy(&self, policy: &Value) {
        fs::write(self.path("policy.json"), policy.to_string()).unwrap();
    }

    /// Requires signatures of `signer` in this registry, with the default identity, and enables attachments.
    fn require(&self, signer: &Signer) {
        let requirement = json!({"type": "sigstoreSigned", "keyData": BASE64_STANDARD.encode(signer.pem())});
        self.write_policy(&json!({
            "default": [{"type": "reject"}], "transports": {"docker": {self.registry.host(): [requirement]}}
        }));
        self.use_attachments(true);
    }

    fn use_attachments(&self, enabled: bool) {
        let text = format!("docker:\n  {}:\n    use-sigstore-attachments: {enabled}\n", self.registry.host());
        fs::write(self.path("registries.d/test.yaml"), text).unwrap();
    }

    /// Content of `image` after a pull, or the reason of the rejection.
    async fn pull(&self, image: &str) -> Result<String, String> {
        self.pull_with(false, image).await
    }

    async fn pull_with(&self, required: bool, image: &str) -> Result<String, String> {
        let puller = self.puller(required);
        let image = puller.resolve(&self.name(image).parse().unwrap()).await.unwrap();
        // In a separate task, as in the servers.
        let pull = tokio::spawn(async move { puller.pull_files(&image, &["configs"]).await });
        let (files, _) = pull.await.unwrap().map_err(|error| {
            assert!(!error.is_terminal());
            let text = error.to_string();
            text.strip_prefix("error copying image: Source image rejected: ").unwrap_or(&text).to_owned()
        })?;
        Ok(String::from_utf8(files["configs/index.yaml"].clone()).unwrap())
    }

    /// Verdict about `image` without its content. The error states whether the rejection is definite.
    async fn verify(&self, image: &str) -> Result<(), (bool, String)> {
        self.verify_named(&self.name(image)).await
    }

    async fn verify_named(&self, image: &str) -> Result<(), (bool, String)> {
        let puller = self.puller(false);
        let image = puller.resolve(&image.parse().unwrap()).await.unwrap();
        puller.verify(&image).await.map(drop).map_err(|error| (error.is_rejected(), error.to_string()))
    }

    fn puller(&self, required: bool) -> Puller {
        puller_of(self.folder.path(), required)
    }
}

/// Creates a puller with the policy and the certificates in `folder`.
fn puller_of(folder: &Path, required: bool) -> Puller {
    let mut config = Config::new(ImageLimits::CATALOG);
    config.cas_dir = Some(folder.join("cas"));
    config.paths = RegistryPaths { containers: vec![folder.to_owned()], ..RegistryPaths::default() };
    config.proxies = Proxies::default();
    config.policy = PolicySource::new(None, vec![folder.to_owned()], required);
    Puller::new(config)
}

fn catalog(content: &str) -> Image {
    Image::catalog(&BTreeMap::from([("index.yaml".to_owned(), content.as_bytes().to_vec())])).unwrap()
}

#[tokio::test]
async fn pull_needs_signature_for_digest_and_identity() {
    let fixture = Fixture::start();
    let (signer, stranger) = (Signer::new().unwrap(), Signer::new().unwrap());
    fixture.require(&signer);
    let digest = fixture.push("a/cat:v1", &catalog("schema: a")).await;
    let other = fixture.push("a/other:v1", &catalog("schema: b")).await;
    let named = fixture.name("a/cat:v1");
    let by_digest = format!("a/cat@{digest}");

    assert_eq!(fixture.pull("a/cat:v1").await, Err(NONE.to_owned()));
    fixture.attach("a/cat", &digest, &[stranger.sign(&named, &digest).unwrap()]).await;
    assert_eq!(fixture.pull("a/cat:v1").await, Err(FAILED.to_owned()));
    fixture.attach("a/cat", &digest, &[signer.sign(&named, &other).unwrap()]).await;
    assert_eq!(fixture.pull("a/cat:v1").await, Err(format!("Signature for digest {other} does not match")));
    let wrong = fixture.name("a/other:v1");
    fixture.attach("a/cat", &digest, &[signer.sign(&wrong, &digest).unwrap()]).await;
    let refused = format!("Signature for identity {wrong:?} is not accepted");
    assert_eq!(fixture.pull("a/cat:v1").await, Err(refused.clone()));
    fixture
        .attach(
            "a/cat",
            &digest,
            &[stranger.sign(&named, &digest).unwrap(), signer.sign(&wrong, &digest).unwrap()],
        )
        .await;
    let both = format!("None of the signatures were accepted, reasons: {FAILED}; {refused}");
    assert_eq!(fixture.pull("a/cat:v1").await, Err(both));

    fixture
        .attach(
            "a/cat",
            &digest,
            &[stranger.sign(&named, &digest).unwrap(), signer.sign(&named, &digest).unwrap()],
        )
        .await;
    assert_eq!(fixture.pull("a/cat:v1").await, Ok("schema: a".to_owned()));
    assert_eq!(fixture.pull(&by_digest).await, Ok("schema: a".to_owned()));
    // The same content under an unsigned tag.
    fixture.push("a/cat:v2", &catalog("schema: a")).await;
    let refused = format!(
        "None of the signatures were accepted, reasons: {FAILED}; Signature for identity {named:?} is not accepted"
    );
    assert_eq!(fixture.pull("a/cat:v2").await, Err(refused));

    fixture.use_attachments(false);
    let off =
        format!("{NONE}: registries.d does not set use-sigstore-attachments for {}", fixture.name("a/cat"));
    assert_eq!(fixture.pull("a/cat:v1").await, Err(off));
}

#[tokio::test]
async fn policy_keys_and_identities_are_applied() {
    let fixture = Fixture::start();
    let (first, second) = (Signer::new().unwrap(), Signer::new().unwrap());
    fixture.require(&first);
    let digest = fixture.push("a/cat:v1", &catalog("schema: a")).await;
    // cosign signs the repository name without a tag.
    fixture.attach("a/cat", &digest, &[first.sign(&fixture.name("a/cat"), &digest).unwrap()]).await;
    let refused = format!("Signature for identity {:?} is not accepted", fixture.name("a/cat"));
    assert_eq!(fixture.pull("a/cat:v1").await, Err(refused));

    let pulled = Ok("schema: a".to_owned());
    let (key, other) = (fixture.path("first.pub"), fixture.path("second.pub"));
    fs::write(&key, first.pem()).unwrap();
    fs::write(&other, second.pem()).unwrap();
    let repository = json!({"type": "matchRepository"});
    let signed_by =
        |key: &PathBuf| json!({"type": "sigstoreSigned", "keyPath": key, "signedIdentity": repository});
    fixture.write_policy(&json!({"default": [signed_by(&key)]}));
    assert_eq!(fixture.pull("a/cat:v1").await, pulled);
    fixture.write_policy(
        &json!({"default": [{"type": "sigstoreSigned", "keyPaths": [other, key], "signedIdentity": repository}]}),
    );
    assert_eq!(fixture.pull("a/cat:v1").await, pulled);
    fixture.write_policy(&json!({"default": [signed_by(&key), signed_by(&other)]}));
    assert_eq!(fixture.pull("a/cat:v1").await, Err(FAILED.to_owned()));
    let both = ["a/cat"; 2].map(|name| fixture.name(name));
    fixture
        .attach(
            "a/cat",
            &digest,
            &[first.sign(&both[0], &digest).unwrap(), second.sign(&both[1], &digest).unwrap()],
        )
        .await;
    assert_eq!(fixture.pull("a/cat:v1").await, pulled);
    fixture.write_policy(&json!({"default": [signed_by(&key), {"type": "reject"}]}));
    let rejected = format!("Running image docker://{} is rejected by policy.", fixture.name("a/cat:v1"));
    assert_eq!(fixture.pull("a/cat:v1").await, Err(rejected));

    fs::remove_file(&key).unwrap();
    fixture.write_policy(&json!({"default": [signed_by(&key)]}));
    let absent = format!("public key {}: No such file or directory (os error 2)", key.display());
    assert_eq!(fixture.pull("a/cat:v1").await, Err(absent));
    fixture.write_policy(&json!({"default": [{"type": "signedBy", "keyType": "GPGKeys", "keyPath": "/k"}]}));
    let unsupported = "policy requirement signedBy is not supported: use sigstoreSigned with a public key";
    assert_eq!(fixture.pull("a/cat:v1").await, Err(unsupported.to_owned()));
}

#[tokio::test]
async fn index_is_accepted_if_either_manifest_is_signed() {
    let fixture = Fixture::start();
    let signer = Signer::new().unwrap();
    fixture.require(&signer);
    let image = catalog("schema: a");
    let own = fixture.push("a/cat:single", &image).await;
    let index = json!({
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": own,
            "size": image.manifest.len(),
        }],
    })
    .to_string();
    let digest = digest_of(index.as_bytes());
    let client = reqwest::Client::builder()
        .tls_certs_merge([reqwest::Certificate::from_pem(fixture.ca_pem.as_bytes()).unwrap()])
        .build()
        .unwrap();
    let url = format!("https://{}/v2/a/cat/manifests/v1", fixture.registry.host());
    let answer = client.put(url).header("content-type", INDEX).body(index).send().await.unwrap();
    assert_eq!(answer.status(), 201);

    let named = fixture.name("a/cat:v1");
    assert_eq!(fixture.pull("a/cat:v1").await, Err(NONE.to_owned()));
    fixture.attach("a/cat", &digest, &[signer.sign(&named, &digest).unwrap()]).await;
    assert_eq!(fixture.pull("a/cat:v1").await, Ok("schema: a".to_owned()));
    fixture.attach("a/cat", &digest, &[Signer::new().unwrap().sign(&named, &digest).unwrap()]).await;
    assert_eq!(fixture.pull("a/cat:v1").await, Err(FAILED.to_owned()));
    fixture.attach("a/cat", &own, &[signer.sign(&named, &own).unwrap()]).await;
    assert_eq!(fixture.pull("a/cat:v1").await, Ok("schema: a".to_owned()));
}

#[tokio::test]
async fn unreadable_attachments_reject_image() {
    let fixture = Fixture::start();
    let signer = Signer::new().unwrap();
    fixture.require(&signer);
    let digest = fixture.push("a/cat:v1", &catalog("schema: a")).await;
    let good = signer.sign(&fixture.name("a/cat:v1"), &digest).unwrap();
    let tag = signature_tag(&digest);
    let reading = format!("reading signatures {tag}: ");

    fixture.attach("a/cat", &digest, &[("x".repeat(70_000), good.1.clone()), good.clone()]).await;
    assert_eq!(
        fixture.pull("a/cat:v1").await,
        Err(format!("{reading}the answer is larger than 65536 bytes"))
    );
    fixture.attach("a/cat", &digest, &vec![good.clone(); 129]).await;
    assert_eq!(fixture.pull("a/cat:v1").await, Err(format!("{reading}there are more than 128 layers")));
    fixture.attach("a/cat", &digest, &vec![good; 128]).await;
    assert_eq!(fixture.pull("a/cat:v1").await, Ok("schema: a".to_owned()));
    // An image that is not a signature artifact.
    fixture.push(&format!("a/cat:{tag}"), &catalog("schema: a")).await;
    assert_eq!(fixture.pull("a/cat:v1").await, Err(format!("{NONE} (1 sigstore non-signature attachments)")));
}

#[tokio::test]
async fn policy_without_signatures_accepts_or_rejects() {
    let fixture = Fixture::start();
    fixture.push("a/cat:v1", &catalog("schema: a")).await;
    let pulled = Ok("schema: a".to_owned());
    let file = fixture.path("policy.json").display().to_string();

    // Case additions-a54
    assert_eq!(fixture.pull("a/cat:v1").await, pulled);
    let missing = format!("a signature policy is required and there is none in {file}");
    assert_eq!(fixture.pull_with(true, "a/cat:v1").await, Err(missing));

    fixture.write_policy(&json!({"default": [{"type": "insecureAcceptAnything"}]}));
    assert_eq!(fixture.pull_with(true, "a/cat:v1").await, pulled);

    // docs/design/images.md#pull-errors, row "policy reject"
    fixture.write_policy(&json!({
        "default": [{"type": "insecureAcceptAnything"}],
        "transports": {"docker": {fixture.name("a"): [{"type": "reject"}]}},
    }));
    let rejected = format!("Running image docker://{} is rejected by policy.", fixture.name("a/cat:v1"));
    assert_eq!(fixture.pull("a/cat:v1").await, Err(rejected));
    fixture.push("b/cat:v1", &catalog("schema: b")).await;
    assert_eq!(fixture.pull("b/cat:v1").await, Ok("schema: b".to_owned()));

    // docs/design/images.md#signature-policy
    fixture.write_policy(&json!({"default": [{"type": "insecureAcceptAnything"}], "transport": {}}));
    let malformed = fixture.pull("b/cat:v1").await.unwrap_err();
    let expected = format!("invalid policy in {file:?}: unknown field `transport`");
    assert!(malformed.starts_with(&expected), "{malformed}");
}

#[tokio::test]
async fn verification_records_policy_that_accepted_image() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let registry = Registry::start().await.unwrap();
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("cas")).unwrap();
    registry.write_ca(&folder.path().join("cas")).unwrap();
    let write_policy = |requirement: Value| {
        fs::write(folder.path().join("policy.json"), json!({"default": [requirement]}).to_string()).unwrap();
    };
    let digest = registry.add_image("a/cat", "v1", &catalog("schema: a"));
    let image = format!("{}/a/cat@{digest}", registry.host()).parse().unwrap();
    let image = CanonicalRef::from_digest(&image).unwrap();
    registry.add_fault("GET /v2/a/cat/manifests/", usize::MAX, Fault::Status(500, Vec::new(), String::new()));
    write_policy(json!({"type": "sigstoreSigned", "keyPath": "/none"}));
    let puller = Arc::new(puller_of(folder.path(), false));
    let pull = tokio::spawn({
        let (puller, image) = (Arc::clone(&puller), image.clone());
        async move { puller.pull_files(&image, &["configs"]).await }
    });
    while registry.take_requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    write_policy(json!({"type": "insecureAcceptAnything"}));
    registry.clear_faults();
    let (_, verification) = pull.await.unwrap().unwrap();
    assert_eq!(verification, puller.verification(&image).unwrap());
    assert!(!verification.is_signed());
}

#[tokio::test]
async fn rejection_is_definite_only_if_policy_and_signatures_are_readable() {
    let fixture = Fixture::start();
    let signer = Signer::new().unwrap();
    let digest = fixture.push("a/cat:v1", &catalog("schema: a")).await;
    let rejected = |definite: bool, reason: &str| {
        Err((definite, format!("error copying image: Source image rejected: {reason}")))
    };
    let tag = signature_tag(&digest);
    assert_eq!(fixture.verify("a/cat:v1").await, Ok(()));
    fixture.require(&signer);
    assert_eq!(fixture.verify("a/cat:v1").await, rejected(true, NONE));
    fixture.attach("a/cat", &digest, &[signer.sign(&fixture.name("a/cat:v1"), &digest).unwrap()]).await;
    assert_eq!(fixture.verify("a/cat:v1").await, Ok(()));
    // The same digest in another repository.
    fixture.push("b/cat:v1", &catalog("schema: a")).await;
    assert_eq!(fixture.verify("b/cat:v1").await, rejected(true, NONE));
    fixture.attach("b/cat", &digest, &[signer.sign(&fixture.name("a/cat:v1"), &digest).unwrap()]).await;
    let other = format!("Signature for identity {:?} is not accepted", fixture.name("a/cat:v1"));
    assert_eq!(fixture.verify("b/cat:v1").await, rejected(true, &other));

    // Signatures are not looked up.
    fixture.use_attachments(false);
    let off =
        format!("{NONE}: registries.d does not set use-sigstore-attachments for {}", fixture.name("a/cat"));
    assert_eq!(fixture.verify("a/cat:v1").await, rejected(false, &off));
    fixture.use_attachments(true);

    let huge = ("x".repeat(70_000), String::new());
    fixture.attach("a/cat", &digest, &[huge]).await;
    let unread = format!("reading signatures {tag}: the answer is larger than 65536 bytes");
    assert_eq!(fixture.verify("a/cat:v1").await, rejected(false, &unread));
    let key = fixture.path("none.pub");
    fixture.write_policy(&json!({"default": [{"type": "sigstoreSigned", "keyPath": key}]}));
    let absent = format!("public key {}: No such file or directory (os error 2)", key.display());
    assert_eq!(fixture.verify("a/cat:v1").await, rejected(false, &absent));
    fs::write(fixture.path("policy.json"), "{").unwrap();
    assert!(matches!(fixture.verify("a/cat:v1").await, Err((false, _))));
    fixture.write_policy(&json!({"default": [{"type": "reject"}]}));
    let text = format!("Running image docker://{} is rejected by policy.", fixture.name("a/cat:v1"));
    assert_eq!(fixture.verify("a/cat:v1").await, rejected(true, &text));
}

#[tokio::test]
async fn missing_signature_at_mirror_is_no_definite_rejection() {
    let fixture = Fixture::start();
    let signer = Signer::new().unwrap();
    fixture.push("a/cat:v1", &catalog("schema: a")).await;
    let conf = format!(
        "[[registry]]\nprefix = \"images.example.com\"\nlocation = \"images.example.com\"\n\
         [[registry.mirror]]\nlocation = \"{}\"\n",
        fixture.registry.host()
    );
    fs::write(fixture.path("registries.conf"), conf).unwrap();
    fixture.use_attachments(true);
    let requirement = json!({"type": "sigstoreSigned", "keyData": BASE64_STANDARD.encode(signer.pem())});
    fixture.write_policy(&json!({"default": [requirement]}));
    let refused =
        |definite: bool| Err((definite, format!("error copying image: Source image rejected: {NONE}")));
    assert_eq!(fixture.verify_named("images.example.com/a/cat:v1").await, refused(false));
    assert_eq!(fixture.verify("a/cat:v1").await, refused(true));
}
