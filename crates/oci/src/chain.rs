//! Who issued a server's certificate that is a CA's as well (basicConstraints `CA:TRUE`).
//!
//! rustls refuses such a leaf for that alone (`CaUsedAsEndEntity`); Go programs accept it, and registries show it, for
//! instance where the certificate was requested with `isCA`. Nothing else is looser than there: every signature, validity,
//! purpose, length of path and critical extension counts. Name constraints are not evaluated: who has them vouches for no
//! such leaf. The server's name is checked by the caller.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::{CertificateError, RootCertStore};
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::asn1_rs::{Any, BitString};
use x509_parser::prelude::{ASN1Time, FromDer, ParsedExtension, X509Certificate};

/// Longest chain, without leaf and root.
const MAX_INTERMEDIATES: usize = 6;
/// Signatures checked for one connection, whatever the server sends.
const MAX_SIGNATURES: usize = 100;

/// Whether `leaf` is a CA's certificate, so that [`check`] has to decide about it.
pub(crate) fn is_authority(leaf: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(leaf).is_ok_and(|(_, certificate)| certificate.is_ca())
}

/// Checks that `leaf` may serve TLS now and that a chain of `intermediates` leads from it to one of `roots`.
///
/// # Errors
/// What is wrong with the leaf, else with the last chain that was tried.
pub(crate) fn check(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    roots: &RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
    now: UnixTime,
) -> Result<(), CertificateError> {
    let leaf = parse(leaf)?;
    let now = time(now)?;
    check_use(&leaf, now)?;
    // One that cannot be read leads nowhere.
    let intermediates = intermediates.iter().filter_map(|certificate| parse(certificate).ok()).collect();
    let mut search = Search { roots, intermediates, algorithms, now, signatures_left: MAX_SIGNATURES };
    search.issuer_of(&leaf, 0)
}

/// Checks that `certificate` is valid now.
///
/// # Errors
/// It is not, or cannot be read.
pub(crate) fn check_validity(
    certificate: &CertificateDer<'_>,
    now: UnixTime,
) -> Result<(), CertificateError> {
    is_within_validity(&parse(certificate)?, time(now)?)
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, CertificateError> {
    let (_, certificate) =
        X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    Ok(certificate)
}

fn time(now: UnixTime) -> Result<ASN1Time, CertificateError> {
    let seconds = i64::try_from(now.as_secs()).ok();
    seconds.and_then(|seconds| ASN1Time::from_timestamp(seconds).ok()).ok_or(CertificateError::BadEncoding)
}

fn is_within_validity(certificate: &X509Certificate<'_>, now: ASN1Time) -> Result<(), CertificateError> {
    let validity = certificate.validity();
    if now < validity.not_before {
        return Err(CertificateError::NotValidYet);
    }
    if now > validity.not_after { Err(CertificateError::Expired) } else { Ok(()) }
}

/// What has to hold for each certificate of a chain.
fn check_use(certificate: &X509Certificate<'_>, now: ASN1Time) -> Result<(), CertificateError> {
    is_within_validity(certificate, now)?;
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::BasicConstraints(_)
            | ParsedExtension::KeyUsage(_)
            | ParsedExtension::ExtendedKeyUsage(_)
            | ParsedExtension::SubjectAlternativeName(_) => {}
            ParsedExtension::NameConstraints(_) => return Err(CertificateError::UnhandledCriticalExtension),
            _ if extension.critical => return Err(CertificateError::UnhandledCriticalExtension),
            _ => {}
        }
    }
    let purposes = certificate.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    if purposes.is_some_and(|purposes| !purposes.value.server_auth && !purposes.value.any) {
        return Err(CertificateError::InvalidPurpose);
    }
    Ok(())
}

