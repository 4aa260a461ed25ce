//! Fields of a live object because of which the API server rejects the desired one: it names the rejected fields, and the
//! live object has what contradicts them.
//!
//! Pure. No list of kinds: a defaulted field that a new `type` forbids, or an unset source of a volume, is found like any
//! other.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::managed_fields::{enter, entries, is_ours, union};
use crate::object::text;

/// Live fields that contradict the desired object.
#[derive(Debug, Default, PartialEq)]
pub struct Blocking {
    /// Set of fields without owner. Null unless each rejected field is explained by such fields alone.
    pub(crate) claims: Value,
    /// Paths of fields by the other manager that owns them.
    foreign: BTreeMap<String, BTreeSet<String>>,
}

impl Blocking {
    /// `true` if the engine removes the fields, because nothing else is in the way.
    pub fn is_removable(&self) -> bool {
        !self.claims.is_null()
    }

    /// Clause for the error, with the fields of other managers and the remedy. `None` without any.
    pub fn remedy(&self) -> Option<String> {
        let fields = self.foreign.iter().map(|(manager, paths)| {
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            format!("{}, set by field manager {manager:?},", paths.join(" and "))
        });
        let fields = fields.collect::<Vec<_>>().join(" and ");
        (!fields.is_empty())
            .then(|| format!("{fields} blocks the change: remove it from the object with `kubectl edit`"))
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
        place.find(&steps(path), &mut found);
        // The apply removes fields that are ours alone.
        if found
            .iter()
            .all(|field| !field.sets.is_empty() && field.sets.iter().all(|(entry, _)| is_ours(entry)))
        {
            found = place.dropped(&steps(path));
        }
        is_explained &= found.iter().any(|field| field.sets.is_empty());
        for field in found {
            if field.sets.is_empty() {
                union(&mut blocking.claims, &field.set());
            }
            for (entry, _) in field.sets.iter().filter(|(entry, _)| !is_ours(entry)) {
                let manager = text(entry, "/manager").to_owned();
                blocking.foreign.entry(manager).or_default().insert(field.path.clone());
            }
        }
    }
    if !is_explained || !blocking.foreign.is_empty() {
        blocking.claims = Value::Null;
    }
    blocking
}

/// Steps of a path in an error of the API server: names of fields, and indices of entries.
fn steps(path: &str) -> Vec<&str> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (step, after) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']').unwrap_or((inner, "")),
            None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
        };
        steps.push(step);
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
    fn find(&self, steps: &[&str], found: &mut Vec<Self>) {
        match steps {
            [] => {}
            [name] => found.extend(self.contradictions(name)),
            [step, below @ ..] => self.below(step).for_each(|place| place.find(below, found)),
        }
    }

    /// Entries of lists on the way to the field at `steps` that the new content drops, and that other appliers keep
    /// although they list only a part.
    fn dropped(&self, steps: &[&str]) -> Vec<Self> {
        let [step, below @ ..] = steps else { return Vec::new() };
        let is_dropped = |place: &Self| place.is_entry() && place.desired.is_none();
        self.below(step)
            .flat_map(|place| if is_dropped(&place) { vec![place] } else { place.dropped(below) })
            .collect()
    }

    /// Places at a step of a path.
    fn below(&self, step: &str) -> impl Iterator<Item = Self> {
        let sets = match (step.parse(), self.actual) {
            (Ok(index), Value::Array(_)) => self.keys(index),
            _ => BTreeSet::from([format!("f:{step}")]),
        };
        sets.into_iter().filter_map(|set| self.enter(&set))
    }

    fn is_entry(&self) -> bool {
        self.steps.last().is_some_and(|step| step.starts_with("k:"))
    }

    fn contradictions(&self, name: &str) -> Vec<Self> {
        let is_new = self.actual.get(name).is_none()
            && self.desired.is_some_and(|desired| desired.get(name).is_some());
        let names: Vec<&str> = match self.actual.as_object() {
            Some(fields) if is_new && self.is_entry() => fields.keys().map(String::as_str).collect(),
            _ => vec![name],
        };
        let fields = names.into_iter().filter_map(|name| self.enter(&format!("f:{name}")));
        fields.filter(|field| field.desired.is_none()).collect()
    }

    /// Keys of the entry of a list at this index. The live and the desired list can differ in it.
    fn keys(&self, index: usize) -> BTreeSet<String> {
        let lists = [Some(self.actual), self.desired];
        let entries: Vec<&Value> = lists.into_iter().filter_map(|list| list?.get(index)).collect();
        let steps = self.sets.iter().filter_map(|(_, set)| set.as_object()).flat_map(|set| set.keys());
        let is_entry = |step: &&String| {
            step.starts_with("k:") && entries.iter().any(|entry| enter(&json!([entry]), step, "").is_some())
        };
        steps.filter(is_entry).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_errors_are_parsed() {
        for (path, expected) in [
            ("spec.a[0].b", &["spec", "a", "0", "b"][..]),
            ("data[a.b/c]", &["data", "a.b/c"]),
            ("a[1][x", &["a", "1", "x"]),
            ("", &[]),
        ] {
            assert_eq!(steps(path), expected, "{path}");
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
            ".spec.strategy.rollingUpdate, set by field manager \"kubectl-edit\", blocks the change: remove it from \
             the object with `kubectl edit`"
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
            assert_eq!(found.foreign, BTreeMap::from([("kubectl-edit".to_owned(), BTreeSet::from([path]))]));
        }
    }
}
