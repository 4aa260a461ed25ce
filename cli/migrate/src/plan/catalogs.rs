//! ClusterCatalogs from CatalogSources (docs/design/migration.md#catalogs). Pure.

use olm_api::cluster_catalog::{CatalogSource, CatalogSourceType, ClusterCatalogSpec, ImageSource};
use olm_api::{ClusterCatalog, annotations};
use olm_cli_core::error::CliError;
use olm_cli_core::output::qualified;
use olm_oci::resolve_template;
use olm_runtime::go_value;
use serde::Serialize;
use serde_json::Value;

use super::context::without_status;
use crate::objects::{self, Key, Objects, Offer};

/// Catalog of a package.
#[derive(Debug)]
pub(super) struct Catalog {
    /// Name of the ClusterCatalog.
    pub(super) name: String,
    /// ClusterCatalog to create. `None` if it exists.
    pub(super) created: Option<ClusterCatalog>,
    pub(super) notes: Vec<String>,
}

/// What becomes of a CatalogSource.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProposedCatalog {
    /// `namespace/name`
    pub(crate) source: String,
    /// Name of the ClusterCatalog. Empty if the CatalogSource has no image.
    pub(crate) name: String,
    /// ClusterCatalog to create, unless one has the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<Value>,
    /// Commands that create it, and settings without counterpart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// ClusterCatalogs for all CatalogSources.
///
/// # Errors
/// A ClusterCatalog cannot be written as JSON.
pub(crate) fn proposed(objects: &Objects) -> Result<Vec<ProposedCatalog>, CliError> {
    let mut all = Vec::new();
    for (key, source) in &objects.sources {
        let mut proposed = ProposedCatalog {
            source: qualified(&key.0, &key.1),
            name: String::new(),
            created: None,
            notes: Vec::new(),
        };
        if source.image.is_empty() {
            proposed.notes.push("it has no image: publish its content with `olm catalog push`".to_owned());
        } else if let Ok(catalog) = of_bundle(objects, key, &Offer::default()) {
            proposed.name = catalog.name;
            if let Some(created) = catalog.created {
                let created = without_status(serde_json::to_value(created)?);
                proposed.notes = commands(&created);
                proposed.notes.extend(catalog.notes.into_iter().chain(without_counterpart(source)));
                proposed.created = Some(created);
            }
        }
        all.push(proposed);
    }
    Ok(all)
}

/// Commands that create a ClusterCatalog.
fn commands(catalog: &Value) -> Vec<String> {
    let name = catalog["metadata"]["name"].as_str().unwrap_or_default();
    let (spec, image) = (&catalog["spec"], &catalog["spec"]["source"]["image"]);
    let mut create = format!("olm catalog create {name} {}", image["ref"].as_str().unwrap_or_default());
    for (flag, value) in
        [("--poll-interval", &image["pollIntervalMinutes"]), ("--priority", &spec["priority"])]
    {
        if let Some(number) = value.as_i64() {
            create += &format!(" {flag} {number}");
        }
    }
    let template = catalog["metadata"]["annotations"][annotations::EXT_IMAGE_TEMPLATE].as_str();
    let annotate = template.map(|template| {
        format!("kubectl annotate clustercatalog {name} '{}={template}'", annotations::EXT_IMAGE_TEMPLATE)
    });
    [create].into_iter().chain(annotate).collect()
}

/// Settings of a CatalogSource that a ClusterCatalog does not have, those of its pod in one line.
fn without_counterpart(source: &objects::CatalogSource) -> Vec<String> {
    let line = |fields: &[&String], why: &str| {
        let all: Vec<&str> = fields.iter().map(|field| field.as_str()).collect();
        (!all.is_empty()).then(|| format!("no counterpart of {}: {why}", all.join(", ")))
    };
    let (pod, other): (Vec<&String>, Vec<&String>) =
        source.unmatched.iter().partition(|field| field.starts_with("grpcPodConfig"));
    let lines = [
        line(&pod, "a ClusterCatalog has no pod"),
        line(&other, "lists show the name of the ClusterCatalog"),
    ];
    lines.into_iter().flatten().collect()
}

