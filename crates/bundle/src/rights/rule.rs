//! One rule of a role, whether it includes another, and the single rights that it stands for.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::list;

const ANY: &str = "*";

/// A rule of a Role or ClusterRole. The order within its lists means nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// API groups; the core group is empty.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub api_groups: BTreeSet<String>,
    /// Resources, subresources as `pods/log`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub resources: BTreeSet<String>,
    /// Only objects with these names; all of them where there is none.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub resource_names: BTreeSet<String>,
    /// URLs that are no resources; one that ends in `*` stands for all that begin so.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "BTreeSet::is_empty")]
    pub non_resource_urls: BTreeSet<String>,
    /// What may be done.
    pub verbs: BTreeSet<String>,
}

/// A single right, as an API server is asked for one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// To do something with a resource.
    Resource {
        /// API group; the core group is empty.
        group: String,
        /// Resource, a subresource as `pods/log`.
        resource: String,
        /// Name of the object; `None` for all.
        name: Option<String>,
        /// What may be done.
        verb: String,
    },
    /// To do something with a URL that is no resource.
    Url {
        /// The URL's path.
        path: String,
        /// What may be done.
        verb: String,
    },
}

impl Rule {
    /// A rule as a role has it.
    pub(super) fn of(rule: &Value) -> Self {
        let texts =
            |field: &str| list(rule, field).iter().filter_map(Value::as_str).map(str::to_owned).collect();
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

    /// The rules of somebody who may do everything.
    pub(super) fn everything() -> [Self; 2] {
        let any = || BTreeSet::from([ANY.to_owned()]);
        [
            Self { api_groups: any(), resources: any(), verbs: any(), ..Self::default() },
            Self { non_resource_urls: any(), verbs: any(), ..Self::default() },
        ]
    }

    /// Whether everything that `other` allows is allowed by this rule alone.
    pub(super) fn includes(&self, other: &Self) -> bool {
        let all = |of: &BTreeSet<String>, is_in: &dyn Fn(&str) -> bool| of.iter().all(|one| is_in(one));
        let names = self.resource_names.is_empty()
            || (!other.resource_names.is_empty() && other.resource_names.is_subset(&self.resource_names));
        names
            && all(&other.verbs, &|verb| has(&self.verbs, verb))
            && all(&other.api_groups, &|group| has(&self.api_groups, group))
            && all(&other.resources, &|resource| self.has_resource(resource))
            && all(&other.non_resource_urls, &|url| self.has_url(url))
            // Of two empty lists neither says anything.
            && (self.resources.is_empty() == other.resources.is_empty())
    }

    fn has_resource(&self, resource: &str) -> bool {
        let sub = resource.split_once('/').map(|(_, sub)| format!("{ANY}/{sub}"));
        has(&self.resources, resource) || sub.is_some_and(|sub| self.resources.contains(&sub))
    }

    fn has_url(&self, url: &str) -> bool {
        let covers = |own: &String| own.strip_suffix(ANY).is_some_and(|start| url.starts_with(start));
        self.non_resource_urls.contains(url) || self.non_resource_urls.iter().any(covers)
    }

    /// The single rights that the rule stands for: as many as the product of its lists.
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
