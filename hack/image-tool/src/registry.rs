//! In-process OCI registry for tests: HTTP over TLS on a free loopback port, with faults on demand.
//!
//! It accepts pushes and serves pulls (`HEAD`, `GET`, ranges), can require credentials, records every request, and
//! injects faults that a test adds. All content is in memory and lost on drop.

mod responses;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum_server::tls_rustls::RustlsConfig;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::{StatusCode, header};
use oci_distribution::manifest::OCI_IMAGE_MEDIA_TYPE;
use serde_json::json;
use tokio::sync::watch;

use crate::{Image, digest_of};

/// Maximum body size of a push.
const MAX_BODY: usize = 1 << 30;

/// Required authentication.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Access {
    /// No authentication.
    #[default]
    Open,
    /// Basic authentication with user and password.
    Basic(String, String),
    /// Bearer token, which `/token` issues without authentication (`None`) or for user and password.
    Bearer(Option<(String, String)>),
}

/// Deviation of a response from the correct one.
#[derive(Debug, Clone)]
pub enum Fault {
    /// This status, headers and body instead.
    Status(u16, Vec<(&'static str, String)>, String),
    /// The connection breaks after this number of bytes of the body.
    Cut(usize),
    /// The body stops after this number of bytes, and the connection remains open.
    Stall(usize),
    /// The first byte of the body is wrong.
    Corrupt,
    /// The body never ends.
    Endless,
    /// No response at all.
    Hang,
    /// The response is delayed until the sender is dropped.
    Held(watch::Receiver<()>),
    /// No `Docker-Content-Digest` header.
    NoDigestHeader,
    /// The whole blob in response to a range request.
    Whole,
}

/// Recorded request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// `METHOD /path`
    pub request: String,
    /// Query of the URL, as sent.
    pub query: String,
    /// The `Authorization` header.
    pub authorization: Option<String>,
}

struct FaultRule {
    request: String,
    times: usize,
    fault: Fault,
}

#[derive(Default)]
struct Content {
    access: Access,
    has_referrers: bool,
    blobs: HashMap<String, Bytes>,
    /// Media type and bytes, by repository and tag or digest.
    manifests: HashMap<(String, String), (String, Bytes)>,
    rules: Vec<FaultRule>,
    seen: Vec<Seen>,
}

/// Running registry.
pub struct Registry {
    address: SocketAddr,
    ca_pem: String,
    content: Arc<Mutex<Content>>,
    server: axum_server::Handle<SocketAddr>,
}

impl Registry {
    /// Starts a registry on a free port of 127.0.0.1, with a certificate from a new CA for `127.0.0.1`, `localhost`
    /// and `registry.test`. Installs the process's TLS provider if none is installed.
    ///
    /// # Errors
    /// No port is free, or no certificate can be generated.
    pub async fn start() -> Result<Self> {
        let (ca_pem, certificate, key) = certificates()?;
        let mut registry = Self::start_with(&certificate, &key).await?;
        registry.ca_pem = ca_pem;
        Ok(registry)
    }

    /// Starts a registry with a certificate and key in PEM. Clients must trust the certificate.
    ///
    /// # Errors
    /// No port is free, or certificate and key cannot be used.
    pub async fn start_with(certificate: &str, key: &str) -> Result<Self> {
        // A second installation fails, and the first one suffices.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let tls = RustlsConfig::from_pem(certificate.into(), key.into()).await?;
        Self::serve(certificate, Some(tls))
    }

    /// Starts a registry with plain HTTP on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start_plain() -> Result<Self> {
        Self::serve("", None)
    }

    fn serve(ca_pem: &str, tls: Option<RustlsConfig>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (content, server) = (Arc::default(), axum_server::Handle::new());
        let app = axum::Router::new().fallback(handle).with_state(Arc::clone(&content)).into_make_service();
        let running = match tls {
            Some(tls) => {
                axum_server::from_tcp_rustls(listener, tls)?.handle(server.clone()).serve(app).boxed()
            }
            None => axum_server::from_tcp(listener)?.handle(server.clone()).serve(app).boxed(),
        };
        tokio::spawn(running);
        Ok(Self { address, ca_pem: ca_pem.to_owned(), content, server })
    }

