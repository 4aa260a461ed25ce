//! registry+v1 bundles: reading, checking, and rendering to plain Kubernetes objects (docs/design/bundles.md).
//!
//! Pure functions of bytes and values: no access to files, network, cluster or clock. Rendering yields the same
//! objects as the Go reference, because they are hashed into revisions that exist on clusters. Stricter checks
//! belong elsewhere.

mod bundle;
mod certificates;
mod config;
mod csv;
mod deployment_config;
mod deployments;
mod go_json;
mod go_time;
mod limits;
mod load;
mod names;
mod objects;
mod obstacles;
pub mod pointer;
mod properties;
mod quantity;
mod rbac;
mod render;
pub mod rights;
mod support;
mod typed;
mod validate;
mod webhooks;

pub use bundle::Bundle;
pub use certificates::{
    BUILTIN_CA_ANNOTATION, Certificates, Injection, InjectionKind, Serving, injections, issued_by_others,
};
pub use config::{config_schema, config_warnings};
pub use csv::InstallMode;
pub use limits::{Spent, Unread};
pub use load::LoadError;
pub use objects::distinct;
pub use obstacles::obstacles;
pub use properties::PROPERTIES_ANNOTATION;
pub use render::{RenderError, RenderOptions, render};
pub use typed::{Loss, losses};
pub use validate::{Fault, Validator, faults, subdomain_faults};
