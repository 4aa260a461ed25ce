//! Frame of all pages: head, navigation, theme, errors.

use std::io::Write;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::jiff::Timestamp;
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
    /// These need a cluster.
    Extensions,
    Catalogs,
    Cluster,
    /// Page without an entry, such as an error.
    None,
}

/// Attribute of the field with the CSRF token.
const CSRF_NAME: &str = "name=\"csrf\"";

/// Attribute of a search field.
const SEARCH: &str = " data-search";

/// Part of the API server's text about a missing permission.
const FORBIDDEN: &str = " is forbidden: ";

/// Entries of the navigation: section, label, path.
const SECTIONS: &[(Section, &str, &str)] = &[
    (Section::Catalog, "Packages", "/"),
    (Section::Extensions, "Extensions", "/extensions"),
    (Section::Catalogs, "Catalogs", "/catalogs"),
    (Section::Cluster, "Cluster", "/cluster"),
];

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

/// Part of a page, which the script puts into an element of the page. [`frame`] renders it.
#[derive(Clone)]
pub(crate) struct Fragment(pub(crate) Markup);

impl IntoResponse for Fragment {
    fn into_response(self) -> Response {
        let mut response = StatusCode::OK.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Part of a page with hidden characters escaped. Bundles, conditions, Events, logs and annotations may contain any.
///
/// Not for values of forms, which the browser sends back.
pub(crate) fn visible(part: &Markup) -> Markup {
    PreEscaped(printable(&part.0))
}

/// Parts of the commands' texts that name flags, and what a page says instead.
const FLAGS: [(&str, &str); 4] = [
    (
        ": without --channel, all channels are searched; use --channel default to search only the default channel",
        ": to avoid this, choose the default channel",
    ),
    (
        ": without a version, pre-releases are admitted; use --version '*' for releases only",
        ": the range * admits releases only",
    ),
    (" with --keep-crds", ": choose to keep them below"),
    ("; use --catalogd-namespace if OLM is in another namespace", ""),
];

/// Text of a command for readers of a page, who have no flags.
pub(crate) fn without_flags(text: &str) -> String {
    let text = FLAGS.iter().fold(text.to_owned(), |text, (flags, words)| text.replace(flags, words));
    // The page has a button for this.
    match text
        .split_once("; `olm approve ")
        .and_then(|(before, rest)| Some((before, rest.split_once("` approves it")?.1)))
    {
        Some((before, after)) => format!("{before}{after}"),
        None => text,
    }
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

/// Shortest text that is compressed, in bytes.
const COMPRESSED: usize = 4 << 10;

/// Response with HTML. Long texts are compressed, except for those with a CSRF token: behind a proxy that adds
/// credentials, the length would tell something about it.
fn html_response(status: StatusCode, text: String, accepts_gzip: bool) -> Response {
    if !accepts_gzip || text.len() < COMPRESSED || text.contains(CSRF_NAME) {
        return (status, Html(text)).into_response();
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    match encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish()) {
        Ok(bytes) => {
            let headers = [(CONTENT_ENCODING, "gzip"), (VARY, "Accept-Encoding")];
            (status, headers, Html(bytes)).into_response()
        }
        Err(_) => (status, Html(text)).into_response(),
    }
}

/// Renders the [`Page`] or [`Fragment`] of a response.
pub(super) async fn frame(State(console): State<App>, request: Request, next: Next) -> Response {
    let theme = cookie(request.headers(), THEME_COOKIE).filter(|theme| ["light", "dark"].contains(theme));
    let theme = theme.map(str::to_owned);
    let encodings = request.headers().get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let accepts_gzip = encodings.is_some_and(|all| all.split(',').any(|one| one.trim() == "gzip"));
    let mut response = next.run(request).await;
    if let Some(Fragment(part)) = response.extensions_mut().remove() {
        return html_response(response.status(), part.into_string(), accepts_gzip);
    }
    let Some(page) = response.extensions_mut().remove::<Page>() else { return response };
    let visitor = response.extensions_mut().remove::<Visitor>();
    let status = page.status;
    let user = match &visitor {
        Some(visitor) => visitor.shown_name(&console).await,
        None => None,
    };
    let text = document(&page, &console, visitor.as_ref(), user.as_deref(), theme.as_deref()).into_string();
    html_response(status, text, accepts_gzip)
}

/// Search for packages and extensions from any page. Pages with a search of their own have none.
fn search(page: &Page) -> Markup {
    html! {
        @if !page.body.0.contains(SEARCH) {
            search { form.find action="/find" method="get" {
                input type="search" name="q" aria-label="Search packages and extensions" placeholder="Search" autocomplete="off" spellcheck="false"
                    aria-keyshortcuts="/" data-search;
            } }
        }
    }
}

/// Cluster and user, with a link to the rights.
fn identity(visitor: &Visitor, user: Option<&str>) -> Markup {
    html! {
        @if let Some(cluster) = visitor.cluster() {
            a.identity href="/rights" title="What you may do" {
                span { (printable(cluster.title())) }
                @if let Some(user) = user { " · " span { (printable(user)) } }
            }
        }
    }
}

fn document(
    page: &Page,
    console: &Console,
    visitor: Option<&Visitor>,
    user: Option<&str>,
    theme: Option<&str>,
) -> Markup {
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
            body data-now=(Timestamp::now()) {
                a.skip href="#main" { "Skip to content" }
                header.top {
                    a.brand href="/" { "OLM console" }
                    @if let Some(visitor) = visitor { (navigation(page.section, visitor.cluster().is_some())) }
                    div.tools {
                        @if let Some(visitor) = visitor { (search(page)) (identity(visitor, user)) }
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

/// Entries of the navigation. All except packages need a cluster.
fn navigation(current: Section, has_cluster: bool) -> Markup {
    let shown = SECTIONS.iter().filter(|(section, ..)| has_cluster || *section == Section::Catalog);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_commands_name_no_flags() {
        let plan = "State: requires approval; `olm approve pipe` approves it\nChanges: 1";
        assert_eq!(without_flags(plan), "State: requires approval\nChanges: 1");
        let kept = "delete them first, or keep them and their CustomResourceDefinitions with --keep-crds";
        assert!(!without_flags(kept).contains("--"));
    }
}
