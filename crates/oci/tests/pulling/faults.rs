//! Failing registries and unusable manifests.

use std::io::Write;
use std::time::Duration;

use crate::fixture::*;
use olm_image::registry::{Fault, Registry};
use olm_oci::{CanonicalRef, Reference};

const HANG: Duration = Duration::from_millis(200);

#[tokio::test]
async fn registry_error_names_registry_and_cause() {
    let fixture = Fixture::new().await;
    fixture.registry.add_image("a/cat", "v1", &catalog());
    let host = fixture.registry.host();
    let status = |code: u16, body: &str| Fault::Status(code, Vec::new(), body.to_owned());
    for (request, fault, tag, expected) in [
        (
            "GET /v2/",
            Some(status(500, "")),
            "v1",
            format!(
                "fetching manifest v1 in {host}/a/cat: pinging container registry {host}: \
                 received unexpected HTTP status: 500 Internal Server Error"
            ),
        ),
        ("", None, "v9", format!("reading manifest v9 in {host}/a/cat: manifest unknown: manifest unknown")),
        (
            "/manifests/",
            Some(status(403, r#"{"errors":[{"code":"DENIED","message":"not you"}]}"#)),
            "v1",
            format!("reading manifest v1 in {host}/a/cat: denied: not you"),
        ),
        (
            "/manifests/",
            Some(status(401, r#"{"errors":[{"code":"UNAUTHORIZED","message":"who?"}]}"#)),
            "v1",
            format!("reading manifest v1 in {host}/a/cat: unauthorized: who?"),
        ),
        (
            "/manifests/",
            Some(status(418, "tea")),
            "v1",
            format!("reading manifest v1 in {host}/a/cat: StatusCode: 418, \"tea\""),
        ),
    ] {
        fixture.registry.add_fault(
            request,
            if fault.is_some() { 5 } else { 0 },
            fault.unwrap_or(Fault::Hang),
        );
        let error = fixture.try_resolve(&format!("a/cat:{tag}")).await.unwrap_err();
        assert_eq!(
            (error.to_string(), error.is_terminal()),
            (format!("error creating image source: {expected}"), false)
        );
        // Consume the remaining faults.
        while fixture.try_resolve("a/cat:v1").await.is_err() {}
    }
}

#[tokio::test]
async fn error_names_missing_repository_and_missing_digest() {
    let fixture = Fixture::new().await;
    fixture.registry.add_image("a/cat", "v1", &catalog());
    let host = fixture.registry.host();
    let absent = fixture.reference("b/none:v1");
    let error = fixture.puller.resolve(&absent).await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "error creating image source: reading manifest v1 in {host}/b/none: name unknown: repository name not known \
             to registry"
        )
    );
    let digest = format!("sha256:{}", "0".repeat(64));
    let error = fixture.pull(&fixture.resolve(&format!("a/cat@{digest}")).await).await.unwrap_err();
    assert_eq!(
        (error.to_string(), error.is_terminal()),
        (
            format!(
                "error copying image: initializing source docker://{host}/a/cat@{digest}: reading manifest {digest} in \
                 {host}/a/cat: manifest unknown: manifest unknown"
            ),
            false
        )
    );
}

#[tokio::test]
async fn unreachable_or_plain_server_is_reported_like_go() {
    let fixture = Fixture::new().await;
    let Fixture { registry, puller, .. } = &fixture;
    // A port that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = puller.resolve(&format!("{host}/a/cat:v1").parse().unwrap()).await.unwrap_err();
    let ping = |host: &str, cause: &str| {
        format!(
            "error creating image source: fetching manifest v1 in {host}/a/cat: pinging container registry {host}: \
             Get \"https://{host}/v2/\": {cause}"
        )
    };
    assert_eq!(error.to_string(), ping(&host, &format!("dial tcp {host}: connect: connection refused")));
    assert_eq!(registry.take_requests(), [""; 0]);

    // A server without TLS.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(1).flatten() {
            let _ = (&stream).write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let error = puller.resolve(&format!("{host}/a/cat:v1").parse().unwrap()).await.unwrap_err();
    assert_eq!(error.to_string(), ping(&host, "http: server gave HTTP response to HTTPS client"));
}

#[tokio::test]
async fn busy_registry_is_retried_until_limit_or_deadline() {
    let fixture = Fixture::new().await;
    fixture.registry.add_image("a/cat", "v1", &catalog());
    let busy = || Fault::Status(429, vec![("retry-after", "0".to_owned())], "slow down".to_owned());
    fixture.registry.add_fault("/manifests/", 4, busy());
    fixture.resolve("a/cat:v1").await;

    fixture.registry.add_fault("/manifests/", 5, busy());
    let error = fixture.try_resolve("a/cat:v1").await.unwrap_err().to_string();
    let host = fixture.registry.host();
    // A HEAD response has no body.
    assert_eq!(
        error,
        format!("error creating image source: reading manifest v1 in {host}/a/cat: StatusCode: 429, \"\"")
    );

    // No delay starts that would end after the deadline.
    fixture.registry.add_fault(
        "/manifests/",
        1,
        Fault::Status(429, vec![("retry-after", "61".to_owned())], String::new()),
    );
    let error = fixture.try_resolve("a/cat:v1").await.unwrap_err().to_string();
    assert!(error.ends_with("StatusCode: 429, \"\""), "{error}");
}

#[tokio::test]
async fn tag_without_digest_header_resolves_by_manifest() {
    let fixture = Fixture::new().await;
    let digest = fixture.registry.add_image("a/cat", "v1", &catalog());
    fixture.registry.add_fault("HEAD", 1, Fault::NoDigestHeader);
    assert_eq!(fixture.resolve("a/cat:v1").await.digest().as_str(), digest);
    fixture.registry.add_fault("HEAD", 1, Fault::Status(405, Vec::new(), String::new()));
    assert_eq!(fixture.resolve("a/cat:v1").await.digest().as_str(), digest);
}

#[tokio::test]
async fn broken_blob_stream_resumes_at_its_offset() {
    let fixture = Fixture::new().await;
    // Incompressible text: several chunks on the wire.
    let text: String =
        (0..200_000_u64).map(|n| (n.wrapping_mul(n).wrapping_mul(2_654_435_761) % 10).to_string()).collect();
    let layer = tar_layer(&[file("configs/x", &text)]);
    let blob = format!("GET /v2/a/cat/blobs/{}", olm_image::digest_of(&layer.blob));
    let length = layer.blob.len();
    for (cut, ranges) in [(0, true), (1, true), (length / 2, true), (length - 1, true), (length / 2, false)] {
        fixture.registry.add_fault(&blob, 1, Fault::Cut(cut));
        if !ranges {
            // A registry without range support sends everything again.
            fixture.registry.add_fault(&blob, 1, Fault::Whole);
        }
        fixture.pull_layers(std::slice::from_ref(&layer)).await.unwrap();
        assert_eq!(fixture.listing(), [format!("configs/x={text}")]);
        olm_oci::remove_folder(&fixture.destination()).unwrap();
        let requests = fixture.registry.take_requests();
        assert_eq!(requests.iter().filter(|request| **request == blob).count(), 2);
    }
    // All bytes arrived, only the end of the response is missing.
    fixture.registry.add_fault(&blob, 1, Fault::Cut(length));
    fixture.pull_layers(std::slice::from_ref(&layer)).await.unwrap();
    olm_oci::remove_folder(&fixture.destination()).unwrap();
    // Attempts without progress are limited.
    fixture.registry.add_fault(&blob, 5, Fault::Cut(0));
    let error = fixture.pull_layers(std::slice::from_ref(&layer)).await.unwrap_err();
    assert!(error.contains(&format!("reading blob {}", olm_image::digest_of(&layer.blob))), "{error}");
    assert_eq!(fixture.leftovers(), [""; 0]);
}

#[tokio::test]
async fn digest_mismatch_is_retryable() {
    let fixture = Fixture::new().await;
    let layer = tar_layer(&[file("configs/x", "content")]);
    let digest = olm_image::digest_of(&layer.blob);
    fixture.registry.add_fault(&digest, 1, Fault::Corrupt);
    let pinned = fixture.registry.add_image("a/cat", "v1", &image(&[layer], "/configs"));
    let canonical = fixture.resolve(&format!("a/cat@{pinned}")).await;
    let error = fixture.pull(&canonical).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!(
            "error copying image: reading blob {digest}: Digest did not match, expected {digest}, got"
        )),
        "{text}"
    );
    assert!(!error.is_terminal());
    assert_eq!(fixture.leftovers(), [""; 0]);

    fixture.registry.add_fault("GET /v2/a/cat/manifests/", 1, Fault::Corrupt);
    let error = fixture.pull(&canonical).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "error copying image: initializing source docker://{canonical}: Manifest does not match provided manifest \
             digest {pinned}"
        )
    );
    assert!(!error.is_terminal());
    fixture.pull(&canonical).await.unwrap();
}

