//! Permission differences: permissions that subjects gain or lose when objects replace others.
//!
//! Pure. Other objects of the cluster are unknown. A role that is in neither list is one permission, identified by its
//! name, and so are a service account that is not in the list and the selector of an aggregated ClusterRole.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::names;
use olm_api::operator_condition::PLURAL;
use olm_bundle::rights::Right;
use olm_request::operator_condition;
use serde::Serialize;
use serde_json::Value;

use crate::aggregation::Requirements;
use crate::holders::{Holders, counted};

/// Largest number of single permissions in one list of objects. Real bundles have some thousands.
pub(crate) const MAX_GRANTS: usize = 200_000;
/// Longest URL that is matched against wildcards.
const MAX_URL: usize = 1024;
/// Largest number of namespaces that are listed as still having a permission.
const MAX_KEPT: usize = 100;

/// Holder of permissions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Subject {
    /// `ServiceAccount`, `User` or `Group`. `ClusterRole` and `Role` stand for all their subjects, `Deployment` for its
    /// pods, `Secret` for all that read it. Webhook configurations, and objects of unknown kinds as `<Kind>.<group>`.
    pub kind: String,
    /// Namespace of a service account or an object, else empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Gained and lost permissions of a subject.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubjectChange {
    /// Subject that holds the permissions.
    pub subject: Subject,
    /// Permissions that it gains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gained: Vec<Permission>,
    /// Permissions that it loses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<Permission>,
}

/// Related permissions, in the form of a rule.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// Namespace of the permissions. `None` for the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// All permissions of a role that is not in the list, as `<Kind> <name>`, of a service account that is not in the
    /// list, as `ServiceAccount <namespace>/<name>`, or of all ClusterRoles with some labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Right that no role grants: a privilege of pods, what a rule of a webhook intercepts, or the unknown rights of an
    /// object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privilege: Option<String>,
    /// API group of the resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Resources, `*` for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Names of the only objects that the permission covers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// URLs that are not resources.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// Allowed verbs, `*` for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verbs: Vec<String>,
    /// Verbs that the subject keeps after losing `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
    /// Namespaces in which the subject keeps a permission that it loses in the whole cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept_in: Vec<String>,
}

impl Permission {
    /// Reports whether the permission only concerns the OperatorCondition with this namespace and name.
    pub(crate) fn is_about(&self, (namespace, name): &(String, String)) -> bool {
        self.namespace.as_ref() == Some(namespace)
            && self.api_group.as_deref() == Some(names::CLASSIC_GROUP)
            && self.resources.iter().all(|resource| resource.split('/').next() == Some(PLURAL))
            && self.resource_names == std::slice::from_ref(name)
    }
}

/// Error for more permissions than any real role grants. Nothing is compared then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("permissions are not compared: the roles have more than {MAX_GRANTS} single permissions")]
pub struct TooMany;

/// Single permission.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Grant {
    /// `None` for the whole cluster.
    pub(crate) namespace: Option<String>,
    pub(crate) what: GrantedAccess,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GrantedAccess {
    Right(Right),
    Role(String),
    /// All ClusterRoles of the cluster with these labels.
    Selected(Requirements),
    /// Right that no role grants, and the content of an object whose kind is unknown.
    Privilege {
        text: String,
        content: String,
    },
}

/// Gained and lost permissions by subject when `new` replaces `old`. A permission that a wildcard covered before is
/// not gained, and neither is that on the operator's own OperatorCondition, whose name changes with the version. Without
/// `old`, only roles that `new` binds are compared: nothing can be bound outside yet.
///
/// # Errors
/// See [`TooMany`].
pub fn changes(old: &[Value], new: &[Value]) -> Result<Vec<SubjectChange>, TooMany> {
    let mut changes = all_changes(old, new)?;
    if let (Some(old), Some(new)) = (operator_condition(old), operator_condition(new)) {
        for change in &mut changes {
            change.gained.retain(|gained| !gained.is_about(&new));
            change.lost.retain(|lost| !lost.is_about(&old));
        }
        changes.retain(|change| !change.gained.is_empty() || !change.lost.is_empty());
    }
    Ok(changes)
}

