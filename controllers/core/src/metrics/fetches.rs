//! Attempts to fetch catalog content from catalogd.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use olm_runtime::samples::counters;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

/// Number of successful and of failed attempts by catalog.
#[derive(Clone, Debug, Default)]
pub struct Fetches(Arc<Mutex<BTreeMap<String, (u64, u64)>>>);

impl Fetches {
    /// Counts an attempt.
    pub fn count(&self, catalog: &str, is_success: bool) {
        let mut all = self.0.lock();
        let (successes, errors) = all.entry(catalog.to_owned()).or_default();
        *(if is_success { successes } else { errors }) += 1;
    }

    /// Returns the number of attempts by catalog.
    pub(super) fn attempts(&self) -> BTreeMap<String, u64> {
        let all = self.0.lock();
        all.iter().map(|(catalog, (successes, errors))| (catalog.clone(), successes + errors)).collect()
    }

    /// Removes the series of a deleted catalog.
    pub fn forget(&self, catalog: &str) {
        self.0.lock().remove(catalog);
    }
}

impl Collector for Fetches {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.0.lock();
        let series = all.iter().flat_map(|(catalog, (successes, errors))| {
            [("success", *successes), ("error", *errors)]
                .map(|(result, count)| ([("catalog", catalog.clone()), ("result", result.to_owned())], count))
        });
        let help = "Attempts to fetch catalog content from catalogd, by result";
        counters(&mut encoder, "operator_controller_catalog_fetch", help, series)
    }
}

#[cfg(test)]
mod tests {
    use olm_runtime::metrics::Metrics;

    use super::*;

    #[test]
    fn attempts_are_counted_until_catalog_is_deleted() {
        let (metrics, fetches) = (Metrics::new(), Fetches::default());
        metrics.register_collector(fetches.clone());
        fetches.count("a", true);
        fetches.count("a", false);
        fetches.count("a", true);
        let text = metrics.prometheus_text();
        for line in [
            "# TYPE operator_controller_catalog_fetch_total counter",
            "operator_controller_catalog_fetch_total{catalog=\"a\",result=\"success\"} 2",
            "operator_controller_catalog_fetch_total{catalog=\"a\",result=\"error\"} 1",
        ] {
            assert!(text.lines().any(|got| got == line), "{line} in\n{text}");
        }
        fetches.forget("a");
        assert!(!metrics.prometheus_text().contains("catalog=\"a\""));
    }
}