#[tokio::test]
async fn endless_response_is_cut_off() {
    let fixture = Fixture::new().await;
    let layer = tar_layer(&[file("configs/x", "content")]);
    let (digest, length) = (olm_image::digest_of(&layer.blob), layer.blob.len());
    fixture.registry.add_image("a/cat", "v1", &image(&[layer], "/configs"));
    let canonical = fixture.resolve("a/cat:v1").await;
    for (request, expected) in [
        ("GET /v2/a/cat/manifests/", "the answer is larger than 4194304 bytes".to_owned()),
        (&format!("blobs/{digest}"), format!("the blob is longer than the {length} bytes of its descriptor")),
    ] {
        fixture.registry.add_fault(request, 1, Fault::Endless);
        let error = fixture.pull(&canonical).await.unwrap_err();
        assert!(error.to_string().ends_with(&expected), "{error}");
        assert!(!error.is_terminal());
    }
    assert_eq!(fixture.leftovers(), [""; 0]);
}

#[tokio::test]
async fn hanging_request_times_out() {
    let fixture = Fixture::with(|config| {
        config.read_timeout = HANG;
        config.retry.attempts = 1;
    })
    .await;
    fixture.registry.add_image("a/cat", "v1", &catalog());
    fixture.registry.add_fault("GET /v2/", 1, Fault::Hang);
    let error = fixture.try_resolve("a/cat:v1").await.unwrap_err().to_string();
    assert!(error.ends_with("/v2/\": i/o timeout"), "{error}");

    let fixture = Fixture::with(|config| {
        config.resolve_timeout = HANG;
        config.pull_timeout = HANG;
    })
    .await;
    let digest = fixture.registry.add_image("a/cat", "v1", &catalog());
    fixture.registry.add_fault("HEAD", 1, Fault::Hang);
    let error = fixture.try_resolve("a/cat:v1").await.unwrap_err();
    assert!(error.to_string().ends_with("not done within 0.2 s"), "{error}");
    fixture.registry.add_fault("GET /v2/a/cat/blobs/", 9, Fault::Hang);
    let error = fixture.pull(&fixture.resolve(&format!("a/cat@{digest}")).await).await.unwrap_err();
    assert!(error.to_string().ends_with("not done within 0.2 s"), "{error}");
    assert!(!error.is_terminal());
    while !fixture.leftovers().is_empty() {
        tokio::task::yield_now().await;
    }
}

