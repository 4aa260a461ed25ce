//! Rendering of a bundle with the functions that operator-controller calls, for the commands that show or compare
//! its objects.

mod settings;

use olm_bundle::{Bundle, install_checks};
use serde_json::Value;

pub(crate) use self::settings::{RenderSettings, RenderSettingsArgs, config};
use crate::bundle_source::BundleFiles;
use crate::error::CliError;
use crate::progress::say;

/// Bundle with its rendered objects.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub(crate) bundle: Bundle,
    /// In the order of the renderer.
    pub(crate) objects: Vec<Value>,
}

/// Renders a bundle. Prints to standard error what an API server would refuse.
///
/// # Errors
/// [`CliError::findings`] with the message of the renderer.
pub(crate) fn objects(files: &BundleFiles, settings: &RenderSettings) -> Result<Rendered, CliError> {
    let refused = |text: String| CliError::findings(format!("{}: {text}", files.origin));
    let bundle = Bundle::load(&files.files).map_err(|error| refused(error.to_string()))?;
    let objects =
        olm_bundle::render(&bundle, &settings.options()).map_err(|error| refused(error.to_string()))?;
    let warnings = settings.warnings(&bundle);
    for warning in warnings.into_iter().chain(install_checks(&bundle, &objects, &settings.namespace)) {
        say(&format!("warning: {}: {warning}", files.origin));
    }
    Ok(Rendered { bundle, objects })
}
