//! Check of the upgrade from the bundle that a new one replaces (docs/design/cli.md#checks-of-upgrades).

use std::collections::BTreeMap;

use clap::Args;
use olm_bundle::BundleContent;
use olm_cli_catalog::verify::compare_bundles;
use olm_cli_core::bundle_source;
use olm_cli_core::error::CliError;
use olm_cli_core::output::printable;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use olm_finding::Level;
use olm_upgrade_check::UpgradeFinding;

/// Flag with the replaced bundle.
#[derive(Debug, Args)]
pub(crate) struct PreviousArgs {
    /// Bundle that this one replaces, a directory or an image: also check the upgrade, as `catalog verify --upgrades` does
    #[arg(long, value_name = "BUNDLE")]
    previous: Option<String>,
}

impl PreviousArgs {
    /// Prints the findings about the upgrade to the bundle with the files `new`, if a bundle is replaced. Returns `false` if
    /// operator-controller holds the upgrade, or there is an error among them.
    ///
    /// # Errors
    /// A bundle cannot be read or rendered.
    pub(crate) async fn check(
        &self,
        new: &BTreeMap<String, Vec<u8>>,
        images: &ImageArgs,
        session: &Session,
    ) -> Result<bool, CliError> {
        let Some(previous) = &self.previous else { return Ok(true) };
        let old = bundle_source::read(previous, images, session).await?;
        let unreadable = |origin: &str, why: String| CliError::findings(format!("{origin}: {why}"));
        let old = BundleContent::load(&old.files).map_err(|error| unreadable(previous, error.to_string()))?;
        let new =
            BundleContent::load(new).map_err(|error| unreadable("the new bundle", error.to_string()))?;
        let compared = compare_bundles(&old, &new, |_| false).map_err(|why| unreadable(previous, why))?;
        for finding in &compared.findings {
            let text = format!("{}: upgrade from {}: {finding}", finding.level.name(), old.name());
            say(&printable(&text));
        }
        let is_good = |finding: &UpgradeFinding| finding.level != Level::Error;
        Ok(compared.holds.is_empty() && compared.findings.iter().all(is_good))
    }
}
