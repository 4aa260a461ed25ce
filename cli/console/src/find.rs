//! Search for packages and extensions from any page.

use axum::Router;
use axum::extract::Query;
use axum::routing::get;
use kube::ResourceExt;
use maud::html;
use olm_cli_core::output::printable;
use serde::Deserialize;

use super::app::App;
use super::catalog::{Found, encoded, find};
use super::extensions::path;
use super::page::{Page, PageError, Section};
use super::visit::Visit;

/// Limit of results of each kind.
const SHOWN: usize = 20;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/find", get(page))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Request {
    q: String,
}

/// Extensions and packages that contain all words. What cannot be read is a note.
async fn page(Visit { console, visitor }: Visit, Query(request): Query<Request>) -> Result<Page, PageError> {
    let words: Vec<String> = request.q.split_whitespace().map(str::to_lowercase).collect();
    let mut notes = Vec::new();
    let mut extensions = match visitor.cluster() {
        Some(cluster) => cluster.extensions(&console.session).await.unwrap_or_else(|error| {
            notes.push(format!("The extensions cannot be searched: {error}"));
            Vec::new()
        }),
        None => Vec::new(),
    };
    extensions.retain(|extension| {
        let spec = extension.spec.as_ref();
        let package =
            spec.and_then(|spec| spec.source.catalog.as_ref()).map_or("", |catalog| &catalog.package_name);
        let namespace = spec.map_or("", |spec| &spec.namespace);
        let text = format!("{} {package} {namespace}", extension.name_any()).to_lowercase();
        words.iter().all(|word| text.contains(word))
    });
    let (packages, unread) = find(&console, &visitor, &request.q).await;
    notes.extend(unread);
    let body = html! {
        h1 { "Search" }
        form.toolbar action="/find" method="get" role="search" {
            label.hidden for="q" { "Search" }
            input #q type="search" name="q" value=(request.q) autocomplete="off" spellcheck="false" data-search aria-keyshortcuts="/";
            button type="submit" { "Search" }
        }
        @for note in &notes { p.notice { (printable(note)) } }
        @if extensions.is_empty() && packages.is_empty() { p.empty { "Nothing matches." } }
        @if !extensions.is_empty() {
            h2 { "Extensions (" (extensions.len()) ")" }
            ul { @for extension in extensions.iter().take(SHOWN) { li data-item { a href=(path(&extension.name_any())) { (extension.name_any()) } } } }
            @if extensions.len() > SHOWN { p { a href=(format!("/extensions?q={}", encoded(&request.q))) { "All of them" } } }
        }
        @if !packages.is_empty() {
            h2 { "Packages (" (packages.len()) ")" }
            ul {
                @for Found { title, path, description } in packages.iter().take(SHOWN) {
                    li data-item { a href=(path) { (title) } " " span.soft { (description) } }
                }
            }
            @if packages.len() > SHOWN { p { a href=(format!("/?q={}", encoded(&request.q))) { "All of them" } } }
        }
    };
    Ok(Page::new(Section::None, "Search", body))
}
