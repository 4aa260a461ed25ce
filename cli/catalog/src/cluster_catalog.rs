//! ClusterCatalogs while catalogd pulls them: refresh requests, and waiting for served content.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::conditions::{reasons, types};
use olm_api::{ClusterCatalog, Condition, annotations};
use olm_cli_core::change::{self, Completion, FIELD_MANAGER};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use olm_oci::{Reference, Selector};
use olm_version::quote;
use serde_json::json;

/// Reads the ClusterCatalog `name`, if it exists.
///
/// # Errors
/// The API server does not return it.
pub async fn find(
    cluster: &ClusterConnection,
    name: &str,
    session: &Session,
) -> Result<Option<ClusterCatalog>, CliError> {
    let api: Api<ClusterCatalog> = Api::all(cluster.client().clone());
    cluster.call(&what(name), api.get_opt(name), session).await
}

/// Checks that a refresh of the ClusterCatalog `name` leads to the content pushed to `reference`. The registry may have
/// another name for the cluster.
///
/// # Errors
/// The catalog does not exist, is not served, or has another tag or a digest.
pub(crate) async fn check_refresh(
    cluster: &ClusterConnection,
    name: &str,
    reference: &Reference,
    session: &Session,
) -> Result<(), CliError> {
    let what = what(name);
    let Some(catalog) = find(cluster, name, session).await? else {
        return Err(CliError::no_candidate(format!("there is no {what}; `catalog create` creates it")));
    };
    refresh_problem(&catalog, reference)
        .map_or(Ok(()), |why| Err(CliError::findings(format!("{what} {why}"))))
}

/// Reason for which the catalog does not pull what is pushed to `reference`.
fn refresh_problem(catalog: &ClusterCatalog, reference: &Reference) -> Option<String> {
    if catalog.spec.availability_mode == Some(AvailabilityMode::Unavailable) {
        return Some("has availabilityMode Unavailable".to_owned());
    }
    // The template decides about the tag.
    if [annotations::EXT_IMAGE_TEMPLATE, annotations::CLASSIC_IMAGE_TEMPLATE]
        .iter()
        .any(|key| catalog.annotations().contains_key(*key))
    {
        return None;
    }
    let image = catalog.spec.source.image.as_ref().map_or("", |image| image.ref_.as_str());
    let pulled = image.parse::<Reference>().ok()?;
    let is_same =
        matches!((pulled.selector(), reference.selector()), (Selector::Tag(a), Selector::Tag(b)) if a == b);
    (!is_same).then(|| format!("pulls {image}, not the pushed tag"))
}

/// Makes catalogd pull the image of the ClusterCatalog `name` again, whatever its poll interval
/// (docs/design/additions.md#refresh-request).
///
/// # Errors
/// The API server refuses the annotation, or there is no such catalog.
pub async fn request_refresh(
    cluster: &ClusterConnection,
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
    cluster: &ClusterConnection,
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

/// Progress of catalogd with the image that ends with `image`, such as a digest, or with any image.
pub fn completion(catalog: Option<&ClusterCatalog>, image: Option<&str>) -> Completion {
    let Some(catalog) = catalog else {
        return Completion::Failed("the ClusterCatalog does not exist".to_owned());
    };
    let name = catalog.name_any();
    let source = catalog.status.as_ref().and_then(|status| status.resolved_source.as_ref());
    let served = source.map_or("", |source| source.image.ref_.as_str());
    if catalog.is_true(types::SERVING)
        && !served.is_empty()
        && image.is_none_or(|image| served.ends_with(image))
    {
        return Completion::Complete(format!("{name} serves {served}"));
    }
    let is_current = |found: &&Condition| found.observed_generation == catalog.metadata.generation;
    match catalog.condition(types::PROGRESSING).filter(is_current) {
        Some(found) if found.reason == reasons::BLOCKED => {
            Completion::Failed(format!("{name}: {}", found.message))
        }
        Some(found) if found.reason == reasons::RETRYING => {
            Completion::InProgress(format!("retrying: {}", found.message))
        }
        _ => Completion::InProgress("waiting for catalogd".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(status: serde_json::Value) -> ClusterCatalog {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "generation": 2},
            "spec": {"source": {"type": "Image", "image": {"ref": "r.example/c:v1"}}},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn catalog_is_complete_when_the_awaited_content_is_served() {
        let condition = |type_: &str, status: &str, reason: &str, generation: i64| {
            json!({"type": type_, "status": status, "reason": reason, "message": "no manifest",
                "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let source = json!({"type": "Image", "image": {"ref": "r.example/c@sha256:aa"}});
        let served =
            json!({"conditions": [condition("Serving", "True", "Available", 2)], "resolvedSource": source});
        let progressing = |status: &str, reason: &str, generation| json!({"conditions": [condition("Progressing", status, reason, generation)]});
        let complete = Completion::Complete("c serves r.example/c@sha256:aa".to_owned());
        let in_progress = |text: &str| Completion::InProgress(text.to_owned());
        for (status, digest, expected) in [
            (served.clone(), None, complete.clone()),
            (served.clone(), Some("sha256:aa"), complete),
            (served, Some("sha256:bb"), in_progress("waiting for catalogd")),
            (progressing("True", "Retrying", 2), None, in_progress("retrying: no manifest")),
            // The condition is about the generation before.
            (progressing("True", "Retrying", 1), None, in_progress("waiting for catalogd")),
            (progressing("False", "Blocked", 2), None, Completion::Failed("c: no manifest".to_owned())),
            (json!({}), None, in_progress("waiting for catalogd")),
        ] {
            assert_eq!(completion(Some(&catalog(status)), digest), expected);
        }
        assert!(matches!(completion(None, None), Completion::Failed(_)));
    }
}
