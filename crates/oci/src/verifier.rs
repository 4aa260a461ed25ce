//! Server and client certificates of TLS connections, decided as Go does.
//!
//! Three cases differ from rustls: a server certificate that is itself in the CA folder is trusted, although it
//! signed nothing (the usual self-signed registry). One that was issued by a CA of that folder may be a CA
//! certificate ([`crate::chain`]). A registry configured as insecure is trusted with any certificate.

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

/// TLS configuration for the registries of one folder of certificates.
///
/// # Errors
/// A key does not match its certificate.
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
                // A known CA has the name of the issuer, but not its key.
                Error::InvalidCertificate(CertificateError::BadSignature) => {
                    Error::InvalidCertificate(CertificateError::UnknownIssuer)
                }
                // A CA certificate is trusted only if the administrator configured its issuer (`chain`).
                Error::InvalidCertificate(CertificateError::Other(_)) if chain::is_authority(certificate) => {
                    Error::InvalidCertificate(CertificateError::UnknownIssuer)
                }
                error => error,
            })
    }
}

/// Client certificates. The first that the server accepts is used.
#[derive(Debug)]
struct ClientKeys(Vec<Arc<CertifiedKey>>);

impl ResolvesClientCert for ClientKeys {
    fn resolve(&self, issuers: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let is_requested = |key: &&Arc<CertifiedKey>| {
            let by_issuer = |certificate: &CertificateDer<'_>| {
                X509Certificate::from_der(certificate)
                    .is_ok_and(|(_, certificate)| issuers.contains(&certificate.issuer().as_raw()))
            };
            let trusted = issuers.is_empty() || key.cert.iter().any(by_issuer);
            trusted && key.key.choose_scheme(schemes).is_some()
        };
        self.0.iter().find(is_requested).cloned()
    }

    fn has_certs(&self) -> bool {
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
        date_time_ymd,
    };
    use rustls::client::WebPkiServerVerifier;

    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    /// Deviations of a certificate in a generated chain.
    #[derive(Clone, Copy, Debug)]
    struct Traits {
        authority: u8,
        purpose: u8,
        is_expired: bool,
    }

    fn traits() -> impl Strategy<Value = Traits> {
        (0..6u8, 0..6u8, 0..8u8).prop_map(|(authority, purpose, expired)| Traits {
            authority,
            purpose,
            is_expired: expired == 0,
        })
    }

    fn params(name: &str, traits: Traits) -> CertificateParams {
        let mut params = CertificateParams::new(vec!["registry.test".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = match traits.authority {
            0 => IsCa::NoCa,
            1 => IsCa::ExplicitNoCa,
            2 => IsCa::Ca(BasicConstraints::Constrained(0)),
            _ => IsCa::Ca(BasicConstraints::Unconstrained),
        };
        params.extended_key_usages = match traits.purpose {
            0 => vec![ExtendedKeyUsagePurpose::ClientAuth],
            1 => vec![ExtendedKeyUsagePurpose::ServerAuth],
            _ => Vec::new(),
        };
        let end = if traits.is_expired { 2026 } else { 2035 };
        (params.not_before, params.not_after) = (date_time_ymd(2025, 1, 1), date_time_ymd(end, 1, 1));
        params
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// Without an issuer in the CA directory, the result is that of webpki.
        #[test]
        fn chain_without_configured_issuer_matches_webpki(
            root in traits(), between in prop::collection::vec(traits(), 0..4), mut leaf in traits(), is_leaf_ca: bool,
        ) {
            if !is_leaf_ca {
                leaf.authority %= 2;
            }
            let (params_of_root, key) = (params("root", root), KeyPair::generate().unwrap());
            let mut roots = RootCertStore::empty();
            roots.add(params_of_root.self_signed(&key).unwrap().der().clone()).unwrap();
            let mut issuer = Issuer::new(params_of_root, key);
            let mut chain = Vec::new();
            for (number, one) in between.into_iter().enumerate() {
                let (params, key) = (params(&number.to_string(), one), KeyPair::generate().unwrap());
                chain.insert(0, params.signed_by(&key, &issuer).unwrap().der().clone());
                issuer = Issuer::new(params, key);
            }
            let leaf = params("leaf", leaf).signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let algorithms = provider.signature_verification_algorithms;
            let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots.clone()), provider).build().unwrap();
            let authorities = vec![unrelated_authority()];
            let ours = Verifier { roots, authorities, algorithms, insecure: false };
            let (name, now) = ("registry.test".try_into().unwrap(), UnixTime::since_unix_epoch(NOW));
            let ours = ours.verify_server_cert(&leaf, &chain, &name, &[], now);
            let theirs = webpki.verify_server_cert(&leaf, &chain, &name, &[], now);
            prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?} and {:?}", ours, theirs);
        }
    }

    /// CA that issued no certificate of the chain.
    fn unrelated_authority() -> CertificateDer<'static> {
        let params = params("unrelated", Traits { authority: 3, purpose: 3, is_expired: false });
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }
}