/// Checks that `certificate` may issue others, with `below` intermediates between it and the leaf.
fn check_issuing(certificate: &X509Certificate<'_>, below: usize) -> Result<(), CertificateError> {
    let refused = || CertificateError::InvalidPurpose;
    let constraints = certificate.basic_constraints().map_err(|_| CertificateError::BadEncoding)?;
    let constraints = constraints.ok_or_else(refused)?.value;
    let is_too_long = constraints
        .path_len_constraint
        .is_some_and(|most| usize::try_from(most).is_ok_and(|most| below > most));
    let usage = certificate.key_usage().map_err(|_| CertificateError::BadEncoding)?;
    if !constraints.ca || is_too_long || usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        return Err(refused());
    }
    Ok(())
}

/// The search for a chain.
struct Search<'a> {
    roots: &'a RootCertStore,
    intermediates: Vec<X509Certificate<'a>>,
    algorithms: WebPkiSupportedAlgorithms,
    now: ASN1Time,
    signatures_left: usize,
}

impl Search<'_> {
    /// Finds who issued `certificate`, which stands above `below` intermediates, and so on up to a root.
    fn issuer_of(&mut self, certificate: &X509Certificate<'_>, below: usize) -> Result<(), CertificateError> {
        let name = certificate.issuer().as_raw();
        let roots = self.roots;
        for root in &roots.roots {
            let is_it = root.name_constraints.is_none() && content(name) == Some(root.subject.as_ref());
            if is_it && self.is_signed(certificate, &root.subject_public_key_info)? {
                return Ok(());
            }
        }
        let mut failure = CertificateError::UnknownIssuer;
        if below == MAX_INTERMEDIATES {
            return Err(failure);
        }
        for index in 0..self.intermediates.len() {
            let Some(issuer) = self.intermediates.get(index).cloned() else { continue };
            let key = content(issuer.public_key().raw).unwrap_or_default();
            if issuer.subject().as_raw() != name || !self.is_signed(certificate, key)? {
                continue;
            }
            let checked = check_use(&issuer, self.now).and_then(|()| check_issuing(&issuer, below));
            match checked.and_then(|()| self.issuer_of(&issuer, below + 1)) {
                Ok(()) => return Ok(()),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Whether the owner of the key, the content of a SubjectPublicKeyInfo, signed `certificate`.
    fn is_signed(&mut self, certificate: &X509Certificate<'_>, key: &[u8]) -> Result<bool, CertificateError> {
        self.signatures_left = self.signatures_left.checked_sub(1).ok_or(CertificateError::UnknownIssuer)?;
        if certificate.tbs_certificate.signature != certificate.signature_algorithm {
            return Ok(false);
        }
        let signed = signature(certificate.as_raw()).ok_or(CertificateError::BadEncoding)?;
        let Some((key_algorithm, key)) = algorithm_and_bits(key) else { return Ok(false) };
        Ok(self.algorithms.all.iter().any(|algorithm| {
            algorithm.signature_alg_id().as_ref() == signed.algorithm
                && algorithm.public_key_alg_id().as_ref() == key_algorithm
                && algorithm.verify_signature(&key, signed.message, &signed.signature).is_ok()
        }))
    }
}

struct Signed<'a> {
    message: &'a [u8],
    /// Content of the AlgorithmIdentifier.
    algorithm: &'a [u8],
    signature: Vec<u8>,
}

/// The parts of a certificate: `SEQUENCE { tbsCertificate, AlgorithmIdentifier, BIT STRING }`.
fn signature(certificate: &[u8]) -> Option<Signed<'_>> {
    let parts = content(certificate)?;
    let (rest, _) = Any::from_der(parts).ok()?;
    let message = parts.get(..parts.len() - rest.len())?;
    let (algorithm, signature) = algorithm_and_bits(rest)?;
    Some(Signed { message, algorithm, signature })
}

/// `AlgorithmIdentifier, BIT STRING`: content of the first and bytes of the second.
fn algorithm_and_bits(der: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    let (rest, _) = Any::from_der(der).ok()?;
    let algorithm = content(der.get(..der.len() - rest.len())?)?;
    let (_, bits) = BitString::from_der(rest).ok()?;
    Some((algorithm, bits.data.into_owned()))
}

