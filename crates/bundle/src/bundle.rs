//! A loaded bundle and what other parts of the system ask of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::csv::{Csv, InstallMode};
use crate::load::{self, LoadError};
use crate::properties::PROPERTIES_ANNOTATION;

/// The content of a registry+v1 bundle image. Its parts are in normal form (docs/design/bundles.md#normal-form);
/// whether it can be installed is decided by [`render`](crate::render).
#[derive(Debug, Clone)]
pub struct Bundle {
    pub(crate) package_name: String,
    pub(crate) max_openshift_version: Option<String>,
    pub(crate) csv: Csv,
    pub(crate) csv_files: Vec<String>,
    pub(crate) definitions: Vec<Definition>,
    pub(crate) others: Vec<Value>,
}

/// A CustomResourceDefinition of the bundle.
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

/// `metadata.name` of an object, empty when it has none.
pub(crate) fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

impl Bundle {
    /// Loads a bundle from the files of an unpacked image, by slash-separated path relative to its root
    /// (`metadata/annotations.yaml`, `manifests/csv.yaml`, …). Files elsewhere are ignored
    /// (docs/design/bundles.md#image-layout).
    ///
    /// # Errors
    /// When the files are not a registry+v1 bundle; see [`LoadError`].
    pub fn load(files: &BTreeMap<String, Vec<u8>>) -> Result<Self, LoadError> {
        load::load(files)
    }

    /// Package name of `metadata/annotations.yaml`; may be empty, which fails when rendering.
    pub fn package_name(&self) -> &str {
        &self.package_name
    }

    /// Name of the ClusterServiceVersion, by which catalogs know the bundle.
    pub fn name(&self) -> &str {
        &self.csv.metadata.name
    }

    /// `spec.version` of the ClusterServiceVersion as authored. The release of a bundle is a matter of the
    /// catalog: nothing in the image holds it.
    pub fn version(&self) -> Option<&str> {
        self.csv.spec.version.as_deref()
    }

    /// JSON text of the bundle's properties, for the annotation of the revision
    /// (docs/design/bundles.md#merged-properties).
    pub fn properties(&self) -> Option<&str> {
        self.annotations().get(PROPERTIES_ANNOTATION).map(String::as_str)
    }

    /// The number that `metadata/properties.yaml` gives as `olm.maxOpenShiftVersion`, where [`Self::properties`] spell it
    /// in another way: 4.20 is 4.2 there (docs/design/additions.md#maximum-openshift-version).
    pub fn max_openshift_version(&self) -> Option<&str> {
        self.max_openshift_version.as_deref()
    }

    /// Annotations of the ClusterServiceVersion, `olm.properties` merged.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.csv.metadata.annotations
    }

    /// Install modes that the bundle supports.
    pub fn install_modes(&self) -> BTreeSet<InstallMode> {
        self.csv.install_modes()
    }

    /// Files that hold a ClusterServiceVersion, in reading order. There should be one; the last one counts.
    pub fn csv_files(&self) -> &[String] {
        &self.csv_files
    }

    /// Whether the bundle brings webhooks of its own and so needs a certificate provider.
    pub fn has_webhooks(&self) -> bool {
        !self.csv.spec.webhooks.is_empty()
    }
}
