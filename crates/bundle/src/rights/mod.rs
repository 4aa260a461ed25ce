//! What an account must be allowed to do to install the objects of a bundle, keep them, and remove them
//! (docs/design/operations.md#hardened-rights P-06, docs/design/additions.md#service-account-impersonation).
//!
//! Three sorts of rights: what is done with the objects themselves; what their roles grant, since the API server lets
//! nobody grant what they do not hold; and `bind` for roles that the bundle binds and does not bring along. Rights of the
//! operator itself are in the bundle's own roles. Nothing here asks a cluster what anybody may do.

mod rule;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub use rule::{Right, Rule};

use crate::objects::is_cluster_scoped;
use crate::pointer::{list, text};

const RBAC: &str = "rbac.authorization.k8s.io";
/// What is done with an object that exists.
const KEEP: [&str; 3] = ["delete", "get", "patch"];

/// Rules by the namespace in which they have to hold; `None` is the whole cluster.
pub type Scoped = BTreeMap<Option<String>, BTreeSet<Rule>>;

/// What an account needs to install objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rights {
    /// To make, read, change and delete the objects, and to bind roles that are not among them.
    pub objects: Scoped,
    /// What the roles among them grant.
    pub granted: Scoped,
    /// Spares `granted`: the verbs `escalate` and `bind` for the same roles.
    pub instead: Scoped,
}

impl Rights {
    /// What the rendered `objects` need.
    pub fn of(objects: &[Value]) -> Self {
        let mut rights = Self { objects: kept(objects), ..Self::default() };
        let own: BTreeSet<_> = objects.iter().filter(|object| is_role(object)).map(identity).collect();
        for object in objects {
            if is_role(object) {
                rights.add_role(object);
            } else if is_binding(object) {
                rights.add_binding(object, &own);
            }
        }
        rights
    }

    /// All rights without `escalate` or `bind` where the roles are the bundle's own: the least that will do.
    pub fn exact(&self) -> Scoped {
        union(&self.objects, &self.granted)
    }

    /// All rights, with `escalate` and `bind` instead of what the roles grant: fewer rules, which hold for later versions
    /// too, but whoever has them can take any right.
    pub fn escalating(&self) -> Scoped {
        union(&self.objects, &self.instead)
    }

    fn add_role(&mut self, role: &Value) {
        let (kind, namespace, name) = identity(role);
        let scope = scope(kind, namespace);
        let rules = list(role, "/rules").iter().map(Rule::of);
        self.granted.entry(scope.clone()).or_default().extend(rules);
        if role.pointer("/aggregationRule").is_some_and(|rule| !rule.is_null()) {
            // It may come to hold anything.
            self.granted.entry(scope.clone()).or_default().extend(Rule::everything());
        }
        // A name would not do: what is being created has none yet when this right is asked for.
        let escalate = Rule::on(RBAC, plural(kind), &["escalate"]);
        let bind = Rule::on(RBAC, plural(kind), &["bind"]).named(name);
        self.instead.entry(scope).or_default().extend([escalate, bind]);
    }

    fn add_binding(&mut self, binding: &Value, own: &BTreeSet<(&str, &str, &str)>) {
        let (kind, namespace, _) = identity(binding);
        let (role, name) = (text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
        let scope = scope(kind, namespace);
        let of = if role == "Role" { namespace } else { "" };
        let bind = Rule::on(RBAC, plural(role), &["bind"]).named(name);
        if own.contains(&(role, of, name)) {
            self.instead.entry(scope).or_default().insert(bind);
        } else {
            self.objects.entry(scope).or_default().insert(bind);
        }
    }
}

/// What is done with the objects themselves.
fn kept(objects: &[Value]) -> Scoped {
    let mut created: BTreeMap<(Option<String>, String), BTreeSet<String>> = BTreeMap::new();
    let mut named: BTreeMap<(Option<String>, String, String), BTreeSet<String>> = BTreeMap::new();
    for object in objects {
        let (kind, namespace, name) = identity(object);
        let group = text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
        let (scope, group, resource) = (scope(kind, namespace), group.to_owned(), plural(kind));
        created.entry((scope.clone(), group.clone())).or_default().insert(resource.clone());
        named.entry((scope, group, resource)).or_default().insert(name.to_owned());
    }
    let mut rules = Scoped::new();
    for ((scope, group), resources) in created {
        let rule = Rule { resources, ..Rule::on(&group, String::new(), &["create"]) };
        rules.entry(scope).or_default().insert(rule);
    }
    for ((scope, group, resource), resource_names) in named {
        let rule = Rule { resource_names, ..Rule::on(&group, resource, &KEEP) };
        rules.entry(scope).or_default().insert(rule);
    }
    // Objects name their revision as an owner that waits for them; whether they may is asked where
    // OwnerReferencesPermissionEnforcement is on.
    let finalizers =
        Rule::on("olm.operatorframework.io", "clusterobjectsets/finalizers".to_owned(), &["update"]);
    rules.entry(None).or_default().insert(finalizers);
    rules
}

/// Both, without rules that others include.
fn union(one: &Scoped, other: &Scoped) -> Scoped {
    let mut all = one.clone();
    for (scope, rules) in other {
        all.entry(scope.clone()).or_default().extend(rules.iter().cloned());
    }
    let everywhere = all.get(&None).cloned().unwrap_or_default();
    for (scope, rules) in &mut all {
        let before = rules.clone();
        rules.retain(|rule| {
            // Of two that include each other one stays.
            let wider = |other: &Rule| {
                other != rule && other.includes(rule) && (other < rule || !rule.includes(other))
            };
            let is_elsewhere = scope.is_some() && everywhere.iter().any(|other| other.includes(rule));
            !is_elsewhere && !before.iter().any(wider)
        });
    }
    all.retain(|_, rules| !rules.is_empty());
    all
}

/// The resource of a kind, by the rule that API servers and clients share: all kinds that a bundle may hold keep to it.
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

/// Kind, namespace and name; no namespace for what belongs to none.
fn identity(object: &Value) -> (&str, &str, &str) {
    let kind = text(object, "/kind");
    let namespace = if is_cluster_scoped(kind) { "" } else { text(object, "/metadata/namespace") };
    (kind, namespace, text(object, "/metadata/name"))
}

fn is_role(object: &Value) -> bool {
    is_rbac(object) && matches!(text(object, "/kind"), "Role" | "ClusterRole")
}

fn is_binding(object: &Value) -> bool {
    is_rbac(object) && matches!(text(object, "/kind"), "RoleBinding" | "ClusterRoleBinding")
}

fn is_rbac(object: &Value) -> bool {
    text(object, "/apiVersion").split_once('/').is_some_and(|(group, _)| group == RBAC)
}

#[cfg(test)]
#[path = "../rights_tests.rs"]
mod tests;
