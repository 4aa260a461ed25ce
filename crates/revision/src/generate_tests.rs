use serde_json::json;

use super::*;
use crate::content::{SecretKey, resolve};

const SYSTEM: &str = "olmv1-system";

fn extension(name: &str) -> Extension {
    Extension { name: name.to_owned(), uid: "uid-ce".to_owned(), progress_deadline_minutes: None }
}

fn bundle() -> BundleIdentity {
    BundleIdentity {
        name: "demo.v1.0.0".to_owned(),
        package: "demo-operator".to_owned(),
        version: "1.0.0".to_owned(),
        release: None,
        image: "example.test/demo@sha256:0".to_owned(),
        properties: Some("[]".to_owned()),
        max_openshift_version: None,
        catalog_properties: None,
    }
}

fn objects() -> Vec<Value> {
    vec![json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm", "namespace": "ns1"},
                "data": {"k": "v"}})]
}

fn draft() -> Draft {
    Draft::new(extension("demo"), &bundle(), objects()).unwrap()
}

/// First revision as read from the API, with its content.
fn installed(draft: &Draft) -> (ClusterObjectSet, Vec<ContentPhase>) {
    let revision = draft.number(1, SYSTEM).unwrap();
    let found = revision.secrets.iter().map(|secret| {
        let name = secret.metadata.name.clone().unwrap();
        (SecretKey { namespace: SYSTEM.to_owned(), name }, secret.clone())
    });
    let content = resolve(revision.set.spec.as_ref().unwrap(), SYSTEM, &found.collect()).unwrap();
    (revision.set, content)
}

// Cases apply-1, apply-2, apply-6
#[test]
fn draft_generates_the_set_and_its_secrets() {
    let revision = draft().number(1, SYSTEM).unwrap();
    let mut set = serde_json::to_value(&revision.set).unwrap();
    set["spec"].as_object_mut().unwrap().remove("progressionProbes");
    let reference = set["spec"]["phases"][0]["objects"][0]["ref"].take();
    assert_eq!(
        set,
        json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {
                "name": "demo-1",
                "labels": {"olm.operatorframework.io/owner-kind": "ClusterExtension",
                           "olm.operatorframework.io/owner-name": "demo"},
                "annotations": {
                    "olm.operatorframework.io/bundle-name": "demo.v1.0.0",
                    "olm.operatorframework.io/package-name": "demo-operator",
                    "olm.operatorframework.io/bundle-version": "1.0.0",
                    "olm.operatorframework.io/bundle-reference": "example.test/demo@sha256:0",
                    "olm.properties": "[]"},
                "ownerReferences": [{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
                    "name": "demo", "uid": "uid-ce", "controller": true, "blockOwnerDeletion": true}]},
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent",
                     "phases": [{"name": "configuration", "objects": [{"ref": null}]}]}})
    );
    assert_eq!(revision.secrets.len(), 1);
    let secret = &revision.secrets[0];
    assert_eq!(secret.metadata.name.as_deref(), reference["name"].as_str());
    assert_eq!(secret.metadata.namespace.as_deref(), reference["namespace"].as_str());
    assert!(secret.data.as_ref().unwrap().contains_key(reference["key"].as_str().unwrap()));
    assert_eq!(secret.immutable, Some(true));
    let labels = secret.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["olm.operatorframework.io/revision-name"], "demo-1");
    assert_eq!(labels["olm.operatorframework.io/owner-name"], "demo");
    assert_eq!(secret.type_.as_deref(), Some("olm.operatorframework.io/object-data"));
}

// docs/design/bundles.md#aggregated-apis
#[test]
fn revision_with_aggregated_api_has_one_more_probe() {
    let probes = |objects: Vec<Value>| {
        let draft = Draft::new(extension("demo"), &bundle(), objects).unwrap();
        let spec = draft.number(1, SYSTEM).unwrap().set.spec.unwrap();
        serde_json::to_value(spec.progression_probes).unwrap()
    };
    let before = probes(objects());
    let api_service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.g"}, "spec": {"service": {"namespace": "ns", "name": "s"}}});
    let mut after = probes([objects(), vec![api_service]].concat());
    let added = after.as_array_mut().unwrap().pop().unwrap();
    assert_eq!(after, before);
    assert_eq!(
        added,
        json!({
            "selector": {"type": "GroupKind",
                "groupKind": {"group": "apiregistration.k8s.io", "kind": "APIService"}},
            "assertions": [{"type": "ConditionEqual", "conditionEqual": {"type": "Available", "status": "True"}}],
        })
    );
}

