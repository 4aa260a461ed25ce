//! Proxy between operator-controller and the API server that records calls and injects faults.
//!
//! operator-controller connects with plain HTTP, so that the proxy sees all bytes.

mod fault;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::config::Kubeconfig;
use tokio::net::TcpListener;
use tokio::sync::{Notify, broadcast};
use tokio::task::JoinHandle;

pub use fault::{Answer, Call, Fault, Rule, When};

/// Maximum size of a request body.
const MAX_BODY: usize = 64 << 20;
/// Maximum number of objects that a call may list: any user of a namespace can create many objects of 1.5 MB.
const MOST_LISTED: u32 = 20;
/// User as which operator-controller calls the API server, so that admission policies can tell it from the test. It is an
/// administrator, too.
pub const PROCESS_USER: &str = "operator-controller";
/// Group of administrators.
pub const ADMINISTRATORS: &str = "system:masters";
const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");
/// Poll interval for calls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Running proxy.
pub struct Proxy {
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// Identifies an added rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(usize);

struct Shared {
    upstream: String,
    client: reqwest::Client,
    state: Mutex<State>,
    ends: broadcast::Sender<WatchEnd>,
    /// Notified when a rule is removed.
    removed: Notify,
}

/// Fault that applies to a call.
struct AppliedFault {
    fault: Fault,
    when: When,
    rule: usize,
}

#[derive(Default)]
struct State {
    allows_long_lists: bool,
    count: u64,
    calls: Vec<Call>,
    /// Lines of the calls that the API server has refused with 403.
    forbidden: Vec<String>,
    /// All rules ever added. `None` after removal.
    rules: Vec<Option<Rule>>,
    process: Option<u32>,
}

/// Kind of end of the open watches.
#[derive(Clone, Copy)]
enum WatchEnd {
    Broken,
    Expired,
}

/// Error of a connection that ends without a response.
#[derive(Debug)]
struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the connection is cut")
    }
}

impl std::error::Error for Cut {}

