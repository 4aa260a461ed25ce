//! `kill -9` at each call to the API server of an install, an upgrade and an uninstall.
//!
//! A clean run is watched first: which calls there are, and what there is at the end. Then for each call an extension of its
//! own goes the same way, the process is killed at that call, before or after it took effect, and started again: there must
//! be the same in the end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use olm_servers::{Call, Fault, Rule, When};

use crate::sample::Sampler;
use crate::setting::{SILENCE, Setting, Way};
use crate::snapshot::{Snapshot, difference, take};

/// Points that are tried unless all are asked for.
const SAMPLED: usize = 20;
/// So many extensions are made ready at a time, before they go their ways one after the other.
const AHEAD: usize = 10;
/// Extensions that stay for a while, so that restarts find something that is to be left alone.
const KEPT: usize = 3;
/// Pause between two looks at the calls.
const LOOK: Duration = Duration::from_millis(10);
/// At the end nobody writes anything for so long.
const QUIET: Duration = Duration::from_secs(10);

/// What an undisturbed run does.
struct Clean {
    way: Way,
    /// The calls that are about the extension, by line.
    calls: Vec<(String, bool)>,
    outcome: Snapshot,
}

/// A call of a way at which the process is killed.
#[derive(Clone, Copy, Debug)]
struct Point {
    way: Way,
    /// From 0.
    call: usize,
    when: When,
}

struct Kills {
    setting: Setting,
    /// Extensions that came to rest, and when.
    resting: VecDeque<(String, Snapshot, Instant)>,
    count: usize,
}