// docs/design/apply.md#keep-patch-or-create; cases apply-7, apply-8, apply-11, apply-35
#[test]
fn decide_keeps_patches_or_creates() {
    let desired = draft();
    let (current, content) = installed(&desired);
    let decide_on = |draft: &Draft, current: &ClusterObjectSet, content| {
        decide(draft, std::slice::from_ref(current), content, SYSTEM).unwrap()
    };
    assert_eq!(decide(&desired, &[], None, SYSTEM), Ok(RevisionDecision::New { number: 1 }));
    assert_eq!(decide_on(&desired, &current, Some(&content)), RevisionDecision::Keep);
    assert_eq!(decide_on(&desired, &current, None), RevisionDecision::Keep, "a lost Secret is not a change");

    let later = Extension { progress_deadline_minutes: Some(20), ..extension("demo") };
    let deadline = Draft::new(later, &bundle(), objects()).unwrap();
    let RevisionDecision::Patch(patched) = decide_on(&deadline, &current, Some(&content)) else {
        panic!("no patch");
    };
    let spec = patched.spec.as_ref().unwrap();
    assert_eq!(spec.progress_deadline_minutes, Some(20));
    assert_eq!(spec.phases, current.spec.as_ref().unwrap().phases);
    assert_eq!(decide_on(&deadline, &patched, Some(&content)), RevisionDecision::Keep);
    let RevisionDecision::Patch(back) = decide_on(&desired, &patched, Some(&content)) else {
        panic!("no patch")
    };
    assert_eq!(back.spec.unwrap().progress_deadline_minutes, None);

    let new = RevisionDecision::New { number: 2 };
    let version = BundleIdentity { version: "1.0.1".to_owned(), ..bundle() };
    let other = Draft::new(extension("demo"), &version, objects()).unwrap();
    assert_eq!(decide_on(&other, &current, Some(&content)), new, "equal manifests, other version");
    assert_eq!(decide_on(&other, &current, None), new);
    let mut deleted = current.clone();
    deleted.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(decide_on(&desired, &deleted, Some(&content)), new, "it hands its objects over");
    let changed = |change: fn(&mut ClusterObjectSetSpec)| {
        let mut current = current.clone();
        change(current.spec.as_mut().unwrap());
        current
    };
    let archived = changed(|spec| spec.lifecycle_state = LifecycleState::Archived);
    assert_eq!(decide_on(&desired, &archived, Some(&content)), new);
    let adopting = changed(|spec| spec.collision_protection = CollisionProtection::None);
    assert_eq!(decide_on(&desired, &adopting, Some(&content)), new);
}

// docs/design/additions.md#maximum-openshift-version; case operations-a37
#[test]
fn maximum_openshift_version_annotation_is_patched() {
    let (current, content) = installed(&draft());
    let spelt = BundleIdentity { max_openshift_version: Some("4.20".to_owned()), ..bundle() };
    let spelt = Draft::new(extension("demo"), &spelt, objects()).unwrap();
    let RevisionDecision::Patch(patched) = decide(&spelt, &[current], Some(&content), SYSTEM).unwrap() else {
        panic!("no patch");
    };
    let has = patched.metadata.annotations.as_ref().unwrap();
    assert_eq!(has["ext.olm.operatorframework.io/max-openshift-version"], "4.20");
    assert_eq!(decide(&spelt, &[*patched.clone()], Some(&content), SYSTEM), Ok(RevisionDecision::Keep));
}

// docs/design/additions.md#service-account-impersonation
#[test]
fn service_account_annotation_is_patched() {
    let (current, content) = installed(&draft());
    let named = draft().annotated(annotations::EXT_SERVICE_ACCOUNT, Some("ns/installer"));
    let decision = decide(&named, std::slice::from_ref(&current), Some(&content), SYSTEM).unwrap();
    let RevisionDecision::Patch(patched) = decision else { panic!("no patch") };
    let has = patched.metadata.annotations.as_ref().unwrap();
    assert_eq!(has["ext.olm.operatorframework.io/service-account"], "ns/installer");
    assert_eq!(decide(&named, &[*patched.clone()], Some(&content), SYSTEM), Ok(RevisionDecision::Keep));
    let back = decide(
        &draft().annotated(annotations::EXT_SERVICE_ACCOUNT, None),
        &[*patched],
        Some(&content),
        SYSTEM,
    )
    .unwrap();
    assert_eq!(back, RevisionDecision::Patch(Box::new(current)));
}

