//! Reports the verdict outside of the status: metrics, and Events on extensions
//! (docs/design/operations.md#clusterupgradestatus, docs/design/operations.md#verdict).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use olm_api::cluster_upgrade_status::{ExtensionVerdict, VerdictResult};
use olm_api::conditions::Status;
use olm_api::{labels, names};
use olm_platform::{ConstrainedRevision, Verdict};
use olm_runtime::events::Events;
use olm_runtime::metrics::Metrics;
use olm_version::quote;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// Reasons of the Events.
const BLOCKS: &str = "BlocksClusterUpgrade";
const UNBLOCKED: &str = "ClusterUpgradeUnblocked";

const EVALUATION_BUCKETS: [f64; 8] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 1.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct IncompatibleLabels {
    extension: String,
    bundle: String,
    constraint: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Metrics of this controller.
pub(crate) struct VerdictMetrics {
    upgradeable: Family<StatusLabel, Gauge>,
    incompatible: Family<IncompatibleLabels, Gauge>,
    exported: HashSet<IncompatibleLabels>,
    writes: Family<ResultLabel, Counter>,
    seconds: Histogram,
}

impl VerdictMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        Self {
            upgradeable: metrics.register(
                "operator_controller_cluster_upgradeable",
                "1 for the verdict of the installed extensions on the platform's next version",
                Family::default(),
            ),
            incompatible: metrics.register(
                "operator_controller_extension_platform_incompatible",
                "1 for each bundle that does not support the platform's next version",
                Family::default(),
            ),
            exported: HashSet::new(),
            writes: metrics.register(
                "operator_controller_cluster_operator_writes",
                "Writes to OpenShift's objects by result",
                Family::default(),
            ),
            seconds: metrics.register(
                "operator_controller_upgrade_status_eval_seconds",
                "Duration of evaluations in seconds",
                Histogram::new(EVALUATION_BUCKETS),
            ),
        }
    }

    /// Sets the metrics for a verdict whose evaluation took `took`.
    pub(crate) fn record(&mut self, verdict: &Verdict, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        for status in [Status::True, Status::False, Status::Unknown] {
            let label = StatusLabel { status: status.as_str() };
            self.upgradeable.get_or_create(&label).set(i64::from(status == verdict.status));
        }
        let next: HashSet<IncompatibleLabels> = blocking(verdict).map(labels_of).collect();
        for gone in self.exported.difference(&next) {
            self.incompatible.remove(gone);
        }
        for labels in &next {
            self.incompatible.get_or_create(labels).set(1);
        }
        self.exported = next;
    }

    /// Counts a write to one of OpenShift's objects: a `success`, a `conflict` with another writer or another `error`,
    /// both of which are retried, or `contended`, skipped because another writer keeps overwriting the condition.
    pub(crate) fn count_write(&self, result: &'static str) {
        self.writes.get_or_create(&ResultLabel { result }).inc();
    }
}

fn blocking(verdict: &Verdict) -> impl Iterator<Item = &ExtensionVerdict> {
    verdict.extensions.iter().filter(|row| row.result == VerdictResult::Blocking)
}

fn labels_of(row: &ExtensionVerdict) -> IncompatibleLabels {
    let (extension, bundle, constraint) = (row.name.clone(), row.bundle.clone(), row.constraint.clone());
    IncompatibleLabels { extension, bundle, constraint }
}

/// Publishes an Event when an extension starts or stops blocking.
#[derive(Default)]
pub(crate) struct Transitions {
    /// Blocking extensions with bundle and constraint. `None` before the first verdict.
    blocking: Option<BTreeSet<IncompatibleLabels>>,
}

impl Transitions {
    /// Publishes the changes since the last verdict, or since `stored`, the rows that an earlier process wrote.
    pub(crate) fn publish(
        &mut self,
        events: &Events,
        verdict: &Verdict,
        stored: &[ExtensionVerdict],
        revisions: &[Arc<ConstrainedRevision>],
    ) {
        let next: BTreeSet<IncompatibleLabels> = blocking(verdict).map(labels_of).collect();
        let before = self.blocking.take().unwrap_or_else(|| {
            stored.iter().filter(|row| row.result == VerdictResult::Blocking).map(labels_of).collect()
        });
        // An extension that was deleted gets no Event.
        let uids: BTreeMap<&str, &str> = revisions
            .iter()
            .filter_map(|one| Some((one.extension.as_str(), one.extension_uid.as_deref()?)))
            .collect();
        for row in blocking(verdict).filter(|row| !before.contains(&labels_of(row))) {
            if let Some(uid) = uids.get(row.name.as_str()) {
                let next = next_version(verdict, row);
                let bundle = quote(&row.bundle);
                let note = format!(
                    "Bundle {bundle} supports at most {}; the next cluster version is {next}",
                    row.value
                );
                let about = extension(&row.name, uid);
                events.resolved(&about, UNBLOCKED);
                events.warning(about, BLOCKS, note);
            }
        }
        let blocks =
            |rows: &BTreeSet<IncompatibleLabels>, name: &str| rows.iter().any(|row| row.extension == name);
        let names: BTreeSet<&str> = before.iter().map(|row| row.extension.as_str()).collect();
        for name in names.into_iter().filter(|name| !blocks(&next, name)) {
            if let Some(uid) = uids.get(name) {
                let note = "The extension no longer blocks the next cluster version".to_owned();
                let about = extension(name, uid);
                events.resolved(&about, BLOCKS);
                events.normal(about, UNBLOCKED, note);
            }
        }
        self.blocking = Some(next);
    }
}

fn next_version(verdict: &Verdict, row: &ExtensionVerdict) -> String {
    let constraints =
        [olm_platform::PlatformConstraint::OpenShift, olm_platform::PlatformConstraint::Kubernetes];
    let constraint = constraints.into_iter().find(|one| one.property() == row.constraint);
    let next = constraint.and_then(|constraint| verdict.platform.as_ref()?.next_of(constraint));
    next.map(|next| next.to_string()).unwrap_or_default()
}

fn extension(name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{}/{}", names::GROUP, names::VERSION)),
        kind: Some(labels::OWNER_KIND_EXTENSION.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}
