//! Lint rules for registry+v1 bundles, for authors before they publish one
//! (docs/design/additions.md#bundle-validation, docs/design/additions.md#lint-rules).
//!
//! ```text
//! files ─ read ► objects with their places ─┬ metadata, ClusterServiceVersion, CRDs, objects ────────► Report
//!       └ olm_bundle::Bundle ► rendered for every install mode ► install checks ────────────────────┘
//! ```
//!
//! An error means that the bundle cannot be installed, or that the established tools (`opm`, `operator-sdk`) refuse
//! it. A warning means that the bundle works, but perhaps not as intended. All problems are reported at once, each
//! [`Finding`] with its [`Rule`], file, line and field. `olm-bundle` itself decides whether a bundle can be
//! rendered, so the server can install a bundle that is valid here.
//!
//! Pure: the caller passes the files, no cluster is contacted. The crate never panics, and bounds its work and its
//! report.

mod content;
mod definitions;
mod dependencies;
mod fields;
mod findings;
mod images;
mod kubernetes;
mod lines;
mod loading;
mod metadata;
mod names;
mod objects;
mod place;
mod properties;
mod rendering;
mod report;
mod rule;
mod service_version;
mod size;
mod version_one;
mod webhooks;

use std::collections::BTreeMap;

use olm_bundle::{Bundle, LoadError};

use content::Content;
use findings::Findings;
pub use kubernetes::{KubernetesMinor, KubernetesMinorError};
use place::Place;
pub use report::{Finding, Identity, Report};
pub use rule::{Level, RULES, Rule};

/// Options of a check.
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckOptions {
    /// Target Kubernetes version. If `None`, APIs that no supported Kubernetes serves are reported.
    pub kubernetes: Option<KubernetesMinor>,
}

/// Checks the files of a bundle, by slash-separated path relative to its root (`metadata/annotations.yaml`,
/// `manifests/csv.yaml`, …). Files elsewhere are ignored.
pub fn check(files: &BTreeMap<String, Vec<u8>>, options: &CheckOptions) -> Report {
    let mut findings = Findings::default();
    let loaded = Bundle::load(files);
    let identity = loaded.as_ref().ok().map(Identity::of);
    let read = match &loaded {
        Err(error @ LoadError::TooLarge { .. }) => Err(error.clone()),
        _ => Content::read(files, &mut findings),
    };
    let content = match read {
        Ok(content) => content,
        Err(error) => {
            findings.add(&rule::FILE_4, Place::nowhere(), error.to_string());
            return Report::new(files, identity, findings);
        }
    };
    metadata::check(files, &mut findings);
    let properties = properties::check(files, &content, &mut findings);
    dependencies::check(files, &content, &properties, &mut findings);
    service_version::check(files, &content, &mut findings);
    definitions::check(&content, &mut findings);
    objects::check(&content, &mut findings);
    fields::check(&content, &mut findings);
    webhooks::check(&content, &mut findings);
    version_one::check(&content, &mut findings);
    images::check(&content, &mut findings);
    kubernetes::check(&content, options.kubernetes, &mut findings);
    if let Some(bundle) = loading::check(files, loaded, &content, &mut findings) {
        rendering::check(&bundle, &content, &mut findings);
    }
    size::check(files, &mut findings);
    Report::new(files, identity, findings)
}
