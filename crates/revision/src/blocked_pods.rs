//! Cause for which a Deployment has no ready pods, with the remedy (docs/design/apply.md#blocked-pods).
//!
//! Pure. The texts contain nothing that changes while the cause lasts, such as generated names of pods that were not
//! created, restart counts and back-off times: they are part of conditions.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::jiff;
use serde_json::Value;

use crate::object::text;

/// First words of each cause, by which readers of a condition find it.
pub const MARK: &str = "; its pods ";
/// Time for which a pod may be unready without a cause.
const PATIENCE: SignedDuration = SignedDuration::from_secs(30);
/// Number of restarts after which a crash is not an accident of the start.
const CRASHES: u64 = 2;
/// Longest part of a message of others, in characters.
const LONGEST: usize = 1000;
/// Waiting reasons of containers whose image is not available.
const IMAGE: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
];
/// Waiting reasons of containers that cannot be started.
const START: [&str; 4] =
    ["RunContainerError", "CreateContainerError", "CreateContainerConfigError", "PostStartHookError"];

/// Cause for which pods are not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Sentence without its end, to be appended to a line about the Deployment. Begins with [`MARK`].
    pub text: String,
    /// `true` if waiting does not help.
    pub is_final: bool,
}

impl Cause {
    /// The sentence alone.
    pub fn words(&self) -> &str {
        self.text.trim_start_matches("; ")
    }

    fn new(is_final: bool, text: impl std::fmt::Display) -> Self {
        Self { text: format!("{MARK}{text}"), is_final }
    }
}

/// Cause for which a Deployment does not get its pods: its ReplicaSet cannot create them, by condition `ReplicaFailure`,
/// or its rollout is paused.
pub fn of_deployment(deployment: &Value) -> Option<Cause> {
    refused(deployment).or_else(|| {
        let (namespace, name) = (text(deployment, "/metadata/namespace"), text(deployment, "/metadata/name"));
        let resume = format!("kubectl -n {namespace} rollout resume deployment/{name}");
        let text = format!("are not replaced: the rollout is paused; to continue: {resume}");
        deployment
            .pointer("/spec/paused")
            .is_some_and(|paused| paused == true)
            .then(|| Cause::new(false, text))
    })
}

fn refused(deployment: &Value) -> Option<Cause> {
    let conditions = deployment.pointer("/status/conditions")?.as_array()?;
    let failure = conditions.iter().find(|one| one["type"] == "ReplicaFailure" && one["status"] == "True")?;
    let message = text(failure, "/message");
    // The message begins with the generated name of the pod.
    let named = |verdict| Some(message.split_once(verdict)?.1);
    let message = line(named(" is forbidden: ").or_else(|| named(" is invalid: ")).unwrap_or(message));
    let message = message.as_str();
    let remedy = remedy(message, text(deployment, "/metadata/namespace"));
    Some(Cause::new(false, format!("are not created: {message}; {remedy}")))
}

/// A message of others in one line, cut to [`LONGEST`] characters.
fn line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LONGEST).collect()
}

/// Remedy for a refused pod.
fn remedy(message: &str, namespace: &str) -> String {
    let has = |part: &str| message.contains(part);
    if has("exceeded quota: ") {
        format!("raise the ResourceQuota of namespace {namespace}, or delete other objects there")
    } else if has("failed quota: ") {
        format!("set the resources of the containers, or a LimitRange with defaults in namespace {namespace}")
    } else if has("violates PodSecurity") {
        format!(
            "set label pod-security.kubernetes.io/enforce of namespace {namespace} to a level that permits them"
        )
    } else if has(" usage per ")
        || has(" limit to request ratio per ")
        || has(" must be less than or equal to ")
    {
        format!("change the resources of the containers, or the LimitRange of namespace {namespace}")
    } else if has("security context constraint") {
        "let their service account use a SecurityContextConstraints that permits them".to_owned()
    } else if has("failed calling webhook ") {
        "repair the Service of this webhook, or exempt the namespace from the webhook".to_owned()
    } else if has("admission webhook ") || has("ValidatingAdmissionPolicy ") {
        format!("change what this policy demands, or exempt namespace {namespace} from it")
    } else if has("error looking up service account ") {
        "create the service account, or install the extension into its namespace".to_owned()
    } else {
        "correct what the API server rejects".to_owned()
    }
}

