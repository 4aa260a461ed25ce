//! Check of one image, for all bundles that use it.

use std::collections::BTreeSet;
use std::sync::Arc;

use olm_fbc::Bundle;
use olm_finding::Rule;
use olm_oci::{BUNDLE_FOLDERS, Digest, InspectError, Inspected, Puller, Reference, Selector};
use olm_pack::digest_of;

use super::finding::{ARCHITECTURE, BLOBS, CHILDREN, CatalogPlace, Finding, LOADS, MISSING, UNREADABLE};
use super::{content, signatures};
use crate::author::catalog_bundle;
use crate::package::CatalogPackage;
use crate::sign::Verifier;

/// Extent of the checks.
#[derive(Default)]
pub(super) struct Extent {
    /// Also check the related images of the bundles.
    pub(super) related: bool,
    /// Pull the bundles, and compare them with the catalog.
    pub(super) content: bool,
    /// Also look for the layers.
    pub(super) layers: bool,
    /// Architectures that every image must have. Empty for those that each bundle declares.
    pub(super) architectures: Vec<String>,
    /// Check the signatures of the bundles by this policy.
    pub(super) verifier: Option<Verifier>,
}

/// Use of an image by a bundle.
pub(super) struct Use<'a> {
    pub(super) package: &'a CatalogPackage,
    pub(super) bundle: &'a Bundle,
    /// `true` for the image of the bundle itself.
    pub(super) is_bundle: bool,
    pub(super) architectures: BTreeSet<String>,
}

/// Image with its uses.
pub(super) struct Job<'a> {
    pub(super) reference: Reference,
    pub(super) puller: Arc<Puller>,
    /// Client with a signature policy, if signatures are checked.
    pub(super) verifier: Option<Arc<Puller>>,
    pub(super) uses: Vec<Use<'a>>,
}

impl Use<'_> {
    pub(super) fn finding(
        &self,
        rule: &'static Rule,
        image: &str,
        message: impl std::fmt::Display,
    ) -> Finding {
        let place = CatalogPlace::bundle(&self.package.name, &self.bundle.name);
        Finding::new(rule, CatalogPlace { image: image.to_owned(), ..place }, message.to_string())
    }

    /// Required architectures that the image lacks. A bundle that is a single image is read on every architecture.
    fn lacking<'a>(&'a self, found: &'a Inspected) -> Vec<&'a str> {
        if found.architectures.is_empty() || self.is_bundle && !found.is_index {
            return Vec::new();
        }
        self.architectures.difference(&found.architectures).map(String::as_str).collect()
    }

    /// Reports whether the bundle needs this architecture.
    fn needs(&self, architecture: &str) -> bool {
        self.architectures.contains(architecture)
    }
}

