//! ClusterCatalogs from CatalogSources (docs/design/migration.md#catalogs). Pure.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::cluster_catalog::{CatalogSource, CatalogSourceType, ClusterCatalogSpec, ImageSource};
use olm_api::{ClusterCatalog, annotations};
use olm_cli_core::error::CliError;
use olm_cli_core::output::qualified;
use olm_oci::{Reference, resolve_template};
use olm_runtime::go_value;
use serde::Serialize;
use serde_json::Value;

use super::context::without_status;
use crate::objects::{self, Key, Objects, Offer};
use crate::shell_word;

/// Namespaces whose CatalogSources are visible everywhere, by default.
const GLOBAL: [&str; 2] = ["olm", "openshift-marketplace"];

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
    /// Name of the ClusterCatalog. Empty without one.
    pub(crate) name: String,
    pub(crate) state: &'static str,
    /// ClusterCatalog to create, unless one has the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<Value>,
    /// Commands that create it, and settings without counterpart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// ClusterCatalogs for all CatalogSources, one per image.
///
/// # Errors
/// A ClusterCatalog cannot be written as JSON.
pub(crate) fn proposed(objects: &Objects) -> Result<Vec<ProposedCatalog>, CliError> {
    let is_unknown = objects.unreadable.iter().any(|what| what.starts_with("clustercatalogs:"));
    let mut all = Vec::new();
    let mut images: BTreeMap<&str, (String, String)> = BTreeMap::new();
    for (key, source) in &objects.sources {
        let id = qualified(&key.0, &key.1);
        let catalog = of_bundle(objects, key, &common_offer(objects, key));
        let none = |state, why: String| (state, String::new(), None, vec![why]);
        let (state, name, created, notes) = match catalog {
            _ if source.image.is_empty() => {
                none("none", "it has no image: publish its content with `olm catalog push`".to_owned())
            }
            _ if is_unknown => none("unknown", "the ClusterCatalogs cannot be listed".to_owned()),
            Err(why) => none("none", why),
            Ok(Catalog { name, created: None, .. }) => {
                let notes = differences(objects, &name, source);
                ("exists", name, None, notes)
            }
            Ok(Catalog { name, created: Some(created), notes }) => {
                if let Err(error) = source.image.parse::<Reference>() {
                    none("none", format!("no ClusterCatalog can have its image: {error}"))
                } else if !is_global(objects, &key.0) {
                    let visible = format!("visible in {} only", key.0);
                    none(
                        "not proposed",
                        format!("{visible}, but a ClusterCatalog everywhere, with its priority"),
                    )
                } else if let Some((name, first)) = images.get(source.image.as_str()) {
                    ("same image", name.clone(), None, vec![format!("see {first}")])
                } else {
                    images.insert(&source.image, (name.clone(), id.clone()));
                    let created = without_status(serde_json::to_value(created)?);
                    let notes = notes.into_iter().chain(without_counterpart(source));
                    let notes = commands(&created).into_iter().chain(notes).collect();
                    ("to create", name, Some(created), notes)
                }
            }
        };
        all.push(ProposedCatalog { source: id, name, state, created, notes });
    }
    Ok(all)
}

/// Catalogs that offer all installed bundles of the CatalogSource `key`.
fn common_offer(objects: &Objects, key: &Key) -> Offer {
    let of_source = objects.subscriptions.values().filter(|subscription| subscription.source == *key);
    let installed = of_source.map(|subscription| &subscription.installed_csv).filter(|name| !name.is_empty());
    let offers = installed.map(|name| {
        let offer = objects.offered.as_ref().and_then(|offered| offered.get(name));
        offer.map(|offer| offer.catalogs.clone()).unwrap_or_default()
    });
    let common = offers.reduce(|all, one| &all & &one);
    Offer { catalogs: common.unwrap_or_else(BTreeSet::new), ..Offer::default() }
}

/// Reports whether CatalogSources of a namespace are visible in all namespaces: by default, or because a Subscription of
/// another one has installed a package from there.
fn is_global(objects: &Objects, namespace: &str) -> bool {
    let mut others = objects.subscriptions.iter().filter(|((own, _), _)| own != namespace);
    GLOBAL.contains(&namespace)
        || others.any(|(_, other)| other.source.0 == namespace && !other.installed_csv.is_empty())
}

/// Settings in which an existing ClusterCatalog with the image of the CatalogSource differs from it.
fn differences(objects: &Objects, name: &str, source: &objects::CatalogSource) -> Vec<String> {
    if objects.catalogs.get(name) != Some(&source.image) {
        return Vec::new();
    }
    let mut notes = without_counterpart(source);
    let wanted = (source.priority, source.image_template.clone());
    if let Some((priority, template)) = objects.catalog_settings.get(name).filter(|found| **found != wanted) {
        notes.push(format!(
            "priority {priority} and image template {template:?}, but {} and {:?} of the CatalogSource",
            wanted.0, wanted.1
        ));
    }
    notes
}

/// Commands that create a ClusterCatalog.
fn commands(catalog: &Value) -> Vec<String> {
    let name = catalog["metadata"]["name"].as_str().unwrap_or_default();
    let (spec, image) = (&catalog["spec"], &catalog["spec"]["source"]["image"]);
    let reference = image["ref"].as_str().unwrap_or_default();
    let mut create = format!("olm catalog create {} {}", shell_word(name), shell_word(reference));
    for (flag, value) in
        [("--poll-interval", &image["pollIntervalMinutes"]), ("--priority", &spec["priority"])]
    {
        if let Some(number) = value.as_i64() {
            create += &format!(" {flag} {number}");
        }
    }
    let template = catalog["metadata"]["annotations"][annotations::EXT_IMAGE_TEMPLATE].as_str();
    let annotate = template.map(|template| {
        let annotation = shell_word(&format!("{}={template}", annotations::EXT_IMAGE_TEMPLATE));
        format!("kubectl annotate clustercatalog {} {annotation}", shell_word(name))
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
#[path = "catalogs_tests.rs"]
mod tests;
