//! A week of governed upgrades, its time simulated: approvals, upgrade windows and catalogs change at random, against
//! real servers. Nothing is installed without its approval or outside of its window, and everything else is.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use kube::api::{ListParams, PostParams};
use olm_api::conditions::{self, types};
use olm_api::{ClusterExtension, annotations, labels};
use olm_servers::{Bundle, Catalog, Published, Server, ServerFixture, WallClock, extension};
use serde_json::{Value, json};

use crate::random::Random;
use crate::{launch, start};

/// Number of extensions.
const EXTENSIONS: usize = 5;
/// Number of versions of each package.
const VERSIONS: usize = 24;
const POLL_INTERVAL: Duration = Duration::from_millis(40);
const HOUR: i64 = 3600;
const WEEK: i64 = 7 * 24 * HOUR;
/// Time limit for the response to the changes of one simulated moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// Approval mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Automatic,
    ManualUpgrades,
    Manual,
}

/// Daily upgrade window.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Hour of the opening, UTC.
    opens: i64,
    hours: i64,
}

/// Cause for which a version waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Approval,
    Window,
}

/// Expected state of one extension. Versions are indexes.
#[derive(Clone, Debug)]
struct Governed {
    name: String,
    mode: Mode,
    window: Option<Window>,
    /// Version whose plan is approved.
    approved: Option<usize>,
    /// Number of versions in its catalog.
    published: usize,
    installed: Option<usize>,
}

impl Governed {
    fn new(name: String) -> Self {
        Self { name, mode: Mode::Automatic, window: None, approved: None, published: 1, installed: None }
    }

    /// Version that the resolver chooses, unless it is installed. Each version replaces only the previous one.
    fn next(&self) -> Option<usize> {
        let next = self.installed.map_or(self.published - 1, |installed| installed + 1);
        (next < self.published).then_some(next)
    }

    /// Cause for which `version` waits at `hour` of the day.
    fn wait(&self, version: usize, hour: i64) -> Option<Wait> {
        let is_upgrade = self.installed.is_some();
        let (upgrades, all) = (self.mode != Mode::Automatic && is_upgrade, self.mode == Mode::Manual);
        if (upgrades || all) && self.approved != Some(version) {
            return Some(Wait::Approval);
        }
        let is_open = self.window.is_none_or(|window| (hour - window.opens).rem_euclid(24) < window.hours);
        (!is_open && (is_upgrade || all)).then_some(Wait::Window)
    }

    /// Installs everything that does not wait.
    fn advance(&mut self, hour: i64) {
        while let Some(next) = self.next().filter(|next| self.wait(*next, hour).is_none()) {
            self.installed = Some(next);
        }
    }

    fn annotations(&self) -> Value {
        let mode = match self.mode {
            Mode::Automatic => None,
            mode => Some(format!("{mode:?}")),
        };
        let window = self.window.map(|Window { opens, hours }| format!("0 {opens} * * * {hours}h"));
        json!({annotations::EXT_APPROVAL: mode, annotations::EXT_UPGRADE_WINDOW: window})
    }

    /// Differences between the extension and the expected state at `hour` of the day.
    fn faults(&self, extension: &ClusterExtension, hour: i64) -> String {
        let mut faults = String::new();
        let status = extension.status.clone().unwrap_or_default();
        let installed = status.install.as_ref().map(|install| install.bundle.version.clone());
        if installed != self.installed.map(text) {
            let _ = writeln!(faults, "{installed:?} is installed, not {:?}", self.installed.map(text));
        }
        let shown = |type_| {
            conditions::find(&status.conditions, type_)
                .map(|one| (one.status.as_str(), one.reason.as_str(), one.message.as_str()))
        };
        let waits = self.next().and_then(|next| Some((text(next), self.wait(next, hour)?)));
        let condition =
            shown(if self.installed.is_some() { types::UPGRADE_AVAILABLE } else { types::PROGRESSING });
        let fits = match (&waits, condition) {
            (Some((version, wait)), Some((status, reason, message))) => {
                let expected = match (self.installed, wait) {
                    (None, _) => ("False", "Blocked"),
                    (Some(_), Wait::Approval) => ("True", "ApprovalRequired"),
                    (Some(_), Wait::Window) => ("True", "OutsideWindow"),
                };
                (status, reason) == expected && message.contains(&format!("version {version} "))
            }
            (Some(_), None) => false,
            (None, condition) => {
                condition.is_none_or(|(status, ..)| self.installed.is_none() || status == "False")
            }
        };
        if !fits {
            let _ = writeln!(faults, "{waits:?} should wait: {condition:?}");
        }
        if self.installed.is_some()
            && shown(types::PROGRESSING).is_none_or(|(_, reason, _)| reason != "Succeeded")
        {
            let _ = writeln!(faults, "Progressing is {:?}", shown(types::PROGRESSING));
        }
        faults
    }
}

fn text(version: usize) -> String {
    format!("1.0.{version}")
}

/// Servers with a simulated clock.
struct Week {
    servers: ServerFixture,
    controller: Server,
    clock: WallClock,
    /// Simulated time, in seconds since the epoch.
    now: i64,
    all: Vec<Governed>,
    published: Vec<Vec<Published>>,
    _catalogd: Server,
}

impl Week {
    async fn start() -> Self {
        let servers = start().await;
        let catalogd = servers.start_catalogd().await.unwrap();
        let clock = WallClock::new().unwrap();
        // Half past, so that no step of whole hours comes close to the limit of a window.
        let now = (jiff::Timestamp::now().as_second() / HOUR + 1) * HOUR + HOUR / 2;
        let controller = launch(&servers, &clock.environment(), &[]).await;
        let week = Self {
            servers,
            controller,
            clock,
            now,
            all: Vec::new(),
            published: Vec::new(),
            _catalogd: catalogd,
        };
        week.set_clock();
        week
    }

