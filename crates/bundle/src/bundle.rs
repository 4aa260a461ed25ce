//! Loaded bundle and its accessors.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::csv::{Csv, InstallMode};
use crate::pointer::text;
use crate::properties::PROPERTIES_ANNOTATION;

/// Content of a registry+v1 bundle image, in normal form (docs/design/bundles.md#normal-form).
/// [`render`](crate::render()) decides whether it can be installed.
#[derive(Debug, Clone)]
pub struct BundleContent {
    pub(crate) package_name: String,
    pub(crate) max_openshift_version: Option<String>,
    pub(crate) csv: Csv,
    pub(crate) csv_files: Vec<String>,
    /// CustomResourceDefinitions.
    pub(crate) crds: Vec<Value>,
    pub(crate) others: Vec<Value>,
}

/// `metadata.name` of an object, empty if absent.
pub(crate) fn name_of(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// API group of an object, empty for the core group.
pub(crate) fn group_of(object: &Value) -> &str {
    text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group)
}

impl BundleContent {
    /// Package name of `metadata/annotations.yaml`. It may be empty, in which case rendering fails.
    pub fn package_name(&self) -> &str {
        &self.package_name
    }

    /// Name of the ClusterServiceVersion, which is the name of the bundle in catalogs.
    pub fn name(&self) -> &str {
        &self.csv.metadata.name
    }

    /// `spec.version` of the ClusterServiceVersion as authored. The release of a bundle is in the catalog only, not
    /// in the image.
    pub fn version(&self) -> Option<&str> {
        self.csv.spec.version.as_deref()
    }

    /// `spec.minKubeVersion` of the ClusterServiceVersion as authored. Rendering ignores it.
    pub fn min_kube_version(&self) -> Option<&str> {
        self.csv.spec.min_kube_version.as_deref().filter(|version| !version.is_empty())
    }

    /// JSON text of the properties, for the annotation of the revision (docs/design/bundles.md#merged-properties).
    pub fn properties(&self) -> Option<&str> {
        self.annotations().get(PROPERTIES_ANNOTATION).map(String::as_str)
    }

    /// Value of `olm.maxOpenShiftVersion` as written in `metadata/properties.yaml`, if it is a number that
    /// [`Self::properties`] spell differently: 4.20 becomes 4.2 there
    /// (docs/design/additions.md#maximum-openshift-version).
    pub fn max_openshift_version(&self) -> Option<&str> {
        self.max_openshift_version.as_deref()
    }

    /// Annotations of the ClusterServiceVersion, with merged `olm.properties`.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.csv.metadata.annotations
    }

    /// Supported install modes. A type listed as both supported and unsupported is supported. Unknown types are
    /// ignored.
    pub fn install_modes(&self) -> BTreeSet<InstallMode> {
        let supported = self.csv.spec.install_modes.iter().filter(|entry| entry.supported);
        supported
            .filter_map(|entry| InstallMode::ALL.into_iter().find(|mode| mode.name() == entry.mode))
            .collect()
    }

    /// Files with a ClusterServiceVersion, in reading order. Of several, the last one is used.
    pub fn csv_files(&self) -> &[String] {
        &self.csv_files
    }

    /// Reports whether the bundle serves aggregated APIs (docs/design/bundles.md#aggregated-apis).
    pub fn has_api_services(&self) -> bool {
        !self.csv.spec.api_services.owned.is_empty()
    }

    /// Reports whether the bundle has webhooks, and thus needs a certificate provider.
    pub fn has_webhooks(&self) -> bool {
        !self.csv.spec.webhooks.is_empty()
    }
}
