//! Status writes: only on change, and remembered until the cache shows them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
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
/// Time after which a status write that changed nothing is repeated.
const PRUNED_RETRY: Duration = Duration::from_secs(600);

/// Values by UID, with the time at which they were recorded.
type Recorded<T> = Mutex<HashMap<String, (T, Instant)>>;

/// Our own last writes.
#[derive(Debug, Default)]
pub struct Writes {
    /// resourceVersions. A decision on an older state would only end in a conflict.
    last: Recorded<u64>,
    /// resourceVersions with the hash of a status whose write changed nothing.
    pruned: Recorded<(u64, u64)>,
}

impl Writes {
    /// Records the resourceVersion of an object as written.
    pub fn note(&self, object: &impl ResourceExt) {
        if let (Some(uid), Some(version)) = (object.uid(), version_of(object)) {
            insert(&self.last, uid, version, STALE_LIMIT);
        }
    }

    /// [`write_status`] that records the write. A write that the API server stores without a change, because an older
    /// CRD lacks a field, is not repeated for 10 minutes (docs/design/additions.md#fields-of-newer-crds).
    ///
    /// # Errors
    /// See [`write_status`].
    pub async fn write_status<K>(
        &self,
        api: &Api<K>,
        observed: &K,
        next: &K::Status,
    ) -> Result<Option<K>, kube::Error>
    where
        K: Resource + HasStatus + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
        K::Status: PartialEq + Clone + Default + Serialize,
    {
        if observed.status() == Some(next) {
            return Ok(None);
        }
        let write = observed.uid().zip(version_of(observed).map(|version| (version, hash(next))));
        if write.as_ref().is_some_and(|(uid, write)| {
            let pruned = self.pruned.lock();
            pruned.get(uid).is_some_and(|(last, at)| last == write && at.elapsed() < PRUNED_RETRY)
        }) {
            return Ok(None);
        }
        let written = write_status(api, observed, next).await?;
        if let Some(written) = &written {
            self.note(written);
            if let Some((uid, write)) = write
                && version_of(written) == version_of(observed)
            {
                insert(&self.pruned, uid, write, PRUNED_RETRY);
            }
        }
        Ok(written)
    }

    /// `true` if this state of an object is older than our last write.
    pub fn is_stale(&self, object: &impl ResourceExt) -> bool {
        let writes = self.last.lock();
        let last = object.meta().uid.as_ref().and_then(|uid| writes.get(uid));
        last.zip(version_of(object))
            .is_some_and(|((version, at), seen)| seen < *version && at.elapsed() < STALE_LIMIT)
    }
}

/// Inserts a value, and removes those that are older than `limit`.
fn insert<T>(all: &Recorded<T>, uid: String, value: T, limit: Duration) {
    let mut all = all.lock();
    all.retain(|_, (_, at)| at.elapsed() < limit);
    all.insert(uid, (value, Instant::now()));
}

fn hash(status: &impl Serialize) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(status).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use axum::body::Body;
    use kube::Client;
    use olm_api::{ClusterExtension, ClusterExtensionStatus};
    use serde_json::json;
    use tower::service_fn;

    use super::*;

    fn extension(version: &str) -> ClusterExtension {
        let metadata = json!({"name": "demo", "uid": "u", "resourceVersion": version});
        serde_json::from_value(
            json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": metadata}),
        )
        .unwrap()
    }

    fn status(available: &str) -> ClusterExtensionStatus {
        ClusterExtensionStatus { available_version: Some(available.to_owned()), ..Default::default() }
    }

    // docs/design/additions.md#fields-of-newer-crds
    #[tokio::test(start_paused = true)]
    async fn status_that_the_crd_prunes_is_not_written_again() {
        let count = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&count);
        // An API server whose CRD lacks the field: nothing changes, so the resourceVersion stays.
        let service = service_fn(move |_: http::Request<kube::client::Body>| {
            *counted.lock() += 1;
            let body = serde_json::to_vec(&extension("7")).unwrap();
            async { Ok::<_, Infallible>(http::Response::new(Body::from(body))) }
        });
        let api: Api<ClusterExtension> = Api::all(Client::new(service, "default"));
        let writes = Writes::default();
        let written = async |version: &str, available: &str| {
            let before = *count.lock();
            writes.write_status(&api, &extension(version), &status(available)).await.unwrap();
            *count.lock() - before
        };
        assert_eq!(written("7", "2.0.0").await, 1);
        assert_eq!(written("7", "2.0.0").await, 0);
        assert_eq!(written("7", "3.0.0").await, 1);
        assert_eq!(written("7", "3.0.0").await, 0);
        // The CRD may have been updated meanwhile.
        tokio::time::advance(PRUNED_RETRY).await;
        assert_eq!(written("7", "3.0.0").await, 1);
        assert_eq!(written("6", "3.0.0").await, 1);
    }
}
