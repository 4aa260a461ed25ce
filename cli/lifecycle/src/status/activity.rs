//! Events of an extension, and the last lines of its pods' logs. A right that the user does not have is a note.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams, LogParams};
use olm_cli_core::output::{counted, qualified};
use olm_cli_core::source::ClusterConnection;
use olm_runtime::cluster::{describe, within};
use serde_json::Value;
use tokio::time::timeout;

use super::observe::{Live, Observed, ObservedRevision};

/// Deadline of each read.
const DEADLINE: Duration = Duration::from_secs(5);
/// Deadline of all reads together. What was read by then is kept.
const TOTAL: Duration = Duration::from_secs(15);
/// Concurrent reads.
const CONCURRENT: usize = 4;
/// Namespace with the Events of cluster-scoped objects.
const CLUSTER_EVENTS: &str = "default";
/// Limit of active revisions whose Events are read.
const REVISIONS: usize = 4;
/// Limit of Events of one call.
const READ_EVENTS: u32 = 500;
/// Limit of shown Events.
const SHOWN_EVENTS: usize = 200;
/// Limit of Deployments whose pods are read.
const DEPLOYMENTS: usize = 4;
/// Limit of pods of one Deployment that are read.
const READ_PODS: u32 = 20;
/// Limits of pods of one Deployment, and of containers of one pod, whose logs are shown.
const SHOWN_PODS: usize = 2;
const SHOWN_CONTAINERS: usize = 3;
/// Limits of the bytes of a log that are read, and shown. The kubelet leaves out the newest above its limit.
const READ_BYTES: i64 = 1 << 20;
const SHOWN_BYTES: usize = 64 << 10;

/// Activity around an extension.
#[derive(Debug, Default)]
pub struct Activity {
    /// Newest first.
    pub events: Vec<Event>,
    /// Of pods that are not ready first.
    pub logs: Vec<Log>,
    /// Objects that cannot be read, with the reason.
    pub notes: Vec<String>,
}

/// Log of a container.
#[derive(Debug, PartialEq, Eq)]
pub struct Log {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// `true` for the run before the current one.
    pub previous: bool,
    /// State of a container that does not run, and number of restarts.
    pub state: Option<String>,
    /// Last lines, or the reason for which they cannot be read.
    pub text: Result<String, String>,
}

/// Live Deployment: namespace, name, and selector of its pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Workload {
    namespace: String,
    name: String,
    selector: String,
}

/// What is read of the activity.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// `true` for the Events.
    pub events: bool,
    /// Number of lines of each log. 0 for no logs.
    pub lines: i64,
}

impl Activity {
    /// Reads what is `wanted`, as far as the user may and within a deadline.
    pub async fn read(cluster: &ClusterConnection, observed: &Observed, wanted: Wanted) -> Self {
        let mut activity = Self::default();
        let reads = async {
            if wanted.events {
                activity.read_events(cluster, observed).await;
            }
            if wanted.lines > 0 {
                activity.read_logs(cluster, &workloads(observed), wanted.lines).await;
            }
        };
        if timeout(TOTAL, reads).await.is_err() {
            activity
                .notes
                .push(format!("Not all Events and logs are shown: no answer within {} s.", TOTAL.as_secs()));
        }
        activity
    }

    async fn read_events(&mut self, cluster: &ClusterConnection, observed: &Observed) {
        for (kind, name) in cluster_scoped(observed) {
            let only = format!("involvedObject.kind={kind},involvedObject.name={name}");
            let listed = ListParams::default().fields(&only);
            let found = self.list_events(cluster, CLUSTER_EVENTS, listed).await;
            self.events.extend(found);
        }
        let names = names(observed);
        let namespace = observed.extension.spec.as_ref().map(|spec| spec.namespace.as_str());
        if let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty()) {
            let found = self.list_events(cluster, namespace, ListParams::default()).await;
            self.events.extend(found.into_iter().filter(|event| is_about(event, &names)));
        }
        self.events.sort_by_key(|event| std::cmp::Reverse(time(event)));
        self.events.truncate(SHOWN_EVENTS);
    }

    /// At most [`READ_EVENTS`] Events of a namespace. A failure or further Events are a note.
    async fn list_events(
        &mut self,
        cluster: &ClusterConnection,
        namespace: &str,
        listed: ListParams,
    ) -> Vec<Event> {
        let api: Api<Event> = Api::namespaced(cluster.client().clone(), namespace);
        let (found, problem) = match within(DEADLINE, api.list(&listed.limit(READ_EVENTS))).await {
            Ok(found) => {
                let is_cut = found.metadata.continue_.is_some_and(|rest| !rest.is_empty());
                let more = || {
                    format!(
                        "Namespace {namespace} has more than {READ_EVENTS} Events, of which not all are shown."
                    )
                };
                (found.items, is_cut.then(more))
            }
            Err(error) => {
                let why = format!("The Events of namespace {namespace} cannot be read: {}", describe(&error));
                (Vec::new(), Some(why))
            }
        };
        self.notes.extend(problem.filter(|note| !self.notes.contains(note)));
        found
    }

    async fn read_logs(&mut self, cluster: &ClusterConnection, workloads: &[Workload], lines: i64) {
        let mut containers = Vec::new();
        for Workload { namespace, name, selector } in workloads {
            let api: Api<Pod> = Api::namespaced(cluster.client().clone(), namespace);
            let listed = ListParams::default().labels(selector).limit(READ_PODS);
            match within(DEADLINE, api.list(&listed)).await {
                Ok(found) => containers.extend(self::containers(found.items)),
                Err(error) => {
                    self.notes.push(format!(
                        "The pods of Deployment {namespace}/{name} cannot be read: {}",
                        describe(&error)
                    ));
                }
            }
        }
        let reads = containers.into_iter().map(|log| read_log(cluster, log, lines));
        self.logs = stream::iter(reads).buffered(CONCURRENT).collect().await;
    }
}

