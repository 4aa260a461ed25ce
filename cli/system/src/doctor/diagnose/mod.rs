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
use olm_finding::Rule;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::observed::{Observed, text};
use super::rule::DoctorRule;

/// Time that controllers get before a missing reaction is a fault.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// Fault or fact about an object.
pub(super) type Finding = olm_finding::Finding<Place>;

/// Object of a finding, with the cause and its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Place {
    /// Kind, namespace and name.
    pub(super) object: String,
    /// Rule of the recognized cause.
    #[serde(serialize_with = "by_optional_id", skip_serializing_if = "Option::is_none")]
    pub(super) cause: Option<&'static Rule>,
    pub(super) remedy: &'static str,
    /// Section that explains the fault.
    pub(super) documentation: String,
}

fn by_optional_id<S: Serializer>(rule: &Option<&'static Rule>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(rule.map_or("", |rule| rule.id))
}

fn finding(rule: &'static DoctorRule, object: impl Into<String>, message: impl Into<String>) -> Finding {
    caused(rule, None, object, message)
}

/// Finding with the remedy of its cause.
fn caused(
    rule: &'static DoctorRule,
    cause: Option<&'static DoctorRule>,
    object: impl Into<String>,
    message: impl Into<String>,
) -> Finding {
    let place = Place {
        object: object.into(),
        cause: cause.map(|cause| &cause.rule),
        remedy: cause.unwrap_or(rule).remedy,
        documentation: rule.check.documentation(),
    };
    Finding::new(rule, place, message)
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
    findings.sort_by(|a, b| {
        let key = |one: &Finding| (one.level, one.rule.id, one.place.object.clone());
        key(a).cmp(&key(b))
    });
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
