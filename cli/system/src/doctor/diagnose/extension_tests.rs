//! Faults of extensions, revisions and catalogs.

use std::collections::BTreeSet;

use olm_cli_migrate::ClassicPackage;
use serde_json::json;

use super::diagnose;
use super::fixture::{after, first, found, healthy, now, owned_by, progress, set_condition};
use crate::doctor::observed::{Observed, PullSecret};

#[test]
fn every_cause_of_a_failed_bundle_is_recognized() {
    for (why, cause) in [
        ("failed calling webhook \"a\": dial tcp: connection refused", " CAUSE-9"),
        ("dial tcp: lookup r.example: no such host", " CAUSE-1"),
        ("tls: certificate signed by unknown authority", " CAUSE-2"),
        ("denied: requested access", " CAUSE-3"),
        ("manifest unknown", " CAUSE-4"),
        ("no namespace matches watchNamespaceSelector a=b", " CAUSE-5"),
        ("unsupported bundle: no AllNamespaces", " CAUSE-6"),
        ("clusterroles \"a\" is forbidden: no", " CAUSE-7"),
        ("admission webhook \"a\" denied the request: no", " CAUSE-8"),
        ("sha256:e403f401 is odd", ""),
    ] {
        let message = format!("error for resolved bundle \"demo.v1\" with version \"1.0.0\": {why}");
        let found = after(|observed| progress(observed, "ClusterExtension", "True", "Retrying", &message));
        assert_eq!(found, [format!("INSTALL-1{cause}: ClusterExtension demo")], "{why}");
    }
}

#[test]
fn denied_registry_names_registries_of_pull_secrets() {
    let mut observed = healthy();
    let registries = Ok(vec!["other.example.com".to_owned()]);
    observed.pull_secrets.push(PullSecret { name: "a/b".to_owned(), registries });
    progress(&mut observed, "ClusterCatalog", "True", "Retrying", "source catalog content: unauthorized");
    let findings = diagnose(&observed, now());
    let message = "source catalog content: unauthorized (registries of the pull Secrets: other.example.com)";
    assert_eq!(findings[0].message, message);
    observed.pull_secrets[0].registries = Err("it does not exist".to_owned());
    assert!(found(&observed).contains(&"SECRET-1: Secret a/b".to_owned()));
}

#[test]
fn every_cause_of_a_hanging_deletion_is_recognized() {
    for (message, rule) in [
        ("cannot uninstall: 2 custom resources exist (first: a)", "DELETE-2"),
        ("waiting for 1 a (first: b): finalizer c", "DELETE-3"),
        ("revision a is removed, but custom resources are left: b", "DELETE-4"),
        ("waiting for the deletion of CustomResourceDefinition a", "DELETE-5"),
        ("uninstall waits: installed extension b requires a", "DELETE-6"),
        ("removing revision resources that are not owned by another revision", "DELETE-7"),
        ("objects of revision demo-1 are unknown: lost", "DELETE-8"),
        ("something", "DELETE-1"),
    ] {
        let found = after(|observed| {
            progress(observed, "ClusterObjectSet", "True", "Retrying", message);
            let extension = first(observed, "ClusterExtension");
            extension["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:00:00Z");
        });
        assert_eq!(found, [format!("{rule}: ClusterExtension demo")], "{message}");
    }
    // Without a known cause, a deletion has two minutes.
    let young = after(|observed| {
        first(observed, "ClusterExtension")["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:00Z");
    });
    assert_eq!(young, [""; 0]);
}

#[test]
fn other_installations_classic_packages_and_orphans_are_found() {
    let found = after(|observed| {
        for (namespace, labels) in
            [("old-olm", json!({"app.kubernetes.io/part-of": "olm"})), ("tenant", json!({}))]
        {
            observed.add("Namespace", json!({"metadata": {"name": namespace, "labels": labels}}));
            let metadata = json!({"name": "catalogd-controller-manager", "namespace": namespace});
            observed.add("Deployment", json!({"metadata": metadata}));
        }
        let twin = Some("ClusterExtension demo installs the package".to_owned());
        observed.classic.push(ClassicPackage { name: "operators/demo".to_owned(), twin });
        observed.add("ClusterRole", json!({"metadata": {"name": "lost", "labels": owned_by("gone")}}));
    });
    assert_eq!(
        found,
        [
            "CLASSIC-2: Subscription operators/demo",
            "INSTALLATION-1: Namespace old-olm",
            "ORPHAN-1: ClusterExtension gone",
            "CLASSIC-1: Subscriptions",
        ]
    );
}

