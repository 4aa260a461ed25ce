//! Errors of loading and rendering a bundle.

use olm_version::excerpt;

/// Reason why the files are not a registry+v1 bundle. Permanent, because the content of an image never changes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleLoadError {
    /// `metadata/annotations.yaml` is missing.
    #[error("open metadata/annotations.yaml: no such file or directory")]
    NoAnnotations,
    /// `metadata/annotations.yaml` is invalid.
    #[error("{0}")]
    Annotations(String),
    /// There is no file below `manifests/`.
    #[error("stat manifests: no such file or directory")]
    NoManifests,
    /// Path of a directory inside `manifests/`.
    #[error(
        "subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: \
         found \"{}\"",
        excerpt(.0)
    )]
    Subdirectory(String),
    /// A manifest is invalid.
    #[error("error parsing objects in \"{}\": {detail}", excerpt(file))]
    Manifest {
        /// Path of the file.
        file: String,
        /// Description of the error.
        detail: String,
        /// Dotted path of the invalid field. Empty if no single field is invalid.
        field: String,
    },
    /// No manifest is a ClusterServiceVersion.
    #[error("no ClusterServiceVersion found in \"manifests\"")]
    NoClusterServiceVersion,
    /// The `olm.properties` annotation of the ClusterServiceVersion is invalid.
    #[error("failed to unmarshal csv.metadata.annotations['olm.properties']: {0}")]
    PropertiesAnnotation(String),
    /// `metadata/properties.yaml` is invalid.
    #[error("failed to unmarshal metadata/properties.yaml: {0}")]
    PropertiesFile(String),
    /// The bundle exceeds a limit that no benign bundle reaches.
    #[error("bundle is too large at {:?}: at most {limit} {what} are allowed", excerpt(file))]
    TooLarge {
        /// File that exceeds the limit.
        file: String,
        /// Allowed number.
        limit: usize,
        /// Counted unit.
        what: &'static str,
    },
}

/// Prefix of [`RenderError::Unsupported`].
pub const UNSUPPORTED: &str = "unsupported bundle: ";
/// Prefix of [`RenderError::Configuration`].
pub const INVALID_CONFIGURATION: &str = "invalid ClusterExtension configuration";
/// Prefix of [`RenderError::NoNamespace`].
pub const NO_NAMESPACE: &str = "no namespace matches watchNamespaceSelector";

/// Rendering error. Its text is shown to users.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The bundle needs an unsupported feature.
    #[error("{}{}", UNSUPPORTED, .0)]
    Unsupported(String),
    /// The configuration is invalid for the bundle.
    #[error("{}: {}", INVALID_CONFIGURATION, .0)]
    Configuration(String),
    /// `deploymentConfig` matches the schema, but has an invalid value.
    #[error("invalid deploymentConfig: failed to unmarshal deploymentConfig: {0}")]
    DeploymentConfig(String),
    /// Faults reported by the validators.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
    /// The watched namespaces do not match the install modes.
    #[error("invalid option(s): {0}")]
    Targets(String),
    /// No namespace has the labels of this selector.
    #[error("{} {}", NO_NAMESPACE, excerpt(.0))]
    NoNamespace(String),
    /// An object cannot be generated.
    #[error("{0}")]
    Generate(String),
}

impl RenderError {
    /// Reports whether only a change of the configuration in the ClusterExtension can fix the error. Then
    /// Progressing is False with reason `InvalidConfiguration`. Other errors are retried with reason `Retrying`.
    pub fn is_invalid_configuration(&self) -> bool {
        matches!(self, Self::Configuration(_) | Self::DeploymentConfig(_))
    }
}
