//! Pages that change an installed extension: approval, upgrade, rollback, uninstallation. First the plan, then the write
//! (docs/design/console.md#changes-of-an-extension).
//!
//! [`planned`] computes the plan with the functions of the commands. [`page`] shows it and receives the form.

mod configure;
mod difference;
mod page;
mod planned;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::routing::{get, post};
use serde::{Deserialize, Deserializer};

pub(super) use self::configure::form as configuration;
use super::app::App;

const PATH: &str = "/extensions/{name}/{action}";

pub(super) fn routes() -> Router<App> {
    Router::new().route(PATH, get(page::page)).route("/extensions/{name}/uninstalled", get(page::uninstalled))
}

pub(super) fn changes() -> Router<App> {
    Router::new().route(PATH, post(page::apply))
}

/// Change of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Approval of the waiting plan.
    Approve,
    Upgrade,
    /// Change of channels, version range and settings.
    Configure,
    Rollback,
    Uninstall,
}

impl Action {
    /// Action with the last segment of a path. `None` if there is no such page.
    fn of_path(segment: &str) -> Option<Self> {
        [Self::Approve, Self::Upgrade, Self::Configure, Self::Rollback, Self::Uninstall]
            .into_iter()
            .find(|one| one.as_str() == segment)
    }

    /// Command, and last segment of the path.
    fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Upgrade => "upgrade",
            Self::Configure => "configure",
            Self::Rollback => "rollback",
            Self::Uninstall => "uninstall",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Approve => "Approve",
            Self::Upgrade => "Upgrade",
            Self::Configure => "Configure",
            Self::Rollback => "Roll back",
            Self::Uninstall => "Uninstall",
        }
    }
}

/// Query of a plan, and form of its write.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Request {
    /// Target: a version, [`LATEST`] or [`REQUESTED`] of an upgrade, a revision or version of a rollback. Empty for the
    /// default.
    to: String,
    /// Channels of a new configuration, separated by commas. Empty for all.
    channels: String,
    /// Version range of a new configuration. Empty for any version.
    range: String,
    /// Settings of a new configuration, as YAML. Empty for none.
    #[serde(deserialize_with = "multiline")]
    settings: String,
    /// Generation of the extension when the form showed its configuration.
    generation: String,
    /// `yes` to keep CRDs and custom resources.
    keep_crds: String,
    /// Digest of the plan that the user saw.
    previewed: String,
    /// Name of the extension, typed to confirm that custom resources are deleted.
    confirm: String,
}

/// Text of several lines, which browsers end with CRLF.
pub(super) fn multiline<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(String::deserialize(deserializer)?.replace("\r\n", "\n"))
}

/// Upgrade target: remove the version range.
const LATEST: &str = "latest";
/// Upgrade target: change nothing.
const REQUESTED: &str = "requested";
