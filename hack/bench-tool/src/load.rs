//! Clients that read over TLS with persistent connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use reqwest::header::HeaderMap;
use rustls::crypto::aws_lc_rs;
use rustls::{CipherSuite, RootCertStore};

use crate::setup::Catalogd;

/// Number of concurrent connections.
pub(crate) const CONNECTIONS: usize = 16;
const DEADLINE: Duration = Duration::from_secs(60);

/// Client that trusts `ca` (PEM) and offers cipher suites in the order of Go's clients.
pub(crate) fn client(ca: &str) -> Result<reqwest::Client> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let builder = reqwest::Client::builder().tls_backend_preconfigured(config).timeout(DEADLINE).no_proxy();
    Ok(builder.build()?)
}

/// Metadata of a response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) length: u64,
    pub(crate) first_byte: Duration,
    pub(crate) took: Duration,
}

/// Reads the response of `server` for `path` to its end and discards the body.
pub(crate) async fn get(server: &Catalogd, path: &str, headers: &HeaderMap) -> Result<Answer> {
    get_url(&server.client, &server.url(path), headers).await
}

async fn get_url(client: &reqwest::Client, url: &str, headers: &HeaderMap) -> Result<Answer> {
    let started = Instant::now();
    let mut response =
        client.get(url).headers(headers.clone()).send().await.with_context(|| url.to_owned())?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let (mut length, mut first_byte) = (0, None);
    while let Some(chunk) = response.chunk().await.with_context(|| url.to_owned())? {
        first_byte.get_or_insert_with(|| started.elapsed());
        length += chunk.len() as u64;
    }
    let took = started.elapsed();
    Ok(Answer { status, headers, length, first_byte: first_byte.unwrap_or(took), took })
}

/// Durations of the responses to all clients.
#[derive(Clone, Debug)]
pub(crate) struct Rates {
    /// Duration of each response, ascending.
    took: Vec<Duration>,
    over: Duration,
    /// Size of one response in bytes.
    pub(crate) length: u64,
}

impl Rates {
    pub(crate) fn count(&self) -> usize {
        self.took.len()
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.took.len() as f64 / self.over.as_secs_f64()
    }

    /// Duration within which this share of the responses arrived.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let last = self.took.len().saturating_sub(1);
        self.took.get((last as f64 * share) as usize).copied().unwrap_or_default()
    }

    /// Formats the rates as a note of the table.
    pub(crate) fn note(&self) -> String {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let all: Duration = self.took.iter().sum();
        format!(
            "{:.0} kB, mean {:.2} ms, p99 {:.2} ms, {:.2} GB/s",
            self.length as f64 / 1e3,
            milliseconds(all) / self.took.len().max(1) as f64,
            milliseconds(self.quantile(0.99)),
            self.length as f64 * self.per_second() / 1e9
        )
    }
}

/// Requests `path` repeatedly from [`CONNECTIONS`] clients until `end` completes. Ignores the responses of the first
/// `warm_up`.
pub(crate) async fn load(
    server: &Catalogd,
    path: &str,
    warm_up: Duration,
    end: impl Future<Output = Result<()>>,
) -> Result<Rates> {
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let counted_from = Instant::now() + warm_up;
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (client, url, stopped) = (server.client.clone(), server.url(path), stopped.clone());
            tokio::spawn(async move {
                let (mut took, mut length) = (Vec::new(), 0);
                while !*stopped.borrow() {
                    let started = Instant::now();
                    let answer = get_url(&client, &url, &HeaderMap::new()).await?;
                    ensure!(answer.status == 200, "{url}: status {}", answer.status);
                    if started >= counted_from {
                        took.push(answer.took);
                    }
                    length = answer.length;
                }
                Ok((took, length))
            })
        })
        .collect();
    let ended = end.await;
    let over = counted_from.elapsed();
    stop.send_replace(true);
    let mut rates = Rates { took: Vec::new(), over, length: 0 };
    for client in clients {
        let (took, length) = client.await??;
        rates.took.extend(took);
        rates.length = length;
    }
    rates.took.sort_unstable();
    ended.map(|()| rates)
}
