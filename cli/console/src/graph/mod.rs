//! Page with the upgrade graph of a package.

mod page;
mod state;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::routing::get;

use super::app::App;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/catalogs/{catalog}/packages/{package}/graph", get(page::page))
}
