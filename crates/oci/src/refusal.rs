//! Why one request to a registry failed, in the words that conditions show (spec 02 §H1).

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode};
use rustls::CertificateError;
use serde::Deserialize;

/// Largest error text read from a registry; of it only the first [`EXCERPT`] characters are shown.
const MAX_ERROR: u64 = 1 << 20;
const EXCERPT: usize = 256;

/// A failed request.
#[derive(Debug)]
pub(crate) struct RequestError {
    text: String,
    /// Whether another attempt may succeed.
    pub(crate) transient: bool,
    /// What the registry asked for.
    pub(crate) retry_after: Option<Duration>,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The error format of the distribution protocol.
#[derive(Deserialize)]
struct Envelope {
    errors: Vec<Problem>,
}

#[derive(Deserialize)]
struct Problem {
    code: String,
    #[serde(default)]
    message: String,
}

impl RequestError {
    pub(crate) fn fatal(text: impl Into<String>) -> Self {
        Self { text: text.into(), transient: false, retry_after: None }
    }

    pub(crate) fn transient(text: impl Into<String>) -> Self {
        Self { transient: true, ..Self::fatal(text) }
    }

    /// The same error, said to have happened while doing `what`.
    pub(crate) fn within(mut self, what: &str) -> Self {
        self.text = format!("{what}: {}", self.text);
        self
    }

    /// No answer, or a broken one.
    pub(crate) fn network(method: &Method, url: &str, error: &reqwest::Error) -> Self {
        let (cause, transient) = cause(error, url);
        let verb = match *method {
            Method::GET => "Get",
            Method::HEAD => "Head",
            _ => "Post",
        };
        Self { text: format!("{verb} \"{}\": {cause}", plain(url)), transient, retry_after: None }
    }

    /// An answer that says no, described by `text`.
    pub(crate) fn of_status(status: StatusCode, headers: &HeaderMap, text: String) -> Self {
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let transient = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
        Self { text, transient, retry_after: seconds.map(Duration::from_secs) }
    }

    /// An answer that says no, with the registry's reason.
    pub(crate) async fn refusal(response: Response) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read_capped(response, MAX_ERROR).await.unwrap_or_default();
        Self::of_status(status, &headers, reason(status, &body))
    }
}

/// `manifest unknown: …` where the registry follows the protocol, else the status and the start of the body.
fn reason(status: StatusCode, body: &[u8]) -> String {
    let problem =
        serde_json::from_slice::<Envelope>(body).ok().and_then(|envelope| envelope.errors.into_iter().next());
    let text = String::from_utf8_lossy(body);
    match (status, problem) {
        (StatusCode::TOO_MANY_REQUESTS, _) => {}
        (_, Some(problem)) => {
            let code = problem.code.to_lowercase().replace('_', " ");
            return format!("{}: {}", plain(&code), plain(&problem.message));
        }
        (StatusCode::UNAUTHORIZED, None) => return format!("unauthorized: {}", plain(&text)),
        (StatusCode::FORBIDDEN, None) => return format!("denied: {}", plain(&text)),
        _ => {}
    }
    format!("StatusCode: {}, \"{}\"", status.as_u16(), plain(&text))
}

/// The start of a foreign text on one line.
fn plain(text: &str) -> String {
    text.trim().chars().take(EXCERPT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Reads a body of at most `max` bytes.
pub(crate) async fn read_capped(mut response: Response, max: u64) -> Result<Bytes, RequestError> {
    let url = response.url().clone();
    let too_large = || RequestError::fatal(format!("the answer is larger than {max} bytes"));
    if response.content_length().is_some_and(|length| length > max) {
        return Err(too_large());
    }
    let mut body = BytesMut::new();
    loop {
        match response.chunk().await {
            Ok(None) => return Ok(body.freeze()),
            Ok(Some(chunk)) if (body.len() + chunk.len()) as u64 > max => return Err(too_large()),
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            // Without its query, which after a redirect holds a signature.
            Err(error) => return Err(RequestError::network(&Method::GET, &without_query(url), &error)),
        }
    }
}

fn without_query(mut url: reqwest::Url) -> String {
    url.set_query(None);
    url.into()
}

/// The innermost cause in the words of the field, and whether another attempt may help.
fn cause(error: &reqwest::Error, url: &str) -> (String, bool) {
    if error.is_timeout() {
        return ("i/o timeout".to_owned(), true);
    }
    let transient = !error.is_builder() && !error.is_redirect();
    let authority = reqwest::Url::parse(url).ok();
    let host = authority.as_ref().and_then(|url| url.host_str()).unwrap_or_default();
    let port = authority.as_ref().and_then(reqwest::Url::port_or_known_default).unwrap_or_default();
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    let mut innermost = None;
    while let Some(error) = next {
        innermost = Some(error);
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return (tls_cause(error, host), false);
        }
        let wrapped = error.downcast_ref::<io::Error>();
        if wrapped.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            return (format!("dial tcp {host}:{port}: connect: connection refused"), transient);
        }
        next = wrapped.and_then(io::Error::get_ref).map(|error| error as _).or_else(|| error.source());
    }
    let text = innermost.map_or_else(|| "request failed".to_owned(), ToString::to_string);
    (plain(&text), transient)
}

fn tls_cause(error: &rustls::Error, host: &str) -> String {
    const VERIFY: &str = "tls: failed to verify certificate: x509:";
    match error {
        rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType) => {
            "http: server gave HTTP response to HTTPS client".to_owned()
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            format!("{VERIFY} certificate signed by unknown authority")
        }
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => format!("{VERIFY} certificate has expired or is not yet valid"),
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("{VERIFY} certificate is not valid for {host}"),
        other => format!("tls: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons() {
        for (status, body, expected) in [
            (
                404,
                r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"Unknown manifest","detail":{}}]}"#,
                "manifest unknown: Unknown manifest",
            ),
            (404, r#"{"errors":[{"code":"NAME_UNKNOWN"}]}"#, "name unknown: "),
            (404, "<html>\nno</html>", "StatusCode: 404, \"<html> no</html>\""),
            (401, r#"{"errors":[{"code":"UNAUTHORIZED","message":"who?"}]}"#, "unauthorized: who?"),
            (401, "go away", "unauthorized: go away"),
            (403, "", "denied: "),
            (429, r#"{"errors":[]}"#, "StatusCode: 429, \"{\"errors\":[]}\""),
            (500, "", "StatusCode: 500, \"\""),
        ] {
            assert_eq!(reason(StatusCode::from_u16(status).unwrap(), body.as_bytes()), expected);
        }
        let long = reason(StatusCode::BAD_GATEWAY, "x".repeat(1000).as_bytes());
        assert_eq!(long.len(), "StatusCode: 502, \"\"".len() + EXCERPT);
    }
}
