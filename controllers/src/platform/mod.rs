//! Reports whether the installed extensions allow the platform's next version
//! (docs/design/operations.md#cluster-upgrades): the leader maintains ClusterUpgradeStatus `cluster` and, on
//! OpenShift, the condition that blocks a cluster update.
//!
//! Observe the platform (`observe`) and the revisions (`triggers`) → evaluate ([`olm_platform`]) → write
//! (`writers`) and report (`reports`). Unchanged objects are not written. If an input cannot be read, the stored
//! verdict is retained.

mod flags;
mod observe;
mod reports;
mod triggers;
mod writers;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use kube::runtime::controller::Action;
use olm_api::ClusterUpgradeStatus;
use olm_controller_core::{RevisionCache, UpgradeTargets};
use olm_platform::{Platform, Verdict, evaluate};
use olm_runtime::backoff::Backoff;
use olm_runtime::cluster::describe;
use olm_runtime::events::Events;
use olm_runtime::metrics::Metrics;
use olm_runtime::reconcile::{ReconcileError, Reconciles};
use tokio_util::sync::CancellationToken;

pub(crate) use flags::PlatformFlags;
pub use flags::PlatformSettings;
use observe::{observe, upgrade_statuses};
use reports::{Transitions, VerdictMetrics};
use triggers::{ActiveRevisions, ObjectWatches, Trigger};
use writers::{OpenShiftWriter, WriteInputs, find_upgrade_status, write_upgrade_status};

/// Name of the controller in logs and metrics.
pub const NAME: &str = "controller-operator-cluster-upgrade-status";
/// Changes come in bursts: time that a pass waits for more of them.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// Interval of passes without any event. Every pass reads discovery.
const RESYNC: Duration = Duration::from_secs(300);
/// Time until discovery shows an added or removed kind.
const KINDS_SETTLE: Duration = Duration::from_secs(3);
/// Time that the first pass waits for the list of revisions.
const FIRST_LIST: Duration = Duration::from_secs(10);
/// Maximum interval between failed attempts.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Runs the controller until `stop`.
pub async fn run(
    client: Client,
    cache: RevisionCache,
    settings: PlatformSettings,
    targets: Arc<UpgradeTargets>,
    events: Events,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let (trigger, revisions) = (Arc::new(Trigger::default()), Arc::new(ActiveRevisions::default()));
    let controller = Controller {
        watches: ObjectWatches::new(client.clone(), Arc::clone(&trigger), &observe::CRDS),
        verdict_metrics: VerdictMetrics::new(&metrics),
        transitions: Transitions::default(),
        openshift: OpenShiftWriter::default(),
        is_inactive_logged: false,
        last: None,
        revisions: Arc::clone(&revisions),
        targets: Arc::clone(&targets),
        client,
        settings,
        events,
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = revisions.follow(&cache, &trigger) => {}
        () = trigger.follow(&targets) => {}
        () = controller.run(&trigger, Reconciles::new(NAME, "ClusterUpgradeStatus", 1, metrics)) => {}
    }
}

struct Controller {
    client: Client,
    settings: PlatformSettings,
    events: Events,
    revisions: Arc<ActiveRevisions>,
    targets: Arc<UpgradeTargets>,
    watches: ObjectWatches,
    verdict_metrics: VerdictMetrics,
    transitions: Transitions,
    openshift: OpenShiftWriter,
    /// `true` once the log states that ClusterUpgradeStatus is not served.
    is_inactive_logged: bool,
    /// Status, reason and message of the last verdict.
    last: Option<(&'static str, &'static str, String)>,
}

