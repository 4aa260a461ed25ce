//! Alerts and the dashboard: metrics and labels exist, and each alert links to a section of the documents.

// A test fails by panicking, in its helper functions too.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use olm_docs::{anchor, code_spans, document, documents, rows, sections};
use olm_manifests::{named, objects, path, text};
use regex::Regex;
use serde_json::Value;

/// Metrics of cAdvisor.
const FOREIGN: [&str; 3] =
    ["container_oom_events_total", "container_memory_working_set_bytes", "container_cpu_usage_seconds_total"];
/// Labels that Prometheus or cAdvisor add.
const ADDED: [&str; 5] = ["job", "namespace", "pod", "container", "le"];
/// Words of PromQL.
const WORDS: [&str; 4] = ["by", "or", "e3", "e6"];

/// Labels of the documented metrics, by name.
fn metrics() -> BTreeMap<String, String> {
    let page = document("reference/metrics.md").unwrap();
    let mut known = BTreeMap::new();
    for row in
        sections(&page.text).iter().flat_map(|section| rows(&section.lines)).filter(|row| row.len() > 2)
    {
        for name in code_spans(row[0]) {
            known.insert(name.to_owned(), row[row.len() - 2].to_owned());
        }
    }
    known
}

/// Metrics and labels of a PromQL expression that do not exist.
fn unknown(expression: &str, known: &BTreeMap<String, String>) -> Vec<String> {
    let mut unknown = Vec::new();
    let quoted = Regex::new(r#""[^"]*"|\[[^\]]*\]"#).unwrap().replace_all(expression, "").into_owned();
    let groups = Regex::new(r"by \(([^)]*)\)|\{([^}]*)\}").unwrap();
    let (label, mut labels) = (Regex::new(r"[a-z_]+").unwrap(), BTreeSet::new());
    for group in groups.captures_iter(&quoted) {
        let inner = group.get(1).or_else(|| group.get(2)).unwrap().as_str();
        labels.extend(label.find_iter(inner).map(|label| label.as_str().to_owned()));
    }
    let plain = groups.replace_all(&quoted, "").into_owned();
    let mut of_metrics = String::new();
    for word in Regex::new(r"\b[a-z][a-z0-9_]*\b\s*(\()?").unwrap().captures_iter(&plain) {
        let name = word[0].trim();
        if word.get(1).is_some() || WORDS.contains(&name) {
            continue;
        }
        let base = name.trim_end_matches("_bucket");
        match known.get(base) {
            Some(labels) => of_metrics += labels,
            None if FOREIGN.contains(&name) => {}
            None => unknown.push(name.to_owned()),
        }
    }
    let is_known = |label: &String| of_metrics.contains(label.as_str()) || ADDED.contains(&label.as_str());
    unknown.extend(labels.into_iter().filter(|label| !is_known(label)));
    unknown
}

fn alerts(file: &str) -> Vec<Value> {
    let all = objects(file);
    let rules = named(&all, "PrometheusRule", "olmv1-alerts");
    let groups = rules["spec"]["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).cloned().collect()
}

#[test]
fn alerts_use_existing_metrics_and_labels() {
    let known = metrics();
    for file in ["monitoring.yaml", "monitoring-cert-manager.yaml"] {
        for alert in alerts(file) {
            let unknown = unknown(text(&alert, "/expr"), &known);
            assert!(unknown.is_empty(), "{file}: {}: {unknown:?}", alert["alert"]);
        }
    }
}

#[test]
fn alerts_link_to_existing_sections_and_are_documented() {
    let pages: BTreeMap<String, BTreeSet<String>> = documents()
        .unwrap()
        .into_iter()
        .map(|page| (page.path, sections(&page.text).iter().map(|section| anchor(section.heading)).collect()))
        .collect();
    let mut names = BTreeSet::new();
    for alert in alerts("monitoring.yaml") {
        let link = text(&alert, "/annotations/runbook_url");
        let (page, section) = link.strip_prefix("docs/").and_then(|link| link.split_once('#')).unwrap();
        assert!(pages[page].contains(section), "{link}");
        names.insert(text(&alert, "/alert").to_owned());
    }
    let page = document("reference/metrics.md").unwrap();
    let sections = sections(&page.text);
    let section = sections.iter().find(|section| section.heading == "Alerts").unwrap();
    let documented = rows(&section.lines).into_iter().flat_map(|row| row[0].split(", "));
    assert_eq!(documented.map(str::to_owned).collect::<BTreeSet<_>>(), names);
}

#[test]
fn dashboard_uses_existing_metrics_and_labels_without_overlap() {
    let known = metrics();
    let file = std::fs::read(path("grafana-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_slice(&file).unwrap();
    let (mut ids, mut cells, mut count) = (BTreeSet::new(), BTreeSet::new(), 0);
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let position = |field: &str| panel["gridPos"][field].as_u64().unwrap();
        assert!(position("x") + position("w") <= 24, "{panel}");
        for y in position("y")..position("y") + position("h") {
            for x in position("x")..position("x") + position("w") {
                assert!(cells.insert((x, y)), "{panel}");
            }
        }
        for target in panel["targets"].as_array().into_iter().flatten() {
            let unknown = unknown(text(target, "/expr"), &known);
            assert!(unknown.is_empty(), "{}: {unknown:?}", panel["title"]);
            count += 1;
        }
    }
    assert!(count > 20, "{count} queries");
}

#[test]
fn unknown_metrics_and_labels_are_found() {
    let known = metrics();
    let of = |expression: &str| unknown(expression, &known);
    assert_eq!(of("sum by (catalog) (rate(catalogd_catalog_serving[5m])) > 100e3"), [""; 0]);
    assert_eq!(of("rate(catalogd_nothing{job=\"a\"}[5m])"), ["catalogd_nothing"]);
    assert_eq!(of("sum by (extension) (catalogd_catalog_serving{color=\"red\"})"), ["color", "extension"]);
}