    /// Publishes the package of an extension, and creates the extension.
    async fn add(&mut self, index: usize) {
        let name = format!("week-{index}");
        let publish = |version: usize| {
            let data = text(version);
            let bundle = Bundle::new(&name, &data).config_map(&name, &[("version", &data)]);
            self.servers.publish(&bundle).unwrap()
        };
        self.published.push((0..VERSIONS).map(publish).collect());
        self.servers.create_namespace(&name).await.unwrap();
        let object: ClusterExtension = serde_json::from_value(extension(&name, &name, &name, None)).unwrap();
        self.servers.extensions().create(&PostParams::default(), &object).await.unwrap();
        self.all.push(Governed::new(name));
        self.serve(index).await;
    }

    async fn serve(&self, index: usize) {
        let one = &self.all[index];
        let catalog = Catalog::default().chain(&self.published[index][..one.published]);
        self.servers.serve(&one.name, &catalog).await.unwrap();
    }

    /// Hour of the simulated day.
    fn hour(&self) -> i64 {
        self.now.div_euclid(HOUR).rem_euclid(24)
    }

    fn set_clock(&self) {
        self.clock.set(self.now - jiff::Timestamp::now().as_second()).unwrap();
    }

    /// Lets simulated time pass. Timers of the controller are monotonic, so that each extension is reconciled here.
    async fn pass(&mut self, seconds: i64) {
        self.now += seconds;
        self.set_clock();
        for one in &self.all {
            self.annotate(&one.name, json!({"week": self.now.to_string()})).await;
        }
    }

    async fn annotate(&self, name: &str, annotations: Value) {
        self.servers.edit(name, json!({"metadata": {"annotations": annotations}})).await.unwrap();
    }

    async fn restart(&mut self) {
        self.controller.kill();
        self.controller = launch(&self.servers, &self.clock.environment(), &[]).await;
    }

    /// Applies one random change to an extension.
    async fn change(&mut self, index: usize, random: &mut Random) {
        let one = &mut self.all[index];
        match random.below(10) {
            0..=2 => one.published = (one.published + 1 + random.below(2)).min(VERSIONS),
            3..=6 => return self.approve(index).await,
            7 => one.mode = *random.one(&[Mode::Automatic, Mode::ManualUpgrades, Mode::Manual]),
            8 => {
                let window = Window { opens: 6 * random.below(4) as i64, hours: *random.one(&[3, 6, 12]) };
                one.window = random.chance(70).then_some(window);
            }
            _ => {
                one.approved = None;
                let name = one.name.clone();
                return self.annotate(&name, json!({annotations::EXT_APPROVED: null})).await;
            }
        }
        let one = &self.all[index];
        self.annotate(&one.name, one.annotations()).await;
        self.serve(index).await;
    }

    /// Approves the plan in the conditions of an extension, if it has one.
    async fn approve(&mut self, index: usize) {
        let one = &mut self.all[index];
        let extension = self.servers.extensions().get(&one.name).await.unwrap();
        let conditions = extension.status.map(|status| status.conditions).unwrap_or_default();
        let digest = conditions.iter().find_map(|condition| {
            let (_, plan) = condition.message.split_once("; plan ")?;
            Some(plan.split_once(": ")?.0.to_owned())
        });
        let Some(digest) = digest else { return };
        one.approved = one.next();
        let name = one.name.clone();
        self.annotate(&name, json!({annotations::EXT_APPROVED: digest})).await;
    }

    /// Waits until every extension has the expected state.
    async fn settle(&mut self) {
        let (hour, deadline) = (self.hour(), Instant::now() + PATIENCE);
        self.all.iter_mut().for_each(|one| one.advance(hour));
        for one in &self.all {
            loop {
                let extension = self.servers.extensions().get(&one.name).await.unwrap();
                let faults = one.faults(&extension, hour);
                if faults.is_empty() {
                    break;
                }
                let status = serde_json::to_string(&extension.status).unwrap();
                assert!(Instant::now() < deadline, "{one:?} at {hour} h: {faults}{status}");
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        self.check_revisions().await;
    }

    /// Checks that no extension has a revision of a version above the installed one.
    async fn check_revisions(&self) {
        let revisions = self.servers.revisions().list(&ListParams::default()).await.unwrap().items;
        for one in &self.all {
            let ours = revisions.iter().filter(|set| {
                set.metadata.labels.as_ref().and_then(|all| all.get(labels::OWNER_NAME)) == Some(&one.name)
            });
            let newest = ours.max_by_key(|set| set.spec.as_ref().map(|spec| spec.revision));
            let version = newest
                .and_then(|set| set.metadata.annotations.as_ref()?.get(annotations::BUNDLE_VERSION).cloned());
            assert_eq!(version, one.installed.map(text), "newest revision of {one:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn week_of_upgrades_follows_approvals_and_windows() {
    let seed = std::env::var("OLM_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = Random::new(seed, u64::MAX);
    let mut week = Week::start().await;
    for index in 0..EXTENSIONS {
        week.add(index).await;
    }
    week.settle().await;
    let (end, mut moments) = (week.now + WEEK, 0);
    while week.now < end {
        for index in 0..EXTENSIONS {
            week.change(index, &mut random).await;
        }
        week.settle().await;
        if random.chance(10) {
            week.restart().await;
        }
        week.pass(HOUR * (1 + random.below(6) as i64)).await;
        week.settle().await;
        moments += 1;
    }
    let installed: Vec<_> = week.all.iter().map(|one| one.installed.map(text)).collect();
    println!("seed {seed}: {moments} moments, finally installed {installed:?}");
}
