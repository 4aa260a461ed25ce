//! The connection to the API server: client construction, and a deadline around each call.

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{Stream, TryStreamExt};
use http::{Request, Response};
use kube::api::{ListParams, ObjectList};
use kube::client::ClientBuilder;
use kube::client::retry::RetryPolicy;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use kube::{Client, Config};
use tokio_util::sync::CancellationToken;
use tower::buffer::BufferLayer;
use tower::retry::RetryLayer;
use tower::{Layer, Service};

use crate::api_warnings;
use crate::metrics::Metrics;

/// Longest wait for one answer of the API server. Watches are not calls: they have their own idle guard.
pub const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// Calls that wait for a connection at most.
const WAITING_CALLS: usize = 1024;
/// How often the client itself makes a call again that was answered with 429, 503 or 504. More would hide that answer
/// behind [`CALL_DEADLINE`]; the caller tries again anyway, and says why.
const RETRIES: u32 = 3;
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(2);

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// `--kubeconfig` names a file that cannot be used.
    #[error("kubeconfig {path}: {source}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// The cause.
        source: kube::config::KubeconfigError,
    },
    /// Neither `KUBECONFIG`, nor a pod's service account, nor `$HOME/.kube/config` gives a cluster.
    #[error("no cluster configuration: {0}")]
    Infer(#[from] kube::config::InferConfigError),
    /// The configuration does not make a client.
    #[error("cluster client: {0}")]
    Client(#[from] kube::Error),
    /// The times between two attempts contradict each other.
    #[error("cluster client: {0}")]
    Retry(#[from] kube::client::retry::InvalidBackoff),
}

/// Reads the cluster configuration: `kubeconfig` if given, else as `kubectl` and pods do.
///
/// # Errors
/// Names the file or the environment that does not give a cluster.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let named = |source| ConnectError::Kubeconfig { path: path.display().to_string(), source };
            let file = Kubeconfig::read_from(path).map_err(named)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(named)?
        }
        None => Config::infer().await?,
    };
    config.connect_timeout = Some(Duration::from_secs(10));
    Ok(config)
}

/// A client for general use, which makes a call a few times again where the API server asks for that, and not before
/// the time that it names. Its requests are counted. Must be called within a Tokio runtime.
///
/// # Errors
/// A configuration that does not make a client.
pub fn client(config: &Config, metrics: &Arc<Metrics>) -> Result<Client, ConnectError> {
    let policy = RetryPolicy::new(FIRST_RETRY, LONGEST_RETRY, RETRIES, true)?;
    let (config, count) = counted(config, metrics);
    let counting = ClientBuilder::try_from(config)?.with_layer(&count);
    // What is tried again has to be cloned, and only a buffered service can be.
    Ok(counting.with_layer(&BufferLayer::new(WAITING_CALLS)).with_layer(&RetryLayer::new(policy)).build())
}

/// A client that never retries by itself: a lease renewal must not outlive its deadline inside a retry.
///
/// # Errors
/// A configuration that does not make a client.
pub fn client_without_retry(config: &Config, metrics: &Arc<Metrics>) -> Result<Client, ConnectError> {
    let (config, count) = counted(config, metrics);
    Ok(ClientBuilder::try_from(config)?.with_layer(&count).build())
}

/// The configuration without retries of the client library, and what counts the requests of its client.
fn counted(config: &Config, metrics: &Arc<Metrics>) -> (Config, CountRequests) {
    let mut config = config.clone();
    config.default_retry = false;
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    (config, CountRequests { metrics: Arc::clone(metrics), host: host.into() })
}

/// Counts requests to the API server by code, method and host.
#[derive(Clone)]
struct CountRequests {
    metrics: Arc<Metrics>,
    host: Arc<str>,
}

impl<S> Layer<S> for CountRequests {
    type Service = Counted<S>;

    fn layer(&self, service: S) -> Counted<S> {
        Counted { service, count: self.clone() }
    }
}

/// A service whose requests are counted.
struct Counted<S> {
    service: S,
    count: CountRequests,
}

