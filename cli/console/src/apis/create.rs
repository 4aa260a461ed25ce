//! Form that creates a custom resource: text, dry run on the API server, then the write.

use axum::Form;
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::ObjectAccess;
use olm_cli_lifecycle::rendering::inline;
use olm_cli_lifecycle::status::observe::changeable_extension;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Api, examples, schema};
use crate::app::Console;
use crate::extensions::{cluster_of, object, trail};
use crate::markup::problem;
use crate::page::{Page, PageError, Section, visible};
use crate::visit::{Answer, Visit};
use crate::visitor::Visitor;

/// Longest text of the form, in bytes.
const LONGEST: usize = 256 << 10;

/// Query of the form, and form of the dry run and the write.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Request {
    /// Number of the example, from 0.
    example: String,
    /// Custom resource as YAML.
    #[serde(deserialize_with = "crate::changes::multiline")]
    text: String,
    /// Digest of the object that was checked. Empty for a check.
    previewed: String,
}

/// What the page shows below the form.
struct Checked {
    /// Object as the API server would store it, or its reason to refuse the object.
    result: Result<Value, String>,
    digest: String,
}

/// Form with an example.
///
/// # Errors
/// The extension has no such API, or the user may not read it.
pub(super) async fn form(
    visit: Visit,
    Path((name, crd)): Path<(String, String)>,
    Query(request): Query<Request>,
) -> Result<Page, PageError> {
    let page = visit.page(Section::Extensions, format!("Create {crd}"), async move |console, visitor| {
        let page = Sheet::read(console, visitor, &name, &crd).await?;
        let number = request.example.parse::<usize>().unwrap_or_default();
        let text = page.examples.get(number).or_else(|| page.examples.first()).map_or("", |(_, text)| text);
        Ok(page.markup(visitor, text, None, None))
    });
    page.await
}

/// Checks the custom resource, or creates it if it is the one that was checked.
///
/// # Errors
/// The extension has no such API, or the API server refuses the write.
pub(super) async fn apply(
    visit: Visit,
    Path((name, crd)): Path<(String, String)>,
    Form(request): Form<Request>,
) -> Result<Response, PageError> {
    let answer = visit.answer(Section::Extensions, format!("Create {crd}"), async move |console, visitor| {
        let page = Sheet::read(console, visitor, &name, &crd).await?;
        let (checked, object) = page.check(console, visitor, &request.text).await?;
        let shown = |why| page.markup(visitor, &request.text, Some(&checked), why);
        if request.previewed.is_empty() {
            return Ok(Answer::Page(StatusCode::OK, shown(None)));
        }
        if request.previewed != checked.digest {
            let why = "The text has changed since it was checked, so nothing was written. Check it again.";
            return Ok(Answer::conflict(shown(Some(why))));
        }
        let (Ok(_), Some(object)) = (&checked.result, object) else {
            return Ok(Answer::refused(shown(None)));
        };
        let cluster = cluster_of(visitor, &name)?;
        ObjectAccess::new(cluster, &console.session, false).create_new(&object).await?;
        Ok(Answer::Redirect(page.api.path(&name)))
    });
    answer.await
}

/// API with its examples.
struct Sheet {
    extension: String,
    namespace: String,
    api: Api,
    examples: Vec<(String, String)>,
}

impl Sheet {
    async fn read(console: &Console, visitor: &Visitor, name: &str, crd: &str) -> Result<Self, CliError> {
        let (cluster, session) = (cluster_of(visitor, name)?, &console.session);
        let live = changeable_extension(cluster, name, session).await?;
        let api = Api::read(cluster, name, crd, session).await?;
        let examples = examples::examples(console, visitor, &api, &live).await;
        let namespace = live.spec.map(|spec| spec.namespace).unwrap_or_default();
        Ok(Self { extension: name.to_owned(), namespace, api, examples })
    }

    /// Parses the text, and lets the API server check it without storing anything.
    async fn check(
        &self,
        console: &Console,
        visitor: &Visitor,
        text: &str,
    ) -> Result<(Checked, Option<Value>), CliError> {
        let object = match self.parse(text) {
            Ok(object) => object,
            Err(why) => return Ok((Checked { result: Err(why), digest: String::new() }, None)),
        };
        let digest = olm_pack::digest_of(object.to_string().as_bytes());
        let cluster = cluster_of(visitor, &self.extension)?;
        let result = ObjectAccess::new(cluster, &console.session, true).create_new(&object).await;
        let result = result.map_err(|error| error.to_string());
        Ok((Checked { result, digest }, Some(object)))
    }

    /// The object, which must be of this API. A namespaced object without a namespace gets that of the extension.
    fn parse(&self, text: &str) -> Result<Value, String> {
        if text.len() > LONGEST {
            return Err(format!("The text is longer than {} KiB.", LONGEST >> 10));
        }
        let mut object = inline(text).map_err(|error| format!("The text is not valid YAML: {error}"))?;
        let gvk = &self.api.gvk;
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        if object["kind"] != gvk.kind.as_str() || group != gvk.group {
            return Err(format!("The object must be a {} of group {}.", gvk.kind, gvk.group));
        }
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        let has_name =
            |metadata: &&mut Map<String, Value>| metadata.get("name").is_some_and(Value::is_string);
        let Some(metadata) = metadata.filter(has_name) else {
            return Err("Enter metadata.name, the name of the object.".to_owned());
        };
        if self.api.is_namespaced && !metadata.contains_key("namespace") {
            metadata.insert("namespace".to_owned(), json!(self.namespace));
        }
        Ok(object)
    }

    fn markup(&self, visitor: &Visitor, text: &str, checked: Option<&Checked>, why: Option<&str>) -> Markup {
        let (kind, address) = (&self.api.gvk.kind, format!("{}/create", self.api.path(&self.extension)));
        let head = html! {
            (trail(&self.extension))
            h1 { "Create " (kind) }
            p.soft { "The API server checks the object first. Nothing is stored before you press Create." }
            @if let Some(why) = why { (problem(why)) }
            @if let Some(Err(why)) = checked.map(|checked| &checked.result) { (problem(why)) }
            @if self.examples.len() > 1 {
                p.chips aria-label="Examples" {
                    @for (number, (name, _)) in self.examples.iter().enumerate() { a href=(format!("{address}?example={number}")) { (name) } }
                }
            }
        };
        html! {
            (visible(&head))
            form method="post" action=(address) {
                (visitor.csrf_field())
                div.field {
                    label for="text" { (kind) " as YAML" }
                    textarea.code #text name="text" rows="20" spellcheck="false" { (text) }
                }
                button type="submit" { "Check" }
            }
            @if let Some((Ok(stored), digest)) = checked.map(|checked| (&checked.result, &checked.digest)) {
                h2 { "As the API server would store it" }
                pre.yaml #stored tabindex="0" role="region" aria-label="Object" { (visible(&html! { (object::yaml(stored)) })) }
                form method="post" action=(address) {
                    (visitor.csrf_field())
                    input type="hidden" name="text" value=(text);
                    input type="hidden" name="previewed" value=(digest);
                    button type="submit" data-apply { "Create" }
                }
            }
            h2 { "Fields" }
            (visible(&schema::markup(self.api.schema())))
        }
    }
}
