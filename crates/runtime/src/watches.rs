//! Watches of a cluster whose resourceVersions go back, as after a restore of etcd
//! (docs/design/apply.md#restored-cluster).
//!
//! The API server accepts a watch from a version that it has not reached, and sends nothing up to it. It may also have
//! passed that version again, with other objects. So a watch lists anew after a failure. One that ends before its time, or
//! has an event or bookmark with a version below an earlier one, fails like an expired one.

use std::fmt::Debug;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http::{Request, Uri};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kube::client::{Body, DynBody};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};
use tower::util::BoxCloneService;
use tower::{BoxError, ServiceExt, service_fn};

use crate::cluster::Calls;

/// Maximum length of an event that is checked. Objects have at most 1.5 MiB.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Shortest interval of the lists of a kind, if its watch fails after each of them.
const LIST_INTERVAL: Duration = Duration::from_secs(5);
/// Difference of the durations of a watch in which the API server and we time it.
const TOLERANCE: Duration = Duration::from_secs(5);
/// Event that makes a watcher list anew.
const EXPIRED: &[u8] = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the watch ended early or its resourceVersions went back, as after a restore of etcd","reason":"Expired","code":410}}
"#;

/// Ends watches where resourceVersions go back, and those that end early, like expired ones.
pub(crate) fn checked(service: Calls) -> Calls {
    BoxCloneService::new(service_fn(move |request: Request<Body>| {
        let (service, from) = (service.clone(), Start::of(request.uri()));
        async move {
            let answer = service.oneshot(request).await?;
            let from = from.filter(|_| answer.status().is_success());
            Ok(answer.map(|body| until_versions_go_back(from, body)))
        }
    }))
}

/// Events of the objects of a kind, with a pause after each failure. After an [interruption](is_interruption) it lists
/// anew.
pub fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let start = move || (watcher::watcher(api.clone(), config.clone()).boxed(), Instant::now());
    let events =
        stream::unfold((start(), false, start), |((mut events, mut since), is_over, start)| async move {
            if is_over {
                sleep_until(since + LIST_INTERVAL).await;
                (events, since) = start();
            }
            let event = events.next().await?;
            // A list that failed is repeated anyway.
            let lists = matches!(event, Err(watcher::Error::InitialListFailed(_)));
            let is_over = !lists && event.as_ref().is_err_and(is_interruption);
            Some((event, ((events, since), is_over, start)))
        });
    events.default_backoff()
}

/// Reports whether changes can be missing until the next list: after any failure of a watch, except for a verdict of
/// the API server on the request.
pub fn is_interruption(failure: &watcher::Error) -> bool {
    let code = status_code(failure);
    !(400..500).contains(&code) || code == 410
}

/// Status code of the API server's answer. 0 without one.
pub fn status_code(failure: &watcher::Error) -> u16 {
    match failure {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.code,
        _ => 0,
    }
}

/// The answer to a request, ended where versions go back if it is a watch from a version.
fn until_versions_go_back(from: Option<Start>, body: Box<DynBody>) -> Box<DynBody> {
    let Some(Start { version: reached, end }) = from else { return body };
    let watch = Watch { body, reached, end, pending: BytesMut::new(), is_over: false };
    let frames = stream::unfold(watch, |mut watch| async move { Some((watch.frame().await?, watch)) });
    Box::new(StreamBody::new(frames.boxed()))
}

/// Start of a watch.
struct Start {
    /// Version from which it reports changes.
    version: u64,
    /// Earliest time at which the API server ends it.
    end: Instant,
}

impl Start {
    /// `None` if the request is another one, or reports all objects first.
    fn of(address: &Uri) -> Option<Self> {
        let parameter = |name: &str| address.query()?.split('&').find_map(|part| part.strip_prefix(name));
        let number = |name: &str| parameter(name).and_then(|number| number.parse::<u64>().ok());
        let version = number("resourceVersion=").filter(|version| *version > 0)?;
        let duration = Duration::from_secs(number("timeoutSeconds=").unwrap_or_default());
        let is_watch = parameter("watch=") == Some("true") && parameter("sendInitialEvents=") != Some("true");
        is_watch.then(|| Self { version, end: Instant::now() + duration.saturating_sub(TOLERANCE) })
    }
}

/// Body of a watch.
struct Watch {
    body: Box<DynBody>,
    /// Highest version so far.
    reached: u64,
    /// [`Start::end`].
    end: Instant,
    /// Incomplete line.
    pending: BytesMut,
    is_over: bool,
}

#[derive(Deserialize)]
struct Event {
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: Option<String>,
}

impl Watch {
    /// The lines before the first one whose version is lower than an earlier one, and then [`EXPIRED`].
    fn checked(&mut self, lines: Bytes) -> Bytes {
        let mut start = 0;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let version = serde_json::from_slice::<Event>(line).ok();
            let version = version.and_then(|event| event.object.metadata.resource_version?.parse().ok());
            if version.is_some_and(|version: u64| version < self.reached) {
                self.is_over = true;
                return [&lines[..start], EXPIRED].concat().into();
            }
            self.reached = self.reached.max(version.unwrap_or_default());
            start += line.len();
        }
        lines
    }

    /// Next part of the body: whole lines, unless one is too long. `None` at the end.
    async fn frame(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        while !self.is_over {
            let data = match self.body.frame().await.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => data,
                Some(Ok(Err(trailers))) => return Some(Ok(trailers)),
                _ if Instant::now() < self.end => {
                    self.is_over = true;
                    return Some(Ok(Frame::data(Bytes::from_static(EXPIRED))));
                }
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    self.is_over = true;
                    let rest = self.pending.split().freeze();
                    return (!rest.is_empty()).then_some(Ok(Frame::data(rest)));
                }
            };
            self.pending.extend_from_slice(&data);
            let lines = match self.pending.iter().rposition(|byte| *byte == b'\n') {
                Some(end) => self.pending.split_to(end + 1),
                None if self.pending.len() > MAX_BYTES => self.pending.split(),
                None => continue,
            };
            return Some(Ok(Frame::data(self.checked(lines.freeze()))));
        }
        None
    }
}

#[cfg(test)]
#[path = "watches_tests.rs"]
mod tests;