async fn read_log(cluster: &ClusterConnection, log: Log, lines: i64) -> Log {
    let api: Api<Pod> = Api::namespaced(cluster.client().clone(), &log.namespace);
    let params = LogParams {
        container: Some(log.container.clone()),
        previous: log.previous,
        tail_lines: Some(lines),
        limit_bytes: Some(READ_BYTES),
        ..LogParams::default()
    };
    let text = within(DEADLINE, api.logs(&log.pod, &params)).await;
    Log { text: text.map(|text| newest(&text)).map_err(|error| describe(&error)), ..log }
}

/// Last lines of a log as it was read.
fn newest(text: &str) -> String {
    let start = text.ceil_char_boundary(text.len().saturating_sub(SHOWN_BYTES));
    let (before, shown) = text.split_at(start);
    // Only whole lines, unless there is none.
    let whole = if before.is_empty() || before.ends_with('\n') { None } else { shown.split_once('\n') };
    let shown = whole.map(|(_, lines)| lines).filter(|lines| !lines.is_empty()).unwrap_or(shown);
    // Windows line ends are not shown.
    let mut lines: Vec<&str> = shown.lines().collect();
    if text.len() >= READ_BYTES as usize {
        lines.push("… the newest lines are missing: the log is too long");
    }
    lines.join("\n")
}

/// Logs to read: of the pods that are not ready first, then the newest.
fn containers(mut pods: Vec<Pod>) -> Vec<Log> {
    pods.sort_by_key(|pod| (is_ready(pod), std::cmp::Reverse(pod.creation_timestamp())));
    pods.into_iter().take(SHOWN_PODS).flat_map(of_pod).collect()
}

fn of_pod(pod: Pod) -> Vec<Log> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let (status, spec) = (pod.status.unwrap_or_default(), pod.spec.unwrap_or_default());
    let lists = [status.init_container_statuses, status.container_statuses];
    let statuses: Vec<ContainerStatus> = lists.into_iter().flatten().flatten().collect();
    let mut logs = Vec::new();
    for container in spec.init_containers.into_iter().flatten().chain(spec.containers) {
        let status = statuses.iter().find(|status| status.name == container.name);
        let log = |previous| Log {
            namespace: namespace.clone(),
            pod: name.clone(),
            container: container.name.clone(),
            previous,
            state: status.and_then(state),
            text: Ok(String::new()),
        };
        if status.is_some_and(is_done) {
            continue;
        }
        // The run that failed tells why, not the one that has just begun.
        if status.is_some_and(is_restarted) {
            logs.push(log(true));
        }
        logs.push(log(false));
    }
    logs.truncate(SHOWN_CONTAINERS);
    logs
}

/// Reports whether the container, such as an init container, has ended without a failure.
fn is_done(status: &ContainerStatus) -> bool {
    let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    ended.is_some_and(|ended| ended.exit_code == 0)
}

/// Reports whether the container runs again, but is not ready.
fn is_restarted(status: &ContainerStatus) -> bool {
    let runs = status.state.as_ref().is_some_and(|state| state.running.is_some());
    let ended = status.last_state.as_ref().is_some_and(|state| state.terminated.is_some());
    runs && ended && !status.ready
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
}