/// What is in a `SEQUENCE`.
fn content(sequence: &[u8]) -> Option<&[u8]> {
    let (rest, inside) = Any::from_der(sequence).ok()?;
    inside.header.assert_constructed().ok()?;
    rest.is_empty().then_some(inside.data)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
        GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, date_time_ymd,
    };

    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);
    const ANY_LENGTH: IsCa = IsCa::Ca(BasicConstraints::Unconstrained);

    /// Makes certificates, each signed by the one made before; the first is the root.
    struct Line {
        roots: RootCertStore,
        issuer: Issuer<'static, KeyPair>,
        /// The nearest to the root comes last.
        intermediates: Vec<CertificateDer<'static>>,
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(vec!["registry.test".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        if !name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.is_ca = ANY_LENGTH;
        (params.not_before, params.not_after) = (date_time_ymd(2025, 1, 1), date_time_ymd(2035, 1, 1));
        params
    }

    impl Line {
        fn new(change: impl FnOnce(&mut CertificateParams)) -> Self {
            let (mut params, key) = (params("root"), KeyPair::generate().unwrap());
            change(&mut params);
            let mut roots = RootCertStore::empty();
            roots.add(params.self_signed(&key).unwrap().der().clone()).unwrap();
            Self { roots, issuer: Issuer::new(params, key), intermediates: Vec::new() }
        }

        fn through(mut self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
            let (mut params, key) = (params(name), KeyPair::generate().unwrap());
            change(&mut params);
            let certificate = params.signed_by(&key, &self.issuer).unwrap();
            self.intermediates.insert(0, certificate.der().clone());
            self.issuer = Issuer::new(params, key);
            self
        }

        /// What is said of a leaf, which as the field has them has no name of its own.
        fn leaf(&self, change: impl FnOnce(&mut CertificateParams)) -> Result<(), CertificateError> {
            self.says_of(&self.make_leaf(change))
        }

        fn make_leaf(&self, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
            let mut params = params("");
            change(&mut params);
            params.signed_by(&KeyPair::generate().unwrap(), &self.issuer).unwrap().der().clone()
        }

        fn says_of(&self, leaf: &CertificateDer<'_>) -> Result<(), CertificateError> {
            assert!(is_authority(leaf));
            let algorithms = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
            let now = UnixTime::since_unix_epoch(NOW);
            check(leaf, &self.intermediates, &self.roots, algorithms, now)
        }
    }

    fn same(_: &mut CertificateParams) {}

    #[test]
    fn leaves() {
        let line = Line::new(same);
        let purposes = |purposes: &[ExtendedKeyUsagePurpose]| {
            let purposes = purposes.to_vec();
            line.leaf(move |leaf| leaf.extended_key_usages = purposes)
        };
        let constraints = NameConstraints {
            permitted_subtrees: vec![GeneralSubtree::DnsName("test".to_owned())],
            excluded_subtrees: vec![],
        };
        let critical = || {
            let mut extension = rcgen::CustomExtension::from_oid_content(&[2, 5, 29, 99], vec![5, 0]);
            extension.set_criticality(true);
            extension
        };
        for (what, said, expected) in [
            ("as registries show it", line.leaf(same), Ok(())),
            (
                "no length of path",
                line.leaf(|leaf| leaf.is_ca = IsCa::Ca(BasicConstraints::Constrained(0))),
                Ok(()),
            ),
            ("for servers", purposes(&[ExtendedKeyUsagePurpose::ServerAuth]), Ok(())),
            ("for anything", purposes(&[ExtendedKeyUsagePurpose::Any]), Ok(())),
            (
                "for clients",
                purposes(&[ExtendedKeyUsagePurpose::ClientAuth]),
                Err(CertificateError::InvalidPurpose),
            ),
            (
                "expired",
                line.leaf(|leaf| leaf.not_after = date_time_ymd(2026, 1, 1)),
                Err(CertificateError::Expired),
            ),
            (
                "not yet valid",
                line.leaf(|leaf| leaf.not_before = date_time_ymd(2030, 1, 1)),
                Err(CertificateError::NotValidYet),
            ),
            (
                "unknown critical extension",
                line.leaf(|leaf| leaf.custom_extensions = vec![critical()]),
                Err(CertificateError::UnhandledCriticalExtension),
            ),
            (
                "name constraints",
                line.leaf(|leaf| leaf.name_constraints = Some(constraints)),
                Err(CertificateError::UnhandledCriticalExtension),
            ),
        ] {
            assert_eq!(said, expected, "{what}");
        }
    }

    #[test]
    fn issuers() {
        let bound = |length| {
            move |params: &mut CertificateParams| {
                params.is_ca = IsCa::Ca(BasicConstraints::Constrained(length));
            }
        };
        let usages = |usage| move |params: &mut CertificateParams| params.key_usages = vec![usage];
        let named = |params: &mut CertificateParams| {
            let permitted_subtrees = vec![GeneralSubtree::DnsName("registry.test".to_owned())];
            params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: vec![] });
        };
        let refused = Err(CertificateError::InvalidPurpose);
        for (what, line, expected) in [
            ("one between", Line::new(same).through("a", same), Ok(())),
            ("two between", Line::new(same).through("a", bound(1)).through("b", bound(0)), Ok(())),
            ("path too long", Line::new(same).through("a", bound(0)).through("b", same), refused.clone()),
            (
                "no CA",
                Line::new(same).through("a", |params| params.is_ca = IsCa::ExplicitNoCa),
                refused.clone(),
            ),
            (
                "not said to be a CA",
                Line::new(same).through("a", |params| params.is_ca = IsCa::NoCa),
                refused.clone(),
            ),
            ("may sign", Line::new(same).through("a", usages(KeyUsagePurpose::KeyCertSign)), Ok(())),
            ("may not sign", Line::new(same).through("a", usages(KeyUsagePurpose::CrlSign)), refused.clone()),
            (
                "for clients",
                Line::new(same).through("a", |params| {
                    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                }),
                refused,
            ),
            (
                "expired",
                Line::new(same).through("a", |params| params.not_after = date_time_ymd(2026, 1, 1)),
                Err(CertificateError::Expired),
            ),
            ("named", Line::new(same).through("a", named), Err(CertificateError::UnhandledCriticalExtension)),
            ("root named", Line::new(named), Err(CertificateError::UnknownIssuer)),
            (
                "too many",
                (0..=MAX_INTERMEDIATES).fold(Line::new(same), |line, n| line.through(&n.to_string(), same)),
                Err(CertificateError::UnknownIssuer),
            ),
        ] {
            assert_eq!(line.leaf(same), expected, "{what}");
        }
    }

    #[test]
    fn only_a_chain_of_signatures_counts() {
        let unknown = Err(CertificateError::UnknownIssuer);
        let line = Line::new(same).through("a", same);
        let leaf = line.make_leaf(same);
        // Others of the same names.
        let others = Line::new(same).through("a", same);
        assert_eq!(others.says_of(&leaf), unknown);
        let mut missing = Line::new(same);
        missing.roots = line.roots.clone();
        assert_eq!(missing.says_of(&leaf), unknown);
        // Signed by itself, which the sender adds as its issuer.
        let (params, key) = (params("root"), KeyPair::generate().unwrap());
        let own = params.self_signed(&key).unwrap().der().clone();
        missing.intermediates = vec![own.clone(); 200];
        assert_eq!(missing.says_of(&own), unknown);
        // Changed after it was signed: in the signature, and in the name.
        let mut bytes = leaf.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        assert_eq!(line.says_of(&bytes.into()), unknown);
        let mut bytes = leaf.to_vec();
        let at = bytes.windows(8).position(|part| part == b"registry").unwrap();
        bytes[at] ^= 1;
        assert_eq!(line.says_of(&bytes.into()), unknown);
        assert_eq!(line.says_of(&leaf), Ok(()));
    }
}
