//! Markup that several pages share. Pure.

use maud::{Markup, html};
use olm_cli_core::output::printable;

/// Text field of a form, and below it the errors of its value. `None` for a form that shows errors elsewhere.
pub(crate) fn text_field(
    name: &str,
    label: &str,
    help: &str,
    value: &str,
    placeholder: &str,
    errors: Option<&[String]>,
) -> Markup {
    html! {
        div.field {
            label for=(name) { (label) }
            input id=(name) type="text" name=(name) value=(value) placeholder=(placeholder) spellcheck="false" autocomplete="off"
                aria-describedby=(described_by(name, errors.is_some())) aria-invalid=[is_invalid(errors)];
            p.soft id=(format!("{name}-help")) { (printable(help)) }
            @if let Some(errors) = errors { (error_list(name, errors)) }
        }
    }
}

/// Text area of a form for YAML, as [`text_field`].
pub(crate) fn yaml_field(
    name: &str,
    label: &str,
    help: &Markup,
    value: &str,
    rows: usize,
    errors: Option<&[String]>,
) -> Markup {
    html! {
        div.field {
            label for=(name) { (label) }
            textarea id=(name) name=(name) rows=(rows) spellcheck="false"
                aria-describedby=(described_by(name, errors.is_some())) aria-invalid=[is_invalid(errors)] { (value) }
            p.soft id=(format!("{name}-help")) { (help) }
            @if let Some(errors) = errors { (error_list(name, errors)) }
        }
    }
}

fn described_by(name: &str, has_errors: bool) -> String {
    if has_errors { format!("{name}-help {name}-errors") } else { format!("{name}-help") }
}

fn is_invalid(errors: Option<&[String]>) -> Option<&'static str> {
    errors.is_some_and(|errors| !errors.is_empty()).then_some("true")
}

/// Errors of the field `name`. Hidden without any.
pub(crate) fn error_list(name: &str, errors: &[String]) -> Markup {
    html! {
        ul.errors id=(format!("{name}-errors")) hidden[errors.is_empty()] {
            @for error in errors { li { (printable(error)) } }
        }
    }
}

/// Message about what prevents a write.
pub(crate) fn problem(text: &str) -> Markup {
    html! { p.notice.bad role="alert" { (text) } }
}

/// Manifest that a form writes, with a button that copies it.
pub(crate) fn manifest(yaml: &str) -> Markup {
    html! {
        h2 { "Manifest" }
        pre #manifest tabindex="0" role="region" aria-label="Manifest" { (yaml) }
        button.quiet type="button" data-copy="manifest" hidden { "Copy" }
    }
}

/// Word with an icon that a screen reader does not read.
pub(crate) fn badge(class: &str, icon: &str, word: &str) -> Markup {
    html! { span class=(class) { span aria-hidden="true" { (icon) } " " (word) } }
}