/// A hanging registry delays only its own pulls.
#[tokio::test]
async fn hanging_registry_does_not_block_other_registries() {
    let fixture = Fixture::with(|config| {
        config.concurrency = 2;
        config.concurrency_per_registry = 1;
    })
    .await;
    let slow = Registry::start().await.unwrap();
    std::fs::write(fixture.cas_dir().join("slow.crt"), slow.ca_pem()).unwrap();
    slow.add_fault("", usize::MAX, Fault::Hang);
    fixture.registry.add_image("a/cat", "v1", &catalog());
    let canonical = fixture.resolve("a/cat:v1").await;
    let digest = canonical.digest();
    let stuck = format!("{}/a/cat@{digest}", slow.host()).parse().unwrap();
    let stuck = fixture.puller.resolve(&stuck).await.unwrap();
    let folder = fixture.destination().with_file_name("stuck");
    let hang = || fixture.puller.pull_folder(&stuck, olm_oci::catalog_folder, &folder);
    tokio::select! {
        biased;
        _ = hang() => panic!("the first slow pull ended"),
        _ = hang() => panic!("the second slow pull ended"),
        _ = hang() => panic!("the third slow pull ended"),
        pulled = fixture.pull(&canonical) => { pulled.unwrap(); }
    }
}

/// Requests without a response release their permits, including those for blobs.
#[tokio::test]
async fn hanging_blob_requests_release_permits() {
    let fixture = Fixture::with(|config| {
        config.concurrency = 2;
        config.concurrency_per_registry = 1;
    })
    .await;
    let silent = [Registry::start().await.unwrap(), Registry::start().await.unwrap()];
    let mut stuck = Vec::new();
    for (registry, name) in silent.iter().zip(["first", "second"]) {
        fixture.trust(registry);
        let digest = registry.add_image("a/cat", "v1", &catalog());
        registry.add_fault("GET /v2/a/cat/blobs/", usize::MAX, Fault::Hang);
        let image: Reference = format!("{}/a/cat@{digest}", registry.host()).parse().unwrap();
        stuck.push((CanonicalRef::from_digest(&image).unwrap(), fixture.destination().with_file_name(name)));
    }
    let hang = |index: usize| {
        let (image, folder) = &stuck[index];
        fixture.puller.pull_folder(image, olm_oci::catalog_folder, folder)
    };
    fixture.registry.add_image("a/cat", "v1", &catalog());
    let pull = async {
        for silent in &silent {
            while !silent.take_requests().iter().any(|line| line.contains("/blobs/")) {
                tokio::task::yield_now().await;
            }
        }
        fixture.pull(&fixture.resolve("a/cat:v1").await).await
    };
    tokio::select! {
        biased;
        _ = hang(0) => panic!("the first silent pull ended"),
        _ = hang(1) => panic!("the second silent pull ended"),
        pulled = pull => { pulled.unwrap(); }
    }
}

