//! What is on the cluster for one extension, as the watches of the test saw it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::universe::{Key, VERSIONS};

/// A phase: its name and objects.
pub(crate) type Phase = (String, Vec<Value>);

/// A ClusterObjectSet.
#[derive(Clone, Debug)]
pub(crate) struct Revision {
    pub(crate) object: Arc<Value>,
    /// `None` where the Secret of some object is missing.
    pub(crate) content: Option<Vec<Phase>>,
}

impl Revision {
    pub(crate) fn name(&self) -> &str {
        text(&self.object, "/metadata/name")
    }

    pub(crate) fn uid(&self) -> &str {
        text(&self.object, "/metadata/uid")
    }

    pub(crate) fn number(&self) -> i64 {
        self.object.pointer("/spec/revision").and_then(Value::as_i64).unwrap_or_default()
    }

    pub(crate) fn is_archived(&self) -> bool {
        text(&self.object, "/spec/lifecycleState") == "Archived"
    }

    pub(crate) fn is_deleting(&self) -> bool {
        is_deleting(&self.object)
    }

    /// Neither archived nor being deleted.
    pub(crate) fn is_active(&self) -> bool {
        !self.is_archived() && !self.is_deleting()
    }

    pub(crate) fn has_succeeded(&self) -> bool {
        condition(&self.object, "Succeeded").is_some_and(|condition| condition.status == "True")
    }

    /// Index of the version that it installs.
    pub(crate) fn version(&self) -> Option<usize> {
        let annotations = self.object.pointer("/metadata/annotations")?;
        let version = annotations.get("olm.operatorframework.io/bundle-version")?.as_str()?;
        VERSIONS.iter().position(|known| known.text == version)
    }

    /// Its objects; none where they are not known.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Value> {
        self.content.iter().flatten().flat_map(|(_, objects)| objects)
    }

    pub(crate) fn lists(&self, key: &Key) -> bool {
        self.objects().any(|object| Key::of(object) == *key)
    }
}

/// A condition without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) generation: i64,
    pub(crate) since: Option<Timestamp>,
}

/// Everything of one extension.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) extension: Option<Arc<Value>>,
    /// Ascending by number.
    pub(crate) revisions: Vec<Revision>,
    /// Secrets with content of revisions.
    pub(crate) secrets: Vec<Arc<Value>>,
    /// Everything else, the namespace included.
    pub(crate) objects: BTreeMap<Key, Arc<Value>>,
}

impl Snapshot {
    /// The active revisions, ascending.
    pub(crate) fn active(&self) -> impl DoubleEndedIterator<Item = &Revision> {
        self.revisions.iter().filter(|revision| revision.is_active())
    }

    /// The revision with the highest number.
    pub(crate) fn newest(&self) -> Option<&Revision> {
        self.revisions.last()
    }

    /// The highest active revision that has succeeded.
    pub(crate) fn installed(&self) -> Option<&Revision> {
        self.active().rfind(|revision| revision.has_succeeded())
    }

    /// Whether the namespace is there and stays.
    pub(crate) fn namespace(&self, name: &str) -> Namespace {
        match self.objects.get(&Key::new("Namespace", "", name)) {
            None => Namespace::Missing,
            Some(namespace) if is_deleting(namespace) => Namespace::Terminating,
            Some(_) => Namespace::There,
        }
    }
}

/// How a namespace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Namespace {
    There,
    Terminating,
    Missing,
}

/// The text at a pointer, empty where there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}

/// A member of the labels.
pub(crate) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/labels")?.get(key)?.as_str()
}

/// A member of the annotations.
pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

pub(crate) fn owners(object: &Value) -> &[Value] {
    object.pointer("/metadata/ownerReferences").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether the reference is to the second owner of kept definitions, which nothing deletes.
pub(crate) fn is_keeper(owner: &Value) -> bool {
    owner["kind"] == "Namespace" && owner["name"] == "kube-system"
}

/// The references that control the object; there should never be two.
pub(crate) fn controllers(object: &Value) -> impl Iterator<Item = &Value> {
    owners(object).iter().filter(|owner| owner["controller"] == true)
}

/// UID of the controller.
pub(crate) fn controller(object: &Value) -> Option<&str> {
    controllers(object).next().map(|owner| text(owner, "/uid"))
}

/// The condition of this type.
pub(crate) fn condition(object: &Value, type_: &str) -> Option<Condition> {
    let all = object.pointer("/status/conditions")?.as_array()?;
    let found = all.iter().find(|condition| condition["type"] == type_)?;
    Some(Condition {
        status: text(found, "/status").to_owned(),
        reason: text(found, "/reason").to_owned(),
        message: text(found, "/message").to_owned(),
        generation: found["observedGeneration"].as_i64().unwrap_or_default(),
        since: text(found, "/lastTransitionTime").parse().ok(),
    })
}

/// Where `actual` does not have what `wanted` says. What only `actual` has does not count, nor does what is empty.
pub(crate) fn difference(wanted: &Value, actual: &Value, at: &str) -> Option<String> {
    let is_empty =
        |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    match (wanted, actual) {
        (wanted, actual) if is_empty(wanted) && (is_empty(actual) || actual.is_object()) => None,
        (Value::Object(wanted), Value::Object(actual)) => wanted.iter().find_map(|(key, value)| {
            difference(value, actual.get(key).unwrap_or(&Value::Null), &format!("{at}.{key}"))
        }),
        (Value::Array(wanted), Value::Array(actual)) if wanted.len() == actual.len() => wanted
            .iter()
            .zip(actual)
            .enumerate()
            .find_map(|(index, (wanted, actual))| difference(wanted, actual, &format!("{at}[{index}]"))),
        (Value::Array(wanted), Value::Null) if wanted.is_empty() => None,
        (Value::Null, _) => None,
        (wanted, actual) if wanted == actual => None,
        (wanted, actual) => Some(format!("{at} is {actual}, not {wanted}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_wanted_counts() {
        let actual = json!({"a": 1, "b": {"c": [{"d": 2, "more": 1}]}, "more": true});
        let rows = [
            (json!({"a": 1}), None),
            (json!({"b": {"c": [{"d": 2}]}, "none": null, "empty": {}}), None),
            (json!({"b": {"c": [{"d": 3}]}}), Some(".b.c[0].d is 2, not 3")),
            (json!({"b": {"c": []}}), Some(".b.c is [{\"d\":2,\"more\":1}], not []")),
            (json!({"x": "y"}), Some(".x is null, not \"y\"")),
        ];
        for (wanted, expected) in rows {
            assert_eq!(difference(&wanted, &actual, "").as_deref(), expected, "{wanted}");
        }
    }
}
