//! Tokens, redirects, proxies and certificates between a pull and its registry.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::fixture::*;
use olm_image::registry::{Access, Fault, Registry, Seen};
use olm_oci::{Config, CredentialSource, Credentials, ImageLimits, Proxies, Puller, RegistryPaths};

/// Registry that requires tokens, with a configured login.
async fn with_tokens() -> Fixture {
    let fixture = Fixture::new().await;
    fixture.registry.add_image("a/cat", "v1", &catalog());
    fixture.registry.set_access(Access::Bearer(Some(("user".to_owned(), "secret".to_owned()))));
    let host = fixture.registry.host();
    fixture.write_auth(&format!(r#"{{"auths":{{"{host}":{{"auth":"dXNlcjpzZWNyZXQ="}}}}}}"#));
    fixture
}

fn unauthorized(host: &str, further: &str) -> Fault {
    let challenge = format!("Bearer realm=\"https://{host}/token\",service=\"test\"{further}");
    Fault::Status(401, vec![("www-authenticate", challenge)], String::new())
}

#[tokio::test]
async fn unauthorized_blob_request_is_authorized_once_more() {
    let fixture = with_tokens().await;
    let host = fixture.registry.host();
    let canonical = fixture.resolve("a/cat:v1").await;
    let tokens = |seen: &[Seen]| seen.iter().filter(|seen| seen.request == "GET /token").count();
    fixture.registry.add_fault("GET /v2/a/cat/blobs/", 1, unauthorized(&host, ""));
    let _ = fixture.registry.take_seen();
    fixture.pull(&canonical).await.unwrap();
    assert_eq!(tokens(&fixture.registry.take_seen()), 2);

    fixture.registry.add_fault("GET /v2/a/cat/blobs/", 2, unauthorized(&host, ""));
    let error = fixture.pull_to("second", &canonical).await.unwrap_err();
    assert!(error.to_string().ends_with(": unauthorized: "), "{error}");
    assert!(!error.is_terminal());
    assert_eq!(tokens(&fixture.registry.take_seen()), 2);
}

#[tokio::test]
async fn insufficient_scope_requests_wider_token_once() {
    let fixture = with_tokens().await;
    let host = fixture.registry.host();
    let challenge = ",scope=\"repository:base/layers:pull\",error=\"insufficient_scope\"";
    fixture.registry.add_fault("HEAD", 1, unauthorized(&host, challenge));
    fixture.resolve("a/cat:v1").await;
    let seen = fixture.registry.take_seen();
    let queries: Vec<_> =
        seen.iter().filter(|seen| seen.request == "GET /token").map(|seen| seen.query.as_str()).collect();
    assert_eq!(
        queries,
        [
            "service=test&scope=repository%3Aa%2Fcat%3Apull&account=user",
            "service=test&scope=repository%3Aa%2Fcat%3Apull&scope=repository%3Abase%2Flayers%3Apull&account=user",
        ]
    );
}

#[tokio::test]
async fn default_credentials_are_used_without_own_file() {
    let folder = tempfile::TempDir::new().unwrap();
    let files = ["first.json", "second.json"].map(|name| folder.path().join(name));
    let fixture = Fixture::with(|config| {
        config.paths = RegistryPaths { auth_files: files.to_vec(), ..RegistryPaths::default() }
    })
    .await;
    fixture.registry.add_image("a/cat", "v1", &catalog());
    fixture.registry.set_access(Access::Basic("user".to_owned(), "secret".to_owned()));
    let host = fixture.registry.host();
    let write = |file: &std::path::Path, host: &str| {
        std::fs::write(file, format!(r#"{{"https://{host}/v1/":{{"auth":"dXNlcjpzZWNyZXQ="}}}}"#)).unwrap();
    };
    write(&files[0], "other.test");
    assert!(fixture.try_resolve("a/cat:v1").await.is_err());
    write(&files[1], &host);
    fixture.resolve("a/cat:v1").await;
    fixture.write_auth("{}");
    assert!(fixture.try_resolve("a/cat:v1").await.is_err());
}

#[tokio::test]
async fn updated_credentials_apply_to_next_request() {
    let (publish, published) = tokio::sync::watch::channel(Credentials::default());
    let fixture = Fixture::with(|config| config.credentials = CredentialSource::Memory(published)).await;
    fixture.registry.add_image("a/cat", "v1", &catalog());
    fixture.registry.set_access(Access::Basic("user".to_owned(), "secret".to_owned()));
    assert!(fixture.try_resolve("a/cat:v1").await.is_err());
    for (password, is_right) in [("secret", true), ("wrong", false)] {
        let mut credentials = Credentials::default();
        let entry = serde_json::json!({"username": "user", "password": password});
        credentials.insert(fixture.registry.host(), entry).unwrap();
        publish.send_replace(credentials);
        assert_eq!(fixture.try_resolve("a/cat:v1").await.is_ok(), is_right, "{password}");
    }
}

// Case operations-a56
#[tokio::test]
async fn redirect_to_other_host_drops_authorization() {
    let fixture = with_tokens().await;
    let storage = Registry::start().await.unwrap();
    fixture.trust(&storage);
    storage.add_image("x", "v1", &catalog());
    let location = format!("https://{}/v2/x/blobs/", storage.host());
    for blob in catalog().blobs() {
        let digest = olm_image::digest_of(blob);
        let to = vec![("location", format!("{location}{digest}?signature=s3cret"))];
        fixture.registry.add_fault(
            &format!("blobs/{digest}"),
            usize::MAX,
            Fault::Status(307, to, String::new()),
        );
    }
    let canonical = fixture.resolve("a/cat:v1").await;
    fixture.pull(&canonical).await.unwrap();
    let seen = storage.take_seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|seen| seen.authorization.is_none()), "{seen:?}");

    // Nor at a redirect within the storage server.
    let blob = olm_image::digest_of(catalog().blobs().next().unwrap());
    let to = vec![("location", format!("/v2/x/blobs/{blob}?once=more"))];
    storage.add_fault(&format!("blobs/{blob}"), 1, Fault::Status(307, to, String::new()));
    fixture.pull_to("again", &canonical).await.unwrap();
    olm_oci::remove_folder(&fixture.destination().with_file_name("again")).unwrap();
    let seen = storage.take_seen();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|seen| seen.authorization.is_none()), "{seen:?}");

    // Challenges of the storage server are ignored, and its error text is hidden.
    let body = "<Error><StringToSign>s3cret</StringToSign></Error>".to_owned();
    storage.add_fault("", 1, Fault::Status(403, Vec::new(), body));
    let error = fixture.pull_to("second", &canonical).await.unwrap_err().to_string();
    assert!(error.ends_with(": StatusCode: 403 of 127.0.0.1, where the registry redirects to"), "{error}");
    let realm = unauthorized(&storage.host(), "");
    storage.add_fault("", 1, realm);
    let error = fixture.pull_to("second", &canonical).await.unwrap_err().to_string();
    assert!(error.contains("StatusCode: 401 of "), "{error}");
    assert!(storage.take_seen().iter().all(|seen| seen.authorization.is_none()));
    storage.add_fault("", usize::MAX, Fault::Cut(0));
    let error = fixture.pull_to("second", &canonical).await.unwrap_err().to_string();
    assert!(error.contains(&format!("Get \"{location}")), "{error}");
    assert!(!error.contains("s3cret") && !error.contains("signature"), "{error}");
}

