//! The connection to the API server: clients, and a deadline for each call.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use http::{Request, Response};
use kube::api::{ListParams, ObjectList};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, DynBody};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use kube::{Client, Config};
use olm_api::text::with_causes;
use tokio_util::sync::CancellationToken;
use tower::buffer::BufferLayer;
use tower::layer::layer_fn;
use tower::retry::RetryLayer;
use tower::util::BoxCloneService;
use tower::{BoxError, Service, ServiceExt, service_fn};

use crate::api_warnings;
use crate::metrics::Metrics;
use crate::watches::checked;

/// Deadline of an API call. Above that of the API server, 34 s, within which admission webhooks may hang for 30 s. Watches
/// are not calls: they have an idle timeout of their own.
pub const CALL_DEADLINE: Duration = Duration::from_secs(40);

/// Maximum number of calls that wait for a connection.
const WAITING_CALLS: usize = 1024;
/// Retries of the client after status 429, 503 or 504. More would hide that answer behind [`CALL_DEADLINE`]. The
/// caller retries anyway, and reports the error.
const RETRIES: u32 = 3;
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(2);

/// Error of creating a client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file of `--kubeconfig` cannot be used.
    #[error("kubeconfig {path}: {source}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// The cause.
        source: kube::config::KubeconfigError,
    },
    /// Neither `KUBECONFIG`, nor a pod's service account, nor `$HOME/.kube/config` configures a cluster.
    #[error("no cluster configuration: {0}")]
    Infer(#[from] kube::config::InferConfigError),
    /// The configuration is invalid for a client.
    #[error("cluster client: {0}")]
    Client(#[from] kube::Error),
    /// The retry delays contradict each other.
    #[error("cluster client: {0}")]
    Retry(#[from] kube::client::retry::InvalidBackoff),
}

/// Reads the cluster configuration: `kubeconfig` if given, else as `kubectl` and pods do.
///
/// # Errors
/// The file or the environment does not configure a cluster.
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

/// Creates a client that retries a few times on 429, 503 and 504, and honors `Retry-After`. Counts its requests in
/// `metrics`. Must be called within a Tokio runtime.
///
/// # Errors
/// The configuration is invalid for a client.
pub fn client(config: &Config, metrics: &Arc<Metrics>) -> Result<Client, ConnectError> {
    let policy = RetryPolicy::new(FIRST_RETRY, LONGEST_RETRY, RETRIES, true)?;
    Ok(counted(config, metrics)?.with_layer(&RetryLayer::new(policy)).build())
}

/// Creates a client without retries: a lease renewal must not outlive its deadline inside a retry.
///
/// # Errors
/// The configuration is invalid for a client.
pub fn client_without_retry(config: &Config, metrics: &Arc<Metrics>) -> Result<Client, ConnectError> {
    Ok(counted(config, metrics)?.build())
}

pub(crate) type Calls = BoxCloneService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// A client under construction that counts its requests, ends watches of a restored cluster, and has no retries of the
/// client library.
fn counted(config: &Config, metrics: &Arc<Metrics>) -> Result<ClientBuilder<Calls>, ConnectError> {
    let mut config = config.clone();
    config.default_retry = false;
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let (metrics, host) = (Arc::clone(metrics), Arc::from(host));
    let count = layer_fn(move |service| counting(service, Arc::clone(&metrics), Arc::clone(&host)));
    // Only a buffered service can be cloned for each request.
    let builder = ClientBuilder::try_from(config)?.with_layer(&BufferLayer::new(WAITING_CALLS));
    Ok(builder.with_layer(&count).with_layer(&layer_fn(checked)))
}

/// Counts requests by code, method and host, and collects the warnings about writes.
fn counting<S>(service: S, metrics: Arc<Metrics>, host: Arc<str>) -> Calls
where
    S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError, Future: Send>,
    S: Clone + Send + 'static,
{
    BoxCloneService::new(service_fn(move |request: Request<Body>| {
        let (service, metrics, host) = (service.clone(), Arc::clone(&metrics), Arc::clone(&host));
        async move {
            let (method, is_write) = (request.method().to_string(), !request.method().is_safe());
            let answer = service.oneshot(request).await;
            let code =
                answer.as_ref().map_or_else(|_| "<error>".to_owned(), |ok| ok.status().as_str().to_owned());
            metrics.api_request(code, method, &host);
            if let (true, Ok(answer)) = (is_write, &answer) {
                api_warnings::record(answer.headers());
            }
            answer
        }
    }))
}

/// Forwards the events of a watch, and cancels `listed` after the initial list. The objects of each list follow when it is
/// complete: until then a store has the former objects, and a controller that is triggered earlier would read those.
///
/// Replaces [`kube::runtime::reflector::Store::wait_until_ready`], which wakes only one of several waiters. The
/// controller on the store is one of them.
pub fn announce_listed<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    listed: CancellationToken,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> {
    let mut held = Vec::new();
    events.flat_map(move |event| {
        match event {
            Ok(watcher::Event::InitApply(_)) => {
                held.push(event);
                return stream::iter(Vec::new());
            }
            Ok(watcher::Event::InitDone) => listed.cancel(),
            // The objects of a list that failed.
            Ok(watcher::Event::Init) => held.clear(),
            _ => return stream::iter(vec![event]),
        }
        held.push(event);
        stream::iter(std::mem::take(&mut held))
    })
}

/// Completes if `stop` is cancelled before `listed`, and never otherwise. For `take_until` on the stream of a
/// controller.
///
/// A controller of kube 5.0 starts when its store is filled. If it is stopped before, it no longer watches, so that
/// the store is never filled and the controller never ends.
pub async fn stopped_unlisted(stop: CancellationToken, listed: CancellationToken) {
    stop.cancelled().await;
    if listed.is_cancelled() {
        std::future::pending().await
    }
}

/// The error text for conditions: the message of the API server, else the error with its causes, each once. Equal
/// failures give equal texts.
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => with_causes(other),
    }
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

/// Maps 404 to `None`, also that of a kind that is not served. A 403 remains an error: the object may exist.
///
/// # Errors
/// The error of `answer`, unless it is a 404.
pub fn present<T>(answer: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        answer => answer.map(Some),
    }
}

