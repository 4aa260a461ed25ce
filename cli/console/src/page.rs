//! Frame of all pages: head, navigation, theme, errors.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::output::printable;

use super::app::{App, Console};
use super::assets;
use super::visitor::{Visitor, cookie};

/// Cookie with the theme that the user chose. The script sets it.
const THEME_COOKIE: &str = "olm-theme";

/// Entry of the navigation that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Catalog,
    /// Pages that need a cluster.
    Extensions,
    /// Page without an entry, such as an error.
    None,
}

/// Part of the API server's text about a missing permission.
const FORBIDDEN: &str = " is forbidden: ";

/// Entries of the navigation: section, label, path.
const SECTIONS: &[(Section, &str, &str)] =
    &[(Section::Catalog, "Catalog", "/"), (Section::Extensions, "Extensions", "/extensions")];

/// Page. [`frame`] adds what all pages have.
#[derive(Clone)]
pub(crate) struct Page {
    status: StatusCode,
    section: Section,
    title: String,
    body: Markup,
}

impl Page {
    /// Page with the content of its `main` element, which begins with the heading `h1`.
    pub(crate) fn new(section: Section, title: impl Into<String>, body: Markup) -> Self {
        Self { status: StatusCode::OK, section, title: title.into(), body }
    }

    /// The page with another status. A status beside the page would get lost in [`frame`].
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Part of a page, which the script puts into an element of the page.
pub(crate) struct Fragment(pub(crate) Markup);

impl IntoResponse for Fragment {
    fn into_response(self) -> Response {
        Html(self.0.into_string()).into_response()
    }
}

/// Part of a page with hidden characters escaped. Bundles, conditions, Events, logs and annotations may contain any.
///
/// Not for values of forms, which the browser sends back.
pub(crate) fn visible(part: &Markup) -> Markup {
    PreEscaped(printable(&part.0))
}

/// Error page, with the text of the command line tool.
#[derive(Debug)]
pub(crate) struct PageError {
    status: StatusCode,
    message: String,
}

impl PageError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

impl From<CliError> for PageError {
    fn from(error: CliError) -> Self {
        let status = match &error {
            CliError::Message(_, text) if text.contains(FORBIDDEN) => StatusCode::FORBIDDEN,
            CliError::Message(Code::NoCandidate, _) => StatusCode::NOT_FOUND,
            CliError::Message(Code::Usage | Code::Findings, _) => StatusCode::BAD_REQUEST,
            _ => StatusCode::BAD_GATEWAY,
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let title = match self.status {
            StatusCode::UNAUTHORIZED => "Not signed in",
            StatusCode::NOT_FOUND => "Not found",
            StatusCode::FORBIDDEN => "Refused",
            StatusCode::SERVICE_UNAVAILABLE => "Busy",
            status if status.is_client_error() => "Invalid request",
            _ => "Failed",
        };
        let body = html! {
            h1 { (title) }
            pre.message role="alert" { (printable(&self.message)) }
            p { a href="/" { "All packages" } }
        };
        Page { status: self.status, section: Section::None, title: title.to_owned(), body }.into_response()
    }
}

/// Renders the [`Page`] of a response.
pub(super) async fn frame(State(console): State<App>, request: Request, next: Next) -> Response {
    let theme = cookie(request.headers(), THEME_COOKIE).filter(|theme| ["light", "dark"].contains(theme));
    let theme = theme.map(str::to_owned);
    let mut response = next.run(request).await;
    let Some(page) = response.extensions_mut().remove::<Page>() else { return response };
    let visitor = response.extensions_mut().remove::<Visitor>();
    let status = page.status;
    let text = document(&page, &console, visitor.as_ref(), theme.as_deref()).into_string();
    (status, Html(text)).into_response()
}

fn document(page: &Page, console: &Console, visitor: Option<&Visitor>, theme: Option<&str>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" data-theme=[theme] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (page.title) " – OLM console" }
                link rel="icon" href=(assets::FAVICON.path());
                link rel="stylesheet" href=(assets::STYLE.path());
                script type="module" src=(assets::SCRIPT.path()) {}
            }
            body {
                a.skip href="#main" { "Skip to content" }
                header.top {
                    a.brand href="/" { "OLM console" }
                    @if let Some(visitor) = visitor { (navigation(page.section, visitor.cluster().is_some())) }
                    div.tools {
                        @if console.read_only { span.badge title="Started with --read-only" { "read-only" } }
                        button.quiet type="button" data-theme-toggle hidden { "Theme" }
                        @if let Some(visitor) = visitor { (visitor.account()) }
                    }
                }
                main #main tabindex="-1" { (page.body) }
                footer.bottom {
                    "olm " (olm_runtime::component::VERSION)
                    @if let Some(cluster) = visitor.and_then(Visitor::cluster) { " · cluster " (cluster.server()) }
                }
            }
        }
    }
}

/// Entries of the navigation. Extensions need a cluster.
fn navigation(current: Section, has_cluster: bool) -> Markup {
    let shown = SECTIONS.iter().filter(|(section, ..)| has_cluster || *section != Section::Extensions);
    html! {
        nav aria-label="Main" {
            ul {
                @for (section, label, path) in shown {
                    li { a href=(path) aria-current=[(*section == current).then_some("page")] { (label) } }
                }
            }
        }
    }
}
