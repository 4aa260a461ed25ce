//! The serving certificate of the HTTPS servers: read from files or from the built-in Secret, or made in memory, and
//! replaced in place when it changes. An unusable pair never replaces a usable one (docs/design/operations.md#serving-certificate).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use olm_runtime::cluster::within_deadline;
use olm_runtime::metrics::Metrics;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use tokio_util::sync::CancellationToken;

use crate::builtin::{BuiltinCertificates, StoredPair};
use crate::certificate::{CertificateError, FILE_POLL, PemPair, SECRET_POLL, read_limited};
use crate::ephemeral::EphemeralPair;
use crate::issue::Validity;
use crate::tls_profile::TlsProfile;

/// Source of the serving pair.
#[derive(Debug)]
pub enum CertificateSource {
    /// The files of `--tls-cert` and `--tls-key`.
    Files {
        /// Certificate file.
        certificate: PathBuf,
        /// Key file.
        key: PathBuf,
    },
    /// Files, and a pair in memory while both are missing. A pair of files is kept until it expires.
    FilesOrEphemeral {
        /// Certificate file.
        certificate: PathBuf,
        /// Key file.
        key: PathBuf,
        /// The pair in memory.
        ephemeral: EphemeralPair,
    },
    /// Secrets that this server writes.
    Builtin(Arc<BuiltinCertificates>),
    /// A Secret that another server writes.
    Secret {
        /// The Secrets of its namespace.
        secrets: Box<Api<Secret>>,
        /// Its name.
        name: String,
    },
}

impl CertificateSource {
    async fn read(&self, before: Option<&PemPair>) -> Result<PemPair, CertificateError> {
        match self {
            Self::FilesOrEphemeral { ephemeral, .. } if self.is_ephemeral() => {
                ephemeral.after(before, Timestamp::now())
            }
            Self::Files { certificate, key } | Self::FilesOrEphemeral { certificate, key, .. } => {
                Ok(PemPair { certificate: read_limited(certificate)?, key: read_limited(key)? })
            }
            Self::Builtin(builtin) => Ok(builtin.ensure().await?.pair),
            Self::Secret { secrets, name } => {
                let read = within_deadline(secrets.get_opt(name)).await;
                let secret =
                    read.map_err(|source| CertificateError::Secret { name: name.clone(), source })?;
                let pair = secret.as_ref().and_then(StoredPair::read).map(|stored| stored.pair);
                pair.ok_or_else(|| CertificateError::Awaited(name.clone()))
            }
        }
    }

    /// `true` if both files are missing. A file that exists but cannot be read is an error instead.
    pub fn is_ephemeral(&self) -> bool {
        let is_missing = |path: &Path| matches!(path.try_exists(), Ok(false));
        match self {
            Self::FilesOrEphemeral { certificate, key, .. } => is_missing(certificate) && is_missing(key),
            _ => false,
        }
    }

    fn origin(&self) -> String {
        match self {
            Self::FilesOrEphemeral { .. } if self.is_ephemeral() => "memory".to_owned(),
            Self::Files { certificate, .. } | Self::FilesOrEphemeral { certificate, .. } => {
                certificate.display().to_string()
            }
            Self::Builtin(builtin) => format!("Secret {}", builtin.serving_secret),
            Self::Secret { name, .. } => format!("Secret {name}"),
        }
    }

    fn poll(&self) -> Duration {
        match self {
            Self::Files { .. } | Self::FilesOrEphemeral { .. } => FILE_POLL,
            Self::Builtin(_) | Self::Secret { .. } => SECRET_POLL,
        }
    }
}

/// The pair of new handshakes.
#[derive(Debug, Default)]
struct CurrentPair(ArcSwapOption<CertifiedKey>);

impl ResolvesServerCert for CurrentPair {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

/// A serving certificate that is reloaded when its source changes.
#[derive(Debug)]
pub struct ServingCertificate {
    source: CertificateSource,
    profile: TlsProfile,
    current: Arc<CurrentPair>,
    metrics: Arc<Metrics>,
}

impl ServingCertificate {
    /// A certificate that is not loaded yet: handshakes fail until [`Self::load`] succeeds.
    pub fn new(source: CertificateSource, profile: TlsProfile, metrics: Arc<Metrics>) -> Self {
        Self { source, profile, current: Arc::default(), metrics }
    }

