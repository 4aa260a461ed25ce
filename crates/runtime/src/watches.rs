//! Watches of a cluster whose resourceVersions go back, as after a restore of etcd
//! (docs/design/apply.md#restored-cluster).
//!
//! The API server accepts a watch from a version that it has not reached, and sends nothing up to it. So the start of a
//! watch after an outage is compared with a list, and an event or bookmark with those before. A version below an earlier
//! one ends the watch like an expired one, and the watcher lists anew.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http::header::ACCEPT;
use http::{Request, Response, Uri};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::{Body, DynBody};
use kube::runtime::watcher;
use kube::{Api, Resource};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};
use tower::util::BoxCloneService;
use tower::{BoxError, ServiceExt, service_fn};

use crate::cluster::{CALL_DEADLINE, Calls};
use crate::listing;

/// Maximum length of an event or list that is checked. Objects have at most 1.5 MiB.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Time after an outage of the API server in which the start of a watch is checked. Watchers retry more often.
const SUSPICIOUS: Duration = Duration::from_secs(300);
/// Event that makes a watcher list anew.
const EXPIRED: &[u8] = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"resourceVersions went back, as after a restore of etcd","reason":"Expired","code":410}}
"#;

/// Time of the last request that failed without a verdict of the API server.
type Outage = Arc<Mutex<Option<Instant>>>;

/// Ends watches where resourceVersions go back.
pub(crate) fn checked(service: Calls) -> Calls {
    let outage = Outage::default();
    BoxCloneService::new(service_fn(move |request: Request<Body>| {
        let (service, outage) = (service.clone(), Arc::clone(&outage));
        async move {
            let from = requested_version(request.uri());
            let is_suspicious = outage.lock().is_some_and(|at| at.elapsed() < SUSPICIOUS);
            if let Some(version) = from.filter(|_| is_suspicious)
                && let Some(current) = current_version(service.clone(), request.uri()).await
                && current < version
            {
                let body = Full::new(Bytes::from_static(EXPIRED)).map_err(|never| match never {});
                let body: Box<DynBody> = Box::new(body);
                return Ok(Response::new(body));
            }
            let answer = service.oneshot(request).await;
            if answer.as_ref().map_or(true, |answer| answer.status().is_server_error()) {
                *outage.lock() = Some(Instant::now());
            }
            answer.map(|answer| answer.map(|body| until_versions_go_back(from, body, outage)))
        }
    }))
}

/// Events of all objects of a kind. After each failure of the watch it lists anew: the cluster may have been restored, and
/// a cache can tell from the list when it is synced again.
pub fn relisting<K>(api: Api<K>) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let start = move || watcher::watcher(api.clone(), listing::config()).boxed();
    stream::unfold((start(), start), |(mut events, start)| async move {
        let event = events.next().await?;
        if event.is_err() {
            events = start();
        }
        Some((event, (events, start)))
    })
}

/// Version of the list whose changes this address watches. `None` if it cannot be read.
async fn current_version(service: Calls, watch: &Uri) -> Option<u64> {
    let list = Request::get(format!("{}?limit=1", watch.path()))
        .header(ACCEPT, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
        .body(Body::empty())
        .ok()?;
    let answer = async {
        let (mut body, mut read) = (service.oneshot(list).await.ok()?.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            read.extend_from_slice(frame.ok()?.data_ref()?);
            if read.len() > MAX_BYTES {
                return None;
            }
        }
        Some(read)
    };
    let answer = timeout(CALL_DEADLINE, answer).await.ok()??;
    let list: Object = serde_json::from_slice(&answer).ok()?;
    list.metadata.resource_version?.parse().ok()
}

/// The answer to a request, ended where versions go back if it is a watch from a version.
fn until_versions_go_back(from: Option<u64>, body: Box<DynBody>, outage: Outage) -> Box<DynBody> {
    let Some(reached) = from else { return body };
    let watch = Watch { body, reached, pending: BytesMut::new(), is_over: false, outage };
    let frames = stream::unfold(watch, |mut watch| async move { Some((watch.frame().await?, watch)) });
    Box::new(StreamBody::new(frames.boxed()))
}

/// Version from which a watch reports changes. `None` if the request is another one, or reports all objects first.
fn requested_version(address: &Uri) -> Option<u64> {
    let is = |wanted: &str| address.query().is_some_and(|query| query.split('&').any(|part| part == wanted));
    let version = address.query()?.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
    let version = version?.parse().ok().filter(|version| *version > 0)?;
    (is("watch=true") && !is("sendInitialEvents=true")).then_some(version)
}

/// Body of a watch.
struct Watch {
    body: Box<DynBody>,
    /// Highest version so far.
    reached: u64,
    /// Incomplete line.
    pending: BytesMut,
    is_over: bool,
    outage: Outage,
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
            let Some(frame) = self.body.frame().await else {
                self.is_over = true;
                let rest = self.pending.split().freeze();
                return (!rest.is_empty()).then_some(Ok(Frame::data(rest)));
            };
            let data = match frame.map(Frame::into_data) {
                Ok(Ok(data)) => data,
                Ok(Err(trailers)) => return Some(Ok(trailers)),
                Err(error) => {
                    *self.outage.lock() = Some(Instant::now());
                    return Some(Err(error));
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
