//! Periodic garbage collection of bundle content and of Secrets without an owner.

use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use olm_api::ClusterExtension;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::parts::ExtensionController;

/// Channel for extensions to requeue.
pub(super) type RequeueSender = mpsc::UnboundedSender<ObjectRef<ClusterExtension>>;

/// Interval of the check for abandoned Secrets.
const ROUND: Duration = Duration::from_secs(5);
/// Rounds between two sweeps of the bundle content on disk.
const CONTENT_ROUNDS: u32 = 12;

impl ExtensionController {
    /// Runs the garbage collection until dropped.
    pub(super) async fn collect_garbage(&self, requeue: &RequeueSender) {
        // Before the first lists, all content would seem unused.
        self.parts.cache.listed().cancelled().await;
        self.extensions_listed.cancelled().await;
        for number in 1u32.. {
            sleep(ROUND).await;
            self.requeue_or_sweep(requeue).await;
            if number % CONTENT_ROUNDS == 0 {
                let mut existing = self.extensions_in_store.state();
                existing.retain(|extension| extension.metadata.deletion_timestamp.is_none());
                let names = existing.iter().map(|extension| extension.name_any()).collect();
                self.parts.bundles.sweep(names).await;
            }
        }
    }

    /// Removes abandoned Secrets. An existing extension is requeued instead, because it must not create a revision
    /// at the same time.
    async fn requeue_or_sweep(&self, requeue: &RequeueSender) {
        let exists = |name: &str| {
            let found = self.extensions_in_store.get(&ObjectRef::new(name));
            found.is_some_and(|extension| extension.metadata.deletion_timestamp.is_none())
        };
        for extension in self.ref_secrets.abandoned(exists) {
            if exists(&extension) {
                requeue_extension(requeue, &extension);
            } else if let Err(error) =
                self.ref_secrets.sweep(&extension, &self.parts.cache.labeled(&extension)).await
            {
                tracing::warn!(extension, %error, "failed to delete Secrets without owner");
            }
        }
    }

    /// Follows the Secrets of revisions and requeues the extension of a lost one. Runs until dropped.
    pub(super) async fn follow_secrets(&self, requeue: &RequeueSender) {
        self.ref_secrets
            .follow(|extension, revision| {
                self.memories.content_lost(extension);
                // A Secret of a deleted or archived revision is not needed.
                let revisions = self.parts.cache.of_extension(extension);
                if revisions.iter().any(|one| one.is_active() && one.name_any() == revision) {
                    requeue_extension(requeue, extension);
                }
            })
            .await;
    }
}

/// A closed channel means that the controller has stopped.
pub(super) fn requeue_extension(requeue: &RequeueSender, extension: &str) {
    let _ = requeue.send(ObjectRef::new(extension));
}
