//! Certificate and key as PEM text, and errors of reading and issuing them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// Poll interval of certificate files (docs/design/operations.md#serving-certificate).
pub const FILE_POLL: Duration = Duration::from_secs(5);
/// Poll interval of the Secrets of built-in certificates.
pub const SECRET_POLL: Duration = Duration::from_secs(30);
/// Maximum size of a certificate or key file in bytes.
const FILE_LIMIT: u64 = 1 << 20;

/// Part of [`CertificateError::Awaited`].
pub const AWAITED: &str = "holds no serving certificate yet";

/// Error of reading or issuing a certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("open {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file is far larger than any certificate.
    #[error("{0}: larger than 1 MiB, too large for a certificate or key")]
    TooLarge(PathBuf),
    /// No usable certificate and key in the PEM text.
    #[error("{origin}: {why}")]
    Pem {
        /// File or Secret.
        origin: String,
        /// The cause.
        why: String,
    },
    /// The API server rejected the call or did not answer.
    #[error("Secret {name}: {source}")]
    Secret {
        /// The Secret.
        name: String,
        /// The cause.
        source: kube::Error,
    },
    /// The Secret does not exist yet, or lacks certificate or key.
    #[error("Secret {} {}: operator-controller, which issues it, must run", .0, AWAITED)]
    Awaited(String),
    /// A certificate could not be created.
    #[error("creating a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// A certificate chain and its key as PEM text. Equal pairs need no reload.
#[derive(Clone, PartialEq, Eq)]
pub struct PemPair {
    /// The chain, leaf first.
    pub certificate: Vec<u8>,
    /// The key. Never logged.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for PemPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PemPair").finish_non_exhaustive()
    }
}

impl PemPair {
    /// Parses the pair and checks that key and leaf match. `origin` names it in errors.
    ///
    /// # Errors
    /// No certificate, no key, or two that do not match.
    pub fn parse(&self, origin: &str, provider: &CryptoProvider) -> Result<CertifiedKey, CertificateError> {
        let wrong = |why: String| CertificateError::Pem { origin: origin.to_owned(), why };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .map_err(|error| wrong(error.to_string()))?;
        if chain.is_empty() {
            return Err(wrong("no certificate in the PEM text".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| wrong(error.to_string()))?;
        CertifiedKey::from_der(chain, key, provider).map_err(|error| wrong(error.to_string()))
    }
}

/// Reads a file of at most 1 MiB.
///
/// # Errors
/// The file is missing, unreadable or too large.
pub fn read_limited(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let failed = |source| CertificateError::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.len() > FILE_LIMIT {
        return Err(CertificateError::TooLarge(path.to_owned()));
    }
    std::fs::read(path).map_err(failed)
}

/// The certificates of a PEM text. Other parts of it are skipped.
pub(crate) fn certificates(pem: &[u8]) -> impl Iterator<Item = CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).flatten()
}

/// Trusts the certificates of a PEM text.
pub(crate) fn roots(pem: &[u8]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(pem));
    roots
}
