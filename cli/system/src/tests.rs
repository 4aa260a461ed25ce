//! Decisions of `olm system`, without a cluster.

use clap::ValueEnum as _;
use olm_cli_core::change::{Completion, WriteResult};
use olm_cli_core::object_access::ObjectId;
use olm_cli_lifecycle::install_files::Variant;
use olm_cli_migrate::Migration;
use serde_json::{Value, json};

use super::apply::{Applied, adopted, undo};
use super::check::{Check, Level, Request, checks};
use super::manifest::{Manifest, dropped, embedded, images, is_same, order, version};
use super::observe::{Installed, Observed};
use super::ready::{are_available, judge};
use super::record::{Record, has_subject_in};
use super::uninstall::{Deleted, Plan, candidates, may_be_ours};
use crate::doctor::{Skew, skew};

const SYSTEM: &str = "olmv1-system";

fn install() -> Manifest {
    embedded(Variant::Install, SYSTEM).unwrap()
}

fn namespace(labels: Value) -> Value {
    json!({"metadata": {"name": SYSTEM, "labels": labels}})
}

/// Cluster on which nothing is wrong.
fn fresh() -> Observed {
    Observed { kubernetes: "v1.30.4+k3s1".to_owned(), is_admin: true, ..Observed::default() }
}

/// Cluster with servers of a version.
fn with_version(version: &str) -> Observed {
    let installed = Installed {
        deployments: install().of_kind("Deployment").cloned().collect(),
        version: version.to_owned(),
        record: None,
    };
    Observed { installed, namespace: Some(namespace(json!({"app.kubernetes.io/part-of": "olm"}))), ..fresh() }
}

fn manifest_of(version: &str) -> Manifest {
    Manifest { version: version.to_owned(), ..install() }
}

#[test]
fn every_embedded_file_is_applied_in_order_in_its_namespace() {
    for variant in Variant::value_variants().iter().copied() {
        let manifest = embedded(variant, "my-olm").unwrap();
        let ranks: Vec<u8> = manifest.objects.iter().map(order).collect();
        assert!(ranks.is_sorted(), "{variant:?}: {ranks:?}");
        assert_eq!(manifest.ids()[0], ObjectId::new(("v1", "Namespace"), "", "my-olm"));
        assert_eq!(manifest.objects.last().unwrap()["kind"], "MutatingWebhookConfiguration");
        assert!(!json!(manifest.objects).to_string().contains(SYSTEM), "{variant:?}");
        assert_eq!(manifest.variant, variant.name());
        assert_eq!(Variant::by_name(variant.name()), Some(variant));
        assert_eq!(images(&manifest.objects).len(), 2);
    }
}

#[test]
fn version_is_newest_label_or_image_tag() {
    let server = |label: Value, tag: &str| {
        json!({"kind": "Deployment", "metadata": {"labels": {"app.kubernetes.io/version": label}},
            "spec": {"template": {"spec": {"containers": [{"image": format!("r.example:5000/a{tag}")}]}}}})
    };
    for (label, tag, expected) in [
        (json!("v0.2.0-rc.1"), "@sha256:0", "v0.2.0-rc.1"),
        (json!("v0.2.0"), ":v0.3.0", "v0.2.0"),
        (Value::Null, ":v0.1.0", "v0.1.0"),
        (Value::Null, ":v0.1.0@sha256:0", "v0.1.0"),
        (Value::Null, ":devel", ""),
        (Value::Null, "@sha256:0", ""),
        (Value::Null, "", ""),
    ] {
        assert_eq!(version(&[server(label, tag)]), expected, "{tag}");
    }
    let interrupted = [server(json!("v0.10.0"), ""), server(json!("v0.9.0"), "")];
    assert_eq!(version(&interrupted), "v0.10.0");
    let other = Manifest::parse("a: b", "", SYSTEM, "file").unwrap_err().to_string();
    assert!(other.starts_with("file: not an install file of OLM"), "{other}");
}

