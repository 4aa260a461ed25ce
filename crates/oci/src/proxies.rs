//! HTTP proxies, chosen as Go does (docs/design/operations.md#proxies). Unlike in reqwest, `.host` matches
//! subdomains only, exemptions can name ports, and loopback is never proxied.

use std::fmt;
use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ipnet::IpNet;
use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::request_error::{authority, cause};

/// Timeout of [`connect_status`].
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// HTTP proxies and exemptions. [`Proxies::default`] has none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    http: Option<Url>,
    https: Option<Url>,
    exemptions: Vec<Exemption>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Exemption {
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    All,
    Network(IpNet),
    /// Domain with a leading dot. `true` if the domain itself matches too, besides its subdomains.
    Domain(String, bool),
}

/// Omits user and password.
impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |proxy: &Option<Url>| proxy.as_ref().map(authority);
        f.debug_struct("Proxies")
            .field("http", &shown(&self.http))
            .field("https", &shown(&self.https))
            .field("exemptions", &self.exemptions)
            .finish()
    }
}

impl Proxies {
    /// Proxies from `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` of this process. Each falls back to its lower-case
    /// form.
    pub fn from_env() -> Self {
        let variable = |name: &str| {
            let value = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
            value(name).or_else(|| value(&name.to_lowercase())).unwrap_or_default()
        };
        let proxy = |name: &str| {
            let value = variable(name);
            let proxy = proxy_address(&value);
            if proxy.is_none() && !value.is_empty() {
                tracing::error!(variable = name, "ignored invalid proxy address");
            }
            proxy
        };
        Self::new(proxy("HTTP_PROXY"), proxy("HTTPS_PROXY"), &variable("NO_PROXY"))
    }

    /// [`Proxies::from_env`], read once for the lifetime of this process.
    pub fn of_process() -> &'static Self {
        static OF_PROCESS: LazyLock<Proxies> = LazyLock::new(Proxies::from_env);
        &OF_PROCESS
    }

    /// Proxy configuration for a reqwest client.
    pub fn chooser(&self) -> reqwest::Proxy {
        let proxies = self.clone();
        reqwest::Proxy::custom(move |url| proxies.proxy_for(url).cloned())
    }

    /// Cause of a request to `url` without response, in Go's format: `proxyconnect tcp: dial tcp 10.0.0.1:3128:
    /// connect: connection refused`.
    pub fn cause_of(&self, url: &Url, error: &reqwest::Error) -> String {
        cause(error, url.as_str(), self.proxy_for(url).filter(|_| error.is_connect())).0
    }

    /// Proxies for `http` and `https` URLs, and a list of exemptions in the format of `NO_PROXY`.
    pub fn new(http: Option<Url>, https: Option<Url>, exemptions: &str) -> Self {
        Self { http, https, exemptions: exemptions.split(',').filter_map(exemption).collect() }
    }

    /// Proxy for `url`, if any.
    pub fn proxy_for(&self, url: &Url) -> Option<&Url> {
        let proxy = if url.scheme() == "https" { self.https.as_ref() } else { self.http.as_ref() };
        let host = url.host_str()?.to_ascii_lowercase();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = url.port_or_known_default();
        let address: Option<IpAddr> = host.parse().ok().map(|address: IpAddr| address.to_canonical());
        if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
            return None;
        }
        let exempt = self.exemptions.iter().any(|exemption| exemption.covers(host, address, port));
        proxy.filter(|_| !exempt)
    }

    /// `true` if a proxy has this host name.
    pub(crate) fn is_proxy(&self, host: &str) -> bool {
        let mut proxies = self.http.iter().chain(&self.https);
        proxies.any(|proxy| proxy.host_str().is_some_and(|name| name.eq_ignore_ascii_case(host)))
    }
}

impl Exemption {
    fn covers(&self, host: &str, address: Option<IpAddr>, port: Option<u16>) -> bool {
        let host = match &self.hosts {
            Hosts::All => true,
            Hosts::Network(network) => address.is_some_and(|address| network.contains(&address)),
            Hosts::Domain(domain, itself) => {
                host.ends_with(domain.as_str()) || (*itself && host == &domain[1..])
            }
        };
        host && self.port.is_none_or(|exempt| Some(exempt) == port)
    }
}

