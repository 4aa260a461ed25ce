//! Permissions and subjects as text, each on one line.

use std::borrow::Cow;
use std::fmt;

use olm_api::text::one_line;
use olm_version::{is_hidden, quote};

use crate::danger;
use crate::permissions::{Permission, Subject};

/// Longest part of a brief sentence, in bytes: subject, verbs, resources, names.
const BRIEF: usize = 80;

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_role = matches!(self.kind.as_str(), "ClusterRole" | "Role");
        let every = if is_role { "all subjects of " } else { "" };
        let (namespace, slash) = (&self.namespace, if self.namespace.is_empty() { "" } else { "/" });
        write!(f, "{every}{} {}{slash}{}", part(&self.kind), part(namespace), word(&self.name))
    }
}

/// `get, list on deployments.apps in namespace apps`
impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence(usize::MAX))
    }
}

impl Permission {
    /// `SUBJECT: PERMISSION` in at most 512 bytes. Of each part of a longer sentence, what allows most comes first, and
    /// the rest is counted.
    pub fn brief(&self, subject: &Subject) -> String {
        format!("{}: {}", cut(&subject.to_string(), BRIEF), self.sentence(BRIEF))
    }

    /// Sentence whose parts have about `longest` bytes.
    fn sentence(&self, longest: usize) -> String {
        let place = match &self.namespace {
            Some(namespace) => format!("in namespace {}", cut(&part(namespace), longest)),
            None => "cluster-wide".to_owned(),
        };
        let open = |text: &str| cut(&one_line(text), longest.saturating_mul(3)).into_owned();
        match (&self.privilege, &self.role) {
            (Some(privilege), _) => return open(privilege),
            (None, Some(account)) if account.starts_with("ServiceAccount ") => {
                return format!("all permissions of {}", open(account));
            }
            (None, Some(role)) => return format!("all permissions of {} {place}", open(role)),
            (None, None) => {}
        }
        let list = |items: &[String], is_first: &dyn Fn(&str) -> bool| listed(items, longest, is_first);
        let verbs = list(&self.verbs, &danger::is_verb);
        if !self.urls.is_empty() {
            return format!("{verbs} on URLs {} {place}", list(&self.urls, &|url| url.contains('*')));
        }
        let group = self.api_group.as_deref().unwrap_or_default();
        let mut resources = self.resources.clone();
        resources.sort_by_key(|resource| !danger::is_resource(resource));
        let resources: Vec<String> = resources.iter().map(|resource| full_name(resource, group)).collect();
        let resources = joined(&resources, longest);
        let names = match self.resource_names.as_slice() {
            [] => String::new(),
            names => format!(" named {}", list(names, &|_| false)),
        };
        let kept = match (self.kept.is_empty(), self.kept_in.is_empty()) {
            (true, true) => String::new(),
            (false, _) => format!(", but keeps {}", list(&self.kept, &|_| false)),
            (true, false) => format!(", but keeps them in {}", list(&self.kept_in, &|_| false)),
        };
        format!("{verbs} on {resources}{names} {place}{kept}")
    }
}

/// Items as words, those that are dangerous first.
fn listed(items: &[String], longest: usize, is_first: &dyn Fn(&str) -> bool) -> String {
    let mut items: Vec<&String> = items.iter().collect();
    items.sort_by_key(|item| !is_first(item));
    joined(&items.into_iter().map(|item| word(item)).collect::<Vec<_>>(), longest)
}

/// `a, b and 2 more`, with about `longest` bytes.
fn joined(items: &[String], longest: usize) -> String {
    let mut text = String::new();
    for (number, item) in items.iter().enumerate() {
        let item = cut(item, longest);
        if number > 0 {
            if text.len().saturating_add(item.len()) > longest {
                return format!("{text} and {} more", items.len() - number);
            }
            text.push_str(", ");
        }
        text.push_str(&item);
    }
    text
}

