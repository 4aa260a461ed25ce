//! Checks of the images that a catalog refers to, 8 at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use olm_fbc::Bundle;
use olm_oci::{BUNDLE_FOLDERS, InspectError, Inspected, Limits, Puller, Reference, Retry};

use super::content;
use super::finding::{ARCHITECTURE, Finding, LOADS, MISSING, SIGNATURE, UNREADABLE};
use super::signatures;
use crate::author::catalog_bundle;
use crate::catalog::package::CatalogPackage;
use crate::catalog::whole::{CSV_METADATA, Packages};
use crate::error::CliError;
use crate::session::Session;
use crate::sign::Verifier;
use crate::source::ImageArgs;

/// Images that are checked in parallel.
const PARALLEL: usize = 8;
/// A second attempt overcomes a lost connection. More would delay the findings of a registry that does not respond.
const RETRY: Retry = Retry { attempts: 2, first_delay: Duration::from_millis(100) };
/// Label of a ClusterServiceVersion for a supported architecture, without its name.
const ARCHITECTURE_LABEL: &str = "operatorframework.io/arch.";
/// Architecture of a ClusterServiceVersion without such a label.
const DEFAULT_ARCHITECTURE: &str = "amd64";

/// Extent of the checks.
#[derive(Default)]
pub(super) struct Extent {
    /// Also check the related images of the bundles.
    pub(super) related: bool,
    /// Pull the bundles, and compare them with the catalog.
    pub(super) content: bool,
    /// Architectures that every image must have. Empty for those that each bundle declares.
    pub(super) architectures: Vec<String>,
    /// Check the signatures of the bundles by this policy.
    pub(super) verifier: Option<Verifier>,
}

/// Use of an image by a bundle.
struct Use<'a> {
    package: &'a CatalogPackage,
    bundle: &'a Bundle,
    /// `true` for the image of the bundle itself.
    is_bundle: bool,
    architectures: BTreeSet<String>,
}

/// Image with its uses.
struct Job<'a> {
    reference: Reference,
    puller: Arc<Puller>,
    /// Client with a signature policy, if signatures are checked.
    verifier: Option<Arc<Puller>>,
    uses: Vec<Use<'a>>,
}

/// Checks the images of all packages. Returns the number of images, and the findings.
///
/// # Errors
/// A flag names a file that does not exist, or the command is interrupted.
pub(super) async fn check(
    packages: &Packages,
    extent: &Extent,
    images: &ImageArgs,
    session: &Session,
) -> Result<(usize, Vec<Finding>), CliError> {
    let mut findings = Vec::new();
    let mut jobs = Vec::new();
    let (mut pullers, mut verifiers) = (BTreeMap::new(), BTreeMap::new());
    let used = uses(packages, extent);
    let total = used.len();
    for (image, uses) in used {
        match image.parse::<Reference>() {
            Ok(reference) => {
                let one = puller(&reference, images, None, &mut pullers)?;
                let policy = extent.verifier.as_ref();
                let verifier = policy.map(|policy| puller(&reference, images, Some(policy), &mut verifiers));
                jobs.push(Job { reference, puller: one, verifier: verifier.transpose()?, uses });
            }
            Err(error) => findings.extend(uses.iter().map(|one| one.finding(UNREADABLE, image, &error))),
        }
    }
    let step = session.progress.step(format!("checking {total} images"));
    let mut checks = stream::iter(jobs).map(|job| job.check(extent.content)).buffer_unordered(PARALLEL);
    let mut done = 0;
    while let Some(found) = session.interruptible(checks.next()).await? {
        done += 1;
        findings.extend(found);
        step.update(format!("checked {done} of {total} images, findings: {}", findings.len()));
    }
    Ok((total, findings))
}

/// Images in the order of their names, with their uses.
fn uses<'a>(packages: &'a Packages, extent: &Extent) -> BTreeMap<&'a str, Vec<Use<'a>>> {
    let mut used: BTreeMap<&str, Vec<Use<'_>>> = BTreeMap::new();
    for package in packages.values() {
        for bundle in &package.content.bundles {
            let architectures = required(bundle, &extent.architectures);
            let related = bundle.related_images.iter().filter(|_| extent.related);
            let related: BTreeSet<_> = related.map(|related| related.image.as_str()).collect();
            let related = related.into_iter().map(|image| (image, false));
            let own = [(bundle.image.as_str(), true)].into_iter();
            for (image, is_bundle) in
                own.chain(related.filter(|(image, _)| *image != bundle.image)).filter(|(i, _)| !i.is_empty())
            {
                let architectures = architectures.clone();
                used.entry(image).or_default().push(Use { package, bundle, is_bundle, architectures });
            }
        }
    }
    used
}

