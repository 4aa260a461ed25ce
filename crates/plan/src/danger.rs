//! Order of permissions by what they lead to, so that a limit of a list never hides the worst.

use crate::permissions::Permission;

/// Verbs with which the holder gets permissions of other subjects.
const VERBS: [&str; 4] = ["*", "escalate", "bind", "impersonate"];
/// Resources that contain credentials or permissions of other subjects, or run in their place.
const RESOURCES: [&str; 19] = [
    "*",
    "secrets",
    "serviceaccounts",
    "serviceaccounts/token",
    "pods",
    "pods/attach",
    "pods/ephemeralcontainers",
    "pods/exec",
    "nodes/proxy",
    "roles",
    "rolebindings",
    "clusterroles",
    "clusterrolebindings",
    "certificatesigningrequests",
    "certificatesigningrequests/approval",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "clusterextensions",
    "clusterobjectsets",
];
/// Their groups. A kind of the same name in another group is none of them.
const GROUPS: [&str; 7] = [
    "*",
    "",
    "admissionregistration.k8s.io",
    "authentication.k8s.io",
    "certificates.k8s.io",
    "olm.operatorframework.io",
    "rbac.authorization.k8s.io",
];

pub(crate) fn is_verb(verb: &str) -> bool {
    VERBS.contains(&verb)
}

pub(crate) fn is_resource(resource: &str) -> bool {
    RESOURCES.contains(&resource) || resource.starts_with("*/")
}

impl Permission {
    /// Key for the order, the most dangerous first: everything in a group of Kubernetes, what leads to permissions of
    /// others, other wildcards, the rest. Of each, first those for the whole cluster, and for all names.
    pub fn rank(&self) -> (usize, bool, bool) {
        let has =
            |names: &[String], is_wanted: &dyn Fn(&str) -> bool| names.iter().any(|name| is_wanted(name));
        let is_wildcard = |name: &str| name == "*";
        let is_group = self.api_group.as_deref().is_some_and(|group| GROUPS.contains(&group));
        let is_all = match &self.role {
            Some(role) => matches!(role.as_str(), "ClusterRole cluster-admin" | "all ClusterRoles"),
            None => is_group && has(&self.resources, &is_wildcard),
        };
        let leads_on = self.role.is_some()
            || self.privilege.is_some()
            || (is_group && (has(&self.verbs, &is_verb) || has(&self.resources, &is_resource)));
        let is_wide = [&self.verbs, &self.resources, &self.urls].iter().any(|names| has(names, &is_wildcard));
        let rank = [is_all, leads_on, is_wide].iter().position(|is_true| *is_true).unwrap_or(3);
        (rank, self.namespace.is_some(), !self.resource_names.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_orders_by_what_a_permission_leads_to() {
        let rule = |group: &str, resource: &str, verb: &str| Permission {
            api_group: Some(group.to_owned()),
            resources: vec![resource.to_owned()],
            verbs: vec![verb.to_owned()],
            ..Permission::default()
        };
        let role = |role: &str| Permission { role: Some(role.to_owned()), ..Permission::default() };
        let within = |permission: Permission| Permission { namespace: Some("ns".to_owned()), ..permission };
        let named = Permission { resource_names: vec!["a".to_owned()], ..rule("", "secrets", "get") };
        let ordered = [
            rule("*", "*", "*"),
            rule("", "secrets", "get"),
            named,
            within(rule("", "secrets", "get")),
            rule("x.io", "*", "*"),
            rule("x.io", "secrets", "get"),
            within(rule("apps", "deployments", "get")),
        ];
        assert!(ordered.is_sorted_by(|one, next| one.rank() < next.rank()));
        let privilege =
            Permission { privilege: Some("pods with hostPID".to_owned()), ..Permission::default() };
        for (permission, expected) in [
            (rule("", "*", "get"), 0),
            (role("ClusterRole cluster-admin"), 0),
            (role("all ClusterRoles"), 0),
            (role("ClusterRole view"), 1),
            (privilege, 1),
            (rule("*", "x", "*"), 1),
            (rule("rbac.authorization.k8s.io", "x", "bind"), 1),
            (rule("authentication.k8s.io", "uids", "impersonate"), 1),
            (rule("", "*/token", "create"), 1),
            (rule("x.io", "roles", "escalate"), 3),
        ] {
            assert_eq!(permission.rank().0, expected, "{permission}");
        }
    }
}
