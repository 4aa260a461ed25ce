//! Permission differences: permissions that subjects gain or lose when RBAC objects replace others.
//!
//! Pure. A role that is in neither list is one permission, identified by its name.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::{list, text};
use serde::Serialize;
use serde_json::Value;

use crate::aggregation::aggregated;

/// Largest number of single permissions in one list of objects. Real bundles have some thousands.
const MAX_GRANTS: usize = 200_000;
/// Longest URL that is matched against wildcards.
const MAX_URL: usize = 1024;
/// Largest number of namespaces that are listed as still having a permission.
const MAX_KEPT: usize = 100;
const RBAC: &str = "rbac.authorization.k8s.io";
/// Prefix of the labels that aggregate a ClusterRole into another.
const AGGREGATION: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// Holder of permissions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Subject {
    /// `ServiceAccount`, `User` or `Group`. `ClusterRole` stands for all its subjects.
    pub kind: String,
    /// Namespace of a service account, else empty.
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
    /// All permissions of a role that is not in the list, as `<Kind> <name>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// API group of the resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Resources, `*` for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Names of the only objects that the permission covers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// URLs that are no resources.
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

/// Error for more permissions than any real role grants. Nothing is compared then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("permissions are not compared: the roles have more than {MAX_GRANTS} single permissions")]
pub struct TooMany;

/// Single permission.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    /// `None` for the whole cluster.
    namespace: Option<String>,
    what: GrantedAccess,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum GrantedAccess {
    Resource { group: String, resource: String, name: Option<String>, verb: String },
    Url { path: String, verb: String },
    Role(String),
}

type Grants = BTreeMap<Subject, BTreeSet<Grant>>;

/// Gained and lost permissions by subject when `new` replaces `old`. A permission that a wildcard covered before is
/// not gained.
///
/// # Errors
/// See [`TooMany`].
pub fn changes(old: &[Value], new: &[Value]) -> Result<Vec<SubjectChange>, TooMany> {
    let (old, new) = (grants(old)?, grants(new)?);
    let none = BTreeSet::new();
    let mut changes = Vec::new();
    for subject in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        let (old, new) = (old.get(subject).unwrap_or(&none), new.get(subject).unwrap_or(&none));
        let (gained, lost) = (beyond(new, old, &none), beyond(old, new, new));
        if !gained.is_empty() || !lost.is_empty() {
            changes.push(SubjectChange { subject: subject.clone(), gained, lost });
        }
    }
    Ok(changes)
}

/// Permissions of `grants` that `others` do not cover, joined to rules. `kept` are the permissions that remain.
fn beyond(grants: &BTreeSet<Grant>, others: &BTreeSet<Grant>, kept: &BTreeSet<Grant>) -> Vec<Permission> {
    let more: BTreeSet<Grant> = grants
        .iter()
        .filter(|grant| !grant.generalizations().any(|wider| others.contains(&wider)))
        .cloned()
        .collect();
    let is_widest =
        |grant: &&Grant| !grant.generalizations().any(|wider| wider != **grant && more.contains(&wider));
    joined(more.iter().filter(is_widest), kept)
}

impl Grant {
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
            Self::Role(_) => vec![self.clone()],
            Self::Url { path, .. } if path.len() > MAX_URL => vec![self.clone()],
            Self::Url { path, verb } => {
                let ends = path.char_indices().map(|(at, _)| at).chain([path.len()]);
                let mut paths: Vec<String> = ends.map(|end| format!("{}*", &path[..end])).collect();
                paths.push(path.clone());
                let of_path = |path: String| {
                    either(verb, "*").into_iter().map(move |verb| Self::Url { path: path.clone(), verb })
                };
                paths.into_iter().flat_map(of_path).collect()
            }
            Self::Resource { group, resource, name, verb } => {
                let mut resources = either(resource, "*");
                resources.extend(resource.split_once('/').map(|(_, part)| format!("*/{part}")));
                let names = if name.is_some() { vec![name.clone(), None] } else { vec![None] };
                let mut all = Vec::new();
                for group in either(group, "*") {
                    for resource in &resources {
                        for name in &names {
                            for verb in either(verb, "*") {
                                let (group, resource, name) = (group.clone(), resource.clone(), name.clone());
                                all.push(Self::Resource { group, resource, name, verb });
                            }
                        }
                    }
                }
                all
            }
        }
    }
}

fn either(own: &str, wildcard: &str) -> Vec<String> {
    if own == wildcard { vec![own.to_owned()] } else { vec![own.to_owned(), wildcard.to_owned()] }
}

/// Permissions of roles, by kind, namespace and name.
type Roles<'a> = BTreeMap<(&'a str, &'a str, &'a str), Vec<GrantedAccess>>;

