//! Fixture shared by all extensions of the model: the servers, the process under test, and the images.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use olm_api::ClusterCatalog;
use olm_image::Image;
use olm_image::registry;
use olm_servers::{
    Answer, Call, Converter, Fault, Programs, Rule, RuleId, Server, ServerFixture, WallClock, When,
};
use serde_json::{Value, json};
use tokio::sync::{Barrier, watch};

use crate::EXTENSIONS;
use crate::admission::Admission;
use crate::intent::Denied;
use crate::recorder::Recorder;
use crate::resolving::catalog_name;
use crate::steps::{Step, Trouble};
use crate::universe::{VERSIONS, bundle, catalog, package};

const FLAGS: [&str; 1] = ["--feature-gates=DeploymentConfig=true"];
/// A fault affects one in this many of the matching calls.
const ONE_IN: usize = 3;
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time within which a process observes all objects of a new cluster.
const OBSERVED: Duration = Duration::from_secs(10);

/// Fixture shared by all extensions of the model.
pub(crate) struct Fixture {
    // Dropped before the servers that it watches.
    pub(crate) recorder: Recorder,
    pub(crate) servers: ServerFixture,
    controller: tokio::sync::Mutex<Server>,
    clock: WallClock,
    /// Time from which the process compares times of new objects with the wall clock.
    observing: Mutex<Instant>,
    /// Converts the Gadgets of all extensions.
    converter: Converter,
    admission: Admission,
    /// Where all extensions meet.
    meeting: Mutex<Arc<Barrier>>,
    restarts: AtomicU64,
    /// Number of applied steps.
    pub(crate) steps: AtomicUsize,
    /// Number of steps to apply, not counting Settle. A faster extension applies more. Only the length of each
    /// extension's sequence depends on timing, its content depends only on the seed.
    pub(crate) left: AtomicUsize,
    troubles: Mutex<BTreeMap<String, Vec<RuleId>>>,
    /// Handles that keep the registry from responding, by extension.
    held: Mutex<BTreeMap<String, watch::Sender<()>>>,
    /// Images of the existing catalogs, by catalog name.
    images: Mutex<BTreeMap<String, String>>,
    _catalogd: Server,
}

impl Fixture {
    /// Starts the servers. `count` is the number of steps to apply.
    pub(crate) async fn start(count: usize) -> Self {
        let programs = Programs::beside(env!("CARGO_BIN_EXE_operator-controller")).unwrap();
        let servers = ServerFixture::start(programs).await.unwrap();
        let catalogd = servers.start_catalogd().await.unwrap();
        let recorder = Recorder::start(&servers.client());
        let clock = WallClock::new().unwrap();
        let admission = Admission::start(&servers).await;
        let controller = launch(&servers, &clock).await;
        Self {
            servers,
            recorder,
            clock,
            observing: Mutex::new(Instant::now()),
            converter: Converter::start().await.unwrap(),
            admission,
            meeting: Mutex::new(Arc::new(Barrier::new(EXTENSIONS))),
            controller: tokio::sync::Mutex::new(controller),
            restarts: AtomicU64::new(0),
            steps: AtomicUsize::new(0),
            left: AtomicUsize::new(count),
            troubles: Mutex::default(),
            held: Mutex::default(),
            images: Mutex::default(),
            _catalogd: catalogd,
        }
    }

