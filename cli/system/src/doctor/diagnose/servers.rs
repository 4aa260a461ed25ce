//! Findings about the two servers: pods, logs, readiness, Leases, versions, the admission webhook.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use olm_cli_core::output::qualified;
use olm_oci::policy::NO_POLICY;
use olm_runtime::component::{Component, VERSION};
use olm_version::Version;
use serde::Serialize;
use serde_json::Value;

use super::{Finding, PATIENCE, caused, condition, condition_with, finding, is_older};
use crate::doctor::observed::{Observed, label, list, name, text, title};
use crate::doctor::rule::{self, DoctorRule, OF_LOGS, recognize};

/// Both servers.
pub(crate) const SERVERS: [Component; 2] = [Component::Catalogd, Component::OperatorController];
/// Last lines of a log that are compared with known texts.
const LINES: usize = 20;
/// Reasons of containers that are about to start.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];
/// Shortest time after which a Lease counts as not renewed: clocks differ.
const SLACK: SignedDuration = SignedDuration::from_mins(1);

pub(super) fn findings(observed: &Observed, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    for server in SERVERS {
        of_server(server, observed, now, &mut findings);
    }
    if let Some(why) = &observed.webhook_failure {
        findings.push(if rule::CATALOG_WEBHOOK.check.matches(why) {
            let object = "MutatingWebhookConfiguration catalogd-mutating-webhook-configuration";
            finding(&rule::CATALOG_WEBHOOK, object, why)
        } else {
            finding(&rule::OTHER_WEBHOOK, "ClusterCatalogs", why)
        });
    }
    findings.extend(versions(observed));
    findings
}

fn of_server(server: Component, observed: &Observed, now: Timestamp, findings: &mut Vec<Finding>) {
    let deployment_name = server.deployment_name();
    let title_of = format!("Deployment {}", qualified(&observed.namespace, &deployment_name));
    let Some(deployment) = observed.own("Deployment", &deployment_name) else {
        if !observed.is_unreadable("deployments") {
            let message = "it does not exist; use --catalogd-namespace if OLM is in another namespace";
            findings.push(finding(&rule::SERVER_DOWN, title_of, message));
        }
        return;
    };
    let pods: Vec<&Value> = server_pods(server, observed).collect();
    if pods.is_empty() && !observed.is_unreadable("pods") {
        let why = ["ReplicaFailure", "Progressing", "Available"];
        let why = why.iter().find_map(|type_| condition(deployment, type_));
        let why = why.map(|found| text(found, "/message")).unwrap_or_default();
        findings.push(finding(&rule::SERVER_DOWN, &title_of, format!("it has no pods: {why}")));
    }
    for pod in &pods {
        of_pod(pod, observed, now, findings);
    }
    let has_election = arguments(deployment)
        .any(|argument| argument == "--leader-elect" || argument == "--leader-elect=true");
    if has_election && !observed.is_unreadable("leases") {
        findings.extend(lease(server, observed, now));
    }
    let is_unsigned = |pod: &&Value| observed.log(name(pod), false).contains(NO_POLICY);
    if pods.iter().any(is_unsigned) {
        findings.push(finding(&rule::UNSIGNED, &title_of, "its log says that no signature policy was found"));
    }
}

/// Pods of a server that are not being deleted. Ended ones, such as evicted ones, only if none runs.
pub(crate) fn server_pods(server: Component, observed: &Observed) -> impl Iterator<Item = &Value> {
    let control_plane = server.deployment_name();
    let is_own = move |pod: &&Value| {
        label(pod, "control-plane") == control_plane && text(pod, "/metadata/deletionTimestamp").is_empty()
    };
    let pods: Vec<&Value> = observed.list("Pod").iter().filter(is_own).collect();
    let runs = pods.iter().any(|pod| is_running(pod));
    pods.into_iter().filter(move |pod| !runs || !has_ended(pod))
}

