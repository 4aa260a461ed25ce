//! The two Secrets of a Service: their owner, their content, and the Secret to write. Pure except for the keys, which
//! are random and never logged.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use olm_api::{annotations, labels};
use olm_bundle::Serving;
use olm_serving::certificate::{CertificateError, PemPair};
use olm_serving::issue::{
    Validity, can_sign, chain_above, count, is_accepted, merged_bundle, new_ca, new_leaf,
};

use super::needs::{ca_secret, dns_names};
use super::plan::{Authority, Facts, Leaf, Step};

/// Values of the label on our Secrets.
const CA: &str = "ca";
const SERVING: &str = "serving";
/// Maximum number of CAs in a bundle. Only renewals requested in quick succession reach it.
const MAX_TRUSTED: usize = 8;
/// Annotations that other providers set on the Secrets that they create for a certificate or Service of this name.
const CERT_MANAGER_MARK: &str = "cert-manager.io/certificate-name";
const OPENSHIFT_MARKS: [&str; 2] = [
    "service.beta.openshift.io/originating-service-name",
    "service.alpha.openshift.io/originating-service-name",
];
/// Annotation of classic OLM on the Secret of a serving certificate. While it is there, webhook configurations of classic
/// OLM may still trust only its CA (docs/design/migration.md#certificates).
const CLASSIC_MARK: &str = "olmcahash";
/// CA of classic OLM in that Secret.
const CLASSIC_CA: &str = "olmCAKey";
/// Prefixes of all annotations and labels of theirs.
const PREFIXES_OF_OTHERS: [&str; 4] = [
    "cert-manager.io",
    "controller.cert-manager.io",
    "service.beta.openshift.io",
    "service.alpha.openshift.io",
];

/// The extension that owns Secrets.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    /// Name of the extension.
    pub name: String,
    /// UID of the extension.
    pub uid: String,
    /// Requested renewal, from the annotation.
    pub renewal_request: Option<String>,
    /// Reference for Events.
    pub about: ObjectReference,
    reference: Option<OwnerReference>,
}

impl Owner {
    /// Reads the extension's metadata.
    pub(super) fn of<K: Resource<DynamicType = ()>>(extension: &K) -> Self {
        let renewal_request = extension.annotations().get(annotations::EXT_RENEW_WEBHOOK_CERTIFICATES_AT);
        Self {
            name: extension.name_any(),
            uid: extension.uid().unwrap_or_default(),
            renewal_request: renewal_request.cloned(),
            about: extension.object_ref(&()),
            reference: extension.controller_owner_ref(&()),
        }
    }

    fn owns<K: Resource>(&self, secret: &K) -> bool {
        secret.owner_references().iter().any(|reference| reference.uid == self.uid)
    }

    /// Returns `true` if a Secret with our label may be removed. A bundle may have set the label on a Secret of its
    /// own.
    pub(super) fn may_remove<K: Resource>(&self, secret: &K) -> bool {
        secret.owner_references().is_empty() || self.owns(secret)
    }

    fn has_marked(&self, secret: &Secret, role: &str) -> bool {
        let has = |key: &str, value: &str| secret.labels().get(key).is_some_and(|label| label == value);
        has(labels::EXT_WEBHOOK_CERTIFICATE, role)
            && has(labels::OWNER_NAME, &self.name)
            && has(labels::OWNER_KIND, labels::OWNER_KIND_EXTENSION)
            && self.owns(secret)
    }
}

/// The observed Secrets of a Service.
#[derive(Clone, Debug)]
pub(super) struct ServiceSecrets<'a> {
    /// Extension that is to own them.
    pub owner: &'a Owner,
    /// The Service.
    pub serving: &'a Serving,
    /// `true` if another provider issues the serving certificate.
    pub issued_by_others: bool,
    /// Secret of the CA.
    pub ca: Option<Secret>,
    /// Secret of the serving certificate.
    pub leaf: Option<Secret>,
}