/// State of a container that does not run, or was restarted.
fn state(status: &ContainerStatus) -> Option<String> {
    let state = status.state.as_ref();
    let waiting = state.and_then(|state| state.waiting.as_ref()).map(|waiting| {
        let texts = [waiting.reason.as_deref(), waiting.message.as_deref()];
        texts.into_iter().flatten().collect::<Vec<_>>().join(": ")
    });
    let ended = state.and_then(|state| state.terminated.as_ref()).map(|ended| {
        format!("{}, exit code {}", ended.reason.as_deref().unwrap_or("ended"), ended.exit_code)
    });
    let restarts = (status.restart_count > 0).then(|| counted(status.restart_count as usize, "restart"));
    let texts: Vec<String> = [waiting, ended, restarts].into_iter().flatten().collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Live Deployments of the active revisions.
fn workloads(observed: &Observed) -> Vec<Workload> {
    let phases = observed.revisions.iter().flat_map(|revision| revision.content.iter().flatten());
    let found: BTreeSet<Workload> = phases
        .flat_map(|phase| &phase.objects)
        .filter_map(|object| match &object.live {
            Live::Found(live) => workload(live),
            _ => None,
        })
        .collect();
    found.into_iter().take(DEPLOYMENTS).collect()
}

fn workload(live: &Value) -> Option<Workload> {
    let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if text("/kind") != "Deployment" || !text("/apiVersion").starts_with("apps/") {
        return None;
    }
    let labels = live.pointer("/spec/selector/matchLabels")?.as_object()?;
    let selector: Vec<String> =
        labels.iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    // An empty selector would select all pods of the namespace.
    let workload = Workload {
        namespace: text("/metadata/namespace").to_owned(),
        name: text("/metadata/name").to_owned(),
        selector: selector.join(","),
    };
    (!selector.is_empty()).then_some(workload)
}

/// Kind and name of the extension and its active revisions.
fn cluster_scoped(observed: &Observed) -> Vec<(&'static str, String)> {
    let is_archived = |revision: &ObservedRevision| revision.content.as_ref().is_ok_and(Vec::is_empty);
    let revisions = observed.revisions.iter().rev().filter(|one| !is_archived(one)).take(REVISIONS);
    let revisions = revisions.map(|revision| ("ClusterObjectSet", revision.set.name_any()));
    std::iter::once(("ClusterExtension", observed.extension.name_any())).chain(revisions).collect()
}

/// Objects of the bundle that Events may be about: kind and name. An empty kind is the prefix of the pods and
/// ReplicaSets of a Deployment.
fn names(observed: &Observed) -> BTreeSet<(String, String)> {
    let mut names = BTreeSet::new();
    for revision in &observed.revisions {
        for object in revision.content.iter().flatten().flat_map(|phase| &phase.objects) {
            let text =
                |pointer| object.content.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let (kind, name) = (text("/kind"), text("/metadata/name"));
            names.insert((kind.to_owned(), name.to_owned()));
            if kind == "Deployment" {
                names.insert((String::new(), format!("{name}-")));
            }
        }
    }
    names
}

fn is_about(event: &Event, names: &BTreeSet<(String, String)>) -> bool {
    let object = &event.involved_object;
    let kind = object.kind.clone().unwrap_or_default();
    let name = object.name.clone().unwrap_or_default();
    let of_deployment = ["Pod", "ReplicaSet"].contains(&kind.as_str());
    of_deployment && names.iter().any(|(kind, prefix)| kind.is_empty() && name.starts_with(prefix))
        || names.contains(&(kind, name))
}

/// Time of the last occurrence, as RFC 3339.
pub fn time(event: &Event) -> Option<String> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let micro = series.or(event.event_time.as_ref()).map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let created = event.metadata.creation_timestamp.as_ref().map(|time| time.0);
    last.max(micro).or(created).map(|time| time.to_string())
}

/// Equal Events, which differ in their time only.
#[derive(Debug)]
pub struct EventGroup<'a> {
    /// Newest one.
    pub newest: &'a Event,
    /// Number of occurrences.
    pub count: i64,
}

/// Events without repetitions, newest first.
pub fn grouped(events: &[Event]) -> Vec<EventGroup<'_>> {
    let mut groups: Vec<EventGroup<'_>> = Vec::new();
    for event in events {
        let times = i64::from(event.count.unwrap_or(1).max(1));
        let is_same = |group: &&mut EventGroup<'_>| {
            let known = group.newest;
            subject(known) == subject(event) && known.reason == event.reason && known.message == event.message
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.count += times,
            None => groups.push(EventGroup { newest: event, count: times }),
        }
    }
    groups
}

