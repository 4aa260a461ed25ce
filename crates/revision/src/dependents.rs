//! What a revision owns, as the objects themselves tell: for one whose content is lost.
//!
//! Looks through all kinds that the cluster serves, which costs a list for each: nothing for every day.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::discovery::{Discovery, verbs};
use kube::{Api, Error, ResourceExt};
use olm_api::labels;

use crate::cluster::ClusterError;
use crate::kube_cluster::{Failure, KubeCluster, classify, deadline};
use crate::object::ObjectKey;
use crate::plan::Owner;

/// Kinds that are listed at a time.
const CONCURRENT_LISTS: usize = 8;

/// Objects that name a revision among their owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependents {
    /// By kind, namespace and name. Those in which content is stored are among them.
    pub objects: Vec<ObjectKey>,
    /// Kinds that we may not list, as `<plural>.<group>`. Objects of kinds that we apply we may.
    pub forbidden: Vec<String>,
}

impl KubeCluster {
    /// The objects of any kind that carry `owner`'s label owner-name and name it as an owner.
    ///
    /// # Errors
    /// A kind could not be listed for another reason than missing rights: the answer would not be whole.
    pub async fn dependents(&self, owner: &Owner) -> Result<Dependents, ClusterError> {
        let kinds = self.listable().await?;
        let lists: Vec<_> = kinds.iter().map(|kind| self.owned(kind, owner)).collect();
        let lists: Vec<_> = stream::iter(lists).buffered(CONCURRENT_LISTS).collect().await;
        let mut dependents = Dependents::default();
        for (kind, list) in kinds.iter().zip(lists) {
            match list {
                Ok(objects) => dependents.objects.extend(objects),
                Err(Failure::Call(Error::Api(status))) if status.is_forbidden() => {
                    let name = format!("{}.{}", kind.plural, kind.group);
                    dependents.forbidden.push(name.trim_end_matches('.').to_owned());
                }
                // Not served any more, or never as a list.
                Err(Failure::Call(Error::Api(status))) if [404, 405].contains(&status.code) => {}
                Err(failure) => return Err(classify(failure)),
            }
        }
        Ok(dependents)
    }

    /// Every kind once, in its most stable version, if its objects can be listed and deleted; in the order of groups and
    /// kinds.
    async fn listable(&self) -> Result<Vec<ApiResource>, ClusterError> {
        let client = || self.client().clone();
        let discovery = match deadline(Discovery::new(client()).run_aggregated()).await {
            Ok(all) if all.has_group("") => all,
            // Older API servers do not tell all at once.
            _ => deadline(Discovery::new(client()).run()).await.map_err(classify)?,
        };
        let mut kinds = BTreeMap::new();
        for (resource, can) in discovery.groups().flat_map(|group| group.resources_by_stability()) {
            if can.supports_operation(verbs::LIST) && can.supports_operation(verbs::DELETE) {
                kinds.insert((resource.group.clone(), resource.kind.clone()), resource);
            }
        }
        Ok(kinds.into_values().collect())
    }

    async fn owned(&self, kind: &ApiResource, owner: &Owner) -> Result<Vec<ObjectKey>, Failure> {
        let api: Api<DynamicObject> = Api::all_with(self.client().clone(), kind);
        let labelled = ListParams::default().labels(&format!("{}={}", labels::OWNER_NAME, owner.extension));
        let list = deadline(api.list_metadata(&labelled)).await?;
        let ours = list
            .items
            .into_iter()
            .filter(|object| object.owner_references().iter().any(|reference| reference.uid == owner.uid));
        let gvk = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
        Ok(ours
            .map(|object| ObjectKey {
                gvk: gvk.clone(),
                namespace: object.namespace().unwrap_or_default(),
                name: object.name_any(),
            })
            .collect())
    }
}