/// The registry responds for some images only. Those must be neither resolved nor pulled last.
#[tokio::test]
async fn hanging_images_do_not_block_others_of_same_registry() {
    let fixture = Fixture::new().await;
    fixture.registry.add_fault("/v2/a/silent/", usize::MAX, Fault::Hang);
    let digest = fixture.registry.add_image("a/cat", "v1", &catalog());
    let hang = async |reference: &str| {
        let resolved = fixture.try_resolve(reference).await.unwrap();
        fixture.puller.pull_files(&resolved, &["configs"]).await.map(drop)
    };
    let pinned = format!("a/silent@{digest}");
    let hanging = (0..20).map(|number| hang(if number % 2 == 0 { "a/silent:v1" } else { &pinned }));
    tokio::select! {
        biased;
        _ = futures::future::select_all(hanging.map(Box::pin)) => panic!("a silent pull ended"),
        pulled = async { fixture.pull(&fixture.resolve("a/cat:v1").await).await } => { pulled.unwrap(); }
    }
}

#[tokio::test]
async fn unsupported_or_invalid_manifest_is_named() {
    let fixture = Fixture::new().await;
    let add = |text: String| fixture.registry.add_manifest("a/cat", "v1", "", text.into());
    let digest = format!("sha256:{}", "0".repeat(64));
    let nested = add(r#"{"schemaVersion":2,"manifests":[]}"#.to_owned());
    let entry = |digest: &str| {
        format!(r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"","size":1,"digest":"{digest}"}}]}}"#)
    };
    let image = |config: &str, size: i64| {
        format!(
            r#"{{"schemaVersion":2,"config":{{"mediaType":"","size":{size},"digest":"{config}"}},"layers":[]}}"#
        )
    };
    for (manifest, expected) in [
        (
            r#"{"schemaVersion":1,"fsLayers":[]}"#.to_owned(),
            "is of Docker's schema 1, which is not supported: push the image again as an OCI image or in Docker's schema 2"
                .to_owned(),
        ),
        ("garbage".to_owned(), "is neither an image nor an index in a known format".to_owned()),
        (
            image(&digest, 2).replace("\"layers\":[]", "\"layers\":[],\"manifests\":[]"),
            "has both layers and manifests: it is either an image or an index".to_owned(),
        ),
        (
            image(&digest, 2).replace("\"layers\":[]", "\"layers\":[],\"manifests\":[],\"manifests\":[]"),
            "is neither an image nor an index in a known format".to_owned(),
        ),
        (entry(&nested), format!("{nested} is an index again")),
        (entry("sha256:short"), "digest \"sha256:short\": invalid checksum digest length".to_owned()),
        (image("md5:00", 2), "manifest: digest \"md5:00\": unsupported digest algorithm".to_owned()),
        (image(&digest, -1), format!("manifest: blob {digest} has size -1")),
        (
            image(&digest, 2).replace(
                "\"layers\":[]",
                &format!(
                    "\"layers\":[{{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip+encrypted\",\"size\":1,\
                     \"digest\":\"{digest}\"}}]"
                ),
            ),
            format!(
                "layer[0] {digest} is encrypted (application/vnd.oci.image.layer.v1.tar+gzip+encrypted): only layers as \
                 plain, gzip or zstd tar are supported"
            ),
        ),
        (image(&digest, 2), format!("reading config blob {digest}: blob unknown: blob unknown to registry")),
    ] {
        let pinned = add(manifest.clone());
        let canonical = fixture.resolve(&format!("a/cat@{pinned}")).await;
        let error = fixture.pull(&canonical).await.unwrap_err().to_string();
        assert!(error.ends_with(&expected), "{manifest}: {error}");
    }
}
