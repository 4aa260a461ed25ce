//! Page with the packages of all catalogs.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Query;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use tokio::time::timeout;

use super::content::Content;
use super::filter::{Choices, Filter, Installed};
use super::library::Listed;
use super::package_path;
use super::results::results;
use crate::app::Console;
use crate::page::{Fragment, Page, PageError, Section};
use crate::visit::Visit;
use crate::visitor::Visitor;

/// Time for the list of extensions. Without it, the page shows no installed packages.
const EXTENSIONS_DEADLINE: Duration = Duration::from_secs(3);

/// Catalogs and their packages, filtered.
///
/// # Errors
/// The API server does not list its catalogs.
pub(super) async fn page(
    Visit { console, visitor }: Visit,
    Query(filter): Query<Filter>,
) -> Result<Response, PageError> {
    let (catalogs, installed) =
        tokio::join!(console.library.catalogs(&console, &visitor), installed(&console, &visitor));
    let catalogs = catalogs?;
    let contents: Vec<Arc<Content>> =
        catalogs.iter().filter_map(|catalog| catalog.content.as_ref().ok().cloned()).collect();
    let found = filter.select(&contents, installed.as_ref().unwrap_or(&Installed::new()));
    let results = results(&filter, &found, installed.as_ref(), catalogs.len() > 1);
    if !filter.fragment.is_empty() {
        return Ok(Fragment(results).into_response());
    }
    let body = html! {
        h1.hidden { "Packages" }
        (problems(&catalogs))
        div.columns {
            (form(&filter, &catalogs, &Choices::new(&contents), installed.is_some()))
            div {
                p.hidden role="status" data-status {}
                div #results { (results) }
            }
        }
    };
    Ok(Page::new(Section::Catalog, "Packages", body).into_response())
}

/// Package that a search found.
pub(crate) struct Found {
    pub(crate) title: String,
    /// Path of its page.
    pub(crate) path: String,
    pub(crate) description: String,
}

/// Packages of all catalogs that a search finds, best first, and notes about catalogs that cannot be read.
pub(crate) async fn find(console: &Console, visitor: &Visitor, query: &str) -> (Vec<Found>, Vec<String>) {
    let catalogs = match console.library.catalogs(console, visitor).await {
        Ok(catalogs) => catalogs,
        Err(error) => return (Vec::new(), vec![format!("The catalogs cannot be searched: {error}")]),
    };
    let unread = catalogs.iter().filter_map(|catalog| {
        let why = catalog.content.as_ref().err()?;
        Some(format!("Catalog {} cannot be searched: {why}", catalog.name))
    });
    let unread = unread.collect();
    let contents: Vec<Arc<Content>> =
        catalogs.iter().filter_map(|catalog| catalog.content.as_ref().ok().cloned()).collect();
    let filter = Filter { q: query.to_owned(), ..Filter::default() };
    let found = filter.select(&contents, &Installed::new()).into_iter().map(|package| Found {
        title: package.title.clone(),
        path: package_path(&package.catalog, &package.name),
        description: package.description.clone(),
    });
    (found.collect(), unread)
}

/// Extensions by package. `None` if they are unknown.
pub(super) async fn installed(console: &Console, visitor: &Visitor) -> Option<Installed> {
    let extensions = visitor.cluster()?.extensions(&console.session);
    let extensions = timeout(EXTENSIONS_DEADLINE, extensions).await.ok()?.ok()?;
    let mut installed = Installed::new();
    for extension in extensions {
        let name = extension.metadata.name.clone().unwrap_or_default();
        let source = extension.spec.as_ref().and_then(|spec| spec.source.catalog.as_ref());
        if let Some(catalog) = source {
            installed.entry(catalog.package_name.clone()).or_default().push(name);
        }
    }
    Some(installed)
}

fn problems(catalogs: &[Listed]) -> Markup {
    html! {
        @for catalog in catalogs {
            @if let Err(problem) = &catalog.content {
                div.notice role="alert" {
                    strong { "Catalog " (catalog.name) ": " }
                    (problem)
                }
            }
        }
        @if catalogs.is_empty() {
            div.notice role="alert" { "The cluster has no catalog. Create one with " code { "olm catalog create" } "." }
        }
    }
}

fn form(filter: &Filter, catalogs: &[Listed], choices: &Choices<'_>, knows_installed: bool) -> Markup {
    let names: Vec<_> = catalogs.iter().map(|catalog| catalog.name.as_str()).collect();
    html! {
        search {
            form.filters action="/" method="get" data-live="results" {
                label for="q" { "Search" }
                input #q type="search" name="q" value=(filter.q) placeholder="Name, API, keyword"
                    autocomplete="off" spellcheck="false" aria-keyshortcuts="/" data-search;
                details.more open[filter.is_narrowed()] {
                summary { "Filters" }
                @if names.len() > 1 { (select("catalog", "Catalog", &names, &filter.catalog)) }
                (select("category", "Category", &choices.categories.iter().copied().collect::<Vec<_>>(), &filter.category))
                (select("provider", "Provider", &choices.providers.iter().copied().collect::<Vec<_>>(), &filter.provider))
                label for="deprecated" { "Deprecated packages" }
                select #deprecated name="deprecated" {
                    @for (value, text) in [("", "Show"), ("hide", "Hide"), ("only", "Only these")] {
                        option value=(value) selected[filter.deprecated == value] { (text) }
                    }
                }
                @if knows_installed {
                    label.check {
                        input type="checkbox" name="installed" value="yes" checked[!filter.installed.is_empty()];
                        "Installed only"
                    }
                }
                a.reset href="/" { "Clear filters" }
                }
                button type="submit" data-without-script { "Apply" }
            }
        }
    }
}

fn select(name: &str, label: &str, values: &[&str], current: &str) -> Markup {
    html! {
        label for=(name) { (label) }
        select id=(name) name=(name) {
            option value="" { "All" }
            @for value in values { option value=(value) selected[*value == current] { (value) } }
        }
    }
}
