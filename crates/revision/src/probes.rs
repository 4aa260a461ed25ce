//! Progression probes: readiness of objects (docs/design/apply.md#probes).
//!
//! Pure. Messages equal the reference's, except that a message of several probes is listed once.

use kube::core::SelectorExt;
use serde_json::Value;

use crate::canonical::{Numbers, canonical_json};
use crate::object::ObjectKey;

mod build;
mod workload;

pub(crate) use build::api_service_probe;
pub use build::{ProbeError, default_probes};

/// Status of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeStatus {
    /// Ready.
    True,
    /// Not ready.
    False,
    /// Undetermined. Treated as not ready.
    Unknown,
}

/// Status with reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    /// Status of the probe.
    pub status: ProbeStatus,
    /// Reasons in order of the probes, without repetitions.
    pub messages: Vec<String>,
}

impl ProbeResult {
    fn one(status: ProbeStatus, message: String) -> Self {
        Self { status, messages: vec![message] }
    }

    /// Combines `results`: Unknown beats False beats True. Only the messages of the resulting status are kept.
    fn all(results: impl IntoIterator<Item = Self>) -> Self {
        let results: Vec<Self> = results.into_iter().collect();
        let status = [ProbeStatus::Unknown, ProbeStatus::False]
            .into_iter()
            .find(|status| results.iter().any(|result| result.status == *status))
            .unwrap_or(ProbeStatus::True);
        let mut messages = Vec::new();
        for message in results.into_iter().filter(|r| r.status == status).flat_map(|r| r.messages) {
            if !messages.contains(&message) {
                messages.push(message);
            }
        }
        Self { status, messages }
    }

    /// `true` if the object is ready.
    pub fn is_ready(&self) -> bool {
        self.status == ProbeStatus::True
    }
}

/// Line of an unready object for the Available condition (docs/design/apply.md#revision-conditions).
pub fn failure_line(object: &Value, result: &ProbeResult) -> String {
    format!("Object {}: {}", ObjectKey::of(object).kind_first(), result.messages.join(" and "))
}

/// Compiled progression probes. With an empty list every object is ready.
#[derive(Clone, Debug, Default)]
pub struct Probes(Vec<Probe>);

#[derive(Clone, Debug)]
struct Probe {
    selector: Selector,
    assertions: Vec<Assertion>,
}

#[derive(Clone, Debug)]
enum Selector {
    GroupKind {
        group: String,
        kind: String,
    },
    Labels(kube::core::Selector),
    /// Matches no object: a missing label selector.
    Nothing,
}

#[derive(Clone, Debug)]
enum Assertion {
    ConditionEqual { r#type: String, status: String },
    FieldsEqual { a: String, b: String },
    FieldValue { path: String, value: String },
}

impl Probes {
    /// Probes one live object.
    pub fn probe(&self, object: &Value) -> ProbeResult {
        ProbeResult::all(self.each(object))
    }

