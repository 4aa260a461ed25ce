//! Whom a TLS connection trusts and which client certificate it shows, as Go programs decide it.
//!
//! Three things differ from rustls' own choice: a server's certificate that is itself in the CA folder is trusted, though it
//! signed nothing (the usual self-signed registry), one that a CA of that folder issued may be a CA's as well
//! ([`crate::chain`]), and a registry that is configured as insecure is trusted whatever it shows.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::certificates::Identity;
use crate::chain;

/// TLS for the registries of one folder of certificates.
///
/// # Errors
/// A key does not fit its certificate.
pub(crate) fn tls_config(
    provider: Arc<CryptoProvider>,
    system: &RootCertStore,
    authorities: Vec<CertificateDer<'static>>,
    identities: Vec<Identity>,
    insecure: bool,
) -> Result<ClientConfig, Error> {
    let mut roots = system.clone();
    roots.add_parsable_certificates(authorities.iter().cloned());
    let algorithms = provider.signature_verification_algorithms;
    let verifier = Arc::new(Verifier { roots, authorities, algorithms, insecure });
    let keys = identities
        .into_iter()
        .map(|identity| CertifiedKey::from_der(identity.chain, identity.key, &provider).map(Arc::new))
        .collect::<Result<_, _>>()?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(ClientKeys(keys)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[derive(Debug)]
struct Verifier {
    roots: RootCertStore,
    authorities: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
    insecure: bool,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.insecure {
            return Ok(ServerCertVerified::assertion());
        }
        let issuers = chain::issuers(end_entity, &self.authorities);
        if self.authorities.iter().any(|authority| authority == end_entity) {
            chain::check_validity(end_entity, now)?;
        } else if issuers.is_empty() {
            self.check_issuer(end_entity, intermediates, now)?;
        } else {
            chain::check(end_entity, &issuers, self.algorithms, now)?;
        }
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl Verifier {
    fn check_issuer(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let (parsed, algorithms) = (ParsedCertificate::try_from(certificate)?, self.algorithms.all);
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)
            .map_err(|error| match error {
                // We know a CA of the issuer's name, but it is another one.
                Error::InvalidCertificate(CertificateError::BadSignature) => {
                    Error::InvalidCertificate(CertificateError::UnknownIssuer)
                }
                // A CA's certificate is trusted only where the administrator gives its issuer (`chain`).
                Error::InvalidCertificate(CertificateError::Other(_)) if chain::is_authority(certificate) => {
                    Error::InvalidCertificate(CertificateError::UnknownIssuer)
                }
                error => error,
            })
    }
}

/// Client certificates, of which the first that the server accepts is shown.
#[derive(Debug)]
struct ClientKeys(Vec<Arc<CertifiedKey>>);

impl ResolvesClientCert for ClientKeys {
    fn resolve(&self, issuers: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let is_wanted = |key: &&Arc<CertifiedKey>| {
            let by_issuer = |certificate: &CertificateDer<'_>| {
                X509Certificate::from_der(certificate)
                    .is_ok_and(|(_, certificate)| issuers.contains(&certificate.issuer().as_raw()))
            };
            let trusted = issuers.is_empty() || key.cert.iter().any(by_issuer);
            trusted && key.key.choose_scheme(schemes).is_some()
        };
        self.0.iter().find(is_wanted).cloned()
    }

    fn has_certs(&self) -> bool {
        !self.0.is_empty()
    }
}
