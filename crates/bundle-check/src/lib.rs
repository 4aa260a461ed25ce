//! Lint rules for registry+v1 bundles, for authors before they publish one
//! (docs/design/cli.md#bundle-validation, docs/design/cli.md#lint-rules).
//!
//! ```text
//! files ─ read ► objects with locations ────┬ metadata, ClusterServiceVersion, CRDs, objects ────────► Report
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

use olm_bundle::{Bundle, LoadError};

use content::{Content, Object};
pub use edges::{name_fault, range_fault};
pub use manifests::KubernetesMinor;
pub use pods::is_operand_image;
pub use report::{Finding, Identity, Report};
use report::{Findings, Location};
pub use rule::{Level, RULES, Rule, TRAPS};

/// Checks of the bundle. A new rule is listed in `rule.rs`, and its function here or in [`CSV_CHECKS`].
const CHECKS: &[fn(&Content<'_>, &mut Findings)] = &[
    files::repeated_metadata,
    files::misplaced,
    metadata::annotations,
    metadata::properties,
    dependencies::dependencies,
    csv::single,
    csv::release,
    manifests::unique_crds,
    manifests::unowned_crds,
    manifests::owned_crds,
    manifests::crd_shape,
    conversion::conversions,
    manifests::service_accounts,
    manifests::namespaces,
    manifests::subjects,
    manifests::fields,
    manifests::removed_apis,
    manifests::target_kubernetes,
    manifests::size,
];

/// Checks of the ClusterServiceVersion, if there is one.
const CSV_CHECKS: &[fn(&Object, &mut Findings)] = &[
    csv::api_version,
    csv::names,
    csv::version,
    csv::minimum_kubernetes,
    csv::install_modes,
    csv::required_fields,
    csv::strategy,
    csv::annotation_keys,
    csv::skip_range,
    edges::earlier_bundles,
    edges::skip_range,
    files::repeated_in_annotations,
    csv::examples,
    csv::usable_mode,
    csv::api_services,
    csv::native_apis,
    csv::operator_conditions,
    csv::webhook_types,
    csv::blocking_webhooks,
    conversion::without_crds,
    images::images,
    deployments::keyed_lists,
    pods::watched_namespaces,
    pods::missing_files,
    pods::operand_images,
];

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
pub fn check(files: &BTreeMap<String, Vec<u8>>, kubernetes: Option<KubernetesMinor>) -> Report {
    let mut findings = Findings::default();
    let loaded = Bundle::load(files);
    let identity = loaded.as_ref().ok().map(Identity::of);
    let read = match &loaded {
        Err(error @ LoadError::TooLarge { .. }) => Err(error.clone()),
        _ => Content::read(files, kubernetes, &mut findings),
    };
    let content = match read {
        Ok(content) => content,
        Err(error) => {
            findings.add(&rule::FILE_4, Location::bundle(), error.to_string());
            return Report::new(files, identity, findings);
        }
    };
    for check in CHECKS {
        check(&content, &mut findings);
    }
    for check in CSV_CHECKS {
        content.csv().into_iter().for_each(|csv| check(csv, &mut findings));
    }
    // Loading and rendering skip problems that are findings already.
    if let Some(bundle) = content::load(loaded, &content, &mut findings) {
        rendering::check(&bundle, &content, &mut findings);
    }
    Report::new(files, identity, findings)
}
