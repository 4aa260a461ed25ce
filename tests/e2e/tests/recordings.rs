//! Recordings of classic OLM, and composed installations in their shape. Needs no cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use olm_e2e::classic::{CASES, Installation, Origin, compose, crds};
use sample_operator::content::Sample;
use serde_json::{Value, json};

const MAX_BYTES: u64 = 200_000;

/// Labels or annotations without hashes and generated suffixes.
fn masked(map: &Value) -> BTreeMap<String, Value> {
    let is_generated = |key: &str| key.contains("hash") || key.contains("installed-alongside");
    let all = map.as_object().into_iter().flatten();
    all.filter(|(key, _)| !is_generated(key))
        .map(|(key, value)| match key.split_once("aggregate-to-").filter(|_| key.starts_with("olm.")) {
            Some((_, end)) => (end.split_once('-').map_or(end, |(_, role)| role).to_owned(), value.clone()),
            None if key.starts_with("olm.operatorgroup.uid/") => {
                ("olm.operatorgroup.uid".to_owned(), value.clone())
            }
            None => (key.clone(), value.clone()),
        })
        .collect()
}

/// What classic OLM decides about an object, without hashes and generated suffixes.
fn shape(object: &Value) -> (String, Value) {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, mut name) = (text(&object["kind"]), text(&metadata["name"]));
    if kind.ends_with("WebhookConfiguration") || kind == "InstallPlan" {
        name = text(&metadata["generateName"]);
    } else if metadata["labels"]["olm.permissions.hash"].is_string() {
        name = text(&metadata["labels"]["olm.owner"]);
    } else if let Some((begin, _)) = name.rsplit_once('-').filter(|(begin, _)| begin.starts_with("olm.og.")) {
        name = begin.to_owned();
    }
    let owners: Vec<Value> = metadata["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|owner| {
            json!([
                owner["apiVersion"],
                owner["kind"],
                owner["name"],
                owner["controller"],
                owner["blockOwnerDeletion"]
            ])
        })
        .collect();
    let pod = &object["spec"]["template"]["spec"];
    let names = |list: &Value| -> Vec<Value> {
        list.as_array().into_iter().flatten().map(|entry| entry["name"].clone()).collect()
    };
    let container = &pod["containers"][0];
    let subjects = match object["subjects"].as_array() {
        Some(subjects) => json!(names(&json!(subjects))),
        None => Value::Null,
    };
    let details = json!({
        "labels": masked(&metadata["labels"]), "annotations": masked(&metadata["annotations"]), "owners": owners,
        "finalizers": metadata["finalizers"], "manager": Some(&metadata["managedFields"][0]["manager"]).filter(|_| kind != "CatalogSource"),
        "template": masked(&object["spec"]["template"]["metadata"]["annotations"]), "volumes": names(&pod["volumes"]),
        "mounts": names(&container["volumeMounts"]), "env": names(&container["env"]),
        "rules": object["rules"], "subjects": subjects, "role": object["roleRef"]["kind"],
        "webhook": object["webhooks"][0]["clientConfig"], "selector": without_scope(&object["webhooks"][0]["rules"]),
        "conversion": object["spec"]["conversion"]["webhook"], "ports": object["spec"]["ports"],
        "data": object["data"].as_object().filter(|_| kind == "Secret"),
        "phase": object["status"]["phase"],
    });
    (format!("{kind} {}/{name}", text(&metadata["namespace"])), details)
}

/// Rules of a webhook without the scope, which the API server sets by default.
fn without_scope(rules: &Value) -> Value {
    let mut rules = rules.clone();
    for rule in rules.as_array_mut().into_iter().flatten() {
        rule.as_object_mut().map(|rule| rule.remove("scope"));
    }
    rules
}

fn shapes(installation: &Installation) -> BTreeMap<String, Vec<Value>> {
    let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for object in &installation.objects {
        let (name, details) = shape(object);
        found.entry(name).or_default().push(details);
    }
    found.values_mut().for_each(|details| details.sort_by_key(Value::to_string));
    found
}

#[test]
fn composed_objects_equal_recorded_ones() {
    let image = "olm.example/sample-operator:devel";
    let targets =
        |name: &str, ends: &[&str]| ends.iter().map(|end| format!("{name}{end}")).collect::<Vec<_>>();
    for (case, sample, ends) in [
        ("all", Sample::idle as fn(&str, &str) -> Sample, &[][..]),
        ("own", Sample::scoped, &[""]),
        ("single", Sample::scoped, &["-a"]),
        ("multi", Sample::scoped, &["-a", "-b"]),
        ("hooks", Sample::webhooks, &[]),
        ("wide", Sample::scoped, &[]),
    ] {
        let name = format!("garden-{case}");
        let recorded = Installation::recorded(case, &name).unwrap();
        let targets = targets(&name, ends);
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        let files = sample(&name, image).bundle("1.0.0");
        let origin =
            Origin { files: &files, package: &name, channel: "stable", namespace: &name, targets: &targets };
        let (recorded, composed) = (shapes(&recorded), shapes(&compose(&origin).unwrap()));
        let names = |all: &BTreeMap<String, Vec<Value>>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&composed), names(&recorded), "{case}");
        for (name, details) in recorded {
            assert_eq!(composed[&name], details, "{case}: {name}");
        }
    }
}

#[test]
fn recordings_are_small_and_owners_are_recorded() {
    for case in CASES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("data/classic/{case}.yaml"));
        let bytes = std::fs::metadata(path).unwrap().len();
        assert!(bytes < MAX_BYTES, "{case}: {bytes} bytes");
        let recorded = Installation::recorded(case, "garden").unwrap();
        let uids: BTreeSet<&str> =
            recorded.objects.iter().filter_map(|object| object["metadata"]["uid"].as_str()).collect();
        assert_eq!(uids.len(), recorded.objects.len(), "{case}: UIDs are unique");
        for object in &recorded.objects {
            for owner in object["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
                assert!(
                    uids.contains(owner["uid"].as_str().unwrap()),
                    "{case}: {} {}",
                    object["kind"],
                    owner
                );
            }
        }
        assert!(recorded.object("Namespace", "", "garden").is_ok(), "{case}");
    }
}

#[test]
fn crds_have_status_subresource() {
    let crds = crds().unwrap();
    assert_eq!(crds.len(), 8);
    for crd in crds {
        for version in crd["spec"]["versions"].as_array().unwrap() {
            assert!(version["subresources"]["status"].is_object(), "{}", crd["metadata"]["name"]);
        }
    }
}
