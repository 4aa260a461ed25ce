//! What may go wrong with a call, and which calls it happens to.

use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Response, header};
use serde_json::json;

/// A call of operator-controller.
#[derive(Clone, Debug)]
pub struct Call {
    /// Counts all calls since the proxy was started, from 1.
    pub number: u64,
    /// When it came.
    pub at: Instant,
    /// Its method.
    pub method: Method,
    /// Its path.
    pub path: String,
    /// What follows the `?`; empty where there is none.
    pub query: String,
    /// Its body.
    pub body: Bytes,
}

impl Call {
    /// Whether it may change the cluster: anything but a read and a dry run.
    #[must_use]
    pub fn is_mutation(&self) -> bool {
        self.method != Method::GET && !self.query.contains("dryRun=")
    }

    /// Whether it is a watch.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|parameter| matches!(parameter, "watch=true" | "watch=1"))
    }

    /// Whether it is a write to an Event.
    #[must_use]
    pub fn is_event(&self) -> bool {
        self.path.starts_with("/apis/events.k8s.io/")
    }

    /// Whether `text` occurs in its path, query or body.
    #[must_use]
    pub fn mentions(&self, text: &str) -> bool {
        let in_body = || self.body.windows(text.len().max(1)).any(|window| window == text.as_bytes());
        self.path.contains(text) || self.query.contains(text) || in_body()
    }

    /// Method and path on one line, with the query.
    #[must_use]
    pub fn line(&self) -> String {
        let separator = if self.query.is_empty() { "" } else { "?" };
        format!("{} {}{separator}{}", self.method, self.path, self.query)
    }
}

/// Whether the API server has seen the call when the fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The call is not forwarded.
    Before,
    /// The call has taken effect, and its answer is lost.
    After,
}

/// An answer in the API server's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub code: u16,
    /// `reason` of the Status object.
    pub reason: &'static str,
    /// Its `message`.
    pub message: String,
    /// Seconds of the header `Retry-After`.
    pub retry_after: Option<u32>,
}

impl Answer {
    /// 429 with this many seconds of `Retry-After`.
    #[must_use]
    pub fn too_many_requests(seconds: u32) -> Self {
        let message = "the server has received too many requests and has asked us to try again later";
        Self { code: 429, reason: "TooManyRequests", message: message.to_owned(), retry_after: Some(seconds) }
    }

    /// 500.
    #[must_use]
    pub fn internal_error(message: &str) -> Self {
        let message = format!("Internal error occurred: {message}");
        Self { code: 500, reason: "InternalError", message, retry_after: None }
    }

    /// 503.
    #[must_use]
    pub fn unavailable() -> Self {
        let message = "the server is currently unable to handle the request".to_owned();
        Self { code: 503, reason: "ServiceUnavailable", message, retry_after: None }
    }

    /// 504, as the API server answers when it takes too long itself.
    #[must_use]
    pub fn timeout() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout".to_owned();
        Self { code: 504, reason: "Timeout", message, retry_after: None }
    }

    /// 409 about a changed object.
    #[must_use]
    pub fn conflict() -> Self {
        let message = "Operation cannot be fulfilled: the object has been modified; please apply your \
                       changes to the latest version and try again";
        Self { code: 409, reason: "Conflict", message: message.to_owned(), retry_after: None }
    }

    /// 410 of a watch or of a continued list.
    #[must_use]
    pub fn expired() -> Self {
        let message = "too old resource version".to_owned();
        Self { code: 410, reason: "Expired", message, retry_after: None }
    }

    /// 403.
    #[must_use]
    pub fn forbidden(message: &str) -> Self {
        Self { code: 403, reason: "Forbidden", message: message.to_owned(), retry_after: None }
    }

    /// The Status object.
    pub(super) fn status(&self) -> String {
        let details = self.retry_after.map(|seconds| json!({"retryAfterSeconds": seconds}));
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
            "reason": self.reason, "details": details.unwrap_or_else(|| json!({})), "code": self.code,
        });
        status.to_string()
    }

    pub(super) fn response(&self) -> http::Result<Response<Body>> {
        let mut response =
            Response::builder().status(self.code).header(header::CONTENT_TYPE, "application/json");
        if let Some(seconds) = self.retry_after {
            response = response.header(header::RETRY_AFTER, seconds);
        }
        response.body(Body::from(self.status()))
    }
}

/// What goes wrong with a call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It takes so much longer, and goes well.
    Delay(Duration),
    /// It is answered so.
    Answer(Answer),
    /// Its connection breaks.
    Cut,
    /// It is not answered; once the rule is removed, its connection breaks.
    Hang,
    /// operator-controller is killed with `kill -9`.
    Kill,
}

/// A fault and the calls that it happens to.
pub struct Rule {
    pub(super) fault: Fault,
    pub(super) when: When,
    pub(super) matches: Box<dyn Fn(&Call) -> bool + Send + Sync>,
    pub(super) skip: usize,
    pub(super) times: usize,
    pub(super) hits: usize,
}

impl Rule {
    /// `fault` strikes every call that `matches`, [`When::Before`] the API server sees it.
    pub fn new(fault: Fault, matches: impl Fn(&Call) -> bool + Send + Sync + 'static) -> Self {
        Self { fault, when: When::Before, matches: Box::new(matches), skip: 0, times: usize::MAX, hits: 0 }
    }

    /// The fault strikes then.
    #[must_use]
    pub fn when(self, when: When) -> Self {
        Self { when, ..self }
    }

    /// The first `count` calls that match are spared.
    #[must_use]
    pub fn skip(self, count: usize) -> Self {
        Self { skip: count, ..self }
    }

    /// The fault strikes `count` times.
    #[must_use]
    pub fn times(self, count: usize) -> Self {
        Self { times: count, ..self }
    }

    /// The fault, if it strikes this call.
    pub(super) fn strike(&mut self, call: &Call) -> Option<(Fault, When)> {
        if self.times == 0 || !(self.matches)(call) {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.times -= 1;
        self.hits += 1;
        Some((self.fault.clone(), self.when))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: Method, path: &str, query: &str, body: &'static str) -> Call {
        let body = Bytes::from_static(body.as_bytes());
        Call { number: 1, at: Instant::now(), method, path: path.into(), query: query.into(), body }
    }

    #[test]
    fn reads_dry_runs_and_watches_are_told_from_writes() {
        let list = call(Method::GET, "/api/v1/secrets", "limit=500", "");
        assert!(!list.is_mutation() && !list.is_watch());
        assert!(call(Method::GET, "/api/v1/secrets", "a=b&watch=true", "").is_watch());
        assert!(!call(Method::PATCH, "/api/v1/x", "dryRun=All&force=true", "").is_mutation());
        let write = call(Method::POST, "/api/v1/x", "", "{\"name\":\"demo-1\"}");
        assert!(write.is_mutation() && write.mentions("demo-1") && write.mentions("v1/x"));
        assert!(!write.mentions("demo-2"));
    }

    #[test]
    fn a_rule_strikes_after_what_it_skips_and_so_often() {
        let mut rule = Rule::new(Fault::Kill, Call::is_mutation).when(When::After).skip(1).times(2);
        let (read, write) = (call(Method::GET, "/a", "", ""), call(Method::PUT, "/a", "", ""));
        let strikes: Vec<bool> =
            [&read, &write, &write, &read, &write, &write].map(|call| rule.strike(call).is_some()).to_vec();
        assert_eq!(strikes, [false, false, true, false, true, false]);
        assert_eq!(rule.hits, 2);
    }
}