    /// `127.0.0.1:<port>`, the registry part of references.
    #[must_use]
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Certificate that clients must trust, PEM. Empty for plain HTTP.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Writes the certificate into `folder`, in the format of `--pull-cas-dir`, and returns the file's path.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_ca(&self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join("registry-ca.crt");
        std::fs::write(&path, &self.ca_pem).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// Sets the authentication required from now on.
    pub fn set_access(&self, access: Access) {
        self.content().access = access;
    }

    /// Offers the referrers API from now on. Otherwise, clients use the tag for referrers.
    pub fn offer_referrers(&self) {
        self.content().has_referrers = true;
    }

    /// Stores `image` and returns its digest.
    pub fn add_image(&self, repository: &str, tag: &str, image: &Image) -> String {
        for blob in image.blobs() {
            self.content().blobs.insert(digest_of(blob), blob.clone());
        }
        self.add_manifest(repository, tag, OCI_IMAGE_MEDIA_TYPE, image.manifest.clone())
    }

    /// Stores any bytes as a manifest (an index, an old format, garbage) and returns their digest.
    pub fn add_manifest(&self, repository: &str, tag: &str, media_type: &str, bytes: Bytes) -> String {
        self.content().add_manifest(repository, tag, media_type, bytes)
    }

    /// Bytes of all manifests, by repository and tag or digest.
    #[must_use]
    pub fn manifests(&self) -> BTreeMap<(String, String), Bytes> {
        let content = self.content();
        content.manifests.iter().map(|(key, (_, bytes))| (key.clone(), bytes.clone())).collect()
    }

    /// Digests of all blobs.
    #[must_use]
    pub fn blobs(&self) -> BTreeSet<String> {
        self.content().blobs.keys().cloned().collect()
    }

    /// Stored manifest of a tag or digest.
    #[must_use]
    pub fn manifest(&self, repository: &str, reference: &str) -> Option<Bytes> {
        let key = (repository.to_owned(), reference.to_owned());
        self.content().manifests.get(&key).map(|(_, bytes)| bytes.clone())
    }

    /// Applies `fault` to the next `times` responses to requests whose `METHOD /path` contains `request`.
    pub fn add_fault(&self, request: &str, times: usize, fault: Fault) {
        self.content().rules.push(FaultRule { request: request.to_owned(), times, fault });
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.content().rules.clear();
    }

    /// Returns and clears all recorded requests, as `METHOD /path`.
    #[must_use]
    pub fn take_requests(&self) -> Vec<String> {
        self.take_seen().into_iter().map(|seen| seen.request).collect()
    }

    /// Returns and clears all recorded requests.
    #[must_use]
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.content().seen)
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.server.shutdown();
    }
}

/// CA certificate, server certificate and server key, all PEM.
pub(crate) fn certificates() -> Result<(String, String, String)> {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate()?;
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let key = KeyPair::generate()?;
    let names = ["127.0.0.1", "localhost", "registry.test"].map(str::to_owned).to_vec();
    let certificate = CertificateParams::new(names)?.signed_by(&key, &Issuer::new(ca, ca_key))?;
    Ok((ca_pem, certificate.pem(), key.serialize_pem()))
}

impl Content {
    fn add_manifest(&mut self, repository: &str, tag: &str, media_type: &str, bytes: Bytes) -> String {
        let digest = digest_of(&bytes);
        for reference in [tag, &digest] {
            let key = (repository.to_owned(), reference.to_owned());
            self.manifests.insert(key, (media_type.to_owned(), bytes.clone()));
        }
        digest
    }

    fn next_fault(&mut self, request: &str) -> Option<Fault> {
        let rule = self.rules.iter_mut().find(|rule| rule.times > 0 && request.contains(&rule.request))?;
        rule.times -= 1;
        Some(rule.fault.clone())
    }

