//! Issuing and verifying certificates: the only source of our CAs and serving certificates, for the servers
//! themselves and for the webhooks of bundles.
//!
//! Pure apart from random keys: `now` is a parameter. Keys are never logged.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{Timestamp, ToSpan};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use crate::certificate::{CertificateError, PemPair, certificates, roots};

/// Validity of a CA, in days.
const CA_DAYS: i64 = 3650;
/// Validity of a serving certificate, in days.
const LEAF_DAYS: i64 = 90;
/// Longest common name (RFC 5280, `ub-common-name`).
const COMMON_NAME_BYTES: usize = 64;

/// Validity period of a certificate, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First instant.
    pub from: Timestamp,
    /// Last instant.
    pub until: Timestamp,
}

impl Validity {
    /// Validity of the first certificate in a PEM text. `None` if there is none.
    pub fn of(pem: &[u8]) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem).ok()?;
        Self::of_der(&der)
    }

    fn of_der(der: &[u8]) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(der).ok()?;
        let second = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).ok();
        let validity = parsed.validity();
        Some(Self { from: second(validity.not_before)?, until: second(validity.not_after)? })
    }

    /// `true` if the certificate is valid at `now`.
    pub fn contains(&self, now: Timestamp) -> bool {
        (self.from..=self.until).contains(&now)
    }

    /// Time of renewal: two thirds of the validity period (docs/design/operations.md#built-in-certificates).
    pub fn due(&self) -> Timestamp {
        let third = self.until.duration_since(self.from) / 3;
        self.from.saturating_add(third * 2).unwrap_or(self.from)
    }
}

/// Creates a self-signed CA with this common name.
///
/// # Errors
/// A key or certificate cannot be created.
pub fn new_ca(common_name: &str, now: Timestamp) -> Result<PemPair, CertificateError> {
    let key = KeyPair::generate()?;
    let mut params = with_validity(CertificateParams::new(Vec::new())?, CA_DAYS, now);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key)?.pem().into_bytes();
    Ok(PemPair { certificate, key: key.serialize_pem().into_bytes() })
}

/// Creates a serving certificate for these names, signed by `ca`. `origin` names the CA in errors.
///
/// # Errors
/// `ca` cannot sign, or a name is not valid in a certificate.
pub fn new_leaf(
    ca: &PemPair,
    origin: &str,
    dns_names: &[String],
    now: Timestamp,
) -> Result<PemPair, CertificateError> {
    let key = KeyPair::generate()?;
    let mut params = with_validity(CertificateParams::new(dns_names.to_vec())?, LEAF_DAYS, now);
    if let Some(name) = dns_names.iter().find(|name| name.len() <= COMMON_NAME_BYTES) {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer(ca, origin)?)?.pem().into_bytes();
    Ok(PemPair { certificate, key: key.serialize_pem().into_bytes() })
}

/// `true` if the pair is a CA that can sign.
pub fn can_sign(ca: &PemPair) -> bool {
    let is_ca = |der: CertificateDer<'_>| {
        x509_parser::parse_x509_certificate(&der).is_ok_and(|(_, parsed)| parsed.is_ca())
    };
    CertificateDer::from_pem_slice(&ca.certificate).is_ok_and(is_ca)
        && issuer(ca, "").is_ok()
        && ca.parse("", &aws_lc_rs::default_provider()).is_ok()
}

fn issuer(ca: &PemPair, origin: &str) -> Result<Issuer<'static, KeyPair>, CertificateError> {
    let wrong = |why: String| CertificateError::Pem { origin: origin.to_owned(), why };
    let key = std::str::from_utf8(&ca.key).map_err(|error| wrong(error.to_string()))?;
    let certificate = std::str::from_utf8(&ca.certificate).map_err(|error| wrong(error.to_string()))?;
    let key = KeyPair::from_pem(key)?;
    Ok(Issuer::from_ca_cert_pem(certificate, key)?)
}

/// Sets a validity of `days` whole days from the start of yesterday, so that clients whose clock is behind accept
/// it.
fn with_validity(mut params: CertificateParams, days: i64, now: Timestamp) -> CertificateParams {
    params.distinguished_name = rcgen::DistinguishedName::new();
    let today = now.to_zoned(jiff::tz::TimeZone::UTC).date();
    let day = |date: jiff::civil::Date| {
        rcgen::date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    let from = today.saturating_sub(1.day());
    params.not_before = day(from);
    params.not_after = day(from.saturating_add(days.days()));
    params
}

/// `true` if key and certificate match, and a client that trusts `bundle` (PEM) accepts them at `now`, for each
/// name.
pub fn is_accepted(pair: &PemPair, bundle: &[u8], dns_names: &[String], now: Timestamp) -> bool {
    pair.parse("", &aws_lc_rs::default_provider()).is_ok()
        && is_trusted(&pair.certificate, bundle, dns_names, now)
}

/// `true` if a client that trusts `bundle` (PEM) accepts the certificate chain (PEM, leaf first) at `now`, for each
/// name.
pub fn is_trusted(chain: &[u8], bundle: &[u8], dns_names: &[String], now: Timestamp) -> bool {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut chain = certificates(chain);
    let Some(leaf) = chain.next() else {
        return false;
    };
    let chain: Vec<_> = chain.collect();
    let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(bundle)), provider).build()
    else {
        return false;
    };
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    dns_names.iter().all(|name| {
        ServerName::try_from(name.as_str())
            .is_ok_and(|name| verifier.verify_server_cert(&leaf, &chain, &name, &[], at).is_ok())
    })
}

