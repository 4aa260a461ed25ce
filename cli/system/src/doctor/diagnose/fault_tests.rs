//! The faults of `docs/troubleshooting.md`: each is found in an otherwise healthy cluster, and nothing else.

use std::collections::BTreeSet;

use olm_docs::{anchor, code_spans, document, rows, sections};
use serde_json::json;

use super::diagnose;
use super::fixture::{healthy, now, progress, set_condition};
use crate::doctor::observed::{Log, Observed};
use crate::doctor::rule::{self, CAUSES, OF_DELETIONS, OF_LOGS, RULES, recognize};

const PAGE: &str = "troubleshooting.md";

/// Fault of a cluster.
struct Fault {
    heading: &'static str,
    plant: fn(&mut Observed),
    /// Rule and, if recognized, cause.
    found: &'static str,
    /// Part of the remedy.
    remedy: &'static str,
}

/// Message of condition `Progressing` of the extension.
fn retrying(observed: &mut Observed, message: &str) {
    progress(observed, "ClusterExtension", "True", "Retrying", message);
}

/// Message of condition `Progressing` of the catalog.
fn unpacking(observed: &mut Observed, message: &str) {
    progress(observed, "ClusterCatalog", "True", "Retrying", message);
}

/// Status of the container of the pod of operator-controller.
fn container(observed: &mut Observed, status: serde_json::Value) -> &mut serde_json::Value {
    let pods = observed.objects.get_mut("Pod").unwrap();
    pods[1]["status"]["containerStatuses"] = json!([status]);
    &mut pods[1]
}

