//! Findings of `olm catalog verify`, and their rules.

use olm_fbc::Origin;
use serde::{Serialize, Serializer};

use crate::whole::WholeCatalog;

/// Rule with a stable ID.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) id: &'static str,
    /// Requirement on the catalog.
    pub(super) demand: &'static str,
}

macro_rules! rules {
    ($($name:ident $id:literal $demand:literal)+) => {
        $(pub(super) const $name: &Rule = &Rule { id: $id, demand: $demand };)+
        /// All rules.
        pub(super) const RULES: &[&Rule] = &[$($name),+];
    };
}

rules! {
    STRUCTURE "CATALOG-1" "The catalog passes `validate`"
    PROPERTIES "CATALOG-2" "The version and the requirements of a bundle can be read"
    STRANDED "GRAPH-3" "A bundle has an upgrade while one of its channels has a higher version"
    MINOR_GAP "GRAPH-5" "The last patch of a minor version has an upgrade to a later minor version of its channel"
    SKIP_RANGE "GRAPH-6" "The skipRange of a bundle has lower versions only"
    MISSING "IMAGE-1" "The image exists"
    UNREADABLE "IMAGE-2" "The registry returns the manifest of the image, which matches its digest"
    ARCHITECTURE "IMAGE-3" "The image has the required architectures"
    CHILDREN "IMAGE-4" "The images of an index exist for the required architectures"
    BLOBS "IMAGE-5" "The registry has the configuration of the image, and its layers"
    SIGNATURE "SIG-1" "The image is signed as --key or --policy demands"
    LOADS "CONTENT-1" "The content of the bundle image is a bundle"
    IDENTITY "CONTENT-2" "Package, name and version are those of the bundle image"
    DECLARED "CONTENT-3" "The properties are those of the bundle image"
    INSTALLABLE "CONTENT-5" "OLM v1 can install the bundle"
    DEFAULTS "CONTENT-6" "The bundle needs nothing that OLM v1 refuses by default: dependencies, owned APIServices"
}

/// Fault of a catalog. Sorted by package, bundle, rule, image and message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    #[serde(serialize_with = "by_id")]
    pub(super) rule: &'static Rule,
    /// Empty if the fault is not of one package.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) package: String,
    /// Empty if the fault is not of one bundle.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) bundle: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) image: String,
    pub(super) message: String,
    /// Position of the object in the catalog, if it is known.
    #[serde(flatten)]
    pub(super) origin: Option<Origin>,
}

fn by_id<S: Serializer>(rule: &&'static Rule, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(rule.id)
}

impl Finding {
    /// Fault of a bundle.
    pub(super) fn of_bundle(rule: &'static Rule, package: &str, bundle: &str, message: String) -> Self {
        let (package, bundle) = (package.to_owned(), bundle.to_owned());
        Self { rule, package, bundle, image: String::new(), message, origin: None }
    }

    /// Fault that `validate` found.
    pub(super) fn of_structure(finding: &olm_fbc::Finding) -> Self {
        let message = olm_fbc::Finding { origin: None, ..finding.clone() }.to_string();
        let origin = finding.origin.clone();
        Self { message, origin, ..Self::of_bundle(STRUCTURE, "", "", String::new()) }
    }
}

/// Sorts the findings, and adds the positions of their bundles.
pub(super) fn arrange(findings: &mut Vec<Finding>, catalog: &WholeCatalog) {
    for finding in findings.iter_mut().filter(|finding| finding.origin.is_none()) {
        finding.origin = catalog.bundle_origin(&finding.package, &finding.bundle).cloned();
    }
    let place = |origin: &Option<Origin>| origin.as_ref().map(|origin| (origin.file.clone(), origin.line));
    findings.sort_by(|a, b| {
        let key = |one: &Finding| (one.package.clone(), one.bundle.clone(), one.rule.id, one.image.clone());
        key(a)
            .cmp(&key(b))
            .then_with(|| place(&a.origin).cmp(&place(&b.origin)))
            .then_with(|| a.message.cmp(&b.message))
    });
    findings.dedup();
}