/// The form holds the identity token, so it must not reach another server.
#[tokio::test]
async fn token_request_with_secret_is_not_redirected() {
    let fixture = with_tokens().await;
    let host = fixture.registry.host();
    fixture.write_auth(&format!(r#"{{"auths":{{"{host}":{{"identitytoken":"s3cret"}}}}}}"#));
    let other = Registry::start().await.unwrap();
    fixture.trust(&other);
    let to = vec![("location", format!("https://{}/token", other.host()))];
    fixture.registry.add_fault("POST /token", 1, Fault::Status(307, to, String::new()));
    let error = fixture.try_resolve("a/cat:v1").await.unwrap_err().to_string();
    assert!(error.ends_with("requesting bearer token: StatusCode: 307, \"\""), "{error}");
    assert_eq!(other.take_requests(), [""; 0]);
}

#[tokio::test]
async fn redirects_are_limited_to_ten() {
    let fixture = with_tokens().await;
    let canonical = fixture.resolve("a/cat:v1").await;
    let to = vec![("location", "?more".to_owned())];
    fixture.registry.add_fault("blobs/", usize::MAX, Fault::Status(302, to, String::new()));
    let _ = fixture.registry.take_requests();
    let error = fixture.pull(&canonical).await.unwrap_err().to_string();
    assert!(error.ends_with("\": stopped after 10 redirects"), "{error}");
    let blobs = fixture.registry.take_requests().iter().filter(|request| request.contains("blobs/")).count();
    assert_eq!(blobs, 11);
}

#[tokio::test]
async fn redirect_to_plain_http_is_not_followed() {
    let fixture = with_tokens().await;
    let canonical = fixture.resolve("a/cat:v1").await;
    let plain = Registry::start_plain().await.unwrap();
    let to = vec![("location", format!("http://{}/x?signature=s3cret", plain.host()))];
    fixture.registry.add_fault("blobs/", 1, Fault::Status(307, to, String::new()));
    let error = fixture.pull(&canonical).await.unwrap_err().to_string();
    assert!(!error.contains("s3cret"), "{error}");
    assert_eq!(plain.take_requests(), [""; 0]);
}

// Case operations-a55
#[tokio::test]
async fn denied_networks_receive_no_connection() {
    let denied = |cidrs: &str| {
        let cidrs = cidrs.parse().unwrap();
        Fixture::with(move |config| config.denied = cidrs)
    };
    let fixture = denied("169.254.0.0/16,127.0.0.0/8").await;
    fixture.registry.add_image("a/cat", "v1", &catalog());
    let error = fixture.try_resolve("a/cat:v1").await.unwrap_err().to_string();
    let guard = "dial tcp 127.0.0.1: the address is in 127.0.0.0/8, which --registry-deny-cidrs forbids";
    assert!(error.ends_with(guard), "{error}");
    assert_eq!(fixture.registry.take_requests(), [""; 0]);

    // The same for a host name, and for a redirect from an allowed registry.
    let host = fixture.registry.host().replace("127.0.0.1", "localhost");
    let reference = format!("{host}/a/cat:v1").parse().unwrap();
    let error = fixture.puller.resolve(&reference).await.unwrap_err().to_string();
    assert!(error.contains("which --registry-deny-cidrs forbids"), "{error}");
    assert_eq!(fixture.registry.take_requests(), [""; 0]);

    let fixture = denied("169.254.0.0/16").await;
    fixture.registry.add_image("a/cat", "v1", &catalog());
    let to = vec![("location", "https://169.254.169.254/latest/meta-data".to_owned())];
    fixture.registry.add_fault("blobs/", usize::MAX, Fault::Status(307, to, String::new()));
    let canonical = fixture.resolve("a/cat:v1").await;
    let error = fixture.pull(&canonical).await.unwrap_err().to_string();
    assert!(
        error.ends_with("the address is in 169.254.0.0/16, which --registry-deny-cidrs forbids"),
        "{error}"
    );
}

/// Starts a proxy that connects every tunnel to `target`. Returns its address and the requests it received.
async fn proxy(target: SocketAddr, answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let log = Arc::clone(&log);
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(client.read_u8().await?);
                }
                log.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
                client.write_all(answer.as_bytes()).await?;
                if answer.contains(" 200 ") {
                    copy_bidirectional(&mut client, &mut TcpStream::connect(target).await?).await?;
                }
                std::io::Result::Ok(())
            });
        }
    });
    (address, seen)
}

