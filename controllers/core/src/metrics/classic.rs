//! Metrics under their names in classic OLM, so that existing alerts keep working during a migration
//! (docs/design/additions.md#metrics). Only with `--classic-metric-names`.

use std::collections::BTreeMap;
use std::fmt;

use kube::ResourceExt;
use olm_api::conditions::{Status, reasons, types};
use olm_api::{ClusterExtension, annotations};
use olm_runtime::metrics::Metrics;
use olm_runtime::samples::{Labels, counters, gauges};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::extensions::{ExtensionRecord, Extensions, installed, installed_version};
use super::fetches::Fetches;
use super::revisions::RevisionMetrics;

/// Returns phase and reason in the terms of classic OLM, unless the extension has succeeded.
fn abnormal(extension: &ClusterExtension) -> Option<(&'static str, &str)> {
    let progressing = extension.condition(types::PROGRESSING);
    let available = extension.condition(types::AVAILABLE);
    let unavailable = available.filter(|condition| condition.status != Status::True.as_str());
    let is_done = progressing.is_some_and(|condition| condition.reason == reasons::SUCCEEDED);
    match (progressing, unavailable) {
        (Some(_), None) if is_done && installed(extension).is_some() => None,
        (Some(_), Some(unavailable)) if is_done => Some(("Failed", &unavailable.reason)),
        (Some(progressing), _) if progressing.status == Status::False.as_str() => {
            Some(("Failed", &progressing.reason))
        }
        (Some(progressing), _) if progressing.reason == reasons::ROLLING_OUT => {
            Some(("Installing", &progressing.reason))
        }
        (progressing, _) => Some(("Pending", progressing.map_or("", |condition| condition.reason.as_str()))),
    }
}

/// Counts of all extensions together.
pub(super) struct Counts {
    /// Upgrades since the start.
    pub(super) upgrades: u64,
    /// Existing ClusterObjectSets.
    pub(super) revisions: usize,
}

/// Encodes the metrics of ClusterServiceVersions, Subscriptions and InstallPlans.
pub(super) fn extensions(
    encoder: &mut DescriptorEncoder<'_>,
    all: &Extensions,
    records: &BTreeMap<String, ExtensionRecord>,
    counts: &Counts,
) -> fmt::Result {
    let labels = |extension: &ClusterExtension| -> Labels<3> {
        let namespace = extension.spec.as_ref().map(|spec| spec.namespace.clone()).unwrap_or_default();
        let name = installed(extension).map_or_else(|| extension.name_any(), |bundle| bundle.name.clone());
        [("namespace", namespace), ("name", name), ("version", installed_version(extension))]
    };
    let succeeded =
        all.values().map(|extension| (labels(extension), f64::from(abnormal(extension).is_none())));
    gauges(encoder, "csv_succeeded", "1 if the installed bundle works, else 0", succeeded)?;
    let abnormal = all.values().filter_map(|extension| {
        let (phase, reason) = abnormal(extension)?;
        let [namespace, name, version] = labels(extension);
        Some(([namespace, name, version, ("phase", phase.to_owned()), ("reason", reason.to_owned())], 1.0))
    });
    gauges(encoder, "csv_abnormal", "1 if an extension is not in its normal state", abnormal)?;
    let bundles = all.values().filter(|extension| installed(extension).is_some()).count();
    for (name, help, count) in [
        ("csv_count", "Number of installed bundles", bundles as f64),
        ("csv_upgrade_count", "Upgrades that rolled out", counts.upgrades as f64),
        ("subscription_count", "Number of ClusterExtensions", all.len() as f64),
        ("install_plan_count", "Number of ClusterObjectSets", counts.revisions as f64),
    ] {
        gauges(encoder, name, help, [([], count)])?;
    }
    let syncs = records.values().map(|record| (record.subscription.clone(), record.syncs));
    counters(encoder, "subscription_sync", "Changes of the ClusterExtension that were observed", syncs)
}

/// Returns the labels of a Subscription.
pub(super) fn subscription(extension: &ClusterExtension) -> Labels<5> {
    let catalog = extension.spec.as_ref().and_then(|spec| spec.source.catalog.as_ref());
    let (package, channels) =
        catalog.map(|catalog| (catalog.package_name.clone(), catalog.channels.join(","))).unwrap_or_default();
    let approval = extension.annotations().get(annotations::EXT_APPROVAL);
    let is_manual = approval.is_some_and(|approval| approval != "Automatic");
    [
        ("name", extension.name_any()),
        ("installed", installed(extension).map(|bundle| bundle.name.clone()).unwrap_or_default()),
        ("channel", channels),
        ("package", package),
        ("approval", if is_manual { "Manual" } else { "Automatic" }.to_owned()),
    ]
}

