//! Certificates in the place of those that a recording does not contain.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;

/// Words of recordings, which stand for base64 of PEM texts.
pub(super) const CA: &str = "CA_OF_THE_REPLAY";
pub(super) const CERTIFICATE: &str = "CERTIFICATE_OF_THE_REPLAY";
pub(super) const KEY: &str = "KEY_OF_THE_REPLAY";

/// Replaces the words in all objects by one CA and one pair that is valid for all Services of the installation.
///
/// # Errors
/// A name of a Service cannot be one of a certificate.
pub(super) fn issue(objects: &mut [Value]) -> Result<()> {
    let names: Vec<String> = objects
        .iter()
        .filter(|object| object["kind"] == "Service")
        .filter_map(|service| {
            let metadata = &service["metadata"];
            Some((metadata["name"].as_str()?, metadata["namespace"].as_str()?))
        })
        .flat_map(|(name, namespace)| {
            ["", ".svc", ".svc.cluster.local"].map(|end| format!("{name}.{namespace}{end}"))
        })
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate()?;
    let ca = authority.self_signed(&authority_key)?;
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new(names)?.signed_by(&key, &Issuer::new(authority, authority_key))?;
    for (word, pem) in [(CA, ca.pem()), (CERTIFICATE, leaf.pem()), (KEY, key.serialize_pem())] {
        for object in &mut *objects {
            super::replace(object, word, &STANDARD.encode(&pem));
        }
    }
    Ok(())
}
