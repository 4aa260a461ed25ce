//! State of the graph page, as in its address.

use olm_cli_catalog::package::CatalogPackage;
use olm_cli_core::error::CliError;
use serde::Deserialize;

use crate::catalog::{encoded, package_path};

/// Smallest, usual and largest zoom, in percent.
pub(super) const ZOOM: [usize; 3] = [25, 100, 400];

/// Query of the page. The first three are the flags of `olm resolve`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct GraphState {
    /// Only this channel.
    pub(super) channel: String,
    /// Installed bundle: its name, its version, or `NAME@VERSION`.
    pub(super) installed: String,
    /// Version range.
    pub(super) version: String,
    /// Name of the selected bundle.
    pub(super) bundle: String,
    /// Percent.
    pub(super) zoom: String,
}

impl GraphState {
    /// Address of the page in this state.
    pub(super) fn address(&self, catalog: &str, package: &str) -> String {
        let fields = [
            ("channel", &self.channel),
            ("installed", &self.installed),
            ("version", &self.version),
            ("bundle", &self.bundle),
            ("zoom", &self.zoom),
        ];
        let query = fields.iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<String> = query.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let question = if query.is_empty() { "" } else { "?" };
        format!("{}/graph{question}{}", package_path(catalog, package), query.join("&"))
    }

    /// Zoom in percent, within [`ZOOM`].
    pub(super) fn zoom(&self) -> usize {
        self.zoom.parse().unwrap_or(ZOOM[1]).clamp(ZOOM[0], ZOOM[2])
    }

    /// Name and version of the installed bundle. `None` for a new installation.
    ///
    /// # Errors
    /// The package has no such bundle.
    pub(super) fn installed(&self, package: &CatalogPackage) -> Result<Option<(String, String)>, CliError> {
        if self.installed.is_empty() {
            return Ok(None);
        }
        if let Some((name, version)) = self.installed.rsplit_once('@') {
            return Ok(Some((name.to_owned(), version.to_owned())));
        }
        let name = package.bundle_named(&self.installed)?;
        Ok(Some((name.to_owned(), package.version(name).unwrap_or_default())))
    }
}

/// `None` for an empty text.
pub(super) fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_contains_only_what_is_set_and_escapes_it() {
        let state =
            GraphState { channel: "a&b=\"".to_owned(), zoom: "50".to_owned(), ..GraphState::default() };
        assert_eq!(state.address("c", "p/q"), "/catalogs/c/packages/p%2Fq/graph?channel=a%26b%3D%22&zoom=50");
        assert_eq!(GraphState::default().address("c", "p"), "/catalogs/c/packages/p/graph");
    }

    #[test]
    fn zoom_is_within_limits() {
        for (text, percent) in [("", 100), ("50", 50), ("1", 25), ("99999", 400), ("-1", 100), ("x", 100)] {
            assert_eq!(
                GraphState { zoom: text.to_owned(), ..GraphState::default() }.zoom(),
                percent,
                "{text}"
            );
        }
    }
}
