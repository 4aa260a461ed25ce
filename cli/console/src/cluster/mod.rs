//! Pages of the cluster: its ClusterCatalogs, the verdict on its next version, and the findings of `olm doctor`.

mod add;
mod catalogs;
mod verdict;

use axum::Router;
use axum::routing::{get, post};

use super::app::App;

const ADD: &str = "/catalogs/add";

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/catalogs", get(catalogs::page))
        .route(ADD, get(add::page))
        .route("/cluster", get(verdict::page))
        .route("/cluster/findings", get(verdict::findings))
}

pub(super) fn changes() -> Router<App> {
    Router::new().route(ADD, post(add::apply)).route("/catalogs/{catalog}/refresh", post(catalogs::refresh))
}
