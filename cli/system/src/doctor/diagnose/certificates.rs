//! Findings about serving certificates, and the CA bundles of the webhooks that use them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use olm_cli_core::output::qualified;
use olm_serving::builtin::CA_SECRET;
use olm_serving::issue::{Validity, is_trusted};
use serde_json::Value;

use super::{Finding, finding};
use crate::doctor::observed::{Certificate, Observed, list, owner, text, title};
use crate::doctor::rule;

/// Time before the end of a certificate at which it should have been renewed.
const SOON: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Annotations by which other providers write the CA bundle.
const INJECTORS: [&str; 2] = ["cert-manager.io/inject-ca-from", "service.beta.openshift.io/inject-cabundle"];

pub(super) fn findings(observed: &Observed, now: Timestamp) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        observed.certificates.iter().filter_map(|certificate| validity(certificate, now)).collect();
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        for object in observed.list(kind) {
            let title = title(kind, object);
            for webhook in list(object, "/webhooks") {
                findings.extend(of_client(&title, object, &webhook["clientConfig"], observed, now));
            }
        }
    }
    for crd in observed.list("CustomResourceDefinition") {
        if let Some(client) = crd.pointer("/spec/conversion/webhook/clientConfig") {
            let title = title("CustomResourceDefinition", crd);
            findings.extend(of_client(&title, crd, client, observed, now));
        }
    }
    findings
}

fn validity(certificate: &Certificate, now: Timestamp) -> Option<Finding> {
    let object = format!("Secret {}", qualified(&certificate.namespace, &certificate.secret));
    let Some(validity) = Validity::of(&certificate.chain) else {
        return Some(finding(&rule::EXPIRED, object, "it has no certificate"));
    };
    let message = format!("its certificate is valid from {} until {}", validity.from, validity.until);
    if !validity.contains(now) {
        let is_ca = certificate.secret == CA_SECRET;
        return Some(finding(if is_ca { &rule::CA_EXPIRED } else { &rule::EXPIRED }, object, message));
    }
    let is_soon = validity.until.duration_since(now) < SOON;
    is_soon.then(|| finding(&rule::EXPIRES, object, message))
}

/// Checks the CA bundle of a client configuration against the certificates that its Service may serve.
fn of_client(
    title: &str,
    object: &Value,
    client: &Value,
    observed: &Observed,
    now: Timestamp,
) -> Option<Finding> {
    let (namespace, service) = (text(client, "/service/namespace"), text(client, "/service/name"));
    if service.is_empty() {
        return None;
    }
    let bundle = BASE64_STANDARD.decode(text(client, "/caBundle")).unwrap_or_default();
    if bundle.is_empty() {
        let annotations = object.pointer("/metadata/annotations");
        let injector = INJECTORS.iter().find(|key| annotations.is_some_and(|all| all.get(key).is_some()));
        let injector =
            injector.map(|key| format!(", although it has the annotation {key}")).unwrap_or_default();
        let message = format!("the CA bundle for Service {namespace}/{service} is empty{injector}");
        return Some(finding(&rule::CA_MISSING, title, message));
    }
    let host = [format!("{service}.{namespace}.svc")];
    let owner = owner(object);
    let is_candidate = |one: &&Certificate| {
        one.namespace == namespace
            && Validity::of(&one.chain).is_some_and(|validity| validity.contains(now))
            && if owner.is_empty() { one.secret.starts_with(service) } else { one.owner == owner }
    };
    let candidates: Vec<&Certificate> = observed.certificates.iter().filter(is_candidate).collect();
    if candidates.is_empty() || candidates.iter().any(|one| is_trusted(&one.chain, &bundle, &host, now)) {
        return None;
    }
    let secrets: Vec<&str> = candidates.iter().map(|one| one.secret.as_str()).collect();
    let message = format!(
        "the CA bundle for Service {namespace}/{service} does not accept the certificate in Secret {}",
        secrets.join(", ")
    );
    Some(finding(&rule::CA_MISMATCH, title, message))
}
