//! Requests to catalogd: single packages from `/api/v1/metas`, or the whole catalog from `/api/v1/all`
//! (docs/design/resolution.md#fetch-errors, docs/design/resolution.md#complete-answers). An answer is used only if
//! it is complete and of the expected digest.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use olm_api::text::with_causes;
use olm_oci::Proxies;
use olm_resolve::CatalogError;
use reqwest::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use reqwest::{Client, Response, StatusCode, Url};
use tokio::time::timeout;
use tokio_util::io::{StreamReader, SyncIoBridge};
use tokio_util::sync::CancellationToken;

use super::content::{CatalogContent, PACKAGE_BYTES, WriteError, Writer};
use super::generation::Generation;

/// Maximum bytes of one catalog.
const CATALOG_BYTES: u64 = 2 << 30;
/// Maximum time without data from catalogd. The whole request has the deadline of the client, 5 minutes.
const IDLE_DEADLINE: Duration = Duration::from_secs(30);
/// Maximum number of connections per request.
const ATTEMPTS: usize = 4;
/// Response header with the image digest of the content, as `sha256:…`. Only our catalogd sends it.
const CATALOG_DIGEST: &str = "olm-catalog-digest";
/// Number of consecutive answers with another digest than the status has, before users are notified. A short
/// difference is normal.
const MISMATCH_ATTEMPTS: u32 = 10;

/// Error of a fetch.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct FetchError {
    message: String,
    /// `true` if it is reported to extensions until an attempt succeeds.
    is_reported: bool,
    /// `true` if the cause is in this content, so that other packages can be fetched.
    pub(super) is_of_content: bool,
    /// `true` if the disk is the cause.
    pub(super) is_of_disk: bool,
    /// `true` if the same content can only fail again.
    pub(super) is_final: bool,
}

impl FetchError {
    fn reported(message: String) -> Self {
        Self { message, is_reported: true, is_of_content: false, is_of_disk: false, is_final: false }
    }

    /// Error that is not kept: another replica, or the same one a moment later, may answer differently.
    pub(super) fn unreported(message: String) -> Self {
        Self { is_reported: false, ..Self::reported(message) }
    }

    /// The same error for content that is the whole catalog.
    pub(super) fn of_everything(self) -> Self {
        Self { is_of_content: false, ..self }
    }

    /// The error as extensions report it.
    pub(super) fn failure(&self, catalog: &str) -> CatalogError {
        let catalog = catalog.to_owned();
        match self.is_reported {
            true => CatalogError::Cache { catalog, fault: self.message.clone() },
            false => CatalogError::NotCached(catalog),
        }
    }
}

impl From<WriteError> for FetchError {
    fn from(error: WriteError) -> Self {
        let is_final = matches!(error, WriteError::Size(_) | WriteError::Index(_));
        // A truncated answer counts as invalid content.
        let is_of_content = is_final || matches!(error, WriteError::Content(_));
        Self { is_of_content, is_of_disk: !is_of_content, is_final, ..Self::reported(error.to_string()) }
    }
}

/// Result of a request for a single package.
pub(super) enum SinglePackage {
    /// Cached on disk.
    Cached,
    /// This catalogd does not serve single packages of the expected digest, for this reason.
    NotOffered(String),
}

/// Catalog at a catalogd.
pub(super) struct CatalogEndpoint {
    /// Client that trusts the certificate of catalogd.
    pub(super) client: Client,
    /// Name of the catalog.
    pub(super) catalog: String,
    /// `status.urls.base` of the catalog.
    pub(super) base: String,
    /// Permitted hosts of `base`.
    pub(super) hosts: Hosts,
    /// Cancels the requests in progress.
    pub(super) stop: CancellationToken,
}

impl CatalogEndpoint {
    /// Fetches one package: its objects and its `olm.package` object, which the package query does not return.
    pub(super) async fn fetch_package(
        &self,
        generation: &Generation,
        package: &str,
    ) -> Result<SinglePackage, FetchError> {
        let Some(digest) = generation.digest() else {
            return Ok(SinglePackage::NotOffered("the resolved reference has no digest".to_owned()));
        };
        let queries: [&[(&str, &str)]; 2] =
            [&[("package", package)], &[("schema", olm_fbc::SCHEMA_PACKAGE), ("name", package)]];
        let mut answers = Vec::new();
        for query in queries {
            let answer = self.get("metas", query).await?;
            let status = answer.status();
            match served_digest(&answer) {
                _ if status == StatusCode::SERVICE_UNAVAILABLE => return Err(unexpected(status)),
                _ if status != StatusCode::OK => {
                    return Ok(SinglePackage::NotOffered(format!("status code {}", status.as_u16())));
                }
                None => return Ok(SinglePackage::NotOffered(format!("no header {CATALOG_DIGEST}"))),
                Some(served) if served != digest => return Err(digest_mismatch(generation, served, digest)),
                Some(_) => answers.push(answer),
            }
        }
        self.write(generation, Some(package), answers).await?;
        Ok(SinglePackage::Cached)
    }

