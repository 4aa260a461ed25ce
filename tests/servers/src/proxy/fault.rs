//! Faults of calls, and the calls that they affect.

use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Response, header};
use serde_json::json;

/// Call of operator-controller.
#[derive(Clone, Debug)]
pub struct Call {
    /// Sequence number since the start of the proxy, from 1.
    pub number: u64,
    /// Time of arrival.
    pub at: Instant,
    /// HTTP method.
    pub method: Method,
    /// URL path.
    pub path: String,
    /// URL query. Empty if absent.
    pub query: String,
    /// Request body.
    pub body: Bytes,
}

impl Call {
    /// Reports whether the call can change the cluster: anything but a read or a dry run, which the body of a deletion
    /// requests.
    #[must_use]
    pub fn is_mutation(&self) -> bool {
        let field = b"\"dryRun\"";
        let is_in_body =
            self.method == Method::DELETE && self.body.windows(field.len()).any(|part| part == field);
        self.method != Method::GET && !is_in_body && !self.query.contains("dryRun=")
    }

    /// Reports whether the call is a watch.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|parameter| matches!(parameter, "watch=true" | "watch=1"))
    }

    /// Reports whether the call lists objects without a limit, or with one above `most`.
    #[must_use]
    pub fn lists_more_than(&self, most: u32) -> bool {
        let mut rest: Vec<&str> = self.path.split('/').skip(1).collect();
        match rest.first() {
            Some(&"api") => rest.drain(..2.min(rest.len())),
            Some(&"apis") => rest.drain(..3.min(rest.len())),
            _ => return false,
        };
        if rest.len() > 2 && rest[0] == "namespaces" {
            rest.drain(..2);
        }
        let is_list = self.method == Method::GET && rest.len() == 1 && !self.is_watch();
        let limit =
            self.query.split('&').find_map(|parameter| parameter.strip_prefix("limit=")?.parse().ok());
        is_list && limit.is_none_or(|limit: u32| limit > most)
    }

    /// Reports whether the call accesses an Event.
    #[must_use]
    pub fn is_event(&self) -> bool {
        self.path.starts_with("/apis/events.k8s.io/")
    }

    /// Reports whether `text` occurs in path, query or body.
    #[must_use]
    pub fn mentions(&self, text: &str) -> bool {
        let in_body = || self.body.windows(text.len().max(1)).any(|window| window == text.as_bytes());
        self.path.contains(text) || self.query.contains(text) || in_body()
    }

    /// Method, path and query on one line.
    #[must_use]
    pub fn line(&self) -> String {
        let separator = if self.query.is_empty() { "" } else { "?" };
        format!("{} {}{separator}{}", self.method, self.path, self.query)
    }
}

/// Time of the fault relative to the effect of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The call is not forwarded.
    Before,
    /// The call has taken effect, and its response is lost.
    After,
}

/// Error response in the format of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub code: u16,
    /// `reason` of the Status object.
    pub reason: &'static str,
    /// `message` of the Status object.
    pub message: String,
    /// Seconds of the header `Retry-After`.
    pub retry_after: Option<u32>,
}

impl Answer {
    /// 429 TooManyRequests with this number of seconds in `Retry-After`.
    #[must_use]
    pub fn too_many_requests(seconds: u32) -> Self {
        let message = "the server has received too many requests and has asked us to try again later";
        Self { code: 429, reason: "TooManyRequests", message: message.to_owned(), retry_after: Some(seconds) }
    }

    /// 500 InternalError.
    #[must_use]
    pub fn internal_error(message: &str) -> Self {
        let message = format!("Internal error occurred: {message}");
        Self { code: 500, reason: "InternalError", message, retry_after: None }
    }

    /// 503 ServiceUnavailable.
    #[must_use]
    pub fn unavailable() -> Self {
        let message = "the server is currently unable to handle the request".to_owned();
        Self { code: 503, reason: "ServiceUnavailable", message, retry_after: None }
    }