fn all_changes(old: &[Value], new: &[Value]) -> Result<Vec<SubjectChange>, TooMany> {
    let is_upgrade = !old.is_empty() && !new.is_empty();
    let (mut old, mut new) = (Holders::of(old)?, Holders::of(new)?);
    if is_upgrade {
        new.add_selected(&old)?;
    }
    for (holder, held, gained) in moved(&old, &new)? {
        old.grants.entry(holder.clone()).or_default().extend(held);
        new.grants.entry(holder).or_default().extend(gained);
    }
    let subjects: BTreeSet<&Subject> = old.grants.keys().chain(new.grants.keys()).collect();
    let (roles, others): (Vec<&Subject>, _) =
        subjects.into_iter().partition(|subject| old.has_role(subject) || new.has_role(subject));
    let none = BTreeSet::new();
    let of = |subject: &Subject| {
        change(subject, old.grants.get(subject).unwrap_or(&none), new.grants.get(subject).unwrap_or(&none))
    };
    let mut changes: Vec<SubjectChange> = others.into_iter().filter_map(of).collect();
    if is_upgrade {
        // Bindings outside of the lists may exist for a role of both lists, or are what makes a role useful that no
        // object of its list binds. What a subject of a binding gains to the same extent is listed once.
        let is_open = |one: &Holders, other: &Holders, role: &Subject| {
            !one.has_role(role) || other.has_role(role) || one.bound.get(role) == Some(&false)
        };
        let open = roles.into_iter().filter(|role| is_open(&old, &new, role) && is_open(&new, &old, role));
        for change in open.filter_map(of).collect::<Vec<_>>() {
            let is_same = |other: &SubjectChange| other.gained == change.gained && other.lost == change.lost;
            changes.extend((!changes.iter().any(is_same)).then_some(change));
        }
        changes.sort_by(|one, other| one.subject.cmp(&other.subject));
    }
    Ok(changes)
}

fn change(subject: &Subject, old: &BTreeSet<Grant>, new: &BTreeSet<Grant>) -> Option<SubjectChange> {
    let (gained, lost) = (beyond(new, old, &BTreeSet::new()), beyond(old, new, new));
    let is_change = !gained.is_empty() || !lost.is_empty();
    is_change.then(|| SubjectChange { subject: subject.clone(), gained, lost })
}

/// Holder with what it had and has by its service accounts.
type Moved = (Subject, BTreeSet<Grant>, BTreeSet<Grant>);

/// Pods that run with other service accounts than before, or get their tokens, and token Secrets.
fn moved(old: &Holders, new: &Holders) -> Result<Vec<Moved>, TooMany> {
    let (mut moved, mut count, none) = (Vec::new(), 0, BTreeSet::new());
    let used: BTreeSet<&Subject> = old.accounts.values().flatten().collect();
    for (holder, accounts) in &new.accounts {
        let before = old.accounts.get(holder);
        let is_other = |account: &Subject| {
            // What a new account gains is listed as such.
            let is_new = new.created.contains(account)
                && !old.created.contains(account)
                && !old.grants.contains_key(account);
            // Pods with an account that other pods had gain nothing. A token is for anyone who reads the Secret.
            let is_used = before.is_none() && holder.kind != "Secret" && used.contains(account);
            !is_new && !is_used && !before.is_some_and(|before| before.contains(account))
        };
        if accounts.iter().any(is_other) {
            let (held, gained) = (old.of_accounts(before.unwrap_or(&none)), new.of_accounts(accounts));
            counted(&mut count, held.len() + gained.len())?;
            moved.push((holder.clone(), held, gained));
        }
    }
    Ok(moved)
}

