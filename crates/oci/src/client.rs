//! HTTP clients for registries: one for each set of certificates, rebuilt when files change.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{AUTHORIZATION, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Method, Request, RequestBuilder, Response, Url};
use rustls::RootCertStore;

use crate::Config;
use crate::certificates::{Folder, SystemRoots};
use crate::deny_list::GuardedResolver;
use crate::proxies::connect_status;
use crate::request_error::{RequestError, authority};
use crate::verifier::tls_config;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const USER_AGENT: &str = concat!("olm/", env!("CARGO_PKG_VERSION"));
const MAX_REDIRECTS: usize = 10;
/// Cached clients: one for each registry with its own certificates, doubled for insecure access.
const MAX_CLIENTS: usize = 32;

/// HTTP client that follows redirects itself and describes network errors.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    config: Arc<Config>,
}

impl Client {
    pub(crate) fn request(&self, method: &Method, url: &str) -> RequestBuilder {
        self.http.request(method.clone(), url)
    }

    /// Sends `request`, which was built for `method` and `url`, and follows redirects of GET and HEAD.
    ///
    /// Redirects are not left to reqwest: it restores the login at the second redirect after it dropped it at the
    /// first.
    pub(crate) async fn send(
        &self,
        request: RequestBuilder,
        method: &Method,
        url: &str,
    ) -> Result<Response, RequestError> {
        let mut url = url.to_owned();
        let mut request =
            request.build().map_err(|error| RequestError::network(method, &url, &error, None))?;
        for _ in 0..=MAX_REDIRECTS {
            let allowed = self.config.denied.check_url(&url);
            allowed.map_err(|denied| RequestError::fatal(denied.to_string()).in_request(method, &url))?;
            let copy = request.try_clone();
            let response = match self.http.execute(request).await {
                Ok(response) => response,
                Err(error) => return Err(self.failed(method, &url, &error).await),
            };
            match copy.and_then(|copy| redirected(copy, &response)) {
                None => return Ok(response),
                Some(next) => request = next,
            }
            url = request.url().to_string();
        }
        let fault = format!("stopped after {MAX_REDIRECTS} redirects");
        Err(RequestError::fatal(fault).in_request(method, &url))
    }

    async fn failed(&self, method: &Method, url: &str, error: &reqwest::Error) -> RequestError {
        let target = Url::parse(url).ok();
        let proxy = target.as_ref().and_then(|url| self.config.proxies.proxy_for(url));
        let failed = RequestError::network(method, url, error, proxy);
        match (proxy, &target) {
            (Some(proxy), Some(target)) if failed.is_tunnel_refusal() => {
                failed.with_proxy_status(connect_status(proxy, &authority(target)).await)
            }
            _ => failed,
        }
    }
}

/// Next request if `response` is a redirect. The login is removed for good when the origin changes. A POST is never
/// redirected, since its body holds secrets.
fn redirected(mut request: Request, response: &Response) -> Option<Request> {
    let leads_on = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    if !leads_on || *request.method() == Method::POST {
        return None;
    }
    let location = response.headers().get(LOCATION)?;
    let next = request.url().join(std::str::from_utf8(location.as_bytes()).ok()?).ok()?;
    if next.origin() != request.url().origin() {
        request.headers_mut().remove(AUTHORIZATION);
    }
    *request.url_mut() = next;
    Some(request)
}

struct CachedClient {
    folder: Folder,
    insecure: bool,
    system: Arc<RootCertStore>,
    http: reqwest::Client,
}

/// Cache of clients, so that connections are reused.
pub(crate) struct Clients {
    config: Arc<Config>,
    /// Directories that hold one folder for each registry.
    certs: Vec<PathBuf>,
    system: SystemRoots,
    cached: Mutex<Vec<CachedClient>>,
}

impl Clients {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        let paths = &config.paths;
        let certs = paths.containers.iter().map(|folder| folder.join("certs.d"));
        let certs = certs.chain(paths.certs.iter().cloned()).collect();
        Self { config, certs, system: SystemRoots::default(), cached: Mutex::default() }
    }

    /// Client for the registry `host[:port]` with the current certificates. Blocks briefly on small local files.
    ///
    /// # Errors
    /// A folder cannot be read, or a client certificate in it cannot be used.
    pub(crate) fn client(&self, host: &str, insecure: bool) -> Result<Client, String> {
        let (folder, system) = (self.folder(host)?, self.system.load());
        let mut cached = self.cached.lock();
        let is_hit = |client: &&CachedClient| {
            client.folder == folder && client.insecure == insecure && Arc::ptr_eq(&client.system, &system)
        };
        let http = match cached.iter().find(is_hit) {
            Some(client) => client.http.clone(),
            None => {
                let http = self.build(&folder, insecure, &system)?;
                if cached.len() == MAX_CLIENTS {
                    cached.remove(0);
                }
                cached.push(CachedClient { folder, insecure, system, http: http.clone() });
                http
            }
        };
        Ok(Client { http, config: Arc::clone(&self.config) })
    }

    /// CA folder if configured, otherwise the first certificates folder that exists for `host`.
    fn folder(&self, host: &str) -> Result<Folder, String> {
        if let Some(folder) = &self.config.cas_dir {
            return Folder::read(folder, true)
                .map_err(|error| format!("reading CA folder {}: {error}", folder.display()));
        }
        for folder in self.certs.iter().map(|certs| certs.join(host)) {
            match Folder::read(&folder, false) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                read => {
                    return read.map_err(|error| {
                        format!("reading certificates folder {}: {error}", folder.display())
                    });
                }
            }
        }
        Ok(Folder::default())
    }

    fn build(
        &self,
        folder: &Folder,
        insecure: bool,
        system: &RootCertStore,
    ) -> Result<reqwest::Client, String> {
        let failed = |error: &dyn fmt::Display| format!("building the registry client: {error}");
        let provider = rustls::crypto::CryptoProvider::get_default()
            .ok_or_else(|| failed(&"no TLS provider is installed in this process"))?;
        let (authorities, identities) = (folder.authorities(), folder.identities()?);
        let tls = tls_config(Arc::clone(provider), system, authorities, identities, insecure)
            .map_err(|error| failed(&error))?;
        let Config { denied, proxies, read_timeout, .. } = &*self.config;
        let mut client = reqwest::Client::builder();
        if !denied.is_empty() {
            let (denied, proxies) = (denied.clone(), proxies.clone());
            client = client.dns_resolver(Arc::new(GuardedResolver { denied, proxies }));
        }
        client
            .tls_backend_preconfigured(tls)
            .http1_only()
            .https_only(!insecure)
            .redirect(Policy::none())
            .user_agent(USER_AGENT)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(*read_timeout)
            .proxy(proxies.chooser())
            .build()
            .map_err(|error| failed(&error))
    }
}
