//! Form that adds a ClusterCatalog: manifest and dry run first, then the write.

use axum::Form;
use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use olm_api::ClusterCatalog;
use olm_catalog_server::http::route::name_problems;
use olm_cli_catalog::create::{NewCatalog, write};
use olm_cli_core::change::{DryRun, WriteResult};
use olm_cli_core::error::CliError;
use olm_cli_core::output;
use serde::Deserialize;

use super::ADD;
use crate::app::Console;
use crate::extensions::cluster;
use crate::markup::{manifest, problem, text_field};
use crate::page::{Page, PageError, Section, visible};
use crate::visit::{Answer, Visit};
use crate::visitor::Visitor;

/// Query of the form, and form of the write.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Request {
    name: String,
    image: String,
    /// Minutes. Empty for no polling.
    poll: String,
    priority: String,
    /// Not empty to check the catalog.
    preview: String,
    /// Digest of the manifest that the user saw.
    previewed: String,
}

/// Checked request.
struct Checked {
    catalog: ClusterCatalog,
    yaml: String,
    problem: Option<String>,
}

/// Form, and with `preview` in the query also the manifest.
///
/// # Errors
/// The console uses no cluster.
pub(super) async fn page(visit: Visit, Query(request): Query<Request>) -> Result<Page, PageError> {
    let page = visit.page(Section::Catalogs, "Add a catalog", async move |console, visitor| {
        cluster(visitor)?;
        let checked = match request.preview.is_empty() {
            true => None,
            false => Some(request.check(console, visitor).await?),
        };
        Ok(markup(console, visitor, &request, checked.as_ref(), None))
    });
    page.await
}

/// Creates the catalog if it is the one that the user saw.
///
/// # Errors
/// The console uses no cluster, or the API server refuses the write.
pub(super) async fn apply(visit: Visit, Form(request): Form<Request>) -> Result<Response, PageError> {
    let answer = visit.answer(Section::Catalogs, "Add a catalog", async move |console, visitor| {
        let checked = request.check(console, visitor).await?;
        if checked.digest() != request.previewed {
            let why = "The form has changed since the preview, so nothing was written. Check it again.";
            return Ok(Answer::conflict(markup(console, visitor, &request, Some(&checked), Some(why))));
        }
        if checked.problem.is_some() {
            return Ok(Answer::refused(markup(console, visitor, &request, Some(&checked), None)));
        }
        write(cluster(visitor)?, &checked.catalog, None, &console.session).await?;
        Ok(Answer::Redirect("/catalogs".to_owned()))
    });
    answer.await
}

impl Request {
    /// Builds the catalog, and lets the API server check it.
    async fn check(&self, console: &Console, visitor: &Visitor) -> Result<Checked, CliError> {
        let cluster = cluster(visitor)?;
        let (desired, problem) = self.desired();
        let catalog = desired.catalog();
        let yaml = output::yaml(&serde_json::to_value(&catalog)?)?;
        if problem.is_some() || console.read_only {
            return Ok(Checked { catalog, yaml, problem });
        }
        let problem = match write(cluster, &catalog, Some(DryRun::Server), &console.session).await {
            Ok(written) if written.done == WriteResult::Unchanged => {
                Some("This catalog exists already.".to_owned())
            }
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        Ok(Checked { catalog, yaml, problem })
    }

    fn desired(&self) -> (NewCatalog, Option<String>) {
        let number = |text: &str| match text.trim() {
            "" => Ok(None),
            text => text.parse::<i64>().map(Some).map_err(|_| format!("{text:?} is not a whole number")),
        };
        let name = self.name.trim().to_owned();
        let image = self.image.trim().to_owned();
        let (poll, priority) = (number(&self.poll), number(&self.priority));
        let priority = priority.and_then(|value| {
            value
                .map(|value| i32::try_from(value).map_err(|_| "The priority is out of range".to_owned()))
                .transpose()
        });
        let problem = match (name_problems(&name).first(), image.is_empty()) {
            _ if name.is_empty() => {
                Some("Enter a name: lower-case letters, digits, dots and hyphens.".to_owned())
            }
            (Some(problem), _) => Some(format!("The name {problem}")),
            (None, true) => Some("Enter an image, such as quay.io/operatorhubio/catalog:latest.".to_owned()),
            _ => poll.as_ref().err().or_else(|| priority.as_ref().err()).cloned(),
        };
        let desired = NewCatalog {
            name,
            image,
            poll_interval: poll.ok().flatten(),
            priority: priority.ok().flatten(),
            labels: Vec::new(),
        };
        (desired, problem)
    }
}

impl Checked {
    fn digest(&self) -> String {
        olm_pack::digest_of(self.yaml.as_bytes())
    }
}

fn markup(
    console: &Console,
    visitor: &Visitor,
    request: &Request,
    checked: Option<&Checked>,
    why: Option<&str>,
) -> Markup {
    let ready = checked.filter(|checked| checked.problem.is_none());
    html! {
        p.trail { a href="/catalogs" { "Catalogs" } }
        h1 { "Add a catalog" }
        @if let Some(why) = why { (problem(why)) }
        @if let Some(why) = checked.and_then(|checked| checked.problem.as_ref()) {
            (visible(&problem(why)))
        }
        form.install method="get" action=(ADD) {
            (text_field("name", "Name", "Name of the ClusterCatalog", &request.name, "such as operatorhubio", None))
            (text_field("image", "Image", "Catalog image with a tag or a digest", &request.image, "such as quay.io/operatorhubio/catalog:latest", None))
            (text_field("poll", "Poll interval in minutes", "How often catalogd looks for new content of the tag. Empty: only on request", &request.poll, "never", None))
            (text_field("priority", "Priority", "If several catalogs offer a package, the highest priority wins", &request.priority, "0", None))
            button type="submit" name="preview" value="yes" { "Preview" }
        }
        @if let Some(checked) = ready {
            (manifest(&checked.yaml))
            @if !console.read_only {
                form method="post" action=(ADD) {
                    (visitor.csrf_field())
                    @for (name, value) in [("name", &request.name), ("image", &request.image), ("poll", &request.poll), ("priority", &request.priority)] {
                        input type="hidden" name=(name) value=(value);
                    }
                    input type="hidden" name="previewed" value=(checked.digest());
                    button type="submit" data-apply { "Add" }
                }
            }
        }
    }
}
