//! Permissions and subjects as text.

use std::fmt;

use crate::permissions::{Permission, Subject};

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_role = matches!(self.kind.as_str(), "ClusterRole" | "Role");
        let every = if is_role { "all subjects of " } else { "" };
        let (namespace, slash) = (&self.namespace, if self.namespace.is_empty() { "" } else { "/" });
        write!(f, "{every}{} {namespace}{slash}{}", self.kind, self.name)
    }
}

/// `get, list on deployments.apps in namespace apps`
impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "cluster-wide".to_owned(),
        };
        if let Some(account) = self.role.as_ref().filter(|role| role.starts_with("ServiceAccount ")) {
            return write!(f, "all permissions of {account}");
        }
        if let Some(role) = &self.role {
            return write!(f, "all permissions of {role} {place}");
        }
        let verbs = self.verbs.join(", ");
        if !self.urls.is_empty() {
            return write!(f, "{verbs} on URLs {} {place}", self.urls.join(", "));
        }
        let group = self.api_group.as_deref().unwrap_or_default();
        let resources: Vec<String> =
            self.resources.iter().map(|resource| full_name(resource, group)).collect();
        let names = if self.resource_names.is_empty() {
            String::new()
        } else {
            format!(" named {}", self.resource_names.join(", "))
        };
        let kept = match (self.kept.is_empty(), self.kept_in.is_empty()) {
            (true, true) => String::new(),
            (false, _) => format!(", but keeps {}", self.kept.join(", ")),
            (true, false) => format!(", but keeps them in {}", self.kept_in.join(", ")),
        };
        write!(f, "{verbs} on {}{names} {place}{kept}", resources.join(", "))
    }
}

/// Resource as kubectl writes it: `deployments.apps/scale`.
fn full_name(resource: &str, group: &str) -> String {
    let (name, part) = match resource.split_once('/') {
        Some((name, part)) => (name, format!("/{part}")),
        None => (resource, String::new()),
    };
    if group.is_empty() { format!("{name}{part}") } else { format!("{name}.{group}{part}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_is_printed_with_its_namespace() {
        let subject = |kind: &str, namespace: &str| Subject {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: "a".to_owned(),
        };
        assert_eq!(subject("ServiceAccount", "ns").to_string(), "ServiceAccount ns/a");
        assert_eq!(subject("ClusterRole", "").to_string(), "all subjects of ClusterRole a");
        assert_eq!(subject("Role", "ns").to_string(), "all subjects of Role ns/a");
    }

    #[test]
    fn permission_is_printed_as_sentence() {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let rule = Permission {
            namespace: Some("apps".to_owned()),
            api_group: Some("apps".to_owned()),
            resources: texts(&["deployments/scale", "*"]),
            verbs: texts(&["get", "list"]),
            ..Permission::default()
        };
        for (one, expected) in [
            (rule.clone(), "get, list on deployments.apps/scale, *.apps in namespace apps"),
            (
                Permission {
                    namespace: None,
                    api_group: Some(String::new()),
                    resource_names: texts(&["a"]),
                    ..rule
                },
                "get, list on deployments/scale, * named a cluster-wide",
            ),
            (
                Permission { urls: texts(&["/metrics"]), verbs: texts(&["get"]), ..Permission::default() },
                "get on URLs /metrics cluster-wide",
            ),
            (
                Permission { role: Some("ClusterRole view".to_owned()), ..Permission::default() },
                "all permissions of ClusterRole view cluster-wide",
            ),
            (
                Permission { role: Some("ServiceAccount ns/default".to_owned()), ..Permission::default() },
                "all permissions of ServiceAccount ns/default",
            ),
        ] {
            assert_eq!(one.to_string(), expected);
        }
    }
}
