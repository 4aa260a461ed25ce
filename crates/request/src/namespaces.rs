//! Namespaces that an extension selects by label, and the pace at which its revisions follow them
//! (docs/design/namespaces.md#changed-lists).
//!
//! Pure: the cluster and the time are parameters.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use olm_api::{ClusterExtension, LabelSelector};
use olm_resolve::CatalogSelector;
use serde_json::{Map, Value};

use crate::request::selector;

/// Time from the first difference to the new revision, so that namespaces created together make one revision.
pub const DEBOUNCE: SignedDuration = SignedDuration::from_secs(30);
/// Minimum age of a newest revision that has rolled out.
pub const PACE: SignedDuration = SignedDuration::from_mins(2);
/// Minimum age of a newest revision that has not rolled out.
pub const UNREADY_PACE: SignedDuration = SignedDuration::from_mins(10);

/// `watchNamespaceSelector` of an extension. Selects nothing if it is malformed, which the renderer reports.
#[derive(Clone, Debug)]
pub struct NamespaceSelector(Option<CatalogSelector>);

impl NamespaceSelector {
    /// Field of the configuration.
    pub const FIELD: &str = "watchNamespaceSelector";

    /// Selector of the extension. `None` without one.
    pub fn of(extension: &ClusterExtension) -> Option<Self> {
        Self::of_config(extension.spec.as_ref()?.config.as_ref()?.inline.as_ref()?)
    }

    /// Selector in `spec.config.inline`. `None` without one.
    pub fn of_config(config: &Map<String, Value>) -> Option<Self> {
        let written = config.get(Self::FIELD).filter(|value| !value.is_null())?;
        let labels: Option<LabelSelector> = serde_json::from_value(written.clone()).ok();
        let is_some =
            |labels: &LabelSelector| labels.match_labels.is_some() || labels.match_expressions.is_some();
        Some(Self(labels.filter(is_some).and_then(|labels| selector(Some(&labels)).ok())))
    }

    /// Reports whether a namespace with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.as_ref().is_some_and(|selector| selector.matches(labels))
    }
}

/// Namespaces of a cluster, as far as a selector sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedNamespaces {
    /// Selected namespaces that are not being deleted.
    pub selected: BTreeSet<String>,
    /// All namespaces that are not being deleted.
    pub live: BTreeSet<String>,
}

impl SelectedNamespaces {
    /// Adds a namespace.
    pub fn add(
        &mut self,
        selector: &NamespaceSelector,
        name: &str,
        labels: &BTreeMap<String, String>,
        is_deleting: bool,
    ) {
        if is_deleting {
            return;
        }
        self.live.insert(name.to_owned());
        if selector.matches(labels) {
            self.selected.insert(name.to_owned());
        }
    }

    /// Names of the selected namespaces, sorted.
    pub fn names(&self) -> Vec<String> {
        self.selected.iter().cloned().collect()
    }

    /// Reports whether a revision with the list `current` must be replaced. A list that only lost namespaces that are
    /// being deleted, or do not exist, remains.
    pub fn differ(&self, current: &[String]) -> bool {
        let current: BTreeSet<&String> = current.iter().collect();
        self.selected.iter().any(|name| !current.contains(name))
            || current.iter().any(|name| self.live.contains(*name) && !self.selected.contains(*name))
    }
}

/// Step for a list of namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListStep {
    /// The newest revision keeps its list.
    Keep,
    /// The list is to be changed after this time, not before.
    Wait(SignedDuration),
    /// A revision with the new list is due.
    Change,
}

/// Minimum age of the newest revision, whose rollout may take `deadline` minutes. `None` if its rollout must end first:
/// a rollback decides then.
pub fn pace(has_rolled_out: bool, deadline: Option<i32>, is_rolled_back: bool) -> Option<SignedDuration> {
    if has_rolled_out {
        return Some(PACE);
    }
    match deadline.filter(|minutes| *minutes > 0) {
        Some(_) if is_rolled_back => None,
        Some(minutes) => Some(UNREADY_PACE.max(SignedDuration::from_mins(minutes.into()))),
        None => Some(UNREADY_PACE),
    }
}

