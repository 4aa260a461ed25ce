//! Page that installs a package: form, preview, write.

mod bundle;
mod form;
mod page;
mod preview;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::routing::{get, post};

pub(super) use self::bundle::BundleCache;
use super::app::App;

const PATH: &str = "/catalogs/{catalog}/packages/{package}/install";

pub(super) fn routes() -> Router<App> {
    Router::new().route(PATH, get(page::page))
}

pub(super) fn changes() -> Router<App> {
    Router::new().route(PATH, post(page::apply))
}