    /// Error response for missing credentials. `None` if the request is authorized.
    fn auth_error(&self, host: &str, path: &str, given: Option<&str>) -> Option<Response> {
        let (expected, challenge) = match &self.access {
            Access::Open => return None,
            Access::Basic(user, password) => (basic(user, password), "Basic realm=\"registry\"".to_owned()),
            Access::Bearer(login) if path == "/token" => {
                let (user, password) = login.as_ref()?;
                (basic(user, password), String::new())
            }
            Access::Bearer(_) => (
                format!("Bearer {TOKEN}"),
                format!("Bearer realm=\"https://{host}/token\",service=\"test\",scope=\"repository:x:pull\""),
            ),
        };
        if given == Some(expected.as_str()) {
            return None;
        }
        let mut response = failure(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "authentication required");
        if let Ok(value) = challenge.parse() {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
        }
        Some(response)
    }
}

const TOKEN: &str = "token-of-the-test-registry";

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

fn failure(status: StatusCode, code: &str, message: &str) -> Response {
    (status, axum::Json(json!({ "errors": [{ "code": code, "message": message }] }))).into_response()
}

async fn handle(State(content): State<Arc<Mutex<Content>>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let line = format!("{} {path}", parts.method);
    let host =
        parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
    let Ok(body) = axum::body::to_bytes(body, MAX_BODY).await else {
        return failure(StatusCode::PAYLOAD_TOO_LARGE, "SIZE_INVALID", "body too large");
    };
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let given = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let authorization = given.map(str::to_owned);
    let (fault, response) = {
        let mut content = content.lock().unwrap_or_else(PoisonError::into_inner);
        let auth_error = content.auth_error(&host, &path, authorization.as_deref());
        content.seen.push(Seen { request: line.clone(), query: query.clone(), authorization });
        let fault = content.next_fault(&line);
        if matches!(fault, Some(Fault::Whole)) {
            parts.headers.remove(header::RANGE);
        }
        let response =
            auth_error.unwrap_or_else(|| content.respond(&parts.method, &path, &query, &parts.headers, body));
        (fault, response)
    };
    match fault {
        None => response,
        Some(fault) => inject(response, fault).await,
    }
}

async fn inject(response: Response, fault: Fault) -> Response {
    let (mut parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, MAX_BODY).await.unwrap_or_default();
    if let Fault::Cut(_) | Fault::Stall(_) = fault {
        parts.headers.insert(header::CONTENT_LENGTH, body.len().into());
    }
    let body = match fault {
        Fault::Status(code, headers, text) => {
            let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let mut response = (status, text).into_response();
            for (name, value) in headers {
                if let Ok(value) = value.parse() {
                    response.headers_mut().insert(name, value);
                }
            }
            return response;
        }
        Fault::Cut(after) => {
            let sent = body.slice(..after.min(body.len()));
            let broken = Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
            Body::from_stream(stream::iter([Ok(sent), broken]))
        }
        Fault::Stall(after) => {
            let sent = stream::iter([Ok::<_, std::io::Error>(body.slice(..after.min(body.len())))]);
            Body::from_stream(sent.chain(stream::pending()))
        }
        Fault::Corrupt => {
            let mut body = body.to_vec();
            if let Some(first) = body.first_mut() {
                *first ^= 0xff;
            }
            Body::from(body)
        }
        Fault::Endless => {
            parts.headers.remove(header::CONTENT_LENGTH);
            let chunk = Bytes::from_static(&[b' '; 1 << 16]);
            Body::from_stream(stream::repeat_with(move || Ok::<_, std::io::Error>(chunk.clone())))
        }
        Fault::Hang => std::future::pending().await,
        Fault::Held(mut until) => {
            while until.changed().await.is_ok() {}
            Body::from(body)
        }
        Fault::Whole => Body::from(body),
        Fault::NoDigestHeader => {
            parts.headers.remove("docker-content-digest");
            Body::from(body)
        }
    };
    Response::from_parts(parts, body)
}