// docs/design/additions.md#uninstall-policy
#[test]
fn new_revision_has_annotations_that_its_first_pass_obeys() {
    for (key, value) in [
        ("ext.olm.operatorframework.io/uninstall-policy", "KeepCRDs"),
        ("ext.olm.operatorframework.io/replace-immutable", "Allow"),
    ] {
        let annotated = draft().annotated(key, Some(value));
        let set = annotated.number(1, SYSTEM).unwrap().set;
        assert_eq!(set.annotation(key), Some(value));
        let (current, content) = installed(&annotated);
        let decision = decide(&annotated, std::slice::from_ref(&current), Some(&content), SYSTEM);
        assert_eq!(decision, Ok(RevisionDecision::Keep));
        let restored = Draft::restored(extension("demo"), &current, content.clone(), "{}".to_owned());
        assert_eq!(restored.number(2, SYSTEM).unwrap().set.annotation(key), Some(value));
        let back = decide(&draft(), &[current], Some(&content), SYSTEM).unwrap();
        let RevisionDecision::Patch(patched) = back else { panic!("no patch") };
        assert_eq!(patched.annotation(key), None);
    }
}

// docs/design/apply.md#keep-patch-or-create, docs/design/additions.md#dependency-modes
#[test]
fn catalog_properties_annotation_is_patched() {
    let (current, content) = installed(&draft());
    let properties = r#"[{"type":"olm.gvk","value":{"group":"g","version":"v1","kind":"K"}}]"#;
    let judged = BundleIdentity { catalog_properties: Some(properties.to_owned()), ..bundle() };
    let judged = Draft::new(extension("demo"), &judged, objects()).unwrap();
    let RevisionDecision::Patch(patched) =
        decide(&judged, std::slice::from_ref(&current), Some(&content), SYSTEM).unwrap()
    else {
        panic!("no patch");
    };
    let has = patched.metadata.annotations.as_ref().unwrap();
    assert_eq!(has["ext.olm.operatorframework.io/catalog-properties"], properties);
    assert_eq!(decide(&judged, &[*patched.clone()], Some(&content), SYSTEM), Ok(RevisionDecision::Keep));
    let back = decide(&draft(), &[*patched], Some(&content), SYSTEM).unwrap();
    assert_eq!(back, RevisionDecision::Patch(Box::new(current)));
}

#[test]
fn metadata_differences_are_patched() {
    let desired = draft();
    let (current, content) = installed(&desired);
    let changes: [fn(&mut ObjectMeta); 5] = [
        |metadata| metadata.owner_references = None,
        |metadata| metadata.labels = None,
        |metadata| metadata.annotations = None,
        |metadata| {
            metadata
                .annotations
                .get_or_insert_default()
                .insert(annotations::BUNDLE_RELEASE.to_owned(), "1".to_owned());
        },
        |metadata| {
            if let Some(owners) = &mut metadata.owner_references {
                owners[0].uid = "uid-of-a-predecessor".to_owned();
            }
        },
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut altered = current.clone();
        change(&mut altered.metadata);
        let decision = decide(&desired, &[altered], Some(&content), SYSTEM).unwrap();
        assert_eq!(decision, RevisionDecision::Patch(Box::new(current.clone())), "{index}");
    }
    let mut altered = current.clone();
    altered.metadata.labels.get_or_insert_default().insert("mine".to_owned(), "1".to_owned());
    altered.metadata.annotations.get_or_insert_default().insert("mine".to_owned(), "1".to_owned());
    assert_eq!(decide(&desired, &[altered], Some(&content), SYSTEM), Ok(RevisionDecision::Keep));
}