    /// Fetches the whole catalog.
    pub(super) async fn fetch_whole(&self, generation: &Generation) -> Result<CatalogContent, FetchError> {
        let answer = self.get("all", &[]).await?;
        if answer.status() != StatusCode::OK {
            return Err(unexpected(answer.status()));
        }
        match (served_digest(&answer), generation.digest()) {
            (Some(served), Some(digest)) if served != digest => {
                Err(digest_mismatch(generation, served, digest))
            }
            _ => self.write(generation, None, vec![answer]).await,
        }
    }

    async fn get(&self, endpoint: &str, query: &[(&str, &str)]) -> Result<Response, FetchError> {
        let url = self.hosts.endpoint(&self.base, &self.catalog, endpoint).map_err(|fault| {
            FetchError::reported(format!(
                "error forming request: error forming catalogd API endpoint: {fault}"
            ))
        })?;
        // Without the query, so that all packages fail with the same message.
        let failed =
            |cause: &str| FetchError::reported(format!("error performing request: Get \"{url}\": {cause}"));
        let mut requested = url.clone();
        if !query.is_empty() {
            requested.query_pairs_mut().extend_pairs(query);
        }
        let send = || timeout(IDLE_DEADLINE, self.client.get(requested.clone()).send());
        let mut answer = send().await;
        // A replica may close a connection at the moment of its reuse, or be lost with its node. Each new
        // connection may reach another replica.
        for _ in 1..ATTEMPTS {
            if !matches!(answer, Ok(Err(_))) {
                break;
            }
            answer = send().await;
        }
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(failed(&Proxies::of_process().cause_of(&requested, &error))),
            Err(_) => Err(failed(&silence())),
        }
    }

    async fn write(
        &self,
        generation: &Generation,
        package: Option<&str>,
        answers: Vec<Response>,
    ) -> Result<CatalogContent, FetchError> {
        let bodies: Vec<_> = answers.into_iter().map(|answer| body(answer, self.stop.clone())).collect();
        let (staging, place) = generation.paths(package);
        let (reference, package) = (generation.reference.clone(), package.map(str::to_owned));
        let limit = if package.is_some() { PACKAGE_BYTES } else { CATALOG_BYTES };
        let write = tokio::task::spawn_blocking(move || {
            let mut writer = Writer::create(staging, place, package.as_deref(), limit)?;
            bodies.into_iter().try_for_each(|body| writer.take_in(body))?;
            writer.finish(&reference)
        });
        Ok(write.await.map_err(|error| FetchError::reported(error.to_string()))??)
    }
}

/// Hosts of catalogd, so that a status does not lead requests elsewhere.
#[derive(Clone, Debug)]
pub struct Hosts(Arc<[String]>);

impl Hosts {
    /// The hosts that `flag` lists, separated by commas, or else those of catalogd's Service in `namespace`. One with
    /// prefix `http://` is reached without TLS, one with a port only at this port.
    pub fn new(flag: &str, namespace: &str) -> Self {
        let service =
            ["", ".cluster.local"].map(|zone| format!("catalogd-service.{namespace}.svc{zone}:443"));
        let given = flag.split(',').map(str::to_owned);
        Self(if flag.is_empty() { service.into() } else { given.collect() })
    }

    /// Address of an endpoint of `catalog`. `base` must be the address of its content at a permitted host: with another
    /// path, the content of one catalog would be used for another one.
    fn endpoint(&self, base: &str, catalog: &str, endpoint: &str) -> Result<Url, String> {
        let mut url = Url::parse(base).map_err(|error| error.to_string())?;
        if !self.0.iter().any(|permitted| is_at(&url, permitted)) {
            let hosts = self.0.join(", ");
            return Err(format!(
                "{url} is not an https address of {hosts}; --catalogd-hosts permits other hosts"
            ));
        }
        let path = format!("/catalogs/{catalog}");
        let expected = format!("{}{path}", url.origin().ascii_serialization());
        if url.as_str() != expected {
            return Err(format!("{url} is not the address of catalog {catalog:?}, {expected}"));
        }
        url.set_path(&format!("{path}/api/v1/{endpoint}"));
        Ok(url)
    }
}

fn is_at(url: &Url, permitted: &str) -> bool {
    let (scheme, permitted) =
        permitted.strip_prefix("http://").map_or(("https", permitted), |permitted| ("http", permitted));
    let host = url.host_str().unwrap_or_default();
    let at_port = url.port_or_known_default().map(|port| format!("{host}:{port}"));
    url.scheme() == scheme && (permitted == host || at_port.as_deref() == Some(permitted))
}

fn served_digest(answer: &Response) -> Option<&str> {
    answer.headers().get(CATALOG_DIGEST)?.to_str().ok()
}

