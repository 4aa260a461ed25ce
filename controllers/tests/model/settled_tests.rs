use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::admission::injected;
use crate::intent::{Config, Denied};
use crate::snapshot::overlay;
use crate::universe::objects;
use crate::verdict::is_spec_applied;

const NAME: &str = "xm1";

/// Settled extension: revision 1 of 1.0.0 with its objects, as the model expects them.
struct Case {
    intent: Intent,
    window: Window,
    snapshot: Snapshot,
}

fn conditions(all: &[(&str, &str, &str, &str)]) -> Value {
    let made = all.iter().map(|(type_, status, reason, message)| {
        json!({"type": type_, "status": status, "reason": reason, "message": message, "observedGeneration": 1})
    });
    made.collect()
}

fn owner(kind: &str, uid: &str) -> Value {
    json!([{"kind": kind, "uid": uid, "controller": true}])
}

/// Content of 1.0.0.
fn content() -> Vec<(String, Vec<Value>)> {
    let objects = objects(NAME, &VERSIONS[0], None);
    let made = objects.into_iter().map(|(key, mut content)| {
        content["kind"] = key.kind.into();
        content["metadata"] = json!({"name": key.name, "namespace": key.namespace});
        content
    });
    vec![("all".to_owned(), made.collect())]
}

impl Case {
    fn new() -> Self {
        let mut intent = Intent::new(NAME);
        intent.desired_spec =
            Some(DesiredSpec { version: Some("1.0.0".to_owned()), ..DesiredSpec::default() });
        let mut snapshot = Snapshot::default();
        let rolled_out = ("Progressing", "True", "Succeeded", "Revision 1.0.0 has rolled out.");
        snapshot.revisions.push(Revision {
            object: Arc::new(json!({
                "kind": "ClusterObjectSet",
                "metadata": {"name": "xm1-1", "uid": "r1", "ownerReferences": owner("ClusterExtension", "e"),
                    "annotations": {"olm.operatorframework.io/bundle-version": "1.0.0"}},
                "spec": {"lifecycleState": "Active", "revision": 1},
                "status": {"conditions": conditions(&[
                    rolled_out,
                    ("Available", "True", "ProbesSucceeded", "Objects are available and pass all probes."),
                    ("Succeeded", "True", "Succeeded", "Revision succeeded rolling out."),
                ])},
            })),
            content: Some(content()),
        });
        snapshot.extension = Some(Arc::new(json!({
            "kind": "ClusterExtension", "metadata": {"name": NAME, "uid": "e", "generation": 1},
            "status": {"install": {"bundle": {"version": "1.0.0"}}, "conditions": conditions(&[
                rolled_out, ("Installed", "True", "Succeeded", "Installed bundle x successfully")])},
        })));
        for mut object in content().remove(0).1 {
            let metadata = object["metadata"].as_object_mut().unwrap();
            metadata.insert("uid".to_owned(), format!("uid of {}", metadata["name"]).into());
            metadata.insert("generation".to_owned(), 1.into());
            metadata.insert("ownerReferences".to_owned(), owner("ClusterObjectSet", "r1"));
            metadata.insert("annotations".to_owned(), json!({REVISION: "1"}));
            metadata.insert(
                "labels".to_owned(),
                json!({"app.kubernetes.io/managed-by": "olm.operatorframework.io", OWNER_NAME: NAME,
                    "olm.operatorframework.io/owner-kind": "ClusterExtension"}),
            );
            if object["kind"] == "Deployment" {
                overlay(&mut object, &injected());
            }
            object["status"] = json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1,
                "conditions": conditions(&[("Available", "True", "", ""), ("Established", "True", "", "")])});
            snapshot.objects.insert(Key::of(&object), Arc::new(object));
        }
        let namespace = json!({"kind": "Namespace", "metadata": {"name": NAME, "uid": "n"}});
        snapshot.objects.insert(Key::of(&namespace), Arc::new(namespace));
        let window = Window { installed: Some(0), ..Window::new(&intent) };
        Self { intent, window, snapshot }
    }

    fn faults(&self) -> Vec<String> {
        faults(&self.intent, &self.window, &self.snapshot)
    }

    /// Fails unless there is exactly one fault, and it contains this text.
    fn expect(&self, expected: &str) {
        let faults = self.faults();
        assert!(matches!(&faults[..], [fault] if fault.contains(expected)), "{expected}: {faults:#?}");
    }

    fn revision(&mut self) -> &mut Value {
        Arc::make_mut(&mut self.snapshot.revisions[0].object)
    }

    fn extension(&mut self) -> &mut Value {
        Arc::make_mut(self.snapshot.extension.as_mut().unwrap())
    }

    fn object(&mut self, kind: &str) -> &mut Value {
        let (_, object) = self.snapshot.objects.iter_mut().find(|(key, _)| key.kind == kind).unwrap();
        Arc::make_mut(object)
    }

    fn desired_spec(&mut self) -> &mut DesiredSpec {
        self.intent.desired_spec.as_mut().unwrap()
    }
}

