//! Watches everything that extensions of the model have on the cluster, without the proxy.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::StreamExt;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event as Watched};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::history::{Event, History};
use crate::snapshot::{Phase, Revision, Snapshot, label, text};
use crate::universe::Key;

const OWNER_NAME: &str = "olm.operatorframework.io/owner-name";
const CONTENT: &str = "olm.operatorframework.io/object-data";

/// Watched kinds: group and kind.
const KINDS: [(&str, &str); 14] = [
    ("", "ConfigMap"),
    ("", "Namespace"),
    ("", "Secret"),
    ("", "Service"),
    ("", "ServiceAccount"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apps", "Deployment"),
    ("olm.operatorframework.io", "ClusterExtension"),
    ("olm.operatorframework.io", "ClusterObjectSet"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("scheduling.k8s.io", "PriorityClass"),
];

/// API resource of the kind.
pub(crate) fn resource(kind: &str) -> ApiResource {
    let group = KINDS.iter().find(|(_, known)| *known == kind).map_or("", |(group, _)| group);
    let plural = if kind == "PriorityClass" {
        "priorityclasses".to_owned()
    } else {
        format!("{}s", kind.to_lowercase())
    };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), &plural)
}

/// Time limit for the lists after a restore of etcd.
const PATIENCE: Duration = Duration::from_secs(60);

/// Observed state by extension.
type State = HashMap<String, ObservedExtension>;

/// Observed state of all watches.
pub(crate) struct Recorder {
    state: Arc<Mutex<State>>,
    backup: Mutex<State>,
    watches: Mutex<JoinSet<()>>,
}

/// Observed state of one extension.
#[derive(Clone)]
struct ObservedExtension {
    objects: BTreeMap<Key, Arc<Value>>,
    history: History,
    /// Objects in Secrets, by name of the Secret and key. Names are hashes of the content.
    content: HashMap<String, BTreeMap<String, Value>>,
    changed: Instant,
}

impl Recorder {
    /// Starts the watches.
    pub(crate) fn start(client: &Client) -> Self {
        let (state, (listed, _)) = (Arc::default(), mpsc::unbounded_channel());
        let watches = Mutex::new(watches(client, &state, &listed));
        Self { state, backup: Mutex::default(), watches }
    }

    /// Copies the state of all extensions.
    pub(crate) fn back_up(&self) {
        *lock(&self.backup) = lock(&self.state).clone();
    }

    /// Stops the watches.
    pub(crate) async fn stop(&self) {
        let mut watches = std::mem::take(&mut *lock(&self.watches));
        watches.shutdown().await;
    }

    /// Continues with the state of the backup after [`Self::stop`] and a restore of etcd.
    pub(crate) async fn restore(&self, client: &Client) {
        let mut state = lock(&self.backup).clone();
        // The lists contain all objects.
        state.values_mut().for_each(|seen| seen.objects.clear());
        *lock(&self.state) = state;
        let (listed, mut lists) = mpsc::unbounded_channel();
        *lock(&self.watches) = watches(client, &self.state, &listed);
        let (mut left, deadline) = (BTreeSet::from(KINDS.map(|(_, kind)| kind)), Instant::now() + PATIENCE);
        while !left.is_empty() {
            let kind = timeout(deadline.duration_since(Instant::now()), lists.recv()).await;
            left.remove(kind.unwrap_or_else(|_| panic!("not listed: {left:?}")).unwrap());
        }
    }

    /// Begins to record the extension. Must be called before its objects are created.
    pub(crate) fn expect(&self, extension: &str) {
        let seen = ObservedExtension {
            objects: BTreeMap::new(),
            history: History::default(),
            content: HashMap::new(),
            changed: Instant::now(),
        };
        lock(&self.state).insert(extension.to_owned(), seen);
    }

    /// Stops recording the extension.
    pub(crate) fn forget(&self, extension: &str) {
        lock(&self.state).remove(extension);
    }

    /// Time since the last change.
    pub(crate) fn quiet(&self, extension: &str) -> Duration {
        lock(&self.state)[extension].changed.elapsed()
    }

    /// Current state.
    pub(crate) fn snapshot(&self, extension: &str) -> Snapshot {
        let state = lock(&self.state);
        let seen = &state[extension];
        let mut snapshot = Snapshot::default();
        for (key, object) in &seen.objects {
            let object = Arc::clone(object);
            match key.kind.as_str() {
                "ClusterExtension" => snapshot.extension = Some(object),
                "ClusterObjectSet" => {
                    let exists = |secret: &str| {
                        seen.objects.contains_key(&Key::new("Secret", olm_servers::NAMESPACE, secret))
                    };
                    let content = seen.phases(&object, exists);
                    snapshot.revisions.push(Revision { object, content });
                }
                "Secret" if text(&object, "/type") == CONTENT => snapshot.secrets.push(object),
                _ => drop(snapshot.objects.insert(key.clone(), object)),
            }
        }
        snapshot.revisions.sort_by_key(Revision::number);
        snapshot
    }

