//! The revision controller, running during a test.

use kube::Client;
use olm_controller_core::RevisionCache;
use olm_revision_controller::Pace;
use olm_servers::RunningController;

/// Starts the revision controller.
pub(crate) fn run_revisions(client: Client, system_namespace: &str) -> RunningController {
    let (cache, namespace) = (RevisionCache::new(), system_namespace.to_owned());
    RunningController::start(|metrics, stop| async move {
        let following = cache.follow(client.clone(), stop.clone());
        let pace = Pace::default();
        let running =
            olm_revision_controller::run(pace, false, client, cache.clone(), namespace, metrics, stop);
        tokio::join!(following, running);
    })
}
