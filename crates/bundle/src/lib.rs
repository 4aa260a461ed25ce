//! registry+v1 bundles: reading, checking, and rendering to plain Kubernetes objects (docs/design/bundles.md).
//!
//! Pure functions of bytes and values: no access to files, network, cluster or clock. Rendering yields the same
//! objects as the Go reference, because they are hashed into revisions that exist on clusters. Stricter checks
//! belong elsewhere.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use olm_bundle::rights::Rights;
//! use olm_bundle::{BundleContent, RenderOptions, SYSTEM_NAMESPACE, config_schema, install_checks, render, validate};
//!
//! let annotations = "annotations: {operators.operatorframework.io.bundle.package.v1: demo}";
//! let csv = r#"{"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
//!     "metadata": {"name": "demo.v1.0.0"},
//!     "spec": {"installModes": [{"type": "AllNamespaces", "supported": true}],
//!         "install": {"spec": {"clusterPermissions": [{"serviceAccountName": "demo", "rules": []}]}}}}"#;
//! let files = BTreeMap::from([
//!     ("metadata/annotations.yaml".to_owned(), annotations.into()),
//!     ("manifests/csv.yaml".to_owned(), csv.into()),
//! ]);
//! let bundle = BundleContent::load(&files)?;
//! assert!(validate(&bundle).is_empty());
//! assert_eq!(config_schema(&bundle, false, false)["additionalProperties"], false);
//!
//! let options = RenderOptions { install_namespace: "demo", ..RenderOptions::default() };
//! let objects = render(&bundle, &options)?;
//! assert_eq!(objects[0]["kind"], "ServiceAccount");
//! assert!(install_checks(&bundle, &objects, "demo", SYSTEM_NAMESPACE).is_empty());
//! assert!(Rights::of(&objects).exact().contains_key(&Some("demo".to_owned())));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod api_roles;
mod api_services;
mod bundle;
mod certificates;
mod config;
mod csv;
mod deployment_config;
mod deployments;
mod error;
mod go_json;
mod go_time;
mod install_checks;
mod install_modes;
mod kinds;
mod limits;
mod load;
mod names;
mod objects;
mod operator_condition;
mod options;
pub mod pointer;
mod properties;
mod quantity;
mod rbac;
mod render;
pub mod rights;
mod typed;
mod validate;
mod webhooks;

pub use bundle::BundleContent;
pub use certificates::{
    BUILTIN_CA_ANNOTATION, Certificates, Injection, InjectionKind, Serving, injections, issued_by_others,
};
pub use config::{config_schema, config_warnings};
pub use csv::InstallMode;
pub use error::{BundleLoadError, INVALID_CONFIGURATION, NO_NAMESPACE, RenderError, UNSUPPORTED};
pub use install_checks::{SYSTEM_NAMESPACE, install_checks};
pub use install_modes::unsupported_remedy;
pub use kinds::{BundleKind, KINDS, Scope, is_supported_kind};
pub use limits::{ManifestError, ManifestUsage};
pub use objects::distinct;
pub use options::RenderOptions;
pub use properties::PROPERTIES_ANNOTATION;
pub use quantity::is_same_quantity;
pub use render::render;
pub use typed::{Loss, losses, normal_csv};
pub use validate::{ValidationFault, Validator, subdomain_faults, validate};
