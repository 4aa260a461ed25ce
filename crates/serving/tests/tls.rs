//! TLS negotiation of the HTTPS servers with real clients: versions, suites, groups, and certificate reload.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use olm_runtime::metrics::Metrics;
use olm_serving::https::{HttpServer, RustlsConfig};
use olm_serving::serving_certificate::{CertificateSource, ServingCertificate};
use olm_serving::tls_profile::{self, ProfileName, TlsProfile};
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, NamedGroup, ProtocolVersion, RootCertStore, StreamOwned,
    SupportedCipherSuite, SupportedProtocolVersion,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A server with its certificate in files.
struct Fixture {
    folder: TempDir,
    serving: Arc<ServingCertificate>,
    metrics: Arc<Metrics>,
    address: SocketAddr,
    _server: HttpServer,
}

/// Certificate and key as PEM text.
fn pair() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

impl Fixture {
    /// Starts a server with the profile of these flags.
    async fn start(profile: &str, version: &str, suites: &str, curves: &str) -> Self {
        let profile = TlsProfile::new(
            tls_profile::profile_name(profile).unwrap(),
            tls_profile::version(version).unwrap(),
            &tls_profile::suites(suites).unwrap(),
            &tls_profile::curves(curves).unwrap(),
        )
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let metrics = Arc::new(Metrics::new());
        let source = CertificateSource::Files { certificate: certificate.clone(), key: key.clone() };
        let serving = Arc::new(ServingCertificate::new(source, profile, Arc::clone(&metrics)));
        let (certificate_text, key_text) = pair();
        std::fs::write(certificate, certificate_text).unwrap();
        std::fs::write(key, key_text).unwrap();
        serving.load(None).await.unwrap();
        let router = Router::new().fallback(async || "here");
        let tls = RustlsConfig::from_config(serving.server_config(None).unwrap());
        let server = HttpServer::start((Ipv4Addr::LOCALHOST, 0).into(), Some(tls), router).unwrap();
        Self { folder, serving, metrics, address: server.address, _server: server }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Connects a client that trusts the PEM certificate `trusted`.
    async fn negotiate_trusting(&self, client: Client, trusted: &str) -> Result<Negotiated, String> {
        let (address, trusted) = (self.address, trusted.to_owned());
        tokio::task::spawn_blocking(move || client.negotiate_trusting(address, &trusted)).await.unwrap()
    }

    async fn negotiate(&self, client: Client) -> Result<Negotiated, String> {
        let trusted = std::fs::read_to_string(self.file("tls.crt")).unwrap();
        self.negotiate_trusting(client, &trusted).await
    }
}

/// The negotiated parameters.
#[derive(Debug, PartialEq)]
struct Negotiated {
    version: ProtocolVersion,
    suite: CipherSuite,
    group: NamedGroup,
    certificate: Vec<u8>,
}

/// A client that offers only these parameters.
struct Client {
    versions: Vec<&'static SupportedProtocolVersion>,
    suites: Vec<SupportedCipherSuite>,
    groups: Vec<&'static dyn SupportedKxGroup>,
}

impl Client {
    /// A client that offers all parameters it supports.
    fn new() -> Self {
        let all = aws_lc_rs::default_provider();
        Self { versions: vec![&TLS12, &TLS13], suites: all.cipher_suites, groups: all.kx_groups }
    }

