//! Page of one extension, which follows the cluster.

use axum::extract::{self, Path};
use axum::response::{IntoResponse, Response};
use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use olm_api::ClusterObjectSet;
use olm_cli_core::error::CliError;
use olm_cli_lifecycle::history::records;
use olm_cli_lifecycle::status::activity::{Activity, Log, grouped, subject, time};
use olm_cli_lifecycle::status::observe::{self, Observed};
use olm_cli_lifecycle::status::tree::ExtensionState;
use serde::Deserialize;

use super::cause::Cause;
use super::follow::{self, Seen};
use super::list_page::follower;
use super::tab::{Tab, tabs};
use super::tree::{age, conditions, health_word, history, holds, revisions, status, summary};
use super::verdict::Upgradeable;
use super::{cluster_of, cut, object, path};
use crate::app::Console;
use crate::catalog::encoded;
use crate::changes::configuration;
use crate::page::{Fragment, Page, PageError, Section, visible};
use crate::visit::Visit;
use crate::visitor::Visitor;

/// Events that the overview shows.
const RECENT: usize = 5;

/// Content of the page.
struct Shown {
    observed: Observed,
    state: ExtensionState,
    activity: Activity,
    upgradeable: Upgradeable,
    seen: Seen,
}

/// Query of the tab with objects.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Selected {
    /// Key of the object that is shown as a whole.
    object: String,
}

/// Tab of an extension. With `fragment` in the query only the part that changes, after a wait.
///
/// # Errors
/// There is no such extension, or the cluster cannot be read.
pub(super) async fn page(
    tab: Tab,
    visit: Visit,
    Path(name): Path<String>,
    extract::Query(query): extract::Query<follow::Query>,
    extract::Query(selected): extract::Query<Selected>,
) -> Result<Response, PageError> {
    let permit = query.wait(&visit, cluster_of(&visit.visitor, &name)?, Some(&name)).await?;
    let title = name.clone();
    let mut address = tab.address(&name);
    if !selected.object.is_empty() {
        address += &format!("?object={}", encoded(&selected.object));
    }
    let (part, forms) = visit
        .run(async move |console, visitor| {
            let _permit = permit;
            let shown = Shown::read(console, visitor, &name, tab).await?;
            // A form must not change while the user fills it in.
            let forms = if tab == Tab::Configuration {
                configuration(&shown.observed.extension)
            } else {
                Markup::default()
            };
            Ok((visible(&shown.markup(tab, &selected, Timestamp::now())), forms))
        })
        .await?;
    if query.is_fragment() {
        return Ok(Fragment(part).into_response());
    }
    let path = path(&title);
    let body = html! {
        p.trail { a href="/extensions" { "Extensions" } }
        div.heading {
            h1 { (title) }
            p.actions {
                @for (action, label) in [("upgrade", "Upgrade"), ("rollback", "Roll back"), ("uninstall", "Uninstall")] {
                    a.button.quiet href=(format!("{path}/{action}")) { (label) }
                }
                a.button.quiet href=(format!("{path}/why")) { "Why this version" }
            }
        }
        (tabs(tab, &title))
        (follower(&address, &part))
        (forms)
    };
    Ok(Page::new(Section::Extensions, title, body).into_response())
}

impl Shown {
    async fn read(console: &Console, visitor: &Visitor, name: &str, tab: Tab) -> Result<Self, CliError> {
        let (cluster, session) = (cluster_of(visitor, name)?, &console.session);
        // Read first, so that a later change is not missed.
        let seen = Seen::now(cluster, Some(name), session).await?;
        let observed = observe::observe(cluster, name, session).await?;
        let state = ExtensionState::new(&observed);
        let activity = Activity::read(cluster, &observed, tab.wanted()).await;
        let upgradeable = Upgradeable::read(cluster, session).await;
        Ok(Self { observed, state, activity, upgradeable, seen })
    }

