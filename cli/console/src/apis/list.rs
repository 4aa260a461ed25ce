//! Pages with the APIs of an extension and their custom resources.

use std::time::Duration;

use axum::extract::Path;
use futures::{StreamExt, stream};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{self, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use maud::{Markup, html};
use olm_cli_core::error::CliError;
use olm_cli_core::output::counted;
use olm_cli_core::session::Session;
use olm_cli_core::source::{ClusterConnection, listed, of_extensions};
use olm_cli_lifecycle::status::observe::extension;
use olm_runtime::cluster::{describe, within};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::{Api, schema};
use crate::app::Console;
use crate::extensions::tab::{Tab, tabs};
use crate::extensions::{age, cluster_of, cut, trail};
use crate::markup::badge;
use crate::page::{Page, PageError, Section, visible};
use crate::visit::Visit;

/// Limits of custom resources on the page of an API, and of each API in the list.
const SHOWN: u32 = 200;
const FIRST: u32 = 10;
/// Highest number of APIs of which the page lists custom resources.
const APIS: usize = 50;
/// Deadlines of one list, and of all lists of a page together.
const DEADLINE: Duration = Duration::from_secs(5);
const TOTAL: Duration = Duration::from_secs(15);
/// Concurrent lists.
const CONCURRENT: usize = 8;

/// Custom resources of an API.
struct Found {
    objects: Vec<DynamicObject>,
    has_more: bool,
    /// Only namespace that the user may list.
    namespace: Option<String>,
}

/// APIs of the extension, with their first custom resources.
///
/// # Errors
/// There is no such extension, or the user may not list CRDs.
pub(super) async fn page(visit: Visit, Path(name): Path<String>) -> Result<Page, PageError> {
    let page = visit.page(Section::Extensions, format!("APIs of {name}"), async move |console, visitor| {
        let (cluster, session) = (cluster_of(visitor, &name)?, &console.session);
        let namespace = namespace(cluster, &name, session).await?;
        let all =
            listed(&crds(cluster), "CustomResourceDefinitions", of_extensions(Some(&name)), session).await?;
        let note = all.as_ref().err().cloned();
        let all: Vec<Api> =
            all.unwrap_or_default().iter().filter_map(|crd| Api::of_crd(crd, &name)).collect();
        let more = all.len().saturating_sub(APIS);
        let end = Instant::now() + TOTAL;
        let late = || Err(format!("no answer within {} s for all APIs", TOTAL.as_secs()));
        let namespace = namespace.as_str();
        let lists = all.into_iter().take(APIS).map(async |api| {
            let found = timeout_at(end, custom_resources(cluster, &api, namespace, FIRST)).await;
            (api, found.unwrap_or_else(|_| late()))
        });
        let sections: Vec<_> = stream::iter(lists).buffered(CONCURRENT).collect().await;
        Ok(visible(&html! {
            p.trail { a href="/extensions" { "Extensions" } }
            h1 { (name) }
            (tabs(Tab::Apis, &name))
            @if let Some(note) = &note { p.notice { "The APIs cannot be listed: " (note) } }
            @else if sections.is_empty() { p.soft { "The extension has no CustomResourceDefinition on the cluster." } }
            @for (api, found) in &sections { (section(console, &name, api, found)) }
            @if more > 0 { p.notice { "The extension has " (counted(more, "more API")) ", of which this page does not list the custom resources." } }
        }))
    });
    page.await
}

/// One API: its custom resources and the documentation of its fields.
///
/// # Errors
/// The extension has no such API, or the user may not read it.
pub(super) async fn api(visit: Visit, Path((name, crd)): Path<(String, String)>) -> Result<Page, PageError> {
    let page = visit.page(Section::Extensions, crd.clone(), async move |console, visitor| {
        let (cluster, session) = (cluster_of(visitor, &name)?, &console.session);
        let namespace = namespace(cluster, &name, session).await?;
        let api = Api::read(cluster, &name, &crd, session).await?;
        let found = custom_resources(cluster, &api, &namespace, SHOWN).await;
        Ok(visible(&html! {
            (trail(&name))
            div.heading {
                h1 { (api.gvk.kind) }
                (create_link(console, &name, &api))
            }
            p.soft { code { (api.crd) } " · version " (api.gvk.version) " · " @if api.is_namespaced { "in namespaces" } @else { "in the whole cluster" } }
            h2 { "Custom resources" }
            (table(&api, &found))
            h2 { "Fields" }
            (schema::markup(api.schema()))
        }))
    });
    page.await
}

/// Namespace of the extension.
async fn namespace(cluster: &ClusterConnection, name: &str, session: &Session) -> Result<String, CliError> {
    let extension = extension(cluster, name, session).await?;
    Ok(extension.spec.map(|spec| spec.namespace).unwrap_or_default())
}

pub(super) fn crds(cluster: &ClusterConnection) -> api::Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    api::Api::all_with(cluster.client().clone(), &ApiResource::from_gvk(&kind))
}