// Case apply-63
#[test]
fn equivalent_content_of_another_program_is_kept() {
    let deployment = |extra: bool| {
        let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "namespace": "ns1"}, "spec": {"replicas": 1}});
        if extra {
            object["spec"]["strategy"] = json!({});
            object["spec"]["template"] = json!({"spec": {"containers": null}, "metadata": {}});
            object["spec"]["replicas"] = json!(1.0);
        }
        vec![object]
    };
    let draft = |extra| Draft::new(extension("demo"), &bundle(), deployment(extra)).unwrap();
    let (current, content) = installed(&draft(true));
    assert_eq!(decide(&draft(false), &[current], Some(&content), SYSTEM), Ok(RevisionDecision::Keep));
}

#[test]
fn impossible_revisions_are_rejected_before_any_write() {
    let name = "x".repeat(62);
    let draft = Draft::new(extension(&name), &bundle(), objects()).unwrap();
    assert_eq!(
        draft.number(1, SYSTEM).unwrap_err().to_string(),
        format!(
            "name of the ClusterExtension is too long: its revision \"{name}-1\" has 64 characters, \
             at most 63 are allowed"
        )
    );
    assert!(Draft::new(extension(&name[1..]), &bundle(), objects()).unwrap().number(9, SYSTEM).is_ok());
    let many = (0..1001)
        .map(|n| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{n}")}}))
        .collect();
    assert_eq!(
        Draft::new(extension("demo"), &bundle(), many).unwrap_err().to_string(),
        "bundle needs 21 phases, but a revision has at most 20"
    );
    let huge = BundleIdentity { properties: Some("x".repeat(262_144)), ..bundle() };
    let draft = Draft::new(extension("demo"), &huge, objects()).unwrap();
    assert!(
        draft
            .warning
            .unwrap()
            .starts_with("annotation olm.properties of bundle \"demo.v1.0.0\" is left out: ")
    );
    assert!(!draft.annotations.contains_key("olm.properties"));
    // docs/design/operations.md#properties-annotation: properties that can block a cluster update are kept.
    let limit = r#"{"type":"olm.maxOpenShiftVersion","value":4.20}"#;
    let long = format!("[{{\"type\":\"x\",\"value\":\"{}\"}}, {limit}]", "x".repeat(262_144));
    let long = BundleIdentity { properties: Some(long), ..bundle() };
    let draft = Draft::new(extension("demo"), &long, objects()).unwrap();
    assert_eq!(draft.annotations["olm.properties"], format!("[{limit}]"));
    assert!(draft.warning.unwrap().contains(" is shortened: "));
    let both = BundleIdentity {
        properties: Some("x".repeat(200_000)),
        catalog_properties: Some("y".repeat(100_000)),
        ..bundle()
    };
    let draft = Draft::new(extension("demo"), &both, objects()).unwrap();
    assert!(draft.annotations.contains_key("olm.properties"));
    assert!(!draft.annotations.contains_key("ext.olm.operatorframework.io/catalog-properties"));
}

// Case apply-60
#[test]
fn migrated_revision_adopts_with_inline_content() {
    let bundle = BundleIdentity { release: Some(String::new()), ..bundle() };
    let revision = migrated(extension("demo"), &bundle, objects(), SYSTEM).unwrap();
    assert_eq!(revision.secrets, []);
    let set = revision.set;
    assert_eq!(set.metadata.name.as_deref(), Some("demo-1"));
    assert_eq!(set.metadata.labels.unwrap()["olm.operatorframework.io/migrated-from-helm"], "true");
    let spec = set.spec.unwrap();
    assert_eq!((spec.revision, spec.collision_protection), (1, CollisionProtection::None));
    let object = spec.phases[0].objects[0].object.as_ref().unwrap();
    assert_eq!(object["metadata"]["annotations"]["olm.operatorframework.io/bundle-release"], "");
}

#[test]
fn large_migrated_revision_keeps_its_content_in_secrets() {
    let mut objects = objects();
    objects[0]["data"]["k"] = "x".repeat(MAX_INLINE_BYTES).into();
    let NumberedRevision { set, secrets } = migrated(extension("demo"), &bundle(), objects, SYSTEM).unwrap();
    assert_eq!(secrets.len(), 1);
    assert_eq!(set.metadata.labels.unwrap()["olm.operatorframework.io/migrated-from-helm"], "true");
    let spec = set.spec.unwrap();
    assert_eq!((spec.revision, spec.collision_protection), (1, CollisionProtection::None));
    let object = &spec.phases[0].objects[0];
    assert_eq!(object.ref_.as_ref().map(|at| &at.name), secrets[0].metadata.name.as_ref());
    assert!(object.object.is_none());
}

// docs/design/approvals.md#automatic-rollback
#[test]
fn restored_revision_has_content_of_its_predecessor_and_keeps_refusal() {
    let (mut first, content) = installed(&draft());
    first.metadata.annotations.as_mut().unwrap().insert("other".to_owned(), "x".to_owned());
    let restored = Draft::restored(extension("demo"), &first, content.clone(), "{}".to_owned());
    let revision = restored.number(3, SYSTEM).unwrap();
    assert_eq!(revision.set.metadata.name.as_deref(), Some("demo-3"));
    let mut expected = first.metadata.annotations.clone().unwrap();
    expected.remove("other");
    expected.insert(annotations::EXT_REFUSED.to_owned(), "{}".to_owned());
    assert_eq!(revision.set.metadata.annotations, Some(expected.clone()));
    // The same bundle yields the restored revision. A change in place keeps the refusal.
    let decided =
        |draft: &Draft| decide(draft, std::slice::from_ref(&revision.set), Some(&content), SYSTEM).unwrap();
    assert_eq!(decided(&draft()), RevisionDecision::Keep);
    let later = Extension { progress_deadline_minutes: Some(10), ..extension("demo") };
    let later = Draft::new(later, &bundle(), objects()).unwrap();
    let RevisionDecision::Patch(patched) = decided(&later) else { panic!("not patched") };
    assert_eq!(patched.metadata.annotations, Some(expected));
    assert_eq!(decide(&later, &[*patched], Some(&content), SYSTEM), Ok(RevisionDecision::Keep));
}

// docs/design/migration.md#adoption
#[test]
fn adopting_revision_protects_all_other_objects() {
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns1"}});
    let plain = || Draft::new(extension("demo"), &bundle(), vec![map("a"), map("b")]).unwrap();
    let rendered = plain();
    let key = ObjectKey::of(content::objects(rendered.phases()).next().unwrap());
    let (adopting, content) = installed(&plain().adopting("sha256:1", &[key]));
    let spec = adopting.spec.as_ref().unwrap();
    assert_eq!(spec.collision_protection, CollisionProtection::Prevent);
    let protections = |set: &ClusterObjectSet| -> Vec<Value> {
        let objects = set.spec.iter().flat_map(|spec| &spec.phases).flat_map(|phase| &phase.objects);
        objects.map(|object| json!(object.collision_protection)).collect()
    };
    assert_eq!(protections(&adopting), [json!("IfNoController"), Value::Null]);
    assert_eq!(adopting.metadata.annotations.as_ref().unwrap()[annotations::EXT_ADOPT], "sha256:1");
    assert_eq!(content[0].objects[0].collision_protection, CollisionProtection::IfNoController);
    let secrets = |draft: &Draft| draft.number(1, SYSTEM).unwrap().secrets;
    assert_eq!(secrets(&plain()), secrets(&plain().adopting("sha256:1", &[])));

    // Neither the annotation nor its removal changes the revision, with or without its content.
    for content in [Some(&content[..]), None] {
        let existing = std::slice::from_ref(&adopting);
        assert_eq!(decide(&plain(), existing, content, SYSTEM), Ok(RevisionDecision::Keep));
    }
    let later = Extension { progress_deadline_minutes: Some(10), ..extension("demo") };
    let later = Draft::new(later, &bundle(), vec![map("a"), map("b")]).unwrap();
    let Ok(RevisionDecision::Patch(patched)) =
        decide(&later, std::slice::from_ref(&adopting), Some(&content), SYSTEM)
    else {
        panic!("not patched")
    };
    assert_eq!(patched.metadata.annotations, adopting.metadata.annotations);
    assert_eq!(protections(&patched), protections(&adopting));
    let restored = Draft::restored(extension("demo"), &adopting, content, "{}".to_owned());
    let restored = restored.number(3, SYSTEM).unwrap().set;
    assert_eq!(protections(&restored), [Value::Null, Value::Null]);
    assert_eq!(restored.metadata.annotations.unwrap()[annotations::EXT_ADOPT], "sha256:1");
}
