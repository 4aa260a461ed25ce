//! Objects that classic OLM owns, of any kind.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use kube::api::ListParams;
use kube::core::ObjectMeta;
use kube::discovery::Discovery;
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::{ObjectAccess, ObjectId};
use serde_json::Value;

use super::objects::CLASSIC;

/// Time limit of the list calls for all kinds.
const SCAN_LIMIT: Duration = Duration::from_secs(300);
/// Concurrent list calls.
const CONCURRENT_CALLS: usize = 8;
/// Verbs of kinds whose objects the garbage collector deletes.
const COLLECTED: [&str; 3] = ["delete", "list", "watch"];

/// Metadata of the objects with an owner of classic OLM, of all kinds that the garbage collector deletes except those of
/// classic OLM itself. In `namespace`, or everywhere if it is empty.
///
/// # Errors
/// The API server does not answer, or denies access to a kind.
pub(super) async fn classic_dependents(
    access: &ObjectAccess<'_>,
    namespace: &str,
) -> Result<Vec<Value>, CliError> {
    let discovery = Discovery::new(access.cluster().client().clone()).exclude(&[CLASSIC]).run_aggregated();
    let discovery = access.cluster().call("the kinds of the cluster", discovery, access.session()).await?;
    let mut lists = Vec::new();
    for (resource, capabilities) in discovery.groups().flat_map(|group| group.resources_by_stability()) {
        let is_collected = COLLECTED.iter().all(|verb| capabilities.supports_operation(verb));
        if is_collected && resource.kind != "Event" {
            let api = access.lister(&resource, &capabilities.scope, namespace);
            lists.push(async move {
                let parameters = ListParams::default();
                access.list_metadata(&resource, api, parameters, has_classic_owner).await
            });
        }
    }
    let all = stream::iter(lists).buffer_unordered(CONCURRENT_CALLS).try_collect::<Vec<_>>();
    let all = tokio::time::timeout(SCAN_LIMIT, all).await.map_err(|_| {
        let seconds = SCAN_LIMIT.as_secs();
        CliError::operational(format!("cannot list the objects of all kinds within {seconds} s"))
    })?;
    let mut found: Vec<Value> = all?.into_iter().flatten().collect();
    found.sort_by_cached_key(ObjectId::of);
    Ok(found)
}

fn has_classic_owner(metadata: &ObjectMeta) -> bool {
    let owners = metadata.owner_references.iter().flatten();
    owners.map(|owner| owner.api_version.split('/').next()).any(|group| group == Some(CLASSIC))
}