    /// Reads the source once and serves its pair if it differs from `before`. Returns the pair.
    ///
    /// # Errors
    /// The source has no usable pair. The previous one stays in use.
    pub async fn load(&self, before: Option<&PemPair>) -> Result<PemPair, CertificateError> {
        self.metrics.certificate_reads.inc();
        let read = async {
            let pair = self.source.read(before).await?;
            if before != Some(&pair) {
                let certified = pair.parse(&self.source.origin(), &self.profile.provider)?;
                self.current.0.store(Some(Arc::new(certified)));
                let until = Validity::of(&pair.certificate).map_or(0, |validity| validity.until.as_second());
                self.metrics.certificate_expiry.set(until);
                tracing::info!(origin = self.source.origin(), "loaded serving certificate");
            }
            Ok(pair)
        };
        let result = read.await;
        if result.is_err() {
            self.metrics.certificate_read_errors.inc();
        }
        result
    }

    /// Polls the source until `stop`.
    pub async fn follow(self: Arc<Self>, mut pair: PemPair, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(self.source.poll())).await.is_some() {
            match self.load(Some(&pair)).await {
                Ok(read) => pair = read,
                Err(error) => tracing::error!(%error, "failed to reload serving certificate"),
            }
        }
    }

    /// TLS configuration of an HTTP/1.1 server with the current and all later pairs. With `client_authorities`,
    /// clients may present a certificate. One that none of these has signed fails the handshake.
    ///
    /// # Errors
    /// The profile's versions and suites do not fit together, or `client_authorities` is empty.
    pub fn server_config(
        &self,
        client_authorities: Option<RootCertStore>,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        let provider = Arc::clone(&self.profile.provider);
        let clients = match client_authorities {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(roots) => WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .map_err(|error| rustls::Error::General(error.to_string()))?,
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.profile.versions)?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(Arc::clone(&self.current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls_profile::{ProfileName, TlsVersion};

    fn pair() -> PemPair {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        PemPair {
            certificate: made.cert.pem().into_bytes(),
            key: made.signing_key.serialize_pem().into_bytes(),
        }
    }

    // Case catalogd-57
    #[tokio::test]
    async fn invalid_pair_keeps_previous_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
        let write = |pair: &PemPair| {
            std::fs::write(&certificate, &pair.certificate).unwrap();
            std::fs::write(&key, &pair.key).unwrap();
        };
        let profile = TlsProfile::new(ProfileName::Intermediate, TlsVersion::Tls12, &[], &[]).unwrap();
        let source = CertificateSource::Files { certificate: certificate.clone(), key: key.clone() };
        let serving = ServingCertificate::new(source, profile, Arc::new(Metrics::new()));
        let leaf = || serving.current.0.load_full().map(|pair| pair.cert[0].to_vec());

        let missing = serving.load(None).await.unwrap_err().to_string();
        assert!(missing.starts_with(&format!("open {}: ", certificate.display())), "{missing}");
        let (first, second) = (pair(), pair());
        write(&first);
        let served = serving.load(None).await.unwrap();
        let before = leaf();
        write(&PemPair { certificate: second.certificate.clone(), key: first.key.clone() });
        assert!(serving.load(Some(&served)).await.is_err(), "certificate and key must match");
        assert_eq!(leaf(), before);
        write(&second);
        serving.load(Some(&served)).await.unwrap();
        assert_ne!(leaf(), before);
        assert!(serving.server_config(None).is_ok());
    }

    #[tokio::test]
    async fn files_override_ephemeral_pair_while_they_exist() {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
        let profile = TlsProfile::new(ProfileName::Intermediate, TlsVersion::Tls12, &[], &[]).unwrap();
        let ephemeral = EphemeralPair::new(vec!["localhost".to_owned()]);
        let (certificate_file, key_file) = (certificate.clone(), key.clone());
        let source = CertificateSource::FilesOrEphemeral { certificate, key, ephemeral };
        let serving = ServingCertificate::new(source, profile, Arc::new(Metrics::new()));
        let made = serving.load(None).await.unwrap();
        assert!(serving.load(Some(&made)).await.unwrap() == made);
        let pair = pair();
        std::fs::write(&certificate_file, &pair.certificate).unwrap();
        assert!(serving.load(Some(&made)).await.is_err(), "one file is an error");
        std::fs::write(&key_file, &pair.key).unwrap();
        assert!(serving.load(Some(&made)).await.unwrap() == pair);
        std::fs::remove_file(certificate_file).unwrap();
        std::fs::remove_file(key_file).unwrap();
        assert!(serving.load(Some(&pair)).await.unwrap() == pair, "missing files keep the loaded pair");
    }
}
