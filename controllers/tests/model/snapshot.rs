//! State of one extension on the cluster, as observed by the watches of the test. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::universe::{Key, VERSIONS};

/// Name and objects of a phase.
pub(crate) type Phase = (String, Vec<Value>);

#[derive(Clone, Debug)]
pub(crate) struct Revision {
    pub(crate) object: Arc<Value>,
    /// Phases. `None` if the Secret of an object is missing.
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

    /// `true` if the revision is neither archived nor being deleted.
    pub(crate) fn is_active(&self) -> bool {
        !self.is_archived() && !self.is_deleting()
    }

    pub(crate) fn has_succeeded(&self) -> bool {
        condition(&self.object, "Succeeded").is_some_and(|condition| condition.status == "True")
    }

    /// Index of its version in [`crate::universe::VERSIONS`].
    pub(crate) fn version(&self) -> Option<usize> {
        let annotations = self.object.pointer("/metadata/annotations")?;
        let version = annotations.get("olm.operatorframework.io/bundle-version")?.as_str()?;
        VERSIONS.iter().position(|known| known.text == version)
    }

    /// Objects of all phases. Empty if the content is unknown.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Value> {
        self.content.iter().flatten().flat_map(|(_, objects)| objects)
    }

    pub(crate) fn lists(&self, key: &Key) -> bool {
        self.objects().any(|object| Key::of(object) == *key)
    }
}

/// Condition without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) generation: i64,
    pub(crate) since: Option<Timestamp>,
}

/// Complete state of one extension.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) extension: Option<Arc<Value>>,
    /// Revisions, ascending by number.
    pub(crate) revisions: Vec<Revision>,
    /// Secrets with content of revisions.
    pub(crate) secrets: Vec<Arc<Value>>,
    /// All other objects, including the namespace.
    pub(crate) objects: BTreeMap<Key, Arc<Value>>,
}

impl Snapshot {
    /// Active revisions, ascending by number.
    pub(crate) fn active(&self) -> impl DoubleEndedIterator<Item = &Revision> {
        self.revisions.iter().filter(|revision| revision.is_active())
    }

    /// Revision with the highest number.
    pub(crate) fn newest(&self) -> Option<&Revision> {
        self.revisions.last()
    }

    /// Active revision with the highest number that has succeeded.
    pub(crate) fn installed(&self) -> Option<&Revision> {
        self.active().rfind(|revision| revision.has_succeeded())
    }

    /// State of the namespace.
    pub(crate) fn namespace(&self, name: &str) -> Namespace {
        match self.objects.get(&Key::new("Namespace", "", name)) {
            None => Namespace::Missing,
            Some(namespace) if is_deleting(namespace) => Namespace::Terminating,
            Some(_) => Namespace::There,
        }
    }
}

/// State of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Namespace {
    There,
    Terminating,
    Missing,
}

/// Text at a JSON pointer. Empty if absent.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}

pub(crate) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/labels")?.get(key)?.as_str()
}

pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

