//! Metrics from the statuses of extensions, their upgrades, and the duration of resolution.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use olm_api::cluster_extension::BundleMetadata;
use olm_api::conditions::{Status, reasons, types};
use olm_api::{ClusterExtension, Condition, labels};
use olm_runtime::metrics::Metrics;
use olm_runtime::samples::{Labels, counters, gauges};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::classic::{self, Counts, subscription};
use crate::revision_cache::RevisionCache;

/// Conditions with series. `Deprecated` summarizes three more.
const CONDITIONS: [&str; 4] = [types::INSTALLED, types::PROGRESSING, types::AVAILABLE, types::DEPRECATED];

const RESOLUTION_BUCKETS: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0];

type ByOutcome = Family<[(&'static str, &'static str); 1], Histogram, fn() -> Histogram>;

/// Metrics of all extensions.
#[derive(Debug)]
pub struct ExtensionMetrics {
    records: Mutex<BTreeMap<String, ExtensionRecord>>,
    /// Number of upgrades since the start, also of deleted extensions.
    upgrades: AtomicU64,
    extensions: Store<ClusterExtension>,
    revisions: RevisionCache,
    resolutions: ByOutcome,
}

/// Upgrades between the events of an extension, and the state at the last one.
#[derive(Debug)]
pub(super) struct ExtensionRecord {
    installed: Option<BundleMetadata>,
    is_late: bool,
    succeeded: u64,
    failed: u64,
    /// Labels of the Subscription in classic OLM.
    pub(super) subscription: Labels<5>,
    /// Number of changes that were observed with these labels.
    pub(super) syncs: u64,
}

impl ExtensionRecord {
    fn new(extension: &ClusterExtension) -> Self {
        let installed = installed(extension).cloned();
        let subscription = subscription(extension);
        Self { installed, is_late: is_late(extension), subscription, succeeded: 0, failed: 0, syncs: 0 }
    }

    fn advance(&mut self, extension: &ClusterExtension) {
        let next = Self::new(extension);
        if let (Some(old), Some(new)) = (&self.installed, &next.installed)
            && old != new
        {
            self.succeeded += 1;
        }
        if next.installed.is_some() && next.is_late && !self.is_late {
            self.failed += 1;
        }
        let syncs = if next.subscription == self.subscription { self.syncs } else { 0 };
        *self = Self { succeeded: self.succeeded, failed: self.failed, syncs, ..next };
    }
}

pub(super) fn installed(extension: &ClusterExtension) -> Option<&BundleMetadata> {
    let status = extension.status.as_ref().filter(|_| extension.is_true(types::INSTALLED));
    status?.install.as_ref().map(|install| &install.bundle)
}

pub(super) fn installed_version(extension: &ClusterExtension) -> String {
    installed(extension).map(|bundle| bundle.version.clone()).unwrap_or_default()
}

fn is_late(extension: &ClusterExtension) -> bool {
    let progressing = extension.condition(types::PROGRESSING);
    progressing.is_some_and(|condition| condition.reason == reasons::PROGRESS_DEADLINE_EXCEEDED)
}

/// Returns the reason why no newer version is installed.
fn held(extension: &ClusterExtension) -> Option<&str> {
    if extension.is_true(types::PAUSED) {
        return Some(reasons::PAUSED);
    }
    let upgrade = extension.condition(types::UPGRADE_AVAILABLE);
    upgrade.filter(|upgrade| upgrade.status == Status::True.as_str()).map(|upgrade| upgrade.reason.as_str())
}

