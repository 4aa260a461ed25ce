//! Checks of webhook definitions in the ClusterServiceVersion (docs/design/bundles.md#bundle-validators,
//! docs/design/bundles.md#author-checks). The renderer checks names and deployments. Its install checks cover
//! requirements of the API server.

use olm_bundle::pointer::{list, text};
use olm_version::quote;
use serde_json::Value;

use crate::content::Content;
use crate::findings::Findings;
use crate::place::Place;
use crate::rule;

const CONVERSION: &str = "ConversionWebhook";
const TYPES: [&str; 3] = ["ValidatingAdmissionWebhook", "MutatingAdmissionWebhook", CONVERSION];

/// Resources needed to create a pod, by group. A webhook that intercepts them and is unavailable blocks the
/// cluster.
const VITAL: [(&str, &[&str]); 3] = [
    ("", &["configmaps", "endpoints", "namespaces", "pods", "secrets", "serviceaccounts", "services"]),
    ("apps", &["deployments", "replicasets"]),
    ("coordination.k8s.io", &["leases"]),
];

/// Checks every webhook definition.
pub(crate) fn check(content: &Content, findings: &mut Findings) {
    let Some(csv) = content.service_version() else { return };
    let modes = csv.list("/spec/installModes").iter();
    let watches_all = modes.clone().any(|mode| {
        text(mode, "/type") == "AllNamespaces" && mode.get("supported") == Some(&Value::Bool(true))
    });
    for (index, webhook) in csv.list("/spec/webhookdefinitions").iter().enumerate() {
        let place = csv.at(&format!("spec.webhookdefinitions.{index}"));
        known_type(webhook, &place, findings);
        if watches_all {
            vital_rules(webhook, &place, findings);
        }
    }
}

fn known_type(webhook: &Value, place: &Place, findings: &mut Findings) {
    let kind = text(webhook, "/type");
    if !TYPES.contains(&kind) {
        let what = format!(
            "unknown type {}, of which no webhook is made: there are {}",
            quote(kind),
            TYPES.join(", ")
        );
        findings.add(&rule::WEBHOOK_3, place.clone().at("type"), what);
    }
}

/// Warns of rules that may block the recovery of the operator itself.
fn vital_rules(webhook: &Value, place: &Place, findings: &mut Findings) {
    let fails_closed = !text(webhook, "/failurePolicy").eq("Ignore");
    let selector = webhook.get("objectSelector").and_then(Value::as_object);
    if !fails_closed
        || text(webhook, "/type") == CONVERSION
        || selector.is_some_and(|selector| !selector.is_empty())
    {
        return;
    }
    for (index, rule) in list(webhook, "/rules").iter().enumerate() {
        let names = |key: &str| list(rule, key).iter().filter_map(Value::as_str);
        let vital = names("/apiGroups").find_map(|group| {
            let (_, resources) = VITAL.into_iter().find(|(vital, _)| *vital == group)?;
            names("/resources").find(|name| ["*", "*/*"].contains(name) || resources.contains(name))
        });
        if let Some(resource) = vital {
            let what = format!(
                "while the operator is away, every request for {} is refused, also those that would bring it back: narrow the \
                 rule, give an objectSelector, or set failurePolicy: Ignore",
                quote(resource)
            );
            findings.add(&rule::WEBHOOK_4, place.clone().at(&format!("rules.{index}")), what);
        }
    }
}
