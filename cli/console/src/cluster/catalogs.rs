//! Page with the ClusterCatalogs.

use axum::extract::{Path, Query};
use axum::response::Response;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use maud::{Markup, html};
use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::conditions::{reasons, types};
use olm_api::{ClusterCatalog, annotations};
use olm_catalog_server::http::route::name_problems;
use olm_cli_catalog::cluster_catalog::{find, request_refresh};
use olm_cli_core::error::CliError;
use olm_version::quote;
use serde::Deserialize;

use super::ADD;
use crate::app::Console;
use crate::catalog::encoded;
use crate::extensions::{age, cluster};
use crate::markup::badge;
use crate::page::{Page, PageError, Section, visible};
use crate::visit::{Answer, Visit};
use crate::visitor::Visitor;

/// Characters of a digest that are shown.
const DIGEST: usize = 12;

/// Query of the page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Shown {
    /// Catalog that was just refreshed.
    refreshed: String,
}

/// ClusterCatalogs with their state.
///
/// # Errors
/// The console uses no cluster, or the API server does not list the catalogs.
pub(super) async fn page(visit: Visit, Query(shown): Query<Shown>) -> Result<Page, PageError> {
    let page = visit.page(Section::Catalogs, "Catalogs", async move |console, visitor| {
        let mut catalogs = cluster(visitor)?.catalogs(&console.session).await?;
        catalogs.sort_by_key(|catalog| (std::cmp::Reverse(priority(catalog)), catalog.name_any()));
        Ok(visible(&html! {
            h1 { "Catalogs" }
            p.soft { "The images from which OLM reads packages. If several catalogs offer a package, the one with the highest priority wins." }
            @if !console.read_only { p.actions { a.button href=(ADD) { "Add a catalog" } } }
            @if catalogs.iter().any(|catalog| catalog.name_any() == shown.refreshed) {
                p.notice role="status" { "catalogd checks the image of " (shown.refreshed) " now. Reload to see the result." }
            }
            @if catalogs.is_empty() { p { "The cluster has no ClusterCatalog." } }
            div.cards { @for catalog in &catalogs { (card(catalog, console, visitor)) } }
        }))
    });
    page.await
}

/// Makes catalogd check the image again.
///
/// # Errors
/// There is no such catalog, or the API server refuses the write.
pub(super) async fn refresh(visit: Visit, Path(name): Path<String>) -> Result<Response, PageError> {
    let answer = visit.answer(Section::Catalogs, "Catalogs", async move |console, visitor| {
        let unknown = || CliError::no_candidate(format!("there is no ClusterCatalog {}", quote(&name)));
        if !name_problems(&name).is_empty() {
            return Err(unknown());
        }
        let cluster = cluster(visitor)?;
        let catalog = find(cluster, &name, &console.session).await?.ok_or_else(unknown)?;
        if !can_be_refreshed(&catalog) {
            return Err(CliError::findings("the catalog is disabled, or its image is named by a digest"));
        }
        request_refresh(cluster, &name, &console.session).await?;
        Ok(Answer::Redirect(format!("/catalogs?refreshed={}", encoded(&name))))
    });
    answer.await
}

fn priority(catalog: &ClusterCatalog) -> i32 {
    catalog.spec.priority.unwrap_or_default()
}

/// Icon, class and word for the state of a catalog.
fn state(catalog: &ClusterCatalog) -> (&'static str, &'static str, &'static str) {
    let reason = catalog.condition(types::PROGRESSING).map_or("", |condition| condition.reason.as_str());
    match (catalog.is_true(types::SERVING), reason) {
        _ if catalog.spec.availability_mode == Some(AvailabilityMode::Unavailable) => {
            ("badge", "–", "Disabled")
        }
        (_, reasons::BLOCKED) => ("badge bad", "✕", "Blocked"),
        (true, reasons::RETRYING) => ("badge warn", "!", "Served, but not up to date"),
        (false, reasons::RETRYING) => ("badge bad", "✕", "Failing"),
        (true, _) => ("badge good", "✓", "Served"),
        (false, _) => ("badge warn", "↻", "Being read"),
    }
}

/// Reports whether the image can have other content: the catalog is used, and its image is named by a tag.
fn can_be_refreshed(catalog: &ClusterCatalog) -> bool {
    catalog.spec.availability_mode != Some(AvailabilityMode::Unavailable)
        && catalog.spec.source.image.as_ref().is_none_or(|image| !image.ref_.contains('@'))
}

fn card(catalog: &ClusterCatalog, console: &Console, visitor: &Visitor) -> Markup {
    let (name, (class, icon, word)) = (catalog.name_any(), state(catalog));
    let status = catalog.status.as_ref();
    let image = catalog.spec.source.image.as_ref();
    let served =
        status.and_then(|status| status.resolved_source.as_ref()).map(|source| source.image.ref_.as_str());
    let digest = served.and_then(|served| served.rsplit_once("@sha256:")).map(|(_, digest)| digest);
    let unpacked = status.and_then(|status| status.last_unpacked.as_ref()).map(|time| time.0.to_string());
    let problem =
        catalog.condition(types::PROGRESSING).filter(|condition| condition.reason != reasons::SUCCEEDED);
    let asked = catalog.annotations().get(annotations::EXT_REFRESH_REQUESTED_AT);
    let now = Timestamp::now();
    html! {
        section.card aria-labelledby=(format!("catalog-{name}")) {
            h2 id=(format!("catalog-{name}")) { (name) " " (badge(class, icon, word)) }
            @if let Some(problem) = problem {
                p.message { strong { (problem.reason) ". " } (problem.message) }
            }
            dl.pairs {
                dt { "Image" } dd { (image.map_or("", |image| &image.ref_)) }
                @if let Some(template) = catalog.image_template() { dt { "Template" } dd { (template) } }
                @if let Some(digest) = digest { dt { "Served digest" } dd title=(served.unwrap_or_default()) { code { "sha256:" (digest.chars().take(DIGEST).collect::<String>()) "…" } } }
                @if unpacked.is_some() { dt { "Read" } dd { (age(now, unpacked.as_deref(), " ago")) } }
                dt { "Checked" }
                dd {
                    @match image.and_then(|image| image.poll_interval_minutes) {
                        Some(minutes) => { "every " (minutes) " min" },
                        None if can_be_refreshed(catalog) => "only on request",
                        None => "never",
                    }
                    @if asked.is_some() { ", last request " (age(now, asked.map(String::as_str), " ago")) }
                }
                dt { "Priority" } dd { (priority(catalog)) }
            }
            div.actions {
                a.button.quiet href=(format!("/?catalog={}", encoded(&name))) { "Packages" }
                @if !console.read_only && can_be_refreshed(catalog) {
                    form method="post" action=(format!("/catalogs/{}/refresh", encoded(&name))) {
                        (visitor.csrf_field())
                        button.quiet type="submit" { "Refresh" }
                    }
                }
            }
        }
    }
}