#[test]
fn settled_extension_has_no_fault() {
    assert_eq!(Case::new().faults(), [""; 0]);
}

#[test]
fn changed_or_missing_object_is_a_fault() {
    type Change = fn(&mut Case);
    let changes: [(Change, &str); 9] = [
        (|case| drop(case.snapshot.objects.remove(&Key::new("ConfigMap", NAME, "xm1-early"))), "is missing"),
        (|case| case.object("ConfigMap")["data"]["version"] = "x".into(), ".data.version is \"x\""),
        (|case| case.object("ConfigMap")["metadata"]["labels"][OWNER_NAME] = "x".into(), "instead of"),
        (|case| case.object("ConfigMap")["metadata"]["annotations"][REVISION] = "9".into(), "instead of"),
        (|case| case.object("ConfigMap")["metadata"]["ownerReferences"] = json!([]), "no owner controls it"),
        (|case| case.intent.healthy = false, "is not what the test makes of it"),
        (|case| case.snapshot.extension = None, "the extension is gone"),
        (|case| case.intent.namespace = false, "the namespace is There"),
        (
            |case| case.revision()["metadata"]["ownerReferences"] = json!([]),
            "does not belong to the extension",
        ),
    ];
    for (change, expected) in changes {
        let mut case = Case::new();
        change(&mut case);
        case.expect(expected);
    }
}

#[test]
fn foreign_object_requires_a_collision_condition() {
    let mut case = Case::new();
    case.object("ConfigMap")["metadata"]["ownerReferences"] = owner("ConfigMap", "x");
    let faults = case.faults();
    assert!(
        faults[0].contains("not True/Retrying \"revision object collisions in phase 0\\n\""),
        "{faults:#?}"
    );
    let collision = "revision object collisions in phase 0\nObject";
    case.revision()["status"]["conditions"][0] =
        conditions(&[("Progressing", "True", "Retrying", collision)])[0].clone();
    case.extension()["status"]["conditions"][0] =
        conditions(&[("Progressing", "True", "Retrying", collision)])[0].clone();
    assert_eq!(case.faults(), [""; 0]);
    case.intent.foreign.insert("f".to_owned(), json!({"kind": "Service", "metadata": {"name": "s"}}));
    case.expect("foreign Service /s is gone");
}

#[test]
fn unexpected_condition_is_a_fault() {
    let mut case = Case::new();
    case.extension()["status"]["conditions"][0]["message"] = "other".into();
    case.expect("Progressing is Some((\"True\", \"Succeeded\", \"other\"))");
    let mut case = Case::new();
    case.extension()["metadata"]["generation"] = 2.into();
    assert_eq!(case.faults().len(), 2);
    let mut case = Case::new();
    case.revision()["status"]["conditions"][1]["status"] = "False".into();
    case.expect("xm1-1: Available is");
}

#[test]
fn different_desired_version_is_a_fault() {
    let mut case = Case::new();
    case.desired_spec().version = Some("1.0.1".to_owned());
    case.expect("the newest is xm1-1 of Some(\"1.0.0\"), and 1.0.1 with None is expected");
    case.desired_spec().version = Some("1.1.0".to_owned());
    case.expect(
        "not True/Retrying error upgrading from currently installed version \"1.0.0\": no bundles found",
    );
    case.desired_spec().version = None;
    case.intent.catalogs.get_mut(&'a').unwrap().exists = false;
    assert_eq!(case.faults(), [""; 0]);
    case.desired_spec().config = Config::Invalid;
    case.expect("not False/InvalidConfiguration");
    case.desired_spec().config = Config::Env("1".to_owned());
    case.expect("1.0.0 with Env(\"1\") is expected");
}

