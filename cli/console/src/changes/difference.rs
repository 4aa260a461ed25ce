//! What a plan changes: first what deserves attention, then each object, folded. Pure.

use std::collections::BTreeMap;

use maud::{Markup, html};
use olm_cli_core::output::counted;
use olm_cli_lifecycle::diff::{Diff, object_text};
use olm_plan::objects::{ChangeKind, ObjectChange};
use olm_plan::permissions::Permission;

use super::page::lines;

/// Limit of shown objects.
const OBJECTS: usize = 500;
/// Limit of permissions that are shown as risky.
const RISKS: usize = 20;

/// Sentences about what a plan deletes or gains that may do harm. `endangered` are CRDs whose custom resources are
/// deleted.
pub(super) fn attention(diff: Option<&Diff>, endangered: &[String]) -> Vec<String> {
    let mut found: Vec<String> = endangered
        .iter()
        .map(|crd| format!("Deletes all custom resources of {crd}, and the data that they stand for."))
        .collect();
    let Some(diff) = diff else { return found };
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for change in diff.objects.iter().filter(|change| change.change == ChangeKind::Deleted) {
        *kinds.entry(&change.object.kind).or_default() += 1;
    }
    if !kinds.is_empty() {
        let all: Vec<_> = kinds.iter().map(|(kind, count)| counted(*count, kind)).collect();
        found.push(format!("Deletes {}.", all.join(", ")));
    }
    for change in &diff.permissions {
        let risky = change.gained.iter().filter_map(|one| Some((one, risk(one)?)));
        found.extend(risky.map(|(one, why)| format!("{} gains {why}: {one}", change.subject)));
    }
    found.truncate(RISKS);
    found
}

/// What is risky about a permission.
fn risk(permission: &Permission) -> Option<&'static str> {
    let has = |list: &[String], text: &str| list.iter().any(|one| one == text);
    if has(&permission.verbs, "*")
        || has(&permission.resources, "*")
        || permission.api_group.as_deref() == Some("*")
    {
        Some("a wildcard")
    } else if permission.verbs.iter().any(|verb| ["escalate", "bind", "impersonate"].contains(&verb.as_str()))
    {
        Some("the right to get other rights")
    } else if has(&permission.resources, "secrets")
        && matches!(permission.api_group.as_deref(), None | Some(""))
    {
        Some("access to Secrets")
    } else {
        permission.privilege.is_some().then_some("a privilege")
    }
}

pub(super) fn attention_markup(found: &[String]) -> Markup {
    html! {
        @if !found.is_empty() {
            section.notice.bad #attention aria-label="Attention" {
                strong { "Look at this first" }
                ul { @for text in found { li { (text) } } }
            }
        }
    }
}

/// Changed objects, deleted ones first, each with its fields on demand.
pub(super) fn objects(diff: &Diff) -> Markup {
    let order = |change: &ObjectChange| match change.change {
        ChangeKind::Deleted => 0,
        ChangeKind::Changed => 1,
        ChangeKind::Created => 2,
    };
    let mut all: Vec<&ObjectChange> = diff.objects.iter().collect();
    all.sort_by_key(|change| order(change));
    html! {
        h2 { "Objects (" (all.len()) ")" }
        @if all.is_empty() { p.soft { "No object changes." } }
        ul.objects {
            @for change in all.iter().take(OBJECTS) { li { (object(change)) } }
        }
        @if all.len() > OBJECTS { p { strong { "and " (all.len() - OBJECTS) " more" } } }
    }
}

fn object(change: &ObjectChange) -> Markup {
    let (look, word) = match change.change {
        ChangeKind::Deleted => ("badge bad", "− deleted"),
        ChangeKind::Changed => ("badge warn", "~ changed"),
        ChangeKind::Created => ("badge good", "+ created"),
    };
    let head = html! { span class=(look) { (word) } " " (change.object) };
    let text = object_text(change);
    // The first line repeats the head.
    let rest: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
    html! {
        @if rest.is_empty() { (head) } @else {
            details open[!change.notes.is_empty()] {
                summary { (head) " " span.soft { (counted(change.fields.len(), "field")) } }
                pre tabindex="0" role="region" aria-label=(format!("Changes of {}", change.object)) { (lines(&rest)) }
            }
        }
    }
}

/// Whole comparison, as the command prints it.
pub(super) fn whole(diff: &Diff) -> Markup {
    html! {
        details.whole {
            summary { "Whole comparison" }
            pre #diff tabindex="0" role="region" aria-label="Changes on the cluster" { (lines(&diff.text())) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::class;
    use super::*;

    #[test]
    fn wildcards_secrets_and_escalations_are_risky() {
        let permission = |resource: &str, verb: &str| Permission {
            resources: vec![resource.to_owned()],
            verbs: vec![verb.to_owned()],
            ..Permission::default()
        };
        assert_eq!(risk(&permission("*", "get")), Some("a wildcard"));
        assert_eq!(risk(&permission("secrets", "get")), Some("access to Secrets"));
        assert_eq!(risk(&permission("clusterroles", "bind")), Some("the right to get other rights"));
        assert_eq!(risk(&permission("pods", "get")), None);
        assert_eq!(class("  + x"), Some("added"));
    }

    #[test]
    fn endangered_custom_resources_come_first() {
        let found = attention(None, &["pipes.example.com".to_owned()]);
        assert!(found[0].starts_with("Deletes all custom resources of pipes.example.com"));
    }
}
