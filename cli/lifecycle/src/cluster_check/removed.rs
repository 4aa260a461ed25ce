//! Installed objects whose API version a Kubernetes release no longer serves (docs/design/operations.md#removed-apis).

use kube::ResourceExt;
use olm_api::ClusterObjectSet;
use olm_cli_core::output::qualified;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use olm_platform::{MinorVersion, removed_in};
use olm_revision::content::{self, ContentPhase, resolve_as_is, secrets};
use olm_revision::record;
use serde::Serialize;
use serde_json::Value;

use crate::status::observe::stored;

/// Object of a revision in an API version that the target version does not serve.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemovedApi {
    pub(super) extension: String,
    pub(super) revision: String,
    pub(super) api_version: String,
    pub(super) kind: String,
    /// `namespace/name` of the object.
    pub(super) object: String,
    /// First Kubernetes version without this API version.
    pub(super) removed_in: String,
}

/// Objects of the active revisions that `kubernetes` does not serve, sorted, and a warning for each revision whose
/// objects cannot be read.
pub(super) async fn removed_apis(
    cluster: &ClusterConnection,
    revisions: &[ClusterObjectSet],
    kubernetes: MinorVersion,
    session: &Session,
) -> (Vec<RemovedApi>, Vec<String>) {
    let _step = session.progress.step("checking the API versions of installed objects");
    let (mut found, mut warnings) = (Vec::new(), Vec::new());
    for revision in revisions.iter().filter(|revision| revision.is_active()) {
        match content(cluster, revision).await {
            Ok(phases) => found.extend(removed(revision, &phases, kubernetes)),
            Err(why) => warnings.push(format!("{}: API versions not checked: {why}", revision.name_any())),
        }
    }
    found.sort();
    found.dedup();
    (found, warnings)
}

/// Identities of the objects. The record on the revision needs no access to Secrets.
async fn content(
    cluster: &ClusterConnection,
    revision: &ClusterObjectSet,
) -> Result<Vec<ContentPhase>, String> {
    let Some(spec) = &revision.spec else { return Ok(Vec::new()) };
    if secrets(spec, cluster.namespace()).is_empty() {
        return resolve_as_is(spec, cluster.namespace(), &Default::default());
    }
    match record::recorded(revision) {
        Some(phases) => Ok(phases),
        None => stored(cluster, revision).await,
    }
}

fn removed(
    revision: &ClusterObjectSet,
    phases: &[ContentPhase],
    kubernetes: MinorVersion,
) -> Vec<RemovedApi> {
    let object = |object: &Value| {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        let removed_in = removed_in(&api_version, &kind).filter(|removed| *removed <= kubernetes)?;
        Some(RemovedApi {
            extension: olm_request::owner(revision).unwrap_or_default().to_owned(),
            revision: revision.name_any(),
            object: qualified(&text("/metadata/namespace"), &text("/metadata/name")),
            removed_in: removed_in.to_string(),
            api_version,
            kind,
        })
    };
    content::objects(phases).filter_map(object).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_listed_from_the_version_that_removes_their_api() {
        let set: ClusterObjectSet = serde_json::from_value(json!({
            "metadata": {"name": "kiwi-1", "labels": {
                "olm.operatorframework.io/owner-kind": "ClusterExtension",
                "olm.operatorframework.io/owner-name": "kiwi",
            }},
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"},
        }))
        .unwrap();
        let named = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": "ns"}});
        let phase = ContentPhase::inline(
            "p",
            vec![
                named("v1", "ConfigMap"),
                named("policy/v1beta1", "PodDisruptionBudget"),
                named("resource.k8s.io/v1beta1", "ResourceClaim"),
            ],
        );
        let kinds = |minor| {
            let found = removed(&set, std::slice::from_ref(&phase), MinorVersion::new(1, minor));
            found
                .into_iter()
                .map(|one| format!("{} {} {}", one.extension, one.kind, one.removed_in))
                .collect()
        };
        let budget = "kiwi PodDisruptionBudget 1.25".to_owned();
        let rows: [(u64, Vec<String>); 3] = [
            (24, vec![]),
            (37, vec![budget.clone()]),
            (38, vec![budget, "kiwi ResourceClaim 1.38".to_owned()]),
        ];
        for (minor, expected) in rows {
            let found: Vec<String> = kinds(minor);
            assert_eq!(found, expected, "1.{minor}");
        }
    }
}
