//! The CA certificates with which a client trusts catalogd, and a client that follows their changes
//! (docs/design/operations.md#ca-pools): the files of one directory and the built-in CA bundle, or else system roots.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use olm_runtime::metrics::Metrics;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::certificate::{CertificateError, FILE_POLL, certificates, read_limited};
use crate::tls_profile::TlsProfile;

/// Timeout of a whole request (docs/design/operations.md#proxies).
const REQUEST_DEADLINE: Duration = Duration::from_secs(300);
/// Timeout of connecting. A replica on a lost node does not answer: callers connect again, and may reach another
/// one.
const CONNECT_DEADLINE: Duration = Duration::from_secs(3);
/// Maximum time that sent bytes stay unacknowledged on an open connection.
const ACKNOWLEDGE_DEADLINE: Duration = Duration::from_secs(10);

/// Interval between two checks of the system's files, of which there may be hundreds.
const SYSTEM_POLL: Duration = Duration::from_secs(60);

/// Path, size and modification time of files.
type Fingerprint = Vec<(PathBuf, u64, Option<SystemTime>)>;

/// Error of building a pool.
#[derive(Debug, thiserror::Error)]
pub enum CaPoolError {
    /// The directory has no certificate.
    #[error("no certificates found in {0:?}")]
    Empty(PathBuf),
    /// The directory, or a file in it, cannot be read.
    #[error(transparent)]
    File(#[from] CertificateError),
    /// The TLS profile cannot be used by a client.
    #[error("TLS client: {0}")]
    Tls(#[from] rustls::Error),
    /// The HTTP client cannot be created.
    #[error("HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

/// Sources of trusted CA certificates.
#[derive(Debug)]
pub struct CaSources {
    /// Returns the files with the system's CAs, which are trusted if there is no other source. Files that cannot be
    /// read or have no certificate are skipped.
    pub system: fn() -> Vec<PathBuf>,
    /// Value of `--catalogd-cas-dir`: every file in it is read.
    pub directory: Option<PathBuf>,
    /// The bundle of built-in certificates, see [`crate::builtin::BuiltinCertificates::ca_bundle`].
    pub bundle: Option<watch::Receiver<Vec<u8>>>,
}

impl CaSources {
    fn system(&self) -> Vec<PathBuf> {
        if self.directory.is_none() && self.bundle.is_none() { (self.system)() } else { Vec::new() }
    }
}

/// A CA pool that is rebuilt when its sources change.
#[derive(Debug)]
pub struct CaPool {
    sources: CaSources,
    profile: TlsProfile,
    proxy: Option<reqwest::Proxy>,
    client: ArcSwap<reqwest::Client>,
}

impl CaPool {
    /// Reads the sources and creates the first client, which sends requests through `proxy`, if any.
    ///
    /// # Errors
    /// A source cannot be read, or the directory has no certificate.
    pub fn load(
        sources: CaSources,
        profile: TlsProfile,
        proxy: Option<reqwest::Proxy>,
    ) -> Result<Self, CaPoolError> {
        let client = ArcSwap::from_pointee(build(&sources, &profile, proxy.as_ref())?);
        Ok(Self { sources, profile, proxy, client })
    }

    /// The client of the current pool: HTTP/1.1, pooled connections, 5 minutes for a whole request.
    pub fn client(&self) -> reqwest::Client {
        self.client.load().as_ref().clone()
    }

    /// Rebuilds the pool when a source changes, until `stop`. On an error the previous pool stays in use, and the
    /// failure is counted under `name`.
    pub async fn follow(self: Arc<Self>, name: &'static str, metrics: Arc<Metrics>, stop: CancellationToken) {
        metrics.create_pool_series(name);
        let mut bundle = self.sources.bundle.clone();
        let (mut system, mut system_at) = (self.system_fingerprint(), Instant::now());
        let mut seen = (system.clone(), self.directory_fingerprint());
        loop {
            let bundle_changed = async {
                if let Some(receiver) = &mut bundle
                    && receiver.changed().await.is_ok()
                {
                    return true;
                }
                std::future::pending().await
            };
            let is_new_bundle = tokio::select! {
                () = stop.cancelled() => return,
                changed = bundle_changed => changed,
                () = tokio::time::sleep(FILE_POLL) => false,
            };
            if system_at.elapsed() >= SYSTEM_POLL {
                (system, system_at) = (self.system_fingerprint(), Instant::now());
            }
            let fingerprint = (system.clone(), self.directory_fingerprint());
            if !is_new_bundle && fingerprint == seen {
                continue;
            }
            match build(&self.sources, &self.profile, self.proxy.as_ref()) {
                Ok(client) => {
                    self.client.store(Arc::new(client));
                    seen = fingerprint;
                    tracing::info!(pool = name, "rebuilt CA pool");
                }
                Err(error) => {
                    metrics.pool_failed(name);
                    tracing::error!(%error, pool = name, "failed to rebuild CA pool, keeping the previous one");
                }
            }
        }
    }

    fn system_fingerprint(&self) -> Fingerprint {
        fingerprint(self.sources.system())
    }

    fn directory_fingerprint(&self) -> Fingerprint {
        let directory = self.sources.directory.as_deref();
        fingerprint(directory.and_then(|directory| files(directory).ok()).unwrap_or_default())
    }
}

fn fingerprint(paths: Vec<PathBuf>) -> Fingerprint {
    let identify = |path: PathBuf| {
        let metadata = std::fs::metadata(&path).ok();
        let length = metadata.as_ref().map_or(0, std::fs::Metadata::len);
        (path, length, metadata.and_then(|metadata| metadata.modified().ok()))
    };
    paths.into_iter().map(identify).collect()
}

fn build(
    sources: &CaSources,
    profile: &TlsProfile,
    proxy: Option<&reqwest::Proxy>,
) -> Result<reqwest::Client, CaPoolError> {
    let mut trusted = HashSet::new();
    for pem in
        sources.system().iter().filter(|path| path.is_file()).filter_map(|path| read_limited(path).ok())
    {
        trusted.extend(certificates(&pem));
    }
    if let Some(directory) = &sources.directory {
        let failed = |source| CertificateError::Read { path: directory.clone(), source };
        let mut found = Vec::new();
        for file in files(directory).map_err(failed)? {
            found.extend(certificates(&read_limited(&file)?));
        }
        if found.is_empty() {
            return Err(CaPoolError::Empty(directory.clone()));
        }
        trusted.extend(found);
    }
    if let Some(bundle) = &sources.bundle {
        trusted.extend(certificates(&bundle.borrow()));
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted);
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&profile.provider))
        .with_protocol_versions(&profile.versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .http1_only()
        .no_proxy()
        // catalogd does not redirect.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_DEADLINE)
        .tcp_user_timeout(ACKNOWLEDGE_DEADLINE)
        .timeout(REQUEST_DEADLINE);
    Ok(proxy.cloned().into_iter().fold(client, reqwest::ClientBuilder::proxy).build()?)
}

/// All files in a directory, sorted. Links are followed.
fn files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::tls_profile::{ProfileName, TlsVersion};

    #[test]
    fn directory_without_certificates_fails_load() {
        let profile = TlsProfile::new(ProfileName::Modern, TlsVersion::Tls12, &[], &[]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let load = || {
            let sources =
                CaSources { system: Vec::new, directory: Some(dir.path().to_owned()), bundle: None };
            CaPool::load(sources, profile.clone(), None).map_err(|error| error.to_string())
        };
        assert_eq!(load().err(), Some(format!("no certificates found in {:?}", dir.path())));
        std::fs::write(dir.path().join("note.txt"), "no certificate").unwrap();
        assert!(load().is_err());
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(dir.path().join("ca.pem"), made.cert.pem()).unwrap();
        let pool = load().unwrap();
        let before = pool.directory_fingerprint();
        std::fs::write(dir.path().join("second.crt"), made.cert.pem()).unwrap();
        assert_ne!(pool.directory_fingerprint(), before);
    }

    // docs/design/operations.md#ca-pools
    #[tokio::test]
    async fn system_roots_are_trusted_only_without_configured_authorities() {
        static SYSTEM: LazyLock<tempfile::NamedTempFile> =
            LazyLock::new(|| tempfile::NamedTempFile::new().unwrap());
        let profile = TlsProfile::new(ProfileName::Modern, TlsVersion::Tls12, &[], &[]).unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(SYSTEM.path(), made.cert.pem()).unwrap();
        let other = tempfile::tempdir().unwrap();
        let another = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(other.path().join("ca.pem"), another.cert.pem()).unwrap();
        let key = made.signing_key.serialize_der().try_into().unwrap();
        let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&profile.provider))
            .with_protocol_versions(&profile.versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let (server, listener) = (Arc::new(server), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
        for (directory, bundle, is_trusted) in [
            (None, None, true),
            (Some(other.path().to_owned()), None, false),
            (None, Some(watch::channel(Vec::new()).1), false),
        ] {
            let sources = CaSources { system: || vec![SYSTEM.path().to_owned()], directory, bundle };
            let client = CaPool::load(sources, profile.clone(), None).unwrap().client();
            let (server, listener) = (Arc::clone(&server), listener.try_clone().unwrap());
            let handshake = tokio::task::spawn_blocking(move || {
                let mut stream = listener.accept().unwrap().0;
                rustls::ServerConnection::new(server).unwrap().complete_io(&mut stream).is_ok()
            });
            let _ = client.get(&url).send().await;
            assert_eq!(handshake.await.unwrap(), is_trusted);
        }
    }

    // docs/design/operations.md#ca-pools; case operations-e8
    #[tokio::test(start_paused = true)]
    async fn failed_rebuild_keeps_previous_pool() {
        let profile = TlsProfile::new(ProfileName::Modern, TlsVersion::Tls12, &[], &[]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(&file, made.cert.pem()).unwrap();
        let sources = CaSources { system: Vec::new, directory: Some(dir.path().to_owned()), bundle: None };
        let pool = Arc::new(CaPool::load(sources, profile, None).unwrap());
        let (metrics, stop) = (Arc::new(Metrics::new()), CancellationToken::new());
        let following = Arc::clone(&pool).follow("catalogd", Arc::clone(&metrics), stop.clone());
        let following = tokio::spawn(following);
        let before = pool.client.load_full();
        let is_kept = || Arc::ptr_eq(&before, &pool.client.load_full());
        tokio::time::sleep(FILE_POLL / 2).await;
        std::fs::remove_file(&file).unwrap();
        tokio::time::sleep(FILE_POLL).await;
        let failed = "certpool_reload_errors_total{pool=\"catalogd\"} 1";
        assert!(metrics.prometheus_text().lines().any(|line| line == failed) && is_kept());
        std::fs::write(&file, made.cert.pem()).unwrap();
        std::fs::write(dir.path().join("second.pem"), made.cert.pem()).unwrap();
        tokio::time::sleep(FILE_POLL).await;
        assert!(!is_kept());
        stop.cancel();
        following.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn changed_system_roots_rebuild_the_pool_within_a_minute() {
        static FILE: LazyLock<tempfile::NamedTempFile> =
            LazyLock::new(|| tempfile::NamedTempFile::new().unwrap());
        let profile = TlsProfile::new(ProfileName::Modern, TlsVersion::Tls12, &[], &[]).unwrap();
        let sources = CaSources { system: || vec![FILE.path().to_owned()], directory: None, bundle: None };
        let pool = Arc::new(CaPool::load(sources, profile, None).unwrap());
        let (metrics, stop) = (Arc::new(Metrics::new()), CancellationToken::new());
        let following = tokio::spawn(Arc::clone(&pool).follow("catalogd", metrics, stop.clone()));
        let before = pool.client.load_full();
        tokio::time::sleep(FILE_POLL / 2).await;
        std::fs::write(FILE.path(), "another root").unwrap();
        tokio::time::sleep(FILE_POLL).await;
        assert!(Arc::ptr_eq(&before, &pool.client.load_full()));
        tokio::time::sleep(SYSTEM_POLL).await;
        assert!(!Arc::ptr_eq(&before, &pool.client.load_full()));
        stop.cancel();
        following.await.unwrap();
    }

    #[tokio::test]
    async fn requests_use_given_proxy() {
        let profile = TlsProfile::new(ProfileName::Modern, TlsVersion::Tls12, &[], &[]).unwrap();
        let sources = CaSources { system: Vec::new, directory: None, bundle: None };
        let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", proxy.local_addr().unwrap());
        let pool = CaPool::load(sources, profile, Some(reqwest::Proxy::all(address).unwrap())).unwrap();
        let asked = async {
            let (mut stream, _) = proxy.accept().await.unwrap();
            let mut start = [0; 32];
            tokio::io::AsyncReadExt::read_exact(&mut stream, &mut start).await.unwrap();
            String::from_utf8_lossy(&start).into_owned()
        };
        let client = pool.client();
        let (answer, asked) = tokio::join!(client.get("https://catalogd.test/").send(), asked);
        assert!(answer.is_err());
        assert_eq!(asked, "CONNECT catalogd.test:443 HTTP/1");
    }
}