#[test]
fn model_accepts_spec_edit_read_before_or_after_catalog_change() {
    let mut case = Case::new();
    case.object("ConfigMap")["metadata"]["ownerReferences"] = owner("ConfigMap", "x");
    let collides = ("Progressing", "True", "Retrying", "revision object collisions in phase 0\nObject");
    case.revision()["status"]["conditions"] = conditions(&[collides]);
    let nothing = ("Installed", "False", "Absent", "No bundle installed");
    case.extension()["status"]["conditions"] = conditions(&[collides, nothing]);
    for catalog in case.intent.catalogs.values_mut() {
        catalog.offered = [1].into();
    }
    let is_spec_applied = |case: &Case| is_spec_applied(&case.intent, &case.window, &case.snapshot);
    assert_eq!((case.faults(), is_spec_applied(&case)), (Vec::new(), true));
    case.window.edited = true;
    assert_eq!((case.faults(), is_spec_applied(&case)), (Vec::new(), true));
    let refused = "no bundles found for package \"xm1-package\" matching version \"1.0.0\"";
    case.extension()["status"]["conditions"][0]["message"] = refused.into();
    assert_eq!((case.faults(), is_spec_applied(&case)), (Vec::new(), false));
    case.window.edited = false;
    case.expect("not Some((\"True\", \"Retrying\", \"revision object collisions");
}

#[test]
fn rollout_of_an_edit_may_remain_when_an_older_one_succeeds() {
    let mut case = Case::new();
    let rolling = ("Progressing", "True", "Retrying", "revision object collisions in phase 0\nObject");
    case.object("ConfigMap")["metadata"]["ownerReferences"] = owner("ConfigMap", "x");
    case.revision()["status"]["conditions"] = conditions(&[rolling]);
    let nothing = ("Installed", "False", "Absent", "No bundle installed");
    case.extension()["status"]["conditions"] = conditions(&[rolling, nothing]);
    case.desired_spec().version = None;
    (case.window.edited, case.window.installed) = (true, None);
    case.expect("1.1.0 with None is expected");
    case.window.installed = Some(1);
    assert_eq!(case.faults(), Vec::<String>::new());
}

#[test]
fn removed_crd_field_requires_an_upgrade_check_condition() {
    let mut case = Case::new();
    let live = crd_with_fields(2);
    case.object("CustomResourceDefinition")["spec"] = live["spec"].clone();
    // The live CRD already differs. Only the check of a different version matters.
    case.desired_spec().version = Some("1.0.1".to_owned());
    assert!(
        case.faults().iter().any(|fault| fault.contains("validating upgrade for CRD")),
        "{:#?}",
        case.faults()
    );
    case.desired_spec().unchecked = true;
    assert!(
        case.faults().iter().any(|fault| fault.contains("1.0.1 with None is expected")),
        "{:#?}",
        case.faults()
    );
}

fn crd_with_fields(fields: usize) -> Value {
    crate::universe::crd(NAME, "widgets", fields)
}

#[test]
fn object_without_revision_is_a_fault() {
    let mut case = Case::new();
    case.snapshot
        .secrets
        .push(Arc::new(json!({"metadata": {"name": "s", "ownerReferences": owner("x", "gone")}})));
    assert_eq!(case.faults(), [""; 0], "garbage collection takes time");
    let unowned = |number: i64| {
        let label = json!({"olm.operatorframework.io/revision-name": format!("xm1-{number}")});
        Arc::new(json!({"metadata": {"name": "t", "labels": label}}))
    };
    case.snapshot.secrets.push(unowned(7));
    assert_eq!(case.faults(), [""; 0], "a backup may be restored");
    case.snapshot.secrets.push(unowned(1));
    case.expect("Secret t is of no revision");
    let mut case = Case::new();
    let mut other = case.object("ConfigMap").clone();
    other["metadata"]["name"] = "other".into();
    case.snapshot.objects.insert(Key::of(&other), Arc::new(other));
    case.expect("which does not list it");
    let mut case = Case::new();
    case.intent.desired_spec = None;
    case.snapshot.extension = None;
    case.expect("xm1-1 was left behind");
    case.snapshot
        .secrets
        .push(Arc::new(json!({"metadata": {"name": "s", "ownerReferences": owner("x", "gone")}})));
    assert!(case.faults().iter().any(|fault| fault.starts_with("Secret s is of no revision: ")));
    case.snapshot.secrets.clear();
    case.snapshot.revisions.clear();
    assert!(case.faults().iter().all(|fault| fault.contains("controlled by a revision that is gone")));
    assert_eq!(case.faults().len(), content()[0].1.len());
}

