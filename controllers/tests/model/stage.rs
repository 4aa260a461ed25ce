//! What all extensions of the model share: the world, the process under test, and the images that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use olm_api::ClusterCatalog;
use olm_image::Image;
use olm_image::registry;
use olm_servers::{Answer, Call, Converter, Fault, Programs, Rule, RuleId, Server, When, World};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::recorder::Recorder;
use crate::resolving::catalog_name;
use crate::steps::{Step, Trouble};
use crate::universe::{VERSIONS, bundle, catalog, package};

const FLAGS: [&str; 1] = ["--feature-gates=DeploymentConfig=true"];
/// Of the calls that a trouble could strike it strikes one in so many.
const ONE_IN: usize = 3;
const LOOK: Duration = Duration::from_millis(20);

/// What all extensions of the model share.
pub(crate) struct Stage {
    // Dropped before what it watches.
    pub(crate) recorder: Recorder,
    pub(crate) world: World,
    controller: tokio::sync::Mutex<Server>,
    clock: WallClock,
    /// Converts the Gadgets of all extensions.
    converter: Converter,
    restarts: AtomicU64,
    /// Steps done.
    pub(crate) steps: AtomicUsize,
    /// Steps to do, rests apart. Who is faster does more of them: each extension's sequence depends on the seed alone, only
    /// its length does not.
    pub(crate) left: AtomicUsize,
    troubles: Mutex<BTreeMap<String, Vec<RuleId>>>,
    /// What keeps the registry from answering, by extension.
    held: Mutex<BTreeMap<String, watch::Sender<()>>>,
    /// Images of the catalogs that there are, by name.
    images: Mutex<BTreeMap<String, String>>,
    _catalogd: Server,
}

