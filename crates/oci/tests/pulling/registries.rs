//! Mirrors, blocked and insecure registries of `registries.conf`.

use crate::fixture::*;
use olm_image::registry::{Access, Fault, Registry};
use olm_oci::RegistryPaths;

/// Configuration with `registry` as the location of `r.test/team`, after `mirrors`.
fn config(registry: &Registry, mirrors: &[&str]) -> String {
    let mirrors = mirrors.iter().map(|mirror| format!("[[registry.mirror]]\nlocation = \"{mirror}\"\n"));
    format!(
        "[[registry]]\nprefix = \"r.test/team\"\nlocation = \"{}/a\"\n{}",
        registry.host(),
        mirrors.collect::<String>()
    )
}

/// Address without a listener.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

// Case catalogd-27
#[tokio::test]
async fn mirror_serves_content_under_original_name() {
    let fixture = Fixture::new().await;
    let mirror = Registry::start().await.unwrap();
    fixture.trust(&mirror);
    mirror.set_access(Access::Bearer(Some(("user".to_owned(), "secret".to_owned()))));
    mirror.add_image("deep/cat", "v1", &catalog());
    let host = mirror.host();
    fixture.write_auth(&format!(r#"{{"auths":{{"{host}/deep":{{"auth":"dXNlcjpzZWNyZXQ="}}}}}}"#));
    fixture.write_registries(&config(&fixture.registry, &[&format!("{host}/deep")]));

    let canonical = fixture.puller.resolve(&"r.test/team/cat:v1".parse().unwrap()).await.unwrap();
    assert_eq!(canonical.to_string(), format!("r.test/team/cat@{}", canonical.digest()));
    fixture.pull(&canonical).await.unwrap();
    assert_eq!(fixture.listing(), ["configs/index.yaml=schema: olm.package"]);
    assert_eq!(fixture.registry.take_requests(), [""; 0]);
}

#[tokio::test]
async fn sources_are_tried_in_order_and_failures_listed() {
    let fixture = Fixture::new().await;
    let mirror = Registry::start().await.unwrap();
    fixture.trust(&mirror);
    let digest = fixture.registry.add_image("a/cat", "v1", &catalog());
    let (nowhere, mirror_host, host) = (nowhere(), mirror.host(), fixture.registry.host());
    fixture.write_registries(&config(&fixture.registry, &[&nowhere, &mirror_host]));
    let reference = "r.test/team/cat:v1".parse().unwrap();
    let canonical = fixture.puller.resolve(&reference).await.unwrap();
    assert_eq!(canonical.digest().as_str(), digest);
    assert_eq!(mirror.take_requests()[..2], ["GET /v2/", "HEAD /v2/cat/manifests/v1"]);
    fixture.pull(&canonical).await.unwrap();

    // A mirror has one attempt, and its content is verified.
    mirror.add_image("cat", "v1", &catalog());
    mirror.add_fault("GET /v2/cat/manifests/", 1, Fault::Corrupt);
    let _ = mirror.take_requests();
    fixture.pull_to("second", &canonical).await.unwrap();
    assert_eq!(mirror.take_requests().len(), 2);
    olm_oci::remove_folder(&fixture.destination().with_file_name("second")).unwrap();

    mirror.add_fault("/v2/", 1, Fault::Status(500, Vec::new(), String::new()));
    let reference = "r.test/team/cat:gone".parse().unwrap();
    let error = fixture.puller.resolve(&reference).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "error creating image source: (Mirrors also failed: [{nowhere}/cat:gone: fetching manifest gone in {nowhere}/cat: \
             pinging container registry {nowhere}: Get \"https://{nowhere}/v2/\": dial tcp {nowhere}: connect: connection \
             refused] [{mirror_host}/cat:gone: fetching manifest gone in {mirror_host}/cat: pinging container registry \
             {mirror_host}: received unexpected HTTP status: 500 Internal Server Error]): {host}/a/cat:gone: reading \
             manifest gone in {host}/a/cat: manifest unknown: manifest unknown"
        )
    );
    assert!(!error.is_terminal());
}

/// A hanging mirror leaves time for the original.
#[tokio::test]
async fn hanging_mirror_uses_only_its_share_of_time() {
    let fixture = Fixture::with(|config| config.resolve_timeout = std::time::Duration::from_secs(6)).await;
    let mirror = Registry::start().await.unwrap();
    fixture.trust(&mirror);
    mirror.add_fault("", usize::MAX, Fault::Hang);
    let digest = fixture.registry.add_image("a/cat", "v1", &catalog());
    fixture.write_registries(&config(&fixture.registry, &[&mirror.host()]));
    let reference = "r.test/team/cat:v1".parse().unwrap();
    assert_eq!(fixture.puller.resolve(&reference).await.unwrap().digest().as_str(), digest);
}

