//! Aggregated ClusterRoles: the roles that an `aggregationRule` selects by labels.
//!
//! Pure. Only the given roles are matched. Other roles of the cluster are unknown.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::LabelSelector;
use olm_request::selector;
use olm_resolve::CatalogSelector;
use serde_json::Value;

use crate::permissions::{TooMany, counted};

/// ClusterRoles with an aggregation rule among `roles`, each with the names of the plain roles whose rules it
/// aggregates, directly or through other aggregated roles. Each role matched against selectors adds to `count`.
///
/// # Errors
/// See [`TooMany`].
pub(crate) fn aggregated<'a>(
    roles: &BTreeMap<&'a str, &'a Value>,
    count: &mut usize,
) -> Result<BTreeMap<&'a str, BTreeSet<&'a str>>, TooMany> {
    let rules: BTreeMap<&str, Vec<CatalogSelector>> =
        roles.iter().filter_map(|(name, role)| Some((*name, selectors(role)?))).collect();
    if rules.is_empty() {
        return Ok(BTreeMap::new());
    }
    let labels: Vec<(&str, BTreeMap<String, String>)> =
        roles.iter().map(|(name, role)| (*name, labels(role))).collect();
    let mut all = BTreeMap::new();
    for name in rules.keys() {
        let (mut found, mut open) = (BTreeSet::new(), vec![*name]);
        while let Some(selectors) = open.pop().and_then(|next| rules.get(next)) {
            counted(count, labels.len())?;
            for (other, labels) in &labels {
                if selectors.iter().any(|selector| selector.matches(labels)) && found.insert(*other) {
                    open.extend(rules.contains_key(other).then_some(*other));
                }
            }
        }
        found.retain(|role| !rules.contains_key(role));
        all.insert(*name, found);
    }
    Ok(all)
}

/// Selectors of a role's aggregation rule. `None` without a rule. A selector that the API server rejects matches
/// nothing.
fn selectors(role: &Value) -> Option<Vec<CatalogSelector>> {
    let rule = role.get("aggregationRule").filter(|rule| !rule.is_null())?;
    let selectors = rule.get("clusterRoleSelectors").and_then(Value::as_array).into_iter().flatten();
    let parse = |selector: &Value| {
        let parsed: LabelSelector = serde_json::from_value(selector.clone()).ok()?;
        self::selector(Some(&parsed)).ok()
    };
    Some(selectors.filter_map(parse).collect())
}

fn labels(role: &Value) -> BTreeMap<String, String> {
    let labels = role.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
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
            ("wrong", by(json!([{"matchExpressions": [{"key": "b", "operator": "Is"}]}, 1]))),
        ];
        let roles = roles.iter().map(|(name, role)| (*name, role)).collect();
        let found = aggregated(&roles, &mut 0).unwrap();
        let expected = [
            ("all", vec!["a", "b", "other"]),
            ("middle", vec!["a"]),
            ("none", vec![]),
            ("top", vec!["a", "b"]),
            ("wrong", vec![]),
        ];
        let expected = expected.map(|(name, roles)| (name, roles.into_iter().collect()));
        assert_eq!(found, BTreeMap::from(expected));
    }
}
