//! ClusterCatalogs from CatalogSources (docs/design/migration.md#catalogs). Pure.

use olm_api::cluster_catalog::{CatalogSource, CatalogSourceType, ClusterCatalogSpec, ImageSource};
use olm_api::{ClusterCatalog, annotations};
use olm_cli_core::output::qualified;
use olm_oci::resolve_template;
use olm_runtime::go_value;

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
    use serde_json::{Value, json};

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
    fn sources_of_the_same_name_become_catalogs_with_the_namespace() {
        let mut objects = Objects::default();
        objects.sources.insert(key("a"), source("r.example/a:v1"));
        assert_eq!(name(&objects, &key("a")), "hub");
        objects.sources.insert(key("b"), source("r.example/b:v1"));
        assert_eq!(name(&objects, &key("a")), "hub-a");
        assert_eq!(name(&objects, &key("b")), "hub-b");
    }
}
