//! Readiness of the servers after a change. Pure.

use olm_cli_core::change::Completion;
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::ObjectId;
use olm_revision::probes::{Probes, default_probes, failure_line};
use serde_json::Value;

use crate::doctor::stopped;

/// Judges the stored objects of the install file by the probes of revisions. `pods` are those in the namespace of the
/// servers.
///
/// # Errors
/// None for the probes of revisions, which are valid.
pub(super) fn judge(objects: &[Value], pods: &[Value]) -> Result<Completion, CliError> {
    let probes = Probes::new(&default_probes()).map_err(CliError::operational)?;
    let (mut waiting, mut is_late) = (Vec::new(), false);
    for object in objects {
        let result = probes.probe(object);
        if !result.is_ready() {
            waiting.push(failure_line(object, &result));
            waiting.extend(pods.iter().filter_map(|pod| unready(object, pod)));
            is_late |= is_current(object) && has(object, "Progressing", "False");
        }
        let webhooks = object["webhooks"].as_array().into_iter().flatten();
        if webhooks
            .map(|one| &one["clientConfig"]["caBundle"])
            .any(|ca| ca.as_str().is_none_or(str::is_empty))
        {
            waiting.push(format!("{} has no CA bundle yet", ObjectId::of(object)));
        }
    }
    Ok(match waiting.is_empty() {
        true => Completion::Complete("the servers are ready".to_owned()),
        false if is_late => {
            Completion::Failed(format!("{}; the progress deadline is exceeded", waiting.join("; ")))
        }
        false => Completion::InProgress(waiting.join("; ")),
    })
}

/// Reports whether the status is that of the present generation.
fn is_current(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

/// Reports whether both servers are available.
pub(super) fn are_available(deployments: &[Value]) -> bool {
    deployments.len() == 2 && deployments.iter().all(|deployment| has(deployment, "Available", "True"))
}

/// Reason for which a pod of a Deployment is not ready. `None` if it is ready, or is not a pod of the Deployment.
fn unready(deployment: &Value, pod: &Value) -> Option<String> {
    let is_one = pod["metadata"]["labels"]["control-plane"] == deployment["metadata"]["name"];
    let is_deleted = !pod["metadata"]["deletionTimestamp"].is_null();
    let is_unready = is_one && !is_deleted && !has(pod, "Ready", "True");
    is_unready.then(|| format!("{} is not ready: {}", ObjectId::of(pod), stopped(pod)))
}

/// Reports whether a condition has this status.
fn has(object: &Value, type_: &str, status: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == type_ && one["status"] == status))
}