impl ServiceSecrets<'_> {
    /// Checks that we may write both Secrets, now or after the other provider has stopped issuing.
    ///
    /// # Errors
    /// A Secret was created by another client, or belongs to another or a deleted extension.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(secret) = &self.ca {
            possession(self.owner, secret, false)?;
        }
        if let Some(secret) = self.leaf.as_ref().filter(|_| !self.issued_by_others) {
            possession(self.owner, secret, is_left_by_others(secret, self.serving))?;
        }
        Ok(())
    }

    /// Returns the CAs that clients must trust now, the current one first. Empty without a CA.
    pub(super) fn bundle(&self, now: Timestamp) -> Vec<u8> {
        let leaf = self.leaf.as_ref().filter(|_| !self.issued_by_others);
        self.ca.as_ref().map(|ca| trusted(ca, leaf, now)).unwrap_or_default()
    }

    /// Returns the facts that decide the next step.
    pub(super) fn facts(&self, carried_for: Option<std::time::Duration>, now: Timestamp) -> Facts {
        let bundle = self.bundle(now);
        Facts {
            authority: self.ca.as_ref().and_then(|secret| self.authority(secret, &bundle, now)),
            leaf: self.leaf.as_ref().and_then(|secret| self.held_leaf(secret, &bundle, now)),
            issued_by_others: self.issued_by_others,
            renewal_request: self.owner.renewal_request.clone(),
            carried_for,
        }
    }

    fn authority(&self, secret: &Secret, bundle: &[u8], now: Timestamp) -> Option<Authority> {
        let pair = pair(secret);
        let validity = Validity::of(&pair.certificate).filter(|validity| validity.contains(now))?;
        can_sign(&pair).then(|| Authority {
            due: validity.due(),
            fulfilled_request: self.fulfilled_request().cloned(),
            has_predecessors: count(bundle) > 1,
            is_in_order: self.owner.has_marked(secret, CA) && value(secret, "ca.crt") == bundle,
        })
    }

    fn held_leaf(&self, secret: &Secret, bundle: &[u8], now: Timestamp) -> Option<Leaf> {
        let pair = pair(secret);
        let names = dns_names(self.serving);
        let current = self.ca.as_ref().map(|ca| value(ca, "tls.crt")).unwrap_or_default();
        let in_order = self.owner.has_marked(secret, SERVING)
            && value(secret, "ca.crt") == bundle
            && !secret.annotations().keys().chain(secret.labels().keys()).any(|key| is_of_others(key));
        let since = secret.annotations().get(annotations::EXT_CERTIFICATE_SINCE);
        Some(Leaf {
            due: Validity::of(&pair.certificate)?.due(),
            is_accepted: is_accepted(&pair, bundle, &names, now),
            is_held: secret.annotations().contains_key(CLASSIC_MARK),
            is_of_current: is_accepted(&pair, current, &names, now),
            in_order_since: since.filter(|_| in_order).and_then(|since| since.parse().ok()),
        })
    }

    /// Returns the Secret to write for a step, or `None` for a step that writes none.
    ///
    /// # Errors
    /// No certificate can be created for the names of this Service, or by this CA.
    pub(super) fn written(&self, step: Step, now: Timestamp) -> Result<Option<Secret>, CertificateError> {
        let bundle = self.bundle(now);
        let ca = self.ca.as_ref().map(pair);
        Ok(Some(match (step, &ca) {
            (Step::NewAuthority(_), _) => {
                let new = new_ca(&ca_secret(self.serving), now)?;
                let served = self.leaf.as_ref();
                let above = served.map(|secret| chain_above(value(secret, "tls.crt"))).unwrap_or_default();
                let [beside, classic] = ["ca.crt", CLASSIC_CA]
                    .map(|key| served.map(|secret| value(secret, key)).unwrap_or_default());
                let texts = [&new.certificate, &bundle, beside, classic, &above[..]];
                let bundle = merged_bundle(texts, MAX_TRUSTED, now);
                self.ca_secret(&new, &bundle, self.owner.renewal_request.as_ref())
            }
            (Step::RepairAuthority, Some(ca)) => self.ca_secret(ca, &bundle, self.fulfilled_request()),
            (Step::DropOldAuthorities, Some(ca)) => {
                let bundle = merged_bundle([&ca.certificate[..]], MAX_TRUSTED, now);
                self.ca_secret(ca, &bundle, self.fulfilled_request())
            }
            (Step::NewLeaf, Some(ca)) => {
                let mut secret = self.leaf_secret(&self.new_leaf(ca, &bundle, now)?, &bundle, now);
                secret.annotations_mut().remove(CLASSIC_MARK);
                secret
            }
            (Step::RepairLeaf, _) => {
                let Some(held) = &self.leaf else { return Ok(None) };
                let since = held.annotations().get(annotations::EXT_CERTIFICATE_SINCE);
                let since = since.and_then(|since| since.parse().ok()).filter(|since| *since <= now);
                let since = since.unwrap_or(now);
                self.leaf_secret(&pair(held), &bundle, since)
            }
            _ => return Ok(None),
        }))
    }

    fn new_leaf(&self, ca: &PemPair, bundle: &[u8], now: Timestamp) -> Result<PemPair, CertificateError> {
        let names = dns_names(self.serving);
        let origin = format!("Secret {}/{}", self.serving.namespace, ca_secret(self.serving));
        let pair = new_leaf(ca, &origin, &names, now)?;
        // A certificate that is not accepted, whatever the cause, would be replaced in a loop.
        if is_accepted(&pair, bundle, &names, now) {
            return Ok(pair);
        }
        let why = format!("cannot create a certificate for {} that clients accept", names.join(", "));
        Err(CertificateError::Pem { origin, why })
    }

    fn fulfilled_request(&self) -> Option<&String> {
        self.ca.as_ref()?.annotations().get(annotations::EXT_RENEW_WEBHOOK_CERTIFICATES_AT)
    }

    fn ca_secret(&self, pair: &PemPair, bundle: &[u8], fulfilled_request: Option<&String>) -> Secret {
        let record = (annotations::EXT_RENEW_WEBHOOK_CERTIFICATES_AT, fulfilled_request.cloned());
        self.secret(&ca_secret(self.serving), CA, self.ca.as_ref(), pair, bundle, record)
    }

    fn leaf_secret(&self, pair: &PemPair, bundle: &[u8], since: Timestamp) -> Secret {
        let record = (annotations::EXT_CERTIFICATE_SINCE, Some(since.to_string()));
        self.secret(&self.serving.secret, SERVING, self.leaf.as_ref(), pair, bundle, record)
    }

    /// Returns the Secret to write: with the resourceVersion of `stored` and its metadata, except that of other
    /// providers.
    fn secret(
        &self,
        name: &str,
        role: &str,
        stored: Option<&Secret>,
        pair: &PemPair,
        bundle: &[u8],
        (record, recorded): (&str, Option<String>),
    ) -> Secret {
        let mut metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(self.serving.namespace.clone()),
            owner_references: self.owner.reference.clone().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        };
        let mut kind = "kubernetes.io/tls".to_owned();
        if let Some(stored) = stored {
            let retained = |map: &BTreeMap<String, String>| -> BTreeMap<_, _> {
                map.iter()
                    .filter(|(key, _)| !is_of_others(key))
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect()
            };
            metadata.resource_version = stored.resource_version();
            metadata.uid = stored.uid();
            metadata.finalizers.clone_from(&stored.metadata.finalizers);
            metadata.labels = Some(retained(stored.labels()));
            metadata.annotations = Some(retained(stored.annotations()));
            // The type of a Secret is immutable.
            kind = stored.type_.clone().unwrap_or(kind);
        }
        metadata.labels.get_or_insert_default().extend(
            [
                (labels::EXT_WEBHOOK_CERTIFICATE, role),
                (labels::OWNER_KIND, labels::OWNER_KIND_EXTENSION),
                (labels::OWNER_NAME, &self.owner.name),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        let annotations = metadata.annotations.get_or_insert_default();
        match recorded {
            Some(value) => drop(annotations.insert(record.to_owned(), value)),
            None => drop(annotations.remove(record)),
        }
        let data = [("tls.crt", &pair.certificate[..]), ("tls.key", &pair.key), ("ca.crt", bundle)];
        let data = data.map(|(key, value)| (key.to_owned(), ByteString(value.to_vec())));
        Secret { metadata, type_: Some(kind), data: Some(data.into()), ..Secret::default() }
    }
}

