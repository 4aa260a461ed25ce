//! Gained permissions of a preview. Those that allow most come first, so that a limit never hides them.

use maud::{Markup, html};
use olm_plan::permissions::{Permission, SubjectChange};

use super::page::LISTED;

/// Subjects with their gained permissions, in the order of the ranks.
fn ordered(changes: &[SubjectChange]) -> Vec<(&SubjectChange, Vec<&Permission>)> {
    let best = |change: &SubjectChange| change.gained.iter().map(Permission::rank).min();
    let mut subjects: Vec<_> = changes.iter().filter(|change| !change.gained.is_empty()).collect();
    subjects.sort_by_key(|change| best(change));
    let mut ordered = Vec::new();
    for change in subjects {
        let mut gained: Vec<&Permission> = change.gained.iter().collect();
        gained.sort_by_key(|permission| permission.rank());
        ordered.push((change, gained));
    }
    ordered
}

pub(crate) fn markup(changes: &[SubjectChange]) -> Markup {
    let subjects = ordered(changes);
    html! {
        h3 { "Permissions" }
        @if subjects.is_empty() { p { "None." } }
        @for (change, permissions) in subjects.iter().take(LISTED) {
            h4 { (change.subject) }
            ul {
                @for permission in permissions.iter().take(LISTED) { li { (permission) } }
                (more(permissions.len(), "permissions"))
            }
        }
        @if subjects.len() > LISTED { ul { (more(subjects.len(), "subjects")) } }
    }
}

/// Last item of a list that shows only [`LISTED`] of `all` items.
pub(super) fn more(all: usize, what: &str) -> Markup {
    html! {
        @if all > LISTED { li { strong { "and " (all - LISTED) " more " (what) } } }
    }
}

#[cfg(test)]
mod tests {
    use olm_plan::permissions::Subject;

    use super::*;

    fn permission(group: &str, resource: &str, verb: &str) -> Permission {
        Permission {
            api_group: Some(group.to_owned()),
            resources: vec![resource.to_owned()],
            verbs: vec![verb.to_owned()],
            ..Permission::default()
        }
    }

    fn change(name: &str, gained: Vec<Permission>) -> SubjectChange {
        let subject = Subject { kind: "User".to_owned(), namespace: String::new(), name: name.to_owned() };
        SubjectChange { subject, gained, lost: Vec::new() }
    }

    #[test]
    fn limit_is_shown_and_hides_no_wildcard_or_escalation() {
        let mut gained: Vec<_> =
            (0..LISTED + 2).map(|number| permission("apps", &format!("r{number}"), "get")).collect();
        gained.push(permission("", "secrets", "get"));
        gained.push(permission("rbac.authorization.k8s.io", "x", "escalate"));
        gained.push(permission("", "*", "*"));
        let text = markup(&[change("plain", vec![permission("", "pods", "get")]), change("wide", gained)]);
        let text = text.into_string();
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part} in {text}"));
        assert!(at("wide") < at("plain"), "{text}");
        assert!(at("* on") < at("secrets") && at("escalate on") < at("r0"), "{text}");
        assert!(text.contains("and 5 more permissions"), "{text}");
    }
}
