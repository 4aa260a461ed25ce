//! Markup of an extension's state: conditions, revisions, phases, objects, history. Pure.

use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use olm_api::Condition;
use olm_cli_core::output::qualified;
use olm_cli_lifecycle::history::Record;
use olm_cli_lifecycle::status::age;
use olm_cli_lifecycle::status::health::Health;
use olm_cli_lifecycle::status::objects::{ObjectState, ObjectStatus, PhaseProgress, PhaseState};
use olm_cli_lifecycle::status::text::{progress, requested, shown, stage};
use olm_cli_lifecycle::status::tree::{ExtensionState, RevisionState, RolloutStage};

use super::{cut, path};

/// Most ready objects of a phase that are listed without a click.
const SHOWN: usize = 10;

/// Time since `at`, with the time itself as title.
pub(super) fn age(now: Timestamp, at: Option<&str>, suffix: &str) -> Markup {
    let text = age::age(now, at);
    html! { @if !text.is_empty() { time datetime=[at] title=[at] { (text) (suffix) } } }
}

pub(super) fn health(state: &ExtensionState) -> Markup {
    let class = match state.health {
        Health::Healthy => "badge good",
        Health::Degraded | Health::Retrying | Health::Stalled | Health::Misconfigured | Health::Blocked => {
            "badge bad"
        }
        Health::Pending | Health::Installing | Health::Repairing | Health::Upgrading | Health::Deleting => {
            "badge warn"
        }
    };
    html! {
        span class=(class) { (format!("{:?}", state.health)) }
        @if !state.up_to_date { " " span.soft { "not reconciled since the last change" } }
    }
}

/// Facts and holds of the extension.
pub(super) fn summary(state: &ExtensionState) -> Markup {
    html! {
        dl.pairs {
            dt { "Health" } dd { (health(state)) }
            dt { "Package" } dd { (state.package) }
            dt { "Namespace" } dd { (state.namespace) }
            dt { "Installed" }
            dd {
                @match &state.installed {
                    Some(bundle) => { (bundle.version) " " span.soft { (bundle.name) } },
                    None => "nothing",
                }
            }
            dt { "Requested" } dd { (requested(state)) }
            @if let Some(version) = &state.available_version { dt { "Available" } dd { (version) } }
            @if let Some(revision) = &state.adopted_from_helm {
                dt { "Adopted" } dd { "from the upstream Helm applier, by " (revision) }
            }
        }
        @for hold in &state.holds { p.notice { strong { "Held by " (hold.by) ". " } (hold.message) } }
    }
}

pub(super) fn conditions(conditions: &[Condition], now: Timestamp) -> Markup {
    let shown = shown(conditions, false);
    html! {
        section aria-labelledby="conditions" {
            h2 #conditions { "Conditions" }
            @if shown.is_empty() { p.soft { "None yet." } } @else {
                div.table #conditions-table tabindex="0" role="region" aria-labelledby="conditions" {
                    table {
                        thead { tr { @for title in ["Type", "Status", "Since", "Message"] { th scope="col" { (title) } } } }
                        tbody {
                            @for condition in shown {
                                tr {
                                    th scope="row" { (condition.type_) }
                                    td { (condition.status) br; span.soft { (condition.reason) } }
                                    td.number { (age(now, Some(&condition.last_transition_time.0.to_string()), "")) }
                                    td.lines { (condition.message) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Revisions that are not archived, newest first.
pub(super) fn revisions(state: &ExtensionState, now: Timestamp) -> Markup {
    let live = || state.revisions.iter().filter(|revision| revision.stage != RolloutStage::Archived);
    html! {
        section aria-labelledby="revisions" {
            h2 #revisions { "Revisions" }
            @if live().next().is_none() { p.soft { "There is no active revision." } }
            @for revision in live() { (self::revision(revision, now)) }
        }
    }
}

fn revision(revision: &RevisionState, now: Timestamp) -> Markup {
    let class = match revision.stage {
        RolloutStage::Succeeded => "badge good",
        RolloutStage::Retrying | RolloutStage::Blocked | RolloutStage::DeadlineExceeded => "badge bad",
        _ => "badge warn",
    };
    html! {
        details.revision id=(format!("revision-{}", revision.revision)) open {
            summary {
                strong { (revision.name) } " " span class=(class) { (stage(revision)) } " " (revision.bundle) " "
                span.soft { (age(now, revision.created.as_deref(), " ago")) }
            }
            @if let Some(error) = &revision.error { p.notice.bad { (error) } }
            @if let Some(why) = &revision.unreadable { p.notice { "Its objects cannot be read: " (why) } }
            @if !revision.phases.is_empty() {
                ul.tree {
                    @for (number, phase) in revision.phases.iter().enumerate() {
                        li { (self::phase(phase, &format!("phase-{}-{number}", revision.revision))) }
                    }
                }
            }
        }
    }
}

fn phase(phase: &PhaseState, id: &str) -> Markup {
    let class = match phase.progress {
        PhaseProgress::Complete => "badge good",
        PhaseProgress::Current => "badge warn",
        PhaseProgress::Waiting => "badge",
    };
    let (settled, unsettled): (Vec<_>, Vec<_>) =
        phase.objects.iter().partition(|object| object.state.is_settled());
    let (first, rest) = settled.split_at(settled.len().min(SHOWN));
    html! {
        "Phase " strong { (phase.name) } " " span class=(class) { (progress(phase)) }
        ul { @for one in unsettled.iter().chain(first) { (object(one)) } }
        @if !rest.is_empty() {
            details id=(id) {
                summary { (rest.len()) " more ready" }
                ul { @for one in rest { (object(one)) } }
            }
        }
    }
}

fn object(object: &ObjectState) -> Markup {
    let class = match object.state {
        ObjectStatus::Ready | ObjectStatus::HandedOver => "badge good",
        ObjectStatus::Collision | ObjectStatus::NotReady | ObjectStatus::NotServed => "badge bad",
        _ => "badge warn",
    };
    html! {
        li {
            span class=(class) { (object.state.as_str()) } " "
            (object.kind) " " (qualified(&object.namespace, &object.name))
            @for message in &object.messages { div.probe { (cut(message)) } }
        }
    }
}

/// All revisions, newest first, with links to roll back.
pub(super) fn history(name: &str, records: &[Record], now: Timestamp) -> Markup {
    html! {
        section aria-labelledby="history" {
            h2 #history { "History" }
            div.table #history-table tabindex="0" role="region" aria-labelledby="history" {
                table {
                    thead {
                        tr { @for title in ["Revision", "Version", "Result", "Created", "Archived", "Roll back"] { th scope="col" { (title) } } }
                    }
                    tbody {
                        @for record in records {
                            tr {
                                th scope="row" { (record.revision) }
                                td { (record.version) br; span.soft { (record.bundle) } }
                                td { (record.result) }
                                td.number { (age(now, record.created.as_deref(), " ago")) }
                                td.number { (age(now, record.archived.as_deref(), " ago")) }
                                td {
                                    @match record.rollback.why_not {
                                        None => a href=(format!("{}/rollback?to={}", path(name), record.revision)) { "Preview" },
                                        Some(why) => span.soft { (why) },
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
