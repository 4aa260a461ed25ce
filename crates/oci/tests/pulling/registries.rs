//! Mirrors, blocked and insecure registries of `registries.conf`.

use crate::setting::*;
use olm_image::registry::{Access, Fault, Registry};
use olm_oci::{Class, Places};

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
    let setting = Setting::new().await;
    let mirror = Registry::start().await.unwrap();
    setting.trust(&mirror);
    mirror.set_access(Access::Bearer(Some(("user".to_owned(), "secret".to_owned()))));
    mirror.add_image("deep/cat", "v1", &catalog());
    let host = mirror.host();
    setting.write_auth(&format!(r#"{{"auths":{{"{host}/deep":{{"auth":"dXNlcjpzZWNyZXQ="}}}}}}"#));
    setting.write_registries(&config(&setting.registry, &[&format!("{host}/deep")]));

    let canonical = setting.puller.resolve(&"r.test/team/cat:v1".parse().unwrap()).await.unwrap();
    assert_eq!(canonical.to_string(), format!("r.test/team/cat@{}", canonical.digest()));
    setting.pull(&canonical).await.unwrap();
    assert_eq!(setting.listing(), ["configs/index.yaml=schema: olm.package"]);
    assert_eq!(setting.registry.take_requests(), [""; 0]);
}

#[tokio::test]
async fn sources_are_tried_in_order_and_failures_listed() {
    let setting = Setting::new().await;
    let mirror = Registry::start().await.unwrap();
    setting.trust(&mirror);
    let digest = setting.registry.add_image("a/cat", "v1", &catalog());
    let (nowhere, mirror_host, host) = (nowhere(), mirror.host(), setting.registry.host());
    setting.write_registries(&config(&setting.registry, &[&nowhere, &mirror_host]));
    let reference = "r.test/team/cat:v1".parse().unwrap();
    let canonical = setting.puller.resolve(&reference).await.unwrap();
    assert_eq!(canonical.digest().as_str(), digest);
    assert_eq!(mirror.take_requests()[..2], ["GET /v2/", "HEAD /v2/cat/manifests/v1"]);
    setting.pull(&canonical).await.unwrap();

    // A mirror has one attempt, and its content is verified.
    mirror.add_image("cat", "v1", &catalog());
    mirror.add_fault("GET /v2/cat/manifests/", 1, Fault::Corrupt);
    let _ = mirror.take_requests();
    setting.pull_to("second", &canonical).await.unwrap();
    assert_eq!(mirror.take_requests().len(), 2);
    olm_oci::remove_folder(&setting.destination().with_file_name("second")).unwrap();

    mirror.add_fault("/v2/", 1, Fault::Status(500, Vec::new(), String::new()));
    let reference = "r.test/team/cat:gone".parse().unwrap();
    let error = setting.puller.resolve(&reference).await.unwrap_err();
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
    assert_eq!(error.class(), Class::Retry);
}

/// A hanging mirror leaves time for the original.
#[tokio::test]
async fn hanging_mirror_uses_only_its_share_of_time() {
    let setting =
        Setting::with(|config| config.resolve_timeout = std::time::Duration::from_millis(1500)).await;
    let mirror = Registry::start().await.unwrap();
    setting.trust(&mirror);
    mirror.add_fault("", usize::MAX, Fault::Hang);
    let digest = setting.registry.add_image("a/cat", "v1", &catalog());
    setting.write_registries(&config(&setting.registry, &[&mirror.host()]));
    let reference = "r.test/team/cat:v1".parse().unwrap();
    assert_eq!(setting.puller.resolve(&reference).await.unwrap().digest().as_str(), digest);
}

// docs/design/images.md#pull-errors
#[tokio::test]
async fn blocked_registry_receives_no_request() {
    let setting = Setting::new().await;
    let digest = setting.registry.add_image("a/cat", "v1", &catalog());
    let host = setting.registry.host();
    setting.write_registries(&format!("[[registry]]\nlocation = \"{host}\"\nblocked = true"));
    let blocked =
        format!("registry {host} is blocked in one of [\"{}\"]", setting.registries_conf().display());
    let error = setting.try_resolve("a/cat:v1").await.unwrap_err();
    assert_eq!(error.to_string(), format!("error creating image source: {blocked}"));
    let pinned = setting.resolve(&format!("a/cat@{digest}")).await;
    let error = setting.pull(&pinned).await.unwrap_err();
    assert_eq!(
        (error.to_string(), error.class()),
        (format!("error copying image: initializing source docker://{pinned}: {blocked}"), Class::Retry)
    );
    assert_eq!(setting.registry.take_requests(), [""; 0]);

    // A change takes effect at once.
    setting.write_registries("");
    setting.pull(&pinned).await.unwrap();
}

// docs/design/images.md#pull-errors
#[tokio::test]
async fn broken_configuration_fails_pulls_until_fixed() {
    let setting = Setting::new().await;
    setting.registry.add_image("a/cat", "v1", &catalog());
    let file = setting.registries_conf();
    for (text, cause) in [
        ("[registries.search]\nregistries = []", "registries.conf must be in v2 format but is in v1"),
        ("[[registry]]\n\nblocked = 1", "line 3: invalid type: integer `1`, expected a boolean"),
    ] {
        setting.write_registries(text);
        let error = setting.try_resolve("a/cat:v1").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "error creating image source: loading registries configuration: {}: {cause}",
                file.display()
            )
        );
    }
    setting.write_registries("");
    setting.resolve("a/cat:v1").await;
}