    /// Calls `work` with the history of the extension.
    pub(crate) fn history<T>(&self, extension: &str, work: impl FnOnce(&mut History) -> T) -> T {
        work(&mut lock(&self.state).get_mut(extension).unwrap().history)
    }
}

impl ObservedExtension {
    fn take(&mut self, event: Event) {
        self.changed = Instant::now();
        let (key, object) = (Key::of(&event.object), Arc::clone(&event.object));
        if event.is_deletion {
            self.objects.remove(&key);
        } else {
            self.objects.insert(key.clone(), Arc::clone(&object));
        }
        if key.kind == "Secret" && text(&object, "/type") == CONTENT {
            self.content.insert(key.name, decoded(&object));
            let sets = self.objects.values().filter(|one| text(one, "/kind") == "ClusterObjectSet");
            let known: Vec<_> = sets.map(|set| (Arc::clone(set), self.content_of(set))).collect();
            known.into_iter().for_each(|(set, phases)| learn(&mut self.history, &set, phases));
        } else {
            self.history.record(event);
            if key.kind == "ClusterObjectSet" {
                let phases = self.content_of(&object);
                learn(&mut self.history, &object, phases);
            }
        }
    }

    fn content_of(&self, set: &Value) -> Option<Vec<Phase>> {
        self.phases(set, |_| true)
    }

    /// Phases of a revision, from Secrets whose names satisfy `counts`. `None` if an object is missing.
    fn phases(&self, set: &Value, counts: impl Fn(&str) -> bool) -> Option<Vec<Phase>> {
        let phases = set["spec"]["phases"].as_array()?;
        let object = |object: &Value| {
            let secret = text(object, "/ref/name");
            let content = self.content.get(secret).filter(|_| counts(secret))?;
            content.get(text(object, "/ref/key")).cloned()
        };
        let phase = |phase: &Value| {
            let objects = phase["objects"].as_array().into_iter().flatten();
            Some((text(phase, "/name").to_owned(), objects.map(object).collect::<Option<Vec<_>>>()?))
        };
        phases.iter().map(phase).collect()
    }
}

fn learn(history: &mut History, set: &Value, phases: Option<Vec<Phase>>) {
    if let Some(phases) = phases {
        let keys: BTreeSet<Key> = phases.iter().flat_map(|(_, objects)| objects).map(Key::of).collect();
        history.learn(text(set, "/metadata/uid"), keys);
    }
}

fn decoded(secret: &Value) -> BTreeMap<String, Value> {
    let data = secret["data"].as_object().into_iter().flatten();
    let decoded = data.filter_map(|(key, value)| {
        let bytes = BASE64_STANDARD.decode(value.as_str()?).ok()?;
        Some((key.clone(), serde_json::from_slice(&bytes).ok()?))
    });
    decoded.collect()
}

/// Watches all kinds. `listed` receives each kind whose objects are complete.
fn watches(
    client: &Client,
    state: &Arc<Mutex<State>>,
    listed: &mpsc::UnboundedSender<&'static str>,
) -> JoinSet<()> {
    KINDS
        .map(|(_, kind)| follow(client.clone(), kind, Arc::clone(state), listed.clone()))
        .into_iter()
        .collect()
}

async fn follow(
    client: Client,
    kind: &'static str,
    state: Arc<Mutex<State>>,
    listed: mpsc::UnboundedSender<&'static str>,
) {
    let resource = resource(kind);
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        let (object, is_deletion) = match event {
            Ok(Watched::Apply(object) | Watched::InitApply(object)) => (object, false),
            Ok(Watched::Delete(object)) => (object, true),
            Ok(Watched::Init) => continue,
            Ok(Watched::InitDone) => {
                // The receiver is gone unless a restore waits.
                let _ = listed.send(kind);
                continue;
            }
            Err(error) => {
                eprintln!("watch of the test on {kind}: {error}");
                continue;
            }
        };
        let mut object = serde_json::to_value(object).unwrap();
        object["kind"] = kind.into();
        object["apiVersion"] = resource.api_version.clone().into();
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        let version = text(&object, "/metadata/resourceVersion").parse().unwrap();
        let mut state = lock(&state);
        if let Some(seen) = extension(&object).and_then(|name| state.get_mut(&name)) {
            seen.take(Event { version, is_deletion, object: Arc::new(object) });
        }
    }
}

/// Name of the extension that the object belongs to: from its namespace, its label, or the beginning of its own name.
fn extension(object: &Value) -> Option<String> {
    let is_name = |word: &&str| word.starts_with(crate::PREFIX);
    let namespace = Some(text(object, "/metadata/namespace")).filter(is_name);
    let labeled = label(object, OWNER_NAME).filter(is_name);
    let named = || {
        text(object, "/metadata/name").split(|c: char| !c.is_ascii_alphanumeric()).find(|word| is_name(word))
    };
    namespace.or(labeled).or_else(named).map(str::to_owned)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}
