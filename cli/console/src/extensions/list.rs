//! Filter and order of the list of extensions. Each state has an address. Pure.

use std::cmp::Reverse;

use olm_api::conditions::{self, types};
use olm_cli_lifecycle::status::health::Health;
use olm_cli_lifecycle::status::tree::ExtensionState;
use serde::Deserialize;

use crate::catalog::encoded;

/// Longest reason of a row, in characters.
const REASON: usize = 160;

/// Group of healths by what the user has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    Failing,
    /// A change waits for an approval, a window or the operator.
    Waiting,
    InProgress,
    Healthy,
}

impl Group {
    pub(super) const ALL: [Self; 4] = [Self::Failing, Self::Waiting, Self::InProgress, Self::Healthy];

    pub(super) fn of(state: &ExtensionState) -> Self {
        match state.health {
            _ if state.is_held() => Self::Waiting,
            Health::Degraded
            | Health::Retrying
            | Health::Stalled
            | Health::Misconfigured
            | Health::Blocked => Self::Failing,
            _ if !state.holds.is_empty() => Self::Waiting,
            Health::Healthy => Self::Healthy,
            _ => Self::InProgress,
        }
    }

    /// Value in a query.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::Waiting => "waiting",
            Self::InProgress => "progress",
            Self::Healthy => "healthy",
        }
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Failing => "Failing",
            Self::Waiting => "Waiting",
            Self::InProgress => "In progress",
            Self::Healthy => "Healthy",
        }
    }
}

/// Query of the list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Filter {
    /// Search text.
    q: String,
    /// Name of a [`Group`], or empty for all.
    state: String,
    /// Name of a column, with `-` before it for descending order. Empty for failing ones first.
    sort: String,
}

impl Filter {
    pub(super) fn search(&self) -> &str {
        &self.q
    }

    pub(super) fn group(&self) -> &str {
        &self.state
    }

    pub(super) fn order(&self) -> &str {
        &self.sort
    }

    /// Address of the list in this state.
    pub(super) fn address(&self) -> String {
        let pairs = [("q", &self.q), ("state", &self.state), ("sort", &self.sort)];
        let set = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<_> = set.map(|(key, value)| format!("{key}={}", encoded(value))).collect();
        if query.is_empty() { "/extensions".to_owned() } else { format!("/extensions?{}", query.join("&")) }
    }

    /// Address with another group.
    pub(super) fn with_group(&self, group: &str) -> String {
        Self { state: group.to_owned(), ..self.clone() }.address()
    }

    /// Address of the list sorted by a column, descending if it is sorted by it already.
    pub(super) fn sorted_by(&self, column: &str) -> String {
        let sort = if self.sort == column { format!("-{column}") } else { column.to_owned() };
        Self { sort, ..self.clone() }.address()
    }

    /// Extensions of all groups that the search finds.
    pub(super) fn found<'a>(&self, all: &'a [ExtensionState]) -> Vec<&'a ExtensionState> {
        Self { state: String::new(), ..self.clone() }.select(all)
    }

    /// Selected extensions in their order.
    pub(super) fn select<'a>(&self, all: &'a [ExtensionState]) -> Vec<&'a ExtensionState> {
        let words: Vec<String> = self.q.split_whitespace().map(str::to_lowercase).collect();
        let has = |state: &ExtensionState| {
            let text = format!("{} {} {} {}", state.name, state.package, state.namespace, reason(state))
                .to_lowercase();
            words.iter().all(|word| text.contains(word))
        };
        let of_group =
            |state: &&ExtensionState| self.state.is_empty() || Group::of(state).as_str() == self.state;
        let mut found: Vec<_> = all.iter().filter(|state| has(state)).filter(of_group).collect();
        let (column, is_descending) = match self.sort.strip_prefix('-') {
            Some(column) => (column, true),
            None => (self.sort.as_str(), false),
        };
        found.sort_by_cached_key(|state| key(state, column));
        if is_descending {
            found.reverse();
        }
        found
    }
}

