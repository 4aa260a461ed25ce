//! RBAC rule: inclusion, and expansion to single permissions.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use crate::pointer::texts;

const ANY: &str = "*";

/// Rule of a Role or ClusterRole.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RbacRule {
    /// API groups. The core group is empty.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub api_groups: BTreeSet<String>,
    /// Resources. Subresources are written as `pods/log`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub resources: BTreeSet<String>,
    /// Names of the allowed objects. Empty allows all.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub resource_names: BTreeSet<String>,
    /// Non-resource URLs. A trailing `*` matches any suffix.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "BTreeSet::is_empty")]
    pub non_resource_urls: BTreeSet<String>,
    /// Allowed verbs.
    pub verbs: BTreeSet<String>,
}

/// Single permission, as in a SubjectAccessReview.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Access to a resource.
    Resource {
        /// API group. The core group is empty.
        group: String,
        /// Resource. A subresource is written as `pods/log`.
        resource: String,
        /// Name of the object. `None` is all objects.
        name: Option<String>,
        /// Allowed verb.
        verb: String,
    },
    /// Access to a non-resource URL.
    Url {
        /// Path of the URL.
        path: String,
        /// Allowed verb.
        verb: String,
    },
}

impl RbacRule {
    /// Parses a rule of a role.
    pub fn of(rule: &Value) -> Self {
        let texts = |field: &str| texts(rule, field).map(str::to_owned).collect();
        Self {
            api_groups: texts("/apiGroups"),
            resources: texts("/resources"),
            resource_names: texts("/resourceNames"),
            non_resource_urls: texts("/nonResourceURLs"),
            verbs: texts("/verbs"),
        }
    }

    pub(super) fn on(group: &str, resource: String, verbs: &[&str]) -> Self {
        Self {
            api_groups: [group.to_owned()].into(),
            resources: [resource].into(),
            verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
            ..Self::default()
        }
    }

    pub(super) fn named(self, name: &str) -> Self {
        Self { resource_names: [name.to_owned()].into(), ..self }
    }

    /// Rules that allow everything.
    pub(super) fn everything() -> [Self; 2] {
        let any = || BTreeSet::from([ANY.to_owned()]);
        [
            Self { api_groups: any(), resources: any(), verbs: any(), ..Self::default() },
            Self { non_resource_urls: any(), verbs: any(), ..Self::default() },
        ]
    }

    /// Reports whether this rule alone allows everything that `other` allows.
    pub(super) fn includes(&self, other: &Self) -> bool {
        let all = |of: &BTreeSet<String>, is_in: &dyn Fn(&str) -> bool| of.iter().all(|one| is_in(one));
        let names = self.resource_names.is_empty()
            || (!other.resource_names.is_empty() && other.resource_names.is_subset(&self.resource_names));
        names
            && all(&other.verbs, &|verb| has(&self.verbs, verb))
            && all(&other.api_groups, &|group| has(&self.api_groups, group))
            && all(&other.resources, &|resource| self.has_resource(resource))
            && all(&other.non_resource_urls, &|url| self.has_url(url))
            // An empty list is included in any list, so resource and URL rules must be distinguished.
            && (self.resources.is_empty() == other.resources.is_empty())
    }

    /// Reports whether this rule allows a single permission.
    pub fn allows(&self, right: &Right) -> bool {
        let one = |text: &String| BTreeSet::from([text.clone()]);
        self.includes(&match right {
            Right::Resource { group, resource, name, verb } => Self {
                api_groups: one(group),
                resources: one(resource),
                resource_names: name.iter().cloned().collect(),
                verbs: one(verb),
                ..Self::default()
            },
            Right::Url { path, verb } => {
                Self { non_resource_urls: one(path), verbs: one(verb), ..Self::default() }
            }
        })
    }

    fn has_resource(&self, resource: &str) -> bool {
        let sub = resource.split_once('/').map(|(_, sub)| format!("{ANY}/{sub}"));
        has(&self.resources, resource) || sub.is_some_and(|sub| self.resources.contains(&sub))
    }

    fn has_url(&self, url: &str) -> bool {
        let covers = |own: &String| own.strip_suffix(ANY).is_some_and(|start| url.starts_with(start));
        self.non_resource_urls.contains(url) || self.non_resource_urls.iter().any(covers)
    }

    /// Expands the rule to single permissions, as many as the product of its lists.
    pub fn rights(&self) -> impl Iterator<Item = Right> + '_ {
        let names: Vec<Option<String>> = match self.resource_names.is_empty() {
            true => vec![None],
            false => self.resource_names.iter().cloned().map(Some).collect(),
        };
        self.verbs.iter().flat_map(move |verb| {
            let urls = self.non_resource_urls.iter();
            let urls = urls.map(|path| Right::Url { path: path.clone(), verb: verb.clone() });
            let mut rights: Vec<Right> = urls.collect();
            for group in &self.api_groups {
                for resource in &self.resources {
                    rights.extend(names.iter().map(|name| Right::Resource {
                        group: group.clone(),
                        resource: resource.clone(),
                        name: name.clone(),
                        verb: verb.clone(),
                    }));
                }
            }
            rights
        })
    }
}

fn has(set: &BTreeSet<String>, text: &str) -> bool {
    set.contains(text) || set.contains(ANY)
}