/// Custom resources of all namespaces, else of that of the extension. The error is the reason for which there are none.
async fn custom_resources(
    cluster: &ClusterConnection,
    api: &Api,
    namespace: &str,
    limit: u32,
) -> Result<Found, String> {
    let plural = api.object["spec"]["names"]["plural"].as_str().unwrap_or_default();
    let resource = ApiResource::from_gvk_with_plural(&api.gvk, plural);
    let client = || cluster.client().clone();
    let page = ListParams::default().limit(limit);
    let all: api::Api<DynamicObject> = api::Api::all_with(client(), &resource);
    let (answer, only) = match within(DEADLINE, all.list(&page)).await {
        Err(kube::Error::Api(status)) if status.code == 403 && api.is_namespaced => {
            let one: api::Api<DynamicObject> = api::Api::namespaced_with(client(), namespace, &resource);
            (within(DEADLINE, one.list(&page)).await, Some(namespace.to_owned()))
        }
        answer => (answer, None),
    };
    let found = answer.map_err(|error| describe(&error))?;
    let has_more = found.metadata.continue_.is_some_and(|rest| !rest.is_empty());
    Ok(Found { objects: found.items, has_more, namespace: only })
}

fn create_link(console: &Console, name: &str, api: &Api) -> Markup {
    html! {
        @if !console.read_only {
            p.actions { a.button.quiet href=(format!("{}/create", api.path(name))) { "Create " (api.gvk.kind) } }
        }
    }
}

fn section(console: &Console, name: &str, api: &Api, found: &Result<Found, String>) -> Markup {
    let id = format!("api-{}", api.crd);
    html! {
        section.api aria-labelledby=(id) {
            div.heading {
                h2 id=(id) { a href=(api.path(name)) { (api.gvk.kind) } " " span.soft { (api.crd) } }
                (create_link(console, name, api))
            }
            (table(api, found))
        }
    }
}

fn table(api: &Api, found: &Result<Found, String>) -> Markup {
    let found = match found {
        Ok(found) => found,
        Err(why) => return html! { p.soft { "The custom resources cannot be listed: " (why) } },
    };
    let now = Timestamp::now();
    html! {
        @if let Some(namespace) = &found.namespace { p.soft { "Only those of namespace " (namespace) " are shown: you may not list those of all namespaces." } }
        @if found.objects.is_empty() { p.soft { "There is no " (api.gvk.kind) @if found.namespace.is_some() { " in it" } "." } } @else {
            div.table tabindex="0" role="region" aria-label=(format!("Custom resources of {}", api.crd)) {
                table {
                    thead { tr { @for title in ["Name", "Namespace", "State", "Age"] { th scope="col" { (title) } } } }
                    tbody {
                        @for object in &found.objects {
                            @let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string());
                            tr {
                                th.name scope="row" { (object.name_any()) }
                                td { (object.namespace().unwrap_or_default()) }
                                td.lines { (state(&object.data["status"])) }
                                td.number { (age(now, created.as_deref(), "")) }
                            }
                        }
                    }
                }
            }
            @if found.has_more { p.soft { "Only the first " (counted(found.objects.len(), "custom resource")) "." } }
        }
    }
}

/// State that the operator reports: the condition of readiness, else a phase.
fn state(status: &Value) -> Markup {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let named = |wanted: &str| conditions.clone().find(|one| one["type"] == wanted);
    let condition = ["Ready", "Available", "Succeeded"].into_iter().find_map(named);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(condition) = condition {
        let word = text(&condition["type"]);
        let (class, icon, word) = match condition["status"].as_str() {
            Some("True") => ("badge good", "✓", word),
            Some("False") => ("badge bad", "✕", format!("Not {}", word.to_lowercase())),
            _ => ("badge warn", "?", format!("Unknown whether {}", word.to_lowercase())),
        };
        return html! {
            (badge(class, icon, &word))
            @if condition["status"] != "True" { " " (cut(&text(&condition["message"]))) }
        };
    }
    let phase = ["phase", "state", "status"]
        .into_iter()
        .map(|field| text(&status[field]))
        .find(|text| !text.is_empty());
    html! { @match phase { Some(phase) => (cut(&phase)), None => span.soft { "reports no state" } } }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn state_is_a_condition_else_a_phase() {
        let text = |status: Value| state(&status).into_string();
        let condition = |status: &str| json!({"conditions": [{"type": "Other", "status": "True"}, {"type": "Ready", "status": status, "message": "why"}]});
        assert!(text(condition("True")).contains("badge good"));
        assert!(text(condition("False")).contains("Not ready") && text(condition("False")).contains("why"));
        assert!(text(condition("Unknown")).contains("Unknown whether ready"));
        assert!(!text(json!({"phase": "<script>"})).contains("<script>"));
        assert_eq!(text(json!({"phase": "Running"})), "Running");
        assert!(text(json!(3)).contains("reports no state"));
    }
}