#[test]
fn upgrade_keeps_crds_and_namespaces_and_deletes_webhooks_first() {
    let id = |api_version: &str, kind: &str, name: &str| ObjectId::new((api_version, kind), "", name);
    let hook = id("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "a");
    let role = id("rbac.authorization.k8s.io/v1", "ClusterRole", "a");
    let before = [
        id("v1", "Namespace", "a"),
        id("apiextensions.k8s.io/v1", "CustomResourceDefinition", "a"),
        role.clone(),
        id("policy/v1beta1", "PodDisruptionBudget", "a"),
        hook.clone(),
    ];
    let after = [id("policy/v1", "PodDisruptionBudget", "a"), id("v1", "ClusterRole", "a")];
    assert_eq!(dropped(&before, &after), [hook, role]);
    assert_eq!(dropped(&after, &after), []);
    assert!(!is_same(
        &ObjectId::new(("v1", "Service"), "x", "a"),
        &ObjectId::new(("v1", "Service"), "y", "a")
    ));
}

#[test]
fn installation_record_round_trips_and_drops_invalid_objects() {
    let mut manifest = install();
    let record = Record::new(&manifest, None);
    let object = record.to_object(SYSTEM).unwrap();
    assert_eq!(Record::of(&object), Some(record.clone()));
    assert_eq!(Record::of(&json!({"data": {"installation.yaml": "[]"}})), None);
    let mut invalid = record.clone();
    let names = ["a/b", "a?b", "a#b", "a%2e", "..", "", "ä"];
    let of = |name: &str| [ObjectId::new(("v1", "Pod"), "a", name), ObjectId::new(("v1", "Pod"), name, "a")];
    invalid.objects.extend(names.into_iter().flat_map(of).filter(|id| !id.namespace.is_empty()));
    invalid.objects.push(ObjectId::new(("a/../v1", "Pod"), "a", "a"));
    assert_eq!(invalid.remove_invalid().len(), 2 * names.len());
    assert_eq!(invalid, record);
    manifest.add(&record, SYSTEM).unwrap();
    assert_eq!((&manifest.objects[0]["kind"], &manifest.objects[1]), (&json!("Namespace"), &object));
}

#[test]
fn record_of_an_upgrade_names_earlier_objects_until_it_is_complete() {
    let dropped = ObjectId::new(("policy/v1", "PodDisruptionBudget"), SYSTEM, "old");
    let mut earlier = Record::new(&install(), None);
    earlier.objects.push(dropped.clone());
    let during = Record::new(&install(), Some(&earlier));
    assert_eq!(during.objects.last(), Some(&dropped));
    assert_eq!(during.objects.len(), install().objects.len() + 1);
    assert!(!Record::new(&install(), None).objects.contains(&dropped));
}

#[test]
fn record_names_no_foreign_crd_or_namespace() {
    let id = |kind: &str, name: &str| ObjectId::new(("v1", kind), "", name);
    for (kind, name, expected) in [
        ("CustomResourceDefinition", "clusterupgradestatuses.ext.olm.operatorframework.io", true),
        ("CustomResourceDefinition", "widgets.example.com", false),
        ("Namespace", SYSTEM, true),
        ("Namespace", "kube-system", false),
        ("ClusterRole", "a", true),
    ] {
        assert_eq!(may_be_ours(&id(kind, name), SYSTEM), expected, "{kind} {name}");
    }
}

fn failed(checks: &[Check]) -> Vec<&str> {
    let failed = checks.iter().filter(|check| check.level == Level::Failed);
    failed.map(|check| check.subject).collect()
}

#[test]
fn checks_of_a_fresh_cluster_pass_and_each_fault_fails_one() {
    let run = |observed: &Observed, name: &str| checks(&install(), observed, name, Request::default());
    let passed = run(&fresh(), SYSTEM);
    assert!(passed.iter().all(|check| check.level == Level::Passed), "{passed:?}");
    assert_eq!(failed(&run(&Observed::default(), SYSTEM)), ["permissions"]);
    for name in ["default", "kube-system"] {
        assert_eq!(failed(&run(&fresh(), name)), ["namespace"]);
    }
    let olm = json!({"app.kubernetes.io/part-of": "olm"});
    let mut deleted = namespace(olm.clone());
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let managed = |metadata: Value| vec![json!({"metadata": metadata})];
    let crd = "clustercatalogs.olm.operatorframework.io";
    let stored = json!({"metadata": {"name": crd}, "status": {"storedVersions": ["v1alpha1", "v1"]}});
    for (change, expected) in [
        (Observed { kubernetes: "v1.29.9".to_owned(), ..fresh() }, "Kubernetes"),
        (Observed { namespace: Some(namespace(json!({}))), ..fresh() }, "namespace"),
        (Observed { namespace: Some(deleted), ..fresh() }, "namespace"),
        (Observed { others: vec!["a/b".to_owned()], ..fresh() }, "other installations"),
        (Observed { unserved: vec!["Certificate".to_owned()], ..fresh() }, "kinds"),
        (
            Observed { crds: managed(json!({"name": crd, "ownerReferences": [{"name": "a"}]})), ..fresh() },
            "CRDs",
        ),
        (
            Observed { crds: managed(json!({"annotations": {"meta.helm.sh/release-name": "a"}})), ..fresh() },
            "CRDs",
        ),
        (Observed { crds: vec![stored], ..fresh() }, "CRDs"),
    ] {
        assert_eq!(failed(&run(&change, SYSTEM)), [expected], "{change:?}");
    }
}

#[test]
fn facts_that_do_not_prevent_an_installation_are_warnings() {
    let levels = |observed: &Observed| -> Vec<(&str, Level)> {
        let checks = checks(&install(), observed, SYSTEM, Request::default());
        let is_noted = |check: &&Check| check.level != Level::Passed;
        checks.iter().filter(is_noted).map(|check| (check.subject, check.level)).collect()
    };
    for (observed, expected) in [
        (Observed { kubernetes: "odd".to_owned(), ..fresh() }, ("Kubernetes", Level::Warning)),
        (
            Observed { images: vec![("a".to_owned(), Some("refused".to_owned()))], ..fresh() },
            ("image", Level::Warning),
        ),
        (with_version(""), ("installation", Level::Warning)),
    ] {
        assert_eq!(levels(&observed), [expected], "{observed:?}");
    }
}

#[test]
fn downgrade_needs_permission_and_upgrade_an_installation() {
    let run = |old: &str, new: &str, allow_downgrade| {
        let request = Request { is_upgrade: true, allow_downgrade };
        let observed = if old.is_empty() { fresh() } else { with_version(old) };
        failed(&checks(&manifest_of(new), &observed, SYSTEM, request)).join(",")
    };
    for (old, new, allow, expected) in [
        ("v0.1.0", "v0.2.0", false, ""),
        ("v0.1.0", "v0.1.0", false, ""),
        ("v0.2.0", "v0.1.0", false, "installation"),
        ("v0.2.0", "v0.2.0-rc.1", false, "installation"),
        ("v0.2.0", "v0.1.0", true, ""),
        ("unknown", "v0.1.0", false, ""),
        ("", "v0.1.0", false, "installation"),
    ] {
        assert_eq!(run(old, new, allow), expected, "{old} to {new}");
    }
}

#[test]
fn one_minor_version_of_skew_is_supported() {
    for (one, other, expected) in [
        ("0.1.0", "v0.1.3", Skew::Supported),
        ("v0.2.0", "v0.1.0", Skew::Supported),
        ("v0.1.0", "v0.2.0-rc.1", Skew::Supported),
        ("v0.1.0", "v0.3.0", Skew::Unsupported),
        ("v1.1.0", "v0.1.0", Skew::Unsupported),
        ("v0.1.0", "", Skew::Unknown),
        ("v0.1.0", "devel", Skew::Unknown),
    ] {
        assert_eq!(skew(one, other), expected, "{one} {other}");
    }
}

#[test]
fn fields_of_kubectl_apply_become_fields_of_the_installation() {
    let entry = |manager: &str, operation: &str, fields: Value| json!({"manager": manager, "operation": operation, "fieldsV1": fields});
    let other = entry("kubelet", "Update", json!({"f:status": {}}));
    let client = entry("kubectl-client-side-apply", "Update", json!({"f:a": {"f:b": {}}}));
    let server = entry("kubectl", "Apply", json!({"f:a": {"f:b": {}}}));
    let own = entry("olmv1-install", "Apply", json!({"f:a": {"f:c": {}}, "f:d": {}}));
    let united = json!({"f:a": {"f:b": {}, "f:c": {}}, "f:d": {}});
    assert_eq!(adopted(&json!([other, own])), None);
    assert_eq!(adopted(&Value::Null), None);
    let expected = vec![other.clone(), entry("olmv1-install", "Apply", json!({"f:a": {"f:b": {}}}))];
    assert_eq!(adopted(&json!([client, other])), Some(expected.clone()));
    assert_eq!(adopted(&json!([server, other])), Some(expected));
    let expected = vec![other.clone(), entry("olmv1-install", "Apply", united)];
    assert_eq!(adopted(&json!([client, other, own])), Some(expected));
}

#[test]
fn undo_restores_changed_objects_and_deletes_created_ones() {
    let id =
        |kind: &str, uid: &str| ObjectId { uid: uid.to_owned(), ..ObjectId::new(("v1", kind), "a", "a") };
    let one = |kind: &str, before: Option<Value>, result| {
        let uid = if before.is_none() { "created" } else { "" };
        Applied { id: id(kind, uid), before, result }
    };
    let before = json!({"apiVersion": "v1", "kind": "Service", "spec": {"a": 1}, "status": {}, "metadata":
        {"name": "a", "uid": "u", "resourceVersion": "1", "managedFields": [], "annotations":
            {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1"}}});
    let applied = [
        one("CustomResourceDefinition", None, WriteResult::Created),
        one("ConfigMap", None, WriteResult::Created),
        // The API server has not answered.
        Applied { id: id("Pod", ""), before: None, result: WriteResult::Created },
        one("Service", Some(before.clone()), WriteResult::Changed),
        one("Secret", Some(before), WriteResult::Unchanged),
    ];
    let restored = json!({"apiVersion": "v1", "kind": "Service", "spec": {"a": 1},
        "metadata": {"name": "a", "annotations": {"mine": "1"}}});
    assert_eq!(undo(&applied), [(id("Service", ""), Some(restored)), (id("ConfigMap", "created"), None)]);
}

#[test]
fn earlier_servers_are_restored_only_if_both_were_available() {
    let server = |status: &str| json!({"status": {"conditions": [{"type": "Available", "status": status}]}});
    assert!(are_available(&[server("True"), server("True")]));
    for deployments in [vec![], vec![server("True")], vec![server("True"), server("False")]] {
        assert!(!are_available(&deployments), "{deployments:?}");
    }
}

#[test]
fn binding_is_obsolete_only_with_a_subject_in_the_namespace_of_the_servers() {
    let binding =
        |namespace: &str| json!({"subjects": [{"kind": "User", "name": "a"}, {"namespace": namespace}]});
    assert!(has_subject_in(&binding(SYSTEM), SYSTEM));
    assert!(!has_subject_in(&binding("other"), SYSTEM));
    assert!(!has_subject_in(&json!({}), SYSTEM));
}

#[test]
fn unscheduled_pod_is_reported_with_its_reason() {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "a", "name": "server"}});
    let why = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.";
    let unscheduled = json!({"type": "PodScheduled", "status": "False", "message": why});
    let pod = json!({"kind": "Pod", "metadata": {"name": "p", "labels": {"control-plane": "server"}},
        "status": {"phase": "Pending", "conditions": [unscheduled]}});
    let Completion::InProgress(text) = judge(&[deployment], &[pod]).unwrap() else {
        panic!("not in progress")
    };
    assert!(text.ends_with(&format!("; Pod p is not ready: {why}")), "{text}");
}

#[test]
fn readiness_names_what_is_not_ready() {
    let deployment = |observed: u64, available: &str, progressing: &str| {
        let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "message": "m"});
        let conditions = [condition("Available", available), condition("Progressing", progressing)];
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "a", "name": "server", "generation": 2}, "status":
            {"observedGeneration": observed, "replicas": 1, "updatedReplicas": 1, "conditions": conditions}})
    };
    let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
    let pod = json!({"kind": "Pod", "metadata": {"name": "p", "labels": {"control-plane": "server"}},
        "status": {"containerStatuses": [{"state": waiting}]}});
    let hook = |ca: &str| {
        json!({"kind": "MutatingWebhookConfiguration", "metadata": {"name": "h"},
            "webhooks": [{"clientConfig": {"caBundle": ca}}]})
    };
    let group = "apiextensions.k8s.io/v1";
    let crd = json!({"apiVersion": group, "kind": "CustomResourceDefinition", "metadata": {"name": "c"}});
    let unavailable = ".status.condition[\"Available\"] is False";
    let stopped = "Pod p is not ready: waiting: ImagePullBackOff: no such image";
    for (object, expected) in [
        (deployment(2, "True", "True"), "Complete: the servers are ready".to_owned()),
        (deployment(1, "True", "False"), format!("InProgress: .status outdated; {stopped}")),
        (deployment(2, "False", "True"), format!("InProgress: {unavailable}; {stopped}")),
        (deployment(2, "False", "False"), format!("Failed: {unavailable}; {stopped}; the progress deadline")),
        (hook("Q0E="), "Complete: the servers are ready".to_owned()),
        (hook(""), "InProgress: MutatingWebhookConfiguration h has no CA bundle yet".to_owned()),
        (crd, "InProgress: Object CustomResourceDefinition.apiextensions.k8s.io/v1 /c: ".to_owned()),
    ] {
        let (state, text) = match judge(std::slice::from_ref(&object), std::slice::from_ref(&pod)).unwrap() {
            Completion::Complete(text) => ("Complete", text),
            Completion::InProgress(text) => ("InProgress", text),
            Completion::Failed(text) => ("Failed", text),
        };
        let text = text.replace("Object Deployment.apps/v1 a/server: ", "");
        assert!(format!("{state}: {text}").starts_with(&expected), "{state}: {text}, not {expected}");
    }
}