/// All items of a paginated list.
///
/// # Errors
/// The error of the first page that fails.
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
    use futures::FutureExt;
    use k8s_openapi::api::core::v1::Namespace;
    use kube::Api;

    use super::*;

    #[tokio::test]
    async fn objects_of_a_list_follow_when_it_is_complete() {
        use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
        let (listed, failed) = (CancellationToken::new(), || watcher::Error::NoResourceVersion);
        let (events, received) = tokio::sync::mpsc::unbounded_channel();
        let received =
            stream::unfold(received, async |mut received: tokio::sync::mpsc::UnboundedReceiver<_>| {
                Some((received.recv().await?, received))
            });
        let mut announced = std::pin::pin!(announce_listed(received, listed.clone()));
        let mut seen = || {
            let mut seen = Vec::new();
            while let Some(Some(event)) = announced.next().now_or_never() {
                seen.push(event.map_or_else(|_| "failed".to_owned(), |event| format!("{event:?}")));
            }
            seen.join(" ")
        };
        let send = |sent: Vec<watcher::Result<watcher::Event<u8>>>| {
            sent.into_iter().for_each(|event| events.send(event).unwrap());
        };
        send(vec![Ok(Init), Ok(InitApply(1)), Err(failed()), Ok(Init), Ok(InitApply(2)), Ok(InitApply(3))]);
        assert_eq!(seen(), "Init failed Init");
        assert!(!listed.is_cancelled());
        send(vec![Ok(InitDone), Ok(Apply(4)), Ok(Delete(5))]);
        assert_eq!(seen(), "InitApply(2) InitApply(3) InitDone Apply(4) Delete(5)");
        assert!(listed.is_cancelled());
    }

    /// A forbidden object may exist: an OpenShift without rights for us is not plain Kubernetes.
    #[test]
    fn only_not_found_counts_as_absent() {
        let refused = |reason: &str, code| -> Result<(), kube::Error> {
            let status = kube::core::Status::failure("m", reason).with_code(code);
            Err(kube::Error::Api(Box::new(status)))
        };
        assert!(present(Ok(())).unwrap().is_some());
        assert!(present(refused("NotFound", 404)).unwrap().is_none());
        assert!(present(refused("Failed to parse error data", 404)).unwrap().is_none(), "kind not served");
        for (reason, code) in [("Forbidden", 403), ("Unauthorized", 401), ("ServiceUnavailable", 503)] {
            assert!(present(refused(reason, code)).is_err(), "{reason}");
        }
    }

    #[tokio::test]
    async fn overload_answer_of_api_server_is_returned_after_retries() {
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
