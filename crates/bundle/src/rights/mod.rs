//! Permissions that a service account needs to install, update and delete the objects of a bundle
//! (docs/design/operations.md#hardened-rights P-06, docs/design/additions.md#service-account-impersonation).
//!
//! The account needs access to the objects themselves, everything that their roles grant (the API server prevents
//! privilege escalation), and `bind` on roles that the bundle binds but does not contain. Permissions of the operator
//! itself are in the roles of the bundle. This module does not contact a cluster.

mod rule;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub use rule::{RbacRule, Right};

use crate::bundle::group_of;
use crate::kinds::is_cluster_scoped;
use crate::pointer::{list, text};

const RBAC: &str = "rbac.authorization.k8s.io";
/// Verbs needed for an existing object.
const KEEP: [&str; 3] = ["delete", "get", "patch"];

/// Rules by namespace. `None` is the whole cluster.
pub type Scoped = BTreeMap<Option<String>, BTreeSet<RbacRule>>;

/// Permissions needed to install objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rights {
    /// Access to the objects, and `bind` on roles that are not among them.
    pub objects: Scoped,
    /// Everything that the roles among the objects grant.
    pub granted: Scoped,
    /// Replaces `granted`: the verbs `escalate` and `bind` on the same roles.
    pub escalation: Scoped,
}

impl Rights {
    /// Permissions needed for the rendered `objects`.
    pub fn of(objects: &[Value]) -> Self {
        let mut rights = Self { objects: kept(objects), ..Self::default() };
        let own: BTreeSet<_> = objects.iter().filter(|object| is_role(object)).map(identity).collect();
        for object in objects {
            match text(object, "/kind") {
                "Role" | "ClusterRole" if is_rbac(object) => rights.add_role(object),
                "RoleBinding" | "ClusterRoleBinding" if is_rbac(object) => rights.add_binding(object, &own),
                _ => {}
            }
        }
        rights
    }

    /// Least privilege: all permissions without `escalate`, and without `bind` on roles of the bundle.
    pub fn exact(&self) -> Scoped {
        union(&self.objects, &self.granted)
    }

    /// All permissions, with `escalate` and `bind` instead of those that the roles grant. Fewer rules, which also
    /// suffice for later versions, but their holder can obtain any permission.
    pub fn escalating(&self) -> Scoped {
        union(&self.objects, &self.escalation)
    }

    fn add_role(&mut self, role: &Value) {
        let (kind, namespace, name) = identity(role);
        let scope = scope(kind, namespace);
        let rules = list(role, "/rules").iter().map(RbacRule::of);
        self.granted.entry(scope.clone()).or_default().extend(rules);
        if role.pointer("/aggregationRule").is_some_and(|rule| !rule.is_null()) {
            // Aggregation may add any rule.
            self.granted.entry(scope.clone()).or_default().extend(RbacRule::everything());
        }
        // Without a resource name: the API server checks `escalate` on create, before the object has a name.
        let escalate = RbacRule::on(RBAC, plural(kind), &["escalate"]);
        let bind = RbacRule::on(RBAC, plural(kind), &["bind"]).named(name);
        self.escalation.entry(scope).or_default().extend([escalate, bind]);
    }

    fn add_binding(&mut self, binding: &Value, own: &BTreeSet<(&str, &str, &str)>) {
        let (kind, namespace, _) = identity(binding);
        let (role, name) = (text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
        let scope = scope(kind, namespace);
        let of = if role == "Role" { namespace } else { "" };
        let bind = RbacRule::on(RBAC, plural(role), &["bind"]).named(name);
        if own.contains(&(role, of, name)) {
            self.escalation.entry(scope).or_default().insert(bind);
        } else {
            self.objects.entry(scope).or_default().insert(bind);
        }
    }
}

/// Access to the objects themselves.
fn kept(objects: &[Value]) -> Scoped {
    let mut created: BTreeMap<(Option<String>, String), BTreeSet<String>> = BTreeMap::new();
    let mut named: BTreeMap<(Option<String>, String, String), BTreeSet<String>> = BTreeMap::new();
    for object in objects {
        let (kind, namespace, name) = identity(object);
        let (scope, group, resource) = (scope(kind, namespace), group_of(object).to_owned(), plural(kind));
        created.entry((scope.clone(), group.clone())).or_default().insert(resource.clone());
        named.entry((scope, group, resource)).or_default().insert(name.to_owned());
    }
    let mut rules = Scoped::new();
    for ((scope, group), resources) in created {
        let rule = RbacRule { resources, ..RbacRule::on(&group, String::new(), &["create"]) };
        rules.entry(scope).or_default().insert(rule);
    }
    for ((scope, group, resource), resource_names) in named {
        let rule = RbacRule { resource_names, ..RbacRule::on(&group, resource, &KEEP) };
        rules.entry(scope).or_default().insert(rule);
    }
    // Objects have their revision as an owner with `blockOwnerDeletion`. The admission plugin
    // OwnerReferencesPermissionEnforcement requires this permission.
    let finalizers =
        RbacRule::on("olm.operatorframework.io", "clusterobjectsets/finalizers".to_owned(), &["update"]);
    rules.entry(None).or_default().insert(finalizers);
    rules
}

/// Union without rules that other rules include.
fn union(one: &Scoped, other: &Scoped) -> Scoped {
    let mut all = one.clone();
    for (scope, rules) in other {
        all.entry(scope.clone()).or_default().extend(rules.iter().cloned());
    }
    let everywhere = all.get(&None).cloned().unwrap_or_default();
    for (scope, rules) in &mut all {
        let before = rules.clone();
        rules.retain(|rule| {
            // Of two equivalent rules, one is kept.
            let wider = |other: &RbacRule| {
                other != rule && other.includes(rule) && (other < rule || !rule.includes(other))
            };
            let is_elsewhere = scope.is_some() && everywhere.iter().any(|other| other.includes(rule));
            !is_elsewhere && !before.iter().any(wider)
        });
    }
    all.retain(|_, rules| !rules.is_empty());
    all
}

/// Resource of a kind by the naming convention of Kubernetes, which all kinds in bundles follow.
fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.chars().last() {
        Some('s') => format!("{kind}es"),
        Some('y') => format!("{}ies", &kind[..kind.len() - 1]),
        _ => format!("{kind}s"),
    }
}

fn scope(kind: &str, namespace: &str) -> Option<String> {
    (!is_cluster_scoped(kind) && !namespace.is_empty()).then(|| namespace.to_owned())
}

/// Kind, namespace and name. The namespace of cluster-scoped objects is empty.
fn identity(object: &Value) -> (&str, &str, &str) {
    let kind = text(object, "/kind");
    let namespace = if is_cluster_scoped(kind) { "" } else { text(object, "/metadata/namespace") };
    (kind, namespace, text(object, "/metadata/name"))
}

fn is_role(object: &Value) -> bool {
    is_rbac(object) && matches!(text(object, "/kind"), "Role" | "ClusterRole")
}

fn is_rbac(object: &Value) -> bool {
    group_of(object) == RBAC
}

#[cfg(test)]
mod tests;