pub(crate) fn owners(object: &Value) -> &[Value] {
    object.pointer("/metadata/ownerReferences").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Reports whether the reference is the second owner of retained CRDs, which is never deleted.
pub(crate) fn is_keeper(owner: &Value) -> bool {
    owner["kind"] == "Namespace" && owner["name"] == "kube-system"
}

/// Controlling owner references. More than one is a fault.
pub(crate) fn controllers(object: &Value) -> impl Iterator<Item = &Value> {
    owners(object).iter().filter(|owner| owner["controller"] == true)
}

/// UID of the controller.
pub(crate) fn controller(object: &Value) -> Option<&str> {
    controllers(object).next().map(|owner| text(owner, "/uid"))
}

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

/// First difference of `actual` from `desired`. Additional members of `actual`, also of lists whose items have names, and
/// empty values are ignored.
pub(crate) fn difference(desired: &Value, actual: &Value, at: &str) -> Option<String> {
    let is_empty =
        |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    match (desired, actual) {
        (desired, actual) if is_empty(desired) && (is_empty(actual) || actual.is_object()) => None,
        (Value::Object(desired), Value::Object(actual)) => desired.iter().find_map(|(key, value)| {
            difference(value, actual.get(key).unwrap_or(&Value::Null), &format!("{at}.{key}"))
        }),
        (Value::Array(desired), Value::Array(actual)) if has_names(desired) => {
            desired.iter().find_map(|item| {
                let found = actual.iter().find(|other| other["name"] == item["name"]);
                difference(item, found.unwrap_or(&Value::Null), &format!("{at}[{}]", item["name"]))
            })
        }
        (Value::Array(desired), Value::Array(actual)) if desired.len() == actual.len() => desired
            .iter()
            .zip(actual)
            .enumerate()
            .find_map(|(index, (desired, actual))| difference(desired, actual, &format!("{at}[{index}]"))),
        (Value::Array(desired), Value::Null) if desired.is_empty() => None,
        (Value::Null, _) => None,
        (desired, actual) if desired == actual => None,
        (desired, actual) => Some(format!("{at} is {actual}, not {desired}")),
    }
}

/// Sets the fields of `over`. Null removes one.
pub(crate) fn overlay(object: &mut Value, over: &Value) {
    match (object, over) {
        (object, Value::Object(over)) => {
            if !object.is_object() {
                *object = Value::Object(serde_json::Map::new());
            }
            for (key, value) in over {
                match value {
                    Value::Null => drop(object.as_object_mut().and_then(|members| members.remove(key))),
                    value => overlay(&mut object[key], value),
                }
            }
        }
        (Value::Array(items), Value::Array(over)) if has_names(over) => {
            for item in over {
                match items.iter_mut().find(|other| other["name"] == item["name"]) {
                    Some(found) => overlay(found, item),
                    None => items.push(item.clone()),
                }
            }
        }
        (object, over) => *object = over.clone(),
    }
}

/// Reports whether the items of a list are identified by their names.
fn has_names(items: &[Value]) -> bool {
    !items.is_empty() && items.iter().all(|item| item["name"].is_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn difference_ignores_additional_and_empty_members() {
        let named = json!([{"name": "m"}, {"name": "n", "v": 2}]);
        let actual = json!({"a": 1, "b": {"c": [{"d": 2, "more": 1}]}, "more": true, "named": named});
        let rows = [
            (json!({"a": 1}), None),
            (json!({"b": {"c": [{"d": 2}]}, "none": null, "empty": {}}), None),
            (json!({"b": {"c": [{"d": 3}]}}), Some(".b.c[0].d is 2, not 3")),
            (json!({"b": {"c": []}}), Some(".b.c is [{\"d\":2,\"more\":1}], not []")),
            (json!({"x": "y"}), Some(".x is null, not \"y\"")),
            (json!({"named": [{"name": "n", "v": 2}]}), None),
            (json!({"named": [{"name": "n", "v": 3}]}), Some(".named[\"n\"].v is 2, not 3")),
            (json!({"named": [{"name": "o"}]}), Some(".named[\"o\"] is null, not {\"name\":\"o\"}")),
        ];
        for (desired, expected) in rows {
            assert_eq!(difference(&desired, &actual, "").as_deref(), expected, "{desired}");
        }
    }

    #[test]
    fn overlay_sets_and_removes_members_and_named_items() {
        let mut object =
            json!({"a": 1, "b": {"c": 2, "d": 3}, "named": [{"name": "m", "v": 1}], "list": [1]});
        overlay(
            &mut object,
            &json!({"b": {"c": null, "e": {"f": 4}}, "named": [{"name": "n"}, {"name": "m", "w": 2}], "list": [2]}),
        );
        let expected = json!({"a": 1, "b": {"d": 3, "e": {"f": 4}},
            "named": [{"name": "m", "v": 1, "w": 2}, {"name": "n"}], "list": [2]});
        assert_eq!(object, expected);
    }
}
