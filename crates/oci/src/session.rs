//! Conversation with one repository of a registry: authentication, manifests and blobs, with retries and size limits.
//!
//! `oci-client` is used for pushes and for the types, but not for these requests: it reads manifests, tokens and error texts of
//! any size, and hides `Retry-After` and the text of a 401 (`tests/oci_client.rs` shows each).

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RANGE, WWW_AUTHENTICATE,
};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use crate::challenge::{self, Challenge};
use crate::fetch::Hasher;
use crate::refusal::{RequestError, read_capped};
use crate::{Digest, Login, Reference, Retry};

/// Largest manifest, index or image configuration (spec 02 §B2).
pub(crate) const MAX_MANIFEST: u64 = 4 << 20;
const MAX_TOKEN: u64 = 1 << 20;
/// `Retry-After` is believed up to here.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// Images and indexes in the order of spec 02 §B2, without the old formats that have no layers of their own.
const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.index.v1+json";
const FORM: &str = "application/x-www-form-urlencoded";
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// An open conversation.
pub(crate) struct Session {
    http: reqwest::Client,
    /// The host that serves the registry; not always the one in references.
    host: String,
    path: String,
    login: Option<Login>,
    authorization: Mutex<Option<HeaderValue>>,
    retry: Retry,
    deadline: Instant,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Session {
    /// Asks the registry what it wants and authenticates accordingly.
    pub(crate) async fn open(
        http: reqwest::Client,
        reference: &Reference,
        login: Option<Login>,
        retry: Retry,
        deadline: Instant,
    ) -> Result<Self, RequestError> {
        let host = match reference.host() {
            "docker.io" => "registry-1.docker.io",
            host => host,
        };
        let session = Self {
            http,
            host: host.to_owned(),
            path: reference.path().to_owned(),
            login,
            authorization: Mutex::new(None),
            retry,
            deadline,
        };
        session.retried(|| session.ping()).await?;
        Ok(session)
    }

    async fn ping(&self) -> Result<(), RequestError> {
        let url = format!("https://{}/v2/", self.host);
        let pinging =
            |error: RequestError| error.within(&format!("pinging container registry {}", self.host));
        let response = self
            .http
            .get(&url)
            .send()
            .await
            .map_err(|error| pinging(RequestError::network(&Method::GET, &url, &error)))?;
        match response.status() {
            StatusCode::OK => Ok(()),
            StatusCode::UNAUTHORIZED => match challenge_of(response.headers()) {
                Some(challenge) => self.authenticate(&challenge).await,
                None => Ok(()),
            },
            status => {
                let text = format!("received unexpected HTTP status: {status}");
                Err(pinging(RequestError::of_status(status, response.headers(), text)))
            }
        }
    }

    async fn authenticate(&self, challenge: &Challenge) -> Result<(), RequestError> {
        let value = match (challenge, &self.login) {
            (Challenge::Basic, None) => return Ok(()),
            (Challenge::Basic, Some(login)) => basic(login)?,
            (Challenge::Bearer { realm, service }, _) => {
                header_value(format!("Bearer {}", self.token(realm, service).await?))?
            }
        };
        *self.authorization.lock().await = Some(value);
        Ok(())
    }

    async fn token(&self, realm: &str, service: &str) -> Result<String, RequestError> {
        let (method, request) = self.token_request(realm, service)?;
        let response = request.send().await.map_err(|error| RequestError::network(&method, realm, &error))?;
        if !response.status().is_success() {
            let about = match response.status() {
                StatusCode::UNAUTHORIZED => "unable to retrieve auth token: invalid username/password",
                _ => "requesting bearer token",
            };
            return Err(RequestError::refusal(response).await.within(about));
        }
        let body = read_capped(response, MAX_TOKEN).await?;
        let token =
            serde_json::from_slice::<Token>(&body).ok().and_then(|token| token.token.or(token.access_token));
        token.ok_or_else(|| RequestError::fatal(format!("the answer of {realm} holds no token")))
    }

    /// With an identity token it is exchanged, with a password that is shown, else the token is for anybody.
    fn token_request(&self, realm: &str, service: &str) -> Result<(Method, RequestBuilder), RequestError> {
        let scope = format!("repository:{}:pull", self.path);
        let mut fields = vec![("service", service), ("scope", scope.as_str())];
        let Some(login) = &self.login else {
            return Ok((Method::GET, self.http.get(realm).query(&fields)));
        };
        if let Some(identity_token) = &login.identity_token {
            let grant =
                [("grant_type", "refresh_token"), ("client_id", "olm"), ("refresh_token", identity_token)];
            fields.extend(grant);
            let request = self.http.post(realm).header(CONTENT_TYPE, FORM).body(encode(&fields)?);
            return Ok((Method::POST, request));
        }
        fields.push(("account", &login.username));
        Ok((Method::GET, self.http.get(realm).query(&fields).header(AUTHORIZATION, basic(login)?)))
    }

    /// Digest that the registry states for `tag`, where it does so without sending the manifest.
    pub(crate) async fn head(&self, tag: &str) -> Result<Option<Digest>, RequestError> {
        let url = self.manifest_url(tag);
        let response = self.retried(|| self.send(Method::HEAD, &url, None)).await?;
        let stated = response.headers().get(CONTENT_DIGEST).and_then(|value| value.to_str().ok());
        Ok(stated.and_then(|digest| digest.parse().ok()))
    }

    /// The manifest or index of a tag or digest. Whether it is the right one the caller checks.
    pub(crate) async fn manifest(&self, selector: &str) -> Result<Bytes, RequestError> {
        let url = self.manifest_url(selector);
        self.fetch(&url, MAX_MANIFEST).await
    }

    fn manifest_url(&self, selector: &str) -> String {
        format!("https://{}/v2/{}/manifests/{selector}", self.host, self.path)
    }

    /// A whole blob of at most `max` bytes, verified.
    pub(crate) async fn blob(&self, digest: &Digest, max: u64) -> Result<Bytes, RequestError> {
        let url = self.blob_url(digest);
        let bytes = self.fetch(&url, max).await?;
        check_digest(digest, &Hasher::digest(digest, &bytes))?;
        Ok(bytes)
    }

    fn blob_url(&self, digest: &Digest) -> String {
        format!("https://{}/v2/{}/blobs/{digest}", self.host, self.path)
    }

    /// Sends a blob of `size` bytes to `sink`, unverified. A broken stream goes on where it broke; each byte gained starts the
    /// count of attempts anew. A closed sink ends the transfer without an error.
    pub(crate) async fn stream_blob(
        &self,
        digest: &Digest,
        size: u64,
        sink: mpsc::Sender<Bytes>,
    ) -> Result<(), RequestError> {
        let url = self.blob_url(digest);
        let mut offset = 0;
        let mut failures = 0;
        loop {
            let before = offset;
            let Err(error) = self.stream_from(&url, &mut offset, size, &sink).await else {
                return Ok(());
            };
            failures = if offset > before { 1 } else { failures + 1 };
            self.pause(error, failures).await?;
        }
    }

    async fn stream_from(
        &self,
        url: &str,
        offset: &mut u64,
        size: u64,
        sink: &mpsc::Sender<Bytes>,
    ) -> Result<(), RequestError> {
        let mut response = self.send(Method::GET, url, Some(*offset).filter(|offset| *offset > 0)).await?;
        // A registry without ranges starts again from the first byte.
        let mut skip = if response.status() == StatusCode::PARTIAL_CONTENT { 0 } else { *offset };
        loop {
            let chunk =
                response.chunk().await.map_err(|error| RequestError::network(&Method::GET, url, &error))?;
            let Some(mut chunk) = chunk else { break };
            let skipped = usize::try_from(skip).unwrap_or(usize::MAX).min(chunk.len());
            skip -= skipped as u64;
            let chunk = chunk.split_off(skipped);
            *offset += chunk.len() as u64;
            if *offset > size {
                return Err(RequestError::fatal(format!(
                    "the blob is longer than the {size} bytes of its descriptor"
                )));
            }
            if sink.send(chunk).await.is_err() {
                return Ok(());
            }
        }
        if *offset < size {
            return Err(RequestError::transient(format!("the blob ended after {offset} of {size} bytes")));
        }
        Ok(())
    }

    /// A whole body of at most `max` bytes.
    async fn fetch(&self, url: &str, max: u64) -> Result<Bytes, RequestError> {
        self.retried(|| async { read_capped(self.send(Method::GET, url, None).await?, max).await }).await
    }

    /// One request with the current authorisation, and once more with a new one after a 401 that names a way.
    async fn send(&self, method: Method, url: &str, offset: Option<u64>) -> Result<Response, RequestError> {
        let response = self.attempt(&method, url, offset).await?;
        if response.status() == StatusCode::UNAUTHORIZED
            && let Some(challenge) = challenge_of(response.headers())
            && (self.login.is_some() || challenge != Challenge::Basic)
        {
            self.authenticate(&challenge).await?;
            return refuse(self.attempt(&method, url, offset).await?).await;
        }
        refuse(response).await
    }

    async fn attempt(
        &self,
        method: &Method,
        url: &str,
        offset: Option<u64>,
    ) -> Result<Response, RequestError> {
        let mut request = self.http.request(method.clone(), url).header(ACCEPT, ACCEPTED);
        if let Some(offset) = offset {
            request = request.header(RANGE, format!("bytes={offset}-"));
        }
        if let Some(authorization) = self.authorization.lock().await.clone() {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.send().await.map_err(|error| RequestError::network(method, url, &error))
    }

    async fn retried<T, F: Future<Output = Result<T, RequestError>>>(
        &self,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, RequestError> {
        let mut failures = 0;
        loop {
            match attempt().await {
                Ok(value) => return Ok(value),
                Err(error) => {
                    failures += 1;
                    self.pause(error, failures).await?;
                }
            }
        }
    }

    /// Waits before the next attempt, or gives `error` back where another one makes no sense or comes too late.
    async fn pause(&self, error: RequestError, failures: u32) -> Result<(), RequestError> {
        let doubled = self.retry.first_delay.saturating_mul(1 << (failures - 1).min(16));
        let wake = Instant::now() + error.retry_after.unwrap_or(doubled).min(MAX_DELAY);
        if !error.transient || failures >= self.retry.attempts || wake >= self.deadline {
            return Err(error);
        }
        tracing::debug!(registry = %self.host, repository = %self.path, %error, failures, "registry request failed, trying again");
        tokio::time::sleep_until(wake).await;
        Ok(())
    }
}

async fn refuse(response: Response) -> Result<Response, RequestError> {
    if response.status().is_success() { Ok(response) } else { Err(RequestError::refusal(response).await) }
}

/// An error unless `actual` is the digest that was asked for.
pub(crate) fn check_digest(wanted: &Digest, actual: &str) -> Result<(), RequestError> {
    if actual == wanted.as_str() {
        Ok(())
    } else {
        Err(RequestError::fatal(format!("Digest did not match, expected {wanted}, got {actual}")))
    }
}

fn challenge_of(headers: &HeaderMap) -> Option<Challenge> {
    challenge::parse(headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()))
}

/// Header text that debug output does not show.
fn header_value(secret: String) -> Result<HeaderValue, RequestError> {
    let mut value = HeaderValue::try_from(secret)
        .map_err(|_| RequestError::fatal("the credentials do not fit into a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn basic(login: &Login) -> Result<HeaderValue, RequestError> {
    header_value(format!(
        "Basic {}",
        BASE64_STANDARD.encode(format!("{}:{}", login.username, login.password))
    ))
}

fn encode(form: &[(&str, &str)]) -> Result<String, RequestError> {
    let url = Url::parse_with_params("https://form.invalid", form);
    let url = url.map_err(|error| RequestError::fatal(format!("encoding a token request: {error}")))?;
    Ok(url.query().unwrap_or_default().to_owned())
}
