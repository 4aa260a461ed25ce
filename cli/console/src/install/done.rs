//! Page after a write. It has an address of its own, so that a reload sends no form again.

use axum::Extension;
use axum::extract::{Path, Query, State};
use kube::ResourceExt;
use maud::html;
use olm_catalog_server::http::route::name_problems;
use olm_cli_core::error::CliError;
use olm_version::quote;

use super::form::{Values, value};
use super::page::detached;
use crate::app::App;
use crate::catalog::{encoded, package_path};
use crate::extensions;
use crate::page::{Page, PageError, Section};
use crate::visitor::Visitor;

/// Path of the page for the extension `name`.
pub(super) fn address(catalog: &str, package: &str, name: &str) -> String {
    format!("{}/installed?name={}", package_path(catalog, package), encoded(name))
}

/// Extension that was created.
///
/// # Errors
/// There is no such extension of the package.
pub(super) async fn page(
    State(console): State<App>,
    Extension(visitor): Extension<Visitor>,
    Path((catalog, package)): Path<(String, String)>,
    Query(values): Query<Values>,
) -> Result<Page, PageError> {
    let title = format!("Installing {package}");
    let body = detached(console, visitor, async move |console, visitor| {
        let name = value(&values, "name");
        let unknown = || {
            let (name, package) = (quote(name), quote(&package));
            CliError::no_candidate(format!("there is no ClusterExtension {name} of package {package}"))
        };
        let cluster = visitor.cluster().filter(|_| name_problems(name).is_empty()).ok_or_else(unknown)?;
        let extension = cluster.find_extension(name, &console.session).await?.ok_or_else(unknown)?;
        let spec = extension.spec.as_ref().ok_or_else(unknown)?;
        spec.source.catalog.as_ref().filter(|source| source.package_name == package).ok_or_else(unknown)?;
        Ok(html! {
            h1 { "Installing " (package) }
            p {
                "ClusterExtension " strong { (extension.name_any()) } " is on the cluster. operator-controller installs the \
                 bundle into namespace " (spec.namespace) ". Follow it on "
                a href=(extensions::path(name)) { "its page" } ", or with " code { "olm status " (name) } "."
            }
            p { a href=(package_path(&catalog, &package)) { (package) } }
        })
    });
    Ok(Page::new(Section::Catalog, title, body.await?))
}
