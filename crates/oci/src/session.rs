//! Requests to one repository of a registry: authentication, manifests and blobs, with retries and size limits.
//!
//! `oci-client` is used for its types, but not for these requests: it reads manifests, tokens and error texts of any size,
//! and hides `Retry-After` and the text of a 401 (`tests/oci_client.rs` shows each).

mod pages;
mod upload;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_RANGE, HeaderMap, HeaderName, RANGE, WWW_AUTHENTICATE};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::authorization::Authorization;
use crate::budget::RequestBudget;
use crate::challenge::{self, Challenge};
use crate::client::Client;
use crate::fetch::Hasher;
use crate::registries::Source;
use crate::request_error::{RequestError, read_capped};
use crate::{Digest, Login};

/// Largest manifest, index or image configuration, in bytes (docs/design/images.md#resolve-and-pull).
pub(crate) const MAX_MANIFEST: u64 = 4 << 20;
/// Longest delay between two attempts.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// Accepted media types in the order of docs/design/images.md#resolve-and-pull. Schema 1 is included, so that such
/// an image is reported as unsupported.
const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, \
    application/vnd.docker.distribution.manifest.v1+prettyjws, \
    application/vnd.docker.distribution.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.index.v1+json";
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// Open session with a repository.
pub(crate) struct Session {
    client: Client,
    /// `https://host`. The host may differ from the one in references.
    base: String,
    host: String,
    path: String,
    authorization: Authorization,
    budget: RequestBudget,
}

impl Session {
    /// Pings the registry and authenticates as it requests, for pulls.
    pub(crate) async fn open(
        client: Client,
        source: &Source,
        login: Option<Login>,
        budget: RequestBudget,
    ) -> Result<Self, RequestError> {
        let authorization = Authorization::new(login, source.reference.path());
        Self::open_with(client, source, authorization, budget).await
    }

    /// [`open`](Self::open) for pulls and pushes.
    pub(crate) async fn open_for_push(
        client: Client,
        source: &Source,
        login: Option<Login>,
        budget: RequestBudget,
    ) -> Result<Self, RequestError> {
        let authorization = Authorization::new(login, source.reference.path()).for_push();
        Self::open_with(client, source, authorization, budget).await
    }

    async fn open_with(
        client: Client,
        source: &Source,
        authorization: Authorization,
        budget: RequestBudget,
    ) -> Result<Self, RequestError> {
        let host = match source.reference.host() {
            "docker.io" => "registry-1.docker.io",
            host => host,
        };
        let path = source.reference.path();
        let mut session = Self {
            client,
            base: format!("https://{host}"),
            host: host.to_owned(),
            path: path.to_owned(),
            authorization,
            budget,
        };
        if source.insecure && session.get_api_root().await.is_err() {
            session.base = format!("http://{host}");
        }
        session.retried(|| session.ping()).await?;
        Ok(session)
    }

    /// Continues the session with a new `budget`.
    pub(crate) fn with_budget(self, budget: RequestBudget) -> Self {
        Self { budget, ..self }
    }

    async fn get_api_root(&self) -> Result<Response, RequestError> {
        let url = format!("{}/v2/", self.base);
        self.client.send(self.client.request(&Method::GET, &url), &Method::GET, &url).await
    }

    async fn ping(&self) -> Result<(), RequestError> {
        let pinging =
            |error: RequestError| error.within(&format!("pinging container registry {}", self.host));
        let response = self.get_api_root().await.map_err(pinging)?;
        match response.status() {
            StatusCode::OK => Ok(()),
            StatusCode::UNAUTHORIZED => {
                if let Some(challenge) = self.challenge(&response) {
                    self.authorization.answer(&self.client, &challenge).await?;
                }
                Ok(())
            }
            status => {
                let text = format!("received unexpected HTTP status: {status}");
                Err(pinging(RequestError::of_status(status, response.headers(), text)))
            }
        }
    }

    /// Challenge of a response of the registry itself. Those of other servers, to which it redirects, are ignored
    /// so that they receive no password.
    fn challenge(&self, response: &Response) -> Option<Challenge> {
        let headers = response.headers().get_all(WWW_AUTHENTICATE);
        let values = headers.iter().filter_map(|value| value.to_str().ok());
        challenge::parse(values).filter(|_| self.is_registry_origin(response.url()))
    }

    /// `true` if `url` is at the registry itself.
    fn is_registry_origin(&self, url: &Url) -> bool {
        Url::parse(&self.base).is_ok_and(|base| base.origin() == url.origin())
    }

