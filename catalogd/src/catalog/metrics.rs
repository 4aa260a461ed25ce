//! Metrics of catalogs (docs/design/additions.md#metrics), exported by every replica. Serving comes from the status
//! and is the same everywhere. Bytes are those that this replica holds. Only the leader polls.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::reflector;
use olm_api::ClusterCatalog;
use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::conditions::types;
use olm_runtime::metrics::Metrics;
use olm_runtime::samples::{Labels, gauges};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::content::Store;

/// Registers the metrics of the catalogs in `catalogs`, of their content in `store`, and of their `polls`.
pub fn register(
    metrics: &Metrics,
    catalogs: reflector::Store<ClusterCatalog>,
    store: Arc<Store>,
    polls: Polls,
) {
    let classic = metrics.classic_names;
    metrics.register_collector(CatalogMetrics { catalogs, store, polls, classic });
}

/// Times of the last polls that succeeded, by catalog name.
#[derive(Clone, Debug, Default)]
pub struct Polls(Arc<Mutex<BTreeMap<String, Timestamp>>>);

impl Polls {
    pub(super) fn succeeded(&self, catalog: String, at: Timestamp) {
        self.0.lock().insert(catalog, at);
    }

    pub(super) fn forget(&self, catalog: &str) {
        self.0.lock().remove(catalog);
    }
}

#[derive(Debug)]
struct CatalogMetrics {
    catalogs: reflector::Store<ClusterCatalog>,
    store: Arc<Store>,
    polls: Polls,
    classic: bool,
}

impl Collector for CatalogMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut catalogs = self.catalogs.state();
        catalogs.sort_by_key(|catalog| catalog.name_any());
        let is_off = |catalog: &&Arc<ClusterCatalog>| {
            catalog.spec.availability_mode == Some(AvailabilityMode::Unavailable)
        };
        let off = catalogs.iter().filter(is_off).count();
        let counts =
            [(AvailabilityMode::Available, catalogs.len() - off), (AvailabilityMode::Unavailable, off)];
        let modes = counts.map(|(mode, count)| ([("availability_mode", mode.to_string())], count as f64));
        gauges(&mut encoder, "catalogd_catalogs", "Number of ClusterCatalogs", modes)?;
        let named = |name: String| -> Labels<1> { [("catalog", name)] };
        let serves = |catalog: &ClusterCatalog| f64::from(catalog.is_true(types::SERVING));
        let serving = catalogs.iter().map(|catalog| (named(catalog.name_any()), serves(catalog)));
        let help = "1 while the content of the catalog is served";
        gauges(&mut encoder, "catalogd_catalog_serving", help, serving)?;
        let templated = catalogs.iter().filter(|catalog| catalog.image_template().is_some());
        let resolved = templated.map(|catalog| {
            let is_resolved = catalog.is_true(types::IMAGE_TEMPLATE_RESOLVED);
            (named(catalog.name_any()), f64::from(is_resolved))
        });
        let help = "1 while the image template of the catalog is resolved, else 0";
        gauges(&mut encoder, "catalogd_catalog_image_template_resolved", help, resolved)?;
        let bytes = catalogs.iter().filter_map(|catalog| {
            let name = catalog.name_any();
            let length = self.store.get(&name)?.data.length;
            Some((named(name), length as f64))
        });
        let help = "Bytes of the catalog's content that this replica holds";
        gauges(&mut encoder, "catalogd_catalog_bytes", help, bytes)?;
        let polls = self.polls.0.lock().clone();
        let polls = polls.into_iter().map(|(name, at)| (named(name), at.as_second() as f64));
        let help = "Unix time of the last successful poll of the catalog's image by this replica";
        gauges(&mut encoder, "catalogd_catalog_last_poll_timestamp_seconds", help, polls)?;
        if !self.classic {
            return Ok(());
        }
        let count = [([], catalogs.len() as f64)];
        gauges(&mut encoder, "catalog_source_count", "Number of ClusterCatalogs", count)?;
        let classic_name = |name: String| [("namespace", String::new()), ("name", name)];
        let ready = catalogs.iter().map(|catalog| (classic_name(catalog.name_any()), serves(catalog)));
        gauges(&mut encoder, "catalogsource_ready", "1 while the content of the catalog is served", ready)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kube::runtime::watcher::Event;
    use olm_api::annotations::EXT_IMAGE_TEMPLATE;
    use serde_json::json;

    use super::*;

    fn catalog(name: &str, mode: &str, serving: &str) -> ClusterCatalog {
        serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": name},
            "spec": {"availabilityMode": mode, "source": {"type": "Image", "image": {"ref": "r.example/c:1"}}},
            "status": {"conditions": [{"type": "Serving", "status": serving, "reason": "R", "message": "",
                                       "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }))
        .unwrap()
    }

    // Case additions-a53
    #[test]
    fn metrics_report_catalogs_and_held_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("c.json"), r#"{"schema":"olm.package","name":"p","defaultChannel":"s"}"#)
            .unwrap();
        let store = Arc::new(Store::open(folder.path()).unwrap());
        let size = store.replace("a", &root, "r.example/c@sha256:1".to_owned()).unwrap().data.length;
        let (catalogs, mut writer) = reflector::store();
        let (mut a, b) = (catalog("a", "Available", "True"), catalog("b", "Unavailable", "False"));
        a.annotations_mut().insert(EXT_IMAGE_TEMPLATE.to_owned(), "r.example/c:{foo}".to_owned());
        for one in [a, b] {
            writer.apply_watcher_event(&Event::Apply(one));
        }
        let plain = Metrics::new();
        let polls = Polls::default();
        for name in ["a", "gone"] {
            polls.succeeded(name.to_owned(), Timestamp::from_second(1_800_000_000).unwrap());
        }
        polls.forget("gone");
        register(&plain, catalogs.clone(), Arc::clone(&store), polls.clone());
        let text = plain.prometheus_text();
        for line in [
            "catalogd_catalogs{availability_mode=\"Available\"} 1".to_owned(),
            "catalogd_catalogs{availability_mode=\"Unavailable\"} 1".to_owned(),
            "catalogd_catalog_serving{catalog=\"a\"} 1".to_owned(),
            "catalogd_catalog_serving{catalog=\"b\"} 0".to_owned(),
            "catalogd_catalog_image_template_resolved{catalog=\"a\"} 0".to_owned(),
            format!("catalogd_catalog_bytes{{catalog=\"a\"}} {size}"),
            "catalogd_catalog_last_poll_timestamp_seconds{catalog=\"a\"} 1800000000".to_owned(),
        ] {
            assert!(text.lines().any(|got| got == line), "no {line} in\n{text}");
        }
        assert!(!text.contains("image_template_resolved{catalog=\"b\"}"));
        assert!(!text.contains("catalog_source_count") && !text.contains("catalog_bytes{catalog=\"b\"}"));
        let mut classic = Metrics::new();
        classic.classic_names = true;
        assert!(!text.contains("catalog=\"gone\""));
        register(&classic, catalogs, store, polls);
        let text = classic.prometheus_text();
        for line in ["catalog_source_count 2", "catalogsource_ready{namespace=\"\",name=\"b\"} 0"] {
            assert!(text.lines().any(|got| got == line), "no {line} in\n{text}");
        }
    }
}
