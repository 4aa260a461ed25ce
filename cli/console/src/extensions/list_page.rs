//! Page with all extensions of the cluster.

use axum::Extension;
use axum::extract::{self, State};
use axum::response::{IntoResponse, Response};
use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use olm_cli_lifecycle::status::text::requested;
use olm_cli_lifecycle::status::tree::ExtensionState;

use super::follow::{self, Seen};
use super::tree::{age, health};
use super::verdict::Upgradeable;
use super::{cluster, path};
use crate::app::App;
use crate::install::detached;
use crate::page::{Fragment, Page, PageError, Section, visible};
use crate::visitor::Visitor;

/// Extensions with their health. With `fragment` in the query only the part that changes, after a wait.
///
/// # Errors
/// The console uses no cluster, or the API server does not list the extensions.
pub(super) async fn page(
    State(console): State<App>,
    Extension(visitor): Extension<Visitor>,
    extract::Query(query): extract::Query<follow::Query>,
) -> Result<Response, PageError> {
    let permit = query.wait(&console, &visitor, cluster(&visitor)?, None).await?;
    let listed = detached(console, visitor, async move |console, visitor| {
        let _permit = permit;
        let (cluster, session) = (cluster(visitor)?, &console.session);
        let seen = Seen::now(cluster, None, session).await?;
        let extensions = cluster.extensions(session).await?;
        let states: Vec<_> =
            extensions.iter().map(|extension| ExtensionState::alone(extension, &[])).collect();
        let upgradeable = Upgradeable::read(cluster, session).await;
        Ok(visible(&list(&states, &upgradeable, &seen, Timestamp::now())))
    });
    let listed = listed.await?;
    if query.is_fragment() {
        return Ok(Fragment(listed).into_response());
    }
    let body = html! {
        h1 { "Extensions" }
        (follower("/extensions", &listed))
    };
    Ok(Page::new(Section::Extensions, "Extensions", body).into_response())
}

/// Element with a part of the page that the script replaces when the cluster changes.
pub(super) fn follower(address: &str, part: &Markup) -> Markup {
    html! {
        p.soft data-without-script { a href=(address) { "Reload" } " to see changes." }
        p.soft.follow role="status" data-follow-status {}
        div data-follow=(address) { (part) }
    }
}

fn list(extensions: &[ExtensionState], upgradeable: &Upgradeable, seen: &Seen, now: Timestamp) -> Markup {
    html! {
        div data-seen=(seen) data-summary=(format!("{} extensions", extensions.len())) {
            (upgradeable.markup())
            @if extensions.is_empty() {
                p { "The cluster has no ClusterExtensions. " a href="/" { "Find a package" } " to install." }
            } @else {
                div.table #extensions tabindex="0" role="region" aria-label="Extensions" {
                    table {
                        thead {
                            tr {
                                @for title in ["Name", "Health", "Package", "Installed", "Available", "Held by", "Age"] {
                                    th scope="col" { (title) }
                                }
                            }
                        }
                        tbody { @for extension in extensions { (row(extension, now)) } }
                    }
                }
            }
        }
    }
}

fn row(extension: &ExtensionState, now: Timestamp) -> Markup {
    let installed = extension.installed.as_ref();
    html! {
        tr data-item {
            th scope="row" { a href=(path(&extension.name)) { (extension.name) } }
            td { (health(extension)) }
            td { (extension.package) br; span.soft { (requested(extension)) } }
            td.number { @if let Some(bundle) = installed { span title=(bundle.name) { (bundle.version) } } }
            td.number { (extension.available_version.as_deref().unwrap_or_default()) }
            td { @for hold in &extension.holds { span.badge.warn title=(hold.message) { (hold.by) } " " } }
            td.number { (age(now, extension.created.as_deref(), "")) }
        }
    }
}