/// Parses one entry of `NO_PROXY`. `None` if it is empty or invalid.
fn exemption(entry: &str) -> Option<Exemption> {
    let entry = entry.trim().to_ascii_lowercase();
    if entry == "*" {
        return Some(Exemption { hosts: Hosts::All, port: None });
    }
    let address = |text: &str| Some(IpNet::from(text.parse::<IpAddr>().ok()?.to_canonical()));
    if let Some(network) = entry.parse().ok().or_else(|| address(&entry)) {
        return Some(Exemption { hosts: Hosts::Network(network), port: None });
    }
    let (host, port) = match entry.rsplit_once(':') {
        None => (entry.as_str(), None),
        Some((host, port)) => (host, Some(port.parse().ok()?)),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let hosts = match address(host) {
        Some(address) => Hosts::Network(address),
        None => {
            let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
            match host.strip_prefix('.') {
                _ if host.is_empty() => return None,
                Some(domain) => Hosts::Domain(format!(".{domain}"), false),
                None => Hosts::Domain(format!(".{host}"), true),
            }
        }
    };
    Some(Exemption { hosts, port })
}

/// Parses the address of a proxy, with user and password, if any. The scheme defaults to `http`.
pub fn proxy_address(value: &str) -> Option<Url> {
    let known = |url: &Url| url.has_host() && matches!(url.scheme(), "http" | "https" | "socks5" | "socks5h");
    let url = Url::parse(value).ok().filter(known);
    url.or_else(|| {
        Url::parse(&format!("http://{value}")).ok().filter(Url::has_host).filter(|_| !value.contains("://"))
    })
}

/// Status other than 200 with which an `http` proxy answers CONNECT to `target`. `None` without such an answer, or
/// if its login is percent-encoded.
pub(crate) async fn connect_status(proxy: &Url, target: &str) -> Option<u16> {
    let login = format!("{}:{}", proxy.username(), proxy.password().unwrap_or_default());
    if proxy.scheme() != "http" || login.contains('%') {
        return None;
    }
    let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if login != ":" {
        head += &format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode(login));
    }
    head += "\r\n";
    let ask = async {
        let address = (proxy.host_str()?, proxy.port_or_known_default()?);
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut answer = *b"HTTP/1.1 200";
        stream.read_exact(&mut answer).await.ok()?;
        str::from_utf8(&answer).ok()?.rsplit(' ').next()?.parse().ok()
    };
    timeout(CONNECT_TIMEOUT, ask).await.ok().flatten().filter(|status| *status != 200)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Case operations-e22
    #[test]
    fn no_proxy_entries_match_like_go() {
        for (exemptions, url, proxied) in [
            ("", "https://r.test/", true),
            ("", "https://127.0.0.1:5000/", false),
            ("", "https://127.8.9.1/", false),
            ("", "https://[::1]:5000/", false),
            ("", "https://localhost/", false),
            ("", "https://sub.localhost/", true),
            ("*", "https://r.test/", false),
            ("x, *", "https://r.test/", false),
            ("r.test", "https://r.test/", false),
            ("R.Test", "https://a.r.test/", false),
            ("r.test", "https://other.test/", true),
            ("r.test", "https://bar.test/", true),
            (".r.test", "https://r.test/", true),
            (".r.test", "https://a.r.test/", false),
            ("*.r.test", "https://a.r.test/", false),
            ("*.r.test", "https://r.test/", true),
            (".svc", "https://catalogd-service.olmv1-system.svc/", false),
            ("r.test:443", "https://r.test/", false),
            ("r.test:5000", "https://r.test/", true),
            ("r.test:5000", "https://r.test:5000/", false),
            ("r.test:x", "https://r.test/", true),
            ("10.0.0.0/8", "https://10.1.2.3/", false),
            ("10.0.0.0/8", "https://11.1.2.3/", true),
            ("10.0.0.0/40", "https://10.1.2.3/", true),
            ("0.0.0.0/0", "https://11.1.2.3/", false),
            ("10.1.2.3", "https://10.1.2.3/", false),
            ("10.1.2.3:5000", "https://10.1.2.3/", true),
            ("10.1.2.3:443", "https://10.1.2.3/", false),
            ("fd00::/8", "https://[fd00::1]/", false),
            ("[fd00::1]:443", "https://[fd00::1]/", false),
            ("fd00::1", "https://[fd00::1]:5000/", false),
            (",,", "https://r.test/", true),
        ] {
            let proxies = Proxies::new(None, proxy_address("proxy:3128"), exemptions);
            let url = url.parse().unwrap();
            assert_eq!(proxies.proxy_for(&url).is_some(), proxied, "{exemptions} {url}");
        }
    }

    #[test]
    fn http_and_https_use_their_own_proxy() {
        let proxies =
            Proxies::new(proxy_address("http://u:s3cret@plain:1"), proxy_address("https://tls:2"), "");
        let proxy = |url: &str| proxies.proxy_for(&url.parse().unwrap()).map(authority);
        assert_eq!(proxy("http://r.test/"), Some("plain:1".to_owned()));
        assert_eq!(proxy("https://r.test/"), Some("tls:2".to_owned()));
        assert!(!format!("{proxies:?}").contains("s3cret"));
    }

    #[test]
    fn proxy_address_scheme_defaults_to_http() {
        for (value, expected) in [
            ("proxy:3128", Some("http://proxy:3128/")),
            ("proxy", Some("http://proxy/")),
            ("10.0.0.1:3128", Some("http://10.0.0.1:3128/")),
            ("https://proxy", Some("https://proxy/")),
            ("socks5://proxy", Some("socks5://proxy")),
            ("ftp://proxy", None),
            ("", None),
        ] {
            assert_eq!(proxy_address(value).map(String::from).as_deref(), expected, "{value}");
        }
    }

    proptest! {
        #[test]
        fn any_exemption_list_parses_without_panic(list in ".{0,40}", host in "[a-z0-9.]{1,12}") {
            if let Ok(url) = Url::parse(&format!("https://{host}/")) {
                let _ = Proxies::new(None, proxy_address("proxy"), &list).proxy_for(&url);
            }
        }
    }
}