impl Proxy {
    /// Starts a proxy for the cluster of `kubeconfig`, and writes the kubeconfig of its clients into the same folder.
    ///
    /// # Errors
    /// The kubeconfig names no server, or no port is free.
    pub async fn start(kubeconfig: &Path) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let mut config = Kubeconfig::read_from(kubeconfig)?;
        let cluster = config.clusters.first_mut().and_then(|named| named.cluster.as_mut());
        let cluster = cluster.context("the kubeconfig has no clusters")?;
        let upstream = cluster.server.clone().context("the cluster has no server")?;
        let authority = cluster.certificate_authority.take().context("the cluster has no CA file")?;
        let certificate = reqwest::Certificate::from_pem(&std::fs::read(authority)?)?;
        let client =
            reqwest::Client::builder().no_proxy().tls_certs_only([certificate]).build().context("client")?;
        let address = listener.local_addr()?;
        cluster.server = Some(format!("http://{address}"));
        let written = kubeconfig.with_file_name(format!("kubeconfig-of-proxy-{}", address.port()));
        std::fs::write(&written, serde_json::to_vec(&config)?)?;
        let state = Mutex::default();
        let (ends, removed) = (broadcast::Sender::new(64), Notify::new());
        let shared = Arc::new(Shared { upstream, client, state, ends, removed });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { kubeconfig: written, shared, accepting })
    }

    /// Kubeconfig with which clients reach the API server through the proxy.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Permits lists of more than 20 objects, for clients that users run.
    pub fn allow_long_lists(&self) {
        self.shared.state().allows_long_lists = true;
    }

    /// Sets the process that [`Fault::Kill`] kills.
    pub fn set_process(&self, pid: u32) {
        self.shared.state().process = Some(pid);
    }

    /// Adds a rule. If several rules apply to a call, the oldest one is used.
    pub fn add(&self, rule: Rule) -> RuleId {
        let rules = &mut self.shared.state().rules;
        rules.push(Some(rule));
        RuleId(rules.len() - 1)
    }

    /// Removes a rule and returns the number of its hits. The connections of calls that hang because of it break.
    pub fn remove(&self, id: RuleId) -> usize {
        let rule = self.shared.state().rules.get_mut(id.0).and_then(Option::take);
        self.shared.removed.notify_waiters();
        rule.map_or(0, |rule| rule.hits)
    }

    /// Number of calls to which a rule has applied.
    #[must_use]
    pub fn hits(&self, id: RuleId) -> usize {
        self.shared.state().rules.get(id.0).and_then(Option::as_ref).map_or(0, |rule| rule.hits)
    }

    /// Waits until a rule has applied `count` times.
    ///
    /// # Errors
    /// It has not within `patience`.
    pub async fn wait_for_hits(&self, id: RuleId, count: usize, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while self.hits(id) < count {
            ensure!(Instant::now() < deadline, "the fault occurred {} of {count} times", self.hits(id));
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Removes all rules, like [`Proxy::remove`].
    pub fn clear(&self) {
        self.shared.state().rules.iter_mut().for_each(|rule| *rule = None);
        self.shared.removed.notify_waiters();
    }

    /// Breaks the connections of all open watches.
    pub fn break_watches(&self) {
        // Fails if no watch is open.
        let _ = self.shared.ends.send(WatchEnd::Broken);
    }

    /// Ends all open watches with an ERROR event of code 410 (expired).
    pub fn expire_watches(&self) {
        // Fails if no watch is open.
        let _ = self.shared.ends.send(WatchEnd::Expired);
    }

    /// Number of calls since the start.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.shared.state().count
    }

    /// Recorded calls with a number above `after`.
    #[must_use]
    pub fn calls(&self, after: u64) -> Vec<Call> {
        self.shared.state().calls.iter().filter(|call| call.number > after).cloned().collect()
    }

    /// Time of the last call that mentions `text`.
    #[must_use]
    pub fn last_about(&self, text: &str) -> Option<Instant> {
        self.shared.state().calls.iter().rev().find(|call| call.mentions(text)).map(|call| call.at)
    }

    /// Discards the recorded calls. The sequence numbers continue.
    pub fn forget(&self) {
        self.shared.state().calls.clear();
    }

    /// Mutations during a window of this length, which begins now.
    pub async fn mutations_within(&self, window: Duration) -> Vec<Call> {
        let before = self.count();
        tokio::time::sleep(window).await;
        self.calls(before).into_iter().filter(Call::is_mutation).collect()
    }

    /// Calls that the API server has refused with 403, since the start.
    #[must_use]
    pub fn forbidden(&self) -> Vec<String> {
        self.shared.state().forbidden.clone()
    }

    /// Waits until there has been no mutation for `window`.
    ///
    /// # Errors
    /// There is no such period within `patience`. Contains the last calls.
    pub async fn wait_until_quiet(&self, window: Duration, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        let mut from = Instant::now();
        loop {
            let last = self.shared.state().calls.iter().rev().find(|call| call.is_mutation()).cloned();
            from = from.max(last.map_or(from, |call| call.at));
            if from.elapsed() >= window {
                return Ok(());
            }
            if Instant::now() > deadline {
                let writes = self.calls(0).into_iter().filter(Call::is_mutation);
                let lines: Vec<String> = writes.map(|call| call.line()).collect();
                let last = lines.get(lines.len().saturating_sub(10)..).unwrap_or_default().join("\n");
                anyhow::bail!("no {window:?} without a write within {patience:?}; last writes:\n{last}");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(move |request| Arc::clone(&shared).answer(request));
            // Fails if the client or a fault has ended the connection.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Cut> {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(Body::new(body), MAX_BODY).await.map_err(|_| Cut)?;
        let (call, applied) = self.record(&parts, body);
        if !self.state().allows_long_lists && call.lists_more_than(MOST_LISTED) {
            let message = format!("{}: a list of a server needs a limit", call.line());
            return Answer::bad_request(&message).response().map_err(|_| Cut);
        }
        let Some(AppliedFault { fault, when, rule }) = applied else {
            return self.forward(&call, parts.headers).await;
        };
        if let Fault::Delay(time) = fault {
            tokio::time::sleep(time).await;
            return self.forward(&call, parts.headers).await;
        }
        if when == When::After {
            // The call takes effect even if the client has disconnected.
            let (shared, call, headers) = (Arc::clone(&self), call.clone(), parts.headers);
            let forwarded = tokio::spawn(async move { shared.forward(&call, headers).await });
            forwarded.await.map_err(|_| Cut)??;
        }
        match fault {
            Fault::Answer(answer) => answer.response().map_err(|_| Cut),
            Fault::Hang => {
                self.until_removed(rule).await;
                Err(Cut)
            }
            Fault::Kill => {
                self.kill();
                Err(Cut)
            }
            Fault::Cut | Fault::Delay(_) => Err(Cut),
        }
    }

    /// Records the call, and returns the fault that applies to it.
    fn record(&self, parts: &http::request::Parts, body: Bytes) -> (Call, Option<AppliedFault>) {
        let mut state = self.state();
        state.count += 1;
        let call = Call {
            number: state.count,
            at: Instant::now(),
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            body,
        };
        state.calls.push(call.clone());
        let applied = state.rules.iter_mut().enumerate().find_map(|(rule, known)| {
            let (fault, when) = known.as_mut()?.strike(&call)?;
            Some(AppliedFault { fault, when, rule })
        });
        (call, applied)
    }

    async fn until_removed(&self, rule: usize) {
        loop {
            let removed = self.removed.notified();
            if self.state().rules.get(rule).is_none_or(Option::is_none) {
                return;
            }
            removed.await;
        }
    }

    async fn forward(&self, call: &Call, mut headers: HeaderMap) -> Result<Response<Body>, Cut> {
        for name in [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
            headers.remove(name);
        }
        if !headers.contains_key(IMPERSONATE_USER) {
            headers.insert(IMPERSONATE_USER, HeaderValue::from_static(PROCESS_USER));
            headers.insert(IMPERSONATE_GROUP, HeaderValue::from_static(ADMINISTRATORS));
        }
        let separator = if call.query.is_empty() { "" } else { "?" };
        let url = format!("{}{}{separator}{}", self.upstream, call.path, call.query);
        // Subscribes before the watch is open, so that no end is missed.
        let ends = self.ends.subscribe();
        let request = self.client.request(call.method.clone(), url).headers(headers).body(call.body.clone());
        let answer = request.send().await.map_err(|_| Cut)?;
        if answer.status() == StatusCode::FORBIDDEN {
            self.state().forbidden.push(call.line());
        }
        let mut response = Response::builder().status(answer.status());
        for (name, value) in answer.headers() {
            if name != header::TRANSFER_ENCODING && name != header::CONNECTION {
                response = response.header(name, value);
            }
        }
        let is_watch = call.is_watch() && answer.status().is_success();
        let bytes = answer.bytes_stream().map_err(|_| Cut);
        let body =
            if is_watch { Body::from_stream(until_ended(bytes, ends)) } else { Body::from_stream(bytes) };
        response.body(body).map_err(|_| Cut)
    }

    fn kill(&self) {
        let pid = self.state().process.take().and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            // The process has not been waited for, so that its PID is not reused. Fails if it has exited.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Events of a watch until its end.
fn until_ended(
    events: impl Stream<Item = Result<Bytes, Cut>> + Send + 'static,
    ends: broadcast::Receiver<WatchEnd>,
) -> impl Stream<Item = Result<Bytes, Cut>> + Send + 'static {
    stream::unfold(Some((Box::pin(events), ends)), |state| async move {
        let (mut events, mut ends) = state?;
        tokio::select! {
            event = events.next() => {
                let event = event?;
                let rest = event.is_ok().then_some((events, ends));
                Some((event, rest))
            }
            end = ends.recv() => {
                let expired = format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", Answer::expired().status());
                Some((matches!(end, Ok(WatchEnd::Expired)).then(|| Bytes::from(expired)).ok_or(Cut), None))
            }
        }
    })
}