fn unexpected(status: StatusCode) -> FetchError {
    FetchError::unreported(format!("error: received unexpected response status code {}", status.as_u16()))
}

/// Error of an answer with another digest than the status has.
fn digest_mismatch(generation: &Generation, served: &str, requested: &str) -> FetchError {
    let message = format!("error: catalogd serves content of {served} instead of {requested}");
    if generation.count_digest_mismatch() < MISMATCH_ATTEMPTS {
        FetchError::unreported(message)
    } else {
        FetchError::reported(message)
    }
}

fn silence() -> String {
    format!("no answer within {} s", IDLE_DEADLINE.as_secs())
}

/// Body of an answer, for a blocking thread. An end that cannot be distinguished from a broken connection is an
/// error, as is silence.
fn body(answer: Response, stop: CancellationToken) -> impl Read + Send {
    let headers = answer.headers();
    let is_delimited = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
    let chunks = stream::try_unfold((answer, stop), move |(mut answer, stop)| async move {
        if !is_delimited {
            return Err(io::Error::other(
                "the response has neither Content-Length nor chunked encoding, so it may be truncated",
            ));
        }
        let chunk = tokio::select! {
            () = stop.cancelled() => return Err(io::Error::other("the content is no longer requested")),
            chunk = timeout(IDLE_DEADLINE, answer.chunk()) => chunk.map_err(|_| io::Error::other(silence()))?,
        };
        let chunk = chunk.map_err(|error| io::Error::other(with_causes(&error.without_url())))?;
        Ok(chunk.map(|chunk| (chunk, (answer, stop))))
    });
    SyncIoBridge::new(StreamReader::new(Box::pin(chunks)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // docs/design/resolution.md#address-of-catalogd
    #[test]
    fn only_content_of_the_catalog_at_permitted_hosts_is_reached_and_only_with_tls() {
        let service = Hosts::new("", "olmv1-system");
        let given = Hosts::new("c.example,d.example:8443,http://127.0.0.1", "olmv1-system");
        let rows: [(&Hosts, &str, bool); 23] = [
            (&service, "https://catalogd-service.olmv1-system.svc/catalogs/a", true),
            (&service, "https://catalogd-service.olmv1-system.svc:443/catalogs/a", true),
            (&service, "https://catalogd-service.olmv1-system.svc.cluster.local/catalogs/a", true),
            (&service, "https://catalogd-service.olmv1-system.svc:8443/catalogs/a", false),
            (&service, "http://catalogd-service.olmv1-system.svc/catalogs/a", false),
            (&service, "https://catalogd-service.other.svc/catalogs/a", false),
            (&service, "https://catalogd-service.olmv1-system.svc.evil.example/catalogs/a", false),
            (&service, "https://catalogd-service.olmv1-system.svc@evil.example/catalogs/a", false),
            (&service, "https://169.254.169.254/catalogs/a", false),
            (&service, "file:///catalogd-service.olmv1-system.svc", false),
            // Another catalog, in each form.
            (&service, "https://catalogd-service.olmv1-system.svc/catalogs/b", false),
            (&service, "https://catalogd-service.olmv1-system.svc/catalogs/b/api/v1/all?/catalogs/a", false),
            (&service, "https://catalogd-service.olmv1-system.svc/catalogs/a?b", false),
            (&service, "https://catalogd-service.olmv1-system.svc/catalogs/a#b", false),
            (&service, "https://catalogd-service.olmv1-system.svc/catalogs/a/", false),
            (&service, "https://catalogd-service.olmv1-system.svc/catalogs/a/%2e%2e/b", false),
            (&service, "https://u:p@catalogd-service.olmv1-system.svc/catalogs/a", false),
            (&given, "https://c.example:8443/catalogs/a", true),
            (&given, "http://c.example/catalogs/a", false),
            (&given, "https://d.example/catalogs/a", false),
            (&given, "http://127.0.0.1:8083/catalogs/a", true),
            (&given, "https://127.0.0.1:8083/catalogs/a", false),
            (&given, "https://catalogd-service.olmv1-system.svc/catalogs/a", false),
        ];
        for (hosts, base, expected) in rows {
            let got = hosts.endpoint(base, "a", "metas");
            let expected = expected.then(|| format!("{}/api/v1/metas", base.replace(":443", "")));
            assert_eq!(got.ok().map(String::from), expected, "{base}");
        }
        assert!(service.endpoint("catalogs/a", "a", "all").is_err());
        for (base, message) in [
            (
                "https://evil.example/catalogs/a",
                "https://evil.example/catalogs/a is not an https address of c.example, d.example:8443, \
                 http://127.0.0.1; --catalogd-hosts permits other hosts",
            ),
            (
                "https://c.example/catalogs/b",
                "https://c.example/catalogs/b is not the address of catalog \"a\", https://c.example/catalogs/a",
            ),
        ] {
            assert_eq!(given.endpoint(base, "a", "all").unwrap_err(), message);
        }
    }
}