/// Checks that the extension may write the Secret.
fn possession(owner: &Owner, secret: &Secret, is_left: bool) -> Result<(), String> {
    let name = format!("{}/{}", secret.namespace().unwrap_or_default(), secret.name_any());
    let is_marked = secret.labels().contains_key(labels::EXT_WEBHOOK_CERTIFICATE);
    match secret.labels().get(labels::OWNER_NAME) {
        _ if owner.owns(secret) => Ok(()),
        Some(extension) if is_marked && *extension != owner.name => {
            Err(format!("Secret {name} holds webhook certificates of ClusterExtension {extension:?}"))
        }
        _ if is_left || (is_marked && secret.owner_references().is_empty()) => Ok(()),
        _ if is_marked => Err(format!(
            "Secret {name} belongs to a deleted ClusterExtension of this name; it is recreated once garbage collection \
             has removed it"
        )),
        _ => Err(format!(
            "Secret {name} exists and does not belong to OLM: the built-in provider of webhook certificates needs this \
             name and does not overwrite the Secret; remove the Secret"
        )),
    }
}

/// Returns `true` if another provider created the Secret for this Service.
fn is_left_by_others(secret: &Secret, serving: &Serving) -> bool {
    let says = |key: &str, value: &str| secret.annotations().get(key).is_some_and(|said| said == value);
    says(CERT_MANAGER_MARK, &serving.secret)
        || OPENSHIFT_MARKS.iter().any(|key| says(key, &serving.service))
        || is_left_by_classic(secret)
}

