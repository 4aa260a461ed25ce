//! ClusterCatalogs while catalogd pulls them: refresh requests, and waiting for served content.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use olm_api::conditions::types;
use olm_api::{ClusterCatalog, annotations};
use olm_version::quote;
use serde_json::json;

use crate::change::{self, Completion, FIELD_MANAGER};
use crate::error::CliError;
use crate::session::Session;
use crate::source::Cluster;

/// Reads the ClusterCatalog `name`, if it exists.
///
/// # Errors
/// The API server does not return it.
pub(super) async fn find(
    cluster: &Cluster,
    name: &str,
    session: &Session,
) -> Result<Option<ClusterCatalog>, CliError> {
    let api: Api<ClusterCatalog> = Api::all(cluster.client().clone());
    cluster.call(&what(name), api.get_opt(name), session).await
}

/// Makes catalogd pull the image of the ClusterCatalog `name` again, whatever its poll interval
/// (docs/design/additions.md#refresh-request).
///
/// # Errors
/// The API server refuses the annotation, or there is no such catalog.
pub(crate) async fn request_refresh(
    cluster: &Cluster,
    name: &str,
    session: &Session,
) -> Result<(), CliError> {
    let api: Api<ClusterCatalog> = Api::all(cluster.client().clone());
    let now = Timestamp::now().to_string();
    let patch = json!({ "metadata": { "annotations": { annotations::EXT_REFRESH_REQUESTED_AT: now } } });
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(&patch);
    change::call(&format!("refresh {}", what(name)), api.patch(name, &parameters, &patch), session).await?;
    Ok(())
}

/// Waits until the ClusterCatalog `name` is served, with the content of this digest if one is given. Returns a message
/// for the user.
///
/// # Errors
/// The catalog does not exist, or is not served within `limit`.
pub(crate) async fn wait(
    cluster: &Cluster,
    name: &str,
    digest: Option<&str>,
    limit: Duration,
    session: &Session,
) -> Result<String, CliError> {
    let poll = async || Ok(completion(find(cluster, name, session).await?.as_ref(), digest));
    let remaining =
        format!("catalogd continues; run `kubectl get clustercatalog {name} -o yaml` for details");
    change::until(name, &remaining, limit, poll, session).await
}

fn what(name: &str) -> String {
    format!("ClusterCatalog {}", quote(name))
}

/// State of a catalog whose content, or that of `digest`, is to be served.
fn completion(catalog: Option<&ClusterCatalog>, digest: Option<&str>) -> Completion {
    let Some(catalog) = catalog else {
        return Completion::Failed("the ClusterCatalog does not exist".to_owned());
    };
    let source = catalog.status.as_ref().and_then(|status| status.resolved_source.as_ref());
    let image = source.map_or("", |source| source.image.ref_.as_str());
    let is_wanted = digest.is_none_or(|digest| image.ends_with(digest));
    if is_wanted && !image.is_empty() && catalog.is_true(types::SERVING) {
        return Completion::Complete(format!("{} serves {image}", catalog.name_any()));
    }
    // Without an error, Progressing still describes the content that was served before.
    let progressing = catalog.condition(types::PROGRESSING);
    let message = progressing.filter(|condition| condition.message.contains("error"));
    Completion::InProgress(match message {
        Some(condition) => condition.message.clone(),
        None => "waiting for catalogd".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(status: serde_json::Value) -> ClusterCatalog {
        serde_json::from_value(json!({
            "metadata": {"name": "c"},
            "spec": {"source": {"type": "Image", "image": {"ref": "r.example/c:v1"}}},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn catalog_is_complete_when_the_wanted_content_is_served() {
        let condition = |type_: &str, status: &str, message: &str| {
            json!({"type": type_, "status": status, "reason": "R", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let source = json!({"type": "Image", "image": {"ref": "r.example/c@sha256:aa"}});
        let served = json!({"conditions": [condition("Serving", "True", "")], "resolvedSource": source});
        let failing = json!({"conditions": [condition("Progressing", "True", "error pulling: 404")]});
        let complete = Completion::Complete("c serves r.example/c@sha256:aa".to_owned());
        let in_progress = |text: &str| Completion::InProgress(text.to_owned());
        for (status, digest, expected) in [
            (served.clone(), None, complete.clone()),
            (served.clone(), Some("sha256:aa"), complete),
            (served, Some("sha256:bb"), in_progress("waiting for catalogd")),
            (failing, None, in_progress("error pulling: 404")),
            (json!({}), None, in_progress("waiting for catalogd")),
        ] {
            assert_eq!(completion(Some(&catalog(status)), digest), expected);
        }
        assert!(matches!(completion(None, None), Completion::Failed(_)));
    }
}
