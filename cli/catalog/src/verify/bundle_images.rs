//! Images that one bundle refers to, before it is in a catalog.

use std::collections::BTreeMap;

use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use olm_resolve::Indexing;

use super::finding::UNREADABLE;
use super::images::{self, Extent};
use crate::author::CatalogBundle;
use crate::package::CatalogPackage;

/// Fault of an image.
pub struct ImageFinding {
    /// ID of the rule.
    pub rule: &'static str,
    /// Reference of the image.
    pub image: String,
    /// What is wrong with it.
    pub message: String,
    /// `false` if the image could not be checked.
    pub is_certain: bool,
}

/// Checks existence and architectures of the images that the bundle refers to. The findings are sorted.
///
/// # Errors
/// A flag names a file that does not exist, or the command is interrupted.
pub async fn check_images(
    bundle: &CatalogBundle,
    images: &ImageArgs,
    session: &Session,
) -> Result<Vec<ImageFinding>, CliError> {
    let lines = [serde_json::to_vec(&bundle.object)?];
    let indexing = Indexing { properties: true, ..Indexing::default() };
    let package = CatalogPackage::new(&bundle.name, &bundle.package, &lines, indexing)?;
    let packages = BTreeMap::from([(bundle.package.clone(), package)]);
    let extent = Extent { related: true, ..Extent::default() };
    let found = images::check(&packages, &extent, images, None, session).await?.findings;
    let finding = |one: super::Finding| ImageFinding {
        rule: one.rule.id,
        image: one.image,
        message: one.message,
        is_certain: one.rule != UNREADABLE,
    };
    let mut findings: Vec<_> = found.into_iter().map(finding).collect();
    findings.sort_by(|a, b| (&a.image, a.rule).cmp(&(&b.image, b.rule)));
    Ok(findings)
}
