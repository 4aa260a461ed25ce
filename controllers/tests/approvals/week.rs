//! A simulated week of upgrades with rules of approval: approvals, upgrade windows, reports of operators and catalogs change
//! at random, against real servers. Nothing is installed without its approval or outside of its window, everything else
//! is, and what never becomes ready is rolled back.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use olm_api::conditions::{self, types};
use olm_api::{ClusterExtension, ClusterObjectSet, OperatorCondition, annotations, labels};
use olm_servers::{Bundle, Catalog, Published, Server, ServerFixture, WallClock, Workloads, extension};
use serde_json::{Value, json};

use crate::random::Random;
use crate::{launch, start};

/// Number of extensions.
const EXTENSIONS: usize = 5;
/// Number of extensions with a Deployment, which may hold their own upgrades. The others are rolled back on failure.
const OPERATORS: usize = 2;
/// Number of versions of each package.
const VERSIONS: usize = 30;
const FLAGS: [&str; 1] = ["--feature-gates=OperatorConditionCompat=true"];
const POLL_INTERVAL: Duration = Duration::from_millis(40);
const HOUR: i64 = 3600;
const WEEK: i64 = 7 * 24 * HOUR;
/// Duration without writes after which the controller has responded.
const QUIET: Duration = Duration::from_millis(200);
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

/// Expected state of one extension. Versions are indexes.
#[derive(Clone, Debug)]
struct Governed {
    name: String,
    is_operator: bool,
    mode: Mode,
    window: Option<Window>,
    /// Version with an approved plan.
    approved: Option<usize>,
    /// Number of versions in its catalog. The last one upgrades all others.
    published: usize,
    installed: usize,
    /// Report of the installed operator.
    is_upgradeable: bool,
    /// Version that was rolled back.
    refused: Option<usize>,
}

impl Governed {
    fn new(name: String, is_operator: bool) -> Self {
        Self {
            name,
            is_operator,
            mode: Mode::Automatic,
            window: None,
            approved: None,
            published: 1,
            installed: 0,
            is_upgradeable: true,
            refused: None,
        }
    }

    /// Reports whether this version never becomes ready.
    fn is_broken(&self, version: usize) -> bool {
        !self.is_operator && version % 5 == 4
    }

    /// Version that the resolver chooses, unless it is installed.
    fn next(&self) -> Option<usize> {
        let next = self.published - 1;
        (next != self.installed).then_some(next)
    }