impl Controller {
    /// Runs a pass after every change and at every resync. Never returns.
    async fn run(mut self, trigger: &Trigger, reconciles: Reconciles) {
        let mut backoff = Backoff::default();
        let listed = async {
            while self.revisions.all().is_none() {
                trigger.triggered().await;
            }
        };
        // After the timeout, the verdict is Unknown with reason Initializing.
        let _ = tokio::time::timeout(FIRST_LIST, listed).await;
        // End of the time in which discovery has to be read again.
        let mut settled: Option<Instant> = None;
        loop {
            settled = settled.filter(|at| *at > Instant::now());
            if trigger.take_kinds_changed() {
                settled = Some(Instant::now() + KINDS_SETTLE);
            }
            // A panic ends the pass without a result.
            let mut failed = true;
            let pass = async {
                let pass = self.pass().await;
                failed = pass.is_err();
                pass.map(|()| Action::await_change()).map_err(|error| ReconcileError::retry(describe(&error)))
            };
            let Ok(_) = reconciles.run(olm_api::names::CLUSTER_UPGRADE_STATUS_NAME, pass).await;
            let wait = if failed {
                jittered(backoff.next_delay().min(LONGEST_RETRY))
            } else {
                backoff = Backoff::default();
                RESYNC
            };
            let wait = settled.map_or(wait, |at| wait.min(at.saturating_duration_since(Instant::now())));
            // Delayed, so that one pass covers the changes that follow.
            if tokio::time::timeout(wait, trigger.triggered()).await.is_ok() {
                tokio::time::sleep(DEBOUNCE).await;
            }
        }
    }

    async fn pass(&mut self) -> Result<(), kube::Error> {
        let observed = observe(&self.client, &self.settings).await?;
        self.watches.watch(&observed.served.targets(&self.settings.cluster_operator));
        let is_served = observed.served.has(&upgrade_statuses());
        let stored = self.stored(is_served).await?;
        let revisions = self.revisions.all();
        let started = Instant::now();
        let rows = stored.as_ref().and_then(|stored| stored.status.as_ref());
        let rows = rows.map(|status| status.extensions.as_slice()).unwrap_or_default();
        let verdict = match &revisions {
            Some(revisions) => {
                let acknowledgements =
                    stored.as_ref().map_or(&[][..], ClusterUpgradeStatus::acknowledgements);
                let revisions = revisions.iter().map(Arc::as_ref);
                let (targets, conditions) = (self.targets.all(), self.targets.conditions());
                let report = |extension: &str, bundle: &str| {
                    let found = conditions.get(&(extension.to_owned(), bundle.to_owned()));
                    found.map(|(_, report)| report.clone())
                };
                evaluate(&Platform::of(&observed.facts), acknowledgements, revisions.clone())
                    .with_upgrades(|extension| targets.get(extension).map(Arc::as_ref), rows)
                    .with_operator_conditions(revisions, report)
            }
            None => Verdict::initializing(),
        };
        self.verdict_metrics.record(&verdict, started.elapsed());
        self.log(&verdict);
        let now = Timestamp::now();
        if let Some(revisions) = &revisions {
            self.transitions.publish(&self.events, &verdict, rows, revisions);
        }
        let status_written = match is_served {
            true => write_upgrade_status(&self.client, stored, &verdict, now).await,
            false => Ok(()),
        };
        let pass = WriteInputs {
            client: &self.client,
            settings: &self.settings,
            observed: &observed,
            verdict: &verdict,
            events: &self.events,
            metrics: &self.verdict_metrics,
            now,
        };
        // A failure of one must not prevent the other write.
        let openshift = self.openshift.write(&pass).await;
        status_written.and(openshift)
    }

    /// ClusterUpgradeStatus `cluster`. `None` if it does not exist or the kind is not served.
    async fn stored(&mut self, is_served: bool) -> Result<Option<ClusterUpgradeStatus>, kube::Error> {
        if is_served {
            self.is_inactive_logged = false;
            return find_upgrade_status(&self.client).await;
        }
        if !std::mem::replace(&mut self.is_inactive_logged, true) {
            tracing::info!("ClusterUpgradeStatus is not served, reporting the verdict in metrics only");
        }
        Ok(None)
    }

    fn log(&mut self, verdict: &Verdict) {
        let next = (verdict.status.as_str(), verdict.reason, verdict.message.clone());
        if self.last.as_ref() != Some(&next) {
            tracing::info!(
                upgradeable = next.0,
                reason = next.1,
                detail = next.2,
                "verdict on cluster upgrades changed"
            );
            self.last = Some(next);
        }
    }
}

/// Returns between half of the time and all of it, so that writers that conflicted do not conflict again.
fn jittered(wait: Duration) -> Duration {
    let percent = 50 + RandomState::new().hash_one(wait) % 51;
    wait.saturating_mul(u32::try_from(percent).unwrap_or(100)) / 100
}
