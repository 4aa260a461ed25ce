//! Rendering of a bundle with the functions that operator-controller calls, for the commands that show or compare
//! its objects.

pub(crate) mod hints;
mod namespaces;
pub(crate) mod schema_fields;
mod settings;

use olm_api::ClusterExtension;
use olm_bundle::{BundleContent, install_checks};
use olm_cli_core::bundle_source::BundleFiles;
use olm_cli_core::error::CliError;
use olm_cli_core::manifest::only_extension;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use serde_json::Value;

pub use self::settings::{RenderSettings, config, inline};
pub(crate) use self::settings::{RenderSettingsArgs, inline_config};

/// ClusterExtension of the file, else the one with this name of the cluster, for its settings and its choice.
///
/// # Errors
/// The file does not contain exactly one, or the cluster does not have it.
pub(crate) async fn extension(
    file: Option<&str>,
    name: Option<&str>,
    access: &Access,
    session: &Session,
) -> Result<Option<ClusterExtension>, CliError> {
    match (file, name) {
        (Some(file), _) => only_extension(file, session).await.map(Some),
        (None, Some(name)) => access.cluster.connect().await?.extension(name, session).await.map(Some),
        (None, None) => Ok(None),
    }
}

/// Bundle with its rendered objects.
#[derive(Debug)]
pub struct Rendered {
    /// The bundle as loaded.
    pub bundle: BundleContent,
    /// Objects in the order of the renderer.
    pub objects: Vec<Value>,
}

/// Renders a bundle. Prints to standard error what an API server would refuse.
///
/// # Errors
/// [`CliError::findings`] with the message of the renderer.
pub fn objects(files: &BundleFiles, settings: &RenderSettings) -> Result<Rendered, CliError> {
    let refused = |text: String| CliError::findings(format!("{}: {text}", files.origin));
    let bundle = BundleContent::load(&files.files).map_err(|error| refused(error.to_string()))?;
    let is_on = |gate: &str| settings.is_on(gate);
    let hints = hints::hints(&bundle, settings.config.as_ref().unwrap_or(&Value::Null), is_on);
    let objects = olm_bundle::render(&bundle, &settings.options()).map_err(|error| {
        let hints = hints.iter().map(|hint| format!("\nhint: {hint}"));
        refused(format!("{error}{}", hints.collect::<String>()))
    })?;
    let warnings = settings.warnings(&bundle);
    let failed_checks = install_checks(&bundle, &objects, &settings.namespace, &settings.system_namespace);
    for warning in warnings.into_iter().chain(failed_checks) {
        say(&format!("warning: {}: {warning}", files.origin));
    }
    hints.iter().for_each(|hint| say(&format!("hint: {hint}")));
    Ok(Rendered { bundle, objects })
}
