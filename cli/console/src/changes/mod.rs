//! Pages that change an installed extension: upgrade, rollback, uninstallation. First the plan, then the write
//! (docs/design/console.md#changes-of-an-extension).
//!
//! [`planned`] computes the plan with the functions of the commands. [`page`] shows it and receives the form.

mod page;
mod planned;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::routing::{get, post};
use serde::Deserialize;

use super::app::App;

const PATH: &str = "/extensions/{name}/{action}";

pub(super) fn routes() -> Router<App> {
    Router::new().route(PATH, get(page::page))
}

pub(super) fn changes() -> Router<App> {
    Router::new().route(PATH, post(page::apply))
}

/// Change of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Upgrade,
    Rollback,
    Uninstall,
}

impl Action {
    /// Action with the last segment of a path. `None` if there is no such page.
    fn of_path(segment: &str) -> Option<Self> {
        [Self::Upgrade, Self::Rollback, Self::Uninstall].into_iter().find(|one| one.as_str() == segment)
    }

    /// Command, and last segment of the path.
    fn as_str(self) -> &'static str {
        match self {
            Self::Upgrade => "upgrade",
            Self::Rollback => "rollback",
            Self::Uninstall => "uninstall",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Upgrade => "Upgrade",
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
    /// `yes` to keep CRDs and custom resources.
    keep_crds: String,
    /// Digest of the plan that the user saw.
    previewed: String,
}

/// Upgrade target: remove the version range.
const LATEST: &str = "latest";
/// Upgrade target: change nothing.
const REQUESTED: &str = "requested";