/// Permissions of `grants` that `others` do not cover, joined to rules. `kept` are the permissions that remain.
fn beyond(grants: &BTreeSet<Grant>, others: &BTreeSet<Grant>, kept: &BTreeSet<Grant>) -> Vec<Permission> {
    let more: BTreeSet<Grant> =
        grants.iter().filter(|grant| !grant.is_covered(others, |_| true)).cloned().collect();
    let is_widest = |grant: &&Grant| !grant.is_covered(&more, |wider| wider != *grant);
    joined(more.iter().filter(is_widest), kept)
}

impl Grant {
    /// `true` if one of `others` that passes `filter` covers this permission.
    fn is_covered(&self, others: &BTreeSet<Self>, filter: impl Fn(&Self) -> bool) -> bool {
        let GrantedAccess::Selected(own) = &self.what else {
            return self.generalizations().any(|wider| filter(&wider) && others.contains(&wider));
        };
        others.iter().any(|other| match &other.what {
            GrantedAccess::Selected(wider) => {
                let is_there = other.namespace.is_none() || other.namespace == self.namespace;
                is_there && wider.cover(own) && filter(other)
            }
            _ => false,
        })
    }

    /// This permission and all that cover it.
    fn generalizations(&self) -> impl Iterator<Item = Self> {
        let everywhere = self.namespace.as_ref().map(|_| None);
        let namespaces = std::iter::once(self.namespace.clone()).chain(everywhere);
        let whats = self.what.generalizations();
        namespaces.flat_map(move |namespace| {
            whats.clone().into_iter().map(move |what| Self { namespace: namespace.clone(), what })
        })
    }
}

impl GrantedAccess {
    fn generalizations(&self) -> Vec<Self> {
        match self {
            Self::Role(_) | Self::Selected(_) | Self::Privilege { .. } => vec![self.clone()],
            Self::Right(Right::Url { path, .. }) if path.len() > MAX_URL => vec![self.clone()],
            Self::Right(Right::Url { path, verb }) => {
                let ends = path.char_indices().map(|(at, _)| at).chain([path.len()]);
                let mut paths: Vec<String> = ends.map(|end| format!("{}*", &path[..end])).collect();
                paths.push(path.clone());
                let of_path = |path: String| {
                    let verbs = either(verb, "*").into_iter();
                    verbs.map(move |verb| Self::Right(Right::Url { path: path.clone(), verb }))
                };
                paths.into_iter().flat_map(of_path).collect()
            }
            Self::Right(Right::Resource { group, resource, name, verb }) => {
                let mut resources = either(resource, "*");
                resources.extend(resource.split_once('/').map(|(_, part)| format!("*/{part}")));
                let names = if name.is_some() { vec![name.clone(), None] } else { vec![None] };
                let mut all = Vec::new();
                for group in either(group, "*") {
                    for resource in &resources {
                        for name in &names {
                            for verb in either(verb, "*") {
                                let (group, resource, name) = (group.clone(), resource.clone(), name.clone());
                                all.push(Self::Right(Right::Resource { group, resource, name, verb }));
                            }
                        }
                    }
                }
                all
            }
        }
    }
}

impl GrantedAccess {
    /// [`Permission::role`].
    fn role(&self) -> Option<String> {
        match self {
            Self::Role(role) => Some(role.clone()),
            Self::Selected(requirements) => Some(requirements.to_string()),
            Self::Right(_) | Self::Privilege { .. } => None,
        }
    }
}

fn either(own: &str, wildcard: &str) -> Vec<String> {
    if own == wildcard { vec![own.to_owned()] } else { vec![own.to_owned(), wildcard.to_owned()] }
}

/// Verbs that `others` name explicitly where `grant` allows `*`.
fn kept_verbs<'a>(grant: &Grant, others: &'a BTreeSet<Grant>) -> Vec<&'a str> {
    let GrantedAccess::Right(Right::Resource { group, resource, name, verb }) = &grant.what else {
        return Vec::new();
    };
    if verb != "*" {
        return Vec::new();
    }
    let named = |verb: &str| {
        let (group, resource, name) = (group.clone(), resource.clone(), name.clone());
        let right = Right::Resource { group, resource, name, verb: verb.to_owned() };
        Grant { namespace: grant.namespace.clone(), what: GrantedAccess::Right(right) }
    };
    // In the order of permissions, those that differ only in their verb are neighbors.
    let kept = others.range(named("")..).map_while(|other| match &other.what {
        GrantedAccess::Right(Right::Resource { verb, .. }) if *other == named(verb) => Some(verb.as_str()),
        _ => None,
    });
    kept.collect()
}

