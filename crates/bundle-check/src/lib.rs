//! Lint rules for registry+v1 bundles, for authors before they publish one
//! (docs/design/cli.md#bundle-validation, docs/design/cli.md#lint-rules).
//!
//! ```text
//! files ─ read ► objects with locations ────┬ metadata, ClusterServiceVersion, CRDs, objects ────────► BundleReport
//!       └ olm_bundle::BundleContent ► rendered for every install mode ► install checks ─────────────┘
//! ```
//!
//! An error means that the bundle cannot be installed, or that the established tools (`opm`, `operator-sdk`) refuse
//! it. A warning means that the bundle works, but perhaps not as intended. All problems are reported at once, each
//! [`BundleFinding`] with its [`Rule`], file, line and field. `olm-bundle` itself decides whether a bundle can be
//! rendered, so the server can install a bundle that is valid here.
//!
//! Pure: the caller passes the files, no cluster is contacted. The crate never panics, and bounds its work and its
//! report.

mod content;
mod conversion;
mod csv;
mod dependencies;
mod deployments;
mod edges;
mod files;
mod images;
mod manifests;
mod metadata;
mod pods;
mod rendering;
mod report;
mod rule;

use std::collections::BTreeMap;

use olm_bundle::{BundleContent, BundleLoadError};

use content::Content;
pub use edges::{name_fault, range_fault};
pub use manifests::KubernetesMinor;
pub use olm_finding::{Level, Rule};
pub use pods::is_operand_image;
pub use report::{BundleFinding, BundlePlace, BundleReport, Identity};
use report::{Findings, Location};
use rule::Check;
pub use rule::{TRAPS, is_refused_by_default, prevents_installation, rules};

/// Checks the files of a bundle, by slash-separated path relative to its root (`metadata/annotations.yaml`,
/// `manifests/csv.yaml`, …). Files elsewhere are ignored. `kubernetes` is the target version. If `None`, APIs that no
/// supported Kubernetes serves are reported.
///
/// ```
/// use std::collections::BTreeMap;
/// use olm_bundle_check::{Level, check};
///
/// let csv = b"kind: ClusterServiceVersion\nmetadata: {name: demo.v1}\n".to_vec();
/// let files = BTreeMap::from([("manifests/csv.yaml".to_owned(), csv)]);
/// let report = check(&files, None);
/// assert!(report.of(Level::Error).any(|finding| finding.rule.id == "FILE-1"));
/// ```
pub fn check(files: &BTreeMap<String, Vec<u8>>, kubernetes: Option<KubernetesMinor>) -> BundleReport {
    let mut findings = Findings::default();
    let loaded = BundleContent::load(files);
    let identity = loaded.as_ref().ok().map(Identity::of);
    let read = match &loaded {
        Err(error @ BundleLoadError::TooLarge { .. }) => Err(error.clone()),
        _ => Content::read(files, kubernetes, &mut findings),
    };
    let content = match read {
        Ok(content) => content,
        Err(error) => {
            findings.add(&rule::FILE_4, Location::bundle(), error.to_string());
            return BundleReport::new(files, identity, findings);
        }
    };
    for declared in rule::DECLARED {
        match declared.check {
            Check::Bundle(check) => check(&content, &mut findings),
            Check::Csv(check) => content.csv().into_iter().for_each(|csv| check(csv, &mut findings)),
            Check::Elsewhere => {}
        }
    }
    // Loading and rendering skip problems that are findings already.
    if let Some(bundle) = content::load(loaded, &content, &mut findings) {
        rendering::check(&bundle, &content, &mut findings);
    }
    BundleReport::new(files, identity, findings)
}