impl ExtensionMetrics {
    /// Creates metrics without extensions. The watch fills the store.
    pub fn new(extensions: Store<ClusterExtension>, revisions: RevisionCache) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(RESOLUTION_BUCKETS);
        let resolutions = Family::new_with_constructor(histogram);
        Self { records: Mutex::default(), upgrades: AtomicU64::default(), extensions, revisions, resolutions }
    }

    /// Registers the metrics.
    pub fn register(self: &Arc<Self>, metrics: &Metrics) {
        let help = "Duration of choosing a bundle in seconds";
        metrics.register("operator_controller_resolution_duration_seconds", help, self.resolutions.clone());
        let classic = metrics.classic_names;
        if classic {
            metrics.register("olm_resolution_duration_seconds", help, self.resolutions.clone());
        }
        metrics.register_collector(ExtensionCollector { of: Arc::clone(self), classic });
    }

    /// Records an event that is already in the store.
    pub fn notice(&self, event: &Event<ClusterExtension>) {
        let mut records = self.records.lock();
        match event {
            Event::Init => {}
            Event::InitApply(extension) | Event::Apply(extension) => {
                let record = records.entry(extension.name_any());
                let record = record.or_insert_with(|| ExtensionRecord::new(extension));
                let before = record.succeeded;
                record.advance(extension);
                // A relist reports unchanged extensions, too.
                record.syncs += u64::from(matches!(event, Event::Apply(_)));
                self.upgrades.fetch_add(record.succeeded - before, Ordering::Relaxed);
            }
            Event::Delete(extension) => drop(records.remove(&extension.name_any())),
            // Deletions during a broken watch.
            Event::InitDone => records.retain(|name, _| self.extensions.get(&ObjectRef::new(name)).is_some()),
        }
    }

    /// Records the duration of a resolution.
    pub fn resolved(&self, is_success: bool, took: Duration) {
        let outcome = if is_success { "succeeded" } else { "failed" };
        self.resolutions.get_or_create(&[("outcome", outcome)]).observe(took.as_secs_f64());
    }

    /// Returns the age of each extension's newest revision in seconds.
    fn ages(&self) -> BTreeMap<String, f64> {
        let mut newest: BTreeMap<String, (i64, Timestamp)> = BTreeMap::new();
        for set in self.revisions.all() {
            let spec = set.spec.as_ref().filter(|_| !set.is_archived());
            let owner = set.labels().get(labels::OWNER_NAME);
            let made = set.metadata.creation_timestamp.as_ref();
            if let (Some(spec), Some(owner), Some(made)) = (spec, owner, made) {
                let this = (spec.revision, made.0);
                let known = newest.entry(owner.clone()).or_insert(this);
                *known = this.max(*known);
            }
        }
        let now = Timestamp::now();
        let age = |made: Timestamp| now.duration_since(made).as_secs().max(0) as f64;
        newest.into_iter().map(|(name, (_, made))| (name, age(made))).collect()
    }
}

/// Extensions by name.
pub(super) type Extensions = BTreeMap<String, Arc<ClusterExtension>>;

/// Collector of the metrics for a scrape.
#[derive(Debug)]
struct ExtensionCollector {
    of: Arc<ExtensionMetrics>,
    classic: bool,
}

impl Collector for ExtensionCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all: Extensions =
            self.of.extensions.state().into_iter().map(|one| (one.name_any(), one)).collect();
        let count = [([], all.len() as f64)];
        gauges(&mut encoder, "operator_controller_extensions", "Number of ClusterExtensions", count)?;
        statuses(&mut encoder, &all)?;
        let ages = self.of.ages().into_iter().filter(|(name, _)| all.contains_key(name));
        let ages = ages.map(|(name, age)| ([("extension", name)], age));
        let help = "Seconds since the newest revision that is not archived was created";
        gauges(&mut encoder, "operator_controller_extension_revision_age_seconds", help, ages)?;
        let records = self.of.records.lock();
        let upgrades = records.iter().flat_map(|(name, record)| {
            [("succeeded", record.succeeded), ("failed", record.failed)]
                .map(|(result, count)| ([("extension", name.clone()), ("result", result.to_owned())], count))
        });
        let help = "Upgrades that rolled out, or that exceeded their progress deadline";
        counters(&mut encoder, "operator_controller_extension_upgrades", help, upgrades)?;
        if self.classic {
            let counts = Counts {
                upgrades: self.of.upgrades.load(Ordering::Relaxed),
                revisions: self.of.revisions.all().len(),
            };
            classic::extensions(&mut encoder, &all, &records, &counts)?;
        }
        Ok(())
    }
}

