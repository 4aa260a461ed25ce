//! Images that one bundle refers to, before it is in a catalog.

use std::collections::BTreeMap;

use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use olm_finding::Level;
use olm_resolve::Indexing;

use super::finding::{Finding, UNREADABLE};
use super::images;
use super::job::Extent;
use crate::author::CatalogBundle;
use crate::package::CatalogPackage;

/// Checks existence and architectures of the images that the bundle refers to. The findings are sorted. An image that
/// cannot be checked is a warning.
///
/// # Errors
/// A flag names a file that does not exist, or the command is interrupted.
pub async fn check_images(
    bundle: &CatalogBundle,
    images: &ImageArgs,
    session: &Session,
) -> Result<Vec<Finding>, CliError> {
    let lines = [serde_json::to_vec(&bundle.object)?];
    let indexing = Indexing { properties: true, ..Indexing::default() };
    let package = CatalogPackage::new(&bundle.name, &bundle.package, &lines, indexing)?;
    let packages = BTreeMap::from([(bundle.package.clone(), package)]);
    let extent = Extent { related: true, ..Extent::default() };
    let mut findings = images::check(&packages, &extent, images, None, session).await?.findings;
    for finding in findings.iter_mut().filter(|finding| finding.rule.id == UNREADABLE.id) {
        finding.level = Level::Warning;
    }
    findings.sort_by(|a, b| (&a.place.image, a.rule.id).cmp(&(&b.place.image, b.rule.id)));
    Ok(findings)
}