#[test]
fn denied_deletion_of_revision_without_extension_is_found() {
    let found = after(|observed| {
        let message = "waiting for deletions that are denied: CRDs are kept here";
        let status = json!({"conditions": [{"type": "Progressing", "status": "True", "reason": "Retrying",
            "message": message, "lastTransitionTime": "2026-01-01T11:59:59Z"}]});
        observed.add(
            "ClusterObjectSet",
            json!({"metadata": {"name": "gone-1", "labels": owned_by("gone"),
                "deletionTimestamp": "2026-01-01T11:59:59Z"}, "status": status}),
        );
        observed.add("ClusterRole", json!({"metadata": {"name": "left", "labels": owned_by("gone")}}));
    });
    assert_eq!(found, ["DELETE-9: ClusterObjectSet gone-1"]);
}

#[test]
fn rollouts_conditions_and_holds_of_extensions_are_found() {
    let extension = |change: &dyn Fn(&mut Observed)| after(change);
    let set = |status: &'static str, reason: &'static str, message: &'static str| {
        extension(&move |observed| progress(observed, "ClusterExtension", status, reason, message))
    };
    assert_eq!(set("True", "RollingOut", "Revision 1.0.0 is rolling out."), [""; 0]);
    let probe = extension(&|observed| {
        progress(observed, "ClusterExtension", "True", "RollingOut", "Revision 1.0.0 is rolling out.");
        set_condition(observed, "ClusterObjectSet", "Available", "False", "ProbeFailure", "x");
    });
    assert_eq!(probe, [""; 0], "for two minutes");
    let explained = extension(&|observed| {
        progress(observed, "ClusterExtension", "True", "RollingOut", "Revision 1.0.0 is rolling out.");
        let message = "x; its pods are not created: exceeded quota: none";
        set_condition(observed, "ClusterObjectSet", "Available", "False", "ProbeFailure", message);
    });
    assert_eq!(explained, ["ROLLOUT-1: ClusterExtension demo"]);
    let late = "Revision has not rolled out for 5 minute(s). Last status: x";
    assert_eq!(set("False", "ProgressDeadlineExceeded", late), ["ROLLOUT-2: ClusterExtension demo"]);
    assert_eq!(set("True", "Retrying", "something new"), ["INSTALL-6: ClusterExtension demo"]);
    let waits = "installation of bundle demo.v1 version 1.0.0 requires approval; plan sha256:a: x";
    assert_eq!(set("False", "Blocked", waits), ["UPGRADE-2: ClusterExtension demo"]);
    let silent =
        extension(&|observed| first(observed, "ClusterExtension")["status"]["conditions"] = json!([]));
    assert_eq!(silent, ["INSTALL-7: ClusterExtension demo"]);
    let unsatisfied = extension(&|observed| {
        set_condition(
            observed,
            "ClusterExtension",
            "DependenciesSatisfied",
            "False",
            "Unsatisfied",
            "needs a",
        );
    });
    assert_eq!(unsatisfied, ["RESOLVE-5: ClusterExtension demo"]);
    let gone = extension(&|observed| observed.offered = Some(BTreeSet::new()));
    assert_eq!(gone, ["UPGRADE-4: ClusterExtension demo"]);
    let misspelled = extension(&|observed| {
        let metadata = &mut first(observed, "ClusterExtension")["metadata"];
        metadata["annotations"] = json!({"ext.olm.operatorframework.io/uninstall-policy": "keepcrds"});
    });
    assert_eq!(misspelled, ["ANNOTATION-1: ClusterExtension demo"]);
    let drift = extension(&|observed| {
        observed.add(
            "Event",
            json!({"metadata": {"name": "e"}, "reason": "DriftCorrected", "message": "restored",
            "involvedObject": {"kind": "ClusterExtension", "name": "demo"}}),
        );
    });
    assert_eq!(drift, ["UPGRADE-3: ClusterExtension demo"]);
}

#[test]
fn catalogs_that_catalogd_does_not_reconcile_are_found() {
    let silent = after(|observed| first(observed, "ClusterCatalog")["status"] = json!({}));
    assert_eq!(silent, ["INSTALL-7: ClusterCatalog hub"]);
    let stuck = after(|observed| {
        first(observed, "ClusterCatalog")["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:00:00Z");
    });
    assert_eq!(stuck, ["DELETE-1: ClusterCatalog hub"]);
}
