//! Objects that classic OLM owns, of any kind.

use std::time::Duration;

use futures::{StreamExt, stream};
use kube::api::{ApiResource, ListParams};
use kube::core::ObjectMeta;
use kube::discovery::{ApiCapabilities, ApiGroup, Discovery};
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::object_access::{ObjectAccess, ObjectId};
use olm_cli_core::progress::say;
use serde_json::Value;

use super::objects::CLASSIC;
use super::plan::model::PackagePlan;

/// Time limit of the list calls for all kinds.
const SCAN_LIMIT: Duration = Duration::from_secs(300);
/// Concurrent list calls.
const CONCURRENT_CALLS: usize = 8;
/// Verbs of kinds whose objects the garbage collector deletes.
const COLLECTED: [&str; 3] = ["delete", "list", "watch"];
const CRD: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");

/// Objects with an owner of classic OLM.
#[derive(Debug, Default)]
pub(super) struct ClassicDependents {
    /// Their metadata.
    pub(super) objects: Vec<Value>,
    /// Kinds that cannot be listed, for example because their conversion webhook does not answer.
    pub(super) unlisted: Vec<UnlistedKind>,
}

/// Kind that cannot be listed.
#[derive(Debug)]
pub(super) struct UnlistedKind {
    resource: ApiResource,
    /// Error with the next step.
    pub(super) why: String,
}

impl UnlistedKind {
    /// Reports whether the plan has objects of the kind, or its CRD.
    fn is_needed(&self, plan: &PackagePlan) -> bool {
        let ApiResource { group, kind, plural, .. } = &self.resource;
        let removed = plan.removed.iter().map(|removed| &removed.object);
        let left = plan.left.iter().map(|left| &left.object);
        let is_of_kind = |id: &ObjectId| {
            let found = id.api_version.split_once('/').unwrap_or_default().0;
            (found == group && id.kind == *kind)
                || (id.kind == CRD.1 && id.name == format!("{plural}.{group}"))
        };
        plan.adopted.iter().chain(&plan.created).chain(removed).chain(left).any(is_of_kind)
    }
}

/// Objects with an owner of classic OLM, of all kinds that the garbage collector deletes except those of classic OLM
/// itself. In `namespace`, or everywhere if it is empty.
///
/// # Errors
/// The API server does not answer, or a signal arrived.
pub(super) async fn classic_dependents(
    access: &ObjectAccess<'_>,
    namespace: &str,
) -> Result<ClassicDependents, CliError> {
    let discovery = Discovery::new(access.cluster().client().clone()).exclude(&[CLASSIC]).run_aggregated();
    let discovery = access.cluster().call("the kinds of the cluster", discovery, access.session()).await?;
    let mut lists = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.resources_by_stability() {
            let is_collected = COLLECTED.iter().all(|verb| capabilities.supports_operation(verb));
            if is_collected && resource.kind != "Event" {
                let has_versions = versions(group, &resource.kind) > 1;
                lists.push(list(access, resource, has_versions, capabilities, namespace));
            }
        }
    }
    let all = stream::iter(lists).buffer_unordered(CONCURRENT_CALLS).collect::<Vec<_>>();
    let all = tokio::time::timeout(SCAN_LIMIT, all).await.map_err(|_| {
        let seconds = SCAN_LIMIT.as_secs();
        CliError::operational(format!("cannot list the objects of all kinds within {seconds} s"))
    })?;
    let mut found = ClassicDependents::default();
    for (resource, listed) in all {
        match listed {
            Ok(objects) => found.objects.extend(objects),
            Err(error @ CliError::Message(Code::Interrupted, _)) => return Err(error),
            Err(error) => found.unlisted.push(UnlistedKind { resource, why: error.to_string() }),
        }
    }
    found.objects.sort_by_cached_key(ObjectId::of);
    Ok(found)
}

/// Number of served versions of a kind.
fn versions(group: &ApiGroup, kind: &str) -> usize {
    let is_served =
        |version: &&str| group.versioned_resources(version).iter().any(|(one, _)| one.kind == kind);
    group.versions().filter(is_served).count()
}