/// All points if `all`, otherwise some.
pub(crate) async fn run(all: bool, sampler: &mut Sampler) -> Result<()> {
    let setting = Setting::start().await?;
    let mut kills = Kills { setting, resting: VecDeque::new(), count: 0 };
    let ways = [Way::Install, Way::Upgrade, Way::Uninstall];
    kills.setting.serve((0..ways.len()).map(name)).await?;
    let mut clean = Vec::new();
    for way in ways {
        clean.push(kills.watch(way).await.with_context(|| format!("clean {way:?}"))?);
    }
    let every: Vec<Point> = clean.iter().flat_map(points).collect();
    let chosen = if all { every.clone() } else { sampler.choose(&every, SAMPLED) };
    println!(
        "calls: {}; {} of {} points",
        clean
            .iter()
            .map(|clean| format!("{:?} {}", clean.way, clean.calls.len()))
            .collect::<Vec<_>>()
            .join(", "),
        chosen.len(),
        every.len()
    );
    kills.setting.serve((0..ways.len() + chosen.len()).map(name)).await?;
    let (mut missed, mut ready) = (0, VecDeque::new());
    for (number, point) in chosen.iter().enumerate() {
        if ready.is_empty() {
            let next = chosen.iter().skip(number).take(AHEAD).map(|point| point.way);
            ready.extend(kills.prepare(next).await?);
        }
        let (Some(name), Some(clean)) =
            (ready.pop_front(), clean.iter().find(|clean| clean.way == point.way))
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
    ensure!(missed * 4 <= chosen.len(), "{missed} of {} calls did not come again", chosen.len());
    kills.finish().await
}

/// Names are equally long, so that none is the beginning of another.
fn name(number: usize) -> String {
    format!("k{number:04}")
}

/// A call that writes is worth two points: killed before it took effect, and after.
fn points(clean: &Clean) -> Vec<Point> {
    let of = |(call, (_, is_mutation)): (usize, &(String, bool))| {
        let point = |when| Point { way: clean.way, call, when };
        let after = is_mutation.then(|| point(When::After));
        [Some(point(When::Before)), after].into_iter().flatten().collect::<Vec<_>>()
    };
    clean.calls.iter().enumerate().flat_map(of).collect()
}

impl Kills {
    /// What an undisturbed run does and leaves.
    async fn watch(&mut self, way: Way) -> Result<Clean> {
        let name = self.prepare([way]).await?.pop().context("no name")?;
        self.setting.until_silent(&name).await?;
        let before = self.setting.world.proxy.count();
        self.setting.begin(way, &name).await?;
        self.setting.until_done(way, &name).await?;
        self.setting.until_silent(&name).await?;
        let calls = self.setting.world.proxy.calls(before);
        let calls = calls.iter().filter(|call| call.mentions(&name));
        let calls = calls.map(|call| (call.line().replace(&name, "NAME"), call.is_mutation())).collect();
        let outcome = take(&self.setting.world.client(), &name).await?;
        self.rest(name, outcome.clone()).await?;
        Ok(Clean { way, calls, outcome })
    }

    /// Whether the process was killed at this point on the way of the extension `name`; if it was, there is the same in the
    /// end.
    async fn try_point(&mut self, clean: &Clean, point: Point, name: String) -> Result<bool> {
        self.setting.until_silent(&name).await?;
        let (setting, seen) = (&mut self.setting, Arc::new(AtomicUsize::new(0)));
        let (about, counted) = (name.clone(), Arc::clone(&seen));
        let matches = move |call: &Call| {
            let is_it = call.mentions(&about);
            is_it && counted.fetch_add(1, Ordering::Relaxed) == point.call
        };
        let rule = setting.world.proxy.add(Rule::new(Fault::Kill, matches).when(point.when).times(1));
        setting.begin(point.way, &name).await?;
        let struck = self.until_struck_or_silent(&seen, point).await?;
        let setting = &mut self.setting;
        setting.world.proxy.remove(rule);
        if struck {
            setting.controller.ended().await?;
            setting.controller = setting.world.start_controller().await?;
        }
        setting.until_like(&name, &clean.outcome).await?;
        setting.foreign_is_untouched(&name).await?;
        self.rest(name, clean.outcome.clone()).await?;
        Ok(struck)
    }

    /// Extensions about to go these ways, by their names.
    async fn prepare(&mut self, ways: impl IntoIterator<Item = Way>) -> Result<Vec<String>> {
        let all: Vec<(String, Way)> =
            ways.into_iter().zip(self.count..).map(|(way, number)| (name(number), way)).collect();
        self.count += all.len();
        try_join_all(all.iter().map(|(name, way)| self.setting.prepare(name, *way))).await?;
        Ok(all.into_iter().map(|(name, _)| name).collect())
    }

    /// Whether the call came; it does not any more if long none has come at all.
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
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The extension has come to rest and stays for a while; nobody may write anything about it from now on.
    async fn rest(&mut self, name: String, outcome: Snapshot) -> Result<()> {
        self.resting.push_back((name, outcome, Instant::now()));
        while self.resting.len() > KEPT {
            self.end_first().await?;
        }
        Ok(())
    }

    async fn end_first(&mut self) -> Result<()> {
        let Some((name, outcome, since)) = self.resting.pop_front() else { return Ok(()) };
        // The last Event may come a moment after the last change.
        let is_late = |call: &&Call| call.at > since + SILENCE && call.is_mutation() && call.mentions(&name);
        let calls = self.setting.world.proxy.calls(0);
        let writes: Vec<String> = calls.iter().filter(is_late).map(Call::line).collect();
        ensure!(writes.is_empty(), "{name} was at rest, and yet there were writes:\n{}", writes.join("\n"));
        let found = take(&self.setting.world.client(), &name).await?;
        let lines = difference(&outcome, &found);
        ensure!(lines.is_empty(), "{name} did not stay as it was:\n{}", lines.join("\n"));
        if self.setting.world.extensions().get_opt(&name).await?.is_some() {
            self.setting.begin(Way::Uninstall, &name).await?;
        }
        Ok(())
    }

    /// Nobody writes anything any more.
    async fn finish(mut self) -> Result<()> {
        let proxy = &self.setting.world.proxy;
        let about = |call: &Call| self.resting.iter().any(|(name, ..)| call.mentions(name));
        let writes = proxy.mutations_within(QUIET).await;
        let lines: Vec<String> = writes.iter().filter(|call| about(call)).map(Call::line).collect();
        ensure!(lines.is_empty(), "writes although all is done:\n{}", lines.join("\n"));
        while !self.resting.is_empty() {
            self.end_first().await?;
        }
        Ok(())
    }
}
