//! Removes content that no extension needs, and requeues extensions with Secrets that are left behind, at intervals.

use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use olm_api::ClusterExtension;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::Context;

/// Takes extensions that are to be looked at.
pub(super) type Wake = mpsc::UnboundedSender<ObjectRef<ClusterExtension>>;

/// How often it is looked.
const ROUND: Duration = Duration::from_secs(5);
/// In every so manieth round content is looked through on disk.
const CONTENT_ROUNDS: u32 = 12;

impl Context {
    /// Keeps house. Does not end by itself.
    pub(super) async fn keep_house(&self, wake: &Wake) {
        // Before the first lists nobody would seem to need anything.
        self.parts.cache.listed().cancelled().await;
        self.extensions_listed.cancelled().await;
        for number in 1u32.. {
            sleep(ROUND).await;
            self.tidy(wake).await;
            if number % CONTENT_ROUNDS == 0 {
                self.parts.bundles.sweep(self.staying()).await;
            }
        }
    }

    /// The extensions that are not being deleted.
    fn staying(&self) -> Vec<String> {
        let extensions = self.extensions_in_store.state();
        let staying = extensions.iter().filter(|extension| extension.metadata.deletion_timestamp.is_none());
        staying.map(|extension| extension.name_any()).collect()
    }

    /// Has Secrets that were left behind removed. An extension that is there does that itself, while it makes no
    /// revision.
    async fn tidy(&self, wake: &Wake) {
        let stays = |name: &str| {
            let found = self.extensions_in_store.get(&ObjectRef::new(name));
            found.is_some_and(|extension| extension.metadata.deletion_timestamp.is_none())
        };
        for extension in self.ref_secrets.abandoned(stays) {
            if stays(&extension) {
                send(wake, &extension);
            } else if let Err(error) = self.ref_secrets.sweep(&extension).await {
                tracing::warn!(extension, %error, "Secrets that no revision refers to stay");
            }
        }
    }

    /// Follows the Secrets of revisions; who lost one is to be looked at. Does not end by itself.
    pub(super) async fn follow_secrets(&self, wake: &Wake) {
        self.ref_secrets
            .follow(|extension, revision| {
                self.memories.content_lost(extension);
                // With its revision a Secret goes as it should.
                let is_needed = self.revisions_of(extension).iter().any(|set| {
                    set.name_any() == revision
                        && set.metadata.deletion_timestamp.is_none()
                        && !set.is_archived()
                });
                if is_needed {
                    send(wake, extension);
                }
            })
            .await;
    }
}

/// Without a controller there is nobody to wake.
fn send(wake: &Wake, extension: &str) {
    let _ = wake.send(ObjectRef::new(extension));
}