const FAULTS: [Fault; 20] = [
    Fault {
        heading: "no bundles found for package",
        plant: |observed| {
            retrying(observed, "no bundles found for package \"demo\" matching version \"9.9.9\"");
        },
        found: "RESOLVE-1",
        remedy: "olm resolve --extension NAME --explain",
    },
    Fault {
        heading: "found bundles for package … in multiple catalogs with the same priority",
        plant: |observed| {
            retrying(
                observed,
                "found bundles for package \"demo\" in multiple catalogs with the same priority [a b]",
            );
        },
        found: "RESOLVE-2",
        remedy: "spec.priority",
    },
    Fault {
        heading: "catalog … is not being served",
        plant: |observed| retrying(observed, "error: catalog \"hub\" is not being served"),
        found: "RESOLVE-3",
        remedy: "availabilityMode: Unavailable",
    },
    Fault {
        heading: "has a dependency declared via property … which is currently not supported",
        plant: |observed| {
            retrying(
                observed,
                "validating bundle \"demo.v1\": bundle \"demo.v1\" has a dependency declared via property \
                 \"olm.package.required\" which is currently not supported",
            );
        },
        found: "RESOLVE-4",
        remedy: "--with-dependencies",
    },
    Fault {
        heading: "error for resolved bundle … with version …",
        plant: |observed| {
            retrying(
                observed,
                "error for resolved bundle \"demo.v1\" with version \"1.0.0\": pulling: 401 Unauthorized",
            );
        },
        found: "INSTALL-1 CAUSE-3",
        remedy: "pull Secret",
    },
    Fault {
        heading: "phase … validation error",
        plant: |observed| {
            retrying(
                observed,
                "error for resolved bundle \"demo.v1\" with version \"1.0.0\": phase 0 validation error: \
                 namespaces \"demo\" not found",
            );
        },
        found: "INSTALL-2",
        remedy: "create spec.namespace",
    },
    Fault {
        heading: "invalid ClusterExtension configuration",
        plant: |observed| {
            let message = "error for resolved bundle \"demo.v1\" with version \"1.0.0\": invalid \
                ClusterExtension configuration: unknown field \"nope\"";
            progress(observed, "ClusterExtension", "False", "InvalidConfiguration", message);
        },
        found: "INSTALL-3",
        remedy: "olm config explain",
    },
    Fault {
        heading: "revision object collisions in phase",
        plant: |observed| {
            retrying(observed, "revision object collisions in phase 2\nObject ConfigMap.v1 demo/settings");
        },
        found: "INSTALL-4",
        remedy: "Delete the object",
    },
    Fault {
        heading: "validating upgrade for CRD",
        plant: |observed| {
            retrying(
                observed,
                "error for resolved bundle \"demo.v2\" with version \"2.0.0\": validating upgrade for CRD \
                 \"a.example.com\": v1: ^.spec: required: new required fields: [a]",
            );
        },
        found: "INSTALL-5",
        remedy: "crd-check",
    },
    Fault {
        heading: "Revision … is rolling out.",
        plant: |observed| {
            progress(observed, "ClusterExtension", "True", "RollingOut", "Revision 1.0.0 is rolling out.");
            let message = "Object Deployment.apps demo/demo: condition \"Available\" is False";
            set_condition(observed, "ClusterObjectSet", "Available", "False", "ProbeFailure", message);
            let set = &mut observed.objects.get_mut("ClusterObjectSet").unwrap()[0];
            set["status"]["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T11:50:00Z");
        },
        found: "ROLLOUT-1",
        remedy: "pods of the object",
    },
    Fault {
        heading: "Object … missing .status.conditions, is False, outdated",
        plant: |observed| {
            let message = "Object Deployment.apps demo/demo: missing .status.conditions";
            set_condition(observed, "ClusterExtension", "Available", "False", "ProbeFailure", message);
        },
        found: "ROLLOUT-3",
        remedy: "pods of the object",
    },
    Fault {
        heading: "deprecated",
        plant: |observed| {
            let message = "channel \"old\" is deprecated: use \"stable\"";
            set_condition(observed, "ClusterExtension", "Deprecated", "True", "Deprecated", message);
        },
        found: "UPGRADE-1",
        remedy: "pin the version",
    },
    Fault {
        heading: "Unexpected changes, or no upgrade",
        plant: |observed| {
            let message = "version 2.0.0 is outside of the range; olm upgrade demo --latest";
            set_condition(
                observed,
                "ClusterExtension",
                "UpgradeAvailable",
                "True",
                "OutsideVersionRange",
                message,
            );
        },
        found: "UPGRADE-2",
        remedy: "releases it",
    },
    Fault {
        heading: "source catalog content",
        plant: |observed| {
            unpacking(observed, "source catalog content: dial tcp: lookup r.example: no such host")
        },
        found: "CATALOG-1 CAUSE-1",
        remedy: "Check DNS",
    },
    Fault {
        heading: "error storing fbc",
        plant: |observed| unpacking(observed, "error storing fbc: package \"a\" has no channel"),
        found: "CATALOG-2",
        remedy: "olm validate IMAGE",
    },
    Fault {
        heading: "failed calling webhook \"inject-metadata-name.olm.operatorframework.io\"",
        plant: |observed| {
            observed.webhook_failure = Some(
                "Internal error occurred: failed calling webhook \
                 \"inject-metadata-name.olm.operatorframework.io\": connection refused"
                    .to_owned(),
            );
        },
        found: "CATALOG-3",
        remedy: "Repair catalogd",
    },
    Fault {
        heading: "Deletion hangs",
        plant: |observed| {
            let message = "cannot uninstall: 1 custom resources exist (first: greetings demo/hello)";
            progress(observed, "ClusterExtension", "False", "Blocked", message);
            let extension = &mut observed.objects.get_mut("ClusterExtension").unwrap()[0];
            extension["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:00Z");
        },
        found: "DELETE-2",
        remedy: "uninstall-policy",
    },
    Fault {
        heading: "The cluster cannot be upgraded",
        plant: |observed| {
            observed.add("ClusterUpgradeStatus", json!({"metadata": {"name": "cluster"}}));
            let reason = "IncompatibleOperatorsInstalled";
            set_condition(observed, "ClusterUpgradeStatus", "Upgradeable", "False", reason, "demo");
        },
        found: "PLATFORM-1",
        remedy: "olm cluster-check",
    },
    Fault {
        heading: "The servers do not start",
        plant: |observed| {
            let waiting = json!({"name": "manager", "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}}});
            let pod = container(observed, waiting)["metadata"]["name"].as_str().unwrap().to_owned();
            let text = "starting\nError: unrecognized feature gate: Nope\n".to_owned();
            observed.logs.push(Log { pod, container: "manager".to_owned(), previous: true, text });
        },
        found: "SERVER-1 LOG-1",
        remedy: "Remove the gate",
    },
    Fault {
        heading: "A server is not ready",
        plant: |observed| {
            let running = json!({"name": "manager", "restartCount": 0, "state": {"running": {}}});
            let pod = container(observed, running);
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
            let pod = pod["metadata"]["name"].as_str().unwrap().to_owned();
            observed.readiness.insert(pod, "[-]catalogs failed: reason withheld".to_owned());
        },
        found: "SERVER-2",
        remedy: "readiness check",
    },
];

#[test]
fn each_fault_is_the_only_finding_and_names_its_remedy() {
    for fault in FAULTS {
        let mut observed = healthy();
        (fault.plant)(&mut observed);
        let found = diagnose(&observed, now());
        let [finding] = &found[..] else { panic!("{}: {found:#?}", fault.heading) };
        let cause = finding.place.cause.map(|cause| format!(" {}", cause.id)).unwrap_or_default();
        assert_eq!(format!("{}{cause}", finding.rule.id), fault.found, "{}", fault.heading);
        let rule = RULES.iter().find(|rule| rule.id == finding.rule.id).unwrap();
        assert_eq!(rule.check.anchor, anchor(fault.heading), "{}", fault.heading);
        assert!(finding.place.remedy.contains(fault.remedy), "{}: {}", fault.heading, finding.place.remedy);
    }
}

/// Headings of the page that explain a fault: those without headings below, except for the last one.
fn fault_headings(text: &str) -> Vec<&str> {
    let headings: BTreeSet<&str> = sections(text).iter().map(|section| section.heading).collect();
    let is_heading =
        |line: &&str| headings.contains(line.trim_start_matches('#').trim()) && line.starts_with('#');
    let lines: Vec<&str> = text.lines().filter(is_heading).collect();
    let level = |line: &str| line.bytes().take_while(|byte| *byte == b'#').count();
    let is_leaf = |at: usize| lines.get(at + 1).is_none_or(|next| level(next) <= level(lines[at]));
    let leaves =
        (0..lines.len()).filter(|at| is_leaf(*at)).map(|at| lines[at].trim_start_matches('#').trim());
    leaves.filter(|heading| *heading != "What to send with a question").collect()
}

#[test]
fn headings_of_the_page_and_rules_match_in_both_directions() {
    let page = document(PAGE).unwrap();
    let headings = fault_headings(&page.text);
    let there: BTreeSet<String> = headings.iter().map(|heading| anchor(heading)).collect();
    let here: BTreeSet<String> = RULES.iter().map(|rule| rule.check.anchor.to_owned()).collect();
    assert_eq!(there, here, "docs/{PAGE} and cli/system/src/doctor/rule.rs");
    let planted: BTreeSet<&str> = FAULTS.iter().map(|fault| fault.heading).collect();
    let with_message: BTreeSet<&str> =
        headings.into_iter().filter(|heading| *heading != "Faults without a message").collect();
    assert_eq!(planted, with_message);
}

#[test]
fn doctor_recognizes_messages_of_troubleshooting_page() {
    let page = document(PAGE).unwrap();
    let mut count = 0;
    for section in sections(&page.text) {
        let rules: &[&rule::DoctorRule] = match section.heading {
            "error for resolved bundle … with version …" => CAUSES,
            "Deletion hangs" => OF_DELETIONS,
            "The servers do not start" => OF_LOGS,
            _ => continue,
        };
        for row in rows(&section.lines) {
            for text in code_spans(row[0]) {
                count += 1;
                assert!(recognize(rules, &text.replace('…', "x")).is_some(), "docs/{PAGE}: {text}");
            }
        }
    }
    assert!(count > 25, "{count} texts");
    for rule in RULES.iter().filter(|rule| !rule.check.texts.is_empty()) {
        let known = page.text.replace('`', "").replace('…', "x");
        let is_known = rule.check.texts.iter().any(|text| known.contains(&text.replace('…', "x ")))
            || rule.check.texts.iter().any(|text| known.contains(text.split('…').next().unwrap_or_default()));
        assert!(is_known, "{}: docs/{PAGE} has none of {:?}", rule.id, rule.check.texts);
    }
}

#[test]
fn faults_without_message_are_listed_on_the_page() {
    let page = document(PAGE).unwrap();
    let sections = sections(&page.text);
    let section = sections.iter().find(|section| section.heading == "Faults without a message").unwrap();
    let mut there = BTreeSet::new();
    for row in rows(&section.lines) {
        there.extend(code_spans(row[0]));
    }
    let here: BTreeSet<&str> = RULES
        .iter()
        .filter(|rule| rule.check.anchor == anchor(section.heading))
        .map(|rule| rule.id)
        .collect();
    assert_eq!(there, here);
}
