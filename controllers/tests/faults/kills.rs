//! `kill -9` at each call to the API server of an install, an upgrade and an uninstall.
//!
//! A clean run first records the calls and the final objects. Then one extension per call repeats the run, and the
//! process is killed at that call, before or after it takes effect, and restarted. The final objects must be the
//! same.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use olm_servers::{Call, Fault, Rule, When};

use crate::fixture::{Change, Fixture, SILENCE};
use crate::sample::Sampler;
use crate::snapshot::{Snapshot, difference, take};

/// Number of points tested by default.
const SAMPLED: usize = 20;
/// Number of extensions prepared at a time. They run one after the other.
const AHEAD: usize = 10;
/// Number of finished extensions that remain, so that restarts find installed extensions that need no change.
const KEPT: usize = 3;
/// Poll interval for calls.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Duration without writes required at the end.
const QUIET: Duration = Duration::from_secs(10);

/// Recorded calls and outcome of an undisturbed run.
struct Clean {
    change: Change,
    /// Lines of the calls about the extension, each with `true` if it is a mutation.
    calls: Vec<(String, bool)>,
    outcome: Snapshot,
}

/// Call of a run at which the process is killed.
#[derive(Clone, Copy, Debug)]
struct Point {
    change: Change,
    /// Index of the call, from 0.
    call: usize,
    when: When,
}

struct Kills {
    fixture: Fixture,
    /// Extensions that have settled: name, outcome and time.
    resting: VecDeque<(String, Snapshot, Instant)>,
    count: usize,
}

/// Tests all points if `all` is set, else a sample.
pub(crate) async fn run(all: bool, sampler: &mut Sampler) -> Result<()> {
    let fixture = Fixture::start().await?;
    let mut kills = Kills { fixture, resting: VecDeque::new(), count: 0 };
    let changes = [Change::Install, Change::Upgrade, Change::Uninstall];
    kills.fixture.serve((0..changes.len()).map(name)).await?;
    let mut clean = Vec::new();
    for change in changes {
        clean.push(kills.watch(change).await.with_context(|| format!("clean {change:?}"))?);
    }
    let every: Vec<Point> = clean.iter().flat_map(points).collect();
    let chosen = if all { every.clone() } else { sampler.choose(&every, SAMPLED) };
    println!(
        "calls: {}; {} of {} points",
        clean
            .iter()
            .map(|clean| format!("{:?} {}", clean.change, clean.calls.len()))
            .collect::<Vec<_>>()
            .join(", "),
        chosen.len(),
        every.len()
    );
    kills.fixture.serve((0..changes.len() + chosen.len()).map(name)).await?;
    let (mut missed, mut ready) = (0, VecDeque::new());
    for (number, point) in chosen.iter().enumerate() {
        if ready.is_empty() {
            let next = chosen.iter().skip(number).take(AHEAD).map(|point| point.change);
            ready.extend(kills.prepare(next).await?);
        }
        let (Some(name), Some(clean)) =
            (ready.pop_front(), clean.iter().find(|clean| clean.change == point.change))
        else {
            continue;
        };
        let line = clean.calls.get(point.call).map_or("", |(line, _)| line);
        let started = Instant::now();
        let struck = kills.try_point(clean, *point, name).await;
        let struck = struck.with_context(|| format!("killed at {point:?}: {line}"))?;
        missed += usize::from(!struck);
        println!(
            "{}/{} {point:?} {line}: {} ({} ms)",
            number + 1,
            chosen.len(),
            if struck { "same outcome" } else { "call did not come" },
            started.elapsed().as_millis()
        );
    }
    ensure!(missed * 4 <= chosen.len(), "{missed} of {} calls did not recur", chosen.len());
    kills.finish().await
}

/// Returns a name of fixed length, so that no name is a prefix of another.
fn name(number: usize) -> String {
    format!("k{number:04}")
}

/// A mutation yields two points: a kill before it takes effect, and one after.
fn points(clean: &Clean) -> Vec<Point> {
    let of = |(call, (_, is_mutation)): (usize, &(String, bool))| {
        let point = |when| Point { change: clean.change, call, when };
        let after = is_mutation.then(|| point(When::After));
        [Some(point(When::Before)), after].into_iter().flatten().collect::<Vec<_>>()
    };
    clean.calls.iter().enumerate().flat_map(of).collect()
}