impl Job<'_> {
    /// Digest of everything that the result depends on. `None` if the image of the reference, or its signatures, may
    /// change.
    pub(super) fn key(&self, extent: &Extent) -> Option<String> {
        if self.signed().is_some() {
            return None;
        }
        let Selector::Digest(_) = self.reference.selector() else { return None };
        let version = olm_runtime::component::VERSION;
        let mut text = format!("{version}\n{}\n{} {}\n", self.reference, extent.content, extent.layers);
        for one in &self.uses {
            let Use { package, bundle, is_bundle, architectures } = one;
            text += &format!("{}\n{} {is_bundle} {architectures:?}\n", package.name, bundle.name);
            if extent.content && *is_bundle {
                let channels = package.offer(&bundle.name).map(|offer| offer.channels().collect::<Vec<_>>());
                text += &format!("{channels:?} {bundle:?}\n");
            }
        }
        Some(digest_of(text.as_bytes()))
    }

    /// Findings of all bundles that use the image.
    pub(super) async fn check(self, extent: &Extent) -> Vec<Finding> {
        let image = self.reference.to_string();
        let found = match self.inspect(&self.reference, extent).await {
            Ok(found) => found,
            Err(InspectError { is_missing: true, .. }) => {
                let missing = "the registry does not have the image";
                return self.uses.iter().map(|one| one.finding(&MISSING, &image, missing)).collect();
            }
            Err(error) => {
                return self.uses.iter().map(|one| one.finding(&UNREADABLE, &image, &error)).collect();
            }
        };
        let mut findings = Vec::new();
        for one in &self.uses {
            let lacking = one.lacking(&found);
            if !lacking.is_empty() {
                let has = found.architectures.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                let message = format!("the image has no architecture {}; it has: {has}", lacking.join(", "));
                findings.push(one.finding(&ARCHITECTURE, &image, message));
            }
        }
        if let Some(verifier) = self.signed()
            && let Some((rule, fault)) = signatures::fault(verifier, &self.reference).await
        {
            let bundles = self.uses.iter().filter(|one| one.is_bundle);
            findings.extend(bundles.map(|one| one.finding(rule, &image, &fault)));
        }
        let incomplete = self.check_blobs(&image, &found, "", |_| true);
        let (children, is_incomplete) = self.check_children(&image, &found, extent).await;
        let is_incomplete = is_incomplete || !incomplete.is_empty();
        findings.extend(incomplete.into_iter().chain(children));
        // The content of an incomplete image cannot be pulled, which is reported.
        if extent.content && !is_incomplete && self.uses.iter().any(|one| one.is_bundle) {
            findings.extend(self.check_content(&image, &found).await);
        }
        findings
    }

    /// Client for the check of the signatures, if the image needs one.
    fn signed(&self) -> Option<&Arc<Puller>> {
        self.verifier.as_ref().filter(|_| self.uses.iter().any(|one| one.is_bundle))
    }

    async fn inspect(&self, reference: &Reference, extent: &Extent) -> Result<Inspected, InspectError> {
        match extent.layers {
            true => self.puller.inspect_layers(reference).await,
            false => self.puller.inspect(reference).await,
        }
    }

    /// Checks the images of an index whose architectures are needed. Also reports whether the first image, whose
    /// content is compared, has a finding.
    async fn check_children(&self, image: &str, index: &Inspected, extent: &Extent) -> (Vec<Finding>, bool) {
        let (mut findings, mut is_first_bad) = (Vec::new(), false);
        for (architecture, digest) in &index.children {
            let is_first = extent.content && index.single.as_ref() == Some(digest);
            let needs = |one: &Use<'_>| one.needs(architecture) || is_first && one.is_bundle;
            if !self.uses.iter().any(needs) {
                continue;
            }
            let found = match self.child(digest) {
                Ok(reference) => self.inspect(&reference, extent).await,
                Err(_) => continue,
            };
            let before = findings.len();
            let uses = || self.uses.iter().filter(|one| needs(one));
            match found {
                Ok(child) => {
                    let which = format!(" of architecture {architecture}");
                    findings.extend(self.check_blobs(image, &child, &which, needs));
                }
                Err(InspectError { is_missing: true, .. }) => {
                    let message = format!(
                        "the registry does not have the image {digest} of architecture {architecture} of the index"
                    );
                    findings.extend(uses().map(|one| one.finding(&CHILDREN, image, &message)));
                }
                Err(error) => findings.extend(uses().map(|one| one.finding(&UNREADABLE, image, &error))),
            }
            is_first_bad |= index.single.as_ref() == Some(digest) && findings.len() > before;
        }
        (findings, is_first_bad)
    }

    /// Findings for blobs that the registry lacks.
    fn check_blobs(
        &self,
        image: &str,
        found: &Inspected,
        which: &str,
        needs: impl Fn(&Use<'_>) -> bool,
    ) -> Vec<Finding> {
        if found.missing_blobs.is_empty() {
            return Vec::new();
        }
        let missing: Vec<_> = found.missing_blobs.iter().map(Digest::as_str).collect();
        let message = format!("the registry lacks parts of the image{which}: {}", missing.join(", "));
        self.uses.iter().filter(|one| needs(one)).map(|one| one.finding(&BLOBS, image, &message)).collect()
    }

    fn child(&self, digest: &Digest) -> Result<Reference, olm_oci::ReferenceError> {
        format!("{}@{digest}", self.reference.name()).parse()
    }

    /// Compares the content of a bundle image with the bundles of the catalog that name it.
    async fn check_content(&self, image: &str, found: &Inspected) -> Vec<Finding> {
        let bundles = || self.uses.iter().filter(|one| one.is_bundle);
        let all = |rule: &'static Rule, why: &str| {
            bundles().map(|one| one.finding(rule, image, why)).collect::<Vec<_>>()
        };
        // One image of an index, whether it is of the platform of this machine or not.
        let single = found.single.as_ref().map(|digest| self.child(digest));
        let reference: &Reference = match &single {
            Some(Ok(single)) => single,
            _ => return all(&LOADS, "the index has no image of a platform"),
        };
        let pulled = async {
            let canonical = self.puller.resolve(reference).await?;
            self.puller.pull_files(&canonical, &BUNDLE_FOLDERS).await
        };
        let files = match pulled.await {
            Ok((files, _)) => files,
            Err(error) if error.is_of_the_content() => return all(&LOADS, &error.unmarked()),
            Err(error) => return all(&UNREADABLE, &error.unmarked()),
        };
        let actual = match catalog_bundle(&files, image) {
            Ok(actual) => actual,
            Err(error) => return all(&LOADS, &error.to_string()),
        };
        let install_checks = content::install_checks(&olm_bundle_check::check(&files, None).findings);
        let compare = |one: &Use<'_>| {
            let differences = content::compare(one.package, one.bundle, &actual);
            let all = differences.into_iter().chain(install_checks.iter().cloned());
            all.map(|(rule, message)| one.finding(rule, image, message)).collect::<Vec<_>>()
        };
        bundles().flat_map(compare).collect()
    }
}
