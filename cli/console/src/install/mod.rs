//! Page that installs a package: form, preview, write.

mod bundle;
mod follow;
mod form;
mod page;
mod permissions;
mod preview;
mod requested;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::routing::{get, post};

pub(super) use self::bundle::BundleCache;
pub(super) use self::permissions::markup as permissions;
use super::app::App;

const PATH: &str = "/catalogs/{catalog}/packages/{package}/install";
const PERMISSIONS_PATH: &str = "/catalogs/{catalog}/packages/{package}/permissions";

pub(super) fn routes() -> Router<App> {
    Router::new().route(PATH, get(page::page)).route(PERMISSIONS_PATH, get(requested::page))
}

pub(super) fn changes() -> Router<App> {
    Router::new().route(PATH, post(page::apply))
}
