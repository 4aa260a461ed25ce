//! Custom resources that a change would delete together with their CRD
//! (docs/design/cli.md#changing-commands).

use kube::core::GroupVersionKind;

use crate::cluster::{Answer, Cluster, Instances};
use crate::object::{ObjectKey, served_kind};

/// Custom resources of one CRD.
pub type Counted = Answer<Option<Instances>>;

/// Counts the custom resources of the CRD `name`.
///
/// # Errors
/// The API server did not answer, or refused.
pub async fn custom_resources(cluster: &impl Cluster, name: &str) -> Counted {
    let key = ObjectKey {
        gvk: GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        namespace: String::new(),
        name: name.to_owned(),
    };
    match cluster.get(&key).await?.as_ref().and_then(served_kind) {
        Some(gvk) => cluster.instances(&gvk).await,
        None => Ok(None),
    }
}

/// Describes the loss if the CRD `name` is deleted. `None` without custom resources.
pub fn loss(name: &str, counted: &Counted) -> Option<String> {
    match counted {
        Ok(None) => None,
        Ok(Some(Instances { count, first, .. })) => {
            let plural = if *count == 1 { "" } else { "s" };
            let ObjectKey { namespace, name: first, .. } = first;
            let slash = if namespace.is_empty() { "" } else { "/" };
            Some(format!(
                "{name} is deleted, with {count} custom resource{plural} (first: {namespace}{slash}{first})"
            ))
        }
        Err(error) => Some(format!("{name} is deleted, and its custom resources cannot be counted: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::{ApiErrorReason, ClusterError};

    #[test]
    fn custom_resources_are_counted_in_served_version() {
        let version = |name: &str, served: bool| json!({"name": name, "served": served, "storage": !served});
        let crd = |versions: &[serde_json::Value]| json!({"spec": {"group": "example.com", "names": {"kind": "Pipe"}, "versions": versions}});
        let found = served_kind(&crd(&[version("v1", false), version("v2", true)]));
        assert_eq!(found, Some(GroupVersionKind::gvk("example.com", "v2", "Pipe")));
        assert_eq!(served_kind(&crd(&[version("v1", false)])), None);
    }

    #[test]
    fn deleted_crd_reports_loss_of_custom_resources() {
        let first = ObjectKey::of(&json!({"metadata": {"name": "knee", "namespace": "ns"}}));
        let global = ObjectKey::of(&json!({"metadata": {"name": "knee"}}));
        let error = ClusterError::new(ApiErrorReason::Rejected, "forbidden".to_owned());
        for (counted, expected) in [
            (Ok(None), None),
            (
                Ok(Some(Instances { count: 3, first, finalizers: Default::default() })),
                Some("bends is deleted, with 3 custom resources (first: ns/knee)"),
            ),
            (
                Ok(Some(Instances { count: 1, first: global, finalizers: Default::default() })),
                Some("bends is deleted, with 1 custom resource (first: knee)"),
            ),
            (Err(error), Some("bends is deleted, and its custom resources cannot be counted: forbidden")),
        ] {
            assert_eq!(loss("bends", &counted).as_deref(), expected);
        }
    }
}
