//! Faults of certificates and webhooks.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use olm_serving::issue::{new_ca, new_leaf};
use serde_json::json;

use super::fixture::{NAMESPACE, after, found, healthy, now, owned_by};
use crate::doctor::observed::{Certificate, Observed};

/// Cluster with a serving certificate of `service` that is issued at `issued`, and the PEM of its CA.
fn with_certificate(issued: Timestamp, secret: &str, service: &str, owner: &str) -> (Observed, Vec<u8>) {
    let mut observed = healthy();
    let ca = new_ca("test", issued).unwrap();
    let leaf = new_leaf(&ca, "test", &[format!("{service}.{NAMESPACE}.svc")], issued).unwrap();
    observed.certificates.push(Certificate {
        namespace: NAMESPACE.to_owned(),
        secret: secret.to_owned(),
        owner: owner.to_owned(),
        chain: leaf.certificate,
    });
    (observed, ca.certificate)
}

#[test]
fn certificates_expire_and_their_ca_bundles_match() {
    use base64::Engine as _;
    let days = |days: i64| now().checked_sub(SignedDuration::from_hours(24 * days)).unwrap();
    let secret = "catalogd-service-cert";
    for (issued, expected) in [
        (0, &[""; 0][..]),
        (85, &["CERT-2: Secret olmv1-system/catalogd-service-cert"]),
        (100, &["CERT-1: Secret olmv1-system/catalogd-service-cert"]),
    ] {
        assert_eq!(found(&with_certificate(days(issued), secret, "catalogd-service", "").0), expected);
    }
    let ca = found(&with_certificate(days(100), "olmv1-ca", "a", "").0);
    assert_eq!(ca, ["CERT-5: Secret olmv1-system/olmv1-ca"]);
    for (owner, kind) in [("", "MutatingWebhookConfiguration"), ("demo", "ValidatingWebhookConfiguration")] {
        let (mut observed, ca) = with_certificate(days(1), secret, "catalogd-service", owner);
        let labels = if owner.is_empty() { json!({}) } else { owned_by(owner) };
        for (bundle, rule) in
            [(ca, ""), (new_ca("other", days(1)).unwrap().certificate, "CERT-3"), (Vec::new(), "CERT-4")]
        {
            let bundle = base64::prelude::BASE64_STANDARD.encode(bundle);
            let client =
                json!({"service": {"namespace": NAMESPACE, "name": "catalogd-service"}, "caBundle": bundle});
            let webhook = json!({"metadata": {"name": "hook", "labels": labels}, "webhooks": [{"clientConfig": client}]});
            observed.objects.insert(kind.to_owned(), vec![webhook]);
            let expected = if rule.is_empty() { Vec::new() } else { vec![format!("{rule}: {kind} hook")] };
            assert_eq!(found(&observed), expected);
        }
    }
}

#[test]
fn conversion_webhook_without_ca_bundle_is_found() {
    let found = after(|observed| {
        let client = json!({"service": {"namespace": "demo", "name": "demo-service"}});
        observed.add(
            "CustomResourceDefinition",
            json!({"metadata": {"name": "a.example.com", "labels": owned_by("demo")},
            "spec": {"conversion": {"webhook": {"clientConfig": client}}}}),
        );
    });
    assert_eq!(found, ["CERT-4: CustomResourceDefinition a.example.com"]);
}

#[test]
fn webhook_of_another_component_is_not_that_of_catalogd() {
    let why = "failed calling webhook \"policy.example.com\": connection refused";
    let found = after(|observed| observed.webhook_failure = Some(why.to_owned()));
    assert_eq!(found, ["CAUSE-9: ClusterCatalogs"]);
}