/// Registers the counter of catalog content that was fetched.
pub fn register_fetches(metrics: &Metrics, fetches: &Fetches) {
    if metrics.classic_names {
        metrics.register_collector(Snapshots(fetches.clone()));
    }
}

/// Registers the counter of warnings.
pub fn register_warnings(metrics: &Metrics, revisions: &RevisionMetrics) {
    if metrics.classic_names {
        metrics.register_collector(Warnings(revisions.clone()));
    }
}

#[derive(Debug)]
struct Snapshots(Fetches);

impl Collector for Snapshots {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let series = self.0.attempts().into_iter();
        let series = series.map(|(name, count)| ([("namespace", String::new()), ("name", name)], count));
        counters(&mut encoder, "catalog_source_snapshots", "Attempts to fetch catalog content", series)
    }
}

#[derive(Debug)]
struct Warnings(RevisionMetrics);

impl Collector for Warnings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Warnings of the API server about objects of extensions";
        counters(&mut encoder, "installplan_warnings", help, [([], self.0.warnings())])
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use kube::core::GroupVersionKind;
    use kube::runtime::reflector;
    use kube::runtime::watcher::Event;

    use super::super::extensions::ExtensionMetrics;
    use super::super::extensions::tests::{extension, with};
    use super::*;
    use crate::revision_cache::RevisionCache;

    #[test]
    fn abnormal_extension_has_classic_phase_and_reason() {
        let rows = [
            (with(&[]), Some("1.0.0"), None),
            (
                with(&[("Progressing", "True", "RollingOut")]),
                Some("1.0.0"),
                Some(("Installing", "RollingOut")),
            ),
            (with(&[("Progressing", "False", "Blocked")]), Some("1.0.0"), Some(("Failed", "Blocked"))),
            (
                with(&[("Available", "False", "ProbeFailure")]),
                Some("1.0.0"),
                Some(("Failed", "ProbeFailure")),
            ),
            (vec![("Progressing", "True", "Retrying")], None, Some(("Pending", "Retrying"))),
            (vec![], None, Some(("Pending", ""))),
        ];
        for (conditions, version, expect) in rows {
            assert_eq!(abnormal(&extension(&conditions, version)), expect, "{conditions:?}");
        }
    }

    fn exported(classic_names: bool) -> String {
        let (extensions, mut store) = reflector::store();
        let mut metrics = Metrics::new();
        metrics.classic_names = classic_names;
        let counted = Arc::new(ExtensionMetrics::new(extensions, RevisionCache::new()));
        counted.register(&metrics);
        let (fetches, warnings) = (Fetches::default(), RevisionMetrics::default());
        register_fetches(&metrics, &fetches);
        register_warnings(&metrics, &warnings);
        for version in ["1.0.0", "1.1.0"] {
            let mut extension = extension(&with(&[("Paused", "True", "Paused")]), Some(version));
            let manual = (annotations::EXT_APPROVAL.to_owned(), "ManualUpgrades".to_owned());
            extension.metadata.annotations = Some([manual].into());
            let event = Event::Apply(extension);
            store.apply_watcher_event(&event);
            counted.notice(&event);
            // A relist is not a change.
            if let Event::Apply(extension) = event {
                counted.notice(&Event::InitApply(extension));
            }
        }
        counted.resolved(true, Duration::from_millis(3));
        fetches.count("hub", true);
        fetches.count("hub", false);
        warnings.warned("e", 3);
        warnings.corrected("e", &GroupVersionKind::gvk("apps", "v1", "Deployment"), None);
        metrics.prometheus_text()
    }

    // Case additions-a53: the alias flag adds the classic names
    #[test]
    fn classic_names_are_exported_with_the_flag_only() {
        let text = exported(true);
        let lines = [
            "csv_succeeded{namespace=\"ns\",name=\"demo.v1.1.0\",version=\"1.1.0\"} 1",
            "# TYPE csv_abnormal gauge",
            "csv_count 1",
            "csv_upgrade_count 1",
            "subscription_count 1",
            "install_plan_count 0",
            "subscription_sync_total{name=\"e\",installed=\"demo.v1.1.0\",channel=\"\",package=\"demo\",approval=\"Manual\"} 1",
            "catalog_source_snapshots_total{namespace=\"\",name=\"hub\"} 2",
            "installplan_warnings_total 3",
            "olm_resolution_duration_seconds_count{outcome=\"succeeded\"} 1",
            "operator_controller_extension_held{extension=\"e\",reason=\"Paused\"} 1",
        ];
        for line in lines {
            assert!(text.lines().any(|got| got == line), "no {line} in\n{text}");
        }
        let plain = exported(false);
        for name in ["csv_", "subscription_", "install", "catalog_source_", "olm_resolution_"] {
            assert!(!plain.lines().any(|line| line.starts_with(name)), "{name}");
        }
    }
}
