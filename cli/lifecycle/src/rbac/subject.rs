//! Subjects of bindings: users, groups and service accounts.

use std::fmt;

use k8s_openapi::api::rbac::v1::Subject as Bound;
use serde::Serialize;
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";

/// User, group or service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Subject {
    kind: String,
    /// Namespace of a service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
}

impl Subject {
    /// Parses `user:NAME`, `group:NAME` or `serviceaccount:NAMESPACE:NAME`. Names may contain colons.
    ///
    /// # Errors
    /// The text has another form.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once(':').filter(|(_, name)| !name.is_empty());
        let (kind, namespace, name) = match parts {
            Some(("user", name)) => ("User", None, name),
            Some(("group", name)) => ("Group", None, name),
            Some(("serviceaccount", account)) => match account.split_once(':') {
                Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
                    ("ServiceAccount", Some(namespace.to_owned()), name)
                }
                _ => return Err("expected serviceaccount:NAMESPACE:NAME".to_owned()),
            },
            _ => {
                return Err("expected user:NAME, group:NAME or serviceaccount:NAMESPACE:NAME".to_owned());
            }
        };
        Ok(Self { kind: kind.to_owned(), namespace, name: name.to_owned() })
    }

    /// Form in the list of a binding.
    pub(super) fn value(&self) -> Value {
        match &self.namespace {
            Some(namespace) => json!({"kind": self.kind, "name": self.name, "namespace": namespace}),
            None => json!({"apiGroup": RBAC, "kind": self.kind, "name": self.name}),
        }
    }

    /// Part of the name of a binding, different for each subject.
    pub(super) fn slug(&self) -> String {
        let namespace = self.namespace.as_ref().map(|namespace| format!("{namespace}:")).unwrap_or_default();
        // Names of RBAC objects are parts of paths.
        let name = self.name.replace('~', "~0").replace('/', "~1").replace('%', "~2");
        format!("{}:{namespace}{name}", self.kind.to_lowercase())
    }
}

impl From<&Bound> for Subject {
    fn from(bound: &Bound) -> Self {
        let namespace = bound.namespace.clone().filter(|_| bound.kind == "ServiceAccount");
        Self { kind: bound.kind.clone(), namespace, name: bound.name.clone() }
    }
}

/// `User ann` or `ServiceAccount ns/name`
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_text_becomes_subject_of_binding() {
        for (text, value, slug) in [
            ("user:ann", json!({"apiGroup": RBAC, "kind": "User", "name": "ann"}), "user:ann"),
            (
                "group:system:authenticated",
                json!({"apiGroup": RBAC, "kind": "Group", "name": "system:authenticated"}),
                "group:system:authenticated",
            ),
            (
                "serviceaccount:ci:deployer",
                json!({"kind": "ServiceAccount", "name": "deployer", "namespace": "ci"}),
                "serviceaccount:ci:deployer",
            ),
            (
                "user:https://id/~ann",
                json!({"apiGroup": RBAC, "kind": "User", "name": "https://id/~ann"}),
                "user:https:~1~1id~1~0ann",
            ),
        ] {
            let subject = Subject::parse(text).unwrap();
            assert_eq!((subject.value(), subject.slug().as_str()), (value, slug));
        }
        for text in ["ann", "user:", "role:x", "serviceaccount:ci", "serviceaccount::x", ""] {
            assert!(Subject::parse(text).unwrap_err().starts_with("expected "), "{text}");
        }
    }
}
