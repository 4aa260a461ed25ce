//! HTTPS with the certificate files that OLM mounts. Reloads them when they change, without a restart.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Paths of certificate and key.
pub type Paths = (PathBuf, PathBuf);

/// Files that OLM mounts for webhooks.
#[must_use]
pub fn of_webhooks() -> Paths {
    in_folder(Path::new("/tmp/k8s-webhook-server/serving-certs"), "tls")
}

/// Files that OLM mounts for aggregated APIs.
#[must_use]
pub fn of_aggregated_apis() -> Paths {
    in_folder(Path::new("/apiserver.local.config/certificates"), "apiserver")
}

fn in_folder(folder: &Path, stem: &str) -> Paths {
    (folder.join(format!("{stem}.crt")), folder.join(format!("{stem}.key")))
}

/// Poll interval for the files.
const LOOK: Duration = Duration::from_secs(1);

/// Content of certificate and key.
type Pair = (Vec<u8>, Vec<u8>);

/// Serves `router` at `address` with the pair in `files` until `handle` stops it. With `clients`, only clients with a
/// certificate of these authorities can connect.
///
/// # Errors
/// There is no usable pair at the start, or the address cannot be bound.
pub async fn serve(
    address: SocketAddr,
    files: Paths,
    clients: Option<RootCertStore>,
    router: Router,
    handle: Handle<SocketAddr>,
) -> Result<()> {
    let (pair, clients) = (read(&files)?, clients.map(Arc::new));
    let config = RustlsConfig::from_config(server_config(&pair, clients.clone())?);
    let reloading = tokio::spawn(reload(config.clone(), files, clients, pair));
    let served = axum_server::bind_rustls(address, config).handle(handle).http1_only();
    let ended = served.serve(router.into_make_service()).await;
    reloading.abort();
    ended.with_context(|| format!("serving at {address}"))
}

async fn reload(config: RustlsConfig, files: Paths, clients: Option<Arc<RootCertStore>>, mut pair: Pair) {
    let mut again = tokio::time::interval(LOOK);
    loop {
        again.tick().await;
        // The kubelet replaces both files at once, but possibly between the two reads.
        let found = match read(&files) {
            Ok(found) if found != pair => found,
            Ok(_) => continue,
            Err(error) => {
                tracing::warn!("kept the previous certificate: {error:#}");
                continue;
            }
        };
        match server_config(&found, clients.clone()) {
            Ok(new) => {
                config.reload_from_config(new);
                pair = found;
                tracing::info!("reloaded the certificate");
            }
            Err(error) => tracing::warn!("kept the previous certificate: {error:#}"),
        }
    }
}

fn read((certificate, key): &Paths) -> Result<Pair> {
    let file = |path: &Path| std::fs::read(path).with_context(|| format!("reading {}", path.display()));
    Ok((file(certificate)?, file(key)?))
}

fn server_config(
    (certificate, key): &Pair,
    clients: Option<Arc<RootCertStore>>,
) -> Result<Arc<ServerConfig>> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .context("reading the certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key).context("reading the key")?;
    let config = match clients {
        Some(clients) => {
            ServerConfig::builder().with_client_cert_verifier(WebPkiClientVerifier::builder(clients).build()?)
        }
        None => ServerConfig::builder().with_no_client_auth(),
    };
    Ok(Arc::new(config.with_single_cert(chain, key).context("certificate and key do not match")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::TcpStream;

    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    /// Writes a self-signed pair into the folder. Returns the certificate.
    fn write_pair(folder: &Path) -> CertificateDer<'static> {
        let made = rcgen::generate_simple_self_signed(["webhooks.test".to_owned()]).unwrap();
        std::fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
        std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
        made.cert.der().clone()
    }

    /// Completes a TLS handshake with a client that trusts only `root`.
    fn handshake(address: SocketAddr, root: &CertificateDer<'static>) -> Result<()> {
        let mut roots = RootCertStore::empty();
        roots.add(root.clone())?;
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("webhooks.test")?;
        let mut connection = ClientConnection::new(Arc::new(config), name)?;
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        rustls::Stream::new(&mut connection, &mut stream).write_all(b"GET / HTTP/1.1\r\n\r\n")?;
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn replaced_pair_is_served_without_a_restart() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let first = write_pair(folder.path());
        let handle = Handle::new();
        let (path, theirs) = (in_folder(folder.path(), "tls"), handle.clone());
        let server = tokio::spawn(async move {
            serve(([127, 0, 0, 1], 0).into(), path, None, Router::new(), theirs).await
        });
        let address = handle.listening().await.unwrap();
        handshake(address, &first).unwrap();

        // An incomplete pair is not loaded.
        std::fs::write(folder.path().join("tls.crt"), "half").unwrap();
        let second = write_pair(folder.path());
        let until = std::time::Instant::now() + Duration::from_secs(30);
        let mut again = tokio::time::interval(Duration::from_millis(50));
        while let Err(error) = handshake(address, &second) {
            assert!(std::time::Instant::now() < until, "{error:#}");
            again.tick().await;
        }
        assert!(handshake(address, &first).is_err());
        handle.shutdown();
        server.await.unwrap().unwrap();
    }
}