    fn markup(&self, tab: Tab, selected: &Selected, now: Timestamp) -> Markup {
        let Self { observed, state, activity, upgradeable, seen } = self;
        html! {
            div data-seen=(seen) data-summary=(format!("{}: {}", state.name, health_word(state))) {
                (status(state))
                @if let Some(cause) = Cause::new(state, &activity.logs) { (cause.markup()) }
                (holds(state))
                @match tab {
                    Tab::Overview => {
                        div.split {
                            div {
                                (conditions(&state.conditions, now))
                                (revisions(state, now))
                                (events(activity, RECENT, &state.name, now))
                            }
                            aside aria-label="Facts" {
                                (summary(state))
                                h2 { "Cluster upgrade" }
                                (upgradeable.of_extension(&state.name))
                            }
                        }
                    },
                    Tab::Objects => {
                        @match object::find(observed, &selected.object) {
                            Some(found) => {
                                p { a href=(Tab::Objects.address(&state.name)) { "All objects" } }
                                (object::markup(found))
                            },
                            None => (revisions(state, now)),
                        }
                    },
                    Tab::Events => (events(activity, usize::MAX, &state.name, now)),
                    Tab::Logs => (logs(activity)),
                    Tab::History => {
                        @let revisions: Vec<ClusterObjectSet> = observed.revisions.iter().map(|revision| revision.set.clone()).collect();
                        (history(&state.name, &records(&revisions), now))
                    },
                    Tab::Apis | Tab::Configuration => {},
                }
            }
        }
    }
}

/// The newest `limit` Events, of which equal ones are one row.
fn events(activity: &Activity, limit: usize, name: &str, now: Timestamp) -> Markup {
    let groups = grouped(&activity.events);
    html! {
        section aria-labelledby="events" {
            h2 #events { @if limit == usize::MAX { "Events" } @else { "Recent Events" } }
            @for note in &activity.notes { p.soft { (note) } }
            @if groups.is_empty() {
                @if activity.notes.is_empty() { p.soft { "There are no recent Events." } }
            } @else {
                div.table #events-table tabindex="0" role="region" aria-labelledby="events" {
                    table {
                        thead { tr { @for title in ["Last", "Times", "Object", "Reason", "Message"] { th scope="col" { (title) } } } }
                        tbody {
                            @for group in groups.iter().take(limit) {
                                @let event = group.newest;
                                tr {
                                    td.number { (age(now, time(event).as_deref(), "")) }
                                    td.number { (group.count) }
                                    td.name { (cut(&subject(event))) }
                                    td.name {
                                        @let reason = cut(event.reason.as_deref().unwrap_or_default());
                                        @if event.type_.as_deref() == Some("Warning") { span.badge.bad { (reason) } } @else { (reason) }
                                    }
                                    td.lines { (cut(event.message.as_deref().unwrap_or_default())) }
                                }
                            }
                        }
                    }
                }
                @if groups.len() > limit { p { a href=(Tab::Events.address(name)) { "All " (groups.len()) } } }
            }
        }
    }
}

fn logs(activity: &Activity) -> Markup {
    html! {
        section aria-labelledby="logs" {
            h2 #logs { "Logs" }
            @for note in &activity.notes { p.soft { (note) } }
            @if activity.logs.is_empty() { p.soft { "The extension has no pods with logs." } }
            @for log in &activity.logs { (self::log(log)) }
        }
    }
}

fn log(log: &Log) -> Markup {
    let run = if log.previous { "before the restart" } else { "" };
    let id = format!("log-{}-{}{}", log.pod, log.container, if log.previous { "-previous" } else { "" });
    html! {
        details id=(id) open {
            summary {
                (log.namespace) "/" (log.pod) " " span.soft { (log.container) " " (run) }
                @if let Some(state) = &log.state { " " span.badge.bad { (cut(state)) } }
            }
            @match &log.text {
                Ok(text) if text.is_empty() => p.soft { "The log is empty." },
                Ok(text) => pre.log tabindex="0" id=(format!("{id}-text")) aria-label=(format!("Last lines of {}", log.pod)) role="region" data-tail { (text) },
                Err(why) => p.soft { "The log cannot be read: " (why) },
            }
        }
    }
}
