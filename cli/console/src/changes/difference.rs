//! What a plan changes: first what deserves attention, then each object, folded. Pure.

use std::collections::BTreeMap;

use maud::{Markup, html};
use olm_api::extension_plan::PlannedChange;
use olm_cli_core::output::counted;
use olm_cli_lifecycle::diff::{Diff, object_text};
use olm_cli_lifecycle::plan::approve::RecordedPlan;
use olm_plan::objects::{ChangeKind, ObjectChange};
use olm_plan::permissions::Permission;

use super::page::lines;

/// Limit of shown objects.
const OBJECTS: usize = 500;
/// Limit of permissions that are shown as risky.
const RISKS: usize = 20;

/// Sentences about deletions and permissions of a plan that may do harm, the worst first. `endangered` are CRDs whose custom
/// resources are deleted.
pub(super) fn attention(diff: Option<&Diff>, endangered: &[String]) -> Vec<String> {
    let Some(diff) = diff else { return deletions(&[], endangered) };
    let deleted = diff.objects.iter().filter(|change| change.change == ChangeKind::Deleted);
    let deleted: Vec<_> = deleted.map(|change| change.object.kind.as_str()).collect();
    let mut risks = Vec::new();
    for change in &diff.permissions {
        let risky = change.gained.iter().filter_map(|one| Some((one, risk(one)?)));
        risks.extend(risky.map(|(one, why)| (one.rank(), format!("{} gains {why}: {one}", change.subject))));
    }
    risks.sort_by_key(|(rank, _)| *rank);
    let found = diff.own_findings().map(|finding| format!("{}{}", finding.place, finding.message)).collect();
    [deletions(&deleted, endangered), limited(risks.into_iter().map(|(_, text)| text).collect()), found]
        .concat()
}

/// Sentences about a plan that operator-controller recorded. Its permissions are ordered, the worst first.
pub(super) fn recorded_attention(plan: RecordedPlan<'_>, endangered: &[String]) -> Vec<String> {
    let deleted = plan.objects.iter().filter(|object| object.change == PlannedChange::Deleted);
    let deleted: Vec<_> = deleted.map(|object| object.kind.as_str()).collect();
    let gained = plan.permissions_gained.iter().map(|text| format!("Gains a permission. {text}"));
    let cut = "The recorded plan is not complete: the digest covers everything, and `olm diff` prints it.";
    let cut = plan.truncated.then(|| cut.to_owned());
    [deletions(&deleted, endangered), limited(gained.collect()), cut.into_iter().collect()].concat()
}

/// At most [`RISKS`] sentences about gained permissions.
fn limited(mut risks: Vec<String>) -> Vec<String> {
    let left_out = risks.len().saturating_sub(RISKS);
    risks.truncate(RISKS);
    risks.extend(
        (left_out > 0).then(|| format!("And {left_out} more gained permissions, which the plan lists.")),
    );
    risks
}

/// Sentences about deleted custom resources and objects of these kinds.
fn deletions(deleted: &[&str], endangered: &[String]) -> Vec<String> {
    let data =
        format!("Deletes all custom resources of {}, and the data they manage.", endangered.join(", "));
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for kind in deleted {
        *kinds.entry(kind).or_default() += 1;
    }
    let kinds: Vec<_> =
        kinds.iter().map(|(kind, count)| format!("{} of kind {kind}", counted(*count, "object"))).collect();
    let objects = format!("Deletes {}.", kinds.join(", "));
    let both = [(!endangered.is_empty(), data), (!kinds.is_empty(), objects)];
    both.into_iter().filter_map(|(is_set, text)| is_set.then_some(text)).collect()
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
        Some("permission to gain other permissions")
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
    use olm_api::extension_plan::PlannedObject;
    use olm_plan::permissions::{Subject, SubjectChange};
    use serde_json::json;

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
        assert_eq!(risk(&permission("clusterroles", "bind")), Some("permission to gain other permissions"));
        assert_eq!(risk(&permission("pods", "get")), None);
        assert_eq!(class("  + x"), Some("added"));
    }

    fn gains(permissions: Vec<Permission>) -> SubjectChange {
        SubjectChange {
            subject: Subject {
                kind: "ServiceAccount".to_owned(),
                namespace: "ns".to_owned(),
                name: "sa".to_owned(),
            },
            gained: permissions,
            lost: Vec::new(),
        }
    }

    #[test]
    fn worst_gained_permission_comes_first_and_what_is_left_out_is_counted() {
        let rule = |group: &str, resource: &str| Permission {
            api_group: Some(group.to_owned()),
            resources: vec![resource.to_owned()],
            verbs: vec!["get".to_owned()],
            ..Permission::default()
        };
        let mut gained = vec![rule("", "secrets"); RISKS];
        gained.push(rule("*", "*"));
        let mut diff = Diff::default();
        diff.permissions.push(gains(gained));
        let found = attention(Some(&diff), &["pipes.example.com".to_owned(), "lamps.example.com".to_owned()]);
        let data =
            "Deletes all custom resources of pipes.example.com, lamps.example.com, and the data they manage.";
        assert_eq!((found[0].as_str(), found.len()), (data, RISKS + 2));
        assert!(found[1].contains("gains a wildcard"), "{found:?}");
        assert_eq!(found[RISKS + 1], "And 1 more gained permissions, which the plan lists.");
    }

    #[test]
    fn recorded_plan_names_deletions_permissions_and_that_it_is_cut() {
        let object =
            |change: &str, name: &str| json!({"change": change, "kind": "NetworkPolicy", "name": name});
        let objects = [object("Deleted", "a"), object("Deleted", "b"), object("Created", "c")];
        let objects: Vec<PlannedObject> =
            objects.into_iter().map(|one| serde_json::from_value(one).unwrap()).collect();
        let plan =
            RecordedPlan { objects: &objects, permissions_gained: &["a: *".to_owned()], truncated: true };
        let found = recorded_attention(plan, &[]);
        assert_eq!(found[..2], ["Deletes 2 objects of kind NetworkPolicy.", "Gains a permission. a: *"]);
        assert!(found[2].starts_with("The recorded plan is not complete"), "{found:?}");
    }
}
