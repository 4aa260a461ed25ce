//! Aggregated ClusterRoles: the roles that an `aggregationRule` selects by labels.
//!
//! Pure. Only the given roles are matched. The other roles of the cluster that a selector finds, now or later, are
//! unknown, so the selector itself is an open grant.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use olm_api::{LabelSelector, LabelSelectorRequirement};
use olm_bundle::pointer::{list, text, texts};
use olm_request::selector;
use olm_resolve::CatalogSelector;
use serde_json::Value;

use crate::holders::counted;
use crate::permissions::TooMany;
use crate::sentence::word;

/// Cost of one requirement of a selector: all are compared with each other.
const REQUIREMENT_COST: usize = 200;

/// Requirements of a label selector: key, operator and values. Those of `matchLabels` have operator `In`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Requirements(BTreeSet<(String, String, BTreeSet<String>)>);

impl Requirements {
    fn of(selector: &LabelSelector) -> Self {
        let labels = selector.match_labels.iter().flatten();
        let labels =
            labels.map(|(key, value)| (key.clone(), "In".to_owned(), BTreeSet::from([value.clone()])));
        let expressions = selector.match_expressions.iter().flatten().map(|one| {
            let values = one.values.iter().flatten().cloned().collect();
            (one.key.clone(), one.operator.clone(), values)
        });
        Self(labels.chain(expressions).collect())
    }

    /// `true` if labels that meet `other` are known to meet these requirements.
    pub(crate) fn cover(&self, other: &Self) -> bool {
        self.0.iter().all(|(key, operator, values)| {
            other.0.iter().any(|(other_key, other_operator, other_values)| {
                let is_wider = match operator.as_str() {
                    "NotIn" => values.is_subset(other_values),
                    _ => other_values.is_subset(values),
                };
                key == other_key && operator == other_operator && is_wider
            })
        })
    }
}

/// `all ClusterRoles`, or `ClusterRoles with labels a In (x, y), b Exists`
impl fmt::Display for Requirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.0.iter().map(|(key, operator, values)| {
            let (key, operator) = (word(key), word(operator));
            if values.is_empty() {
                format!("{key} {operator}")
            } else {
                let values = values.iter().map(|value| word(value)).collect::<Vec<_>>().join(", ");
                format!("{key} {operator} ({values})")
            }
        });
        match texts.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => f.write_str("all ClusterRoles"),
            texts => write!(f, "ClusterRoles with labels {texts}"),
        }
    }
}

/// Content of a ClusterRole with an aggregation rule.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Aggregated<'a> {
    /// Names of the given roles whose rules it has: itself, and those that are selected, directly or through others.
    pub(crate) roles: BTreeSet<&'a str>,
    /// Its selectors, and those of aggregated roles among `roles`.
    pub(crate) selectors: BTreeSet<Requirements>,
}

/// ClusterRoles with an aggregation rule among `roles`. Each role matched against selectors, and each requirement, adds
/// to `count`.
///
/// # Errors
/// See [`TooMany`].
pub(crate) fn aggregated<'a>(
    roles: &BTreeMap<&'a str, &'a Value>,
    count: &mut usize,
) -> Result<BTreeMap<&'a str, Aggregated<'a>>, TooMany> {
    let rules: BTreeMap<&str, Vec<(CatalogSelector, Requirements)>> =
        roles.iter().filter_map(|(name, role)| Some((*name, selectors(role)?))).collect();
    if rules.is_empty() {
        return Ok(BTreeMap::new());
    }
    let labels: Vec<(&str, BTreeMap<String, String>)> =
        roles.iter().map(|(name, role)| (*name, map(role, "/metadata/labels"))).collect();
    let mut all = BTreeMap::new();
    for name in rules.keys() {
        let mut found = Aggregated { roles: BTreeSet::from([*name]), ..Aggregated::default() };
        let mut open = vec![*name];
        while let Some(selectors) = open.pop().and_then(|next| rules.get(next)) {
            let requirements: usize = selectors.iter().map(|(_, all)| all.0.len() + 1).sum();
            counted(count, labels.len().saturating_add(requirements.saturating_mul(REQUIREMENT_COST)))?;
            found.selectors.extend(selectors.iter().map(|(_, requirements)| requirements.clone()));
            for (other, labels) in &labels {
                let is_selected = selectors.iter().any(|(selector, _)| selector.matches(labels));
                if is_selected && found.roles.insert(*other) {
                    open.extend(rules.contains_key(other).then_some(*other));
                }
            }
        }
        all.insert(*name, found);
    }
    Ok(all)
}

/// Selectors of a role's aggregation rule. `None` without a rule. A selector that the API server rejects matches
/// nothing.
fn selectors(role: &Value) -> Option<Vec<(CatalogSelector, Requirements)>> {
    let rule = role.get("aggregationRule").filter(|rule| !rule.is_null())?;
    let selectors = rule.get("clusterRoleSelectors").and_then(Value::as_array).into_iter().flatten();
    let parse = |selector: &Value| {
        let parsed = label_selector(selector);
        Some((self::selector(Some(&parsed)).ok()?, Requirements::of(&parsed)))
    };
    let is_selector = |selector: &&Value| selector.is_null() || selector.is_object();
    Some(selectors.filter(is_selector).filter_map(parse).collect())
}

