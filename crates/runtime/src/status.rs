//! Status writes: only on change, and remembered until the cache shows them.

use std::collections::HashMap;
use std::time::Duration;

use kube::api::{Api, PostParams};
use kube::core::object::HasStatus;
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::cluster::within_deadline;

/// Maximum wait for a cache to show our own last write.
const STALE_LIMIT: Duration = Duration::from_secs(5);
/// Delay before a stale object is reconciled again.
pub const STALE_RETRY: Duration = Duration::from_millis(20);

/// Our own last writes, by UID. A decision on an older state would only end in a conflict.
#[derive(Debug, Default)]
pub struct Writes(Mutex<HashMap<String, (u64, Instant)>>);

impl Writes {
    /// Records the resourceVersion of an object as written.
    pub fn note(&self, object: &impl ResourceExt) {
        if let (Some(uid), Some(version)) = (object.uid(), version_of(object)) {
            let mut writes = self.0.lock();
            writes.retain(|_, (_, at)| at.elapsed() < STALE_LIMIT);
            writes.insert(uid, (version, Instant::now()));
        }
    }

    /// `true` if this state of an object is older than our last write.
    pub fn is_stale(&self, object: &impl ResourceExt) -> bool {
        let writes = self.0.lock();
        let last = object.meta().uid.as_ref().and_then(|uid| writes.get(uid));
        last.zip(version_of(object))
            .is_some_and(|((version, at), seen)| seen < *version && at.elapsed() < STALE_LIMIT)
    }
}

fn version_of(object: &impl ResourceExt) -> Option<u64> {
    object.meta().resource_version.as_ref()?.parse().ok()
}

/// Replaces the status of `observed` by `next` if they differ. The write carries the resourceVersion of `observed`,
/// so it fails with a conflict if the object changed. Returns the object as stored, or `None` if nothing was
/// written.
///
/// # Errors
/// The API server rejected the write or did not answer in time.
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