/// Architectures that the images of a bundle must have: the requested ones, else those of the labels of its
/// ClusterServiceVersion. None if the catalog does not have the labels.
fn required(bundle: &Bundle, requested: &[String]) -> BTreeSet<String> {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Metadata {
        labels: BTreeMap<String, String>,
    }
    if !requested.is_empty() {
        return requested.iter().cloned().collect();
    }
    let property = bundle.properties.iter().find(|property| property.kind == CSV_METADATA);
    let Some(metadata) = property.and_then(|property| property.parse::<Metadata>().ok()) else {
        return BTreeSet::new();
    };
    let supported = metadata.labels.iter().filter(|(_, value)| *value == "supported");
    let mut names: BTreeSet<_> =
        supported.filter_map(|(key, _)| key.strip_prefix(ARCHITECTURE_LABEL)).map(str::to_owned).collect();
    if names.is_empty() {
        names.insert(DEFAULT_ARCHITECTURE.to_owned());
    }
    names
}

/// Client for the registry of `reference`, one for each credentials file.
fn puller(
    reference: &Reference,
    images: &ImageArgs,
    policy: Option<&Verifier>,
    pullers: &mut BTreeMap<Option<PathBuf>, Arc<Puller>>,
) -> Result<Arc<Puller>, CliError> {
    let authfile = images.authfile(reference)?;
    if let Some(known) = pullers.get(&authfile) {
        return Ok(Arc::clone(known));
    }
    let mut config = images.config(reference, Limits::BUNDLE)?;
    if let Some(policy) = policy {
        config = policy.applied(config);
    }
    config.retry = RETRY;
    (config.concurrency, config.concurrency_per_registry) = (PARALLEL, PARALLEL);
    let puller = Arc::new(Puller::new(config));
    pullers.insert(authfile, Arc::clone(&puller));
    Ok(puller)
}

impl Use<'_> {
    fn finding(
        &self,
        rule: &'static super::finding::Rule,
        image: &str,
        message: impl std::fmt::Display,
    ) -> Finding {
        let finding = Finding::of_bundle(rule, &self.package.name, &self.bundle.name, message.to_string());
        Finding { image: image.to_owned(), ..finding }
    }

    /// Required architectures that the image lacks. A bundle that is a single image is read on every architecture.
    fn lacking<'a>(&'a self, found: &'a Inspected) -> Vec<&'a str> {
        if found.architectures.is_empty() || self.is_bundle && !found.is_index {
            return Vec::new();
        }
        self.architectures.difference(&found.architectures).map(String::as_str).collect()
    }
}

impl Job<'_> {
    async fn check(self, content: bool) -> Vec<Finding> {
        let image = self.reference.to_string();
        let found = match self.puller.inspect(&self.reference).await {
            Ok(found) => found,
            Err(InspectError { is_missing: true, .. }) => {
                let missing = "the registry does not have the image";
                return self.uses.iter().map(|one| one.finding(MISSING, &image, missing)).collect();
            }
            Err(error) => {
                return self.uses.iter().map(|one| one.finding(UNREADABLE, &image, &error)).collect();
            }
        };
        let mut findings = Vec::new();
        for one in &self.uses {
            let lacking = one.lacking(&found);
            if !lacking.is_empty() {
                let has = found.architectures.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                let message = format!("the image has no architecture {}; it has: {has}", lacking.join(", "));
                findings.push(one.finding(ARCHITECTURE, &image, message));
            }
        }
        if let Some(verifier) = self.verifier.as_ref().filter(|_| self.uses.iter().any(|one| one.is_bundle))
            && let Some(fault) = signatures::fault(verifier, &self.reference).await
        {
            let bundles = self.uses.iter().filter(|one| one.is_bundle);
            findings.extend(bundles.map(|one| one.finding(SIGNATURE, &image, &fault)));
        }
        if content && self.uses.iter().any(|one| one.is_bundle) {
            findings.extend(self.check_content(&image, &found).await);
        }
        findings
    }

    /// Compares the content of a bundle image with the bundles of the catalog that name it.
    async fn check_content(&self, image: &str, found: &Inspected) -> Vec<Finding> {
        let bundles = || self.uses.iter().filter(|one| one.is_bundle);
        let all = |rule, why: &str| bundles().map(|one| one.finding(rule, image, why)).collect::<Vec<_>>();
        // One image of an index, whether it is of the platform of this machine or not.
        let single =
            found.single.as_ref().map(|digest| format!("{}@{digest}", self.reference.name()).parse());
        let reference: &Reference = match &single {
            Some(Ok(single)) => single,
            _ => return all(LOADS, "the index has no image of a platform"),
        };
        let pulled = async {
            let canonical = self.puller.resolve(reference).await?;
            self.puller.pull_files(&canonical, &BUNDLE_FOLDERS).await
        };
        let files = match pulled.await {
            Ok((files, _)) => files,
            Err(error) if error.is_of_the_content() => return all(LOADS, &error.unmarked()),
            Err(error) => return all(UNREADABLE, &error.unmarked()),
        };
        let actual = match catalog_bundle(&files, image) {
            Ok(actual) => actual,
            Err(error) => return all(LOADS, &error.to_string()),
        };
        let compare = |one: &Use<'_>| {
            let differences = content::compare(one.package, one.bundle, &actual);
            differences
                .into_iter()
                .map(|(rule, message)| one.finding(rule, image, message))
                .collect::<Vec<_>>()
        };
        bundles().flat_map(compare).collect()
    }
}
