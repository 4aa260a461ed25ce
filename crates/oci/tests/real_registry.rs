//! Tests against Debian's `docker-registry` on loopback: TLS, passwords, client certificates, mirrors.
//!
//! The tests fail without that program. `hack/test` installs it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed step of a test ends it")]

extern crate olm_tokio as tokio;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use olm_image::docker_registry::{DockerRegistry, Settings};
use olm_image::{CATALOG_LABEL, Image, Layer, LayerEntry, Push, Runtime, push};
use olm_oci::{
    CanonicalRef, Config, CredentialSource, Credentials, ImageLimits, Proxies, PullError, Puller,
    RegistryPaths, catalog_folder,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// Contains `user:secret`.
const HTPASSWD: &str = "user:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";
const AUTH: &str = "dXNlcjpzZWNyZXQ=";

/// CA with files for servers and clients, and the storage shared by all registries of a test.
struct Fixture {
    folder: TempDir,
    ca: Issuer<'static, KeyPair>,
}

/// Access that a registry requires.
#[derive(Clone, Copy, PartialEq)]
enum RegistryAccess {
    Open,
    Password,
    ClientCertificate,
    PlainHttp,
}

impl Fixture {
    fn new() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let folder = TempDir::new().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Clients choose their certificate by the name of the CA.
        params.distinguished_name.push(DnType::CommonName, folder.path().display().to_string());
        let key = KeyPair::generate().unwrap();
        fs::create_dir(folder.path().join("cas")).unwrap();
        fs::write(folder.path().join("cas/ca.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
        let fixture = Self { ca: Issuer::new(params, key), folder };
        fixture.issue("server", ExtendedKeyUsagePurpose::ServerAuth);
        fixture.issue("client", ExtendedKeyUsagePurpose::ClientAuth);
        fs::write(fixture.path("htpasswd"), HTPASSWD).unwrap();
        fs::write(fixture.path("registries.conf"), "").unwrap();
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `NAME.cert` and `NAME.key`, signed by the CA.
    fn issue(&self, name: &str, usage: ExtendedKeyUsagePurpose) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        fs::write(self.path(&format!("{name}.cert")), params.signed_by(&key, &self.ca).unwrap().pem())
            .unwrap();
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn start(&self, kind: RegistryAccess) -> DockerRegistry {
        let certificate = [self.path("server.cert"), self.path("server.key")];
        let settings = Settings {
            certificate: (kind != RegistryAccess::PlainHttp).then_some(certificate),
            htpasswd: (kind == RegistryAccess::Password).then(|| self.path("htpasswd")),
            client_ca: (kind == RegistryAccess::ClientCertificate).then(|| self.path("cas/ca.crt")),
        };
        DockerRegistry::start(self.folder.path(), &settings).unwrap()
    }

    fn credentials(key: &str) -> String {
        format!(r#"{{"auths":{{"{key}":{{"auth":"{AUTH}"}}}}}}"#)
    }

    async fn push(&self, registry: &DockerRegistry, repository: &str, image: &Image) -> String {
        let options = Push {
            ca_pem: Some(fs::read(self.path("cas/ca.crt")).unwrap()),
            credentials: Credentials::parse(Self::credentials(registry.host()).as_bytes()).unwrap(),
        };
        push(&format!("{}/{repository}", registry.host()), image, &options).await.unwrap()
    }

    fn puller(&self, change: impl FnOnce(&mut Config)) -> Puller {
        let mut config = Config::new(ImageLimits::CATALOG);
        config.cas_dir = Some(self.path("cas"));
        config.credentials = CredentialSource::File(self.path("auth.json"));
        config.paths =
            RegistryPaths { registries_conf: Some(self.path("registries.conf")), ..RegistryPaths::default() };
        config.proxies = Proxies::default();
        config.retry.first_delay = Duration::from_millis(1);
        change(&mut config);
        Puller::new(config)
    }

    fn write_registries(&self, text: &str) {
        fs::write(self.path("registries.conf"), text).unwrap();
    }
}

fn catalog(content: &str) -> Image {
    Image::catalog(&BTreeMap::from([("index.yaml".to_owned(), content.as_bytes().to_vec())])).unwrap()
}

async fn resolve(puller: &Puller, reference: &str) -> Result<CanonicalRef, PullError> {
    puller.resolve(&reference.parse().unwrap()).await
}

/// Content of the catalog at `reference`.
async fn pull(puller: &Puller, reference: &str) -> Result<String, PullError> {
    let image = resolve(puller, reference).await?;
    let (files, _) = puller.pull_files(&image, &["configs"]).await?;
    Ok(String::from_utf8(files["configs/index.yaml"].clone()).unwrap())
}

// Cases catalogd-19, catalogd-21, catalogd-22
#[tokio::test]
async fn image_is_pulled_by_tag_digest_and_folder() {
    let fixture = Fixture::new();
    let registry = fixture.start(RegistryAccess::Open);
    let host = registry.host();
    let digest = fixture.push(&registry, "team/cat:v1", &catalog("schema: a")).await;
    let puller = fixture.puller(|_| {});
    let by_tag = resolve(&puller, &format!("{host}/team/cat:v1")).await.unwrap();
    assert_eq!(by_tag.to_string(), format!("{host}/team/cat@{digest}"));
    assert_eq!(pull(&puller, &format!("{host}/team/cat@{digest}")).await.unwrap(), "schema: a");

    let destination = fixture.path("out");
    let (pulled, _) = puller.pull_folder(&by_tag, catalog_folder, &destination).await.unwrap();
    assert_eq!((pulled.path, pulled.files), (destination.join("configs"), 1));
    assert_eq!(fs::read_to_string(destination.join("configs/index.yaml")).unwrap(), "schema: a");
    olm_oci::remove_folder(&destination).unwrap();

    let error = resolve(&puller, &format!("{host}/team/cat:v2")).await.unwrap_err().to_string();
    let expected = format!(
        "error creating image source: reading manifest v2 in {host}/team/cat: manifest unknown: manifest unknown"
    );
    assert_eq!(error, expected);
    let error = resolve(&puller, &format!("{host}/team/none:v2")).await.unwrap_err().to_string();
    assert!(error.contains(&format!("reading manifest v2 in {host}/team/none: ")), "{error}");
}

/// Several megabytes of incompressible data in several layers.
#[tokio::test]
async fn large_layers_are_pulled() {
    let fixture = Fixture::new();
    let registry = fixture.start(RegistryAccess::Open);
    let noise = |seed: u64| -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        (0..8 << 20).map(|_| next()).collect()
    };
    let layer = |name: &str, content: Vec<u8>| {
        Layer::new(&BTreeMap::from([(name.to_owned(), LayerEntry::file(content))])).unwrap()
    };
    let layers = vec![layer("configs/a", noise(1)), layer("bin/opm", noise(2)), layer("configs/b", noise(3))];
    let labels = BTreeMap::from([(CATALOG_LABEL.to_owned(), "/configs".to_owned())]);
    let image = Image::new(layers, &labels, &Runtime::default()).unwrap();
    fixture.push(&registry, "big/cat:v1", &image).await;
    let puller = fixture.puller(|_| {});
    let canonical = resolve(&puller, &format!("{}/big/cat:v1", registry.host())).await.unwrap();
    let (files, _) = puller.pull_files(&canonical, &["configs"]).await.unwrap();
    assert!(files["configs/a"] == noise(1) && files["configs/b"] == noise(3) && files.len() == 2);
}

// Case catalogd-28
#[tokio::test]
async fn registry_needs_certificate_of_configured_ca() {
    let (fixture, stranger) = (Fixture::new(), Fixture::new());
    let registry = fixture.start(RegistryAccess::Open);
    fixture.push(&registry, "team/cat:v1", &catalog("schema: a")).await;
    let reference = format!("{}/team/cat:v1", registry.host());
    let puller = fixture.puller(|config| config.cas_dir = Some(stranger.path("cas")));
    let error = resolve(&puller, &reference).await.unwrap_err();
    let host = registry.host();
    assert_eq!(
        error.to_string(),
        format!(
            "error creating image source: fetching manifest v1 in {host}/team/cat: pinging container registry {host}: Get \
             \"https://{host}/v2/\": tls: failed to verify certificate: x509: certificate signed by unknown authority"
        )
    );
    fs::copy(fixture.path("cas/ca.crt"), stranger.path("cas/other.crt")).unwrap();
    assert_eq!(pull(&puller, &reference).await.unwrap(), "schema: a");

    // The same from a folder for this registry only.
    let certs = fixture.path("certs.d").join(host);
    let puller = fixture.puller(|config| {
        config.cas_dir = None;
        config.paths.certs = vec![fixture.path("certs.d")];
    });
    assert!(resolve(&puller, &reference).await.is_err());
    fs::create_dir_all(&certs).unwrap();
    fs::copy(fixture.path("cas/ca.crt"), certs.join("ca.crt")).unwrap();
    assert_eq!(pull(&puller, &reference).await.unwrap(), "schema: a");
}

// Case catalogd-29
#[tokio::test]
async fn password_is_found_by_registry_path() {
    let fixture = Fixture::new();
    let registry = fixture.start(RegistryAccess::Password);
    let host = registry.host();
    fixture.push(&registry, "team/one/cat:v1", &catalog("schema: a")).await;
    let reference = format!("{host}/team/one/cat:v1");
    let puller = fixture.puller(|_| {});
    let error = resolve(&puller, &reference).await.unwrap_err();
    assert!(!error.is_terminal());
    let text = error.to_string();
    assert!(text.ends_with(": unauthorized: authentication required"), "{text}");
    for (key, works) in [
        (host.to_owned(), true),
        (format!("{host}/team"), true),
        (format!("{host}/team/one/cat"), true),
        (format!("{host}/team/two"), false),
        (format!("https://{host}/v2/"), true),
    ] {
        fs::write(fixture.path("auth.json"), Fixture::credentials(&key)).unwrap();
        assert_eq!(pull(&puller, &reference).await.is_ok(), works, "{key}");
    }
}

#[tokio::test]
async fn trusted_client_certificate_is_presented() {
    let fixture = Fixture::new();
    let open = fixture.start(RegistryAccess::Open);
    fixture.push(&open, "team/cat:v1", &catalog("schema: a")).await;
    let registry = fixture.start(RegistryAccess::ClientCertificate);
    let reference = format!("{}/team/cat:v1", registry.host());
    let puller = fixture.puller(|config| config.retry.attempts = 1);
    assert!(resolve(&puller, &reference).await.is_err());
    // Of two client certificates, the one that the registry trusts is used.
    let stranger = Fixture::new();
    for (from, name) in [(&stranger, "another"), (&fixture, "client")] {
        for extension in ["cert", "key"] {
            let to = fixture.path("cas").join(format!("{name}.{extension}"));
            fs::copy(from.path(&format!("client.{extension}")), to).unwrap();
        }
    }
    assert_eq!(pull(&puller, &reference).await.unwrap(), "schema: a");
    assert_eq!(pull(&puller, &format!("{}/team/cat:v1", open.host())).await.unwrap(), "schema: a");
    fs::remove_file(fixture.path("cas/client.key")).unwrap();
    let error = resolve(&puller, &reference).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "error creating image source: missing key client.key for client certificate client.cert. Note that CA certificates \
         should use the extension .crt"
    );
}

// Case catalogd-27
#[tokio::test]
async fn mirror_blocked_and_insecure_settings_are_applied() {
    let fixture = Fixture::new();
    let (open, locked) = (fixture.start(RegistryAccess::Open), fixture.start(RegistryAccess::Password));
    let plain = fixture.start(RegistryAccess::PlainHttp);
    let digest = fixture.push(&open, "team/cat:v1", &catalog("schema: a")).await;
    let puller = fixture.puller(|_| {});
    fs::write(fixture.path("auth.json"), Fixture::credentials(&format!("{}/team", locked.host()))).unwrap();

    fixture.write_registries(&format!(
        "[[registry]]\nprefix = \"m.example.test\"\nlocation = \"127.0.0.1:9\"\n[[registry.mirror]]\nlocation = \"{}/team\"\n",
        locked.host()
    ));
    let canonical = resolve(&puller, "m.example.test/cat:v1").await.unwrap();
    assert_eq!(canonical.to_string(), format!("m.example.test/cat@{digest}"));
    assert_eq!(pull(&puller, "m.example.test/cat:v1").await.unwrap(), "schema: a");
    assert_eq!(pull(&puller, &format!("m.example.test/cat@{digest}")).await.unwrap(), "schema: a");

    fixture.write_registries(&format!("[[registry]]\nlocation = \"{}/team\"\nblocked = true", open.host()));
    let error = resolve(&puller, &format!("{}/team/cat:v1", open.host())).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "error creating image source: registry {}/team is blocked in one of [\"{}\"]",
            open.host(),
            fixture.path("registries.conf").display()
        )
    );

    let (host, reference) = (plain.host(), format!("{}/team/cat:v1", plain.host()));
    let error = resolve(&puller, &reference).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "error creating image source: fetching manifest v1 in {host}/team/cat: pinging container registry {host}: Get \
             \"https://{host}/v2/\": http: server gave HTTP response to HTTPS client"
        )
    );
    fixture.write_registries(&format!("[[registry]]\nlocation = \"{host}\"\ninsecure = true"));
    assert_eq!(pull(&puller, &reference).await.unwrap(), "schema: a");
    let untrusting = fixture.puller(|config| config.cas_dir = None);
    assert!(resolve(&untrusting, &format!("{}/team/cat:v1", open.host())).await.is_err());
    fixture.write_registries(&format!("[[registry]]\nlocation = \"{}\"\ninsecure = true", open.host()));
    assert_eq!(pull(&untrusting, &format!("{}/team/cat:v1", open.host())).await.unwrap(), "schema: a");
}
