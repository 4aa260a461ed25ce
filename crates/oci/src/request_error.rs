//! Errors of single registry requests, in the words that conditions show (docs/design/images.md#pull-errors).

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use ipnet::IpNet;
use olm_version::excerpt;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode, Url};
use rustls::CertificateError;
use serde::Deserialize;

/// Largest error text read from a registry, of which only an [`excerpt`] is shown.
const MAX_ERROR: u64 = 1 << 20;
/// End of the text about a proxy that refuses a tunnel. The client library reports no status other than 407.
const NO_TUNNEL: &str = " with 200";

#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct RequestError {
    text: String,
    /// `true` if another attempt may succeed.
    pub(crate) transient: bool,
    /// `true` if the registry responds that the object does not exist.
    pub(crate) not_found: bool,
    /// `true` for a status that registries send for paths which they do not know.
    pub(crate) unknown_path: bool,
    /// Delay requested by the registry.
    pub(crate) retry_after: Option<Duration>,
}

/// Address of a registry that is in a denied network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("dial tcp {address}: the address is in {network}, which --registry-deny-cidrs forbids")]
pub(crate) struct DeniedAddress {
    pub(crate) address: IpAddr,
    pub(crate) network: IpNet,
}

/// Error format of the distribution protocol.
#[derive(Deserialize)]
struct ErrorBody {
    errors: Vec<ErrorEntry>,
}

#[derive(Deserialize)]
struct ErrorEntry {
    code: String,
    #[serde(default)]
    message: String,
}

impl RequestError {
    pub(crate) fn fatal(text: impl Into<String>) -> Self {
        Self { text: text.into(), transient: false, not_found: false, unknown_path: false, retry_after: None }
    }

    pub(crate) fn transient(text: impl Into<String>) -> Self {
        Self { transient: true, ..Self::fatal(text) }
    }

    /// Prefixes the error with the failed operation `what`.
    pub(crate) fn within(mut self, what: &str) -> Self {
        self.text = format!("{what}: {}", self.text);
        self
    }

    /// The same error, final.
    pub(crate) fn without_retry(self) -> Self {
        Self { transient: false, ..self }
    }

    /// `true` if a proxy refused a tunnel with a status that the client library did not report.
    pub(crate) fn is_tunnel_refusal(&self) -> bool {
        self.text.ends_with(NO_TUNNEL)
    }

    /// Adds the status with which the proxy refused the tunnel.
    pub(crate) fn with_proxy_status(mut self, status: Option<u16>) -> Self {
        self.text.extend(status.map(|status| format!(" but with {status}")));
        self
    }

    /// Missing or broken response. `proxy` is the proxy of the request, if any.
    pub(crate) fn network(method: &Method, url: &str, error: &reqwest::Error, proxy: Option<&Url>) -> Self {
        let (cause, transient) = cause(error, url, proxy.filter(|_| error.is_connect()));
        Self { transient, ..Self::fatal(cause) }.in_request(method, url)
    }

    /// Prefixes the error with the request, as `Get "https://…"`.
    pub(crate) fn in_request(self, method: &Method, url: &str) -> Self {
        let verb = match *method {
            Method::GET => "Get",
            Method::HEAD => "Head",
            Method::PUT => "Put",
            _ => "Post",
        };
        self.within(&format!("{verb} \"{}\"", redacted(url)))
    }

    /// Error response, described by `text`.
    pub(crate) fn of_status(status: StatusCode, headers: &HeaderMap, text: String) -> Self {
        let wait = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let transient = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
        let not_found = status == StatusCode::NOT_FOUND;
        let unknown_path = matches!(
            status,
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
        );
        let retry_after = wait.and_then(|wait| retry_after(wait, SystemTime::now()));
        Self { text, transient, not_found, unknown_path, retry_after }
    }

    /// Error response with the reason in its body.
    pub(crate) async fn from_response(response: Response) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read_capped(response, MAX_ERROR).await.unwrap_or_default();
        Self::of_status(status, &headers, reason(status, &body))
    }

    /// Error response from a server to which the registry redirected. Its body is dropped, since storage services
    /// repeat signed requests in it.
    pub(crate) fn from_redirect_target(response: &Response) -> Self {
        let host = response.url().host_str().unwrap_or_default();
        let text =
            format!("StatusCode: {} of {host}, where the registry redirects to", response.status().as_u16());
        Self::of_status(response.status(), response.headers(), text)
    }
}

/// `host:port` of a URL. A port that neither the URL nor its scheme determines is that of SOCKS proxies.
pub(crate) fn authority(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or(1080);
    format!("{}:{port}", url.host_str().unwrap_or_default())
}

/// Reason of an error response: `manifest unknown: …` if the registry follows the protocol, otherwise the status
/// and the start of the body.
fn reason(status: StatusCode, body: &[u8]) -> String {
    let problem =
        serde_json::from_slice::<ErrorBody>(body).ok().and_then(|body| body.errors.into_iter().next());
    let text = String::from_utf8_lossy(body);
    match (status, problem) {
        (StatusCode::TOO_MANY_REQUESTS, _) => {}
        (_, Some(problem)) => {
            let code = problem.code.to_lowercase().replace('_', " ");
            return format!("{}: {}", redacted(&code), redacted(&problem.message));
        }
        (StatusCode::UNAUTHORIZED, None) => return format!("unauthorized: {}", redacted(&text)),
        (StatusCode::FORBIDDEN, None) => return format!("denied: {}", redacted(&text)),
        _ => {}
    }
    format!("StatusCode: {}, \"{}\"", status.as_u16(), redacted(&text))
}