fn has_ended(pod: &Value) -> bool {
    ["Failed", "Succeeded"].contains(&text(pod, "/status/phase"))
}

/// Reports whether all containers run.
fn is_running(pod: &Value) -> bool {
    let statuses = list(pod, "/status/containerStatuses");
    !statuses.is_empty() && statuses.iter().all(|one| one["state"].get("running").is_some())
}

/// Reports whether a scheduled pod waits for the start of its containers, and for nothing else.
fn is_starting(pod: &Value) -> bool {
    let stopped =
        list(pod, "/status/containerStatuses").iter().filter(|one| one["state"].get("running").is_none());
    let mut reasons = stopped.map(|one| text(one, "/state/waiting/reason"));
    !has_ended(pod)
        && condition_with(pod, "PodScheduled", "False").is_none()
        && reasons.all(|reason| STARTING.contains(&reason))
}

/// Arguments of all containers of a Deployment.
pub(crate) fn arguments(deployment: &Value) -> impl Iterator<Item = &str> {
    let containers = list(deployment, "/spec/template/spec/containers").iter();
    containers
        .flat_map(|one| list(one, "/args").iter().chain(list(one, "/command")))
        .filter_map(Value::as_str)
}

fn of_pod(pod: &Value, observed: &Observed, now: Timestamp, findings: &mut Vec<Finding>) {
    let (object, pod_name) = (title("Pod", pod), name(pod));
    let statuses = list(pod, "/status/containerStatuses");
    let restarts: u64 = statuses.iter().filter_map(|one| one["restartCount"].as_u64()).sum();
    if is_starting(pod) && !is_running(pod) && !is_older(pod, "/metadata/creationTimestamp", PATIENCE, now) {
        return;
    }
    if !is_running(pod) {
        let previous = observed.log(pod_name, true);
        let lines = if previous.is_empty() { observed.log(pod_name, false) } else { previous };
        let (cause, line) = last_lines(lines);
        let message =
            [stopped(pod), line].iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>();
        findings.push(caused(&rule::SERVER_DOWN, cause, &object, message.join("; last line of its log: ")));
        return;
    }
    if condition_with(pod, "Ready", "True").is_none() {
        let (cause, line) = last_lines(observed.log(pod_name, false));
        let checks = observed.readiness.get(pod_name).map(|checks| format!("readiness checks: {checks}"));
        let line = if line.is_empty() { line } else { format!("last line of its log: {line}") };
        let message: Vec<String> = checks.into_iter().chain([line]).filter(|part| !part.is_empty()).collect();
        findings.push(caused(&rule::SERVER_UNREADY, cause, &object, message.join("; ")));
    }
    if restarts > 0 {
        let reasons = statuses.iter().map(|one| text(one, "/lastState/terminated/reason"));
        let reasons: Vec<&str> = reasons.filter(|reason| !reason.is_empty()).collect();
        let (cause, line) = last_lines(observed.log(pod_name, true));
        let line = if line.is_empty() { line } else { format!("; last line of its log: {line}") };
        let message = format!("restarts: {restarts}; last reason: {}{line}", reasons.join(", "));
        findings.push(caused(&rule::SERVER_RESTARTED, cause, &object, message));
    }
}

/// Cause that the end of a log names, and the line that does, or else the last line.
fn last_lines(log: &str) -> (Option<&'static DoctorRule>, String) {
    let mut lines = log.lines().rev().filter(|line| !line.trim().is_empty()).take(LINES);
    let known = lines.clone().find_map(|line| Some((recognize(OF_LOGS, line)?, line)));
    match known {
        Some((cause, line)) => (Some(cause), line.trim().to_owned()),
        None => (None, lines.next().unwrap_or_default().trim().to_owned()),
    }
}