impl Stage {
    /// `count` steps are to be done.
    pub(crate) async fn start(count: usize) -> Self {
        let programs = Programs::beside(env!("CARGO_BIN_EXE_operator-controller")).unwrap();
        let world = World::start(programs).await.unwrap();
        let catalogd = world.start_catalogd().await.unwrap();
        let recorder = Recorder::start(&world.client());
        let clock = WallClock::new();
        let controller = launch(&world, &clock).await;
        Self {
            world,
            recorder,
            clock,
            converter: Converter::start().await.unwrap(),
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
    pub(crate) fn takes(&self, step: &Step) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        if *step != Step::Settle {
            let fewer = |left: usize| Some(left.saturating_sub(1));
            let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        }
    }

    pub(crate) fn client(&self) -> Client {
        self.world.client()
    }

    /// `kill -9`, and another process.
    pub(crate) async fn restart(&self) {
        let mut controller = self.controller.lock().await;
        controller.kill();
        self.restarts.fetch_add(1, Ordering::Relaxed);
        // What a new process counts from times of the API server, it has to count by the wall clock.
        self.clock.set(0);
        *controller = launch(&self.world, &self.clock).await;
    }

    /// Sets the process's wall clock this many seconds off.
    pub(crate) fn step_clock(&self, seconds: i64) {
        self.clock.set(seconds);
    }

    /// How often the process was replaced.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Fails if the process has ended by itself.
    pub(crate) async fn check(&self) -> Result<(), String> {
        self.controller.lock().await.check().map_err(|error| error.to_string())
    }

    /// Lines of the process's log that have this word in them, the last ones.
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

    /// Makes what an extension of this name may install.
    pub(crate) fn publish(&self, name: &str) {
        let (registry, conversion) = (&self.world.registry, self.converter.conversion(name));
        for version in &VERSIONS {
            let image = Image::bundle(&bundle(name, version, &conversion)).unwrap();
            registry.add_image(&package(name), version.text, &image);
        }
    }

    /// The image of a version's bundle.
    fn image(&self, name: &str, version: &str) -> String {
        format!("{}/{}:{version}", self.world.registry.host(), package(name))
    }

    /// Makes the catalog, or changes it. The content follows soon.
    pub(crate) async fn offer(&self, name: &str, letter: char, offered: &BTreeSet<usize>, priority: i32) {
        let files = catalog(name, offered, |version| self.image(name, version));
        let catalog = catalog_name(name, letter);
        let digest = self.world.registry.add_image(&catalog, "latest", &Image::catalog(&files).unwrap());
        let image = format!("{}/{catalog}@{digest}", self.world.registry.host());
        let object = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": catalog, "labels": {"model": name, "olm.operatorframework.io/metadata.name": catalog}},
            "spec": {"priority": priority, "source": {"type": "Image", "image": {"ref": image}}},
        });
        self.images.lock().unwrap().insert(catalog.clone(), image);
        let params = PatchParams::apply("model").force();
        self.catalogs().patch(&catalog, &params, &Patch::Apply(&object)).await.unwrap();
    }

    /// Deletes the catalog and waits until it is gone.
    pub(crate) async fn withdraw(&self, name: &str, letter: char) {
        let catalog = catalog_name(name, letter);
        self.images.lock().unwrap().remove(&catalog);
        // It may be gone already.
        let _ = self.catalogs().delete(&catalog, &DeleteParams::default()).await;
        let deadline = Instant::now() + olm_servers::PATIENCE;
        while self.catalogs().get_opt(&catalog).await.unwrap().is_some() {
            assert!(Instant::now() < deadline, "{catalog} stays");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the extension's catalogs serve what they were last given.
    pub(crate) async fn until_served(&self, name: &str) -> Result<(), String> {
        let ours = |catalog: &str| ['a', 'b'].iter().any(|letter| catalog_name(name, *letter) == catalog);
        let images = self.images.lock().unwrap().clone();
        for (catalog, image) in images.iter().filter(|(catalog, _)| ours(catalog)) {
            let served = self.world.until_served(catalog, image).await;
            served.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn catalogs(&self) -> Api<ClusterCatalog> {
        Api::all(self.client())
    }

    /// From now on some calls about the extension go wrong.
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
        let strikes = move |call: &Call| {
            !call.is_watch()
                && (call.is_mutation() || !writes)
                && call.mentions(&about)
                && count.fetch_add(1, Ordering::Relaxed).is_multiple_of(ONE_IN)
        };
        let rule = self.world.proxy.add(Rule::new(fault, strikes).when(when));
        self.troubles.lock().unwrap().entry(name.to_owned()).or_default().push(rule);
    }

    fn hold_pulls(&self, name: &str) {
        if self.held.lock().unwrap().contains_key(name) {
            return;
        }
        let (held, until) = watch::channel(());
        let fault = registry::Fault::Held(until);
        self.world.registry.add_fault(&format!("/v2/{}/", package(name)), usize::MAX, fault);
        self.held.lock().unwrap().insert(name.to_owned(), held);
    }

    /// Everything about the extension goes well again.
    pub(crate) fn calm(&self, name: &str) {
        self.converter.fail(name, false);
        if self.held.lock().unwrap().remove(name).is_some() {
            // The registry takes the first fault that fits, so one that has ended must not stay; this ends those of the
            // other extensions too.
            self.world.registry.clear_faults();
        }
        let rules = self.troubles.lock().unwrap().remove(name).unwrap_or_default();
        for rule in rules {
            self.world.proxy.remove(rule);
        }
    }
}

/// Without it the loader only warns, and no step of the clock would be one.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// The wall clock of a process, which libfaketime reads from a file.
struct WallClock(TempDir);

impl WallClock {
    fn new() -> Self {
        assert!(Path::new(FAKETIME).exists(), "{FAKETIME} is missing: install Debian's package faketime");
        let clock = Self(TempDir::new().unwrap());
        clock.set(0);
        clock
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("offset")
    }

    fn set(&self, seconds: i64) {
        let new = self.0.path().join("new");
        fs::write(&new, format!("{seconds:+}")).unwrap();
        fs::rename(new, self.file()).unwrap();
    }
}

async fn launch(world: &World, clock: &WallClock) -> Server {
    let file = clock.file().display().to_string();
    let environment = [
        ("LD_PRELOAD", FAKETIME),
        ("FAKETIME_TIMESTAMP_FILE", &file),
        ("FAKETIME_CACHE_DURATION", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let mut controller = world.launch_controller_in(&environment, &FLAGS).unwrap();
    controller.ready().await.unwrap();
    controller
}
