//! What handlers of pages get from a request, and the answers of forms that write.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Redirect, Response};
use maud::Markup;
use olm_cli_core::error::CliError;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::app::{App, Console};
use super::page::{Page, PageError, Section};
use super::visitor::Visitor;

/// Limit of concurrent calls of [`Visit::run`]. A disconnect does not end one, and each may hold a bundle.
pub(super) const CONCURRENT: usize = 16;
/// Longest wait for one of [`CONCURRENT`].
const TURN: Duration = Duration::from_secs(10);

/// Console and user of a request.
pub(crate) struct Visit {
    pub(crate) console: App,
    pub(crate) visitor: Visitor,
}

/// Answer to a form that writes.
pub(crate) enum Answer {
    /// Path of the page that shows the result of the write.
    Redirect(String),
    /// Nothing was written, as the page says.
    Page(StatusCode, Markup),
}

impl Answer {
    /// The plan, manifest or object differs from the one that the user saw.
    pub(crate) fn conflict(body: Markup) -> Self {
        Self::Page(StatusCode::CONFLICT, body)
    }

    /// The values of the form do not permit the write.
    pub(crate) fn refused(body: Markup) -> Self {
        Self::Page(StatusCode::UNPROCESSABLE_ENTITY, body)
    }
}

impl FromRequestParts<App> for Visit {
    type Rejection = <Extension<Visitor> as FromRequestParts<App>>::Rejection;

    async fn from_request_parts(parts: &mut Parts, console: &App) -> Result<Self, Self::Rejection> {
        let Extension(visitor) = Extension::from_request_parts(parts, console).await?;
        Ok(Self { console: Arc::clone(console), visitor })
    }
}

impl Visit {
    /// Runs `work` on a thread of its own: the futures of the command line's functions are not `Send`.
    ///
    /// # Errors
    /// Errors of `work`, or 503 if too many others run.
    pub(crate) async fn run<T: Send + 'static>(
        self,
        work: impl AsyncFnOnce(&Console, &Visitor) -> Result<T, CliError> + Send + 'static,
    ) -> Result<T, PageError> {
        let Ok(Ok(permit)) = timeout(TURN, Arc::clone(&self.console.visits).acquire_owned()).await else {
            let busy = "the console computes too many pages at the same time: try again later";
            return Err(PageError::new(StatusCode::SERVICE_UNAVAILABLE, busy));
        };
        let run = move || {
            let _permit = permit;
            Handle::current().block_on(work(&self.console, &self.visitor))
        };
        let done = tokio::task::spawn_blocking(run).await;
        let done = done.map_err(|_| CliError::operational("the work for this page ended early"))?;
        done.map_err(PageError::from)
    }

    /// Page with the markup that `work` makes.
    ///
    /// # Errors
    /// Those of [`Self::run`].
    pub(crate) async fn page(
        self,
        section: Section,
        title: impl Into<String>,
        work: impl AsyncFnOnce(&Console, &Visitor) -> Result<Markup, CliError> + Send + 'static,
    ) -> Result<Page, PageError> {
        let title = title.into();
        Ok(Page::new(section, title, self.run(work).await?))
    }

    /// Answer of a form, either a redirect or a page.
    ///
    /// # Errors
    /// Those of [`Self::run`].
    pub(crate) async fn answer(
        self,
        section: Section,
        title: impl Into<String>,
        work: impl AsyncFnOnce(&Console, &Visitor) -> Result<Answer, CliError> + Send + 'static,
    ) -> Result<Response, PageError> {
        let title = title.into();
        Ok(match self.run(work).await? {
            Answer::Redirect(path) => Redirect::to(&path).into_response(),
            Answer::Page(status, body) => Page::new(section, title, body).with_status(status).into_response(),
        })
    }
}