/// Label selector as the API server reads it: null is an empty selector, requirement or value.
fn label_selector(selector: &Value) -> LabelSelector {
    let requirement = |one: &Value| LabelSelectorRequirement {
        key: text(one, "/key").to_owned(),
        operator: text(one, "/operator").to_owned(),
        values: Some(texts(one, "/values").map(str::to_owned).collect()),
    };
    LabelSelector {
        match_labels: Some(map(selector, "/matchLabels")),
        match_expressions: Some(list(selector, "/matchExpressions").iter().map(requirement).collect()),
    }
}

/// Map at a JSON pointer, with an empty text for null.
fn map(object: &Value, pointer: &str) -> BTreeMap<String, String> {
    let map = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    map.map(|(key, value)| (key.clone(), text(value, "").to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn aggregated_role_selects_roles_by_labels() {
        let by = |selectors: Value| json!({"aggregationRule": {"clusterRoleSelectors": selectors}});
        let labeled = |key: &str| json!({"metadata": {"labels": {key: "true"}}});
        let mut middle = by(json!([{"matchLabels": {"a": "true"}}]));
        middle["metadata"] = json!({"labels": {"top": "true"}});
        let roles = [
            ("a", labeled("a")),
            ("b", labeled("b")),
            ("other", json!({"metadata": {"labels": {"a": "false"}}})),
            ("middle", middle),
            (
                "top",
                by(
                    json!([{"matchLabels": {"top": "true"}}, {"matchExpressions": [{"key": "b", "operator": "Exists"}]}]),
                ),
            ),
            ("none", json!({"aggregationRule": {"clusterRoleSelectors": null}})),
            ("all", by(json!([{}]))),
            ("wrong", by(json!([{"matchExpressions": [{"key": "b", "operator": "Is"}, null]}, 1, [], "a"]))),
        ];
        let roles: BTreeMap<&str, &Value> = roles.iter().map(|(name, role)| (*name, role)).collect();
        let found = aggregated(&roles, &mut 0).unwrap();
        let found: Vec<(&str, Vec<&str>, Vec<String>)> = found
            .into_iter()
            .map(|(name, found)| {
                let selectors = found.selectors.iter().map(ToString::to_string).collect();
                (name, found.roles.into_iter().collect(), selectors)
            })
            .collect();
        let labels = |text: &str| format!("ClusterRoles with labels {text}");
        let (a, b, top) = (labels("a In (true)"), labels("b Exists"), labels("top In (true)"));
        let every = roles.keys().copied().collect::<Vec<_>>();
        let expected = [
            ("all", every, vec!["all ClusterRoles".to_owned(), a.clone(), b.clone(), top.clone()]),
            ("middle", vec!["a", "middle"], vec![a.clone()]),
            ("none", vec!["none"], vec![]),
            ("top", vec!["a", "b", "middle", "top"], vec![a, b, top]),
            ("wrong", vec!["wrong"], vec![]),
        ];
        assert_eq!(found, expected);
    }

    // crates/revision/tests/apply/nulls.rs shows that the API server reads them so.
    #[test]
    fn null_selector_selects_all_roles_and_null_value_is_empty() {
        let by = |selector: Value| json!({"aggregationRule": {"clusterRoleSelectors": [selector]}});
        let role = json!({"metadata": {"labels": {"a": null}}});
        for (selector, expected) in [
            (Value::Null, "all ClusterRoles"),
            (json!({"matchLabels": null, "matchExpressions": null}), "all ClusterRoles"),
            (json!({"matchLabels": {"a": null}}), "ClusterRoles with labels a In (\"\")"),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": [null]}]}),
                "ClusterRoles with labels a In (\"\")",
            ),
        ] {
            let top = by(selector);
            let roles = BTreeMap::from([("a", &role), ("top", &top)]);
            let found = aggregated(&roles, &mut 0).unwrap().remove("top").unwrap();
            assert!(found.roles.contains("a"), "{top}");
            let selectors: Vec<String> = found.selectors.iter().map(ToString::to_string).collect();
            assert_eq!(selectors, [expected]);
        }
    }

    #[test]
    fn selector_covers_those_with_more_requirements_or_fewer_values() {
        let of = |selector: Value| Requirements::of(&serde_json::from_value(selector).unwrap());
        let one = |operator: &str, values: &[&str]| {
            of(json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}))
        };
        let label = of(json!({"matchLabels": {"a": "x"}}));
        let both = of(json!({"matchLabels": {"a": "x", "b": "y"}}));
        for (wide, narrow, expected) in [
            (of(json!({})), label.clone(), true),
            (label.clone(), of(json!({})), false),
            (label.clone(), both.clone(), true),
            (both, label.clone(), false),
            (one("In", &["y", "x"]), label.clone(), true),
            (label.clone(), one("In", &["x", "y"]), false),
            (one("NotIn", &["x"]), one("NotIn", &["x", "y"]), true),
            (one("NotIn", &["x", "y"]), one("NotIn", &["x"]), false),
            (one("Exists", &[]), one("Exists", &[]), true),
            (one("Exists", &[]), one("DoesNotExist", &[]), false),
            (of(json!({"matchLabels": {"b": "x"}})), label, false),
        ] {
            assert_eq!(wide.cover(&narrow), expected, "{wide} {narrow}");
        }
    }
}
