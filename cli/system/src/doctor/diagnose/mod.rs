//! Findings from the observed state. Pure: the time is a parameter.

mod certificates;
mod extensions;
mod network;
mod ownership;
mod servers;

#[cfg(test)]
mod certificate_tests;
#[cfg(test)]
mod extension_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod server_tests;

pub(crate) use self::servers::stopped;
pub(super) use self::servers::{SERVERS, arguments, server_pods, server_versions};
pub(crate) use self::servers::{Skew, server_version, skew};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::observed::{Observed, text};
use super::rule::{Rule, Severity};

/// Time that controllers get before a missing reaction is a fault.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// Fault or fact about an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    #[serde(serialize_with = "by_id")]
    pub(super) rule: &'static Rule,
    pub(super) severity: Severity,
    /// Kind, namespace and name.
    pub(super) object: String,
    /// What was found there.
    pub(super) message: String,
    /// Rule of the recognized cause.
    #[serde(serialize_with = "by_optional_id", skip_serializing_if = "Option::is_none")]
    pub(super) cause: Option<&'static Rule>,
    pub(super) remedy: &'static str,
    /// Section that explains the fault.
    pub(super) documentation: String,
}

fn by_id<S: Serializer>(rule: &&'static Rule, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(rule.id)
}

fn by_optional_id<S: Serializer>(rule: &Option<&'static Rule>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(rule.map_or("", |rule| rule.id))
}

impl Finding {
    fn new(rule: &'static Rule, object: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            rule,
            severity: rule.severity,
            object: object.into(),
            message: message.into(),
            cause: None,
            remedy: rule.remedy,
            documentation: super::rule::place(rule.anchor),
        }
    }

    /// The same finding with the remedy of its cause.
    fn because_of(mut self, cause: Option<&'static Rule>) -> Self {
        if let Some(cause) = cause {
            (self.cause, self.remedy) = (Some(cause), cause.remedy);
        }
        self
    }
}

/// All findings, errors first.
pub(super) fn diagnose(observed: &Observed, now: Timestamp) -> Vec<Finding> {
    let mut findings = diagnose_servers(observed, now);
    findings.extend(extensions::findings(observed, now));
    findings.extend(ownership::findings(observed));
    sorted(findings)
}

/// Findings about the servers, their network and certificates, errors first.
pub(super) fn diagnose_servers(observed: &Observed, now: Timestamp) -> Vec<Finding> {
    let mut findings = servers::findings(observed, now);
    findings.extend(network::findings(observed));
    findings.extend(certificates::findings(observed, now));
    sorted(findings)
}

fn sorted(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by(|a, b| (a.severity, a.rule.id, &a.object).cmp(&(b.severity, b.rule.id, &b.object)));
    findings.dedup();
    findings
}

/// Condition of this type.
fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|one| one["type"] == type_)
}

/// Condition of this type with status `status`.
fn condition_with<'a>(object: &'a Value, type_: &str, status: &str) -> Option<&'a Value> {
    condition(object, type_).filter(|found| found["status"] == status)
}

/// Reports whether the time at a JSON pointer is longer ago than `age`.
fn is_older(object: &Value, pointer: &str, age: SignedDuration, now: Timestamp) -> bool {
    text(object, pointer).parse::<Timestamp>().is_ok_and(|time| now.duration_since(time) > age)
}