/// Parses `Retry-After`, as seconds or as a date.
fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = SystemTime::from(jiff::fmt::rfc2822::parse(value.trim()).ok()?.timestamp());
    Some(date.duration_since(now).unwrap_or_default())
}

/// [`excerpt`] on one line, without possible secrets in URLs: user, password and query.
fn redacted(text: &str) -> String {
    let shown = excerpt(text.trim()).replace(char::is_control, " ");
    let mut rest = shown.as_str();
    let mut redacted = String::new();
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        let end = after
            .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>'))
            .unwrap_or(after.len());
        let (url, after) = after.split_at(end);
        let url = url.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = url.split_at(url.find('/').unwrap_or(url.len()));
        redacted.push_str(before);
        redacted.push_str(authority.rsplit('@').next().unwrap_or_default());
        redacted.push_str(path);
        rest = after;
    }
    redacted + rest
}

/// Reads a body of at most `max` bytes.
pub(crate) async fn read_capped(mut response: Response, max: u64) -> Result<Bytes, RequestError> {
    let url = response.url().to_string();
    let too_large = || RequestError::fatal(format!("the answer is larger than {max} bytes"));
    if response.content_length().is_some_and(|length| length > max) {
        return Err(too_large());
    }
    let mut body = BytesMut::new();
    let broken = |error: reqwest::Error| RequestError::network(&Method::GET, &url, &error, None);
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        if (body.len() + chunk.len()) as u64 > max {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// Innermost cause in Go's words, and `true` if another attempt may succeed. `proxy` is the proxy of a request that
/// failed to connect.
pub(crate) fn cause(error: &reqwest::Error, url: &str, proxy: Option<&Url>) -> (String, bool) {
    if error.is_timeout() {
        return ("i/o timeout".to_owned(), true);
    }
    let transient = !error.is_builder();
    let target = Url::parse(url).ok();
    let host = target.as_ref().and_then(Url::host_str).unwrap_or_default();
    // Only `https` needs a tunnel. For `http` the connection itself is to the proxy.
    let mut at_proxy = proxy.is_some_and(|_| target.as_ref().is_some_and(|url| url.scheme() == "http"));
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    let mut text = "request failed".to_owned();
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return (tls_cause(error, host), false);
        }
        if let Some(denied) = error.downcast_ref::<DeniedAddress>() {
            return (denied.to_string(), false);
        }
        text = error.to_string();
        at_proxy |= proxy.is_some() && text.starts_with("tunnel error: failed to create");
        let wrapped = error.downcast_ref::<io::Error>();
        if wrapped.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let refusing = proxy.filter(|_| at_proxy).or(target.as_ref()).map(authority).unwrap_or_default();
            text = format!("dial tcp {refusing}: connect: connection refused");
            break;
        }
        next = wrapped.and_then(io::Error::get_ref).map(|error| error as _).or_else(|| error.source());
    }
    if error.is_dns() {
        let why = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
        let why = if why == "Name or service not known" { "no such host" } else { why };
        let host = proxy.filter(|_| at_proxy).and_then(Url::host_str).unwrap_or(host);
        text = format!("dial tcp: lookup {host}: {why}");
    }
    match text.strip_prefix("tunnel error: ") {
        Some(why) => {
            let [proxy, target] = [proxy, target.as_ref()].map(|url| url.map(authority).unwrap_or_default());
            let why = match why {
                "unsuccessful" => format!("it did not answer CONNECT {target}{NO_TUNNEL}"),
                "proxy authorization required" => format!("it answered CONNECT {target} with 407"),
                why => redacted(why),
            };
            (format!("proxy {proxy}: {why}"), transient)
        }
        None if at_proxy => (format!("proxyconnect tcp: {}", redacted(&text)), transient),
        None => (redacted(&text), transient),
    }
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
    fn error_response_is_summarized() {
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
            (
                403,
                "<Error>https://user:s3cret@store.test/blob?X-Signature=s3cret</Error>",
                "denied: <Error>https://store.test/blob</Error>",
            ),
        ] {
            assert_eq!(reason(StatusCode::from_u16(status).unwrap(), body.as_bytes()), expected);
        }
        let long = reason(StatusCode::BAD_GATEWAY, "x".repeat(1000).as_bytes());
        assert_eq!(long.len(), "StatusCode: 502, \"...\"".len() + 256);
    }

    #[test]
    fn urls_in_errors_are_stripped_of_secrets() {
        for (text, expected) in [
            ("https://a.test/x?token=s3cret rest", "https://a.test/x rest"),
            ("http://u:p@a.test:5000/x#y", "http://a.test:5000/x"),
            ("two https://a.test?x=1, \"https://b.test/?y\"", "two https://a.test \"https://b.test/\""),
            ("mail@a.test: why?", "mail@a.test: why?"),
            ("://", "://"),
        ] {
            assert_eq!(redacted(text), expected);
        }
    }

    #[test]
    fn retry_after_is_parsed_as_seconds_or_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (value, expected) in [
            ("7", Some(7)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            assert_eq!(retry_after(value, now), expected.map(Duration::from_secs), "{value}");
        }
    }
}