#[tokio::test]
async fn registry_is_reached_through_proxy() {
    let registry = Registry::start().await.unwrap();
    registry.add_image("a/cat", "v1", &catalog());
    let target = registry.host().parse().unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    registry.write_ca(folder.path()).unwrap();
    let puller = |proxy: String| {
        let mut config = Config::new(ImageLimits::CATALOG);
        config.cas_dir = Some(folder.path().to_owned());
        config.paths = RegistryPaths::default();
        config.proxies = Proxies::new(None, Some(proxy.parse().unwrap()), "");
        config.retry.attempts = 1;
        Puller::new(config)
    };
    let reference = "registry.test:5000/a/cat:v1".parse().unwrap();
    let (address, seen) = proxy(target, "HTTP/1.1 200 Connection established\r\n\r\n").await;
    puller(format!("http://user:s3cret@{address}")).resolve(&reference).await.unwrap();
    let request = seen.lock().unwrap().remove(0);
    assert!(request.starts_with("CONNECT registry.test:5000 HTTP/1.1\r\n"), "{request}");
    // user:s3cret
    assert!(request.to_lowercase().contains("proxy-authorization: basic dxnlcjpzm2nyzxq="), "{request}");

    let ping = "error creating image source: fetching manifest v1 in registry.test:5000/a/cat: pinging container registry \
                registry.test:5000: Get \"https://registry.test:5000/v2/\": ";
    for (answer, refusal) in [
        (
            "HTTP/1.1 502 Bad Gateway\r\n\r\n",
            "it did not answer CONNECT registry.test:5000 with 200 but with 502",
        ),
        ("HTTP/1.1 407 No\r\n\r\n", "it answered CONNECT registry.test:5000 with 407"),
    ] {
        let (refusing, _) = proxy(target, answer).await;
        let error = puller(format!("http://user:s3cret@{refusing}")).resolve(&reference).await.unwrap_err();
        assert_eq!(error.to_string(), format!("{ping}proxy {refusing}: {refusal}"));
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = puller(format!("http://user:s3cret@{free}")).resolve(&reference).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{ping}proxyconnect tcp: dial tcp {free}: connect: connection refused")
    );
}