#[tokio::test]
async fn insecure_registry_may_use_http_or_any_certificate() {
    let setting = Setting::new().await;
    let plain = Registry::start_plain().await.unwrap();
    let untrusted = Registry::start().await.unwrap();
    for registry in [&plain, &untrusted] {
        let host = registry.host();
        registry.add_image("a/cat", "v1", &catalog());
        let reference = format!("{host}/a/cat:v1").parse().unwrap();
        setting.write_registries("");
        let error = setting.puller.resolve(&reference).await.unwrap_err().to_string();
        let cause = if registry.ca_pem().is_empty() {
            "http: server gave HTTP response to HTTPS client"
        } else {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority"
        };
        assert!(error.ends_with(cause), "{error}");
        setting.write_registries(&format!("[[registry]]\nlocation = \"{host}\"\ninsecure = true"));
        let canonical = setting.puller.resolve(&reference).await.unwrap();
        setting.pull(&canonical).await.unwrap();
        olm_oci::remove_folder(&setting.destination()).unwrap();
    }
}

/// Without a CA folder each registry has its own certificates.
#[tokio::test]
async fn certificates_of_one_registry_do_not_apply_to_others() {
    let folder = tempfile::TempDir::new().unwrap();
    let certs = folder.path().join("certs.d");
    let registries_conf = folder.path().join("registries.conf");
    std::fs::write(&registries_conf, "").unwrap();
    let setting = Setting::with(|config| {
        config.cas_dir = None;
        config.places = Places { containers: vec![folder.path().to_owned()], ..Places::default() };
    })
    .await;
    let other = Registry::start().await.unwrap();
    let host = setting.registry.host();
    for registry in [&setting.registry, &other] {
        registry.add_image("a/cat", "v1", &catalog());
    }
    assert!(setting.try_resolve("a/cat:v1").await.is_err());
    std::fs::create_dir_all(certs.join(&host)).unwrap();
    std::fs::write(
        certs.join(&host).join("both.crt"),
        format!("{}{}", setting.registry.ca_pem(), other.ca_pem()),
    )
    .unwrap();
    setting.resolve("a/cat:v1").await;
    let elsewhere = format!("{}/a/cat:v1", other.host()).parse().unwrap();
    let error = setting.puller.resolve(&elsewhere).await.unwrap_err().to_string();
    assert!(error.ends_with("certificate signed by unknown authority"), "{error}");

    std::fs::write(certs.join(&host).join("client.key"), "").unwrap();
    let error = setting.try_resolve("a/cat:v1").await.unwrap_err().to_string();
    assert_eq!(
        error,
        "error creating image source: missing client certificate client.cert for key client.key"
    );
}