#[test]
fn archived_revision_that_controls_objects_is_a_fault() {
    let mut case = Case::new();
    case.revision()["spec"]["lifecycleState"] = "Archived".into();
    let faults = case.faults();
    assert!(
        faults.iter().any(|fault| fault.starts_with("xm1-1 is archived and still controls ")),
        "{faults:#?}"
    );
    case.snapshot.revisions[0].content = None;
    assert_eq!(case.faults(), faults, "owner references identify the revision");
    case.intent.instances.insert("i".to_owned(), "widgets".to_owned());
    let faults = case.faults();
    assert!(faults.iter().any(|fault| fault.contains("not False/Blocked")), "{faults:#?}");
}

#[test]
fn fields_of_other_writers_are_kept() {
    let mut case = Case::new();
    case.intent.scaled.insert("uid of \"xm1-operator\"".to_owned(), 3);
    case.expect(".spec.replicas is null, not 3");
    case.object("Deployment")["spec"]["replicas"] = 3.into();
    assert_eq!(case.faults(), [""; 0]);
    let labels = json!({"metadata": {"labels": {"other": "kept"}}});
    case.intent.added.insert("uid of \"xm1-operator\"".to_owned(), labels);
    case.expect("Deployment xm1/xm1-operator lost a field of another writer: .metadata.labels.other is null");
    case.object("Deployment")["metadata"]["labels"]["other"] = "kept".into();
    assert_eq!(case.faults(), [""; 0]);
    case.object("Deployment")["spec"]["template"]["metadata"] = json!({});
    case.expect("lacks an injected field: .spec.template.metadata.annotations is null, not ");
}

#[test]
fn variable_that_the_revision_does_not_list_is_a_fault() {
    let mut case = Case::new();
    let variable = json!({"name": "MODEL", "value": "1"});
    let container =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "operator", "env": [variable]}]}}}});
    overlay(case.object("Deployment"), &container);
    case.expect("has variable Some(\"1\") instead of None");
    case.intent.disowned.insert("uid of \"xm1-operator\"".to_owned());
    assert_eq!(case.faults(), [""; 0], "nobody knows its owner");
}

#[test]
fn denied_write_requires_a_condition() {
    let report = |case: &mut Case, message: &str| {
        let denied = conditions(&[("Progressing", "True", "Retrying", message)])[0].clone();
        case.revision()["status"]["conditions"][0] = denied.clone();
        case.extension()["status"]["conditions"][0] = denied;
    };
    let mut case = Case::new();
    case.intent.denied = Some(Denied::Writes);
    assert_eq!(case.faults(), [""; 0], "nothing to write");
    case.object("ConfigMap")["data"]["version"] = "x".into();
    case.expect(".data.version is \"x\"");
    report(&mut case, "phase 0 validation error: phase \"all\": a: denied by the model");
    assert_eq!(case.faults(), [""; 0]);
    case.intent.denied = None;
    assert_eq!(case.faults().len(), 2, "the denial has ended: {:#?}", case.faults());
    case.intent.denied = Some(Denied::Deletions);
    assert_eq!(case.faults().len(), 2, "writes are allowed: {:#?}", case.faults());
    case.intent.denied = Some(Denied::Writes);
    report(&mut case, "phase 0 validation error: phase \"all\": a: forbidden");
    assert_eq!(case.faults().len(), 2, "another cause: {:#?}", case.faults());
    // A collision is reported first, and its phase is not applied either.
    case.object("Deployment")["metadata"]["ownerReferences"] = owner("ConfigMap", "x");
    report(&mut case, "revision object collisions in phase 0\nObject");
    assert_eq!(case.faults(), [""; 0]);
}

#[test]
fn denied_deletion_requires_a_condition() {
    for change in
        [json!({"spec": {"lifecycleState": "Archived"}}), json!({"metadata": {"deletionTimestamp": "now"}})]
    {
        let mut case = Case::new();
        case.intent.denied = Some(Denied::Deletions);
        crate::snapshot::overlay(case.revision(), &change);
        let silent = case.faults().len();
        let message = "error archiving revision: denied by the model";
        case.revision()["status"]["conditions"][0] =
            conditions(&[("Progressing", "True", "Retrying", message)])[0].clone();
        assert_eq!(case.faults().len(), silent - 1, "{change}: {:#?}", case.faults());
        case.intent.denied = None;
        assert_eq!(case.faults().len(), silent, "{change}: {:#?}", case.faults());
    }
}
