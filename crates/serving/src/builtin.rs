//! Built-in certificates: a CA and the serving certificates of both servers, which operator-controller stores in
//! Secrets and rotates, so that an installation needs no other issuer. catalogd only reads its own Secret, which
//! has no CA key.
//!
//! Every replica of operator-controller may write. A Secret is created if absent and replaced only at the
//! resourceVersion that was read. On a conflict it is read again. The key of a retired CA is dropped. Its
//! certificate stays in the bundle `ca.crt` until the next rotation, so that certificates signed by it stay trusted
//! while in use.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Resource, ResourceExt};
use olm_runtime::cluster::within_deadline;
use olm_runtime::component::Component;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::certificate::{CertificateError, FILE_POLL, PemPair, SECRET_POLL};
use crate::issue::{Validity, can_sign, is_accepted, new_ca, new_leaf};

/// Name of the CA's Secret, in the namespace of operator-controller.
pub const CA_SECRET: &str = "olmv1-ca";
/// Attempts on a Secret, in conflict with other writers, before waiting for the next poll.
const ATTEMPTS: usize = 5;

const CERTIFICATE_KEY: &str = "tls.crt";
const PRIVATE_KEY: &str = "tls.key";
const BUNDLE_KEY: &str = "ca.crt";

/// Issuer of the CA and one serving certificate.
#[derive(Debug)]
pub struct BuiltinCertificates {
    authority: Api<Secret>,
    serving: Api<Secret>,
    /// Name of the serving Secret.
    pub serving_secret: String,
    dns_names: Vec<String>,
    bundle: watch::Sender<Vec<u8>>,
}

impl BuiltinCertificates {
    /// The certificate of `component` in a Secret of its `namespace`. `authority` is the namespace of the CA's
    /// Secret.
    pub fn new(client: Client, authority: &str, component: Component, namespace: &str) -> Self {
        Self {
            authority: Api::namespaced(client.clone(), authority),
            serving: Api::namespaced(client, namespace),
            serving_secret: component.serving_secret(),
            dns_names: component.dns_names(namespace),
            bundle: watch::Sender::new(Vec::new()),
        }
    }

    /// The CA bundle (PEM), empty before the first successful [`Self::ensure`]. The receiver is notified of
    /// changes.
    pub fn ca_bundle(&self) -> watch::Receiver<Vec<u8>> {
        self.bundle.subscribe()
    }

    /// Renews the certificate of a server in another process until `stop`.
    pub async fn keep(self, stop: CancellationToken) {
        loop {
            let wait = match self.ensure().await {
                Ok(_) => SECRET_POLL,
                Err(error) => {
                    tracing::error!(%error, "failed to issue serving certificate");
                    FILE_POLL
                }
            };
            if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                return;
            }
        }
    }

    /// Reads both Secrets, and creates or renews certificates that are missing or due. Returns the serving pair.
    ///
    /// # Errors
    /// The API server rejects a call, or every attempt ends in a conflict.
    pub async fn ensure(&self) -> Result<StoredPair, CertificateError> {
        let now = Timestamp::now();
        let ca = ensure_secret(&self.authority, CA_SECRET, |held| next_ca(held, now)).await?;
        let next = |held: Option<&StoredPair>| next_leaf(held, &ca, &self.dns_names, now);
        let leaf = ensure_secret(&self.serving, &self.serving_secret, next).await?;
        self.bundle.send_if_modified(|bundle| {
            let differs = *bundle != leaf.bundle;
            bundle.clone_from(&leaf.bundle);
            differs
        });
        Ok(leaf)
    }
}

/// Reads one Secret, and writes the result of `next` if it differs from the content.
async fn ensure_secret(
    secrets: &Api<Secret>,
    name: &str,
    next: impl Fn(Option<&StoredPair>) -> Result<StoredPair, CertificateError>,
) -> Result<StoredPair, CertificateError> {
    let failed = |source| CertificateError::Secret { name: name.to_owned(), source };
    let mut attempt = 0;
    loop {
        attempt += 1;
        let secret = within_deadline(secrets.get_opt(name)).await.map_err(failed)?;
        let held = secret.as_ref().and_then(StoredPair::read);
        let next_pair = next(held.as_ref())?;
        if held.as_ref() == Some(&next_pair) {
            return Ok(next_pair);
        }
        let desired = next_pair.to_secret(name, secret.as_ref());
        let params = PostParams::default();
        let written = match secret {
            None => within_deadline(secrets.create(&params, &desired)).await,
            Some(_) => within_deadline(secrets.replace(name, &params, &desired)).await,
        };
        match written {
            Ok(_) => {
                tracing::info!(secret = name, "issued certificate");
                return Ok(next_pair);
            }
            Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Content of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPair {
    /// The CA, or the serving pair.
    pub pair: PemPair,
    /// CA certificates that clients trust, PEM.
    pub bundle: Vec<u8>,
}

impl StoredPair {
    /// `None` if certificate or key is missing. Such a Secret is rewritten.
    pub(crate) fn read(secret: &Secret) -> Option<Self> {
        let pair = PemPair { certificate: value(secret, CERTIFICATE_KEY)?, key: value(secret, PRIVATE_KEY)? };
        let bundle = value(secret, BUNDLE_KEY).unwrap_or_else(|| pair.certificate.clone());
        Some(Self { pair, bundle })
    }

    /// The Secret to write, with resourceVersion, labels and annotations of `stored`.
    fn to_secret(&self, name: &str, stored: Option<&Secret>) -> Secret {
        let part_of = ("app.kubernetes.io/part-of".to_owned(), "olm".to_owned());
        let mut metadata = ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([part_of])),
            ..ObjectMeta::default()
        };
        if let Some(stored) = stored {
            metadata.resource_version = stored.resource_version();
            metadata.annotations.clone_from(&stored.meta().annotations);
            metadata.labels.get_or_insert_default().extend(stored.labels().clone());
        }
        let data = [
            (CERTIFICATE_KEY, &self.pair.certificate),
            (PRIVATE_KEY, &self.pair.key),
            (BUNDLE_KEY, &self.bundle),
        ];
        Secret {
            metadata,
            type_: stored
                .and_then(|secret| secret.type_.clone())
                .or_else(|| Some("kubernetes.io/tls".to_owned())),
            data: Some(
                data.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value.clone()))).collect(),
            ),
            ..Secret::default()
        }
    }
}

