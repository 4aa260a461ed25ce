//! What the user may do with OLM, and the role that gives the rest (docs/design/console.md#rights).

use axum::Router;
use axum::extract::Query;
use axum::routing::get;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use maud::{Markup, html};
use olm_catalog_server::http::route::name_problems;
use olm_cli_core::access_review::is_allowed;
use olm_cli_core::error::CliError;
use olm_cli_core::output;
use olm_cli_core::source::ClusterConnection;
use olm_runtime::cluster::{describe, within_deadline};
use olm_version::quote;
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::{App, Console};
use super::extensions::cluster;
use super::markup::badge;
use super::page::{Page, PageError, Section, visible};
use super::visit::Visit;
use super::visitor::Visitor;

/// Concurrent questions to the API server.
const CONCURRENT: usize = 8;
const OLM: &str = "olm.operatorframework.io";
const ADDITIONS: &str = "ext.olm.operatorframework.io";
const RBAC: &str = "rbac.authorization.k8s.io";
/// Name of the role that the page offers.
const ROLE: &str = "olm-console-user";

/// Permissions on one resource: group, resource, verbs, and whether the namespace of the page applies.
type Permission = (&'static str, &'static str, &'static [&'static str], bool);

/// Tasks with what they need.
const TASKS: &[(&str, &[Permission])] = &[
    ("See packages", &[(OLM, "clustercatalogs", &["get", "list"], false)]),
    (
        "See and follow extensions",
        &[
            (OLM, "clusterextensions", &["get", "list", "watch"], false),
            (OLM, "clusterobjectsets", &["get", "list", "watch"], false),
        ],
    ),
    ("See APIs", &[("apiextensions.k8s.io", "customresourcedefinitions", &["get", "list"], false)]),
    (
        "See Events, pods and logs",
        &[("", "events", &["list"], true), ("", "pods", &["list"], true), ("", "pods/log", &["get"], true)],
    ),
    (
        "Install",
        &[(OLM, "clusterextensions", &["create"], false), ("", "namespaces", &["get", "create"], false)],
    ),
    ("Upgrade, roll back, approve", &[(OLM, "clusterextensions", &["patch"], false)]),
    ("Approve plan objects", &[(ADDITIONS, "extensionplans", &["list", "patch"], false)]),
    ("Uninstall", &[(OLM, "clusterextensions", &["delete"], false)]),
    ("Uninstall and keep custom resources", &[(OLM, "clusterextensions", &["patch", "delete"], false)]),
    ("Add and refresh catalogs", &[(OLM, "clustercatalogs", &["create", "patch"], false)]),
    (
        "See the verdict on the next cluster version",
        &[(ADDITIONS, "clusterupgradestatuses", &["get"], false)],
    ),
];

pub(super) fn routes() -> Router<App> {
    Router::new().route("/rights", get(page))
}

/// Query of the page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Request {
    /// Namespace for Events, pods and logs. Empty for all.
    namespace: String,
}

/// A permission, and whether the user has it.
struct Answer {
    group: &'static str,
    resource: &'static str,
    verb: &'static str,
    is_namespaced: bool,
    is_allowed: bool,
}

/// Page with the tasks and the missing permissions.
///
/// # Errors
/// The console uses no cluster, or the API server does not answer.
async fn page(visit: Visit, Query(request): Query<Request>) -> Result<Page, PageError> {
    let page = visit.page(Section::None, "What you may do", async move |console, visitor| {
        body(console, visitor, &request).await
    });
    page.await
}

async fn body(console: &Console, visitor: &Visitor, request: &Request) -> Result<Markup, CliError> {
    let cluster = cluster(visitor)?;
    let given = request.namespace.trim();
    let namespace = if name_problems(given).is_empty() { given } else { "" };
    let mut tasks = Vec::new();
    for (task, permissions) in TASKS {
        tasks.push((*task, ask(cluster, permissions, namespace).await?));
    }
    let user = visitor.shown_name(console).await;
    let role = role(&tasks, user.as_deref().unwrap_or("USER"), namespace)?;
    let is_ignored = given != namespace;
    Ok(visible(&html! {
        (markup(&tasks, user.as_deref(), namespace, role.as_deref()))
        @if is_ignored { p.notice.bad role="alert" { (quote(given)) " is not the name of a namespace, so all namespaces are checked." } }
    }))
}

async fn ask(
    cluster: &ClusterConnection,
    permissions: &[Permission],
    namespace: &str,
) -> Result<Vec<Answer>, CliError> {
    let all = permissions.iter().flat_map(|(group, resource, verbs, is_namespaced)| {
        verbs.iter().map(move |verb| (*group, *resource, *verb, *is_namespaced))
    });
    let asked = all.map(async |(group, resource, verb, is_namespaced)| {
        let (name, sub) = resource.split_once('/').map_or((resource, None), |(name, sub)| (name, Some(sub)));
        let attributes = ResourceAttributes {
            group: Some(group.to_owned()),
            resource: Some(name.to_owned()),
            subresource: sub.map(str::to_owned),
            verb: Some(verb.to_owned()),
            namespace: Some(namespace.to_owned()).filter(|_| is_namespaced),
            ..ResourceAttributes::default()
        };
        let answer = within_deadline(is_allowed(cluster.client(), attributes)).await;
        let is_allowed = answer.map_err(|error| {
            CliError::operational(format!("cannot check your permissions: {}", describe(&error)))
        })?;
        Ok(Answer { group, resource, verb, is_namespaced, is_allowed })
    });
    stream::iter(asked).buffered(CONCURRENT).try_collect().await
}

