//! Gained permissions.

use olm_plan::objects::by_name;
use olm_plan::permissions::{Permission, Subject, changes};
use serde_json::Value;

use crate::rule::{DANGEROUS, PERMISSIONS};
use crate::{UpgradeFinding, UpgradeHold, finding};

/// Lowest rank of permissions that do not lead to permissions of others.
const ORDINARY: usize = 2;
/// Highest number of permissions that a message names.
const NAMED: usize = 3;

/// Findings about each subject that gains permissions, dangerous ones apart.
pub(crate) fn check(old: &[Value], new: &[Value]) -> Vec<UpgradeFinding> {
    let changes = match changes(old, new) {
        Ok(changes) => changes,
        Err(error) => return vec![finding(&DANGEROUS, "", UpgradeHold::No, error.to_string())],
    };
    let known = by_name(old);
    let mut found = Vec::new();
    for change in changes {
        let is_role = ["ClusterRole", "Role"].contains(&change.subject.kind.as_str());
        let is_known =
            known.keys().any(|name| name.kind == change.subject.kind && name.name == change.subject.name);
        // Nothing outside of the bundle can be bound to a new role yet.
        if is_role && !is_known {
            continue;
        }
        // What a webhook intercepts, and an object of an unknown kind, give no permissions of others.
        let is_webhook = change.subject.kind.ends_with("WebhookConfiguration");
        let is_unknown = |permission: &Permission| {
            permission.privilege.as_ref().is_some_and(|privilege| privilege.starts_with("unknown rights"))
        };
        let is_worst = |permission: &Permission| {
            permission.rank().0 < ORDINARY && !is_webhook && !is_unknown(permission)
        };
        let (worst, others): (Vec<_>, Vec<_>) = change.gained.into_iter().partition(is_worst);
        for (rule, permissions) in [(&DANGEROUS, worst), (&PERMISSIONS, others)] {
            if let Some(message) = sentence(permissions) {
                found.push(finding(rule, subject(&change.subject), UpgradeHold::No, message));
            }
        }
    }
    found
}

fn subject(subject: &Subject) -> String {
    let slash = if subject.namespace.is_empty() { "" } else { "/" };
    format!("{} {}{slash}{}", subject.kind, subject.namespace, subject.name)
}

/// `gains A; B; and 3 more`, the most dangerous first.
fn sentence(mut permissions: Vec<Permission>) -> Option<String> {
    permissions.sort_by_key(Permission::rank);
    let more = permissions.len().saturating_sub(NAMED);
    let mut named: Vec<_> = permissions.iter().take(NAMED).map(ToString::to_string).collect();
    named.extend((more > 0).then(|| format!("and {more} more")));
    (!permissions.is_empty()).then(|| format!("gains {}", named.join("; ")))
}
