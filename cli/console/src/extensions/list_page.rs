//! Page with all extensions of the cluster.

use axum::extract;
use axum::response::{IntoResponse, Response};
use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use olm_cli_core::output::counted;
use olm_cli_lifecycle::status::text::requested;
use olm_cli_lifecycle::status::tree::ExtensionState;

use super::follow::{self, Seen};
use super::list::{Filter, Group, reason};
use super::tree::{age, health, held_by};
use super::verdict::Upgradeable;
use super::{cluster, path};
use crate::page::{Fragment, Page, PageError, Section, visible};
use crate::visit::Visit;

/// Limit of extensions that are named as waiting for the user.
const WAITING: usize = 3;

/// Columns: title, and name in a query if the list can be sorted by it.
const COLUMNS: [(&str, &str); 8] = [
    ("Name", "name"),
    ("Health", ""),
    ("Reason", ""),
    ("Package", "package"),
    ("Installed", ""),
    ("Available", ""),
    ("Namespace", "namespace"),
    ("Age", "age"),
];

/// Extensions with their health. With `fragment` in the query only the part that changes, after a wait.
///
/// # Errors
/// The console uses no cluster, or the API server does not list the extensions.
pub(super) async fn page(
    visit: Visit,
    extract::Query(query): extract::Query<follow::Query>,
    extract::Query(filter): extract::Query<Filter>,
) -> Result<Response, PageError> {
    let permit = query.wait(&visit, cluster(&visit.visitor)?, None).await?;
    let of_list = filter.clone();
    let listed = visit.run(async move |console, visitor| {
        let _permit = permit;
        let (cluster, session) = (cluster(visitor)?, &console.session);
        let seen = Seen::now(cluster, None, session).await?;
        let extensions = cluster.extensions(session).await?;
        let states: Vec<_> =
            extensions.iter().map(|extension| ExtensionState::alone(extension, &[])).collect();
        let upgradeable = Upgradeable::read(cluster, session).await;
        Ok(visible(&list(&states, &of_list, &upgradeable, &seen, Timestamp::now())))
    });
    let listed = listed.await?;
    if query.is_fragment() {
        return Ok(Fragment(listed).into_response());
    }
    let address = filter.address();
    let body = html! {
        h1 { "Extensions" }
        form.toolbar action="/extensions" method="get" role="search" data-live="list" {
            label.hidden for="q" { "Search" }
            input #q type="search" name="q" value=(filter.search()) placeholder="Name, package, namespace, reason"
                autocomplete="off" spellcheck="false" aria-keyshortcuts="/" data-search;
            @if !filter.group().is_empty() { input type="hidden" name="state" value=(filter.group()); }
            @if !filter.order().is_empty() { input type="hidden" name="sort" value=(filter.order()); }
            button.quiet type="submit" data-without-script { "Search" }
        }
        (follower(&address, &listed))
    };
    Ok(Page::new(Section::Extensions, "Extensions", body).into_response())
}

/// Element with a part of the page that the script replaces when the cluster changes.
pub(super) fn follower(address: &str, part: &Markup) -> Markup {
    html! {
        p.soft data-without-script { a href=(address) { "Reload" } " to see changes." }
        p.soft.follow role="status" data-follow-status {}
        div #list data-follow=(address) { (part) }
    }
}

fn list(
    extensions: &[ExtensionState],
    filter: &Filter,
    upgradeable: &Upgradeable,
    seen: &Seen,
    now: Timestamp,
) -> Markup {
    let shown = filter.select(extensions);
    html! {
        div data-seen=(seen) data-summary=(counted(shown.len(), "extension")) {
            (waiting(extensions))
            (upgradeable.markup())
            (groups(&filter.found(extensions), filter))
            @if extensions.is_empty() {
                p { "The cluster has no ClusterExtensions. " a href="/" { "Find a package" } " to install." }
            } @else if shown.is_empty() {
                p.empty { "No extension matches. " a href="/extensions" { "Show all extensions" } }
            } @else {
                div.table.sticky #extensions tabindex="0" role="region" aria-label="Extensions" {
                    table {
                        thead { tr { @for (title, column) in COLUMNS { (heading(title, column, filter)) } } }
                        tbody { @for extension in &shown { (row(extension, now)) } }
                    }
                }
            }
        }
    }
}

/// Extensions that wait for an approval of the user.
fn waiting(extensions: &[ExtensionState]) -> Markup {
    let waiting: Vec<_> = extensions.iter().filter(|state| state.awaits_approval()).collect();
    html! {
        @if !waiting.is_empty() {
            section.notice.held aria-labelledby="waiting" {
                h2 #waiting { "Waiting for you" }
                ul {
                    @for state in waiting.iter().take(WAITING) {
                        li { a href=(format!("{}/approve", path(&state.name))) { "Review " (state.name) } " " span.soft { (reason(state)) } }
                    }
                }
                @if waiting.len() > WAITING { p { a href="/extensions?state=waiting" { "All " (waiting.len()) } } }
            }
        }
    }
}

/// Numbers of found extensions by group, as filters.
fn groups(extensions: &[&ExtensionState], filter: &Filter) -> Markup {
    let count = |group: Group| extensions.iter().filter(|state| Group::of(state) == group).count();
    html! {
        nav.chips aria-label="Filter by health" {
            a href=(filter.with_group("")) aria-current=[filter.group().is_empty().then_some("true")] { "All " (extensions.len()) }
            @for group in Group::ALL {
                @let is_current = filter.group() == group.as_str();
                a href=(filter.with_group(group.as_str())) aria-current=[is_current.then_some("true")] { (group.label()) " " (count(group)) }
            }
        }
    }
}

fn heading(title: &str, column: &str, filter: &Filter) -> Markup {
    let sorted = match filter.order().strip_prefix('-') {
        Some(order) if order == column => Some("descending"),
        None if filter.order() == column && !column.is_empty() => Some("ascending"),
        _ => None,
    };
    html! {
        th scope="col" aria-sort=[sorted] {
            @if column.is_empty() { (title) } @else { a href=(filter.sorted_by(column)) { (title) } }
        }
    }
}

fn row(extension: &ExtensionState, now: Timestamp) -> Markup {
    let installed = extension.installed.as_ref();
    html! {
        tr data-item {
            th.name scope="row" { a href=(path(&extension.name)) { (extension.name) } }
            td.state {
                (health(extension))
                @for hold in extension.holds.iter().filter(|_| !extension.is_held()) { br; span.soft title=(hold.message) { (held_by(&hold.by)) } }
            }
            td.reason { (reason(extension)) }
            td { (extension.package) br; span.soft { (requested(extension)) } }
            td.number { @if let Some(bundle) = installed { (bundle.version) } }
            td.number { (extension.available_version.as_deref().unwrap_or_default()) }
            td { (extension.namespace) }
            td.number { (age(now, extension.created.as_deref(), "")) }
        }
    }
}