    /// 504 Timeout, the response of the API server when its own deadline expires.
    #[must_use]
    pub fn timeout() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout".to_owned();
        Self { code: 504, reason: "Timeout", message, retry_after: None }
    }

    /// 409 Conflict: the resourceVersion is stale.
    #[must_use]
    pub fn conflict() -> Self {
        let message = "Operation cannot be fulfilled: the object has been modified; please apply your \
                       changes to the latest version and try again";
        Self { code: 409, reason: "Conflict", message: message.to_owned(), retry_after: None }
    }

    /// 400 BadRequest.
    #[must_use]
    pub fn bad_request(message: &str) -> Self {
        Self { code: 400, reason: "BadRequest", message: message.to_owned(), retry_after: None }
    }

    /// 410 Expired, for a watch or a continued list.
    #[must_use]
    pub fn expired() -> Self {
        let message = "too old resource version".to_owned();
        Self { code: 410, reason: "Expired", message, retry_after: None }
    }

    /// 403 Forbidden.
    #[must_use]
    pub fn forbidden(message: &str) -> Self {
        Self { code: 403, reason: "Forbidden", message: message.to_owned(), retry_after: None }
    }

    /// Body of the response, a Status object.
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

/// Fault of a call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The response is delayed by this duration.
    Delay(Duration),
    /// The call gets this response.
    Answer(Answer),
    /// The connection breaks.
    Cut,
    /// The call gets no response. Its connection breaks when the rule is removed.
    Hang,
    /// operator-controller is killed with SIGKILL.
    Kill,
}

/// Fault with the calls that it affects.
pub struct Rule {
    pub(super) fault: Fault,
    pub(super) when: When,
    pub(super) matches: Box<dyn Fn(&Call) -> bool + Send + Sync>,
    pub(super) skip: usize,
    pub(super) times: usize,
    pub(super) hits: usize,
}

impl Rule {
    /// Applies `fault` to every call that `matches`, [`When::Before`] the API server receives it.
    pub fn new(fault: Fault, matches: impl Fn(&Call) -> bool + Send + Sync + 'static) -> Self {
        Self { fault, when: When::Before, matches: Box::new(matches), skip: 0, times: usize::MAX, hits: 0 }
    }

    /// Sets the time of the fault.
    #[must_use]
    pub fn when(self, when: When) -> Self {
        Self { when, ..self }
    }

    /// Ignores the first `count` matching calls.
    #[must_use]
    pub fn skip(self, count: usize) -> Self {
        Self { skip: count, ..self }
    }

    /// Limits the fault to `count` calls.
    #[must_use]
    pub fn times(self, count: usize) -> Self {
        Self { times: count, ..self }
    }

    /// Returns the fault if the rule applies to this call, and counts the hit.
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
    fn call_distinguishes_reads_dry_runs_and_watches_from_writes() {
        let list = call(Method::GET, "/api/v1/secrets", "limit=500", "");
        assert!(!list.is_mutation() && !list.is_watch());
        assert!(call(Method::GET, "/api/v1/secrets", "a=b&watch=true", "").is_watch());
        assert!(!call(Method::PATCH, "/api/v1/x", "dryRun=All&force=true", "").is_mutation());
        let write = call(Method::POST, "/api/v1/x", "", "{\"name\":\"demo-1\"}");
        assert!(write.is_mutation() && write.mentions("demo-1") && write.mentions("v1/x"));
        assert!(!write.mentions("demo-2"));
    }

    #[test]
    fn call_lists_more_than_a_limit() {
        for (path, query, expected) in [
            ("/api/v1/secrets", "limit=20", false),
            ("/api/v1/secrets", "labelSelector=a&limit=21", true),
            ("/api/v1/secrets", "", true),
            ("/api/v1/namespaces", "", true),
            ("/api/v1/namespaces/a", "", false),
            ("/api/v1/namespaces/a/secrets", "", true),
            ("/api/v1/namespaces/a/secrets/b", "", false),
            ("/apis/apps/v1/deployments", "", true),
            ("/apis/apps/v1/deployments", "watch=true", false),
            ("/apis/apps/v1/namespaces/a/deployments/b/scale", "", false),
            ("/apis/apps/v1", "", false),
            ("/apis", "", false),
            ("/api", "", false),
            ("/version", "", false),
        ] {
            assert_eq!(call(Method::GET, path, query, "").lists_more_than(20), expected, "{path}?{query}");
        }
    }

    #[test]
    fn rule_applies_after_skipped_calls_and_limited_times() {
        let mut rule = Rule::new(Fault::Kill, Call::is_mutation).when(When::After).skip(1).times(2);
        let (read, write) = (call(Method::GET, "/a", "", ""), call(Method::PUT, "/a", "", ""));
        let strikes: Vec<bool> =
            [&read, &write, &write, &read, &write, &write].map(|call| rule.strike(call).is_some()).to_vec();
        assert_eq!(strikes, [false, false, true, false, true, false]);
        assert_eq!(rule.hits, 2);
    }
}
