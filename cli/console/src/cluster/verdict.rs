//! Page with the verdict on the next version of the cluster, and the findings of `olm doctor`.

use axum::Extension;
use axum::extract::State;
use maud::{Markup, html};
use olm_api::cluster_upgrade_status::VerdictResult;
use olm_cli_core::output::counted;
use olm_cli_lifecycle::cluster_check::{NextVersion, next_version};
use olm_cli_system::doctor::{self, Advice};

use crate::app::App;
use crate::extensions::{cluster, path, verdict_class};
use crate::install::detached;
use crate::page::{Page, PageError, Section, visible, without_flags};
use crate::visitor::Visitor;

/// Verdict on the next version.
///
/// # Errors
/// The console uses no cluster, or the platform cannot be read.
pub(super) async fn page(
    State(console): State<App>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Page, PageError> {
    let body = detached(console, visitor, async move |console, visitor| {
        let found = next_version(cluster(visitor)?, visitor.access(), &console.session).await?;
        Ok(visible(&html! {
            h1 { "Cluster" }
            (verdict(&found))
            h2 { "Health of OLM" }
            p { "The check reads the objects, logs and certificates of OLM, and changes nothing. It may take some seconds." }
            p.actions { a.button href="/cluster/findings" { "Check OLM now" } }
        }))
    });
    Ok(Page::new(Section::Cluster, "Cluster", body.await?))
}

/// Findings of `olm doctor`.
///
/// # Errors
/// The console uses no cluster, or it cannot be read.
pub(super) async fn findings(
    State(console): State<App>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Page, PageError> {
    let body = detached(console, visitor, async move |console, visitor| {
        let (found, unreadable) =
            doctor::findings(cluster(visitor)?, visitor.access(), &console.session).await?;
        Ok(visible(&findings_markup(&found, &unreadable)))
    });
    Ok(Page::new(Section::Cluster, "Health of OLM", body.await?))
}

fn verdict(found: &NextVersion) -> Markup {
    let (class, icon, word) = match found.upgradeable {
        "True" => ("badge good", "✓", "may be upgraded"),
        "False" => ("badge bad", "✕", "must not be upgraded"),
        _ => ("badge warn", "?", "is unknown"),
    };
    let blocks = |result: &VerdictResult| matches!(result, VerdictResult::Blocking | VerdictResult::Invalid);
    let rows = found.extensions.iter().filter(|row| !row.constraint.is_empty() || blocks(&row.result));
    let rows: Vec<_> = rows.collect();
    let advice =
        |name: &str| found.advice.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str());
    html! {
        section aria-labelledby="next" {
            h2 #next { "Next version" }
            p {
                (found.current) @if let Some(next) = &found.next { " to " (next) } ": "
                span class=(class) { span aria-hidden="true" { (icon) } " " (word) }
            }
            @if found.upgradeable != "True" { p.message { (found.message) } }
            @if rows.is_empty() { p.soft { "No installed bundle declares a limit for the version of the cluster." } } @else {
                div.table #verdicts tabindex="0" role="region" aria-labelledby="next" {
                    table {
                        thead { tr { @for title in ["Extension", "Verdict", "Limit", "What to do"] { th scope="col" { (title) } } } }
                        tbody {
                            @for row in rows {
                                tr {
                                    th.name scope="row" { a href=(path(&row.name)) { (row.name) } br; span.soft { (row.bundle) } }
                                    td { span class=(verdict_class(&row.result)) { (row.result.as_str()) } }
                                    td { @if !row.constraint.is_empty() { (row.constraint) " " (row.value) } }
                                    td.lines {
                                        @match (advice(&row.name).filter(|_| blocks(&row.result)), &row.message) {
                                            (Some(advice), _) => (advice),
                                            (None, Some(message)) => (message),
                                            (None, None) => "",
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            @if !found.removed.is_empty() {
                h3 { "Removed APIs in use" }
                ul { @for (extension, text) in &found.removed { li { a href=(path(extension)) { (extension) } ": " (text) } } }
            }
        }
    }
}

fn findings_markup(found: &[Advice], unreadable: &[String]) -> Markup {
    let numbers = ["error", "warning", "note"]
        .map(|level| counted(found.iter().filter(|one| one.level == level).count(), level));
    html! {
        p.trail { a href="/cluster" { "Cluster" } }
        h1 { "Health of OLM" }
        p { @if found.is_empty() { "✓ The check found no fault." } @else { (numbers.join(", ")) } }
        @for one in found {
            @let (class, icon) = match one.level { "error" => ("badge bad", "✕"), "warning" => ("badge warn", "!"), _ => ("badge", "i") };
            section.card.finding {
                h2 { span class=(class) { span aria-hidden="true" { (icon) } " " (one.level) } " " (one.object) }
                p { strong { (one.problem) "." } }
                p.message { (without_flags(&one.message)) }
                p { strong { "What to do. " } (one.remedy) "." }
                p.soft { (one.documentation) }
            }
        }
        @if !unreadable.is_empty() {
            h2 { "Not checked" }
            p.soft { "You may not read these, or they did not answer, so findings may be missing." }
            ul { @for what in unreadable { li { (what) } } }
        }
    }
}
