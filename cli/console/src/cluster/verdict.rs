//! Page with the verdict on the next version of the cluster, and the findings of `olm doctor`.

use std::time::Duration;

use maud::{Markup, html};
use olm_api::cluster_upgrade_status::VerdictResult;
use olm_cli_core::error::CliError;
use olm_cli_core::output::counted;
use olm_cli_lifecycle::cluster_check::{NextVersion, next_version};
use olm_cli_system::doctor::{self, Advice};
use tokio::time::timeout;

use crate::extensions::{cluster, path, verdict_class};
use crate::markup::badge;
use crate::page::{Page, PageError, Section, visible, without_flags};
use crate::visit::Visit;

/// Time for a check of OLM.
const CHECK: Duration = Duration::from_secs(60);

/// Verdict on the next version.
///
/// # Errors
/// The console uses no cluster, or the platform cannot be read.
pub(super) async fn page(visit: Visit) -> Result<Page, PageError> {
    let page = visit.page(Section::Cluster, "Cluster", async move |console, visitor| {
        let found = next_version(cluster(visitor)?, visitor.access(), &console.session).await?;
        Ok(visible(&html! {
            h1 { "Cluster" }
            (verdict(&found))
            h2 { "Health of OLM" }
            p { "The check reads the objects, logs and certificates of OLM, and changes nothing. It may take some seconds." }
            p.actions { a.button href="/cluster/findings" { "Check OLM now" } }
        }))
    });
    page.await
}

/// Findings of `olm doctor`. Only one check runs at a time.
///
/// # Errors
/// The console uses no cluster, it cannot be read in time, or another check runs.
pub(super) async fn findings(visit: Visit) -> Result<Page, PageError> {
    let page = visit.page(Section::Cluster, "Health of OLM", async move |console, visitor| {
        let cluster = cluster(visitor)?;
        let busy = || CliError::operational("another check of OLM runs: try again when it has ended");
        let _permit = console.check.try_acquire().map_err(|_| busy())?;
        let findings = doctor::findings(cluster, visitor.access(), !console.read_only, &console.session);
        let late = || CliError::operational(format!("the check did not end within {} s", CHECK.as_secs()));
        let (found, unreadable) = timeout(CHECK, findings).await.map_err(|_| late())??;
        Ok(visible(&findings_markup(&found, &unreadable)))
    });
    page.await
}

/// Class, icon and word of the verdict. Objects that the next version does not serve speak against an upgrade, too.
fn word(found: &NextVersion) -> (&'static str, &'static str, &'static str) {
    match (found.upgradeable, found.removed.is_empty()) {
        ("True", true) => ("badge good", "✓", "allowed"),
        ("True" | "Unknown", false) => ("badge bad", "✕", "removed APIs are in use"),
        ("False", _) => ("badge bad", "✕", "blocked"),
        _ => ("badge warn", "?", "unknown"),
    }
}

fn verdict(found: &NextVersion) -> Markup {
    let (class, icon, word) = word(found);
    let blocks = |result: &VerdictResult| matches!(result, VerdictResult::Blocking | VerdictResult::Invalid);
    let rows = found.extensions.iter().filter(|row| !row.constraint.is_empty() || blocks(&row.result));
    let rows: Vec<_> = rows.collect();
    let advice =
        |name: &str| found.advice.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str());
    html! {
        section aria-labelledby="next" {
            h2 #next { "Next version" }
            p {
                @match &found.next {
                    Some(next) => { "Upgrade of " (found.current) " to " (next) ": " },
                    None => { "Upgrade of " (found.current) ": " },
                }
                (badge(class, icon, word))
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
            @for warning in &found.warnings { p.notice { (without_flags(warning)) } }
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
                h2 { (badge(class, icon, one.level)) " " (one.object) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_is_allowed_only_without_removed_apis_and_shows_warnings() {
        let found = |upgradeable: &'static str, removed: &[&str]| NextVersion {
            current: "Kubernetes 1.33".to_owned(),
            next: Some("1.34".to_owned()),
            upgradeable,
            message: String::new(),
            extensions: Vec::new(),
            advice: Vec::new(),
            removed: removed.iter().map(|text| ("pipe".to_owned(), (*text).to_owned())).collect(),
            warnings: vec!["pipe-1: API versions not checked: <b>".to_owned()],
        };
        for (upgradeable, removed, expected) in [
            ("True", &[][..], "badge good"),
            ("True", &["uses a/v1"], "badge bad"),
            ("False", &[], "badge bad"),
            ("Unknown", &[], "badge warn"),
            ("Unknown", &["uses a/v1"], "badge bad"),
        ] {
            let found = found(upgradeable, removed);
            assert_eq!(word(&found).0, expected, "{upgradeable} {removed:?}");
            let text = verdict(&found).into_string();
            assert!(text.contains("Upgrade of Kubernetes 1.33 to 1.34: "), "{text}");
            assert!(text.contains("API versions not checked: &lt;b&gt;"), "{text}");
        }
    }
}
