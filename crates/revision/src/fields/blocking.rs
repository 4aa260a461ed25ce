//! Fields of a live object because of which the API server rejects the desired one: it names the rejected fields, and the
//! live object has what contradicts them.
//!
//! Pure. No list of kinds: a defaulted field that a new `type` forbids, or an unset source of a volume, is found like any
//! other.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::managed_fields::{enter, entries, is_ours, union};
use crate::object::text;

/// Live fields that contradict the desired object.
#[derive(Debug, Default, PartialEq)]
pub struct Blocking {
    /// Set of fields without owner. Null unless each rejected field is explained by such fields alone.
    pub(crate) claims: Value,
    /// Paths of fields by the other manager that owns them.
    foreign: BTreeMap<String, Vec<String>>,
}

impl Blocking {
    /// `true` if the engine removes the fields, because nothing else is in the way.
    pub fn is_removable(&self) -> bool {
        !self.claims.is_null()
    }

    /// Clause for the error, with the fields of other managers and the remedy. `None` without any.
    pub fn remedy(&self) -> Option<String> {
        let fields = |(manager, paths): (&String, &Vec<String>)| {
            format!("{}, set by field manager {manager:?},", paths.join(" and "))
        };
        let fields: Vec<String> = self.foreign.iter().map(fields).collect();
        (!fields.is_empty()).then(|| {
            format!("{} is in the way: remove it from the object with `kubectl edit`", fields.join(" and "))
        })
    }
}

/// Live fields that `desired` lacks and that contradict the rejected ones, given by paths such as
/// `spec.containers[0].env[1].valueFrom`: the rejected field itself, or the neighbors of a rejected new field in an entry
/// of a list.
pub fn blocking(desired: &Value, actual: &Value, rejected: &[String]) -> Blocking {
    let sets = entries(actual).iter().map(|entry| (entry, &entry["fieldsV1"])).collect();
    let place = Place { desired: Some(desired), actual, sets, steps: Vec::new(), path: String::new() };
    let mut blocking = Blocking::default();
    let mut is_explained = !rejected.is_empty();
    for path in rejected {
        let mut found = Vec::new();
        place.find(&parse(path), &mut found);
        let mut is_free = false;
        for field in found {
            let mut foreign = field.sets.iter().filter(|(entry, _)| !is_ours(entry)).peekable();
            is_explained &= foreign.peek().is_none();
            if field.sets.is_empty() {
                is_free = true;
                union(&mut blocking.claims, &field.set());
            }
            for (entry, _) in foreign {
                let paths = blocking.foreign.entry(text(entry, "/manager").to_owned()).or_default();
                if !paths.contains(&field.path) {
                    paths.push(field.path.clone());
                }
            }
        }
        is_explained &= is_free;
    }
    if !is_explained {
        blocking.claims = Value::Null;
    }
    blocking
}

/// Step of a path in an error of the API server.
#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    Index(usize),
}

fn parse(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (step, after) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']').unwrap_or((inner, "")),
            None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
        };
        steps.push(match step.parse() {
            Ok(index) if rest.starts_with('[') => Step::Index(index),
            _ => Step::Field(step.to_owned()),
        });
        rest = after.strip_prefix('.').unwrap_or(after);
    }
    steps
}

/// Part of the live object, with that of the desired one and of each set of owned fields.
#[derive(Clone)]
struct Place<'a> {
    desired: Option<&'a Value>,
    actual: &'a Value,
    sets: Vec<(&'a Value, &'a Value)>,
    steps: Vec<String>,
    path: String,
}

impl<'a> Place<'a> {
    fn enter(&self, step: &str) -> Option<Self> {
        let (actual, path) = enter(self.actual, step, &self.path)?;
        let desired = self.desired.and_then(|desired| enter(desired, step, "")).map(|(desired, _)| desired);
        // An empty set is an atomic field. Ours can also be an empty map of the desired object.
        let is_atomic =
            |entry: &Value, set: &Value| set.as_object().is_some_and(Map::is_empty) && !is_ours(entry);
        let below = |(entry, set): &(&'a Value, &'a Value)| {
            set.get(step).or_else(|| is_atomic(entry, set).then_some(*set)).map(|below| (*entry, below))
        };
        let sets = self.sets.iter().filter_map(below).collect();
        let steps = self.steps.iter().cloned().chain([step.to_owned()]).collect();
        Some(Self { desired, actual, sets, steps, path })
    }

    /// Set with only this field.
    fn set(&self) -> Value {
        self.steps.iter().rev().fold(json!({}), |below, step| json!({ step: below }))
    }

    /// Collects the live fields that contradict the field at `steps` below this place.
    fn find(&self, steps: &[Step], found: &mut Vec<Self>) {
        match steps {
            [] => {}
            [Step::Field(name)] => found.extend(self.contradictions(name)),
            [Step::Field(name), below @ ..] => {
                self.enter(&format!("f:{name}")).into_iter().for_each(|place| place.find(below, found));
            }
            [Step::Index(index), below @ ..] => {
                for step in self.keys(*index) {
                    self.enter(&step).into_iter().for_each(|place| place.find(below, found));
                }
            }
        }
    }