impl Kills {
    /// Records the calls and the outcome of an undisturbed run.
    async fn watch(&mut self, change: Change) -> Result<Clean> {
        let name = self.prepare([change]).await?.pop().context("no name")?;
        self.fixture.until_silent(&name).await?;
        let before = self.fixture.servers.proxy.count();
        self.fixture.begin(change, &name).await?;
        self.fixture.until_done(change, &name).await?;
        self.fixture.until_silent(&name).await?;
        let calls = self.fixture.servers.proxy.calls(before);
        let calls = calls.iter().filter(|call| call.mentions(&name));
        let calls = calls.map(|call| (call.line().replace(&name, "NAME"), call.is_mutation())).collect();
        let outcome = take(&self.fixture.servers.client(), &name).await?;
        self.rest(name, outcome.clone()).await?;
        Ok(Clean { change, calls, outcome })
    }

    /// Runs the extension `name` and kills the process at this point. Returns `false` if the call did not occur.
    /// After a kill, the outcome must equal the clean one.
    async fn try_point(&mut self, clean: &Clean, point: Point, name: String) -> Result<bool> {
        self.fixture.until_silent(&name).await?;
        let (fixture, seen) = (&mut self.fixture, Arc::new(AtomicUsize::new(0)));
        let (about, counted) = (name.clone(), Arc::clone(&seen));
        let matches = move |call: &Call| {
            let is_it = call.mentions(&about);
            is_it && counted.fetch_add(1, Ordering::Relaxed) == point.call
        };
        let rule = fixture.servers.proxy.add(Rule::new(Fault::Kill, matches).when(point.when).times(1));
        fixture.begin(point.change, &name).await?;
        let struck = self.until_struck_or_silent(&seen, point).await?;
        let fixture = &mut self.fixture;
        fixture.servers.proxy.remove(rule);
        if struck {
            fixture.controller.ended().await?;
            fixture.controller = fixture.servers.start_controller().await?;
        }
        fixture.until_like(&name, &clean.outcome).await?;
        fixture.foreign_is_untouched(&name).await?;
        self.rest(name, clean.outcome.clone()).await?;
        Ok(struck)
    }

    /// Prepares one extension for each of these runs. Returns their names.
    async fn prepare(&mut self, changes: impl IntoIterator<Item = Change>) -> Result<Vec<String>> {
        let all: Vec<(String, Change)> =
            changes.into_iter().zip(self.count..).map(|(change, number)| (name(number), change)).collect();
        self.count += all.len();
        try_join_all(all.iter().map(|(name, change)| self.fixture.prepare(name, *change))).await?;
        Ok(all.into_iter().map(|(name, _)| name).collect())
    }

    /// Waits for the call. Returns `false` after a period without calls.
    async fn until_struck_or_silent(&self, seen: &AtomicUsize, point: Point) -> Result<bool> {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            let now = seen.load(Ordering::Relaxed);
            if now > point.call {
                return Ok(true);
            }
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() > 3 * SILENCE {
                return Ok(false);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Adds a settled extension. From now on nothing may write to it.
    async fn rest(&mut self, name: String, outcome: Snapshot) -> Result<()> {
        self.resting.push_back((name, outcome, Instant::now()));
        while self.resting.len() > KEPT {
            self.end_first().await?;
        }
        Ok(())
    }

    async fn end_first(&mut self) -> Result<()> {
        let Some((name, outcome, since)) = self.resting.pop_front() else { return Ok(()) };
        // The last Event may arrive shortly after the last change.
        let is_late = |call: &&Call| call.at > since + SILENCE && call.is_mutation() && call.mentions(&name);
        let calls = self.fixture.servers.proxy.calls(0);
        let writes: Vec<String> = calls.iter().filter(is_late).map(Call::line).collect();
        ensure!(writes.is_empty(), "{name} had settled, but there were writes:\n{}", writes.join("\n"));
        let found = take(&self.fixture.servers.client(), &name).await?;
        let lines = difference(&outcome, &found);
        ensure!(lines.is_empty(), "{name} has changed after it settled:\n{}", lines.join("\n"));
        if self.fixture.servers.extensions().get_opt(&name).await?.is_some() {
            self.fixture.begin(Change::Uninstall, &name).await?;
        }
        Ok(())
    }

    /// Fails if anything is written after the end.
    async fn finish(mut self) -> Result<()> {
        let proxy = &self.fixture.servers.proxy;
        let about = |call: &Call| self.resting.iter().any(|(name, ..)| call.mentions(name));
        let writes = proxy.mutations_within(QUIET).await;
        let lines: Vec<String> = writes.iter().filter(|call| about(call)).map(Call::line).collect();
        ensure!(lines.is_empty(), "writes after the end:\n{}", lines.join("\n"));
        while !self.resting.is_empty() {
            self.end_first().await?;
        }
        Ok(())
    }
}