    fn versions(self, versions: &[&'static SupportedProtocolVersion]) -> Self {
        Self { versions: versions.to_vec(), ..self }
    }

    fn suites(self, suites: &[SupportedCipherSuite]) -> Self {
        Self { suites: suites.to_vec(), ..self }
    }

    fn groups(self, groups: &[&'static dyn SupportedKxGroup]) -> Self {
        Self { groups: groups.to_vec(), ..self }
    }

    fn negotiate_trusting(self, address: SocketAddr, trusted: &str) -> Result<Negotiated, String> {
        let mut provider = aws_lc_rs::default_provider();
        (provider.cipher_suites, provider.kx_groups) = (self.suites, self.groups);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&self.versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .map_err(|error| error.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(|error| error.to_string())?;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("here"), "{answer}");
        Ok(Negotiated {
            version: stream.conn.protocol_version().unwrap(),
            suite: stream.conn.negotiated_cipher_suite().unwrap().suite(),
            group: stream.conn.negotiated_key_exchange_group().unwrap().name(),
            certificate: stream.conn.peer_certificates().unwrap()[0].to_vec(),
        })
    }
}

// Case operations-a7
#[tokio::test]
async fn minimum_version_1_3_rejects_1_2_clients() {
    let fixture = Fixture::start("custom", "TLSv1.3", "", "").await;
    assert_eq!(fixture.negotiate(Client::new()).await.unwrap().version, ProtocolVersion::TLSv1_3);
    assert!(fixture.negotiate(Client::new().versions(&[&TLS12])).await.is_err());
    let modern = Fixture::start("Modern", "TLSv1.2", "", "").await;
    assert!(modern.negotiate(Client::new().versions(&[&TLS12])).await.is_err());
    let intermediate = Fixture::start("intermediate", "TLSv1.3", "", "").await;
    assert_eq!(
        intermediate.negotiate(Client::new().versions(&[&TLS12])).await.unwrap().version,
        ProtocolVersion::TLSv1_2
    );
}

// Case operations-a8
#[tokio::test]
async fn custom_suite_and_curve_reject_all_others() {
    for curve in ["prime256v1", "secp256r1"] {
        let suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
        let fixture = Fixture::start("custom", "TLSv1.2", suite, curve).await;
        let old = || Client::new().versions(&[&TLS12]);
        let negotiated = fixture.negotiate(old()).await.unwrap();
        assert_eq!(negotiated.suite, CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
        assert_eq!(negotiated.group, NamedGroup::secp256r1);
        let other = [cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384];
        assert!(fixture.negotiate(old().suites(&other)).await.is_err());
        for group in [kx_group::SECP384R1, kx_group::X25519] {
            assert!(fixture.negotiate(old().groups(&[group])).await.is_err());
        }
    }
}

// Case operations-a9
#[tokio::test]
async fn hybrid_group_works_with_tls_1_2_suite_list() {
    let suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    let fixture = Fixture::start("custom", "TLSv1.2", suite, "SecP256r1MLKEM768,secp256r1").await;
    let negotiated = fixture.negotiate(Client::new().groups(&[kx_group::SECP256R1MLKEM768])).await.unwrap();
    assert_eq!(
        (negotiated.version, negotiated.group),
        (ProtocolVersion::TLSv1_3, NamedGroup::secp256r1MLKEM768)
    );
    // A client that sends a key share of another group gets a HelloRetryRequest.
    let guessing = [kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1];
    assert_eq!(
        fixture.negotiate(Client::new().groups(&guessing)).await.unwrap().group,
        NamedGroup::secp256r1
    );
}

// Cases operations-a10, operations-e5
#[tokio::test]
async fn unsupported_suites_are_ignored_with_warnings() {
    let old = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,\
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,\
        TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,\
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,\
        TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256,TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256,\
        TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA,TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA,\
        TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA,\
        TLS_RSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_256_GCM_SHA384,TLS_RSA_WITH_AES_128_CBC_SHA256,\
        TLS_RSA_WITH_AES_128_CBC_SHA,TLS_RSA_WITH_AES_256_CBC_SHA,TLS_RSA_WITH_3DES_EDE_CBC_SHA";
    assert_eq!(old.split(',').count(), 21);
    let suites = tls_profile::suites(old).unwrap();
    let profile =
        TlsProfile::new(ProfileName::Custom, tls_profile::version("TLSv1.0").unwrap(), &suites, &[]).unwrap();
    // Twelve suites and the version.
    assert_eq!(profile.warnings.len(), 13, "{:#?}", profile.warnings);
    let fixture = Fixture::start("custom", "TLSv1.0", old, "").await;
    for version in [&TLS12, &TLS13] {
        assert_eq!(
            fixture.negotiate(Client::new().versions(&[version])).await.unwrap().version,
            version.version
        );
    }
    let only_1_2 = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    let fixture = Fixture::start("custom", "TLSv1.3", only_1_2, "").await;
    for suite in [cipher_suite::TLS13_AES_128_GCM_SHA256, cipher_suite::TLS13_CHACHA20_POLY1305_SHA256] {
        let client = Client::new().versions(&[&TLS13]).suites(&[suite]);
        assert_eq!(fixture.negotiate(client).await.unwrap().suite, suite.suite());
    }
}

// Cases operations-a11, operations-a12, operations-e6, operations-e7
#[tokio::test]
async fn certificate_is_reloaded_while_serving() {
    let fixture = Fixture::start("intermediate", "TLSv1.2", "", "").await;
    let first = std::fs::read_to_string(fixture.file("tls.crt")).unwrap();
    let leaf = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
    let held = fixture.serving.load(None).await.unwrap();
    let stop = CancellationToken::new();
    let following = tokio::spawn(Arc::clone(&fixture.serving).follow(held, stop.clone()));
    let metric = |name: &str| {
        let text = fixture.metrics.prometheus_text();
        let line = text.lines().find(|line| line.starts_with(name) && !line.starts_with('#')).unwrap();
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    assert!(metric("certwatcher_certificate_expiry_timestamp_seconds ") > 1.7e9);

    std::fs::write(fixture.file("tls.crt"), "garbage").unwrap();
    while metric("certwatcher_read_certificate_errors_total ") < 1.0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let negotiated = fixture.negotiate_trusting(Client::new(), &first).await.unwrap();
    assert_eq!(negotiated.certificate, leaf(&first));

    // Like the volume of a Secret, except that a reload may happen between the two writes.
    let (second, key) = pair();
    std::fs::write(fixture.file("tls.key"), key).unwrap();
    std::fs::write(fixture.file("tls.crt"), &second).unwrap();
    let replaced = async {
        loop {
            match fixture.negotiate_trusting(Client::new(), &second).await {
                Ok(negotiated) => return negotiated,
                // The first certificate is still served, which this client does not trust.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    let negotiated = tokio::time::timeout(Duration::from_secs(10), replaced).await.unwrap();
    assert_eq!(negotiated.certificate, leaf(&second));
    stop.cancel();
    following.await.unwrap();
}