/// Encodes the series that mirror statuses.
fn statuses(encoder: &mut DescriptorEncoder<'_>, all: &Extensions) -> fmt::Result {
    let bundles = all.iter().map(|(name, extension)| {
        let catalog = extension.spec.as_ref().and_then(|spec| spec.source.catalog.as_ref());
        let package = catalog.map(|catalog| catalog.package_name.clone()).unwrap_or_default();
        let version = ("version", installed_version(extension));
        let labels = [("extension", name.clone()), ("package", package), version];
        (labels, f64::from(installed(extension).is_some()))
    });
    let help = "1 if a bundle is installed, else 0";
    gauges(encoder, "operator_controller_extension_installed", help, bundles)?;
    let conditions = all.iter().flat_map(|(name, extension)| {
        let conditions = CONDITIONS.into_iter().filter_map(|type_| extension.condition(type_));
        conditions.map(|condition| {
            let Condition { type_, status, reason, .. } = condition.clone();
            ([("extension", name.clone()), ("type", type_), ("status", status), ("reason", reason)], 1.0)
        })
    });
    let help = "1 for the current status and reason of each condition";
    gauges(encoder, "operator_controller_extension_condition", help, conditions)?;
    let available = all.iter().filter_map(|(name, extension)| {
        let upgrade = extension.condition(types::UPGRADE_AVAILABLE);
        let upgrade = upgrade.filter(|upgrade| upgrade.status != Status::Unknown.as_str())?;
        Some(([("extension", name.clone())], f64::from(upgrade.status == Status::True.as_str())))
    });
    let help = "1 while a newer version is held back, else 0";
    gauges(encoder, "operator_controller_extension_upgrade_available", help, available)?;
    let held = all.iter().filter_map(|(name, extension)| {
        Some(([("extension", name.clone()), ("reason", held(extension)?.to_owned())], 1.0))
    });
    let help = "1 while the extension is paused or a newer version is held back";
    gauges(encoder, "operator_controller_extension_held", help, held)
}

#[cfg(test)]
pub(super) mod tests {
    use kube::runtime::reflector;
    use serde_json::{Value, json};

    use olm_api::ClusterObjectSet;

    use super::*;

