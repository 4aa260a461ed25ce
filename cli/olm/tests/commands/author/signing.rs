//! `olm bundle sign`, `verify` and `keygen`, `olm catalog sign`, and signatures in `olm catalog verify`, against a
//! registry. Servers read the same signatures.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use olm_image::Image;
use olm_image::registry::Fault;
use olm_image::signing::{Signer, signature_tag, signatures};
use olm_oci::policy::PolicySource;
use olm_oci::{Config, ImageLimits, Proxies, Puller, RegistryPaths};
use serde_json::{Value, json};

use super::fixture::{Fixture, bundle};
use crate::fixture::Ran;

const PASSWORD: &str = "correct horse";
const NONE: &str = "A signature was required, but no signature exists";

/// Runs `olm` with a password for keys.
async fn olm(fixture: &Fixture, line: &str) -> Ran {
    let words: Vec<_> = line.split_whitespace().collect();
    fixture.run_with(&words, &[("COSIGN_PASSWORD", PASSWORD)]).await
}

/// Output of a command that must succeed.
async fn works(fixture: &Fixture, line: &str) -> String {
    let ran = olm(fixture, line).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "olm {line}");
    ran.stdout
}

/// Verdict of `olm bundle verify` as JSON, with its exit code.
async fn verify(fixture: &Fixture, image: &str, options: &str) -> (i32, Value) {
    let ran = olm(fixture, &format!("bundle verify {image} --ca-dir cas -o json {options}")).await;
    (ran.code, serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}")))
}

/// Fixture with the keys `a` and `b` and a bundle. Returns its digest.
async fn fixture() -> (Fixture, String) {
    let fixture = Fixture::open().await;
    for key in ["a", "b"] {
        works(&fixture, &format!("bundle keygen {key}")).await;
    }
    let image = Image::bundle(&bundle(0)).unwrap();
    let digest = fixture.registry.add_image("team/lamp", "v1", &image);
    (fixture, digest)
}