/// Roles with the missing permissions, and their bindings. `None` if nothing is missing.
fn role(tasks: &[(&str, Vec<Answer>)], user: &str, namespace: &str) -> Result<Option<String>, CliError> {
    let missing = || tasks.iter().flat_map(|(_, answers)| answers).filter(|answer| !answer.is_allowed);
    let subject = match user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':')) {
        Some((namespace, name)) => json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}),
        None => json!({"kind": "User", "name": user, "apiGroup": RBAC}),
    };
    let mut documents = Vec::new();
    for in_namespace in [false, true] {
        let is_here = |answer: &&Answer| (answer.is_namespaced && !namespace.is_empty()) == in_namespace;
        let mut rules: Vec<Value> = Vec::new();
        for answer in missing().filter(is_here) {
            let same = rules
                .iter_mut()
                .find(|rule| rule["apiGroups"][0] == answer.group && rule["resources"][0] == answer.resource);
            match same.and_then(|rule| rule["verbs"].as_array_mut()) {
                Some(verbs) if verbs.iter().any(|verb| verb == answer.verb) => {}
                Some(verbs) => verbs.push(json!(answer.verb)),
                None => rules.push(json!({"apiGroups": [answer.group], "resources": [answer.resource], "verbs": [answer.verb]})),
            }
        }
        if rules.is_empty() {
            continue;
        }
        let (role, binding) = match in_namespace {
            true => ("Role", "RoleBinding"),
            false => ("ClusterRole", "ClusterRoleBinding"),
        };
        let mut metadata = json!({"name": ROLE});
        if in_namespace {
            metadata["namespace"] = json!(namespace);
        }
        let api_version = format!("{RBAC}/v1");
        documents
            .push(json!({"apiVersion": api_version, "kind": role, "metadata": metadata, "rules": rules}));
        documents.push(
            json!({"apiVersion": api_version, "kind": binding, "metadata": metadata, "subjects": [subject],
            "roleRef": {"apiGroup": RBAC, "kind": role, "name": ROLE}}),
        );
    }
    if documents.is_empty() {
        return Ok(None);
    }
    let texts = documents.iter().map(output::yaml).collect::<Result<Vec<_>, _>>()?;
    Ok(Some(texts.join("---\n")))
}

fn markup(tasks: &[(&str, Vec<Answer>)], user: Option<&str>, namespace: &str, role: Option<&str>) -> Markup {
    let place =
        if namespace.is_empty() { "all namespaces".to_owned() } else { format!("namespace {namespace}") };
    html! {
        h1 { "What you may do" }
        p { @if let Some(user) = user { "You are " strong { (user) } ". " } "Events, pods and logs are checked for " (place) ". Events of an extension itself are in namespace default." }
        p.soft { "The objects and custom resources of an extension have kinds of their own, which are not checked here." }
        form.choice method="get" action="/rights" {
            div {
                label for="namespace" { "Namespace of Events, pods and logs" }
                input #namespace type="text" name="namespace" value=(namespace) placeholder="all" spellcheck="false" autocomplete="off";
            }
            button.quiet type="submit" { "Check" }
        }
        div.table #tasks tabindex="0" role="region" aria-label="Tasks" {
            table {
                thead { tr { @for title in ["Task", "You", "Missing permissions"] { th scope="col" { (title) } } } }
                tbody {
                    @for (task, answers) in tasks {
                        @let missing: Vec<_> = answers.iter().filter(|answer| !answer.is_allowed).collect();
                        tr {
                            th scope="row" { (task) }
                            td.state {
                                @if missing.is_empty() { (badge("badge good", "✓", "may")) }
                                @else { (badge("badge bad", "✕", "may not")) }
                            }
                            td {
                                @for (number, answer) in missing.iter().enumerate() {
                                    @if number > 0 { ", " } code { (answer.verb) } " " (answer.resource)
                                }
                            }
                        }
                    }
                }
            }
        }
        @if let Some(role) = role {
            h2 { "Get the missing permissions" }
            p { "Give this to an administrator of the cluster. Remove what you do not need." }
            pre #role tabindex="0" role="region" aria-label="Role" { (role) }
            button.quiet type="button" data-copy="role" hidden { "Copy" }
            p.soft { "An installation also needs the rights that its preview shows. " code { "olm rbac" } " shows who has access to the APIs of an extension." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(
        group: &'static str,
        resource: &'static str,
        verb: &'static str,
        is_namespaced: bool,
    ) -> Answer {
        Answer { group, resource, verb, is_namespaced, is_allowed: false }
    }

    #[test]
    fn missing_permissions_become_roles_with_bindings() {
        let all = [(
            "task",
            vec![
                answer(OLM, "clusterextensions", "get", false),
                answer(OLM, "clusterextensions", "list", false),
                answer("", "pods", "list", true),
            ],
        )];
        let text = role(&all, "jane", "apps").unwrap().unwrap();
        let kinds: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
        assert_eq!(kinds, ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"], "{text}");
        assert!(text.contains("namespace: apps") && text.contains("name: jane"), "{text}");
        let text = role(&all, "system:serviceaccount:a:b", "").unwrap().unwrap();
        assert!(!text.contains("kind: RoleBinding") && text.contains("kind: ServiceAccount"), "{text}");
        assert_eq!(role(&[], "jane", "").unwrap(), None);
    }
}