    /// Digest that the registry reports for `tag`, if any, without sending the manifest.
    pub(crate) async fn head(&self, tag: &str) -> Result<Option<Digest>, RequestError> {
        let url = self.manifest_url(tag);
        let response = self.retried(|| self.send(Method::HEAD, &url, None)).await?;
        let stated = response.headers().get(CONTENT_DIGEST).and_then(|value| value.to_str().ok());
        Ok(stated.and_then(|digest| digest.parse().ok()))
    }

    /// Manifest or index of a tag or digest, unverified.
    pub(crate) async fn manifest(&self, selector: &str) -> Result<Bytes, RequestError> {
        let url = self.manifest_url(selector);
        self.fetch(&url, MAX_MANIFEST).await
    }

    fn manifest_url(&self, selector: &str) -> String {
        format!("{}/v2/{}/manifests/{selector}", self.base, self.path)
    }

    /// Verified blob of at most `max` bytes.
    pub(crate) async fn blob(&self, digest: &Digest, max: u64) -> Result<Bytes, RequestError> {
        let url = self.blob_url(digest);
        let bytes = self.fetch(&url, max).await?;
        check_digest(digest, &Hasher::digest(digest, &bytes))?;
        Ok(bytes)
    }

    /// Reports whether the registry has a blob.
    pub(crate) async fn has_blob(&self, digest: &Digest) -> Result<bool, RequestError> {
        let url = self.blob_url(digest);
        match self.retried(|| self.send(Method::HEAD, &url, None)).await {
            Ok(_) => Ok(true),
            Err(error) if error.not_found => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn blob_url(&self, digest: &Digest) -> String {
        format!("{}/v2/{}/blobs/{digest}", self.base, self.path)
    }

    /// Sends a blob of `size` bytes to `sink`, unverified. A broken stream is resumed at its offset. Any progress
    /// resets the count of attempts. A closed sink ends the transfer without an error.
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
            // Only the end of the response was broken. The digest check covers the rest.
            if offset == size && offset > before {
                return Ok(());
            }
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
        // A registry without range support starts again at the first byte.
        let mut skip = match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let start = range_start(response.headers()).unwrap_or(*offset);
                offset.checked_sub(start).ok_or_else(|| {
                    RequestError::fatal(format!(
                        "the registry sent the blob from byte {start}, requested from {offset}"
                    ))
                })?
            }
            _ => *offset,
        };
        let broken = |error: reqwest::Error| RequestError::network(&Method::GET, url, &error, None);
        while let Some(mut chunk) = response.chunk().await.map_err(broken)? {
            self.budget.count_chunk();
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

    /// Whole body of at most `max` bytes.
    async fn fetch(&self, url: &str, max: u64) -> Result<Bytes, RequestError> {
        self.retried(|| async { read_capped(self.send(Method::GET, url, None).await?, max).await }).await
    }

    /// Sends one request with the current authorization, and a second one with a new authorization after a 401 with
    /// a supported challenge.
    async fn send(&self, method: Method, url: &str, offset: Option<u64>) -> Result<Response, RequestError> {
        let complete = |request: RequestBuilder| match offset {
            Some(offset) => request.header(RANGE, format!("bytes={offset}-")),
            None => request,
        };
        self.exchange(method, url, &complete).await
    }

    /// [`send`](Self::send) with the headers and the body that `complete` adds.
    async fn exchange(
        &self,
        method: Method,
        url: &str,
        complete: &(dyn Fn(RequestBuilder) -> RequestBuilder + Sync),
    ) -> Result<Response, RequestError> {
        let mut response = self.attempt(&method, url, complete).await?;
        if self.renewed(&response).await? {
            response = self.attempt(&method, url, complete).await?;
        }
        self.successful(response).await
    }

    /// [`exchange`](Self::exchange) of a body that can be sent only once. A 401 with a supported challenge is transient,
    /// because the next attempt has a new authorization.
    async fn exchange_once(
        &self,
        method: Method,
        url: &str,
        complete: &(dyn Fn(RequestBuilder) -> RequestBuilder + Sync),
    ) -> Result<Response, RequestError> {
        let response = self.attempt(&method, url, complete).await?;
        let renewed = self.renewed(&response).await?;
        let checked = self.successful(response).await;
        checked.map_err(|mut error| {
            error.transient |= renewed;
            error
        })
    }

    /// Answers the challenge of a 401. `true` if the next request has a new authorization.
    async fn renewed(&self, response: &Response) -> Result<bool, RequestError> {
        let is_denied = response.status() == StatusCode::UNAUTHORIZED;
        match self.challenge(response).filter(|_| is_denied) {
            Some(challenge) => self.authorization.answer(&self.client, &challenge).await,
            None => Ok(false),
        }
    }

    /// The response if its status is that of success.
    async fn successful(&self, response: Response) -> Result<Response, RequestError> {
        if response.status().is_success() {
            return Ok(response);
        }
        if !self.is_registry_origin(response.url()) {
            return Err(RequestError::from_redirect_target(&response));
        }
        Err(RequestError::from_response(response).await)
    }

    async fn attempt(
        &self,
        method: &Method,
        url: &str,
        complete: &(dyn Fn(RequestBuilder) -> RequestBuilder + Sync),
    ) -> Result<Response, RequestError> {
        let mut request = complete(self.client.request(method, url).header(ACCEPT, ACCEPTED));
        // The address of an upload may be at another server.
        if Url::parse(url).is_ok_and(|url| self.is_registry_origin(&url))
            && let Some(authorization) = self.authorization.header(&self.client).await?
        {
            request = request.header(AUTHORIZATION, authorization);
        }
        self.client.send(request, method, url).await
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

    /// Waits before the next attempt. Returns `error` if a retry is useless or would start too late.
    async fn pause(&self, error: RequestError, failures: u32) -> Result<(), RequestError> {
        let RequestBudget { retry, deadline, .. } = &self.budget;
        let wake = Instant::now() + delay(retry.first_delay, failures, error.retry_after, random());
        if !error.transient || failures >= retry.attempts || wake >= *deadline {
            return Err(error);
        }
        tracing::debug!(registry = %self.host, repository = %self.path, %error, failures, "registry request failed, retrying");
        tokio::time::sleep_until(wake).await;
        Ok(())
    }
}

/// Delay after this many failures: doubled each time, or as requested by the registry. `random`, from 0 to 1,
/// spreads clients that failed together: it removes up to half of our delay, or adds up to a tenth to the
/// registry's.
fn delay(first: Duration, failures: u32, asked: Option<Duration>, random: f64) -> Duration {
    let delay = match asked {
        Some(asked) => asked.min(MAX_DELAY).mul_f64(1.0 + random / 10.0),
        None => first.saturating_mul(1 << (failures - 1).min(16)).min(MAX_DELAY).mul_f64(1.0 - random / 2.0),
    };
    delay.min(MAX_DELAY)
}

/// Random number from 0 to 1.
fn random() -> f64 {
    f64::from(RandomState::new().hash_one(0) as u32) / f64::from(u32::MAX)
}

/// First byte of a partial response.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    range.trim().strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}

/// Fails unless `actual` is the digest `expected`.
pub(crate) fn check_digest(expected: &Digest, actual: &str) -> Result<(), RequestError> {
    if actual == expected.as_str() {
        Ok(())
    } else {
        Err(RequestError::fatal(format!("Digest did not match, expected {expected}, got {actual}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delay_grows_and_is_randomized() {
        let seconds = Duration::from_secs;
        for (failures, asked, random, expected) in [
            (1, None, 0.0, seconds(2)),
            (1, None, 1.0, seconds(1)),
            (3, None, 0.0, seconds(8)),
            (40, None, 0.0, MAX_DELAY),
            (1, Some(seconds(10)), 0.0, seconds(10)),
            (1, Some(seconds(10)), 1.0, seconds(11)),
            (1, Some(seconds(4711)), 1.0, MAX_DELAY),
            (1, Some(seconds(0)), 1.0, seconds(0)),
        ] {
            assert_eq!(delay(seconds(2), failures, asked, random), expected, "{failures} {asked:?} {random}");
        }
        assert!((0..100).map(|_| random()).all(|number| (0.0..=1.0).contains(&number)));
    }

    #[test]
    fn content_range_start_is_parsed() {
        for (value, expected) in
            [("bytes 5-9/10", Some(5)), ("bytes 0-0/*", Some(0)), ("bytes */10", None), ("items 1-2/3", None)]
        {
            let headers = HeaderMap::from_iter([(CONTENT_RANGE, value.parse().unwrap())]);
            assert_eq!(range_start(&headers), expected, "{value}");
        }
    }
}