    /// Counts a step.
    pub(crate) fn count_step(&self, step: &Step) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        if *step != Step::Settle {
            let fewer = |left: usize| Some(left.saturating_sub(1));
            let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        }
    }

    pub(crate) fn client(&self) -> Client {
        self.servers.client()
    }

    /// Kills the process with SIGKILL and starts a new one.
    pub(crate) async fn restart(&self) {
        let mut controller = self.controller.lock().await;
        controller.kill();
        self.restarts.fetch_add(1, Ordering::Relaxed);
        self.correct_clock();
        *controller = launch(&self.servers, &self.clock).await;
        *self.observing.lock().unwrap() = Instant::now();
    }

    /// Sets the process's wall clock to the true time. Those of the API server only compare with it in a process that
    /// does not know them yet.
    fn correct_clock(&self) {
        self.clock.set(0).unwrap();
        *self.observing.lock().unwrap() = Instant::now();
    }

    /// Sets the offset of the process's wall clock in seconds, once the process knows the times of all objects.
    pub(crate) async fn step_clock(&self, seconds: i64) {
        let _running = self.controller.lock().await;
        let observing = self.observing.lock().unwrap().elapsed();
        tokio::time::sleep(OBSERVED.saturating_sub(observing)).await;
        self.clock.set(seconds).unwrap();
    }

    /// Number of restarts.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Fails if the process has exited.
    pub(crate) async fn check(&self) -> Result<(), String> {
        self.controller.lock().await.check().map_err(|error| error.to_string())
    }

    /// Returns the last `count` lines of the process's log that contain `word`.
    pub(crate) async fn log(&self, word: &str, count: usize) -> String {
        let log = self.controller.lock().await.log();
        let lines: Vec<&str> = log
            .lines()
            .filter(|line| {
                line.contains(word)
                    && !line.contains("reconcile starting")
                    && !line.contains("reconcile ending")
            })
            .collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }

    /// Pushes the bundle images of an extension.
    pub(crate) fn publish(&self, name: &str) {
        let (registry, conversion) = (&self.servers.registry, self.conversion(name));
        for version in &VERSIONS {
            let image = Image::bundle(&bundle(name, version, &conversion)).unwrap();
            registry.add_image(&package(name), version.text, &image);
        }
    }

    /// Conversion of the extension's CRDs.
    pub(crate) fn conversion(&self, name: &str) -> Value {
        self.converter.conversion(name)
    }

    /// Sets the requests about objects of the extension that the API server denies operator-controller.
    pub(crate) async fn deny(&self, name: &str, denied: Option<Denied>) {
        self.admission.deny(name, denied).await;
    }

    /// Waits until exactly these requests are denied.
    pub(crate) async fn until_denied(&self, name: &str, denied: Option<Denied>) {
        self.admission.until_denied(name, denied).await;
    }

    /// Sets the number of extensions that meet.
    pub(crate) fn set_parties(&self, count: usize) {
        *self.meeting.lock().unwrap() = Arc::new(Barrier::new(count));
    }

    /// Backs etcd up when all extensions have arrived.
    pub(crate) async fn back_up(&self) {
        self.together(async {
            self.recorder.back_up();
            self.servers.plane.back_up_etcd().await.unwrap();
        })
        .await;
    }

    /// Restores etcd when all extensions have arrived. The servers under test go on.
    pub(crate) async fn restore(&self) {
        self.together(async {
            self.recorder.stop().await;
            self.correct_clock();
            self.servers.plane.restore_etcd().await.unwrap();
            self.recorder.restore(&self.client()).await;
            self.correct_clock();
        })
        .await;
    }

    /// Runs `work` once, between the arrival of all extensions and their departure.
    async fn together(&self, work: impl Future<Output = ()>) {
        let meeting = Arc::clone(&self.meeting.lock().unwrap());
        if meeting.wait().await.is_leader() {
            work.await;
        }
        meeting.wait().await;
    }

    /// Image reference of a version's bundle.
    fn image(&self, name: &str, version: &str) -> String {
        format!("{}/{}:{version}", self.servers.registry.host(), package(name))
    }

    /// Creates or updates the catalog. It serves the content with a delay.
    pub(crate) async fn offer(&self, name: &str, letter: char, offered: &BTreeSet<usize>, priority: i32) {
        let files = catalog(name, offered, |version| self.image(name, version));
        let catalog = catalog_name(name, letter);
        let digest = self.servers.registry.add_image(&catalog, "latest", &Image::catalog(&files).unwrap());
        let image = format!("{}/{catalog}@{digest}", self.servers.registry.host());
        let object = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": catalog, "labels": {"model": name, "olm.operatorframework.io/metadata.name": catalog}},
            "spec": {"priority": priority, "source": {"type": "Image", "image": {"ref": image}}},
        });
        self.images.lock().unwrap().insert(catalog.clone(), image);
        let params = PatchParams::apply("model").force();
        self.catalogs().patch(&catalog, &params, &Patch::Apply(&object)).await.unwrap();
    }

    /// Deletes the catalog and waits for its removal.
    pub(crate) async fn withdraw(&self, name: &str, letter: char) {
        let catalog = catalog_name(name, letter);
        self.images.lock().unwrap().remove(&catalog);
        // The catalog may be deleted already.
        let _ = self.catalogs().delete(&catalog, &DeleteParams::default()).await;
        let deadline = Instant::now() + olm_servers::PATIENCE;
        while self.catalogs().get_opt(&catalog).await.unwrap().is_some() {
            assert!(Instant::now() < deadline, "{catalog} was not deleted");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the extension's catalogs serve their latest content.
    pub(crate) async fn until_served(&self, name: &str) -> Result<(), String> {
        let ours = |catalog: &str| ['a', 'b'].iter().any(|letter| catalog_name(name, *letter) == catalog);
        let images = self.images.lock().unwrap().clone();
        for (catalog, image) in images.iter().filter(|(catalog, _)| ours(catalog)) {
            let served = self.servers.until_served(catalog, image).await;
            served.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Catalogs of the extension, and Events about it.
    pub(crate) async fn diagnostics(&self, name: &str) -> Vec<String> {
        let labeled = ListParams::default().labels(&format!("model={name}"));
        let catalogs = self.catalogs().list(&labeled).await.into_iter().flatten();
        let mut lines: Vec<String> = catalogs
            .map(|catalog| format!("catalog {}: {:?} {:?}", catalog.name_any(), catalog.spec, catalog.status))
            .collect();
        let events = Api::<Event>::all(self.client()).list(&ListParams::default()).await;
        let is_about =
            |event: &Event| event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some(name);
        lines.extend(events.into_iter().flatten().filter(is_about).map(|event| {
            let (first, series) = (event.event_time.map(|time| time.0), event.series);
            format!("event {first:?} {:?} {:?} {series:?}", event.reason, event.note)
        }));
        lines
    }

    fn catalogs(&self) -> Api<ClusterCatalog> {
        Api::all(self.client())
    }

    /// Starts a fault: some calls about the extension fail.
    pub(crate) fn trouble(&self, name: &str, trouble: Trouble) {
        let (fault, when, writes) = match trouble {
            Trouble::Conflicts => (Fault::Answer(Answer::conflict()), When::Before, true),
            Trouble::ServerErrors => (Fault::Answer(Answer::internal_error("model")), When::Before, false),
            Trouble::Throttling => (Fault::Answer(Answer::too_many_requests(1)), When::Before, false),
            Trouble::Slowness => (Fault::Delay(Duration::from_millis(300)), When::Before, false),
            Trouble::Lost => (Fault::Cut, When::After, true),
            Trouble::Registry => return self.hold_pulls(name),
            Trouble::Conversion => return self.converter.fail(name, true),
        };
        let (about, count) = (name.to_owned(), AtomicUsize::new(0));
        let applies_to = move |call: &Call| {
            !call.is_watch()
                && (call.is_mutation() || !writes)
                && call.mentions(&about)
                && count.fetch_add(1, Ordering::Relaxed).is_multiple_of(ONE_IN)
        };
        let rule = self.servers.proxy.add(Rule::new(fault, applies_to).when(when));
        self.troubles.lock().unwrap().entry(name.to_owned()).or_default().push(rule);
    }

    fn hold_pulls(&self, name: &str) {
        if self.held.lock().unwrap().contains_key(name) {
            return;
        }
        let (held, until) = watch::channel(());
        let fault = registry::Fault::Held(until);
        self.servers.registry.add_fault(&format!("/v2/{}/", package(name)), usize::MAX, fault);
        self.held.lock().unwrap().insert(name.to_owned(), held);
    }

    /// Ends all faults of the extension.
    pub(crate) fn calm(&self, name: &str) {
        self.converter.fail(name, false);
        if self.held.lock().unwrap().remove(name).is_some() {
            // The registry uses the first matching fault, so that one that has ended must be removed. This also
            // removes those of other extensions.
            self.servers.registry.clear_faults();
        }
        let rules = self.troubles.lock().unwrap().remove(name).unwrap_or_default();
        for rule in rules {
            self.servers.proxy.remove(rule);
        }
    }
}

async fn launch(servers: &ServerFixture, clock: &WallClock) -> Server {
    let mut controller = servers.launch_controller_in(&clock.environment(), &FLAGS).unwrap();
    controller.ready().await.unwrap();
    controller
}
