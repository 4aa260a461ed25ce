//! Permissions that a list of objects grants, and what holds them.
//!
//! Pure. Subjects, roles, and pods with their service accounts and privileges.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::{list, text};
use olm_bundle::rights::{RbacRule, Right};
use serde_json::Value;

use crate::aggregation::aggregated;
use crate::permissions::{Grant, GrantedAccess, MAX_GRANTS, Subject, TooMany};
use crate::privileges::{Accounts, accounts, privileges};
use crate::sentence::word;

const RBAC: &str = "rbac.authorization.k8s.io";
/// Start of the name of labels that aggregate a ClusterRole into another, such as
/// `rbac.authorization.k8s.io/aggregate-to-admin`.
const AGGREGATION: &str = "aggregate-to-";
/// ClusterRole of operator-controller in `hardened.yaml`, and the last part of its label.
const CONTENT_ROLE: (&str, &str) = ("operator-controller-content-role", "operator-controller");

type Grants = BTreeMap<Subject, BTreeSet<Grant>>;

/// Permissions of roles, by kind, namespace and name.
type Roles<'a> = BTreeMap<(&'a str, &'a str, &'a str), Vec<GrantedAccess>>;

/// Permissions of a list of objects, and what holds them.
#[derive(Default)]
pub(crate) struct Holders {
    /// Permissions by subject. A role stands for its subjects.
    pub(crate) grants: Grants,
    /// Roles of the list. `true` if an object of the list binds or aggregates it.
    pub(crate) bound: BTreeMap<Subject, bool>,
    /// Service accounts of the list.
    pub(crate) created: BTreeSet<Subject>,
    /// Service accounts of pods and token Secrets.
    pub(crate) accounts: Accounts,
    /// Keys of the other labels of ClusterRoles with value `true`, as selectors of aggregated ClusterRoles have them.
    pub(crate) labels: BTreeMap<Subject, BTreeSet<String>>,
}

impl Holders {
    /// Holders of these objects.
    ///
    /// # Errors
    /// See [`TooMany`].
    pub(crate) fn of(objects: &[Value]) -> Result<Self, TooMany> {
        let mut count = 0;
        let mut holders = Self { accounts: accounts(objects, &mut count)?, ..Self::default() };
        for object in objects {
            if (text(object, "/apiVersion"), text(object, "/kind")) == ("v1", "ServiceAccount") {
                let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
                holders.created.insert(subject("ServiceAccount", namespace, name));
            }
            let (holder, privileges) = privileges(object, &mut count)?;
            if !privileges.is_empty() {
                add(&mut holders.grants, holder, None, &privileges, &mut count)?;
            }
        }
        let rbac = |object: &&Value| text(object, "/apiVersion").split('/').next() == Some(RBAC);
        let objects: Vec<&Value> = objects.iter().filter(rbac).collect();
        let (roles, aggregated) = roles(&objects, &mut count)?;
        for ((kind, namespace, name), whats) in &roles {
            let role = subject(kind, namespace, name);
            let place = (*kind == "Role").then_some(*namespace);
            let is_aggregated = *kind == "ClusterRole" && aggregated.contains(name);
            holders.bound.insert(role.clone(), is_aggregated);
            add(&mut holders.grants, role, place, whats, &mut count)?;
        }
        for object in objects {
            holders.add_object(object, &roles, &mut count)?;
        }
        Ok(holders)
    }