    pub(crate) fn extension(conditions: &[(&str, &str, &str)], version: Option<&str>) -> ClusterExtension {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, status, reason)| {
                json!({"type": type_, "status": status, "reason": reason, "message": "",
                       "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        let install = version
            .map(|version| json!({"bundle": {"name": format!("demo.v{version}"), "version": version}}));
        serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "e"},
            "spec": {"namespace": "ns", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}},
            "status": {"conditions": conditions, "install": install},
        }))
        .unwrap()
    }

    fn revision(number: i64, state: &str) -> ClusterObjectSet {
        serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {"name": format!("e-{number}"), "labels": {labels::OWNER_NAME: "e"},
                         "creationTimestamp": if number == 2 { "2000-01-01T00:00:00Z" } else { "2020-01-01T00:00:00Z" }},
            "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "Prevent", "phases": []},
        }))
        .unwrap()
    }

    const HEALTHY: [(&str, &str, &str); 7] = [
        ("Installed", "True", "Succeeded"),
        ("Progressing", "True", "Succeeded"),
        ("Available", "True", "ProbesSucceeded"),
        ("Deprecated", "False", "NotDeprecated"),
        ("PackageDeprecated", "False", "NotDeprecated"),
        ("ChannelDeprecated", "False", "NotDeprecated"),
        ("BundleDeprecated", "False", "NotDeprecated"),
    ];

    pub(crate) fn with(
        changes: &[(&'static str, &'static str, &'static str)],
    ) -> Vec<(&'static str, &'static str, &'static str)> {
        let mut all = HEALTHY.to_vec();
        for change in changes {
            all.retain(|(type_, _, _)| type_ != &change.0);
            all.push(*change);
        }
        all
    }

    fn lines<'a>(text: &'a str, label: &str) -> Vec<&'a str> {
        text.lines().filter(|line| line.contains(label)).collect()
    }

    // Case additions-a53
    #[test]
    fn each_metric_is_exported_and_series_are_few() {
        let (extensions, mut store) = reflector::store();
        let revisions = RevisionCache::new();
        let metrics = Metrics::new();
        let counted = Arc::new(ExtensionMetrics::new(extensions, revisions.clone()));
        counted.register(&metrics);
        let show = |store: &mut reflector::store::Writer<_>, event: Event<ClusterExtension>| {
            store.apply_watcher_event(&event);
            counted.notice(&event);
        };
        for set in [revision(1, "Archived"), revision(2, "Active")] {
            revisions.inject(Event::Apply(set));
        }
        let waits = ("UpgradeAvailable", "True", "OutsideScope");
        let series = "operator_controller_extension_upgrade_available{extension=\"e\"}";
        for (state, expected) in [("False", Some("0")), ("Unknown", None)] {
            let condition = with(&[("UpgradeAvailable", state, "R")]);
            show(&mut store, Event::Apply(extension(&condition, Some("1.0.0"))));
            let text = metrics.prometheus_text();
            assert_eq!(text.lines().find_map(|line| line.strip_prefix(series)).map(str::trim), expected);
        }
        show(&mut store, Event::Apply(extension(&HEALTHY, Some("1.0.0"))));
        show(&mut store, Event::Apply(extension(&with(&[waits]), Some("1.1.0"))));
        counted.resolved(true, Duration::from_millis(3));
        let text = metrics.prometheus_text();
        for line in [
            "operator_controller_extensions 1",
            "operator_controller_extension_installed{extension=\"e\",package=\"demo\",version=\"1.1.0\"} 1",
            "operator_controller_extension_condition{extension=\"e\",type=\"Installed\",status=\"True\",reason=\"Succeeded\"} 1",
            "operator_controller_extension_upgrades_total{extension=\"e\",result=\"succeeded\"} 1",
            "operator_controller_extension_upgrades_total{extension=\"e\",result=\"failed\"} 0",
            "operator_controller_extension_upgrade_available{extension=\"e\"} 1",
            "operator_controller_extension_held{extension=\"e\",reason=\"OutsideScope\"} 1",
            "operator_controller_resolution_duration_seconds_count{outcome=\"succeeded\"} 1",
        ] {
            assert!(text.lines().any(|got| got == line), "no {line} in\n{text}");
        }
        let age = lines(&text, "revision_age_seconds{extension=\"e\"}")[0].rsplit_once(' ').unwrap().1;
        assert!(age.parse::<f64>().unwrap() > 20.0 * 365.0 * 86_400.0, "{age}");
        // Corrected drift of one kind and warnings add two more.
        assert!(lines(&text, "extension=\"e\"").len() + 2 <= 12, "{:#?}", lines(&text, "extension=\"e\""));
        assert!(lines(&text, "csv_").is_empty());
        show(&mut store, Event::Delete(extension(&[], None)));
        assert!(lines(&metrics.prometheus_text(), "extension=\"e\"").is_empty());
        assert!(metrics.prometheus_text().contains("operator_controller_extensions 0"));
    }

    #[test]
    fn upgrades_are_counted_on_transitions_only() {
        let state = |changes: &[_], version| extension(&with(changes), version);
        let late = [("Progressing", "False", "ProgressDeadlineExceeded")];
        let mut record = ExtensionRecord::new(&state(&[], None));
        let steps = [
            (state(&[], Some("1.0.0")), (0, 0)),
            (state(&[], Some("1.0.0")), (0, 0)),
            (state(&late, Some("1.0.0")), (0, 1)),
            (state(&late, Some("1.0.0")), (0, 1)),
            (state(&[], Some("2.0.0")), (1, 1)),
        ];
        for (next, expect) in steps {
            record.advance(&next);
            assert_eq!((record.succeeded, record.failed), expect);
        }
        // A first installation that exceeds its deadline is not an upgrade.
        let mut first = ExtensionRecord::new(&state(&[], None));
        first.advance(&state(&[("Installed", "False", "Absent"), late[0]], None));
        assert_eq!(first.failed, 0);
    }
}
