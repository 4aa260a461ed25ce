//! Pages of catalogs and packages.

mod content;
mod facts;
mod filter;
mod icon;
mod library;
mod list_page;
mod markdown;
mod package_page;
mod package_tables;
mod results;
mod search;
mod summary;

use axum::Router;
use axum::routing::get;
use maud::{Markup, html};
use olm_cli_catalog::package::CatalogPackage;

pub(super) use self::library::Library;
use super::app::App;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/", get(list_page::page))
        .route("/catalogs/{catalog}/packages/{package}", get(package_page::page))
        .route("/catalogs/{catalog}/packages/{package}/icon", get(icon::serve))
}

/// Path of a package's page.
pub(crate) fn package_path(catalog: &str, package: &str) -> String {
    format!("/catalogs/{}/packages/{}", encoded(catalog), encoded(package))
}

/// Select of a form for a channel, or all channels, with its label.
pub(crate) fn channel_select(package: &CatalogPackage, chosen: &str) -> Markup {
    html! {
        label for="channel" { "Channel" }
        select #channel name="channel" {
            option value="" { "All channels" }
            @for channel in &package.content.channels {
                option value=(channel.name) selected[channel.name == chosen] {
                    (channel.name)
                    @if channel.name == package.default_channel() { " (default)" }
                }
            }
        }
    }
}

/// Text as part of a path or as a value in a query.
pub(crate) fn encoded(text: &str) -> impl std::fmt::Display + '_ {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC)
}
