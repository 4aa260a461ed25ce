//! Markup of an extension's state: conditions, revisions, phases, objects, history. Pure.

use std::borrow::Cow;

use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use olm_api::Condition;
use olm_api::conditions::reasons;
use olm_cli_core::output::qualified;
use olm_cli_lifecycle::history::Record;
use olm_cli_lifecycle::status::age;
use olm_cli_lifecycle::status::health::{Health, Hold};
use olm_cli_lifecycle::status::objects::{ObjectState, ObjectStatus, PhaseProgress, PhaseState};
use olm_cli_lifecycle::status::text::{progress, requested, shown, stage};
use olm_cli_lifecycle::status::tree::{ExtensionState, RevisionState, RolloutStage};

use super::object::key;
use super::tab::Tab;
use super::{cut, path};
use crate::catalog::{encoded, pre_release_mark};
use crate::markup::badge;

/// Most ready objects of a phase that are listed without a click.
const SHOWN: usize = 10;

/// Time since `at`, with the time itself as title.
pub(crate) fn age(now: Timestamp, at: Option<&str>, suffix: &str) -> Markup {
    let text = age::age(now, at);
    html! { @if !text.is_empty() { time datetime=[at] title=[at] data-suffix=(suffix) { (text) (suffix) } } }
}

/// Class and icon of a health. A held change is no failure.
fn look(state: &ExtensionState) -> (&'static str, &'static str) {
    match state.health {
        _ if state.is_held() => ("badge warn", "⏸"),
        Health::Healthy => ("badge good", "✓"),
        Health::Degraded | Health::Retrying | Health::Stalled | Health::Misconfigured | Health::Blocked => {
            ("badge bad", "✕")
        }
        Health::Pending | Health::Installing | Health::Repairing | Health::Upgrading | Health::Deleting => {
            ("badge warn", "↻")
        }
    }
}

/// Health as icon and word.
pub(super) fn health(state: &ExtensionState) -> Markup {
    let (class, icon) = look(state);
    html! {
        (badge(class, icon, &health_word(state)))
        @if !state.up_to_date { " " span.soft { "not reconciled since the last change" } }
    }
}

/// Health in one word. An extension that is blocked on purpose waits.
pub(super) fn health_word(state: &ExtensionState) -> String {
    if state.is_held() { "Waiting".to_owned() } else { format!("{:?}", state.health) }
}

/// Health and versions, on one line.
pub(super) fn status(state: &ExtensionState) -> Markup {
    html! {
        p.status {
            (health(state))
            @match &state.installed {
                Some(bundle) => span { "version " strong { (bundle.version) } },
                None => span { "nothing installed" },
            }
            @if let Some(version) = &state.available_version { span { (version) " is available" (pre_release_mark(version)) } }
            span.soft { "requests " (requested(state)) }
        }
    }
}

/// Facts of the extension.
pub(super) fn summary(state: &ExtensionState) -> Markup {
    html! {
        dl.pairs {
            dt { "Package" } dd { a href=(format!("/find?q={}", encoded(&state.package))) { (state.package) } }
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
    }
}

/// Holds on upgrades, with the way to release them.
pub(super) fn holds(state: &ExtensionState) -> Markup {
    let approval = |hold: &Hold| hold.by == reasons::APPROVAL_REQUIRED;
    html! {
        @for hold in &state.holds {
            div.notice.held {
                strong { (held_by(&hold.by)) ". " } (released_by(hold))
                @if approval(hold) {
                    p { a.button href=(format!("{}/approve", path(&state.name))) { "Review and approve" } }
                }
            }
        }
    }
}

/// What a hold means for the extension, in a sentence and with its message.
fn released_by(hold: &Hold) -> Markup {
    let sentence = match hold.by.as_str() {
        reasons::APPROVAL_REQUIRED => "OLM applies the change when you approve it.",
        reasons::OUTSIDE_WINDOW => "OLM applies the change when the next upgrade window opens.",
        reasons::OPERATOR_NOT_UPGRADEABLE => "OLM applies the change when the operator allows it.",
        "Paused" => "Upgrades continue when you resume the extension.",
        _ => "",
    };
    html! { (sentence) p.soft { (hold.message) } }
}

/// Hold in words.
pub(super) fn held_by(by: &str) -> Cow<'_, str> {
    Cow::Borrowed(match by {
        reasons::APPROVAL_REQUIRED => "Waits for your approval",
        reasons::OUTSIDE_WINDOW => "Waits for its upgrade window",
        reasons::OPERATOR_NOT_UPGRADEABLE => "The operator does not allow the upgrade now",
        "Paused" => "Paused",
        other => return Cow::Owned(format!("Held back ({other})")),
    })
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
            @for revision in live() { (self::revision(revision, state, now)) }
        }
    }
}