/// Catalog that serves a bundle of the CatalogSource `key`: among the ClusterCatalogs in `offer`, the one with the
/// image of the CatalogSource, else the first by name. Without one, the ClusterCatalog with that image, else a new one.
///
/// # Errors
/// The CatalogSource does not exist or has no image.
pub(super) fn of_bundle(objects: &Objects, key: &Key, offer: &Offer) -> Result<Catalog, String> {
    let source = objects.sources.get(key);
    let has_image =
        |name: &&String| source.is_some_and(|source| objects.catalogs.get(*name) == Some(&source.image));
    let existing = || offer.catalogs.iter().filter(|name| objects.catalogs.contains_key(*name));
    let same_image = || objects.catalogs.keys().find(has_image);
    if let Some(name) = existing().find(has_image).or_else(|| existing().next()).or_else(same_image) {
        return Ok(Catalog { name: name.clone(), created: None, notes: Vec::new() });
    }
    let source = source.filter(|source| !source.image.is_empty()).ok_or_else(|| {
        format!(
            "CatalogSource {} does not exist or has no image, and no ClusterCatalog serves the bundle",
            qualified(&key.0, &key.1)
        )
    })?;
    let name = name(objects, key);
    let (catalog, notes) = catalog(&name, source);
    Ok(Catalog { name, created: Some(catalog), notes })
}

/// Name of the ClusterCatalog for a CatalogSource: its own, with the namespace appended if a ClusterCatalog or another
/// CatalogSource has the same name.
fn name(objects: &Objects, (namespace, name): &Key) -> String {
    let has_twin = objects
        .sources
        .iter()
        .any(|((other, twin), source)| twin == name && other != namespace && !source.image.is_empty());
    if has_twin || objects.catalogs.contains_key(name) { format!("{name}-{namespace}") } else { name.clone() }
}

fn catalog(name: &str, source: &objects::CatalogSource) -> (ClusterCatalog, Vec<String>) {
    let mut notes = Vec::new();
    let is_pinned = source.image.contains('@');
    let image = ImageSource {
        ref_: source.image.clone(),
        // A digest never changes, and the API server refuses an interval for it.
        poll_interval_minutes: minutes(&source.poll_interval).filter(|_| !is_pinned),
    };
    let priority = source.priority.clamp(i32::MIN.into(), i32::MAX.into());
    let spec = ClusterCatalogSpec {
        source: CatalogSource { type_: CatalogSourceType::Image, image: Some(image) },
        priority: i32::try_from(priority).ok().filter(|priority| *priority != 0),
        availability_mode: None,
    };
    let mut catalog = ClusterCatalog::new(name, spec);
    match resolve_template(&source.image_template, Some(&source.image), None) {
        _ if source.image_template.is_empty() => {}
        Err(error) if error.is_syntax() => notes.push(format!(
            "ClusterCatalog {name}: without the image template of the CatalogSource, {}: {error}",
            source.image_template
        )),
        _ => {
            let template = (annotations::EXT_IMAGE_TEMPLATE.to_owned(), source.image_template.clone());
            catalog.metadata.annotations = Some([template].into());
        }
    }
    if !source.secrets.is_empty() {
        notes.push(format!(
            "ClusterCatalog {name}: catalogd pulls with its own pull secret (--global-pull-secret), not with {}",
            source.secrets.join(", ")
        ));
    }
    (catalog, notes)
}

/// Whole minutes of an interval in the notation of Go, rounded up. `None` for none.
fn minutes(interval: &str) -> Option<i64> {
    let seconds = go_value::duration(interval).ok()?.as_secs_f64();
    let minutes = (seconds / 60.0).ceil();
    // At most some centuries: Go has no longer durations.
    #[expect(clippy::cast_possible_truncation)]
    (minutes > 0.0).then_some(minutes as i64)
}

#[cfg(test)]
mod tests {
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
        let names: Vec<(&str, bool)> =
            all.iter().map(|one| (one.name.as_str(), one.created.is_some())).collect();
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
}