    /// Adds what an aggregation label or a binding grants.
    fn add_object(&mut self, object: &Value, roles: &Roles<'_>, count: &mut usize) -> Result<(), TooMany> {
        let (kind, name, own) =
            (text(object, "/kind"), text(object, "/metadata/name"), text(object, "/metadata/namespace"));
        let namespace = match kind {
            "ClusterRole" => {
                let whats = roles.get(&(kind, "", name)).map_or(&[][..], Vec::as_slice);
                self.labels.insert(subject(kind, "", name), marks(object));
                for aggregating in aggregating(object) {
                    self.bound.insert(subject(kind, "", name), true);
                    add(&mut self.grants, subject(kind, "", aggregating), None, whats, count)?;
                }
                return Ok(());
            }
            "RoleBinding" => Some(own),
            "ClusterRoleBinding" => None,
            _ => return Ok(()),
        };
        let (kind, name) = (text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
        let of = if kind == "Role" { namespace.unwrap_or_default() } else { "" };
        if let Some(is_bound) = self.bound.get_mut(&subject(kind, of, name)) {
            *is_bound = true;
        }
        let unknown = [GrantedAccess::Role(format!("{} {}", word(kind), word(name)))];
        let whats = roles.get(&(kind, of, name)).map_or(unknown.as_slice(), Vec::as_slice);
        for one in list(object, "/subjects") {
            let subject = subject(text(one, "/kind"), text(one, "/namespace"), text(one, "/name"));
            add(&mut self.grants, subject, namespace, whats, count)?;
        }
        Ok(())
    }

    /// Adds what ClusterRoles outside of the list gain if they select labels that the ClusterRoles did not have `before`.
    ///
    /// # Errors
    /// See [`TooMany`].
    pub(crate) fn add_selected(&mut self, before: &Self) -> Result<(), TooMany> {
        let (mut count, none) = (0, BTreeSet::new());
        for (role, labels) in &self.labels {
            let had = before.labels.get(role).unwrap_or(&none);
            let whats = self.grants.get(role).cloned().unwrap_or_default();
            for label in labels.difference(had) {
                counted(&mut count, whats.len())?;
                let selecting = subject("ClusterRole", "", &format!("that selects {label}"));
                self.grants.entry(selecting).or_default().extend(whats.iter().cloned());
            }
        }
        Ok(())
    }

    /// Reports whether the subject is a role of the list.
    pub(crate) fn has_role(&self, subject: &Subject) -> bool {
        self.bound.contains_key(subject)
    }

    /// Permissions of service accounts. Those of one that is not in the list are unknown.
    pub(crate) fn of_accounts(&self, accounts: &BTreeSet<Subject>) -> BTreeSet<Grant> {
        let known = accounts.iter().filter_map(|account| self.grants.get(account)).flatten().cloned();
        let unknown = accounts.iter().filter(|account| !self.created.contains(account));
        let whole =
            |account: &Subject| Grant { namespace: None, what: GrantedAccess::Role(account.to_string()) };
        known.chain(unknown.map(whole)).collect()
    }
}

pub(crate) fn subject(kind: &str, namespace: &str, name: &str) -> Subject {
    Subject { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
}

/// Roles, and the names of those that another one aggregates.
fn roles<'a>(objects: &[&'a Value], count: &mut usize) -> Result<(Roles<'a>, BTreeSet<&'a str>), TooMany> {
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
    let (mut plain, mut all_aggregated) = (Roles::new(), BTreeSet::new());
    for (name, aggregated) in aggregated(&cluster_roles, count)? {
        let mut whats: Vec<_> = aggregated.selectors.into_iter().map(GrantedAccess::Selected).collect();
        for source in aggregated.roles {
            let more = roles.get(&("ClusterRole", "", source)).map_or(&[][..], Vec::as_slice);
            counted(count, more.len())?;
            whats.extend_from_slice(more);
            all_aggregated.extend((source != name).then_some(source));
        }
        plain.insert(("ClusterRole", "", name), whats);
    }
    roles.extend(plain);
    Ok((roles, all_aggregated))
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
    let holds = |what: &&GrantedAccess| {
        namespace.is_none() || !matches!(what, GrantedAccess::Right(Right::Url { .. }))
    };
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
    let names = set.filter_map(|(key, _)| key.rsplit('/').next()?.strip_prefix(AGGREGATION));
    names.map(|name| if name == CONTENT_ROLE.1 { CONTENT_ROLE.0 } else { name })
}

/// Keys of labels with value `true` that are not names of an aggregating ClusterRole.
fn marks(role: &Value) -> BTreeSet<String> {
    let labels = role.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    let is_name = |key: &str| key.rsplit('/').next().is_some_and(|name| name.starts_with(AGGREGATION));
    let marks = labels.filter(|(key, value)| *value == "true" && !is_name(key));
    marks.map(|(key, _)| key.clone()).collect()
}

/// Single permissions of a role.
fn rules(role: &Value, count: &mut usize) -> Result<Vec<GrantedAccess>, TooMany> {
    let mut whats = Vec::new();
    for rule in list(role, "/rules").iter().map(RbacRule::of) {
        let lists = [&rule.api_groups, &rule.resources, &rule.verbs].into_iter().map(BTreeSet::len);
        let product = lists.fold(rule.resource_names.len().max(1), usize::saturating_mul);
        let urls = rule.non_resource_urls.len().saturating_mul(rule.verbs.len());
        counted(count, product.saturating_add(urls))?;
        whats.extend(rule.rights().map(GrantedAccess::Right));
    }
    Ok(whats)
}
