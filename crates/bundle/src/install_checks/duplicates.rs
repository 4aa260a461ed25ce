//! Detects objects that occur more than once with different content. Equal objects are deduplicated before apply.

use std::collections::BTreeMap;

use olm_version::quote;
use serde_json::Value;

use super::{ServingDeployments, text, title};
use crate::bundle::{BundleContent, group_of, name_of};
use crate::kinds::is_cluster_scoped;

/// Group, kind, namespace and name, which identify an object on the cluster regardless of the version.
type Identity<'a> = (&'a str, &'a str, &'a str, &'a str);

pub(super) fn conflicting_duplicates(
    deployments: &ServingDeployments<'_>,
    bundle: &BundleContent,
    objects: &[Value],
) -> Vec<String> {
    let mut by_identity: BTreeMap<Identity<'_>, Vec<&Value>> = BTreeMap::new();
    for object in objects.iter().filter(|object| !name_of(object).is_empty()) {
        by_identity.entry(identity(object)).or_default().push(object);
    }
    let mut shipped: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for object in &bundle.others {
        *shipped.entry((group_of(object), text(object, "/kind"), name_of(object))).or_default() += 1;
    }
    let conflicting = by_identity.into_iter().filter_map(|((group, kind, _, name), same)| {
        let (first, others) = same.split_first()?;
        let field = others.iter().find_map(|other| difference(first, other))?;
        let same_names = match kind {
            "Service" => deployments.behind("Service", name),
            "Certificate" => deployments.behind("Certificate", name),
            _ => &[],
        };
        let title = title(first);
        Some(if let [one, another, ..] = same_names {
            let (one, another) = (quote(one), quote(another));
            format!(
                "{title} is needed for the webhooks of deployment {one} and for those of {another}: their names are \
                 truncated to the same text: shorten one of them"
            )
        } else {
            let count = same.len();
            let source = match shipped.get(&(group, kind, name)) {
                None => "in the objects generated from the ClusterServiceVersion",
                Some(shipped) if *shipped < count => {
                    "in the manifests and in the objects generated from the ClusterServiceVersion"
                }
                Some(_) => "in the manifests",
            };
            format!("{title} occurs {count} times with different content ({field}), {source}: keep one of them")
        })
    });
    conflicting.collect()
}

fn identity(object: &Value) -> Identity<'_> {
    let kind = text(object, "/kind");
    let namespace = if is_cluster_scoped(kind) { "" } else { text(object, "/metadata/namespace") };
    (group_of(object), kind, namespace, name_of(object))
}

/// Path of the first field that differs.
fn difference(one: &Value, other: &Value) -> Option<String> {
    let below = |key: &str, deeper: String| {
        if deeper.is_empty() { key.to_string() } else { format!("{key}.{deeper}") }
    };
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let mut keys: Vec<&String> = one.keys().chain(other.keys()).collect();
            keys.sort_unstable();
            keys.into_iter().find_map(|key| match (one.get(key), other.get(key)) {
                (Some(one), Some(other)) => difference(one, other).map(|deeper| below(key, deeper)),
                _ => Some(key.clone()),
            })
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let mut pairs = one.iter().zip(other).enumerate();
            pairs.find_map(|(index, (one, other))| {
                difference(one, other).map(|deeper| below(&index.to_string(), deeper))
            })
        }
        _ => (one != other).then(String::new),
    }
}