/// Returns `true` if classic OLM created the Secret, and its ClusterServiceVersion does not own it any more.
fn is_left_by_classic(secret: &Secret) -> bool {
    secret.annotations().contains_key(CLASSIC_MARK)
        && !value(secret, CLASSIC_CA).is_empty()
        && secret.owner_references().is_empty()
}

fn is_of_others(key: &str) -> bool {
    key.split_once('/').is_some_and(|(prefix, _)| PREFIXES_OF_OTHERS.contains(&prefix))
}

/// Returns the CAs that clients must trust now, the current one first: those in the Secret of a CA, and that of classic
/// OLM, whose certificate exists beside our CA after a return to classic OLM and another migration.
pub(super) fn trusted(ca: &Secret, leaf: Option<&Secret>, now: Timestamp) -> Vec<u8> {
    let classic = leaf.filter(|leaf| is_left_by_classic(leaf));
    let classic = classic.into_iter().flat_map(|leaf| [value(leaf, "ca.crt"), value(leaf, CLASSIC_CA)]);
    let own = [value(ca, "tls.crt"), value(ca, "ca.crt")];
    merged_bundle(own.into_iter().chain(classic), MAX_TRUSTED, now)
}

fn value<'a>(secret: &'a Secret, key: &str) -> &'a [u8] {
    secret.data.as_ref().and_then(|data| data.get(key)).map(|value| &value.0[..]).unwrap_or_default()
}

fn pair(secret: &Secret) -> PemPair {
    PemPair { certificate: value(secret, "tls.crt").to_vec(), key: value(secret, "tls.key").to_vec() }
}

/// Returns the end of validity of the certificate in a Secret, or `None` if it holds none.
pub(super) fn expiry(secret: &Secret) -> Option<Timestamp> {
    Validity::of(value(secret, "tls.crt")).map(|validity| validity.until)
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
