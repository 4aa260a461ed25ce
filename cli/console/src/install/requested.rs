//! Page with the permissions that a bundle requests, before any setting of an installation.

use axum::extract::{Path, Query};
use maud::html;
use olm_api::cluster_extension::CatalogFilter;
use olm_bundle::BundleContent;
use olm_cli_core::bundle_source::BundleFiles;
use olm_cli_core::error::CliError;
use olm_cli_lifecycle::install::of_package;
use olm_cli_lifecycle::rendering::RenderSettings;
use olm_plan::permissions::{SubjectChange, changes};
use olm_version::quote;
use serde::Deserialize;

use super::follow::Choice as Wanted;
use super::form::Values;
use super::permissions;
use crate::catalog::{install_query, package_path};
use crate::page::{Page, PageError, Section, visible};
use crate::visit::Visit;

/// Query of the page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    /// Version, or empty for the one that an installation would choose.
    version: String,
}

/// Permissions of the service accounts of a bundle, from its image.
///
/// # Errors
/// There is no such package or version, or the image cannot be read.
pub(super) async fn page(
    visit: Visit,
    Path((catalog, package)): Path<(String, String)>,
    Query(choice): Query<Choice>,
) -> Result<Page, PageError> {
    let page =
        visit.page(Section::Catalog, format!("Permissions of {package}"), async move |console, visitor| {
            let package = console.library.content(&catalog, console, visitor).await?.package(&package)?;
            let values = match choice.version.as_str() {
                "" => Values::new(),
                version => Values::from(
                    [("version", version), ("channel", "")].map(|(a, b)| (a.to_owned(), b.to_owned())),
                ),
            };
            let chosen = Wanted::new(&package, &values).chosen(&package).map_err(|why| {
                CliError::no_candidate(format!(
                    "version {} cannot be installed: {why}",
                    quote(&choice.version)
                ))
            })?;
            let bundle = chosen.bundle;
            let files = console.bundles.read(&chosen.image, visitor.access(), &console.session).await?;
            let path = package_path(&catalog, &package.name);
            let query = package.offer(&bundle).map(|offer| install_query(&package, None, offer));
            let install = format!("{path}/install{}", query.unwrap_or_default());
            Ok(visible(&html! {
                p.trail { a href="/" { "Packages" } " / " a href=(path) { (package.name) } }
                h1 { "Permissions of " (package.name) }
                p.soft {
                    "Bundle " (bundle) " gives them to its service accounts, with default settings. The "
                    a href=(install) { "preview of an installation" } " shows those with your settings."
                }
                @match requested(&files, &package.name) {
                    Ok(found) => { (permissions::markup(&found)) },
                    Err(error) => p.notice { "The bundle needs settings: " (error) },
                }
            }))
        });
    page.await
}

/// Permissions of the bundle with default settings, in the namespace `name`.
///
/// # Errors
/// Message of the renderer.
fn requested(files: &BundleFiles, name: &str) -> Result<Vec<SubjectChange>, CliError> {
    let bundle = BundleContent::load(&files.files).map_err(CliError::findings)?;
    let extension = of_package(name, name, CatalogFilter::default(), None);
    let settings = RenderSettings::as_configured(&extension, &[])?;
    let objects = olm_bundle::render(&bundle, &settings.options()).map_err(CliError::findings)?;
    changes(&[], &objects).map_err(CliError::findings)
}