// docs/design/operations.md#proxies
#[tokio::test]
async fn other_clients_use_same_proxy_choice() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxies =
        Proxies::new(None, Some(format!("http://user:s3cret@{free}").parse().unwrap()), ".exempt.test");
    let client = reqwest::Client::builder().no_proxy().proxy(proxies.chooser()).build().unwrap();
    let why = async |url: &str| {
        let url = url.parse().unwrap();
        let error = client.get(reqwest::Url::clone(&url)).send().await.unwrap_err();
        proxies.cause_of(&url, &error)
    };
    let refused = format!("proxyconnect tcp: dial tcp {free}: connect: connection refused");
    assert_eq!(why("https://catalogd.test/api/v1/all").await, refused);
    let exempt = why("https://catalogd.exempt.test/api/v1/all").await;
    assert!(exempt.starts_with("dial tcp: lookup catalogd.exempt.test: "), "{exempt}");
}

/// A registry certificate in the CA folder is trusted, whether it is a CA or not.
#[tokio::test]
async fn self_signed_certificate_in_ca_folder_is_trusted() {
    for is_ca in [true, false] {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        if is_ca {
            certificate.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        let (pem, key) = (certificate.pem(), key.serialize_pem());
        let registry = Registry::start_with(&pem, &key).await.unwrap();
        let fixture = Fixture::new().await;
        fixture.trust(&registry);
        registry.add_image("a/cat", "v1", &catalog());
        let reference = format!("{}/a/cat:v1", registry.host()).parse().unwrap();
        fixture.puller.resolve(&reference).await.unwrap();
        // It is not trusted for other certificates or other names.
        let port = registry.host().rsplit_once(':').unwrap().1.to_owned();
        let error = fixture.puller.resolve(&format!("localhost:{port}/a/cat:v1").parse().unwrap()).await;
        let error = error.unwrap_err().to_string();
        assert!(error.ends_with("x509: certificate is not valid for localhost"), "{error}");
    }
}

/// A server certificate that was requested as a CA certificate: without subject, signed by the CA of the folder.
#[tokio::test]
async fn server_certificate_may_be_ca_certificate() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let authority = || rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let (mut ca, ca_key) =
        (rcgen::CertificateParams::new(vec![]).unwrap(), rcgen::KeyPair::generate().unwrap());
    ca.is_ca = authority();
    ca.distinguished_name.push(rcgen::DnType::CommonName, "the CA");
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let ca = rcgen::Issuer::new(ca, ca_key);
    let (mut leaf, key) = (
        rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap(),
        rcgen::KeyPair::generate().unwrap(),
    );
    leaf.is_ca = authority();
    leaf.distinguished_name = rcgen::DistinguishedName::new();
    let leaf = leaf.signed_by(&key, &ca).unwrap();
    let registry = Registry::start_with(&leaf.pem(), &key.serialize_pem()).await.unwrap();
    registry.add_image("a/cat", "v1", &catalog());
    let fixture = Fixture::new().await;
    let port = registry.host().rsplit_once(':').unwrap().1.to_owned();
    let resolve =
        async |host: &str| fixture.puller.resolve(&format!("{host}:{port}/a/cat:v1").parse().unwrap()).await;
    let error = resolve("127.0.0.1").await.unwrap_err().to_string();
    assert!(error.ends_with("x509: certificate signed by unknown authority"), "{error}");
    std::fs::write(fixture.cas_dir().join("ca.crt"), ca_pem).unwrap();
    resolve("127.0.0.1").await.unwrap();
    let error = resolve("localhost").await.unwrap_err().to_string();
    assert!(error.ends_with("x509: certificate is not valid for localhost"), "{error}");
}

const REFERENCE: &str = "OLM_TEST_REFERENCE";

/// `SSL_CERT_FILE` and `SSL_CERT_DIR` are used. Runs in a child process, since the environment is per process.
#[tokio::test]
async fn system_roots_follow_the_environment() {
    if let Ok(reference) = std::env::var(REFERENCE) {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = Config { paths: RegistryPaths::default(), ..Config::new(ImageLimits::CATALOG) };
        Puller::new(config).resolve(&reference.parse().unwrap()).await.unwrap();
        return;
    }
    let registry = Registry::start().await.unwrap();
    registry.add_image("a/cat", "v1", &catalog());
    let folder = tempfile::TempDir::new().unwrap();
    let file = registry.write_ca(folder.path()).unwrap();
    for (variable, value, works) in [
        ("SSL_CERT_FILE", file.as_path(), true),
        ("SSL_CERT_DIR", folder.path(), true),
        ("OTHER", &file, false),
    ] {
        let output = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "network::system_roots_follow_the_environment", "--nocapture"])
            .env(REFERENCE, format!("{}/a/cat:v1", registry.host()))
            .env_remove("SSL_CERT_FILE")
            .env_remove("SSL_CERT_DIR")
            .env(variable, value)
            .output()
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), works, "{variable}: {text}");
        assert!(works || text.contains("certificate signed by unknown authority"), "{text}");
    }
}