// docs/design/images.md#pull-errors
#[tokio::test]
async fn blocked_registry_receives_no_request() {
    let fixture = Fixture::new().await;
    let digest = fixture.registry.add_image("a/cat", "v1", &catalog());
    let host = fixture.registry.host();
    fixture.write_registries(&format!("[[registry]]\nlocation = \"{host}\"\nblocked = true"));
    let blocked =
        format!("registry {host} is blocked in one of [\"{}\"]", fixture.registries_conf().display());
    let error = fixture.try_resolve("a/cat:v1").await.unwrap_err();
    assert_eq!(error.to_string(), format!("error creating image source: {blocked}"));
    let pinned = fixture.resolve(&format!("a/cat@{digest}")).await;
    let error = fixture.pull(&pinned).await.unwrap_err();
    assert_eq!(
        (error.to_string(), error.is_terminal()),
        (format!("error copying image: initializing source docker://{pinned}: {blocked}"), false)
    );
    assert_eq!(fixture.registry.take_requests(), [""; 0]);

    // A change takes effect at once.
    fixture.write_registries("");
    fixture.pull(&pinned).await.unwrap();
}

// docs/design/images.md#pull-errors
#[tokio::test]
async fn broken_configuration_fails_pulls_until_fixed() {
    let fixture = Fixture::new().await;
    fixture.registry.add_image("a/cat", "v1", &catalog());
    let file = fixture.registries_conf();
    for (text, cause) in [
        ("[registries.search]\nregistries = []", "registries.conf must be in v2 format but is in v1"),
        ("[[registry]]\n\nblocked = 1", "line 3: invalid type: integer `1`, expected a boolean"),
    ] {
        fixture.write_registries(text);
        let error = fixture.try_resolve("a/cat:v1").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "error creating image source: loading registries configuration: {}: {cause}",
                file.display()
            )
        );
    }
    fixture.write_registries("");
    fixture.resolve("a/cat:v1").await;
}

#[tokio::test]
async fn insecure_registry_may_use_http_or_any_certificate() {
    let fixture = Fixture::new().await;
    let plain = Registry::start_plain().await.unwrap();
    let untrusted = Registry::start().await.unwrap();
    for registry in [&plain, &untrusted] {
        let host = registry.host();
        registry.add_image("a/cat", "v1", &catalog());
        let reference = format!("{host}/a/cat:v1").parse().unwrap();
        fixture.write_registries("");
        let error = fixture.puller.resolve(&reference).await.unwrap_err().to_string();
        let cause = if registry.ca_pem().is_empty() {
            "http: server gave HTTP response to HTTPS client"
        } else {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority"
        };
        assert!(error.ends_with(cause), "{error}");
        fixture.write_registries(&format!("[[registry]]\nlocation = \"{host}\"\ninsecure = true"));
        let canonical = fixture.puller.resolve(&reference).await.unwrap();
        fixture.pull(&canonical).await.unwrap();
        olm_oci::remove_folder(&fixture.destination()).unwrap();
    }
}

/// Without a CA folder each registry has its own certificates.
#[tokio::test]
async fn certificates_of_one_registry_do_not_apply_to_others() {
    let folder = tempfile::TempDir::new().unwrap();
    let certs = folder.path().join("certs.d");
    let registries_conf = folder.path().join("registries.conf");
    std::fs::write(&registries_conf, "").unwrap();
    let fixture = Fixture::with(|config| {
        config.cas_dir = None;
        config.paths =
            RegistryPaths { containers: vec![folder.path().to_owned()], ..RegistryPaths::default() };
    })
    .await;
    let other = Registry::start().await.unwrap();
    let host = fixture.registry.host();
    for registry in [&fixture.registry, &other] {
        registry.add_image("a/cat", "v1", &catalog());
    }
    assert!(fixture.try_resolve("a/cat:v1").await.is_err());
    std::fs::create_dir_all(certs.join(&host)).unwrap();
    std::fs::write(
        certs.join(&host).join("both.crt"),
        format!("{}{}", fixture.registry.ca_pem(), other.ca_pem()),
    )
    .unwrap();
    fixture.resolve("a/cat:v1").await;
    let elsewhere = format!("{}/a/cat:v1", other.host()).parse().unwrap();
    let error = fixture.puller.resolve(&elsewhere).await.unwrap_err().to_string();
    assert!(error.ends_with("certificate signed by unknown authority"), "{error}");

    std::fs::write(certs.join(&host).join("client.key"), "").unwrap();
    let error = fixture.try_resolve("a/cat:v1").await.unwrap_err().to_string();
    assert_eq!(
        error,
        "error creating image source: missing client certificate client.cert for key client.key"
    );
}
