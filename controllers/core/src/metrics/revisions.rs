//! Counters of the apply of revisions: corrected drift, and warnings of the API server.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use kube::core::GroupVersionKind;
use olm_revision::contention::{Contention, WINDOW};
use olm_runtime::samples::{Labels, counters, gauges};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

/// Number of kinds per extension with their own series. Corrections of all other kinds are summed.
const KINDS: usize = 1;
/// Label value of all other kinds.
const OTHER: &str = "other";

/// Counters by extension, the number of all warnings, also about deleted extensions, and objects by kind that outlived
/// their revision.
#[derive(Clone, Debug, Default)]
pub struct RevisionMetrics(
    Arc<Mutex<BTreeMap<String, Counts>>>,
    Arc<AtomicU64>,
    Arc<Mutex<BTreeMap<String, u64>>>,
);

fn label(gvk: &GroupVersionKind) -> String {
    format!("{}, Kind={}", gvk.api_version(), gvk.kind)
}

#[derive(Debug, Default)]
struct Counts {
    corrections: BTreeMap<String, u64>,
    /// Last corrected field: its labels, the number of corrections, and the time of the last one.
    contended: Option<(Labels<4>, u64, Instant)>,
    warnings: u64,
}

impl RevisionMetrics {
    /// Counts an object whose drift was corrected after its revision had rolled out.
    pub fn corrected(&self, extension: &str, gvk: &GroupVersionKind, contention: Option<&Contention>) {
        let label = label(gvk);
        let mut all = self.0.lock();
        let counts = all.entry(extension.to_owned()).or_default();
        let fields = contention.into_iter().flat_map(|contention| &contention.fields);
        if let Some(field) = fields.filter(|field| field.count > 1).max_by_key(|field| field.count) {
            let labels = [("gvk", &label), ("field", &field.path), ("manager", &field.manager)];
            let [gvk, path, manager] = labels.map(|(name, value)| (name, value.clone()));
            let labels = [("extension", extension.to_owned()), gvk, path, manager];
            counts.contended = Some((labels, field.count.into(), Instant::now()));
        }
        let corrections = &mut counts.corrections;
        let is_known = corrections.contains_key(&label) || corrections.len() < KINDS;
        *corrections.entry(if is_known { label } else { OTHER.to_owned() }).or_default() += 1;
    }

    /// Counts warnings about written objects.
    pub fn warned(&self, extension: &str, warnings: usize) {
        if warnings > 0 {
            self.0.lock().entry(extension.to_owned()).or_default().warnings += warnings as u64;
            self.1.fetch_add(warnings as u64, Ordering::Relaxed);
        }
    }

    /// Counts an object that outlived its revision.
    pub fn left(&self, gvk: &GroupVersionKind) {
        *self.2.lock().entry(label(gvk)).or_default() += 1;
    }

    /// Returns the number of warnings since the start.
    pub(super) fn warnings(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }

    /// Removes the counters of deleted extensions.
    pub fn retain(&self, is_alive: impl Fn(&str) -> bool) {
        self.0.lock().retain(|extension, _| is_alive(extension));
    }
}

impl Collector for RevisionMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.0.lock();
        let corrections = all.iter().flat_map(|(extension, counts)| {
            let labels =
                |gvk: &str| -> Labels<2> { [("extension", extension.clone()), ("gvk", gvk.to_owned())] };
            counts.corrections.iter().map(move |(gvk, count)| (labels(gvk), *count))
        });
        let help = "Objects restored after a change or deletion by another client";
        counters(&mut encoder, "operator_controller_extension_drift_corrections", help, corrections)?;
        let contended = all.values().filter_map(|counts| counts.contended.as_ref());
        let contended = contended.filter(|(_, _, at)| at.elapsed() < WINDOW);
        let contended = contended.map(|(labels, count, _)| (labels.clone(), *count as f64));
        let help =
            "Corrections of a field that another client keeps changing, at intervals of less than 10 minutes";
        gauges(&mut encoder, "operator_controller_extension_drift_contended", help, contended)?;
        let warnings = all
            .iter()
            .filter(|(_, counts)| counts.warnings > 0)
            .map(|(extension, counts)| ([("extension", extension.clone())], counts.warnings));
        let help = "Warnings of the API server about objects of an extension";
        counters(&mut encoder, "operator_controller_apply_warnings", help, warnings)?;
        let left = self.2.lock();
        let left = left.iter().map(|(gvk, count)| ([("gvk", gvk.clone())], *count));
        let help = "Objects whose deletion was denied until their revision was removed";
        counters(&mut encoder, "operator_controller_objects_left", help, left)
    }
}

#[cfg(test)]
mod tests {
    use olm_revision::contention::ContendedField;
    use olm_runtime::metrics::Metrics;

    use super::*;

    // Case additions-a48 (the counter), A-53
    #[test]
    fn series_are_bounded_and_removed_with_extension() {
        let (metrics, counted) = (Metrics::new(), RevisionMetrics::default());
        metrics.register_collector(counted.clone());
        let deployment = GroupVersionKind::gvk("apps", "v1", "Deployment");
        let field = |count: u32| Contention {
            fields: vec![ContendedField { path: ".spec.x".to_owned(), manager: "m".to_owned(), count }],
            ..Contention::default()
        };
        counted.corrected("a", &deployment, Some(&field(1)));
        assert!(!metrics.prometheus_text().contains("drift_contended{"));
        counted.corrected("a", &deployment, Some(&field(2)));
        counted.corrected("a", &GroupVersionKind::gvk("", "v1", "Service"), None);
        counted.corrected("a", &GroupVersionKind::gvk("", "v1", "Secret"), None);
        counted.warned("a", 0);
        let text = metrics.prometheus_text();
        let name = "operator_controller_extension_drift_corrections_total";
        for line in [
            format!("{name}{{extension=\"a\",gvk=\"apps/v1, Kind=Deployment\"}} 2"),
            format!("{name}{{extension=\"a\",gvk=\"other\"}} 2"),
            "operator_controller_extension_drift_contended{extension=\"a\",gvk=\"apps/v1, Kind=Deployment\",\
             field=\".spec.x\",manager=\"m\"} 2"
                .to_owned(),
            "# TYPE operator_controller_apply_warnings_total counter".to_owned(),
        ] {
            assert!(text.lines().any(|got| got == line), "{line} in\n{text}");
        }
        assert!(!text.contains("operator_controller_apply_warnings_total{"));
        counted.warned("a", 2);
        let warned = "operator_controller_apply_warnings_total{extension=\"a\"} 2";
        assert!(metrics.prometheus_text().lines().any(|got| got == warned));
        counted.left(&deployment);
        let left = "operator_controller_objects_left_total{gvk=\"apps/v1, Kind=Deployment\"} 1";
        assert!(metrics.prometheus_text().lines().any(|got| got == left));
        counted.retain(|extension| extension != "a");
        assert!(!metrics.prometheus_text().contains("extension=\"a\""));
    }
}
