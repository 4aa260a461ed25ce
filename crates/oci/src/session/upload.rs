//! Requests of a push: existence, blobs, manifests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use parking_lot::Mutex;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use reqwest::{Body, Method, RequestBuilder, Url};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Session, check_digest};
use crate::Digest;
use crate::fetch::Hasher;
use crate::request_error::RequestError;
use crate::transfer::limited;

/// Longest time without progress of an upload. Registries store large blobs after their last byte.
const STALL: Duration = Duration::from_secs(300);

impl Session {
    /// Pushes a manifest under a tag or its digest.
    pub(crate) async fn push_manifest(
        &self,
        selector: &str,
        media_type: &str,
        manifest: &Bytes,
    ) -> Result<(), RequestError> {
        let url = self.manifest_url(selector);
        let complete =
            |request: RequestBuilder| request.header(CONTENT_TYPE, media_type).body(manifest.clone());
        self.retried(|| self.exchange(Method::PUT, &url, &complete)).await.map(drop)
    }

    /// Pushes a blob that `feed` sends to the given channel, again from its start after a failure. A digest that
    /// does not match ends the upload before its last chunk.
    pub(crate) async fn push_blob<F: Future<Output = Result<(), RequestError>>>(
        &self,
        digest: &Digest,
        size: u64,
        feed: impl Fn(mpsc::Sender<Bytes>) -> F,
    ) -> Result<(), RequestError> {
        self.retried(|| async {
            let (sink, chunks) = mpsc::channel(crate::fetch::QUEUE);
            let (fed, sent) = tokio::join!(feed(sink), self.upload(digest, size, chunks));
            // Further attempts to read are those of `feed`.
            fed.map_err(RequestError::without_retry)?;
            sent
        })
        .await
    }

    async fn upload(
        &self,
        digest: &Digest,
        size: u64,
        chunks: mpsc::Receiver<Bytes>,
    ) -> Result<(), RequestError> {
        let start = format!("{}/v2/{}/blobs/uploads/", self.base, self.path);
        let empty = |request: RequestBuilder| request.header(CONTENT_LENGTH, 0);
        let response = limited(self.exchange(Method::POST, &start, &empty)).await?;
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let location = location.and_then(|location| response.url().join(location).ok());
        let mut url: Url =
            location.ok_or_else(|| RequestError::fatal("the registry returned no address for the upload"))?;
        url.query_pairs_mut().append_pair("digest", digest.as_str());
        let state = Arc::new(State::default());
        let content = Content { chunks, hasher: Hasher::new(digest), left: size, state: Arc::clone(&state) };
        let body = Mutex::new(Some(content.body(digest.clone())));
        let complete = |request: RequestBuilder| {
            let request =
                request.header(CONTENT_TYPE, "application/octet-stream").header(CONTENT_LENGTH, size);
            // The body of a stream can be taken once.
            match body.lock().take() {
                Some(body) => request.body(body),
                None => request,
            }
        };
        let sent = unless_stalled(self.exchange_once(Method::PUT, url.as_str(), &complete), &state).await;
        match state.fault.lock().take() {
            Some(fault) => Err(RequestError::fatal(fault)),
            None => sent.map(drop),
        }
    }
}

/// Progress and fault of an upload.
#[derive(Default)]
struct State {
    chunks: AtomicU64,
    fault: Mutex<Option<String>>,
}

/// Content of a blob on its way.
struct Content {
    chunks: mpsc::Receiver<Bytes>,
    hasher: Hasher,
    /// Bytes that are still missing.
    left: u64,
    state: Arc<State>,
}

impl Content {
    fn body(self, digest: Digest) -> Body {
        Body::wrap_stream(stream::unfold((self, digest), |(mut content, digest)| async move {
            let next = content.next(&digest).await?;
            let next = next.map_err(|fault| {
                *content.state.fault.lock() = Some(fault.clone());
                std::io::Error::other(fault)
            });
            Some((next, (content, digest)))
        }))
    }

    /// Next chunk. The last one only if the digest matches.
    async fn next(&mut self, digest: &Digest) -> Option<Result<Bytes, String>> {
        if self.left == 0 {
            return None;
        }
        let Some(chunk) = self.chunks.recv().await else {
            return Some(Err("the blob is not complete".to_owned()));
        };
        self.state.chunks.fetch_add(1, Ordering::Relaxed);
        self.hasher.update(&chunk);
        let Some(left) = self.left.checked_sub(chunk.len() as u64) else {
            return Some(Err("the blob is longer than its descriptor states".to_owned()));
        };
        self.left = left;
        if left == 0 {
            let actual = std::mem::replace(&mut self.hasher, Hasher::new(digest)).finish();
            if let Err(error) = check_digest(digest, &actual) {
                return Some(Err(error.to_string()));
            }
        }
        Some(Ok(chunk))
    }
}

/// Output of `work`, unless nothing is counted for [`STALL`].
async fn unless_stalled<T>(
    work: impl Future<Output = Result<T, RequestError>>,
    state: &State,
) -> Result<T, RequestError> {
    let mut work = std::pin::pin!(work);
    loop {
        let before = state.chunks.load(Ordering::Relaxed);
        match timeout(STALL, &mut work).await {
            Ok(done) => return done,
            Err(_) if state.chunks.load(Ordering::Relaxed) > before => {}
            Err(_) => {
                let text = format!("the upload made no progress for {} s", STALL.as_secs());
                return Err(RequestError::transient(text));
            }
        }
    }
}
