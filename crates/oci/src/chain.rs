//! Verification of a server certificate that is also a CA certificate (basicConstraints `CA:TRUE`), issued by a CA
//! of the administrator.
//!
//! rustls rejects such a leaf (`CaUsedAsEndEntity`). Go accepts it, and registries use it, for instance where the
//! certificate was requested with `isCA`. It is accepted here only if its direct issuer is in the CA directory: no
//! intermediates, no system roots. All other checks of rustls remain: the issuer's signature and its key usage, and
//! for both certificates validity, purpose and critical extensions. A certificate with name constraints is
//! rejected, since they are not evaluated. The caller checks the server name.

use rustls::CertificateError;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::asn1_rs::{Any, Oid};
use x509_parser::prelude::{ASN1Time, AlgorithmIdentifier, FromDer, ParsedExtension, X509Certificate};

/// Certificates in `authorities` whose subject is the issuer of `leaf`. Empty if `leaf` is not a CA certificate. If
/// any is returned, [`check`] must decide about the leaf.
pub(crate) fn issuers<'a>(
    leaf: &CertificateDer<'_>,
    authorities: &'a [CertificateDer<'_>],
) -> Vec<X509Certificate<'a>> {
    let Some(leaf) = parse(leaf).ok().filter(|leaf| leaf.is_ca()) else { return Vec::new() };
    let is_issuer = |authority: &X509Certificate<'_>| authority.subject().as_raw() == leaf.issuer().as_raw();
    // A certificate that cannot be parsed cannot be the issuer.
    authorities.iter().filter_map(|authority| parse(authority).ok()).filter(is_issuer).collect()
}

/// `true` if the certificate is a CA certificate.
pub(crate) fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    parse(certificate).is_ok_and(|certificate| certificate.is_ca())
}