fn migration(is_complete: bool) -> Migration {
    Migration { package: "ns/lamp".to_owned(), is_complete }
}

#[test]
fn uninstall_candidates_exclude_installation_record() {
    let other = ObjectId::new(("v1", "ConfigMap"), SYSTEM, "custom");
    let record = Record { objects: vec![other.clone()], ..Record::new(&install(), None) };
    let installed = Installed { record: Some(record), ..Installed::default() };
    let ids = candidates(&installed, SYSTEM).unwrap();
    assert!(ids.contains(&other));
    assert!(!ids.contains(&super::record::id(SYSTEM)));
    assert_eq!(ids.last().map(|id| id.kind.as_str()), Some("Namespace"));
}

#[test]
fn uninstall_plan_names_policies_and_what_stays() {
    let extension = |name: &str, annotations: Value| {
        json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": name, "annotations": annotations}})
    };
    let keeps = json!({"ext.olm.operatorframework.io/uninstall-policy": "KeepCRDs"});
    let crd = ObjectId::of(install().of_kind("CustomResourceDefinition").next().unwrap());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}});
    let plan = Plan {
        objects: [extension("a", json!({})), extension("b", keeps), namespace]
            .iter()
            .map(Deleted::of)
            .collect(),
        migrations: vec![migration(true)],
        kept: vec![crd.clone()],
        ..Plan::default()
    };
    let kind = "clusterextension.olm.operatorframework.io";
    let expected = format!(
        "delete {kind}/a, with its objects, CRDs and custom resources\n\
         delete {kind}/b, with its objects; its uninstall policy is KeepCRDs\n\
         delete namespace/olmv1-system, with everything in it\n\
         delete backup of the migration of ns/lamp\n\
         keep   customresourcedefinition.apiextensions.k8s.io/{}\n",
        crd.name
    );
    assert_eq!(plan.text(), expected);
}

