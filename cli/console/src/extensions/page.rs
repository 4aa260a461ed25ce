//! Page of one extension, which follows the cluster.

use axum::Extension;
use axum::extract::{self, Path, State};
use axum::response::{IntoResponse, Response};
use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use olm_api::ClusterObjectSet;
use olm_cli_core::error::CliError;
use olm_cli_lifecycle::history::{Record, records};
use olm_cli_lifecycle::status::observe;
use olm_cli_lifecycle::status::tree::ExtensionState;

use super::activity::{Activity, Log, subject, time};
use super::follow::{self, Seen};
use super::list_page::follower;
use super::tree::{age, conditions, history, revisions, summary};
use super::verdict::Upgradeable;
use super::{cluster_of, cut, path};
use crate::app::{App, Console};
use crate::install::detached;
use crate::page::{Fragment, Page, PageError, Section, visible};
use crate::visitor::Visitor;

/// Content of the page.
struct Shown {
    state: ExtensionState,
    activity: Activity,
    records: Vec<Record>,
    upgradeable: Upgradeable,
    seen: Seen,
}

/// Extension as a tree. With `fragment` in the query only the part that changes, after a wait.
///
/// # Errors
/// There is no such extension, or the cluster cannot be read.
pub(super) async fn page(
    State(console): State<App>,
    Extension(visitor): Extension<Visitor>,
    Path(name): Path<String>,
    extract::Query(query): extract::Query<follow::Query>,
) -> Result<Response, PageError> {
    let permit = query.wait(&console, &visitor, cluster_of(&visitor, &name)?, Some(&name)).await?;
    let title = name.clone();
    let part = detached(console, visitor, async move |console, visitor| {
        let _permit = permit;
        let shown = Shown::read(console, visitor, &name).await?;
        Ok(visible(&shown.markup(Timestamp::now())))
    });
    let part = part.await?;
    if query.is_fragment() {
        return Ok(Fragment(part).into_response());
    }
    let address = path(&title);
    let body = html! {
        p.trail { a href="/extensions" { "Extensions" } }
        h1 { (title) }
        p.actions {
            a.button.quiet href=(format!("{address}/why")) { "Why this version" }
            @for (action, label) in [("upgrade", "Upgrade"), ("rollback", "Roll back"), ("uninstall", "Uninstall")] {
                a.button.quiet href=(format!("{address}/{action}")) { (label) }
            }
        }
        (follower(&address, &part))
    };
    Ok(Page::new(Section::Extensions, title, body).into_response())
}

impl Shown {
    async fn read(console: &Console, visitor: &Visitor, name: &str) -> Result<Self, CliError> {
        let (cluster, session) = (cluster_of(visitor, name)?, &console.session);
        // Read first, so that a later change is not missed.
        let seen = Seen::now(cluster, Some(name), session).await?;
        let observed = observe::observe(cluster, name, session).await?;
        let state = ExtensionState::new(&observed);
        let activity = Activity::read(cluster, &observed).await;
        let upgradeable = Upgradeable::read(cluster, session).await;
        let sets: Vec<ClusterObjectSet> =
            observed.revisions.into_iter().map(|revision| revision.set).collect();
        Ok(Self { state, activity, records: records(&sets), upgradeable, seen })
    }

    fn markup(&self, now: Timestamp) -> Markup {
        let Self { state, activity, records, upgradeable, seen } = self;
        html! {
            div.split data-seen=(seen) data-summary=(format!("{}: {:?}", state.name, state.health)) {
                div {
                    @for remedy in &state.remedies { p.notice.bad { strong { "Remedy. " } (remedy) } }
                    @if let Some((cause, _)) = state.blocked_pods() { p.notice.bad { (cause) } }
                    (revisions(state, now))
                    (conditions(&state.conditions, now))
                    (events(activity, now))
                    (logs(&activity.logs))
                    (history(&state.name, records, now))
                }
                aside aria-label="Facts" {
                    (summary(state))
                    h2 { "Cluster upgrade" }
                    (upgradeable.of_extension(&state.name))
                }
            }
        }
    }
}

fn events(activity: &Activity, now: Timestamp) -> Markup {
    html! {
        section aria-labelledby="events" {
            h2 #events { "Events" }
            @for note in &activity.notes { p.soft { "Cannot be read: " (note) } }
            @if activity.events.is_empty() { p.soft { "None." } } @else {
                div.table #events-table tabindex="0" role="region" aria-labelledby="events" {
                    table {
                        thead { tr { @for title in ["Last", "Object", "Reason", "Message"] { th scope="col" { (title) } } } }
                        tbody {
                            @for event in &activity.events {
                                tr {
                                    td.number { (age(now, time(event).as_deref(), "")) }
                                    td { (subject(event)) }
                                    td {
                                        @let reason = cut(event.reason.as_deref().unwrap_or_default());
                                        @if event.type_.as_deref() == Some("Warning") { span.badge.bad { (reason) } } @else { (reason) }
                                        @if let Some(count) = event.count.filter(|count| *count > 1) { " ×" (count) }
                                    }
                                    td.lines { (cut(event.message.as_deref().unwrap_or_default())) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn logs(logs: &[Log]) -> Markup {
    html! {
        section aria-labelledby="logs" {
            h2 #logs { "Logs" }
            @if logs.is_empty() { p.soft { "The Deployments of the extension have no pods." } }
            @for log in logs {
                @let id = format!("log-{}-{}", log.pod, log.container);
                details id=(id) open[log.state.is_some()] {
                    summary {
                        (log.namespace) "/" (log.pod) " " span.soft { (log.container) }
                        @if let Some(state) = &log.state { " " span.badge.bad { (state) } }
                    }
                    @match &log.text {
                        Ok(text) if text.is_empty() => p.soft { "The log is empty." },
                        Ok(text) => pre.log tabindex="0" id=(format!("{id}-text")) aria-label=(format!("Last lines of {}", log.pod)) role="region" { (text) },
                        Err(why) => p.soft { "The log cannot be read: " (why) },
                    }
                }
            }
        }
    }
}
