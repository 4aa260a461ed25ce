//! Pods of an operator and of its operands, and their comparison before and after a migration
//! (docs/design/migration.md#pods). The reads are at the end, the rest is pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use olm_cli_core::error::CliError;
use olm_cli_core::object_access::{ObjectAccess, ObjectId};
use olm_cli_core::output::qualified;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plan::model::PackagePlan;

/// Longest chain of owners that is followed.
const MAX_OWNERS: usize = 8;
/// Kinds between pods and their operator or custom resource.
const OWNERS: [(&str, &str); 6] = [
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
];

/// Pod of the operator or of an operand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PodState {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// Restarts of each container.
    pub(super) restarts: BTreeMap<String, u64>,
    /// UIDs of its owners, such as a ReplicaSet and a Deployment.
    pub(super) owners: Vec<String>,
    /// `true` if it has succeeded or failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_ended: bool,
}

/// Pod that was replaced or restarted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RestartedPod {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Replacement or restart, for the message.
    pub(super) change: String,
    /// `true` if the plan announced it.
    pub(super) announced: bool,
}

impl std::fmt::Display for RestartedPod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let announced = if self.announced { ", as announced by the plan" } else { "" };
        write!(f, "pod {} {}{announced}", qualified(&self.namespace, &self.name), self.change)
    }
}

/// Pods of the package among `pods`: those whose chain of owners reaches a Deployment of the bundle, or a custom
/// resource of one of its APIs. Pods of Jobs end by themselves, and are not among them.
fn of_package(plan: &PackagePlan, pods: &[Value], owners: &HashMap<String, Vec<Value>>) -> Vec<PodState> {
    let deployments: BTreeSet<&str> = plan
        .adopted
        .iter()
        .filter(|object| object.kind == "Deployment")
        .map(|object| object.uid.as_str())
        .collect();
    let groups: BTreeSet<&str> = plan
        .adopted
        .iter()
        .filter(|object| object.kind == "CustomResourceDefinition")
        .filter_map(|object| object.name.split_once('.').map(|(_, group)| group))
        .collect();
    let is_ours = |reference: &Value| {
        let group = reference["apiVersion"].as_str().unwrap_or_default().split_once('/');
        reference["uid"].as_str().is_some_and(|uid| deployments.contains(uid))
            || group.is_some_and(|(group, _)| groups.contains(group))
    };
    let is_job = |reference: &Value| reference["kind"] == "Job" && reference["apiVersion"] == "batch/v1";
    let mut found = Vec::new();
    for pod in pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()) {
        let chain = chain(pod, owners);
        if chain.iter().any(is_ours) && !chain.iter().any(is_job) {
            found.push(state(pod, &chain));
        }
    }
    found.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    found
}

/// Owner references of the pod, of its owners, and so on.
fn chain(pod: &Value, owners: &HashMap<String, Vec<Value>>) -> Vec<Value> {
    let references = |object: &Value| object["metadata"]["ownerReferences"].as_array().cloned();
    let mut next = references(pod).unwrap_or_default();
    let mut chain: Vec<Value> = Vec::new();
    for _ in 0..MAX_OWNERS {
        let of_owner = |reference: &Value| owners.get(reference["uid"].as_str()?).cloned();
        let above: Vec<Value> = next.iter().filter_map(of_owner).flatten().collect();
        chain.append(&mut next);
        next = above;
    }
    chain
}

fn state(pod: &Value, chain: &[Value]) -> PodState {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let restarts = containers.filter_map(|container| {
        Some((container["name"].as_str()?.to_owned(), container["restartCount"].as_u64()?))
    });
    PodState {
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
        uid: text("/metadata/uid"),
        restarts: restarts.collect(),
        owners: chain.iter().filter_map(|owner| owner["uid"].as_str()).map(str::to_owned).collect(),
        has_ended: matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")),
    }
}

/// Pods of `before` that were replaced or restarted, except for those that ended. `announced` are the UIDs of Deployments that restart according to
/// the plan.
pub(super) fn restarted(
    before: &[PodState],
    after: &[PodState],
    announced: &BTreeSet<String>,
) -> Vec<RestartedPod> {
    let now: HashMap<&str, &PodState> = after.iter().map(|pod| (pod.uid.as_str(), pod)).collect();
    let change = |pod: &PodState| match now.get(pod.uid.as_str()) {
        None => Some("was replaced".to_owned()),
        Some(now) if now.has_ended => None,
        Some(now) => {
            let restarted = now.restarts.iter().find(|(container, count)| {
                **count > pod.restarts.get(*container).copied().unwrap_or_default()
            });
            restarted.map(|(container, _)| format!("restarted its container {container}"))
        }
    };
    let restarted = before.iter().filter(|pod| !pod.has_ended).filter_map(|pod| {
        Some(RestartedPod {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            change: change(pod)?,
            announced: pod.owners.iter().any(|owner| announced.contains(owner)),
        })
    });
    restarted.collect()
}