/// Sort key of a column. Without one, what needs attention comes first.
fn key(state: &ExtensionState, column: &str) -> (Group, Reverse<String>, String) {
    let text = match column {
        "package" => state.package.clone(),
        "namespace" => state.namespace.clone(),
        _ => String::new(),
    };
    // The newest has the lowest age.
    let created = if column == "age" { state.created.clone().unwrap_or_default() } else { String::new() };
    let group = if column.is_empty() { Group::of(state) } else { Group::Failing };
    (group, Reverse(created), format!("{text} {}", state.name))
}

/// Why an extension is not healthy, or what it waits for, on one line.
pub(super) fn reason(state: &ExtensionState) -> String {
    let of = |type_| conditions::find(&state.conditions, type_).map(|condition| condition.message.as_str());
    let text = match Group::of(state) {
        Group::Healthy => return String::new(),
        Group::Waiting => state.holds.first().map(|hold| hold.message.as_str()),
        _ if state.health == Health::Degraded => of(types::AVAILABLE),
        _ => of(types::PROGRESSING),
    };
    let text = text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(REASON) {
        Some((end, _)) => {
            let cut = &text[..end];
            format!("{}…", cut.rsplit_once(' ').map_or(cut, |(words, _)| words))
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use olm_api::ClusterExtension;
    use serde_json::json;

    use super::*;

    fn state(name: &str, namespace: &str, reason: &str, created: &str) -> ExtensionState {
        let of = |type_: &str, status: &str, reason: &str| {
            json!({"type": type_, "status": status, "reason": reason, "message": format!("{reason} of {name}"),
                "lastTransitionTime": created})
        };
        let conditions = [of("Installed", "True", "Succeeded"), of("Progressing", "True", reason)];
        let object = json!({"metadata": {"name": name, "creationTimestamp": created},
            "spec": {"namespace": namespace, "source": {"sourceType": "Catalog", "catalog": {"packageName": "pipe"}}},
            "status": {"conditions": conditions, "install": {"bundle": {"name": "b", "version": "1.0.0"}}}});
        ExtensionState::alone(&serde_json::from_value::<ClusterExtension>(object).unwrap(), &[])
    }

    #[test]
    fn extension_that_a_fault_blocks_is_failing_although_it_is_paused() {
        let group = |message: &str| {
            let condition = json!({"type": "Progressing", "status": "False", "reason": "Blocked", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let object = json!({"metadata": {"name": "a", "annotations": {"ext.olm.operatorframework.io/paused": "true"}},
                "status": {"conditions": [condition]}});
            Group::of(&ExtensionState::alone(&serde_json::from_value(object).unwrap(), &[]))
        };
        assert_eq!(group("object belongs to extension b"), Group::Failing);
        let waits = "installation of bundle a.v1 version 1 requires approval; plan sha256:a: x";
        assert_eq!(group(waits), Group::Waiting);
    }

    #[test]
    fn failing_extensions_come_first_and_filters_are_in_the_address() {
        let all = [
            state("a", "z", "Succeeded", "2026-01-01T00:00:00Z"),
            state("b", "y", "RollingOut", "2026-01-03T00:00:00Z"),
            state("c", "x", "Retrying", "2026-01-02T00:00:00Z"),
        ];
        let names = |q: &str, group: &str, sort: &str| {
            let filter = Filter { q: q.to_owned(), state: group.to_owned(), sort: sort.to_owned() };
            filter.select(&all).into_iter().map(|state| state.name.as_str()).collect::<String>()
        };
        assert_eq!(names("", "", ""), "cba");
        assert_eq!(names("", "", "name"), "abc");
        assert_eq!(names("", "", "-name"), "cba");
        assert_eq!(names("", "", "namespace"), "cba");
        assert_eq!(names("", "", "age"), "bca");
        assert_eq!(names("", "failing", ""), "c");
        assert_eq!(names("RETRYING pipe", "", ""), "c");
        assert_eq!(names("nothing", "", ""), "");
        let filter = Filter { q: "a b".to_owned(), state: "failing".to_owned(), sort: "name".to_owned() };
        assert_eq!(filter.sorted_by("name"), "/extensions?q=a%20b&state=failing&sort=%2Dname");
        assert_eq!(filter.with_group(""), "/extensions?q=a%20b&sort=name");
    }
}