/// Permissions that these objects grant, by subject.
fn grants(objects: &[Value]) -> Result<Grants, TooMany> {
    let rbac = |object: &&Value| text(object, "/apiVersion").split('/').next() == Some(RBAC);
    let objects: Vec<&Value> = objects.iter().filter(rbac).collect();
    let mut count = 0;
    let roles = roles(&objects, &mut count)?;
    let mut grants = Grants::new();
    for object in objects {
        let (kind, name, own) =
            (text(object, "/kind"), text(object, "/metadata/name"), text(object, "/metadata/namespace"));
        let namespace = match kind {
            "ClusterRole" => {
                let whats = roles.get(&(kind, "", name)).map_or(&[][..], Vec::as_slice);
                for aggregating in aggregating(object) {
                    let kind = kind.to_owned();
                    let subject = Subject { kind, namespace: String::new(), name: aggregating.to_owned() };
                    add(&mut grants, subject, None, whats, &mut count)?;
                }
                continue;
            }
            "RoleBinding" => Some(own),
            "ClusterRoleBinding" => None,
            _ => continue,
        };
        let (kind, name) = (text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
        let of = if kind == "Role" { namespace.unwrap_or_default() } else { "" };
        let unknown = [GrantedAccess::Role(format!("{kind} {name}"))];
        let whats = roles.get(&(kind, of, name)).map_or(unknown.as_slice(), Vec::as_slice);
        for subject in list(object, "/subjects") {
            let part = |field: &str| text(subject, field).to_owned();
            let subject = Subject { kind: part("/kind"), namespace: part("/namespace"), name: part("/name") };
            add(&mut grants, subject, namespace, whats, &mut count)?;
        }
    }
    Ok(grants)
}

fn roles<'a>(objects: &[&'a Value], count: &mut usize) -> Result<Roles<'a>, TooMany> {
    let mut roles = Roles::new();
    let mut cluster_roles = BTreeMap::new();
    for &object in objects {
        let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
        let namespace = match kind {
            "Role" => text(object, "/metadata/namespace"),
            "ClusterRole" => {
                cluster_roles.insert(name, object);
                ""
            }
            _ => continue,
        };
        roles.insert((kind, namespace, name), rules(object, count)?);
    }
    for (name, sources) in aggregated(&cluster_roles, count)? {
        let mut whats = Vec::new();
        for source in sources {
            let more = roles.get(&("ClusterRole", "", source)).map_or(&[][..], Vec::as_slice);
            counted(count, more.len())?;
            whats.extend_from_slice(more);
        }
        roles.insert(("ClusterRole", "", name), whats);
    }
    Ok(roles)
}

fn add(
    grants: &mut Grants,
    subject: Subject,
    namespace: Option<&str>,
    whats: &[GrantedAccess],
    count: &mut usize,
) -> Result<(), TooMany> {
    counted(count, whats.len())?;
    // URLs have no namespace, so a RoleBinding does not grant them.
    let holds = |what: &&GrantedAccess| namespace.is_none() || !matches!(what, GrantedAccess::Url { .. });
    let grant = |what: &GrantedAccess| Grant { namespace: namespace.map(str::to_owned), what: what.clone() };
    grants.entry(subject).or_default().extend(whats.iter().filter(holds).map(grant));
    Ok(())
}

/// Adds `more` to the number of processed permissions.
///
/// # Errors
/// See [`TooMany`].
pub(crate) fn counted(count: &mut usize, more: usize) -> Result<(), TooMany> {
    *count = count.saturating_add(more);
    if *count > MAX_GRANTS { Err(TooMany) } else { Ok(()) }
}

/// ClusterRoles that aggregate this one by its labels.
fn aggregating(role: &Value) -> impl Iterator<Item = &str> {
    let labels = role.pointer("/metadata/labels").and_then(Value::as_object);
    let set = labels.into_iter().flatten().filter(|(_, value)| *value == "true");
    set.filter_map(|(key, _)| key.strip_prefix(AGGREGATION))
}

/// Single permissions of a role.
fn rules(role: &Value, count: &mut usize) -> Result<Vec<GrantedAccess>, TooMany> {
    let mut whats = Vec::new();
    for rule in list(role, "/rules") {
        let texts = |field: &str| list(rule, field).iter().filter_map(Value::as_str).collect::<Vec<_>>();
        let (groups, resources, verbs) = (texts("/apiGroups"), texts("/resources"), texts("/verbs"));
        let (names, urls) = (texts("/resourceNames"), texts("/nonResourceURLs"));
        let product = [&groups, &resources, &verbs].into_iter().map(|list| list.len());
        let product = product.fold(names.len().max(1), usize::saturating_mul);
        counted(count, product.saturating_add(urls.len().saturating_mul(verbs.len())))?;
        let names: Vec<Option<&str>> =
            if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
        for verb in verbs {
            let verb = || verb.to_owned();
            whats.extend(urls.iter().map(|&path| GrantedAccess::Url { path: path.to_owned(), verb: verb() }));
            for &group in &groups {
                for &resource in &resources {
                    whats.extend(names.iter().map(|name| GrantedAccess::Resource {
                        group: group.to_owned(),
                        resource: resource.to_owned(),
                        name: name.map(str::to_owned),
                        verb: verb(),
                    }));
                }
            }
        }
    }
    Ok(whats)
}

/// Verbs that `others` name explicitly where `grant` allows `*`.
fn kept_verbs<'a>(grant: &Grant, others: &'a BTreeSet<Grant>) -> Vec<&'a str> {
    let GrantedAccess::Resource { group, resource, name, verb } = &grant.what else { return Vec::new() };
    if verb != "*" {
        return Vec::new();
    }
    let named = |verb: &str| {
        let (group, resource, name) = (group.clone(), resource.clone(), name.clone());
        let what = GrantedAccess::Resource { group, resource, name, verb: verb.to_owned() };
        Grant { namespace: grant.namespace.clone(), what }
    };
    // In the order of permissions, those that differ only in their verb are neighbors.
    let kept = others.range(named("")..).map_while(|other| match &other.what {
        GrantedAccess::Resource { verb, .. } if *other == named(verb) => Some(verb.as_str()),
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
            GrantedAccess::Role(role) => permissions.push(Permission {
                namespace: namespace.map(str::to_owned),
                role: Some(role.clone()),
                ..Permission::default()
            }),
            GrantedAccess::Url { path, verb } => {
                urls.entry(path).or_default().insert(verb);
            }
            GrantedAccess::Resource { group, resource, name, verb } => {
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
