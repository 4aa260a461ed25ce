//! The HTTP client for registries: HTTPS only, system roots and the certificates of a folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

/// Largest file taken from the folder.
const MAX_CA_FILE: u64 = 4 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const USER_AGENT: &str = concat!("olm/", env!("CARGO_PKG_VERSION"));

/// Names and contents of the CA folder's files.
type CaFiles = Vec<(PathBuf, Vec<u8>)>;

/// Builds the client again whenever a file of the CA folder has changed.
#[derive(Debug)]
pub(crate) struct Clients {
    cas_dir: Option<PathBuf>,
    read_timeout: Duration,
    current: Mutex<Option<(CaFiles, reqwest::Client)>>,
}

impl Clients {
    pub(crate) fn new(cas_dir: Option<PathBuf>, read_timeout: Duration) -> Self {
        Self { cas_dir, read_timeout, current: Mutex::new(None) }
    }

    /// The client for the folder as it is now. Blocks for a moment: small local files.
    ///
    /// # Errors
    /// The folder cannot be read. A file without a usable certificate is only logged: it must not stop other registries.
    pub(crate) fn client(&self) -> Result<reqwest::Client, String> {
        let files = match &self.cas_dir {
            None => CaFiles::new(),
            Some(folder) => {
                read_folder(folder).map_err(|e| format!("reading CA folder {}: {e}", folder.display()))?
            }
        };
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = current.as_ref().filter(|(known, _)| *known == files) {
            return Ok(client.clone());
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err(
                "building the registry client: no TLS provider is installed in this process".to_owned()
            );
        }
        let client = reqwest::Client::builder()
            .https_only(true)
            .user_agent(USER_AGENT)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(self.read_timeout)
            .tls_certs_merge(certificates(&files))
            .build()
            .map_err(|error| format!("building the registry client: {error}"))?;
        *current = Some((files, client.clone()));
        Ok(client)
    }
}

/// Every file of `folder` in order of names; links are followed, since a mounted ConfigMap consists of them.
fn read_folder(folder: &Path) -> io::Result<CaFiles> {
    let mut files = CaFiles::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match read_file(&path) {
            Ok(None) => {}
            Ok(Some(content)) => files.push((path, content)),
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "CA file cannot be read and is not used")
            }
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// The content of a file, `None` for a folder.
fn read_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let metadata = fs::metadata(path)?;
    if metadata.len() > MAX_CA_FILE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    metadata.is_file().then(|| fs::read(path)).transpose()
}

fn certificates(files: &CaFiles) -> Vec<reqwest::Certificate> {
    let mut usable = Vec::new();
    for (path, content) in files {
        let before = usable.len();
        for certificate in CertificateDer::pem_slice_iter(content) {
            // One that is no trust anchor would fail the whole client.
            let checked = certificate.map_err(|error| error.to_string()).and_then(|certificate| {
                RootCertStore::empty().add(certificate.clone()).map_err(|error| error.to_string())?;
                reqwest::Certificate::from_der(&certificate).map_err(|error| error.to_string())
            });
            match checked {
                Ok(certificate) => usable.push(certificate),
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "CA file has a certificate that cannot be used")
                }
            }
        }
        if usable.len() == before {
            tracing::warn!(file = %path.display(), "CA file has no usable certificate");
        }
    }
    usable
}
