//! Handlers and markup of the pages.

use axum::Form;
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use olm_cli_core::error::{CliError, Code};

use super::configure;
use super::difference::{attention_markup, objects, whole};
use super::planned::Planned;
use super::{Action, LATEST, REQUESTED, Request};
use crate::app::Console;
use crate::extensions::{cluster_of, path, trail};
use crate::install::permissions;
use crate::markup::problem;
use crate::page::{Page, PageError, Section, visible, without_flags};
use crate::visit::{Answer, Visit};
use crate::visitor::Visitor;

/// Limit of shown lines of a difference.
const LINES: usize = 3000;

/// Plan of the change.
///
/// # Errors
/// There is no such page, extension or target, or the cluster cannot be read.
pub(super) async fn page(
    visit: Visit,
    Path((name, action)): Path<(String, String)>,
    Query(request): Query<Request>,
) -> Result<Response, PageError> {
    let action = known(&action)?;
    let answer = visit.answer(
        Section::Extensions,
        format!("{} {name}", action.label()),
        async move |console, visitor| {
            cluster_of(visitor, &name)?;
            // Without a form, empty values would remove everything.
            if action == Action::Configure && request.generation.is_empty() {
                return Ok(Answer::Redirect(format!("{}/configuration", path(&name))));
            }
            Ok(match plan(console, visitor, &name, action, &request).await? {
                Ok(planned) => {
                    let body = markup(console, visitor, &name, action, &request, &planned, None);
                    Answer::Page(StatusCode::OK, body)
                }
                Err(refused) => refused,
            })
        },
    );
    answer.await
}

/// Plan of the change, else the page with the form of a configuration that is not possible.
///
/// # Errors
/// There is no such extension or target, or the cluster cannot be read.
async fn plan(
    console: &Console,
    visitor: &Visitor,
    name: &str,
    action: Action,
    request: &Request,
) -> Result<Result<Planned, Answer>, CliError> {
    let error = match Planned::read(console, visitor, name, action, request).await {
        Ok(planned) => return Ok(Ok(planned)),
        Err(error) => error,
    };
    let is_of_form = matches!(&error, CliError::Message(Code::Usage | Code::Findings | Code::NoCandidate, _));
    let (cluster, session) = (cluster_of(visitor, name)?, &console.session);
    if action != Action::Configure || !is_of_form || cluster.find_extension(name, session).await?.is_none() {
        return Err(error);
    }
    let body = configure::refused(name, request, &without_flags(&error.to_string()));
    Ok(Err(Answer::refused(body)))
}

/// Carries out the change if it is still the one that the user saw.
///
/// # Errors
/// Errors of [`page`], or the API server refuses the write.
pub(super) async fn apply(
    visit: Visit,
    Path((name, action)): Path<(String, String)>,
    Form(request): Form<Request>,
) -> Result<Response, PageError> {
    let action = known(&action)?;
    let answer = visit.answer(
        Section::Extensions,
        format!("{} {name}", action.label()),
        async move |console, visitor| {
            let planned = match plan(console, visitor, &name, action, &request).await? {
                Ok(planned) => planned,
                Err(refused) => return Ok(refused),
            };
            let shown = |why| markup(console, visitor, &name, action, &request, &planned, why);
            if planned.digest() != request.previewed {
                let why =
                    "The plan has changed since it was shown, so nothing was written. Check the new plan.";
                return Ok(Answer::conflict(shown(Some(why))));
            }
            if !planned.endangered.is_empty() && request.confirm.trim() != name {
                let why =
                    "Nothing was written: type the name of the extension to delete its custom resources.";
                return Ok(Answer::refused(shown(Some(why))));
            }
            if planned.refusal.is_some() || planned.is_unchanged {
                return Ok(Answer::refused(shown(None)));
            }
            let (cluster, session) = (cluster_of(visitor, &name)?, &console.session);
            planned.write(cluster, None, session).await?;
            // The extension may be gone before the browser asks for its page.
            let kept = if request.keep_crds == "yes" { "?keep_crds=yes" } else { "" };
            Ok(Answer::Redirect(match action {
                Action::Uninstall => format!("{}/uninstalled{kept}", path(&name)),
                _ => path(&name),
            }))
        },
    );
    answer.await
}

/// Page after an uninstallation, which exists whether the extension is gone or not.
///
/// # Errors
/// The name is invalid, or the cluster cannot be read.
pub(super) async fn uninstalled(
    visit: Visit,
    Path(name): Path<String>,
    Query(request): Query<Request>,
) -> Result<Page, PageError> {
    let page = visit.page(Section::Extensions, format!("Uninstalling {name}"), async move |console, visitor| {
        let cluster = cluster_of(visitor, &name)?;
        let left = cluster.find_extension(&name, &console.session).await?;
        let kept = request.keep_crds == "yes";
        Ok(html! {
            p.trail { a href="/extensions" { "Extensions" } }
            @match left {
                Some(left) if left.metadata.deletion_timestamp.is_none() => {
                    h1 { (name) " is installed" }
                    p { "It is not being uninstalled. See " a href=(path(&name)) { "its page" } "." }
                },
                Some(_) => {
                    h1 { "Uninstalling " (name) }
                    p { "OLM deletes the objects of the extension. Follow it on " a href=(path(&name)) { "its page" } "." }
                },
                None => {
                    h1 { (name) " is not installed" }
                    p { "If you uninstalled it just now, OLM may still delete some of its objects." }
                },
            }
            @if kept { p { "The CustomResourceDefinitions and all custom resources are kept." } }
            p { a href="/extensions" { "All extensions" } }
        })
    });
    page.await
}

