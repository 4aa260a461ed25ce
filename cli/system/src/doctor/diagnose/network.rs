//! Findings about network paths: Services with endpoints, and NetworkPolicies.

use olm_runtime::component::Component;
use serde_json::Value;

use super::servers::{SERVERS, server_pods};
use super::{Finding, finding};
use crate::doctor::observed::{Observed, label, list, name, text, title};
use crate::doctor::rule;

/// Ports that must be open: content, webhook and metrics of catalogd, metrics of operator-controller.
fn ports(server: Component) -> &'static [i64] {
    match server {
        Component::Catalogd => &[8443, 9443],
        Component::OperatorController => &[],
    }
}

pub(super) fn findings(observed: &Observed) -> Vec<Finding> {
    let mut findings: Vec<Finding> = endpoints(observed).collect();
    if !observed.is_unreadable("networkpolicies") {
        for server in SERVERS {
            // All pods of a server have the same labels.
            let pod = server_pods(server, observed).next();
            findings.extend(pod.into_iter().flat_map(|pod| policies(pod, ports(server), observed)));
        }
    }
    findings
}

fn endpoints(observed: &Observed) -> impl Iterator<Item = Finding> {
    let is_served = |service: &Value| {
        let slices = observed.list("EndpointSlice").iter();
        let own = slices.filter(|slice| label(slice, "kubernetes.io/service-name") == name(service));
        // Absent means unknown, which clients treat as ready.
        own.flat_map(|slice| list(slice, "/endpoints"))
            .any(|endpoint| endpoint.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false))
    };
    let is_selecting = |service: &&Value| service.pointer("/spec/selector").is_some();
    let is_readable = !observed.is_unreadable("endpointslices");
    let own = observed
        .list("Service")
        .iter()
        .filter(|service| text(service, "/metadata/namespace") == observed.namespace);
    let unserved = own.filter(is_selecting).filter(move |service| is_readable && !is_served(service));
    unserved.map(|service| {
        finding(&rule::NO_ENDPOINT, title("Service", service), "none of its endpoints is ready")
    })
}

/// Traffic that no policy allows, although one isolates the pod.
fn policies(pod: &Value, ports: &[i64], observed: &Observed) -> Vec<Finding> {
    let selecting: Vec<&Value> = observed
        .list("NetworkPolicy")
        .iter()
        .filter(|policy| selects(&policy["spec"]["podSelector"], &pod["metadata"]["labels"]))
        .collect();
    let of_type = |type_: &str, rules: &str| -> Option<Vec<Value>> {
        let isolating: Vec<_> = selecting
            .iter()
            .filter(|one| list(one, "/spec/policyTypes").iter().any(|t| t == type_))
            .collect();
        let allowed = isolating.iter().flat_map(|one| list(one, &format!("/spec/{rules}"))).cloned();
        (!isolating.is_empty()).then(|| allowed.collect())
    };
    let object = title("Pod", pod);
    let names: Vec<&str> = selecting.iter().map(|one| name(one)).collect();
    let mut findings = Vec::new();
    if of_type("Egress", "egress").is_some_and(|rules| rules.is_empty()) {
        let message = format!("NetworkPolicies {} allow no outgoing traffic", names.join(", "));
        findings.push(finding(&rule::POLICY, &object, message));
    }
    if let Some(rules) = of_type("Ingress", "ingress") {
        let blocked: Vec<String> = ports
            .iter()
            .filter(|port| !rules.iter().any(|rule| opens(rule, **port)))
            .map(i64::to_string)
            .collect();
        if !blocked.is_empty() {
            let message = format!(
                "NetworkPolicies {} allow no traffic to port {}",
                names.join(", "),
                blocked.join(", ")
            );
            findings.push(finding(&rule::POLICY, &object, message));
        }
    }
    findings
}

/// Reports whether a label selector selects labels.
fn selects(selector: &Value, labels: &Value) -> bool {
    let is_equal = |(key, value): (&String, &Value)| labels.get(key) == Some(value);
    let matches = selector["matchLabels"].as_object().is_none_or(|all| all.iter().all(is_equal));
    let holds = |expression: &Value| {
        let value = labels.get(text(expression, "/key"));
        let is_listed = value.is_some_and(|value| list(expression, "/values").contains(value));
        match text(expression, "/operator") {
            "In" => is_listed,
            "NotIn" => !is_listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    };
    matches && list(selector, "/matchExpressions").iter().all(holds)
}

/// Reports whether an ingress rule opens a port for at least some sources. Named ports count as open.
fn opens(rule: &Value, port: i64) -> bool {
    let ports = list(rule, "/ports");
    let is_opening = |one: &Value| match one["port"].as_i64() {
        Some(first) => (first..=one["endPort"].as_i64().unwrap_or(first)).contains(&port),
        None => true,
    };
    ports.is_empty() || ports.iter().any(is_opening)
}