fn revision(revision: &RevisionState, state: &ExtensionState, now: Timestamp) -> Markup {
    // Objects of a normal rollout are not ready yet, which is no error.
    let is_normal = matches!(revision.stage, RolloutStage::New | RolloutStage::RollingOut)
        && state.blocked_pods().is_none();
    let class = match revision.stage {
        RolloutStage::Succeeded => "badge good",
        RolloutStage::Retrying | RolloutStage::Blocked | RolloutStage::DeadlineExceeded => "badge bad",
        _ => "badge warn",
    };
    html! {
        details.revision id=(format!("revision-{}", revision.revision)) open {
            summary {
                strong { (revision.name) } " " span class=(class) { (stage(revision, &state.revisions)) } " " (revision.bundle) " "
                span.soft { (age(now, revision.created.as_deref(), " ago")) }
            }
            @if let Some(error) = revision.error.as_ref().filter(|_| !is_normal) { p.notice.bad { (error) } }
            @if let Some(why) = &revision.unreadable { p.notice { "Its objects cannot be read: " (why) } }
            @if !revision.phases.is_empty() {
                ul.tree {
                    @for (number, phase) in revision.phases.iter().enumerate() {
                        li { (self::phase(phase, &format!("phase-{}-{number}", revision.revision), &state.name, is_normal)) }
                    }
                }
            }
        }
    }
}

fn phase(phase: &PhaseState, id: &str, extension: &str, is_normal: bool) -> Markup {
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
        ul { @for one in unsettled.iter().chain(first) { (object(one, extension, is_normal)) } }
        @if !rest.is_empty() {
            details id=(id) {
                summary { (rest.len()) " more ready" }
                ul { @for one in rest { (object(one, extension, is_normal)) } }
            }
        }
    }
}

/// Object with the reasons for its state. Those of a normal rollout are hints, not errors.
fn object(object: &ObjectState, extension: &str, is_normal: bool) -> Markup {
    let is_expected = is_normal && matches!(object.state, ObjectStatus::NotReady | ObjectStatus::Missing);
    let class = match object.state {
        _ if is_expected => "badge warn",
        ObjectStatus::Ready | ObjectStatus::HandedOver => "badge good",
        ObjectStatus::Collision | ObjectStatus::NotReady | ObjectStatus::NotServed => "badge bad",
        _ => "badge warn",
    };
    let word = match object.state {
        ObjectStatus::Missing if is_expected => "not created yet",
        ObjectStatus::NotReady if is_expected => "starting",
        state => state.as_str(),
    };
    let messages = object.messages.iter().filter(|_| object.state != ObjectStatus::Missing);
    html! {
        li {
            span class=(class) { (word) } " "
            @let shown = key(&object.kind, &object.namespace, &object.name);
            a.plain href=(format!("{}?object={}", Tab::Objects.address(extension), encoded(&shown))) {
                (object.kind) " " (qualified(&object.namespace, &object.name))
            }
            @for message in messages {
                @let is_new = is_expected && message.contains(".status.conditions");
                div.probe.soft[is_expected] { @if is_new { "has not reported its state yet" } @else { (cut(message)) } }
            }
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