/// Cause for which a pod of these is not ready, the newest first.
pub fn of_pods(pods: &[Value], now: Timestamp) -> Option<Cause> {
    let is_leaving = |pod: &&Value| pod.pointer("/metadata/deletionTimestamp").is_some();
    let mut pods: Vec<&Value> = pods.iter().filter(|pod| !is_leaving(pod) && !is_ready(pod)).collect();
    pods.sort_by_key(|pod| {
        let created = text(pod, "/metadata/creationTimestamp");
        (std::cmp::Reverse(created), text(pod, "/metadata/name"))
    });
    pods.iter().find_map(|pod| of_pod(pod, now))
}

fn condition<'a>(pod: &'a Value, type_: &str) -> Option<&'a Value> {
    let conditions = pod.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|one| one["type"] == type_)
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
}

fn of_pod(pod: &Value, now: Timestamp) -> Option<Cause> {
    let name = text(pod, "/metadata/name");
    let containers = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let containers = containers.into_iter().filter_map(|path| pod.pointer(path)?.as_array()).flatten();
    if let Some(cause) = containers.clone().find_map(|container| of_container(pod, container)) {
        return Some(cause);
    }
    let since = |found: Option<&Value>| -> Option<Timestamp> {
        text(found?, "/lastTransitionTime").parse().ok().filter(|at| now.duration_since(*at) >= PATIENCE)
    };
    let scheduled = condition(pod, "PodScheduled").filter(|found| found["status"] == "False");
    if let (Some(found), Some(_)) = (scheduled, since(scheduled)) {
        let message = line(text(found, "/message"));
        let message = message.trim_end_matches('.');
        let remedy = "add nodes, or change requests, node selector or tolerations";
        return Some(Cause::new(false, format!("are not scheduled: {message}; {remedy}")));
    }
    since(condition(pod, "Ready"))?;
    let unready = |one: &&Value| one["ready"] == false && one.pointer("/state/running").is_some();
    let container = text(containers.into_iter().find(unready)?, "/name");
    let log = log(pod, container, "");
    Some(Cause::new(false, format!("run, but container {container} of pod {name} is not ready; {log}")))
}

/// Cause in the state of a container.
fn of_container(pod: &Value, container: &Value) -> Option<Cause> {
    let (pod_name, name) = (text(pod, "/metadata/name"), text(container, "/name"));
    let place = format!("container {name} of pod {pod_name}");
    let reason = text(container, "/state/waiting/reason");
    let message = line(text(container, "/state/waiting/message"));
    let message = message.as_str();
    if IMAGE.contains(&reason) {
        // While the kubelet backs off, newer versions repeat the error, and others do not.
        let why = message.split_once("ErrImagePull: ").map_or(message, |(_, why)| why);
        let why = if why.is_empty() || why.starts_with("Back-off ") { reason } else { why };
        let image = text(container, "/image");
        let remedy = "check its name, and the pull secrets and network of the nodes";
        return Some(Cause::new(true, format!("wait for image {image} ({place}): {why}; {remedy}")));
    }
    if START.contains(&reason) {
        let why = if message.is_empty() { reason } else { message };
        return Some(Cause::new(
            reason == "RunContainerError",
            format!(
                "do not start ({place}): {why}; change the bundle's configuration, or create what is missing"
            ),
        ));
    }
    let states = ["/state/terminated", "/lastState/terminated"];
    let ended = states.into_iter().find_map(|path| container.pointer(path));
    let code = ended.map_or(0, |ended| ended["exitCode"].as_i64().unwrap_or_default());
    let is_backing_off = reason == "CrashLoopBackOff";
    if !is_backing_off && (container.pointer("/state/terminated").is_none() || code == 0) {
        return None;
    }
    let why = match ended.map(|ended| text(ended, "/reason")) {
        None => String::new(),
        Some("OOMKilled") => ", out of memory".to_owned(),
        Some(_) => format!(", exit code {code}"),
    };
    let is_final = is_backing_off && container["restartCount"].as_u64().unwrap_or_default() >= CRASHES;
    Some(Cause::new(is_final, format!("crash ({place}{why}); {}", log(pod, name, " --previous"))))
}