/// Merges the certificates in `texts` into one PEM text, in order, without duplicates and expired ones, at most
/// `most`.
pub fn merged_bundle<'a>(texts: impl IntoIterator<Item = &'a [u8]>, most: usize, now: Timestamp) -> Vec<u8> {
    let all = texts.into_iter().flat_map(certificates);
    let mut kept: Vec<CertificateDer<'_>> = Vec::new();
    for der in all {
        let lives = Validity::of_der(&der).is_some_and(|validity| now <= validity.until);
        if lives && !kept.contains(&der) {
            kept.push(der);
        }
    }
    kept.iter().take(most).flat_map(|der| pem(der)).collect()
}

/// The certificates of a PEM text after the first one, which is the leaf, as PEM text.
pub fn chain_above(certificate: &[u8]) -> Vec<u8> {
    certificates(certificate).skip(1).flat_map(|der| pem(&der)).collect()
}

/// Number of certificates in a PEM text.
pub fn count(bundle: &[u8]) -> usize {
    certificates(bundle).count()
}

fn pem(der: &[u8]) -> Vec<u8> {
    let text = STANDARD.encode(der);
    let mut pem = b"-----BEGIN CERTIFICATE-----\n".to_vec();
    for line in text.as_bytes().chunks(64) {
        pem.extend(line);
        pem.push(b'\n');
    }
    pem.extend(b"-----END CERTIFICATE-----\n");
    pem
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn names() -> Vec<String> {
        ["s.ns.svc", "s.ns"].map(str::to_owned).to_vec()
    }

    #[test]
    fn issued_certificate_is_accepted_while_valid() {
        let now = at("2026-01-10T12:00:00Z");
        let ca = new_ca("s-ca", now).unwrap();
        let leaf = new_leaf(&ca, "test", &names(), now).unwrap();
        assert!(can_sign(&ca) && !can_sign(&leaf));
        let validity = Validity::of(&leaf.certificate).unwrap();
        assert_eq!((validity.from, validity.until), (at("2026-01-09T00:00:00Z"), at("2026-04-09T00:00:00Z")));
        assert_eq!(validity.due(), at("2026-03-10T00:00:00Z"));
        let stranger = new_ca("s-ca", now).unwrap();
        for (bundle, time, accepted) in [
            (&ca, "2026-01-09T00:00:00Z", true),
            (&ca, "2026-04-09T00:00:00Z", true),
            (&ca, "2026-04-09T00:00:01Z", false),
            (&ca, "2026-01-08T23:59:59Z", false),
            (&stranger, "2026-02-01T00:00:00Z", false),
        ] {
            assert_eq!(is_accepted(&leaf, &bundle.certificate, &names(), at(time)), accepted, "{time}");
        }
        assert!(!is_accepted(&leaf, &ca.certificate, &["t.ns.svc".to_owned()], now));
        let mixed = PemPair { key: ca.key.clone(), ..leaf.clone() };
        assert!(!is_accepted(&mixed, &ca.certificate, &names(), now), "the key must match the certificate");
        assert_eq!(Validity::of(b"garbage"), None);
    }

    #[test]
    fn name_longer_than_64_bytes_is_not_a_common_name() {
        let now = at("2026-01-10T12:00:00Z");
        let ca = new_ca("s-ca", now).unwrap();
        let long = vec![format!("{}.{}.svc", "s".repeat(63), "n".repeat(63))];
        let leaf = new_leaf(&ca, "test", &long, now).unwrap();
        assert!(is_accepted(&leaf, &ca.certificate, &long, now));
    }

    #[test]
    fn bundles_are_merged_in_order_without_expired_certificates() {
        let now = at("2026-01-10T12:00:00Z");
        let [new, old, oldest] = ["2026-01-10T00:00:00Z", "2020-01-01T00:00:00Z", "2010-01-01T00:00:00Z"]
            .map(|time| new_ca("s-ca", at(time)).unwrap().certificate);
        let all = [&new[..], &old, b"garbage", &oldest, &new].concat();
        let expected = [&new[..], &old].concat();
        let merged = merged_bundle([&all[..], &old], 8, now);
        assert_eq!((count(&merged), count(&expected)), (2, 2));
        assert_eq!(merged_bundle([&expected[..]], 8, now), merged, "merging again changes nothing");
        assert_eq!(count(&merged_bundle([&all[..]], 1, now)), 1);
        assert_eq!(chain_above(&merged), merged_bundle([&old[..]], 8, now));
        assert!(merged_bundle([&b""[..]], 8, now).is_empty());
    }
}
