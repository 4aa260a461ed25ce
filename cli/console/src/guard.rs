//! Checks and headers of every request (docs/design/console.md#requests).

use std::sync::OnceLock;

use axum::extract::{Request, State};
use axum::http::header::{HOST, HeaderName, HeaderValue, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use olm_cli_core::error::CliError;

use super::app::App;
use super::visitor::random_text;

const FETCH_SITE: &str = "sec-fetch-site";
const FETCH_MODE: &str = "sec-fetch-mode";

/// Headers of every response, unless the route sets its own value.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // With `no-referrer`, browsers send forms with the origin `null`, which the checks refuse.
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Names under which the console may be requested.
pub(super) struct Hosts {
    /// First name of the host in the printed address. A browser sends cookies to all ports of a host, so other servers
    /// on this machine would receive those of `localhost`. Only the console has this name.
    label: String,
    port: OnceLock<u16>,
    /// Names in the cluster, with any port.
    names: Vec<String>,
}

impl Hosts {
    /// Names of a server on the loopback address.
    ///
    /// # Errors
    /// There are no random numbers.
    pub(super) fn loopback() -> Result<Self, CliError> {
        let label = random_text(5)?.to_lowercase().replace(['-', '_'], "0");
        Ok(Self { label: format!("olm-{label}"), port: OnceLock::new(), names: Vec::new() })
    }

    /// Names of a server in the cluster. Proxies and port forwarding may change the port.
    pub(super) fn named(names: &[String]) -> Self {
        let names = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self { label: String::new(), port: OnceLock::new(), names }
    }

    /// Sets the port. Without it, every request is refused.
    pub(super) fn listen_at(&self, port: u16) {
        self.port.get_or_init(|| port);
    }

    /// Host and port of the printed address.
    pub(super) fn address(&self) -> String {
        format!("{}.localhost:{}", self.label, self.port.get().copied().unwrap_or_default())
    }

    fn permits(&self, host: &str) -> bool {
        if !self.names.is_empty() {
            let is_port = |rest: &str| rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
            let rests = self.names.iter().filter_map(|name| host.strip_prefix(name.as_str()));
            return rests.into_iter().any(|rest| rest.is_empty() || is_port(rest));
        }
        let Some(port) = self.port.get() else { return false };
        let loopback = ["127.0.0.1", "localhost", "[::1]"];
        host == self.address() || loopback.iter().any(|name| host == format!("{name}:{port}"))
    }
}

/// Refuses requests of other sites, and sets the headers of the response.
pub(super) async fn guard(State(console): State<App>, request: Request, next: Next) -> Response {
    let refused = check(|host| console.hosts.permits(host), request.method(), request.headers());
    let mut response = match refused {
        Err(why) => (StatusCode::FORBIDDEN, why).into_response(),
        Ok(()) => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Checks the origin of a request.
///
/// # Errors
/// Reason for which the request is refused.
fn check(permits: impl Fn(&str) -> bool, method: &Method, headers: &HeaderMap) -> Result<(), &'static str> {
    let single = |name: &str| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => value.to_str().ok(),
            _ => None,
        }
    };
    // DNS rebinding: a foreign name that resolves to this machine is the host of such a request.
    let host = single(HOST.as_str()).filter(|host| permits(host));
    let host =
        host.ok_or("the console does not serve this host name; use the address that it printed, or --host")?;
    let site = single(FETCH_SITE);
    if method.is_safe() {
        // Browsers without the header are covered by the SameSite attribute of the cookie.
        let is_ours = matches!(site, None | Some("same-origin" | "none"));
        let is_link = method == Method::GET && single(FETCH_MODE) == Some("navigate");
        return if is_ours || is_link { Ok(()) } else { Err("the page of another site requested this") };
    }
    let origin = single(ORIGIN.as_str()).map(|origin| {
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        authority == Some(host)
    });
    match (site, origin) {
        (Some("same-origin"), None | Some(true)) | (None, Some(true)) => Ok(()),
        _ => Err("only a page of the console may send this request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_of_other_site_or_host_is_refused() {
        let ours = ("host", "ours:1");
        for (method, headers, accepted) in [
            (Method::GET, vec![ours], true),
            (Method::GET, vec![], false),
            (Method::GET, vec![("host", "ours:2")], false),
            (Method::GET, vec![("host", "evil.example:1")], false),
            (Method::GET, vec![ours, ("host", "evil.example")], false),
            (Method::GET, vec![ours, ("sec-fetch-site", "same-origin")], true),
            (Method::GET, vec![ours, ("sec-fetch-site", "none")], true),
            (Method::GET, vec![ours, ("sec-fetch-site", "cross-site")], false),
            (Method::GET, vec![ours, ("sec-fetch-site", "same-site"), ("sec-fetch-mode", "no-cors")], false),
            (Method::GET, vec![ours, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], true),
            (Method::POST, vec![ours], false),
            (Method::POST, vec![ours, ("origin", "http://ours:1")], true),
            (Method::POST, vec![ours, ("origin", "null")], false),
            (Method::POST, vec![ours, ("origin", "http://ours:2")], false),
            (Method::POST, vec![ours, ("sec-fetch-site", "same-origin")], true),
            (Method::POST, vec![ours, ("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")], false),
            (Method::POST, vec![ours, ("sec-fetch-site", "same-site"), ("origin", "http://ours:1")], false),
            (Method::POST, vec![ours, ("sec-fetch-site", "same-origin"), ("origin", "http://evil:1")], false),
            (
                Method::DELETE,
                vec![ours, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
                false,
            ),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in &headers {
                map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            let checked = check(|host| host == "ours:1", &method, &map);
            assert_eq!(checked.is_ok(), accepted, "{method} {headers:?}: {checked:?}");
        }
    }

    #[test]
    fn name_in_the_cluster_is_permitted_with_any_port() {
        let hosts = Hosts::named(&["OLM.example.com".to_owned(), "[::1]".to_owned()]);
        for host in ["olm.example.com", "olm.example.com:443", "[::1]:8443"] {
            assert!(hosts.permits(host), "{host}");
        }
        for host in
            ["", "olm.example.com.evil.example", "olm.example.com:x", "olm.example.com:443:1", "localhost"]
        {
            assert!(!hosts.permits(host), "{host}");
        }
    }

    #[test]
    fn loopback_names_are_permitted_only_with_the_port() {
        let hosts = Hosts::loopback().unwrap();
        assert!(!hosts.permits("127.0.0.1:0"), "before the port is known");
        hosts.listen_at(8000);
        for host in ["127.0.0.1:8000", "localhost:8000", "[::1]:8000", hosts.address().as_str()] {
            assert!(hosts.permits(host), "{host}");
        }
        for host in ["127.0.0.1", "localhost:80", "evil.localhost:8000", "127.0.0.1.evil.example:8000", ""] {
            assert!(!hosts.permits(host), "{host}");
        }
    }
}