/// UIDs of the Deployments that restart according to the plan.
pub(super) fn announced(plan: &PackagePlan) -> BTreeSet<String> {
    let of = |object: &ObjectId| {
        let same = plan.adopted.iter().find(|adopted| {
            adopted.kind == object.kind
                && adopted.namespace == object.namespace
                && adopted.name == object.name
        });
        same.map_or_else(|| object.uid.clone(), |same| same.uid.clone())
    };
    plan.restarts.iter().map(|restart| of(&restart.object)).collect()
}

/// Reads the pods of the operator and of its operands in all namespaces.
///
/// # Errors
/// The API server does not answer, or denies access.
pub(super) async fn read(access: &ObjectAccess<'_>, plan: &PackagePlan) -> Result<Vec<PodState>, CliError> {
    let mut owners = HashMap::new();
    for kind in OWNERS {
        for object in access.list(kind, "", None).await? {
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            let references = object["metadata"]["ownerReferences"].as_array().cloned();
            owners.insert(uid, references.unwrap_or_default());
        }
    }
    let pods = access.list(("v1", "Pod"), "", None).await?;
    Ok(of_package(plan, &pods, &owners))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::fixture::{id, plan};
    use serde_json::json;

    fn pod(name: &str, owner: Value, restarts: u64) -> Value {
        json!({"metadata": {"namespace": "ns", "name": name, "uid": format!("{name}-uid"), "ownerReferences": [owner]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "manager", "restartCount": restarts}]}})
    }

    #[test]
    fn pods_of_operator_and_operands_are_found_by_their_owners() {
        let mut plan = plan();
        plan.adopted.push(id("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "lamps.example.com"));
        let deployment = plan.adopted.iter().find(|object| object.kind == "Deployment").unwrap();
        let owner = |kind: &str, uid: &str| json!({"apiVersion": "apps/v1", "kind": kind, "uid": uid});
        let lamp = json!({"apiVersion": "example.com/v1", "kind": "Lamp", "uid": "lamp"});
        let owners = HashMap::from([
            ("set".to_owned(), vec![owner("Deployment", &deployment.uid)]),
            ("stateful".to_owned(), vec![lamp.clone()]),
            ("foreign".to_owned(), vec![owner("Deployment", "other")]),
            ("job".to_owned(), vec![lamp.clone()]),
        ]);
        let mut ended = pod("ended", owner("StatefulSet", "stateful"), 0);
        ended["status"]["phase"] = json!("Succeeded");
        let pods = [
            pod("operator", owner("ReplicaSet", "set"), 1),
            pod("operand", owner("StatefulSet", "stateful"), 0),
            pod("foreign", owner("ReplicaSet", "foreign"), 0),
            ended,
            pod("job", json!({"apiVersion": "batch/v1", "kind": "Job", "uid": "job"}), 0),
        ];
        let found = of_package(&plan, &pods, &owners);
        let names: Vec<&str> = found.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(names, ["ended", "operand", "operator"]);
        assert!(found[0].has_ended && !found[1].has_ended);
        assert_eq!(found[2].restarts["manager"], 1);
        assert_eq!(found[2].owners, ["set", deployment.uid.as_str()]);
    }

    #[test]
    fn replaced_and_restarted_pods_are_reported() {
        let state = |uid: &str, restarts: u64| PodState {
            namespace: "ns".to_owned(),
            name: format!("pod-{uid}"),
            uid: uid.to_owned(),
            restarts: [("manager".to_owned(), restarts)].into(),
            owners: vec![format!("deployment-{uid}")],
            has_ended: false,
        };
        let ended = |uid: &str| PodState { has_ended: true, ..state(uid, 2) };
        let before = [state("a", 1), state("b", 1), state("c", 1), state("d", 1), state("e", 1), ended("f")];
        let after = [state("a", 1), state("b", 2), state("new", 0), ended("e")];
        let found = restarted(&before, &after, &["deployment-d".to_owned()].into());
        let text: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "pod ns/pod-b restarted its container manager",
                "pod ns/pod-c was replaced",
                "pod ns/pod-d was replaced, as announced by the plan"
            ]
        );
    }
}