    /// Reason for which `version` waits at `hour` of the day.
    fn wait(&self, version: usize, hour: i64) -> Option<&'static str> {
        let is_open = self.window.is_none_or(|window| (hour - window.opens).rem_euclid(24) < window.hours);
        if self.mode != Mode::Automatic && self.approved != Some(version) {
            Some("ApprovalRequired")
        } else if !is_open {
            Some("OutsideWindow")
        } else {
            (!self.is_upgradeable).then_some("OperatorNotUpgradeable")
        }
    }

    /// Installs what does not wait.
    fn advance(&mut self, hour: i64) {
        let next = self.next().filter(|next| self.refused != Some(*next) && self.wait(*next, hour).is_none());
        match next {
            Some(next) if self.is_broken(next) => self.refused = Some(next),
            Some(next) => (self.installed, self.refused, self.is_upgradeable) = (next, None, true),
            None => {}
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
        if installed != Some(text(self.installed)) {
            let _ = writeln!(faults, "{installed:?} is installed, not {}", text(self.installed));
        }
        let shown = |type_| {
            conditions::find(&status.conditions, type_)
                .map(|one| (one.status.as_str(), one.reason.as_str(), one.message.as_str()))
        };
        let available = shown(types::UPGRADE_AVAILABLE);
        let expected = self.next().map(|next| (next, self.wait(next, hour)));
        let fits = match (expected, available) {
            (Some((next, wait)), Some(("True", reason, message))) => {
                let is_refused = self.refused == Some(next);
                let expected = if is_refused { Some("RolledBack") } else { wait };
                expected == Some(reason) && message.contains(&format!("version {} ", text(next)))
            }
            (Some(_), _) => false,
            (None, available) => available.is_none_or(|(status, ..)| status == "False"),
        };
        if !fits {
            let _ = writeln!(faults, "{expected:?} should be available: {available:?}");
        }
        let progressing = shown(types::PROGRESSING).map(|(_, reason, _)| reason);
        let reason = if self.refused.is_some() { "ProgressDeadlineExceeded" } else { "Succeeded" };
        if progressing != Some(reason) {
            let _ = writeln!(faults, "Progressing is {progressing:?}, not {reason}");
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
    /// UIDs of the revisions that were checked.
    seen: HashSet<String>,
    /// UIDs of the revisions whose rollout [`Self::age_refused`] has ended.
    aged: HashSet<String>,
    _catalogd: Server,
    _workloads: Workloads,
}

impl Week {
    async fn start() -> Self {
        let servers = start().await;
        let catalogd = servers.start_catalogd().await.unwrap();
        let workloads = Workloads::start(servers.client());
        let manifest = include_bytes!("../../../manifests/operator-conditions.yaml");
        let crd: CustomResourceDefinition =
            serde_json::from_value(olm_yaml::from_slice(manifest).unwrap()).unwrap();
        Api::all(servers.client()).create(&PostParams::default(), &crd).await.unwrap();
        let clock = WallClock::new().unwrap();
        // Half past, so that no step of whole hours comes close to the limit of a window.
        let now = (jiff::Timestamp::now().as_second() / HOUR + 1) * HOUR + HOUR / 2;
        let controller = launch(&servers, &clock.environment(), &FLAGS).await;
        let week = Self {
            servers,
            controller,
            clock,
            now,
            all: Vec::new(),
            published: Vec::new(),
            seen: HashSet::new(),
            aged: HashSet::new(),
            _catalogd: catalogd,
            _workloads: workloads,
        };
        week.set_clock();
        week
    }

    /// Publishes the package of an extension, and creates the extension.
    async fn add(&mut self, index: usize) {
        let one = Governed::new(format!("week-{index}"), index < OPERATORS);
        let name = one.name.clone();
        let publish = |version: usize| {
            let data = text(version);
            let bundle = Bundle::new(&name, &data).config_map(&name, &[("version", &data)]);
            let bundle = match one.is_broken(version) {
                true => bundle.deployment(&name, "registry.example/broken"),
                false if one.is_operator => bundle.deployment(&name, "registry.example/operator"),
                false => bundle,
            };
            self.servers.publish(&bundle).unwrap()
        };
        self.published.push((0..VERSIONS).map(publish).collect());
        self.servers.create_namespace(&name).await.unwrap();
        let mut object = extension(&name, &name, &name, None);
        if !one.is_operator {
            object["spec"]["progressDeadlineMinutes"] = json!(10);
            object["metadata"]["annotations"] = json!({annotations::EXT_ON_FAILURE: "Rollback"});
        }
        let object: ClusterExtension = serde_json::from_value(object).unwrap();
        self.servers.extensions().create(&PostParams::default(), &object).await.unwrap();
        self.all.push(one);
        self.serve(index).await;
    }

    async fn serve(&self, index: usize) {
        let one = &self.all[index];
        let published = &self.published[index][..one.published];
        let entry =
            |bundle: &Published| json!({"name": bundle.name, "skipRange": format!("<{}", bundle.version)});
        let catalog = Catalog::default().package(&one.name).channel(
            &one.name,
            "stable",
            published.iter().map(entry).collect(),
        );
        let catalog = published.iter().fold(catalog, Catalog::bundle);
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

    /// Ends the rollout of a version that fails: after a restart, the simulated clock gives the age of its revision.
    async fn age_refused(&mut self, index: usize) {
        let refused = self.all[index].refused.map(text);
        let is_aged = |set: &&ClusterObjectSet| {
            set.annotations().get(annotations::BUNDLE_VERSION) == refused.as_ref()
                && set.condition(types::PROGRESSING).is_some_and(|shown| shown.reason == "RollingOut")
        };
        let failing: Vec<_> =
            self.revisions(index).await.iter().filter(is_aged).filter_map(|set| set.uid()).collect();
        for uid in failing {
            if self.aged.insert(uid) {
                self.restart().await;
            }
        }
    }

    async fn restart(&mut self) {
        self.controller.kill();
        self.controller = launch(&self.servers, &self.clock.environment(), &FLAGS).await;
    }

    /// Applies one random change to an extension.
    async fn change(&mut self, index: usize, random: &mut Random) {
        let one = &mut self.all[index];
        match random.below(12) {
            0..=2 => {
                one.published = (one.published + 1 + random.below(2)).min(VERSIONS);
                return self.serve(index).await;
            }
            3..=6 => return self.approve(index).await,
            7 => one.mode = *random.one(&[Mode::Automatic, Mode::ManualUpgrades, Mode::Manual]),
            8 => {
                let opens = *random.one(&[0, 6, 12, 18]);
                let window = Window { opens, hours: *random.one(&[3, 6, 12]) };
                one.window = random.chance(70).then_some(window);
            }
            9 => {
                one.approved = None;
                let name = one.name.clone();
                return self.annotate(&name, json!({annotations::EXT_APPROVED: null})).await;
            }
            _ if one.is_operator => {
                one.is_upgradeable = random.chance(50);
                return self.report(index).await;
            }
            _ => return self.retry(index).await,
        }
        let one = &self.all[index];
        self.annotate(&one.name, one.annotations()).await;
    }

    /// Reports Upgradeable as the installed operator does.
    async fn report(&self, index: usize) {
        let one = &self.all[index];
        let status = if one.is_upgradeable { "True" } else { "False" };
        let condition = json!({"type": "Upgradeable", "status": status, "reason": "Week", "message": "reported",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let patch = Patch::Merge(json!({"spec": {"conditions": [condition]}}));
        let api: Api<OperatorCondition> = Api::namespaced(self.servers.client(), &one.name);
        let name = &self.published[index][one.installed].name;
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Requests one more attempt of a version that was rolled back, and waits until that is rolled back, too.
    async fn retry(&mut self, index: usize) {
        let one = &self.all[index];
        if one.refused.is_none_or(|refused| one.wait(refused, self.hour()).is_some()) {
            return;
        }
        let now = self.now.to_string();
        self.annotate(&one.name, json!({annotations::EXT_RETRY_REQUESTED_AT: now})).await;
        let is_retried = |set: &ClusterObjectSet| {
            set.annotations().get(annotations::EXT_REFUSED).is_some_and(|refused| refused.contains(&now))
        };
        let deadline = Instant::now() + PATIENCE;
        while !self.revisions(index).await.iter().any(is_retried) {
            assert!(Instant::now() < deadline, "{:?} was not retried", self.all[index]);
            self.age_refused(index).await;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
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
        for index in 0..self.all.len() {
            loop {
                let one = &self.all[index];
                let extension = self.servers.extensions().get(&one.name).await.unwrap();
                let faults = one.faults(&extension, hour);
                if faults.is_empty() {
                    break;
                }
                let status = serde_json::to_string(&extension.status).unwrap();
                assert!(Instant::now() < deadline, "{one:?} at {hour} h: {faults}{status}");
                self.age_refused(index).await;
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        // The controller would create a forbidden revision now.
        self.servers.proxy.wait_until_quiet(QUIET, PATIENCE).await.unwrap();
        for index in 0..self.all.len() {
            while self.check_revisions(index).await != Some(text(self.all[index].installed)) {
                assert!(Instant::now() < deadline, "newest revision of {:?}", self.all[index]);
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }

    /// Checks that each new revision has the installed version, or the one that was rolled back. Returns the version
    /// of the newest.
    async fn check_revisions(&mut self, index: usize) -> Option<String> {
        let mut ours = self.revisions(index).await;
        ours.sort_by_key(|set| set.spec.as_ref().map(|spec| spec.revision));
        let version = |set: &ClusterObjectSet| set.annotations().get(annotations::BUNDLE_VERSION).cloned();
        let one = &self.all[index];
        let allowed = [Some(one.installed), one.refused].map(|version| version.map(text));
        for set in &ours {
            if self.seen.insert(set.uid().unwrap()) {
                assert!(
                    allowed.contains(&version(set)),
                    "{} has {:?}: {one:?}",
                    set.name_any(),
                    version(set)
                );
            }
        }
        ours.last().and_then(version)
    }

    async fn revisions(&self, index: usize) -> Vec<ClusterObjectSet> {
        let owned = format!("{}={}", labels::OWNER_NAME, self.all[index].name);
        self.servers.revisions().list(&ListParams::default().labels(&owned)).await.unwrap().items
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn week_of_upgrades_follows_approvals_windows_and_reports() {
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
    let installed: Vec<_> = week.all.iter().map(|one| text(one.installed)).collect();
    println!("seed {seed}: {moments} moments, finally installed {installed:?}");
}
