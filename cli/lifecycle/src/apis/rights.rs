//! Verbs that the user may use on a resource, from the rules of a SelfSubjectRulesReview. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::authorization::v1::ResourceRule;
use olm_bundle::api_roles::{EDIT, VIEW};
use olm_cli_core::access_level::{ANY, level};
use serde::Serialize;

/// All verbs of the API server on custom resources.
pub(super) const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Rules of the user in one namespace.
#[derive(Debug, Default)]
pub(super) struct Rules(pub(super) Vec<ResourceRule>);

/// Names of the objects that a verb is allowed on.
#[derive(Debug, PartialEq)]
pub(super) enum Names {
    All,
    Only(BTreeSet<String>),
}

/// Verbs on one resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Allowed {
    /// Verbs on all objects.
    pub(super) verbs: BTreeSet<String>,
    /// Further verbs on single objects, by name of the object.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) named: BTreeMap<String, BTreeSet<String>>,
}

impl Rules {
    fn matching<'a>(&'a self, group: &'a str, resource: &'a str) -> impl Iterator<Item = &'a ResourceRule> {
        let has = |list: &Option<Vec<String>>, name: &str| {
            list.iter().flatten().any(|one| one == ANY || one == name)
        };
        self.0.iter().filter(move |rule| has(&rule.api_groups, group) && has(&rule.resources, resource))
    }

    /// Verbs on the resource.
    pub(super) fn on(&self, group: &str, resource: &str) -> Allowed {
        let mut allowed = Allowed::default();
        for rule in self.matching(group, resource) {
            let names: Vec<_> = rule.resource_names.iter().flatten().collect();
            if names.is_empty() {
                allowed.verbs.extend(rule.verbs.iter().cloned());
            }
            for name in names {
                allowed.named.entry(name.clone()).or_default().extend(rule.verbs.iter().cloned());
            }
        }
        allowed.tidied()
    }

    /// Objects of the resource that `verb` is allowed on.
    pub(super) fn names(&self, group: &str, resource: &str, verb: &str) -> Names {
        let allowed = self.on(group, resource);
        let has = |verbs: &BTreeSet<String>| verbs.contains(verb) || verbs.contains(ANY);
        if has(&allowed.verbs) {
            return Names::All;
        }
        Names::Only(allowed.named.into_iter().filter(|(_, verbs)| has(verbs)).map(|(name, _)| name).collect())
    }
}

impl Allowed {
    /// Removes names without further verbs.
    pub(super) fn tidied(mut self) -> Self {
        let is_any = self.verbs.contains(ANY);
        let verbs = &self.verbs;
        self.named.retain(|_, named| !is_any && !named.is_subset(verbs));
        self
    }

    /// Reports whether all objects may be read and changed.
    pub(super) fn is_edit(&self) -> bool {
        self.verbs.contains(ANY) || VIEW.iter().chain(&EDIT).all(|verb| self.verbs.contains(*verb))
    }

    /// Reports whether no verb is allowed on any object.
    pub(super) fn is_none(&self) -> bool {
        self.verbs.is_empty() && self.named.is_empty()
    }

    /// `view`, `edit` or `admin` for the verbs of these roles of Kubernetes, `none`, or the list of verbs.
    pub(super) fn text(&self) -> String {
        let text = |verbs: &BTreeSet<String>| level(verbs.iter().map(String::as_str));
        let of_names = self.named.iter().map(|(name, verbs)| format!("{} of {name}", text(verbs)));
        let all = (!self.verbs.is_empty() || self.named.is_empty()).then(|| text(&self.verbs));
        all.into_iter().chain(of_names).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rows: &[(&str, &str, &str, &str)]) -> Rules {
        let list = |text: &str| -> Vec<String> {
            text.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect()
        };
        let rule = |(group, resource, names, verbs): &(&str, &str, &str, &str)| ResourceRule {
            api_groups: Some(list(group)),
            resources: Some(list(resource)),
            resource_names: Some(list(names)).filter(|names| !names.is_empty()),
            verbs: list(verbs),
        };
        Rules(rows.iter().map(rule).collect())
    }

    #[test]
    fn verbs_are_shown_as_the_role_that_grants_them() {
        let group = "example.com";
        for (rows, expected) in [
            (&[][..], "none"),
            (&[("other.com", "lamps", "", "*"), (group, "bulbs", "", "*")], "none"),
            (&[(group, "lamps/status", "", "get")], "none"),
            (&[(group, "lamps", "", "get,list,watch")], "view"),
            (
                &[(group, "lamps", "", "get,list,watch"), (group, "*", "", "create,update,patch,delete")],
                "edit",
            ),
            (&[("*", "lamps", "", "create,update,patch,delete,deletecollection,get,list,watch")], "edit"),
            (&[(group, "lamps", "", "*")], "admin"),
            (&[("*", "*", "", "*"), (group, "lamps", "a", "get")], "admin"),
            (&[(group, "lamps", "", "create,update,patch,delete")], "create,delete,patch,update"),
            (&[(group, "lamps", "", "get,list,watch,deletecollection")], "deletecollection,get,list,watch"),
            (&[(group, "lamps", "a,b", "get")], "get of a; get of b"),
            (
                &[(group, "lamps", "", "get,list,watch"), (group, "lamps", "a", "get,patch")],
                "view; get,patch of a",
            ),
            (&[(group, "lamps", "", "get,list,watch"), (group, "lamps", "a", "get")], "view"),
        ] {
            let allowed = rules(rows).on(group, "lamps");
            assert_eq!(allowed.text(), expected, "{rows:?}");
            assert_eq!(allowed.is_none(), expected == "none", "{rows:?}");
            assert_eq!(allowed.is_edit(), ["edit", "admin"].contains(&expected), "{rows:?}");
        }
    }

    #[test]
    fn rbac_resource_names_limit_readable_objects() {
        let (group, crds) = ("apiextensions.k8s.io", "customresourcedefinitions");
        let named = rules(&[(group, crds, "a,b", "get"), (group, crds, "c", "watch")]);
        let only = Names::Only(["a".to_owned(), "b".to_owned()].into());
        assert_eq!(named.names(group, crds, "get"), only);
        assert_eq!(rules(&[("*", "*", "", "*")]).names(group, crds, "get"), Names::All);
        assert_eq!(rules(&[]).names(group, crds, "get"), Names::Only(BTreeSet::new()));
    }
}