fn known(action: &str) -> Result<Action, PageError> {
    Action::of_path(action).ok_or_else(|| PageError::new(StatusCode::NOT_FOUND, "there is no such page"))
}

fn markup(
    console: &Console,
    visitor: &Visitor,
    name: &str,
    action: Action,
    request: &Request,
    planned: &Planned,
    why: Option<&str>,
) -> Markup {
    let address = format!("{}/{}", path(name), action.as_str());
    let head = html! {
        (trail(name))
        h1 { (action.label()) " " (name) }
        @if let Some(why) = why { (problem(why)) }
        @for fact in &planned.facts { p { (fact) } }
    };
    let plan = html! {
        @if let Some(refusal) = &planned.refusal { (problem(&without_flags(refusal))) }
        @for warning in &planned.warnings { p.notice { (without_flags(warning)) } }
        (attention_markup(&planned.attention()))
        h2 { "Plan" }
        pre #plan tabindex="0" role="region" aria-label="Plan" { (lines(&without_flags(&planned.text))) }
        @if let Some(diff) = planned.diff() {
            (objects(diff))
            (permissions(&diff.permissions))
            (whole(diff))
        }
        h2 { "Command line" }
        pre #command tabindex="0" role="region" aria-label="Command line" { (planned.command) }
        button.quiet type="button" data-copy="command" hidden { "Copy" }
        @if planned.is_unchanged { p.soft { "There is nothing to write: the extension already requests this." } }
    };
    // Values of forms stay as they are: the browser sends them back.
    html! {
        (visible(&head))
        @if !planned.choice.0.is_empty() {
            @if action == Action::Configure {
                details { summary { "Change the configuration" } form.install method="get" action=(address) { (planned.choice) } }
            } @else {
                form.choice method="get" action=(address) {
                    (planned.choice)
                    button.quiet type="submit" { "Show plan" }
                }
            }
        }
        (visible(&plan))
        @if !planned.is_unchanged && planned.refusal.is_none() && !console.read_only {
            (write_form(visitor, name, action, request, planned))
        }
    }
}

/// Form that writes what the plan shows.
fn write_form(visitor: &Visitor, name: &str, action: Action, request: &Request, planned: &Planned) -> Markup {
    html! {
        form method="post" action=(format!("{}/{}", path(name), action.as_str())) {
            (visitor.csrf_field())
            input type="hidden" name="to" value=(request.to);
            input type="hidden" name="keep_crds" value=(request.keep_crds);
            @if action == Action::Configure {
                @for (name, value) in [("channels", &request.channels), ("range", &request.range), ("settings", &request.settings), ("generation", &request.generation)] {
                    input type="hidden" name=(name) value=(value);
                }
            }
            input type="hidden" name="previewed" value=(planned.digest());
            @if !planned.endangered.is_empty() {
                div.field.confirm {
                    label for="confirm" { "To delete the custom resources, type " code { (name) } }
                    input #confirm type="text" name="confirm" required pattern=(name.replace('.', "\\.")) autocomplete="off" spellcheck="false";
                }
            }
            button.danger[action == Action::Uninstall] type="submit" data-apply { (action.label()) }
        }
    }
}

/// Lines with the class of their change.
pub(super) fn lines(text: &str) -> Markup {
    let all = text.lines().count();
    html! {
        @for line in text.lines().take(LINES) { span class=[class(line)] { (line) } "\n" }
        @if all > LINES { strong { "and " (all - LINES) " more lines, which the command line shows" } }
    }
}

/// Class of a line of `olm diff` or of a plan.
pub(super) fn class(line: &str) -> Option<&'static str> {
    let indented = line.strip_prefix("  ").map(str::trim_start);
    match indented.map(|text| text.get(..2).unwrap_or_default()) {
        Some("+ ") => Some("added"),
        Some("- ") => Some("removed"),
        Some("~ ") => Some("changed"),
        Some("! ") => Some("problem"),
        Some(_) => None,
        None => ["Warning", "Problems", "Data at risk", "Deletes CRDs"]
            .iter()
            .any(|key| line.starts_with(key))
            .then_some("problem"),
    }
}

/// Select with the targets of an upgrade.
pub(super) fn target_choice(selected: &str, versions: &[String]) -> Markup {
    let fixed = [(REQUESTED, "As the extension requests now"), (LATEST, "Newest, now and later")];
    let versions = versions.iter().map(|version| (version.as_str(), version.as_str()));
    html! {
        div {
            label for="to" { "Version" }
            select #to name="to" {
                @for (value, label) in fixed.into_iter().chain(versions) {
                    option value=(value) selected[value == selected] { (label) }
                }
            }
        }
    }
}

/// Checkbox of an uninstallation.
pub(super) fn keep_choice(is_kept: bool) -> Markup {
    html! {
        label.check {
            input type="checkbox" name="keep_crds" value="yes" checked[is_kept];
            "Keep CustomResourceDefinitions and custom resources"
        }
    }
}