fn puts(fixture: &Fixture) -> Vec<String> {
    fixture.registry.take_requests().into_iter().filter(|request| request.starts_with("PUT")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_is_accepted_under_each_key_that_signed_it() {
    let (fixture, digest) = fixture().await;
    let image = fixture.reference("team/lamp:v1");
    let mode = fs::metadata(fixture.path("a.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (code, verdict) = verify(&fixture, &image, "--key a.pub").await;
    assert_eq!((code, &verdict["accepted"]), (3, &json!(false)));
    assert_eq!(verdict["reason"], format!("error copying image: Source image rejected: {NONE}"));

    let sign = |key: &str| format!("bundle sign {image} --key {key} --ca-dir cas");
    let by_digest = format!("REGISTRY/team/lamp@{digest}");
    assert_eq!(works(&fixture, &sign("a.key")).await, format!("signed {by_digest}\n"));
    assert_eq!(verify(&fixture, &image, "--key a.pub").await.0, 0);
    let (code, verdict) = verify(&fixture, &image, "--key b.pub").await;
    assert_eq!(code, 3);
    let failed = "error copying image: Source image rejected: cryptographic signature verification failed: \
                  invalid signature when validating ASN.1 encoded signature";
    assert_eq!(verdict["reason"], failed);
    assert_eq!(verify(&fixture, &image, "--key b.pub --key a.pub").await.0, 0);

    drop(fixture.registry.take_requests());
    assert_eq!(works(&fixture, &sign("a.key")).await, format!("was signed before: {by_digest}\n"));
    assert_eq!(puts(&fixture), Vec::<String>::new());
    works(&fixture, &format!("catalog sign {image} --key b.key --ca-dir cas")).await;
    for key in ["a.pub", "b.pub"] {
        assert_eq!(verify(&fixture, &image, &format!("--key {key}")).await.0, 0);
    }

    // The tag moves to content that nobody signed.
    fixture.registry.add_image("team/lamp", "v1", &Image::bundle(&bundle(1)).unwrap());
    assert_eq!(verify(&fixture, &image, "--key a.pub").await.0, 3);
    assert_eq!(
        verify(&fixture, &fixture.reference(&format!("team/lamp@{digest}")), "--key a.pub").await.0,
        0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signatures_of_other_tools_are_kept() {
    let (fixture, digest) = fixture().await;
    let (image, signer) = (fixture.reference("team/lamp:v1"), Signer::new().unwrap());
    fixture.write("other.pub", &signer.pem());
    // cosign names the repository.
    let signed = signer.sign(&fixture.reference("team/lamp"), &digest).unwrap();
    fixture.registry.add_image("team/lamp", &signature_tag(&digest), &signatures(&[signed]));
    works(&fixture, &format!("bundle sign {image} --key a.key --ca-dir cas")).await;
    for key in ["a.pub", "other.pub"] {
        assert_eq!(verify(&fixture, &image, &format!("--key {key}")).await.0, 0);
    }
    let tag = signature_tag(&digest);
    let index = json!({ "schemaVersion": 2, "manifests": [] }).to_string();
    let kind = "application/vnd.oci.image.index.v1+json";
    fixture.registry.add_manifest("team/lamp", &tag, kind, index.into());
    let ran = olm(&fixture, &format!("bundle sign {image} --key a.key --ca-dir cas")).await;
    let why =
        format!("error: tag {tag}: expected an OCI image manifest, to which a signature can be added\n");
    assert_eq!((ran.code, ran.stderr), (1, why));
}

/// Pulls by the code of the servers with the default identity of `policy.json`.
async fn pull(fixture: &Fixture, image: &str) -> Result<(), String> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut config = Config::new(ImageLimits::BUNDLE);
    config.cas_dir = Some(fixture.path("cas"));
    config.paths = RegistryPaths::default();
    config.proxies = Proxies::default();
    config.policy = PolicySource::new(Some(fixture.path("policy.json")), vec![fixture.path("")], true);
    let puller = Puller::new(config);
    let image = puller.resolve(&fixture.reference(image).parse().unwrap()).await.unwrap();
    let pulled = puller.pull_files(&image, &["manifests"]).await;
    pulled.map(drop).map_err(|error| error.to_string().replace(&fixture.registry.host(), "REGISTRY"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_accept_signature_for_its_tag_and_digest() {
    let (fixture, digest) = fixture().await;
    let policy = json!({ "default": [{ "type": "sigstoreSigned", "keyPath": fixture.path("a.pub") }] });
    fixture.write("policy.json", &policy.to_string());
    fixture.write("registries.d/a.yaml", "default-docker: {use-sigstore-attachments: true}");
    let by_digest = format!("team/lamp@{digest}");
    assert!(pull(&fixture, "team/lamp:v1").await.unwrap_err().ends_with(NONE));
    let image = fixture.reference("team/lamp:v1");
    works(&fixture, &format!("bundle sign {image} --key a.key --ca-dir cas")).await;
    assert_eq!(pull(&fixture, "team/lamp:v1").await, Ok(()));
    assert_eq!(pull(&fixture, &by_digest).await, Ok(()));
    let (code, verdict) = verify(&fixture, &image, "--policy policy.json").await;
    assert_eq!((code, &verdict["signature"]), (0, &json!("accepted")));
    fixture.write("open.json", &json!({ "default": [{ "type": "insecureAcceptAnything" }] }).to_string());
    let (code, verdict) = verify(&fixture, &image, "--policy open.json").await;
    assert_eq!((code, &verdict["accepted"], &verdict["signature"]), (0, &json!(true), &json!("notDemanded")));
    let table = works(&fixture, &format!("bundle verify {image} --policy open.json --ca-dir cas")).await;
    assert!(table.contains("not demanded"), "{table}");

    fixture.registry.add_image("team/lamp", "v2", &Image::bundle(&bundle(0)).unwrap());
    let refused = pull(&fixture, "team/lamp:v2").await.unwrap_err();
    assert!(
        refused.ends_with("Signature for identity \"REGISTRY/team/lamp:v1\" is not accepted"),
        "{refused}"
    );
    let options = format!("--key a.key --ca-dir cas --identity {}", fixture.reference("team/lamp:v2"));
    works(&fixture, &format!("bundle sign {image} {options}")).await;
    assert_eq!(pull(&fixture, "team/lamp:v2").await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn index_is_signed_as_a_whole() {
    let (fixture, own) = fixture().await;
    let kind = "application/vnd.oci.image.index.v1+json";
    let entry = json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": own, "size": 1,
        "platform": { "os": "linux", "architecture": "s390x" },
    });
    let index = json!({ "schemaVersion": 2, "mediaType": kind, "manifests": [entry] }).to_string();
    let digest = fixture.registry.add_manifest("team/lamp", "all", kind, index.into());
    let image = fixture.reference("team/lamp:all");
    let signed = works(&fixture, &format!("bundle sign {image} --key a.key --ca-dir cas")).await;
    assert_eq!(signed, format!("signed REGISTRY/team/lamp@{digest}\n"));
    assert_eq!(verify(&fixture, &image, "--key a.pub").await.0, 0);
    assert_eq!(verify(&fixture, &fixture.reference("team/lamp:v1"), "--key a.pub").await.0, 3);
    // The signature of one image in the index is none of the index.
    works(&fixture, &format!("bundle sign {} --key b.key --ca-dir cas", fixture.reference("team/lamp:v1")))
        .await;
    assert_eq!(verify(&fixture, &image, "--key b.pub").await.0, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_referrers_are_reported_beside_the_verdict() {
    let (fixture, _) = fixture().await;
    let image = fixture.reference("team/lamp:v1");
    works(&fixture, &format!("bundle sign {image} --key a.key --ca-dir cas")).await;
    fixture.registry.add_fault("/referrers/", usize::MAX, Fault::Status(403, Vec::new(), String::new()));
    let (code, verdict) = verify(&fixture, &image, "--key a.pub").await;
    assert_eq!((code, &verdict["signature"]), (0, &json!("accepted")));
    assert_eq!(verdict["attachmentsError"], "reading referrers: denied: ");
    let table = works(&fixture, &format!("bundle verify {image} --key a.pub --ca-dir cas")).await;
    assert!(table.ends_with("attached files are unknown: reading referrers: denied: \n"), "{table}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attachments_above_the_limit_are_counted() {
    let (fixture, digest) = fixture().await;
    let image = fixture.reference("team/lamp:v1");
    works(&fixture, &format!("bundle sign {image} --key a.key --ca-dir cas")).await;
    let entry = json!({ "digest": format!("sha256:{}", "0".repeat(64)) });
    let index = json!({ "schemaVersion": 2, "manifests": vec![entry; 1030] }).to_string();
    let kind = "application/vnd.oci.image.index.v1+json";
    fixture.registry.add_manifest("team/lamp", &digest.replace(':', "-"), kind, index.into());
    let table = works(&fixture, &format!("bundle verify {image} --key a.pub --ca-dir cas")).await;
    let last = "6 attached files were left out: the limits are 1024 files and 15 minutes\n";
    assert!(table.ends_with(last), "{}", table.lines().last().unwrap_or_default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attachments_are_signed_for_the_repository_of_the_identity() {
    let (fixture, _) = fixture().await;
    fixture.write("lamp.cdx.json", r#"{"bomFormat":"CycloneDX"}"#);
    let image = fixture.reference("team/lamp:v1");
    let options = "--key a.key --ca-dir cas --sbom lamp.cdx.json --identity mirror.example.com/team/lamp:v1";
    works(&fixture, &format!("bundle sign {image} {options}")).await;
    let identity = json!({
        "type": "remapIdentity", "prefix": fixture.registry.host(), "signedPrefix": "mirror.example.com",
    });
    let signed = json!({
        "type": "sigstoreSigned", "keyPath": fixture.path("a.pub"), "signedIdentity": identity,
    });
    fixture.write("policy.json", &json!({ "default": [signed] }).to_string());
    let (code, verification) = verify(&fixture, &image, "--policy policy.json").await;
    assert_eq!((code, &verification["attachments"][0]["accepted"]), (0, &json!(true)));
    assert_eq!(verify(&fixture, &image, "--key a.pub").await.0, 3);
}

async fn attach_and_verify(has_api: bool) {
    let (fixture, digest) = fixture().await;
    if has_api {
        fixture.registry.offer_referrers();
    }
    fixture.write("lamp.spdx.json", r#"{"spdxVersion":"SPDX-2.3"}"#);
    fixture.write("lamp.intoto.json", r#"{"_type":"https://in-toto.io/Statement/v1"}"#);
    fixture.write("lamp.cdx.json", r#"{"bomFormat":"CycloneDX"}"#);
    let image = fixture.reference("team/lamp:v1");
    let sign = format!(
        "bundle sign {image} --key a.key --ca-dir cas --sbom lamp.spdx.json --provenance lamp.intoto.json"
    );
    let first = works(&fixture, &sign).await;
    let lines: Vec<_> = first.lines().collect();
    assert!(lines[1].starts_with("attached lamp.spdx.json (application/spdx+json) sha256:"), "{first}");
    assert!(
        lines[2].starts_with("attached lamp.intoto.json (application/vnd.in-toto+json) sha256:"),
        "{first}"
    );
    drop(fixture.registry.take_requests());
    let again = works(&fixture, &sign).await;
    assert!(again.lines().skip(1).all(|line| line.starts_with("was attached before: ")), "{again}");
    let sent = puts(&fixture);
    assert!(sent.is_empty(), "{sent:?}");
    works(&fixture, &format!("bundle sign {image} --key a.key --ca-dir cas --sbom lamp.cdx.json")).await;
    let tags = puts(&fixture).iter().any(|put| put.ends_with(&digest.replace(':', "-")));
    assert_eq!(tags, !has_api);

    let (code, verification) = verify(&fixture, &image, "--key a.pub").await;
    assert_eq!(code, 0);
    let attachments = verification["attachments"].as_array().unwrap();
    let mut found: Vec<_> = attachments
        .iter()
        .map(|one| [&one["kind"], &one["file"], &one["accepted"]].map(Value::to_string).join(" "))
        .collect();
    found.sort();
    let expected = [
        r#""SBOM" "lamp.cdx.json" true"#,
        r#""SBOM" "lamp.spdx.json" true"#,
        r#""provenance" "lamp.intoto.json" true"#,
    ];
    assert_eq!(found, expected);
    let table = works(&fixture, &format!("bundle verify {image} --key a.pub --ca-dir cas")).await;
    let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.iter().any(|row| row[..3] == ["SBOM", "accepted", "application/spdx+json"]), "{table}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_attached_by_referrers_api() {
    attach_and_verify(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_attached_by_tag_without_referrers_api() {
    attach_and_verify(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsigned_bundles_and_catalog_are_findings() {
    let (fixture, _) = fixture().await;
    fixture.works("init lamp -c stable -o json --to catalog").await;
    let mut images = Vec::new();
    for minor in 0..3 {
        let digest = fixture.registry.add_image("team/lamp", "x", &Image::bundle(&bundle(minor)).unwrap());
        images.push(fixture.reference(&format!("team/lamp@{digest}")));
    }
    fixture.works(&format!("add catalog --ca-dir cas {}", images.join(" "))).await;
    let catalog = fixture.reference("team/catalog:v1");
    fixture.works(&format!("push catalog {catalog} --ca-dir cas")).await;
    let findings = async |options: &str| {
        let ran = fixture.olm(&format!("verify {catalog} --ca-dir cas -o json {options}")).await;
        let result: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        let list = result["findings"].as_array().unwrap().iter();
        let text = |one: &Value| format!("{} {}", one["rule"], one["bundle"]).replace('"', "");
        (ran.code, list.map(text).collect::<Vec<_>>())
    };
    assert_eq!(findings("").await, (0, vec![]));
    let all = ["SIG-1 null", "SIG-1 lamp.v1.0.0", "SIG-1 lamp.v1.1.0", "SIG-1 lamp.v1.2.0"];
    assert_eq!(findings("--key a.pub").await, (3, all.map(str::to_owned).to_vec()));
    let of_catalog = format!("verify-signature {catalog} --key a.pub --ca-dir cas");
    assert_eq!(fixture.olm(&of_catalog).await.code, 3);
    for image in [&catalog, &images[0], &images[2]] {
        works(&fixture, &format!("catalog sign {image} --key a.key --ca-dir cas")).await;
    }
    assert!(fixture.works(&of_catalog).await.contains("accepted"));
    assert_eq!(findings("--key a.pub --content").await, (3, vec!["SIG-1 lamp.v1.1.0".to_owned()]));
    works(&fixture, &format!("bundle sign {} --key a.key --ca-dir cas", images[1])).await;
    assert_eq!(findings("--key a.pub").await, (0, vec![]));
    // Signatures that cannot be read are not a rejection.
    fixture.registry.add_fault(".sig", usize::MAX, Fault::Status(403, Vec::new(), String::new()));
    let all = ["IMAGE-2 null", "IMAGE-2 lamp.v1.0.0", "IMAGE-2 lamp.v1.1.0", "IMAGE-2 lamp.v1.2.0"];
    assert_eq!(findings("--key a.pub").await, (3, all.map(str::to_owned).to_vec()));
    // Nothing is checked with an unusable key or policy.
    fixture.write("bad.json", "{}");
    for (options, why) in [("--key a.key", "public key "), ("--policy bad.json", "invalid policy in ")] {
        let ran = fixture.olm(&format!("verify {catalog} --ca-dir cas {options}")).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_key_or_file_is_named_without_its_content() {
    let (fixture, _) = fixture().await;
    let image = fixture.reference("team/lamp:v1");
    let sign = format!("bundle sign {image} --ca-dir cas");
    let secret = fixture.read("a.key");
    fixture.write("sbom.json", "{}");
    fixture.write("broken.key", &secret.replace("eyJr", ""));
    for (options, password, code, why) in [
        ("--key a.key", Some("wrong"), 1, "--key a.key: wrong password\n"),
        (
            "--key a.key",
            None,
            2,
            "set COSIGN_PASSWORD, because standard input or standard error is not a terminal\n",
        ),
        ("--key none.key", None, 1, "--key none.key: No such file or directory (os error 2)\n"),
        ("--key env://NONE", None, 1, "--key env://NONE: the environment variable is not set\n"),
        (
            "--key a.pub",
            None,
            1,
            "--key a.pub: expected a PEM block PRIVATE KEY, EC PRIVATE KEY or ENCRYPTED SIGSTORE PRIVATE KEY\n",
        ),
        ("--key broken.key", Some(PASSWORD), 1, "--key broken.key: the encrypted key is malformed\n"),
        (
            "--key a.key --sbom sbom.json",
            Some(PASSWORD),
            1,
            "sbom.json: expected SPDX or CycloneDX in JSON\n",
        ),
    ] {
        let words: Vec<_> = sign.split_whitespace().chain(options.split_whitespace()).collect();
        let environment: Vec<_> =
            password.map(|password| ("COSIGN_PASSWORD", password)).into_iter().collect();
        let ran = fixture.run_with(&words, &environment).await;
        assert_eq!((ran.code, ran.stderr), (code, format!("error: {why}")), "{options}");
    }
    let environment = [("COSIGN_PASSWORD", PASSWORD), ("SIGNING_KEY", secret.as_str())];
    let words: Vec<_> = sign.split_whitespace().chain(["--key", "env://SIGNING_KEY"]).collect();
    assert_eq!(fixture.run_with(&words, &environment).await.code, 0);
    let ran = olm(&fixture, "bundle keygen a").await;
    let why = "error: a.key: the file exists; choose another PREFIX\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (1, why));
    let absent = fixture.reference("team/lamp:absent");
    let ran = olm(&fixture, &format!("bundle sign {absent} --key a.key --ca-dir cas")).await;
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("manifest unknown"), "{ran:?}");
    assert_eq!(olm(&fixture, &format!("bundle verify {image}")).await.code, 2);
}