/// Lists a kind, once more after a failure. One with several versions is listed in its storage version.
async fn list(
    access: &ObjectAccess<'_>,
    mut resource: ApiResource,
    has_versions: bool,
    capabilities: ApiCapabilities,
    namespace: &str,
) -> (ApiResource, Result<Vec<Value>, CliError>) {
    if has_versions {
        let name = format!("{}.{}", resource.plural, resource.group);
        match access.get(&ObjectId::new(CRD, "", &name)).await {
            Ok(definition) => set_storage_version(&mut resource, definition.as_ref()),
            Err(error @ CliError::Message(Code::Interrupted, _)) => return (resource, Err(error)),
            // The user may not read CRDs.
            Err(_) => {}
        }
    }
    let once = async || {
        let api = access.lister(&resource, &capabilities.scope, namespace);
        access.list_metadata(&resource, api, ListParams::default(), has_classic_owner).await
    };
    let listed = match once().await {
        Err(error) if !matches!(error, CliError::Message(Code::Interrupted, _)) => once().await,
        listed => listed,
    };
    (resource, listed)
}

/// Sets the storage version, if it is served: the API server converts nothing, unless objects are stored in an older one.
fn set_storage_version(resource: &mut ApiResource, definition: Option<&Value>) {
    let versions = definition.and_then(|found| found.pointer("/spec/versions")?.as_array());
    let is_stored = |version: &&Value| version["storage"] == true && version["served"] == true;
    let stored = versions.into_iter().flatten().find(is_stored);
    if let Some(version) = stored.and_then(|version| version["name"].as_str()) {
        resource.api_version = format!("{}/{version}", resource.group);
        version.clone_into(&mut resource.version);
    }
}

/// Objects that classic OLM owns, without kinds that cannot be listed and that the plan does not need.
///
/// # Errors
/// The API server does not answer, or a kind of the plan cannot be listed.
pub(super) async fn of_plan(
    access: &ObjectAccess<'_>,
    plan: &PackagePlan,
    is_named: bool,
) -> Result<Vec<Value>, CliError> {
    let has_copies = plan.removed.iter().any(|removed| removed.object.kind == "ClusterServiceVersion");
    let namespace = if has_copies { "" } else { plan.namespace.as_str() };
    let found = classic_dependents(access, namespace).await?;
    for kind in found.unlisted {
        if kind.is_needed(plan) {
            return Err(CliError::operational(format!("{}; the plan has objects of this kind", kind.why)));
        }
        if is_named {
            say(&format!("warning: {}. Skipped, because the plan has no objects of this kind", kind.why));
        }
    }
    Ok(found.objects)
}

fn has_classic_owner(metadata: &ObjectMeta) -> bool {
    let owners = metadata.owner_references.iter().flatten();
    owners.map(|owner| owner.api_version.split('/').next()).any(|group| group == Some(CLASSIC))
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;
    use serde_json::json;

    use super::*;
    use crate::apply::fixture::{id, plan};

    fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
    }

    #[test]
    fn custom_resources_are_listed_in_their_served_storage_version() {
        let listed = |storage: &str, served: bool| {
            let version = |name: &str| json!({"name": name, "storage": name == storage, "served": served});
            let definition = json!({"spec": {"versions": [version("v1"), version("v1beta1")]}});
            let mut listed = resource("example.com", "Lamp", "lamps");
            set_storage_version(&mut listed, Some(&definition));
            (listed.api_version, listed.version)
        };
        assert_eq!(listed("v1beta1", true), ("example.com/v1beta1".to_owned(), "v1beta1".to_owned()));
        assert_eq!(listed("v1beta1", false).1, "v1");
    }

    #[test]
    fn only_kinds_of_the_plan_are_needed() {
        let mut plan = plan();
        plan.adopted.push(id("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "lamps.example.com"));
        for (resource, expected) in [
            (resource("apps", "Deployment", "deployments"), true),
            (resource("", "ServiceAccount", "serviceaccounts"), true),
            (resource("example.com", "Lamp", "lamps"), true),
            (resource("example.com", "Shade", "shades"), false),
            (resource("apps", "ServiceAccount", "serviceaccounts"), false),
        ] {
            let kind = UnlistedKind { resource, why: String::new() };
            assert_eq!(kind.is_needed(&plan), expected, "{kind:?}");
        }
    }
}
