//! Findings of `olm catalog verify`, and their rules.

use olm_fbc::Origin;
use olm_finding::{Level, Rule};
use serde::Serialize;

use crate::whole::WholeCatalog;

olm_finding::rules! {
    /// Rules besides those of `validate`, each with the option that turns it on, or nothing.
    pub(super) RULES: &'static str;

    PROPERTIES "CATALOG-2" Error ("") "version and requirements of a bundle can be read"
        "The resolver skips the bundle. Correct the property, and build the catalog again."
    STRANDED "GRAPH-3" Error ("") "a bundle has an upgrade while one of its channels has a higher version"
        "An extension with this bundle stays on it: let a higher bundle replace or skip it, or have it in its skipRange."
    MINOR_GAP "GRAPH-5" Error ("") "the last patch of a minor version has an upgrade within its channel"
        "A patch that is released after the next minor version needs an edge from that minor version."
    SKIP_RANGE "GRAPH-6" Error ("") "the skipRange of a bundle has lower versions only"
        "A higher version permits a downgrade; a range without any lower version has no effect."
    UNSERVED "GRAPH-7" Warning ("") "an upgrade keeps the versions of the APIs (property olm.gvk)"
        "Clients that use the version fail after the upgrade. Announce it, and serve both versions for some releases."
    MISSING "IMAGE-1" Error ("images") "the image exists"
        "Push the image, or remove the bundle from the catalog."
    UNREADABLE "IMAGE-2" Error ("images") "the registry returns the manifest of the image, which matches its digest"
        "Check network and credentials with `crane manifest IMAGE` or a similar tool, and run the command again."
    ARCHITECTURE "IMAGE-3" Error ("images") "the image has the required architectures"
        "Push an index with an image of each architecture, or correct the labels operatorframework.io/arch.*."
    CHILDREN "IMAGE-4" Error ("images") "the images of an index exist for the required architectures"
        "Copy the index with all its images."
    BLOBS "IMAGE-5" Error ("--layers") "the registry has the configuration of the image, and its layers"
        "Copy the image again: an interrupted copy lacks blobs."
    SIGNATURE "SIG-1" Error ("--key, --policy") "the image is signed as --key or --policy demands"
        "Servers with this policy refuse the image: sign it with `bundle sign` or `catalog sign`."
    LOADS "CONTENT-1" Error ("--content") "the content of the bundle image is a bundle"
        "`bundle validate IMAGE` names its faults."
    IDENTITY "CONTENT-2" Error ("--content") "package, name and version are those of the bundle image"
        "The catalog refers to another image: render the bundle again."
    DECLARED "CONTENT-3" Error ("--content") "the properties are those of the bundle image"
        "The catalog was rendered from another image or edited: render the bundle again."
    INSTALLABLE "CONTENT-5" Error ("--content") "OLM v1 can install the bundle"
        "`bundle validate IMAGE` names file, line and field."
    DEFAULTS "CONTENT-6" Error ("--content") "the bundle needs nothing that OLM v1 refuses by default: dependencies, several watched namespaces, owned APIServices"
        "An administrator must turn on a flag or feature gate first: document it, or remove the requirement."
}

/// All rules.
pub(super) fn rules() -> impl Iterator<Item = &'static Rule> + Clone {
    olm_fbc::RULES.iter().map(|declared| &declared.rule).chain(RULES.iter().map(|declared| &declared.rule))
}

/// Fault of a catalog.
pub(crate) type Finding = olm_finding::Finding<CatalogPlace>;

/// Part of a catalog. What is empty does not apply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CatalogPlace {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) package: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) bundle: String,
    /// Reference of the image.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Position of the object in the catalog.
    #[serde(flatten)]
    pub(super) origin: Option<Origin>,
}

impl CatalogPlace {
    /// A bundle.
    pub(super) fn bundle(package: &str, bundle: &str) -> Self {
        Self { package: package.to_owned(), bundle: bundle.to_owned(), ..Self::default() }
    }
}

/// Fault that `validate` found.
pub(super) fn of_structure(finding: &olm_fbc::CatalogFinding) -> Finding {
    let message = olm_fbc::CatalogFinding { origin: None, ..finding.clone() }.to_string();
    let place = CatalogPlace { origin: finding.origin.clone(), ..CatalogPlace::default() };
    // A catalog with repeated keys loses objects, which passes `validate` because opm accepts it.
    Finding { level: Level::Error, ..Finding::new(finding.rule, place, message) }
}

/// Fault of a bundle.
pub(super) fn of_bundle(rule: &'static Rule, package: &str, bundle: &str, message: String) -> Finding {
    Finding::new(rule, CatalogPlace::bundle(package, bundle), message)
}

/// Sorts the findings, and adds the positions of their bundles.
pub(super) fn arrange(findings: &mut Vec<Finding>, catalog: &WholeCatalog) {
    for place in findings.iter_mut().map(|finding| &mut finding.place).filter(|place| place.origin.is_none())
    {
        place.origin = catalog.bundle_origin(&place.package, &place.bundle).cloned();
    }
    findings.sort_by_cached_key(|Finding { rule, place, message, .. }| {
        let CatalogPlace { package, bundle, image, origin } = place.clone();
        let position = origin.map(|origin| (origin.file, origin.line));
        (package, bundle, rule.id, image, position, message.clone())
    });
    findings.dedup();
}