/// Object of the Event, such as `Pod ns/name`.
pub fn subject(event: &Event) -> String {
    let object = &event.involved_object;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let name = qualified(&text(&object.namespace), &text(&object.name));
    format!("{} {name}", text(&object.kind))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, ready: bool, status: Value) -> Pod {
        let ready = if ready { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"containers": [{"name": "manager"}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}], "containerStatuses": [status]},
        }))
        .unwrap()
    }

    #[test]
    fn logs_of_failing_pods_come_first_with_their_state() {
        let status = |state: Value, restarts: i32| json!({"name": "manager", "image": "i", "imageID": "", "ready": false, "restartCount": restarts, "state": state});
        let running = || status(json!({"running": {}}), 0);
        let waiting = status(json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}), 3);
        let ended = status(json!({"terminated": {"exitCode": 2, "reason": "Error"}}), 0);
        let pods = vec![pod("a", true, running()), pod("b", false, waiting), pod("c", false, ended)];
        let logs = containers(pods);
        let shown: Vec<_> = logs.iter().map(|log| (log.pod.as_str(), log.state.as_deref())).collect();
        let expected =
            [("b", Some("CrashLoopBackOff: back-off, 3 restarts")), ("c", Some("Error, exit code 2"))];
        assert_eq!(shown, expected);
        assert_eq!(containers(vec![pod("a", true, running())])[0].state, None);
    }

    #[test]
    fn log_of_the_failed_run_and_of_an_init_container_comes_first() {
        let status = |name: &str, state: Value, last: Value| json!({"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 1, "state": state, "lastState": last});
        let ended = json!({"terminated": {"exitCode": 2, "reason": "Error"}});
        let done = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        let of = |init: Value, main: Value| -> Vec<(String, bool)> {
            let pod = json!({"metadata": {"name": "a", "namespace": "ns"},
                "spec": {"initContainers": [{"name": "init"}], "containers": [{"name": "manager"}]},
                "status": {"initContainerStatuses": [init], "containerStatuses": [main]}});
            let logs = of_pod(serde_json::from_value(pod).unwrap());
            logs.into_iter().map(|log| (log.container, log.previous)).collect()
        };
        let (init, main) = ("init".to_owned(), "manager".to_owned());
        let found =
            of(status("init", done, json!({})), status("manager", json!({"running": {}}), ended.clone()));
        assert_eq!(found, [(main.clone(), true), (main.clone(), false)]);
        let waiting = status("manager", json!({"waiting": {"reason": "PodInitializing"}}), json!({}));
        assert_eq!(of(status("init", ended, json!({})), waiting), [(init, false), (main, false)]);
    }

    #[test]
    fn newest_lines_of_a_log_are_shown() {
        assert_eq!(newest("a\r\nb\n"), "a\nb");
        let line = |number: usize| format!("{number:0>99}\n");
        let long: String = (0..1000).map(line).collect();
        let text = newest(&long);
        assert!(text.len() <= SHOWN_BYTES && text.ends_with("999"), "{}", text.len());
        assert!(text.lines().all(|line| line.len() == 99));
        let one = "é".repeat(SHOWN_BYTES);
        assert_eq!(newest(&one).len(), SHOWN_BYTES);
        let cut = newest(&"a\n".repeat(READ_BYTES as usize / 2));
        assert!(cut.ends_with("the log is too long"));
    }

    #[test]
    fn only_a_deployment_with_labels_has_logs() {
        let of = |kind: &str, labels: Value| {
            let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "a", "namespace": "ns"},
                "spec": {"selector": {"matchLabels": labels}}});
            workload(&object).map(|workload| workload.selector)
        };
        assert_eq!(of("Deployment", json!({"a": "b", "c": "d"})).as_deref(), Some("a=b,c=d"));
        assert_eq!(of("Deployment", json!({})), None);
        assert_eq!(of("DaemonSet", json!({"a": "b"})), None);
    }

    #[test]
    fn equal_events_are_one_row_with_their_number() {
        let event = |reason: &str, count: Option<i32>| -> Event {
            let object = json!({"metadata": {}, "involvedObject": {"kind": "Pod", "name": "a"}, "reason": reason, "message": "m", "count": count});
            serde_json::from_value(object).unwrap()
        };
        let all = [event("BackOff", Some(3)), event("Pulled", None), event("BackOff", None)];
        let groups: Vec<_> =
            grouped(&all).iter().map(|group| (group.newest.reason.clone().unwrap(), group.count)).collect();
        assert_eq!(groups, [("BackOff".to_owned(), 4), ("Pulled".to_owned(), 1)]);
    }

    #[test]
    fn events_are_those_of_objects_and_their_pods() {
        let names = BTreeSet::from([
            ("Deployment".to_owned(), "pipe".to_owned()),
            (String::new(), "pipe-".to_owned()),
        ]);
        for (kind, name, expected) in [
            ("Deployment", "pipe", true),
            ("Deployment", "lamp", false),
            ("Pod", "pipe-1-2", true),
            ("Pod", "piper-1", false),
            ("ConfigMap", "pipe-1", false),
        ] {
            let event: Event = serde_json::from_value(
                json!({"metadata": {}, "involvedObject": {"kind": kind, "name": name}}),
            )
            .unwrap();
            assert_eq!(is_about(&event, &names), expected, "{kind} {name}");
        }
    }
}