/// Checks that `leaf` may serve TLS at `now`, and that one of `issuers` signed it and may issue certificates.
///
/// # Errors
/// The fault of the leaf, otherwise that of the last issuer tried.
pub(crate) fn check(
    leaf: &CertificateDer<'_>,
    issuers: &[X509Certificate<'_>],
    algorithms: WebPkiSupportedAlgorithms,
    now: UnixTime,
) -> Result<(), CertificateError> {
    let leaf = parse(leaf)?;
    let now = time(now)?;
    check_use(&leaf, now)?;
    let mut found = Err(CertificateError::UnknownIssuer);
    for issuer in issuers.iter().filter(|issuer| is_signed(&leaf, issuer, algorithms)) {
        found = check_use(issuer, now).and_then(|()| check_issuing(issuer));
        if found.is_ok() {
            break;
        }
    }
    found
}

/// Checks that `certificate` is valid at `now`.
///
/// # Errors
/// It is expired, not yet valid, or cannot be parsed.
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

/// Checks validity, critical extensions and purpose, for leaf and issuer alike.
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

/// Checks that `certificate` may issue certificates.
fn check_issuing(certificate: &X509Certificate<'_>) -> Result<(), CertificateError> {
    let usage = certificate.key_usage().map_err(|_| CertificateError::BadEncoding)?;
    let may_sign = usage.is_none_or(|usage| usage.value.key_cert_sign());
    if certificate.is_ca() && may_sign { Ok(()) } else { Err(CertificateError::InvalidPurpose) }
}

/// `true` if the key of `issuer` signed `certificate`.
fn is_signed(
    certificate: &X509Certificate<'_>,
    issuer: &X509Certificate<'_>,
    algorithms: WebPkiSupportedAlgorithms,
) -> bool {
    let X509Certificate { tbs_certificate, signature_algorithm, signature_value, .. } = certificate;
    let key = issuer.public_key();
    let bits = &key.subject_public_key.data;
    tbs_certificate.signature == *signature_algorithm
        && algorithms.all.iter().any(|algorithm| {
            names(signature_algorithm, &algorithm.signature_alg_id())
                && names(&key.algorithm, &algorithm.public_key_alg_id())
                && algorithm.verify_signature(bits, tbs_certificate.as_ref(), &signature_value.data).is_ok()
        })
}

/// `true` if `identifier` has this DER content: OID, then parameters if any.
fn names(identifier: &AlgorithmIdentifier<'_>, content: &[u8]) -> bool {
    Oid::from_der(content).is_ok_and(|(rest, algorithm)| {
        let parameters = Any::from_der(rest).ok().map(|(_, parameters)| parameters);
        algorithm == identifier.algorithm && parameters == identifier.parameters
    })
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

    /// CA of the administrator.
    struct Authority {
        certificate: CertificateDer<'static>,
        issuer: Issuer<'static, KeyPair>,
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

    impl Authority {
        fn new(change: impl FnOnce(&mut CertificateParams)) -> Self {
            let (mut params, key) = (params("root"), KeyPair::generate().unwrap());
            change(&mut params);
            let certificate = params.self_signed(&key).unwrap().der().clone();
            Self { certificate, issuer: Issuer::new(params, key) }
        }

        /// Result of [`check`] for a new leaf, which has an empty subject as is common in practice.
        fn leaf(&self, change: impl FnOnce(&mut CertificateParams)) -> Result<(), CertificateError> {
            self.says_of(&self.make_leaf(change))
        }

        fn make_leaf(&self, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
            let mut params = params("");
            change(&mut params);
            params.signed_by(&KeyPair::generate().unwrap(), &self.issuer).unwrap().der().clone()
        }

        fn says_of(&self, leaf: &CertificateDer<'_>) -> Result<(), CertificateError> {
            says_of(leaf, std::slice::from_ref(&self.certificate))
        }
    }

    fn says_of(
        leaf: &CertificateDer<'_>,
        authorities: &[CertificateDer<'_>],
    ) -> Result<(), CertificateError> {
        let algorithms = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
        let found = issuers(leaf, authorities);
        assert!(!found.is_empty());
        check(leaf, &found, algorithms, UnixTime::since_unix_epoch(NOW))
    }

    fn same(_: &mut CertificateParams) {}

    #[test]
    fn leaf_restrictions_are_checked() {
        let line = Authority::new(same);
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
            ("CA leaf without restrictions", line.leaf(same), Ok(())),
            (
                "path length zero",
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
    fn issuer_restrictions_are_checked() {
        let usages = |usage| move |params: &mut CertificateParams| params.key_usages = vec![usage];
        let named = |params: &mut CertificateParams| {
            let permitted_subtrees = vec![GeneralSubtree::DnsName("registry.test".to_owned())];
            params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: vec![] });
        };
        let refused = Err(CertificateError::InvalidPurpose);
        for (what, authority, expected) in [
            ("may sign", Authority::new(usages(KeyUsagePurpose::KeyCertSign)), Ok(())),
            (
                "path length zero",
                Authority::new(|params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0))),
                Ok(()),
            ),
            ("explicitly no CA", Authority::new(|params| params.is_ca = IsCa::ExplicitNoCa), refused.clone()),
            ("no basic constraints", Authority::new(|params| params.is_ca = IsCa::NoCa), refused.clone()),
            ("may not sign", Authority::new(usages(KeyUsagePurpose::CrlSign)), refused.clone()),
            (
                "for clients",
                Authority::new(|params| {
                    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]
                }),
                refused,
            ),
            (
                "expired",
                Authority::new(|params| params.not_after = date_time_ymd(2026, 1, 1)),
                Err(CertificateError::Expired),
            ),
            ("name constraints", Authority::new(named), Err(CertificateError::UnhandledCriticalExtension)),
        ] {
            assert_eq!(authority.leaf(same), expected, "{what}");
        }
    }

    #[test]
    fn leaf_needs_valid_signature_of_issuer() {
        let unknown = Err(CertificateError::UnknownIssuer);
        let (authority, other) = (Authority::new(same), Authority::new(same));
        let leaf = authority.make_leaf(same);
        assert_eq!(other.says_of(&leaf), unknown, "other CA with the same subject");
        let both = [other.certificate.clone(), authority.certificate.clone()];
        assert_eq!(says_of(&leaf, &both), Ok(()));
        // Modified after signing: first the signature, then the name.
        let mut bytes = leaf.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        assert_eq!(authority.says_of(&bytes.into()), unknown);
        let mut bytes = leaf.to_vec();
        let at = bytes.windows(8).position(|part| part == b"registry").unwrap();
        bytes[at] ^= 1;
        assert_eq!(authority.says_of(&bytes.into()), unknown);
    }

    #[test]
    fn issuers_are_found_only_for_ca_leaves_of_given_authorities() {
        let authority = Authority::new(same);
        let given = std::slice::from_ref(&authority.certificate);
        assert_eq!(issuers(&authority.make_leaf(same), given).len(), 1);
        assert!(issuers(&authority.make_leaf(|leaf| leaf.is_ca = IsCa::NoCa), given).is_empty());
        assert!(issuers(&authority.make_leaf(same), &[]).is_empty());
        let unrelated_authority =
            Authority::new(|params| params.distinguished_name.push(DnType::CommonName, "else"));
        assert!(issuers(&unrelated_authority.make_leaf(same), given).is_empty());
    }
}