impl<S, B, C> Service<Request<B>> for Counted<S>
where
    S: Service<Request<B>, Response = Response<C>>,
    S::Future: Send + 'static,
{
    type Response = Response<C>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<C>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (count, method) = (self.count.clone(), request.method().to_string());
        let is_write = !request.method().is_safe();
        let answer = self.service.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code =
                answer.as_ref().map_or_else(|_| "<error>".to_owned(), |ok| ok.status().as_str().to_owned());
            count.metrics.api_request(code, method, &count.host);
            if let (true, Ok(answer)) = (is_write, &answer) {
                api_warnings::hear(answer.headers());
            }
            answer
        })
    }
}

/// Passes the events of a watch on, and cancels `listed` once everything that existed was among them.
///
/// Not [`kube::runtime::reflector::Store::wait_until_ready`]: of several waiters it wakes one only, and the
/// controller on the store is one of them.
pub fn announce_listed<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    listed: CancellationToken,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> {
    events.inspect_ok(move |event| {
        if let watcher::Event::InitDone = event {
            listed.cancel();
        }
    })
}

/// Resolves when `stop` comes before `listed`, never otherwise; for `take_until` on what a controller yields.
///
/// A controller of kube 5.0 begins to work when its store is filled. One that is stopped before watches no longer, so
/// that the store is never filled, and would never end.
pub async fn stopped_unlisted(stop: CancellationToken, listed: CancellationToken) {
    stop.cancelled().await;
    if listed.is_cancelled() {
        std::future::pending().await
    }
}

/// The error for people and conditions: the API server's own words, else the error with its causes, each once.
/// Equal failures give equal texts.
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => with_causes(other),
    }
}

/// An error with its causes, each once: `outer: inner`.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// Waits for one API call, at most [`CALL_DEADLINE`].
///
/// # Errors
/// The call's own error, or a timeout as [`kube::Error::Service`].
pub async fn within_deadline<T>(
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    within(CALL_DEADLINE, call).await
}

/// All items of a list, asked for page by page.
///
/// # Errors
/// That of the first page that fails.
pub async fn list_all<K: Clone, E, F: Future<Output = Result<ObjectList<K>, E>>>(
    mut page: ListParams,
    list: impl Fn(ListParams) -> F,
) -> Result<Vec<K>, E> {
    let mut all = Vec::new();
    loop {
        let part = list(page.clone()).await?;
        all.extend(part.items);
        match part.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// Waits for one API call, at most `limit`.
///
/// # Errors
/// The call's own error, or a timeout as [`kube::Error::Service`].
pub async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
        let message = format!("the API server did not answer within {} s", limit.as_secs_f32());
        Err(kube::Error::Service(std::io::Error::new(std::io::ErrorKind::TimedOut, message).into()))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    use axum::Router;
    use axum::http::StatusCode;
    use k8s_openapi::api::core::v1::Namespace;
    use kube::Api;

    use super::*;

    #[tokio::test]
    async fn what_the_api_server_says_about_its_load_is_heard_after_a_few_attempts() {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let answer = async move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let status =
                r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too busy","code":429}"#;
            (StatusCode::TOO_MANY_REQUESTS, status)
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async { axum::serve(listener, Router::new().fallback(answer)).await });
        let config = Config::new(format!("http://{address}").parse().unwrap());
        let metrics = Arc::new(Metrics::new());

        let began = Instant::now();
        let namespaces: Api<Namespace> = Api::all(client(&config, &metrics).unwrap());
        let error = within_deadline(namespaces.get("default")).await.unwrap_err();
        assert_eq!(describe(&error), "too busy");
        assert_eq!(calls.swap(0, Ordering::Relaxed), 1 + RETRIES);
        assert!(began.elapsed() < CALL_DEADLINE / 3);

        let namespaces: Api<Namespace> = Api::all(client_without_retry(&config, &metrics).unwrap());
        assert_eq!(describe(&namespaces.get("default").await.unwrap_err()), "too busy");
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