/// Decides about a list that has [differed](SelectedNamespaces::differ) for this time, if it differs. `age` is that of
/// the newest revision, and `pace` its minimum age.
pub fn list_step(
    differed: Option<SignedDuration>,
    age: SignedDuration,
    pace: Option<SignedDuration>,
) -> ListStep {
    let (Some(differed), Some(pace)) = (differed, pace) else { return ListStep::Keep };
    let left = DEBOUNCE.saturating_sub(differed).max(pace.saturating_sub(age));
    if left.is_positive() { ListStep::Wait(left) } else { ListStep::Change }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selector(value: Value) -> Option<NamespaceSelector> {
        NamespaceSelector::of_config(json!({"watchNamespaceSelector": value}).as_object().unwrap())
    }

    fn namespaces(all: &[(&str, &str, bool)]) -> SelectedNamespaces {
        let team = selector(json!({"matchLabels": {"team": "a"}})).unwrap();
        let mut namespaces = SelectedNamespaces::default();
        for (name, label, is_deleting) in all {
            namespaces.add(&team, name, &BTreeMap::from([("team".into(), (*label).into())]), *is_deleting);
        }
        namespaces
    }

    #[test]
    fn malformed_selector_selects_nothing() {
        let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        let matches = |value| selector(value).map(|one| one.matches(&labels));
        for (value, expected) in [
            (json!(null), None),
            (json!({"matchLabels": {"team": "a"}}), Some(true)),
            (json!({"matchLabels": {"team": "b"}}), Some(false)),
            (json!({"matchExpressions": [{"key": "team", "operator": "Exists"}]}), Some(true)),
            (json!({"matchExpressions": [{"key": "team", "operator": "in", "values": ["a"]}]}), Some(false)),
            (json!({}), Some(false)),
            (json!("team=a"), Some(false)),
        ] {
            assert_eq!(matches(value.clone()), expected, "{value}");
        }
        assert!(NamespaceSelector::of_config(&Map::new()).is_none());
    }

    // docs/design/namespaces.md#changed-lists
    #[test]
    fn list_differs_unless_it_only_lost_deleted_namespaces() {
        for (cluster, current, expected) in [
            (&[("x", "a", false), ("y", "a", false)][..], &["x", "y"][..], false),
            (&[("x", "a", false), ("y", "a", false)], &["x"], true),
            (&[("x", "a", false), ("y", "b", false)], &["x", "y"], true),
            (&[("x", "a", false), ("y", "a", true)], &["x", "y"], false),
            (&[("x", "a", false), ("y", "b", true)], &["x", "y"], false),
            (&[("x", "a", false)], &["x", "y"], false),
            (&[("x", "a", false), ("z", "a", false)], &["x", "y"], true),
            (&[("x", "a", false), ("y", "a", true)], &["x"], false),
            (&[], &["x", "y"], false),
        ] {
            let current: Vec<String> = current.iter().map(ToString::to_string).collect();
            assert_eq!(namespaces(cluster).differ(&current), expected, "{cluster:?} {current:?}");
        }
    }

    #[test]
    fn changed_list_waits_for_debounce_and_pace() {
        let seconds = SignedDuration::from_secs;
        for (differed, age, expected) in [
            (None, 1000, ListStep::Keep),
            (Some(0), 1000, ListStep::Wait(seconds(30))),
            (Some(29), 1029, ListStep::Wait(seconds(1))),
            (Some(30), 1030, ListStep::Change),
            (Some(30), 40, ListStep::Wait(seconds(80))),
            (Some(110), 120, ListStep::Change),
        ] {
            let step = list_step(differed.map(seconds), seconds(age), Some(PACE));
            assert_eq!(step, expected, "{differed:?} {age}");
        }
        assert_eq!(list_step(Some(seconds(4000)), seconds(5000), None), ListStep::Keep);
    }

    #[test]
    fn rollout_in_progress_slows_the_pace_and_a_rollback_ends_it() {
        for (has_rolled_out, deadline, is_rolled_back, minutes) in [
            (true, Some(30), true, Some(2)),
            (false, None, false, Some(10)),
            (false, Some(0), true, Some(10)),
            (false, Some(5), false, Some(10)),
            (false, Some(30), false, Some(30)),
            (false, Some(30), true, None),
        ] {
            let expected = minutes.map(SignedDuration::from_mins);
            assert_eq!(
                pace(has_rolled_out, deadline, is_rolled_back),
                expected,
                "{has_rolled_out} {deadline:?}"
            );
        }
    }
}