fn log(pod: &Value, container: &str, more: &str) -> String {
    let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
    format!("its log: kubectl -n {namespace} logs {name} -c {container}{more}")
}

/// Label selector of the pods of a Deployment. `None` if it cannot be written as one.
pub fn selector(deployment: &Value) -> Option<String> {
    let selector = deployment.pointer("/spec/selector")?;
    if selector.get("matchExpressions").is_some_and(|all| all != &Value::Array(Vec::new())) {
        return None;
    }
    let labels = selector.get("matchLabels")?.as_object()?;
    let labels: Option<Vec<String>> =
        labels.iter().map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    labels.filter(|labels| !labels.is_empty()).map(|labels| labels.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-01T00:01:00Z";

    fn refused(message: &str) -> String {
        let failure = json!({"type": "ReplicaFailure", "status": "True", "message": message});
        let deployment = json!({"metadata": {"namespace": "ns"}, "status": {"conditions": [failure]}});
        of_deployment(&deployment).unwrap().text
    }

    // docs/design/apply.md#blocked-pods. Messages of Kubernetes 1.36.
    #[test]
    fn replica_failure_has_message_and_remedy() {
        let rows = [
            (
                r#"pods "op-5d8f-x7x9k" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0"#,
                "exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0; raise the ResourceQuota of namespace ns, or \
                 delete other objects there",
            ),
            (
                r#"pods "op-x" is forbidden: failed quota: cpu: must specify limits.cpu for: manager"#,
                "failed quota: cpu: must specify limits.cpu for: manager; set the resources of the containers, or a LimitRange with \
                 defaults in namespace ns",
            ),
            (
                r#"pods "op-x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true"#,
                "violates PodSecurity \"restricted:latest\": runAsNonRoot != true; set label pod-security.kubernetes.io/enforce of \
                 namespace ns to a level that permits them",
            ),
            (
                r#"pods "op-x" is forbidden: maximum memory usage per Container is 64Mi, but limit is 128Mi"#,
                "maximum memory usage per Container is 64Mi, but limit is 128Mi; change the resources of the containers, or the \
                 LimitRange of namespace ns",
            ),
            (
                r#"Pod "op-x" is invalid: spec.containers[0].resources.requests: Invalid value: "10Mi": must be less than or equal to memory limit of 4Mi"#,
                "spec.containers[0].resources.requests: Invalid value: \"10Mi\": must be less than or equal to memory limit of 4Mi; \
                 change the resources of the containers, or the LimitRange of namespace ns",
            ),
            (
                r#"admission webhook "v.example.com" denied the request: no"#,
                "admission webhook \"v.example.com\" denied the request: no; change what this policy demands, or exempt namespace \
                 ns from it",
            ),
            (
                r#"Internal error occurred: failed calling webhook "v.example.com": connection refused"#,
                "Internal error occurred: failed calling webhook \"v.example.com\": connection refused; repair the Service of \
                 this webhook, or exempt the namespace from the webhook",
            ),
            (
                r#"pods "op-x" is forbidden: error looking up service account ns/op: serviceaccount "op" not found"#,
                "error looking up service account ns/op: serviceaccount \"op\" not found; create the service account, or install \
                 the extension into its namespace",
            ),
            ("odd", "odd; correct what the API server rejects"),
        ];
        for (message, expected) in rows {
            assert_eq!(refused(message), format!("; its pods are not created: {expected}"));
        }
        let solved = json!({"status": {"conditions": [{"type": "ReplicaFailure", "status": "False"}]}});
        assert_eq!((of_deployment(&solved), of_deployment(&json!({}))), (None, None));
        let paused = json!({"metadata": {"namespace": "ns", "name": "op"}, "spec": {"paused": true}});
        let text = "; its pods are not replaced: the rollout is paused; to continue: kubectl -n ns rollout resume deployment/op";
        assert_eq!(of_deployment(&paused), Some(Cause { text: text.to_owned(), is_final: false }));
    }

    fn pod(created: &str, state: Value, container: Value) -> Value {
        let mut status =
            json!({"name": "manager", "image": "r.example/op:v1", "ready": false, "state": state});
        status.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        json!({"metadata": {"name": format!("op-{created}"), "namespace": "ns",
                "creationTimestamp": format!("2026-01-01T00:00:{created}Z")},
            "status": {"containerStatuses": [status],
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": format!("2026-01-01T00:00:{created}Z")}]}})
    }

    fn waiting(reason: &str, message: &str) -> Value {
        json!({"waiting": {"reason": reason, "message": message}})
    }

    #[test]
    fn unready_pod_has_cause_and_remedy() {
        let cause =
            |pods: &[Value]| of_pods(pods, NOW.parse().unwrap()).map(|cause| (cause.text, cause.is_final));
        let of = |state: Value, container: Value| cause(&[pod("10", state, container)]);
        let said = |text: &str, is_final| Some((format!("; its pods {text}"), is_final));
        let image = |why: &str| {
            said(
                &format!(
                    "wait for image r.example/op:v1 (container manager of pod op-10): {why}; check its name, and the pull \
                     secrets and network of the nodes"
                ),
                true,
            )
        };
        let none = || json!({});
        assert_eq!(of(waiting("ErrImagePull", "not found"), none()), image("not found"));
        let both = r#"Back-off pulling image "r.example/op:v1": ErrImagePull: not found"#;
        assert_eq!(of(waiting("ImagePullBackOff", both), none()), image("not found"));
        assert_eq!(
            of(waiting("ImagePullBackOff", "Back-off pulling image"), none()),
            image("ImagePullBackOff")
        );
        let crash = |why: &str, is_final| {
            let log = "its log: kubectl -n ns logs op-10 -c manager --previous";
            said(&format!("crash (container manager of pod op-10, {why}); {log}"), is_final)
        };
        let ended = |reason: &str, restarts: u64| json!({"restartCount": restarts, "lastState": {"terminated": {"exitCode": 137, "reason": reason}}});
        let backing_off = || waiting("CrashLoopBackOff", "back-off 10s restarting failed container");
        assert_eq!(of(backing_off(), ended("Error", 0)), crash("exit code 137", false));
        assert_eq!(of(backing_off(), ended("OOMKilled", 2)), crash("out of memory", true));
        assert_eq!(of(json!({"terminated": {"exitCode": 2}}), none()), crash("exit code 2", false));
        let start = "do not start (container manager of pod op-10): secret \"tls\" not found; change the bundle's \
                     configuration, or create what is missing";
        assert_eq!(of(waiting("RunContainerError", "secret \"tls\" not found"), none()), said(start, true));
        assert_eq!(
            of(waiting("CreateContainerConfigError", "secret \"tls\" not found"), none()),
            said(start, false)
        );
        assert_eq!(of(waiting("ContainerCreating", ""), none()), None);
        let running = json!({"running": {"startedAt": NOW}});
        let unready = "run, but container manager of pod op-10 is not ready; its log: kubectl -n ns logs op-10 -c manager";
        assert_eq!(of(running.clone(), none()), said(unready, false));

        assert_eq!(cause(&[pod("31", running.clone(), none())]), None, "unready for less than 30 s");
        let mut unschedulable = pod("10", json!({}), none());
        unschedulable["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "False",
            "lastTransitionTime": "2026-01-01T00:00:10Z", "message": "0/1 nodes are available: 1 Insufficient cpu."}]});
        let expected = "are not scheduled: 0/1 nodes are available: 1 Insufficient cpu; add nodes, or change requests, node \
                        selector or tolerations";
        assert_eq!(cause(&[unschedulable]), said(expected, false));
        // The newest pod counts, unless it is being deleted or ready.
        let mut leaving = pod("20", backing_off(), none());
        leaving["metadata"]["deletionTimestamp"] = json!(NOW);
        let mut ready = pod("19", backing_off(), none());
        ready["status"]["conditions"][0]["status"] = json!("True");
        let old = pod("09", waiting("ErrImagePull", ""), none());
        assert_eq!(cause(&[old, pod("10", running, none()), ready, leaving]), said(unready, false));
    }

    #[test]
    fn selector_needs_labels_only() {
        let of = |selector: Value| selector_text(&selector);
        assert_eq!(of(json!({"matchLabels": {"a": "b", "c": "d"}})).as_deref(), Some("a=b,c=d"));
        assert_eq!(of(json!({"matchLabels": {}})), None);
        assert_eq!(of(json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "x"}]})), None);
    }

    fn selector_text(selector: &Value) -> Option<String> {
        super::selector(&json!({"spec": {"selector": selector}}))
    }
}