/// Namespaces in which `others` allow what `grant` allows in the whole cluster.
fn kept_namespaces<'a>(
    grant: &Grant,
    others: &BTreeSet<Grant>,
    namespaces: &BTreeSet<&'a str>,
) -> BTreeSet<&'a str> {
    let is_kept = |namespace: &&&str| {
        let there = Grant { namespace: Some((**namespace).to_owned()), what: grant.what.clone() };
        grant.namespace.is_none() && others.contains(&there)
    };
    namespaces.iter().filter(is_kept).copied().collect()
}

/// Joins single permissions to rules: first by verb, then those with the same verbs. `others` are the remaining
/// permissions.
fn joined<'a>(grants: impl Iterator<Item = &'a Grant>, others: &BTreeSet<Grant>) -> Vec<Permission> {
    /// Namespace, group, resource name, and the namespaces that keep the permission.
    type Key<'a> = (Option<&'a str>, &'a str, Option<&'a str>, BTreeSet<&'a str>);
    type Verbs<'a> = (BTreeSet<&'a str>, BTreeSet<&'a str>);
    let namespaces = others.iter().filter_map(|other| other.namespace.as_deref());
    let namespaces: BTreeSet<&str> = namespaces.collect::<BTreeSet<_>>().into_iter().take(MAX_KEPT).collect();
    let mut permissions = Vec::new();
    let mut resources: BTreeMap<(Key<'_>, &str), Verbs<'_>> = BTreeMap::new();
    let mut urls: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for grant in grants {
        let namespace = grant.namespace.as_deref();
        match &grant.what {
            GrantedAccess::Role(_) | GrantedAccess::Selected(_) => permissions.push(Permission {
                namespace: namespace.map(str::to_owned),
                role: grant.what.role(),
                ..Permission::default()
            }),
            GrantedAccess::Privilege { text, .. } => {
                permissions.push(Permission { privilege: Some(text.clone()), ..Permission::default() });
            }
            GrantedAccess::Right(Right::Url { path, verb }) => {
                urls.entry(path).or_default().insert(verb);
            }
            GrantedAccess::Right(Right::Resource { group, resource, name, verb }) => {
                let still = kept_namespaces(grant, others, &namespaces);
                let entry =
                    resources.entry(((namespace, group, name.as_deref(), still), resource)).or_default();
                entry.0.insert(verb);
                entry.1.extend(kept_verbs(grant, others));
            }
        }
    }
    let mut rules: BTreeMap<(Key<'_>, Verbs<'_>), BTreeSet<&str>> = BTreeMap::new();
    for ((key, resource), verbs) in resources {
        rules.entry((key, verbs)).or_default().insert(resource);
    }
    let owned = |texts: BTreeSet<&str>| texts.into_iter().map(str::to_owned).collect::<Vec<_>>();
    permissions.extend(rules.into_iter().map(
        |(((namespace, group, name, still), (verbs, kept)), resources)| Permission {
            namespace: namespace.map(str::to_owned),
            api_group: Some(group.to_owned()),
            resources: owned(resources),
            resource_names: name.map(str::to_owned).into_iter().collect(),
            verbs: owned(verbs),
            kept: owned(kept),
            kept_in: owned(still),
            ..Permission::default()
        },
    ));
    permissions.extend(urls.into_iter().map(|(path, verbs)| Permission {
        urls: vec![path.to_owned()],
        verbs: owned(verbs),
        ..Permission::default()
    }));
    permissions
}

#[cfg(test)]
#[path = "permissions_tests.rs"]
mod tests;