/// Reason for which a pod does not run.
pub(crate) fn stopped(pod: &Value) -> String {
    let unscheduled = condition_with(pod, "PodScheduled", "False").map(|found| text(found, "/message"));
    let states = list(pod, "/status/containerStatuses").iter().flat_map(|status| {
        ["waiting", "terminated"].map(|state| (state, status.pointer(&format!("/state/{state}"))))
    });
    let states = states.filter_map(|(state, found)| {
        let found = found?;
        let parts = [text(found, "/reason"), text(found, "/message")];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Some(format!("{state}: {}", parts.join(": ")))
    });
    let texts: Vec<String> = unscheduled.map(str::to_owned).into_iter().chain(states).collect();
    if texts.is_empty() { format!("phase {}", text(pod, "/status/phase")) } else { texts.join(", ") }
}

fn lease(server: Component, observed: &Observed, now: Timestamp) -> Option<Finding> {
    let lease_name = server.lease_name();
    let object = format!("Lease {}", qualified(&observed.namespace, lease_name));
    let Some(lease) = observed.own("Lease", lease_name) else {
        return Some(finding(&rule::NO_LEADER, object, "it does not exist"));
    };
    let holder = text(lease, "/spec/holderIdentity");
    if holder.is_empty() {
        return Some(finding(&rule::NO_LEADER, object, "it has no holder"));
    }
    let renewed: Timestamp = text(lease, "/spec/renewTime").parse().ok()?;
    let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or_default();
    let longest = SignedDuration::from_secs(seconds.saturating_mul(4)).max(SLACK);
    let is_expired = now.duration_since(renewed) > longest;
    let message = format!("{holder} has not renewed it since {renewed}");
    is_expired.then(|| finding(&rule::NO_LEADER, object, message))
}

/// Version of the servers in a Deployment: its label, which releases have, else the tag of its image.
pub(crate) fn server_version(deployment: &Value) -> Option<&str> {
    let label = deployment["metadata"]["labels"]["app.kubernetes.io/version"].as_str();
    let image = text(deployment, "/spec/template/spec/containers/0/image").split('@').next()?;
    label.or_else(|| Some(image.rsplit('/').next()?.split_once(':')?.1))
}

/// Versions of the servers by Deployment, as far as they are known.
pub(crate) fn server_versions(observed: &Observed) -> Vec<(Component, String)> {
    let version = |server: Component| {
        let deployment = observed.own("Deployment", &server.deployment_name())?;
        Some((server, server_version(deployment)?.to_owned()))
    };
    SERVERS.into_iter().filter_map(version).collect()
}

/// Difference between the versions of this program and of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Skew {
    Supported,
    Unsupported,
    Unknown,
}

/// Skew of two versions, such as `v0.1.0`. One minor version is supported.
pub(crate) fn skew(one: &str, other: &str) -> Skew {
    let (Ok(one), Ok(other)) = (Version::parse_tolerant(one), Version::parse_tolerant(other)) else {
        return Skew::Unknown;
    };
    match one.major() == other.major() && one.minor().abs_diff(other.minor()) <= 1 {
        true => Skew::Supported,
        false => Skew::Unsupported,
    }
}

fn versions(observed: &Observed) -> Option<Finding> {
    let found = server_versions(observed);
    // Tags of development images, such as `dev`, tell no version.
    let releases: Vec<Version> =
        found.iter().filter_map(|(_, version)| Version::parse_tolerant(version).ok()).collect();
    let is_mixed = releases.windows(2).any(|pair| pair[0] != pair[1]);
    let is_release = option_env!("OLM_BUILD_VERSION").is_some();
    let is_unsupported = |version: &String| is_release && skew(VERSION, version) == Skew::Unsupported;
    if !is_mixed && !found.iter().any(|(_, version)| is_unsupported(version)) {
        return None;
    }
    let servers: Vec<String> =
        found.iter().map(|(server, version)| format!("{} {version}", server.name())).collect();
    let message = format!("{}, olm {VERSION}", servers.join(", "));
    Some(finding(&rule::VERSIONS, format!("Namespace {}", observed.namespace), message))
}
