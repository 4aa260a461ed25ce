//! Counters of the apply of revisions: corrected drift, and warnings of the API server.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kube::core::GroupVersionKind;
use olm_runtime::samples::{Labels, counters};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

/// Number of kinds per extension with their own series. Corrections of all other kinds are summed.
const KINDS: usize = 1;
/// Label value of all other kinds.
const OTHER: &str = "other";

/// Counters by extension, and the number of all warnings, also about deleted extensions.
#[derive(Clone, Debug, Default)]
pub(crate) struct RevisionMetrics(Arc<Mutex<BTreeMap<String, Counts>>>, Arc<AtomicU64>);

#[derive(Debug, Default)]
struct Counts {
    corrections: BTreeMap<String, u64>,
    warnings: u64,
}

impl RevisionMetrics {
    /// Counts an object whose drift was corrected after its revision had rolled out.
    pub(crate) fn corrected(&self, extension: &str, gvk: &GroupVersionKind) {
        let label = format!("{}, Kind={}", gvk.api_version(), gvk.kind);
        let mut all = self.0.lock();
        let corrections = &mut all.entry(extension.to_owned()).or_default().corrections;
        let is_known = corrections.contains_key(&label) || corrections.len() < KINDS;
        *corrections.entry(if is_known { label } else { OTHER.to_owned() }).or_default() += 1;
    }

    /// Counts warnings about written objects.
    pub(crate) fn warned(&self, extension: &str, warnings: usize) {
        if warnings > 0 {
            self.0.lock().entry(extension.to_owned()).or_default().warnings += warnings as u64;
            self.1.fetch_add(warnings as u64, Ordering::Relaxed);
        }
    }

    /// Returns the number of warnings since the start.
    pub(super) fn warnings(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }

    /// Removes the counters of deleted extensions.
    pub(crate) fn retain(&self, is_alive: impl Fn(&str) -> bool) {
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
        let warnings = all
            .iter()
            .filter(|(_, counts)| counts.warnings > 0)
            .map(|(extension, counts)| ([("extension", extension.clone())], counts.warnings));
        let help = "Warnings of the API server about objects of an extension";
        counters(&mut encoder, "operator_controller_apply_warnings", help, warnings)
    }
}

#[cfg(test)]
mod tests {
    use olm_runtime::metrics::Metrics;

    use super::*;

    // Case additions-a48 (the counter), A-53
    #[test]
    fn series_are_bounded_and_removed_with_extension() {
        let (metrics, counted) = (Metrics::new(), RevisionMetrics::default());
        metrics.register_collector(counted.clone());
        let deployment = GroupVersionKind::gvk("apps", "v1", "Deployment");
        counted.corrected("a", &deployment);
        counted.corrected("a", &deployment);
        counted.corrected("a", &GroupVersionKind::gvk("", "v1", "Service"));
        counted.corrected("a", &GroupVersionKind::gvk("", "v1", "Secret"));
        counted.warned("a", 0);
        let text = metrics.prometheus_text();
        let name = "operator_controller_extension_drift_corrections_total";
        for line in [
            format!("{name}{{extension=\"a\",gvk=\"apps/v1, Kind=Deployment\"}} 2"),
            format!("{name}{{extension=\"a\",gvk=\"other\"}} 2"),
            "# TYPE operator_controller_apply_warnings_total counter".to_owned(),
        ] {
            assert!(text.lines().any(|got| got == line), "{line} in\n{text}");
        }
        assert!(!text.contains("operator_controller_apply_warnings_total{"));
        counted.warned("a", 2);
        let warned = "operator_controller_apply_warnings_total{extension=\"a\"} 2";
        assert!(metrics.prometheus_text().lines().any(|got| got == warned));
        counted.retain(|extension| extension != "a");
        assert!(!metrics.prometheus_text().contains("extension=\"a\""));
    }
}
