//! APIs of an extension: their custom resources, the documentation of their fields, and the form that creates one.
//!
//! Only APIs that the extension owns have these pages, by the owner labels of their CRDs.

mod create;
mod examples;
mod list;
mod schema;

use axum::Router;
use axum::routing::{get, post};
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use olm_catalog_server::http::route::name_problems;
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::{ClusterConnection, owner};
use olm_revision::object::served_kind;
use olm_version::quote;
use serde_json::Value;

use crate::app::App;

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/extensions/{name}/apis", get(list::page))
        .route("/extensions/{name}/apis/{crd}", get(list::api))
}

/// Pages that create custom resources. `--read-only` removes them with their form.
pub(crate) fn changes() -> Router<App> {
    Router::new().route("/extensions/{name}/apis/{crd}/create", get(create::form).merge(post(create::apply)))
}

/// API that an extension owns.
struct Api {
    /// Name of the CRD.
    crd: String,
    gvk: GroupVersionKind,
    is_namespaced: bool,
    /// The CRD.
    object: Value,
}

impl Api {
    /// `None` for a CRD of another owner, or without a served version.
    fn of_crd(crd: &DynamicObject, extension: &str) -> Option<Self> {
        if owner(crd).as_deref() != Some(extension) {
            return None;
        }
        let object = serde_json::to_value(crd).ok()?;
        Some(Self {
            crd: crd.metadata.name.clone()?,
            gvk: served_kind(&object)?,
            is_namespaced: object["spec"]["scope"] == "Namespaced",
            object,
        })
    }

    /// The API `crd` of the extension.
    ///
    /// # Errors
    /// The extension owns no such API, or the user may not read it.
    async fn read(
        cluster: &ClusterConnection,
        extension: &str,
        crd: &str,
        session: &Session,
    ) -> Result<Self, CliError> {
        let unknown =
            || CliError::no_candidate(format!("extension {} has no API {}", quote(extension), quote(crd)));
        if !name_problems(crd).is_empty() {
            return Err(unknown());
        }
        let what = format!("CustomResourceDefinition {crd}");
        let found = cluster.call(&what, list::crds(cluster).get_opt(crd), session).await?;
        found.and_then(|found| Self::of_crd(&found, extension)).ok_or_else(unknown)
    }

    /// API version of the custom resources.
    fn version(&self) -> String {
        self.gvk.api_version()
    }

    /// Schema of the version that the pages use.
    fn schema(&self) -> &Value {
        let versions = self.object["spec"]["versions"].as_array().into_iter().flatten();
        let version = versions.into_iter().find(|version| version["name"] == self.gvk.version.as_str());
        version.map_or(&Value::Null, |version| &version["schema"]["openAPIV3Schema"])
    }

    fn path(&self, extension: &str) -> String {
        format!("{}/apis/{}", crate::extensions::path(extension), crate::catalog::encoded(&self.crd))
    }
}
