//! Loaded bundle and its accessors.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::csv::{Csv, InstallMode};
use crate::properties::PROPERTIES_ANNOTATION;

/// Content of a registry+v1 bundle image, in normal form (docs/design/bundles.md#normal-form).
/// [`render`](crate::render()) decides whether it can be installed.
#[derive(Debug, Clone)]
pub struct Bundle {
    pub(crate) package_name: String,
    pub(crate) max_openshift_version: Option<String>,
    pub(crate) csv: Csv,
    pub(crate) csv_files: Vec<String>,
    pub(crate) definitions: Vec<Definition>,
    pub(crate) others: Vec<Value>,
}

/// CustomResourceDefinition of the bundle.
#[derive(Debug, Clone)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) object: Value,
}

impl Definition {
    pub(crate) fn new(object: Value) -> Self {
        Self { name: name_of(&object).to_string(), object }
    }
}

/// `metadata.name` of an object, empty if absent.
pub(crate) fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

impl Bundle {
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

    /// Supported install modes.
    pub fn install_modes(&self) -> BTreeSet<InstallMode> {
        self.csv.install_modes()
    }

    /// Files with a ClusterServiceVersion, in reading order. Of several, the last one is used.
    pub fn csv_files(&self) -> &[String] {
        &self.csv_files
    }

    /// Reports whether the bundle has webhooks, and thus needs a certificate provider.
    pub fn has_webhooks(&self) -> bool {
        !self.csv.spec.webhooks.is_empty()
    }
}