    /// Result of every single probe, in order. Missing replica counters of a status are 0 where that makes the object
    /// ready, and missing in the messages of an unready object.
    pub fn each(&self, object: &Value) -> Vec<ProbeResult> {
        let [exact, lenient] = [false, true]
            .map(|zero| self.0.iter().map(|probe| probe.probe(object, zero)).collect::<Vec<_>>());
        if lenient.iter().all(ProbeResult::is_ready) { lenient } else { exact }
    }
}

impl Probe {
    fn probe(&self, object: &Value, zero_counters: bool) -> ProbeResult {
        if is_outdated(object.pointer("/status/observedGeneration"), object) {
            return ProbeResult::one(ProbeStatus::Unknown, ".status outdated".to_owned());
        }
        if !self.selector.matches(object) {
            return ProbeResult { status: ProbeStatus::True, messages: Vec::new() };
        }
        ProbeResult::all(self.assertions.iter().map(|assertion| assertion.check(object, zero_counters)))
    }
}

/// `true` if the observed generation differs. Only integers are compared. A missing generation is 0.
fn is_outdated(observed: Option<&Value>, object: &Value) -> bool {
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    observed.and_then(Value::as_i64).is_some_and(|observed| observed != generation)
}

impl Selector {
    fn matches(&self, object: &Value) -> bool {
        match self {
            Self::GroupKind { group, kind } => {
                let gvk = ObjectKey::of(object).gvk;
                gvk.group == *group && gvk.kind == *kind
            }
            Self::Labels(selector) => {
                let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
                let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
                selector.matches(&labels.into_iter().flatten().filter_map(text).collect())
            }
            Self::Nothing => false,
        }
    }
}

impl Assertion {
    fn check(&self, object: &Value, zero_counters: bool) -> ProbeResult {
        match self {
            Self::ConditionEqual { r#type, status } => {
                workload::stateful_set_available(object, r#type, status)
                    .unwrap_or_else(|| condition_equal(object, r#type, status))
            }
            Self::FieldsEqual { a, b } => {
                let equal = zero_counters.then(|| workload::no_replicas(object, a, b)).flatten();
                equal.unwrap_or_else(|| fields_equal(object, a, b))
            }
            Self::FieldValue { path, value } => field_value(object, path, value),
        }
    }
}

fn condition_equal(object: &Value, type_: &str, status: &str) -> ProbeResult {
    let unknown = |message: String| ProbeResult::one(ProbeStatus::Unknown, message);
    let Some(conditions) = object.get("status").and_then(|status| status.get("conditions")) else {
        return unknown("missing .status.conditions".to_owned());
    };
    let malformed = || unknown("malformed .status.conditions".to_owned());
    let Some(conditions) = conditions.as_array() else {
        return malformed();
    };
    for condition in conditions {
        let Some(condition) = condition.as_object() else {
            return malformed();
        };
        if condition.get("type").and_then(Value::as_str) != Some(type_) {
            continue;
        }
        if is_outdated(condition.get("observedGeneration"), object) {
            return unknown(format!(".status.condition[{type_:?}] outdated"));
        }
        let actual = condition.get("status").unwrap_or(&Value::Null);
        let text = actual.as_str().map_or_else(|| json(actual), str::to_owned);
        let verdict = if actual.as_str() == Some(status) { ProbeStatus::True } else { ProbeStatus::False };
        return ProbeResult::one(verdict, format!(".status.condition[{type_:?}] is {text}"));
    }
    unknown(format!("missing .status.condition[{type_:?}]"))
}

fn fields_equal(object: &Value, a: &str, b: &str) -> ProbeResult {
    let missing = |path: &str| ProbeResult::one(ProbeStatus::False, format!("{path:?} missing"));
    let Ok(Some(left)) = field(object, a) else {
        return missing(a);
    };
    let Ok(Some(right)) = field(object, b) else {
        return missing(b);
    };
    if left == right {
        return ProbeResult::one(ProbeStatus::True, format!("{a:?} == {b:?}"));
    }
    let message = format!("{a:?} != {b:?} expected: {} got: {}", json(left), json(right));
    ProbeResult::one(ProbeStatus::False, message)
}

fn field_value(object: &Value, path: &str, expected: &str) -> ProbeResult {
    let refuse = |message: String| ProbeResult::one(ProbeStatus::False, message);
    match field(object, path) {
        Err(message) => refuse(format!("error locating key {path:?}; {message}")),
        Ok(None) => refuse(format!("missing key: {path:?}")),
        Ok(Some(Value::String(text))) if text == expected => {
            ProbeResult::one(ProbeStatus::True, format!("value at key {path:?} == {expected:?}"))
        }
        Ok(Some(actual)) => refuse(format!(
            "value at key {path:?} != {expected:?}; expected: {} got: {}",
            json(&Value::from(expected)),
            json(actual)
        )),
    }
}

/// Value at a path of map keys joined by dots. `None` where a key is missing or its map is null. `Err` names a value
/// that is not a map.
fn field<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let keys: Vec<&str> = path.trim_matches('.').split('.').collect();
    let mut value = object;
    for (index, key) in keys.iter().enumerate() {
        match value {
            Value::Null => return Ok(None),
            Value::Object(map) => match map.get(*key) {
                Some(next) => value = next,
                None => return Ok(None),
            },
            other => {
                return Err(format!(
                    ".{} accessor error: {} is of the type {}, expected map[string]interface{{}}",
                    keys[..=index].join("."),
                    go_text(other),
                    go_type(other)
                ));
            }
        }
    }
    Ok(Some(value))
}

fn json(value: &Value) -> String {
    canonical_json(value, Numbers::Exact)
}

/// Formats a value in Go's plain notation: `[a b]`, `map[k:v]`.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(_) | Value::Number(_) => json(value),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<_> =
                map.iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