fn value(secret: &Secret, key: &str) -> Option<Vec<u8>> {
    Some(secret.data.as_ref()?.get(key)?.0.clone())
}

/// The held CA while it has more than a third of its validity left, else a new one.
fn next_ca(held: Option<&StoredPair>, now: Timestamp) -> Result<StoredPair, CertificateError> {
    let usable = held.filter(|held| can_sign(&held.pair));
    if let Some(held) = usable.filter(|held| !is_due(&held.pair.certificate, now)) {
        return Ok(held.clone());
    }
    let pair = new_ca(CA_SECRET, now)?;
    let mut bundle = pair.certificate.clone();
    bundle.extend(usable.map(|held| held.pair.certificate.clone()).unwrap_or_default());
    Ok(StoredPair { pair, bundle })
}

/// The held serving certificate while clients with the CA bundle accept it for every name and it has more than a
/// third of its validity left, else a new one. With the present CA bundle.
fn next_leaf(
    held: Option<&StoredPair>,
    ca: &StoredPair,
    dns_names: &[String],
    now: Timestamp,
) -> Result<StoredPair, CertificateError> {
    let usable = held.filter(|held| {
        !is_due(&held.pair.certificate, now) && is_accepted(&held.pair, &ca.bundle, dns_names, now)
    });
    let pair = match usable {
        Some(held) => held.pair.clone(),
        None => new_leaf(&ca.pair, &format!("Secret {CA_SECRET}"), dns_names, now)?,
    };
    Ok(StoredPair { pair, bundle: ca.bundle.clone() })
}

/// `true` if the certificate is not valid yet because a clock was wrong, if two thirds of its validity period are over, or
/// if the text is not a certificate.
fn is_due(certificate: &[u8], now: Timestamp) -> bool {
    Validity::of(certificate).is_none_or(|validity| now < validity.from || now >= validity.due())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 2] = ["localhost", "catalogd-service.ns.svc"];

    fn names() -> Vec<String> {
        NAMES.map(str::to_owned).to_vec()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn pair_is_issued_once_and_renewed_at_two_thirds() {
        let start = at("2026-01-01T12:00:00Z");
        let ca = next_ca(None, start).unwrap();
        assert_eq!(next_ca(Some(&ca), start).unwrap(), ca);
        let leaf = next_leaf(None, &ca, &names(), start).unwrap();
        assert_eq!(next_leaf(Some(&leaf), &ca, &names(), start).unwrap(), leaf);
        let rows = [("2026-02-28T00:00:00Z", false), ("2026-03-03T00:00:00Z", true)];
        for (time, due) in rows {
            assert_eq!(next_leaf(Some(&leaf), &ca, &names(), at(time)).unwrap() != leaf, due, "{time}");
        }
        // Issued by a clock that was a week ahead.
        let earlier = at("2025-12-25T12:00:00Z");
        let replaced = next_ca(Some(&ca), earlier).unwrap();
        assert!(Validity::of(&replaced.pair.certificate).unwrap().contains(earlier));
        assert!(replaced.bundle.ends_with(&ca.pair.certificate));
        // Another name, or invalid content: a new certificate is issued.
        assert_ne!(next_leaf(Some(&leaf), &ca, &["other.svc".to_owned()], start).unwrap().pair, leaf.pair);
        let garbage = StoredPair {
            pair: PemPair { certificate: b"x".to_vec(), key: b"y".to_vec() },
            bundle: Vec::new(),
        };
        assert_ne!(next_leaf(Some(&garbage), &ca, &names(), start).unwrap().pair, garbage.pair);
        assert_ne!(next_ca(Some(&garbage), start).unwrap().pair, garbage.pair);
    }

    #[test]
    fn new_ca_bundle_trusts_certificates_of_old_ca() {
        let start = at("2026-01-01T00:00:00Z");
        let later = at("2032-12-01T00:00:00Z");
        let old = next_ca(None, start).unwrap();
        let leaf = next_leaf(None, &old, &names(), at("2032-11-20T00:00:00Z")).unwrap();
        let new = next_ca(Some(&old), later).unwrap();
        assert_ne!(new.pair, old.pair);
        assert!(is_accepted(&leaf.pair, &new.bundle, &names(), later));
        // Same certificate, newer bundle.
        let refreshed = next_leaf(Some(&leaf), &new, &names(), later).unwrap();
        assert_eq!((&refreshed.pair, &refreshed.bundle), (&leaf.pair, &new.bundle));
        // A CA created after its Secret was deleted does not include the old one.
        let stranger = next_ca(None, later).unwrap();
        let reissued = next_leaf(Some(&leaf), &stranger, &names(), later).unwrap();
        assert_ne!(reissued.pair, leaf.pair);
        assert!(is_accepted(&reissued.pair, &stranger.bundle, &names(), later));
    }
}