    fn contradictions(&self, name: &str) -> Vec<Self> {
        let is_new = self.actual.get(name).is_none()
            && self.desired.is_some_and(|desired| desired.get(name).is_some());
        let is_entry = self.steps.last().is_some_and(|step| step.starts_with("k:"));
        let names: Vec<&str> = match self.actual.as_object() {
            Some(fields) if is_new && is_entry => fields.keys().map(String::as_str).collect(),
            _ => vec![name],
        };
        let fields = names.into_iter().filter_map(|name| self.enter(&format!("f:{name}")));
        fields.filter(|field| field.desired.is_none()).collect()
    }

    /// Keys of the entry of a list at this index. The live and the desired list can differ in it.
    fn keys(&self, index: usize) -> Vec<String> {
        let lists = [Some(self.actual), self.desired];
        let entries: Vec<&Value> = lists.into_iter().filter_map(|list| list?.get(index)).collect();
        let steps = self.sets.iter().filter_map(|(_, set)| set.as_object()).flat_map(|set| set.keys());
        let is_entry = |step: &&String| {
            step.starts_with("k:") && entries.iter().any(|entry| enter(&json!([entry]), step, "").is_some())
        };
        let mut keys: Vec<String> = steps.filter(is_entry).cloned().collect();
        keys.sort();
        keys.dedup();
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_errors_are_parsed() {
        let field = |name: &str| Step::Field(name.to_owned());
        for (path, steps) in [
            ("spec.a[0].b", vec![field("spec"), field("a"), Step::Index(0), field("b")]),
            ("data[a.b/c]", vec![field("data"), field("a.b/c")]),
            ("a[1][x", vec![field("a"), Step::Index(1), field("x")]),
            ("", vec![]),
        ] {
            assert_eq!(parse(path), steps, "{path}");
        }
    }

    fn entry(manager: &str, fields: Value) -> Value {
        let operation = if manager == "kubectl-edit" { "Update" } else { "Apply" };
        json!({"manager": manager, "operation": operation, "fieldsV1": fields})
    }

    const OURS: &str = olm_api::names::REVISION_ENGINE_MANAGER;

    #[test]
    fn defaulted_field_that_the_new_type_forbids_is_claimed() {
        let actual = |managed: Value| {
            json!({"metadata": {"managedFields": managed},
                "spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}, "selector": {"a": "b"}}})
        };
        let desired = json!({"spec": {"strategy": {"type": "Recreate"}, "selector": {"a": "c"}}});
        let ours = entry(OURS, json!({"f:spec": {"f:strategy": {}, "f:selector": {}}}));
        let live = actual(json!([ours]));
        let rejected = |fields: &[&str]| fields.iter().map(|field| (*field).to_owned()).collect::<Vec<_>>();
        let claims = json!({"f:spec": {"f:strategy": {"f:rollingUpdate": {}}}});
        let found = blocking(&desired, &live, &rejected(&["spec.strategy.rollingUpdate"]));
        assert_eq!(found, Blocking { claims, foreign: BTreeMap::new() });
        for (fields, reason) in [
            (&["spec.strategy.rollingUpdate", "spec.selector"][..], "another field is in the way"),
            (&["spec.selector"], "desired"),
            (&["spec.missing"], "not live"),
            (&["spec.strategy.type"], "neighbors only in lists"),
            (&[], "no field is named"),
        ] {
            assert_eq!(blocking(&desired, &live, &rejected(fields)), Blocking::default(), "{reason}");
        }
        let by_hand = json!({"f:spec": {"f:strategy": {"f:rollingUpdate": {"f:maxSurge": {}}}}});
        let live = actual(json!([ours, entry("kubectl-edit", by_hand)]));
        let found = blocking(&desired, &live, &rejected(&["spec.strategy.rollingUpdate"]));
        assert_eq!(found.claims, Value::Null);
        assert_eq!(
            found.remedy().unwrap(),
            ".spec.strategy.rollingUpdate, set by field manager \"kubectl-edit\", is in the way: remove it from the \
             object with `kubectl edit`"
        );
    }

    #[test]
    fn neighbor_of_a_rejected_new_field_in_a_list_is_claimed_or_named() {
        let volumes = |managed: Value| {
            json!({"metadata": {"managedFields": managed}, "spec": {"volumes": [
                {"name": "other"}, {"name": "v", "emptyDir": {}}]}})
        };
        let desired = json!({"spec": {"volumes": [{"name": "v", "secret": {}}]}});
        let key = "k:{\"name\":\"v\"}";
        let ours = entry(OURS, json!({"f:spec": {"f:volumes": {key: {".": {}, "f:name": {}}}}}));
        for index in [0, 1] {
            let rejected = [format!("spec.volumes[{index}].secret")];
            let found = blocking(&desired, &volumes(json!([ours])), &rejected);
            assert_eq!(found.claims, json!({"f:spec": {"f:volumes": {key: {"f:emptyDir": {}}}}}));
            let by_hand = entry("kubectl-edit", json!({"f:spec": {"f:volumes": {key: {"f:emptyDir": {}}}}}));
            let found = blocking(&desired, &volumes(json!([ours, by_hand])), &rejected);
            assert_eq!(found.claims, Value::Null);
            let path = ".spec.volumes[name=\"v\"].emptyDir".to_owned();
            assert_eq!(found.foreign, BTreeMap::from([("kubectl-edit".to_owned(), vec![path])]));
        }
    }
}