#[test]
fn uninstall_is_refused_while_extensions_or_finalizers_or_backups_would_remain() {
    let some = |kinds: &[&str], has_servers, migrations: &[bool]| Plan {
        objects: kinds.iter().map(|kind| Deleted::of(&json!({"kind": kind}))).collect(),
        migrations: migrations.iter().copied().map(migration).collect(),
        has_servers,
        ..Plan::default()
    };
    let (extension, revision, catalog) = ("ClusterExtension", "ClusterObjectSet", "ClusterCatalog");
    for (plan, purge, expected) in [
        (some(&[catalog], true, &[]), false, None),
        (some(&[extension, revision, catalog], true, &[true]), true, None),
        (some(&[extension], true, &[]), false, Some("uninstall the extensions first")),
        (some(&[revision], true, &[]), false, Some("uninstall the extensions first")),
        (some(&[extension], false, &[]), true, Some("no installed server")),
        (some(&[catalog], false, &[]), false, Some("no installed server")),
        (some(&[], false, &[]), true, None),
        (some(&[], true, &[true, false]), true, Some("the only backup of an unfinished migration")),
    ] {
        let refusal = plan.refusal(purge);
        let matches = match expected {
            Some(begin) => refusal.as_ref().is_some_and(|why| why.starts_with(begin)),
            None => refusal.is_none(),
        };
        assert!(matches, "{refusal:?} instead of {expected:?}");
    }
}