/// The text, or its beginning and `…`.
fn cut(text: &str, longest: usize) -> Cow<'_, str> {
    if text.len() <= longest {
        return text.into();
    }
    format!("{}…", &text[..text.floor_char_boundary(longest - '…'.len_utf8())]).into()
}

/// The text, quoted unless it is plainly one word: verbs, resources, and names of users and RBAC objects may have any
/// characters.
pub(crate) fn word(text: &str) -> String {
    if text.is_empty() { quote(text) } else { part(text).into_owned() }
}

/// Part of a name, which may be empty.
fn part(text: &str) -> Cow<'_, str> {
    let is_odd = |c: char| c.is_whitespace() || is_hidden(c) || matches!(c, '"' | ',' | ';');
    if text.contains(is_odd) { quote(text).into() } else { text.into() }
}

/// Resource as kubectl writes it: `deployments.apps/scale`.
pub(crate) fn full_name(resource: &str, group: &str) -> String {
    let (name, sub) = match resource.split_once('/') {
        Some((name, sub)) => (name, format!("/{sub}")),
        None => (resource, String::new()),
    };
    word(&if group.is_empty() { format!("{name}{sub}") } else { format!("{name}.{group}{sub}") })
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
    fn text_of_a_bundle_stays_one_word() {
        let subject = Subject {
            kind: "User\n".to_owned(),
            namespace: String::new(),
            name: "a\n  - Group b: nothing".to_owned(),
        };
        assert_eq!(subject.to_string(), r#""User\n" "a\n  - Group b: nothing""#);
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let permission = Permission {
            namespace: Some("a\nb".to_owned()),
            api_group: Some("x.io\n".to_owned()),
            resources: texts(&["pods, services"]),
            resource_names: texts(&["", "\u{1b}[2J"]),
            verbs: texts(&["get on nodes\n", "list"]),
            ..Permission::default()
        };
        assert_eq!(
            permission.to_string(),
            r#""get on nodes\n", list on "pods, services.x.io\n" named "", "\x1b[2J" in namespace "a\nb""#
        );
    }

    #[test]
    fn brief_sentence_shows_what_allows_most() {
        let many = |prefix: &str, last: &str| {
            let numbers = (0..100).map(|number| format!("{prefix}{number}"));
            numbers.chain([last.to_owned()]).collect::<Vec<_>>()
        };
        let long = "u".repeat(600);
        let subject = Subject { kind: "User".to_owned(), namespace: String::new(), name: long.clone() };
        let permission = Permission {
            namespace: Some("n".repeat(63)),
            api_group: Some(String::new()),
            resources: many("a", "secrets"),
            resource_names: many("b", &long),
            verbs: many("a", "escalate"),
            ..Permission::default()
        };
        let text = permission.brief(&subject);
        assert!(text.len() <= 512, "{} {text}", text.len());
        for part in [
            "User uuu",
            "…: escalate, a0, ",
            " more on secrets, a0, ",
            " more named b0, ",
            " in namespace nnn",
        ] {
            assert!(text.contains(part), "no {part}: {text}");
        }
        let role = Permission { role: Some(format!("ClusterRole {long}")), ..Permission::default() };
        let privilege = Permission { privilege: Some(long.clone()), ..Permission::default() };
        let urls = Permission {
            urls: vec![long.clone(), "*".to_owned()],
            verbs: vec![long],
            ..Permission::default()
        };
        for permission in [role, privilege, urls] {
            assert!(permission.brief(&subject).len() <= 512, "{}", permission.brief(&subject));
        }
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
            (rule.clone(), "get, list on *.apps, deployments.apps/scale in namespace apps"),
            (
                Permission {
                    namespace: None,
                    api_group: Some(String::new()),
                    resource_names: texts(&["a"]),
                    ..rule
                },
                "get, list on *, deployments/scale named a cluster-wide",
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
            (
                Permission { privilege: Some("pods with hostPID".to_owned()), ..Permission::default() },
                "pods with hostPID",
            ),
        ] {
            assert_eq!(one.to_string(), expected);
        }
    }
}
