//! Health of the servers, for `olm system status`.

use olm_cli_core::error::CliError;
use olm_cli_core::output::{Table, qualified};
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use olm_finding::Level;
use serde::Serialize;
use serde_json::Value;

use super::diagnose::{Finding, SERVERS, diagnose_servers};
use super::findings_text;
use super::observe::observe_servers;
use super::observed::{Observed, list, text, title};
use olm_serving::issue::Validity;

/// Health of the servers.
#[derive(Debug, Serialize)]
pub(crate) struct SystemHealth {
    /// Version of the API server.
    pub(crate) kubernetes: String,
    /// Deployments, Leases, certificates and the admission webhook.
    components: Vec<Component>,
    /// Errors first.
    findings: Vec<Finding>,
    /// What could not be read, so that findings may be missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unreadable: Vec<String>,
}

/// Object that the servers need.
#[derive(Debug, Serialize)]
struct Component {
    kind: &'static str,
    name: String,
    healthy: bool,
    state: String,
}

/// Reads the servers and their findings.
///
/// # Errors
/// The API server does not answer, or the command is interrupted.
pub(crate) async fn system_health(
    cluster: &ClusterConnection,
    session: &Session,
) -> Result<SystemHealth, CliError> {
    let observed = observe_servers(cluster, session).await?;
    let findings = diagnose_servers(&observed, observed.time);
    let mut components = Vec::new();
    for server in SERVERS {
        components.extend(observed.own("Deployment", &server.deployment_name()).map(deployment));
        let lease = observed.own("Lease", server.lease_name());
        components.extend(
            lease.map(|lease| of_object("Lease", lease, &findings, text(lease, "/spec/holderIdentity"))),
        );
    }
    components.extend(certificates(&observed, &findings));
    for webhook in observed.list("MutatingWebhookConfiguration") {
        let failure = observed.webhook_failure.as_deref();
        let mut one =
            of_object("MutatingWebhookConfiguration", webhook, &findings, failure.unwrap_or("answers"));
        one.healthy &= failure.is_none();
        components.push(one);
    }
    Ok(SystemHealth {
        kubernetes: observed.kubernetes,
        components,
        findings,
        unreadable: observed.unreadable,
    })
}

fn deployment(object: &Value) -> Component {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let desired = object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    let (ready, updated) = (number("/status/readyReplicas"), number("/status/updatedReplicas"));
    let images = list(object, "/spec/template/spec/containers").iter().map(|one| text(one, "/image"));
    let images: Vec<&str> = images.collect();
    let name = qualified(text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    let state = format!("{ready}/{desired} ready, {updated} updated, {}", images.join(", "));
    Component { kind: "Deployment", name, healthy: ready >= desired && updated >= desired, state }
}

fn of_object(kind: &'static str, object: &Value, findings: &[Finding], state: &str) -> Component {
    let title = title(kind, object);
    let name = title.trim_start_matches(kind).trim().to_owned();
    Component { kind, name, healthy: !has_error(&title, findings), state: state.to_owned() }
}

fn has_error(title: &str, findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.place.object == title && finding.level == Level::Error)
}

fn certificates(observed: &Observed, findings: &[Finding]) -> Vec<Component> {
    let component = |one: &super::observed::Certificate| {
        let name = qualified(&one.namespace, &one.secret);
        let until = Validity::of(&one.chain).map(|validity| format!("valid until {}", validity.until));
        let healthy = !has_error(&format!("Secret {name}"), findings);
        Component {
            kind: "Secret",
            name,
            healthy,
            state: until.unwrap_or_else(|| "no certificate".to_owned()),
        }
    };
    observed.certificates.iter().map(component).collect()
}

impl SystemHealth {
    /// Reports whether something does not work.
    pub(crate) fn has_errors(&self) -> bool {
        self.components.iter().any(|one| !one.healthy)
            || self.findings.iter().any(|finding| finding.level == Level::Error)
    }

    /// Table of the components, and the findings.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::new(&["KIND", "NAME", "HEALTHY", "STATE"]);
        for one in &self.components {
            table.row([one.kind, &one.name, if one.healthy { "yes" } else { "no" }, &one.state]);
        }
        table.text() + &findings_text(&self.findings)
    }
}
