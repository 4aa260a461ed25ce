//! Pages of ClusterExtensions: list, live tree, reasons of the resolver.

mod cause;
mod follow;
mod list;
mod list_page;
pub(super) mod object;
mod page;
pub(super) mod tab;
mod tree;
mod verdict;
mod why;

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use maud::{Markup, html};
use olm_catalog_server::http::route::name_problems;
use olm_cli_core::error::CliError;
use olm_cli_core::source::ClusterConnection;
use olm_version::quote;

pub(super) use self::follow::Followers;
use self::tab::Tab;
pub(super) use self::tree::age;
pub(super) use self::verdict::class as verdict_class;
use super::app::App;
use super::catalog::encoded;
use super::visitor::Visitor;

/// Longest text of an Event, a probe or a container state, in characters.
const LONGEST_TEXT: usize = 2048;

pub(super) fn routes() -> Router<App> {
    let mut router = Router::new()
        .route("/extensions", get(list_page::page))
        .route("/extensions/{name}/why", get(why::page));
    for tab in Tab::ALL.into_iter().filter(|tab| *tab != Tab::Apis) {
        let slash = if tab.segment().is_empty() { "" } else { "/" };
        let path = format!("/extensions/{{name}}{slash}{}", tab.segment());
        let page =
            async move |visit, path, query, selected| page::page(tab, visit, path, query, selected).await;
        router = router.route(&path, get(page));
    }
    router
}

/// Path of an extension's page.
pub(super) fn path(name: &str) -> String {
    format!("/extensions/{}", encoded(name))
}

/// Cluster of the user.
///
/// # Errors
/// The console uses no cluster.
pub(super) fn cluster(visitor: &Visitor) -> Result<&Arc<ClusterConnection>, CliError> {
    let none = "the console uses no cluster: start it with --catalog cluster to show extensions";
    visitor.cluster().ok_or_else(|| CliError::no_candidate(none))
}

/// Cluster of the user, for a page about the extension `name`. The name comes from the path of a request, and becomes
/// part of paths and selectors of calls to the API server.
///
/// # Errors
/// The name is invalid, or the console uses no cluster.
pub(super) fn cluster_of<'a>(
    visitor: &'a Visitor,
    name: &str,
) -> Result<&'a Arc<ClusterConnection>, CliError> {
    match name_problems(name).first() {
        None => cluster(visitor),
        Some(_) => Err(CliError::no_candidate(format!("there is no ClusterExtension {}", quote(name)))),
    }
}

/// First [`LONGEST_TEXT`] characters of a text that the API server does not limit.
pub(super) fn cut(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Links above the heading.
pub(super) fn trail(name: &str) -> Markup {
    html! { p.trail { a href="/extensions" { "Extensions" } " / " a href=(path(name)) { (name) } } }
}
