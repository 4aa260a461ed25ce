//! Writes a status only when it changed (spec 01 §7.1 rule 9).

use kube::api::{Api, PostParams};
use kube::core::object::HasStatus;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cluster::within_deadline;

/// Replaces the status of `observed` by `next` when the two differ; the write carries the resource version
/// of `observed`, so it fails with a conflict where somebody else wrote in between.
/// Returns the object as stored, or `None` where nothing had to be written.
///
/// # Errors
/// The API server's refusal, or a call that took too long.
pub async fn write_status<K>(api: &Api<K>, observed: &K, next: &K::Status) -> Result<Option<K>, kube::Error>
where
    K: Resource + HasStatus + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
    K::Status: PartialEq + Clone + Default,
{
    if observed.status() == Some(next) || (observed.status().is_none() && *next == K::Status::default()) {
        return Ok(None);
    }
    let mut desired = observed.clone();
    *desired.status_mut() = Some(next.clone());
    desired.meta_mut().managed_fields = None;
    let params = PostParams::default();
    within_deadline(api.replace_status(&observed.name_any(), &params, &desired)).await.map(Some)
}
